"""What casts are tried on: every code of a narrow type; of a wide one what rounds in each way."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lowering.isa import dtypes
from lowering.isa.functions import PRED, Function

Array = npt.NDArray[Any]
NARROW = 16  # bits
RANDOM = 1 << 12


def codes(token: str) -> Array:
    """Return every element of a type of up to 16 bits."""
    dtype = dtypes.get(token)
    low, high = dtype.integers
    if low != high:
        return np.arange(low, high + 1).astype(dtype.numpy)
    return np.arange(1 << dtype.bits, dtype=dtype.word).view(dtype.numpy)


def _numbers() -> Array:
    """Return f64: those of narrow types, what lies halfway between two, and their neighbours."""
    found = []
    for token in ("f16", "bf16", "e4m3", "e5m2", "s8", "u8"):
        values = codes(token)[:: 1 if dtypes.get(token).bits < NARROW else 7].astype(np.float64)
        values = np.sort(values[np.isfinite(values)])
        found += [values, (values[1:] + values[:-1]) / 2]
    ends = [448, 464, 57344, 61440, 65504, 65520, 2.0**31, 2.0**31 - 1, 2.0**127, 3.4e38, 1e300]
    ends += [2.0**-149, 2.0**-150, 2.0**-133, 2.0**-134, 1e-300, 5e-324, 0.5, 127.5, 255.5, 0.0]
    middle = np.concatenate([*found, ends, np.negative(ends)])
    near = [
        np.nextafter(middle.astype(kind), kind(to))
        for kind in (np.float32, np.float64)
        for to in (-np.inf, np.inf)
    ]
    return np.concatenate([middle, *(each.astype(np.float64) for each in near)])


def inputs(function: Function, random: int = RANDOM) -> Array:
    """Return what to try a cast on, a multiple of 8 elements.

    Every code of a narrow type stands in every place of a word; of a type of 4 bits, each pair of
    bytes in each half.

    Args:
        function: the cast.
        random: how many random elements of a wide type.
    """
    token = function.operands[0]
    if token == PRED:
        return np.tile([False, True], 4)
    dtype = dtypes.get(token)
    if dtype.bits < 8:
        halves = np.arange(1 << 16, dtype=np.uint32)
        words = halves | (halves * np.uint32(40503) & np.uint32(0xFFFF)) << np.uint32(16)
        nibbles = words[:, None] >> np.arange(0, 32, 4, dtype=np.uint32) & np.uint32(15)
        return codes(token)[nibbles.ravel() ^ np.uint32(8 * (token == "s4"))]
    if dtype.bits <= NARROW:
        return np.concatenate([np.roll(codes(token), -at) for at in range(32 // dtype.bits)])
    bits = np.random.default_rng(0).integers(0, 1 << dtype.bits, random, dtype=dtype.word)
    specials = np.array([0, 1, (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)], dtype=dtype.word)
    with np.errstate(all="ignore"):
        numbers = _numbers()
        if token == "s32":
            powers = np.exp2(np.arange(31))
            near = [powers * m + a for m in (1, 1.5, 1.75) for a in (-1, 0, 1)]
            numbers = np.clip(np.trunc([*numbers, *np.concatenate(near)]), -(2**31), 2**31 - 1)
        else:
            numbers = np.concatenate([numbers, [np.nan, -np.nan, np.inf, -np.inf]])
        values = numbers.astype(dtype.numpy)
    found = np.concatenate([values, specials.view(dtype.numpy), bits.view(dtype.numpy)])
    return found[: len(found) // 8 * 8]


def bits_of(values: Array, token: str) -> Array:
    """Return the bits of elements."""
    dtype = dtypes.get(token)
    word: Array = np.ascontiguousarray(values).view(dtype.word)
    return word & dtype.numpy.type(0).view(dtype.word).dtype.type((1 << dtype.bits) - 1)


def registers(values: Array, token: str, count: int) -> list[Array]:
    """Return the registers that a cast takes of ``count`` elements a row, as it says."""
    if token == PRED:
        return [each.astype(np.uint32) for each in values.reshape(-1, count).T]
    dtype = dtypes.get(token)
    rows = np.ascontiguousarray(values).reshape(-1, count)
    if dtype.bits >= 32:
        kind = dtype.numpy if token in ("f32", "f64") else np.uint32
        return [np.ascontiguousarray(each).view(kind) for each in rows.T]
    per = 32 // dtype.bits
    bits = bits_of(rows, token).astype(np.uint32)
    places = np.arange(per, dtype=np.uint32) * np.uint32(dtype.bits)
    words = (bits.reshape(len(rows), -1, per) << places).sum(axis=2, dtype=np.uint32)
    return list(words.T)
