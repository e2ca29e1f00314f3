"""Lowering as passes over one tree: what each stage holds, and how it is printed."""

from __future__ import annotations

from typing import Any

import pytest

from layoutalg import ComposeLayout, fragments, parse
from lowering.ir.ops import Op, Sync, TmaLoad, WarpSpecialize, rewrite, walk
from lowering.ir.tiles import Dispatched, TilePrimitiveCall
from lowering.programs.kernel import Kernel
from lowering.programs.program import KernelProgram
from lowering.programs.stages import STAGES

SWIZZLED = ComposeLayout(3, 3, 3, parse("S[(16,64):(64,1)]"))


def produced() -> KernelProgram:
    """A producer loads a tile twice by TMA; consumers copy it to registers, and on."""
    k = Kernel("produced", 32, "sm_90a")
    a, o = (k.param(name, (16, 64), "float16") for name in "ao")
    tile = k.alloc("tile", (16, 64), "float16", "shared", SWIZZLED)
    fragment = fragments.get("mma.m16n8k16.f16", "A").layout.tile_to((16, 64), (16, 16))
    r = k.alloc("r", (16, 64), "float16", layout=fragment)
    full, free = k.barrier("full", 1, 1), k.barrier("free", 1, 1)
    with k.producer(), k.loop("turn", 2) as turn:
        k.tma_load(full, 0, [(tile, a)], free=(free, 0, turn + 1))
    with k.loop("step", 2, unroll=True) as step:
        k.mbarrier_wait(full, 0, step)
        k.copy(r, tile)
        k.arrive(free, 0)
    k.sync()
    k.copy(o, r)
    return k.lower()


PROGRAM = produced()


def kinds(stage: str) -> set[type[Op]]:
    return {type(op) for op in walk(PROGRAM.stages[stage].ops)}


def test_calls_are_nodes_of_the_tree_until_they_are_lowered() -> None:
    assert list(PROGRAM.stages) == list(STAGES)
    assert TilePrimitiveCall in kinds("tile") & kinds("unrolled")
    assert TilePrimitiveCall not in kinds("dispatched")
    assert Dispatched in kinds("dispatched")
    assert not {Dispatched, TilePrimitiveCall} & kinds("operations")


@pytest.mark.parametrize("stage", STAGES)
def test_what_follows_a_producer_its_consumers_do_at_each_stage(stage: str) -> None:
    lines = [line.strip() for line in PROGRAM.script(stage).splitlines()]
    assert lines.index("produce:") < lines.index("consume:") < lines.index("sync(cta)")
    (load,) = (op for op in walk(PROGRAM.stages[stage].ops) if isinstance(op, TmaLoad))
    assert load.size == (2048 if stage in ("dispatched", "operations") else 0)


@pytest.mark.parametrize("stage", STAGES)
def test_a_rewrite_that_changes_nothing_gives_the_same_tree(stage: str) -> None:
    ops = PROGRAM.stages[stage].ops
    assert rewrite(ops, lambda op: (op,)) == ops
    without = rewrite(ops, lambda op: () if isinstance(op, Sync) else (op,))
    assert {type(op) for op in walk(without)} == kinds(stage) - {Sync}
    assert WarpSpecialize in kinds(stage)


def test_unrolled_steps_stand_one_after_the_other() -> None:
    def waits(stage: str) -> list[Any]:
        ops = walk(PROGRAM.stages[stage].ops)
        return [str(op) for op in ops if str(op).startswith("mbarrier_wait")]

    assert waits("tile") == ["mbarrier_wait(full[0], step)"]
    assert waits("unrolled") == ["mbarrier_wait(full[0], 0)", "mbarrier_wait(full[0], 1)"]
