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
from layoutalg.scope import Target, follow, fused, scope_of
from layoutalg.size import (
    Size,
    as_extent,
    as_size,
    decide,
    equal,
    namesakes,
    product,
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
    """Shard, replica and offset.

    >>> print(Parts((Iter(8, 1),), (Iter(2, 8),), {Axis.get("m"): 3}))
    S[8:1] + R[2:8] + 3
    """

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

    >>> scope(Parts((Iter(8, 4, "laneid"), Iter(4, 1, "warpid")), (), {}))
    ('thread', 'cta')
    """
    axes = _thread_axes(parts)
    return scope_of(axes, parts) if axes else None


def fault_of(parts: HasParts) -> str | None:
    """Say what is wrong with the thread axes; None where they fit together.

    >>> fault_of(Parts((Iter(8, 4, "laneid"), Iter(4, 1, "wgid")), (), {}))
    'the axes laneid, wgid are disconnected: none counts each warp'
    """
    axes = _thread_axes(parts)
    found = follow(axes) if axes else None
    return found if isinstance(found, str) else None


def canonicalize(parts: HasParts, target: Target) -> HasParts:
    """Return the canonical parts of the same map: see ``TileLayout.canonicalize``.

    The argument itself comes back where it is canonical already.

    Raises:
        LayoutError: the thread axes conflict or leave a gap.

    >>> print(canonicalize(Parts((Iter(8, 4), Iter(1, 9), Iter(4, 1)), (), {}), None))
    S[32:1]
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
    """Say whether :func:`canonicalize` takes the parts: well-formed, with unit iters or without.

    >>> has_canonical(Parts((Iter(8, 1, "laneid"), Iter(1, 1, "tx")), (), {}))
    True
    """
    return fault_of(_without_units(parts)) is None or fault_of(_with_links(parts)) is None


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
    return bare if fault_of(bare) is None else renamed


# -- measures ---------------------------------------------------------------------------------


def total_size(parts: HasParts) -> Size:
    """Return how many elements the layout holds: the product of the shard extents.

    >>> total_size(Parts((Iter(8, 4), Iter(4, 1)), (), {}))
    32
    """
    return product(it.extent for it in parts.shard)


def moves(it: Iter) -> bool:
    """Say whether an iter reaches more than one coordinate; a replica that does not says nothing.

    >>> moves(Iter(2, 8)), moves(Iter(1, 8)), moves(Iter(2, 0))
    (True, False, False)
    """
    return it.extent != 1 and it.stride != 0


def copies(parts: HasParts) -> Iters:
    """Return the replica iters that repeat: extent 1 or stride 0 adds no place.

    >>> copies(Parts((Iter(8, 1),), (Iter(4, 0), Iter(1, 8), Iter(2, 8)), {}))
    (Iter(2, 8, 'm'),)
    """
    return tuple(filter(moves, parts.replica))


def is_dense(parts: HasParts) -> bool:
    """Say whether the parts, as they stand, are at most one dense iter in memory, from 0.

    >>> is_dense(Parts((Iter(8, 1),), (), {})), is_dense(Parts((Iter(8, 2),), (), {}))
    (True, False)
    """
    return (
        len(parts.shard) <= 1
        and not copies(parts)
        and all(value == 0 for value in parts.offset.values())
        and all(it.axis.memory and it.stride == 1 for it in parts.shard)
    )


def check_sizes(parts: HasParts, shape: Sequence[Size], what: str) -> None:
    """Refuse a shape of another size than the layout.

    Raises:
        LayoutError: the sizes differ.
        Undecided: that depends on a symbol.

    >>> check_sizes(Parts((Iter(8, 1),), (), {}), (2, 3), "table")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: table: the shape must hold as many elements as the layout; \
shape (2, 3) holds 6, S[8:1] holds 8
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
    """Return ``1 + sum of (extent - 1)*stride`` over shard and replica, plus the offset.

    >>> span(Parts((Iter(8, 1),), (Iter(2, 8),), {}), Axis.get("m"))
    16
    """
    total: Any = 1
    for it in parts.shard + parts.replica:
        if it.axis is axis:
            total = total + (it.extent - 1) * it.stride
    return as_size(total + parts.offset.get(axis, 0))


def substitute_parts(parts: HasParts, values: Mapping[Any, Any]) -> Parts:
    """Replace symbols, or names of symbols, by sizes.

    Raises:
        LayoutError: a value is no size, or an extent would be below 1.

    >>> from layoutalg import parse
    >>> print(substitute_parts(parse("S[(n,4):(4,1)]"), {"n": 8}))
    S[(8,4):(4,1)]
    """
    if not isinstance(values, Mapping):
        raise LayoutError(f"subs: needs a mapping symbol -> size; got {values!r}")
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


def add_offsets(*offsets: Mapping[Axis, Size]) -> dict[Axis, Size]:
    """Return the sum of offsets, axis by axis.

    >>> add_offsets({Axis.get("m"): 3}, {Axis.get("m"): 4})
    {m: 7}
    """
    total: dict[Axis, Any] = {}
    for offset in offsets:
        for axis, value in offset.items():
            total[axis] = total[axis] + value if axis in total else value
    return total


def subtract_offsets(total: Mapping[Axis, Size], part: Mapping[Axis, Size]) -> dict[Axis, Size]:
    """Return ``total - part`` axis by axis, without zeros.

    >>> subtract_offsets({Axis.get("m"): 3}, {Axis.get("m"): 3, Axis.get("laneid"): 1})
    {laneid: -1}
    """
    result: dict[Axis, Size] = {}
    for axis in dict.fromkeys((*total, *part)):
        rest: Any = total.get(axis, 0) - part.get(axis, 0)
        if rest != 0:
            result[axis] = rest
    return result


def check_ranks(what: str, **shapes: Sequence[Size]) -> None:
    """Refuse shapes of different rank.

    Raises:
        LayoutError: the ranks differ.

    >>> check_ranks("tile", outer_shape=(2,), inner_shape=(2, 2))
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: tile: the shapes must have one rank; got outer_shape (2,), \
inner_shape (2, 2)
    """
    ranks = [len(shape) for shape in shapes.values()]
    if any(rank != ranks[0] for rank in ranks):
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise LayoutError(f"{what}: the shapes must have one rank; got {listed}")
