"""The types of elements: the one table of their names and widths."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class ElementType(NamedTuple):
    """A type: ``name`` as NumPy, ml_dtypes and TVM spell it, ``token`` as PTX does, and its bits.

    The bits are those of an element in memory: six-bit floats take a byte.

    >>> OPERANDS[1]
    ElementType(name='bfloat16', token='bf16', bits=16)
    """

    name: str
    token: str
    bits: int


# What instructions take; of two types with one token, the first listed has it.
OPERANDS: tuple[ElementType, ...] = (
    ElementType("float16", "f16", 16), ElementType("bfloat16", "bf16", 16),
    ElementType("float32", "f32", 32), ElementType("tfloat32", "tf32", 32),
    ElementType("float64", "f64", 64), ElementType("int8", "s8", 8), ElementType("uint8", "u8", 8),
    ElementType("int32", "s32", 32), ElementType("int4", "s4", 4), ElementType("uint4", "u4", 4),
    ElementType("uint1", "b1", 1), ElementType("float8_e4m3fn", "e4m3", 8),
    ElementType("float8_e5m2", "e5m2", 8), ElementType("float6_e3m2fn", "e3m2", 8),
    ElementType("float6_e2m3fn", "e2m3", 8), ElementType("float4_e2m1fn", "e2m1", 4),
    ElementType("float4_e2m1fn_x8", "e2m1", 8), ElementType("float8_e8m0fnu", "ue8m0", 8),
    ElementType("float8_ue4m3fn", "ue4m3", 8), ElementType("uint2", "u2", 2),
    ElementType("b16", "b16", 16), ElementType("b32", "b32", 32),
)  # fmt: skip
# What memory holds besides.
STORED: tuple[ElementType, ...] = (
    ElementType("b4", "b4", 4), ElementType("b8", "b8", 8), ElementType("b64", "b64", 64),
    ElementType("int16", "s16", 16), ElementType("uint16", "u16", 16),
    ElementType("uint32", "u32", 32), ElementType("int64", "s64", 64),
    ElementType("uint64", "u64", 64),
)  # fmt: skip

_BY_TOKEN = {each.token: each for each in reversed((*OPERANDS, *STORED))}
_BY_NAME = _BY_TOKEN | {each.name: each for each in (*OPERANDS, *STORED)}


def element_type(dtype: object) -> ElementType | None:
    """Return the row of a type, by its name, its PTX token or a NumPy type; None where it has none.

    >>> element_type("float16") == element_type("f16") == element_type(np.float16)
    True
    >>> element_type("float17") is None
    True
    """
    if isinstance(dtype, (type, np.dtype)):
        try:
            dtype = np.dtype(dtype).name
        except TypeError:
            return None
    return _BY_NAME.get(dtype) if isinstance(dtype, str) else None


def bits_of(token: str) -> int:
    """Return the width of a type that the table has.

    >>> bits_of("bf16"), bits_of("uint2")
    (16, 2)
    """
    return _BY_NAME[token].bits
