"""Every operation of the package has its row in every reader's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from layoutalg import LayoutError
from lowering.codegen import kernel_text
from lowering.codegen.explorer_data import follow, rows
from lowering.codegen.writer import emit
from lowering.dispatch.calls import dispatched
from lowering.ir import convergence
from lowering.ir.ops import BulkLoad, BulkStore, Op, ProxyFence, Sync, WgmmaWait
from lowering.ir.readers import Reader
from lowering.ir.tiles import Dispatched, TilePrimitiveCall
from lowering.passes.warp_specialization import by_consumers
from lowering.passes.wgmma_order import with_completed
from lowering.simulator.machine import simulate
from lowering.simulator.run import flow
from tests.lowering.ir.test_convergence import kinds
from tests.lowering.programs.test_kernel import staged

BOXES = {BulkLoad, BulkStore}  # of a TmaLoad, of a TmaStore: they stand in no body
CALLS = {TilePrimitiveCall, Dispatched}  # which lowering replaces by operations


def lacking(*tables: Reader[Any]) -> set[str]:
    """Return the operations that stand in none of some tables."""
    rows = set().union(*(table.rows for table in tables))
    return {kind.__name__ for kind in kinds() - BOXES - CALLS - rows}


def test_every_operation_has_its_text() -> None:
    assert kernel_text.written
    assert not lacking(emit), "write a row @emit.of(…) in lowering/codegen"


def test_every_operation_has_its_meaning() -> None:
    assert not simulate.rows.keys() & flow.rows.keys()
    assert not lacking(simulate, flow), "write a row @simulate.of(…) in lowering/simulator"


def test_the_explorer_says_which_operations_it_does_not_follow() -> None:
    assert follow.rows.keys() < kinds()
    assert rows((ProxyFence(),)) == [{"kind": "unfollowed"}]


@dataclass(frozen=True)
class Unless(Op, unit="thread", bodies=("body",)):
    """A branch that no pass knows."""

    body: tuple[Op, ...]

    def __str__(self) -> str:
        return "unless:"


PASSES: dict[str, Callable[[tuple[Op, ...]], object]] = {
    "convergence": lambda ops: convergence.check(ops, 64),
    "waits for wgmma": with_completed,
    "warp specialization": lambda ops: by_consumers(ops, 256),
    "dispatch": lambda ops: dispatched(replace(staged().body, ops=ops)),
}


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_refuses_bodies_that_it_does_not_know(name: str) -> None:
    ops = (WgmmaWait(0), Unless((Sync("warp"),)))
    with pytest.raises(LayoutError, match=f"^{name}: the operation Unless is unknown to this"):
        PASSES[name](ops)
