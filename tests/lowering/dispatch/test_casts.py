"""``Kernel.cast``: every pair of types, whole words and parts of them, on each machine."""

from __future__ import annotations

import numpy as np
import pytest

import lowering as lw
from layoutalg import LayoutError, parse
from lowering.isa import dtypes
from lowering.isa.casts import cast
from tests.hardware.casts import by_source, program
from tests.support.cast_inputs import bits_of, inputs
from tests.support.kernel_texts import outputs

SOURCES = by_source()
COUNT = 2048


@pytest.mark.parametrize("source", SOURCES)
def test_every_pair_is_cast_on_each_machine(source: str) -> None:
    rows = SOURCES[source]
    values = np.random.default_rng(1).permutation(np.resize(inputs(rows[0], 512), COUNT))
    made = program(source, [row.result for row in rows], COUNT)
    for machine, found in outputs(made, {"a": values.reshape(-1, 8)}):
        for row in rows:
            wanted = bits_of(row.apply(values), row.result)
            got = bits_of(found[f"to_{row.result}"].ravel(), row.result)
            assert np.array_equal(got, wanted), (machine, row.result)


PARTS = [
    ("f32", "f16"), ("f16", "f32"), ("bf16", "e4m3"), ("e5m2", "s32"), ("s8", "f16"), ("f64", "u8"),
    ("u8", "f64"), ("f64", "bf16"), ("s32", "s8"), ("f32", "tf32"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), PARTS)
@pytest.mark.parametrize(("into", "begin", "count"), [(1, 0, 3), (0, 1, 5), (3, 2, 1), (2, 3, 4)])
def test_parts_of_words_are_cast(
    source: str, target: str, into: int, begin: int, count: int
) -> None:
    """What lies beside them in a word stays."""
    layout = parse("S[(32,8):(1@laneid,1)]")
    k = lw.Kernel("parts")
    a, o = k.param("a", (32, 8), source), k.param("o", (32, 8), target)
    old = k.param("old", (32, 8), target)
    held = k.alloc("held", (32, 8), source, layout=layout)
    found = k.alloc("found", (32, 8), target, layout=layout)
    k.copy(held, a)
    k.copy(found, old)
    k.cast(found[:, into : into + count], held[:, begin : begin + count])
    k.copy(o, found)
    rng = np.random.default_rng(into)
    row = cast(source, target)
    values = rng.permutation(np.resize(inputs(row, 512), 256)).reshape(32, 8)
    before = rng.integers(0, 100, (32, 8)).astype(dtypes.get(target).numpy)
    want = before.copy()
    want[:, into : into + count] = row.apply(values[:, begin : begin + count])
    for machine, got in outputs(k.lower(), {"a": values, "old": before}):
        assert np.array_equal(bits_of(got["o"], target), bits_of(want, target)), machine


def test_other_pairs_are_refused_by_name() -> None:
    layout = parse("S[(32,8):(1@laneid,1)]")
    k = lw.Kernel("refused")
    held = k.alloc("held", (32, 8), "uint4", layout=layout)
    found = k.alloc("found", (32, 8), "float32", layout=layout)
    with pytest.raises(LayoutError, match="uint4 goes to float16, bfloat16; got uint4 to float32"):
        k.cast(found, held)


def test_elements_of_four_bits_go_by_whole_words() -> None:
    layout = parse("S[(32,8):(1@laneid,1)]")
    k = lw.Kernel("nibbles")
    a = k.param("a", (32, 8), "int4")
    held = k.alloc("held", (32, 8), "int4", layout=layout)
    found = k.alloc("found", (32, 8), "float16", layout=layout)
    k.copy(held, a)
    k.cast(found[:, 0:4], held[:, 1:5])
    with pytest.raises(LayoutError, match="elements of 4 bits go by whole words of 8; got held"):
        k.lower()
