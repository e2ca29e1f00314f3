"""Slices: the iters of a range of one logical dimension, wherever a layout can say them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from layoutalg import iters as algebra
from layoutalg.axis import Axis
from layoutalg.errors import LayoutError, Undecided
from layoutalg.iters import Iter, Iters
from layoutalg.size import Size, decide, divides, equal, less, quotient, tidy

_SEARCH_LIMIT = 1 << 22  # elements of one dimension that `refold` is asked to look at


def slice_group(group: Iters, begin: Size, end: Size) -> tuple[Iters, dict[Axis, Any]] | None:
    """Return the iters and the offset of positions ``begin .. end - 1`` of a group of iters.

    The answer maps ``x`` to ``group(begin + x)`` for ``0 <= x < end - begin``; None where no tuple
    of iters does.

    Raises:
        Undecided: it depends on a symbol.

    >>> slice_group((Iter(8, 10), Iter(8, 1)), 8, 24)
    ((Iter(2, 10, 'm'), Iter(8, 1, 'm')), {m: 10})
    """
    group = algebra.canonical(group)
    length = tidy(end - begin)
    if len(group) == 1:
        only = group[0]
        return (Iter(length, only.stride, only.axis),), {only.axis: begin * only.stride}
    digits = algebra.split(begin, algebra.extents(group))
    offset: dict[Axis, Any] = {}
    for it, digit in zip(group, digits, strict=True):
        offset[it.axis] = tidy(offset.get(it.axis, 0) + digit * it.stride)
    found = _peel(group, digits, length)
    return None if found is None else (found, offset)


def _peel(group: Iters, digits: list[Any], length: Any) -> Iters | None:
    """Peel whole fast iters, then cut the first that is not whole: the pivot."""
    question = ""
    peeled: list[Iter] = []
    for pivot in range(len(group) - 1, -1, -1):
        it, digit = group[pivot], digits[pivot]
        starts, whole = equal(digit, 0), divides(it.extent, length)
        if starts and whole and not (pivot == 0 and less(it.extent, length)):
            peeled.insert(0, it)
            length = quotient(length, it.extent)
            continue
        if length == 1 and peeled and starts:
            return (Iter(1, it.stride, it.axis), *peeled)
        inside = less(digit + length, it.extent + 1)
        if inside:
            return (Iter(length, it.stride, it.axis), *peeled)
        if starts is None or (starts and whole is None) or inside is None:
            question = (
                f"slice: does the range of length {length} from digit {digit} stay inside the "
                f"iter {it.extent}:{it.stride}@{it.axis}"
            )
        crossing = _cross(group, digits, length, pivot)
        if crossing is not None:
            return (*crossing, *peeled)
        concrete = algebra.extents(group[: pivot + 1]) + tuple(digits[: pivot + 1])
        if type(length) is int and all(type(value) is int for value in concrete):
            refolded = _refold(group[: pivot + 1], digits[: pivot + 1], length)
            return None if refolded is None else (*refolded, *peeled)
        decide(None if question else False, question, "substitute the symbols")
        return None
    return tuple(peeled) if equal(length, 1) else None


def _cross(group: Iters, digits: list[Any], length: Any, pivot: int) -> Iters | None:
    """Cross one carry: the second half of the range starts where the next slower digit steps."""
    if pivot == 0 or divides(2, length) is not True:
        return None
    fast, slow = group[pivot], group[pivot - 1]
    half = quotient(length, 2)
    if (
        slow.axis is not fast.axis
        or equal(digits[pivot] + half, fast.extent) is not True
        or less(digits[pivot - 1] + 1, slow.extent) is not True
    ):
        return None
    return (
        Iter(2, slow.stride - digits[pivot] * fast.stride, fast.axis),
        Iter(half, fast.stride, fast.axis),
    )


def _refold(group: Iters, digits: list[int], length: int) -> Iters | None:
    """Decide the general concrete case.

    A run that every digit, start and length shares is cut off first; what remains is written down
    and folded back into iters, if it has any.
    """
    fast, digit = group[-1], digits[-1]
    common = math.gcd(math.gcd(int(fast.extent), digit), length)
    if common > 1:
        inner = Iter(common, fast.stride, fast.axis)
        outer = Iter(int(fast.extent) // common, fast.stride * common, fast.axis)
        if outer.extent == 1:
            rest = _peel(group[:-1], digits[:-1], length // common) if len(group) > 1 else None
        else:
            rest = _peel((*group[:-1], outer), [*digits[:-1], digit // common], length // common)
        return None if rest is None else (*rest, inner)
    if length > _SEARCH_LIMIT:
        raise Undecided(
            f"slice: a range of {length} positions from digit {digit} of the iter "
            f"{fast.extent}:{fast.stride}@{fast.axis} is too long to search; slice it in parts"
        )
    start = algebra.flatten(digits, algebra.extents(group))
    index = np.arange(start, start + length, dtype=np.int64)
    parts = algebra.split(index, algebra.extents(group))
    values: dict[Axis, Any] = {}
    for it, part in zip(group, parts, strict=True):
        values[it.axis] = values.get(it.axis, 0) + part * np.int64(it.stride)
    return refold(values, length, group[-1].axis)


def refold(values: Mapping[Axis, Any], length: int, axis: Axis) -> Iters | None:
    """Return the canonical iters whose map is the sequence ``values``, less its first; or None.

    Args:
        values: per axis, an int array of ``length`` coordinates.
        length: how many positions there are.
        axis: the axis of a unit or broadcast iter.

    The fastest iter must be as long as the first run of equal steps, for if it were shorter the
    next would fuse with it; so the search has no choice to make.

    >>> refold({Axis.get("m"): np.array([5, 6, 15, 16])}, 4, Axis.get("m"))
    (Iter(2, 10, 'm'), Iter(2, 1, 'm'))
    """
    rows = {name: np.asarray(row, dtype=np.int64) - row[0] for name, row in values.items()}
    found: list[Iter] = []
    while length > 1:
        moves = {name: int(row[1]) for name, row in rows.items() if row[1] != 0}
        if len(moves) > 1:
            return None
        name, stride = next(iter(moves.items())) if moves else (axis, 0)
        line = {a: np.arange(length) * (stride if a is name else 0) for a in rows}
        off = np.zeros(length, dtype=bool)
        for a, row in rows.items():
            off |= row != line[a]
        run = int(np.argmax(off)) if off.any() else length
        if length % run:
            return None
        starts = {a: row.reshape(-1, run)[:, :1] for a, row in rows.items()}
        if any(
            (row.reshape(-1, run) != starts[a] + line[a][:run]).any() for a, row in rows.items()
        ):
            return None
        found.insert(0, Iter(run, stride, name))
        rows = {a: start[:, 0] for a, start in starts.items()}
        length //= run
    return tuple(found) or (Iter(1, 1, axis),)


def check_region(begin: Size, end: Size, extent: Size, dim: int) -> None:
    """Refuse a range that is empty or leaves its dimension.

    Raises:
        LayoutError: not ``0 <= begin < end <= extent``; symbols are taken as in range where
            nothing speaks against it.
    """

    if less(begin, 0) or less(extent, end):
        raise LayoutError(
            f"slice: the range {begin}:{end} of dimension {dim} must lie in 0:{extent}"
        )
    if less(begin, end) is False:
        raise LayoutError(f"slice: the range {begin}:{end} of dimension {dim} is empty")
