"""Waits that name their group: how many groups they leave in flight, and two accumulators."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from layoutalg import LayoutError, S, TileLayout, fragments, tx
from layoutalg.layouts.hardware import swizzled_tile
from lowering.ir.ops import WgmmaWait, walk
from lowering.programs.kernel import Kernel
from lowering.simulator.hazards import SimulationError


def pendings(kernel: Kernel) -> list[int]:
    return [int(n) for n in re.findall(r"wait\((\d+)", kernel.lower().script())]


def test_a_wait_counts_the_groups_of_its_kind_since() -> None:
    k = Kernel("k", 128, "sm_90a")
    first = k.commit()
    k.commit("gemm")
    second = k.commit()
    with k.loop("i", 3):
        k.commit()
    with k.when(k.warp < 2):
        k.wait(first)
    k.wait(second)
    assert pendings(k) == [4, 3]


def test_a_group_of_a_loop_is_the_one_of_this_step() -> None:
    k = Kernel("k", 128)
    with k.loop("i", 4):
        group = k.commit()
        k.commit()
        k.wait(group)
    assert pendings(k) == [1]


def ended(k: Kernel) -> None:
    with k.when(k.warp < 2):
        group = k.commit()
    k.wait(group)


def repeated(k: Kernel) -> None:
    group = k.commit()
    with k.loop("i", 2):
        k.wait(group)


def branched(k: Kernel) -> None:
    group = k.commit()
    with k.when(k.warp < 2):
        k.commit()
    k.wait(group)


def unknown(k: Kernel) -> None:
    group, count = k.commit(), k.scalar("n")
    with k.loop("i", count):
        k.commit()
    k.wait(group)


def foreign(k: Kernel) -> None:
    k.wait(Kernel("other", 128).commit())


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (ended, r"group 0 \(copy\) is of a block that has ended"),
        (repeated, "closed before a loop, which would wait for it in each step"),
        (branched, "a branch after group 0 .* closes groups as well"),
        (unknown, "a loop of no fixed extent after group 0"),
        (foreign, "or of another kernel"),
    ],
)
def test_a_number_that_is_not_the_same_on_all_paths_is_refused(build: Any, reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        build(Kernel("k", 128))


def test_copies_are_waited_for_by_their_group() -> None:
    """The older tile is read while the newer one is still on its way."""
    k = Kernel("two", 32)
    rows = TileLayout(S[(32, 8) : (1 @ tx, 1)])
    given, result = k.param("A", (64, 8), "float16"), k.param("B", (64, 8), "float16")
    tiles = k.alloc("tiles", (2, 32, 8), "float16", "shared")
    groups = []
    for half in range(2):
        k.copy(tiles[half], given[32 * half : 32 * half + 32], asynchronous=True)
        groups.append(k.commit())
    for half, group in enumerate(groups):
        k.wait(group)
        k.sync()
        r = k.alloc(f"r{half}", (32, 8), "float16", layout=rows)
        k.copy(r, tiles[half])
        k.copy(result[32 * half : 32 * half + 32], r)
    assert pendings(k) == [1, 0]
    values = np.arange(512).reshape(64, 8) % 100
    assert np.array_equal(k.lower().simulate(A=values)["B"], values)


# -- two accumulators in flight --------------------------------------------------------------------


def two_products(wait: bool = True, newest: bool = False) -> Kernel:
    """D0 = A B0 and D1 = A B1: the older is stored while the newer is in flight.

    ``wait``: for the older before it is read; ``newest``: for the newer one, in its place.
    """
    k = Kernel("two_products", 128, "sm_90a")
    where = swizzled_tile((1, 64, 64), 128, 16)
    held = {}
    for name in ("A", "B0", "B1"):
        given = k.param(name, (64, 64), "float16")
        held[name] = k.alloc(f"{name}_tile", (1, 64, 64), "float16", "shared", where)
        k.copy(held[name][0], given)
    k.sync()
    groups, totals = [], []
    for name in ("B0", "B1"):
        layout = fragments.get("wgmma.m64n64", "D.f32").layout
        total = k.alloc(f"C{name[1]}", (64, 64), "float32", layout=layout)
        k.gemm_async(total, held["A"][0], held[name][0])
        groups.append(k.commit("gemm"))
        totals.append(total)
    for number, (group, total) in enumerate(zip(groups, totals, strict=True)):
        if number or wait:
            k.wait(groups[1] if newest and not number else group)
        k.copy(k.param(f"D{number}", (64, 64), "float32"), total)
    return k


def test_the_older_accumulator_is_read_while_the_newer_is_in_flight() -> None:
    program = two_products().lower()
    waits = [op for op in walk(program.body.ops) if isinstance(op, WgmmaWait)]
    assert [(op.pending, [each.buffer for each in op.complete]) for op in waits] == [
        (1, ["C0"]), (0, ["C0", "C1"])
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    given = {name: rng.integers(-4, 5, (64, 64)) for name in ("A", "B0", "B1")}
    found = program.simulate(**given)
    for number in range(2):
        assert np.array_equal(found[f"D{number}"], given["A"] @ given[f"B{number}"])


def test_its_missing_wait_is_seen() -> None:
    rng = np.random.default_rng(0)
    given = {name: rng.integers(-4, 5, (64, 64)) for name in ("A", "B0", "B1")}
    with pytest.raises(SimulationError, match="C0"):
        two_products(wait=False).lower().simulate(**given)
    both = two_products(newest=True).lower()  # waits for more than it needs: right, but later
    assert np.array_equal(both.simulate(**given)["D0"], given["A"] @ given["B0"])


@pytest.mark.gpu
def test_two_accumulators_in_flight_on_a_device() -> None:
    rng = np.random.default_rng(0)
    given = {name: rng.integers(-4, 5, (64, 64)) for name in ("A", "B0", "B1")}
    found = two_products().lower().run(**given)
    for number in range(2):
        assert np.array_equal(found[f"D{number}"], given["A"] @ given[f"B{number}"])
