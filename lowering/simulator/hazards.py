"""The race detector of the simulator: which accesses of one cell are ordered, and which race.

Two accesses of one cell of which one writes, by different agents, race unless one happens before
the other. These are the rules; :class:`~lowering.simulator.order.Order` holds what they make known.

Agents. Every thread of every CTA, and the producer thread; beside them the async proxy: the
``wgmma`` of each warp, the TMA stores of each warpgroup's first thread, the TMA loads that complete
one mbarrier, and ``tcgen05``. A warp's threads are no unit: they are not in lockstep,
and neither ``mma`` nor ``ldmatrix`` nor ``stmatrix`` orders memory.

Order, always transitive (who knows, passes on what others have told it):

- A thread's own operations, as it runs them.
- ``sync`` of a warp, a warpgroup, a CTA: among its threads, both ways; of a cluster, among all
  threads of its CTAs, where it is said to order memory.
- An mbarrier: what a thread did or knew before it arrives (release) comes before what a thread does
  after it has waited for the phase (acquire). One lane per warp arrives, its first (everywhere: at
  each CTA of the cluster that of its rank): what the other lanes did it must have been told, by a
  ``sync``.
- A TMA load reads global and writes shared memory between its ``tma_load`` and the completion of
  its mbarrier's phase; whoever waits for that phase knows. ``tma_load`` is itself an arrival.
- ``cp.async`` reads and writes between its start and the ``wait`` of the thread that started it; it
  is as if this thread did both at that ``wait``. Groups complete in order.
- ``wgmma`` reads shared memory between its start and the wait of its group, which tells each thread
  that waits about its own warp; who knows of all four warps knows that it has read.
- A TMA store reads shared memory between its ``tma_store`` and ``tma_store_wait``, which tells the
  thread that started it. Nothing in a kernel waits for what it writes to global memory.
- ``tcgen05`` reads and writes between its start and the phase that its commit completes, which
  tells who waits for it also what the thread that started it had been told. The rules of tensor
  memory stand in :mod:`lowering.simulator.tmem`.
- CTAs of a grid are never ordered, unless they are of one cluster.

Proxies. What a thread wrote is read, or overwritten, by ``wgmma``, TMA and ``tcgen05`` only if a
``fence.proxy.async`` lies on the path from one to the other: of the thread that wrote, or of one
that knew of it. What was read needs no fence before TMA overwrites it.

Phases of an mbarrier. However fast the threads are, an arrival must count, and a wait must pass, in
the same phase. Whether a thread came so far is all that matters here: a ``.sync`` instruction of a
warp, which orders no memory, orders its threads in this, and so does a box from another CTA.

- Who arrives (by a ``tma_load``, a multicast box or a ``tcgen05.commit`` too) must know that the
  phase before is complete: wait for it, or come after one who has, or after all that arrived in it.
- A wait, or a try_wait, may pass on the latest phase of the same parity: who waits for a phase must
  know that the one before is complete.
- A phase may be complete as soon as all have arrived: all of them together must come after every
  wait for the phase before, or such a wait is overtaken, and waits forever.

One instruction. Two threads that store to one cell race, whatever they store, unless the store says
``aliases``: the stores of one copy that says so count as one instruction, in one step of its loops.
Each of them comes after all that touched the cell before the copy, and before what comes after it.

How it is found. Each cell keeps its last write, and when it was last read; reads stand in a list,
exactly, by thread, which is asked only for cells whose last read not everybody knows of: since the
last barrier of the CTA. An access that was found ordered after a write is ordered after all that
this write was ordered after, so that one write, and the reads since, are enough. Of stores that
alias it is not: all those of the last copy to a cell are kept, with the write before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from layoutalg import LayoutError
from lowering.ir.matrices import Matrix
from lowering.ir.ops import Op
from lowering.simulator.order import FOREVER, MEMORY, PROXY, Bools, Ints, Order

NEVER = -1  # the clock of what did not happen
CELL, WHO, STAMP, COPY, ASYNC = range(5)  # rows of what is known of writes that alias
ATOMIC = -1  # where a copy that aliases has its rank: changes by one function are like one copy
ROOM = 256  # how many reads are kept before those that everybody knows of are dropped


class SimulationError(LayoutError):
    """A program reads what nothing wrote, or races: the text names the operation and the place."""


@dataclass(frozen=True)
class Read:
    """Cells that threads read by one operation: (threads, cells), by whom, and when."""

    cell: Ints
    who: Ints
    stamp: int


@dataclass(frozen=True)
class Async:
    """Who accesses cells by the async proxy: ``starters`` start it together, ``agents`` do it.

    What all starters know as written comes before it. It goes on until it is complete: who knows
    that of all agents knows that it is.
    """

    starters: Sequence[int]
    agents: tuple[int, ...]

    @property
    def named(self) -> int:
        """Who it is in messages."""
        return self.starters[0] if len(self.starters) == 1 else self.agents[0]


By = Ints | Async  # (threads, 1): of each row of cells, the thread


# What is wrong with overwriting what these read: while they do, and once they have.
READERS = {
    "wgmma": (
        "a wgmma of {} still reads: commit, and wait for it",
        "a wgmma of {} read with no barrier in between: sync first",
    ),
    "tma_store": (
        "{} still reads: wait with tma_store_wait",
        "{} read with no barrier in between: sync first",
    ),
    "tcgen05": (
        "{} still reads: commit it to an mbarrier, and wait for that",
        "{} read, and no thread waited for its commit",
    ),
    "tma_load": (
        "{} still reads: wait for its mbarrier",
        "{} read, and that thread has not waited for its mbarrier",
    ),
}
# What is wrong with touching what these wrote; where nothing is said, a barrier is missing.
WRITERS = {
    "tma_load": "wrote, and that thread has not waited for its mbarrier",
    "outside": "writes: nothing in a kernel waits for that",
}
UNORDERED = "with no barrier in between: sync first"


@dataclass
class Cells:
    """The cells of one buffer in shared or global memory, and the accesses that count.

    - ``tracked``: whether the program both may write it and must order that; else only bounds and
      what is written are checked. ``shared``: whether one CTA alone has it.
    - ``writer``, ``wrote``: the last write; ``async_proxy``: whether the async proxy did it;
      ``pending``: whether it goes on.
    - ``copying``: how many copies read a cell now. ``latest``: the last read by a thread since the
      last write; ``reads``: all of them; ``room``: how many may be kept before those that everybody
      knows of are dropped. ``readers``: the last read of agents that are no threads.
    - ``since``: when the first of the writes was done that count as the last, less one, so that
      reads after it count. ``copy``: the number of the copy whose stores alias, and that wrote
      last; 0: none did. ``numbers``: those of all such copies. ``beside``: the writes of cells that
      such a copy wrote last, and the ones before: columns of :data:`CELL` and so on, sorted by
      cell.
    - ``elsewhere``: what CTAs that ran before wrote, and read; and by which function they changed
      what they only changed atomically, else 0.
    """

    name: str
    values: Matrix
    written: Bools
    tracked: bool
    shared: bool
    reads: list[Read] = field(default_factory=list)
    readers: dict[tuple[int, ...], Ints] = field(default_factory=dict)
    elsewhere: tuple[Bools, Bools, Ints] | None = None

    @classmethod
    def of(cls, name: str, values: Matrix, written: bool, tracked: bool, shared: bool) -> Cells:
        """Return cells that nothing has touched; ``written``: but that have their values."""
        return cls(name, values, np.full(values.shape, written), tracked, shared)

    def __post_init__(self) -> None:
        """Begin with no access."""
        size = len(self.values) if self.tracked else 0
        self.writer, self.wrote, self.latest = (
            np.full(size, NEVER, dtype=np.int64) for _ in range(3)
        )
        self.async_proxy = np.zeros(size, dtype=bool)
        self.pending = np.zeros(size, dtype=bool)
        self.copying = np.zeros(size, dtype=np.int64)
        self.since = np.full(size, NEVER, dtype=np.int64)
        self.copy = np.zeros(size, dtype=np.int64)
        self.numbers: dict[tuple[int, ...], int] = {}
        self.beside = np.zeros((5, 0), dtype=np.int64)
        self.room = ROOM

    # -- reads --------------------------------------------------------------------------------

    def read(self, op: Op, cell: Ints, by: By, order: Order) -> Matrix:
        """Return the values of cells; the async proxy reads them until it is complete.

        Args:
            op: for messages.
            cell: (threads, cells); those of the async proxy in any shape.
            by: who reads.
            order: of the cluster.

        Raises:
            SimulationError: a cell is outside or unwritten, what wrote it is not known to its
                reader, or a proxy fence is missing.
        """
        self.check_bounds(op, cell)
        self.check_written(op, cell)
        if self.tracked:
            self._after_writes(op, cell, by, order, "reads")
            self.note(cell, by, order)
        return self.values[cell]

    def note(self, cell: Ints, by: By, order: Order) -> None:
        """Note that cells have been read, or are being read by the async proxy."""
        if not self.tracked:
            return
        if isinstance(by, Async):
            never = np.full(len(self.values), NEVER, dtype=np.int64)
            self.readers.setdefault(by.agents, never)[cell] = order.clock
        elif cell.size:
            self.latest[cell] = order.clock
            self.reads.append(Read(cell, by[:, 0], order.clock))
            if len(self.reads) > self.room:
                oldest = order.oldest(order.actors)
                self.reads = [each for each in self.reads if each.stamp >= oldest]
                self.room = ROOM + 2 * len(self.reads)

    # -- writes -------------------------------------------------------------------------------

    def write(
        self,
        op: Op,
        cell: Ints,
        by: By,
        values: Matrix,
        order: Order,
        aliases: tuple[int, ...] = (),
    ) -> None:
        """Write cells, at once.

        Args:
            op: for messages.
            cell: (threads, cells); those of the async proxy in any shape.
            by: who writes.
            values: what to write.
            order: of the cluster.
            aliases: of which copy, in which step of its loops, the other writes may be to one cell;
                empty: none may.

        Raises:
            SimulationError: as of :meth:`start`.
        """
        self.start(op, cell, by, order, aliases)
        self.finish(cell, values)

    def change(self, op: Op, cell: Ints, by: By, order: Order, function: int) -> None:
        """Note atomic changes of cells, which race with all but changes by the same function.

        Raises:
            SimulationError: as of :meth:`start`; or nothing wrote a cell before.
        """
        self.check_bounds(op, cell)
        self.check_written(op, cell)
        self.start(op, cell, by, order, (ATOMIC, function))

    def start(
        self, op: Op, cell: Ints, by: By, order: Order, aliases: tuple[int, ...] = ()
    ) -> None:
        """Note that cells are written from now on; see :meth:`write`.

        Raises:
            SimulationError: a cell is out of reach, written twice, or not ordered after others, or
                a proxy fence is missing.
        """
        self.check_bounds(op, cell)
        if not self.tracked or not cell.size:
            return
        copy = self.numbers.setdefault(aliases, len(self.numbers) + 1) if aliases else NEVER
        self._after_writes(op, cell, by, order, "overwrites", copy)
        self._after_reads(op, cell, by, order)
        me = by.agents[0] if isinstance(by, Async) else by
        if aliases:
            self._add_beside(cell, me, order, copy)
        else:
            self._begin(cell, order)
        self.writer[cell] = me
        twice = self.writer[cell] != me
        if twice.any() and not aliases:
            at = tuple(np.argwhere(twice)[0])
            one = int(np.broadcast_to(me, cell.shape)[at])
            one, other = sorted((one, int(self.writer[cell[at]])))
            raise SimulationError(
                f"simulate: {op} races: {order.name(one)} and {order.name(other)} write "
                f"{self.name} at {int(cell[at])} in one instruction: let one of them write it"
            )
        self.wrote[cell] = order.clock
        self.async_proxy[cell] = isinstance(by, Async)

    def _function(self, copy: int) -> int:
        """Return by which function the writes of a copy change cells; 0: they are stores."""
        key = next(key for key, number in self.numbers.items() if number == copy)
        return key[1] if key[0] == ATOMIC else 0

    def _begin(self, cell: Ints, order: Order) -> None:
        """Drop the history of cells whose new write is ordered after all of it."""
        self.latest[cell] = NEVER
        self.since[cell] = order.clock
        self.copy[cell] = 0
        if self.beside.size:
            self.beside = self.beside[:, ~np.isin(self.beside[CELL], cell)]

    def _add_beside(self, cell: Ints, me: Any, order: Order, copy: int) -> None:
        """Remember writes of a copy that alias, and the write before the first of them."""
        new = np.unique(cell[self.copy[cell] != copy])
        kept = self.beside[:, ~np.isin(self.beside[CELL], new)]
        self.since[new] = self.wrote[new]
        self.copy[new] = copy
        old = new[self.writer[new] >= 0]
        before = (old, self.writer[old], self.wrote[old], np.zeros_like(old), self.async_proxy[old])
        flat, who = cell.reshape(-1), np.broadcast_to(me, cell.shape).reshape(-1)
        ours = (flat, who, *(np.full_like(flat, each) for each in (order.clock, copy, 0)))
        found = np.concatenate([kept, np.stack(before), np.stack(ours)], axis=1)
        self.beside = found[:, np.argsort(found[CELL], kind="stable")]

    def _beside(self, cell: Ints) -> tuple[Ints, Ints]:
        """Return which of some cells, flat, have which columns of :attr:`beside`: all pairs."""
        flat = cell.reshape(-1)
        first, last = (np.searchsorted(self.beside[CELL], flat, side) for side in ("left", "right"))
        count = last - first
        at = np.repeat(np.arange(len(flat)), count)
        return at, np.arange(len(at)) + np.repeat(first - np.cumsum(count) + count, count)

    def _restamp(self, cell: Ints, who: Ints, stamp: int) -> None:
        """Set when writes that alias were done; FOREVER for those in flight."""
        if self.beside.size:
            at, column = self._beside(cell)
            by = np.broadcast_to(who, cell.shape).reshape(-1)[at]
            ours = (self.beside[WHO, column] == by) & (self.beside[COPY, column] > 0)
            self.beside[STAMP, column[ours]] = stamp

    def finish(self, cell: Ints, values: Matrix) -> None:
        """Complete writes: give cells their values."""
        self.values[cell] = values
        self.written[cell] = True
        if self.tracked:
            self.pending[cell] = False

    def finish_later(self, cell: Ints, values: Matrix, who: Ints, order: Order) -> None:
        """Complete writes of ``cp.async``, as if the threads wrote now; see :meth:`copy_later`."""
        self.values[cell] = values
        self.written[cell] = True
        if self.tracked:
            last = cell[self.writer[cell] == who]
            self.pending[last] = False
            self.wrote[last] = order.clock
            self._restamp(cell, who, order.clock)

    def copy_later(self, cell: Ints, who: Ints | None = None) -> None:
        """Note that writes that were started are complete only after a wait.

        ``who``: the threads of a ``cp.async``, each of which waits for its own; None: TMA.
        """
        self.written[cell] = False
        if self.tracked:
            self.pending[cell] = True
            if who is not None:
                self._restamp(cell, who, FOREVER)

    def copy_from(self, cell: Ints) -> None:
        """Note that a ``cp.async`` reads cells until it is waited for."""
        if self.tracked:
            np.add.at(self.copying, cell, 1)

    def copied(self, cell: Ints, me: Ints, order: Order) -> None:
        """Note that the ``cp.async`` of those who waited have read their cells."""
        if self.tracked:
            np.add.at(self.copying, cell, -1)
            self.note(cell, me, order)

    # -- checks -------------------------------------------------------------------------------

    def check_bounds(self, op: Op, cell: Ints) -> None:
        """Refuse an address outside the buffer.

        Raises:
            SimulationError: an address is.
        """
        size = len(self.values)
        if cell.size and (cell.min() < 0 or cell.max() >= size):
            at = int(cell.max() if cell.max() >= size else cell.min())
            raise SimulationError(
                f"simulate: {op} reaches {self.name} at {at}; it has {size} cells"
            )

    def check_written(self, op: Op, cell: Ints) -> None:
        """Refuse to read cells that nothing wrote.

        Raises:
            SimulationError: a cell is one of them, or still being copied.
        """
        written = self.written[cell]
        if not written.all():
            at = int(cell[~written].flat[0])
            copied = self.tracked and self.pending[at]
            state = "still being copied: wait for it" if copied else "which nothing wrote"
            raise SimulationError(f"simulate: {op} reads {self.name} at {at}, {state}")

    def _writes(self, cell: Ints) -> Iterator[tuple[Any, Ints, Ints, Ints, Bools, Bools]]:
        """Yield the last write of each cell, then the writes beside it.

        Which of the cells, flat; by whom, when, of which copy, whether by the async proxy, and
        whether it goes on.
        """
        flat = cell.reshape(-1)
        yield (
            slice(None),
            self.writer[flat],
            self.wrote[flat],
            self.copy[flat],
            self.async_proxy[flat],
            self.pending[flat],
        )
        if self.beside.size:
            at, column = self._beside(cell)
            _, writer, wrote, copy, async_proxy = self.beside[:, column]
            yield at, writer, wrote, copy, async_proxy > 0, wrote == FOREVER

    def _after_writes(
        self, op: Op, cell: Ints, by: By, order: Order, verb: str, copy: int = NEVER
    ) -> None:
        """Refuse what is not ordered after the writes of its cells, or lacks a proxy fence.

        ``copy``: that whose writes are as those of this very instruction.
        """
        flat, who = cell.reshape(-1), _named(cell, by).reshape(-1)
        for at, writer, wrote, copies, _, goes_on in self._writes(cell):
            if isinstance(by, Async):
                known = order.row(MEMORY, by.starters)[writer]
            else:
                known = order.until(who[at], writer)
            late = ((writer >= 0) & (wrote >= known) | goes_on) & (copies != copy)
            if late.any():
                first = int(np.argmax(late))
                wrong = WRITERS.get(order.kind(int(writer[first])), f"wrote {UNORDERED}")
                if goes_on[first]:
                    wrong = "still copies to: wait for it"
                raise SimulationError(
                    f"simulate: {op} races: {order.name(int(who[at][first]))} {verb} {self.name} "
                    f"at {int(flat[at][first])}, which {order.name(int(writer[first]))} {wrong}"
                )
        if self.elsewhere is not None:
            touched, _, changed = self.elsewhere
            if copy != NEVER and (ATOMIC, mine := self._function(copy)) in self.numbers:
                touched = touched & (changed != mine)
            self._check_elsewhere(op, cell, by, order, verb, touched, "wrote")
        if not isinstance(by, Async):
            return
        fenced = order.row(PROXY, by.starters)
        for at, writer, wrote, _, async_proxy, _ in self._writes(cell):
            hidden = (writer >= 0) & ~async_proxy & (wrote >= fenced[writer])
            if hidden.any():
                first = int(np.argmax(hidden))
                raise SimulationError(
                    f"simulate: {op} {verb} {self.name} at {int(flat[at][first])}, which "
                    f"{order.name(int(writer[first]))} wrote with no fence.proxy.async in between"
                )

    def _check_elsewhere(
        self, op: Op, cell: Ints, by: By, order: Order, verb: str, touched: Bools, did: str
    ) -> None:
        """Refuse cells that another CTA touched: the two may run in either order."""
        if touched[cell].any():
            at, who = tuple(np.argwhere(touched[cell])[0]), _named(cell, by)
            raise SimulationError(
                f"simulate: {op} races: {order.name(int(who[at]))} {verb} {self.name} at "
                f"{int(cell[at])}, which another CTA of the grid {did}: nothing orders the two"
            )

    def _after_reads(self, op: Op, cell: Ints, by: By, order: Order) -> None:
        """Refuse to overwrite cells whose reads since the last write are not ordered before."""
        who = _named(cell, by)
        since = self.since[cell]
        copied = self.copying[cell] > 0
        if copied.any():
            at = tuple(np.argwhere(copied)[0])
            raise SimulationError(
                f"simulate: {op} races: {order.name(int(who[at]))} overwrites {self.name} at "
                f"{int(cell[at])}, which a copy still reads: wait for it"
            )
        for agents, latest in self.readers.items():
            stamp = latest[cell]
            if stamp.max(initial=NEVER) < 0:
                continue
            known = order.known[MEMORY, who[..., None], agents].min(axis=-1)
            late = (stamp >= known) & (stamp > since)
            if late.any():
                at = tuple(np.argwhere(late)[0])
                done = order.complete[list(agents)].min() > stamp[at]
                reader = READERS[order.kind(agents[0])][int(done)].format(order.name(agents[0]))
                raise SimulationError(
                    f"simulate: {op} overwrites {self.name} at {int(cell[at])} in "
                    f"{order.name(int(who[at]))}, which {reader}"
                )
        if self.elsewhere is not None:
            self._check_elsewhere(op, cell, by, order, "overwrites", self.elsewhere[1], "read")
        writers = np.unique(by.named if isinstance(by, Async) else by)
        if (
            self.latest[cell].max(initial=NEVER) < order.floor(writers, self.shared)
            or not self.reads
        ):
            return
        lowest = order.oldest(writers)
        places = None
        for each in reversed(self.reads):
            if each.stamp < lowest:
                break
            knows = each.stamp < order.until(writers[:, None], each.who[None, :])
            if knows.all():
                continue
            if places is None:  # who of the writers writes a cell now
                places = np.full(len(self.values), NEVER, dtype=np.int64)
                places[cell] = np.searchsorted(writers, who)
            here = places[each.cell]
            row = np.broadcast_to(np.arange(len(each.who))[:, None], here.shape)
            late = (here >= 0) & ~knows[here, row] & (each.stamp > self.since[each.cell])
            if late.any():
                first = np.argmin(here[late])
                who_read, at = each.who[row[late][first]], each.cell[late][first]
                raise SimulationError(
                    f"simulate: {op} races: {order.name(int(writers[here[late].min()]))} "
                    f"overwrites {self.name} at {int(at)}, which {order.name(int(who_read))} read "
                    f"{UNORDERED}"
                )

    # -- the whole ----------------------------------------------------------------------------

    def leave(self) -> None:
        """Note what the CTAs that ran touched: nothing orders later CTAs after them."""
        if not self.tracked:
            return
        if self.elsewhere is None:
            size = len(self.values)
            nothing = np.zeros(size, dtype=bool)
            self.elsewhere = nothing, nothing.copy(), np.zeros(size, dtype=np.int64)
        wrote, read, changed = self.elsewhere
        here = self.writer >= 0
        by = np.array([0, *map(self._function, self.numbers.values())])[self.copy]
        by[self.beside[CELL, self.beside[COPY] == 0]] = 0  # stored to before
        changed[here] = np.where(wrote & (changed != by), 0, by)[here]
        wrote |= here
        read |= self.latest >= 0
        for latest in self.readers.values():
            read |= latest >= 0
        self.reads.clear()
        self.readers.clear()
        self.__post_init__()


def _named(cell: Ints, by: By) -> Ints:
    """Return who accesses each cell, for messages and for what else one thread each must know."""
    return np.broadcast_to(np.asarray(by.named if isinstance(by, Async) else by), cell.shape)
