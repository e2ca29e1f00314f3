"""Which element of a buffer each thread's register holds, for every thread and register at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import Axis, LayoutError, TileLayout
from layoutalg.layouts.thread_slots import THREADS_IN, THREADS_OF
from lowering.ir.index import Index

WARPGROUP = THREADS_IN["warpgroup"]


def thread_coordinate(axis: Axis, thread: Any) -> Any:
    """Return the coordinate of a thread of the CTA on a thread axis.

    Args:
        axis: an axis that counts threads, warps or warpgroups inside a CTA.
        thread: the thread number: an int, an array, or anything that takes ``//`` and ``%``.

    Raises:
        LayoutError: the axis reaches beyond the CTA.

    >>> thread_coordinate(Axis.get("wid_in_wg"), 165)
    1
    """
    if axis not in THREADS_OF:
        raise LayoutError(f"registers: axis {axis} does not count threads inside a CTA")
    step, whole = THREADS_OF[axis], THREADS_IN.get(str(axis.scope))
    unit = thread // step if step > 1 else thread
    return unit if whole is None else unit % (whole // step)


def axis_extent(axis: Axis, threads: int) -> int:
    """Return how many coordinates a thread axis has in a CTA: those that its threads have.

    Raises:
        LayoutError: the axis reaches beyond the CTA.

    >>> [axis_extent(Axis.get(name), 96) for name in ("laneid", "tid_in_wg", "warpid", "wgid")]
    [32, 96, 3, 1]
    """
    return int(np.max(thread_coordinate(axis, np.arange(threads)))) + 1


def without_idle_replicas(layout: TileLayout) -> TileLayout:
    """Return a layout without the replicas that repeat nothing: of extent 1, or of stride 0.

    >>> from layoutalg import parse
    >>> print(without_idle_replicas(parse("S[8:1] + R[(4,1,2):(0,8,16)]")))
    S[8:1] + R[2:16]
    """
    if layout.copies == layout.replica:
        return layout
    return TileLayout.from_iters(layout.shard, layout.copies, dict(layout.offset.items()))


def element_map(
    layout: TileLayout, shape: tuple[int, ...], threads: int, registers: int
) -> npt.NDArray[np.int64]:
    """Return the flat element that each register of each thread holds; -1 where it holds none.

    Threads at one coordinate of the layout hold copies.

    Args:
        layout: the layout of the whole buffer, over thread axes and axis m.
        shape: the buffer's shape.
        threads: threads of the CTA.
        registers: elements that each thread allocates.

    Raises:
        LayoutError: the layout uses an axis that is neither m nor inside a CTA, or a register below
            zero.

    >>> from layoutalg import fragments
    >>> D = fragments.get("mma.m16n8k8.f16", "D")
    >>> element_map(D.layout, (16, 8), 32, 4)[5].tolist()
    [10, 11, 74, 75]
    """
    table = without_idle_replicas(layout).table(shape, replicas=True)
    memory = [name for name in table if Axis.get(name).memory]
    if set(memory) - {"m"}:
        raise LayoutError(f"registers: registers lie on axis m; {layout} has {', '.join(memory)}")
    flat = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)[..., None]
    register = table.get("m", np.zeros_like(flat))
    if register.min() < 0 or register.max() >= registers:
        raise LayoutError(
            f"registers: {layout} reaches from register {register.min()} to {register.max()}; "
            f"a thread has {registers}"
        )
    element_key: Any = np.zeros_like(register)
    thread_key: Any = np.zeros(threads, dtype=np.int64)
    radix = 1
    for name, values in table.items():
        axis = Axis.get(name)
        if axis.memory:
            continue
        where = thread_coordinate(axis, np.arange(threads))
        if values.min() < 0:
            raise LayoutError(f"registers: {layout} has a negative coordinate on axis {axis}")
        size = int(max(values.max(), where.max())) + 1
        element_key = element_key * size + values
        thread_key = thread_key * size + where
        radix *= size
    dense = np.full((radix, registers), -1, dtype=np.int64)
    dense[element_key, register] = np.broadcast_to(flat, np.broadcast(element_key, register).shape)
    elements: npt.NDArray[np.int64] = dense[thread_key]
    return elements


def by_warpgroup(
    values: npt.NDArray[np.int64], groups: npt.NDArray[np.int64], threads: int
) -> Index | None:
    """Return a number for each warpgroup as an index of the thread; None where it is not linear.

    Args:
        values: of some warpgroups.
        groups: their numbers.
        threads: of the CTA.

    >>> str(by_warpgroup(np.array([8, 72]), np.array([0, 1]), 256))
    'thread // 128 * 64 + 8'
    >>> by_warpgroup(np.array([0, 64, 64]), np.arange(3), 384) is None
    True
    """
    span = int(groups[-1] - groups[0])
    step = int(values[-1] - values[0]) // max(1, span)
    start = int(values[0]) - step * int(groups[0])
    if (values != start + step * groups).any():
        return None
    return Index.of("thread", threads) // WARPGROUP * step + start
