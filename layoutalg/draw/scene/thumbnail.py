"""The fragments of an instruction at small size: colours and boundaries as compact SVG.

The tiles stand as in the large picture. Equal neighbours are one rectangle, and columns that
repeat are written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from layoutalg.draw.scene.chosen import Operand
from layoutalg.draw.scene.ownership import BoolArray, IntArray
from layoutalg.draw.scene.palette import FILLS, INK
from layoutalg.draw.scene.panel import BLOCK
from layoutalg.draw.scene.scene import number

_TALL, _WIDE = 96.0, 80.0  # of D of a warp, in pixels
_DEEP = 160.0  # of the k dimension
_WIDEST = 320.0  # of a tile of its own
_SCALE = 8.0  # of a scale factor
_GAP, _HEAD = 12.0, 13.0
_SMALLEST_BLOCK = 9.0  # pixels between dashed lines


@dataclass(frozen=True)
class Spot:
    """A tile with its corner and the size of its cells, in pixels."""

    operand: Operand
    x: float
    y: float
    cell: tuple[float, float]

    @property
    def right(self) -> float:
        """Right edge."""
        return self.x + self.operand.columns * self.cell[0]

    @property
    def low(self) -> float:
        """Lower edge."""
        return self.y + self.operand.rows * self.cell[1]


def spots_of(shown: Sequence[Operand]) -> tuple[Spot, ...]:
    """Place the tiles of an instruction: A left of D, B above it, or all in a row."""
    by = {operand.role: operand for operand in shown}
    if not {"A", "B", "D"} <= set(by):
        spots: list[Spot] = []
        x = 0.0
        for operand in shown:
            wide = min(10.0, _WIDEST / operand.columns)
            high = min(8.0, 1.25 * _TALL / operand.rows)
            spots.append(Spot(operand, x, _HEAD, (wide, high)))
            x = spots[-1].right + _GAP
        return tuple(spots)
    a, b, d = by["A"], by["B"], by["D"]
    cell = (_WIDE / d.columns, min(_TALL / d.rows, 10.0))
    deep = (min(cell[0], _DEEP / a.columns), min(cell[1], 0.75 * _DEEP / b.rows))
    x, y = 0.0, _HEAD
    placed = []
    if "SFA" in by:
        placed.append(("SFA", (_SCALE, cell[1])))
        x += by["SFA"].columns * _SCALE + _GAP
    if "SFB" in by:
        y += by["SFB"].rows * _SCALE + _HEAD
    left, right = x, x + a.columns * deep[0] + _GAP
    low = y + b.rows * deep[1] + _HEAD
    at = {"A": (left, low), "B": (right, y), "D": (right, low), "SFA": (0.0, low)}
    at |= {"SFB": (right, _HEAD), "E": (left, low + a.rows * cell[1] + _HEAD)}
    sizes = {"A": (deep[0], cell[1]), "B": (cell[0], deep[1]), "D": cell}
    sizes |= {"SFA": (_SCALE, cell[1]), "SFB": (cell[0], _SCALE), "E": (deep[0], 3.0)}
    return tuple(Spot(operand, *at[role], sizes[role]) for role, operand in by.items())


def thumbnail(shown: Sequence[Operand], title: str, name: str) -> str:
    """Return the tiles as an SVG element for a page.

    Args:
        shown: the operands.
        title: read aloud in place of the picture.
        name: begins the ids of its parts; no other picture of the page has it.

    >>> from layoutalg.draw.scene.chosen import operand_of
    >>> from layoutalg.fragments import get
    >>> text = thumbnail([operand_of(get("mma.m8n8k4.f64", "A"), None)], "A", "p")
    >>> text.count("<path fill="), text.count("<title>")
    (32, 1)
    """
    spots = spots_of(shown)
    width = max(max(s.right for s in spots), 40.0) + 1
    height = max(s.low for s in spots) + 1
    size = number(width + 1), number(height + 1)
    out = [
        f'<svg role="img" width="{size[0]}" height="{size[1]}" viewBox="-1 0 {size[0]} {size[1]}">'
        f"<title>{escape(title, quote=False)}</title>"
    ]
    out += [_tile(spot, f"{name}{n}") for n, spot in enumerate(spots)]
    return "".join([*out, "</svg>"])


def _tile(spot: Spot, name: str) -> str:
    tile = spot.operand.tile
    rows, columns = tile.owners.shape
    wide, high = spot.cell
    colors = tile.owners.colors()[..., 0]
    period = _period(colors)
    cells = "".join(
        f'<path fill="{FILLS[color]}" d="{_area(colors[:, :period] == color)}"/>'
        for color in np.unique(colors).tolist()
    )
    if period < columns:
        again = "".join(f'<use href="#{name}" x="{x}"/>' for x in range(period, columns, period))
        cells = f'<g id="{name}">{cells}</g>{again}'
    lines = ""
    if BLOCK * high >= _SMALLEST_BLOCK:
        lines += "".join(
            f"M0 {number(i * high)}H{number(columns * wide)}" for i in range(BLOCK, rows, BLOCK)
        )
    if BLOCK * wide >= _SMALLEST_BLOCK:
        lines += "".join(
            f"M{number(j * wide)} 0V{number(rows * high)}" for j in range(BLOCK, columns, BLOCK)
        )
    warps = ""
    if tile.owners.hue_is == "warp" and tile.owners.warp is not None:
        edges = np.flatnonzero(np.diff(tile.owners.warp[:, 0, 0])) + 1
        warps = "".join(f"M0 {number(i * high)}H{number(columns * wide)}" for i in edges.tolist())
    frame = f"M0 0H{number(columns * wide)}V{number(rows * high)}H0z"
    return (
        f'<g transform="translate({number(spot.x)} {number(spot.y)})">'
        f'<text y="-3">{escape(tile.title, quote=False)}</text>'
        f'<g transform="scale({number(wide)} {number(high)})" shape-rendering="crispEdges">'
        f"{cells}</g>"
        f'<g fill="none" stroke="{INK}">'
        + (f'<path stroke-width=".5" stroke-dasharray="2 1.5" d="{lines}"/>' if lines else "")
        + (f'<path stroke-width="1.2" d="{warps}"/>' if warps else "")
        + f'<path stroke-width=".8" d="{frame}"/></g></g>'
    )


def _period(colors: IntArray) -> int:
    """Return after how many columns the colours repeat to the end; all columns where never.

    >>> _period(np.array([[0, 1, 0, 1], [2, 3, 2, 3]])), _period(np.array([[0, 1, 0, 1, 0]]))
    (2, 5)
    """
    columns: int = colors.shape[1]
    if (colors[:, 1:] == colors[:, :-1]).all():
        return columns  # one run
    for period in range(1, columns // 2 + 1):
        if columns % period == 0 and (colors[:, period:] == colors[:, :-period]).all():
            return period
    return columns


def _area(marked: BoolArray) -> str:
    """Return rectangles that cover the marked cells: equal runs of neighbouring rows are one.

    >>> _area(np.array([[True, True], [True, True], [False, True]]))
    'M0 0h2v2h-2zM1 2h1v1h-1z'
    """
    found = []
    begun: dict[tuple[int, int], int] = {}  # columns of a rectangle: its first row
    steps = np.diff(np.pad(marked.astype(np.int8), ((0, 1), (1, 1))), axis=1)
    for i, step in enumerate(steps):  # the last row is empty and ends all
        ends = np.flatnonzero(step == -1).tolist()
        runs = set(zip(np.flatnonzero(step == 1).tolist(), ends, strict=True))
        found += [(begun.pop(run), *run, i) for run in set(begun) - runs]
        begun |= dict.fromkeys(runs - set(begun), i)
    return "".join(
        f"M{left} {top}h{right - left}v{low - top}h{left - right}z"
        for top, left, right, low in sorted(found)
    )
