"""``Machine``: the state of one CTA on the NumPy warp, which runs a body where there is no GPU.

Registers are arrays (threads, elements), memory is arrays of cells. What each operation does to
them stands in the rows of :data:`simulate`; how threads go on, in :mod:`lowering.simulator.run`.

It refuses what a GPU answers with garbage: reading a register or an address that nothing wrote, and
accesses that race: the rules stand in :mod:`lowering.simulator.hazards`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from layoutalg.memory import access
from lowering.ir.index import Guard, Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.matrices import Matrix, poison
from lowering.ir.ops import Op, Phase, Registers, Transfer, Wgmma, walk
from lowering.ir.readers import Reader
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tiles import Buffer, cells
from lowering.ir.tmem_ops import TensorCommit
from lowering.simulator.hazards import NEVER, Cells, SimulationError
from lowering.simulator.mbarriers import Mbarrier
from lowering.simulator.order import Bools, Ints, Order
from lowering.simulator.strands import Strand
from lowering.simulator.tmem import TensorMemory
from lowering.simulator.wgmma_hazards import Register, Warpgroup


@dataclass(frozen=True)
class Copies:
    """A ``cp.async`` in flight: what it copies, (threads, cells), and its group in each thread.

    ``cell``: what the threads in ``reads`` read; the others write zeros.
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


@dataclass
class Machine:
    """The state of one CTA while a body runs: that of a rank in its cluster, ``cluster``.

    ``order``: what each thread knows of the others, of all CTAs of the cluster. ``mask``: the
    threads that run now; ``strand``: where they are; ``env``: their values of variables.
    ``meetings``: barriers of the cluster that it has come to; ``passed``: and gone on from.
    ``reaching``: what reached another CTA since. ``specialized``: whether the producer runs beside
    the consumers; ``producing``: whether it is what runs now. ``committed``: arrivals of tcgen05
    to come, with what they release. ``store_groups``: of TMA stores that still read shared memory,
    when each was closed, by warpgroup.
    """

    body: KernelIR
    rank: int = 0
    registers: dict[str, Matrix] = field(default_factory=dict)
    known: dict[str, Bools] = field(default_factory=dict)
    memory: dict[str, Cells] = field(default_factory=dict)
    copies: list[Copies] = field(default_factory=list)
    store_groups: dict[int, list[int]] = field(default_factory=dict)
    banks: dict[str, list[int]] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    extents: dict[str, tuple[int, int]] = field(default_factory=dict)  # of matrices read by boxes
    pitches: dict[str, int] = field(default_factory=dict)
    strands: list[Strand] = field(default_factory=list)
    meetings: int = 0
    passed: int = 0
    ordered: int = 0
    reaching: Op | None = None
    ended: bool = False
    specialized: bool = False
    producing: bool = False
    committed: list[tuple[TensorCommit, Mbarrier, Ints]] = field(default_factory=list)
    cluster: list[Machine] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Allocate registers and shared memory, poisoned; all of a cluster have one order."""
        self.cluster.append(self)
        self.strand = Strand([], self.env)
        self.order: Order = self.cluster[0].order if self.rank else Order(self.body)
        threads = self.body.threads
        self.mask = np.ones(threads, dtype=bool)
        self.closed = np.zeros(threads, dtype=np.int64)
        self.env["thread"] = np.arange(threads)
        self.base = self.order.base(self.rank)
        self.agents = self.base + np.arange(threads)
        self.diverged = np.zeros(threads, dtype=bool)  # waited, since their warps converged last
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
        """Return registers of all threads; those of active threads must be written.

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

    # -- numbers ------------------------------------------------------------------------------

    def active(self, guards: Sequence[Guard], mask: Bools | None = None) -> Bools:
        """Return in which of the active threads, or of ``mask``, all guards hold."""
        taking: Bools = (self.mask if mask is None else mask).copy()
        for guard in guards:
            taking &= guard.holds(self.env)
        return taking

    def number(self, value: int | Index) -> Any:
        """Return a number, or the value of an index."""
        return value.value(self.env) if isinstance(value, Index) else value

    def addresses(self, index: Index) -> Ints:
        """Return the value of an address in every thread."""
        return np.broadcast_to(
            np.asarray(index.value(self.env), dtype=np.int64), (self.body.threads,)
        )

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

    # -- memory -------------------------------------------------------------------------------

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
        """Count the wavefronts of groups of starts: one each, and one per bank conflict.

        A lane that does not take part counts as one that does, which costs nothing.
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

    # -- other CTAs, mbarriers, the producer ----------------------------------------------------

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

    def phase(self, phase: Phase, op: Op) -> tuple[Mbarrier, int]:
        """Return the mbarrier and the parity of a phase."""
        state = self.barriers[phase.barrier, self.one(phase.slot, op)]
        return state, self.one(phase.parity, op) % 2

    @property
    def filler(self) -> int:
        """The agent that starts TMA loads: the producer thread, or thread 0."""
        return self.order.agent(self.rank, "producer") if self.producing else self.base


simulate = Reader[Machine]("simulate")
