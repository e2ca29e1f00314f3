"""Casts: what each text does is what its row means, and that is one rounding of the number."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from layoutalg import LayoutError
from lowering.isa import dtypes
from lowering.isa.casts import CASTS, KEPT, NANS, cast
from lowering.isa.functions import PRED, Function
from tests.hardware import casts as device_casts
from tests.support import ptx_cvt, ptx_words
from tests.support.cast_inputs import Array, bits_of, inputs, registers
from tests.support.paths import ROOT

NAMES = [f"{source}-{target}" for source, target in CASTS]
FLOATS = ("f16", "bf16", "f32", "f64", "tf32", "e4m3", "e5m2")


def raw(values: Array) -> Array:
    """Return bits, so that NaNs are compared too."""
    return values.view(f"uint{8 * values.dtype.itemsize}")


@pytest.mark.parametrize("row", CASTS.values(), ids=NAMES)
def test_the_text_does_what_the_row_means(row: Function) -> None:
    """All registers, bit by bit; each instruction is what the PTX ISA says."""
    values = inputs(row)
    asm = row.asm
    given = registers(values, row.operands[0], row.count)
    found = ptx_words.run(asm.text, asm.outputs, asm.inputs, given, len(given[0]))
    wanted = registers(row.apply(values), row.result, row.count)
    for one, other in zip(found, wanted, strict=True):
        assert np.array_equal(raw(one), raw(other))


@pytest.mark.parametrize(
    "row",
    [row for row in CASTS.values() if row.result in FLOATS and row.operands[0] != PRED],
    ids=[name for name, row in zip(NAMES, CASTS.values(), strict=True) if row.result in FLOATS],
)
def test_a_float_is_rounded_once(row: Function) -> None:
    """From the number itself, in float64, whatever types lie on the way."""
    values, target = inputs(row), row.result
    with np.errstate(all="ignore"):
        numbers = values.astype(np.float32 if values.dtype.itemsize < 4 else np.float64)
        numbers = numbers.astype(np.float64)
    once = ptx_cvt.codes(
        numbers, target, "rna" if target == "tf32" else "rn", target in ("e4m3", "e5m2")
    )
    if target == "tf32":
        once <<= np.uint64(13)
    found = bits_of(row.apply(values), target).astype(np.uint64)
    known = ~np.isnan(numbers)
    assert np.array_equal(found[known], once[known])
    if target != "tf32" and (row.operands[0], target) not in (*KEPT, ("bf16", "f32")):
        assert (found[~known] == NANS[target]).all()


NAN_BITS = [
    ("f64", "f32", 0xFFF7844F8E70AA73, 0xFFFC227C), ("f64", "f16", 0xFFF7844F8E70AA73, 0xFFE1),
    ("f64", "f32", 0x7FF0000000000001, 0x7FC00000), ("f32", "f64", 0xFFB3679C, 0xFFFE6CF380000000),
    ("bf16", "f64", 0x7F92, 0x7FFA400000000000), ("bf16", "f32", 0xFF92, 0xFF920000),
    ("f32", "tf32", 0xFFB3679C, 0xFFB36000), ("f32", "tf32", 0x7F800001, 0x7F800000),
    ("f16", "f64", 0xFE01, 0x7FFFFFFFE0000000), ("f64", "bf16", 0xFFF7844F8E70AA73, 0x7FFF),
    ("f16", "f32", 0xFE01, 0x7FFFFFFF), ("f32", "e4m3", 0xFFB3679C, 0x7F),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "nan", "wanted"), NAN_BITS)
def test_which_nan_it_is(source: str, target: str, nan: int, wanted: int) -> None:
    """As an H200 has it."""
    dtype = dtypes.get(source)
    value = np.array([nan], dtype=dtype.word).view(dtype.numpy)
    assert int(bits_of(cast(source, target).apply(value), target)[0]) == wanted


@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64", "e4m3", "e5m2"])
@pytest.mark.parametrize("target", ["s8", "u8", "s32"])
def test_a_float_becomes_the_integer_toward_zero(source: str, target: str) -> None:
    """As C has it, but beyond the ends the nearest end, and 0 for a NaN."""
    row = cast(source, target)
    values, found = inputs(row), row.apply(inputs(row))
    least, most = dtypes.get(target).integers
    for value, got in zip(values[::17], found[::17], strict=True):
        number = float(value)
        if np.isnan(number):
            assert got == 0
        elif np.isinf(number):
            assert got == (most if number > 0 else least)
        else:
            assert got == min(max(int(number), least), most)


@pytest.mark.parametrize(
    ("source", "target"),
    [("s8", "u8"), ("u8", "s8"), ("s32", "s8"), ("s32", "u8"), ("s8", "s32"), ("u8", "s32")],
)
def test_an_integer_keeps_its_low_bits(source: str, target: str) -> None:
    row = cast(source, target)
    values = inputs(row)
    bits = dtypes.get(target).bits
    assert ((row.apply(values).astype(np.int64) - values.astype(np.int64)) % (1 << bits) == 0).all()


LISTED = (
    "float16, bfloat16, float32, float64, int8, uint8, int32, float8_e4m3fn, float8_e5m2, int4, "
    "uint4, float4_e2m1fn, pred"
)
REFUSED = {
    ("uint4", "float32"): "uint4 goes to float16, bfloat16; got uint4 to float32",
    ("float32", "float32"): (
        "float32 goes to float16, bfloat16, float64, int8, uint8, int32, float8_e4m3fn, "
        "float8_e5m2, tfloat32; got float32 to float32"
    ),
    ("float4_e2m1fn_x8", "f16"): f"takes {LISTED}; got float4_e2m1fn_x8 to float16",
    ("uint2", "int8"): f"takes {LISTED}; got uint2 to int8",
    ("tf32", "f32"): f"takes {LISTED}; got tfloat32 to float32",
}


@pytest.mark.parametrize(("source", "target"), REFUSED)
def test_other_pairs_are_refused_by_name(source: str, target: str) -> None:
    with pytest.raises(LayoutError, match=f"^cast: {re.escape(REFUSED[source, target])}$"):
        cast(source, target)


def test_each_pair_is_there() -> None:
    nine = ("f16", "bf16", "f32", "f64", "s8", "u8", "s32", "e4m3", "e5m2")
    wanted = {(a, b) for a in nine for b in nine if a != b}
    wanted |= {(a, b) for a in ("s4", "u4", "e2m1") for b in ("f16", "bf16")}
    wanted |= {("f32", "tf32"), (PRED, "s32")}
    assert {(row.operands[0], row.result) for row in CASTS.values()} == wanted


def test_types_of_four_bits_go_by_words() -> None:
    """Eight elements of one word at once, and no more than two shifts."""
    for (source, target), row in CASTS.items():
        if dtypes.get(source if source != PRED else "s32").bits == 4:
            assert (row.count, row.asm.inputs, row.asm.outputs) == (8, "r", "rrrr"), target
            assert row.text.count("cvt") == 0
            assert len(re.findall(r"sh[lr]\.", row.text)) <= 2


RECORD = ROOT / "tests/data/hardware/h200_casts.json"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_h200_gives_the_same_bits(name: str) -> None:
    """Both texts, on all that ``python -m tests.hardware.casts`` tries."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    row = CASTS[tuple(name.split("-"))]
    if row.operands[0] == PRED:  # memory holds no truth values
        return
    said = record["casts"][f"{row.operands[0]}-{row.result}"]
    assert (said["texts agree"], said["first"]) == (True, [])
    values = device_casts.padded(inputs(row, record["random"]))
    assert device_casts.digest(row.apply(values), row.result) == said["sha256"]
