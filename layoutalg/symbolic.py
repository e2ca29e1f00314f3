"""The sympy side of :mod:`layoutalg.size`: integer expressions, their order and divisibility.

Imported on the first symbol, never before. Symbols are sizes: positive integers, unless they are
digits (:class:`Digit`), which run from 0 to ``extent - 1``. Decisions are proofs: polynomials with
the symbols shifted to their lower bound, and residues; nothing is ever sampled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import sympy
from sympy.printing.precedence import PRECEDENCE

from layoutalg.errors import LayoutError

_RESIDUE_LIMIT = 4096  # how many residue tuples `divides` looks at before it answers None


class Digit(sympy.Symbol):
    """A symbol that runs over ``0 .. extent - 1``: a digit of a mixed radix.

    >>> g = Digit("g", 8)
    >>> FloorDiv(8 * Digit("r", 2) + g, 8)
    r
    """

    extent: Any
    __slots__ = ("extent",)

    def __new__(cls, name: str, extent: Any) -> Digit:
        """Make the digit ``name`` of the radix ``extent``."""
        self = super().__new__(cls, name, integer=True, nonnegative=True)
        self.extent = extent
        return self  # type: ignore[no-any-return]

    def __getnewargs_ex__(self) -> tuple[Any, Any]:
        """Pickle with the extent."""
        return (self.name, self.extent), {}

    def _hashable_content(self) -> Any:
        return (*super()._hashable_content(), self.extent)


class FloorDiv(sympy.Function):  # type: ignore[misc]
    """``floor(a / b)`` for integers, printed ``a//b``.

    >>> x = sympy.Symbol("x", integer=True, positive=True)
    >>> FloorDiv(FloorDiv(x, 2), 4), FloorDiv(8*x + 3, 8), FloorDiv(Mod(x, 8), 8)
    (x//8, x, 0)
    """

    nargs = (2,)
    is_integer = True
    precedence = PRECEDENCE["Mul"] - 5

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        """Apply the identities of floor division."""
        if b.is_Integer:
            if b == 1:
                return a
            if a.is_Integer:
                return sympy.Integer(int(a) // int(b))
        if a == 0:
            return sympy.Integer(0)
        if isinstance(a, cls):
            return cls(a.args[0], a.args[1] * b)
        whole, rest = _split_multiples(a, b)
        if whole != 0:
            return whole + cls(rest, b)
        low, high = bounds(a)
        if low is not None and high is not None and low >= 0 and less(high, b):
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
        """Follow the numerator: sizes are positive."""
        return True if self.args[0].is_nonnegative else None

    def _sympystr(self, printer: Any) -> str:
        a = printer.parenthesize(self.args[0], PRECEDENCE["Mul"])
        return f"{a}//{printer.parenthesize(self.args[1], PRECEDENCE['Pow'])}"

    def _latex(self, printer: Any) -> str:
        a, b = (printer._print(arg) for arg in self.args)
        return rf"\left\lfloor \frac{{{a}}}{{{b}}} \right\rfloor"


class Mod(sympy.Function):  # type: ignore[misc]
    """``a - b*floor(a / b)`` for integers, printed ``a mod b``.

    >>> x = sympy.Symbol("x", integer=True, positive=True)
    >>> Mod(Mod(x, 16), 8), Mod(8*x + 3, 8), 4 * Mod(x, 8)
    (x mod 8, 3, 4*(x mod 8))
    """

    nargs = (2,)
    is_integer = True
    is_nonnegative = True
    precedence = PRECEDENCE["Add"] - 5

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        """Apply the identities of the remainder."""
        if b.is_Integer:
            if b == 1:
                return sympy.Integer(0)
            if a.is_Integer:
                return sympy.Integer(int(a) % int(b))
        if a == 0:
            return sympy.Integer(0)
        if isinstance(a, cls) and divides(b, a.args[1]):
            return cls(a.args[0], b)
        whole, rest = _split_multiples(a, b)
        if whole != 0:
            return cls(rest, b)
        low, high = bounds(a)
        if low is not None and high is not None and low >= 0 and less(high, b):
            return a
        common = _common_factor(a, b)
        if common != 1:
            return common * cls(quotient(a, common), quotient(b, common))
        return None

    def _sympystr(self, printer: Any) -> str:
        a, b = (printer.parenthesize(arg, PRECEDENCE["Mul"]) for arg in self.args)
        return f"{a} mod {b}"

    def _latex(self, printer: Any) -> str:
        a, b = (printer.parenthesize(arg, PRECEDENCE["Mul"]) for arg in self.args)
        return rf"\left({a} \bmod {b}\right)"


def _split_multiples(a: Any, b: Any) -> tuple[Any, Any]:
    """Write ``a = b*whole + rest`` with every term that ``b`` divides in ``whole``."""
    whole, rest = sympy.Integer(0), sympy.Integer(0)
    for term in sympy.Add.make_args(sympy.expand(a)):
        if divides(b, term):
            whole += quotient(term, b)
        elif term.is_Integer and b.is_Integer and not 0 <= term < b:
            whole += int(term) // int(b)
            rest += int(term) % int(b)
        else:
            rest += term
    return whole, rest


def _common_factor(a: Any, b: Any) -> Any:
    """Return the integer that divides ``b`` and the coefficient of each term of ``a``."""
    if not b.is_Integer:
        return sympy.Integer(1)
    factor = int(b)
    for term in sympy.Add.make_args(sympy.expand(a)):
        coefficient = term.as_coeff_Mul()[0]
        factor = math.gcd(factor, int(coefficient) if coefficient.is_Integer else 1)
    return sympy.Integer(factor)


def _drop_small(a: Any, b: Any) -> Any:
    """Drop terms that cannot carry: ``(g*x + r)//b = (g*x)//b`` for ``0 <= r < g``, ``g | b``."""
    terms = sympy.Add.make_args(sympy.expand(a))
    if len(terms) < 2 or not b.is_Integer:
        return None
    weights = sorted(
        {int(abs(t.as_coeff_Mul()[0])) for t in terms if t.as_coeff_Mul()[0].is_Integer}
    )
    for weight in reversed(weights):
        if weight < 2:
            break
        g = math.gcd(weight, int(b))
        small = [t for t in terms if not divides(sympy.Integer(g), t)]
        if g < 2 or not small or len(small) == len(terms):
            continue
        low, high = bounds(sympy.Add(*small))
        if low is not None and high is not None and low >= 0 and less(high, sympy.Integer(g)):
            return sympy.Add(*(t for t in terms if t not in small))
    return None


def bounds(expr: Any) -> tuple[Any, Any]:
    """Return integer or symbolic bounds (low, high) of an expression; None where unknown.

    >>> bounds(8 * Digit("r", 2) + Digit("g", 8))
    (0, 15)
    """
    if expr.is_Integer:
        return int(expr), int(expr)
    if isinstance(expr, Digit):
        return 0, _number(expr.extent) - 1
    if isinstance(expr, Mod):
        return 0, _number(expr.args[1]) - 1
    if isinstance(expr, FloorDiv):
        low, high = bounds(expr.args[0])
        b = expr.args[1]
        if low is not None and low >= 0 and b.is_positive:
            return 0, FloorDiv(sympy.sympify(high), b) if high is not None else None
        return None, None
    if expr.is_Symbol:
        return (1 if expr.is_positive else 0 if expr.is_nonnegative else None), None
    if expr.is_Add:
        lows, highs = zip(*(bounds(term) for term in expr.args), strict=True)
        low = None if None in lows else sum(lows)
        return low, None if None in highs else sum(highs)
    if expr.is_Mul:
        coefficient, rest = expr.as_coeff_Mul()
        if coefficient.is_Integer and coefficient != 1:
            low, high = bounds(rest)
            if coefficient < 0:
                low, high = high, low
            scale = int(coefficient)
            return (None if low is None else scale * low), (None if high is None else scale * high)
        parts = [bounds(factor) for factor in expr.args]
        if all(low is not None and low >= 0 for low, _ in parts):
            highs = [high for _, high in parts]
            return math.prod(low for low, _ in parts), None if None in highs else math.prod(highs)
    return None, None


def _number(size: Any) -> Any:
    """Return an int where the size is one."""
    return int(size) if isinstance(size, int) or size.is_Integer else size


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
    if not isinstance(expr, sympy.Expr) or expr.is_integer is not True:
        raise LayoutError(
            f"{what}: {value} is not known to be an integer; make its symbols with "
            "sympy.Symbol(name, integer=True, positive=True)"
        )
    return expr


def plain(value: Any) -> Any:
    """Return sympy integers as ints, other expressions as they are."""
    return int(value) if value.is_Integer else value


def symbol(name: str) -> sympy.Symbol:
    """Return the size symbol of this name: a positive integer.

    >>> symbol("Mt").is_positive
    True
    """
    return sympy.Symbol(name, integer=True, positive=True)


def nonnegative(name: str) -> sympy.Symbol:
    """Return the symbol of a coordinate: an integer from 0 on."""
    return sympy.Symbol(name, integer=True, nonnegative=True)


def quotient(n: Any, divisor: Any) -> Any:
    """Return ``n / divisor``, expanded; the caller knows that it is exact."""
    return plain(sympy.expand(sympy.cancel(sympy.sympify(n) / divisor)))


@lru_cache(maxsize=4096)
def divides(divisor: Any, n: Any) -> bool | None:
    """Decide divisibility of polynomials by cancelling, then by residues.

    >>> k = symbol("k")
    >>> divides(4, 8 * k), divides(4, 4 * k + 2), divides(4, 2 * k), divides(2, k * (k + 1))
    (True, False, None, True)
    """
    divisor, n = sympy.sympify(divisor), sympy.sympify(n)
    if n == 0 or divisor == 1:
        return True
    ratio = sympy.cancel(sympy.expand(n) / divisor)
    numerator, denominator = sympy.fraction(sympy.together(ratio))
    if denominator == 1:
        return True
    if not denominator.is_Integer:
        return _divides_by_bound(divisor, n)
    modulus = abs(int(denominator))
    atoms = sorted(_atoms(numerator), key=str)
    if any(atom.is_Symbol is not True for atom in atoms) or modulus ** len(atoms) > _RESIDUE_LIMIT:
        return None
    polynomial = sympy.lambdify(atoms, numerator, modules="math") if atoms else None
    answers = {
        (int(numerator) if polynomial is None else polynomial(*residues)) % modulus == 0
        for residues in itertools.product(range(modulus), repeat=len(atoms))
    }
    return answers.pop() if len(answers) == 1 else None


def _divides_by_bound(divisor: Any, n: Any) -> bool | None:
    """Say no where ``0 < n < divisor``; leave the rest open."""
    return False if less(0, n) and less(n, divisor) else None


def _atoms(expr: Any) -> set[Any]:
    """Return what the polynomial is a polynomial in: symbols, floors and remainders."""
    nodes = expr.atoms(FloorDiv, Mod)
    outer = {x for x in nodes if not any(x in y.atoms(FloorDiv, Mod) - {y} for y in nodes)}
    return outer | expr.xreplace({x: sympy.Integer(0) for x in outer}).free_symbols


@lru_cache(maxsize=4096)
def _sign(expr: Any) -> int | None:
    """Return +1 (always > 0), 0 (always 0), -1 (always < 0), or None.

    Each symbol is its lower bound plus a new nonnegative unknown; a polynomial whose coefficients
    all have one sign, the constant strictly, has that sign everywhere.
    """
    expr = sympy.expand(expr)
    if expr == 0:
        return 0
    if expr.is_Integer:
        return 1 if expr > 0 else -1
    low, high = bounds(expr)
    if isinstance(low, int) and low > 0:
        return 1
    if isinstance(high, int) and high < 0:
        return -1
    atoms = sorted(_atoms(expr), key=str)
    shifts = {}
    for index, atom in enumerate(atoms):
        lower = bounds(atom)[0]
        if not isinstance(lower, int):
            return None
        shifts[atom] = lower + sympy.Symbol(f"_t{index}", integer=True, nonnegative=True)
    shifted = sympy.expand(expr.xreplace(shifts))
    if not shifted.is_polynomial():
        return None
    constant = shifted.as_independent(*shifted.free_symbols)[0] if shifted.free_symbols else shifted
    coefficients = [term.as_coeff_Mul()[0] for term in sympy.Add.make_args(shifted)]
    if constant > 0 and all(c >= 0 for c in coefficients):
        return 1
    if constant < 0 and all(c <= 0 for c in coefficients):
        return -1
    return None


@lru_cache(maxsize=4096)
def equal(a: Any, b: Any) -> bool | None:
    """Decide ``a == b`` over all values of the symbols.

    >>> n = symbol("n")
    >>> equal(n * (n + 1), n * n + n), equal(n, n + 1), equal(n, 4)
    (True, False, None)
    """
    sign = _sign(tidy(sympy.expand(sympy.sympify(a) - b)))
    if sign is None:
        return None
    return sign == 0


@lru_cache(maxsize=4096)
def less(a: Any, b: Any) -> bool | None:
    """Decide ``a < b`` over all values of the symbols.

    >>> n = symbol("n")
    >>> less(0, n), less(n, 1), less(n, 2 * n + 1), less(n, 8)
    (True, False, True, None)
    """
    difference = sympy.expand(sympy.sympify(b) - a)
    if _sign(difference) == 1:
        return True
    if _sign(difference - 1) in (-1, 0) and _sign(difference - 1) is not None:
        return _sign(difference - 1) == 0 or (False if _sign(difference - 1) == -1 else None)
    return None


def substitute(expr: Any, values: Mapping[Any, Any]) -> Any:
    """Replace symbols, given as symbols or by name."""
    names = {str(key): value for key, value in values.items()}
    return as_integer_expr(
        sympy.expand(expr.subs({s: names[s.name] for s in expr.free_symbols if s.name in names})),
        "substitute",
    )


def tidy(expr: Any) -> Any:
    """Return the expression with ``c*b*(x//b) + c*(x mod b)`` put together to ``c*x``.

    >>> x = symbol("x")
    >>> tidy(4 * FloorDiv(x, 4) + Mod(x, 4))
    x
    """
    expr = sympy.expand(expr)
    changed = True
    while changed:
        changed = False
        for rest in expr.atoms(Mod):
            x, b = rest.args
            floor = FloorDiv(x, b)
            if floor == 0 or not expr.has(floor):
                continue
            weight = expr.coeff(rest)
            if weight != 0 and sympy.expand(expr.coeff(floor) - weight * b) == 0:
                expr = sympy.expand(expr - weight * rest - weight * b * floor + weight * x)
                changed = True
                break
    return plain(expr)
