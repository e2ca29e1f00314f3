"""Functions of elements in registers as kernel text: words of elements in, words out.

Elements are numbered through their words: element i of f16 is half ``i % 2`` of word ``i // 2``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowering.codegen.register_words import BitField, bit_field, pack
from lowering.codegen.writer import Writer
from lowering.ir.ops import Registers
from lowering.isa.casts import cast
from lowering.isa.functions import Function, registers_of

WORD = 0xFFFFFFFF


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


def alone(writer: Writer, place: BitField) -> str:
    """Return a narrow value in the low bits of a word; higher bits are zero."""
    mask = writer.dialect.number(place.mask >> place.shift, "u32")
    return f"({extract(writer, place)} & {mask})"


def _chunks(writer: Writer, elements: Registers) -> Iterator[list[BitField]]:
    """Yield, for each word that elements in order would fill, where its parts are.

    A part is a run of neighbours in one word.
    """
    per = pack(writer.body.buffer(elements.buffer).dtype)
    for at in range(0, len(elements.numbers), per):
        runs: list[list[int]] = []
        for number in elements.numbers[at : at + per]:
            if runs and number == runs[-1][-1] + 1 and number % per:
                runs[-1].append(number)
            else:
                runs.append([number])
        yield [bit_field(writer.body, Registers(elements.buffer, tuple(run))) for run in runs]


def gathered(writer: Writer, elements: Registers) -> tuple[str, ...]:
    """Return elements in order as words: variables where they fill them, else expressions.

    Of a last word that they do not fill, the higher bits are not cleared.
    """
    found = []
    for parts in _chunks(writer, elements):
        first, *more = parts
        terms, at = [extract(writer, first)], first.bits
        if more:
            terms = [alone(writer, first)]
        for part in more:
            terms.append(f"({alone(writer, part)} << {writer.dialect.number(at, 'u32')})")
            at += part.bits
        found.append(f"({' | '.join(terms)})" if more else terms[0])
    return tuple(found)


def whole_words(writer: Writer, elements: Registers) -> tuple[str, ...]:
    """Return the variables that elements in order fill; none unless they fill all of them."""
    chunks = [*_chunks(writer, elements)]
    if any(len(parts) > 1 or parts[0].bits < WORD.bit_length() for parts in chunks):
        return ()
    return tuple(parts[0].variable for parts in chunks)


def scatter(writer: Writer, elements: Registers, words: Sequence[str]) -> None:
    """Set elements from words that have them in order."""
    for parts, word in zip(_chunks(writer, elements), words, strict=True):
        at = 0
        for part in parts:
            if part.bits >= WORD.bit_length():
                writer.line(writer.dialect.assign(part.variable, word))
            else:
                insert(writer, part, alone(writer, BitField(word, at, part.bits)))
            at += part.bits


def call_function(
    writer: Writer,
    function: Function,
    arguments: Sequence[Sequence[str]],
    count: int,
    into: Sequence[str] = (),
) -> tuple[str, ...]:
    """Call a function on some elements, and return the words of its result.

    Args:
        writer: of the text.
        function: takes so many elements a call; the last call may have zeros beside them.
        arguments: the words of each argument, ``count`` elements in order.
        count: elements.
        into: variables for the result; temporaries where it is empty.

    >>> from lowering.codegen.cuda_cpp import Cpp
    >>> from lowering.ir.kernel_ir import KernelIR
    >>> writer = Writer(KernelIR((), (), (), (), 32), Cpp(), indent=0)
    >>> call_function(writer, cast("f32", "f16"), [("x_0", "x_1", "x_2")], 3)
    ('t0', 't1')
    >>> writer.lines[1]
    'uint32_t t1; cast_f32_f16(t1, x_2, 0.0f);'
    """
    asm, calls = function.asm, -(-count // function.count)
    given = [
        _called(writer, *each, function.count, calls)
        for each in zip(function.operands, arguments, strict=True)
    ]
    more = calls * len(asm.outputs) - len(into)
    outputs = (*into, *(writer.temporary() for _ in range(more)))
    for call in range(calls):
        at = call * len(asm.outputs)
        inputs = tuple(word for each in given for word in each[call])
        writer.call(asm, outputs[at : at + len(asm.outputs)], inputs)
    return outputs[: registers_of(function.result, count)]


def _called(
    writer: Writer, token: str, words: Sequence[str], count: int, calls: int
) -> list[tuple[str, ...]]:
    """Return the words of an argument that each call takes, with zeros where they end."""
    held = registers_of(token, count)
    zero = writer.dialect.number(0, token if token in ("f32", "f64") else "u32")
    filled = (*words, *(zero,) * (calls * held - len(words)))
    return [filled[call * held :][:held] for call in range(calls)]


def cast_words(
    writer: Writer,
    source: object,
    target: object,
    words: Sequence[str],
    count: int,
    into: Sequence[str] = (),
) -> tuple[str, ...]:
    """Cast elements in words, as :func:`call_function`.

    Raises:
        LayoutError: there is no such cast.
    """
    return call_function(writer, cast(source, target), [words], count, into)
