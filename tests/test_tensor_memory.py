"""``gemm_async`` on tensor memory: what it multiplies, what it refuses, and what must be ordered."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import (
    Iter,
    LayoutError,
    S,
    TileLayout,
    parse,
    tmem_datapath_layout,
    tmem_scale_layout,
    wg_local_layout,
)
from lowering.dispatch import context_of, dispatch
from lowering.kernel import Kernel
from lowering.matmul_kernels import swizzled
from lowering.ops import Await, Loop, Op, ProxyFence, Sync, walk
from lowering.tensor_ops import (
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
from lowering.warp import SimulationError, execute
from tests.tensor_kernels import Case, agrees, inputs, pair, product
from tests.test_tcgen05 import ROWS, TYPES

# -- what it multiplies -----------------------------------------------------------------------------


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


@pytest.mark.parametrize("case", CASES)
def test_every_kind_and_type(case: str) -> None:
    assert agrees(product(CASES[case]), CASES[case])


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
    "an elected thread": Case(sizes=(256, 16, 32), scope="warp", period=64),
}


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


# -- what it refuses --------------------------------------------------------------------------------


def shared(name: str, shape: tuple[int, int], dtype: str, period: int = 128) -> lw.Buffer:
    bits = lw.Buffer(name, shape, dtype, "shared").dtype.bits
    ring = swizzled((1, *shape), period, bits)
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


A4, B4 = shared("A", (128, 64), "e2m1", 32), shared("B", (64, 64), "e2m1", 32)
SCALED_4X: dict[str, Any] = {
    "A": A4, "B": B4, "SFA": scales("SFA", 128, 4, "ue4m3"), "SFB": scales("SFB", 64, 4, "ue4m3")
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
        assert "lies as S[" in said or "lie as S[" in said or "tensor memory has lanes 0 to" in said, (
            str(each), said
        )  # fmt: skip


def test_scales_without_their_copies_are_refused() -> None:
    layout = TileLayout.from_iters(SFA.layout.shard)
    message = "must lie as S[(4,32):(4@TCol,1@TLane)] + R[4:32@TLane], 1 scales in one column"
    assert message in reason(**SCALED | {"SFA": tensor("SFA", (128, 4), "ue8m0", layout)})


MOVED = tmem_datapath_layout("F", 64, 64, 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scope": "warpgroup"}, "one thread starts it: scope thread or warp fits; the scope is wa"),
        ({"arch": "sm_90a"}, "sm_90a lacks tcgen05.mma; sm_100, sm_103, "),
        ({"arch": "sm_120a"}, "sm_120a lacks tcgen05.mma; "),
        ({"C": shared("C", (128, 64), "f32")}, "C and scales must be in tensor memory, B in shared"),
        ({"B": tensor("B", (128, 64), "f16")}, "A in either; C is tmem, A is shared, B is tmem"),
        ({**SCALED, "SFB": None}, "scales are of both A and B; got SFA alone"),
        ({**SCALED, "SFB": scales("SFB", 64, 4, "ue4m3")}, "SFA is float8_e8m0fnu, SFB float8_ue4"),
        ({**SCALED, "SFB": scales("SFB", 64, 2)}, "SFA (M, K/block) is (128, 4), SFB (K/block, N) "),
        ({**SCALED, "SFA": scales("SFA", 128, 2), "SFB": scales("SFB", 64, 2)},
         "no kind multiplies float8_e4m3fn by float8_e4m3fn with scales ue8m0 of 64 elements; "),
        ({"A": shared("A", (128, 32), "f16")}, "C (M, N) is (128, 64), A (M, K) (128, 32), B (K, N)"),
        ({"cta_group": 2}, "of each CTA; B has half the columns of C: they do not go together"),
        ({"B": shared("B", (64, 64), "bf16")}, "no kind multiplies float16 by bfloat16 without sca"),
        ({"C": tensor("C", (128, 64), "s32")}, "the accumulator of kind f16 is float32; C is int32"),
        ({"C": tensor("C", (128, 64), "f16")}, "the accumulator of kind f16 is float32; C is float"),
        ({"A": shared("A", (128, 64), "e2m3", 64), "B": shared("B", (64, 64), "e2m3", 64)},
         "A: float6_e2m3fn has bytes of its own; in shared memory the tensor core wants 16"),
        ({"C": tensor("C", (128, 64), "s32"), "A": shared("A", (128, 64), "s8", 64),
          "B": shared("B", (64, 64), "s8", 64), "arch": "sm_103a"},
         "sm_103a lacks tcgen05.mma kind::i8; sm_100a and sm_110a have it"),
        ({"C": tensor("C", (32, 64), "f32", parse("S[(32,64):(1@TLane,1@TCol)]")),
          "A": shared("A", (32, 64), "f16")}, "M must be a multiple of 64 or 128 (f16); got 32"),
        ({"C": tensor("C", (128, 8), "f32", parse("S[(128,8):(1@TLane,1@TCol)]")),
          "B": shared("B", (8, 64), "f16")}, "fits no shape; tcgen05.m64n8k16.f16.f16: an accumula"),
        ({"C": tensor("C", (128, 4), "f32"), "B": lw.Buffer("B", (4, 64), "f16", "shared")},
         "N must be a multiple of 8 (M = 64, f16); got 4"),
        ({"A": lw.Buffer("A", (128, 8), "f16", "shared"), "B": lw.Buffer("B", (64, 8), "f16", "shared")},
         "K must be a multiple of 16, 32 bytes of f16; got 8"),
        ({"C": tensor("C", (64, 64), "f32", MOVED), "A": tensor("A", (64, 64), "f16",
          parse("S[(64,64):(1@TLane,1@TCol)]"))}, "A in tensor memory has 128 rows; where 64 lie, "),
        ({"A": tensor("A", (64, 128), "f16", parse("S[(64,128):(1@TCol,1@TLane)]")), "transA": True},
         "A in tensor memory is (M, K): transA is a matter of its layout there"),
        ({"A": lw.Buffer("A", (128, 64), "f16", "shared", parse("S[(128,64):(72,1)]"))},
         "A: descriptor: K-major no swizzle, "),
        ({"A": shared("A", (128, 16), "tf32", 64), "B": shared("B", (16, 64), "tf32"),
          "transB": False}, "only 8 or 16-bit operands may be MN-major; got 32 bits"),
        ({"C": lw.Buffer("C", (128, 64), "f32", "tmem", parse("S[(128,64):(1@m,128@m)]"))},
         "tensor memory has the axes TLane and TCol; got S["),
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
    assert "an accumulator lies as" in reason(C=tensor("C", (64, 64), "f32", late), A=a)


def test_operands_of_a_pair() -> None:
    """The columns of both CTAs are counted; A in tensor memory wants 32 of them."""
    both = lw.Buffer("B", (24, 64), "f16", "shared", shared("B", (24, 64), "f16").layout)
    own = tensor("C", (128, 48), "f32")
    assert reason(C=own, B=both, cta_group=2) == ""
    message = "with A in tensor memory a pair of CTAs has multiples of 32 columns; got 48"
    assert reason(C=own, A=A_TENSOR, B=both, cta_group=2) == message


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
    with pytest.raises(LayoutError, match="a thread commits is what it started; got thread and wa"):
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


# -- what must be ordered ----------------------------------------------------------------------------

ORDERED = Case("e4m3", sizes=(128, 32, 128), left="tmem", scale=("ue8m0", 32), accum=True)
ORDERING = (
    TensorAllocate, TensorFree, TensorFence, TensorWait, TensorCommit, TensorCopy, TensorStore,
    ProxyFence, Sync, Await,
)  # fmt: skip


def run(kernel: Kernel, case: Case, change: Callable[[tuple[Op, ...]], tuple[Op, ...]]) -> str:
    """Return the error of a kernel whose operations are changed; empty where there is none."""
    program = kernel.lower()
    given, _ = inputs(case)
    matrices = program.matrices(given)
    body = program.body
    try:
        execute(replace(body, ops=change(body.ops)), matrices)
    except SimulationError as error:
        return str(error)
    return ""


def names(ops: tuple[Op, ...]) -> list[str]:
    return [type(op).__name__ for op in ops if isinstance(op, ORDERING)]
