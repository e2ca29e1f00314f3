"""CuTe layouts: nested ``shape:stride`` maps from coordinates to offsets, read and printed as text.

A CuTe layout is a function on nested tuples of ints: a coordinate goes to the sum of
``coordinate * stride`` over its leaves. A flat index is split over the leaves first leaf fastest,
the other way round than a ``TileLayout``. The algebra on these layouts is in
:mod:`layoutalg.interop.cute_algebra`, the maps to and from ``TileLayout`` in
:mod:`layoutalg.interop.cute_maps`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from layoutalg.errors import LayoutError, pointed
from layoutalg.sizes.size import as_size

Nested = int | tuple["Nested", ...]
Leaf = tuple[int, int]  # extent, stride


@dataclass(frozen=True)
class CuteLayout:
    """A layout ``shape:stride`` in CuTe's notation; modes are the entries of the outer tuple.

    The stride of an extent-1 leaf never matters and is kept as 0, so equality ignores it; a tuple
    around a single int is that int.

    >>> L = CuteLayout((4, (2, 2)), (2, (1, 8)))
    >>> print(L, L.size, L.cosize)
    (4,(2,2)):(2,(1,8)) 16 16
    >>> [L(i) for i in range(8)] == [L(i % 4, i // 4) for i in range(8)] == [0, 2, 4, 6, 1, 3, 5, 7]
    True

    Source: NVIDIA CUTLASS, CuTe documentation, "Layouts" and "Layout algebra".
    """

    shape: Nested
    stride: Nested

    def __post_init__(self) -> None:
        """Convert lists to tuples, then check.

        Raises:
            LayoutError: the two differ in structure, an entry is no int, an extent is below 1.
        """
        shape, stride = _converted(self.shape, self.stride)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "stride", stride)

    @classmethod
    def parse(cls, text: str) -> CuteLayout:
        """Read ``shape:stride``; static integers may carry CuTe's underscore, ``_8``.

        Without strides they are compact, first leaf fastest, as CuTe makes them.

        Raises:
            LayoutError: the text is no such layout; the place is shown with a caret.

        >>> print(CuteLayout.parse("((_4,_8),_2):((_32,_1),_16)"))
        ((4,8),2):((32,1),16)
        >>> print(CuteLayout.parse("(4,(2,3))"))
        (4,(2,3)):(1,(4,8))
        >>> CuteLayout.parse("(4,?):(1,4)")
        Traceback (most recent call last):
        layoutalg.errors.LayoutError: cute: a dynamic size ? is unknown here; write its value
          (4,?):(1,4)
             ^
        """
        reader = _Reader(text)
        shape = reader.nested()
        if reader.token == "":
            return cls(shape, compact(shape))
        reader.take(":")
        stride = reader.nested()
        if reader.token != "":
            reader.refuse("the layout ends here")
        return cls(shape, stride)

    def __str__(self) -> str:
        """Return CuTe's notation."""
        return f"{nested_text(self.shape)}:{nested_text(self.stride)}"

    @property
    def modes(self) -> tuple[CuteLayout, ...]:
        """The entries of the outer tuple, each a layout; a layout of one int is its own mode."""
        if isinstance(self.shape, int) or isinstance(self.stride, int):
            return (self,)
        return tuple(CuteLayout(d, s) for d, s in zip(self.shape, self.stride, strict=True))

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The (extent, stride) of every leaf, first leaf fastest."""
        return tuple(zip(flat(self.shape), flat(self.stride), strict=True))

    @property
    def extents(self) -> tuple[int, ...]:
        """How many elements each mode has: the logical shape.

        >>> CuteLayout.parse("((4,8),2):((32,1),16)").extents
        (32, 2)
        """
        return tuple(mode.size for mode in self.modes)

    @property
    def size(self) -> int:
        """How many elements the layout maps."""
        total = 1
        for extent in flat(self.shape):
            total *= extent
        return total

    @property
    def cosize(self) -> int:
        """The length of the interval of offsets: with strides from 0 on, the largest plus one.

        >>> CuteLayout.parse("(2,4):(2,4)").cosize
        15
        """
        return 1 + sum((extent - 1) * abs(stride) for extent, stride in self.leaves)

    def __call__(self, *coord: Any) -> Any:
        """Return the offset of a coordinate: one flat index, or one entry per mode.

        Each entry is an int (or an integer array), split first leaf fastest, or a tuple as nested
        as its mode. Beyond the size the last leaf runs on, as in CuTe.

        Raises:
            LayoutError: the coordinate does not fit the modes, or is negative.
        """
        modes = self.modes
        if len(coord) == 1:
            coord = coord[0] if isinstance(coord[0], tuple) else coord
        if len(coord) == 1:
            return _offset(self.leaves, coord[0])
        if len(coord) != len(modes):
            raise LayoutError(
                f"cute: give one flat index or one coordinate per mode; {self} has {len(modes)} "
                f"modes, got {len(coord)} coordinates"
            )
        total: Any = 0
        for mode, entry in zip(modes, coord, strict=True):
            total = total + mode(entry)
        return total


def flat(nested: Nested) -> tuple[int, ...]:
    """Return the ints of a nested tuple, in order.

    >>> flat((4, (2, 2)))
    (4, 2, 2)
    """
    if isinstance(nested, int):
        return (nested,)
    return tuple(leaf for entry in nested for leaf in flat(entry))


def nested_text(nested: Nested) -> str:
    """Print a nested tuple without blanks.

    >>> nested_text((4, (2, 2)))
    '(4,(2,2))'
    """
    if isinstance(nested, int):
        return str(nested)
    return f"({','.join(map(nested_text, nested))})"


def compact(shape: Nested) -> Nested:
    """Return the strides of a dense layout of this shape, first leaf fastest.

    >>> compact((4, (2, 3)))
    (1, (4, 8))
    """
    weights: list[int] = []
    weight = 1
    for extent in flat(shape):
        weights.append(weight)
        weight *= extent
    return _refilled(shape, iter(weights))


def coalesce(layout: CuteLayout) -> CuteLayout:
    """Return the shortest flat layout of the same function of the flat index.

    ``coalesce(L)(i) == L(i)`` for every i; two layouts of one size are the same function of the
    flat index exactly where they coalesce to the same.

    >>> print(coalesce(CuteLayout.parse("((2,1),(4,3)):((1,7),(2,16))")))
    (8,3):(1,16)
    """
    return from_leaves(coalesced(layout.leaves))


def coalesced(leaves: Sequence[Leaf]) -> tuple[Leaf, ...]:
    """Drop unit leaves and fuse neighbours while ``next.stride == extent * stride``.

    >>> coalesced([(2, 1), (1, 7), (4, 2)])
    ((8, 1),)
    """
    found: list[Leaf] = []
    for extent, stride in leaves:
        if extent == 1:
            continue
        if found and stride == found[-1][0] * found[-1][1]:
            before = found.pop()
            found.append((before[0] * extent, before[1]))
        else:
            found.append((extent, stride))
    return tuple(found)


def from_leaves(leaves: Sequence[Leaf]) -> CuteLayout:
    """Return the flat layout of these leaves; ``1:0`` where there is none.

    >>> print(from_leaves([(8, 1), (3, 16)]), from_leaves([(8, 1)]), from_leaves([]))
    (8,3):(1,16) 8:1 1:0
    """
    if not leaves:
        return CuteLayout(1, 0)
    shape, stride = zip(*leaves, strict=True)
    return CuteLayout(shape, stride)


def _refilled(shape: Nested, values: Iterator[int]) -> Nested:
    if isinstance(shape, int):
        return next(values)
    return tuple(_refilled(entry, values) for entry in shape)


def _offset(leaves: Sequence[Leaf], index: Any) -> Any:
    """Split a flat index first leaf fastest; the last leaf that moves takes the whole rest."""
    if not getattr(index, "ndim", 0):
        index = as_size(index, "cute: coordinate")
        if index < 0:
            raise LayoutError(f"cute: a coordinate must be at least 0; got {index}")
    moving = [leaf for leaf in leaves if leaf[0] != 1]
    total = index * 0
    for place, (extent, stride) in enumerate(moving):
        last = place == len(moving) - 1
        total = total + (index if last else index % extent) * stride
        index = index // extent
    return total


def _converted(shape: Any, stride: Any) -> tuple[Nested, Nested]:
    """Return shape and stride as tuples of one structure, the strides of unit leaves as 0."""
    nested = isinstance(shape, (tuple, list))
    if nested != isinstance(stride, (tuple, list)) or (nested and len(shape) != len(stride)):
        raise LayoutError(f"cute: shape and stride must nest alike; got {shape} and {stride}")
    if nested:
        if not shape:
            raise LayoutError("cute: a tuple must have an entry; got ()")
        pairs = [_converted(d, s) for d, s in zip(shape, stride, strict=True)]
        if len(pairs) == 1 and isinstance(pairs[0][0], int):
            return pairs[0]
        return tuple(d for d, _ in pairs), tuple(s for _, s in pairs)
    extent, step = as_size(shape, "cute: extent"), as_size(stride, "cute: stride")
    if not isinstance(extent, int) or not isinstance(step, int):
        raise LayoutError(
            f"cute: a layout holds numbers; got {extent}:{step}. Substitute the symbols first"
        )
    if extent < 1:
        raise LayoutError(f"cute: an extent must be at least 1; got {extent}")
    return extent, step if extent != 1 else 0


_TOKEN = re.compile(r"\s*(_?-?\d+|[^\s])")


class _Reader:
    """Reads nested tuples of ints; every error shows its place."""

    def __init__(self, source: str) -> None:
        if not isinstance(source, str):
            raise LayoutError(f"cute: needs text such as (4,8):(1,4); got {source!r}")
        self.source = source
        self.tokens = [(found[1], found.start(1)) for found in _TOKEN.finditer(source)]
        self.tokens.append(("", len(source.rstrip())))
        self.next = 0

    @property
    def token(self) -> str:
        return self.tokens[self.next][0]

    def refuse(self, reason: str) -> NoReturn:
        place = self.tokens[self.next][1]
        raise LayoutError(f"cute: {reason}\n{pointed(self.source, place)}")

    def take(self, expected: str) -> None:
        if self.token != expected:
            self.refuse(f"expected {expected!r}, found {self.token or 'the end'}")
        self.next += 1

    def nested(self, depth: int = 0) -> Nested:
        if self.token != "(":
            return self.number()
        if depth > 64:
            self.refuse("the tuples nest more than 64 deep")
        self.take("(")
        entries = [self.nested(depth + 1)]
        while self.token == ",":
            self.take(",")
            entries.append(self.nested(depth + 1))
        self.take(")")
        return tuple(entries)

    def number(self) -> int:
        token = self.token
        digits = token.lstrip("_")
        if not digits.lstrip("-").isdecimal():
            if token == "?":
                self.refuse("a dynamic size ? is unknown here; write its value")
            self.refuse(f"expected a number or '(', found {token or 'the end'}")
        self.next += 1
        if self.token == "@":
            self.refuse("a basis stride such as 1@0 makes coordinates, not offsets")
        return int(digits)
