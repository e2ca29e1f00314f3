"""CuTe layouts and ``TileLayout``: offsets in memory, and thread-value (TV) layouts.

A ``TileLayout`` maps an element to its places; last iter fastest. A CuTe layout maps a coordinate
to an offset, or, as a TV layout, a place (thread, value) to an element; first leaf fastest.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import overload

from layoutalg.algebra.axis import Axis, laneid, m, tid_in_wg, tx
from layoutalg.algebra.iters import Iter
from layoutalg.errors import LayoutError
from layoutalg.interop.cute import CuteLayout, Leaf, Nested, coalesced, from_leaves
from layoutalg.interop.cute_swizzle import CuteComposed, CuteSwizzle, parse_cute
from layoutalg.interop.strided_digits import (
    Digit,
    chain,
    check_numbers,
    digits_of,
    grouped,
    layout_of,
)
from layoutalg.layouts.swizzle import ComposeLayout
from layoutalg.layouts.tile_layout import TileLayout
from layoutalg.sizes.size import as_shape


def from_cute(
    source: str | CuteLayout | CuteComposed, unit: str | None = None, bits: int | None = None
) -> TileLayout | ComposeLayout:
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


@overload
def to_cute(layout: TileLayout, shape: Sequence[int]) -> CuteLayout: ...
@overload
def to_cute(
    layout: ComposeLayout, shape: Sequence[int], unit: str = ..., bits: int | None = ...
) -> CuteComposed: ...
def to_cute(
    layout: TileLayout | ComposeLayout,
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
    extents = _shape(shape, "to_cute")
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
        _mode([(int(it.extent), int(it.stride)) for it in reversed(iters[begin:end])])
        for begin, end in itertools.pairwise(seps)
    ]
    return CuteLayout(tuple(d for d, _ in modes), tuple(s for _, s in modes))


def _mode(leaves: Sequence[Leaf]) -> tuple[Nested, Nested]:
    """Return shape and stride of one mode, coalesced; a single leaf stands without parentheses."""
    mode = from_leaves(coalesced(leaves))
    return mode.shape, mode.stride


def from_tv(
    source: str | CuteLayout,
    shape: Sequence[int],
    thread: Axis | str | None = None,
    value: Axis | str = m,
) -> TileLayout:
    """Return the layout whose element (i, j, …) lies where a thread-value layout leads there.

    A TV layout sends (thread, value) to ``i + M*j + …``, the first dimension fastest. A leaf of
    stride 0 makes replicas. The result is the inverse of the TV layout, element by element.

    Args:
        source: the layout, or its text; two modes, threads and values.
        shape: the logical extents (M, N, …); CuTe's B operands are (N, K).
        thread: the axis that counts the threads: laneid up to 32 of them, tid_in_wg up to 128,
            tx beyond, where it is not given. It counts CuTe's thread index; on Volta, where
            ``thr_id`` is not the identity, that is not the lane.
        value: the axis that counts the values.

    Raises:
        LayoutError: the layout is not one to one, apart from replicas, onto the whole shape, or a
            leaf moves two dimensions at once. Then no ``TileLayout`` is its inverse.

    >>> print(from_tv("((4,8),(2,2)):((32,1),(16,8))", (16, 8)))
    S[(2,8,4,2):(2,4@laneid,1@laneid,1)]
    >>> print(from_tv("(128,(64,16)):(0,(1,64))", (64, 16)))
    S[(64,16):(1,64)] + R[128:1@tid_in_wg]
    >>> from_tv("((4,8),8):((32,1),8)", (8, 32))
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: from_tv: dimension 1 of (8, 32): leaf 4:32 of the threads has \
stride 4, but the smaller strides cover 0..7 already: some values are reached twice, others once

    Source: CuTe, "MMA atoms": ``ALayout``, ``BLayout``, ``CLayout``.
    """
    layout = CuteLayout.parse(source) if isinstance(source, str) else source
    extents = _shape(shape, "from_tv")
    if len(layout.modes) != 2:
        raise LayoutError(
            f"from_tv: a thread-value layout has two modes; {layout} has {len(layout.modes)}"
        )
    threads, values = layout.modes
    axes = (Axis.get(thread) if thread is not None else _thread_axis(threads.size), Axis.get(value))
    if axes[0] is axes[1]:
        raise LayoutError(f"from_tv: threads and values need two axes; got {axes[0]} for both")
    digits: list[Digit] = []
    for mode, axis, whose in ((threads, axes[0], "threads"), (values, axes[1], "values")):
        place = 1
        for extent, stride in mode.leaves:
            name = f"leaf {extent}:{stride} of the {whose}"
            digits.extend(_digits(extent, stride, place, axis, extents, name))
            place *= extent
    return layout_of(digits, extents, "from_tv")


def _thread_axis(count: int) -> Axis:
    return laneid if count <= 32 else tid_in_wg if count <= 128 else tx


def _digits(
    extent: int, stride: int, place: int, axis: Axis, shape: Sequence[int], name: str
) -> list[Digit]:
    """Cut one leaf of a TV layout at the dimensions that it runs through."""
    if extent == 1:
        return []
    if stride < 0:
        raise LayoutError(f"from_tv: the strides must be at least 0; got {name}")
    if stride == 0:
        return [Digit(extent, None, 0, axis, place, name)]
    found: list[Digit] = []
    weight = 1  # of one step in the dimension
    for dim, size in enumerate(shape[:-1]):
        if stride < weight * size:
            inside = _steps(stride, weight, dim, shape, name)
            run = -(-size // inside)
            if extent <= run:
                return [*found, Digit(extent, dim, inside, axis, place, name)]
            if size % inside or extent % run:
                raise LayoutError(
                    f"from_tv: {name} passes the end of dimension {dim} of {tuple(shape)} inside "
                    "a step"
                )
            found.append(Digit(run, dim, inside, axis, place, name))
            extent, stride, place = extent // run, weight * size, place * run
        weight *= size
    last = len(shape) - 1
    inside = _steps(stride, weight, last, shape, name)
    return [*found, Digit(extent, last, inside, axis, place, name)]


def _steps(stride: int, weight: int, dim: int, shape: Sequence[int], name: str) -> int:
    """Return how many elements a stride moves its dimension, where it moves no other."""
    if stride % weight:
        raise LayoutError(
            f"from_tv: {name} moves dimension {dim} of {tuple(shape)} and one before it at once"
        )
    return stride // weight


def to_tv(
    layout: TileLayout,
    shape: Sequence[int],
    thread: Axis | str | None = None,
    value: Axis | str = m,
) -> CuteLayout:
    """Return the TV layout that leads from (thread, value) to the element that lies there.

    ``to_tv(L, shape)(t, v) == i + M*j + …`` exactly where L puts (i, j, …) on thread t, value v.

    Args:
        layout: a layout on two axes, one to one onto ``T x V`` places.
        shape: the logical extents (M, N, …); write a B operand as (N, K) for CuTe.
        thread: the axis that counts threads; where it is not given, the layout's thread axis.
        value: the axis that counts values.

    Raises:
        LayoutError: a third axis is used, or some place holds no element or two.
        Undecided: a size is symbolic.

    >>> from layoutalg import fragments
    >>> D = fragments.get("mma.m16n8k16.f16", "D")
    >>> print(to_tv(D.layout, D.shape))
    ((4,8),(2,2)):((32,1),(16,8))
    """
    extents = _shape(shape, "to_tv")
    digits = digits_of(layout, extents, "to_tv")
    axes = {digit.axis for digit in digits}
    value = Axis.get(value)
    if thread is None:
        named = sorted((a for a in axes if a.thread and a is not value), key=lambda a: a.name)
        if len(named) > 1:
            raise LayoutError(
                f"to_tv: a TV layout counts threads by one number; {layout} uses "
                f"{', '.join(map(str, named))}: canonicalize(target='cuda') makes one axis of them"
            )
        thread = named[0] if named else laneid
    thread = Axis.get(thread)
    others = sorted(axis.name for axis in axes - {thread, value})
    if others:
        raise LayoutError(
            f"to_tv: a TV layout has threads ({thread}) and values ({value}); {layout} also uses "
            f"{', '.join(others)}"
        )
    weights = [1]
    for extent in extents:
        weights.append(weights[-1] * extent)
    modes = []
    for axis in (thread, value):
        here = sorted((d for d in digits if d.axis is axis), key=lambda digit: digit.place)
        chain(((d.extent, d.place, d.name) for d in here), f"to_tv: {axis} of {layout}")
        leaves = [(d.extent, 0 if d.dim is None else d.stride * weights[d.dim]) for d in here]
        modes.append(_mode(leaves))
    return CuteLayout(tuple(d for d, _ in modes), tuple(s for _, s in modes))


def _shape(shape: Sequence[int], what: str) -> tuple[int, ...]:
    extents = as_shape(shape, what)
    if not extents or not all(isinstance(extent, int) for extent in extents):
        raise LayoutError(f"{what}: the shape must hold numbers, at least one; got {extents}")
    return tuple(int(extent) for extent in extents)
