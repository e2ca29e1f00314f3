"""The accumulators that a ``wgmma`` wait completes: it names them, so that compilers see a use.

They are those of all products before it, less those that may be in flight after it on some path:
of products that are not committed, and of groups that the wait leaves pending.
"""

from __future__ import annotations

from dataclasses import replace

from lowering.ir.ops import (
    Loop,
    Op,
    Registers,
    WarpSpecialize,
    Wgmma,
    WgmmaCommit,
    WgmmaWait,
    When,
    rewrite,
    walk,
)
from lowering.ir.readers import unknown

WAYS = 256  # the most states, of different paths through a program, that are told apart

Group = frozenset[Registers]
State = tuple[tuple[Group, ...], Group]  # closed groups, the newest last, and the open one
Path = tuple[int, ...]


class _Ways:
    """What was started before each wait, and what may be in flight after it."""

    def __init__(self, most: int) -> None:
        self.most = most  # groups that some wait leaves pending: older ones make no difference
        self.started: dict[Registers, None] = {}
        self.before: dict[Path, tuple[Registers, ...]] = {}
        self.after: dict[Path, set[Registers]] = {}

    def run(self, ops: tuple[Op, ...], states: set[State], path: Path) -> set[State]:
        """Return the states after operations, from the states before them."""
        for at, op in enumerate(ops):
            here = (*path, at)
            if isinstance(op, Wgmma):
                self.started.setdefault(op.d)
                states = {(closed, opened | {op.d}) for closed, opened in states}
            elif isinstance(op, WgmmaCommit):
                states = {(self.kept((*closed, opened)), Group()) for closed, opened in states}
            elif isinstance(op, WgmmaWait):
                self.before.setdefault(here, tuple(self.started))
                left = op.pending
                states = {(done[max(0, len(done) - left) :], rest) for done, rest in states}
                found = self.after.setdefault(here, set())
                for closed, opened in states:
                    found.update(opened, *closed)
            elif isinstance(op, (Loop, When)):
                states = self.repeated(op, states, here)
            elif isinstance(op, WarpSpecialize):
                states = self.run(op.consume, states, here)
            elif op.bodies:
                raise unknown(op, "waits for wgmma")
        return states

    def kept(self, closed: tuple[Group, ...]) -> tuple[Group, ...]:
        """Return the closed groups that a wait may still leave pending."""
        return closed[max(0, len(closed) - self.most) :]

    def repeated(self, op: Loop | When, states: set[State], path: Path) -> set[State]:
        """Return the states after a body that may run, or repeat."""
        found, fresh = set(states), set(states)
        while True:
            fresh = self.run(op.body, fresh, path) - found
            found |= fresh
            if isinstance(op, When) or not fresh or len(found) >= WAYS:
                return found

    def completed(self, path: Path) -> tuple[Registers, ...]:
        """Return what the wait at a path completes."""
        busy = {(e.buffer, number) for e in self.after[path] for number in e.numbers}
        return tuple(
            each
            for each in self.before[path]
            if not busy & {(each.buffer, number) for number in each.numbers}
        )


def with_completed(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return operations in which each :class:`WgmmaWait` names the accumulators it completes.

    >>> [str(op) for op in with_completed((WgmmaCommit(), WgmmaWait(0)))]
    ['wgmma.commit', 'wgmma.wait(0)']
    """
    pending = (op.pending for op in walk(ops) if isinstance(op, WgmmaWait))
    ways = _Ways(max(pending, default=0))
    ways.run(ops, {((), Group())}, ())
    waits = iter(sorted(ways.before))  # as they stand in the program

    def named(op: Op) -> tuple[Op, ...]:
        if isinstance(op, WgmmaWait):
            op = replace(op, complete=ways.completed(next(waits)))
        return (op,)

    return rewrite(ops, named)
