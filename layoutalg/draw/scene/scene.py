"""A picture as data: cells, strokes and texts in points, read by every writer.

A drawing function computes one :class:`Scene`; ``svg.py`` and ``mpl.py`` only write it down. The
unit is the PostScript point (1/72 inch), x grows to the right and y grows downwards, so a font
size, a line width and a cell edge are on one scale: the printed page.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from unicodedata import category

from layoutalg.draw.scene.palette import INK
from layoutalg.errors import LayoutError

CORNER = 0.45  # of a cell's edges, the colour of a second owner
Point = tuple[float, float]
Path = tuple[Point, ...]

SMALLEST_TEXT = 5.0  # points: nothing on a page is set smaller

# Advance widths of DejaVu Sans in em; Arial and Helvetica set every label of ours narrower.
_WIDTHS = {
    character: width
    for width, characters in (
        (0.278, "'ijl"),
        (0.295, "IJ"),
        (0.318, " ,."),
        (0.361, "/:;\\|f-"),
        (0.392, "()[]t"),
        (0.411, "!r"),
        (0.525, '"*_`sz?'),
        (0.557, "cL"),
        (0.603, "FPkvxy"),
        (0.636, "$0123456789{}ESTYabdeghnopqu"),
        (0.698, "ABCKRVXZ"),
        (0.748, "UN"),
        (0.787, "DGHOQ&"),
        (0.838, "w#+<=>^~\u00d7\u2192\u2212"),
        (0.863, "M"),
        (0.989, "Wm"),
    )
    for character in characters
}
_CAPITAL = 0.73  # height of a capital or a digit, in em
_LEADING = 0.34  # white between two lines of a label, in em
_BOLD = 1.2  # a bold label is wider by less than that


def text_width(string: str, size: float, bold: bool = False) -> float:
    """Return how wide a string is set, in points: an upper bound.

    >>> text_width("T31", 10) >= 18.8
    True
    """
    return _em(string) * size * (_BOLD if bold else 1.0)


@lru_cache(maxsize=4096)
def _em(string: str) -> float:
    return sum(_WIDTHS.get(character, 1.0) for character in string)


@lru_cache(maxsize=4096)
def number(value: float) -> str:
    """Write points with two decimals and no trailing zeros; never ``-0``.

    >>> number(2.50), number(-0.001)
    ('2.5', '0')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def pieces(word: str, width: float, size: float, bold: bool = False) -> list[str]:
    """Cut a word into pieces of at most ``width`` points, of one character or more.

    >>> pieces("mmmm", 25, 10)
    ['mm', 'mm']
    """
    found = [""]
    for character in word:
        longer = found[-1] + character
        if found[-1] and text_width(longer.rstrip(), size, bold) > width:
            found.append(character)
        else:
            found[-1] = longer
    return found


def checked_title(title: object, function: str) -> str:
    r"""Return a title that every kind of file can hold.

    Raises:
        LayoutError: it is no text, or holds a control character or half of a surrogate pair.

    >>> checked_title("a\nb", "lane_map")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: lane_map: a title is one line of text; got 'a\nb'
    """
    if isinstance(title, str) and not any(category(c) in ("Cc", "Cs") for c in title):
        return title
    raise LayoutError(f"{function}: a title is one line of text; got {title!r}")


def fitting_size(
    widest: float, lines: int, width: float, height: float, largest: float = 7.0
) -> float | None:
    """Return the font size at which a label of lines, one under another, fits a box, or None.

    Args:
        widest: the width of the widest line, in em.
        lines: how many.
        width: of the box, in points; a margin is taken from it.
        height: of the box, in points; a margin is taken from it.
        largest: the size that is never exceeded.

    >>> fitting_size(1.9, 2, 30, 30), fitting_size(1.9, 2, 8, 8)
    (7.0, None)
    """
    down = lines * _CAPITAL + (lines - 1) * _LEADING
    size = min(largest, (width - 1.2) / widest, (height - 3.0) / down)
    return int(size * 4) / 4 if size >= SMALLEST_TEXT else None


@dataclass(frozen=True, slots=True)
class Cell:
    """A filled rectangle that stands for one element.

    ``corner`` is the colour of a second owner, in the lower right corner: a triangle that takes
    ``CORNER`` of each edge. ``data`` are the ``data-…`` attributes, ``title`` is the tooltip.
    """

    x: float
    y: float
    width: float
    height: float
    fill: str
    title: str = ""
    data: tuple[tuple[str, str], ...] = ()
    corner: str | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """A string whose baseline starts (or is centred, or ends: ``anchor``) at (x, y).

    ``angle`` turns it counter-clockwise about that point, in degrees.
    """

    x: float
    y: float
    string: str
    size: float
    anchor: str = "middle"
    bold: bool = False
    color: str = INK
    angle: int = 0

    def __post_init__(self) -> None:
        """Hold the law that no text is smaller than ``SMALLEST_TEXT``."""
        assert self.size >= SMALLEST_TEXT, self
        assert self.anchor in ("start", "middle", "end"), self


@dataclass(frozen=True, slots=True)
class Stroke:
    """Polylines of one style; ``role`` says what they mean and is written to the SVG."""

    paths: tuple[Path, ...]
    width: float
    color: str = INK
    dashes: tuple[float, float] | None = None
    role: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A named group: cells lowest, then strokes in order, then texts."""

    name: str
    cells: tuple[Cell, ...] = ()
    strokes: tuple[Stroke, ...] = ()
    texts: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """A page of ``width`` by ``height`` points."""

    width: float
    height: float
    title: str
    panels: tuple[Panel, ...]

    def panel(self, name: str) -> Panel:
        """Return the panel of this name."""
        return next(panel for panel in self.panels if panel.name == name)


def centred(
    lines: tuple[str, ...],
    x: float,
    y: float,
    size: float,
    *,
    bold: bool = False,
    angle: int = 0,
) -> tuple[Text, ...]:
    """Set lines centred on the point (x, y), one under another; angle 90 reads bottom to top.

    >>> [round(text.y, 2) for text in centred(("T5", "a2"), 0, 0, 10)]
    [-1.7, 9.0]
    """
    pitch = (_CAPITAL + _LEADING) * size
    first = _CAPITAL * size / 2 - pitch * (len(lines) - 1) / 2
    return tuple(
        Text(x + first + pitch * i, y, line, size, bold=bold, angle=angle)
        if angle
        else Text(x, y + first + pitch * i, line, size, bold=bold)
        for i, line in enumerate(lines)
    )
