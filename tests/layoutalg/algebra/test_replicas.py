"""Whether a layout is replicated is asked of the map: R[4:0] and R[1:8] repeat nothing."""

from __future__ import annotations

import pytest

from layoutalg import ComposeLayout, TileLayout, parse
from layoutalg.draw.pictures.ribbon import derived
from layoutalg.interop import to_cute, to_triton
from layoutalg.layouts.thread_slots import elements_held

NOTHING = ["R[4:0]", "R[1:8]", "R[(4,1):(0,3)]", "R[2:0@warpid]", "R[(2,2):(0,0@Bank)]"]


@pytest.mark.parametrize("replica", NOTHING)
def test_a_replica_that_repeats_nothing_is_none(replica: str) -> None:
    plain, written = parse("S[(8,4):(4,1)]"), parse(f"S[(8,4):(4,1)] + {replica}")
    assert written.replica
    assert written.copies == ()
    assert written.equivalent(plain)
    assert str(to_cute(written, (8, 4))) == str(to_cute(plain, (8, 4)))
    swizzled = ComposeLayout(0, 1, 1, written)
    assert str(to_cute(swizzled, (8, 4))) == str(to_cute(swizzled.over(plain), (8, 4)))
    assert written.is_trivial() == plain.is_trivial()
    assert derived(written, (8, 4)).formula("m") == derived(plain, (8, 4)).formula("m")


@pytest.mark.parametrize("replica", NOTHING)
def test_registers_are_held_as_the_map_says(replica: str) -> None:
    plain, written = parse("S[(32,4):(1@laneid,1)]"), parse(f"S[(32,4):(1@laneid,1)] + {replica}")
    assert (
        elements_held(written, (32, 4), "show", "L") == elements_held(plain, (32, 4), "show", "L")
    ).all()
    assert str(to_triton(written, (32, 4))) == str(to_triton(plain, (32, 4)))


@pytest.mark.parametrize("replica", NOTHING)
def test_a_tile_is_recognised_behind_a_replica_that_repeats_nothing(replica: str) -> None:
    inner, outer = parse("S[4:1]"), parse(f"S[8:1] + {replica}")
    tiled = inner.tile(parse("S[8:1]"), (8,), (4,))
    assert outer.is_tile_outer(tiled, (32,), (8,)) == inner


def test_copies_are_the_iters_that_repeat() -> None:
    layout = parse("S[8:1] + R[(4,1,2,2):(0,3,8,16)]")
    assert [(it.extent, it.stride) for it in layout.copies] == [(2, 8), (2, 16)]
    assert TileLayout.from_iters(layout.shard, layout.copies).equivalent(layout)
