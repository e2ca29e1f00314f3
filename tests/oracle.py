"""The definitions, as loops over all coordinates, in plain NumPy; imports nothing of ours.

A layout is ``{"shard": [[extent, stride, axis], ...], "replica": [...], "offset": {axis: n}}``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

Layout = dict[str, Any]


def digits(x: int, extents: Sequence[int]) -> list[int]:
    """Split x row-major; the first digit keeps the whole quotient."""
    found = []
    for extent in reversed(extents[1:]):
        found.append(x % extent)
        x //= extent
    if extents:
        found.append(x)
    return found[::-1]


def flat(coord: Sequence[int], shape: Sequence[int]) -> int:
    """Return the row-major index of a coordinate."""
    x = 0
    for c, extent in zip(coord, shape, strict=True):
        x = x * extent + c
    return x


def size(layout: Layout) -> int:
    """Return the number of elements."""
    total = 1
    for extent, _, _ in layout.get("shard", []):
        total *= extent
    return total


def base(layout: Layout, x: int) -> dict[str, int]:
    """Return the base coordinate of the flat index x; axes at 0 are left out."""
    value: dict[str, int] = dict(layout.get("offset", {}))
    iters = layout.get("shard", [])
    for digit, (_, stride, axis) in zip(digits(x, [e for e, _, _ in iters]), iters, strict=True):
        value[axis] = value.get(axis, 0) + digit * stride
    return {axis: v for axis, v in value.items() if v}


def image(layout: Layout, x: int) -> frozenset[tuple[tuple[str, int], ...]]:
    """Return the set of all coordinates of the flat index x, replicas included."""
    found = set()
    replica = layout.get("replica", [])
    for steps in itertools.product(*(range(e) for e, _, _ in replica)):
        value = base(layout, x)
        for step, (_, stride, axis) in zip(steps, replica, strict=True):
            value[axis] = value.get(axis, 0) + step * stride
        found.add(tuple(sorted((axis, v) for axis, v in value.items() if v)))
    return frozenset(found)


THREADS = {"laneid": 1, "wid_in_wg": 32, "warpid": 32, "tid_in_wg": 1, "wgid": 128, "tx": 1}


def thread_number(place: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Return a coordinate with its thread axes added up to one number of the thread in its CTA."""
    total: dict[str, int] = {}
    for axis, value in place:
        name, unit = ("thread", THREADS[axis]) if axis in THREADS else (axis, 1)
        total[name] = total.get(name, 0) + value * unit
    return tuple(sorted((axis, value) for axis, value in total.items() if value))


def as_dict(plain: tuple[list[Any], list[Any], dict[str, int]]) -> Layout:
    """Turn (shard, replica, offset) into a layout of this module."""
    shard, replica, offset = plain
    return {
        "shard": [list(i) for i in shard],
        "replica": [list(i) for i in replica],
        "offset": offset,
    }


def slice_holds(case: dict[str, Any], plain: Any) -> bool:
    """Say whether a sliced layout says of each element of the region what the whole says.

    Thread axes are compared as one thread number, so that it does not matter whether an operation
    has fused them.
    """
    piece = as_dict(plain)
    lengths = [e - b for b, e in case["region"]]
    if size(piece) != flat([n - 1 for n in lengths], lengths) + 1:
        return False
    for x, coord in enumerate(itertools.product(*(range(n) for n in lengths))):
        moved = [c + b for c, (b, _) in zip(coord, case["region"], strict=True)]
        whole = image(case["layout"], flat(moved, case["shape"]))
        if set(map(thread_number, image(piece, x))) != set(map(thread_number, whole)):
            return False
    return True
