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
        values = np.sort(codes(token).astype(np.float64))
        values = values[np.isfinite(values)]
        some = slice(None, None, 61 if dtypes.get(token).bits == NARROW else 1)
        found += [values[some], ((values[1:] + values[:-1]) / 2)[some]]
    ends = [448, 464, 57344, 61440, 65504, 65520, 2.0**31, 2.0**31 - 1, 2.0**127, 3.4e38, 1e300]
    ends += [2.0**-149, 2.0**-150, 2.0**-133, 2.0**-134, 1e-300, 5e-324, 0.5, 127.5, 255.5, 0.0]
    middle = np.concatenate([*found, ends, np.negative(ends)])
    near = [
        np.nextafter(middle.astype(kind), kind(to)).astype(np.float64)
        for kind in (np.float32, np.float64)
        for to in (-np.inf, np.inf)
    ]
    return np.concatenate([middle, *near])


def _integers() -> Array:
    """Return s32, as f64: what f32, f16 and bf16 round, and small ones."""
    powers = np.exp2(np.arange(31))
    near = [
        powers * (1 + part) + a
        for part in (0, 2**-8, 2**-7, 2**-11, 3 * 2**-11, 2**-24, 0.5)
        for a in (-1, 0, 1)
    ]
    found = np.trunc(np.concatenate([*near, np.arange(-512, 512), [65519, 65520, 65521]]))
    return np.clip(np.concatenate([found, -found]), -(2**31), 2**31 - 1)


def inputs(function: Function, random: int = RANDOM) -> Array:
    """Return what to try a cast on, a multiple of 8 elements; each stands in each place of a call.

    Of a type of 4 bits, each pair of bytes stands in each half of a word.

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
    rng = np.random.default_rng(0)
    if dtype.bits <= NARROW:
        found = rng.permutation(codes(token))
    else:
        with np.errstate(all="ignore"):
            numbers = _integers() if token == "s32" else _numbers()
            values = numbers.astype(dtype.numpy)
        bits = rng.integers(0, 1 << dtype.bits, random, dtype=dtype.word)
        bits[:4] = 0, 1, (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)
        found = np.concatenate([values, bits.view(dtype.numpy)])
        if token != "s32":
            found[-4:] = np.nan, -np.nan, np.inf, -np.inf
        found = rng.permutation(np.resize(found, -(-len(found) // 8) * 8))
    return np.concatenate([np.roll(found, -at) for at in range(4)])


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
