"""Every operation against its definition, by brute force (tests/support/oracle.py)."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from layoutalg import (
    ComposeLayout,
    Iter,
    LayoutError,
    R,
    S,
    SwizzleLayout,
    TileLayout,
    align,
    fragments,
    laneid,
    m,
    parse,
    tx,
    warpid,
    wgid,
    wid_in_wg,
)
from layoutalg.algebra.parts import fault_of
from tests.support import oracle, strategies
from tests.support.strategies import (
    Grouped,
    Pair,
    Sliced,
    grouped_layouts,
    laws,
    layouts,
    pairs,
    sliced,
)
from tests.support.vectors import plain

D_FRAG = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
DENSE = {"lowest": 0}


def described(layout: Any) -> dict[str, Any]:
    """Return a layout as the oracle reads it."""
    return oracle.as_dict(plain(layout))


def nonzero(place: dict[str, Any]) -> dict[str, int]:
    return {axis: int(value) for axis, value in place.items() if value != 0}


def extents(layout: TileLayout) -> list[int]:
    return [int(it.extent) for it in layout.shard]


def places(layout: TileLayout) -> list[dict[str, int]]:
    return [oracle.base(described(layout), x) for x in range(int(layout.size()))]


def same_images(one: TileLayout, other: TileLayout) -> bool:
    return oracle.images(described(one)) == oracle.images(described(other))


# -- the map ----------------------------------------------------------------------------------


@laws
@given(grouped_layouts())
def test_apply_is_the_definition_in_all_its_forms(case: Grouped) -> None:
    layout, shape = case
    for x, coord in enumerate(oracle.every(shape)):
        want = oracle.base(described(layout), x)
        assert nonzero(layout.apply(*coord, shape=shape)) == want
        digits = oracle.digits(x, extents(layout))
        if len(digits) != 1:
            assert nonzero(layout.apply(x)) == want
        assert nonzero(layout.apply(*digits)) == want
        assert nonzero(layout.group(shape)[0].apply(*layout.apply_to_shape(coord, shape))) == want


@laws
@given(layouts(), st.data())
def test_apply_over_a_shape_that_does_not_group(layout: TileLayout, data: st.DataObject) -> None:
    shape = data.draw(strategies.factorings(int(layout.size())))
    for x, coord in enumerate(oracle.every(shape)):
        assert nonzero(layout.apply(*coord, shape=shape)) == oracle.base(described(layout), x)


@laws
@given(grouped_layouts())
def test_keys_are_the_axes_of_shard_and_offset(case: Grouped) -> None:
    layout, shape = case
    named = {it.axis.name for it in layout.shard} | {axis.name for axis in layout.offset}
    assert set(layout.apply(*(0 for _ in layout.shard))) == named
    grouped = {it.axis.name for it in layout.group(shape)[0].shard}
    offset = {axis.name for axis in layout.offset}
    assert set(layout.apply(*(0 for _ in shape), shape=shape)) == grouped | offset


@laws
@given(grouped_layouts())
def test_tables_and_arrays_agree_with_apply(case: Grouped) -> None:
    layout, shape = case
    coords = oracle.every(shape)
    table = layout.table(shape)
    whole = layout.table(shape, replicas=True)
    arrays = np.indices(shape, dtype=np.int64)
    by_array = layout.apply(*arrays, shape=shape)
    copies = max((a.shape[-1] for a in whole.values()), default=1)
    for x, coord in enumerate(coords):
        assert nonzero({a: v[coord] for a, v in table.items()}) == oracle.base(described(layout), x)
        if shape:
            at = {a: v[coord] if getattr(v, "ndim", 0) else v for a, v in by_array.items()}
            assert nonzero(at) == oracle.base(described(layout), x)
        found = {
            tuple(sorted(nonzero({a: v[coord][r] for a, v in whole.items()}).items()))
            for r in range(copies)
        }
        assert found == set(oracle.image(described(layout), x))


@laws
@given(grouped_layouts())
def test_owners_are_the_image(case: Grouped) -> None:
    layout, shape = case
    for x, coord in enumerate(oracle.every(shape)):
        owners = layout.owners(*coord, shape=shape)
        found = {tuple(sorted(nonzero(place).items())) for place in owners}
        assert found == set(oracle.image(described(layout), x))
        assert len(found) == len(owners)
        assert nonzero(owners[0]) == oracle.base(described(layout), x)


@laws
@given(grouped_layouts(replicas=False))
@example(Grouped(D_FRAG, (16, 8)))
@example(Grouped(TileLayout(S[(2, 3) : (-1, 4 @ laneid)] + 7), (6,)))
def test_inverse_finds_each_element_or_the_layout_has_none(case: Grouped) -> None:
    layout, shape = case
    try:
        inverse = layout.inverse(shape)
    except LayoutError:
        # refused: two elements share a place, or the strides are not super-increasing
        strides = [
            (abs(int(it.stride)), int(it.extent), it.axis) for it in layout.shard if it.extent != 1
        ]
        assert any(
            stride <= sum((e - 1) * s for s, e, a in strides if a is axis and s < stride)
            or sum(s == stride and a is axis for s, _, a in strides) > 1
            or stride == 0
            for stride, _, axis in strides
        )
        return
    for coord in oracle.every(shape):
        place = layout.apply(*coord, shape=shape)
        wanted = {a.name for a in (*inverse.axes, *inverse.offset)}
        assert inverse.at(**{a: v for a, v in place.items() if a in wanted}) == coord
    taken = {tuple(sorted(place.items())) for place in places(layout)}
    names = [axis.name for axis in inverse.axes]
    if len(names) == 1 and set(inverse.offset) <= set(inverse.axes):
        for value in range(-40, 80):
            free = tuple(sorted(nonzero({names[0]: value}).items())) not in taken
            assert (inverse.at(**{names[0]: value}) is None) == free


@laws
@given(layouts())
def test_size_and_span(layout: TileLayout) -> None:
    iters = [*layout.shard, *layout.replica]
    assert layout.size() == oracle.size(described(layout))
    total = 1
    for name in ("m", "TLane", "TCol", "P", "laneid", "warpid", "tx"):
        own = [int(it.extent) for it in layout.shard if it.axis.name == name]
        assert layout.size(name) == oracle.flat([e - 1 for e in own], own) + 1
        steps = [(int(it.extent) - 1) * int(it.stride) for it in iters if it.axis.name == name]
        offset = sum(v for a, v in layout.offset.items() if a.name == name)
        assert layout.span(name) == 1 + sum(steps) + offset
        if name in strategies.MEMORY:
            total += sum(steps) + offset
    assert layout.span() == total


@laws
@given(layouts(lowest=0))
def test_span_is_the_largest_coordinate_plus_one(layout: TileLayout) -> None:
    found = [dict(place) for image in oracle.images(described(layout)) for place in image]
    for axis in {it.axis for it in (*layout.shard, *layout.replica)}:
        assert layout.span(axis) == 1 + max(place.get(axis.name, 0) for place in found)


def test_coordinates_may_be_numpy_ints_and_arrays_that_broadcast() -> None:
    rows, cols = np.arange(16), np.arange(8)
    grid = D_FRAG.apply(rows[:, None], cols[None, :], shape=(16, 8))
    table = D_FRAG.table((16, 8))
    assert all((np.broadcast_to(grid[axis], (16, 8)) == table[axis]).all() for axis in table)
    row = D_FRAG.apply(3, cols, shape=(16, 8))
    assert all((np.broadcast_to(row[axis], 8) == table[axis][3]).all() for axis in table)
    want = D_FRAG.apply(9, 3, shape=(16, 8))
    for coord in ((np.int64(9), np.uint8(3)), (np.array(9), np.array(3)), (np.int32(9), 3)):
        place = D_FRAG.apply(*coord, shape=[np.int64(16), 8])
        assert place == want
        assert all(type(value) is int for value in place.values())
    assert D_FRAG.apply(np.array([], dtype=int))["laneid"].shape == (0,)
    assert D_FRAG.apply(np.array([[127]], dtype=np.uint8))["laneid"].tolist() == [[31]]
    inverse = D_FRAG.inverse((16, 8))
    found = inverse.at(**table)
    assert found is not None
    assert all((a == b).all() for a, b in zip(found, np.indices((16, 8)), strict=True))
    with pytest.raises(LayoutError, match="inverse: the arrays of coordinates must broadcast"):
        inverse.at(laneid=np.arange(3), m=np.arange(2))


def test_numbers_beyond_64_bits_stay_exact_or_are_refused() -> None:
    huge = TileLayout(S[(4, 1 << 70) : (3 << 70, 1)] + (-5))
    assert huge.apply((1 << 71) + 3) == {"m": (6 << 70) - 2}
    assert huge.inverse((1 << 72,)).at(m=(6 << 70) - 2) == ((1 << 71) + 3,)
    assert huge.slice((1 << 72,), ((1 << 70, 1 << 72),)) is not None
    for wrong in (lambda: huge.table((1 << 72,)), lambda: huge.apply(np.arange(4))):
        with pytest.raises(LayoutError, match="do not fit in 64 bits"):
            wrong()
    near = TileLayout(S[2:1] + ((1 << 63) - 2))
    assert near.apply(np.arange(2))["m"].tolist() == [(1 << 63) - 2, (1 << 63) - 1]
    with pytest.raises(LayoutError, match="do not fit in 64 bits"):
        TileLayout(S[2:1] + ((1 << 63) - 1)).apply(np.arange(2))


def test_layouts_of_one_element() -> None:
    for text in ("S[()]", "S[1:7]", "S[(1,1):(3@laneid,4)]"):
        one = parse(text + " + 5")
        assert one.apply(0)["m"] == 5
        assert one.size() == 1
        assert one.table(())["m"].tolist() == 5
        assert one.canonicalize().canonicalize() == one.canonicalize()
        assert one.group(())[1] == (0,)
        assert one.slice((), ()) is not None
    assert parse("S[()]").apply() == {}
    assert parse("S[(1,1):(3,4)]").slice((1, 1), ((0, 1), (0, 1))) == parse("S[(1,1):(1,1)]")


# -- canonical form and refinements -----------------------------------------------------------


def fused_neighbours(layout: TileLayout) -> list[tuple[Iter, Iter]]:
    return [
        (a, b)
        for a, b in pairwise(layout.shard)
        if a.axis is b.axis and int(b.extent) * int(b.stride) == a.stride
    ]


@laws
@given(layouts())
@example(TileLayout(S[(1, 2, 2) : (0 @ wid_in_wg, 1 @ laneid, 1 @ wgid)]))
@example(TileLayout(S[(2, 2) : (1 @ laneid, 1 @ wgid)] + 0 @ wid_in_wg))
def test_canonicalize_keeps_the_map(layout: TileLayout) -> None:
    bare = layout.canonicalize()
    assert same_images(bare, layout)
    assert bare.canonicalize() == bare
    assert not fused_neighbours(bare)
    assert bare.verify_well_formed()
    fewer = TileLayout.from_iters([it for it in bare.shard if it.extent != 1], bare.replica)
    if len(bare.shard) > 1 and fault_of(fewer) is None:
        assert fewer.shard == bare.shard
        assert 0 not in bare.offset.values()


def test_a_unit_iter_stays_only_where_it_links_two_scopes() -> None:
    whole = parse("S[(1,1,2,1,2):(7,5@wid_in_wg,1@laneid,1@wid_in_wg,1@wgid)] + 0 + 0@laneid")
    assert str(whole.canonicalize()) == "S[(1,2,2):(1@wid_in_wg,1@laneid,1@wgid)] + 0@laneid"
    assert str(whole.canonicalize("cuda")) == "S[(2,2):(1@tx,128@tx)]"


@laws
@given(layouts())
@example(TileLayout(S[(1, 2, 2) : (0 @ wid_in_wg, 1 @ laneid, 1 @ wgid)]))
@example(TileLayout(S[1:1] + R[4 : 3 @ laneid] + 32 @ laneid))
@example(TileLayout(S[(2, 4) : (1 @ warpid, 1 @ laneid)] + 32 @ laneid + (-1) @ warpid))
def test_canonicalize_under_cuda_keeps_the_thread_numbers(layout: TileLayout) -> None:
    bare = layout.canonicalize("cuda")
    assert oracle.threads_of(described(bare)) == oracle.threads_of(described(layout))
    assert bare.canonicalize("cuda") == bare
    assert bare.verify_well_formed()
    assert not fused_neighbours(bare)
    assert 0 not in bare.offset.values()


@laws
@given(layouts())
def test_is_trivial_means_dense_from_zero_in_memory(layout: TileLayout) -> None:
    axes = {axis for place in places(layout) for axis in place}
    dense = len(axes) <= 1 and not layout.canonicalize().replica
    counted = [sum(place.values()) for place in places(layout)]
    in_memory = all(name in strategies.MEMORY for name in axes)
    if layout.is_trivial():
        assert dense
        assert in_memory
        assert counted == list(range(int(layout.size())))
    elif not layout.replica and len(counted) > 1:
        assert not (dense and in_memory and counted == list(range(len(counted))))


@laws
@given(layouts(), st.data())
def test_group_cuts_where_it_can(layout: TileLayout, data: st.DataObject) -> None:
    shape = data.draw(strategies.factorings(int(layout.size())))
    if not oracle.groups(extents(layout), shape):
        with pytest.raises(LayoutError, match="group: "):
            layout.group(shape)
        return
    grouped, seps = layout.group(shape)
    check_groups(grouped, seps, shape)
    assert same_images(grouped, layout)


def check_groups(grouped: TileLayout, seps: Sequence[int], shape: Sequence[int]) -> None:
    assert seps[0] == 0
    assert seps[-1] == len(grouped.shard)
    for extent, (start, end) in zip(shape, pairwise(seps), strict=True):
        own = extents(grouped)[start:end]
        assert start < end
        assert oracle.flat([e - 1 for e in own], own) + 1 == extent


@laws
@given(layouts(most=48), st.data())
def test_group_many_is_the_coarsest_common_refinement(
    layout: TileLayout, data: st.DataObject
) -> None:
    count = int(layout.size())
    shapes = data.draw(st.lists(strategies.factorings(count), min_size=1, max_size=3))
    own = extents(layout)
    cuts = {b for each in (own, *shapes) for b in oracle.boundaries(each)}
    nested = all(big % small == 0 for small, big in pairwise(sorted(cuts)))
    if not (layout.shard and nested):
        with pytest.raises(LayoutError, match="group_many: "):
            layout.group_many(shapes)
        return
    grouped, all_seps = layout.group_many(shapes)
    for shape, seps in zip(shapes, all_seps, strict=True):
        check_groups(grouped, seps, shape)
    assert same_images(grouped, layout)
    assert set(oracle.boundaries(extents(grouped))) == cuts
    ones = max(list(each).count(1) for each in (own, *shapes))
    assert extents(grouped).count(1) >= ones


@laws
@given(layouts(), st.data())
def test_permute_dims(layout: TileLayout, data: st.DataObject) -> None:
    perm = data.draw(st.permutations(range(len(layout.shard))))
    moved = layout.permute_dims(perm)
    for x in range(int(layout.size())):
        digits = oracle.digits(x, extents(layout))
        assert moved.apply(*(digits[at] for at in perm)) == layout.apply(*digits)
    assert moved.replica == layout.replica


@laws
@given(grouped_layouts(), st.data())
def test_permute_by_groups(case: Grouped, data: st.DataObject) -> None:
    layout, shape = case
    perm = data.draw(st.permutations(range(len(shape))))
    grouped, seps = layout.group(shape)
    moved = grouped.permute_by_groups(seps, perm)
    turned = tuple(shape[at] for at in perm)
    for coord in oracle.every(shape):
        there = moved.apply(*(coord[at] for at in perm), shape=turned)
        assert nonzero(there) == nonzero(layout.apply(*coord, shape=shape))


@laws
@given(layouts(lowest=0, offsets=False, replicas=False), st.data())
def test_align_lists_the_digits_of_the_anchor_in_canonical_order(
    anchor: TileLayout, data: st.DataObject
) -> None:
    shape = data.draw(strategies.grouping_shapes(anchor))
    strides = data.draw(st.lists(st.integers(0, 50), min_size=len(shape), max_size=len(shape)))
    follower = TileLayout.from_iters([Iter(e, s) for e, s in zip(shape, strides, strict=True)])
    if not oracle.groups(extents(follower), extents(anchor)):
        with pytest.raises(LayoutError):
            align(anchor, follower)
        return
    aligned = align(anchor, follower)
    order = sorted(
        range(len(anchor.shard)),
        key=lambda at: (anchor.shard[at].axis.memory, -int(anchor.shard[at].stride)),
    )
    turned = [extents(anchor)[at] for at in order]
    for x in range(int(anchor.size())):
        digits = oracle.digits(x, extents(anchor))
        there = aligned.apply(*(digits[at] for at in order), shape=turned)
        assert nonzero(there) == oracle.base(described(follower), x)


# -- tiles and sums ---------------------------------------------------------------------------


@laws
@given(pairs())
def test_tile_places_copies_in_units_of_the_span(case: Pair) -> None:
    tiled = case.inner.tile(case.outer, case.outer_shape, case.inner_shape)
    inner, outer = described(case.inner), described(case.outer)
    shape = case.shape
    for o in oracle.every(case.outer_shape):
        for n in oracle.every(case.inner_shape):
            t = [a * e + b for a, e, b in zip(o, case.inner_shape, n, strict=True)]
            want = oracle.tiled(inner, outer, case.inner_shape, o, n, case.outer_shape)
            assert oracle.image(described(tiled), oracle.flat(t, shape)) == want


@laws
@given(pairs())
def test_tile_to_is_a_row_major_tile(case: Pair) -> None:
    outer = TileLayout(S[case.outer_shape])
    tiled = case.inner.tile(outer, case.outer_shape, case.inner_shape)
    assert case.inner.tile_to(case.shape, case.inner_shape) == tiled


@laws
@given(pairs())
def test_is_tile_inner_finds_the_outer_layout(case: Pair) -> None:
    tiled = case.inner.tile(case.outer, case.outer_shape, case.inner_shape)
    outer = case.inner.is_tile_inner(tiled, case.shape, case.inner_shape)
    assert outer is not None
    assert same_images(outer, case.outer)
    assert same_images(case.inner.tile(outer, case.outer_shape, case.inner_shape), tiled)


@laws
@given(pairs())
def test_is_tile_outer_finds_an_inner_layout(case: Pair) -> None:
    tiled = case.inner.tile(case.outer, case.outer_shape, case.inner_shape)
    inner = case.outer.is_tile_outer(tiled, case.shape, case.outer_shape)
    assert inner is not None
    assert same_images(inner.tile(case.outer, case.outer_shape, case.inner_shape), tiled)


@laws
@given(pairs(), st.data())
def test_recognisers_of_tiles_are_sound(case: Pair, data: st.DataObject) -> None:
    """Ask about a layout that need not be a tiling: an answer must tile back to it."""
    tiled = case.inner.tile(case.outer, case.outer_shape, case.inner_shape)
    changed = [Iter(it.extent, data.draw(near(it.stride)), it.axis) for it in tiled.shard]
    other = TileLayout.from_iters(changed, tiled.replica[data.draw(st.integers(0, 1)) :])
    try:
        outer = case.inner.is_tile_inner(other, case.shape, case.inner_shape)
    except LayoutError:
        assume(False)
    if outer is not None:
        assert same_images(case.inner.tile(outer, case.outer_shape, case.inner_shape), other)
    inner = case.outer.is_tile_outer(other, case.shape, case.outer_shape)
    if inner is not None and not case.outer.replica:
        assert same_images(inner.tile(case.outer, case.outer_shape, case.inner_shape), other)


def near(stride: Any) -> Any:
    return st.sampled_from([stride, stride, stride, stride + 1, 2 * stride])


FOUND_BY_FUZZ: tuple[tuple[str, str, str, tuple[int, int], str | None, str | None], ...] = (
    # question, layout, whole, (size of the whole, own size), target, answer
    ("inner", "S[2:-1]", "S[(2,2):(0,-1)]", (4, 2), None, None),
    ("inner", "S[12:1] + R[1:1]", "S[48:1]", (48, 12), None, "S[4:1]"),
    ("inner", "S[8:4@laneid]", "S[(2,8):(1@wid_in_wg,4@laneid)]", (16, 8), "cuda",
     "S[2:1@wid_in_wg]"),
    ("inner", "S[2:1] + (-8)@laneid", "S[(6,2):(1@wid_in_wg,1)] + (-8)@laneid", (12, 2), "cuda",
     "S[6:1@wid_in_wg]"),
    ("inner", "S[2:1] + 1@wgid", "S[(2,2):(1@warpid,1)] + 4@warpid", (4, 2), None, None),
    ("inner", "S[3:1@laneid]", "S[(1,2,3):(1@wid_in_wg,1@wgid,1@laneid)]", (6, 3), None, None),
    ("inner", "S[1:1@laneid] + 32@warpid", "S[2:1@tx] + 1056@tx", (2, 1), "cuda", None),
    ("outer", "S[1:1@warpid]", "S[(1,3,4):(32@tx,1@tx,1)]", (12, 1), None, "S[(3,4):(1@tx,1)]"),
    ("outer", "S[1:160@wid_in_wg] + 1@wid_in_wg",
     "S[(1,2,4):(5120@tid_in_wg,2,128@tid_in_wg)] + 32@tid_in_wg", (8, 1), "cuda", None),
    ("outer", "S[2:1@laneid] + R[2:4@wid_in_wg]", "S[(2,8):(8@laneid,1@laneid)] + R[2:4@wid_in_wg]",
     (16, 2), "cuda", "S[8:1@tid_in_wg]"),
    ("right", "S[2:1] + R[1:5]", "S[(2,2):(2,1)]", (4, 2), None, "S[2:2]"),
    ("left", "S[2:1] + R[3:0]", "S[(2,3):(1,2)]", (6, 2), None, "S[3:2]"),
)  # fmt: skip


@pytest.mark.parametrize(("question", "own", "whole", "sizes", "target", "answer"), FOUND_BY_FUZZ)
def test_what_the_differential_fuzz_found(
    question: str,
    own: str,
    whole: str,
    sizes: tuple[int, int],
    target: str | None,
    answer: str | None,
) -> None:
    ask = "is_direct_sum_" if question in ("left", "right") else "is_tile_"
    rest = sizes[0] // sizes[1]
    shapes = {
        "left": ((sizes[1], rest), (sizes[1],)),
        "right": ((rest, sizes[1]), (sizes[1],)),
    }.get(question, ((sizes[0],), (sizes[1],)))
    found = getattr(parse(own), ask + question)(parse(whole), *shapes, target)
    assert (None if found is None else str(found)) == answer


@laws
@given(st.sampled_from([(4, 1), (8, 2), (2, 4)]), st.data())
def test_tiles_over_warps_are_recognised_under_cuda(
    warps: tuple[int, int], data: st.DataObject
) -> None:
    """Lanes tiled over warps become one axis; both recognisers cut it again."""
    rows, cols = warps
    lanes = data.draw(st.sampled_from([(8, 4), (16, 2), (32, 1)]))
    inner = TileLayout(S[(*lanes, 2) : (lanes[1] @ laneid, 1 @ laneid, 1)])
    outer = TileLayout(S[(rows, cols) : (cols @ warpid, 1 @ warpid)])
    shapes = (rows, cols), (lanes[0], 2 * lanes[1])
    whole = tuple(a * b for a, b in zip(*shapes, strict=True))
    tiled = inner.tile(outer, *shapes, target="cuda")
    assert {it.axis for it in tiled.shard} <= {tx, m}
    copies = inner.is_tile_inner(tiled, whole, shapes[1], "cuda")
    assert copies is not None
    assert copies.canonicalize() == outer.canonicalize()
    found = outer.is_tile_outer(tiled, whole, shapes[0], "cuda")
    assert found.canonicalize() == inner.canonicalize()


@pytest.mark.parametrize(
    ("inner", "outer", "tiled"),
    [
        ("S[32:1@laneid]", "S[4:1@wid_in_wg]", "S[128:1@tid_in_wg]"),
        ("S[32:1@laneid]", "S[8:1@warpid]", "S[256:1@tx]"),
        ("S[128:1@tid_in_wg]", "S[2:1@wgid]", "S[256:1@tx]"),
        ("S[4:1@wid_in_wg]", "S[2:1@wgid]", "S[8:1@warpid]"),
    ],
)
def test_each_axis_is_cut_where_the_tile_ends(inner: str, outer: str, tiled: str) -> None:
    tile, copies = parse(inner), parse(outer)
    shapes = (copies.size(),), (tile.size(),)
    whole = tile.tile(copies, *shapes, "cuda")
    assert str(whole) == tiled
    assert tile.is_tile_inner(whole, (whole.size(),), shapes[1], "cuda") == copies
    assert copies.is_tile_outer(whole, (whole.size(),), shapes[0], "cuda") == tile


@laws
@given(pairs(lowest=-4))
def test_direct_sum_adds_places(case: Pair) -> None:
    right, left = case.inner, case.outer
    total = right.direct_sum(left, case.outer_shape, case.inner_shape)
    for o in oracle.every(case.outer_shape):
        for n in oracle.every(case.inner_shape):
            t = [a * e + b for a, e, b in zip(o, case.inner_shape, n, strict=True)]
            x, y = oracle.flat(o, case.outer_shape), oracle.flat(n, case.inner_shape)
            want = oracle.summed(described(left), described(right), x, y)
            assert oracle.image(described(total), oracle.flat(t, case.shape)) == want
    woven = [e for pair in zip(case.outer_shape, case.inner_shape, strict=True) for e in pair]
    found = right.is_direct_sum_right(total, woven, case.inner_shape)
    assert found is not None
    assert same_images(found, left)
    found = left.is_direct_sum_left(total, woven, case.outer_shape)
    assert found is not None
    assert same_images(found, right)


@laws
@given(pairs(lowest=-4), st.data())
def test_recognisers_of_sums_are_sound(case: Pair, data: st.DataObject) -> None:
    right, left = case.inner, case.outer
    total = right.direct_sum(left, case.outer_shape, case.inner_shape)
    changed = [Iter(it.extent, data.draw(near(it.stride)), it.axis) for it in total.shard]
    other = TileLayout.from_iters(changed, total.replica[data.draw(st.integers(0, 1)) :], {m: 3})
    woven = [e for pair in zip(case.outer_shape, case.inner_shape, strict=True) for e in pair]
    try:
        found = right.is_direct_sum_right(other, woven, case.inner_shape)
    except LayoutError:
        assume(False)
    if found is not None:
        assert same_images(right.direct_sum(found, case.outer_shape, case.inner_shape), other)
    found = left.is_direct_sum_left(other, woven, case.outer_shape)
    if found is not None:
        assert same_images(found.direct_sum(left, case.outer_shape, case.inner_shape), other)


# -- slices -----------------------------------------------------------------------------------


@laws
@given(sliced())
@example(Sliced(TileLayout(S[(2, 2, 4) : (100, 10, 1)]), (16,), ((6, 10),)))
@example(Sliced(TileLayout(S[(2, 2, 4) : (14, 10, 1)]), (16,), ((4, 12),)))
@example(Sliced(TileLayout(S[(3, 2) : (5, 1)]), (6,), ((1, 5),)))
@example(Sliced(TileLayout(S[(5, 4) : (8, 1)]), (20,), ((2, 18),)))
@example(Sliced(TileLayout(S[(2, 3, 2) : (0, 0 @ laneid, 1)]), (12,), ((2, 10),)))
def test_slices_are_sound_and_complete(case: Sliced) -> None:
    check_slice(case)


def check_slice(case: Sliced) -> None:
    layout, shape, region = case
    lengths = [end - begin for begin, end in region]
    inside = [
        layout.apply(*(c + b for c, (b, _) in zip(coord, region, strict=True)), shape=shape)
        for coord in oracle.every(lengths)
    ]
    piece = layout.slice(shape, region)
    assert (piece is not None) == oracle.expressible(inside)
    if piece is not None:
        assert places(piece) == [nonzero(place) for place in inside]
        assert piece.replica == layout.replica


@pytest.mark.parametrize("radix", [(2, 2, 2), (2, 3, 2), (3, 2, 2), (2, 2, 3), (3, 3), (4, 2)])
def test_every_range_of_small_layouts(radix: tuple[int, ...]) -> None:
    size = oracle.flat([extent - 1 for extent in radix], radix) + 1
    inner = radix[-1]
    # strides at which carries and steps agree, and at which they do not
    choices = [(1, 2, inner, inner + 1, 7)] * (len(radix) - 1)
    for slower in itertools.product(*choices):
        layout = TileLayout.from_iters(
            [Iter(e, s) for e, s in zip(radix, (*slower, 1), strict=True)]
        )
        for begin, end in itertools.combinations(range(size + 1), 2):
            check_slice(Sliced(layout, (size,), ((begin, end),)))


@pytest.mark.parametrize("still", [(0, 0, 1), (0, 1, 0), (0, 0, 3), (2, 0, 0)])
def test_every_range_where_digits_stand_still_on_several_axes(still: tuple[int, int, int]) -> None:
    a, b, c = still
    layout = TileLayout(S[(2, 3, 2, 2) : (a, b @ laneid, c, 1 @ laneid)])
    fast = TileLayout(S[(2, 2, 3, 2) : (5, a @ laneid, b, c)])
    for begin, end in itertools.combinations(range(25), 2):
        check_slice(Sliced(layout, (24,), ((begin, end),)))
        check_slice(Sliced(fast, (24,), ((begin, end),)))


def test_a_range_of_a_huge_layout_is_decided_at_once() -> None:
    big = 1 << 80
    layout = TileLayout(S[(big, big) : (3 * big, 1)])
    size = big * big
    assert layout.slice((size,), ((5 * big, 9 * big),)) == TileLayout(
        S[(4, big) : (3 * big, 1)] + 15 * big
    )
    assert layout.slice((size,), ((big - 7, big + 7),)) == TileLayout(
        S[(2, 7) : (2 * big + 7, 1)] + (big - 7)
    )
    assert layout.slice((size,), ((big - 7, big + 8),)) is None


# -- views of storage -------------------------------------------------------------------------


@laws
@given(layouts())
def test_storage_is_what_one_thread_sees(layout: TileLayout) -> None:
    kept = layout.storage()
    memory = [at for at, it in enumerate(layout.shard) if it.axis.memory]
    for x in range(int(layout.size())):
        digits = oracle.digits(x, extents(layout))
        seen = {a: v for a, v in layout.apply(*digits).items() if a in strategies.MEMORY}
        assert kept.apply(*(digits[at] for at in memory)) == seen
    assert {it for it in layout.replica if it.axis.memory} == set(kept.replica)


def assert_splits(wide: TileLayout, layout: TileLayout, num: int, axis: str) -> None:
    """Hold ``wide(x*num + k)`` to ``num*layout(x) + k`` on one axis, at every element."""
    for x in range(int(layout.size())):
        for k in range(num):
            want = set()
            for place in oracle.image(described(layout), x):
                moved = dict(place)
                moved[axis] = moved.get(axis, 0) * num + k
                want.add(tuple(sorted(nonzero(moved).items())))
            assert oracle.image(described(wide), x * num + k) == want


@laws
@given(layouts(), st.integers(1, 4), st.sampled_from(["m", "TCol"]))
def test_unpack_splits_cells_and_pack_joins_them(layout: TileLayout, num: int, axis: str) -> None:
    wide = layout.unpack(num, axis)
    assert_splits(wide, layout, num, axis)
    assert same_images(wide.pack(num), layout)


@laws
@given(layouts(), st.integers(1, 4))
def test_pack_joins_neighbours_or_refuses(layout: TileLayout, num: int) -> None:
    """``num*P(x) + k == L(x*num + k)`` on the last axis, and no other layout is packed."""
    count = int(layout.size())
    try:
        packed = layout.pack(num)
    except LayoutError:
        last = layout.shard[-1] if layout.shard else Iter(1, 0)
        own = [it for it in (*layout.shard[:-1], *layout.replica) if it.axis is last.axis]
        assert (
            last.stride != 1
            or last.axis.thread
            or int(last.extent) % num
            or any(int(it.stride) % num for it in own if it.extent != 1)
            or int(layout.offset.get(last.axis, 0)) % num
        )
        return
    assert int(packed.size()) == count // num
    assert_splits(layout, packed, num, layout.shard[-1].axis.name)


@laws
@given(layouts(), st.integers(1, 3), st.data())
def test_broadcast_names_each_element_again(
    layout: TileLayout, num: int, data: st.DataObject
) -> None:
    count = len(layout.shard)
    position = data.draw(st.integers(-count - 1, count))
    wide = layout.broadcast(num, position, "TCol")
    at = position if position >= 0 else count + 1 + position
    for x in range(int(layout.size())):
        digits = oracle.digits(x, extents(layout))
        for k in range(num):
            there = wide.apply(*digits[:at], k, *digits[at:])
            assert nonzero(there) == oracle.base(described(layout), x)


# -- swizzles ---------------------------------------------------------------------------------

SWIZZLES = st.builds(
    lambda per, length, more, inner: SwizzleLayout(per, length, length + more, inner),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 2),
    st.booleans(),
)


@laws
@given(SWIZZLES, st.integers(0, 1 << 70))
def test_swizzle_is_the_definition_and_its_own_inverse(
    swizzle: SwizzleLayout, address: int
) -> None:
    parameters = swizzle.per_element, swizzle.swizzle_len, swizzle.atom_len, swizzle.swizzle_inner
    want = oracle.swizzled(address, *parameters)
    assert swizzle.apply(address) == want
    assert swizzle.apply(want) == address
    block = np.arange(swizzle.size)
    assert sorted(swizzle.apply(block)) == list(range(swizzle.size))
    assert swizzle.apply(block).tolist() == [swizzle.apply(int(each)) for each in block]


@st.composite
def composed(draw: st.DrawFn) -> tuple[ComposeLayout, tuple[int, ...]]:
    """Draw a swizzled layout in memory, and a shape that its tile groups by."""
    swizzle = draw(SWIZZLES)
    tile = draw(layouts(axes=["m"], lowest=0, replicas=False).filter(lambda each: each.shard))
    parameters = swizzle.per_element, swizzle.swizzle_len, swizzle.atom_len
    whole = ComposeLayout(*parameters, tile, swizzle.swizzle_inner)
    return whole, draw(strategies.grouping_shapes(tile))


@laws
@given(composed(), st.data())
def test_composed_layouts_swizzle_what_their_tile_says(
    case: tuple[ComposeLayout, tuple[int, ...]], data: st.DataObject
) -> None:
    layout, shape = case
    coords = oracle.every(shape)
    want = {
        coord: layout.swizzle.apply(oracle.base(described(layout.tile_layout), x).get("m", 0))
        for x, coord in enumerate(coords)
    }
    table = layout.table(shape)["m"]
    for coord in coords:
        assert layout.apply(*coord, shape=shape) == {"m": want[coord]}
        assert table[coord] == want[coord]
    assert layout.size() == layout.tile_layout.size()
    assert layout.span() == layout.tile_layout.span()
    region = data.draw(strategies.regions(shape))
    piece = layout.slice(shape, region)
    if piece is not None and not layout.bare:
        lengths = [end - begin for begin, end in region]
        for coord in oracle.every(lengths):
            moved = tuple(c + b for c, (b, _) in zip(coord, region, strict=True))
            assert piece.apply(*coord, shape=lengths) == {"m": want[moved]}
    assert layout.canonicalize().table(shape)["m"].tolist() == table.tolist()
    assert layout.storage().table(shape)["m"].tolist() == table.tolist()


def test_a_swizzle_looks_at_the_axes_of_the_elements() -> None:
    repeated = ComposeLayout(4, 2, 5, parse("S[3:1] + R[4:1@wid_in_wg]"))
    assert repeated.apply(2) == {"m": 2}
    assert repeated.table((3,), replicas=True)["wid_in_wg"].shape == (3, 4)
    unit = ComposeLayout(3, 3, 4, parse("S[(8,1,2):(2,2@wgid,1)]"))
    assert unit.apply(1, 1, shape=(8, 2)) == {"m": 3}
    assert unit.table((8, 2))["m"][1, 1] == 3
    for text in ("S[()] + R[(2,2):(-1,64)]", "S[8:1@laneid]", "S[8:1] + 0@laneid", "S[8:1@TCol]"):
        with pytest.raises(LayoutError, match="so its tile must lie on axis m alone"):
            ComposeLayout(4, 3, 4, parse(text)).apply(0)


@laws
@given(composed(), st.sampled_from([1, 2, 4]))
def test_packing_a_composed_layout_packs_its_addresses(
    case: tuple[ComposeLayout, tuple[int, ...]], num: int
) -> None:
    layout, _ = case
    count = int(layout.size())
    addresses = layout.table((count,))["m"]
    wide = layout.unpack(num)
    assert wide.table((count, num))["m"].tolist() == [
        [int(address) * num + k for k in range(num)] for address in addresses
    ]
    assert wide.pack(num).table((count,))["m"].tolist() == addresses.tolist()


# -- text and identity ------------------------------------------------------------------------


@laws
@given(layouts())
def test_text_reads_back(layout: TileLayout) -> None:
    again = parse(str(layout))
    assert again == layout
    assert again.shard == layout.shard
    assert str(again) == str(layout)


SYMBOLS = st.sampled_from(["n", "Mt", "k", "x_1", "mod", "Ω"])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    """Draw the text of a size with symbols."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.one_of(SYMBOLS, st.integers(1, 9).map(str)))
    left, right = draw(expressions(depth=depth - 1)), draw(expressions(depth=depth - 1))
    by = draw(st.sampled_from(["+", "*", "*", "-", "//", "%"]))
    if by in ("//", "%"):
        return f"(({left}) {by} {draw(st.integers(2, 16))})"
    return f"({left} {by} {right})"


@laws
@given(expressions(), expressions(), SYMBOLS)
def test_text_of_symbolic_layouts_reads_back(stride: str, offset: str, extent: str) -> None:
    layout = parse(f"S[({extent}, 4) : (({stride})@laneid, {stride})] + ({offset})@TCol + {offset}")
    assert parse(str(layout)) == layout
    assert parse(str(layout)).shard == layout.shard


@st.composite
def arithmetic(draw: st.DrawFn, depth: int = 3) -> str:
    """Draw the text of a number as Python writes it."""
    if depth == 0 or draw(st.booleans()):
        return str(draw(st.integers(0, 20)))
    left, right = draw(arithmetic(depth=depth - 1)), draw(arithmetic(depth=depth - 1))
    by = draw(st.sampled_from(["+", "-", "*", "//", "%", "@"]))
    if by == "@":
        return f"(-{left})"
    return f"{left} {by} ({right} + 100)" if by in ("//", "%") else f"({left}) {by} {right}"


@laws
@given(arithmetic())
@example("2 - 3 - 4 * 5 % 7 // 2")
@example("-3 // 2 + -7 % 3 - 2 ** 3 * 2")
def test_numbers_are_read_as_python_reads_them(text: str) -> None:
    assert parse(f"S[8:({text})]").shard[0].stride == eval(text, {"__builtins__": {}})


@laws
@given(layouts())
def test_identity_is_by_parts(layout: TileLayout) -> None:
    twin = TileLayout.from_iters(layout.shard, layout.replica[::-1], {**layout.offset, "Bank": 0})
    assert twin == layout
    assert hash(twin) == hash(layout)
    for other in (copy.copy(layout), copy.deepcopy(layout), pickle.loads(pickle.dumps(layout))):
        assert other == layout
        assert hash(other) == hash(layout)
        assert str(other) == str(layout)
    assert layout != TileLayout.from_iters((*layout.shard, Iter(2, 1)))
    assert layout != str(layout)
    with pytest.raises(AttributeError, match="immutable"):
        layout.shard = ()
    with pytest.raises(AttributeError, match="immutable"):
        del layout.offset
    with pytest.raises(TypeError):
        layout.offset[m] = 1  # type: ignore[index]


def test_replicas_compare_as_a_multiset() -> None:
    once, twice = (R[2:8], R[(2, 2) : (8, 8)])
    assert TileLayout(S[4:1] + once) != TileLayout(S[4:1] + twice)
    assert TileLayout(S[4:1] + R[(2, 3) : (8, 1)]) == TileLayout(S[4:1] + R[(3, 2) : (1, 8)])


@pytest.mark.parametrize("name", fragments.names())
def test_fragments_hold_each_element_of_their_tiles_alike(name: str) -> None:
    for operand in fragments.operands(name):
        fragment = fragments.get(name, operand)
        holds, layout = fragment.holds, described(fragment.layout)
        flat = np.ravel_multi_index(tuple(np.moveaxis(holds, -1, 0)), fragment.tile)
        size = int(np.prod(fragment.tile))
        assert sorted(flat.reshape(-1)) == sorted(list(range(size)) * fragment.copies)
        assert fragment.coords.shape == (fragment.lanes, fragment.slots, 2)
        for x in range(0, size, size // 61 + 1):
            place = oracle.base(layout, x)
            thread = place.get("laneid", 0) + 32 * place.get("wid_in_wg", 0)
            assert flat[thread, place.get("m", 0)] == x


@pytest.mark.parametrize(
    ("text", "outer"),
    [
        ("S[(2,8,2):(32@tx,1@tx,1)]", "S[2:1@warpid]"),
        ("S[(2,8,2):(32@tx,1@tx,1)] + R[2:64@tx]", "S[2:1@warpid] + R[2:2@warpid]"),
        ("S[(2,8,2):(32@tx,1@tx,1)] + 24@tx", "S[2:1@warpid] + 24@laneid"),
        ("S[(2,8,2):(32@tx,1@tx,1)] + 40@tx", "S[2:1@warpid] + 1@warpid + 8@laneid"),
        ("S[(8,8,2):(8@tx,1@tx,1)]", "S[(2,4):(1@warpid,1@laneid)]"),
        # a copy, a replica or an offset that straddles two warps
        ("S[(3,8,2):(24@tx,1@tx,1)]", None),
        ("S[(2,8,2):(32@tx,1@tx,1)] + R[2:24@tx]", None),
        ("S[(2,8,2):(32@tx,1@tx,1)] + 25@tx", None),
        # where a symbol says how far, no cut is known to end at a warp
        ("S[(2,8,2):(n@tx,1@tx,1)]", None),
        ("S[(2,8,2):(32@tx,1@tx,1)] + n@tx", None),
    ],
)
def test_a_tile_of_lanes_is_found_where_no_copy_straddles_warps(
    text: str, outer: str | None
) -> None:
    tile, tiled = parse("S[(8,2):(1@laneid,1)]"), parse(text)
    found = tile.is_tile_inner(tiled, (tiled.size(),), (16,), target="cuda")
    assert found == (None if outer is None else parse(outer))


def test_a_swizzled_layout_has_no_axis_to_choose() -> None:
    layout = ComposeLayout(3, 3, 3, TileLayout(S[(8, 64) : (72, 1)]))
    assert (layout.size(), layout.span()) == (512, 568)
    for what in ("size", "span"):
        for axis in ("m", m):
            with pytest.raises(LayoutError) as refused:
                getattr(layout, what)(axis)
            assert str(refused.value) == f"{what}: a swizzled layout has no axis to choose; got m"


def test_a_swizzled_layout_is_well_formed_or_is_not_made() -> None:
    assert ComposeLayout(3, 3, 3, TileLayout(S[512:1])).verify_well_formed() is True
    with pytest.raises(LayoutError) as refused:
        ComposeLayout(3, 3, 3, TileLayout(S[(8, 4) : (1 @ laneid, 1 @ wgid)]))
    assert str(refused.value) == (
        "scope: the axes laneid, wgid are disconnected: none counts each warp; got "
        "S[(8,4):(1@laneid,1@wgid)]"
    )


def test_a_layout_without_iters_has_one_element_and_slices_to_itself() -> None:
    nothing = TileLayout.from_iters([])
    assert nothing.slice((), ()) == nothing
    assert nothing.canonicalize() == nothing


def test_no_plain_layout_is_a_summand_of_a_swizzled_one_nor_the_other_way() -> None:
    swizzled, plain_tile = ComposeLayout(3, 3, 3, TileLayout(S[512:1])), TileLayout(S[8:1])
    assert plain_tile.is_direct_sum_right(swizzled, (64, 8), (8,)) is None
    assert plain_tile.is_direct_sum_left(swizzled, (8, 64), (8,)) is None
    total, other = TileLayout(S[1024:1]), ComposeLayout(2, 3, 3, TileLayout(S[1024:1]))
    for each in (total, other):
        assert swizzled.is_direct_sum_right(each, (2, 512), (512,)) is None
        assert swizzled.is_direct_sum_left(each, (512, 2), (512,)) is None


def test_a_bare_swizzle_takes_arrays_of_addresses_from_zero_on() -> None:
    bare = ComposeLayout(3, 3, 3, TileLayout(S[512:1]))
    addresses = np.array([0, 64, 511, 512, 700])
    assert bare.apply(addresses)["m"].tolist() == [bare.apply(int(a))["m"] for a in addresses]
    assert bare.apply(np.array([], dtype=np.int64))["m"].tolist() == []
    for wrong in (np.array([0, -1]), np.array([0.0])):
        with pytest.raises(LayoutError):
            bare.apply(wrong)


def test_a_tile_of_a_wider_scope_is_not_inside_a_narrower_one() -> None:
    """One thread of a CTA is no thread of a warp, even where both are thread 0."""
    one, lanes = parse("S[1:1@tx]"), parse("S[8:1@laneid]")
    assert one.is_tile_inner(lanes, (8,), (1,)) is None
    assert one.is_tile_inner(lanes, (8,), (1,), target="cuda") is None
    assert parse("S[1:1@laneid]").is_tile_inner(lanes, (8,), (1,)) == lanes
    assert parse("S[1:1@warpid]").is_tile_inner(parse("S[8:1@tx]"), (8,), (1,)) is None
