"""Operands in shared memory: their descriptors, and where the tiles of an instruction start."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutalg import ComposeLayout, LayoutError, TileLayout
from layoutalg.fragments import transposed
from lowering.dispatch.addresses import linear_address, unmoved
from lowering.dispatch.registry import fail
from lowering.ir.index import Index, as_index
from lowering.ir.ops import SharedMatrix
from lowering.ir.tiles import BufferRegion
from lowering.isa.smem_descriptor import CHUNK, MAJORS, Descriptor, describe

SWIZZLE_PERIOD = 1024  # bytes after which every swizzle repeats
MOST_MOVES = 256  # starts of an operand over a loop, each of which is proved


def wide(region: BufferRegion) -> tuple[int, ...]:
    """Return the last two dimensions of a region, a matrix; those before have extent 1.

    Raises:
        DispatchFail: they are not two.
    """
    shape = region.shape
    if any(extent != 1 for extent in shape[:-2]) or len(shape) < 2:
        fail(f"operands are matrices; got {region} of shape {shape}")
    return len(shape) - 2, len(shape) - 1


def extents(region: BufferRegion) -> tuple[int, int]:
    """Return the rows and columns of a region."""
    rows, cols = wide(region)
    return int(region.shape[rows]), int(region.shape[cols])


@dataclass(frozen=True)
class SharedOperand:
    """A or B in shared memory: its descriptor, and where each of its tiles starts.

    ``along_k``: which of the matrix's two dimensions is K.
    """

    region: BufferRegion
    along_k: int
    descriptor: Descriptor

    def at(self, line: Index, k: int) -> SharedMatrix:
        """Return the tile that starts at a row of M or N, and at a K."""
        coordinate = [as_index(begin) for begin, _ in self.region.ranges]
        rows, cols = wide(self.region)
        dims = (cols, rows) if self.along_k == 0 else (rows, cols)
        coordinate[dims[0]] += line
        coordinate[dims[1]] += k
        address = linear_address(self.region.buffer, coordinate)
        return SharedMatrix(self.region.buffer.name, address, self.descriptor)


def accumulation(given: Any, k: int) -> bool | Index:
    """Return whether a K step accumulates: the first as the call says, later ones always.

    Args:
        given: of the call: True, False, or a number of variables, which may never be 0.
        k: where the step begins.
    """
    if k or isinstance(given, bool):
        return k > 0 or given
    number = as_index(given)
    return number.low > 0 or number


def unswizzled(region: BufferRegion) -> tuple[TileLayout | None, Index]:
    """Return the region's unswizzled layout at loop variables 0, and the offset that they add.

    None where no layout says the region.

    Raises:
        LayoutError: as :func:`lowering.dispatch.addresses.unmoved`.
    """
    buffer, layout = region.buffer, region.buffer.layout
    ranges, moved = unmoved(region)
    return layout.tile_over(buffer.shape).slice(buffer.shape, ranges), moved


def shared_operand(
    region: BufferRegion, role: str, along_k: int, rows: int, machine: str
) -> SharedOperand:
    """Return an operand in shared memory with its descriptor, proved.

    Args:
        region: of a buffer in shared memory.
        role: "A" or "B", for messages.
        along_k: 0 where rows run along K, 1 where columns do.
        rows: M or N of the instruction.
        machine: "wgmma" or "tcgen05".

    Raises:
        DispatchFail: no descriptor says the layout; the reason of each major is given.
        LayoutError: the region has no layout of its own.
    """
    buffer, shape = region.buffer, extents(region)
    layout = buffer.layout
    piece, moved = unswizzled(region)
    if piece is None:
        fail(f"{role}: no layout says the region {region}")
    if along_k == 0:
        piece, shape = transposed(piece, shape), shape[::-1]
    placed = layout.over(piece)
    bytes_apart = moved.unit * buffer.dtype.bits // 8
    unit = SWIZZLE_PERIOD if isinstance(layout, ComposeLayout) else CHUNK
    moves: tuple[int, ...] = (0,)
    if bytes_apart % unit:
        moves = _values(moved)
        if not moves:
            fail(
                f"{role}: {region} moves by {bytes_apart} bytes, and how often is known at launch; "
                f"a multiple of {unit} would fit"
            )
    reasons = []
    for major in MAJORS:
        try:
            found = describe(placed, shape, buffer.dtype, major, rows, machine=machine, moves=moves)
        except LayoutError as error:
            reasons.append(str(error))
        else:
            return SharedOperand(region, along_k, found)
    fail(f"{role}: {'; '.join(dict.fromkeys(reasons))}")


def _values(index: Index) -> tuple[int, ...]:
    """Return every value of an index; none where there are more than a descriptor is tried for."""
    if math.prod(index.limits().values()) > MOST_MOVES:
        return ()
    limits = index.limits()
    grid = np.meshgrid(*map(np.arange, limits.values()), indexing="ij")
    return tuple(np.unique(index.value(dict(zip(limits, grid, strict=True)))).tolist())
