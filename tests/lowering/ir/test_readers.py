"""Every operation of the package has its row in every reader's table."""

from __future__ import annotations

from lowering.codegen import kernel_text
from lowering.codegen.explorer_data import follow
from lowering.codegen.writer import emit
from lowering.ir.ops import BulkLoad, BulkStore
from lowering.ir.tiles import Dispatched, TilePrimitiveCall
from lowering.simulator.machine import simulate
from lowering.simulator.run import flow
from tests.lowering.ir.test_convergence import kinds

BOXES = {BulkLoad, BulkStore}  # of a TmaLoad, of a TmaStore: they stand in no body
CALLS = {TilePrimitiveCall, Dispatched}  # which lowering replaces by operations


def test_every_operation_has_its_text() -> None:
    assert kernel_text.written
    assert set(emit.rows) == kinds() - BOXES - CALLS


def test_every_operation_has_its_meaning() -> None:
    assert not simulate.rows.keys() & flow.rows.keys()
    assert simulate.rows.keys() | flow.rows.keys() == kinds() - BOXES - CALLS


def test_every_operation_has_its_row_in_the_explorer() -> None:
    assert set(follow.rows) == kinds() - BOXES - CALLS
