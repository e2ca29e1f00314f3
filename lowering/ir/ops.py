"""Register-level operations: the IR that every lowered program is made of.

No layouts are left in it: registers are numbers, addresses are :class:`~lowering.ir.index.Index`
expressions of the thread and of loop variables, counted in elements of their buffer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, TypeVar

from layoutalg import LayoutError
from lowering.ir.expressions import Node, shown
from lowering.ir.index import FREE, INT, Guard, Index
from lowering.isa.mma import MmaInst
from lowering.isa.smem_descriptor import Descriptor
from lowering.isa.wgmma import WgmmaInst


@dataclass(frozen=True)
class Registers:
    """Elements of a register buffer, by number."""

    buffer: str
    numbers: tuple[int, ...]

    def __str__(self) -> str:
        """Return ``A[0..3]`` or ``A[0,2]``."""
        first, last = self.numbers[0], self.numbers[-1]
        if len(self.numbers) > 2 and self.numbers == tuple(range(first, last + 1)):
            return f"{self.buffer}[{first}..{last}]"
        return f"{self.buffer}[{','.join(map(str, self.numbers))}]"


class Op(ABC):
    """An operation. ``str(op)`` is its line of a script; that of a loop or branch, its first.

    A class says of its operations, as keywords:

    - ``bodies``: the fields that hold operations;
    - ``sources``, ``targets``: the fields that name buffers in memory which it reads, or writes;
    - ``updates``: the fields of registers that it reads before it sets them;
    - ``unit``: which threads come to its instruction together;
    - ``shared_out``: which threads lowering shares it out over, or picks one of: all of them must
      come, or a part would be left undone;
    - ``aligned``: whether its instruction waits for the whole warp: ``.sync.aligned``.
    """

    bodies: ClassVar[tuple[str, ...]]
    sources: ClassVar[tuple[str, ...]]
    targets: ClassVar[tuple[str, ...]]
    updates: ClassVar[tuple[str, ...]]
    shared_out: ClassVar[str]
    aligned: ClassVar[bool]
    _unit: ClassVar[str]

    def __init_subclass__(
        cls,
        *,
        unit: str = "",
        shared_out: str = "",
        aligned: bool = False,
        bodies: tuple[str, ...] = (),
        sources: tuple[str, ...] = (),
        targets: tuple[str, ...] = (),
        updates: tuple[str, ...] = (),
    ) -> None:
        if not unit and cls.unit is Op.unit:
            raise TypeError(f"{cls.__name__}: an operation says its unit")
        cls._unit, cls.shared_out, cls.aligned = unit, shared_out, aligned
        cls.bodies, cls.sources, cls.targets, cls.updates = bodies, sources, targets, updates

    @property
    def unit(self) -> str:
        """One of "thread", "warp", "warpgroup", "cta", "cluster"."""
        return self._unit

    @abstractmethod
    def __str__(self) -> str: ...

    @property
    def parts(self) -> Iterator[tuple[str, Any]]:
        """Its fields with their names, tuples element by element; bodies are left out.

        >>> [name for name, _ in Move(Registers("a", (0,)), Registers("b", (0,))).parts]
        ['into', 'source']
        """
        for name, value in vars(self).items():
            if name not in self.bodies:
                each = value if isinstance(value, tuple) else (value,)
                yield from ((name, part) for part in each)

    @property
    def reads(self) -> set[str]:
        """The buffers in global and shared memory that it reads.

        >>> Load(Registers("r", (0,)), "a", Index()).reads
        {'a'}
        """
        found = {getattr(self, name) for name in self.sources}
        for _, part in self.parts:
            if isinstance(part, SharedMatrix):
                found.add(part.memory)
            elif isinstance(part, Op):
                found |= part.reads
        return found

    @property
    def writes(self) -> set[str]:
        """The buffers in global and shared memory that it writes."""
        inner = (part.writes for _, part in self.parts if isinstance(part, Op))
        return {getattr(self, name) for name in self.targets}.union(*inner)


@dataclass(frozen=True)
class Zero(Op, unit="thread"):
    """Set registers to zero."""

    into: Registers

    def __str__(self) -> str:
        return f"{self.into} = 0"


@dataclass(frozen=True)
class Move(Op, unit="thread"):
    """Copy registers of one dtype."""

    into: Registers
    source: Registers

    def __str__(self) -> str:
        return f"{self.into} = {self.source}"


@dataclass(frozen=True)
class Compute(Op, unit="thread"):
    """Registers computed element by element: a tree of functions over operands.

    ``operands``: for each :class:`~lowering.ir.expressions.Operand`, as many registers as are set.
    ``coordinates``: for each :class:`~lowering.ir.expressions.Coordinate`, as many indices. All
    operands are read before any element is set.
    """

    into: Registers
    value: Node
    operands: tuple[Registers, ...] = ()
    coordinates: tuple[tuple[Index, ...], ...] = ()

    def __str__(self) -> str:
        text = shown(self.value, self.operands)
        for number, found in reversed(list(enumerate(self.coordinates))):
            text = text.replace(f"@{number}", f"({found[0]}{', …' * (len(found) > 1)})")
        return f"{self.into} = {text}"


@dataclass(frozen=True)
class Mma(Op, unit="warp", aligned=True):
    """``d += a·b``: one warp-wide instruction; elements in PTX operand order.

    ``extra`` is what the instruction takes beside: the positions E of sparse A, or the scales of A
    and B.
    """

    instruction: MmaInst
    d: Registers
    a: Registers
    b: Registers
    extra: tuple[Registers, ...] = ()

    def __str__(self) -> str:
        operands = ", ".join(map(str, (self.d, self.a, self.b, self.d, *self.extra)))
        return f"{self.instruction.shape}({operands})"


@dataclass(frozen=True)
class Load(Op, unit="thread", sources=("memory",)):
    """One vector load: consecutive addresses into registers."""

    into: Registers
    memory: str
    address: Index
    guards: tuple[Guard, ...] = ()

    def __str__(self) -> str:
        return f"{self.into} = {self.memory}[{self.address}]{_where(self.guards)}"


@dataclass(frozen=True)
class Store(Op, unit="thread", targets=("memory",)):
    """One vector store: registers to consecutive addresses.

    ``aliases``: the number of a copy in which two threads may write one cell, and either may win;
    0: of none. ``copies``: a bit for each thread that holds, in these registers, what another one
    stores for it; they must not differ.
    """

    memory: str
    address: Index
    source: Registers
    guards: tuple[Guard, ...] = ()
    aliases: int = 0
    copies: int = 0

    def __str__(self) -> str:
        return f"{self.memory}[{self.address}] = {self.source}{_where(self.guards)}"


@dataclass(frozen=True)
class Atomic(Op, unit="thread", sources=("memory",), targets=("memory",)):
    """``red``: cells of global memory become add, min or max of themselves and registers.

    Each cell changes at once; the order of several changes is not said. ``guards``, ``copies``: as
    of :class:`Store`. Neighbours of 16 bits share a word.
    """

    function: str
    memory: str
    address: Index
    source: Registers
    guards: tuple[Guard, ...] = ()
    copies: int = 0

    def __str__(self) -> str:
        what = f"{self.memory}[{self.address}], {self.source}"
        return f"red.{self.function}({what}){_where(self.guards)}"


@dataclass(frozen=True)
class LoadMatrix(Op, unit="warp", aligned=True, sources=("memory",)):
    """``ldmatrix``: each lane gives the address of one 16-byte row; 1, 2 or 4 matrices."""

    into: Registers
    memory: str
    address: Index
    count: int
    trans: bool

    def __str__(self) -> str:
        how = f"x{self.count}{'.trans' * self.trans}"
        return f"{self.into} = ldmatrix.{how}({self.memory}[{self.address}])"


@dataclass(frozen=True)
class StoreMatrix(Op, unit="warp", aligned=True, targets=("memory",)):
    """``stmatrix``: the inverse of :class:`LoadMatrix`; ``aliases``, ``copies`` as of Store."""

    memory: str
    address: Index
    source: Registers
    count: int
    trans: bool
    aliases: int = 0
    copies: int = 0

    def __str__(self) -> str:
        how = f"x{self.count}{'.trans' * self.trans}"
        return f"stmatrix.{how}({self.memory}[{self.address}], {self.source})"


@dataclass(frozen=True)
class MoveMatrix(Op, unit="warp", aligned=True):
    """``movmatrix``: each word of ``source``, an 8x8 matrix across the warp, transposed."""

    into: Registers
    source: Registers

    def __str__(self) -> str:
        return f"{self.into} = movmatrix.trans({self.source})"


@dataclass(frozen=True)
class Select(Op, unit="thread"):
    """One register of two: ``one`` where ``which``, 0 or 1, is 1, else ``zero``.

    A register is the elements that share a 32-bit word, or one wider element; of a source, those of
    them that count. The same goes for :class:`Permute` and :class:`Shuffle`. All three move what
    nothing wrote as well: it stays unwritten.
    """

    into: Registers
    zero: Registers
    one: Registers
    which: Index

    def __str__(self) -> str:
        return f"{self.into} = {self.one} if {self.which} else {self.zero}"


@dataclass(frozen=True)
class Permute(Op, unit="thread"):
    """``prmt``: a register put together from the bytes of two.

    Hexadecimal digit i of ``selector`` says which of the eight bytes of both sources is byte i; of
    elements of 4 bits, which of the 16 elements is element i.
    """

    into: Registers
    first: Registers
    second: Registers
    selector: Index

    def __str__(self) -> str:
        constant = self.selector.constant
        how = str(self.selector) if self.selector.terms else f"0x{constant:04x}"
        return f"{self.into} = prmt({self.first}, {self.second}, {how})"


@dataclass(frozen=True)
class Shuffle(Op, unit="warp", aligned=True):
    """``shfl.sync.idx``: the register that a lane of the warp, ``lane``, has."""

    into: Registers
    source: Registers
    lane: Index

    def __str__(self) -> str:
        return f"{self.into} = shfl.idx({self.source}, {self.lane})"


@dataclass(frozen=True)
class Agree(Op, unit="thread"):
    """Copies in several threads, of which an exchange takes any: they must be equal.

    The NumPy warp checks it; texts say nothing. ``elements``: of each thread, the element in each
    register; -1: none.
    """

    copies: Registers
    elements: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        return f"agree({self.copies})"


@dataclass(frozen=True)
class Butterfly(Op, unit="warp", aligned=True, updates=("into",)):
    """Join registers with those of the lane whose number differs in one bit, in every lane.

    ``into = function(into, shfl.bfly(into, mask))``; the function takes two elements of the type of
    ``into``.
    """

    into: Registers
    function: str
    mask: int

    def __str__(self) -> str:
        return f"{self.into} = {self.function}({self.into}, shfl.bfly({self.into}, {self.mask}))"


@dataclass(frozen=True)
class Transfer(Op, unit="thread", shared_out="cta", sources=("memory",), targets=("into",)):
    """Memory to memory, ``count`` consecutive elements per thread.

    ``asynchronous``: by ``cp.async``, complete after :class:`Wait`; else through registers.
    ``edges``: where one does not hold, zeros are written and nothing is read. ``aliases`` as of
    :class:`Store`.
    """

    into: str
    into_address: Index
    memory: str
    address: Index
    count: int
    guards: tuple[Guard, ...] = ()
    asynchronous: bool = False
    edges: tuple[Guard, ...] = ()
    aliases: int = 0

    def __str__(self) -> str:
        verb = "cp.async" if self.asynchronous else "copy"
        target, source = f"{self.into}[{self.into_address}]", f"{self.memory}[{self.address}]"
        rest = f"{_where(self.edges)} else 0" if self.edges else ""
        return f"{verb}.{self.count}({target}, {source}){_where(self.guards)}{rest}"


@dataclass(frozen=True)
class Commit(Op, unit="thread"):
    """``cp.async.commit_group``: close the open group of asynchronous transfers."""

    def __str__(self) -> str:
        return "cp.async.commit"


@dataclass(frozen=True)
class Wait(Op, unit="thread"):
    """``cp.async.wait_group``: at most ``pending`` of this thread's groups are still in flight."""

    pending: int

    def __str__(self) -> str:
        return f"cp.async.wait({self.pending})"


@dataclass(frozen=True)
class BulkLoad(Op, unit="thread", sources=("memory",), targets=("into",)):
    """One TMA load: a box of a matrix in global memory to consecutive cells of shared memory.

    ``cp.async.bulk.tensor``: ``box`` rows and columns from ``place`` on; zeros beyond the matrix.
    ``swizzle``: bytes of a row, whose 16-byte units are permuted by the row. ``multicast``: to the
    same cells of every CTA of the cluster, completing the same mbarrier there.
    """

    into: str
    into_address: Index
    memory: str
    place: tuple[Index, Index]
    box: tuple[int, int]
    swizzle: int
    multicast: bool = False

    def __str__(self) -> str:
        (row, col), (rows, cols) = self.place, self.box
        into = f"{self.into}[{self.into_address}]{' of all CTAs' * self.multicast}"
        return f"{into} = {self.memory}[{row} +{rows}, {col} +{cols}]"


@dataclass(frozen=True)
class Phase:
    """The phase of a given parity, of one mbarrier out of an array."""

    barrier: str
    slot: int | Index
    parity: Index

    def __str__(self) -> str:
        return f"{self.barrier}[{self.slot}], {self.parity}"


@dataclass(frozen=True)
class TmaLoad(Op, unit="thread", shared_out="cta"):
    """TMA: thread 0 waits for phase ``free``, then loads boxes whose bytes complete an mbarrier.

    ``size``: bytes that come to this CTA, those that others of the cluster load for it included.
    Before dispatch ``loads`` are calls, and the size is not known.
    """

    barrier: str
    slot: int | Index
    size: int
    loads: tuple[BulkLoad, ...]
    free: Phase | None = None

    def __str__(self) -> str:
        free = "" if self.free is None else f" after {self.free}"
        boxes = ", ".join(map(str, self.loads))
        return f"tma_load({self.barrier}[{self.slot}]: {boxes}){free}"


@dataclass(frozen=True)
class BulkStore(Op, unit="thread", sources=("source",), targets=("memory",)):
    """One TMA store: the inverse of :class:`BulkLoad`; nothing is written beyond the matrix."""

    memory: str
    place: tuple[Index, Index]
    box: tuple[int, int]
    swizzle: int
    source: str
    source_address: Index

    def __str__(self) -> str:
        (row, col), (rows, cols) = self.place, self.box
        into = f"{self.memory}[{row} +{rows}, {col} +{cols}]"
        return f"{into} = {self.source}[{self.source_address}]"


@dataclass(frozen=True)
class TmaStore(Op, unit="thread", shared_out="cta"):
    """TMA: the first thread of each warpgroup stores boxes and commits them as one bulk group.

    Before dispatch ``stores`` are calls.
    """

    stores: tuple[BulkStore, ...]

    def __str__(self) -> str:
        return f"tma_store({', '.join(map(str, self.stores))})"


@dataclass(frozen=True)
class TmaStoreWait(Op, unit="thread", shared_out="warpgroup"):
    """``cp.async.bulk.wait_group.read``: at most ``pending`` groups still read shared memory."""

    pending: int

    def __str__(self) -> str:
        return f"tma_store_wait({self.pending})"


@dataclass(frozen=True)
class Arrive(Op, unit="warp"):
    """One arrival per warp at an mbarrier: it releases what the warp's threads did before.

    A warp in which a guard fails, which it does for all of its threads, does not arrive.
    ``everywhere``: at that mbarrier of every CTA of the cluster.
    """

    barrier: str
    slot: int | Index
    guards: tuple[Guard, ...] = ()
    everywhere: bool = False

    def __str__(self) -> str:
        everywhere = " of all CTAs" * self.everywhere
        return f"arrive({self.barrier}[{self.slot}]{everywhere}){_where(self.guards)}"


@dataclass(frozen=True)
class TryWait(Op, unit="thread"):
    """Test, without blocking, whether a phase is complete, for the next :class:`MbarrierWait`."""

    phase: Phase

    def __str__(self) -> str:
        return f"try_wait({self.phase})"


@dataclass(frozen=True)
class MbarrierWait(Op, unit="thread"):
    """Wait until a phase is complete; ``tried``: unless the last :class:`TryWait` saw it so."""

    phase: Phase
    tried: bool = False

    def __str__(self) -> str:
        return f"mbarrier_wait({self.phase})"


@dataclass(frozen=True)
class Sync(Op):
    """A barrier of all threads of a "warp", "warpgroup", "cta" or "cluster", which orders memory.

    That of a cluster orders it only with ``memory``. Without, it still says that the mbarriers of
    the other CTAs are initialised (the first one), and that they have not ended (the last one). It
    waits for all threads that have not ended.
    """

    scope: str
    memory: bool = False

    @property
    def orders(self) -> bool:
        """Whether it orders the memory of more than a warp.

        >>> Sync("cta").orders, Sync("warp").orders, Sync("cluster").orders
        (True, False, False)
        """
        return self.memory or self.scope in ("cta", "warpgroup")

    @property
    def unit(self) -> str:
        """Its scope."""
        return self.scope

    def __str__(self) -> str:
        return f"sync({self.scope}{', memory' * self.memory})"


@dataclass(frozen=True)
class SharedMatrix:
    """An operand of :class:`Wgmma` in shared memory.

    ``address`` is its start before the swizzle, in elements, the same for a whole warpgroup.
    """

    memory: str
    address: Index
    descriptor: Descriptor

    def __str__(self) -> str:
        """Return ``B[k * 16 as K-major 128B, leading 16, stride 1024]``."""
        return f"{self.memory}[{self.address} as {self.descriptor}]"


@dataclass(frozen=True)
class Wgmma(Op, unit="warpgroup", aligned=True):
    """``d += a·b``, or ``d = a·b``: started by a whole warpgroup, complete after a wait.

    ``accumulate``: whether to add; or a number that says so where it is not 0.
    """

    instruction: WgmmaInst
    d: Registers
    a: Registers | SharedMatrix
    b: SharedMatrix
    accumulate: bool | Index = True

    def __post_init__(self) -> None:
        """Check the operands against the instruction.

        Raises:
            LayoutError: a count of registers, or a descriptor, of another instruction.
        """
        inst = self.instruction
        for role, operand in (("D", self.d), ("A", self.a), ("B", self.b)):
            if isinstance(operand, Registers):
                slots = inst.fragment(role).slots
                if len(operand.numbers) != slots:
                    raise LayoutError(
                        f"{inst}: operand {role} has {slots} elements per thread; got {operand}"
                    )
                continue
            bits = (inst.a if role == "A" else inst.b).bits
            if operand.descriptor.element_bits != bits:
                raise LayoutError(
                    f"{inst}: operand {role} has elements of {bits} bits; got {operand} of "
                    f"{operand.descriptor.element_bits}"
                )

    def __str__(self) -> str:
        if isinstance(self.accumulate, Index):
            into = f"{self.d} if {self.accumulate}"
        else:
            into = str(self.d if self.accumulate else 0)
        return f"wgmma.{self.instruction.shape}({self.d}, {self.a}, {self.b}, {into})"


@dataclass(frozen=True)
class WgmmaFence(Op, unit="warpgroup", aligned=True):
    """``wgmma.fence``: orders accesses of registers before it with a :class:`Wgmma` after it."""

    def __str__(self) -> str:
        return "wgmma.fence"


@dataclass(frozen=True)
class WgmmaCommit(Op, unit="warpgroup", aligned=True):
    """``wgmma.commit_group``: close the open group of :class:`Wgmma`."""

    def __str__(self) -> str:
        return "wgmma.commit"


@dataclass(frozen=True)
class WgmmaWait(Op, unit="warpgroup", aligned=True):
    """``wgmma.wait_group``: at most ``pending`` groups are still in flight.

    ``complete``: the accumulators that may be touched after it; each read of them depends on it.
    """

    pending: int
    complete: tuple[Registers, ...] = ()

    def __str__(self) -> str:
        return f"wgmma.wait({', '.join(map(str, (self.pending, *self.complete)))})"


@dataclass(frozen=True)
class ProxyFence(Op, unit="thread"):
    """``fence.proxy.async``: what threads wrote to shared memory, the async proxy sees after it.

    The async proxy: TMA, ``wgmma``, ``tcgen05``.
    """

    def __str__(self) -> str:
        return "fence.proxy.async"


@dataclass(frozen=True)
class Loop(Op, unit="thread", bodies=("body",)):
    """A loop: ``var`` runs over ``0 .. extent - 1``; one to ``unroll`` is gone before dispatch."""

    var: str
    extent: int | Index
    body: tuple[Op, ...]
    unroll: bool = False

    def __post_init__(self) -> None:
        """Check the extent: the variable is an ``int`` of C++.

        Raises:
            LayoutError: it is larger than that holds.
        """
        if isinstance(self.extent, int) and self.extent >= INT:
            raise LayoutError(
                f"loop: {self.var} takes at most {INT - 1} steps, what an int holds; got "
                f"{self.extent}. Nest two loops"
            )

    @property
    def guards(self) -> tuple[Guard, ...]:
        """The condition of a step, where the extent is no number."""
        if isinstance(self.extent, int):
            return ()
        return (Guard(Index.free(self.var), 0, self.extent),)

    def __str__(self) -> str:
        return f"for {self.var} in range({self.extent}):{'  # unrolled' * self.unroll}"


@dataclass(frozen=True)
class Let(Op, unit="thread"):
    """Name the value of an index: ``var = value``, which lies in ``0 .. extent - 1``."""

    var: str
    value: Index
    extent: int = FREE

    def __str__(self) -> str:
        return f"{self.var} = {self.value}"


@dataclass(frozen=True)
class When(Op, unit="thread", bodies=("body",)):
    """Operations that run in the threads in which the guards hold.

    :mod:`lowering.ir.convergence` says over which threads a condition must be the same for what
    stands inside.
    """

    guards: tuple[Guard, ...]
    body: tuple[Op, ...]

    def __str__(self) -> str:
        return f"{_where(self.guards).strip()}:"


@dataclass(frozen=True)
class WarpSpecialize(Op, unit="cta", bodies=("produce", "consume")):
    """Warp specialization: a producer warpgroup beside the consumer warpgroups.

    One thread of the producer runs ``produce`` and loads by TMA; the producer gives most of its
    registers to the consumers (``setmaxnreg``), which run ``consume``.
    """

    produce: tuple[Op, ...]
    consume: tuple[Op, ...]

    def __str__(self) -> str:
        return "produce:"


def walk(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Yield every operation, loop bodies included, once."""
    for op in ops:
        yield op
        for body in op.bodies:
            yield from walk(getattr(op, body))


_AnyOp = TypeVar("_AnyOp", bound=Op)


def with_bodies(op: _AnyOp, change: Callable[[tuple[Op, ...]], tuple[Op, ...]]) -> _AnyOp:
    """Return an operation with each of its bodies changed."""
    inside: dict[str, Any] = {name: change(getattr(op, name)) for name in op.bodies}
    return replace(op, **inside) if inside else op  # type: ignore[type-var]


def rewrite(ops: tuple[Op, ...], change: Callable[[Op], Iterable[Op]]) -> tuple[Op, ...]:
    """Return operations, each replaced by what it changes to, from the inside out.

    >>> (loop, _) = rewrite((Loop("i", 2, (Commit(),)),), lambda op: (op, op))
    >>> len(loop.body)
    2
    """
    return tuple(
        new for op in ops for new in change(with_bodies(op, lambda body: rewrite(body, change)))
    )


def indices(value: Any) -> Iterator[Index]:
    """Yield every index in an operation, guards, phases and boxes included; bodies are left out.

    >>> [str(each) for each in indices(Let("x", Index.of("thread", 32) // 4))]
    ['thread // 4']
    """
    if isinstance(value, Index):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from indices(each)
    elif is_dataclass(value) and not isinstance(value, type):
        bodies = value.bodies if isinstance(value, Op) else ()
        for each in fields(value):
            if each.name not in bodies:
                yield from indices(getattr(value, each.name))


def _where(guards: tuple[Guard, ...]) -> str:
    if not guards:
        return ""
    return " if " + " and ".join(guard.render("script") for guard in guards)


def script(ops: tuple[Op, ...], indent: str = "") -> str:
    """Return the operations as text, loop bodies indented."""
    lines = []
    for op in ops:
        lines.append(f"{indent}{op}")
        for at, body in enumerate(op.bodies):
            lines.extend([f"{indent}{body}:"] * (at > 0))
            lines.append(script(getattr(op, body), indent + "    "))
    return "\n".join(lines)
