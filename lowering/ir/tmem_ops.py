"""What a program does with tensor memory: the operations of ``tcgen05``, whole CTAs at a time.

Tensor memory has 128 lanes of 512 columns of 32 bits. A buffer there starts at a column; an address
is a lane and a column from there on. Threads move data by warps (:class:`TensorLoad`,
:class:`TensorStore`); one thread starts products and copies from shared memory, which go on by
themselves until a :class:`TensorCommit` tells an mbarrier that they are complete.

Source: PTX ISA, "Tensor Memory", "tcgen05 memory consistency model".
"""

from __future__ import annotations

from dataclasses import dataclass

from layoutalg import LayoutError, fragments
from layoutalg.fragments import Fragment
from lowering.ir.index import Index
from lowering.ir.ops import Op, Registers, SharedMatrix
from lowering.isa.tcgen05 import Multiplication, TensorInst

ISSUERS = ("thread", "warp")  # who starts what is asynchronous: thread 0, or one of warp 0


@dataclass(frozen=True)
class TensorMatrix:
    """A matrix in tensor memory: a lane, and a column of 32 bits from the buffer's first on."""

    memory: str
    lane: Index
    column: Index

    def __str__(self) -> str:
        """Return ``C[lane thread // 32 % 4 * 32, column 16]``."""
        return f"{self.memory}[lane {self.lane}, column {self.column}]"


@dataclass(frozen=True)
class TensorMma(Op, shared_out="cta"):
    """``d += a·b`` or ``d = a·b``, started by one thread.

    ``accumulate``: whether; or a number that says so where it is not 0. ``scales``: SFA and SFB.
    """

    what: Multiplication
    d: TensorMatrix
    a: SharedMatrix | TensorMatrix
    b: SharedMatrix
    accumulate: bool | Index = True
    scales: tuple[TensorMatrix, ...] = ()
    issuer: str = "thread"

    @property
    def unit(self) -> str:
        """The threads that come to it: warp 0 elects one of its own, or thread 0 comes alone."""
        return self.issuer

    def __post_init__(self) -> None:
        """Check the operands against the instruction.

        Raises:
            LayoutError: scales that it does not take, or descriptors of another type or major.
        """
        inst = self.what.instruction
        if len(self.scales) != (2 if inst.scale else 0):
            raise LayoutError(
                f"{inst}: takes {2 if inst.scale else 0} operands of scales; got {len(self.scales)}"
            )
        given = zip("AB", (self.a, self.b), (inst.a, inst.b), self.what.majors, strict=True)
        for role, operand, dtype, major in given:
            if isinstance(operand, TensorMatrix):
                fits = major == "K"
                have = "in tensor memory, K-major"
            else:
                fields = operand.descriptor
                have = f"{fields.element_bits} bits {fields.major}-major of {fields.machine}"
                fits = have == f"{dtype.bits} bits {major}-major of tcgen05"
            if not fits:
                raise LayoutError(
                    f"{inst}: operand {role} is {dtype.bits} bits {major}-major of tcgen05; "
                    f"got {operand}: {have}"
                )

    @property
    def instruction(self) -> TensorInst:
        """The instruction."""
        return self.what.instruction

    @property
    def cta_group(self) -> int:
        """How many CTAs take part."""
        return self.instruction.cta_group

    def __str__(self) -> str:
        """Return ``tcgen05.m128n256k16.f16.f16(D, A, B)``, with what else it reads."""
        more = [str(each) for each in self.scales]
        if isinstance(self.accumulate, Index):
            more.append(f"add if {self.accumulate}")
        else:
            more.append("add" if self.accumulate else "overwrite")
        inside = ", ".join(map(str, (self.d, self.a, self.b, *more)))
        return f"{self.what.instruction}({inside})"


COPIES = {"32x128b.warpx4": (32, 128), "128x256b": (128, 256), "128x128b": (128, 128)}


@dataclass(frozen=True)
class TensorCopy(Op, shared_out="cta"):
    """Rows of shared memory to lanes of tensor memory, started by one thread: ``tcgen05.cp``.

    ``shape``: rows by bits; ``warpx4`` writes 32 rows to each of the four groups of 32 lanes.
    """

    shape: str
    into: TensorMatrix
    source: SharedMatrix
    cta_group: int = 1
    issuer: str = "thread"

    @property
    def unit(self) -> str:
        """The threads that come to it: warp 0 elects one of its own, or thread 0 comes alone."""
        return self.issuer

    def __str__(self) -> str:
        """Return ``SFA[lane 0, column 0] = tcgen05.cp.32x128b.warpx4(SFA_tile[…])``."""
        return f"{self.into} = tcgen05.cp.{self.shape}({self.source})"


@dataclass(frozen=True)
class TensorLoad(Op, unit="warp", aligned=True):
    """Tensor memory to registers, by every warp from a lane of its own: ``tcgen05.ld``."""

    shape: str
    count: int
    into: Registers
    source: TensorMatrix

    @property
    def fragment(self) -> Fragment:
        """Which lane and column each word of each lane of the warp is."""
        return moved("ld", self.shape, self.count)

    def __str__(self) -> str:
        """Return ``R[0..3] = tcgen05.ld.32x32b.x4(C[…])``."""
        return f"{self.into} = tcgen05.ld.{self.shape}.x{self.count}({self.source})"


@dataclass(frozen=True)
class TensorStore(Op, unit="warp", aligned=True):
    """Registers to tensor memory: the inverse of :class:`TensorLoad`, ``tcgen05.st``."""

    shape: str
    count: int
    into: TensorMatrix
    source: Registers

    @property
    def fragment(self) -> Fragment:
        """As of the load."""
        return moved("st", self.shape, self.count)

    def __str__(self) -> str:
        """Return ``tcgen05.st.32x32b.x4(C[…], R[0..3])``."""
        return f"tcgen05.st.{self.shape}.x{self.count}({self.into}, {self.source})"


def moved(verb: str, shape: str, count: int) -> Fragment:
    """Return the fragment of a load ("ld") or store ("st").

    >>> moved("ld", "16x64b", 2).shape
    (16, 4)
    """
    return fragments.get(f"tcgen05.{verb}.{shape}.x{count}.b32", {"ld": "dst", "st": "src"}[verb])


@dataclass(frozen=True)
class TensorWait(Op, unit="warp", aligned=True):
    """``tcgen05.wait``: this thread's loads ("ld") or stores ("st") are complete.

    ``complete``: the registers that were loaded; each read of them depends on it.
    """

    verb: str
    complete: tuple[Registers, ...] = ()

    def __str__(self) -> str:
        """Return ``tcgen05.wait.ld(R[0..3])``."""
        return f"tcgen05.wait.{self.verb}({', '.join(map(str, self.complete))})"


@dataclass(frozen=True)
class TensorCommit(Op, shared_out="cta"):
    """``tcgen05.commit``: arrive on an mbarrier when all prior async tensor operations finish.

    With ``cta_group`` 2, on that of both CTAs.
    """

    barrier: str
    slot: int | Index
    cta_group: int = 1
    issuer: str = "thread"

    @property
    def unit(self) -> str:
        """The threads that come to it: warp 0 elects one of its own, or thread 0 comes alone."""
        return self.issuer

    def __str__(self) -> str:
        """Return ``tcgen05.commit(done[0])``."""
        return f"tcgen05.commit({self.barrier}[{self.slot}])"


@dataclass(frozen=True)
class TensorFence(Op, unit="thread"):
    """``tcgen05.fence``: order accesses of tensor memory "before" a barrier, or "after" it."""

    side: str

    def __str__(self) -> str:
        """Return ``tcgen05.fence.before``."""
        return f"tcgen05.fence.{self.side}"


@dataclass(frozen=True)
class TensorAllocate(Op, unit="cta"):
    """``tcgen05.alloc``: warp 0 allocates columns; a barrier of the CTA tells all threads where."""

    columns: int
    cta_group: int = 1

    def __str__(self) -> str:
        """Return ``tcgen05.alloc(256)``."""
        return f"tcgen05.alloc({self.columns})"


@dataclass(frozen=True)
class TensorFree(Op, unit="cta"):
    """``tcgen05.dealloc``: after a barrier of the CTA, warp 0 frees the columns."""

    columns: int
    cta_group: int = 1

    def __str__(self) -> str:
        """Return ``tcgen05.dealloc(256)``."""
        return f"tcgen05.dealloc({self.columns})"


Issued = TensorMma | TensorCopy | TensorCommit  # what one thread starts
TensorOp = (
    Issued | TensorLoad | TensorStore | TensorWait | TensorFence | TensorAllocate | TensorFree
)
