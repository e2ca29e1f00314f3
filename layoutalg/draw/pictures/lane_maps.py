"""``lane_map``: one layout as one panel with a legend."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from layoutalg.draw.scene.legend import legend_of, swatches_of
from layoutalg.draw.scene.output import checked_path, write
from layoutalg.draw.scene.ownership import DEFAULT_LANE, HasTable, labels_of, owners_of
from layoutalg.draw.scene.panel import LEVELS, Point, Tile, gutter, header, panel_of, placed
from layoutalg.draw.scene.scene import Panel, Scene, Text, checked_title, pieces, text_width
from layoutalg.draw.scene.svg import svg_text
from layoutalg.errors import LayoutError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INCH = 72.0
COLUMN, PAGE = 3.4, 7.0  # widths of a column and of a page of a paper, in inches
WIDER = "Pass a larger width, or wider axes"  # what fits where a page is too narrow
MARGIN = 5.0  # of every picture, in points
_DEEPEST = 600.0  # height of a panel, in points: it fits a page
_TITLE = 6.5


def cell_size(width: float, rows: int, columns: int, widest: float = 22.0) -> Point:
    """Return width and height of a cell in a panel that may be ``width`` points wide.

    Cells are square where they are small, and low where two lines of text fit.

    >>> cell_size(200, 16, 8), cell_size(504, 128, 128)
    ((22.0, 14.0), (3.75, 3.75))
    """
    wide = min(width / columns, widest)
    high = wide if wide < 10.5 else 13.0 if wide < 13 else min(wide, 14.0)
    high = min(max(high, min(13.0, 60.0 / rows)), _DEEPEST / rows)
    return _snapped(wide), _snapped(high)


def _snapped(points: float) -> float:
    """Round down to a quarter of a point where that is a small part: files stay short."""
    return int(points * 4) / 4 if points >= 2.5 else int(points * 100) / 100


def lane_map_scene(
    layout: HasTable,
    shape: Sequence[int],
    lane: int | None = DEFAULT_LANE,
    *,
    width: float | None = None,
    title: str | None = None,
    instruction: tuple[int, int] | None = None,
    register: str | None = None,
) -> Scene:
    """Return the picture that :func:`lane_map` draws, as data."""
    owners = owners_of(layout, shape, "lane_map").led_by(lane)
    if instruction is not None and (
        len(instruction) != 2 or any(extent < 1 for extent in instruction)
    ):
        raise LayoutError(
            f"lane_map: instruction is (rows, columns) of one instruction; got {instruction}. "
            "(16, 8) fits an accumulator of m16n8"
        )
    rows, columns = owners.shape
    prefix = register
    if prefix is None:
        alone = len(owners.memory) == 1 and not owners.threads
        prefix = owners.memory[0][0] if owners.memory and not alone else ""
    held = owners.holds(lane, "lane_map")
    labels = labels_of(owners, f"{prefix}{{}}".format)
    tile = Tile("", "", owners, labels, held=held, instruction=instruction)
    edge = 2 * MARGIN + gutter(rows)

    # The narrowest page and cell that show as much as any, but no cells of less than 3 points.
    pages = (checked_width(width),) if width is not None else (COLUMN, PAGE)
    cells = dict.fromkeys(
        cell_size(page * INCH - edge, rows, columns, widest)
        for page in pages
        for widest in (22.0, 34.0)
        if page == pages[-1] or columns * 3.0 <= page * INCH - edge
    )
    tried = [placed(tile, cell) for cell in cells]
    shown = min(tried, key=lambda each: LEVELS.index(each.detail.level))
    cell = shown.cell
    if min(cell) <= 0.1:
        raise LayoutError(
            f"lane_map: a cell must be 0.1 points or larger; {columns} columns do not fit "
            f"{pages[-1]:g} inches. {WIDER}, or slice the layout"
        )
    room = max(shown.width + gutter(rows), COLUMN * INCH - 2 * MARGIN)
    name = str(layout) if title is None else checked_title(title, "lane_map")
    lines = wrapped_title(name, room)
    below = MARGIN + (_TITLE + 2) * len(lines)
    heading = Panel(
        "title",
        texts=tuple(
            Text(MARGIN, MARGIN + 5.5 + (_TITLE + 2) * n, line, _TITLE, "start")
            for n, line in enumerate(lines)
        ),
    )
    at = (MARGIN + gutter(rows), below + header(tile) + 2)
    panel = panel_of("map", shown, at)
    outlined = lane if held is not None else None
    low = at[1] + rows * cell[1]
    indent = swatches_of(owners, outlined).margin
    left = max(at[0] - indent, MARGIN)
    legend, taken, depth = legend_of((shown,), outlined, left, low + 7, room + MARGIN - left)
    content = max(
        gutter(rows) + columns * cell[0],
        left - MARGIN + taken,
        *(text_width(line, _TITLE) for line in lines),
    )
    return Scene(
        content + 2 * MARGIN,
        low + 7 + depth + MARGIN,
        name,
        (heading, panel, legend),
    )


def wrapped_title(title: str, width: float) -> list[str]:
    """Break a title after commas and blanks, or inside a word, into lines of ``width`` points.

    >>> wrapped_title("S[(2,8):(1,2)]", 40)
    ['S[(2,8):(1,', '2)]']
    """
    lines: list[str] = []
    words = re.findall(r"[^,: ]*[,: ]|[^,: ]+$", title)
    for part in (piece for word in words for piece in pieces(word, width, _TITLE)):
        if lines and text_width(lines[-1] + part.rstrip(), _TITLE) <= width:
            lines[-1] += part
        else:
            lines.append(part)
    return [line.rstrip() for line in lines]


def lane_map(
    layout: HasTable,
    shape: Sequence[int],
    lane: int | None = DEFAULT_LANE,
    path: str | os.PathLike[str] | None = None,
    ax: Axes | None = None,
    *,
    width: float | None = None,
    title: str | None = None,
    instruction: tuple[int, int] | None = None,
    register: str | None = None,
) -> Figure:
    """Draw which lane and which register hold each element of a tile.

    Cell (i, j) names the owners ``layout`` maps the element (i, j) to. Hue is the 4-lane group, or
    the warp where there are several; without threads it is the range of the address. How much is
    written in a cell follows from its size on the page; no text is smaller than 5 points.

    Args:
        layout: anything with ``table(shape, replicas=True)``: a ``TileLayout`` of any axes.
        shape: (rows, columns), or (columns,): the elements of the layout, row-major.
        lane: thread whose cells are outlined, ``32 * warp + lane`` where there are warps; None for
            none. The default lane 5 outlines nothing where the layout has no lane 5.
        path: file to write; ``.svg``, ``.tex``, ``.png`` or ``.pdf``.
        ax: axes to draw on, instead of a figure of its own.
        width: of the page in inches; 3.4 or 7 by the size of the tile.
        title: of the picture; the layout's text unless given.
        instruction: (rows, columns) of one instruction, to mark with solid lines.
        register: what precedes a register's number; the memory axis' name unless given.

    Returns:
        The figure; it knows its ``scene``, and shows as SVG in a notebook.

    Raises:
        LayoutError: the shape does not fit or is not of rank 1 or 2; the lane owns no element; the
            suffix of the path is unknown; more than 131072 cells for an SVG.

    >>> from layoutalg import S, TileLayout, laneid
    >>> D = TileLayout(S[(2, 8, 4, 2):(2, 4 @ laneid, 1 @ laneid, 1)])
    >>> figure = lane_map(D, (16, 8), lane=5)
    >>> [cell.title for cell in figure.scene.panel("map").cells if cell.title.startswith("T5 ")]
    ['T5 m0 (1, 2)', 'T5 m1 (1, 3)', 'T5 m2 (9, 2)', 'T5 m3 (9, 3)']
    """
    checked = None if path is None else checked_path(path, "lane_map")
    scene = lane_map_scene(
        layout,
        shape,
        lane,
        width=width if ax is None else width_for(ax, width),
        title=title,
        instruction=instruction,
        register=register,
    )
    return finished(scene, checked, ax)


def width_for(ax: Axes | None, width: float | None) -> float:
    """Return the width of the page in inches: as asked, or that of the axes, or the widest."""
    if width is not None:
        return checked_width(width)
    if ax is not None and not hasattr(ax, "get_window_extent"):
        raise LayoutError(f"draw: ax is the axes of a figure, or None; got {ax!r}")
    return PAGE if ax is None else float(ax.get_window_extent().width / ax.figure.dpi)


def checked_width(width: object) -> float:
    """Return the width of a page in inches.

    Raises:
        LayoutError: it is no positive, finite number.

    >>> checked_width("7")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: draw: width is that of the page in inches, such as 7.0; got '7'
    """
    if isinstance(width, int | float) and not isinstance(width, bool) and 0 < width < math.inf:
        return float(width)
    raise LayoutError(f"draw: width is that of the page in inches, such as {PAGE}; got {width!r}")


def finished(scene: Scene, path: Path | None, ax: Axes | None = None) -> Figure:
    """Write a scene where a path is given, and return it as a figure."""
    from layoutalg.draw.scene.mpl import SceneFigure, draw_on

    if path is not None:
        write(scene, path)
    if ax is None:
        return SceneFigure(scene)
    draw_on(ax, scene)
    return cast("Figure", ax.get_figure(root=True))


def lane_map_svg(
    layout: HasTable,
    shape: Sequence[int],
    lane: int | None = DEFAULT_LANE,
    *,
    width: float | None = None,
    title: str | None = None,
    instruction: tuple[int, int] | None = None,
    register: str | None = None,
) -> str:
    """Return the SVG text of :func:`lane_map`; matplotlib is not loaded.

    >>> from layoutalg import S, TileLayout, laneid
    >>> 'data-lane="5"' in lane_map_svg(TileLayout(S[(8, 4):(4 @ laneid, 1 @ laneid)]), (8, 4))
    True
    """
    return svg_text(
        lane_map_scene(
            layout,
            shape,
            lane,
            width=width,
            title=title,
            instruction=instruction,
            register=register,
        )
    )
