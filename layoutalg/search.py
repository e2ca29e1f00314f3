"""The search for a conversion: what is held and what is wanted, thread by slot, kind by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from layoutalg import iters as algebra
from layoutalg.fragment import WARP
from layoutalg.recipe import (
    MOVMATRIX_HALF,
    MOVMATRIX_LANE,
    Exchange,
    Kind,
    Movmatrix,
    PerThread,
    Relabelling,
    Shuffle,
    Step,
    Word,
)
from layoutalg.rounds import Fetch, rounds
from layoutalg.size import Size
from layoutalg.table import IntArray

Recipe = tuple[tuple[Step, ...], tuple[Word, ...]]
Bools = npt.NDArray[np.bool_]
Source = tuple[int, int]  # (register, element in it)


class Task:
    """One conversion to find: arrays (threads, slots) of element numbers, -1 where nothing is.

    Both arrays have whole registers of ``pack`` slots and the same threads, whole warps.
    """

    def __init__(self, held: IntArray, wanted: IntArray, pack: int, shape: Sequence[Size]) -> None:
        """Take what is held before and what is wanted after."""
        self.held = held
        self.wanted = wanted
        self.pack = pack
        self.shape = tuple(shape)
        self.threads = len(held)
        self.sources = held.shape[1] // pack
        self.results = wanted.shape[1] // pack

    def attempt(self, kind: Kind) -> Recipe | str:
        """Return a recipe of this kind, or why there is none."""
        if kind == "registers":
            return self._registers()
        if kind == "select":
            return self._select()
        if kind == "movmatrix":
            return self._movmatrix()
        return self._shuffle() if kind == "shuffle" else self._shared()

    def _name(self, element: int) -> str:
        return str(tuple(int(i) for i in algebra.split(int(element), self.shape)))

    @cached_property
    def _fits(self) -> Bools:
        """``fits[s, u]``: slot u of the source is right for slot s, in every thread."""
        return np.stack([_right(self.held, column) for column in self.wanted.T])

    def _filled(self, word: int) -> list[int]:
        """Return the elements of a wanted register that some thread wants."""
        pack = self.pack
        return [e for e in range(pack) if (self.wanted[:, word * pack + e] >= 0).any()]

    def _uniform(self, word: int) -> Word | None:
        """Return how a register is made of registers of its own thread, alike in all; or None."""
        filled = self._filled(word)
        if not filled:
            return Word(((-1,),) * self.pack, tuple((e,) for e in range(self.pack)))
        fits = self._fits[word * self.pack : (word + 1) * self.pack]
        for register in range(self.sources):
            if all(fits[e, register * self.pack + e] for e in filled):
                return Word.whole(register, self.pack)
        if not all(fits[e].any() for e in filled):
            return None
        picks = [int(fits[e].argmax()) if e in filled else -1 for e in range(self.pack)]
        return self._word([[_place(u, self.pack)] for u in picks])

    def _word(self, columns: Iterable[Sequence[Source]]) -> Word:
        """Return the word of per-thread (register, element) columns, one column per element."""
        registers, parts = [], []
        for e, column in enumerate(columns):
            registers.append(_per_thread([register for register, _ in column]))
            parts.append(_per_thread([part if r >= 0 else -1 for r, part in column], e))
        return Word(tuple(registers), tuple(parts))

    def _registers(self) -> Recipe | str:
        words = [self._uniform(d) for d in range(self.results)]
        if None not in words:
            return (), tuple(word for word in words if word is not None)
        bad = next(s for s, row in enumerate(self._fits) if not row.any())
        return self._first_obstacle(bad)

    def _first_obstacle(self, slot: int) -> str:
        """Say why no one slot of the source is right for this slot in every thread."""
        seen: tuple[int, IntArray] | None = None
        for thread in np.flatnonzero(self.wanted[:, slot] >= 0):
            element = self.wanted[thread, slot]
            at = np.flatnonzero(self.held[thread] == element)
            if not at.size:
                where = np.argwhere(self.held == element)[0]
                return (
                    f"slot {slot} of thread {thread} needs {self._name(element)}, which thread "
                    f"{where[0]} holds in slot {where[1]}"
                )
            if seen is not None and not np.intersect1d(seen[1], at).size:
                return (
                    f"slot {slot} is slot {seen[1][0]} of the source in thread {seen[0]}, slot "
                    f"{at[0]} in thread {thread}"
                )
            seen = (int(thread), at) if seen is None else seen
        return f"slot {slot} is no one slot of the source in all threads"

    def _select(self) -> Recipe | str:
        own = [_index(row) for row in self.held]
        words = []
        for d in range(self.results):
            uniform = self._uniform(d)
            if uniform is not None:
                words.append(uniform)
                continue
            columns: list[list[Source]] = [[] for _ in range(self.pack)]
            for thread, needs in enumerate(self.wanted[:, d * self.pack : (d + 1) * self.pack]):
                at = [own[thread].get(int(x), []) if x >= 0 else None for x in needs]
                for e, slots in enumerate(at):
                    if slots == []:
                        return self._first_obstacle_of(d * self.pack + e, thread)
                picks = _in_one_register(at, self.pack)
                for e, u in enumerate(picks):
                    columns[e].append(_place(u, self.pack))
            words.append(self._word(columns))
        return (), tuple(words)

    def _first_obstacle_of(self, slot: int, thread: int) -> str:
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
        for d in range(self.results):
            uniform = self._uniform(d)
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
        fetched: list[dict[int, Source]] = []  # per thread: slot -> (lane, slot there)
        for warp in range(0, self.threads, WARP):
            where: dict[int, list[Source]] = {}
            for lane, row in enumerate(self.held[warp : warp + WARP]):
                for slot, element in enumerate(row):
                    where.setdefault(int(element), []).append((lane, slot))
            for lane in range(WARP):
                needs = self.wanted[warp + lane]
                lost = [s for s in np.flatnonzero(needs >= 0) if int(needs[s]) not in where]
                if lost:
                    return self._first_obstacle_of(int(lost[0]), warp + lane)
                fetched.append(_nearest(needs, where, lane, self.pack))
        pack = self.pack
        edges: list[list[Fetch]] = []
        for thread, found in enumerate(fetched):
            asked = dict.fromkeys((at, u // pack) for at, u in found.values())
            edges.append([Fetch(thread % WARP, at, register) for at, register in asked])
        schedules = [rounds(edges[warp : warp + WARP]) for warp in range(0, self.threads, WARP)]
        count = max(map(len, schedules))
        steps: list[Step] = []
        arrival: list[dict[Source, int]] = [{} for _ in range(self.threads)]
        for k in range(count):
            offer, read = [-1] * self.threads, [-1] * self.threads
            for number, schedule in enumerate(schedules):
                for fetch in schedule[k] if k < len(schedule) else ():
                    offer[number * WARP + fetch.lane] = fetch.register
                    read[number * WARP + fetch.reader] = fetch.lane
                    key = (fetch.lane, fetch.register)
                    arrival[number * WARP + fetch.reader][key] = self.sources + k
            lanes = read if len({*read} - {-1}) == 1 else _own_lane(read)
            steps.append(Shuffle(_per_thread(offer), _per_thread(lanes)))
        words = []
        for d in range(self.results):
            uniform = self._uniform(d)
            words.append(uniform or self._arrived(d, fetched, arrival))
        return tuple(steps), tuple(words)

    def _arrived(
        self, word: int, fetched: list[dict[int, Source]], arrival: list[dict[Source, int]]
    ) -> Word:
        """Return a register made of what has arrived and what the thread has itself."""
        columns: list[list[Source]] = []
        for slot in range(word * self.pack, (word + 1) * self.pack):
            near: list[Source] = []
            far: list[Source] = []
            for thread, found in enumerate(fetched):
                if slot not in found:
                    near.append((-1, -1))
                    far.append((-1, -1))
                    continue
                lane, u = found[slot]
                register, part = _place(u, self.pack)
                came = arrival[thread].get((lane, register), register)
                near.append((register if lane == thread % WARP else came, part))
                far.append((came, part))
            columns.append(min(near, far, key=lambda column: len({r for r, _ in column})))
        return self._word(columns)

    def _shared(self) -> Recipe:
        warps = self.threads // WARP
        inside = all(
            np.isin(w[w >= 0], h).all()
            for w, h in zip(np.split(self.wanted, warps), np.split(self.held, warps), strict=True)
        )
        return (Exchange(algebra.row_major(self.shape), "warp" if inside else "cta"),), ()

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


def _right(held: IntArray, column: IntArray) -> Bools:
    """Say which slots hold what the column wants, wherever it wants something."""
    found: Bools = ((held == column[:, None]) | (column[:, None] < 0)).all(axis=0)
    return found


def _place(slot: int, pack: int) -> Source:
    """Return (register, element) of a slot; (-1, -1) of none."""
    return (slot // pack, slot % pack) if slot >= 0 else (-1, -1)


def _per_thread(column: Sequence[int], default: int = -1) -> PerThread:
    """Return one entry where all threads that care agree, or one for each.

    Threads that do not care, -1, get what most of the others have; if none cares, the default.

    >>> _per_thread([3, -1, 3]), _per_thread([3, -1, 3, 4])
    ((3,), (3, 3, 3, 4))
    """
    used = Counter(entry for entry in column if entry >= 0)
    if len(used) <= 1:
        return (next(iter(used), default),)
    common = used.most_common(1)[0][0]
    return tuple(entry if entry >= 0 else common for entry in column)


def _own_lane(read: Sequence[int]) -> list[int]:
    """Let threads that need nothing read themselves."""
    return [lane if lane >= 0 else thread % WARP for thread, lane in enumerate(read)]


def _index(row: IntArray) -> dict[int, list[int]]:
    """Return element -> slots of one thread."""
    found: dict[int, list[int]] = {}
    for slot, element in enumerate(row):
        found.setdefault(int(element), []).append(slot)
    return found


def _in_one_register(at: Sequence[list[int] | None], pack: int) -> list[int]:
    """Choose a slot for each element of a register: all in one register, in order, if possible."""
    firsts = [slots for slots in at if slots is not None]
    for u in firsts[0] if firsts else ():
        register = u // pack
        if all(slots is None or register * pack + e in slots for e, slots in enumerate(at)):
            return [-1 if slots is None else register * pack + e for e, slots in enumerate(at)]
    return [
        -1 if slots is None else next((u for u in slots if u % pack == e), slots[0])
        for e, slots in enumerate(at)
    ]


def _transposed_source(
    moved: Sequence[IntArray], column: IntArray, half: IntArray, e: int
) -> tuple[tuple[int, int], int] | None:
    """Return the two slots to transpose and which element of the result is wanted; None: none."""
    for part in (e, 1 - e):
        fits = [_right(moved[part][half == h], column[half == h]) for h in range(2)]
        if all(fit.any() for fit in fits):
            return (int(fits[0].argmax()), int(fits[1].argmax())), part
    return None


def _nearest(
    needs: IntArray, where: dict[int, list[Source]], lane: int, pack: int
) -> dict[int, Source]:
    """Choose where each wanted slot of a thread reads: few registers, its own thread first."""
    wanted = {int(s): where[int(needs[s])] for s in np.flatnonzero(needs >= 0)}
    served = Counter((at, u // pack) for places in wanted.values() for at, u in places)
    chosen: dict[int, Source] = {}
    for slot, places in wanted.items():
        chosen[slot] = min(
            places,
            key=lambda place: (
                place[0] != lane,
                -served[place[0], place[1] // pack],
                place[1] % pack != slot % pack,
                place,
            ),
        )
    return chosen
