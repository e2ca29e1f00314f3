"""The inverse of a layout: which element a (lane, register) or an address holds.

On each axis the strides must be super-increasing: each larger than the sum that the smaller ones
reach. Then division by the strides, largest first, recovers the digits, and each logical coordinate
is a weighted sum of digits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis
from layoutalg.algebra.iters import Iter
from layoutalg.algebra.parts import HasParts
from layoutalg.algebra.printing import latex_axis, latex_map
from layoutalg.errors import LayoutError, Undecided
from layoutalg.sizes.arguments import as_coordinate, check_arrays
from layoutalg.sizes.size import Size, ascending, decide, floordiv, is_int, less, mod, tidy


@dataclass(frozen=True)
class AxisDigit:
    """One digit of an axis coordinate, worth ``weight`` in logical dimension ``dim``.

    ``dim`` is None for a replica digit, which changes no logical coordinate.

    >>> from layoutalg import TileLayout, S, laneid
    >>> TileLayout(S[(8, 2):(1 @ laneid, 1)]).inverse((8, 2)).places[0]
    AxisDigit(axis=laneid, extent=8, stride=1, dim=0, weight=1)
    """

    axis: Axis
    extent: Size
    stride: Size
    dim: int | None
    weight: Size


class Swizzle(Protocol):
    """A permutation of addresses that undoes itself: :class:`layoutalg.SwizzleLayout`."""

    def apply(self, address: Any) -> Any:
        """Return the permuted address."""


@dataclass(frozen=True)
class Inverse:
    """The map from machine coordinates to the logical element that sits there.

    ``coordinate[d] = base[d] + sum of weight * digit`` over the digits of dimension d. The digits
    of an axis divide its coordinate minus ``offset``, largest stride first. On the axes ``still``
    the coordinate is always the offset. A ``swizzle`` is undone on axis m before that: digits and
    formulas describe the address without it.

    >>> from layoutalg import TileLayout, S, laneid
    >>> D = TileLayout(S[(2, 8, 4, 2):(2, 4 @ laneid, 1 @ laneid, 1)])
    >>> D.inverse((16, 8)).at(laneid=5, m=3)
    (9, 3)
    >>> print(D.inverse((16, 8)))
    row = g + 8*rM, col = 2*t + rN where g = laneid//4, t = laneid mod 4, rM = m//2, rN = m mod 2
    """

    shape: tuple[Size, ...]
    places: tuple[AxisDigit, ...]
    offset: Mapping[Axis, Size]
    base: tuple[Size, ...]
    still: tuple[Axis, ...] = ()
    swizzle: Swizzle | None = None

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes whose coordinate matters.

        >>> from layoutalg import TileLayout, S, laneid
        >>> TileLayout(S[(8, 1):(1 @ laneid, 1)]).inverse((8,)).axes
        (laneid,)
        """
        return tuple(dict.fromkeys(place.axis for place in self.places))

    def digits(self, axis: Axis, value: Any) -> Iterator[tuple[AxisDigit | None, Any]]:
        """Yield each digit of an axis with its value, and last ``(None, remainder)``.

        ``value`` may be an int, an array, an expression, or anything that divides with ``//``
        and ``%`` (index text in a code generator, for instance).

        >>> from layoutalg import TileLayout, S, laneid
        >>> inverse = TileLayout(S[(8, 4):(4 @ laneid, 1 @ laneid)]).inverse((8, 4))
        >>> [digit for _, digit in inverse.digits(laneid, 13)]
        [3, 1, 0]
        """
        start = self.offset.get(axis, 0)
        rest = value if type(start) is int and start == 0 else value - start
        for place in self.places:
            if place.axis is axis:
                unit = place.stride
                yield place, rest if type(unit) is int and unit == 1 else floordiv(rest, unit)
                rest = mod(rest, unit)
        yield None, rest

    def at(self, **coordinate: Any) -> tuple[Any, ...] | None:
        """Return the logical coordinate that sits at a machine coordinate; None: nothing does.

        Args:
            coordinate: a value for every axis on which the layout moves, and for others of the
                layout if you like: an int, an integer array or an expression. Only ints are checked
                against the layout's range.

        Raises:
            LayoutError: an axis is missing, is not one of the layout's, or a value is no integer.

        >>> from layoutalg import TileLayout, S, laneid
        >>> inverse = TileLayout(S[(8, 4):(4 @ laneid, 1 @ laneid)]).inverse((8, 4))
        >>> inverse.at(laneid=13), inverse.at(laneid=32)
        ((3, 1), None)
        """
        known = {axis.name: axis for axis in (*self.axes, *self.offset, *self.still)}
        if not {axis.name for axis in self.axes} <= set(coordinate) <= set(known):
            raise LayoutError(
                f"inverse: a value for each of the axes {', '.join(known)} is needed; "
                f"got {', '.join(coordinate) or 'none'}"
            )
        values = {name: as_coordinate(v, f"inverse: {name}") for name, v in coordinate.items()}
        if any(getattr(value, "ndim", 0) for value in values.values()):
            check_arrays(list(values.values()), "inverse")
        if self.swizzle is not None and "m" in values:
            values["m"] = self.swizzle.apply(values["m"])
        result: list[Any] = list(self.base)
        for name, value in values.items():
            for place, digit in self.digits(known[name], value):
                limit = 1 if place is None else place.extent
                if is_int(digit, limit) and not 0 <= digit < limit:
                    return None
                if place is not None and place.dim is not None:
                    result[place.dim] = result[place.dim] + digit * place.weight
        return tuple(tidy(value) for value in result)

    def expressions(self) -> tuple[Any, ...]:
        """Return each logical coordinate as an expression in symbols named like the axes.

        >>> from layoutalg import TileLayout, S, laneid
        >>> TileLayout(S[(8, 4):(4 @ laneid, 1 @ laneid)]).inverse((8, 4)).expressions()
        (laneid//4, laneid mod 4)
        """
        values = list(self.base)
        for axis in self.axes:
            for place, digit in self.digits(axis, _coordinate(axis)):
                if place is not None and place.dim is not None:
                    values[place.dim] = values[place.dim] + digit * place.weight
        return tuple(tidy(value) for value in values)

    def digit_expressions(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return each logical coordinate as a sum of named digits, and what each name means.

        The digits of ``laneid`` bear the PTX names g = laneid//4 and t = laneid mod 4 where those
        are its digits; a register digit is named by the dimension that it moves: rM, rN.

        >>> from layoutalg import TileLayout, S, laneid
        >>> D = TileLayout(S[(2, 8, 4, 2):(2, 4 @ laneid, 1 @ laneid, 1)])
        >>> D.inverse((16, 8)).digit_expressions()[0]
        (g + 8*rM, 2*t + rN)
        """
        from layoutalg.sizes.symbolic import DigitSymbol

        names = self._names()
        ranks = {place: rank for rank, place in enumerate(self.places)}  # the lane's digits first
        sums: list[Any] = list(self.base)
        meaning: dict[str, Any] = {}
        for axis in self.axes:
            for place, digit in self.digits(axis, _coordinate(axis)):
                if place is None:
                    continue
                meaning[names[place]] = tidy(digit)
                if place.dim is not None:
                    digit = DigitSymbol(names[place], place.extent, ranks[place])
                    sums[place.dim] += place.weight * digit
        return tuple(tidy(value) for value in sums), meaning

    def _names(self) -> dict[AxisDigit, str]:
        lane = [(p.extent, p.stride) for p in self.places if p.axis.name == "laneid"]
        letters = "MN" if len(self.shape) == 2 else "0123456789"
        stems: dict[AxisDigit, str] = {}
        for place in self.places:
            if place.axis.name == "laneid" and lane == [(8, 4), (4, 1)]:
                stems[place] = "g" if place.stride == 4 else "t"
            elif place.dim is None:
                stems[place] = f"{place.axis}_copy"
            else:
                stem = "r" if place.axis.name == "m" else f"{place.axis}_"
                stems[place] = stem + letters[place.dim % len(letters)]
        of_stem, met = Counter(stems.values()), Counter[str]()
        result = {}
        for place, stem in stems.items():
            result[place] = stem if of_stem[stem] == 1 else f"{stem}{met[stem]}"
            met[stem] += 1
        return result

    def __str__(self) -> str:
        """Return the formulas, one per dimension, and the meaning of their digits."""
        sums, meaning = self.digit_expressions()
        left = ("row", "col") if len(sums) == 2 else tuple(f"i{d}" for d in range(len(sums)))
        formulas = ", ".join(f"{name} = {value}" for name, value in zip(left, sums, strict=True))
        where = ", ".join(f"{name} = {value}" for name, value in meaning.items())
        where += "" if self.swizzle is None else f", and m is {self.swizzle} of the address"
        return f"{formulas} where {where}" if where else formulas

    def _repr_latex_(self) -> str:
        """Return the formulas as mathematics, for Jupyter."""
        names = tuple(latex_axis(axis) for axis in self.axes)
        values = self.expressions()
        left = ("row", "col") if len(values) == 2 else tuple(f"i{d}" for d in range(len(values)))
        return f"${latex_map(names, dict(zip(left, values, strict=True)))}$"


def _coordinate(axis: Axis) -> Any:
    """Return the symbol of a machine coordinate: an integer from 0 on, named like its axis."""
    from layoutalg.sizes.symbolic import nonnegative

    return nonnegative(axis.name)


def inverse(parts: HasParts, shape: Sequence[Size]) -> Inverse:
    """Return the inverse of a layout over a shape: see ``TileLayout.inverse``."""
    pieces, seps = algebra.group(parts.shard, shape, parts, "inverse")
    base: list[Any] = [0] * len(shape)
    offset: dict[Axis, Any] = dict(parts.offset)
    places: list[AxisDigit] = []

    def add(it: Iter, dim: int | None, weight: Any) -> None:
        if it.extent == 1:
            return
        stride: Any = it.stride
        if less(stride, 0):  # count this digit from its other end
            last: Any = it.extent - 1
            offset[it.axis] = offset.get(it.axis, 0) + last * stride
            if dim is not None:
                base[dim] = base[dim] + last * weight
            stride, weight = -stride, -weight
        places.append(AxisDigit(it.axis, it.extent, stride, dim, weight))

    for dim in range(len(shape)):
        weight: Any = 1
        for it in reversed(pieces[seps[dim] : seps[dim + 1]]):
            add(it, dim, weight)
            weight = weight * it.extent
    for it in parts.replica:
        if it.stride != 0:
            add(it, None, 0)
    ordered: list[AxisDigit] = []
    for axis in dict.fromkeys(place.axis for place in places):
        ordered.extend(_super_increasing([p for p in places if p.axis is axis], parts))
    lane_first = sorted(ordered, key=lambda place: place.axis.memory)
    moved = {place.axis for place in places}
    still = dict.fromkeys(it.axis for it in parts.shard + parts.replica if it.axis not in moved)
    return Inverse(tuple(shape), tuple(lane_first), offset, tuple(base), tuple(still))


def _super_increasing(places: list[AxisDigit], parts: HasParts) -> list[AxisDigit]:
    """Order the digits by descending stride; each stride must exceed the reach of the smaller."""
    order = ascending([place.stride for place in places])
    if order is None:
        raise Undecided(
            f"inverse: in what order are the strides {', '.join(str(p.stride) for p in places)} on "
            f"axis {places[0].axis}? The symbols leave it open; substitute them."
        )
    ordered = [places[index] for index in order]
    below: Any = 0
    for place in ordered:
        clears = decide(
            less(below, place.stride),
            "inverse: does stride {} clear {}, the reach of the smaller strides",
            "substitute the symbols",
            place.stride,
            below,
        )
        if not clears and not less(1, place.extent):
            raise Undecided(
                f"inverse: has the iter {place.extent}:{place.stride}@{place.axis} of {parts} one "
                "element? Only then do the smaller strides leave room; substitute the symbols."
            )
        if not clears:
            raise LayoutError(
                f"inverse: on axis {place.axis} stride {place.stride} must exceed {below}, what "
                f"the smaller strides reach together, or division does not give the digits back; "
                f"got {parts}"
            )
        below = below + (place.extent - 1) * place.stride
    return ordered[::-1]
