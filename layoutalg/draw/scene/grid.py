"""A table of cells on the page: its fills, labels, rules, frame and numbers; boxes and brackets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from layoutalg.draw.scene.palette import INK, NOTE, PAPER
from layoutalg.draw.scene.scene import (
    SMALLEST_TEXT,
    Cell,
    Path,
    Point,
    Stroke,
    Text,
    fitting_size,
    text_width,
)

RISE = 0.365  # of a font size: the baseline lies that much below the middle of a digit


@dataclass(frozen=True, slots=True)
class Grid:
    """``rows`` by ``columns`` cells of size ``cell``; the corner of the first is ``at``.

    >>> table = Grid((10, 20), (8, 4), 2, 3)
    >>> [list(table)[-1], table.right, table.low, table.box(1, 2)[0]]
    [(1, 2), 34, 28, (26, 24)]
    """

    at: Point
    cell: Point
    rows: int
    columns: int

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield row and column of every cell, row by row."""
        return ((i, j) for i in range(self.rows) for j in range(self.columns))

    @property
    def right(self) -> float:
        """The right edge."""
        return self.at[0] + self.columns * self.cell[0]

    @property
    def low(self) -> float:
        """The lower edge."""
        return self.at[1] + self.rows * self.cell[1]

    def corner(self, i: float, j: float) -> Point:
        """Return the upper left corner of cell (i, j); fractions reach into the cell."""
        return self.at[0] + j * self.cell[0], self.at[1] + i * self.cell[1]

    def fill(
        self,
        i: int,
        j: int,
        color: str,
        title: str,
        data: Mapping[str, object],
        second: str | None = None,
    ) -> Cell:
        """Return cell (i, j); its tooltip is the title, its attributes are the data."""
        said = tuple((name, str(value)) for name, value in data.items())
        return Cell(*self.corner(i, j), *self.cell, color, title, said, second)

    def label(
        self, i: int, j: int, string: str, size: float, bold: bool = False, color: str = INK
    ) -> Text:
        """Set a string in the middle of cell (i, j)."""
        x, y = self.corner(i + 0.5, j + 0.5)
        return Text(x, y + RISE * size, string, size, bold=bold, color=color)

    def labels(self, strings: Iterable[str], size: float | None) -> list[Text]:
        """Set one string in each cell, row by row; none where there is no size that fits."""
        if size is None:
            return []
        each = zip(self, strings, strict=True)
        return [self.label(i, j, string, size) for (i, j), string in each if string]

    def box(self, i: int, j: int, rows: int = 1, columns: int = 1) -> Path:
        """Return the outline of cells from (i, j) on."""
        return rectangle(*self.corner(i, j), columns * self.cell[0], rows * self.cell[1])

    def levels(self, lines: Iterable[int]) -> tuple[Path, ...]:
        """Return a line from edge to edge above each of some rows."""
        return tuple((self.corner(i, 0), self.corner(i, self.columns)) for i in lines)

    def uprights(self, lines: Iterable[int]) -> tuple[Path, ...]:
        """Return a line from edge to edge left of each of some columns."""
        return tuple((self.corner(0, j), self.corner(self.rows, j)) for j in lines)

    def rules(self, weight: float = 0.6) -> Stroke:
        """Rule white lines between the cells."""
        inner = self.levels(range(1, self.rows)) + self.uprights(range(1, self.columns))
        return Stroke(inner, weight, PAPER, role="grid")

    def frame(self) -> Stroke:
        """Frame the table."""
        return frame(*self.at, self.columns * self.cell[0], self.rows * self.cell[1])

    def beside(self, names: Iterable[tuple[int, object]], gap: float = 3.0) -> list[Text]:
        """Name rows, left of the table."""
        return [
            Text(
                self.at[0] - gap,
                self.at[1] + (i + 0.5) * self.cell[1] + RISE * SMALLEST_TEXT,
                str(name),
                SMALLEST_TEXT,
                "end",
                color=NOTE,
            )
            for i, name in names
        ]

    def above(self, names: Iterable[tuple[float, object]], anchor: str = "middle") -> list[Text]:
        """Name columns over their middles, or with anchor ``"start"`` from their left edges on."""
        shift = 0.5 if anchor == "middle" else 0.0
        return [
            Text(
                self.at[0] + (j + shift) * self.cell[0],
                self.at[1] - 2.5,
                str(name),
                SMALLEST_TEXT,
                anchor,
                color=NOTE,
            )
            for j, name in names
        ]

    def numbers(self) -> list[Text]:
        """Number columns and rows, each or each 2nd, 4th, 8th … so that the numbers fit."""
        across = every(self.cell[0], text_width(str(self.columns - 1), SMALLEST_TEXT) + 1.5)
        down = every(self.cell[1], SMALLEST_TEXT + 0.5)
        return [
            *self.above((j, j) for j in range(0, self.columns, across)),
            *self.beside((i, i) for i in range(0, self.rows, down)),
        ]


def every(pitch: float, room: float) -> int:
    """Return the power of two at which numbers that need ``room`` fit, a cell being ``pitch``.

    >>> every(3.0, 10.0)
    4
    """
    step = 1
    while step * pitch < room:
        step *= 2
    return step


def label_size(labels: Iterable[str], cell: Point, largest: float = 6.0) -> float | None:
    """Return the font size at which every label fits a cell; None where one does not.

    >>> label_size(["T5", "T31"], (20, 12)), label_size(["T31"], (8, 12))
    (6.0, None)
    """
    widest = max((text_width(label, 1.0) for label in labels), default=0.0)
    return fitting_size(widest, 1, *cell, largest) if widest else None


def titled(x: float, y: float, title: str, note: str) -> tuple[Text, Text]:
    """Set a panel's title in bold, and a note beside it."""
    beside = x + text_width(title, 7, True) + 4
    return Text(x, y, title, 7, "start", bold=True), Text(beside, y, note, 6, "start", color=NOTE)


def rectangle(x: float, y: float, width: float, height: float) -> Path:
    """Return the corners of a rectangle, closed so that the last corner is sharp."""
    corners = ((x, y), (x + width, y), (x + width, y + height), (x, y + height))
    return (*corners, *corners[:2])


def outline(x: float, y: float, width: float, height: float, weight: float = 1.2) -> Stroke:
    """Draw the black frame that marks a lane, or a warp, in every panel."""
    return Stroke((rectangle(x, y, width, height),), weight, "#000000", role="lane")


def outlines(paths: Sequence[Path]) -> tuple[Stroke, Stroke]:
    """Outline what belongs to a lane in black, with a white halo."""
    halo = Stroke(tuple(paths), 2.4, PAPER, role="halo")
    return halo, Stroke(tuple(paths), 1.2, "#000000", role="lane")


def frame(x: float, y: float, width: float, height: float) -> Stroke:
    """Draw the frame of a panel."""
    return Stroke((rectangle(x, y, width, height),), 0.8, INK, role="frame")


def bracket_below(left: float, right: float, y: float, tick: float = 2.0) -> Path:
    """Return a bracket that opens upwards; downwards for a negative tick."""
    return ((left, y - tick), (left, y), (right, y), (right, y - tick))


def bracket_left(x: float, top: float, low: float, tick: float = 2.0) -> Path:
    """Return a bracket that opens to the right."""
    return ((x + tick, top), (x, top), (x, low), (x + tick, low))


def arrow(x: float, y: float, length: float) -> Stroke:
    """Draw an arrow to the right."""
    tip = x + length
    head = ((tip - 3.5, y - 2.5), (tip, y), (tip - 3.5, y + 2.5))
    return Stroke((((x, y), (tip, y)), head), 0.9, INK, role="arrow")
