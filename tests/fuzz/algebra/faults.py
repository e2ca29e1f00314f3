"""Why TVM and layoutalg may differ, decided case by case.

A difference is explained only where our answer obeys the law of its operation and TVM's breaks it,
on every element (``tests.fuzz.algebra.laws``), or where the input itself says what TVM gets wrong.
The names L1 to L26 are those of SEMANTICS section 18; S6 to S14 are said in those sections; X1 to
X4 were found by this fuzz.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tests.fuzz.algebra import laws, places
from tests.support.oracle import Layout, as_dict

Case = dict[str, Any]

MEANING = {
    "L1": "slice: a carry into a third iter is lost",
    "L2": "CUDA: offsets on two axes that fuse overwrite each other",
    "L3": "CUDA: wgid in (warp, cta) becomes 4@wgid",
    "L5": "slice: each group is fused, and checked for well-formedness, alone",
    "L6": "cutting an offset, or below zero: all of it goes to one axis, or IndexError",
    "L7": "an iter or a replica that cannot be cut is dropped",
    "L8": "warpid never splits at warpgroup",
    "L9": "is_tile_*: laneid, wgid or wid_in_wg cannot be cut",
    "L10": "outer replicas are not scaled by tile, but divided by is_tile_inner",
    "L13": "tile with a span of zero or less",
    "L14": "own replicas need not be present, or more than one goes for each",
    "L15": "tile_to floors a shape that is no multiple",
    "L16": "slice takes ranges out of bounds and empty ones",
    "L17": "pack and unpack scale thread axes and other memory axes",
    "L18": "pack and unpack leave offset and replica",
    "L19": "pack floors strides",
    "L20": "32-bit wrap-around",
    "L22": "apply does not check sizes",
    "L23": "permute_dims takes repeats",
    "L24": "a bare swizzle adopts any shape, and axis m",
    "L25": "slice and is_tile_* miss layouts that there are",
    "L26": "CUDA: a unit iter left over keeps its factor",
    "S6": "recognisers of one element: the axis of the unit iter that is left over (section 6)",
    "S10": "is_tile_*: scopes are looked at before the shapes (section 10)",
    "S13": "apply of a swizzled tile that has replicas or unit iters off axis m (section 13)",
    "S14": "broadcast does not check the position (section 14)",
    "X1": "CUDA: operands fused each alone do not fit together; unfused they do",
    "X2": "CUDA: is_tile_* take threads 32k (tx) for warps k, or lanes for threads of the CTA",
    "X3": "a unit iter that is the only link between two scopes is dropped, and that raises",
    "X4": "recognisers answer ill-formed layouts, which cannot be tiled or summed",
}


class Answer(NamedTuple):
    """What one side says of a case: a value, or why it refuses."""

    value: Any
    refusal: str | None = None


def explained(op: str, case: Case, ours: Answer, theirs: Answer) -> str | None:
    """Return the name of the fault that explains a difference; None where nothing does."""
    if ours.refusal is not None:
        return refusal_due(op, case)
    if ours.value is not None and not obeys(op, case, ours.value):
        return None
    plain = unwrapped(op, case)
    if theirs.refusal is not None:
        return next(crashes(op, plain, theirs.refusal), None)
    if theirs.value is None:
        return "L25"
    if ours.value is None and not fits(theirs.value):
        return "X4"
    if laws.holds(op, case, theirs.value):
        same = ours.value is not None and stripped(ours.value) == stripped(theirs.value)
        return next(harmless(op, plain, ours.value is None, same, theirs.value), None)
    return next(wrongs(op, plain), "L24" if moves_to_m(op, case) else None)


def fits(answer: Any) -> bool:
    """Say whether an answer, swizzled or not, is well-formed."""
    return places.fits_together(answer[2] if isinstance(answer[1], bool) else answer)


def obeys(op: str, case: Case, answer: Any) -> bool:
    """Say whether an answer obeys the law; one that the law cannot even read does not."""
    try:
        return laws.holds(op, case, answer)
    except (ValueError, IndexError):
        return False


def unwrapped(op: str, case: Case) -> Case:
    """Return a case with its swizzled layouts replaced by their tiles."""
    plain = dict(case)
    key, shape = laws.RECEIVERS.get(op, ("layout", ""))
    for name, adopted in ((key, shape), ("tiled", "tiled_shape"), ("sum", "interleaved_shape")):
        if "swizzle" in plain.get(name, ()):
            layout = plain[name]
            plain[name] = laws.tile_over(layout, case[adopted]) if adopted else layout["tile"]
    return plain


def moves_to_m(op: str, case: Case) -> bool:
    """Say whether a bare swizzle lies on another axis than m, where TVM puts what it adopts."""
    found = [case[key] for key in (laws.RECEIVERS.get(op, ("layout",))[0], "tiled", "sum")
             if key in case]  # fmt: skip
    return any(
        "swizzle" in each
        and laws.is_bare(each)
        and any(a != "m" for _, _, a in each["tile"]["shard"])
        for each in found
    )


def stripped(answer: Any) -> Any:
    """Return an answer without what moves nothing: idle replicas, strides of unit iters."""
    if len(answer) == 3 and isinstance(answer[1], bool):
        return answer[0], answer[1], stripped(answer[2])
    shard, replica, offset = answer
    units = [(it[0], 0, "m") if it[0] == 1 or it[1] == 0 else it for it in shard]
    return units, [it for it in replica if it[0] != 1 and it[1] != 0], offset


# -- our refusals -----------------------------------------------------------------------------


def refusal_due(op: str, case: Case) -> str | None:
    """Name the rule of its operation that a call breaks, where TVM answers it."""
    case = case if op == "apply" else unwrapped(op, case)
    rule = RULES.get(op)
    return rule(case) if rule else None


def out_of_range(case: Case) -> str | None:
    layout = case["layout"]
    tile = layout.get("tile", layout)
    extents = [e for e, _, _ in tile["shard"]]
    shape = case.get("shape")
    for coord in case["coords"]:
        radix = shape if shape is not None else [math.prod(extents)] if len(coord) == 1 else extents
        if math.prod(radix) != math.prod(extents) or any(
            not 0 <= c < extent for c, extent in zip(coord, radix, strict=True)
        ):
            return "L24" if "swizzle" in layout and laws.is_bare(layout) else "L22"
    axes = {a for _, _, a in tile["shard"] + tile.get("replica", [])}
    return "S13" if "swizzle" in layout and axes != {"m"} else None


def repeats(case: Case) -> str | None:
    return "L23" if len(set(case["perm"])) < len(case["perm"]) else None


def below_zero(case: Case) -> str | None:
    """Say whether copies would be moved in units of a span that is not positive."""
    target = case.get("target")
    for axes in (target, None):
        inner, outer = (places.operand(case[key], axes) for key in ("inner", "outer"))
        moving = {a for e, _, a in outer["shard"] + outer["replica"] if e != 1}
        if any(places.span(inner, a) < 1 for _, _, a in inner["shard"] if a in moving):
            return "L13"
    return None


def no_multiple(case: Case) -> str | None:
    pairs = list(zip(case["to_shape"], case["current_shape"], strict=True))
    if any(to % current for to, current in pairs):
        return "L15"
    outer = {"shard": [[to // current, 1, "m"] for to, current in pairs]}
    return below_zero(case | {"inner": case["layout"], "outer": outer})


def bad_range(case: Case) -> str | None:
    ranges = zip(case["region"], case["shape"], strict=True)
    return "L16" if any(not 0 <= b < e <= extent for (b, e), extent in ranges) else None


def indivisible(case: Case) -> str | None:
    layout, num = case["layout"], case["num"]
    axis = layout["shard"][-1][2]
    if layout.get("offset", {}).get(axis, 0) % num or any(
        e != 1 and a == axis and s % num for e, s, a in layout.get("replica", [])
    ):
        return "L18"
    inner = layout["shard"][:-1]
    return "L19" if any(e != 1 and a == axis and s % num for e, s, a in inner) else None


def bad_position(case: Case) -> str | None:
    count = len(case["layout"]["shard"])
    return None if -count - 1 <= case["position"] <= count else "S14"


def bad_tile_shape(case: Case) -> str | None:
    whole = case["tiled_shape"]
    part = case["inner_shape"] if "inner_shape" in case else case["outer_shape"]
    fits = len(whole) == len(part) and not any(a % b for a, b in zip(whole, part, strict=True))
    if not fits:
        return "S10"
    counts = laws.quotients(whole, part)
    pairs = (
        zip(counts, part, strict=True) if "inner_shape" in case else zip(part, counts, strict=True)
    )
    shapes = part, [n for pair in pairs for n in pair]
    for key, shape in zip(("layout", "tiled"), shapes, strict=True):
        bare = places.operand(case[key], case.get("target"))
        if laws.cut_by([e for e, _, _ in bare["shard"]], shape) is None:
            return "S10"
    return None


RULES: dict[str, Callable[[Case], str | None]] = {
    "apply": out_of_range,
    "apply_to_shape": out_of_range,
    "permute_dims": repeats,
    "tile": below_zero,
    "tile_to": no_multiple,
    "slice": bad_range,
    "pack": indivisible,
    "broadcast": bad_position,
    "is_tile_inner": bad_tile_shape,
    "is_tile_outer": bad_tile_shape,
}


# -- TVM's faults -----------------------------------------------------------------------------


def operands(case: Case) -> list[Layout]:
    return [case[key] for key in ("layout", "inner", "outer", "left", "right", "tiled", "sum")
            if key in case]  # fmt: skip


def arranged(case: Case) -> list[Layout]:
    """Return the two operands of tile or direct_sum as one layout."""
    if "inner" in case or "left" in case:
        first, second = (case[key] for key in ("outer", "inner", "left", "right") if key in case)
        bare = (places.operand(each, case.get("target")) for each in (first, second))
        return [places.together(first, second), places.together(*bare)]
    return []


def canonical_faults(case: Case) -> Iterator[str]:
    """Yield what TVM's canonicalize does wrong to an operand, or to two arranged as one."""
    for layout in operands(case) + arranged(case):
        bare = places.without_units(layout)
        iters = bare["shard"] + list(bare["replica"])
        if math.prod(e for e, _, _ in bare["shard"]) >= 1 << 31:
            yield "L20"
        if case.get("target") is None:
            continue
        pair = places.pair_or_none(bare)
        fused = [places.FUSED.get((axis, *pair), (axis, 1))[0] for axis in bare["offset"]]
        if len(set(fused)) < len(fused):
            yield "L2"
        if pair == ("warp", "cta") and "wgid" in {a for _, _, a in iters} | set(bare["offset"]):
            yield "L3"


def fused_alone(case: Case) -> bool:
    """Say whether the two operands fit together as written, but not in their fused axes."""
    if case.get("target") is None:
        return False
    first, second = [key for key in ("layout", "inner", "outer", "left", "right") if key in case][
        :2
    ]
    written, fused = (
        places.together(places.operand(case[first], axes), places.operand(case[second], axes))
        for axes in (None, "cuda")
    )
    return places.is_well_formed(places.without_units(written)) and not places.is_well_formed(fused)


def ill_formed(case: Case) -> bool:
    """Say whether an operand is ill-formed, written or without units."""
    return not all(places.is_well_formed(places.without_units(each)) for each in operands(case))


def groups(case: Case) -> Iterator[Layout]:
    """Yield the groups that slice takes one by one, each as a layout."""
    whole = places.operand(case["layout"], case.get("target"))
    cut = laws.cut_by([e for e, _, _ in whole["shard"]], case["shape"]) or []
    axes = owners(whole["shard"], cut)
    for part in cut:
        yield places.without_units({"shard": [[e, 1, next(axes)] for e in part]})


def groups_fuse(case: Case) -> bool:
    """Say whether a group by itself has axes that fuse, which the whole layout keeps apart."""
    return case.get("target") is not None and any(places.fused(g) != g for g in groups(case))


def owners(shard: Sequence[Sequence[Any]], cut: Sequence[Sequence[int]]) -> Iterator[str]:
    """Yield the axis of each piece that a shard is cut into; a unit piece is of the next iter."""
    at, left = 0, shard[0][0] if shard else 1
    for piece in itertools.chain(*cut):
        while piece > 1 and left == 1:
            at += 1
            left = shard[at][0]
        yield shard[at][2]
        left //= piece


def cut_axes(case: Case) -> bool:
    """Say whether is_tile_* must cut axes of the tiled layout."""
    pair = places.pair_or_none(places.operand(case["layout"], case.get("target")))
    whole = places.pair_or_none(places.operand(case["tiled"], case.get("target")))
    return "" not in (*pair, *whole) and pair != whole and case.get("target") is not None


def moves_axis_of(first: Layout, second: Layout, key: str) -> bool:
    """Say whether ``second`` has, under the key, what lies on an axis of the first's shard."""
    axes = {a for _, _, a in first["shard"]}
    return any((it if isinstance(it, str) else it[2]) in axes for it in second.get(key, ()))


def wrongs(op: str, case: Case) -> Iterator[str]:
    """Yield the faults that make TVM's answer to a case break the law."""
    if op == "slice":
        yield from canonical_faults(case)
        yield "L1"
    elif op in ("pack", "unpack"):
        yield from repack_faults(op, case)
    elif op in ("canonicalize", "size_span"):
        yield from canonical_faults(case)
        bare = places.without_units(case["layout"])
        if case.get("target") and [e for e, _, _ in bare["shard"]] == [1]:
            yield "L26"
    elif op == "tile":
        inner, outer = (places.operand(case[key], case.get("target")) for key in ("inner", "outer"))
        if moves_axis_of(inner, outer, "replica"):
            yield "L10"
        yield from canonical_faults(case)
    elif op in ("tile_to", "direct_sum"):
        yield from canonical_faults(case)
    elif op in ("is_tile_inner", "is_tile_outer"):
        yield from tile_test_faults(op, case)
    elif op.startswith("is_direct_sum"):
        if case["layout"].get("replica"):
            yield "L14"
        yield from canonical_faults(case)


def repack_faults(op: str, case: Case) -> Iterator[str]:
    layout, num = case["layout"], case["num"]
    axis = "m" if op == "unpack" else layout["shard"][-1][2]
    if num == 1:
        return
    extras = [a for _, _, a in layout.get("replica", [])] + list(layout.get("offset", {}))
    if any(a != axis for _, _, a in layout["shard"]):
        yield "L17"
    if axis in extras:
        yield "L18"
    if op == "pack" and any(s % num for _, s, _ in layout["shard"][:-1]):
        yield "L19"


def tile_test_faults(op: str, case: Case) -> Iterator[str]:
    own, whole = (places.operand(case[key], case.get("target")) for key in ("layout", "tiled"))
    yield from canonical_faults(case)
    if own["replica"] or set(own["offset"]) - set(whole["offset"]):
        yield "L14"
    if cut_axes(case):
        if whole["offset"]:
            yield "L6"
        yield "L7"
    if op == "is_tile_inner" and moves_axis_of(own, whole, "replica"):
        yield "L10"
    if op == "is_tile_outer" and places.unit_of(own) != places.unit_of(whole):
        yield "X2"


def one_element(layout: Layout) -> bool:
    return all(e == 1 for e, _, _ in layout["shard"])


def idle(op: str, case: Case) -> Iterator[str]:
    """Yield the faults in what moves nothing: the map of TVM's answer is right, its form is not.

    A canonical form keeps replicas of extent 1 (section 6), so the answer does not make up the
    whole.
    """
    if not op.startswith("is_"):
        return
    target = case.get("target")
    own, whole = (
        places.operand(case["layout"], target)["replica"],
        list(places.operand(case["tiled" if "tiled" in case else "sum"], target)["replica"]),
    )
    for it in own:
        if it not in whole:
            yield "L14"
            return
        whole.remove(it)
    if op.startswith("is_tile") and cut_axes(case) and any(e == 1 or s == 0 for e, s, _ in whole):
        yield "L7"


def harmless(op: str, case: Case, none: bool, same: bool, theirs: Any) -> Iterator[str]:
    """Yield the faults that leave TVM's map right: only its form, or what moves nothing, is not.

    ``none``: ours found no answer; ``same``: it is the same but for what moves nothing.
    """
    if none:
        yield from idle(op, case)
    if same:
        yield from wrongs(op, case)
        if case.get("target") is not None:
            yield "L26"
    if op == "slice" and groups_fuse(case):
        yield "L5"
    if op in ("tile", "direct_sum") and fused_alone(case):
        yield "X1"
    if op.startswith("is_tile") and cut_axes(case) and leaves_scope(case["layout"], theirs):
        yield "L6"
    found = as_dict(theirs[2] if isinstance(theirs[1], bool) else theirs)
    replicated = op == "is_tile_outer" and case["layout"].get("replica")
    if replicated and not laws.is_tile_of(op, case, found):
        yield "L10"
    if op.startswith("is_") and one_element(case["tiled" if "tiled" in case else "sum"]):
        yield "S6"
    if op.startswith("is_") and case.get("target") is not None:
        yield from other_scope(case, found)


def other_scope(case: Case, answer: Layout) -> Iterator[str]:
    """Yield the faults by which an answer makes up another layout: its axes fuse otherwise."""
    own, found = places.operand(case["layout"], None), places.operand(answer, None)
    whole = case["tiled" if "tiled" in case else "sum"]
    if places.scope_of(places.together(own, found)) != places.scope_of(whole):
        yield "X2"
    if places.fused(found) != found or places.fused(own) != own:
        yield "X1"


UNITS = {"laneid": 32, "wid_in_wg": 4, "tid_in_wg": 128}
"""How far an axis goes that a wider one is cut into."""


def leaves_scope(own: Layout, answer: Any) -> bool:
    """Say whether an answer, put together with the case's own layout, has lanes below 0 or past 31.

    Likewise warps past 3, and threads of a warpgroup past 127.
    """
    found = answer[2] if isinstance(answer[1], bool) else answer
    both = places.together(own, as_dict(found))
    for axis, units in UNITS.items():
        steps = [(e - 1) * s for e, s, a in both["shard"] + both["replica"] if a == axis]
        start = both["offset"].get(axis, 0)
        low = start + sum(step for step in steps if step < 0)
        high = start + sum(step for step in steps if step > 0)
        if low < 0 or high >= units:
            return True
    return False


def spans_nothing(layout: Layout, target: str | None) -> bool:
    """Say whether the span of a tile is zero on an axis that it moves along."""
    forms = [places.operand(layout, axes) for axes in (target, None)]
    return any(places.span(form, a) == 0 for form in forms for _, _, a in form["shard"])


def crashes(op: str, case: Case, refusal: str) -> Iterator[str]:
    """Yield the faults that make TVM raise on a valid call."""
    if "into cta->warpgroup->warp" in refusal:
        yield "L8"
    if "can not be split" in refusal or "Cannot split" in refusal:
        yield "L9"
    if "IndexError" in refusal:
        yield "L6"
    if "Divide by zero" in refusal and spans_nothing(case["layout"], case.get("target")):
        yield "L13"
    if op == "slice" and not all(map(places.is_well_formed, groups(case))):
        yield "L5"
    yield from (fault for fault in canonical_faults(case) if fault == "L3")
    if "can not be grouped" in refusal and op.startswith("is_tile") and cut_axes(case):
        yield "L7"
    if op in ("tile", "direct_sum") and fused_alone(case):
        yield "X1"
    if op == "is_tile_outer" and "Ill-formed" in refusal and not ill_formed(case):
        yield "X1"
    if any(map(places.lost_link, [*operands(case), *arranged(case)])):
        yield "X3"
