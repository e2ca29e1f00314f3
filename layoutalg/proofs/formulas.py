"""Formulas as claims: what a Python function says of every element, in exact integers.

Where sizes are numbers, a formula sees arrays of all coordinates (:class:`_Exact`: int64 while that
holds the result of an operation, Python's integers from there on). Where sizes are symbolic it sees
one :class:`_Index` per coordinate, a form in digits, which has no truth value: :func:`where` asks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from layoutalg.algebra.axis import Axis
from layoutalg.errors import LayoutError, Undecided
from layoutalg.sizes.budget import SHIFT
from layoutalg.sizes.size import as_size, equal, floordiv, is_int, less, mod

_LOW, _HIGH = -(1 << 63), (1 << 63) - 1
_KNOWN = "+ - * // % << >>, & with a mask of low bits, and comparisons for where(condition, a, b)"


def where(condition: Any, a: Any, b: Any) -> Any:
    """Return ``a`` where a condition holds, else ``b``: the branch of a formula for ``prove``.

    ``a if i < 8 else b`` asks for one truth value of all elements; this asks each. Of sympy symbols
    Python's ``M == 1`` is the bool False, which cannot be seen here: say ``sympy.Eq(M, 1)``.

    Args:
        condition: a bool, an array of bools, or a comparison of symbolic indices.
        a: an integer, an array of integers, or a symbolic index.
        b: as ``a``.

    Raises:
        Undecided: the condition holds for some values of the symbols, or of the digits, only.

    >>> from layoutalg import parse, prove
    >>> rows = lambda i, j: {"m": where(i < 2, 8 * i + j, 8 * i + j + 4)}
    >>> bool(prove(parse("S[(2,2,8):(20,8,1)]"), (4, 8), rows))
    True
    """
    if isinstance(condition, _Condition):
        if condition.answer is None:
            raise Undecided(
                f"where: is {condition.text}? The symbols and digits leave it open; write the "
                "formula without the branch, or substitute the symbols with .subs."
            )
        return a if condition.answer else b
    if getattr(condition, "ndim", 0):
        return _wrapped(np.where(np.asarray(condition), _array(a), _array(b)))
    if getattr(condition, "free_symbols", None):  # a comparison of sympy
        raise Undecided(
            f"where: is {condition}? The symbols leave it open; write the formula without the "
            "branch, or substitute the symbols with .subs."
        )
    return a if condition else b


# -- arrays ---------------------------------------------------------------------------------------


def indices(shape: tuple[int, ...]) -> list[Any]:
    """Return the coordinates of every element, one exact array per dimension.

    >>> (indices((2, 3))[1] << 70).max()
    2361183241434822606848
    """
    return [exact(x) for x in np.indices(shape, dtype=np.int64)]


def exact(values: Any) -> Any:
    """Return an array whose arithmetic does not wrap.

    >>> exact(np.array([1 << 62])) * 4
    _Exact([18446744073709551616], dtype=object)
    """
    return np.asarray(values).view(_Exact)


class _Exact(np.ndarray):
    """Integers in an array: int64 where the result fits, Python's integers where it might not."""

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        """Run a ufunc on plain arrays; ``out`` is a new array, so that ``i += 1`` rebinds i."""
        given = [_array(value) for value in inputs]
        if ufunc in _ARITHMETIC:
            given = [x.astype(np.int64) if x.dtype.kind == "b" else x for x in given]
        if method != "__call__" or not _fits(ufunc, given):
            given = [x.astype(object) if x.dtype.kind in "iu" else x for x in given]
        return _wrapped(getattr(ufunc, method)(*given, **options))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Keep what NumPy's functions return exact, too."""
        given = tuple(_array(each) if is_int(each) and abs(each) > _HIGH else each for each in args)
        return _wrapped(super().__array_function__(func, types, given, kwargs))

    def __bool__(self) -> bool:
        """Refuse the truth value of many elements."""
        if self.size == 1:
            return bool(self.reshape(-1)[0])
        _refuse_truth("a coordinate stands for many elements and")


_SAFE = {
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
    np.logical_and, np.logical_or, np.logical_not, np.logical_xor, np.bitwise_and, np.bitwise_or,
    np.bitwise_xor, np.invert, np.remainder, np.minimum, np.maximum,
}  # fmt: skip
"""What never leaves 64 bits."""
_BOUNDS: dict[Any, Callable[[int, int], int]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul,
    np.left_shift: lambda a, b: a << max(0, min(b, 64)),
    np.right_shift: lambda a, b: a if 0 <= b < 64 else _HIGH + 1,
    np.floor_divide: lambda a, b: -a if b == -1 else a,
}  # fmt: skip
"""Per ufunc: the result at a corner of the inputs; those at all corners bound the rest."""
_ARITHMETIC = {*_BOUNDS, np.remainder, np.negative, np.power, np.divmod}


def _array(value: Any) -> Any:
    """Return an operand as an array; integers beyond 64 bits as Python's."""
    if is_int(value) and not _LOW <= value <= _HIGH:
        return np.array(value, dtype=object)
    plain = np.asarray(value)
    return plain.astype(object) if plain.dtype == np.uint64 else plain


def _fits(ufunc: Any, given: list[Any]) -> bool:
    """Say whether a ufunc on integer arrays stays within 64 bits."""
    if any(x.dtype.kind not in "iub" or not x.size for x in given) or ufunc in _SAFE:
        return True
    if ufunc is np.negative:
        return bool(int(given[0].min()) > _LOW)
    corner = _BOUNDS.get(ufunc)
    if corner is None:
        return False
    one, other = ((int(x.min()), int(x.max())) for x in given)
    return all(_LOW <= corner(a, b) <= _HIGH for a in one for b in other)


def _wrapped(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(map(_wrapped, result))
    return result.view(_Exact) if isinstance(result, np.ndarray) else result


# -- symbols --------------------------------------------------------------------------------------


def _refuse_truth(what: str) -> NoReturn:
    raise LayoutError(
        f"prove: {what} has no truth value; write a branch as layoutalg.where(condition, a, b), "
        "such as where(i < 8, a, b)"
    )


class _Condition(NamedTuple):
    """A comparison of symbolic indices: true, false, or open (None)."""

    answer: bool | None
    text: str

    def __bool__(self) -> bool:
        """Refuse: ``if``, ``and``, ``or``, ``not`` and ``min`` ask for one answer."""
        _refuse_truth(f"a comparison of symbolic indices, {self.text},")

    def __invert__(self) -> _Condition:
        answer = None if self.answer is None else not self.answer
        return _Condition(answer, f"not ({self.text})")

    def __and__(self, other: _Condition) -> _Condition:
        both = self.answer, other.answer
        answer = False if False in both else None if None in both else True
        return _Condition(answer, f"({self.text}) and ({other.text})")

    def __or__(self, other: _Condition) -> _Condition:
        both = self.answer, other.answer
        answer = True if True in both else None if None in both else False
        return _Condition(answer, f"({self.text}) or ({other.text})")


class _Index:
    """A coordinate that a formula works on where sizes are symbolic.

    It knows ``+ - * // %``, shifts, ``&`` with a mask of low bits, and comparisons for ``where``.
    """

    __slots__ = ("size",)
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # NumPy's numbers leave the operation to this class

    def __init__(self, size: Any) -> None:
        self.size = size

    def __bool__(self) -> bool:
        """Refuse: a form in digits is neither true nor false."""
        _refuse_truth(f"a symbolic index, {self.size},")

    def __pos__(self) -> _Index:
        return self

    def __neg__(self) -> _Index:
        return _Index(-self.size)

    def __add__(self, other: Any) -> _Index:
        return _Index(self.size + _plain(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> _Index:
        return _Index(self.size - _plain(other))

    def __rsub__(self, other: Any) -> _Index:
        return _Index(_plain(other) - self.size)

    def __mul__(self, other: Any) -> _Index:
        return _Index(self.size * _plain(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> _Index:
        return _Index(floordiv(self.size, _divisor(other)))

    def __mod__(self, other: Any) -> _Index:
        return _Index(mod(self.size, _divisor(other)))

    def __divmod__(self, other: Any) -> tuple[_Index, _Index]:
        return self // other, self % other

    def __lshift__(self, bits: Any) -> _Index:
        return self * (1 << _bits(bits))

    def __rshift__(self, bits: Any) -> _Index:
        return self // (1 << _bits(bits))

    def __and__(self, mask: Any) -> _Index:
        number = _plain(mask)
        if not is_int(number) or number < 0 or number & (number + 1):
            raise LayoutError(f"prove: the mask of a symbolic index must be 2**k - 1; got {number}")
        low: _Index = self % (number + 1)
        return low

    __rand__ = __and__

    def _refuse(self, *_: Any) -> NoReturn:
        raise LayoutError(
            f"prove: a symbolic index knows {_KNOWN}; substitute the symbols for more"
        )

    __or__ = __ror__ = __xor__ = __rxor__ = __pow__ = __rpow__ = __truediv__ = __rtruediv__ = (
        _refuse
    )
    __rfloordiv__ = __rmod__ = __rdivmod__ = __rlshift__ = __rrshift__ = __invert__ = _refuse
    __abs__ = __index__ = __matmul__ = __rmatmul__ = __round__ = _refuse

    def __eq__(self, other: Any) -> _Condition:  # type: ignore[override]
        return _Condition(equal(self.size, _plain(other)), f"{self.size} = {_plain(other)}")

    def __ne__(self, other: Any) -> _Condition:  # type: ignore[override]
        same: _Condition = self == other
        return ~same

    def __lt__(self, other: Any) -> _Condition:
        return _Condition(less(self.size, _plain(other)), f"{self.size} < {_plain(other)}")

    def __gt__(self, other: Any) -> _Condition:
        return _Condition(less(_plain(other), self.size), f"{self.size} > {_plain(other)}")

    def __le__(self, other: Any) -> _Condition:
        above: _Condition = self > other
        return ~above

    def __ge__(self, other: Any) -> _Condition:
        below: _Condition = self < other
        return ~below


def symbolic_index(size: Any) -> Any:
    """Return a coordinate for a formula: a form in digits, or a number.

    >>> symbolic_index(3) * 2 + 1 == 7
    _Condition(answer=True, text='7 = 7')
    """
    return _Index(size)


def _plain(value: Any) -> Any:
    if isinstance(value, _Condition):
        _refuse_truth(f"a comparison of symbolic indices, {value.text},")
    return value.size if isinstance(value, _Index) else as_size(value, "prove: formula")


def _divisor(value: Any) -> Any:
    divisor = _plain(value)
    if equal(divisor, 0) is not False:
        raise LayoutError(f"prove: a formula must not divide by zero; its divisor is {divisor}")
    return divisor


def _bits(value: Any) -> int:
    bits = _plain(value)
    if not is_int(bits) or not 0 <= bits <= SHIFT:
        raise LayoutError(
            f"prove: a symbolic index shifts by a number from 0 to {SHIFT}; got {bits}"
        )
    return int(bits)


# -- what a formula returns -----------------------------------------------------------------------


def as_place(value: Any) -> dict[str, Any]:
    """Return what a formula says as axis name -> coordinate.

    Raises:
        LayoutError: it says something else.

    >>> as_place({"laneid": 5})
    {'laneid': 5}
    """
    if not isinstance(value, Mapping):
        raise LayoutError(
            f"prove: a formula of coordinates must return {{axis: value}}; got {value!r}"
        )
    return {Axis.get(axis).name: _integral(number) for axis, number in value.items()}


def as_coordinates(value: Any, rank: int) -> tuple[Any, ...]:
    """Return what an inverse formula says as one coordinate per dimension.

    Raises:
        LayoutError: it says something else.

    >>> as_coordinates((1, 2), 2)
    (1, 2)
    """
    if not isinstance(value, tuple) or len(value) != rank:
        raise LayoutError(
            f"prove: a formula of the axes must return a tuple of {rank} coordinates; got {value!r}"
        )
    return tuple(map(_integral, value))


def _integral(value: Any) -> Any:
    """Return a formula's value as an integer array, or as a size."""
    if isinstance(value, _Index):
        return value.size
    if isinstance(value, _Condition):
        _refuse_truth(f"a comparison of symbolic indices, {value.text},")
    if getattr(value, "ndim", 0):
        plain = np.asarray(value)
        if plain.dtype.kind not in "iu" and not (plain.dtype == object and is_int(*plain.flat)):
            kind = plain.dtype if plain.dtype != object else type(plain.flat[0]).__name__
            raise LayoutError(f"prove: a formula must give integers; got {kind}")
        return plain
    return as_size(value, "prove: value of the formula")


def spread(value: Any, shape: tuple[int, ...]) -> Any:
    """Return a value, a number or an array, for every element.

    >>> spread(7, (2,)).tolist()
    [7, 7]
    """
    return np.broadcast_to(_array(value), shape)
