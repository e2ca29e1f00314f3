"""Regions that begin at block, warp and loop indices; conditions; kernels of many steps."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import LayoutError, S, TileLayout, fragments, parse
from layoutalg.layouts.hardware import swizzled_tile
from lowering.ir.index import Index

ROW = parse("S[(32,4):(1@laneid,1)]")
RNG = np.random.default_rng(15)


def numbers(*shape: int) -> Any:
    """Return small integers."""
    return RNG.integers(-4, 5, shape).astype(np.float16)


def copied(k: lw.Kernel, a: Any, o: Any, *box: Any) -> None:
    """Copy a box of a to the same one of o through registers."""
    r = k.alloc("r", (32, 4), "float16", layout=ROW)
    k.copy(r, a[box]), k.copy(o[box], r)


def pair(k: lw.Kernel, *shape: int) -> tuple[lw.Buffer, lw.Buffer]:
    """Declare two parameters."""
    return k.param("a", shape, "float16"), k.param("o", shape, "float16")


# -- blocks, warps, quotients ---------------------------------------------------------------------


def test_each_block_takes_its_tile() -> None:
    k = lw.Kernel("k")
    bx, by = k.block
    copied(k, *pair(k, 256, 8), slice(bx * 32, bx * 32 + 32), slice(by * 4, by * 4 + 4))
    x = numbers(256, 8)
    assert (k.lower().simulate(a=x, grid=(8, 2))["o"] == x).all()


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_a_block_number_is_divided(rows: int) -> None:
    k = lw.Kernel("k")
    top, left = k.block[0] % rows * 32, k.block[0] // rows * 4
    copied(k, *pair(k, 32 * rows, 16), slice(top, top + 32), slice(left, left + 4))
    x = numbers(32 * rows, 16)
    program = k.lower()
    assert (program.simulate(a=x, grid=(4 * rows, 1))["o"] == x).all()
    assert "ld_global_v2" in program.cuda_source() or "v4" in program.cuda_source()


@pytest.mark.parametrize("form", ["own", "turning", "named"])
def test_each_warp_takes_its_rows(form: str) -> None:
    k = lw.Kernel("k", threads=128)
    a, o = pair(k, 128, 4)
    with k.loop("i", 8) as i:
        w = {"own": k.warp, "turning": (k.warp + i * 3) % 4, "named": (k.warp + i) % 4}[form]
        if form == "named":
            w = k.let("w", w)
        copied(k, a, o, slice(w * 32, w * 32 + 32))
        k.sync()
    x = numbers(128, 4)
    assert (k.lower().simulate(a=x)["o"] == x).all()


def test_what_a_lane_begins_alone_is_refused() -> None:
    k = lw.Kernel("k", threads=64)
    a, _ = pair(k, 128, 4)
    r = k.alloc("r", (32, 4), "float16", layout=ROW)
    k.copy(r, a[k.lane : k.lane + 32])
    with pytest.raises(LayoutError, match="must be the same in all threads of a warp"):
        k.lower()


def test_registers_do_not_begin_at_a_warp() -> None:
    k = lw.Kernel("k", threads=64)
    a, _ = pair(k, 16, 4)
    r = k.alloc("r", (32, 4), "float16", layout=ROW)
    k.copy(r[k.warp * 16 : k.warp * 16 + 16], a)
    with pytest.raises(lw.DispatchError, match="register numbers are static"):
        k.lower()


def test_a_copy_of_the_cta_does_not_begin_at_a_warp() -> None:
    k = lw.Kernel("k", threads=64)
    a, _ = pair(k, 64, 4)
    s = k.alloc("s", (32, 4), "float16", "shared")
    k.copy(s, a[k.warp * 32 : k.warp * 32 + 32])
    with pytest.raises(LayoutError, match="must be the same in all threads of a CTA"):
        k.lower()


def test_copies_that_meet_at_some_steps_alone_are_refused() -> None:
    k = lw.Kernel("k", threads=64)
    a, o = pair(k, 96, 4)
    with k.loop("i", 4) as i:
        w = (k.warp * (i + 1)) % 3 * 32  # of warp 1 another place than of warp 0, but for i = 2
        copied(k, a, o, slice(w, w + 32))
    with pytest.raises(lw.DispatchError, match="at one place for some values of its variables"):
        k.lower()


# -- where a region must lie ----------------------------------------------------------------------


def test_a_region_that_leaves_its_buffer_at_some_step_is_refused() -> None:
    k = lw.Kernel("k")
    a, o = pair(k, 64, 4)
    with k.loop("i", 3) as i:
        copied(k, a, o, slice(i * 32, i * 32 + 32))
    message = r"copy: a\[i \* 32:i \* 32 \+ 32,0:4\] must lie in 0:64 of dimension 0; it begins at "
    with pytest.raises(LayoutError, match=message + "0 to 64"):
        k.lower()


@pytest.mark.parametrize(
    ("low", "high", "right"),
    [(1, 3, True), (0, 3, False), (1, 4, False), (2, 2, True)],
)
def test_the_branches_around_a_region_count(low: int, high: int, right: bool) -> None:
    k = lw.Kernel("k")
    a, o = pair(k, 64, 4)
    with k.loop("i", 5) as i, k.when(i >= low), k.when(i < high):
        copied(k, a, o, slice(i * 32 - 32, i * 32))
    if right:
        k.lower()
        return
    with pytest.raises(LayoutError, match="must lie in 0:64"):
        k.lower()


def test_a_range_has_a_number_of_elements() -> None:
    k = lw.Kernel("k")
    a, _ = pair(k, 64, 4)
    with k.loop("i", 4) as i:
        with pytest.raises(LayoutError, match=r"a\[…\]: the range i:i \* 2 of .* a number fits"):
            a[i : i * 2]
        with pytest.raises(LayoutError, match="must lie in 0:64"):
            a[i + 63 : i + 65]
        with pytest.raises(LayoutError, match="empty"):
            a[i:i]
        with pytest.raises(LayoutError, match="must be an integer"):
            a[1.5]  # type: ignore[index]


# -- stages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_ring_filled_by_cp_async_is_read_by_ldmatrix(stages: int) -> None:
    steps = 6
    a_frag, b_frag, d_frag = (fragments.get("mma.m16n8k16.f16", role).layout for role in "ABD")
    k = lw.Kernel("k")
    a, b = k.param("a", (16, 16 * steps), "float16"), k.param("b", (16 * steps, 8), "float16")
    d = k.param("d", (16, 8), "float32")
    ring = swizzled_tile((stages, 16, 16), 32, 16)
    sa = k.alloc("sa", (stages, 16, 16), "float16", "shared", ring)
    sb = k.alloc("sb", (stages, 16, 8), "float16", "shared")
    ra, rb = (
        k.alloc(name, shape, "float16", layout=layout)
        for name, shape, layout in (("ra", (16, 16), a_frag), ("rb", (16, 8), b_frag))
    )
    rd = k.alloc("rd", (16, 8), "float32", layout=d_frag)

    def load(i: Any) -> None:
        k.copy(sa[i % stages], a[:, i * 16 : i * 16 + 16], asynchronous=True)
        k.copy(sb[i % stages], b[i * 16 : i * 16 + 16], asynchronous=True)

    k.zero(rd)
    for i in range(stages - 1):
        load(i)
        k.commit()
    with k.loop("i", steps) as i:
        k.wait(stages - 2)
        k.sync()
        k.copy(ra, sa[i % stages], dispatch="ldstmatrix")
        k.copy(rb, sb[i % stages], dispatch="ldstmatrix")
        with k.when(i + (stages - 1) < steps):
            load(i + (stages - 1))
        k.commit()
        k.gemm(rd, ra, rb, rd, beta=1)
    k.copy(d, rd)
    x, y = numbers(16, 16 * steps), numbers(16 * steps, 8)
    found = k.lower().simulate(a=x, b=y)["d"]
    assert (found == x.astype(float) @ y.astype(float)).all()


@pytest.mark.parametrize("known", [True, False])
def test_a_ring_filled_by_tma_is_read_by_wgmma(known: bool) -> None:
    stages, steps = 3, 5
    k = lw.Kernel("k", threads=128, arch="sm_90a")
    count = steps if known else k.scalar("n")
    a = k.param("a", (64, 64 * steps), "float16")
    d = k.param("d", (64, 64), "float32")
    ring = swizzled_tile((stages, 64, 64), 128, 16)
    sa = k.alloc("sa", (stages, 64, 64), "float16", "shared", ring)
    layout = fragments.get("wgmma.m64n64", "D.f32").layout
    acc = k.alloc("acc", (64, 64), "float32", layout=layout)
    full, empty = k.barrier("full", stages, 1), k.barrier("empty", stages, 4)
    with k.producer(), k.loop("p", count) as p:
        into = sa[p % stages], a[:, p * 64 : p * 64 + 64]
        k.tma_load(full, p % stages, [into], free=(empty, p % stages, p // stages + 1))
    with k.loop("i", count) as i:
        k.mbarrier_wait(full, i % stages, i // stages % 2)
        k.gemm_async(acc, sa[i % stages], sa[i % stages], transB=True, accum=i)
        k.commit("gemm"), k.wait(0, "gemm")
        k.arrive(empty, i % stages)
    k.copy(d, acc)
    x = numbers(64, 64 * steps)
    found = k.lower().simulate(a=x, **({} if known else {"n": steps}))["d"]
    assert (found == x.astype(float) @ x.astype(float).T).all()


# -- conditions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (lambda i: i < 2, (0, 1)), (lambda i: i <= 2, (0, 1, 2)), (lambda i: i > 2, (3, 4)),
        (lambda i: i >= 2, (2, 3, 4)), (lambda i: 2 < i, (3, 4)), (lambda i: 2 >= i, (0, 1, 2)),  # noqa: SIM300
        (lambda i: i % 2 < 1, (0, 2, 4)), (lambda i: i * 2 - 4 > -1, (2, 3, 4)),
        (lambda i: i < np.int64(2), (0, 1)), (lambda i: np.int64(2) <= i, (2, 3, 4)),
        (lambda i: i - 3 < 0, (0, 1, 2)), (lambda i: i < 9 - i, (0, 1, 2, 3, 4)),
        (lambda i: i >= 4 - i, (2, 3, 4)),
    ],
)  # fmt: skip
def test_a_branch_is_taken_where_its_condition_holds(condition: Any, holds: Any) -> None:
    k = lw.Kernel("k")
    a = k.param("a", (160, 4), "float16")
    o = k.param("o", (160, 4), "float16")
    r = k.alloc("r", (32, 4), "float16", layout=ROW)
    with k.loop("i", 5) as i:
        k.zero(r)
        with k.when(condition(i)):
            k.copy(r, a[i * 32 : i * 32 + 32])
        k.copy(o[i * 32 : i * 32 + 32], r)
    x = np.ones((160, 4), np.float16)
    program = k.lower()
    got = program.simulate(a=x)["o"][::32, 0]
    assert got.tolist() == [float(step in holds) for step in range(5)]


@pytest.mark.parametrize(
    "condition",
    [lambda i, n: i < n, lambda i, n: n > i, lambda i, n: n - 1 >= i, lambda i, n: i + 1 <= n],
)
def test_a_scalar_bounds_a_branch(condition: Any) -> None:
    k = lw.Kernel("k")
    n = k.scalar("n")
    a, o = pair(k, 160, 4)
    r = k.alloc("r", (32, 4), "float16", layout=ROW)
    with k.loop("i", 5) as i:
        k.zero(r)
        with k.when(condition(i, n)):
            k.copy(r, a[i * 32 : i * 32 + 32])
        k.copy(o[i * 32 : i * 32 + 32], r)
    got = k.lower().simulate(a=np.ones((160, 4), np.float16), n=3)["o"][::32, 0]
    assert got.tolist() == [1, 1, 1, 0, 0]


def test_a_scalar_alone_is_a_condition() -> None:
    k = lw.Kernel("k")
    n = k.scalar("n")
    with k.when(n >= 8):
        k.sync("warp")
    assert "if 7 < n:" in k.lower().script()


def test_python_does_not_decide() -> None:
    k = lw.Kernel("k", threads=64)
    n = k.scalar("n")
    with k.loop("i", 4) as i:
        for decide in (
            lambda: bool(k.warp), lambda: k.warp == 0, lambda: 0 == i, lambda: k.warp != 1,  # noqa: SIM300
            lambda: bool(i < 2), lambda: 0 <= i < 2, lambda: i == n, lambda: not i,
        ):  # fmt: skip
            with pytest.raises(LayoutError, match=r"Python cannot branch on it: write `with k\.w"):
                decide()
        assert i == Index.of("i", 4)
        assert i != k.warp
        assert len({i, Index.of("i", 4), k.warp}) == 2


def test_no_condition_is_refused() -> None:
    k = lw.Kernel("k")
    for wrong in (True, 3, k.warp, "i < 3", None):
        message = "when: a condition is a comparison, such as i < 3"
        with pytest.raises(LayoutError, match=message), k.when(wrong):
            pass


def test_an_index_leaves_what_it_does_not_know_to_the_other_side() -> None:
    for wrong in (1.5, "x", None, True):
        for use in (lambda x: Index.of("i", 4) + x, lambda x: x * Index.of("i", 4),
                    lambda x: Index.of("i", 4) < x, lambda x: x - Index.of("i", 4)):  # fmt: skip
            with pytest.raises(TypeError):
                use(wrong)
    k = lw.Kernel("k")
    r = k.alloc("r", (32, 4), "int32", layout=ROW)
    assert str(k.lane + r) == "(thread + r)"
    assert str(k.lane < r) == "(r > thread)"


# -- many steps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [64, 1024])
def test_three_loops_that_stay_lower_at_once(steps: int) -> None:
    """0.03 s of process time each; by all values of the variables, 64 steps took minutes."""
    a_frag, b_frag, d_frag = (fragments.get("mma.m16n8k16.f16", role).layout for role in "ABD")
    k = lw.Kernel("k", threads=128)
    a = k.param("a", (16 * steps, 16 * steps), "float16")
    b = k.param("b", (16 * steps, 8 * steps), "float16")
    d = k.param("d", (16 * steps, 8 * steps), "float32")
    masked = k.param("c", (2**24, 64), "float16", bounds=(k.scalar("rows"), None))
    ring = swizzled_tile((3, 16, 16), 32, 16)
    sa = k.alloc("sa", (3, 16, 16), "float16", "shared", ring)
    sb = k.alloc("sb", (3, 16, 8), "float16", "shared")
    ra, rm = (k.alloc(name, (16, 16), "float16", layout=a_frag) for name in ("ra", "rm"))
    rb = k.alloc("rb", (16, 8), "float16", layout=b_frag)
    rd = k.alloc("rd", (16, 8), "float32", layout=d_frag)
    with k.loop("i", steps) as i, k.loop("j", steps) as j:
        k.zero(rd)
        with k.loop("l", steps) as l:  # noqa: E741
            stage = (i * steps * steps + j * steps + l) % 3
            k.copy(sa[stage], a[i * 16 : i * 16 + 16, l * 16 : l * 16 + 16], asynchronous=True)
            k.copy(sb[stage], b[l * 16 : l * 16 + 16, j * 8 : j * 8 + 8], asynchronous=True)
            k.commit(), k.wait(), k.sync()
            k.copy(ra, sa[stage]), k.copy(rb, sb[stage])
            row, col = (i + j + l) * 16, (k.warp + i + j * 3 + l) % 4 * 16
            k.copy(rm, masked[row : row + 16, col : col + 16])
            with k.when(l >= 1), k.when((k.warp + i + l) % 4 < 2):
                k.gemm(rd, ra, rb, rd, beta=1)
            k.sync()
        with k.when(k.warp, 1):
            k.copy(d[i * 16 : i * 16 + 16, j * 8 : j * 8 + 8], rd)
    start = time.process_time()
    k.lower()
    assert time.process_time() - start < 1.5


def test_strides_and_scalars_stay_symbols() -> None:
    k = lw.Kernel("k")
    layout = TileLayout(S[(64, 64) : (k.scalar("pitch") * 8, 1)])
    a = k.param("a", (64, 64), "float16", layout)
    r = k.alloc("r", (32, 4), "float16", layout=ROW)
    with k.loop("i", 2) as i:
        k.copy(r, a[i * 32 : i * 32 + 32, 4:8])
    assert "(i * pitch) * 256" in k.lower().script()
