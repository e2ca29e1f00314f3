"""``lane_map``: one layout as one panel with a legend."""

from __future__ import annotations

from collections.abc import Sequence

from layoutalg.draw.scene.legend import legend_of, swatches_of
from layoutalg.draw.scene.ownership import DEFAULT_LANE, labels_of, owners_of
from layoutalg.draw.scene.page import COLUMN, INCH, LINE, MARGIN, PAGE, WIDER, Page, wrapped
from layoutalg.draw.scene.panel import LEVELS, Tile, cell_size, gutter, header, panel_of, placed
from layoutalg.draw.scene.picture import picture
from layoutalg.draw.scene.scene import Panel, Scene, Text, checked_title, text_width
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike
from layoutalg.interop.registry import with_shape


@picture
def lane_map(
    layout: LayoutLike,
    shape: Sequence[int] | None = None,
    lane: int | None = DEFAULT_LANE,
    *,
    width: float | None = None,
    title: str | None = None,
    instruction: tuple[int, int] | None = None,
    register: str | None = None,
) -> Scene:
    """Draw which lane and which register hold each element of a tile.

    Cell (i, j) names the lanes and registers that ``layout`` maps element (i, j) to. Hue is the
    4-lane group, or the warp where there are several; without threads, the range of the address.
    Labels shrink to lane, then to nothing, as cells do; no text is smaller than 5 points.

    Args:
        layout: of any axes: a layout, a fragment, or text.
        shape: (rows, columns), or (columns,): the elements of the layout, row-major; that of a
            fragment unless given.
        lane: thread whose cells are outlined, ``32 * warp + lane`` where there are warps; None for
            none. The default lane 5 outlines nothing where the layout has no lane 5.
        width: of the page in inches; 3.4 or 7 by the size of the tile.
        title: of the picture; the layout's text unless given.
        instruction: (rows, columns) of one instruction, to mark with solid lines.
        register: prefix of a register's number; the memory axis' name unless given.

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
    layout, extents = with_shape(layout, shape, "lane_map")
    owners = owners_of(layout, extents, "lane_map").led_by(lane)
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
    marked = owners.cells_of(lane, "lane_map")
    labels = labels_of(owners, f"{prefix}{{}}".format)
    tile = Tile("", "", owners, labels, outlined=marked, instruction=instruction)
    edge = 2 * MARGIN + gutter(rows)

    # The narrowest page and cell that show as much as any, but no cells of less than 3 points.
    pages = (width,) if width is not None else (COLUMN, PAGE)
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
    page = Page(name, (), pages[-1])
    lines = wrapped(name, room, LINE, after=",: ") if name else []
    texts = [
        Text(MARGIN, MARGIN + 5.5 + (LINE + 2) * n, line, LINE, "start")
        for n, line in enumerate(lines)
    ]
    widest = max((text_width(line, LINE) for line in lines), default=0.0)
    below = MARGIN + (LINE + 2) * len(lines)
    page.add(Panel("title", texts=tuple(texts)), MARGIN + widest, below)
    at = (MARGIN + gutter(rows), below + header(tile) + 2)
    low = at[1] + rows * cell[1]
    page.add(panel_of("map", shown, at), at[0] + shown.width, low)
    outlined = lane if marked is not None else None
    left = max(at[0] - swatches_of(owners, outlined).margin, MARGIN)
    legend, taken, depth = legend_of((shown,), outlined, left, low + 7, room + MARGIN - left)
    page.add(legend, left + taken, low + 7 + depth)
    return page.scene()
