"""Is a layout injective, does it cover a box, how many replicas has each element.

Digits on different axes are independent, so each axis is decided on its own. Super-increasing
strides (each exceeds the reach of the smaller ones) make all sums distinct; strides of which each
is at most the length that the smaller ones fill leave no gap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis
from layoutalg.algebra.iters import Iter
from layoutalg.algebra.parts import HasParts, Parts, total_size
from layoutalg.algebra.tables import IntArray, steps
from layoutalg.errors import LayoutError, Undecided
from layoutalg.proofs.normal_form import (
    ascending,
    axes_of,
    bases,
    below_zero,
    check_shape,
    coordinate,
    copies_of,
    is_small,
    length,
    normal,
    place_of,
    symbols_of,
    weights,
)
from layoutalg.proofs.verdict import (
    Certificate,
    Collision,
    Gap,
    Outside,
    ProofDigit,
    Reason,
    Verdict,
    late,
)
from layoutalg.sizes.size import (
    Size,
    as_extent,
    divides,
    equal,
    is_int,
    less,
    product,
    quotient,
    tidy,
)


def _digits(parts: HasParts) -> tuple[dict[Axis, list[ProofDigit]], dict[Axis, Any]]:
    """Return the digits of each axis (shard and merged replica) and its lowest coordinate."""
    form = normal(parts)
    low: dict[Axis, Any] = dict(form.origin)
    found: dict[Axis, list[ProofDigit]] = {axis: [] for axis in axes_of(parts)}
    for it, weight in zip(parts.shard, weights(parts.shard), strict=True):
        if it.extent == 1:
            continue
        found[it.axis].append(ProofDigit(it.extent, it.stride, it.axis, weight, ""))
        if below_zero(it.stride):
            low[it.axis] = low.get(it.axis, 0) + (it.extent - 1) * it.stride
    for axis, copies in form.replica.items():
        found[axis] += [ProofDigit(it.extent, it.stride, axis, None, "") for it in copies]
    return found, low


def _leave_open(parts: HasParts) -> str:
    names = symbols_of(parts)
    if not names:
        return "There are too many sums to compare."
    return f"The symbols {', '.join(names)} leave it open; substitute them with .subs."


def _keys(parts: HasParts) -> IntArray:
    """Return one number per element and replica, equal exactly where the coordinates are."""
    axes = axes_of(parts)
    if not axes:
        return np.zeros(1, dtype=np.int64)
    places = (bases(parts, axes)[:, None, :] + copies_of(parts, axes)[None]).reshape(-1, len(axes))
    spans = places.max(axis=0) - places.min(axis=0) + 1
    keys: IntArray
    if math.prod(map(int, spans)) < np.iinfo(np.int64).max:
        keys = np.ravel_multi_index(tuple((places - places.min(axis=0)).T), tuple(spans))
    else:
        keys = np.unique(places, axis=0, return_inverse=True)[1]
    return keys.reshape(-1)


# -- injective ------------------------------------------------------------------------------------


class _Meeting(NamedTuple):
    """Two flat indices that meet at one coordinate of an axis."""

    first: Any
    second: Any
    axis: Axis
    value: Any


def is_injective(parts: HasParts, shape: Sequence[Size] | None = None) -> Verdict:
    """Decide whether no two elements share a machine coordinate, replicas included."""
    claim = late("{} puts no two elements in one place", parts)
    check_shape("is_injective", parts, shape)
    by_axis, _ = _digits(parts)
    rows: list[ProofDigit] = []
    met: list[_Meeting] = []
    open_axis: Axis | None = None
    for axis, digits in by_axis.items():
        apart, ordered = _super_increasing(digits)
        if apart:
            rows += ordered
        elif _concrete(digits):
            met += _meeting_sums(digits)
            rows += [replace(digit, note=f"all sums on {axis} differ") for digit in digits]
        else:
            found = _meeting_pair(digits)
            met += found
            open_axis = open_axis if found else axis
    checked = int(total_size(parts)) if is_small(parts) else 0
    if checked:
        keys = _keys(parts)
        assert (np.unique(keys).size == keys.size) is not bool(met), parts
    if met:
        concrete = is_int(*(hit.second for hit in met))
        hit = min(met, key=lambda hit: hit.second) if concrete else met[0]
        place = {axis: normal(parts).origin.get(axis, 0) for axis in by_axis}
        place[hit.axis] = place[hit.axis] + hit.value
        pair = (coordinate(hit.first, shape), coordinate(hit.second, shape))
        return Verdict(False, claim, Collision(*pair, place_of(place)), checked=checked)
    if open_axis is not None:
        raise Undecided(
            f"is_injective: do the strides on {open_axis} of {parts} keep elements apart? "
            f"{_leave_open(parts)}"
        )
    argument = "on each axis a sum of digits gives its digits back"
    return Verdict(True, claim, Certificate(argument, tuple(rows)), checked=checked)


def is_plainly_injective(parts: HasParts) -> bool:
    """Say whether strides alone keep all elements apart, replicas included: nothing is listed.

    >>> from layoutalg import parse
    >>> is_plainly_injective(parse("S[(4096,4096):(4100,1)]"))
    True
    >>> tile = parse("S[(2,3):(3,2)]")
    >>> is_plainly_injective(tile), bool(tile.is_injective())
    (False, True)
    """
    by_axis, _ = _digits(parts)
    return all(_super_increasing(digits)[0] for digits in by_axis.values())


def _concrete(digits: Sequence[ProofDigit]) -> bool:
    """Say whether the sums of the digits can be listed."""
    return is_small(Parts(tuple(Iter(d.extent, d.stride, d.axis) for d in digits), (), {}))


def _super_increasing(digits: Sequence[ProofDigit]) -> tuple[bool | None, list[ProofDigit]]:
    """Say whether each stride exceeds the reach of the smaller ones; the digits, largest first."""
    ordered = ascending(digits)
    if ordered is None:
        return None, []
    below: Any = 0
    rows = []
    for digit in ordered:
        stride = length(digit.stride)
        clears = less(below, stride)
        if not clears:
            return clears, []
        rows.append(replace(digit, note=late("{} > {}", stride, below)))
        below = below + (digit.extent - 1) * stride
    return True, rows[::-1]


def _meeting_sums(digits: Sequence[ProofDigit]) -> list[_Meeting]:
    """Return the first two flat indices that meet on one concrete axis, if any do."""
    axis = digits[0].axis
    moving = [d for d in digits if d.weight is not None]
    shard = tuple(Iter(d.extent, d.stride, axis) for d in moving)
    replica = tuple(Iter(d.extent, d.stride, axis) for d in digits if d.weight is None)
    copies = np.unique(steps(replica, axis))
    sums = (steps(shard, axis)[:, None] + copies[None]).reshape(-1)
    row = np.arange(sums.size) // copies.size
    _, first, which = np.unique(sums, return_index=True, return_inverse=True)
    again = np.flatnonzero(row[first[which]] != row)
    if not again.size:
        return []

    def flat(number: int) -> Any:
        """Return the flat index of the element with these digits here, and zeros elsewhere."""
        local = algebra.split(number, [d.extent for d in moving])
        return sum(digit * d.weight for digit, d in zip(local, moving, strict=True))

    later = int(again[0])
    pair = flat(int(row[first[which[later]]])), flat(int(row[later]))
    return [_Meeting(*pair, axis, int(sums[later]))]


def _meeting_pair(digits: Sequence[ProofDigit]) -> list[_Meeting]:
    """Return two flat indices that meet: multiples of two strides are equal, within their reach."""
    for digit in digits:
        if digit.weight is not None and equal(digit.stride, 0) and less(1, digit.extent):
            return [_Meeting(0, digit.weight, digit.axis, 0)]
    for one, other in itertools.permutations(digits, 2):
        if one.weight is None and other.weight is None:
            continue
        times, back = _meeting_multiples(length(one.stride), length(other.stride))
        if not less(times, one.extent) or not less(back, other.extent) or times == 0:
            continue
        step: Any = times * (one.weight or 0)
        step_back: Any = back * (other.weight or 0)
        if below_zero(one.stride) != below_zero(other.stride):
            return [_Meeting(0, step + step_back, one.axis, 0)]
        pair = (step_back, step) if less(step_back, step) else (step, step_back)
        return [_Meeting(*pair, one.axis, times * one.stride)]
    return []


def _meeting_multiples(one: Any, other: Any) -> tuple[Any, Any]:
    """Return the least a and b with ``a*one == b*other``; zeros where they are not known.

    >>> _meeting_multiples(6, 4)
    (2, 3)
    """
    if is_int(one, other):
        common = math.gcd(one, other)
        return (other // common, one // common) if one and other else (0, 0)
    if equal(other, 0) is False and divides(other, one):
        return 1, quotient(one, other)
    return 0, 0


# -- onto -----------------------------------------------------------------------------------------


class _Run(NamedTuple):
    """How the sums of one axis lie: their length, how many each has, the first gap, the digits."""

    length: Any
    degree: Any
    gap: Any
    rows: list[ProofDigit]


def covers(
    parts: HasParts,
    shape: Sequence[Size] | None = None,
    box: Mapping[Axis | str, Any] | None = None,
) -> Verdict:
    """Decide whether the elements fill a box exactly.

    ``degree`` of the verdict is the number of elements per coordinate; None where it varies.
    """
    check_shape("covers", parts, shape)
    if box is not None and not isinstance(box, Mapping):
        raise LayoutError(f"covers: box must be a mapping axis -> extent; got {box!r}")
    by_axis, low = _digits(parts)
    wanted = {Axis.get(a): as_extent(e, f"covers: box of {a}") for a, e in (box or {}).items()}
    runs = {axis: _run(by_axis.get(axis, []), parts) for axis in {**by_axis, **wanted}}
    spans = []
    for axis, run in runs.items():
        start = 0 if axis in wanted else low.get(axis, 0)
        spans.append((axis, start, tidy(start + wanted.get(axis, run.length) - 1)))
    box_text = ", ".join(["{} {}..{}"] * len(spans)) or "of one place"
    claim = late(f"{{}} fills the box {box_text}", parts, *itertools.chain.from_iterable(spans))
    degrees = [run.degree for run in runs.values()]
    degree = None if None in degrees else product(degrees)
    checked = int(total_size(parts)) if is_small(parts) else 0
    held = f"each place holds {degree}" if degree is not None else "places may hold unlike numbers"
    if checked:
        counts = np.unique(_keys(parts), return_counts=True)[1]
        full = counts.size == product(run.length for run in runs.values())
        assert full is all(run.gap is None for run in runs.values()), parts
        assert not full or degree is None or (counts == degree).all(), parts
        held = held if degree is not None else f"a place holds {counts.min()} to {counts.max()}"
    missed = _missed(runs, low, wanted, parts)
    if missed is not None:
        return Verdict(False, claim, missed, checked=checked)
    argument = f"each stride is at most what the smaller ones fill; {held}"
    rows = tuple(row for run in runs.values() for row in run.rows)
    return Verdict(True, claim, Certificate(argument, rows), degree=degree, checked=checked)


def _run(digits: Sequence[ProofDigit], parts: HasParts) -> _Run:
    """Follow the sums of one axis in ascending order of the strides.

    They fill ``0 .. n - 1`` without gaps exactly when each stride is at most the length that the
    smaller ones fill, and each once where it is that length.
    """
    ordered = ascending(digits)
    if ordered is None:
        axis = digits[0].axis
        raise Undecided(f"covers: in what order are the strides on {axis}? {_leave_open(parts)}")
    filled: Any = 1
    degree: Any = 1
    gap = None
    rows = []
    for digit in ordered:
        stride = length(digit.stride)
        if equal(stride, 0):
            degree = degree if degree is None else degree * digit.extent
            rows.append(replace(digit, note=f"{digit.extent} elements in each place"))
            continue
        beyond = less(filled, stride)
        if gap is None and beyond is not False:
            if beyond is None or not less(1, digit.extent):
                raise Undecided(
                    f"covers: is the stride {stride} on {digit.axis} at most {filled}, what the "
                    f"smaller strides fill? {_leave_open(parts)}"
                )
            gap = filled
        exact = equal(stride, filled)
        degree = degree if exact else None
        note = late("{} {} {}, filled so far", stride, "=" if exact else "<=", filled)
        rows.append(replace(digit, note=note))
        filled = filled + (digit.extent - 1) * stride
    return _Run(filled, degree, gap, rows[::-1])


def _missed(
    runs: Mapping[Axis, _Run],
    low: Mapping[Axis, Any],
    wanted: Mapping[Axis, Any],
    parts: HasParts,
) -> Reason | None:
    """Return a coordinate that is missed, or one outside the wanted box; None: neither."""
    corner = {axis: 0 if axis in wanted else low.get(axis, 0) for axis in runs}

    def sure(answer: bool | None, axis: Axis) -> bool:
        if answer is None:
            raise Undecided(
                f"covers: does {parts} reach {axis} 0..{wanted[axis] - 1}? {_leave_open(parts)}"
            )
        return answer

    for axis, run in runs.items():
        start = low.get(axis, 0)
        if axis in wanted:
            end, extent = start + run.length, wanted[axis]
            if sure(less(start, 0), axis):
                return Outside(axis, start, extent)
            if sure(less(extent, end), axis):
                return Outside(axis, end - 1, extent)
            if sure(less(0, start), axis):
                return Gap(place_of(corner))
            if sure(less(end, extent), axis):
                return Gap(place_of({**corner, axis: end}))
        if run.gap is not None:
            return Gap(place_of({**corner, axis: start + run.gap}))
    return None


# -- replicated -----------------------------------------------------------------------------------


def replication(parts: HasParts, shape: Sequence[Size] | None = None) -> Verdict:
    """Count the machine coordinates of each element: ``degree``. True if there are several."""
    check_shape("replication", parts, shape)
    copies: Any = 1
    rows: list[ProofDigit] = []
    for axis, iters in normal(parts).replica.items():
        digits = [ProofDigit(it.extent, it.stride, axis, None, "") for it in iters]
        apart, ordered = _super_increasing(digits)
        if apart:
            count: Any = product(it.extent for it in iters)
        elif _concrete(digits):
            count = np.unique(steps(iters, axis)).size
            ordered = [replace(digit, note=f"{count} distinct sums on {axis}") for digit in digits]
        else:
            raise Undecided(f"replication: how many copies are on {axis}? {_leave_open(parts)}")
        copies = copies * count
        rows += ordered
    checked = int(total_size(parts)) if is_small(parts) else 0
    if checked:
        assert len(copies_of(parts, axes_of(parts))) == copies, parts
    one = equal(copies, 1)
    return Verdict(
        one is not True,
        late("each element of {} is in more than one place", parts),
        Certificate(f"each element is in {copies} place{'' if one else 's'}", tuple(rows)),
        degree=copies,
        checked=checked,
    )
