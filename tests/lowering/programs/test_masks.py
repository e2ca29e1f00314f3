"""Branches that hold in some threads: the others do nothing, and whole units do what is theirs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lowering as lw
from layoutalg import parse
from lowering.ir.index import Guard, Index
from lowering.ir.kernel_ir import Barrier, KernelIR
from lowering.ir.ops import (
    Arrive,
    Commit,
    Let,
    Load,
    LoadMatrix,
    Loop,
    MbarrierWait,
    MoveMatrix,
    Op,
    Phase,
    Registers,
    Store,
    Sync,
    Transfer,
    Wait,
    When,
    Zero,
)
from lowering.ir.tmem_ops import TensorLoad
from lowering.simulator.hazards import SimulationError
from lowering.simulator.machine import Machine
from lowering.simulator.run import execute
from tests.lowering.dispatch.test_tensor_memory import parts

G = lw.Buffer("g", (128,), "float32", "global")
O = lw.Buffer("o", (128,), "float32", "global")  # noqa: E741 - the output of all programs here
SH = lw.Buffer("s", (128,), "float32", "shared")
R = lw.Buffer("r", (64, 2), "float32", layout=parse("S[(64,2):(1@tx,1)]"))
W = lw.Buffer("w", (64, 2), "float16", layout=parse("S[(64,2):(1@tx,1)]"))
H = lw.Buffer("h", (128, 8), "float16", "shared")
THREAD = Index.of("thread", 64)
FIRST, BOTH = Registers("r", (0,)), Registers("r", (0, 1))
INPUT = {"g": np.arange(128, dtype=np.float32), "o": np.full(128, -1, np.float32)}
WARP_1 = (Guard(THREAD // 32, 1, 2),)
LOW_LANES = (Guard(THREAD % 32, 0, 8),)


def body(*ops: Op) -> KernelIR:
    barriers = (Barrier("ready", 1, 1),)
    return KernelIR((G, O), (SH, H), (R, W), ops, 64, barriers=barriers)


def run(*ops: Op) -> Machine:
    return execute(body(*ops), INPUT)


def out(*ops: Op) -> list[float]:
    found: list[float] = run(*ops).memory["o"].values.tolist()
    return found


LOAD, STORE = Load(FIRST, "g", THREAD), Store("o", THREAD, FIRST)


def test_only_active_threads_touch_registers_and_memory() -> None:
    machine = run(Zero(FIRST), When(WARP_1, (LOAD, STORE)))
    assert machine.registers["r"][:, 0].tolist() == [0] * 32 + list(range(32, 64))
    assert machine.memory["o"].values.tolist() == [-1] * 32 + list(range(32, 64)) + [-1] * 64


def test_branches_in_branches_intersect() -> None:
    found = out(LOAD, When(WARP_1, (When(LOW_LANES, (STORE,)),)))
    assert [at for at, value in enumerate(found) if value != -1] == list(range(32, 40))


def test_registers_of_other_threads_stay_unwritten() -> None:
    with pytest.raises(SimulationError, match=r"reads r\[0\] of thread 0, which nothing wrote"):
        run(When(WARP_1, (LOAD,)), STORE)


def test_guards_of_a_load_give_zeros_to_active_threads_alone() -> None:
    load = Load(FIRST, "g", THREAD, (Guard(THREAD, 0, 40),))
    machine = run(LOAD, When(WARP_1, (load,)))
    assert machine.registers["r"][:, 0].tolist() == [*range(40), *[0] * 24]


def test_a_loop_may_have_another_extent_in_each_warp() -> None:
    step = Load(FIRST, "g", THREAD + Index.of("i", 3) * 32)
    machine = run(Loop("i", THREAD // 32 + 1, (step,)))
    assert machine.registers["r"][:, 0].tolist() == [*range(32), *range(64, 96)]


def test_a_name_keeps_its_value_where_a_branch_does_not_hold() -> None:
    at = Index.of("at", 64)
    found = out(
        LOAD, Let("at", THREAD), When(WARP_1, (Let("at", 95 + THREAD * -1),)), Store("o", at, FIRST)
    )
    assert found[:64] == [*range(32), *range(63, 31, -1)]


def test_each_thread_has_its_own_groups_of_copies() -> None:
    copy = Transfer("s", THREAD, "g", THREAD, 1, (), True)
    late = When(WARP_1, (Transfer("s", THREAD + 64, "g", THREAD, 1, (), True), Commit()))
    fetch = Load(FIRST, "s", THREAD)
    assert out(copy, Commit(), late, Wait(0), fetch, STORE)[:64] == list(range(64))
    run(copy, Commit(), late, When(WARP_1, (Wait(1), fetch)), Wait(0))
    first_warp = (Guard(THREAD // 32, 0, 1),)
    with pytest.raises(SimulationError, match="still being copied: wait for it"):
        run(copy, Commit(), late, When(first_warp, (Wait(1), fetch)), Wait(0))


def test_arrivals_are_those_of_the_active_warps() -> None:
    ready = Phase("ready", 0, Index())
    run(When(WARP_1, (Arrive("ready", 0),)), MbarrierWait(ready))
    told = "may count for an older phase of ready.0.: thread 32 does not know that it is complete"
    with pytest.raises(SimulationError, match=told):
        run(Arrive("ready", 0), MbarrierWait(ready))


WHOLE: tuple[tuple[Op, str], ...] = (
    (Sync("warp"), "warp"),
    (Sync("cta"), "cta"),
    (Arrive("ready", 0), "warp"),
    (LoadMatrix(Registers("w", (0, 1)), "h", THREAD * 8, 1, False), "warp"),
    (MoveMatrix(Registers("w", (0, 1)), Registers("w", (0, 1))), "warp"),
)


@pytest.mark.parametrize(("op", "unit"), WHOLE)
def test_what_whole_units_do_no_part_of_one_does(op: Op, unit: str) -> None:
    wanted = f"takes whole {unit}s: thread 0 runs it, and thread 8 of its {unit} does not"
    with pytest.raises(SimulationError, match=wanted):
        run(Zero(Registers("w", (0, 1))), When((Guard(THREAD, 0, 8),), (op,)))


def test_a_barrier_of_the_cta_needs_every_warp() -> None:
    with pytest.raises(SimulationError, match="thread 32 runs it, and thread 0 of its cta"):
        run(When(WARP_1, (Sync("cta"),)))
    run(When(WARP_1, (Sync("warp"),)))


def test_inactive_lanes_ask_for_no_bank() -> None:
    stride = Store("s", THREAD % 4 * 32, FIRST)
    machine = run(Zero(FIRST), When((Guard(THREAD, 0, 2),), (stride,)))
    assert list(machine.banks.values()) == [[2, 1]]


def test_tensor_memory_leaves_warp_by_warp() -> None:
    """Each warp loads its lanes, waits and stores in a branch of its own; half a warp cannot."""
    made = parts()
    made.multiply()
    made.kernel.mbarrier_wait(made.done, 0, 0)
    made.kernel.copy(made.own, made.c)
    made.kernel.copy(made.result, made.own)
    body = made.kernel.lower().body
    at = next(number for number, op in enumerate(body.ops) if isinstance(op, TensorLoad))
    end = max(number for number, op in enumerate(body.ops) if isinstance(op, Store)) + 1
    thread = Index.of("thread", 128)

    def branches(size: int) -> KernelIR:
        parted = tuple(
            When((Guard(thread // size, part, part + 1),), body.ops[at:end])
            for part in reversed(range(128 // size))
        )
        return replace(body, ops=(*body.ops[:at], *parted, *body.ops[end:]))

    rng = np.random.default_rng(0)
    given = {b.name: rng.integers(0, 3, b.shape).astype(np.float16) for b in body.params[:2]}
    found = [execute(each, given).memory["D"].values for each in (body, branches(32), branches(64))]
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()
    with pytest.raises(SimulationError, match="takes whole warps: thread 112 runs it"):
        execute(branches(16), given)
