"""Warp specialization: what a producer warpgroup may do, and what the others do without it."""

from __future__ import annotations

from itertools import groupby

from layoutalg import LayoutError
from lowering.ir.index import Index
from lowering.ir.ops import (
    BulkLoad,
    Guard,
    Let,
    Loop,
    Op,
    Sync,
    TmaLoad,
    WarpSpecialize,
    When,
    walk,
    with_bodies,
)
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tiles import expanded


def check_producer(ops: tuple[Op, ...]) -> None:
    """Refuse what more than one thread would have to do, where one thread alone fills.

    Raises:
        LayoutError: something else than fills.
    """
    for op in walk(expanded(ops)):
        if not isinstance(op, (TmaLoad, BulkLoad, Loop, When, Let)):
            raise LayoutError(
                f"producer: one thread is there, and it fills: tma_load(…), loops, branches and "
                f"let fit; got {op}"
            )


def check_one_producer(ops: tuple[Op, ...], name: str) -> None:
    """Refuse a second producer warpgroup, or one that would begin again in a loop.

    Raises:
        LayoutError: there is such a one.
    """
    count = sum(isinstance(op, WarpSpecialize) for op in walk(ops))
    loops = [op.body for op in walk(ops) if isinstance(op, Loop)]
    looped = any(isinstance(each, WarpSpecialize) for body in loops for each in walk(body))
    if count > 1 or looped:
        raise LayoutError(
            f"producer: a kernel has one producer warpgroup, which begins once; {name} has "
            + ("it in a loop" if looped else str(count))
        )


def by_consumers(ops: tuple[Op, ...], threads: int) -> tuple[Op, ...]:
    """Return operations in which the producer warpgroup does nothing but produce, and meet.

    Before the roles part, and after they join, all warpgroups run: what only the threads of the
    kernel do stands in branches that hold in those alone. Where all meet, they stay.

    >>> from lowering.ir.ops import Phase, Registers, TryWait, Zero, script
    >>> zero = Zero(Registers("r", (0,)))
    >>> roles = WarpSpecialize((TryWait(Phase("free", 0, Index())),), (zero,))
    >>> print(script(by_consumers((zero, zero, Sync("cta"), roles), 128)))
    if thread < 128:
        r[0] = 0
        r[0] = 0
    sync(cta)
    produce:
        try_wait(free[0], 0)
    consume:
        r[0] = 0
    """
    guard = Guard(Index.of("thread", threads + WARPGROUP), 0, threads)
    found: list[Op] = []
    for together, same in groupby(ops, key=_is_of_all):
        if not together:
            found.append(When((guard,), tuple(same)))
            continue
        for op in same:
            if not isinstance(op, WarpSpecialize):
                op = with_bodies(op, lambda body: by_consumers(body, threads))
            found.append(op)
    return tuple(found)


def _is_of_all(op: Op) -> bool:
    """Say whether a producer warpgroup takes part in an operation, or in what stands in it."""
    if isinstance(op, (Loop, When)):
        return any(_is_of_all(each) for each in op.body if not isinstance(each, Let))
    return isinstance(op, (Let, WarpSpecialize)) or (
        isinstance(op, Sync) and op.scope in ("cta", "cluster")
    )
