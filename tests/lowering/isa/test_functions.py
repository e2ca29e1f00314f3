"""Every scalar function means what its PTX does."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest

from layoutalg import LayoutError
from lowering.isa import functions
from lowering.isa.functions import FUNCTIONS, PRED, Function
from tests.support import ptx_words
from tests.support.paths import HARDWARE

Array = np.ndarray[Any, Any]
RECORD = HARDWARE / "h200_functions.json"


def inputs(token: str, rng: np.random.Generator, count: int = 512) -> Array:
    """Return elements of a type: random bits, small numbers, and the edges."""
    kind = functions.numpy_of(token)
    if token == PRED:
        return rng.integers(0, 2, count).astype(bool)
    word = np.dtype(f"uint{kind.itemsize * 8}")
    found = (
        rng.integers(0, 1 << (kind.itemsize * 8), count, dtype=np.uint64).astype(word).view(kind)
    )
    if token == "s32":
        found[::2] = rng.integers(-40, 40, count // 2)
        found[:4] = -(2**31), 2**31 - 1, 0, -1
        return found
    found[::2] = (4 * rng.standard_normal(count // 2)).astype(kind)
    found[:8] = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1.5]).astype(kind)
    info = np.array([1, 3], dtype=word).view(kind)  # the least denormals
    found[8:10] = info
    return found


def as_words(values: Array, token: str) -> list[Array]:
    """Return elements as the registers that hold ``count`` of them, by thread."""
    if token == PRED:
        return [values.astype(np.uint32)]
    if values.dtype.itemsize > 2:
        return [values if values.dtype.kind == "f" else values.view(np.uint32)]
    return list(np.ascontiguousarray(values).view(np.uint32).reshape(-1, 1).T)


def spread(values: Array, token: str, count: int) -> list[Array]:
    """Return the registers of ``count`` elements in each thread."""
    if count == 1 or functions.bits_of(token) < 32:
        return as_words(values, token)
    return [part for at in range(count) for part in as_words(values[at::count], token)]


def ulps(found: Array, want: Array) -> Array:
    """Return the distance of floats in units in the last place; 0 between two NaNs."""
    word = f"int{found.dtype.itemsize * 8}"
    low = np.iinfo(word).min
    ordered = []
    for each in (found, want):
        bits = np.ascontiguousarray(each).view(word).astype(np.int64)
        ordered.append(np.where(bits < 0, low - bits, bits))
    apart = np.abs(ordered[0] - ordered[1])
    return np.where(np.isnan(found) & np.isnan(want), 0, apart)


@pytest.mark.filterwarnings("ignore:invalid value")  # ml_dtypes warns of NaNs
@pytest.mark.parametrize("function", FUNCTIONS, ids=[each.asm.name for each in FUNCTIONS])
def test_the_text_does_what_the_function_means(function: Function) -> None:
    rng = np.random.default_rng(len(function.text))
    arguments = [inputs(token, rng) for token in function.operands]
    for argument in arguments[1:]:
        rng.shuffle(argument)
    if function.name in ("floor_divide", "remainder"):
        arguments[1][arguments[1] == 0] = 7
    want = function.apply(*arguments)
    asm = function.asm
    words = [
        word
        for token, argument in zip(function.operands, arguments, strict=True)
        for word in spread(argument, token, function.count)
    ]
    found = ptx_words.run(asm.text, asm.outputs, asm.inputs, words, len(words[0]))
    if functions.bits_of(function.result) < 32:
        (word,) = found
        got = np.ascontiguousarray(word).view(want.dtype)
    else:
        got = np.stack(found, axis=1).reshape(-1)
        got = got.astype(bool) if function.result == PRED else got.view(want.dtype)
    if want.dtype.kind in "bi":
        assert np.array_equal(got, want)
    else:
        assert ulps(got, want).max() <= (1 if function.ulp else 0)


def test_an_h200_is_as_near_to_each_meaning_as_its_row_says() -> None:
    record = json.loads(RECORD.read_text())
    assert record["rows"].keys() == {each.asm.name for each in FUNCTIONS}, record["command"]
    for each in FUNCTIONS:
        row = record["rows"][each.asm.name]
        assert row["text"] == hashlib.sha256(each.text.encode()).hexdigest()[:16], each.name
        assert row["ulp"] <= each.ulp, each.name
        assert bool(row["differ"]) == bool(each.ulp or each.absolute), each.name


def test_a_type_without_the_function_is_refused_by_name() -> None:
    with pytest.raises(LayoutError, match=r"^rsqrt: takes f32; got f16\. Cast it first"):
        functions.get("rsqrt", ("f16",))
    with pytest.raises(LayoutError, match=r"^add: takes .*; got f16·f32"):
        functions.get("add", ("f16", "f32"))
