"""Loops that do not stay: each is replaced by its steps, before dispatch, on tiles."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from lowering.ir.index import Guard, Index
from lowering.ir.ops import Loop, Op, When, with_bodies
from lowering.ir.tiles import BufferRegion, TilePrimitiveCall


def steps(ops: tuple[Op, ...]) -> int:
    """Return how many operations there are once the loops that do not stay are expanded.

    >>> from lowering.ir.ops import Sync
    >>> steps((Loop("i", 8, (Sync("cta"), Loop("j", 4, (Sync("cta"),))), unroll=True),))
    16
    """
    found = 0
    for op in ops:
        inside = sum(steps(getattr(op, name)) for name in op.bodies)
        times = op.extent if isinstance(op, Loop) and op.unroll else 1
        assert isinstance(times, int)  # else the loop stays
        found += times * max(1, inside)
    return found


def unroll(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return operations with the loops that do not stay expanded.

    >>> from lowering.ir.ops import Arrive
    >>> body = (Arrive("full", Index.of("i", 2)),)
    >>> [str(op) for op in unroll((Loop("i", 2, body, unroll=True),))]
    ['arrive(full[0])', 'arrive(full[1])']

    A branch that no step takes goes:

    >>> later = When((Index.of("i", 2) >= 1,), body)
    >>> [len(op.body) for op in unroll((Loop("i", 2, (later,), unroll=True),))]
    [1]
    """
    found: list[Op] = []
    for op in ops:
        if isinstance(op, Loop) and op.unroll:
            assert isinstance(op.extent, int)
            for step in range(op.extent):
                found.extend(unroll(_at(op.body, op.var, step)))
        else:
            found.append(with_bodies(op, unroll))
    return tuple(found)


def _at(value: Any, var: str, number: int) -> Any:
    """Return operations, or a part of one, with a loop variable set."""
    if isinstance(value, TilePrimitiveCall):
        operands = {
            role: BufferRegion(region.buffer, _at(region.ranges, var, number))
            for role, region in value.operands.items()
        }
        config = {name: _argument(each, var, number) for name, each in value.config.items()}
        return replace(value, operands=operands, config=config)
    if isinstance(value, Index):
        return value.replaced({var: Index((), number)})
    if isinstance(value, When):  # what never runs need not fit: a region may end before it
        guards = _at(value.guards, var, number)
        if not all(map(_may_hold, guards)):
            return When(guards, ())
    if isinstance(value, tuple):
        found = tuple(_at(each, var, number) for each in value)
        return tuple(each for each in found if not isinstance(each, When) or each.body)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        return replace(value, **{name: _at(part, var, number) for name, part in parts.items()})
    return value


def _may_hold(guard: Guard) -> bool:
    """Say whether a condition may hold: numbers alone decide it."""
    high = guard.high if isinstance(guard.high, int) else guard.high.high
    return guard.index.low < high and guard.index.high >= guard.low


def _argument(value: Any, var: str, number: int) -> Any:
    """Return an argument with a variable set; whether to add, once it is a number, is a bool."""
    found = _at(value, var, number)
    return found.constant != 0 if isinstance(found, Index) and not found.terms else found
