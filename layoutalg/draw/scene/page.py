"""A page: its heading, the flow of its panels, the key of colours and lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from layoutalg.draw.scene.grid import RISE, bracket_below, outline
from layoutalg.draw.scene.palette import INK, NOTE, PAPER
from layoutalg.draw.scene.scene import (
    Cell,
    Panel,
    Scene,
    Stroke,
    Text,
    checked_title,
    pieces,
    text_width,
)
from layoutalg.errors import LayoutError

INCH = 72.0
COLUMN, PAGE = 3.4, 7.0  # widths of a column and of a page of a paper, in inches
WIDER = "Pass a larger width, or wider axes"  # what fits where a page is too narrow
MARGIN = 5.0  # of every picture, in points
TITLE, LINE, SMALL = 7.5, 6.5, 5.0  # font sizes: heading, sentences, numbers
_SAMPLE = 12.0  # width of a mark in the key
_KEY_LINE = 9.5
_KEY_GAP = 9.0


@dataclass(frozen=True)
class Mark:
    """An entry of the key: a fill, or a line of a role, and what it means.

    An entry without a meaning shares that of the next one.

    ``role`` is ``"fill"``, ``"split"`` (two fills), ``"lane"`` (the black outline), ``"dashed"``,
    ``"solid"``, ``"thick"`` or ``"word"`` (a bracket).
    """

    meaning: str
    role: str = "fill"
    fill: str = PAPER
    second: str = PAPER
    inside: str = ""


def checked_names(names: object, function: str) -> tuple[str, str]:
    """Return what rows and columns are called.

    Raises:
        LayoutError: it is no pair of texts.

    >>> checked_names(["m", "k"], "descriptor")
    ('m', 'k')
    """
    if not isinstance(names, tuple | list) or len(names) != 2:
        raise LayoutError(
            f"{function}: names are those of rows and columns; got {names!r}. ('m', 'k') fits"
        )
    rows, columns = (checked_title(name, function) for name in names)
    return rows, columns


def checked_pair(numbers: object, function: str, meaning: str) -> tuple[int, int]:
    """Return two whole numbers.

    Raises:
        LayoutError: it is no pair of them.

    >>> checked_pair((0,), "descriptor", "lines")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: descriptor: lines, two whole numbers; got (0,). (0, 16) fits
    """
    if isinstance(numbers, tuple | list) and len(numbers) == 2:
        first, second = numbers
        if is_whole(first) and is_whole(second):
            return int(first), int(second)
    raise LayoutError(f"{function}: {meaning}, two whole numbers; got {numbers!r}. (0, 16) fits")


def is_whole(number: object) -> bool:
    """Say whether something is a whole number, of Python or NumPy.

    >>> is_whole(3), is_whole(1.5), is_whole(True)
    (True, False, False)
    """
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def wrapped(
    words: str, width: float, size: float, bold: bool = False, after: str = ", "
) -> list[str]:
    """Break a sentence after blanks or commas, or inside a word, into lines of ``width`` points.

    >>> wrapped("one two three", 45, 10)
    ['one two', 'three']
    """
    lines: list[str] = []
    parts = re.findall(rf"[^{after}]*[{after}]|[^{after}]+", words) or [""]
    for part in (piece for word in parts for piece in pieces(word, width, size, bold)):
        if lines and text_width(lines[-1] + part.rstrip(), size, bold) <= width:
            lines[-1] += part
        else:
            lines.append(part)
    return [line.rstrip() for line in lines]


def heading(title: str, notes: Sequence[str], room: float) -> tuple[Panel, float, float]:
    """Set a bold title and sentences below it; return the panel, its width and its bottom."""
    texts = []
    y = MARGIN - 1.5
    for line in wrapped(title, room, TITLE, True):
        y += TITLE + 2
        texts.append(Text(MARGIN, y, line, TITLE, "start", True))
    y += 1.5
    for note in notes:
        for line in wrapped(note, room, LINE):
            y += LINE + 2.2
            texts.append(Text(MARGIN, y, line, LINE, "start", color=NOTE))
    widest = max(text_width(t.string, t.size, t.bold) for t in texts)
    return Panel("title", texts=tuple(texts)), widest, y + 3


def key(marks: Sequence[Mark], x: float, y: float, room: float) -> tuple[Panel, float, float]:
    """Set the key in as many lines as ``room`` asks; return the panel, its width and its bottom."""
    cells, strokes, texts = [], [], []
    left, top, widest = x, y, 0.0
    for mark in marks:
        wide = _SAMPLE + (4 + text_width(mark.meaning, LINE) if mark.meaning else 0.0)
        if left > x and left + wide > x + room:
            left, top = x, top + _KEY_LINE
        middle = top + _KEY_LINE / 2
        if mark.role in ("fill", "split"):
            corner = mark.second if mark.role == "split" else None
            cells.append(Cell(left, middle - 3.75, _SAMPLE, 7.5, mark.fill, corner=corner))
            if mark.inside:
                texts.append(Text(left + _SAMPLE / 2, middle + RISE * SMALL, mark.inside, SMALL))
        else:
            strokes += _sample(mark.role, left, middle)
        widest = max(widest, left + wide - x)
        if mark.meaning:
            at = left + _SAMPLE + 4, middle + RISE * LINE
            texts.append(Text(*at, mark.meaning, LINE, "start"))
        left += wide + (_KEY_GAP if mark.meaning else 2.0)
    texts.sort(key=lambda text: (text.size, text.anchor))
    return Panel("legend", tuple(cells), tuple(strokes), tuple(texts)), widest, top + _KEY_LINE


def _sample(role: str, x: float, y: float) -> list[Stroke]:
    right = x + _SAMPLE
    if role == "lane":
        return [outline(x + 0.7, y - 3.3, _SAMPLE - 1.4, 6.6)]
    if role == "word":
        return [Stroke((bracket_below(x + 1, right - 1, y + 2, 3.0),), 0.5, NOTE, role="word")]
    weight, dashes = {"dashed": (0.6, (2.4, 1.8)), "solid": (0.8, None), "thick": (1.5, None)}[role]
    return [Stroke((((x, y), (right, y)),), weight, INK, dashes)]


def flow(widths: Iterable[float], room: float, gap: float) -> list[tuple[int, float]]:
    """Set boxes side by side, and in a new row where one does not fit: row and left edge of each.

    >>> flow([40, 40, 40], 100, 10)
    [(0, 0.0), (0, 50.0), (1, 0.0)]
    """
    row, x, found = 0, 0.0, []
    for width in widths:
        if x and x + width > room + 0.01:
            row, x = row + 1, 0.0
        found.append((row, x))
        x += width + gap
    return found


class Page:
    """A picture while it grows downwards: a heading, panels below it, the key last.

    Attributes:
        room: width between the margins, in points.
        panels: from the heading on.
        right: where the widest of them ends.
        bottom: where the last of them ends.
    """

    def __init__(self, title: str, notes: Sequence[str], width: float, head: str = "") -> None:
        """Begin with the heading, the title or ``head`` in its place; with none without notes."""
        self.title, self.room = title, width * INCH - 2 * MARGIN
        self.panels: list[Panel] = []
        self.right = self.bottom = MARGIN
        if notes:
            panel, taken, bottom = heading(head or title, notes, self.room)
            self.add(panel, MARGIN + taken, bottom)

    def add(self, panel: Panel, right: float = 0.0, bottom: float = 0.0) -> None:
        """Add a panel that ends at a right and a lower edge."""
        self.panels.append(panel)
        self.right, self.bottom = max(self.right, right), max(self.bottom, bottom)

    def key(self, marks: Sequence[Mark], x: float, y: float, room: float) -> None:
        """Set the key with its corner at (x, y), in as many lines as ``room`` asks."""
        panel, taken, bottom = key(marks, x, y, room)
        self.add(panel, x + taken, bottom)

    def scene(self) -> Scene:
        """Return the page: it ends where its content ends, on the right and below."""
        return Scene(self.right + MARGIN, self.bottom + MARGIN, self.title, tuple(self.panels))
