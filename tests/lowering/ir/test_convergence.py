"""Who takes an operation together: the table, what a branch shares, and what lowering refuses."""

from __future__ import annotations

import inspect
import itertools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from layoutalg import LayoutError, S, TileLayout, fragments, laneid, warpid
from lowering.codegen import cuda_cpp
from lowering.dispatch.registry import DispatchError, Lowered, register_dispatch
from lowering.ir import convergence, ops, tmem_ops
from lowering.ir.convergence import UNITS, uniform_over
from lowering.ir.index import Guard, Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import Let, Loop, Op, Sync, When, walk
from lowering.ir.tiles import TilePrimitiveCall
from lowering.programs.kernel import Kernel
from lowering.programs.program import KernelProgram
from lowering.simulator.run import execute
from tests.support.kernel_texts import outputs

THREADS = 256
THREAD = Index.of("thread", THREADS)
SIZES = {"thread": 1, "warp": 32, "warpgroup": 128, "cta": THREADS}


def kinds(base: type[Op] = Op) -> set[type[Op]]:
    """Return the classes of operations that the package has."""
    return {
        found
        for each in base.__subclasses__()
        for found in {each, *kinds(each)}
        if found.__module__.startswith("lowering.")
    }


def test_every_operation_says_its_unit() -> None:
    assert {Sync, tmem_ops.TensorMma, ops.BulkLoad} <= kinds()
    for each in kinds():
        assert not inspect.isabstract(each), each
        assert each._unit in ("", *UNITS)
        assert each.shared_out in ("", *UNITS)
    assert [Sync(scope).unit for scope in ("warp", "warpgroup", "cta", "cluster")] == list(
        UNITS[1:]
    )


def largest(guard: Guard, others: dict[str, int]) -> str:
    """Return the largest unit by the definition: every group agrees, at all values of the rest."""
    found = "cta"
    for values in itertools.product(*(range(n) for n in others.values())):
        env: dict[str, Any] = dict(zip(others, values, strict=True)) | {
            "thread": np.arange(THREADS)
        }
        index = np.broadcast_to(guard.index.value(env), (THREADS,))
        high = guard.high.value(env) if isinstance(guard.high, Index) else guard.high
        holds = (index >= guard.low) & (index < high)
        while any(len(set(group)) > 1 for group in holds.reshape(-1, SIZES[found])):
            found = UNITS[UNITS.index(found) - 1]
    return found


STEP, TURN = Index.of("i", 4), Index.of("j", 3)
CONDITIONS: tuple[tuple[Guard, dict[str, int]], ...] = (
    (Guard(THREAD, 0, 64), {}),
    (Guard(THREAD, 0, 40), {}),
    (Guard(THREAD // 32, 0, 3), {}),
    (Guard(THREAD // 32 % 4, 0, 2), {}),
    (Guard(THREAD // 128, 1, 2), {}),
    (Guard(THREAD % 32, 0, 32), {}),
    (Guard(THREAD % 16, 0, 8), {}),
    (Guard(THREAD // 16, 0, 6), {}),
    (Guard(THREAD // 16, 0, 5), {}),
    (Guard(THREAD + STEP * 32, 0, 128), {"i": 4}),
    (Guard(THREAD + STEP * 8, 0, 128), {"i": 4}),
    (Guard(THREAD // 32 + STEP * 4, 3, 9), {"i": 4}),
    (Guard(THREAD // 32 - STEP, 0, 2), {"i": 4}),
    (Guard(STEP, 0, 2), {"i": 4}),
    (Guard(THREAD // 32, 0, STEP + TURN), {"i": 4, "j": 3}),
    (Guard(THREAD // 64 ^ STEP, 0, 2), {"i": 4}),
    (Guard(THREAD % 32 ^ STEP, 0, 32), {"i": 4}),
    (Guard(THREAD * 0 + 3, 0, 3), {}),
    (Guard(THREAD // 4 % 64 * 4 + THREAD % 4, 32, 96), {}),
)


@pytest.mark.parametrize("at", range(len(CONDITIONS)))
def test_what_a_condition_shares_is_exact(at: int) -> None:
    guard, others = CONDITIONS[at]
    found = uniform_over(guard, THREADS)
    assert ("cta" if found == "cluster" else found) == largest(guard, others)


def test_conditions_hold_together() -> None:
    """Half of a warp within half of it: together all of the first warp, or none of it."""
    first, second = Guard(THREAD, 0, 48), Guard(THREAD // 32, 0, 1)
    assert uniform_over(first, THREADS) == "thread"
    assert uniform_over((first, second), THREADS) == "warp"


def test_what_the_launch_decides_is_shared() -> None:
    """Scalars by all; a block by its CTA; beside a thread's part, what that part shares."""
    size, block = Index.free("M"), Index.free("bx")
    assert uniform_over(Guard(size, 0, 8), THREADS) == "cluster"
    assert uniform_over(Guard(block, 0, size), THREADS) == "cta"
    assert uniform_over(Guard(block * 64 + THREAD // 32 * 16, 0, size), THREADS) == "warp"
    assert uniform_over(Guard(THREAD + block * 256, 0, size), THREADS) == "thread"
    assert uniform_over(Guard(THREAD * size, 0, 8), THREADS) == "thread"


def test_names_are_written_out() -> None:
    values = {"w": THREAD // 32, "x": Index.of("w", 8) * 2}
    named = Guard(Index.of("x", 16).replaced(values), 0, 4)
    assert uniform_over(named, THREADS, values) == "warp"
    inside = When((Guard(Index.of("x", 16), 0, 4),), (Sync("cta"),))
    body = (Let("w", THREAD // 32), Let("x", Index.of("w", 8) * 2), inside)
    with pytest.raises(LayoutError, match=r"^lower: sync\(cta\) takes whole CTAs; `if x < 4`"):
        convergence.check(body, THREADS)


def test_loops_that_differ_are_branches() -> None:
    """A thread whose loop is shorter is elsewhere in its last steps."""
    differs = Loop("i", THREAD % 2 + 1, (Sync("warp"),))
    with pytest.raises(LayoutError) as caught:
        convergence.check((differs,), THREADS)
    assert str(caught.value) == (
        "lower: sync(warp) takes whole warps; `for i in range(thread % 2 + 1)` differs between the "
        "threads of one. Take it out of there, or decide by what a whole warp shares."
    )
    convergence.check((Loop("i", THREAD // 32 + 1, (Sync("warp"),)),), THREADS)
    convergence.check((Loop("i", Index.free("n"), (Sync("cta"),)),), THREADS)


# -- kernels -----------------------------------------------------------------------------------

A, B, D = (fragments.get("mma.m16n8k16.f16", role) for role in "ABD")
ROW = TileLayout(S[(32, 4) : (1 @ laneid, 1)])


def product(branch: Callable[[Kernel], Any]) -> KernelProgram:
    """Return a product of each of two warps, under a branch."""
    k = Kernel("k", threads=64)
    a, b, d = (
        k.param("a", (16, 16), "f16"), k.param("b", (16, 8), "f16"), k.param("d", (16, 8), "f32")
    )  # fmt: skip
    ra, rb, rd = (
        k.alloc(name, row.shape, kind, layout=row.layout)
        for name, row, kind in (("ra", A, "f16"), ("rb", B, "f16"), ("rd", D, "f32"))
    )
    k.copy(ra, a)
    k.copy(rb, b)
    with branch(k):
        k.gemm(rd, ra, rb, scope="warp")
        k.copy(d, rd)
    return k.lower()


def test_a_product_of_one_warp_is_right_on_every_machine() -> None:
    program = product(lambda k: k.when(k.warp, 1))
    a, b = (np.random.default_rng(2).integers(-4, 5, shape) for shape in ((16, 16), (16, 8)))
    for machine, written in outputs(program, {"a": a, "b": b}):
        assert np.array_equal(written["d"], a @ b), machine


def test_a_product_of_some_lanes_is_refused() -> None:
    """By the variant, which some lanes do not reach, and by the pass, whatever gave the product."""
    with pytest.raises(DispatchError, match=r"^gemm: no variant fits gemm"):
        product(lambda k: k.when(k.thread % 16, 8))
    mma = tuple(
        op for op in walk(product(lambda k: k.when(k.warp, 1)).body.ops) if op.unit == "warp"
    )
    with pytest.raises(LayoutError) as caught:
        convergence.check((When((Guard(Index.of("thread", 64) % 16, 0, 8),), mma),), 64)
    assert str(caught.value) == (
        "lower: m16n8k16(rd[0..3], ra[0..7], rb[0..3], rd[0..3]) takes whole warps; "
        "`if (thread % 16) < 8` differs between the threads of one. Take it out of there, or "
        "decide by what a whole warp shares."
    )


def test_ranges_of_warps() -> None:
    """Warps 1 and 2 of four, one at a time by a name, write their own rows."""
    k = Kernel("k", threads=128)
    a, o = k.param("a", (128, 4), "float32"), k.param("o", (128, 4), "float32")
    r = k.alloc("r", (32, 4), "float32", layout=ROW)
    w = k.let("w", k.warp)
    rows = slice(w * 32, w * 32 + 32)
    k.copy(r, a[rows])
    with k.when(k.warp, 3, at_least=1):
        k.copy(o[rows], r)
    program = k.lower()
    given = np.arange(512, dtype=np.float32).reshape(128, 4) + 1
    before = np.zeros((128, 4), np.float32)
    for machine, written in outputs(program, {"a": given, "o": before}):
        want = np.where(np.arange(128)[:, None] // 32 % 3 == 0, 0, given)
        assert np.array_equal(written["o"], want), machine


def test_a_lower_end_is_said_by_every_text() -> None:
    """The guard of a difference: where it is negative, nothing happens, on every machine."""
    k = Kernel("k")
    a, o = k.param("a", (32, 4), "float32"), k.param("o", (32, 4), "float32")
    r = k.alloc("r", (32, 4), "float32", layout=ROW)
    k.copy(r, a)
    with k.when(k.lane - 4, 8):
        k.copy(o[4:12], r[4:12])
    program = k.lower()
    given = np.ones((32, 4), np.float32)
    want = ((np.arange(32) >= 4) & (np.arange(32) < 12))[:, None] * given
    for machine, written in outputs(program, {"a": given, "o": np.zeros((32, 4))}):
        assert np.array_equal(written["o"], want), machine


def test_registers_first_written_by_some_threads_are_set_first() -> None:
    """What a branch of lanes writes, and all lanes read, is 0 in the others, in both texts."""
    k = Kernel("k")
    a, o = k.param("a", (32, 4), "float32"), k.param("o", (32, 4), "float32")
    r = k.alloc("r", (32, 4), "float32", layout=ROW)
    with k.when(k.lane, 8):
        k.copy(r[0:8], a[0:8])
    with k.when(k.lane, 16):
        k.copy(o[0:16], r[0:16])
    body = k.lower().body
    assert body.read_unwritten() == {"r"}
    text = cuda_cpp.cuda_source(body, "k", "")
    assert "float r_0 = 0, r_1 = 0, r_2 = 0, r_3 = 0;" in text
    uniform = Kernel("k")
    uniform.scalar("M")
    a, o = uniform.param("a", (32, 4), "float32"), uniform.param("o", (32, 4), "float32")
    r = uniform.alloc("r", (32, 4), "float32", layout=ROW)
    with uniform.when(0, Index.free("M")):
        uniform.copy(r, a)
    uniform.copy(o, r)
    assert uniform.lower().body.read_unwritten() == set()  # all threads or none: no text changes


REFUSED: dict[str, tuple[Callable[[Kernel], Any], str]] = {
    "a barrier of the CTA in one warp": (lambda k: k.sync(), "sync(cta) takes whole CTAs"),
    "a barrier of the warpgroup in one warp": (
        lambda k: k.sync("warpgroup"),
        "sync(warpgroup) takes whole warpgroups",
    ),
    "a copy that all threads share out": (
        lambda k: k.copy(k.buffers["s"], k.buffers["a"]),
        "copy.4(s[thread * 4], a[thread * 4]) takes whole CTAs",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_one_warp_cannot_do_alone(name: str) -> None:
    build, message = REFUSED[name]
    k = Kernel("k", threads=128)
    k.param("a", (128, 4), "float32")
    k.alloc("s", (128, 4), "float32", "shared")
    with k.when(k.warp, 1):
        build(k)
    with pytest.raises(LayoutError) as caught:
        k.lower()
    assert str(caught.value) == (
        f"lower: {message}; `if (thread // 32) < 1` differs between the threads of one. Take it "
        f"out of there, or decide by what a whole {message.split()[-1].removesuffix('s')} shares."
    )


def test_an_arrival_is_decided_by_a_warp() -> None:
    for index, fits in (("warp", True), ("lane", False)):
        k = Kernel("k", threads=64)
        barrier = k.barrier("b", 1, 1)
        k.arrive(barrier, 0, where=getattr(k, index) < 1)
        if fits:
            assert any(isinstance(op, ops.Arrive) for op in walk(k.lower().body.ops))
            continue
        with pytest.raises(LayoutError, match=r"arrive\(b\[0\]\) if .* takes whole warps"):
            k.lower()


def test_regions_begin_where_those_who_share_an_access_agree() -> None:
    k = Kernel("k", threads=64)
    a, s = k.param("a", (64, 4), "float32"), k.alloc("s", (64, 4), "float32", "shared")
    w = k.let("w", k.warp)
    k.copy(s[w * 32 : w * 32 + 32], a[w * 32 : w * 32 + 32])
    with pytest.raises(LayoutError) as caught:
        k.lower()
    assert str(caught.value) == (
        "copy: the begin of s[w * 32:w * 32 + 32,0:4] must be the same in all threads of a CTA, "
        "which access it together"
    )


# -- operations that nobody knows ----------------------------------------------------------------


@dataclass(frozen=True)
class Other:
    """An operation of another package's own."""

    into: int = 0


class Mine(Op, unit="thread"):
    """An operation of a user's own."""

    def __str__(self) -> str:
        """Return its line."""
        return "mine"


@register_dispatch("cast", "cuda", variant="mine.test_convergence", named_only=True)
def lower_mine(context: Any) -> Lowered:
    return Lowered((Mine(),))


READERS: dict[str, Callable[[Op], Any]] = {
    "simulate": lambda op: execute(KernelIR((), (), (), (op,), 32), {}),
    "text": lambda op: cuda_cpp.cuda_source(KernelIR((), (), (), (op,), 32), "k", ""),
}


@pytest.mark.parametrize("reader", READERS)
def test_an_operation_without_a_row_is_refused_by_every_reader(reader: str) -> None:
    with pytest.raises(LayoutError) as caught:
        READERS[reader](Mine())
    assert str(caught.value) == (
        f"{reader}: the operation Mine is unknown to this reader; got mine"
    )


def test_what_is_no_operation_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"^lower: the operation Other is unknown to this reader"):
        Lowered((Other(),))  # type: ignore[arg-type]


def test_an_operation_cannot_do_without_a_line_and_a_unit() -> None:
    with pytest.raises(TypeError, match="abstract"):
        types.new_class("Dumb", (Op,), {"unit": "thread"})()
    with pytest.raises(TypeError, match="Loose: an operation says its unit"):
        types.new_class("Loose", (Op,))


def test_a_variant_of_a_users_own_gives_operations_that_are_known() -> None:
    k = Kernel("k", threads=64)
    layout = TileLayout(S[(2, 32, 4) : (1 @ warpid, 1 @ laneid, 1)])
    r, h = (k.alloc(n, (64, 4), t, layout=layout) for n, t in (("r", "f32"), ("h", "f16")))
    operands = {"dst": h.region(), "src": r.region()}
    k._add_call(TilePrimitiveCall("cast", operands, "cta", dispatch="mine.test_convergence"))
    with pytest.raises(LayoutError, match=r"^text: the operation Mine is unknown to this reader"):
        k.lower()


def test_the_last_lane_of_a_warp_decides_too() -> None:
    thread = Index.of("thread", 128)
    assert uniform_over(Guard(thread % 32, 0, 31), 128) == "thread"
    assert uniform_over(Guard(thread % 32, 0, 32), 128) == "cta"


def test_the_narrowest_of_several_conditions_counts() -> None:
    of_warp = Guard(Index.of("thread", 128) // 32, 0, 1)
    of_cta = Guard(Index.of("thread", 256) // 128, 0, 1)
    assert uniform_over([of_warp, of_cta], 128) == uniform_over([of_cta, of_warp], 128) == "warp"
