"""``cvt`` on the bits of registers, written from the PTX ISA alone.

Floats are taken apart and put together digit by digit, and rounded in float64, which holds all that
is still to be rounded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]


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


def kept(word: Bits, source: str, into: str) -> Bits:
    """Return NaNs in another format: quiet, with their signs and first digits.

    PTX leaves it open; an H200 has it so between f64 and others.
    """
    a, b = FORMATS[source], FORMATS[into]
    fraction = word & np.uint64((1 << a.fraction) - 1)
    if b.fraction > a.fraction:
        fraction = fraction << np.uint64(b.fraction - a.fraction)
    else:
        fraction = fraction >> np.uint64(a.fraction - b.fraction)
    found = fraction | np.uint64(((2 << b.exponent) - 1) << (b.fraction - 1))
    return np.where(word >> np.uint64(a.bits - 1), found | np.uint64(1 << (b.bits - 1)), found)


def signed(bits: Bits) -> npt.NDArray[np.int64]:
    """Return 32 bits as an integer."""
    return bits.astype(np.uint32).view(np.int32).astype(np.int64)


def low(values: Any, bits: int = 32) -> Bits:
    """Return the low bits of integers."""
    return np.asarray(values).astype(np.int64).view(np.uint64) & np.uint64((1 << bits) - 1)


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
    if "f64" in (source, into) and source != "s32":
        pairs = zip(words, values, found, strict=True)
        found = [np.where(np.isnan(x), kept(w, source, into), code) for w, x, code in pairs]
    if into == "tf32":
        upper = words[0] & np.uint64(0xFFFFE000)  # as ptxas has it for sm_80 to sm_120
        found = [np.where(np.isnan(values[0]), upper, found[0] << np.uint64(13))]
    if pair:  # the first operand is the upper half
        return found[0] << np.uint64(FORMATS[into].bits) | found[1]
    return found[0]


def packed(target: str, a: Bits, b: Bits, c: Bits) -> Bits:
    """Return ``cvt.pack.sat``: b, then a, both saturated, below the lower half of c."""
    least, most = (-128, 127) if target == "s8" else (0, 255)
    one, two = (low(np.clip(signed(each), least, most), 8) for each in (a, b))
    return (c << np.uint64(16) | one << np.uint64(8) | two) & np.uint64(0xFFFFFFFF)


def cvt(mnemonic: str, words: Sequence[Bits]) -> Bits:
    """Return the bits that ``cvt`` gives.

    Raises:
        AssertionError: a form that is not known here.
    """
    if found := re.fullmatch(r"cvt\.pack\.sat\.(s8|u8)\.s32\.b32", mnemonic):
        return packed(found[1], *words)
    found = re.fullmatch(r"cvt(?:\.(rn|rz|rzi|rna))?(\.satfinite)?\.(\w+)\.(\w+)", mnemonic)
    assert found, f"an instruction of no known form: {mnemonic}"
    rounding, finite, into, source = found.groups()
    with np.errstate(all="ignore"):
        return converted(rounding or "", bool(finite), into, source, *words)
