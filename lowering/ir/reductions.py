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
from lowering.ir.tiles import Buffer, BufferRegion
from lowering.isa.dtypes import DType

# What joins two elements: a row of lowering.isa.functions. Each commutes, so both lanes of a
# shuffle get the same bits.
JOINS = {"max": "maximum", "min": "minimum", "sum": "add", "any": "bitwise_or"}
_NUMBERS = ("f16", "bf16", "f32", "f64", "s32")
_TOKENS = dict.fromkeys(JOINS, _NUMBERS) | {"any": ("s32",)}


@dataclass(frozen=True)
class Reduction:
    """A register tile whose elements along some dimensions become one; those have extent 1 then.

    Elements are joined in an order that the layout says, the same on every machine: first the
    registers of a thread, ascending, in a balanced tree; then lanes, from neighbours on; then
    warps, ascending, in a balanced tree.

    >>> from layoutalg import parse
    >>> s = Buffer("s", (8, 16), "float32", layout=parse("S[(8,4,4):(4@laneid,1@laneid,1)]"))
    >>> print(max(s, axis=1), max(s, axis=1).shape)
    max(s[0:8,0:16], axis=(1,)) (8, 1)
    """

    name: str
    region: BufferRegion
    axes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the result."""
        extents = enumerate(self.region.shape)
        return tuple(1 if dim in self.axes else extent for dim, extent in extents)

    @property
    def dtype(self) -> DType:
        """The type of the result: that of the tile."""
        return self.region.buffer.dtype

    def __str__(self) -> str:
        return f"{self.name}({self.region}, axis={self.axes})"


def max(tile: Any, axis: int | Sequence[int] | None = None) -> Reduction:
    """Reduce a register tile to its largest elements; a NaN stays.

    Args:
        tile: a tile in registers, or a region of one, of f16, bf16, f32, f64 or s32.
        axis: a dimension, several, or None for all.

    Raises:
        LayoutError: no register tile, another type, or no such dimension.
    """
    return _reduction("max", tile, axis)


def min(tile: Any, axis: int | Sequence[int] | None = None) -> Reduction:
    """Reduce a register tile to its smallest elements: as :func:`max`."""
    return _reduction("min", tile, axis)


def sum(tile: Any, axis: int | Sequence[int] | None = None) -> Reduction:
    """Reduce a register tile to sums: as :func:`max`.

    They are rounded in the tile's own type after each addition: cast a tile of 16 bits to f32 first
    where that is too coarse. Sums of s32 wrap.
    """
    return _reduction("sum", tile, axis)


def any(tile: Any, axis: int | Sequence[int] | None = None) -> Reduction:
    """Reduce a register tile of s32 to 1 where some element is not 0, else 0: as :func:`max`."""
    return _reduction("any", tile, axis)


def _reduction(name: str, tile: Any, axis: int | Sequence[int] | None) -> Reduction:
    """Return a reduction, its arguments checked.

    Raises:
        LayoutError: as the functions say.
    """
    region = tile.region() if isinstance(tile, Buffer) else tile
    if not isinstance(region, BufferRegion) or region.buffer.scope != "local":
        where = f"; {region} is in {region.buffer.scope}" if hasattr(region, "buffer") else ""
        raise LayoutError(
            f"{name}: reduces a register tile or a region of one{where or f'; got {tile!r}'}. Make "
            "it one first: by copy() from memory, by tile() of an expression"
        )
    token = region.buffer.dtype.token
    if token not in _TOKENS[name]:
        listed = ", ".join(_TOKENS[name])
        raise LayoutError(f"{name}: reduces {listed}; {region.buffer} is {token}: cast it first")
    return Reduction(name, region, as_axes(axis, len(region.shape), name))
