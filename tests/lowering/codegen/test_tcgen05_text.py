"""The text of kernels that multiply in tensor memory, run for all threads, is the product."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lowering.programs.kernel import Kernel
from lowering.programs.program import KernelProgram
from tests.support import tensor_text_machine
from tests.support.tensor_kernels import Array, Case, inputs, pair, product

MX = ("ue8m0", 32)
ONE = {
    "by thread 0": Case(sizes=(128, 16, 32)),
    "by the elected thread": Case("bf16", sizes=(128, 32, 16), scope="warp"),
    "added where a number says so": Case(sizes=(128, 16, 128), accum="turns", scope="warp"),
    "added to what threads stored": Case(sizes=(128, 16, 16), accum=True),
    "MN-major": Case(sizes=(128, 64, 16), flips=(True, False)),
    "A in tensor memory": Case(sizes=(128, 16, 32), left="tmem"),
    "64 rows": Case(sizes=(64, 16, 32), rows=64),
    "64 rows, twice": Case(sizes=(128, 16, 32), rows=64, accum=True),
    "integers": Case("s8", out="s32", sizes=(128, 16, 64)),
    "scales": Case("e4m3", sizes=(128, 32, 128), scale=MX, scope="warp"),
    "several instructions": Case(sizes=(256, 16, 16)),
}
PAIR = {
    "by thread 0": Case(sizes=(256, 32, 32)),
    "by the elected thread": Case("bf16", sizes=(256, 32, 16), scope="warp"),
    "64 rows each": Case(sizes=(128, 32, 32)),
    "A in tensor memory": Case(sizes=(256, 32, 32), left="tmem"),
    "A in tensor memory, twice": Case(sizes=(128, 32, 16), left="tmem"),
    "integers": Case("s8", out="s32", sizes=(256, 32, 32)),
    "scales": Case("e4m3", sizes=(256, 128, 128), scale=MX, scope="warp"),
}
CASES = [(product, ONE[name]) for name in ONE] + [(pair, PAIR[name]) for name in PAIR]
NAMES = [f"one CTA, {name}" for name in ONE] + [f"pair, {name}" for name in PAIR]


def text_of(
    program: KernelProgram, given: dict[str, Array], change: tuple[str, str] | None = None
) -> Array:
    """Return what the Python text of a kernel writes to D; a pattern may be replaced in it."""
    body = program.body
    arrays = {}
    for buffer in body.params:
        values = given.get(buffer.name, np.zeros(buffer.shape))
        arrays[buffer.name] = np.ascontiguousarray(values, dtype=buffer.dtype.numpy).reshape(-1)
    texts = program.kernel_source(), program.cuda_source()
    if change is not None:
        before, after = change
        changed = tuple(re.sub(before, after, text, flags=re.MULTILINE) for text in texts)
        assert changed != texts
        texts = changed
    tensor_text_machine.run(*texts, body.threads, body.cluster, list(arrays.values()))
    return arrays["D"].reshape(body.buffer("D").shape)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "case"), CASES, ids=NAMES)
def test_the_text_multiplies(make: Callable[[Case], Kernel], case: Case) -> None:
    """All threads, statement by statement: what the NumPy warp finds, and the product."""
    given, want = inputs(case)
    program = make(case).lower()
    found = text_of(program, given).astype(np.float64)
    simulated: Any = program.simulate(**given)["D"].astype(np.float64)
    assert np.linalg.norm(found - want) <= 1e-6 * np.linalg.norm(want)
    assert np.linalg.norm(found - simulated) <= 1e-6 * np.linalg.norm(want)


MEET = r"^ +tensor_fence_before\(\)\n +cuda.syncthreads\(\)\n +tensor_fence_after\(\)\n"
STORED = Case(sizes=(128, 16, 16), accum=True)
TURNS = ONE["added where a number says so"]
# what is replaced in the text, and what the machine says
FAULTS: dict[str, tuple[Callable[[Case], Kernel], Case, tuple[str, str], str]] = {
    "every CTA of a row issues": (
        pair,
        PAIR["by thread 0"],
        (r"if \(thread \+ \(bx & 1\)\)", "if (thread + (by & 1))"),
        "forever",
    ),
    "both CTAs issue": (
        pair,
        PAIR["by thread 0"],
        (r"if \(thread \+ \(bx & 1\)\)", "if (thread)"),
        "issued by threads",
    ),
    "the second CTA issues": (
        pair,
        PAIR["by thread 0"],
        (r"\(thread \+ \(bx & 1\)\)", "(thread + 1 - (bx & 1))"),
        "second CTA",
    ),
    "a warp issues": (
        product,
        TURNS,
        (r"if \(t\d+ - 1\) == 0", "if (thread // 32) == 0"),
        "issued by threads",
    ),
    "another thread commits": (
        product,
        ONE["by thread 0"],
        (r"^  (  tensor_commit.*)$", r"  if (thread) == 1:\n  \1"),
        "another thread",
    ),
    "the address is read at once": (
        product,
        STORED,
        (MEET + r"(?= +tensor_base)", ""),
        "no before after alloc",
    ),
    "no fence after the allocation": (
        product,
        STORED,
        (r" +tensor_fence_after\(\)\n(?= +tensor_base)", ""),
        "no after after alloc",
    ),
    "every warp allocates": (
        product,
        STORED,
        (r"if \(thread // 32\) == 0(?=:\n +tensor_alloc)", "if thread >= 0"),
        "threads",
    ),
    "freed at once": (
        product,
        STORED,
        (MEET + r"(?= +if.*\n +tensor_free)", ""),
        "no before after ld",
    ),
    "every warp frees": (
        product,
        STORED,
        (r"if \(thread // 32\) == 0(?=:\n +tensor_free)", "if thread >= 0"),
        "threads",
    ),
    "not freed": (product, STORED, (r"^.*\n +tensor_free.*$", ""), "not freed"),
    "add is overwrite": (product, STORED, (r"setp\.ne", "setp.eq"), "setp.eq"),
    "floats are converted": (
        product,
        STORED,
        (r"float& (o\d+)(?=.*\) \{\n.*tcgen05\.ld)", r"uint32_t& \1"),
        "C_own|float",
    ),
    "not awaited": (product, STORED, (r"^ +mbarrier_wait.*\n", ""), "no await after start"),
    "another phase": (
        product,
        STORED,
        (r"mbarrier_wait\((\w+), .*\)$", r"mbarrier_wait(\1, uint32(1))"),
        "forever",
    ),
    "no wait for the loads": (product, STORED, (r"^.*tensor_wait_ld.*\n", ""), "never awaited"),
    "no fence of the proxies": (
        product,
        STORED,
        (r"^ +fence_proxy_async\(\)\n", ""),
        "no proxy after store",
    ),
    "one commit of a pair": (
        pair,
        PAIR["by thread 0"],
        (r"\{ [^{}]*(tcgen05\.commit.*)\.multicast::cluster(.*), both; \}", r"\1\2;"),
        "multicast",
    ),
    "a pair meets apart": (
        pair,
        PAIR["by thread 0"],
        (r"sync_cluster_memory\(\)", "cuda.syncthreads()"),
        "no cluster after",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_text_is_seen(fault: str) -> None:
    make, case, change, message = FAULTS[fault]
    given, _ = inputs(case)
    with pytest.raises(AssertionError, match=message):
        text_of(make(case).lower(), given, change)
