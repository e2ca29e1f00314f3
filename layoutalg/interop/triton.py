"""Triton linear layouts: bases of register, lane, warp and block, to and from ``TileLayout``.

A linear layout maps (register, lane, warp, block) to an element over F2: bit i of the lane XORs
the i-th basis of ``lane`` into the coordinates of the element. It is a ``TileLayout`` exactly where
each basis sets one bit of one dimension, or none, and no bit is set twice; otherwise it is a
swizzle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from layoutalg.algebra.axis import Axis, cbx, laneid, m, warpid
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.interop.registry import Notation, Options, plain, register
from layoutalg.interop.strided_digits import StridedDigit, chain, digits_of, layout_of
from layoutalg.layouts.tile_layout import TileLayout
from layoutalg.sizes.size import as_shape, as_size

AXES: Mapping[str, Axis] = MappingProxyType(
    {"register": m, "lane": laneid, "warp": warpid, "block": cbx}
)
Basis = tuple[int, ...]


@dataclass(frozen=True)
class LinearLayout:
    """Bases per input dimension, and the shape of the tile; every extent is a power of two.

    >>> L = LinearLayout.parse("#ttg.linear<{register = [[0, 1]], lane = [[0, 2], [1, 0]]}>")
    >>> print(L.shape, L.apply(register=1, lane=2))
    (2, 4) (1, 1)

    Source: Triton, ``LinearLayout``; arXiv 2505.23819.
    """

    bases: tuple[tuple[str, tuple[Basis, ...]], ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        """Convert to tuples of ints, then check.

        Raises:
            LayoutError: an extent is no power of two, a basis has another rank, leaves the shape or
                is no integer, or an input dimension is named twice.
        """
        shape = tuple(as_shape(self.shape, "triton"))
        for extent in shape:
            if not isinstance(extent, int) or extent & (extent - 1):
                raise LayoutError(
                    f"triton: the extents of a linear layout are powers of two; got {shape}"
                )
        bases = []
        for name, rows in self.bases:
            converted = [tuple(as_size(c, f"triton: {name} basis") for c in row) for row in rows]
            for index, row in enumerate(converted):
                fits = len(row) == len(shape) and all(
                    isinstance(c, int) and 0 <= c < extent
                    for c, extent in zip(row, shape, strict=True)
                )
                if not fits:
                    raise LayoutError(
                        f"triton: a basis is a coordinate inside {shape}; got {row} for "
                        f"{name}[{index}]"
                    )
            bases.append((str(name), tuple(converted)))
        if len(dict(bases)) != len(bases):
            raise LayoutError(f"triton: an input dimension is named twice: {[n for n, _ in bases]}")
        object.__setattr__(self, "bases", tuple(bases))
        object.__setattr__(self, "shape", shape)

    @classmethod
    def of(cls, bases: Mapping[str, Sequence[Sequence[int]]], shape: Sequence[int]) -> LinearLayout:
        """Build from lists, such as those of Gluon's ``DistributedLinearLayout``.

        >>> print(LinearLayout.of({"register": [[1, 0]], "lane": [[0, 1]]}, (2, 2)))
        #ttg.linear<{register = [[1, 0]], lane = [[0, 1]]}>
        """
        rows = tuple((name, tuple(map(tuple, each))) for name, each in bases.items())
        return cls(rows, tuple(shape))

    @classmethod
    def parse(cls, text: str, shape: Sequence[int] | None = None) -> LinearLayout:
        """Read ``#ttg.linear<{register = [[0, 1], [8, 0]], lane = […], …}>``.

        Triton's printed form is read too: lines ``- lane=1 -> (0, 2)``, one per basis.

        Args:
            text: the attribute from an IR dump, or the printed form.
            shape: the extents; without it, those of the printed form, or else the smallest that
                hold the bases.

        Raises:
            LayoutError: the text is none of these.

        >>> print(LinearLayout.parse("- lane=1 -> (0, 1) - warp is a size 1 dimension"))
        #ttg.linear<{lane = [[0, 1]], warp = []}>
        """
        bases = _read_listing(text) if "->" in text else _read_attribute(text)
        if shape is None:
            shape = [int(size) for size in re.findall(r"\w+ \(size (\d+)\)", text)] or None
        if shape is None:
            ranks = {len(row) for rows in bases.values() for row in rows}
            if len(ranks) != 1:
                raise LayoutError(
                    f"triton: the bases must have one rank, or the shape be given; got ranks "
                    f"{sorted(ranks)} in {text!r}"
                )
            every = [row for rows in bases.values() for row in rows]
            shape = [1 << max(row[d] for row in every).bit_length() for d in range(ranks.pop())]
        return cls.of(bases, shape)

    def apply(self, **place: Any) -> tuple[Any, ...]:
        """Return the coordinate of the element at some indices; those that are not given are 0.

        Args:
            place: an index, an int or an integer array (elementwise), per input dimension.

        Raises:
            LayoutError: an input dimension is unknown or out of range.
        """
        coord: list[Any] = [0] * len(self.shape)
        rows = dict(self.bases)
        for name, index in place.items():
            ends = (index.min(), index.max()) if getattr(index, "size", 0) else (index,)
            if name not in rows or not all(0 <= end < 1 << len(rows[name]) for end in ends):
                raise LayoutError(
                    f"triton: {name}={index} is no place of {self}; extents are "
                    f"{ {n: 1 << len(r) for n, r in self.bases} }"
                )
            for bit, row in enumerate(rows[name]):
                chosen = index >> bit & 1
                coord = [c ^ chosen * step for c, step in zip(coord, row, strict=True)]
        return tuple(coord)

    def __str__(self) -> str:
        """Return the attribute as Triton's IR prints it."""
        parts = [f"{name} = {[list(row) for row in rows]}" for name, rows in self.bases]
        return f"#ttg.linear<{{{', '.join(parts)}}}>"


def _read_listing(text: str) -> dict[str, list[Basis]]:
    """Read ``- lane=1 -> (0, 2)`` lines; bit i of a dimension is the line of ``2**i``."""
    bases: dict[str, list[Basis]] = {}
    token = re.compile(r"(\w+)=(\d+) -> \(([\d, ]*)\)|(\w+) is a size 1 dimension")
    for found in token.finditer(text):
        if found[4]:
            bases[found[4]] = []
            continue
        rows = bases.setdefault(found[1], [])
        if int(found[2]) != 1 << len(rows):
            raise LayoutError(
                f"triton: the bases of {found[1]} must come as 1, 2, 4, …; got {found[2]} after "
                f"{len(rows)} of them"
            )
        rows.append(tuple(int(c) for c in found[3].split(",")))
    return bases


_ROW = r"\[\d+(?:,\d+)*\]"
_ENTRY = rf"(\w+)=\[((?:{_ROW}(?:,{_ROW})*)?)\]"
_ATTRIBUTE = re.compile(rf"(?:#\w+\.linear<)?\{{({_ENTRY}(?:,{_ENTRY})*)\}}>?")


def _read_attribute(text: str) -> dict[str, list[Basis]]:
    """Read ``#ttg.linear<{register = [[0, 1], [8, 0]], lane = […]}>``."""
    found = _ATTRIBUTE.fullmatch(re.sub(r"\s+", "", text))
    if found is None:
        raise LayoutError(
            f"triton: a linear layout is written #ttg.linear<{{register = [[0, 1]], lane = …}}>; "
            f"got {text!r}"
        )
    bases: dict[str, list[Basis]] = {}
    for name, rows in re.findall(_ENTRY, found[1]):
        if name in bases:
            raise LayoutError(f"triton: {name} is given twice in {text!r}")
        each = re.findall(r"\[([\d,]*)\]", rows)
        bases[name] = [tuple(int(c) for c in row.split(",")) for row in each]
    return bases


def from_triton(linear: LinearLayout, axes: Mapping[str, Axis] = AXES) -> TileLayout:
    """Return the layout whose element lies where the linear layout leads there.

    A basis that sets bit b of dimension d is the digit ``2 : 2**i`` on its axis; a zero basis is a
    replica. The result is over ``linear.shape``.

    Args:
        linear: the bases and the shape.
        axes: the axis of each input dimension.

    Raises:
        LayoutError: the bases swizzle (a basis sets two bits, or two bases one bit), or leave a bit
            of the tile unset, or an input dimension has no axis.

    >>> L = LinearLayout.parse(
    ...     "#ttg.linear<{register = [[0, 1], [8, 0]],"
    ...     " lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [[0, 0]], block = []}>")
    >>> print(from_triton(L))
    S[(2,8,4,2):(2,4@laneid,1@laneid,1)] + R[2:1@warpid]
    >>> from_triton(LinearLayout.of({"lane": [[0, 1], [0, 3]]}, (1, 4)))
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: from_triton: lane[1] = (0, 3) sets 2 bits: the bases swizzle, \
which no digits of a TileLayout say
    """
    digits: list[StridedDigit] = []
    owner: dict[tuple[int, int], str] = {}
    for name, rows in linear.bases:
        if name not in axes:
            raise LayoutError(
                f"from_triton: no axis is given for {name!r}; known are {', '.join(axes)}"
            )
        for bit, row in enumerate(rows):
            what = f"{name}[{bit}]"
            found = [(d, b) for d, c in enumerate(row) for b in range(c.bit_length()) if c >> b & 1]
            if len(found) > 1:
                raise LayoutError(
                    f"from_triton: {what} = {row} sets {len(found)} bits: the bases swizzle, which "
                    "no digits of a TileLayout say"
                )
            dim = found[0][0] if found else None
            if found and found[0] in owner:
                raise LayoutError(
                    f"from_triton: {owner[found[0]]} and {what} both set bit {found[0][1]} of "
                    f"dimension {dim}: the bases swizzle, which no digits of a TileLayout say"
                )
            owner.update(dict.fromkeys(found, what))
            stride = 0 if dim is None else row[dim]
            digits.append(StridedDigit(2, dim, stride, axes[name], 1 << bit, what))
    return layout_of(digits, linear.shape, "from_triton")


def to_triton(
    layout: LayoutLike, shape: Sequence[int], axes: Mapping[str, Axis] = AXES
) -> LinearLayout:
    """Return the linear layout from (register, lane, warp, block) to the element held there.

    ``from_triton(to_triton(L, shape))`` is the same map as L.

    Args:
        layout: a layout on the axes given, a bijection apart from replicas.
        shape: the logical extents, powers of two.
        axes: the axis of each input dimension, in the order in which they are listed.

    Raises:
        LayoutError: an extent is no power of two, an axis has no input dimension, or an index holds
            no element or two.
        Undecided: a size is symbolic.

    >>> from layoutalg import R, S, laneid, warpid
    >>> print(to_triton(TileLayout(S[(2, 4) : (1, 1 @ laneid)] + R[2 : 1 @ warpid]), (2, 4)))
    #ttg.linear<{register = [[1, 0]], lane = [[0, 1], [0, 2]], warp = [[0, 0]], block = []}>
    """
    layout, extents = as_layout(layout, "to_triton"), tuple(as_shape(shape, "to_triton"))
    digits = digits_of(layout, extents, "to_triton")
    unknown = sorted({digit.axis.name for digit in digits} - {axis.name for axis in axes.values()})
    if unknown:
        raise LayoutError(
            f"to_triton: {layout} uses {', '.join(unknown)}; the axes given are "
            f"{', '.join(f'{name} = {axis}' for name, axis in axes.items())}"
        )
    bases: list[tuple[str, tuple[Basis, ...]]] = []
    for name, axis in axes.items():
        here = sorted((d for d in digits if d.axis is axis), key=lambda digit: digit.place)
        chain(((d.extent, d.place, d.name) for d in here), f"to_triton: {axis} of {layout}")
        rows: list[Basis] = []
        for digit in here:
            if digit.extent & (digit.extent - 1):
                raise LayoutError(
                    f"to_triton: every extent must be a power of two; {layout} cut by "
                    f"{extents} has {digit.name}"
                )
            for bit in range(digit.extent.bit_length() - 1):
                row: list[Any] = [0] * len(extents)
                if digit.dim is not None:
                    row[digit.dim] = digit.stride << bit
                rows.append(tuple(row))
        bases.append((name, tuple(rows)))
    return LinearLayout(tuple(bases), extents)


def _read(text: str, options: Options) -> tuple[TileLayout, tuple[int, ...]]:
    linear = LinearLayout.parse(text, options.shape)
    return from_triton(linear), linear.shape


register(
    Notation(
        "triton",
        "#ttg.linear<{register = [[1]], lane = [[2], [4]], warp = [], block = []}>",
        _read,
        lambda layout, options: str(to_triton(plain(layout, "triton"), options.shape or ())),
        r"#|\{\s*\w+\s*=|[^{\"]*->|[^{\"]*is a size 1 dimension",
        over_shape=True,
    )
)
