"""Copies: every element arrives, by the instruction and the width that the layouts allow."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import ComposeLayout, LayoutError, S, TileLayout, fragments, laneid, parse
from layoutalg.fragments import transposed
from layoutalg.sizes.symbolic import symbol
from lowering.dispatch.addresses import register_tile
from lowering.dispatch.registry import Lowered, context_of, dispatch
from lowering.dispatch.variants.copy_vector import Ownership, accesses, register_copy, runs
from lowering.ir.index import Index
from lowering.ir.ops import Load, LoadMatrix, Op, Store, StoreMatrix, Transfer, walk
from lowering.programs.kernel import Kernel
from lowering.simulator.hazards import SimulationError
from lowering.simulator.run import execute
from tests.support.kernel_texts import outputs

NAME = "mma.m16n8k16.f16"
A, B, D = (fragments.get(NAME, role) for role in "ABD")


def lowered(dst: Any, src: Any, threads: int = 32, arch: str = "sm_90", **config: Any) -> Lowered:
    return dispatch(context_of(lw.copy(dst, src, "cta", **config), "cuda", threads, None, arch))


def registers(layout: Any, shape: tuple[int, ...], dtype: str = "f16") -> lw.Buffer:
    return lw.Buffer("R", shape, dtype, layout=layout)


def memory(
    shape: tuple[int, ...], layout: Any = None, dtype: str = "f16", scope: str = "shared"
) -> Any:
    return lw.Buffer("M", shape, dtype, scope, layout)


def numbers(ops: tuple[Op, ...]) -> list[tuple[int, ...]]:
    return [
        getattr(op, "into" if isinstance(op, (Load, LoadMatrix)) else "source").numbers
        for op in ops
    ]


# What SEMANTICS 17 lists as run: (register layout, shape, memory layout) -> instructions.
def test_ldmatrix_of_an_a_operand_is_one_x4() -> None:
    (op,) = lowered(registers(A.layout, (16, 16)), memory((16, 16))).ops
    assert isinstance(op, LoadMatrix)
    assert (op.count, op.trans, op.into.numbers) == (4, False, tuple(range(8)))
    lane = np.arange(32)
    rows = op.address.value({"thread": lane}) // 16
    assert rows.tolist() == [*range(16), *range(16)]


def test_ldmatrix_of_a_b_operand_depends_on_how_it_is_stored() -> None:
    (op,) = lowered(registers(B.layout, (16, 8)), memory((16, 8))).ops
    assert isinstance(op, LoadMatrix)
    assert (op.count, op.trans, op.into.numbers) == (2, True, (0, 1, 2, 3))
    across = registers(transposed(B.layout, (16, 8)), (8, 16))
    (op,) = lowered(across, memory((8, 16))).ops
    assert isinstance(op, LoadMatrix)
    assert (op.count, op.trans, op.into.numbers) == (2, False, (0, 1, 2, 3))


def test_ldmatrix_of_a_swizzled_tile() -> None:
    swizzled = memory((16, 64), ComposeLayout(3, 3, 3, parse("S[1024:1]")))
    done = lowered(registers(A.tiled(16, 64), (16, 64)), swizzled)
    assert done.variant == "ldstmatrix"
    assert [op.count for op in done.ops if isinstance(op, LoadMatrix)] == [4, 4, 4, 4]
    assert sorted(number for op in numbers(done.ops) for number in op) == list(range(32))


def test_a_row_pitch_that_is_not_aligned_falls_to_vectors() -> None:
    padded = memory((16, 16), TileLayout(S[(16, 16) : (20, 1)]))
    done = lowered(registers(A.layout, (16, 16)), padded)
    assert done.variant == "vec_auto"
    assert [len(each) for each in numbers(done.ops)] == [2, 2, 2, 2]
    with pytest.raises(lw.DispatchError, match="no 16-byte aligned rows of M"):
        lowered(registers(A.layout, (16, 16)), padded, dispatch="ldstmatrix")


def test_a_row_per_lane_is_no_matrix() -> None:
    row = TileLayout(S[(32, 8) : (1 @ laneid, 1)])
    with pytest.raises(
        lw.DispatchError, match="ldstmatrix  lowering  no 16-byte aligned rows of M"
    ):
        lowered(registers(row, (32, 8)), memory((32, 8)), dispatch="ldstmatrix")


@pytest.mark.parametrize(
    ("cols", "dtype", "widths"),
    [
        (8, "f32", [4, 4]),
        (6, "f16", [2, 2, 2]),
        (8, "f16", [8]),
        (3, "f16", [1, 1, 1]),
        (16, "s8", [16]),
    ],
)
def test_vectors_are_as_wide_as_rows_allow(cols: int, dtype: str, widths: list[int]) -> None:
    """A row per lane: 32x8 f32 is two v4.u32, 32x6 f16 is three u32."""
    row = TileLayout(S[(32, cols) : (1 @ laneid, 1)])
    for scope in ("shared", "global"):
        target = memory((32, cols), None, dtype, scope)
        done = lowered(registers(row, (32, cols), dtype), target, dispatch="vec_auto")
        assert [len(each) for each in numbers(done.ops)] == widths
        assert all(isinstance(op, Load) for op in done.ops)
        back = lowered(target, registers(row, (32, cols), dtype), dispatch="vec_auto")
        assert [len(each) for each in numbers(back.ops)] == widths
        assert all(isinstance(op, Store) for op in back.ops)


def test_stmatrix_needs_sm_90() -> None:
    target, source = memory((16, 16)), registers(A.layout, (16, 16))
    (op,) = lowered(target, source).ops
    assert isinstance(op, StoreMatrix)
    assert (op.count, op.trans, op.source.numbers) == (4, False, tuple(range(8)))
    older = lowered(target, source, arch="sm_80")
    assert older.variant == "vec_auto"
    with pytest.raises(lw.DispatchError, match="sm_80 lacks stmatrix; sm_90 and newer have it"):
        lowered(target, source, arch="sm_80", dispatch="ldstmatrix")


@pytest.mark.parametrize("dtype", ["s8", "tf32"])
def test_transposing_moves_16_bit_units_only(dtype: str) -> None:
    """An 8-bit or 32-bit tile that lies across is refused, where TVM stores half of it (C1)."""
    name = {"s8": "mma.m16n8k32.s8", "tf32": "mma.m16n8k8.tf32"}[dtype]
    b = fragments.get(name, "B")
    across = memory(b.shape, None, dtype)
    with pytest.raises(lw.DispatchError, match=r"\.trans transposes 16-bit units"):
        lowered(registers(b.layout, b.shape, dtype), across, dispatch="ldstmatrix")
    along = memory(b.shape[::-1], None, dtype)
    flipped = registers(transposed(b.layout, b.shape), b.shape[::-1], dtype)
    done = lowered(flipped, along)
    assert done.variant == "ldstmatrix"


HALF = "S[(4,2,2,4,2):(4@laneid,2,4,1@laneid,1)]"
REFUSED: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "matrices from global memory": (
        registers(A.layout, (16, 16)),
        memory((16, 16), scope="global"),
        {"dispatch": "ldstmatrix"},
        "in_shared_memory  the other side must be in shared memory; got local and global",
    ),
    "registers to registers": (
        registers(A.layout, (16, 16)),
        lw.Buffer("Q", (16, 16), "f16", layout=A.layout),
        {"dispatch": "vec_auto"},
        "one_side_in_registers  one side must be in registers (local), the other in shared or "
        "global memory; dst is local, src local",
    ),
    "shared by threads that hold it": (
        registers(A.layout, (16, 16)),
        memory((16, 16)),
        {"dispatch": "cooperative"},
        "both_in_memory  both sides must be in shared or global memory; dst is local, src shared",
    ),
    "cp.async of scattered cells": (
        memory((16, 16), parse("S[(16,16):(1,16)]")),
        lw.Buffer("Q", (16, 16), "f16", "global"),
        {"asynchronous": True},
        "cp.async moves 4, 8 or 16 bytes; Q[0:16,0:16] and M[0:16,0:16] have 2 bytes in "
        "consecutive, aligned cells",
    ),
    "64-bit matrices": (
        registers(fragments.get("mma.m8n8k4.f64", "A").layout, (8, 4), "f64"),
        memory((8, 4), None, "f64"),
        {"dispatch": "ldstmatrix"},
        "moves 32-bit registers; R[8,4] float64 has elements of 64 bits",
    ),
    "half words": (
        registers(parse("S[(8,4,2):(4@laneid,1@laneid,2)]"), (8, 8)),
        memory((8, 8)),
        {"dispatch": "ldstmatrix"},
        "the registers of R[0:8,0:8] do not fill whole 32-bit words",
    ),
    "copies in one warp": (
        memory((8, 16)),
        registers(parse(f"{HALF} + R[2:16@laneid]"), (8, 16)),
        {"dispatch": "ldstmatrix"},
        "lanes 16..31 of each warp hold copies in R[0:8,0:16]; stmatrix would write them in a race",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_its_reason(name: str) -> None:
    dst, src, rest, reason = REFUSED[name]
    with pytest.raises(lw.DispatchError) as caught:
        lowered(dst, src, **rest)
    assert reason in str(caught.value)


def test_copies_of_different_tiles_are_none() -> None:
    r = registers(A.layout, (16, 16))
    n = symbol("n")
    with pytest.raises(LayoutError, match=r"^copy: M\[0:n,0:16\] must have static extents; got "):
        lw.copy(r, memory((32, 16))[0:n])
    for other, message in (
        (
            memory((16, 8)),
            "both sides must have the same extents; R.* has .16, 16., M.* has .16, 8.",
        ),
        (memory((16, 16), None, "bf16"), "both sides must have one dtype; R.* and M.* differ"),
        (memory((16, 16)).region, "operand src must be a Buffer or a region of one"),
    ):
        with pytest.raises(LayoutError, match=f"^copy: {message}"):
            lw.copy(r, other)


MEMORIES = {
    "row-major": "S[({m},{n}):({n},1)]",
    "column-major": "S[({m},{n}):(1,{m})]",
    "padded": "S[({m},{n}):({p},1)]",
    "odd": "S[({m},{n}):({o},1)]",
}
TILES = {
    "A f16": ("mma.m16n8k16.f16", "A", (32, 32), 32),
    "B bf16": ("mma.m16n8k16.bf16", "B", (32, 16), 32),
    "D f32": ("mma.m16n8k16.f16", "D", (16, 16), 32),
    "A s8": ("mma.m16n8k32.s8", "A", (16, 32), 32),
    "A f16 of a guarded warp": ("mma.m16n8k16.f16", "A", (16, 16), 128),
}


@pytest.mark.slow
@pytest.mark.parametrize("through", ["global", "shared"])
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("where", MEMORIES)
def test_every_element_arrives(where: str, tile: str, through: str) -> None:
    """In by one copy, out by another: simulator, numba text and CUDA text agree with identity."""
    name, role, (m, n), threads = TILES[tile]
    fragment = fragments.get(name, role)
    text = MEMORIES[where].format(m=m, n=n, p=n + 16, o=n + 1)
    layout = fragment.tiled(m, n)
    if threads > 32:
        layout = parse(str(layout).replace("laneid", "tid_in_wg"))
    kernel = Kernel("there_and_back", threads)
    source = kernel.param("a", (m, n), fragment.dtype, parse(text) if through == "global" else None)
    target = kernel.param("b", (m, n), fragment.dtype, parse(text) if through == "global" else None)
    held = kernel.alloc("r", (m, n), fragment.dtype, layout=layout)
    if through == "shared":
        first = kernel.alloc("s", (m, n), fragment.dtype, "shared", parse(text))
        last = kernel.alloc("t", (m, n), fragment.dtype, "shared", parse(text))
        kernel.copy(first, source)
        kernel.sync()
        kernel.copy(held, first)
        kernel.copy(last, held)
        kernel.sync()
        kernel.copy(target, last)
    else:
        kernel.copy(held, source)
        kernel.copy(target, held)
    program = kernel.lower()
    given = np.random.default_rng(1).integers(-60, 60, (m, n)).astype(source.dtype.numpy)
    for machine, written in outputs(program, {"a": given}):
        assert list(written) == ["b"]
        assert np.array_equal(written["b"], given), machine


@pytest.mark.parametrize(
    "text", ["S[(3,3,2):(3@laneid,1@laneid,1)] + 6@laneid", "S[(9,2):(2@laneid,1)] + 5@laneid"]
)
def test_threads_may_start_anywhere(text: str) -> None:
    """Digits that count from another thread: the threads before hold nothing, also in C."""
    kernel = Kernel("later")
    a, b = kernel.param("a", (9, 2), "float32"), kernel.param("b", (9, 2), "float32")
    held = kernel.alloc("r", (9, 2), "float32", layout=parse(text))
    kernel.copy(held, a)
    kernel.copy(b, held)
    program = kernel.lower()
    given = np.random.default_rng(3).standard_normal((9, 2)).astype(np.float32)
    for machine, written in outputs(program, {"a": given}):
        assert np.array_equal(written["b"], given), machine


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("shape", "threads", "transfers", "count"),
    [((16, 64), 32, 4, 8), ((16, 64), 128, 1, 8), ((6, 10), 32, 1, 2), ((12, 8), 32, 1, 8)],
)
def test_cooperative_copies_share_the_vectors_out(
    asynchronous: bool, shape: tuple[int, int], threads: int, transfers: int, count: int
) -> None:
    kernel = Kernel("staged", threads)
    a, b = kernel.param("a", shape, "float16"), kernel.param("b", shape, "float16")
    swizzled = None if shape != (16, 64) else ComposeLayout(3, 3, 3, parse("S[1024:1]"))
    s = kernel.alloc("s", shape, "float16", "shared", swizzled)
    kernel.copy(s, a, asynchronous=asynchronous)
    if asynchronous:
        kernel.commit()
        kernel.wait()
    kernel.sync()
    kernel.copy(b, s)
    program = kernel.lower()
    moves = [op for op in program.body.ops if isinstance(op, Transfer)]
    assert [op.count for op in moves] == [count] * (2 * transfers)
    assert [op.asynchronous for op in moves] == [asynchronous] * transfers + [False] * transfers
    given = np.random.default_rng(2).standard_normal(shape).astype(np.float16)
    for machine, written in outputs(program, {"a": given}):
        assert np.array_equal(written["b"], given), machine


def test_the_solved_address_is_checked() -> None:
    """A matrix instruction whose rows are not 16 bytes apart is refused by the simulator too."""
    kernel = Kernel("rows")
    a, b = kernel.param("a", (16, 16), "float16"), kernel.param("b", (16, 16), "float16")
    s = kernel.alloc("s", (16, 16), "float16", "shared")
    r = kernel.alloc("r", (16, 16), "float16", layout=A.layout)
    kernel.copy(s, a)
    kernel.sync()
    kernel.copy(r, s)
    kernel.copy(b, r)
    body = kernel.lower().body
    ops = tuple(
        dataclasses.replace(op, address=op.address + 1) if isinstance(op, LoadMatrix) else op
        for op in body.ops
    )
    bent = dataclasses.replace(body, ops=ops)
    with pytest.raises(SimulationError, match=r"needs 16-byte rows: thread 0 gives s at 1$"):
        execute(bent, {"a": np.zeros((16, 16), dtype=np.float16)})


def test_rows_beside_a_row_that_is_not_aligned_move_in_whole_vectors() -> None:
    """Row 4 begins at 17, and no thread that takes part has it."""
    kernel = Kernel("four_rows")
    a = kernel.param("a", (32, 4), "f32")
    o = kernel.param("o", (32, 4), "f32", TileLayout(S[(8, 4, 4) : (17, 4, 1)]))
    r = kernel.alloc("r", (32, 4), "f32", layout=TileLayout(S[(32, 4) : (1 @ laneid, 1)]))
    kernel.copy(r, a)
    kernel.copy(o[0:4], r[0:4])
    (store,) = [op for op in walk(kernel.lower().body.ops) if isinstance(op, Store)]
    assert store.source.numbers == (0, 1, 2, 3)


@pytest.mark.parametrize(("row", "pitch"), [(0, 4), (5, 4), (31, 4), (4, 6), (30, 6)])
def test_a_row_that_one_thread_holds_moves_in_one_vector(row: int, pitch: int) -> None:
    """One thread's four addresses are neighbours: that no other thread takes part costs nothing."""
    kernel = Kernel("one_row")
    a = kernel.param("a", (32, 4), "f32")
    o = kernel.param("o", (32, 4), "f32", TileLayout(S[(32, 4) : (pitch, 1)]))
    r = kernel.alloc("r", (32, 4), "f32", layout=TileLayout(S[(32, 4) : (1 @ laneid, 1)]))
    kernel.copy(r, a)
    kernel.copy(o[row : row + 1], r[row : row + 1])
    program = kernel.lower()
    (store,) = [op for op in walk(program.body.ops) if isinstance(op, Store)]
    assert store.source.numbers == (0, 1, 2, 3)


def test_words_are_in_the_order_of_the_registers_not_of_the_elements() -> None:
    """Register 1 holds (1, 0) and register 2 holds (0, 1), for the slow digit steps by one."""
    layout = parse("S[(32,2,2):(1@laneid,1,2)]")
    tile = register_tile(layout, (32, 2, 2), 32)
    assert {at: tuple(map(str, place[1:])) for at, place in tile.places.items()} == {
        0: ("0", "0"), 1: ("1", "0"), 2: ("0", "1"), 3: ("1", "1"),
    }  # fmt: skip
    done = lowered(registers(layout, (32, 2, 2)), memory((32, 2, 2)), dispatch="vec_auto")
    assert numbers(done.ops) == [(0,), (1,), (2,), (3,)]
    held = memory((32, 2, 2), TileLayout(S[(32, 2, 2) : (4, 1, 2)]))
    assert numbers(lowered(registers(layout, (32, 2, 2)), held).ops) == [(0, 1, 2, 3)]


def test_matrices_of_numbers_are_moved_by_vectors() -> None:
    """The registers of f32 hold numbers in both texts, and ldmatrix gives bits."""
    b = fragments.get("mma.m16n8k8.tf32", "B")
    held = registers(transposed(b.layout, b.shape), b.shape[::-1], "f32")
    shared = memory(b.shape[::-1], None, "f32")
    assert lowered(held, shared).variant == "vec_auto"
    with pytest.raises(lw.DispatchError, match="registers of float32 hold numbers"):
        lowered(held, shared, dispatch="ldstmatrix")


def owned(bits: int, values: Any, registers: tuple[int, ...]) -> Ownership:
    """Registers whose elements lie at these addresses, by thread."""
    addresses = {register: Index((), 0) for register in registers}
    return Ownership("r", "s", bits, addresses, dict.fromkeys(registers, ()), 1, np.array(values))


def test_narrow_elements_are_moved_by_whole_registers() -> None:
    together = [[0], [1]]
    assert runs(owned(16, together, (0, 1)), 2) == [(0, 1)]
    assert runs(owned(16, together, (1, 2)), 2) is None
    assert runs(owned(32, together, (1, 2)), 2) == [(1, 2)]


def test_where_nobody_takes_part_there_are_no_vectors() -> None:
    assert runs(owned(16, np.zeros((2, 0), dtype=np.int64), (0, 1)), 2) is None


def test_two_elements_of_4_bits_share_a_byte() -> None:
    assert accesses(owned(4, [[0], [1]], (0, 1))) == [(0, 1)]
    with pytest.raises(LayoutError, match=r"^copy: 2 neighbours of r must share a byte of s"):
        accesses(owned(4, [[0], [2]], (0, 1)))


def test_a_copy_of_registers_has_the_extents_of_the_memory() -> None:
    row = TileLayout(S[(32, 4) : (1 @ laneid, 1)])
    r = lw.Buffer("r", (32, 4), "f32", layout=row)
    g = lw.Buffer("g", (32, 8), "f32", "global")
    with pytest.raises(LayoutError) as raised:
        register_copy(r.region(), g.region(), 32, True)
    assert str(raised.value) == (
        "copy: both sides must have the same extents; r[0:32,0:4] has (32, 4), "
        "g[0:32,0:8] has (32, 8)"
    )
