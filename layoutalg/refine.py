"""Refinements: cutting the iters of a layout for one shape or for several, and reordering them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from layoutalg import iters as algebra
from layoutalg.coordinates import check_permutation
from layoutalg.errors import LayoutError
from layoutalg.iters import Iter, Iters
from layoutalg.parts import HasParts, check_ranks
from layoutalg.size import Size, decide, divides, equal, product, quotient


def try_group(shard: Iters, shape: Sequence[Size]) -> tuple[Iters, tuple[int, ...]] | None:
    """Return the grouped iters and separators, or None where the shape does not cut them."""
    try:
        return algebra.group(shard, shape, "")
    except LayoutError:
        return None


def permute_by_groups(
    shard: Iters, seps: Sequence[int], perm: Sequence[int], owner: object
) -> Iters:
    """Return the iters with the groups between ``seps`` in the order ``perm``."""
    marks = tuple(seps)
    if (
        not marks
        or marks[0] != 0
        or marks[-1] != len(shard)
        or any(b < a for a, b in zip(marks, marks[1:], strict=False))
    ):
        raise LayoutError(
            f"permute_by_groups: the separators must rise from 0 to {len(shard)} for {owner}; "
            f"got {marks}"
        )
    order = check_permutation(perm, len(marks) - 1, "permute_by_groups")
    return tuple(it for d in order for it in shard[marks[d] : marks[d + 1]])


def tile_counts(to_shape: Sequence[Size], current_shape: Sequence[Size]) -> tuple[Size, ...]:
    """Return how many tiles fit along each dimension.

    Raises:
        LayoutError: an extent is not a multiple of the tile's.
        Undecided: that depends on a symbol.

    >>> tile_counts((24, 8), (16, 8))
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: tile_to: extent 24 of dimension 0 must be a multiple of 16; \
16 and 32 fit
    """
    check_ranks("tile_to", to_shape=to_shape, current_shape=current_shape)
    counts = []
    for dim, (to, current) in enumerate(zip(to_shape, current_shape, strict=True)):
        fits = decide(
            divides(current, to),
            f"tile_to: does {current} divide {to}",
            f"write the extent of dimension {dim} as a multiple, {current}*k",
        )
        if not fits:
            near = ""
            if type(to) is int and type(current) is int:
                below = to // current * current
                near = f"; {f'{below} and ' if below else ''}{below + current} fit"
                near = near if below else near.replace("fit", "fits")
            raise LayoutError(
                f"tile_to: extent {to} of dimension {dim} must be a multiple of {current}{near}"
            )
        counts.append(quotient(to, current))
    return tuple(counts)


def _boundaries(shape: Sequence[Size]) -> list[Size]:
    """Return the cumulative products, outermost first."""
    marks: list[Any] = []
    mark: Any = 1
    for extent in shape:
        mark = mark * extent
        marks.append(mark)
    return marks


def group_many(
    parts: HasParts, shapes: Sequence[Sequence[Size]]
) -> tuple[Iters, tuple[tuple[int, ...], ...]]:
    """Return the least common refinement of the shard and all shapes, and separators per shape.

    Every boundary (cumulative product) of the shard and of the shapes ends an iter; a boundary that
    one sequence names several times keeps that many unit iters.

    Raises:
        LayoutError: no shape, an empty shape, unequal sizes, or boundaries that do not nest.
    """
    if not shapes or any(not shape for shape in shapes):
        raise LayoutError("group_many: needs at least one shape, and none that is empty")
    total = product(algebra.extents(parts.shard))
    for shape in shapes:
        if not equal(product(shape), total):
            raise LayoutError(
                f"group_many: each shape must hold as many elements as the layout; {tuple(shape)} "
                f"holds {product(shape)}, {parts} holds {total}"
            )
    own = _boundaries(algebra.extents(parts.shard))
    sequences = [own, *(_boundaries(shape) for shape in shapes)]
    marks = _merge(sequences, parts)
    refined = _cut(parts.shard, own, marks)
    all_seps = []
    for sequence in sequences[1:]:
        seps, at = [0], 0
        for mark in sequence[:-1]:
            at = marks.index(mark, at) + 1
            seps.append(at)
        all_seps.append((*seps, len(marks)))
    return refined, tuple(all_seps)


def _merge(sequences: Sequence[Sequence[Any]], owner: object) -> list[Any]:
    """Merge boundaries into one chain of divisors, each with its highest multiplicity."""
    chain: list[Any] = []
    for sequence in sequences:
        for mark in sequence:
            if chain.count(mark) < list(sequence).count(mark):
                at = len(chain)
                while at and chain[at - 1] != mark and not divides(chain[at - 1], mark):
                    at -= 1
                chain.insert(at, mark)
    for small, large in zip(chain, chain[1:], strict=False):
        if not divides(small, large):
            raise LayoutError(
                f"group_many: the boundaries {small} and {large} do not nest for {owner}: "
                "neither divides the other"
            )
    return chain


def _cut(shard: Iters, own: Sequence[Any], marks: Sequence[Any]) -> Iters:
    """Cut the shard at every mark.

    A mark met again leaves a unit iter: first the shard's own unit iters, then new ones that
    belong to the iter that follows (behind the last iter: to that one).
    """
    out: list[Iter] = []
    at = 0
    previous: Any = 1
    for it, end in zip(shard, own, strict=True):
        if it.extent == 1:
            out.append(it)
            at += 1
            continue
        while previous != end:
            mark = marks[at]
            stride = it.stride * quotient(end, mark)
            out.append(Iter(quotient(mark, previous), stride, it.axis))
            previous = mark
            at += 1
            if mark == end:
                break
            while at < len(marks) and marks[at] == mark:
                out.append(Iter(1, stride, it.axis))
                at += 1
    last = shard[-1]
    out.extend(Iter(1, last.stride, last.axis) for _ in marks[at:])
    return tuple(out)
