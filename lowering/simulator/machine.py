"""The NumPy warp: runs a body for all threads of a CTA at once, where there is no GPU.

Registers are arrays (threads, elements), memory is arrays of cells. Products are done as
:mod:`lowering.simulator.products` says, boxes as :mod:`lowering.simulator.boxes`, and threads go on
in the order of :mod:`lowering.simulator.strands`.

It refuses what a GPU answers with garbage: reading a register or an address that nothing wrote, and
accesses that race: the rules stand in :mod:`lowering.simulator.hazards`.

The CTAs of a cluster run in turns, each until it waits. What one does to the shared memory of
another is checked there, by what that CTA's threads did and by what they told the one that does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError
from layoutalg.algebra.axis import WARP
from layoutalg.layouts.thread_slots import THREADS_IN
from layoutalg.memory import access
from lowering.ir.index import Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import (
    Arrive,
    Blend,
    Commit,
    Guard,
    Let,
    Load,
    LoadMatrix,
    Loop,
    MbarrierWait,
    Mma,
    Move,
    MoveMatrix,
    Op,
    Phase,
    ProxyFence,
    Registers,
    SharedMatrix,
    Store,
    StoreMatrix,
    Sync,
    TmaLoad,
    TmaStore,
    TmaStoreWait,
    Transfer,
    TryWait,
    Wait,
    WarpSpecialize,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    When,
    Zero,
    walk,
)
from lowering.ir.readers import unknown
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tiles import Buffer, cells
from lowering.ir.tmem_ops import TensorCommit, TensorOp
from lowering.isa.dtypes import DType
from lowering.simulator import boxes, products, tensor_cores
from lowering.simulator.boxes import Drains
from lowering.simulator.hazards import NEVER, Cells, SimulationError
from lowering.simulator.mbarriers import Mbarrier
from lowering.simulator.order import PASSED, Order
from lowering.simulator.strands import Frame, Strand
from lowering.simulator.tmem import TensorMemory
from lowering.simulator.wgmma_hazards import Register, Warpgroup, touched

Bools = npt.NDArray[np.bool_]
Matrix = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


def as_matrix(
    value: Any, buffer: Buffer, role: str, shape: tuple[int, ...] | None = None
) -> Matrix:
    """Return a caller's matrix in the buffer's dtype, rounded to nearest where it is wider.

    Its shape is the buffer's unless another is named.

    Raises:
        LayoutError: another shape, or not numeric.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise LayoutError(f"operand {role}: {buffer.name} needs a matrix: {error}") from None
    shape = buffer.shape if shape is None else shape
    if array.shape != shape:
        raise LayoutError(
            f"operand {role}: {buffer.name} needs a matrix of shape {shape}; got {array.shape}"
        )
    kinds = "fiuV" if buffer.dtype.integers == (0, 0) else "bfiuV"
    if array.dtype.kind not in kinds or array.dtype.names is not None:
        raise LayoutError(f"operand {role}: needs numbers; got dtype {array.dtype}")
    check_range(array, buffer.dtype, role)
    return array.astype(buffer.dtype.numpy)


def check_range(values: Matrix, dtype: DType, role: str) -> None:
    """Refuse values that a type without fractions, or without signs, would change silently.

    Floats are rounded; integers are not, and scales have no sign.

    Raises:
        LayoutError: the first such value is named.

    >>> from lowering.isa import dtypes
    >>> check_range(np.array([0, 4]), dtypes.get("uint2"), "E")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: operand E: uint2 holds integers from 0 to 3; got 4
    """
    if dtype.token == "ue4m3":
        negative = values.astype(np.float64) < 0
        if negative.any():
            least = values[negative].flat[0]
            raise LayoutError(f"operand {role}: {dtype} has no sign; got {least}")
        return
    low, high = dtype.integers
    if (low, high) == (0, 0):
        return
    numbers = values.astype(np.float64)
    wrong = ~((numbers >= low) & (numbers <= high) & (numbers == np.floor(numbers)))
    if wrong.any():
        raise LayoutError(
            f"operand {role}: {dtype} holds integers from {low} to {high}; got "
            f"{values[wrong].flat[0]}"
        )


def poison(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Matrix:
    """Return an array that shows every element nobody writes: NaN, or an unlikely integer."""
    if dtype.kind in "iu":
        return np.full(shape, np.iinfo(dtype).min + 0x5A, dtype=dtype)
    return np.full(shape, np.nan).astype(dtype)


def physical(buffer: Buffer, matrix: Matrix) -> Matrix:
    """Return the cells of a buffer in memory that holds a matrix; padding is poisoned."""
    flat = poison(buffer.dtype.numpy, (cells(buffer),))
    flat[buffer.layout.table(buffer.shape)["m"]] = matrix
    return flat


def logical(buffer: Buffer, flat: Matrix) -> Matrix:
    """Return the matrix that a buffer's cells hold."""
    return flat[buffer.layout.table(buffer.shape)["m"]]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Copies:
    """What threads copy by one ``cp.async``: (threads, cells), and of which group of each it is.

    ``cell``: what is read, by those who read: where it fills with zeros, not all do.
    """

    op: Transfer
    into: Ints
    who: Ints
    values: Matrix
    group: Ints
    cell: Ints
    reads: Bools

    def of(self, some: Bools) -> Copies:
        """Return what some of the threads copy."""
        parts = (self.into, self.who, self.values, self.group, self.cell, self.reads)
        return Copies(self.op, *(np.asarray(part)[some] for part in parts))


@dataclass(frozen=True)
class BankCount:
    """Shared-memory wavefronts of one operation: how many there were, and the fewest possible."""

    op: str
    wavefronts: int
    fewest: int


@dataclass(frozen=True)
class Broken:
    """In the place of a named index that is none of its values: whatever computes with it refuses.

    A name that is not used may have any value, as in the first step of a loop.
    """

    why: str

    def __floordiv__(self, other: object) -> Any:
        """Refuse; each digit of a variable is a quotient.

        Raises:
            SimulationError: always.
        """
        raise SimulationError(self.why)


@dataclass
class Machine:
    """The state of one CTA while a body runs: that of a rank in its cluster, ``cluster``.

    ``order``: what each thread knows of the others, of all CTAs of the cluster. ``mask``: the
    threads that run now; ``frames``: where; ``env``: what they know of variables. ``meetings``:
    barriers of the cluster that it has come to; ``passed``: and gone on from. ``reaching``: what
    reached another CTA since. ``apart``: whether one thread produces meanwhile; ``producing``:
    whether it is what runs now. ``committed``: arrivals of the tensor core to come, with what they
    release.
    """

    body: KernelIR
    rank: int = 0
    registers: dict[str, Matrix] = field(default_factory=dict)
    known: dict[str, Bools] = field(default_factory=dict)
    memory: dict[str, Cells] = field(default_factory=dict)
    copies: list[Copies] = field(default_factory=list)
    drains: Drains = field(default_factory=Drains)
    banks: dict[str, list[int]] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    extents: dict[str, tuple[int, int]] = field(default_factory=dict)  # of matrices read by boxes
    pitches: dict[str, int] = field(default_factory=dict)
    strands: list[Strand] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    meetings: int = 0
    passed: int = 0
    ordered: int = 0
    reaching: Op | None = None
    ended: bool = False
    apart: bool = False
    producing: bool = False
    committed: list[tuple[TensorCommit, Mbarrier, Ints]] = field(default_factory=list)
    cluster: list[Machine] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Allocate registers and shared memory, poisoned; all of a cluster have one order."""
        self.cluster.append(self)
        self.order: Order = self.cluster[0].order if self.rank else Order(self.body)
        threads = self.body.threads
        self.mask = np.ones(threads, dtype=bool)
        self.closed = np.zeros(threads, dtype=np.int64)
        self.env["thread"] = np.arange(threads)
        self.base = self.order.base(self.rank)
        self.agents = self.base + np.arange(threads)
        self.parted = np.zeros(threads, dtype=bool)  # waited, since their warps converged last
        self.tried = np.full((threads, 3), NEVER)  # mbarrier, parity, phases known to be complete
        self.shared = {buffer.name for buffer in self.body.shared}
        self.tracked = self.shared | {buffer.name for buffer in self.body.written}
        products = any(isinstance(op, Wgmma) for op in walk(self.body.ops))
        self.warpgroups = [Warpgroup() for _ in range(threads // WARPGROUP * products)]
        self.touched: dict[int, frozenset[Register]] = {}
        self.tensor = TensorMemory(self.order, self.rank, bool(self.body.tensor))
        for buffer in self.body.registers:
            shape = (threads, cells(buffer))
            self.registers[buffer.name] = poison(buffer.dtype.numpy, shape)
            self.known[buffer.name] = np.zeros(shape, dtype=bool)
        nothing = np.zeros_like(self.order.known[:, 0])
        self.barriers = {
            (each.name, slot): Mbarrier(
                self.base + self.order.slots[each.name, slot], each.arrivals, nothing.copy()
            )
            for each in self.body.barriers
            for slot in range(each.slots)
        }
        for buffer in self.body.shared:
            self.allocate(buffer, poison(buffer.dtype.numpy, (cells(buffer),)), False)

    def allocate(self, buffer: Buffer, values: Matrix, written: bool) -> None:
        """Give a buffer its cells."""
        name = buffer.name
        tracked, shared = name in self.tracked, name in self.shared
        self.memory[name] = Cells.of(name, values, written, tracked, shared)

    # -- registers ----------------------------------------------------------------------------

    def read(self, source: Registers, op: Op) -> Matrix:
        """Return registers of all threads; refuse any that nothing wrote, of those active.

        Raises:
            SimulationError: nothing wrote a register of an active thread.
        """
        numbers = list(source.numbers)
        known = self.known[source.buffer][:, numbers]
        if not known.all() and not known[self.mask].all():
            thread, at = (int(i) for i in np.argwhere(~known & self.mask[:, None])[0])
            raise SimulationError(
                f"simulate: {op} reads {source.buffer}[{numbers[at]}] of thread {thread}, "
                "which nothing wrote"
            )
        return self.registers[source.buffer][:, numbers]

    def write(self, into: Registers, values: Any) -> None:
        """Set registers of the active threads; ``values`` has a row for every thread."""
        numbers = list(into.numbers)
        here: Any = slice(None), numbers
        if not self.mask.all():
            here = np.flatnonzero(self.mask)[:, None], numbers
            values = np.broadcast_to(values, (len(self.mask), len(numbers)))[self.mask]
        self.registers[into.buffer][here] = values
        self.known[into.buffer][here] = True

    # -- memory -------------------------------------------------------------------------------

    def active(self, guards: Sequence[Guard], mask: Bools | None = None) -> Bools:
        """Return which of the active threads, or of others, take part."""
        taking: Bools = (self.mask if mask is None else mask).copy()
        for guard in guards:
            value = np.broadcast_to(guard.index.value(self.env), taking.shape)
            taking &= (value >= guard.low) & (value < self.number(guard.high))
        return taking

    def number(self, value: int | Index) -> Any:
        """Return a number that may be an index."""
        return value.value(self.env) if isinstance(value, Index) else value

    def addresses(self, index: Index) -> Ints:
        """Return the address of every thread."""
        return np.broadcast_to(
            np.asarray(index.value(self.env), dtype=np.int64), (self.body.threads,)
        )

    def check_aligned(self, name: str, start: Ints, count: int, op: Op) -> None:
        """Refuse a vector that does not begin at a multiple of its own size.

        Raises:
            SimulationError: it does not.
        """
        if start.size and (start % count).any():
            at = int(start[start % count != 0][0])
            raise SimulationError(
                f"simulate: {op} takes {count} cells at once and must begin at a multiple of "
                f"{count}; it begins at {at} of {name}"
            )

    def count_banks(self, name: str, start: Ints, size: int, op: Op) -> None:
        """Count the wavefronts of a vector access of ``size`` bytes by every active thread."""
        lanes = access.phase_lanes(size)
        self.count_groups(name, start.reshape(-1, lanes), self.mask.reshape(-1, lanes), size, op)

    def count_groups(self, name: str, groups: Ints, taking: Bools, size: int, op: Op) -> None:
        """Count the wavefronts of groups of starts: one each, and one per further conflict.

        What does not take part asks for nothing: it stands for one that does.
        """
        if name not in self.shared or not taking.any():
            return
        if not taking.all():
            first = np.take_along_axis(groups, taking.argmax(axis=1)[:, None], axis=1)
            groups = np.where(taking, groups, first)[taking.any(axis=1)]
        bits = self.body.buffer(name).dtype.bits
        words = access.bank_counts(self.body.shared_offsets[name] + groups * bits // 8, size)
        count = self.banks.setdefault(str(op), [0, 0])
        count[0] += int(access.wavefronts(words).sum())
        count[1] += int(access.fewest_wavefronts(words).sum())

    # -- the order of operations --------------------------------------------------------------

    def run_to_end(self) -> None:
        """Run the whole body in every CTA of the cluster.

        Raises:
            SimulationError: it reads what nothing wrote, races, waits forever, or leaves copies
                under way.
        """
        running = [(each, each.run()) for each in self.cluster]
        while running:
            before, waiting = self.order.clock, []
            for machine, steps in running:
                found = next(steps, None)
                machine.ended = found is None
                if found is not None:
                    waiting.append((machine, found))
            if before == self.order.clock and len(waiting) == len(running):
                machine, found = waiting[0]
                raise machine.stuck(found)
            running = [each for each in running if not each[0].ended]
        for each in self.cluster:
            each.finish()

    def finish(self) -> None:
        """Refuse to end while something is under way, or may still reach another CTA.

        Raises:
            SimulationError: something is, or may.
        """
        if self.reaching is not None:
            raise SimulationError(
                f"simulate: {self.reaching} may reach a CTA that has ended: sync the cluster "
                "after the last"
            )
        boxes = any(each.boxes for each in self.barriers.values())
        if self.copies or boxes or self.drains.under_way:
            raise SimulationError(
                "simulate: asynchronous copies are under way at the end: wait for them"
            )
        for each in self.warpgroups:
            each.finish()
        self.tensor.finish()

    def run(self) -> Iterator[Op]:
        """Run all threads; yield an operation that waits, where none goes on."""
        self.strands = [Strand([Frame(self.body.ops, self.mask)], self.env)]
        while self.strands:
            before, alive = self.order.clock, list(self.strands)
            for strand in alive:
                self.advance(strand)
                if strand.waiting is not None:
                    self.strands.extend(strand.split())
            self.strands = [each for each in self.strands if each.frames]
            if before == self.order.clock and self.strands == alive:
                last, op = [(each, each.waiting) for each in alive if each.waiting is not None][-1]
                self.mask, self.env = last.mask, last.env
                self.check_whole(op)
                yield op

    def advance(self, strand: Strand) -> None:
        """Run threads until they end or wait."""
        strand.waiting = None
        while (op := strand.next()) is not None:
            mask, frame = strand.mask, strand.frames[-1]
            self.mask, self.env, self.producing = mask, strand.env, strand.producing
            self.frames = strand.frames
            if isinstance(op, Loop):
                frame.at += 1
                extent = self.number(op.extent)
                strand.enter(Frame(op.body, mask & (extent > 0), var=op.var, extent=extent))
            elif isinstance(op, When):
                frame.at += 1
                strand.enter(Frame(op.body, self.active(op.guards)))
            elif isinstance(op, WarpSpecialize):
                frame.at += 1
                env = self.env | {"thread": np.int64(self.body.threads)}
                beside = Strand([Frame(op.produce, mask)], env, True)
                self.strands.insert(0, beside)
                self.apart = True
                strand.enter(Frame(op.consume, mask, beside=beside))
            elif isinstance(op, Let):
                frame.at += 1
                value, before = self.named(op, strand.env), strand.env.get(op.var)
                parts = before is not None and not mask.all()
                if parts and not isinstance(value, Broken) and not isinstance(before, Broken):
                    value = np.where(mask, value, before)
                strand.env[op.var] = value
            elif self.ready(op, strand):
                strand.frames[-1].at += 1
                self.step(op)
            else:
                strand.waiting = op
                return

    def named(self, op: Let, env: Mapping[str, Any]) -> Any:
        """Return what a name stands for; where it is none of its values, what refuses its use."""
        try:
            value = op.value.value(env)
        except SimulationError as error:  # made of another that is none of its values
            return Broken(str(error))
        values = np.broadcast_to(value, self.mask.shape)[self.mask]
        wrong = values[(values < 0) | (values >= op.extent)]
        if wrong.size:
            return Broken(f"simulate: {op} is one of {op.extent} values from 0 on; got {wrong[0]}")
        return value

    def ready(self, op: Op, strand: Strand) -> bool:
        """Say whether threads can do an operation now, or have to wait for others."""
        if self.broken(op) is not None:
            others = [
                each
                for each in self.strands
                if each.frames and not each.producing and each is not strand
            ]
            for each in others:
                if each.waiting is op and each.same_place(strand):
                    strand.join(each)
                    self.strands.remove(each)
                    each.frames, each.waiting = [], None
                    self.mask = strand.mask
            if others and self.broken(op) is not None:
                return False
            self.check_whole(op)
        phase = op.phase if isinstance(op, MbarrierWait) else None
        phase = op.free if isinstance(op, TmaLoad) else phase
        if phase is not None:
            return self.passes(phase, op)
        if isinstance(op, Sync) and op.scope == "cluster":
            self.meetings += not strand.met
            strand.met = not all(each.has_come(self.meetings) for each in self.cluster)
            return not strand.met
        return True

    def broken(self, op: Op) -> tuple[str, int, int] | None:
        """Return the unit of an operation, and a thread of one that comes to it and one that not.

        None: units come whole.
        """
        if self.mask.all():
            return None
        unit = op.unit
        size = THREADS_IN.get(unit, len(self.mask))
        whole = self.mask.reshape(-1, size) if len(self.mask) % size == 0 else self.mask[None]
        parts = whole.any(axis=1) & ~whole.all(axis=1)
        if not parts.any():
            return None
        first = int(np.argmax(parts))
        active, idle = (first * size + int(np.argmax(whole[first] == on)) for on in (1, 0))
        return unit, active, idle

    def check_whole(self, op: Op) -> None:
        """Refuse an operation of whole warps, warpgroups or CTAs that a part of one runs.

        Raises:
            SimulationError: a part runs it; a thread of it and one that is missing are named.
        """
        found = self.broken(op)
        if found is not None:
            unit, active, idle = found
            raise SimulationError(
                f"simulate: {op} is done by whole {unit}s: thread {active} comes to it, and "
                f"thread {idle} of its {unit} does not"
            )

    def has_come(self, meeting: int) -> bool:
        """Say whether all threads have come to a barrier of the cluster, or have ended."""
        producing = any(each.producing and each.frames for each in self.strands)
        here = self.meetings >= meeting and not producing
        return self.ended or self.passed >= meeting or here

    def stuck(self, op: Op) -> SimulationError:
        """Return the error of an operation that waits forever."""
        return SimulationError(
            f"simulate: {op} waits forever: "
            + ", ".join(
                f"{name}[{slot}] has completed {state.completed} phases, {state.arrived} of "
                f"{state.expected} arrived"
                for (name, slot), state in self.barriers.items()
            )
        )

    def step(self, op: Op) -> None:
        """Run one operation in the active threads.

        Raises:
            LayoutError: the machine has no such operation.
        """
        self.order.clock += 1
        if op.aligned and self.parted.any():
            self.converge()
        if not isinstance(op, ASYNCHRONOUS):
            self.touch(op)
        if isinstance(op, TensorOp):
            tensor_cores.step(self, op)
        elif type(op) in RUN:
            RUN[type(op)](self, op)
        else:
            raise unknown(op, "simulate")

    def touch(self, op: Op) -> None:
        """Refuse to touch registers that something under way uses."""
        if not self.warpgroups and not self.body.tensor:
            return
        if id(op) not in self.touched:
            self.touched[id(op)] = touched(op)
        each = self.touched[id(op)]
        if not each:
            return
        if self.warpgroups:
            active = self.mask.reshape(len(self.warpgroups), -1).any(axis=1)
            for group in np.flatnonzero(active).tolist():
                self.warpgroups[group].touch(op, each)
        if not isinstance(op, TensorOp):
            self.tensor.touch(op, each, self.mask)

    # -- barriers -----------------------------------------------------------------------------

    def converge(self) -> None:
        """Let the threads of each active warp know how far each has come."""
        threads = (self.mask & self.parted).reshape(-1, WARP)
        warps = self.agents.reshape(-1, WARP)[threads.any(axis=1)]
        self.order.converge(warps)
        self.parted[warps - self.base] = False

    def reach(self, op: Op) -> None:
        """Note that an operation reaches other CTAs; refuse it before they are ready.

        Raises:
            SimulationError: they are not ready.
        """
        if not self.passed:
            raise SimulationError(
                f"simulate: {op} reaches a CTA whose barriers may not be ready: sync the "
                "cluster first"
            )
        self.reaching = op

    def sync(self, op: Sync) -> None:
        """Order the memory of all threads, or of each warp or warpgroup; of a cluster, if asked."""
        if op.scope == "cluster":
            if op.memory and self.ordered < self.meetings:
                self.order.meet(self.order.actors[None])
                for each in self.cluster:
                    each.ordered = self.meetings
            self.passed, self.reaching = self.meetings, None
            return
        if op.scope == "cta":
            self.sync_all()
            return
        here, size = self.agents[self.mask], THREADS_IN[op.scope]
        whole = len(here) - len(here) % size
        for part, length in ((here[:whole], size), (here[whole:], len(here) - whole)):
            if part.size:
                self.order.meet(part.reshape(-1, length))

    def sync_all(self) -> None:
        """Order the memory of all threads; that which will produce is one of them until then."""
        meeting = self.agents
        if self.body.warp_specialized and not self.apart:
            meeting = np.append(meeting, self.order.agent(self.rank, "producer"))
        self.order.meet(meeting[None], self.rank)

    def arrive(self, op: Arrive) -> None:
        """Let the first lane of every warp arrive, where the guards hold.

        Everywhere: a lane for each CTA of the cluster, in the order of their ranks.
        """
        first = self.base + np.flatnonzero(self.active(op.guards)[::WARP]) * WARP
        if not first.size:
            return
        if op.everywhere:
            self.reach(op)
        for lane, each in enumerate(self.cluster if op.everywhere else [self]):
            state = each.barriers[op.barrier, self.one(op.slot, op)]
            who = first + lane
            state.arrive(op, who, self.order.released(who), self.order)

    def arrive_later(self, op: TensorCommit, slot: int, released: Ints) -> None:
        """Let an mbarrier have an arrival of the tensor core: all that was started is done then."""
        self.committed.append((op, self.barriers[op.barrier, slot], released))

    def passes(self, phase: Phase, op: Op) -> bool:
        """Let boxes under way arrive, and say whether a phase is complete.

        The tensor core arrives as late as it may: where nothing else lets the phase pass.
        """
        state, parity = self.phase(phase, op)
        while state.completed % 2 == parity and self.committed:
            commit, done, released = self.committed.pop(0)
            done.arrive(commit, np.array([self.tensor.core]), released[:, None], self.order)
        state.land(self.order)
        return state.completed % 2 != parity

    def wait_for(self, op: MbarrierWait) -> None:
        """Let the active threads know what a phase gives.

        Raises:
            SimulationError: the phase was not the one peeked at, or can never complete.
        """
        state, parity = self.phase(op.phase, op)
        who = self.agents[self.mask]
        known = state.known_to(self.order.known[PASSED, who])
        if op.tried:
            tried = self.tried[self.mask]
            other = (tried[:, :2] != (state.agent, parity)).any(axis=1)
            if other.any():
                raise SimulationError(
                    f"simulate: {op} counts on a peek at the same phase; the last of "
                    f"{self.order.name(int(who[other][0]))} was at another"
                )
            known = tried[:, 2]
        state.observe(op, who, known, self.order)
        self.parted |= self.mask

    def peek(self, op: TryWait) -> None:
        """Note what each active thread asks, and how many phases it knows to be complete."""
        state, parity = self.phase(op.phase, op)
        known = state.known_to(self.order.known[PASSED, self.agents[self.mask]])
        self.tried[self.mask, :2] = state.agent, parity
        self.tried[self.mask, 2] = known

    def phase(self, phase: Phase, op: Op) -> tuple[Mbarrier, int]:
        """Return the mbarrier and the parity of a phase."""
        state = self.barriers[phase.barrier, self.one(phase.slot, op)]
        return state, self.one(phase.parity, op) % 2

    def one(self, value: int | Index, op: Op) -> int:
        """Return a number that all active threads agree on.

        Raises:
            SimulationError: they do not.
        """
        found = np.asarray(self.number(value))
        if found.ndim:
            found = np.unique(found[self.mask])
            if len(found) > 1:
                raise SimulationError(
                    f"simulate: {op} needs one slot of one mbarrier and one parity; got "
                    f"{value} = {found[0]} in some threads, {found[1]} in others"
                )
        return int(found.flat[0])

    def fill(self, op: TmaLoad) -> None:
        """Let the thread that fills start loads of boxes, if it runs."""
        if self.producing or self.mask[0]:
            boxes.fill(self, op)

    @property
    def filler(self) -> int:
        """The agent that orders boxes: the thread that produces, where it runs, or the first."""
        return self.order.agent(self.rank, "producer") if self.producing else self.base

    # -- memory and registers -----------------------------------------------------------------

    def zero(self, op: Zero) -> None:
        """Set registers to zero."""
        self.write(op.into, 0)

    def move(self, op: Move) -> None:
        """Copy registers, in the type of those that are written."""
        values = self.read(op.source, op)
        self.write(op.into, values.astype(self.registers[op.into.buffer].dtype))

    def blend(self, op: Blend) -> None:
        """Scale registers, and add others scaled; each product and sum is rounded."""
        kind = self.registers[op.into.buffer].dtype.type
        total = self.read(op.into, op) * kind(self.env[op.alpha])
        if op.source is not None:
            total = total + self.read(op.source, op).astype(kind) * kind(self.env[op.beta])
        self.write(op.into, total)

    def fetch_apart(self, operand: SharedMatrix, cell: Ints, op: Op) -> Matrix:
        """Read cells asynchronously, ordered after what the one that starts it has seen."""
        starter, core = self.tensor.starter, self.tensor.core
        return self.memory[operand.memory].read_apart(op, cell, (starter,), (core,), self.order)

    def load(self, op: Load) -> None:
        """Load a vector per thread; threads that are guarded away get zeros."""
        taking = self.active(op.guards)
        count = len(op.into.numbers)
        start = self.addresses(op.address)
        self.check_aligned(op.memory, start[taking], count, op)
        cell = start[taking, None] + np.arange(count)
        values = np.zeros((self.body.threads, count), dtype=self.registers[op.into.buffer].dtype)
        who = self.agents[taking, None]
        values[taking] = self.memory[op.memory].read(op, cell, who, self.order)
        self.write(op.into, values)
        self.count_banks(op.memory, start, count * self.body.buffer(op.memory).dtype.bits // 8, op)

    def of_copy(self, op: Store | StoreMatrix | Transfer) -> tuple[int, ...]:
        """Return of which copy, in which step of its loops, a store that aliases is; () if not."""
        if not op.aliases:
            return ()
        return (self.rank, op.aliases, *(each.step for each in self.frames if each.var))

    def store(self, op: Store) -> None:
        """Store a vector per thread."""
        taking = self.active(op.guards)
        values = self.read(op.source, op)
        count = len(op.source.numbers)
        start = self.addresses(op.address)
        self.check_aligned(op.memory, start[taking], count, op)
        cells = start[:, None] + np.arange(count)
        self.check_copies(op, cells, taking)
        cell, who = cells[taking], self.agents[taking, None]
        self.memory[op.memory].write(op, cell, who, values[taking], self.order, self.of_copy(op))
        self.count_banks(op.memory, start, count * self.body.buffer(op.memory).dtype.bits // 8, op)

    def check_copies(self, op: Store | StoreMatrix, cells: Ints, taking: Bools) -> None:
        """Refuse to store what others that come here hold for the same place, if it differs.

        Args:
            op: which stores, in a branch of those that store.
            cells: (threads, cells): where each thread would store.
            taking: which threads store.
        """
        if not op.copies or op.aliases or not taking.any():
            return
        threads = np.arange(self.body.threads)
        around = self.frames[-2].mask if len(self.frames) > 1 else self.mask
        others = around & [bool(op.copies >> int(each) & 1) for each in threads]
        others = self.active(op.guards if isinstance(op, Store) else (), others)
        numbers = np.asarray(op.source.numbers)
        values = self.registers[op.source.buffer][:, numbers]
        order = np.argsort(cells[taking], axis=None)
        stored = cells[taking].reshape(-1)[order]
        at = np.searchsorted(stored, cells[others]).clip(max=len(stored) - 1)
        place = order[at]
        mine, theirs = values[others], values[taking].reshape(-1)[place]
        same = (mine == theirs) | ((mine != mine) & (theirs != theirs))
        known = self.known[op.source.buffer][:, numbers][others]
        wrong = (stored[at] == cells[others]) & known & ~same
        if wrong.any():
            row, column = (int(each) for each in np.argwhere(wrong)[0])
            first = threads[taking][place[row, column] // len(numbers)]
            raise SimulationError(
                f"simulate: {op}: thread {threads[others][row]} holds another value of "
                f"{op.source.buffer}[{numbers[column]}] than thread {first}, which stores: copies "
                "differ"
            )

    def matrices(self, op: LoadMatrix | StoreMatrix) -> None:
        """Move 8x8 matrices of 16-bit cells: lane 8j+i gives row i of matrix j.

        Raises:
            SimulationError: a row does not begin at 16 bytes, or a cell is refused.
        """
        registers = op.into if isinstance(op, LoadMatrix) else op.source
        bits = self.body.buffer(op.memory).dtype.bits
        pack = 32 // bits
        start = self.addresses(op.address)
        skewed = (start * bits % 128 != 0) & self.mask
        if skewed.any():
            thread = int(np.flatnonzero(skewed)[0])
            raise SimulationError(
                f"simulate: {op} needs 16-byte rows: thread {thread} gives {op.memory} at "
                f"{int(start[thread])}"
            )
        rows = start.reshape(-1, WARP)
        warps = len(rows)
        lane = np.arange(WARP)
        cell: Ints = np.empty((warps, WARP, op.count, pack), dtype=np.int64)
        for j in range(op.count):
            for p in range(pack):
                if op.trans:
                    cell[:, :, j, p] = rows[:, 8 * j + 2 * (lane % 4) + p] + lane // 4
                else:
                    cell[:, :, j, p] = rows[:, 8 * j + lane // 4] + lane % 4 * pack + p
        cells = cell.reshape(self.body.threads, op.count * pack)
        cell = cells[self.mask]
        memory, who = self.memory[op.memory], self.agents[self.mask, None]
        if isinstance(op, LoadMatrix):
            values = self.registers[registers.buffer][:, list(registers.numbers)]
            values[self.mask] = memory.read(op, cell, who, self.order)
            self.write(registers, values)
        else:
            values = self.read(registers, op)[self.mask]
            self.check_copies(op, cells, self.mask)
            memory.write(op, cell, who, values, self.order, self.of_copy(op))
        taking = self.mask.reshape(-1, WARP)[:, :8]
        for j in range(op.count):
            self.count_groups(op.memory, rows[:, 8 * j : 8 * j + 8], taking, 16, op)

    def transpose(self, op: MoveMatrix) -> None:
        """Transpose 8x8 matrices: lane 4g+t holds row g, columns 2t and 2t+1 of each."""
        count = len(op.source.numbers) // 2
        rows = self.read(op.source, op).reshape(-1, 8, 4, count, 2)
        matrices = rows.transpose(0, 3, 1, 2, 4).reshape(-1, count, 8, 8)
        flipped = matrices.swapaxes(2, 3).reshape(-1, count, 8, 4, 2)
        self.write(op.into, flipped.transpose(0, 2, 3, 1, 4).reshape(self.body.threads, -1))

    def transfer(self, op: Transfer) -> None:
        """Copy cells from memory to memory, at once or when its group is waited for."""
        taking = self.active(op.guards)
        for name, address in ((op.memory, op.address), (op.into, op.into_address)):
            self.check_aligned(name, self.addresses(address)[taking], op.count, op)
        reading = taking
        source = self.addresses(op.address)[:, None] + np.arange(op.count)
        origin, target = self.memory[op.memory], self.memory[op.into]
        values = np.zeros((self.body.threads, op.count), dtype=origin.values.dtype)
        values[taking] = origin.read(op, source[taking], self.agents[taking, None], self.order)
        if op.fill:
            taking = self.mask
        into = self.addresses(op.into_address)[taking, None] + np.arange(op.count)
        size = op.count * self.body.buffer(op.into).dtype.bits // 8
        self.count_banks(op.into, self.addresses(op.into_address), size, op)
        self.count_banks(op.memory, self.addresses(op.address), size, op)
        who = self.agents[taking, None]
        if not op.asynchronous:
            target.write(op, into, who, values[taking], self.order, self.of_copy(op))
            return
        target.start(op, into, who, self.order, self.of_copy(op))
        target.copy_later(into, who)
        origin.copy_from(source[reading])
        under_way = into, who, values[taking], self.closed[taking], source[taking], reading[taking]
        self.copies.append(Copies(op, *under_way))

    def commit_copies(self, op: Commit) -> None:
        """Close the groups of the active threads."""
        self.closed[self.mask] += 1

    def wait(self, op: Wait) -> None:
        """Complete all but the newest groups; a group that is still open never completes."""
        left = []
        for each in self.copies:
            thread = each.who[:, 0] - self.base
            done = self.mask[thread] & (each.group < self.closed[thread] - op.pending)
            if done.any():
                ours, reads = each.of(done), each.reads[done]
                self.memory[each.op.into].finish_later(ours.into, ours.values, ours.who, self.order)
                read = self.memory[each.op.memory]
                read.copied(ours.cell[reads], ours.who[reads], self.order)
            if not done.all():
                left.append(each.of(~done))
        self.copies = left

    # -- the asynchronous tensor core -----------------------------------------------------------

    def groups(self) -> Iterator[tuple[Warpgroup, Ints]]:
        """Yield each active warpgroup, with its threads."""
        for group in np.flatnonzero(self.mask[::WARPGROUP]).tolist():
            if self.warpgroups:
                yield self.warpgroups[group], self.agents[group * WARPGROUP :][:WARPGROUP]

    def fence_products(self, op: WgmmaFence) -> None:
        """Order what threads did to registers before products."""
        for group, _ in self.groups():
            group.fence()

    def commit_products(self, op: WgmmaCommit) -> None:
        """Close a group of products."""
        for group, _ in self.groups():
            group.commit(self.order.clock)

    def wait_products(self, op: WgmmaWait) -> None:
        """Complete older groups of products: each thread knows of its own warp's."""
        for group, threads in self.groups():
            until = group.wait(op)
            own = self.order.agent(self.rank, "products") + (threads - self.base) // WARP
            self.order.learn(threads, own, until)

    def fence_proxy(self, op: ProxyFence) -> None:
        """Let what the active threads know as written be read asynchronously."""
        self.order.fence_proxy(self.agents[self.mask])


RUN: dict[type, Callable[..., None]] = {
    Zero: Machine.zero,
    Move: Machine.move,
    Blend: Machine.blend,
    Mma: products.mma,
    Load: Machine.load,
    Store: Machine.store,
    LoadMatrix: Machine.matrices,
    StoreMatrix: Machine.matrices,
    MoveMatrix: Machine.transpose,
    Transfer: Machine.transfer,
    Commit: Machine.commit_copies,
    Wait: Machine.wait,
    Sync: Machine.sync,
    TmaLoad: Machine.fill,
    TmaStore: boxes.drain,
    TmaStoreWait: boxes.drained,
    Arrive: Machine.arrive,
    TryWait: Machine.peek,
    MbarrierWait: Machine.wait_for,
    Wgmma: products.wgmma,
    WgmmaFence: Machine.fence_products,
    WgmmaCommit: Machine.commit_products,
    WgmmaWait: Machine.wait_products,
    ProxyFence: Machine.fence_proxy,
}
# What uses registers while it is under way, and says itself which.
ASYNCHRONOUS = (Wgmma, WgmmaFence, WgmmaCommit, WgmmaWait, ProxyFence)


@dataclass
class Grid:
    """A grid of CTAs over one global memory, run one CTA or one cluster after the other.

    ``sizes`` gives the scalars of the body; ``extents`` and ``pitches``, what a tensor map would.
    ``unwritten``: parameters that nothing wrote before. ``first``: the first CTA that ran; it
    counts the bank conflicts of all.
    """

    body: KernelIR
    sizes: Mapping[str, Any]
    extents: Mapping[str, tuple[int, int]]
    pitches: Mapping[str, int]
    memory: dict[str, Cells] = field(default_factory=dict)
    unwritten: frozenset[str] = frozenset()
    first: Machine | None = None

    def run(self, extents: tuple[int, int], cells: Mapping[str, Matrix]) -> dict[str, Matrix]:
        """Run every CTA and return the cells of all parameters.

        Raises:
            SimulationError: a CTA reads what nothing wrote, or races.
        """
        for by in range(extents[1]):
            for bx in range(0, extents[0], self.body.cluster):
                machines = cluster(self.body, bx, by)
                for machine in machines:
                    machine.env |= self.sizes
                    machine.extents |= self.extents
                    machine.pitches |= self.pitches
                    for name, values in cells.items():
                        if name not in self.memory:
                            known = name not in self.unwritten
                            machine.allocate(self.body.buffer(name), values.copy(), known)
                            self.memory[name] = machine.memory[name]
                    machine.memory |= self.memory
                machines[0].run_to_end()
                self.first = self.first or machines[0]
                for machine in machines:
                    self.count(machine)
                for memory in self.memory.values():
                    memory.leave()
        return {name: memory.values for name, memory in self.memory.items()}

    def count(self, machine: Machine) -> None:
        """Add the wavefronts of a CTA to those of the first."""
        assert self.first is not None
        for op, (there, fewest) in machine.banks.items() if machine is not self.first else ():
            here = self.first.banks.setdefault(op, [0, 0])
            here[0], here[1] = here[0] + there, here[1] + fewest


def cluster(body: KernelIR, bx: int = 0, by: int = 0) -> list[Machine]:
    """Return the CTAs of the cluster that begins at (bx, by), in the order of their ranks."""
    machines: list[Machine] = []
    for rank in range(body.cluster):
        machine = Machine(body, rank, cluster=machines)
        machine.env |= {"bx": bx + rank, "by": by}
    return machines


def execute(body: KernelIR, matrices: Mapping[str, Matrix]) -> Machine:
    """Run a body; ``matrices`` gives parameters by name, as logical matrices in their dtype.

    Parameters that are left out are poisoned: reading them is refused. Of a cluster, the first CTA
    is returned; all share the parameters.
    """
    machines = cluster(body)
    machine = machines[0]
    for buffer in body.params:
        if buffer.name in matrices:
            machine.allocate(buffer, physical(buffer, matrices[buffer.name]), True)
        else:
            empty = poison(buffer.dtype.numpy, (cells(buffer),))
            machine.allocate(buffer, empty, False)
        for other in machines[1:]:
            other.memory[buffer.name] = machine.memory[buffer.name]
    machine.run_to_end()
    return machine


def bank_counts(machine: Machine) -> tuple[BankCount, ...]:
    """Return the shared-memory wavefronts of each operation, in program order."""
    return tuple(BankCount(op, *counts) for op, counts in machine.banks.items())
