"""``gemm_async`` on tensor memory: what it multiplies and refuses, what must be ordered."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import (
    Iter,
    LayoutError,
    TileLayout,
    parse,
    tmem_datapath_layout,
    tmem_scale_layout,
    wg_local_layout,
)
from layoutalg.layouts.hardware import swizzled_tile
from lowering.dispatch.registry import context_of, dispatch
from lowering.ir.index import Index
from lowering.ir.ops import Load, Loop, MbarrierWait, Op, ProxyFence, Sync, walk
from lowering.ir.tmem_ops import (
    TensorAllocate,
    TensorCommit,
    TensorCopy,
    TensorFence,
    TensorFree,
    TensorLoad,
    TensorMatrix,
    TensorMma,
    TensorStore,
    TensorWait,
)
from lowering.isa.nvjitlink import assemble
from lowering.launch.arguments import arguments, simulate
from lowering.programs.kernel import Kernel
from lowering.simulator.hazards import SimulationError
from lowering.simulator.machine import Machine
from lowering.simulator.run import run_to_end
from tests.lowering.isa.test_tcgen05 import ROWS, TYPES
from tests.support.tensor_kernels import Case, agrees, inputs, pair, product

# -- what it multiplies ---------------------------------------------------------------------------


def cases() -> dict[str, Case]:
    """Return a case for every types of every kind, M and a small, an odd and a large N."""
    found = {}
    for kind, a, b, token in TYPES:
        _, _, out, k, scales = ROWS[kind]
        scale = (token, dict(scales)[token]) if token else None
        depth = 128 if scale else 2 * k  # so that every byte of a cell is the first of a step
        shapes = [(128, 16), (128, 96), (128, 256)] if scale else [(128, 48), (64, 8), (128, 256)]
        for m, n in shapes[: 3 if a == b else 2]:
            case = Case(a, b, out, (m, n, depth), rows=m, scale=scale)
            found[f"{kind}-{a}-{b}-{token}-{m}x{n}"] = case
    return found


CASES = cases()
FLIPS = list(itertools.product((False, True), repeat=2))
OTHERS = {
    **{f"f16 {flips}": Case(flips=flips, sizes=(128, 64, 64)) for flips in FLIPS},
    **{f"e5m2 {flips}": Case("e5m2", flips=flips, sizes=(128, 64, 64)) for flips in FLIPS},
    "s8 MN-major": Case("s8", "u8", "s32", (128, 64, 64), (True, False)),
    "mxf8f6f4 MN-major": Case("e4m3", sizes=(128, 64, 128), flips=(True, False),
                              scale=("ue8m0", 32)),
    "64 bytes": Case(sizes=(128, 32, 64), period=64),
    "32 bytes": Case(sizes=(128, 32, 64), period=32),
    "no swizzle": Case(sizes=(128, 32, 64), period=16),
    "two rows of tiles": Case(sizes=(256, 64, 32)),
    "three columns of tiles": Case(sizes=(128, 384, 32)),
    "both halves of the lanes": Case(sizes=(128, 64, 64), rows=64),
    "scales of two rows of tiles": Case("e4m3", sizes=(256, 64, 256), scale=("ue8m0", 32)),
    "4X scales of several steps": Case("e2m1", sizes=(128, 128, 256), scale=("ue4m3", 16)),
    "an elected thread": Case("e2m1", sizes=(128, 32, 128), scale=("ue8m0", 32), scope="warp"),
    "A in tensor memory": Case(sizes=(128, 64, 64), left="tmem"),
    "A of bytes there": Case("e4m3", "e5m2", sizes=(128, 32, 64), left="tmem"),
    "A of tf32 there": Case("tf32", sizes=(128, 32, 16), left="tmem"),
    "A of half bytes there": Case("e2m1", sizes=(128, 32, 128), left="tmem", scale=("ue4m3", 16)),
    "A of integers there": Case("s8", "s8", "s32", (128, 32, 64), left="tmem"),
    "add": Case(accum=True),
    "add integers": Case("u8", "s8", "s32", (128, 32, 64), accum=True),
    "add to 64 rows": Case(sizes=(64, 32, 32), rows=64, accum=True),
    "add in a loop but for its first turn": Case(sizes=(128, 32, 256), accum="turns"),
    "the same of A in tensor memory": Case(sizes=(128, 32, 192), accum="turns", left="tmem"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_kind_and_type(case: str) -> None:
    assert agrees(product(CASES[case]), CASES[case])


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHERS)
def test_every_form(case: str) -> None:
    assert agrees(product(OTHERS[case]), OTHERS[case])


PAIRS = {
    "256 rows": Case(sizes=(256, 64, 64)),
    "128 rows": Case(sizes=(128, 64, 64)),
    "256 rows of bytes": Case("e4m3", "e5m2", sizes=(256, 32, 128)),
    "128 rows of integers": Case("s8", "u8", "s32", (128, 64, 64), period=64),
    "tf32": Case("tf32", sizes=(128, 16, 32)),
    "A of 256 rows in tensor memory": Case(sizes=(256, 64, 64), left="tmem"),
    "A of 128 rows in tensor memory": Case("bf16", sizes=(128, 64, 32), left="tmem"),
    "scales": Case("e4m3", "e5m2", sizes=(256, 128, 128), scale=("ue8m0", 32)),
    "4X scales": Case("e2m1", sizes=(256, 256, 64), scale=("ue4m3", 16), period=32),
    "an elected thread": Case(sizes=(256, 16, 32), scope="warp", period=64),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", PAIRS)
def test_pairs_of_ctas(case: str) -> None:
    assert agrees(pair(PAIRS[case]), PAIRS[case])


def test_which_products_there_are() -> None:
    """One per part of C and 32 bytes of K; scales by bytes, then by columns."""
    body = (
        product(replace(OTHERS["scales of two rows of tiles"], sizes=(256, 64, 256))).lower().body
    )
    found = [op for op in walk(body.ops) if isinstance(op, TensorMma)]
    assert len(found) == 2 * 8
    assert [op.what.scale_bytes for op in found[::2]] == [(i % 4, i % 4) for i in range(8)]
    assert [op.accumulate for op in found[::2]] == [False] + [True] * 7
    columns = [[int(place.column.constant) for place in op.scales] for op in found]
    assert columns[:4] == [[0, 0], [4, 0], [0, 0], [4, 0]]
    assert columns[8:10] == [[8, 4], [12, 4]]
    assert {op.d.column.constant for op in found} == {0, 64}


def test_adding_may_be_a_number_of_the_loop() -> None:
    body = product(OTHERS["add in a loop but for its first turn"]).lower().body
    (loop,) = [op for op in body.ops if isinstance(op, Loop)]
    found = [op.accumulate for op in loop.body if isinstance(op, TensorMma)]
    assert str(found[0]) == "turn"
    assert found[1:] == [True] * 3


# -- what it refuses ------------------------------------------------------------------------------


def shared(name: str, shape: tuple[int, int], dtype: str, period: int = 128) -> lw.Buffer:
    bits = lw.Buffer(name, shape, dtype, "shared").dtype.bits
    ring = swizzled_tile((1, *shape), period, bits)
    grouped = ring.tile_layout.slice((1, *shape), ((0, 1), *((0, n) for n in shape)))
    assert grouped is not None
    return lw.Buffer(name, shape, dtype, "shared", ring.over(grouped))


def tensor(
    name: str, shape: tuple[int, ...], dtype: str, layout: TileLayout | None = None
) -> lw.Buffer:
    own = layout or tmem_datapath_layout("D", 128, shape[-1])
    return lw.Buffer(name, shape, dtype, "tmem", own)


def scales(name: str, rows: int, blocks: int, dtype: str = "ue8m0") -> lw.Buffer:
    return tensor(name, (rows, blocks), dtype, tmem_scale_layout(rows, blocks))


C = tensor("C", (128, 64), "f32")
A, B = shared("A", (128, 64), "f16"), shared("B", (64, 64), "f16")
A8, B8 = shared("A", (128, 128), "e4m3"), shared("B", (64, 128), "e4m3")
SFA, SFB = scales("SFA", 128, 4), scales("SFB", 64, 4)
SCALED: dict[str, Any] = {"A": A8, "B": B8, "SFA": SFA, "SFB": SFB}
A_TENSOR = tensor("A", (128, 64), "f16")


def reason(arch: str = "sm_100a", scope: str = "thread", **given: Any) -> str:
    """Return why tcgen05 declines a call; empty where it takes it."""
    call = lw.gemm_async(**{"C": C, "A": A, "B": B, "transB": True} | given, scope=scope)
    try:
        dispatch(context_of(call, "cuda", 128, None, arch))
    except lw.DispatchError as error:
        return next(text for variant, _, text in error.reasons if variant == "tcgen05")
    return ""


def test_what_is_given_is_taken() -> None:
    assert reason() == ""
    assert reason(**SCALED) == ""
    assert reason(A=A_TENSOR) == ""


def variations(layout: TileLayout) -> list[TileLayout]:
    """Return the layouts that differ from one in one stride."""
    found = []
    for part in ("shard", "replica"):
        own = getattr(layout, part)
        for at, it in enumerate(own):
            for stride in {int(it.stride) * 2, int(it.stride) + 1}:
                other = Iter(it.extent, stride, it.axis)
                parts = {"shard": layout.shard, "replica": layout.replica}
                parts[part] = (*own[:at], other, *own[at + 1 :])
                found.append(TileLayout.from_iters(parts["shard"], parts["replica"]))
    return found


A4 = shared("A", (128, 64), "e2m1", 32)
SCALED_4X: dict[str, Any] = {
    "A": A4, "B": shared("B", (32, 64), "e2m1", 32),
    "C": tensor("C", (128, 32), "f32", tmem_datapath_layout("D", 128, 32)),
    "SFA": scales("SFA", 128, 4, "ue4m3"), "SFB": scales("SFB", 32, 4, "ue4m3"),
}  # fmt: skip
OPERANDS = [("C", C, {}), ("A", A_TENSOR, {})]
OPERANDS += [(role, SCALED_4X[role], SCALED_4X) for role in ("SFA", "SFB")]
OPERANDS += [
    ("C", tensor("C", (64, 64), "f32", tmem_datapath_layout("F", 64, 64)),
     {"A": shared("A", (64, 64), "f16")}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("role", "buffer", "others"), OPERANDS, ids=["C", "A", "SFA", "SFB", "C of 64 rows"]
)
def test_a_layout_that_differs_in_one_stride_is_refused(
    role: str, buffer: lw.Buffer, others: dict[str, Any]
) -> None:
    """Every iter of the shard and of the copies counts."""
    layout = buffer.layout
    assert isinstance(layout, TileLayout)
    assert reason(**others | {role: buffer}) == ""
    tried = variations(layout)
    assert len(tried) >= 2
    for each in tried:
        said = reason(**others | {role: tensor(role, buffer.shape, str(buffer.dtype), each)})
        assert re.search(r"lies? as S\[|is no accumulator of|has lanes 0 to", said), (
            str(each),
            said,
        )


def test_scales_of_one_step_share_a_column() -> None:
    late = tmem_scale_layout(128, 4)
    moved = TileLayout.from_iters(late.shard, late.replica, {"TCol": 1})
    said = reason(**SCALED_4X | {"SFA": tensor("SFA", (128, 4), "ue4m3", moved)})
    assert "must lie as S[(4,32,4):(4@TCol,1@TLane,1@TCol)] + R[4:32@TLane], 4 scales in " in said


def test_scales_without_their_copies_are_refused() -> None:
    layout = TileLayout.from_iters(SFA.layout.shard)
    message = "must lie as S[(4,32):(4@TCol,1@TLane)] + R[4:32@TLane], 1 scales in one column"
    assert message in reason(**SCALED | {"SFA": tensor("SFA", (128, 4), "ue8m0", layout)})


MOVED = tmem_datapath_layout("F", 64, 64, 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scope": "warpgroup"}, "one thread starts it: scope thread or warp fits; the scope i"),
        ({"arch": "sm_90a"}, "sm_90a lacks tcgen05.mma; sm_100, sm_103, "),
        ({"arch": "sm_120a"}, "sm_120a lacks tcgen05.mma; "),
        ({"C": shared("C", (128, 64), "f32")}, "C and scales must be in tensor memory, B in share"),
        ({"B": tensor("B", (128, 64), "f16")}, "A in either; C is tmem, A is shared, B is tmem"),
        ({**SCALED, "SFB": None}, "scales are of both A and B; got SFA alone"),
        ({**SCALED, "SFB": scales("SFB", 64, 4, "ue4m3")}, "SFA is float8_e8m0fnu, SFB float8_u"),
        ({**SCALED, "SFB": scales("SFB", 64, 2)}, "SFA (M, K/block) is (128, 4), SFB (K/block, N"),
        ({**SCALED, "SFA": scales("SFA", 128, 2), "SFB": scales("SFB", 64, 2)},
         "no kind multiplies float8_e4m3fn by float8_e4m3fn with scales ue8m0 of 64 elements"),
        ({"A": shared("A", (128, 32), "f16")}, "C (M, N) is (128, 64), A (M, K) (128, 32), B (K"),
        ({"cta_group": 2}, "of each CTA; B has half the columns of C: they do not go together"),
        ({"B": shared("B", (64, 64), "bf16")}, "no kind multiplies float16 by bfloat16 without s"),
        ({"C": tensor("C", (128, 64), "s32")}, "the accumulator of kind f16 is float32; C is int3"),
        ({"C": tensor("C", (128, 64), "f16")}, "the accumulator of kind f16 is float32; C is flo"),
        ({"A": shared("A", (128, 64), "e2m3", 64), "B": shared("B", (64, 64), "e2m3", 64)},
         "A: float6_e2m3fn has bytes of its own; in shared memory the tensor core wants 16"),
        ({"C": tensor("C", (128, 64), "s32"), "A": shared("A", (128, 64), "s8", 64),
          "B": shared("B", (64, 64), "s8", 64), "arch": "sm_103a"},
         "sm_103a lacks tcgen05.mma kind::i8; sm_100a and sm_110a have it"),
        ({"C": tensor("C", (32, 64), "f32", parse("S[(32,64):(1@TLane,1@TCol)]")),
          "A": shared("A", (32, 64), "f16")}, "M must be a multiple of 64 or 128 (f16); got 32"),
        ({"C": tensor("C", (128, 8), "f32", parse("S[(128,8):(1@TLane,1@TCol)]")),
          "B": shared("B", (8, 64), "f16")}, "is no accumulator of tcgen05.m64n8k16.f16.f16, S"),
        ({"C": tensor("C", (128, 4), "f32"), "B": lw.Buffer("B", (4, 64), "f16", "shared")},
         "N must be a multiple of 8 (M = 64, f16); got 4"),
        ({"A": lw.Buffer("A", (128, 8), "f16", "shared"),
          "B": lw.Buffer("B", (64, 8), "f16", "shared")},
         "K must be a multiple of 16, 32 bytes of f16; got 8"),
        ({"C": tensor("C", (64, 64), "f32", MOVED), "A": tensor("A", (64, 64), "f16",
          parse("S[(64,64):(1@TLane,1@TCol)]"))}, "A in tensor memory has 128 rows; where 64 lie"),
        ({"A": tensor("A", (64, 128), "f16", parse("S[(64,128):(1@TCol,1@TLane)]")),
          "transA": True},
         "A in tensor memory is (M, K): transA is a matter of its layout there"),
        ({"A": lw.Buffer("A", (128, 64), "f16", "shared", parse("S[(128,64):(72,1)]"))},
         "A: descriptor: K-major no swizzle, "),
        ({"A": shared("A", (128, 16), "tf32", 64), "B": shared("B", (16, 64), "tf32"),
          "transB": False}, "only 8 or 16-bit operands may be MN-major; got 32 bits"),
    ],
)  # fmt: skip
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    assert message in reason(**given)


def test_64_rows_start_in_either_half_of_the_lanes() -> None:
    a = shared("A", (64, 64), "f16")
    for half in (0, 1):
        layout = tmem_datapath_layout("F", 64, 64, half)
        call = lw.gemm_async(
            tensor("C", (64, 64), "f32", layout), a, B, transB=True, scope="thread"
        )
        first = dispatch(context_of(call, "cuda", 128, None, "sm_100a")).ops[0]
        assert isinstance(first, TensorMma)
        assert first.d == TensorMatrix("C", first.d.lane, first.d.column)
        assert first.d.lane.constant == 16 * half
    late = parse("S[(4,16,64):(32@TLane,1@TLane,1@TCol)] + 8@TLane")
    assert "is no accumulator of" in reason(C=tensor("C", (64, 64), "f32", late), A=a)


def test_operands_of_a_pair() -> None:
    """The columns of both CTAs are counted; A in tensor memory wants 32 of them."""
    both = lw.Buffer("B", (24, 64), "f16", "shared", shared("B", (24, 64), "f16").layout)
    own = tensor("C", (128, 48), "f32")
    assert reason(C=own, B=both, cta_group=2) == ""
    message = "with A in tensor memory and cta_group 2, N must be a multiple of 32; got 48"
    assert reason(C=own, A=A_TENSOR, B=both, cta_group=2).startswith(message)


@pytest.mark.parametrize(
    ("n", "layout", "message"),
    [
        (512, "S[(128,512):(1@TLane,1@TCol)]", "N must be a multiple of 16 up to 256; got 512"),
        (8, "S[(128,8):(1@TLane,1@TCol)]", "N must be a multiple of 16 up to 256; got 8"),
        (64, "S[(128,2,32):(1@TLane,64@TCol,1@TCol)]", "is no accumulator of tcgen05.m256n64k16"),
    ],
)
def test_a_pair_has_the_columns_of_one_instruction(n: int, layout: str, message: str) -> None:
    """Of two, each would take its halves of B beside each other: other columns of C."""
    half = lw.Buffer("B", (n // 2, 64), "f16", "shared", shared("B", (n // 2, 64), "f16").layout)
    own = tensor("C", (128, n), "f32", parse(layout))
    assert message in reason(C=own, B=half, cta_group=2)


def test_an_instruction_checks_its_operands() -> None:
    (op, *_) = dispatch(
        context_of(
            lw.gemm_async(C, A, B, transB=True, scope="thread"), "cuda", 128, None, "sm_100a"
        )
    ).ops
    assert isinstance(op, TensorMma)
    with pytest.raises(LayoutError, match="takes 0 operands of scales; got 1"):
        replace(op, scales=(op.d,))
    flipped = replace(op.what, majors=("K", "MN"))
    message = "operand B is 16 bits MN-major of tcgen05; got B.*: 16 bits K-major of tcgen05"
    with pytest.raises(LayoutError, match=message):
        replace(op, what=flipped)
    message = "operand A is 16 bits MN-major of tcgen05; got .*: in tensor memory, K-major"
    with pytest.raises(LayoutError, match=message):
        replace(op, what=replace(op.what, majors=("MN", "K")), a=op.d)


def test_the_builder_holds_one_issuer_and_one_group() -> None:
    kernel = product(Case("e2m1", sizes=(128, 32, 128), scale=("ue8m0", 32)))
    first = kernel._blocks[0]
    at = next(i for i, each in enumerate(first) if getattr(each, "op", "") == "gemm_async")
    first[at] = replace(first[at], scope="warp")  # type: ignore[type-var]
    with pytest.raises(LayoutError, match="same thread issued; got thread and warp"):
        kernel.lower()
    kernel = pair(Case(sizes=(256, 32, 64)))
    kernel.cluster = 1
    with pytest.raises(LayoutError, match="a pair is a cluster of 2; got 2 in clusters of 1"):
        kernel.lower()
    kernel = Kernel("large", 128, "sm_100a")
    for name in ("C", "E"):
        kernel.alloc(name, (128, 260), "f32", "tmem", tmem_datapath_layout("D", 128, 260))
    with pytest.raises(LayoutError, match="tensor memory has 512 columns; got 520"):
        kernel.lower()


# -- what must be ordered -------------------------------------------------------------------------

ORDERED = Case("e4m3", sizes=(128, 32, 128), left="tmem", scale=("ue8m0", 32), accum=True)
PLAIN = Case(sizes=(128, 32, 64))
PAIR = Case(sizes=(256, 32, 64), left="tmem")
Change = Callable[[tuple[Op, ...]], tuple[Op, ...]]


def run(kernel: Kernel, case: Case | None = None, change: Change | None = None) -> str:
    """Return the error of a kernel, its operations changed; empty where there is none."""
    program = kernel.lower()
    rng = np.random.default_rng(0)
    given = (
        inputs(case)[0] if case
        else {b.name: rng.integers(0, 3, b.shape) for b in program.body.params if b.name != "D"}
    )  # fmt: skip
    body = program.body
    try:
        simulate(replace(body, ops=(change or tuple)(body.ops)), arguments(body, given), (1, 1))
    except SimulationError as error:
        return str(error)
    return ""


def without(kind: type, place: int = 0, **fields: Any) -> Change:
    """Return a change that leaves out one operation of a kind: the first from a place on."""

    def change(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        alike = [
            at
            for at, op in enumerate(ops)
            if isinstance(op, kind) and all(getattr(op, n) == v for n, v in fields.items())
        ]
        return (*ops[: alike[place]], *ops[alike[place] + 1 :])

    return change


STORED = "A_own[0..127]) of thread 1 writes: "
MISSING: dict[str, tuple[Change, str]] = {
    "the allocation": (
        without(TensorAllocate),
        "tcgen05.st.32x32b.x32(A_tensor[lane thread // 32 * 32, column 0], A_own[0..127]) needs "
        "tensor memory, and none is allocated",
    ),
    "a store of A": (without(TensorStore), "column 0, which nothing wrote"),
    "the wait for the stores": (
        without(TensorWait, 1, verb="st"), "C_own[0..31]) of thread 0 still writes: wait for it"
    ),
    "the proxy fence": (
        without(ProxyFence),
        "SFA_tensor[lane 0, column 0] = tcgen05.cp.32x128b.warpx4(SFA_tile[0 as K-major no "
        "swizzle, leading 0, stride 128]) reads SFA_tile at 0, which thread 0 wrote with no fence",
    ),
    "the fence before the barrier": (
        without(TensorFence, side="before"), f"{STORED}a tcgen05.fence.before is missing before it"
    ),
    "the barrier": (
        without(Sync), "thread 0 reads SFA_tile at 4, which thread 32 wrote with no barrier in "
    ),
    "the fence after the barrier": (
        without(TensorFence, side="after"), f"{STORED}a tcgen05.fence.after is missing after it"
    ),
    "the copy of SFA": (without(TensorCopy, 0), "SFB_tensor[lane 0, column 0], add) reads tensor"),
    "the copy of SFB": (without(TensorCopy, 1), "lane 0, column 36, which nothing wrote"),
    "the commit": (
        without(TensorCommit),
        "mbarrier_wait(done[0], 0) waits forever: done[0] has completed 0 phases",
    ),
    "the await": (without(MbarrierWait), "add) writes, and no thread waited for its commit"),
    "the fence after the await": (
        without(TensorFence, 1, side="after"),
        "add) writes: after the wait a tcgen05.fence.after is missing",
    ),
    "the wait for the loads": (
        without(TensorWait, verb="ld"),
        "D[thread * 32] = C_own[0..3] touches C_own[0], which C_own[0..31] = "
        "tcgen05.ld.32x32b.x32(C[lane thread // 32 * 32, column 0]) still fills: wait for it",
    ),
    "the release": (
        without(TensorFree),
        "128 columns of tensor memory are allocated at the end: free them, or the next CTA waits",
    ),
}  # fmt: skip


@pytest.mark.parametrize("missing", MISSING)
def test_what_is_missing_is_an_error_that_names_the_access(missing: str) -> None:
    change, message = MISSING[missing]
    assert message in run(product(ORDERED), ORDERED, change)


def test_all_that_stands_there_is_needed() -> None:
    """But what one wait or fence does, a later one before the same access does too."""
    kernel = product(ORDERED)
    assert run(kernel, ORDERED) == ""
    ops = kernel.lower().body.ops
    spare = [
        str(op)
        for at, op in enumerate(ops)
        if isinstance(op, ORDERING)
        and not run(kernel, ORDERED, lambda ops, at=at: (*ops[:at], *ops[at + 1 :]))  # type: ignore[misc]
    ]
    assert spare == ["tcgen05.wait.st()"]
    assert sum(isinstance(op, ORDERING) for op in ops) == 16


ORDERING = (
    TensorAllocate, TensorFree, TensorFence, TensorWait, TensorCommit, TensorCopy, TensorStore,
    ProxyFence, Sync, MbarrierWait,
)  # fmt: skip
MISSING_OF_PAIRS: dict[str, tuple[Change, str]] = {
    "the fence before the barrier": (
        without(TensorFence, 1, side="before"),
        "A_own[0..63]) of thread 1 of CTA 0 writes: a tcgen05.fence.before is missing before it",
    ),
    "the fence after the barrier": (
        without(TensorFence, 1, side="after"),
        "A_own[0..63]) of thread 1 of CTA 0 writes: a tcgen05.fence.after is missing after it",
    ),
    "the barrier of the pair": (
        without(Sync, 1),
        "reads B_tile at 8, which thread 1 of CTA 0 wrote with no barrier in between",
    ),
    "the pair in that barrier": (
        lambda ops: tuple(
            Sync("cta") if isinstance(op, Sync) and 3 < at < 30 else op
            for at, op in enumerate(ops)
        ),
        "reads B_tile at 0, which thread 0 of CTA 1 wrote with no barrier in between",
    ),
    "the memory in that barrier": (
        lambda ops: tuple(
            Sync("cluster") if isinstance(op, Sync) and 3 < at < 30 else op
            for at, op in enumerate(ops)
        ),
        "which thread 1 of CTA 0 wrote with no barrier in between",
    ),
    "the await": (without(MbarrierWait), "add) writes, and no thread waited for its commit"),
    "the fence after the await": (
        without(TensorFence, 2, side="after"),
        "add) writes: after the wait a tcgen05.fence.after is missing",
    ),
    "the last barrier": (
        without(Sync, 2), "tcgen05.commit(done[0]) may reach a CTA that has ended: sync the cluster"
    ),
    "the first barrier and the next": (
        lambda ops: tuple(op for op in ops if not isinstance(op, Sync)),
        "reaches a CTA whose barriers may not be ready: sync the cluster first",
    ),
}  # fmt: skip


@pytest.mark.parametrize("missing", MISSING_OF_PAIRS)
def test_what_is_missing_between_a_pair(missing: str) -> None:
    change, message = MISSING_OF_PAIRS[missing]
    assert message in run(pair(PAIR), PAIR, change)


# -- hazards that a program may have --------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """A kernel whose A and B are in shared memory, and C in tensor memory."""

    kernel: Kernel
    a: lw.Buffer
    given: lw.Buffer
    b: lw.Buffer
    c: lw.Buffer
    own: lw.Buffer
    result: lw.Buffer
    done: Any

    def multiply(self, commit: bool = True, **config: Any) -> None:
        """Start ``C = A·B``."""
        operands = {"C": self.c, "A": self.a[0], "B": self.b[0]} | config
        self.kernel.gemm_async(**operands, transB=True, scope="thread")
        if commit:
            self.kernel.commit("gemm", self.done)

    def finish(self, turn: Any = 0) -> None:
        """Store C as rows of the result, once the products are done."""
        self.kernel.mbarrier_wait(self.done, 0, turn)
        self.kernel.copy(self.own, self.c)
        self.kernel.copy(self.result[turn * 128 : turn * 128 + 128, :], self.own)


def parts(turns: int = 1, n: int = 32) -> Parts:
    kernel = Kernel("parts", 128, "sm_100a")
    given = kernel.param("A", (128, 64), "f16"), kernel.param("B", (n, 64), "f16")
    held = [
        kernel.alloc(f"{each.name}_tile", (1, *each.shape), "f16", "shared",
                     swizzled_tile((1, *each.shape), 128, 16))
        for each in given
    ]  # fmt: skip
    for tile, each in zip(held, given, strict=True):
        kernel.copy(tile[0], each)
    c = kernel.alloc("C", (128, n), "f32", "tmem", tmem_datapath_layout("D", 128, n))
    own = kernel.alloc("own", (128, n), "f32", layout=wg_local_layout(n))
    result = kernel.param("D", (128 * turns, n), "f32")
    kernel.sync()
    done = kernel.barrier("done", 1, 1)
    return Parts(kernel, held[0], given[0], held[1], c, own, result, done)


def test_an_accumulator_is_read_before_the_next_product_overwrites_it() -> None:
    for ordered in (True, False):
        p = parts(turns=2)
        with p.kernel.loop("turn", 2) as turn:
            p.multiply()
            p.finish(turn)
            if ordered:
                p.kernel.sync()
        said = run(p.kernel)
        if ordered:
            assert said == ""
        else:
            assert said.startswith("simulate: tcgen05.m128n32k16.f16.f16(C[lane 0, column 0], A")
            assert (
                "overwrites tensor memory at lane 0, column 0, which own[0..31] = "
                in said.replace("lane 1, ", "lane 0, ")
            )
            assert said.endswith("of thread 1 reads with no barrier in between: sync first")


def test_a_phase_is_awaited_once() -> None:
    p = parts(turns=2)
    with p.kernel.loop("turn", 2) as turn:
        p.multiply()
        p.kernel.mbarrier_wait(p.done, 0, 0)
        p.kernel.copy(p.own, p.c)
        p.kernel.copy(p.result[turn * 128 : turn * 128 + 128, :], p.own)
        p.kernel.sync()
    assert run(p.kernel).endswith("writes, and no thread waited for its commit")


def test_the_next_turn_of_a_pair_waits_for_both() -> None:
    """Each has C read when both meet: of the CTA alone, or without its memory, is too little."""
    case = Case(sizes=(256, 32, 64))
    for scope, memory, message in (
        ("cluster", True, ""),
        ("cluster", False, "0]) of thread 1 of CTA 0 reads with no barrier in between: sync first"),
        ("cta", False, "no thread waited for its commit"),  # the other CTA is a phase ahead
    ):
        kernel = pair(case)
        held, done = kernel.buffers, kernel.barriers["done"]
        kernel.sync(scope, memory)
        operands = held["C"], held["A_tile"][0], held["B_tile"][0]
        kernel.gemm_async(*operands, transB=True, scope="thread", cta_group=2)
        kernel.commit("gemm", done)
        kernel.mbarrier_wait(done, 0, 1)
        said = run(kernel, case)
        assert (said == "") == (message == "")
        assert message in said


@pytest.mark.parametrize(
    ("free", "sync", "message"),
    [(True, True, ""),
     (True, False, "add) writes: after the wait a tcgen05.fence.after is missing"),
     (False, True, "at 0 in thread 0, which tcgen05 read, and no thread waited for its commit")],
)  # fmt: skip
def test_boxes_follow_products(free: bool, sync: bool, message: str) -> None:
    """One thread waits for products before it refills; a barrier tells the others of it."""
    kernel = Kernel("boxes", 128, "sm_100a")
    given = kernel.param("A", (128, 64), "f16")
    a = kernel.alloc("A_tile", (1, 128, 64), "f16", "shared", swizzled_tile((1, 128, 64), 128, 16))
    c = kernel.alloc("C", (128, 32), "f32", "tmem", tmem_datapath_layout("D", 128, 32))
    own = kernel.alloc("own", (128, 32), "f32", layout=wg_local_layout(32))
    full, done = kernel.barrier("full", 1, 1), kernel.barrier("done", 1, 1)
    boxes = [(a[0], given[0:128, 0:64])]
    kernel.tma_load(full, 0, boxes)
    kernel.mbarrier_wait(full, 0, 0)
    kernel.sync()
    kernel.gemm_async(c, a[0], a[0, 0:32, :], transB=True, scope="thread")
    kernel.commit("gemm", done)
    kernel.tma_load(full, 0, boxes, (done, 0, 0) if free else None)
    if sync:
        kernel.sync()
    kernel.copy(own, c)
    kernel.mbarrier_wait(full, 0, 1)
    body = kernel.lower().body
    assert not any(isinstance(op, ProxyFence) for op in walk(body.ops))
    machine = Machine(body)
    machine.extents["A"], machine.pitches["A"] = (128, 64), 64
    matrix = np.arange(128 * 64).reshape(128, 64) % 7
    machine.allocate(body.buffer("A"), matrix.astype(np.float16).reshape(-1), True)
    if message:
        with pytest.raises(SimulationError, match=re.escape(message)):
            run_to_end(machine)
        return
    run_to_end(machine)
    assert np.array_equal(machine.registers["own"], matrix @ matrix[:32].T)


@pytest.mark.parametrize("late", [False, True])
def test_operands_stay_until_the_products_are_done(late: bool) -> None:
    p = parts()
    p.multiply()
    if not late:
        p.kernel.mbarrier_wait(p.done, 0, 0)
    p.kernel.copy(p.a[0], p.given)
    if late:
        p.kernel.mbarrier_wait(p.done, 0, 0)
    said = run(p.kernel)
    assert ("at 0 in thread 0, which tcgen05 read, and no thread waited for its" in said) == late
    p = parts()
    p.multiply(commit=False)
    p.kernel.copy(p.a[0], p.given)
    assert "which tcgen05 still reads: commit it to an mbarrier, and wait for that" in run(p.kernel)


def test_stores_wait_for_products() -> None:
    p = parts()
    p.kernel.zero(p.own)
    p.multiply()
    p.kernel.copy(p.c, p.own)
    p.finish()
    said = run(p.kernel)
    assert said.startswith(
        "simulate: tcgen05.st.32x32b.x32(C[lane thread // 32 * 32, column 0], own"
    )
    assert "add) writes, and no thread waited for its commit" in said


def test_copies_of_scales_wait_for_the_products_that_read_them() -> None:
    """Copies come before later products without a wait, and never after earlier ones."""
    case = Case("e4m3", sizes=(128, 32, 128), scale=("ue8m0", 32))
    kernel = product(case)
    statements = kernel._blocks[0]
    copies = [each for each in statements if getattr(each, "scope", "") == "thread"][:2]
    at = next(i for i, each in enumerate(statements) if isinstance(each, TensorCommit))
    assert run(kernel, case) == ""
    statements[at:at] = copies
    said = run(kernel, case)
    assert "overwrites tensor memory at lane 0, column 0, which" in said
    assert said.endswith("still writes: commit it to an mbarrier, and wait for that")
    del statements[at : at + 2]
    statements[at + 2 : at + 2] = copies
    assert run(kernel, case).startswith("simulate: tcgen05.dealloc")
    again = MbarrierWait(replace(statements[at + 1].phase, parity=Index((), 1)))
    statements[at + 4 : at + 4] = [Sync("cta"), statements[at], again]
    assert run(kernel, case) == ""


@pytest.mark.parametrize(("n", "awaited"), [(32, False), (16, False), (16, True)])
def test_products_follow_products_of_their_shape(n: int, awaited: bool) -> None:
    p = parts()
    p.multiply(commit=awaited)
    if awaited:
        p.kernel.mbarrier_wait(p.done, 0, 0)
        p.kernel.sync()
    for col in range(0, 32, n):
        more = {"C": p.c[:, col : col + n], "B": p.b[0, col : col + n, :]}
        p.multiply(commit=False, accum=True, **more)
    p.kernel.commit("gemm", p.done)
    p.kernel.mbarrier_wait(p.done, 0, int(awaited))
    p.kernel.copy(p.own, p.c)
    said = run(p.kernel)
    if n == 32 or awaited:
        assert said == ""
    else:
        assert said.startswith("simulate: tcgen05.m128n16k16.f16.f16(C[lane 0, column 0]")
        assert said.endswith("still writes: commit it to an mbarrier, and wait for that")


@pytest.mark.parametrize(
    ("commit", "message"),
    [("none", "still writes: commit it to"), ("before", "still writes: commit it to"),
     ("unawaited", "writes, and no thread waited for its commit")],
)  # fmt: skip
def test_products_are_committed_and_awaited(commit: str, message: str) -> None:
    p = parts()
    if commit == "before":
        p.kernel.commit("gemm", p.done)
    p.multiply(commit=commit == "unawaited")
    if commit == "before":
        p.kernel.mbarrier_wait(p.done, 0, 0)
    said = run(p.kernel)
    assert said.startswith("simulate: tcgen05.dealloc(32) frees tensor memory at lane 0, column 0")
    assert message in said


def test_the_end_finds_what_is_under_way() -> None:
    """Also where nothing is freed: without products in tensor memory's cells, by the history."""
    p = parts()
    p.multiply(commit=False)
    assert "is under way at the end: commit it" in run(p.kernel, None, without(TensorFree))
    p = parts()
    p.multiply()
    said = run(p.kernel, None, without(TensorFree))
    assert "no thread waits for the last tcgen05.commit" in said


def changed(kind: type, **fields: Any) -> Change:
    """Return a change of fields of every operation of a kind."""

    def change(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        return tuple(replace(op, **fields) if isinstance(op, kind) else op for op in ops)  # type: ignore[type-var]

    return change


HERE = TensorMatrix("C", Index(), Index())
WRONG: dict[str, tuple[Change, str]] = {
    "fewer columns": (
        changed(TensorAllocate, columns=32),
        "reaches lane 0, column 40; 128 lanes and 32 columns are allocated",
    ),
    "allocated twice": (
        lambda ops: (ops[0], *ops), "tcgen05.alloc(128) allocates tensor memory a second time"
    ),
    "lanes of another warp": (
        changed(TensorLoad, source=HERE), "reaches lane 0; warp 1 may touch lanes 32 to 63"
    ),
    "an address by thread": (
        changed(TensorLoad, source=replace(HERE, lane=Index.of("thread", 128))),
        "needs one address per warp",
    ),
    "scales that differ": (
        changed(TensorMma, scales=(HERE, HERE)),
        "has other scales in lanes 32 on than in the first 32, of row 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_reaches_too_far_or_reads_something_else(wrong: str) -> None:
    change, message = WRONG[wrong]
    assert message in run(product(ORDERED), ORDERED, change)


def test_the_two_copies_of_a_must_agree() -> None:
    """Of 128 rows of a pair each CTA has 64, in lanes 0 on and again in lanes 64 on."""
    case = Case(sizes=(128, 64, 64), left="tmem")

    def change(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        at = next(i for i, op in enumerate(ops) if isinstance(op, Load) and op.memory == "A")
        first = ops[at]
        assert isinstance(first, Load)
        later = first.address + Index.of("thread", 128) // 64 * 8
        return (*ops[:at], replace(first, address=later), *ops[at + 1 :])

    assert "has other rows of A in lanes 64 on than in 0 on" in run(pair(case), case, change)


# -- kernel texts ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "case", "arch"),
    [(product, replace(ORDERED, scope="warp"), "sm_103a"), (pair, PAIRS["scales"], "sm_100a")],
    ids=["one CTA", "a pair"],
)
def test_texts_call_the_same_and_assemble(
    make: Callable[[Case], Kernel], case: Case, arch: str
) -> None:
    """In the order of the script, in both languages; and the assembler has nothing to remark."""
    pytest.importorskip("cuda.bindings.nvjitlink", reason="nvJitLink is not installed")
    program = make(case).lower()
    texts = program.kernel_source(), program.cuda_source()
    called = [re.findall(r"\b((?:tensor_|tcgen05_|elected)\w*)\(", text) for text in texts]
    python, cuda = called[0], called[1][-len(called[0]) :]
    assert python == cuda
    products = [name for name in python if name.startswith("tcgen05_")]
    assert len(products) == sum(isinstance(op, TensorMma) for op in walk(program.body.ops)) == 4
    assert python[0].startswith("tensor_allocate")
    assert python[-1].startswith("tensor_free")
    assert ("elected" in python) == (case.scope == "warp")
    ptx = program.ptx(arch)
    assert ptx.count("tcgen05.mma.cta_group::") == 4
    assert assemble(ptx, arch, strict=True)[:4] == b"\x7fELF"
