"""Warp specialization: what a producer warpgroup may do, and what the others do without it."""

from __future__ import annotations

from itertools import groupby

from layoutalg import LayoutError
from lowering.ir.index import Guard, Index
from lowering.ir.ops import (
    BulkLoad,
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
from lowering.ir.readers import unknown
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tiles import expanded


def check_producer(ops: tuple[Op, ...]) -> None:
    """Refuse anything but TMA loads and control flow: one thread runs the producer.

    Raises:
        LayoutError: something else than TMA loads and control flow.
    """
    for op in walk(expanded(ops)):
        if not isinstance(op, (TmaLoad, BulkLoad, Loop, When, Let)):
            raise LayoutError(
                f"producer: one thread runs it, so that only tma_load(), loop(), when() and let() "
                f"may stand there; got {op}"
            )


def check_one_producer(ops: tuple[Op, ...], name: str) -> None:
    """Refuse a second producer warpgroup, or one in a loop.

    Raises:
        LayoutError: the kernel has either.
    """
    count = sum(isinstance(op, WarpSpecialize) for op in walk(ops))
    loops = [op.body for op in walk(ops) if isinstance(op, Loop)]
    looped = any(isinstance(each, WarpSpecialize) for body in loops for each in walk(body))
    if count > 1 or looped:
        raise LayoutError(
            f"producer: a kernel has one producer warpgroup, in no loop; {name} has "
            + ("it in a loop" if looped else str(count))
        )


def by_consumers(ops: tuple[Op, ...], threads: int) -> tuple[Op, ...]:
    """Return operations outside :class:`WarpSpecialize` guarded, so that consumers alone run them.

    All warpgroups take part in barriers of the CTA, and know what ``let`` names: those stay bare.

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
    """Say whether a producer warpgroup takes part in an operation, or in one in its body."""
    if isinstance(op, (Loop, When)):
        return any(_is_of_all(each) for each in op.body if not isinstance(each, Let))
    if op.bodies and not isinstance(op, WarpSpecialize):
        raise unknown(op, "warp specialization")
    return isinstance(op, (Let, WarpSpecialize)) or (
        isinstance(op, Sync) and op.scope in ("cta", "cluster")
    )
