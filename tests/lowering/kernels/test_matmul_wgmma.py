"""Whole-matrix kernels by ``wgmma``: forms, turns and edges on the NumPy warp; faults; texts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import LayoutError
from lowering.codegen import numba_cuda
from lowering.codegen.compilers import COMPILERS, machine_code
from lowering.ir.ops import (
    Arrive,
    Loop,
    MbarrierWait,
    Op,
    ProxyFence,
    Sync,
    TmaLoad,
    TmaStore,
    TmaStoreWait,
    WarpSpecialize,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    When,
    Zero,
    walk,
)
from lowering.isa import nvjitlink
from lowering.isa.nvjitlink import AssembleError
from lowering.kernels import api, tuning
from lowering.kernels.config import Config, Form, Problem, fitted
from lowering.kernels.fusion import scaled
from lowering.kernels.matmul import launch_of, program_of, simulate
from lowering.kernels.schedule import ROUNDING, Schedule
from lowering.launch import cache, driver
from lowering.launch.driver import Device
from lowering.simulator.grid import Grid, bank_counts
from lowering.simulator.hazards import SimulationError
from lowering.simulator.machine import Machine
from lowering.simulator.run import run_to_end
from tests.lowering.kernels.test_matmul import Shown, changed, integers, wanted

ONE = Config((64, 64, 64), (4, 1), 2, 1, bulk=True, producer=True, wgmma=True)
TWO = Config((128, 64, 64), (8, 1), 3, 2, bulk=True, producer=True, wgmma=True)
TALL = Config((128, 64, 64), (4, 1), 2, 1, bulk=True, producer=True, wgmma=True)
WIDE = Config((64, 192, 32), (4, 1), 2, 1, bulk=True, producer=True, wgmma=True)
PAIR = Config((64, 128, 64), (4, 1), 2, 1, bulk=True, producer=True, wgmma=True)
THREE = Config((64, 192, 64), (4, 1), 3, 1, bulk=True, producer=True, wgmma=True)
EDGES = (200, 136, 200)  # no multiple of a tile in any dimension
H200 = Device(0, "sm_90", 132, "NVIDIA H200", 227 * 1024, None)
FLIPS = tuple(itertools.product((False, True), repeat=2))


def exact(form: Form, config: Config, sizes: tuple[int, int, int], **more: Any) -> bool:
    """Say whether the simulated product of integers is exact, rounded once to the output's type."""
    a, b, c = integers(sizes)
    if form.dtype.token == "u8":
        a, b = abs(a), abs(b)
    want, used = wanted(form, a, b, c)
    left, right = a.T if form.transpose_A else a, b.T if form.transpose_B else b
    out = simulate(*fitted(form, config, sizes), left, right, used, **more)
    return bool((out == want).all())


@pytest.mark.slow
@pytest.mark.parametrize("flips", FLIPS)
@pytest.mark.parametrize(("dtype", "config"), [("float16", TWO), ("bfloat16", ONE)])
def test_every_transpose_with_edges_and_pitches(
    dtype: str, config: Config, flips: tuple[bool, bool]
) -> None:
    assert exact(Form(dtype, None, *flips), config, EDGES, padding=8)


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("out", ["float32", "bfloat16"])
def test_alpha_and_beta(added: bool, out: str) -> None:
    form = Form("bfloat16", out, True, epilogue=scaled(added, out))
    assert exact(form, ONE, (136, 72, 72), padding=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "sizes", "processors"),
    [
        (ONE, (64, 64, 8), 1),  # one tile, one step
        (ONE, (64, 320, 128), 1),  # five turns, whole rounds
        (ONE, (64, 320, 192), 2),  # the ring goes on in the middle from turn to turn
        (TWO, (384, 128, 192), 4),  # the last turn is that of some CTAs alone
        (TWO, (264, 64, 64), 2),
        (TALL, (256, 64, 128), 2),  # two tiles of wgmma per warpgroup
        (WIDE, (64, 384, 96), 1),  # an odd number of blocks per tile
        (replace(ONE, stages=4), (128, 64, 64), 1),
        (PAIR, (64, 640, 128), 2),  # tiles leave late, in two blocks; the last turn is one CTA's
        (PAIR, (128, 136, 256), 1),
        (THREE, (128, 576, 192), 1),  # the last block of a turn and the first of the next share
    ],
)
def test_turns_and_rounds(config: Config, sizes: tuple[int, int, int], processors: int) -> None:
    assert exact(Form("float16"), config, sizes, processors=processors)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "out"),
    [("e4m3", None), ("e4m3", "float16"), ("e5m2", "bfloat16"), ("s8", None), ("u8", None)],
)
def test_operands_of_8_bits(dtype: str, out: str | None) -> None:
    """Twice the K in the same bytes, both operands K-major; edges in every dimension."""
    form = Form(dtype, out, False, True)
    assert fitted(form, ONE, (64, 64, 256))[1].tile == (64, 64, 128)
    assert exact(form, ONE, (72, 136, 272), padding=16)
    assert exact(form, replace(TWO, stages=2), (128, 64, 256))


def test_what_operands_of_8_bits_ask_for() -> None:
    form = Form("e4m3", transpose_B=True)
    for make, message in (
        (lambda: Form("e4m3"), "needs K-major operands"),
        (lambda: Form("s8", "float32", False, True), "s8 and u8 give s32"),
        (
            lambda: Form("s8", None, False, True, epilogue=scaled(False, "float32")),
            "must make s32 of sums in s32; got",
        ),
        (lambda: program_of(form, Config()), "needs a wgmma config"),
        (
            lambda: tuning.default(form, (64, 64, 64), replace(H200, arch="sm_120")),
            "needs a wgmma config, which sm_90a has",
        ),
    ):
        with pytest.raises(LayoutError, match=message):
            make()
    a, b = Shown("|i1", (64, 40), (40, 1)), Shown("|i1", (40, 64), (1, 40))
    with pytest.raises(LayoutError, match="rows of A must start a multiple of 16 elements apart"):
        lw.matmul(a, b, out=Shown("<i4", (64, 64)))


def test_random_inputs_are_within_the_error_of_one_rounding() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((72, 136), (136, 64)))
    ref = a.astype(np.float64) @ b.astype(np.float64)
    form, config = fitted(Form("float16"), ONE, (72, 64, 136))
    out = simulate(form, config, a, b).astype(np.float64)
    assert np.linalg.norm(out - ref) / np.linalg.norm(ref) < 2**-11


# -- the schedule ---------------------------------------------------------------------------------


def test_every_tile_is_one_ctas() -> None:
    """The reciprocal divides exactly, for every width and number of a schedule."""
    for rows, cols, processors in ((8192, 8192, 132), (1000, 7000, 132), (128, 256, 132)):
        schedule = Schedule.of(replace(TWO, group=8), rows, cols, processors)
        numbers = np.arange(schedule.total)
        quotients = numbers * schedule.scalars["reciprocal"] >> ROUNDING
        assert (quotients == numbers // schedule.width).all()
        turns, ctas = schedule.scalars["turns"], schedule.ctas
        taken = sorted(cta + turn * ctas for cta in range(ctas) for turn in range(turns))
        assert taken[: schedule.total] == numbers.tolist()


def test_the_reciprocal_divides_up_to_the_limit() -> None:
    rng = np.random.default_rng(0)
    for width in (1, 2, 3, 7, 2**10, 2**14 + 1, 2**15 - 1):
        most = ((1 << ROUNDING) - 1) // width
        numbers = np.unique(np.concatenate([rng.integers(0, most, 2000), [0, most - 1]]))
        edge = np.concatenate([numbers, numbers // width * width, numbers // width * width + 1])
        reciprocal = -(-(1 << ROUNDING) // width)
        assert ((edge * reciprocal >> ROUNDING) == edge // width).all()


def test_too_many_tiles_are_refused() -> None:
    with pytest.raises(LayoutError, match=r"has too many tiles of \(128, 64, 64\)"):
        Schedule.of(TWO, 1 << 22, 1 << 22, 132)


def test_rows_of_tiles_are_numbered_together_where_few_are_beyond() -> None:
    wide = replace(TWO, group=16)
    for tiles, group in ((16, 16), (15, 1), (8, 8), (63, 16), (9, 1), (12, 4)):
        assert fitted(Form("float16"), wide, (128 * tiles, 64, 64))[1].group == group


# -- what the machine would not do ----------------------------------------------------------------


def run(body: Any, config: Config, sizes: tuple[int, int, int]) -> Any:
    """Run a body on integers, and return D, in which poison is what nothing wrote."""
    m, n, k = sizes
    a, b, _ = integers(sizes)
    cells = {
        "A": a.astype(np.float16),
        "B": b.astype(np.float16),
        "D": np.full((m, n), np.nan, np.float16),
    }
    problem = Problem(sizes, {"A": k, "B": n, "D": n})
    grid, scalars = launch_of(problem, config, 1)
    machine = Grid(body, scalars, {r: x.shape for r, x in cells.items()}, problem.pitches)
    return machine.run(grid, {role: matrix.reshape(-1) for role, matrix in cells.items()})["D"]


def without(*kinds: type) -> Callable[[Op], Op | None]:
    return lambda op: None if isinstance(op, kinds) else op


def unasked(op: Op) -> Op:
    return replace(op, free=None) if isinstance(op, TmaLoad) else op


def hasty(op: Op) -> Op:
    """Release a stage while the product that reads it may be under way."""
    return WgmmaWait(2) if isinstance(op, WgmmaWait) and op.pending else op


def unguarded(op: Op) -> Op:
    return replace(op, guards=()) if isinstance(op, Arrive) else op


FAULTS: dict[str, tuple[Callable[[Op], Op | None], str]] = {
    "a producer that asks nobody": (unasked, "still reads: commit|races"),
    "no arrival": (without(Arrive), "waits forever"),
    "an arrival of too much": (
        unguarded,
        r"arrive\(free\[1\]\) may complete the next phase of free\[1\] while the producer thread "
        "still waits for the one before",
    ),
    "no wait for the bytes": (without(MbarrierWait), "still being copied|nothing wrote"),
    "a stage released early": (
        hasty,
        "still reads: commit, and wait for it|read with no barrier in between",
    ),
    "no wait for the products": (without(WgmmaWait), "still accumulates|still reads"),
    "no register fence": (without(WgmmaFence), "wgmma.fence"),
    "no proxy fence": (without(ProxyFence), "with no fence.proxy.async in between"),
    "no barrier of the warpgroup": (without(Sync), "races"),
    "a tile written while it leaves": (without(TmaStoreWait), "which a TMA store still reads"),
}


def is_drain(op: Op) -> bool:
    return isinstance(op, TmaStore)


def is_of_the_turn_before(op: Op) -> bool:
    """Say whether an operation is the branch that writes what the first turn lacks."""
    return isinstance(op, When) and str(op) == "if 0 < turn:"


def is_of_the_last(op: Op) -> bool:
    """Say whether an operation is the branch of the tile that no other follows."""
    return isinstance(op, When) and str(op).startswith("if total <")


LATE_FAULTS: dict[str, tuple[Callable[[Op], Op | None], str]] = {
    "a turn before the first": (
        lambda op: replace(op, guards=()) if is_of_the_turn_before(op) else op,
        r"reads kept\[.* which nothing wrote",
    ),
    "no tile but the last": (lambda op: None if is_of_the_turn_before(op) else op, ""),
    "no last tile": (lambda op: None if is_of_the_last(op) else op, ""),
    **{
        each: FAULTS[each]
        for each in (
            "a stage released early", "no wait for the products", "no register fence",
            "no proxy fence", "no barrier of the warpgroup", "a tile written while it leaves",
        )
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", LATE_FAULTS)
@pytest.mark.parametrize("config", [PAIR, THREE])
def test_tiles_that_leave_late_race_or_are_missed_too(config: Config, fault: str) -> None:
    """What is not refused lacks a tile."""
    change, message = LATE_FAULTS[fault]
    sizes = (64, 2 * config.tile[1], 2 * config.stages * 64)
    body = program_of(*fitted(Form("float16"), config, sizes)).body
    assert not np.isnan(run(body, config, sizes)).any()
    broken = replace(body, ops=changed(body.ops, change))
    if not message:
        assert np.isnan(run(broken, config, sizes)).sum() == 64 * config.tile[1]
        return
    with pytest.raises(SimulationError, match=message):
        run(broken, config, sizes)


@pytest.mark.parametrize(
    ("form", "late"),
    [
        (Form("float16", whole=True), True),
        (Form("bfloat16", None, True, True, epilogue=scaled(False, "bfloat16"), whole=True), True),
        (Form("float16", whole=False), False),
        (Form("float16", "float32", whole=True), False),
        (Form("float16", epilogue=scaled(True, "float16"), whole=True), True),
        (Form("float16", epilogue=scaled(True, "float16")), False),
    ],
)
def test_a_tile_leaves_while_the_next_is_made(form: Form, late: bool) -> None:
    """A block stands between the start of a product and a wait; none after the loop along K.

    With an epilogue the first round stands before the loop, and its first product overwrites.
    """
    ops = program_of(form, PAIR).body.ops
    (roles,) = (op for op in ops if isinstance(op, WarpSpecialize))
    (turn,) = (op for op in roles.consume if isinstance(op, Loop))
    (taken,) = (op for op in turn.body if isinstance(op, When))
    (along,) = (op for op in taken.body if isinstance(op, Loop))
    place = taken.body.index(along)
    before, after = taken.body[:place], taken.body[place + 1 :]
    opened = late and form.epilogue is not None
    first, rest = (before, along.body) if opened else (along.body, before)
    assert sum(map(is_drain, walk(first))) == 2 * late
    assert not any(map(is_drain, walk(rest)))
    assert any(map(is_drain, after)) is not late
    assert sum(map(is_of_the_last, after)) == late
    assert not any(isinstance(op, Zero) for op in walk(ops))
    products = [op.accumulate for op in walk(before) if isinstance(op, Wgmma)]
    assert products == ([False] + [True] * (len(products) - 1)) * opened
    for at, op in enumerate(first):
        if is_of_the_turn_before(op):
            assert isinstance(first[at - 1], WgmmaCommit)
            assert first[at + 1] == WgmmaWait(1)


@pytest.mark.slow
@pytest.mark.parametrize("by", COMPILERS)
def test_the_assembler_runs_no_products_one_by_one(by: str) -> None:
    """It remarks upon a kernel that lacks a wait, and upon none of these."""
    for form in (
        Form("float16", whole=True),
        Form("bfloat16", None, True, True, epilogue=scaled(False, "bfloat16"), whole=True),
        Form("float16", epilogue=scaled(True, "float16")),
    ):
        body = program_of(form, PAIR).body
        assert machine_code(body, "k", "sm_90a", by, strict=True)[:4] == b"\x7fELF"

    def unawaited(op: Op) -> Op | None:
        return None if isinstance(op, WgmmaWait) and not op.pending else op

    wrong = replace(body, ops=changed(body.ops, unawaited))
    with pytest.raises(AssembleError, match=r"wgmma\.(mma_async .* are serialized|wait_group is)"):
        machine_code(wrong, "k", "sm_90a", by, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_simulator_refuses_what_would_race_or_hang(fault: str) -> None:
    change, message = FAULTS[fault]
    sizes = (64, 128, 256)
    body = program_of(*fitted(Form("float16"), ONE, sizes)).body
    run(body, ONE, sizes)
    with pytest.raises(SimulationError, match=message):
        run(replace(body, ops=changed(body.ops, change)), ONE, sizes)


def test_tiles_of_the_copy_engine_need_no_fence() -> None:
    """The one fence is that of what stmatrix wrote: none stands in the loop along K."""
    ops = program_of(Form("float16"), ONE).body.ops
    (roles,) = (op for op in ops if isinstance(op, WarpSpecialize))
    (turn,) = (op for op in roles.consume if isinstance(op, Loop))
    along = [op for op in walk(turn.body) if isinstance(op, Loop)]
    assert len(along) == 1
    assert any(isinstance(op, Wgmma) for op in walk(along[0].body))
    assert not any(isinstance(op, ProxyFence) for op in walk(along[0].body))
    outside = [type(op) for op in walk(turn.body) if isinstance(op, (ProxyFence, TmaStore))]
    assert outside == [ProxyFence, TmaStore] * (len(outside) // 2)


@pytest.mark.parametrize("out", ["float16", "float32"])
def test_shared_memory_is_free_of_conflicts(out: str) -> None:
    """stmatrix without any; pairs of f32 in two wavefronts where one would do."""
    body = program_of(Form("float16", out, edges=False), ONE).body
    machine = Machine(body)
    problem = Problem((64, 64, 64), {"A": 64, "B": 64, "D": 64})
    _, scalars = launch_of(problem, ONE, 1)
    machine.env |= {"bx": 0, "by": 0, **scalars}
    for name in "ABD":
        machine.allocate(body.buffer(name), np.ones(64 * 64, body.buffer(name).dtype.numpy), True)
        machine.extents[name], machine.pitches[name] = (64, 64), 64
    run_to_end(machine)
    counts = [count for count in bank_counts(machine) if "staging" in count.op]
    assert len(counts) >= 4
    most = 1 if out == "float16" else 2
    assert all(count.wavefronts == most * count.fewest for count in counts)


# -- other readers --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_whole_program_and_its_ptx_assemble() -> None:
    config = replace(TWO, stages=2)
    form, config = fitted(
        Form("bfloat16", epilogue=scaled(True, "bfloat16")), config, (256, 128, 256)
    )
    program = program_of(form, config)
    made = cache.compile_program(program, "sm_90a")
    assert (made.threads, made.params) == (384, ("A", "B", "C", "D"))
    assert made.boxes == (
        ("A", 128, 64, 128, "bf16"), ("B", 64, 64, 128, "bf16"), ("D", 64, 64, 128, "bf16"),
    )  # fmt: skip
    assert made.code[:4] == b"\x7fELF"
    text = program.ptx("sm_90a")
    for part in (
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "setmaxnreg.inc.sync.aligned",
        "prefetch.tensormap", "fence.proxy.async", "cp.async.bulk.tensor.2d.global.shared::cta",
        "stmatrix.sync.aligned.m8n8.x4", "shfl.sync.idx",
    ):  # fmt: skip
        assert part in text, part
    assert nvjitlink.assemble(text, "sm_90a")[:4] == b"\x7fELF"
    with pytest.raises(LayoutError, match="sm_100a lacks wgmma"):
        numba_cuda.check_body(program.body, "k", "sm_100a")


def test_a_program_of_another_target_is_refused_by_its_calls() -> None:
    with pytest.raises(lw.DispatchError, match=r"sm_120a lacks wgmma\.mma_async; sm_90a has it"):
        program_of(Form("float16"), ONE, "sm_120a")


def test_a_config_names_the_tensor_core() -> None:
    by_mma = Config((32, 32, 32), (1, 2), 3, 2)
    for config, threads in ((by_mma, 64), (ONE, 256), (TWO, 384)):
        program = program_of(Form("float16"), config, config.target("sm_90"))
        assert program.body.launched == threads
        assert any(isinstance(op, Wgmma) for op in walk(program.body.ops)) == config.wgmma
    assert program_of(Form("float16"), by_mma, "sm_90").name == (
        program_of(Form("float16"), by_mma).name
    )


def test_shared_bytes_are_foretold() -> None:
    for out in ("float16", "float32"):
        for config in (ONE, TWO, TALL, WIDE):
            form = Form("float16", out)
            assert config.shared_bytes(form) == program_of(form, config).body.shared_bytes


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "warps": (lambda: replace(ONE, warps=(2, 2)), "wgmma needs warps="),
    "three warpgroups": (lambda: replace(ONE, warps=(12, 1)), "one or two consumer warpgroups"),
    "columns": (lambda: replace(ONE, tile=(64, 96, 64)), "blocks of 64 x 64"),
    "rows": (lambda: replace(TWO, tile=(64, 64, 64)), "blocks of 64 x 64"),
    "no producer": (lambda: replace(ONE, producer=False), "needs bulk=True, producer=True"),
    "a swizzle": (lambda: replace(ONE, swizzle=64), "producer=True and swizzle=128"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_config_is(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(LayoutError, match=message):
        make()


# -- matmul ---------------------------------------------------------------------------------------


def test_matmul_takes_wgmma_where_the_device_has_it() -> None:
    form = Form("float16")
    for sizes in ((8192,) * 3, (1024,) * 3, (256,) * 3):
        assert tuning.default(form, sizes, H200).wgmma
        other = replace(H200, arch="sm_120", shared_limit=99 * 1024)
        assert not tuning.default(form, sizes, other).wgmma
    assert [Config.runs_on(ONE, arch) for arch in ("sm_80", "sm_90", "sm_100")] == [
        False, True, False,
    ]  # fmt: skip


def test_a_plan_has_the_schedule_and_three_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    form, config = fitted(Form("float16"), ONE, (128, 192, 64))
    body = program_of(form, config).body

    class Launcher:
        made = cache.Compiled(
            tuple(buffer.name for buffer in body.params),
            tuple((scalar.name, scalar.token) for scalar in body.scalars),
            body.launched,
            body.shared_bytes,
            tuple((name, *box.box, box.swizzle, "f16") for name, box in body.boxes.items()),
            b"",
        )
        launched: list[Any] = []  # noqa: RUF012

        def ordered(self, scalars: dict[str, float]) -> tuple[float, ...]:
            return tuple(scalars[name] for name, _ in self.made.scalars)

        def launch(self, *arguments: Any) -> None:
            self.launched.append(arguments)

    class Maps:
        def address(self, pointer: int, shape: Any, pitch: int, box: Any) -> int:
            return pointer + shape[0] + pitch

    keys: list[Any] = []

    def load(*key: Any) -> Launcher:
        keys.append(key)
        return Launcher()

    monkeypatch.setattr(Device, "enter", lambda self: None)
    monkeypatch.setattr(api, "device", lambda index: replace(H200, processors=4))
    monkeypatch.setattr(api, "loaded", load)
    monkeypatch.setattr(api, "tensor_maps", lambda index: Maps())
    monkeypatch.setattr(api, "_PLANS", {})
    a, b, out = (
        Shown("<f2", (128, 64)),
        Shown("<f2", (64, 192)),
        Shown("<f2", (128, 192), at=1 << 20),
    )
    lw.matmul(a, b, out=out, config=ONE, stream=7)
    assert keys == [(form, config, 0)]
    ((grid, pointers, scalars, stream),) = Launcher.launched
    assert (grid, stream) == ((4, 1), 7)
    assert pointers == [4096 + 128 + 64, 4096 + 64 + 192, (1 << 20) + 128 + 192]
    named = dict(zip((name for name, _ in Launcher.made.scalars), scalars, strict=True))
    assert (named["turns"], named["total"], named["width"]) == (2, 6, 3)


@pytest.mark.gpu
@pytest.mark.skipif(driver.device_count() == 0, reason="no CUDA device")
@pytest.mark.parametrize("config", [ONE, TWO])
def test_the_device_multiplies(config: Config) -> None:
    if driver.device(0).arch != "sm_90":
        pytest.skip("wgmma is an instruction of sm_90a")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((264, 200), (200, 136)))
    ref = a.astype(np.float64) @ b.astype(np.float64)
    out = lw.matmul(a, b, config=config).astype(np.float64)
    assert np.linalg.norm(out - ref) / np.linalg.norm(ref) < 2**-11
