"""Counter-examples: the coordinates of an element that two layouts send to different sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from layoutalg.algebra.axis import Axis
from layoutalg.algebra.parts import HasParts, total_size
from layoutalg.algebra.tables import IntArray, check_concrete, steps
from layoutalg.proofs.normal_form import (
    Normal,
    axes_of,
    every_place,
    is_small,
    normal,
    place_of,
    value_at,
)
from layoutalg.proofs.verdict import Place
from layoutalg.sizes.budget import ENTRIES, check_budget
from layoutalg.sizes.size import Size, equal, is_int, less, product

_SHOWN = 8  # up to so many places of one element are listed
Places = tuple[Place, ...]


def told(left: HasParts, right: HasParts, at: Size) -> tuple[Places, Places]:
    """Return where two layouts send an element that they send to different sets of coordinates.

    Both whole sets where these are short, else one coordinate that only one layout has. Where the
    symbols decide of none, the lowest and the highest of each.

    >>> from layoutalg import parse
    >>> told(parse("S[4:1] + R[16:4]"), parse("S[4:1] + R[16:8]"), 0)
    (((('m', 4),),), ())
    """
    one, other = every_place(left, at), every_place(right, at)
    short = one is not None and other is not None and max(len(one), len(other)) <= _SHOWN
    if one is not None and other is not None and (short or is_small(left, right)):
        return apart(one, other)
    forms = normal(left), normal(right)
    corners = [_corners(form, at) for form in forms]
    alone = next(_alone(axes_of(left, right), forms, corners), None)
    if alone is not None:
        return alone
    both = [tuple(dict.fromkeys(map(place_of, pair))) for pair in corners]
    return both[0], both[1]


def apart(one: Sequence[Place], other: Sequence[Place]) -> tuple[Places, Places]:
    """Return two sets of coordinates if they are short, else a coordinate in only one of them.

    >>> apart([(("m", 0),)], [(("m", 0),), (("m", 4),)])
    (((('m', 0),),), ((('m', 0),), (('m', 4),)))
    """
    if max(len(one), len(other)) <= _SHOWN:
        return tuple(one), tuple(other)
    keys = [{_key(place): place for place in places} for places in (one, other)]
    for index in (0, 1):
        alone = next((p for key, p in keys[index].items() if key not in keys[1 - index]), None)
        if alone is not None:
            return ((alone,), ()) if index == 0 else ((), (alone,))
    raise AssertionError(f"the sets are equal: {one}")


def _key(place: Place) -> frozenset[tuple[str, Size]]:
    return frozenset(pair for pair in place if pair[1] != 0)


def _corners(form: Normal, at: Size) -> tuple[dict[Axis, Any], dict[Axis, Any]]:
    """Return the coordinates of an element with all replica digits lowest, and all highest."""
    low = value_at(form.shard, form.origin, at)
    high = dict(low)
    for axis, copies in form.replica.items():
        for it in copies:
            high[axis] = high.get(axis, 0) + (it.extent - 1) * it.stride
    return low, high


def _alone(
    axes: Sequence[Axis],
    forms: Sequence[Normal],
    corners: Sequence[tuple[Mapping[Axis, Any], Mapping[Axis, Any]]],
) -> Iterator[tuple[Places, Places]]:
    """Yield coordinates of only one layout: beyond a corner of the other, or between."""
    lows, highs = zip(*corners, strict=True)
    for (one, other), sign in ((lows, 1), (highs, -1)):
        for axis in axes:
            a, b = sign * one.get(axis, 0), sign * other.get(axis, 0)
            if equal(a, b) is False and (beyond := less(a, b)) is not None:
                yield ((place_of(one),), ()) if beyond else ((), (place_of(other),))
    for axis in axes:
        both = [form.replica.get(axis, ()) for form in forms]
        if not is_int(*(size for its in both for it in its for size in (it.extent, it.stride))):
            continue
        sums = [np.unique(steps(its, axis)) for its in both]
        for index, low in enumerate(lows):
            alone = np.setdiff1d(sums[index], sums[1 - index])
            if alone.size:
                place = (place_of({**low, axis: low.get(axis, 0) + int(alone[0])}),)
                yield (place, ()) if index == 0 else ((), place)


# -- tables of coordinates ------------------------------------------------------------------------


def different_sets(
    left: Any, right: Any, shape: tuple[Size, ...]
) -> tuple[IntArray, tuple[Places, Places]]:
    """Return the elements that two concrete layouts send to different sets of coordinates.

    Args:
        left: anything with ``table(shape, replicas=True)``: swizzled or not.
        right: as ``left``.
        shape: logical extents.

    Returns:
        The flat indices of these elements, and what :func:`apart` says of the first.

    Raises:
        LayoutError: there are too many coordinates. Undecided: a size is symbolic.

    >>> from layoutalg import ComposeLayout, parse
    >>> L = ComposeLayout(0, 1, 1, parse("S[4:1] + R[2:4]"))
    >>> different_sets(L, L.over(parse("S[4:1]")), (4,))[0].tolist()
    [0, 1, 2, 3]
    """
    for side in (left, right):
        tile = getattr(side, "tile_layout", side)
        count = total_size(tile) * product(it.extent for it in tile.replica)
        check_concrete(tile, "prove")
        check_budget("prove", count, ENTRIES, "places", "Prove a slice")
    tables = [side.table(shape, replicas=True) for side in (left, right)]
    size = int(product(shape))
    names = list(dict.fromkeys((*tables[0], *tables[1])))
    rows = [_as_rows(table, names, size) for table in tables]
    places, numbers = np.unique(
        np.concatenate([row.reshape(-1, len(names)) for row in rows]), axis=0, return_inverse=True
    )
    halves = np.split(numbers.reshape(-1), [rows[0].shape[0] * rows[0].shape[1]])
    width = max(row.shape[1] for row in rows)
    held = [_distinct(half.reshape(size, -1), width) for half in halves]
    wrong = np.flatnonzero((held[0] != held[1]).any(axis=1))
    if not wrong.size:
        return wrong, ((), ())
    listed = [
        [
            place_of({Axis.get(n): int(v) for n, v in zip(names, places[k], strict=True)})
            for k in side[wrong[0]][::-1]
            if k >= 0
        ]
        for side in held
    ]
    return wrong, apart(*listed)


def _as_rows(table: Mapping[str, IntArray], names: Sequence[str], size: int) -> IntArray:
    """Return a table with replicas as an array (elements, copies, axes)."""
    copies = next((x.shape[-1] for x in table.values()), 1)
    still = np.zeros((size, copies), dtype=np.int64)
    columns = [table[n].reshape(size, copies) if n in table else still for n in names]
    return np.stack(columns, axis=-1) if names else np.zeros((size, copies, 0), dtype=np.int64)


def _distinct(numbers: IntArray, width: int) -> IntArray:
    """Return the distinct numbers of each row in descending order, then -1 up to a width.

    >>> _distinct(np.array([[3, 1, 3]]), 4).tolist()
    [[3, 1, -1, -1]]
    """
    ordered = np.sort(numbers, axis=1)
    again = np.zeros(ordered.shape, dtype=bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    ordered[again] = -1
    ordered = -np.sort(-ordered, axis=1)
    return np.pad(ordered, ((0, 0), (0, width - numbers.shape[1])), constant_values=-1)
