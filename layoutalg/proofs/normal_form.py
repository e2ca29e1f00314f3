"""The normal form of a map, on which proofs rest, and the enumeration of a small one.

A layout is the map ``x -> {shard(x) + offset + replica digits}``. In normal form the shard is
canonical, the replica of each axis is a set that starts at zero, and the origin is the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis, m
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.algebra.parts import HasParts, Parts, check_sizes, symbols, total_size
from layoutalg.algebra.tables import IntArray, steps
from layoutalg.proofs.verdict import Place
from layoutalg.sizes import size as sizes
from layoutalg.sizes.budget import COMPARED, LISTED
from layoutalg.sizes.size import (
    Size,
    decide,
    divides,
    equal,
    less,
    product,
    quotient,
)


@dataclass(frozen=True)
class Normal:
    """A map in normal form: two maps are equal exactly where these three parts are.

    ``shard`` is canonical and has its strides of zero on axis m; ``origin`` is the offset plus the
    lowest replica; ``replica`` holds, per axis, ascending positive strides.
    """

    shard: Iters
    origin: Mapping[Axis, Size]
    replica: Mapping[Axis, Iters]

    def __str__(self) -> str:
        """Return the form in the notation of layouts."""
        copies = tuple(it for iters in self.replica.values() for it in iters)
        kept = {axis: value for axis, value in self.origin.items() if value != 0}
        return str(Parts(self.shard, copies, kept))


def normal(parts: HasParts) -> Normal:
    """Return the normal form.

    The canonical shard is unique: the innermost extent is where the map first leaves a straight
    line, so the map determines it, and by induction every digit.

    >>> print(normal(Parts((Iter(4, 8), Iter(1, 5), Iter(8, 1)), (Iter(2, -32), Iter(9, 0)), {})))
    S[32:1] + R[2:32] + (-32)
    """
    kept = tuple(
        Iter(it.extent, 0, m) if equal(it.stride, 0) else it for it in parts.shard if it.extent != 1
    )
    origin: dict[Axis, Any] = dict(parts.offset)
    replica: dict[Axis, list[Iter]] = {}
    for it in parts.replica:
        if it.extent == 1 or equal(it.stride, 0):
            continue
        stride: Any = it.stride
        if below_zero(stride):
            origin[it.axis] = origin.get(it.axis, 0) + (it.extent - 1) * stride
            stride = -stride
        replica.setdefault(it.axis, []).append(Iter(it.extent, stride, it.axis))
    return Normal(algebra.fuse(kept), origin, {a: merged(its) for a, its in replica.items()})


def merged(copies: Sequence[Iter]) -> Iters:
    """Merge replica digits of an axis as sets: ``{n:s} + {e:k*s} = {n + (e-1)k : s}``, k <= n.

    >>> merged([Iter(2, 1), Iter(2, 2)]), merged([Iter(2, 3), Iter(2, 2)])
    ((Iter(4, 1, 'm'),), (Iter(2, 2, 'm'), Iter(2, 3, 'm')))
    """
    ordered = ascending(copies)
    if ordered is None:
        return tuple(sorted(copies, key=str))
    kept: list[Iter] = []
    for it in ordered:
        for index, small in enumerate(kept):
            if divides(small.stride, it.stride):
                times: Any = quotient(it.stride, small.stride)
                if less(small.extent, times) is False:
                    longer: Any = small.extent + (it.extent - 1) * times
                    kept[index] = Iter(longer, small.stride, small.axis)
                    break
        else:
            kept.append(it)
    return tuple(kept)


def below_zero(stride: Size) -> bool:
    """Say whether a stride is negative.

    Raises:
        Undecided: its symbols leave that open.
    """
    return decide(
        less(stride, 0), "is the stride {} below 0", "make it positive or substitute", stride
    )


def length(stride: Any) -> Any:
    """Return the stride without its sign.

    >>> length(-4)
    4
    """
    return -stride if below_zero(stride) else stride


def ascending(digits: Sequence[Any]) -> list[Any] | None:
    """Sort by the magnitude of the stride; None where symbols leave the order open.

    >>> ascending([Iter(2, -4), Iter(2, 1)])
    [Iter(2, 1, 'm'), Iter(2, -4, 'm')]
    """
    order = sizes.ascending([length(digit.stride) for digit in digits])
    return None if order is None else [digits[index] for index in order]


def weights(shard: Iters) -> list[Size]:
    """Return the weight of each digit in the flat index.

    >>> weights((Iter(2, 9), Iter(8, 1), Iter(4, 5)))
    [32, 4, 1]
    """
    found: list[Any] = []
    weight: Any = 1
    for it in reversed(shard):
        found.append(weight)
        weight = weight * it.extent
    return found[::-1]


def value_at(shard: Iters, origin: Mapping[Axis, Any], x: Size) -> dict[Axis, Any]:
    """Return the machine coordinate of the flat index x under a shard and an origin.

    >>> value_at((Iter(2, 9), Iter(8, 1)), {m: 100}, 11)
    {m: 112}
    """
    value = dict(origin)
    for it, digit in zip(shard, algebra.split(x, algebra.extents(shard)), strict=True):
        value[it.axis] = value.get(it.axis, 0) + digit * it.stride
    return value


def place_of(value: Mapping[Axis, Any]) -> Place:
    """Return a machine coordinate as pairs (axis name, value), thread axes first."""
    ordered = sorted(value, key=lambda axis: axis.memory)
    return tuple((axis.name, value[axis]) for axis in ordered)


def coordinate(x: Size, shape: Sequence[Size] | None) -> tuple[Size, ...]:
    """Return the coordinate of a flat index over a shape; the index itself without one.

    >>> coordinate(13, (4, 8)), coordinate(13, None)
    ((1, 5), (13,))
    """
    return (x,) if shape is None else tuple(algebra.split(x, shape))


def check_shape(what: str, parts: HasParts, shape: Sequence[Size] | None) -> None:
    """Refuse a shape that holds another number of elements than the layout.

    Raises:
        LayoutError: the sizes differ.
    """
    if shape is not None and equal(product(shape), total_size(parts)) is False:
        check_sizes(parts, shape, what)


def symbols_of(*layouts: HasParts) -> list[str]:
    """Return the names of the symbols in layouts.

    >>> symbols_of(Parts((Iter(8, 1),), (), {}))
    []
    """
    return sorted({name for parts in layouts for name in symbols(parts)})


def axes_of(*layouts: HasParts) -> list[Axis]:
    """Return the axes of layouts, thread axes first."""
    found = {it.axis: None for parts in layouts for it in parts.shard + parts.replica}
    found.update({axis: None for parts in layouts for axis in parts.offset})
    return sorted(found, key=lambda axis: (axis.memory, axis.name))


def is_small(*layouts: HasParts) -> bool:
    """Say whether layouts are concrete and small enough to enumerate."""
    if symbols_of(*layouts):
        return False
    for parts in layouts:
        both = parts.shard + parts.replica
        places: Any = 1
        for it in both:
            places = places * it.extent
            if places > COMPARED:
                return False
        far: list[Any] = [abs(v) for pair in algebra.reach(both).values() for v in pair]
        far += [abs(v) for v in parts.offset.values()]
        if any(v >= 1 << 60 for v in far):
            return False
    return True


def bases(parts: HasParts, axes: Sequence[Axis]) -> IntArray:
    """Return the lowest coordinate of each element of a concrete layout, a column per axis."""
    low: dict[Axis, Any] = {}
    for it in parts.replica:
        low[it.axis] = low.get(it.axis, 0) + min(0, (it.extent - 1) * it.stride)
    table = np.zeros((int(total_size(parts)), len(axes)), dtype=np.int64)
    for column, axis in enumerate(axes):
        start = int(parts.offset.get(axis, 0)) + low.get(axis, 0)
        table[:, column] = steps(parts.shard, axis, start)
    return table


def copies_of(parts: HasParts, axes: Sequence[Axis]) -> IntArray:
    """Return the distinct replica steps of a concrete layout, from the lowest."""
    grid = bases(Parts(parts.replica, (), {}), axes)
    return np.unique(grid - grid.min(axis=0, initial=0), axis=0)


def every_place(parts: HasParts, x: Size) -> tuple[Place, ...] | None:
    """Return the machine coordinates of an element, base first; None if too many to list.

    >>> every_place(Parts((Iter(4, 1),), (Iter(2, 8),), {}), 3)
    ((('m', 3),), (('m', 11),))
    """
    count = product(it.extent for it in parts.replica)
    if type(count) is not int or count > LISTED:
        return None
    base = value_at(parts.shard, parts.offset, x)
    found: dict[Place, None] = {}
    for digits in itertools.product(*(range(int(it.extent)) for it in parts.replica)):
        place = dict(base)
        for digit, it in zip(digits, parts.replica, strict=True):
            place[it.axis] = place.get(it.axis, 0) + digit * it.stride
        found[place_of(place)] = None
    return tuple(found)
