"""Whole-matrix kernels: forms and paths on the NumPy warp, refusals, what is kept on disk."""

from __future__ import annotations

import ctypes
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lowering as lw
from layoutalg import ComposeLayout, LayoutError, S, TileLayout
from layoutalg.draw.pictures.rates import rates
from layoutalg.layouts.hardware import swizzled_tile
from lowering.cli.main import main
from lowering.dispatch.addresses import environment
from lowering.ir.index import FREE, Guard, Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import (
    Arrive,
    Loop,
    MbarrierWait,
    Op,
    Sync,
    TmaLoad,
    Transfer,
    Wait,
    rewrite,
    walk,
)
from lowering.isa import dtypes
from lowering.isa.nvjitlink import assemble
from lowering.kernels import api as product_module
from lowering.kernels import bench, tuning
from lowering.kernels.config import Config, Form, Problem
from lowering.kernels.fusion import scaled
from lowering.kernels.matmul import program_of, simulate
from lowering.kernels.schedule import cta_swizzle
from lowering.launch import arrays, cache, driver
from lowering.launch.arrays import DeviceMatrix
from lowering.launch.cache import Compiled, compiled
from lowering.launch.driver import Device
from lowering.programs.kernel import Kernel
from lowering.simulator.grid import Grid, bank_counts
from lowering.simulator.hazards import SimulationError
from lowering.simulator.machine import Machine
from lowering.simulator.run import run_to_end

SMALL = Config((32, 32, 32), (1, 2), 3, 2)
BULK = replace(SMALL, bulk=True)
PRODUCER = Config((128, 64, 32), (4, 2), 3, 2, bulk=True, producer=True)
SIZES = (40, 72, 56)  # no multiple of a tile in any dimension
H200 = Device(0, "sm_90", 132, "NVIDIA H200", 227 * 1024, None)

Matrix = Any
FLIPS = tuple(itertools.product((False, True), repeat=2))


def integers(sizes: tuple[int, int, int], seed: int = 0) -> tuple[Matrix, Matrix, Matrix]:
    """Return A, B and C of small integers: every sum is exact in f32, and in f16."""
    m, n, k = sizes
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(-4, 5, shape) for shape in ((m, k), (k, n), (m, n)))  # type: ignore


def wanted(form: Form, a: Matrix, b: Matrix, c: Matrix) -> tuple[Matrix, dict[str, Any]]:
    """Return D for ``alpha·a@b + beta·c``, rounded once to its type, and the operands of that."""
    known = () if form.epilogue is None else form.epilogue.operands
    used = {each.name: {"alpha": 0.5, "beta": -2.0, "c": c}[each.name] for each in known}
    sums = (a @ b).astype(np.float32) * np.float32(used.get("alpha", 1))
    sums = sums + c.astype(np.float32) * np.float32(used.get("beta", 0))
    return sums.astype(form.out.numpy), used


def product(form: Form, config: Config, sizes: tuple[int, int, int], **more: Any) -> bool:
    """Say whether the simulated product of integers is exact, rounded once to the output's type."""
    a, b, c = integers(sizes)
    want, used = wanted(form, a, b, c)
    left, right = a.T if form.transpose_A else a, b.T if form.transpose_B else b
    out = simulate(form.fitted(sizes, config), config, left, right, used, **more)
    return bool((out == want).all())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("flips", FLIPS)
def test_every_transpose_with_edges_and_pitches(dtype: str, flips: tuple[bool, bool]) -> None:
    assert product(Form(dtype, None, *flips), SMALL, SIZES, padding=8)


@pytest.mark.slow
@pytest.mark.parametrize("flips", FLIPS)
def test_every_transpose_by_the_copy_engine(flips: tuple[bool, bool]) -> None:
    assert product(Form("float16", "float32", *flips), BULK, SIZES, padding=16)


@pytest.mark.slow
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("out", ["float32", "bfloat16"])
def test_alpha_and_beta(added: bool, out: str) -> None:
    form = Form("bfloat16", out, True, False, epilogue=scaled(added, out))
    assert product(form, SMALL, SIZES, padding=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        (Config((64, 32, 16), (2, 1), 2, 3), (64, 96, 128)),
        (Config((32, 64, 64), (1, 2), 4, 1, swizzle=64), (32, 64, 8)),
        (Config((32, 32, 32), (2, 1), 2, 1, swizzle=32, spread=False), (32, 32, 256)),
        (Config((32, 64, 64), (1, 2), 2, 2, bulk=True), (72, 64, 384)),
        (replace(BULK, stages=4), (32, 32, 8)),
        (PRODUCER, (136, 72, 24)),
        (PRODUCER, (128, 64, 192)),
        (replace(PRODUCER, stages=2), (128, 64, 104)),
    ],
)
def test_every_cut_and_every_length_of_k(config: Config, sizes: tuple[int, int, int]) -> None:
    """K of one tile, of whole rounds of the ring, of rounds and a rest; even and with edges."""
    assert product(Form("float16", "float32"), config, sizes)


def test_random_inputs_are_within_the_error_of_one_rounding() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((40, 56), (56, 72)))
    ref = a.astype(np.float64) @ b.astype(np.float64)
    out = simulate(Form("float16"), SMALL, a, b).astype(np.float64)
    assert np.linalg.norm(out - ref) / np.linalg.norm(ref) < 2**-11


# -- what the machine would not do ------------------------------------------------------------


def changed(ops: tuple[Op, ...], change: Callable[[Op], Op | None]) -> tuple[Op, ...]:
    """Return operations with each changed, or dropped where the change is None."""

    def each(op: Op) -> tuple[Op, ...]:
        made = change(op)
        return () if made is None else (made,)

    return rewrite(ops, each)


def run(body: KernelIR, sizes: tuple[int, int, int], config: Config) -> None:
    m, n, k = sizes
    a, b, _ = integers(sizes)
    cells = {"A": a.astype(np.float16), "B": b.astype(np.float16)}
    cells["D"] = np.zeros((m, n), np.float16)
    problem = Problem(sizes, {"A": k, "B": n, "D": n})
    extents = {name: matrix.shape for name, matrix in cells.items()}
    grid = Grid(body, problem.scalars, extents, problem.pitches)
    grid.run(config.grid(m, n), {name: matrix.reshape(-1) for name, matrix in cells.items()})


def without(*kinds: type) -> Callable[[Op], Op | None]:
    return lambda op: None if isinstance(op, kinds) else op


def later(op: Op) -> Op:
    return replace(op, pending=op.pending + 1) if isinstance(op, Wait) else op


def unasked(op: Op) -> Op:
    return replace(op, free=None) if isinstance(op, TmaLoad) else op


FAULTS: dict[str, tuple[Config, Callable[[Op], Op | None], str]] = {
    "a wait for one group too few": (SMALL, later, "still being copied|nothing wrote"),
    "no barrier of the CTA": (SMALL, without(Sync), "races"),
    "no arrival": (BULK, without(Arrive), "waits forever"),
    "no wait for the bytes": (BULK, without(MbarrierWait), "still being copied"),
    "a fill that asks nobody": (BULK, unasked, "races"),
    "a producer that asks nobody": (PRODUCER, unasked, "races"),
    "a producer without arrivals": (PRODUCER, without(Arrive), "waits forever"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_simulator_refuses_what_would_race_or_hang(fault: str) -> None:
    config, change, message = FAULTS[fault]
    sizes = (config.tile[0], config.tile[1], config.tile[2] * 8)
    body = program_of(Form("float16").fitted(sizes, config), config).body
    run(body, sizes, config)
    with pytest.raises(SimulationError, match=message):
        run(replace(body, ops=changed(body.ops, change)), sizes, config)


def test_a_kernel_without_edges_leaves_the_matrix_where_it_has_some() -> None:
    form = replace(Form("float16"), edges=False)
    with pytest.raises(SimulationError, match=r"reaches A at|reaches D at|reaches B at"):
        run(program_of(form, SMALL).body, SIZES, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("flips", FLIPS)
@pytest.mark.parametrize("bulk", [False, True])
def test_shared_memory_is_free_of_conflicts(flips: tuple[bool, bool], bulk: bool) -> None:
    config = Config((64, 64, 64), (2, 2), 2, 1, bulk=bulk)
    body = program_of(Form("float16", None, *flips, edges=False, whole=True), config).body
    machine = Machine(body)
    machine.env |= {"bx": 0, "by": 0, "M": 64, "N": 64, "K": 128, "pitchA": 16, "pitchB": 16}
    machine.env["pitchD"] = 8
    for name in "ABD":
        machine.allocate(body.buffer(name), np.ones(128 * 128, np.float16), True)
        machine.extents[name], machine.pitches[name] = (128, 128), 128
    run_to_end(machine)
    counts = [
        count for count in bank_counts(machine) if "stages" in count.op or "staging" in count.op
    ]
    assert len(counts) > 20
    assert all(count.wavefronts == count.fewest for count in counts)


# -- addresses ------------------------------------------------------------------------------------


def test_stages_and_tiles_of_mma_are_constants_of_one_address() -> None:
    """ldmatrix from all stages needs few expressions of the thread: the rest is immediate."""
    body = program_of(Form("float16"), Config((64, 64, 64), (2, 2), 4, 8)).body
    for name, steps in (("A_stages", 4), ("B_stages", 2)):
        fetched = [op for op in walk(body.ops) if getattr(op, "memory", "") == name]
        moving = {op.address.terms for op in fetched if not isinstance(op, Transfer)}
        assert len(fetched) > 8 * len(moving)
        assert len(moving) == steps


def test_a_raster_covers_every_tile_once() -> None:
    for group, rows, cols in ((1, 3, 5), (4, 6, 2), (8, 8, 3)):
        config = Config(group=group)
        grid = config.grid(rows * config.tile[0], cols * config.tile[1])
        places = [
            tuple(index.value({"bx": bx, "by": by}) for index in cta_swizzle(group))
            for by, bx in itertools.product(range(grid[1]), range(grid[0]))
        ]
        inside = [place for place in places if place[0] < rows]
        assert sorted(inside) == sorted(itertools.product(range(rows), range(cols)))


def test_a_free_number_is_proved_by_two_values() -> None:
    pitch, lane = Index.free("pitch"), Index.of("lane", 4)
    address = (lane + 8) * pitch * 8 + 3
    assert address.value({"lane": 2, "pitch": 5}) == 10 * 5 * 8 + 3
    assert address.limits() == {"pitch": FREE, "lane": 4}
    assert environment([address], 1)["pitch"].tolist() == [0] * 3 + [FREE - 1] * 3
    for wrong in (pitch * pitch, (lane * 1024) ^ pitch, Index.of("thread", 8) * pitch % 4099):
        with pytest.raises(LayoutError, match=r"^index: .* depends on pitch, which only the "):
            environment([wrong], 1)


def test_a_guard_against_a_size_reads_in_every_language() -> None:
    guard = Guard(Index.of("thread", 64) // 4 + 16, 0, Index.free("M"))
    assert guard.render("script") == "(thread // 4 + 16) < M"
    assert guard.render("python") == "int32((thread >> 2) + 16) < int32(M)"
    assert guard.render("c") == "int((thread >> 2) + 16) < int(M)"


# -- the other readers ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "config", "targets"),
    [
        (
            Form("bfloat16", None, True, False, epilogue=scaled(True, "bfloat16")),
            Config((32, 32, 16), (1, 1), 2, 1),
            ("sm_80", "sm_90", "sm_120"),
        ),
        (
            Form("float16", "float32"),
            Config((32, 64, 16), (1, 1), 2, 1, bulk=True),
            ("sm_90", "sm_120"),
        ),
    ],
)
def test_ptx_assembles(form: Form, config: Config, targets: tuple[str, ...]) -> None:
    """The text of the first target is taken by all: PTX of a target runs on later ones."""
    text = program_of(form, config, targets[0]).ptx(targets[0])
    assert ("cp.async.bulk.tensor" in text) == config.bulk
    assert all(len(assemble(text, target)) > 1000 for target in targets)


@pytest.mark.slow
def test_a_whole_program_keeps_its_register_shares() -> None:
    config = Config((128, 32, 16), (4, 2), 2, 1, bulk=True, producer=True)
    program = program_of(Form("float16", edges=False, whole=True), config, "sm_90a")
    made = cache.compile_program(program, "sm_90a")
    assert (made.threads, made.params) == (384, ("A", "B", "D"))
    assert made.boxes == (("A", 128, 16, 32, "f16"), ("B", 16, 32, 64, "f16"))
    assert Compiled.from_bytes(made.to_bytes()) == made
    assert made.code[:4] == b"\x7fELF"


def test_cuda_text_says_the_same() -> None:
    config = replace(PRODUCER, stages=2)
    text = program_of(
        Form("float16", epilogue=scaled(False, "float16")), config, "sm_90a"
    ).cuda_source()
    for part in (
        "const int32_t M_, const int32_t N_, const int32_t K_", "const float c,",
        "__launch_bounds__(384, 1)", "const int64_t row = ", "mbarrier_wait(",
        "setmaxnreg.inc.sync.aligned.u32 240;", "if (thread < 256) {", "sync_256();",
        "multiply_f32(t0, D_held_0, c);",
    ):  # fmt: skip
        assert part in text, part
    assert text.count("{") == text.count("}")


def test_the_ceiling_is_mma_alone() -> None:
    body = bench.ceiling_program().body
    (loop,) = (op for op in body.ops if isinstance(op, Loop))
    kinds = [type(op).__name__ for op in loop.body]
    assert kinds.count("Mma") == 4 * 32
    assert set(kinds) == {"Mma", "Move"}  # D = D moves nothing


# -- refusals -------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a type": (lambda: Form("float32"), "f16 and bf16 give f32 or their own type"),
    "an output": (lambda: Form("float16", "bfloat16"), "give f32 or their own type"),
    "an epilogue": (
        lambda: Form("float16", epilogue=scaled(False, "float32")),
        "the epilogue must make f16 of sums in f32; got one that makes f32",
    ),
    "a tile": (lambda: Config((48, 64, 32), (2, 2)), "whole tiles of 16 x 16"),
    "one stage": (lambda: Config((64, 64, 32), (2, 2), 1), "needs at least 2 stages"),
    "odd steps": (lambda: Config((64, 64, 16), (2, 2), 3), "must be even; got 3 and 1"),
    "a swizzle": (lambda: replace(SMALL, swizzle=48), "the swizzle must be"),
    "a small tile": (lambda: Config((64, 64, 16), (4, 4), 2), "must copy equally many vectors"),
    "a producer": (lambda: replace(SMALL, producer=True), "a producer of mma.sync needs bulk=True"),
    "a size": (lambda: Problem((12, 8, 8), {}), "size M must be a multiple of 8 .* got 12: pad"),
    "a pitch": (lambda: Problem((8, 8, 8), {"A": 9}), "row pitch of A must be .* pad to 16"),
    "a scalar": (lambda: Kernel("k").scalar("M", "s64"), "must be s32 or f32"),
    "a loop": (lambda: Kernel("k").loop("i", 0).__enter__(), "must be a number from 1 on"),
    "a ghost": (lambda: Kernel("k").assign(None, 0), "operand dst must be"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(LayoutError, match=message):
        call()


def bulk_kernel(layout: ComposeLayout | TileLayout, arch: str) -> Kernel:
    kernel = Kernel("bulk", arch=arch)
    source = kernel.param("A", (FREE, FREE), "float16", TileLayout(S[(FREE, FREE) : (64, 1)]))
    ring = kernel.alloc("ring", (1, 32, 64), "float16", "shared", layout)
    kernel.tma_load(kernel.barrier("full", 1, 1), 0, [(ring[0], source[0:32, 0:64])])
    return kernel


def test_a_box_is_proved_element_by_element() -> None:
    right = swizzled_tile((1, 32, 64), 128, 16)
    assert (
        "tma_load(full[0]: ring[0] = A[0 +32, 0 +64])"
        in bulk_kernel(right, "sm_90").lower().script()
    )
    dense = TileLayout(S[(1, 32, 64) : (2048, 64, 1)])
    turned = TileLayout(S[(1, 32, 64) : (2048, 1, 32)])
    for layout, arch, reason in (
        (right, "sm_80", "sm_80 lacks cp.async.bulk.tensor; sm_90 and newer"),
        (dense, "sm_90", "must be swizzled"),
        (right.over(turned), "sm_90", "does not put a box where TMA does"),
        (ComposeLayout(3, 3, 4, right.tile_layout), "sm_90", "does not put a box"),
    ):
        with pytest.raises(lw.DispatchError, match=reason):
            bulk_kernel(layout, arch).lower()


# -- launching ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAYOUTALG_CACHE", str(tmp_path))
    return tmp_path


def test_a_kernel_is_compiled_once_and_a_torn_file_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Compiled(("A",), (("M", "s32"),), 64, 128, (("A", 8, 64, 128, "f16"),), b"\0code")
    calls = []

    def compile_once(program: Any, arch: str) -> Compiled:
        calls.append((program, arch))
        return made

    monkeypatch.setattr(cache, "compile_program", compile_once)
    assert [compiled("k", "sm_90", lambda: "p") for _ in range(3)] == [made] * 3  # type: ignore
    assert calls == [("p", "sm_90")]
    (path,) = (folder / "kernels").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="is not usable"):
        assert compiled("k", "sm_90", lambda: "p") == made  # type: ignore
    assert len(calls) == 2
    assert compiled("k", "sm_90", lambda: "p") == made  # type: ignore
    assert len(calls) == 2


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.warns(UserWarning, match="cannot be written"):
        cache.write_whole(folder / "file" / "below", b"data")
    (folder / "taken").mkdir()
    with pytest.warns(UserWarning, match="cannot be written"):
        cache.write_whole(folder / "taken", b"data")
    assert sorted(each.name for each in folder.iterdir()) == ["file", "taken"]


def test_choices_are_kept_and_a_torn_file_is_ignored(folder: Path) -> None:
    form, sizes = Form("float16"), (4096, 4096, 4096)
    usual = tuning.choice(form, sizes, H200)
    best = Config((64, 64, 64), (2, 2), 4, 8)
    times = {config: 1.0 for config, _ in tuning.candidates(form, H200)} | {best: 0.5}
    shown: list[Config] = []

    def progress(configs: Any) -> Iterator[Config]:
        for config in configs:
            shown.append(config)
            yield config

    assert usual != best
    assert tuning.search(form, sizes, H200, times.__getitem__, progress) == best
    assert shown == list(times)
    assert tuning.choice(form, sizes, H200) == best
    assert tuning.choice(form, (4000, 4096, 2100), H200) == best
    assert tuning.choice(form, (512, 512, 512), H200) != best
    tuning.keep(H200, form, (512, 512, 512), best)
    assert tuning.choice(form, sizes, H200) == tuning.choice(form, (512, 512, 512), H200) == best
    (path,) = (folder / "NVIDIA_H200.sm_90").glob("*4096*.json")
    whole = path.read_text()
    path.write_text('{"sources": 1}')
    assert tuning.choice(form, sizes, H200) == usual
    for torn in (
        whole[:40],
        "[]",
        "[" * 100_000,
        whole.replace('"stages": 4', '"stages": 40'),
        whole.replace('"stages": 4', '"stages": 4.0'),
        whole.replace('"bulk": false', '"bulk": "no"'),
        re.sub(r'"warps": \[\s*2', '"warps": [0', whole),
    ):
        assert torn != whole
        path.write_text(torn)
        with pytest.warns(UserWarning, match="is not usable"):
            assert tuning.choice(form, sizes, H200) == usual


def test_a_search_in_which_nothing_runs_keeps_nothing(folder: Path) -> None:
    for never in (float("inf"), float("nan")):
        with pytest.raises(LayoutError, match="nothing is kept"):
            tuning.search(Form("float16"), (64, 64, 64), H200, lambda _, time=never: time)
    assert not list(folder.iterdir())


def test_a_search_goes_on_where_a_config_is_refused(folder: Path) -> None:
    form, sizes = Form("float16"), (64, 64, 64)
    only = tuning.candidates(form, H200)[3][0]

    def measure(config: Config) -> float:
        if config != only:
            raise LayoutError(f"{config} does not fit")
        return 1.0

    assert tuning.search(form, sizes, H200, measure) == only
    assert tuning.kept(H200, form, sizes) == only

    def refuse(config: Config) -> float:
        raise LayoutError(f"{config} does not fit")

    count, first = len(tuning.candidates(form, H200)), tuning.candidates(form, H200)[0][0]
    message = rf"none of {count} configs ran; .* {count} were refused, the first so: {first} does"
    with pytest.raises(LayoutError, match=message):
        tuning.search(form, (8, 8, 8), H200, refuse)

    def broken(config: Config) -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tuning.search(form, sizes, H200, broken)


def test_defaults_fit_their_device() -> None:
    a100 = Device(0, "sm_80", 108, "A100", 163 * 1024, None)
    consumer = Device(0, "sm_120", 170, "RTX 5090", 99 * 1024, None)
    for on in (a100, consumer, H200):
        for dtype, out in (("float16", None), ("bfloat16", "float32")):
            form = Form(dtype, out)
            for config, _ in tuning.candidates(form, on):
                assert config.shared_bytes(form) <= on.shared_limit
                assert config.runs_on(on.arch)
            assert tuning.default(form, (8192, 8192, 8192), on).threads >= 128
    assert not any(config.bulk for config, _ in tuning.candidates(Form("float16"), a100))


class Shown:
    """An array with the CUDA array interface."""

    def __init__(self, typestr: str, shape: tuple[int, ...], strides: Any = None, at: int = 4096):
        self.__cuda_array_interface__ = {
            "typestr": typestr, "shape": shape, "strides": strides, "data": (at, False),
            "version": 3,
        }  # fmt: skip


def test_arrays_by_the_cuda_array_interface() -> None:
    dense = arrays.on_device(Shown("<f2", (16, 24)), "a")
    assert dense is not None
    assert (dense.strides, dense.pitch, dense.transposed) == ((24, 1), 24, False)
    turned = arrays.on_device(Shown("|V2", (16, 24), (2, 64)), "a")
    assert turned is not None
    assert (turned.dtype.name, turned.pitch, turned.transposed) == ("bfloat16", 32, True)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            Shown("<f8", (8, 8)),
            "a must be of float16, bfloat16, float8_e4m3fn, float8_e5m2, int8, uint8; got <f8",
        ),
        (Shown("<f2", (8, 8), (33, 2)), "must be multiples of its 2 bytes"),
        (Shown("<f2", (8,)), "a must have two dimensions"),
        (Shown("<f2", (8, 8), (64, 4)), "must be contiguous, one stride 1"),
        (Shown("<f2", (8, 16), (16, 2)), "rows of a must not overlap"),
        ([[1.0]], r"must be an array of torch, CuPy or NumPy, .*; got list"),
    ],
)
def test_arrays_that_kernels_cannot_address(value: Any, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        lw.matmul(value, Shown("<f2", (8, 8)), out=Shown("<f2", (8, 8)))


def test_a_dlpack_capsule_is_read_in_place() -> None:
    matrix = np.arange(48, dtype=np.float16).reshape(6, 8)[:, 2:6]
    found = arrays.from_dlpack(matrix.__dlpack__(), "a")
    assert (found.shape, found.strides, found.dtype.name) == ((6, 4), (8, 1), "float16")
    first = np.ctypeslib.as_array((ctypes.c_uint16 * 4).from_address(found.pointer))
    assert first.view(np.float16).tolist() == [2.0, 3.0, 4.0, 5.0]
    assert arrays.on_device(matrix, "a") is None


def test_a_dlpack_tensor_may_start_later_than_its_memory() -> None:
    """A dense bf16 tensor that gives no strides, 64 bytes into its memory."""
    shape = (ctypes.c_int64 * 2)(3, 5)
    tensor = arrays._Tensor(4096, 2, 1, 2, 4, 16, 1, shape, None, 64)
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    found = arrays.from_dlpack(make(ctypes.addressof(tensor), b"dltensor", None), "a")
    assert found[:3] == (4160, (3, 5), (5, 1))
    assert (found.dtype.name, found.device) == ("bfloat16", 1)


def test_what_the_interface_tells_besides_is_heard() -> None:
    fixed, masked = Shown("<f2", (8, 8)), Shown("<f2", (8, 8))
    fixed.__cuda_array_interface__["data"] = (4096, True)
    masked.__cuda_array_interface__["mask"] = fixed
    assert arrays.on_device(fixed, "a") is not None
    with pytest.raises(LayoutError, match="out must be writable"):
        arrays.on_device(fixed, "out")
    with pytest.raises(LayoutError, match="a must have no mask"):
        arrays.on_device(masked, "a")


@pytest.mark.parametrize("turned", [(False, False), (True, True), (False, True)])
def test_matrices_overlap_where_they_share_a_cell(turned: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(5)
    kind = dtypes.get("float16")
    found = Counter[bool]()
    for _ in range(400):
        pitch = int(rng.integers(4, 9))
        sides, cells = [], []
        for turn in turned:
            rows, wide = int(rng.integers(1, 5)), int(rng.integers(1, pitch + 1))
            start = int(rng.integers(0, 40))
            step = pitch if rows > 1 else wide
            shape, strides = ((wide, rows), (1, step)) if turn else ((rows, wide), (step, 1))
            if 1 in (rows, wide):
                continue
            sides.append(DeviceMatrix(2 * start, shape, strides, kind, 0))
            cells.append({start + i * step + j for i in range(rows) for j in range(wide)})
        if len(sides) == 2:
            shares = not cells[0].isdisjoint(cells[1])
            found[shares] += 1
            assert sides[0].overlaps(sides[1]) == sides[1].overlaps(sides[0]) == shares
    assert min(found.values()) > 20


def test_a_matrix_of_the_other_byte_order_is_copied_in_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied: list[bytes] = []

    def call(name: str, *arguments: Any) -> int:
        if name == "cuMemcpyHtoD":
            copied.append(ctypes.string_at(arguments[1], arguments[2]))
        return 4096

    monkeypatch.setattr(driver, "call", call)
    values = np.arange(16, dtype=np.float16).reshape(2, 8)
    product_module.Uploaded().put(values.astype(values.dtype.newbyteorder()), "a")
    assert copied == [values.tobytes()]


def test_matrices_of_the_host_are_checked_before_the_device() -> None:
    a, b = np.zeros((8, 8), np.float16), np.zeros((16, 8), np.float16)
    fixed = np.zeros((8, 8), np.float16)
    fixed.flags.writeable = False
    for arguments, message in (
        ((a, b), r"b must be \(K, N\) with a's K = 8"),
        ((a, a.astype(np.float32)), "with a's K = 8 and type"),
        ((a, a[0]), r"b must be a NumPy array of two dimensions, as a and b; got \(8,\)"),
        ((a, a, [[0]]), "out must be a NumPy array of two dimensions, as a and b; got list"),
        ((a, a, np.zeros((8, 16), np.float16)), r"out must be \(8, 8\) and writable; got"),
        ((a, a, fixed), "read-only"),
        ((a, a, None, [[1]], 1.0, 1.0), "c must be a NumPy array"),
        ((a, a, None, None, "2"), "alpha must be a number, such as 1.0; got '2'"),
        ((a, a, None, a, 1.0, 1j), "beta must be a number, such as 1.0; got 1j"),
        ((a, a, None, a, 1.0, [1.0]), r"beta must be a number, such as 1.0; got \[1.0\]"),
        ((a, a, None, a), "c is given without beta: beta=1 adds it, beta=0 leaves it out"),
        ((a, a, fixed.copy(), None, 1.0, 0.0, "f32"), "out is float16; got float32: leave dtype"),
        ((a, a, None, None, 1.0, 0.0, "f64"), "dtype must be of .*float32.*int32; got f64"),
        ((a.astype(float), a.astype(float)), "a must be of float16, .*, uint8; got float64"),
        ((a, a, fixed.astype(np.int8)), "out must be of float16, .*, int32; got int8"),
        ((a[:0], a), r"the size M must lie in 8\.\.16777208; got 0"),
        ((a[:, :0], a[:0]), r"the size K must lie in 8\.\.16777208; got 0"),
        ((np.broadcast_to(a[:1], (1 << 24, 8)), a), r"the size M must lie .*; got 16777216"),
    ):
        with pytest.raises(LayoutError, match=message):
            lw.matmul(*arguments)


def test_simulate_refuses_what_its_form_has_not() -> None:
    a, b, c = np.ones((16, 24)), np.ones((24, 16)), np.ones((16, 16))
    both = Form("float16", epilogue=scaled(True, "float16"))
    factors = {"alpha": 1.0, "beta": 1.0}
    for form, given, message in (
        (Form("float16"), {"b": np.ones((40, 32))}, "the same K; got 24 and 40"),
        (Form("float16"), {"operands": {"c": c}}, "the epilogue takes no operands; got c"),
        (both, {"operands": factors}, "takes alpha, beta, c; got alpha, beta"),
        (both, {"operands": factors | {"c": c[:, :8]}}, r"c must be \(16, 16\); got \(16, 8\)"),
        (Form("float16"), {"padding": -8}, "padding must be a multiple of 8"),
        (Form("float16"), {"a": np.ones(16)}, "two dimensions"),
    ):
        with pytest.raises(LayoutError, match=message):
            simulate(form, SMALL, **{"a": a, "b": b, **given})  # type: ignore


@pytest.mark.skipif(driver.device_count() > 0, reason="there is a CUDA device")
def test_without_a_device_matmul_says_so() -> None:
    with pytest.raises(LayoutError, match="there is no CUDA device 0; there are 0"):
        lw.matmul(np.zeros((8, 8), np.float16), np.zeros((8, 8), np.float16))


def test_matmul_refuses_operands_that_do_not_fit() -> None:
    a, b = Shown("<f2", (16, 24)), Shown("<f2", (32, 16))
    with pytest.raises(LayoutError, match=r"b must be \(K, N\) with a's K = 24"):
        lw.matmul(a, b, out=Shown("<f2", (16, 16)))
    with pytest.raises(LayoutError, match=r"out must be .16, 8., row-major"):
        lw.matmul(a, Shown("<f2", (24, 8)), out=Shown("<f2", (16, 16)))
    with pytest.raises(LayoutError, match=r"beta is 2\.0, so c must be given"):
        lw.matmul(a, Shown("<f2", (24, 8)), out=Shown("<f2", (16, 8)), beta=2.0)
    wide = Shown("<f2", (24, 8), (2 << 24, 2))
    with pytest.raises(LayoutError, match=r"rows of B must start at most 16777208 .*got 16777216"):
        lw.matmul(a, wide, out=Shown("<f2", (16, 8)))
    for sizes in ((0, 24, 8), (16, 24, 0), (16, 0, 8), (1 << 24, 24, 8)):
        m, k, n = sizes
        with pytest.raises(LayoutError, match=r"the size [MNK] must lie in 8\.\.16777208; got"):
            lw.matmul(Shown("<f2", (m, k)), Shown("<f2", (k, n)), out=Shown("<f2", (m, n)))
    with pytest.raises(LayoutError, match="out is float16; got float32: leave dtype out"):
        lw.matmul(a, Shown("<f2", (24, 8)), out=Shown("<f2", (16, 8)), dtype="float32")
    with pytest.raises(LayoutError, match=r"out must be of float16, .*; got <f8"):
        lw.matmul(a, Shown("<f2", (24, 8)), out=Shown("<f8", (16, 8)))
    with pytest.raises(LayoutError, match="c is given without beta"):
        lw.matmul(a, Shown("<f2", (24, 8)), out=Shown("<f2", (16, 8)), c=Shown("<f2", (16, 8)))
    with pytest.raises(LayoutError, match="a must lie on a CUDA device, or a and b both be NumPy"):
        lw.matmul(np.zeros((8, 8), np.float16), b)
    with pytest.raises(LayoutError, match="out= must be given, a float16 matrix of shape"):
        lw.matmul(a, Shown("<f2", (24, 8)))


def test_a_second_call_finds_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call makes a plan; then pointers alone are new, and misplaced ones are refused."""

    class Launcher:
        launched: list[Any] = []  # noqa: RUF012

        def __init__(self, form: Form) -> None:
            letters = form.epilogue.letters.values() if form.epilogue else ()
            factors = [(letter, "f32") for letter in letters if letter.islower()]
            scalars = (("M", "s32"), ("pitchD", "s32"), *factors)
            self.made = Compiled(("A", "B", "D"), scalars, 32, 0, (), b"")

        def ordered(self, scalars: dict[str, float]) -> tuple[float, ...]:
            return tuple(scalars[name] for name, _ in self.made.scalars)

        def launch(self, *arguments: Any) -> None:
            self.launched.append(arguments)

    made: list[Any] = []

    def load(*key: Any) -> Launcher:
        made.append(key)
        return Launcher(key[0])

    here = replace(H200)
    monkeypatch.setattr(Device, "enter", lambda self: None)
    monkeypatch.setattr(product_module, "device", lambda index: here)
    monkeypatch.setattr(product_module, "loaded", load)
    monkeypatch.setattr(product_module, "_PLANS", {})
    a, b = Shown("<f2", (16, 24)), Shown("<f2", (24, 8))
    for at in (8192, 16384):
        lw.matmul(a, b, out=Shown("<f2", (16, 8), (32, 2), at), config=SMALL, stream=7)
    assert made == [(Form("float16").fitted((16, 8, 24), SMALL), SMALL, 0)]
    assert Launcher.launched == [
        (SMALL.grid(16, 8), [4096, 4096, at], [16, 2], 7) for at in (8192, 16384)
    ]
    out, c = Shown("<f2", (16, 8), at=8192), Shown("<f2", (16, 8), at=32768)
    factors = (2.0, 0.0, None), (2.0, 3.0, c), (np.float32(2), 4, c), (2.0, 4.0, out), (2.0, 0, c)
    for alpha, beta, added in factors:
        lw.matmul(a, b, out, added, alpha, beta, config=SMALL, stream=7)
    assert [key[0].epilogue for key in made[1:]] == [scaled(n, "float16") for n in (False, True)]
    assert [arguments[1:3] for arguments in Launcher.launched[2:]] == [
        ([4096, 4096, 8192], [16, 1, 2.0]),
        ([4096, 4096, 32768, 8192], [16, 1, 2.0, 3.0]),
        ([4096, 4096, 32768, 8192], [16, 1, 2.0, 4.0]),
        ([4096, 4096, 8192, 8192], [16, 1, 2.0, 4.0]),
        ([4096, 4096, 8192], [16, 1, 2.0]),
    ]
    assert len(product_module._PLANS) == 3  # factors are passed at each launch
    for given, message in (
        ({"out": Shown("<f2", (16, 8), at=4096)}, "out must share no memory with a"),
        ({"out": out, "c": Shown("<f2", (16, 8), at=8224), "beta": 1.0}, "c may be out itself"),
        ({"out": Shown("<f2", (16, 8), at=0)}, "must have memory"),
    ):
        with pytest.raises(LayoutError, match=message):
            lw.matmul(a, b, config=SMALL, **given)  # type: ignore
    with pytest.raises(LayoutError, match="must start at a multiple of 16 bytes"):
        lw.matmul(a, b, out=Shown("<f2", (16, 8), (32, 2), 8200), config=SMALL, stream=7)


@pytest.mark.gpu
@pytest.mark.skipif(driver.device_count() == 0, reason="no CUDA device")
@pytest.mark.parametrize("flips", FLIPS)
def test_the_device_multiplies(flips: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((264, 200), (200, 136)))
    left = np.ascontiguousarray(a.T).T if flips[0] else a
    right = np.ascontiguousarray(b.T).T if flips[1] else b
    ref = a.astype(np.float64) @ b.astype(np.float64)
    out = lw.matmul(left, right).astype(np.float64)
    assert np.linalg.norm(out - ref) / np.linalg.norm(ref) < 2**-11


# -- measuring ------------------------------------------------------------------------------------


def test_a_table_gives_ratios_first() -> None:
    timings = (
        bench.Timing(bench.CEILING, (1.0, 2.0, 3.0), 1e12),
        bench.Timing(bench.OURS, (4.0, 4.0, 4.0), 1e12),
    )
    row = bench.Row(4096, timings, "config", {bench.OURS: 2e-4}, 12.5, {"registers": 168})
    assert (row.ratio(bench.CEILING), row.ratio(bench.CUBLAS)) == (0.5, None)
    assert timings[0].rate == 0.5
    assert timings[0].spread == 1.0
    head, line = bench.table([row]).splitlines()
    assert head.split()[:3] == ["size", "of", "ceiling"]
    assert line.split() == [
        "4096",
        "0.500",
        "-",
        "0.2",
        "-",
        "0.5",
        "2.00e-04",
        "-",
        "12.5",
        "config",
    ]
    assert row.as_dict()["rates"] == {bench.CEILING: 0.5, bench.OURS: 0.25}


def test_rates_are_drawn_with_their_ceilings(tmp_path: Path) -> None:
    path = tmp_path / "rates.svg"
    figure = rates({"ours": [(1024, 1.0), (4096, 2.0)]}, {"top": [(1024, 3.0)]}, "title", path)
    assert path.read_text().startswith("<?xml")
    assert figure.axes[0].get_title() == "title"
    rates({"ours": [(1024, 1.0)]}, {}, "$x_{$", path)  # a title is text, not mathematics
    with pytest.raises(LayoutError, match="at least one kernel"):
        rates({"ours": []}, {})


@pytest.mark.skipif(driver.device_count() > 0, reason="there is a CUDA device")
def test_the_command_says_that_there_is_no_device() -> None:
    done = CliRunner().invoke(main, ["bench", "--size", "256"])
    assert done.exit_code == 2
    assert "there is no CUDA device 0" in done.output
