"""Digits: the common ground of a ``TileLayout`` and of notations that map hardware to the tile.

A :class:`StridedDigit` moves one logical dimension and one machine axis at once. A layout and its
inverse have the same digits, and on either side these must form chains, strides ``1, e, e*e', …``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis, m
from layoutalg.algebra.iters import Iter
from layoutalg.errors import LayoutError, Undecided
from layoutalg.layouts.tile_layout import TileLayout
from layoutalg.sizes.size import is_int, product


@dataclass(frozen=True)
class StridedDigit:
    """``extent`` steps that move ``dim`` by ``stride`` elements and ``axis`` by ``place`` each.

    ``dim`` is None for a replica, whose steps stay on the element. ``name`` is what the other
    notation calls the digit, for messages.
    """

    extent: int
    dim: int | None
    stride: int
    axis: Axis
    place: int
    name: str


def chain(steps: Iterable[tuple[int, int, str]], what: str) -> int:
    """Return how many values the (extent, stride, name) reach, each once: 0, 1, 2, ….

    Raises:
        LayoutError: the strides, sorted, are not 1, e, e*e', …: a value is reached by nothing, or
            by some steps more often than others.

    >>> chain([(4, 2, "t"), (2, 1, "v")], "row")
    8
    >>> chain([(4, 2, "t"), (4, 1, "v")], "row")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: row: t has stride 2, but the smaller strides cover 0..3 already: \
some values are reached twice, others once
    """
    reached = 1
    for extent, stride, name in sorted(steps, key=lambda step: (step[1], step[0])):
        if stride > reached:
            raise LayoutError(
                f"{what}: {name} has stride {stride}, but the smaller strides cover "
                f"0..{reached - 1} only: nothing reaches {reached}"
            )
        if stride < reached:
            raise LayoutError(
                f"{what}: {name} has stride {stride}, but the smaller strides cover "
                f"0..{reached - 1} already: some values are reached twice, others once"
            )
        reached *= extent
    return reached


def layout_of(digits: Sequence[StridedDigit], shape: Sequence[int], what: str) -> TileLayout:
    """Return the layout over ``shape`` that these digits make, fused inside each dimension.

    Raises:
        LayoutError: in some dimension they are no chain, or do not fill it.
    """
    shard: list[Iter] = []
    for dim, extent in enumerate(shape):
        here = [digit for digit in digits if digit.dim == dim]
        where = f"{what}: dimension {dim} of {tuple(shape)}"
        reached = chain(((d.extent, d.stride, d.name) for d in here), where)
        if reached != extent:
            raise LayoutError(f"{where}: the strides cover {reached} of {extent} elements")
        here.sort(key=lambda digit: -digit.stride)
        shard.extend(algebra.fuse(tuple(Iter(d.extent, d.place, d.axis) for d in here)))
    copies = [Iter(d.extent, d.place, d.axis) for d in digits if d.dim is None]
    copies.sort(key=lambda it: (it.axis.name, -it.stride))
    return TileLayout.from_iters(shard or [Iter(1, 1, m)], algebra.fuse(tuple(copies)))


def digits_of(layout: TileLayout, shape: Sequence[int], what: str) -> tuple[StridedDigit, ...]:
    """Return the digits of a layout over ``shape``, its replicas included.

    Raises:
        Undecided: a size is symbolic.
        LayoutError: the layout does not group by the shape, or has an offset, or puts two elements
            on one coordinate of an axis, or counts downwards: then it has no inverse.
    """
    check_numbers(layout, what)
    for axis, value in layout.offset.items():
        if value != 0:
            raise LayoutError(
                f"{what}: the other notation starts at place 0; {layout} has the offset "
                f"{value}@{axis}"
            )
    iters, seps = grouped(layout, shape, what)
    found: list[StridedDigit] = []
    for dim in range(len(shape)):
        stride = 1
        for it in reversed(iters[seps[dim] : seps[dim + 1]]):
            if it.extent != 1:
                found.append(_digit(it, dim, stride, layout, what))
            stride *= int(it.extent)
    found.extend(_digit(it, None, 0, layout, what) for it in layout.copies)
    return tuple(found)


def _digit(it: Iter, dim: int | None, stride: int, layout: TileLayout, what: str) -> StridedDigit:
    extent, place = int(it.extent), int(it.stride)
    if place <= 0:
        reason = "puts several elements on one place" if place == 0 else "counts downwards"
        raise LayoutError(
            f"{what}: every iter must go up; {extent}:{place}@{it.axis} of {layout} {reason}"
        )
    return StridedDigit(extent, dim, stride, it.axis, place, f"{extent}:{place}@{it.axis}")


def check_numbers(layout: TileLayout, what: str) -> None:
    """Refuse symbols.

    Raises:
        Undecided: a size is symbolic.
    """
    sizes = [size for it in layout.shard + layout.replica for size in (it.extent, it.stride)]
    if not is_int(*sizes, *layout.offset.values()):
        raise Undecided(
            f"{what}: the other notation holds numbers; {layout} has symbols: substitute them with "
            ".subs"
        )


def grouped(
    layout: TileLayout, shape: Sequence[int], what: str
) -> tuple[algebra.Iters, tuple[int, ...]]:
    """Return the shard cut at the dimensions of ``shape``, and the separators.

    Raises:
        LayoutError: the sizes differ, or a dimension ends inside an iter.
    """
    if product(shape) != layout.size():
        raise LayoutError(
            f"{what}: the shape must hold as many elements as the layout; {tuple(shape)} holds "
            f"{product(shape)}, {layout} holds {layout.size()}"
        )
    try:
        return algebra.group(layout.shard, shape, layout)
    except LayoutError:
        pass
    try:
        return algebra.group(algebra.canonical(layout.shard), shape, layout)
    except LayoutError as error:
        raise LayoutError(f"{what}: {error}") from None
