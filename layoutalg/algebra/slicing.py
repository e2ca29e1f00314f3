"""Slices: the iters of a range of one logical dimension, where iters can describe it.

Along a range ``begin .. end - 1`` the fast digit advances by its stride, and every ``extent`` steps
a carry moves the slower digits. Few tuples of iters produce such a sequence: :func:`slice_group`
tries them all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.algebra.parts import Parts, add_offsets
from layoutalg.algebra.scope import Target
from layoutalg.algebra.tiling import Operand
from layoutalg.errors import Undecided
from layoutalg.sizes.size import Size, decide, divides, equal, is_int, less, quotient, tidy

ADVICE = "substitute the symbols, or write the bounds as multiples, such as begin = 8*i"


def slice_group(group: Iters, begin: Size, end: Size) -> tuple[Iters, dict[Axis, Any]] | None:
    """Return the iters and the offset of positions ``begin .. end - 1`` of a canonical group.

    The answer maps ``x`` to ``group(begin + x)`` for ``0 <= x < end - begin``; None where no tuple
    of iters does.

    Raises:
        Undecided: it depends on a symbol.

    >>> slice_group((Iter(8, 10), Iter(8, 1)), 8, 24)
    ((Iter(2, 10, 'm'), Iter(8, 1, 'm')), {m: 10})
    """
    length = tidy(end - begin)
    if len(group) == 1:
        only = group[0]
        moved: Any = begin * only.stride
        return (Iter(length, only.stride, only.axis),), {only.axis: moved} if moved != 0 else {}
    digits = algebra.split(begin, algebra.extents(group))
    offset: dict[Axis, Any] = {}
    for it, digit in zip(group, digits, strict=True):
        if digit != 0:
            offset[it.axis] = tidy(offset.get(it.axis, 0) + digit * it.stride)
    found = _peel(group, digits, length)
    return None if found is None else (found, {a: v for a, v in offset.items() if v != 0})


def slice_parts(
    whole: Operand, region: Sequence[tuple[Size, Size]], target: Target
) -> Parts | None:
    """Return the parts of a region, or None if no layout describes it: see ``TileLayout.slice``."""
    own, iters, seps = whole.cut(target)
    shard: list[Iter] = []
    offset = own.offset
    for dim, (begin, end) in enumerate(region):
        group = algebra.canonical(iters[seps[dim] : seps[dim + 1]])
        if begin == 0 and end == whole.shape[dim]:
            shard += group
            continue
        piece = slice_group(group, begin, end)
        if piece is None:
            return None
        shard += piece[0]
        offset = add_offsets(offset, piece[1])
    return Parts(tuple(shard), own.replica, offset)


def _peel(group: Iters, digits: list[Any], length: Any) -> Iters | None:
    """Take whole fast iters, then split the first that the range cuts."""
    is_open = False
    for pivot in range(len(group) - 1, 0, -1):
        it, digit = group[pivot], digits[pivot]
        starts, whole = equal(digit, 0), divides(it.extent, length)
        if starts and whole:
            length = quotient(length, it.extent)
            continue
        inside = less(digit + length, it.extent + 1)
        if inside:
            return (Iter(length, it.stride, it.axis), *group[pivot + 1 :])
        is_open = is_open or inside is None or (starts is not False and whole is None)
        if is_open or starts is None or not is_int(it.extent, digit, length):
            raise Undecided(
                f"slice: does the range of length {length} from digit {digit} stay inside the iter "
                f"{it.extent}:{it.stride}@{it.axis}? The symbols leave it open; {ADVICE}."
            )
        rest = _cross(*_settle(group[: pivot + 1], digits[: pivot + 1]), length)
        return None if rest is None else (*rest, *group[pivot + 1 :])
    # only the slowest iter is left, and the range is known to lie in the dimension
    return (Iter(length, group[0].stride, group[0].axis), *group[1:])


def _settle(group: Iters, digits: Sequence[Any]) -> tuple[Iters, list[Any]]:
    """Fuse neighbours of stride 0, on any axes: then no two consecutive steps are equal."""
    iters: list[Iter] = []
    settled: list[Any] = []
    for it, digit in zip(group, digits, strict=True):
        if iters and iters[-1].stride == 0 and it.stride == 0:
            digit = settled.pop() * it.extent + digit
            it = Iter(iters.pop().extent * it.extent, 0, it.axis)
        iters.append(it)
        settled.append(digit)
    return tuple(iters), settled


def _cross(group: Iters, digits: list[Any], length: int) -> Iters | None:
    """Return the iters of a range that carries out of its fast iter; None if there are none.

    Two consecutive carries never both equal the fast stride, or the iters would have been fused. So
    a run of equal steps contains at most one carry. A fast iter longer than a common divisor of
    extent, digit and length is such a run; then there are two runs with one jump between, or the
    fast iter is a pair entered in its middle. A common divisor becomes an iter of its own, and the
    rest is solved recursively.
    """
    fast, digit = group[-1], digits[-1]
    extent, half = fast.extent, length // 2
    if not is_int(extent, digit):
        raise Undecided(
            f"slice: where does a range of length {length} carry from digit {digit} of the iter "
            f"{extent}:{fast.stride}@{fast.axis}? The symbols leave it open; {ADVICE}."
        )
    if _is_run(group, digits, length):
        return (Iter(length, fast.stride, fast.axis),)
    if length == 2 * half:
        middle = _advance(group, digits, half)
        if _is_run(group, digits, half) and _is_run(group, middle, half):
            jump = _single(_move(group, digits, middle), fast.axis)
            if jump is not None:
                return (Iter(2, *jump), Iter(half, fast.stride, fast.axis))
        if extent == 2 and digit == 1 and _is_run(group[:-1], digits[:-1], half + 1):
            step = group[-2]
            pair = _single(_move(group, digits, _advance(group, digits, 1)), step.axis)
            if pair is not None:
                return (Iter(half, step.stride, step.axis), Iter(2, *pair))
    common = math.gcd(int(extent), digit, length)
    if common == 1:
        return None
    outer, outer_digits = group[:-1], digits[:-1]
    if common != extent:
        left = Iter(quotient(extent, common), fast.stride * common, fast.axis)
        outer, outer_digits = (*outer, left), [*outer_digits, digit // common]
    rest = _cross(outer, outer_digits, length // common)
    return None if rest is None else (*rest, Iter(common, fast.stride, fast.axis))


def _is_run(group: Iters, digits: list[Any], length: int) -> bool:
    """Say whether each step of the range is one stride of the fast iter, carries included."""
    fast, digit = group[-1], digits[-1]
    if len(group) == 1:
        return True
    if not is_int(fast.extent, digit):
        return decide(
            less(digit + length - 1, fast.extent) or None,
            f"slice: does a range of length {length} from digit {digit} stay inside the iter "
            f"{fast.extent}:{fast.stride}@{fast.axis}",
            ADVICE,
        )
    for carry in range(min((digit + length - 1) // fast.extent, 2)):
        before = [*_advance(group[:-1], digits[:-1], carry), fast.extent - 1]
        step = _move(group, before, _advance(group, before, 1))
        step[fast.axis] = step.get(fast.axis, 0) - fast.stride
        if _single(step, fast.axis) != (0, fast.axis):
            return False
    return True


def _advance(group: Iters, digits: list[Any], steps: Any) -> list[Any]:
    """Return the digits ``steps`` positions further on."""
    moved = list(digits)
    for at in range(len(group) - 1, 0, -1):
        if steps == 0:
            return moved
        value, extent = moved[at] + steps, group[at].extent
        if is_int(value, extent):
            steps, moved[at] = divmod(value, extent)
        else:
            stays = less(value, extent)
            ends = equal(value, extent) if steps == 1 else None
            if not (stays or ends):
                decide(None, f"slice: is digit {value} below {extent}", ADVICE)
            steps, moved[at] = (0, value) if stays else (1, 0)
    moved[0] = tidy(moved[0] + steps)
    return moved


def _move(group: Iters, before: list[Any], after: list[Any]) -> dict[Axis, Any]:
    """Return how far each axis moves between two positions."""
    moves: dict[Axis, Any] = {}
    for it, start, end in zip(group, before, after, strict=True):
        moves[it.axis] = tidy(moves.get(it.axis, 0) + (end - start) * it.stride)
    return moves


def _single(moves: dict[Axis, Any], still: Axis) -> tuple[Any, Axis] | None:
    """Return the one move as (stride, axis), (0, ``still``) where nothing moves; None: several."""
    moving = [
        axis
        for axis, move in moves.items()
        if not decide(equal(move, 0), "slice: is {} (on axis {}) zero", ADVICE, move, axis)
    ]
    if len(moving) > 1:
        return None
    return (moves[moving[0]], moving[0]) if moving else (0, still)
