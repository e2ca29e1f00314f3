"""The notation: ``S[...]``, ``R[...]``, ``4 @ laneid`` as Python, and :func:`parse` for text.

Text is read by the small parser below and never evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from layoutalg import iters as algebra
from layoutalg.axis import Axis, Term, Terms, m
from layoutalg.errors import LayoutError
from layoutalg.iters import Iter, Iters
from layoutalg.layout import TileLayout
from layoutalg.notation import text
from layoutalg.parts import add_offsets
from layoutalg.size import Size, as_extent, floordiv, mod


@dataclass(frozen=True)
class LayoutSpec:
    """A layout under construction: at most one S, at most one R, and a sum of offsets.

    >>> from layoutalg import S, R, laneid
    >>> S[8 : 4 @ laneid] + R[2:1] + 3 @ laneid + 1
    S[8:4@laneid] + R[2:1] + 3@laneid + 1
    """

    shard_or_none: Iters | None = None
    replica_or_none: Iters | None = None
    offset: Mapping[Axis, Size] = field(default_factory=dict)

    @property
    def shard(self) -> Iters:
        """The iters of S; empty where there is only R."""
        return self.shard_or_none or ()

    @property
    def replica(self) -> Iters:
        """The iters of R."""
        return self.replica_or_none or ()

    def __add__(self, other: object) -> LayoutSpec:
        """Add an R, an S, an offset term, or an int on axis m.

        Raises:
            LayoutError: a second S or R, or something that is no offset.
        """
        if not isinstance(other, LayoutSpec):
            if isinstance(other, (Term, Terms)) or _is_number(other):
                terms = (Terms(()) + other).terms
                return LayoutSpec(
                    self.shard_or_none,
                    self.replica_or_none,
                    add_offsets(self.offset, {term.axis: term.value for term in terms}),
                )
            return NotImplemented
        for letter, mine, theirs in (
            ("S", self.shard_or_none, other.shard_or_none),
            ("R", self.replica_or_none, other.replica_or_none),
        ):
            if mine is not None and theirs is not None:
                raise LayoutError(
                    f"layout: there can be one {letter}[...]; got {self} + {other}. "
                    f"Write one {letter} with all its iters"
                )
        return LayoutSpec(
            other.shard_or_none if self.shard_or_none is None else self.shard_or_none,
            other.replica_or_none if self.replica_or_none is None else self.replica_or_none,
            add_offsets(self.offset, other.offset),
        )

    __radd__ = __add__

    def __repr__(self) -> str:
        """Return the notation."""
        return text(self.shard, self.replica, self.offset)


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and (
        hasattr(value, "__index__") or hasattr(value, "free_symbols")
    )


class Bracket:
    """``S`` and ``R``: subscript them with extents, or with ``extents : strides``.

    >>> from layoutalg import S, laneid
    >>> S[8, 4], S[(8, 4) : (4 @ laneid, "laneid")]
    (S[(8,4):(4,1)], S[(8,4):(4@laneid,1@laneid)])
    """

    def __init__(self, letter: str) -> None:
        """Make the bracket of a letter, S or R."""
        self.letter = letter

    def __getitem__(self, key: Any) -> LayoutSpec:
        """Build the iters; without strides they are row-major on axis m.

        Raises:
            LayoutError: strides and extents differ in number, or a stride is none.
        """
        if isinstance(key, slice):
            if key.step is not None:
                raise LayoutError(f"{self.letter}[...]: takes extents : strides; got a third part")
            iters = self.strided(_as_tuple(key.start), _as_tuple(key.stop))
        else:
            if isinstance(key, tuple) and any(isinstance(each, slice) for each in key):
                raise LayoutError(
                    f"{self.letter}[...]: put the extents in one tuple and the strides in another, "
                    f"as {self.letter}[(8, 4) : (4, 1)]"
                )
            sizes = _as_tuple(key)
            iters = algebra.row_major(tuple(as_extent(size) for size in sizes))
        return self.spec(iters)

    def spec(self, iters: Iters) -> LayoutSpec:
        """Wrap iters as this bracket's part."""
        return LayoutSpec(iters, None) if self.letter == "S" else LayoutSpec(None, iters)

    def strided(self, sizes: tuple[Any, ...], strides: tuple[Any, ...]) -> Iters:
        """Pair extents with strides.

        Raises:
            LayoutError: their numbers differ.
        """
        if len(sizes) != len(strides):
            raise LayoutError(
                f"{self.letter}[...]: needs one stride per extent; got {len(sizes)} extents and "
                f"{len(strides)} strides"
            )
        return tuple(
            Iter(extent, *_as_stride(stride)) for extent, stride in zip(sizes, strides, strict=True)
        )

    def __repr__(self) -> str:
        """Return the letter."""
        return self.letter


S = Bracket("S")
R = Bracket("R")


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _as_stride(value: Any) -> tuple[Any, Axis]:
    if isinstance(value, Term):
        return value.value, value.axis
    if isinstance(value, Axis):
        return 1, value
    if isinstance(value, str):
        return 1, Axis.get(value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], (str, Axis)):
        return value[0], Axis.get(value[1])
    return value, m


_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+)|(?P<name>[A-Za-z_]\w*)|(?P<string>\"[^\"]*\"|'[^']*')"
    r"|(?P<op>\*\*|//|[-+*%@:,()\[\]]))"
)


class _Parser:
    """A recursive-descent parser of the notation; every error shows its place."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.depth = 0  # open brackets; outside all of them a plus starts the next term
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(source.rstrip()):
            found = _TOKEN.match(source, at)
            if found is None:
                start = at + len(source[at:]) - len(source[at:].lstrip())
                self.refuse("this character has no place here", start)
            kind = str(found.lastgroup)
            self.tokens.append((kind, found.group(kind), found.start(kind)))
            at = found.end()
        self.tokens.append(("end", "", len(source.rstrip())))
        self.next = 0

    def refuse(self, reason: str, at: int | None = None) -> NoReturn:
        """Raise with a caret under the place."""
        place = self.tokens[self.next][2] if at is None else at
        raise LayoutError(f"parse: {reason}\n  {self.source}\n  {' ' * place}^")

    @property
    def token(self) -> str:
        """The text of the next token; strings and names are told apart by ``kind``."""
        return self.tokens[self.next][1]

    @property
    def kind(self) -> str:
        return self.tokens[self.next][0]

    def take(self, *expected: str) -> str:
        """Take the next token; one of ``expected`` where they are given."""
        if expected and self.token not in expected:
            found = repr(self.token) if self.token else "the end"
            self.refuse(f"expected {' or '.join(map(repr, expected))}, found {found}")
        token = self.token
        self.next += 1
        return token

    # layout := term { "+" term };  term := S[...] | R[...] | offset
    def layout(self) -> LayoutSpec:
        spec = LayoutSpec()
        while True:
            at = self.tokens[self.next][2]
            part = self.term()
            try:
                spec = spec + part
            except LayoutError as error:
                self.refuse(str(error), at)
            if self.kind == "end":
                return spec
            self.take("+")

    def term(self) -> Any:
        if self.kind == "name" and self.token in ("S", "R") and self.peek() == "[":
            return self.bracket()
        return self.offset_term()

    def peek(self) -> str:
        return self.tokens[min(self.next + 1, len(self.tokens) - 1)][1]

    def offset_term(self) -> Any:
        """Read ``n``, ``n @ axis`` or a parenthesised sum of those."""
        if self.token == "(":
            mark = self.next
            self.take("(")
            total = Terms(()) + self.offset_term()
            while self.token == "+":
                self.take("+")
                total = total + self.offset_term()
            if self.token == ")" and self.peek() in ("+", ")", ""):
                self.take(")")
                return total
            self.next = mark
        value = self.size()
        if self.token == "@":
            self.take("@")
            return value @ self.axis()
        return value

    def bracket(self) -> LayoutSpec:
        bracket = S if self.take("S", "R") == "S" else R
        self.take("[")
        self.depth += 1
        at = self.tokens[self.next][2]
        sizes = self.sizes()
        try:
            if self.token == ":":
                self.take(":")
                iters = bracket.strided(sizes, self.strides())
            else:
                iters = algebra.row_major(tuple(as_extent(size) for size in sizes))
        except LayoutError as error:
            if str(error).startswith("parse:"):
                raise
            self.refuse(str(error), at)
        self.depth -= 1
        self.take("]")
        return bracket.spec(iters)

    def sizes(self) -> tuple[Any, ...]:
        """Read extents: ``8``, ``8, 4``, ``(8, 4)``, ``[8, 4]`` or ``()``."""
        if self.token in ("(", "["):
            mark = self.next
            close = ")" if self.take("(", "[") == "(" else "]"
            items = self.items(self.size, close)
            if self.token == close:
                self.take(close)
                if self.token in (":", "]"):
                    return items
            self.next = mark
        items_list = [self.size()]
        while self.token == ",":
            self.take(",")
            items_list.append(self.size())
        return tuple(items_list)

    def items(self, read: Any, close: str) -> tuple[Any, ...]:
        """Read a comma-separated list, a trailing comma allowed, up to ``close``."""
        found = []
        while self.token != close:
            found.append(read())
            if self.token != ",":
                break
            self.take(",")
        return tuple(found)

    def strides(self) -> tuple[Any, ...]:
        if self.token in ("(", "["):
            mark = self.next
            close = ")" if self.take("(", "[") == "(" else "]"
            found = self.items(self.stride, close)
            if self.token == close:
                self.take(close)
                if self.token == "]":
                    return found
            self.next = mark
        return (self.stride(),)

    def stride(self) -> Any:
        """Read ``n``, ``n @ axis``, an axis name, or a pair ``(n, "axis")``."""
        if self.kind == "string" or (self.kind == "name" and self.token in Axis.registry):
            return 1, self.axis()
        if self.token == "(":
            mark = self.next
            self.take("(")
            value = self.size()
            if self.token == "," and self.tokens[self.next + 1][0] in ("string", "name"):
                self.take(",")
                axis = self.axis()
                self.take(")")
                return value, axis
            self.next = mark
        value = self.size()
        if self.token == "@":
            self.take("@")
            return value, self.axis()
        return value, m

    def axis(self) -> Axis:
        if self.kind not in ("name", "string"):
            self.refuse("expected the name of an axis")
        name = self.token.strip("\"'")
        try:
            axis = Axis.get(name)
        except LayoutError as error:
            self.refuse(str(error))
        self.take()
        return axis

    # size := product { (+|-) product }, with the precedence of Python
    def size(self) -> Any:
        value = self.signed()
        while self.token in ("-", "+") and self.depth:
            if self.take("-", "+") == "+":
                value = value + self.signed()
            else:
                value = value - self.signed()
        return value

    def signed(self) -> Any:
        if self.token == "-":
            self.take("-")
            return -self.signed()
        return self.multiplied()

    def multiplied(self) -> Any:
        value = self.power()
        while self.token in ("*", "//", "%", "mod"):
            operator = self.take()
            right = self.power()
            if operator == "*":
                value = value * right
            elif right == 0:
                self.refuse("division by zero")
            else:
                value = floordiv(value, right) if operator == "//" else mod(value, right)
        return value

    def power(self) -> Any:
        base = self.atom()
        if self.token == "**":
            self.take("**")
            exponent = self.atom()
            if type(exponent) is not int or exponent > 64:
                self.refuse("an exponent must be a number up to 64")
            return base**exponent
        return base

    def atom(self) -> Any:
        if self.token == "(":
            self.take("(")
            self.depth += 1
            value = self.size()
            self.depth -= 1
            self.take(")")
            return value
        if self.kind == "number":
            return int(self.take())
        if self.kind == "name":
            if self.token in Axis.registry:
                self.refuse(f"{self.token} is an axis; a size was expected")
            if self.token in ("None", "True", "False"):
                self.refuse(f"{self.token} is no size")
            from layoutalg.symbolic import symbol

            return symbol(self.take())
        found = repr(self.token) if self.token else "the end"
        self.refuse(f"expected a number or a name, found {found}")


def parse(source: str) -> TileLayout:
    """Read a layout from text: the inverse of ``str``. Nothing is evaluated.

    Names that are no axes are sizes: symbols, positive integers.

    Raises:
        LayoutError: the text is no layout; the message shows the place with a caret.

    >>> print(parse("S[(2, 8, 4, 2) : (2, 4@laneid, 1@laneid, 1)]"))
    S[(2,8,4,2):(2,4@laneid,1@laneid,1)]
    >>> parse("S[8:4@landid]")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: parse: axis: no axis is named 'landid'; did you mean laneid? \
(Axis.register makes a new one)
      S[8:4@landid]
            ^
    """
    if not isinstance(source, str):
        raise LayoutError(f"parse: needs text; got {source!r}")
    return TileLayout(_Parser(source).layout())
