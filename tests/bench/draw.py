"""Our pictures and tensor-layouts' in one process: ``python -m tests.bench.draw [--rounds 5]``.

The triple of mma.m16n8k16 and the accumulators of one warp over 64 x 64 and 128 x 128, as SVG and
PNG: seconds to write the file, and its size, beside tensor-layouts' pictures of the same maps.
Rounds of ours and of theirs alternate; theirs of 64 x 64 and more are timed once, they take long.

Seconds are of the processor, the best round, so that what else the machine does counts little; the
median by the clock stands beside them. On an idle machine the two agree: nothing here waits. The
exit status is 1 where one of ours misses its budget.

Compares with tensor-layouts 0.3.2 where that is installed, and says where it is not.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from layoutalg import draw, fragments
from layoutalg.draw.scene import mpl

Write = Callable[[Path], Any]
INSTRUCTION = "mma.m16n8k16.f16"
KILO, MEGA = 1_000, 1_000_000


class Picture(NamedTuple):
    """A picture, by suffix: what writes it, the seconds and bytes that it may take."""

    name: str
    ours: Write
    budgets: dict[str, tuple[float, int | None]]
    theirs: Write | None
    theirs_rounds: int


class Row(NamedTuple):
    """Seconds and bytes; 0 where nothing was timed."""

    name: str
    seconds: float
    clock: float
    size: int
    budget: tuple[float, int | None]
    their_seconds: float
    their_size: int

    @property
    def within(self) -> bool:
        """Whether the budget is kept."""
        seconds, size = self.budget
        return self.seconds <= seconds and (size is None or self.size <= size)


def foreign() -> Any | None:
    """Return tensor-layouts, with its pictures and atoms, or None where it is not installed."""
    try:
        library = importlib.import_module("tensor_layouts")
    except ImportError:
        return None
    for part in ("viz", "atoms_nv"):
        importlib.import_module(f"tensor_layouts.{part}")
    return library


def their_triple(library: Any) -> Write:
    """Return what draws the same triple."""
    atom = library.atoms_nv.SM80_16x8x16_F32F16F16F32_TN

    def write(path: Path) -> None:
        library.viz.draw_mma_layout(
            atom.a_layout, atom.b_layout, atom.c_layout, str(path), tile_mnk=(16, 8, 16)
        )

    return write


def their_map(library: Any, extent: int) -> Write:
    """Return what draws the accumulators over a square: threads and values, column-major."""
    tiles = extent // 16, extent // 8
    layout = library.Layout(
        ((4, 8), (2, 2, *tiles)), ((2 * extent, 1), (extent, 8, 16, 8 * extent))
    )

    def write(path: Path) -> None:
        library.viz.draw_tv_layout(layout, str(path), colorize=True, grid_shape=(extent, extent))

    return write


def our_map(extent: int) -> Write:
    """Return what draws the accumulators over a square."""
    layout = fragments.get(INSTRUCTION, "D").tiled(extent, extent)
    return lambda path: draw.lane_map(layout, (extent, extent), path=path)


def pictures(library: Any | None) -> tuple[Picture, ...]:
    """Return what is timed."""
    return (
        Picture(
            "m16n8k16 triple",
            lambda path: draw.operands(INSTRUCTION, path=path),
            {".svg": (0.05, 120 * KILO), ".png": (0.7, None)},
            None if library is None else their_triple(library),
            3,
        ),
        Picture(
            "64 x 64",
            our_map(64),
            {".svg": (0.1, None), ".png": (0.5, None)},
            None if library is None else their_map(library, 64),
            1,
        ),
        Picture(
            "128 x 128",
            our_map(128),
            {".svg": (0.3, 4 * MEGA), ".png": (1.0, None)},
            None if library is None else their_map(library, 128),
            1,
        ),
    )


def timed(write: Write, path: Path) -> tuple[float, float]:
    """Return the seconds of one call, of the processor and by the clock; close what it opened."""
    begin = time.process_time(), time.perf_counter()
    write(path)
    seconds = time.process_time() - begin[0], time.perf_counter() - begin[1]
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
    return seconds


def compared(picture: Picture, suffix: str, rounds: int, folder: Path) -> Row:
    """Time a picture as a file of a kind; rounds of ours and of theirs alternate."""
    mine, other = folder / f"ours{suffix}", folder / f"theirs{suffix}"
    ours, theirs = [], []
    for n in range(rounds):
        ours.append(timed(picture.ours, mine))
        if picture.theirs is not None and n < picture.theirs_rounds:
            theirs.append(timed(picture.theirs, other))
    return Row(
        f"{picture.name} {suffix[1:].upper()}",
        min(seconds for seconds, _ in ours),
        statistics.median(clock for _, clock in ours),
        mine.stat().st_size,
        picture.budgets[suffix],
        min((seconds for seconds, _ in theirs), default=0.0),
        other.stat().st_size if theirs else 0,
    )


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return 1 where a budget is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.draw", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="times that each of ours is written")
    rounds = parser.parse_args(arguments).rounds
    library = foreign()
    if library is None:
        print("TENSOR-LAYOUTS IS NOT INSTALLED HERE: OURS ALONE")
    mpl.rendered(draw.operands.scene(INSTRUCTION), "png")  # fonts are loaded once
    print(
        f"{'picture':22} {'best s':>7} {'clock':>7} {'kB':>6} {'budget':>13} {'theirs s':>9} "
        f"{'kB':>6} {'times':>6}"
    )
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        for picture in pictures(library):
            for suffix in picture.budgets:
                row = compared(picture, suffix, rounds, Path(folder))
                seconds, size = row.budget
                most = f"{seconds:g} s" + (f" {size // KILO} kB" if size else "")
                theirs = ""
                if row.their_seconds:
                    factor = row.their_seconds / row.seconds
                    theirs = f"{row.their_seconds:9.3f} {row.their_size // KILO:6} {factor:6.0f}"
                mark = "" if row.within else "  MISSED"
                print(
                    f"{row.name:22} {row.seconds:7.3f} {row.clock:7.3f} {row.size // KILO:6} "
                    f"{most:>13} {theirs}{mark}",
                    flush=True,
                )
                missed |= not row.within
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
