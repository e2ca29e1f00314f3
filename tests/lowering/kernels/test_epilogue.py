"""Epilogues of matmul: expressions of the sums and of operands, fused on every path."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import LayoutError, parse
from lowering.ir.ops import Load, walk
from lowering.ir.tiles import Buffer
from lowering.isa import dtypes
from lowering.kernels import api
from lowering.kernels.config import Config, Form, fitted
from lowering.kernels.fusion import Fused, Given
from lowering.kernels.matmul import program_of, simulate
from lowering.launch import driver
from tests.lowering.kernels.test_matmul import BULK, SMALL, Shown
from tests.lowering.kernels.test_matmul_wgmma import ONE, PAIR, THREE, TWO
from tests.lowering.launch.test_streams import Launches, Tensor, Torch, torch

__all__ = ["torch"]  # a fixture

FLIPS = tuple(itertools.product((False, True), repeat=2))
Matrix = Any

# Of each operand its extents and its type; all values are small integers, so that f32 is exact.
KINDS = {
    "bias": ("N", "float16"), "scale": ("M", "float32"), "residual": ("MN", "bfloat16"),
    "one": ("", "float16"), "gate": ("MN", "float16"), "number": (None, "float32"),
}  # fmt: skip


def everything(acc: Any, bias: Any, scale: Any, residual: Any, one: Any, number: Any) -> Any:
    return lw.maximum(acc * scale + bias, residual) * number + one


def on_arrays(acc: Matrix, bias: Any, scale: Any, residual: Any, one: Any, number: Any) -> Matrix:
    return np.maximum(acc * scale + bias, residual) * number + one


def fused(
    function: Callable[..., Any],
    names: tuple[str, ...],
    sizes: tuple[int, int] = (16, 8),
    out: str = "float16",
    sums: str = "f32",
) -> tuple[Fused, dict[str, Any]]:
    """Return an epilogue of some operands of :data:`KINDS`, and values of them."""
    rng = np.random.default_rng(2)
    given, values = [], {}
    for name in names:
        extents, dtype = KINDS[name]
        each = Given(name, dtypes.get(dtype), extents)
        given.append(each)
        values[name] = 0.5 if extents is None else rng.integers(-3, 4, each.shape(sizes))
    return Fused.of(function, given, out, sums, sizes), values


def right(form: Form, config: Config, sizes: tuple[int, int, int], **more: Any) -> bool:
    """Say whether a product with every kind of operand is exact, rounded once."""
    rng, (m, n, k) = np.random.default_rng(1), sizes
    epilogue, values = fused(everything, (*tuple(KINDS)[:4], "number"), (m, n), form.out.name)
    a, b = rng.integers(-3, 4, (m, k)), rng.integers(-3, 4, (k, n))
    want = on_arrays(a @ b, **values).astype(np.float32).astype(form.out.numpy)
    left, right = a.T if form.transpose_A else a, b.T if form.transpose_B else b
    form, config = fitted(replace(form, epilogue=epilogue), config, sizes)
    return bool((simulate(form, config, left, right, values, **more) == want).all())


@pytest.mark.slow
@pytest.mark.parametrize("flips", FLIPS)
@pytest.mark.parametrize(
    ("config", "sizes"),
    [(SMALL, (40, 72, 56)), (BULK, (40, 72, 56)), (ONE, (136, 72, 72)), (TWO, (136, 200, 136))],
)
def test_every_operand_with_edges(
    config: Config, sizes: tuple[int, int, int], flips: tuple[bool, bool]
) -> None:
    assert right(Form("float16", None, *flips), config, sizes, padding=8)


@pytest.mark.parametrize(
    ("out", "config", "sizes"),
    [
        ("float32", SMALL, (40, 40, 24)),
        ("bfloat16", SMALL, (32, 32, 32)),
        ("bfloat16", ONE, (72, 72, 40)),
        ("float32", ONE, (128, 64, 72)),
        ("bfloat16", PAIR, (64, 256, 256)),  # residual comes early, and leaves late
        ("bfloat16", PAIR, (72, 136, 128)),  # likewise with edges, in one round of the stages
    ],
)
def test_every_operand(out: str, config: Config, sizes: tuple[int, int, int]) -> None:
    assert right(Form("bfloat16", out), config, sizes, processors=1)


@pytest.mark.slow
def test_every_operand_by_tcgen05() -> None:
    config = Config((128, 64, 64), (4, 1), 2, 1, bulk=True, producer=True, wgmma=True)
    assert right(Form("float16", "float32"), config, (136, 72, 72), arch="sm_100a")


@pytest.mark.parametrize("config", [PAIR, THREE])
def test_two_matrices_of_which_one_comes_early(config: Config) -> None:
    """The one of D's type and shape comes into the registers that D leaves, for any K.

    Each element is loaded in some round of the stages, or else after the loop along K.
    """
    names, m, n = ("residual", "gate"), 64, 2 * config.tile[1]
    epilogue, values = fused(lambda acc, residual, gate: acc * gate + residual, names, (m, n))
    rng = np.random.default_rng(0)
    for rounds in (1, 3, 6):
        k = 64 * config.stages * rounds
        a, b = rng.integers(-3, 4, (m, k)), rng.integers(-1, 2, (k, n))
        form, config = fitted(Form("float16", epilogue=epilogue), config, (m, n, k))
        got = simulate(form, config, a, b, values, processors=1)
        assert (got == a @ b * values["gate"] + values["residual"]).all()
    ops = program_of(form, config).body.ops
    loads = [op for op in walk(ops) if isinstance(op, Load)]
    elements = config.tile[0] * config.tile[1] // config.threads
    assert sum(len(op.into.numbers) for op in loads if op.memory == "E") == 2 * elements
    assert {op.into.buffer for op in loads if op.memory == "E"} == {"kept"}
    assert {op.into.buffer for op in loads if op.memory == "C"} == {"C_held0", "C_held1"}


def test_a_row_is_loaded_for_its_columns_and_a_column_once() -> None:
    epilogue, _ = fused(lambda acc, bias, scale: acc * scale + bias, ("bias", "scale"))
    form, config = fitted(Form("float16", epilogue=epilogue), PAIR, (64, 256, 256))
    loads = [op for op in walk(program_of(form, config).body.ops) if isinstance(op, Load)]
    wide, single = ([op for op in loads if op.memory == name] for name in "CE")
    # Of 128 columns a thread has every eighth pair; of 16 rows of a warp two.
    # Those of the first block are loaded in the last round, or after the one round of a short K.
    assert [len(op.into.numbers) for op in wide] == [2] * (16 + 8)
    assert [len(op.into.numbers) for op in single] == [1] * (2 + 2)


def test_positions_count_in_d() -> None:
    """What is above the diagonal is dropped, whatever the tile."""
    epilogue, _ = fused(lambda acc: lw.where(lw.index(acc, 0) >= lw.index(acc, 1) + 4, acc, 0), ())
    rng = np.random.default_rng(0)
    for config in (SMALL, ONE):
        sizes = m, n, k = (72, 136, 24)
        a, b = rng.integers(-3, 4, (m, k)), rng.integers(-3, 4, (k, n))
        form, config = fitted(Form("float16", epilogue=epilogue), config, sizes)
        assert (simulate(form, config, a, b) == np.tril(a @ b, -4)).all()


def test_sums_of_integers_are_scaled() -> None:
    """Products of 8 bits give what the expression makes of s32, such as f16."""
    names, sizes = ("scale", "bias"), (72, 72, 80)
    epilogue, values = fused(
        lambda acc, scale, bias: lw.cast(acc, "float32") * scale + bias, names, sizes[:2],
        sums="s32",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 10, (72, 80)), rng.integers(-9, 10, (80, 72))
    form, config = fitted(Form("s8", "float16", False, True, epilogue=epilogue), ONE, sizes)
    want = ((a @ b) * values["scale"] + values["bias"]).astype(np.float32).astype(np.float16)
    assert (simulate(form, config, a, b.T, values) == want).all()


# -- which epilogues are one ----------------------------------------------------------------------


def test_epilogues_are_told_apart_by_all_that_they_compute() -> None:
    def of(function: Callable[..., Any], **more: Any) -> Fused:
        return fused(function, ("bias",), **more)[0]

    same = of(lambda acc, bias: acc * 0.5 + bias)
    assert same == of(lambda acc, bias: acc * 0.5 + bias)
    assert str(same).isidentifier()
    others = [
        of(lambda acc, bias: acc * 0.25 + bias),
        of(lambda acc, bias: acc * 0.5 - bias),
        of(lambda acc, bias: bias + acc * 0.5),
        of(lambda acc, bias: acc * 0.5 + bias, out="float32"),
        of(lambda acc, bias: acc * 0.0 + bias),
        of(lambda acc, bias: acc * -0.0 + bias),
        of(lambda acc, bias: lw.cast(lw.where(acc < 0, lw.cast(0.1, "float16"), 1), "f32") + bias),
        of(lambda acc, bias: lw.cast(lw.where(acc < 0, lw.cast(0.1, "bfloat16"), 1), "f32") + bias),
    ]
    assert len({same, *others}) == len({str(each) for each in (same, *others)}) == 1 + len(others)


def test_an_epilogue_is_read_at_each_call(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closure may change between calls; a number that is an operand makes no new kernel."""
    launches = Launches(monkeypatch)
    forms: list[Form] = []
    monkeypatch.setattr(api, "loaded", lambda form, *_: forms.append(form) or launches)
    factors = [1.0]

    def epilogue(acc: Any, number: Any) -> Any:
        return acc * number + factors[-1]

    for factor, number in ((1.0, 2.0), (1.0, 3.0), (4.0, 3.0)):
        factors.append(factor)
        lw.matmul(Tensor((16, 24)), Tensor((24, 8)), epilogue=epilogue, number=number)
    assert len(launches.seen) == 3
    assert len(forms) == 2
    assert forms[0].epilogue != forms[1].epilogue


def test_operands_are_passed_in_the_order_of_the_kernel(
    torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = Launches(monkeypatch)
    passed: list[Any] = []
    monkeypatch.setattr(launches, "launch", lambda *given: passed.append(given[1:3]))
    out, residual = Tensor((16, 8), 1 << 16), Tensor((16, 8), 2 << 16)
    bias = Tensor((1, 8), 3 << 16)
    bias.shape = (8,)  # type: ignore[assignment]
    monkeypatch.setattr(bias, "stride", lambda: (1,))
    for added in (residual, out):  # an operand may be out itself
        lw.matmul(
            Tensor((16, 24)), Tensor((24, 8)), out, bias=bias, x=added, factor=0.25,
            epilogue=lambda acc, x, factor, bias: acc * factor + x + bias,
        )  # fmt: skip
    assert [pointers[2:] for pointers, _ in passed] == [
        [3 << 16, 2 << 16, 1 << 16], [3 << 16, 1 << 16, 1 << 16],
    ]  # fmt: skip
    assert passed[0][1][0] == 0.25
    with pytest.raises(LayoutError, match="out must share no memory with bias, which the kernel"):
        lw.matmul(
            Tensor((16, 24)), Tensor((24, 8)), Tensor((16, 8), 3 << 16), bias=bias,
            epilogue=lambda acc, bias: acc + bias,
        )  # fmt: skip


# -- refusals -------------------------------------------------------------------------------------

ELSEWHERE = Buffer("elsewhere", (16, 8), "float32", layout=parse("S[(16,8):(8,1)]"))
A, B = Shown("<f2", (16, 24)), Shown("<f2", (24, 8))
BIAS = Shown("<f2", (8,), at=1 << 16)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no function": ({"epilogue": "gelu"}, "must be a function of the sums .*; got 'gelu'"),
    "no epilogue": ({"bias": BIAS}, "takes no bias without an epilogue"),
    "a name too many": (
        {"epilogue": lambda acc: acc, "bias": BIAS}, "each operand by its name; got bias: .*bias",
    ),
    "a name too few": (
        {"epilogue": lambda acc, bias: acc + bias}, "by its name; got no operands: .*'bias'",
    ),
    "no sums": ({"epilogue": lambda: 1}, "takes the sums, and each operand by its name"),
    "two results": (
        {"epilogue": lambda acc: (acc, acc)}, "must return one expression of acc .*; got tuple",
    ),
    "nothing": ({"epilogue": lambda acc: None}, "must return one expression .*; got NoneType"),
    "a number": ({"epilogue": lambda acc: 0.5}, "must return one expression .*; got float 0.5"),
    "a truth value": (
        {"epilogue": lambda acc: acc < 0}, r"value \(acc < 0.0\) is pred, and out is f16",
    ),
    "an integer": (
        {"epilogue": lambda acc: lw.cast(acc, "int32")}, r"is s32, and out is f16: only f32",
    ),
    "another type": (
        {"epilogue": lambda acc, bias: acc + lw.cast(bias, "bfloat16"), "bias": BIAS},
        "both sides must have one type",
    ),
    "a tile of a kernel": (
        {"epilogue": lambda acc: acc + ELSEWHERE}, "elsewhere is no operand of the epilogue; give",
    ),
    "an index of a kernel": (
        {"epilogue": lambda acc: acc + lw.cast(lw.Kernel("k").thread * 2, "float32")},
        "is no operand of the epilogue; give it by name",
    ),
    "a reduction": (
        {"epilogue": lambda acc: acc - lw.max(acc, axis=1)},
        r"computes element by element; max\(acc, axis=\(1,\)\) would join elements of other tiles",
    ),
    "a row of another length": (
        {"epilogue": lambda acc, bias: acc + bias, "bias": Shown("<f2", (16,))},
        r"bias must be \(8,\) or \(1, 8\) for each column, \(16, 1\) for each row, .* got \(16,\)",
    ),
    "three dimensions": (
        {"epilogue": lambda acc, bias: acc + bias, "bias": Shown("<f2", (1, 16, 8))},
        r"bias must be .*; got \(1, 16, 8\)",
    ),
    "a type of 64 bits": (
        {"epilogue": lambda acc, bias: acc + bias, "bias": Shown("<f8", (8,))},
        "bias must be of float16, .*; got <f8",
    ),
    "a transposed matrix": (
        {"epilogue": lambda acc, x: acc + x, "x": Shown("<f2", (16, 8), (2, 32))},
        r"x must be \(16, 8\), row-major; got \(16, 8\), strides \(1, 16\)",
    ),
    "a scattered row": (
        {"epilogue": lambda acc, x: acc + x, "x": Shown("<f2", (8,), (4,))},
        r"x must be \(1, 8\), contiguous; got \(1, 8\), strides \(1, 2\)",
    ),
    "a pitch": (
        {"epilogue": lambda acc, x: acc + x, "x": Shown("<f2", (16, 8), (24, 2))},
        "rows of x must start a multiple of 8 elements apart, 16 bytes; got 12",
    ),
    "alpha": ({"epilogue": lambda acc: acc, "alpha": 2.0}, "c, alpha and beta are operands of"),
    "c": ({"epilogue": lambda acc: acc, "c": BIAS, "beta": 1.0}, "are operands of other names"),
    "a flag": (
        {"epilogue": lambda acc, x: acc, "x": True}, "x must be an array or a number .*; got True",
    ),
    "an array of the host": (
        {"epilogue": lambda acc, x: acc + x, "x": np.ones(8)}, "x must lie on a CUDA device",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    given, message = REFUSED[case]
    with pytest.raises(LayoutError, match=message):
        lw.matmul(A, B, out=Shown("<f2", (16, 8), at=1 << 20), **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": np.ones((1, 16, 8), np.float16)}, r"x must be \(8,\) or .*; got \(1, 16, 8\)"),
        ({"x": np.ones(9, np.float16)}, r"x must be .*; got \(9,\)"),
        ({"x": np.ones(8)}, "x must be of float16, .*; got float64"),
        ({"x": [1.0] * 8}, "x must be a NumPy array .*; got list"),
        ({"y": np.ones(8, np.float16)}, "each operand by its name; got y"),
    ],
)
def test_arrays_of_the_host_are_refused_before_they_are_copied(
    given: dict[str, Any], message: str
) -> None:
    a, b = np.zeros((16, 24), np.float16), np.zeros((24, 8), np.float16)
    with pytest.raises(LayoutError, match=message):
        lw.matmul(a, b, epilogue=lambda acc, x: acc + x, **given)


@pytest.mark.gpu
@pytest.mark.skipif(driver.device_count() == 0, reason="no CUDA device")
@pytest.mark.parametrize("config", [SMALL, ONE, PAIR])
@pytest.mark.parametrize("out", ["float16", "float32"])
def test_the_device_fuses(config: Config, out: str) -> None:
    if config.wgmma and driver.device(0).arch != "sm_90":
        pytest.skip("wgmma is an instruction of sm_90a")
    rng = np.random.default_rng(0)
    for m, n, k in ((136, 72, 72), (128, 256, 256)):
        a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (k, n)))
        names = (*tuple(KINDS)[:4], "number")
        _, values = fused(everything, names, (m, n))
        given = {
            name: each if isinstance(each, float) else each.astype(dtypes.get(KINDS[name][1]).numpy)
            for name, each in values.items()
        }
        got = lw.matmul(a, b, dtype=out, config=config, epilogue=everything, **given)
        want = on_arrays(a.astype(int) @ b.astype(int), **values).astype(np.float32).astype(out)
        assert (got == want).all()


def test_a_form_has_an_epilogue_of_its_sums() -> None:
    epilogue, _ = fused(lambda acc: acc * 2, ())
    for make, message in (
        (lambda: Form("float16", "float32", epilogue=epilogue), "must make f32 of sums in f32"),
        (lambda: Form("s8", "float16", False, True, epilogue=epilogue), "sums in s32; got one"),
        (lambda: Form("s8", "float16", False, True), "s8 and u8 give s32; got int8 and float16"),
    ):
        with pytest.raises(LayoutError, match=message):
            make()
