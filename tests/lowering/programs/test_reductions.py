"""Reductions of register tiles: right over random layouts, with as few shuffles as lanes need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import Iter, LayoutError, TileLayout, fragments, parse
from layoutalg.layouts.hardware import swizzled_tile
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import Butterfly, Op, Sync, rewrite, walk
from lowering.simulator.hazards import SimulationError
from lowering.simulator.run import execute
from tests.support.cubin import usage
from tests.support.kernel_texts import outputs

Array = np.ndarray[Any, Any]
CASES = 200
NUMPY = {"max": np.max, "min": np.min, "sum": np.sum, "any": np.any}
TYPES = ("float16", "bfloat16", "float32", "float64", "int32")
WORDS = {"float16": 0.5, "bfloat16": 0.5, "float32": 1, "float64": 2, "int32": 1}


@dataclass(frozen=True)
class Case:
    """A layout, what is reduced, and what of it the lanes hold."""

    threads: int
    layout: TileLayout
    shape: tuple[int, ...]
    axis: int | tuple[int, ...] | None
    name: str
    dtype: str
    kept: int  # registers of a thread that are left
    bits: int  # of the lane number, in the dimensions that go

    @property
    def shuffles(self) -> int:
        """Each word of a thread's results goes once for each bit of the lane number."""
        return int(np.ceil(self.kept * WORDS[self.dtype])) * self.bits


def thread_digit(bit: int, form: str) -> tuple[int, str]:
    """Return stride and axis of a bit of the thread number."""
    if form == "tx":
        return 1 << bit, "tx"
    if form == "tid_in_wg":
        return 1 << bit, "tid_in_wg"
    return (1 << bit, "laneid") if bit < 5 else (1 << (bit - 5), "warpid")


def drawn(number: int) -> Case:
    """Draw a case: bits of the thread number and digits of registers, shared out over dimensions.

    Some bits are replicas, some are in no digit: those threads hold copies.
    """
    rng = np.random.default_rng(number)
    threads = int(rng.choice([32, 64, 128]))
    form = str(rng.choice(["laneid", "laneid", "tx", "tid_in_wg"]))
    rank = int(rng.integers(1, 4))
    digits: list[Iter] = []
    replica: list[Iter] = []
    for bit in range(threads.bit_length() - 1):
        it = Iter(2, *thread_digit(bit, form))
        kind = rng.random()
        if kind < 0.8:
            digits.append(it)
        elif kind < 0.9:
            replica.append(it)
    extents = [int(rng.choice([2, 2, 2, 3, 4])) for _ in range(rng.integers(0, 5))]
    stride = 1
    for extent in extents:
        digits.append(Iter(extent, stride, "m"))
        stride *= extent
    rng.shuffle(digits)  # type: ignore[arg-type]
    dims: list[list[Iter]] = [[] for _ in range(rank)]
    for it in digits:
        dims[int(rng.integers(rank))].append(it)
    axes = tuple(int(dim) for dim in np.flatnonzero(rng.random(rank) < 0.5))
    axis: int | tuple[int, ...] | None = axes if len(axes) > 1 else axes[0] if axes else None
    gone = set(axes) if axes else set(range(rank))
    name = str(rng.choice(list(NUMPY)))
    kept, bits = 1, 0
    for dim, group in enumerate(dims):
        for it in group:
            if it.axis.memory:
                kept *= 1 if dim in gone else int(it.extent)
            elif dim in gone:
                bits += it.axis.name in ("laneid", "tx", "tid_in_wg") and int(it.stride) < 32
    shard = [it for group in dims for it in group] or [Iter(1, 1, "m")]
    shape = tuple(int(np.prod([it.extent for it in group], dtype=int)) for group in dims)
    offset = {"m": int(rng.choice([0, 0, 1, 4]))}
    return Case(
        threads, TileLayout.from_iters(shard, replica, offset), shape, axis, name,
        "int32" if name == "any" else str(rng.choice(TYPES)), kept, bits,
    )  # fmt: skip


def matrix(case: Case, seed: int) -> Array:
    """Return few small integers: each type holds their sums."""
    rng = np.random.default_rng(seed)
    flat = np.zeros(int(np.prod(case.shape)))
    some = rng.choice(flat.size, min(flat.size, 64), replace=False)
    flat[some] = rng.integers(-2, 3, some.size)
    return flat.reshape(case.shape)


def rounded(case: Case, seed: int) -> Array:
    """Return numbers whose sums are rounded; of floats some are NaN, or 0 of either sign."""
    rng = np.random.default_rng(seed)
    if case.dtype == "int32":
        return rng.integers(-(2**31), 2**31, case.shape) * (rng.random(case.shape) < 0.3)
    found = rng.normal(size=case.shape)
    found[rng.random(case.shape) < 0.1] = 0.0
    found[rng.random(case.shape) < 0.1] = -0.0
    if seed % 4 == 0:
        found[rng.random(case.shape) < 0.02] = np.nan
    return found


def bits(values: Array) -> Array:
    """Return the bits of elements; every NaN is one."""
    nan = np.isnan(values.astype(np.float64))
    raw = np.ascontiguousarray(values).view(f"uint{8 * values.dtype.itemsize}").astype(np.uint64)
    return np.where(nan, np.uint64(2**64 - 1), raw)


def program(case: Case) -> lw.KernelProgram:
    """Return ``y = reduction of x`` and, broadcast back, ``z = x - y``."""
    k = lw.Kernel("reduction", threads=case.threads)
    small = np.zeros(case.shape).sum(axis=case.axis, keepdims=True).shape
    x, z = k.param("x", case.shape, case.dtype), k.param("z", case.shape, case.dtype)
    y = k.param("y", small, case.dtype)
    s = k.alloc("s", case.shape, case.dtype, layout=case.layout)
    k.copy(s, x)
    m = k.tile("m", getattr(lw, case.name)(s, axis=case.axis))
    k.copy(y, m)
    k.assign(s, s - m)
    k.copy(z, s)
    return k.lower()


def words(op: Butterfly, dtype: str) -> int:
    """Return how many words an exchange moves."""
    per = 2 if WORDS[dtype] == 0.5 else 1
    return len({number // per for number in op.into.numbers}) * max(1, int(WORDS[dtype]))


@pytest.mark.parametrize(
    "block", [pytest.param(each, marks=pytest.mark.slow if each else ()) for each in range(8)]
)
def test_random_layouts(block: int) -> None:
    for number in range(block, CASES, 8):
        case = drawn(number)
        made = program(case)
        x = matrix(case, number)
        want = NUMPY[case.name](x, axis=case.axis, keepdims=True).astype(float)
        exact = made.simulate(x=x)
        assert (exact["y"].astype(float) == want).all(), case
        assert (exact["z"].astype(float) == x - want).all(), case
        found = [got for _, got in outputs(made, {"x": rounded(case, number)})]
        for got in found[1:]:  # both texts
            assert all((bits(got[name]) == bits(found[0][name])).all() for name in "yz"), case
        butterflies = [op for op in walk(made.body.ops) if isinstance(op, Butterfly)]
        assert sum(words(op, case.dtype) for op in butterflies) == case.shuffles, case
        text = made.cuda_source()
        calls = text.count("; shfl_bfly_")
        assert calls * max(1, int(WORDS[case.dtype])) == case.shuffles, case


@pytest.mark.slow
def test_machine_code_has_as_many_shuffles() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    seen: set[tuple[str, str]] = set()
    for case in map(drawn, range(CASES)):
        if case.bits and (case.name, case.dtype) not in seen:
            seen.add((case.name, case.dtype))
            assert usage(program(case).whole()).shuffles == case.shuffles, case
    assert len(seen) == 16


# -- what is joined with what ---------------------------------------------------------------------


def balanced(values: list[Array], join: Any) -> Array:
    """Join neighbours, halves, halves of halves; the first half is the longer one."""
    if len(values) == 1:
        return values[0]
    middle = (len(values) + 1) // 2
    found: Array = join(balanced(values[:middle], join), balanced(values[middle:], join))
    return found


ROWS = "S[(8,8,4,8,4):(4@laneid,1,1@warpid,8,1@laneid)]"  # columns: warp, registers, lanes


def rows(k: lw.Kernel, text: str = ROWS, dtype: str = "float32") -> lw.Buffer:
    """Load a (64, 128) matrix into registers."""
    s = k.alloc("s", (64, 128), dtype, layout=parse(text))
    k.copy(s, k.param("x", (64, 128), dtype))
    return s


def test_the_order_of_a_sum_is_defined() -> None:
    k = lw.Kernel("order", threads=128)
    m = k.tile("m", lw.sum(rows(k), axis=1))
    k.copy(k.param("y", (64, 1), "float32"), m)
    x = np.random.default_rng(1).normal(size=(64, 128)).astype(np.float32)
    cut = x.reshape(64, 4, 8, 4)
    warps = []
    for warp in range(4):
        lanes = balanced([cut[:, warp, register] for register in range(8)], np.add)
        lanes = lanes + lanes[:, [1, 0, 3, 2]]
        warps.append((lanes + lanes[:, [2, 3, 0, 1]])[:, 0])
    want = balanced(warps, np.add)[:, None]
    assert (want != x.sum(axis=1, keepdims=True)).any()  # else any order would do
    for machine, got in outputs(k.lower(), {"x": x}):
        assert (got["y"] == want).all(), machine


def test_a_nan_stays_and_zeros_have_signs() -> None:
    k = lw.Kernel("special", threads=128)
    s = rows(k)
    for name in ("max", "min"):
        k.copy(k.param(name + "_", (64, 1), "float32"), k.tile(name + "s", getattr(lw, name)(s, 1)))
    x = np.zeros((64, 128), np.float32)
    x[0, 77], x[1, 3], x[2] = np.nan, -0.0, -0.0
    for _, got in outputs(k.lower(), {"x": x}):
        for name in ("max_", "min_"):
            assert np.flatnonzero(np.isnan(got[name])).tolist() == [0]
        assert not np.signbit(got["max_"][1])
        assert np.signbit(got["min_"][1])
        assert np.signbit(got["max_"][2])


def test_halves_of_words_are_kept() -> None:
    """A result that shares its word with registers of another use leaves them as they are."""
    k = lw.Kernel("halves")
    x, y = k.param("x", (32, 8), "float16"), k.param("y", (1, 5), "float16")
    s = k.alloc("s", (32, 8), "float16", layout=parse("S[(32,8):(1@laneid,1)]"))
    wide = k.alloc("wide", (1, 5), "float16", layout=parse("S[(1,5):(1,1)] + R[32:1@laneid]"))
    k.copy(s, x)
    k.assign(wide, 7)
    k.assign(wide[:, 1:4], lw.sum(s[:, 2:5], axis=0))
    k.copy(y, wide)
    a = np.random.default_rng(2).integers(-9, 10, (32, 8))
    for machine, got in outputs(k.lower(), {"x": a}):
        assert got["y"].tolist() == [[7, *a[:, 2:5].sum(axis=0), 7]], machine


def test_an_exchange_with_another_lane_is_seen() -> None:
    k = lw.Kernel("masks", threads=128)
    k.copy(k.param("y", (64, 1), "float32"), k.tile("m", lw.sum(rows(k), axis=1)))
    body = k.lower().body
    x = np.random.default_rng(3).normal(size=(64, 128)).astype(np.float32)

    def changed(op: Op) -> tuple[Op, ...]:
        return (replace(op, mask=op.mask ^ 4),) if isinstance(op, Butterfly) else (op,)

    broken = replace(body, ops=rewrite(body.ops, changed))
    with pytest.raises(SimulationError, match="copies differ"):
        execute(broken, {"x": x})


def test_expressions_are_reduced() -> None:
    k = lw.Kernel("expressions", threads=128)
    s = rows(k)
    found = k.tile("found", lw.any(s > 2, axis=1))
    k.copy(k.param("y", (64, 1), "int32"), found)
    x = np.random.default_rng(11).normal(size=(64, 128)).astype(np.float32)
    for machine, got in outputs(k.lower(), {"x": x}):
        assert (got["y"] == (x > 2).any(axis=1, keepdims=True)).all(), machine
    assert {each.name for each in k.lower().body.registers} >= {"found_terms", "found_partial"}


def test_reductions_stand_in_expressions() -> None:
    k = lw.Kernel("nested", threads=128)
    s = rows(k)
    top = lw.max(s, axis=1)
    p = k.tile("p", lw.exp2(s - top) / lw.sum(lw.exp2(s - top), axis=1))
    k.copy(k.param("y", (64, 128), "float32"), p)
    k.assign(s, lw.max(s, axis=1))  # broadcast
    k.copy(k.param("z", (64, 128), "float32"), s)
    mean = k.tile("mean", lw.sum(s, axis=1) / 128)
    assert mean.layout == RESULT
    x = np.random.default_rng(12).normal(size=(64, 128)).astype(np.float32)
    e = np.exp2(x.astype(float) - x.max(axis=1, keepdims=True))
    for machine, got in outputs(k.lower(), {"x": x}):
        assert np.abs(got["y"] - e / e.sum(axis=1, keepdims=True)).max() < 1e-7, machine
        assert (got["z"] == x.max(axis=1, keepdims=True)).all(), machine


# -- barriers -------------------------------------------------------------------------------------


def syncs(body: KernelIR) -> list[int]:
    """Return where the barriers of the CTA stand, counted as ``rewrite`` meets them."""
    return [at for at, op in enumerate(op for op in walk(body.ops) if isinstance(op, Sync))]


def without(body: KernelIR, which: int) -> KernelIR:
    """Return a body without one of its barriers."""
    seen = iter(range(99))

    def change(op: Op) -> tuple[Op, ...]:
        return () if isinstance(op, Sync) and next(seen) == which else (op,)

    return replace(body, ops=rewrite(body.ops, change))


def repeated(times: int | None, names: tuple[str, ...]) -> KernelIR:
    """Build reductions over warps, in a loop or alone."""
    k = lw.Kernel("repeated", threads=128)
    s, y = rows(k), k.param("y", (64, 1), "float32")
    results = [k.alloc(f"m{at}", (64, 1), "float32", layout=RESULT) for at in range(len(names))]

    def step() -> None:
        for m, name in zip(results, names, strict=True):
            k.assign(m, getattr(lw, name)(s, axis=1))
            k.assign(s, s - m)

    if times is None:
        step()
    else:
        with k.loop("i", times):
            step()
    k.copy(y, results[0])
    return k.lower().body


RESULT = parse(ROWS).reduced((64, 128), 1)


@pytest.mark.parametrize(
    ("times", "names", "count"),
    [(None, ("max",), 1), (3, ("max",), 2), (3, ("max", "sum"), 2), (3, ("max", "sum", "min"), 3)],
)
def test_each_barrier_is_needed(times: int | None, names: tuple[str, ...], count: int) -> None:
    body = repeated(times, names)
    x = np.random.default_rng(4).normal(size=(64, 128)).astype(np.float32)
    execute(body, {"x": x})
    assert len(syncs(body)) == count
    for which in syncs(body):
        with pytest.raises(SimulationError, match="scratch"):
            execute(without(body, which), {"x": x})


def test_the_barrier_of_a_loop_stands_in() -> None:
    k = lw.Kernel("loop", threads=128)
    s, y = rows(k), k.param("y", (64, 1), "float32")
    m = k.alloc("m", (64, 1), "float32", layout=RESULT)
    with k.loop("i", 2), k.loop("j", 2):
        k.assign(m, lw.max(s, axis=1))
        k.sync()
    k.copy(y, m)
    body = k.lower().body
    x = np.random.default_rng(5).normal(size=(64, 128)).astype(np.float32)
    assert len(syncs(body)) == 2
    assert (execute(body, {"x": x}).memory["y"].values == x.max(axis=1)).all()


def test_consumers_of_a_producer_wait_for_each_other() -> None:
    k = lw.Kernel("consumers", threads=128)
    a, y = k.param("a", (64, 64), "float16"), k.param("y", (64, 1), "float16")
    ring = k.alloc("ring", (64, 64), "float16", "shared", swizzled_tile((64, 64), 128, 16))
    full = k.barrier("full", 1, 1)
    columns = parse("S[(8,8,4,4,4):(4@laneid,1,1@warpid,8,1@laneid)]")
    s = k.alloc("s", (64, 64), "float16", layout=columns)
    with k.producer():
        k.tma_load(full, 0, [(ring, a)])
    k.mbarrier_wait(full, 0, 0)
    k.copy(s, ring)
    k.copy(y, k.tile("m", lw.max(s, axis=1)))
    x = np.random.default_rng(6).normal(size=(64, 64)).astype(np.float16)
    made = k.lower()
    assert (made.simulate(a=x)["y"] == x.max(axis=1, keepdims=True)).all()
    assert "bar.sync 1, 128" in made.cuda_source()


def test_a_branch_of_warps() -> None:
    """A warp may reduce what it has; what warps join needs them all."""
    x = np.random.default_rng(7).normal(size=(64, 128)).astype(np.float32)
    k = lw.Kernel("alone", threads=128)
    s = rows(k, "S[(4,2,8,16,4,2):(1@warpid,2,4@laneid,4,1@laneid,1)]")
    m = k.alloc("m", (64, 1), "float32", layout=s.layout.reduced((64, 128), 1))
    y = k.param("y", (64, 1), "float32")
    with k.when(k.warp, 2):
        k.assign(m[0:32], lw.max(s[0:32], axis=1))
    with k.when(k.warp, 4, at_least=2):
        k.assign(m[32:64], lw.min(s[32:64], axis=1))
    k.copy(y, m)
    want = np.concatenate([x[:32].max(axis=1), x[32:].min(axis=1)])
    assert (k.lower().simulate(x=x)["y"][:, 0] == want).all()
    k = lw.Kernel("together", threads=128)
    s = rows(k)
    said = r"max\(s, axis=\(1,\)\) joins what several warps hold.*a branch"
    with k.when(k.warp, 2), pytest.raises(LayoutError, match=said):
        k.tile("m", lw.max(s, axis=1))
    with k.when(k.block[0], 2):  # all of a CTA go the same way
        k.tile("m", lw.max(s, axis=1))


def test_partial_results_pass_without_bank_conflicts() -> None:
    for text in (ROWS, "S[(4,2,8,4,4,4,2):(32,2,4@laneid,1@warpid,4,1@laneid,1)]"):
        k = lw.Kernel("banks", threads=128)
        k.copy(k.param("y", (64, 1), "float32"), k.tile("m", lw.max(rows(k, text), axis=1)))
        counts = k.lower().banks(x=np.zeros((64, 128)))
        assert len(counts) == 16  # a store and a load of 16 bytes for each row of a thread
        assert all(each.wavefronts == each.fewest for each in counts)


# -- refusals -------------------------------------------------------------------------------------


def test_refusals() -> None:
    k = lw.Kernel("refused", threads=128)
    s = rows(k)
    shared = k.alloc("t", (64, 128), "float32", "shared")
    small = k.alloc("q", (32, 4), "int8", layout=parse("S[(32,4):(1@laneid,1)]"))
    for call, said in (
        (lambda: lw.max(shared, 1), r"max: computes on registers; t\[.*\] is in shared memory"),
        (lambda: lw.max(3, 0), r"max: reduces a tile or an expression of tiles; got 3"),
        (lambda: lw.max(s < 0, 1), r"max: reduces f16, .*; \(s < 0\.0\) is pred: cast it first"),
        (lambda: lw.sum(small, 1), r"sum: reduces f16, .*; q is s8: cast it first"),
        (lambda: lw.any(s, 1), r"any: reduces s32, pred; s is f32: cast it first"),
        (lambda: lw.min(s, 2), r"min: axis must be a dimension -2\.\.1, .*; got 2"),
        (lambda: k.assign(s[0:32], lw.max(s, 1)), r"assign: max\(s.* of \(64, 1\) does not broad"),
        (lambda: k.assign(s, lw.any(s < 0, 1)), r"assign: both sides must have one type.*is s32"),
    ):
        with pytest.raises(LayoutError, match=said):
            call()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # results that lie in fewer threads than their elements, and in none of them
        ("S[(64,1):(1,1)]", "each thread must hold in m.* the results of its elements of s"),
        ("S[(8,8,1):(1@laneid,1,1)]", "each thread must hold in m"),
    ],
)
def test_a_destination_that_lies_elsewhere(text: str, said: str) -> None:
    k = lw.Kernel("elsewhere", threads=128)
    m = k.alloc("m", (64, 1), "float32", layout=parse(text))
    k.assign(m, lw.max(rows(k, "S[(4,2,8,16,4,2):(1@warpid,2,4@laneid,4,1@laneid,1)]"), axis=1))
    with pytest.raises(lw.DispatchError, match=said):
        k.lower()


@pytest.mark.parametrize(
    ("part", "axis", "said"),
    [
        (
            slice(0, 16),
            0,
            r"lanes 16\.\.31 .* no part of s\[0:16,0:4\] here: whole warps take part",
        ),
        (slice(0, 16), 1, r"lanes 16\.\.31 of each warp hold m.* and nothing of s.*not be set"),
    ],
)
def test_a_region_of_some_lanes(part: slice, axis: int, said: str) -> None:
    k = lw.Kernel("some")
    s = k.alloc("s", (32, 4), "float32", layout=parse("S[(32,4):(1@laneid,1)]"))
    k.copy(s, k.param("x", (32, 4), "float32"))
    k.tile("m", lw.max(s[part], axis=axis))
    with pytest.raises(lw.DispatchError, match=said):
        k.lower()


def test_lanes_that_are_no_bits_go_through_memory() -> None:
    for text, shape in (
        ("S[(3,4):(1@laneid,1)]", (3, 4)),
        ("S[(8,4):(1@laneid,1)] + 2@laneid", (8, 4)),
        ("S[(96,4):(1@tx,1)]", (96, 4)),
    ):
        k = lw.Kernel("odd", threads=96)
        s = k.alloc("s", shape, "float32", layout=parse(text))
        k.copy(s, k.param("x", shape, "float32"))
        k.copy(k.param("y", (1, 4), "float32"), k.tile("m", lw.max(s, axis=0)))
        x = np.random.default_rng(8).normal(size=shape).astype(np.float32)
        assert (k.lower().simulate(x=x)["y"] == x.max(axis=0)).all()


# -- kernels --------------------------------------------------------------------------------------


def test_softmax_over_rows_that_four_warps_hold() -> None:
    k = lw.Kernel("softmax", threads=128)
    y, s = k.param("y", (64, 128), "float32"), rows(k)
    row_max = k.tile("row_max", lw.max(s, axis=1))
    p = k.tile("p", lw.exp(s - row_max))
    k.assign(p, p / k.tile("row_sum", lw.sum(p, axis=1)))
    k.copy(y, p)
    x = np.random.default_rng(9).normal(size=(64, 128)).astype(np.float32)
    e = np.exp(x.astype(float) - x.max(axis=1, keepdims=True))
    for machine, got in outputs(k.lower(), {"x": x}):
        assert np.abs(got["y"] - e / e.sum(axis=1, keepdims=True)).max() < 1e-7, machine


def test_layernorm_over_rows_that_four_warps_hold() -> None:
    k = lw.Kernel("layernorm", threads=128)
    y, s = k.param("y", (64, 128), "float32"), rows(k)
    k.assign(s, s - k.tile("total", lw.sum(s, axis=1)) / 128)
    k.assign(s, s * lw.rsqrt(k.tile("square", lw.sum(s * s, axis=1)) / 128 + 1e-5))
    k.copy(y, s)
    x = np.random.default_rng(10).normal(size=(64, 128)).astype(np.float32)
    spread = np.sqrt(x.astype(float).var(axis=1, keepdims=True) + 1e-5)
    want = (x - x.astype(float).mean(axis=1, keepdims=True)) / spread
    for machine, got in outputs(k.lower(), {"x": x}):
        assert np.abs(got["y"] - want).max() < 2e-6, machine


def test_attention_with_an_online_softmax() -> None:
    """Two products with what stands between them: rows of S are in the four lanes of a row."""
    k = lw.Kernel("attention")
    q, keys, v = (k.param(n, each, "float16") for n, each in (("q", (16, 16)), ("k_", (16, 64)),
                                                              ("v", (64, 16))))  # fmt: skip

    def tile(name: str, role: str, rows: int, cols: int, dtype: str = "float16") -> lw.Buffer:
        layout = fragments.get("mma.m16n8k16.f16", role).tiled(rows, cols)
        return k.alloc(name, (rows, cols), dtype, layout=layout)

    rq, rk, rv = tile("rq", "A", 16, 16), tile("rk", "B", 16, 32), tile("rv", "B", 32, 16)
    s, out = tile("s", "D", 16, 32, "float32"), tile("out", "D", 16, 16, "float32")
    row = s.layout.reduced((16, 32), axis=1)
    top, above, total = (
        k.alloc(n, (16, 1), "float32", layout=row) for n in ("top", "above", "total")
    )
    k.copy(rq, q)
    k.assign(top, -1e30), k.zero(total), k.zero(out)
    with k.loop("i", 2) as i:
        k.copy(rk, keys[:, i * 32 : i * 32 + 32])
        k.copy(rv, v[i * 32 : i * 32 + 32])
        k.gemm(s, rq, rk)
        k.assign(above, lw.maximum(top, lw.max(s, axis=1)))
        k.assign(s, lw.exp(s - above))
        k.assign(top, lw.exp(top - above))
        k.assign(total, total * top + lw.sum(s, axis=1))
        k.assign(out, out * top)
        k.gemm(out, k.tile("p", lw.cast(s, "float16")), rv, beta=1)
        k.assign(top, above)
    k.copy(k.param("o", (16, 16), "float32"), k.tile("o_", out / total))
    rng = np.random.default_rng(13)
    given = {n: rng.normal(size=b.shape).astype(np.float16) for n, b in zip(
        ("q", "k_", "v"), (q, keys, v), strict=True)}  # fmt: skip
    left, right, values = (each.astype(float) for each in given.values())
    e = np.exp(left @ right - (left @ right).max(axis=1, keepdims=True))
    want = e / e.sum(axis=1, keepdims=True) @ values
    for machine, got in outputs(k.lower(), given):
        assert np.abs(got["o"] - want).max() < 1e-3, machine
