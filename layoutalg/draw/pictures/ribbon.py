"""``derivation``: the digits of the coordinates, and the axes that they are added up on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from layoutalg.algebra.iters import Iter
from layoutalg.draw.scene.grid import bracket_below
from layoutalg.draw.scene.ownership import DEFAULT_LANE, checked_shape, owners_of
from layoutalg.draw.scene.page import (
    INCH,
    LINE,
    MARGIN,
    PAGE,
    SMALL,
    WIDER,
    heading,
    wrapped,
)
from layoutalg.draw.scene.palette import HUES, INK, NOTE, PAPER, WARP_HUES
from layoutalg.draw.scene.picture import picture
from layoutalg.draw.scene.scene import Cell, Panel, Scene, Stroke, Text, checked_title, text_width
from layoutalg.errors import LayoutError

_BOX = 25.0  # height of a digit's box
_VALUE = 9.0  # height of the row of values below the boxes
_SPACE = 38.0  # between the two ribbons, for the connections
_BETWEEN = 14.0  # between dimensions, and between axes
_PAD = 6.0  # inside a box
_LETTERS = ("i", "j", "k", "l", "p", "q")


class Grouped(Protocol):
    """A layout that can be cut along a shape: ``TileLayout``."""

    @property
    def shard(self) -> tuple[Iter, ...]:
        """The ordered iters."""

    @property
    def copies(self) -> tuple[Iter, ...]:
        """The iters along which each element is repeated."""

    @property
    def offset(self) -> Any:
        """A mapping from axes to constants."""

    def group(self, shape: Sequence[Any]) -> tuple[Any, tuple[int, ...]]:
        """Return the refined layout and the separators."""

    def table(self, shape: Sequence[Any], replicas: bool = False) -> Any:
        """Return the values per axis name."""


@dataclass(frozen=True)
class Digit:
    """One digit of a coordinate: ``index // weight mod extent``, times ``stride`` on ``axis``.

    A replica's digit is an index of its own, which takes every value.
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
    digits: tuple[tuple[Digit, ...], ...]
    replica: tuple[Digit, ...]
    axes: tuple[str, ...]
    offsets: dict[str, Any]

    def on(self, axis: str) -> tuple[Digit, ...]:
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


def derived(layout: Grouped, shape: Sequence[int]) -> Derivation:
    """Cut a layout into the digits of each dimension; of the flat index where it does not group.

    >>> from layoutalg import S, TileLayout
    >>> derived(TileLayout(S[(6, 4) : (4, 1)]), (8, 3)).indices
    ('3i + j',)
    """
    shape = tuple(shape)
    if not 1 <= len(shape) <= len(_LETTERS):
        raise LayoutError(f"derivation: a shape has 1 to {len(_LETTERS)} dimensions; got {shape}")
    names = _LETTERS[: len(shape)]
    try:
        grouped, seps = layout.group(shape)
    except LayoutError:
        total = int(np.prod(shape))
        grouped, seps = layout.group((total,))
        weights = [int(np.prod(shape[n + 1 :])) for n in range(len(shape))]
        flat = " + ".join(n if w == 1 else f"{w}{n}" for n, w in zip(names, weights, strict=True))
        names, shape = (flat,), (total,)
    parts = []
    for name, extent, a, b in zip(names, shape, seps[:-1], seps[1:], strict=True):
        weight: Any = 1
        part: list[Digit] = []
        index = name if len(name) == 1 else f"({name})"
        for it in reversed(grouped.shard[a:b]):
            if it.extent != 1:
                top = weight * it.extent == extent
                part.append(Digit(index, weight, it.extent, it.stride, it.axis.name, top))
            weight = weight * it.extent
        parts.append(tuple(reversed(part)))
    copies = layout.copies
    replica = tuple(
        Digit("r" if len(copies) == 1 else f"r{n}", 1, it.extent, it.stride, it.axis.name, True)
        for n, it in enumerate(copies)
    )
    offsets = {axis.name: value for axis, value in layout.offset.items() if value != 0}
    axes = {it.axis for it in (*layout.shard, *copies)} | set(layout.offset)
    ordered = sorted(axes, key=lambda axis: (axis.memory, axis.name))
    return Derivation(
        names, shape, tuple(parts), replica, tuple(axis.name for axis in ordered), offsets
    )


def _default_place(layout: Grouped, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the last element of lane 5, or the last element."""
    if len(shape) <= 2:
        owners = owners_of(layout, shape, "derivation")
        held = owners.holds(DEFAULT_LANE, "derivation")
        if held is not None:
            row, column = (int(i) for i in np.argwhere(held)[-1])
            return (row, column)[-len(shape) :]
    return tuple(extent - 1 for extent in shape)


@picture
def derivation(
    layout: Any,
    shape: Sequence[int],
    at: Sequence[int] | None = None,
    *,
    width: float = PAGE,
    title: str | None = None,
) -> Scene:
    """Draw how coordinates become places: each digit of (i, j), coloured by its axis.

    The upper ribbon holds the digits of each coordinate, the lower one the same digits by axis,
    times their strides; the formulas stand below. Bold numbers are those of one element.

    Args:
        layout: a ``TileLayout``, or a ``ComposeLayout``, whose tile is drawn.
        shape: of the elements; a layout that does not group by it is drawn on the flat index.
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
    tile: Grouped = getattr(layout, "tile_layout", layout)
    shape = checked_shape(shape, "derivation")
    if not hasattr(tile, "shard"):
        raise LayoutError(f"derivation: a formula is of a layout of elements; got {layout!r}")
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
    room = width * INCH - 2 * MARGIN
    where = ", ".join(f"{n} = {x}" for n, x in zip(_LETTERS, place, strict=False))
    notes = [f"digits of the coordinates over {shape}; example: {where}"]
    head, right, y = heading(name, notes, room)
    right += MARGIN

    # The upper ribbon: the digits of each dimension; the lower one: the same boxes by axis.
    upper, at_upper, x_end = _upper(found, coordinates, colors, y + 14)
    lower_y = y + 14 + _BOX + _VALUE + _SPACE
    table = tile.table(shape, replicas=True)
    lower, at_lower, x_low = _lower(
        found, coordinates, {a: table[a][place] for a in found.axes}, colors, lower_y
    )
    right = max(right, x_end, x_low)
    if right > MARGIN + room + 0.01:
        raise LayoutError(
            f"derivation: {len(at_upper)} digits need {(right + MARGIN) / INCH:.1f} inches; got "
            f"{width:g}. {WIDER}"
        )
    top = y + 14 + _BOX + _VALUE
    links = tuple(
        ((x, top), (x, top + 5), (u, lower_y - 5), (u, lower_y))
        for x, u in ((at_upper[d], at_lower[d]) for d in at_upper)
    )
    connections = Panel("links", strokes=(Stroke(links, 0.7, INK, role="link"),))
    bottom = lower_y + _BOX + _VALUE + 19
    texts = []
    lines = [found.formula(axis) for axis in found.axes]
    if tile is not layout:
        lengths = (layout.per_element, layout.swizzle_len, layout.atom_len)
        address = int(tile.table(shape)["m"][place])
        lines.append(
            f"then the swizzle {lengths}, which counts elements: m {address} \u2192 "
            f"{layout.table(shape)['m'][place]}"
        )
    for line in lines:
        for part in wrapped(line, room, LINE):
            bottom += LINE + 2.5
            texts.append(Text(MARGIN, bottom, part, LINE, "start"))
            right = max(right, MARGIN + text_width(part, LINE))
    formulas = Panel("formula", texts=tuple(texts))
    return Scene(
        right + MARGIN,
        bottom + MARGIN,
        name,
        (head, connections, upper, lower, formulas),
    )


def _box_width(digit: Digit, value: str) -> float:
    return _PAD + max(
        text_width(digit.rule, LINE),
        text_width(f"{digit.stride} @ {digit.axis}", SMALL),
        text_width(value, LINE, True),
    )


def _upper(
    found: Derivation, coordinates: tuple[int, ...], colors: dict[str, str], y: float
) -> tuple[Panel, dict[tuple[int, int], float], float]:
    """Draw the digits of each dimension; return the panel, the middle of each box, and the end."""
    cells, texts, middles = [], [], {}
    brackets = []
    x = MARGIN
    for dim, (name, extent, digits) in enumerate(
        zip(found.indices, found.extents, found.digits, strict=True)
    ):
        begin = x
        for n, digit in enumerate(digits):
            value = str(digit.value(coordinates[dim]))
            wide = _box_width(digit, value)
            cells.append(_cell(digit, x, y, wide, colors[digit.axis], name))
            texts += _words(digit.rule, f"{digit.stride} @ {digit.axis}", x + wide / 2, y)
            texts.append(Text(x + wide / 2, y + _BOX + 6.8, value, LINE, bold=True))
            middles[dim, n] = x + wide / 2
            x += wide
        label = f"{name} < {extent}"
        x = max(x, begin + text_width(label, LINE, True) + 2)
        brackets.append(bracket_below(begin + 1, x - 1, y - 4, -2.0))
        texts.append(Text((begin + x) / 2, y - 6.5, label, LINE, bold=True))
        x += _BETWEEN
    return (
        Panel(
            "digits",
            tuple(cells),
            (_separators(cells), Stroke(tuple(brackets), 0.6, NOTE, role="index")),
            tuple(texts),
        ),
        middles,
        x - _BETWEEN,
    )


def _lower(
    found: Derivation,
    coordinates: tuple[int, ...],
    places: dict[str, Any],
    colors: dict[str, str],
    y: float,
) -> tuple[Panel, dict[tuple[int, int], float], float]:
    """Draw the digits by axis, large strides first; return the panel, the middles, and the end."""
    cells, texts, middles, brackets = [], [], {}, []
    x = MARGIN
    for axis in found.axes:
        begin = x
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
            wide = _box_width(digit, value)
            cells.append(_cell(digit, x, y, wide, colors[axis], "replica" if replica else axis))
            texts += _words(f"\u00d7 {stride}", digit.rule, x + wide / 2, y)
            if not replica:
                middles[spot] = x + wide / 2
            texts.append(Text(x + wide / 2, y + _BOX + 6.8, value, LINE, bold=True))
            x += wide
        if axis in found.offsets:
            constant = str(found.offsets[axis])
            wide = max(text_width("offset", SMALL), text_width(constant, LINE, True)) + _PAD
            cells.append(Cell(x, y, wide, _BOX, colors[axis], f"offset {constant} @ {axis}"))
            texts += _words(f"+ {constant}", "offset", x + wide / 2, y)
            texts.append(Text(x + wide / 2, y + _BOX + 6.8, constant, LINE, bold=True))
            x += wide
        label = f"{axis} = {_values(sorted(set(places[axis].tolist())))}"
        x = max(x, begin + text_width(label, LINE, True) + 2)
        brackets.append(bracket_below(begin + 1, x - 1, y + _BOX + _VALUE + 3))
        texts.append(
            Text((begin + x) / 2, y + _BOX + _VALUE + 5.5 + 0.73 * LINE, label, LINE, bold=True)
        )
        x += _BETWEEN
    return (
        Panel(
            "axes",
            tuple(cells),
            (_separators(cells), Stroke(tuple(brackets), 0.6, NOTE, role="axis")),
            tuple(texts),
        ),
        middles,
        x - _BETWEEN,
    )


def _cell(digit: Digit, x: float, y: float, width: float, fill: str, part: str) -> Cell:
    return Cell(
        x,
        y,
        width,
        _BOX,
        fill,
        f"{digit.rule}, extent {digit.extent}: {digit.stride} @ {digit.axis}",
        (
            ("axis", digit.axis),
            ("part", part),
            ("extent", str(digit.extent)),
            ("stride", str(digit.stride)),
        ),
    )


def _values(numbers: Sequence[int]) -> str:
    """Write one value, or the values of all replicas.

    >>> _values((6, 10)), _values(range(0, 32, 4))
    ('6 or 10', '0, 4 .. 28')
    """
    first = " or ".join(map(str, numbers))
    return first if len(numbers) <= 2 else f"{numbers[0]}, {numbers[1]} .. {numbers[-1]}"


def _words(over: str, under: str, x: float, y: float) -> list[Text]:
    return [Text(x, y + 11, over, LINE), Text(x, y + 19.5, under, SMALL)]


def _separators(cells: list[Cell]) -> Stroke:
    """Rule between the boxes of a ribbon."""
    return Stroke(
        tuple(((cell.x, cell.y), (cell.x, cell.y + cell.height)) for cell in cells[1:]),
        0.8,
        PAPER,
        role="grid",
    )
