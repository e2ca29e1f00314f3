"""Sizes as Python text: written so that they read back, and read from a syntax tree.

Nothing is evaluated: the text is parsed by :mod:`ast`, and the tree is walked here.
"""

from __future__ import annotations

import ast
from typing import Any, NoReturn

from layoutalg.errors import LayoutError, pointed
from layoutalg.layouts.parser import named_size, operate
from layoutalg.sizes.size import Size, equal

_CASTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
}  # fmt: skip


class Reader:
    """Reads one expression; every error points at the part that it is about."""

    def __init__(self, source: str, what: str) -> None:
        """Parse the text.

        Raises:
            LayoutError: it is no Python expression.
        """
        if not isinstance(source, str):
            raise LayoutError(f"{what}: needs text; got {source!r}")
        self.what = what
        self.source = source.strip()
        try:
            self.tree = ast.parse(self.source, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise LayoutError(f"{what}: {source!r} is no expression: {reason}") from None

    def refuse(self, node: ast.AST, reason: str) -> NoReturn:
        """Raise with carets under the part, in the line that holds it."""
        part = ast.get_source_segment(self.source, node) or ""
        lines = self.source.splitlines(keepends=True)
        line = int(getattr(node, "lineno", 1)) - 1
        column = len(lines[line].encode()[: getattr(node, "col_offset", 0)].decode())
        start = len("".join(lines[:line])) + column
        raise LayoutError(f"{self.what}: {reason}\n{pointed(self.source, start, len(part))}")

    def size(self, node: ast.AST) -> Size:
        """Read an integer expression; names are size symbols.

        Takes + - * // % and powers, and the casts that TVM prints, ``T.int64(8)``.

        Raises:
            LayoutError: anything else.
        """
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name):
            try:
                return named_size(node.id)
            except LayoutError as error:
                self.refuse(node, str(error))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner: Any = self.size(node.operand)
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Call) and not node.keywords:
            name = last_name(node.func)
            if name in _CASTS and len(node.args) == 1:
                return self.size(node.args[0])
            if name == "Cast" and len(node.args) == 2:
                return self.size(node.args[1])
        self.refuse(node, "a size must be an integer expression of + - * // % and powers")

    def _binary(self, node: ast.BinOp) -> Size:
        sign = _SIGNS.get(type(node.op))
        if sign is None:
            self.refuse(node, "a size must be an integer expression of + - * // % and powers")
        left, right = self.size(node.left), self.size(node.right)
        try:
            return operate(sign, left, right)
        except LayoutError as error:
            self.refuse(node, str(error))


def last_name(node: ast.AST) -> str:
    """Return ``c`` of the dotted name ``a.b.c``; "" where the node is no dotted name.

    >>> last_name(ast.parse("T.TileLayout", mode="eval").body)
    'TileLayout'
    """
    base = node
    while isinstance(base, ast.Attribute):
        base = base.value
    if not isinstance(base, ast.Name):
        return ""
    return node.attr if isinstance(node, ast.Attribute) else base.id


def read_size(text: str, what: str) -> Size:
    """Read a size from text.

    Raises:
        LayoutError: the text is no integer expression.

    >>> read_size("16*Mt + n % 4", "json")
    16*Mt + (n mod 4)
    """
    reader = Reader(text, what)
    try:
        return reader.size(reader.tree)
    except RecursionError:
        raise LayoutError(f"{what}: the expression nests too deeply") from None


def size_text(size: Size, what: str) -> str:
    """Write a size so that :func:`read_size` gives it back.

    Raises:
        LayoutError: it does not: a symbol is no positive integer, or another function occurs.

    >>> size_text(read_size("4*(n % 8)", "json"), "json")
    '4*(n % 8)'
    """
    if isinstance(size, int):
        return str(size)
    text = str(size).replace(" mod ", " % ")
    try:
        same = equal(read_size(text, what), size)
    except LayoutError:
        same = None
    if same is not True:
        raise LayoutError(
            f"{what}: {size} has no text that reads back: it must be made of positive integer "
            "symbols under + - * // % and powers"
        )
    return text
