"""Random cases for the differential fuzz, in the form of the conformance vectors.

A case is ``{"op": …, "in": …}``; ``STREAMS`` names one drawing function per row of the fuzz's table.
Where the whole of a recogniser's case was put together from two layouts, ``"made"`` is the other
one: an answer that exists. Most cases are valid; some break one rule of their operation. TVM never returns where a cta axis
stands beside an axis that counts threads (fault L4): no case holds both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests import fuzz_laws as laws
from tests.oracle import Layout

Case = dict[str, Any]

THREADS = (
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
GRID = (
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
            self.own, self.palettes = ("m",), ((("m",), 1),)
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
        return (laws.fused(made) if self.chance(0.5) else made), changed

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


# -- one drawing function per operation -------------------------------------------------------


def coordinates(draw: Draw, layout: Layout) -> Case:
    """Draw coordinates of one of the three forms, in range but for a few."""
    extents = [e for e, _, _ in layout["shard"]]
    form = draw.rng.random()
    case: Case = {"layout": layout}
    if form < 0.35:
        shape = [math.prod(extents)]
    elif form < 0.55:
        shape = extents
    else:
        shape = case["shape"] = draw.shape_for(extents, 0.9)
    count = 1 if draw.chance(0.1) else 3
    case["coords"] = [draw.coordinate(shape, 0.3 if count == 1 else 0.0) for _ in range(count)]
    return case


def apply(draw: Draw) -> Case:
    return {"op": "apply", "in": coordinates(draw, draw.free())}


def apply_to_shape(draw: Draw) -> Case:
    layout = draw.free()
    shape = draw.shape_for([e for e, _, _ in layout["shard"]], 0.8)
    coords = [draw.coordinate(shape) for _ in range(3)]
    return {"op": "apply_to_shape", "in": {"layout": layout, "coords": coords, "shape": shape}}


def canonicalize(draw: Draw) -> Case:
    layout = draw.free()
    if draw.chance(0.003):
        layout["shard"] += [[65536, 1, "m"], [65536, 65536, "m"]]
    return {"op": "canonicalize", "in": {"layout": layout}}


def canonicalize_cuda(draw: Draw) -> Case:
    return {"op": "canonicalize", "in": {"layout": draw.free(), "target": "cuda"}}


def group(draw: Draw) -> Case:
    layout = draw.free(512)
    shape = draw.shape_for([e for e, _, _ in layout["shard"]])
    return {"op": "group", "in": {"layout": layout, "shape": [] if draw.chance(0.01) else shape}}


def group_many(draw: Draw) -> Case:
    layout = draw.free(512)
    extents = [e for e, _, _ in layout["shard"]]
    shapes = [draw.shape_for(extents, 0.92) for _ in range(draw.rng.choice((1, 2, 2, 3)))]
    if draw.chance(0.01):
        shapes.append([])
    return {"op": "group_many", "in": {"layout": layout, "shapes": shapes}}


def permute_dims(draw: Draw) -> Case:
    layout = draw.free()
    perm = list(range(len(layout["shard"])))
    draw.rng.shuffle(perm)
    if perm and draw.chance(0.1):
        change, at = draw.rng.randrange(4), draw.rng.randrange(len(perm))
        if change == 0:
            del perm[at]
        elif change == 1:
            perm[at] = perm[0]
        elif change == 2:
            perm[at] -= len(perm)
        else:
            perm[at] = len(perm)
    return {"op": "permute_dims", "in": {"layout": layout, "perm": perm}}


def permute_by_groups(draw: Draw) -> Case:
    layout, counts = draw.shaped(draw.shape(draw.rank(), 128))
    seps = [sum(counts[:at]) for at in range(len(counts) + 1)]
    perm = list(range(len(counts)))
    draw.rng.shuffle(perm)
    if draw.chance(0.1):
        change = draw.rng.randrange(4)
        if change == 0:
            seps.pop()
        elif change == 1:
            perm[draw.rng.randrange(len(perm))] = perm[0]
        elif change == 2:
            perm.append(len(perm))
        else:
            seps[-1] += 1
    return {"op": "permute_by_groups", "in": {"layout": layout, "seps": seps, "perm": perm}}


def tile(draw: Draw) -> Case:
    inner, inner_shape, _, outer, outer_shape, _ = draw.pair()
    shapes = {"outer_shape": draw.mostly(outer_shape), "inner_shape": draw.mostly(inner_shape)}
    return {"op": "tile", "in": {"inner": inner, "outer": outer, **shapes, **draw.target()}}


def tile_to(draw: Draw) -> Case:
    rank = draw.rank()
    current = draw.shape(rank, 32)
    layout, _ = draw.shaped(current)
    to = [a * b for a, b in zip(current, draw.shape(rank, 16), strict=True)]
    shapes = {"to_shape": draw.mostly(to, 0.08), "current_shape": draw.mostly(current, 0.04)}
    return {"op": "tile_to", "in": {"layout": layout, **shapes, **draw.target()}}


def tiled(draw: Draw, side: str) -> Case:
    """Draw what an inner layout tiled by an outer one may be, and the one of the two on a side."""
    inner, inner_shape, inner_counts, outer, outer_shape, outer_counts = draw.pair()
    moved = laws.in_tiles(inner, outer, replicas=draw.chance(0.5))
    whole, changed = draw.woven(moved, outer_counts, inner, inner_counts)
    whole_shape = [a * b for a, b in zip(outer_shape, inner_shape, strict=True)]
    own, own_shape, other = (
        (inner, inner_shape, outer) if side == "inner" else (outer, outer_shape, inner)
    )
    shapes = {
        "tiled_shape": draw.mostly(whole_shape, 0.03),
        f"{side}_shape": draw.mostly(own_shape, 0.03),
    }
    case = {"layout": own, "tiled": whole, **shapes, **draw.target()}
    intact = not changed and list(shapes.values()) == [whole_shape, own_shape]
    return {"op": f"is_tile_{side}", "in": case, "made": other if intact else None}


def is_tile_inner(draw: Draw) -> Case:
    return tiled(draw, "inner")


def is_tile_outer(draw: Draw) -> Case:
    return tiled(draw, "outer")


def direct_sum(draw: Draw) -> Case:
    right, right_shape, _, left, left_shape, _ = draw.pair()
    shapes = {"left_shape": draw.mostly(left_shape), "right_shape": draw.mostly(right_shape)}
    return {"op": "direct_sum", "in": {"right": right, "left": left, **shapes, **draw.target()}}


def summed(draw: Draw, side: str) -> Case:
    right, right_shape, right_counts, left, left_shape, left_counts = draw.pair()
    total, changed = draw.woven(left, left_counts, right, right_counts)
    both = [n for pair in zip(left_shape, right_shape, strict=True) for n in pair]
    own, own_shape, other = (
        (left, left_shape, right) if side == "left" else (right, right_shape, left)
    )
    shapes = {"interleaved_shape": draw.mostly(both), f"{side}_shape": draw.mostly(own_shape, 0.03)}
    case = {"layout": own, "sum": total, **shapes, **draw.target()}
    intact = not changed and list(shapes.values()) == [both, own_shape]
    return {"op": f"is_direct_sum_{side}", "in": case, "made": other if intact else None}


def is_direct_sum_left(draw: Draw) -> Case:
    return summed(draw, "left")


def is_direct_sum_right(draw: Draw) -> Case:
    return summed(draw, "right")


def slice_(draw: Draw) -> Case:
    shape = draw.shape(draw.rank(), 128)
    layout, _ = draw.shaped(shape)
    if draw.chance(0.2):
        shape = draw.regrouped([e for e, _, _ in layout["shard"]])
    case = {"layout": layout, "shape": draw.mostly(shape, 0.02), "region": draw.region(shape)}
    return {"op": "slice", "in": case | draw.target()}


def size_span(draw: Draw) -> Case:
    layout = draw.free(1024)
    if draw.chance(0.003):
        layout["shard"] += [[65536, 1, "m"], [65536, 65536, "m"]]
    return {"op": "size_span", "in": {"layout": layout}}


def well_formed(draw: Draw) -> Case:
    if draw.palettes is THREADS and draw.chance(0.5):
        draw.own = THREADS[-1][0]
    return {"op": "verify_well_formed", "in": {"layout": draw.free()}}


def storage(draw: Draw) -> Case:
    return {"op": "storage", "in": {"layout": draw.free()}}


def narrow(draw: Draw) -> Layout:
    """Draw a layout to pack or unpack: mostly on axis m and without extras, where TVM is right."""
    if draw.chance(0.8):
        draw.own, draw.palettes = ("m",), ((("m",), 1),)
    extents = [d for extent in draw.shape(draw.rank(), 64) for d in draw.digits(extent)]
    return draw.layout(extents, 0.1)


def packable(draw: Draw) -> tuple[Layout, int]:
    """Draw a layout whose last iter is mostly dense, and mostly all strides multiples."""
    num = draw.rng.choice((1, 2, 2, 4, 8, 3))
    layout = narrow(draw)
    if draw.chance(0.85):
        layout["shard"] = [
            *([e, s * num if a == "m" and draw.chance(0.95) else s, a]
              for e, s, a in layout["shard"]),
            [num * draw.rng.choice((1, 2, 3)), 1, "m" if draw.chance(0.9) else "TCol"],
        ]  # fmt: skip
    return layout, num


def pack(draw: Draw) -> Case:
    layout, num = packable(draw)
    return {"op": "pack", "in": {"layout": layout, "num": num}}


def unpack(draw: Draw) -> Case:
    return {"op": "unpack", "in": {"layout": narrow(draw), "num": draw.rng.choice((1, 2, 4, 8, 3))}}


def broadcast(draw: Draw) -> Case:
    layout = draw.free()
    count = len(layout["shard"])
    case = {
        "layout": layout,
        "num": draw.rng.choice((1, 2, 3, 4)),
        "position": draw.rng.randrange(-count - 1, count + 1),
        "axis": draw.rng.choice(draw.own),
    }
    if draw.chance(0.03):
        case["position"] = draw.rng.choice((-count - 2, count + 1))
    return {"op": "broadcast", "in": case}


# -- swizzles ---------------------------------------------------------------------------------


def swizzle(draw: Draw) -> Case:
    """Draw addresses for a bare swizzle, also beyond the size of its tile."""
    size = 1 << draw.rng.randrange(3, 13)
    layout = draw.swizzled({"shard": [[size, 1, "m"]]})
    case: Case = {"layout": layout, "coords": [[draw.rng.randrange(2 * size)] for _ in range(6)]}
    if draw.chance(0.3):
        shape = case["shape"] = draw.regrouped([size])
        case["coords"] = [draw.coordinate(shape) for _ in range(6)]
    return {"op": "apply", "in": case}


def compose(draw: Draw) -> Case:
    """Draw any operation on swizzled layouts."""
    name = draw.rng.choice(
        ("apply", "apply", "apply", "canonicalize", "tile", "tile_to", "slice", "slice",
         "direct_sum", "is_tile", "is_tile", "is_direct_sum", "size_span", "verify_well_formed",
         "storage", "pack", "unpack", "broadcast")
    )  # fmt: skip
    if name == "apply":
        return {"op": name, "in": swizzled_coordinates(draw)}
    if name in ("canonicalize", "size_span", "verify_well_formed", "storage"):
        case = {"layout": draw.swizzled(draw.memory_tile(draw.shape(2, 128)))}
        return {"op": name, "in": case | (draw.target() if name == "canonicalize" else {})}
    if name in ("pack", "unpack", "broadcast"):
        drawn = {"pack": pack, "unpack": unpack, "broadcast": broadcast}[name](draw)
        drawn["in"]["layout"] = draw.swizzled(drawn["in"]["layout"])
        return drawn
    if name == "tile_to":
        drawn = tile_to(draw)
        drawn["in"]["layout"] = draw.swizzled(draw.memory_tile(drawn["in"]["current_shape"]))
        return drawn
    if name == "slice":
        drawn = slice_(draw)
        drawn["in"]["layout"] = draw.swizzled(draw.memory_tile(drawn["in"]["shape"]))
        return drawn
    if name == "tile":
        drawn = tile(draw)
        drawn["in"]["inner"] = draw.swizzled(draw.memory_tile(drawn["in"]["inner_shape"]))
        return drawn
    if name == "direct_sum":
        drawn = direct_sum(draw)
        drawn["in"]["right"] = draw.swizzled(draw.memory_tile(drawn["in"]["right_shape"]))
        return drawn
    return recognised(draw, name)


def swizzled_coordinates(draw: Draw) -> Case:
    if draw.chance(0.5):
        draw.own, draw.palettes = ("m",), ((("m",), 1),)
    tile_layout = draw.free() if draw.chance(0.7) else draw.flat_tile(64)
    case = coordinates(draw, tile_layout)
    return case | {"layout": draw.swizzled(tile_layout)}


def recognised(draw: Draw, name: str) -> Case:
    """Draw a recogniser with swizzles on one side, on both, alike or not."""
    if draw.chance(0.7):
        draw.own, draw.palettes = ("m",), ((("m",), 1),)
    draws = {
        "is_tile": (is_tile_inner, is_tile_outer),
        "is_direct_sum": (is_direct_sum_left, is_direct_sum_right),
    }[name]
    drawn = draw.rng.choice(draws)(draw)
    case = drawn["in"]
    whole = "tiled" if name == "is_tile" else "sum"
    swizzled = draw.swizzled(case["layout"])
    sides = draw.rng.choice(("both", "both", "both", "own", "whole"))
    if drawn["op"] == "is_tile_outer":
        sides = draw.rng.choice(("whole", "whole", "own", "both"))
    if sides in ("both", "own"):
        case["layout"] = swizzled
    if sides in ("both", "whole"):
        other = draw.swizzled({}) if draw.chance(0.1) else swizzled
        case[whole] = other | {"tile": case[whole]}
    return drawn


STREAMS: dict[str, Callable[[Draw], Case]] = {
    "apply": apply,
    "apply_to_shape": apply_to_shape,
    "canonicalize": canonicalize,
    "canonicalize_cuda": canonicalize_cuda,
    "group": group,
    "group_many": group_many,
    "permute_dims": permute_dims,
    "permute_by_groups": permute_by_groups,
    "tile": tile,
    "tile_to": tile_to,
    "is_tile_inner": is_tile_inner,
    "is_tile_outer": is_tile_outer,
    "direct_sum": direct_sum,
    "is_direct_sum_left": is_direct_sum_left,
    "is_direct_sum_right": is_direct_sum_right,
    "slice": slice_,
    "size_span": size_span,
    "well_formed": well_formed,
    "storage": storage,
    "pack": pack,
    "unpack": unpack,
    "broadcast": broadcast,
    "swizzle": swizzle,
    "compose": compose,
}
"""What is fuzzed: one drawing function per row of the table."""


def case_of(stream: str, seed: int, index: int) -> Case:
    """Return one case; the same for the same arguments, whatever was drawn before."""
    return STREAMS[stream](Draw(Random(f"{stream} {seed} {index}")))
