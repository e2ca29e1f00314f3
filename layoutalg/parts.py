"""The three parts of a layout, and the operations that use nothing else.

A layout maps a flat index to the set ``{shard(x) + offset + replica digits}``; :class:`Parts` holds
its shard, replica and offset, and so does every :class:`layoutalg.TileLayout`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from layoutalg import iters as algebra
from layoutalg.axis import Axis
from layoutalg.errors import LayoutError
from layoutalg.iters import Iter, Iters
from layoutalg.notation import text
from layoutalg.scope import Target, fused, scope_of
from layoutalg.size import Size, divides, equal, less, product, quotient, substitute


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


def scope(parts: HasParts) -> tuple[str, str] | None:
    """Return (subscope, scope) of the layout; None where no shard iter is on a thread axis."""
    for it in parts.shard:
        if it.axis.scope is not None:
            break
    else:
        return None
    axes = [it.axis for it in parts.shard + parts.replica if it.axis.thread]
    axes.extend(axis for axis in parts.offset if axis.thread)
    return scope_of(axes, parts)


def canonicalize(parts: HasParts, target: Target) -> Parts:
    """Return the canonical parts of the same map: see ``TileLayout.canonicalize``."""
    unit = all(it.extent == 1 for it in parts.shard)
    kept = tuple(it for it in parts.shard if it.extent != 1)
    if unit and parts.shard:
        kept = (Iter(1, 1, parts.shard[0].axis),)
    bare = Parts(kept, parts.replica, {a: v for a, v in parts.offset.items() if v != 0})
    pair = scope(bare)
    if target == "cuda" and pair is not None:
        bare = _fuse_axes(bare, pair)
        if unit:
            bare = bare._replace(shard=(Iter(1, 1, bare.shard[0].axis),))
    return Parts(algebra.fuse(bare.shard), bare.replica, bare.offset)


def _fuse_axes(parts: Parts, pair: tuple[str, str]) -> Parts:
    def rename(it: Iter) -> Iter:
        axis, factor = fused(it.axis, pair)
        return it if axis is it.axis else Iter(it.extent, it.stride * factor, axis)

    offset: dict[Axis, Any] = {}
    for axis, value in parts.offset.items():
        wide, factor = fused(axis, pair)
        offset[wide] = offset.get(wide, 0) + value * factor
    return Parts(tuple(map(rename, parts.shard)), tuple(map(rename, parts.replica)), offset)


def span(parts: HasParts, axis: Axis) -> Size:
    """Return ``1 + sum of (extent - 1)*stride`` over shard and replica, plus the offset."""
    total: Any = 1
    for it in parts.shard + parts.replica:
        if it.axis is axis:
            total = total + (it.extent - 1) * it.stride
    return total + parts.offset.get(axis, 0)  # type: ignore[no-any-return]


def add_offsets(*offsets: Mapping[Axis, Size]) -> dict[Axis, Size]:
    """Return the sum of offsets, axis by axis."""
    total: dict[Axis, Any] = {}
    for offset in offsets:
        for axis, value in offset.items():
            total[axis] = total.get(axis, 0) + value
    return total


def scaled(iters: Iters, scale: Mapping[Axis, Size]) -> Iters:
    """Multiply each stride by the scale of its axis (1 where there is none)."""
    return tuple(
        Iter(it.extent, it.stride * scale[it.axis], it.axis) if it.axis in scale else it
        for it in iters
    )


def unscaled(iters: Iters, scale: Mapping[Axis, Size]) -> Iters | None:
    """Divide each stride by the scale of its axis; None where a stride does not divide."""
    out = []
    for it in iters:
        unit = scale.get(it.axis, 1)
        if unit == 1 or it.extent == 1:
            out.append(it)
        elif divides(unit, it.stride):
            out.append(Iter(it.extent, quotient(it.stride, unit), it.axis))
        else:
            return None
    return tuple(out)


def same_iters(left: Iters, right: Iters) -> bool:
    """Say whether two runs of iters are the same map, digit by digit (unit strides are free)."""
    return len(left) == len(right) and all(
        equal(a.extent, b.extent)
        and (a.extent == 1 or (equal(a.stride, b.stride) is True and a.axis is b.axis))
        for a, b in zip(left, right, strict=True)
    )


def remove_each(iters: Iters, gone: Iters) -> Iters | None:
    """Take each iter of ``gone`` out of ``iters`` once; None where one is missing."""
    left = list(iters)
    for it in gone:
        if it not in left:
            return None
        left.remove(it)
    return tuple(left)


def check_ranks(what: str, **shapes: Sequence[Size]) -> None:
    """Refuse shapes of different rank.

    Raises:
        LayoutError: the ranks differ.
    """
    if len({len(shape) for shape in shapes.values()}) > 1:
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise LayoutError(f"{what}: the shapes must have one rank; got {listed}")


def interleave(
    first: HasParts, second: HasParts, first_shape: Sequence[Size], second_shape: Sequence[Size]
) -> Iters:
    """Per dimension, the iters of ``first`` and then those of ``second``, both grouped."""
    outer, outer_seps = algebra.group(first.shard, first_shape, first)
    inner, inner_seps = algebra.group(second.shard, second_shape, second)
    return tuple(
        it
        for d in range(len(first_shape))
        for it in (
            *outer[outer_seps[d] : outer_seps[d + 1]],
            *inner[inner_seps[d] : inner_seps[d + 1]],
        )
    )


def tile_scale(inner: HasParts) -> dict[Axis, Size]:
    """Return the span of a tile on each axis that its shard moves along: the unit of its copies."""
    return {axis: span(inner, axis) for axis in {it.axis for it in inner.shard}}


def arrange(
    inner: HasParts,
    outer: HasParts,
    outer_shape: Sequence[Size],
    inner_shape: Sequence[Size],
    target: Target,
) -> Parts:
    """Interleave canonical ``outer`` and ``inner`` per dimension, outer iters already scaled."""
    return canonicalize(
        Parts(
            interleave(outer, inner, outer_shape, inner_shape),
            inner.replica + outer.replica,
            add_offsets(inner.offset, outer.offset),
        ),
        target,
    )


def tile(
    inner: HasParts,
    outer: HasParts,
    outer_shape: Sequence[Size],
    inner_shape: Sequence[Size],
    target: Target,
) -> Parts:
    """Arrange copies of ``inner`` as ``outer`` says: see ``TileLayout.tile``.

    Raises:
        LayoutError: a span is not positive (the tile reaches below zero), so that copies would not
            be told apart.
    """
    check_ranks("tile", outer_shape=outer_shape, inner_shape=inner_shape)
    inner, outer = canonicalize(inner, target), canonicalize(outer, target)
    scale = tile_scale(inner)
    for it in outer.shard + outer.replica:
        if it.extent != 1 and less(scale.get(it.axis, 1), 1):
            raise LayoutError(
                f"tile: the tile must have a positive span on each axis that moves it; on axis "
                f"{it.axis} {inner} has span {scale[it.axis]}: shift it to start at 0"
            )
    moved = Parts(scaled(outer.shard, scale), scaled(outer.replica, scale), outer.offset)
    return arrange(inner, moved, outer_shape, inner_shape, target)


def direct_sum(
    left: HasParts,
    right: HasParts,
    left_shape: Sequence[Size],
    right_shape: Sequence[Size],
    target: Target,
) -> Parts:
    """Interleave two layouts and add what they say: see ``TileLayout.direct_sum``."""
    check_ranks("direct_sum", left_shape=left_shape, right_shape=right_shape)
    left, right = canonicalize(left, target), canonicalize(right, target)
    return canonicalize(
        Parts(
            interleave(left, right, left_shape, right_shape),
            left.replica + right.replica,
            add_offsets(left.offset, right.offset),
        ),
        target,
    )


def factor_out(
    total: HasParts,
    part: HasParts,
    interleaved: Sequence[Size],
    part_shape: Sequence[Size],
    at: int,
) -> Parts | None:
    """Take ``part`` out of an interleaved layout; ``at`` 0: it is the left one, 1: the right one.

    Group ``total`` by the interleaved shape ``(l0, r0, l1, r1, …)``; where the parts at ``at``
    equal the grouped ``part``, what is left over is the answer.
    """
    pieces, seps = algebra.group(total.shard, interleaved, total)
    own, own_seps = algebra.group(part.shard, part_shape, part)
    rest: list[Iter] = []
    for d in range(len(part_shape)):
        mine, others = 2 * d + at, 2 * d + 1 - at
        if not same_iters(pieces[seps[mine] : seps[mine + 1]], own[own_seps[d] : own_seps[d + 1]]):
            return None
        rest.extend(pieces[seps[others] : seps[others + 1]])
    replica = remove_each(total.replica, part.replica)
    if replica is None:
        return None
    axes = dict.fromkeys((*total.offset, *part.offset))
    offset = {a: total.offset.get(a, 0) - part.offset.get(a, 0) for a in axes}
    return Parts(tuple(rest), replica, {a: v for a, v in offset.items() if v != 0})


def total_size(parts: HasParts) -> Size:
    """Return how many elements the layout holds: the product of the shard extents."""
    return product(it.extent for it in parts.shard)


def substitute_parts(parts: HasParts, values: Mapping[Any, Any]) -> Parts:
    """Replace symbols, or names of symbols, by sizes."""

    def each(iters: Iters) -> Iters:
        return tuple(
            Iter(substitute(it.extent, values), substitute(it.stride, values), it.axis)
            for it in iters
        )

    return Parts(
        each(parts.shard),
        each(parts.replica),
        {axis: substitute(value, values) for axis, value in parts.offset.items()},
    )
