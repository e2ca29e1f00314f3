"""The arithmetic of a layout written out: from an element to its (lane, register), and back.

A coordinate is cut into the digits of the layout; each digit, times its stride, adds to one axis.
The way back cuts the number of a lane or a slot into the same digits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layoutalg.algebra.iters import Iter
from layoutalg.algebra.parts import sizes
from layoutalg.algebra.printing import stride_text
from layoutalg.errors import LayoutError, Undecided
from layoutalg.layouts.swizzle import ComposeLayout, SwizzleLayout
from layoutalg.layouts.tile_layout import Layout, TileLayout
from layoutalg.proofs.verdict import Place, place_text
from layoutalg.sizes.size import Size, as_shape, is_int, product

Element = tuple[int, ...]


def coordinate_names(rank: int) -> tuple[str, ...]:
    """Name the dimensions of a tile.

    >>> coordinate_names(2), coordinate_names(3)
    (('row', 'col'), ('i0', 'i1', 'i2'))
    """
    return ("row", "col") if rank == 2 else tuple(f"i{dim}" for dim in range(rank))


def digits_of(
    layout: TileLayout, shape: Sequence[Size]
) -> tuple[tuple[Size, ...], tuple[tuple[tuple[Size, Iter], ...], ...]]:
    """Cut each dimension into digits: (weight, iter) stands for ``index // weight mod extent``.

    Where the shape cuts an iter the digits are those of the flat index, over the extent (size,).

    Returns:
        The extents, and per dimension its digits of extent 2 or more, the uppermost first.

    >>> from layoutalg import parse
    >>> extents, (rows, columns) = digits_of(parse("S[(2,8,4,2):(2,4@laneid,1@laneid,1)]"), (16, 8))
    >>> [weight for weight, _ in rows], [weight for weight, _ in columns]
    ([8, 1], [2, 1])
    """
    extents = tuple(shape)
    try:
        grouped, seps = layout.group(extents)
    except LayoutError:
        extents = (product(extents),)
        grouped, seps = layout.group(extents)
    parts = []
    for begin, end in itertools.pairwise(seps):
        weight: Size = 1
        part = []
        for it in reversed(grouped.shard[begin:end]):
            if it.extent != 1:
                part.append((weight, it))
            weight = weight * it.extent
        parts.append(tuple(reversed(part)))
    return extents, tuple(parts)


@dataclass(frozen=True)
class Digit:
    """One digit of a number: its value, out of ``extent``, and what it adds, to what.

    >>> print(Digit("row // 8", 1, 2, "2", 2, "m"))
    row // 8 = 1: 1·2 = 2 on m
    """

    source: str
    value: int
    extent: int
    stride: str
    adds: int
    to: str

    def __str__(self) -> str:
        """Return the digit as one line."""
        step = self.stride.split("@")[0]
        return f"{self.source} = {self.value}: {self.value}·{step} = {self.adds} on {self.to}"


@dataclass(frozen=True)
class Sum:
    """What digits add up to, on an axis or in a dimension; a constant is the last term.

    >>> print(Sum("row", (1, 8)), Sum("col", (3,)), Sum("m", ()), sep=", ")
    row = 1 + 8 = 9, col = 3, m = 0
    """

    name: str
    terms: tuple[int, ...]

    @property
    def total(self) -> int:
        """The sum.

        >>> Sum("row", (1, 8)).total
        9
        """
        return sum(self.terms)

    def __str__(self) -> str:
        """Return the sum with its terms."""
        terms = " + ".join(map(str, self.terms or (0,)))
        return f"{self.name} = {terms}" + f" = {self.total}" * (len(self.terms) > 1)


@dataclass(frozen=True)
class Swizzling:
    """What a swizzle does to one address, both counted in elements.

    >>> print(Swizzling(SwizzleLayout(3, 3, 3), 67, 75))
    67 is unit 8 of 8 elements, and 3: 8 XOR 1 = 9, so 9·8 + 3 = 75
    """

    swizzle: SwizzleLayout
    before: int
    after: int

    def __str__(self) -> str:
        """Return the XOR, in units of the swizzle."""
        unit = 1 << self.swizzle.per_element
        old, new, rest = self.before // unit, self.after // unit, self.before % unit
        return (
            f"{self.before} is unit {old} of {unit} elements, and {rest}: "
            f"{old} XOR {old ^ new} = {new}, so {new}·{unit} + {rest} = {self.after}"
        )


@dataclass(frozen=True)
class Explanation:
    """One element and its machine coordinate, with the digits that lead from one to the other.

    Attributes:
        layout: the map.
        shape: logical extents.
        element: the logical coordinate.
        place: its first machine coordinate, as pairs (axis name, value).
        digits: of the logical coordinate where an element was asked for; else of ``place``.
        sums: what the digits add up to.
        copies: its other machine coordinates.
        swizzling: of the address, where the layout is swizzled.

    >>> from layoutalg import parse
    >>> print(explain_element(parse("S[(2,8,4,2):(2,4@laneid,1@laneid,1)]"), (9, 3), (16, 8)))
    element (9, 3) is at m 3, laneid 5
      row // 8 = 1: 1·2 = 2 on m
      row mod 8 = 1: 1·4 = 4 on laneid
      col // 2 = 1: 1·1 = 1 on laneid
      col mod 2 = 1: 1·1 = 1 on m
      m = 2 + 1 = 3
      laneid = 4 + 1 = 5
    """

    layout: Layout
    shape: tuple[int, ...]
    element: Element
    place: Place
    digits: tuple[Digit, ...]
    sums: tuple[Sum, ...]
    copies: tuple[Place, ...] = ()
    swizzling: Swizzling | None = None

    def __str__(self) -> str:
        """Return the digits and the sums as text."""
        lines = [f"element {self.element} is at {place_text(self.place)}"]
        lines += [f"  {digit}" for digit in self.digits]
        lines += [f"  {each}" for each in self.sums]
        lines += [f"  swizzled: {self.swizzling}"] if self.swizzling else []
        lines += [f"  and at {place_text(copy)}" for copy in self.copies]
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """Return the explanation as plain lists and dicts, for JSON.

        >>> from layoutalg import parse
        >>> explain_element(parse("S[4:1@laneid]"), (3,), (4,)).record()["place"]
        {'laneid': 3}
        """
        return {
            "layout": str(self.layout),
            "shape": list(self.shape),
            "element": list(self.element),
            "place": dict(self.place),
            "copies": [dict(copy) for copy in self.copies],
            "digits": [
                {
                    "digit": digit.source,
                    "value": digit.value,
                    "extent": digit.extent,
                    "stride": digit.stride,
                    "adds": digit.adds,
                    "to": digit.to,
                }
                for digit in self.digits
            ],
        } | ({"before_swizzle": self.swizzling.before} if self.swizzling else {})


def explain_element(layout: Layout, element: Sequence[int], shape: Sequence[int]) -> Explanation:
    """Say where an element is and why.

    The sums of the explanation are ``layout.apply(*element, shape=shape)``.

    Args:
        layout: a layout of numbers.
        element: one index per dimension.
        shape: logical extents; where they cut a digit of the layout, the flat index is explained.

    Raises:
        LayoutError: the element lies outside, or the shape has another size.
        Undecided: a size is symbolic.

    >>> from layoutalg import S, ComposeLayout
    >>> tile = ComposeLayout(3, 3, 3, TileLayout(S[(8, 64) : (64, 1)]))
    >>> print(explain_element(tile, (1, 3), (8, 64)))
    element (1, 3) is at m 75
      row = 1: 1·64 = 64 on m
      col = 3: 3·1 = 3 on m
      m = 64 + 3 = 67
      swizzled: 67 is unit 8 of 8 elements, and 3: 8 XOR 1 = 9, so 9·8 + 3 = 75
    """
    tile, swizzle = _tile(layout)
    extents = _numbers(tile, shape, "explain")
    at = tuple(element)
    before = tile.apply(*at, shape=extents)
    owners = tile.owners(*at, shape=extents)
    digits = tuple(_cut(tile, at, extents))
    sums = []
    for axis, total in before.items():
        terms = [digit.adds for digit in digits if digit.to == axis]
        terms += [value for key, value in tile.offset.items() if key.name == axis and value]
        sums.append(Sum(axis, tuple(terms)))
        assert sums[-1].total == total, (tile, at)
    places = [tuple(owner.items()) for owner in owners]
    swizzling = None
    if swizzle is not None:
        places = [tuple(layout.apply(*at, shape=extents).items())]
        swizzling = Swizzling(swizzle, before["m"], dict(places[0])["m"])
    return Explanation(
        layout, extents, at, places[0], digits, tuple(sums), tuple(places[1:]), swizzling
    )


def explain_place(
    layout: Layout, place: Mapping[str, int], shape: Sequence[int]
) -> Explanation | None:
    """Say which element a (lane, register) or an address holds, and why; None if it holds none.

    The sums of the explanation are ``layout.inverse(shape).at(**place)``.

    Args:
        layout: an injective layout without symbols.
        place: a coordinate for each axis of the layout.
        shape: logical extents.

    Raises:
        LayoutError: an axis is missing or unknown, or the layout has no such inverse.
        Undecided: a size is symbolic.

    >>> from layoutalg import parse
    >>> D = parse("S[(2,8,4,2):(2,4@laneid,1@laneid,1)]")
    >>> print(explain_place(D, {"laneid": 5, "m": 3}, (16, 8)))
    element (9, 3) is at laneid 5, m 3
      laneid // 4 = 1: 1·1 = 1 on row
      laneid mod 4 = 1: 1·2 = 2 on col
      m // 2 = 1: 1·8 = 8 on row
      m mod 2 = 1: 1·1 = 1 on col
      row = 1 + 8 = 9
      col = 2 + 1 = 3
    """
    tile, swizzle = _tile(layout)
    extents = _numbers(tile, shape, "explain")
    inverse = tile.inverse(extents)
    given = dict(place)
    swizzling = None
    if swizzle is not None and "m" in given:
        given["m"] = swizzle.apply(place["m"])  # it undoes itself
        swizzling = Swizzling(swizzle, given["m"], place["m"])
    element = inverse.at(**given)
    if element is None:
        return None
    names = coordinate_names(len(extents))
    axes = {axis.name: axis for axis in (*inverse.axes, *inverse.offset, *inverse.still)}
    digits: list[Digit] = []
    for name, value in given.items():
        axis, above = axes[name], None
        start = int(inverse.offset.get(axis, 0))
        number = (
            name if not start else f"({name} - {start})" if start > 0 else f"({name} + {-start})"
        )
        for at, digit in inverse.digits(axis, value):
            if at is None:
                continue
            weight = int(at.weight)
            to = "no dimension: a copy" if at.dim is None else names[at.dim]
            source = _source(number, int(at.stride), above)
            digits.append(Digit(source, digit, int(at.extent), str(weight), digit * weight, to))
            above = int(at.stride)
    sums = []
    for name, base, total in zip(names, inverse.base, element, strict=True):
        terms = [digit.adds for digit in digits if digit.to == name] + [base] * (base != 0)
        sums.append(Sum(name, tuple(terms)))
        assert sums[-1].total == total, (tile, given)
    return Explanation(
        layout, extents, element, tuple(place.items()), tuple(digits), tuple(sums), (), swizzling
    )


def explain_held(
    layout: Layout, place: Mapping[str, int], shape: Sequence[int]
) -> tuple[Explanation, ...]:
    """Explain what a lane holds, in every slot (axis m) unless ``place`` names one.

    An axis that ``place`` leaves out is at its first coordinate.

    Raises:
        LayoutError: as :func:`explain_place`. Undecided: a size is symbolic.

    >>> from layoutalg import parse
    >>> D = parse("S[(2,8,4,2):(2,4@laneid,1@laneid,1)]")
    >>> [found.element for found in explain_held(D, {"laneid": 5}, (16, 8))]
    [(1, 2), (1, 3), (9, 2), (9, 3)]
    """
    tile, _ = _tile(layout)
    inverse = tile.inverse(_numbers(tile, shape, "explain"))
    first = {axis.name: int(inverse.offset.get(axis, 0)) for axis in inverse.axes}
    whole = first | dict(place)
    slots = [whole["m"]] if "m" in whole else []
    if "m" in first and "m" not in place:
        slots = list(range(first["m"], int(tile.span("m"))))
    places = [whole | {"m": slot} for slot in slots] or [whole]
    found = (explain_place(layout, each, shape) for each in places)
    return tuple(each for each in found if each is not None)


def reach(layout: Layout, axis: str, shape: Sequence[int]) -> tuple[int, int] | None:
    """Return the least and the greatest coordinate that a layout has on an axis.

    Coordinates between them may hold nothing. None where the layout has no such axis.

    Args:
        layout: a layout of numbers.
        axis: the name of one of its axes.
        shape: logical extents.

    Raises:
        Undecided: a size is symbolic.

    >>> from layoutalg import parse
    >>> reach(parse("S[(4,2):(8@laneid,-1)] + 3"), "m", (4, 2))
    (2, 3)
    """
    tile, swizzle = _tile(layout)
    extents = _numbers(tile, shape, "explain")
    if swizzle is not None and axis == "m":
        addresses = layout.table(extents)[axis]
        return int(addresses.min()), int(addresses.max())
    here = [it for it in (*tile.shard, *tile.replica) if it.axis.name == axis]
    begins = [int(value) for key, value in tile.offset.items() if key.name == axis]
    if not here and not begins:
        return None
    steps = [(int(it.extent) - 1) * int(it.stride) for it in here]
    begin = sum(begins)
    return begin + sum(min(0, step) for step in steps), begin + sum(max(0, s) for s in steps)


def _tile(layout: Layout) -> tuple[TileLayout, SwizzleLayout | None]:
    """Return a layout and no swizzle, or the tile of a swizzled one and its swizzle."""
    return layout.tile_layout, layout.swizzle if isinstance(layout, ComposeLayout) else None


def _numbers(layout: TileLayout, shape: Sequence[int], function: str) -> tuple[int, ...]:
    """Return the extents, if they and the layout are numbers."""
    extents = as_shape(shape, function)
    if not is_int(*extents, *sizes(layout)):
        raise Undecided(
            f"{function}: digits have values where all sizes are numbers; got {layout} over "
            f"{extents}: substitute with .subs"
        )
    return tuple(int(extent) for extent in extents)


def _cut(layout: TileLayout, element: Element, shape: tuple[int, ...]) -> Iterator[Digit]:
    """Cut the coordinates of an element into digits; its flat index where the shape cuts some."""
    extents, parts = digits_of(layout, shape)
    names, numbers = coordinate_names(len(shape)), element
    if extents != shape:
        weights = [product(shape[dim + 1 :]) for dim in range(len(shape))]
        names = ("index",)
        numbers = (sum(int(w) * at for w, at in zip(weights, element, strict=True)),)
    for name, number, length, part in zip(names, numbers, extents, parts, strict=True):
        for weight, it in part:
            above = int(weight * it.extent)
            source = _source(name, int(weight), None if above == length else above)
            value = number // int(weight) % int(it.extent)
            step = stride_text(Iter(1, it.stride, it.axis))
            yield Digit(source, value, int(it.extent), step, value * int(it.stride), it.axis.name)


def _source(number: str, weight: int, above: int | None) -> str:
    """Write a digit: ``row mod 16 // 8``; the uppermost needs no mod, the lowest no division."""
    return number + (f" mod {above}" if above else "") + (f" // {weight}" if weight > 1 else "")
