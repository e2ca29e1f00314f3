"""The notes beside the tiles of an instruction: side panel and legend."""

from __future__ import annotations

from layoutalg.draw.scene.legend import legend_of
from layoutalg.draw.scene.panel import Placed
from layoutalg.draw.scene.scene import Panel
from layoutalg.draw.scene.sidebar import sidebar_of
from layoutalg.fragments import Fragment

GAP = 9.0  # between panels, in points


def notes_of(
    chosen: tuple[Fragment, ...],
    shown: tuple[Placed, ...],
    lane: int | None,
    product: int,
    x: float,
    y: float,
    width: float,
) -> tuple[Panel, Panel, float, float]:
    """Draw side panel and legend, and return them and the size they take.

    The legend stands below the side panel, or right of it where ``width`` has room.
    """
    side, side_width, side_depth = sidebar_of(chosen, lane, product, x, y, width)
    outlined = lane if any(each.tile.outlined is not None for each in shown) else None
    _, legend_width, legend_depth = legend_of(shown, outlined, 0, 0, width)
    beside = side_width + 2 * GAP
    if beside + legend_width <= width and side_depth > legend_depth:
        legend, _, _ = legend_of(shown, outlined, x + beside, y, width - beside)
        return side, legend, beside + legend_width, max(side_depth, legend_depth)
    legend, _, _ = legend_of(shown, outlined, x, y + side_depth + 6, width)
    return side, legend, max(side_width, legend_width), side_depth + 6 + legend_depth
