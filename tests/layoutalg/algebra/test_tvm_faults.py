"""The faults of TVM 0.27, L1 to L26: ours gives the right answer by the law, or refuses.

Right means: by brute force (tests/support/oracle.py). Decisions where the law leaves a choice:
offsets are machine coordinates and are never scaled (L11); a tile's span is the unit only on the
axes that its shard names (L12); a tile with a span below 1 is not copied along that axis (L13).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from layoutalg import (
    Axis,
    ComposeLayout,
    Iter,
    LayoutError,
    P,
    R,
    S,
    TCol,
    TileLayout,
    TLane,
    bx,
    cbx,
    laneid,
    m,
    parse,
    tx,
    warpid,
    wgid,
    wid_in_wg,
)
from tests.layoutalg.algebra.test_conformance import RUN
from tests.support import oracle
from tests.support.vectors import layout, plain, read

# -- every recorded row -----------------------------------------------------------------------


def described(value: TileLayout) -> dict[str, Any]:
    return oracle.as_dict(plain(value))


def threads(places: Any) -> set[Any]:
    return set(map(oracle.thread_number, places))


def holds_canonicalize(case: dict[str, Any], got: TileLayout) -> bool:
    again = got.canonicalize("cuda")
    whole = oracle.threads_of(described(layout(case["layout"])))
    return oracle.threads_of(described(got)) == whole and again == got


def holds_tile(case: dict[str, Any], got: TileLayout) -> bool:
    """The law in the axes as written, or in the axes that are one under CUDA."""
    if "layout" in case:
        inner, inner_shape = layout(case["layout"]), case["current_shape"]
        pairs = zip(case["to_shape"], inner_shape, strict=True)
        outer_shape = [whole // part for whole, part in pairs]
        outer = TileLayout(S[tuple(outer_shape)])
    else:
        inner, outer = layout(case["inner"]), layout(case["outer"])
        inner_shape, outer_shape = case["inner_shape"], case["outer_shape"]
    whole = [o * i for o, i in zip(outer_shape, inner_shape, strict=True)]

    def law(target: str | None) -> bool:
        tile, copies = (described(each.canonicalize(target)) for each in (inner, outer))
        for o in oracle.every(outer_shape):
            for n in oracle.every(inner_shape):
                t = [a * e + b for a, e, b in zip(o, inner_shape, n, strict=True)]
                want = oracle.tiled(tile, copies, inner_shape, o, n, outer_shape)
                if threads(oracle.image(described(got), oracle.flat(t, whole))) != threads(want):
                    return False
        return True

    return law(None) or law(case.get("target"))


def holds_recognised(case: dict[str, Any], got: TileLayout, op: str) -> bool:
    """What is found gives the whole again."""
    part, target = layout(case["layout"]), case.get("target")
    if op == "is_direct_sum_left":
        right = [*case["interleaved_shape"]][1::2]
        again, whole = got.direct_sum(part, case["left_shape"], right, target), layout(case["sum"])
        return oracle.threads_of(described(again)) == oracle.threads_of(described(whole))
    if op == "is_tile_inner":
        counts = [a // b for a, b in zip(case["tiled_shape"], case["inner_shape"], strict=True)]
        again = part.tile(got, counts, case["inner_shape"], target)
    else:
        sizes = [a // b for a, b in zip(case["tiled_shape"], case["outer_shape"], strict=True)]
        again = got.tile(part, case["outer_shape"], sizes, target)
    whole = layout(case["tiled"])
    return oracle.threads_of(described(again)) == oracle.threads_of(described(whole))


def holds_pack(case: dict[str, Any], got: TileLayout, op: str) -> bool:
    whole, num = layout(case["layout"]), case["num"]
    few, many = (got, whole) if op == "pack" else (whole, got)
    axis = many.shard[-1].axis.name
    for x in range(int(few.size())):
        for k in range(num):
            want = set()
            for place in oracle.image(described(few), x):
                moved = dict(place)
                moved[axis] = moved.get(axis, 0) * num + k
                want.add(tuple(sorted((a, v) for a, v in moved.items() if v)))
            if oracle.image(described(many), x * num + k) != want:
                return False
    return True


def holds_pack_of_swizzle(case: dict[str, Any], got: ComposeLayout, op: str) -> bool:
    """The tile packs, and a swizzle of units of ``num`` times as many cells moves alike."""
    whole, num = layout(case["layout"]), case["num"]
    few, many = (got, whole) if op == "pack" else (whole, got)
    cells = range(2 * few.swizzle.size)
    return holds_pack(case | {"layout": case["layout"]["tile"]}, got.tile_layout, op) and all(
        many.swizzle.apply(cell * num + k) == few.swizzle.apply(cell) * num + k
        for cell in cells
        for k in range(num)
    )


def has_none(case: dict[str, Any], op: str) -> bool:
    """Say whether a slice is in no layout, or whether the inner layout is not in the first tile."""

    def place(value: dict[str, Any], x: int) -> dict[str, int]:
        return dict(oracle.thread_number(tuple(oracle.base(value, x).items())))

    if op == "slice":
        lengths = [end - begin for begin, end in case["region"]]
        moved = [
            [c + b for c, (b, _) in zip(coord, case["region"], strict=True)]
            for coord in oracle.every(lengths)
        ]
        flat = [oracle.flat(coord, case["shape"]) for coord in moved]
        return not oracle.expressible([place(case["layout"], x) for x in flat])
    first = [
        (
            place(case["tiled"], oracle.flat(n, case["tiled_shape"])),
            place(case["layout"], oracle.flat(n, case["inner_shape"])),
        )
        for n in oracle.every(case["inner_shape"])
    ]
    axes = {axis for pair in first for each in pair for axis in each}
    return any(
        a.get(axis, 0) - first[0][0].get(axis, 0) != b.get(axis, 0) - first[0][1].get(axis, 0)
        for a, b in first
        for axis in axes
    )


def rebuilt(got: Any) -> TileLayout:
    shard, replica, offset = got
    return TileLayout.from_iters([Iter(*i) for i in shard], [Iter(*i) for i in replica], offset)


def judge(row: dict[str, Any]) -> str:
    """Say what ours does with a row: "right", "refuses", "none, rightly", "missed" or "wrong"."""
    op, case = row["op"], row["in"]
    try:
        got = RUN[op](case)
    except LayoutError:
        return "refuses"
    if got is None:
        return "none, rightly" if has_none(case, op) else "missed"
    if isinstance(got[1], bool):  # a swizzled layout
        per_element, swizzle_len, atom_len = got[0]
        whole = ComposeLayout(per_element, swizzle_len, atom_len, rebuilt(got[2]), got[1])
        return "right" if holds_pack_of_swizzle(case, whole, op) else "wrong"
    found = rebuilt(got)
    if op == "slice":
        holds = oracle.slice_holds(case, got)
    elif op == "canonicalize":
        holds = holds_canonicalize(case, found)
    elif op in ("tile", "tile_to"):
        holds = holds_tile(case, found)
    elif op in ("pack", "unpack"):
        holds = holds_pack(case, found, op)
    else:
        holds = holds_recognised(case, found, op)
    return "right" if holds else "wrong"


def test_every_recorded_fault() -> None:
    rows = read("tvm_bugs.jsonl")
    assert len(rows) == 102
    found = Counter((row["op"], row["tvm_bug"], judge(row)) for row in rows)
    assert found == {
        ("canonicalize", "canonicalize-under-cuda-ill-formed-result", "right"): 1,
        ("canonicalize", "canonicalize-under-cuda-not-equivalent", "right"): 12,
        ("is_direct_sum_left", "is_direct_sum_left-unsound", "right"): 1,
        ("is_tile_inner", "is_tile_inner-fails-only-under-cuda", "none, rightly"): 1,
        ("is_tile_inner", "is_tile_inner-fails-only-under-cuda", "right"): 2,
        ("is_tile_inner", "is_tile_inner-result-cannot-be-tiled-back", "right"): 1,
        ("is_tile_inner", "is_tile_inner-unsound-replica-rescaled", "right"): 4,
        ("is_tile_outer", "is_tile_outer-fails-only-under-cuda", "right"): 2,
        ("pack", "pack-floors-indivisible-stride", "refuses"): 10,
        ("pack", "pack-floors-indivisible-stride", "right"): 2,  # the stride is on another axis
        ("pack", "pack-ignores-offset-and-replica", "right"): 1,
        ("slice", "slice-raises-on-well-formed-layout", "none, rightly"): 1,
        ("slice", "slice-raises-on-well-formed-layout", "right"): 7,
        ("slice", "slice-wrong-elements", "none, rightly"): 1,
        # a warpgroup of threads laid out over warps of a warpgroup has no well-formed layout
        ("tile", "operand-hits-canonicalize-under-cuda-fault", "refuses"): 6,
        ("tile", "operand-hits-canonicalize-under-cuda-fault", "right"): 6,
        ("tile", "tile-inner-replica-span-ignored", "right"): 3,
        ("tile", "tile-nonpositive-inner-span", "refuses"): 3,
        ("tile", "tile-nonpositive-inner-span", "right"): 2,  # nothing is copied along that axis
        ("tile", "tile-outer-offset-not-scaled", "right"): 12,
        ("tile", "tile-outer-replica-not-scaled", "right"): 12,
        ("tile_to", "tile-inner-offset-span-ignored", "right"): 1,
        ("tile_to", "tile-nonpositive-inner-span", "refuses"): 3,
        ("unpack", "unpack-ignores-offset-and-replica", "right"): 3,
        ("unpack", "unpack-scales-thread-strides", "right"): 5,
    }


# -- the list ---------------------------------------------------------------------------------


def test_l01_a_slice_that_carries_into_a_third_iter() -> None:
    """TVM: 12, 13, 20, 21."""
    piece = TileLayout(S[(2, 2, 4) : (100, 10, 1)]).slice((16,), ((6, 10),))
    assert piece is not None
    assert [piece.apply(x)["m"] for x in range(4)] == [12, 13, 100, 101]


def test_l02_offsets_on_axes_that_become_one_add_up() -> None:
    """TVM: 32@tx or 3@tx, by the order in which they are written."""
    shard = S[(2, 4) : (1 @ warpid, 1 @ laneid)]
    for offset in (3 @ laneid + 1 @ warpid, 1 @ warpid + 3 @ laneid):
        assert TileLayout(shard + offset).canonicalize("cuda").offset == {tx: 35}


def test_l03_warpgroups_of_warps_become_warps() -> None:
    """TVM: 4@wgid, an ill-formed layout."""
    bare = TileLayout(S[(2, 4) : (1 @ wgid, 1 @ wid_in_wg)]).canonicalize("cuda")
    assert str(bare) == "S[8:1@warpid]"
    assert bare.get_scope() == ("warp", "cta")


def test_l04_layouts_over_the_grid_are_well_formed() -> None:
    """TVM never returns. The grid bears TVM's name of its scope, "thread"."""
    for axes in ((tx,), (laneid, warpid)):
        whole = TileLayout.from_iters([Iter(4, 1, bx), *(Iter(2, 1, axis) for axis in axes)])
        assert whole.get_scope() == ("thread", "thread")
        assert whole.verify_well_formed() is True
        assert whole.canonicalize() == whole
        assert whole.canonicalize("cuda") == whole
    lanes = TileLayout(S[32 : 1 @ laneid])
    blocks = TileLayout(S[(4, 2) : (1 @ bx, 1 @ warpid)])
    tiled = lanes.tile(blocks, (4, 2), (1, 32))
    outer = lanes.is_tile_inner(tiled, (4, 64), (1, 32))
    assert outer is not None
    assert outer.canonicalize() == blocks
    with pytest.raises(LayoutError, match="bx and cbx conflict"):
        TileLayout(S[(2, 2) : (1 @ bx, 1 @ cbx)]).get_scope()


def test_l05_a_slice_of_a_well_formed_layout_does_not_raise() -> None:
    """TVM canonicalizes each dimension alone, where the chain of scopes may have a gap."""
    whole = TileLayout(S[(2, 32, 4, 2) : (1 @ wgid, 1 @ laneid, 1 @ wid_in_wg, 1)])
    piece = whole.slice((64, 8), ((32, 64), (2, 4)))
    assert str(piece) == "S[(1,32,1,2):(1@wgid,1@laneid,1@wid_in_wg,1)] + 1@wgid + 1@wid_in_wg"
    clustered = TileLayout(S[(2, 32, 4) : (1 @ cbx, 1 @ laneid, 1 @ warpid)])
    assert clustered.slice((64, 4), ((32, 64), (0, 2)), "cuda") is not None


@pytest.mark.parametrize(("offset", "found"), [(32, "1@warpid"), (33, "1@warpid + 1@laneid")])
def test_l06_an_offset_splits_into_its_digits(offset: int, found: str) -> None:
    """TVM: 32@tx becomes 32@warpid, 33@tx is an IndexError."""
    lanes = TileLayout(S[8 : 1 @ laneid])
    tiled = TileLayout(S[(2, 8) : (32 @ tx, 1 @ tx)] + offset @ tx)
    outer = lanes.is_tile_inner(tiled, (16,), (8,), "cuda")
    assert outer is not None
    assert str(outer) == f"S[2:1@warpid] + {found}"
    assert lanes.tile(outer, (2,), (8,), "cuda") == tiled.canonicalize("cuda")


def test_l06_offsets_on_other_axes_stay() -> None:
    lanes = TileLayout(S[8 : 1 @ laneid])
    tiled = TileLayout(S[(2, 8) : (32 @ tx, 1 @ tx)] + 33 @ tx + 5)
    outer = lanes.is_tile_inner(tiled, (16,), (8,), "cuda")
    assert str(outer) == "S[2:1@warpid] + 1@warpid + 1@laneid + 5"
    # lane 7 + 25 would carry into the next warp, so that the offset cannot be cut
    assert lanes.is_tile_inner(parse("S[(2,8):(32@tx,1@tx)] + 25@tx"), (16,), (8,), "cuda") is None


def test_l07_an_iter_that_cannot_be_split_is_not_dropped() -> None:
    """TVM drops it and answers with a layout that has lost its copies."""
    lanes = TileLayout(S[8 : 1 @ laneid])
    tiled = TileLayout(S[(3, 8) : (20 @ tx, 1 @ tx)])
    assert lanes.is_tile_inner(tiled, (24,), (8,), "cuda") is None
    repeated = TileLayout(S[(2, 8) : (32 @ tx, 1 @ tx)] + R[3 : 20 @ tx])
    assert lanes.is_tile_inner(repeated, (16,), (8,), "cuda") is None


def test_l08_warps_split_into_warpgroups() -> None:
    """TVM compares the wrong name, so warpid never splits."""
    warps = TileLayout(S[4 : 1 @ wid_in_wg])
    groups = TileLayout(S[2 : 1 @ wgid])
    tiled = warps.tile(groups, (2,), (4,), "cuda")
    assert str(tiled) == "S[8:1@warpid]"
    assert warps.is_tile_inner(tiled, (8,), (4,), "cuda") == groups


def test_l09_a_cluster_axis_is_no_obstacle() -> None:
    """TVM: "laneid can not be split any more"."""
    lanes = TileLayout(S[32 : 1 @ laneid])
    outer = TileLayout(S[(2, 4) : (1 @ cbx, 1 @ warpid)])
    tiled = lanes.tile(outer, (2, 4), (1, 32), "cuda")
    found = lanes.is_tile_inner(tiled, (2, 128), (1, 32), "cuda")
    assert found is not None
    assert found.canonicalize() == outer


def test_l10_replicas_of_the_outer_layout_are_in_units_of_tiles() -> None:
    """TVM leaves 4@TCol, inside the first tile, and its is_tile_inner divides it."""
    inner, outer = TileLayout(S[5 : 1 @ TCol]), TileLayout(S[6 : 1 @ TCol] + R[2 : 8 @ TCol])
    tiled = inner.tile(outer, (6,), (5,))
    assert str(tiled) == "S[30:1@TCol] + R[2:40@TCol]"
    assert inner.is_tile_inner(tiled, (30,), (5,)) == outer
    assert outer.is_tile_outer(tiled, (30,), (6,)) == inner
    as_tvm = TileLayout(S[30 : 1 @ TCol] + R[2 : 8 @ TCol])
    assert outer.is_tile_outer(as_tvm, (30,), (6,)) == inner


def test_l11_offsets_are_machine_coordinates() -> None:
    """Decided as TVM has it: both offsets are added as they are."""
    inner, outer = TileLayout(S[4:1] + 2), TileLayout(S[3:1] + 5)
    tiled = inner.tile(outer, (3,), (4,))
    assert str(tiled) == "S[(3,4):(6,1)] + 7"
    assert inner.is_tile_inner(tiled, (12,), (4,)) == outer
    assert outer.is_tile_outer(tiled, (12,), (3,)) == inner


def test_l12_the_unit_is_one_on_axes_that_the_shard_does_not_name() -> None:
    """Decided as TVM has it: copies then share places with the replicas, which is said here."""
    inner, outer = TileLayout(S[6 : 1 @ TCol] + R[2 : 1 @ TLane]), TileLayout(S[2 : 1 @ TLane])
    tiled = inner.tile(outer, (2,), (6,))
    assert str(tiled) == "S[(2,6):(1@TLane,1@TCol)] + R[2:1@TLane]"
    assert not tiled.is_injective()
    assert outer.is_tile_outer(tiled, (12,), (2,)) == inner


def test_l13_a_tile_below_zero_is_not_copied() -> None:
    """TVM: span -2, so that the copies run backwards into each other."""
    with pytest.raises(LayoutError, match="must have a positive span on each axis that moves it"):
        TileLayout(S[4:-1]).tile(TileLayout(S[2:1]), (2,), (4,))
    shifted = TileLayout(S[4:-1] + 3)
    assert shifted.span() == 1
    assert TileLayout(S[4:-1] + 6).tile(TileLayout(S[2:1]), (2,), (4,)).is_injective()


def test_l14_own_replicas_and_offsets_must_be_present() -> None:
    """TVM accepts a layout without them."""
    repeated = TileLayout(S[4:1] + R[2:4])
    assert repeated.is_tile_inner(TileLayout(S[8:1]), (8,), (4,)) is None
    assert repeated.is_direct_sum_right(TileLayout(S[8:1]), (2, 4), (4,)) is None
    assert repeated.is_direct_sum_left(TileLayout(S[8:1]), (4, 2), (4,)) is None
    shifted = TileLayout(S[4:1] + 3)
    outer = shifted.is_tile_inner(TileLayout(S[(2, 4) : (7, 1)]), (8,), (4,))
    assert outer is not None
    assert str(outer) == "S[2:1] + (-3)"
    assert shifted.tile(outer, (2,), (4,)) == TileLayout(S[(2, 4) : (7, 1)])


@pytest.mark.parametrize("shape", [(24, 8), (40, 8), (16, 12), (17, 9), (8, 8)])
def test_l15_tile_to_refuses_what_is_no_multiple(shape: tuple[int, int]) -> None:
    """TVM floors the quotient."""
    fragment = parse("S[(2,8,4,2):(2,4@laneid,1@laneid,1)]")
    with pytest.raises(LayoutError, match=r"tile_to: extent .* must be a multiple of"):
        fragment.tile_to(shape, (16, 8))


@pytest.mark.parametrize("region", [(0, 17), (-1, 3), (4, 4), (5, 3), (16, 17)])
def test_l16_regions_out_of_range_or_empty_are_refused(region: tuple[int, int]) -> None:
    """TVM slices them; in groups of several iters they wrap around."""
    with pytest.raises(LayoutError, match=r"slice: the range .* (must lie|is empty)"):
        TileLayout(S[(4, 4) : (8, 1)]).slice((16,), (region,))


def test_l17_packing_touches_the_axis_of_the_cells_alone() -> None:
    """TVM scales threads, and every memory axis."""
    whole = TileLayout(S[(8, 4, 2) : (4 @ laneid, 2 @ TLane, 1)] + 2 @ laneid + 3 @ TLane)
    assert str(whole.unpack(2)) == ("S[(8,4,2,2):(4@laneid,2@TLane,2,1)] + 2@laneid + 3@TLane")
    assert str(whole.pack(2)) == "S[(8,4,1):(4@laneid,2@TLane,1)] + 2@laneid + 3@TLane"
    columns = TileLayout(S[(8, 4) : (3 @ TLane, 1 @ TCol)])
    assert str(columns.pack(4)) == "S[(8,1):(3@TLane,1@TCol)]"
    assert str(columns.unpack(4, "TCol")) == "S[(8,4,4):(3@TLane,4@TCol,1@TCol)]"


def test_l18_packing_scales_replicas_and_offsets() -> None:
    """TVM leaves them, which is how G1 reads the wrong words."""
    whole = TileLayout(S[(4, 4) : (4, 1)] + R[2:16] + 8)
    assert str(whole.pack(2)) == "S[(4,2):(2,1)] + R[2:8] + 4"
    assert str(whole.unpack(2)) == "S[(4,4,2):(8,2,1)] + R[2:32] + 16"
    assert whole.unpack(2).pack(2).canonicalize() == whole.canonicalize()


@pytest.mark.parametrize(
    "text", ["S[(4,4):(5,1)]", "S[(4,4):(4,1)] + 3", "S[(4,4):(4,1)] + R[2:17]", "S[3:1]"]
)
def test_l19_an_element_astride_two_words_is_refused(text: str) -> None:
    """TVM floors the stride, the cause of G2."""
    with pytest.raises(LayoutError, match="must be a multiple of 2, or a word would hold parts"):
        parse(text).pack(2)


def test_l20_sizes_do_not_wrap_around() -> None:
    """TVM: 65536 x 65536 has size 0."""
    whole = TileLayout(S[65536, 65536])
    assert whole.size() == 1 << 32
    assert str(whole.canonicalize()) == "S[4294967296:1]"
    huge = TileLayout(S[(1 << 40, 1 << 40) : (1 << 40, 1)])
    assert huge.size() == huge.span() == 1 << 80
    assert huge.apply((1 << 80) - 1) == {"m": (1 << 80) - 1}
    assert huge.group((1 << 50, 1 << 30))[0].size() == 1 << 80
    assert huge.tile_to((1 << 90,), (1 << 80,)).span() == 1 << 90


def test_l21_the_notation_drops_nothing() -> None:
    """TVM keeps one of two S, cuts the longer tuple, ignores a step and stores what it is given."""
    for one, other in ((S[8], S[4]), (R[8:1], R[4:1])):
        with pytest.raises(LayoutError, match="there can be one"):
            one + other
    strided = (slice((8, 4), (1,)), slice((8,), (1, 2)), slice(8, (4, "laneid")), slice(8, 1, 2))
    for key in (*strided, slice(8, 1.5), 2.0, None, True, 0, -4):
        with pytest.raises(LayoutError):
            S[key]
    assert (S[8:2] + 0).offset == {m: 0}
    assert (S[8:2] + sum([1 @ laneid, 2 @ warpid])).offset == {laneid: 1, warpid: 2}


def test_l22_coordinates_are_checked() -> None:
    """TVM: 705 for apply(7, 5), and 5 or 201 by whether the shape groups."""
    whole = TileLayout(S[(4, 2) : (100, 1)])
    for wrong in (
        lambda: whole.apply(7, 5),
        lambda: whole.apply(-1),
        lambda: whole.apply(8),
        lambda: whole.apply(0, 2, shape=(4, 2)),
        lambda: whole.apply(0, 5, shape=(2, 6)),
        lambda: whole.apply(5, shape=(16,)),
        lambda: whole.apply_to_shape((4, 0), (4, 2)),
        lambda: whole.table((4, 3)),
    ):
        with pytest.raises(LayoutError, match="must"):
            wrong()


def test_l23_a_permutation_names_each_iter_once() -> None:
    """TVM checks the length alone."""
    whole = TileLayout(S[(2, 3) : (3, 1)])
    with pytest.raises(LayoutError, match=r"needs a permutation of 0..1; got \(0, 0\)"):
        whole.permute_dims((0, 0))
    assert whole.permute_dims((-1, 0)) == whole.permute_dims((1, 0))


def test_l24_a_bare_swizzle_says_which_tile_it_is_asked_about() -> None:
    """As in TVM, it permutes any dense tile: a map of addresses has no size. Ours says so."""
    bare = ComposeLayout(3, 3, 3, TileLayout(S[512:1]))
    assert bare.bare
    piece = bare.slice((8, 128), ((0, 1), (0, 128)))
    assert piece is not None
    assert piece.tile_layout.size() == 128
    assert str(bare.tile_over((8, 128))) == "S[1024:1]"
    shaped = ComposeLayout(3, 3, 3, TileLayout(S[(8, 64) : (64, 1)]))
    with pytest.raises(LayoutError, match="slice: the shape must hold as many elements"):
        shaped.slice((8, 128), ((0, 1), (0, 128)))


def test_l25_layouts_that_exist_are_found() -> None:
    """TVM: None for these."""
    assert str(TileLayout(S[(3, 2) : (5, 1)]).slice((6,), ((1, 5),))) == "S[(2,2):(5,4)] + 1"
    assert str(TileLayout(S[(5, 4) : (8, 1)]).slice((20,), ((2, 18),))) == (
        "S[(4,2,2):(8,6,1)] + 2"
    )
    lanes = TileLayout(S[32 : 1 @ laneid])
    shifted = TileLayout(S[(4, 32) : (32 @ tx, 1 @ tx)] + 64 @ tx)
    outer = lanes.is_tile_inner(shifted, (128,), (32,), "cuda")
    assert str(outer) == "S[4:1@warpid] + 2@warpid"
    written = TileLayout(S[(2, 2) : (64 @ laneid, 1 @ laneid)])
    copies = TileLayout(S[2 : 1 @ wid_in_wg])
    tiled = TileLayout(S[(2, 2, 2) : (1 @ wid_in_wg, 64 @ laneid, 1 @ laneid)])
    assert copies.is_tile_outer(tiled, (8,), (2,), "cuda") == written


def test_l26_canonical_forms_stay() -> None:
    """TVM: stride 32 first, 1 the second time."""
    unit = TileLayout(S[1 : 1 @ warpid] + R[4 : 1 @ laneid])
    once = unit.canonicalize("cuda")
    assert str(once) == "S[1:1@tx] + R[4:1@tx]"
    assert once.canonicalize("cuda") == once


def test_unknown_axes_are_not_made_up() -> None:
    """TVM makes a new axis of any name, on which most operations raise later."""
    with pytest.raises(LayoutError, match="no axis is named 'lane'"):
        Axis.get("lane")
    assert {P, TLane, TCol, m} <= set(Axis.registry.values())
