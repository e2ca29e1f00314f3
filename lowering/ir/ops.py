"""Register-level operations: the IR that every lowered program is made of.

No layouts are left in it: registers are numbers, addresses are :class:`~lowering.ir.index.Index`
expressions of the thread and of loop variables, counted in elements of their buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, TypeVar, Union

from layoutalg import LayoutError
from lowering.ir.index import FREE, INT, Index, Style
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


@dataclass(frozen=True)
class Guard:
    """A condition ``low <= index < high`` under which a thread takes part."""

    index: Index
    low: int
    high: int | Index

    def variables(self) -> set[str]:
        """Return the names on which it depends."""
        high = self.high.variables() if isinstance(self.high, Index) else set[str]()
        return self.index.variables() | high

    def replaced(self, values: Mapping[str, Index]) -> Guard:
        """Return the condition with variables replaced by what they stand for."""
        high = self.high.replaced(values) if isinstance(self.high, Index) else self.high
        return Guard(self.index.replaced(values), self.low, high)

    def holds(self, env: Mapping[str, Any]) -> Any:
        """Return whether it holds, for numbers or arrays of numbers.

        >>> Guard(Index.of("thread", 8), 2, 4).holds({"thread": 3})
        True
        """
        value = self.index.value(env)
        high = self.high.value(env) if isinstance(self.high, Index) else self.high
        return (self.low <= value) & (value < high)

    def render(self, style: Style, wide: Collection[str] = ()) -> str:
        """Return the condition as text; in 32 bits where they hold sizes of a launch."""
        text = self.index.operand(style, wide)
        if isinstance(self.high, Index):
            high = self.high.operand(style, wide)
            fits = all(-INT <= each.low <= each.high < INT for each in (self.index, self.high))
            cast = {"python": "int32", "c": "int", "script": ""}[style] if fits else ""
            upper = f"{text} < {high}"
            if cast:
                upper = f"{cast}({self.index.render(style, wide)}) < {cast}({high})"
        else:
            upper = f"{text} < {self.high}"
        if self.low <= self.index.low:
            return upper
        return f"{self.low} <= {text} {'&&' if style == 'c' else 'and'} {upper}"


@dataclass(frozen=True)
class Zero:
    """Set registers to zero."""

    into: Registers


@dataclass(frozen=True)
class Move:
    """Copy registers, converting to the destination's dtype."""

    into: Registers
    source: Registers


@dataclass(frozen=True)
class Blend:
    """``into = alpha * into + beta * source``, in the type of ``into``; without source, the first.

    ``alpha`` and ``beta`` are names of scalars that the launch gives.
    """

    into: Registers
    alpha: str
    source: Registers | None = None
    beta: str = ""


@dataclass(frozen=True)
class Mma:
    """``d += a·b``: one warp-wide instruction; elements in PTX operand order.

    ``extra`` is what the instruction takes beside: the positions E of sparse A, or the scales of A
    and B.
    """

    instruction: MmaInst
    d: Registers
    a: Registers
    b: Registers
    extra: tuple[Registers, ...] = ()


@dataclass(frozen=True)
class Load:
    """One vector load: consecutive addresses into registers."""

    into: Registers
    memory: str
    address: Index
    guards: tuple[Guard, ...] = ()


@dataclass(frozen=True)
class Store:
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


@dataclass(frozen=True)
class LoadMatrix:
    """``ldmatrix``: each lane gives the address of one 16-byte row; 1, 2 or 4 matrices."""

    into: Registers
    memory: str
    address: Index
    count: int
    trans: bool


@dataclass(frozen=True)
class StoreMatrix:
    """``stmatrix``: the inverse of :class:`LoadMatrix`; ``aliases``, ``copies`` as of Store."""

    memory: str
    address: Index
    source: Registers
    count: int
    trans: bool
    aliases: int = 0
    copies: int = 0


@dataclass(frozen=True)
class MoveMatrix:
    """``movmatrix``: each word of ``source``, an 8x8 matrix across the warp, transposed."""

    into: Registers
    source: Registers


@dataclass(frozen=True)
class Transfer:
    """Memory to memory, ``count`` consecutive elements per thread.

    ``asynchronous``: by ``cp.async``, complete after :class:`Wait`; else through registers.
    ``fill``: where the guards do not hold, zeros are written and nothing is read. ``aliases`` as of
    :class:`Store`.
    """

    into: str
    into_address: Index
    memory: str
    address: Index
    count: int
    guards: tuple[Guard, ...] = ()
    asynchronous: bool = False
    fill: bool = False
    aliases: int = 0


@dataclass(frozen=True)
class Commit:
    """Close a group of asynchronous transfers."""


@dataclass(frozen=True)
class Wait:
    """Wait until at most ``pending`` groups of this thread's transfers are under way."""

    pending: int


@dataclass(frozen=True)
class BulkLoad:
    """A box of a matrix in global memory to consecutive cells of shared memory, by one thread.

    ``cp.async.bulk.tensor``: ``box`` rows and columns from ``place`` on; beyond the matrix there
    are zeros. ``swizzle``: bytes of a row, whose 16-byte units are permuted by the row.
    ``multicast``: to the same cells of every CTA of the cluster, and of its barrier.
    """

    into: str
    into_address: Index
    memory: str
    place: tuple[Index, Index]
    box: tuple[int, int]
    swizzle: int
    multicast: bool = False


@dataclass(frozen=True)
class Phase:
    """A phase of one mbarrier out of an array of them: the one whose parity is given."""

    barrier: str
    slot: int | Index
    parity: Index


@dataclass(frozen=True)
class TmaLoad:
    """Thread 0 waits until the cells are free, then loads boxes; their bytes complete a barrier.

    ``size``: bytes that come to this CTA, those that others of the cluster load for it included.
    ``loads``: each a :class:`BulkLoad`; before dispatch, each a call, and ``size`` is not known.
    """

    barrier: str
    slot: int | Index
    size: int
    loads: tuple[BulkLoad, ...]
    free: Phase | None = None


@dataclass(frozen=True)
class BulkStore:
    """Consecutive cells of shared memory to a box of a matrix in global memory, by one thread.

    ``cp.async.bulk.tensor``: the reverse of :class:`BulkLoad`; beyond the matrix nothing is
    written.
    """

    memory: str
    place: tuple[Index, Index]
    box: tuple[int, int]
    swizzle: int
    source: str
    source_address: Index


@dataclass(frozen=True)
class TmaStore:
    """The first thread of each warpgroup stores boxes, and closes a group of them.

    ``stores``: each a :class:`BulkStore`; before dispatch, each a call.
    """

    stores: tuple[BulkStore, ...]


@dataclass(frozen=True)
class TmaStoreWait:
    """The first thread of each warpgroup waits until at most ``pending`` groups are being read."""

    pending: int


@dataclass(frozen=True)
class Arrive:
    """One arrival per warp at an mbarrier: what its threads read before, they have read.

    A warp in which a guard does not hold, alike for its threads, does not arrive.
    ``everywhere``: at that mbarrier of every CTA of the cluster.
    """

    barrier: str
    slot: int | Index
    guards: tuple[Guard, ...] = ()
    everywhere: bool = False


@dataclass(frozen=True)
class TryWait:
    """Ask whether a phase is complete, for the next :class:`MbarrierWait` of it; nothing waits."""

    phase: Phase


@dataclass(frozen=True)
class MbarrierWait:
    """All threads wait until a phase is complete; ``tried``: unless a peek has seen that it is."""

    phase: Phase
    tried: bool = False


@dataclass(frozen=True)
class Sync:
    """A barrier of all threads of a scope: "warp", "warpgroup" or "cta", and orders their memory.

    That of a "cluster" orders it where ``memory`` says so; else none: mbarriers of the other CTAs
    are ready after the first, and none of them ends before the last. It waits for all threads that
    have not ended.
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
class Wgmma:
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


@dataclass(frozen=True)
class WgmmaFence:
    """``wgmma.fence``: registers touched before it may be operands of a :class:`Wgmma` after it."""


@dataclass(frozen=True)
class WgmmaCommit:
    """Close a group of :class:`Wgmma`."""


@dataclass(frozen=True)
class WgmmaWait:
    """Wait until at most ``pending`` groups are under way.

    ``complete`` are the registers that may be touched after it; reading them depends on the wait.
    """

    pending: int
    complete: tuple[Registers, ...] = ()


@dataclass(frozen=True)
class ProxyFence:
    """``fence.proxy.async``: shared memory written before it may be read asynchronously.

    By a :class:`Wgmma`, or by a :class:`BulkStore`.
    """


@dataclass(frozen=True)
class Loop:
    """A loop: ``var`` runs over ``0 .. extent - 1``; ``unroll``: until lowering expands it."""

    BODIES: ClassVar = ("body",)

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


@dataclass(frozen=True)
class Let:
    """Name the value of an index: ``var = value``, which lies in ``0 .. extent - 1``."""

    var: str
    value: Index
    extent: int = FREE


@dataclass(frozen=True)
class When:
    """Operations that run in the threads in which the guards hold.

    :mod:`lowering.ir.convergence` says over which threads a condition must be the same for what
    stands inside.
    """

    BODIES: ClassVar = ("body",)

    guards: tuple[Guard, ...]
    body: tuple[Op, ...]


@dataclass(frozen=True)
class WarpSpecialize:
    """Two programs at once: one thread of a further warpgroup fills, the others do the rest.

    The further warpgroup gives most of its registers to the others (``setmaxnreg``).
    """

    BODIES: ClassVar = ("produce", "consume")

    produce: tuple[Op, ...]
    consume: tuple[Op, ...]


@dataclass(frozen=True)
class TensorOp:
    """An operation on tensor memory, of those in :mod:`lowering.ir.tmem_ops`; its text is its line.

    It stands apart because those are of one machine alone, and know its instructions.
    """


@dataclass(frozen=True)
class TileOp:
    """An operation on tiles, of those in :mod:`lowering.ir.tiles`, until dispatch lowers it."""


Op = Union[  # noqa: UP007 - refers forward, in Loop and When
    Zero,
    Move,
    Blend,
    Mma,
    Load,
    Store,
    LoadMatrix,
    StoreMatrix,
    MoveMatrix,
    Transfer,
    Commit,
    Wait,
    Sync,
    Wgmma,
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait,
    ProxyFence,
    BulkLoad,
    TmaLoad,
    BulkStore,
    TmaStore,
    TmaStoreWait,
    Arrive,
    TryWait,
    MbarrierWait,
    Loop,
    Let,
    When,
    WarpSpecialize,
    TensorOp,
    TileOp,
]


_AnyOp = TypeVar("_AnyOp", bound=Op)


def bodies(op: Op) -> tuple[str, ...]:
    """Return the names of the fields of an operation that hold other operations.

    >>> bodies(Loop("i", 2, ())), bodies(Commit())
    (('body',), ())
    """
    return getattr(op, "BODIES", ())


def walk(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Yield every operation, loop bodies included, once."""
    for op in ops:
        yield op
        for name in bodies(op):
            yield from walk(getattr(op, name))


def with_bodies(op: _AnyOp, change: Callable[[tuple[Op, ...]], tuple[Op, ...]]) -> _AnyOp:
    """Return an operation with what stands in it changed, body by body."""
    inside: dict[str, Any] = {name: change(getattr(op, name)) for name in bodies(op)}
    return replace(op, **inside) if inside else op


def rewrite(ops: tuple[Op, ...], change: Callable[[Op], Iterable[Op]]) -> tuple[Op, ...]:
    """Return operations, each replaced by what it changes to, from the inside out.

    >>> twice = rewrite((Loop("i", 2, (Commit(),)),), lambda op: (op, op))
    >>> [str(len(op.body)) for op in twice]
    ['2', '2']
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
        inside = getattr(value, "BODIES", ())
        for each in fields(value):
            if each.name not in inside:
                yield from indices(getattr(value, each.name))


def unknown(op: object, reader: str) -> LayoutError:
    """Return the error of a reader that comes to an operation which it does not know.

    >>> print(unknown(3, "script"))
    script: the operation int is unknown to this reader; got 3
    """
    return LayoutError(
        f"{reader}: the operation {type(op).__name__} is unknown to this reader; got {op}"
    )


def line(op: Op) -> str:
    """Return an operation as one line of script; the body of a loop or branch is not shown.

    >>> line(Zero(Registers("D", (0, 1, 2, 3))))
    'D[0..3] = 0'

    Raises:
        LayoutError: an operation that is none of those here.
    """
    if isinstance(op, Zero):
        return f"{op.into} = 0"
    if isinstance(op, Move):
        return f"{op.into} = {op.source}"
    if isinstance(op, Blend):
        more = "" if op.source is None else f" + {op.beta} * {op.source}"
        return f"{op.into} = {op.alpha} * {op.into}{more}"
    if isinstance(op, Mma):
        operands = ", ".join(map(str, (op.d, op.a, op.b, op.d, *op.extra)))
        return f"{op.instruction.shape}({operands})"
    if isinstance(op, Load):
        return f"{op.into} = {op.memory}[{op.address}]{_where(op.guards)}"
    if isinstance(op, Store):
        return f"{op.memory}[{op.address}] = {op.source}{_where(op.guards)}"
    if isinstance(op, LoadMatrix):
        return f"{op.into} = ldmatrix.x{op.count}{'.trans' * op.trans}({op.memory}[{op.address}])"
    if isinstance(op, StoreMatrix):
        return f"stmatrix.x{op.count}{'.trans' * op.trans}({op.memory}[{op.address}], {op.source})"
    if isinstance(op, MoveMatrix):
        return f"{op.into} = movmatrix.trans({op.source})"
    if isinstance(op, Transfer):
        verb = "cp.async" if op.asynchronous else "copy"
        target, source = f"{op.into}[{op.into_address}]", f"{op.memory}[{op.address}]"
        rest = " else 0" if op.fill else ""
        return f"{verb}.{op.count}({target}, {source}){_where(op.guards)}{rest}"
    if isinstance(op, Commit):
        return "cp.async.commit"
    if isinstance(op, Wait):
        return f"cp.async.wait({op.pending})"
    if isinstance(op, Sync):
        return f"sync({op.scope}{', memory' * op.memory})"
    if isinstance(op, TmaLoad):
        free = "" if op.free is None else f" after {_phase(op.free)}"
        boxes = ", ".join(line(load) for load in op.loads)
        return f"tma_load({op.barrier}[{op.slot}]: {boxes}){free}"
    if isinstance(op, BulkLoad):
        (row, col), (rows, cols) = op.place, op.box
        into = f"{op.into}[{op.into_address}]{' of all CTAs' * op.multicast}"
        return f"{into} = {op.memory}[{row} +{rows}, {col} +{cols}]"
    if isinstance(op, TmaStore):
        return f"tma_store({', '.join(line(store) for store in op.stores)})"
    if isinstance(op, BulkStore):
        (row, col), (rows, cols) = op.place, op.box
        return f"{op.memory}[{row} +{rows}, {col} +{cols}] = {op.source}[{op.source_address}]"
    if isinstance(op, TmaStoreWait):
        return f"tma_store_wait({op.pending})"
    if isinstance(op, Arrive):
        everywhere = " of all CTAs" * op.everywhere
        return f"arrive({op.barrier}[{op.slot}]{everywhere}){_where(op.guards)}"
    if isinstance(op, MbarrierWait):
        return f"mbarrier_wait({_phase(op.phase)})"
    if isinstance(op, TryWait):
        return f"try_wait({_phase(op.phase)})"
    if isinstance(op, Let):
        return f"{op.var} = {op.value}"
    if isinstance(op, WarpSpecialize):
        return "produce:"
    if isinstance(op, When):
        return f"{_where(op.guards).strip()}:"
    if isinstance(op, Loop):
        return f"for {op.var} in range({op.extent}):{'  # unrolled' * op.unroll}"
    if isinstance(op, (TensorOp, TileOp)):
        return str(op)
    return _asynchronous(op)


def _asynchronous(op: Wgmma | WgmmaFence | WgmmaCommit | WgmmaWait | ProxyFence) -> str:
    """Return an operation of the warpgroup as one line of script."""
    if isinstance(op, Wgmma):
        into = str(op.d if op.accumulate else 0)
        if isinstance(op.accumulate, Index):
            into = f"{op.d} if {op.accumulate}"
        return f"wgmma.{op.instruction.shape}({op.d}, {op.a}, {op.b}, {into})"
    if isinstance(op, WgmmaWait):
        return f"wgmma.wait({', '.join(map(str, (op.pending, *op.complete)))})"
    if isinstance(op, ProxyFence):
        return "fence.proxy.async"
    if isinstance(op, WgmmaFence):
        return "wgmma.fence"
    if isinstance(op, WgmmaCommit):
        return "wgmma.commit"
    raise unknown(op, "script")


def _phase(phase: Phase) -> str:
    return f"{phase.barrier}[{phase.slot}], {phase.parity}"


def _where(guards: tuple[Guard, ...]) -> str:
    if not guards:
        return ""
    return " if " + " and ".join(guard.render("script") for guard in guards)


def script(ops: tuple[Op, ...], indent: str = "") -> str:
    """Return the operations as text, loop bodies indented."""
    lines = []
    for op in ops:
        lines.append(indent + line(op))
        if isinstance(op, WarpSpecialize):
            lines.append(script(op.produce, indent + "    "))
            lines.extend([f"{indent}consume:", script(op.consume, indent + "    ")])
        elif isinstance(op, (Loop, When)):
            lines.append(script(op.body, indent + "    "))
    return "\n".join(lines)
