"""Expressions of fuzz programs: their trees, their Python text, and what each function means.

The meaning is written here anew: of arrays in the type's own NumPy type, rounded once. Functions
that hardware approximates are given such arguments alone that their results are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.support import ptx_cvt, ptx_words

Array = npt.NDArray[Any]
PRED = "bool"

SIGNS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//",
    "remainder": "%", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<",
    "right_shift": ">>",
}  # fmt: skip
JOINS = {"max": "maximum", "min": "minimum", "sum": "add", "any": "bitwise_or"}
LEAVES = ("tile", "number", "scalar", "value", "index")
PREFIXES = {"negative": "-", "invert": "~"}
COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
KINDS: dict[str, Any] = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32,
    "float64": np.float64, "int32": np.int32, "int8": np.int8, "uint8": np.uint8,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2, PRED: np.bool_,
}  # fmt: skip
FLOATS = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip


class InexactError(Exception):
    """A function is approximate at what it is given, or its result is not defined."""


@dataclass(frozen=True)
class Node:
    """A tree of functions over leaves, of one type.

    ``what``: "tile" (of a region), "number", "scalar" (its name), "value" (a number, such as a loop
    variable's, with its text), "index" (a region and an axis), the name of a function, or that of a
    reduction (a tree and axes).
    """

    what: str
    dtype: str
    arguments: tuple[Any, ...]

    def text(self, region: Callable[[Any], str]) -> str:
        """Return Python, as a user would write it."""
        if self.what == "tile":
            return region(self.arguments[0])
        if self.what in ("number", "scalar", "value"):
            text = str(self.arguments[0])
            return f"({text})" if " " in text or text.startswith("-") else text
        if self.what == "index":
            return f"lw.index({region(self.arguments[0])}, {self.arguments[1]})"
        if self.what in JOINS:
            value, axes = self.arguments
            axis = axes[0] if len(axes) == 1 else axes
            return f"lw.{self.what}({value.text(region)}, axis={axis})"
        inside = [each.text(region) for each in self.arguments]
        if self.what in SIGNS:
            return f"({inside[0]} {SIGNS[self.what]} {inside[1]})"
        if self.what in PREFIXES:
            return f"{PREFIXES[self.what]}{inside[0]}"
        if self.what == "absolute":
            return f"abs({inside[0]})"
        if self.what == "cast":
            return f'lw.cast({inside[0]}, "{self.dtype}")'
        return f"lw.{self.what}({', '.join(inside)})"

    def leaves(self, of_reductions: bool = True) -> Iterator[Node]:
        """Yield the leaves, from left to right."""
        if self.what in LEAVES:
            yield self
        elif self.what in JOINS and not of_reductions:
            return
        else:
            for each in self.arguments:
                if isinstance(each, Node):
                    yield from each.leaves(of_reductions)

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes."""
        yield self
        for each in self.arguments:
            if isinstance(each, Node):
                yield from each.nodes()

    def changed(self, change: Callable[[Node], Node]) -> Node:
        """Return the tree with every node changed, leaves first."""
        arguments = tuple(
            each.changed(change) if isinstance(each, Node) else each for each in self.arguments
        )
        return change(replace(self, arguments=arguments))


def apply(what: str, *arguments: Node) -> Node:
    """Return a function of nodes."""
    dtype = PRED if what in COMPARISONS else arguments[-1].dtype
    return Node(what, dtype, arguments)


def number(value: float, dtype: str) -> Node:
    """Return a constant."""
    return Node("number", dtype, (int(value) if dtype == "int32" else float(value),))


# -- the meaning ----------------------------------------------------------------------------------


def evaluate(node: Node, leaf: Callable[[Node], Array], where: Array | None) -> Array:
    """Return the value of a tree; ``leaf`` gives that of leaves and of reductions.

    ``where``: the elements that are meant, None where functions may be approximate.

    Raises:
        InexactError: a function is approximate there.
    """
    known: dict[Node, Array] = {}

    def value(each: Node) -> Array:
        if each not in known:
            known[each] = found(each)
        return known[each]

    def found(each: Node) -> Array:
        if each.what in LEAVES or each.what in JOINS:
            return leaf(each).astype(KINDS[each.dtype])
        inside = [value(argument) for argument in each.arguments]
        if each.what == "cast":
            return cast(inside[0], each.arguments[0].dtype, each.dtype)
        return function(each.what, inside, where)

    with np.errstate(all="ignore"):
        return value(node)


def cast(value: Array, source: str, target: str) -> Array:
    """Return values of one type in another: floats rounded to nearest, ties to even.

    To an integer, floats are cut, and held to its ends (0 for what is no number); of an integer the
    low bits are kept.
    """
    if target in ("int8", "uint8", "int32"):
        if value.dtype.kind in "iub":
            return value.astype(np.int64).astype(KINDS[target])
        ends = np.iinfo(KINDS[target])
        wide = value.astype(np.float64)
        whole = np.clip(np.trunc(np.where(np.isnan(wide), 0, wide)), ends.min, ends.max)
        return whole.astype(np.int64).astype(KINDS[target])
    token, wide = FLOATS[target], value.astype(np.float64)
    bits = ptx_cvt.codes(wide, token, finite=token in ("e4m3", "e5m2"))
    return ptx_cvt.floats(bits, token).astype(KINDS[target])


def function(what: str, arguments: list[Array], where: Array | None) -> Array:
    """Return a function of arrays of its types.

    Raises:
        InexactError: it is approximate at an element that is meant.
    """
    values = list(np.broadcast_arrays(*arguments))
    kind = values[-1].dtype
    inexact = where is not None and kind in APPROXIMATE.get(what, ())
    if inexact and (where & ~EXACT[what](*values)).any():
        raise InexactError(f"{what} of what it approximates")
    with np.errstate(all="ignore"):
        found = np.asarray(FUNCTIONS[what](*values))
    return found.astype(bool if what in COMPARISONS else kind)


def reduced(what: str, value: Array, axes: tuple[int, ...]) -> Array:
    """Return a reduction of a matrix, or of several, along some of its two axes, extents kept.

    Raises:
        InexactError: a sum whose order matters.
    """
    if what == "any":
        return np.any(value != 0, axis=tuple(a - 2 for a in axes), keepdims=True).astype(np.int32)
    token = token_of(value)
    if what == "sum" and token:
        wide = np.abs(value.astype(np.float64)).sum(axis=tuple(a - 2 for a in axes))
        most = 2 << ptx_cvt.FORMATS[token].fraction
        if (wide > most).any() or (value != np.rint(value)).any():
            raise InexactError("a sum whose order matters")
    for axis in axes:
        parts = np.moveaxis(value, axis - 2, 0)
        total = parts[:1]
        for part in parts[1:]:
            total = function(JOINS[what], [total, part[None]], None)
        value = np.moveaxis(total, 0, axis - 2)
    return value


def token_of(value: Array) -> str:
    """Return the type of floats as PTX spells it; "" of others."""
    name = next(each for each, kind in KINDS.items() if np.dtype(kind) == value.dtype)
    return FLOATS.get(name, "")


def _greater(a: Array, b: Array) -> Array:
    return np.where((a > b) | ((a == b) & ~np.signbit(a)), a, b)


def _extreme(sign: int) -> Callable[[Array, Array], Array]:
    def rule(a: Array, b: Array) -> Array:
        if a.dtype.kind == "i":
            return np.maximum(a, b) if sign > 0 else np.minimum(a, b)
        found = _greater(a, b) if sign > 0 else -_greater(-a, -b)
        return np.where(np.isnan(a) | np.isnan(b), np.asarray(np.nan, a.dtype), found)

    return rule


def _fma(a: Array, b: Array, c: Array) -> Array:
    """Round ``a·b + c`` once."""
    if a.dtype.kind == "i":
        wide = a.astype(np.int64) * b.astype(np.int64) + c.astype(np.int64)
        return wide.astype(np.int32)
    flat = (np.ravel(each) for each in (a, b, c))
    return ptx_words.fused(*flat, token_of(a)).reshape(a.shape)


def _wrapped(rule: Callable[..., Array]) -> Callable[..., Array]:
    def do(*values: Array) -> Array:
        if values[0].dtype.kind == "i":
            return rule(*(each.astype(np.int64) for each in values)).astype(np.int32)
        return rule(*values)

    return do


def _count(by: Array) -> Array:
    """Return the places of a shift: all of 32 and more, or below 0, count as 32."""
    return np.where((by < 0) | (by > 32), 32, by)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _wrapped(np.add), "subtract": _wrapped(np.subtract), "multiply": _wrapped(np.multiply),
    "divide": np.divide, "fma": _fma, "absolute": _wrapped(np.abs),
    "negative": _wrapped(np.negative), "sqrt": np.sqrt, "maximum": _extreme(1),
    "minimum": _extreme(-1), "where": np.where, "equal": np.equal, "not_equal": np.not_equal,
    "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "invert": np.invert, "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "left_shift": _wrapped(lambda x, by: x << _count(by)),
    "right_shift": _wrapped(lambda x, by: x >> _count(by)),
    "floor_divide": _wrapped(lambda a, b: np.floor_divide(a, np.where(b == 0, 1, b))),
    "remainder": _wrapped(lambda a, b: a - np.floor_divide(a, np.where(b == 0, 1, b)) * b),
    "reciprocal": lambda x: np.asarray(1, x.dtype) / x,
    "exp2": lambda x: np.exp2(x.astype(np.float64)), "exp": lambda x: np.exp(x.astype(np.float64)),
    "log2": lambda x: np.log2(x.astype(np.float64)),
    "rsqrt": lambda x: 1 / np.sqrt(x.astype(np.float64)),
    "tanh": lambda x: np.tanh(x.astype(np.float64)),
}  # fmt: skip

# Where the approximate ones are exact, by argument; of which types they are approximate.
_NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32))


def _power(of: int) -> Callable[[Array], Array]:
    def rule(x: Array) -> Array:
        mantissa, exponent = np.frexp(x.astype(np.float64))
        return (mantissa == 0.5) & ((exponent - 1) % of == 0) & (np.abs(exponent) < 20)

    return rule


EXACT: dict[str, Callable[..., Array]] = {
    "exp2": lambda x: (x == np.rint(x)) & (np.abs(x) <= 14), "exp": lambda x: x == 0,
    "log2": _power(1), "rsqrt": _power(2), "reciprocal": _power(1),
    "tanh": lambda x: (x == 0) | (np.abs(x) >= 32),
    "floor_divide": lambda a, b: b != 0, "remainder": lambda a, b: b != 0,
}  # fmt: skip
APPROXIMATE: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("exp2", "exp", "log2", "rsqrt", "reciprocal", "tanh"), _NARROW),
    **dict.fromkeys(("floor_divide", "remainder"), (np.dtype(np.int32),)),
}
