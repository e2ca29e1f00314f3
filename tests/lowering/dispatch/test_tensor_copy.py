"""``copy`` to and from tensor memory: which instruction moves a tile, what no instruction does.

Where an element lies in tensor memory is read from the cells of the machine, by lane and column.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import lowering as lw
from layoutalg import (
    ComposeLayout,
    TileLayout,
    parse,
    tcgen05_atom_layout,
    tmem_datapath_layout,
    tmem_mma_operand_layout,
    tmem_scale_layout,
    wg_local_layout,
)
from lowering.dispatch.registry import context_of, dispatch
from lowering.ir.ops import Op, walk
from lowering.ir.tmem_ops import TensorCopy, TensorLoad, TensorStore, TensorWait
from lowering.isa.dtypes import get
from lowering.programs.kernel import Kernel
from lowering.simulator.hazards import SimulationError
from lowering.simulator.machine import Machine
from lowering.simulator.run import execute
from tests.support.tensor_kernels import values

Array = npt.NDArray[Any]
PACK = {"float32": 1, "int32": 1, "float16": 2, "bfloat16": 2}
COLUMNS = {"32x32b": (1, 128), "16x64b": (2, 128), "16x128b": (4, 64), "16x256b": (8, 32)}


def moving(
    registers: TileLayout,
    tensor: TileLayout,
    shape: tuple[int, int],
    dtype: str,
    back: TileLayout | None = None,
    threads: int = 128,
) -> Kernel:
    """Return a kernel that stores a matrix to tensor memory and loads it back."""
    kernel = Kernel("moving", threads, "sm_100a")
    given, result = (kernel.param(name, shape, dtype) for name in "AD")
    place = kernel.alloc("T", shape, dtype, "tmem", tensor)
    first = kernel.alloc("first", shape, dtype, layout=registers)
    second = kernel.alloc("second", shape, dtype, layout=back or registers)
    kernel.copy(first, given)
    kernel.copy(place, first)
    kernel.sync()
    kernel.copy(second, place)
    kernel.copy(result, second)
    return kernel


def moved(
    kernel: Kernel, dtype: str, threads: int = 128
) -> tuple[list[str], Machine, Array, Array]:
    """Return the shapes of stores and loads, the machine, what was given and what came."""
    program = kernel.lower()
    buffer = program.body.buffer("A")
    given = values(np.random.default_rng(0), get(dtype).token, buffer.shape)
    machine = program.trace(A=given)
    found = [
        f"{type(op).__name__[6:].lower()} {op.shape}.x{op.count}"
        for op in walk(program.body.ops)
        if isinstance(op, (TensorLoad, TensorStore))
    ]
    out = machine.memory["D"].values.reshape(buffer.shape).astype(np.float64)
    return found, machine, given, out


def in_cells(machine: Machine, layout: TileLayout, shape: tuple[int, int], dtype: str) -> Array:
    """Return a matrix from the cells of tensor memory: lane, column and bits as the layout says."""
    kind = get(dtype)
    where = layout.table(shape)
    pack = 32 // kind.bits
    lanes, places = (np.broadcast_to(where.get(axis, 0), shape) for axis in ("TLane", "TCol"))
    cells = machine.tensor.values.reshape(128, 512)[lanes, places // pack]
    bits = cells >> (places % pack * kind.bits).astype(np.uint32)
    bits = bits & np.uint32((1 << kind.bits) - 1)
    found: Array = bits.astype(kind.word).view(kind.numpy).astype(np.float64)
    return found


ATOMS = [
    (shape, dtype, rows, count)
    for shape, dtype, rows in itertools.product(COLUMNS, PACK, (64, 128))
    for count in (1, 4, COLUMNS[shape][1] // (1 if rows == 64 else 2))
    if (shape, rows) != ("32x32b", 64)
    if count * COLUMNS[shape][0] * PACK[dtype] <= 256
    if dtype in ("float32", "float16") or count == 4
]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "dtype", "rows", "count"), ATOMS)
def test_the_shape_of_an_atom_is_found(shape: str, dtype: str, rows: int, count: int) -> None:
    """64 rows lie in 16 of every 32 lanes; 128 rows take the atoms of both halves."""
    size = rows, count * COLUMNS[shape][0] * PACK[dtype]
    registers = tcgen05_atom_layout(shape, size, dtype)
    tensor = tmem_datapath_layout("F" if rows == 64 else "D", rows, size[1])
    found, machine, given, out = moved(moving(registers, tensor, size, dtype), dtype)
    times = 1 if rows == 64 or shape == "32x32b" else 2
    assert found == [f"store {shape}.x{count}"] * times + [f"load {shape}.x{count}"] * times
    assert np.array_equal(in_cells(machine, tensor, size, dtype), given)
    assert np.array_equal(out, given)


@pytest.mark.parametrize(
    ("cols", "counts"), [(48, (32, 16)), (100, (64, 32, 4)), (256, (128, 128)), (1, (1,))]
)
def test_other_widths_take_several(cols: int, counts: tuple[int, ...]) -> None:
    registers, tensor = wg_local_layout(cols), tmem_datapath_layout("D", 128, cols)
    kernel = moving(registers, tensor, (128, cols), "float32")
    found, machine, given, out = moved(kernel, "float32")
    assert found == [f"{verb} 32x32b.x{n}" for verb in ("store", "load") for n in counts]
    assert np.array_equal(in_cells(machine, tensor, (128, cols), "float32"), given)
    assert np.array_equal(out, given)
    waits = [op for op in walk(kernel.lower().body.ops) if isinstance(op, TensorWait)]
    assert [(wait.verb, len(wait.complete)) for wait in waits] == [("st", 0), ("ld", len(counts))]


@pytest.mark.parametrize("dtype", ["e4m3", "s8", "e2m1", "ue8m0", "f16", "tf32"])
def test_narrow_elements_share_a_column(dtype: str) -> None:
    """The first in the low bits, as A lies in tensor memory."""
    cols = 64
    tensor = tmem_datapath_layout("D", 128, cols)
    found, machine, given, out = moved(
        moving(wg_local_layout(cols), tensor, (128, cols), dtype), dtype
    )
    width = cols * get(dtype).bits // 32
    assert found == [f"store 32x32b.x{width}", f"load 32x32b.x{width}"]
    assert np.array_equal(in_cells(machine, tensor, (128, cols), dtype), given)
    assert np.array_equal(out, given)


PLACES: dict[str, tuple[TileLayout, TileLayout]] = {
    "datapath B": (
        parse("S[(64,2,32):(1@tid_in_wg,64@tid_in_wg,1)]"), tmem_datapath_layout("B", 64, 64)
    ),
    "datapath C, lower half": (
        tcgen05_atom_layout("16x64b", (64, 64), "float32"), tmem_datapath_layout("C", 64, 64, 1)
    ),
    "datapath E": (
        tcgen05_atom_layout("32x32b", (64, 64), "float32"), tmem_datapath_layout("E", 64, 64)
    ),
    "datapath G": (
        parse("S[(32,4,16):(1@laneid,1@wid_in_wg,1)]"), tmem_datapath_layout("G", 32, 64)
    ),
    "from a column on": (wg_local_layout(16), parse("S[(128,16):(1@TLane,1@TCol)] + 37@TCol")),
    "columns apart": (
        wg_local_layout(16), parse("S[(128,2,8):(1@TLane,40@TCol,1@TCol)]")
    ),
    "registers in another order": (
        parse("S[(128,4,4):(1@tid_in_wg,1,4)]"), tmem_datapath_layout("D", 128, 16)
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACES)
def test_wherever_a_tile_lies(case: str) -> None:
    registers, tensor = PLACES[case]
    shape = {"datapath G": (32, 64)}.get(case, (64, 64) if "datapath" in case else (128, 16))
    found, machine, given, out = moved(moving(registers, tensor, shape, "float32"), "float32")
    assert np.array_equal(in_cells(machine, tensor, shape, "float32"), given)
    assert np.array_equal(out, given)
    assert len(found) == (4 if case == "columns apart" else 2)


def test_what_is_stored_by_one_shape_is_loaded_by_another() -> None:
    tensor = tmem_datapath_layout("D", 128, 32)
    for shape, back in itertools.permutations(COLUMNS, 2):
        one, other = (tcgen05_atom_layout(s, (128, 32), "float32") for s in (shape, back))
        kernel = moving(one, tensor, (128, 32), "float32", other)
        found, _, given, out = moved(kernel, "float32")
        assert {name.split(".")[0] for name in found} == {f"store {shape}", f"load {back}"}
        assert np.array_equal(out, given)


def test_what_is_stored_is_there_after_a_wait() -> None:
    """Also for the thread that stores it."""
    layouts = wg_local_layout(4), tmem_datapath_layout("D", 128, 4)
    program = moving(*layouts, (128, 4), "float32").lower()
    ops = tuple(
        op for op in program.body.ops if not (isinstance(op, TensorWait) and op.verb == "st")
    )
    message = r"tcgen05.st.32x32b.x4.* of thread 0 still writes: wait for it$"
    with pytest.raises(SimulationError, match=message):
        execute(replace(program.body, ops=ops), {"A": np.ones((128, 4), np.float32)})


def test_two_warpgroups_share_the_lanes() -> None:
    """Each warp reaches the lanes of its number mod 4; each warpgroup takes half the columns."""
    registers = parse("S[(128,2,32):(1@tid_in_wg,1@wgid,1)]")
    tensor = tmem_datapath_layout("D", 128, 64)
    kernel = moving(registers, tensor, (128, 64), "float32", threads=256)
    found, machine, given, out = moved(kernel, "float32")
    assert found == ["store 32x32b.x32", "load 32x32b.x32"]
    assert np.array_equal(in_cells(machine, tensor, (128, 64), "float32"), given)
    assert np.array_equal(out, given)
    (store,) = [op for op in walk(kernel.lower().body.ops) if isinstance(op, TensorStore)]
    assert str(store.into) == "T[lane thread // 32 % 4 * 32, column thread // 128 * 32]"


def test_copies_are_stored_by_those_who_reach_them() -> None:
    """A of 128 rows of a pair lies twice, scales four times."""
    shape = (64, 32)
    registers = parse("S[(64,32):(1@tid_in_wg,1)] + R[2:64@tid_in_wg]")
    tensor = tmem_mma_operand_layout("A", shape, 128, 2)
    _, machine, given, out = moved(moving(registers, tensor, shape, "float16"), "float16")
    cells = machine.tensor.values.reshape(128, 512)[:, :16]
    assert np.array_equal(cells[:64], cells[64:])
    assert np.array_equal(in_cells(machine, tensor, shape, "float16"), given)
    assert np.array_equal(out, given)
    shape = (128, 4)
    registers = parse("S[(4,32,4):(4,1@laneid,1)] + R[4:1@wid_in_wg]")
    tensor = tmem_scale_layout(*shape)
    _, machine, given, out = moved(moving(registers, tensor, shape, "ue8m0"), "ue8m0")
    cells = machine.tensor.values.reshape(4, 32, 512)[:, :, :4]
    assert (cells == cells[:1]).all()
    assert np.array_equal(in_cells(machine, tensor, shape, "ue8m0"), given)
    assert np.array_equal(out, given)


# -- rows of shared memory -------------------------------------------------------------------------


def rows_of(
    source: TileLayout | ComposeLayout, tensor: TileLayout, shape: tuple[int, int], dtype: str
) -> tuple[Kernel, Array]:
    """Return a kernel that copies shared memory to tensor memory, and what it is given."""
    kernel = Kernel("rows", 128, "sm_100a")
    given = kernel.param("A", shape, dtype)
    held = kernel.alloc("S", shape, dtype, "shared", source)
    place = kernel.alloc("T", shape, dtype, "tmem", tensor)
    done = kernel.barrier("done", 1, 1)
    kernel.copy(held, given)
    kernel.sync()
    kernel.copy(place, held, scope="thread")
    kernel.commit("gemm", done)
    kernel.mbarrier_wait(done, 0, 0)
    return kernel, values(np.random.default_rng(1), get(dtype).token, shape)


def swizzled(text: str, length: int, unit: int = 3) -> ComposeLayout:
    return ComposeLayout(unit, length, 3, parse(text))


D8, D16, D64 = (tmem_datapath_layout("D", 128, cols) for cols in (8, 16, 64))
SHAPE128, SHAPE256 = "128x128b", "128x256b"
COPIED: dict[str, tuple[Any, TileLayout, tuple[int, int], str, list[str]]] = {
    "16 bytes": (parse("S[(128,8):(8,1)]"), D8, (128, 8), "f16", [SHAPE128]),
    "16 bytes, 8 rows apart": (
        parse("S[(16,8,8):(80,8,1)]"), D8, (128, 8), "bf16", [SHAPE128]
    ),
    "32 bytes": (parse("S[(128,2,8):(8,1024,1)]"), D16, (128, 16), "f16", [SHAPE256]),
    "48 bytes": (
        parse("S[(128,3,8):(8,1024,1)]"), tmem_datapath_layout("D", 128, 24), (128, 24), "f16",
        [SHAPE128] * 3,
    ),
    "tf32": (parse("S[(128,4,4):(4,512,1)]"), D16, (128, 16), "tf32", [SHAPE256] * 2),
    "half bytes": (parse("S[(128,2,32):(32,4096,1)]"), D64, (128, 64), "e2m1", [SHAPE256]),
    "swizzle 32": (swizzled("S[(128,16):(16,1)]", 1), D16, (128, 16), "f16", [SHAPE256]),
    "swizzle 64": (swizzled("S[(128,64):(64,1)]", 2, 4), D64, (128, 64), "e5m2", [SHAPE256] * 2),
    "swizzle 128": (swizzled("S[(128,64):(64,1)]", 3), D64, (128, 64), "f16", [SHAPE256] * 4),
    "scales": (
        parse("S[(4,32,4):(4,16,1)]"), tmem_scale_layout(128, 4), (128, 4), "ue8m0",
        ["32x128b.warpx4"],
    ),
    "scales of 256 rows and 8 blocks": (
        parse("S[(2,4,32,2,4):(1024,4,16,512,1)]"), tmem_scale_layout(256, 8), (256, 8), "ue4m3",
        ["32x128b.warpx4"] * 4,
    ),
    "scales from a column on": (
        parse("S[(4,32,4):(4,16,1)]"),
        parse("S[(4,32,4):(4@TCol,1@TLane,1@TCol)] + R[4:32@TLane] + 16@TCol"), (128, 4), "ue8m0",
        ["32x128b.warpx4"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COPIED)
def test_rows_of_shared_memory(case: str) -> None:
    source, tensor, shape, dtype, expected = COPIED[case]
    kernel, given = rows_of(source, tensor, shape, dtype)
    program = kernel.lower()
    machine = program.trace(A=given)
    assert [op.shape for op in walk(program.body.ops) if isinstance(op, TensorCopy)] == expected
    assert np.array_equal(in_cells(machine, tensor, shape, dtype), given)
    if "warpx4" in expected[0]:
        cells = machine.tensor.values.reshape(4, 32, 512)
        assert (cells == cells[:1]).all()


# -- what is refused ------------------------------------------------------------------------------

T = lw.Buffer("T", (128, 64), "f32", "tmem", D64)
R = lw.Buffer("R", (128, 64), "f32", layout=wg_local_layout(64))
HALVES = lw.Buffer("R", (128, 64), "f16", layout=wg_local_layout(64))


def reason(
    variant: str,
    dst: Any,
    src: Any,
    scope: str = "warpgroup",
    threads: int = 128,
    arch: str = "sm_100a",
    active: dict[str, tuple[int, int]] | None = None,
) -> str:
    """Return why a variant declines a copy; empty where it takes it."""
    try:
        found = dispatch(context_of(lw.copy(dst, src, scope), "cuda", threads, active, arch))
    except lw.DispatchError as error:
        return next(text for name, _, text in error.reasons if name == variant)
    assert found.variant == variant
    return ""


def tmem(text: str, shape: tuple[int, ...] = (128, 64), dtype: str = "f32") -> lw.Buffer:
    return lw.Buffer("T", shape, dtype, "tmem", parse(text))


def local(text: str, dtype: str = "f32", shape: tuple[int, ...] = (128, 64)) -> lw.Buffer:
    return lw.Buffer("R", shape, dtype, layout=parse(text))


def test_what_is_given_is_taken() -> None:
    assert reason("tcgen05.ld", R, T) == reason("tcgen05.st", T, R) == ""
    assert reason("tcgen05.ld", R, T, scope="cta") == ""


NO_SHAPE = "no shape of tcgen05.ld and .st has word 0 of thread 0 in lane 0, column 0"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "target": ({"arch": "sm_90a"}, "sm_90a lacks tensor memory; sm_100, sm_103, "),
    "a thread": ({"scope": "thread"}, "whole warps take part; the scope is thread, "),
    "half a warp": ({"active": {"laneid": (0, 16)}}, "whole warps take part; the scope is warpgro"),
    "two warpgroups": ({"threads": 256}, "all 256 threads take part: scope cta fits"),
    "half words": (
        {"dst": local("S[(128,64):(1@tid_in_wg,2)] + 1", "f16"),
         "src": tmem(str(D64), dtype="f16")},
        "every thread must hold the same, whole words of ",
    ),
    "an odd column": (
        {"dst": lw.Buffer("R", (128, 63), "f16", layout=wg_local_layout(63)),
         "src": tmem("S[(128,63):(1@TLane,1@TCol)]", (128, 63), "f16")},
        "must fill words of 32 bits",
    ),
    "double words": (
        {"dst": lw.Buffer("R", (128, 64), "f64", layout=wg_local_layout(64)),
         "src": tmem(str(D64), dtype="f64")},
        "must fill words of 32 bits",
    ),
    "neighbours apart": (
        {"dst": HALVES, "src": tmem("S[(128,64):(1@TLane,2@TCol)]", dtype="f16")},
        "2 neighbours of R[0:128,0:64] must share a column of 32 bits; S[(128,64):(1@TLane,2",
    ),
    "neighbours exchanged": (
        {"dst": HALVES, "src": tmem("S[(128,2,32):(1@TLane,1@TCol,2@TCol)]", dtype="f16")},
        "2 neighbours of R[0:128,0:64] must share a column of 32 bits",
    ),
    "lanes of another warp": (
        {"dst": local("S[(2,2,32,64):(1@wid_in_wg,2@wid_in_wg,1@laneid,1)]")}, NO_SHAPE
    ),
    "rows of a warp by twos": (
        {"dst": local("S[(4,16,2,64):(32@tid_in_wg,1@tid_in_wg,16@tid_in_wg,1)]")}, NO_SHAPE
    ),
    "rows by twos": ({"dst": local("S[(64,2,64):(1@tid_in_wg,64@tid_in_wg,1)]")}, NO_SHAPE),
    "along the lanes": (
        {"src": tmem("S[(128,64):(1@TCol,1@TLane)]")}, "and the rest of the warp as it is; a warp r"
    ),
    "lanes beyond the last": (
        {"src": tmem("S[(128,64):(1@TLane,1@TCol)] + 32@TLane")},
        "tensor memory has lanes 0 to 127 and columns from 0 on; T[128,64] float32 has lanes 32 to",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_load_moves(case: str) -> None:
    given, message = REFUSED[case]
    assert message in reason("tcgen05.ld", **{"dst": R, "src": T} | given)


def test_a_store_reaches_every_copy() -> None:
    once = local("S[(64,32):(1@tid_in_wg,1)]", "f16", (64, 32))
    twice = lw.Buffer("T", (64, 32), "f16", "tmem", tmem_mma_operand_layout("A", (64, 32), 128, 2))
    assert reason("tcgen05.st", twice, once) == ""  # what no digit tells apart holds copies
    half = local("S[(128,32):(1@tid_in_wg,1)]", "f16", (128, 32))[:64]
    assert "has a copy in lane 64, column 0, and no thread" in reason("tcgen05.st", twice, half)
    scales = lw.Buffer("T", (128, 4), "ue8m0", "tmem", tmem_scale_layout(128, 4))
    apart = local("S[(4,32,4):(1@wid_in_wg,1@laneid,1)]", "ue8m0", (128, 4))
    message = (
        "T:float8_e8m0fnu(128,4)@tmem has a copy in lane 0, column 1, and no thread that reaches "
        "this lane holds it in R"
    )
    assert message.split("@tmem")[1] in reason("tcgen05.st", scales, apart)


def test_the_wrong_way_round() -> None:
    message = "goes from tmem to local; src is local, dst tmem"
    assert reason_of_declined("tcgen05.ld", T, R) == message
    assert reason_of_declined("tcgen05.st", R, T) == (
        "goes from local to tmem; src is tmem, dst local"
    )
    assert reason_of_declined("tcgen05.cp", R, T) == (
        "goes from shared to tmem; src is tmem, dst local"
    )


def reason_of_declined(variant: str, dst: lw.Buffer, src: lw.Buffer) -> str:
    """Return why a variant declines on a target that has none of them."""
    return reason(variant, dst, src, arch="sm_90")


S128 = lw.Buffer("S", (128, 8), "f16", "shared", parse("S[(128,8):(8,1)]"))
T128 = lw.Buffer("T", (128, 8), "f16", "tmem", D8)
REFUSED_ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "target": ({"arch": "sm_120a"}, "sm_120a lacks tensor memory; "),
    "all threads": (
        {"scope": "warpgroup"}, "one thread starts it: scope thread or warp fits; the scope is warp"
    ),
    "half the lanes": (
        {"dst": lw.Buffer("T", (64, 8), "f16", "tmem", parse("S[(64,8):(1@TLane,1@TCol)]")),
         "src": lw.Buffer("S", (64, 8), "f16", "shared", parse("S[(64,8):(8,1)]"))},
        "128x128b: it writes 128 lanes of 128 bits; T[0:64,0:8] has nothing for lane 64, column 0",
    ),
    "half a unit": (
        {"dst": tmem("S[(128,4):(1@TLane,1@TCol)]", (128, 4), "f16"),
         "src": lw.Buffer("S", (128, 4), "f16", "shared", parse("S[(128,4):(8,1)]"))},
        "128x128b: it writes 128 lanes of 128 bits; T[0:128,0:4] has nothing for lane 0, column 2",
    ),
    "two copies": (
        {"dst": lw.Buffer("T", (64, 8), "f16", "tmem", parse("S[(64,8):(1@TLane,1@TCol)] + "
                                                             "R[2:64@TLane]")),
         "src": lw.Buffer("S", (64, 8), "f16", "shared", parse("S[(64,8):(8,1)]"))},
        "must have each element in 4 lanes, 32 apart; 128x256b: ",
    ),
    "rows that no descriptor says": (
        {"src": lw.Buffer("S", (128, 8), "f16", "shared", parse("S[(128,8):(16,1)]"))},
        "128x128b: descriptor: K-major no swizzle, leading 0, stride 256 visits element (1, 0) at "
        "byte 16; S[0:128,0:8] by lanes and columns puts it at 32. ",
    ),
    "columns in another order": (
        {"src": lw.Buffer("S", (128, 8), "f16", "shared", parse("S[(128,2,4):(8,1,2)]"))},
        "by lanes and columns puts it at ",
    ),
    "lanes in another order": (
        {"dst": tmem("S[(32,4,8):(4@TLane,1@TLane,1@TCol)]", (128, 8), "f16"),
         "src": lw.Buffer("S", (128, 8), "f16", "shared", parse("S[(32,4,8):(8,256,1)]"))},
        "visits element (1, 0)",
    ),
    "another swizzle": (
        {"src": lw.Buffer("S", (128, 8), "f16", "shared", swizzled("S[(128,8):(8,1)]", 3, 2))},
        "the tensor core exchanges 16-byte chunks by bits 7 to 9 of the address; got ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_ROWS)
def test_what_no_copy_of_rows_moves(case: str) -> None:
    given, message = REFUSED_ROWS[case]
    operands: dict[str, Any] = {"dst": T128, "src": S128, "scope": "thread"}
    assert reason("tcgen05.cp", **operands) == ""
    assert message in reason("tcgen05.cp", **operands | given)


# -- regions --------------------------------------------------------------------------------------


def test_regions_that_move() -> None:
    """By columns, with a loop that stays; not by lanes, and not by parts of a column."""
    kernel = Kernel("columns", 128, "sm_100a")
    given, result = (kernel.param(name, (128, 64), "f32") for name in "AD")
    place = kernel.alloc("T", (128, 64), "f32", "tmem", D64)
    own = kernel.alloc("own", (128, 16), "f32", layout=wg_local_layout(16))
    with kernel.loop("part", 4) as part:
        kernel.copy(own, given[:, part * 16 : part * 16 + 16])
        kernel.copy(place[:, part * 16 : part * 16 + 16], own)
    with kernel.loop("half", 2) as half:
        for col in (16, 0):
            kernel.copy(own, place[:, half * 32 + col : half * 32 + col + 16])
            kernel.copy(result[:, half * 32 + col : half * 32 + col + 16], own)
    program = kernel.lower()
    rng = np.random.default_rng(0)
    values_in = rng.standard_normal((128, 64)).astype(np.float32)
    assert np.array_equal(program.simulate(A=values_in)["D"], values_in)
    loads = [op for op in walk(program.body.ops) if isinstance(op, TensorLoad)]
    assert str(loads[0].source) == "T[lane thread // 32 * 32, column half * 32 + 16]"


def names_of(ops: tuple[Op, ...]) -> list[str]:
    return [type(op).__name__ for op in ops]


def test_a_load_is_followed_by_its_wait() -> None:
    found = dispatch(context_of(lw.copy(R, T, "warpgroup"), "cuda", 128, None, "sm_100a"))
    assert names_of(found.ops) == ["TensorLoad", "TensorWait"]
    load, wait = found.ops
    assert isinstance(load, TensorLoad)
    assert isinstance(wait, TensorWait)
    assert wait.complete == (load.into,)
