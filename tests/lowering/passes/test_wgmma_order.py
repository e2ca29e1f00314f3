"""Waits that leave groups of products pending: what they complete, and what they name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from layoutalg import ComposeLayout, LayoutError, parse
from lowering import DispatchError
from lowering.ir.index import Guard, Index
from lowering.ir.ops import (
    Loop,
    Op,
    Registers,
    Wgmma,
    WgmmaCommit,
    WgmmaWait,
    When,
    walk,
)
from lowering.passes.wgmma_order import with_completed
from lowering.programs.kernel import Kernel
from lowering.simulator.hazards import SimulationError
from tests.lowering.dispatch.test_gemm_async import product
from tests.lowering.isa.test_wgmma import SHARED
from tests.lowering.isa.test_wgmma import product as product_of

A = np.arange(64 * 64).reshape(64, 64) % 5 - 2
B = np.arange(64 * 64).reshape(64, 64) % 3 - 1


def two(first_wait: int, *, late: bool = False) -> Kernel:
    """Start A·B, then A·A, in two groups; store the first product between two waits."""
    kernel = product()
    held = kernel.buffers
    more = kernel.param("E", (64, 64), "float32")
    other = kernel.alloc("F", (64, 64), "float32", layout=held["C"].layout)
    statements = kernel._blocks[0]
    store = statements[-1]
    del statements[-2:]
    kernel.gemm_async(other, held["A_tile"][0], held["A_tile"][0])
    kernel.commit("gemm")
    kernel.wait(first_wait, "gemm")
    if late:
        kernel.copy(more, other)
    statements.append(store)
    kernel.wait(0, "gemm")
    if not late:
        kernel.copy(more, other)
    return kernel


def test_the_older_accumulator_is_complete_while_the_newer_is_under_way() -> None:
    program = two(1).lower()
    out = program.simulate(A=A, B=B)
    assert np.array_equal(out["D"], A @ B)
    assert np.array_equal(out["E"], A @ A)
    waits = [line for line in program.script("operations").splitlines() if "wgmma.wait" in line]
    assert waits == ["wgmma.wait(1, C[0..31])", "wgmma.wait(0, C[0..31], F[0..31])"]


@pytest.mark.parametrize(("pending", "late"), [(2, False), (1, True)])
def test_what_is_under_way_is_not(pending: int, late: bool) -> None:
    with pytest.raises(SimulationError, match="still accumulates: commit, and wait for it"):
        two(pending, late=late).lower().simulate(A=A, B=B)


def started(name: str) -> Wgmma:
    """Return a product of any kind with an accumulator."""
    op = product_of(SHARED)
    return Wgmma(op.instruction, Registers(name, op.d.numbers), op.a, op.b)


COMMIT = WgmmaCommit()
PRODUCT = {name: started(name) for name in "XY"}
X, Y = PRODUCT["X"], PRODUCT["Y"]
SOME = (Guard(Index.of("n", 4), 0, 2),)
WAYS: dict[str, tuple[tuple[Op, ...], Any]] = {
    "nothing pending": ((X, COMMIT, Y, COMMIT, WgmmaWait(0)), ["XY"]),
    "one pending": ((X, COMMIT, Y, COMMIT, WgmmaWait(1)), ["X"]),
    "not committed": ((X, COMMIT, Y, WgmmaWait(0)), ["X"]),
    "the same accumulator in both": ((X, COMMIT, X, COMMIT, WgmmaWait(1)), [""]),
    "a loop": ((Loop("i", 3, (X, COMMIT, WgmmaWait(1))), WgmmaWait(0)), ["", "X"]),
    "a loop that goes on": (
        (Loop("i", 3, (X, COMMIT, Y, COMMIT, WgmmaWait(1))), WgmmaWait(1)),
        ["X", "X"],
    ),
    "what comes from a turn before": (
        (X, COMMIT, Loop("i", 3, (WgmmaWait(1), Y, COMMIT)), WgmmaWait(0)),
        ["", "XY"],
    ),
    "a branch": ((X, COMMIT, When(SOME, (Y, COMMIT)), WgmmaWait(1)), [""]),
    "a branch on either way": (
        (X, COMMIT, When(SOME, (Y, COMMIT)), Y, COMMIT, WgmmaWait(1)),
        ["X"],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_wait_names_what_is_complete_on_every_way(way: str) -> None:
    ops, wanted = WAYS[way]

    waits = [op for op in walk(with_completed(ops)) if isinstance(op, WgmmaWait)]
    assert ["".join(each.buffer for each in op.complete) for op in waits] == wanted


def test_a_wait_may_leave_as_many_groups_as_it_says() -> None:
    """Nine groups, of which a wait leaves eight: the oldest accumulator alone is complete."""
    groups = [(started(f"d{number}"), WgmmaCommit()) for number in range(9)]
    (*_, wait) = with_completed((*(op for group in groups for op in group), WgmmaWait(8)))
    assert isinstance(wait, WgmmaWait)
    assert wait.complete == (groups[0][0].d,)


SWIZZLED = ComposeLayout(3, 3, 3, parse("S[(64,64):(64,1)]"))


def test_boxes_go_the_way_that_their_call_says() -> None:
    kernel = Kernel("k", 128)
    g, s = (
        kernel.param("g", (64, 64), "f16"),
        kernel.alloc("s", (64, 64), "f16", "shared", SWIZZLED),
    )
    ready = kernel.barrier("ready", 1, 1)
    kernel.tma_load(ready, 0, [(g, s)])
    with pytest.raises(
        DispatchError, match="goes from global to shared; src is shared, dst global"
    ):
        kernel.lower()
    other = Kernel("k", 128)
    g, s = other.param("g", (64, 64), "f16"), other.alloc("s", (64, 64), "f16", "shared", SWIZZLED)
    other.tma_store((s, g))
    with pytest.raises(
        DispatchError, match="goes from shared to global; src is global, dst shared"
    ):
        other.lower()


@pytest.mark.parametrize("pending", [-1, 1.0, True, "0"])
def test_pending_groups_are_counted_from_0(pending: Any) -> None:
    for wait in (Kernel("k").wait, Kernel("k").tma_store_wait):
        with pytest.raises(LayoutError, match="pending must be a number of groups"):
            wait(pending)


def test_a_wait_has_each_register_once_where_products_share_an_accumulator() -> None:
    """Twice, and a compiler copies what is under way: ptxas then runs products one by one."""
    kernel = product()
    held = kernel.buffers
    store = kernel._blocks[0].pop()
    a, b = held["A_tile"][0], held["B_tile"]
    kernel.gemm_async(held["C"][:, 0:32], a, b[0, :, 0:32], accum=True)
    kernel.commit("gemm")
    kernel.wait(0, "gemm")
    kernel._blocks[0].append(store)
    program = kernel.lower()
    twice = np.concatenate([2 * (A @ B)[:, :32], (A @ B)[:, 32:]], axis=1)
    assert np.array_equal(program.simulate(A=A, B=B)["D"], twice)
    waits = re.findall(r"^\s+wgmma_wait\w*\((.*)\);$", program.cuda_source(), re.MULTILINE)
    assert [len(each.split(", ")) for each in waits] == [32, 32]
    assert all(len(set(each.split(", "))) == 32 for each in waits)
