"""Scopes, fused axes and places of elements, as SEMANTICS defines them; imports nothing of ours.

Layouts are those of ``tests.support.oracle``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from tests.support.oracle import Layout, as_dict, flat, image, size, thread_number

Place = tuple[tuple[str, int], ...]
Places = list[frozenset[Place]]  # of each element, in row-major order

SCOPES = ("thread", "warp", "warpgroup", "cta", "cluster")
COUNTS = {
    "laneid": ("thread", "warp"),
    "tid_in_wg": ("thread", "warpgroup"),
    "tx": ("thread", "cta"),
    "wid_in_wg": ("warp", "warpgroup"),
    "warpid": ("warp", "cta"),
    "wgid": ("warpgroup", "cta"),
    "cbx": ("cta", "cluster"),
    "cby": ("cta", "cluster"),
    "cbz": ("cta", "cluster"),
    "bx": ("cta", "thread"),
    "by": ("cta", "thread"),
    "bz": ("cta", "thread"),
}
"""What each thread axis counts, and inside what: SEMANTICS section 1."""
FUSED = {
    ("laneid", "thread", "warpgroup"): ("tid_in_wg", 1),
    ("laneid", "thread", "cta"): ("tx", 1),
    ("wid_in_wg", "thread", "warpgroup"): ("tid_in_wg", 32),
    ("wid_in_wg", "thread", "cta"): ("tx", 32),
    ("wid_in_wg", "warp", "cta"): ("warpid", 1),
    ("warpid", "thread", "cta"): ("tx", 32),
    ("tid_in_wg", "thread", "cta"): ("tx", 1),
    ("wgid", "thread", "cta"): ("tx", 128),
    ("wgid", "warp", "cta"): ("warpid", 4),
}
"""Axis and scope pair of the layout -> the axis that it is part of, and its unit there: 1.1."""

LARGE = 1 << 16
"""Of layouts with more elements, a sample is compared."""
EMPTY: Layout = {"shard": [], "replica": [], "offset": {}}


# -- scopes -----------------------------------------------------------------------------------


class IllFormedError(Exception):
    """The thread axes of a layout do not fit together."""


def pair_of(layout: Layout) -> tuple[str, str] | None:
    """Return (subscope, scope): SEMANTICS section 5."""
    axes = [a for _, _, a in layout["shard"]]
    if not any(a in COUNTS for a in axes):
        return None
    axes += [a for _, _, a in layout.get("replica", [])] + list(layout.get("offset", {}))
    links: dict[str, str] = {}
    for inner, outer in (COUNTS[a] for a in axes if a in COUNTS):
        if links.setdefault(inner, outer) != outer:
            raise IllFormedError("conflicting")
    narrow = wide = min(links, key=SCOPES.index)
    for _ in links:
        if wide not in links:
            raise IllFormedError("disconnected")
        wide = links[wide]
    return narrow, wide


def is_well_formed(layout: Layout) -> bool:
    try:
        pair_of(layout)
    except IllFormedError:
        return False
    return True


def pair_or_none(layout: Layout) -> tuple[str, str]:
    """Return the scope pair of a well-formed layout on thread axes, else one that fuses nothing."""
    try:
        return pair_of(layout) or ("", "")
    except IllFormedError:
        return "", ""


def without_units(layout: Layout) -> Layout:
    """Drop unit iters, but for one where there is no other, and zero offsets."""
    kept = [list(it) for it in layout["shard"] if it[0] != 1]
    if not kept and layout["shard"]:
        kept = [[1, 1, layout["shard"][0][2]]]
    offset = {axis: n for axis, n in layout.get("offset", {}).items() if n}
    return {"shard": kept, "replica": layout.get("replica", []), "offset": offset}


def fused(layout: Layout) -> Layout:
    """Rename axes that are part of a wider one, where the layout is well-formed."""
    narrow, wide = pair_or_none(layout)
    offset: dict[str, int] = {}
    for axis, value in layout.get("offset", {}).items():
        name, unit = FUSED.get((axis, narrow, wide), (axis, 1))
        offset[name] = offset.get(name, 0) + value * unit

    def renamed(iters: Iterable[Sequence[Any]]) -> list[list[Any]]:
        named = [(e, s, FUSED.get((a, narrow, wide), (a, 1))) for e, s, a in iters]
        return [[e, s * unit, name] for e, s, (name, unit) in named]

    return {
        "shard": renamed(layout["shard"]),
        "replica": renamed(layout.get("replica", [])),
        "offset": offset,
    }


def operand(layout: Layout, target: str | None) -> Layout:
    """Return a layout as tile and direct_sum take it: without units, in fused axes under CUDA.

    Where units are all that links two scopes, they stay until the axes are fused.
    """
    kept = without_units(layout)
    if lost_link(layout):
        kept = together(layout, EMPTY)
        kept["shard"] = [it for it in kept["shard"] if it[0] != 1 or it[2] in COUNTS]
    return without_units(fused(kept)) if target else kept


def lost_link(layout: Layout) -> bool:
    """Say whether a layout is well-formed only by its unit iters and zero offsets."""
    return is_well_formed(layout) and not is_well_formed(without_units(layout))


# -- places -----------------------------------------------------------------------------------


def places(layout: Layout) -> Places:
    return [image(layout, x) for x in range(size(layout))]


def as_threads(found: Places, target: str | None) -> Places:
    """Under CUDA, put the number of the thread in its CTA in place of its axes."""
    return [frozenset(map(thread_number, each)) for each in found] if target else found


def named_places(layout: Layout, target: str | None) -> Places:
    return as_threads(places(layout), target)


def same_map(left: Layout, right: Layout, target: str | None) -> bool:
    """Say whether two layouts put each element in the same places; a sample of very many."""
    count = size(left)
    elements = range(count) if count <= LARGE else [count * k // 997 for k in range(997)]
    return count == size(right) and all(
        as_threads([image(left, x)], target) == as_threads([image(right, x)], target)
        for x in elements
    )


def scope_of(layout: Layout) -> tuple[str, str]:
    """Return what the iters that move count, and inside what; a pair of nothing if they do not."""
    bare = operand(layout, None)
    moves = any(e != 1 and a in COUNTS for e, _, a in bare["shard"])
    return pair_or_none(bare) if moves else ("", "")


def unit_of(layout: Layout) -> str | None:
    """Return the smallest unit that the thread axes count; None where no iter moves along one."""
    bare = without_units(layout)
    if not any(e != 1 and a in COUNTS for e, _, a in bare["shard"]):
        return None
    axes = [a for _, _, a in bare["shard"] + bare["replica"]] + list(bare["offset"])
    return min((COUNTS[a][0] for a in axes if a in COUNTS), key=SCOPES.index)


def span(layout: Layout, axis: str) -> int:
    iters = [*layout["shard"], *layout.get("replica", [])]
    reached = sum((e - 1) * s for e, s, a in iters if a == axis)
    return int(1 + reached + layout.get("offset", {}).get(axis, 0))


def in_tiles(inner: Layout, outer: Layout, *, replicas: bool = True) -> Layout:
    """Return ``outer`` in units of inner tiles; replicas too, or, as TVM has it, not."""
    unit = {a: span(inner, a) for _, _, a in inner["shard"]}

    def scaled(iters: Iterable[Sequence[Any]]) -> list[list[Any]]:
        return [[e, s * unit.get(a, 1), a] for e, s, a in iters]

    copies = outer.get("replica", [])
    moved = scaled(copies) if replicas else copies
    return {"shard": scaled(outer["shard"]), "replica": moved, "offset": outer.get("offset", {})}


def sums(
    left: Layout, right: Layout, left_shape: Sequence[int], right_shape: Sequence[int]
) -> Places:
    """Return ``Left(l) + Right(r)`` at every ``t = l*right_shape + r``."""
    lefts, rights = places(left), places(right)
    found = []
    shape = [a * b for a, b in zip(left_shape, right_shape, strict=True)]
    for t in itertools.product(*map(range, shape)):
        at = flat([a // n for a, n in zip(t, right_shape, strict=True)], left_shape)
        within = flat([a % n for a, n in zip(t, right_shape, strict=True)], right_shape)
        both = itertools.product(lefts[at], rights[within])
        found.append(frozenset(added(p, q) for p, q in both))
    return found


def added(left: Place, right: Place) -> Place:
    total = dict(left)
    for axis, value in right:
        total[axis] = total.get(axis, 0) + value
    return tuple(sorted((axis, value) for axis, value in total.items() if value))


def tilings(inner: Layout, outer: Layout, outer_shape: Sequence[int], inner_shape: Sequence[int],
            target: str | None, *, loose: bool = False) -> list[Places]:  # fmt: skip
    """Return what ``inner.tile(outer)`` may mean, the definition first.

    Under CUDA operands are fused; where fused they do not fit together, or where the caller wants
    to recognise either (``loose``), they stand as they are written. ``loose`` also allows outer
    replicas that are not in units of tiles, as TVM's tile writes them.
    """
    found = []
    for axes in (target, None) if target else (None,):
        tile, copies = operand(inner, axes), operand(outer, axes)
        if not (loose or axes is None or is_well_formed(together(tile, copies))):
            continue
        for replicas in (True, False) if loose and copies["replica"] else (True,):
            moved = in_tiles(tile, copies, replicas=replicas)
            found.append(as_threads(sums(moved, tile, outer_shape, inner_shape), target))
    return found if loose else found[:1]


def together(first: Layout, second: Layout) -> Layout:
    """Return a layout on the axes of both."""
    offset = dict(first.get("offset", {}))
    for axis, value in second.get("offset", {}).items():
        offset[axis] = offset.get(axis, 0) + value
    return {
        "shard": [*first["shard"], *second["shard"]],
        "replica": [*first.get("replica", []), *second.get("replica", [])],
        "offset": offset,
    }


def fits_together(answer: Any, *operands: Layout) -> bool:
    """Say whether an answer is well-formed: without units, or by zero offsets of its operands."""
    zeros = {a: 0 for each in operands for a, n in each.get("offset", {}).items() if n == 0}
    found = as_dict(answer)
    linked = together({"shard": [], "offset": zeros}, found)
    return any(map(is_well_formed, (found, without_units(found), linked)))
