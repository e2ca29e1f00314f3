"""The operations on tensor memory as kernel text, in either language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from layoutalg.algebra.axis import WARP
from lowering.codegen.register_words import words
from lowering.ir.index import Index, Style
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import Registers, SharedMatrix
from lowering.ir.readers import unknown
from lowering.ir.tmem_ops import (
    Issued,
    TensorAllocate,
    TensorCommit,
    TensorCopy,
    TensorFence,
    TensorFree,
    TensorLoad,
    TensorMatrix,
    TensorOp,
    TensorStore,
    TensorWait,
)
from lowering.isa import ptx, tcgen05
from lowering.isa.ptx import Asm
from lowering.isa.tcgen05 import COLUMNS

BASE = "tensor_base"  # the variable with the address of the columns that were allocated
CELL = "tensor_cell"  # where in shared memory that address is kept
LANE = 1 << 16  # what an address grows by from one lane to the next

assert COLUMNS <= LANE


class Language(Protocol):
    """How a language writes what the operations need."""

    style: Style

    def address(self, space: str, base: str, offset: str) -> str:
        """Add an offset to a base address."""

    def word(self, value: str) -> str:
        """Write an integer expression as a 32-bit word."""

    def sync(self, scope: str) -> str:
        """Write a barrier."""


class Lines(Protocol):
    """The writer of a kernel, as far as the operations need it."""

    body: KernelIR

    @property
    def dialect(self) -> Language:
        """The language."""

    def emit(self, text: str) -> None:
        """Add a line."""

    def call(self, asm: Asm, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> None:
        """Add a call."""

    def alone(self, number: str, write: Callable[[], None]) -> None:
        """Write what happens where a number is zero."""

    def barrier(self, name: str, slot: int | Index) -> str:
        """Return the address of an mbarrier."""

    def low_word(self, operand: SharedMatrix) -> str:
        """Return the low word of an operand's descriptor."""

    def text(self, value: Index) -> str:
        """Return an index as text."""

    def temporary(self) -> str:
        """Return a new variable."""


def issue(lines: Lines, ops: Sequence[Issued]) -> None:
    """Write what one thread starts, in one branch: thread 0, or the one that warp 0 elects."""

    def write() -> None:
        for op in ops:
            _start(lines, op)

    first = _first_of_pair(lines, ops[0])
    if ops[0].issuer == "thread":
        lines.alone(f"thread{first}", write)
        return

    def elect() -> None:
        chosen = lines.temporary()
        lines.call(tcgen05.elected(), (chosen,), ())
        lines.alone(f"{chosen} - 1", write)

    _in_first_warp(lines, elect, first)


def _address(lines: Lines, place: TensorMatrix) -> str:
    """Return an address in tensor memory."""
    first = lines.body.tensor_offsets[place.memory]
    offset = place.lane * LANE + place.column + first
    return lines.dialect.address("shared", BASE, lines.text(offset))


def _start(lines: Lines, op: Issued) -> None:
    """Write a product, a copy or a commit, by the thread that is here."""
    if isinstance(op, TensorCommit):
        lines.call(tcgen05.commit(op.cta_group), (), (lines.barrier(op.barrier, op.slot),))
        return
    if isinstance(op, TensorCopy):
        asm = tcgen05.copy(op.shape, op.source.descriptor, op.cta_group)
        lines.call(asm, (), (_address(lines, op.into), lines.low_word(op.source)))
        return
    inputs = [_address(lines, op.d)]
    for operand in (op.a, op.b):
        if isinstance(operand, SharedMatrix):
            inputs.append(lines.low_word(operand))
        else:
            inputs.append(_address(lines, operand))
    inputs += [_address(lines, place) for place in op.scales]
    if isinstance(op.accumulate, Index):
        accumulate = "maybe"
        inputs.append(lines.dialect.word(lines.text(op.accumulate)))
    else:
        accumulate = "add" if op.accumulate else "overwrite"
    a = op.a.descriptor if isinstance(op.a, SharedMatrix) else None
    lines.call(tcgen05.multiply(op.what, a, op.b.descriptor, accumulate), (), tuple(inputs))


def write(lines: Lines, op: TensorOp) -> None:
    """Write an operation that whole warps take part in."""
    body = lines.body
    if isinstance(op, TensorLoad):
        into = words(body, op.into)
        asm = tcgen05.load(op.shape, op.count, _letters(body, op.into))
        lines.call(asm, into, (_address(lines, op.source),))
    elif isinstance(op, TensorStore):
        source = words(body, op.source)
        asm = tcgen05.store(op.shape, op.count, _letters(body, op.source))
        lines.call(asm, (), (_address(lines, op.into), *source))
    elif isinstance(op, TensorWait):
        names: list[str] = []
        letters = ""
        for each in op.complete:
            names.extend(words(body, each))
            letters += _letters(body, each)
        lines.call(tcgen05.wait(op.verb, letters), tuple(names), ())
    elif isinstance(op, TensorFence):
        lines.call(tcgen05.fence(op.side), (), ())
    elif isinstance(op, TensorAllocate):
        _allocate(lines, op)
    elif isinstance(op, TensorFree):
        _meet(lines)
        asm = tcgen05.free(op.columns, op.cta_group)
        _in_first_warp(lines, lambda: lines.call(asm, (), (BASE,)))
    else:
        raise unknown(op, "text")


def _letters(body: KernelIR, held: Registers) -> str:
    """Return the constraint letter of each register."""
    return ptx.letter(body.buffer(held.buffer).dtype.token) * len(words(body, held))


def _in_first_warp(lines: Lines, what: Callable[[], None], more: str = "") -> None:
    """Write what warp 0 does, where another number is zero too."""
    divided = "//" if lines.dialect.style == "python" else "/"
    lines.alone(f"thread {divided} {WARP}{more}", what)


def _first_of_pair(lines: Lines, op: Issued) -> str:
    """Return what to add to a number that is zero in one CTA of a pair alone: its rank."""
    rank = Index.free("bx") % lines.body.cluster
    return f" + {rank.operand(lines.dialect.style)}" if op.cta_group == 2 else ""


def _meet(lines: Lines) -> None:
    """Write a barrier of the CTA, with its fences."""
    lines.call(tcgen05.fence("before"), (), ())
    lines.emit(lines.dialect.sync("cta"))
    lines.call(tcgen05.fence("after"), (), ())


def _allocate(lines: Lines, op: TensorAllocate) -> None:
    """Write the allocation, and how all threads learn its address."""
    cell = lines.dialect.address("shared", f"{CELL}_base", "0")
    asm = tcgen05.allocate(op.columns, op.cta_group)
    _in_first_warp(lines, lambda: lines.call(asm, (), (cell,)))
    _meet(lines)
    lines.call(ptx.load("shared", "u32", 32), (BASE,), (cell,))
