"""What a call may write: elements of different addresses, none of which it reads.

Of two elements at one address the last written would stay; a copy whose two sides overlap would
read what it has written. Both are decided by the proof that the buffer's layout is injective, and
only where it is not, element by element over the region.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from layoutalg import LayoutError, TileLayout, Undecided
from layoutalg.algebra.parts import symbols
from layoutalg.proofs.injectivity import is_plainly_injective
from lowering.dispatch.addresses import every_value
from lowering.ir.index import FREE, as_index
from lowering.ir.tiles import Buffer, BufferRegion, TilePrimitiveCall

MOST = 1 << 22  # elements, times starts of a region that moves, that are compared one by one
LARGE = (1 << 26) + 1  # stands for a stride that only the launch knows


def check_writes(call: TilePrimitiveCall) -> None:
    """Refuse a copy whose destination aliases, or overlaps its source.

    A call that says ``aliases`` means the first; the second is never meant.

    Raises:
        LayoutError: the elements, or the regions, are named.

    >>> from layoutalg import parse
    >>> from lowering.ir.tiles import copy
    >>> a = Buffer("a", (8, 8), "float32", "global")
    >>> s = Buffer("s", (8, 8), "float32", "shared", parse("S[(8,8):(4,1)]"))
    >>> check_writes(copy(a, s))
    >>> check_writes(copy(s, a, aliases=True))
    >>> check_writes(copy(s, a))
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: copy: elements (0, 4) and (1, 0) of s[0:8,0:8] share address \
m 4: S[(8,8):(4,1)]; give each an address of its own, or say aliases=True
    """
    dst, src = call.operands.get("dst"), call.operands.get("src")
    if dst is None:
        return
    if not call.config.get("aliases", False):
        check_distinct(dst, call.op)
    if src is not None and src.buffer == dst.buffer and dst.buffer.scope != "local":
        check_disjoint(dst, src, call.op)


def check_distinct(region: BufferRegion, op: str) -> None:
    """Refuse a region in which two elements share an address.

    Raises:
        LayoutError: two such elements are named; or there are too many to compare.

    >>> from layoutalg import parse
    >>> s = Buffer("s", (8, 8), "float32", "shared", parse("S[(8,8):(4,1)]"))
    >>> check_distinct(s[:, 0:4], "copy")
    >>> check_distinct(s[:, 0:5], "copy")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: copy: elements (0, 4) and (1, 0) of s[0:8,0:5] share address \
m 4: S[(8,8):(4,1)]; give each an address of its own, or say aliases=True
    """
    buffer = region.buffer
    tile = _settled(buffer)
    if _is_injective(tile, buffer.shape):
        return
    begins = [as_index(begin) for begin, _ in region.ranges]
    extents = tuple(int(extent) for extent in region.shape)
    env = every_value(begins, MOST)
    count = MOST + 1 if env is None else len(env["thread"])
    free = any(index.high >= FREE - 1 for index in begins)
    if env is None or free or math.prod(buffer.shape) > MOST or count * math.prod(extents) > MOST:
        raise LayoutError(
            f"{op}: {buffer.name} has elements that share an address, and {region} cannot be "
            f"compared one by one: {buffer.layout}; {_fitting(op)}"
        )
    table = tile.table(buffer.shape, replicas=True)
    starts = np.stack([np.broadcast_to(each.value(env), (count,)) for each in begins], axis=1)
    for start in np.unique(starts, axis=0):
        box = tuple(slice(b, b + n) for b, n in zip(start, extents, strict=True))
        _compare(region, {name: values[box] for name, values in table.items()}, start, op)


def _compare(region: BufferRegion, table: dict[str, Any], start: Any, op: str) -> None:
    """Refuse a table in which two elements have one address.

    Raises:
        LayoutError: the elements are named.
    """
    shape = next(iter(table.values())).shape
    rows = np.stack([np.broadcast_to(v, shape).reshape(-1) for v in table.values()], axis=1)
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[inverse.reshape(-1)] != np.arange(len(rows)))
    if again.size:
        pair = [
            tuple(int(i) + int(b) for i, b in zip(np.unravel_index(at, shape), start, strict=False))
            for at in (int(first[inverse.reshape(-1)[again[0]]]), int(again[0]))
        ]
        where = ", ".join(
            f"{name} {int(value)}" for name, value in zip(table, rows[again[0]], strict=True)
        )
        raise LayoutError(
            f"{op}: elements {pair[0]} and {pair[1]} of {region} share address {where}: "
            f"{region.buffer.layout}; {_fitting(op)}"
        )


def _fitting(op: str) -> str:
    """Return what a destination that aliases could be instead."""
    return "give each an address of its own" + ", or say aliases=True" * (op == "copy")


def _settled(buffer: Buffer) -> TileLayout:
    """Return a buffer's layout without its swizzle, a bijection, and with numbers for symbols."""
    tile = buffer.layout.tile_over(buffer.shape)
    names = sorted(symbols(tile))
    settled: TileLayout = tile.subs({name: LARGE + 2 * at for at, name in enumerate(names)})
    return settled


@lru_cache(maxsize=512)
def _is_injective(layout: TileLayout, shape: tuple[int, ...]) -> bool:
    """Say whether a layout is proved injective."""
    try:
        return is_plainly_injective(layout) or bool(layout.is_injective(shape))
    except Undecided:
        return False


def check_disjoint(dst: BufferRegion, src: BufferRegion, op: str) -> None:
    """Refuse two regions of one buffer that overlap, for some value of their variables.

    Raises:
        LayoutError: they do, or whether they do depends on what only the launch knows.

    >>> a = Buffer("a", (16, 8), "float32", "global")
    >>> check_disjoint(a[8:16], a[0:8], "copy")
    >>> check_disjoint(a[4:12], a[0:8], "copy")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: copy: dst a[4:12,0:8] and src a[0:8,0:8] overlap: it would read \
what it has written
    """
    buffer = dst.buffer
    if not _is_injective(_settled(buffer), buffer.shape):
        raise LayoutError(
            f"{op}: {buffer.name} has elements that share an address; dst {dst} and src {src} may "
            f"overlap: {buffer.layout}"
        )
    sides = []
    for one, other in ((dst, src), (src, dst)):
        for (begin, _), (_, end) in zip(one.ranges, other.ranges, strict=True):
            sides.append(as_index(end) - as_index(begin))  # of those that overlap, above 0
    sides = [side for side in sides if side.low <= 0]
    env = every_value(sides, MOST)
    overlap = np.ones(1 if env is None else len(env["thread"]), dtype=bool)
    for side in sides:
        if env is not None:
            overlap &= np.asarray(side.value(env)) > 0
    unknown = any(side.free_variables() for side in sides)
    if overlap.any() or unknown:
        raise LayoutError(
            f"{op}: dst {dst} and src {src} overlap: it would read what it has written"
        )
