"""Tiles and direct sums of two layouts; :mod:`layoutalg.algebra.untiling` is the way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.algebra.parts import (
    HasParts,
    Parts,
    add_offsets,
    canonicalize,
    fault_of,
    has_canonical,
    moves,
    stands,
)
from layoutalg.algebra.scope import Target
from layoutalg.errors import LayoutError
from layoutalg.sizes.size import Size, as_size, decide, divides, equal, less, quotient

# per axis of a tile: what scales the strides of the shard, and of the replica, of its copies
Units = tuple[Mapping[Axis, Size], Mapping[Axis, Size]]


def scaled(iters: Iters, scale: Mapping[Axis, Size]) -> Iters:
    """Multiply each stride by the scale of its axis (1 where there is none).

    >>> scaled((Iter(8, 4), Iter(4, 1, "laneid")), {Axis.get("m"): 10})
    (Iter(8, 40, 'm'), Iter(4, 1, 'laneid'))
    """
    if not scale or not iters:
        return iters
    return tuple(
        [
            Iter(it.extent, it.stride * scale[it.axis], it.axis) if it.axis in scale else it
            for it in iters
        ]
    )


def unscaled(iters: Iters, scale: Mapping[Axis, Size]) -> Iters | None:
    """Divide each stride by the scale of its axis; None where a stride does not divide.

    Raises:
        Undecided: that depends on a symbol.

    >>> unscaled((Iter(8, 40),), {Axis.get("m"): 10}), unscaled((Iter(8, 4),), {Axis.get("m"): 10})
    ((Iter(8, 4, 'm'),), None)
    """
    out = []
    for it in iters:
        unit = scale.get(it.axis, 1)
        if unit == 1 or it.extent == 1:
            out.append(it)
            continue
        if unit == 0:
            return None
        question = "is_tile_inner: does the span {} divide the stride {}"
        fits = divides(unit, it.stride)
        if not decide(fits, question, "substitute the symbols", unit, it.stride):
            return None
        out.append(Iter(it.extent, quotient(it.stride, unit), it.axis))
    return tuple(out)


def same_iters(left: Iters, right: Iters, what: str) -> bool:
    """Say whether two runs of iters are the same map, digit by digit (unit strides are free).

    Raises:
        Undecided: that depends on a symbol.

    >>> same_iters((Iter(1, 7), Iter(4, 1)), (Iter(1, 3), Iter(4, 1)), "is_tile_inner")
    True
    """
    if len(left) != len(right):
        return False
    moving = [(a, b) for a, b in zip(left, right, strict=True) if not a.extent == b.extent == 1]
    if any(a.axis is not b.axis for a, b in moving):
        return False
    answers = [
        equal(x, y) for a, b in moving for x, y in ((a.extent, b.extent), (a.stride, b.stride))
    ]
    if False in answers:
        return False
    known = None if None in answers else True
    question = "{}: are {} the same as {}"
    return decide(known, question, "substitute the symbols", what, list(left), list(right))


def remove_each(iters: Iters, gone: Iters) -> Iters | None:
    """Take each iter of ``gone`` out of ``iters`` once; None where one is missing that moves.

    >>> remove_each((Iter(2, 8), Iter(4, 1)), (Iter(2, 8), Iter(1, 5)))
    (Iter(4, 1, 'm'),)
    """
    left = list(iters)
    for it in gone:
        if it in left:
            left.remove(it)
        elif moves(it):
            return None
    return tuple(left)


class Operand(NamedTuple):
    """One operand of a tile or a direct sum: a layout, its logical shape, its name in messages.

    >>> Operand(Parts((Iter(8, 1),), (), {}), (2, 4), "tile: outer").shape
    (2, 4)
    """

    layout: HasParts
    shape: Sequence[Size]
    what: str  # "tile: outer"
    as_it_stands: bool = False  # on no thread axis, with one iter for each dimension of the shape

    def canonical(self, target: Target) -> HasParts:
        """Return the canonical layout; a ``TileLayout`` remembers its own.

        >>> print(Operand(Parts((Iter(8, 4), Iter(4, 1)), (), {}), (32,), "tile").canonical(None))
        S[32:1]
        """
        known: Callable[[Target], HasParts] | None = getattr(self.layout, "canonicalize", None)
        return canonicalize(self.layout, target) if known is None else known(target)

    def dims(self, iters: Iters) -> list[Iters]:
        """Return the iters of each dimension of the shape.

        Raises:
            LayoutError: the shape does not group them.

        >>> Operand(Parts((), (), {}), (2, 4), "tile: outer").dims((Iter(8, 1),))
        [(Iter(2, 4, 'm'),), (Iter(4, 1, 'm'),)]
        """
        pieces, seps = algebra.group(iters, self.shape, self.layout, self.what)
        return [pieces[start:end] for start, end in pairwise(seps)]

    def cut(self, target: Target) -> tuple[HasParts, Iters, Sequence[int]]:
        """Return the layout in its canonical axes, its iters cut by the shape, and the separators.

        Neighbours that the shape would cut again are not fused before.

        Raises:
            LayoutError: the shape does not group the layout, or its axes do not fit together.

        >>> Operand(Parts((Iter(4, 2), Iter(2, 1)), (), {}), (4, 2), "slice").cut(None)[1:]
        ((Iter(4, 2, 'm'), Iter(2, 1, 'm')), (0, 1, 2))
        """
        own = self.layout
        if self.as_it_stands:
            return own, own.shard, range(len(self.shape) + 1)
        if target is None and stands(own):
            found = algebra.cut(own.shard, self.shape)
            if not isinstance(found, algebra.Uncut):
                return own, *found
        own = self.canonical(target)
        return own, *algebra.group(own.shard, self.shape, self.layout, self.what)


def tile_scale(inner: HasParts) -> dict[Axis, Size]:
    """Return the span of a canonical tile on each axis of its shard: the unit of its copies.

    A tile of one element keeps a unit iter, whose axis counts: so TVM has it.

    Raises:
        Undecided: symbols leave open whether the tile has more than one element along an axis.

    >>> tile_scale(Parts((Iter(8, 5), Iter(4, 1)), (), {}))
    {m: 39}
    """
    scale: dict[Axis, Any] = {}
    concrete = True
    for it in inner.shard:
        extent, axis = it.extent, it.axis
        concrete = concrete and type(extent) is int
        scale[axis] = scale.get(axis, 1) + (extent - 1) * it.stride
    for it in inner.replica:
        if it.axis in scale:
            scale[it.axis] += (it.extent - 1) * it.stride
    for axis, value in inner.offset.items():
        if axis in scale:
            scale[axis] += value
    for axis, value in scale.items():
        if type(value) is not int:
            scale[axis] = as_size(value)
    if len(scale) > 1 and not concrete:
        for axis in scale:
            _check_moved(inner, axis)
    return scale


def _check_moved(inner: HasParts, axis: Axis) -> None:
    """Refuse a tile whose scale on an axis depends on whether a symbolic extent is 1.

    Raises:
        Undecided: each extent on the axis may be 1, and replicas or an offset make the span.
    """
    own = [it.extent for it in inner.shard if it.axis is axis]
    repeated = axis in inner.offset or any(it.axis is axis and moves(it) for it in inner.replica)
    if repeated and not any(less(1, extent) for extent in own):
        decide(
            None,
            f"tile: has {inner} more than one element along {axis}",
            f"substitute the symbols, or write {own[0]} as a multiple, 2*k",
        )


def in_tiles(inner: HasParts, outer: HasParts) -> Units:
    """Return the scales of a tile: shard and replica of ``outer`` count whole inner tiles.

    Raises:
        LayoutError: a span is not positive (the tile reaches below zero), so that copies would not
            be told apart.

    >>> in_tiles(Parts((Iter(4, 1),), (), {}), Parts((Iter(2, 1),), (Iter(2, 2),), {}))
    ({m: 4}, {m: 4})
    """
    scale = tile_scale(inner)
    for it in outer.shard + outer.replica:
        if it.axis in scale and it.extent != 1 and less(scale[it.axis], 1):
            raise LayoutError(
                f"tile: the tile must have a positive span on each axis that moves it; on axis "
                f"{it.axis} {inner} has span {scale[it.axis]}: shift it to start at 0"
            )
    return scale, scale


def as_written(inner: HasParts, outer: HasParts) -> Units:
    """Return the scales of a direct sum: none.

    >>> as_written(Parts((Iter(4, 1),), (), {}), Parts((Iter(2, 1),), (), {}))
    ({}, {})
    """
    return {}, {}


def woven(
    inner: Operand,
    outer: Operand,
    target: Target,
    units: Callable[[HasParts, HasParts], Units],
) -> Parts:
    """Interleave ``outer``, scaled, and ``inner`` per dimension; add replicas and offsets.

    Under CUDA both are taken in their fused axes, as TVM does; where those do not fit together
    (warps over threads, for instance), in the axes in which they are written.

    >>> left = Operand(Parts((Iter(2, 8),), (), {}), (2,), "direct_sum: left")
    >>> right = Operand(Parts((Iter(8, 1),), (), {}), (8,), "direct_sum: right")
    >>> print(woven(right, left, None, as_written))
    S[(2,8):(8,1)]
    """

    def arranged(fusing: Target) -> Parts:
        tile, under, below = inner.cut(fusing)
        copies, over, above = outer.cut(fusing)
        of_shard, of_replica = units(tile, copies)
        over = scaled(over, of_shard)
        shard: list[Iter] = []
        for dim in range(len(inner.shape)):
            shard += over[above[dim] : above[dim + 1]]
            shard += under[below[dim] : below[dim + 1]]
        replica = tile.replica + scaled(copies.replica, of_replica)
        return Parts(tuple(shard), replica, add_offsets(tile.offset, copies.offset))

    result = arranged(target)
    if target is not None and not has_canonical(result):
        result = arranged(None)
    return result


def _canonical_woven(result: Parts, inner: Operand, outer: Operand, target: Target) -> HasParts:
    """Return the canonical form of two layouts put together; refuse axes that do not fit.

    Raises:
        LayoutError: the thread axes of the two conflict or leave a gap.
    """
    try:
        return canonicalize(result, target)
    except LayoutError:
        raise LayoutError(
            f"{inner.what.split(':')[0]}: the axes of {outer.layout} and {inner.layout} must fit "
            f"together; {fault_of(result)}"
        ) from None


def tile(inner: Operand, outer: Operand, target: Target) -> HasParts:
    """Arrange copies of ``inner`` as ``outer`` says: see ``TileLayout.tile``."""
    return _canonical_woven(woven(inner, outer, target, in_tiles), inner, outer, target)


def direct_sum(left: Operand, right: Operand, target: Target) -> HasParts:
    """Interleave two layouts and add what they say: see ``TileLayout.direct_sum``."""
    total = woven(right, left, target, as_written)
    return _canonical_woven(total, right, left, target)
