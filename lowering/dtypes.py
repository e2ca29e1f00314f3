"""Element types: one row per dtype, with its PTX token, width and NumPy type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutalg import LayoutError


def _extended(name: str) -> Callable[[], np.dtype[Any]]:
    """Return a loader of an ml_dtypes type; the package is imported on first use."""

    def load() -> np.dtype[Any]:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))

    return load


@dataclass(frozen=True)
class DType:
    """An element type: ``name`` as NumPy and TVM spell it, ``token`` as PTX does, width in bits.

    >>> get("bfloat16").token, get("f16").name
    ('bf16', 'float16')
    """

    name: str
    token: str
    bits: int
    load: Callable[[], np.dtype[Any]]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy (or ml_dtypes) type that holds one element."""
        return self.load()

    @property
    def word(self) -> str:
        """The unsigned NumPy type of the element's bits, such as ``uint16``."""
        return f"uint{max(self.bits, 8)}"

    def __str__(self) -> str:
        """Return the name."""
        return self.name


DTYPES: tuple[DType, ...] = (
    DType("float16", "f16", 16, lambda: np.dtype(np.float16)),
    DType("bfloat16", "bf16", 16, _extended("bfloat16")),
    DType("float32", "f32", 32, lambda: np.dtype(np.float32)),
    DType("tfloat32", "tf32", 32, lambda: np.dtype(np.float32)),
    DType("float64", "f64", 64, lambda: np.dtype(np.float64)),
    DType("int8", "s8", 8, lambda: np.dtype(np.int8)),
    DType("uint8", "u8", 8, lambda: np.dtype(np.uint8)),
    DType("int32", "s32", 32, lambda: np.dtype(np.int32)),
    DType("float8_e4m3fn", "e4m3", 8, _extended("float8_e4m3fn")),
    DType("float8_e5m2", "e5m2", 8, _extended("float8_e5m2")),
)

_BY_NAME = {key: row for row in DTYPES for key in (row.name, row.token)}


def get(name: object) -> DType:
    """Return the row of a dtype, by its name, its PTX token, or a NumPy type.

    Raises:
        LayoutError: unknown; the known names are listed.

    >>> get("float17")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: dtype: 'float17' is unknown; known are float16, bfloat16, \
float32, tfloat32, float64, int8, uint8, int32, float8_e4m3fn, float8_e5m2
    """
    if isinstance(name, DType):
        return name
    row = _BY_NAME.get(name) if isinstance(name, str) else None
    if row is None and not isinstance(name, str):
        try:
            row = _BY_NAME.get(np.dtype(name).name)  # type: ignore[call-overload]
        except TypeError:
            row = None
    if row is None:
        known = ", ".join(each.name for each in DTYPES)
        raise LayoutError(f"dtype: {name!r} is unknown; known are {known}")
    return row
