"""Elementwise expressions: what a kernel computes on register tiles, written as in NumPy.

Operators on tiles and the functions here build an :class:`Expression`; ``Kernel.assign`` and
``Kernel.tile`` take it. Types are strict: both sides of an operator have one type, a number takes
that of the other side, and ``cast`` changes it. Extents of 1 are broadcast, as in NumPy.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from layoutalg import LayoutError
from lowering.ir.index import Guard, Index, as_index
from lowering.isa import casts, dtypes, functions
from lowering.isa.functions import PRED, Function

# -- nodes ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tile:
    """A leaf: the elements of a register tile, before dispatch."""

    region: Any  # a BufferRegion

    @property
    def token(self) -> str:
        """The type of an element."""
        return str(self.region.buffer.dtype.token)

    def __str__(self) -> str:
        whole = self.region == self.region.buffer.region()
        return str(self.region.buffer.name if whole else self.region)


@dataclass(frozen=True)
class Operand:
    """A leaf: the elements of one of the register operands of an operation."""

    number: int
    token: str

    def __str__(self) -> str:
        return f"${self.number}"


@dataclass(frozen=True, eq=False)
class Number:
    """A leaf: a constant; its type is "" until an operator gives it one.

    >>> Number(0.0, "f32") == Number(-0.0, "f32")
    False
    """

    value: float
    token: str = ""

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same constant: -0.0 is not 0.0, and a NaN is itself."""
        return isinstance(other, Number) and self._spelled == other._spelled

    def __hash__(self) -> int:
        return hash(self._spelled)

    @property
    def _spelled(self) -> tuple[str, str]:
        return repr(self.value), self.token

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Variable:
    """A leaf with one value for all elements: an s32 index, or the name of an f32 scalar."""

    value: Index | str
    token: str = "s32"

    def __str__(self) -> str:
        text = str(self.value)
        return f"({text})" if " " in text else text


@dataclass(frozen=True)
class Position:
    """A leaf: each element's coordinate along an axis of the expression's shape, plus begin."""

    axis: int
    begin: Index
    token: str = "s32"

    def __str__(self) -> str:
        text = f"index({self.axis})"
        return text if self.begin == Index() else f"({text} + {self.begin})"


@dataclass(frozen=True)
class Coordinate:
    """A leaf: one index for each element, from the coordinates of an operation."""

    number: int
    token: str = "s32"

    def __str__(self) -> str:
        return f"@{self.number}"


@dataclass(frozen=True)
class Reduction:
    """A leaf: an expression whose elements along some dimensions become one; their extent is 1.

    Elements are joined in an order that the layout says, the same on every machine: first the
    registers of a thread, ascending, in a balanced tree; then lanes, from neighbours on; then
    warps, ascending, in a balanced tree. ``name``: see :mod:`lowering.ir.reductions`.
    """

    name: str
    operand: Expression
    axes: tuple[int, ...]

    @property
    def token(self) -> str:
        """The type of an element: that of the operand, of truth values s32."""
        return "s32" if self.operand.token == PRED else self.operand.token

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the result."""
        return kept(self.operand.shape, self.axes)

    def __str__(self) -> str:
        return f"{self.name}({self.operand}, axis={self.axes})"


def kept(shape: Sequence[int], axes: Collection[int]) -> tuple[int, ...]:
    """Return the shape that a reduction along some dimensions leaves: extent 1 there.

    >>> kept((8, 4, 2), (1,))
    (8, 1, 2)
    """
    return tuple(1 if dim in axes else int(extent) for dim, extent in enumerate(shape))


@dataclass(frozen=True)
class Apply:
    """A function of nodes."""

    function: Function
    arguments: tuple[Node, ...]

    @property
    def token(self) -> str:
        """The type of the result."""
        return self.function.result

    def __str__(self) -> str:
        inside = [str(each) for each in self.arguments]
        sign = _SIGNS.get(self.function.name)
        if sign and len(inside) == 2:
            return f"({inside[0]} {sign} {inside[1]})"
        if self.function.name == "cast":
            return f"{self.token}({inside[0]})"
        return f"{self.function.name}({', '.join(inside)})"


Node = Tile | Operand | Number | Variable | Position | Coordinate | Reduction | Apply

_SIGNS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//",
    "remainder": "%", "less": "<", "less_equal": "<=",
    "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=", "bitwise_and": "&",
    "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>",
}  # fmt: skip


def shown(node: Node, operands: Sequence[object]) -> str:
    """Return a tree as text, with what stands for its operands.

    >>> shown(Apply(functions.get("negative", ("f32",)), (Operand(0, "f32"),)), ["r[0,1]"])
    'negative(r[0,1])'
    """
    text = str(node)
    for number, each in reversed(list(enumerate(operands))):
        text = text.replace(f"${number}", str(each))
    return text


def leaves(node: Node) -> Iterator[Node]:
    """Yield the leaves of a tree, from left to right."""
    if isinstance(node, Apply):
        for each in node.arguments:
            yield from leaves(each)
    else:
        yield node


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return a tree with each leaf changed."""
    if isinstance(node, Apply):
        return replace(node, arguments=tuple(mapped(each, change) for each in node.arguments))
    return change(node)


def tokens(node: Node) -> set[str]:
    """Return the types of a tree's nodes."""
    inside = node.arguments if isinstance(node, Apply) else ()
    return {node.token}.union(*(tokens(each) for each in inside))


# -- expressions ----------------------------------------------------------------------------------


class Arithmetic:
    """What tiles and expressions share: operators that build an expression."""

    __array_ufunc__: ClassVar[None] = None  # so that NumPy's scalars leave operators to us

    @property
    def expression(self) -> Expression:
        """This value as an expression."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Expression:
        return apply("add", self, other)

    def __radd__(self, other: Any) -> Expression:
        return apply("add", other, self)

    def __sub__(self, other: Any) -> Expression:
        return apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return apply("subtract", other, self)

    def __mul__(self, other: Any) -> Expression:
        return apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return apply("divide", other, self)

    def __floordiv__(self, other: Any) -> Expression:
        return apply("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Expression:
        return apply("floor_divide", other, self)

    def __mod__(self, other: Any) -> Expression:
        return apply("remainder", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return apply("remainder", other, self)

    def __and__(self, other: Any) -> Expression:
        return apply("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Expression:
        return apply("bitwise_and", other, self)

    def __or__(self, other: Any) -> Expression:
        return apply("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Expression:
        return apply("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Expression:
        return apply("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Expression:
        return apply("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> Expression:
        return apply("left_shift", self, other)

    def __rlshift__(self, other: Any) -> Expression:
        return apply("left_shift", other, self)

    def __rshift__(self, other: Any) -> Expression:
        return apply("right_shift", self, other)

    def __rrshift__(self, other: Any) -> Expression:
        return apply("right_shift", other, self)

    def __lt__(self, other: Any) -> Expression:
        return apply("less", self, other)

    def __le__(self, other: Any) -> Expression:
        return apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Expression:
        return apply("greater", self, other)

    def __ge__(self, other: Any) -> Expression:
        return apply("greater_equal", self, other)

    def __neg__(self) -> Expression:
        return apply("negative", self)

    def __abs__(self) -> Expression:
        return apply("absolute", self)

    def __invert__(self) -> Expression:
        return apply("invert", self)


@dataclass(frozen=True, eq=False)
class Expression(Arithmetic):
    """A value for each element of a shape: a tree of functions over tiles, numbers and variables.

    >>> from layoutalg import parse
    >>> from lowering.ir.tiles import Buffer
    >>> s = Buffer("s", (32, 4), "float32", layout=parse("S[(32,4):(1@laneid,1)]"))
    >>> value = exp2(s * 0.5 - 1)
    >>> print(value), value.shape, value.dtype
    exp2(((s * 0.5) - 1.0))
    (None, (32, 4), DType('float32'))
    """

    node: Node
    shape: tuple[int, ...]

    @property
    def expression(self) -> Expression:
        """Itself."""
        return self

    @cached_property
    def token(self) -> str:
        """The type of an element, as PTX spells it; ``pred`` for a truth value, "" for a number."""
        return self.node.token

    @property
    def dtype(self) -> Any:
        """The type of an element; of a truth value ``bool``."""
        return bool if self.token == PRED else dtypes.get(self.token)

    def __str__(self) -> str:
        return str(self.node)

    def __repr__(self) -> str:
        return f"Expression({self}: {list(self.shape)} {self.token})"

    def __bool__(self) -> bool:
        """Refuse to be a condition of Python.

        Raises:
            LayoutError: always.
        """
        raise LayoutError(
            f"expression: {self} has a value for each element, so Python cannot branch on it: take "
            "where(condition, one, other)"
        )


def as_expression(value: Any, operation: str) -> Expression:
    """Return a tile, a region, an expression, a number, a symbol or an index as an expression.

    Raises:
        LayoutError: it is none of these, or a tile that does not lie in registers.
    """
    if isinstance(value, Arithmetic):
        found = value.expression
        leaf = found.node  # those of a larger tree were taken when it was built
        if isinstance(leaf, Tile) and leaf.region.buffer.scope != "local":
            raise LayoutError(
                f"{operation}: computes on registers; {leaf.region} is in "
                f"{leaf.region.buffer.scope} memory: copy it to a register tile first"
            )
        return found
    if isinstance(value, (bool, np.bool_)):
        raise LayoutError(
            f"{operation}: a number or a tile fits; got {value!r}. Of tiles, == and != say whether "
            "they are one object: take equal(a, b) or not_equal(a, b)"
        )
    if isinstance(value, Guard):
        above = apply("greater_equal", value.index, value.low)
        return above & apply("less", value.index, value.high)
    if isinstance(value, (int, float, np.integer, np.floating)):
        number = value.item() if isinstance(value, np.generic) else value
        return Expression(Number(number), ())
    if isinstance(value, Index) or hasattr(value, "free_symbols"):
        return Expression(Variable(as_index(value, operation)), ())
    raise LayoutError(
        f"{operation}: a tile, an expression, a number, a scalar or an index fits; got {value!r}"
    )


def typed(value: Expression, token: str, operation: str) -> Expression:
    """Return an expression of a type, which a number takes.

    Raises:
        LayoutError: it has another type, or the number is none of that type.
    """
    node = value.node
    if node.token == token:
        return value
    if isinstance(node, Number) and node.token == "":
        return Expression(_constant(node.value, token, operation), ())
    raise LayoutError(
        f"{operation}: both sides must have one type; got {value}, which is {value.token}, beside "
        f"{token}: cast one of them, such as cast(x, {token!r})"
    )


def _constant(value: float, token: str, operation: str) -> Number:
    """Return a constant of a type.

    Raises:
        LayoutError: the type does not hold it: a fraction, a NaN, or beyond its largest number.
    """
    if token == PRED:
        raise LayoutError(f"{operation}: a truth value fits, such as x < 0; got the number {value}")
    dtype = dtypes.get(token)
    low, high = dtype.integers
    if high:
        if not low <= value <= high or value != int(value):  # a NaN lies in no range
            raise LayoutError(f"{operation}: {token} holds {low}..{high}; got {value}")
        return Number(int(value), token)
    given = math.inf if abs(value) > sys.float_info.max else float(value)
    with np.errstate(all="ignore"):
        rounded, last = map(float, np.asarray([given, math.inf]).astype(dtype.numpy))
    if math.isnan(given) and not math.isnan(rounded):
        raise LayoutError(f"{operation}: {token} holds no NaN")
    infinite = isinstance(value, float) and math.isinf(value)
    # Past its largest number e4m3 has NaN, and e2m1 has that number again.
    beyond = not math.isnan(given) and (math.isnan(rounded) or math.isinf(rounded) != infinite)
    if beyond or (math.isfinite(last) and abs(given) > last):
        raise LayoutError(f"{operation}: {value} is beyond the largest {token}")
    return Number(float(value), token)


def apply(name: str, *values: Any) -> Expression:
    """Return a function of values, broadcast against each other.

    Args:
        name: of a row of :mod:`lowering.isa.functions`.
        values: tiles, expressions, numbers, scalars of the launch, indices.

    Raises:
        LayoutError: the types differ or have no such function, or the shapes do not broadcast.
    """
    found = [as_expression(each, name) for each in values]
    choosing = name == "where"
    if choosing:
        found[0] = typed(found[0], PRED, "where: the condition")
    sides = found[choosing:]
    known = [each.token for each in sides if each.token]
    if not known:
        raise LayoutError(
            f"{name}: the type of {', '.join(map(str, sides))} is not known: one side must be a "
            'tile, or cast to a type, such as cast(0, "float32")'
        )
    sides = [typed(each, known[0], name) for each in sides]
    every = [*found[:choosing], *sides]
    function = functions.get(name, tuple(each.token for each in every))
    if name in ("floor_divide", "remainder") and every[1].node == Number(0, "s32"):
        raise LayoutError(f"{name}: what hardware gives for a division by 0 is not defined")
    return Expression(Apply(function, tuple(each.node for each in every)), _shape(name, every))


def _shape(name: str, values: list[Expression]) -> tuple[int, ...]:
    """Return the common shape.

    Raises:
        LayoutError: there is none.
    """
    try:
        return np.broadcast_shapes(*(each.shape for each in values))
    except ValueError:
        listed = ", ".join(f"{each} of {each.shape}" for each in values if each.shape)
        raise LayoutError(f"{name}: the shapes do not broadcast: {listed}") from None


# -- functions ------------------------------------------------------------------------------------


def cast(x: Any, dtype: Any) -> Expression:
    """Return x in another type, as the hardware converts it: see :mod:`lowering.isa.casts`.

    A truth value becomes 0 or 1; a number gets the type.

    Raises:
        LayoutError: no cast leads from the one type to the other.

    >>> cast(2, "float16")
    Expression(2.0: [] f16)
    """
    into = dtypes.get(dtype).token
    value = as_expression(x, "cast")
    if value.token == "":
        return typed(value, into, "cast")
    if value.token == into:
        return value
    return Expression(Apply(casts.cast(value.token, into), (value.node,)), value.shape)


def index(tile: Any, axis: int) -> Expression:
    """Return the coordinate of each element of a tile along an axis, in its buffer, as s32.

    Args:
        tile: a register tile, or a region of one.
        axis: of its shape.

    Raises:
        LayoutError: no tile, or no such axis.

    >>> from layoutalg import parse
    >>> from lowering.ir.tiles import Buffer
    >>> s = Buffer("s", (32, 4), "float32", layout=parse("S[(32,4):(1@laneid,1)]"))
    >>> below = where(index(s, 0) >= index(s, 1), s, 0)  # what causal attention keeps
    >>> print(below)
    where((index(-2) >= index(-1)), s, 0.0)
    """
    node = tile.expression.node if isinstance(tile, Arithmetic) else None
    if not isinstance(node, Tile):
        raise LayoutError(f"index: a register tile or a region of one fits; got {tile!r}")
    region = node.region
    if type(axis) is not int or not -len(region.shape) <= axis < len(region.shape):
        raise LayoutError(f"index: {region} has axes 0..{len(region.shape) - 1}; got {axis!r}")
    axis %= len(region.shape)
    shape = tuple(extent if at == axis else 1 for at, extent in enumerate(region.shape))
    back = axis - len(shape)  # shapes are aligned at their ends
    return Expression(Position(back, as_index(region.ranges[axis][0])), shape)


def where(condition: Any, one: Any, other: Any) -> Expression:
    """Return one value where a condition holds, else the other.

    A condition is a comparison of tiles, of what :func:`index` gives, or of indices, as ``when``
    takes: ``where(k.block[0] > 0, s, 0)``.
    """
    return apply("where", condition, one, other)


def fma(a: Any, b: Any, c: Any) -> Expression:
    """Return ``a·b + c``, rounded once (of s32: its low 32 bits)."""
    return apply("fma", a, b, c)


def maximum(a: Any, b: Any) -> Expression:
    """Return the larger of two; a NaN stays one."""
    return apply("maximum", a, b)


def minimum(a: Any, b: Any) -> Expression:
    """Return the smaller of two; a NaN stays one."""
    return apply("minimum", a, b)


def equal(a: Any, b: Any) -> Expression:
    """Return whether two are equal (``==`` compares tiles as a whole)."""
    return apply("equal", a, b)


def not_equal(a: Any, b: Any) -> Expression:
    """Return whether two differ; a NaN differs from itself."""
    return apply("not_equal", a, b)


def exp2(x: Any) -> Expression:
    """Return 2**x (``ex2.approx.ftz``: results below the normal f32 are 0)."""
    return apply("exp2", x)


def exp(x: Any) -> Expression:
    """Return e**x as ``exp2(x·log2(e))`` of a rounded product, as CUDA's ``__expf``."""
    return apply("exp", x)


def log2(x: Any) -> Expression:
    """Return the logarithm to base 2 (``lg2.approx``)."""
    return apply("log2", x)


def sqrt(x: Any) -> Expression:
    """Return the square root, correctly rounded."""
    return apply("sqrt", x)


def rsqrt(x: Any) -> Expression:
    """Return 1/sqrt(x) (``rsqrt.approx``)."""
    return apply("rsqrt", x)


def reciprocal(x: Any) -> Expression:
    """Return 1/x (of f32 ``rcp.approx``, of f64 correctly rounded)."""
    return apply("reciprocal", x)


def tanh(x: Any) -> Expression:
    """Return the hyperbolic tangent (``tanh.approx``, of f32 good to 11 bits)."""
    return apply("tanh", x)
