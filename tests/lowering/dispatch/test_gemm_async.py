"""``gemm_async``: what wgmma takes and refuses, the fences that are placed, bulk stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import ComposeLayout, LayoutError, S, TileLayout, fragments, wgid
from layoutalg.fragments import targets
from layoutalg.fragments.targets import TARGETS
from layoutalg.layouts.hardware import swizzled_tile
from lowering.dispatch.registry import context_of, dispatch
from lowering.dispatch.smem_operands import accumulation
from lowering.ir.index import Index
from lowering.ir.ops import (
    Op,
    ProxyFence,
    Sync,
    TmaStoreWait,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    walk,
)
from lowering.programs.kernel import Kernel
from lowering.simulator.hazards import SimulationError
from lowering.simulator.machine import Machine
from lowering.simulator.run import execute, run_to_end

Array = Any


def accumulator(n: int, kind: str = "f32") -> TileLayout:
    return fragments.get(f"wgmma.m64n{n}", f"D.{kind}").layout


def tile(rows: int, cols: int, bits: int, period: int = 128) -> ComposeLayout:
    return swizzled_tile((1, rows, cols), period, bits)


def product(
    dtype: str = "float16",
    out: str = "float32",
    sizes: tuple[int, int, int] = (64, 64, 64),
    flips: tuple[bool, bool] = (False, False),
    layout: TileLayout | None = None,
    threads: int = 128,
    arch: str = "sm_90a",
) -> Kernel:
    """Return a kernel that brings A and B to shared memory by its threads, multiplies and stores.

    ``flips``: A is stored (K, M), B (N, K).
    """
    (m, n, k), (flip_a, flip_b) = sizes, flips
    kernel = Kernel("product", threads, arch)
    shapes = {"A": (k, m) if flip_a else (m, k), "B": (n, k) if flip_b else (k, n)}
    held = {}
    for role, shape in shapes.items():
        given = kernel.param(role, shape, dtype)
        bits = given.dtype.bits
        where = tile(*shape, bits, min(128, shape[1] * bits // 8))
        held[role] = kernel.alloc(f"{role}_tile", (1, *shape), dtype, "shared", where)
        kernel.copy(held[role][0], given)
    result = kernel.param("D", (m, n), out)
    total = kernel.alloc("C", (m, n), out, layout=layout or accumulator(n, total_kind(out)))
    kernel.sync()
    kernel.gemm_async(total, held["A"][0], held["B"][0], transA=flip_a, transB=flip_b)
    kernel.commit("gemm")
    kernel.wait(0, "gemm")
    kernel.copy(result, total)
    return kernel


def total_kind(out: str) -> str:
    return {"float32": "f32", "float16": "f16", "int32": "s32"}[out]


def inputs(sizes: tuple[int, int, int], flips: tuple[bool, bool]) -> tuple[dict[str, Array], Array]:
    m, n, k = sizes
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape) for shape in ((m, k), (k, n)))
    return {"A": a.T if flips[0] else a, "B": b.T if flips[1] else b}, a @ b


def multiplies(kernel: Kernel, sizes: tuple[int, int, int], flips: tuple[bool, bool]) -> bool:
    given, want = inputs(sizes, flips)
    out = kernel.lower().simulate(**given)["D"]
    return bool((out.astype(float) == want).all())


FLIPS = [(False, False), (False, True), (True, False), (True, True)]


@pytest.mark.parametrize("flips", FLIPS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_both_majors_of_both_operands(dtype: str, flips: tuple[bool, bool]) -> None:
    kernel = product(dtype, sizes=(64, 128, 64), flips=flips)
    assert multiplies(kernel, (64, 128, 64), flips)


@pytest.mark.parametrize(
    ("dtype", "out", "sizes"),
    [
        ("float16", "float16", (64, 8, 16)),
        ("tf32", "float32", (64, 24, 16)),
        ("e4m3", "float32", (64, 40, 128)),
        ("e5m2", "float16", (64, 16, 64)),
        ("int8", "int32", (64, 48, 64)),
        ("uint8", "int32", (64, 16, 32)),
    ],
)
def test_every_kind_of_type(dtype: str, out: str, sizes: tuple[int, int, int]) -> None:
    """B is stored (N, K): types of other than 16 bits are K-major."""
    flips = (False, True)
    kernel = product(dtype, out, sizes, flips)
    given, want = inputs(sizes, flips)
    if dtype == "uint8":
        given = {role: abs(matrix) for role, matrix in given.items()}
        want = given["A"] @ given["B"].T
    out_matrix = kernel.lower().simulate(**given)["D"]
    assert (out_matrix.astype(float) == want).all()


LAYOUTS: dict[str, tuple[tuple[int, int], TileLayout, int]] = {
    "two warpgroups along M": (
        (128, 64),
        accumulator(64).tile(TileLayout(S[(2, 1) : (1 @ wgid, 1 @ wgid)]), (2, 1), (64, 64)),
        256,
    ),
    "two warpgroups along N": (
        (64, 128),
        accumulator(64).tile(TileLayout(S[(1, 2) : (1 @ wgid, 1 @ wgid)]), (1, 2), (64, 64)),
        256,
    ),
    "two tiles along M": ((128, 32), accumulator(32).tile_to((128, 32), (64, 32)), 128),
    "two tiles along N": ((64, 512), accumulator(256).tile_to((64, 512), (64, 256)), 128),
    "both": (
        (256, 64),
        accumulator(64)
        .tile(TileLayout(S[(2, 1) : (1 @ wgid, 1 @ wgid)]), (2, 1), (64, 64))
        .tile_to((256, 64), (128, 64)),
        256,
    ),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_accumulators_over_warpgroups_and_tiles(case: str) -> None:
    """Which registers make a tile, and where it lies in each warpgroup, is found."""
    (m, n), layout, threads = LAYOUTS[case]
    kernel = product(sizes=(m, n, 32), layout=layout, threads=threads, flips=(False, True))
    program = kernel.lower()
    given, want = inputs((m, n, 32), (False, True))
    assert (program.simulate(**given)["D"] == want).all()
    products = [op for op in walk(program.body.ops) if isinstance(op, Wgmma)]
    assert len(products) == 2 * m * n // (64 * products[0].instruction.n * threads // 128)


def register_kernel(rows: TileLayout, arch: str = "sm_90a") -> Kernel:
    kernel = Kernel("registers", 128, arch)
    a, b = kernel.param("A", (64, 32), "float16"), kernel.param("B", (32, 64), "float16")
    held = kernel.alloc("A_held", (64, 32), "float16", layout=rows)
    right = kernel.alloc("B_tile", (1, 32, 64), "float16", "shared", tile(32, 64, 16))
    total = kernel.alloc("C", (64, 64), "float32", layout=accumulator(64))
    result = kernel.param("D", (64, 64), "float32")
    kernel.copy(held, a)
    kernel.copy(right[0], b)
    kernel.sync()
    kernel.zero(total)
    kernel.gemm_async(total, held, right[0], accum=True)
    kernel.commit("gemm")
    kernel.wait(0, "gemm")
    kernel.copy(result, total)
    return kernel


FRAGMENT_A = fragments.get("wgmma.m64nNk16.f16", "A.reg").layout


def test_a_in_registers() -> None:
    kernel = register_kernel(FRAGMENT_A.tile_to((64, 32), (64, 16)))
    assert multiplies(kernel, (64, 64, 32), (False, False))


def test_a_number_of_variables_says_whether_to_add() -> None:
    """A loop twice, the second time over again: the first product of each overwrites."""
    kernel = register_kernel(FRAGMENT_A.tile_to((64, 32), (64, 16)))
    product_at = next(
        at for at, each in enumerate(kernel._blocks[0]) if getattr(each, "op", "") == "gemm_async"
    )
    after = kernel._blocks[0][product_at + 1 :]
    del kernel._blocks[0][product_at - 1 :]  # and the zeros before it
    held, right, total = (kernel.buffers[name] for name in ("A_held", "B_tile", "C"))
    with kernel.loop("turn", 2), kernel.loop("step", 3) as step:
        kernel.gemm_async(total, held, right[0], accum=step)
        kernel.commit("gemm")
        kernel.wait(0, "gemm")
    kernel._blocks[0].extend(after)
    given, want = inputs((64, 64, 32), (False, False))
    program = kernel.lower()
    assert (program.simulate(**given)["D"] == 3 * want).all()
    adds = [op.accumulate for op in walk(program.body.ops) if isinstance(op, Wgmma)]
    assert [str(adds[0]), *adds[1:]] == ["step", True]
    assert "C[0..31] if step)" in program.script()


def test_a_number_that_is_never_0_adds() -> None:
    assert [accumulation(given, 0) for given in (True, False, Index.of("k", 4) + 1)] == [
        True, False, True,
    ]  # fmt: skip
    assert accumulation(Index.of("k", 4), 0) == Index.of("k", 4)
    assert accumulation(False, 16) is True


# -- what is refused ------------------------------------------------------------------------------


def reasons(call: Callable[[], Any]) -> dict[str, str]:
    with pytest.raises(lw.DispatchError) as caught:
        call()
    found: dict[str, str] = {}
    for variant, _, reason in caught.value.reasons:
        found.setdefault(variant, reason)
    return found


@pytest.mark.parametrize("arch", [each for each in TARGETS if each != "sm_90a"])
def test_other_targets_refuse_and_name_those_that_fit(arch: str) -> None:
    kernel = product(sizes=(64, 8, 16))
    if not targets.has("sm_80", arch):
        kernel._blocks[0] = [
            each for each in kernel._blocks[0] if getattr(each, "op", "") != "copy"
        ]
    kernel.arch = arch
    found = reasons(kernel.lower)
    assert found["wgmma"] == f"{arch} lacks wgmma.mma_async; sm_90a has it"
    fits = targets.has("sm_100a, sm_110a", arch)
    assert found["tcgen05"].startswith(
        "one thread starts it" if fits else f"{arch} lacks tcgen05.mma; sm_100, "
    )


def shared(name: str, shape: tuple[int, int], dtype: str = "f16", period: int = 128) -> lw.Buffer:
    bits = lw.Buffer(name, shape, dtype, "shared").dtype.bits
    ring = swizzled_tile((1, *shape), period, bits)
    grouped = ring.tile_layout.slice((1, *shape), ((0, 1), *((0, n) for n in shape)))
    assert grouped is not None
    return lw.Buffer(name, shape, dtype, "shared", ring.over(grouped))


C = lw.Buffer("C", (64, 64), "f32", layout=accumulator(64))
OTHER = accumulator(64).permute_dims((0, 2, 1, 3, 4, 5))
NARROW = accumulator(8).slice((64, 8), ((0, 64), (0, 4)))
A, B = shared("A", (64, 64)), shared("B", (64, 64))
A_HELD = lw.Buffer("A", (64, 64), "f16", layout=FRAGMENT_A.tile_to((64, 64), (64, 16)))
PADDED = lw.Buffer("A", (64, 64), "f16", "shared", TileLayout(S[(64, 64) : (72, 1)]))
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a warp": ({"scope": "warp"}, "takes a warpgroup, or a CTA of whole warpgroups; the scope is"),
    "scales": ({"SFA": C}, "takes no block scales; got SFA"),
    "C in shared memory": ({"C": shared("C", (64, 64), "f32")}, "C must be in registers, B in sha"),
    "all in registers": (
        {"A": A_HELD, "B": A_HELD}, "C must be in registers, B in shared memory, and A in either; "
    ),
    "types": ({"B": shared("B", (64, 64), "bf16")}, "accumulators of f16 x bf16 are none: A and B"),
    "an accumulator": (
        {"C": lw.Buffer("C", (64, 64), "f16", layout=accumulator(64)),
         "A": shared("A", (64, 64), "bf16"), "B": shared("B", (64, 64), "bf16")},
        "accumulators of bf16 x bf16 are f32; C is f16",
    ),
    "N": (
        {"C": lw.Buffer("C", (64, 4), "f32", layout=NARROW),
         "B": lw.Buffer("B", (64, 4), "f16", "shared")},
        "N must be a multiple of one of 8, 16, 24, ",
    ),
    "M": (
        {"C": lw.Buffer("C", (32, 64), "f32", layout=TileLayout(S[(32, 64) : (1 @ wgid, 1)])),
         "A": shared("A", (32, 64))},
        "M must be a multiple of 64, the rows of a warpgroup; got 32",
    ),
    "K": (
        {"A": lw.Buffer("A", (64, 8), "f16", "shared"), "B": shared("B", (8, 64))},
        "K must be a multiple of 16, 32 bytes of f16; got 8",
    ),
    "shapes": ({"A": shared("A", (64, 32))}, r"C (M, N) is (64, 64), A (M, K) (64, 32), B (K, N)"),
    "three dimensions": (
        {"A": lw.Buffer("A", (2, 64, 64), "f16", "shared")}, "operands are matrices; got A[0:2,"
    ),
    "no descriptor": ({"A": PADDED}, "A: descriptor: "),
    "MN-major bytes": (
        {"A": shared("A", (64, 64), "e4m3", 64), "B": shared("B", (64, 64), "e4m3", 64)},
        "only 16-bit operands may be MN-major",
    ),
    "another accumulator": (
        {"C": lw.Buffer("C", (64, 64), "f32", layout=OTHER)},
        "is not made of accumulators of a warpgroup; tiles of S[",
    ),
    "a transposed A in registers": ({"A": A_HELD, "transA": True}, "transA is a matter of its "),
    "another A in registers": (
        {"A": lw.Buffer("A", (64, 64), "f16", layout=OTHER)}, " is not made of S[(4,2,8,2,4,2)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_wgmma_refuses(case: str) -> None:
    given, message = REFUSED[case]
    scope = given.get("scope", "warpgroup")
    operands = {"C": C, "A": A, "B": B} | {k: v for k, v in given.items() if k != "scope"}
    made = lw.gemm_async(**operands, scope=scope)
    context = context_of(made, "cuda", 128, None, "sm_90a")
    assert message in reasons(lambda: dispatch(context))["wgmma"]


def test_half_a_warpgroup() -> None:
    context = context_of(lw.gemm_async(C, A, B, scope="cta"), "cuda", 64, None, "sm_90a")
    assert reasons(lambda: dispatch(context))["wgmma"].startswith("takes whole warpgroups of 128")
    part = context_of(lw.gemm_async(C, A, B), "cuda", 128, {"laneid": (0, 16)}, "sm_90a")
    assert reasons(lambda: dispatch(part))["wgmma"].startswith("all lanes of a warpgroup must take")


def test_warpgroups_that_are_not_equally_far_apart() -> None:
    """Rows 0, 2, 1, 3 of tiles: no one expression says where A of a warpgroup starts."""
    layout = accumulator(64).tile(TileLayout(S[(2, 2) : (1 @ wgid, 2 @ wgid)]), (4, 1), (64, 64))
    total = lw.Buffer("C", (256, 64), "f32", layout=layout)
    context = context_of(
        lw.gemm_async(total, shared("A", (256, 64)), B, scope="cta"), "cuda", 512, None, "sm_90a"
    )
    message = "is not made of accumulators of a warpgroup"
    assert message in reasons(lambda: dispatch(context))["wgmma"]


def test_the_call_checks_its_own() -> None:
    with pytest.raises(LayoutError, match="gemm_async: transA must be True or False; got 1"):
        lw.gemm_async(C, A, B, transA=1)  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="gemm_async: operand A must be a Buffer"):
        lw.gemm_async(C, None, B)  # type: ignore[arg-type]
    assert str(lw.gemm_async(C, A, B, accum=True)).endswith("accum=True, scope=warpgroup)")


# -- what is ordered ------------------------------------------------------------------------------


def without(*kinds: type) -> Callable[[tuple[Op, ...]], tuple[Op, ...]]:
    return lambda ops: tuple(op for op in ops if not isinstance(op, kinds))


def early(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Let the wait complete nothing: one group may still be under way."""
    return tuple(WgmmaWait(1) if isinstance(op, WgmmaWait) else op for op in ops)


FAULTS = {
    "no proxy fence": (
        without(ProxyFence),
        "reads A_tile at 0, which thread 0 wrote with no fence",
    ),
    "no barrier": (without(Sync), "races: warpgroup 0 reads A_tile"),
    "no register fence": (without(WgmmaFence), "a wgmma.fence must precede it"),
    "no commit": (without(WgmmaCommit), "still accumulates: commit it"),
    "no wait": (without(WgmmaWait), "still accumulates"),
    "a wait for one group less": (early, "still accumulates"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_missing_fence_or_wait_is_an_error(fault: str) -> None:
    change, message = FAULTS[fault]
    body = product().lower().body
    given, _ = inputs((64, 64, 64), (False, False))
    matrices = {role: matrix.astype(np.float16) for role, matrix in given.items()}
    execute(body, matrices)
    with pytest.raises(SimulationError) as caught:
        execute(replace(body, ops=change(body.ops)), matrices)
    assert message in str(caught.value)


def test_fences_are_placed_where_threads_write() -> None:
    """One before the barrier that follows a write, also where the write comes a turn before."""
    script = product().lower().script("dispatched").splitlines()
    assert script.index("fence.proxy.async") == script.index("sync(cta)") - 1
    assert script.count("fence.proxy.async") == 1
    assert script[-2] == "wgmma.wait(0)"
    assert "wgmma.wait(0, C[0..31])" in product().lower().script("operations")
    kernel = product()
    tile_a = kernel.buffers["A_tile"]
    with kernel.loop("turn", 2):
        kernel.sync()
        kernel.sync()
        kernel.copy(tile_a[0], kernel.buffers["A"])
    script = [line.strip() for line in kernel.lower().script("dispatched").splitlines()]
    loop = script.index("for turn in range(2):")
    assert script[loop + 1 : loop + 4] == ["fence.proxy.async", "sync(cta)", "sync(cta)"]


def test_the_builder_refuses() -> None:
    kernel = Kernel("k", 96)
    for refused, message in (
        (lambda: kernel.commit("copies"), "of must be 'copy' or 'gemm'; got 'copies'"),
        (lambda: kernel.sync("warpgroup"), "sync: 96 threads are no whole warpgroups"),
    ):
        with pytest.raises(LayoutError, match=message):
            refused()


# -- bulk stores ----------------------------------------------------------------------------------


def storing(threads: int = 256, rows: int = 128, layout: Any = None, arch: str = "sm_90") -> Kernel:
    """Return a kernel that drains two tiles, one after the other, through one place."""
    kernel = Kernel("storing", threads, arch)
    given = kernel.param("A", (rows, 64), "float16")
    matrix = kernel.param("D", (2 * rows, 64), "float16")
    staging = kernel.alloc(
        "staging", (1, rows, 64), "float16", "shared", layout or tile(rows, 64, 16)
    )
    for part in range(2):
        kernel.tma_store_wait()
        kernel.sync()
        kernel.copy(staging[0], given)
        kernel.sync()
        kernel.tma_store((matrix[part * rows : (part + 1) * rows, 0:64], staging[0]))
    kernel.tma_store_wait()
    return kernel


def drained(
    kernel: Kernel, change: Callable[[tuple[Op, ...]], tuple[Op, ...]]
) -> tuple[Array, Array]:
    body = kernel.lower().body
    machine = Machine(replace(body, ops=change(body.ops)))
    machine.extents["D"], machine.pitches["D"] = (250, 64), 64
    values = np.arange(128 * 64).astype(np.float16).reshape(128, 64)
    machine.allocate(body.buffer("A"), values.reshape(-1), True)
    machine.allocate(body.buffer("D"), np.full(256 * 64, np.nan, np.float16), False)
    run_to_end(machine)
    return values, machine.memory["D"].values.reshape(256, 64)


def test_each_warpgroup_stores_its_rows_and_edges_are_clipped() -> None:
    assert "tma_store(D[thread // 128 * 64 +64, 0 +64] = staging[thread // 128 * 4096])" in (
        storing().lower().script()
    )
    values, out = drained(storing(), lambda ops: ops)
    assert (out[:128] == values).all()
    assert (out[128:250] == values[:122]).all()
    assert np.isnan(out[250:]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without(ProxyFence), "with no fence.proxy.async in between"),
        (without(Sync), "races"),
        (without(TmaStoreWait), "which a TMA store still reads: wait with tma_store_wait"),
        (lambda ops: ops[:-1], "asynchronous copies are under way at the end"),
    ],
)
def test_a_drain_that_is_not_ordered_is_an_error(change: Any, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        drained(storing(), change)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"arch": "sm_80"}, "sm_80 lacks cp.async.bulk.tensor; sm_90 and newer have it"),
        ({"threads": 96}, "needs whole warpgroups of 128 threads; got 96"),
        ({"threads": 384}, "whose rows 3 warpgroups share"),
        ({"layout": TileLayout(S[(1, 128, 64) : (1, 64, 1)])}, "staging must be swizzled"),
        ({"layout": tile(128, 64, 16).over(TileLayout(S[(1, 128, 64) : (1, 1, 128)]))},
         "does not put a box where TMA does"),
    ],
)  # fmt: skip
def test_what_no_box_stores(config: dict[str, Any], reason: str) -> None:
    assert reason in reasons(storing(**config).lower)["tensor_map_store"]


def test_both_texts_drain_by_one_thread() -> None:
    program = storing().lower()
    for text in (program.cuda_source(), program.kernel_source()):
        assert "(thread & 127) == 0" in text
        assert "tma_store(D_base, " in text
        assert text.index("tma_store_wait_0(") < text.index("tma_store_commit(")
    assert "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group" in program.ptx("sm_90")
    assert program.cubin("sm_90")[:4] == b"\x7fELF"
