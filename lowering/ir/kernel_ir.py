"""``KernelIR``: what the machines run. Buffers, register-level operations, threads, target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from layoutalg import LayoutError, TCol
from lowering.ir.index import FREE, Index, as_index
from lowering.ir.ops import (
    BulkLoad,
    BulkStore,
    Compute,
    Let,
    LoadMatrix,
    Mma,
    Move,
    Op,
    Registers,
    WarpSpecialize,
    Wgmma,
    WgmmaWait,
    When,
    Zero,
    indices,
    script,
    walk,
)
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tiles import Buffer, cells, reached
from lowering.ir.tmem_ops import TensorWait
from lowering.isa.tcgen05 import CELL


def tensor_columns(buffer: Buffer) -> int:
    """Return how many columns of 32 bits a buffer in tensor memory reaches over.

    >>> from layoutalg import tmem_datapath_layout
    >>> tensor_columns(Buffer("A", (128, 64), "f16", "tmem", tmem_datapath_layout("D", 128, 64)))
    32
    """
    last = int(reached(buffer.layout).get(TCol, (0, 0))[1])
    return last * buffer.dtype.bits // CELL + 1


@dataclass(frozen=True)
class Scalar:
    """A number that the launch gives: a size (``s32``) or a coefficient (``f32``)."""

    name: str
    token: str = "s32"


@dataclass(frozen=True)
class Barrier:
    """An array of mbarriers in shared memory; ``arrivals`` complete a phase of each."""

    name: str
    slots: int
    arrivals: int

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            LayoutError: no mbarriers, or more arrivals than one counts.
        """
        if type(self.slots) is not int or self.slots < 1:
            raise LayoutError(
                f"barrier: the slots of {self.name} must be a number from 1 on; got {self.slots!r}"
            )
        if type(self.arrivals) is not int or not 1 <= self.arrivals <= ARRIVALS:
            raise LayoutError(
                f"barrier: an mbarrier counts 1 to {ARRIVALS} arrivals; {self.name} got "
                f"{self.arrivals!r}"
            )

    def slot(self, value: Any) -> int | Index:
        """Return the number of one of the mbarriers, or an index that holds it.

        Raises:
            LayoutError: the array has fewer.

        >>> Barrier("full", 2, 1).slot(1)
        1
        """
        slot = value if type(value) is int else as_index(value, f"barrier {self.name}: the slot")
        low, high = (slot, slot) if isinstance(slot, int) else (slot.low, slot.high)
        if low < 0 or self.slots <= high < FREE:
            raise LayoutError(
                f"barrier {self.name}: its mbarriers are 0 to {self.slots - 1}; got {value}"
                + ("" if low == high else f", which is {low} to {high}")
            )
        return slot


BARRIER_BYTES = 8
ARRIVALS = (1 << 20) - 1  # the most that an mbarrier counts (PTX ISA, mbarrier.init)


@dataclass(frozen=True)
class KernelIR:
    """A lowered program for one CTA, or for each of a cluster.

    ``params`` lie in global memory, ``shared`` in shared memory, ``registers`` in each thread,
    ``tensor`` in tensor memory. A body with ``scalars`` is one of a grid of CTAs, ``bx`` and
    ``by``; its parameters are pointers, then the scalars. ``cluster``: how many CTAs, neighbours
    along ``bx``, run together and reach each other's shared and tensor memory. ``pdl``: by
    programmatic dependent launch, it may start while the previous grid of its stream still runs,
    and waits for that one itself.
    """

    params: tuple[Buffer, ...]
    shared: tuple[Buffer, ...]
    registers: tuple[Buffer, ...]
    ops: tuple[Op, ...]
    threads: int
    arch: str = "sm_90"
    scalars: tuple[Scalar, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    cluster: int = 1
    pdl: bool = False
    tensor: tuple[Buffer, ...] = ()

    def buffer(self, name: str) -> Buffer:
        """Return the buffer of a name."""
        for each in (*self.params, *self.shared, *self.registers, *self.tensor):
            if each.name == name:
                return each
        raise KeyError(name)

    @property
    def mma(self) -> tuple[Mma, ...]:
        """The mma operations, loops once."""
        return tuple(op for op in walk(self.ops) if isinstance(op, Mma))

    @property
    def written(self) -> tuple[Buffer, ...]:
        """The parameters that the program writes."""
        names = set[str]().union(*(op.writes for op in walk(self.ops)))
        return tuple(buffer for buffer in self.params if buffer.name in names)

    @property
    def shared_offsets(self) -> dict[str, int]:
        """The byte offset of each shared buffer; 1024-byte aligned, as swizzled tiles want."""
        offsets, at = {}, 0
        for buffer in self.shared:
            offsets[buffer.name] = at
            at += -(-cells(buffer) * buffer.dtype.bits // 8 // 1024) * 1024
        return offsets

    @property
    def placed(self) -> bool:
        """Whether a CTA must know which it is: one of a grid, or of a cluster."""
        if self.scalars or self.cluster > 1:
            return True
        used = (index.variables() for op in walk(self.ops) for index in indices(op))
        return any(names & {"bx", "by"} for names in used)

    @property
    def warp_specialized(self) -> bool:
        """Whether a producer warpgroup runs beside the ``threads``, the consumers."""
        return any(isinstance(op, WarpSpecialize) for op in walk(self.ops))

    @property
    def launched(self) -> int:
        """Threads to launch: the ``threads``, and a producer warpgroup."""
        return self.threads + WARPGROUP * self.warp_specialized

    @property
    def boxes(self) -> dict[str, BulkLoad | BulkStore]:
        """The parameters that are read or written by boxes, each with one of its copies.

        In their place a kernel takes the address of a tensor map.

        Raises:
            LayoutError: boxes of one parameter differ, so that no one map has them.
        """
        found: dict[str, BulkLoad | BulkStore] = {}
        for op in walk(self.ops):
            for _, each in op.parts:
                if not isinstance(each, (BulkLoad, BulkStore)):
                    continue
                known = found.setdefault(each.memory, each)
                if (known.box, known.swizzle) != (each.box, each.swizzle):
                    raise LayoutError(
                        f"tma_load, tma_store: a tensor map has boxes of one shape; those of "
                        f"{each.memory} are {known.box} swizzled by {known.swizzle} bytes and "
                        f"{each.box} by {each.swizzle}. Copy tiles of one shape, or declare a "
                        "parameter for each"
                    )
        return found

    @property
    def buffer_bytes(self) -> int:
        """Bytes of shared memory that buffers take."""
        if not self.shared:
            return 0
        last = self.shared[-1]
        return self.shared_offsets[last.name] + -(-cells(last) * last.dtype.bits // 8)

    @property
    def barrier_offsets(self) -> dict[str, int]:
        """The byte offset of each array of mbarriers, after the buffers."""
        offsets, at = {}, -(-self.buffer_bytes // BARRIER_BYTES) * BARRIER_BYTES
        for barrier in self.barriers:
            offsets[barrier.name] = at
            at += barrier.slots * BARRIER_BYTES
        return offsets

    @property
    def tensor_offsets(self) -> dict[str, int]:
        """The first column of each buffer in tensor memory, one after the other."""
        offsets, at = {}, 0
        for buffer in self.tensor:
            offsets[buffer.name] = at
            at += tensor_columns(buffer)
        return offsets

    @property
    def tensor_cell(self) -> int:
        """The byte of shared memory where the address of tensor memory is kept: after all else."""
        if not self.barriers:
            return -(-self.buffer_bytes // BARRIER_BYTES) * BARRIER_BYTES
        last = self.barriers[-1]
        return self.barrier_offsets[last.name] + last.slots * BARRIER_BYTES

    @property
    def shared_places(self) -> dict[str, int]:
        """The byte offset of everything in shared memory, by name."""
        cell = {"tensor_cell": self.tensor_cell} if self.tensor else {}
        return self.shared_offsets | self.barrier_offsets | cell

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory, barriers and the address of tensor memory included."""
        if self.tensor:
            return self.tensor_cell + BARRIER_BYTES
        return self.tensor_cell if self.barriers else self.buffer_bytes

    def script(self) -> str:
        """Return the program as text, to read."""
        lines: list[str] = []
        spaces = (("global", self.params), ("shared", self.shared), ("tensor", self.tensor))
        for space, buffers in spaces:
            lines.extend(
                f"{b.name}: {space} {b.dtype}{list(b.shape)}  # {b.layout}" for b in buffers
            )
        for b in self.registers:
            lines.append(f"{b.name}: {cells(b)} registers of {b.dtype}  # {b.layout}")
        lines.append(script(self.ops))
        return "\n".join(lines)

    def check_written(self) -> None:
        """Refuse an IR that reads a register which no operation writes.

        The order of reads and writes is checked by the simulator.

        Raises:
            LayoutError: the first such operation and its registers are named.
        """
        known = {
            (into.buffer, n) for op in walk(self.ops) for into in _set(op) for n in into.numbers
        }
        for op in walk(self.ops):
            if isinstance(op, (WgmmaWait, TensorWait)):  # they name what others set
                continue
            for each in _read(op):
                lacking = [n for n in each.numbers if (each.buffer, n) not in known]
                if lacking:
                    raise LayoutError(
                        f"lower: {op} reads register {lacking[0]} of {each.buffer}, which "
                        "nothing sets first: copy to it, or begin with zero()"
                    )

    def read_unwritten(self) -> set[str]:
        """Return the register buffers that texts must set first: what writes them reads them.

        Some operation writes less than a 32-bit word, or adds only where a number is not 0; or
        some threads alone write, in a branch, what is read after it.
        """
        found = _written_in_part(self.ops)
        for op in walk(self.ops):
            if isinstance(op, Wgmma) and isinstance(op.accumulate, Index):
                found.add(op.d.buffer)
            into: Any = getattr(op, "into", None)
            if not isinstance(into, Registers) or isinstance(op, (Zero, LoadMatrix)) or op.updates:
                continue
            bits = self.buffer(into.buffer).dtype.bits
            if bits < 32 and (len(into.numbers) * bits < 32 or isinstance(op, (Compute, Move))):
                found.add(into.buffer)
        return found


def _written_in_part(ops: tuple[Op, ...]) -> set[str]:
    """Return the register buffers of which something is read that only some threads have written.

    A branch that holds in all threads or in none counts as taken: reading what only such a branch
    writes is the program's own fault, and the NumPy warp refuses it.
    """
    missed: set[str] = set()  # read where not all threads have written
    partly: set[str] = set()  # written in a branch of some threads
    by_thread = {"thread"}  # variables that differ between threads

    def follow(ops: tuple[Op, ...], written: set[tuple[str, int]], branched: bool) -> None:
        for op in ops:
            if isinstance(op, Let) and op.value.variables() & by_thread:
                by_thread.add(op.var)
            parting = isinstance(op, When) and any(
                index.variables() & by_thread for index in indices(op)
            )
            for body in op.bodies:
                inside = set(written) if parting else written
                follow(getattr(op, body), inside, branched or parting)
            for each in _read(op):
                if any((each.buffer, number) not in written for number in each.numbers):
                    missed.add(each.buffer)
            for into in (getattr(op, "into", None), getattr(op, "d", None)):
                if isinstance(into, Registers):
                    written.update((into.buffer, number) for number in into.numbers)
                    partly.update({into.buffer} if branched else ())

    follow(ops, set(), False)
    return missed & partly


def _set(op: Op) -> Iterator[Registers]:
    """Yield the registers that an operation sets without reading them."""
    into = getattr(op, "into", None)
    if isinstance(into, Registers) and into not in _read(op):
        yield into
    if isinstance(op, Wgmma) and op.accumulate is not True:
        yield op.d


def _read(op: Op) -> Iterator[Registers]:
    """Yield the registers that an operation reads."""
    for name, part in op.parts:
        if isinstance(part, Registers) and (name != "into" or name in op.updates):
            yield part
