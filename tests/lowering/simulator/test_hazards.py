"""The rules of the race detector: programs that are right, and twins that break one rule each."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import parse
from lowering.ir.index import Guard, Index
from lowering.ir.kernel_ir import Barrier, KernelIR
from lowering.ir.ops import (
    Arrive,
    BulkLoad,
    BulkStore,
    Commit,
    Load,
    LoadMatrix,
    Loop,
    MbarrierWait,
    Op,
    Phase,
    ProxyFence,
    Registers,
    Store,
    StoreMatrix,
    Sync,
    TmaLoad,
    TmaStore,
    TmaStoreWait,
    Transfer,
    TryWait,
    Wait,
    WarpSpecialize,
    When,
    Zero,
)
from lowering.simulator.grid import Grid
from lowering.simulator.hazards import SimulationError
from lowering.simulator.machine import Machine
from lowering.simulator.run import execute, run_to_end
from tests.lowering.dispatch.test_gemm_async import product

G = lw.Buffer("g", (128,), "float32", "global")
OUT = lw.Buffer("o", (128,), "float32", "global")
SHARED = lw.Buffer("s", (128,), "float32", "shared")
BOX = lw.Buffer("b", (8, 16), "float32", "shared")
HALVES = lw.Buffer("h", (512,), "float16", "shared")
R = lw.Buffer("r", (64, 2), "float32", layout=parse("S[(64,2):(1@tx,1)]"))
W = lw.Buffer("w", (64, 2), "float16", layout=parse("S[(64,2):(1@tx,1)]"))
THREAD = Index.of("thread", 64)
LANE = THREAD % 32
BACK = THREAD * -1 + 63  # the thread opposite, of the other warp
NEXT = THREAD // 32 * 32 + LANE * -1 + 31  # the lane opposite, of the same warp
A, B = Registers("r", (0,)), Registers("r", (1,))
INPUT = {"g": np.arange(128, dtype=np.float32), "o": np.zeros(128, np.float32)}
BARRIERS = (Barrier("full", 2, 1), Barrier("both", 2, 2))
FENCE = ProxyFence()
GET = Load(A, "g", THREAD)
CTA, WARP = Sync("cta"), Sync("warp")


def put(at: Index = THREAD, memory: str = "s", **more: Any) -> Store:
    return Store(memory, at, A, **more)


def get(at: Index = THREAD, memory: str = "s") -> Load:
    return Load(B, memory, at)


def copy(into: Index = THREAD, memory: str = "g", at: Index = THREAD) -> Transfer:
    return Transfer("s", into, memory, at, 1, (), True)


def warp(number: int, *ops: Op) -> When:
    return When((Guard(THREAD // 32, number, number + 1),), ops)


def lane(number: int, *ops: Op) -> When:
    return When((Guard(THREAD, number, number + 1),), ops)


def phase(barrier: str, slot: int = 0, parity: int = 0) -> Phase:
    return Phase(barrier, slot, Index((), parity))


def wait(barrier: str, slot: int = 0, parity: int = 0) -> MbarrierWait:
    return MbarrierWait(phase(barrier, slot, parity))


def turn(barrier: str) -> MbarrierWait:
    return MbarrierWait(Phase(barrier, 0, Index.free("i")))


def body(*ops: Op) -> KernelIR:
    return KernelIR((G, OUT), (SHARED, BOX, HALVES), (R, W), ops, 64, barriers=BARRIERS)


def run(*ops: Op) -> Machine:
    machine = Machine(body(*ops))
    for buffer in (G, OUT):
        machine.allocate(buffer, INPUT[buffer.name].copy(), True)
        machine.extents[buffer.name], machine.pitches[buffer.name] = (8, 16), 16
    run_to_end(machine)
    return machine


def load_box(slot: int = 0, free: Phase | None = None) -> TmaLoad:
    place = Index(), Index()
    return TmaLoad("full", slot, 512, (BulkLoad("b", Index(), "g", place, (8, 16), 16),), free)


def store_box(memory: str = "o") -> TmaStore:
    return TmaStore((BulkStore(memory, (Index(), Index()), (8, 16), 16, "b", Index()),))


ALL_BOX = tuple(Store("b", THREAD + at, A) for at in (0, 64))
HALF = Registers("w", (0, 1))
MATRIX = LoadMatrix(HALF, "h", LANE * 8 + THREAD // 32 * 256, 1, False)
ROWS = Store("h", THREAD * 8, Registers("w", (0,)))
FILL_H = (
    Zero(HALF),
    *(Store("h", THREAD * 2 + at, HALF) for at in (0, 128, 256, 384)),
)
FIRST_WAITS = (warp(0, GET, put(), WARP, Arrive("full", 0)), warp(1, wait("full"), get(BACK)))
HELD = Arrive("both", 0)

# A right program, then what to change in it and what is then said.
Twin = tuple[Callable[[list[Op]], Any], str]


def without(*at: int) -> Callable[[list[Op]], None]:
    def change(ops: list[Op]) -> None:
        for number in sorted(at, reverse=True):
            del ops[number]

    return change


def instead(at: int, *new: Op) -> Callable[[list[Op]], None]:
    def change(ops: list[Op]) -> None:
        ops[at : at + 1] = new

    return change


def swapped(one: int, other: int) -> Callable[[list[Op]], None]:
    def change(ops: list[Op]) -> None:
        ops[one], ops[other] = ops[other], ops[one]

    return change


NO_BARRIER = "with no barrier in between: sync first"
RULES: dict[str, tuple[tuple[Op, ...], tuple[Twin, ...]]] = {
    "a thread's own order": ((GET, put(), get(), put()), ()),
    "write and read, across warps": (
        (GET, put(), CTA, get(BACK)),
        (
            (without(2), f"thread 0 reads s at 63, which thread 63 wrote {NO_BARRIER}"),
            (instead(2, WARP), f"thread 0 reads s at 63, which thread 63 wrote {NO_BARRIER}"),
        ),
    ),
    "write and read, inside a warp": (
        (GET, put(), WARP, get(NEXT)),
        ((without(2), f"thread 0 reads s at 31, which thread 31 wrote {NO_BARRIER}"),),
    ),
    "read and write": (
        (GET, put(), CTA, get(BACK), CTA, put()),
        (
            (without(4), f"thread 0 overwrites s at 0, which thread 63 read {NO_BARRIER}"),
            (instead(4, WARP), f"thread 0 overwrites s at 0, which thread 63 read {NO_BARRIER}"),
        ),
    ),
    "write and write": (
        (GET, put(), CTA, put(BACK)),
        ((without(2), f"thread 0 overwrites s at 63, which thread 63 wrote {NO_BARRIER}"),),
    ),
    "write and write, inside a warp": (
        (GET, put(), WARP, put(NEXT)),
        ((without(2), f"thread 0 overwrites s at 31, which thread 31 wrote {NO_BARRIER}"),),
    ),
    "all readers count, not the last alone": (
        (GET, put(), CTA, warp(1, get(THREAD - 32)), warp(0, get()), CTA, warp(0, put())),
        ((without(5), f"thread 0 overwrites s at 0, which thread 32 read {NO_BARRIER}"),),
    ),
    "a reader before a barrier of others": (
        (GET, put(), CTA, get(BACK), CTA, warp(0, WARP), put()),
        ((without(4), f"thread 0 overwrites s at 0, which thread 63 read {NO_BARRIER}"),),
    ),
    "one instruction": (
        (GET, lane(3, put(Index((), 5)))),
        (
            (
                instead(1, put(Index((), 5))),
                "s[5] = r[0] races: thread 0 and thread 63 write s at 5 in one instruction: let "
                "one of them write it",
            ),
            (
                instead(1, put(THREAD // 2)),
                "thread 0 and thread 1 write s at 0 in one instruction",
            ),
        ),
    ),
    "stores that may alias": (
        (
            GET,
            put(THREAD // 2, aliases=True),
            put(THREAD // 2 + 1, aliases=True),
            CTA,
            get(BACK // 2),
        ),
        (
            (without(3), f"which thread 61 wrote {NO_BARRIER}"),
            (instead(2, put(THREAD // 2 + 1)), "overwrites s at 1, which thread 3 wrote"),
            (instead(1, put(THREAD // 2)), "in one instruction"),
        ),
    ),
    "all that alias are read": (
        (GET, put(LANE, aliases=1), CTA, warp(1, get(LANE))),
        ((instead(2, WARP), f"thread 32 reads s at 0, which thread 0 wrote {NO_BARRIER}"),),
    ),
    "all that alias are overwritten": (
        (GET, put(LANE, aliases=1), CTA, warp(1, put(LANE))),
        ((instead(2, WARP), f"thread 32 overwrites s at 0, which thread 0 wrote {NO_BARRIER}"),),
    ),
    "two copies that may alias": (
        (GET, put(aliases=1), CTA, put(BACK, aliases=2)),
        ((without(2), f"thread 0 overwrites s at 63, which thread 63 wrote {NO_BARRIER}"),),
    ),
    "two steps of a copy that may alias": (
        (GET, Loop("i", 2, (put(LANE, aliases=1), CTA))),
        (
            (
                instead(1, Loop("i", 2, (put(LANE, aliases=1),))),
                f"thread 0 overwrites s at 0, which thread 32 wrote {NO_BARRIER}",
            ),
        ),
    ),
    "all that alias come after a read": (
        (GET, put(), CTA, get(), CTA, *(warp(each, put(LANE, aliases=1)) for each in (0, 1))),
        ((without(4), f"thread 32 overwrites s at 0, which thread 0 read {NO_BARRIER}"),),
    ),
    "all that alias come after a write": (
        (GET, warp(0, put()), CTA, *(warp(each, put(LANE, aliases=1)) for each in (0, 1))),
        ((without(2), f"thread 32 overwrites s at 0, which thread 0 wrote {NO_BARRIER}"),),
    ),
    "cp.async that may alias": (
        (replace(copy(LANE), aliases=1), Commit(), Wait(0), CTA, get(LANE)),
        (
            (instead(3, WARP), f"thread 0 reads s at 0, which thread 32 wrote {NO_BARRIER}"),
            (
                instead(2, warp(1, Wait(0))),
                "thread 0 reads s at 0, which thread 0 still copies to: wait for it",
            ),
        ),
    ),
    "all that alias are fenced": (
        (
            GET,
            *(Store("b", LANE + at, A, (), 1) for at in (0, 32, 64, 96)),
            FENCE,
            CTA,
            warp(0, store_box(), TmaStoreWait(0)),
        ),
        (
            (
                instead(5, warp(1, FENCE)),
                "reads b at 0, which thread 0 wrote with no fence.proxy.async in between",
            ),
        ),
    ),
    "global memory": (
        (GET, put(memory="o"), CTA, get(BACK, "o"), CTA, put(memory="o")),
        (
            (without(2), f"thread 0 reads o at 63, which thread 63 wrote {NO_BARRIER}"),
            (without(4), f"thread 0 overwrites o at 0, which thread 63 read {NO_BARRIER}"),
        ),
    ),
    "global memory, two stores": (
        (GET, put(memory="o"), CTA, put(BACK, "o")),
        ((without(2), f"thread 0 overwrites o at 63, which thread 63 wrote {NO_BARRIER}"),),
    ),
    "cp.async after a store": (
        (GET, put(), CTA, copy(BACK), Commit(), Wait(0), CTA, get()),
        (
            (without(2), f"thread 0 overwrites s at 63, which thread 63 wrote {NO_BARRIER}"),
            (without(6), f"thread 0 reads s at 0, which thread 63 wrote {NO_BARRIER}"),
            (without(5), "still being copied: wait for it"),
            (without(4), "still being copied: wait for it"),
        ),
    ),
    "a store after cp.async": (
        (GET, copy(), Commit(), Wait(0), put()),
        ((without(3), "thread 0 overwrites s at 0, which thread 0 still copies to: wait for it"),),
    ),
    "cp.async after cp.async": (
        (copy(), Commit(), Wait(0), copy(), Commit(), Wait(0)),
        ((without(2), "thread 0 overwrites s at 0, which thread 0 still copies to: wait for it"),),
    ),
    "what cp.async reads": (
        (GET, put(memory="o"), copy(THREAD, "o"), Commit(), Wait(0), put(memory="o")),
        ((without(4), "overwrites o at 0, which a copy still reads: wait for it"),),
    ),
    "groups complete in order": (
        (copy(), Commit(), copy(THREAD + 64), Commit(), Wait(1), CTA, get(BACK), Wait(0)),
        ((instead(6, get(BACK + 64)), "reads s at 127, still being copied: wait for it"),),
    ),
    "ldmatrix orders nothing": (
        (*FILL_H, CTA, MATRIX, CTA, ROWS),
        (
            (without(5), "thread 32 reads h at 256, which thread 0 wrote with no barrier"),
            (without(7), f"overwrites h at 8, which thread 4 read {NO_BARRIER}"),
        ),
    ),
    "stmatrix orders nothing": (
        (Zero(HALF), StoreMatrix("h", LANE * 8 + THREAD // 32 * 256, HALF, 1, False), WARP, ROWS),
        ((without(2), "wrote with no barrier in between"),),
    ),
    "an mbarrier: release and acquire": (
        (GET, *FIRST_WAITS),
        (
            (
                instead(1, warp(0, put(), Arrive("full", 0))),
                f"thread 32 reads s at 31, which thread 31 wrote {NO_BARRIER}",
            ),
            (
                instead(1, warp(0, Arrive("full", 0), put(), WARP)),
                f"thread 32 reads s at 31, which thread 31 wrote {NO_BARRIER}",
            ),
            (
                instead(2, warp(1, get(BACK), wait("full"))),
                f"thread 32 reads s at 31, which thread 31 wrote {NO_BARRIER}",
            ),
        ),
    ),
    "an mbarrier, of reads": (
        (
            GET,
            put(),
            CTA,
            warp(0, get(BACK), WARP, Arrive("full", 0)),
            warp(1, wait("full"), put()),
        ),
        (
            (
                instead(3, warp(0, get(BACK), Arrive("full", 0))),
                f"thread 32 overwrites s at 32, which thread 31 read {NO_BARRIER}",
            ),
        ),
    ),
    "an mbarrier passes on what was told": (
        (
            GET,
            warp(0, put(), WARP, Arrive("full", 0)),
            warp(1, wait("full"), WARP, Arrive("full", 1)),
            warp(0, wait("full", 1), get(NEXT), get(NEXT)),
            CTA,
        ),
        ((instead(1, warp(0, put(), Arrive("full", 0))), f"which thread 31 wrote {NO_BARRIER}"),),
    ),
    "another slot orders nothing": (
        (GET, warp(0, put(), WARP, Arrive("full", 1)), warp(1, wait("full", 1), get(BACK))),
        (
            (
                instead(2, warp(1, Arrive("full", 0), wait("full", 0), get(BACK), wait("full", 1))),
                f"thread 32 reads s at 31, which thread 31 wrote {NO_BARRIER}",
            ),
        ),
    ),
    "who waits first lets the other warp go on": (
        (GET, FIRST_WAITS[1], FIRST_WAITS[0]),
        ((without(2), "mbarrier_wait(full[0], 0) waits forever"),),
    ),
    "a box": (
        (load_box(), wait("full"), get(THREAD, "b")),
        (
            (without(1), "reads b at 0, still being copied: wait for it"),
            (
                instead(1, warp(0, wait("full"))),
                "thread 32 reads b at 32, which a box of full[0] wrote, and that thread has not "
                "waited for its mbarrier",
            ),
        ),
    ),
    "a box after threads wrote": (
        (GET, *ALL_BOX, FENCE, CTA, load_box(), wait("full")),
        (
            (without(4), f"thread 0 overwrites b at 1, which thread 1 wrote {NO_BARRIER}"),
            (without(3), "overwrites b at 0, which thread 0 wrote with no fence.proxy.async in"),
        ),
    ),
    "a box after threads read": (
        (
            load_box(),
            wait("full"),
            get(THREAD, "b"),
            WARP,
            HELD,
            load_box(1, phase("both")),
            wait("full", 1),
        ),
        (
            (without(3), f"thread 0 overwrites b at 1, which thread 1 read {NO_BARRIER}"),
            (
                instead(5, load_box(1)),
                f"thread 0 overwrites b at 32, which thread 32 read {NO_BARRIER}",
            ),
        ),
    ),
    "a box by the thread that produces": (
        (
            GET,
            *ALL_BOX,
            FENCE,
            CTA,
            WarpSpecialize((load_box(),), (wait("full"), get(BACK, "b"))),
        ),
        ((without(4), "the producer thread overwrites b at 0, which thread 0 wrote"),),
    ),
    "a TMA store": (
        (GET, *ALL_BOX, FENCE, CTA, store_box(), TmaStoreWait(0), CTA, *ALL_BOX),
        (
            (without(3), "reads b at 0, which thread 0 wrote with no fence.proxy.async in between"),
            (without(4), f"thread 0 reads b at 1, which thread 1 wrote {NO_BARRIER}"),
            (without(6), "a TMA store still reads: wait with tma_store_wait"),
            (without(7), "a TMA store read with no barrier in between: sync first"),
        ),
    ),
    "what a TMA store writes": (
        (GET, *ALL_BOX, FENCE, CTA, store_box(), TmaStoreWait(0), CTA, get(THREAD, "g")),
        (
            (
                instead(8, get(THREAD, "o")),
                "thread 0 reads o at 0, which a TMA store writes: nothing in a kernel waits for",
            ),
            (instead(8, put(memory="o")), "overwrites o at 0, which a TMA store writes"),
        ),
    ),
    "branches that hold in whole warps": (
        (GET, warp(0, put(), WARP, get(NEXT)), warp(1, put()), CTA, warp(1, get(BACK))),
        ((without(3), f"thread 32 reads s at 31, which thread 31 wrote {NO_BARRIER}"),),
    ),
    "a fill that may overtake a wait": (
        (Loop("i", 3, (load_box(), turn("full"), CTA)),),
        (
            (
                instead(0, Loop("i", 3, (load_box(), turn("full")))),
                "tma_load(full[0]: b[0] = g[0 +8, 0 +16]) may complete the next phase of full[0] "
                "while thread 1 still waits for the one before: sync between that wait and this",
            ),
        ),
    ),
    "a fill that asks whether it may overtake": (
        (load_box(), wait("full"), WARP, HELD, load_box(0, phase("both")), wait("full", 0, 1)),
        (
            (without(2), "may complete the next phase of full[0] while thread 1 still waits"),
            (
                instead(4, load_box(0, phase("both", 0, 1))),
                "after both[0], 1 waits forever",
            ),
            (instead(4, load_box(0, phase("both", 1, 1))), "full[0] while thread 32 still waits"),
            (instead(3, warp(0, HELD, HELD)), "of full[0] while thread 32 still waits"),
        ),
    ),
    "a warp that converges has passed its waits": (
        (
            *(*FILL_H, CTA, load_box(), wait("full"), MATRIX, HELD),
            *(load_box(0, phase("both")), wait("full", 0, 1)),
        ),
        ((without(8), "may complete the next phase of full[0] while thread 1 still waits"),),
    ),
    "an arrival may overtake a wait": (
        (HELD, wait("both"), WARP, HELD, wait("both", 0, 1)),
        (
            (
                without(2),
                "arrive(both[0]) may complete the next phase of both[0] while thread 1 still waits "
                "for the one before: sync between that wait and this",
            ),
        ),
    ),
    "an arrival counts for its phase": (
        (HELD, CTA, HELD, wait("both", 0, 1)),
        (
            (
                without(1),
                "arrive(both[0]) may count for an older phase of both[0]: thread 0 does not know "
                "that it is complete: wait for that first",
            ),
            (instead(1, WARP), "for an older phase of both[0]: thread 0 does not know"),
        ),
    ),
    "more arrivals than an mbarrier counts": (
        (warp(0, Arrive("full", 0)), wait("full")),
        (
            (
                instead(0, Arrive("full", 0)),
                "arrive(full[0]) may count for an older phase of full[0]: thread 32 does not know",
            ),
        ),
    ),
    "two arrivals of one warp in one phase": (
        (warp(0, HELD, HELD), wait("both")),
        (
            (
                instead(0, warp(0, HELD), HELD),
                "arrive(both[0]) may count for an older phase of both[0]: thread 32 does not know",
            ),
        ),
    ),
    "an arrival while boxes are under way": (
        (load_box(), wait("full"), CTA, warp(1, Arrive("full", 0)), wait("full", 0, 1)),
        (
            (without(1, 2), "arrive(full[0]) may count for an older phase of full[0]: thread 32"),
            (without(2), "may complete the next phase of full[0] while thread 0 still waits"),
        ),
    ),
    "a wait sees no older phase": (
        (warp(0, Arrive("full", 0)), CTA, warp(0, Arrive("full", 0)), warp(1, wait("full", 0, 1))),
        (
            (
                without(1),
                "mbarrier_wait(full[0], 1) may pass on an older phase of full[0]: thread 32 does "
                "not know that the phase before is complete: wait for that first",
            ),
            (instead(1, WARP), "may pass on an older phase of full[0]: thread 32 does not know"),
        ),
    ),
    "a peek sees no older phase": (
        (
            *(warp(0, Arrive("full", 0)), CTA, TryWait(phase("full", 0, 1))),
            *(warp(0, Arrive("full", 0)), MbarrierWait(phase("full", 0, 1), True)),
        ),
        (
            (swapped(1, 2), "may pass on an older phase of full[0]: thread 1 does not know"),
            (
                instead(2, TryWait(phase("full", 0, 0))),
                "relies on a try_wait for the same phase; the last of thread 0 was for another",
            ),
            (instead(2, TryWait(phase("full", 1, 1))), "the last of thread 0 was for another"),
            (without(2), "the last of thread 0 was for another"),
        ),
    ),
    "a slot is the same for all": (
        (warp(0, Arrive("full", 0)), warp(1, Arrive("full", 1)), wait("full")),
        (
            (
                instead(0, Arrive("full", THREAD // 32)),
                "arrive(full[thread // 32]) needs one slot of one mbarrier and one parity; got "
                "thread // 32 = 0 in some threads, 1 in others",
            ),
        ),
    ),
    "loops": (
        (GET, Loop("i", 3, (put(), CTA, get(BACK), CTA))),
        (
            (
                instead(1, Loop("i", 3, (put(), CTA, get(BACK)))),
                f"thread 0 overwrites s at 0, which thread 63 read {NO_BARRIER}",
            ),
            (
                instead(1, Loop("i", 3, (CTA, put(), get(BACK)))),
                f"thread 0 reads s at 63, which thread 63 wrote {NO_BARRIER}",
            ),
        ),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_what_a_rule_orders_is_accepted(rule: str) -> None:
    assert run(*RULES[rule][0]).ended


BROKEN = [(rule, number) for rule, (_, twins) in RULES.items() for number in range(len(twins))]


@pytest.mark.parametrize(("rule", "number"), BROKEN)
def test_what_breaks_a_rule_is_refused(rule: str, number: int) -> None:
    right, twins = RULES[rule]
    change, message = twins[number]
    ops = list(right)
    change(ops)
    with pytest.raises(SimulationError, match=re.escape(message)):
        run(*ops)


# -- the grid ---------------------------------------------------------------------------------


def grid(*ops: Op, ctas: int = 2) -> None:
    extents, pitches = dict.fromkeys("go", (8, 16)), dict.fromkeys("go", 16)
    Grid(body(*ops), {}, extents, pitches).run((ctas, 1), INPUT)


BLOCK = Index.of("bx", 2) * 64


def test_each_cta_of_a_grid_has_its_part() -> None:
    grid(GET, put(THREAD + BLOCK, "o"), get(THREAD + BLOCK, "o"))


GRIDS: dict[str, tuple[tuple[Op, ...], str]] = {
    "both write": (
        (GET, put(memory="o")),
        "overwrites o at 0, which another CTA of the grid wrote",
    ),
    "one reads what another wrote": (
        (GET, put(THREAD + BLOCK, "o"), CTA, get(memory="o")),
        "reads o at 0, which another CTA of the grid wrote: nothing orders the two",
    ),
    "one writes what another read": (
        (GET, get(THREAD + 64, "o"), put(THREAD + BLOCK, "o")),
        "overwrites o at 64, which another CTA of the grid read: nothing orders the two",
    ),
}


@pytest.mark.parametrize("name", GRIDS)
def test_ctas_of_a_grid_are_not_ordered(name: str) -> None:
    ops, message = GRIDS[name]
    grid(*ops, ctas=1)
    with pytest.raises(SimulationError, match=re.escape(message)):
        grid(*ops)


def test_a_lane_arrives_in_each_cta_of_a_cluster() -> None:
    """In the CTA of rank r it is lane r, which must know what it releases."""
    rank = Index.of("bx", 2)
    wrote = When((Guard(rank, 0, 1),), (lane(0, Store("o", Index(), A)),))
    there = warp(0, Arrive("both", 0, (), everywhere=True))
    for reader, synced, message in (
        (0, False, ""),
        (1, True, ""),
        (1, False, "thread 0 of CTA 1 reads o at 0, which thread 0 of CTA 0 wrote"),
    ):
        read = When((Guard(rank, reader, reader + 1),), (lane(0, Load(B, "o", Index())),))
        ops = (Sync("cluster"), GET, wrote, *[WARP] * synced, there, wait("both"), read)
        whole = replace(body(*ops, Sync("cluster")), cluster=2)
        if message:
            with pytest.raises(SimulationError, match=re.escape(message)):
                execute(whole, INPUT)
        else:
            execute(whole, INPUT)


# -- threads that part ------------------------------------------------------------------------


def test_warps_that_wait_for_each_other_meet_again() -> None:
    """Ping and pong, either first in the text; the barrier of the CTA after them joins both."""
    ping = warp(0, put(), WARP, Arrive("full", 0), wait("full", 1), get(BACK))
    pong = warp(1, wait("full"), get(BACK), put(), WARP, Arrive("full", 1))
    for order in ((ping, pong), (pong, ping)):
        machine = run(GET, *order, CTA, Store("o", THREAD, B))
        assert machine.memory["o"].values[:64].tolist() == list(range(63, -1, -1))


def test_lanes_that_wait_let_the_others_of_their_warp_go_on() -> None:
    late = When((Guard(LANE, 0, 8),), (wait("full"),))
    given = warp(0, Arrive("full", 0))
    machine = run(GET, warp(1, late, put()), given, CTA, warp(0, get(BACK)))
    assert machine.registers["r"][:32, 1].tolist() == list(range(63, 31, -1))


def test_what_never_comes_together_is_named() -> None:
    stray = warp(1, wait("full"), CTA)
    with pytest.raises(SimulationError, match="sync\\(cta\\) takes whole ctas: thread 32"):
        run(GET, stray, warp(0, Arrive("full", 0)))


def test_a_parameter_that_nothing_writes_keeps_no_accesses() -> None:
    machine = execute(body(GET, put(memory="o")), INPUT)
    assert not machine.memory["g"].reads
    assert machine.memory["g"].writer.size == 0


# -- kernels --------------------------------------------------------------------------------


def between_warps(*, arrive: str, barrier: bool) -> lw.Kernel:
    """Warp 0 stores, or reads, and arrives; warp 1 waits, and does the other: the same rows."""
    kernel = lw.Kernel("k", threads=64)
    given = kernel.param("a", (64, 4), "float32")
    out, rest = (kernel.param(name, (64, 4), "float32") for name in "oh")
    tile = kernel.alloc("s", (64, 4), "float32", "shared")
    own = kernel.alloc("r", (64, 4), "float32", layout=parse("S[(64,4):(1@tx,1)]"))
    mixed = kernel.alloc("q", (64, 4), "float32", layout=parse("S[(2,2,16,4):(32@tx,1@tx,2@tx,1)]"))
    full = kernel.barrier("full", 1, 1)
    kernel.copy(own, given)
    kernel.copy(mixed, given)
    kernel.copy(tile, own)
    kernel.sync()
    with kernel.when(THREAD // 32, 1):
        if arrive == "after a read":
            kernel.copy(mixed[0:32], tile[0:32])
        else:
            kernel.copy(tile[0:32], own[0:32])
        if barrier:
            kernel.sync("warp")
        kernel.arrive(full, 0)
    with kernel.when(BACK, 32):
        kernel.mbarrier_wait(full, 0, 0)
        if arrive == "after a read":
            kernel.copy(tile[0:32], own[32:64])
        else:
            kernel.copy(mixed[32:64], tile[0:32])
    kernel.sync()
    kernel.copy(out, mixed)
    kernel.copy(rest, tile)
    return kernel


@pytest.mark.parametrize("arrive", ["after a read", "after a store"])
def test_a_warp_releases_to_another(arrive: str) -> None:
    matrix = np.arange(256).reshape(64, 4)
    kernel = between_warps(arrive=arrive, barrier=True).lower()
    found = kernel.simulate(a=matrix)
    top, bottom = matrix[:32].tolist(), matrix[32:].tolist()
    if arrive == "after a read":
        assert found["o"].tolist() == top + bottom
        assert found["h"].tolist() == bottom + bottom
    else:
        assert found["o"].tolist() == top + top
        assert found["h"].tolist() == top + bottom
    with pytest.raises(SimulationError, match="with no barrier in between: sync first"):
        between_warps(arrive=arrive, barrier=False).lower().trace(a=matrix)


def test_reads_are_dropped_once_everybody_knows_of_them() -> None:
    """Long programs keep no more than the reads since the last barrier, and still see races."""
    step = Loop("i", 400, (put(), CTA, get(BACK), CTA))
    machine = run(GET, step)
    assert len(machine.memory["s"].reads) < 300
    with pytest.raises(SimulationError, match=NO_BARRIER):
        run(GET, step, get(BACK), put())


def test_a_kernel_fences_what_threads_wrote_before_boxes_overwrite_it() -> None:
    kernel = product()
    statements = kernel._blocks[0]
    del statements[statements.index(CTA) :]
    held, full = kernel.buffers, kernel.barrier("full", 1, 1)
    kernel.sync()
    kernel.tma_load(full, 0, [(held["A_tile"][0], held["A"][0:64, 0:64])])
    kernel.mbarrier_wait(full, 0, 0)
    body = kernel.lower().body
    matrix = np.arange(4096).astype(np.float16)
    for ops, message in ((body.ops, ""), (without_fences(body.ops), "no fence.proxy.async")):
        machine = Machine(replace(body, ops=ops))
        for name in "AB":
            machine.allocate(body.buffer(name), matrix.copy(), True)
        machine.extents["A"], machine.pitches["A"] = (64, 64), 64
        if message:
            with pytest.raises(SimulationError, match=message):
                run_to_end(machine)
        else:
            run_to_end(machine)
            assert machine.memory["A_tile"].written.all()


def without_fences(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return tuple(op for op in ops if not isinstance(op, ProxyFence))


def test_a_kernel_fences_what_threads_wrote_before_an_arrival() -> None:
    """Every warp arrives once its lanes have written A and B; all wait, and the product reads."""
    kernel = product()
    barrier = kernel.barrier("ready", 1, 4)
    statements = kernel._blocks[0]
    at = statements.index(CTA)
    after = statements[at + 1 :]
    del statements[at:]
    kernel.sync("warp")
    kernel.arrive(barrier, 0)
    kernel.mbarrier_wait(barrier, 0, 0)
    statements.extend(after)
    body = kernel.lower().body
    given = {role: np.ones((64, 64), np.float16) for role in "AB"}
    out = execute(body, given).memory["D"].values
    assert out.tolist() == [64.0] * 4096
    for change, message in (
        (without_fences(body.ops), "with no fence.proxy.async in between"),
        (tuple(op for op in body.ops if op != WARP), NO_BARRIER),
    ):
        with pytest.raises(SimulationError, match=message):
            execute(replace(body, ops=change), given)


def test_a_read_of_one_s_own_does_not_hide_another_s() -> None:
    race = (lane(0, get()), lane(1, get(), put(Index())))
    run(GET, put(), CTA, lane(1, get(), put(Index())))
    with pytest.raises(SimulationError, match="thread 1 overwrites s at 0, which thread 0 read"):
        run(GET, put(), CTA, *race)


def test_a_warpgroup_that_is_not_full_meets() -> None:
    machine = run(GET, put(), Sync("warpgroup"), get(BACK))
    assert machine.registers["r"][:, 1].tolist() == list(range(63, -1, -1))
