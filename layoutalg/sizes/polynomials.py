"""Integer-valued polynomials, and decisions about them by their coefficients.

What a polynomial is in, its *atoms*, are symbols, floors and remainders: all integers. Nothing is
sampled: a sign follows from coefficients, divisibility from all residues. Each proof has a budget
(:mod:`layoutalg.sizes.budget`) and gives up beyond it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
from sympy.polys.orderings import lex
from sympy.polys.polyerrors import CoercionFailed
from sympy.polys.rings import PolyRing

from layoutalg.errors import LayoutError, Undecided
from layoutalg.sizes.budget import DEPTH, RESIDUES, SHIFTED, TERMS

Monomial = tuple[int, ...]
Terms = dict[Monomial, Any]  # exponents of the atoms -> rational coefficient


def most_terms(expr: Any, depth: int = 0) -> int:
    """Return a bound on the terms of an expression once it is multiplied out; no work is done.

    Counting ends beyond the budget, and where the expression is nested too deep.

    >>> a, b = sympy.symbols("a b")
    >>> most_terms((a + b) ** 3 * (a + 1)), most_terms(a * b)
    (8, 1)
    """
    if depth > DEPTH:
        return TERMS + 1
    if expr.is_Add:
        return sum(most_terms(arg, depth + 1) for arg in expr.args)
    if expr.is_Mul:
        count = 1
        for arg in expr.args:
            count *= most_terms(arg, depth + 1)
            if count > TERMS:
                break
        return count
    if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
        base, power = most_terms(expr.base, depth + 1), int(expr.exp)
        if base == 1 or base > TERMS:
            return base
        return math.comb(base + power - 1, power)
    return max((most_terms(arg, depth + 1) for arg in expr.args), default=1)


def expanded(expr: Any) -> Any:
    """Return an expression multiplied out.

    Raises:
        Undecided: that would make more terms than the budget has.

    >>> a, b = sympy.symbols("a b")
    >>> expanded((a + b) ** 2)
    a**2 + 2*a*b + b**2
    """
    if expr.is_Atom:
        return expr
    if most_terms(expr) > TERMS:
        raise Undecided(_too_large(expr, "size"))
    return sympy.expand(expr)


def check_terms(expr: Any, what: str) -> None:
    """Refuse an expression that a user gives and that is too large to multiply out.

    Raises:
        LayoutError: it would have more terms than the budget has.

    >>> a, b = sympy.symbols("a b")
    >>> check_terms((a + b) ** 999, "extent")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: extent: (a + b)**999 must have at most 512 terms when it is \
multiplied out, nested at most 24 deep; it has more: name a factor by a symbol of its own
    """
    if most_terms(expr) > TERMS:
        raise LayoutError(_too_large(expr, what))


def _too_large(expr: Any, what: str) -> str:
    names = ", ".join(sorted(map(str, expr.free_symbols)))
    text = str(expr) if len(expr.args) < 8 and len(str(expr)) < 80 else f"an expression in {names}"
    return (
        f"{what}: {text} must have at most {TERMS} terms when it is multiplied out, nested at most "
        f"{DEPTH} deep; it has more: name a factor by a symbol of its own"
    )


def terms_of(expr: Any, atoms: Sequence[Any]) -> Terms | None:
    """Return the coefficients of a polynomial in the atoms; None where it is none.

    >>> x, y = sympy.symbols("x y")
    >>> terms_of(x * y + 3, (x, y)) == {(1, 1): 1, (0, 0): 3}
    True
    """
    poly = _element(expr, atoms)
    return None if poly is None else dict(poly.terms())


def _element(expr: Any, atoms: Sequence[Any]) -> Any:
    try:
        return PolyRing(atoms, sympy.QQ, lex).from_expr(expr)
    except (ValueError, CoercionFailed):  # no polynomial, or no rational coefficients
        return None


def divided(n: Any, divisor: Any, atoms: Sequence[Any]) -> Any:
    """Return the polynomial ``n / divisor``, with rational coefficients; None where it is none.

    >>> x, y = sympy.symbols("x y")
    >>> divided(x * y + y, 2 * x + 2, (x, y)), divided(x, y, (x, y))
    (y/2, None)
    """
    top, bottom = _element(n, atoms), _element(divisor, atoms)
    if top is None or bottom is None or not bottom:
        return None
    whole, rest = top.div(bottom)
    return None if rest else whole.as_expr()


def whole_part(n: Any, divisor: Any, atoms: Sequence[Any]) -> Any:
    """Return the terms with integer coefficients of ``n / divisor``, a remainder left over.

    >>> a, d, e = sympy.symbols("a d e")
    >>> whole_part(sympy.expand((2 * d + e) * (a + 1) + 3), 2 * a + 2, (a, d, e))
    d
    """
    top, bottom = _element(n, atoms), _element(divisor, atoms)
    if top is None or not bottom:
        return sympy.Integer(0)
    whole = top.div(bottom)[0]
    return whole.ring.from_dict({m: c for m, c in whole.terms() if c.denominator == 1}).as_expr()


def is_positive(terms: Terms, lows: Sequence[int]) -> bool:
    """Prove that a polynomial is above 0 wherever each atom is at least its bound.

    First each term below 0 is held against larger ones: ``x*y >= x`` for ``y >= 1``. Where that
    fails the atoms are counted from their bounds; a polynomial whose coefficients are then all at
    least 0, the constant above 0, is positive everywhere. False where neither proves it.

    >>> is_positive({(2,): 1, (1,): -1, (0,): 1}, [1]), is_positive({(2,): 1, (1,): -2}, [1])
    (True, False)
    """
    lowest = sum(c * math.prod(map(pow, lows, powers)) for powers, c in terms.items())
    if lowest <= 0:
        return False
    return _is_dominated(terms, lows) or _is_positive_shifted(terms, lows)


def _is_dominated(terms: Terms, lows: Sequence[int]) -> bool:
    if any(low < 0 for low in lows):
        return False
    room = {powers: c for powers, c in terms.items() if c > 0}
    for small, needed in terms.items():
        if needed > 0:
            continue
        needed = -needed
        for large in room:
            grown = [a - b for a, b in zip(large, small, strict=True)]
            if all(
                step == 0 or (step > 0 and low >= 1) for step, low in zip(grown, lows, strict=True)
            ):
                taken = min(needed, room[large])
                room[large] -= taken
                needed -= taken
                if not needed:
                    break
        if needed:
            return False
    return any(
        left > 0 and all(low >= 1 or power == 0 for power, low in zip(powers, lows, strict=True))
        for powers, left in room.items()
    )


def _is_positive_shifted(terms: Terms, lows: Sequence[int]) -> bool:
    for at, low in enumerate(lows):
        if low == 0:
            continue
        if sum(powers[at] + 1 for powers in terms) > SHIFTED:
            return False
        shifted: Terms = {}
        for powers, c in terms.items():
            top = powers[at]
            for power in range(top + 1):
                key = (*powers[:at], power, *powers[at + 1 :])
                part = c * math.comb(top, power) * low ** (top - power)
                shifted[key] = shifted.get(key, 0) + part
        terms = shifted
    constant = terms.get((0,) * len(lows), 0)
    return bool(constant > 0) and all(c >= 0 for c in terms.values())


# -- divisibility ---------------------------------------------------------------------------------


def divides_all(modulus: int, terms: Terms, parity: Sequence[int | None]) -> bool | None:
    """Decide whether a number divides a polynomial with integer coefficients, at all residues.

    Args:
        modulus: the divisor, above 0.
        terms: the polynomial.
        parity: per atom 0 where it is even, 1 where it is odd, None where it may be either.

    >>> divides_all(2, {(2,): 1, (1,): 1}, [None]), divides_all(4, {(1,): 2}, [0])
    (True, True)
    >>> divides_all(2, {(1,): 1}, [1]), divides_all(3, {(1,): 1}, [None])
    (False, None)
    """
    answers = [
        _divides_prime_power(prime**power, prime, terms, parity)
        for prime, power in sympy.factorint(modulus).items()
    ]
    return False if False in answers else None if None in answers else True


def _divides_prime_power(
    modulus: int, prime: int, terms: Mapping[Monomial, Any], parity: Sequence[int | None]
) -> bool | None:
    left = {powers: int(c) % modulus for powers, c in terms.items() if int(c) % modulus}
    if not left:
        return True
    used = [at for at in range(len(parity)) if any(powers[at] for powers in left)]
    runs = []
    for at in used:
        fixed = parity[at] if prime == 2 else None
        runs.append(range(modulus) if fixed is None else range(fixed, modulus, 2))
    if math.prod(map(len, runs)) * len(left) > RESIDUES:
        return None
    answers = {
        sum(
            c * math.prod(pow(x, powers[at], modulus) for x, at in zip(values, used, strict=True))
            for powers, c in left.items()
        )
        % modulus
        == 0
        for values in itertools.product(*runs)
    }
    return answers.pop() if len(answers) == 1 else None


# -- declared facts -------------------------------------------------------------------------------


def least_value(expr: Any) -> int | None:
    """Return the least value that the declared facts of a symbol, or of its negative, allow.

    >>> least_value(sympy.Symbol("e", positive=True, even=True))
    2
    """
    for fact, low in (("composite", 4), ("prime", 2), ("positive", 1), ("nonnegative", 0)):
        if getattr(expr, f"is_{fact}"):
            return 2 if low == 1 and expr.is_even else low
    return None


def parity(atom: Any) -> int | None:
    """Return 0 for an even atom, 1 for an odd one, None for others.

    >>> parity(sympy.Symbol("e", even=True)), parity(sympy.Symbol("n"))
    (0, None)
    """
    return 0 if atom.is_even else 1 if atom.is_odd else None


def examples(symbol: Any) -> tuple[int, ...]:
    """Return the first three positive values that the declared facts of a symbol allow.

    >>> examples(sympy.Symbol("o", positive=True, odd=True)), examples(sympy.Symbol("n"))
    ((1, 3, 5), (1, 2, 3))
    """
    facts = [f"is_{fact}" for fact in ("even", "prime", "composite")]
    allowed = (
        n
        for n in map(sympy.Integer, range(1, 99))
        if all(getattr(symbol, fact) in (None, getattr(n, fact)) for fact in facts)
    )
    return tuple(int(n) for n in itertools.islice(allowed, 3))
