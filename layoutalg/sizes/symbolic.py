"""The sympy side of :mod:`layoutalg.sizes.size`: integer expressions, their order and divisibility.

Imported on the first symbol, never before. Symbols are sizes: positive integers, unless they are
digits (:class:`DigitSymbol`), which run from 0 to ``extent - 1``. Decisions are proofs
(:mod:`layoutalg.sizes.polynomials`); nothing is ever sampled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import sympy
from sympy.printing.latex import LatexPrinter
from sympy.printing.precedence import PRECEDENCE

from layoutalg.errors import LayoutError, Undecided
from layoutalg.sizes.polynomials import (
    check_terms,
    divided,
    divides_all,
    expanded,
    is_positive,
    least_value,
    parity,
    terms_of,
    whole_part,
)


class DigitSymbol(sympy.Symbol):  # type: ignore[misc]
    """A symbol that runs over ``0 .. extent - 1``: a digit of a mixed radix.

    Digits of one name that differ in extent or rank are different symbols. Sums print digits by
    ``rank``.

    >>> g, r = DigitSymbol("g", 8), DigitSymbol("r", 2, rank=1)
    >>> FloorDiv(8 * r + g, 8), 8 * r + g
    (r, g + 8*r)
    >>> DigitSymbol("g", 8) == DigitSymbol("g", 4)
    False
    """

    extent: Any
    rank: int
    __slots__ = ("extent", "rank")

    def __new__(cls, name: str, extent: Any, rank: int = 0) -> DigitSymbol:
        """Make the digit ``name`` of the radix ``extent``."""
        # Symbol.__new__ would hand out one cached object per name, whatever the extent
        self = sympy.Symbol.__xnew__(cls, name, integer=True, nonnegative=True)
        self.extent, self.rank = extent, rank
        return self  # type: ignore[no-any-return]

    def __getnewargs_ex__(self) -> tuple[Any, Any]:
        """Pickle with the extent."""
        return (self.name, self.extent, self.rank), {}

    def _hashable_content(self) -> Any:
        return (*super()._hashable_content(), self.extent, self.rank)

    def sort_key(self, order: Any = None) -> Any:
        """Order by rank, then by name; sympy prints sums in this order."""
        one = sympy.S.One
        return self.class_key(), (1, (f"{self.rank:04d}{self.name}",)), one.sort_key(), one


class DigitFunction(sympy.Function):  # type: ignore[misc]
    """The base of :class:`FloorDiv` and :class:`Mod`: both extract a digit of a number.

    Sums list the digits of one number from the largest place value down.

    >>> 4 * FloorDiv(symbol("n"), 8) + Mod(symbol("n"), 8)
    4*(n//8) + (n mod 8)
    """

    nargs = (2,)
    is_integer = True

    @classmethod
    def class_key(cls) -> Any:
        """Give both functions one key, so that sums are ordered by the number."""
        return 4, 10000, "Digit"

    def sort_key(self, order: Any = None) -> Any:
        """Order by the number, then by descending place value of the digit."""
        number, weight = self.args if isinstance(self, FloorDiv) else (self.args[0], sympy.S.One)
        if isinstance(number, FloorDiv):
            number, weight = number.args
        one = sympy.S.One
        inner = (number.sort_key(order), (-weight).sort_key(order))
        return self.class_key(), (2, inner), one.sort_key(), one


class FloorDiv(DigitFunction):
    """``floor(a / b)`` for integers, printed ``a//b``.

    >>> x = sympy.Symbol("x", integer=True, positive=True)
    >>> FloorDiv(FloorDiv(x, 2), 4), FloorDiv(8*x + 3, 8), FloorDiv(Mod(x, 8), 8)
    (x//8, x, 0)
    """

    precedence = PRECEDENCE["Mul"] - 5

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        """Apply the identities of floor division; they hold for positive divisors."""
        if a.is_Integer and b.is_Integer and b != 0:
            return sympy.Integer(int(a) // int(b))
        if not b.is_positive:
            return None
        if a == 0 or b == 1:
            return a
        if isinstance(a, cls):
            return cls(a.args[0], a.args[1] * b)
        whole, rest = _split_multiples(a, b)
        if whole != 0:
            return whole + cls(rest, b)
        if _is_digit(a, b):
            return sympy.Integer(0)
        if isinstance(a, Mod) and divides(b, a.args[1]):
            return Mod(cls(a.args[0], b), quotient(a.args[1], b))
        common = _common_factor(a, b)
        if common != 1:
            return cls(quotient(a, common), quotient(b, common))
        inner = _drop_small(a, b)
        if inner is not None:
            return cls(inner, b)
        return None

    @property
    def is_nonnegative(self) -> bool | None:
        """As the numerator, if the divisor is positive."""
        a, b = self.args
        return True if a.is_nonnegative and b.is_positive else None

    def _sympystr(self, printer: Any) -> str:
        a = printer.parenthesize(self.args[0], PRECEDENCE["Mul"])
        return f"{a}//{printer.parenthesize(self.args[1], PRECEDENCE['Pow'])}"

    def _latex(self, printer: Any) -> str:
        a, b = (printer._print(arg) for arg in self.args)
        return rf"\left\lfloor \frac{{{a}}}{{{b}}} \right\rfloor"


class Mod(DigitFunction):
    """``a - b*floor(a / b)`` for integers, printed ``a mod b``.

    >>> x = sympy.Symbol("x", integer=True, positive=True)
    >>> Mod(Mod(x, 16), 8), Mod(8*x + 3, 8), 4 * Mod(x, 8)
    (x mod 8, 3, 4*(x mod 8))
    """

    precedence = PRECEDENCE["Add"] - 5

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        """Apply the identities of the remainder; they hold for positive divisors."""
        if a.is_Integer and b.is_Integer and b != 0:
            return sympy.Integer(int(a) % int(b))
        if not b.is_positive:
            return None
        if a == 0 or b == 1:
            return sympy.Integer(0)
        if isinstance(a, cls) and divides(b, a.args[1]):
            return cls(a.args[0], b)
        whole, rest = _split_multiples(a, b)
        if whole != 0:
            return cls(rest, b)
        if _is_digit(a, b):
            return a
        common = _common_factor(a, b)
        if common != 1:
            return common * cls(quotient(a, common), quotient(b, common))
        return None

    @property
    def is_nonnegative(self) -> bool | None:
        """True for a positive divisor."""
        return True if self.args[1].is_positive else None

    def _sympystr(self, printer: Any) -> str:
        a, b = (printer.parenthesize(arg, PRECEDENCE["Mul"]) for arg in self.args)
        return f"{a} mod {b}"

    def _latex(self, printer: Any) -> str:
        a, b = (printer.parenthesize(arg, PRECEDENCE["Mul"]) for arg in self.args)
        return rf"\left({a} \bmod {b}\right)"


def _is_digit(a: Any, b: Any) -> bool:
    """Say whether ``0 <= a < b`` is known."""
    return _from_zero(bounds(a)[0]) and less(a, b) is True


def _split_multiples(a: Any, b: Any) -> tuple[Any, Any]:
    """Write ``a = b*whole + rest`` with every term that ``b`` divides in ``whole``."""
    whole, rest = sympy.Integer(0), sympy.Integer(0)
    for term in sympy.Add.make_args(expanded(a)):
        if divides(b, term):
            whole += quotient(term, b)
        elif term.is_Integer and b.is_Integer and not 0 <= term < b:
            whole += int(term) // int(b)
            rest += int(term) % int(b)
        else:
            rest += term
    if b.is_Add and rest != 0:  # (a + 1)*x + y has no term that a + 1 divides
        more = whole_part(rest, b, _ordered_atoms(rest, b))
        if more != 0 and _is_digit(left := expanded(rest - b * more), b):
            return whole + more, left
    return whole, rest


def _common_factor(a: Any, b: Any) -> Any:
    """Return the integer that divides ``b`` and the coefficient of each term of ``a``."""
    if not b.is_Integer:
        return sympy.Integer(1)
    factor = int(b)
    for term in sympy.Add.make_args(expanded(a)):
        coefficient = term.as_coeff_Mul()[0]
        factor = math.gcd(factor, int(coefficient) if coefficient.is_Integer else 1)
    return sympy.Integer(factor)


def _drop_small(a: Any, b: Any) -> Any:
    """Drop terms that cannot carry: ``(g*x + r)//b = (g*x)//b`` for ``0 <= r < g``, ``g | b``."""
    terms = sympy.Add.make_args(expanded(a))
    if len(terms) < 2 or not b.is_Integer:
        return None
    weights = {int(c) for c in (t.as_coeff_Mul()[0] for t in terms) if c.is_Integer}
    for g in sorted({math.gcd(weight, int(b)) for weight in weights}, reverse=True):
        small = [t for t in terms if not divides(sympy.Integer(g), t)]
        if g < 2 or not small or len(small) == len(terms):
            continue
        if _is_digit(sympy.Add(*small), sympy.Integer(g)):
            return sympy.Add(*(t for t in terms if t not in small))
    return None


@lru_cache(maxsize=4096)
def bounds(expr: Any) -> tuple[Any, Any]:
    """Return integer or symbolic bounds (low, high) of an expression; None where unknown.

    >>> bounds(8 * DigitSymbol("r", 2) + DigitSymbol("g", 8))
    (0, 15)
    """
    if expr.is_Integer:
        return int(expr), int(expr)
    if isinstance(expr, DigitSymbol):
        return 0, plain(sympy.sympify(expr.extent)) - 1
    if isinstance(expr, Mod) and expr.args[1].is_positive:
        return 0, plain(expr.args[1]) - 1
    if isinstance(expr, FloorDiv):
        low, high = bounds(expr.args[0])
        b = expr.args[1]
        if _from_zero(low) and b.is_positive:
            return 0, FloorDiv(sympy.sympify(high), b) if high is not None else None
        return None, None
    if expr.is_Symbol:
        return least_value(expr), None if (low := least_value(-expr)) is None else -low
    if expr.is_Add:
        parts = [bounds(term) for term in expr.args]
        lows, highs = [low for low, _ in parts], [high for _, high in parts]
        return None if None in lows else sum(lows), None if None in highs else sum(highs)
    if expr.is_Mul:
        coefficient, rest = expr.as_coeff_Mul()
        if coefficient.is_Integer and coefficient != 1:
            low, high = bounds(rest)
            if coefficient < 0:
                low, high = high, low
            scale = int(coefficient)
            return (None if low is None else scale * low), (None if high is None else scale * high)
        parts = [bounds(factor) for factor in expr.args]
        if all(_from_zero(low) for low, _ in parts):
            highs = [high for _, high in parts]
            return math.prod(low for low, _ in parts), None if None in highs else math.prod(highs)
    return None, None


def _from_zero(low: Any) -> bool:
    """Say whether a lower bound is known to be at least 0."""
    return low is not None and less(low, 0) is False


def as_integer_expr(value: Any, what: str) -> Any:
    """Return a sympy expression that is known to be an integer, ints as ints.

    Raises:
        LayoutError: the expression is not known to be an integer.

    >>> as_integer_expr(sympy.Symbol("x"), "extent")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: extent: x is not known to be an integer; make its symbols with \
sympy.Symbol(name, integer=True, positive=True)
    """
    expr = sympy.sympify(value)
    if expr.is_Integer:
        return int(expr)
    if isinstance(expr, sympy.Expr):
        check_terms(expr, what)
    if not isinstance(expr, sympy.Expr) or not _is_integer(expr):
        raise LayoutError(
            f"{what}: {value} is not known to be an integer; make its symbols with "
            "sympy.Symbol(name, integer=True, positive=True)"
        )
    return plain(sympy.expand(expr))


def _is_integer(expr: Any) -> bool:
    """Say whether an expression is an integer, also where its terms are not: (odd + 1)/2."""
    top, bottom = sympy.fraction(sympy.together(expr))
    halves = bottom.is_Integer and top.is_integer and divides(bottom, top)
    return bool(halves if expr.is_integer is None else expr.is_integer)


def plain(value: Any) -> Any:
    """Return sympy integers as ints, other expressions as they are.

    >>> type(plain(sympy.Integer(8)))
    <class 'int'>
    """
    return int(value) if value.is_Integer else value


def symbol(name: str) -> sympy.Symbol:
    """Return the size symbol of this name: a positive integer.

    >>> symbol("Mt").is_positive
    True
    """
    return sympy.Symbol(name, integer=True, positive=True)


def nonnegative(name: str) -> sympy.Symbol:
    """Return the symbol of a coordinate: an integer from 0 on.

    >>> nonnegative("i").is_positive is None
    True
    """
    return sympy.Symbol(name, integer=True, nonnegative=True)


def quotient(n: Any, divisor: Any) -> Any:
    """Return ``n / divisor``, expanded; the caller knows that it is exact.

    >>> quotient(8 * symbol("k"), 4)
    2*k
    """
    n, divisor = expanded(sympy.sympify(n)), expanded(sympy.sympify(divisor))
    exact = divided(n, divisor, _ordered_atoms(n, divisor))
    return plain(sympy.expand(sympy.cancel(n / divisor) if exact is None else exact))


def namesakes(*sizes: Any) -> tuple[str, ...]:
    """Return the names that different symbols share: equal names, other assumptions.

    >>> namesakes(symbol("n"), sympy.Symbol("n", integer=True), symbol("k"))
    ('n',)
    """
    free = {s for size in sizes for s in sympy.sympify(size).free_symbols}
    names = [s.name for s in free]
    return tuple(sorted({name for name in names if names.count(name) > 1}))


@lru_cache(maxsize=4096)
def divides(divisor: Any, n: Any) -> bool | None:
    """Decide divisibility of polynomials by dividing, then by residues.

    >>> k = symbol("k")
    >>> divides(4, 8 * k), divides(4, 4 * k + 2), divides(4, 2 * k), divides(2, k * (k + 1))
    (True, False, None, True)
    >>> divides(2, sympy.Symbol("e", even=True))
    True
    """
    divisor, n = expanded(sympy.sympify(divisor)), expanded(sympy.sympify(n))
    if n in (0, divisor) or divisor == 1:
        return True
    if divisor == 0:
        return False if equal(n, 0) is False else None
    atoms = _ordered_atoms(n, divisor)
    ratio = divided(n, divisor, atoms)
    terms = None if ratio is None else terms_of(ratio, atoms)
    if terms is None:  # no multiple of the divisor lies strictly below it
        return False if less(0, n) and less(n, divisor) else None
    whole = math.lcm(*(int(c.denominator) for c in terms.values()))
    scaled = {powers: c * whole for powers, c in terms.items()}
    return divides_all(whole, scaled, [parity(atom) for atom in atoms])


def _atoms(expr: Any) -> set[Any]:
    """Return what the polynomial is a polynomial in: symbols, floors and remainders."""
    nodes = expr.atoms(FloorDiv, Mod)
    outer = {x for x in nodes if not any(x in y.atoms(FloorDiv, Mod) - {y} for y in nodes)}
    bare: set[Any] = expr.xreplace({x: sympy.Integer(0) for x in outer}).free_symbols
    return outer | bare


def _ordered_atoms(*exprs: Any) -> list[Any]:
    return sorted(set().union(*map(_atoms, exprs)), key=str)


@lru_cache(maxsize=4096)
def _sign(expr: Any) -> int | None:
    """Return +1 (always > 0), 0 (always 0), -1 (always < 0), or None."""
    expr = expanded(expr)
    if expr.is_Integer:
        return int(sympy.sign(expr))
    if _positive(expr):
        return 1
    return -1 if _positive(-expr) else None


def _positive(expr: Any) -> bool:
    """Prove ``expr > 0``; False where the proof fails.

    What is bounded and stands alone in its terms takes the end that makes the sum smallest. Every
    other atom counts from its bound: :func:`layoutalg.sizes.polynomials.is_positive`.
    """
    low = bounds(expr)[0]
    if isinstance(low, int) and low > 0:
        return True
    for atom in _ordered_atoms(expr):
        weight = expr.coeff(atom)
        low, high = bounds(atom)
        down = None if None in (low, high) else _sign(weight)
        if down is not None and not (expr - weight * atom).expand().has(atom):
            ended = expr.xreplace({atom: sympy.sympify(high if down < 0 else low)})
            try:
                expr = expanded(ended)
            except Undecided:
                return False
    atoms = _ordered_atoms(expr)
    lows = []
    for atom in atoms:
        low, high = bounds(atom)
        if not isinstance(low, int) and isinstance(high, int):
            expr, low = sympy.expand(expr.subs(atom, -atom)), -high  # count downwards
        if not isinstance(low, int):
            return False
        lows.append(low)
    terms = terms_of(expr, atoms)
    return terms is not None and is_positive(terms, lows)


@lru_cache(maxsize=4096)
def equal(a: Any, b: Any) -> bool | None:
    """Decide ``a == b`` over all values of the symbols.

    >>> n = symbol("n")
    >>> equal(n * (n + 1), n * n + n), equal(n, n + 1), equal(n, 4)
    (True, False, None)
    """
    sign = _sign(sympy.sympify(tidy(sympy.sympify(a) - b)))
    return None if sign is None else sign == 0


@lru_cache(maxsize=4096)
def less(a: Any, b: Any) -> bool | None:
    """Decide ``a < b`` over all values of the symbols.

    >>> n = symbol("n")
    >>> less(0, n), less(n, 1), less(n, 2 * n + 1), less(n, 8)
    (True, False, True, None)
    """
    difference = expanded(sympy.sympify(b) - a)
    sign = _sign(difference)
    if sign is not None:
        return sign > 0
    return False if _sign(1 - difference) == 1 else None  # the difference is an integer


def substitute(expr: Any, values: Mapping[str, Any]) -> Any:
    """Replace the symbols of these names, all at once.

    >>> substitute(symbol("n") + 2 * symbol("k"), {"n": symbol("k"), "k": 3})
    k + 6
    """
    replaced = {s: sympy.sympify(values[s.name]) for s in expr.free_symbols if s.name in values}
    return as_integer_expr(expr.xreplace(replaced), "subs")


def tidy(expr: Any) -> Any:
    """Return the expression with ``c*b*(x//b) + c*(x mod b)`` joined to ``c*x``.

    >>> x = symbol("x")
    >>> tidy(4 * FloorDiv(x, 4) + Mod(x, 4))
    x
    """
    expr = expanded(sympy.sympify(expr))
    for rest in sorted(expr.atoms(Mod), key=str):
        x, b = rest.args
        floor = FloorDiv(x, b)
        if floor == 0 or not expr.has(floor):
            continue
        weight = expr.coeff(rest)
        if weight != 0 and sympy.expand(expr.coeff(floor) - weight * b) == 0:
            return tidy(expr - weight * rest - weight * b * floor + weight * x)
    return plain(expr)


class _Latex(LatexPrinter):  # type: ignore[misc]
    """Print floors and remainders as factors without a second pair of brackets."""

    def _needs_mul_brackets(self, expr: Any, first: bool = False, last: bool = False) -> bool:
        if isinstance(expr, DigitFunction):
            return False
        return bool(super()._needs_mul_brackets(expr, first, last))


def latex(expr: Any, names: Mapping[Any, str]) -> str:
    r"""Print an expression as LaTeX; ``names`` says how symbols are written.

    >>> print(latex(2 * Mod(nonnegative("i"), 4), {}))
    2 \left(i \bmod 4\right)
    """
    return str(_Latex({"symbol_names": dict(names)}).doprint(expr))
