"""Whole matrices by ``tcgen05``: forms, turns and edges on the NumPy warp; faults; texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from layoutalg import LayoutError
from lowering.ir.ops import MbarrierWait, Op, ProxyFence, TmaLoad, When, walk
from lowering.ir.tmem_ops import TensorCommit, TensorFence, TensorFree, TensorMma, TensorWait
from lowering.isa import nvjitlink
from lowering.kernels.config import Config, Form, fitted
from lowering.kernels.fusion import scaled
from lowering.kernels.matmul import program_of
from lowering.simulator.hazards import SimulationError
from tests.lowering.kernels.test_matmul import changed
from tests.lowering.kernels.test_matmul_wgmma import EDGES, FLIPS, exact, run

ARCH = "sm_100a"
ONE = Config((128, 64, 64), (4, 1), 2, 1, bulk=True, producer=True, wgmma=True)
WIDE = Config((128, 192, 32), (4, 1), 3, 1, bulk=True, producer=True, wgmma=True)


@pytest.mark.slow
@pytest.mark.parametrize("flips", FLIPS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_transpose_with_edges_and_pitches(dtype: str, flips: tuple[bool, bool]) -> None:
    assert exact(Form(dtype, None, *flips), ONE, EDGES, padding=8, arch=ARCH)


@pytest.mark.slow
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("out", ["float32", "bfloat16"])
def test_alpha_and_beta(added: bool, out: str) -> None:
    form = Form("bfloat16", out, True, epilogue=scaled(added, out))
    assert exact(form, ONE, (136, 72, 72), padding=8, arch=ARCH)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "sizes", "processors"),
    [
        (ONE, (128, 64, 8), 1),  # one tile, one step
        (ONE, (128, 320, 128), 1),  # five turns, whole rounds: the accumulator is used again
        (ONE, (128, 320, 192), 2),  # the ring goes on in the middle from turn to turn
        (ONE, (384, 128, 192), 4),  # the last turn is that of some CTAs alone
        (WIDE, (128, 384, 96), 1),  # an odd number of blocks per tile
    ],
)
def test_turns_and_rounds(config: Config, sizes: tuple[int, int, int], processors: int) -> None:
    assert exact(Form("float16"), config, sizes, processors=processors, arch=ARCH)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "out"), [("e4m3", None), ("e4m3", "bfloat16"), ("s8", None)])
def test_operands_of_8_bits(dtype: str, out: str | None) -> None:
    assert exact(Form(dtype, out, False, True), ONE, (136, 136, 272), padding=16, arch=ARCH)


def without(*kinds: type) -> Callable[[Op], Op | None]:
    return lambda op: None if isinstance(op, kinds) else op


def only(kind: type, **fields: Any) -> Callable[[Op], Op | None]:
    """Drop the operations of a kind whose fields are these."""

    def change(op: Op) -> Op | None:
        here = isinstance(op, kind) and all(getattr(op, n) == v for n, v in fields.items())
        return None if here else op

    return change


def unasked(op: Op) -> Op:
    return replace(op, free=None) if isinstance(op, TmaLoad) else op


def adding(op: Op) -> Op:
    """Add to what the turn before left."""
    return replace(op, accumulate=True) if isinstance(op, TensorMma) else op


def by_all(op: Op) -> Op:
    """Let all threads wait for bytes, not only the one that starts products."""
    alone = isinstance(op, When) and all(
        isinstance(e, (MbarrierWait, TensorFence)) for e in op.body
    )
    return replace(op, guards=()) if alone else op


FAULTS: dict[str, tuple[Callable[[Op], Op | None], str]] = {
    "a producer that asks nobody": (unasked, "tcgen05 still reads: commit|races"),
    "a stage that is never freed": (only(TensorCommit, barrier="free"), "waits forever"),
    "products that nobody commits": (only(TensorCommit, barrier="done"), "waits forever"),
    "no wait for bytes or products": (without(MbarrierWait), "still being copied|nothing wrote"),
    "no wait for the products": (
        lambda op: None if isinstance(op, MbarrierWait) and op.phase.barrier == "done" else op,
        "still writes: commit it|no thread waited for its commit",
    ),
    "no fence before": (only(TensorFence, side="before"), "a tcgen05.fence.before is missing"),
    "no fence after": (only(TensorFence, side="after"), "a tcgen05.fence.after is missing"),
    "no wait for loads": (without(TensorWait), "still fills: wait for it"),
    "no release": (without(TensorFree), "are allocated at the end"),
    "no proxy fence": (without(ProxyFence), "with no fence.proxy.async in between"),
    "a wait that the next bytes overtake": (
        by_all,
        r"may complete the next phase of full\[0\] while thread 1 still waits for the one before",
    ),
    "the first product adds": (adding, "which nothing wrote"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_found(fault: str) -> None:
    """Three turns of four steps: every fault has a second chance to be seen, and none passes."""
    change, message = FAULTS[fault]
    sizes = (384, 64, 256)
    body = program_of(*fitted(Form("float16"), ONE, sizes), ARCH).body
    run(body, ONE, sizes)
    with pytest.raises(SimulationError, match=message):
        run(replace(body, ops=changed(body.ops, change)), ONE, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a", "sm_110a"])
@pytest.mark.parametrize(
    "form",
    [
        Form("bfloat16", epilogue=scaled(True, "bfloat16")),
        Form("e4m3", "float16", transpose_B=True),
    ],
)
def test_the_kernel_assembles(form: Form, arch: str) -> None:
    form, config = fitted(form, ONE, (256, 256, 256))
    program = program_of(form, config, arch)
    text = program.ptx(arch)
    for part in ("tcgen05.mma.cta_group::1", "tcgen05.commit.cta_group::1", "tcgen05.ld.sync"):
        assert part in text, part
    assert "wgmma.mma_async" not in text
    assert nvjitlink.assemble(text, arch)[:4] == b"\x7fELF"


def test_it_says_that_it_was_not_executed() -> None:
    program = program_of(Form("float16"), ONE, ARCH)
    assert program.title.endswith("tcgen05: assembled and simulated, not executed")
    assert program.title in program.cuda_source().splitlines()[0]
    assert "not executed" not in program_of(Form("float16"), ONE).title


def test_operands_of_the_copy_engine_need_no_fence_and_one_thread_starts_products() -> None:
    program = program_of(Form("float16"), ONE, ARCH)
    started = [op for op in walk(program.body.ops) if isinstance(op, TensorMma)]
    assert {op.issuer for op in started} == {"thread"}
    loop = program.script().split("for tile")[1].split("tcgen05.commit(done")[0]
    assert "fence.proxy" not in loop
    assert loop.count("tcgen05.m128n64k16") == 4


@pytest.mark.parametrize(
    "config", [replace(ONE, warps=(8, 1)), replace(ONE, tile=(64, 64, 64)), replace(ONE, cluster=2)]
)
def test_what_it_does_not_take(config: Config) -> None:
    with pytest.raises(LayoutError, match="tcgen05 takes tiles of 128 rows, one warpgroup and no"):
        program_of(Form("float16"), config, ARCH)
