"""Programs of ``tcgen05`` that look right: what a GPU would race on, hang on or place elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import (
    LayoutError,
    S,
    TileLayout,
    parse,
    tcgen05_atom_layout,
    tmem_datapath_layout,
    tmem_mma_operand_layout,
    tmem_scale_layout,
    wg_local_layout,
)
from layoutalg.layouts.hardware import swizzled_tile
from lowering.ir.index import as_index
from lowering.ir.ops import ProxyFence, Sync
from lowering.ir.tmem_ops import TensorMma
from lowering.programs.kernel import Kernel
from lowering.simulator.hazards import SimulationError
from tests.support.tensor_kernels import Case, product

Array = Any


class Program:
    """A kernel of one CTA, or of pairs: A and B in ``stages`` tiles of K, C in tensor memory."""

    def __init__(self, stages: int = 1, group: int = 1, n: int = 64) -> None:
        self.group, self.n, self.stages = group, n, stages
        kernel = self.kernel = Kernel("program", 128, "sm_100a", cluster=group)
        rank = kernel.rank() if group == 2 else 0
        self.given = [kernel.param(role, (stages, 128 * group if role == "A" else n, 64), "f16")
                      for role in "AB"]  # fmt: skip
        self.held = []
        for given, lines in zip(self.given, (128, n // group), strict=True):
            shape = (stages, lines, 64)
            tile = kernel.alloc(
                f"{given.name}t", shape, "f16", "shared", swizzled_tile(shape, 128, 16)
            )
            for stage in range(stages):
                kernel.copy(tile[stage], given[stage, rank * lines : rank * lines + lines])
            self.held.append(tile)
        where = tmem_datapath_layout("D", 128, n)
        self.c = kernel.alloc("C", (128, n), "f32", "tmem", where)
        self.own = kernel.alloc("own", (128, n), "f32", layout=wg_local_layout(n))
        self.result = kernel.param("D", (128 * group, n), "f32")[rank * 128 : rank * 128 + 128, :]
        self.done = kernel.barrier("done", 1, 1)
        self.meet()

    def meet(self) -> None:
        self.kernel.sync("cluster" if self.group == 2 else "cta", memory=self.group == 2)

    def multiply(self, stage: Any = 0, accum: Any = False, c: Any = None) -> None:
        a, b = (tile[stage] for tile in self.held)
        self.kernel.gemm_async(
            self.c if c is None else c, a, b, transB=True, accum=accum, scope="thread",
            cta_group=self.group,
        )  # fmt: skip

    def commit(self) -> None:
        self.kernel.commit("gemm", self.done)

    def store(self, parity: Any = 0) -> None:
        self.kernel.mbarrier_wait(self.done, 0, parity)
        self.kernel.copy(self.own, self.c)
        self.kernel.copy(self.result, self.own)

    def run(self) -> tuple[Array, Array]:
        rng = np.random.default_rng(0)
        a, b = (rng.integers(-3, 4, each.shape) for each in self.given)
        found = self.kernel.lower().simulate(A=a, B=b).get("D")
        return found, np.einsum("smk,snk->mn", a, b)

    def said(self) -> str:
        with pytest.raises(SimulationError) as caught:
            self.run()
        return str(caught.value)


@pytest.mark.parametrize("group", [1, 2])
def test_a_loop_along_k_that_stays(group: int) -> None:
    p = Program(3, group)
    with p.kernel.loop("turn", 3) as turn:
        p.multiply(turn, turn)
    p.commit()
    p.store()
    found, want = p.run()
    assert (found == want).all()


def test_a_pair_has_the_addresses_of_the_cta_that_starts_it() -> None:
    """Each CTA has its tile at its rank: the hardware goes to that of the first in both."""
    kernel = Kernel("ranked", 128, "sm_100a", cluster=2)
    rank = kernel.rank()
    a, b = kernel.param("A", (256, 64), "f16"), kernel.param("B", (64, 64), "f16")
    tiles = []
    for given, lines in ((a, 128), (b, 32)):
        shape = (2, lines, 64)
        tiles.append(
            kernel.alloc(f"{given.name}t", shape, "f16", "shared", swizzled_tile(shape, 128, 16))
        )
        kernel.copy(tiles[-1][rank], given[rank * lines : rank * lines + lines, :])
    place = tmem_mma_operand_layout("D", (128, 64), 256, 2)
    c = kernel.alloc("C", (128, 64), "f32", "tmem", place)
    done = kernel.barrier("done", 1, 1)
    kernel.sync("cluster", memory=True)
    kernel.gemm_async(c, tiles[0][rank], tiles[1][rank], transB=True, scope="thread", cta_group=2)
    kernel.commit("gemm", done)
    kernel.mbarrier_wait(done, 0, 0)
    ones = {"A": np.ones((256, 64)), "B": np.ones((64, 64))}
    with pytest.raises(SimulationError, match="reads Bt at 0, which nothing wrote"):
        kernel.lower().simulate(**ones)


@pytest.mark.parametrize("accum", [True, False])
@pytest.mark.parametrize("group", [1, 2])
def test_what_is_loaded_is_overwritten_after_a_barrier(group: int, accum: bool) -> None:
    """That a product reads C itself hides no earlier reader."""
    for ordered in (True, False):
        p = Program(1, group)
        p.multiply()
        p.commit()
        p.store()
        if ordered:
            p.meet()
        p.multiply(accum=accum)
        p.commit()
        p.store(1)
        if ordered:
            found, want = p.run()
            assert (found == want * (1 + accum)).all()
        else:
            assert p.said().endswith("reads with no barrier in between: sync first")


def test_scales_that_warps_load_are_overwritten_after_a_barrier() -> None:
    for ordered in (True, False):
        kernel = product(Case("e4m3", sizes=(128, 32, 128), scale=("ue8m0", 32)))
        held = kernel.buffers
        layout = parse("S[(4,32,4):(4,1@laneid,1)] + R[4:1@wid_in_wg]")
        loaded = kernel.alloc("loaded", (128, 4), "ue8m0", layout=layout)
        kernel.copy(loaded, held["SFA_tensor"])
        done = kernel.barriers["done"]
        config = {"SFA": held["SFA_tensor"], "SFB": held["SFB_tensor"][0:32, :], "transB": True}
        operands = held["C"], held["A_tile"][0], held["B_tile"][0]
        kernel.sync()
        kernel.gemm_async(*operands, scope="thread", **config)
        kernel.commit("gemm", done)
        kernel.mbarrier_wait(done, 0, 1)
        kernel.copy(loaded, held["SFA_tensor"])
        if ordered:
            kernel.sync()
        kernel.copy(held["SFA_tensor"], held["SFA_tile"], scope="thread")
        kernel.commit("gemm", done)
        kernel.mbarrier_wait(done, 0, 0)
        rng = np.random.default_rng(0)
        given = {b.name: np.ones(b.shape) * rng.integers(1, 3) for b in kernel.lower().body.params
                 if b.name != "D"}  # fmt: skip
        if ordered:
            kernel.lower().simulate(**given)
            continue
        with pytest.raises(SimulationError, match="overwrites tensor memory at lane 1, column"):
            kernel.lower().simulate(**given)


def test_products_follow_each_other_on_one_accumulator_alone() -> None:
    for first, second, message in ((0, 0, ""), (0, 32, ""), (0, 16, "still writes: commit it")):
        p = Program(n=64)
        for start in (first, second):
            a, b = p.held
            p.kernel.gemm_async(
                p.c[:, start : start + 32], a[0], b[0, start : start + 32, :],
                transB=True, scope="thread",
            )  # fmt: skip
        p.commit()
        p.kernel.mbarrier_wait(p.done, 0, 0)
        if message:
            assert message in p.said()
        else:
            p.run()


def test_commits_complete_phases_as_late_as_they_may() -> None:
    """Parity 1 of a fresh mbarrier passes at once; parity 0 after the first of three commits."""
    p = Program()
    with p.kernel.loop("turn", 2) as turn:
        p.multiply(accum=turn)
        p.commit()
    p.store(1)
    assert p.said().endswith("writes, and no thread waited for its commit")
    p = Program(3)
    for turn in range(3):
        p.multiply(turn, turn > 0)
        p.commit()
    p.store(0)
    assert p.said().endswith("writes, and no thread waited for its commit")


def test_slots_that_an_array_of_mbarriers_lacks() -> None:
    p = Program()
    for slot in (1, -1):
        with pytest.raises(LayoutError, match=f"its mbarriers are 0 to 0; got {slot}"):
            p.kernel.commit("gemm", p.done, slot)
        with pytest.raises(LayoutError, match="its mbarriers are 0 to 0"):
            p.kernel.mbarrier_wait(p.done, slot, 0)
    with (
        p.kernel.loop("turn", 3) as turn,
        pytest.raises(LayoutError, match="got turn, which is 0 to 2"),
    ):
        p.kernel.commit("gemm", p.done, turn)


def test_one_thread_fills_where_a_producer_is() -> None:
    p = Program()
    with p.kernel.producer():
        p.multiply()
        p.commit()
    with pytest.raises(LayoutError, match="producer: one thread runs it, so that only tma_load"):
        p.kernel.lower()


def test_the_largest_instruction_that_all_operands_fit() -> None:
    """C is one block of 256 columns, B two of 128 rows that lie far apart."""
    layout = TileLayout(S[(2, 16, 8, 2, 8) : (9216, 64, 8, 2048, 1)])
    b = lw.Buffer("B", (256, 16), "f16", "shared", layout)
    a = lw.Buffer("A", (128, 16), "f16", "shared", TileLayout(S[(16, 8, 2, 8) : (64, 8, 1024, 1)]))
    c = lw.Buffer("C", (128, 256), "f32", "tmem", tmem_datapath_layout("D", 128, 256))
    from lowering.dispatch.registry import context_of, dispatch

    call = lw.gemm_async(c, a, b, transB=True, scope="thread")
    found = dispatch(context_of(call, "cuda", 128, None, "sm_100a")).ops
    assert [op.what.instruction.n for op in found if isinstance(op, TensorMma)] == [128, 128]
    own = parse("S[(4,2,8,32,4,2):(1@wid_in_wg,2,4@laneid,4,1@laneid,1)]")
    c = lw.Buffer("C", (64, 256), "f32", layout=own)
    call = lw.gemm_async(c, lw.Buffer("A", (64, 16), "f16", "shared", a.layout.slice(
        (128, 16), ((0, 64), (0, 16)))), b, transB=True)  # fmt: skip
    steps = dispatch(context_of(call, "cuda", 128, None, "sm_90a")).ops
    assert [str(op.instruction) for op in steps[1:]] == ["wgmma.m64n128k16.f32.f16.f16"] * 2


def test_scales_of_any_legal_n() -> None:
    """48 columns: one instruction, or three, whose scales start inside a group of 32 lanes."""
    case = Case("e4m3", sizes=(128, 48, 128), scale=("ue8m0", 32))
    kernel = product(case)
    products = [op for op in kernel.lower().body.ops if isinstance(op, TensorMma)]
    assert {op.what.instruction.n for op in products} == {48}
    assert tmem_scale_layout(64, 4).table((64, 4))["TCol"][47, 0] == 4


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_a_loop_inside_a_swizzled_line(arch: str) -> None:
    """Two steps of 32 bytes of K: the start address alone moves, as it does where unrolled."""
    for unroll in (False, True):
        kernel = Kernel("line", 128, arch)
        tensor = arch == "sm_100a"
        a, b = kernel.param("A", (64, 32), "f16"), kernel.param("B", (64, 32), "f16")
        held = []
        for given in (a, b):
            shape = (1, 64, 32)
            tile = kernel.alloc(
                f"{given.name}t", shape, "f16", "shared", swizzled_tile(shape, 64, 16)
            )
            kernel.copy(tile[0], given)
            held.append(tile)
        layout = tcgen05_atom_layout("16x256b", (64, 64), "float32")
        own = kernel.alloc("own", (64, 64), "f32", layout=layout)
        c = own
        if tensor:
            c = kernel.alloc("C", (64, 64), "f32", "tmem", tmem_datapath_layout("F", 64, 64))
            done = kernel.barrier("done", 1, 1)
        kernel.sync()
        with kernel.loop("step", 2, unroll) as step:
            part = slice(step * 16, step * 16 + 16)
            kernel.gemm_async(
                c, held[0][0, :, part], held[1][0, :, part], transB=True, accum=step,
                scope="thread" if tensor else "warpgroup",
            )  # fmt: skip
        if tensor:
            kernel.commit("gemm", done)
            kernel.mbarrier_wait(done, 0, 0)
            kernel.copy(own, c)
        else:
            kernel.commit("gemm")
            kernel.wait(0, "gemm")
        kernel.copy(kernel.param("D", (64, 64), "f32"), own)
        rng = np.random.default_rng(0)
        x, y = (rng.integers(-3, 4, (64, 32)) for _ in "AB")
        assert (kernel.lower().simulate(A=x, B=y)["D"] == x @ y.T).all()


def test_copies_by_the_threads_are_fenced_when_they_are_complete() -> None:
    """Two stages by cp.async: the second is complete, and fenced, after the first is multiplied."""
    p = Kernel("pipeline", 128, "sm_100a")
    given = [p.param(role, (2, 128, 64), "f16") for role in "AB"]
    held = [
        p.alloc(f"{g.name}t", g.shape, "f16", "shared", swizzled_tile(g.shape, 128, 16))
        for g in given
    ]
    c = p.alloc("C", (128, 128), "f32", "tmem", tmem_datapath_layout("D", 128, 128))
    done = p.barrier("done", 1, 1)
    for stage in range(2):
        for tile, source in zip(held, given, strict=True):
            p.copy(tile[stage], source[stage], asynchronous=True)
        p.commit()
    for stage in range(2):
        p.wait(1 - stage)
        p.sync()
        p.gemm_async(
            c, held[0][stage], held[1][stage], transB=True, accum=stage > 0, scope="thread"
        )
    p.commit("gemm", done)
    p.mbarrier_wait(done, 0, 0)
    own = p.alloc("own", (128, 128), "f32", layout=wg_local_layout(128))
    p.copy(own, c)
    p.copy(p.param("D", (128, 128), "f32"), own)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (2, 128, 64)) for _ in "AB")
    program = p.lower()
    assert (program.simulate(A=a, B=b)["D"] == np.einsum("smk,snk->mn", a, b)).all()
    kinds = [type(op) for op in program.body.ops if isinstance(op, (ProxyFence, Sync))]
    assert kinds == [ProxyFence, Sync] * 2


def test_a_branch_that_is_not_taken_fences_nothing() -> None:
    p = Program()
    p.kernel.copy(p.held[0][0], p.given[0][0])
    with p.kernel.when(1, 1):
        p.kernel.sync()
    p.kernel.sync()
    p.multiply()
    p.commit()
    p.store()
    found, want = p.run()
    assert (found == want).all()


@pytest.mark.parametrize("unroll", [False, True])
def test_mbarriers_by_the_variable_of_a_loop(unroll: bool) -> None:
    """Slots and parities take the variable's value where the loop is unrolled."""
    p = Program(4)
    done = p.kernel.barrier("each", 2, 1)
    with p.kernel.loop("turn", 4, unroll) as turn:
        p.multiply(turn, turn)
        place = as_index(turn)
        p.kernel.commit("gemm", done, place % 2)
        p.kernel.mbarrier_wait(done, place % 2, place // 2)
        p.kernel.sync()
    p.commit()
    p.store()
    found, want = p.run()
    assert (found == want).all()
