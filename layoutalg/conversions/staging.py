"""Through shared memory: where each element lies, so that stores and loads are wide and apart.

Both sides are taken bit by bit: which bit of an element's flat index each bit of the slot, the lane
and the warp sets. A unit of 16 bytes holds what a thread stores or loads as a vector, or what four
lanes hold of a row of ``ldmatrix`` or ``stmatrix``; candidates for it come from either side. The
bits of the lanes that are served together then choose the banks. Where both sides do not fit into
the banks, bits of one are XORed with bits of the other: a swizzle.

Source: PTX ISA, ldmatrix, stmatrix; CUDA C++ Programming Guide, "Shared Memory".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import WARP, m, tx
from layoutalg.algebra.iters import Iter
from layoutalg.algebra.tables import IntArray
from layoutalg.conversions.linear_plan import Span
from layoutalg.conversions.recipe import Exchange, Moves
from layoutalg.layouts.swizzle import ComposeLayout
from layoutalg.layouts.tile_layout import Layout, TileLayout
from layoutalg.memory.access import LINE_BYTES, WORD_BYTES, phase_lanes

_UNIT = 128  # bits of the widest access, and of a row of an 8x8 matrix
_LANES = WARP.bit_length() - 1
_ROWS = 2  # lanes 4g .. 4g + 3 hold row g of a matrix: the bits of the lane from here on

Bits = tuple[int, ...]  # of a flat index, numbered; -1: none, the holders have copies


@dataclass(frozen=True)
class Side:
    """Which bit of an element's flat index each bit of the slot, the lane and the warp sets.

    Threads from ``start`` on hold them, in slots from the first one that any thread fills.
    """

    slots: Bits
    lanes: Bits
    warps: Bits
    start: int = 0

    @classmethod
    def of(cls, table: IntArray, shape: Sequence[int]) -> Side | None:
        """Read a table (threads, slots) of element numbers; None: it is no such map."""
        rows, columns = (np.flatnonzero((table >= 0).any(axis=axis)) for axis in (1, 0))
        start = int(rows[0])
        table = table[start : rows[-1] + 1, columns[0] : columns[-1] + 1]
        threads, slots = table.shape
        if any(n & (n - 1) for n in (threads, slots, *shape)) or (table < 0).any():
            return None
        of_slot = [int(table[0, 1 << i]) for i in range(slots.bit_length() - 1)]
        of_thread = [int(table[1 << i, 0]) for i in range(threads.bit_length() - 1)]
        bases = of_slot + of_thread
        if start % WARP or table[0, 0] or any(base & (base - 1) for base in bases):
            return None
        made = np.zeros((1, 1), dtype=np.int64)
        for base in of_slot:
            made = np.concatenate([made, made ^ base], axis=1)
        for base in of_thread:
            made = np.concatenate([made, made ^ base], axis=0)
        if not np.array_equal(made, table):
            return None
        found = tuple(base.bit_length() - 1 for base in bases)
        at = len(of_slot)
        return cls(found[:at], found[at : at + _LANES], found[at + _LANES :], start)

    @cached_property
    def registers(self) -> Bits:
        """The bits that slots of a thread set, without copies."""
        return tuple(bit for bit in self.slots if bit >= 0)

    def packed(self, word: Bits) -> Bits:
        """Return the bits that slots set where these are the first, without copies."""
        return (*word, *(bit for bit in self.registers if bit not in word))

    def layout(self, word: Bits) -> TileLayout | None:
        """Return the layout of the same threads, their slots so packed; None: they are."""
        order = self.packed(word)
        if order == self.slots:
            return None
        places = {bit: Iter(2, 1 << at, m) for at, bit in enumerate(order)}
        threads = [Iter(2, 1 << at, tx) for at in range(len(self.lanes + self.warps))]
        of_thread = list(zip(self.lanes + self.warps, threads, strict=True))
        places |= {bit: it for bit, it in of_thread if bit >= 0}
        shard = [places[bit] for bit in sorted(places, reverse=True)]
        copies = [it for bit, it in of_thread if bit < 0]
        return TileLayout.from_iters(shard, copies, {tx: self.start} if self.start else {})


@dataclass(frozen=True)
class _Form:
    """One way to access the staged tile from a side: by vectors, or by matrices."""

    moves: Moves
    word: Bits  # the bits of the elements of a 32-bit register, as it is stored or loaded
    together: Bits  # the bits by which the lanes of a phase differ


@dataclass(frozen=True)
class _Plan:
    """An order of the bits of the address, lowest first, and what its XORs cost."""

    order: Bits
    pairs: tuple[int, int, int]  # first position, how many, distance
    forms: tuple[_Form, _Form]

    def addresses(self) -> dict[int, int]:
        """Return what each bit of the flat index adds (XOR) to the address, in elements."""
        first, count, apart = self.pairs
        found = {bit: 1 << at for at, bit in enumerate(self.order)}
        for at in range(first, first + count):
            found[self.order[at + apart]] ^= 1 << at
        return found


def stage(held: IntArray, wanted: IntArray, shape: Sequence[int], bits: int) -> Exchange:
    """Return the exchange that takes the fewest wavefronts, then the fewest instructions.

    Args:
        held: (threads, slots): the element in each slot before; whole warps.
        wanted: the same after.
        shape: logical extents.
        bits: of an element.
    """
    warps = len(held) // WARP
    inside = all(
        np.isin(after[after >= 0], before).all()
        for before, after in zip(np.split(held, warps), np.split(wanted, warps), strict=True)
    )
    barrier: Literal["warp", "cta"] = "warp" if inside else "cta"
    before, after = Side.of(held, shape), Side.of(wanted, shape)
    plans = list(_plans(before, after, shape, bits)) if before and after else []
    if not plans or before is None or after is None:
        layout: Layout = TileLayout.from_iters(algebra.row_major(shape))
        stored, loaded = (_one_by_one(*each, bits) for each in (("st", held), ("ld", wanted)))
        return Exchange(layout, barrier, (stored, loaded))
    best = min(plans, key=_cost)
    stores, loads = best.forms
    return Exchange(
        _layout(best),
        barrier,
        (stores.moves, loads.moves),
        before.layout(stores.word),
        after.layout(loads.word),
    )


def _one_by_one(way: str, side: IntArray, bits: int) -> Moves:
    """Return the accesses of a side that takes its elements one at a time."""
    size = max(1, bits // 8)
    count = int((side >= 0).any(axis=0).sum())
    return Moves(f"{way}.shared.b{8 * size}", count, size, count * max(1, size // WORD_BYTES))


def _cost(plan: _Plan) -> tuple[float, int]:
    """Wavefronts and half of the other instructions; of equals, those that older machines have."""
    moves = [form.moves for form in plan.forms]
    total = sum(each.wavefronts + (each.count + each.permutes) / 2 for each in moves)
    return total, sum(("matrix" in each.name) + ("stmatrix" in each.name) for each in moves)


def _plans(before: Side, after: Side, shape: Sequence[int], bits: int) -> Iterator[_Plan]:
    count = int(np.prod(shape, dtype=np.int64)).bit_length() - 1
    for low in dict.fromkeys(_units(before, after, count, bits)):
        for stored, loaded in itertools.product(
            _forms(before, low, bits, "st"), _forms(after, low, bits, "ld")
        ):
            yield _arranged(low, (stored, loaded), count, bits)


def _units(before: Side, after: Side, count: int, bits: int) -> Iterator[Bits]:
    """Return the candidates for the lowest bits of the address: at most 16 bytes, in order."""
    most = min(count, (_UNIT // bits).bit_length() - 1)
    word = max(1, 32 // bits).bit_length() - 1
    for mine, other in ((before, after), (after, before)):
        common = [bit for bit in mine.registers if bit in other.registers]
        for n in range(min(most, len(common)) + 1):
            for first in itertools.permutations(common, min(n, word)):
                rest = [bit for bit in common if bit not in first][: n - len(first)]
                low = (*first, *rest)
                yield low
                for side in (mine, other):
                    more = [bit for bit in side.registers if bit not in low]
                    yield (*low, *more[: most - n])
        if bits <= 32 and most == (_UNIT // bits).bit_length() - 1:
            in_order = itertools.permutations(mine.registers, word)
            for first in in_order:
                yield (*first, *mine.lanes[:_ROWS])
        if bits == 16:
            yield mine.lanes[_ROWS:]


def _forms(side: Side, low: Bits, bits: int, way: str) -> Iterator[_Form]:
    """Return the ways in which a side can access units whose elements are these bits, in order."""
    if -1 in low:
        return
    registers = len(side.registers)
    word = max(1, 32 // bits).bit_length() - 1
    total = 1 << registers
    width = next((n for n, bit in enumerate(low) if bit not in side.registers), len(low))
    size = (bits << width) // 8
    if size:
        lanes = phase_lanes(size).bit_length() - 1
        name = f"{way}.shared.{_vector(size, bits)}"
        count = total >> width
        inner = low[: min(word, width)]
        words = -(-total * bits // 32)
        parts = way == "ld" and size < WORD_BYTES  # of words, which are put together
        packed = count - words if parts else _permutes(side, inner, word, words)
        moves = Moves(name, count, size, count * max(1, size // WORD_BYTES), packed)
        yield _Form(moves, inner, side.lanes[:lanes])
    words = total * bits // 32
    if not words or bits > 32 or total * bits % 32:
        return
    count = -(-words // 4)
    matrices = min(4, words)
    name = f"{way}matrix.x{matrices}"
    if len(side.lanes) < _LANES or (way == "st" and -1 in side.lanes):
        return  # whole warps take part; copies in a warp would be stored at once
    if len(low) == word + _ROWS and low[word:] == side.lanes[:_ROWS] and width >= word:
        packed = _permutes(side, low[:word], word, words)
        moves = Moves(name, count, matrices * WORD_BYTES, words, packed)
        yield _Form(moves, low[:word], side.lanes[_ROWS:])
    if bits == 16 and low == side.lanes[_ROWS:] and side.slots[0] >= 0:
        packed = _permutes(side, side.slots[:1], word, words)
        moves = Moves(f"{name}.trans", count, matrices * WORD_BYTES, words, packed)
        yield _Form(moves, side.slots[:1], (side.slots[0], *side.lanes[:_ROWS]))


def _vector(size: int, bits: int) -> str:
    """Return how PTX names a vector of so many bytes.

    >>> [_vector(*each) for each in ((1, 8), (4, 16), (16, 16), (16, 64))]
    ['b8', 'b32', 'v4.b32', 'v2.b64']
    """
    if size <= max(WORD_BYTES, bits // 8):
        return f"b{8 * size}"
    unit = max(32, bits)
    return f"v{8 * size // unit}.b{unit}"


def _permutes(side: Side, word: Bits, bits: int, words: int) -> int:
    """Return the prmt that pack the words of a side, whose slots come in another order.

    A word that takes elements of n registers takes n - 1. ``bits`` of the slot number the elements
    of a word.
    """
    packed = side.packed(word)[:bits]
    mine = side.slots[: len(packed)]
    return 0 if mine == packed else words * max(1, (1 << len({*packed} - {*mine})) - 1)


def _arranged(low: Bits, forms: tuple[_Form, _Form], count: int, bits: int) -> _Plan:
    """Give the other bits of the flat index their positions, and XOR those that need it."""
    line = max(0, (8 * LINE_BYTES // bits).bit_length() - 1 - len(low))  # positions of the banks
    stored, loaded = ([bit for bit in form.together if bit >= 0 and bit not in low]
                      for form in forms)  # fmt: skip
    both = [bit for bit in stored if bit in loaded]
    mine = [bit for bit in stored if bit not in both]
    other = [bit for bit in loaded if bit not in both]
    rest = [bit for bit in range(count) if bit not in (*low, *stored, *loaded)]
    pairs = min(len(mine), len(other), max(0, len(both) + len(mine) + len(other) - line))
    below = max(0, (WORD_BYTES * 8 // bits).bit_length() - 1 - len(low)) if pairs else 0
    inner = (both + rest)[:below]  # bits inside a word choose no bank
    order = [*low, *inner, *mine[:pairs]]
    order += [bit for bit in (*both, *mine[pairs:], *other[pairs:]) if bit not in inner]
    order += [bit for bit in rest if bit not in inner]
    room = len(low) + line
    order[room:room] = other[:pairs]
    at = len(low) + len(inner)
    apart = order.index(other[0]) - at if pairs else 0
    plan = _Plan(tuple(order), (at, pairs, apart), forms)
    moved = plan.addresses()
    return _Plan(plan.order, plan.pairs, (_served(stored, moved, forms[0], bits),
                                          _served(loaded, moved, forms[1], bits)))  # fmt: skip


def _served(together: Sequence[int], moved: dict[int, int], form: _Form, bits: int) -> _Form:
    """Count the wavefronts of a form: lanes of a phase meet in a bank."""
    words = [moved[bit] * bits // 32 for bit in together]
    banks = [word % (LINE_BYTES // WORD_BYTES) for word in words]
    conflict = len(Span(words)) - len(Span(banks))
    moves = form.moves
    return _Form(
        Moves(moves.name, moves.count, moves.size, moves.wavefronts << conflict, moves.permutes),
        form.word,
        form.together,
    )


def _layout(plan: _Plan) -> Layout:
    """Return the layout of the staged tile."""
    place = {bit: 1 << at for at, bit in enumerate(plan.order)}
    digits = [Iter(2, place[bit]) for bit in reversed(range(len(plan.order)))]
    tile = TileLayout.from_iters(digits).canonicalize()
    first, count, apart = plan.pairs
    return ComposeLayout(first, count, apart, tile) if count else tile
