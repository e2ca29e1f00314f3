"""The NumPy warp: runs a body for all threads of a CTA at once, where there is no GPU.

Registers are arrays (threads, elements), memory is arrays of cells. An mma gathers each warp's
operands into matrices through the instruction's fragments, multiplies, and scatters the result:
products of the input type are exact, their sum with the accumulator is rounded once to its type.

It refuses what a GPU answers with garbage: reading a register or an address that nothing wrote, and
reading or overwriting what another thread wrote or read without a barrier in between.

The CTAs of a cluster run in turns, each until it waits. What one does to the shared memory of
another is checked there, by what that CTA's threads did and by what they told the one that does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError, memory_access
from layoutalg.fragments import WARP, Fragment
from lowering import tensor_machine
from lowering.address import Index
from lowering.arithmetic import as_accumulated, as_multiplied, expanded, scaled
from lowering.body import Body, cells
from lowering.descriptors import Descriptor
from lowering.dtypes import DType
from lowering.ops import (
    Arrive,
    Await,
    Blend,
    BulkLoad,
    BulkStore,
    Commit,
    Drain,
    Drained,
    Elements,
    Fill,
    Guard,
    Let,
    Load,
    LoadMatrix,
    Loop,
    Mma,
    Move,
    MoveMatrix,
    Op,
    Peek,
    Phase,
    ProxyFence,
    Roles,
    SharedMatrix,
    Store,
    StoreMatrix,
    Sync,
    TensorOp,
    Transfer,
    Wait,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    When,
    Zero,
    line,
    unknown,
)
from lowering.registers import WARPGROUP
from lowering.tensor_memory import TensorMemory
from lowering.tensor_ops import TensorAllocate, TensorFree, TensorLoad, TensorStore, TensorWait
from lowering.tile import Buffer
from lowering.warpgroup import SEEN, UNDER_WAY, SimulationError, Warpgroups

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

    >>> from lowering import dtypes
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


@dataclass
class Memory:
    """Cells of one buffer, and who touched each since when.

    ``engine``: whether the copy engine wrote it last. ``drains``: how many bulk stores read it.
    ``apart``: when the tensor core of tensor memory last read it.
    """

    values: Matrix
    written: npt.NDArray[np.bool_]
    pending: npt.NDArray[np.bool_]
    writer: Ints
    reader: Ints
    engine: npt.NDArray[np.bool_]
    drains: Ints
    apart: Ints
    stamps: dict[str, Ints] = field(default_factory=dict)


@dataclass
class BarrierState:
    """An mbarrier: arrivals of this phase, phases completed, boxes under way.

    ``loads``: each with the rank of the CTA that ordered it. ``owed``: bytes that this phase awaits
    and that nothing has ordered yet. ``clocks``: the last arrival of each CTA, on its own clock.
    ``commits``: when the tensor core was told to arrive, by phase.
    """

    expected: int
    arrived: int = 0
    completed: int = 0
    loads: list[tuple[BulkLoad, Ints, Matrix, int]] = field(default_factory=list)
    owed: int = 0
    clocks: dict[int, int] = field(default_factory=dict)
    commits: dict[int, int] = field(default_factory=dict)

    @property
    def committed(self) -> int:
        """When the tensor core was last told to arrive in a phase that is complete; -1: never."""
        done = (clock for phase, clock in self.commits.items() if phase < self.completed)
        return max(done, default=-1)


@dataclass(frozen=True)
class Copies:
    """What threads copy by one ``cp.async``: (threads, cells), and of which group of each it is."""

    op: Transfer
    into: Ints
    thread: Ints
    values: Matrix
    group: Ints


@dataclass(frozen=True)
class BankCount:
    """Shared-memory wavefronts of one operation: how many there were, and the fewest possible."""

    op: str
    wavefronts: int
    fewest: int


@dataclass
class Machine:
    """The state of one CTA while a body runs: that of a rank in its cluster, ``cluster``.

    ``meetings``: barriers of the cluster that it has come to; ``passed``: and gone on from.
    ``reaching``: what reached another CTA since. ``producing``: whether its producer still runs.
    """

    body: Body
    rank: int = 0
    registers: dict[str, Matrix] = field(default_factory=dict)
    known: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    memory: dict[str, Memory] = field(default_factory=dict)
    copies: list[Copies] = field(default_factory=list)
    drains: list[list[tuple[str, Ints, int]]] = field(default_factory=list)
    banks: dict[str, list[int]] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    clock: int = 0
    extents: dict[str, tuple[int, int]] = field(default_factory=dict)  # of matrices read by boxes
    pitches: dict[str, int] = field(default_factory=dict)
    meetings: int = 0
    passed: int = 0
    ordered: int = 0
    reaching: Op | None = None
    producing: bool = False
    ended: bool = False
    committed: list[tuple[str, int, int]] = field(default_factory=list)  # (barrier, slot, when)

    def __post_init__(self) -> None:
        """Allocate registers and shared memory, poisoned."""
        self.cluster = [self]
        threads = self.body.threads
        self.mask = np.ones(threads, dtype=bool)
        self.closed = np.zeros(threads, dtype=np.int64)
        self.env["thread"] = np.arange(threads)
        self.warpgroups = Warpgroups(threads)
        # The last barrier of each pair of threads. Then come those that fill in each CTA of the
        # cluster, where they are none of the threads, and last the tensor core.
        width = threads + self.body.cluster + 1
        self.synced = np.zeros((width, width), dtype=np.int64)
        self.fillers = [threads + rank for rank in range(self.body.cluster)]
        if not self.body.specialised:
            self.fillers[self.rank] = 0
        self.filler = self.fillers[self.rank]
        self.core = width - 1
        self.tensor = TensorMemory(threads, self.synced, bool(self.body.tensor))
        for buffer in self.body.registers:
            shape = (threads, cells(buffer))
            self.registers[buffer.name] = poison(buffer.dtype.numpy, shape)
            self.known[buffer.name] = np.zeros(shape, dtype=bool)
        self.barriers = {
            (barrier.name, slot): BarrierState(barrier.arrivals)
            for barrier in self.body.barriers
            for slot in range(barrier.slots)
        }
        for buffer in self.body.shared:
            self.allocate(buffer, poison(buffer.dtype.numpy, (cells(buffer),)), False)

    def allocate(self, buffer: Buffer, values: Matrix, written: bool) -> None:
        """Give a buffer its cells."""
        full = np.full(values.shape, written)
        never = np.full(values.shape, -1, dtype=np.int64)
        self.memory[buffer.name] = Memory(
            values,
            full,
            np.zeros_like(full),
            never,
            never.copy(),
            np.zeros_like(full),
            np.zeros(values.shape, dtype=np.int64),
            never.copy(),
            {"w": never.copy(), "r": never.copy()},
        )

    # -- registers ----------------------------------------------------------------------------

    def read(self, source: Elements, op: Op) -> Matrix:
        """Return registers of all threads; refuse any that nothing wrote, of those active."""
        numbers = list(source.numbers)
        known = self.known[source.buffer][:, numbers] | ~self.mask[:, None]
        if not known.all():
            thread, at = (int(i) for i in np.argwhere(~known)[0])
            raise SimulationError(
                f"simulate: {line(op)} reads {source.buffer}[{numbers[at]}] of thread {thread}, "
                "which nothing wrote"
            )
        return self.registers[source.buffer][:, numbers]

    def write(self, into: Elements, values: Any) -> None:
        """Set registers of the active threads; ``values`` has a row for every thread."""
        numbers = list(into.numbers)
        here: Any = slice(None), numbers
        if not self.mask.all():
            here = np.ix_(self.mask, numbers)
            values = np.broadcast_to(values, (len(self.mask), len(numbers)))[self.mask]
        self.registers[into.buffer][here] = values
        self.known[into.buffer][here] = True

    # -- memory -------------------------------------------------------------------------------

    def active(self, guards: Sequence[Guard]) -> npt.NDArray[np.bool_]:
        """Return which of the active threads take part."""
        taking = self.mask.copy()
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

    def fetch(self, name: str, cell: Ints, thread: Ints, op: Op) -> Matrix:
        """Read cells, each by a thread; refuse unwritten ones and races."""
        store = self.memory[name]
        self.check_bounds(name, cell, op)
        self.check_written(name, cell, op)
        self.check_order(name, cell, thread, op, "w", store.writer)
        store.reader[cell] = np.where(
            store.stamps["r"][cell] == self.clock, store.reader[cell], thread
        )
        store.stamps["r"][cell] = self.clock
        return store.values[cell]

    def put(self, name: str, cell: Ints, thread: Ints, values: Any, op: Op) -> None:
        """Write cells, each by a thread; refuse races."""
        store = self.memory[name]
        self.check_bounds(name, cell, op)
        self.check_order(name, cell, thread, op, "r", store.reader)
        store.values[cell] = values
        store.written[cell] = True
        store.pending[cell] = False
        store.writer[cell] = thread
        store.engine[cell] = False
        store.stamps["w"][cell] = self.clock

    def check_bounds(self, name: str, cell: Ints, op: Op) -> None:
        """Refuse an address outside the buffer."""
        size = len(self.memory[name].values)
        if cell.size and (cell.min() < 0 or cell.max() >= size):
            at = int(cell.max() if cell.max() >= size else cell.min())
            raise SimulationError(
                f"simulate: {line(op)} reaches {name} at {at}; it has {size} cells"
            )

    def check_written(self, name: str, cell: Ints, op: Op) -> None:
        """Refuse to read cells that nothing wrote."""
        store = self.memory[name]
        if not store.written[cell].all():
            at = int(cell[~store.written[cell]].flat[0])
            state = (
                "still being copied: wait for it" if store.pending[at] else "which nothing wrote"
            )
            raise SimulationError(f"simulate: {line(op)} reads {name} at {at}, {state}")

    def check_aligned(self, name: str, start: Ints, count: int, op: Op) -> None:
        """Refuse a vector that does not begin at a multiple of its own size."""
        if start.size and (start % count).any():
            at = int(start[start % count != 0][0])
            raise SimulationError(
                f"simulate: {line(op)} takes {count} cells at once and must begin at a multiple of "
                f"{count}; it begins at {at} of {name}"
            )

    def check_order(
        self, name: str, cell: Ints, thread: Ints, op: Op, kind: str, other: Ints
    ) -> None:
        """Refuse to touch what another thread touched since the last barrier that holds both."""
        if all(buffer.name != name for buffer in self.body.shared):
            return
        if kind == "r":
            self.warpgroups.check_free(op, name, cell, thread, self.synced)
            drained = self.memory[name].drains[cell] > 0
            if drained.any():
                raise SimulationError(
                    f"simulate: {line(op)} overwrites {name} at {int(cell[drained].flat[0])}, "
                    "which a bulk store still reads: wait until it is drained"
                )
        stamp, who = self.memory[name].stamps[kind][cell], other[cell]
        foreign = (who >= 0) & (who != thread)
        if kind == "r":
            self.check_apart(name, cell, thread, op)
        since = self.synced[np.where(foreign, who, 0), np.broadcast_to(thread, who.shape)]
        race = foreign & (stamp >= since)
        if race.any():
            at = tuple(np.argwhere(race)[0])
            verb = ("reads", "wrote") if kind == "w" else ("overwrites", "read")
            reader = int(np.broadcast_to(thread, who.shape)[at])
            raise SimulationError(
                f"simulate: {line(op)} races: thread {reader} {verb[0]} {name} at {int(cell[at])}, "
                f"which thread {int(who[at])} {verb[1]} with no barrier in between: sync first"
            )

    def check_apart(self, name: str, cell: Ints, thread: Ints, op: Op) -> None:
        """Refuse to overwrite what the tensor core reads, or read and nobody knows that it has."""
        stamp = self.memory[name].apart[cell]
        known = self.synced[self.core, np.broadcast_to(thread, cell.shape)]
        late = (stamp >= 0) & (stamp >= known)
        if late.any():
            at = tuple(np.argwhere(late)[0])
            what = (
                "still reads: commit it to an mbarrier, and await that"
                if stamp[at] == UNDER_WAY
                else "read, and nobody awaited its commit before"
            )
            raise SimulationError(
                f"simulate: {line(op)} overwrites {name} at {int(cell[at])}, which tcgen05 {what}"
            )

    def count_banks(self, name: str, start: Ints, size: int, op: Op) -> None:
        """Count the wavefronts of a vector access of ``size`` bytes by every active thread."""
        lanes = memory_access.phase_lanes(size)
        self.count_groups(name, start.reshape(-1, lanes), self.mask.reshape(-1, lanes), size, op)

    def count_groups(
        self, name: str, groups: Ints, taking: npt.NDArray[np.bool_], size: int, op: Op
    ) -> None:
        """Count the wavefronts of groups of starts: one each, and one per further conflict.

        What does not take part asks for nothing: it stands for one that does.
        """
        if all(buffer.name != name for buffer in self.body.shared) or not taking.any():
            return
        if not taking.all():
            first = np.take_along_axis(groups, taking.argmax(axis=1)[:, None], axis=1)
            groups = np.where(taking, groups, first)[taking.any(axis=1)]
        bits = self.body.buffer(name).dtype.bits
        words = memory_access.bank_counts(self.body.shared_offsets[name] + groups * bits // 8, size)
        count = self.banks.setdefault(line(op), [0, 0])
        count[0] += int(memory_access.wavefronts(words).sum())
        count[1] += int(memory_access.fewest_wavefronts(words).sum())

    # -- operations ---------------------------------------------------------------------------

    def run_to_end(self) -> None:
        """Run the whole body in every CTA of the cluster.

        Raises:
            SimulationError: it reads what nothing wrote, races, waits forever, or leaves copies
                under way.
        """
        running = [(each, each.run(each.body.ops, each.mask, each.env)) for each in self.cluster]
        while running:
            before, waiting = sum(each.clock for each in self.cluster), []
            for machine, steps in running:
                found = next(steps, None)
                machine.ended = found is None
                if found is not None:
                    waiting.append((machine, found))
            stopped = before == sum(each.clock for each in self.cluster)
            if stopped and len(waiting) == len(running):
                machine, found = waiting[0]
                raise machine.stuck(found)
            running = [each for each in running if not each[0].ended]
        for each in self.cluster:
            each.finish()

    def finish(self) -> None:
        """Refuse to end while something is under way, or may still reach another CTA."""
        if self.reaching is not None:
            raise SimulationError(
                f"simulate: {line(self.reaching)} may reach a CTA that has ended: sync the cluster "
                "after the last"
            )
        loads = any(state.loads for state in self.barriers.values())
        if self.copies or loads or self.drains:
            raise SimulationError(
                "simulate: asynchronous copies are under way at the end: wait for them"
            )
        self.warpgroups.finish()
        self.tensor.finish()

    def run(
        self, ops: Sequence[Op], mask: npt.NDArray[np.bool_], env: dict[str, Any]
    ) -> Iterator[Op]:
        """Run operations in order; yield one that waits, before each further try.

        Args:
            ops: which.
            mask: the threads that run them.
            env: the values of variables, as these threads know them.
        """
        for op in ops:
            self.mask, self.env = mask, env
            if isinstance(op, Loop):
                extent = np.broadcast_to(self.number(op.extent), mask.shape)
                for step in range(int(extent[mask].max(initial=0))):
                    env[op.var] = step
                    yield from self.run(op.body, mask & (step < extent), env)
                env.pop(op.var, None)
            elif isinstance(op, Roles):
                assert mask.all(), op
                yield from self.both(op)
            elif isinstance(op, Let):
                value = op.value.value(env)
                if not mask.all() and op.var in env:
                    value = np.where(mask, value, env[op.var])
                env[op.var] = value
            elif isinstance(op, When):
                taking = self.active(op.guards)
                if taking.any():
                    yield from self.run(op.body, taking, env)
            else:
                phase = op.phase if isinstance(op, Await) else None
                phase = op.free if isinstance(op, Fill) else phase
                while phase is not None and not self.passes(phase, op):
                    yield op
                    self.mask, self.env = mask, env
                if isinstance(op, Sync) and op.scope == "cluster":
                    self.check_whole(op)
                    self.meetings += 1
                    while not all(each.has_come(self.meetings) for each in self.cluster):
                        yield op
                        self.mask, self.env = mask, env
                self.step(op)

    def check_whole(self, op: Op) -> None:
        """Refuse an operation of whole warps, warpgroups or CTAs that a part of one runs."""
        unit = op.scope if isinstance(op, Sync) else UNITS.get(type(op), "thread")
        size = SIZES.get(unit, len(self.mask))
        if size == 1 or self.mask.all():
            return
        whole = self.mask.reshape(-1, size) if len(self.mask) % size == 0 else self.mask[None]
        broken = whole.any(axis=1) & ~whole.all(axis=1)
        if broken.any():
            first = int(np.argmax(broken))
            active, idle = (first * size + int(np.argmax(whole[first] == on)) for on in (1, 0))
            raise SimulationError(
                f"simulate: {line(op)} is done by whole {unit}s: thread {active} comes to it, and "
                f"thread {idle} of its {unit} does not"
            )

    def has_come(self, meeting: int) -> bool:
        """Say whether all threads have come to a barrier of the cluster, or have ended."""
        here = self.meetings >= meeting and not self.producing
        return self.ended or self.passed >= meeting or here

    def both(self, op: Roles) -> Iterator[Op]:
        """Run two programs in turns, each until it waits."""
        apart = self.env | {"thread": np.int64(self.body.threads)}
        producer = self.run(op.produce, self.mask, apart)
        consumer = self.run(op.consume, self.mask, self.env)
        left = [producer, consumer]
        self.producing = True
        while left:
            waiting = []
            before = self.clock
            for role in list(left):
                found = next(role, None)
                if found is None:
                    left.remove(role)
                    self.producing = producer in left
                else:
                    waiting.append(found)
            if waiting and self.clock == before:
                yield waiting[-1]

    def stuck(self, op: Op) -> SimulationError:
        """Return the error of an operation that waits forever."""
        return SimulationError(
            f"simulate: {line(op)} waits forever: "
            + ", ".join(
                f"{name}[{slot}] has completed {state.completed} phases, {state.arrived} of "
                f"{state.expected} arrived"
                for (name, slot), state in self.barriers.items()
            )
        )

    def step(self, op: Op) -> None:
        """Run one operation in all threads."""
        self.clock += 1
        self.check_whole(op)
        if isinstance(op, (Wgmma, WgmmaFence, WgmmaCommit, WgmmaWait, ProxyFence)):
            self.asynchronous(op)
            return
        self.warpgroups.touch(op)
        if isinstance(op, TensorOp):
            tensor_machine.step(self, op)
            return
        self.tensor.touch(op)
        if isinstance(op, Zero):
            self.write(op.into, 0)
        elif isinstance(op, Move):
            values = self.read(op.source, op)
            self.write(op.into, values.astype(self.registers[op.into.buffer].dtype))
        elif isinstance(op, Blend):
            self.blend(op)
        elif isinstance(op, Mma):
            self.mma(op)
        elif isinstance(op, Load):
            self.load(op)
        elif isinstance(op, Store):
            self.store(op)
        elif isinstance(op, (LoadMatrix, StoreMatrix)):
            self.matrices(op)
        elif isinstance(op, MoveMatrix):
            self.transpose(op)
        elif isinstance(op, Transfer):
            self.transfer(op)
        elif isinstance(op, Commit):
            self.closed[self.mask] += 1
        elif isinstance(op, Wait):
            self.wait(op)
        elif isinstance(op, Sync):
            self.sync(op)
        elif isinstance(op, Fill):
            self.fill(op)
        elif isinstance(op, Drain):
            self.drain(op)
        elif isinstance(op, Drained):
            self.drained(op)
        elif isinstance(op, Arrive):
            self.arrive(op)
        elif isinstance(op, Await):
            self.clock += 1
            self.synced[self.fillers, : self.core] = self.clock
            state = self.barriers[op.phase.barrier, int(self.number(op.phase.slot))]
            self.tensor.await_commit(state.committed, slice(0, self.body.threads))
        elif not isinstance(op, Peek):
            raise unknown(op, "simulate")

    def reach(self, op: Op) -> None:
        """Note that an operation reaches other CTAs; refuse it before they are ready."""
        if not self.passed:
            raise SimulationError(
                f"simulate: {line(op)} reaches a CTA whose barriers may not be ready: sync the "
                "cluster first"
            )
        self.reaching = op

    def arrive(self, op: Arrive) -> None:
        """Let every warp arrive, where the guards hold."""
        taking = self.active(op.guards)[::WARP]
        if not taking.any():
            return
        if op.everywhere:
            self.reach(op)
        for each in self.cluster if op.everywhere else [self]:
            state = each.barriers[op.barrier, int(self.number(op.slot))]
            state.arrived += int(taking.sum())
            state.clocks[self.rank] = self.clock
            self.complete(state)

    def complete(self, state: BarrierState) -> None:
        """Complete the phase of a barrier once all have arrived and no bytes are to come."""
        while state.arrived >= state.expected and not state.loads and not state.owed:
            state.arrived -= state.expected
            state.completed += 1

    def passes(self, phase: Phase, op: Op) -> bool:
        """Let boxes under way arrive, and say whether a phase is complete.

        The tensor core arrives as late as it may: where nothing else lets the phase pass.
        """
        state = self.barriers[phase.barrier, int(self.number(phase.slot))]
        parity = int(phase.parity.value(self.env)) % 2
        while state.completed % 2 == parity and self.committed:
            barrier, slot, clock = self.committed.pop(0)
            done = self.barriers[barrier, slot]
            done.arrived += 1
            done.commits[done.completed] = clock
            self.complete(done)
        if state.arrived >= state.expected and not state.owed:
            for load, into, values, rank in state.loads:
                store = self.memory[load.into]
                store.pending[into] = False
                self.put(load.into, into, np.full_like(into, self.fillers[rank]), values, op)
                store.engine[into] = True
            state.loads = []
            self.complete(state)
        return state.completed % 2 != parity

    def fill(self, op: Fill) -> None:
        """Start the loads of boxes; they arrive when their barrier is waited for."""
        if not self.body.specialised and not self.mask[0]:
            return
        if op.free is not None:
            freed = self.barriers[op.free.barrier, int(self.number(op.free.slot))]
            for each in self.cluster:
                met = each.synced[: each.core, each.fillers[self.rank]]
                np.maximum(met, freed.clocks.get(each.rank, -1) + 1, out=met)
            self.tensor.await_commit(freed.committed, slice(self.filler, self.filler + 1))
        slot = int(self.number(op.slot))
        state = self.barriers[op.barrier, slot]
        if state.arrived >= state.expected:
            raise self.not_waited_for(op)
        for load in op.loads:
            into, values = self.box(load, op)
            if load.multicast:
                self.reach(op)
            for each in self.cluster if load.multicast else [self]:
                each.receive(op, slot, load, into, values, self.rank)
        state.arrived += 1
        state.owed += op.size

    def not_waited_for(self, op: Fill) -> SimulationError:
        """Return the error of a fill that comes before the last one of its stage is done with."""
        return SimulationError(
            f"simulate: {line(op)} races: what filled {op.barrier}[{op.slot}] last is still "
            "under way, or nobody has waited for it"
        )

    def receive(
        self, op: Fill, slot: int, load: BulkLoad, into: Ints, values: Matrix, rank: int
    ) -> None:
        """Let a box be under way to this CTA, ordered by the CTA of a rank."""
        state, store = self.barriers[op.barrier, slot], self.memory[load.into]
        self.check_bounds(load.into, into, op)
        if (state.arrived >= state.expected and state.owed <= 0) or store.pending[into].any():
            raise self.not_waited_for(op)
        filler = np.full_like(into, self.fillers[rank])
        self.check_order(load.into, into, filler, op, "r", store.reader)
        store.written[into] = False
        store.pending[into] = True
        state.loads.append((load, into, values, rank))
        state.owed -= values.size * self.body.buffer(load.into).dtype.bits // 8

    def drain(self, op: Drain) -> None:
        """Start the stores of boxes by the first thread of each warpgroup."""
        group: list[tuple[str, Ints, int]] = []
        for leader in np.flatnonzero(self.mask[::WARPGROUP]).tolist():
            leader *= WARPGROUP
            env = self.env | {"thread": leader}
            for each in op.stores:
                source = box_cells(each, self.body.buffer(each.source).dtype.bits)
                source = (source + int(each.source_address.value(env))).reshape(-1)
                store = self.memory[each.source]
                values = self.fetch(each.source, source, np.full_like(source, leader), op)
                stamp = np.where(store.engine[source], SEEN, store.stamps["w"][source])
                self.warpgroups.check_fenced(op, each.source, source, store.writer[source], stamp)
                cell, inside = self.box_places(each, env)
                into, values = cell[inside], values.reshape(each.box)[inside]
                self.put(each.memory, into, np.full_like(into, leader), values, op)
                store.drains[source] += 1
                group.append((each.source, source, leader))
        self.drains.append(group)

    def drained(self, op: Drained) -> None:
        """Complete the reads of all but the newest groups of bulk stores."""
        done = self.drains[: max(0, len(self.drains) - op.pending)]
        self.drains = self.drains[len(done) :]
        for name, cell, leader in (each for group in done for each in group):
            store = self.memory[name]
            store.drains[cell] -= 1
            store.reader[cell] = leader
            store.stamps["r"][cell] = self.clock

    def box_places(
        self, each: BulkLoad | BulkStore, env: Mapping[str, Any]
    ) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return where the elements of a box lie in its matrix, and which are inside it."""
        at = [
            place.value(env) + index
            for place, index in zip(each.place, np.indices(each.box), strict=True)
        ]
        inside = np.ones(each.box, dtype=bool)
        for index, extent in zip(at, self.extents[each.memory], strict=True):
            inside &= index < extent
        return at[0] * self.pitches[each.memory] + at[1], inside

    def box(self, load: BulkLoad, op: Op) -> tuple[Ints, Matrix]:
        """Return the cells that a box goes to, and its values: zeros beyond the matrix."""
        into = box_cells(load, self.body.buffer(load.memory).dtype.bits)
        into = into + int(load.into_address.value(self.env))
        cell, inside = self.box_places(load, self.env)
        values = np.zeros(load.box, dtype=self.memory[load.memory].values.dtype)
        filler = np.full(int(inside.sum()), self.filler, dtype=np.int64)
        values[inside] = self.fetch(load.memory, cell[inside], filler, op)
        return into.reshape(-1), values.reshape(-1)

    def blend(self, op: Blend) -> None:
        """Scale registers, and add others scaled; each product and sum is rounded."""
        kind = self.registers[op.into.buffer].dtype.type
        total = self.read(op.into, op) * kind(self.env[op.alpha])
        if op.source is not None:
            total = total + self.read(op.source, op).astype(kind) * kind(self.env[op.beta])
        self.write(op.into, total)

    def sync(self, op: Sync) -> None:
        """Order the memory of all threads, or of each warp or warpgroup; of a cluster, if asked."""
        if op.scope == "cluster":
            if op.memory and self.ordered < self.meetings:
                for each in self.cluster:
                    each.meet_cluster(self.meetings)
            self.passed, self.reaching = self.meetings, None
            return
        threads = self.body.threads
        size = {"warp": WARP, "warpgroup": WARPGROUP}.get(op.scope, threads)
        group = np.where(self.mask, np.arange(threads) // size, -1 - np.arange(threads))
        self.synced[:threads, :threads][group[:, None] == group[None, :]] = self.clock
        if self.body.tensor:
            self.tensor.meet(group)

    def meet_cluster(self, meeting: int) -> None:
        """Order the memory of all threads here, and before what other CTAs start from now on."""
        self.clock += 1
        self.mask = np.ones_like(self.mask)
        self.sync(Sync("cta"))
        self.tensor.meet_elsewhere(self.clock)
        self.ordered = meeting

    def sync_all(self) -> None:
        """Order the memory of all threads."""
        self.sync(Sync("cta"))

    def arrive_later(self, barrier: str, slot: int) -> None:
        """Let an mbarrier have an arrival of the tensor core: all that was started is done then."""
        self.committed.append((barrier, slot, self.clock))
        for store in self.memory.values():
            store.apart[store.apart == UNDER_WAY] = self.clock

    def fetch_apart(self, operand: SharedMatrix, cell: Ints, op: Op) -> Matrix:
        """Read cells asynchronously, ordered after what the one that starts it has seen."""
        name, store = operand.memory, self.memory[operand.memory]
        self.check_bounds(name, cell, op)
        self.check_written(name, cell, op)
        starter = np.full_like(cell, self.tensor.starter)
        self.check_order(name, cell, starter, op, "w", store.writer)
        stamp = np.where(store.engine[cell], SEEN, store.stamps["w"][cell])
        self.warpgroups.check_fenced(op, name, cell, store.writer[cell], stamp)
        store.apart[cell] = UNDER_WAY
        return store.values[cell]

    def load(self, op: Load) -> None:
        """Load a vector per thread; threads that are guarded away get zeros."""
        taking = self.active(op.guards)
        count = len(op.into.numbers)
        start = self.addresses(op.address)
        self.check_aligned(op.memory, start[taking], count, op)
        cell = start[taking, None] + np.arange(count)
        thread = np.flatnonzero(taking)[:, None]
        values = np.zeros((self.body.threads, count), dtype=self.registers[op.into.buffer].dtype)
        values[taking] = self.fetch(op.memory, cell, thread, op)
        self.write(op.into, values)
        self.count_banks(op.memory, start, count * self.body.buffer(op.memory).dtype.bits // 8, op)

    def store(self, op: Store) -> None:
        """Store a vector per thread."""
        taking = self.active(op.guards)
        values = self.read(op.source, op)
        count = len(op.source.numbers)
        start = self.addresses(op.address)
        self.check_aligned(op.memory, start[taking], count, op)
        cell = start[taking, None] + np.arange(count)
        self.put(op.memory, cell, np.flatnonzero(taking)[:, None], values[taking], op)
        self.count_banks(op.memory, start, count * self.body.buffer(op.memory).dtype.bits // 8, op)

    def matrices(self, op: LoadMatrix | StoreMatrix) -> None:
        """Move 8x8 matrices of 16-bit cells: lane 8j+i gives row i of matrix j."""
        registers = op.into if isinstance(op, LoadMatrix) else op.source
        bits = self.body.buffer(op.memory).dtype.bits
        pack = 32 // bits
        start = self.addresses(op.address)
        skewed = (start * bits % 128 != 0) & self.mask
        if skewed.any():
            thread = int(np.flatnonzero(skewed)[0])
            raise SimulationError(
                f"simulate: {line(op)} needs 16-byte rows: thread {thread} gives {op.memory} at "
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
        cell = cell.reshape(self.body.threads, op.count * pack)[self.mask]
        threads = np.flatnonzero(self.mask)[:, None]
        if isinstance(op, LoadMatrix):
            values = self.registers[registers.buffer][:, list(registers.numbers)]
            values[self.mask] = self.fetch(op.memory, cell, threads, op)
            self.write(registers, values)
        else:
            self.put(op.memory, cell, threads, self.read(registers, op)[self.mask], op)
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
        lanes = np.flatnonzero(taking)[:, None]
        for name, address in ((op.memory, op.address), (op.into, op.into_address)):
            self.check_aligned(name, self.addresses(address)[taking], op.count, op)
        source = self.addresses(op.address)[taking, None] + np.arange(op.count)
        values = self.fetch(op.memory, source, lanes, op)
        if op.fill:
            whole = np.zeros((self.body.threads, op.count), dtype=values.dtype)
            whole[taking] = values
            taking, values = self.mask, whole[self.mask]
        thread = np.broadcast_to(np.flatnonzero(taking)[:, None], values.shape)
        into = self.addresses(op.into_address)[taking, None] + np.arange(op.count)
        size = op.count * self.body.buffer(op.into).dtype.bits // 8
        self.count_banks(op.into, self.addresses(op.into_address), size, op)
        self.count_banks(op.memory, self.addresses(op.address), size, op)
        if not op.asynchronous:
            self.put(op.into, into, thread, values, op)
            return
        store = self.memory[op.into]
        self.check_bounds(op.into, into, op)
        self.check_order(op.into, into, thread, op, "r", store.reader)
        store.written[into] = False
        store.pending[into] = True
        self.copies.append(Copies(op, into, thread, values, self.closed[thread[:, 0]]))

    def wait(self, op: Wait) -> None:
        """Complete all but the newest groups; a group that is still open never completes."""
        left = []
        for each in self.copies:
            who = each.thread[:, 0]
            done = self.mask[who] & (each.group < self.closed[who] - op.pending)
            if done.any():
                into, thread, values = each.into[done], each.thread[done], each.values[done]
                self.put(each.op.into, into, thread, values, each.op)
            if not done.all():
                rest = (part[~done] for part in (each.into, each.thread, each.values, each.group))
                left.append(Copies(each.op, *rest))
        self.copies = left

    def gather(self, elements: Elements, fragment: Fragment, op: Op) -> Matrix:
        """Return one matrix per warp or warpgroup (one per product of it), in float64.

        Of copies, the instruction reads those of the first lanes.
        """
        values = self.read(elements, op).reshape(-1, fragment.lanes, fragment.slots)
        where = tuple(np.moveaxis(fragment.holds, -1, 0))
        matrix = np.empty((len(values), *fragment.tile))
        order = np.arange(fragment.lanes)[::-1]  # of copies, the last that is written stays
        here = slice(None), *(each[order] for each in where)
        matrix[here] = values[:, order].astype(np.float64)
        return matrix

    def mma(self, op: Mma) -> None:
        """Do ``D += A·B`` in every warp, in place."""
        inst = op.instruction
        accumulator = inst.fragment("D")
        a = as_multiplied(self.gather(op.a, inst.fragment("A"), op), inst.a.token)
        b = as_multiplied(self.gather(op.b, inst.fragment("B"), op), inst.b.token)
        extra = [
            self.gather(each, inst.fragment(role), op)
            for role, each in zip(inst.extras, op.extra, strict=True)
        ]
        if inst.kind == "sp":
            check_positions(extra[0][self.mask[::WARP]], op)
            a = expanded(a, extra[0])
        elif inst.kind:
            a, b = scaled(a, b, *extra)
        total = self.gather(op.d, accumulator, op) + a @ b
        if inst.modifier == "xor":  # a ^ b = a + b - 2ab
            total = total - 3 * (a @ b) + a.sum(-1)[..., None] + b.sum(-2)[..., None, :]
        where = slice(None), *np.moveaxis(accumulator.holds, -1, 0)
        result = total[where].reshape(self.body.threads, -1)
        self.write(op.d, as_accumulated(result, inst))

    # -- the asynchronous tensor core -----------------------------------------------------------

    def asynchronous(self, op: Wgmma | WgmmaFence | WgmmaCommit | WgmmaWait | ProxyFence) -> None:
        """Run one operation of whole warpgroups, or refuse what is not ordered."""
        if isinstance(op, Wgmma):
            self.wgmma(op)
        elif isinstance(op, WgmmaFence):
            self.warpgroups.fence()
        elif isinstance(op, WgmmaCommit):
            self.warpgroups.commit()
        elif isinstance(op, WgmmaWait):
            self.warpgroups.wait(op, self.clock)
        else:
            self.warpgroups.visible = self.clock

    def wgmma(self, op: Wgmma) -> None:
        """Do ``D += A·B`` in every warpgroup; the results may be touched after a wait."""
        inst, fragment = op.instruction, op.instruction.fragment("D")
        if self.body.threads % WARPGROUP:
            raise SimulationError(
                f"simulate: {line(op)} takes whole warpgroups of {WARPGROUP} threads; there are "
                f"{self.body.threads}"
            )
        self.warpgroups.start(op)
        if isinstance(op.a, SharedMatrix):
            a = self.shared_matrix(op.a, (inst.m, inst.k), op)
        else:
            a = self.gather(op.a, inst.fragment("A"), op)
        b = self.shared_matrix(op.b, (inst.n, inst.k), op).swapaxes(1, 2)
        total = as_multiplied(a, inst.a.token) @ as_multiplied(b, inst.b.token)
        adds = op.accumulate
        if self.number(adds) if isinstance(adds, Index) else adds:
            total = total + self.gather(op.d, fragment, op)
        rows, cols = np.moveaxis(fragment.coords, -1, 0)
        result = total[:, rows, cols].reshape(self.body.threads, -1)
        self.write(op.d, as_accumulated(result, inst))

    def shared_matrix(self, operand: SharedMatrix, shape: tuple[int, int], op: Wgmma) -> Matrix:
        """Return an operand in shared memory, per warpgroup, where its descriptor's bits say."""
        name = operand.memory
        starts = self.addresses(operand.address).reshape(-1, WARPGROUP)
        if (starts != starts[:, :1]).any():
            raise SimulationError(
                f"simulate: {line(op)} needs one start address per warpgroup; the threads of "
                f"{name} differ"
            )
        cell = np.stack([self.visited(operand, int(start), shape) for start in starts[:, 0]])
        store = self.memory[name]
        self.check_bounds(name, cell, op)
        self.check_written(name, cell, op)
        self.warpgroups.check_visible(
            op,
            name,
            cell,
            store.writer[cell],
            store.stamps["w"][cell],
            store.engine[cell],
            self.synced,
        )
        self.warpgroups.read(name, cell, len(store.values))
        return store.values[cell].astype(np.float64).reshape(-1, *shape)

    def visited(self, operand: SharedMatrix, start: int, shape: tuple[int, int]) -> Ints:
        """Return the cells that the bits of an operand's descriptor lead to, flat."""
        fields, base = operand.descriptor, self.body.shared_offsets[operand.memory]
        bits = fields.bits(base + start * fields.element_bits // 8)
        found, at = Descriptor.from_bits(bits, fields.major, fields.element_bits, fields.machine)
        places: Ints = found.places(shape, at).ravel() - base * 8 // fields.element_bits
        return places


def box_cells(each: BulkLoad | BulkStore, bits: int) -> Ints:
    """Return the cell of each element of a box, relative to the first: rows, swizzled.

    Source: PTX ISA, tensor swizzling modes.

    >>> load = BulkLoad("S", Index(), "G", (Index(), Index()), (8, 64), 128)
    >>> box_cells(load, 16)[1, :9].tolist()
    [72, 73, 74, 75, 76, 77, 78, 79, 64]
    """
    row, col = np.indices(each.box)
    cols, unit = each.box[1], 128 // bits
    line_of = row * cols * bits // 1024
    moved = (col // unit) ^ (line_of % (each.swizzle // 16))
    cells_of: Ints = row * cols + moved * unit + col % unit
    return cells_of


def check_positions(positions: Matrix, op: Op) -> None:
    """Refuse positions of a chunk that do not ascend: what the hardware then does is undefined."""
    wrong = np.argwhere(positions[..., 0::2] >= positions[..., 1::2])
    if wrong.size:
        warp, row, chunk = (int(i) for i in wrong[0])
        pair = positions[warp, row, 2 * chunk : 2 * chunk + 2].astype(int).tolist()
        raise SimulationError(
            f"simulate: {line(op)} needs positions that ascend in each chunk of four; row {row} "
            f"chunk {chunk} of warp {warp} has {pair}"
        )


# What whole warps, warpgroups or CTAs do together; the rest each thread does by itself.
SIZES = {"thread": 1, "warp": WARP, "warpgroup": WARPGROUP}
UNITS: dict[type, str] = {
    Mma: "warp",
    LoadMatrix: "warp",
    StoreMatrix: "warp",
    MoveMatrix: "warp",
    Arrive: "warp",
    TensorLoad: "warp",
    TensorStore: "warp",
    TensorWait: "warp",
    Wgmma: "warpgroup",
    WgmmaFence: "warpgroup",
    WgmmaCommit: "warpgroup",
    WgmmaWait: "warpgroup",
    TensorAllocate: "cta",
    TensorFree: "cta",
}


@dataclass
class Grid:
    """A grid of CTAs over one global memory, run one CTA or one cluster after the other.

    ``sizes`` gives the scalars of the body; ``extents`` and ``pitches``, what a tensor map would.
    ``unwritten``: parameters that nothing wrote before. ``first``: the first CTA that ran; it
    counts the bank conflicts of all.
    """

    body: Body
    sizes: Mapping[str, Any]
    extents: Mapping[str, tuple[int, int]]
    pitches: Mapping[str, int]
    memory: dict[str, Memory] = field(default_factory=dict)
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
        return {name: memory.values for name, memory in self.memory.items()}

    def count(self, machine: Machine) -> None:
        """Add the wavefronts of a CTA to those of the first."""
        assert self.first is not None
        for op, (there, fewest) in machine.banks.items() if machine is not self.first else ():
            here = self.first.banks.setdefault(op, [0, 0])
            here[0], here[1] = here[0] + there, here[1] + fewest


def cluster(body: Body, bx: int = 0, by: int = 0) -> list[Machine]:
    """Return the CTAs of the cluster that begins at (bx, by), in the order of their ranks."""
    machines = [Machine(body, rank) for rank in range(body.cluster)]
    for machine in machines:
        machine.cluster = machines
        machine.env |= {"bx": bx + machine.rank, "by": by}
    return machines


def execute(body: Body, matrices: Mapping[str, Matrix]) -> Machine:
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
