"""Element types: one row per dtype, with its PTX token, width and NumPy type."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutalg import LayoutError


@dataclass(frozen=True)
class DType:
    """An element type: ``name`` as NumPy and TVM spell it, ``token`` as PTX does, width in bits.

    ``module`` and ``holder`` say which type holds one element: ml_dtypes is imported on first use.
    ``shift`` is where the element's bits begin, in a container wider than the type.

    >>> get("bfloat16").token, get("f16").name
    ('bf16', 'float16')
    """

    name: str
    token: str
    bits: int
    holder: str
    module: str = "numpy"
    shift: int = 0

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy (or ml_dtypes) type that holds one element."""
        found: np.dtype[Any] = np.dtype(getattr(importlib.import_module(self.module), self.holder))
        return found

    @property
    def integers(self) -> tuple[int, int]:
        """The smallest and the largest integer that it holds; (0, 0) for a float.

        >>> get("s4").integers, get("b1").integers, get("f16").integers
        ((-8, 7), (0, 1), (0, 0))
        """
        if self.token[0] == "s":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        if (self.token[0] == "b" and self.token != "bf16") or re.fullmatch(r"u\d+", self.token):
            return 0, (1 << self.bits) - 1
        return 0, 0

    @property
    def word(self) -> str:
        """The unsigned NumPy type of the element's bits, such as ``uint16``."""
        return f"uint{max(self.bits, 8)}"

    def __str__(self) -> str:
        """Return the name."""
        return self.name


DTYPES: tuple[DType, ...] = (
    DType("float16", "f16", 16, "float16"),
    DType("bfloat16", "bf16", 16, "bfloat16", "ml_dtypes"),
    DType("float32", "f32", 32, "float32"),
    DType("tfloat32", "tf32", 32, "float32"),
    DType("float64", "f64", 64, "float64"),
    DType("int8", "s8", 8, "int8"),
    DType("uint8", "u8", 8, "uint8"),
    DType("int32", "s32", 32, "int32"),
    DType("int4", "s4", 4, "int4", "ml_dtypes"),
    DType("uint4", "u4", 4, "uint4", "ml_dtypes"),
    DType("uint1", "b1", 1, "uint8"),
    DType("float8_e4m3fn", "e4m3", 8, "float8_e4m3fn", "ml_dtypes"),
    DType("float8_e5m2", "e5m2", 8, "float8_e5m2", "ml_dtypes"),
    DType("float6_e3m2fn", "e3m2", 8, "float6_e3m2fn", "ml_dtypes"),
    DType("float6_e2m3fn", "e2m3", 8, "float6_e2m3fn", "ml_dtypes"),
    DType("float4_e2m1fn", "e2m1", 4, "float4_e2m1fn", "ml_dtypes"),
    DType("float4_e2m1fn_x8", "e2m1", 8, "float4_e2m1fn", "ml_dtypes", 2),
    DType("float8_e8m0fnu", "ue8m0", 8, "float8_e8m0fnu", "ml_dtypes"),
    DType("float8_ue4m3fn", "ue4m3", 8, "float8_e4m3fn", "ml_dtypes"),
    DType("uint2", "u2", 2, "uint2", "ml_dtypes"),
)

# Names first, then tokens: of two types with one token, the first listed has it.
_BY_NAME = {row.token: row for row in reversed(DTYPES)} | {row.name: row for row in DTYPES}


def get(name: object) -> DType:
    """Return the row of a dtype, by its name, its PTX token, or a NumPy type.

    Raises:
        LayoutError: unknown; the known names are listed.

    >>> get("float17")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: dtype: 'float17' is unknown; known are float16, bfloat16, \
float32, tfloat32, float64, int8, uint8, int32, int4, uint4, uint1, float8_e4m3fn, float8_e5m2, \
float6_e3m2fn, float6_e2m3fn, float4_e2m1fn, float4_e2m1fn_x8, float8_e8m0fnu, float8_ue4m3fn, uint2
    """
    if isinstance(name, DType):
        return name
    row = _BY_NAME.get(name) if isinstance(name, str) else None
    if isinstance(name, (type, np.dtype)):
        try:
            row = _BY_NAME.get(np.dtype(name).name)
        except TypeError:
            row = None
    if row is None:
        known = ", ".join(each.name for each in DTYPES)
        raise LayoutError(f"dtype: {name!r} is unknown; known are {known}")
    return row


# What a matrix product of each input type may give; the first by default.
OUTPUTS = {
    "f16": ("f16", "f32"), "bf16": ("bf16", "f32"), "e4m3": ("f32", "f16", "bf16"),
    "e5m2": ("f32", "f16", "bf16"), "s8": ("s32",), "u8": ("s32",),
}  # fmt: skip
