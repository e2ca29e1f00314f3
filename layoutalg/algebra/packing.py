"""Views of storage: what one thread holds; wider, narrower and repeated elements."""

from __future__ import annotations

import operator
from typing import Any

from layoutalg.algebra.axis import Axis
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.algebra.parts import HasParts, Parts
from layoutalg.errors import LayoutError
from layoutalg.sizes.size import as_extent, decide, divides, quotient


def storage(parts: HasParts) -> Parts:
    """Remove thread axes from shard, replica and offset."""
    return Parts(
        tuple(it for it in parts.shard if it.axis.memory),
        tuple(it for it in parts.replica if it.axis.memory),
        {axis: value for axis, value in parts.offset.items() if axis.memory},
    )


def unpack(parts: HasParts, num: Any, axis: Axis | str) -> Parts:
    """Split each cell of a memory axis into ``num``: see ``TileLayout.unpack``."""
    num, axis = as_extent(num, "unpack: num"), Axis.get(axis)
    if axis.thread:
        raise LayoutError(f"unpack: cells are split on a memory axis; {axis.describe()}")

    def grow(iters: Iters) -> Iters:
        return tuple(
            Iter(it.extent, it.stride * num, axis) if it.axis is axis else it for it in iters
        )

    return Parts(
        (*grow(parts.shard), Iter(num, 1, axis)),
        grow(parts.replica),
        {each: value * num if each is axis else value for each, value in parts.offset.items()},
    )


def pack(parts: HasParts, num: Any) -> Parts:
    """Join ``num`` neighbours of the last iter: see ``TileLayout.pack``."""
    num = as_extent(num, "pack: num")
    last = parts.shard[-1] if parts.shard else None
    if last is None or not last.axis.memory or last.stride != 1:
        raise LayoutError(f"pack: the last iter must have stride 1 on a memory axis; got {parts}")
    axis, count = last.axis, last.extent

    def shrink(value: Any, what: str) -> Any:
        if not decide(
            divides(num, value),
            "pack: does {} divide the {} {}",
            f"write it as a multiple, such as {num}*k",
            num,
            what,
            value,
        ):
            raise LayoutError(
                f"pack: the {what} {value} on axis {axis} must be a multiple of {num}, or a word "
                f"would hold parts of two; got {parts}"
            )
        return quotient(value, num)

    def each(iters: Iters) -> Iters:
        return tuple(
            Iter(it.extent, shrink(it.stride, "stride"), axis)
            if it.axis is axis and (it.extent != 1 or divides(num, it.stride))
            else it
            for it in iters
        )

    whole = Iter(shrink(count, "last extent"), 1, axis)
    return Parts(
        (*each(parts.shard[:-1]), whole),
        each(parts.replica),
        {a: shrink(v, "offset") if a is axis else v for a, v in parts.offset.items()},
    )


def broadcast(parts: HasParts, num: Any, position: Any, axis: Axis | str) -> Parts:
    """Insert an iter (num, 0, axis) at a position, counted as ``list.insert`` does from 0 on.

    Negative positions count from behind the last iter: -1 appends.
    """
    count = len(parts.shard)
    try:
        at = operator.index(position)
    except TypeError:
        raise LayoutError(f"broadcast: the position must be an int; got {position!r}") from None
    if not -count - 1 <= at <= count:
        raise LayoutError(f"broadcast: the position must lie in {-count - 1}..{count}; got {at}")
    at = at if at >= 0 else count + 1 + at
    added = Iter(as_extent(num, "broadcast: num"), 0, axis)
    return Parts((*parts.shard[:at], added, *parts.shard[at:]), parts.replica, parts.offset)
