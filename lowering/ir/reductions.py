"""Reductions of expressions along dimensions, written as in NumPy with ``keepdims=True``.

Each builds an expression, so ``exp2(s - max(s, axis=1))`` reads as it would there. What is used
more than once is better given a name: ``m = k.tile("m", max(s, axis=1))``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from layoutalg import LayoutError
from layoutalg.sizes.arguments import as_axes
from lowering.ir.expressions import Expression, Reduction, as_expression
from lowering.isa.functions import PRED

# What joins two elements: a row of lowering.isa.functions. Each commutes, so both lanes of a
# shuffle get the same bits.
JOINS = {"max": "maximum", "min": "minimum", "sum": "add", "any": "bitwise_or"}
_NUMBERS = ("f16", "bf16", "f32", "f64", "s32")
_TOKENS = dict.fromkeys(JOINS, _NUMBERS) | {"any": ("s32", PRED)}


def max(x: Any, axis: int | Sequence[int] | None = None) -> Expression:
    """Reduce to the largest elements along some dimensions, which keep extent 1; a NaN stays.

    Args:
        x: a register tile, a region of one, or an expression; of f16, bf16, f32, f64 or s32.
        axis: a dimension, several, or None for all; negative ones count from the end.

    Raises:
        LayoutError: no tile in registers, another type, or no such dimension.

    >>> from layoutalg import parse
    >>> from lowering.ir.tiles import Buffer
    >>> s = Buffer("s", (8, 16), "float32", layout=parse("S[(8,4,4):(4@laneid,1@laneid,1)]"))
    >>> max(s * s, axis=1)
    Expression(max((s * s), axis=(1,)): [8, 1] f32)
    """
    return _reduction("max", x, axis)


def min(x: Any, axis: int | Sequence[int] | None = None) -> Expression:
    """Reduce to the smallest elements along some dimensions: as :func:`max`."""
    return _reduction("min", x, axis)


def sum(x: Any, axis: int | Sequence[int] | None = None) -> Expression:
    """Reduce to sums along some dimensions: as :func:`max`.

    Each addition is rounded in the operand's own type: cast 16 bits to f32 first where that is too
    coarse. Sums of s32 wrap.
    """
    return _reduction("sum", x, axis)


def any(x: Any, axis: int | Sequence[int] | None = None) -> Expression:
    """Reduce truth values, or s32, to 1 where one is true, or not 0, else 0: as :func:`max`."""
    return _reduction("any", x, axis)


def _reduction(name: str, x: Any, axis: int | Sequence[int] | None) -> Expression:
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
    found = Reduction(name, value, as_axes(axis, len(value.shape), name))
    return Expression(found, found.shape)
