"""``derivation``: the digits of the coordinates, and the axis that each adds to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from layoutalg.draw.scene.grid import bracket_below
from layoutalg.draw.scene.ownership import DEFAULT_LANE, checked_shape, owners_of
from layoutalg.draw.scene.page import INCH, LINE, MARGIN, PAGE, SMALL, WIDER, Page, wrapped
from layoutalg.draw.scene.palette import HUES, INK, NOTE, PAPER, WARP_HUES
from layoutalg.draw.scene.picture import picture
from layoutalg.draw.scene.scene import (
    Cell,
    Panel,
    Path,
    Scene,
    Stroke,
    Text,
    checked_title,
    text_width,
)
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike
from layoutalg.interop.registry import with_shape
from layoutalg.layouts.explanation import digits_of
from layoutalg.layouts.tile_layout import TileLayout

_BOX = 25.0  # height of a digit's box
_VALUE = 9.0  # height of the row of values below the boxes
_SPACE = 38.0  # between the two ribbons, for the connections
_BETWEEN = 14.0  # between dimensions, and between axes
_PAD = 6.0  # inside a box
_LETTERS = ("i", "j", "k", "l", "p", "q")


@dataclass(frozen=True)
class Box:
    """One digit of a coordinate: ``index // weight mod extent``, times ``stride`` on ``axis``.

    A replica's digit is an index of its own: the element is at each of its values.
    """

    index: str
    weight: Any
    extent: Any
    stride: Any
    axis: str
    top: bool

    @property
    def rule(self) -> str:
        """The digit as an expression in the index."""
        quotient = self.index if self.weight == 1 else f"{self.index} // {self.weight}"
        return quotient if self.top else f"{quotient} mod {self.extent}"

    @property
    def term(self) -> str:
        """What the digit adds to its axis."""
        if self.stride == 1:
            return self.rule
        return f"{self.stride} \u00b7 {self.rule if self.rule == self.index else f'({self.rule})'}"

    def value(self, coordinate: int) -> int:
        """Return the digit of a coordinate."""
        quotient = coordinate // int(self.weight)
        return quotient if self.top else quotient % int(self.extent)


@dataclass(frozen=True)
class Derivation:
    """The digits per dimension, and the axes in the order of the picture.

    ``offsets`` gives the constant of each axis that has one.
    """

    indices: tuple[str, ...]
    extents: tuple[Any, ...]
    digits: tuple[tuple[Box, ...], ...]
    replica: tuple[Box, ...]
    axes: tuple[str, ...]
    offsets: dict[str, Any]

    def on(self, axis: str) -> tuple[Box, ...]:
        """Return the digits that an axis adds up, in the order of the coordinates."""
        return tuple(d for part in (*self.digits, self.replica) for d in part if d.axis == axis)

    def formula(self, axis: str) -> str:
        """Return the sum on an axis.

        >>> from layoutalg import S, TileLayout, laneid
        >>> D = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
        >>> derived(D, (16, 8)).formula("laneid")
        'laneid = 4 · (i mod 8) + j // 2'
        """
        digits = [digit for digit in self.on(axis) if digit.stride != 0]
        terms = [digit.term for digit in digits]
        if axis in self.offsets:
            terms.append(str(self.offsets[axis]))
        free = [f", {d.index} = 0..{d.extent - 1}" for d in digits if d in self.replica]
        return f"{axis} = {' + '.join(terms) or '0'}{''.join(free)}"


def derived(layout: TileLayout, shape: Sequence[int]) -> Derivation:
    """Cut each dimension into digits; the flat index where the shape cuts an iter.

    >>> from layoutalg import S, TileLayout
    >>> derived(TileLayout(S[(6, 4) : (4, 1)]), (8, 3)).indices
    ('3i + j',)
    """
    shape = tuple(shape)
    if not 1 <= len(shape) <= len(_LETTERS):
        raise LayoutError(f"derivation: a shape has 1 to {len(_LETTERS)} dimensions; got {shape}")
    names = _LETTERS[: len(shape)]
    extents, cut = digits_of(layout, shape)
    if extents != shape:
        weights = [math.prod(shape[n + 1 :]) for n in range(len(shape))]
        flat = " + ".join(n if w == 1 else f"{w}{n}" for n, w in zip(names, weights, strict=True))
        names = (flat,)
    parts = [
        tuple(
            Box(
                name if len(name) == 1 else f"({name})",
                weight,
                it.extent,
                it.stride,
                it.axis.name,
                weight * it.extent == extent,
            )
            for weight, it in digits
        )
        for name, extent, digits in zip(names, extents, cut, strict=True)
    ]
    copies = layout.copies
    replica = tuple(
        Box("r" if len(copies) == 1 else f"r{n}", 1, it.extent, it.stride, it.axis.name, True)
        for n, it in enumerate(copies)
    )
    offsets = {axis.name: value for axis, value in layout.offset.items() if value != 0}
    axes = {it.axis for it in (*layout.shard, *copies)} | set(layout.offset)
    ordered = sorted(axes, key=lambda axis: (axis.memory, axis.name))
    return Derivation(
        names, extents, tuple(parts), replica, tuple(axis.name for axis in ordered), offsets
    )


def _default_place(layout: TileLayout, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the last element of lane 5, or the last element."""
    if len(shape) <= 2:
        owners = owners_of(layout, shape, "derivation")
        cells = owners.cells_of(DEFAULT_LANE, "derivation")
        if cells is not None:
            row, column = (int(i) for i in np.argwhere(cells)[-1])
            return (row, column)[-len(shape) :]
    return tuple(extent - 1 for extent in shape)


@picture
def derivation(
    layout: LayoutLike,
    shape: Sequence[int] | None = None,
    at: Sequence[int] | None = None,
    *,
    width: float = PAGE,
    title: str | None = None,
) -> Scene:
    """Draw how coordinates map to axes: each digit of (i, j), coloured by the axis that it adds to.

    The upper ribbon holds the digits of each coordinate, the lower one the same digits by axis,
    times their strides; the formulas stand below. Bold numbers are those of one element.

    Args:
        layout: a ``TileLayout``, or a ``ComposeLayout``, whose tile is drawn.
        shape: of the elements; where it cuts an iter, the digits are those of the flat index.
        at: the element whose digits are given; the last one of lane 5 unless given.
        width: of the page in inches, 7 unless given.
        title: of the picture; the layout's text unless given.

    Raises:
        LayoutError: the element is outside the shape, the digits need a wider page, or the suffix
            is unknown.

    >>> from layoutalg import S, TileLayout, laneid
    >>> D = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
    >>> figure = derivation(D, (16, 8))
    >>> [text.string for text in figure.scene.panel("formula").texts]
    ['laneid = 4 · (i mod 8) + j // 2', 'm = 2 · (i // 8) + j mod 2']
    """
    layout, extents = with_shape(layout, shape, "derivation")
    tile: Any = getattr(layout, "tile_layout", layout)
    shape = checked_shape(extents, "derivation")
    if not hasattr(tile, "shard"):
        raise LayoutError(f"derivation: needs a layout of elements; got {layout!r}")
    name = str(layout) if title is None else checked_title(title, "derivation")
    found = derived(tile, shape)
    place = _default_place(tile, shape) if at is None else tuple(at)
    if len(place) != len(shape) or not all(
        type(x) is int and 0 <= x < extent for x, extent in zip(place, shape, strict=True)
    ):
        raise LayoutError(f"derivation: at must be an element of {shape}; got {place}")
    coordinates = place
    if len(found.extents) != len(shape):
        coordinates = (int(np.ravel_multi_index(place, shape)),)
    colors = {axis: HUES[WARP_HUES[n % len(HUES)]][0] for n, axis in enumerate(found.axes)}
    where = ", ".join(f"{n} = {x}" for n, x in zip(_LETTERS, place, strict=False))
    notes = [f"digits of the coordinates over {shape}; example: {where}"]
    page = Page(name, notes, width)

    # The upper ribbon: the digits of each dimension; the lower one: the same boxes by axis.
    top = page.bottom + 14
    upper, lower = _Ribbon(top, above=True), _Ribbon(top + _BOX + _VALUE + _SPACE)
    table = tile.table(shape, replicas=True)
    starts = _fill_upper(upper, found, coordinates, colors)
    places = {axis: table[axis][place] for axis in found.axes}
    ends = _fill_lower(lower, found, coordinates, places, colors)
    right = max(page.right, upper.right, lower.right)
    if right > MARGIN + page.room + 0.01:
        raise LayoutError(
            f"derivation: {len(starts)} digits need {(right + MARGIN) / INCH:.1f} inches; got "
            f"{width:g}. {WIDER}"
        )
    above, below = upper.y + _BOX + _VALUE, lower.y
    links = tuple(
        ((x, above), (x, above + 5), (ends[spot], below - 5), (ends[spot], below))
        for spot, x in starts.items()
    )
    page.add(Panel("links", strokes=(Stroke(links, 0.7, INK, role="link"),)))
    page.add(upper.panel("digits", "index"), upper.right)
    page.add(lower.panel("axes", "axis"), lower.right, below + _BOX + _VALUE + 19)
    lines = [found.formula(axis) for axis in found.axes]
    if tile is not layout:
        lengths = (layout.per_element, layout.swizzle_len, layout.atom_len)
        address = int(tile.table(shape)["m"][place])
        lines.append(
            f"then the swizzle {lengths}, which counts elements: m {address} \u2192 "
            f"{layout.table(shape)['m'][place]}"
        )
    parts = [part for line in lines for part in wrapped(line, page.room, LINE)]
    pitch, bottom = LINE + 2.5, page.bottom
    texts = [
        Text(MARGIN, bottom + pitch * n, part, LINE, "start") for n, part in enumerate(parts, 1)
    ]
    widest = max((text_width(part, LINE) for part in parts), default=0.0)
    formulas = Panel("formula", texts=tuple(texts))
    page.add(formulas, MARGIN + widest, bottom + pitch * len(parts))
    return page.scene()


class _Ribbon:
    """Boxes side by side; those of one group share a bracket and a name, above or below them."""

    def __init__(self, y: float, above: bool = False) -> None:
        self.y, self.above = y, above
        self.x = self.begin = self.right = MARGIN
        self.cells: list[Cell] = []
        self.texts: list[Text] = []
        self.brackets: list[Path] = []

    def box(self, cell: Cell, over: str, under: str, value: str) -> float:
        """Add a box with two lines in it and a value below it, and return its middle."""
        middle = self.x + cell.width / 2
        self.cells.append(replace(cell, x=self.x, y=self.y))
        self.texts += [
            Text(middle, self.y + 11, over, LINE),
            Text(middle, self.y + 19.5, under, SMALL),
            Text(middle, self.y + _BOX + 6.8, value, LINE, bold=True),
        ]
        self.x += cell.width
        return middle

    def name(self, name: str) -> None:
        """Name the boxes since the last name."""
        low = _BOX + _VALUE
        edge, base, tick = (
            (-4.0, -6.5, -2.0) if self.above else (low + 3, low + 5.5 + 0.73 * LINE, 2.0)
        )
        self.right = max(self.x, self.begin + text_width(name, LINE, True) + 2)
        self.brackets.append(bracket_below(self.begin + 1, self.right - 1, self.y + edge, tick))
        middle = (self.begin + self.right) / 2
        self.texts.append(Text(middle, self.y + base, name, LINE, bold=True))
        self.x = self.begin = self.right + _BETWEEN

    def panel(self, name: str, role: str) -> Panel:
        """Return the ribbon, with white rules between its boxes."""
        rules = tuple(((cell.x, cell.y), (cell.x, cell.y + _BOX)) for cell in self.cells[1:])
        strokes = (
            Stroke(rules, 0.8, PAPER, role="grid"),
            Stroke(tuple(self.brackets), 0.6, NOTE, role=role),
        )
        return Panel(name, tuple(self.cells), strokes, tuple(self.texts))


def _fill_upper(
    ribbon: _Ribbon, found: Derivation, coordinates: tuple[int, ...], colors: Mapping[str, str]
) -> dict[tuple[int, int], float]:
    """Set the digits of each dimension; return the middle of each box."""
    middles = {}
    for dim, (name, digits) in enumerate(zip(found.indices, found.digits, strict=True)):
        for n, digit in enumerate(digits):
            value = str(digit.value(coordinates[dim]))
            cell = _box(digit, value, colors[digit.axis], name)
            middles[dim, n] = ribbon.box(cell, digit.rule, f"{digit.stride} @ {digit.axis}", value)
        ribbon.name(f"{name} < {found.extents[dim]}")
    return middles


def _fill_lower(
    ribbon: _Ribbon,
    found: Derivation,
    coordinates: tuple[int, ...],
    places: Mapping[str, Any],
    colors: Mapping[str, str],
) -> dict[tuple[int, int], float]:
    """Set the digits by axis, large strides first; return the middle of each box."""
    middles = {}
    for axis in found.axes:
        placed = [
            (digit, (dim, n))
            for dim, part in enumerate((*found.digits, found.replica))
            for n, digit in enumerate(part)
            if digit.axis == axis
        ]
        placed.sort(key=lambda item: -int(item[0].stride))
        for digit, spot in placed:
            stride, replica = int(digit.stride), spot[0] == len(found.digits)
            if replica:
                value = _values([n * stride for n in range(int(digit.extent))])
            else:
                value = str(digit.value(coordinates[spot[0]]) * stride)
            cell = _box(digit, value, colors[axis], "replica" if replica else axis)
            middles[spot] = ribbon.box(cell, f"\u00d7 {stride}", digit.rule, value)
        if axis in found.offsets:
            constant = str(found.offsets[axis])
            wide = max(text_width("offset", SMALL), text_width(constant, LINE, True)) + _PAD
            cell = Cell(0, 0, wide, _BOX, colors[axis], f"offset {constant} @ {axis}")
            ribbon.box(cell, f"+ {constant}", "offset", constant)
        ribbon.name(f"{axis} = {_values(sorted(set(places[axis].tolist())))}")
    return middles


def _box(digit: Box, value: str, fill: str, part: str) -> Cell:
    """Return the box of a digit, as wide as the texts in it and below it, at (0, 0)."""
    step = f"{digit.stride} @ {digit.axis}"
    widths = text_width(digit.rule, LINE), text_width(step, SMALL), text_width(value, LINE, True)
    data = (
        ("axis", digit.axis),
        ("part", part),
        ("extent", str(digit.extent)),
        ("stride", str(digit.stride)),
    )
    title = f"{digit.rule}, extent {digit.extent}: {step}"
    return Cell(0, 0, _PAD + max(widths), _BOX, fill, title, data)


def _values(numbers: Sequence[int]) -> str:
    """Write one value, or the values of all replicas.

    >>> _values((6, 10)), _values(range(0, 32, 4))
    ('6 or 10', '0, 4 .. 28')
    """
    first = " or ".join(map(str, numbers))
    return first if len(numbers) <= 2 else f"{numbers[0]}, {numbers[1]} .. {numbers[-1]}"
