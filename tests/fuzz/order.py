"""A happens-before checker: vector clocks per thread, by rules of its own.

It watches one run of :mod:`tests.fuzz.engine`. Agents are the threads (the producer's one thread is
the last), and what is apart: the ``cp.async`` of each thread, the products of each warpgroup, each
mbarrier's bulk loads, the bulk stores of each warpgroup. ``seen[t, u]`` is how much of what agent u
did comes before what thread t does next; ``shown[t, u]`` how much of it a ``fence.proxy.async`` has
made visible to what is apart.

- A barrier of a scope joins the clocks of its threads. An arrival gives those of the one thread
  that arrives (the first of its warp) to the phase, and a wait takes those of the last complete
  phase. Nothing else orders two threads: a warp's lanes are not in lockstep.
- ``cp.async`` reads and writes between its start and its thread's wait for its group. Products read
  between start and wait, bulk loads write between start and the phase of their mbarrier,
  bulk stores read between start and the wait for their group.
- What threads wrote is seen by products and bulk stores only through a fence of the proxy.

Two accesses of one cell, one of them a write, neither before the other: a race.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.fuzz.engine import WARP, Step, Written

Array = npt.NDArray[Any]


@dataclass
class Cells:
    """Of each cell: who wrote it last and when, and when each agent last read it."""

    writer: Array
    when: Array
    read: Array
    apart: Array  # whether what is apart wrote it


@dataclass
class Order:
    """The state; ``races`` are what was found, as text."""

    written: Written
    races: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        w = self.written
        threads = w.threads + w.producer
        self.threads = threads
        self.copies = threads
        self.products = threads * 2
        groups = max(1, w.threads // 128)
        self.loads = {key: self.products + groups + at for at, key in enumerate(w.barriers)}
        self.stores = self.products + groups + len(w.barriers)
        self.results = self.stores + groups  # the global side of bulk stores: never waited for
        agents = self.results + groups
        self.agents = agents
        self.seen = np.zeros((threads, agents), dtype=np.int32)
        self.shown = np.zeros((threads, agents), dtype=np.int32)
        self.clock = np.ones(agents, dtype=np.int32)
        at = np.arange(threads)
        self.seen[at, at] = 1
        self.cells: dict[str, Cells] = {}
        self.phases: dict[tuple[str, int], list[Array]] = {}  # clocks of arrivals, of this phase
        self.done: dict[tuple[tuple[str, int], int], tuple[Array, Array]] = {}
        self.pending: dict[tuple[str, int], Array] = {}
        self.groups: dict[int, list[int]] = {}  # clocks at which groups of cp.async were closed
        self.product_groups: dict[int, list[int]] = {}
        self.store_groups: dict[int, list[int]] = {}
        self.flight: dict[int, list[tuple[int, set[tuple[str, int]]]]] = {}

    def of(self, name: str) -> Cells:
        if name not in self.cells:
            size = self.written.sizes[name]
            self.cells[name] = Cells(
                np.full(size, -1), np.zeros(size, dtype=np.int32),
                np.zeros((size, self.agents), dtype=np.int32), np.zeros(size, dtype=bool),
            )  # fmt: skip
        return self.cells[name]

    def race(self, step: Step, name: str, cells: Array, bad: Array, what: str) -> None:
        at = tuple(np.argwhere(bad)[0])
        self.races.append(f"{type(step.op).__name__} {what} {name} at {int(cells[at])}")

    def touch(
        self,
        step: Step,
        views: Array,
        shown: Array | None,
        agents: Array,
        name: str,
        cells: Array,
        write: bool,
        apart: bool = False,
    ) -> None:
        """Check accesses and note them.

        Args:
            step: for the message.
            views: (rows, agents): what has happened before, for each row of cells.
            shown: of what is apart: what fences have made visible; None for threads.
            agents: (rows,): who makes the access.
            name: the buffer.
            cells: (rows, count).
            write: whether it writes.
            apart: whether what is apart makes it.
        """
        state = self.of(name)
        rows = np.arange(len(cells))[:, None]
        writer, when = state.writer[cells], state.when[cells]
        known = views[rows, np.maximum(writer, 0)]
        bad = (writer >= 0) & (when > known)
        if bad.any():
            self.race(step, name, cells, bad, "after a write of")
        if shown is not None:
            generic = (writer >= 0) & ~state.apart[cells]
            hidden = generic & (when > shown[rows, np.maximum(writer, 0)])
            if hidden.any():
                self.race(step, name, cells, hidden, "without a fence of the proxy of")
        if write:
            flat = cells.reshape(-1)
            late = state.read[flat] > np.repeat(views, cells.shape[1], axis=0)
            if late.any():
                self.race(step, name, flat, late.any(axis=1), "overwrites, after a read,")
            order = np.argsort(flat, kind="stable")
            ordered = flat[order]
            twice = ordered[1:] == ordered[:-1]
            if twice.any():
                who = np.broadcast_to(agents[:, None], cells.shape).reshape(-1)[order]
                if (twice & (who[1:] != who[:-1])).any() or apart:
                    self.race(step, name, ordered[1:], twice, "writes twice")
            state.writer[cells] = agents[:, None]
            state.when[cells] = self.clock[agents][:, None]
            state.apart[cells] = apart
            state.read[flat] = 0
        else:
            state.read[cells, agents[:, None]] = self.clock[agents][:, None]

    def tick(self, agents: Array) -> None:
        """Let agents go on to a new time: what they did so far has a name of its own."""
        self.clock[agents] += 1
        own = agents[agents < self.threads]
        self.seen[own, own] = self.clock[own]

    # -- what the engine reports -------------------------------------------------------------------

    def thread(self, threads: Array) -> Array:
        return np.minimum(threads, self.threads - 1)

    def access(self, step: Step, threads: Array, name: str, cells: Array, write: bool) -> None:
        """Threads touch cells."""
        if not len(cells):
            return
        self.touch(step, self.seen[threads], None, threads, name, cells, write)

    def sync(self, step: Step, threads: Array) -> None:
        """A barrier."""
        threads = np.unique(threads)
        self.seen[threads] = self.seen[threads].max(axis=0)
        self.shown[threads] = self.shown[threads].max(axis=0)
        self.tick(threads)

    def fence(self, threads: Array) -> None:
        """``fence.proxy.async``."""
        self.shown[threads] = np.maximum(self.shown[threads], self.seen[threads])

    def arrive(self, step: Step, key: tuple[str, int], phase: int, threads: Array) -> None:
        """One thread arrives."""
        thread = int(threads[0])
        self.give(key, phase, self.seen[thread].copy(), self.shown[thread].copy())
        self.tick(np.array([thread]))

    def give(self, key: tuple[str, int], phase: int, seen: Array, shown: Array) -> None:
        before = self.done.get((key, phase))
        if before is not None:
            seen, shown = np.maximum(seen, before[0]), np.maximum(shown, before[1])
        self.done[key, phase] = (seen, shown)

    def wait(self, step: Step, key: tuple[str, int], phases: int, threads: Array) -> None:
        """Threads have seen a complete phase: the last one."""
        found = self.done.get((key, phases - 1))
        if found is None:
            return
        threads = self.thread(threads)
        self.seen[threads] = np.maximum(self.seen[threads], found[0])
        self.shown[threads] = np.maximum(self.shown[threads], found[1])
        own = self.seen[threads, threads]
        self.seen[threads, threads] = np.maximum(own, self.clock[threads])

    def issue(
        self, step: Step, threads: Array, name: str, near: Array, source: str, far: Array,
        inside: Array,
    ) -> None:  # fmt: skip
        """``cp.async``."""
        agents = threads + self.copies
        self.clock[agents] += 1
        if len(far):
            self.touch(step, self.seen[threads[inside]], None, agents[inside], source, far, False)
        self.touch(step, self.seen[threads], None, agents, name, near, True)

    def commit(self, threads: Array) -> None:
        """Close the threads' groups."""
        for thread in threads.tolist():
            self.groups.setdefault(thread, []).append(int(self.clock[thread + self.copies]))

    def wait_group(self, threads: Array, pending: int) -> None:
        """The threads' own copies are complete, but for the newest groups."""
        for thread in threads.tolist():
            groups = self.groups.get(thread, [])
            if len(groups) > pending:
                agent = thread + self.copies
                self.seen[thread, agent] = max(
                    self.seen[thread, agent], groups[len(groups) - 1 - pending]
                )
                self.shown[thread, agent] = max(self.shown[thread, agent], 0)

    def fill(self, step: Step, thread: int, key: tuple[str, int], phase: int, loads: Any) -> None:
        """A bulk load starts; its mbarrier's phase says that it is complete."""
        agent = self.loads[key]
        self.clock[agent] += 1
        who = np.array([agent])
        for into, source, near, far, inside in loads:
            if inside.any():
                view = self.seen[thread][None]
                self.touch(step, view, None, who, source, far[inside][None], False, True)
            # What threads wrote must have been shown before what is apart overwrites it.
            self.touch(
                step, self.seen[thread][None], self.shown[thread][None], who, into, near[None],
                True, True,
            )  # fmt: skip
        seen, shown = self.seen[thread].copy(), self.shown[thread].copy()
        seen[agent] = self.clock[agent]
        self.give(key, phase, seen, shown)
        self.tick(np.array([thread]))

    def drain(self, step: Step, leader: int, stores: Any) -> None:
        """A bulk store starts."""
        group = leader // 128
        agent, result = self.stores + group, self.results + group
        self.clock[[agent, result]] += 1
        view, shown = self.seen[leader][None].copy(), self.shown[leader][None]
        view[0, result] = self.clock[result]
        for memory, source, near, far, inside in stores:
            self.touch(step, view, shown, np.array([agent]), source, near[None], False, True)
            if inside.any():
                who = np.array([result])
                self.touch(step, view, None, who, memory, far[inside][None], True, True)
        self.store_groups.setdefault(leader, []).append(int(self.clock[agent]))

    def drained(self, leader: int, pending: int) -> None:
        """The bulk stores of a thread have read, but for the newest."""
        groups = self.store_groups.get(leader, [])
        if len(groups) > pending:
            agent = self.stores + leader // 128
            self.seen[leader, agent] = max(
                self.seen[leader, agent], groups[len(groups) - 1 - pending]
            )

    def product(self, step: Step, group: int, threads: Array, operands: Any) -> None:
        """A product starts: it reads when all warps of its warpgroup have started it."""
        agent = self.products + group
        self.clock[agent] += 1
        view = self.seen[threads].min(axis=0)[None]
        shown = self.shown[threads].min(axis=0)[None]
        view = view.copy()
        view[0, agent] = self.clock[agent]
        for name, cells in operands:
            self.touch(
                step, view, shown, np.array([agent]), name, cells.reshape(1, -1), False, True
            )

    def commit_products(self, group: int) -> None:
        """Close a group of products."""
        agent = self.products + group
        self.product_groups.setdefault(group, []).append(int(self.clock[agent]))

    def wait_products(self, group: int, threads: Array, pending: int) -> None:
        """Products are complete, but for the newest groups."""
        groups = self.product_groups.get(group, [])
        if len(groups) > pending:
            agent = self.products + group
            self.seen[threads, agent] = np.maximum(
                self.seen[threads, agent], groups[len(groups) - 1 - pending]
            )


assert WARP == 32
