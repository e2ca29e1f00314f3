"""TVMScript: the spellings in which TVM prints and reads TIRx layouts.

TVM 0.27 prints ``T.TileLayout(T.S[(8, 2):(4 @ Axis.laneid, 1)])``; its TIRx pre-release 0.1 prints
``T.TileLayout.from_iters(shard=[T.Iter(8, 4, "laneid"), …], replica=[])``. Both are written here
letter by letter, and both are read, as is the older ``Tx.ComposeLayout(Tx.SwizzleLayout(…), …)``.
Text is walked as a syntax tree and never evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from layoutalg.algebra.axis import Axis, Term, m
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.interop.expressions import Reader, last_name, size_text
from layoutalg.interop.registry import Notation, register
from layoutalg.layouts.spec import LayoutSpec, R, S
from layoutalg.layouts.swizzle import ComposeLayout, SwizzleLayout
from layoutalg.layouts.tile_layout import TileLayout
from layoutalg.sizes.size import Size

Readable = TileLayout | ComposeLayout | SwizzleLayout
SPELLINGS = ("spec", "iters")


def to_tvmscript(layout: LayoutLike, spelling: str = "spec", prefix: str = "T") -> str:
    """Print a layout as TVM does.

    Args:
        layout: a layout; its axes must be TVM's.
        spelling: "spec" as TVM 0.27, "iters" as the TIRx pre-release 0.1.
        prefix: the name under which the script imports TIRx.

    Raises:
        LayoutError: the spelling is unknown, a size has no text, or a bare SwizzleLayout is given,
            which TVM has no longer.

    >>> from layoutalg import R, S, laneid, warpid
    >>> L = TileLayout(S[(8, 2):(4 @ laneid, 1)] + R[2 : 4 @ warpid] + 5 @ warpid + 3)
    >>> print(to_tvmscript(L))
    T.TileLayout(T.S[(8, 2):(4 @ Axis.laneid, 1)] + T.R[2:4 @ Axis.warpid] + (3 + 5 @ Axis.warpid))
    >>> print(to_tvmscript(TileLayout(S[8 : 4 @ laneid]), "iters"))
    T.TileLayout.from_iters(shard=[T.Iter(8, 4, "laneid")], replica=[])
    >>> from_tvmscript(to_tvmscript(L)) == from_tvmscript(to_tvmscript(L, "iters", "Tx")) == L
    True

    Source: printed text of apache-tvm 0.27.0.post1 and apache-tvm-tirx 0.1.0a4.
    """
    layout = as_layout(layout, "to_tvmscript")
    if spelling not in SPELLINGS:
        raise LayoutError(
            f"to_tvmscript: the spelling is {' or '.join(SPELLINGS)}; got {spelling!r}"
        )
    if isinstance(layout, SwizzleLayout):
        raise LayoutError(
            f"to_tvmscript: TVM has no bare swizzle; compose it with a tile, such as "
            f"ComposeLayout({layout.per_element}, {layout.swizzle_len}, {layout.atom_len}, "
            f"TileLayout(S[{layout.size}]))"
        )
    if isinstance(layout, ComposeLayout):
        numbers = f"{layout.per_element}, {layout.swizzle_len}, {layout.atom_len}"
        inner = "" if layout.swizzle_inner else ", swizzle_inner=False"
        tile = to_tvmscript(layout.tile_layout, spelling, prefix)
        return f"{prefix}.ComposeLayout({numbers}, {tile}{inner})"
    offset = sorted(layout.offset.items(), key=lambda item: item[0].name)
    if spelling == "iters" or not (layout.shard or layout.replica):
        return _as_iters(layout, offset, spelling, prefix)
    terms = [
        f"{prefix}.{letter}[{_bracket(iters)}]"
        for letter, iters in (("S", layout.shard), ("R", layout.replica))
        if iters
    ]
    if offset:
        total = " + ".join(_term(value, axis) for axis, value in offset)
        terms.append(f"({total})" if len(offset) > 1 else total)
    return f"{prefix}.TileLayout({' + '.join(terms)})"


def _bracket(iters: Iters) -> str:
    extents = [size_text(it.extent, "to_tvmscript") for it in iters]
    strides = [_term(it.stride, it.axis) for it in iters]
    if len(iters) == 1:
        return f"{extents[0]}:{strides[0]}"
    return f"({', '.join(extents)}):({', '.join(strides)})"


def _term(value: Size, axis: Axis) -> str:
    number = size_text(value, "to_tvmscript")
    if axis is m:
        return number
    return f"{number if isinstance(value, int) else f'({number})'} @ Axis.{axis.name}"


def _as_iters(
    layout: TileLayout, offset: Sequence[tuple[Axis, Size]], spelling: str, prefix: str
) -> str:
    def listed(iters: Iters) -> str:
        each = [
            f"{prefix}.Iter({size_text(it.extent, 'to_tvmscript')}, "
            f'{size_text(it.stride, "to_tvmscript")}, "{it.axis.name}")'
            for it in iters
        ]
        return f"[{', '.join(each)}]"

    parts = []
    if spelling == "iters":
        parts = [f"shard={listed(layout.shard)}", f"replica={listed(layout.replica)}"]
    if offset:
        each = [f'"{axis.name}": {size_text(value, "to_tvmscript")}' for axis, value in offset]
        parts.append(f"offset={{{', '.join(each)}}}")
    return f"{prefix}.TileLayout.from_iters({', '.join(parts)})"


def from_tvmscript(text: str) -> Readable:
    """Read a layout from TVMScript, in any of the spellings, under any prefix.

    Names that are no axes are size symbols; TVM's casts, ``T.int64(8)``, are the number in them.

    Raises:
        LayoutError: the text is no layout; carets show the part that is wrong.

    >>> print(from_tvmscript("T.TileLayout(T.S[(8, 2):(4 @ Axis.laneid, 1)] + 3)"))
    S[(8,2):(4@laneid,1)] + 3
    >>> older = "Tx.ComposeLayout(Tx.SwizzleLayout(3, 3, 3), Tx.TileLayout(Tx.S[8, 64]))"
    >>> print(from_tvmscript(older))
    ComposeLayout(3, 3, 3, S[(8,64):(64,1)])
    >>> from_tvmscript("T.TileLayout(T.S[open('x'):1])")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: from_tvmscript: a size must be an integer expression of \
+ - * // % and powers
      T.TileLayout(T.S[open('x'):1])
                       ^^^^^^^^^
    """
    reader = _ScriptReader(text, "from_tvmscript")
    try:
        return reader.layout(reader.tree)
    except RecursionError:
        raise LayoutError("from_tvmscript: the expression nests too deeply") from None


class _ScriptReader(Reader):
    """Reads layouts; one method per thing that TVM can print."""

    def layout(self, node: ast.AST) -> Readable:
        name = last_name(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name == "TileLayout":
            return TileLayout(self.spec(self.arguments(node, ("spec",), 1)["spec"]))
        if isinstance(node, ast.Call) and name == "from_iters":
            return self.from_iters(node)
        if isinstance(node, ast.Call) and name == "SwizzleLayout":
            return self.swizzle(node)[0]
        if isinstance(node, ast.Call) and name == "ComposeLayout":
            return self.compose(node)
        if isinstance(node, (ast.Subscript, ast.BinOp)):
            return TileLayout(self.spec(node))
        self.refuse(
            node,
            "expected TileLayout(...), TileLayout.from_iters(...), ComposeLayout(...) or S[...]",
        )

    def arguments(
        self, node: ast.Call, names: tuple[str, ...], required: int
    ) -> dict[str, ast.expr]:
        """Return the arguments by name; the first ``required`` of the names must be there."""
        found = dict(zip(names, node.args, strict=False))
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg in found:
                self.refuse(keyword.value, "every argument must be given once, by its name")
            found[keyword.arg] = keyword.value
        known = set(found) <= set(names) and len(node.args) <= len(names)
        if not known or not set(names[:required]) <= set(found):
            self.refuse(node, f"{last_name(node.func)} takes {', '.join(names)}")
        return found

    def swizzle(self, node: ast.Call, *more: str) -> tuple[SwizzleLayout, dict[str, ast.expr]]:
        """Read the numbers of a swizzle, and ``more`` arguments before swizzle_inner."""
        names = ("per_element", "swizzle_len", "atom_len", *more)
        found = self.arguments(node, (*names, "swizzle_inner"), len(names))
        lengths = [self.integer(found[name]) for name in names[:3]]
        inner = self.boolean(found["swizzle_inner"]) if "swizzle_inner" in found else True
        return SwizzleLayout(lengths[0], lengths[1], lengths[2], inner), found

    def compose(self, node: ast.Call) -> ComposeLayout:
        if len(node.args) == 2 and not node.keywords:
            swizzle = self.layout(node.args[0])
            if not isinstance(swizzle, SwizzleLayout):
                self.refuse(node.args[0], "the first of two arguments must be a SwizzleLayout")
            tile = self.tile(node.args[1])
        else:
            swizzle, found = self.swizzle(node, "tile_layout")
            tile = self.tile(found["tile_layout"])
        return swizzle.over(tile)

    def tile(self, node: ast.AST) -> TileLayout:
        layout = self.layout(node)
        if not isinstance(layout, TileLayout):
            self.refuse(node, "a swizzle is composed with a TileLayout")
        return layout

    def integer(self, node: ast.AST) -> int:
        size = self.size(node)
        if not isinstance(size, int):
            self.refuse(node, "a swizzle takes numbers")
        return size

    def boolean(self, node: ast.AST) -> bool:
        if not (isinstance(node, ast.Constant) and isinstance(node.value, bool)):
            self.refuse(node, "swizzle_inner is True or False")
        return node.value

    def from_iters(self, node: ast.Call) -> TileLayout:
        given = self.arguments(node, ("shard", "replica", "offset"), 0)
        offset: dict[Axis | str, Size] = {}
        if "offset" in given:
            table = given["offset"]
            if not isinstance(table, ast.Dict):
                self.refuse(table, 'offset must be a dict such as {"laneid": 3}')
            for key, value in zip(table.keys, table.values, strict=True):
                if key is None:
                    self.refuse(table, "offset must name its axes")
                axis = self.axis(key)
                if axis in offset:
                    self.refuse(key, "an axis must have one offset")
                offset[axis] = self.size(value)
        return TileLayout.from_iters(
            self.iters(given["shard"]) if "shard" in given else (),
            self.iters(given["replica"]) if "replica" in given else (),
            offset,
        )

    def iters(self, node: ast.AST) -> list[Iter]:
        if not isinstance(node, (ast.List, ast.Tuple)):
            self.refuse(node, "iters come as a list")
        found = []
        for entry in node.elts:
            if not (isinstance(entry, ast.Call) and last_name(entry.func) == "Iter"):
                self.refuse(entry, 'expected Iter(extent, stride, "axis")')
            part = self.arguments(entry, ("extent", "stride", "axis"), 3)
            axis = self.axis(part["axis"])
            found.append(Iter(self.size(part["extent"]), self.size(part["stride"]), axis))
        return found

    def spec(self, node: ast.AST) -> LayoutSpec:
        """Read ``S[...] + R[...] + offsets``, in any order around the plus."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.spec(node.left), self.spec(node.right)
            try:
                return left + right
            except LayoutError as error:
                self.refuse(node, str(error))
        if isinstance(node, ast.Subscript):
            return self.bracket(node)
        return LayoutSpec() + self.term(node)

    def bracket(self, node: ast.Subscript) -> LayoutSpec:
        letter = last_name(node.value)
        if letter not in ("S", "R"):
            self.refuse(node.value, "expected S[...] or R[...]")
        bracket = S if letter == "S" else R
        if isinstance(node.slice, ast.Slice):
            if node.slice.lower is None or node.slice.upper is None or node.slice.step is not None:
                self.refuse(node, f"{letter}[...] takes extents : strides")
            sizes = tuple(map(self.size, self.entries(node.slice.lower)))
            strides = tuple(map(self.stride, self.entries(node.slice.upper)))
            try:
                return bracket[sizes:strides]
            except LayoutError as error:
                self.refuse(node, str(error))
        return bracket[tuple(map(self.size, self.entries(node.slice)))]

    def entries(self, node: ast.expr) -> Sequence[ast.expr]:
        return node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]

    def stride(self, node: ast.AST) -> Any:
        """Read ``n``, ``n @ axis``, an axis, or a pair ``(n, "axis")``."""
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            return Term(self.size(node.elts[0]), self.axis(node.elts[1]))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return Term(1, self.axis(node))
        if isinstance(node, (ast.Attribute, ast.Name)) and last_name(node) in Axis.registry:
            return Term(1, self.axis(node))
        return self.term(node)

    def term(self, node: ast.AST) -> Term:
        """Read ``n @ axis``, or ``n`` on axis m."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return Term(self.size(node.left), self.axis(node.right))
        return Term(self.size(node), m)

    def axis(self, node: ast.AST) -> Axis:
        """Read ``laneid``, ``Axis.laneid``, ``"laneid"`` or ``Axis.get("laneid")``."""
        if isinstance(node, ast.Call) and last_name(node.func) == "get" and len(node.args) == 1:
            node = node.args[0]
        name = last_name(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
        if not name:
            self.refuse(node, "expected an axis")
        try:
            return Axis.get(name)
        except LayoutError as error:
            self.refuse(node, str(error))


register(
    Notation(
        "tvm",
        "T.TileLayout(T.S[8:4 @ Axis.laneid])",
        lambda text, _: (from_tvmscript(text), None),
        lambda layout, _: to_tvmscript(layout),
        r"(\w+\.)*(TileLayout|ComposeLayout|SwizzleLayout|from_iters)\b|\w+\.S\[",
    )
)
