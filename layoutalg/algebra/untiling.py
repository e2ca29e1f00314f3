"""The inverse of tiling: from a tiled layout, or a direct sum, and one operand to the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import SCOPES, Axis, breadth, m
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.algebra.parts import (
    HasParts,
    Parts,
    canonicalize,
    check_ranks,
    has_canonical,
    moves,
    scope,
    subtract_offsets,
)
from layoutalg.algebra.scope import Target, split_axis
from layoutalg.algebra.tiling import (
    Operand,
    Units,
    as_written,
    remove_each,
    same_iters,
    tile_scale,
    unscaled,
    woven,
)
from layoutalg.errors import LayoutError
from layoutalg.sizes.size import Size, decide, divides, equal, is_int, less, quotient


def outer_of(
    inner: Operand, tiled: HasParts, tiled_shape: Sequence[Size], target: Target
) -> Parts | None:
    """Return the outer layout of ``tiled``: see ``TileLayout.is_tile_inner``."""
    counts = _counts(tiled_shape, inner.shape, "is_tile_inner", "inner_shape")
    whole = Operand(tiled, _pairs(counts, inner.shape), "is_tile_inner: tiled")
    for tile, total in _views(inner, whole, target, at_inner=True):
        rest = _factor(whole.dims(total.shard), total, inner.dims(tile.shard), tile, 1, inner.what)
        if rest is None:
            continue
        scale = tile_scale(tile)
        shard, replica = unscaled(rest.shard, scale), unscaled(rest.replica, scale)
        if shard is None or replica is None:
            continue
        found = Parts(shard, replica, rest.offset)
        outer = Operand(found, counts, "is_tile_inner: outer")
        if has_canonical(found) and _gives(woven(inner, outer, target, _in_units), tiled, target):
            return found
    return None


def inner_of(
    outer: Operand, tiled: HasParts, tiled_shape: Sequence[Size], target: Target
) -> Parts | None:
    """Return the inner layout of ``tiled``: see ``TileLayout.is_tile_outer``.

    The strides of ``outer`` stand in ``tiled`` multiplied by the span of the tile that is sought,
    so extents and axes are compared first, and the answer is tiled again to compare the rest.
    """
    inner_shape = _counts(tiled_shape, outer.shape, "is_tile_outer", "outer_shape")
    whole = Operand(tiled, _pairs(outer.shape, inner_shape), "is_tile_outer: tiled")
    for copies, total in _views(outer, whole, target, at_inner=False):
        for units in (_in_units, _in_units_as_tvm) if outer.layout.replica else (_in_units,):
            for tile in _inner_candidates(outer.dims(copies.shard), copies, whole, total):
                inner = Operand(tile, inner_shape, "is_tile_outer: inner")
                if has_canonical(tile) and _gives(
                    woven(inner, outer, target, units), tiled, target
                ):
                    return tile
    return None


def _inner_candidates(
    own: Sequence[Iters], copies: HasParts, tiled: Operand, total: HasParts
) -> Iterator[Parts]:
    """Yield the candidates for the inner tile, in the axes of one view of the tiled layout."""
    pieces = tiled.dims(total.shard)
    rest: list[Iter] = []
    for mine, theirs, inside in zip(own, pieces[::2], pieces[1::2], strict=True):
        if len(mine) != len(theirs) or not all(map(_may_be_copies, mine, theirs)):
            return
        rest += inside
    offset = subtract_offsets(total.offset, copies.offset)
    for gone in dict.fromkeys((copies.replica, tuple(filter(moves, copies.replica)))):
        for replica in _without(total.replica, gone):
            for shard in _unit_axes(tuple(rest), copies):
                yield Parts(shard, replica, offset)


def _may_be_copies(mine: Iter, theirs: Iter) -> bool:
    """Say whether an iter of the tiled layout has the extent and the axis of one of the outer's."""
    same = decide(
        equal(mine.extent, theirs.extent),
        "is_tile_outer: is {} = {}",
        "substitute the symbols",
        mine.extent,
        theirs.extent,
    )
    return same and (mine.extent == 1 or mine.axis is theirs.axis)


def _unit_axes(shard: Iters, copies: HasParts) -> Iterator[Iters]:
    """Yield the shard; if it has one element, on each axis in turn, since the axis sets a scale."""
    yield shard
    if all(it.extent == 1 for it in shard):
        for axis in dict.fromkeys((m, *(it.axis for it in copies.shard))):
            yield tuple(Iter(1, 1, axis) for _ in shard)


def _in_units(tile: HasParts, copies: HasParts) -> Units:
    """Return the scales of a tile, even if its span is not positive."""
    scale = tile_scale(tile)
    return scale, scale


def _in_units_as_tvm(tile: HasParts, copies: HasParts) -> Units:
    """Return the same, with replicas unscaled, as TVM writes them."""
    return tile_scale(tile), {}


def _without(iters: Iters, gone: Iters) -> Iterator[Iters]:
    """Yield what remains for each way to remove one iter per gone extent and axis."""
    if not gone:
        yield iters
        return
    first, others = gone[0], gone[1:]
    if not moves(first):
        left = remove_each(iters, (first,))
        yield from _without(iters if left is None else left, others)
        return
    tried: list[Iter] = []
    for at, it in enumerate(iters):
        if it.extent == first.extent and it.axis is first.axis and it not in tried:
            tried.append(it)
            yield from _without((*iters[:at], *iters[at + 1 :]), others)


def other_summand(part: Operand, total: Operand, at: int, target: Target) -> Parts | None:
    """Return the other operand of a direct sum: see ``TileLayout.is_direct_sum_right``.

    ``at`` 0: ``part`` is the left operand, 1: the right one.
    """
    if len(total.shape) != 2 * len(part.shape):
        raise LayoutError(
            f"{part.what}: the interleaved shape (l0, r0, l1, r1, …) must be twice as long as "
            f"{part.shape}; got {total.shape}"
        )
    own, whole = part.canonical(target), total.canonical(target)
    pieces = total.dims(whole.shard)
    found = _factor(pieces, whole, part.dims(own.shard), own, at, part.what)
    if found is None or not has_canonical(found):
        return None
    other = Operand(found, total.shape[1 - at :: 2], part.what)
    left, right = (other, part) if at else (part, other)
    again = woven(right, left, target, as_written)
    return found if _gives(again, total.layout, target) else None


# -- the pieces -------------------------------------------------------------------------------


def _counts(whole: Sequence[Size], part: Sequence[Size], what: str, name: str) -> tuple[Size, ...]:
    """Return ``whole[d] / part[d]``; refuse ranks or extents that do not divide."""
    check_ranks(what, "tiled_shape", whole, name, part)
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


def _pairs(first: Sequence[Size], second: Sequence[Size]) -> tuple[Size, ...]:
    return tuple(extent for pair in zip(first, second, strict=True) for extent in pair)


def _factor(
    pieces: Sequence[Iters],
    total: HasParts,
    own: Sequence[Iters],
    part: HasParts,
    at: int,
    what: str,
) -> Parts | None:
    """Take ``part`` out of an interleaved layout; ``at`` 0: it stands left, 1: right.

    ``pieces`` are the iters of the whole, grouped by ``(l0, r0, l1, r1, …)``, and ``own`` those of
    the part; where the pieces at ``at`` equal these, what is left over is the answer.
    """
    rest: list[Iter] = []
    for mine, theirs, other in zip(own, pieces[at::2], pieces[1 - at :: 2], strict=True):
        if not same_iters(theirs, mine, what):
            return None
        rest += other
    replica = remove_each(total.replica, part.replica)
    if replica is None:
        return None
    return Parts(tuple(rest), replica, subtract_offsets(total.offset, part.offset))


def _gives(again: HasParts, tiled: HasParts, target: Target) -> bool:
    """Say whether two layouts have one canonical form; replicas in any order."""
    if not has_canonical(again):
        return False
    left, right = canonicalize(again, target), canonicalize(tiled, target)
    one_element = all(it.extent == 1 for it in left.shard + right.shard)
    return (
        (left.shard == right.shard or one_element)
        and sorted(map(repr, filter(moves, left.replica)))
        == sorted(map(repr, filter(moves, right.replica)))
        and not subtract_offsets(left.offset, right.offset)
    )


def _views(
    part: Operand, whole: Operand, target: Target, *, at_inner: bool
) -> Iterator[tuple[HasParts, HasParts]]:
    """Yield a part and the tiled layout in common axes, if their scopes fit.

    First in fused axes, with the whole cut at the part's scope, as TVM does; then as written. The
    caller checks each candidate by tiling again.

    Raises:
        LayoutError: a layout does not group by its shape in the first view, or is ill-formed.
    """
    own = part.canonical(target)
    total = _cut_to(own, whole.canonical(target), target, at_inner=at_inner)
    if total is not None:
        yield own, total
    if target is None or not (has_canonical(part.layout) and has_canonical(whole.layout)):
        return
    own = part.canonical(None)
    total = _cut_to(own, whole.canonical(None), None, at_inner=at_inner)
    if (
        total is not None
        and not isinstance(algebra.cut(own.shard, part.shape), algebra.Uncut)
        and not isinstance(algebra.cut(total.shard, whole.shape), algebra.Uncut)
    ):
        yield own, total


def _cut_to(part: HasParts, tiled: HasParts, target: Target, *, at_inner: bool) -> HasParts | None:
    """Return ``tiled`` with axes cut at the scope of ``part``; None if the scopes do not fit."""
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
    if extent == 1 or 0 <= extent * stride < units:
        return (Iter(extent, stride, inner),)
    if stride % units == 0:
        return (Iter(extent, stride // units, outer),)
    if stride > 0 and units % stride == 0 and (extent * stride) % units == 0:
        return (Iter(extent * stride // units, 1, outer), Iter(units // stride, stride, inner))
    return None
