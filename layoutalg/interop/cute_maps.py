"""CuTe layouts and ``TileLayout``: offsets in memory, both ways.

A ``TileLayout`` maps an element to an address, last iter fastest; a CuTe layout maps a coordinate
to an offset, first leaf fastest.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from layoutalg.algebra.axis import m
from layoutalg.algebra.iters import Iter
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.interop.cute import CuteLayout, Leaf, Nested, coalesced, from_leaves
from layoutalg.interop.cute_swizzle import CuteComposed, CuteSwizzle, parse_cute
from layoutalg.interop.registry import Notation, Options, register
from layoutalg.interop.strided_digits import check_numbers, grouped
from layoutalg.layouts.swizzle import ComposeLayout
from layoutalg.layouts.tile_layout import Layout, TileLayout
from layoutalg.sizes.size import as_shape


def from_cute(
    source: str | CuteLayout | CuteComposed, unit: str | None = None, bits: int | None = None
) -> Layout:
    """Return the layout in memory that a CuTe layout is; its logical shape is ``.extents``.

    ``from_cute(L).apply(*c, shape=L.extents)["m"] == L(*c)``: each mode is one dimension, and its
    leaves are its iters in reverse. With a swizzle the result is a ``ComposeLayout``.

    Args:
        source: text, or what :func:`parse_cute` makes of it.
        unit: what the swizzle of a text counts, "elements" or "bytes", where the text does not say.
        bits: the bits of an element, for the unit "bytes".

    Raises:
        LayoutError: the text is no layout, or its swizzle cannot be counted in elements.

    >>> print(from_cute("((4,8),2):((2,16),1)"))
    S[(8,4,2):(16,2,1)]
    >>> print(from_cute("Sw<3,4,3> o 0 o (8,64):(64,1)", unit="bytes", bits=16))
    ComposeLayout(3, 3, 3, S[(8,64):(64,1)])
    """
    parsed = parse_cute(source, unit, bits) if isinstance(source, str) else source
    if isinstance(parsed, CuteComposed):
        tile = _tile(parsed.layout, parsed.offset)
        return parsed.swizzle.in_elements().over(tile)
    return _tile(parsed, 0)


def _tile(layout: CuteLayout, offset: int) -> TileLayout:
    shard = [Iter(d, s, m) for mode in layout.modes for d, s in reversed(mode.leaves)]
    return TileLayout.from_iters(shard, offset={"m": offset} if offset else None)


def to_cute(
    layout: LayoutLike,
    shape: Sequence[int],
    unit: str = "elements",
    bits: int | None = None,
) -> CuteLayout | CuteComposed:
    """Return the CuTe layout of a tile in memory; each dimension of ``shape`` becomes one mode.

    ``to_cute(L, shape)(*c) == L.apply(*c, shape=shape)["m"]``; every mode is coalesced.

    Args:
        layout: a tile on axis m, or a swizzled one.
        shape: the logical extents.
        unit: what the swizzle is to count, "elements" or "bytes".
        bits: the bits of an element, for the unit "bytes".

    Raises:
        LayoutError: an axis other than m is used, an element has replicas, a plain tile has an
            offset, a dimension of the shape ends inside an iter, or the swizzle cannot be counted
            in the unit.
        Undecided: a size is symbolic.

    >>> from layoutalg import S, laneid
    >>> print(to_cute(TileLayout(S[(8, 4, 2):(16, 2, 1)]), (32, 2)))
    ((4,8),2):((2,16),1)
    >>> print(to_cute(ComposeLayout(3, 3, 3, TileLayout(S[8, 64])), (8, 64), "bytes", 16))
    Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)
    >>> to_cute(TileLayout(S[(8, 2):(4 @ laneid, 1)]), (16,))
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: to_cute: a CuTe layout gives offsets in one memory; \
S[(8,2):(4@laneid,1)] uses laneid (to_tv writes threads and values)
    """
    layout, extents = as_layout(layout, "to_cute"), whole_shape(shape, "to_cute")
    if isinstance(layout, ComposeLayout):
        tile = layout.tile_over(extents)
        modes = _modes(tile, extents)
        swizzle = CuteSwizzle.of(layout.swizzle, unit, bits)
        return CuteComposed(swizzle, int(tile.offset.get(m, 0)), modes)
    if any(value != 0 for value in layout.offset.values()):
        raise LayoutError(
            f"to_cute: a CuTe layout starts at offset 0; {layout} starts elsewhere: add its offset "
            "to the pointer"
        )
    return _modes(layout, extents)


def _modes(layout: TileLayout, shape: tuple[int, ...]) -> CuteLayout:
    """Return the iters as a CuTe layout, one mode per dimension."""
    check_numbers(layout, "to_cute")
    axes = {it.axis for it in layout.shard} | {a for a, value in layout.offset.items() if value}
    others = sorted(axis.name for axis in axes - {m})
    if others:
        raise LayoutError(
            f"to_cute: a CuTe layout gives offsets in one memory; {layout} uses "
            f"{', '.join(others)} (to_tv writes threads and values)"
        )
    if layout.copies:
        raise LayoutError(
            f"to_cute: a CuTe layout gives each element one offset; {layout} has replicas"
        )
    iters, seps = grouped(layout, shape, "to_cute")
    modes = [
        one_mode([(int(it.extent), int(it.stride)) for it in reversed(iters[begin:end])])
        for begin, end in itertools.pairwise(seps)
    ]
    return CuteLayout(tuple(d for d, _ in modes), tuple(s for _, s in modes))


def one_mode(leaves: Sequence[Leaf]) -> tuple[Nested, Nested]:
    """Return shape and stride of one mode, coalesced; a single leaf stands without parentheses."""
    mode = from_leaves(coalesced(leaves))
    return mode.shape, mode.stride


def whole_shape(shape: Sequence[int], what: str) -> tuple[int, ...]:
    """Return the extents of a shape of numbers.

    Raises:
        LayoutError: it is empty, or holds a symbol.

    >>> whole_shape([16, 8], "doc")
    (16, 8)
    """
    extents = as_shape(shape, what)
    if not extents or not all(isinstance(extent, int) for extent in extents):
        raise LayoutError(f"{what}: the shape must hold numbers, at least one; got {extents}")
    return tuple(int(extent) for extent in extents)


def _read(text: str, options: Options) -> tuple[Layout, tuple[int, ...]]:
    parsed = parse_cute(text, options.unit, options.bits)
    inner = parsed.layout if isinstance(parsed, CuteComposed) else parsed
    return from_cute(parsed), inner.extents


register(
    Notation(
        "cute",
        "((4,8),2):((2,16),1)",
        _read,
        lambda layout, said: str(
            to_cute(layout, said.shape or (), said.unit or "elements", said.bits)
        ),
        r"(Sw|S|Swizzle)<|(?!(.*[\s+])?[SR]\[)[(_\d]",
        over_shape=True,
    )
)
