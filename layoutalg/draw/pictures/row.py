"""Operands side by side: of an instruction without A, B and D all in registers."""

from __future__ import annotations

from layoutalg.draw.scene.chosen import Operand
from layoutalg.draw.scene.notes import GAP, notes_of
from layoutalg.draw.scene.page import INCH, MARGIN, PAGE, WIDER, Page
from layoutalg.draw.scene.panel import (
    LEVELS,
    Placed,
    cell_size,
    gutter,
    header,
    panel_of,
    placed,
    title_width,
)
from layoutalg.draw.scene.scene import Scene
from layoutalg.errors import LayoutError

_SIDE = 150.0  # width of the notes beside the tiles
_DEEPEST = 460.0  # height of the tiles above the notes, in points: both fit a page
_DEEPEST_BESIDE = 600.0  # of the tiles beside the notes


def row_scene(
    title: str, shown: tuple[Operand, ...], lane: int | None, product: int, width: float
) -> Scene:
    """Draw operands in a row; the notes are beside them where no label and no cell shrinks for it.

    Args:
        title: of the page.
        shown: the operands.
        lane: outlined.
        product: which one is drawn, where the instruction forms several.
        width: of the page in inches.
    """
    gutters = sum(gutter(operand.rows) for operand in shown) + 2 * GAP * (len(shown) - 1)
    room = width * INCH - 2 * MARGIN - gutters
    columns, rows = sum(o.columns for o in shown), max(o.rows for o in shown)

    def sized(room: float, deepest: float) -> tuple[Placed, ...]:
        tried = []
        for widest in (22.0, 34.0):  # the narrower cells that show as much
            wide, high = cell_size(room, rows, columns, widest)
            cell = wide, min(high, int(4 * deepest / rows) / 4)
            tried.append(tuple(placed(o.tile, cell) for o in shown))
        return min(tried, key=lambda each: [LEVELS.index(one.detail.level) for one in each])

    if room < 0.25 * columns:
        raise LayoutError(
            f"operands: the cells of {shown[0].fragment.instruction} must be 0.25 points or "
            f"larger; {width:g} inches are too narrow. {WIDER}; {PAGE:g} fits"
        )
    wide, narrow = sized(room, _DEEPEST), sized(room - 2 * GAP - _SIDE, _DEEPEST_BESIDE)
    below = _row(title, shown, wide, lane, product, width, False)
    if any(
        one.detail.level != other.detail.level
        or (other.detail.level == "small" and other.cell < one.cell)
        for one, other in zip(wide, narrow, strict=True)
    ):
        return below
    beside = _row(title, shown, narrow, lane, product, width, True)
    return beside if beside.height <= below.height else below


def _row(
    title: str,
    shown: tuple[Operand, ...],
    sized: tuple[Placed, ...],
    lane: int | None,
    product: int,
    width: float,
    beside: bool,
) -> Scene:
    page = Page(title, (), width)
    x = MARGIN
    for operand, each in zip(shown, sized, strict=True):
        at = (x + gutter(operand.rows), MARGIN + header(operand.tile))
        right = at[0] + max(each.width, title_width(operand.tile))
        page.add(panel_of(operand.fragment.operand, each, at), right, at[1] + each.height)
        x = right + 2 * GAP
    chosen = tuple(operand.fragment for operand in shown)
    left, top = (x, MARGIN) if beside else (MARGIN, page.bottom + GAP + 2)
    room = width * INCH - MARGIN - left
    side, legend, taken, depth = notes_of(chosen, sized, lane, product, left, top, room)
    page.add(side)
    page.add(legend, left + taken, top + depth)
    return page.scene()
