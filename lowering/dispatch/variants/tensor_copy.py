"""``copy`` to and from tensor memory: ``tcgen05.ld`` and ``.st`` of registers, ``.cp`` of rows.

Which shape moves a tile is found by comparing the lane and column of every register of every thread
with the instruction's fragment, the widest instruction first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError, fragments
from layoutalg.algebra.axis import WARP
from lowering.dispatch.holders import Holders, only, uniform_holders
from lowering.dispatch.predicates import available, goes, started_by_one_thread
from lowering.dispatch.register_tiles import columns_of
from lowering.dispatch.registry import Answer, Context, Lowered, fail, predicate, register_dispatch
from lowering.dispatch.smem_operands import unswizzled
from lowering.dispatch.tmem_tiles import TensorTile, ordered, tensor_tile
from lowering.ir.index import Index
from lowering.ir.ops import Op, Registers, SharedMatrix
from lowering.ir.register_map import WARPGROUP, by_warpgroup
from lowering.ir.tiles import BufferRegion
from lowering.ir.tmem_ops import (
    COPIES,
    TensorCopy,
    TensorLoad,
    TensorMatrix,
    TensorStore,
    TensorWait,
    moved,
)
from lowering.isa import tcgen05
from lowering.isa.smem_descriptor import Descriptor, linear_addresses, proved, swizzle_bytes
from lowering.isa.tcgen05 import CELL, COLUMNS, LANES

Ints = npt.NDArray[np.int64]

SHAPES = ("32x32b", "16x256b", "16x128b", "16x64b")


has_tensor_memory = predicate("has_tensor_memory", available("tensor memory", tcgen05.ARCH))


def whole_warps(context: Context) -> Answer:
    """Hold where all threads of the CTA take part."""
    call = context.call
    if call.scope == "thread" or dict(context.active) != context.whole():
        return False, f"whole warps take part; the scope is {call.scope}, {dict(context.active)}"
    if call.scope == "warpgroup" and context.threads != WARPGROUP:
        return False, f"all {context.threads} threads take part: scope cta fits"
    return True


# -- registers ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Words:
    """The 32-bit words of a register tile: their numbers, and the lane and column of each.

    ``lane`` and ``column`` are (warps, 32, words), of the ``warps`` that hold it, out of a CTA of
    ``threads``.
    """

    threads: int
    warps: Ints
    numbers: tuple[int, ...]
    lane: Ints
    column: Ints


def words_of(part: Holders, tile: TensorTile) -> Words:
    """Return the lane and column of every word of every thread that holds some.

    Args:
        part: who holds the registers: whole warps.
        tile: in tensor memory.

    Raises:
        DispatchFail: a word is not one column of a lane, or is not held as a whole.
    """
    registers, bits = part.region, part.region.buffer.dtype.bits
    pack = CELL // bits if bits <= CELL else 0
    first = part.registers[::pack] if pack else ()
    if (
        not pack
        or part.registers != tuple(n + i for n in first for i in range(pack))
        or any(number % pack for number in first)
    ):
        fail(
            f"every thread must hold the same, whole words of {registers}: elements of {bits} bits "
            f"must fill words of {CELL} bits"
        )
    thread = np.flatnonzero(part.taking)
    lane, bit = _own_copy(tile, part.elements[thread].reshape(len(thread), -1, pack), thread)
    together = (lane == lane[..., :1]) & (bit == bit[..., :1] + np.arange(pack) * bits)
    if not together.all() or (bit[..., 0] % CELL).any():
        fail(
            f"{pack} neighbours of {registers} must share a column of {CELL} bits; "
            f"{tile.buffer.layout} separates them"
        )
    numbers = tuple(number // pack for number in first)
    split = -1, WARP, len(numbers)
    return Words(
        part.threads,
        thread[::WARP] // WARP,
        numbers,
        lane[..., 0].reshape(split),
        (bit[..., 0] // CELL).reshape(split),
    )


def _own_copy(tile: TensorTile, held: Ints, thread: Ints) -> tuple[Ints, Ints]:
    """Return the lane and bit of each element that a thread holds; of copies, in its warp's lanes.

    Args:
        tile: in tensor memory.
        held: the element by thread, and anything more.
        thread: the number of each thread.
    """
    copies = tile.lane.shape[2]
    lane, bit = (each.reshape(-1, copies)[held] for each in (tile.lane, tile.bit))
    warp = (thread // WARP % 4).reshape(-1, *[1] * held.ndim)
    reached = np.argmax(lane // WARP == warp, axis=-1)[..., None]
    own_lane, own_bit = (np.take_along_axis(each, reached, -1)[..., 0] for each in (lane, bit))
    return own_lane, own_bit


@dataclass(frozen=True)
class Movement:
    """One instruction: its shape and count, the words that it moves, and where each warp starts."""

    shape: str
    count: int
    numbers: tuple[int, ...]
    lane: Index
    column: Index


def movements(words: Words, what: str) -> Iterator[Movement]:
    """Yield instructions that move all words, each the widest that does.

    Raises:
        DispatchFail: no instruction moves a word.
    """
    left = set(range(len(words.numbers)))
    while left:
        start = min(left, key=lambda n: (words.lane[0, 0, n], words.column[0, 0, n]))
        fitting = (_fitting(words, start, sorted(left), *form) for form in _forms())
        found = next((each for each in fitting if each), None)
        if found is None:
            lane, column = int(words.lane[0, 0, start]), int(words.column[0, 0, start])
            fail(
                f"{what}: no shape of tcgen05.ld and .st has word {words.numbers[start]} of thread "
                f"{words.warps[0] * WARP} in lane {lane}, column {column}, and the rest of the "
                f"warp as it is; a warp reaches lanes {CELL} times its number in the warpgroup on. "
                "tcgen05_atom_layout(…) fits"
            )
        slots, movement = found
        left -= set(slots)
        yield movement


@cache
def _forms() -> tuple[tuple[str, int], ...]:
    """Return the shapes and counts of the instructions, most registers first."""
    forms = []
    for shape in SHAPES:
        count = 1
        while f"tcgen05.ld.{shape}.x{count}.b32" in fragments.names():
            forms.append((shape, count))
            count *= 2
    return tuple(sorted(forms, key=lambda form: -moved("ld", *form).slots))


def _fitting(
    words: Words, start: int, left: list[int], shape: str, count: int
) -> tuple[tuple[int, ...], Movement] | None:
    """Return the slots and the instruction of one form, where it moves words as they lie."""
    rows, cols = np.moveaxis(moved("ld", shape, count).coords, -1, 0)
    if rows.shape[1] > len(left):
        return None
    lane, column = (each[:, 0, start] for each in (words.lane, words.column))  # of each warp
    wanted = _places(lane[:, None, None] + rows, column[:, None, None] + cols)
    at = columns_of(wanted, _places(words.lane[..., left], words.column[..., left]))
    inside = lane - words.warps % 4 * WARP
    offsets = (0,) if shape == "32x32b" else (0, WARP // 2)
    if at is None or (inside != inside[0]).any() or int(inside[0]) not in offsets:
        return None
    column_of = by_warpgroup(column, words.warps // 4, words.threads)
    if column_of is None:
        return None
    slots = tuple(left[each] for each in at)
    thread = Index.of("thread", words.threads)
    return slots, Movement(
        shape,
        count,
        tuple(words.numbers[n] for n in slots),
        thread // WARP % 4 * WARP + int(inside[0]),
        column_of,
    )


def _places(lane: Ints, column: Ints) -> Ints:
    """Return one number per lane and column, by thread and word."""
    return (column * (2 * LANES) + lane).reshape(-1, lane.shape[-1])


def _register_movements(
    own: BufferRegion, tile: TensorTile, words: Words
) -> Iterator[tuple[Movement, Registers, TensorMatrix]]:
    """Yield the instructions between two operands, with the elements and addresses of each."""
    pack = CELL // own.buffer.dtype.bits
    for each in movements(words, str(own)):
        numbers = tuple(n * pack + i for n in each.numbers for i in range(pack))
        place = TensorMatrix(tile.buffer.name, each.lane, tile.moved + each.column)
        yield each, Registers(own.buffer.name, numbers), place


@register_dispatch(
    "copy",
    "cuda",
    variant="tcgen05.ld",
    when=[
        predicate("loads", goes("tmem", "local")),
        has_tensor_memory,
        predicate("whole_warps", whole_warps),
    ],
)
def lower_load(context: Context) -> Lowered:
    """Lower a copy to registers to loads, and a wait that completes them."""
    own, memory = (context.call.operands[role] for role in ("dst", "src"))
    try:
        tile = tensor_tile(memory)
        part = uniform_holders(own, context.threads, "warp", context.flow.active)
        words = words_of(part, tile)
        ops: list[Op] = [
            TensorLoad(each.shape, each.count, into, place)
            for each, into, place in _register_movements(own, tile, words)
        ]
    except LayoutError as error:
        fail(str(error))
    complete = tuple(op.into for op in ops if isinstance(op, TensorLoad))
    ops.append(TensorWait("ld", complete))
    return Lowered(only(part.taking, ops, context.flow.active))


def _storing(part: Holders, tile: TensorTile) -> Holders:
    """Return the holders whose warps store: of those that reach one address, the first.

    Raises:
        DispatchFail: warps share some of the addresses that they store to, and not all.
    """
    words = words_of(part, tile)
    cells = (words.lane * COLUMNS + words.column).reshape(len(words.warps), -1)
    _, first = np.unique(cells, return_index=True)
    mine = np.isin(np.arange(cells.size), first).reshape(cells.shape)
    if (mine.any(axis=1) != mine.all(axis=1)).any():
        fail(f"warps hold copies of some of what they store of {part.region}, and not of all")
    taking = np.zeros(part.threads // WARP, dtype=bool)
    taking[words.warps[mine.any(axis=1)]] = True
    return replace(part, taking=part.taking & taking.repeat(WARP))


def _check_all_copies(own: BufferRegion, tile: TensorTile, words: Words) -> None:
    """Refuse a store that leaves a copy of an element unwritten.

    Raises:
        DispatchFail: it does.
    """
    reached = np.unique(words.lane * COLUMNS + words.column)
    wanted = np.unique(tile.lane * COLUMNS + tile.bit // CELL)
    missing = np.setdiff1d(wanted, reached)
    if missing.size:
        lane, column = divmod(int(missing[0]), COLUMNS)
        fail(
            f"{tile.buffer} has a copy in lane {lane}, column {column}, and no thread that reaches "
            f"this lane holds it in {own}"
        )


@register_dispatch(
    "copy",
    "cuda",
    variant="tcgen05.st",
    when=[
        predicate("stores", goes("local", "tmem")),
        has_tensor_memory,
        predicate("whole_warps", whole_warps),
    ],
)
def lower_store(context: Context) -> Lowered:
    """Lower a copy from registers to stores, and a wait that completes them."""
    own, memory = (context.call.operands[role] for role in ("src", "dst"))
    try:
        tile = tensor_tile(memory)
        part = _storing(uniform_holders(own, context.threads, "warp", context.flow.active), tile)
        words = words_of(part, tile)
        _check_all_copies(own, tile, words)
        ops: list[Op] = [
            TensorStore(each.shape, each.count, place, source)
            for each, source, place in _register_movements(own, tile, words)
        ]
    except LayoutError as error:
        fail(str(error))
    ops.append(TensorWait("st"))
    return Lowered(only(part.taking, ops, context.flow.active))


# -- rows of shared memory ------------------------------------------------------------------------


@register_dispatch(
    "copy",
    "cuda",
    variant="tcgen05.cp",
    when=[
        predicate("copies_rows", goes("shared", "tmem")),
        has_tensor_memory,
        predicate("started_by_one_thread", started_by_one_thread),
    ],
)
def lower_rows(context: Context) -> Lowered:
    """Lower a copy of rows to one ``tcgen05.cp`` for each column of units."""
    reasons = []
    for shape in COPIES:
        try:
            return Lowered(tuple(_row_copies(context, shape)))
        except LayoutError as error:
            reasons.append(f"{shape}: {error}")
    fail("; ".join(reasons))


def _row_copies(context: Context, shape: str) -> Iterator[TensorCopy]:
    """Yield the copies of one shape.

    Raises:
        LayoutError: it does not fill the destination, or no descriptor says the source.
    """
    call = context.call
    dst, src = call.operands["dst"], call.operands["src"]
    tile, bits = tensor_tile(dst), dst.buffer.dtype.bits
    rows, width = COPIES[shape]
    lane, bit = (each.reshape(-1, tile.lane.shape[2]) for each in ordered(tile.lane, tile.bit))
    groups = np.arange(LANES // rows)
    if (
        lane.shape[1] != len(groups)
        or ((lane != lane[:, :1] + rows * groups) | (bit != bit[:, :1])).any()
    ):
        raise LayoutError(
            f"{dst.buffer.layout} must have each element in {len(groups)} lanes, {rows} apart"
        )
    start, end = int(bit.min()) // CELL * CELL, int(bit.max()) + bits
    unit = width // bits
    count = -(-(end - start) // width)
    table = np.full((rows, count * unit), -1, dtype=np.int64)
    table[lane[:, 0], (bit[:, 0] - start) // bits] = np.arange(len(lane))
    if (table < 0).any():
        row, place = (int(v) for v in np.argwhere(table < 0)[0])
        raise LayoutError(
            f"it writes {rows} lanes of {width} bits; {dst} has nothing for lane {row}, column "
            f"{(start + place * bits) // CELL}"
        )
    linear, fields, moves = _source(src)
    places = linear.reshape(-1)[table]
    found = proved(fields, places, (rows, unit), f"{src} by lanes and columns")
    for at in range(count):
        address = moves + int(places[0, at * unit])
        source = SharedMatrix(src.buffer.name, address, found)
        into = tile.at(0, (start + at * width) // CELL)
        yield TensorCopy(shape, into, source, issuer=call.scope)


def _source(src: BufferRegion) -> tuple[Ints, Descriptor, Index]:
    """Return the source's unswizzled addresses, its descriptor's form, and its variable offset.

    Raises:
        LayoutError: it has no layout of its own.
    """
    layout, buffer = src.buffer.layout, src.buffer
    piece, moves = unswizzled(src)
    if piece is None:
        raise LayoutError(f"no layout says the region {src}")
    shape = tuple(int(extent) for extent in src.shape)
    fields = Descriptor(
        "K", swizzle_bytes(layout, buffer.dtype), 0, 0, buffer.dtype.bits, machine="tcgen05"
    )
    return linear_addresses(piece, shape), fields, moves
