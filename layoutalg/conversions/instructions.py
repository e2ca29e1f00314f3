"""A recipe as instructions: each makes one new register out of those before it.

A word is put together by a tree of two-way steps: ``select`` where threads differ in which register
they take as it is, ``prmt`` where elements change their places in it. So a word of n registers
takes n - 1 of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from layoutalg.conversions.by_thread import formula

PerThread = tuple[int, ...]  # one entry for all threads, or one for each
Verb = Literal["select", "prmt", "shfl", "movmatrix"]


@dataclass(frozen=True)
class Instruction:
    """One instruction; its result is the next register number.

    Attributes:
        verb: "select": the second register where the number is 1, else the first; "prmt": element
            e is element ``numbers[e]`` of both registers in a row; "shfl": what the lane of this
            number has; "movmatrix": the transpose of an 8x8 matrix across the warp.
        sources: the registers that it reads.
        numbers: per thread: what selects; -1 in ``prmt`` where anything will do.
    """

    verb: Verb
    sources: tuple[int, ...]
    numbers: tuple[PerThread, ...] = ()


@lru_cache(maxsize=4096)
def settled(column: PerThread, spare: PerThread = (0,)) -> PerThread:
    """Return a column with numbers where any will do: of its formula; one where all agree.

    ``spare``: where there is no formula, the numbers, over and over.

    >>> settled((0, -1, 2, 3)), settled((-1, 5, -1)), settled((0, -1, 1, 1, 0))
    ((0, 1, 2, 3), (5,), (0, 0, 1, 1, 0))
    """
    used = {*column} - {-1}
    if len(used) <= 1:
        return (next(iter(used), -1),)
    found = formula(column)
    if found is None:
        numbers = enumerate(column)
        return tuple(n if n >= 0 else spare[thread % len(spare)] for thread, n in numbers)
    return tuple(found(thread) for thread in range(len(column)))


@dataclass
class Builder:
    """Collects instructions; what is computed already is not computed again.

    ``sources``: the registers that there are at first; ``pack``: elements of a register.
    """

    sources: int
    pack: int
    made: dict[Instruction, int] = field(default_factory=dict)

    def add(self, verb: Verb, sources: tuple[int, ...], numbers: tuple[PerThread, ...] = ()) -> int:
        """Return the register of an instruction."""
        new = Instruction(verb, sources, numbers)
        return self.made.setdefault(new, self.sources + len(self.made))

    def word(self, registers: Sequence[PerThread], parts: Sequence[PerThread]) -> int:
        """Return a register whose element e is element ``parts[e]`` of ``registers[e]``; -1: none.

        >>> build = Builder(2, 2)
        >>> build.word(((0,), (1,)), ((1,), (1,))), build.word(((0, 1), (0, 1)), ((0,), (1,)))
        (2, 3)
        >>> print(*build.made, sep=chr(10))
        Instruction(verb='prmt', sources=(0, 1), numbers=((1,), (3,)))
        Instruction(verb='select', sources=(0, 1), numbers=((0, 1),))
        """
        asked = [e for e in range(self.pack) if registers[e] != (-1,)]
        used = sorted({number for e in asked for number in registers[e]} - {-1})
        if not used:
            return -1
        alike = len({registers[e] for e in asked}) == 1
        if alike and all(parts[e] == (e,) for e in asked):
            return self._chosen(registers[asked[0]], used)
        threads = max(len(column) for e in asked for column in (registers[e], parts[e]))
        wide = {e: tuple(_wide(column[e], threads) for column in (registers, parts)) for e in asked}
        nodes = [(number, {number}, False) for number in used]
        if len(nodes) == 1:
            nodes *= 2
        while len(nodes) > 1:
            pairs = [nodes[at : at + 2] for at in range(0, len(nodes), 2)]
            nodes = [self._joined(pair, wide) if len(pair) == 2 else pair[0] for pair in pairs]
        return nodes[0][0]

    def _joined(
        self, pair: list[tuple[int, set[int], bool]], wide: dict[int, tuple[PerThread, ...]]
    ) -> tuple[int, set[int], bool]:
        """Pack two registers, each with the numbers that came into it and whether in place."""
        picks = []
        for e in range(self.pack):
            column = []
            for number, part in zip(*wide.get(e, ((), ())), strict=True):
                side = next((k for k, (_, has, _) in enumerate(pair) if number in has), -1)
                at = e if pair[side][2] else part
                column.append(-1 if side < 0 else at + self.pack * side)
            picks.append(settled(tuple(column)))
        number = self.add("prmt", (pair[0][0], pair[1][0]), tuple(picks))
        return number, pair[0][1] | pair[1][1], True

    def _chosen(self, column: PerThread, used: list[int]) -> int:
        """Return the register that each thread takes as it is."""
        place = {number: at for at, number in enumerate(used)}
        column = tuple(place.get(number, -1) for number in column)
        level = list(used)
        while len(level) > 1:
            above = []
            for at in range(0, len(level) - 1, 2):
                own = (each - at if each in (at, at + 1) else -1 for each in column)
                which, sides = settled(tuple(own)), level[at : at + 2]
                if which[0]:
                    which, sides = tuple(1 - each for each in which), sides[::-1]
                above.append(self.add("select", (sides[0], sides[1]), (which,)))
            level = above + level[len(above) * 2 :]
            column = tuple(each // 2 if each >= 0 else -1 for each in column)
        return level[0]


def _wide(column: PerThread, threads: int) -> PerThread:
    return column * threads if len(column) == 1 else column
