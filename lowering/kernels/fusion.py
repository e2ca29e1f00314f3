"""What an epilogue computes of the sums: an expression of them and of named operands."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from layoutalg import LayoutError, S, TileLayout
from lowering.ir import expressions
from lowering.ir.expressions import Arithmetic, Expression, Node, Reduction, Tile, Variable
from lowering.ir.index import FREE, as_index
from lowering.ir.tiles import Buffer
from lowering.isa import dtypes
from lowering.isa.dtypes import DType

# The type in which an expression meets an operand, by its element type.
WIDENED = dict.fromkeys(("f16", "bf16", "f32", "e4m3", "e5m2"), "f32") | dict.fromkeys(
    ("s8", "u8", "s32"), "s32"
)
_LETTERS = "CEFGHIJLOPQRSTUVWXYZ"  # of operands in a kernel, which has A, B, D, M, N and K


@dataclass(frozen=True)
class Given:
    """An operand of an epilogue.

    ``extents``: those of M and N that it has, "MN", "M" (a column), "N" (a row) or "" (one
    element); None of a number, which each launch passes as f32.
    """

    name: str
    dtype: DType
    extents: str | None = None

    @classmethod
    def of(cls, name: str, dtype: DType, shape: Sequence[int], sizes: tuple[int, int]) -> Given:
        """Return a matrix of a shape as an operand of a result with M rows and N columns.

        Raises:
            LayoutError: the shape does not broadcast to the result's, or its type is unknown.

        >>> f16 = dtypes.get("float16")
        >>> [Given.of("x", f16, shape, (16, 8)).extents for shape in ((8,), (16, 1), (16, 8))]
        ['N', 'M', 'MN']
        """
        if dtype.token not in WIDENED:
            raise LayoutError(
                f"matmul: {name} must be of {', '.join(WIDENED)} for an epilogue; got {dtype}"
            )
        wide = (1,) * (2 - len(shape)) + tuple(shape)
        if len(wide) > 2 or any(n not in (1, size) for n, size in zip(wide, sizes, strict=True)):
            m, n = sizes
            raise LayoutError(
                f"matmul: {name} must be ({n},) or (1, {n}) for each column, ({m}, 1) for each "
                f"row, {sizes}, or one element; got {tuple(shape)}"
            )
        found = (axis for axis, n in zip("MN", wide, strict=True) if n > 1)
        return cls(name, dtype, "".join(found))

    def shape(self, sizes: tuple[int, int]) -> tuple[int, int]:
        """Return the extents of its part of a tile."""
        has = self.extents or ""
        return sizes[0] if "M" in has else 1, sizes[1] if "N" in has else 1


@dataclass(frozen=True)
class Fused:
    """An epilogue: the value of each element of D, of the sums and of operands.

    Attributes:
        operands: in the order in which a kernel has them.
        sums: the type of the sums, f32 or s32.
        out: the type of the value.
        text: the expression with all its types: what tells epilogues apart.
        node: its tree, over tiles and variables that are named like the operands.
        accumulated: the name of the sums in it.
    """

    operands: tuple[Given, ...]
    sums: str
    out: str
    text: str
    node: Node = field(compare=False, repr=False)
    accumulated: str = field(compare=False, repr=False, default="acc")

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        operands: Sequence[Given],
        out: str | DType,
        sums: str = "f32",
        sizes: tuple[int, int] = (FREE, FREE),
    ) -> Fused:
        """Return the epilogue that a function says.

        Args:
            function: of the sums and of the operands by name; returns an expression.
            operands: of these it takes each.
            out: the type of D.
            sums: the type of the sums.
            sizes: M and N, for messages.

        Raises:
            LayoutError: it takes other operands, or returns what is no expression of them, or one
                of a type that is not D's.

        >>> bias = Given("bias", dtypes.get("float16"), "N")
        >>> fused = Fused.of(lambda acc, bias: acc * 2 + bias, [bias], "float16")
        >>> print(fused.text)
        cast.f16(add.f32(multiply.f32(acc.f32,2.0.f32),cast.f32(bias.f16)))
        """
        into = dtypes.get(out).token
        name = _taken(function, [each.name for each in operands])
        leaves = {each.name: _leaf(each, sizes) for each in operands}
        made = function(_tile(name, sums, sizes), **leaves)
        if not isinstance(made, Arithmetic):
            raise LayoutError(
                f"matmul: the epilogue must return one expression of {name} and its operands; got "
                f"{type(made).__name__} {made!r}"
            )
        value = made.expression
        _check_leaves(value, {name, *leaves})
        if value.token == "f32" and into in ("f16", "bf16"):
            value = expressions.cast(value, into)
        if value.token != into:
            raise LayoutError(
                f"matmul: the epilogue's value {value} is {value.token or 'a number'}, and out is "
                f"{into}: only f32 is rounded to f16 and bf16; cast it, or give out another type"
            )
        return cls(tuple(operands), sums, into, _spelled(value.node), value.node, name)

    @property
    def letters(self) -> dict[Given, str]:
        """The operands with their names in a kernel: capitals of matrices, else small letters."""
        capitals, small = iter(_LETTERS), iter(_LETTERS.lower())
        return {each: next(small if each.extents is None else capitals) for each in self.operands}

    @property
    def reads(self) -> bool:
        """Whether an operand is a matrix."""
        return any(each.extents is not None for each in self.operands)

    def __str__(self) -> str:
        """Return a short name, a part of an identifier: a digest."""
        return "x" + hashlib.sha256(repr(self).encode()).hexdigest()[:12]


def _taken(function: Any, names: Sequence[str]) -> str:
    """Return the name by which a function takes the sums, its first parameter.

    Raises:
        LayoutError: it is no function, or does not take the operands by name.
    """
    if not callable(function):
        raise LayoutError(
            "matmul: the epilogue must be a function of the sums and of operands by name, such as "
            f"lambda acc, bias: acc + bias; got {function!r}"
        )
    if len(names) > len(_LETTERS):
        raise LayoutError(
            f"matmul: an epilogue takes at most {len(_LETTERS)} operands; got {len(names)}"
        )
    try:
        bound = inspect.signature(function).bind(None, **dict.fromkeys(names))
    except (TypeError, ValueError) as error:
        raise LayoutError(
            f"matmul: the epilogue takes the sums, and each operand by its name; got "
            f"{', '.join(names) or 'no operands'}: {error}"
        ) from None
    first = next(iter(bound.arguments))
    return "acc" if first in names else str(first)


def _spelled(node: Node) -> str:
    """Return a tree as text that says the type of every node."""
    if isinstance(node, expressions.Apply):
        inside = ",".join(map(_spelled, node.arguments))
        return f"{node.function.name}.{node.function.result}({inside})"
    if isinstance(node, Tile):
        return f"{node.region.buffer.name}.{node.token}"
    return f"{node}.{node.token}"


@lru_cache(maxsize=256)
def _tile(name: str, token: str, shape: tuple[int, int]) -> Buffer:
    """Return a tile that stands for a matrix; its layout is any."""
    return Buffer(name, shape, token, layout=TileLayout(S[shape : (shape[1], 1)]))


@lru_cache(maxsize=256)
def _leaf(operand: Given, sizes: tuple[int, int]) -> Expression:
    """Return an operand as it stands in an expression, in the type in which it meets others."""
    if operand.extents is None:
        return Expression(Variable(operand.name, "f32"), ())
    tile = _tile(operand.name, operand.dtype.token, operand.shape(sizes))
    return expressions.cast(tile, WIDENED[operand.dtype.token])


def _check_leaves(value: Expression, known: set[str]) -> None:
    """Refuse what no block of D has: tiles and indices of a kernel, and reductions.

    Raises:
        LayoutError: the first such leaf is named.
    """
    for leaf in expressions.leaves(value.node):
        if isinstance(leaf, Reduction):
            raise LayoutError(
                f"matmul: an epilogue computes element by element; {leaf} would join elements of "
                "other tiles of the result"
            )
        name = leaf.region.buffer.name if isinstance(leaf, Tile) else getattr(leaf, "value", None)
        if isinstance(leaf, (Tile, Variable)) and name not in known:
            raise LayoutError(
                f"matmul: {leaf} is no operand of the epilogue; give it by name, as a keyword"
            )


@lru_cache
def scaled(added: bool, out: str | DType) -> Fused:
    """Return the epilogue of ``alpha·A·B``, or of ``alpha·A·B + beta·c``, whose c is of D's type.

    >>> print(scaled(False, "float32").text)
    multiply.f32(acc.f32,alpha.f32)
    """
    f32 = dtypes.get("float32")
    factors = Given("alpha", f32), Given("beta", f32)
    if not added:
        return Fused.of(lambda acc, alpha: acc * alpha, factors[:1], out)
    return Fused.of(
        lambda acc, alpha, beta, c: expressions.fma(c, beta, acc * alpha),
        (*factors, Given("c", dtypes.get(out), "MN")),
        out,
    )


def replaced(node: Node, values: Mapping[str, Expression], begins: Sequence[Any]) -> Node:
    """Return a tree with tiles and variables replaced by name, at a place in D.

    Args:
        node: of a :class:`Fused`.
        values: by name.
        begins: the row and the column where the tile begins, which positions count from.
    """

    def change(leaf: Node) -> Node:
        if isinstance(leaf, Tile):
            return values[leaf.region.buffer.name].node
        if isinstance(leaf, Variable):
            return values[str(leaf.value)].node
        if isinstance(leaf, expressions.Position):
            return expressions.Position(leaf.axis, leaf.begin + as_index(begins[leaf.axis]))
        return leaf

    return expressions.mapped(node, change)
