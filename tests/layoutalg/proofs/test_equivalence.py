"""Proofs against the definitions: every verdict by brute force on every element."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import sympy
from hypothesis import example, given, settings

from layoutalg import (
    ComposeLayout,
    Iter,
    LayoutError,
    R,
    S,
    SwizzleLayout,
    TileLayout,
    Undecided,
    Verdict,
    fragments,
    laneid,
    parse,
    prove,
    warpid,
)
from layoutalg.algebra.parts import Parts
from layoutalg.proofs.normal_form import every_place
from layoutalg.proofs.verdict import Certificate, Collision, Difference, Gap, OtherSize, Outside
from layoutalg.sizes.size import substitute
from tests.support import oracle

AXES = ("m", "laneid", "warpid")
D = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
A = fragments.get("mma.m16n8k16.f16", "A").layout
SWAPPED = parse("S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)]")  # a1 and a2 trade places


def as_dict(layout: Any) -> oracle.Layout:
    return {
        "shard": [[it.extent, it.stride, it.axis.name] for it in layout.shard],
        "replica": [[it.extent, it.stride, it.axis.name] for it in layout.replica],
        "offset": {axis.name: value for axis, value in layout.offset.items()},
    }


def images(layout: Any) -> list[frozenset[Any]]:
    plain = as_dict(layout)
    return [oracle.image(plain, x) for x in range(oracle.size(plain))]


def kept(place: Any) -> tuple[tuple[str, int], ...]:
    """Return a place as the oracle writes it: sorted, zeros left out."""
    return tuple(sorted((axis, value) for axis, value in place if value))


@st.composite
def iters(draw: st.DrawFn, most: int, top: int) -> list[Iter]:
    count = draw(st.integers(0, most))
    return [
        Iter(draw(st.integers(1, top)), draw(st.integers(-3, 6)), draw(st.sampled_from(AXES)))
        for _ in range(count)
    ]


@st.composite
def layouts(draw: st.DrawFn) -> TileLayout:
    offset = draw(st.dictionaries(st.sampled_from(AXES), st.integers(-3, 3), max_size=2))
    return TileLayout.from_iters(draw(iters(4, 4)), draw(iters(3, 3)), offset)


@st.composite
def rewritten(draw: st.DrawFn, layout: TileLayout) -> TileLayout:
    """Return the same map, written differently."""
    shard: list[Iter] = []
    for it in layout.shard:
        cuts = [d for d in range(1, it.extent + 1) if it.extent % d == 0]
        inner = draw(st.sampled_from(cuts))
        if draw(st.booleans()):
            shard.append(Iter(1, draw(st.integers(-5, 5)), draw(st.sampled_from(AXES))))
        shard += [
            Iter(it.extent // inner, it.stride * inner, it.axis),
            Iter(inner, it.stride, it.axis),
        ]
    replica = []
    offset = dict(layout.offset)
    for it in layout.replica:
        if draw(st.booleans()):
            offset[it.axis] = offset.get(it.axis, 0) + (it.extent - 1) * it.stride
            it = Iter(it.extent, -it.stride, it.axis)
        replica.append(it)
        if draw(st.booleans()):
            replica.append(Iter(it.extent, 0, it.axis))
    return TileLayout.from_iters(shard, draw(st.permutations(replica)), offset)


# -- equal maps -----------------------------------------------------------------------------------


def check_equivalent(left: TileLayout, right: TileLayout) -> None:
    verdict = left.equivalent(right)
    one, other = images(left), images(right)
    assert bool(verdict) == (one == other)
    if verdict:
        assert isinstance(verdict.reason, Certificate)
        return
    if len(one) != len(other):
        assert verdict.reason == OtherSize(len(one), len(other))
        return
    reason = verdict.reason
    assert isinstance(reason, Difference)
    wrong = [x for x in range(len(one)) if one[x] != other[x]]
    (at,) = reason.element
    assert at == wrong[0]
    assert reason.remark.startswith(f"{len(wrong)} of {len(one)} elements differ")
    for shown, meant in ((reason.left, one[at]), (reason.right, other[at])):
        places = {kept(place) for place in shown}
        assert places <= meant
        assert places == meant or max(len(one[at]), len(other[at])) > 8
    alone = {kept(place) for place in (*reason.left, *reason.right)}
    if max(len(one[at]), len(other[at])) > 8:
        assert len(alone) == 1
        assert alone <= one[at] ^ other[at]
    bijections = all(
        len(set().union(*side)) == sum(map(len, side)) == len(side) for side in (one, other)
    )
    same_places = set().union(*one) == set().union(*other)
    assert ("both fill" in reason.remark) == (bijections and same_places and len(one) > 1)


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(layouts(), layouts())
@example(parse("S[(2,3):(3,1)]"), parse("S[(3,2):(2,1)]"))
@example(parse("S[(2,3):(0,0@laneid)]"), parse("S[6:0]"))
@example(parse("S[4:1] + R[(2,3):(1,1)]"), parse("S[4:1] + R[4:1]"))
@example(parse("S[()]"), parse("S[1:5@laneid]"))
@example(parse("S[4:0]"), parse("S[4:0] + R[2:1]"))
@example(parse("S[(2,4):(100,1)]"), parse("S[(4,2):(70,1)]"))
@example(parse("S[(2,2):(1,0)]"), parse("S[(2,2):(0,1)]"))
def test_equivalent_is_equality_of_place_sets(left: TileLayout, right: TileLayout) -> None:
    check_equivalent(left, right)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_rewriting_a_layout_keeps_it_equivalent(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    other = data.draw(rewritten(layout))
    assert layout.equivalent(other)
    check_equivalent(layout, other)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_one_changed_iter_is_seen(data: st.DataObject) -> None:
    layout = data.draw(layouts().filter(lambda each: each.shard))
    other = data.draw(rewritten(layout))
    at = data.draw(st.integers(0, len(other.shard) - 1))
    it = other.shard[at]
    change = data.draw(st.sampled_from(["stride", "axis", "swap"]))
    shard = list(other.shard)
    if change == "stride":
        shard[at] = Iter(it.extent, it.stride + data.draw(st.sampled_from([-1, 1, 2])), it.axis)
    elif change == "axis":
        shard[at] = Iter(it.extent, it.stride, data.draw(st.sampled_from(AXES)))
    else:
        shard[at], shard[0] = shard[0], shard[at]
    check_equivalent(layout, TileLayout.from_iters(shard, other.replica, other.offset))


@pytest.mark.parametrize(
    ("left", "right", "holds"),
    [
        ("S[8:1] + R[(2,2):(8,16)]", "S[8:1] + R[4:8]", True),
        ("S[8:1] + R[(2,2):(1@warpid,2@warpid)]", "S[8:1] + R[4:1@warpid]", True),
        ("S[8:1] + R[2:0@warpid]", "S[8:1]", True),
        ("S[8:1] + R[2:-8]", "S[8:1] + R[2:8] + (-8)", True),
        ("S[8:1] + R[(3,2):(1,2)]", "S[8:1] + R[5:1]", True),
        ("S[8:1] + R[(2,2):(2,3)]", "S[8:1] + R[(2,2):(3,2)]", True),
        ("S[8:1] + R[(2,2):(2,3)]", "S[8:1] + R[(2,2):(1,4)]", False),
        ("S[8:1] + R[2:1@warpid]", "S[8:1] + R[2:1@laneid]", False),
        ("S[8:1] + R[2:1@warpid] + R[2:1@laneid]", "S[8:1] + R[(2,2):(1@laneid,1@warpid)]", True),
    ],
)
def test_replicas_are_compared_as_sets(left: str, right: str, holds: bool) -> None:
    if left.count("R[") == 2:
        left = "S[8:1] + R[(2,2):(1@warpid,1@laneid)]"
    assert bool(parse(left).equivalent(parse(right))) is holds
    check_equivalent(parse(left), parse(right))


def test_threads_of_one_machine_are_compared_after_fusion() -> None:
    split, whole = parse("S[(4,32):(1@wid_in_wg,1@laneid)]"), parse("S[128:1@tid_in_wg]")
    assert not split.equivalent(whole)
    assert split.equivalent(whole, target="cuda")
    assert parse("S[(2,32):(1@warpid,1@laneid)] + R[2:2@warpid]").equivalent(
        parse("S[64:1@tx] + R[2:64@tx]"), target="cuda"
    )
    refuted = split.equivalent(parse("S[(32,4):(4@tid_in_wg,1@tid_in_wg)] + 1@tid_in_wg"), "cuda")
    assert refuted.reason.element == (0,)


def test_the_wrong_bijection_is_refuted_with_its_first_element() -> None:
    verdict = prove(SWAPPED, (16, 16), fragments.get("mma.m16n8k16.f16", "A"))
    assert not verdict
    assert SWAPPED.is_injective()
    assert SWAPPED.covers((16, 16)).degree == A.covers((16, 16)).degree == 1
    assert str(verdict) == (
        "refuted: S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)] and "
        "S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)] are one map\n"
        "element (0, 8): the left has it at (laneid 0, m 2), the right at (laneid 0, m 4)\n"
        "128 of 256 elements differ; both fill the same 256 places, one element each"
    )
    assert verdict.checked == 256


def test_a_common_k_permutation_keeps_the_product_and_is_refuted() -> None:
    """F30: permuting k in A and B alike leaves A @ B, so a product proves no layout."""
    perm = np.array([0, 4, 2, 9, 1, 11, 8, 3, 6, 15, 10, 7, 13, 5, 14, 12])
    rng = np.random.default_rng(1)
    a, b = rng.random((16, 16)), rng.random((16, 8))
    assert np.allclose(a[:, perm] @ b[perm], a @ b, atol=1e-12)
    table = A.table((16, 16))
    lane, slot = table["laneid"][:, perm], table["m"][:, perm]

    def moved(i: Any, j: Any) -> dict[str, Any]:
        return {"laneid": lane[i, j], "m": slot[i, j]}

    verdict = prove(A, (16, 16), moved)
    assert not verdict
    assert verdict.reason.element == (0, 1)


def test_sizes_that_differ_are_named() -> None:
    verdict = parse("S[8:1]").equivalent(parse("S[(2,8):(8,1)]"))
    assert str(verdict) == (
        "refuted: S[8:1] and S[(2,8):(8,1)] are one map\nthe left holds 8 elements, the right 16"
    )


def test_a_map_beyond_any_table_is_decided_by_its_digits() -> None:
    big = 1 << 40
    one = TileLayout.from_iters([Iter(big, big), Iter(big, 1)])
    assert one.equivalent(TileLayout.from_iters([Iter(big * big, 1)]))
    verdict = one.equivalent(TileLayout.from_iters([Iter(2, big * big), Iter(big * big // 2, 1)]))
    assert not verdict
    assert verdict.reason.element == (big * big // 2,)
    assert verdict.checked == 0


# -- places ---------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(layouts())
@example(parse("S[(3,2):(2,3)]"))
@example(parse("S[(4,2):(0,1)]"))
@example(parse("S[4:1] + R[2:2]"))
@example(parse("S[()]"))
def test_injective_means_that_no_two_elements_share_a_place(layout: TileLayout) -> None:
    verdict = layout.is_injective()
    sets = images(layout)
    met = [(x, y) for y in range(len(sets)) for x in range(y) if sets[x] & sets[y]]
    assert bool(verdict) == (not met)
    if met:
        reason = verdict.reason
        assert isinstance(reason, Collision)
        (first,), (second,) = reason.first, reason.second
        assert second == met[0][1]
        assert kept(reason.place) in sets[first] & sets[second]


@settings(max_examples=300, deadline=None)
@given(layouts())
@example(parse("S[(4,2):(0,1)]"))
@example(parse("S[8:-1] + 7"))
@example(parse("S[(2,2):(1,1)]"))
def test_covers_means_that_every_place_of_the_box_is_hit(layout: TileLayout) -> None:
    verdict = layout.covers()
    axes = sorted(
        {it.axis.name for it in layout.shard + layout.replica} | {a.name for a in layout.offset}
    )
    hits: Counter[tuple[int, ...]] = Counter()
    for image in images(layout):
        hits.update(tuple(dict(place).get(axis, 0) for axis in axes) for place in image)
    spans = [range(min(v), max(v) + 1) for v in zip(*hits, strict=True)]
    missed = set(itertools.product(*spans)) - set(hits)
    assert bool(verdict) == (not missed)
    if missed:
        assert isinstance(verdict.reason, Gap)
        place = dict(verdict.reason.place)
        assert tuple(place[axis] for axis in axes) in missed
    else:
        counts = set(hits.values())
        assert verdict.degree == (counts.pop() if len(counts) == 1 else None)


@settings(max_examples=200, deadline=None)
@given(layouts())
@example(parse("S[2:1] + R[(4,3):(2,3)]"))
def test_replication_counts_the_places_of_each_element(layout: TileLayout) -> None:
    verdict = layout.replication()
    assert {len(image) for image in images(layout)} == {verdict.degree}
    assert bool(verdict) == (verdict.degree != 1)


@pytest.mark.parametrize(
    ("text", "box", "reason"),
    [
        ("S[16:1@laneid]", {"laneid": 32}, "no element is at (laneid 16)"),
        ("S[16:1@laneid] + 1@laneid", {"laneid": 17}, "no element is at (laneid 0)"),
        ("S[16:1@laneid]", {"laneid": 8}, "axis laneid reaches 15, outside 0 .. 7"),
        ("S[4:1] + (-1)", {"m": 4}, "axis m reaches -1, outside 0 .. 3"),
        ("S[4:1]", {"warpid": 2}, "no element is at (warpid 1, m 0)"),
        ("S[(4,2):(2@laneid,1)]", {"m": 2}, "no element is at (laneid 1, m 0)"),
    ],
)
def test_a_box_that_is_not_filled(text: str, box: dict[str, int], reason: str) -> None:
    verdict = parse(text).covers(box=box)
    assert not verdict
    assert isinstance(verdict.reason, (Gap, Outside))
    assert str(verdict.reason) == reason


def test_coordinates_name_elements_over_a_shape() -> None:
    verdict = parse("S[(4,4):(4,2)]").is_injective((4, 4))
    assert str(verdict.reason) == "element (0, 2) and element (1, 0) share the place (m 4)"
    with pytest.raises(LayoutError, match=r"is_injective: the shape must hold as many elements"):
        D.is_injective((16, 16))
    with pytest.raises(LayoutError, match=r"replication: the shape must hold"):
        D.replication((16, 16))
    with pytest.raises(LayoutError, match=r"covers: the shape must hold"):
        D.covers((16, 16))
    with pytest.raises(LayoutError, match=r"equivalent: the shape must hold"):
        D.equivalent(D, shape=(16, 16))


@pytest.mark.parametrize("k", [8, 16])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("operand", ["A", "B", "C/D.f32"])
def test_fragments_are_proved_bijections(k: int, dtype: str, operand: str) -> None:
    row = fragments.get(f"mma.m16n8k{k}.{dtype}", operand)
    assert row.layout.is_injective(row.shape)
    assert row.layout.covers(row.shape, box={"laneid": 32, "m": row.slots}).degree == 1
    assert not row.layout.replication(row.shape)


def test_places_without_numbers_too_many_to_list() -> None:
    wide = parse("S[(1000000,1000000,1000000):(2,3,5)]")
    assert str(wide.is_injective().reason) == (
        "element 2000000 and element 3000000000000 share the place (m 6)"
    )
    turned = parse("S[(1000000,1000000,1000000):(2,-3,5)]")
    assert (
        str(turned.is_injective().reason)
        == "element 0 and element 3000002000000 share the place (m 0)"
    )
    coprime = TileLayout.from_iters([Iter(2000, 2001), Iter(2001, 2000)])
    with pytest.raises(Undecided, match="There are too many sums to compare"):
        coprime.is_injective()


# -- symbols --------------------------------------------------------------------------------------

n, k, Mt = sympy.symbols("n k Mt", integer=True, positive=True)
SIZES = [1, 2, 4, n, 2 * n, n + 1, k, 4 * k, n * k]
STRIDES = [0, 1, 2, 8, n, 2 * n, 4 * k, n * k, -1, -n]


@st.composite
def symbolic_layouts(draw: st.DrawFn) -> TileLayout:
    def one() -> Iter:
        size, stride = draw(st.sampled_from(SIZES)), draw(st.sampled_from(STRIDES))
        return Iter(size, stride, draw(st.sampled_from(("m", "laneid"))))

    shard = [one() for _ in range(draw(st.integers(1, 3)))]
    replica = [one() for _ in range(draw(st.integers(0, 1)))]
    return TileLayout.from_iters(shard, replica, {"m": draw(st.sampled_from([0, 3, n]))})


VALUES = [{"n": a, "k": b} for a in (1, 2, 3) for b in (1, 2)]


def number(value: Any, values: dict[str, int]) -> int:
    return int(substitute(value, values))


@settings(max_examples=120, deadline=None)
@given(symbolic_layouts(), symbolic_layouts(), st.booleans())
def test_symbolic_verdicts_hold_for_every_value(a: TileLayout, b: TileLayout, same: bool) -> None:
    if same:  # the same map, cut differently
        last = a.shard[-1]
        cut = (Iter(last.extent, last.stride * 2, last.axis), Iter(2, last.stride, last.axis))
        doubled = (Iter(last.extent * 2, last.stride, last.axis),)
        a, b = (
            TileLayout.from_iters((*a.shard[:-1], *its), a.replica, a.offset)
            for its in (cut, doubled)
        )
    try:
        verdict = a.equivalent(b)
    except Undecided:
        assert not same
        return
    assert bool(verdict) or not same
    for values in VALUES:
        one, other = images(a.subs(values)), images(b.subs(values))
        assert bool(verdict) == (one == other)
        if isinstance(verdict.reason, Difference) and len(one) == len(other):
            at = number(verdict.reason.element[0], values)
            assert one[at] != other[at]


@settings(max_examples=120, deadline=None)
@given(symbolic_layouts())
def test_symbolic_places_hold_for_every_value(layout: TileLayout) -> None:
    for question in ("is_injective", "covers", "replication"):
        try:
            verdict = getattr(layout, question)()
        except Undecided:
            continue
        for values in VALUES:
            concrete = getattr(layout.subs(values), question)()
            if question == "replication":
                assert number(verdict.degree, values) == concrete.degree
                continue
            assert bool(verdict) == bool(concrete)
            if question == "covers" and verdict.degree is not None:
                assert number(verdict.degree, values) == concrete.degree
            if isinstance(verdict.reason, Collision):
                sets = images(layout.subs(values))
                x, y = (
                    number(side[0], values)
                    for side in (verdict.reason.first, verdict.reason.second)
                )
                assert x != y
                place = kept((axis, number(v, values)) for axis, v in verdict.reason.place)
                assert place in sets[x] & sets[y]


def test_a_tiled_accumulator_for_every_number_of_tiles() -> None:
    tiled = D.tile_to((16 * Mt, 8), (16, 8))
    verdict = tiled.is_injective()
    assert str(verdict) == (
        f"proved: {tiled} puts no two elements in one place\n"
        "on each axis a sum of digits gives its digits back\n"
        "extent  weight    stride\n"
        "    32       2  1@laneid  1 > 0\n"
        "  2*Mt      64         2  2 > 1\n"
        "     2       1         1  1 > 0"
    )
    filled = tiled.covers(box={"laneid": 32, "m": 4 * Mt})
    assert filled
    assert filled.degree == 1
    assert tiled.equivalent(parse("S[(2*Mt,8,4,2):(2,4@laneid,1@laneid,1)]"))
    wrong = tiled.equivalent(parse("S[(2*Mt,8,4,2):(2,4@laneid,2@laneid,1)]"), shape=(16 * Mt, 8))
    assert str(wrong.reason) == (
        "element (0, 2): the left has it at (laneid 1, m 0), the right at (laneid 2, m 0)"
    )


def test_sizes_that_symbols_leave_open_may_still_be_refuted() -> None:
    verdict = parse("S[2:0]").equivalent(parse("S[n:1]"))
    assert not verdict
    assert verdict.reason.remark == "if both hold as many elements: 2 and n"
    with pytest.raises(Undecided, match="they agree at n = 2; they differ at n = 1"):
        parse("S[2:1]").equivalent(parse("S[n:1]"))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("S[4:1] + n", "S[4:1] + 2"),
        ("S[4:1] + R[n:8]", "S[4:1] + R[2:8]"),
        ("S[4:1] + R[(2,2):(1,n)]", "S[4:1] + R[(2,2):(1,k)]"),
    ],
)
def test_replicas_and_offsets_with_symbols_are_not_guessed(left: str, right: str) -> None:
    with pytest.raises(Undecided, match=r"equivalent: .* they agree at .*; they differ at"):
        parse(left).equivalent(parse(right))
    assert parse(left).equivalent(parse(left))


def test_replicas_with_symbols_may_be_refuted() -> None:
    verdict = parse("S[4:1] + R[2:n]").equivalent(parse("S[4:1] + R[2:2*n]"))
    assert not verdict
    assert verdict.reason.left == ((("m", 0),), (("m", n),))


def test_what_symbols_leave_open_is_said_with_advice() -> None:
    one, other = parse("S[(n,4):(4,1)]"), parse("S[(n,4):(8,1)]")
    with pytest.raises(Undecided) as caught:
        one.equivalent(other)
    assert str(caught.value) == (
        "equivalent: are S[(n,4):(4,1)] and S[(n,4):(8,1)] one map? The symbols n leave it open; "
        "they agree at n = 1; they differ at n = 2; substitute, or write n as n + 1 where it is "
        "not 1"
    )
    refuted = parse("S[(n+1,4):(4,1)]").equivalent(parse("S[(n+1,4):(8,1)]"))
    assert str(refuted.reason) == "element 4: the left has it at (m 4), the right at (m 8)"
    with pytest.raises(Undecided, match=r"is_injective: do the strides on m of .* substitute"):
        parse("S[(n,k):(k,2)]").is_injective()
    with pytest.raises(
        Undecided, match=r"covers: is the stride 8 on m at most 4, what the smaller"
    ):
        other.covers()
    with pytest.raises(Undecided, match=r"covers: does .* reach m 0\.\.31\?"):
        one.covers(box={"m": 32})
    with pytest.raises(Undecided, match="replication: how many copies are on m"):
        parse("S[4:1] + R[(2,2):(n,k)]").replication()


# -- formulas -------------------------------------------------------------------------------------


def test_a_formula_and_its_inverse_are_proved_for_every_number_of_tiles() -> None:
    tiled = D.tile_to((16 * Mt, 8), (16, 8))

    def place(i: Any, j: Any) -> dict[str, Any]:
        return {"laneid": 4 * (i % 8) + j // 2, "m": 2 * (i // 8) + j % 2}

    def element(laneid: Any, m: Any) -> tuple[Any, Any]:
        return laneid // 4 + 8 * (m // 2), 2 * (laneid % 4) + m % 2

    for claim in (place, element):
        for layout, shape in (
            (tiled, (16 * Mt, 8)),
            (D, (16, 8)),
            (tiled.subs({"Mt": 3}), (48, 8)),
        ):
            assert prove(layout, shape, claim)
    swapped = prove(
        tiled, (16 * Mt, 8), lambda i, j: {"laneid": 4 * (i % 8) + j // 2, "m": i % 2 + j % 2}
    )
    assert str(swapped.reason) == (
        "element (1, 0): the left has it at (laneid 4, m 0), the right at (laneid 4, m 1)"
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_formulas_are_compared_on_every_element(data: st.DataObject) -> None:
    layout = data.draw(layouts().filter(lambda each: each.shard))
    size = int(layout.size())
    flip = data.draw(st.one_of(st.none(), st.integers(0, size - 1)))
    want = {axis: values.copy() for axis, values in layout.table((size,)).items()}
    if flip is not None:
        want["m"] = want.get("m", np.zeros(size, dtype=np.int64)).copy()
        want["m"][flip] += 1
    verdict = prove(layout, (size,), lambda x: {axis: values[x] for axis, values in want.items()})
    assert bool(verdict) == (flip is None)
    if flip is not None:
        assert verdict.reason.element == (flip,)
        assert verdict.reason.remark == f"1 of {size} elements differ"


def test_a_symbolic_formula_may_be_refuted_at_a_corner_or_left_open() -> None:
    row = parse("S[(n,8):(8,1)]")
    assert prove(row, (n, 8), lambda i, j: {"m": 8 * i + j})
    wrong = prove(row, (n, 8), lambda i, j: {"m": 8 * i + 2 * j})
    assert wrong.reason.element == (0, 1)
    with pytest.raises(Undecided, match=r"prove: .* substitute them with \.subs"):
        prove(row, (n, 8), lambda i, j: {"m": 9 * i + j})
    assert prove(
        parse("S[(n+1,8):(8,1)]"), (n + 1, 8), lambda i, j: {"m": 9 * i + j}
    ).reason.element == (1, 0)


def test_formulas_may_speak_of_symbols_and_of_bits() -> None:
    Nt = sympy.Symbol("Nt", integer=True, positive=True)
    tiled = D.tile_to((16 * Mt, 8 * Nt), (16, 8))

    def place(i: Any, j: Any) -> dict[str, Any]:
        lane = ((i & 7) << 2) + (j % 8 >> 1)
        return {
            "laneid": lane,
            "m": 4 * Nt * (i // 16) + 4 * (j >> 3) + (i % 16 >> 3) * 2 + (j & 1),
        }

    shape = (16 * Mt, 8 * Nt)
    assert prove(tiled, shape, place)
    assert not prove(tiled, shape, lambda i, j: place(i, 3 + -1 * (3 - j)) | {"laneid": i % 8})
    with pytest.raises(LayoutError, match="prove: the mask of a symbolic index must be"):
        prove(tiled, shape, lambda i, j: {"m": i & 5})


def test_swizzled_layouts_answer_as_plain_ones_do() -> None:
    tile = parse("S[(8,64):(64,1)]")
    swizzled = ComposeLayout(3, 3, 3, tile)
    assert swizzled.equivalent(ComposeLayout(3, 3, 3, parse("S[512:1]")))
    assert not swizzled.equivalent(tile)
    assert not tile.equivalent(swizzled, shape=(8, 64))
    assert tile.equivalent(ComposeLayout(3, 0, 3, tile))  # a swizzle of nothing
    assert isinstance(swizzled.equivalent(parse("S[256:1]")).reason, OtherSize)
    with pytest.raises(LayoutError, match="equivalent: needs a layout; got 7"):
        swizzled.equivalent(7)  # type: ignore[arg-type]
    rows = ComposeLayout(3, 3, 3, parse("S[(M,64):(64,1)]"))
    assert rows.equivalent(ComposeLayout(3, 3, 3, parse("S[(M,8,8):(64,8,1)]")))
    assert swizzled.is_injective()
    assert swizzled.replication().degree == 1

    inverse = swizzled.inverse((8, 64))
    for x in range(512):
        i, j = divmod(x, 64)
        assert inverse.at(**swizzled.apply(i, j, shape=(8, 64))) == (i, j)
    assert str(inverse).endswith(f"and m is {swizzled.swizzle} of the address")
    twice = swizzled.over(parse("S[512:1] + R[2:512]"))
    assert twice.owners(64) == ({"m": 72}, {"m": 584})
    grouped, seps = swizzled.group((8, 8, 8))
    assert (str(grouped.tile_layout), seps) == ("S[(8,8,8):(64,8,1)]", (0, 1, 2, 3))


def test_the_owner_warp_of_two_warpgroups() -> None:
    """F23: for 256 rows, warp = (r // 128) * 4 + (r % 64) // 16."""
    rows = parse("S[(2,2,4,16):(4@warpid,1,1@warpid,1@laneid)]")
    right = prove(rows, (256,), lambda r: {
        "warpid": r // 128 * 4 + r % 64 // 16, "m": r % 128 // 64, "laneid": r % 16})  # fmt: skip
    assert right
    flat = prove(rows, (256,), lambda r: {
        "warpid": r % 128 // 16, "m": r // 128, "laneid": r % 16})  # fmt: skip
    assert flat.reason.element == (64,)


def test_the_accumulator_is_a_mixed_radix_number() -> None:
    """F25: offset = (j & 1) + 2*(lane % 4) + 8*(lane // 4) + 64*(j >> 1)."""

    def element(laneid: Any, m: Any) -> tuple[Any]:
        return (m % 2 + 2 * (laneid % 4) + 8 * (laneid // 4) + 64 * (m // 2),)

    assert prove(D, (128,), element)


def test_replicas_answer_an_inverse_formula_too() -> None:
    copied = TileLayout(S[4:1] + R[2 : 4 @ warpid])
    assert prove(copied, (4,), lambda m, warpid: (m,))
    assert not prove(copied, (4,), lambda m, warpid: (m + warpid // 4,))
    assert prove(parse("S[n:1] + R[2:4@warpid]"), (n,), lambda m, warpid: (m,))
    refuted = prove(parse("S[n:1] + R[2:4@warpid]"), (n,), lambda m, warpid: (m + warpid,))
    assert refuted.reason.left == ((("warpid", 4), ("m", 0)),)


def test_a_swizzled_layout_is_compared_with_a_formula_or_a_layout() -> None:
    tile = parse("S[(8,64):(64,1)]")
    swizzled = ComposeLayout(3, 3, 3, tile)
    swizzle = SwizzleLayout(3, 3, 3)
    assert prove(swizzled, (8, 64), lambda i, j: {"m": swizzle.apply(64 * i + j)})
    assert prove(swizzled, (8, 64), ComposeLayout(3, 3, 3, parse("S[512:1]")))
    refuted = prove(swizzled, (8, 64), tile)
    assert refuted.reason.element == (1, 0)
    assert refuted.reason.left == ((("m", 72),),)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (5, "prove: the claim must be a layout, a fragment, or a formula such as"),
        (lambda i, j: 3, r"prove: a formula of coordinates must return {axis: value}; got 3"),
        (lambda i, j: {"lane": 3}, "axis: no axis is named 'lane'"),
        (lambda i, j: {"m": 0.5 * i}, "prove: a formula must give integers; got float64"),
        (lambda laneid, m: laneid, r"prove: a formula of the axes must return a tuple of 2"),
        (lambda laneid, m: (laneid,), r"prove: a formula of the axes must return a tuple of 2"),
    ],
)
def test_claims_that_say_nothing(claim: Any, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        prove(D, (16, 8), claim)


def test_verdicts_are_readable_in_jupyter() -> None:
    verdict = D.is_injective()
    assert verdict._repr_markdown_() == (
        "**proved**: S[(2,8,4,2):(2,4@laneid,1@laneid,1)] puts no two elements in one place\n\n"
        "on each axis a sum of digits gives its digits back\n\n"
        "| extent | weight | stride | |\n|--:|--:|--:|:--|\n"
        "| 8 | 8 | 4@laneid | 4 > 3 |\n| 4 | 2 | 1@laneid | 1 > 0 |\n"
        "| 2 | 64 | 2 | 2 > 1 |\n| 2 | 1 | 1 | 1 > 0 |"
    )
    assert D.equivalent(SWAPPED)._repr_markdown_().startswith("**refuted**: ")
    assert isinstance(verdict, Verdict)
    assert hash(verdict) == hash(D.is_injective())


@pytest.mark.parametrize(
    ("text", "shape", "pair"),
    [
        ("S[(2,n):(0,1)]", None, ((0,), (n,))),
        ("S[(2,n):(0,n)]", None, ((0,), (n,))),
        ("S[(n,2*k):(1,0)]", None, ((0,), (1,))),
        ("S[(n,2,k):(k,0,1)]", (n, 2, k), ((0, 0, 0), (0, 1, 0))),
    ],
)
def test_elements_that_a_stride_of_zero_puts_in_one_place_are_shown(
    text: str, shape: tuple[Any, ...] | None, pair: tuple[Any, Any]
) -> None:
    verdict = parse(text).is_injective(shape)
    assert not verdict
    assert (verdict.reason.first, verdict.reason.second) == pair
    assert verdict.reason.place == (("m", 0),)
    assert not parse(text).subs({"n": 3, "k": 2}).is_injective()


def test_an_iter_of_stride_zero_that_may_have_one_element_leaves_it_open() -> None:
    with pytest.raises(Undecided) as left:
        parse("S[(n,4):(0,1)]").is_injective()
    assert str(left.value).startswith("is_injective: do the strides on m of S[(n,4):(0,1)] keep")
    assert parse("S[(n,4):(0,1)]").subs({"n": 1}).is_injective()


def test_the_places_of_an_element_are_listed_up_to_4096_copies() -> None:
    def listed(copies: Any) -> int | None:
        found = every_place(Parts((Iter(4, 1),), (Iter(copies, 8),), {}), 3)
        return None if found is None else len(found)

    assert (listed(4096), listed(4097), listed(n)) == (4096, None, None)
    twice = Parts((Iter(4, 1),), (Iter(2, 8), Iter(2, 8)), {})
    assert every_place(twice, 3) == ((("m", 3),), (("m", 11),), (("m", 19),))


def test_symbolic_sets_that_differ_in_size_are_shown_by_their_ends() -> None:
    verdict = TileLayout(S[1:0] + (n)).equivalent(TileLayout(S[1:0] + R[2 * n : -1] + 3))
    assert not verdict
    assert (verdict.reason.left, verdict.reason.right) == (
        ((("m", n),),),
        ((("m", 4 - 2 * n),), (("m", 3),)),
    )


def test_strides_in_an_order_that_symbols_leave_open_are_named() -> None:
    with pytest.raises(Undecided) as left:
        parse("S[(n,4):(k,n)]").covers()
    assert str(left.value) == (
        "covers: in what order are the strides on m? The symbols k, n leave it open; substitute "
        "them with .subs."
    )


def test_replicas_that_meet_one_another_are_no_meeting_of_elements() -> None:
    """Two copies of one element in one place are one place: only elements may not meet."""
    layout = parse("S[4:1] + R[(n,n):(4,8)]")
    assert layout.subs({"n": 3}).is_injective()
    try:
        assert layout.is_injective()
    except Undecided as left:
        assert str(left).startswith("is_injective: do the strides on m of")  # noqa: PT017


def test_a_formula_may_subtract_and_symbols_may_be_called_as_its_digits_are() -> None:
    whole = parse("S[(n,8):(8,1)]")
    assert prove(whole, (n, 8), lambda i, j: {"m": 8 * i - (0 - j)})
    assert not prove(whole, (n, 8), lambda i, j: {"m": 8 * i - j})
    assert prove(parse("S[(n,8):(-8,1)]"), (n, 8), lambda i, j: {"m": j - 8 * i})
    d = sympy.Symbol("d", integer=True, positive=True)
    named = parse("S[(d,8):(8,1)] + dd")
    assert prove(named, (d, 8), lambda i, j: {"m": 8 * i + j + parse("S[1:dd]").shard[0].stride})
    assert not prove(named, (d, 8), lambda i, j: {"m": 8 * i + j})


def test_small_values_that_are_no_sizes_are_passed_over_among_the_witnesses() -> None:
    """With n = 1 there is no layout of n - 1 rows: the first that differ are at n = 3."""
    with pytest.raises(Undecided) as left:
        parse("S[(n - 1,4):(4,1)]").equivalent(parse("S[(n - 1,4):(8,1)]"))
    assert "they agree at n = 2; they differ at n = 3;" in str(left.value)


def test_of_axes_on_which_elements_meet_the_first_by_name_is_shown() -> None:
    verdict = parse("S[(2,n,2,k):(0,1,0@laneid,1@laneid)]").is_injective((2, n, 2, k))
    assert (verdict.reason.first, verdict.reason.second) == ((0, 0, 0, 0), (0, 0, 1, 0))


def test_sums_that_all_differ_are_the_proof() -> None:
    assert str(TileLayout(S[(3, 2) : (2, 3)]).is_injective()) == (
        "proved: S[(3,2):(2,3)] puts no two elements in one place\n"
        "on each axis a sum of digits gives its digits back\n"
        "extent  weight  stride\n"
        "     3       2       2  all sums on m differ\n"
        "     2       1       3  all sums on m differ"
    )


def test_a_refutation_says_how_many_elements_were_compared() -> None:
    refuted = TileLayout(S[(2, 3) : (2, 1)]).is_injective()
    assert not refuted
    assert refuted.checked == 6


def test_multiples_of_a_symbol_meet() -> None:
    n = sympy.Symbol("n", integer=True, positive=True)
    assert str(TileLayout(S[(4, 4) : (2 * n, n)]).is_injective()) == (
        "refuted: S[(4,4):(2*n,n)] puts no two elements in one place\n"
        "element 2 and element 4 share the place (m 2*n)"
    )


def test_a_refutation_under_one_swizzle_names_what_was_asked() -> None:
    n = sympy.Symbol("n", integer=True, positive=True)
    tight, wide = (
        ComposeLayout(3, 3, 3, TileLayout(S[(n + 1, 64) : (pitch, 1)])) for pitch in (64, 128)
    )
    refuted = prove(tight, (n + 1, 64), wide)
    assert str(refuted) == (
        f"refuted: {tight} and {wide} are one map\n"
        "element (1, 0): the left has it at (m 64), the right at (m 128)\n"
        "these places are those before the swizzle, which keeps them apart"
    )
