"""The whole dense mma family, through ``dispatch="mma.sync*"``: every row, on the NumPy warp."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import lowering as lw
from layoutalg import fragments
from lowering.assemble import assemble
from lowering.instructions import MmaInst

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
    modifier = row.modifier or None
    return lw.lower(lw.gemm(d, a, b, c, beta=beta, dispatch="mma.sync*", modifier=modifier))


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
    assert len(extended) == 33
    assert len(ROWS) == len(set(ROWS)) == 82


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


@pytest.mark.parametrize("row", ONE_PER_TYPE[::3], ids=str)
def test_rows_assemble_from_their_first_target_on(row: MmaInst) -> None:
    lowered = program(row, (1, 1, 1), 1)
    text = lowered.ptx(row.min_arch)
    assert text.count(row.ptx) == 1
    assert assemble(text, row.min_arch)
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
