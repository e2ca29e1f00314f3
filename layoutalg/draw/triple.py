"""``operands``: A left, B on top, C/D in the corner between them, side panel and legend."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from layoutalg import fragments
from layoutalg.draw.legend import legend_of
from layoutalg.draw.maps import INCH, MARGIN, PAGE, cell_size, finished
from layoutalg.draw.naming import register_name, slot_name, slots_per_register
from layoutalg.draw.output import checked_path
from layoutalg.draw.ownership import DEFAULT_LANE, labels_of, owners_of
from layoutalg.draw.panel import (
    Placed,
    Point,
    Tile,
    detail_of,
    gutter,
    header,
    panel_of,
    placed,
)
from layoutalg.draw.scene import Panel, Scene
from layoutalg.draw.sidebar import sidebar_of
from layoutalg.draw.svg import svg_text
from layoutalg.errors import LayoutError
from layoutalg.fragments import Fragment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GAP = 9.0  # between panels, in points
_SIDE = 150.0  # width of a side panel beside a single tile
_TITLE = "{}: which lane and register hold each element"
INDEX = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n"), "D": ("m", "n")}


@dataclass(frozen=True)
class Operand:
    """A fragment and how it is shown."""

    fragment: Fragment
    tile: Tile

    @property
    def role(self) -> str:
        """``"A"``, ``"B"`` or ``"D"`` (accumulators); ``""`` for the rest."""
        letter = self.fragment.operand[0]
        return {"C": "D"}.get(letter, letter) if letter in INDEX else ""

    @property
    def rows(self) -> int:
        """Rows of the tile."""
        return self.fragment.shape[0]

    @property
    def columns(self) -> int:
        """Columns of the tile."""
        return self.fragment.shape[1]


def operand_of(fragment: Fragment, lane: int | None) -> Operand:
    """Return how a fragment is shown, with the cells of a lane outlined."""
    owners = owners_of(fragment.layout, fragment.shape, "operands")
    if not owners.memory:  # one slot in each lane
        slots = np.zeros((*fragment.shape, 1), dtype=np.int64)
        owners = replace(owners, memory=(("m", slots),))
    packed = slots_per_register(fragment)
    rows, columns = INDEX.get(fragment.operand[0], ("row", "col"))
    tile = Tile(
        fragment.operand.split(".")[0],
        f"{fragment.shape[0]} \u00d7 {fragment.shape[1]}, {fragment.dtype}",
        owners,
        labels_of(owners, lambda slot: slot_name(fragment, slot)),
        rows,
        columns,
        packed,
        lambda register: register_name(fragment, register),
        owners.holds(lane, "operands"),
    )
    return Operand(fragment, tile)


def chosen_fragments(instruction: str, accumulator: str | None) -> tuple[Fragment, ...]:
    """Return the operands to draw: one per role, the accumulator as asked.

    Raises:
        LayoutError: the instruction, or the accumulator in it, is unknown.

    >>> [f.operand for f in chosen_fragments("mma.m16n8k16.f16", None)]
    ['A', 'B', 'C/D.f32']
    """
    names = fragments.operands(instruction)
    sums = [name for name in names if name[0] in "CD"]
    if accumulator is not None and accumulator not in sums:
        raise LayoutError(
            f"operands: accumulator must be one of {instruction}; got {accumulator!r}. "
            f"These fit: {', '.join(sums)}"
        )
    kept = {accumulator or sums[0]} if sums else set()
    return tuple(
        fragments.get(instruction, name) for name in names if name not in sums or name in kept
    )


def operands_scene(
    instruction: str,
    lane: int | None = DEFAULT_LANE,
    *,
    accumulator: str | None = None,
    width: float = PAGE,
) -> Scene:
    """Return the picture that :func:`operands` draws, as data."""
    chosen = chosen_fragments(instruction, accumulator)
    shown = {
        operand.role or operand.fragment.operand: operand
        for operand in (operand_of(f, lane) for f in chosen)
    }
    if {"A", "B", "D"} <= set(shown):
        return _triple(instruction, shown["A"], shown["B"], shown["D"], lane, width)
    return _stack(instruction, tuple(shown.values()), lane, width)


def triple_cells(room: float, a: Operand, b: Operand) -> tuple[Point, Point, Point]:
    """Return the cell sizes of A, B and D: rows of A and D agree, and columns of B and D.

    Where K is long, its cells are narrow: a register's slots, side by side, share one label.

    Args:
        room: width for the cells of A and D together, in points.
        a: the operand (M, K).
        b: the operand (K, N).
    """
    depth, columns = a.columns, b.columns
    wide = min(room / (depth + columns), 20.0)
    n_wide, k_wide = wide, wide
    if wide < 15.5:
        n_wide = 17.0
        k_wide = (room - n_wide * columns) / depth
    high = 14.5
    k_high = min(high, max(224.0 / depth, 14.0 / slots_per_register(b.fragment)))

    def snapped(points: float) -> float:
        return int(points * 2) / 2 if points >= 8 else int(points * 8) / 8

    n_wide, k_wide, k_high = snapped(n_wide), snapped(k_wide), snapped(k_high)
    return (k_wide, high), (n_wide, k_high), (n_wide, high)


def _triple(
    instruction: str, a: Operand, b: Operand, d: Operand, lane: int | None, width: float
) -> Scene:
    """A left of D, B above D: the rows of A are those of D, its columns k the rows of B."""
    gutters = gutter(a.rows), max(gutter(d.rows), gutter(b.rows))
    room = width * INCH - 2 * MARGIN - _GAP - sum(gutters)
    cells = triple_cells(room, a, b)
    if min(map(min, cells)) < 0.25:
        raise LayoutError(
            f"operands: the cells of {instruction} must be 0.25 points or larger; {width:g} inches "
            "are too narrow. Pass a larger width; 7 fits"
        )
    shown = _one_size((a.tile, b.tile, d.tile), cells)
    of_a, of_b, of_d = shown
    chosen = (a.fragment, b.fragment, d.fragment)
    corner = gutters[0] + of_a.width
    side, legend, taken, depth = _notes(chosen, shown, lane, MARGIN, MARGIN, corner)
    left = MARGIN + gutters[0]
    right = MARGIN + max(corner, taken) + _GAP + gutters[1]
    over = MARGIN + max(header(b.tile) + of_b.height, depth)
    low = over + _GAP + header(a.tile)
    return Scene(
        right + of_d.width + MARGIN,
        low + of_a.height + MARGIN,
        _TITLE.format(instruction),
        (
            side,
            legend,
            panel_of("A", of_a, (left, low)),
            panel_of("B", of_b, (right, over - of_b.height)),
            panel_of(d.fragment.operand, of_d, (right, low)),
        ),
    )


def _one_size(tiles: tuple[Tile, ...], cells: tuple[Point, ...]) -> tuple[Placed, ...]:
    """Place tiles, with the labels of all in the font size of the smallest."""
    sizes = [detail_of(tile, cell).size for tile, cell in zip(tiles, cells, strict=True)]
    largest = min(filter(None, sizes), default=0.0)
    return tuple(
        placed(replace(tile, largest=largest or tile.largest), cell)
        for tile, cell in zip(tiles, cells, strict=True)
    )


def _notes(
    chosen: tuple[Fragment, ...],
    shown: tuple[Placed, ...],
    lane: int | None,
    x: float,
    y: float,
    width: float,
) -> tuple[Panel, Panel, float, float]:
    """Draw side panel and legend, and return them and the size they take.

    The legend stands below the side panel, or right of it where ``width`` has room.
    """
    side, side_width, side_depth = sidebar_of(chosen, lane, x, y, width)
    outlined = lane if any(each.tile.held is not None for each in shown) else None
    _, legend_width, legend_depth = legend_of(shown, outlined, 0, 0, width)
    beside = side_width + 2 * _GAP
    if beside + legend_width <= width and side_depth > legend_depth:
        legend, _, _ = legend_of(shown, outlined, x + beside, y, width - beside)
        return side, legend, beside + legend_width, max(side_depth, legend_depth)
    legend, _, _ = legend_of(shown, outlined, x, y + side_depth + 6, width)
    return side, legend, max(side_width, legend_width), side_depth + 6 + legend_depth


def _stack(instruction: str, shown: tuple[Operand, ...], lane: int | None, width: float) -> Scene:
    """Operands one under another; the notes stand beside them where that costs no detail."""
    page = width * INCH - 2 * MARGIN
    margin = max(gutter(operand.rows) for operand in shown)
    wide, narrow = (
        tuple(
            placed(operand.tile, cell_size(room, operand.rows, operand.columns))
            for operand in shown
        )
        for room in (page - margin, page - margin - 2 * _GAP - _SIDE)
    )
    below = _stacked(instruction, shown, wide, lane, width, False)
    if [each.detail.level for each in wide] != [each.detail.level for each in narrow]:
        return below
    beside = _stacked(instruction, shown, narrow, lane, width, True)
    return beside if beside.height <= below.height else below


def _stacked(
    instruction: str,
    shown: tuple[Operand, ...],
    sized: tuple[Placed, ...],
    lane: int | None,
    width: float,
    beside: bool,
) -> Scene:
    margin = max(gutter(operand.rows) for operand in shown)
    panels: list[Panel] = []
    right, y = MARGIN, MARGIN
    for operand, each in zip(shown, sized, strict=True):
        at = (MARGIN + margin, y + header(operand.tile))
        panels.append(panel_of(operand.fragment.operand, each, at))
        right = max(right, at[0] + each.width)
        y = at[1] + each.height + _GAP
    chosen = tuple(operand.fragment for operand in shown)
    x, top = (right + 2 * _GAP, MARGIN) if beside else (MARGIN, y + 2)
    room = width * INCH - MARGIN - x
    side, legend, taken, depth = _notes(chosen, sized, lane, x, top, room)
    return Scene(
        max(right, x + taken) + MARGIN,
        max(y - _GAP, top + depth) + MARGIN,
        _TITLE.format(instruction),
        (*panels, side, legend),
    )


def operands(
    instruction: str,
    lane: int | None = DEFAULT_LANE,
    path: str | os.PathLike[str] | None = None,
    *,
    accumulator: str | None = None,
    width: float = PAGE,
) -> Figure:
    """Draw the fragments of an instruction: A (M, K) left, B (K, N) on top, C/D (M, N) below B.

    A's column k meets B's row k; the row of A and the column of B lead to the element of D. Slots
    bear their PTX names, slots that one register packs are bracketed. The side panel gives
    ``g = lane // 4``, ``t = lane mod 4`` and the place of every slot of the outlined lane.

    Args:
        instruction: a name of ``fragments.names()``.
        lane: outlined in every panel; None for none.
        path: file to write; ``.svg``, ``.tex``, ``.png`` or ``.pdf``.
        accumulator: operand name such as ``"C/D.f16"``, where the instruction has several.
        width: of the page in inches.

    Returns:
        The figure; it knows its ``scene``, and shows as SVG in a notebook.

    Raises:
        LayoutError: the instruction, accumulator, lane or suffix is unknown.

    >>> figure = operands("mma.m16n8k16.f16", lane=5)
    >>> [panel.name for panel in figure.scene.panels]
    ['side', 'legend', 'A', 'B', 'C/D.f32']
    """
    checked = None if path is None else checked_path(path, "operands")
    return finished(
        operands_scene(instruction, lane, accumulator=accumulator, width=width), checked
    )


def operands_svg(
    instruction: str,
    lane: int | None = DEFAULT_LANE,
    *,
    accumulator: str | None = None,
    width: float = PAGE,
) -> str:
    """Return the SVG text of :func:`operands`; matplotlib is not loaded.

    >>> "<title>T5 a0 (1, 2)</title>" in operands_svg("mma.m16n8k16.f16")
    True
    """
    return svg_text(operands_scene(instruction, lane, accumulator=accumulator, width=width))
