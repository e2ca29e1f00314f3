"""``operands``: the fragments of an instruction in one picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from layoutalg.draw.pictures.lane_maps import PAGE, finished, width_for
from layoutalg.draw.pictures.row import row_scene
from layoutalg.draw.pictures.triple import triple_scene
from layoutalg.draw.scene.chosen import chosen_fragments, lane_and_product, operand_of
from layoutalg.draw.scene.output import checked_path
from layoutalg.draw.scene.ownership import DEFAULT_LANE
from layoutalg.draw.scene.scene import Scene
from layoutalg.draw.scene.svg import svg_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE = "{}: which lane and register hold each element"


def operands_scene(
    instruction: str,
    lane: int | None = DEFAULT_LANE,
    *,
    accumulator: str | None = None,
    instead: Sequence[str] = (),
    product: int | None = None,
    width: float = PAGE,
) -> Scene:
    """Return the picture that :func:`operands` draws, as data."""
    chosen = chosen_fragments(instruction, accumulator, instead)
    lane, product = lane_and_product(chosen, lane, product)
    shown = {o.role: o for o in (operand_of(fragment, lane, product) for fragment in chosen)}
    title = _TITLE.format(instruction)
    if {"A", "B", "D"} <= set(shown):
        return triple_scene(title, shown, lane, product, width)
    return row_scene(title, tuple(shown.values()), lane, product, width)


def operands(
    instruction: str,
    lane: int | None = DEFAULT_LANE,
    path: str | os.PathLike[str] | None = None,
    ax: Axes | None = None,
    *,
    accumulator: str | None = None,
    instead: Sequence[str] = (),
    product: int | None = None,
    width: float | None = None,
) -> Figure:
    """Draw the fragments of an instruction: A (M, K) left, B (K, N) on top, C/D (M, N) below B.

    A's column k meets B's row k; the row of A and the column of B lead to the element of D. Scale
    factors stand left of A and above B; below a sparse A stand the positions of its nonzeros.
    Other instructions have their operands side by side. Slots bear their PTX names, slots that one
    register packs are bracketed. The side panel gives ``g = lane // 4``, ``t = lane mod 4`` and
    the place of every slot of the outlined lane.

    Args:
        instruction: a name of ``fragments.names()``.
        lane: outlined in every panel; None for none.
        path: file to write; ``.svg``, ``.tex``, ``.png`` or ``.pdf``.
        ax: axes to draw on, instead of a figure of its own.
        accumulator: type of the accumulator, such as ``"f16"``, where the instruction has several.
        instead: operands that stand in place of the first of their role, such as ``["A.col"]``.
        product: the one to draw, where an instruction forms several; that of the lane unless given.
        width: of the page in inches, 7 unless given.

    Returns:
        The figure; it knows its ``scene``, and shows as SVG in a notebook.

    Raises:
        LayoutError: the instruction, accumulator, operand, lane, product or suffix is unknown.

    >>> figure = operands("mma.m16n8k16.f16", lane=5)
    >>> [panel.name for panel in figure.scene.panels]
    ['side', 'legend', 'A', 'B', 'C/D.f32']
    """
    checked = None if path is None else checked_path(path, "operands")
    scene = operands_scene(
        instruction,
        lane,
        accumulator=accumulator,
        instead=instead,
        product=product,
        width=width_for(ax, width),
    )
    return finished(scene, checked, ax)


def operands_svg(
    instruction: str,
    lane: int | None = DEFAULT_LANE,
    *,
    accumulator: str | None = None,
    instead: Sequence[str] = (),
    product: int | None = None,
    width: float = PAGE,
) -> str:
    """Return the SVG text of :func:`operands`; matplotlib is not loaded.

    >>> "<title>T5 a0 (1, 2)</title>" in operands_svg("mma.m16n8k16.f16")
    True
    """
    return svg_text(
        operands_scene(
            instruction,
            lane,
            accumulator=accumulator,
            instead=instead,
            product=product,
            width=width,
        )
    )
