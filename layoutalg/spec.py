"""The notation: ``S[...]``, ``R[...]``, ``4 @ laneid`` as Python, and :func:`parse` for text.

Text is read by the small parser below and never evaluated; what it reads goes through the same
``S`` and ``R`` as Python does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from layoutalg import iters as algebra
from layoutalg.axis import Axis, Term, Terms, as_readable, m, misread
from layoutalg.errors import LayoutError
from layoutalg.iters import Iter, Iters
from layoutalg.layout import TileLayout
from layoutalg.mapping import NO_OFFSET
from layoutalg.notation import text
from layoutalg.parts import add_offsets
from layoutalg.size import Size, as_extent, floordiv, is_int, mod


@dataclass(frozen=True, slots=True)
class LayoutSpec:
    """A layout under construction: at most one S, at most one R, and a sum of offsets.

    >>> from layoutalg import S, R, laneid
    >>> S[8 : 4 @ laneid] + R[2:1] + 3 @ laneid + 1
    S[8:4@laneid] + R[2:1] + 3@laneid + 1
    """

    shard_or_none: Iters | None
    replica_or_none: Iters | None
    offset: Mapping[Axis, Size]

    def __init__(
        self,
        shard: Iters | None = None,
        replica: Iters | None = None,
        offset: Mapping[Axis, Size] = NO_OFFSET,
    ) -> None:
        """Hold what there is so far; None where S or R has not been given."""
        _put_shard(self, shard)
        _put_replica(self, replica)
        _put_offset(self, offset)

    @property
    def shard(self) -> Iters:
        """The iters of S; empty where there is only R.

        >>> from layoutalg import S
        >>> S[8:4].shard
        (Iter(8, 4, 'm'),)
        """
        return self.shard_or_none or ()

    @property
    def replica(self) -> Iters:
        """The iters of R; empty where there is only S.

        >>> from layoutalg import R
        >>> R[2, 3].replica
        (Iter(2, 3, 'm'), Iter(3, 1, 'm'))
        """
        return self.replica_or_none or ()

    def __add__(self, other: object) -> LayoutSpec:
        """Add an R, an S, an offset term, or a size on axis m.

        Raises:
            LayoutError: a second S or R, or a number that is no size.
        """
        if isinstance(other, LayoutSpec):
            for letter, mine, theirs in (
                ("S", self.shard_or_none, other.shard_or_none),
                ("R", self.replica_or_none, other.replica_or_none),
            ):
                if mine is not None and theirs is not None:
                    raise LayoutError(
                        f"layout: there can be one {letter}[...]; got {self} + {other}. Write one "
                        f"{letter} with all its iters"
                    )
            return LayoutSpec(
                other.shard_or_none if self.shard_or_none is None else self.shard_or_none,
                other.replica_or_none if self.replica_or_none is None else self.replica_or_none,
                add_offsets(self.offset, other.offset),
            )
        sum_of_terms = Terms(()).__add__(other)
        if sum_of_terms is NotImplemented:
            return NotImplemented
        added = {term.axis: term.value for term in sum_of_terms.terms}
        offset = add_offsets(self.offset, added)
        return LayoutSpec(self.shard_or_none, self.replica_or_none, offset)

    __radd__ = __add__

    def __repr__(self) -> str:
        """Return the notation."""
        return text(self.shard, self.replica, self.offset)


# The slots' own setters, for __init__ alone.
_put_shard, _put_replica, _put_offset = (
    LayoutSpec.__dict__[name].__set__ for name in ("shard_or_none", "replica_or_none", "offset")
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
            LayoutError: strides and extents differ in number, an extent is below 1, or a stride is
                none.
        """
        if isinstance(key, slice):
            if key.step is not None:
                raise LayoutError(f"{self.letter}[...]: takes extents : strides; got a third part")
            iters = self.strided(_as_tuple(key.start), _as_tuple(key.stop))
        else:
            sizes = _as_tuple(key)
            if any(isinstance(each, slice) for each in sizes):
                raise LayoutError(
                    f"{self.letter}[...]: put the extents in one tuple and the strides in another, "
                    f"as {self.letter}[(8, 4) : (4, 1)]"
                )
            what = f"{self.letter}[...]: extent"
            iters = algebra.row_major(tuple(as_extent(size, what) for size in sizes))
        return self.spec(iters)

    def spec(self, iters: Iters) -> LayoutSpec:
        """Wrap iters as this bracket's part of a layout.

        >>> R.spec((Iter(2, 4),))
        S[()] + R[2:4]
        """
        return LayoutSpec(iters) if self.letter == "S" else LayoutSpec(None, iters)

    def strided(self, sizes: tuple[Any, ...], strides: tuple[Any, ...]) -> Iters:
        """Pair extents with strides.

        Raises:
            LayoutError: their numbers differ, or an extent or a stride is none.

        >>> S.strided((8, 4), (4 @ Axis.get("laneid"), 1))
        (Iter(8, 4, 'laneid'), Iter(4, 1, 'm'))
        """
        if len(sizes) != len(strides):
            raise LayoutError(
                f"{self.letter}[...]: needs one stride per extent; got the extents {sizes} and the "
                f"strides {strides}"
            )
        iters = []
        for extent, stride in zip(sizes, strides, strict=True):
            if type(extent) is not int or extent < 1:
                extent = as_extent(extent, f"{self.letter}[...]: extent")
            if type(stride) is int:
                iters.append(Iter(extent, stride, m))
            elif type(stride) is Term:
                iters.append(Iter(extent, stride.value, stride.axis))
            else:
                iters.append(Iter(extent, *_as_stride(stride, f"{self.letter}[...]: stride")))
        return tuple(iters)

    def __repr__(self) -> str:
        """Return the letter."""
        return self.letter


S = Bracket("S")
R = Bracket("R")


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _as_stride(value: Any, what: str) -> tuple[Size, Axis]:
    """Read what may stand for a stride besides an int and ``n @ axis``."""
    axis: str | Axis = m
    if isinstance(value, Axis | str):
        value, axis = 1, value
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str | Axis):
        value, axis = value
    elif isinstance(value, Terms):
        if len(value.terms) != 1:
            raise LayoutError(f"{what}: must lie on one axis; got the sum {value}")
        value, axis = value.terms[0].value, value.terms[0].axis
    return as_readable(value, what), Axis.get(axis)


_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+)|(?P<name>[^\W\d]\w*)|(?P<string>\"[^\"]*\"|'[^']*')"
    r"|(?P<op>\*\*|//|[-+*%@:,()\[\]]))"
)
_DEPTH = 50  # nested brackets
_DIGITS = 1000  # of one number
_WIDTH = 80  # characters of a line that a message shows


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
        start = self.source.rfind("\n", 0, at) + 1
        line, at = self.source[start:].split("\n", 1)[0], at - start
        if len(line) > _WIDTH:
            cut = max(0, min(at - _WIDTH // 2, len(line) - _WIDTH))
            line, at = line[cut : cut + _WIDTH], at - cut
        raise LayoutError(f"parse: {reason}\n  {line}\n  {' ' * at}^") from None

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
            at, operator = self.place, self.take()
            right = self.product()
            if operator == "+" and isinstance(value, Term | Terms):
                value = value + self.offset(right, at)
            elif operator == "+" and isinstance(right, Term | Terms):
                value = right + self.offset(value, at)
            else:
                left, right = self.size(value, operator, at), self.size(right, operator, at)
                value = left + right if operator == "+" else left - right
        return value

    # product := signed {("*" | "//" | "%" | "mod" | "@") signed}
    def product(self) -> Any:
        """Read products, and ``n @ axis``, from the left as Python does."""
        value = self.signed()
        while self.token in ("*", "//", "%", "mod", "@"):
            at, operator = self.place, self.take()
            right_at = self.place
            right = self.signed()
            if operator == "@":
                value = self.on_axis(self.size(value, operator, at), right, right_at)
                continue
            left, right = self.size(value, operator, at), self.size(right, operator, at)
            if operator == "*":
                value = left * right
            elif right == 0:
                self.refuse("division by zero", right_at)
            else:
                value = floordiv(left, right) if operator == "//" else mod(left, right)
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
        base, exponent = self.size(base, "**", at), self.atom()
        if not is_int(exponent) or not 0 <= exponent <= 64:
            self.refuse("an exponent must be a number from 0 to 64", at)
        if is_int(base) and base.bit_length() * exponent > 4096:
            self.refuse("the power is too large for a size", at)
        return base**exponent

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
            if self.tokens[self.next - 2][1] != "@" and (reason := misread(name)):
                self.refuse(f"{name} {reason}", at)
            from layoutalg.symbolic import symbol

            return symbol(name)
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

    def size(self, value: Any, operator: str, at: int) -> Any:
        """Return what may stand beside an operator: a size."""
        if isinstance(value, Axis | str | tuple | list | Term | Terms):
            self.refuse(f"{operator!r} takes sizes; got {value!r}", at)
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
    spec = _Parser(source).layout()
    if spec.shard_or_none is None and spec.replica_or_none is None:
        raise LayoutError(f"parse: a layout has S[...] or R[...], such as S[8:1]; got {source!r}")
    return TileLayout(spec)
