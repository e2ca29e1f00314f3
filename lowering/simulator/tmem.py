"""Tensor memory on the NumPy warp: its cells, and the accesses of each that are not ordered yet.

Loads and stores of warps, and the products and copies that a thread started, all run beside the
threads. On a GPU a program that does not order them is a silent race; here each access is refused,
by name, that is not ordered after what touched its cells before:

- what a thread loads or stores is done after its ``tcgen05.wait``;
- what was started is done after a wait for the mbarrier of its ``tcgen05.commit``; products
  follow products on one accumulator, and copies, without that;
- what other threads did is done after ``tcgen05.fence::before_thread_sync``, a barrier, and
  ``tcgen05.fence::after_thread_sync``; a commit is itself a fence before.

Source: PTX ISA, "tcgen05 memory consistency model".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from layoutalg.algebra.axis import WARP
from lowering.ir.matrices import Matrix
from lowering.ir.ops import Op
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tmem_ops import TensorCopy, TensorLoad, TensorMma, TensorOp
from lowering.isa.dtypes import DType
from lowering.isa.tcgen05 import CELL, COLUMNS, LANES
from lowering.simulator.hazards import SimulationError
from lowering.simulator.order import MEMORY, PASSED, TENSOR, Bools, Ints, Order
from lowering.simulator.wgmma_hazards import Register, registers

UNDER_WAY = np.iinfo(np.int64).max  # the clock of an access that no wait has completed


def to_cells(values: Matrix, dtype: DType) -> Matrix:
    """Return elements, those of one cell along the last dimension, as 32-bit cells.

    >>> from lowering.isa import dtypes
    >>> [hex(cell) for cell in to_cells(np.array([[1, 2]], np.float16), dtypes.get("f16"))]
    ['0x40003c00']
    """
    bits = np.ascontiguousarray(values).view(dtype.word).astype(np.uint32)
    bits &= np.uint32((1 << dtype.bits) - 1)
    shifts = np.arange(values.shape[-1], dtype=np.uint32) * np.uint32(dtype.bits)
    packed: Matrix = np.bitwise_or.reduce(bits << shifts, axis=-1)
    return packed


def from_cells(cells: Matrix, dtype: DType) -> Matrix:
    """Return the elements of cells, along a new last dimension: the inverse of :func:`to_cells`.

    >>> from lowering.isa import dtypes
    >>> from_cells(np.array([0x21], np.uint32), dtypes.get("e2m1"))[0, :2].astype(float).tolist()
    [0.5, 1.0]
    """
    shifts = np.arange(CELL // dtype.bits, dtype=np.uint32) * np.uint32(dtype.bits)
    bits = cells[..., None] >> shifts & np.uint32((1 << dtype.bits) - 1)
    found: Matrix = bits.astype(dtype.word).view(dtype.numpy)
    return found


@dataclass(frozen=True)
class Access:
    """An access of a cell: by whom, when, and by which operation, as a number of the history."""

    who: Ints
    stamp: Ints
    op: Ints

    @classmethod
    def none(cls, size: int) -> Access:
        """Return no access of any of so many cells."""
        return cls(*(np.full(size, -1, dtype=np.int64) for _ in range(3)))

    def note(self, cell: Ints, who: Any, stamp: int, op: int) -> None:
        """Note an access of cells."""
        self.who[cell], self.stamp[cell], self.op[cell] = who, stamp, op


@dataclass
class TensorMemory:
    """The tensor memory of one CTA of a cluster.

    ``used``: whether the program has any; else it takes no room. ``starter``: the thread whose
    order the tensor core has: the one that starts it. ``reads``: the last of each warpgroup, of
    which one warp reaches a lane, and of the tensor core. ``accumulators``: where products that
    were started leave D.
    """

    order: Order
    rank: int
    used: bool
    allocated: int = 0
    history: list[Op] = field(default_factory=list)
    accumulators: dict[int, tuple[int, int]] = field(default_factory=dict)
    loading: dict[tuple[Register, int], Op] = field(default_factory=dict)
    open: list[TensorOp] = field(default_factory=list)
    last_commit: int = -1

    def __post_init__(self) -> None:
        """Begin with no access."""
        self.base, self.threads = self.order.base(self.rank), self.order.threads
        self.core = self.order.agent(self.rank, "tcgen05")
        self.starter = self.base
        groups = -(-self.threads // WARPGROUP)
        size = LANES * COLUMNS if self.used else 0
        self.values = np.zeros(size, dtype=np.uint32)
        self.written = np.zeros(size, dtype=bool)
        self.writes = Access.none(size)
        self.reads = tuple(Access.none(size) for _ in range(groups + 1))

    # -- order --------------------------------------------------------------------------------

    def commit(self, clock: int) -> Ints:
        """Let all that was started count as done after a wait for the commit.

        Returns:
            What the commit releases, by kind and agent: that, and what the thread that started it
            had been told, since products come after it.
        """
        for access in (self.writes, self.reads[-1]):
            access.stamp[(access.who == self.core) & (access.stamp == UNDER_WAY)] = clock
        self.open.clear()
        self.last_commit = clock
        released: Ints = self.order.known[:, self.starter].copy()
        released[PASSED, self.starter] = clock
        released[:, self.core] = self.order.complete[self.core] = clock + 1
        return released

    def check(self, op: Op, cell: Ints, me: Ints, access: Access, verbs: tuple[str, str]) -> None:
        """Refuse what is not ordered after an earlier access of the same cells.

        Args:
            op: for the message.
            cell: what is accessed.
            me: by whom, an agent; the tensor core acts for the one that starts it.
            access: the earlier accesses.
            verbs: what ``op`` and what came before does, for the message.
        """
        who, stamp = access.who[cell], access.stamp[cell]
        me = np.broadcast_to(me, cell.shape)
        seen_by = np.where(me == self.core, self.starter, me)
        known = self.order.acquired[seen_by, np.maximum(who, 0)]
        one, other = who - self.base, me - self.base
        own = (who == seen_by) | ((one // WARP == other // WARP) & (other < self.threads))
        own &= (one < self.threads) & (stamp != UNDER_WAY)  # a warp loads and stores as one
        late = (who >= 0) & ~own & (stamp >= known)
        if isinstance(op, (TensorMma, TensorCopy)):
            late &= ~((who == self.core) & self.follows(op, access.op[cell]))
        if late.any():
            at = np.argwhere(late)[0]
            here = tuple(at)
            raise SimulationError(
                f"simulate: {op} {verbs[0]} tensor memory at {where(int(cell[here]))}, which "
                + self.reason(
                    int(who[here]),
                    int(seen_by[here]),
                    int(stamp[here]),
                    self.history[int(access.op[cell[here]])],
                    verbs[1],
                )
            )

    def follows(self, op: TensorMma | TensorCopy, before: Ints) -> Bools:
        """Say which earlier operations this one follows in the tensor core's own order.

        Products follow copies, and products of their shape and kind on the same accumulator.
        """
        found = np.zeros(before.shape, dtype=bool)
        if isinstance(op, TensorCopy):
            return found
        here = self.accumulators[len(self.history) - 1]
        for number in np.unique(before[before >= 0]):
            other = self.history[number]
            alike = isinstance(other, TensorCopy) or (
                isinstance(other, TensorMma)
                and other.what.instruction == op.what.instruction
                and self.accumulators[number] == here
            )
            found |= (before == number) & alike
        return found

    def reason(self, who: int, me: int, stamp: int, before: Op, verb: str) -> str:
        """Say what is missing between an earlier access and one that is to follow it."""
        synced, released = (self.order.known[kind, me, who] for kind in (MEMORY, TENSOR))
        if who == self.core:
            if stamp == UNDER_WAY:
                return f"{before} still {verb}: commit it to an mbarrier, and wait for that"
            if stamp >= synced:
                return f"{before} {verb}, and no thread waited for its commit"
            return f"{before} {verb}: after the wait a tcgen05.fence.after is missing"
        thread = self.order.name(who)
        if stamp == UNDER_WAY:
            return f"{before} of {thread} still {verb}: wait for it"
        if stamp >= synced:
            return f"{before} of {thread} {verb} with no barrier in between: sync first"
        side = "before it" if stamp >= released else "after it"
        which = side.split()[0]
        return f"{before} of {thread} {verb}: a tcgen05.fence.{which} is missing {side}"

    # -- cells --------------------------------------------------------------------------------

    def cells(self, op: Op, lane: Ints, column: Ints) -> Ints:
        """Return the cells of lanes and columns.

        Raises:
            SimulationError: they are not allocated.
        """
        if not self.allocated:
            raise SimulationError(f"simulate: {op} needs tensor memory, and none is allocated")
        lane, column = np.broadcast_arrays(lane, column)
        wrong = (lane < 0) | (lane >= LANES) | (column < 0) | (column >= self.allocated)
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            raise SimulationError(
                f"simulate: {op} reaches lane {int(lane[at])}, column {int(column[at])}; "
                f"{LANES} lanes and {self.allocated} columns are allocated"
            )
        return lane * COLUMNS + column

    def read(self, op: Op, cell: Ints, me: Ints, under_way: int) -> Matrix:
        """Return the values of cells, and note that they are being read.

        Args:
            op: for messages.
            cell: which.
            me: by whom.
            under_way: when the reads are done.
        """
        if not self.written[cell].all():
            at = int(cell[~self.written[cell]].flat[0])
            raise SimulationError(
                f"simulate: {op} reads tensor memory at {where(at)}, which nothing wrote"
            )
        self.check(op, cell, me, self.writes, ("reads", "writes"))
        who = np.broadcast_to(me, cell.shape)
        group = np.where(who == self.core, len(self.reads) - 1, (who - self.base) // WARPGROUP)
        for number in np.unique(group):
            own = group == number
            self.reads[number].note(cell[own], who[own], under_way, len(self.history) - 1)
        return self.values[cell]

    def write(self, op: Op, cell: Ints, me: Ints, values: Matrix) -> None:
        """Set cells, and note that they are being written."""
        self.check(op, cell, me, self.writes, ("overwrites", "writes"))
        for access in self.reads:
            self.check(op, cell, me, access, ("overwrites", "reads"))
        self.values[cell] = values
        self.written[cell] = True
        self.writes.note(cell, me, UNDER_WAY, len(self.history) - 1)

    def wait(self, verb: str, clock: int, mask: Bools) -> None:
        """Complete what threads loaded or stored."""
        for access in self.reads if verb == "ld" else (self.writes,):
            thread = access.who - self.base
            own = (access.who >= 0) & (thread < self.threads) & mask[thread % self.threads]
            access.stamp[own & (access.stamp == UNDER_WAY)] = clock
        if verb == "ld":
            self.loading = {key: op for key, op in self.loading.items() if not mask[key[1] * WARP]}

    def load(self, op: TensorLoad, mask: Bools) -> None:
        """Note that the registers of active warps are being loaded."""
        for warp in np.flatnonzero(mask[::WARP]).tolist():
            self.loading |= {(register, warp): op for register in registers(op.into)}

    def touch(self, op: Op, each: frozenset[Register], mask: Bools) -> None:
        """Refuse to touch registers that a load still fills, in warps with an active thread."""
        if not self.loading:
            return
        warps = {warp for warp in range(len(mask) // WARP) if mask[warp * WARP :][:WARP].any()}
        waiting = sorted(key for key in self.loading if key[0] in each and key[1] in warps)
        if waiting:
            (name, number), _ = waiting[0]
            raise SimulationError(
                f"simulate: {op} touches {name}[{number}], which "
                f"{self.loading[waiting[0]]} still fills: wait for it"
            )

    # -- the whole ----------------------------------------------------------------------------

    def allocate(self, op: Op, columns: int) -> None:
        """Allocate columns, poisoned."""
        if self.allocated:
            raise SimulationError(f"simulate: {op} allocates tensor memory a second time")
        self.allocated = columns

    def free(self, op: Op) -> None:
        """Free all columns.

        Raises:
            SimulationError: something still touches them, or nothing is allocated.
        """
        used = np.arange(LANES * COLUMNS)
        self.cells(op, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        me = np.full_like(used, self.base)
        self.check(op, used, me, self.writes, ("frees", "writes"))
        for access in self.reads:
            self.check(op, used, me, access, ("frees", "reads"))
        self.allocated = 0

    def finish(self) -> None:
        """Refuse to end with tensor memory allocated, or something under way."""
        if self.open:
            raise SimulationError(
                f"simulate: {self.open[0]} is under way at the end: commit it to an "
                "mbarrier, and wait for that"
            )
        if self.last_commit >= self.order.known[MEMORY, :, self.core].max():
            raise SimulationError(
                "simulate: no thread waits for the last tcgen05.commit: what it covers is under "
                "way at the end"
            )
        if self.allocated:
            raise SimulationError(
                f"simulate: {self.allocated} columns of tensor memory are allocated at the end: "
                "free them, or the next CTA waits for them forever"
            )


def where(cell: int) -> str:
    """Return ``lane 3, column 17``.

    >>> where(3 * COLUMNS + 17)
    'lane 3, column 17'
    """
    lane, column = divmod(cell, COLUMNS)
    return f"lane {lane}, column {column}"


def matrix_of(cells: Matrix, dtype: DType, shape: Sequence[int]) -> Matrix:
    """Return rows of cells as a matrix of elements.

    >>> from lowering.isa import dtypes
    >>> matrix_of(np.array([[0x40003C00]], np.uint32), dtypes.get("f16"), (1, 2)).tolist()
    [[1.0, 2.0]]
    """
    return from_cells(cells, dtype).reshape(shape).astype(np.float64)
