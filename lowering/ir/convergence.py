"""Which threads an operation takes together, and over which a branch is the same.

An instruction of a warp or a warpgroup has no meaning where some of its threads are elsewhere, and
a barrier waits forever for them. Each operation names its unit; lowering refuses one that stands
under a branch, or in a loop, that its unit does not take alike.

Source: PTX ISA, ``.sync.aligned`` of mma, ldmatrix, stmatrix, wgmma and tcgen05; bar.sync.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError
from layoutalg.layouts.thread_slots import THREADS_IN
from lowering.ir.index import Guard, Index, Opaque
from lowering.ir.ops import Arrive, Let, Loop, Op, WarpSpecialize, When
from lowering.ir.readers import unknown

UNITS = ("thread", "warp", "warpgroup", "cta", "cluster")  # from the smallest on
MOST = 1 << 22  # conditions that are evaluated one by one: threads times values of variables


@dataclass(frozen=True)
class Condition:
    """Guards that hold together, and how the script writes the branch or loop that has them."""

    text: str
    guards: tuple[Guard, ...]


def uniform_over(
    guards: Guard | Sequence[Guard], threads: int, values: Mapping[str, Index] | None = None
) -> str:
    """Return the largest unit all of whose threads always decide alike.

    Args:
        guards: which hold together.
        threads: of the CTA.
        values: what variables stand for that have a :class:`~lowering.ir.ops.Let`.

    >>> thread = Index.of("thread", 128)
    >>> uniform_over(Guard(thread // 32, 0, 1), 128), uniform_over(Guard(thread % 16, 0, 8), 128)
    ('warp', 'thread')
    >>> uniform_over(Guard(thread % 16, 0, 16), 128)
    'cta'
    """
    parts = [
        part.replaced(values or {})
        for guard in ((guards,) if isinstance(guards, Guard) else guards)
        for part in _signed(guard)
    ]
    varying = [part for part in parts if "thread" in part.variables()]
    widest = "cta" if any("bx" in part.variables() for part in parts) else "cluster"
    if not varying:
        return widest
    found = min((_stepwise(part, threads) for part in varying), key=UNITS.index)
    if found != "cta":
        found = max(found, _by_values(tuple(varying), threads), key=UNITS.index)
    return found


def same_over(index: Index, unit: str, threads: int) -> bool:
    """Say whether an index is one number within each warp, warpgroup or CTA.

    >>> turn = Index.of("thread", 128) // 32 + Index.free("i")
    >>> same_over(turn, "warp", 128), same_over(turn % 4, "warp", 128), same_over(turn, "cta", 128)
    (True, True, False)
    """
    if "thread" not in index.variables():
        return True
    return UNITS.index(_stepwise(index, threads)) >= UNITS.index(unit)


def _signed(guard: Guard) -> tuple[Index, Index]:
    """Return two indices whose signs decide a guard: it holds where neither is negative."""
    return guard.index - guard.low, (guard.index * -1 + guard.high) - 1


def _alike(table: npt.NDArray[np.generic], threads: int) -> str:
    """Return the largest unit within which each row of a table over threads has one value."""
    for unit in ("cta", "warpgroup", "warp"):
        size = THREADS_IN.get(unit, threads)
        groups = (table[:, at : at + size] for at in range(0, threads, size))
        if all((group == group[:, :1]).all() for group in groups):
            return unit
    return "thread"


def _stepwise(part: Index, threads: int) -> str:
    """Return over which unit an index surely is one number, whatever the other variables are."""
    varying = [Index((term,)) for term in part.terms]
    varying = [each for each in varying if "thread" in each.variables()]
    own = sum((each for each in varying if each.variables() == {"thread"}), Index())
    values = np.broadcast_to(own.value({"thread": np.arange(threads)}), (threads,))
    found = [_alike(values[None], threads)]
    for each in varying:
        if each.variables() != {"thread"}:
            ((_, atom),) = each.terms
            assert isinstance(atom, Opaque)  # a digit has one variable
            found += [_stepwise(side, threads) for side in (atom.left, atom.right)]
    return min(found, key=UNITS.index)


@lru_cache(maxsize=512)
def _by_values(parts: tuple[Index, ...], threads: int) -> str:
    """Return within which unit all threads agree on whether some index is negative.

    By all values of the variables; "thread" where there are too many.
    """
    limits: dict[str, int] = {}
    for part in parts:
        for digit, _ in part.digits():
            if digit.var != "thread":
                limits[digit.var] = max(digit.limit, limits.get(digit.var, 1))
    count = threads
    for limit in limits.values():
        count *= limit
        if count > MOST:
            return "thread"
    grid = np.meshgrid(*map(np.arange, limits.values()), np.arange(threads), indexing="ij")
    env = dict(zip((*limits, "thread"), grid, strict=True))
    holds = np.ones(grid[-1].shape, dtype=bool)
    for part in parts:
        holds &= np.asarray(part.value(env)) >= 0
    return _alike(holds.reshape(-1, threads), threads)


def check(ops: Sequence[Op], threads: int) -> None:
    """Refuse operations under a branch, or in a loop, that their unit does not take alike.

    Args:
        ops: of a body.
        threads: of the CTA, those of a producer left out.

    Raises:
        LayoutError: the operation, the branch and the unit are named.

    >>> from lowering.ir.ops import Sync
    >>> def under(high: int) -> When:
    ...     return When((Guard(Index.of("thread", 64), 0, high),), (Sync("warp"),))
    >>> check([under(32)], 64)
    >>> check([under(16)], 64)
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: lower: sync(warp) takes whole warps; `if thread < 16` differs \
between the threads of one. Take it out of there, or decide by what a whole warp shares.
    """
    _check(ops, threads, (), {})


def _check(
    ops: Iterable[Op], threads: int, path: tuple[Condition, ...], values: dict[str, Index]
) -> None:
    for op in ops:
        unit = op.shared_out or op.unit
        asked = path
        if isinstance(op, Arrive) and op.guards:
            asked = (*path, Condition(str(op), op.guards))
        _check_unit(op, unit, threads, asked, values)
        if isinstance(op, Let):
            values[op.var] = op.value.replaced(values)
        elif isinstance(op, (Loop, When)):
            own = op.var if isinstance(op, Loop) else ""
            inner = {name: value for name, value in values.items() if name != own}
            more = (Condition(str(op).rstrip(":"), op.guards),) if op.guards else ()
            _check(op.body, threads, (*path, *more), inner)
        elif isinstance(op, WarpSpecialize):  # one thread alone does what is produced
            _check(op.consume, threads, path, dict(values))
        elif op.bodies:
            raise unknown(op, "convergence")


def _check_unit(
    op: Op, unit: str, threads: int, path: Sequence[Condition], values: Mapping[str, Index]
) -> None:
    """Refuse one operation, by the first condition on its path that its unit does not share."""
    need = UNITS.index(unit)
    if need == 0 or not path:
        return
    guards = [guard for condition in path for guard in condition.guards]
    if UNITS.index(uniform_over(guards, threads, values)) >= need:
        return
    guilty = next(
        (each for each in path if UNITS.index(uniform_over(each.guards, threads, values)) < need),
        path[-1],
    )
    raise LayoutError(
        f"lower: {op} takes whole {_plural(unit)}; `{guilty.text}` differs between the "
        f"{'CTAs' if unit == 'cluster' else 'threads'} of one. Take it out of there, or decide by "
        f"what a whole {_name(unit)} shares."
    )


def _name(unit: str) -> str:
    return "CTA" if unit == "cta" else unit


def _plural(unit: str) -> str:
    return f"{_name(unit)}s"
