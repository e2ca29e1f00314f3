r"""LaTeX: the form in which Jupyter shows a layout, read back.

``S\left[\begin{array}{cc}8 & 2 \\ 4@\mathrm{laneid} & 1\end{array}\right]``: extents over strides.
"""

from __future__ import annotations

import re

from layoutalg.algebra import printing
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.interop.registry import Notation, register
from layoutalg.layouts.parser import parse
from layoutalg.layouts.tile_layout import TileLayout

_BRACKET = re.compile(
    r"([SR])\\left\[\\begin\{array\}\{c+\}(.*?)\\end\{array\}\\right\]", re.DOTALL
)
_EMPTY = re.compile(r"([SR])\[\\,\]")
_UPRIGHT = re.compile(r"\\mathrm\{([^{}]*)\}")
_FLOOR = re.compile(r"\\left\\lfloor \\frac\{([^{}]*)\}\{([^{}]*)\} \\right\\rfloor")
_POWER = re.compile(r"\^\{(\d+)\}")
_TIMES = re.compile(r"(?<=[\w)]) +(?=[\w(])(?!mod\b)(?<!mod )")  # a blank between factors


def to_latex(layout: LayoutLike) -> str:
    r"""Write a layout as mathematics, without dollar signs.

    Raises:
        LayoutError: the layout is swizzled: an XOR has no such form.

    >>> print(to_latex(parse("S[8:4@laneid] + 3")))
    S\left[\begin{array}{c}8 \\ 4@\mathrm{laneid}\end{array}\right] + 3
    """
    layout = as_layout(layout, "to_latex")
    if not isinstance(layout, TileLayout):
        raise LayoutError(f"to_latex: a swizzled layout has no such form; got {layout}")
    return printing.latex(layout.shard, layout.replica, layout.offset)


def from_latex(text: str) -> TileLayout:
    r"""Read a layout from LaTeX: the inverse of :func:`to_latex`; dollar signs may enclose it.

    Raises:
        LayoutError: a bracket has no two rows of one length, or what is in it is no layout: then
            the message shows the text as it was understood, with a caret under the place.

    >>> print(from_latex(r"$S\left[\begin{array}{cc}8 & 2 \\ 4@\mathrm{laneid} & 1\end{array}"
    ...                  r"\right] + 2 k@\mathrm{warpid}$"))
    S[(8,2):(4@laneid,1)] + (2*k)@warpid
    """
    if not isinstance(text, str):
        raise LayoutError(f"from_latex: needs text; got {text!r}")
    plain = _EMPTY.sub(r"\1[()]", text.strip().strip("$"))
    plain = _UPRIGHT.sub(lambda found: found[1].replace(r"\_", "_"), plain)
    plain = _POWER.sub(r"**\1", _FLOOR.sub(r"((\1)//(\2))", plain))
    plain = plain.replace(r"\bmod", "mod").replace(r"\left(", "(").replace(r"\right)", ")")
    return parse(_BRACKET.sub(_bracket, _TIMES.sub("*", plain)))


def _bracket(found: re.Match[str]) -> str:
    """Write an array of two rows as ``S[(extents):(strides)]``."""
    rows = [[entry.strip() for entry in row.split("&")] for row in found[2].split(r"\\")]
    if len(rows) != 2 or len(rows[0]) != len(rows[1]):
        raise LayoutError(
            f"from_latex: an array has a row of extents and one of as many strides; got {found[0]}"
        )
    extents, strides = (",".join(row) for row in rows)
    return f"{found[1]}[({extents},):({strides},)]"


register(
    Notation(
        "latex",
        r"S\left[\begin{array}{c}8 \\ 4@\mathrm{laneid}\end{array}\right]",
        lambda text, _: (from_latex(text), None),
        lambda layout, _: to_latex(layout),
        r'\$|[^{#"]*\\',
    )
)
