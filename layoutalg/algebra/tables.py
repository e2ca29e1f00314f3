"""Tables: the coordinates of all elements of a layout at once, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis
from layoutalg.algebra.iters import Iters
from layoutalg.algebra.parts import HasParts, check_sizes, symbols, total_size
from layoutalg.errors import LayoutError, Undecided
from layoutalg.sizes.budget import ENTRIES, check_budget
from layoutalg.sizes.size import Size, product

IntArray = npt.NDArray[np.int64]
_INT64 = 1 << 63


def check_concrete(parts: HasParts, what: str) -> None:
    """Refuse a layout with symbols, or with coordinates that NumPy could not hold."""
    if free := sorted(symbols(parts)):
        raise Undecided(
            f"{what}: the sizes must be numbers; {parts} has the symbols {', '.join(free)}: "
            f"substitute them with .subs({{'{free[0]}': …}})"
        )
    count: Any = total_size(parts)
    limits: list[Any] = [count - 1, *parts.offset.values()]
    for axis, (low, high) in algebra.reach(parts.shard + parts.replica).items():
        offset: Any = parts.offset.get(axis, 0)
        limits += [low, high, low + offset, high + offset]
    if not all(-_INT64 <= limit < _INT64 for limit in limits):
        raise LayoutError(f"{what}: the coordinates of {parts} do not fit in 64 bits")


def steps(iters: Iters, axis: Axis, offset: int = 0) -> IntArray:
    """Return what the iters add on one axis, for every flat index.

    >>> from layoutalg.algebra.iters import Iter
    >>> steps((Iter(2, 8), Iter(2, 1)), Axis.get("m"))
    array([0, 1, 8, 9])
    """
    values: IntArray = np.full(1, offset, dtype=np.int64)
    for it in iters:
        stride = it.stride if it.axis is axis else 0
        digits = np.arange(it.extent, dtype=np.int64)
        values = (values[:, None] + digits * stride).reshape(-1)
    return values


def table(parts: HasParts, shape: Sequence[Size], replicas: bool = False) -> dict[str, IntArray]:
    """Return per axis an array of ``shape`` with the coordinate of every element.

    ``table(L, s)[axis][c] == L.apply(*c, shape=s)[axis]``. With ``replicas`` each array has one
    more dimension, last: one entry per replica, the first is the base; its length is 1 where the
    layout has none.
    """
    check_concrete(parts, "table")
    check_sizes(parts, shape, "table")
    copies = product(it.extent for it in parts.replica) if replicas else 1
    check_budget(
        "table", total_size(parts) * copies, ENTRIES, "entries on an axis", "Slice the layout first"
    )  # fmt: skip
    axes = dict.fromkeys(it.axis for it in parts.shard)
    axes.update(dict.fromkeys(parts.offset))
    if replicas:
        axes.update(dict.fromkeys(it.axis for it in parts.replica))
    result = {}
    for axis in axes:
        base = steps(parts.shard, axis, int(parts.offset.get(axis, 0))).reshape(tuple(shape))
        result[axis.name] = base[..., None] + steps(parts.replica, axis) if replicas else base
    return result
