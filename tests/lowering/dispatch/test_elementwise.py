"""Elementwise expressions: the NumPy warp and both texts compute what NumPy does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import LayoutError, fragments, parse
from lowering.dispatch.registry import DispatchError
from lowering.ir.ops import Compute, walk
from tests.support.kernel_texts import outputs

Array = np.ndarray[Any, Any]
ROWS = parse("S[(32,4):(1@laneid,1)]")
STATS = parse("S[(2,8,1):(1,4@laneid,1)] + R[4:1@laneid]")  # a row each, in the four lanes of it


def accumulators(rows: int = 16, cols: int = 32) -> Any:
    """Return the layout of a tile of accumulators."""
    return fragments.get("mma.m16n8k16.f16", "D").tiled(rows, cols)


def test_a_softmax_numerator_reads_like_numpy() -> None:
    k = lw.Kernel("numerator")
    scale = k.scalar("scale", "f32")
    a, b = k.param("a", (16, 32), "float32"), k.param("b", (16, 1), "float32")
    o = k.param("o", (16, 32), "float32")
    s = k.alloc("s", (16, 32), "float32", layout=accumulators())
    row_max = k.alloc("m", (16, 1), "float32", layout=STATS)
    k.copy(s, a)
    k.copy(row_max, b)
    p = k.tile("p", lw.exp2(s * scale - row_max))
    assert p.layout == s.layout
    k.copy(o, lw_causal(k, p))
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(n).astype(np.float32) for n in ((16, 32), (16, 1)))
    want = np.tril(np.exp2(x * np.float32(0.25) - y))
    for machine, out in outputs(k.lower(), {"a": x, "b": y}, {"scale": 0.25}):
        np.testing.assert_array_max_ulp(out["o"], want, 1), machine


def lw_causal(k: lw.Kernel, p: lw.Buffer) -> lw.Buffer:
    """Keep what stands at or below the diagonal."""
    k.assign(p, lw.where(lw.index(p, 0) >= lw.index(p, 1), p, 0))
    return p


CASES: dict[str, tuple[str, Callable[[Any, Any], Any], Callable[[Array, Array], Array]]] = {
    "f32": ("float32", lambda x, y: (x + 1) * y - x / 4, lambda x, y: (x + 1) * y - x / 4),
    "f64": ("float64", lambda x, y: abs(x) * 0.5 - y, lambda x, y: np.abs(x) * 0.5 - y),
    "f16": ("float16", lambda x, y: lw.maximum(x, y) - x, lambda x, y: np.maximum(x, y) - x),
    "bf16": ("bfloat16", lambda x, y: -x + y, lambda x, y: -x + y),
    "s32": ("int32", lambda x, y: ((x << 3) ^ y) & ~x, lambda x, y: ((x << 3) ^ y) & ~x),
    "quotient": ("int32", lambda x, y: x // 3 * 9 + x % -4 + y,
                 lambda x, y: x // 3 * 9 + x % -4 + y),
    "where f16": ("float16", lambda x, y: lw.where(x < y, x, 1),
                  lambda x, y: np.where(x < y, x, 1)),
    "not": ("float32", lambda x, y: lw.where((x < y) & ~(y < 0), x, y),
            lambda x, y: np.where((x < y) & ~(y < 0), x, y)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_type_on_every_machine(case: str) -> None:
    dtype, ours, numpys = CASES[case]
    k = lw.Kernel("k")
    a, b, o = (k.param(name, (32, 4), dtype) for name in "abo")
    x, y = (k.alloc(name, (32, 4), dtype, layout=ROWS) for name in "xy")
    k.copy(x, a), k.copy(y, b)
    k.assign(x, ours(x, y))
    k.copy(o, x)
    kind = a.dtype.numpy
    rng = np.random.default_rng(1)
    given = {name: rng.integers(-9, 9, (32, 4)).astype(kind) for name in "ab"}
    want = numpys(given["a"], given["b"]).astype(kind)
    for machine, out in outputs(k.lower(), given):
        assert out["o"].tobytes() == want.tobytes(), machine


@pytest.mark.parametrize("cols", [(0, 3), (1, 4), (1, 2), (2, 3)])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_parts_of_words_and_other_registers(dtype: str, cols: tuple[int, int]) -> None:
    """Elements that lie at other places of their words in the operand than in the result."""
    k = lw.Kernel("k")
    a, o = k.param("a", (32, 4), dtype), k.param("o", (32, 4), dtype)
    x = k.alloc("x", (32, 4), dtype, layout=parse("S[(32,2,2):(1@laneid,1,2)]"))
    y = k.alloc("y", (32, 4), dtype, layout=ROWS)
    k.copy(x, a), k.copy(y, a)
    here = slice(*cols)
    k.assign(y[:, here], x[:, here] if dtype == "int8" else x[:, here] + x[:, here])
    k.copy(o, y)
    given = np.arange(128).reshape(32, 4).astype(y.dtype.numpy)
    want = given.copy()
    want[:, here] = given[:, here] * (1 if dtype == "int8" else 2)
    for machine, out in outputs(k.lower(), {"a": given}):
        assert np.array_equal(out["o"], want), machine


def test_positions_count_in_the_buffer_and_indices_take_part() -> None:
    k = lw.Kernel("k", threads=64)
    o = k.param("o", (64, 4), "int32")
    r = k.alloc("r", (64, 4), "int32", layout=parse("S[(2,32,4):(1@warpid,1@laneid,1)]"))
    k.assign(r, 0)
    part = r[8:64, 1:3]
    with k.loop("i", 3, unroll=True) as i:
        k.assign(part, part + lw.index(part, 0) * 10 + lw.index(part, 1) + k.warp * 1000 + i)
    k.copy(o, r)
    want = np.zeros((64, 4), np.int32)
    row, col = np.mgrid[8:64, 1:3]
    want[8:, 1:3] = 3 * (row * 10 + col + row // 32 * 1000) + 3
    for machine, out in outputs(k.lower(), {}):
        assert np.array_equal(out["o"], want), machine


def test_what_one_thread_lacks_is_refused() -> None:
    k = lw.Kernel("k")
    x = k.alloc("x", (32, 4), "float32", layout=ROWS)
    y = k.alloc("y", (32, 4), "float32", layout=parse("S[(4,8,4):(8@laneid,1@laneid,1)]"))
    other = k.alloc("z", (32, 4), "float32", layout=parse("S[(32,4):(1,8@laneid)]"))
    k.assign(x, 0), k.assign(y, x), k.assign(other, x)
    with pytest.raises(
        DispatchError, match=r"each thread must hold of x\[0:32,0:4\] what its elements of z"
    ):
        k.lower()


def test_a_number_of_the_thread_has_no_copies() -> None:
    k = lw.Kernel("k")
    m = k.alloc("m", (16, 1), "int32", layout=STATS)
    k.assign(m, k.lane)
    with pytest.raises(DispatchError, match="thread differs between threads, and several of them"):
        k.lower()


def test_registers_that_are_read_after_they_are_set_are_refused() -> None:
    k = lw.Kernel("k")
    x = k.alloc("x", (32, 4), "float32", layout=ROWS)
    k.assign(x, 0)
    k.assign(x, x - x[:, 0:1])
    with pytest.raises(DispatchError, match="dst and src overlap in register 0 of x"):
        k.lower()


def test_a_change_of_one_stride_is_seen() -> None:
    """The operand of a broadcast row is found by its layout, not by its registers' order."""
    k = lw.Kernel("k")
    b, o = k.param("b", (16, 1), "float32"), k.param("o", (16, 32), "float32")
    s = k.alloc("s", (16, 32), "float32", layout=accumulators())
    swapped = parse("S[(2,8,1):(3,4@laneid,1)] + R[4:1@laneid]")
    m = k.alloc("m", (16, 1), "float32", layout=swapped)
    k.copy(m, b), k.assign(s, m + 0), k.copy(o, s)
    (op,) = (each for each in walk(k.lower().body.ops) if isinstance(each, Compute))
    assert set(op.operands[0].numbers) == {0, 3}
    given = np.arange(16, dtype=np.float32).reshape(16, 1)
    for machine, out in outputs(k.lower(), {"b": given}):
        assert np.array_equal(out["o"], np.broadcast_to(given, (16, 32))), machine


def test_a_tile_takes_the_layout_of_registers_that_descend() -> None:
    k = lw.Kernel("k")
    a, o = k.param("a", (32, 4), "float32"), k.param("o", (32, 4), "float32")
    r = k.alloc("r", (32, 4), "float32", layout=parse("S[(32,4):(1@laneid,-2)] + 9"))
    k.copy(r, a)
    t = k.tile("t", r * 2 - lw.max(r, axis=0))
    k.copy(o, t)
    assert t.layout == parse("S[(32,4):(1@laneid,-2)] + 6")
    given = np.arange(128, dtype=np.float32).reshape(32, 4)
    for machine, out in outputs(k.lower(), {"a": given}):
        assert np.array_equal(out["o"], given * 2 - given.max(0)), machine


def test_zeros_of_both_signs_are_two_constants() -> None:
    k = lw.Kernel("k")
    a, o = k.param("a", (32, 4), "float32"), k.param("o", (32, 4), "float32")
    x = k.alloc("x", (32, 4), "float32", layout=ROWS)
    k.copy(x, a)
    k.assign(x, lw.where(x < 1, x * -0.0, x * 0.0))
    k.copy(o, x)
    given = np.tile(np.float32([-2, -1, 1, 2]), (32, 1))
    want = np.tile(np.float32([0.0, 0.0, 0.0, 0.0]), (32, 1))
    for machine, out in outputs(k.lower(), {"a": given}):
        assert out["o"].tobytes() == want.tobytes(), machine


@pytest.mark.parametrize("value", [-0.5, 6.0, -0.0])
def test_constants_of_four_bits_fill_words(value: float) -> None:
    k = lw.Kernel("k")
    o = k.param("o", (32, 8), "e2m1")
    x = k.alloc("x", (32, 8), "e2m1", layout=parse("S[(32,8):(1@laneid,1)]"))
    k.assign(x, value), k.copy(o, x)
    want = np.full((32, 8), value).astype(o.dtype.numpy)
    for machine, out in outputs(k.lower(), {}):
        assert out["o"].tobytes() == want.tobytes(), machine


X = lw.Buffer("x", (32, 4), "float32", layout=ROWS)
REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "two types": (lambda: X + lw.cast(1, "float16"), "both sides must have one type; got"),
    "an index beside f32": (lambda: X * lw.Kernel("k").warp, "both sides must have one type"),
    "shapes": (lambda: X + X[0:3], "the shapes do not broadcast: x of .32, 4., x.0:3,0:4. of"),
    "no type": (lambda: lw.exp2(2), "the type of 2 is not known: one side must be a tile"),
    "memory": (lambda: lw.Buffer("g", (4,), "float32", "global") + 1, "computes on registers; g"),
    "a branch": (lambda: bool(X < 3), "has a value for each element, so Python cannot branch"),
    "bool": (lambda: X + True, "add: a number or a tile fits; got True"),
    "a text": (lambda: X + "a", "add: a tile, an expression, a number"),
    "beyond": (lambda: lw.cast(1e39, "float32"), "is beyond the largest f32"),
    "no infinity": (lambda: lw.cast(math.inf, "e4m3"), "inf is beyond the largest e4m3"),
    "beyond 4 bits": (lambda: lw.cast(6.5, "e2m1"), "6.5 is beyond the largest e2m1"),
    "no NaN": (lambda: lw.cast(math.nan, "e2m1"), "e2m1 holds no NaN"),
    "no integer": (lambda: lw.cast(0.5, "int32"), "s32 holds -2147483648..2147483647; got 0.5"),
    "a huge integer": (lambda: X * 10**400, "is beyond the largest f32"),
    "an infinite integer": (lambda: lw.cast(math.inf, "uint8"), "u8 holds 0..255; got inf"),
    "an undefined integer": (lambda: lw.cast(math.nan, "int32"), "s32 holds .*; got nan"),
    "a quotient by 0": (lambda: lw.index(X, 0) // 0, "floor_divide: .* by 0 is not defined"),
    "a remainder by 0": (lambda: lw.index(X, 0) % 0, "remainder: .* by 0 is not defined"),
    "truth": (lambda: lw.where(X, X, X), "where: the condition: both sides must have one type"),
    "bits of floats": (lambda: X & X, "bitwise_and: takes s32, pred; got f32"),
    "an axis": (lambda: lw.index(X, 2), "has axes 0..1; got 2"),
    "assign": (lambda: lw.Kernel("k").assign(X, X < 3), "assign: both sides"),
    "assign a shape": (lambda: lw.Kernel("k").assign(X[0:3], X), "does not broadcast to x.0:3"),
    "tile": (lambda: lw.Kernel("k").tile("t", X[0:1] + X[:, 0:1]), "no operand of t has its shape"),
    "another kernel's scalar": (
        lambda: lw.Kernel("k").assign(X, X * lw.Kernel("o").scalar("alpha", "f32")),
        "assign: alpha is no scalar of kernel k",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_say_what_came(case: str) -> None:
    make, message = REFUSALS[case]
    with pytest.raises(LayoutError, match=message):
        make()
