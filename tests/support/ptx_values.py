"""Runs the PTX of one statement on arrays of registers: casts, and what they are made of.

Written from the PTX ISA alone. A register is its bits, in an array over the inputs; floats are
taken apart and put together here, digit by digit, and rounded in float64, which holds all that is
still to be rounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
WIDTHS = {"r": 32, "f": 32, "d": 64}


class Format(NamedTuple):
    """A float: bits of its exponent and of its fraction, largest code, and code of its NaN."""

    exponent: int
    fraction: int
    largest: int
    nan: int
    infinite: bool = True

    @property
    def bits(self) -> int:
        """Its width."""
        return 1 + self.exponent + self.fraction


FORMATS = {
    "f16": Format(5, 10, 0x7BFF, 0x7FFF), "bf16": Format(8, 7, 0x7F7F, 0x7FFF),
    "f32": Format(8, 23, 0x7F7FFFFF, 0x7FFFFFFF),
    "f64": Format(11, 52, 0x7FEFFFFFFFFFFFFF, 0x7FFFFFFFE0000000),
    "tf32": Format(8, 10, 0x3FBFF, 0x3FFFF),
    "e4m3": Format(4, 3, 0x7E, 0x7F, False), "e5m2": Format(5, 2, 0x7B, 0x7F),
}  # fmt: skip


def floats(bits: Bits, name: str) -> Floats:
    """Return what codes of a format mean."""
    if name == "f64":
        return bits.view(np.float64)
    form = FORMATS[name]
    bias = (1 << (form.exponent - 1)) - 1
    exponent = (bits >> np.uint64(form.fraction)).astype(np.int64) & ((1 << form.exponent) - 1)
    fraction = bits.astype(np.int64) & ((1 << form.fraction) - 1)
    implicit = np.where(exponent > 0, 1 << form.fraction, 0)
    size = np.ldexp(
        (fraction + implicit).astype(float), np.maximum(exponent, 1) - bias - form.fraction
    )
    code = bits & np.uint64((1 << (form.bits - 1)) - 1)
    beyond = code > np.uint64(form.largest)
    size = np.where(beyond, np.nan, size)
    if form.infinite:
        size = np.where(beyond & (fraction == 0), np.inf, size)
    return np.where(bits >> np.uint64(form.bits - 1) & np.uint64(1), -size, size)


def codes(values: Floats, name: str, rounding: str = "rn", finite: bool = False) -> Bits:
    """Return the codes of numbers rounded to a format: ``rn``, ``rz``, or ``rna`` (ties away)."""
    form = FORMATS[name]
    if name == "f64":
        return np.where(np.isnan(values), np.uint64(form.nan), values.view(np.uint64))
    bias = (1 << (form.exponent - 1)) - 1
    size = np.abs(np.where(np.isfinite(values), values, 0))
    exponent = np.where(size > 0, np.maximum(np.frexp(size)[1] - 1, 1 - bias), 1 - bias)
    scaled = np.ldexp(size, form.fraction - exponent)
    whole = {"rn": np.rint, "rz": np.floor, "rna": lambda x: np.floor(x + 0.5)}[rounding](scaled)
    code = whole.astype(np.int64) + ((exponent + bias - 1).astype(np.int64) << form.fraction)
    over = code > form.largest
    stays = finite or rounding == "rz"
    code = np.where(over, form.largest + (0 if stays else 1), code)
    code = np.where(np.isinf(values), form.largest + (0 if finite else 1), code)
    code = code | np.where(np.signbit(values), 1 << (form.bits - 1), 0)
    return np.where(np.isnan(values), form.nan, code).astype(np.uint64)


def signed(bits: Bits) -> npt.NDArray[np.int64]:
    """Return 32 bits as an integer."""
    return bits.astype(np.uint32).view(np.int32).astype(np.int64)


def low(values: Any, bits: int = 32) -> Bits:
    """Return the low bits of integers."""
    return np.asarray(values).astype(np.int64).view(np.uint64) & np.uint64((1 << bits) - 1)


def byte(value: Bits, at: int) -> Bits:
    """Return a byte."""
    return value >> np.uint64(8 * at) & np.uint64(0xFF)


def permuted(a: Bits, b: Bits, selector: Bits) -> Bits:
    """Return ``prmt.b32``: a byte of b and a for each digit of the selector, or its sign."""
    result = np.zeros_like(a)
    both = a | b << np.uint64(32)
    for at in range(4):
        digit = int(selector.flat[0]) >> 4 * at & 15
        chosen = byte(both, digit & 7)
        if digit & 8:
            chosen = np.where(chosen >> np.uint64(7), np.uint64(0xFF), np.uint64(0))
        result |= chosen << np.uint64(8 * at)
    return result


def selected(a: Bits, b: Bits, c: Bits, table: Bits) -> Bits:
    """Return ``lop3.b32``: bit ``4a + 2b + c`` of the table."""
    result = np.zeros_like(a)
    for at in range(32):
        place = np.uint64(at)
        row = sum(
            (each >> place & np.uint64(1)) << np.uint64(by) for each, by in ((a, 2), (b, 1), (c, 0))
        )
        result |= (table >> row & np.uint64(1)) << place
    return result


def pairs(rule: Callable[..., Floats], name: str) -> Callable[..., Bits]:
    """Return a function of the floats of a format, one or two to a word."""
    format_name = name.removesuffix("x2")
    width = FORMATS[format_name].bits

    def apply(*words: Bits) -> Bits:
        result = np.zeros_like(words[0])
        for at in range(2 if name.endswith("x2") else 1):
            shift, mask = np.uint64(width * at), np.uint64((1 << width) - 1)
            parts = [floats(word >> shift & mask, format_name) for word in words]
            result |= codes(rule(*parts), format_name) << shift
        return result

    return apply


def fused(a: Floats, b: Floats, c: Floats) -> Floats:
    """Return ``a·b + c``, which must be exact in float64."""
    total = a * b + c
    known = np.isfinite(total)
    assert (total - a * b == c)[known].all(), "a sum that float64 does not hold"
    return total


def clipped(values: Floats) -> Bits:
    """Return ``cvt.rzi.s32``, which saturates; a NaN gives 0 of f32, and its least of f64."""
    return low(np.clip(np.trunc(values), -(1 << 31), (1 << 31) - 1))


def converted(rounding: str, finite: bool, into: str, source: str, *words: Bits) -> Bits:
    """Return ``cvt`` of scalars, and of pairs in a word."""
    into, pair = into.removesuffix("x2"), into.endswith("x2")
    source_pair, source = source.endswith("x2"), source.removesuffix("x2")
    if source_pair:
        width = np.uint64(FORMATS[source].bits)
        mask = np.uint64((1 << int(width)) - 1)
        words = (words[0] >> width & mask, words[0] & mask)
    if source == "s32":
        values = [signed(word).astype(float) for word in words]
    else:
        values = [floats(word, source) for word in words]
    if into == "s32":
        assert rounding == "rzi"
        nan = 0 if source == "f32" else -(1 << 31)
        return clipped(np.where(np.isnan(values[0]), nan, values[0]))
    exact = rounding or "rn"  # PTX wants a rounding wherever one may be needed
    found = [codes(value, into, exact, finite) for value in values]
    if into == "tf32":
        found = [np.where(np.isnan(values[0]), np.uint64(0x7FFFFFFF), found[0] << np.uint64(13))]
    if pair:  # the first operand is the upper half
        return found[0] << np.uint64(FORMATS[into].bits) | found[1]
    return found[0]


def packed(target: str, a: Bits, b: Bits, c: Bits) -> Bits:
    """Return ``cvt.pack.sat``: b, then a, both saturated, below the lower half of c."""
    least, most = (-128, 127) if target == "s8" else (0, 255)
    one, two = (low(np.clip(signed(each), least, most), 8) for each in (a, b))
    return (c << np.uint64(16) | one << np.uint64(8) | two) & np.uint64(0xFFFFFFFF)


COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "ne": lambda a, b: (a != b) & (a == a) & (b == b), "num": lambda a, b: (a == a) & (b == b),
}  # fmt: skip


def operation(mnemonic: str) -> Callable[..., Bits]:
    """Return what an instruction makes of its inputs.

    Raises:
        AssertionError: it is not known here.
    """
    words: dict[str, Callable[..., Bits]] = {
        "mov.b32": lambda a: a,
        "shl.b32": lambda a, b: low(a << b), "shr.u32": lambda a, b: a >> b,
        "and.b32": lambda a, b: a & b, "or.b32": lambda a, b: a | b, "xor.b32": lambda a, b: a ^ b,
        "prmt.b32": permuted, "lop3.b32": selected,
        "selp.b32": lambda a, b, p: np.where(p != 0, a, b),
    }  # fmt: skip
    if mnemonic in words:
        return words[mnemonic]
    if found := re.fullmatch(r"setp\.(\w+)\.(f64|s32)", mnemonic):
        values = signed if found[2] == "s32" else lambda bits: floats(bits, "f64")
        rule = COMPARISONS[found[1]]
        return lambda a, b: rule(values(a), values(b)).astype(np.uint64)
    if found := re.fullmatch(r"(sub|fma)\.rn\.(f32|f16x2|bf16x2)", mnemonic):
        return pairs(np.subtract if found[1] == "sub" else fused, found[2])
    if found := re.fullmatch(r"cvt\.pack\.sat\.(s8|u8)\.s32\.b32", mnemonic):
        return lambda a, b, c: packed(found[1], a, b, c)
    found = re.fullmatch(r"cvt(?:\.(rn|rz|rzi|rna))?(\.satfinite)?\.(\w+)\.(\w+)", mnemonic)
    assert found, f"an instruction of no known form: {mnemonic}"
    rounding, finite, into, source = found.groups()
    return lambda *x: converted(rounding or "", bool(finite), into, source, *x)


def run(text: str, outputs: str, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Run a statement on inputs, and return its outputs.

    Args:
        text: PTX with operands ``$n``, outputs first.
        outputs: the kind of each: r, f or d.
        inputs: arrays of uint32, float32 or float64.

    Raises:
        AssertionError: an instruction that is not known here, or a register that nothing set.
    """
    kinds = {"u": np.uint32, "f": np.uint32, "d": np.uint64}
    scopes: list[dict[str, Any]] = [
        {
            f"${len(outputs) + at}": np.atleast_1d(value)
            .view(kinds["d" if value.dtype == np.float64 else "u"])
            .astype(np.uint64)
            for at, value in enumerate(inputs)
        }
    ]
    scopes[0] |= {f"${at}": None for at in range(len(outputs))}
    size = max(len(value) for value in scopes[0].values() if value is not None)

    def scope(name: str) -> dict[str, Any]:
        return next(each for each in reversed(scopes) if name in each)

    def read(name: str) -> Bits:
        if re.fullmatch(r"0x[0-9a-f]+|\d+", name):
            return np.full(size, int(name, 0), dtype=np.uint64)
        if name[0] == "{":
            parts = [read(each) for each in name[1:-1].split(", ")]
            return parts[0] | parts[1] << np.uint64(16)
        value = scope(name)[name]
        assert value is not None, f"nothing set {name}"
        return np.broadcast_to(value, (size,))

    for line in text.replace("\n", " ").split(";"):
        statement = line.strip()
        while statement[:1] in ("{", "}") and statement:
            if statement[0] == "{":
                scopes.append({})
            else:
                scopes.pop()
            statement = statement[1:].strip()
        if not statement:
            continue
        mnemonic, rest = statement.split(" ", 1)
        if mnemonic == ".reg":
            names = rest.split(" ", 1)[1].split(", ")
            assert not any(name in scopes[-1] for name in names)
            scopes[-1] |= dict.fromkeys(names)
            continue
        operands = re.findall(r"\{.*?\}|[^\s,]+", rest)
        with np.errstate(all="ignore"):
            value = operation(mnemonic)(*map(read, operands[1:]))
        if operands[0][0] == "{":
            for at, name in enumerate(operands[0][1:-1].split(", ")):
                scope(name)[name] = value >> np.uint64(16 * at) & np.uint64(0xFFFF)
        else:
            scope(operands[0])[operands[0]] = value
    types = {"r": np.uint32, "f": np.float32, "d": np.float64}
    found = []
    for at, kind in enumerate(outputs):
        bits = read(f"${at}").astype(kinds["d" if kind == "d" else "u"])
        found.append(bits.view(types[kind]))
    return found
