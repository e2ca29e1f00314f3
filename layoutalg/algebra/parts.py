"""Shard, replica and offset of a layout, and the operations on these three alone.

A layout maps a flat index to the set ``{shard(x) + offset + replica digits}``. Every
:class:`layoutalg.TileLayout` has these parts; :class:`Parts` is nothing but them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.algebra.printing import text
from layoutalg.algebra.scope import Target, follow, scope_of, wider_axes
from layoutalg.errors import LayoutError
from layoutalg.sizes.size import (
    Size,
    as_extent,
    as_size,
    decide,
    equal,
    namesakes,
    product,
    substitute,
)

NO_OFFSET: Mapping[Axis, Size] = MappingProxyType({})


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


def _thread_axes(shard: Iters, replica: Iters, offset: Mapping[Axis, Size]) -> tuple[Axis, ...]:
    """Return the thread axes that define the scope; none if no shard iter is on one."""
    axes = [it.axis for it in shard if it.axis.scope is not None]
    if axes and (replica or offset):
        axes.extend(it.axis for it in replica if it.axis.thread)
        axes.extend(axis for axis in offset if axis.thread)
    return tuple(axes)


def counts(shard: Iters) -> bool:
    """Say whether an iter is on a thread axis.

    >>> counts((Iter(8, 1), Iter(4, 1, "laneid"))), counts((Iter(8, 1),))
    (True, False)
    """
    for it in shard:  # noqa: SIM110 (each canonical form asks: any() takes twice the time)
        if it.axis.scope is not None:
            return True
    return False


def scope(parts: HasParts) -> tuple[str, str] | None:
    """Return (subscope, scope) of the layout; None where no shard iter is on a thread axis."""
    axes = _thread_axes(parts.shard, parts.replica, parts.offset)
    return scope_of(axes, parts) if axes else None


def fault_of(parts: HasParts) -> str | None:
    """Say what is wrong with the thread axes; None if they fit together.

    >>> fault_of(Parts((Iter(8, 4, "laneid"), Iter(4, 1, "wgid")), (), {}))
    'the axes laneid, wgid are disconnected: none counts each warp'
    """
    return _fault(parts.shard, parts.replica, parts.offset)


def _fault(shard: Iters, replica: Iters, offset: Mapping[Axis, Size]) -> str | None:
    axes = _thread_axes(shard, replica, offset)
    found = follow(axes) if axes else None
    return found if isinstance(found, str) else None


def canonicalize(parts: HasParts, target: Target) -> HasParts:
    """Return the canonical parts of the same map; the argument itself where it is canonical.

    >>> print(canonicalize(Parts((Iter(8, 4), Iter(1, 9), Iter(4, 1)), (), {}), None))
    S[32:1]
    """
    replica, offset = parts.replica, parts.offset
    if offset:
        offset = _nonzero(offset)
    shard = algebra.canonical(parts.shard)
    if counts(shard):
        axes = _thread_axes(shard, replica, offset)
        pair = follow(axes)
        if isinstance(pair, str):
            # a unit iter may be the only link between two scopes: then it stays
            shard, offset = _with_links(parts)
            axes = _thread_axes(shard, replica, offset)
            pair = scope_of(axes, parts)
        wider = wider_axes(axes, pair) if target == "cuda" else None
        if wider:
            return _fuse_axes(shard, replica, offset, wider)
    if shard is parts.shard and offset is parts.offset:
        return parts
    return Parts(shard, replica, offset)


def has_canonical(parts: HasParts) -> bool:
    """Say whether :func:`canonicalize` takes the parts: well-formed, with unit iters or without.

    >>> has_canonical(Parts((Iter(8, 1, "laneid"), Iter(1, 1, "tx")), (), {}))
    True
    """
    shard, offset = algebra.canonical(parts.shard), _nonzero(parts.offset)
    if _fault(shard, parts.replica, offset) is None:
        return True
    shard, offset = _with_links(parts)
    return _fault(shard, parts.replica, offset) is None


def stands(parts: HasParts) -> bool:
    """Say whether the parts are canonical as they stand, but for neighbours that fuse.

    >>> stands(Parts((Iter(8, 4), Iter(4, 1)), (), {})), stands(Parts((Iter(1, 1),), (), {}))
    (True, False)
    """
    shard, offset = parts.shard, parts.offset
    for it in shard:
        if it.extent == 1:
            return False
    if offset and 0 in offset.values():
        return False
    return not counts(shard) or _fault(shard, parts.replica, offset) is None


def _nonzero(offset: Mapping[Axis, Size]) -> Mapping[Axis, Size]:
    """Drop the zeros of an offset; the argument itself comes back where there is none."""
    if offset and 0 in offset.values():
        return {axis: value for axis, value in offset.items() if value != 0}
    return offset


def _with_links(parts: HasParts) -> tuple[Iters, Mapping[Axis, Size]]:
    """Make shard and offset canonical, but keep a unit iter or a zero on each thread axis."""
    axes = {it.axis for it in parts.shard if it.extent != 1}
    shard: list[Iter] = []
    for it in parts.shard:
        if it.extent != 1:
            shard.append(it)
        elif it.axis.thread and it.axis not in axes:
            axes.add(it.axis)
            shard.append(Iter(1, 1, it.axis))
    offset = {a: value for a, value in parts.offset.items() if value != 0 or a.thread}
    return algebra.fuse(tuple(shard)), offset


def _fuse_axes(
    shard: Iters,
    replica: Iters,
    offset: Mapping[Axis, Size],
    wider: Mapping[Axis, tuple[Axis, int]],
) -> Parts:
    """Rename the axes that are part of a wider one; offsets on axes that become one add up."""

    def renamed(iters: Iters) -> Iters:
        out = []
        for it in iters:
            if it.axis in wider:
                axis, factor = wider[it.axis]
                it = Iter(it.extent, it.stride * factor, axis)
            out.append(it)
        return tuple(out)

    total: dict[Axis, Any] = {}
    for axis, value in offset.items():
        wide, factor = wider.get(axis, (axis, 1))
        total[wide] = total.get(wide, 0) + value * factor
    wide_shard, replica = renamed(shard), renamed(replica)
    bare, kept = algebra.canonical(wide_shard), _nonzero(total)
    if _fault(bare, replica, kept) is None:
        return Parts(bare, replica, kept)
    return Parts(algebra.fuse(wide_shard), replica, total)


# -- measures ---------------------------------------------------------------------------------


def sizes(parts: HasParts) -> list[Size]:
    """Return every extent, stride and offset.

    >>> sizes(Parts((Iter(8, 4),), (), {Axis.get("m"): 3}))
    [8, 4, 3]
    """
    its = parts.shard + parts.replica
    return [*(s for it in its for s in (it.extent, it.stride)), *parts.offset.values()]


def symbols(parts: HasParts) -> dict[str, Any]:
    """Return the symbols by name.

    >>> symbols(Parts((Iter(8, 1),), (), {}))
    {}
    """
    return {str(s): s for size in sizes(parts) for s in getattr(size, "free_symbols", ())}


def total_size(parts: HasParts) -> Size:
    """Return how many elements the layout holds: the product of the shard extents."""
    return product(it.extent for it in parts.shard)


def moves(it: Iter) -> bool:
    """Say whether an iter reaches more than one coordinate; a replica that does not adds no copy.

    >>> moves(Iter(2, 8)), moves(Iter(1, 8)), moves(Iter(2, 0))
    (True, False, False)
    """
    return it.extent != 1 and it.stride != 0


def copies(parts: HasParts) -> Iters:
    """Return the replica iters that add copies: extent above 1, nonzero stride."""
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
    """Refuse a shape of another size than the layout."""
    wanted, held = product(shape), total_size(parts)
    if not decide(
        equal(wanted, held),
        "{}: does the shape {} hold the {} elements of {}",
        f"write the extents as products, such as n = 8*k{namesakes(wanted, held)}",
        what,
        tuple(shape),
        held,
        parts,
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
    """Replace symbols, or names of symbols, by sizes."""
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


def add_offsets(one: Mapping[Axis, Size], other: Mapping[Axis, Size]) -> Mapping[Axis, Size]:
    """Return the sum of two offsets, axis by axis.

    >>> add_offsets({Axis.get("m"): 3}, {Axis.get("m"): 4})
    {m: 7}
    """
    if not one or not other:
        return one or other
    total: dict[Axis, Any] = dict(one)
    for axis, value in other.items():
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


def check_ranks(
    what: str, name: str, shape: Sequence[Size], other: str, beside: Sequence[Size]
) -> None:
    """Refuse two shapes of different rank; ``name`` and ``other`` are what messages call them."""
    if len(shape) != len(beside):
        raise LayoutError(
            f"{what}: the shapes must have one rank; got {name} {tuple(shape)}, "
            f"{other} {tuple(beside)}"
        )
