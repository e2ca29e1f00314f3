"""Thread-value (TV) layouts of CuTe and ``TileLayout``, both ways.

A ``TileLayout`` maps an element to a (thread, value); a TV layout maps a (thread, value) to an
element, its first leaf fastest: each is the inverse of the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from layoutalg.algebra.axis import Axis, laneid, m, tid_in_wg, tx
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.interop.cute import CuteLayout
from layoutalg.interop.cute_maps import one_mode, whole_shape
from layoutalg.interop.registry import Notation, Options, plain, register
from layoutalg.interop.strided_digits import StridedDigit, chain, digits_of, layout_of
from layoutalg.layouts.tile_layout import TileLayout


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
    extents = whole_shape(shape, "from_tv")
    if len(layout.modes) != 2:
        raise LayoutError(
            f"from_tv: a thread-value layout has two modes; {layout} has {len(layout.modes)}"
        )
    threads, values = layout.modes
    axes = (Axis.get(thread) if thread is not None else _thread_axis(threads.size), Axis.get(value))
    if axes[0] is axes[1]:
        raise LayoutError(f"from_tv: threads and values need two axes; got {axes[0]} for both")
    digits: list[StridedDigit] = []
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
) -> list[StridedDigit]:
    """Cut one leaf of a TV layout at the dimensions that it runs through."""
    if extent == 1:
        return []
    if stride < 0:
        raise LayoutError(f"from_tv: the strides must be at least 0; got {name}")
    if stride == 0:
        return [StridedDigit(extent, None, 0, axis, place, name)]
    found: list[StridedDigit] = []
    weight = 1  # of one step in the dimension
    for dim, size in enumerate(shape[:-1]):
        if stride < weight * size:
            inside = _steps(stride, weight, dim, shape, name)
            run = -(-size // inside)
            if extent <= run:
                return [*found, StridedDigit(extent, dim, inside, axis, place, name)]
            if size % inside or extent % run:
                raise LayoutError(
                    f"from_tv: {name} passes the end of dimension {dim} of {tuple(shape)} inside "
                    "a step"
                )
            found.append(StridedDigit(run, dim, inside, axis, place, name))
            extent, stride, place = extent // run, weight * size, place * run
        weight *= size
    last = len(shape) - 1
    inside = _steps(stride, weight, last, shape, name)
    return [*found, StridedDigit(extent, last, inside, axis, place, name)]


def _steps(stride: int, weight: int, dim: int, shape: Sequence[int], name: str) -> int:
    """Return how many elements a stride moves its dimension, where it moves no other."""
    if stride % weight:
        raise LayoutError(
            f"from_tv: {name} moves dimension {dim} of {tuple(shape)} and one before it at once"
        )
    return stride // weight


def to_tv(
    layout: LayoutLike,
    shape: Sequence[int],
    thread: Axis | str | None = None,
    value: Axis | str = m,
) -> CuteLayout:
    """Return the TV layout that leads from (thread, value) to the element that lies there.

    ``to_tv(L, shape)(t, v) == i + M*j + …`` exactly where L puts (i, j, …) on thread t, value v.

    Args:
        layout: a layout on two axes, a bijection onto (thread, value).
        shape: the logical extents (M, N, …); write a B operand as (N, K) for CuTe.
        thread: the axis that counts threads; where it is not given, the layout's thread axis.
        value: the axis that counts values.

    Raises:
        LayoutError: a third axis is used, or some (thread, value) holds no element or two.
        Undecided: a size is symbolic.

    >>> from layoutalg import fragments
    >>> D = fragments.get("mma.m16n8k16.f16", "D")
    >>> print(to_tv(D.layout, D.shape))
    ((4,8),(2,2)):((32,1),(16,8))
    """
    layout, extents = as_layout(layout, "to_tv"), whole_shape(shape, "to_tv")
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
        modes.append(one_mode(leaves))
    return CuteLayout(tuple(d for d, _ in modes), tuple(s for _, s in modes))


def _read(text: str, options: Options) -> tuple[TileLayout, tuple[int, ...]]:
    if options.shape is None:
        raise LayoutError("read: a thread-value layout does not say its shape: give it")
    return from_tv(CuteLayout.parse(text), options.shape), options.shape


register(
    Notation(
        "tv",
        "((4,8),(2,2)):((32,1),(16,8))",
        _read,
        lambda layout, options: str(to_tv(plain(layout, "tv"), options.shape or ())),
        over_shape=True,
    )
)
