"""A sample of the kernel fuzz: right kernels on every machine, planted faults that must show.

``python -m tests.fuzz`` runs as many as are wanted.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.fuzz import campaign, faults, machines
from tests.fuzz.ir import features
from tests.fuzz.kernels import generate

pytest.importorskip("lowering.codegen.numba_cuda", reason="numba-cuda is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1000, 2000])
def test_right_kernels_are_right_on_every_machine(first: int) -> None:
    found = campaign.kernels(first, 20)
    assert found.kernels == 20
    shown = [(each["seed"], each["machine"], each["what"]) for each in found.failures]
    assert not shown


@pytest.mark.slow
@pytest.mark.parametrize("first", [50_000_000, 50_001_000])
def test_no_planted_fault_is_missed(first: int) -> None:
    found = campaign.planted(first, 20)
    assert sum(found.judged.values()) == 20
    assert not [(each["seed"], each["kind"], each["what"]) for each in found.missed]


def test_the_mix_of_kernels() -> None:
    """What must not be rare in a sample of 300."""
    counts: dict[str, int] = {}
    for seed in range(300):
        for name, has in features(generate(seed)[0]).items():
            counts[name] = counts.get(name, 0) + has
    least = {"two or more warps": 120, "a loop that stays": 120, "four kinds of primitive": 90}
    rare = (
        "cp.async", "mbarriers", "TMA", "wgmma", "a producer warpgroup", "casts",
        "an epilogue by warps", "expressions", "reductions", "register copies",
    )  # fmt: skip
    for name in rare:
        least[name] = 15
    assert {name: counts[name] for name in least if counts[name] < least[name]} == {}


def test_the_judges_see_a_dropped_barrier_and_nothing_in_a_right_kernel() -> None:
    """The happens-before checker and the interleavings are no judges that see everything."""
    seen, right = 0, 0
    for seed in range(12):
        program, want, _ = generate(seed)
        if program.grid > 1:
            continue
        try:
            made = machines.lower(program)
        except faults.REFUSALS:
            continue
        assert faults.judge(program, made, want, 4) == faults.Verdict(False)
        right += 1
        planted: Any = faults.plant(program, made, "op: drop a sync", seed)
        if planted is not None and not isinstance(planted, str):
            seen += faults.judge(*planted, want, 4).seen
    assert right >= 8
    assert seen >= 2
