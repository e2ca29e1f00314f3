"""Random cases for the differential fuzz, in the form of the conformance vectors.

A case is ``{"op": …, "in": …}``; ``STREAMS`` names one drawing function per row of the table. Most
cases are valid; some break one rule of their operation. Where the whole of a recogniser's case was
put together from two layouts, ``"made"`` is the other one: an answer that exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

from tests.fuzz.algebra import places
from tests.fuzz.algebra.layouts import THREADS, Draw
from tests.support.oracle import Layout

Case = dict[str, Any]


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
        layout["shard"] += [[65536, 65536, "m"], [65536, 1, "m"]]
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
    moved = places.in_tiles(inner, outer, replicas=draw.chance(0.5))
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
        draw.stay_in_memory()
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
        draw.stay_in_memory()
    tile_layout = draw.free() if draw.chance(0.7) else draw.flat_tile(64)
    case = coordinates(draw, tile_layout)
    return case | {"layout": draw.swizzled(tile_layout)}


def recognised(draw: Draw, name: str) -> Case:
    """Draw a recogniser with swizzles on one side, on both, alike or not."""
    if draw.chance(0.7):
        draw.stay_in_memory()
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
