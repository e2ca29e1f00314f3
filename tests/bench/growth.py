"""How the cost of an operation grows with the number of iters: ``python -m tests.bench.growth``.

Each operation runs on ``TileLayout.from_iters([Iter(2, 2**i, "m") for i in range(n)])`` with n of
``--few`` and of ``--many`` iters, on a layout that has answered nothing before. The table gives
both times (of this process: the least of some runs) and their ratio. The exit status is 1 where
a ratio is above ``--limit``.

The numbers of this layout have up to n bits, so that their arithmetic grows too, and Python takes
the square of its digits to write or to read one. What is nothing but arithmetic or text is shown
last, and no limit holds it.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from typing import Any

from layoutalg import Iter, S, TileLayout, align, parse

RUNS, PATIENCE = 15, 2.0  # so many runs of one operation, fewer where they take so many seconds


def ladder(count: int) -> TileLayout:
    """Return the layout with so many iters, each as fast as all before it together."""
    return TileLayout.from_iters([Iter(2, 2**i, "m") for i in range(count)])


# what is timed takes a layout, another that is equal to it, and the number of iters
Call = Callable[[TileLayout, TileLayout, int], Any]

OPERATIONS: dict[str, Call] = {
    "align": lambda x, y, n: align(x, y),
    "inverse, flat": lambda x, y, n: x.inverse((2**n,)),
    "inverse, by iter": lambda x, y, n: x.inverse((2,) * n),
    "inverse and at": lambda x, y, n: x.inverse((2**n,)).at(m=2**n - 2),
    "is_injective": lambda x, y, n: x.is_injective(),
    "covers": lambda x, y, n: x.covers(),
    "replication": lambda x, y, n: x.replication(),
    "group_many, flat": lambda x, y, n: x.group_many([(2**n,)]),
    "group_many, by iter": lambda x, y, n: x.group_many([(2,) * n, (4,) * (n // 2)]),
    "equivalent": lambda x, y, n: x.equivalent(y),
    "equivalent, refuted": lambda x, y, n: x.equivalent(TileLayout(S[2**n : 1])),
    "canonicalize": lambda x, y, n: x.canonicalize(),
    "canonicalize cuda": lambda x, y, n: x.canonicalize("cuda"),
    "group, flat": lambda x, y, n: x.group((2**n,)),
    "group, by iter": lambda x, y, n: x.group((2,) * n),
    "slice": lambda x, y, n: x.slice((2,) * n, ((0, 1),) * n),
    "tile_to": lambda x, y, n: x.tile_to((2 ** (n + 1),), (2**n,)),
    "is_tile_inner": lambda x, y, n: x.is_tile_inner(
        x.tile_to((2 ** (n + 1),), (2**n,)), (2 ** (n + 1),), (2**n,)
    ),
    "direct_sum": lambda x, y, n: x.direct_sum(y, (2**n,), (2**n,)),
    "permute_dims": lambda x, y, n: x.permute_dims(range(n - 1, -1, -1)),
    "permute_by_groups": lambda x, y, n: x.permute_by_groups(range(n + 1), range(n - 1, -1, -1)),
    "apply_to_shape": lambda x, y, n: x.apply_to_shape((3, 0), (4, 2 ** (n - 2))),
    "storage": lambda x, y, n: x.storage(),
    "pack, unpack": lambda x, y, n: x.unpack(4).pack(4),
    "broadcast": lambda x, y, n: x.broadcast(4),
    "S[...]": lambda x, y, n: S[(2,) * n],
}

# n sums, powers or texts of numbers of n bits and nothing else: the numbers grow as well
NUMBERS: dict[str, Call] = {
    "apply, flat": lambda x, y, n: x.apply(2**n - 2),
    "apply, by iter": lambda x, y, n: x.apply(*(1,) * n),
    "apply, shape": lambda x, y, n: x.apply(3, 2 ** (n - 2) - 1, shape=(4, 2 ** (n - 2))),
    "tile_to, by iter": lambda x, y, n: x.tile_to((4,) * n, (2,) * n),
    "slice, flat": lambda x, y, n: x.slice((2**n,), ((2 ** (n - 1), 2**n),)),
    "size, span": lambda x, y, n: (x.size(), x.size("m"), x.span(), x.span("m")),
    "hash, ==": lambda x, y, n: (hash(x), x == y),
    "from_iters": lambda x, y, n: ladder(n),
    "str": lambda x, y, n: str(x),
    "parse": lambda x, y, n: parse("S[({}):({})]".format(",".join("2" * n), ",".join("1" * n))),
    "parse and str": lambda x, y, n: parse(str(x)),
    "str(is_injective)": lambda x, y, n: str(x.is_injective()),
}


def spent(call: Call, count: int) -> float:
    """Return the time of one call on a fresh layout, in seconds: the least of some."""
    times: list[float] = []
    gc.collect()
    while len(times) < RUNS and sum(times) < PATIENCE:
        one, other = ladder(count), ladder(count)
        gc.disable()
        begun = time.process_time_ns()
        call(one, other, count)
        times.append((time.process_time_ns() - begun) / 1e9)
        gc.enable()
    return min(times)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return 1 where an operation grows too fast."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    parser.add_argument("--few", type=int, default=320, help="iters of the small layout")
    parser.add_argument("--many", type=int, default=2560, help="iters of the large layout")
    parser.add_argument("--limit", type=float, default=12.0, help="the largest ratio")
    parser.add_argument("--only", default="", help="operations whose name has this in it")
    asked = parser.parse_args(arguments)
    print(f"{'ms':22}{f't{asked.few}':>11}{f't{asked.many}':>11}{'ratio':>9}")
    slow = False
    for name, call in {**OPERATIONS, **NUMBERS}.items():
        if asked.only in name:
            few, many = spent(call, asked.few), spent(call, asked.many)
            over = name in OPERATIONS and many > asked.limit * few
            slow |= over
            mark = "  ABOVE THE LIMIT" if over else ""
            line = f"{name:22}{few * 1e3:11.3f}{many * 1e3:11.3f}{many / few:9.1f}{mark}"
            print(line, flush=True)
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
