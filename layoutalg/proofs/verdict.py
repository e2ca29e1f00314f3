"""Verdicts: the answer to a question about layouts, with its proof or a counter-example.

A verdict is true or false, never a guess: where symbols leave the question open, it raises
:class:`layoutalg.Undecided` instead. True comes with a :class:`Certificate` (the digits of the
mixed radix and what each of them settles), false with a counter-example.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from layoutalg.algebra.axis import Axis
from layoutalg.algebra.iters import Iter
from layoutalg.algebra.printing import stride_text
from layoutalg.sizes.size import Size

Place = tuple[tuple[str, Size], ...]  # (axis name, coordinate), one per axis


def place_text(place: Place) -> str:
    """Print a machine coordinate.

    >>> place_text((("laneid", 5), ("m", 3)))
    'laneid 5, m 3'
    """
    return ", ".join(f"{name} {value}" for name, value in place) or "the origin"


Made = TypeVar("Made", bound=type)


def late(template: str, *values: object) -> str:
    """Return text that is formatted when it is read from a :func:`written_late` field.

    The proof of a layout with n iters names n numbers of n digits, and few proofs are printed.

    >>> Certificate(late("{} and {} are equal", 4, 2 + 2)).argument
    '4 and 4 are equal'
    """
    return cast(str, partial(template.format, *values))


def written(text: str) -> str:
    """Return :func:`late` text, or any other, as a string.

    >>> written(late("{} of {}", 3, 4)), written("all")
    ('3 of 4', 'all')
    """
    return text() if isinstance(text, partial) else text


def written_late(name: str) -> Callable[[Made], Made]:
    """Return the decorator of a dataclass that takes :func:`late` text in the field ``name``."""

    def decorate(made: Made) -> Made:
        setattr(made, name, _Written(name))
        return made

    return decorate


class _Written:
    """The field: reading it gives a string."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __set__(self, owner: Any, value: object) -> None:
        owner.__dict__[self.name] = value

    def __get__(self, owner: Any, _: type) -> Any:
        value = owner.__dict__[self.name] = written(owner.__dict__[self.name])
        return value


def _element_text(element: tuple[Size, ...]) -> str:
    inside = ", ".join(map(str, element))
    return f"element ({inside})" if len(element) > 1 else f"element {inside}"


def _places_text(places: tuple[Place, ...]) -> str:
    return " and ".join(f"({place_text(place)})" for place in places)


@written_late("note")
@dataclass(frozen=True)
class ProofDigit:
    """One digit of a proof: it runs over ``0 .. extent - 1`` and adds ``stride`` per step.

    ``weight`` is the weight of the digit in the flat index, None for a replica digit. ``note`` says
    what the digit proves.
    """

    extent: Size
    stride: Size
    axis: Axis
    weight: Size | None
    note: str

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The digit as text: extent, weight in the flat index, stride, note."""
        weight = "copy" if self.weight is None else str(self.weight)
        return str(self.extent), weight, stride_text(Iter(1, self.stride, self.axis)), self.note


@written_late("argument")
@dataclass(frozen=True)
class Certificate:
    """Why a claim holds: a sentence, and a row per digit (none if all elements were compared).

    >>> from layoutalg import parse
    >>> print(parse("S[(2,8):(1,2)]").is_injective().reason)
    on each axis a sum of digits gives its digits back
    extent  weight  stride
         8       1       2  2 > 1
         2       8       1  1 > 0
    """

    argument: str
    digits: tuple[ProofDigit, ...] = ()

    def __str__(self) -> str:
        """Return the argument and a table of the digits."""
        if not self.digits:
            return self.argument
        rows = [("extent", "weight", "stride", ""), *(digit.cells for digit in self.digits)]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join([*map(str.rjust, row, widths), row[3]]).rstrip() for row in rows]
        return "\n".join([self.argument, *lines])

    def markdown(self) -> str:
        """Return the argument and a table of the digits, as Markdown."""
        if not self.digits:
            return self.argument
        rows = ["| extent | weight | stride | |", "|--:|--:|--:|:--|"]
        rows += ["| " + " | ".join(digit.cells) + " |" for digit in self.digits]
        return "\n".join([self.argument, "", *rows])


@dataclass(frozen=True)
class OtherSize:
    """Two maps that hold different numbers of elements."""

    left: Size
    right: Size

    def __str__(self) -> str:
        """Name both sizes."""
        return f"the left holds {self.left} elements, the right {self.right}"


@dataclass(frozen=True)
class Difference:
    """The first element that two maps, or a map and a formula, send to different coordinates.

    ``left`` and ``right`` are its coordinates; where these are many, one that only one side has.
    """

    element: tuple[Size, ...]
    left: tuple[Place, ...]
    right: tuple[Place, ...]
    remark: str = ""

    def __str__(self) -> str:
        """Name the element and where both put it."""
        held = _places_text(self.left or self.right)
        if self.left and self.right:
            text = f"the left has it at {held}, the right at {_places_text(self.right)}"
        else:
            sides = ("left", "right") if self.left else ("right", "left")
            text = f"the {sides[0]} has it at {held}, the {sides[1]} does not"
        text = f"{_element_text(self.element)}: {text}"
        return f"{text}\n{self.remark}" if self.remark else text


@dataclass(frozen=True)
class Collision:
    """Two elements with one machine coordinate."""

    first: tuple[Size, ...]
    second: tuple[Size, ...]
    place: Place

    def __str__(self) -> str:
        """Name both elements and their coordinate."""
        return (
            f"{_element_text(self.first)} and {_element_text(self.second)} share the place "
            f"({place_text(self.place)})"
        )


@dataclass(frozen=True)
class Gap:
    """A coordinate of the box that no element reaches."""

    place: Place

    def __str__(self) -> str:
        """Name the coordinate."""
        return f"no element is at ({place_text(self.place)})"


@dataclass(frozen=True)
class Outside:
    """A coordinate that leaves the box."""

    axis: Axis
    value: Size
    extent: Size

    def __str__(self) -> str:
        """Name the coordinate and the box."""
        return f"axis {self.axis} reaches {self.value}, outside 0 .. {self.extent - 1}"


Reason = Certificate | OtherSize | Difference | Collision | Gap | Outside


@written_late("claim")
@dataclass(frozen=True)
class Verdict:
    """The answer to a question: true or false, and why.

    Attributes:
        holds: the answer; ``bool(verdict)`` is the same.
        claim: what was asked, as a statement.
        reason: a :class:`Certificate`, or a counter-example.
        degree: for ``covers``, elements per coordinate, None where it varies; for ``replication``,
            coordinates per element.
        checked: how many elements were also compared in NumPy; 0 if symbolic or too many.

    >>> from layoutalg import S, TileLayout
    >>> verdict = TileLayout(S[(4, 4):(4, 1)]).equivalent(TileLayout(S[16:1]))
    >>> bool(verdict)
    True
    >>> print(TileLayout(S[4:1]).equivalent(TileLayout(S[4:2])))
    refuted: S[4:1] and S[4:2] are one map
    element 1: the left has it at (m 1), the right at (m 2)
    3 of 4 elements differ
    """

    holds: bool
    claim: str
    reason: Reason
    degree: Size | None = None
    checked: int = 0

    def __bool__(self) -> bool:
        """Return the answer."""
        return self.holds

    def __str__(self) -> str:
        """Return the answer, the claim and the reason."""
        return f"{'proved' if self.holds else 'refuted'}: {self.claim}\n{self.reason}"

    def _repr_markdown_(self) -> str:
        """Return the same as Markdown, for Jupyter."""
        word = "proved" if self.holds else "refuted"
        reason = self.reason
        body = reason.markdown() if isinstance(reason, Certificate) else str(reason)
        return f"**{word}**: {self.claim}\n\n{body}"
