"""Elementwise expressions as kernel text: a unit of elements at a time, in words.

A unit is the elements that share a word of the narrowest type in the expression. Within it, a
value of a type narrower than 32 bits is words, low element first; else a variable per element.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from layoutalg import LayoutError
from lowering.codegen.register_words import words
from lowering.codegen.writer import BYTE, Writer, emit
from lowering.ir.expressions import (
    Apply,
    Coordinate,
    Node,
    Number,
    Operand,
    Variable,
    leaves,
    tokens,
)
from lowering.ir.ops import Compute, Registers
from lowering.isa import dtypes, ptx
from lowering.isa.functions import bits_of, pack, registers_of


@emit.of(Compute)
def _compute(writer: Writer, op: Compute) -> None:
    unit = max(map(pack, (*tokens(op.value), writer.token(op.into.buffer))))
    packed = min((op.into, *op.operands), key=lambda each: bits_of(writer.token(each.buffer)))
    shared: dict[tuple[Node, int], tuple[str, ...]] = {}
    for run in _units(packed.numbers, unit):
        _Unit(writer, op, run, shared).write()


def _units(numbers: tuple[int, ...], unit: int) -> Iterator[range]:
    """Yield runs of elements, cut where the numbers of the registers begin a word."""
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] % unit == 0 or at - start == unit:
            yield range(start, at)
            start = at


@dataclass
class _Unit:
    """The elements of a run: the variables of each node's value. ``shared``: those of constants."""

    writer: Writer
    op: Compute
    run: range
    shared: dict[tuple[Node, int], tuple[str, ...]]
    known: dict[Node, tuple[str, ...]] = field(default_factory=dict)

    def write(self) -> None:
        """Write the lines that set the elements of the run."""
        into = self.part(self.op.into)
        try:
            names = words(self.writer.body, into)
        except LayoutError:
            self.insert(into, self.value(self.op.value))
            return
        if isinstance(self.op.value, Apply):
            self.applied(self.op.value, names)
            return
        for name, value in zip(names, self.value(self.op.value), strict=True):
            self.writer.line(self.writer.dialect.assign(name, value))

    def part(self, registers: Registers) -> Registers:
        """Return the registers of the run."""
        return Registers(registers.buffer, tuple(registers.numbers[at] for at in self.run))

    def value(self, node: Node) -> tuple[str, ...]:
        """Return the variables of a node; what is one value for all elements is written once."""
        if any(isinstance(each, (Operand, Coordinate)) for each in leaves(node)):
            return self.known.get(node) or self.known.setdefault(node, self.computed(node))
        key = node, len(self.run)
        return self.shared.get(key) or self.shared.setdefault(key, self.computed(node))

    def computed(self, node: Node) -> tuple[str, ...]:
        """Write what a node needs, and return its variables."""
        writer = self.writer
        if isinstance(node, Apply):
            return self.applied(node)
        if isinstance(node, Number):
            name = writer.temporary()
            writer.call(ptx.constant(_pattern(node), node.token), (name,), ())
            return (name,) * registers_of(node.token, len(self.run))
        if isinstance(node, Variable):
            text = (
                node.value
                if isinstance(node.value, str)
                else writer.dialect.word(writer.text(node.value))
            )
            return (text,) * registers_of(node.token, len(self.run))
        if isinstance(node, Coordinate):
            each = self.op.coordinates[node.number]
            return tuple(writer.dialect.word(writer.text(each[at])) for at in self.run)
        assert isinstance(node, Operand)
        return self.gathered(self.part(self.op.operands[node.number]))

    def applied(self, node: Apply, into: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Write a function of its arguments, into variables or new ones, and return them."""
        function, found = node.function, list[str]()
        values = [self.value(each) for each in node.arguments]
        step = {
            token: registers_of(token, function.count)
            for token in (function.result, *function.operands)
        }
        for at in range(-(-len(self.run) // function.count)):
            first = at * step[function.result]
            names = into[first : first + step[function.result]]
            names += tuple(
                self.writer.temporary() for _ in range(step[function.result] - len(names))
            )
            inputs = [
                value[min(at * step[token] + i, len(value) - 1)]
                for token, value in zip(function.operands, values, strict=True)
                for i in range(step[token])
            ]
            self.writer.call(function.asm, names, tuple(inputs))
            found.extend(names)
        return tuple(found[: registers_of(function.result, len(self.run))])

    def gathered(self, source: Registers) -> tuple[str, ...]:
        """Return the words that hold some elements, put together where they lie otherwise."""
        writer = self.writer
        dtype = writer.body.buffer(source.buffer).dtype
        per, size, found = dtype.pack, dtype.bits // BYTE, list[str]()
        for at in range(0, len(source.numbers), per):
            numbers = source.numbers[at : at + per]
            if numbers[0] % per == 0 and numbers == tuple(
                range(numbers[0], numbers[0] + len(numbers))
            ):
                found.append(f"{source.buffer}_{numbers[0] // per}")
                continue
            _check_bytes(dtype, source)
            variables = list(dict.fromkeys(number // per for number in numbers))
            word = f"{source.buffer}_{variables[0]}"
            for step, other in enumerate(variables[1:] or variables):
                name, selector = writer.temporary(), list[int]()
                for place, number in enumerate(numbers):
                    variable, part = divmod(number, per)
                    start = (part if step == 0 or variable == other else place) * size
                    start += 4 * (variable == other)
                    selector += range(start, start + size)
                writer.call(
                    ptx.prmt(_digits(selector)), (name,), (word, f"{source.buffer}_{other}")
                )
                word = name
            found.append(word)
        return tuple(found)

    def insert(self, into: Registers, values: tuple[str, ...]) -> None:
        """Put elements into words of which they are a part."""
        writer = self.writer
        dtype = writer.body.buffer(into.buffer).dtype
        _check_bytes(dtype, into)
        per, size = dtype.pack, dtype.bits // BYTE
        for variable in dict.fromkeys(number // per for number in into.numbers):
            for at, value in enumerate(values):
                selector = list(range(4))
                for i, number in enumerate(into.numbers[at * per : (at + 1) * per]):
                    if number // per == variable:
                        for byte in range(size):
                            selector[number % per * size + byte] = 4 + i * size + byte
                if selector != [0, 1, 2, 3]:
                    name = f"{into.buffer}_{variable}"
                    writer.call(ptx.prmt(_digits(selector)), (name,), (name, value))


def _digits(each: list[int]) -> int:
    """Return the constant of a prmt: its lowest digit says the lowest byte."""
    return sum(digit << 4 * at for at, digit in enumerate(each))


def _check_bytes(dtype: dtypes.DType, elements: Registers) -> None:
    """Refuse elements narrower than a byte that fill no word.

    Raises:
        LayoutError: they do not.
    """
    if dtype.bits < BYTE:
        raise LayoutError(
            f"assign: elements of {dtype.bits} bits go by whole words of {dtype.pack}; got "
            f"{elements}"
        )


def _pattern(node: Number) -> int:
    """Return the bits of a variable full of a constant."""
    dtype = dtypes.get(node.token)
    bits = int(np.asarray(node.value).astype(dtype.numpy).view(dtype.word)) << dtype.shift
    bits &= (1 << dtype.bits) - 1
    return sum(bits << at * dtype.bits for at in range(dtype.pack))
