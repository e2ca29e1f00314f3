"""A conversion within warps whose bits only change places, planned in linear algebra over GF(2).

A cell of a warp is ``slot * 32 + lane``, and the cell from which each cell of the destination comes
is an affine function of its bits. So is all that the plan says: in round k lane l receives register
``k ^ G l``, where G is chosen such that the lanes that are read are a permutation. Which register a
lane offers is then a linear function of its number as well, and a network of selects (a barrel
shifter, in log2 of the number of registers that lanes choose from) brings it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from layoutalg.algebra.axis import WARP
from layoutalg.algebra.tables import IntArray

LANES = WARP.bit_length() - 1
LANE = WARP - 1


def applied(columns: Sequence[int], vector: int) -> int:
    """Return a matrix, given by its columns, times a vector.

    >>> applied((1, 2, 6), 0b101)
    7
    """
    total = 0
    for bit, column in enumerate(columns):
        total ^= column * (vector >> bit & 1)
    return total


class Span:
    """A space spanned by vectors, each with a mark that follows its combinations.

    >>> len(Span([3, 5, 6])), 6 in Span([3, 5]), Span([3, 5]).reduced(6)
    (2, True, (0, 3))
    """

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        """Span some vectors; the mark of vector i is ``1 << i``."""
        self.rows: dict[int, tuple[int, int]] = {}
        for at, vector in enumerate(vectors):
            self.add(vector, 1 << at)

    def reduced(self, vector: int) -> tuple[int, int]:
        """Return what is left of a vector outside the space, and the marks of what was taken."""
        mark = 0
        for at in sorted(self.rows, reverse=True):
            if vector >> at & 1:
                vector, mark = vector ^ self.rows[at][0], mark ^ self.rows[at][1]
        return vector, mark

    def add(self, vector: int, mark: int = 0) -> bool:
        """Add a vector; say whether it was outside."""
        left, used = self.reduced(vector)
        if left:
            self.rows[left.bit_length() - 1] = left, mark ^ used
        return left != 0

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, vector: int) -> bool:
        return not self.reduced(vector)[0]


def kernel(columns: Sequence[int]) -> Iterator[int]:
    """Yield a basis of the vectors that a matrix takes to 0.

    >>> list(kernel((1, 2, 3)))
    [7]
    """
    seen = Span()
    for at, column in enumerate(columns):
        left, used = seen.reduced(column)
        if left:
            seen.add(column, 1 << at)
        else:
            yield used ^ 1 << at


def inverse(columns: Sequence[int]) -> list[int]:
    """Return the inverse of a matrix of full rank.

    >>> inverse((1, 3))
    [1, 3]
    """
    space = Span(columns)
    return [space.reduced(1 << bit)[1] for bit in range(len(columns))]


@dataclass(frozen=True)
class Move:
    """The affine map from cells of the destination to the cells from which they come."""

    columns: tuple[int, ...]
    start: int

    @classmethod
    def between(cls, held: IntArray, wanted: IntArray) -> Move | None:
        """Return the map of tables (threads, slots), the same in every warp; None: there is none.

        >>> held = np.arange(64).reshape(32, 2)
        >>> Move.between(held, held[:, ::-1])
        Move(columns=(1, 2, 4, 8, 16, 32), start=32)
        """
        threads, slots = held.shape
        if wanted.shape != held.shape or slots & (slots - 1) or (wanted < 0).any():
            return None
        cells = [
            side.reshape(-1, WARP, slots).transpose(0, 2, 1).reshape(threads // WARP, -1)
            for side in (held, wanted)
        ]
        order = [np.argsort(side, axis=1, kind="stable") for side in cells]
        ranked = [np.take_along_axis(s, o, axis=1) for s, o in zip(cells, order, strict=True)]
        if (ranked[0] != ranked[1]).any() or (np.diff(ranked[0], axis=1) == 0).any():
            return None
        source = np.empty_like(order[0])
        np.put_along_axis(source, order[1], order[0], axis=1)
        if (source != source[0]).any():
            return None
        first = source[0]
        start = int(first[0])
        bits = len(first).bit_length() - 1
        columns = tuple(int(first[1 << bit]) ^ start for bit in range(bits))
        right = np.full(len(first), start)
        for bit, column in enumerate(columns):
            right ^= (np.arange(len(first)) >> bit & 1) * column
        return cls(columns, start) if (right == first).all() else None


@dataclass(frozen=True)
class Round:
    """A round: the register of the network that is offered; and the lane that each lane reads."""

    number: int
    read: tuple[int, ...] | None  # None: each its own


@dataclass(frozen=True)
class Plan:
    """What to do, in words of ``1 << pack_bits`` slots.

    Attributes:
        words: the slots of each word of the source that is moved, in order.
        registers: per slot of the destination, the word of it that is moved.
        offers: per bit of the lane, what the word that it offers in a round is XORed with.
        rounds: the word that lane 0 offers in each round, and what is read.
        gets: per bit of the lane, what the round is XORed with in which it receives a register.
    """

    words: tuple[tuple[int, ...], ...]
    registers: tuple[int, ...]
    offers: tuple[int, ...]
    rounds: tuple[Round, ...]
    gets: tuple[int, ...]


def plan(move: Move, pack_bits: int) -> Plan | None:
    """Return a plan; None where too few slots of a lane stay together to fill words.

    >>> swap = Move((32, 2, 4, 8, 16, 1), 0)  # bit 0 of the lane and of the slot
    >>> found = plan(swap, 0)
    >>> found.offers, found.gets, [each.number for each in found.rounds]
    ((1, 0, 0, 0, 0), (1, 0, 0, 0, 0), [0, 1])
    >>> [each.read and each.read[:4] for each in found.rounds]
    [None, (1, 0, 3, 2)]
    """
    slots = len(move.columns) - LANES
    whole = [column >> LANES for column in move.columns]  # the slot from which each bit comes
    lane = [column & LANE for column in move.columns]
    carried = _carried(move, pack_bits)
    if carried is None:
        return None
    brought = [applied(whole[LANES:], each) for each in carried]  # in slots of the source
    ours, theirs = (_complement(space, slots, pack_bits) for space in (carried, brought))
    count = slots - pack_bits

    # The word of the source, by the lane and by the word of the destination.
    basis = Span([*theirs, *brought])

    def word(vector: int) -> int:
        return basis.reduced(vector)[1] & (1 << count) - 1

    a, c = lane[:LANES], [word(each) for each in whole[:LANES]]
    b = [applied(lane[LANES:], each) for each in ours]
    d = [word(applied(whole[LANES:], each)) for each in ours]
    start_lane, start_word = move.start & LANE, word(move.start >> LANES)
    gets = _own(a, b) if not start_lane else None
    gets = gets or _permuting(a, b)
    into = [each ^ applied(b, get) for each, get in zip(a, gets, strict=True)]
    back = inverse(into)
    told = [each ^ applied(d, get) for each, get in zip(c, gets, strict=True)]
    offers = tuple(applied(told, each) for each in back)
    rounds = []
    for number in range(1 << count):
        at = start_lane ^ applied(b, number)
        read = tuple(applied(into, each) ^ at for each in range(WARP))
        offered = start_word ^ applied(d, number) ^ applied(offers, at)
        rounds.append(Round(offered, None if read == tuple(range(WARP)) else read))
    words = tuple(
        tuple(applied(theirs, j) ^ applied(brought, i) for i in range(1 << pack_bits))
        for j in range(1 << count)
    )
    mine = Span([*ours, *carried])
    registers = tuple(mine.reduced(slot)[1] & (1 << count) - 1 for slot in range(1 << slots))
    return Plan(words, registers, offers, tuple(rounds), tuple(gets))


def _carried(move: Move, pack_bits: int) -> list[int] | None:
    """Return slots of the destination that come from one lane, to fill words with; a basis.

    Those that are a word on either side come first.
    """
    lane = [column & LANE for column in move.columns[LANES:]]
    whole = [column >> LANES for column in move.columns[LANES:]]
    parts = (1 << pack_bits) - 1
    chosen, found = Span(), list[int]()
    both = [applied(lane, 1 << bit) for bit in range(pack_bits)]
    own, kept = kernel(both), list(kernel(lane))
    there = [applied(kept, v) for v in kernel([applied(whole, each) & ~parts for each in kept])]
    for each in (*own, *there, *kept):
        if len(found) < pack_bits and chosen.add(each):
            found.append(each)
    return found if len(found) == pack_bits else None


def _complement(space: Sequence[int], slots: int, pack_bits: int) -> list[int]:
    """Return units, registers before elements of them, that complete a space to all slots."""
    full, found = Span(space), list[int]()
    for bit in (*range(pack_bits, slots), *range(pack_bits)):
        if full.add(1 << bit):
            found.append(1 << bit)
    return found


def _own(a: Sequence[int], b: Sequence[int]) -> list[int] | None:
    """Return G for which every lane reads itself in some rounds; None: there is none."""
    space, found = Span(b), []
    for bit, column in enumerate(a):
        left, mark = space.reduced(column ^ 1 << bit)
        if left:
            return None
        found.append(mark)
    return found


def _permuting(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Return G with which the lanes that are read are a permutation, mostly 0."""
    gets = [0] * LANES
    apart = Span(b)
    first = [bit for bit, column in enumerate(a) if apart.add(column)]
    space = Span(a[bit] for bit in first)
    choices = [1 << k for k in range(len(b))] + [3 << k for k in range(len(b) - 1)]
    for bit in (each for each in range(LANES) if each not in first):
        options: Iterable[int] = (0, *choices, *range(1 << len(b)))
        gets[bit] = next(get for get in options if a[bit] ^ applied(b, get) not in space)
        space.add(a[bit] ^ applied(b, gets[bit]))
    return gets


def network(
    start: Callable[[int], int],
    shifts: Sequence[int],
    chosen: Callable[[int, int, tuple[int, ...]], int],
) -> Callable[[int], int]:
    """Return what makes register ``k ^ shift`` where each lane has its own shift, in few selects.

    Args:
        start: the register of each k.
        shifts: per bit of the lane, what it is XORed with.
        chosen: makes a select of two registers, by a number of each lane, 0 or 1.
    """
    space = Span()
    basis = [each for each in shifts if space.add(each, 1 << len(space))]
    marks = [space.reduced(each)[1] for each in shifts]  # which of the basis a bit adds
    made: dict[tuple[int, int], int] = {}

    def at(stage: int, k: int) -> int:
        if stage == len(basis):
            return start(k)
        if (stage, k) not in made:
            which = tuple(applied(marks, lane) >> stage & 1 for lane in range(WARP))
            sides = at(stage + 1, k), at(stage + 1, k ^ basis[stage])
            made[stage, k] = chosen(*sides, which)
        return made[stage, k]

    return lambda k: at(0, k)
