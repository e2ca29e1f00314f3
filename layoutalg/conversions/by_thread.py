"""``Formula``: a number for each thread, computed from the bits of the thread's number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from layoutalg.algebra.axis import WARP

LANE_BITS = WARP.bit_length() - 1


@dataclass(frozen=True)
class Run:
    """``thread >> low``, of which ``bits`` bits count, times a power of two."""

    low: int
    bits: int
    weight: int

    @property
    def reach(self) -> int:
        """The bits that it can set."""
        return ((1 << self.bits) - 1) * self.weight

    def __str__(self) -> str:
        """Return the term, of the lane or the warp where it is a part of one of them.

        >>> print(Run(2, 3, 1), Run(0, 2, 8), Run(5, 1, 1), sep="; ")
        lane // 4; lane % 4 * 8; warp % 2
        """
        low, high = self.low, self.low + self.bits
        name, ends = ("lane", high == LANE_BITS) if high <= LANE_BITS else ("thread", False)
        if low >= LANE_BITS:
            name, low = "warp", low - LANE_BITS
        text = name if not low else f"{name} // {1 << low}"
        text += "" if ends else f" % {1 << self.bits}"
        return text if self.weight == 1 else f"{text} * {self.weight}"


@dataclass(frozen=True)
class Formula:
    """A number for each thread: ``start``, XOR ``steps[i]`` where bit i of the thread is set.

    >>> found = formula([4, 5, 6, 7, 0, 1, 2, 3])
    >>> found, str(found)
    (Formula(start=4, steps=(1, 2, 4)), 'lane % 8 ^ 4')
    """

    start: int
    steps: tuple[int, ...]

    def __call__(self, thread: int) -> int:
        """Return the number of a thread."""
        value = self.start
        for bit, step in enumerate(self.steps):
            value ^= step * (thread >> bit & 1)
        return value

    @property
    def runs(self) -> tuple[tuple[Run, ...], tuple[Run, ...], int]:
        """Terms to add, terms to XOR to their sum, and a constant to XOR at last.

        >>> print(*formula([0, 3, 2, 1]).runs[0], *formula([0, 3, 2, 1]).runs[1])
        lane % 4 lane % 2 * 2
        """
        runs: list[Run] = []
        width = max(self.steps, default=0).bit_length()
        for apart in range(1 - len(self.steps), width):
            low = None
            for bit in range(len(self.steps) + 1):
                out = bit + apart
                inside = bit < len(self.steps) and out >= 0 and self.steps[bit] >> out & 1
                if inside and low is None:
                    low = bit
                elif not inside and low is not None:
                    runs.append(Run(low, bit - low, 1 << (low + apart)))
                    low = None
        runs.sort(key=lambda run: (-run.bits, -run.low))
        used, added, mixed = 0, list[Run](), list[Run]()
        for run in runs:
            (mixed if used & run.reach else added).append(run)
            used |= run.reach
        return tuple(added), tuple(mixed), self.start

    def __str__(self) -> str:
        """Return the formula to read."""
        added, mixed, start = self.runs
        parts = [" + ".join(map(str, added))] * bool(added)
        if mixed and len(added) > 1:
            parts = [f"({parts[0]})"]
        parts += map(str, mixed)
        if start or not parts:
            free = not any(start & run.reach for run in (*added, *mixed)) and not mixed
            return " + ".join([*parts, str(start)]) if free else " ^ ".join([*parts, str(start)])
        return " ^ ".join(parts)


@lru_cache(maxsize=4096)
def _solved(column: tuple[int, ...]) -> Formula | None:
    """Return the formula of a column, by elimination over its threads."""
    bits = (len(column) - 1).bit_length()
    rows: dict[int, tuple[int, int]] = {}  # by leading unknown: the unknowns, and their XOR
    for thread, value in enumerate(column):
        if value < 0:
            continue
        mask = thread << 1 | 1  # the start, then the bits
        while mask and (at := mask.bit_length()) in rows:
            mask, value = mask ^ rows[at][0], value ^ rows[at][1]
        if mask:
            rows[mask.bit_length()] = mask, value
        elif value:
            return None
    unknowns = [0] * (bits + 1)
    for at in sorted(rows):  # those without a row stay 0
        mask, value = rows[at]
        for each in range(at - 1):
            value ^= unknowns[each] * (mask >> each & 1)
        unknowns[at - 1] = value
    return Formula(unknowns[0], tuple(unknowns[1:]))


def formula(column: Sequence[int]) -> Formula | None:
    """Return a formula for a number of each thread; None where there is none.

    Args:
        column: the numbers; below 0 where any will do. One entry stands for all threads.

    >>> print(formula([0, -1, 2, 3]), formula([7]), formula([0, 1, 1, 1]))
    lane % 4 7 None
    """
    return _solved(tuple(column))
