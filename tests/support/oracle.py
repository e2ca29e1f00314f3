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


def every(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Return all coordinates of a shape, in row-major order."""
    return list(itertools.product(*(range(extent) for extent in shape)))


def images(layout: Layout) -> list[frozenset[tuple[tuple[str, int], ...]]]:
    """Return the sets of coordinates of all elements, in flat order."""
    return [image(layout, x) for x in range(size(layout))]


def threads_of(layout: Layout) -> list[set[tuple[tuple[str, int], ...]]]:
    """Return the same with thread axes added up to thread numbers."""
    return [set(map(thread_number, found)) for found in images(layout)]


def boundaries(extents: Sequence[int]) -> list[int]:
    """Return the sizes of the inner parts of a row-major split: products from the last extent."""
    return [flat([e - 1 for e in extents[at:]], extents[at:]) + 1 for at in range(len(extents) + 1)]


def groups(extents: Sequence[int], shape: Sequence[int]) -> bool:
    """Say whether the shape cuts the extents: every boundary of it ends at a divisor of an iter."""
    own = boundaries(extents)
    if own[0] != boundaries(shape)[0] or (shape and not extents):
        return False
    for cut in boundaries(shape):
        inner = max(b for b in own if b <= cut)
        outer = min(b for b in own if b >= cut)
        if cut % inner or outer % cut:
            return False
    return True


def tiled(
    inner: Layout,
    outer: Layout,
    inner_shape: Sequence[int],
    o: Sequence[int],
    n: Sequence[int],
    outer_shape: Sequence[int],
) -> frozenset[tuple[tuple[str, int], ...]]:
    """Return where element (o, n) of a tiling is: ``span * Outer(o) + Inner(n) + offsets``."""
    span = {
        axis: 1
        + sum((e - 1) * s for e, s, a in inner["shard"] + inner["replica"] if a == axis)
        + inner["offset"].get(axis, 0)
        for axis in {a for e, _, a in inner["shard"] if e > 1} or {inner["shard"][0][2]}
    }
    copies = {
        "shard": [[e, s * span.get(a, 1), a] for e, s, a in outer["shard"]],
        "replica": [[e, s * span.get(a, 1), a] for e, s, a in outer["replica"]],
        "offset": outer["offset"],
    }
    return summed(copies, inner, flat(o, outer_shape), flat(n, inner_shape))


def summed(left: Layout, right: Layout, x: int, y: int) -> frozenset[tuple[tuple[str, int], ...]]:
    """Return every sum of a place of x in the left layout and a place of y in the right one."""
    found = set()
    for one in image(left, x):
        for other in image(right, y):
            total = dict(one)
            for axis, value in other:
                total[axis] = total.get(axis, 0) + value
            found.add(tuple(sorted((axis, v) for axis, v in total.items() if v)))
    return frozenset(found)


def expressible(places: Sequence[dict[str, int]]) -> bool:
    """Say whether any tuple of iters, behind an offset, runs through these places in order.

    Every extent is tried for the fastest iter, and then the same for where its runs begin.
    """
    axes = sorted({axis for place in places for axis in place})
    rows = [tuple(place.get(axis, 0) for axis in axes) for place in places]

    def step(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(y - x for x, y in zip(a, b, strict=True))

    def says(rows: Sequence[tuple[int, ...]]) -> bool:
        count = len(rows)
        if count == 1:
            return True
        move = step(rows[0], rows[1])
        if sum(value != 0 for value in move) > 1:
            return False
        for run in range(2, count + 1):
            if (
                count % run == 0
                and all(
                    step(rows[x], rows[x + 1]) == move for x in range(count - 1) if (x + 1) % run
                )
                and says(rows[::run])
            ):
                return True
        return False

    return says(rows)


def swizzled(address: int, per_element: int, swizzle_len: int, atom_len: int, inner: bool) -> int:
    """Return the swizzled address, bit by bit."""
    bits = [address >> at & 1 for at in range(max(address.bit_length(), 1) + 64)]
    out = list(bits)
    for at in range(swizzle_len):
        low, high = per_element + at, per_element + at + atom_len
        if inner:
            out[low] = bits[low] ^ bits[high]
        else:
            out[high] = bits[high] ^ bits[low]
    return sum(bit << at for at, bit in enumerate(out))
