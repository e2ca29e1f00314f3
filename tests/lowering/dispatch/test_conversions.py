"""``copy`` between register tiles: every machine moves every element where the layout says."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import Iter, LayoutError, TileLayout, convert, fragments, parse
from layoutalg.layouts.thread_slots import THREADS_OF
from lowering.dispatch import calls
from lowering.dispatch.registry import DispatchError
from lowering.dispatch.variants.convert_registers import index_of
from lowering.ir.ops import (
    Load,
    Move,
    MoveMatrix,
    Permute,
    Select,
    Shuffle,
    Store,
    Sync,
    walk,
)
from lowering.programs.program import KernelProgram
from lowering.simulator.hazards import SimulationError
from tests.support.kernel_texts import outputs

Array = np.ndarray[Any, Any]
DTYPES = {4: "int4", 8: "int8", 16: "float16", 32: "float32", 64: "float64"}
A = fragments.get("mma.m16n8k16.f16", "A").layout
D = fragments.get("mma.m16n8k16.f16", "D")
A_S8 = fragments.get("mma.m16n8k32.s8", "A").layout
ROW = parse("S[(32,4):(1@laneid,1)]")


def by_thread(side: TileLayout) -> TileLayout:
    """Return a layout in memory, one thread after the other: any slots lie together."""
    slots = 2 * max([it.extent * it.stride for it in side.shard if it.axis.name == "m"], default=1)
    return TileLayout.from_iters(
        [
            Iter(it.extent, it.stride * (THREADS_OF.get(it.axis, 0) * slots or 1), "m")
            for it in side.shard
        ]
    )


def kernel(
    src: TileLayout, dst: TileLayout, shape: tuple[int, ...], bits: int, threads: int = 32,
    **config: Any,
) -> lw.Kernel:  # fmt: skip
    """Return the kernel that loads a tile in one layout and stores it in another."""
    k, dtype = lw.Kernel("conv", threads=threads), DTYPES[bits]
    a, o = k.param("a", shape, dtype, by_thread(src)), k.param("o", shape, dtype, by_thread(dst))
    r, q = (k.alloc(n, shape, dtype, layout=each) for n, each in (("r", src), ("q", dst)))
    k.copy(r, a)
    k.copy(q, r, **config)
    k.copy(o, q)
    return k


def numbers(shape: tuple[int, ...], bits: int) -> Array:
    """Return numbers that the element's type has, as different as can be."""
    count = int(np.prod(shape))
    return (np.arange(count) * 7 % (1 << min(bits, 11)) - (1 << min(bits, 11) - 1)).reshape(shape)


def check(program: KernelProgram, shape: tuple[int, ...], bits: int) -> None:
    """Run on every machine."""
    x = numbers(shape, bits)
    for machine, out in outputs(program, {"a": x}):
        assert np.array_equal(out["o"].astype(float), x), machine


def counted(program: KernelProgram) -> tuple[int, int, int, int]:
    """Return the shuffles, selects, permutes and movmatrix among the operations."""
    kinds = Counter(type(op) for op in walk(program.body.ops))
    wide = max(1, program.body.params[0].dtype.bits // 32)
    moved = sum(
        len(op.source.numbers) // 2 for op in walk(program.body.ops) if isinstance(op, MoveMatrix)
    )
    return wide * kinds[Shuffle], kinds[Select], kinds[Permute], moved


def in_text(source: str) -> tuple[int, int, int, int]:
    """Return the same, as a kernel's C++ text has them."""
    body = source.split('extern "C"')[1]
    wide = 2 if "shfl_idx_d" in source else 1
    return (
        wide * len(re.findall(r"^ +shfl_idx_", body, re.MULTILINE)),
        body.count(" ? "),
        len(re.findall(r"^ +prmt", body, re.MULTILINE)),
        len(re.findall(r"^ +movmatrix_trans\(", body, re.MULTILINE)),
    )


def random_case(seed: int) -> tuple[TileLayout, TileLayout, tuple[int, ...], int, int]:
    """Return two layouts over the same digits of two, some replaced by copies, and a width."""
    rng = np.random.default_rng(seed)
    slots, warps = int(rng.integers(1, 5)), int(rng.integers(0, 3))
    digits = [Iter(2, 1 << i, "laneid") for i in range(5)]
    digits += [Iter(2, 1 << i, "m") for i in range(slots)]
    digits += [Iter(2, 1 << i, "warpid") for i in range(warps)]
    src = [digits[i] for i in rng.permutation(len(digits))]
    axes = [("m",), ("laneid", "m"), ("laneid",), ("laneid", "m", "warpid")][seed % 4]
    free = [i for i, it in enumerate(src) if it.axis.name in axes]
    dst = list(src)
    for i, j in zip(free, rng.permutation(free), strict=True):
        dst[i] = src[j]
    if seed % 3 == 0:  # threads that differ in a digit hold copies
        gone = {
            i for i, (a, b) in enumerate(zip(src, dst, strict=True))
            if a.axis.name != "m" and b.axis.name != "m"
        }  # fmt: skip
        gone = set(list(gone)[: int(rng.integers(0, 3))])
        src, dst = ([it for i, it in enumerate(s) if i not in gone] for s in (src, dst))
    shape = (1 << len(src),)
    left, right = TileLayout.from_iters(src), TileLayout.from_iters(dst)
    return left, right, shape, int(rng.choice(list(DTYPES))), 32 << warps


def tried(seed: int) -> None:
    """Convert a random case on every machine, and compare its counts with the recipe's."""
    src, dst, shape, bits, threads = random_case(seed)
    try:
        program = kernel(src, dst, shape, bits, threads).lower()
    except DispatchError as error:
        if bits == 4 and "must share a byte" in str(error):
            return
        raise
    check(program, shape, bits)
    if src.size() == dst.size() == threads << sum(it.axis.name == "m" for it in src.shard):
        found = convert(src, dst, shape, bits)
        want = found.shuffles, found.selects, found.permutes, found.movmatrices
        assert counted(program) == want
        if bits != 4 and found.kind != "shared":
            assert in_text(program.cuda_source()) == want


@pytest.mark.parametrize("seed", range(12))
def test_random_layouts_on_every_machine(seed: int) -> None:
    tried(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 150))
def test_more_random_layouts(seed: int) -> None:
    tried(seed)


FORMS: dict[str, tuple[Any, Any, tuple[int, int], int, tuple[int, int, int, int]]] = {
    "accumulators to A": (D.tiled(16, 16), A, (16, 16), 16, (0, 0, 0, 0)),
    "transposed A": (A, fragments.transposed(A, (16, 16)), (16, 16), 16, (0, 0, 0, 4)),
    "int8 accumulators to A": (D.tiled(16, 32), A_S8, (16, 32), 8, (4, 4, 4, 0)),
    "rows to columns": (ROW, parse("S[(8,4,4):(1@laneid,1,8@laneid)]"), (32, 4), 32, (4, 16, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_what_kernels_need(name: str) -> None:
    src, dst, shape, bits, counts = FORMS[name]
    kind = "shuffle" if counts[0] else None  # shared memory would cost less
    program = kernel(src, dst, shape, bits, via=kind).lower()
    check(program, shape, bits)
    assert counted(program) == in_text(program.cuda_source()) == counts


def test_equal_layouts_are_moves() -> None:
    program = kernel(A, A, (16, 16), 16).lower()
    assert [type(op) for op in program.body.ops if not isinstance(op, (Load, Store))] == [Move]
    assert "q_0 = r_0;" in program.cuda_source()
    check(program, (16, 16), 16)


# -- regions, copies, branches ----------------------------------------------------------------


def test_a_region_leaves_its_neighbours_alone() -> None:
    """Half of each word is set; the rows that lie in the other lanes are not."""
    k = lw.Kernel("halves")
    a, b, o = (k.param(name, (32, 4), "float16") for name in "abo")
    r, q = (k.alloc(name, (32, 4), "float16", layout=ROW) for name in "rq")
    k.copy(r, a)
    k.copy(q, b)
    k.copy(q[8:16, 1:2], r[0:8, 2:3])
    k.copy(q[16:24, 0:1], q[0:8, 3:4])
    k.copy(o, q)
    x, y = (np.random.default_rng(seed).integers(-99, 99, (32, 4)) for seed in (0, 1))
    want = y.copy()
    want[8:16, 1] = x[0:8, 2]
    want[16:24, 0] = want[0:8, 3]
    for machine, out in outputs(k.lower(), {"a": x, "b": y}):
        assert np.array_equal(out["o"], want), machine


def test_what_other_lanes_have_not_set_is_not_read() -> None:
    """Lanes that hold nothing of the source offer what nothing wrote; nobody takes it."""
    k = lw.Kernel("some")
    a, o = k.param("a", (16, 4), "float32"), k.param("o", (16, 4), "float32")
    r = k.alloc("r", (32, 4), "float32", layout=ROW)
    q = k.alloc("q", (32, 4), "float32", layout=ROW)
    k.copy(r[0:16], a)
    k.copy(q[16:32], r[0:16])
    k.copy(o, q[16:32])
    x = numbers((16, 4), 32)
    for machine, out in outputs(k.lower(), {"a": x}):
        assert np.array_equal(out["o"], x), machine
    k = lw.Kernel("none")
    o = k.param("o", (32, 4), "float32")
    r, q = (k.alloc(name, (32, 4), "float32", layout=ROW) for name in "rq")
    k.zero(r[0:16])
    k.copy(q[16:32], r[16:32])
    k.copy(q[0:16], r[0:16])
    k.copy(o, q)
    with pytest.raises(SimulationError, match="which nothing wrote"):
        k.lower().simulate()


def test_copies_that_differ_are_refused() -> None:
    """An exchange takes any of the copies of an element; one was changed alone."""
    for alone in (False, True):
        k = lw.Kernel("copies")
        a, o = k.param("a", (16, 4), "float32"), k.param("o", (16, 4), "float32")
        r = k.alloc(
            "r", (16, 4), "float32", layout=parse("S[(16,4):(1@laneid,1)] + R[2:16@laneid]")
        )
        t = k.alloc("t", (16, 4), "float32", layout=parse("S[(16,4):(2@laneid,1)]"))
        k.copy(r, a)
        with k.when(k.lane >= (16 if alone else 0)):
            k.assign(r, r + 1)
        k.copy(t, r), k.copy(o, t)
        x = numbers((16, 4), 32)
        if alone:
            with pytest.raises(SimulationError, match="are copies of one element, and differ"):
                k.lower().simulate(a=x)
            continue
        for machine, out in outputs(k.lower(), {"a": x}):
            assert np.array_equal(out["o"], x + 1), machine


def test_only_the_warps_of_a_branch_convert() -> None:
    rows = parse("S[(2,32,2):(1@warpid,1@laneid,1)]")
    columns = parse("S[(2,2,16,2):(1@warpid,1,2@laneid,1@laneid)]")
    k = lw.Kernel("branch", threads=64)
    a, o = k.param("a", (64, 2), "float32"), k.param("o", (64, 2), "float32")
    r = k.alloc("r", (64, 2), "float32", layout=rows)
    q = k.alloc("q", (64, 2), "float32", layout=columns)
    k.copy(r, a)
    k.zero(q)
    with k.when(k.warp, 1):
        k.copy(q[0:32], r[0:32])
    k.copy(o, q)
    x = numbers((64, 2), 32)
    want = x.copy()
    want[32:] = 0
    for machine, out in outputs(k.lower(), {"a": x}):
        assert np.array_equal(out["o"], want), machine
    with k.when(k.thread % 2, 1):
        k.copy(q, r)
    with pytest.raises((LayoutError, DispatchError), match="no active thread holds element"):
        k.lower()


# -- through shared memory --------------------------------------------------------------------

ROWS4 = parse("S[(4,32,8):(1@warpid,1@laneid,1)]")
BLOCKS4 = parse("S[(32,4,8):(1@laneid,1@warpid,1)]")


def looping(staying: bool) -> lw.Kernel:
    """Exchange rows between four warps, three times."""
    k = lw.Kernel("loop", threads=128)
    a, o = k.param("a", (128, 8), "float16"), k.param("o", (128, 8), "float16")
    r = k.alloc("r", (128, 8), "float16", layout=ROWS4)
    q = k.alloc("q", (128, 8), "float16", layout=BLOCKS4)
    k.copy(r, a)
    with k.loop("i", 3, unroll=not staying):
        k.copy(q, r)
    k.copy(o, q)
    return k


@pytest.mark.parametrize("staying", [False, True])
def test_shared_memory_is_reused_behind_a_barrier(
    staying: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = looping(staying).lower()
    assert [buffer.name for buffer in program.body.shared] == ["q_scratch"]
    x = numbers((128, 8), 16)
    assert np.array_equal(program.simulate(a=x)["o"], x)
    assert all(each.wavefronts == each.fewest for each in program.banks(a=x))
    monkeypatch.setattr(calls._Calls, "after_others", lambda self, lowered: lowered.ops)
    with pytest.raises(SimulationError, match="with no barrier in between"):
        looping(staying).lower().simulate(a=x)


def test_one_barrier_where_the_memory_is_new() -> None:
    program = kernel(ROWS4, BLOCKS4, (128, 8), 16, 128).lower()
    check(program, (128, 8), 16)
    assert [op.scope for op in program.body.ops if isinstance(op, Sync)] == ["warpgroup"]
    stores = [op for op in program.body.ops if isinstance(op, Store) and "scratch" in op.memory]
    assert [len(op.source.numbers) for op in stores] == [8]  # 16 bytes


# -- refusals -----------------------------------------------------------------------------------


def reason(k: lw.Kernel) -> str:
    """Return why a kernel's copy has no variant."""
    with pytest.raises(DispatchError) as caught:
        k.lower()
    return next(text for variant, _, text in caught.value.reasons if variant == "convert_registers")


def test_what_is_refused() -> None:
    k = lw.Kernel("overlap")
    r = k.alloc("r", (32, 4), "float32", layout=ROW)
    k.zero(r)
    k.copy(r[:, 0:2], r[:, 1:3])
    assert reason(k) == (
        "r[0:32,0:2] and r[0:32,1:3] overlap in register 1: it would read what it has written"
    )
    k = lw.Kernel("narrow")
    bits = parse("S[(32,32):(1@laneid,1)]")
    r, q = (k.alloc(name, (32, 32), "uint1", layout=bits) for name in "rq")
    k.zero(r)
    k.copy(q, r)
    assert reason(k) == "moves elements of 4, 8, 16, 32, 64 bits; r[32,32] uint1 has 1"
    k = kernel(ROWS4, BLOCKS4, (128, 8), 16, 128, via="shuffle")
    assert reason(k).startswith("convert: via shuffle it cannot be done: slot 0 of thread 8 needs")


def test_via_takes_a_dearer_kind() -> None:
    shape, transposed = (16, 16), fragments.transposed(A, (16, 16))
    for via, kind in (("shuffle", Shuffle), ("shared", Sync), (None, MoveMatrix)):
        program = kernel(A, transposed, shape, 16, via=via).lower()
        assert any(isinstance(op, kind) for op in program.body.ops), via
        check(program, shape, 16)
    k = lw.Kernel("k")
    a, r = k.param("a", (32, 4), "float32"), k.alloc("r", (32, 4), "float32", layout=ROW)
    with pytest.raises(LayoutError, match=r"^copy: via must be one of registers, select,"):
        k.copy(r, r, via="post")
    with pytest.raises(LayoutError, match=r"^copy: via is of copies between register tiles; got"):
        k.copy(r, a, via="shared")


def test_a_number_for_each_thread_is_an_index() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        steps = rng.integers(0, 32, 6)
        column = [int(np.bitwise_xor.reduce([7, *(s for i, s in enumerate(steps) if t >> i & 1)]))
                  for t in range(64)]  # fmt: skip
        found = index_of(column, 64)
        assert found is not None
        assert np.array_equal(found.value({"thread": np.arange(64)}), column)
    table = rng.integers(0, 32, 32).tolist() * 2
    found = index_of(table, 64)
    assert found is not None
    assert np.array_equal(found.value({"thread": np.arange(64)}), table)
    assert index_of(rng.integers(0, 32, 64).tolist(), 64) is None
