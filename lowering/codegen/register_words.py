"""What both kernel texts share: registers as variables, vector accesses, and words.

A register buffer of a type narrower than 32 bits is held as 32-bit words, low element in the low
bits; of a wider type, as one variable per element. The variable of word 3 of buffer A is ``A_3``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from layoutalg import LayoutError
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import Load, Registers, Store
from lowering.ir.tiles import Buffer, cells

WORD = 0xFFFFFFFF  # the bits of a word


def variables(buffer: Buffer) -> tuple[str, ...]:
    """Return the variables that hold a register buffer."""
    return tuple(f"{buffer.name}_{i}" for i in range(-(-cells(buffer) // buffer.dtype.pack)))


def words(body: KernelIR, elements: Registers) -> tuple[str, ...]:
    """Return the variables of elements that fill whole words in order.

    Raises:
        LayoutError: they do not.

    >>> from layoutalg import parse
    >>> A = Buffer("A", (32, 4), "float16", layout=parse("S[(32,4):(1@laneid,1)]"))
    >>> words(KernelIR((), (), (A,), (), 32), Registers("A", (2, 3, 0, 1)))
    ('A_1', 'A_0')
    """
    per = body.buffer(elements.buffer).dtype.pack
    found = []
    for at in range(0, len(elements.numbers), per):
        run = elements.numbers[at : at + per]
        if run[0] % per or run != tuple(range(run[0], run[0] + per)):
            raise LayoutError(f"emit: {elements} does not fill whole 32-bit words in order")
        found.append(f"{elements.buffer}_{run[0] // per}")
    return tuple(found)


@dataclass(frozen=True)
class BitField:
    """One element inside a word: variable, bit position, width."""

    variable: str
    shift: int
    bits: int

    @property
    def mask(self) -> int:
        """The bits of the element, in place."""
        return ((1 << self.bits) - 1) << self.shift


def bit_field(body: KernelIR, elements: Registers) -> BitField:
    """Return the bits of neighbours that share one word, narrower together than it.

    >>> from layoutalg import parse
    >>> A = Buffer("A", (32, 4), "int8", layout=parse("S[(32,4):(1@laneid,1)]"))
    >>> bit_field(KernelIR((), (), (A,), (), 32), Registers("A", (2, 3)))
    BitField(variable='A_0', shift=16, bits=16)
    """
    dtype = body.buffer(elements.buffer).dtype
    first, count = elements.numbers[0], len(elements.numbers)
    assert elements.numbers == tuple(range(first, first + count)), elements
    word, place = divmod(first, dtype.pack)
    return BitField(f"{elements.buffer}_{word}", place * dtype.bits, count * dtype.bits)


def bit_fields(body: KernelIR, elements: Registers) -> Iterator[BitField]:
    """Yield the bits of each element in its word."""
    for number in elements.numbers:
        yield bit_field(body, Registers(elements.buffer, (number,)))


def access_bits(body: KernelIR, op: Load | Store) -> int:
    """Return the width of a vector access."""
    registers = op.into if isinstance(op, Load) else op.source
    return len(registers.numbers) * body.buffer(registers.buffer).dtype.bits


def space(body: KernelIR, name: str) -> str:
    """Return "global" or "shared" for a buffer in memory."""
    return body.buffer(name).scope
