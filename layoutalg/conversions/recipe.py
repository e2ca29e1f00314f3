"""Conversions as data: a recipe over 32-bit registers, to lower or to run in NumPy.

The registers of the source are numbered from 0, and each step defines the next number. ``words``
lists the registers and elements that make up each register of the destination. A "per thread" entry
holds one value for all threads, or one for each.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from layoutalg.algebra.axis import WARP
from layoutalg.algebra.parts import HasParts, substitute_parts
from layoutalg.conversions.by_thread import formula
from layoutalg.conversions.instructions import Builder, Instruction, PerThread, Verb
from layoutalg.errors import LayoutError, Undecided
from layoutalg.layouts.thread_slots import elements_held
from layoutalg.layouts.tile_layout import Layout, TileLayout
from layoutalg.sizes.size import Size, is_int, substitute

_BARRIER = 2  # cycles

Kind = Literal["registers", "select", "movmatrix", "shuffle", "shared"]
Values = npt.NDArray[Any]

# 8x8 of 16 bits: lane 4*row + col//2 holds (row, col) as element col % 2 of one register; after the
# transpose, element e of lane l comes from this lane, and from element (l // 4) % 2 there.
MOVMATRIX_LANE = tuple(
    tuple(4 * (2 * (lane % 4) + e) + lane // 8 for e in range(2)) for lane in range(WARP)
)
MOVMATRIX_HALF = tuple(lane // 4 % 2 for lane in range(WARP))


@dataclass(frozen=True)
class Word:
    """A packed register: element e is element ``parts[e]`` of register ``registers[e]``.

    Both are per thread; a register of -1 leaves the element undefined.

    >>> Word.whole(3, 2)
    Word(registers=((3,), (3,)), parts=((0,), (1,)))
    """

    registers: tuple[PerThread, ...]
    parts: tuple[PerThread, ...]

    @classmethod
    def whole(cls, register: int, pack: int) -> Word:
        """Return a register, unchanged, as a word."""
        return cls(((register,),) * pack, tuple((part,) for part in range(pack)))

    @property
    def register(self) -> int | None:
        """The one register that this word equals in every thread; None where it is packed."""
        used = {r for column in self.registers for r in column}
        in_order = all(
            column == (e,) for e, column in enumerate(self.parts) if self.registers[e] != (-1,)
        )
        used.discard(-1)
        if not used:
            return -1
        return used.pop() if len(used) == 1 and in_order and self._uniform else None

    @property
    def _uniform(self) -> bool:
        return all(len(column) == 1 for column in self.registers + self.parts)

    def text(self, sources: int) -> str:
        """Describe the word; registers from ``sources`` on are results of steps."""
        number = self.register
        if number is not None:
            return "unused" if number < 0 else _name(number, sources)
        used = [e for e, column in enumerate(self.registers) if column != (-1,)]
        if len({self.registers[e] for e in used}) == 1 and all(self.parts[e] == (e,) for e in used):
            return _chosen_text(self.registers[used[0]], sources)
        elements = []
        for register, part in zip(self.registers, self.parts, strict=True):
            where = str(part[0]) if len(part) == 1 else str(formula(part) or "by thread")
            elements.append(f"{_chosen_text(register, sources)}[{where}]")
        return f"({', '.join(elements)})"

    def gather(self, registers: Values) -> Values:
        """Return the word's elements from an array (threads, registers, elements)."""
        threads = np.arange(registers.shape[0])
        out = [
            registers[threads, np.array(register), np.array(part)]
            for register, part in zip(self.registers, self.parts, strict=True)
        ]
        return np.stack(out, axis=1)


@dataclass(frozen=True)
class Shuffle:
    """One ``shfl.sync.idx``: each thread offers a register and reads from a lane of its warp.

    ``offer`` and ``read`` are per thread. Where threads offer different registers, selects choose.
    """

    offer: PerThread
    read: PerThread

    @property
    def register(self) -> int | None:
        """The register that every thread offers; None where they differ."""
        return self.offer[0] if len(self.offer) == 1 else None

    def result(self, registers: Values) -> Values:
        """Return the register that every thread receives: an array (threads, elements)."""
        threads = np.arange(registers.shape[0])
        offered = registers[threads, np.array(self.offer)]
        received: Values = offered[threads // WARP * WARP + np.array(self.read)]
        return received

    def text(self, sources: int) -> str:
        """Describe the instruction; registers from ``sources`` on are results of steps."""
        offered = _chosen_text(self.offer, sources)
        return f"shfl.sync.idx {offered} from lane {_run_text(self.read)}"


@dataclass(frozen=True)
class Permute:
    """A register packed from registers of the same thread by ``prmt``, or one that selects choose.

    A shuffle offers it, or several words of the destination use it.
    """

    source: Word

    @property
    def register(self) -> int | None:
        """None: it is packed from several."""
        return None

    def result(self, registers: Values) -> Values:
        """Return the register: an array (threads, elements)."""
        return self.source.gather(registers)

    def text(self, sources: int) -> str:
        """Describe the register; registers from ``sources`` on are results of steps."""
        text = self.source.text(sources)
        return f"prmt {text}" if text.startswith("(") else f"select {text}"


@dataclass(frozen=True)
class Movmatrix:
    """One ``movmatrix.sync.aligned.m8n8.trans.b16`` of a register, which may be packed first."""

    source: Word

    @property
    def register(self) -> int | None:
        """The register that is transposed; None where it is packed first."""
        return self.source.register

    def result(self, registers: Values) -> Values:
        """Return the transposed 8x8: an array (threads, elements)."""
        rows = self.source.gather(registers)
        threads = np.arange(registers.shape[0])
        lane = threads % WARP
        warp = threads - lane
        half = np.array(MOVMATRIX_HALF)[lane]
        columns = [rows[warp + np.array(MOVMATRIX_LANE)[lane, e], half] for e in range(2)]
        return np.stack(columns, axis=1)

    def text(self, sources: int) -> str:
        """Describe the instruction; registers from ``sources`` on are results of steps."""
        number = self.register
        name = "elements put together" if number is None else _name(number, sources)
        return f"movmatrix {name}"


@dataclass(frozen=True)
class Moves:
    """The accesses of one side of an exchange, of each thread: so many of one instruction.

    Attributes:
        name: the instruction, as PTX names it.
        count: how many instructions.
        size: bytes that each moves for a thread.
        wavefronts: that a warp takes, over all of them.
        permutes: ``prmt`` that pack its words, where the slots come in another order.
    """

    name: str
    count: int
    size: int
    wavefronts: int
    permutes: int = 0

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond the fewest that so many bytes take."""
        return self.wavefronts - self.count * max(1, self.size // 4)

    def __str__(self) -> str:
        return f"{self.count} {self.name}"


@dataclass(frozen=True)
class Exchange:
    """Through shared memory: store every element at its address, barrier, load.

    Attributes:
        staging: from a coordinate of the tile to its address, in elements.
        barrier: "warp" where no element leaves its warp, else "cta".
        accesses: stores and loads; none where a size is a symbol.
        stored: a layout over the same threads in which the source is stored, its registers packed
            by ``prmt``, without copies; None: as it is.
        loaded: likewise, in which the destination is loaded.
    """

    staging: Layout
    barrier: Literal["warp", "cta"]
    accesses: tuple[Moves, ...] = ()
    stored: TileLayout | None = None
    loaded: TileLayout | None = None

    def text(self, sources: int) -> str:
        """Describe the exchange; it works on slots, not on registers."""
        del sources
        return f"store to shared memory at {self.staging}, {self.barrier} barrier, load"


@dataclass(frozen=True)
class Price:
    """How many instructions of each sort a thread executes."""

    shuffles: int
    movmatrices: int
    selects: int
    permutes: int
    accesses: tuple[Moves, ...] = ()

    @property
    def cycles(self) -> float:
        """Cycles of a multiprocessor that one warp occupies, about.

        A shuffle, movmatrix or wavefront takes one, a select or permute half of one, an access half
        of one to be issued, a barrier two.

        Source: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions".
        """
        registers = self.shuffles + self.movmatrices + (self.selects + self.permutes) / 2
        through = sum(moves.wavefronts + moves.count / 2 for moves in self.accesses)
        return registers + through + (_BARRIER if self.accesses else 0)

    def __str__(self) -> str:
        """Return the counts that are not 0."""
        counts = [
            (self.shuffles, "shfl"),
            (self.movmatrices, "movmatrix"),
            (self.selects, "select"),
            (self.permutes, "prmt"),
            *((moves.count, moves.name) for moves in self.accesses),
        ]
        return ", ".join(f"{number} {name}" for number, name in counts if number)


Step = Shuffle | Permute | Movmatrix | Exchange


@dataclass(frozen=True)
class Loop:
    """A register digit of both sides: the recipe repeats for each of its values.

    ``src`` and ``dst`` are the strides in slots.
    """

    extent: Size
    src: Size
    dst: Size


@dataclass(frozen=True)
class Relabelling:
    """A permutation of dimension ``dim`` under which the data stays in its registers.

    Index k of the destination holds logical index ``permutation[k]``: a product is unchanged if its
    other operand is permuted alike. Slot s of the destination is slot ``slots[s]`` of the source,
    in every thread.
    """

    dim: int
    permutation: tuple[int, ...]
    slots: tuple[int, ...]

    def __str__(self) -> str:
        """Say what to permute."""
        return (
            f"registers only, if index k of dimension {self.dim} may hold logical index "
            f"{list(self.permutation)}[k]: permute the other operand alike"
        )


@dataclass(frozen=True)
class Conversion:
    """How data goes from one distributed layout to another.

    Attributes:
        kind: cheapest first: "registers" (each register comes from registers of its own thread, the
            same ones in every thread), "select" (of its own thread, but which ones depends on the
            thread), "movmatrix", "shuffle", "shared".
        src: the layout before.
        dst: the layout after.
        shape: logical extents.
        bits: the width of an element while it moves.
        threads: how many threads take part, whole warps.
        src_slots: elements per thread in the source.
        dst_slots: elements per thread in the destination.
        steps: the instructions that define new registers, in order.
        words: the registers of the destination.
        loops: digits over which the recipe repeats, in slots.
        why: for each cheaper kind, why it does not work.
        relabellings: permutations of one dimension that would need registers only.

    >>> from layoutalg import S, TileLayout, convert, laneid
    >>> A = TileLayout(S[(2, 8, 2, 4, 2) : (2, 4 @ laneid, 4, 1 @ laneid, 1)])
    >>> wrong = TileLayout(S[(2, 8, 2, 4, 2) : (4, 4 @ laneid, 2, 1 @ laneid, 1)])
    >>> convert(wrong, A, (16, 16), bits=16).registers
    (0, 2, 1, 3)
    """

    kind: Kind
    src: HasParts
    dst: HasParts
    shape: tuple[Size, ...]
    bits: int
    threads: int
    src_slots: Size
    dst_slots: Size
    steps: tuple[Step, ...] = ()
    words: tuple[Word, ...] = ()
    loops: tuple[Loop, ...] = ()
    why: tuple[str, ...] = ()
    relabellings: tuple[Relabelling, ...] = ()

    @property
    def pack(self) -> int:
        """Elements of a register."""
        return max(1, 32 // self.bits)

    @property
    def source_registers(self) -> int:
        """Registers of the source that one pass of the recipe reads."""
        return -(-int(self.src_slots) // self.pack)

    @property
    def registers(self) -> tuple[int, ...] | None:
        """The one source register of each register of the destination.

        It may pass through a movmatrix or a shuffle of ``steps``. None where a register is packed
        from several, depends on the thread, or goes through shared memory.
        """
        found = []
        for word in self.words:
            number = word.register
            while number is not None and number >= self.source_registers:
                step = self.steps[number - self.source_registers]
                number = None if isinstance(step, Exchange) else step.register
            if number is None:
                return None
            found.append(number)
        return tuple(found) if found else None

    @cached_property
    def _built(self) -> tuple[tuple[Instruction, ...], tuple[int, ...]]:
        return built(self.steps, self.words, self.source_registers, self.pack)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of one pass over the recipe, in order; none through shared memory.

        Registers of the source are numbered from 0; each instruction makes the next number.
        """
        return self._built[0]

    @property
    def results(self) -> tuple[int, ...]:
        """The register of each register of the destination; -1 where anything will do."""
        return self._built[1]

    def _count(self, verb: Verb) -> int:
        return sum(each.verb == verb for each in self.instructions)

    @property
    def shuffles(self) -> int:
        """``shfl`` instructions per thread; an element of 64 bits takes two."""
        return max(1, self.bits // 32) * self._count("shfl")

    @property
    def movmatrices(self) -> int:
        """``movmatrix`` instructions per warp."""
        return self._count("movmatrix")

    @property
    def selects(self) -> int:
        """Selects per thread that choose one of two registers by the thread's number."""
        return self._count("select")

    @property
    def permutes(self) -> int:
        """``prmt`` instructions per thread that pack registers."""
        exchanges = [step for step in self.steps if isinstance(step, Exchange)]
        packed = sum(moves.permutes for step in exchanges for moves in step.accesses)
        return self._count("prmt") + packed

    @property
    def accesses(self) -> tuple[Moves, ...]:
        """Stores to shared memory and loads from it; none where the data stays in the warp.

        Raises:
            Undecided: a size is symbolic.
        """
        exchanges = [step for step in self.steps if isinstance(step, Exchange)]
        if not all(step.accesses for step in exchanges):
            raise Undecided(
                f"accesses: how wide {self.src} is stored depends on a symbol: substitute with "
                ".subs, then convert"
            )
        return tuple(moves for step in exchanges for moves in step.accesses)

    @property
    def price(self) -> Price:
        """The instructions of a thread, and what they cost: what kinds are chosen by.

        Raises:
            Undecided: a size is symbolic.
        """
        counts = self.shuffles, self.movmatrices, self.selects, self.permutes
        return Price(*counts, self.accesses)

    @property
    def min_arch(self) -> str:
        """The oldest architecture that has all instructions; others store and load otherwise."""
        exchanges = [step for step in self.steps if isinstance(step, Exchange)]
        named = {moves.name.split(".")[0] for step in exchanges for moves in step.accesses}
        if "stmatrix" in named:
            return "sm_90"
        if "ldmatrix" in named or self.kind == "movmatrix":
            return "sm_75"
        return "sm_30" if self.kind == "shuffle" else "any"

    def subs(self, values: Mapping[Any, Any]) -> Conversion:
        """Return the conversion with symbols, or names of symbols, replaced by sizes."""
        return replace(
            self,
            src_slots=substitute(self.src_slots, values),
            dst_slots=substitute(self.dst_slots, values),
            src=_with_values(self.src, values),
            dst=_with_values(self.dst, values),
            steps=tuple(
                replace(step, staging=step.staging.subs(values))
                if isinstance(step, Exchange)
                else step
                for step in self.steps
            ),
            shape=tuple(substitute(extent, values) for extent in self.shape),
            loops=tuple(
                Loop(*(substitute(size, values) for size in (it.extent, it.src, it.dst)))
                for it in self.loops
            ),
        )

    def execute(self, slots: Values) -> Values:
        """Run the recipe on every thread's elements.

        Args:
            slots: an array (threads, slots of the source) of any dtype.

        Returns:
            The array (threads, slots of the destination); a slot without an element may hold
            anything.

        Raises:
            LayoutError: another shape. Undecided: a loop's extent is symbolic.
        """
        reach: list[Any] = [self.src_slots, self.dst_slots]
        for it in self.loops:
            reach[0] = reach[0] + (it.extent - 1) * it.src
            reach[1] = reach[1] + (it.extent - 1) * it.dst
        if not is_int(*reach):
            raise Undecided(f"execute: {reach[0]} slots must be a number; substitute with .subs")
        if slots.shape != (self.threads, reach[0]):
            raise LayoutError(
                f"execute: needs an array ({self.threads}, {reach[0]}): threads, slots of the "
                f"source; got {slots.shape}"
            )
        wide = np.zeros((self.threads, reach[0] + self.pack), dtype=slots.dtype)
        wide[:, : reach[0]] = slots
        out = np.zeros((self.threads, reach[1] + self.pack), dtype=slots.dtype)
        for digits in itertools.product(*(range(int(it.extent)) for it in self.loops)):
            start = sum(d * int(it.src) for d, it in zip(digits, self.loops, strict=True))
            end = sum(d * int(it.dst) for d, it in zip(digits, self.loops, strict=True))
            self._run(wide[:, start:], out[:, end:])
        return out[:, : reach[1]]

    def _run(self, slots: Values, out: Values) -> None:
        """Run the recipe once, on one tile."""
        if self.kind == "shared":
            self._exchange(slots, out)
            return
        pack, count = self.pack, self.source_registers
        made = np.zeros((self.threads, count + len(self.steps), pack), dtype=slots.dtype)
        made[:, :count] = slots[:, : pack * count].reshape(self.threads, count, pack)
        for number, step in enumerate(self.steps, count):
            assert not isinstance(step, Exchange)
            made[:, number] = step.result(made)
        for number, word in enumerate(self.words):
            value = word.gather(made)
            for e, column in enumerate(word.registers):
                known = np.broadcast_to(np.array(column) >= 0, (self.threads,))
                slot = number * pack + e
                out[known, slot] = value[known, e]

    def _exchange(self, slots: Values, out: Values) -> None:
        """Store to a flat memory and load from it, at the staging addresses."""
        (step,) = self.steps
        assert isinstance(step, Exchange)
        address = step.staging.table(self.shape)["m"].reshape(-1)
        stored, loaded = (
            elements_held(side, self.shape, "execute", name)
            for side, name in ((self.src, "src"), (self.dst, "dst"))
        )
        memory = np.zeros(address.max() + 1, dtype=slots.dtype)
        thread, slot = np.nonzero(stored >= 0)
        memory[address[stored[thread, slot]]] = slots[thread, slot]
        thread, slot = np.nonzero(loaded >= 0)
        out[thread, slot] = memory[address[loaded[thread, slot]]]

    def cuda_source(self, arch: str = "sm_90") -> str:
        """Return a kernel of CUDA C++ that loads, converts and stores: see :meth:`program`."""
        text: str = self.program(arch).cuda_source()
        return text

    def ptx(self, arch: str = "sm_90") -> str:
        """Return the kernel as PTX for a target; no GPU is needed, but numba-cuda is.

        Raises:
            LayoutError: as :meth:`program`; or numba-cuda is not installed.
        """
        text: str = self.program(arch).ptx()
        return text

    def program(self, arch: str = "sm_90") -> Any:
        """Return the conversion as a kernel, to read and to run.

        ``after`` gets what ``before`` has: each thread loads its elements, in the order of its
        slots, converts and stores. Threads that a layout does not name hold copies.

        Raises:
            LayoutError: sizes are symbols, or the target lacks an instruction.

        >>> from layoutalg import convert, parse
        >>> found = convert(parse("S[(32,2):(1@laneid,1)]"), parse("S[(2,32):(1,1@laneid)]"), (64,))
        >>> found.program()
        KernelProgram(convert: 32 threads, 5 operations)
        """
        from lowering.programs.conversions import program_of

        return program_of(self, arch)

    def _repr_markdown_(self) -> str:
        """Return the text as a block, for Jupyter."""
        return f"```text\n{self}\n```"

    def __str__(self) -> str:
        """Return the kind, the recipe, its cost and the alternatives."""
        what = f"{self.src} to {self.dst}"
        lines = [f"{self.kind}: {what} over {tuple(self.shape)}, {self.bits}-bit elements"]
        lines += [
            f"  for {it.extent} tiles: slots {it.src} apart, then {it.dst}" for it in self.loops
        ]
        count = self.source_registers
        lines += [
            f"  t{k} = {step.text(count)}" if self.words else f"  {step.text(count)}"
            for k, step in enumerate(self.steps)
        ]
        lines += [f"  d{k} = {word.text(count)}" for k, word in enumerate(self.words)]
        known = [step.accesses for step in self.steps if isinstance(step, Exchange)]
        price = str(self.price) if all(known) else ""
        lines += [f"  per thread: {price}"] if price else []
        lines += [f"  {reason}" for reason in self.why]
        lines += [f"  or: {other}" for other in self.relabellings]
        return "\n".join(lines)


def built(
    steps: Sequence[Step], words: Sequence[Word], sources: int, pack: int
) -> tuple[tuple[Instruction, ...], tuple[int, ...]]:
    """Return the instructions of a recipe, and the register of each word; -1: anything will do.

    Args:
        steps: in order; an exchange is none of instructions.
        words: of registers from ``sources`` on, those of the steps.
        sources: registers of the source.
        pack: elements of a register.
    """
    build = Builder(sources, pack)
    number = list(range(sources))  # of a step's register among those of instructions

    def word(each: Word) -> int:
        registers = tuple(
            tuple(number[r] if r >= 0 else -1 for r in column) for column in each.registers
        )
        return build.word(registers, each.parts)

    for step in steps:
        if isinstance(step, Shuffle):
            whole = Word((step.offer,) * pack, tuple((e,) for e in range(pack)))
            number.append(build.add("shfl", (word(whole),), (step.read,)))
        elif isinstance(step, Movmatrix):
            number.append(build.add("movmatrix", (word(step.source),)))
        elif isinstance(step, Permute):
            number.append(word(step.source))
    results = tuple(word(each) for each in words)
    return tuple(build.made), results


def _with_values(side: HasParts, values: Mapping[Any, Any]) -> HasParts:
    """Substitute in a layout, which stays one, or in parts."""
    found: HasParts = side.subs(values) if hasattr(side, "subs") else substitute_parts(side, values)
    return found


def _name(register: int, sources: int) -> str:
    """Name a register: r3 of the source, t0 from a step."""
    return f"r{register}" if register < sources else f"t{register - sources}"


def _chosen_text(column: PerThread, sources: int) -> str:
    """Print a register; where threads differ, with the formula of its number."""
    used = [number for number in dict.fromkeys(column) if number >= 0]
    if len(used) <= 1:
        return _name(used[0], sources) if used else "nothing"
    found = formula([number - sources if min(used) >= sources else number for number in column])
    if found is None or min(used) < sources <= max(used):
        return " or ".join(_name(number, sources) for number in used)
    return f"{'r' if max(used) < sources else 't'}[{found}]"


def _run_text(column: PerThread) -> str:
    """Print a per-thread column: one value, its formula, or the first lanes."""
    found = str(column[0]) if len(column) == 1 else formula(column)
    return f"[{', '.join(map(str, column[:8]))}, …]" if found is None else str(found)
