"""The operands of an instruction that a picture shows, each as a tile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from layoutalg import fragments
from layoutalg.draw.scene.naming import (
    heading_of,
    index_names,
    role_of,
    slot_name,
    slots_name,
    slots_per_register,
)
from layoutalg.draw.scene.ownership import DEFAULT_LANE, labels_of, owners_of
from layoutalg.draw.scene.panel import Tile
from layoutalg.errors import LayoutError
from layoutalg.fragments import Fragment
from layoutalg.layouts.tile_layout import TileLayout


@dataclass(frozen=True)
class Operand:
    """A fragment and how it is shown."""

    fragment: Fragment
    tile: Tile

    @property
    def role(self) -> str:
        """``"A"``, ``"B"``, ``"D"`` (accumulators), or the operand's own name."""
        return role_of(self.fragment)

    @property
    def rows(self) -> int:
        """Rows of the tile."""
        return self.fragment.shape[0]

    @property
    def columns(self) -> int:
        """Columns of the tile."""
        return self.fragment.shape[1]


def operand_of(fragment: Fragment, lane: int | None, product: int = 0) -> Operand:
    """Return how a fragment is shown, with the cells of a lane outlined.

    Args:
        fragment: of an instruction.
        lane: outlined; None for none.
        product: which, where the instruction forms several.
    """
    owners = owners_of(layout_of(fragment, product), fragment.shape, "operands").led_by(lane)
    if not owners.memory:  # one slot in each lane
        slots = np.zeros((*fragment.shape, 1), dtype=np.int64)
        owners = replace(owners, memory=(("m", slots),))
    rows, columns = index_names(fragment)
    tile = Tile(
        heading_of(fragment),
        note_of(fragment),
        owners,
        labels_of(owners, lambda slot: slot_name(fragment, slot)),
        rows,
        columns,
        slots_per_register(fragment),
        lambda first, last: slots_name(fragment, first, last),
        owners.cells_of(lane, "operands"),
    )
    return Operand(fragment, tile)


def layout_of(fragment: Fragment, product: int) -> TileLayout:
    """Return the layout over ``fragment.shape`` of one product of an instruction.

    >>> f = fragments.get("mma.m8n8k4.f16", "A")
    >>> layout_of(f, 1).apply(1, 2, shape=(8, 4)) == f.layout.apply(1, 1, 2, shape=f.tile)
    True
    """
    if fragment.products == 1:
        return fragment.layout
    region = ((product, product + 1), *((0, extent) for extent in fragment.shape))
    sliced = fragment.layout.slice(fragment.tile, region)
    assert sliced is not None
    return sliced


def note_of(fragment: Fragment) -> str:
    """Return the note beside a tile's title: shape and type."""
    if fragment.operand == "SFA":  # narrow: no room for more
        return fragment.dtype
    rows, columns = fragment.shape
    what = ""
    if index_names(fragment)[1] == "nz":
        what = " positions" if fragment.operand == "E" else " nonzeros"
    digits = re.fullmatch(r"e(\d)m(\d)", fragment.dtype)
    narrow = digits is not None and 1 + int(digits[1]) + int(digits[2]) < fragment.bits
    wide = f" in {fragment.bits} bits" if narrow else ""
    return f"{rows} \u00d7 {columns}{what}, {fragment.dtype}{wide}"


def chosen_fragments(
    instruction: str, accumulator: str | None = None, instead: Sequence[str] = ()
) -> tuple[Fragment, ...]:
    """Return the operands to draw: the first listed of each role, unless others are asked for.

    Args:
        instruction: a name of ``fragments.names()``.
        accumulator: ``"C/D.f16"``, ``"D.f16"`` or ``"f16"``.
        instead: names of operands that stand in place of the first of their role.

    Raises:
        LayoutError: the instruction, or an operand of it, is unknown.

    >>> [f.operand for f in chosen_fragments("mma.m16n8k16.f16")]
    ['A', 'B', 'C/D.f32']
    >>> [f.operand for f in chosen_fragments("mma.m8n8k4.f16", "f16", ["B.row"])]
    ['A', 'B.row', 'C/D.f16']
    """
    rows = fragments.rows(instruction)
    sums = {row.operand: row for row in rows if role_of(row) == "D"}
    shown = {role_of(row): row for row in reversed(rows)}
    if accumulator is not None:
        fitting = [
            row
            for name, row in sums.items()
            if accumulator == name or row.is_accumulator(f"D.{str(accumulator).split('.')[-1]}")
        ]
        if not fitting:
            raise LayoutError(
                f"operands: accumulator must be one of {instruction}; got {accumulator!r}. "
                f"These fit: {', '.join(sums)}"
            )
        shown["D"] = fitting[0]
    for name in instead:
        row = fragments.get(instruction, name)
        shown[role_of(row)] = row
    return tuple(row for row in rows if shown[role_of(row)] is row)


def certificates_of(chosen: Sequence[Fragment]) -> tuple[str, ...]:
    """Return the certificates of some operands: one line, or several where they differ.

    >>> certificates_of(chosen_fragments("tcgen05.ld.32x32b.x1.b32"))
    ('assembled, not executed (nvJitLink 13.5, sm_100a)',)
    """
    found: dict[str, list[str]] = {}
    for fragment in chosen:
        found.setdefault(fragment.certificate.statement, []).append(heading_of(fragment))
    if len(found) == 1:
        return tuple(found)
    return tuple(
        f"{', '.join(dict.fromkeys(operands))}: {statement}"
        for statement, operands in found.items()
    )


def lane_and_product(
    chosen: Sequence[Fragment], lane: int | None, product: int | None
) -> tuple[int | None, int]:
    """Return the lane to outline and the product to draw: that of the lane, unless one is asked.

    Raises:
        LayoutError: no such product, or the lane works on another one.

    >>> lane_and_product(chosen_fragments("mma.m8n8k4.f16"), 5, None)
    (5, 1)
    """
    first = chosen[0]
    if product is not None and product not in range(first.products):
        raise LayoutError(
            f"operands: product is one of 0..{first.products - 1} of {first.instruction}; got "
            f"{product!r}"
        )
    if first.products == 1 or lane is None or lane not in range(first.lanes):
        return lane, product or 0
    own = int(first.holds[lane, 0, 0])
    if product is None or product == own:
        return lane, own
    if lane == DEFAULT_LANE:
        return None, product
    raise LayoutError(
        f"operands: lane {lane} forms product {own} of {first.instruction}; got product {product}. "
        f"Lanes of product {product} are {lanes_of(first, product)}"
    )


def lanes_of(fragment: Fragment, product: int) -> str:
    """Name the lanes that form a product.

    >>> lanes_of(fragments.get("mma.m8n8k4.f16", "A"), 1)
    '4..7, 20..23'
    """
    lanes = np.flatnonzero(fragment.holds[:, 0, 0] == product)
    parts = np.split(lanes, np.flatnonzero(np.diff(lanes) > 1) + 1)
    return ", ".join(f"{part[0]}..{part[-1]}" for part in parts)
