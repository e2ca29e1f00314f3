"""Regions of tensor memory: the lane and the bit of every element.

A region fits an operand of ``tcgen05`` if its elements lie as the layout that the instruction
prescribes says, but for a first lane and column: these are its address.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError, TCol, TileLayout, TLane
from lowering.dispatch.addresses import fixed_ranges, linear_addresses
from lowering.ir.index import Index
from lowering.ir.tiles import Buffer, BufferRegion
from lowering.ir.tmem_ops import TensorMatrix
from lowering.isa.tcgen05 import CELL, COLUMNS, LANES

Ints = npt.NDArray[np.int64]


def places(layout: TileLayout, shape: tuple[int, ...], bits: int) -> tuple[Ints, Ints]:
    """Return the lane and the bit along the columns of each element, copies along a last dimension.

    Args:
        layout: over TLane and TCol; TCol counts elements.
        shape: of the tile.
        bits: of an element.

    Raises:
        LayoutError: another axis.

    >>> from layoutalg import tmem_scale_layout
    >>> lane, bit = places(tmem_scale_layout(128, 4), (128, 4), 8)
    >>> lane[33, 1].tolist(), bit[33, 1].tolist()
    ([1, 33, 65, 97], [40, 40, 40, 40])
    """
    table = layout.table(shape, replicas=True)
    if not set(table) <= {"TLane", "TCol"}:
        raise LayoutError(f"tensor memory has the axes TLane and TCol; got {layout}")
    zero = np.zeros((*shape, 1), dtype=np.int64)
    lane, column = np.broadcast_arrays(table.get("TLane", zero), table.get("TCol", zero))
    return lane, column * bits


@dataclass(frozen=True, eq=False)
class TensorTile:
    """A region of tensor memory at loop variables 0, and the offset in columns that they add.

    ``lane`` and ``bit``: of each element, copies along the last dimension.
    """

    buffer: Buffer
    lane: Ints
    bit: Ints
    moved: Index

    def at(self, lane: int | Index, column: int) -> TensorMatrix:
        """Return the address of a lane and column of the buffer, moved."""
        first = lane if isinstance(lane, Index) else Index((), lane)
        return TensorMatrix(self.buffer.name, first, self.moved + column)

    def base(
        self,
        row: int,
        col: int,
        wanted: tuple[Ints, Ints],
        lanes: tuple[int, ...] = (0,),
        unit: int = CELL,
    ) -> tuple[int, int] | None:
        """Return the first lane and bit of a part that lies as an instruction says, or None.

        Args:
            row: the first of the part.
            col: likewise.
            wanted: the lane and the bit of each element of the part, by :func:`places`.
            lanes: in which lanes the part may start.
            unit: what its first bit must be a multiple of.
        """
        lane, bit = wanted
        part = slice(row, row + lane.shape[0]), slice(col, col + lane.shape[1])
        if self.lane.shape[2] != lane.shape[2]:
            return None
        own_lane, own_bit = ordered(self.lane[part], self.bit[part])
        lane, bit = ordered(lane, bit)
        first = int(own_lane.flat[0] - lane.flat[0]), int(own_bit.flat[0] - bit.flat[0])
        alike = (own_lane - lane == first[0]) & (own_bit - bit == first[1])
        return first if alike.all() and first[0] in lanes and first[1] % unit == 0 else None


def ordered(lane: Ints, bit: Ints) -> tuple[Ints, Ints]:
    """Return places with their copies in ascending order.

    >>> ordered(np.array([[32, 0]]), np.array([[8, 0]]))[0].tolist()
    [[0, 32]]
    """
    order = np.argsort(lane * COLUMNS * CELL + bit, axis=-1)
    return np.take_along_axis(lane, order, -1), np.take_along_axis(bit, order, -1)


def tensor_tile(region: BufferRegion) -> TensorTile:
    """Return where a region lies.

    Raises:
        LayoutError: it leaves tensor memory, or moves along lanes or by parts of a column.

    >>> from layoutalg import tmem_datapath_layout
    >>> from layoutalg.sizes.symbolic import DigitSymbol
    >>> C = Buffer("C", (128, 256), "float32", "tmem", tmem_datapath_layout("D", 128, 256))
    >>> tile = tensor_tile(C[:, DigitSymbol("k", 2) * 128 : DigitSymbol("k", 2) * 128 + 128])
    >>> tile.bit[0, 1], str(tile.at(0, 5).column)
    (array([32]), 'k * 128 + 5')
    """
    buffer, bits = region.buffer, region.buffer.dtype.bits
    ranges, begins = fixed_ranges(region)
    here = linear_addresses(buffer, [Index((), begin) for begin, _ in ranges], (TLane, TCol))
    moved = linear_addresses(buffer, begins, (TLane, TCol))
    lanes, columns = (after - before for after, before in zip(moved, here, strict=True))
    if lanes.terms or any(coefficient * bits % CELL for coefficient, _ in columns.terms):
        raise LayoutError(
            f"tensor memory: {region} must move by whole columns of {CELL} bits, on its own lanes; "
            f"it moves by {lanes} lanes and {columns} elements of {bits} bits"
        )
    box = tuple(slice(begin, end) for begin, end in ranges)
    lane, bit = (each[box] for each in places(buffer.layout, buffer.shape, bits))
    shape = lane.shape[:-1]
    if lane.min() < 0 or lane.max() >= LANES or bit.min() < 0:
        raise LayoutError(
            f"tensor memory has lanes 0 to {LANES - 1} and columns from 0 on; {buffer} has lanes "
            f"{lane.min()} to {lane.max()}"
        )
    flat = shape[len(shape) - 2 :] if len(shape) > 1 else (1, *shape)
    if any(extent != 1 for extent in shape[:-2]):
        raise LayoutError(f"tensor memory: {region} must be a matrix; its shape is {shape}")
    copies = lane.shape[-1]
    return TensorTile(
        buffer, lane.reshape(*flat, copies), bit.reshape(*flat, copies), columns * bits // CELL
    )
