"""Atomic changes of global memory: sums over threads and CTAs, copies once, races, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from layoutalg import R, S, TileLayout, laneid, tx, warpid
from lowering.dispatch.registry import DispatchError
from lowering.ir.ops import Atomic, walk
from lowering.programs.kernel import Kernel
from lowering.simulator.hazards import SimulationError
from tests.support.kernel_texts import outputs

ROWS = TileLayout(S[(64, 8) : (1 @ tx, 1)])


def sums(dtype: str, function: str = "add", rows: int = 256, arch: str = "sm_90") -> Kernel:
    """CTAs of 64 threads change the same 64 x 8 cells."""
    k = Kernel("sums", 64, arch)
    given, total = k.param("x", (rows, 8), dtype), k.param("total", (64, 8), dtype)
    r = k.alloc("r", (64, 8), dtype, layout=ROWS)
    k.copy(r, given[k.block[0] * 64 : k.block[0] * 64 + 64])
    getattr(k, f"atomic_{function}")(total, r)
    return k


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16", "bfloat16"])
def test_ctas_add_to_the_same_cells(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, start = rng.integers(-9, 9, (256, 8)), rng.integers(-9, 9, (64, 8))
    program = sums(dtype).lower()
    found = program.simulate(grid=(4, 1), x=x, total=start)["total"]
    assert np.array_equal(found.astype(int), start + x.reshape(4, 64, 8).sum(axis=0))
    ops = [op for op in walk(program.body.ops) if isinstance(op, Atomic)]
    assert len(ops) == (4 if dtype in ("float16", "bfloat16") else 8)


@pytest.mark.parametrize("function", ["min", "max"])
def test_the_least_and_the_largest_of_integers(function: str) -> None:
    rng = np.random.default_rng(1)
    x, start = rng.integers(-99, 99, (256, 8)), rng.integers(-99, 99, (64, 8))
    found = sums("int32", function).lower().simulate(grid=(4, 1), x=x, total=start)["total"]
    both = np.concatenate([start[None], x.reshape(4, 64, 8)])
    assert np.array_equal(found, getattr(both, function)(axis=0))


def test_of_copies_one_is_added() -> None:
    k = Kernel("copies", 64)
    total = k.param("total", (8,), "float32")
    r = k.alloc(
        "r",
        (8,),
        "float32",
        layout=TileLayout(S[8 : 1 @ laneid] + R[(4, 2) : (8 @ laneid, 1 @ warpid)]),
    )
    k.zero(r)
    k.assign(r, r + 3.0)
    k.atomic_add(total, r)
    assert k.lower().simulate(total=np.ones(8))["total"].tolist() == [4.0] * 8


def test_threads_that_share_a_cell_add_one_after_the_other() -> None:
    k = Kernel("one", 32)
    given, total = k.param("x", (4, 8), "float32"), k.param("total", (8,), "float32")
    layout = TileLayout(S[(4, 8) : (8 @ laneid, 1 @ laneid)])
    r = k.alloc("r", (4, 8), "float32", layout=layout)
    k.copy(r, given)
    for row in range(4):
        k.atomic_add(total, r[row])
    x = np.arange(32).reshape(4, 8)
    assert np.array_equal(k.lower().simulate(x=x, total=np.zeros(8))["total"], x.sum(axis=0))


def test_rows_beyond_the_bounds_change_nothing() -> None:
    k = Kernel("edge", 64)
    size = k.scalar("M")
    total = k.param("total", (64, 8), "float32", bounds=(size, None))
    r = k.alloc("r", (64, 8), "float32", layout=ROWS)
    k.zero(r)
    k.assign(r, r + 1.0)
    k.atomic_add(total[0:64], r)
    found = k.lower().simulate(total=np.zeros((64, 8)), M=50)["total"]
    assert (found == (np.arange(64) < 50)[:, None]).all()


def test_subnormal_sums_of_f32_are_flushed() -> None:
    tiny = np.full((64, 8), 1e-40, np.float32)
    found = sums("float32", rows=64).lower().simulate(x=tiny, total=tiny)["total"]
    assert (found == 0).all()


def race(plain: str) -> Kernel:
    k = Kernel("race", 64)
    total = k.param("total", (64, 8), "float32")
    r = k.alloc("r", (64, 8), "float32", layout=ROWS)
    k.zero(r)
    turned = k.alloc("q", (64, 8), "float32", layout=TileLayout(S[(8, 8, 8) : (1 @ tx, 8 @ tx, 1)]))
    k.zero(turned)
    k.atomic_add(total, r)
    if plain == "store":
        k.copy(total, turned)
    elif plain == "load":
        k.copy(turned, total)
    else:
        k.atomic_add(total, turned)
    return k


@pytest.mark.parametrize("plain", ["store", "load"])
def test_atomics_race_with_plain_accesses(plain: str) -> None:
    with pytest.raises(SimulationError, match="races"):
        race(plain).lower().simulate(total=np.zeros((64, 8)))
    race("atomic").lower().simulate(total=np.zeros((64, 8)))


def test_a_cta_that_stores_races_with_one_that_adds() -> None:
    k = Kernel("grid", 64)
    total = k.param("total", (64, 8), "float32")
    r = k.alloc("r", (64, 8), "float32", layout=ROWS)
    k.zero(r)
    with k.when(k.block[0], 1):
        k.copy(total, r)
    k.atomic_add(total, r)
    with pytest.raises(SimulationError, match="another CTA of the grid wrote"):
        k.lower().simulate(grid=(2, 1), total=np.zeros((64, 8)))


@pytest.mark.parametrize(
    ("dtype", "function", "arch", "reason"),
    [
        ("float32", "max", "sm_90", "no instruction has max of float32 in memory; it has s32"),
        ("uint8", "add", "sm_90", "no instruction has add of uint8"),
        ("bfloat16", "add", "sm_80", "sm_80 lacks red"),
    ],
)
def test_what_memory_cannot_do_is_refused(
    dtype: str, function: str, arch: str, reason: Any
) -> None:
    with pytest.raises(DispatchError, match=reason):
        sums(dtype, function, arch=arch).lower()


def test_pairs_of_16_bits_must_be_neighbours_in_memory() -> None:
    k = Kernel("columns", 32)
    total = k.param("total", (8, 32), "float16")
    r = k.alloc("r", (8, 32), "float16", layout=TileLayout(S[(8, 32) : (1, 1 @ laneid)]))
    k.zero(r)
    k.atomic_add(total, r)
    with pytest.raises(DispatchError, match="from a multiple of 4 bytes on"):
        k.lower()


def test_both_texts_have_the_instruction() -> None:
    program = sums("float16").lower()
    assert program.cuda_source().count("red.relaxed.gpu.global.add.noftz.f16x2") >= 1
    assert "red.relaxed.gpu.global.add.f32" in sums("float32").lower().cuda_source()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16", "bfloat16"])
def test_sums_on_a_device(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, start = rng.integers(-9, 9, (256, 8)), rng.integers(-9, 9, (64, 8))
    program = sums(dtype).lower()
    want = program.simulate(grid=(4, 1), x=x, total=start)["total"]
    assert np.array_equal(program.run(grid=(4, 1), x=x, total=start)["total"], want)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "float64"])
def test_both_texts_add_what_the_numpy_warp_adds(dtype: str) -> None:
    """Small integers, whose sums are exact in any order."""
    k = Kernel("added", threads=64)
    a, o = k.param("a", (64, 4), dtype), k.param("o", (32, 4), dtype)
    r = k.alloc("r", (64, 4), dtype, layout=TileLayout(S[(64, 4) : (1 @ tx, 1)]))
    k.copy(r, a)
    k.atomic_add(o, r[0:32])
    k.atomic_add(o, r[32:64])
    x = np.arange(256).reshape(64, 4) % 7
    start = np.arange(128).reshape(32, 4) % 5
    for machine, out in outputs(k.lower(), {"a": x, "o": start}):
        assert np.array_equal(out["o"].astype(float), start + x[:32] + x[32:]), machine
