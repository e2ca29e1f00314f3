"""A product: A left, B on top, C/D in the corner; scale factors and metadata outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from layoutalg.draw.scene.chosen import Operand
from layoutalg.draw.scene.naming import slots_per_register
from layoutalg.draw.scene.notes import GAP, notes_of
from layoutalg.draw.scene.page import INCH, MARGIN, WIDER, Page
from layoutalg.draw.scene.panel import Placed, Tile, detail_of, gutter, header, panel_of, placed
from layoutalg.draw.scene.scene import Point, Scene
from layoutalg.errors import LayoutError

_HIGH = 14.5  # height of a row of A and D, in points
_DEEPEST = 224.0  # height of B
_SCALE = (24.0, 7.0)  # width of all scales of a row, and least width of one
_SCALE_HIGH = 28.0  # height of all scales of a column
_POSITIONS = 9.0  # height of a row of positions


def triple_scene(
    title: str,
    shown: Mapping[str, Operand],
    lane: int | None,
    product: int,
    width: float,
) -> Scene:
    """Draw the operands of a product.

    A lies left of D, B above D: the rows of A are those of D, its columns k the rows of B. Scale
    factors lie outside: those of A's rows left of A, those of B's columns above B. The
    metadata E of a sparse A lies below it, column by column.

    Args:
        title: of the page.
        shown: the operands by role: A, B and D, and SFA, SFB or E where there are.
        lane: outlined.
        product: which one is drawn, where the instruction forms several.
        width: of the page in inches.
    """
    a, b, d = shown["A"], shown["B"], shown["D"]
    left_of, above, below = shown.get("SFA"), shown.get("SFB"), shown.get("E")
    gutters = gutter(a.rows), max(gutter(d.rows), gutter(b.rows))
    room = width * INCH - 2 * MARGIN - GAP - sum(gutters)
    scale = (0.0, _HIGH)
    if left_of is not None:
        scale = (max(_SCALE[0] / left_of.columns, _SCALE[1]), _HIGH)
        room -= gutter(left_of.rows) + left_of.columns * scale[0] + GAP
    cells = dict(zip("ABD", triple_cells(room, a, b), strict=True))
    if min(map(min, cells.values())) < 0.25:
        raise LayoutError(
            f"operands: the cells of {a.fragment.instruction} must be 0.25 points or larger; "
            f"{width:g} inches are too narrow. {WIDER}; 7 fits"
        )
    if above is not None:
        cells["SFB"] = (cells["D"][0], _SCALE_HIGH / above.rows)
    cells |= {"SFA": scale, "E": (cells["A"][0], _POSITIONS)}
    tiles = _one_size({role: operand.tile for role, operand in shown.items()}, cells)
    of_a, of_b, of_d = tiles["A"], tiles["B"], tiles["D"]

    x = MARGIN + gutters[0]
    if left_of is not None:
        x += gutter(left_of.rows) + tiles["SFA"].width + GAP
    corner = x - MARGIN + of_a.width
    upper = header(of_b.tile) + of_b.height
    if above is not None:
        upper += header(above.tile) + tiles["SFB"].height + GAP
    chosen = tuple(operand.fragment for operand in shown.values())
    about = chosen, tuple(tiles.values()), lane, product, MARGIN, MARGIN
    side, legend, taken, depth = notes_of(*about, corner)
    whole = width * INCH - 2 * MARGIN - GAP - gutters[1] - of_d.width
    if depth > upper and whole > corner:  # take all the width there is; A stays beside D
        side, legend, taken, depth = notes_of(*about, whole)
    shift = max(taken - corner, 0.0)
    x += shift
    right = MARGIN + corner + shift + GAP + gutters[1]
    over = MARGIN + max(upper, depth)
    low = over + GAP + header(a.tile)
    places = {"A": (x, low), "B": (right, over - of_b.height), "D": (right, low)}
    bottom = low + of_a.height
    if left_of is not None:
        places["SFA"] = (MARGIN + shift + gutter(left_of.rows), low)
    if above is not None:
        places["SFB"] = (right, places["B"][1] - header(b.tile) - GAP - tiles["SFB"].height)
    if below is not None:
        places["E"] = (x, bottom + GAP + header(below.tile))
        bottom = places["E"][1] + tiles["E"].height
    page = Page(title, (), width)
    page.add(side)
    page.add(legend)
    for role, operand in shown.items():
        panel = panel_of(operand.fragment.operand, tiles[role], places[role])
        page.add(panel, right + of_d.width, bottom)
    return page.scene()


def triple_cells(room: float, a: Operand, b: Operand) -> tuple[Point, Point, Point]:
    """Return the cell sizes of A, B and D: rows of A and D agree, and columns of B and D.

    Where K is long, its cells are narrow: a register's slots, side by side, share one label.

    Args:
        room: width for the cells of A and D together, in points.
        a: the operand (M, K); a sparse one has fewer columns than B has rows.
        b: the operand (K, N).
    """
    columns = b.columns
    wide = min(room / (a.columns + columns), 20.0)
    n_wide, k_wide = wide, wide
    if wide < 15.5:
        n_wide = 17.0
        k_wide = (room - n_wide * columns) / a.columns
    k_high = min(_HIGH, max(_DEEPEST / b.rows, 14.0 / slots_per_register(b.fragment)))

    def snapped(points: float) -> float:
        return int(points * 2) / 2 if points >= 8 else int(points * 8) / 8

    n_wide, k_wide, k_high = snapped(n_wide), snapped(k_wide), snapped(k_high)
    return (k_wide, _HIGH), (n_wide, k_high), (n_wide, _HIGH)


def _one_size(tiles: Mapping[str, Tile], cells: Mapping[str, Point]) -> dict[str, Placed]:
    """Place tiles, with the labels of all in the font size of the smallest of A, B and D."""
    sizes = [detail_of(tiles[role], cells[role]).size for role in "ABD"]
    largest = min(filter(None, sizes), default=0.0)
    return {
        role: placed(replace(tile, largest=largest or tile.largest), cells[role])
        for role, tile in tiles.items()
    }
