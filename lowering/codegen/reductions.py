"""Exchanges between lanes as kernel text."""

from __future__ import annotations

from collections.abc import Iterator

from lowering.codegen.movement import extract, insert
from lowering.codegen.register_words import BitField, bit_field
from lowering.codegen.writer import Writer, emit
from lowering.ir.ops import Butterfly, Registers
from lowering.isa import functions, ptx


@emit.of(Butterfly)
def _butterfly(writer: Writer, op: Butterfly) -> None:
    """Shuffle each variable once, whether it holds one of the elements or two."""
    token = writer.token(op.into.buffer)
    join = functions.get(op.function, (token, token))
    for place in _fields(writer, op.into):
        other = writer.temporary()
        writer.call(ptx.shuffle(token, op.mask), (other,), (place.variable,))
        if place.bits == functions.bits_of(token) * join.count:
            writer.call(join.asm, (place.variable,), (place.variable, other))
            continue
        both = writer.temporary()
        writer.call(join.asm, (both,), (place.variable, other))
        value = extract(writer, BitField(both, place.shift, place.bits))
        mask = writer.dialect.number(place.mask >> place.shift, "u32")
        insert(writer, place, f"({value} & {mask})")


def _fields(writer: Writer, elements: Registers) -> Iterator[BitField]:
    """Yield the elements that share a variable, each variable once."""
    per = writer.body.buffer(elements.buffer).dtype.pack
    words: dict[int, list[int]] = {}
    for number in sorted(elements.numbers):
        words.setdefault(number // per, []).append(number)
    for numbers in words.values():
        yield bit_field(writer.body, Registers(elements.buffer, tuple(numbers)))
