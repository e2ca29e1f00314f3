"""Every reader of a kernel takes scalars, grids, boxes, producers and clusters like any other."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from layoutalg import LayoutError, S, TileLayout, fragments, laneid, parse, tx
from layoutalg.layouts.hardware import swizzled_tile
from lowering.ir import reductions
from lowering.ir.index import FREE
from lowering.ir.kernel_ir import KernelIR
from lowering.kernels.config import Config, Form, Problem
from lowering.kernels.matmul import launch_of, program_of
from lowering.launch import arguments, cache, driver
from lowering.launch.arguments import Arguments
from lowering.launch.cache import Compiled
from lowering.launch.driver import Device
from lowering.programs.kernel import Kernel
from lowering.programs.program import KernelProgram
from tests.support.nvrtc_text import compiled

Array = np.ndarray[Any, Any]
ROW = TileLayout(S[(32, 4) : (1 @ laneid, 1)])
THREADS = TileLayout(S[(128, 64) : (1 @ tx, 1)])


@dataclass(frozen=True)
class Sample:
    """A kernel, what a launch of it is given, and the definition of what it writes."""

    program: KernelProgram
    given: dict[str, Any]
    want: dict[str, Array]
    grid: tuple[int, int] = (1, 1)


def numbers(*shape: int) -> Array:
    """Return small integers as f16, all of whose products and sums here are exact."""
    return np.random.default_rng(sum(shape)).integers(-8, 9, shape).astype(np.float16)


def scalars() -> Sample:
    """``o = alpha * a + beta * b``, of f32 scalars."""
    k = Kernel("scaled")
    alpha, beta = k.scalar("alpha", "f32"), k.scalar("beta", "f32")
    a, b, o = (k.param(name, (32, 4), "float32") for name in "abo")
    x, y = (k.alloc(name, (32, 4), "float32", layout=ROW) for name in "xy")
    k.copy(x, a), k.copy(y, b), k.assign(x, x * alpha + y * beta), k.copy(o, x)
    left, right = (numbers(32, n).astype(np.float32)[:, :4] for n in (4, 5))
    return Sample(
        k.lower(), {"a": left, "b": right, "alpha": 2, "beta": 0.5}, {"o": 2 * left + right / 2}
    )


def grid() -> Sample:
    """Each CTA of a grid adds one to its own block of a matrix whose extents the launch says."""
    k = Kernel("blocks")
    sizes = {name: k.scalar(name) for name in ("M", "N", "pitch")}
    layout = TileLayout(S[(FREE, FREE) : (4 * sizes["pitch"], 1)])
    a, o = (k.param(n, (FREE, FREE), "float16", layout, ("M", "N")) for n in "ao")
    r = k.alloc("r", (32, 4), "float16", layout=ROW)
    by, bx = k.let("row", k.block[1], 64), k.let("col", k.block[0], 64)
    where = slice(by * 32, by * 32 + 32), slice(bx * 4, bx * 4 + 4)
    k.copy(r, a[where])
    k.copy(o[where], r)
    x = numbers(45, 10)
    given = {"a": x, "M": 45, "N": 10, "pitch": 5, "o": np.full((45, 10), 3)}
    return Sample(k.lower(), given, {"o": x}, (3, 2))


def boxes() -> Sample:
    """A tile that the copy engine brings and takes away, beyond the last row of the matrix."""
    k = Kernel("boxes", threads=128)
    rows = k.scalar("rows")
    del rows
    a, o = (k.param(n, (256, 64), "float16", bounds=("rows", None)) for n in "ao")
    ring = k.alloc("ring", (1, 128, 64), "float16", "shared", swizzled_tile((1, 128, 64), 128, 16))
    full = k.barrier("full", 1, 1)
    k.tma_load(full, 0, [(ring[0], a[64:192])])
    k.mbarrier_wait(full, 0, 0)
    k.tma_store((o[64:192], ring[0]))
    k.tma_store_wait()
    x = numbers(256, 64)
    want = np.full((256, 64), 5, np.float16)
    want[64:150] = x[64:150]
    return Sample(k.lower(), {"a": x, "rows": 150, "o": np.full((256, 64), 5)}, {"o": want})


def producer() -> Sample:
    """A ring of two stages that one thread of a further warpgroup fills."""
    k = Kernel("producer", threads=128)
    a, o = k.param("a", (512, 64), "float16"), k.param("o", (512, 64), "float16")
    ring = k.alloc("ring", (2, 128, 64), "float16", "shared", swizzled_tile((2, 128, 64), 128, 16))
    r = k.alloc("r", (128, 64), "float16", layout=THREADS)
    full, free = k.barrier("full", 2, 1), k.barrier("free", 2, 4)
    with k.producer(), k.loop("p", 2) as p:
        for stage in range(2):
            row = p * 256 + stage * 128
            k.tma_load(full, stage, [(ring[stage], a[row : row + 128])], (free, stage, p + 1))
    with k.loop("c", 2) as c:
        for stage in range(2):
            row = c * 256 + stage * 128
            k.mbarrier_wait(full, stage, c)
            k.copy(r, ring[stage])
            k.sync("warp")
            k.arrive(free, stage)
            k.copy(o[row : row + 128], r)
    x = numbers(512, 64)
    return Sample(k.lower(), {"a": x}, {"o": x})


def cluster() -> Sample:
    """Two CTAs, each of which brings half of a tile to both."""
    k = Kernel("pair", threads=128, cluster=2)
    a, o = k.param("a", (128, 64), "float16"), k.param("o", (256, 64), "float16")
    ring = k.alloc("ring", (1, 128, 64), "float16", "shared", swizzled_tile((1, 128, 64), 128, 16))
    r = k.alloc("r", (128, 64), "float16", layout=THREADS)
    full, rank = k.barrier("full", 1, 1), k.rank()
    k.sync("cluster")
    half = slice(rank * 64, rank * 64 + 64)
    k.tma_load(full, 0, [], None, [(ring[0, half], a[half])])
    k.mbarrier_wait(full, 0, 0)
    k.copy(r, ring[0])
    k.copy(o[rank * 128 : rank * 128 + 128], r)
    k.sync("cluster")
    x = numbers(128, 64)
    return Sample(k.lower(), {"a": x}, {"o": np.concatenate([x, x])}, (2, 1))


def matmul() -> Sample:
    """The kernel of whole matrices by mma.sync, with edges and pitches."""
    form, config = Form("float16", "float32"), Config((32, 32, 32), (1, 2), 2, 1)
    a, b = numbers(40, 48), numbers(48, 56)
    given = {"A": a, "B": b, "M": 40, "N": 56, "K": 48, "pitchA": 7, "pitchB": 7, "pitchD": 8}
    want = {"D": (a.astype(float) @ b.astype(float)).astype(np.float32)}
    return Sample(program_of(form, config), given, want, config.grid(40, 56))


def wgmma() -> Sample:
    """The kernel by wgmma: a producer, boxes both ways, persistent CTAs."""
    form = Form("float16")
    config = Config((64, 64, 64), (4, 1), 2, 1, bulk=True, producer=True, wgmma=True)
    a, b = numbers(72, 64), numbers(64, 80)
    problem = Problem((72, 80, 64), {"A": 64, "B": 80, "D": 80})
    extents, given = launch_of(problem, config, 2)
    want = {"D": (a.astype(float) @ b.astype(float)).astype(np.float16)}
    program = program_of(form, config)
    return Sample(program, {"A": a, "B": b, "D": np.zeros((72, 80)), **given}, want, extents)


def reduction() -> Sample:
    """Sums of rows that four warps hold, of a type of 16 bits, in each CTA of a grid."""
    k = Kernel("sums", threads=128)
    a, o = k.param("a", (64, 64), "float16"), k.param("o", (64, 1), "float16")
    columns = parse("S[(8,4,4,4,4):(4@laneid,1,1@warpid,4,1@laneid)]")
    s = k.alloc("s", (32, 64), "float16", layout=columns)
    row = k.let("row", k.block[0] * 32, 64)
    k.copy(s, a[row : row + 32])
    k.copy(o[row : row + 32], k.tile("m", reductions.sum(s, axis=1)))
    x = numbers(64, 64)
    return Sample(k.lower(), {"a": x}, {"o": x.sum(axis=1, keepdims=True)}, (2, 1))


def atomics() -> Sample:
    """Rows of several CTAs, added to the same cells, each copy once."""
    k = Kernel("added", threads=64)
    a, o = k.param("a", (128, 16), "float16"), k.param("o", (32, 16), "float16")
    r = k.alloc("r", (32, 16), "float16", layout=parse("S[(32,16):(1@laneid,1)] + R[2:1@warpid]"))
    k.copy(r, a[k.block[0] * 32 : k.block[0] * 32 + 32])
    k.atomic_add(o, r)
    x, start = numbers(128, 16), numbers(32, 16)
    want = start + x.reshape(4, 32, 16).sum(axis=0)
    return Sample(k.lower(), {"a": x, "o": start}, {"o": want}, (4, 1))


def conversion() -> Sample:
    """Accumulators of 8 bits become an operand: by shuffles, selects and permuted bytes."""
    k = Kernel("converted")
    a, o = k.param("a", (16, 32), "int8"), k.param("o", (16, 32), "int8")
    d, operand = (fragments.get("mma.m16n8k32.s8", role) for role in "DA")
    r = k.alloc("r", (16, 32), "int8", layout=d.tiled(16, 32))
    q = k.alloc("q", (16, 32), "int8", layout=operand.layout)
    k.copy(r, a), k.copy(q, r), k.copy(o, q)
    x = np.arange(512).reshape(16, 32).astype(np.int8)
    return Sample(k.lower(), {"a": x}, {"o": x})


SAMPLES = (scalars, grid, boxes, producer, cluster, matmul, wgmma, reduction, atomics, conversion)
each_sample = pytest.mark.parametrize("make", SAMPLES, ids=[each.__name__ for each in SAMPLES])


@pytest.mark.slow
@each_sample
def test_simulate_takes_what_a_launch_does(make: Callable[[], Sample]) -> None:
    sample = make()
    found = sample.program.simulate(grid=sample.grid, **sample.given)
    assert found.keys() == sample.want.keys()
    for name, want in sample.want.items():
        assert np.array_equal(found[name].astype(float), want.astype(float)), name


@pytest.mark.slow
@each_sample
def test_trace_and_banks_take_the_same(make: Callable[[], Sample]) -> None:
    sample = make()
    machine = sample.program.trace(grid=sample.grid, **sample.given)
    assert set(machine.memory) >= {buffer.name for buffer in sample.program.body.params}
    counts = sample.program.banks(grid=sample.grid, **sample.given)
    assert all(each.wavefronts >= each.fewest > 0 for each in counts)


def test_banks_count_all_ctas() -> None:
    def counted(extents: tuple[int, int]) -> int:
        k = Kernel("k")
        a, s = k.param("a", (32, 4), "float32"), k.alloc("s", (32, 4), "float32", "shared")
        k.copy(s, a)
        return sum(each.wavefronts for each in k.lower().banks(extents, a=np.zeros((32, 4))))

    assert counted((3, 2)) == 6 * counted((1, 1)) > 0


# -- run: everything up to the launch, on a device that is not there --------------------------


class Memory:
    """The driver's functions over plain bytes; a launch is the NumPy warp's."""

    def __init__(self, sample: Sample) -> None:
        """Start with nothing allocated."""
        self.sample, self.blocks, self.maps = (
            sample,
            dict[int, Array](),
            dict[int, tuple[Any, ...]](),
        )
        self.launched: list[tuple[Any, ...]] = []

    def call(self, name: str, *arguments: Any) -> Any:
        """Do what a function of the driver does."""
        if name == "cuMemAlloc":
            pointer = 1 << 20 | (len(self.blocks) + 1) << 32
            self.blocks[pointer] = np.zeros(arguments[0], np.uint8)
            return pointer
        if name == "cuMemFree":
            del self.blocks[arguments[0]]
        elif name == "cuMemcpyHtoD":
            self.blocks[arguments[0]][: arguments[2]] = image(arguments[1], arguments[2])
        elif name == "cuMemcpyDtoH":
            image(arguments[0], arguments[2])[:] = self.blocks[arguments[1]][: arguments[2]]
        else:
            assert name.startswith("cuCtx"), name
        return None

    def address(
        self, pointer: int, shape: tuple[int, int], pitch: int, box: tuple[Any, ...]
    ) -> int:
        """Return a stand-in of a tensor map."""
        place = pointer + (1 << 60)
        self.maps[place] = pointer, shape, pitch, box
        return place


def image(address: int, count: int) -> Array:
    """Return the bytes at an address of the host."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))


class Kernel0(driver.Loaded):
    """A kernel on the device that is not there: it notes its launch, and runs on the NumPy warp."""

    def __init__(self, made: Compiled, memory: Memory) -> None:
        """Hold what was compiled."""
        self.made, self.memory = made, memory

    def launch(self, grid: Any, pointers: Any, scalars: Any, stream: int) -> None:
        """Decode each parameter from the memory, run, and encode what was written."""
        memory, program = self.memory, self.memory.sample.program
        body = program.body
        memory.launched.append((grid, tuple(pointers), tuple(scalars), stream))
        named = dict(zip((scalar.name for scalar in body.scalars), scalars, strict=True))
        cells = {}
        places = [memory.maps[each][0] if each in memory.maps else each for each in pointers]
        for buffer, place in zip(body.params, places, strict=True):
            cells[buffer.name] = memory.blocks[place].view(buffer.dtype.numpy)
        extents = {
            buffer.name: memory.maps[place][1:3]
            for buffer, place in zip(body.params, pointers, strict=True)
            if place in memory.maps
        }
        whole = arguments.Grid(
            body,
            named,
            {name: each[0] for name, each in extents.items()},
            {name: each[1] for name, each in extents.items()},
        )
        for name, flat in whole.run(grid, cells).items():
            cells[name][:] = flat


@pytest.mark.slow
@each_sample
def test_run_launches_with_the_bits_that_the_warp_is_given(
    make: Callable[[], Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory, tensor maps, scalars and grid are what the simulator is given; results come back."""
    pytest.importorskip("lowering.codegen.numba_cuda", reason="numba-cuda is not installed")
    sample = make()
    memory = Memory(sample)
    body = sample.program.body
    boxes = tuple(
        (name, *box.box, box.swizzle, body.buffer(name).dtype.token)
        for name, box in body.boxes.items()
    )
    made = Compiled(
        tuple(b.name for b in body.params),
        tuple((s.name, s.token) for s in body.scalars),
        body.launched, body.shared_bytes, boxes, b"", body.cluster, body.pdl,
    )  # fmt: skip
    monkeypatch.setattr(driver, "device_count", lambda: 1)
    on = Device(0, "sm_90", 132, "NVIDIA H200", 227 * 1024, None)
    monkeypatch.setattr(driver, "device", lambda index: on)
    monkeypatch.setattr(driver, "call", memory.call)
    monkeypatch.setattr(driver, "tensor_maps", lambda index: memory)
    monkeypatch.setattr(driver, "_loaded", lambda body, name, compiler: Kernel0(made, memory))
    found = sample.program.run(grid=sample.grid, **sample.given)
    for name, want in sample.want.items():
        assert np.array_equal(found[name].astype(float), want.astype(float)), name
    assert not memory.blocks  # all is freed
    ((extents, pointers, values, stream),) = memory.launched
    assert (extents, stream) == (sample.grid, 0)
    assert values == tuple(sample.given[scalar.name] for scalar in body.scalars)
    assert [pointer in memory.maps for pointer in pointers] == [
        buffer.name in body.boxes for buffer in body.params
    ]


@pytest.mark.slow
@each_sample
def test_what_is_launched_is_compiled_for_its_target(
    make: Callable[[], Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machine code of the whole program, whose parameters are pointers and scalars alone."""
    pytest.importorskip("lowering.codegen.numba_cuda", reason="numba-cuda is not installed")
    program = make().program
    made = cache.compile_program(program, program.body.arch)
    assert made.code[:4] == b"\x7fELF"
    assert made.params == tuple(buffer.name for buffer in program.body.params)
    on = Device(0, "sm_90", 132, "NVIDIA H200", 227 * 1024, None)
    assert driver._target(program.body, on).startswith("sm_90")


@pytest.mark.slow
@each_sample
def test_the_cpp_text_compiles(make: Callable[[], Sample]) -> None:
    program = make().program
    arch = program.body.arch.replace("sm_", "compute_")
    ptx = compiled(program.cuda_source(), arch)
    assert ptx.count(".param .u64") == len(program.body.params)


# -- what is refused ---------------------------------------------------------------------------


def launch(**changes: Any) -> None:
    """Launch the kernel of a grid with some arguments changed; None leaves one out."""
    sample = grid()
    extents = changes.pop("grid", sample.grid)
    given = {name: value for name, value in (sample.given | changes).items() if value is not None}
    sample.program.simulate(grid=extents, **given)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a scalar left out": (
        {"M": None},
        "run: the kernel needs a, M, N, pitch, and takes o; got N, a, o, pitch: M is missing",
    ),
    "a name that is none": (
        {"x": 1},
        "run: the kernel needs a, M, N, pitch, and takes o; got M, N, a, o, pitch, x: x is unknown",
    ),
    "a size that is no integer": ({"M": 45.0}, "run: M must be an integer; got 45.0"),
    "a size below 0": ({"M": -1}, "run: M must lie in 0..16777215; got -1"),
    "a matrix of other extents": (
        {"a": np.zeros((44, 10))},
        "operand a: a needs a matrix of shape (45, 10); got (44, 10)",
    ),
    "a pitch too small": (
        {"pitch": 1},
        "run: elements of a (45, 10) share an address; its layout "
        "S[(16777216,16777216):(4*pitch,1)] needs larger pitches",
    ),
    "a grid of three": (
        {"grid": (1, 1, 1)},
        "run: the grid must be (bx, by), CTAs from 1 on; got (1, 1, 1)",
    ),
    "a grid beyond a promise": (
        {"grid": (65, 1)},
        "run: col = bx is one of 64 values from 0 on; with the grid (65, 1) it is 0 to 64",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_launch_is_held_to_what_it_needs(name: str) -> None:
    changes, message = REFUSED[name]
    with pytest.raises(LayoutError) as caught:
        launch(**changes)
    assert str(caught.value) == message


def test_a_grid_has_whole_clusters() -> None:
    sample = cluster()
    with pytest.raises(LayoutError) as caught:
        sample.program.run(grid=(3, 1), **sample.given)
    assert str(caught.value) == (
        "run: bx must be a multiple of the cluster, 2; got the grid (3, 1)"
    )


def test_bounds_of_vectors_are_multiples() -> None:
    k = Kernel("k")
    k.scalar("M")
    a = k.param("a", (32, 16), "float16", bounds=(None, "M"), multiple=8)
    o = k.param("o", (32, 16), "float16")
    r = k.alloc("r", (32, 16), "float16", layout=TileLayout(S[(32, 16) : (1 @ laneid, 1)]))
    k.copy(r, a)
    k.copy(o, r)
    program = k.lower()
    assert len(program.body.ops) == 4  # vectors of 8, each inside or outside
    with pytest.raises(LayoutError, match=r"^run: M bounds copies of 8 elements and must be"):
        program.simulate(a=np.zeros((32, 16)), M=12)
    found = program.simulate(a=np.ones((32, 16)), M=8)["o"]
    assert (found == np.repeat([1, 0], 8)).all()


def test_a_tensor_map_has_rows_in_consecutive_cells() -> None:
    body: KernelIR = boxes().program.body
    given: dict[str, Any] = {"a": np.zeros((256, 64)), "rows": 200}
    made = arguments.arguments(body, given)
    assert isinstance(made, Arguments)
    assert made.boxes["a"].extents == (200, 64)
    assert made.boxes["a"].pitch == 64
