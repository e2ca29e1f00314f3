"""Storage views: what one thread holds, and the same cells seen as wider or narrower elements."""

from __future__ import annotations

import operator
from typing import Any

from layoutalg.axis import Axis, m
from layoutalg.errors import LayoutError
from layoutalg.iters import Iter, Iters
from layoutalg.parts import HasParts, Parts
from layoutalg.size import as_extent, decide, divides, quotient


def storage(parts: HasParts) -> Parts:
    """Remove thread axes from shard, replica and offset."""
    return Parts(
        tuple(it for it in parts.shard if it.axis.memory),
        tuple(it for it in parts.replica if it.axis.memory),
        {axis: value for axis, value in parts.offset.items() if axis.memory},
    )


def unpack(parts: HasParts, num: Any) -> Parts:
    """Split each element of axis m into ``num``: strides, replicas and offset on m grow by num."""
    num = as_extent(num, "unpack: num")

    def grow(iters: Iters) -> Iters:
        return tuple(
            Iter(it.extent, it.stride * num, it.axis) if it.axis is m else it for it in iters
        )

    return Parts(
        (*grow(parts.shard), Iter(num, 1, m)),
        grow(parts.replica),
        {axis: value * num if axis.memory else value for axis, value in parts.offset.items()},
    )


def pack(parts: HasParts, num: Any) -> Parts:
    """Join ``num`` neighbours of the last iter; strides, replicas and offset in memory shrink.

    Raises:
        LayoutError: the last iter is not dense in memory or not a multiple of num, or a stride or
            an offset is not.
    """
    num = as_extent(num, "pack: num")
    last = parts.shard[-1] if parts.shard else None
    if last is None or not last.axis.memory or last.stride != 1:
        raise LayoutError(f"pack: the last iter must have stride 1 on a memory axis; got {parts}")
    if not decide(
        divides(num, last.extent),
        f"pack: does {num} divide {last.extent}",
        f"write the extent as a multiple, {num}*k",
    ):
        raise LayoutError(
            f"pack: the extent of the last iter must be a multiple of {num}; got {last.extent} in "
            f"{parts}"
        )

    def shrink(value: Any, what: str) -> Any:
        if not decide(
            divides(num, value), f"pack: does {num} divide {what} {value}", "substitute the symbols"
        ):
            raise LayoutError(
                f"pack: {what} {value} must be a multiple of {num}, or an element would lie astride "
                f"two words; got {parts}"
            )
        return quotient(value, num)

    def each(iters: Iters) -> Iters:
        return tuple(
            Iter(it.extent, shrink(it.stride, "stride"), it.axis)
            if it.axis.memory and (it.extent != 1 or divides(num, it.stride))
            else it
            for it in iters
        )

    return Parts(
        (*each(parts.shard[:-1]), Iter(quotient(last.extent, num), 1, last.axis)),
        each(parts.replica),
        {a: shrink(v, "offset") if a.memory else v for a, v in parts.offset.items()},
    )


def broadcast(parts: HasParts, num: Any, position: Any, axis: Axis | str) -> Parts:
    """Insert an iter (num, 0, axis) at a position, counted as ``list.insert`` does from 0 on.

    Negative positions count from behind the last iter: -1 appends.

    Raises:
        LayoutError: the position is out of range.
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
