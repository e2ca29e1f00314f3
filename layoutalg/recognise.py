"""Recognisers: given a tiled layout, or a sum, and one operand, find the other operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from layoutalg import iters as algebra
from layoutalg.axis import SCOPES, Axis
from layoutalg.errors import LayoutError
from layoutalg.iters import Iter, Iters
from layoutalg.parts import (
    HasParts,
    Parts,
    canonicalize,
    factor_out,
    remove_each,
    same_iters,
    scope,
    arrange,
    scaled,
    tile_scale,
    unscaled,
)
from layoutalg.scope import Target, split_axis
from layoutalg.size import Size, as_shape, divides, is_int, less, quotient


def _inner_counts(whole: Sequence[Size], part: Sequence[Size], what: str) -> tuple[Size, ...]:
    """Return ``whole[d] / part[d]``; refuse ranks or extents that do not divide."""
    if len(whole) != len(part):
        raise LayoutError(
            f"{what}: the shapes must have one rank; got {tuple(whole)} and {tuple(part)}"
        )
    for large, small in zip(whole, part, strict=True):
        if not divides(small, large):
            raise LayoutError(
                f"{what}: each extent of {tuple(part)} must divide its extent of {tuple(whole)}"
            )
    return tuple(quotient(a, b) for a, b in zip(whole, part, strict=True))


def _pairs(first: Sequence[Size], second: Sequence[Size]) -> tuple[Size, ...]:
    return tuple(extent for pair in zip(first, second, strict=True) for extent in pair)


def outer_of(
    inner: HasParts,
    tiled: HasParts,
    tiled_shape: Sequence[Size],
    inner_shape: Sequence[Size],
    target: Target,
) -> Parts | None:
    """Return the outer layout of ``tiled``: see ``TileLayout.is_tile_inner``."""
    counts = _inner_counts(tiled_shape, inner_shape, "is_tile_inner")
    inner, tiled = canonicalize(inner, target), canonicalize(tiled, target)
    gate = _common_scope(inner, tiled, target, at_inner=True)
    if gate is None:
        return None
    tiled = gate
    pieces, seps = algebra.group(tiled.shard, _pairs(counts, inner_shape), tiled)
    own, own_seps = algebra.group(inner.shard, inner_shape, inner)
    scale = tile_scale(inner)
    rest: list[Iter] = []
    for d in range(len(inner_shape)):
        outer_part = pieces[seps[2 * d] : seps[2 * d + 1]]
        inner_part = pieces[seps[2 * d + 1] : seps[2 * d + 2]]
        if not same_iters(inner_part, own[own_seps[d] : own_seps[d + 1]]):
            return None
        rest.extend(outer_part)
    shard = unscaled(tuple(rest), scale)
    replica = remove_each(tiled.replica, inner.replica)
    if shard is None or replica is None:
        return None
    replica = unscaled(replica, scale)
    if replica is None:
        return None
    return Parts(shard, replica, _difference(tiled.offset, inner.offset))


def _difference(total: Mapping[Axis, Size], part: Mapping[Axis, Size]) -> dict[Axis, Size]:
    """Return ``total - part`` without zeros."""
    result: dict[Axis, Size] = {}
    for axis in dict.fromkeys((*total, *part)):
        rest: Any = total.get(axis, 0) - part.get(axis, 0)
        if rest != 0:
            result[axis] = rest
    return result


def inner_of(
    outer: HasParts,
    tiled: HasParts,
    tiled_shape: Sequence[Size],
    outer_shape: Sequence[Size],
    target: Target,
) -> Parts | None:
    """Return the inner layout of ``tiled``: see ``TileLayout.is_tile_outer``.

    The outer's replicas stand in ``tiled`` in units of the inner span, as ``tile`` writes them, or
    as they are, as TVM's ``tile`` does.
    """
    inner_shape = _inner_counts(tiled_shape, outer_shape, "is_tile_outer")
    whole = canonicalize(tiled, target)
    outer, tiled = canonicalize(outer, target), whole
    gate = _common_scope(outer, tiled, target, at_inner=False)
    if gate is None:
        return None
    tiled = gate
    pieces, seps = algebra.group(tiled.shard, _pairs(outer_shape, inner_shape), tiled)
    own, own_seps = algebra.group(outer.shard, outer_shape, outer)
    rest: list[Iter] = []
    for d in range(len(outer_shape)):
        mine = own[own_seps[d] : own_seps[d + 1]]
        theirs = pieces[seps[2 * d] : seps[2 * d + 1]]
        if len(mine) != len(theirs) or any(
            a.extent != b.extent or (a.extent != 1 and a.axis is not b.axis)
            for a, b in zip(mine, theirs, strict=True)
        ):
            return None
        rest.extend(pieces[seps[2 * d + 1] : seps[2 * d + 2]])
    scale = tile_scale(canonicalize(Parts(tuple(rest), (), {}), target))
    for copies in (scaled(outer.replica, scale), outer.replica):
        replica = tuple(it for it in tiled.replica if it not in copies)
        candidate = Parts(tuple(rest), replica, _difference(tiled.offset, outer.offset))
        bare = canonicalize(candidate, target)
        moved = Parts(scaled(outer.shard, tile_scale(bare)), copies, outer.offset)
        again = arrange(bare, moved, outer_shape, inner_shape, target)
        if _same(again, whole):
            return candidate
    return None


def _same(left: HasParts, right: HasParts) -> bool:
    return (
        left.shard == right.shard
        and sorted(map(repr, left.replica)) == sorted(map(repr, right.replica))
        and {a: v for a, v in left.offset.items() if v != 0}
        == {a: v for a, v in right.offset.items() if v != 0}
    )


def _common_scope(
    part: HasParts, tiled: HasParts, target: Target, *, at_inner: bool
) -> Parts | None:
    """Return ``tiled`` with its axes cut where ``part`` ends; None where the scopes do not fit."""
    whole = Parts(tiled.shard, tiled.replica, tiled.offset)
    mine, theirs = scope(part), scope(tiled)
    if mine is None or theirs is None:
        return whole
    if at_inner:
        fits = mine[0] == theirs[0] and SCOPES.index(mine[1]) <= SCOPES.index(theirs[1])
        cut = mine[1] if mine[1] != theirs[1] else None
    else:
        fits = mine[1] == theirs[1] and SCOPES.index(theirs[0]) <= SCOPES.index(mine[0])
        cut = mine[0] if mine[0] != theirs[0] else None
    if not fits:
        return None
    return whole if cut is None or target is None else _split(whole, cut)


def _split(parts: Parts, scope_name: str) -> Parts | None:
    """Cut thread axes at a scope, tx into warpid and laneid for instance; None where a cut fails."""
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
        low = value % units
        high = algebra.reach(tuple(it for it in shard + replica if it.axis is inner))
        if not less(low + high.get(inner, (0, 0))[1], units):
            return None
        for name, amount in ((outer, value // units), (inner, low)):
            if amount != 0:
                offset[name] = offset.get(name, 0) + amount
    return Parts(shard, replica, offset)


def _split_iters(iters: Iters, scope_name: str) -> Iters | None:
    out: list[Iter] = []
    for it in iters:
        cut = split_axis(it.axis, scope_name)
        if cut is None:
            out.append(it)
            continue
        outer, inner, units = cut
        if not is_int(it.extent, it.stride) or it.stride < 0:  # type: ignore[operator]
            return None
        extent, stride = int(it.extent), int(it.stride)
        if extent * stride < units:
            out.append(Iter(extent, stride, inner))
        elif stride and units % stride == 0 and (extent * stride) % units == 0:
            out.append(Iter(extent * stride // units, 1, outer))
            out.append(Iter(units // stride, stride, inner))
        elif stride % units == 0:
            out.append(Iter(extent, stride // units, outer))
        else:
            return None
    return tuple(out)


def other_summand(
    part: HasParts,
    total: HasParts,
    interleaved: Sequence[Any],
    part_shape: Sequence[Any],
    at: int,
    target: Target,
) -> Parts | None:
    """Return the other operand of a direct sum: see ``TileLayout.is_direct_sum_right``."""
    what = "is_direct_sum_right" if at else "is_direct_sum_left"
    pairs, own = as_shape(interleaved, what), as_shape(part_shape, what)
    if len(pairs) != 2 * len(own):
        raise LayoutError(
            f"{what}: the interleaved shape (l0, r0, l1, r1, …) must be twice as long as "
            f"{own}; got {pairs}"
        )
    return factor_out(canonicalize(total, target), canonicalize(part, target), pairs, own, at)
