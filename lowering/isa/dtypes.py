"""Element types in kernels: the rows of :mod:`layoutalg.sizes.dtypes`, with their NumPy type."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutalg import LayoutError
from layoutalg.sizes.dtypes import OPERANDS, ElementType, element_type


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
    def pack(self) -> int:
        """How many elements share a 32-bit register; 1 of wider ones.

        >>> get("e4m3").pack, get("f16").pack, get("f64").pack
        (4, 2, 1)
        """
        return max(1, 32 // self.bits)

    @property
    def word(self) -> str:
        """The unsigned NumPy type of the element's bits, such as ``uint16``."""
        return f"uint{max(self.bits, 8)}"

    def __repr__(self) -> str:
        return f"DType({self.name!r})"

    def __str__(self) -> str:
        """Return the name."""
        return self.name


# What holds one element is NumPy's or ml_dtypes' type of its name, but for these.
_HOLDERS = {
    "tfloat32": "float32", "uint1": "uint8", "float4_e2m1fn_x8": "float4_e2m1fn",
    "float8_ue4m3fn": "float8_e4m3fn",
}  # fmt: skip
_SHIFTS = {"float4_e2m1fn_x8": 2}


def _of(row: ElementType) -> DType:
    holder = _HOLDERS.get(row.name, row.name)
    module = "numpy" if hasattr(np, holder) else "ml_dtypes"
    return DType(*row, holder, module, _SHIFTS.get(row.name, 0))


# Types of elements; b16 and b32, which PTX gives to registers, are none.
DTYPES: tuple[DType, ...] = tuple(_of(row) for row in OPERANDS if row.name != row.token)
_BY_NAME = {row.name: row for row in DTYPES}


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
    found = element_type(name)
    row = None if found is None else _BY_NAME.get(found.name)
    if row is None:
        known = ", ".join(each.name for each in DTYPES)
        raise LayoutError(f"dtype: {name!r} is unknown; known are {known}")
    return row


# What a matrix product of each input type may give; the first by default.
OUTPUTS = {
    "f16": ("f16", "f32"), "bf16": ("bf16", "f32"), "e4m3": ("f32", "f16", "bf16"),
    "e5m2": ("f32", "f16", "bf16"), "s8": ("s32",), "u8": ("s32",),
}  # fmt: skip
