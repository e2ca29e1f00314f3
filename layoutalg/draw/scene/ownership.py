"""The owners of each element of a tile: lanes, warps, registers and addresses, from a layout."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg.algebra.axis import WARP, Axis
from layoutalg.draw.scene.palette import FILLS, WARP_HUES
from layoutalg.errors import LayoutError
from layoutalg.layouts.swizzle import SwizzleLayout
from layoutalg.layouts.tile_layout import Layout
from layoutalg.sizes.budget import CELLS, check_budget

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
HUE_OF_WARP = np.array(WARP_HUES)
DEFAULT_LANE = 5
_WIDE_TO_NARROW = ("cta", "warpgroup", "warp", "thread")
_LETTER = {"thread": "T", "warp": "W", "warpgroup": "G"}


@dataclass(frozen=True, eq=False)
class Ownership:
    """The owners of each cell of a ``rows`` by ``columns`` tile.

    Each array has shape (rows, columns, replicas); entry 0 of the last dimension is the base.

    Attributes:
        threads: per thread axis its prefix on a label and its values, wide to narrow.
        memory: per memory axis its name and its values.
        lane: the lane within its warp; None where no axis counts threads.
        warp: the warp; None where every element lies in one warp.
        by_warp: the hue is the warp even where there is one only.
    """

    threads: tuple[tuple[str, IntArray], ...]
    memory: tuple[tuple[str, IntArray], ...]
    lane: IntArray | None
    warp: IntArray | None
    by_warp: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns, _ = (*self.threads, *self.memory)[0][1].shape
        return rows, columns

    @property
    def hue_is(self) -> str:
        """What the hue means: ``"warp"``, ``"group"`` (of 4 lanes), ``"block"`` or ``"memory"``."""
        if self.warp is not None and (
            self.by_warp or self.lane is None or self.warp.min() != self.warp.max()
        ):
            return "warp"
        if self.lane is not None:
            return "group"
        return "block" if self.threads else "memory"

    @property
    def thread_number(self) -> IntArray | None:
        """``32 * warp + lane``; None where no axis counts threads."""
        if self.lane is None or self.warp is None:
            return self.lane
        return WARP * self.warp + self.lane

    def colors(self) -> IntArray:
        """Return per owner an index of ``palette.FILLS``, ``4 * hue + step``.

        Warps: hue is the warp mod 8, step the quarter of the warp. One warp: hue is ``lane // 4``,
        step ``lane % 4``. Memory alone: hue is the eighth of the range of the first axis.
        """
        if self.hue_is == "warp" and self.warp is not None:
            step = 0 if self.lane is None else self.lane * 4 // WARP % 4
            hue: IntArray = HUE_OF_WARP[self.warp % len(HUE_OF_WARP)]
            return hue * 4 + step
        if self.lane is not None:
            return self.lane % WARP
        if self.threads:
            return HUE_OF_WARP[self.threads[0][1] % len(HUE_OF_WARP)] * 4
        values = self.memory[0][1]
        low, high = address_range(values)
        return (values - low) * len(FILLS) // (high - low)

    def led_by(self, lane: int | None) -> Ownership:
        """Return the same owners, in each cell the copy of the given lane first.

        >>> from layoutalg import R, S, TileLayout, laneid
        >>> both = owners_of(TileLayout(S[2 : 1 @ laneid] + R[2 : 2 @ laneid]), (2,), "doc")
        >>> both.led_by(3).thread_number.tolist()
        [[[0, 2], [3, 1]]]
        """
        numbers = self.thread_number
        if numbers is None or numbers.shape[-1] == 1:
            return self
        order = np.argsort(numbers != lane, axis=-1, kind="stable")

        def ordered(values: IntArray) -> IntArray:
            return np.take_along_axis(np.broadcast_to(values, numbers.shape), order, axis=-1)

        return replace(
            self,
            threads=tuple((name, ordered(values)) for name, values in self.threads),
            memory=tuple((name, ordered(values)) for name, values in self.memory),
            lane=None if self.lane is None else ordered(self.lane),
            warp=None if self.warp is None else ordered(self.warp),
        )

    def cells_of(self, lane: int | None, function: str) -> BoolArray | None:
        """Return which cells the thread of this number owns; None where none is to be outlined.

        The default lane outlines nothing in a tile that has no such lane.

        Raises:
            LayoutError: the thread owns no element, or is no int; the range of those that do is
                named.
        """
        if lane is not None and (isinstance(lane, bool) or not isinstance(lane, int)):
            raise LayoutError(f"{function}: lane is a thread's number, or None; got {lane!r}")
        numbers = self.thread_number
        if lane is None or (numbers is None and lane == DEFAULT_LANE):
            return None
        if numbers is None:
            raise LayoutError(
                f"{function}: lane must own an element; got lane {lane}, but no axis of the "
                "layout counts threads. lane=None outlines nothing"
            )
        cells: BoolArray = (numbers == lane).any(axis=-1)
        if cells.any():
            return cells
        if lane == DEFAULT_LANE:
            return None
        raise LayoutError(
            f"{function}: lane must own an element; got lane {lane}. Owners are "
            f"{numbers.min()}..{numbers.max()}; lane=None outlines nothing"
        )


def address_range(values: IntArray) -> tuple[int, int]:
    """Return begin and end of the addresses, the length at least 1."""
    return int(values.min()), int(values.max()) + 1


def checked_shape(shape: Any, function: str) -> tuple[int, ...]:
    """Return a shape as a tuple of ints.

    Raises:
        LayoutError: it is no sequence of ints, or holds more than a picture shows.

    >>> checked_shape((16, "n"), "lane_map")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: lane_map: a shape is a sequence of numbers, such as (16, 8); \
got (16, 'n')
    """
    try:
        extents = tuple(operator.index(extent) for extent in shape)
    except TypeError:
        raise LayoutError(
            f"{function}: a shape is a sequence of numbers, such as (16, 8); got {shape!r}"
        ) from None
    check_budget(function, math.prod(extents), CELLS, "elements in a picture", "Draw a slice")
    return extents


def checked_range(value: Any, count: int, name: str, step: int = 1) -> range:
    """Return the range to show, given as ``(begin, end)``.

    Args:
        value: begin and end.
        count: the end of the longest range.
        name: the function and the argument, that errors begin with.
        step: what begin and end are multiples of.

    Raises:
        LayoutError: no pair of ints, an empty range, or one that reaches beyond what there is.

    >>> checked_range((0, 4), 2, "coalescing: requests")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: coalescing: requests is (begin, end) within 0..2; got (0, 4). \
(0, 2) fits
    """
    try:
        begin, end = (operator.index(each) for each in value)
    except (TypeError, ValueError):
        begin, end = 0, 0
    if not 0 <= begin < end <= count or begin % step or end % step:
        steps = f", multiples of {step}" if step > 1 else ""
        raise LayoutError(
            f"{name} is (begin, end) within 0..{count}{steps}; got {value!r}. (0, {count}) fits"
        )
    return range(begin, end)


def owners_of(layout: Layout, shape: Sequence[int], function: str) -> Ownership:
    """Read the owners of every element from ``layout.table``.

    Args:
        layout: a layout that holds as many elements as the shape.
        shape: (rows, columns), or (columns,) for one row.
        function: the name that errors begin with.

    Raises:
        LayoutError: the shape has another rank, or no element.

    >>> from layoutalg import S, TileLayout, laneid
    >>> owners_of(TileLayout(S[(8, 4):(4 @ laneid, 1 @ laneid)]), (8, 4), "doc").lane[1, 1]
    array([5])
    """
    shape = checked_shape(shape, function)
    if isinstance(layout, SwizzleLayout) or not hasattr(layout, "table"):
        raise LayoutError(
            f"{function}: needs a layout of elements; got {layout!r}. A swizzle permutes a tile: "
            "pass ComposeLayout(swizzle, tile)"
        )
    if len(shape) not in (1, 2) or 0 in shape:
        raise LayoutError(
            f"{function}: a picture has one or two dimensions, each of extent 1 or more; got shape "
            f"{shape}. Pass (rows, columns) that hold as many elements, or group and permute the "
            "layout into two dimensions first"
        )
    page = (1, *shape) if len(shape) == 1 else shape
    table = {
        Axis.get(name): np.asarray(values).reshape((*page, -1))
        for name, values in layout.table(shape, replicas=True).items()
    }
    threads = sorted(
        ((axis, values) for axis, values in table.items() if axis.thread),
        key=lambda item: _WIDE_TO_NARROW.index(str(item[0].subscope)),
    )
    memory = [(axis.name, values) for axis, values in table.items() if axis.memory]
    if not table:
        memory = [("m", np.zeros((*page, 1), dtype=np.int64))]
    lane: IntArray | None = None
    warp: IntArray | None = None
    for axis, values in threads:
        if axis.subscope == "thread":
            in_warp = axis.scope == "warp"
            lane = values if in_warp else values % WARP
            part = values * 0 if in_warp else values // WARP
        elif axis.subscope == "warp":
            part = values
        elif axis.subscope == "warpgroup":
            part = values * 4
        else:
            continue
        warp = part if warp is None else warp + part
    if warp is not None and lane is not None and int(warp.max()) == 0:
        warp = None
    prefixes = ((_LETTER.get(str(axis.subscope), axis.name), values) for axis, values in threads)
    return Ownership(tuple(prefixes), tuple(memory), lane, warp)


@dataclass(frozen=True, eq=False)
class Labels:
    """What is written in the cells, row-major lists of ``rows * columns`` strings.

    Attributes:
        thread: ``T5``, ``W1T5``, ``T0 +1``; empty strings where no axis is a thread axis.
        lane: the narrowest thread axis alone, ``T5``.
        memory: the register's or address' name; empty strings where no axis is a memory axis.
        title: every owner and the place, ``T5 a2 (1, 3)``.
        data: the ``data-...`` attributes; several owners are separated by blanks, so that
            ``[data-lane~="5"]`` selects every cell of lane 5.
    """

    thread: list[str]
    lane: list[str]
    memory: list[str]
    title: list[str]
    data: list[tuple[tuple[str, str], ...]]


def labels_of(owners: Ownership, register: Callable[[int], str]) -> Labels:
    """Write the labels of every cell.

    Args:
        owners: of the tile.
        register: names a value of the first memory axis; other memory axes are named by axis.

    >>> from layoutalg import R, S, TileLayout, laneid
    >>> both = owners_of(TileLayout(S[2 : 1 @ laneid] + R[2 : 2 @ laneid]), (2,), "doc")
    >>> labels_of(both, str).thread, labels_of(both, str).title
    (['T0 +1', 'T1 +1'], ['T0, T2 (0, 0)', 'T1, T3 (0, 1)'])
    """
    rows, columns = owners.shape
    count = rows * columns
    threads = [_words(values, f"{prefix}{{}}".format) for prefix, values in owners.threads]
    memory = [
        _words(values, f"{name}{{}}".format if n else register)
        for n, (name, values) in enumerate(owners.memory)
    ]
    blank: list[tuple[str, ...]] = [("",)] * count
    who = _joined(threads, "") if threads else blank
    what = _joined(memory, " ") if memory else blank
    narrow = threads[-1] if threads else blank
    whole = _joined([words for words in (who, what) if words is not blank], " ")
    out = Labels([], [], [], [], [])
    if len(whole[0]) == 1:
        out.thread.extend(words[0] for words in who)
        out.lane.extend(words[0] for words in narrow)
        out.memory.extend(words[0] for words in what)
    else:
        for names, lanes, words in zip(who, narrow, what, strict=True):
            others = len(set(names)) - 1
            more = f" +{others}" if others else ""
            out.thread.append(names[0] + more)
            out.lane.append(lanes[0] + more)
            others = 0 if others else len(set(words)) - 1
            out.memory.append(words[0] + (f" +{others}" if others else ""))
    places = [f" ({i}, {j})" for i in range(rows) for j in range(columns)]
    out.title.extend(
        (owner[0] if len(owner) == 1 else ", ".join(dict.fromkeys(owner))) + place
        for owner, place in zip(whole, places, strict=True)
    )
    out.data.extend(zip(*_data(owners, memory), strict=True))
    return out


def _words(values: IntArray, name: Callable[[int], str]) -> list[tuple[str, ...]]:
    """Name every value; a tuple of replicas per cell."""
    unique, where = np.unique(values, return_inverse=True)
    names = np.array([name(value) for value in unique.tolist()], dtype=object)
    flat = names[where.reshape(-1, values.shape[-1])]
    return list(zip(*flat.T.tolist(), strict=True))


def _joined(parts: list[list[tuple[str, ...]]], by: str) -> list[tuple[str, ...]]:
    """Join the words of several axes, replica by replica."""
    if len(parts) == 1:
        return parts[0]
    return [tuple(map(by.join, zip(*words, strict=True))) for words in zip(*parts, strict=True)]


def _data(owners: Ownership, memory: list[list[tuple[str, ...]]]) -> list[list[tuple[str, str]]]:
    """Return per attribute a list of (name, value), one for each cell."""
    rows, columns = owners.shape
    named: list[tuple[str, list[tuple[str, ...]]]] = []
    if owners.warp is not None:
        named.append(("warp", _words(owners.warp, str)))
    if owners.lane is not None:
        named.append(("lane", _words(owners.lane, str)))
    for prefix, values in owners.threads:
        if prefix not in _LETTER.values():
            named.append((prefix, _words(values, str)))
    for n, (axis, values) in enumerate(owners.memory):
        named.append((axis.lower(), _words(values, str)) if n else ("register", memory[0]))
    pairs: dict[tuple[str, tuple[str, ...]], tuple[str, str]] = {}

    def pair(key: str, words: tuple[str, ...]) -> tuple[str, str]:
        found = pairs.get((key, words))
        if found is None:
            found = pairs[key, words] = (key, " ".join(dict.fromkeys(words)))
        return found

    row = [("row", str(i)) for i in range(rows)]
    column = [("col", str(j)) for j in range(columns)]
    return [
        *([pair(key, words) for words in values] for key, values in named),
        [place for place in row for _ in range(columns)],
        column * rows,
    ]
