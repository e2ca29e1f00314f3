"""``Writer``: the lines of a kernel's text, in Python for numba.cuda or in CUDA C++.

A :class:`Dialect` says how a language writes a call, an assignment, a branch and a loop. What each
operation is in lines, the rows of :data:`emit` decide for both languages, so the two texts cannot
disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Protocol

from lowering.codegen.register_words import space, words
from lowering.ir.index import Guard, Index, Style
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import Let, Loop, Op, Registers, SharedMatrix, Wgmma, walk
from lowering.ir.readers import Reader
from lowering.ir.tmem_ops import Issued
from lowering.isa import ptx
from lowering.isa.mma import MmaInst
from lowering.isa.ptx import Asm

MmaCall = tuple[MmaInst, tuple[int, ...]]  # with the selectors of its scales

BYTE = 8


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

    def word(self, value: str) -> str:
        """Write an integer expression as a 32-bit word."""

    def address(self, space: str, base: str, offset: str) -> str:
        """Add a byte offset to a base address."""

    def begin_if(self, condition: str) -> str:
        """Open a branch."""

    def begin_else(self) -> str:
        """Turn to the other branch."""

    def begin_loop(self, variable: str, extent: str) -> str:
        """Open a loop."""

    def let(self, variable: str, value: str) -> str:
        """Name an integer."""

    def choice(self, conditions: list[str], one: str, other: str) -> str:
        """Write one value where all conditions hold, else the other."""

    def end(self) -> str | None:
        """Close a branch or a loop; None where the indentation does."""

    def sync(self, scope: str) -> str:
        """Write a barrier."""

    def all_of(self, conditions: list[str]) -> str:
        """Join conditions."""


@dataclass
class Writer:
    """A kernel being written as text in one dialect.

    ``functions``, ``instructions``: the asm statements, and the mma, that it calls.
    ``specialized``: the kernel is warp-specialized; ``producer``: the lines are the producer's.
    ``origins``: the operation that each line was written for, by its number from 0 on; lines that
    come before all operations have none.
    """

    body: KernelIR
    dialect: Dialect
    lines: list[str] = field(default_factory=list)
    functions: dict[str, Asm] = field(default_factory=dict)
    instructions: dict[str, MmaCall] = field(default_factory=dict)
    indent: int = 1
    temporaries: int = 0
    specialized: bool = False
    producer: bool = False
    origins: dict[int, Op] = field(default_factory=dict)

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("  " * self.indent + text)

    def call(self, asm: Asm, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> None:
        """Add a call, and remember the function that it needs."""
        self.functions[asm.name] = asm
        self.line(self.dialect.call(asm, outputs, inputs))

    def token(self, buffer: str) -> str:
        """Return the PTX type of a buffer's elements."""
        return self.body.buffer(buffer).dtype.token

    def letters(self, elements: Registers) -> str:
        """Return the constraint letter of each variable of some registers."""
        return ptx.letter(self.token(elements.buffer)) * len(words(self.body, elements))

    def at(self, name: str, index: Index) -> str:
        """Return the byte address of an element in memory."""
        bits = self.body.buffer(name).dtype.bits
        offset = index * bits // BYTE
        return self.dialect.address(space(self.body, name), f"{name}_base", self.text(offset))

    def text(self, value: Index | Guard) -> str:
        """Return an index or a condition as text."""
        return value.render(self.dialect.style, self.wide)

    @cached_property
    def wide(self) -> frozenset[str]:
        """The variables that have 64 bits: all but threads and those of loops of known extent."""
        named = {
            op.var
            for op in walk(self.body.ops)
            if isinstance(op, Let) or (isinstance(op, Loop) and isinstance(op.extent, Index))
        }
        return frozenset({each.name for each in self.body.scalars} | named)

    def temporary(self) -> str:
        """Return a new variable."""
        self.temporaries += 1
        return f"t{self.temporaries - 1}"

    def close(self) -> None:
        """Close a branch or a loop."""
        self._fill()
        self.indent -= 1
        end = self.dialect.end()
        if end is not None:
            self.line(end)

    def _fill(self) -> None:
        """Give Python a statement where a block has none."""
        if self.lines[-1].endswith(":"):
            self.line("pass")

    def guarded(self, guards: tuple[Guard, ...]) -> bool:
        """Open the branch that guards ask for; say whether there is one."""
        if not guards:
            return False
        conditions = [self.text(guard) for guard in guards]
        self.line(self.dialect.begin_if(self.dialect.all_of(conditions)))
        self.indent += 1
        return True

    def otherwise(self) -> None:
        """Turn to the other side of the branch."""
        self._fill()
        self.indent -= 1
        self.line(self.dialect.begin_else())
        self.indent += 1

    def alone(self, number: str, write: Callable[[], None]) -> None:
        """Write what one thread does: where a number is zero."""
        self.line(self.dialect.begin_if(f"({number}) == 0"))
        self.indent += 1
        write()
        self.close()

    def run(self, ops: tuple[Op, ...]) -> None:
        """Write operations in order; neighbouring products of one kind as one statement."""
        for together, same in groupby(ops, key=_together):
            first, *rest = same
            if together:
                self._emit(first, *rest)
            else:
                for op in (first, *rest):
                    self._emit(op)

    def _emit(self, op: Op, *alike: Op) -> None:
        start = len(self.lines)
        emit(self, op, *alike)
        for number in range(start, len(self.lines)):
            self.origins.setdefault(number, op)


emit = Reader[Writer]("text")


def _together(op: Op) -> tuple[object, ...]:
    """Return what neighbours must share to be written as one statement; () for what stands alone.

    With A in registers, which D must not share, a product that overwrites D stands alone.
    """
    if isinstance(op, Issued):
        return (op.issuer,)
    if not isinstance(op, Wgmma):
        return ()
    a = op.a.descriptor if isinstance(op.a, SharedMatrix) else None
    return op.instruction, op.d, a, op.b.descriptor, a is not None or op.accumulate
