"""Matrices as cells of memory: a caller's numbers in a buffer's type and layout, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError
from lowering.ir.index import FREE
from lowering.ir.tiles import Buffer, cells
from lowering.isa.dtypes import DType

Matrix = npt.NDArray[Any]
BYTE = 8


def as_matrix(
    value: Any, buffer: Buffer, role: str, shape: tuple[int, ...] | None = None
) -> Matrix:
    """Return a caller's matrix in the buffer's dtype, rounded to nearest where it is wider.

    Its shape is the buffer's unless another is named.

    Raises:
        LayoutError: another shape, or not numeric.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise LayoutError(f"operand {role}: {buffer.name} needs a matrix: {error}") from None
    shape = buffer.shape if shape is None else shape
    if array.shape != shape:
        bounded = [
            each
            for each, end in zip(buffer.shape, buffer.bounds, strict=True)
            if end is not None and each != FREE
        ]
        hint = (
            f". Copies stay below {', '.join(filter(None, buffer.bounds))}, of a whole matrix: an "
            "extent of 2**24 in param() takes what the launch gives"
        )
        raise LayoutError(
            f"operand {role}: {buffer.name} needs a matrix of shape {shape}; got {array.shape}"
            f"{hint if bounded else ''}"
        )
    kinds = "fiuV" if buffer.dtype.integers == (0, 0) else "bfiuV"
    if array.dtype.kind not in kinds or array.dtype.names is not None:
        raise LayoutError(f"operand {role}: needs numbers; got dtype {array.dtype}")
    check_range(array, buffer.dtype, role)
    return array.astype(buffer.dtype.numpy)


def check_range(values: Matrix, dtype: DType, role: str) -> None:
    """Refuse values that a type without fractions, or without signs, would change silently.

    Floats are rounded; integers are not, and scales have no sign.

    Raises:
        LayoutError: the first such value is named.

    >>> from lowering.isa import dtypes
    >>> check_range(np.array([0, 4]), dtypes.get("uint2"), "E")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: operand E: uint2 holds integers from 0 to 3; got 4
    """
    if dtype.token == "ue4m3":
        negative = values.astype(np.float64) < 0
        if negative.any():
            least = values[negative].flat[0]
            raise LayoutError(f"operand {role}: {dtype} has no sign; got {least}")
        return
    low, high = dtype.integers
    if (low, high) == (0, 0):
        return
    numbers = values.astype(np.float64)
    wrong = ~((numbers >= low) & (numbers <= high) & (numbers == np.floor(numbers)))
    if wrong.any():
        raise LayoutError(
            f"operand {role}: {dtype} holds integers from {low} to {high}; got "
            f"{values[wrong].flat[0]}"
        )


def poison(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Matrix:
    """Return an array of NaN, or of an unlikely integer, so that what is not written shows."""
    if dtype.kind in "iu":
        return np.full(shape, np.iinfo(dtype).min + 0x5A, dtype=dtype)
    return np.full(shape, np.nan).astype(dtype)


def physical(buffer: Buffer, matrix: Matrix) -> Matrix:
    """Return the cells of a buffer in memory that holds a matrix; padding is poisoned."""
    flat = poison(buffer.dtype.numpy, (cells(buffer),))
    flat[buffer.layout.table(buffer.shape)["m"]] = matrix
    return flat


def logical(buffer: Buffer, flat: Matrix) -> Matrix:
    """Return the matrix that a buffer's cells hold."""
    return flat[buffer.layout.table(buffer.shape)["m"]]  # type: ignore[no-any-return]


def to_bits(flat: Matrix, dtype: DType) -> Matrix:
    """Return elements as the unsigned integers that a kernel reads; narrow ones share bytes.

    >>> from lowering.isa import dtypes
    >>> to_bits(np.array([1, 2, 3, 4]).astype(dtypes.get("s4").numpy), dtypes.get("s4")).tolist()
    [33, 67]
    """
    if dtype.bits >= BYTE:
        bits: Matrix = flat.view(dtype.word)
        return bits << dtype.shift if dtype.shift else bits
    per = BYTE // dtype.bits
    low = flat.view(np.uint8) & ((1 << dtype.bits) - 1)
    shifts = np.arange(per, dtype=np.uint8) * dtype.bits
    packed: Matrix = np.bitwise_or.reduce(low.reshape(-1, per) << shifts, axis=1)
    return packed


def from_bits(bits: Matrix, dtype: DType) -> Matrix:
    """Return the elements that :func:`to_bits` wrote, for types of a byte or more.

    >>> from lowering.isa import dtypes
    >>> from_bits(np.array([0x3C00], dtype=np.uint16), dtypes.get("f16")).tolist()
    [1.0]
    """
    return (bits >> dtype.shift if dtype.shift else bits).view(dtype.numpy)
