"""Pairs of CTAs that share a tile: products, schedules and faults on the NumPy warp; texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from layoutalg import LayoutError, fragments
from lowering.codegen import numba_cuda
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import Arrive, Let, Op, Sync, TmaLoad, WarpSpecialize, WgmmaWait, walk
from lowering.isa import nvjitlink
from lowering.kernels import tuning
from lowering.kernels.config import Config, Form, Problem, fitted
from lowering.kernels.fusion import scaled
from lowering.kernels.matmul import launch_of, program_of
from lowering.kernels.schedule import Schedule
from lowering.launch import cache, driver
from lowering.launch.cache import Compiled
from lowering.launch.driver import Device
from lowering.programs.kernel import Kernel
from lowering.simulator.grid import Grid
from lowering.simulator.hazards import SimulationError
from tests.lowering.kernels.test_matmul import changed, integers
from tests.lowering.kernels.test_matmul_wgmma import FLIPS, exact


def pair(tile: tuple[int, int, int], warps: int, stages: int, group: int) -> Config:
    """Return a config of pairs."""
    return Config(tile, (warps, 1), stages, group, bulk=True, producer=True, wgmma=True, cluster=2)


DOWN = pair((64, 128, 64), 4, 2, 2)  # along M: they share B
ACROSS = pair((128, 64, 64), 8, 3, 2)  # along N: they share A
LARGE = pair((128, 256, 64), 8, 4, 8)
H200 = Device(0, "sm_90", 132, "NVIDIA H200", 227 * 1024, None)


@pytest.mark.slow
@pytest.mark.parametrize("flips", FLIPS)
@pytest.mark.parametrize("config", [DOWN, ACROSS])
def test_both_ways_side_by_side_with_edges_and_pitches(
    config: Config, flips: tuple[bool, bool]
) -> None:
    """No size is a multiple of a tile; the second tile of some pairs lies beyond the result."""
    assert exact(Form("float16", None, *flips), config, (200, 200, 200), padding=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "sizes", "processors"),
    [
        (DOWN, (128, 128, 8), 2),  # one pair, one step
        (DOWN, (64, 128, 128), 2),  # its second tile is beyond the last row
        (ACROSS, (128, 64, 192), 2),  # or the last column
        (DOWN, (192, 384, 128), 2),  # three columns of one pair and a half, whole rounds, six turns
        (DOWN, (192, 384, 192), 3),  # the third processor stays idle; no whole rounds
        (ACROSS, (384, 192, 320), 4),  # the last turn is that of one pair
        (replace(DOWN, group=1), (328, 136, 64), 4),
        (replace(ACROSS, stages=4), (128, 128, 64), 2),  # fewer steps than stages
    ],
)
def test_turns_and_rounds(config: Config, sizes: tuple[int, int, int], processors: int) -> None:
    assert exact(Form("float16"), config, sizes, processors=processors)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "config"),
    [
        (Form("bfloat16", "float32", True, epilogue=scaled(True, "float32")), ACROSS),
        (
            Form("float16", None, False, True, epilogue=scaled(False, "float16")),
            pair((128, 128, 64), 8, 2, 1),
        ),
        (Form("e4m3", "bfloat16", False, True), DOWN),
        (Form("s8", None, False, True), replace(ACROSS, stages=2)),
    ],
)
def test_every_type_and_epilogue(form: Form, config: Config) -> None:
    assert exact(form, config, (136, 144, 272), padding=16)


# -- the schedule ---------------------------------------------------------------------------------


def test_every_tile_is_one_ctas_and_pairs_share_a_row_or_a_column() -> None:
    for config, own, other in ((LARGE, 0, 1), (replace(ACROSS, group=8), 1, 0)):
        sizes = (5 * config.span[0] - 8, 7 * config.span[1] - 8, 64)
        form, config = fitted(Form("float16"), config, sizes)
        problem = Problem(sizes, dict.fromkeys("ABD", 8192))
        _, scalars = launch_of(problem, config, H200.processors)
        ops = program_of(form, config).body.ops
        places = [tiles_of(ops, scalars, bx) for bx in range(scalars["ctas"])]
        assert sorted(place for each in places for place in each) == [
            (row, col) for row in range(5 * config.span[0] // config.tile[0])
            for col in range(7 * config.span[1] // config.tile[1])
        ]  # fmt: skip
        for first, second in zip(places[::2], places[1::2], strict=True):
            for here, there in zip(first, second, strict=True):
                assert here[own] + 1 == there[own]
                assert here[own] % 2 == 0
                assert here[other] == there[other]


def tiles_of(ops: tuple[Op, ...], scalars: dict[str, int], bx: int) -> list[tuple[int, int]]:
    """Return the row and column of each tile that a kernel's own text gives to a CTA."""
    lets = {op.var: op.value for op in walk(ops) if isinstance(op, Let)}
    found = []
    for number in range(bx, scalars["total"], scalars["ctas"]):
        env = {"bx": bx, "turn": number // scalars["ctas"], **scalars}
        for name in ("number", "group", "along", "row", "col"):
            env[name] = int(lets[name].value(env))
        found.append((env["row"], env["col"]))
    return found


def test_an_odd_processor_stays_idle() -> None:
    assert Schedule.of(LARGE, 8192, 8192, 133).ctas == 132
    assert Schedule.of(replace(LARGE, group=1), 256, 256, 132).ctas == 2
    assert Schedule.of(replace(LARGE, group=1), 256, 256, 1).ctas == 2
    assert Schedule.of(LARGE, 8192, 8192, 132).width == LARGE.group * 32 * 2


def test_a_third_less_is_loaded() -> None:
    """Of A and B tiles of 16 and 32 KB, a CTA loads its own of A and half of B."""
    loaded, awaited = [], []
    for config in (LARGE, replace(LARGE, cluster=1)):
        body = program_of(Form("float16"), config).body
        (fill,) = (op for op in walk(body.ops) if isinstance(op, TmaLoad))
        loaded.append(sum(load.box[0] * load.box[1] * 2 for load in fill.loads))
        awaited.append(fill.size)
    assert loaded == [32 << 10, 48 << 10]
    assert awaited == [48 << 10, 48 << 10]


# -- what the machine would not do ----------------------------------------------------------------

SIZES = (128, 256, 256)


def run(body: KernelIR) -> None:
    """Run a body of :data:`DOWN` on integers."""
    m, n, k = SIZES
    a, b, _ = integers(SIZES)
    cells = {
        "A": a.astype(np.float16),
        "B": b.astype(np.float16),
        "D": np.zeros((m, n), np.float16),
    }
    problem = Problem(SIZES, {"A": k, "B": n, "D": n})
    grid, scalars = launch_of(problem, fitted(Form("float16"), DOWN, SIZES)[1], 2)
    machine = Grid(body, scalars, {r: x.shape for r, x in cells.items()}, problem.pitches)
    machine.run(grid, {role: matrix.reshape(-1) for role, matrix in cells.items()})


def each(change: Callable[[Op], Op]) -> Callable[[KernelIR], KernelIR]:
    """Return the fault that changes every operation."""
    return lambda body: replace(body, ops=changed(body.ops, change))


def to_itself(op: Op) -> Op:
    return replace(op, everywhere=False) if isinstance(op, Arrive) else op


def unheard(body: KernelIR) -> KernelIR:
    """Let nobody tell the other CTA that a stage is free, and nobody wait for its word."""
    full, free = body.barriers
    return replace(
        each(to_itself)(body), barriers=(full, replace(free, arrivals=free.arrivals // 2))
    )


def half_for_oneself(op: Op) -> Op:
    if not isinstance(op, TmaLoad):
        return op
    return replace(op, loads=tuple(replace(load, multicast=False) for load in op.loads))


def own_bytes(op: Op) -> Op:
    return replace(op, size=op.size * 2 // 3) if isinstance(op, TmaLoad) else op


def unasked(op: Op) -> Op:
    return replace(op, free=None) if isinstance(op, TmaLoad) else op


def hasty(op: Op) -> Op:
    return WgmmaWait(2) if isinstance(op, WgmmaWait) and op.pending else op


def unmet(body: KernelIR) -> KernelIR:
    """Leave out the cluster's barrier at the start."""
    return replace(body, ops=tuple(op for op in body.ops if not isinstance(op, Sync)))


def abandoned(body: KernelIR) -> KernelIR:
    """Leave out the cluster's barrier at the end."""
    *before, roles = body.ops
    assert isinstance(roles, WarpSpecialize)
    assert roles.consume[-1] == Sync("cluster")
    return replace(body, ops=(*before, replace(roles, consume=roles.consume[:-1])))


FAULTS: dict[str, tuple[Callable[[KernelIR], KernelIR], str]] = {
    "no arrival at the other CTA": (each(to_itself), "waits forever"),
    "nor a wait for one": (unheard, "of all CTAs .* races|overwrites B_stages"),
    "no barrier of the cluster at the start": (unmet, "whose barriers may not be ready"),
    "no barrier of the cluster at the end": (abandoned, "may reach a CTA that has ended"),
    "a half that does not come": (each(half_for_oneself), "waits forever"),
    "bytes of one half alone": (each(own_bytes), "reads B_stages at .*, which nothing wrote"),
    "producers that ask nobody": (each(unasked), "still reads|races|overwrites"),
    "stages released early": (each(hasty), "still reads: commit, and wait for it"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_simulator_refuses_what_would_race_or_hang(fault: str) -> None:
    change, message = FAULTS[fault]
    body = program_of(*fitted(Form("float16"), DOWN, SIZES)).body
    run(body)
    with pytest.raises(SimulationError, match=message):
        run(change(body))


# -- the builder ----------------------------------------------------------------------------------


def halves() -> Kernel:
    """Return a kernel whose two CTAs copy the upper and the lower half of a matrix."""
    kernel = Kernel("halves", 32, cluster=2)
    given, made = (kernel.param(name, (32, 16), "float16") for name in ("given", "made"))
    held = kernel.alloc(
        "held", (16, 16), "float16", layout=fragments.get("mma.m16n8k16.f16", "A").layout
    )
    rank = kernel.rank()
    rows = slice(rank * 16, rank * 16 + 16)
    kernel.copy(held, given[rows])
    kernel.copy(made[rows], held)
    return kernel


def test_a_pair_without_a_grid_shares_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "device_count", lambda: 0)
    program = halves().lower()
    given = np.arange(512).reshape(32, 16) % 97
    assert (program.simulate(given=given)["made"] == given).all()
    assert "thread, bx, by = cuda" in program.kernel_source()
    assert "__cluster_dims__(2, 1, 1)" in program.cuda_source()
    with pytest.raises(LayoutError, match=r"^run: no CUDA device is available; simulate"):
        program.run(given=given)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "three CTAs": (lambda: Kernel("k", cluster=3), "a cluster has 1 or 2 CTAs; got 3"),
    "a target without": (
        lambda: Kernel("k", arch="sm_80", cluster=2),
        "cluster=2 needs sm_90; got sm_80",
    ),
    "a target without early kernels": (
        lambda: Kernel("k", arch="sm_89", pdl=True),
        "^Kernel: programmatic dependent launch needs sm_90; got sm_89$",
    ),
    "a barrier of no cluster": (
        lambda: Kernel("k").sync("cluster"),
        "cluster needs cluster=2; k has",
    ),
    "a multicast to nobody": (
        lambda: Kernel("k").tma_load(Kernel("k").barrier("b", 1, 1), 0, [], None, [(None, None)]),  # type: ignore[list-item]
        "multicast needs cluster=2; k has",
    ),
    "a config of three": (lambda: replace(DOWN, cluster=3), "a cluster needs wgmma, 2 CTAs"),
    "a tile with no halves": (
        lambda: replace(DOWN, tile=(64, 64, 64)),
        "whole blocks of 64 in the half that each loads",
    ),
    "mma.sync": (lambda: Config(cluster=2), "a cluster needs wgmma"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_pair_is(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(LayoutError, match=message):
        make()


def test_a_pair_takes_as_many_waves_as_it_has_processors() -> None:
    """Tuning counts pairs: 64 of them on 66 pairs of multiprocessors are one wave."""
    form = Form("float16")
    both = tuple((config, 1.0) for config in (replace(LARGE, cluster=1), LARGE))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "CANDIDATES", both[::-1])
        assert tuning.default(form, (128 * 128, 256, 64), H200) == LARGE
        assert tuning.default(form, (128 * 133, 256, 64), H200).cluster == 2
        assert tuning.default(form, (128, 256 * 132, 64), H200).cluster == 1


# -- other readers --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("config", [DOWN, ACROSS])
def test_the_texts_say_the_pair_and_assemble(config: Config) -> None:
    form, config = fitted(Form("float16"), config, (256, 256, 256))
    program = program_of(form, config)
    text = program.ptx("sm_90a")
    for part in (
        ".multicast::cluster [", "mapa.shared::cluster.u32", "mbarrier.arrive.shared::cluster.b64",
        "fence.mbarrier_init.release.cluster", "barrier.cluster.arrive.relaxed",
    ):  # fmt: skip
        assert part in text, part
    assert "mbarrier.arrive.release.cluster" not in text
    assert nvjitlink.assemble(text, "sm_90a")[:4] == b"\x7fELF"
    source = program.cuda_source()
    for part in (
        "__cluster_dims__(2, 1, 1) __launch_bounds__", "mov.b16 all, 3;",
        "mapa(free_elsewhere, free_base, static_cast<uint32_t>((thread & 1)));",
        "mbarrier_arrive_cluster(free_elsewhere + ", ", ((thread & 31) < 2 && int(0) < ",
    ):  # fmt: skip
        assert part in source, part
    assert len(re.findall(r"^    sync_cluster\(\)|^  sync_cluster\(\)", source, re.MULTILINE)) == 2
    with pytest.raises(LayoutError, match="sm_80 lacks"):
        numba_cuda.check_body(program.body, "k", "sm_80")


@pytest.mark.slow
def test_a_launch_says_the_extent_of_a_cluster() -> None:
    pytest.importorskip("cuda.bindings.driver")
    form, config = fitted(Form("float16"), DOWN, (128, 128, 64))
    made = cache.compile_program(program_of(form, config), "sm_90a")
    assert (made.cluster, made.threads) == (2, 256)
    assert Compiled.from_bytes(made.to_bytes()) == made
    together = driver.launch_config(made)
    extents = together.attrs[0].value.clusterDim
    assert (extents.x, extents.y, extents.z, together.numAttrs) == (2, 1, 1, 2)
    assert together.attrs[1].value.programmaticStreamSerializationAllowed == 1
    calls: list[tuple[Any, ...]] = []

    def launch(*arguments: Any) -> tuple[int]:
        config = arguments[0]
        calls.append((config.gridDimX, config.gridDimY, int(config.hStream), config.blockDimX))
        return (0,)

    kernel = object.__new__(driver.Loaded)
    kernel.made, kernel._config, kernel._launch, kernel._values = made, together, launch, []
    kernel._function, kernel._address = None, 0
    kernel._lock = driver.threading.Lock()
    kernel.launch((132, 1), (), (), 7)
    assert calls == [(132, 1, 7, 256)]
