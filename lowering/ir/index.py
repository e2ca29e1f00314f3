"""Index arithmetic: linear forms in bounded digits, printed for a kernel or evaluated in NumPy.

``Index`` is ``const + sum of coefficient * atom``. An atom is a digit ``var // stride % extent`` of
a thread number or a loop variable, or an opaque part (the XOR of a swizzle). Division and remainder
by constants act on the digits, so what layouts produce stays as lean as hand-written index code.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from layoutalg import LayoutError

FREE = 1 << 24  # how many values a number that only the launch knows is taken to have
INT = 1 << 31  # the first number that an int of C++ does not hold
Style = Literal["script", "python", "c"]


@dataclass(frozen=True)
class Digit:
    """``var // stride % extent``, of a variable that runs over ``0 .. limit - 1``."""

    var: str
    stride: int
    extent: int
    limit: int

    @property
    def high(self) -> int:
        """The largest value."""
        return min(self.extent, -(-self.limit // self.stride)) - 1

    def is_wide(self, wide: Collection[str]) -> bool:
        """Say whether C++ computes it in 64 bits: any number, and what is declared so."""
        return self.limit >= FREE or self.var in wide

    def text(self, style: Style, wide: Collection[str] = ()) -> str:
        """Return the text; in code, operators stand in parentheses and shift where they can."""
        cut = self.stride * self.extent < self.limit
        if style == "script":
            text = self.var if self.stride == 1 else f"{self.var} // {self.stride}"
            return f"{text} % {self.extent}" if cut else text
        text = self.var if self.stride == 1 else _divided(self.var, self.stride, style)
        if cut:
            text = _remainder(text, self.extent)
        return text if text == self.var else f"({text})"

    def value(self, env: Mapping[str, Any]) -> Any:
        """Evaluate with integers or arrays."""
        return env[self.var] // self.stride % self.extent


@dataclass(frozen=True)
class Opaque:
    """``left op right`` for an operator that has no linear form: ``^ & // % * >>``.

    The left side of ``//`` and ``%`` is nowhere negative: there, C rounds otherwise than Python.
    """

    op: str
    left: Index
    right: Index

    @property
    def high(self) -> int:
        """An upper bound of the value."""
        if self.op == "//":
            return self.left.high // self.right.constant
        if self.op == "%":
            return self.right.constant - 1
        if self.op == "*":
            return self.left.high * self.right.high
        if self.op == ">>":
            return self.left.high
        if self.op == "^":
            return (1 << max(self.left.high, self.right.high).bit_length()) - 1
        return min(self.left.high, self.right.high)

    def is_wide(self, wide: Collection[str]) -> bool:
        """Say whether C++ computes it in 64 bits: as soon as one side is, or a product needs it."""
        sides = any(each.typed("c", wide)[1] for each in (self.left, self.right))
        return sides or (self.op == "*" and self.high >= INT)

    def text(self, style: Style, wide: Collection[str] = ()) -> str:
        """Return the text in parentheses."""
        left, right = self.left.operand(style, wide), self.right
        if style == "c" and self.op == "*" and self.high >= INT:
            sides = any(each.typed("c", wide)[1] for each in (self.left, self.right))
            left = left if sides else _widened(left)
        if self.op in ("//", "%") and style != "script":
            if self.op == "//":
                return f"({_divided(left, right.constant, style)})"
            return f"({_remainder(left, right.constant)})"
        return f"({left} {self.op} {right.operand(style, wide)})"

    def value(self, env: Mapping[Any, Any]) -> Any:
        """Evaluate with integers or arrays; what stands in the place of all of it goes first."""
        if self in env:
            return env[self]
        left, right = self.left.value(env), self.right.value(env)
        operations = {
            "^": np.bitwise_xor,
            "&": np.bitwise_and,
            "//": np.floor_divide,
            "%": np.mod,
            "*": np.multiply,
            ">>": np.right_shift,
        }
        return operations[self.op](left, right)


Atom = Digit | Opaque


@dataclass(frozen=True, eq=False)
class Index:
    """An integer expression; take ``Index.of`` for a variable, then compute with it.

    Its value is known when the kernel runs: a comparison with ``<``, ``<=``, ``>`` or ``>=`` is a
    :class:`Guard`, and Python can branch on neither.

    >>> thread = Index.of("thread", 128)
    >>> str(thread % 32 // 4 * 8 + 3), str(thread % 32 % 4), str(thread % 128), str(thread // 128)
    ('thread // 4 % 8 * 8 + 3', 'thread % 4', 'thread', '0')
    >>> str((thread // 4 * 8 + thread % 4 * 2) // 2)
    'thread'
    >>> (thread % 32 // 4 * 8 + 3).render("c")
    '(thread >> 2 & 7) * 8 + 3'
    """

    terms: tuple[tuple[int, Atom], ...] = ()
    constant: int = 0
    __array_ufunc__: ClassVar[None] = None  # so that NumPy's scalars leave operators to us

    def __eq__(self, other: object) -> bool:
        """Say whether two indices are written alike.

        Raises:
            LayoutError: beside a number or a symbol, where a condition is meant.
        """
        if isinstance(other, Index):
            return (self.terms, self.constant) == (other.terms, other.constant)
        if takes(other):
            raise _undecided(f"{self} == {other}")
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.terms, self.constant))

    def __bool__(self) -> bool:
        """Refuse to be a condition of Python.

        Raises:
            LayoutError: always.
        """
        raise _undecided(str(self))

    def __lt__(self, other: Any) -> Guard:
        """Return the condition that it is less: a number, an index or a symbol.

        >>> thread = Index.of("thread", 128)
        >>> [str(each) for each in (thread // 32 < 2, thread > 0, thread <= Index.free("n"))]
        ['(thread // 32) < 2', '0 < thread', 'thread < (n + 1)']
        """
        if not takes(other):
            return NotImplemented
        return Guard(self, min(0, self.low), as_index(other))

    def __gt__(self, other: Any) -> Guard:
        """Return the condition that it is greater."""
        return as_index(other) < self if takes(other) else NotImplemented

    def __le__(self, other: Any) -> Guard:
        """Return the condition that it is less or equal."""
        return self < as_index(other) + 1 if takes(other) else NotImplemented

    def __ge__(self, other: Any) -> Guard:
        """Return the condition that it is greater or equal."""
        return as_index(other) - 1 < self if takes(other) else NotImplemented

    @classmethod
    def of(cls, var: str, limit: int) -> Index:
        """Return a variable that runs over ``0 .. limit - 1``."""
        return cls(((1, Digit(var, 1, limit, limit)),)) if limit > 1 else cls()

    @classmethod
    def free(cls, var: str) -> Index:
        """Return a number that only the launch knows: an extent, a pitch, the place of a block.

        >>> str(Index.free("M") // 64)
        'M // 64'
        """
        return cls.of(var, FREE)

    @property
    def high(self) -> int:
        """The largest value that the expression can take, by its digits' bounds."""
        return self.constant + sum(max(c * atom.high, 0) for c, atom in self.terms)

    @property
    def low(self) -> int:
        """A lower bound."""
        return self.constant + sum(min(c * atom.high, 0) for c, atom in self.terms)

    @property
    def unit(self) -> int:
        """The largest number that divides every value: the greatest common divisor of the parts."""
        return math.gcd(self.constant, *(c for c, _ in self.terms))

    def __add__(self, other: Any) -> Index:
        """Add, gathering equal atoms; a number, an index, or what :func:`as_index` takes."""
        if not takes(other):
            return NotImplemented
        right = as_index(other)
        if not right.terms or not self.terms:
            return Index(self.terms or right.terms, self.constant + right.constant)
        return _sum((*self.terms, *right.terms), self.constant + right.constant)

    __radd__ = __add__

    def __neg__(self) -> Index:
        """Change the sign."""
        return self * -1

    def __sub__(self, other: Any) -> Index:
        """Subtract."""
        return self + as_index(other) * -1 if takes(other) else NotImplemented

    def __rsub__(self, other: Any) -> Index:
        """Subtract from a number, or from what :func:`as_index` takes."""
        return as_index(other) + self * -1 if takes(other) else NotImplemented

    def __mul__(self, other: Any) -> Index:
        """Multiply by a number, or, term by term, by an index.

        So a loop's part, a thread's part and the constants stand apart: what does not change in a
        loop is computed before it, and what several accesses share, once.

        >>> str((Index.of("thread", 32) + 8) * Index.free("pitch"))
        'pitch * 8 + (thread * pitch)'
        """
        if not takes(other):
            return NotImplemented
        right = as_index(other)
        if not right.terms:
            factor = right.constant
            kept = tuple((c * factor, atom) for c, atom in self.terms if factor)
            return Index(kept, self.constant * factor)
        total = right * self.constant
        for c, atom in self.terms:
            one = Index(((1, atom),))
            total += one * right.constant * c
            for d, factor_atom in right.terms:
                product = Opaque("*", one, Index(((1, factor_atom),)))
                total += Index(((c * d, product),))
        return total

    __rmul__ = __mul__

    def _split(self, divisor: int) -> tuple[Index, Index] | None:
        """Write ``self = divisor * whole + rest`` with ``0 <= rest < divisor``; None if unknown."""
        above: list[tuple[int, Atom]] = []
        below: list[tuple[int, Atom]] = []
        for c, atom in self.terms:
            if c % divisor == 0:
                above.append((c // divisor, atom))
            elif (
                isinstance(atom, Digit)
                and c > 0
                and divisor % c == 0
                and atom.extent * c > divisor
                and atom.extent % (divisor // c) == 0
            ):
                step = divisor // c
                upper = Digit(atom.var, atom.stride * step, atom.extent // step, atom.limit)
                if upper.high:
                    above.append((1, upper))
                below.append((c, Digit(atom.var, atom.stride, step, atom.limit)))
            else:
                below.append((c, atom))
        whole = _sum(above, self.constant // divisor)
        rest = _sum(below, self.constant % divisor)
        if rest.low >= 0 and rest.high < divisor:
            return whole, rest
        return None

    def __floordiv__(self, divisor: int) -> Index:
        """Divide by a positive constant, rounding down."""
        if hasattr(divisor, "expression"):  # of a tile: it has operators of its own
            return NotImplemented
        _check_divisor(self, divisor)
        if divisor == 1:
            return self
        split = self._split(divisor)
        if split is not None:
            return split[0]
        lifts = self._lifts(divisor)
        return Index(((1, Opaque("//", self + lifts * divisor, Index((), divisor))),), -lifts)

    def __mod__(self, divisor: int) -> Index:
        """Take the remainder by a positive constant."""
        if hasattr(divisor, "expression"):  # of a tile: it has operators of its own
            return NotImplemented
        _check_divisor(self, divisor)
        if divisor == 1:
            return Index()
        split = self._split(divisor)
        if split is not None:
            return split[1]
        lifted = self + self._lifts(divisor) * divisor
        return Index(((1, Opaque("%", lifted, Index((), divisor))),))

    def _lifts(self, divisor: int) -> int:
        """Return how many divisors make the expression nowhere negative."""
        return max(0, -(self.low // divisor))

    def _opaque(self, op: str, other: int | Index) -> Index:
        right = other if isinstance(other, Index) else Index((), int(other))
        return Index(((1, Opaque(op, self, right)),))

    def __rshift__(self, bits: int) -> Index:
        """Shift right by a constant: divide by a power of two."""
        return self // (1 << bits) if is_number(bits) else NotImplemented

    @classmethod
    def table(cls, bits: int, place: Index) -> Index:
        """Return a bit of a constant: the one at a place.

        >>> str(Index.table(0b0110, Index.of("lane", 4)))
        '((6 >> lane) % 2)'
        """
        return Index((), bits)._opaque(">>", place) % 2

    def __and__(self, mask: int) -> Index:
        """Keep the bits of a constant."""
        if not is_number(mask):
            return NotImplemented
        if mask & (mask + 1) == 0:
            return self % (mask + 1)
        return self._opaque("&", mask)

    def __lshift__(self, bits: int) -> Index:
        """Shift left by a constant: multiply by a power of two."""
        return self * (1 << bits) if is_number(bits) else NotImplemented

    def __xor__(self, other: Any) -> Index:
        """Exclusive or, of the low bits that the right side reaches; the others stay as they are.

        So constants above those bits stay outside, where an instruction takes them as immediate.
        """
        if not takes(other):
            return NotImplemented
        right = as_index(other)
        if not right.terms and not right.constant:
            return self
        if not self.terms and not self.constant:
            return right
        reach = 1 << right.high.bit_length()
        split = self._split(reach)
        if split is None:
            return self._opaque("^", right)
        upper, lower = split
        if not lower.terms and not lower.constant:
            return upper * reach + right
        if not upper.terms and not upper.constant:
            return self._opaque("^", right)
        return upper * reach + lower._opaque("^", right)

    def value(self, env: Mapping[Any, Any]) -> Any:
        """Evaluate with integers or integer arrays, one per variable.

        >>> Index.of("t", 32).value({"t": np.arange(3)})
        array([0, 1, 2])
        """
        total: Any = self.constant
        for c, atom in self.terms:
            total = total + c * atom.value(env)
        return total

    def replaced(self, values: Mapping[str, Index]) -> Index:
        """Return the index with variables written out as what they stand for.

        >>> warp = Index.of("thread", 128) // 32
        >>> str((Index.of("w", 4) * 16 + Index.of("w", 4) % 2).replaced({"w": warp}))
        'thread // 32 * 16 + thread // 32 % 2'
        >>> k = Index.of("k", 8)
        >>> str((k % 2 * 16 + Index.of("lane", 32)).replaced({"k": Index((), 3)}))
        'lane + 16'
        """
        total = Index((), self.constant)
        for coefficient, atom in self.terms:
            if isinstance(atom, Digit):
                part = Index(((1, atom),))
                if atom.var in values:
                    part = values[atom.var] // atom.stride
                    cut = atom.stride * atom.extent < atom.limit
                    part = part % atom.extent if cut else part
            else:
                left, right = (each.replaced(values) for each in (atom.left, atom.right))
                part = _MADE[atom.op](left, right)
            total += part * coefficient
        return total

    def digits(self, mixed: bool = False) -> Iterator[tuple[Digit, bool]]:
        """Yield every digit, and whether the value depends on it otherwise than linearly.

        >>> [mixed for _, mixed in (Index.of("i", 4) * 8 + (Index.of("j", 8) ^ Index.of("k", 8))
        ...                         ).digits()]
        [False, True, True]
        """
        for _, atom in self.terms:
            if isinstance(atom, Digit):
                yield atom, mixed
                continue
            squared = atom.left.variables() & atom.right.variables()
            inside = mixed or atom.op != "*" or bool(squared)
            yield from atom.left.digits(inside)
            yield from atom.right.digits(inside)

    def variables(self) -> set[str]:
        """Return the names of all variables.

        >>> sorted((Index.of("lane", 32) + Index.free("pitch")).variables())
        ['lane', 'pitch']
        """
        return {digit.var for digit, _ in self.digits()}

    def limits(self) -> dict[str, int]:
        """Return the variables, each with the number of its values.

        >>> (Index.of("lane", 32) + Index.free("pitch")).limits()
        {'lane': 32, 'pitch': 16777216}
        """
        return {digit.var: digit.limit for digit, _ in self.digits()}

    def period(self, var: str) -> int | None:
        """Return after how many values of a variable the index has only moved by a constant.

        That constant may be a multiple of another variable. So a variable of many values needs few
        of them in a proof. None: never, since it is multiplied by itself or stands in an XOR.

        >>> block = Index.free("bx")
        >>> [each.period("bx") for each in (block * 64, block % 3 * 16, block // 4 + block % 6)]
        [1, 3, 12]
        """
        found = self._periodic(var)
        return None if found is None else found[0]

    def _periodic(self, var: str) -> tuple[int, bool] | None:
        """Return the period in a variable, and whether the index moves from one to the next."""
        period, moves = 1, False
        for _, atom in self.terms:
            if isinstance(atom, Digit):
                own, moving = 1, False
                if atom.var == var:
                    cut = atom.stride * atom.extent < atom.limit
                    own, moving = atom.stride * (atom.extent if cut else 1), not cut
            else:
                left, right = atom.left._periodic(var), atom.right._periodic(var)
                if left is None or right is None:
                    return None
                own, moving = math.lcm(left[0], right[0]), (left[1] or right[1]) and atom.op != "%"
                if atom.op in ("//", "%"):
                    own *= atom.right.constant if left[1] else 1
                elif (left[1] and right[1]) if atom.op == "*" else moving:
                    return None
            period, moves = math.lcm(period, own), moves or moving
        return period, moves

    def free_variables(self) -> set[str]:
        """Return the variables that only the launch knows.

        >>> (Index.of("lane", 32) + Index.free("pitch")).free_variables()
        {'pitch'}
        """
        found: set[str] = set()
        for _, atom in self.terms:
            if isinstance(atom, Digit):
                found |= {atom.var} if atom.limit >= FREE else set()
            else:
                found |= atom.left.free_variables() | atom.right.free_variables()
        return found

    def operand(self, style: Style, wide: Collection[str] = ()) -> str:
        """Return the text, in parentheses where it is a sum or a product."""
        text = self.render(style, wide)
        return f"({text})" if " " in text and not _wrapped(text) else text

    def render(self, style: Style, wide: Collection[str] = ()) -> str:
        """Return the text: ``script`` to read, ``python`` or ``c`` to compile.

        In C++, where threads and loop variables are ints, a term is computed in 64 bits if it, or
        the sum up to it, may need more than 32; numba computes all in 64. ``wide`` are variables
        that have 64 bits although they have few values.

        >>> (Index.of("thread", 32) * (1 << 28) + 1).render("c")
        'static_cast<int64_t>(thread) * 268435456 + 1'
        """
        return self.typed(style, wide)[0]

    def typed(self, style: Style, wide: Collection[str] = ()) -> tuple[str, bool]:
        """Return the text, and whether C++ takes it for 64 bits."""
        parts: list[str] = []
        low = high = 0
        long = False
        for c, atom in self.terms:
            text = atom.text(style, wide)
            if style == "c":
                own = atom.is_wide(wide) or not -INT <= c < INT  # such a literal has 64 bits
                reach = c * atom.high
                low, high = low + min(reach, 0), high + max(reach, 0)
                if not own and not (-INT <= reach < INT and (long or -INT <= low <= high < INT)):
                    text, own = _widened(text), True
                long |= own
            parts.append(text if c == 1 else f"{text} * {c}")
        if self.constant or not parts:
            text = str(self.constant)
            if style == "c" and not long:
                long = not -INT <= self.constant < INT
                if not long and not -INT <= self.low <= self.high < INT:
                    text, long = _widened(text), True
            parts.append(text)
        return " + ".join(parts), long

    def __str__(self) -> str:
        """Return the expression to read."""
        return self.render("script")


@dataclass(frozen=True)
class Guard:
    """A condition ``low <= index < high`` under which a thread takes part."""

    index: Index
    low: int
    high: int | Index

    def __bool__(self) -> bool:
        """Refuse to be a condition of Python, as in ``0 <= i < 3``.

        Raises:
            LayoutError: always.
        """
        raise _undecided(str(self))

    def _joined(self, other: Any) -> Any:
        """Leave ``&``, ``|`` and ``^`` to an expression; refuse two conditions.

        Raises:
            LayoutError: the other side is a condition of indices too.
        """
        if isinstance(other, Guard):
            raise LayoutError(
                f"condition: `{self}` and `{other}` cannot be joined by a sign: nest two `with "
                "k.when(…)`, or two where()"
            )
        return NotImplemented

    __and__ = __or__ = __xor__ = _joined

    def __invert__(self) -> Any:
        """Refuse: its opposite is another comparison.

        Raises:
            LayoutError: always.
        """
        raise LayoutError(f"condition: `{self}` has no ~: write the opposite comparison")

    def __str__(self) -> str:
        """Return the condition to read."""
        return self.render("script")

    def variables(self) -> set[str]:
        """Return the names on which it depends."""
        high = self.high.variables() if isinstance(self.high, Index) else set[str]()
        return self.index.variables() | high

    def replaced(self, values: Mapping[str, Index]) -> Guard:
        """Return the condition with variables replaced by what they stand for."""
        high = self.high.replaced(values) if isinstance(self.high, Index) else self.high
        return Guard(self.index.replaced(values), self.low, high)

    def holds(self, env: Mapping[str, Any]) -> Any:
        """Return whether it holds, for numbers or arrays of numbers.

        >>> Guard(Index.of("thread", 8), 2, 4).holds({"thread": 3})
        True
        """
        value = self.index.value(env)
        high = self.high.value(env) if isinstance(self.high, Index) else self.high
        return (self.low <= value) & (value < high)

    def render(self, style: Style, wide: Collection[str] = ()) -> str:
        """Return the condition as text; in 32 bits where they hold sizes of a launch."""
        text = self.index.operand(style, wide)
        if isinstance(self.high, Index):
            high = self.high.operand(style, wide)
            fits = all(-INT <= each.low <= each.high < INT for each in (self.index, self.high))
            cast = {"python": "int32", "c": "int", "script": ""}[style] if fits else ""
            upper = f"{text} < {high}"
            if cast:
                upper = f"{cast}({self.index.render(style, wide)}) < {cast}({high})"
        else:
            upper = f"{text} < {self.high}"
        if self.low <= self.index.low:
            return upper
        return f"{self.low} <= {text} {'&&' if style == 'c' else 'and'} {upper}"


def _undecided(condition: str) -> LayoutError:
    """Return the refusal to branch in Python on what a kernel knows when it runs."""
    return LayoutError(
        f"index: `{condition}` is known when the kernel runs, so Python cannot branch on it: write "
        "`with k.when(i < 3):`, one `with` for each condition; for equality "
        "`k.when(i, 3, at_least=2)`: 2 <= i < 3"
    )


def takes(value: object) -> bool:
    """Say whether :func:`as_index` may take a value: a number, an index or a symbolic one."""
    return isinstance(value, Index) or is_number(value) or hasattr(value, "as_coefficients_dict")


def as_guard(condition: Any, what: str) -> Guard:
    """Return a comparison of indices or of symbols as a condition.

    Args:
        condition: such as ``k.warp < 2`` or, of the symbol of a scalar, ``n >= 8``.
        what: the operation that takes it, for the error.

    Raises:
        LayoutError: it is none.

    >>> from layoutalg.sizes.symbolic import DigitSymbol
    >>> str(as_guard(DigitSymbol("n", FREE) >= 8, "when"))
    '7 < n'
    """
    if isinstance(condition, Guard):
        return condition
    compare = _COMPARISONS.get(getattr(condition, "rel_op", ""))
    if compare is None:
        raise LayoutError(
            f"{what}: a condition is a comparison, such as i < 3 or k.warp >= 2; got {condition!r}"
        )
    found: Guard = compare(as_index(condition.lhs, what), as_index(condition.rhs, what))
    return found


_MADE: dict[str, Callable[[Index, Index], Index]] = {  # of the operators of Opaque
    "*": operator.mul,
    "^": operator.xor,
    "//": lambda left, right: left // right.constant,
    "%": lambda left, right: left % right.constant,
    "&": lambda left, right: left & right.constant,
}
_COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def as_index(value: Any, what: str = "index") -> Index:
    """Return a number, or an expression in a kernel's symbols, as an index.

    Args:
        value: an int, an index, or made of loop variables and what ``let`` and ``scalar`` yield:
            sums, multiples, and ``//`` and ``%`` by positive numbers.
        what: the operation that takes it, for the error.

    Raises:
        LayoutError: it is none of these.

    >>> from layoutalg.sizes.symbolic import DigitSymbol
    >>> k = DigitSymbol("k", 4)
    >>> str(as_index(16 * k + 8)), str(as_index((k + 1) % 2)), str(as_index(k // 2 * 8))
    ('k * 16 + 8', '((k + 1) % 2)', 'k // 2 * 8')
    """
    if isinstance(value, Index):
        return value
    if is_number(value):
        return Index((), int(value))
    if not hasattr(value, "as_coefficients_dict"):
        raise LayoutError(
            f"{what}: got {value!r}; a number fits, an index such as k.warp, or a sum of multiples "
            "of loop variables and of what let() and scalar() yield"
        )
    total = Index()
    for term, coefficient in value.as_coefficients_dict().items():
        part = Index((), 1) if term == 1 else _atom(term)
        if part is None or coefficient != int(coefficient):
            raise LayoutError(
                f"{what}: {value} must be a sum of multiples of loop variables, or of their // and "
                f"% by positive numbers; got the term {coefficient * term}"
            )
        total += part * int(coefficient)
    return total


def is_number(value: object) -> bool:
    """Say whether a value is an integer, of Python, NumPy or sympy; truth is none.

    >>> is_number(3), is_number(np.int64(3)), is_number(3.0), is_number(True)
    (True, True, False, False)
    """
    return hasattr(value, "__index__") and not isinstance(value, (bool, np.bool_, np.ndarray))


def _atom(term: Any) -> Index | None:
    """Return a symbol, a quotient or a remainder as an index; None: another expression."""
    from layoutalg.sizes.symbolic import DigitSymbol

    if isinstance(term, DigitSymbol):
        return Index.of(term.name, int(term.extent))
    kind = type(term).__name__
    if kind not in ("floor", "FloorDiv", "Mod"):  # of sympy, or of layoutalg.sizes.symbolic
        return None
    number, by = term.args[0].as_numer_denom() if kind == "floor" else term.args
    if not by.is_Integer or by < 1:
        return None
    return as_index(number) % int(by) if kind == "Mod" else as_index(number) // int(by)


def _check_divisor(index: Index, divisor: Any) -> None:
    """Refuse to divide by what is no positive number.

    Raises:
        LayoutError: it is none.
    """
    if not is_number(divisor) or divisor < 1:
        raise LayoutError(
            f"index: {index} divided by {divisor!r}: the divisor must be a positive integer"
        )


def _widened(text: str) -> str:
    return f"static_cast<int64_t>({text})"


def _wrapped(text: str) -> bool:
    """Say whether one pair of parentheses encloses the whole text."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return at == len(text) - 1 and text[0] == "("
    return False


def _divided(text: str, by: int, style: Style) -> str:
    if by & (by - 1) == 0:
        return f"{text} >> {by.bit_length() - 1}"
    return f"{text} {'/' if style == 'c' else '//'} {by}"


def _remainder(text: str, by: int) -> str:
    if by & (by - 1) == 0:
        return f"{text} & {by - 1}"
    return f"({text}) % {by}" if " " in text and not _wrapped(text) else f"{text} % {by}"


def _sum(terms: Iterable[tuple[int, Atom]], constant: int) -> Index:
    """Return a sum of terms, equal atoms gathered and neighbouring digits joined."""
    found = dict[Atom, int]()
    for c, atom in terms:
        found[atom] = found.get(atom, 0) + c
    return Index(_joined(tuple((c, atom) for atom, c in found.items() if c)), constant)


def _joined(terms: tuple[tuple[int, Atom], ...]) -> tuple[tuple[int, Atom], ...]:
    """Join neighbouring digits of one variable: ``4*(t//4%8) + t%4 = t%32``."""
    found = list(terms)
    again = True
    while again:
        again = False
        for i, (c, high) in enumerate(found):
            for j, (d, low) in enumerate(found):
                if (
                    isinstance(high, Digit)
                    and isinstance(low, Digit)
                    and high.var == low.var
                    and high.stride == low.stride * low.extent
                    and c == d * low.extent
                ):
                    joined = Digit(low.var, low.stride, low.extent * high.extent, low.limit)
                    found[min(i, j)] = (d, joined)
                    del found[max(i, j)]
                    again = True
                    break
            if again:
                break
    return tuple(found)
