"""Proofs that two maps are one: two layouts, or a layout and a formula.

Concrete or symbolic, a layout is a linear form in the digits of a mixed radix. Two layouts are one
map exactly when their normal forms are equal (:mod:`layoutalg.proofs.normal_form`), and the first
digit in which the forms differ names the first element on which the maps differ. A formula
is evaluated on every element at once; where sizes are symbolic, on the digits.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis
from layoutalg.algebra.iters import Iters
from layoutalg.algebra.parts import (
    HasParts,
    Parts,
    canonicalize,
    substitute_parts,
    symbols,
    total_size,
)
from layoutalg.algebra.scope import Target, as_target
from layoutalg.algebra.tables import steps
from layoutalg.errors import LayoutError, Undecided
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.proofs.differing import different_sets, told
from layoutalg.proofs.formulas import (
    as_coordinates,
    as_place,
    exact,
    indices,
    spread,
    symbolic_index,
)
from layoutalg.proofs.normal_form import (
    Normal,
    axes_of,
    bases,
    check_shape,
    coordinate,
    copies_of,
    is_small,
    normal,
    place_of,
    symbols_of,
    value_at,
    weights,
)
from layoutalg.proofs.verdict import (
    Certificate,
    Difference,
    OtherSize,
    Place,
    ProofDigit,
    Verdict,
    late,
    written,
)
from layoutalg.sizes.budget import ENTRIES, check_budget
from layoutalg.sizes.size import Size, as_shape, equal, is_int, less, product

# -- two layouts ----------------------------------------------------------------------------------


def equivalent(
    left: Any,
    right: Any,
    target: Target = None,
    shape: Sequence[Size] | None = None,
) -> Verdict:
    """Decide whether two layouts send each element to the same set of machine coordinates."""
    if not hasattr(left, "shard") or not hasattr(right, "shard"):
        if not hasattr(right, "table"):
            raise LayoutError(f"equivalent: needs a layout; got {right!r}")
        return _same_swizzled(left, right, shape, target)
    claim = late("{} and {} are one map", left, right)
    check_shape("equivalent", left, shape)
    sizes = total_size(left), total_size(right)
    same_size = equal(*sizes)
    if same_size is False:
        return Verdict(False, claim, OtherSize(*sizes))
    if target is not None:
        left, right = canonicalize(left, target), canonicalize(right, target)
    a, b = normal(left), normal(right)
    copies = [_same_sets(a.replica.get(x, ()), b.replica.get(x, ())) for x in axes_of(left, right)]
    origins = [equal(a.origin.get(x, 0), b.origin.get(x, 0)) for x in axes_of(left, right)]
    checked = int(sizes[0]) if is_small(left, right) else 0
    at: Size | None = 0
    if False not in copies + origins:
        matched, weight = _matched(a.shard, b.shard)
        if matched == len(a.shard) == len(b.shard) and all([same_size, *copies, *origins]):
            assert not checked or _differing(left, right) == 0, (left, right)
            digits = tuple(
                ProofDigit(it.extent, it.stride, it.axis, w, "in both")
                for it, w in zip(a.shard, weights(a.shard), strict=True)
            )
            reason = Certificate(late("both have the normal form {}", a), digits)
            return Verdict(True, claim, reason, checked=checked)
        at = _first_difference(a, b, matched, weight, sizes[0])
    if at is None:
        raise Undecided(
            f"equivalent: are {left} and {right} one map? The symbols "
            f"{', '.join(symbols_of(left, right))} leave it open; {_witnesses(left, right)}"
        )
    remark = _remark(left, right) if checked else ""
    if same_size is None:
        remark = f"if both hold as many elements: {sizes[0]} and {sizes[1]}"
    both = told(left, right, at)
    return Verdict(False, claim, Difference(coordinate(at, shape), *both, remark), checked=checked)


def _same_sets(left: Iters, right: Iters) -> bool | None:
    """Compare two replica sets of one axis, both starting at zero."""
    if len(left) == len(right) and all(
        equal(a.extent, b.extent) and equal(a.stride, b.stride)
        for a, b in zip(left, right, strict=True)
    ):
        return True
    if is_small(Parts(left, (), {}), Parts(right, (), {})):
        axis = (left or right)[0].axis
        return np.array_equal(np.unique(steps(left, axis)), np.unique(steps(right, axis)))
    ends: list[Any] = [0, 0]
    for index, iters in enumerate((left, right)):
        for it in iters:
            ends[index] = ends[index] + (it.extent - 1) * it.stride
    return False if equal(*ends) is False else None


def _matched(left: Iters, right: Iters) -> tuple[int, Any]:
    """Return how many innermost digits are equal, and the flat weight that they cover."""
    weight: Any = 1
    for count, (a, b) in enumerate(zip(reversed(left), reversed(right), strict=False)):
        if not (a.axis is b.axis and equal(a.extent, b.extent) and equal(a.stride, b.stride)):
            return count, weight
        weight = weight * a.extent
    return min(len(left), len(right)), weight


def _first_difference(a: Normal, b: Normal, matched: int, weight: Any, size: Size) -> Size | None:
    """Return the first element that differs for every value of the symbols; None: none is sure.

    Up to ``weight`` the maps agree; they part there, or where the shorter of the next digits ends.
    """
    candidates = [weight]
    for shard in (a.shard, b.shard):
        if matched < len(shard):
            candidates.append(weight * shard[-1 - matched].extent)
    if is_int(*candidates):
        candidates.sort()
    for x in candidates:
        if less(x, size):
            one, other = value_at(a.shard, a.origin, x), value_at(b.shard, b.origin, x)
            if any(equal(one.get(k, 0), other.get(k, 0)) is False for k in {**one, **other}):
                return x
    return None


def _differing(left: HasParts, right: HasParts) -> int:
    """Count the elements that two concrete layouts send to different sets of coordinates."""
    axes = axes_of(left, right)
    if not np.array_equal(copies_of(left, axes), copies_of(right, axes)):
        return int(total_size(left))
    return int((bases(left, axes) != bases(right, axes)).any(axis=1).sum())


def _remark(left: HasParts, right: HasParts) -> str:
    """Say how many elements differ, and whether both are bijections onto the same set."""
    size = int(total_size(left))
    text = f"{_differing(left, right)} of {size} elements differ"
    axes = axes_of(left, right)
    filled = [np.unique(bases(parts, axes), axis=0) for parts in (left, right)]
    alone = len(copies_of(left, axes)) == len(copies_of(right, axes)) == 1
    if alone and size > 1 and len(filled[0]) == size and np.array_equal(filled[0], filled[1]):
        text += f"; both fill the same {size} places, one element each"
    return text


def _witnesses(left: HasParts, right: HasParts) -> str:
    """Say for which small values of the symbols two layouts agree and differ."""
    from layoutalg.sizes.polynomials import examples

    free = symbols(left) | symbols(right)
    names = sorted(free)
    tried = (examples(free[name]) for name in names)
    seen: dict[bool, str] = {}
    for numbers in itertools.islice(itertools.product(*tried), 81):
        values = dict(zip(names, numbers, strict=True))
        try:
            same = equivalent(substitute_parts(left, values), substitute_parts(right, values))
        except LayoutError:
            continue
        told = ", ".join(f"{name} = {value}" for name, value in values.items())
        seen.setdefault(same.holds, told)
    words = {True: "agree", False: "differ"}
    found = [f"they {words[holds]} at {told}" for holds, told in sorted(seen.items(), reverse=True)]
    return "; ".join(
        [*found, f"substitute, or write {names[0]} as {names[0]} + 1 where it is not 1"]
    )


# -- a layout and a formula -----------------------------------------------------------------------


def prove(
    layout: LayoutLike, shape: Sequence[Any], claim: Any, target: str | None = None
) -> Verdict:
    """Decide whether a layout over a shape says what another layout or a formula says.

    Args:
        layout: a layout, swizzled or not, a fragment, or text.
        shape: logical extents, outermost first; elements are named by their coordinates.
        claim: one of

            - a layout, a fragment, or text: :func:`equivalent`;
            - a formula ``(i, j, …) -> {"laneid": …, "m": …}`` for the base coordinate of an
              element; axes that it leaves out are 0;
            - a formula the other way, ``(laneid, m) -> (i, j, …)``, its parameters named like the
              axes of the layout: the element of a (lane, register), as in the PTX ISA.

            A formula sees arrays of integers that do not wrap; where sizes are symbolic, indices
            that know ``+ - * // % << >>`` and ``&`` with a mask of low bits. Neither has one truth
            value: a branch is :func:`layoutalg.where`.
        target: None or "cuda", as in :func:`equivalent`.

    Raises:
        Undecided: symbols leave it open.
        LayoutError: the claim is none of these, or a formula returns something else.

    >>> from layoutalg import parse
    >>> D = parse("S[(2,8,4,2):(2,4@laneid,1@laneid,1)]")
    >>> right = lambda i, j: {"laneid": i % 8 * 4 + j // 2, "m": i // 8 * 2 + j % 2}
    >>> print(prove(D, (16, 8), right))
    proved: S[(2,8,4,2):(2,4@laneid,1@laneid,1)] is the formula (i, j) -> place
    all 128 elements agree
    >>> wrong = lambda laneid, m: (laneid // 4 + 8 * (m % 2), laneid % 4 * 2 + m // 2)
    >>> print(prove(D, (16, 8), wrong))
    refuted: S[(2,8,4,2):(2,4@laneid,1@laneid,1)] is the inverse of (laneid, m) -> (i0, i1)
    element (0, 1): the left has it at (laneid 0, m 1), the right at (i0 8, i1 0)
    64 of 128 elements differ
    """
    extents = as_shape(shape, "prove")
    layout, goal = as_layout(layout, "prove: layout"), as_layout(claim, "prove: claim")
    if hasattr(goal, "table") or hasattr(goal, "shard"):
        return equivalent(layout, goal, as_target(target), extents)
    if not callable(goal):
        raise LayoutError(
            f"prove: the claim must be a layout, a fragment, or a formula such as "
            f"lambda i, j: {{'laneid': 4*i + j}}; got {claim!r}"
        )
    names = tuple(inspect.signature(goal).parameters)
    if hasattr(layout, "shard"):
        check_shape("prove", layout, extents)
        inverse = _is_inverse(names, layout)
        if not is_small(layout):
            return _on_digits(layout, extents, goal, names, inverse)
    else:
        inverse = False
    return _on_elements(layout, extents, goal, names, inverse)


def _is_inverse(names: tuple[str, ...], layout: HasParts) -> bool:
    """Say whether a formula takes places: its parameters are named like the layout's axes."""
    axes = {axis.name for axis in axes_of(layout)}
    return set(names) == axes and bool(names)


def _claim_text(layout: object, names: tuple[str, ...], rank: int, inverse: bool) -> str:
    taken = ", ".join(names)
    if inverse:
        given = ", ".join(f"i{dim}" for dim in range(rank))
        return late("{} is the inverse of ({}) -> ({})", layout, taken, given)
    return late("{} is the formula ({}) -> place", layout, taken)


def _same_swizzled(left: Any, right: Any, shape: Sequence[Size] | None, target: Target) -> Verdict:
    """Compare two layouts, of which one is swizzled: by their tiles, or place by place.

    A swizzle is a bijection of addresses, so two tiles under one swizzle are one map exactly where
    the tiles are.
    """
    claim = late("{} and {} are one map", left, right)
    if shape is None:
        sizes = left.size(), right.size()
        if equal(*sizes) is False:
            return Verdict(False, claim, OtherSize(*sizes))
        shape = sizes[:1]
    swizzles = [getattr(side, "swizzle", None) for side in (left, right)]
    if swizzles[0] == swizzles[1] and symbols_of(left.tile_layout, right.tile_layout):
        found = equivalent(left.tile_over(shape), right.tile_over(shape), target, shape)
        if found and isinstance(found.reason, Certificate):
            argument = f"one swizzle over tiles that are one map: {found.reason.argument}"
            return replace(found, claim=claim, reason=replace(found.reason, argument=argument))
        if isinstance(found.reason, Difference):
            remark = "these places are those before the swizzle, which keeps them apart"
            return replace(found, claim=claim, reason=replace(found.reason, remark=remark))
        return replace(found, claim=claim)
    if target is not None:
        left, right = left.canonicalize(target), right.canonicalize(target)
    wrong, sides = different_sets(left, right, tuple(shape))
    size = int(product(shape))
    if not wrong.size:
        return Verdict(True, claim, Certificate(f"all {size} elements agree"), checked=size)
    element = coordinate(int(wrong[0]), tuple(map(int, shape)))
    remark = f"{wrong.size} of {size} elements differ"
    return Verdict(False, claim, Difference(element, *sides, remark), checked=size)


def _on_elements(
    layout: Any,
    shape: tuple[Size, ...],
    formula: Callable[..., Any],
    names: tuple[str, ...],
    inverse: bool,
) -> Verdict:
    """Compare a concrete layout and a formula, element by element."""
    claim = _claim_text(layout, names, len(shape), inverse)
    check_budget("prove", product(shape) * len(shape), ENTRIES, "coordinates", "Prove a slice")
    index = indices(tuple(map(int, shape)))
    if inverse:
        places = layout.table(shape, True)
        given = as_coordinates(formula(**{k: exact(x) for k, x in places.items()}), len(shape))
        have = {
            f"i{dim}": np.broadcast_to(x[..., None], next(iter(places.values())).shape)
            for dim, x in enumerate(index)
        }
        want = {f"i{dim}": x for dim, x in enumerate(given)}
        return _compared(claim, shape, have, want, places)
    have = layout.table(shape)
    return _compared(claim, shape, have, as_place(formula(*index)))


def _compared(
    claim: str,
    shape: tuple[Size, ...],
    have: Mapping[str, Any],
    want: Mapping[str, Any],
    places: Mapping[str, Any] | None = None,
) -> Verdict:
    """Compare two tables of coordinates; an axis that one leaves out is 0 there."""
    size = int(np.prod([int(extent) for extent in shape], dtype=np.int64))
    full = next((x.shape for x in [*have.values(), *want.values()] if getattr(x, "ndim", 0)), ())
    both = {
        name: tuple(spread(side.get(name, 0), full) for side in (have, want))
        for name in {**have, **want}
    }
    wrong = np.zeros(full, dtype=bool)
    for one, other in both.values():
        wrong |= one != other
    if not wrong.any():
        return Verdict(True, claim, Certificate(f"all {size} elements agree"), checked=size)
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    sides = tuple(
        tuple((name, int(pair[side][at])) for name, pair in both.items()) for side in (0, 1)
    )
    if places is not None:
        held = {Axis.get(name): int(x[at]) for name, x in places.items()}
        sides = (place_of(held), sides[1])
    element = at[: len(shape)]
    count = int(wrong.reshape(*map(int, shape), -1).any(axis=-1).sum())
    remark = f"{count} of {size} elements differ"
    return Verdict(False, claim, Difference(element, sides[:1], sides[1:], remark), checked=size)


def _on_digits(
    layout: HasParts,
    shape: tuple[Size, ...],
    formula: Callable[..., Any],
    names: tuple[str, ...],
    inverse: bool,
) -> Verdict:
    """Compare a layout and a formula as forms in the digits of the layout grouped by the shape."""
    from layoutalg.sizes.symbolic import DigitSymbol

    pieces, seps = algebra.group(layout.shard, shape, layout)
    claim = _claim_text(layout, names, len(shape), inverse)
    stem = "d"
    while any(name.startswith(stem) for name in symbols_of(layout)):
        stem += "d"
    copies = layout.replica if inverse else ()

    def compare(digits: Sequence[Any], steps_of: Sequence[Any]) -> tuple[Any, ...]:
        """Return (coordinate, place, pairs of values that must be equal, what the formula says)."""
        value: dict[Axis, Any] = dict.fromkeys(axes_of(layout), 0) | dict(layout.offset)
        coord = []
        for dim in range(len(shape)):
            run = range(seps[dim], seps[dim + 1])
            at: Any = 0
            for weight, index in zip(weights(pieces[seps[dim] : seps[dim + 1]]), run, strict=True):
                at = at + weight * digits[index]
            coord.append(at)
        for it, digit in zip((*pieces, *copies), (*digits, *steps_of), strict=True):
            value[it.axis] = value[it.axis] + digit * it.stride
        place = place_of(value)
        if inverse:
            said = as_coordinates(formula(**{k: symbolic_index(v) for k, v in place}), len(shape))
            return coord, place, list(zip(coord, said, strict=True)), enumerate(said)
        given = as_place(formula(*map(symbolic_index, coord)))
        known = dict(place)
        both = [(known.get(name, 0), given.get(name, 0)) for name in {**known, **given}]
        return coord, place, both, given.items()

    def named(iters: Iters, letter: str) -> list[Any]:
        return [
            0 if it.extent == 1 else DigitSymbol(f"{stem}{letter}{k}", it.extent)
            for k, it in enumerate(iters)
        ]

    shown = []
    try:
        _, _, pairs, _ = compare(named(pieces, ""), named(copies, "r"))
        shown = [f"{a} against {b}" for a, b in pairs if not equal(a, b)]
    except Undecided as reason:  # a branch that the digits leave open: a corner may refute it
        shown = [str(reason)]
    if not shown:
        rows = tuple(
            ProofDigit(it.extent, it.stride, it.axis, w, "the same step in the formula")
            for it, w in zip(pieces, weights(pieces), strict=True)
            if it.extent != 1
        )
        return Verdict(True, claim, Certificate("as forms in these digits both are equal", rows))
    for digits in _corners((*pieces, *copies)):
        try:
            coord, place, pairs, said = compare(digits[: len(pieces)], digits[len(pieces) :])
        except Undecided:
            continue
        if any(equal(a, b) is False for a, b in pairs):
            told: Place = tuple((f"i{k}" if inverse else str(k), v) for k, v in said)
            return Verdict(False, claim, Difference(tuple(coord), (place,), (told,)))
    raise Undecided(
        f"prove: {written(claim)}? The symbols {', '.join(symbols_of(layout))} leave it open "
        f"({'; '.join(shown)}); substitute them with .subs."
    )


def _corners(iters: Iters) -> list[tuple[Any, ...]]:
    """Return digits at which to look for a difference: zero, each digit at 1 and at its last."""
    zero: tuple[Any, ...] = (0,) * len(iters)
    found = [zero]
    for index, it in reversed(list(enumerate(iters))):
        last: Any = it.extent - 1
        for value in dict.fromkeys((1, last)):
            if less(value, it.extent) and value != 0:
                found.append((*zero[:index], value, *zero[index + 1 :]))
    found.append(tuple(it.extent - 1 for it in iters))
    return found
