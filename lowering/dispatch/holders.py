"""Which threads hold a region of a register tile, in which registers, and which elements.

Every primitive on registers asks here, so that only threads that hold the region take part. The
answer is read from the whole buffer (the element in each register of each thread): the layout of a
region that lies in some threads does not say in which.

Threads that the layout does not distinguish hold copies. All of them load and compute; of those
that would store one element to one address, the first does. Threads that hold nothing of a region
do nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError, TileLayout
from layoutalg.algebra.axis import WARP
from layoutalg.layouts.thread_slots import THREADS_IN
from lowering.dispatch.addresses import MOST, Coordinate, every_value, region_tile, register_tile
from lowering.ir.index import Guard, Index, as_index
from lowering.ir.ops import Op, When
from lowering.ir.register_map import (
    axis_extent,
    element_map,
)
from lowering.ir.tiles import Buffer, BufferRegion, cells, reached

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


# -- sets of threads ------------------------------------------------------------------------------


def guards_of(taking: Mask) -> tuple[Guard, ...]:
    """Return conditions on digits of the thread number that hold for exactly these threads.

    Args:
        taking: of each thread of the CTA, whether it takes part.

    Raises:
        LayoutError: no product of ranges of digits is this set.

    >>> thread = np.arange(128)
    >>> [each.render("script") for each in guards_of((thread % 32 < 16) & (thread >= 32))]
    ['(thread // 16 % 2) < 1', '1 <= (thread // 32) and (thread // 32) < 4']
    """
    count = len(taking)
    thread = Index.of("thread", count)
    known: dict[int, list[Guard] | None] = {}

    def solved(unit: int, mask: Mask) -> list[Guard] | None:
        """Return conditions on ``thread // unit``, the fewest; None where there are none."""
        if mask.all():
            return []
        if unit not in known:
            cuts = (cut(unit, extent, mask) for extent in range(2, len(mask) + 1))
            known[unit] = min((each for each in cuts if each is not None), key=len, default=None)
        return known[unit]

    def cut(unit: int, extent: int, mask: Mask) -> list[Guard] | None:
        """Return the conditions that a digit of this extent and those above it make."""
        if len(mask) % extent:
            return None
        table = mask.reshape(-1, extent)
        rest: Mask = np.asarray(table.any(axis=1))
        own = table[rest][0]
        low, high = int(np.argmax(own)), int(extent - np.argmax(own[::-1]))
        if (table[rest] != own).any() or not own[low:high].all():
            return None
        above = solved(unit * extent, rest)
        if above is None:
            return None
        return [*([] if own.all() else [Guard(thread // unit % extent, low, high)]), *above]

    found = solved(1, taking) if taking.any() else None
    if found is None:
        raise LayoutError(f"registers: no digits of the thread number select {named(taking)}")
    assert (selected(found, count) == taking).all(), (found, taking)
    return tuple(found)


def selected(guards: Sequence[Guard], threads: int) -> Mask:
    """Return the threads for which conditions on the thread number hold.

    >>> selected([Guard(Index.of("thread", 4), 1, 3)], 4).tolist()
    [False, True, True, False]
    """
    taking = np.ones(threads, dtype=bool)
    for guard in guards:
        taking &= guard.holds({"thread": np.arange(threads)})
    return taking


def named(taking: Mask) -> str:
    """Return a set of threads in words.

    >>> named(np.arange(64) % 32 >= 16), named(np.arange(96) >= 32), named(np.arange(32) == 5)
    ('lanes 16..31 of each warp', 'warps 1..2', 'lane 5 of each warp')
    """
    warps = taking.reshape(-1, WARP) if len(taking) % WARP == 0 else taking[None]
    if (warps == warps[0]).all() and not taking.all():
        return f"{_runs('lane', warps[0])} of each warp"
    if (warps == warps[:, :1]).all():
        return _runs("warp", warps[:, 0])
    return _runs("thread", taking)


def _runs(noun: str, taking: Mask) -> str:
    """Return the numbers in a set as ranges."""
    places = np.flatnonzero(taking)
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    runs = [
        f"{run[0]}" if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in np.split(places, breaks)
    ]
    shown = runs if len(runs) <= 4 else [*runs[:3], "…"]
    return f"{noun}{'s' * (len(places) != 1)} {', '.join(shown)}"


@dataclass(frozen=True, eq=False)
class ControlFlow:
    """The control flow around a call: which threads reach it, and the values of named indices.

    ``active``: the threads for which the conditions around the call hold; None: all, or none.
    ``unknown``: a condition on the thread and on values that are not known here: fewer may be
    active. ``named``: the value of each named index. ``guards``: the conditions, with these values.
    """

    active: Mask | None = None
    unknown: str = ""
    named: Mapping[str, Index] = field(default_factory=dict)
    guards: tuple[Guard, ...] = ()

    def under(self, guards: Sequence[Guard], threads: int) -> ControlFlow:
        """Return the control flow under more conditions.

        >>> thread = Index.of("thread", 64)
        >>> named(ALL.under([Guard(thread // 32, 0, 1)], 64).active)
        'warp 0'
        >>> ALL.under([Guard(thread + Index.free("n"), 0, 8)], 64).unknown
        '(thread + n) < 8'
        """
        found = self
        for guard in guards:
            known = guard.replaced(self.named)
            found = replace(found, guards=(*found.guards, known))
            if known.variables() == {"thread"}:
                taking = np.broadcast_to(known.holds({"thread": np.arange(threads)}), (threads,))
                active = taking if found.active is None else taking & found.active
                found = replace(found, active=active)
            elif "thread" in known.variables():
                found = replace(found, unknown=guard.render("script"))
        return found

    def groups(self, memory: BufferRegion, threads: int) -> Ints:
        """Return a number per thread: threads of one number address the same part of a buffer.

        A region that begins at an index that varies with the thread is another in each of them.

        Raises:
            LayoutError: two threads begin at one place for some values of other variables, and not
                for others; or there are too many values.
        """
        moving = [self._moving(begin) for begin, _ in memory.ranges]
        env = every_value([Index.of("thread", threads), *moving], MOST)  # the thread comes first
        if env is None or any(each.free_variables() for each in moving):
            raise LayoutError(
                f"registers: {memory} begins at too many places by thread and by other variables "
                "to say which of several copies is stored: add the thread's part and theirs"
            )
        begins = [np.broadcast_to(each.value(env), len(env["thread"])) for each in moving]
        _, place = np.unique(np.stack(begins, axis=1), axis=0, return_inverse=True)
        table = place.reshape(threads, -1)
        rows, group = np.unique(table, axis=0, return_inverse=True)
        if (np.diff(np.sort(rows, axis=0), axis=0) == 0).any():
            raise LayoutError(
                f"registers: some threads begin {memory} at one place for some values of its "
                "variables only; which of several copies is stored is not known"
            )
        return np.asarray(group, dtype=np.int64).reshape(-1)

    def _moving(self, begin: Any) -> Index:
        """Return the terms of a begin that vary with the thread."""
        varying = {name: value for name, value in self.named.items() if _by_thread(value)}
        index = as_index(begin).replaced(varying)
        parts = (Index((term,)) for term in index.terms)
        return sum((part for part in parts if _by_thread(part)), Index())


def _by_thread(index: Index) -> bool:
    return "thread" in index.variables()


ALL = ControlFlow()


def only(taking: Mask, ops: Sequence[Op], active: Mask | None = None) -> tuple[Op, ...]:
    """Return operations under the condition that only these threads execute them.

    Args:
        taking: which threads.
        ops: what they do.
        active: the threads that reach the call; by default all of the CTA.

    >>> from lowering.ir.ops import Registers, Zero, script
    >>> print(script(only(np.arange(64) < 32, [Zero(Registers("r", (0, 1)))])))
    if (thread // 32) < 1:
        r[0,1] = 0
    """
    here = np.ones_like(taking) if active is None else active
    if not ops or not (taking & here).any():
        return ()
    if taking[here].all():
        return tuple(ops)
    return (When(guards_of(taking), tuple(ops)),)


# -- what a buffer holds --------------------------------------------------------------------------


@lru_cache(maxsize=512)
def held(buffer: Buffer, threads: int) -> Ints:
    """Return what each thread of a CTA holds of a buffer: the flat element in each register.

    Threads that the layout does not tell apart hold copies; -1: none.

    Raises:
        LayoutError: the layout has no digit form, names threads that the CTA does not have, or
            keeps an element in two registers of one thread.

    >>> from layoutalg import S, laneid
    >>> r = Buffer("r", (16, 2), "float32", layout=TileLayout(S[(16, 2) : (1 @ laneid, 1)]))
    >>> held(r, 32)[[0, 5, 21]].tolist()
    [[0, 1], [10, 11], [10, 11]]
    """
    check_threads_exist(buffer, threads)
    layout, shape = buffer.layout, buffer.shape
    tile = register_tile(layout, shape, threads, copies=True)
    count = cells(buffer)
    found = np.full((threads, count), -1, dtype=np.int64)
    for register, place in tile.places.items():
        found[:, register] = _flat(place, shape, threads)
    found[~selected(tile.guards, threads)] = -1
    exact = element_map(layout, shape, threads, count)
    named_ones = (exact >= 0).any(axis=1)
    if (found[named_ones] != exact[named_ones]).any():
        raise LayoutError(
            f"registers: {layout} keeps an element in several registers of one thread; a copy in "
            "each of several threads fits"
        )
    return found


def _flat(place: Coordinate, shape: Sequence[int], threads: int) -> Ints:
    """Return the flat element at a coordinate, for every thread."""
    env = {"thread": np.arange(threads)}
    total: Ints = np.zeros(threads, dtype=np.int64)
    for index, extent in zip(place, shape, strict=True):
        total = total * int(extent) + index.value(env)
    return total


@lru_cache(maxsize=512)
def check_threads_exist(buffer: Buffer, threads: int) -> None:
    """Refuse a layout of registers that names threads which the CTA does not have.

    Raises:
        LayoutError: the axis and its reach are named.

    >>> from layoutalg import parse
    >>> r = Buffer("r", (40, 4), "float32", layout=parse("S[(40,4):(1@laneid,1)]"))
    >>> check_threads_exist(r, 64)
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: registers: the layout of r names laneid 0..39; in a CTA of 64 \
threads laneid is 0..31: S[(40,4):(1@laneid,1)]
    """
    layout = buffer.layout
    if not isinstance(layout, TileLayout):
        raise LayoutError(
            f"registers: {buffer.name} is swizzled ({layout}); registers have no addresses to "
            "permute: use a TileLayout"
        )
    for axis, (low, high) in reached(layout).items():
        if axis.memory:
            continue
        extent = axis_extent(axis, threads)
        if low < 0 or high >= extent:
            raise LayoutError(
                f"registers: the layout of {buffer.name} names {axis} {low}..{high}; in a CTA of "
                f"{threads} threads {axis} is 0..{extent - 1}: {layout}"
            )
    exact = element_map(layout, buffer.shape, threads, cells(buffer))
    lost = np.setdiff1d(np.arange(np.prod(buffer.shape)), exact)
    if lost.size:
        apart = layout.is_injective(buffer.shape)
        if not apart:
            raise LayoutError(
                f"registers: {layout} puts two elements of {buffer.name} into one register of a "
                f"thread: {apart.reason}"
            )
        at = tuple(int(i) for i in np.unravel_index(int(lost[0]), buffer.shape))
        raise LayoutError(
            f"registers: no thread of a CTA of {threads} holds element {at} of {buffer.name}: "
            f"{layout}"
        )


# -- what a region holds --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Holders:
    """Threads that hold their part of a region in the same registers.

    ``elements``: the flat element of the region in each of ``registers``, by thread; -1: none.
    ``layout``, ``shape`` and ``begin``: the registers' coordinates in the region are those in this
    layout of this shape, less ``begin``. ``copies``: a bit for each active thread that holds
    what one of these stores; see :func:`firsts`.
    """

    region: BufferRegion
    threads: int
    registers: tuple[int, ...]
    taking: Mask
    elements: Ints
    layout: TileLayout
    shape: tuple[int, ...]
    begin: tuple[int, ...]
    copies: int = 0

    def within(self, active: Mask | None) -> Mask:
        """Return those of its threads that reach a call; None: all."""
        return self.taking if active is None else self.taking & active

    def places(self, thread: Index | None = None) -> Mapping[int, Coordinate]:
        """Return each register's coordinate in the region, of a thread or of the running one."""
        tile = register_tile(self.layout, self.shape, self.threads, thread, copies=True)
        return {
            register: tuple(index - begin for index, begin in zip(place, self.begin, strict=True))
            for register, place in tile.places.items()
            if register in self.registers
        }


@lru_cache(maxsize=512)
def holders_of(region: BufferRegion, threads: int) -> tuple[Holders, ...]:
    """Return the threads that hold a region, grouped by the registers in which they hold it.

    Args:
        region: of a buffer in registers.
        threads: of the CTA.

    Raises:
        LayoutError: as :func:`held`.

    >>> from layoutalg import S, laneid
    >>> r = Buffer("r", (32, 4), "float32", layout=TileLayout(S[(32, 4) : (1 @ laneid, 1)]))
    >>> (part,) = holders_of(r[16:32, 1:3], 32)
    >>> named(part.taking), part.registers, [str(each) for each in part.places()[2]]
    ('lanes 16..31 of each warp', (1, 2), ['thread + -16', '1'])
    """
    check_static(region)
    whole = held(region.buffer, threads)
    box = np.full(region.buffer.shape, -1, dtype=np.int64)
    inside = tuple(slice(begin, end) for begin, end in region.ranges)
    box[inside] = np.arange(box[inside].size).reshape(box[inside].shape)
    elements = np.where(whole >= 0, box.reshape(-1)[whole], -1)
    kinds, kind = np.unique(elements >= 0, axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    found = []
    for at, used in enumerate(kinds):
        if used.any():
            registers = tuple(int(register) for register in np.flatnonzero(used))
            taking = kind == at
            own = np.where(taking[:, None], elements[:, used], -1)
            found.append(_part(region, threads, registers, taking, own))
    return tuple(found)


def _part(
    region: BufferRegion,
    threads: int,
    registers: tuple[int, ...],
    taking: Mask,
    elements: Ints,
) -> Holders:
    """Return the holders with coordinates by the layout of the region, else of the buffer.

    Whichever is taken agrees with ``elements`` for every thread that takes part.
    """
    shape, box = region.buffer.shape, tuple(int(extent) for extent in region.shape)
    begin = tuple(begin for begin, _ in region.ranges)
    forms = [(region.buffer.layout, shape, begin)]
    try:
        piece = region_tile(region)
    except LayoutError:
        pass
    else:
        forms.insert(0, (piece, box, (0,) * len(box)))
    for form in forms:
        part = Holders(region, threads, registers, taking, elements, *form)
        try:
            places = part.places()
        except LayoutError:
            continue
        if tuple(sorted(places)) == registers and all(
            (_flat(places[register], box, threads) == elements[:, at])[taking].all()
            for at, register in enumerate(registers)
        ):
            return part
    raise LayoutError(f"registers: no digits of the thread number say who holds {region}")


def check_static(region: BufferRegion) -> None:
    """Refuse a region of registers at a variable index: register numbers are static.

    Raises:
        LayoutError: a bound is no number.
    """
    for begin, end in region.ranges:
        if type(begin) is not int or type(end) is not int:
            raise LayoutError(
                f"registers: the region {region} must have numbers as bounds: register numbers are "
                "static; unroll the loop, or take a variable of an unrolled loop"
            )


def firsts(
    parts: Sequence[Holders], flow: ControlFlow = ALL, memory: BufferRegion | None = None
) -> tuple[Holders, ...]:
    """Return the holders that store: of copies, the first active thread.

    Args:
        parts: of one region.
        flow: the control flow around the call.
        memory: where they store; copies that go to different addresses are all stored.

    Raises:
        LayoutError: some of what a thread holds, and not all, is stored by another; or which thread
            is the first active one is not known.

    >>> from layoutalg import S, laneid
    >>> r = Buffer("r", (16, 2), "float32", layout=TileLayout(S[(16, 2) : (1 @ laneid, 1)]))
    >>> [named(part.taking) for part in firsts(holders_of(r.region(), 64))]
    ['threads 0..15']
    """
    size = 1 + max(int(part.elements.max()) for part in parts)
    count = parts[0].threads
    active = flow.active
    group = np.zeros(count, dtype=np.int64) if memory is None else flow.groups(memory, count)
    first = np.full(size * (int(group.max()) + 1), count, dtype=np.int64)
    thread = np.arange(count)
    keys = []
    for part in parts:
        taking = part.within(active)
        keys.append((taking, part.elements + group[:, None] * size))
        own = np.broadcast_to(thread[:, None], part.elements.shape)[taking]
        np.minimum.at(first, keys[-1][1][taking], own)
    found = []
    for part, (taking, key) in zip(parts, keys, strict=True):
        mine = np.zeros_like(key, dtype=bool)
        mine[taking] = first[key[taking]] == thread[taking, None]
        some, every = mine.any(axis=1), mine.all(axis=1)
        if (some != every).any():
            at = int(np.flatnonzero(some != every)[0])
            raise LayoutError(
                f"registers: thread {at} holds some elements of {part.region} that another thread "
                "stores, and some that none does"
            )
        if flow.unknown and (taking & ~every).any():
            raise LayoutError(
                f"registers: {named(taking)} hold copies in {part.region}, of which the first "
                f"stores; which is the first active one under {flow.unknown} is not known"
            )
        if every.any():
            others = np.flatnonzero(taking & ~every)
            copies = sum(1 << int(each) for each in others)
            found.append(replace(part, taking=np.asarray(every), copies=copies))
    return tuple(found)


def has_copies(region: BufferRegion, threads: int) -> bool:
    """Say whether several threads hold the same element of a region.

    >>> from layoutalg import S, laneid
    >>> r = Buffer("r", (16, 2), "float32", layout=TileLayout(S[(16, 2) : (1 @ laneid, 1)]))
    >>> has_copies(r.region(), 32), has_copies(r.region(), 16)
    (True, False)
    """
    parts = holders_of(region, threads)
    held = sum(int((part.elements[part.taking] >= 0).sum()) for part in parts)
    return held > math.prod(int(extent) for extent in region.shape)


def check_reached(parts: Sequence[Holders], active: Mask | None) -> None:
    """Refuse a branch that no thread reaches which holds some element of a region.

    Raises:
        LayoutError: the element is named.
    """
    if active is None:
        return
    size = int(np.prod(parts[0].region.shape))
    seen = np.zeros(size, dtype=bool)
    for part in parts:
        seen[part.elements[part.taking & active]] = True
    if not seen.all():
        region = parts[0].region
        at = np.unravel_index(int(np.flatnonzero(~seen)[0]), region.shape)
        element = tuple(int(i) + b for i, (b, _) in zip(at, region.ranges, strict=True))
        raise LayoutError(
            f"registers: no active thread holds element {element} of {region}; active in this "
            f"branch: {named(active)}"
        )


def uniform_holders(
    region: BufferRegion, threads: int, unit: str, active: Mask | None = None
) -> Holders:
    """Return the threads that hold a region, for an instruction of whole warps or warpgroups.

    Args:
        region: of a buffer in registers.
        threads: of the CTA.
        unit: "warp" or "warpgroup".
        active: the threads that reach the call; by default all.

    Raises:
        LayoutError: threads hold it in different registers, or some of a unit hold none of it.

    >>> from layoutalg import parse
    >>> r = Buffer("r", (32, 4), "float32", layout=parse("S[(32,4):(1@laneid,1)]"))
    >>> uniform_holders(r[:, 2:4], 32, "warp").registers
    (2, 3)
    >>> uniform_holders(r[0:16], 32, "warp")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: lanes 16..31 of each warp hold no part of r[0:16,0:4]: whole \
warps take part
    """
    parts = holders_of(region, threads)
    check_units(unit, active)
    check_reached(parts, active)
    taking = parts[0].taking
    for part in parts[1:]:
        taking = taking | part.taking
    check_units(unit, taking, region)
    if len(parts) > 1:
        raise LayoutError(
            f"all threads of a {unit} must hold {region} in the same registers; "
            f"{named(parts[0].taking)} hold it in registers {_listed(parts[0].registers)}, "
            f"{named(parts[1].taking)} in {_listed(parts[1].registers)}"
        )
    return parts[0]


def _listed(registers: Sequence[int]) -> str:
    shown = [str(register) for register in registers[:4]]
    return ", ".join(shown if len(registers) <= 4 else [*shown, "…"])


def check_units(unit: str, taking: Mask | None, region: BufferRegion | None = None) -> None:
    """Refuse a set of threads that is not whole warps, or warpgroups.

    Raises:
        LayoutError: it is not.
    """
    if taking is None:
        return
    size = THREADS_IN[unit]
    if len(taking) % size:
        raise LayoutError(f"needs whole {unit}s of {size} threads; got {len(taking)} threads")
    units = taking.reshape(-1, size)
    if (units != units[:, :1]).any():
        what = "are not active here" if region is None else f"hold no part of {region}"
        raise LayoutError(f"{named(~taking)} {what}: whole {unit}s take part")
