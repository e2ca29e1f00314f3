"""The race detector against its definition, on random programs of two warps.

The definition keeps every access and compares each with all before it, by vector clocks, one number
per pair of threads: nothing is dropped, summed up or looked up. They have no code in common.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from lowering.ir.index import Index
from lowering.ir.ops import (
    Arrive,
    Commit,
    Load,
    MbarrierWait,
    Op,
    Phase,
    Store,
    Transfer,
    Wait,
    script,
)
from lowering.simulator.hazards import SimulationError
from tests.lowering.simulator.test_hazards import (
    BACK,
    CTA,
    GET,
    LANE,
    NEXT,
    THREAD,
    WARP,
    A,
    B,
    put,
    run,
    warp,
)

THREADS = 64
PLACES = (THREAD, BACK, NEXT, (THREAD + 16) % 64, THREAD // 2, THREAD // 32 * 32 + (LANE + 1) % 32)
SAID = (
    *("races: ", "still being copied", "may count for an older phase"),
    *("may complete the next phase", "may pass on an older phase"),
)
Clocks = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass
class Definition:
    """All accesses so far, by cell: of which thread, its clock then, and whether it writes."""

    clocks: Clocks = field(default_factory=lambda: np.zeros((THREADS, THREADS), dtype=np.int64))
    seen: dict[tuple[str, int], list[tuple[int, int, bool]]] = field(default_factory=dict)
    released: dict[int, Clocks] = field(default_factory=dict)
    copying: list[tuple[int, list[tuple[str, int, bool]]]] = field(default_factory=list)
    arrivals: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # by slot and phase
    waits: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    race: bool = False

    def access(self, memory: str, cells: dict[int, int], writes: bool) -> None:
        """Let threads touch a cell each, in one instruction."""
        for thread in cells:
            self.clocks[thread, thread] += 1
        for thread, cell in cells.items():
            before = self.seen.setdefault((memory, cell), [])
            for other, clock, wrote in before:
                unknown = other != thread and clock > self.clocks[thread, other]
                self.race |= unknown and (writes or wrote)
            for _, parts in self.copying:
                self.race |= any(
                    (memory, cell) == part[:2] and (writes or part[2]) for part in parts
                )
            before.append((thread, int(self.clocks[thread, thread]), writes))

    def copy(self, into: dict[int, int], source: dict[int, int]) -> None:
        """Let threads start to copy a cell each, of o to s."""
        self.access("o", source, False)
        self.access("s", into, True)
        for thread in into:
            parts = [("o", source[thread], False), ("s", into[thread], True)]
            self.copying.append((thread, parts))

    def wait(self, threads: list[int]) -> None:
        """Let copies of threads be as if they did them now."""
        done = [each for each in self.copying if each[0] in threads]
        self.copying = [each for each in self.copying if each[0] not in threads]
        for thread in threads:
            self.clocks[thread, thread] += 1
        for thread, parts in done:
            for memory, cell, writes in parts:
                self.seen[memory, cell].append((thread, int(self.clocks[thread, thread]), writes))

    def meet(self, threads: list[int]) -> None:
        """Let threads tell each other all."""
        self.clocks[threads, threads] += 1
        self.clocks[threads] = self.clocks[threads].max(axis=0)

    def signal(self, slot: int, giver: int, takers: list[int]) -> None:
        """Let a thread arrive at an mbarrier, and others wait for it: each in this phase alone.

        The one that arrives must know of all arrivals before, and of all that waited for them;
        those that wait, of all arrivals before this one.
        """
        self.clocks[giver, giver] += 1
        arrivals, waits = self.arrivals.setdefault(slot, []), self.waits.setdefault(slot, [])
        for thread in (giver, *takers):
            self.race |= any(self.clocks[thread, other] < clock for other, clock in arrivals)
        self.race |= any(self.clocks[giver, other] < clock for other, clock in waits)
        arrivals.append((giver, int(self.clocks[giver, giver])))
        for thread in takers:
            self.clocks[thread, thread] += 1
            waits.append((thread, int(self.clocks[thread, thread])))
        none = np.zeros(THREADS, dtype=np.int64)
        given = np.maximum(self.released.get(slot, none), self.clocks[giver])
        self.released[slot] = given
        self.clocks[takers] = np.maximum(self.clocks[takers], given)


def program(rng: random.Random) -> tuple[list[Op], bool]:
    """Return a program that ends at its first race, and whether it has one."""
    everyone = list(range(THREADS))
    ops: list[Op] = [GET, put(), put(THREAD + 64), put(memory="o"), CTA]
    told = Definition()
    for memory, first in (("s", 0), ("s", 64), ("o", 0)):
        told.access(memory, {thread: thread + first for thread in everyone}, True)
    told.meet(everyone)
    phases = [0, 0]
    for _ in range(rng.randint(3, 12)):
        half = rng.choice([None, None, 0, 1])
        threads = everyone if half is None else everyone[half * 32 :][:32]
        place, memory, kind = rng.choice(PLACES), rng.choice("sso"), rng.random()
        at = place.value({"thread": np.arange(THREADS)})
        cells = {thread: int(at[thread]) for thread in threads}
        new: tuple[Op, ...]
        if kind < 0.25:
            new = (Store(memory, place, A),)
            told.access(memory, cells, True)
        elif kind < 0.5:
            new = (Load(B, memory, place),)
            told.access(memory, cells, False)
        elif kind < 0.65:
            new = (WARP,)
            for first in {thread // 32 * 32 for thread in threads}:
                told.meet(everyone[first:][:32])
        elif kind < 0.75:
            new, threads = (CTA,), everyone
            told.meet(everyone)
        elif kind < 0.9:
            giver, slot = rng.choice([0, 1]), rng.choice([0, 1])
            first = (WARP,) * rng.choice([0, 1])
            if first:
                told.meet(everyone[giver * 32 :][:32])
            told.signal(slot, giver * 32, everyone[(1 - giver) * 32 :][:32])
            phase = Phase("full", slot, Index((), phases[slot] % 2))
            phases[slot] += 1
            new = (warp(giver, *first, Arrive("full", slot)), warp(1 - giver, MbarrierWait(phase)))
            threads = everyone
        else:
            new = (Transfer("s", place + 64, "o", place, 1, (), True), Commit())
            told.copy({thread: cell + 64 for thread, cell in cells.items()}, cells)
            if rng.random() < 0.5:
                new = (*new, Wait(0))
                told.wait(threads)
        ops.extend(new if len(threads) == THREADS else (warp(threads[0] // 32, *new),))
        if told.race:
            return ops, True
    return [*ops, Wait(0)], False


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_are_judged_as_the_definition_does(seed: int) -> None:
    rng = random.Random(seed)
    races = 0
    for _ in range(40):
        ops, race = program(rng)
        try:
            run(*ops)
            found = ""
        except SimulationError as error:
            found = str(error)
        assert bool(found) == race, script(tuple(ops)) + "\n" + found
        assert not found or any(part in found for part in SAID), found
        races += race
    assert 5 < races < 38
