"""The arithmetic of tensor cores, on matrices in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lowering.isa.mma import MmaInst
from lowering.isa.tcgen05 import TensorInst
from lowering.isa.wgmma import WgmmaInst

PAIRS = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])  # two nonzeros of four columns

Matrix = npt.NDArray[Any]


def expanded(values: Matrix, positions: Matrix) -> Matrix:
    """Return the dense matrix of 2:4 sparse values: two in each four columns, at their positions.

    >>> expanded(np.array([[5.0, 6.0]]), np.array([[1.0, 3.0]])).tolist()
    [[0.0, 5.0, 0.0, 6.0]]
    """
    count = values.shape[-1]
    cols = np.arange(count) // 2 * 4 + positions.astype(np.int64)
    dense = np.zeros((*values.shape[:-1], 2 * count), dtype=values.dtype)
    np.put_along_axis(dense, cols, values, axis=-1)
    return dense


def scaled(a: Matrix, b: Matrix, sfa: Matrix, sfb: Matrix) -> tuple[Matrix, Matrix]:
    """Return A and B with each block of K multiplied by its scale.

    >>> one = np.ones((1, 4))
    >>> scaled(one, one.T, np.array([[2.0, 4.0]]), np.array([[1.0], [1.0]]))[0].tolist()
    [[2.0, 2.0, 4.0, 4.0]]
    """
    block = a.shape[-1] // sfa.shape[-1]
    return a * np.repeat(sfa, block, axis=-1), b * np.repeat(sfb, block, axis=-2)


def as_multiplied(matrix: Matrix, token: str) -> Matrix:
    """Return the values that an mma multiplies: of tf32 the upper 19 bits of each register.

    >>> as_multiplied(np.array([1 + 2**-11, 1 + 2**-10]), "tf32").tolist()
    [1.0, 1.0009765625]
    """
    if token != "tf32":
        return matrix
    bits = matrix.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    kept: Matrix = bits.view(np.float32).astype(np.float64)
    return kept


def as_accumulated(total: Matrix, inst: MmaInst | WgmmaInst | TensorInst) -> Matrix:
    """Return sums in the accumulator's type: rounded once; integers wrap, or saturate.

    Sums of integers are exact in float64: they stay far below 2**53.
    """
    dtype = inst.d.numpy
    if dtype.kind != "i":
        return total.astype(dtype)
    if inst.modifier == "satfinite":
        limits = np.iinfo(dtype)
        return np.clip(total, limits.min, limits.max).astype(dtype)
    return total.astype(np.int64).astype(dtype)
