"""Registers of a warp as kernel text: selects, packing and shuffles, a register at a time."""

from __future__ import annotations

from lowering.codegen.register_words import WORD
from lowering.codegen.writer import BYTE, Writer, emit
from lowering.ir.index import Guard, Index
from lowering.ir.ops import Agree, Permute, Registers, Select, Shuffle
from lowering.isa import ptx


def variable(writer: Writer, elements: Registers) -> str:
    """Return the variable that some elements share."""
    per = writer.body.buffer(elements.buffer).dtype.pack
    (number,) = {each // per for each in elements.numbers}
    return f"{elements.buffer}_{number}"


@emit.of(Agree)
def _agree(writer: Writer, op: Agree) -> None:
    """Write nothing: what must be so costs no instruction."""


@emit.of(Select)
def _select(writer: Writer, op: Select) -> None:
    zero, one = variable(writer, op.zero), variable(writer, op.one)
    test = writer.text(Guard(op.which, 0, 1))
    value = writer.dialect.choice([test], zero, one)
    writer.line(writer.dialect.assign(variable(writer, op.into), value))


@emit.of(Shuffle)
def _shuffle(writer: Writer, op: Shuffle) -> None:
    lane = writer.dialect.word(writer.text(op.lane))
    into, source = variable(writer, op.into), variable(writer, op.source)
    writer.call(ptx.shuffle(writer.token(op.source.buffer)), (into,), (source, lane))


@emit.of(Permute)
def _permute(writer: Writer, op: Permute) -> None:
    """Pack elements of whole bytes by one prmt; narrower ones by shifts, a run at a time."""
    bits = writer.body.buffer(op.into.buffer).dtype.bits
    into = variable(writer, op.into)
    sources = variable(writer, op.first), variable(writer, op.second)
    if bits < BYTE:
        _nibbles(writer, into, sources, op.selector)
    elif op.selector.terms:
        number = writer.dialect.word(writer.text(op.selector))
        writer.call(ptx.prmt_by_thread(), (into,), (*sources, number))
    else:
        writer.call(ptx.prmt(op.selector.constant), (into,), sources)


def _nibbles(writer: Writer, into: str, sources: tuple[str, str], selector: Index) -> None:
    """Put elements of 4 bits together: those that are as far apart on both sides go at once."""
    masks: dict[Index, int] = {}
    for element in range(WORD.bit_length() // 4):
        apart = (selector // 16**element % 16 + 16 - element) % 16
        masks[apart] = masks.get(apart, 0) | 15 << 4 * element
    found = []
    for apart, mask in masks.items():
        if apart.terms or apart.constant % 8:
            word = writer.temporary()
            shift = writer.dialect.word(writer.text(apart * 4))
            writer.call(ptx.nibbles_by_thread(), (word,), (*sources, shift))
        else:
            word = sources[apart.constant // 8]
        found.append(word if mask == WORD else f"({word} & {writer.dialect.number(mask, 'u32')})")
    writer.line(writer.dialect.assign(into, " | ".join(found)))
