"""Registers and memory as kernel text: moves, conversions, vector accesses, matrices, cp.async."""

from __future__ import annotations

from layoutalg import LayoutError
from lowering.codegen.register_words import (
    WORD,
    BitField,
    access_bits,
    bit_field,
    bit_fields,
    space,
    words,
)
from lowering.codegen.writer import BYTE, Writer, emit
from lowering.ir.ops import (
    Atomic,
    Commit,
    Load,
    LoadMatrix,
    Move,
    MoveMatrix,
    Registers,
    Store,
    StoreMatrix,
    Transfer,
    Wait,
    Zero,
)
from lowering.isa import ptx


@emit.of(Zero)
def _zero(writer: Writer, op: Zero) -> None:
    clear(writer, op.into)


def clear(writer: Writer, into: Registers) -> None:
    """Set elements to zero: whole words at once, else bit by bit."""
    token = writer.token(into.buffer)
    try:
        names = words(writer.body, into)
    except LayoutError:
        for each in bit_fields(writer.body, into):
            insert(writer, each, writer.dialect.number(0, "u32"))
        return
    for name in names:
        writer.line(writer.dialect.assign(name, writer.dialect.number(0, token)))


def insert(writer: Writer, place: BitField, value: str) -> None:
    """Put a narrow value, in the low bits of a word, into its place."""
    keep = writer.dialect.number(WORD & ~place.mask, "u32")
    if place.shift:
        value = f"({value} << {writer.dialect.number(place.shift, 'u32')})"
    writer.line(writer.dialect.assign(place.variable, f"({place.variable} & {keep}) | {value}"))


def extract(writer: Writer, place: BitField) -> str:
    """Return a narrow value in the low bits of a word; higher bits are not cleared."""
    if not place.shift:
        return place.variable
    return f"({place.variable} >> {writer.dialect.number(place.shift, 'u32')})"


@emit.of(Move)
def _move(writer: Writer, op: Move) -> None:
    """Copy registers.

    Raises:
        LayoutError: one element is written before it is read, or the types differ.
    """
    if op.into == op.source:
        return
    if op.into.buffer == op.source.buffer and set(op.into.numbers) & set(op.source.numbers):
        raise LayoutError(f"text: {op} overwrites registers that it reads")
    into, source = (writer.body.buffer(each.buffer).dtype for each in (op.into, op.source))
    if into != source:
        raise LayoutError(f"text: {op} copies {source} to {into}; a cast is a Compute")
    if into.pack == 1:
        names = zip(words(writer.body, op.into), words(writer.body, op.source), strict=True)
        for name, value in names:
            writer.line(writer.dialect.assign(name, value))
        return
    masks: dict[tuple[str, str, int], int] = {}  # of the elements that go by one shift
    for place, origin in zip(*(bit_fields(writer.body, each) for each in (op.into, op.source)),
                             strict=True):  # fmt: skip
        way = place.variable, origin.variable, place.shift - origin.shift
        masks[way] = masks.get(way, 0) | place.mask
    for (name, value, shift), mask in masks.items():
        if shift:
            sign, by = ("<<", shift) if shift > 0 else (">>", -shift)
            value = f"({value} {sign} {writer.dialect.number(by, 'u32')})"
        if mask != WORD:
            number, keep = (writer.dialect.number(each, "u32") for each in (mask, WORD & ~mask))
            value = f"({name} & {keep}) | ({value} & {number})"
        writer.line(writer.dialect.assign(name, value))


@emit.of(Load)
def _load(writer: Writer, op: Load) -> None:
    """Load one vector; threads that are guarded away get zeros."""
    opened = writer.guarded(op.guards)
    bits = access_bits(writer.body, op)
    asm = ptx.load(space(writer.body, op.memory), writer.token(op.into.buffer), bits)
    address = (writer.at(op.memory, op.address),)
    if bits >= 32:
        writer.call(asm, words(writer.body, op.into), address)
    else:
        value = writer.temporary()
        writer.call(asm, (value,), address)
        insert(writer, bit_field(writer.body, op.into), value)
    if opened:
        writer.otherwise()
        clear(writer, op.into)
        writer.close()


@emit.of(Store)
def _store(writer: Writer, op: Store) -> None:
    opened = writer.guarded(op.guards)
    bits = access_bits(writer.body, op)
    asm = ptx.store(space(writer.body, op.memory), writer.token(op.source.buffer), bits)
    if bits >= 32:
        values = words(writer.body, op.source)
    else:
        values = (extract(writer, bit_field(writer.body, op.source)),)
    writer.call(asm, (), (writer.at(op.memory, op.address), *values))
    if opened:
        writer.close()


@emit.of(Atomic)
def _atomic(writer: Writer, op: Atomic) -> None:
    opened = writer.guarded(op.guards)
    asm = ptx.red(op.function, writer.token(op.source.buffer))
    values = words(writer.body, op.source)
    writer.call(asm, (), (writer.at(op.memory, op.address), *values))
    if opened:
        writer.close()


@emit.of(LoadMatrix)
def _load_matrix(writer: Writer, op: LoadMatrix) -> None:
    asm = ptx.ldmatrix(op.count, op.trans, writer.token(op.into.buffer))
    writer.call(asm, words(writer.body, op.into), (writer.at(op.memory, op.address),))


@emit.of(StoreMatrix)
def _store_matrix(writer: Writer, op: StoreMatrix) -> None:
    asm = ptx.stmatrix(op.count, op.trans, writer.token(op.source.buffer))
    writer.call(asm, (), (writer.at(op.memory, op.address), *words(writer.body, op.source)))


@emit.of(MoveMatrix)
def _move_matrix(writer: Writer, op: MoveMatrix) -> None:
    pairs = zip(words(writer.body, op.into), words(writer.body, op.source), strict=True)
    for into, source in pairs:
        writer.call(ptx.movmatrix(), (into,), (source,))


@emit.of(Transfer)
def _transfer(writer: Writer, op: Transfer) -> None:
    """Copy from memory to memory: ``cp.async``, or a load and a store."""
    bits = op.count * writer.body.buffer(op.into).dtype.bits
    target, source = writer.at(op.into, op.into_address), writer.at(op.memory, op.address)
    opened = writer.guarded(op.guards)
    if op.asynchronous and op.edges:
        conditions = [writer.text(guard) for guard in op.edges]
        whole, nothing = (writer.dialect.number(size, "u32") for size in (bits // BYTE, 0))
        size = writer.dialect.choice(conditions, whole, nothing)
        writer.call(ptx.cp_async_or_zero(), (), (target, source, size))
    elif op.asynchronous:
        writer.call(ptx.cp_async(bits // 8), (), (target, source))
    else:
        inside = writer.guarded(op.edges)
        token = writer.token(op.memory)
        load = ptx.load(space(writer.body, op.memory), token, bits)
        store = ptx.store(space(writer.body, op.into), writer.token(op.into), bits)
        values = tuple(writer.temporary() for _ in load.outputs)
        writer.call(load, values, (source,))
        writer.call(store, (), (target, *values))
        if inside:
            writer.otherwise()
            zero = writer.dialect.number(0, token)
            writer.call(store, (), (target, *(zero for _ in values)))
            writer.close()
    if opened:
        writer.close()


@emit.of(Commit)
def _commit(writer: Writer, op: Commit) -> None:
    writer.call(ptx.cp_async_commit(), (), ())


@emit.of(Wait)
def _wait(writer: Writer, op: Wait) -> None:
    writer.call(ptx.cp_async_wait(op.pending), (), ())
