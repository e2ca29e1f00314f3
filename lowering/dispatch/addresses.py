"""Index arithmetic from layouts: coordinates of a thread's registers, and addresses in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import Axis, Iter, LayoutError, TileLayout, m
from layoutalg.algebra import iters as algebra
from layoutalg.sizes.size import Size, is_int
from lowering.ir.index import FREE, Digit, Guard, Index, Opaque, as_index
from lowering.ir.register_map import thread_coordinate
from lowering.ir.tiles import Buffer, BufferRegion

Coordinate = tuple[Index, ...]
MOST = 1 << 16  # values of variables together, up to which a range is exact
PERIOD = 1 << 12  # values of a number of the launch that are tried one by one
TOGETHER = 1 << 24  # threads times values of variables that are evaluated one by one
SEVERAL = 8  # values that are not worth a search for fewer


@dataclass(frozen=True)
class RegisterTile:
    """A region of a register buffer: which element of the region each register holds.

    ``places`` maps a register to its coordinate in the region, an index per dimension; a thread
    holds it only where all ``guards`` hold.
    """

    places: Mapping[int, Coordinate]
    guards: tuple[Guard, ...]


def register_tile(
    layout: TileLayout,
    shape: Sequence[int],
    threads: int,
    thread: Index | None = None,
    copies: bool = False,
) -> RegisterTile:
    """Return the coordinates of all registers of a layout, from its inverse.

    Args:
        layout: over thread axes inside the CTA and axis m; replicas are copies.
        shape: the tile's shape.
        threads: threads of the CTA.
        thread: the thread whose registers are meant, as an index; by default the running thread.
        copies: let threads that the layout does not name hold copies: digits of the thread number
            that no iter names are ignored, so that nothing is guarded (unless the layout starts at
            a later thread).

    Raises:
        LayoutError: the layout has no digit form, or an axis beyond the CTA.

    >>> from layoutalg import fragments
    >>> tile = register_tile(fragments.get("mma.m16n8k8.f16", "B").layout, (8, 8), 32)
    >>> [str(index) for index in tile.places[1]]
    ['thread % 4 * 2 + 1', 'thread // 4']
    """
    dense, numbers = _dense(layout)
    inverse = dense.inverse(shape)
    if thread is None:
        thread = Index.of("thread", threads)
    base: list[Index] = [Index((), int(value)) for value in inverse.base]
    guards: list[Guard] = []
    for axis in dict.fromkeys((*inverse.axes, *inverse.offset)):
        if axis is m:
            continue
        for place, digit in inverse.digits(axis, thread_coordinate(axis, thread)):
            limit = 1 if place is None else int(place.extent)
            if digit.low < 0 or digit.high >= limit:
                if copies and digit.low >= 0:
                    digit = digit % limit
                else:
                    guards.append(Guard(digit, 0, limit))
            if place is not None and place.dim is not None:
                base[place.dim] += digit * int(place.weight)
    places = {}
    for count, register in sorted(enumerate(numbers), key=lambda each: each[1]):
        coordinate = list(base)
        for place, digit in inverse.digits(m, count):
            if place is not None and place.dim is not None:
                coordinate[place.dim] += digit * int(place.weight)
        places[register] = tuple(coordinate)
    return RegisterTile(places, tuple(guards))


def _dense(layout: TileLayout) -> tuple[TileLayout, list[int]]:
    """Return a layout with its registers renumbered 0, 1, 2, …, and the numbers that they had.

    Register numbers may be any that differ: they are listed, so that the inverse need not divide
    them.

    Raises:
        LayoutError: two elements share a register of a thread, or a memory axis is not m.
    """
    for axis in (*(it.axis for it in layout.shard + layout.copies), *layout.offset):
        if axis.memory and axis is not m:
            raise LayoutError(f"registers: registers lie on axis m; {layout} has {axis}")
    shard: list[Iter] = []
    numbers = [int(layout.offset.get(m, 0))]
    for it in reversed(layout.shard):
        if it.axis is m:
            shard.append(Iter(it.extent, len(numbers), m))
            steps = [step * int(it.stride) for step in range(int(it.extent))]
            numbers = [step + number for step in steps for number in numbers]
        else:
            shard.append(it)
    if len(set(numbers)) != len(numbers):
        raise LayoutError(f"registers: {layout} puts two elements into one register of a thread")
    offset: dict[Axis | str, Size] = {a: v for a, v in layout.offset.items() if a is not m}
    return TileLayout.from_iters(shard[::-1], layout.copies, offset), numbers


def region_tile(region: BufferRegion) -> TileLayout:
    """Return the layout of a region of a register buffer, over the region's shape.

    Raises:
        LayoutError: no layout says the region.
    """
    layout = region.buffer.layout
    if region == region.buffer.region():
        return layout  # type: ignore[no-any-return]
    piece = layout.slice(region.buffer.shape, region.ranges)
    if piece is None:
        raise LayoutError(
            f"registers: no layout says the region {region}: two digits of {layout} would have to "
            "move at once"
        )
    return piece  # type: ignore[no-any-return]


def memory_address(buffer: Buffer, coordinate: Sequence[Index]) -> Index:
    """Return the address, in elements, of a coordinate of a buffer in memory.

    Raises:
        LayoutError: the layout does not group by the buffer's shape, or leaves axis m.

    >>> from layoutalg import ComposeLayout, parse
    >>> A = Buffer("A", (16, 16), "float16", scope="shared", layout=ComposeLayout(3, 1, 3,
    ...            parse("S[256:1]")))
    >>> lane = Index.of("lane", 32)
    >>> str(memory_address(A, (lane % 16, lane // 16 * 8)))
    'lane % 16 * 16 + ((lane // 16) ^ (lane // 4 % 2)) * 8'
    """
    address: Index = buffer.layout.permute(linear_address(buffer, coordinate))
    return address


def linear_address(buffer: Buffer, coordinate: Sequence[Index]) -> Index:
    """Return the address of a coordinate before the swizzle: where a matrix descriptor starts.

    Raises:
        LayoutError: as :func:`memory_address`.

    >>> from layoutalg import ComposeLayout, parse
    >>> B = Buffer("B", (128, 64), "float16", scope="shared", layout=ComposeLayout(3, 3, 3,
    ...            parse("S[(128,64):(64,1)]")))
    >>> k = Index.of("k", 4)
    >>> str(linear_address(B, (Index(), k * 16)))
    'k * 16'
    """
    layout, tile = buffer.layout, buffer.layout.tile_layout
    for it in tile.shard:
        if it.axis is not m:
            raise LayoutError(f"address: memory lies on axis m; {layout} has {it.axis}")
    if tile.copies:
        raise LayoutError(f"address: an element of {buffer} must have one address; got {layout}")
    return linear_addresses(buffer, coordinate, (m,))[0]


def linear_addresses(
    buffer: Buffer, coordinate: Sequence[Index], axes: Sequence[Axis]
) -> list[Index]:
    """Return the position of a coordinate on each axis, before the swizzle; of copies, the first.

    Raises:
        LayoutError: the layout does not group by the buffer's shape.

    >>> from layoutalg import TCol, TLane, tmem_datapath_layout
    >>> C = Buffer("C", (128, 64), "float32", "tmem", tmem_datapath_layout("D", 128, 64))
    >>> found = linear_addresses(C, (Index(), Index.of("k", 4) * 16), (TLane, TCol))
    >>> [str(index) for index in found]
    ['0', 'k * 16']
    """
    tile = buffer.layout.tile_layout
    grouped, seps = tile.group(buffer.shape)
    found = {axis: Index((), int(tile.offset.get(axis, 0))) for axis in axes}
    for dim, value in enumerate(coordinate):
        own = grouped.shard[seps[dim] : seps[dim + 1]]
        for it, digit in zip(own, algebra.split(value, algebra.extents(own)), strict=True):
            if it.axis in found:
                found[it.axis] += _strided(digit, it.stride)
    return list(found.values())


def unmoved(region: BufferRegion) -> tuple[tuple[tuple[int, int], ...], Index]:
    """Return the ranges of a region at loop variables 0, and the offset in cells that they add.

    Raises:
        LayoutError: as :func:`memory_address`.

    >>> from layoutalg import parse
    >>> from layoutalg.sizes.symbolic import DigitSymbol
    >>> ring = Buffer("R", (4, 8, 64), "float16", "shared", parse("S[(4,8,64):(512,64,1)]"))
    >>> stage = DigitSymbol("stage", 4)
    >>> ranges, moved = unmoved(ring[stage, 0:8, 0:64])
    >>> ranges, str(moved)
    (((0, 1), (0, 8), (0, 64)), 'stage * 512')
    """
    ranges, begins = fixed_ranges(region)
    here = linear_address(region.buffer, [Index((), begin) for begin, _ in ranges])
    return ranges, linear_address(region.buffer, begins) - here


def fixed_ranges(region: BufferRegion) -> tuple[tuple[tuple[int, int], ...], list[Index]]:
    """Return the ranges of a region at loop variables 0, and the indices at which it begins.

    Raises:
        LayoutError: it begins at no linear expression of variables.
    """
    begins = [as_index(begin) for begin, _ in region.ranges]
    fixed = [begin.constant for begin in begins]
    ranges = tuple((b, b + int(n)) for b, n in zip(fixed, region.shape, strict=True))
    return ranges, begins


def placed(region: BufferRegion, coordinate: Sequence[Index], shape: Sequence[Size]) -> list[Index]:
    """Return the coordinate in its buffer of a coordinate in a region; extents of 1 may differ.

    Args:
        region: of a buffer in memory.
        coordinate: in a tile that has the region's extents; extents of 1 may be more or fewer.
        shape: of that tile.

    >>> from layoutalg import S
    >>> a = Buffer("a", (4, 8, 8), "float16", "shared", TileLayout(S[4, 8, 8]))
    >>> [str(each) for each in placed(a[2:3, 0:8, 4:8], [Index.free("i"), Index.free("j")], (8, 4))]
    ['2', 'i', 'j + 4']
    """
    wide = [index for index, extent in zip(coordinate, shape, strict=True) if extent != 1]
    return [
        as_index(begin) + wide.pop(0) if extent != 1 else as_index(begin)
        for (begin, _), extent in zip(region.ranges, region.shape, strict=True)
    ]


def edge_guards(buffer: Buffer, coordinate: Sequence[Index]) -> tuple[Guard, ...]:
    """Return the conditions under which an element lies within the bounds of its buffer.

    >>> A = Buffer("A", (64, 64), "float16", "global", bounds=("M", None))
    >>> [guard.render("script") for guard in edge_guards(A, (Index.of("i", 64), Index()))]
    ['i < M']
    """
    return tuple(
        Guard(index, 0, Index.free(bound))
        for index, bound in zip(coordinate, buffer.bounds, strict=True)
        if bound is not None
    )


def one_edge(edges: Sequence[tuple[Guard, ...]], multiple: int) -> bool:
    """Say whether elements are in bounds all together or not at all: the first decides.

    Args:
        edges: of each element, :func:`edge_guards`.
        multiple: what divides every bound.

    >>> i, low = Index.of("i", 8), Index.free("M")
    >>> pair = [(Guard(i * 2, 0, low),), (Guard(i * 2 + 1, 0, low),)]
    >>> one_edge(pair, 1), one_edge(pair, 8)
    (False, True)
    """
    for each in zip(*edges, strict=True):
        first = each[0].index
        steps = [guard.index - first for guard in each]
        if any(step.terms for step in steps):
            return False
        reach = max(step.constant for step in steps) + 1
        fits = min(step.constant for step in steps) == 0 and first.unit % reach == 0
        if reach > 1 and not (fits and multiple % reach == 0):
            return False
    return True


def _strided(digit: Index, stride: Size) -> Index:
    """Return a digit times its stride: a number, or a multiple of one that only the launch knows.

    Raises:
        LayoutError: a stride that is neither.
    """
    if is_int(stride):
        return digit * int(stride)
    expression: Any = stride
    factor, symbol = expression.as_coeff_Mul()
    if not symbol.is_Symbol or factor != int(factor):
        raise LayoutError(
            f"address: a stride must be a number, or a number times a symbol; got {stride}"
        )
    return digit * Index.free(symbol.name) * int(factor)


def environment(indices: Sequence[Index], threads: int) -> dict[Any, npt.NDArray[np.int64]]:
    """Return arrays over every thread and enough values of the variables, to evaluate with.

    Two indices are equal everywhere, or one is divisible by a power of two everywhere, if they are
    so here; :func:`every_value` is for other questions. Of a variable whose digits only add up,
    that takes 0, one step of each digit, and the last value; digits inside an XOR, a quotient or a
    remainder take all their values. Or, since an index is of degree one from one period of a
    variable to the next (:meth:`Index.period`), all values of the first period, and of an odd
    number of periods later: so of a number that only the launch knows. Where that makes them fewer,
    a quotient or remainder without the thread counts as a variable of its own, which takes any
    value below its bound: more than there are, so what holds for them holds.

    Raises:
        LayoutError: a number that only the launch knows has no period, or too long a one; or there
            are too many values together.

    >>> environment([Index.of("k", 2) * 16], 2)["k"].tolist()
    [0, 0, 1, 1]
    >>> environment([Index.of("k", 4096) * 16 + Index.of("k", 4096) % 2], 1)["k"].tolist()
    [0, 1, 2, 4095]
    >>> i, j = Index.of("i", 4096), Index.of("j", 4096)
    >>> len(environment([(i * 4096 + j) % 3 * 512], 1)["thread"])
    3
    """
    quotients = dict.fromkeys(atom for index in indices for atom in _quotients(index))
    names = {atom: f"quotient {number}" for number, atom in enumerate(quotients)}
    values = _samples([_renamed(index, names) for index in indices] if names else indices)
    if names:
        with suppress(LayoutError):
            plain = _samples(indices)
            if _count(plain) <= _count(values):
                values, names = plain, {}
    if _count(values) * threads > TOGETHER:
        raise LayoutError(
            f"index: {' and '.join(map(str, indices[:2]))} take too many values together, of "
            f"{', '.join(values)}, to be compared: name a part by let()"
        )
    grid = np.meshgrid(*values.values(), np.arange(threads), indexing="ij")
    env: dict[Any, npt.NDArray[np.int64]] = {
        name: each.reshape(-1).astype(np.int64)
        for name, each in zip((*values, "thread"), grid, strict=True)
    }
    return env | {atom: env.get(name, env["thread"] * 0) for atom, name in names.items()}


def _samples(indices: Sequence[Index]) -> dict[str, npt.NDArray[np.int64]]:
    """Return enough values of each variable other than the thread.

    Raises:
        LayoutError: a number that only the launch knows has no period, or too long a one.
    """
    limits = _limits(indices)
    limits.pop("thread", None)
    found = [each for index in indices for each in index.digits()]
    return {
        name: _of_launch(name, indices)
        if limit >= FREE
        else _fewest(name, limit, indices, [each for each in found if each[0].var == name])
        for name, limit in limits.items()
    }


def _count(values: Mapping[str, npt.NDArray[np.int64]]) -> int:
    return math.prod(len(each) for each in values.values())


def _quotients(index: Index) -> Iterator[Opaque]:
    """Yield the outermost quotients and remainders on which no thread has a say."""
    for _, atom in index.terms:
        if isinstance(atom, Opaque):
            if atom.op in ("//", "%") and "thread" not in atom.left.variables():
                yield atom
            else:
                yield from _quotients(atom.left)
                yield from _quotients(atom.right)


def _renamed(index: Index, names: Mapping[Opaque, str]) -> Index:
    """Return an index with variables in the place of some of its parts."""
    total = Index((), index.constant)
    for coefficient, atom in index.terms:
        part = Index(((1, atom),))
        if isinstance(atom, Opaque):
            sides = _renamed(atom.left, names), _renamed(atom.right, names)
            part = Index(((1, Opaque(atom.op, *sides)),))
            if atom in names:
                part = Index.of(names[atom], atom.high + 1)
        total += part * coefficient
    return total


def every_value(indices: Sequence[Index], most: int) -> dict[str, npt.NDArray[np.int64]] | None:
    """Return arrays over all values of the variables together; None where they are too many.

    Of a number that only the launch knows, the least and the largest. For what :func:`environment`
    does not decide: whether something holds somewhere.

    >>> every_value([Index.of("k", 3) * 16], 8)["k"].tolist()
    [0, 1, 2]
    """
    limits = _limits(indices)
    values = [np.array([0, FREE - 1]) if n >= FREE else np.arange(n) for n in limits.values()]
    count = 1
    for each in values:
        count *= len(each)
    if count > most:
        return None
    grid = np.meshgrid(*values, indexing="ij")
    found = {name: each.reshape(-1) for name, each in zip(limits, grid, strict=True)}
    return {"thread": np.zeros(count, dtype=np.int64)} | found


def reach(index: Index, guards: Sequence[Guard] = ()) -> tuple[int, int] | None:
    """Return the least and the largest value of an index where conditions hold; None: not known.

    They are exact where its variables have few values together, else those of its digits' bounds.
    Not known is what depends on numbers of the launch, or where conditions hold nowhere.

    >>> i, j = Index.of("i", 8), Index.of("j", 8)
    >>> reach(i * 16 - 16), reach(i * 16 - 16, [i >= 1]), reach(i - i % 4), reach(j, [i < j])
    ((-16, 96), (0, 96), (0, 4), (1, 7))
    """
    known, related = index.variables(), list[Guard]()
    for _ in (*guards, ()):  # a guard may relate others to the index
        related = [guard for guard in guards if guard.variables() & known]
        known = known.union(*(guard.variables() for guard in related))
    sides = [side for guard in related for side in (guard.index, as_index(guard.high))]
    limits = _limits([index, *sides])
    if any(limit >= FREE for limit in limits.values()):
        return None
    env = every_value([index, *sides], MOST)
    if env is None:
        return index.low, index.high
    taking = np.ones(len(env["thread"]), dtype=bool)
    for guard in related:
        taking &= guard.holds(env)
    found = np.broadcast_to(index.value(env), taking.shape)[taking]
    return (int(found.min()), int(found.max())) if found.size else None


def _limits(indices: Sequence[Index]) -> dict[str, int]:
    """Return the number of values of each variable: the least that an index says of it."""
    limits: dict[str, int] = {}
    for index in indices:
        for name, limit in index.limits().items():
            limits[name] = min(limit, limits.get(name, limit))
    return limits


def _period(name: str, indices: Sequence[Index]) -> int | None:
    """Return the common period of indices in a variable; None: some have none."""
    periods = [period for index in indices if (period := index.period(name))]
    return math.lcm(*periods) if len(periods) == len(indices) else None


def _of_launch(name: str, indices: Sequence[Index]) -> npt.NDArray[np.int64]:
    """Return enough values of a number that only the launch knows.

    Raises:
        LayoutError: there is no period, or it has too many.
    """
    period = _period(name, indices)
    if period is None or period > PERIOD:
        shown = next((index for index in indices if not index.period(name)), indices[0])
        raise LayoutError(
            f"index: {shown} depends on {name}, which only the launch knows, otherwise than by "
            f"sums, multiples, and // and % by at most {PERIOD}"
        )
    later = FREE // period - 1
    first = np.arange(period)
    return np.append(first, first + period * (later - (later % 2 == 0)))


def _fewest(
    name: str, limit: int, indices: Sequence[Index], digits: Sequence[tuple[Digit, bool]]
) -> npt.NDArray[np.int64]:
    """Return enough values of a variable: by its digits or by its period, whichever are fewer."""
    mixed = math.prod(digit.high + 1 for digit in {digit for digit, inside in digits if inside})
    period = _period(name, indices) if mixed > SEVERAL else None
    if period is None or 2 * period >= min(mixed, limit):
        return _enough(limit, digits)
    return np.arange(2 * period)


def _enough(limit: int, digits: Sequence[tuple[Digit, bool]]) -> npt.NDArray[np.int64]:
    """Return enough values of a variable, ascending: all, where its digits do not nest."""
    cuts = {1, limit}
    for digit, _ in digits:
        cuts |= {min(digit.stride, limit), min(digit.stride * digit.extent, limit)}
    steps = sorted(cuts)
    pairs = list(pairwise(steps))
    if any(high % low for low, high in pairs[:-1]):
        return np.arange(limit)
    whole = np.zeros(1, dtype=np.int64)  # all values of the digits that do not only add up
    single = [0]
    for low, high in pairs:
        count = -(-high // low)
        if any(mixed and d.stride <= low < d.stride * d.extent for d, mixed in digits):
            whole = (whole[:, None] + low * np.arange(count)).reshape(-1)
        else:
            single.append(low)
    values = np.unique(np.append(whole[:, None] + np.array(single), limit - 1))
    return values[values < limit]
