"""Which tile of the result a CTA takes: one, or one after the other where it is persistent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from layoutalg import LayoutError, S, TileLayout
from layoutalg.algebra.axis import Axis
from lowering.ir.index import FREE, Index
from lowering.kernels.config import Config
from lowering.programs.kernel import Kernel

ROUNDING = 30  # bits after the point of the reciprocal that divides the number of a tile


def tiles_along(tile: int, config: Config) -> int:
    """Return how many tiles lie along M or N at most, those beyond the edge included.

    >>> tiles_along(256, Config(group=8))
    65552
    """
    return -(-FREE // tile) + 2 * config.group * config.cluster


def cta_swizzle(
    group: int, along: Index | None = None, groups: Index | None = None
) -> tuple[Index, Index]:
    """Return row and column, in tiles, of the tile of CTA (bx, by): CTA swizzle.

    A layout over (groups, rows of a group, columns) says them: ``by`` counts groups of rows, ``bx``
    runs down a group, then along N, so that CTAs that run together share operands in L2. Other
    indices than bx and by may be given.

    >>> [str(index) for index in cta_swizzle(8)]
    ['bx % 8 + by * 8', 'bx // 8']
    """
    bx, by = (Axis.get(name) for name in ("bx", "by"))
    shape = (FREE // group * group, FREE)
    order = TileLayout(S[(FREE // group, group, FREE) : (1 @ by, 1 @ bx, group @ bx)])
    inverse = order.inverse(shape)
    place = [Index((), int(value)) for value in inverse.base]
    values = {
        "bx": Index.free("bx") if along is None else along,
        "by": Index.free("by") if groups is None else groups,
    }
    for axis in inverse.axes:
        for digit_place, digit in inverse.digits(axis, values[axis.name]):
            if digit_place is not None and digit_place.dim is not None:
                place[digit_place.dim] += digit * int(digit_place.weight)
    return place[0], place[1]


@dataclass(frozen=True)
class Schedule:
    """How persistent CTAs share the tiles of a result: a CTA takes every ``ctas``-th.

    Tile ``number`` is tile ``number % width`` of group ``number // width`` of rows of tiles. Tiles
    of a cluster are neighbours in this order.

    >>> Schedule.of(Config(wgmma=True, bulk=True, producer=True, warps=(8, 1)), 1024, 512, 132)
    Schedule(ctas=16, total=16, width=16)
    """

    SCALARS: ClassVar = ("ctas", "total", "turns", "width", "reciprocal")  # of a launch

    ctas: int
    total: int
    width: int

    @classmethod
    def of(cls, config: Config, rows: int, cols: int, processors: int) -> Schedule:
        """Return the schedule of a result of so many rows and columns, one CTA per multiprocessor.

        Raises:
            LayoutError: more tiles than can be numbered.
        """
        clusters, groups = config.grid(rows, cols)
        width = clusters * config.cluster
        total = width * groups
        if total * width >> ROUNDING:
            raise LayoutError(
                f"matmul: {rows} x {cols} has too many tiles of {config.tile}: {total}; split it"
            )
        most = max(config.cluster, processors // config.cluster * config.cluster)
        return cls(min(total, most), total, width)

    @property
    def scalars(self) -> dict[str, int]:
        """The scalars of a launch.

        ``number * reciprocal >> 30`` is ``number // width``: the reciprocal is above 2**30 / width
        by less than 1, and number times width stays below 2**30.
        """
        return {
            "ctas": self.ctas,
            "total": self.total,
            "turns": -(-self.total // self.ctas),
            "width": self.width,
            "reciprocal": -(-(1 << ROUNDING) // self.width),
        }


@contextmanager
def one_tile(kernel: Kernel, config: Config) -> Iterator[tuple[Any, Any]]:
    """Give each CTA of a grid one tile; yields the row and column where it begins.

    A CTA whose tile lies beyond the last row does nothing.
    """
    row, col = _named(kernel, config, "", cta_swizzle(config.group))
    with kernel.when(row, Index.free("M")):
        yield row, col


@contextmanager
def persistent_tiles(kernel: Kernel, config: Config, prefix: str) -> Iterator[tuple[Any, Any]]:
    """Loop over the tiles of a persistent CTA; yields the row and column where each begins.

    Args:
        kernel: to add to.
        config: of the kernel.
        prefix: of the variables: producer and consumers have their own.
    """
    with kernel.loop(f"{prefix}turn", Index.free("turns")):
        turn = Index.free(f"{prefix}turn")
        number = turn * Index.free("ctas") + kernel.block[0]
        kernel.let(f"{prefix}number", number)
        with kernel.when(Index.free(f"{prefix}number"), Index.free("total")):
            yield starts_of(kernel, config, prefix)


def starts_of(kernel: Kernel, config: Config, prefix: str) -> tuple[Any, Any]:
    """Return the row and column where the tile begins whose number is the variable of a prefix."""

    def let(name: str, value: Index) -> Index:
        kernel.let(f"{prefix}{name}", value)
        return Index.free(f"{prefix}{name}")

    number, reciprocal = Index.free(f"{prefix}number"), Index.of("reciprocal", 2 << ROUNDING)
    group = let("group", number * reciprocal // (1 << ROUNDING))
    along = let("along", number - group * Index.free("width"))
    rank = kernel.block[0] % config.cluster
    row, col = (
        place * (span // tile) + (rank if span > tile else 0)
        for place, tile, span in zip(
            cta_swizzle(config.group, along // config.cluster, group),
            config.tile[:2],
            config.span,
            strict=True,
        )
    )
    return _named(kernel, config, prefix, (row, col))


def _named(
    kernel: Kernel, config: Config, prefix: str, numbers: tuple[Index, Index]
) -> tuple[Any, Any]:
    """Name the row and column of a tile, counted in tiles, and return where it begins."""
    row, col = (
        kernel.let(f"{prefix}{name}", number, tiles_along(tile, config)) * tile
        for name, number, tile in zip(("row", "col"), numbers, config.tile[:2], strict=True)
    )
    return row, col
