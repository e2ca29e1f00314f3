"""The whole dense mma family, through ``dispatch="mma.sync*"``: every row, on the NumPy warp."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import lowering as lw
from layoutalg import ComposeLayout, LayoutError, S, TileLayout, fragments, parse
from lowering.ir.matrices import from_bits, to_bits
from lowering.isa import dtypes
from lowering.isa.mma import MmaInst
from lowering.isa.nvjitlink import assemble
from lowering.simulator import machine, products
from lowering.verification import checker
from lowering.verification.cases import Case
from lowering.verification.checker import random_inputs

ROWS = lw.MMA_FAMILY
INTEGERS = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}
# Relative error of one product in each accumulator type: K roundings of its unit at the most.
BOUND = {"f32": 1e-6, "f16": 2e-3, "f64": 1e-15, "s32": 0.0}


def program(row: MmaInst, tiles: tuple[int, int, int], beta: int) -> lw.Program:
    """Lower a gemm of so many instructions along M, N and K."""
    m, n, k = (count * unit for count, unit in zip(tiles, (row.m, row.n, row.k), strict=True))
    shapes = {"D": (m, n), "C": (m, n), "A": (m, k), "B": (k, n)}
    dtypes = dict(zip("ABCD", row.dtypes, strict=True))
    buffers = {
        role: lw.Buffer(role, shape, dtypes[role], layout=row.fragment(role).tiled(*shape))
        for role, shape in shapes.items()
    }
    d, a, b, c = (buffers[role] for role in "DABC")
    name = row.key if row.kind else "mma.sync*"
    call = lw.gemm(d, a, b, c, beta=beta, dispatch=name, modifier=row.modifier or None)
    return lw.lower(call, arch="sm_90" if row.runs_on("sm_90") else first_target(row))


def first_target(row: MmaInst) -> str:
    return row.fragment("A").targets[0]


def random(row: MmaInst, role: str, shape: tuple[int, ...], seed: int) -> npt.NDArray[Any]:
    """Return random values over the whole range of an operand's type."""
    generator = np.random.default_rng(seed)
    dtype = dict(zip("ABCD", row.dtypes, strict=True))[role]
    if dtype.token in INTEGERS:
        return generator.integers(*INTEGERS[dtype.token], size=shape).astype(dtype.numpy)
    if dtype.token == "s32":
        return generator.integers(-(2**31), 2**31, size=shape).astype(np.int32)
    return generator.standard_normal(shape).astype(dtype.numpy)


def truncated(x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Keep the sign, the exponent and ten bits of a float32: what tf32 reads."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.trunc(mantissa * 2**11) / 2**11, exponent)


def reference(row: MmaInst, x: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return D by the definition, integers with Python's own."""
    if row.d.token == "s32":
        a, b, c = (x[role].astype(np.int64) for role in "ABC")
        exact = c + ((a[:, :, None] != b[None]).sum(1) if row.modifier == "xor" else a @ b)
        if row.modifier == "satfinite":
            return np.clip(exact, -(2**31), 2**31 - 1)
        return (exact + 2**31) % 2**32 - 2**31
    a, b = (truncated(x[r]) if row.a.token == "tf32" else x[r].astype(np.float64) for r in "AB")
    return a @ b + x["C"].astype(np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_row_computes_its_product(row: MmaInst) -> None:
    lowered = program(row, (1 if row.m == 8 else 2, 2, 1), 1)
    assert lowered.instruction == row
    x = {r: random(row, r, lowered.buffer(r).shape, i) for i, r in enumerate("ABC")}
    out, want = lowered.simulate(**x), reference(row, x)
    if row.d.token == "s32":
        assert np.array_equal(out, want)
    else:
        error = np.linalg.norm(out.astype(np.float64) - want) / np.linalg.norm(want)
        assert error <= BOUND[row.d.token]


def test_every_dense_instruction_of_the_fragment_table_has_rows() -> None:
    named = {name for name in fragments.names() if name.startswith("mma.")}
    extended = {row.name for row in lw.MMA_EXTENDED}
    assert {row.name for row in ROWS} == named - extended
    assert len(ROWS) == len(set(ROWS))


def test_saturation_and_wrapping_differ_where_they_must() -> None:
    plain, clipped = (
        next(r for r in ROWS if r.name == "mma.m16n8k32.s8" and r.modifier == modifier)
        for modifier in ("", "satfinite")
    )
    a = np.full((32, 32), 127, dtype=np.int8)
    b = np.full((32, 16), 127, dtype=np.int8)
    c = np.full((32, 16), 2**31 - 1, dtype=np.int32)
    outs = [program(row, (2, 2, 1), 1).simulate(A=a, B=b, C=c) for row in (plain, clipped)]
    assert (outs[0] == -(2**31) - 1 + 32 * 127**2).all()
    assert (outs[1] == 2**31 - 1).all()


ONE_PER_TYPE = [row for row in ROWS if row.k == max(r.k for r in ROWS if r.dtypes == row.dtypes)]


@pytest.mark.slow
@pytest.mark.parametrize("row", ONE_PER_TYPE[::3], ids=str)
def test_rows_assemble_from_their_first_target_on(row: MmaInst) -> None:
    lowered = program(row, (1, 1, 1), 1)
    text = lowered.ptx(first_target(row))
    assert text.count(row.ptx) == 1
    assert assemble(text, first_target(row))
    assert lowered.cuda_source().count(row.ptx) == 1


def test_an_unknown_modifier_is_refused() -> None:
    row = next(r for r in ROWS if r.name == "mma.m16n8k256.b1")
    lowered = program(row, (1, 1, 1), 0)
    d, a, b = (lowered.buffer(role) for role in "DAB")
    reason = "modifier 'or' is unknown for uint1 and uint1; there is and, xor"
    with pytest.raises(lw.DispatchError, match=reason):
        lw.lower(lw.gemm(d, a, b, dispatch="mma.sync*", modifier="or"))


def test_accumulators_that_no_row_has_are_named() -> None:
    row = next(r for r in ROWS if r.name == "mma.m16n8k16.bf16")
    lowered = program(row, (1, 1, 1), 0)
    half = lw.Buffer("D", (16, 8), "float16", layout=lowered.buffer("D").layout)
    with pytest.raises(lw.DispatchError, match="with these A and B, C and D may be float32"):
        lw.lower(lw.gemm(half, lowered.buffer("A"), lowered.buffer("B"), dispatch="mma.sync*"))


# -- sparse, block-scaled and m8n8k4: what does not fit is refused --------------------------------


def operands_of(name: str, **other: Any) -> dict[str, Any]:
    """Return the buffers of one tile of an mma, some of them replaced."""
    row = next(row for row in lw.MMA_EXTENDED if str(row) == name)
    tokens = {"A": row.a, "B": row.b, "D": row.d}
    roles = ("D", "A", "B", *row.extras)
    made = {
        role: lw.Buffer(role, f.tile, tokens.get(role, f.dtype), layout=f.layout)
        for role, f in ((role, row.fragment(role)) for role in roles)
    }
    return made | other


SPARSE, SCALED = "mma.sp.m16n8k32.f16", "mma.m16n8k64.mxf4nvf4.e2m1.ue4m3"
SWIZZLED = ComposeLayout(3, 1, 3, TileLayout(S[(16, 16) : (16, 1)]))
WIDE = lw.Buffer("D", (16, 16), "f32", layout=parse("S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)]"))
ASTRIDE = "S[(2,8,2,8):(16,4@laneid,1@laneid,1)]+R[2:2@laneid]"
FLAT = ComposeLayout(3, 1, 3, TileLayout(S[128:1]))
E_LAYOUT = "S[(2,8,2,8):(8,4@laneid,1@laneid,1)]"
NOT_FOR_THEM: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "a modifier": (SPARSE, {}, {"modifier": "satfinite"}, "modifier 'satfinite': it may be none"),
    "swizzled E": (
        SPARSE,
        {"E": lw.Buffer("E", (16, 16), "u2", layout=SWIZZLED)},
        {},
        "E is swizz",
    ),
    "E without copies": (
        SPARSE,
        {"E": lw.Buffer("E", (16, 16), "u2", layout=parse(E_LAYOUT))},
        {},
        "E must be held with the copies of",
    ),
    "E of another type": (
        SPARSE,
        {"E": lw.Buffer("E", (16, 16), "u8", layout=parse(E_LAYOUT + "+R[2:2@laneid]"))},
        {},
        "no instruction takes .*E uint8; there is .*E u2",
    ),
    "another scope": (SPARSE, {}, {"scope": "cta"}, "sparse A: one warp, scope warp"),
    "beta a half": (SPARSE, {}, {"beta": 0.5}, "beta must be 0"),
    "one scale alone": (SCALED, {"SFB": None}, {}, "SFA alone: the scales .*, SFB, are missing"),
    "C elsewhere in D": (
        SPARSE,
        {"D": WIDE[0:16, 0:8], "C": WIDE[0:16, 8:16]},
        {"beta": 1},
        "C must be D's own region or another buffer",
    ),
    "E astride words": (
        SPARSE,
        {"E": lw.Buffer("E", (16, 16), "u2", layout=parse(ASTRIDE))},
        {},
        "E.M needs the register digit 2:8, has 2:16@m",
    ),
    "a swizzled product": (
        "mma.m8n8k4.f16",
        {
            "A": lw.Buffer(
                "A", (4, 8, 4), "f16", layout=ComposeLayout(3, 1, 3, TileLayout(S[128:1]))
            )
        },
        {},
        "A is swizzled",
    ),
}


@pytest.mark.parametrize("name", NOT_FOR_THEM)
def test_what_they_do_not_take_is_refused(name: str) -> None:
    instruction, other, config, message = NOT_FOR_THEM[name]
    made = {role: b for role, b in operands_of(instruction, **other).items() if b is not None}
    call = lw.gemm(**made, **config)
    with pytest.raises(lw.DispatchError, match=message):
        lw.lower(call, arch="sm_120a", threads=64 if config.get("scope") == "cta" else None)


def test_a_target_without_them_is_told_who_has_them() -> None:
    with pytest.raises(lw.DispatchError, match=r"sm_75 lacks mma.sp.*sm_80 and newer have it"):
        lw.lower(lw.gemm(**operands_of(SPARSE)), arch="sm_75")
    with pytest.raises(lw.DispatchError, match=r"sm_90 lacks mma.sync.*sm_120a, sm_120f"):
        lw.lower(lw.gemm(**operands_of(SCALED)), arch="sm_90")


def test_registers_of_sparse_a_are_free_in_their_order() -> None:
    """As for a dense mma: the operand list follows the layout."""
    swapped = parse("S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)]")
    made = operands_of(SPARSE, A=lw.Buffer("A", (16, 16), "f16", layout=swapped))
    assert lw.lower(lw.gemm(**made)).mma[0][2] == (0, 2, 1, 3)


@pytest.mark.parametrize(
    ("name", "role", "value", "message"),
    [
        (SPARSE, "E", 4, "operand E: uint2 holds integers from 0 to 3; got 4"),
        (SPARSE, "E", 0.5, "operand E: uint2 holds integers from 0 to 3; got 0.5"),
        (SCALED, "SFA", -1.0, "operand SFA: float8_ue4m3fn has no sign; got -1.0"),
    ],
)
def test_values_that_a_type_would_change_are_refused(
    name: str, role: str, value: float, message: str
) -> None:
    lowered = lw.lower(lw.gemm(**operands_of(name)), arch="sm_120a")
    given = {each: np.ones(lowered.buffer(each).shape) for each in lowered.inputs}
    if "E" in given:
        given["E"][:, 0::2] = 0
    given[role] = np.full(given[role].shape, value)
    with pytest.raises(LayoutError, match=f"^{message}$"):
        lowered.simulate(**given)


def test_integers_beyond_their_type_are_refused_and_truths_are_bits() -> None:
    row = next(r for r in ROWS if r.name == "mma.m8n8k128.b1")
    lowered = program(row, (1, 1, 1), 0)
    ones = np.ones((8, 128), dtype=bool)
    assert (lowered.simulate(A=ones, B=ones.T) == 128).all()
    with pytest.raises(LayoutError, match="operand A: uint1 holds integers from 0 to 1; got 2"):
        lowered.simulate(A=2 * np.ones((8, 128)), B=ones.T)
    row = next(r for r in ROWS if r.name == "mma.m16n8k32.s8")
    with pytest.raises(LayoutError, match="operand A: int8 holds integers from -128 to 127; got 1"):
        program(row, (1, 1, 1), 0).simulate(A=np.full((16, 32), 128), B=np.ones((32, 8)))


# -- sparse, block-scaled and m8n8k4: what they compute --------------------------------------------


def by_hand(row: MmaInst, x: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    """Return D by the definition, element by element: nothing of ours computes it."""
    a, b = x["A"].astype(np.float64), x["B"].astype(np.float64)
    out = x["C"].astype(np.float64).copy()
    if row.kind == "sp":
        for i, j in np.ndindex(a.shape):
            k = 4 * (j // 2) + int(x["E"][i, j])
            out[i] += a[i, j] * b[k]
        return out
    if row.kind:
        blocks = x["SFA"].shape[1]
        size = a.shape[1] // blocks
        for i, k in np.ndindex(a.shape):
            scale = float(x["SFA"][i, k // size]) * x["SFB"][k // size].astype(np.float64)
            out[i] += a[i, k] * scale * b[k]
        return out
    for q, i, k in np.ndindex(a.shape):
        out[q, i] += a[q, i, k] * b[q, k]
    return out


@pytest.mark.slow
@pytest.mark.parametrize("row", lw.MMA_EXTENDED, ids=str)
def test_every_other_row_computes_its_product(row: MmaInst) -> None:
    """Two tiles along each dimension, so that positions and scales of both k tiles count."""
    case = Case(str(row), (1, 2, 1) if row.kind == "sp" else (2, 2, 2), 1)
    lowered = case.program()
    assert lowered.instruction == row
    x = random_inputs(lowered, 7)
    want = by_hand(row, x)
    error = np.linalg.norm(lowered.simulate(**x).astype(np.float64) - want) / np.linalg.norm(want)
    assert error <= BOUND[row.d.token]
    reference = checker.reference(lowered, x)
    assert np.linalg.norm(reference - want) <= 1e-12 * np.linalg.norm(want)


def test_each_k_tile_takes_its_own_scales() -> None:
    """Of scales one by one, the byte of the register is the tile's; of pairs, bytes 0 and 2."""
    for name, bytes_of in (
        ("mma.m16n8k32.mxf8f6f4.e4m3", ("{0, 0}", "{1, 0}", "{2, 0}", "{3, 0}")),
        ("mma.m16n8k64.mxf4.e2m1.ue8m0", ("{0, 0}", "{2, 0}")),
    ):
        text = Case(name, (1, 1, len(bytes_of))).program().cuda_source()
        found = [line for line in text.splitlines() if "mma.sync" in line]
        assert [selector in line for line, selector in zip(found, bytes_of, strict=True)] == (
            [True] * len(bytes_of)
        )


def test_four_bits_lie_in_the_middle_of_their_byte() -> None:
    """PTX ISA: e2m1 of kind::mxf8f6f4 takes bits 2 to 5 of its container."""
    one = np.ones(1).astype(dtypes.get("float4_e2m1fn").numpy)
    assert to_bits(one, dtypes.get("float4_e2m1fn_x8")).tolist() == [0b0010 << 2]
    assert from_bits(np.array([0b0010 << 2], np.uint8), dtypes.get("float4_e2m1fn_x8")) == one


def test_positions_that_do_not_ascend_are_refused() -> None:
    lowered = lw.lower(lw.gemm(**operands_of(SPARSE)))
    with pytest.raises(LayoutError, match=r"row 0 chunk 0 of warp 0 has \[3, 1\]"):
        lowered.simulate(A=np.ones((16, 16)), B=np.ones((32, 8)), E=np.tile([3, 1], (16, 8)))


def test_of_copies_the_first_lanes_are_read() -> None:
    """Selector 0 takes lane 4g of each group: other lanes may hold anything."""
    lowered = lw.lower(lw.gemm(**operands_of("mma.sp.m16n8k16.f16")))
    ran = machine.Machine(lowered.body)
    slots = np.zeros((32, 16))
    slots[0::4] = 1
    ran.registers["E"][:] = slots
    ran.known["E"][:] = True
    row = lowered.instruction
    op = lowered.body.mma[0]
    gathered = products.gather(ran, op.extra[0], row.fragment("E"), op)
    assert (gathered == 1).all()


def test_the_kind_of_scaled_products_can_be_named() -> None:
    for kind in ("mxf4", "mxf4nvf4"):
        name = f"mma.m16n8k64.{kind}.e2m1.ue8m0"
        assert Case(name, (1, 1, 1)).program().instruction.name == name
    with pytest.raises(LayoutError, match=r"for 2 tiles along K dispatch chooses mma.m16n8k16.f16"):
        Case("mma.m16n8k8.f16", (1, 1, 2)).program()


def test_integers_saturate_at_both_ends() -> None:
    row = next(r for r in ROWS if r.name == "mma.m16n8k32.s8" and r.modifier == "satfinite")
    lowered = program(row, (1, 1, 1), 1)
    a, b = np.full((16, 32), -128), np.full((32, 8), 127)
    for sign in (1, -1):
        c = np.full((16, 8), sign * (2**31 - 2) - (sign < 0))
        out = lowered.simulate(A=sign * np.full((16, 32), 127), B=b, C=c)
        assert (out == (2**31 - 1 if sign > 0 else -(2**31))).all()
    assert (lowered.simulate(A=a, B=b, C=np.zeros((16, 8))) == -128 * 127 * 32).all()
