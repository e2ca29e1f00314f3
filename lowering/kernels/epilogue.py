"""The epilogue of a matmul kernel: ``alpha·D + beta·C`` from the accumulator to global memory."""

from __future__ import annotations

from typing import Any

from layoutalg import tcgen05_atom_layout
from layoutalg.layouts.hardware import swizzled_tile
from lowering.ir.index import FREE, Index
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tiles import Buffer, BufferRegion
from lowering.kernels.config import EDGE, PERIOD, Config, Form
from lowering.kernels.pipeline import KTile, pitched
from lowering.kernels.schedule import starts_of
from lowering.programs.kernel import Kernel


class Epilogue:
    """Stores the accumulator block by block, by threads.

    Where the output has 16 bits, a block goes through shared memory, so that whole rows leave in
    16-byte vectors; f32 leaves straight from the registers, four lanes filling 32 bytes.
    """

    late = False  # whether a tile is stored while the next one is multiplied

    def __init__(
        self, kernel: Kernel, form: Form, config: Config, total: Buffer, shape: tuple[int, int]
    ) -> None:
        """Declare the parameters C and D, the factors and the buffers.

        Args:
            kernel: to add to.
            form: of the kernel.
            config: likewise.
            total: the accumulator, in registers or tensor memory.
            shape: of a block.
        """
        self.kernel, self.form, self.config, self.total = kernel, form, config, total
        self.shape, self.loaded = shape, None
        self.blocks = [
            (top, left)
            for top in range(0, total.shape[0], shape[0])
            for left in range(0, total.shape[1], shape[1])
        ]
        if total.scope == "tmem":
            layout = tcgen05_atom_layout("16x256b", shape, "float32")
            self.loaded = kernel.alloc("block", shape, total.dtype, layout=layout)
        else:
            layout = total.layout.slice(total.shape, tuple((0, extent) for extent in shape))
        bounds = ("M", "N") if form.edges else None
        if form.epilogue == "beta":
            pitch = pitched(kernel.scalar("pitchC"))
            self.given = kernel.param("C", (FREE, FREE), form.out, pitch, bounds, EDGE)
        pitch = pitched(kernel.scalar("pitchD"))
        bounds = None if config.wgmma else bounds  # TMA minds the edges itself
        self.result = kernel.param("D", (FREE, FREE), form.out, pitch, bounds, EDGE)
        names = {"": (), "alpha": ("alpha",), "beta": ("alpha", "beta")}[form.epilogue]
        self.coefficients = [kernel.scalar(name, "f32") for name in names]
        if form.epilogue == "beta":
            self.added = kernel.alloc("added", shape, "float32", layout=layout)
        if self.late:
            self.narrow = kernel.alloc("kept", total.shape, form.out, layout=total.layout)
        elif form.out.bits == 16:
            self.narrow = kernel.alloc("narrow", shape, form.out, layout=layout)
        if form.out.bits == 16 or config.wgmma:
            swizzle = swizzled_tile((2, *shape), config.swizzle, form.out.bits)
            self.staging = kernel.alloc("staging", (2, *shape), form.out, "shared", swizzle)

    def write(self, starts: tuple[Any, Any]) -> None:
        """Store the tile, which is complete and begins at a row and a column."""
        for number in range(len(self.blocks)):
            self._store(number, self._made(number, starts), starts)

    def _block(self, tile: Buffer, number: int) -> BufferRegion:
        (top, left), (rows, cols) = self.blocks[number], self.shape
        return tile[top : top + rows, left : left + cols]

    def _where(self, number: int, starts: tuple[Any, Any]) -> tuple[slice, slice]:
        """Return where a block lies in D and C."""
        row, col = (start + own for start, own in zip(starts, self.blocks[number], strict=True))
        return slice(row, row + self.shape[0]), slice(col, col + self.shape[1])

    def _made(self, number: int, starts: tuple[Any, Any]) -> BufferRegion:
        """Return a block of ``alpha·D + beta·C`` in registers, in the output's type."""
        kernel, narrow = self.kernel, self.form.out.bits == 16
        block = self._block(self.total, number)
        if self.loaded is not None:
            kernel.copy(self.loaded, block)
            block = self.loaded.region()
        if self.form.epilogue == "beta":
            given = self.given[self._where(number, starts)]
            if narrow:
                kernel.copy(self.narrow, given)
                kernel.cast(self.added, self.narrow)
            else:
                kernel.copy(self.added, given)
            kernel.blend(block, self.coefficients[0], self.added, self.coefficients[1])
        elif self.coefficients:
            kernel.blend(block, self.coefficients[0])
        if not narrow:
            return block
        kernel.cast(self.narrow, block)
        return self.narrow.region()

    def _store(self, number: int, made: BufferRegion, starts: tuple[Any, Any]) -> None:
        """Add the way of a block from registers to global memory."""
        kernel, result = self.kernel, self.result[self._where(number, starts)]
        if self.form.out.bits != 16:
            kernel.copy(result, made)
            return
        tile = self.staging[number % 2]
        kernel.copy(tile, made)
        kernel.sync()
        kernel.copy(result, tile)


class TmaEpilogue(Epilogue):
    """Stores the accumulator by TMA, in blocks of rows of 128 bytes.

    A block goes through one of two swizzled tiles in shared memory, each warpgroup its own rows, so
    that one is written while TMA reads the other. Where registers have room for a converted tile
    beside the accumulator (``late``), it is stored while the first K tiles of the next tile are
    multiplied, a block for each: the tensor cores wait for the conversion alone.
    """

    def __init__(self, kernel: Kernel, form: Form, config: Config, total: Buffer) -> None:
        """Declare the buffers that the form needs."""
        in_tensor = total.scope == "tmem"
        rows = total.shape[0] if in_tensor else 64 * (config.threads // WARPGROUP)
        cols = 8 * PERIOD // form.out.bits
        blocks = (total.shape[0] // rows) * (total.shape[1] // cols)
        self.late = (
            form.whole and form.out.bits == 16 and form.epilogue != "beta"
            and not in_tensor and blocks <= config.stages
        )  # fmt: skip
        super().__init__(kernel, form, config, total, (rows, cols))

    def begin(self) -> None:
        """Begin a tile: name where the tile before began."""
        if self.late:
            self.kernel.let("beforenumber", Index.free("number") - Index.free("ctas"))
            self.before = starts_of(self.kernel, self.config, "before")

    def meanwhile(self, tile: KTile) -> None:
        """Store a block of the previous output tile while the wgmma of this K tile runs."""
        first_round = tile.number, self.config.stages
        if self.late and tile.stage < len(self.blocks):
            with self.kernel.when(0, Index.free("turn")), self.kernel.when(*first_round):
                self._store(tile.stage, self._block(self.narrow, tile.stage), self.before)

    def write(self, starts: tuple[Any, Any]) -> None:
        """Store the tile; where ``late``, convert it, and store it only where it is the last."""
        if not self.late:
            super().write(starts)
            return
        if self.coefficients:
            self.kernel.blend(self.total, self.coefficients[0])
        self.kernel.cast(self.narrow, self.total)
        number_after = Index.free("number") + Index.free("ctas")
        with self.kernel.when(Index.free("total"), number_after + 1):
            for number in range(len(self.blocks)):
                self._store(number, self._block(self.narrow, number), starts)

    def _store(self, number: int, made: BufferRegion, starts: tuple[Any, Any]) -> None:
        """Add the way of a block from registers to global memory."""
        kernel, tile = self.kernel, self.staging[number % 2]
        # The block before the last went through the same tile, or the last of the tile before.
        kernel.tma_store_wait(int(number > 0 or len(self.blocks) % 2 == 0))
        kernel.sync("warpgroup")
        kernel.copy(tile, made)
        kernel.sync("warpgroup")
        kernel.tma_store((self.result[self._where(number, starts)], tile))
