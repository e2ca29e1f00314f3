"""The three parts of a layout, and the operations that use nothing else.

A layout maps a flat index to the set ``{shard(x) + offset + replica digits}``; :class:`Parts` holds
its shard, replica and offset, and so does every :class:`layoutalg.TileLayout`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from layoutalg import iters as algebra
from layoutalg.axis import Axis
from layoutalg.errors import LayoutError
from layoutalg.iters import Iter, Iters
from layoutalg.notation import text
from layoutalg.scope import Target, follow, fused, scope_of
from layoutalg.size import (
    Size,
    as_extent,
    as_size,
    decide,
    divides,
    equal,
    is_int,
    less,
    namesakes,
    product,
    quotient,
    substitute,
)


class HasParts(Protocol):
    """What has a shard, a replica and an offset."""

    @property
    def shard(self) -> Iters:
        """The ordered iters of the map."""

    @property
    def replica(self) -> Iters:
        """The iters along which each element is repeated."""

    @property
    def offset(self) -> Mapping[Axis, Size]:
        """What is added on each axis."""


class Parts(NamedTuple):
    """Shard, replica and offset."""

    shard: Iters
    replica: Iters
    offset: Mapping[Axis, Size]

    def __str__(self) -> str:
        """Return the layout in the notation that parses back."""
        return text(self.shard, self.replica, self.offset)


# -- scope and canonical form -----------------------------------------------------------------


def _thread_axes(parts: HasParts) -> tuple[Axis, ...]:
    """Return the thread axes that count for the scope; none where no shard iter is on one."""
    axes = [it.axis for it in parts.shard if it.axis.scope is not None]
    if axes and (parts.replica or parts.offset):
        axes.extend(it.axis for it in parts.replica if it.axis.thread)
        axes.extend(axis for axis in parts.offset if axis.thread)
    return tuple(axes)


def scope(parts: HasParts) -> tuple[str, str] | None:
    """Return (subscope, scope) of the layout; None where no shard iter is on a thread axis.

    Raises:
        LayoutError: the thread axes conflict or leave a gap.
    """
    axes = _thread_axes(parts)
    return scope_of(axes, parts) if axes else None


def well_formed(parts: HasParts) -> bool:
    """Say whether the thread axes fit together: see ``TileLayout.verify_well_formed``."""
    axes = _thread_axes(parts)
    return not axes or not isinstance(follow(axes), str)


def canonicalize(parts: HasParts, target: Target) -> HasParts:
    """Return the canonical parts of the same map: see ``TileLayout.canonicalize``.

    The argument itself comes back where it is canonical already.
    """
    bare = _without_units(parts)
    axes = _thread_axes(bare)
    if axes:
        pair = follow(axes)
        if isinstance(pair, str):
            # a unit iter may be the only link between two scopes: then it stays
            bare = _with_links(parts)
            pair = scope_of(_thread_axes(bare), parts)
        if target == "cuda":
            bare = _fuse_axes(bare, pair)
    fewer = algebra.fuse(bare.shard)
    return bare if fewer is bare.shard else Parts(fewer, bare.replica, bare.offset)


def has_canonical(parts: HasParts) -> bool:
    """Say whether :func:`canonicalize` takes the parts: well-formed, with unit iters or without."""
    return well_formed(_without_units(parts)) or well_formed(_with_links(parts))


def _without_units(parts: HasParts) -> HasParts:
    """Drop unit iters, all but one where there is no other, and zero offsets."""
    shard, offset = parts.shard, parts.offset
    for it in shard:
        if it.extent == 1:
            kept = tuple(each for each in shard if each.extent != 1)
            shard = kept or (Iter(1, 1, shard[0].axis),)
            break
    if offset and 0 in offset.values():
        offset = {axis: value for axis, value in offset.items() if value != 0}
    if offset is parts.offset and (shard is parts.shard or shard == parts.shard):
        return parts
    return Parts(shard, parts.replica, offset)


def _with_links(parts: HasParts) -> Parts:
    """Drop them, but for one on each thread axis that would be lost."""
    axes = {it.axis for it in parts.shard if it.extent != 1}
    shard: list[Iter] = []
    for it in parts.shard:
        if it.extent != 1:
            shard.append(it)
        elif it.axis.thread and it.axis not in axes:
            axes.add(it.axis)
            shard.append(Iter(1, 1, it.axis))
    offset = {a: value for a, value in parts.offset.items() if value != 0 or a.thread}
    return Parts(tuple(shard), parts.replica, offset)


def _fuse_axes(parts: HasParts, pair: tuple[str, str]) -> HasParts:
    """Rename the axes that are part of a wider one; offsets on axes that become one add up."""

    def rename(it: Iter) -> Iter:
        axis, factor = fused(it.axis, pair)
        return it if axis is it.axis else Iter(it.extent, it.stride * factor, axis)

    shard, replica = tuple(map(rename, parts.shard)), tuple(map(rename, parts.replica))
    offset: dict[Axis, Any] = {}
    for axis, value in parts.offset.items():
        wide, factor = fused(axis, pair)
        offset[wide] = offset.get(wide, 0) + value * factor
    if shard == parts.shard and replica == parts.replica and offset == parts.offset:
        return parts
    renamed = Parts(shard, replica, offset)
    bare = _without_units(renamed)
    return bare if well_formed(bare) else renamed


# -- measures ---------------------------------------------------------------------------------


def total_size(parts: HasParts) -> Size:
    """Return how many elements the layout holds: the product of the shard extents."""
    return product(it.extent for it in parts.shard)


def is_dense(parts: HasParts) -> bool:
    """Say whether the parts, as they stand, are at most one dense iter in memory, from 0."""
    return (
        len(parts.shard) <= 1
        and not parts.replica
        and all(value == 0 for value in parts.offset.values())
        and all(it.axis.memory and it.stride == 1 for it in parts.shard)
    )


def check_sizes(parts: HasParts, shape: Sequence[Size], what: str) -> None:
    """Refuse a shape of another size than the layout.

    Raises:
        LayoutError: the sizes differ.
        Undecided: that depends on a symbol.
    """
    wanted, held = product(shape), total_size(parts)
    if not decide(
        equal(wanted, held),
        f"{what}: does the shape {tuple(shape)} hold the {held} elements of {parts}",
        f"write the extents as products, such as n = 8*k{namesakes(wanted, held)}",
    ):
        raise LayoutError(
            f"{what}: the shape must hold as many elements as the layout; shape {tuple(shape)} "
            f"holds {wanted}, {parts} holds {held}"
        )


def span(parts: HasParts, axis: Axis) -> Size:
    """Return ``1 + sum of (extent - 1)*stride`` over shard and replica, plus the offset."""
    total: Any = 1
    for it in parts.shard + parts.replica:
        if it.axis is axis:
            total = total + (it.extent - 1) * it.stride
    return as_size(total + parts.offset.get(axis, 0))


def substitute_parts(parts: HasParts, values: Mapping[Any, Any]) -> Parts:
    """Replace symbols, or names of symbols, by sizes.

    Raises:
        LayoutError: a value is no size, or an extent would be below 1.
    """
    sizes = {str(name): as_size(value, f"subs: {name}") for name, value in values.items()}

    def each(iters: Iters) -> Iters:
        return tuple(
            Iter(
                as_extent(substitute(it.extent, sizes), f"subs: extent {it.extent}"),
                substitute(it.stride, sizes),
                it.axis,
            )
            for it in iters
        )

    return Parts(
        each(parts.shard),
        each(parts.replica),
        {axis: substitute(value, sizes) for axis, value in parts.offset.items()},
    )


# -- the pieces that tiling and summing share -------------------------------------------------


def add_offsets(*offsets: Mapping[Axis, Size]) -> dict[Axis, Size]:
    """Return the sum of offsets, axis by axis."""
    total: dict[Axis, Any] = {}
    for offset in offsets:
        for axis, value in offset.items():
            total[axis] = total[axis] + value if axis in total else value
    return total


def subtract_offsets(total: Mapping[Axis, Size], part: Mapping[Axis, Size]) -> dict[Axis, Size]:
    """Return ``total - part`` axis by axis, without zeros."""
    result: dict[Axis, Size] = {}
    for axis in dict.fromkeys((*total, *part)):
        rest: Any = total.get(axis, 0) - part.get(axis, 0)
        if rest != 0:
            result[axis] = rest
    return result


def scaled(iters: Iters, scale: Mapping[Axis, Size]) -> Iters:
    """Multiply each stride by the scale of its axis (1 where there is none)."""
    return tuple(
        Iter(it.extent, it.stride * scale[it.axis], it.axis) if it.axis in scale else it
        for it in iters
    )


def unscaled(iters: Iters, scale: Mapping[Axis, Size]) -> Iters | None:
    """Divide each stride by the scale of its axis; None where a stride does not divide.

    Raises:
        Undecided: that depends on a symbol.
    """
    out = []
    for it in iters:
        unit = scale.get(it.axis, 1)
        if unit == 1 or it.extent == 1:
            out.append(it)
            continue
        if unit == 0:
            return None
        question = f"is_tile_inner: does the span {unit} divide the stride {it.stride}"
        if not decide(divides(unit, it.stride), question, "substitute the symbols"):
            return None
        out.append(Iter(it.extent, quotient(it.stride, unit), it.axis))
    return tuple(out)


def same_iters(left: Iters, right: Iters, what: str) -> bool:
    """Say whether two runs of iters are the same map, digit by digit (unit strides are free).

    Raises:
        Undecided: that depends on a symbol.
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
    question = f"{what}: are {list(left)} the same as {list(right)}"
    return decide(None if None in answers else True, question, "substitute the symbols")


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


def moves(it: Iter) -> bool:
    """Say whether an iter reaches more than one coordinate; a replica that does not says nothing.

    >>> moves(Iter(2, 8)), moves(Iter(1, 8)), moves(Iter(2, 0))
    (True, False, False)
    """
    return it.extent != 1 and it.stride != 0


def check_ranks(what: str, **shapes: Sequence[Size]) -> None:
    """Refuse shapes of different rank.

    Raises:
        LayoutError: the ranks differ.
    """
    if len({len(shape) for shape in shapes.values()}) > 1:
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise LayoutError(f"{what}: the shapes must have one rank; got {listed}")


class Operand(NamedTuple):
    """One of two layouts that are put together, with its logical shape and its part in messages."""

    layout: HasParts
    shape: Sequence[Size]
    what: str  # "tile: outer"

    def dims(self, iters: Iters) -> list[Iters]:
        """Return the iters of each dimension of the shape.

        Raises:
            LayoutError: the shape does not group them.

        >>> Operand(Parts((), (), {}), (2, 4), "tile: outer").dims((Iter(8, 1),))
        [(Iter(2, 4, 'm'),), (Iter(4, 1, 'm'),)]
        """
        pieces, seps = algebra.group(iters, self.shape, self.layout, self.what)
        return [pieces[start:end] for start, end in pairwise(seps)]


# -- tile and direct sum ----------------------------------------------------------------------


def tile_scale(inner: HasParts) -> dict[Axis, Size]:
    """Return the span of a canonical tile on each axis of its shard: the unit of its copies.

    A tile of one element keeps a unit iter, whose axis counts: so TVM has it.
    """
    scale = {axis: span(inner, axis) for axis in dict.fromkeys(it.axis for it in inner.shard)}
    if len(scale) > 1 and not is_int(*(it.extent for it in inner.shard)):
        for axis in scale:
            _check_moved(inner, axis)
    return scale


def _check_moved(inner: HasParts, axis: Axis) -> None:
    """Refuse a tile that moves along an axis or does not, where that changes its unit there.

    Raises:
        Undecided: each extent on the axis may be 1, and replicas or an offset make the span.
    """
    own = [it.extent for it in inner.shard if it.axis is axis]
    repeated = axis in inner.offset or any(it.axis is axis for it in inner.replica)
    if repeated and not any(less(1, extent) for extent in own):
        decide(
            None,
            f"tile: has {inner} more than one element along {axis}",
            f"substitute the symbols, or write {own[0]} as a multiple, 2*k",
        )


def in_tiles(inner: HasParts, outer: HasParts) -> Parts:
    """Return ``outer`` with its shard and replica strides in units of whole inner tiles.

    Raises:
        LayoutError: a span is not positive (the tile reaches below zero), so that copies would not
            be told apart.
    """
    scale = tile_scale(inner)
    for it in outer.shard + outer.replica:
        if it.extent != 1 and less(scale.get(it.axis, 1), 1):
            raise LayoutError(
                f"tile: the tile must have a positive span on each axis that moves it; on axis "
                f"{it.axis} {inner} has span {scale[it.axis]}: shift it to start at 0"
            )
    return Parts(scaled(outer.shard, scale), scaled(outer.replica, scale), outer.offset)


def woven(
    inner: Operand,
    outer: Operand,
    target: Target,
    moved: Callable[[HasParts, HasParts], HasParts],
) -> Parts:
    """Interleave ``moved(inner, outer)`` and ``inner`` per dimension; add replicas and offsets.

    Under CUDA both are taken in their fused axes, as TVM does; where those do not fit together
    (warps over threads, for instance), in the axes in which they are written.
    """

    def arranged(fusing: Target) -> Parts:
        tile = canonicalize(inner.layout, fusing)
        copies = moved(tile, canonicalize(outer.layout, fusing))
        shard: list[Iter] = []
        for over, under in zip(outer.dims(copies.shard), inner.dims(tile.shard), strict=True):
            shard += over
            shard += under
        offset = add_offsets(tile.offset, copies.offset)
        return Parts(tuple(shard), tile.replica + copies.replica, offset)

    result = arranged(target)
    if target is not None and not has_canonical(result):
        result = arranged(None)
    return result


def _canonical_woven(result: Parts, inner: Operand, outer: Operand, target: Target) -> HasParts:
    """Return the canonical form of two layouts put together; refuse axes that do not fit.

    Raises:
        LayoutError: the thread axes of the two conflict or leave a gap.
    """
    if not has_canonical(result):
        raise LayoutError(
            f"{inner.what.split(':')[0]}: the axes of {outer.layout} and {inner.layout} must fit "
            f"together; {follow(_thread_axes(result))}"
        )
    return canonicalize(result, target)


def tile(inner: Operand, outer: Operand, target: Target) -> HasParts:
    """Arrange copies of ``inner`` as ``outer`` says: see ``TileLayout.tile``."""
    return _canonical_woven(woven(inner, outer, target, in_tiles), inner, outer, target)


def direct_sum(left: Operand, right: Operand, target: Target) -> HasParts:
    """Interleave two layouts and add what they say: see ``TileLayout.direct_sum``."""
    total = woven(right, left, target, lambda _, left: left)
    return _canonical_woven(total, right, left, target)
