"""The notation as text: :func:`parse` is the inverse of ``str``.

Text is read by the small parser below and never evaluated; what it reads goes through the same
``S`` and ``R`` as Python does.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, NoReturn

from layoutalg.algebra.axis import Axis, Term, Terms, as_readable, misread
from layoutalg.errors import LayoutError, pointed
from layoutalg.front_door import other_notation
from layoutalg.layouts.spec import Bracket, LayoutSpec, R, S
from layoutalg.layouts.tile_layout import TileLayout
from layoutalg.sizes.size import Size, floordiv, is_int, mod

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+)|(?P<name>[^\W\d]\w*)|(?P<string>\"[^\"]*\"|'[^']*')"
    r"|(?P<op>\*\*|//|[-+*%@:,()\[\]]))"
)
_DEPTH = 50  # nested brackets
_DIGITS = 1000  # of one number
_EXPONENT = 64
_BITS = 4096  # of a power of two numbers


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": floordiv, "%": mod, "mod": mod,
    "**": operator.pow,
}  # fmt: skip


def operate(sign: str, left: Size, right: Size) -> Size:
    """Return ``left sign right``, of two sizes that text gives.

    Raises:
        LayoutError: division by zero, an exponent that is no number from 0 to 64, or a power that
            is too long for a size.

    >>> operate("//", 9, 2), operate("**", 2, 3)
    (4, 8)
    """
    if sign in ("//", "%", "mod") and right == 0:
        raise LayoutError("division by zero")
    if sign == "**":
        if not is_int(right) or not 0 <= right <= _EXPONENT:
            raise LayoutError(f"an exponent must be a number from 0 to {_EXPONENT}")
        if is_int(left) and left.bit_length() * right > _BITS:
            raise LayoutError(f"a power must have at most {_BITS} bits")
    found: Size = _OPERATORS[sign](left, right)
    return found


def named_size(name: str) -> Size:
    """Return the symbol of a name that text gives for a size.

    Raises:
        LayoutError: it is the name of an axis, or nearly.

    >>> named_size("Mt")
    Mt
    """
    if reason := misread(name):
        raise LayoutError(f"{name} {reason}")
    from layoutalg.sizes.symbolic import symbol

    return symbol(name)


class _Elements(tuple[Any, ...]):
    """A tuple that remembers where its elements stand."""

    places: tuple[int, ...] = ()


class _Parser:
    """A recursive-descent parser of the notation; every error shows its place.

    It reads what Python would: sizes with ``+ - * // % **`` (and ``mod``), ``n @ axis``, names of
    axes, strings, tuples and lists. A name that is no axis is a symbol, a size.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.depth = 0
        self.tokens: list[tuple[str, str, int]] = []
        at, end = 0, len(source.rstrip())
        while at < end:
            found = _TOKEN.match(source, at)
            if found is None:
                start = at + len(source[at:]) - len(source[at:].lstrip())
                self.refuse(f"the character {source[start]!r} has no place here", start)
            kind = str(found.lastgroup)
            self.tokens.append((kind, found.group(kind), found.start(kind)))
            at = found.end()
        self.tokens.append(("end", "", end))
        self.next = 0

    def refuse(self, reason: object, at: int) -> NoReturn:
        """Raise with a caret under the place, in the line that holds it, or the part around it."""
        raise LayoutError(f"parse: {reason}\n{pointed(self.source, at)}") from None

    @property
    def kind(self) -> str:
        """The kind of the next token: number, name, string, op or end."""
        return self.tokens[self.next][0]

    @property
    def token(self) -> str:
        """The text of the next token; nothing where it is a string, so that none is an operator."""
        kind, token, _ = self.tokens[self.next]
        return "" if kind == "string" else token

    @property
    def place(self) -> int:
        """Where the next token starts."""
        return self.tokens[self.next][2]

    def take(self) -> str:
        """Take the next token."""
        self.next += 1
        return self.tokens[self.next - 1][1]

    def expect(self, *expected: str) -> None:
        """Take one of the expected tokens."""
        if self.token not in expected:
            self.refuse(f"expected {' or '.join(map(repr, expected))}, {self.found()}", self.place)
        self.take()

    def found(self) -> str:
        """Say what comes next."""
        return "found the end" if self.kind == "end" else f"found {self.tokens[self.next][1]!r}"

    # layout := term { "+" term };  term := S[...] | R[...] | product
    def layout(self) -> LayoutSpec:
        """Read a whole layout."""
        spec = LayoutSpec()
        while True:
            at = self.place
            part = self.bracket() if self.at_bracket() else self.product()
            if isinstance(part, Axis | str | tuple | list):
                self.refuse(f"an offset is n or n @ axis; got {part!r}", at)
            try:
                spec = spec + part
            except LayoutError as error:
                self.refuse(error, at)
            if self.kind == "end":
                return spec
            self.expect("+")

    def at_bracket(self) -> bool:
        """Say whether S[ or R[ comes next."""
        return self.token in ("S", "R") and self.tokens[self.next + 1][1] == "["

    # bracket := ("S" | "R") "[" sum {"," sum} [":" sum] "]"
    def bracket(self) -> LayoutSpec:
        """Read S[...] or R[...] and build it as Python would."""
        at = self.place
        bracket = S if self.take() == "S" else R
        self.expect("[")
        sizes, strides = self.elements(bracket), None
        if self.token == ":":
            self.take()
            strides = self.elements(bracket)
        self.expect("]")
        try:
            if strides is None:
                return bracket[sizes]
            return bracket.spec(bracket.strided(sizes, strides))
        except LayoutError as error:
            self.refuse(error, self.culprit(bracket, sizes, strides, at))

    def elements(self, bracket: Bracket) -> _Elements:
        """Read extents or strides: one, or all in one tuple or list; extents alone without it."""
        start = self.next
        found = self.several("]")
        if not found or (len(found) > 1 and ":" in (self.token, self.tokens[start - 1][1])):
            self.refuse(
                f"put the extents in one tuple and the strides in another, as "
                f"{bracket}[(8, 4) : (4, 1)]",
                self.tokens[start][2],
            )
        whole = found[0] if len(found) == 1 else found
        return whole if isinstance(whole, _Elements) else found

    def several(self, close: str) -> _Elements:
        """Read elements with commas between, up to the closing bracket; a comma may trail."""
        values, places = [], []
        while self.token != close:
            places.append(self.place)
            values.append(self.sum())
            if self.token != ",":
                break
            self.take()
        found = _Elements(values)
        found.places = tuple(places)
        return found

    def culprit(
        self, bracket: Bracket, sizes: _Elements, strides: _Elements | None, at: int
    ) -> int:
        """Return the place of the first extent or stride that is refused by itself."""
        one, unit = (1,), (0,)
        tries = [(place, (size,), unit) for size, place in zip(sizes, sizes.places, strict=True)]
        if strides is not None:
            tries += [
                (p, one, (stride,)) for stride, p in zip(strides, strides.places, strict=True)
            ]
        for place, size, stride in tries:
            try:
                bracket.strided(size, stride)
            except LayoutError:
                return place
        return strides.places[0] if strides else at

    # sum := product {("+" | "-") product}
    def sum(self) -> Any:
        """Read a sum of sizes or of offset terms."""
        value = self.product()
        while self.token in ("+", "-"):
            at, sign = self.place, self.take()
            right = self.product()
            if sign == "+" and isinstance(value, Term | Terms):
                value = value + self.offset(right, at)
            elif sign == "+" and isinstance(right, Term | Terms):
                value = right + self.offset(value, at)
            else:
                left, right = self.size(value, sign, at), self.size(right, sign, at)
                value = operate(sign, left, right)
        return value

    # product := signed {("*" | "//" | "%" | "mod" | "@") signed}
    def product(self) -> Any:
        """Read products, and ``n @ axis``, from the left as Python does."""
        value = self.signed()
        while self.token in ("*", "//", "%", "mod", "@"):
            at, sign = self.place, self.take()
            right_at = self.place
            right = self.signed()
            if sign == "@":
                value = self.on_axis(self.size(value, sign, at), right, right_at)
                continue
            left, right = self.size(value, sign, at), self.size(right, sign, at)
            try:
                value = operate(sign, left, right)
            except LayoutError as error:
                self.refuse(error, right_at if right == 0 else at)
        return value

    def on_axis(self, value: Any, axis: Any, at: int) -> Term:
        """Build ``value @ axis``."""
        try:
            if isinstance(axis, str) or hasattr(axis, "is_Symbol"):
                axis = Axis.get(str(axis))
            if not isinstance(axis, Axis):
                self.refuse(f"expected the name of an axis; got {axis!r}", at)
            return Term(as_readable(value, "size"), axis)
        except LayoutError as error:
            if str(error).startswith("parse: "):
                raise
            self.refuse(error, at)

    # signed := "-" signed | atom ["**" number]
    def signed(self) -> Any:
        """Read a sign, or a power."""
        at = self.place
        if self.token == "-":
            self.take()
            return self.nested(lambda: -self.size(self.signed(), "-", at))
        base = self.atom()
        if self.token != "**":
            return base
        at = self.place
        self.take()
        try:
            return operate("**", self.size(base, "**", at), self.atom())
        except LayoutError as error:
            if str(error).startswith("parse: "):
                raise
            self.refuse(error, at)

    def atom(self) -> Any:
        """Read a number, a name, a string, or what stands in brackets."""
        if self.token in ("(", "["):
            return self.nested(self.in_brackets)
        at = self.place
        if self.kind == "number":
            token = self.take()
            if len(token) > _DIGITS:
                self.refuse(f"a number has at most {_DIGITS} digits", at)
            return int(token)
        if self.kind == "string":
            return self.take()[1:-1]
        if self.kind == "name":
            name = self.take()
            if name in ("None", "True", "False"):
                self.refuse(f"{name} is no size", at)
            if name in Axis.registry:
                return Axis.registry[name]
            try:
                return named_size(name)
            except LayoutError as error:
                if self.tokens[self.next - 2][1] == "@":
                    return name  # of an axis, which there is none of
                self.refuse(error, at)
        self.refuse(f"expected a number or a name, {self.found()}", at)

    def in_brackets(self) -> Any:
        """Read a parenthesised value, a tuple or a list."""
        close = ")" if self.take() == "(" else "]"
        found = self.several(close)
        comma = self.tokens[self.next - 1][1] == ","
        self.expect(close)
        return found[0] if len(found) == 1 and close == ")" and not comma else found

    def nested(self, read: Any) -> Any:
        """Read one level deeper; there is an end to it."""
        if self.depth == _DEPTH:
            self.refuse(f"brackets and signs nest at most {_DEPTH} deep", self.place)
        self.depth += 1
        value = read()
        self.depth -= 1
        return value

    def size(self, value: Any, sign: str, at: int) -> Any:
        """Return an operand of an operator, which must be a size."""
        if isinstance(value, Axis | str | tuple | list | Term | Terms):
            self.refuse(f"{sign!r} takes sizes; got {value!r}", at)
        return value

    def offset(self, value: Any, at: int) -> Any:
        """Return what may be added to an offset term."""
        return value if isinstance(value, Term | Terms) else self.size(value, "+", at)


def parse(source: str) -> TileLayout:
    """Read a layout from text: the inverse of ``str``. Nothing is evaluated.

    ``parse(str(L)) == L``. Names that are no axes are sizes: symbols, positive integers.

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
    try:
        spec = _Parser(source).layout()
    except LayoutError:
        if known := other_notation(source):
            raise LayoutError(
                f"parse: {source!r} is written in the notation {known}: layoutalg.interop.read "
                "reads it"
            ) from None
        raise
    if spec.shard_or_none is None and spec.replica_or_none is None:
        raise LayoutError(f"parse: a layout has S[...] or R[...], such as S[8:1]; got {source!r}")
    return TileLayout(spec)
