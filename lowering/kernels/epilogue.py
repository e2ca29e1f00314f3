"""The epilogue of a matmul kernel: what D is of the sums, from the accumulator to global memory."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise
from typing import Any

from layoutalg import S, TileLayout, tcgen05_atom_layout
from layoutalg.layouts.hardware import swizzled_tile
from lowering.ir import expressions
from lowering.ir.expressions import Expression
from lowering.ir.index import FREE, Index
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tiles import Buffer, BufferRegion
from lowering.kernels.config import EDGE, PERIOD, Config, Form
from lowering.kernels.fusion import Given, replaced
from lowering.kernels.pipeline import KTile, pitched
from lowering.kernels.schedule import starts_of
from lowering.programs.kernel import Kernel

Corner = tuple[Any, Any]  # the row and the column where a tile or a block begins


class Source:
    """A matrix that an epilogue reads: a parameter, and its part of a block in registers.

    A row or a column has the layout of the block, with replicas for the dimension that it lacks.
    """

    def __init__(
        self, kernel: Kernel, form: Form, letter: str, given: Given, block: tuple[int, int]
    ) -> None:
        """Declare the parameter.

        Args:
            kernel: to add to.
            form: of the kernel.
            letter: its name there.
            given: the operand.
            block: the extents of a block.
        """
        self.kernel, self.letter, self.given = kernel, letter, given
        self.has = [axis in (given.extents or "") for axis in "MN"]
        extents = [FREE if each else 1 for each in self.has]
        stored = TileLayout(S[tuple(extents) : (1, 1)])
        if all(self.has):
            stored = pitched(kernel.scalar(f"pitch{letter}"))
        bounds = [
            name if each and form.edges else None for name, each in zip("MN", self.has, strict=True)
        ]
        self.memory = kernel.param(letter, extents, given.dtype, stored, bounds, EDGE)
        self.block, self.shape = block, given.shape(block)
        self.parts: list[Buffer] = []
        self._held: list[Corner] = []  # where the part of each block so far begins

    def allocate(self, layout: TileLayout) -> None:
        """Allocate two tiles, so that a part is loaded while the one before is still read."""
        lacking = [dim for dim, each in enumerate(self.has) if not each]
        layout = layout.reduced(self.block, lacking) if lacking else layout
        self.parts = [
            self.kernel.alloc(f"{self.letter}_held{slot}", self.shape, self.given.dtype,
                              layout=layout)
            for slot in range(2)
        ]  # fmt: skip

    def at(self, corner: Corner) -> BufferRegion:
        """Return the part beside a block that begins at a corner of D."""
        return self.memory[
            tuple(
                slice(begin, begin + extent) if each else slice(0, 1)
                for begin, extent, each in zip(corner, self.shape, self.has, strict=True)
            )
        ]

    def load(self, number: int, inside: Corner, corner: Corner) -> None:
        """Load the part of a block, unless the block before has the same.

        Args:
            number: of the block.
            inside: where the block begins in the tile.
            corner: where it begins in D.
        """
        begin = inside[0] * self.has[0], inside[1] * self.has[1]
        self._held[number:] = [begin]
        if not number or self._held[number - 1] != begin:
            self.kernel.copy(self.part(number), self.at(corner))

    def part(self, number: int) -> Buffer:
        """Return the tile that holds the part of a block: parts take turns."""
        held = self._held[: number + 1]
        turns = sum(one != other for one, other in pairwise(held))
        return self.parts[turns % 2]


class Epilogue:
    """Stores the accumulator block by block, by threads.

    Where the output has 16 bits, a block goes through shared memory, so that whole rows leave in
    16-byte vectors; 32 bits leave straight from the registers, four lanes filling 32 bytes.
    """

    def __init__(
        self,
        kernel: Kernel,
        form: Form,
        config: Config,
        total: Buffer,
        shape: tuple[int, int],
        late: bool = False,
    ) -> None:
        """Declare the operands, D and the buffers.

        Args:
            kernel: to add to.
            form: of the kernel.
            config: likewise.
            total: the accumulator, in registers or tensor memory.
            shape: of a block.
            late: whether a tile is stored while the next one is multiplied. It waits in registers,
                where the first operand that fits has come before it.
        """
        self.kernel, self.form, self.config, self.total = kernel, form, config, total
        self.shape, self.loaded, self.late = shape, None, late
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
        self.early: Source | None = None
        self.sources: list[Source] = []
        self.numbers: dict[str, Expression] = {}
        for given, letter in {} if form.epilogue is None else form.epilogue.letters.items():
            self._declare(given, letter, layout)
        pitch = pitched(kernel.scalar("pitchD"))
        # TMA minds the edges itself.
        bounds = ("M", "N") if form.edges and not config.wgmma else None
        self.result = kernel.param("D", (FREE, FREE), form.out, pitch, bounds, EDGE)
        if late:
            self.made = kernel.alloc("kept", total.shape, form.out, layout=total.layout)
        elif form.out != total.dtype:
            self.made = kernel.alloc("narrow", shape, form.out, layout=layout)
        if form.out.bits == 16 or config.wgmma:
            swizzle = swizzled_tile((2, *shape), config.swizzle, form.out.bits)
            self.staging = kernel.alloc("staging", (2, *shape), form.out, "shared", swizzle)

    def _declare(self, given: Given, letter: str, layout: TileLayout) -> None:
        """Declare an operand: the scalar of a number, the parameter and the tiles of a matrix."""
        if given.extents is None:
            self.numbers[given.name] = self.kernel.scalar(letter, "f32")
            return
        source = Source(self.kernel, self.form, letter, given, self.shape)
        if (
            self.late
            and self.early is None
            and given.extents == "MN"
            and (given.dtype == self.form.out)
        ):
            self.early = source
            return
        source.allocate(layout)
        self.sources.append(source)

    def ahead(self, starts: Corner) -> None:
        """Load what the first block needs, for the tile that begins at a row and a column."""
        self._load(0, starts)

    def write(self, starts: Corner) -> None:
        """Store the tile, which is complete."""
        for number in range(len(self.blocks)):
            self._store(number, self._value(number, starts), starts)

    def _load(self, number: int, starts: Corner) -> None:
        """Load the operands of a block, if there is such a block."""
        if number < len(self.blocks):
            for source in self.sources:
                source.load(number, self.blocks[number], self._corner(number, starts))

    def _block(self, tile: Buffer, number: int) -> BufferRegion:
        (top, left), (rows, cols) = self.blocks[number], self.shape
        return tile[top : top + rows, left : left + cols]

    def _corner(self, number: int, starts: Corner) -> Corner:
        """Return where a block begins in D."""
        row, col = (start + own for start, own in zip(starts, self.blocks[number], strict=True))
        return row, col

    def _where(self, number: int, starts: Corner) -> BufferRegion:
        """Return a block of D."""
        (row, col), (rows, cols) = self._corner(number, starts), self.shape
        return self.result[row : row + rows, col : col + cols]

    def _value(self, number: int, starts: Corner) -> BufferRegion:
        """Return the value of a block, in registers; the operands of the next are on their way."""
        kernel, fused = self.kernel, self.form.epilogue
        block = self._block(self.total, number)
        if self.loaded is not None:
            kernel.copy(self.loaded, block)
            block = self.loaded.region()
        self._load(number + 1, starts)
        into = block
        if self.late:
            into = self._block(self.made, number)
        elif self.form.out != self.total.dtype:
            into = self.made.region()
        if fused is not None:
            values = {each.given.name: each.part(number).expression for each in self.sources}
            if self.early is not None:
                values[self.early.given.name] = into.expression
            values |= self.numbers | {fused.accumulated: block.expression}
            node = replaced(fused.node, values, self._corner(number, starts))
            kernel.assign(into, Expression(node, self.shape))
        elif into != block:
            kernel.assign(into, expressions.cast(block, self.form.out))
        return into

    def _store(self, number: int, made: BufferRegion, starts: Corner) -> None:
        """Add the way of a block from registers to global memory."""
        kernel, result = self.kernel, self._where(number, starts)
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
    multiplied, a block for each: the tensor cores wait for the arithmetic alone.

    A late epilogue with arithmetic (``opens``) has the first round of the stages outside the loop
    along K: its first product overwrites the sums at all times, so that the assembler gives their
    registers to the arithmetic. An operand of D's shape and type comes into the registers of the
    tile that has left, spread over some rounds, since it takes sectors of 32 bytes from many rows.
    """

    PARTS = 4  # of a block of that operand: each is loaded in a round of its own (8: no faster)

    def __init__(self, kernel: Kernel, form: Form, config: Config, total: Buffer) -> None:
        """Declare the buffers that the form needs."""
        in_tensor = total.scope == "tmem"
        rows = total.shape[0] if in_tensor else 64 * (config.threads // WARPGROUP)
        cols = 8 * PERIOD // form.out.bits
        blocks = (total.shape[0] // rows) * (total.shape[1] // cols)
        late = form.whole and form.out.bits == 16 and not in_tensor and blocks <= config.stages
        super().__init__(kernel, form, config, total, (rows, cols), late)
        self.opens = late and form.epilogue is not None

    def begin(self) -> None:
        """Begin a tile: name where the tile before began."""
        if self.late:
            self.kernel.let("beforenumber", Index.free("number") - Index.free("ctas"))
            self.before = starts_of(self.kernel, self.config, "before")

    def meanwhile(self, tile: KTile, starts: Corner) -> None:
        """Load and store what can be while wgmma multiplies a K tile.

        The first round of the stages stores the tile before, a block for each stage. Those after it
        load the operand that waits in registers, at the first stages, since its loads are waited
        for at the end of a round. The last one loads what the first block needs besides.
        """
        kernel, whole, stages = self.kernel, self.form.whole, self.config.stages
        if self.sources and not tile.opens and not (whole and tile.stage):
            with kernel.when(Index.free("tiles") <= tile.number + (stages if whole else 1)):
                self.ahead(starts)
        if not self.late or tile.stage >= len(self.blocks):
            return
        if tile.opens or not self.opens:
            first = nullcontext() if tile.opens else kernel.when(tile.number < stages)
            with kernel.when(Index.free("turn") > 0), first:
                self._store(tile.stage, self._block(self.made, tile.stage), self.before)
        if self.early is None or tile.opens:
            return
        brought = range(2 * tile.stage, min(2 * tile.stage + 2, len(self.blocks)))
        for part in range(self.PARTS) if brought else ():
            with kernel.when(tile.number, (part + 2) * stages, (part + 1) * stages):
                for number in brought:
                    self._bring(number, part, starts)

    def complete(self, starts: Corner) -> None:
        """Load what the rounds would have loaded that a short K lacks."""
        if not (self.opens and (self.early or self.sources)):
            return
        rounds = Index.free("rounds")
        with self.kernel.when(rounds <= self.PARTS):
            for part in range(self.PARTS) if self.early else ():
                with self.kernel.when(rounds <= part + 1):
                    for number in range(len(self.blocks)):
                        self._bring(number, part, starts)
            if self.sources:
                with self.kernel.when(rounds <= 1):
                    self.ahead(starts)

    def _bring(self, number: int, part: int, starts: Corner) -> None:
        """Load a part of a block of the operand that waits in registers: some of its columns."""
        assert self.early is not None
        (row, col), wide = self._corner(number, starts), self.shape[1] // self.PARTS
        (top, left), rows, begin = self.blocks[number], self.shape[0], part * wide
        kept = self.made[top : top + rows, left + begin : left + begin + wide]
        given = self.early.memory[row : row + rows, col + begin : col + begin + wide]
        self.kernel.copy(kept, given)

    def write(self, starts: Corner) -> None:
        """Store the tile; where ``late``, only make it, and store it where it is the last."""
        if not self.late:
            super().write(starts)
            return
        for number in range(len(self.blocks)):
            self._value(number, starts)
        number_after = Index.free("number") + Index.free("ctas")
        with self.kernel.when(Index.free("total") <= number_after):
            for number in range(len(self.blocks)):
                self._store(number, self._block(self.made, number), starts)

    def _store(self, number: int, made: BufferRegion, starts: Corner) -> None:
        """Add the way of a block from registers to global memory."""
        kernel, tile = self.kernel, self.staging[number % 2]
        # The block before the last went through the same tile, or the last of the tile before.
        kernel.tma_store_wait(int(number > 0 or len(self.blocks) % 2 == 0))
        kernel.sync("warpgroup")
        kernel.copy(tile, made)
        kernel.sync("warpgroup")
        kernel.tma_store((self._where(number, starts), tile))
