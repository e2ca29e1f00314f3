"""Kernels by the asynchronous tensor core (wgmma and tcgen05), warp-specialized.

Global memory → copy engine → a ring of tiles swizzled by 128 bytes → ``wgmma`` → registers (or
``tcgen05.mma`` → tensor memory → ``tcgen05.ld`` → registers, block by block) → ``stmatrix`` into a
swizzled tile → copy engine. The CTAs are persistent: each takes one tile of the result after the
other, and its producer goes on to the next while the last is written. Of a pair of CTAs each takes
one of two tiles side by side, and of the operand that both need each loads a half, which the copy
engine writes to both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from layoutalg import LayoutError, S, TileLayout, tcgen05_atom_layout, tmem_datapath_layout, wgid
from layoutalg.algebra.axis import WARP
from layoutalg.fragments.targets import has
from lowering.dispatch.addresses import as_index
from lowering.ir.index import FREE, Index
from lowering.ir.matrices import Matrix
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tiles import Buffer, BufferRegion
from lowering.isa import tcgen05, wgmma
from lowering.isa.tcgen05 import LANES
from lowering.kernels.matmul_mma_sync import (
    EDGE,
    PERIOD,
    Config,
    Form,
    Problem,
    cta_swizzle,
    matmul_program,
    pitched,
    posed,
    run_grid,
    swizzled,
    tiles_along,
)
from lowering.programs.kernel import Kernel, KernelProgram

ROUNDING = 30  # bits after the point of the reciprocal that divides the number of a tile
GROUPS = (32, 16, 8, 4, 2, 1)  # rows of tiles that may be numbered together
WASTE = 1.05  # tiles, those beyond the last row included, over those of the result


def program_of(form: Form, config: Config, arch: str) -> KernelProgram:
    """Return the kernel of a form, cut as a config says, by the tensor core that it names.

    Raises:
        LayoutError: the shared tiles do not fit.
        DispatchError: a copy or a product of the config fits no variant.
    """
    make = wgmma_program if config.wgmma else matmul_program
    return make(form, config, arch)


@dataclass(frozen=True)
class Schedule:
    """How the tiles of a result are dealt out to persistent CTAs.

    Tile ``number`` is tile ``number % width`` of group ``number // width`` of rows of tiles; a CTA
    takes every ``ctas``-th. Those of a cluster are neighbours in this order.

    >>> Schedule.of(Config(wgmma=True, bulk=True, producer=True, warps=(8, 1)), 1024, 512, 132)
    Schedule(ctas=16, total=16, width=16)
    """

    ctas: int
    total: int
    width: int

    @classmethod
    def of(cls, config: Config, rows: int, cols: int, processors: int) -> Schedule:
        """Return the schedule of a result of so many rows and columns, one CTA per multiprocessor.

        Raises:
            LayoutError: more tiles than their numbers may count.
        """
        clusters, groups = config.grid(rows, cols)
        width = clusters * config.cluster
        total = width * groups
        if total * width >> ROUNDING:
            raise LayoutError(
                f"matmul: {rows} x {cols} has too many tiles of {config.tile}, {total}: cut it"
            )
        most = max(config.cluster, processors // config.cluster * config.cluster)
        return cls(min(total, most), total, width)

    @property
    def scalars(self) -> dict[str, int]:
        """The scalars of a launch that say the schedule.

        ``reciprocal / 2**30`` divides by the width: it is above 1/width by less than 2**-30, and
        number times width stays below 2**30.
        """
        return {
            "ctas": self.ctas,
            "total": self.total,
            "turns": -(-self.total // self.ctas),
            "width": self.width,
            "reciprocal": -(-(1 << ROUNDING) // self.width),
        }


def fitted(form: Form, config: Config, sizes: tuple[int, int, int]) -> tuple[Form, Config]:
    """Return form and config fitted to M, N and K: edges, and rows of tiles numbered together.

    K of a config's tile is that of 16-bit operands: narrower ones have more in the same bytes.

    >>> config = Config(wgmma=True, bulk=True, producer=True, warps=(8, 1))
    >>> [fitted(Form("float16"), config, (m, 256, 64))[1].group for m in (8192, 128 * 9, 128 * 10)]
    [8, 1, 2]
    """
    if config.wgmma:
        down = -(-sizes[0] // config.span[0])
        group = next(g for g in GROUPS if g <= config.group and -(-down // g) * g <= WASTE * down)
        m, n, k = config.tile
        config = replace(config, tile=(m, n, k * 16 // form.dtype.bits), group=group)
        # The copy engine minds the edges of all matrices but C.
        whole, edges = form.fitted(sizes, config).whole, form.epilogue == "beta"
        return replace(form, edges=edges, whole=whole), config
    return form.fitted(sizes, config), config


@dataclass(frozen=True)
class Staged:
    """A or B on its way: the parameter and the ring of shared tiles."""

    given: Buffer
    ring: Buffer
    k_first: bool

    def tile(
        self, stage: int, start: Any, step: Any, part: Any = 0, parts: int = 1
    ) -> tuple[BufferRegion, BufferRegion]:
        """Return a stage, and the K tile that goes there; or one part of several along M or N."""
        rows, cols = self.ring.shape[1:]
        if self.k_first:
            width = cols // parts
            first, row, col = part * width, step * rows, start + part * width
            into = self.ring[stage, :, first : first + width]
            return into, self.given[row : row + rows, col : col + width]
        height = rows // parts
        first, row, col = part * height, start + part * height, step * cols
        into = self.ring[stage, first : first + height]
        return into, self.given[row : row + height, col : col + cols]


def _staged(kernel: Kernel, form: Form, config: Config, role: str) -> Staged:
    """Declare the buffers of A or B."""
    flip = form.transpose_A if role == "A" else form.transpose_B
    m, n, k = config.tile
    shape, names = {"A": ((m, k), "MK"), "B": ((k, n), "KN")}[role]
    if flip:
        shape, names = shape[::-1], names[::-1]
    pitch = kernel.scalar(f"pitch{role}")
    given = kernel.param(role, (FREE, FREE), form.dtype, pitched(pitch), tuple(names), EDGE)
    tiles = (config.stages, *shape)
    layout = swizzled(tiles, config.swizzle, form.dtype.bits)
    ring = kernel.alloc(f"{role}_ring", tiles, form.dtype, "shared", layout)
    return Staged(given, ring, names[0] == "K")


def accumulator(config: Config) -> TileLayout:
    """Return the layout of D over the warpgroups of a CTA: 64 rows each in turn, all columns.

    >>> print(accumulator(Config((128, 64, 64), (8, 1), wgmma=True, bulk=True, producer=True)))
    S[(2,4,2,8,8,4,2):(1@wgid,1@wid_in_wg,2,4@laneid,4,1@laneid,1)]
    """
    (m, n, _), groups = config.tile, config.warps[0] // 4
    width = max(each for each in range(8, 257, 8) if n % each == 0)
    fragment = wgmma.get(width, "f16").fragment("D")
    own = fragment.layout.tile_to((64, n), fragment.shape)
    over = TileLayout(S[(groups, 1) : (1 @ wgid, 1 @ wgid)])
    return own.tile(over, (groups, 1), (64, n)).tile_to((m, n), (64 * groups, n))


@contextmanager
def _turn(kernel: Kernel, config: Config, prefix: str) -> Iterator[tuple[Any, Any]]:
    """Let a CTA take its tiles of the result in turns; yields the row and column of each.

    Args:
        kernel: to add to.
        config: of the kernel.
        prefix: of the variables, which a producer has for itself.
    """
    with kernel.loop(f"{prefix}turn", Index.free("turns")):
        turn = Index.free(f"{prefix}turn")
        number = turn.times(Index.free("ctas")) + Index.free("bx")
        kernel.let(f"{prefix}number", number)
        with kernel.when(Index.free(f"{prefix}number"), Index.free("total")):
            yield _starts(kernel, config, prefix)


def _starts(kernel: Kernel, config: Config, prefix: str) -> tuple[Any, Any]:
    """Name the row and column where the tile begins whose number has a name, and return them."""

    def let(name: str, value: Index) -> Index:
        kernel.let(f"{prefix}{name}", value)
        return Index.free(f"{prefix}{name}")

    number, reciprocal = Index.free(f"{prefix}number"), Index.of("reciprocal", 2 << ROUNDING)
    group = let("group", number.times(reciprocal) // (1 << ROUNDING))
    along = let("along", number - group.times(Index.free("width")))
    places = cta_swizzle(config.group, along // config.cluster, group)
    rank = Index.free("bx") % config.cluster
    found = []
    for name, place, tile, span in zip(
        ("row", "col"), places, config.tile[:2], config.span, strict=True
    ):
        own = place * (span // tile) + (rank if span > tile else 0)
        found.append(kernel.let(f"{prefix}{name}", own, tiles_along(tile, config)) * tile)
    return found[0], found[1]


class ByWgmma:
    """Products of warpgroups, in registers; a stage is free once the product after it has begun."""

    def __init__(self, kernel: Kernel, form: Form, config: Config) -> None:
        """Allocate the accumulator."""
        self.kernel, self.form = kernel, form
        self.arrivals = config.threads // WARP * config.cluster  # that free a stage
        layout = accumulator(config)
        self.total = kernel.alloc("D_held", config.tile[:2], summed(form), layout=layout)

    def starting(self) -> AbstractContextManager[None]:
        """Choose the threads that start products: all."""
        return nullcontext()

    def start(self, a: BufferRegion, b: BufferRegion, place: Place, ring: Ring) -> None:
        """Start the product of a stage; the first of a tile of the result overwrites."""
        form = self.form
        self.kernel.gemm_async(
            self.total, a, b, transA=form.transpose_A, transB=form.transpose_B, accum=place.tile
        )
        self.kernel.commit("gemm")

    def release(self, place: Place, ring: Ring) -> None:
        """Free the stage of the product before, which is complete; the first has none before."""
        self.kernel.wait(1, "gemm")
        self.kernel.arrive(ring.free, ring.before(place.stage), (0, place.tile), everywhere=True)

    def end(self, ring: Ring) -> None:
        """Complete a tile of the result."""
        self.kernel.wait(0, "gemm")
        self.kernel.arrive(ring.free, ring.last, everywhere=True)


class ByTcgen05:
    """Products that thread 0 starts, in tensor memory; the tensor core itself frees a stage.

    Assembled and simulated, not executed: no such GPU was at hand.
    """

    arrivals = 1

    def __init__(self, kernel: Kernel, form: Form, config: Config) -> None:
        """Allocate the accumulator, and an mbarrier that says when it is complete.

        Raises:
            LayoutError: another tile than 128 rows of one warpgroup, or a cluster.
        """
        if (config.tile[0], config.threads, config.cluster) != (LANES, WARPGROUP, 1):
            raise LayoutError(
                f"matmul: tcgen05 takes tiles of {LANES} rows, one warpgroup and no cluster; got "
                f"the tile {config.tile}, {config.threads} threads and {config.cluster} CTAs"
            )
        self.kernel, self.form = kernel, form
        layout = tmem_datapath_layout("D", *config.tile[:2])
        self.total = kernel.alloc("D_held", config.tile[:2], summed(form), "tmem", layout)
        self.done = kernel.barrier("done", 1, 1)

    def starting(self) -> AbstractContextManager[None]:
        """Choose the thread that starts products; a wait of others could be overtaken."""
        return self.kernel.when(self.kernel.thread, 1)

    def start(self, a: BufferRegion, b: BufferRegion, place: Place, ring: Ring) -> None:
        """Start the product of a stage; the first of a tile of the result overwrites."""
        kernel, form = self.kernel, self.form
        kernel.gemm_async(
            self.total, a, b, scope="thread",
            transA=form.transpose_A, transB=form.transpose_B, accum=place.tile,
        )  # fmt: skip
        kernel.commit("gemm", ring.free, place.stage)

    def release(self, place: Place, ring: Ring) -> None:
        """Free nothing: the tensor core does."""

    def end(self, ring: Ring) -> None:
        """Complete a tile of the result."""
        self.kernel.commit("gemm", self.done)
        self.kernel.mbarrier_wait(self.done, 0, Index.free("turn"))


def summed(form: Form) -> str:
    """Return the type of the accumulator."""
    return "int32" if form.out.token == "s32" else "float32"


def wgmma_program(form: Form, config: Config, arch: str = "sm_90a") -> KernelProgram:
    """Return the kernel of a form by the asynchronous tensor core, cut as a config says.

    By ``wgmma``; by ``tcgen05`` where the target has that. Its parameters are A, B, (C,) D, then M,
    N, K, the pitches in units of 8 elements, alpha and beta where the epilogue has them, and the
    scalars of a :class:`Schedule`.

    Raises:
        LayoutError: the shared tiles do not fit, or ``tcgen05`` does not take the config.
        DispatchError: a copy or a product of the config fits no variant.

    >>> form = Form("float16")
    >>> config = Config((64, 64, 64), (4, 1), 2, 1, bulk=True, producer=True, wgmma=True)
    >>> wgmma_program(form, config).body.launched
    256
    """
    kernel = Kernel(f"matmul_{form}_{config}", config.threads, arch, config.cluster, pdl=True)
    for name in "MNK":
        kernel.scalar(name)
    operands = tuple(_staged(kernel, form, config, role) for role in "AB")
    core: ByWgmma | ByTcgen05
    if has(tcgen05.ARCH, arch):
        core = ByTcgen05(kernel, form, config)
    else:
        core = ByWgmma(kernel, form, config)
    finish = Epilogue(kernel, form, config, core.total)
    for name in ("ctas", "total", "turns", "width", "reciprocal"):
        kernel.scalar(name)
    ring = Ring(kernel, form, config, core.arrivals)
    if config.cluster > 1:
        kernel.sync("cluster")
    rank = kernel.rank() if config.cluster > 1 else 0
    with (
        kernel.producer(),
        _turn(kernel, config, "p") as starts,
        ring.loop("p") as places,
    ):
        for place in places:
            own, shared = [], []
            for role, operand, start in zip("AB", operands, starts, strict=True):
                if role == config.shared:
                    part = operand.tile(place.stage, start, place.tile, rank, config.cluster)
                    shared.append(part)
                else:
                    own.append(operand.tile(place.stage, start, place.tile))
            free = ring.free, place.stage, place.filled + 1
            kernel.tma_load(ring.full, place.stage, own, free, shared)
    with _turn(kernel, config, "") as starts:
        finish.begin()
        with ring.loop("") as places:
            for place in places:
                with core.starting():
                    kernel.mbarrier_wait(ring.full, place.stage, place.filled)
                a, b = (operand.ring[place.stage] for operand in operands)
                core.start(a, b, place, ring)
                finish.meanwhile(place)
                core.release(place, ring)
        core.end(ring)
        finish.end(starts)
    kernel.tma_store_wait()
    if config.cluster > 1:
        kernel.sync("cluster")
    return kernel.lower()


@dataclass(frozen=True)
class Place:
    """A tile along K: its number, its stage, and how often that was filled before."""

    tile: Any
    stage: Any
    filled: Index


class Ring:
    """The ring of stages, round which the tiles along K go, those of one turn after the other.

    The tile at a position is in stage ``position % stages``; before, the stage was filled
    ``position // stages`` times. Where K takes whole rounds, the stages of a round are numbers. A
    stage is free once no warp of the cluster reads its own copy of it: what fills it fills all.
    """

    def __init__(self, kernel: Kernel, form: Form, config: Config, arrivals: int) -> None:
        """Declare the barriers, and name how many tiles there are along K.

        Args:
            kernel: to add to.
            form: of the kernel.
            config: likewise.
            arrivals: how many free a stage.
        """
        self.kernel, self.stages, self.whole = kernel, config.stages, form.whole
        self.full = kernel.barrier("full", self.stages, 1)
        self.free = kernel.barrier("free", self.stages, arrivals)
        kernel.let("tiles", (Index.free("K") + (config.tile[2] - 1)) // config.tile[2])
        kernel.let("rounds", Index.free("tiles") // self.stages)

    @contextmanager
    def loop(self, prefix: str) -> Iterator[list[Place]]:
        """Go along K; yields the tiles of a round, or one tile."""
        kernel, name = self.kernel, f"{prefix}{'round' if self.whole else 'tile'}"
        steps = Index.free("rounds" if self.whole else "tiles")
        first = kernel.let(f"{prefix}first", Index.free(f"{prefix}turn").times(steps))
        with kernel.loop(name, steps) as step:
            if self.whole:
                filled = as_index(first) + as_index(step)
                yield [Place(step * self.stages + s, s, filled) for s in range(self.stages)]
                return
            position = as_index(kernel.let(f"{prefix}position", as_index(first) + as_index(step)))
            stage = kernel.let(f"{prefix}stage", position % self.stages, self.stages)
            yield [Place(step, stage, position // self.stages)]

    def before(self, stage: Any) -> Any:
        """Return the stage before a stage."""
        if self.whole:
            return (stage - 1) % self.stages
        return (as_index(stage) + (self.stages - 1)) % self.stages

    @property
    def last(self) -> Any:
        """The stage of the last tile along K, after the consumers' loop."""
        if self.whole:
            return self.stages - 1
        end = Index.free("first") + Index.free("tiles")
        return (end + (self.stages - 1)) % self.stages


class Epilogue:
    """Writes ``alpha·D + beta·C`` as the form says, a block of rows of 128 bytes after the other.

    A block goes through one of two swizzled tiles in shared memory, each warpgroup its own rows, so
    that a block is written while the one before leaves. Where registers hold the whole tile beside
    the next one (``late``), it is written while the products of the next turn's first round run, a
    block after each has been started: the tensor cores wait for the conversion alone.
    """

    def __init__(self, kernel: Kernel, form: Form, config: Config, total: Buffer) -> None:
        """Declare the buffers that the form needs; a block in tensor memory comes to registers."""
        self.kernel, self.form, self.config, self.total = kernel, form, config, total
        in_tensor = total.scope == "tmem"
        self.rows = total.shape[0] if in_tensor else 64 * (config.threads // WARPGROUP)
        self.cols = 8 * PERIOD // form.out.bits
        shape = (self.rows, self.cols)
        self.held: Buffer | None = None
        if in_tensor:
            layout = tcgen05_atom_layout("16x256b", shape, "float32")
            self.held = kernel.alloc("block", shape, total.dtype, layout=layout)
        else:
            layout = total.layout.slice(total.shape, ((0, self.rows), (0, self.cols)))
        self.given: Buffer | None = None
        self.coefficients: tuple[Any, ...] = ()
        if form.epilogue == "beta":
            pitch = pitched(kernel.scalar("pitchC"))
            bounds = ("M", "N") if form.edges else None
            self.given = kernel.param("C", (FREE, FREE), form.out, pitch, bounds, EDGE)
        pitch = pitched(kernel.scalar("pitchD"))
        self.result = kernel.param("D", (FREE, FREE), form.out, pitch)
        if form.epilogue:
            names = ("alpha", "beta")[: 1 + (form.epilogue == "beta")]
            self.coefficients = tuple(kernel.scalar(name, "f32") for name in names)
        if form.epilogue == "beta":
            self.added = kernel.alloc("added", shape, "float32", layout=layout)
        self.blocks = [
            (top, left)
            for top in range(0, total.shape[0], self.rows)
            for left in range(0, total.shape[1], self.cols)
        ]
        self.late = (
            form.whole and form.out.bits == 16 and form.epilogue != "beta"
            and not in_tensor and len(self.blocks) <= config.stages
        )  # fmt: skip
        if self.late:
            self.kept = kernel.alloc("kept", total.shape, form.out, layout=total.layout)
        elif form.out.bits == 16:
            self.narrow = kernel.alloc("narrow", shape, form.out, layout=layout)
        tiles = (2, *shape)
        swizzle = swizzled(tiles, PERIOD, form.out.bits)
        self.staging = kernel.alloc("staging", tiles, form.out, "shared", swizzle)

    def begin(self) -> None:
        """Begin a turn: say where the tile of the turn before began; the first turn has none."""
        if self.late:
            self.kernel.let("beforenumber", Index.free("number") - Index.free("ctas"))
            self.before = _starts(self.kernel, self.config, "before")

    def meanwhile(self, place: Place) -> None:
        """Add what is written while the product of a place runs: a block of the turn before."""
        first_round = place.tile, self.config.stages
        if self.late and place.stage < len(self.blocks):
            with self.kernel.when(0, Index.free("turn")), self.kernel.when(*first_round):
                self._write(place.stage, self._block(self.kept, place.stage), self.before)

    def end(self, starts: tuple[Any, Any]) -> None:
        """End a turn, whose tile is complete and began at a row and a column."""
        if not self.late:
            for number in range(len(self.blocks)):
                self._write(number, self._made(number, starts), starts)
            return
        if self.coefficients:
            self.kernel.blend(self.total, self.coefficients[0])
        self.kernel.cast(self.kept, self.total)
        number_after = Index.free("number") + Index.free("ctas")
        with self.kernel.when(Index.free("total"), number_after + 1):
            for number in range(len(self.blocks)):
                self._write(number, self._block(self.kept, number), starts)

    def _block(self, tile: Buffer, number: int) -> BufferRegion:
        top, left = self.blocks[number]
        return tile[top : top + self.rows, left : left + self.cols]

    def _where(self, number: int, starts: tuple[Any, Any]) -> tuple[slice, slice]:
        """Return where a block lies in D and C."""
        row, col = (start + own for start, own in zip(starts, self.blocks[number], strict=True))
        return slice(row, row + self.rows), slice(col, col + self.cols)

    def _made(self, number: int, starts: tuple[Any, Any]) -> BufferRegion:
        """Return a block of the result in registers, in its type."""
        kernel, narrow = self.kernel, self.form.out.bits == 16
        block = self._block(self.total, number)
        if self.held is not None:
            kernel.copy(self.held, block)
            block = self.held.region()
        if self.given is not None:
            where = self._where(number, starts)
            if narrow:
                kernel.copy(self.narrow, self.given[where])
                kernel.cast(self.added, self.narrow)
            else:
                kernel.copy(self.added, self.given[where])
            kernel.blend(block, self.coefficients[0], self.added, self.coefficients[1])
        elif self.coefficients:
            kernel.blend(block, self.coefficients[0])
        if not narrow:
            return block
        kernel.cast(self.narrow, block)
        return self.narrow.region()

    def _write(self, number: int, made: BufferRegion, starts: tuple[Any, Any]) -> None:
        """Add the way of a block from registers to global memory."""
        kernel, tile = self.kernel, self.staging[number % 2]
        # The block before the last went through the same tile, or the last of the turn before.
        kernel.tma_store_wait(int(number > 0 or len(self.blocks) % 2 == 0))
        kernel.sync("warpgroup")
        kernel.copy(tile, made)
        kernel.sync("warpgroup")
        kernel.tma_store((self.result[self._where(number, starts)], tile))


def launch_of(
    problem: Problem,
    form: Form,
    config: Config,
    processors: int,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> tuple[tuple[int, int], dict[str, Any]]:
    """Return the grid and the scalars, by name, of a launch of :func:`program_of`.

    Raises:
        LayoutError: more tiles than a schedule counts.
    """
    m, n, _ = problem.sizes
    numbers = problem.scalars(form, alpha, beta)
    if not config.wgmma:
        return config.grid(m, n), numbers
    schedule = Schedule.of(config, m, n, processors)
    return (schedule.ctas, 1), numbers | schedule.scalars


def simulate(
    form: Form,
    config: Config,
    a: Matrix,
    b: Matrix,
    c: Matrix | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    padding: int = 0,
    processors: int = 2,
    arch: str = "sm_90a",
) -> Matrix:
    """Return the product that the kernel of a form computes, on the NumPy warp.

    Args:
        form: of the kernel, fitted.
        config: likewise.
        a: A as it is stored.
        b: B as it is stored.
        c: C, M x N, where the form has it.
        alpha: where the form has it.
        beta: where the form has it.
        padding: elements between the rows of every matrix, a multiple of 8; NaN is in them.
        processors: how many CTAs share the tiles; of clusters, one at least.
        arch: the target, with ``wgmma`` or with ``tcgen05``.

    Raises:
        SimulationError: the kernel reads what nothing wrote, or races.
        LayoutError: sizes that no kernel takes.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.integers(-4, 5, (64, 72)), rng.integers(-4, 5, (72, 64))
    >>> config = Config((64, 64, 64), (4, 1), 2, 1, bulk=True, producer=True, wgmma=True)
    >>> bool((simulate(Form("float16", "float32"), config, a, b) == a @ b).all())
    True
    """
    problem, given = posed(form, a, b, c, padding)
    grid, numbers = launch_of(problem, form, config, processors, alpha, beta)
    return run_grid(wgmma_program(form, config, arch).body, grid, numbers, given)
