"""The layout of a tile in shared memory between two distributed layouts.

Both sides move the widest vectors of elements that a thread holds before and after; the addresses
of the lanes of a phase lie in different banks on either side, by the order of the other digits and
a swizzle. It is row-major where bits of the element's number are no bits of threads and slots, and
where no thread keeps a byte together.

Source: PTX ISA, ld.shared and st.shared with vectors; :mod:`layoutalg.memory.access` for banks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from layoutalg.algebra.axis import WARP, m, tx
from layoutalg.algebra.iters import Iter, row_major
from layoutalg.algebra.tables import IntArray
from layoutalg.layouts.swizzle import ComposeLayout
from layoutalg.layouts.tile_layout import Layout, TileLayout
from layoutalg.memory.access import Access, phase_lanes
from layoutalg.memory.swizzle_search import choose_swizzle

WIDEST = 128  # bits of an access
BYTE = 8


@dataclass(frozen=True)
class Staging:
    """How a tile goes through shared memory.

    Attributes:
        layout: of the tile in memory.
        before: a layout over the same threads in which the source is stored, its vectors in
            neighbouring slots; None: as it is.
        after: likewise, in which the destination is loaded.
        wavefronts: of all stores and of all loads; None where they are not counted.
        accesses: stores and loads per thread; None likewise.
    """

    layout: Layout
    before: TileLayout | None = None
    after: TileLayout | None = None
    wavefronts: tuple[int, ...] | None = None
    accesses: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Side:
    """One side: per bit of an element's number the slots that it steps over, or the threads.

    ``table``: the element in each slot of each thread, the first holder's alone where it stores.
    """

    table: IntArray
    slots: tuple[int, ...]
    threads: tuple[int, ...]

    @classmethod
    def of(cls, table: IntArray, count: int, stores: bool) -> Side | None:
        """Return the side of a table; None where bits are no bits of threads and slots."""
        thread, slot = np.nonzero(table >= 0)
        element = table[thread, slot]
        _, first = np.unique(element, return_index=True)
        if len(first) != count or count & (count - 1):
            return None
        thread, slot = thread[first], slot[first]
        bits = range(count.bit_length() - 1)
        slots = tuple(int(slot[1 << bit] - slot[0]) for bit in bits)
        threads = tuple(int(thread[1 << bit] - thread[0]) for bit in bits)
        number = np.arange(count)
        for found, steps in ((slot, slots), (thread, threads)):
            total = found[0] + sum((number >> bit & 1) * step for bit, step in enumerate(steps))
            if (found != total).any():
                return None
        if any(bool(s) == bool(t) or s < 0 or t & (t - 1) or t < 0
               for s, t in zip(slots, threads, strict=True)):  # fmt: skip
            return None
        if stores:
            table = np.full_like(table, -1)
            table[thread, slot] = number
        return cls(table, slots, threads)

    def lanes(self, count: int) -> list[int]:
        """Return the bits that move within the first ``count`` lanes."""
        return [bit for bit, step in enumerate(self.threads) if 0 < step < count]

    def packed(self, order: Sequence[int]) -> TileLayout:
        """Return the layout of the same threads whose slots follow an order of the bits."""
        own = [bit for bit in order if self.slots[bit]]
        iters = []
        for bit in reversed(range(len(self.slots))):
            if self.slots[bit]:
                iters.append(Iter(2, 1 << own.index(bit), m))
            else:
                iters.append(Iter(2, self.threads[bit], tx))
        start = int(np.nonzero((self.table >= 0).any(axis=1))[0][0])
        return TileLayout.from_iters(iters, (), {tx: start} if start else {})

    def vector(self, order: Sequence[int], bits: int) -> list[int]:
        """Return the bits of one access, where memory has the bits in this order."""
        found: list[int] = []
        for bit in order:
            if not self.slots[bit] or bits << len(found) >= WIDEST:
                break
            found.append(bit)
        return found

    def in_order(self, order: Sequence[int], bits: int) -> bool:
        """Say whether the elements of an access fill words in order already."""
        vector = self.vector(order, bits)[: max(1, 32 // bits).bit_length() - 1]
        return [self.slots[bit] for bit in vector] == [1 << at for at in range(len(vector))]

    def access(self, order: Sequence[int], bits: int, name: str) -> Access:
        """Return the accesses of the tile in memory, its bits in this order from the lowest on."""
        vector = self.vector(order, bits)
        place = np.zeros(1 << len(order), dtype=np.int64)
        number = np.arange(len(place))
        for at, bit in enumerate(order):
            place |= (number >> bit & 1) << at
        rest = [bit for bit, step in enumerate(self.slots) if step and bit not in vector]
        lanes = self.table.max(axis=1)
        threads = np.flatnonzero(lanes >= 0)
        own = sum(1 << bit for bit, step in enumerate(self.slots) if step)
        coords = np.full((len(self.table), 1 << len(rest), 1 << len(vector), 2), -1)
        base = self.table[threads].max(axis=1) & ~own
        for g in range(1 << len(rest)):
            for v in range(1 << len(vector)):
                extra = sum(1 << b for i, b in enumerate(rest) if g >> i & 1)
                extra |= sum(1 << b for i, b in enumerate(vector) if v >> i & 1)
                coords[threads, g, v, 0] = 0
                coords[threads, g, v, 1] = place[base | extra]
        warps = coords.reshape(-1, WARP, *coords.shape[1:]).transpose(0, 2, 1, 3, 4)
        return Access(name, warps.reshape(-1, WARP, *coords.shape[2:]))


def staging(
    held: IntArray, wanted: IntArray, shape: Sequence[int], bits: int, repacked: bool = True
) -> Staging:
    """Return how a tile goes through shared memory with the fewest wavefronts, then accesses.

    Args:
        held: the element in each slot of each thread before, (threads, slots); -1: none.
        wanted: likewise after.
        shape: logical extents.
        bits: of an element.
        repacked: whether narrow elements may change slots before and after.

    >>> lanes, slots = np.divmod(np.arange(128).reshape(32, 4), 4)
    >>> found = staging(slots * 32 + lanes, lanes * 4 + slots, (128,), 32)
    >>> found.wavefronts, found.accesses
    ((4, 4), (4, 1))
    """
    count = int(np.prod(shape))
    sides = [Side.of(held, count, True), Side.of(wanted, count, False)]
    plain = Staging(TileLayout.from_iters(row_major(tuple(shape))))
    if sides[0] is None or sides[1] is None:
        return plain
    src, dst = sides[0], sides[1]
    found: list[tuple[tuple[int, int], Staging]] = []
    for order in dict.fromkeys(_orders(src, dst, bits)):
        moved = [None if side.in_order(order, bits) else side.packed(order) for side in (src, dst)]
        if any(moved) and not repacked:
            continue
        accesses = [
            side.access(order, bits, name)
            for side, name in ((src, "st.shared"), (dst, "ld.shared"))
        ]
        if any(access.count * bits < BYTE for access in accesses):
            continue
        choice = choose_swizzle((1, count), bits, None, accesses)
        tile = TileLayout.from_iters(
            [Iter(2, 1 << order.index(bit), m) for bit in reversed(range(len(order)))]
            or [Iter(1, 1, m)]
        ).canonicalize()
        best = choice.best.swizzle
        layout: Layout = tile
        if best.swizzle_len:
            layout = ComposeLayout(best.per_element, best.swizzle_len, best.atom_len, tile)
        times = tuple(len(access.coords) * WARP // len(held) for access in accesses)
        made = Staging(layout, moved[0], moved[1], choice.best.wavefronts, times)
        found.append(((choice.best.total, sum(times)), made))
    return min(found, key=lambda each: each[0])[1] if found else plain


def _orders(src: Side, dst: Side, bits: int) -> Iterator[tuple[int, ...]]:
    """Yield orders of the bits in memory: vectors, then what tells the lanes of a phase apart."""
    every = range(len(src.slots))
    both = [bit for bit in every if src.slots[bit] and dst.slots[bit]]
    most = (WIDEST // bits).bit_length() - 1
    for first, second in ((src, dst), (dst, src)):
        shared = sorted(both, key=lambda bit: first.slots[bit])
        own = [bit for bit in every if first.slots[bit] and bit not in both]
        for vector in (shared, shared + sorted(own, key=lambda bit: first.slots[bit])):
            vector = vector[:most]
            size = max(1, bits << len(vector) >> 3)
            near, far = (
                [bit for bit in side.lanes(phase_lanes(size)) if bit not in vector]
                for side in (first, second)
            )
            alike = [bit for bit in near if bit in far]
            order = vector + [bit for bit in near if bit not in alike] + alike
            order += [bit for bit in far if bit not in order]
            yield (*order, *(bit for bit in every if bit not in order))
