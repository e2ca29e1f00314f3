"""Random layouts, shapes and regions that fit together: what the cases of the fuzz are made of.

TVM never returns where a cta axis stands beside an axis that counts threads (fault L4): the
palettes hold no such pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

from tests.fuzz.algebra import places
from tests.support.oracle import Layout

Palettes = tuple[tuple[tuple[str, ...], int], ...]

THREADS: Palettes = (
    (("m",), 6),
    (("m", "laneid"), 6),
    (("m", "laneid", "warpid"), 6),
    (("m", "laneid", "wid_in_wg"), 5),
    (("m", "tid_in_wg"), 3),
    (("m", "tid_in_wg", "wgid"), 3),
    (("m", "laneid", "wid_in_wg", "wgid"), 3),
    (("m", "tx"), 4),
    (("m", "warpid"), 1),
    (("m", "wid_in_wg", "wgid"), 2),
    (("m", "wgid"), 1),
    (("m", "tx", "cbx"), 1),
    (("m", "laneid", "warpid", "cbx", "cby"), 1),
    (("TLane", "TCol"), 3),
    (("TLane", "TCol", "m"), 1),
    (("P", "F", "Bank"), 1),
    (("m", "laneid", "warpid", "wid_in_wg", "wgid", "tid_in_wg", "tx", "cbx", "TCol"), 2),
)
"""Palettes of axes and their weights."""
MEMORY: Palettes = ((("m",), 1),)
GRID: Palettes = (
    (("m", "bx"), 2),
    (("m", "bx", "by", "bz"), 2),
    (("m", "bx", "warpid"), 2),
    (("m", "warpid", "wgid", "bx", "by", "cbx"), 1),
)
STRIDES = (0, 1, 1, 1, 2, 2, 3, 4, 4, 5, 8, 8, 12, 16, 24, 32, 32, 64, 96, 128, 160, -1, -2, -4, -8)
OFFSETS = (0, 1, 1, 2, 3, 4, 5, 8, 8, 16, 31, 32, 33, 64, 100, 128, -1, -3, -8, -32)


class Draw:
    """Draws layouts, shapes and regions that fit together; one object per case."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.palettes = GRID if rng.random() < 0.04 else THREADS
        self.own = self.palette()

    def stay_in_memory(self) -> None:
        """From now on draw axis m alone."""
        self.own, self.palettes = ("m",), MEMORY

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def palette(self) -> tuple[str, ...]:
        names, weights = zip(*self.palettes, strict=True)
        chosen: tuple[str, ...] = self.rng.choices(names, weights)[0]
        return chosen

    def target(self) -> dict[str, Any]:
        return {"target": "cuda"} if self.chance(0.5) else {}

    # -- extents ------------------------------------------------------------------------------

    def shape(self, rank: int, limit: int) -> list[int]:
        """Draw extents whose product is at most ``limit``."""
        extents = []
        for _ in range(rank):
            extent = self.rng.choice((1, 2, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16, 24, 32))
            while extent > limit:
                extent = self.rng.choice((1, 2, 3))
            extents.append(extent)
            limit //= extent
        self.rng.shuffle(extents)
        return extents

    def rank(self) -> int:
        return self.rng.choice((1, 1, 2, 2, 2, 3, 3, 4))

    def digits(self, extent: int) -> list[int]:
        """Cut an extent into digits; sometimes a unit digit stands among them."""
        out = [extent]
        for _ in range(self.rng.choice((0, 0, 1, 1, 2, 3))):
            at = self.rng.randrange(len(out))
            divisors = [d for d in range(2, out[at]) if out[at] % d == 0]
            if divisors:
                inner = self.rng.choice(divisors)
                out[at : at + 1] = [out[at] // inner, inner]
        if self.chance(0.12):
            out.insert(self.rng.randrange(len(out) + 1), 1)
        return out

    def regrouped(self, extents: Sequence[int]) -> list[int]:
        """Draw a shape that cuts iters of these extents evenly."""
        primes = [p for extent in extents for p in self.primes(extent)]
        shape: list[int] = []
        for prime in primes:
            if shape and self.chance(0.6):
                shape[-1] *= prime
            else:
                shape.append(prime)
        shape = shape or [1]
        while self.chance(0.15):
            shape.insert(self.rng.randrange(len(shape) + 1), 1)
        return shape

    def primes(self, n: int) -> list[int]:
        found = []
        for prime in (2, 3, 5, 7, 11, 13):
            while n % prime == 0:
                found.append(prime)
                n //= prime
        found += [n] * (n > 1)
        self.rng.shuffle(found)
        return found

    def shape_for(self, extents: Sequence[int], right: float = 0.75) -> list[int]:
        """Draw a shape: mostly one that groups, else the right size, else a wrong one."""
        shape, kind = self.regrouped(extents), self.rng.random()
        if kind < right:
            return shape
        if kind < right + (1 - right) * 0.6:
            return self.regrouped([math.prod(extents)])
        at = self.rng.randrange(len(shape))
        change = self.rng.randrange(4)
        if change == 0:
            shape[at] += 1
        elif change == 1:
            shape[at] *= 2
        elif change == 2:
            del shape[at]
        else:
            shape[at] = 0
        return shape

    # -- layouts ------------------------------------------------------------------------------

    def iters(self, extents: Sequence[int], axes: Sequence[str]) -> list[list[Any]]:
        """Draw strides and axes: dense in order, dense in any order, dense with gaps, or any."""
        rng = self.rng
        names = [rng.choice(axes) for _ in extents]
        kind = rng.choices(("ordered", "dense", "gaps", "any"), (4, 4, 2, 3))[0]
        if kind == "any":
            return [[e, rng.choice(STRIDES), a] for e, a in zip(extents, names, strict=True)]
        order = list(range(len(extents)))[::-1]
        if kind != "ordered":
            rng.shuffle(order)
        reached: dict[str, int] = {}
        strides = [0] * len(extents)
        for at in order:
            stride = reached.get(names[at], 1)
            if kind == "gaps" and self.chance(0.3):
                stride *= rng.choice((2, 3, 4))
            strides[at] = stride
            reached[names[at]] = stride * extents[at]
        return [list(it) for it in zip(extents, strides, names, strict=True)]

    def layout(self, extents: Sequence[int], extras: float = 0.3) -> Layout:
        """Draw a layout of these shard extents."""
        rng = self.rng
        axes = self.own if self.chance(0.8) else self.palette()
        near = axes if self.chance(0.85) else self.palette()
        drawn: Layout = {"shard": self.iters(extents, axes)}
        if self.chance(extras):
            drawn["replica"] = [
                [rng.choice((1, 2, 2, 3, 4)), rng.choice(STRIDES), rng.choice(near)]
                for _ in range(rng.choice((1, 1, 2)))
            ]
        if self.chance(extras):
            drawn["offset"] = {
                rng.choice(near): rng.choice(OFFSETS) for _ in range(rng.choice((1, 1, 2, 3)))
            }
        return drawn

    def free(self, limit: int = 128) -> Layout:
        """Draw a layout of any few iters."""
        if self.chance(0.01):
            return self.layout([])
        extents = [d for extent in self.shape(self.rank(), limit) for d in self.digits(extent)]
        return self.layout(extents)

    def shaped(self, shape: Sequence[int], extras: float = 0.3) -> tuple[Layout, list[int]]:
        """Draw a layout that groups by the shape; returned with the iters per dimension."""
        cuts = [self.digits(extent) for extent in shape]
        return self.layout([d for cut in cuts for d in cut], extras), [len(cut) for cut in cuts]

    def swizzled(self, tile: Layout) -> Layout:
        length = self.rng.randrange(4)
        return {
            "swizzle": [self.rng.randrange(5), length, length + self.rng.randrange(4)],
            "inner": self.chance(0.7),
            "tile": tile,
        }

    def flat_tile(self, size: int) -> Layout:
        """Draw a dense tile in memory, mostly written as one iter."""
        digits = [size] if self.chance(0.6) else self.digits(size)
        strides = [math.prod(digits[at + 1 :]) for at in range(len(digits))]
        return {"shard": [[e, s, "m"] for e, s in zip(digits, strides, strict=True)]}

    def memory_tile(self, shape: Sequence[int]) -> Layout:
        """Draw a tile for a swizzle: dense, or any layout on axis m, or any at all."""
        kind = self.rng.random()
        if kind < 0.45:
            return self.flat_tile(math.prod(shape))
        if kind < 0.9:
            self.stay_in_memory()
        return self.shaped(shape)[0]

    def coordinate(self, shape: Sequence[int], wrong: float = 0.0) -> list[int]:
        coord = [self.rng.randrange(max(extent, 1)) for extent in shape]
        if coord and self.chance(wrong):
            change, at = self.rng.randrange(4), self.rng.randrange(len(coord))
            if change == 0:
                coord[at] = shape[at] + self.rng.randrange(3)
            elif change == 1:
                coord[at] = -1 - self.rng.randrange(3)
            elif change == 2:
                coord.append(0)
            else:
                del coord[at]
        return coord

    def region(self, shape: Sequence[int]) -> list[list[int]]:
        """Draw a range per dimension: whole, one element, aligned, centred, or any."""
        rng, ranges = self.rng, []
        for extent in shape:
            kind = rng.random()
            if kind < 0.3:
                begin, end = 0, extent
            elif kind < 0.45:
                begin = rng.randrange(extent)
                end = begin + 1
            elif kind < 0.7:
                unit = rng.choice([d for d in range(1, extent + 1) if extent % d == 0])
                begin = rng.randrange(extent // unit) * unit
                end = begin + unit * rng.randrange(1, (extent - begin) // unit + 1)
            else:
                begin = rng.randrange(extent)
                end = rng.randrange(begin + 1, extent + 1)
            ranges.append([begin, end])
        if ranges and self.chance(0.03):
            at = rng.randrange(len(ranges))
            change = rng.randrange(4)
            if change == 0:
                ranges[at][1] = shape[at] + 1
            elif change == 1:
                ranges[at][1] = ranges[at][0]
            elif change == 2:
                ranges[at][0] = -1
            else:
                del ranges[at]
        return ranges

    def broken(self, shape: list[int]) -> list[int]:
        """Break a shape that fits: another rank, or another extent."""
        shape = list(shape)
        at = self.rng.randrange(len(shape))
        change = self.rng.randrange(4)
        if change == 0:
            del shape[at]
        elif change == 1:
            shape.insert(at, self.rng.choice((1, 2)))
        elif change == 2:
            shape[at] += 1
        else:
            shape[at] *= 2
        return shape

    def mostly(self, shape: list[int], wrong: float = 0.04) -> list[int]:
        return self.broken(shape) if shape and self.chance(wrong) else shape

    # -- two layouts that make a third --------------------------------------------------------

    def pair(self) -> tuple[Layout, list[int], list[int], Layout, list[int], list[int]]:
        """Draw an inner and an outer layout, each with its shape and iters per dimension."""
        rank = self.rng.choice((1, 1, 2, 2, 2, 3))
        inner_shape, outer_shape = self.shape(rank, 32), self.shape(rank, 16)
        inner, inner_counts = self.shaped(inner_shape, 0.2)
        outer, outer_counts = self.shaped(outer_shape, 0.2)
        return inner, inner_shape, inner_counts, outer, outer_shape, outer_counts

    def woven(self, first: Layout, first_counts: Sequence[int], second: Layout,
              second_counts: Sequence[int]) -> tuple[Layout, bool]:  # fmt: skip
        """Interleave two layouts, sometimes in fused axes; say whether one thing was changed."""
        left, right = iter(first["shard"]), iter(second["shard"])
        shard = []
        for a, b in zip(first_counts, second_counts, strict=True):
            shard += [list(next(left)) for _ in range(a)]
            shard += [list(next(right)) for _ in range(b)]
        replica = [list(it) for each in (second, first) for it in each.get("replica", [])]
        offset: dict[str, int] = dict(second.get("offset", {}))
        for axis, value in first.get("offset", {}).items():
            offset[axis] = offset.get(axis, 0) + value
        made: Layout = {"shard": shard, "replica": replica, "offset": offset}
        changed = self.chance(0.3)
        if changed:
            self.change(made)
        return (places.fused(made) if self.chance(0.5) else made), changed

    def change(self, made: Layout) -> None:
        """Change one thing in a layout."""
        rng, shard, replica = self.rng, made["shard"], made["replica"]
        kind = rng.randrange(6)
        if kind == 0 and shard:
            rng.choice(shard)[1] = rng.choice(STRIDES)
        elif kind == 1 and shard:
            rng.choice(shard)[2] = rng.choice(self.own)
        elif kind == 2:
            axis = rng.choice(self.own)
            made["offset"][axis] = made["offset"].get(axis, 0) + rng.choice(OFFSETS)
        elif kind == 3 and replica:
            replica.remove(rng.choice(replica))
        elif kind == 4:
            replica.append([2, rng.choice(STRIDES), rng.choice(self.own)])
        elif len(shard) > 1:
            at = rng.randrange(len(shard) - 1)
            shard[at : at + 2] = shard[at : at + 2][::-1]
