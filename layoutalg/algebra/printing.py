"""The printers: layouts and their maps as text that parses back, and as LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from layoutalg.algebra.axis import Axis, m
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.sizes.size import Size, is_int


def stride_text(it: Iter) -> str:
    """Print a stride: ``4@laneid``; the axis m goes without saying.

    >>> stride_text(Iter(8, 4, "laneid")), stride_text(Iter(2, 1))
    ('4@laneid', '1')
    """
    if it.axis is m:
        return str(it.stride)
    if is_int(it.stride) and it.stride >= 0:
        return f"{it.stride}@{it.axis.name}"
    return f"({it.stride})@{it.axis.name}"


def _bracket(letter: str, iters: Iters) -> str:
    if not iters:
        return f"{letter}[()]"
    sizes = ",".join(str(it.extent) for it in iters)
    strides = ",".join(map(stride_text, iters))
    if len(iters) == 1:
        return f"{letter}[{sizes}:{strides}]"
    return f"{letter}[({sizes}):({strides})]"


def text(shard: Iters, replica: Iters, offset: Mapping[Axis, Size]) -> str:
    """Print a layout.

    >>> text((Iter(8, 4, "laneid"), Iter(2, 1)), (Iter(2, 4, "warpid"),), {m: 3})
    'S[(8,2):(4@laneid,1)] + R[2:4@warpid] + 3'
    """
    terms = [_bracket("S", shard)]
    if replica:
        terms.append(_bracket("R", replica))
    for axis, value in offset.items():
        number = str(value) if is_int(value) and value >= 0 else f"({value})"
        terms.append(number if axis is m else f"{number}@{axis.name}")
    return " + ".join(terms)


def latex_size(size: Any) -> str:
    r"""Print a size or an expression as LaTeX; symbols named like axes are upright.

    >>> from layoutalg.sizes.symbolic import FloorDiv, nonnegative
    >>> print(latex_size(7), latex_size(4 * FloorDiv(nonnegative("laneid"), 8)))
    7 4 \left\lfloor \frac{\mathrm{laneid}}{8} \right\rfloor
    """
    if is_int(size):
        return str(size)
    from layoutalg.sizes import symbolic

    axes = {s: latex_axis(s.name) for s in size.free_symbols if s.name in Axis.registry}
    return symbolic.latex(size, axes)


def latex_axis(axis: Axis | str) -> str:
    r"""Print an axis name upright.

    >>> print(latex_axis("tid_in_wg"))
    \mathrm{tid\_in\_wg}
    """
    name = str(axis).replace("_", r"\_")
    return rf"\mathrm{{{name}}}"


def _latex_term(value: Size, axis: Axis) -> str:
    number = latex_size(value)
    if not is_int(value):
        number = rf"\left({number}\right)"
    return number if axis is m else rf"{number}@{latex_axis(axis)}"


def _latex_bracket(letter: str, iters: Iters) -> str:
    if not iters:
        return rf"{letter}[\,]"
    rows = [
        [latex_size(it.extent) for it in iters],
        [_latex_term(it.stride, it.axis) for it in iters],
    ]
    body = r" \\ ".join(" & ".join(row) for row in rows)
    columns = "c" * len(iters)
    return rf"{letter}\left[\begin{{array}}{{{columns}}}{body}\end{{array}}\right]"


def latex(shard: Iters, replica: Iters, offset: Mapping[Axis, Size]) -> str:
    r"""Print a layout as mathematics: extents over strides.

    >>> print(latex((Iter(8, 4, "laneid"),), (), {}))
    S\left[\begin{array}{c}8 \\ 4@\mathrm{laneid}\end{array}\right]
    """
    terms = [_latex_bracket("S", shard)]
    if replica:
        terms.append(_latex_bracket("R", replica))
    terms.extend(_latex_term(value, axis) for axis, value in offset.items())
    return " + ".join(terms)


def latex_map(left: Sequence[str], right: Mapping[str, Any]) -> str:
    r"""Print a map of coordinates as mathematics.

    >>> print(latex_map(["i"], {"laneid": 4}))
    (i) \mapsto \left(\mathrm{laneid} = 4\right)
    """
    values = r",\; ".join(f"{latex_axis(name)} = {latex_size(v)}" for name, v in right.items())
    return rf"({', '.join(left)}) \mapsto \left({values}\right)"
