"""How the work of a reduction is shared out: what each warp does alone, and what they exchange."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from layoutalg import Iter, TileLayout, m
from layoutalg.algebra.axis import WARP
from layoutalg.algebra.parts import moves
from layoutalg.layouts.thread_slots import THREADS_OF
from lowering.dispatch.addresses import region_tile
from lowering.ir.expressions import kept
from lowering.ir.tiles import BufferRegion


@dataclass(frozen=True)
class Shares:
    """A reduction in two steps: within each warp, then of the warps' partial results.

    ``shape`` is the tile's with each dimension that is reduced cut into digits. A warp reduces the
    digits ``inside``; those that are left, ``outside``, count the partial results of an element.

    Attributes:
        shape: of the tile, cut.
        inside: the dimensions of ``shape`` that registers and shuffles reduce.
        outside: those that go through shared memory; () where a warp has all of its elements.
        result: the layout of the result.
        partial: the layout of the partial results, in registers.
        scratch: their layout in shared memory, those of an element side by side.
        gathered: the layout in which each thread has all partial results of its elements.
    """

    shape: tuple[int, ...]
    inside: tuple[int, ...]
    outside: tuple[int, ...]
    result: TileLayout
    partial: TileLayout
    scratch: TileLayout
    gathered: TileLayout

    @property
    def partial_shape(self) -> tuple[int, ...]:
        """The extents of the partial results."""
        return kept(self.shape, self.inside)


def shares(region: BufferRegion, axes: Sequence[int]) -> Shares:
    """Return how the reduction of a register tile along some dimensions is shared out.

    Lane digits that are bits of the lane number, which no other digit uses, go by shuffles. Others
    go through shared memory, as warps do.

    Raises:
        LayoutError: no layout says the region, or it does not group by the shape.
        Undecided: that depends on a symbol.

    >>> from layoutalg import parse
    >>> from lowering.ir.tiles import Buffer
    >>> rows = parse("S[(8,4,4,2):(4@laneid,1@warpid,1@laneid,1)]")
    >>> s = Buffer("s", (8, 32), "float32", layout=rows)
    >>> found = shares(s.region(), (1,))
    >>> found.shape, found.inside, found.outside
    ((8, 4, 4, 2), (2, 3), (1,))
    >>> print(found.result)
    S[8:4@laneid] + R[(4,4):(1@warpid,1@laneid)]
    >>> print(found.scratch, found.gathered)
    S[32:1] S[(8,4):(4@laneid,1)] + R[(4,4):(1@laneid,1@warpid)]
    """
    layout = region_tile(region)
    extents = region.shape
    shape: list[int] = []
    inside: list[int] = []
    outside: list[int] = []
    grouped, seps = layout.group(extents)
    groups = [grouped.shard[a:b] for a, b in pairwise(seps)]
    taken = [_lanes(digit) for group in groups for it in group for digit in _digits(it)]
    taken += [_lanes(digit) for it in layout.copies for digit in _digits(it)]
    taken.append(_above(_first_thread(layout)))
    for dim, group in enumerate(groups):
        if dim not in axes:
            shape.append(int(extents[dim]))
            continue
        for it in group:
            for extent, step in _digits(it):
                lanes = _lanes((extent, step))
                alone = sum(bool(lanes & other) for other in taken) == 1
                whole = lanes == (extent - 1) * step
                (inside if step == 0 or (alone and whole) else outside).append(len(shape))
                shape.append(extent)
    result = layout.reduced(extents, axes)
    partial = layout.reduced(shape, inside) if inside else layout
    left = kept(shape, inside)
    scratch = _scratch(partial, left, outside)
    gathered = _gathered(partial, left, outside) if outside else result
    return Shares(
        tuple(shape), tuple(inside), tuple(outside), result, partial, scratch, gathered,
    )  # fmt: skip


def _scratch(partial: TileLayout, shape: tuple[int, ...], outside: list[int]) -> TileLayout:
    """Return a dense layout in memory: digits of registers, then of threads, then ``outside``.

    So threads of a warp store and load side by side, and load an element's results as one vector.
    """
    grouped, seps = partial.group(shape)
    digits = [(dim, it) for dim, (a, b) in enumerate(pairwise(seps)) for it in grouped.shard[a:b]]

    def slowness(at: int) -> tuple[int, int]:
        dim, it = digits[at]
        if dim in outside:
            return 0, -at
        step = _digits(it)[-1][1]
        return (1, step) if step else (2, int(it.stride))

    found, dense = [it for _, it in digits], 1
    for at in sorted(range(len(digits)), key=slowness):
        found[at] = Iter(found[at].extent, dense, m)
        dense *= int(found[at].extent)
    return TileLayout.from_iters(found).canonicalize()


def _gathered(partial: TileLayout, shape: tuple[int, ...], outside: list[int]) -> TileLayout:
    """Return a layout that has, in each thread, the elements along some dimensions in registers."""
    count = math.prod(shape[dim] for dim in outside)
    whole = partial.reduced(shape, outside)
    grouped, seps = whole.group(kept(shape, outside))
    shard: list[Iter] = []
    dense = count
    for dim, (a, b) in enumerate(pairwise(seps)):
        if dim in outside:
            dense //= shape[dim]
            shard.append(Iter(shape[dim], dense, m))
        else:
            own = grouped.shard[a:b]
            shard += [Iter(i.extent, i.stride * (count if i.axis is m else 1), i.axis) for i in own]
    return TileLayout.from_iters(shard, whole.replica, dict(whole.offset)).canonicalize()


def _first_thread(layout: TileLayout) -> int:
    """Return the thread at which a layout begins."""
    threads = [axis for axis in layout.offset if axis.thread]
    return sum(int(layout.offset[axis]) * THREADS_OF[axis] for axis in threads)


def _digits(it: Iter) -> list[tuple[int, int]]:
    """Return an iter as digits of the thread number: extent and step; the step is 0 in registers.

    One that counts lanes and warps is cut between them.

    >>> _digits(Iter(64, 2, "tx")), _digits(Iter(4, 1, "warpid")), _digits(Iter(4, 1))
    ([(4, 32), (16, 2)], [(4, 32)], [(4, 0)])
    """
    extent, step = int(it.extent), 0
    if it.axis.thread and moves(it):
        step = int(it.stride) * THREADS_OF[it.axis]
        inner = WARP // step if 0 < step < WARP and WARP % step == 0 else 1
        if inner > 1 and extent > inner and extent % inner == 0:
            return [(extent // inner, WARP), (inner, step)]
    return [(extent, step)]


def _lanes(digit: tuple[int, int]) -> int:
    """Return the bits of the lane number that a digit may change, as a mask.

    >>> bin(_lanes((4, 2))), bin(_lanes((3, 4))), _lanes((4, 32))
    ('0b110', '0b11100', 0)
    """
    extent, step = digit
    bits = (extent - 1) * step
    powers = step > 0 and extent & (extent - 1) == 0 and step & (step - 1) == 0
    return bits if powers and bits < WARP else _above(step)


def _above(number: int) -> int:
    """Return the bits of the lane number that adding a multiple of a number may change."""
    return (WARP - 1) & -(number & -number)
