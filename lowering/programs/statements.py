"""What a kernel is before it is lowered: statements on tiles, nested in loops and branches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Union

from layoutalg import LayoutError
from layoutalg.sizes.size import substitute
from lowering.ir.index import INT, Index
from lowering.ir.ops import (
    Arrive,
    Commit,
    Guard,
    Let,
    MbarrierWait,
    Phase,
    Sync,
    TmaStoreWait,
    TryWait,
    Wait,
    WgmmaCommit,
    WgmmaWait,
    When,
)
from lowering.ir.tiles import BufferRegion, TilePrimitiveCall
from lowering.ir.tmem_ops import TensorCommit


@dataclass(frozen=True)
class Repeat:
    """A loop at tile level: its variable, and whether it is unrolled."""

    var: Any
    extent: int | Index
    unroll: bool
    body: tuple[Statement, ...]

    def __post_init__(self) -> None:
        """Check the extent: the variable is an ``int`` of C++.

        Raises:
            LayoutError: it is larger than that holds.
        """
        if isinstance(self.extent, int) and self.extent >= INT:
            raise LayoutError(
                f"loop: {self.var} takes at most {INT - 1} steps, what an int holds; got "
                f"{self.extent}. Nest two loops"
            )


@dataclass(frozen=True)
class Branch:
    """Statements that run where a condition holds.

    How many threads it must hold for alike, their operations say: :mod:`lowering.ir.convergence`.
    """

    guard: Guard
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Refill:
    """Bulk copies that complete an mbarrier, once the phase of another one says they may."""

    barrier: str
    slot: int | Index
    copies: tuple[TilePrimitiveCall, ...]
    free: Phase | None


@dataclass(frozen=True)
class Emptying:
    """Bulk copies from shared to global memory, by the first thread of each warpgroup."""

    copies: tuple[TilePrimitiveCall, ...]


@dataclass(frozen=True)
class Specialised:
    """What one thread of a further warpgroup does while the others do what follows."""

    produce: tuple[Statement, ...]


Statement = Union[  # noqa: UP007 - refers forward
    TilePrimitiveCall,
    Sync,
    Commit,
    Wait,
    WgmmaCommit,
    WgmmaWait,
    Let,
    Arrive,
    TryWait,
    MbarrierWait,
    TensorCommit,
    Refill,
    Emptying,
    TmaStoreWait,
    Repeat,
    Branch,
    Specialised,
]


def calls(statements: Sequence[Statement]) -> Iterator[TilePrimitiveCall]:
    """Yield every call that threads do."""
    for each in statements:
        if isinstance(each, TilePrimitiveCall):
            yield each
        elif isinstance(each, (Repeat, Branch)):
            yield from calls(each.body)


def steps(statements: Sequence[Statement]) -> int:
    """Return how many statements there are once the loops that do not stay are expanded.

    >>> steps((Repeat("i", 8, True, (Sync("cta"), Repeat("j", 4, False, (Sync("cta"),)))),))
    16
    """
    found = 0
    for each in statements:
        if isinstance(each, Specialised):
            found += steps(each.produce)
        elif isinstance(each, (Repeat, Branch)):
            times = each.extent if isinstance(each, Repeat) and each.unroll else 1
            assert isinstance(times, int)  # else the loop stays
            found += times * max(1, steps(each.body))
        else:
            found += 1
    return found


def unroll(statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """Expand the loops that do not stay."""
    out: list[Statement] = []
    for each in statements:
        if isinstance(each, Branch):
            out.append(replace(each, body=unroll(each.body)))
        elif isinstance(each, Specialised):
            out.append(replace(each, produce=unroll(each.produce)))
        elif not isinstance(each, Repeat):
            out.append(each)
        elif each.unroll:
            assert isinstance(each.extent, int)
            for step in range(each.extent):
                out.extend(unroll([_at(inner, each.var, step) for inner in each.body]))
        else:
            out.append(replace(each, body=unroll(each.body)))
    return tuple(out)


def _at(value: Any, var: Any, number: int) -> Any:
    """Return a statement, or a part of one, with a loop variable set."""
    if isinstance(value, TilePrimitiveCall):
        values = {var: number}
        operands = {
            role: BufferRegion(
                region.buffer,
                tuple((substitute(b, values), substitute(e, values)) for b, e in region.ranges),
            )
            for role, region in value.operands.items()
        }
        config = {name: _known(each, values) for name, each in value.config.items()}
        return replace(value, operands=operands, config=config)
    if isinstance(value, Index):
        return value.fixed(str(var), number)
    if isinstance(value, tuple):
        return tuple(_at(each, var, number) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        return replace(value, **{name: _at(part, var, number) for name, part in parts.items()})
    return value


def _known(value: Any, values: Mapping[Any, int]) -> Any:
    """Return an argument with variables set; whether to add, once it is a number, is a bool."""
    if not hasattr(value, "free_symbols"):
        return value
    found = substitute(value, values)
    return bool(found) if type(found) is int else found


def text(statements: Sequence[Statement], indent: str = "") -> str:
    """Return statements as text."""
    lines = []
    for each in statements:
        if isinstance(each, Repeat):
            mark = "  # unrolled" if each.unroll else ""
            lines.append(f"{indent}for {each.var} in range({each.extent}):{mark}")
            lines.append(text(each.body, indent + "    "))
        elif isinstance(each, Branch):
            lines.append(f"{indent}{When((each.guard,), ())}")
            lines.append(text(each.body, indent + "    "))
        elif isinstance(each, Specialised):
            lines.append(f"{indent}produce, while the rest is done:")
            lines.append(text(each.produce, indent + "    "))
        elif isinstance(each, Refill):
            copies = ", ".join(map(str, each.copies))
            lines.append(f"{indent}tma_load({each.barrier}[{each.slot}]: {copies})")
        elif isinstance(each, Emptying):
            lines.append(f"{indent}tma_store({', '.join(map(str, each.copies))})")
        elif isinstance(each, TilePrimitiveCall):
            lines.append(f"{indent}{each}")
        else:
            lines.append(f"{indent}{each}")
    return "\n".join(lines)
