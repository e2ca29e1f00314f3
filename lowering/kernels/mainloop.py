"""The main loop of a matmul kernel: fills the pipeline and multiplies, K tile by K tile.

``mma.sync`` fetches fragments from a stage one K step ahead (:class:`CpAsyncLoop`,
:class:`TmaLoop`); an asynchronous core reads the stage itself (:func:`warp_specialized`).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from lowering.ir.index import Index
from lowering.kernels.config import EDGE, Config, Form
from lowering.kernels.core import AsyncCore, MmaSync
from lowering.kernels.epilogue import TmaEpilogue
from lowering.kernels.pipeline import KTile, KTiles, Operand, Operands, TmaStages
from lowering.kernels.schedule import persistent_tiles
from lowering.programs.kernel import Kernel


class MmaSyncLoop:
    """The K loop of ``mma.sync``: fragment f+1 is fetched while fragment f is multiplied.

    The loop goes round the stages, so that the addresses of each are constants. Tiles beyond K come
    as zeros, so that no copy and no fetch needs a branch.
    """

    def __init__(
        self, kernel: Kernel, form: Form, config: Config, operands: Operands, core: MmaSync
    ) -> None:
        """Hold the parts of the kernel."""
        self.kernel, self.form, self.config = kernel, form, config
        self.operands, self.core, self.stages = operands, core, config.stages

    def run(self, starts: tuple[Any, Any]) -> None:
        """Add the loop for the tile of the result that begins at a row and a column."""
        kernel, config, stages = self.kernel, self.config, self.stages
        self.starts, deep = starts, config.tile[2]
        self.tiles = kernel.let("tiles", (Index.free("K") + (deep - 1)) // deep)
        rounds = kernel.let("rounds", (Index.free("tiles") + (stages - 1)) // stages)
        self._produce(rounds)
        kernel.zero(self.core.total)
        self._fill()
        self.core.fetch(0, 0, 0)
        with kernel.loop("round", rounds) as turn:
            for stage in range(stages):
                tile = turn * stages + stage
                with nullcontext() if self.form.whole else kernel.when(tile, self.tiles):
                    self._enter(stage)
                    for step in range(config.steps):
                        slot = (stage * config.steps + step) % 2
                        self._step(stage, step, slot, tile, turn)
        self._end()

    def _produce(self, rounds: Any) -> None:
        """Add the producer warpgroup's loop, if there is one."""

    def _fill(self) -> None:
        """Fill all stages but one, and wait for the first."""

    def _enter(self, stage: int) -> None:
        """Begin the tile of a stage."""

    def _step(self, stage: int, step: int, slot: int, tile: Any, turn: Any) -> None:
        """Multiply the fragments of a slot, fetch those of the next K step, fill a free stage."""

    def _end(self) -> None:
        """Wait for what is still on its way."""


class CpAsyncLoop(MmaSyncLoop):
    """Stages that all threads fill by ``cp.async``: a commit group and a barrier per tile."""

    def _fill(self) -> None:
        for stage in range(self.stages - 1):
            for part in range(self._parts):
                self._load(stage, stage, part)
            self.kernel.commit()
        self._arrived()

    def _step(self, stage: int, step: int, slot: int, tile: Any, turn: Any) -> None:
        steps, last = self.config.steps, step == self.config.steps - 1
        free = (stage - 1) % self.stages, tile + (self.stages - 1), step
        if last:
            if step < self._parts:  # one step alone: its copies come before the wait
                self._load(*free)
            self.kernel.commit()
            self._arrived()
        self.core.fetch((stage + last) % self.stages, (step + 1) % steps, 1 - slot)
        if step < self._parts and not last:
            self._load(*free)
        self.core.multiply(slot)

    def _end(self) -> None:
        self.kernel.wait(0)

    def _arrived(self) -> None:
        """Wait until the next stage is filled, by all threads."""
        self.kernel.wait(self.stages - 2)
        self.kernel.sync()

    @property
    def _parts(self) -> int:
        """Over how many K steps the copies of a K tile are spread."""
        return max(1, self.config.steps // 2) if self.config.spread else 1

    def _load(self, stage: int, number: Any, part: int) -> None:
        """Copy one part of the tiles of A and B."""
        for operand, start in zip(self.operands, self.starts, strict=True):
            parts = self._cut(operand)
            if part < parts:
                into, source = operand.tile(stage, start, number, 0, part, parts)
                self.kernel.copy(into, source, asynchronous=True)

    def _cut(self, operand: Operand) -> int:
        """Return into how many parts of whole rows, equal for all threads, a K tile is cut."""
        rows, cols = operand.stages.shape[1:]
        vectors = rows * cols // EDGE // self.config.threads
        return self._parts if rows % self._parts == 0 and vectors % self._parts == 0 else 1


class TmaLoop(MmaSyncLoop):
    """Stages that one thread fills by TMA, of a producer warpgroup or of the consumers.

    A stage is ``free`` once every warp has begun the next tile: after a ``__syncwarp`` one lane
    arrives, which releases the ``ldmatrix`` reads of all lanes. An arrival right behind the last
    ``ldmatrix``, without that barrier, was seen to race on an H200. Tile 0 so arrives once for a
    stage that was never filled, and a stage is free for its n-th round with phase n. One tile
    beyond the last is loaded too, as zeros: the last tile waits for it as every other does.
    """

    def __init__(
        self, kernel: Kernel, form: Form, config: Config, operands: Operands, core: MmaSync
    ) -> None:
        """Declare the mbarriers."""
        super().__init__(kernel, form, config, operands, core)
        warps = config.warps[0] * config.warps[1]
        self.pipeline = TmaStages(kernel, config, operands, warps)

    def _produce(self, rounds: Any) -> None:
        if not self.config.producer:
            return
        with self.kernel.producer(), self.kernel.loop("turn", rounds + 1) as turn:
            for stage in range(self.stages):
                tile = turn * self.stages + stage
                with self.kernel.when(tile, self.tiles + 1):
                    parity = turn + int(stage < self.stages - 1)
                    self.pipeline.load(stage, self.starts, tile, parity)

    def _fill(self) -> None:
        for stage in range(0 if self.config.producer else self.stages - 1):
            with self.kernel.when(stage - 1, self.tiles) if stage else nullcontext():
                self.pipeline.load(stage, self.starts, stage)
        self.kernel.mbarrier_wait(self.pipeline.full, 0, 0)

    def _enter(self, stage: int) -> None:
        self.kernel.sync("warp")
        self.kernel.arrive(self.pipeline.free, (stage - 1) % self.stages)

    def _step(self, stage: int, step: int, slot: int, tile: Any, turn: Any) -> None:
        kernel, core, stages, steps = self.kernel, self.core, self.stages, self.config.steps
        if step == (steps - 1) // 2 and not self.config.producer:
            with kernel.when(tile + (stages - 2), self.tiles):
                self.pipeline.load((stage - 1) % stages, self.starts, tile + (stages - 1), turn)
        if step < steps - 1:
            core.fetch(stage, step + 1, 1 - slot)
            core.multiply(slot)
            return
        after = (stage + 1) % stages
        phase = (self.pipeline.full, after, turn + (stage + 1) // stages)
        first, *rest = core.parts
        kernel.try_wait(*phase)
        core.multiply(slot, first)
        kernel.mbarrier_wait(*phase, tried=True)
        core.fetch(after, 0, 1 - slot)
        for rows in rest:
            core.multiply(slot, rows)


def warp_specialized(
    kernel: Kernel,
    form: Form,
    config: Config,
    operands: Operands,
    core: AsyncCore,
    epilogue: TmaEpilogue,
) -> None:
    """Add a producer warpgroup that loads, and consumer warpgroups that multiply and store.

    CTAs are persistent: the producer loads the next tile while the consumers store the last.
    """
    pipeline = TmaStages(kernel, config, operands, core.arrivals)
    k_tiles = KTiles(kernel, form, config)
    if config.cluster > 1:
        kernel.sync("cluster")
    rank = kernel.rank() if config.cluster > 1 else 0
    with (
        kernel.producer(),
        persistent_tiles(kernel, config, "p") as starts,
        k_tiles.loop("p") as tiles,
    ):
        for tile in tiles:
            pipeline.load(tile.stage, starts, tile.number, tile.filled + 1, rank)
    with persistent_tiles(kernel, config, "") as starts:
        epilogue.begin()

        def multiply(tile: KTile) -> None:
            with core.starting():
                kernel.mbarrier_wait(pipeline.full, tile.stage, tile.filled)
            a, b = (operand.stages[tile.stage] for operand in operands)
            core.start(a, b, tile, pipeline.free)
            epilogue.meanwhile(tile, starts)
            core.release(tile, pipeline.free)

        for tile in k_tiles.opening() if epilogue.opens else ():
            multiply(tile)
        with k_tiles.loop("", epilogue.opens) as tiles:
            for tile in tiles:
                multiply(tile)
        epilogue.complete(starts)
        core.finish(k_tiles.last, pipeline.free)
        epilogue.write(starts)
    kernel.tma_store_wait()
    if config.cluster > 1:
        kernel.sync("cluster")
