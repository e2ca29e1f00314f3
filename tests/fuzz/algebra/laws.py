"""The laws of the operations, decided by brute force on every element; imports nothing of ours.

``holds(op, case, answer)`` says whether an answer obeys the definition of its operation: an answer
is what ``tests.support.vectors.plain`` makes of a result, layouts are those of
``tests.support.oracle``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.algebra.places import (
    COUNTS,
    IllFormedError,
    added,
    as_threads,
    fits_together,
    is_well_formed,
    named_places,
    operand,
    pair_of,
    places,
    same_map,
    scope_of,
    span,
    sums,
    tilings,
    together,
    unit_of,
    without_units,
)
from tests.support.oracle import Layout, as_dict, base, digits, flat, image, size

# -- one law per operation --------------------------------------------------------------------


def apply(case: dict[str, Any], answer: Any) -> bool:
    shape = case.get("shape")
    extents = [e for e, _, _ in case["layout"]["shard"]]
    for number, coord in enumerate(case["coords"]):
        radix = shape or ([size(case["layout"])] if len(coord) == 1 else extents)
        want = base(case["layout"], flat(coord, radix))
        if {a: values[number] for a, values in answer.items() if values[number]} != want:
            return False
    return True


def apply_to_shape(case: dict[str, Any], answer: Any) -> bool:
    shape, extents = case["shape"], [e for e, _, _ in case["layout"]["shard"]]
    cut = cut_by(extents, shape)
    for coord, found in zip(case["coords"], answer, strict=True):
        if cut is None:
            want = digits(flat(coord, shape), extents)
        else:
            want = [d for c, part in zip(coord, cut, strict=True) for d in digits(c, part)]
        if found != want:
            return False
    return bool(math.prod(shape) == math.prod(extents))


def cut_by(extents: Sequence[int], shape: Sequence[int]) -> list[list[int]] | None:
    """Cut iters of these extents for each extent of the shape: section 7; None: they do not cut."""
    parts: list[list[int]] = []
    opened: list[int] = []
    for extent in extents:
        left, p = extent, math.prod(opened) * extent
        while len(parts) < len(shape) and shape[len(parts)] and p % shape[len(parts)] == 0:
            rest = p // shape[len(parts)]
            if left % rest:
                return None
            parts.append([*opened, left // rest])
            opened, left, p = [], rest, rest
        if left != 1:
            opened.append(left)
    return parts if len(parts) == len(shape) and not opened else None


def canonicalize(case: dict[str, Any], answer: Any) -> bool:
    found, target = as_dict(answer), case.get("target")
    if not fits_together(answer, case["layout"]):
        return False
    if len(found["shard"]) == 1 and found["shard"][0][0] == 1 and found["shard"][0][1] != 1:
        return False  # a unit iter left over has stride 1 (L26)
    return same_map(found, case["layout"], target)


def group(case: dict[str, Any], answer: Any) -> bool:
    grouped, seps = as_dict(answer[0]), answer[1]
    return separates(grouped, seps, case["shape"]) and same_map(grouped, case["layout"], None)


def group_many(case: dict[str, Any], answer: Any) -> bool:
    grouped = as_dict(answer[0])
    return same_map(grouped, case["layout"], None) and all(
        separates(grouped, seps, shape)
        for seps, shape in zip(answer[1], case["shapes"], strict=True)
    )


def separates(layout: Layout, seps: Sequence[int], shape: Sequence[int]) -> bool:
    extents = [e for e, _, _ in layout["shard"]]
    parts = [math.prod(extents[a:b]) for a, b in itertools.pairwise(seps)]
    return seps[0] == 0 and seps[-1] == len(extents) and parts == list(shape)


def permute_dims(case: dict[str, Any], answer: Any) -> bool:
    layout = case["layout"]
    return permuted(layout, [[n] for n in range(len(layout["shard"]))], case["perm"], answer)


def permute_by_groups(case: dict[str, Any], answer: Any) -> bool:
    runs = [list(range(a, b)) for a, b in itertools.pairwise(case["seps"])]
    return permuted(case["layout"], runs, case["perm"], answer)


def permuted(layout: Layout, runs: list[list[int]], perm: Sequence[int], answer: Any) -> bool:
    """Say whether the element of permuted digits is the element of the digits."""
    order = [at for run in perm for at in runs[run]]
    if sorted(order) != list(range(len(layout["shard"]))):
        return False
    found = as_dict(answer)
    extents = [e for e, _, _ in layout["shard"]]
    for x in range(size(layout)):
        own = digits(x, extents)
        y = flat([own[at] for at in order], [extents[at] for at in order])
        if image(layout, x) != image(found, y):
            return False
    return True


def tile(case: dict[str, Any], answer: Any) -> bool:
    shapes, target = (case["outer_shape"], case["inner_shape"]), case.get("target")
    found = as_dict(answer)
    if not fits_together(answer, case["inner"], case["outer"]):
        return False
    meant = tilings(case["inner"], case["outer"], *shapes, target)
    return named_places(found, target) in meant


def tile_to(case: dict[str, Any], answer: Any) -> bool:
    current = case["current_shape"]
    if any(a % b for a, b in zip(case["to_shape"], current, strict=True)):
        return False
    counts = [a // b for a, b in zip(case["to_shape"], current, strict=True)]
    strides = [math.prod(counts[at + 1 :]) for at in range(len(counts))]
    outer = {"shard": [[e, s, "m"] for e, s in zip(counts, strides, strict=True)]}
    shapes = {"outer_shape": counts, "inner_shape": current}
    return tile(case | {"inner": case["layout"], "outer": outer, **shapes}, answer)


def is_tile_inner(case: dict[str, Any], answer: Any) -> bool:
    shapes = quotients(case["tiled_shape"], case["inner_shape"]), case["inner_shape"]
    if not fits_together(answer, case["layout"], case["tiled"]):
        return False
    return is_tiling(case["layout"], as_dict(answer), *shapes, case)


def is_tile_outer(case: dict[str, Any], answer: Any) -> bool:
    shapes = case["outer_shape"], quotients(case["tiled_shape"], case["outer_shape"])
    if not fits_together(answer, case["layout"], case["tiled"]):
        return False
    return is_tiling(as_dict(answer), case["layout"], *shapes, case)


def is_tiling(inner: Layout, outer: Layout, outer_shape: Sequence[int], inner_shape: Sequence[int],
              case: dict[str, Any]) -> bool:  # fmt: skip
    """Say whether ``inner.tile(outer)`` is the tiled layout: one map, of one kind of unit.

    A warp is not its first thread: ``S[2:1@warpid]`` is not ``S[2:32@tx]``.
    """
    target, whole = case.get("target"), case["tiled"]
    meant = tilings(inner, outer, outer_shape, inner_shape, target, loose=True)
    both = [together(operand(inner, axes), operand(outer, axes)) for axes in (None, target)]
    return (
        named_places(whole, target) in meant
        and unit_of(both[0]) == unit_of(whole)
        and any(is_well_formed(each) or is_well_formed(without_units(each)) for each in both)
    )


def is_tile_of(op: str, case: dict[str, Any], other: Layout) -> bool:
    """Say whether the tiled layout is the tile of the case's layout and another, by definition."""
    own, target = case["layout"], case.get("target")
    if op == "is_tile_inner":
        inner, outer, inner_shape = own, other, case["inner_shape"]
        outer_shape = quotients(case["tiled_shape"], inner_shape)
    else:
        inner, outer, outer_shape = other, own, case["outer_shape"]
        inner_shape = quotients(case["tiled_shape"], outer_shape)
    both = together(operand(inner, target), operand(outer, target))
    if not is_well_formed(both) or scope_of(both) != scope_of(case["tiled"]):
        return False
    meant = tilings(inner, outer, outer_shape, inner_shape, target)
    return named_places(case["tiled"], target) in meant


def quotients(whole: Sequence[int], part: Sequence[int]) -> list[int]:
    return [a // b for a, b in zip(whole, part, strict=True)]


def direct_sum(case: dict[str, Any], answer: Any) -> bool:
    shapes, found = (case["left_shape"], case["right_shape"]), as_dict(answer)
    if not fits_together(answer, case["left"], case["right"]):
        return False
    return is_sum(case["left"], case["right"], *shapes, found, case)


def is_direct_sum_right(case: dict[str, Any], answer: Any) -> bool:
    shapes = case["interleaved_shape"][::2], case["right_shape"]
    return is_sum(as_dict(answer), case["layout"], *shapes, case["sum"], case)


def is_direct_sum_left(case: dict[str, Any], answer: Any) -> bool:
    shapes = case["left_shape"], case["interleaved_shape"][1::2]
    return is_sum(case["layout"], as_dict(answer), *shapes, case["sum"], case)


def is_sum(left: Layout, right: Layout, left_shape: Sequence[int], right_shape: Sequence[int],
           total: Layout, case: dict[str, Any]) -> bool:  # fmt: skip
    target = case.get("target")
    both = as_threads(sums(left, right, left_shape, right_shape), target)
    return both == named_places(total, target)


def slice_(case: dict[str, Any], answer: Any) -> bool:
    lengths = [end - begin for begin, end in case["region"]]
    if any(
        not 0 <= begin < end <= extent
        for (begin, end), extent in zip(case["region"], case["shape"], strict=True)
    ):
        return False
    found, wanted = as_dict(answer), []
    for coord in itertools.product(*map(range, lengths)):
        moved = [c + begin for c, (begin, _) in zip(coord, case["region"], strict=True)]
        wanted.append(image(case["layout"], flat(moved, case["shape"])))
    target = case.get("target")
    if size(found) != math.prod(lengths):
        return False
    return named_places(found, target) == as_threads(wanted, target)


def size_span(case: dict[str, Any], answer: Any) -> bool:
    layout = case["layout"]
    for axis, found in answer["size"].items():
        want = math.prod(e for e, _, a in layout["shard"] if axis in ("*", a))
        if found != want:
            return False
    axes = [axis for axis in answer["span"] if axis != "*"]
    memory = sum(span(layout, axis) - 1 for axis in axes if axis not in COUNTS) + 1
    return answer["span"]["*"] == memory and all(
        answer["span"][axis] == span(layout, axis) for axis in axes
    )


def verify_well_formed(case: dict[str, Any], answer: Any) -> bool:
    try:
        pair = pair_of(case["layout"])
    except IllFormedError:
        return False
    return bool(answer == {"ok": True, "scope": None if pair is None else list(pair)})


def storage(case: dict[str, Any], answer: Any) -> bool:
    found, layout = as_dict(answer), case["layout"]
    for key in ("shard", "replica"):
        kept = [list(it) for it in layout.get(key, []) if it[2] not in COUNTS]
        if sorted(found[key]) != sorted(kept) or (key == "shard" and found[key] != kept):
            return False
    offset = layout.get("offset", {}).items()
    return bool(found["offset"] == {a: n for a, n in offset if n and a not in COUNTS})


def unpack(case: dict[str, Any], answer: Any) -> bool:
    return widens(as_dict(answer), case["layout"], case["num"], "m")


def pack(case: dict[str, Any], answer: Any) -> bool:
    return widens(case["layout"], as_dict(answer), case["num"], case["layout"]["shard"][-1][2])


def widens(narrow: Layout, wide: Layout, num: int, axis: str) -> bool:
    """Say whether ``narrow(x*num + k) = num*wide(x) + k`` on the axis, ``wide(x)`` elsewhere."""
    if size(narrow) != size(wide) * num:
        return False
    for x, cells in enumerate(places(wide)):
        for k in range(num):
            want = frozenset(
                added(tuple((a, n * num if a == axis else n) for a, n in cell), ((axis, k),))
                for cell in cells
            )
            if image(narrow, x * num + k) != want:
                return False
    return True


def broadcast(case: dict[str, Any], answer: Any) -> bool:
    layout, found, num = case["layout"], as_dict(answer), case["num"]
    count = len(layout["shard"])
    if not -count - 1 <= case["position"] <= count:
        return False
    at = case["position"] % (count + 1)
    rest = found["shard"][:at] + found["shard"][at + 1 :]
    return found["shard"][at] == [num, 0, case["axis"]] and same_map(
        found | {"shard": rest}, layout, None
    )


LAWS: dict[str, Callable[[dict[str, Any], Any], bool]] = {
    name.rstrip("_"): law
    for name, law in list(globals().items())
    if name.rstrip("_") in (
        "apply", "apply_to_shape", "canonicalize", "group", "group_many", "permute_dims",
        "permute_by_groups", "tile", "tile_to", "is_tile_inner", "is_tile_outer", "direct_sum",
        "is_direct_sum_left", "is_direct_sum_right", "slice", "size_span", "verify_well_formed",
        "storage", "pack", "unpack", "broadcast",
    )
}  # fmt: skip


# -- swizzled layouts -------------------------------------------------------------------------


def swizzled(address: int, lengths: Sequence[int], inner: bool) -> int:
    """Return ``address`` permuted: SEMANTICS section 13, bit by bit."""
    per_element, swizzle_len, atom_len = lengths
    low, high = (atom_len, 0) if inner else (0, atom_len)
    moved = address
    for bit in range(swizzle_len):
        if address >> (per_element + bit + low) & 1:
            moved ^= 1 << (per_element + bit + high)
    return moved


def is_bare(layout: Layout) -> bool:
    """Say whether a swizzled layout's tile is at most one dense iter in memory, from 0."""
    tile_ = layout["tile"]
    shard = tile_["shard"]
    return (
        len(shard) <= 1
        and not tile_.get("replica")
        and not any(tile_.get("offset", {}).values())
        and all(s == 1 and a not in COUNTS for _, s, a in shard)
    )


def tile_over(layout: Layout, shape: Sequence[int]) -> Layout:
    """Return the tile of a swizzled layout; a bare one's is dense over the shape asked for."""
    if not is_bare(layout):
        tile_: Layout = layout["tile"]
        return tile_
    shard = layout["tile"]["shard"]
    return {"shard": [[math.prod(shape), 1, shard[0][2] if shard else "m"]]}


RECEIVERS = {
    "tile": ("inner", "inner_shape"),
    "tile_to": ("layout", "current_shape"),
    "slice": ("layout", "shape"),
    "direct_sum": ("right", "right_shape"),
    "is_tile_inner": ("layout", "inner_shape"),
    "is_tile_outer": ("layout", "outer_shape"),
    "is_direct_sum_left": ("layout", "left_shape"),
    "is_direct_sum_right": ("layout", "right_shape"),
}
"""Which layout is swizzled, and the shape that a bare one adopts."""


def unwrapped(op: str, case: dict[str, Any], answer: Any) -> tuple[dict[str, Any], Any] | None:
    """Return a swizzled case and its answer as one of plain tiles; None: the swizzle is wrong."""
    key, shape = RECEIVERS.get(op, ("layout", ""))
    own, plain = case[key], dict(case)
    whole = "tiled" if "tiled" in case else "sum" if "sum" in case else ""
    outer = case[whole] if whole else own
    if "swizzle" in own:
        plain[key] = tile_over(own, case[shape]) if shape else own["tile"]
    if whole and "swizzle" in outer:
        plain[whole] = tile_over(
            outer, case[f"{'tiled' if whole == 'tiled' else 'interleaved'}_shape"]
        )
    if whole and op != "is_tile_outer":
        alike = [own.get(name) == outer.get(name) for name in ("swizzle", "inner")]
        return (plain, answer) if all(alike) else None
    bits = case["num"].bit_length() - 1 if op in ("pack", "unpack") else 0
    first = outer["swizzle"][0] + (bits if op == "unpack" else -bits)
    if ("swizzle" in own and whole) or len(answer) != 3 or answer[:2] != (
        [first, *outer["swizzle"][1:]], outer["inner"]
    ):  # fmt: skip
        return None
    return plain, answer[2]


def swizzled_measure(op: str, case: dict[str, Any], answer: Any) -> bool:
    """Decide apply, size and well-formedness of a swizzled layout."""
    layout = case["layout"]
    if op == "size_span":
        axes = {a for _, _, a in layout["tile"]["shard"] + layout["tile"].get("replica", [])}
        memory = sum(
            span(layout["tile"], axis) - 1
            for axis in axes | set(layout["tile"].get("offset", {}))
            if axis not in COUNTS
        )
        return bool(answer == {"size": {"*": size(layout["tile"])}, "span": {"*": memory + 1}})
    if op == "verify_well_formed":
        return is_well_formed(layout["tile"]) and answer == {"ok": True}
    tile_ = layout["tile"]
    extents = [e for e, _, _ in tile_["shard"]]
    for coord, found in zip(case["coords"], answer["m"], strict=True):
        radix = case.get("shape") or ([size(tile_)] if len(coord) == 1 else extents)
        address = base(tile_, flat(coord, radix)).get("m", 0)
        if found != swizzled(address, layout["swizzle"], layout["inner"]):
            return False
    return list(answer) == ["m"]


def holds(op: str, case: dict[str, Any], answer: Any) -> bool:
    """Say whether an answer, not None, obeys the definition of its operation."""
    if not any(isinstance(each, dict) and "swizzle" in each for each in case.values()):
        return LAWS[op](case, answer)
    if op in ("apply", "size_span", "verify_well_formed"):
        return swizzled_measure(op, case, answer)
    plain = unwrapped(op, case, answer)
    return plain is not None and LAWS[op](*plain)
