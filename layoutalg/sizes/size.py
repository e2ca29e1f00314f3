"""Sizes: ``Size = int | sympy.Expr``, and the questions that may be asked of them.

Ints stay ints. Every function here answers for ints at once and turns to
:mod:`layoutalg.sizes.symbolic` (and so to sympy, which is slow to import) only when a symbol is
present. A question has three answers: ``True``, ``False`` and ``None`` for "the symbols leave it
open".
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from layoutalg.errors import LayoutError, Undecided

if TYPE_CHECKING:
    import sympy

Size = Union[int, "sympy.Expr"]
_INT = frozenset((int,))


def is_int(*values: object) -> bool:
    """Say whether every value is a plain int.

    >>> is_int(4, 8), is_int(4, 2.0)
    (True, False)
    """
    return _INT.issuperset(map(type, values))


def as_size(value: object, what: str = "size") -> Size:
    """Return ``value`` as an int or as an integer sympy expression.

    Takes what has ``__index__`` (NumPy integers, ``sympy.Integer``) and integer expressions.

    Raises:
        LayoutError: a float, a bool, None, a string, or a symbol not known to be an integer.

    >>> as_size(8)
    8
    >>> as_size(2.5)
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: size: must be an integer or an integer expression; got 2.5 (float)
    """
    if type(value) is int:
        return value
    if isinstance(value, bool):
        raise LayoutError(f"{what}: must be an integer, not the bool {value}")
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    if hasattr(value, "free_symbols"):
        from layoutalg.sizes import symbolic

        return symbolic.as_integer_expr(value, what)
    raise LayoutError(
        f"{what}: must be an integer or an integer expression; "
        f"got {value!r} ({type(value).__name__})"
    )


def as_extent(value: object, what: str = "extent") -> Size:
    """Return ``value`` as a positive size.

    Raises:
        LayoutError: not an integer, or not positive.

    >>> as_extent(0)
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: extent: must be at least 1; got 0
    """
    size = as_size(value, what)
    if less(size, 1):
        raise LayoutError(f"{what}: must be at least 1; got {size}")
    return size


def equal(a: Size, b: Size) -> bool | None:
    """Say whether ``a == b`` for every value of the symbols (None: it depends).

    >>> equal(4, 4)
    True
    """
    if type(a) is int and type(b) is int:
        return a == b
    from layoutalg.sizes import symbolic

    return symbolic.equal(a, b)


def less(a: Size, b: Size) -> bool | None:
    """Say whether ``a < b`` for every value of the symbols (None: it depends).

    >>> less(3, 4), less(4, 4)
    (True, False)
    """
    if type(a) is int and type(b) is int:
        return a < b
    from layoutalg.sizes import symbolic

    return symbolic.less(a, b)


def divides(divisor: Size, n: Size) -> bool | None:
    """Say whether ``divisor`` divides ``n`` for every value of the symbols (None: it depends).

    >>> divides(4, 12), divides(5, 12)
    (True, False)
    """
    if type(divisor) is int and type(n) is int:
        return n % divisor == 0 if divisor else n == 0
    from layoutalg.sizes import symbolic

    return symbolic.divides(divisor, n)


def ascending(sizes: Sequence[Size]) -> list[int] | None:
    """Return the positions of sizes from the least to the greatest; None: symbols leave it open.

    Sizes that may tie (``1 <= n``) come in either order.

    >>> ascending((8, 1, 4))
    [1, 2, 0]
    """
    if is_int(*sizes):
        return sorted(range(len(sizes)), key=sizes.__getitem__)
    ordered: list[int] = []
    for index, size in enumerate(sizes):
        at = 0
        for other in (sizes[each] for each in ordered):
            if less(size, other) or less(other, size) is False:
                break
            if less(size, other) is None:
                return None
            at += 1
        ordered.insert(at, index)
    return ordered


def decide(answer: bool | None, question: str, advice: str, *values: object) -> bool:
    """Return the answer, or raise :class:`Undecided` where there is none.

    ``values`` fill the ``{}`` of the question, once it has to be put into words.

    >>> decide(None, "slice: is {} < {}", "substitute i", "i", 8)
    Traceback (most recent call last):
    layoutalg.errors.Undecided: slice: is i < 8? The symbols leave it open; substitute i.
    """
    if answer is None:
        asked = question.format(*values) if values else question
        raise Undecided(f"{asked}? The symbols leave it open; {advice}.")
    return answer


def quotient(n: Size, divisor: Size) -> Size:
    """Return ``n / divisor`` where the division is known to be exact.

    >>> quotient(12, 4)
    3
    """
    if type(n) is int and type(divisor) is int:
        return n // divisor
    from layoutalg.sizes import symbolic

    return symbolic.quotient(n, divisor)


def floordiv(a: Any, b: Size) -> Any:
    """Return ``floor(a / b)`` for ints, NumPy integer arrays and expressions.

    >>> floordiv(-1, 4)
    -1
    """
    if type(b) is int and not hasattr(a, "free_symbols"):
        return a // b
    from layoutalg.sizes import symbolic

    return symbolic.plain(symbolic.FloorDiv(a, b))


def mod(a: Any, b: Size) -> Any:
    """Return ``a - b*floor(a / b)`` for ints, NumPy integer arrays and expressions.

    >>> mod(-1, 4)
    3
    """
    if type(b) is int and not hasattr(a, "free_symbols"):
        return a % b
    from layoutalg.sizes import symbolic

    return symbolic.plain(symbolic.Mod(a, b))


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of the sizes; 1 where there is none.

    >>> product((2, 8, 4))
    64
    """
    result: Any = 1
    for size in sizes:
        result = result * size
    return result


def namesakes(*sizes: Size) -> str:
    """Return advice where different symbols share a name, else nothing.

    >>> namesakes(8, 4)
    ''
    """
    if is_int(*sizes):
        return ""
    from layoutalg.sizes import symbolic

    names = ", ".join(symbolic.namesakes(*sizes))
    return f" (different symbols are named {names}: make each once)" if names else ""


def substitute(size: Size, values: Mapping[Any, Any]) -> Size:
    """Return the size with symbols, or names of symbols, replaced by sizes, all at once.

    Raises:
        LayoutError: a value is no size.

    >>> substitute(8, {"K": 64})
    8
    """
    if type(size) is int:
        return size
    from layoutalg.sizes import symbolic

    named = {str(name): as_size(value, f"subs: {name}") for name, value in values.items()}
    return symbolic.substitute(size, named)


def tidy(value: Any) -> Any:
    """Return an expression in its most readable form; ints and arrays pass through.

    >>> tidy(7)
    7
    """
    if type(value) is int or not hasattr(value, "free_symbols"):
        return value
    from layoutalg.sizes import symbolic

    return symbolic.tidy(value)


def as_shape(shape: Sequence[object], what: str) -> tuple[Size, ...]:
    """Return a shape as a tuple of positive sizes.

    Raises:
        LayoutError: not a sequence of positive integers.

    >>> as_shape([16, 8], "group")
    (16, 8)
    """
    if isinstance(shape, tuple):
        for extent in shape:
            if type(extent) is not int or extent < 1:
                break
        else:
            return shape
    elif not is_sequence(shape):
        raise LayoutError(f"{what}: the shape must be a tuple of extents; got {shape!r}")
    return tuple(as_extent(extent, f"{what}: extent of the shape") for extent in shape)


def is_sequence(value: object) -> bool:
    """Say whether a value lists things in order: a tuple, a list, a range or a flat array.

    >>> is_sequence((8, 4)), is_sequence("84"), is_sequence({8, 4}), is_sequence(8)
    (True, False, False, False)
    """
    if type(value) is tuple or type(value) is list:
        return True
    ordered = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return ordered or getattr(value, "ndim", 0) == 1
