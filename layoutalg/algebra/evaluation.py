"""Evaluation: from a logical coordinate to digits, and from digits to machine coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.iters import Iters
from layoutalg.algebra.parts import HasParts, check_sizes, total_size
from layoutalg.algebra.tables import check_concrete
from layoutalg.errors import LayoutError, Undecided
from layoutalg.sizes.arguments import as_coordinate, check_arrays, check_range
from layoutalg.sizes.budget import OWNERS, check_budget
from layoutalg.sizes.size import Size, as_shape, product, tidy


class Reader(NamedTuple):
    """How a coordinate is read: one group of iters per index, or all iters for the flat index.

    ``digits`` splits each index row-major over the extents of its group; where the layout does not
    group by the shape, ``flat_shape`` says how to flatten the coordinate first.

    >>> from layoutalg import parse
    >>> reader(parse("S[(8,4):(4@laneid,1)]"), (0, 0), (8, 4), "apply").limits
    (8, 4)
    """

    owner: HasParts
    what: str  # the operation, for messages
    entry: str  # what one entry of a coordinate is, for messages
    limits: tuple[Size, ...]
    groups: tuple[Iters, ...]
    flat_shape: tuple[Size, ...] | None
    start: dict[str, Any]  # the offset, 0 on the other axes, in the order of the answer

    @property
    def iters(self) -> Iters:
        """The iters that the digits belong to."""
        return tuple(it for group in self.groups for it in group)

    def digits(self, coord: Sequence[Any]) -> list[Any]:
        """Return one digit per iter: ints, arrays or expressions."""
        values = [as_coordinate(value, f"{self.what}: coordinate") for value in coord]
        if any(getattr(value, "ndim", 0) for value in values):
            check_concrete(self.owner, self.what)
            check_arrays(values, self.what)
        for at, (value, limit) in enumerate(zip(values, self.limits, strict=True)):
            check_range(value, limit, f"{self.what}: {self.entry.format('{}', at)}", self.owner)
        if self.flat_shape is not None:
            values = [algebra.flatten(values, self.flat_shape)]
        return [
            digit
            for value, group in zip(values, self.groups, strict=True)
            for digit in algebra.split(value, algebra.extents(group))
        ]

    def apply(self, coord: Sequence[Any]) -> dict[str, Any]:
        """Return the base machine coordinate: ``sum digit * stride + offset`` per axis."""
        values = self.start.copy()
        for it, digit in zip(self.iters, self.digits(coord), strict=True):
            values[it.axis.name] = values[it.axis.name] + digit * it.stride
        return {name: tidy(value) for name, value in values.items()}


def reader(parts: HasParts, coord: Sequence[Any], shape: Sequence[Any] | None, what: str) -> Reader:
    """Return how ``coord`` is read over ``shape``; without a shape, flat or digit by digit."""
    shard = parts.shard
    radix = algebra.extents(shard)
    extents = None if shape is None else as_shape(shape, what)
    groups: tuple[Iters, ...] = (shard,)
    flat_shape = None
    if extents is None and len(coord) == len(radix):
        entry, limits, groups = "digit {} of iter {}", radix, tuple((it,) for it in shard)
    elif extents is None and len(coord) == 1:
        entry, limits = "flat index {}", (total_size(parts),)
    elif extents is None:
        raise LayoutError(
            f"{what}: without a shape give one flat index or one digit per iter; {parts} has "
            f"{len(radix)} iters, got {len(coord)} coordinates"
        )
    elif len(coord) != len(extents):
        raise LayoutError(
            f"{what}: give one coordinate per dimension of the shape {tuple(extents)}; "
            f"got {len(coord)}"
        )
    else:
        entry, limits = "coordinate {} of dimension {}", extents
        grouped = algebra.cut(shard, extents)
        if isinstance(grouped, algebra.Uncut):
            check_sizes(parts, extents, what)
            flat_shape = extents
        else:
            iters, seps = grouped
            groups = tuple(iters[start:end] for start, end in pairwise(seps))
    start: dict[str, Any] = dict.fromkeys((it.axis.name for g in groups for it in g), 0)
    for axis, value in parts.offset.items():
        start[axis.name] = value
    return Reader(parts, what, entry, limits, groups, flat_shape, start)


def at_ints(
    parts: HasParts, coord: Sequence[Any], shape: Sequence[Any] | None
) -> dict[str, Any] | None:
    """Return the machine coordinate of ints in range, fast; None if it takes a :class:`Reader`.

    A shape only names the flat index, whether it cuts the iters or not.

    >>> from layoutalg import parse
    >>> layout = parse("S[(8,4):(4@laneid,1)] + 7")
    >>> at_ints(layout, (13,), None), at_ints(layout, (3, 1), (8, 4)), at_ints(layout, (32,), None)
    ({'laneid': 12, 'm': 8}, {'laneid': 12, 'm': 8}, None)
    """
    shard = parts.shard
    index, size = 0, None
    if shape is None and len(coord) == 1:
        index = coord[0]
        if type(index) is not int:
            return None
    else:
        over = [it.extent for it in shard] if shape is None else shape
        if not isinstance(over, tuple | list) or len(over) != len(coord):
            return None
        size = 1
        for value, extent in zip(coord, over, strict=True):
            if type(value) is not int or type(extent) is not int or not 0 <= value < extent:
                return None
            index = index * extent + value
            size *= extent
    values: dict[str, Any] = {it.axis.name: 0 for it in shard}
    held = 1
    for it in reversed(shard):
        extent, stride = it.extent, it.stride
        if type(extent) is not int or type(stride) is not int:
            return None
        if extent == 1 and shape is not None:
            return None  # the shape may pass a unit iter over, and its axis with it
        values[it.axis.name] += index % extent * stride
        index //= extent
        held *= extent
    if index != 0 or size not in (None, held):
        return None
    for axis, value in parts.offset.items():
        if type(value) is not int:
            return None
        values[axis.name] = values.get(axis.name, 0) + value
    return values


def owners(replica: Iters, base: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return every machine coordinate of an element, given its base coordinate; base first."""
    if any(getattr(value, "ndim", 0) for value in base.values()):
        raise LayoutError(
            "owners: the coordinate must be of one element; got an array. "
            "table(shape, replicas=True) answers for every element"
        )
    first = dict(base)
    for it in replica:
        first.setdefault(it.axis.name, 0)
        if type(it.extent) is not int:
            raise Undecided(
                f"owners: how many replicas has {it}? The symbols leave it open; substitute "
                f"{it.extent}."
            )
    check_budget(
        "owners", product(it.extent for it in replica), OWNERS, "places of an element",
        "inverse(shape).at says which element is at a place",
    )  # fmt: skip
    found = {tuple(first.values()): first}
    for it in replica:
        name = it.axis.name
        found = {
            tuple(moved.values()): moved
            for place in found.values()
            for step in range(int(it.extent))
            for moved in [{**place, name: tidy(place[name] + step * it.stride)}]
        }
    return tuple(found.values())
