"""The race detector of the NumPy warp: which accesses of one cell are ordered, and which race.

Two accesses of one cell of which one writes, by different agents, race unless one happens before
the other. These are the rules; :class:`~lowering.simulator.order.Order` holds what they make known.

Agents. Every thread of every CTA, and the thread that produces; beside them what runs by itself:
the products (``wgmma``) of each warp, the bulk stores of each warpgroup's first thread, the boxes
that complete one mbarrier, and ``tcgen05``. A warp's threads are no unit: they are not in lockstep,
and neither ``mma`` nor ``ldmatrix`` nor ``stmatrix`` orders memory.

Order, always transitive (who knows, passes on what others have told it):

- A thread's own operations, as it runs them.
- ``sync`` of a warp, a warpgroup, a CTA: among its threads, both ways; of a cluster, among all
  threads of its CTAs, where it is said to order memory.
- An mbarrier: what a thread did or knew before it arrives (release) comes before what a thread does
  after it has waited for the phase (acquire). One lane per warp arrives, its first (everywhere: at
  each CTA of the cluster that of its rank): what the other lanes did it must have been told, by a
  ``sync``.
- Boxes (TMA loads) are written between their ``fill`` and the completion of its mbarrier's phase,
  and read global memory then; whoever waits for that phase knows. ``fill`` is itself an arrival.
- ``cp.async`` reads and writes between its start and the ``wait`` of the thread that started it; it
  is as if this thread did both at that ``wait``. Groups complete in order.
- ``wgmma`` reads shared memory between its start and the wait of its group, which tells each thread
  that waits about its own warp; who knows of all four warps knows that it has read.
- A bulk store (TMA store) reads shared memory between its start and ``drained``, which tells the
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

- Who arrives (with a ``fill``, a box or a commit of the tensor core too) must know that the phase
  before is complete: await it, or come after one who has, or after all that arrived in it.
- A wait, or a peek, may pass on the latest phase of the same parity: who waits for a phase must
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

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from layoutalg import LayoutError
from lowering.ir.matrices import Matrix
from lowering.ir.ops import Op
from lowering.simulator.order import FOREVER, MEMORY, PROXY, Bools, Ints, Order

NEVER = -1  # the clock of what did not happen
CELL, WHO, STAMP, COPY, APART = range(5)  # rows of what is known of writes that alias
ROOM = 256  # how many reads are kept before those that everybody knows of are dropped


class SimulationError(LayoutError):
    """A program reads what nothing wrote, or races: the text names the operation and the place."""


@dataclass(frozen=True)
class Read:
    """Cells that threads read by one operation: (threads, cells), by whom, and when."""

    cell: Ints
    who: Ints
    stamp: int


# What is wrong with overwriting what these read: while they do, and once they have.
READERS = {
    "products": (
        "a wgmma of {} still reads: commit, and wait for it",
        "a wgmma of {} read with no barrier in between: sync first",
    ),
    "drains": (
        "{} still reads: wait until it is drained",
        "{} read with no barrier in between: sync first",
    ),
    "core": (
        "{} still reads: commit it to an mbarrier, and await that",
        "{} read, and nobody awaited its commit before",
    ),
    "boxes": (
        "{} still reads: wait for its mbarrier",
        "{} read, and that thread has not waited for its mbarrier",
    ),
}
# What is wrong with touching what these wrote; where nothing is said, a barrier is missing.
WRITERS = {
    "boxes": "wrote, and that thread has not waited for its mbarrier",
    "outside": "writes: nothing in a kernel waits for that",
}
UNORDERED = "with no barrier in between: sync first"


@dataclass
class Cells:
    """The cells of one buffer in shared or global memory, and the accesses that count.

    ``tracked``: whether the program both may write it and must order that; else only bounds and
    what is written are checked. ``shared``: whether one CTA alone has it. ``writer`` and ``wrote``:
    the last write. ``apart``: whether that was one of the async proxy. ``pending``: whether it goes
    on. ``copying``: how many copies read now. ``latest``: the last read by a thread since the last
    write; ``reads``: all of them; ``room``: how many may be kept before those that everybody knows
    of are dropped. ``readers``: the last read of agents that are no threads. ``since``: when the
    first of the writes was done that count as the last, less one, so that reads after it count.
    ``copy``: the number of the copy whose stores alias, and that wrote last; 0: none did.
    ``numbers``: those of all such copies. ``beside``: the writes of cells that such a copy wrote
    last, and the ones before: columns of :data:`CELL` and so on, sorted by cell. ``elsewhere``:
    what CTAs that ran before wrote, and read.
    """

    name: str
    values: Matrix
    written: Bools
    tracked: bool
    shared: bool
    reads: list[Read] = field(default_factory=list)
    readers: dict[tuple[int, ...], Ints] = field(default_factory=dict)
    elsewhere: tuple[Bools, Bools] | None = None

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
        self.apart = np.zeros(size, dtype=bool)
        self.pending = np.zeros(size, dtype=bool)
        self.copying = np.zeros(size, dtype=np.int64)
        self.since = np.full(size, NEVER, dtype=np.int64)
        self.copy = np.zeros(size, dtype=np.int64)
        self.numbers: dict[tuple[int, ...], int] = {}
        self.beside = np.zeros((5, 0), dtype=np.int64)
        self.room = ROOM

    # -- reads --------------------------------------------------------------------------------

    def read(self, op: Op, cell: Ints, me: Ints, order: Order) -> Matrix:
        """Return the values of cells that threads read.

        Args:
            op: for messages.
            cell: (threads, cells).
            me: (threads, 1), agents.
            order: of the cluster.

        Raises:
            SimulationError: a cell is outside or unwritten, or what wrote it is not known to its
                reader.
        """
        self.check_bounds(op, cell)
        self.check_written(op, cell)
        if self.tracked:
            self._after_write(op, cell, me, order, "reads")
            self.note(cell, me, order)
        return self.values[cell]

    def note(self, cell: Ints, me: Ints, order: Order) -> None:
        """Note that threads have read cells."""
        if self.tracked and cell.size:
            self.latest[cell] = order.clock
            self.reads.append(Read(cell, me[:, 0], order.clock))
            if len(self.reads) > self.room:
                oldest = order.oldest(order.actors)
                self.reads = [each for each in self.reads if each.stamp >= oldest]
                self.room = ROOM + 2 * len(self.reads)

    def read_apart(
        self, op: Op, cell: Ints, starters: Sequence[int], agents: tuple[int, ...], order: Order
    ) -> Matrix:
        """Return the values of cells that something reads beside the threads, until it is complete.

        Args:
            op: for messages.
            cell: which.
            starters: the threads that start it: all of them know what was written.
            agents: those that read, each a part: who knows of all knows that it is complete.
            order: of the cluster.

        Raises:
            SimulationError: as of :meth:`read`, or a proxy fence is missing.
        """
        self.check_bounds(op, cell)
        self.check_written(op, cell)
        if self.tracked:
            self._after_write_apart(op, cell, starters, agents[0], order)
            self.check_fenced(op, cell, starters, order, "reads")
        self.note_apart(cell, agents, order)
        return self.values[cell]

    def note_apart(self, cell: Ints, agents: tuple[int, ...], order: Order) -> None:
        """Note that something beside the threads reads cells from now on."""
        if self.tracked:
            never = np.full(len(self.values), NEVER, dtype=np.int64)
            self.readers.setdefault(agents, never)[cell] = order.clock

    # -- writes -------------------------------------------------------------------------------

    def write(
        self,
        op: Op,
        cell: Ints,
        me: Ints,
        values: Matrix,
        order: Order,
        aliases: tuple[int, ...] = (),
    ) -> None:
        """Let threads write cells, at once.

        Args:
            op: for messages.
            cell: (threads, cells).
            me: (threads, 1), agents.
            values: what to write.
            order: of the cluster.
            aliases: of which copy, in which step of its loops, the other writes may be to one cell;
                empty: none may.

        Raises:
            SimulationError: a cell is outside, or what touched it is not known to its writer.
        """
        self.start(op, cell, me, order, aliases)
        self.finish(cell, values)

    def start(
        self, op: Op, cell: Ints, me: Ints, order: Order, aliases: tuple[int, ...] = ()
    ) -> None:
        """Note that threads write cells from now on; see :meth:`write`.

        Raises:
            SimulationError: a cell is out of reach, written twice, or not ordered after others.
        """
        self.check_bounds(op, cell)
        if not self.tracked or not cell.size:
            return
        copy = self.numbers.setdefault(aliases, len(self.numbers) + 1) if aliases else NEVER
        self._after_write(op, cell, me, order, "overwrites", copy)
        self._after_reads(op, cell, me, order)
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
        self.apart[cell] = False

    def _begin(self, cell: Ints, order: Order) -> None:
        """Forget what came before a write that is ordered after all of it."""
        self.latest[cell] = NEVER
        self.since[cell] = order.clock
        self.copy[cell] = 0
        if self.beside.size:
            self.beside = self.beside[:, ~np.isin(self.beside[CELL], cell)]

    def _add_beside(self, cell: Ints, me: Ints, order: Order, copy: int) -> None:
        """Remember writes of a copy that alias, and the write before the first of them."""
        new = np.unique(cell[self.copy[cell] != copy])
        kept = self.beside[:, ~np.isin(self.beside[CELL], new)]
        self.since[new] = self.wrote[new]
        self.copy[new] = copy
        old = new[self.writer[new] >= 0]
        before = (old, self.writer[old], self.wrote[old], np.zeros_like(old), self.apart[old])
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
        """Say when writes that alias were done; those that go on are never known."""
        if self.beside.size:
            at, column = self._beside(cell)
            by = np.broadcast_to(who, cell.shape).reshape(-1)[at]
            ours = (self.beside[WHO, column] == by) & (self.beside[COPY, column] > 0)
            self.beside[STAMP, column[ours]] = stamp

    def start_apart(self, op: Op, cell: Ints, starter: int, agent: int, order: Order) -> None:
        """Note that something beside the threads writes cells from now on, until it is complete.

        Raises:
            SimulationError: what touched a cell is not known to the thread that starts it.
        """
        self.check_bounds(op, cell)
        if not self.tracked or not cell.size:
            return
        me = np.full((*cell.shape[:-1], 1), starter)
        self._after_write(op, cell, me, order, "overwrites")
        self.check_fenced(op, cell, (starter,), order, "overwrites")
        self._after_reads(op, cell, me, order)
        self._begin(cell, order)
        self.writer[cell] = agent
        self.wrote[cell] = order.clock
        self.apart[cell] = True

    def finish(self, cell: Ints, values: Matrix) -> None:
        """Give cells the values that were written."""
        self.values[cell] = values
        self.written[cell] = True
        if self.tracked:
            self.pending[cell] = False

    def finish_later(self, cell: Ints, values: Matrix, who: Ints, order: Order) -> None:
        """Give cells the values that threads wrote, as if they did now; see :meth:`copy_later`."""
        self.values[cell] = values
        self.written[cell] = True
        if self.tracked:
            last = cell[self.writer[cell] == who]
            self.pending[last] = False
            self.wrote[last] = order.clock
            self._restamp(cell, who, order.clock)

    def copy_later(self, cell: Ints, who: Ints | None = None) -> None:
        """Note that writes that were started are complete only after a wait.

        ``who``: the threads that wait, each for its own; None: all at once, for something else.
        """
        self.written[cell] = False
        if self.tracked:
            self.pending[cell] = True
            if who is not None:
                self._restamp(cell, who, FOREVER)

    def copy_from(self, cell: Ints) -> None:
        """Note that a copy which somebody waits for later reads cells until then."""
        if self.tracked:
            np.add.at(self.copying, cell, 1)

    def copied(self, cell: Ints, me: Ints, order: Order) -> None:
        """Note that those who waited for copies have read their cells."""
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

    def check_fenced(
        self, op: Op, cell: Ints, starters: Sequence[int], order: Order, verb: str
    ) -> None:
        """Refuse what the async proxy does to cells that threads wrote since the last fence.

        Raises:
            SimulationError: threads wrote a cell since then.
        """
        writer = self.writer[cell]
        fenced = order.row(PROXY, starters)[np.maximum(writer, 0)]
        hidden = (writer >= 0) & ~self.apart[cell] & (self.wrote[cell] >= fenced)
        if hidden.any():
            at = tuple(np.argwhere(hidden)[0])
            raise SimulationError(
                f"simulate: {op} {verb} {self.name} at {int(cell[at])}, which "
                f"{order.name(int(writer[at]))} wrote with no fence.proxy.async in between"
            )
        if self.beside.size:
            place, column = self._beside(cell)
            _, writer, wrote, _, apart = self.beside[:, column]
            hidden = (apart == 0) & (wrote >= order.row(PROXY, starters)[writer])
            if hidden.any():
                first = int(np.argmax(hidden))
                who, where = order.name(int(writer[first])), int(cell.flat[place[first]])
                raise SimulationError(
                    f"simulate: {op} {verb} {self.name} at {where}, which {who} wrote with "
                    "no fence.proxy.async in between"
                )

    def _after_write(
        self, op: Op, cell: Ints, me: Ints, order: Order, verb: str, copy: int = NEVER
    ) -> None:
        """Refuse what is not ordered after the last write of its cells.

        ``copy``: that whose writes are as those of this very instruction.
        """
        writer, wrote = self.writer[cell], self.wrote[cell]
        who = np.broadcast_to(me, cell.shape)
        late = (writer >= 0) & (wrote >= order.until(who, writer)) | self.pending[cell]
        if copy != NEVER:
            late &= self.copy[cell] != copy
        if late.any():
            at = tuple(np.argwhere(late)[0])
            self._refuse(op, int(cell[at]), int(who[at]), int(writer[at]), order, verb)
        if self.beside.size:
            place, column = self._beside(cell)
            _, writer, wrote, copies, _ = self.beside[:, column]
            by = who.reshape(-1)[place]
            late = (wrote >= order.until(by, writer)) & (copies != copy)
            self._refuse_beside(op, cell.reshape(-1)[place], by, column, late, order, verb)
        if self.elsewhere is not None:
            self._check_elsewhere(op, cell, who, order, verb, self.elsewhere[0], "wrote")

    def _refuse_beside(
        self, op: Op, at: Ints, me: Ints, column: Ints, late: Bools, order: Order, verb: str
    ) -> None:
        """Refuse the first that is not ordered after one of the writes beside the last."""
        if late.any():
            first = int(np.argmax(late))
            _, writer, wrote, _, _ = (int(each) for each in self.beside[:, column[first]])
            goes_on = wrote == FOREVER
            self._refuse(op, int(at[first]), int(me[first]), writer, order, verb, goes_on)

    def _refuse(
        self,
        op: Op,
        at: int,
        me: int,
        writer: int,
        order: Order,
        verb: str,
        goes_on: bool | None = None,
    ) -> None:
        """Refuse what is not ordered after a write; ``goes_on``: if that is not the last."""
        wrong = WRITERS.get(order.kind(writer), f"wrote {UNORDERED}")
        if self.pending[at] if goes_on is None else goes_on:
            wrong = "still copies to: wait for it"
        raise SimulationError(
            f"simulate: {op} races: {order.name(me)} {verb} {self.name} at {at}, which "
            f"{order.name(writer)} {wrong}"
        )

    def _after_write_apart(
        self, op: Op, cell: Ints, starters: Sequence[int], agent: int, order: Order
    ) -> None:
        """Refuse what threads start together that is not ordered after the writes of its cells."""
        writer = self.writer[cell]
        late = (writer >= 0) & (self.wrote[cell] >= order.row(MEMORY, starters)[writer])
        by = starters[0] if len(starters) == 1 else agent
        if late.any():
            at = tuple(np.argwhere(late)[0])
            self._refuse(op, int(cell[at]), by, int(writer[at]), order, "reads")
        if self.beside.size:
            place, column = self._beside(cell)
            late = (
                self.beside[STAMP, column]
                >= (order.row(MEMORY, starters)[self.beside[WHO, column]])
            )
            who = np.full(len(place), by)
            self._refuse_beside(op, cell.reshape(-1)[place], who, column, late, order, "reads")
        if self.elsewhere is not None:
            who = np.full(cell.shape, by)
            self._check_elsewhere(op, cell, who, order, "reads", self.elsewhere[0], "wrote")

    def _check_elsewhere(
        self, op: Op, cell: Ints, who: Ints, order: Order, verb: str, touched: Bools, did: str
    ) -> None:
        """Refuse what a CTA that ran before, and might run after, touched."""
        if touched[cell].any():
            at = tuple(np.argwhere(touched[cell])[0])
            raise SimulationError(
                f"simulate: {op} races: {order.name(int(who[at]))} {verb} {self.name} at "
                f"{int(cell[at])}, which another CTA of the grid {did}: nothing orders the two"
            )

    def _after_reads(self, op: Op, cell: Ints, me: Ints, order: Order) -> None:
        """Refuse to overwrite what was read since the last write, and that is not known."""
        who = np.broadcast_to(me, cell.shape)
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
            self._check_elsewhere(op, cell, who, order, "overwrites", self.elsewhere[1], "read")
        writers = np.unique(me)
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
        """Note what the CTAs that ran did: those to come are not ordered after them."""
        if not self.tracked:
            return
        if self.elsewhere is None:
            size = len(self.values)
            self.elsewhere = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
        wrote, read = self.elsewhere
        wrote |= self.writer >= 0
        read |= self.latest >= 0
        for latest in self.readers.values():
            read |= latest >= 0
        self.reads.clear()
        self.readers.clear()
        self.__post_init__()
