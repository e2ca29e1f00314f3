"""Hypothesis strategies that build valid layouts by construction, small enough for brute force.

``LAYOUTALG_TESTS=thorough`` runs many more examples, at random; the default set is the same in each
run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from layoutalg import Axis, Iter, TileLayout

THOROUGH = os.environ.get("LAYOUTALG_TESTS") == "thorough"
laws = settings(
    max_examples=2000 if THOROUGH else 60,
    deadline=None,
    derandomize=not THOROUGH,
    suppress_health_check=[HealthCheck.too_slow],
)

MEMORY = ("m", "TLane", "TCol", "P")
# thread axes that fit together in one layout, with how far each counts
FAMILIES: tuple[dict[str, int], ...] = (
    {},
    {"laneid": 32},
    {"laneid": 32, "warpid": 8},
    {"laneid": 32, "wid_in_wg": 4},
    {"laneid": 32, "wid_in_wg": 4, "wgid": 4},
    {"tid_in_wg": 128, "wgid": 4},
    {"wid_in_wg": 4, "wgid": 4},
    {"tx": 256},
    {"tx": 256, "bx": 4},
    {"tx": 256, "cbx": 2},
)


class Grouped(NamedTuple):
    """A layout and a shape that it groups by."""

    layout: TileLayout
    shape: tuple[int, ...]


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


@st.composite
def factorings(draw: st.DrawFn, size: int, rank: int | None = None) -> tuple[int, ...]:
    """Write a size as a product, in any order, with ones."""
    count = draw(st.integers(1, 5)) if rank is None else rank
    found = []
    for _ in range(count - 1):
        factor = draw(st.sampled_from(divisors(size)))
        found.append(factor)
        size //= factor
    return tuple(draw(st.permutations([*found, size])))


@st.composite
def runs(
    draw: st.DrawFn, axes: Sequence[str], most: int, count: int = 4, lowest: int = -4
) -> list[Iter]:
    """Draw iters of at most ``most`` elements; many are dense, so that they fuse."""
    iters: list[Iter] = []
    dense: dict[str, int] = {}
    for _ in range(draw(st.integers(0, count))):
        fits = [e for e in (1, 2, 2, 3, 4, 4, 6, 8) if e <= most]
        extent = draw(st.sampled_from(fits))
        axis = draw(st.sampled_from(list(axes)))
        free = draw(st.integers(0, 2)) == 0
        stride = draw(st.integers(lowest, 16)) if free else dense.get(axis, 1)
        dense[axis] = extent * stride
        iters.append(Iter(extent, stride, axis))
        most //= extent
    return iters[::-1]


@st.composite
def axes_of_one_layout(draw: st.DrawFn, threads: bool = True) -> list[str]:
    family = draw(st.sampled_from(FAMILIES)) if threads else {}
    return [*family, *draw(st.lists(st.sampled_from(MEMORY), min_size=1, max_size=2, unique=True))]


@st.composite
def layouts(
    draw: st.DrawFn,
    axes: Sequence[str] | None = None,
    most: int = 64,
    lowest: int = -4,
    replicas: bool = True,
    offsets: bool = True,
) -> TileLayout:
    """Draw a layout with several axes, replicas and offsets; strides from ``lowest`` on."""
    names = draw(axes_of_one_layout()) if axes is None else list(axes)
    shard = draw(runs(names, most, lowest=lowest))
    replica = draw(runs(names, 6, count=2, lowest=lowest)) if replicas else []
    values = st.integers(8 * lowest, 40)
    offset = draw(st.dictionaries(st.sampled_from(names), values, max_size=2)) if offsets else {}
    used = {it.axis.name for it in shard}
    if not any(Axis.get(name).thread for name in used):
        # where no shard iter is on a thread axis, nothing says which of them belong together
        replica = [it for it in replica if it.axis.memory]
        offset = {name: value for name, value in offset.items() if Axis.get(name).memory}
    return _connected(shard, replica, offset, names)


def _connected(
    shard: list[Iter], replica: list[Iter], offset: dict[str, int], names: Sequence[str]
) -> TileLayout:
    """Add unit iters on the family's axes that are left out, so that its scopes form a chain."""
    used = {it.axis.name for it in (*shard, *replica)} | set(offset)
    threads = [name for name in names if Axis.get(name).thread]
    if used & set(threads):
        shard = shard + [Iter(2, 1, name) for name in threads if name not in used]
    return TileLayout.from_iters(shard, replica, offset)


@st.composite
def grouping_shapes(draw: st.DrawFn, layout: TileLayout) -> tuple[int, ...]:
    """Draw a shape that groups the layout: cut each iter in any order, then join neighbours."""
    pieces: list[int] = []
    for it in layout.shard:
        pieces.extend(draw(factorings(int(it.extent))))
    shape: list[int] = []
    for piece in pieces:
        joins: bool = draw(st.booleans())
        if shape and joins:
            shape[-1] *= piece
        else:
            shape.append(piece)
    return tuple(shape)


def grouped_layouts(**how: Any) -> st.SearchStrategy[Grouped]:
    """Draw a layout and a shape that it groups by."""
    return layouts(**how).flatmap(
        lambda layout: grouping_shapes(layout).map(lambda shape: Grouped(layout, shape))
    )


@st.composite
def layouts_of_rank(
    draw: st.DrawFn, rank: int, axes: Sequence[str], most: int = 16, lowest: int = 0
) -> Grouped:
    """Draw a layout made of ``rank`` dimensions, and its shape."""
    dims = [draw(runs(axes, most, count=2, lowest=lowest)) or [Iter(1, 1)] for _ in range(rank)]
    shape = tuple(prod(int(it.extent) for it in dim) for dim in dims)
    replica = draw(runs(axes, 4, count=1, lowest=lowest))
    offset = draw(st.dictionaries(st.sampled_from(list(axes)), st.integers(0, 9), max_size=1))
    return Grouped(
        TileLayout.from_iters([it for dim in dims for it in dim], replica, offset), shape
    )


class Pair(NamedTuple):
    """Two layouts of one rank: an inner and an outer one, or two summands."""

    inner: TileLayout
    inner_shape: tuple[int, ...]
    outer: TileLayout
    outer_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(o * i for o, i in zip(self.outer_shape, self.inner_shape, strict=True))


@st.composite
def pairs(draw: st.DrawFn, axes: Sequence[str] = ("laneid", "m", "TCol"), lowest: int = 0) -> Pair:
    """Draw an inner and an outer layout of one rank, on the axes of one layout."""
    rank = draw(st.integers(1, 3))
    inner = draw(layouts_of_rank(rank, axes, most=8, lowest=lowest))
    outer = draw(layouts_of_rank(rank, axes, most=4, lowest=lowest))
    return Pair(inner.layout, inner.shape, outer.layout, outer.shape)


@st.composite
def regions(draw: st.DrawFn, shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Draw a range per dimension."""
    found = []
    for extent in shape:
        begin = draw(st.integers(0, extent - 1))
        found.append((begin, draw(st.integers(begin + 1, extent))))
    return tuple(found)


class Sliced(NamedTuple):
    """A layout, a shape that it groups by, and a region of it."""

    layout: TileLayout
    shape: tuple[int, ...]
    region: tuple[tuple[int, int], ...]


@st.composite
def sliced(draw: st.DrawFn) -> Sliced:
    """Draw a region of a layout; strides are small, so that carries agree with steps at times."""
    iters = []
    for _ in range(draw(st.integers(1, 4))):
        axis = draw(st.sampled_from(["m", "m", "m", "laneid"]))
        iters.append(
            Iter(draw(st.sampled_from([2, 2, 2, 3, 4, 5])), draw(st.integers(-2, 9)), axis)
        )
    layout = TileLayout.from_iters(iters, offset={"m": draw(st.integers(-3, 3))})
    whole = (int(prod(int(it.extent) for it in iters)),)
    shape = draw(st.one_of(st.just(whole), grouping_shapes(layout)))
    return Sliced(layout, shape, draw(regions(shape)))
