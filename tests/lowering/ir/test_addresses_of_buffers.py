"""Where a buffer's cells lie, and where it ends: offsets, negative strides, any bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import ComposeLayout, LayoutError, S, TileLayout, laneid, parse
from lowering.dispatch.addresses import environment
from lowering.ir.index import Index
from lowering.ir.tiles import cells
from lowering.programs.kernel import Kernel
from tests.support.kernel_texts import outputs
from tests.support.nvrtc_text import compiled

WIDE = TileLayout(S[(32, 16) : (1 @ laneid, 1)])
ROW = TileLayout(S[(32, 4) : (1 @ laneid, 1)])


@pytest.mark.parametrize(
    ("layout", "count"),
    [
        (parse("S[(8,8):(8,1)]"), 64),
        (parse("S[(8,8):(8,-1)] + 7"), 64),
        (parse("S[(8,8):(-8,-1)] + 63"), 64),
        (parse("S[(8,8):(-8,1)] + 60"), 68),
        (parse("S[(8,8):(8,1)] + 40"), 104),
        (ComposeLayout(3, 3, 3, parse("S[(8,64):(64,-1)] + 63")), 512),
        (ComposeLayout(3, 3, 3, parse("S[(8,64):(64,1)] + 512")), 1024),
    ],
)
def test_a_buffer_has_the_cells_that_its_layout_names(layout: Any, count: int) -> None:
    """From the first to the last, and the swizzle's whole period; all machines say the same."""
    shape = (8, 64) if isinstance(layout, ComposeLayout) else (8, 8)
    shared = lw.Buffer("s", shape, "float32", "shared", layout)
    places = layout.table(shape)["m"]
    assert places.min() >= 0
    assert places.max() < cells(shared) == count
    k = Kernel("k")
    a, o = k.param("a", shape, "float32"), k.param("o", shape, "float32", layout)
    s = k.alloc("s", shape, "float32", "shared", layout)
    k.copy(s, a)
    k.sync()
    k.copy(o, s)
    program = k.lower()
    assert program.body.shared_bytes == 4 * count
    given = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for machine, written in outputs(program, {"a": given}):
        assert np.array_equal(written["o"], given), machine


def test_register_numbers_are_counted_from_0() -> None:
    shifted = parse("S[(32,2):(1@laneid,-1)] + 1")
    assert cells(lw.Buffer("r", (32, 2), "float32", layout=shifted)) == 2
    k = Kernel("k")
    a, o = k.param("a", (32, 2), "float32"), k.param("o", (32, 2), "float32")
    r = k.alloc("r", (32, 2), "float32", layout=shifted)
    k.copy(r, a)
    k.copy(o, r)
    given = np.arange(64, dtype=np.float32).reshape(32, 2)
    for machine, written in outputs(k.lower(), {"a": given}):
        assert np.array_equal(written["o"], given), machine


@pytest.mark.slow
@pytest.mark.parametrize("bound", [1, 5, 7, 8, 13, 16, 0])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_bounds_of_any_number(bound: int, dim: int, dtype: str) -> None:
    """Beyond a bound nothing is read or written, wherever vectors end."""
    k = Kernel("k")
    k.scalar("M")
    bounds = ("M", None) if dim == 0 else (None, "M")
    a = k.param("a", (32, 16), dtype, bounds=bounds)
    o = k.param("o", (32, 16), dtype, bounds=bounds)
    whole = k.param("p", (32, 16), dtype)
    r = k.alloc("r", (32, 16), dtype, layout=WIDE)
    k.copy(r, a)
    k.copy(o, r)
    k.copy(whole, r)
    program = k.lower()
    given = np.arange(1, 513).reshape(32, 16).astype(dtype)
    before = np.full((32, 16), 7).astype(dtype)
    inside = np.indices((32, 16))[dim] < bound
    found = outputs(program, {"a": given, "o": before}, {"M": bound})
    for machine, written in found:
        assert np.array_equal(written["o"], np.where(inside, given, before)), machine
        assert np.array_equal(written["p"], np.where(inside, given, 0)), machine
    assert ".global.v" in compiled(program.cuda_source())  # what is whole goes by vectors


@pytest.mark.parametrize("bound", [5, 16])
def test_bounds_of_copies_between_memories(bound: int) -> None:
    k = Kernel("k")
    k.scalar("M")
    a = k.param("a", (32, 16), "float16")
    o = k.param("o", (32, 16), "float16", bounds=(None, "M"))
    s = k.alloc("s", (32, 16), "float16", "shared")
    k.copy(s, a)
    k.sync()
    k.copy(o, s)
    program = k.lower()
    given = np.arange(1, 513).reshape(32, 16).astype(np.float16)
    before = np.zeros((32, 16), np.float16)
    want = np.where(np.arange(16) < bound, given, before)
    for machine, written in outputs(program, {"a": given, "o": before}, {"M": bound}):
        assert np.array_equal(written["o"], want), machine


def test_loops_of_one_name_in_sequence() -> None:
    k = Kernel("k")
    a, o = k.param("a", (128, 4), "float32"), k.param("o", (128, 4), "float32")
    r = k.alloc("r", (32, 4), "float32", layout=ROW)
    for first in (0, 2):
        with k.loop("i", 2) as i:
            rows = slice((i + first) * 32, (i + first) * 32 + 32)
            k.copy(r, a[rows])
            k.copy(o[rows], r)
    given = np.arange(512, dtype=np.float32).reshape(128, 4)
    for machine, written in outputs(k.lower(), {"a": given}):
        assert np.array_equal(written["o"], given), machine


def test_deep_loops_take_no_time() -> None:
    """Three loops of 256 steps: a handful of values of each is evaluated, not 16 million."""
    steps = 256
    places = [Index.of(name, steps) for name in "ijl"]
    index = places[0] * (1 << 20) + places[1] * (1 << 12) + places[2] * 16
    env = environment([index + Index.of("thread", 32)], 32)
    assert len(env["thread"]) == 32 * 3**3
    mixed = index + (Index.of("l", steps) % 8 ^ Index.of("thread", 32) // 4)
    assert len(environment([mixed], 32)["thread"]) < 32 * 3 * 3 * 32


@pytest.mark.parametrize("seed", range(40))
def test_enough_values_are_enough(seed: int) -> None:
    """Random pairs of indices: what holds at those values holds at all, and the other way round."""
    rng = np.random.default_rng(seed)

    def index() -> Index:
        i, j, thread = Index.of("i", 24), Index.of("j", 16), Index.of("thread", 8)
        total = thread * int(rng.integers(0, 9)) + int(rng.integers(0, 9))
        for var in (i, j):
            step = int(rng.choice([1, 2, 4, 8]))
            total += var // step * int(rng.integers(0, 9)) + var % step * int(rng.integers(0, 9))
        if rng.random() < 0.5:
            total += (i % 8 ^ j // 2) * int(rng.integers(1, 5))
        return total

    one = index()
    other = one + int(rng.integers(0, 3)) if rng.random() < 0.5 else index()
    few = environment([one, other], 8)
    grid = np.meshgrid(np.arange(24), np.arange(16), np.arange(8), indexing="ij")
    every = dict(zip(("i", "j", "thread"), grid, strict=True))
    for env in (few, every):
        env.setdefault("i", np.zeros(1, np.int64)), env.setdefault("j", np.zeros(1, np.int64))
    for step in (0, 1, 2):
        answers = [np.all(other.value(env) == one.value(env) + step) for env in (few, every)]
        assert answers[0] == answers[1]
    for width in (1, 2, 4, 8):
        assert np.all(one.value(few) % width == 0) == np.all(one.value(every) % width == 0)


def test_what_lies_below_the_first_cell_is_refused() -> None:
    with pytest.raises(LayoutError) as caught:
        lw.Buffer("s", (8, 8), "float32", "shared", parse("S[(8,8):(8,-1)] + 6"))
    assert str(caught.value) == (
        "Buffer s: coordinates on axis m must be 0 or more; S[(8,8):(8,-1)] + 6 begins at -1. Add "
        "1 to its offset"
    )


@pytest.mark.parametrize(
    ("layout", "count"),
    [
        (parse("S[(16,16):(16,1)]"), 256),
        (parse("S[(8,4):(4,1)] + R[4:32]"), 32),
        (ComposeLayout(3, 3, 3, parse("S[(8,64):(64,1)]")), 512),
    ],
)
def test_a_layout_of_another_number_of_elements_is_refused(layout: Any, count: int) -> None:
    with pytest.raises(LayoutError) as caught:
        lw.Buffer("A", (16, 8), "float16", "shared", layout)
    assert str(caught.value) == (
        f"Buffer A: the shape (16, 8) has 128 elements, the layout {count}: {layout}"
    )


def test_a_layout_may_split_the_dimensions_of_its_shape_and_hold_copies_and_symbols() -> None:
    for text in ("S[128:1]", "S[(4,4,8):(32,8,1)]", "S[(16,8):(8,1)] + R[4:128]"):
        assert cells(lw.Buffer("A", (16, 8), "float16", "shared", parse(text))) == 128 * (
            4 if "R" in text else 1
        )
    k = Kernel("k")
    pitch = TileLayout(S[(2**24, 64) : (k.scalar("pitch"), 1)])
    assert k.param("a", (2**24, 64), "float16", pitch).layout == pitch
