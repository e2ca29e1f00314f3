"""The table of a distributed layout: which element each slot of each thread of a CTA holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import WARP, Axis, laneid, m, tid_in_wg, tx, warpid, wgid, wid_in_wg
from layoutalg.algebra.parts import HasParts, copies, scope
from layoutalg.algebra.tables import IntArray, table
from layoutalg.errors import LayoutError
from layoutalg.sizes.budget import ENTRIES, check_budget
from layoutalg.sizes.size import Size

MAX_THREADS = 1024
THREADS_IN = {"thread": 1, "warp": WARP, "warpgroup": 4 * WARP}
"""How many threads each unit smaller than a CTA has."""
THREADS_OF: dict[Axis, int] = {
    laneid: 1, tid_in_wg: 1, tx: 1, wid_in_wg: WARP, warpid: WARP, wgid: THREADS_IN["warpgroup"]
}  # fmt: skip
"""Per thread axis: how far apart in the CTA's thread numbers its neighbours are."""


def check_distributed(parts: HasParts, what: str, name: str) -> None:
    """Refuse a layout that does not put elements into registers of one CTA's threads.

    Args:
        parts: the layout.
        what: the operation, for messages.
        name: what the layout is there, for messages.

    Raises:
        LayoutError: an axis is neither m nor a thread axis inside the CTA, or the axes conflict.

    >>> from layoutalg import parse
    >>> check_distributed(parse("S[(4,2):(1@TCol,1)]"), "show", "D")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: show: D must lie in the registers (axis m) of the threads of one \
CTA (laneid, tid_in_wg, tx, wid_in_wg, warpid, wgid); got axis TCol in S[(4,2):(1@TCol,1)]
    """
    if not hasattr(parts, "shard"):
        raise LayoutError(f"{what}: {name} must be a layout of registers; got {parts!r}")
    axes = {it.axis for it in parts.shard + copies(parts) if it.extent != 1} | set(parts.offset)
    for axis in sorted(axes, key=str):
        if axis is not m and axis not in THREADS_OF:
            raise LayoutError(
                f"{what}: {name} must lie in the registers (axis m) of the threads of one CTA "
                f"({', '.join(map(str, THREADS_OF))}); got axis {axis} in {parts}"
            )
    scope(parts)


def _check_inside(axis: str, values: IntArray, parts: HasParts, what: str, name: str) -> None:
    """Refuse coordinates that an axis inside a warp, or a warpgroup, does not have.

    Raises:
        LayoutError: the axis and its reach are named.
    """
    known = Axis.get(axis)
    whole = THREADS_IN.get(str(known.scope)) if known in THREADS_OF else None
    extent = 0 if whole is None else whole // THREADS_OF[known]
    if extent and values.min() >= 0 and values.max() >= extent:
        raise LayoutError(
            f"{what}: {name} must use {axis} 0..{extent - 1}; {parts} uses {axis} "
            f"{values.min()}..{values.max()}: tx counts all threads of a CTA"
        )


def elements_held(parts: HasParts, shape: Sequence[Size], what: str, name: str) -> IntArray:
    """Return the flat index of the element in each slot of each thread; -1 where there is none.

    Args:
        parts: a concrete layout over thread axes and m (the slot: the element inside the thread).
        shape: logical extents.
        what: the operation, for messages.
        name: what the layout is there, for messages.

    Returns:
        An array (threads, slots), whole warps. Thread axes that the layout does not name are 0.

    Raises:
        LayoutError: other axes, a coordinate below 0, threads beyond a CTA, or two elements in one
            slot.

    >>> from layoutalg import parse
    >>> D = parse("S[(2,8,4,2):(2,4@laneid,1@laneid,1)]")
    >>> elements_held(D, (16, 8), "show", "D")[5].tolist()
    [10, 11, 74, 75]
    """
    check_distributed(parts, what, name)
    places = table(parts, shape, replicas=True)
    first = next(iter(places.values()), np.zeros((1,), dtype=np.int64))
    thread, slot = np.zeros_like(first), np.zeros_like(first)
    for axis, values in places.items():
        if axis == "m":
            slot = slot + values
        else:
            _check_inside(axis, values, parts, what, name)
            thread = thread + values * THREADS_OF.get(Axis.get(axis), 0)  # others stay at 0
    low, high = min(thread.min(), slot.min()), int(thread.max())
    if low < 0 or high >= MAX_THREADS:
        raise LayoutError(
            f"{what}: {name} must use threads 0..{MAX_THREADS - 1} and slots from 0; {parts} uses "
            f"threads {thread.min()}..{high}, slots {slot.min()}..{slot.max()}"
        )
    check_budget(
        what, (high + WARP) * (int(slot.max()) + 1), ENTRIES, "slots of threads",
        "Renumber its registers",
    )  # fmt: skip
    elements = np.arange(first.size // first.shape[-1], dtype=np.int64)
    element = np.repeat(elements, first.shape[-1])
    thread, slot = thread.reshape(-1), slot.reshape(-1)
    held = np.full((high // WARP * WARP + WARP, int(slot.max()) + 1), -1, dtype=np.int64)
    held[thread, slot] = element
    lost = np.flatnonzero(held[thread, slot] != element)
    if lost.size:
        at = int(lost[0])
        pair = [
            tuple(int(i) for i in algebra.split(int(x), shape))
            for x in (element[at], held[thread[at], slot[at]])
        ]
        raise LayoutError(
            f"{what}: {name} must keep its elements apart; {parts} puts {pair[0]} and {pair[1]} "
            f"into slot {slot[at]} of thread {thread[at]}"
        )
    return held
