"""``tensor_memory``: what lies in the lanes and columns of tensor memory, block by block."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layoutalg.draw.maps import PAGE, finished, width_for
from layoutalg.draw.output import checked_path
from layoutalg.draw.ownership import IntArray, checked_shape
from layoutalg.draw.page import INCH, LINE, MARGIN, SMALL, Mark, frame, heading, key, page
from layoutalg.draw.palette import EMPTY, HUES, INK, NOTE, PAPER, WARP_HUES
from layoutalg.draw.panel import Path, Point
from layoutalg.draw.scene import Cell, Panel, Scene, Stroke, Text, centred, text_width
from layoutalg.errors import LayoutError
from layoutalg.layout import TileLayout
from layoutalg.memory_access import element_bits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LANES, _COLUMNS, _CELL = 128, 512, 32  # of tensor memory; bits of a cell
_QUARTER = 32  # lanes that one warp may load and store
_LANE = 2.25  # height of a lane, in points
_HEAD = 30.0  # height of what stands above the lanes
_GUTTER = 34.0
_GAP = 12.0
_SIZE = 6.0


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
        shape = checked_shape(self.shape, "tensor_memory")
        object.__setattr__(self, "shape", shape)
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
        if min(ends) < 0 or ends[1] >= _LANES or ends[3] >= _COLUMNS:
            raise LayoutError(
                f"tensor_memory: there are {_LANES} lanes and {_COLUMNS} columns; {self.name} is "
                f"in lanes {ends[0]} to {ends[1]}, columns {ends[2]} to {ends[3]}"
            )
        row, col, _ = self.cells()[:, lane, column - self.column]
        rows, cols, _ = np.indices(lane.shape)
        if (row - self.origin[0] != rows).any() or (col - self.origin[1] + inside != cols).any():
            raise LayoutError(
                f"tensor_memory: a cell holds {self.packed} neighbours of one row or fewer; "
                f"{self.name} as {self.layout} puts others together"
            )

    @property
    def packed(self) -> int:
        """The elements of a cell."""
        return _CELL // element_bits(self.dtype, "tensor_memory")

    def places(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return lane, column, and place in the cell of each copy: (rows, columns, copies)."""
        table = self.layout.table(self.shape, replicas=True)
        lane: IntArray = table["TLane"]
        column, inside = np.divmod(table.get("TCol", np.zeros_like(lane)), self.packed)
        return lane, self.column + column, inside

    def cells(self) -> IntArray:
        """Return row, column and number of copy of what each cell holds first; -1 for nothing.

        The shape is (3, lanes, columns), the columns from the first of the buffer on.
        """
        lane, column, inside = (values.reshape(-1) for values in self.places())
        size = self.shape[0] * self.shape[1]
        row, col, copy = (v.reshape(-1) for v in np.indices((*self.shape, lane.size // size)))
        held = np.full((3, _LANES, int(column.max()) + 1 - self.column), -1, dtype=np.int64)
        order = np.argsort(inside, kind="stable")[::-1]  # the first comes last, and stays
        where = lane[order], column[order] - self.column
        for n, values in enumerate((row + self.origin[0], col + self.origin[1], copy)):
            held[n][where] = values[order]
        return held


@dataclass(frozen=True)
class Block:
    """Lanes and columns, begin and end each, in which rows go with lanes and columns with columns.

    ``held``: row, column and number of copy of the first cell; None where nothing lies.
    """

    lanes: tuple[int, int]
    columns: tuple[int, int]
    held: tuple[int, int, int] | None

    def lines(self, buffer: TensorBuffer) -> tuple[str, ...]:
        """Say what the block holds."""
        if self.held is None:
            return ()
        row, col, copy = self.held
        (begin, end), (first, last) = self.lanes, self.columns
        count = (last - first) * min(buffer.packed, buffer.shape[1])
        said = (
            f"{buffer.names[0]} {_range(row, row + end - begin)}",
            f"{buffer.names[1]} {_range(col, col + count)}",
        )
        return (*said, f"copy {copy}") if copy else said


def _range(begin: int, end: int) -> str:
    return f"{begin}" if end - begin == 1 else f"{begin}..{end - 1}"


def blocks_of(buffer: TensorBuffer) -> list[Block]:
    """Cut a buffer into blocks, none across the lanes of two warps.

    >>> from layoutalg import tmem_datapath_layout
    >>> D = TensorBuffer("D", tmem_datapath_layout("F", 64, 16), (64, 16))
    >>> [(block.lanes, block.held) for block in blocks_of(D)][:3]
    [((0, 16), (0, 0, 0)), ((16, 32), None), ((32, 48), (16, 0, 0))]
    """
    held = buffer.cells()
    empty = held[0] < 0
    lane, column = np.indices(empty.shape)
    down = held - np.where(empty, 0, np.stack([lane, 0 * lane, 0 * lane]))
    along = held - np.where(empty, 0, np.stack([0 * lane, column * buffer.packed, 0 * lane]))
    new_lane = (down[:, 1:] != down[:, :-1]).any(axis=(0, 2))
    new_column = (along[:, :, 1:] != along[:, :, :-1]).any(axis=(0, 1))
    starts = [0, *(n for n in range(1, _LANES) if new_lane[n - 1] or n % _QUARTER == 0)]
    firsts = [0, *(np.flatnonzero(new_column) + 1).tolist()]
    return [
        Block(
            lanes,
            (buffer.column + columns[0], buffer.column + columns[1]),
            None if empty[lanes[0], columns[0]] else _first(held[:, lanes[0], columns[0]]),
        )
        for lanes in zip(starts, [*starts[1:], _LANES], strict=True)
        for columns in zip(firsts, [*firsts[1:], empty.shape[1]], strict=True)
    ]


def _first(held: IntArray) -> tuple[int, int, int]:
    row, col, copy = held.tolist()
    return row, col, copy


Memories = Mapping[str, Sequence[TensorBuffer]]


def tensor_memory_scene(memories: Memories, *, width: float = PAGE) -> Scene:
    """Return the picture that :func:`tensor_memory` draws, as data."""
    if not isinstance(memories, Mapping) or not memories or not all(memories.values()):
        raise LayoutError(
            f"tensor_memory: memories name buffers, {{title: [TensorBuffer, …]}}; got {memories!r}"
        )
    for title, buffers in memories.items():
        _apart(title, buffers)
    names = list(dict.fromkeys(b.name for buffers in memories.values() for b in buffers))
    title = f"tensor memory: {', '.join(names)}"
    notes = [
        "128 lanes from top to bottom; columns of 32 bits, in blocks, not to scale",
        "a block says what its cells hold: rows go down with the lanes, columns along",
    ]
    head, taken, top = heading(title, notes, width * INCH - 2 * MARGIN)
    panels, x = [head], MARGIN
    for number, (name, buffers) in enumerate(memories.items()):
        panel, right = _lanes(number, name, buffers, names, (x + _GUTTER, top + _HEAD))
        panels.append(panel)
        taken = max(taken, right - MARGIN)
        x = right + _GAP
    if taken > width * INCH - 2 * MARGIN + 0.01:
        raise LayoutError(
            f"tensor_memory: the blocks take {(taken + 2 * MARGIN) / INCH:.1f} inches; pass a "
            "larger width, or draw fewer buffers"
        )
    marks = [Mark(n, "fill", HUES[_hue(at)][0]) for at, n in enumerate(names)]
    every = [block for buffers in memories.values() for b in buffers for block in blocks_of(b)]
    if any(block.held and block.held[2] for block in every):
        marks.append(Mark("a copy: dashed", "dashed"))
    if any(block.held is None for block in every):
        marks.append(Mark("nothing", "fill", EMPTY))
    marks.append(Mark("lanes that one warp may load", "thick"))
    bottom = top + _HEAD + _LANE * _LANES + 6
    legend, legend_width, bottom = key(marks, MARGIN, bottom, max(taken, 200.0))
    return page(title, [*panels, legend], MARGIN + max(taken, legend_width), bottom)


def _hue(number: int) -> int:
    return WARP_HUES[number % len(HUES)]


def _apart(title: str, buffers: Sequence[TensorBuffer]) -> None:
    """Refuse buffers that share a cell.

    Raises:
        LayoutError: two of them do.
    """
    owner: dict[tuple[int, int], int] = {}
    for number, buffer in enumerate(buffers):
        lane, column, _ = (values.reshape(-1).tolist() for values in buffer.places())
        for cell in sorted(set(zip(lane, column, strict=True))):
            other = owner.setdefault(cell, number)
            if other != number:
                raise LayoutError(
                    f"tensor_memory: buffers must lie apart; in {title}, {buffers[other].name} and "
                    f"{buffer.name} share lane {cell[0]}, column {cell[1]}. Another first column "
                    "fits"
                )


def _lanes(
    number: int, name: str, buffers: Sequence[TensorBuffer], names: list[str], at: Point
) -> tuple[Panel, float]:
    """Draw the buffers of one tensor memory side by side; return the panel and its right edge."""
    x, y = at
    deep = _LANE * _LANES
    cells, heads, above = [], [], []
    texts: list[Text] = []
    edges: list[Path] = []
    copies: list[Path] = []
    frames: list[Stroke] = []
    left = x
    for buffer in sorted(buffers, key=lambda each: each.column):
        hue = HUES[_hue(names.index(buffer.name))]
        blocks = blocks_of(buffer)
        begin = left
        for columns in sorted({block.columns for block in blocks}):
            stack = [block for block in blocks if block.columns == columns]
            said = _range(*columns)
            lines = [line for block in stack for line in block.lines(buffer)]
            room = 12 if any(block.held and block.held[2] for block in stack) else 8
            wide = max(text_width(line, _SIZE) for line in lines) + room
            wide = max(wide, text_width(said, SMALL) + 4)
            above.append(Text(left + wide / 2, y - 2.5, said, SMALL, color=NOTE))
            for block in stack:
                low, high = (y + lane * _LANE for lane in block.lanes)
                held = block.held
                words = block.lines(buffer)
                title = f"{buffer.name} {', '.join(words)}" if held else "nothing"
                data = (
                    ("lanes", _range(*block.lanes)),
                    ("columns", said),
                    ("row", str(held[0] if held else -1)),
                    ("col", str(held[1] if held else -1)),
                    ("copy", str(held[2] if held else -1)),
                )
                fill = hue[min(held[2], 3)] if held else EMPTY
                cells.append(Cell(left, low, wide, high - low, fill, title, data))
                edges.append(((left, high), (left + wide, high)))
                if held and held[2]:
                    inner = (left + 2, low + 2, left + wide - 2, high - 2)
                    copies.append(_box(*inner))
                texts += centred(words, left + wide / 2, (low + high) / 2, _SIZE) if words else ()
            edges.append(((left + wide, y), (left + wide, y + deep)))
            left += wide
        heads.append(Text(begin, y - 11, buffer.name, LINE, "start", bold=True))
        left = max(left, begin + text_width(buffer.name, LINE, True) + 4)
        frames.append(frame(begin, y, _right(cells) - begin, deep))
        left += 4
    right = _right(cells)
    quarters = tuple(
        ((x - _GUTTER + 8, y + lane * _LANE), (right, y + lane * _LANE))
        for lane in range(_QUARTER, _LANES, _QUARTER)
    )
    for warp in range(_LANES // _QUARTER):
        first = warp * _QUARTER
        low = y + first * _LANE
        above.append(Text(x - 3, low + 6.5, str(first), SMALL, "end", color=NOTE))
        last = low + _QUARTER * _LANE - 3
        above.append(Text(x - 3, last, str(first + _QUARTER - 1), SMALL, "end", color=NOTE))
        middle = low + _QUARTER * _LANE / 2
        heads += centred((f"warp {warp}",), x - _GUTTER + 13, middle, SMALL, angle=90)
    above.append(Text(x - 3, y - 2.5, "column", SMALL, "end", color=NOTE))
    name_above = Text(x, y - 20, name, 7, "start", bold=True)
    strokes = [
        Stroke(tuple(edges), 0.6, PAPER, role="grid"),
        Stroke(tuple(copies), 0.5, INK, (2.4, 1.8), role="copy"),
        Stroke(quarters, 1.5, INK, role="warp"),
        *frames,
    ]
    panel = Panel(
        f"memory {number}",
        tuple(cells),
        tuple(stroke for stroke in strokes if stroke.paths),
        (name_above, *heads, *above, *texts),
    )
    return panel, max(right, x + text_width(name, 7, True))


def _box(left: float, top: float, right: float, low: float) -> Path:
    return ((left, top), (right, top), (right, low), (left, low), (left, top))


def _right(cells: list[Cell]) -> float:
    return max(cell.x + cell.width for cell in cells)


def tensor_memory(
    memories: Memories,
    path: str | os.PathLike[str] | None = None,
    ax: Axes | None = None,
    *,
    width: float | None = None,
) -> Figure:
    """Draw what lies where in tensor memory: 128 lanes, and columns of 32 bits.

    A block is a range of lanes and columns whose rows go with the lanes and whose columns go with
    the columns, so that its corners say all of it. Copies, which a layout's replica makes, are
    numbered and dashed. Thick lines part what each warp of a warpgroup may load and store.

    Args:
        memories: per title the buffers of one tensor memory: one panel for each CTA.
        path: file to write; the suffix says what.
        ax: axes to draw on, instead of a figure of its own.
        width: of the page in inches, 7 unless given.

    Raises:
        LayoutError: no buffers, buffers that share a cell, an unknown suffix, or too narrow a page.

    >>> from layoutalg import tmem_datapath_layout, tmem_scale_layout
    >>> D = TensorBuffer("D", tmem_datapath_layout("D", 128, 64), (128, 64))
    >>> SFA = TensorBuffer("SFA", tmem_scale_layout(128, 4), (128, 4), 8, 64, names=("m", "k/32"))
    >>> figure = tensor_memory({"one CTA": [D, SFA]})
    >>> [cell.title for cell in figure.scene.panel("memory 0").cells][4::4][:2]
    ['SFA m 0..31, k/32 0..3', 'SFA m 32..63, k/32 0..3']

    Source: PTX ISA, "Tensor Memory", and "Access restrictions" of tcgen05.ld.
    """
    checked = None if path is None else checked_path(path, "tensor_memory")
    scene = tensor_memory_scene(memories, width=width_for(ax, width))
    return finished(scene, checked, ax)
