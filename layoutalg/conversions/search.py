"""The search for a conversion: from a table of held elements to one of wanted, kind by kind."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import WARP
from layoutalg.algebra.tables import IntArray
from layoutalg.conversions.by_thread import formula
from layoutalg.conversions.instructions import PerThread, settled
from layoutalg.conversions.linear_plan import Move, Plan, Span, applied, network, plan
from layoutalg.conversions.recipe import (
    MOVMATRIX_HALF,
    MOVMATRIX_LANE,
    Exchange,
    Kind,
    Movmatrix,
    Permute,
    Price,
    Relabelling,
    Shuffle,
    Step,
    Word,
    built,
)
from layoutalg.conversions.shuffle_rounds import Round, Warp, rounds
from layoutalg.conversions.staging import stage
from layoutalg.sizes.size import Size

Recipe = tuple[tuple[Step, ...], tuple[Word, ...]]
Bools = npt.NDArray[np.bool_]
Source = tuple[int, int]  # (register, element in it)


class Task:
    """One conversion to find: arrays (threads, slots) of element numbers, -1 for an empty slot.

    Both arrays have whole registers of ``pack`` slots and the same threads, whole warps.
    """

    def __init__(self, held: IntArray, wanted: IntArray, bits: int, shape: Sequence[Size]) -> None:
        """Take the elements held before and wanted after, and the bits of an element."""
        self.held = held
        self.wanted = wanted
        self.bits = bits
        self.pack = pack = max(1, 32 // bits)
        self.shape = tuple(shape)
        self.threads = len(held)
        self.sources: int = held.shape[1] // pack
        self.results: int = wanted.shape[1] // pack

    @classmethod
    def of(cls, held: IntArray, wanted: IntArray, bits: int, shape: Sequence[Size]) -> Task:
        """Return the task of two tables, with empty slots and threads where they lack them."""
        threads, pack = max(len(held), len(wanted)), max(1, 32 // bits)
        return cls(padded(held, threads, pack), padded(wanted, threads, pack), bits, shape)

    def price(self, recipe: Recipe) -> Price:
        """Return what a recipe of this task costs."""
        steps, words = recipe
        made, _ = built(steps, words, self.sources, self.pack)
        verbs = Counter(each.verb for each in made)
        exchanges = [step for step in steps if isinstance(step, Exchange)]
        moves = tuple(moves for step in exchanges for moves in step.accesses)
        return Price(
            max(1, self.bits // 32) * verbs["shfl"],
            verbs["movmatrix"],
            verbs["select"],
            verbs["prmt"] + sum(each.permutes for each in moves),
            moves,
        )

    def attempt(self, kind: Kind) -> Recipe | str:
        """Return a recipe of this kind, or why there is none."""
        attempts: dict[Kind, Callable[[], Recipe | str]] = {
            "registers": self._registers, "select": self._select, "movmatrix": self._movmatrix,
            "shuffle": self._shuffle, "shared": self._shared,
        }  # fmt: skip
        return attempts[kind]()

    def _name(self, element: int) -> str:
        return str(tuple(int(i) for i in algebra.split(int(element), self.shape)))

    @cached_property
    def _fits(self) -> Bools:
        """``fits[s, u]``: slot u of the source holds what slot s wants, in every thread."""
        return np.stack([_right(self.held, column) for column in self.wanted.T])

    @cached_property
    def _uniform(self) -> list[Word | None]:
        """Per wanted register: one word, of a thread's own registers, that serves every thread."""
        return [self._alike(d) for d in range(self.results)]

    def _alike(self, word: int) -> Word | None:
        pack = self.pack
        mine = slice(word * pack, (word + 1) * pack)
        filled = np.flatnonzero((self.wanted[:, mine] >= 0).any(axis=0))
        if not filled.size:
            return Word(((-1,),) * pack, tuple((e,) for e in range(pack)))
        fits = self._fits[mine][filled]
        whole: Bools = fits.reshape(len(filled), -1, pack)[range(len(filled)), :, filled]
        if (registers := whole.all(axis=0)).any():
            return Word.whole(int(registers.argmax()), pack)
        if not fits.any(axis=1).all():
            return None
        picks = dict(zip(filled.tolist(), fits.argmax(axis=1).tolist(), strict=True))
        return self._word([[_place(picks.get(e, -1), pack)] for e in range(pack)])

    def _word(self, columns: Iterable[Sequence[Source]]) -> Word:
        """Return the word of per-thread (register, element) columns, one column per element."""
        registers, parts = [], []
        for e, column in enumerate(columns):
            registers.append(_per_thread([register for register, _ in column]))
            parts.append(_per_thread([part if r >= 0 else -1 for r, part in column], e))
        return Word(tuple(registers), tuple(parts))

    def _registers(self) -> Recipe | str:
        words = tuple(word for word in self._uniform if word is not None)
        if len(words) == self.results:
            return (), words
        bad = next(s for s, row in enumerate(self._fits) if not row.any())
        return self._first_obstacle(bad)

    def _first_obstacle(self, slot: int) -> str:
        """Say why no single slot of the source serves this slot in every thread."""
        seen: tuple[int, IntArray] | None = None
        for thread in np.flatnonzero(self.wanted[:, slot] >= 0):
            element = self.wanted[thread, slot]
            at = np.flatnonzero(self.held[thread] == element)
            if not at.size:
                return self._held_elsewhere(slot, int(thread))
            if seen is not None and not np.intersect1d(seen[1], at).size:
                return (
                    f"slot {slot} is slot {seen[1][0]} of the source in thread {seen[0]}, slot "
                    f"{at[0]} in thread {thread}"
                )
            seen = (int(thread), at) if seen is None else seen
        return f"slot {slot} is no one slot of the source in all threads"

    def _select(self) -> Recipe | str:
        wanted = self.wanted.reshape(self.threads, self.results, self.pack)
        own = self.held.reshape(self.threads, self.sources, self.pack)
        for d, uniform in enumerate(self._uniform):
            if uniform is None:
                lost = ~_together(own, wanted[:, d]).any(axis=1)
                for thread in np.flatnonzero(lost):
                    lost_here = (wanted[thread, d] >= 0) & ~np.isin(wanted[thread, d], own[thread])
                    if lost_here.any():
                        return self._held_elsewhere(
                            d * self.pack + int(lost_here.argmax()), int(thread)
                        )
        return self._put_together(own, [])

    def _held_elsewhere(self, slot: int, thread: int) -> str:
        element = self.wanted[thread, slot]
        where = np.argwhere(self.held == element)[0]
        return (
            f"slot {slot} of thread {thread} needs {self._name(element)}, which thread "
            f"{where[0]} holds in slot {where[1]}"
        )

    def _movmatrix(self) -> Recipe | str:
        if self.pack != 2:
            return "movmatrix moves elements of 16 bits"
        thread = np.arange(self.threads)
        lane = thread % WARP
        half = np.array(MOVMATRIX_HALF)[lane]
        moved = [self.held[thread - lane + np.array(MOVMATRIX_LANE)[lane, e]] for e in range(2)]
        made: list[Word | list[tuple[tuple[int, int], int]]] = []
        for d, uniform in enumerate(self._uniform):
            if uniform is not None:
                made.append(uniform)
                continue
            picks = []
            for e in range(2):
                slot = 2 * d + e
                pick = _transposed_source(moved, self.wanted[:, slot], half, e)
                if pick is None:
                    return f"slot {slot} is neither a slot of the source nor of its 8x8 transposes"
                picks.append(pick)
            made.append(picks)
        pairs = sorted({pair for word in made if isinstance(word, list) for pair, _ in word})
        number = {pair: self.sources + k for k, pair in enumerate(pairs)}
        words = [
            word
            if isinstance(word, Word)
            else self._word([[(number[pair], part)] for pair, part in word])
            for word in made
        ]
        steps = [Movmatrix(self._word([[_place(u, 2)] for u in pair])) for pair in pairs]
        return tuple(steps), tuple(words)

    def _shuffle(self) -> Recipe | str:
        for warp in range(0, self.threads, WARP):
            mine = slice(warp, warp + WARP)
            lost = (self.wanted[mine] >= 0) & ~np.isin(self.wanted[mine], self.held[mine])
            if lost.any():
                lane, slot = (int(at) for at in np.argwhere(lost)[0])
                return self._held_elsewhere(slot, warp + lane)
        ways = [*self._linear()] or [self._planned()]
        return min(ways, key=lambda way: _cost(way, self.sources, self.pack))

    def _planned(self) -> Recipe:
        """Return a recipe of rounds that are planned for each warp."""
        far = np.repeat([word is None for word in self._uniform], self.pack)
        schedules = [
            _rounds_of(self.held[mine], np.where(far, self.wanted[mine], -1), self.pack)
            for mine in (slice(warp, warp + WARP) for warp in range(0, self.threads, WARP))
        ]
        steps: list[Step] = []
        source = made = self.held.reshape(self.threads, self.sources, self.pack)
        for k in range(max(map(len, schedules))):
            offered = np.full((self.threads, self.pack), -1, dtype=np.int64)
            read = [-1] * self.threads
            for warp, schedule in enumerate(schedules):
                for offers, reads in schedule[k : k + 1]:
                    for lane, word in offers.items():
                        offered[warp * WARP + lane] = word
                    for reader, lane in reads.items():
                        read[warp * WARP + reader] = lane
            lanes = settled(tuple(read), tuple(range(WARP)))
            offer = _chosen(_together(source, offered), offered)
            if offer is None:
                offer = (made.shape[1],)
                made = self._after(Permute(self._gathered(offered, source)), steps, made)
            made = self._after(Shuffle(offer, lanes), steps, made)
        return self._put_together(made, steps)

    def _linear(self) -> Iterator[Recipe]:
        """Yield recipes where bits of lanes and slots change places alike in every warp.

        What a lane offers, and the words of the destination, are made by networks or one by one.
        """
        move = Move.between(self.held, self.wanted)
        found = move and plan(move, self.pack.bit_length() - 1)
        if move and found:
            both, few = (False, True), [len(Span(each)) < 2 for each in (found.offers, found.gets)]
            before = both if self.pack > 1 else (not few[0],)
            after = both if self.pack > 1 or not few[1] else (False,)
            for networks in itertools.product(before, after):
                yield self._followed(move, found, *networks)

    def _followed(self, move: Move, found: Plan, before: bool, after: bool) -> Recipe:
        """Return the recipe of a plan; ``before``, ``after``: where there are networks."""
        pack, warps, lane = self.pack, self.threads // WARP, range(WARP)
        aligned = tuple((e,) for e in range(pack))
        place = {slot: (j, i) for j, word in enumerate(found.words) for i, slot in enumerate(word)}
        offers, gets = ([applied(each, at) for at in lane] for each in (found.offers, found.gets))
        steps: list[Step] = []

        def add(step: Shuffle | Permute) -> int:
            steps.append(step)
            return self.sources + len(steps) - 1

        def spread(columns: Sequence[Sequence[Source]]) -> Word:
            """Return the word of (register, element), per element of the word and lane."""
            return self._word([[*each] * warps for each in columns])

        def packed(word: Word) -> int:
            number: int | None = word.register
            return add(Permute(word)) if number is None else number

        def chosen(zero: int, one: int, which: PerThread) -> int:
            column = tuple(one if each else zero for each in which) * warps
            return add(Permute(Word((column,) * pack, aligned)))

        @cache
        def source(j: int) -> int:
            return packed(spread([[_place(slot, pack)] * WARP for slot in found.words[j]]))

        def direct(j: int) -> int:
            words = [found.words[j ^ each] for each in offers]
            return packed(spread([[_place(word[e], pack) for word in words] for e in range(pack)]))

        offered = network(source, found.offers, chosen) if before else direct
        got: dict[int, int] = {}
        for k, each in enumerate(found.rounds):
            if each.read is not None:
                got[k] = add(Shuffle((offered(each.number),), each.read * warps))
            elif after:
                got[k] = offered(each.number)
        taken = network(got.__getitem__, found.gets, chosen)

        def origin(slot: int, at: int) -> Source:
            """Return where a lane has what belongs into a slot."""
            k, cell = found.registers[slot], applied(move.columns, slot * WARP + at) ^ move.start
            if not after and k ^ gets[at] not in got:
                return _place(cell // WARP, pack)
            register = taken(k) if after else got[k ^ gets[at]]
            return register, place[cell // WARP][1]

        words = []
        for d, uniform in enumerate(self._uniform):
            slots = range(d * pack, (d + 1) * pack)
            words.append(uniform or spread([[origin(slot, at) for at in lane] for slot in slots]))
        return tuple(steps), tuple(words)

    def _put_together(self, made: IntArray, steps: list[Step]) -> Recipe:
        """Return the steps, and the words made of the registers that there are after them.

        Where a word is one register in some threads only, the others may put theirs together first,
        in registers that several words share: that is done where it takes fewer instructions.
        """
        wanted = self.wanted.reshape(self.threads, self.results, self.pack)
        open_ = [d for d, word in enumerate(self._uniform) if word is None]
        words = {d: self._gathered(wanted[:, d], made) for d in open_}
        lacked: list[IntArray] = []
        for d in open_:
            lack = (wanted[:, d] >= 0).any(axis=1) & ~_fitting(made, wanted[:, d]).any(axis=1)
            if not lack.any():
                continue
            room = next((each for each in lacked if (each[lack] < 0).all()), None)
            if room is None:
                room = np.full_like(wanted[:, d], -1)
                lacked.append(room)
            room[lack] = wanted[lack, d]
        joined: list[Step] = []
        for each in lacked:
            made = self._after(Permute(self._gathered(each, made)), joined, made)
        ways = [(tuple(steps), words)]
        if lacked:
            ways.append(((*steps, *joined), {d: self._gathered(wanted[:, d], made) for d in open_}))
        recipes = [
            (all_, tuple(word or mine[d] for d, word in enumerate(self._uniform)))
            for all_, mine in ways
        ]
        return min(recipes, key=lambda way: _cost(way, self.sources, self.pack))

    @staticmethod
    def _after(step: Shuffle | Permute, steps: list[Step], made: IntArray) -> IntArray:
        """Add a step; return the registers with the one that it makes."""
        steps.append(step)
        new = step.result(made)
        if isinstance(step, Permute):
            new[:, [column == (-1,) for column in step.source.registers]] = -1
        return np.concatenate([made, new[:, None]], axis=1)

    def _gathered(self, wanted: IntArray, made: IntArray) -> Word:
        """Return how each thread puts a word together of its registers.

        Args:
            wanted: (threads, elements), -1 where anything will do.
            made: (threads, registers, elements).
        """
        whole = _chosen(_fitting(made, wanted), wanted)
        if whole is not None:
            return Word((whole,) * self.pack, tuple((e,) for e in range(self.pack)))
        columns = []
        for e, column in enumerate(wanted.T):
            places = (made == column[:, None, None]) & (column >= 0)[:, None, None]
            register = _chosen(places.any(axis=2), column[:, None])
            assert register is not None
            row = np.broadcast_to(np.array(register), column.shape)
            at = places[np.arange(self.threads), row]
            part = np.where(at[:, e], e, at.argmax(axis=1))
            known = at.any(axis=1)
            columns.append(
                [
                    (int(r), int(p)) if k else (-1, -1)
                    for r, p, k in zip(row, part, known, strict=True)
                ]
            )
        return self._word(columns)

    def _shared(self) -> Recipe:
        shape = tuple(map(int, self.shape))
        return (stage(self.held, self.wanted, shape, self.bits),), ()

    def relabellings(self, slots: int) -> tuple[Relabelling, ...]:
        """Return, per dimension, how renaming it would let the data stay in its threads.

        Args:
            slots: how many slots of the destination count.
        """
        found = (self._relabelling(dim, slots) for dim in reversed(range(len(self.shape))))
        return tuple(way for way in found if way is not None)

    def _relabelling(self, dim: int, count: int) -> Relabelling | None:
        """Pair slots whose other coordinates agree in every thread, in order of the slots.

        The first pairing of an index fixes what it holds; later ones must follow.
        """
        extents = tuple(map(int, self.shape))
        inner = int(np.prod(extents[dim + 1 :], dtype=np.int64))

        def parted(table: IntArray) -> tuple[IntArray, IntArray]:
            """Return the coordinate along ``dim`` and all the others as one number."""
            along = table // inner % extents[dim]
            others = table // (inner * extents[dim]) * inner + table % inner
            return np.where(table < 0, -1, along), np.where(table < 0, -1, others)

        held, held_other = parted(self.held)
        wanted, wanted_other = parted(self.wanted)
        permutation = np.full(extents[dim], -1, dtype=np.int64)
        slots: list[int] = []
        for slot in range(count):
            index = wanted[:, slot]
            rows = index >= 0
            if not rows.any():
                slots.append(-1)
                continue
            said = np.where(rows, permutation[index], -1)
            for u in range(self.held.shape[1]):
                now = held[:, u]
                if u in slots or not (held_other[rows, u] == wanted_other[rows, slot]).all():
                    continue
                if not ((said < 0) | (said == now))[rows].all():
                    continue
                trial = permutation.copy()
                trial[index[rows]] = now[rows]
                if (trial[index[rows]] == now[rows]).all():
                    permutation = trial
                    slots.append(u)
                    break
            else:
                return None
        if sorted(permutation) != list(range(extents[dim])):
            return None
        return Relabelling(dim, tuple(map(int, permutation)), tuple(slots))


def padded(table: IntArray, threads: int, pack: int) -> IntArray:
    """Pad a table with empty slots to whole registers and to this many threads."""
    full = np.full((threads, -(-table.shape[1] // pack) * pack), -1, dtype=np.int64)
    full[: len(table), : table.shape[1]] = table
    return full


def _right(held: IntArray, column: IntArray) -> Bools:
    """Say which slots hold what the column wants, wherever it wants something."""
    found: Bools = ((held == column[:, None]) | (column[:, None] < 0)).all(axis=0)
    return found


def _place(slot: int, pack: int) -> Source:
    """Return (register, element) of a slot; (-1, -1) of none."""
    return (slot // pack, slot % pack) if slot >= 0 else (-1, -1)


def _per_thread(column: Sequence[int], default: int = -1) -> PerThread:
    """Return one entry where all threads that care agree, or one for each.

    Threads that do not care, -1, follow the formula of the others, or get what most of those have;
    if none cares, the default.

    >>> _per_thread([3, -1, 3]), _per_thread([3, -1, 3, 4])
    ((3,), (3, 4, 3, 4))
    """
    used = Counter(entry for entry in column if entry >= 0)
    if len(used) <= 1:
        return (next(iter(used), default),)
    found = formula(column)
    if found is not None:
        whole = tuple(map(found, range(len(column))))
        if used.keys() >= {*whole}:
            return whole
    common = used.most_common(1)[0][0]
    return tuple(entry if entry >= 0 else common for entry in column)


def _transposed_source(
    moved: Sequence[IntArray], column: IntArray, half: IntArray, e: int
) -> tuple[tuple[int, int], int] | None:
    """Return the two slots to transpose and which element of the result is wanted; None: none."""
    for part in (e, 1 - e):
        fits = [_right(moved[part][half == h], column[half == h]) for h in range(2)]
        if all(fit.any() for fit in fits):
            return (int(fits[0].argmax()), int(fits[1].argmax())), part
    return None


def _cost(way: Recipe, sources: int, pack: int) -> tuple[int, int]:
    """Return how many shuffles and how many instructions a recipe takes."""
    made, _ = built(*way, sources, pack)
    return sum(each.verb == "shfl" for each in made), len(made)


def _fitting(made: IntArray, wanted: IntArray) -> Bools:
    """Say which registers of a thread are the word that it wants, as they are."""
    fits: Bools = ((made == wanted[:, None]) | (wanted[:, None] < 0)).all(axis=2)
    return fits


def _together(made: IntArray, wanted: IntArray) -> Bools:
    """Say which registers of a thread hold all that is wanted, wherever in them."""
    fits = np.ones(made.shape[:2], dtype=np.bool_)
    for column in wanted.T:
        fits &= (made == column[:, None, None]).any(axis=2) | (column < 0)[:, None]
    return fits


def _chosen(fits: Bools, wanted: IntArray) -> PerThread | None:
    """Choose one of the registers that fit in each thread, those that fit in most threads first.

    Args:
        fits: (threads, registers).
        wanted: (threads, elements): threads that want nothing, -1, take what others take.

    Returns:
        The registers; None where none fits a thread.
    """
    asks: Bools = np.any(wanted >= 0, axis=1)
    if not np.all(np.any(fits[asks], axis=1)):
        return None
    column = np.full(len(fits), -1, dtype=np.int64)
    left: Bools = np.logical_and(fits, asks[:, None])
    used: IntArray = np.flatnonzero(left.any(axis=0))
    left = np.take(left, used, axis=1)
    while left.any():
        most = int(left.sum(axis=0).argmax())
        served = left[:, most].copy()
        column[served] = used[most]
        left[served] = False
    return _per_thread(column.tolist(), 0)


def _rounds_of(held: IntArray, wanted: IntArray, pack: int) -> list[Round]:
    """Return the rounds of one warp; warps that are alike but for the elements are planned once."""
    names = {-1: -1}
    before, after = (
        tuple(tuple(names.setdefault(e, len(names) - 1) for e in row) for row in side.tolist())
        for side in (held, wanted)
    )
    elements = [*names][1:]
    return [
        Round(
            {at: tuple(elements[e] if e >= 0 else -1 for e in word) for at, word in offers.items()},
            reads,
        )
        for offers, reads in rounds(Warp(before, after, pack))
    ]
