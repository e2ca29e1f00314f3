"""Grouping: split the iters of a layout for several shapes, and permute groups of iters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.algebra.parts import HasParts, check_ranks
from layoutalg.errors import LayoutError
from layoutalg.sizes.arguments import as_indices, check_permutation
from layoutalg.sizes.size import (
    Size,
    as_shape,
    as_size,
    decide,
    divides,
    equal,
    is_sequence,
    namesakes,
    product,
    quotient,
)


def permute_by_groups(
    shard: Iters, seps: Sequence[int], perm: Sequence[int], owner: object
) -> Iters:
    """Return the iters with the groups between ``seps`` in the order ``perm``."""
    marks = as_indices(seps)
    if (
        not marks
        or marks[0] != 0
        or marks[-1] != len(shard)
        or any(after < before for before, after in pairwise(marks))
    ):
        raise LayoutError(
            f"permute_by_groups: the separators must rise from 0 to {len(shard)} for {owner}; "
            f"got {seps!r}"
        )
    order = check_permutation(perm, len(marks) - 1, "permute_by_groups")
    return tuple(it for d in order for it in shard[marks[d] : marks[d + 1]])


def tile_counts(to_shape: Sequence[Size], current_shape: Sequence[Size]) -> tuple[Size, ...]:
    """Return how many tiles fit along each dimension."""
    check_ranks("tile_to", "to_shape", to_shape, "current_shape", current_shape)
    counts = []
    for dim, (to, current) in enumerate(zip(to_shape, current_shape, strict=True)):
        fits = divides(current, to)
        if not fits:
            decide(
                fits,
                f"tile_to: does {current} divide {to}",
                f"write the extent of dimension {dim} as a multiple, {current}*k",
            )
            raise LayoutError(
                f"tile_to: extent {to} of dimension {dim} must be a multiple of {current}"
                f"{_nearest(to, current)}"
            )
        counts.append(quotient(to, current))
    return tuple(counts)


def _nearest(to: Size, current: Size) -> str:
    """Name the multiples of ``current`` around ``to``, where both are numbers."""
    if type(to) is not int or type(current) is not int:
        return ""
    below = to // current * current
    return f"; {below} and {below + current} fit" if below else f"; {current} fits"


def _boundaries(shape: Sequence[Size]) -> list[Size]:
    """Return the cumulative products, outermost first."""
    marks: list[Any] = []
    mark: Any = 1
    for extent in shape:
        mark = as_size(mark * extent)
        marks.append(mark)
    return marks


def group_many(
    parts: HasParts, shapes: Sequence[Sequence[Size]]
) -> tuple[Iters, tuple[tuple[int, ...], ...]]:
    """Return the least common refinement of the shard and all shapes, and separators per shape.

    Every boundary (cumulative product) of the shard and of the shapes ends an iter; a boundary that
    one sequence names several times keeps that many unit iters.
    """
    if not shapes or not all(shapes) or not parts.shard:
        raise LayoutError(
            f"group_many: needs a layout with iters and at least one shape, none of them empty; "
            f"got the shapes {list(shapes)} for {parts}"
        )
    total = product(algebra.extents(parts.shard))
    for shape in shapes:
        held = product(shape)
        if not decide(
            equal(held, total),
            "group_many: does the shape {} hold the {} elements of {}",
            f"write the extents as products, such as n = 8*k{namesakes(held, total)}",
            tuple(shape),
            total,
            parts,
        ):
            raise LayoutError(
                f"group_many: each shape must hold as many elements as the layout; {tuple(shape)} "
                f"holds {held}, {parts} holds {total}"
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


def as_shapes(shapes: Sequence[Sequence[object]], what: str) -> list[tuple[Size, ...]]:
    """Return several shapes as tuples of sizes."""
    if not is_sequence(shapes):
        raise LayoutError(f"{what}: needs a list of shapes; got {shapes!r}")
    return [as_shape(shape, what) for shape in shapes]


def _merge(sequences: Sequence[Sequence[Any]], owner: object) -> list[Any]:
    """Merge boundaries into one chain of divisors, each with its highest multiplicity."""
    chain: list[Any] = []
    for sequence in sequences:
        chain = _merged(chain, sequence)
    for small, large in pairwise(chain):
        if not decide(
            divides(small, large),
            "group_many: does the boundary {} divide {}",
            "write the extents as products, such as n = 8*k",
            small,
            large,
        ):
            raise LayoutError(
                f"group_many: the boundaries {small} and {large} do not nest for {owner}: "
                "neither divides the other"
            )
    return chain


def _merged(chain: Sequence[Any], sequence: Sequence[Any]) -> list[Any]:
    """Merge two chains of divisors; what stands in both stands in the result once."""
    merged: list[Any] = []
    at = 0
    for mark in sequence:
        while at < len(chain) and _is_before(chain[at], mark):
            merged.append(chain[at])
            at += 1
        at += at < len(chain) and chain[at] == mark
        merged.append(mark)
    return [*merged, *chain[at:]]


def _is_before(one: Any, other: Any) -> bool:
    """Say whether a boundary comes before another, if the two nest."""
    if type(one) is int and type(other) is int:
        return one < other
    return one != other and bool(divides(one, other))


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
        start = previous
        while previous != end:
            mark = marks[at]
            at += 1
            if mark == end:  # what is left of the iter: often the whole
                out.append(
                    it if previous == start else Iter(quotient(end, previous), it.stride, it.axis)
                )
                previous = end
                break
            stride = it.stride * quotient(end, mark)
            out.append(Iter(quotient(mark, previous), stride, it.axis))
            previous = mark
            while at < len(marks) and marks[at] == mark:
                out.append(Iter(1, stride, it.axis))
                at += 1
    last = shard[-1]
    out.extend(Iter(1, last.stride, last.axis) for _ in marks[at:])
    return tuple(out)
