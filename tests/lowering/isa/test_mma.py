"""The instruction table: a wrong row cannot be made, and adding a row is adding data."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import Iter, LayoutError, S, TileLayout, laneid
from layoutalg.fragments import Formula, Fragment, transposed
from layoutalg.fragments.rows import TABLE, _dense
from lowering.dispatch.variants import mma_sync
from lowering.isa import dtypes, mma
from tests.support.gemm_checks import expected, matrices

F16, BF16, F32 = (dtypes.get(name) for name in ("f16", "bf16", "f32"))
ROW = lw.MMA_INSTRUCTIONS[1]


def test_the_table_in_the_order_of_dispatch() -> None:
    assert [(row.name, row.ptx, row.min_arch) for row in lw.MMA_INSTRUCTIONS] == [
        (
            f"mma.m16n8k{k}.{dtype}",
            f"mma.sync.aligned.m16n8k{k}.row.col.f32.{dtype}.{dtype}.f32",
            "sm_75" if (k, dtype) == (8, "f16") else "sm_80",
        )
        for k in (16, 8)
        for dtype in ("bf16", "f16")
    ]


def test_dtypes_are_known_by_name_token_and_type() -> None:
    for row in dtypes.DTYPES:
        assert dtypes.get(row) is dtypes.get(row.name) is row
        assert dtypes.get(row.token) is next(d for d in dtypes.DTYPES if d.token == row.token)
        assert str(row) == row.name
        assert row.word == f"uint{max(row.bits, 8)}"
        assert row.numpy.itemsize == max(row.bits // 8, 1)
    assert dtypes.get(np.float16) is dtypes.get(np.dtype("float16")) is F16
    assert dtypes.get(BF16.numpy) is BF16
    assert dtypes.get(float) is dtypes.get("f64")
    for unknown in (np.complex64, object, Fragment, None, 16, ["f16"]):
        with pytest.raises(
            LayoutError, match=r"^dtype: .* is unknown; known are float16, bfloat16, "
        ):
            dtypes.get(unknown)


def test_register_counts_follow_from_the_shape() -> None:
    for row in lw.MMA_INSTRUCTIONS:
        counts = {role: row.fragment(role).registers for role in "ABCD"}
        assert counts == {"A": row.k // 4, "B": row.k // 8, "C": 4, "D": 4}
        assert row.k_pack == 2
        assert row.shape == f"m16n8k{row.k}"
        assert row.dtypes == (row.a, row.b, F32, F32)
        assert str(row) == row.name


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "m": ({"m": 8}, "operand A must be f16 (8, 16); its fragment is f16 (16, 16)"),
    "n": ({"n": 16}, "operand B must be f16 (16, 16); its fragment is f16 (16, 8)"),
    "k": ({"k": 8}, "operand A must be f16 (16, 8); its fragment is f16 (16, 16)"),
    "A": ({"a": BF16}, "operand A must be bf16 (16, 16); its fragment is f16 (16, 16)"),
    "B": ({"b": BF16}, "operand B must be bf16 (16, 8); its fragment is f16 (16, 8)"),
    "C": ({"c": F16}, "C and D must share a fragment"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_row_is_refused_when_made(name: str) -> None:
    change, message = WRONG[name]
    with pytest.raises(LayoutError) as caught:
        dataclasses.replace(ROW, **change)
    assert str(caught.value) == f"instruction mma.m16n8k16.f16: {message}"


def test_a_row_without_fragments_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"no instruction is named 'mma.m16n8k64.f16'"):
        dataclasses.replace(ROW, name="mma.m16n8k64.f16", k=64)
    with pytest.raises(LayoutError, match=r"mma.m16n8k16.f16 has the operands .*; got 'C/D.bf16'"):
        dataclasses.replace(ROW, c=BF16, d=BF16)


def test_rows_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ROW.k = 32  # type: ignore[misc]


SOURCE = "none: an instruction that does not exist, made for this test"


def made_up(name: str, shapes: Any, layouts: Any, formulas: Any) -> tuple[Fragment, ...]:
    """Return the fragments of an instruction with f16 inputs: A, B, D."""
    kinds = (("A", "f16", 16), ("B", "f16", 16), ("C/D.f32", "f32", 32))
    return tuple(
        Fragment(name, *kind, shape, TileLayout(layout), formula, "sm_80", SOURCE)
        for kind, shape, layout, formula in zip(kinds, shapes, layouts, formulas, strict=True)
    )


# m16n8k8 whose rows lie two by two in a lane; D counts its registers down the columns.
INTERLEAVED = made_up(
    "mma.m16n8k8.interleaved",
    ((16, 8), (8, 8), (16, 8)),
    (
        S[(8, 2, 4, 2) : (4 @ laneid, 2, 1 @ laneid, 1)],
        S[(4, 2, 8) : (1 @ laneid, 1, 4 @ laneid)],
        S[(8, 2, 4, 2) : (4 @ laneid, 1, 1 @ laneid, 2)],
    ),
    (
        Formula((("rM", 2), ("p", 2)), {"g": 2, "rM": 1}, {"t": 2, "p": 1}),
        Formula((("p", 2),), {"t": 2, "p": 1}, {"g": 1}),
        Formula((("rN", 2), ("rM", 2)), {"g": 2, "rM": 1}, {"t": 2, "rN": 1}),
    ),
)
# m16n8k8 lying on its side: M is spread over four lanes, N over eight.
SIDEWAYS = made_up(
    "mma.m8n16k8.sideways",
    ((8, 8), (8, 16), (8, 16)),
    (
        S[(8, 4, 2) : (4 @ laneid, 1 @ laneid, 1)],
        S[(4, 2, 2, 8) : (1 @ laneid, 1, 2, 4 @ laneid)],
        S[(4, 2, 2, 8) : (1 @ laneid, 1, 2, 4 @ laneid)],
    ),
    (
        Formula((("p", 2),), {"g": 1}, {"t": 2, "p": 1}),
        Formula((("rN", 2), ("p", 2)), {"t": 2, "p": 1}, {"g": 1, "rN": 8}),
        Formula((("rN", 2), ("rM", 2)), {"t": 2, "rM": 1}, {"g": 1, "rN": 8}),
    ),
)


@pytest.fixture(params=[INTERLEAVED, SIDEWAYS], ids=["interleaved", "sideways"])
def added(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> lw.MmaInst:
    """Add an instruction by data alone: rows of the two tables."""
    a, b, _ = request.param
    monkeypatch.setitem(TABLE, a.instruction, lambda: request.param)
    row = lw.MmaInst(a.instruction, a.shape[0], b.shape[1], a.shape[1], F16, F16, F32, F32)
    monkeypatch.setattr(mma_sync, "MMA_FAMILY", (*lw.MMA_FAMILY, row))
    return row


def lowered(row: lw.MmaInst, tiles: tuple[int, int, int], flip: bool, beta: int) -> lw.Program:
    """Lower a gemm whose operands are a row's fragments, tiled."""
    m, n, k = (count * unit for count, unit in zip(tiles, (row.m, row.n, row.k), strict=True))
    d, a, b = (row.fragment(role) for role in "DAB")
    left, shape = a.tiled(m, k), (m, k)
    if flip:
        left, shape = transposed(left, shape), (k, m)
    program: lw.Program = lw.lower(
        lw.gemm(
            lw.Buffer("D", (m, n), "f32", layout=d.tiled(m, n)),
            lw.Buffer("A", shape, "f16", layout=left),
            lw.Buffer("B", (k, n), "f16", layout=b.tiled(k, n)),
            lw.Buffer("C", (m, n), "f32", layout=d.tiled(m, n)),
            transpose_A=flip,
            beta=beta,
        )
    )
    return program


@pytest.mark.parametrize("flip", [False, True])
def test_an_added_row_lowers_through_the_same_matcher(added: lw.MmaInst, flip: bool) -> None:
    """The frame is read off the row's fragments; operands come in the row's own order."""
    one = lowered(added, (1, 1, 1), flip, 0)
    assert one.instruction is added
    counts = [added.fragment(role).registers for role in "DAB"]
    assert one.mma == (("mma", *(tuple(range(count)) for count in counts)),)
    program = lowered(added, (2, 3, 2), flip, 1)
    assert program.instruction is added
    assert len(program.mma) == 12
    given = matrices(program, 3)
    assert np.array_equal(program.simulate(**given), expected(program, given))


def test_an_added_row_leaves_the_others_alone(added: lw.MmaInst) -> None:
    for row in lw.MMA_INSTRUCTIONS[1::2]:
        assert lowered(row, (1, 1, 1), False, 0).instruction is row


@pytest.mark.parametrize("rows", [INTERLEAVED, SIDEWAYS], ids=["interleaved", "sideways"])
def test_without_its_row_no_instruction_fits(rows: Any) -> None:
    a, b, d = rows
    call = lw.gemm(
        lw.Buffer("D", d.shape, "f32", layout=d.layout),
        lw.Buffer("A", a.shape, "f16", layout=a.layout),
        lw.Buffer("B", b.shape, "f16", layout=b.layout),
    )
    with pytest.raises(lw.DispatchError, match="no instruction fits"):
        lw.lower(call)


@pytest.mark.parametrize(
    ("axis", "strides", "outcome"),
    [
        ("m", {1: 1, 2: 6}, (0, 1, 6, 7)),
        ("m", {1: 3, 2: 6}, "D.M needs the register digit 2:1, has 2:3@m"),
        ("laneid", {1: 8, 4: 1}, "D.M needs the lane digit "),
    ],
)
def test_the_strides_of_an_added_row_are_matched(
    added: lw.MmaInst, axis: str, strides: dict[int, int], outcome: Any
) -> None:
    """D's registers may lie further apart where its row lets them; lanes must be the row's."""
    d = added.fragment("D")
    layout = TileLayout.from_iters(
        Iter(it.extent, strides[it.stride], axis) if it.axis.name == axis else it
        for it in d.layout.shard
    )
    a, b = (lw.Buffer(r, (f := added.fragment(r)).shape, "f16", layout=f.layout) for r in "AB")
    call = lw.gemm(lw.Buffer("D", d.shape, "f32", layout=layout), a, b)
    if isinstance(outcome, tuple):
        program = lw.lower(call)
        assert program.instruction is added
        assert [step[1] for step in program.mma] == [outcome]
        return
    with pytest.raises(lw.DispatchError) as caught:
        lw.lower(call)
    _, _, reason = caught.value.reasons[0]
    assert f"; {added.name}: {outcome}" in reason


# -- a row of a new kind: the table and its PTX ---------------------------------------------------


def call_of(row: lw.MmaInst, **given: Any) -> lw.TilePrimitiveCall:
    """Return a gemm on the fragments of one instruction."""
    made = {
        role: lw.Buffer(role, fragment.shape, fragment.dtype, layout=fragment.layout)
        for role, fragment in ((role, row.fragment(role)) for role in "DAB")
    }
    return lw.gemm(**made, **given)


@pytest.fixture
def of_new_kind(monkeypatch: pytest.MonkeyPatch) -> lw.MmaInst:
    """Add a kind beside the e4m3 row of its shape: a row of the table, and its PTX."""
    name = "mma.m16n8k32.made_up.e4m3"
    shape, types = (16, 32), ("e4m3", "e4m3")
    monkeypatch.setitem(TABLE, name, lambda: _dense(name, shape, types, ("f32",), "sm_120a"))
    kind = mma.Kind("mma.sync.aligned.{shape}.kind::{kind}.{types}")
    monkeypatch.setitem(mma.KINDS, "made_up", kind)
    (row,) = mma.instructions_of(name)
    monkeypatch.setattr(mma_sync, "MMA_FAMILY", (*lw.MMA_FAMILY, row))
    return row


def test_dispatch_takes_an_instruction_by_its_key(of_new_kind: lw.MmaInst) -> None:
    """Two rows of one shape and of the same types are told apart by their keys."""
    old = mma.named("mma.m16n8k32.e4m3")
    assert (old.shape, old.dtypes) == (of_new_kind.shape, of_new_kind.dtypes)
    for row in (old, of_new_kind):
        made = lw.lower(call_of(row, dispatch=row.key), arch="sm_120a")
        assert made.instruction is row
        assert f" {row.ptx} " in made.cuda_source().replace('"', " ")
        given = matrices(made, 3)
        assert np.array_equal(made.simulate(**given), expected(made, given))
    assert of_new_kind.ptx == ("mma.sync.aligned.m16n8k32.row.col.kind::made_up.f32.e4m3.e4m3.f32")
    assert lw.lower(call_of(old), arch="sm_120a").instruction is old


def test_every_row_has_a_key_of_its_own() -> None:
    rows = (*lw.MMA_FAMILY, *lw.MMA_EXTENDED)
    assert len({row.key for row in rows}) == len(rows)
    for row in rows:
        assert mma.named(row.key) is row


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("mma.m16n8k8.f16 f16", "with these A and B, C and D may be float16"),
        ("mma.m16n8k8.bf16", "A may be bfloat16"),
        ("mma.m16n8k16.f16", "K = 8 is no multiple of 16"),
        ("mma.sp.m16n8k16.f16", "takes no call of this form, with D, A, B, C"),
        ("mma.m16n8k8.f17", "unknown variant; gemm on cuda has mma.m16n8k*, "),
    ],
)
def test_a_key_of_another_instruction_is_refused(key: str, reason: str) -> None:
    with pytest.raises(lw.DispatchError) as caught:
        lw.lower(call_of(mma.named("mma.m16n8k8.f16"), dispatch=key))
    assert reason in str(caught.value)
    assert len(caught.value.reasons) == 1
