"""A body as kernel text, in one traversal for both languages: Python for numba.cuda, CUDA C++.

A :class:`Dialect` says how a language writes a call, an assignment, a branch and a loop; what is
computed is decided here alone, so the two texts cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from layoutalg import LayoutError
from lowering import ptx, wgmma
from lowering.address import Index, Style
from lowering.body import Body
from lowering.emit import Part, access_bits, pack, part, parts, space, variables, words
from lowering.instructions import MmaInst
from lowering.ops import (
    Commit,
    Elements,
    Guard,
    Load,
    LoadMatrix,
    Loop,
    Mma,
    Move,
    MoveMatrix,
    Op,
    ProxyFence,
    SharedMatrix,
    Store,
    StoreMatrix,
    Sync,
    Transfer,
    Wait,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    Zero,
)
from lowering.ptx import Asm

MmaCall = tuple[MmaInst, tuple[int, ...]]  # with the selectors of its scales

BYTE = 8
WORD = 0xFFFFFFFF


class Dialect(Protocol):
    """How one language writes the statements of a kernel."""

    style: Style

    def call(self, asm: Asm, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> str:
        """Call the function of an asm statement; one in place gets its outputs as inputs too."""

    def mma(self, call: MmaCall, d: tuple[str, ...], inputs: tuple[str, ...]) -> str:
        """Call an mma in place on D, with A, B and what else it takes."""

    def assign(self, variable: str, value: str) -> str:
        """Assign."""

    def number(self, value: int, token: str) -> str:
        """Write a constant of a register's type."""

    def address(self, space: str, base: str, offset: str) -> str:
        """Add a byte offset to a base address."""

    def begin_if(self, condition: str) -> str:
        """Open a branch."""

    def begin_else(self) -> str:
        """Turn to the other branch."""

    def begin_loop(self, variable: str, extent: int) -> str:
        """Open a loop."""

    def end(self) -> str | None:
        """Close a branch or a loop; None where the indentation does."""

    def sync(self, scope: str) -> str:
        """Write a barrier."""

    def all_of(self, conditions: list[str]) -> str:
        """Join conditions."""


@dataclass
class Writer:
    """Writes the operations of one body in one dialect."""

    body: Body
    dialect: Dialect
    lines: list[str] = field(default_factory=list)
    functions: dict[str, Asm] = field(default_factory=dict)
    instructions: dict[str, MmaCall] = field(default_factory=dict)
    indent: int = 1
    temporaries: int = 0

    def emit(self, text: str) -> None:
        """Add a line."""
        self.lines.append("  " * self.indent + text)

    def call(self, asm: Asm, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> None:
        """Add a call, and remember the function that it needs."""
        self.functions[asm.name] = asm
        self.emit(self.dialect.call(asm, outputs, inputs))

    def token(self, buffer: str) -> str:
        """Return the PTX type of a buffer's elements."""
        return self.body.buffer(buffer).dtype.token

    def at(self, name: str, index: Index) -> str:
        """Return the byte address of an element in memory."""
        bits = self.body.buffer(name).dtype.bits
        offset = index * bits // BYTE
        return self.dialect.address(
            space(self.body, name), f"{name}_base", offset.render(self.dialect.style)
        )

    def temporary(self) -> str:
        """Return a new variable."""
        self.temporaries += 1
        return f"t{self.temporaries - 1}"

    def run(self, ops: tuple[Op, ...]) -> None:
        """Write operations in order."""
        for op in ops:
            self.step(op)

    def guarded(self, guards: tuple[Guard, ...]) -> bool:
        """Open the branch that guards ask for; say whether there is one."""
        if not guards:
            return False
        conditions = [guard.render(self.dialect.style) for guard in guards]
        self.emit(self.dialect.begin_if(self.dialect.all_of(conditions)))
        self.indent += 1
        return True

    def close(self) -> None:
        """Close a branch or a loop."""
        self.indent -= 1
        end = self.dialect.end()
        if end is not None:
            self.emit(end)

    def step(self, op: Op) -> None:
        """Write one operation."""
        if isinstance(op, Zero):
            self.zero(op.into)
        elif isinstance(op, Move):
            self.move(op)
        elif isinstance(op, Mma):
            inputs = [name for e in (op.a, op.b) for name in words(self.body, e)]
            extra = [part(self.body, each) for each in op.extra]
            selectors = tuple(each.shift // BYTE for each in extra)
            inputs += [each.variable for each in extra]
            call = op.instruction, selectors
            self.instructions.setdefault(ptx.mma_name(*call), call)
            self.emit(self.dialect.mma(call, words(self.body, op.d), tuple(inputs)))
        elif isinstance(op, Load):
            if self.guarded(op.guards):
                self.load(op)
                self.indent -= 1
                self.emit(self.dialect.begin_else())
                self.indent += 1
                self.zero(op.into)
                self.close()
            else:
                self.load(op)
        elif isinstance(op, Store):
            opened = self.guarded(op.guards)
            self.store(op)
            if opened:
                self.close()
        elif isinstance(op, LoadMatrix):
            asm = ptx.ldmatrix(op.count, op.trans)
            self.call(asm, words(self.body, op.into), (self.at(op.memory, op.address),))
        elif isinstance(op, StoreMatrix):
            asm = ptx.stmatrix(op.count, op.trans)
            self.call(asm, (), (self.at(op.memory, op.address), *words(self.body, op.source)))
        elif isinstance(op, MoveMatrix):
            pairs = zip(words(self.body, op.into), words(self.body, op.source), strict=True)
            for into, source in pairs:
                self.call(ptx.movmatrix(), (into,), (source,))
        elif isinstance(op, Transfer):
            self.transfer(op)
        elif isinstance(op, Commit):
            self.call(ptx.commit(), (), ())
        elif isinstance(op, Wait):
            self.call(ptx.wait(op.pending), (), ())
        elif isinstance(op, Sync):
            self.emit(self.dialect.sync(op.scope))
        elif isinstance(op, Loop):
            self.loop(op)
        else:
            self.warpgroup(op)

    def loop(self, op: Loop) -> None:
        """Write a loop that stays."""
        self.emit(self.dialect.begin_loop(op.var, op.extent))
        self.indent += 1
        self.run(op.body)
        self.close()

    def warpgroup(self, op: Wgmma | WgmmaFence | WgmmaCommit | WgmmaWait | ProxyFence) -> None:
        """Write an operation of the asynchronous tensor core."""
        if isinstance(op, Wgmma):
            source = (*self.operand(op.a), *self.operand(op.b))
            a = op.a.descriptor if isinstance(op.a, SharedMatrix) else None
            asm = wgmma.multiply(op.instruction, a, op.b.descriptor, op.accumulate)
            self.call(asm, words(self.body, op.d), source)
        elif isinstance(op, WgmmaWait):
            names = [name for each in op.complete for name in words(self.body, each)]
            letters = [
                ptx.letter(self.token(each.buffer)) * len(words(self.body, each))
                for each in op.complete
            ]
            self.call(wgmma.wait(op.pending, "".join(letters)), tuple(names), ())
        elif isinstance(op, WgmmaFence):
            self.call(wgmma.fence(), (), ())
        elif isinstance(op, WgmmaCommit):
            self.call(wgmma.commit(), (), ())
        else:
            self.call(wgmma.proxy_fence(), (), ())

    def operand(self, operand: Elements | SharedMatrix) -> tuple[str, ...]:
        """Return the words of an operand, or its descriptor, which is made first."""
        if isinstance(operand, Elements):
            return words(self.body, operand)
        made = self.temporary()
        address = self.at(operand.memory, operand.address)
        self.call(wgmma.matrix_descriptor(operand.descriptor), (made,), (address,))
        return (made,)

    def zero(self, into: Elements) -> None:
        """Set elements to zero: whole words at once, else bit by bit."""
        token = self.token(into.buffer)
        try:
            names = words(self.body, into)
        except LayoutError:
            for each in parts(self.body, into):
                self.insert(each, self.dialect.number(0, "u32"))
            return
        for name in names:
            self.emit(self.dialect.assign(name, self.dialect.number(0, token)))

    def insert(self, place: Part, value: str) -> None:
        """Put a narrow value, in the low bits of a word, into its place."""
        keep = self.dialect.number(WORD & ~place.mask, "u32")
        if place.shift:
            value = f"({value} << {self.dialect.number(place.shift, 'u32')})"
        self.emit(self.dialect.assign(place.variable, f"({place.variable} & {keep}) | {value}"))

    def extract(self, place: Part) -> str:
        """Return a narrow value in the low bits of a word; higher bits are not cleared."""
        if not place.shift:
            return place.variable
        return f"({place.variable} >> {self.dialect.number(place.shift, 'u32')})"

    def move(self, op: Move) -> None:
        """Copy registers; f32 to f16 or bf16 by pairs."""
        if op.into == op.source:
            return
        into, source = self.token(op.into.buffer), self.token(op.source.buffer)
        if into == source:
            if pack(self.body.buffer(op.into.buffer).dtype) == 1:
                names = zip(words(self.body, op.into), words(self.body, op.source), strict=True)
                for name, value in names:
                    self.emit(self.dialect.assign(name, value))
                return
            pairs = zip(parts(self.body, op.into), parts(self.body, op.source), strict=True)
            for place, from_place in pairs:
                mask = self.dialect.number(from_place.mask >> from_place.shift, "u32")
                self.insert(place, f"({self.extract(from_place)} & {mask})")
            return
        asm = ptx.convert_pair(into, source)
        values = list(words(self.body, op.source))
        for at, name in enumerate(words(self.body, op.into)):
            self.call(asm, (name,), (values[2 * at + 1], values[2 * at]))

    def load(self, op: Load) -> None:
        """Load one vector."""
        bits = access_bits(self.body, op)
        asm = ptx.load(space(self.body, op.memory), self.token(op.into.buffer), bits)
        address = (self.at(op.memory, op.address),)
        if bits >= 32:
            self.call(asm, words(self.body, op.into), address)
            return
        value = self.temporary()
        self.call(asm, (value,), address)
        self.insert(part(self.body, op.into), value)

    def store(self, op: Store) -> None:
        """Store one vector."""
        bits = access_bits(self.body, op)
        asm = ptx.store(space(self.body, op.memory), self.token(op.source.buffer), bits)
        if bits >= 32:
            values = words(self.body, op.source)
        else:
            values = (self.extract(part(self.body, op.source)),)
        self.call(asm, (), (self.at(op.memory, op.address), *values))

    def transfer(self, op: Transfer) -> None:
        """Copy from memory to memory: ``cp.async``, or a load and a store."""
        opened = self.guarded(op.guards)
        bits = op.count * self.body.buffer(op.into).dtype.bits
        target, source = self.at(op.into, op.into_address), self.at(op.memory, op.address)
        if op.asynchronous:
            self.call(ptx.cp_async(bits // 8), (), (target, source))
        else:
            load = ptx.load(space(self.body, op.memory), self.token(op.memory), bits)
            store = ptx.store(space(self.body, op.into), self.token(op.into), bits)
            values = tuple(self.temporary() for _ in load.outputs)
            self.call(load, values, (source,))
            self.call(store, (), (target, *values))
        if opened:
            self.close()


def register_variables(body: Body) -> tuple[tuple[str, str], ...]:
    """Return (variable, constraint letter) of every register, in order of declaration."""
    return tuple(
        (name, ptx.letter(buffer.dtype.token))
        for buffer in body.registers
        for name in variables(buffer)
    )
