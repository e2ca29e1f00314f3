"""The core of a matmul kernel: the instruction that multiplies a stage, and its accumulator."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from layoutalg import LayoutError, S, TileLayout, tmem_datapath_layout, warpid, wgid
from layoutalg.algebra.axis import WARP
from layoutalg.fragments import transposed
from layoutalg.fragments.targets import has
from lowering.ir.index import Index
from lowering.ir.kernel_ir import Barrier
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tiles import Buffer, BufferRegion
from lowering.isa import tcgen05, wgmma
from lowering.isa.mma import MmaInst
from lowering.isa.tcgen05 import LANES
from lowering.kernels.config import Config, Form, sums_of
from lowering.kernels.pipeline import KTile, Operands
from lowering.programs.kernel import Kernel


def fragments_over(config: Config, row: MmaInst) -> dict[str, tuple[TileLayout, tuple[int, int]]]:
    """Return the register layouts of D, and of A and B for one K step, over all warps of a CTA.

    Warps take rows of mma tiles in turns, so that the n-th of all warps make a block of whole rows,
    which the epilogue stores at once.
    """
    (m, n, _), (along_m, along_n) = config.tile, config.warps
    d, a, b = (row.fragment(role).layout for role in "DAB")
    wide = n // along_n

    def over(layout: TileLayout, grid: tuple[int, int], tile: tuple[int, int]) -> TileLayout:
        warps = TileLayout(S[grid : (along_n @ warpid, 1 @ warpid)])
        return layout.tile(warps, grid, tile)

    d = over(d.tile_to((row.m, wide), (row.m, row.n)), config.warps, (row.m, wide))
    a = over(a, (along_m, 1), (row.m, row.k))
    b = over(b.tile_to((row.k, wide), (row.k, row.n)), (1, along_n), (row.k, wide))
    return {
        "D": (d.tile_to((m, n), (row.m * along_m, n)), (m, n)),
        "A": (a.tile_to((m, row.k), (row.m * along_m, row.k)), (m, row.k)),
        "B": (b, (row.k, n)),
    }


class MmaSync:
    """``mma.sync`` on double-buffered register fragments, which ``ldmatrix`` loads."""

    def __init__(self, kernel: Kernel, form: Form, config: Config, operands: Operands) -> None:
        """Allocate the fragments and the accumulator.

        Raises:
            LayoutError: operands of 8 bits.
        """
        if form.dtype.bits != 16:
            raise LayoutError(f"matmul: {form.dtype} needs a wgmma config; got {config}")
        self.kernel, self.form, self.operands = kernel, form, operands
        layouts = fragments_over(config, form.row)
        self.fragments: list[tuple[Buffer, Buffer]] = []
        for role in "AB":
            layout, shape = layouts[role]
            if form.transposes(role):
                layout, shape = transposed(layout, shape), shape[::-1]
            one, other = (
                kernel.alloc(f"{role}_held{slot}", shape, form.dtype, layout=layout)
                for slot in range(2)
            )
            self.fragments.append((one, other))
        layout, shape = layouts["D"]
        self.total = kernel.alloc("D_held", shape, "float32", layout=layout)
        # What the epilogue stores at once: the n-th rows of tiles of all warps.
        self.block = form.row.m * config.warps[0], config.tile[1]
        rows = config.tile[0]
        half = rows // 2 if rows % (2 * self.block[0]) == 0 else rows
        self.parts = (slice(0, half), *([slice(half, rows)] if half < rows else []))

    def fetch(self, stage: int, step: int, slot: int) -> None:
        """Load the fragments of one K step of a stage into one of the two buffers."""
        for operand, fragments in zip(self.operands, self.fragments, strict=True):
            depth = fragments[slot].shape[operand.along_k]
            box: list[Any] = [stage, slice(None), slice(None)]
            box[1 + operand.along_k] = slice(step * depth, (step + 1) * depth)
            self.kernel.copy(fragments[slot], operand.stages[tuple(box)])

    def multiply(self, slot: int, rows: slice | None = None) -> None:
        """Add the product of the fragments in a buffer, for some rows of D or for all."""
        rows = slice(None) if rows is None else rows
        (a, b), flip = (each[slot] for each in self.fragments), self.form.transpose_A
        self.kernel.gemm(
            self.total[rows], a[:, rows] if flip else a[rows], b, self.total[rows], beta=1,
            transpose_A=flip, transpose_B=self.form.transpose_B,
        )  # fmt: skip


def accumulator(config: Config) -> TileLayout:
    """Return the layout of D over the consumer warpgroups: blocks of 64 rows in turns.

    >>> print(accumulator(Config((128, 64, 64), (8, 1), wgmma=True, bulk=True, producer=True)))
    S[(2,4,2,8,8,4,2):(1@wgid,1@wid_in_wg,2,4@laneid,4,1@laneid,1)]
    """
    (m, n, _), groups = config.tile, config.warps[0] // 4
    width = max(each for each in range(8, 257, 8) if n % each == 0)
    fragment = wgmma.get(width, "f16").fragment("D")
    own = fragment.layout.tile_to((64, n), fragment.shape)
    over = TileLayout(S[(groups, 1) : (1 @ wgid, 1 @ wgid)])
    return own.tile(over, (groups, 1), (64, n)).tile_to((m, n), (64 * groups, n))


class AsyncCore:
    """An asynchronous tensor core, which reads the tiles of a stage from shared memory.

    ``arrivals``: how many complete a phase of a stage's ``free`` mbarrier.
    """

    arrivals = 1
    total: Buffer

    def __init__(self, kernel: Kernel, form: Form) -> None:
        """Hold the kernel and the form."""
        self.kernel, self.form = kernel, form
        self.sums = sums_of(form.dtype)

    def starting(self) -> AbstractContextManager[None]:
        """Choose the threads that wait for a stage and start its product."""
        return nullcontext()

    def start(self, a: BufferRegion, b: BufferRegion, tile: KTile, free: Barrier) -> None:
        """Start the product of a stage; the first of a tile of the result overwrites."""

    def release(self, tile: KTile, free: Barrier) -> None:
        """Free what is read no more; nothing where the tensor core arrives by itself."""

    def finish(self, last: Any, free: Barrier) -> None:
        """Wait for all products of a tile of the result."""

    def _multiply(self, a: BufferRegion, b: BufferRegion, tile: KTile, scope: str | None) -> None:
        accum = tile.number.constant > 0 if tile.opens else tile.number
        self.kernel.gemm_async(
            self.total, a, b, scope=scope, transA=self.form.transpose_A,
            transB=self.form.transpose_B, accum=accum,
        )  # fmt: skip


class WgmmaCore(AsyncCore):
    """``wgmma`` of all warpgroups, in registers; a stage is free once the next product runs."""

    def __init__(self, kernel: Kernel, form: Form, config: Config) -> None:
        """Allocate the accumulator; every warp of the cluster arrives at a stage's mbarrier."""
        super().__init__(kernel, form)
        self.arrivals = config.threads // WARP * config.cluster
        layout = accumulator(config)
        self.total = kernel.alloc("D_held", config.tile[:2], self.sums, layout=layout)

    def start(self, a: BufferRegion, b: BufferRegion, tile: KTile, free: Barrier) -> None:
        """Start the product of a stage, as a wgmma group of its own."""
        self._multiply(a, b, tile, None)
        self.kernel.commit("gemm")

    def release(self, tile: KTile, free: Barrier) -> None:
        """Wait for the product before, if there is one, and free its stage."""
        self.kernel.wait(1, "gemm")
        if not tile.opens:
            self.kernel.arrive(free, tile.before, tile.number > 0, everywhere=True)
        elif tile.number.constant:
            self.kernel.arrive(free, tile.before, everywhere=True)

    def finish(self, last: Any, free: Barrier) -> None:
        """Wait for all products, and free the last stage."""
        self.kernel.wait(0, "gemm")
        self.kernel.arrive(free, last, everywhere=True)


class Tcgen05Core(AsyncCore):
    """``tcgen05.mma`` of thread 0, in tensor memory; ``tcgen05.commit`` frees a stage.

    Assembled and simulated, not executed: no such GPU was at hand.
    """

    def __init__(self, kernel: Kernel, form: Form, config: Config) -> None:
        """Allocate the accumulator, and the mbarrier that its completion arrives at.

        Raises:
            LayoutError: another tile than 128 rows of one warpgroup, or a cluster.
        """
        if (config.tile[0], config.threads, config.cluster) != (LANES, WARPGROUP, 1):
            raise LayoutError(
                f"matmul: tcgen05 takes tiles of {LANES} rows, one warpgroup and no cluster; got "
                f"the tile {config.tile}, {config.threads} threads and {config.cluster} CTAs"
            )
        super().__init__(kernel, form)
        layout = tmem_datapath_layout("D", *config.tile[:2])
        self.total = kernel.alloc("D_held", config.tile[:2], self.sums, "tmem", layout)
        self.done = kernel.barrier("done", 1, 1)

    def starting(self) -> AbstractContextManager[None]:
        """Choose thread 0, for the wait too: another thread's could miss a phase."""
        return self.kernel.when(self.kernel.thread, 1)

    def start(self, a: BufferRegion, b: BufferRegion, tile: KTile, free: Barrier) -> None:
        """Start the product of a stage; its commit frees the stage."""
        self._multiply(a, b, tile, "thread")
        self.kernel.commit("gemm", free, tile.stage)

    def finish(self, last: Any, free: Barrier) -> None:
        """Commit to an mbarrier, and wait for its phase."""
        self.kernel.commit("gemm", self.done)
        self.kernel.mbarrier_wait(self.done, 0, Index.free("turn"))


def async_core(kernel: Kernel, form: Form, config: Config) -> AsyncCore:
    """Return the asynchronous core of a target: ``tcgen05`` where it has that, else ``wgmma``."""
    return (Tcgen05Core if has(tcgen05.ARCH, kernel.arch) else WgmmaCore)(kernel, form, config)
