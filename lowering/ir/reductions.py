"""Reductions of register tiles along their dimensions, written as in NumPy with ``keepdims``.

:func:`max`, :func:`min`, :func:`sum` and :func:`any` build a :class:`Reduction`, which
``Kernel.tile`` and ``Kernel.assign`` take as a whole value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from layoutalg import LayoutError
from layoutalg.sizes.arguments import as_axes
from lowering.ir.expressions import Expression, as_expression
from lowering.isa import dtypes
from lowering.isa.dtypes import DType
from lowering.isa.functions import PRED

# What joins two elements: a row of lowering.isa.functions. Each commutes, so both lanes of a
# shuffle get the same bits.
JOINS = {"max": "maximum", "min": "minimum", "sum": "add", "any": "bitwise_or"}
_NUMBERS = ("f16", "bf16", "f32", "f64", "s32")
_TOKENS = dict.fromkeys(JOINS, _NUMBERS) | {"any": ("s32", PRED)}


@dataclass(frozen=True)
class Reduction:
    """A value for each element of a shape, of which those along some dimensions become one.

    The extent is 1 there. Elements are joined in an order that the layout says, the same on every
    machine: first the registers of a thread, ascending, in a balanced tree; then lanes, from
    neighbours on; then warps, ascending, in a balanced tree.

    >>> from layoutalg import parse
    >>> from lowering.ir.tiles import Buffer
    >>> s = Buffer("s", (8, 16), "float32", layout=parse("S[(8,4,4):(4@laneid,1@laneid,1)]"))
    >>> print(sum(s * s, axis=1), sum(s * s, axis=1).shape)
    sum((s * s), axis=(1,)) (8, 1)
    """

    name: str
    operand: Expression
    axes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the result."""
        extents = enumerate(self.operand.shape)
        return tuple(1 if dim in self.axes else extent for dim, extent in extents)

    @property
    def dtype(self) -> DType:
        """The type of the result: that of the operand, of truth values int32."""
        return dtypes.get("s32" if self.operand.token == PRED else self.operand.token)

    def __str__(self) -> str:
        return f"{self.name}({self.operand}, axis={self.axes})"


def max(x: Any, axis: int | Sequence[int] | None = None) -> Reduction:
    """Reduce to the largest elements along some dimensions; a NaN stays.

    Args:
        x: a register tile, a region of one, or an expression; of f16, bf16, f32, f64 or s32.
        axis: a dimension, several, or None for all; negative ones count from the end.

    Raises:
        LayoutError: no tile in registers, another type, or no such dimension.
    """
    return _reduction("max", x, axis)


def min(x: Any, axis: int | Sequence[int] | None = None) -> Reduction:
    """Reduce to the smallest elements along some dimensions: as :func:`max`."""
    return _reduction("min", x, axis)


def sum(x: Any, axis: int | Sequence[int] | None = None) -> Reduction:
    """Reduce to sums along some dimensions: as :func:`max`.

    Each addition is rounded in the operand's own type: cast 16 bits to f32 first where that is too
    coarse. Sums of s32 wrap.
    """
    return _reduction("sum", x, axis)


def any(x: Any, axis: int | Sequence[int] | None = None) -> Reduction:
    """Reduce truth values, or s32, to 1 where one is true, or not 0, else 0: as :func:`max`."""
    return _reduction("any", x, axis)


def _reduction(name: str, x: Any, axis: int | Sequence[int] | None) -> Reduction:
    """Return a reduction, its arguments checked.

    Raises:
        LayoutError: as the functions say.
    """
    value = as_expression(x, name)
    if not value.shape:
        raise LayoutError(f"{name}: reduces a tile or an expression of tiles; got {value}")
    if value.token not in _TOKENS[name]:
        listed = ", ".join(_TOKENS[name])
        raise LayoutError(f"{name}: reduces {listed}; {value} is {value.token}: cast it first")
    return Reduction(name, value, as_axes(axis, len(value.shape), name))
