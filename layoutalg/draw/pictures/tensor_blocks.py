"""What tensor memory holds: buffers over lanes and columns, cut into blocks of regular ranges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layoutalg.draw.scene.ownership import IntArray, checked_shape
from layoutalg.draw.scene.page import checked_names, checked_pair, is_whole
from layoutalg.draw.scene.scene import checked_title
from layoutalg.errors import LayoutError
from layoutalg.layouts.tile_layout import TileLayout
from layoutalg.memory.access import element_bits

LANES, _COLUMNS, _CELL = 128, 512, 32  # of tensor memory; bits of a cell
QUARTER = 32  # lanes that one warp may load and store
_LOWEST = 12  # lanes of a block that has room for its words


@dataclass(frozen=True)
class TensorBuffer:
    """A matrix, or the part of one that a CTA has, in tensor memory.

    Attributes:
        name: of the matrix.
        layout: over ``shape``, on axes TLane and TCol, the latter counted in elements.
        shape: (rows, columns).
        dtype: of the elements: bits, or a PTX type.
        column: the first, of 32 bits.
        origin: row and column of the matrix with which the part begins.
        names: of its rows and columns.

    >>> from layoutalg import tmem_scale_layout
    >>> scales = TensorBuffer("SFA", tmem_scale_layout(128, 4), (128, 4), 8)
    >>> scales.cells()[:, 37, 1].tolist()  # lane 37, column 1: row 37, from scale 0 on, a copy
    [37, 0, 1]
    """

    name: str
    layout: TileLayout
    shape: tuple[int, ...]
    dtype: int | str = 32
    column: int = 0
    origin: tuple[int, int] = (0, 0)
    names: tuple[str, str] = ("m", "n")

    def __post_init__(self) -> None:
        """Check the buffer.

        Raises:
            LayoutError: no matrix in tensor memory, or one that leaves it.
        """
        checked_title(self.name, "tensor_memory")
        shape = checked_shape(self.shape, "tensor_memory")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "names", checked_names(self.names, "tensor_memory"))
        of = f"{self.name}: origin is (row, column) of its first element"
        object.__setattr__(self, "origin", checked_pair(self.origin, "tensor_memory", of))
        if not is_whole(self.column):
            raise LayoutError(
                f"tensor_memory: column of {self.name} is an integer, 0..{_COLUMNS - 1}; got "
                f"{self.column!r}"
            )
        if not isinstance(self.layout, TileLayout) or len(shape) != 2:
            raise LayoutError(
                f"tensor_memory: {self.name} must be a TileLayout over (rows, columns); got "
                f"{self.layout} over {shape}"
            )
        table = self.layout.table(shape)
        if not set(table) <= {"TLane", "TCol"} or "TLane" not in table:
            raise LayoutError(
                f"tensor_memory: {self.name} must lie on the axes TLane and TCol; got {self.layout}"
            )
        bits = element_bits(self.dtype, "tensor_memory")
        if bits > _CELL:
            raise LayoutError(
                f"tensor_memory: an element has at most {_CELL} bits; {self.name} has {bits}"
            )
        lane, column, inside = self.places()
        ends = [int(end) for v in (lane, column) for end in (v.min(), v.max())]
        if min(ends) < 0 or ends[1] >= LANES or ends[3] >= _COLUMNS:
            raise LayoutError(
                f"tensor_memory: {self.name} takes lanes {ends[0]} to {ends[1]}, columns {ends[2]} "
                f"to {ends[3]}; tensor memory has {LANES} lanes and {_COLUMNS} columns"
            )
        row, col, _ = self.cells()[:, lane, column - self.column]
        rows, cols, _ = np.indices(lane.shape)
        if (row - self.origin[0] != rows).any() or (col - self.origin[1] + inside != cols).any():
            raise LayoutError(
                f"tensor_memory: a cell holds up to {self.packed} neighbours of one row; "
                f"{self.name} as {self.layout} packs others"
            )

    @property
    def packed(self) -> int:
        """The elements of a cell."""
        return _CELL // element_bits(self.dtype, "tensor_memory")

    def places(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return lane, column, and index in the cell of each copy: (rows, columns, copies)."""
        table = self.layout.table(self.shape, replicas=True)
        lane: IntArray = table["TLane"]
        column, inside = np.divmod(table.get("TCol", np.zeros_like(lane)), self.packed)
        return lane, self.column + column, inside

    def cells(self) -> IntArray:
        """Return row, column and copy number of the first element in each cell; -1 for none.

        The shape is (3, lanes, columns), the columns from the first of the buffer on.
        """
        lane, column, inside = (values.reshape(-1) for values in self.places())
        size = self.shape[0] * self.shape[1]
        row, col, copy = (v.reshape(-1) for v in np.indices((*self.shape, lane.size // size)))
        held = np.full((3, LANES, int(column.max()) + 1 - self.column), -1, dtype=np.int64)
        order = np.argsort(inside, kind="stable")[::-1]  # the first comes last, and stays
        where = lane[order], column[order] - self.column
        for n, values in enumerate((row + self.origin[0], col + self.origin[1], copy)):
            held[n][where] = values[order]
        return held


Held = tuple[int, int, int]  # row, column and number of copy of what a cell holds first


@dataclass(frozen=True)
class Block:
    """Ranges of lanes and columns in which rows advance with lanes, and columns with columns.

    ``turns``: what the first lanes hold, None for nothing. Lane n of the block holds what
    ``turns[n % len(turns)]`` says, ``step * (n // len(turns))`` rows further.
    """

    lanes: tuple[int, int]
    columns: tuple[int, int]
    turns: tuple[Held | None, ...]
    step: int = 1

    @property
    def held(self) -> Held | None:
        """What the first cell in use holds; None where none is."""
        return next((each for each in self.turns if each), None)

    @property
    def copies(self) -> tuple[int, ...]:
        """The copies' numbers, where any is not the first."""
        found = tuple(dict.fromkeys(each[2] for each in self.turns if each))
        return found if any(found) else ()

    def lines(self, buffer: TensorBuffer) -> tuple[str, ...]:
        """Describe the block: ranges of rows and of columns, and copies."""
        if self.held is None:
            return ()
        (begin, end), (first, last) = self.lanes, self.columns
        count = (last - first) * min(buffer.packed, buffer.shape[1])
        times = (end - begin) // len(self.turns)
        rows = [
            range_of(t[0], t[0] + times * self.step, self.step) if t else "nothing"
            for t in self.turns
        ]
        col = self.held[1]
        said = [f"{buffer.names[0]} {rows[0]}", f"{buffer.names[1]} {range_of(col, col + count)}"]
        if len(rows) > 1:
            said[:1] = [
                f"{buffer.names[0]} {rows[0]},",
                *(f"{row}," for row in rows[1:-1]),
                rows[-1],
            ]
            said.insert(len(rows), "lane by lane")
        if self.copies:
            said.append(f"copy {', '.join(map(str, self.copies))}")
        return tuple(said)


def range_of(begin: int, end: int, step: int = 1) -> str:
    """Write a range as its first and last number.

    >>> range_of(0, 8, 2), range_of(3, 4)
    ('0..6 by 2', '3')
    """
    if end - begin == step:
        return f"{begin}"
    return f"{begin}..{end - step}{f' by {step}' if step > 1 else ''}"


def blocks_of(buffer: TensorBuffer) -> list[Block]:
    """Cut a buffer into blocks, none across the lanes of two warps.

    Where neighbouring lanes do not hold neighbouring rows: as few blocks as 1, 2 or 4 interleaved
    ranges of rows and one step describe.

    >>> from layoutalg import parse, tmem_datapath_layout
    >>> D = TensorBuffer("D", tmem_datapath_layout("F", 64, 16), (64, 16))
    >>> [(block.lanes, block.held) for block in blocks_of(D)][:3]
    [((0, 16), (0, 0, 0)), ((16, 32), None), ((32, 48), (16, 0, 0))]
    >>> E = TensorBuffer("E", parse("S[(2,64,8):(1@TLane,2@TLane,1@TCol)]"), (128, 8))
    >>> blocks_of(E)[0].lines(E)
    ('m 0..15,', '64..79', 'lane by lane', 'n 0..7')
    """
    held = buffer.cells()
    empty = held[0] < 0
    column = np.indices(empty.shape)[1]
    along = held - np.where(empty, 0, np.stack([0 * column, column * buffer.packed, 0 * column]))
    new_column = (along[:, :, 1:] != along[:, :, :-1]).any(axis=(0, 1))
    firsts = [0, *(np.flatnonzero(new_column) + 1).tolist()]
    ends = [*firsts[1:], empty.shape[1]]
    return [
        Block(
            lanes,
            (buffer.column + begin, buffer.column + end),
            tuple(_first(held[:, lanes[0] + n, begin]) for n in range(turns)),
            step,
        )
        for first in range(0, LANES, QUARTER)
        for lanes, turns, step in _runs(held[:, first : first + QUARTER, firsts], first)
        for begin, end in zip(firsts, ends, strict=True)
    ]


def _runs(held: IntArray, first: int) -> list[tuple[tuple[int, int], int, int]]:
    """Cut a warp's lanes into (begin, end), each with its number of interleaved rows and step."""
    new = [0, *(n for n in range(1, QUARTER) if not _goes_on(held[:, n - 1 : n + 1], 1, 1))]
    ends = [*new[1:], QUARTER]
    if min(end - begin for begin, end in zip(new, ends, strict=True)) < _LOWEST:
        for turns in (1, 2, 4):
            later = held[0, turns:] - held[0, :-turns]
            step = int(later[held[0, turns:] >= 0][0]) if (held[0, turns:] >= 0).any() else 0
            if step > 0 and _goes_on(held, turns, step):
                return [((first, first + QUARTER), turns, step)]
    return [((first + begin, first + end), 1, 1) for begin, end in zip(new, ends, strict=True)]


def _goes_on(held: IntArray, turns: int, step: int) -> bool:
    """Say whether each lane holds what lane ``- turns`` does, ``step`` rows further, or nothing."""
    before, after = held[:, :-turns], held[:, turns:]
    further = np.array([step, 0, 0])[:, None, None]
    return bool((after == np.where(before < 0, -1, before + further)).all())


def _first(held: IntArray) -> Held | None:
    row, col, copy = held.tolist()
    return None if row < 0 else (row, col, copy)
