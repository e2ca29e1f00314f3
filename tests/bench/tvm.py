"""Our calls and TVM's side by side, in one process: ``python -m tests.bench.tvm [--rounds 30]``.

For the fragments of mma.m16n8k16 and for a 64x64x16 tile of 2x2 warps: the median time of a call on
a layout that has not answered it before ("first"), and on one that has ("again": ours remember),
beside TVM's. Rounds of ours and of TVM's alternate. The exit status is 1 where a first call takes
longer than TVM's, where the table of a 128x256 tile is not 100 times faster than TVM's element by
element, or where a warm symbolic apply takes 2 ms.

``--cold`` takes five layouts as kernels have them (two fragments of mma, an accumulator of wgmma,
shared and tensor memory), makes every operand afresh for each call, and prints for each operation
the ratio to TVM's time on each layout and the geometric mean; the exit status is 1 where a mean is
above 1.

Needs apache-tvm 0.27.0.post1: the extra ``oracle``.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from layoutalg import Axis, Iter, S, TileLayout, laneid
from tests.fuzz.algebra.tvm_side import Tvm
from tests.support.vectors import plain

CALLS = 100  # calls timed at a stretch, each on a layout of its own
TABLE_FACTOR = 100.0
SYMBOLIC_LIMIT = 2000.0  # microseconds


class Side(NamedTuple):
    """The same names on either side: ours, or TVM's."""

    layout: Any
    spec: Any
    iter: Any
    axes: dict[str, Any]


class Subject(NamedTuple):
    """A layout on both sides, its shape, and a region of it."""

    name: str
    pair: tuple[Any, Any]
    shape: tuple[int, ...]
    region: tuple[tuple[int, int], ...]


class Row(NamedTuple):
    """One line of the table: medians in microseconds."""

    name: str
    first: float
    again: float
    theirs: float

    @property
    def ratio(self) -> float:
        return self.first / self.theirs


# -- what is timed ----------------------------------------------------------------------------


def built(side: Side) -> list[tuple[str, Any, tuple[int, ...], tuple[tuple[int, int], ...]]]:
    """Build the fragments and the tiles of 2x2 warps with one side's own operations."""
    lane, warp, spec, layout = side.axes["laneid"], side.axes["warpid"], side.spec, side.layout
    d = layout(spec[(2, 8, 4, 2) : (2, 4 @ lane, 1 @ lane, 1)])
    a = layout(spec[(2, 8, 2, 4, 2) : (2, 4 @ lane, 4, 1 @ lane, 1)])
    b = layout(spec[(2, 4, 2, 8) : (2, 1 @ lane, 1, 4 @ lane)])
    both = layout(spec[(2, 2) : (2 @ warp, 1 @ warp)])
    rows, columns = layout(spec[(2, 1) : (2 @ warp, 1)]), layout(spec[(1, 2) : (1, 1 @ warp)])
    return [
        ("D 16x8", d, (16, 8), ((8, 16), (0, 8))),
        ("A 16x16", a, (16, 16), ((0, 16), (8, 16))),
        ("B 16x8", b, (16, 8), ((8, 16), (0, 8))),
        ("D 64x64, 2x2 warps", d.tile_to([32, 32], [16, 8]).tile(both, [2, 2], [32, 32]),
         (64, 64), ((0, 32), (32, 64))),
        ("A 64x16, 2x2 warps", a.tile_to([32, 16], [16, 16]).tile(rows, [2, 1], [32, 16]),
         (64, 16), ((16, 32), (0, 16))),
        ("B 16x64, 2x2 warps", b.tile_to([16, 32], [16, 8]).tile(columns, [1, 2], [16, 32]),
         (16, 64), ((0, 16), (8, 16))),
    ]  # fmt: skip


def five(side: Side) -> list[tuple[str, Any, tuple[int, ...], tuple[tuple[int, int], ...]]]:
    """Build the five layouts of ``--cold`` with one side's own operations."""
    lane, warp, spec, layout = side.axes["laneid"], side.axes["wid_in_wg"], side.spec, side.layout
    rows, columns = side.axes["TLane"], side.axes["TCol"]
    return [
        ("mma D", layout(spec[(2, 8, 4, 2) : (2, 4 @ lane, 1 @ lane, 1)]),
         (16, 8), ((8, 16), (0, 8))),
        ("mma A", layout(spec[(2, 8, 2, 4, 2) : (2, 4 @ lane, 4, 1 @ lane, 1)]),
         (16, 16), ((0, 16), (8, 16))),
        ("wgmma", layout(spec[(4, 2, 8, 8, 4, 2) : (1 @ warp, 2, 4 @ lane, 4, 1 @ lane, 1)]),
         (64, 64), ((16, 32), (32, 64))),
        ("smem", layout(spec[(128, 64) : (64, 1)]), (128, 64), ((32, 64), (0, 32))),
        ("tmem", layout(spec[(128, 256) : (1 @ rows, 1 @ columns)]),
         (128, 256), ((32, 64), (128, 256))),
    ]  # fmt: skip


def subjects(
    build: Callable[[Side], Sequence[Any]], ours: Side, theirs: Side, tvm: Tvm
) -> Iterator[Subject]:
    """Yield each layout, once it is the same on both sides."""
    for left, right in zip(build(ours), build(theirs), strict=True):
        name, mine, shape, region = left
        if plain(mine) != tvm.plain(right[1]):
            raise SystemExit(f"{name} differs: {plain(mine)}, TVM {tvm.plain(right[1])}")
        yield Subject(name, (mine, right[1]), shape, region)


def constructors(side: Side, layout: TileLayout) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what builds the layout by ``S[...]``, and what builds it by ``from_iters``."""
    extents = tuple(int(it.extent) for it in layout.shard)
    terms = [(int(it.stride), side.axes[it.axis.name]) for it in layout.shard]
    iters = [(e, s, axis) for e, (s, axis) in zip(extents, terms, strict=True)]
    make, spec, new = side.layout, side.spec, side.iter

    def by_spec() -> Any:
        return make(spec[extents : tuple([stride @ axis for stride, axis in terms])])

    def by_iters() -> Any:
        return make.from_iters([new(*each) for each in iters], [], {})

    return by_spec, by_iters


def calls(subject: Subject) -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    """Yield the name of an operation, our call of it, and TVM's."""
    shape, region = subject.shape, subject.region
    listed, double = list(shape), tuple(2 * extent for extent in shape)
    inside = [(begin, end) for begin, end in region]
    yield "apply flat", lambda x: x.apply(37), lambda x: x.apply(37)
    yield "apply", lambda x: x.apply(9, 3, shape=shape), lambda x: x.apply(9, 3, shape=listed)
    yield "canonicalize", lambda x: x.canonicalize(), lambda x: x.canonicalize()
    yield "canonicalize cuda", lambda x: x.canonicalize("cuda"), lambda x: x.canonicalize()
    yield "group", lambda x: x.group(shape), lambda x: x.group(listed)
    yield "tile_to", lambda x: x.tile_to(double, shape), lambda x: x.tile_to(list(double), listed)
    yield "slice", lambda x: x.slice(shape, region), lambda x: x.slice(listed, inside)


# -- timing -----------------------------------------------------------------------------------


def stretch(call: Callable[[Any], Any], arguments: Sequence[Any]) -> float:
    """Return the time of one call, in microseconds of this process, over a stretch of them."""
    gc.disable()
    begun = time.process_time_ns()
    for argument in arguments:
        call(argument)
    spent = (time.process_time_ns() - begun) / 1e9
    gc.enable()
    return spent / len(arguments) * 1e6


def compared(
    name: str,
    ours: Callable[[Any], Any],
    theirs: Callable[[Any], Any],
    makers: tuple[Callable[[], Any], Callable[[], Any]],
    rounds: int,
) -> Row:
    """Time our call and TVM's in turn, each on layouts just made."""
    mine, warm, other = [], [], []
    for _ in range(rounds):
        fresh, foreign = ([make() for _ in range(CALLS)] for make in makers)
        mine.append(stretch(ours, fresh))
        other.append(stretch(theirs, foreign))
        warm.append(stretch(ours, [fresh[0]] * CALLS))
    return Row(name, *map(statistics.median, (mine, warm, other)))


def both_sides(tvm: Tvm) -> tuple[Side, Side]:
    """Return our names and TVM's."""
    ours = Side(TileLayout, S, Iter, dict(Axis.registry))
    return ours, Side(tvm.lib.TileLayout, tvm.lib.S, tvm.lib.Iter, tvm.axes)


def ignoring(make: Callable[[], Any]) -> Callable[[Any], Any]:
    """Return a call that takes an argument and only makes."""
    return lambda _: make()


def nothing() -> None:
    """Make no layout: what builds one needs none."""


NOTHING = nothing, nothing


def rows(tvm: Tvm, rounds: int) -> Iterator[Row]:
    """Yield the lines of the table."""
    ours, theirs = both_sides(tvm)
    for subject in subjects(built, ours, theirs, tvm):
        mine = subject.pair[0]
        (own_spec, own_iters), (its_spec, its_iters) = (
            constructors(side, mine) for side in (ours, theirs)
        )
        making = (("S[...]", own_spec, its_spec), ("from_iters", own_iters, its_iters))
        for name, own, its in making:
            yield compared(f"{subject.name}: {name}", ignoring(own), ignoring(its), NOTHING, rounds)
        for name, left, right in calls(subject):
            with tvm.target_of("cuda" if "cuda" in name else None):
                yield compared(
                    f"{subject.name}: {name}", left, right, (own_iters, its_iters), rounds
                )


def cold(tvm: Tvm, rounds: int) -> int:
    """Print the table of ``--cold``; return 1 where the mean of an operation is above 1."""
    sides = both_sides(tvm)
    found: dict[str, list[Row]] = {}
    names = []
    for subject in subjects(five, *sides, tvm):
        names.append(subject.name)
        makers = [constructors(side, subject.pair[0])[1] for side in sides]
        shape, size = subject.shape, math.prod(subject.shape)
        outer = TileLayout(S[(2, 2) : (2 * size, size)])
        outers = [constructors(side, outer)[1] for side in sides]
        for name, ours, theirs in calls(subject):
            with tvm.target_of("cuda" if "cuda" in name else None):
                row = compared(name, ours, theirs, (makers[0], makers[1]), rounds)
            found.setdefault(name, []).append(row)
        row = compared(
            "direct_sum",
            lambda pair, s=shape: pair[0].direct_sum(pair[1], (2, 2), s),
            lambda pair, s=list(shape): pair[0].direct_sum(pair[1], [2, 2], s),
            (joined(makers[0], outers[0]), joined(makers[1], outers[1])),
            rounds,
        )
        found.setdefault(row.name, []).append(row)
    print(f"{'first/TVM':18}{''.join(f'{name:>9}' for name in names)}{'mean':>9}")
    slow = 0
    for name, lines in found.items():
        mean = statistics.geometric_mean(row.ratio for row in lines)
        slow |= mean > 1
        print(f"{name:18}{''.join(f'{row.ratio:9.2f}' for row in lines)}{mean:9.2f}")
        for label in ("first", "theirs"):
            print(f"  {label:16}{''.join(f'{getattr(row, label):9.2f}' for row in lines)} us")
    return slow


def joined(make: Callable[[], Any], other: Callable[[], Any]) -> Callable[[], Any]:
    """Return what makes a pair of layouts."""
    return lambda: (make(), other())


def whole_table(tvm: Tvm) -> Row:
    """Time the table of a 128x256 accumulator against TVM's apply on each of its elements."""
    shape = (128, 256)
    mine = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)]).tile_to(shape, (16, 8))
    other = tvm.layout({"shard": [[it.extent, it.stride, it.axis.name] for it in mine.shard]})
    listed = list(shape)
    first = statistics.median(stretch(lambda x: x.table(shape), [fresh(mine)]) for _ in range(15))
    again = statistics.median(stretch(lambda x: x.table(shape), [mine]) for _ in range(15))
    places = list(itertools.product(*map(range, shape)))
    theirs = stretch(lambda at: other.apply(*at, shape=listed), places) * len(places)
    return Row("table of a 128x256 tile", first, again, theirs)


def fresh(layout: TileLayout) -> TileLayout:
    """Return an equal layout, without offsets, that has answered nothing yet."""
    return TileLayout.from_iters(layout.shard, layout.replica)


def symbolic(tvm: Tvm) -> Row:
    """Time apply of the D fragment to symbols: on new layouts, and on one again."""
    import sympy
    from tvm.tirx import Var

    i, j = (sympy.Symbol(name, integer=True, nonnegative=True) for name in "ij")
    x, y = Var("i", "int32"), Var("j", "int32")
    mine = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
    other = tvm.layout({"shard": [[it.extent, it.stride, it.axis.name] for it in mine.shard]})
    return compared(
        "symbolic apply of D, warm",
        lambda layout: layout.apply(i, j, shape=(16, 8)),
        lambda layout: layout.apply(x, y, shape=[16, 8]),
        (lambda: fresh(mine), lambda: other),
        5,
    )


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return 1 where a limit is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tvm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help=f"stretches of {CALLS} calls each")
    parser.add_argument("--cold", action="store_true", help="five layouts, operands made afresh")
    asked = parser.parse_args(arguments)
    tvm, slow, rounds = Tvm(), [], asked.rounds
    if asked.cold:
        return cold(tvm, rounds)
    print(f"{'median, us':42} {'first':>9} {'again':>9} {'TVM':>9} {'first/TVM':>9}")

    def tell(row: Row, within: bool) -> None:
        mark = "" if within else "  SLOW"
        print(
            f"{row.name:42} {row.first:9.2f} {row.again:9.2f} {row.theirs:9.2f} "
            f"{row.ratio:9.4f}{mark}",
            flush=True,
        )
        slow.extend([] if within else [row.name])

    for row in rows(tvm, rounds):
        tell(row, row.ratio <= 1)
    row = whole_table(tvm)
    tell(row, row.ratio * TABLE_FACTOR <= 1)
    row = symbolic(tvm)
    tell(row, row.again < SYMBOLIC_LIMIT)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
