"""The shared-memory pipeline of a matmul kernel: tiles of A and B along K, stage by stage.

What fills a stage, and when, is the main loop's (:mod:`lowering.kernels.mainloop`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from layoutalg import S, TileLayout
from layoutalg.layouts.hardware import swizzled_tile
from lowering.ir.index import FREE, Index
from lowering.ir.tiles import Buffer, BufferRegion
from lowering.kernels.config import EDGE, Config, Form
from lowering.programs.kernel import Kernel


def pitched(pitch: Any) -> TileLayout:
    """Return a matrix in memory whose rows are ``8*pitch`` elements apart."""
    return TileLayout(S[(FREE, FREE) : (EDGE * pitch, 1)])


@dataclass(frozen=True)
class Operand:
    """A or B as it is stored, and a swizzled tile of it in each stage of the pipeline.

    ``along_k``: which dimension of the stored matrix is K.
    """

    given: Buffer
    stages: Buffer
    along_k: int

    @classmethod
    def of(cls, kernel: Kernel, form: Form, config: Config, role: str) -> Operand:
        """Declare the buffers of A or B."""
        m, n, k = config.tile
        shape, names = {"A": ((m, k), "MK"), "B": ((k, n), "KN")}[role]
        if form.transposes(role):
            shape, names = shape[::-1], names[::-1]
        # A wgmma config leaves the edges to TMA, which minds them at no cost.
        bounded = form.edges or config.wgmma
        bounds = tuple(name if bounded or name == "K" else None for name in names)
        pitch = pitched(kernel.scalar(f"pitch{role}"))
        given = kernel.param(role, (FREE, FREE), form.dtype, pitch, bounds, EDGE)
        tiles = (config.stages, *shape)
        layout = swizzled_tile(tiles, config.swizzle, form.dtype.bits)
        stages = kernel.alloc(f"{role}_stages", tiles, form.dtype, "shared", layout)
        return cls(given, stages, names.index("K"))

    def tile(
        self, stage: Any, start: Any, number: Any, dim: int = 0, part: Any = 0, parts: int = 1
    ) -> tuple[BufferRegion, BufferRegion]:
        """Return a stage and the K tile that goes there, or one part of both.

        Args:
            stage: of the pipeline.
            start: where the tile begins along M or N.
            number: of the tile along K.
            dim: the dimension that is cut into parts.
            part: which one.
            parts: how many there are.
        """
        shape = list(self.stages.shape[1:])
        corner = [start, start]
        corner[self.along_k] = number * shape[self.along_k]
        shape[dim] //= parts
        inside: list[Any] = [0, 0]
        inside[dim] = part * shape[dim]

        def box(begins: list[Any]) -> tuple[slice, ...]:
            return tuple(slice(at, at + n) for at, n in zip(begins, shape, strict=True))

        into = (stage, *box(inside))
        outside = box([at + more for at, more in zip(corner, inside, strict=True)])
        return self.stages[into], self.given[outside]


Operands = tuple[Operand, Operand]


class TmaStages:
    """Stages that TMA fills, with two mbarriers each.

    A stage is ``full`` once its bytes have come, and ``free`` once no warp of the cluster reads it,
    since a multicast fills it in all CTAs.
    """

    def __init__(self, kernel: Kernel, config: Config, operands: Operands, arrivals: int) -> None:
        """Declare the mbarriers; ``arrivals`` complete a phase of ``free``."""
        self.kernel, self.config, self.operands = kernel, config, operands
        self.full = kernel.barrier("full", config.stages, 1)
        self.free = kernel.barrier("free", config.stages, arrivals)

    def load(self, stage: Any, starts: Any, number: Any, parity: Any = None, rank: Any = 0) -> None:
        """Fill a stage with a K tile.

        Args:
            stage: of the pipeline.
            starts: row and column of the tile of the result.
            number: of the tile along K.
            parity: of the phase of ``free`` to wait for; None where nothing was in the stage.
            rank: of the CTA in its cluster: which part it loads of the operand that all share.
        """
        own, shared = [], []
        for role, operand, start in zip("AB", self.operands, starts, strict=True):
            if role == self.config.shared:
                dim, parts = 1 - operand.along_k, self.config.cluster
                shared.append(operand.tile(stage, start, number, dim, rank, parts))
            else:
                own.append(operand.tile(stage, start, number))
        free = None if parity is None else (self.free, stage, parity)
        self.kernel.tma_load(self.full, stage, own, free, shared)


@dataclass(frozen=True)
class KTile:
    """A K tile: its number, its stage, the stage before, how often its stage was filled before."""

    number: Index
    stage: Any
    before: Any
    filled: Index

    @property
    def opens(self) -> bool:
        """Whether it is of a round outside the loop: its number is known."""
        return not self.number.terms


class KTiles:
    """The K tiles of one persistent tile after the other, which go round the stages.

    The K tile at a position is in stage ``position % stages``, which was filled
    ``position // stages`` times before. Where the form is ``whole``, stages are constants.
    """

    def __init__(self, kernel: Kernel, form: Form, config: Config) -> None:
        """Name how many K tiles there are."""
        self.kernel, self.stages, self.whole = kernel, config.stages, form.whole
        kernel.let("tiles", (Index.free("K") + (config.tile[2] - 1)) // config.tile[2])
        kernel.let("rounds", Index.free("tiles") // self.stages)

    def opening(self) -> list[KTile]:
        """Return the K tiles of the consumers' first round, of a whole form: outside their loop."""
        return self._round(self._first(""), Index())

    @contextmanager
    def loop(self, prefix: str, opened: bool = False) -> Iterator[list[KTile]]:
        """Loop over K; yields the K tiles of all stages, or one K tile.

        Args:
            prefix: of the variables.
            opened: whether :meth:`opening` had the first round.
        """
        kernel, stages = self.kernel, self.stages
        first = Index.free("first") if opened else self._first(prefix)
        steps = Index.free("rounds" if self.whole else "tiles") - int(opened)
        with kernel.loop(f"{prefix}{'round' if self.whole else 'tile'}", steps) as step:
            if self.whole:
                yield self._round(first, step + int(opened))
                return
            position = kernel.let(f"{prefix}position", first + step)
            stage = kernel.let(f"{prefix}stage", position % stages, stages)
            before = (stage + (stages - 1)) % stages
            yield [KTile(step, stage, before, position // stages)]

    def _first(self, prefix: str) -> Index:
        """Name the first position of a persistent tile, in K tiles or in rounds."""
        steps = Index.free("rounds" if self.whole else "tiles")
        return self.kernel.let(f"{prefix}first", Index.free(f"{prefix}turn") * steps)

    def _round(self, first: Index, step: Index) -> list[KTile]:
        """Return the K tiles of one round of the stages."""
        stages = self.stages
        return [
            KTile(step * stages + stage, stage, (stage - 1) % stages, first + step)
            for stage in range(stages)
        ]

    @property
    def last(self) -> Any:
        """The stage of the last K tile, after the consumers' loop."""
        if self.whole:
            return self.stages - 1
        end = Index.free("first") + Index.free("tiles")
        return (end + (self.stages - 1)) % self.stages
