r"""All notations behind two functions: read a layout from text, write it in another notation.

===========  ===================================================================================
``text``     ``S[(8,2):(4@laneid,1)]``, ``ComposeLayout(3, 3, 3, S[512:1])``
``cute``     ``((4,8),2):((2,16),1)``, ``Sw<3,3,3> o 0 o (8,64):(64,1)``: offsets in memory
``tv``       the same notation for a thread-value layout: (thread, value) to element
``triton``   ``#ttg.linear<{register = [[0, 1]], lane = …}>``, or the lines that Triton prints
``tvm``      ``T.TileLayout(T.S[8:4 @ Axis.laneid])`` and TVM's other spellings
``json``     ``{"layoutalg": 1, "shard": [[8, 4, "laneid"]]}``
``latex``    ``S\left[\begin{array}{c}8 \\ 4@\mathrm{laneid}\end{array}\right]``
===========  ===================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from layoutalg.errors import LayoutError
from layoutalg.interop.cute import CuteLayout
from layoutalg.interop.cute_maps import from_cute, from_tv, to_cute, to_tv
from layoutalg.interop.cute_swizzle import CuteComposed, parse_cute
from layoutalg.interop.json_form import from_json, to_json
from layoutalg.interop.latex_form import from_latex, to_latex
from layoutalg.interop.triton import LinearLayout, from_triton, to_triton
from layoutalg.interop.tvmscript import from_tvmscript, to_tvmscript
from layoutalg.layouts.parser import parse
from layoutalg.layouts.swizzle import ComposeLayout, SwizzleLayout
from layoutalg.layouts.tile_layout import TileLayout

NOTATIONS = ("text", "cute", "tv", "triton", "tvm", "json", "latex")

# What only one notation has, in the order in which it is looked for.
_MARKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("json", re.compile(r'\{\s*(["}]|\w+\s*:|$)')),
    ("triton", re.compile(r"#|\{\s*\w+\s*=|.*->|.*is a size 1 dimension", re.DOTALL)),
    ("latex", re.compile(r"\$|.*\\", re.DOTALL)),
    ("tvm", re.compile(r"(\w+\.)*(TileLayout|ComposeLayout|SwizzleLayout|from_iters)\b|\w+\.S\[")),
    ("text", re.compile(r"(.*[\s+])?[SR]\[", re.DOTALL)),
    ("cute", re.compile(r"(Sw|S|Swizzle)<|[(_\d]")),
)


@dataclass(frozen=True)
class Reading:
    """A layout that was read, how it was written, and its logical shape where that is said."""

    layout: TileLayout | ComposeLayout
    notation: str
    shape: tuple[int, ...] | None = None


def notation_of(text: str) -> str:
    """Say in which notation a text is, by how it begins; a thread-value layout looks like ``cute``.

    >>> [notation_of(t) for t in ("S[8:1]", "(4,8):(8,1)", '{"layoutalg": 1}', "T.S[8:1]")]
    ['text', 'cute', 'json', 'tvm']
    """
    start = text.strip()
    return next((name for name, mark in _MARKS if mark.match(start)), "text")


def read(
    text: str,
    notation: str | None = None,
    shape: Sequence[int] | None = None,
    unit: str | None = None,
    bits: int | None = None,
) -> Reading:
    """Read a layout in any notation.

    Args:
        text: the layout.
        notation: one of :data:`NOTATIONS`; guessed unless given.
        shape: logical extents, needed for ``tv``, and by ``triton`` where its bases do not say it.
        unit: what a swizzle of ``cute`` counts, "elements" or "bytes".
        bits: of an element, for the unit "bytes".

    Raises:
        LayoutError: the notation is unknown, or the text is no layout in it.

    >>> found = read("((4,8),2):((2,16),1)")
    >>> print(found.layout, found.notation, found.shape)
    S[(8,4,2):(16,2,1)] cute (32, 2)
    >>> print(read("((4,8),(2,2)):((32,1),(16,8))", "tv", (16, 8)).layout)
    S[(2,8,4,2):(2,4@laneid,1@laneid,1)]
    """
    if not isinstance(text, str):
        raise LayoutError(f"read: needs text; got {text!r}")
    chosen = notation_of(text) if notation is None else _known(notation, "read")
    extents = None if shape is None else tuple(shape)
    layout: Any
    if chosen == "cute":
        parsed = parse_cute(text, unit, bits)
        inner = parsed.layout if isinstance(parsed, CuteComposed) else parsed
        return Reading(from_cute(parsed), chosen, inner.extents)
    if chosen == "tv":
        if extents is None:
            raise LayoutError("read: a thread-value layout does not say its shape: give it")
        return Reading(from_tv(CuteLayout.parse(text), extents), chosen, extents)
    if chosen == "triton":
        linear = LinearLayout.parse(text, extents)
        return Reading(from_triton(linear), chosen, linear.shape)
    readers: dict[str, Callable[[str], Any]] = {
        "text": _from_text, "tvm": from_tvmscript, "json": from_json, "latex": from_latex
    }  # fmt: skip
    layout = readers[chosen](text)
    if isinstance(layout, SwizzleLayout):
        raise LayoutError(
            f"read: a bare swizzle is no layout of a tile: compose it with one; got {layout}"
        )
    return Reading(layout, chosen)


def write(
    layout: TileLayout | ComposeLayout,
    notation: str,
    shape: Sequence[int] | None = None,
    unit: str = "elements",
    bits: int | None = None,
) -> str:
    """Write a layout in a notation; :func:`read` gives the same map back.

    Args:
        layout: a layout.
        notation: one of :data:`NOTATIONS`.
        shape: logical extents, needed for ``cute``, ``tv`` and ``triton``.
        unit: what a swizzle of ``cute`` is to count.
        bits: of an element, for the unit "bytes".

    Raises:
        LayoutError: the notation is unknown, needs a shape, or cannot say this layout.

    >>> D = parse("S[(2,8,4,2):(2,4@laneid,1@laneid,1)]")
    >>> write(D, "tv", (16, 8))
    '((4,8),(2,2)):((32,1),(16,8))'
    >>> write(D, "triton")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: write: triton says a layout over its shape: give the shape of \
S[(2,8,4,2):(2,4@laneid,1@laneid,1)]
    """
    _known(notation, "write")
    plain: dict[str, Callable[[Any], str]] = {
        "text": str, "tvm": to_tvmscript, "json": to_json, "latex": to_latex
    }  # fmt: skip
    if notation in plain:
        return plain[notation](layout)
    if shape is None:
        raise LayoutError(
            f"write: {notation} says a layout over its shape: give the shape of {layout}"
        )
    if notation == "cute":
        if isinstance(layout, ComposeLayout):
            return str(to_cute(layout, shape, unit, bits))
        return str(to_cute(layout, shape))
    if not isinstance(layout, TileLayout):
        raise LayoutError(f"write: {notation} cannot say a swizzle; got {layout}")
    return str(to_tv(layout, shape) if notation == "tv" else to_triton(layout, shape))


def _from_text(text: str) -> Any:
    """Read what ``str`` writes: a layout, or a swizzled one."""
    return (from_tvmscript if text.strip().startswith("ComposeLayout") else parse)(text)


def _known(notation: str, function: str) -> str:
    if notation not in NOTATIONS:
        raise LayoutError(
            f"{function}: the notation is one of {', '.join(NOTATIONS)}; got {notation!r}"
        )
    return notation
