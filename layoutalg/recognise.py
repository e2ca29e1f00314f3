"""Recognisers: given a tiled layout, or a sum, and one operand, find the other operand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from layoutalg import iters as algebra
from layoutalg.axis import SCOPES, Axis, breadth, m
from layoutalg.errors import LayoutError
from layoutalg.iters import Iter, Iters
from layoutalg.parts import (
    HasParts,
    Parts,
    canonicalize,
    check_ranks,
    remove_each,
    same_iters,
    scaled,
    scope,
    subtract_offsets,
    tile_scale,
    unscaled,
    well_formed,
    woven,
)
from layoutalg.refine import try_group
from layoutalg.scope import Target, split_axis
from layoutalg.size import Size, decide, divides, is_int, less, quotient


def outer_of(
    inner: HasParts,
    tiled: HasParts,
    tiled_shape: Sequence[Size],
    inner_shape: Sequence[Size],
    target: Target,
) -> Parts | None:
    """Return the outer layout of ``tiled``: see ``TileLayout.is_tile_inner``."""
    counts = _counts(tiled_shape, inner_shape, "is_tile_inner")
    found = _outer_of(inner, tiled, counts, inner_shape, target)
    if found is not None or target is None or not _groups(tiled, _pairs(counts, inner_shape)):
        return found
    found = _outer_of(inner, tiled, counts, inner_shape, None)
    if found is None:
        return None
    again = woven(inner, found, counts, inner_shape, target, _in_units)
    return found if _same_under(again, tiled, target) else None


def _outer_of(
    inner: HasParts,
    tiled: HasParts,
    counts: Sequence[Size],
    inner_shape: Sequence[Size],
    target: Target,
) -> Parts | None:
    """Return the outer layout, read off in fused and cut axes, or (no target) in those written."""
    tile = canonicalize(inner, target)
    whole = _cut_to(tile, canonicalize(tiled, target), target, at_inner=True)
    if whole is None:
        return None
    rest = _factor(whole, _pairs(counts, inner_shape), tile, inner_shape, at=1)
    if rest is None:
        return None
    scale = tile_scale(tile)
    shard, replica = unscaled(rest.shard, scale), unscaled(rest.replica, scale)
    return None if shard is None or replica is None else Parts(shard, replica, rest.offset)


def inner_of(
    outer: HasParts,
    tiled: HasParts,
    tiled_shape: Sequence[Size],
    outer_shape: Sequence[Size],
    target: Target,
) -> Parts | None:
    """Return the inner layout of ``tiled``: see ``TileLayout.is_tile_outer``.

    The strides of ``outer`` stand in ``tiled`` multiplied by the span of the tile that is sought,
    so extents and axes are compared first, and the answer is tiled again to compare the rest.
    """
    inner_shape = _counts(tiled_shape, outer_shape, "is_tile_outer")
    written = target is not None and _groups(tiled, _pairs(outer_shape, inner_shape))
    for moved in (_in_units, _in_units_as_tvm) if outer.replica else (_in_units,):
        for axes in (target, None) if written else (target,):
            for tile in _inner_candidates(outer, tiled, outer_shape, inner_shape, axes):
                again = woven(tile, outer, outer_shape, inner_shape, target, moved)
                if _same_under(again, tiled, target):
                    return tile
    return None


def _inner_candidates(
    outer: HasParts,
    tiled: HasParts,
    outer_shape: Sequence[Size],
    inner_shape: Sequence[Size],
    target: Target,
) -> Iterator[Parts]:
    """Yield what may stand inside ``outer``, read off in fused and cut axes or in those written."""
    copies = canonicalize(outer, target)
    whole = _cut_to(copies, canonicalize(tiled, target), target, at_inner=False)
    if whole is None:
        return
    pieces, seps = algebra.group(whole.shard, _pairs(outer_shape, inner_shape), whole)
    own, own_seps = algebra.group(copies.shard, outer_shape, copies)
    rest: list[Iter] = []
    for d in range(len(outer_shape)):
        mine = own[own_seps[d] : own_seps[d + 1]]
        theirs = pieces[seps[2 * d] : seps[2 * d + 1]]
        if len(mine) != len(theirs) or any(
            a.extent != b.extent or (a.extent != 1 and a.axis is not b.axis)
            for a, b in zip(mine, theirs, strict=True)
        ):
            return
        rest.extend(pieces[seps[2 * d + 1] : seps[2 * d + 2]])
    offset = subtract_offsets(whole.offset, copies.offset)
    for replica in _without(whole.replica, copies.replica):
        for shard in _unit_axes(tuple(rest), copies):
            yield Parts(shard, replica, offset)


def _unit_axes(shard: Iters, copies: HasParts) -> Iterator[Iters]:
    """Yield the shard; one of a single element in turn on each axis, which says what is a unit."""
    yield shard
    if all(it.extent == 1 for it in shard):
        for axis in dict.fromkeys((m, *(it.axis for it in copies.shard))):
            yield tuple(Iter(1, 1, axis) for _ in shard)


def _in_units(tile: HasParts, copies: HasParts) -> Parts:
    """Return the copies in units of the tile, whatever its span."""
    scale = tile_scale(tile)
    return Parts(scaled(copies.shard, scale), scaled(copies.replica, scale), copies.offset)


def _in_units_as_tvm(tile: HasParts, copies: HasParts) -> Parts:
    """Return the same, with replicas as they are: so does TVM's tile write them."""
    return Parts(scaled(copies.shard, tile_scale(tile)), copies.replica, copies.offset)


def _without(iters: Iters, gone: Iters) -> Iterator[Iters]:
    """Yield what is left in each way of taking away an iter of the extent and axis of each."""
    if not gone:
        yield iters
        return
    first, others = gone[0], gone[1:]
    tried: list[Iter] = []
    for at, it in enumerate(iters):
        if it.extent == first.extent and it.axis is first.axis and it not in tried:
            tried.append(it)
            yield from _without((*iters[:at], *iters[at + 1 :]), others)


def other_summand(
    part: HasParts,
    total: HasParts,
    interleaved: Sequence[Size],
    part_shape: Sequence[Size],
    at: int,
    target: Target,
) -> Parts | None:
    """Return the other operand of a direct sum: see ``TileLayout.is_direct_sum_right``.

    ``at`` 0: ``part`` is the left operand, 1: the right one.

    Raises:
        LayoutError: the shapes do not interleave, or do not group.
    """
    if len(interleaved) != 2 * len(part_shape):
        what = "is_direct_sum_right" if at else "is_direct_sum_left"
        raise LayoutError(
            f"{what}: the interleaved shape (l0, r0, l1, r1, …) must be twice as long as "
            f"{part_shape}; got {interleaved}"
        )
    whole, own = canonicalize(total, target), canonicalize(part, target)
    return _factor(whole, interleaved, own, part_shape, at)


# -- the pieces -------------------------------------------------------------------------------


def _counts(whole: Sequence[Size], part: Sequence[Size], what: str) -> tuple[Size, ...]:
    """Return ``whole[d] / part[d]``; refuse ranks or extents that do not divide."""
    check_ranks(what, tiled=whole, part=part)
    for dim, (large, small) in enumerate(zip(whole, part, strict=True)):
        if not decide(
            divides(small, large),
            f"{what}: does {small} divide {large}",
            f"write the extent of dimension {dim} as a multiple, {small}*k",
        ):
            raise LayoutError(
                f"{what}: extent {small} of dimension {dim} must divide {large}; got "
                f"{tuple(part)} in {tuple(whole)}"
            )
    return tuple(quotient(a, b) for a, b in zip(whole, part, strict=True))


def _groups(tiled: HasParts, shape: Sequence[Size]) -> bool:
    """Say whether a layout groups by the shape in the axes in which it is written."""
    return well_formed(tiled) and try_group(canonicalize(tiled, None).shard, shape) is not None


def _pairs(first: Sequence[Size], second: Sequence[Size]) -> tuple[Size, ...]:
    return tuple(extent for pair in zip(first, second, strict=True) for extent in pair)


def _factor(
    total: HasParts,
    interleaved: Sequence[Size],
    part: HasParts,
    part_shape: Sequence[Size],
    at: int,
) -> Parts | None:
    """Take ``part`` out of an interleaved layout; ``at`` 0: it stands left, 1: right.

    Group ``total`` by the interleaved shape ``(l0, r0, l1, r1, …)``; where the parts at ``at``
    equal the grouped ``part``, what is left over is the answer.
    """
    pieces, seps = algebra.group(total.shard, interleaved, total)
    own, own_seps = algebra.group(part.shard, part_shape, part)
    rest: list[Iter] = []
    for d in range(len(part_shape)):
        mine, others = 2 * d + at, 2 * d + 1 - at
        if not same_iters(pieces[seps[mine] : seps[mine + 1]], own[own_seps[d] : own_seps[d + 1]]):
            return None
        rest.extend(pieces[seps[others] : seps[others + 1]])
    replica = remove_each(total.replica, part.replica)
    if replica is None:
        return None
    return Parts(tuple(rest), replica, subtract_offsets(total.offset, part.offset))


def _same_under(again: HasParts, tiled: HasParts, target: Target) -> bool:
    """Say whether two layouts have one canonical form; replicas in any order."""
    if not well_formed(again):
        return False
    left, right = canonicalize(again, target), canonicalize(tiled, target)
    return (
        left.shard == right.shard
        and sorted(map(repr, left.replica)) == sorted(map(repr, right.replica))
        and not subtract_offsets(left.offset, right.offset)
    )


def _cut_to(part: HasParts, tiled: HasParts, target: Target, *, at_inner: bool) -> HasParts | None:
    """Return ``tiled`` with its axes cut where ``part`` ends; None where the scopes do not fit."""
    mine, theirs = scope(part), scope(tiled)
    if mine is None or theirs is None:
        return tiled
    if at_inner:
        fits = mine[0] == theirs[0] and breadth(mine[1]) <= breadth(theirs[1])
        cut = mine[1] if mine[1] != theirs[1] else None
    else:
        fits = mine[1] == theirs[1] and SCOPES.index(theirs[0]) <= SCOPES.index(mine[0])
        cut = mine[0] if mine[0] != theirs[0] else None
    if not fits:
        return None
    return tiled if cut is None or target is None else _split(tiled, cut)


def _split(parts: HasParts, scope_name: str) -> Parts | None:
    """Cut thread axes at a scope, tx into warpid and laneid for instance; None where a cut fails.

    An offset is cut only where the inner part never carries: 33@tx is 1@warpid + 1@laneid unless
    the iters on laneid reach 31 themselves.
    """
    shard = _split_iters(parts.shard, scope_name)
    replica = _split_iters(parts.replica, scope_name)
    if shard is None or replica is None:
        return None
    offset: dict[Axis, Any] = {}
    for axis, value in parts.offset.items():
        cut = split_axis(axis, scope_name)
        if cut is None:
            offset[axis] = offset.get(axis, 0) + value
            continue
        outer, inner, units = cut
        if not is_int(value):
            return None
        high, low = divmod(value, units)
        reached = algebra.reach(tuple(it for it in shard + replica if it.axis is inner))
        if not less(low + reached.get(inner, (0, 0))[1], units):
            return None
        for name, amount in ((outer, high), (inner, low)):
            if amount != 0:
                offset[name] = offset.get(name, 0) + amount
    return Parts(shard, replica, offset)


def _split_iters(iters: Iters, scope_name: str) -> Iters | None:
    out: list[Iter] = []
    for it in iters:
        cut = split_axis(it.axis, scope_name)
        pieces = (it,) if cut is None else _split_iter(it, *cut)
        if pieces is None:
            return None
        out.extend(pieces)
    return tuple(out)


def _split_iter(it: Iter, outer: Axis, inner: Axis, units: int) -> Iters | None:
    """Cut one iter at ``units`` of the inner axis; None where a step would cross."""
    if not is_int(it.extent, it.stride):
        return None
    extent, stride = int(it.extent), int(it.stride)
    if 0 <= extent * stride < units:
        return (Iter(extent, stride, inner),)
    if stride % units == 0:
        return (Iter(extent, stride // units, outer),)
    if stride > 0 and units % stride == 0 and (extent * stride) % units == 0:
        return (Iter(extent * stride // units, 1, outer), Iter(units // stride, stride, inner))
    return None
