"""``operands``: the fragments of an instruction in one picture."""

from __future__ import annotations

from collections.abc import Sequence

from layoutalg.draw.pictures.row import row_scene
from layoutalg.draw.pictures.triple import triple_scene
from layoutalg.draw.scene.chosen import chosen_fragments, lane_and_product, operand_of
from layoutalg.draw.scene.ownership import DEFAULT_LANE
from layoutalg.draw.scene.page import PAGE
from layoutalg.draw.scene.picture import picture
from layoutalg.draw.scene.scene import Scene

_TITLE = "{}: which lane and register hold each element"


@picture
def operands(
    instruction: str,
    lane: int | None = DEFAULT_LANE,
    *,
    accumulator: str | None = None,
    instead: Sequence[str] = (),
    product: int | None = None,
    width: float = PAGE,
) -> Scene:
    """Draw the fragments of an instruction: A (M, K) left, B (K, N) on top, C/D (M, N) below B.

    A row of A and a column of B lead to their element of D. Scale factors are left of A and above
    B; the metadata E of a sparse A is below it. Other instructions have their operands side by
    side. Slots have their PTX names, and those that one register packs are bracketed. The side
    panel defines ``g = lane // 4`` and ``t = lane mod 4``, and lists row and column of every slot
    of the outlined lane.

    Args:
        instruction: a name of ``fragments.names()``.
        lane: outlined in every panel; None for none.
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
    chosen = chosen_fragments(instruction, accumulator, instead)
    lane, product = lane_and_product(chosen, lane, product)
    shown = {o.role: o for o in (operand_of(fragment, lane, product) for fragment in chosen)}
    title = _TITLE.format(instruction)
    if {"A", "B", "D"} <= set(shown):
        return triple_scene(title, shown, lane, product, width)
    return row_scene(title, tuple(shown.values()), lane, product, width)
