"""Casts between element types: one row for each pair, as PTX on 32-bit words, with its meaning.

- To a float: rounded once, to nearest, ties to even, denormals kept; a NaN becomes that of
  :data:`NANS`, or of the pairs in :data:`KEPT` a quiet one of its sign and first digits. Beyond its
  largest number f16, bf16 and f32 have infinity; e4m3 and e5m2 give the largest number, for
  infinity too (``.satfinite``, without which PTX has no such cast).
- From a float to an integer: toward zero; beyond the ends the nearest end; 0 for a NaN.
- From an integer to an integer: the low bits.
- bf16 to f32 keeps the bits, of a NaN too.
- f32 to tf32 rounds to nearest, ties away from zero; infinities and NaNs keep their upper 19 bits,
  so that a NaN with none of its fraction there becomes infinity.

A row is a path of steps, of one instruction or a few each, and no step but the last rounds: what
f32 cannot hold is first rounded to odd (toward zero, with the last bit set where that lost
something), which the last rounding, to fewer digits, cannot tell from the exact number. Integers of
4 and 8 bits are put into the low digits of a float, and what it had before is subtracted; e2m1 are
looked up.

Source: PTX ISA, cvt, cvt.pack, prmt, lop3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from layoutalg import LayoutError
from lowering.isa import dtypes
from lowering.isa.functions import PRED, Function, Values, registers_of, to_odd
from lowering.isa.ptx import letter

# The bits of the NaN that a cast to a float gives; and the pairs that keep its sign and digits.
NANS = {
    "f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFE0000000, "e4m3": 0x7F,
    "e5m2": 0x7F,
}  # fmt: skip
KEPT = (("f32", "f64"), ("bf16", "f64"), ("f64", "f32"), ("f64", "f16"))
_BYTES, _BYTE_FLOATS = ("s8", "u8"), ("e4m3", "e5m2")
_TYPES = ("f16", "bf16", "f32", "f64", *_BYTES, "s32", *_BYTE_FLOATS)
_PAIRS: tuple[tuple[str, str], ...] = (
    *((source, target) for source in _TYPES for target in _TYPES if source != target),
    *((source, target) for source in ("s4", "u4", "e2m1") for target in ("f16", "bf16")),
    ("f32", "tf32"),
    (PRED, "s32"),
)

# -- steps ----------------------------------------------------------------------------------------

# What stands between two steps besides: f32 rounded to odd; s32 which the next step clips.
_ODD, _UNCLIPPED = "odd", "unclipped"
_HELD = {_ODD: "f32", _UNCLIPPED: "s32"}
_THROUGH = (  # what else comes first on the way from some types to others; the first that fits
    (("f32", "f64"), _BYTES, _UNCLIPPED),
    (("f64",), ("bf16", *_BYTE_FLOATS), _ODD),
    (("s32",), ("bf16",), _ODD),  # floats of 8 bits end below what f32 rounds
    (_BYTE_FLOATS, _TYPES, "f16"),
    (_BYTES, _BYTE_FLOATS, "f16"),
    (_TYPES, _TYPES, "f32"),
)


class _Step(NamedTuple):
    """PTX of some elements: registers of the result from ``$0`` on, then those it is made of.

    Elements narrower than 32 bits come in words, the first in the low bits.
    """

    elements: int
    text: str


_Steps = Iterator[tuple[tuple[str, str], _Step]]


def _between_floats() -> _Steps:
    """Yield the steps between floats, of which pairs share a word, or four."""
    both = "{ .reg .b16 l, h; "
    text = both + "mov.b32 {l, h}, $2; cvt.f32.f16 $0, l; cvt.f32.f16 $1, h; }"
    yield ("f16", "f32"), _Step(2, text)
    yield ("bf16", "f32"), _Step(2, "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;")
    for half in ("f16", "bf16"):
        yield ("f32", half), _Step(2, f"cvt.rn.{half}x2.f32 $0, $2, $1;")
    yield ("f32", "tf32"), _Step(1, "cvt.rna.tf32.f32 $0, $1;")
    yield ("f32", "f64"), _Step(1, "cvt.f64.f32 $0, $1;")
    yield ("f64", "f32"), _Step(1, "cvt.rn.f32.f64 $0, $1;")
    for wide in ("f64", "s32"):
        text = f"cvt.rn.f16.{wide} l, $1; cvt.rn.f16.{wide} h, $2; mov.b32 $0, {{l, h}}; }}"
        yield (wide, "f16"), _Step(2, both + text)
    for byte in _BYTE_FLOATS:
        text = f"mov.b32 {{l, h}}, $2; cvt.rn.f16x2.{byte}x2 $0, l; cvt.rn.f16x2.{byte}x2 $1, h; }}"
        yield (byte, "f16"), _Step(4, both + text)
        into = f"cvt.rn.satfinite.{byte}x2"
        text = f"{into}.f16x2 l, $1; {into}.f16x2 h, $2; mov.b32 $0, {{l, h}}; }}"
        yield ("f16", byte), _Step(4, both + text)
        text = f"{into}.f32 l, $2, $1; {into}.f32 h, $4, $3; mov.b32 $0, {{l, h}}; }}"
        for single in ("f32", _ODD):
            yield (single, byte), _Step(4, both + text)
    yield (_ODD, "bf16"), _Step(2, "cvt.rn.bf16x2.f32 $0, $2, $1;")
    for wide, register, back in (("f64", "f64", "f64.f32"), ("s32", "b32", "rzi.s32.f32")):
        text = (
            f"{{ .reg .pred p; .reg .b32 n, lost; .reg .f32 near; .reg .{register} back; "
            f"cvt.rz.f32.{wide} near, $1; cvt.{back} back, near; setp.ne.{wide} p, back, $1; "
            "selp.b32 lost, 1, 0, p; mov.b32 n, near; or.b32 n, n, lost; mov.b32 $0, n; }"
        )
        yield (wide, _ODD), _Step(1, text)


def _of_integers() -> _Steps:
    """Yield the steps from and to integers of 8 bits and more."""
    for wide in ("s32", _UNCLIPPED):
        yield ("f32", wide), _Step(1, "cvt.rzi.s32.f32 $0, $1;")
        text = (
            "{ .reg .pred p; .reg .b32 n; cvt.rzi.s32.f64 n, $1; setp.num.f64 p, $1, $1; "
            "selp.b32 $0, n, 0, p; }"
        )
        yield ("f64", wide), _Step(1, text)
    for single in ("f32", "f64"):
        yield ("s32", single), _Step(1, f"cvt.rn.{single}.s32 $0, $1;")
    yield (PRED, "s32"), _Step(1, "mov.b32 $0, $1;")
    for byte, other in (_BYTES, _BYTES[::-1]):
        signed = byte == "s8"
        yield (byte, other), _Step(4, "mov.b32 $0, $1;")
        fill = 0x8880 if signed else 0x4440  # the byte's sign, or a byte of 0
        places = (fill + (0x1111 if signed else 1) * at for at in range(4))
        text = " ".join(f"prmt.b32 ${at}, $4, 0, {place:#x};" for at, place in enumerate(places))
        yield (byte, "s32"), _Step(4, text)
        text = (
            "{ .reg .b32 l, h; prmt.b32 l, $1, $2, 0x0040; prmt.b32 h, $3, $4, 0x0040; "
            "prmt.b32 $0, l, h, 0x5410; }"
        )
        yield ("s32", byte), _Step(4, text)
        text = (
            f"{{ .reg .b32 h; cvt.pack.sat.{byte}.s32.b32 h, $4, $3, 0; "
            f"cvt.pack.sat.{byte}.s32.b32 $0, $2, $1, h; }}"
        )
        yield (_UNCLIPPED, byte), _Step(4, text)
        # From here on u: the byte, 128 more where it has a sign. 2^23 + u is an f32, and 1024 + u
        # an f16, whose last digits are u.
        unsigned = "xor.b32 u, ${}, 0x80808080; " if signed else "mov.b32 u, ${}; "
        text = "{ .reg .b32 u, m, n; .reg .f32 f, c; mov.b32 m, 0x4b000000; " + unsigned.format(4)
        text += f"mov.b32 c, {0x4B000080 if signed else 0x4B000000:#x}; "
        for at in range(4):
            text += f"prmt.b32 n, u, m, {0x7650 + at:#x}; mov.b32 f, n; sub.rn.f32 ${at}, f, c; "
        yield (byte, "f32"), _Step(4, text + "}")
        text = "{ .reg .b32 u, m, n, c; mov.b32 m, 0x64646464; " + unsigned.format(2)
        text += f"mov.b32 c, {0x64806480 if signed else 0x64006400:#x}; "
        for at, place in enumerate((0x4140, 0x4342)):
            text += f"prmt.b32 n, u, m, {place:#x}; sub.rn.f16x2 ${at}, n, c; "
        yield (byte, "f16"), _Step(4, text + "}")


def _of_nibbles() -> _Steps:
    """Yield the steps from the 8 elements of a word, of 4 bits each, to pairs of 16 bits.

    s4 and u4: bytes are permuted so that each half of a word has an element in its low four bits,
    and the rest is made a power of two, which the result lacks again.
    """
    ones = {"f16": (0x64006400, 0x3C003C00), "bf16": (0x43004300, 0x3F803F80)}
    for half, (power, one) in ones.items():
        for nibble in ("s4", "u4"):
            start = power | (0x00080008 if nibble == "s4" else 0)  # s4: 8 more has no sign
            text = (
                "{ .reg .b32 w, t, m, n; shr.u32 w, $4, 4; "
                f"mov.b32 m, {one:#x}; mov.b32 n, {start ^ 0x80008000:#x}; "
            )
            for at in range(4):
                text += (
                    f"prmt.b32 t, $4, w, {0x4400 + 0x1111 * at:#x}; "
                    f"lop3.b32 t, t, 0x000f000f, {start:#x}, 0x6a; fma.rn.{half}x2 ${at}, t, m, n; "
                )
            yield (nibble, half), _Step(8, text + "}")
        yield ("e2m1", half), _Step(8, _looked_up(half))


def _looked_up(half: str) -> str:
    """Return PTX of 8 e2m1 in a word: ``prmt`` looks the bytes of their sizes up, four at a time.

    Of the bytes of the word and of the word four bits up, four have those elements in front: there
    their signs are.
    """
    sizes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6]).astype(dtypes.get(half).numpy)
    low, high = sizes.view(np.uint8).reshape(8, 2).T
    text = "{ .reg .b32 w, s, t, a, b, l, h; shl.b32 w, $4, 4; and.b32 s, $4, 0x77777777; "
    for at, four in ((0, 0x5140), (2, 0x7362)):
        for name, table in (("l", low), ("h", high)):
            first, last = np.ascontiguousarray(table).view(np.uint32)
            if table.any():
                text += f"mov.b32 a, {first:#x}; mov.b32 b, {last:#x}; prmt.b32 {name}, a, b, s; "
            else:
                text += f"mov.b32 {name}, 0; "
        text += f"prmt.b32 t, w, $4, {four:#x}; lop3.b32 h, t, 0x80808080, h, 0xea; "
        text += f"prmt.b32 ${at}, l, h, 0x5140; prmt.b32 ${at + 1}, l, h, 0x7362; "
        text += "shr.u32 s, s, 16; " if at == 0 else "}"
    return text


_STEPS = dict((*_between_floats(), *_of_integers(), *_of_nibbles()))


def _path(source: str, target: str) -> list[str]:
    """Return the types on the way from one to another, both included."""
    if (source, target) in _STEPS:
        return [source, target]
    through = next(via for here, there, via in _THROUGH if source in here and target in there)
    return [*_path(source, through), *_path(through, target)[1:]]


def _joined(path: list[str]) -> tuple[int, str]:
    """Return how many elements a path takes at once, and the PTX of all its steps."""
    steps = [_STEPS[pair] for pair in pairwise(path)]
    count = max(step.elements for step in steps)
    held = [registers_of(_HELD.get(token, token), count) for token in path]
    between = [[f"{'abc'[at]}{n}" for n in range(many)] for at, many in enumerate(held[1:-1])]
    first = [f"${held[-1] + n}" for n in range(held[0])]
    names = [first, *between, [f"${n}" for n in range(held[-1])]]
    lines = []
    for token, inner in zip(path[1:-1], between, strict=True):
        kind = {"r": "b32", "f": "f32", "d": "f64"}[letter(_HELD.get(token, token))]
        lines.append(f".reg .{kind} {', '.join(inner)};")
    for step, (before, after) in zip(steps, pairwise(names), strict=True):
        turns = count // step.elements
        ins, outs = len(before) // turns, len(after) // turns
        for turn in range(turns):
            operands = after[turn * outs :][:outs] + before[turn * ins :][:ins]
            lines.append(re.sub(r"\$(\d+)", partial(_operand, operands), step.text))
    text = " ".join(lines)
    return count, f"{{ {text} }}" if between else text


def _operand(operands: list[str], found: re.Match[str]) -> str:
    return operands[int(found[1])]


# -- meanings -------------------------------------------------------------------------------------


def _to_integer(source: str, target: str, values: Values) -> Values:
    into = dtypes.get(target).numpy
    if source == PRED or any(dtypes.get(source).integers):
        return values.astype(into)
    ends = np.iinfo(into)
    clipped = np.clip(np.trunc(values.astype(np.float64)), ends.min, ends.max)
    return np.where(np.isnan(clipped), 0, clipped).astype(into)


def _to_float(source: str, target: str, values: Values) -> Values:
    """Return floats, rounded once from a type that holds every value of the source."""
    wide = values.astype(np.float64 if source in ("f64", "s32") else np.float32)
    if (source, target) == ("bf16", "f32"):
        return wide
    if target == "tf32":
        bits = wide.view(np.uint32) + np.where(np.isfinite(wide), 0x1000, 0).astype(np.uint32)
        kept: Values = bits & np.uint32(0xFFFFE000)
        return kept.view(np.float32)
    into = dtypes.get(target)
    if target in ("bf16", *_BYTE_FLOATS):
        near = to_odd(wide) if wide.dtype == np.float64 else wide
        if target in _BYTE_FLOATS:
            end = {"e4m3": 448, "e5m2": 57344}[target]
            near = np.clip(near, -end, end)
        found = near.astype(into.numpy)
    else:
        found = wide.astype(into.numpy)
    result, nan = np.array(found), np.isnan(wide)
    bits = result.view(into.word)
    if (source, target) in KEPT:
        bits[nan] = _quiet(source, target, values[nan])
    else:
        bits[nan] = NANS[target]
    return result


def _quiet(source: str, target: str, values: Values) -> Values:
    """Return the bits of NaNs in another type: quiet, with their signs and first digits."""
    here, there = dtypes.get(source), dtypes.get(target)
    bits = values.view(here.word).astype(np.uint64) << np.uint64(64 - here.bits)
    nan, digits = NANS[target], {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
    sign = bits >> np.uint64(63) << np.uint64(there.bits - 1)
    fraction = bits << np.uint64(here.bits - digits[source]) >> np.uint64(64 - digits[target])
    quiet = np.uint64(nan & -(1 << (digits[target] - 1)))
    result: Values = sign | quiet | fraction
    return result


# -- rows -----------------------------------------------------------------------------------------


def _row(source: str, target: str) -> Function:
    count, text = _joined(_path(source, target))
    rule = _to_integer if any(dtypes.get(target).integers) else _to_float
    return Function("cast", (source,), target, text, partial(rule, source, target), count)


def _name(dtype: object) -> str:
    return PRED if dtype == PRED else dtypes.get(dtype).name


CASTS: dict[tuple[str, str], Function] = {
    (_name(source), _name(target)): _row(source, target) for source, target in _PAIRS
}


def cast(source: object, target: object) -> Function:
    """Return the cast from one type to another.

    Args:
        source: a type as :func:`lowering.isa.dtypes.get` takes it, or ``pred``.
        target: likewise.

    Raises:
        LayoutError: there is none; the types that fit are listed.

    >>> cast("f32", "f16").text
    'cvt.rn.f16x2.f32 $0, $2, $1;'
    >>> cast("e4m3", "int8").apply(np.array([-3.75, 448], dtypes.get("e4m3").numpy))
    array([ -3, 127], dtype=int8)
    >>> cast("uint4", "float32")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: cast: uint4 goes to float16, bfloat16; got uint4 to float32
    """
    here, there = _name(source), _name(target)
    if (here, there) not in CASTS:
        targets = [each for other, each in CASTS if other == here]
        sources = dict.fromkeys(each for each, _ in CASTS)
        fits = f"{here} goes to {', '.join(targets)}" if targets else f"takes {', '.join(sources)}"
        raise LayoutError(f"cast: {fits}; got {here} to {there}")
    return CASTS[here, there]
