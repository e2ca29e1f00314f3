"""Operations on symbols, case by case: the right value, or what leaves it open."""

from __future__ import annotations

from typing import Any

import pytest

from layoutalg import ComposeLayout, Iter, LayoutError, S, TileLayout, Undecided, laneid, parse, tx
from layoutalg.sizes.symbolic import symbol
from tests.fuzz.algebra import symbols
from tests.support import oracle

n, k = symbol("n"), symbol("k")


def held(layout: TileLayout, env: dict[str, int]) -> list[Any]:
    return oracle.images(symbols.plain(layout, env))


# -- slices ---------------------------------------------------------------------------------------

SLICES = [
    ("S[(n+4,2):(100,1)]", (1, 3), "S[(2,1):(99,1)] + 1"),
    ("S[(n+4,2):(100,1)]", (1, 5), "S[(2,2):(100,99)] + 1"),
    ("S[(n+4,2):(100,1)]", (3, 7), "S[(2,2):(100,99)] + 101"),
    ("S[(n+4,2):(100,1)]", (2, 2 * n + 8), "S[(n+3,2):(100,1)] + 100"),
    ("S[(n+4,3):(100,1)]", (1, 5), "S[(2,2):(99,1)] + 1"),
    ("S[(n+4,2,2):(100,7,1)]", (1, 3), "S[(2,1):(6,1)] + 1"),
]
NO_SLICES = [
    ("S[(n+4,2):(100,1)]", (2, 5)),
    ("S[(n+4,2):(100,1)]", (3, 6)),
    ("S[(n+4,3):(100,1)]", (3, 7)),
    ("S[(n+4,2,2):(100,7,1)]", (1, 5)),
]


@pytest.mark.parametrize(("text", "region", "want"), SLICES)
def test_a_symbolic_outer_iter_is_sliced_from_an_odd_digit(
    text: str, region: tuple[Any, Any], want: str
) -> None:
    layout = parse(text)
    piece = layout.slice((layout.size(),), (region,))
    assert piece is not None
    assert piece.equivalent(parse(want))
    for value in (1, 2, 5):
        begin, end = (symbols.number(bound, {"n": value}) for bound in region)
        assert held(piece, {"n": value}) == held(layout, {"n": value})[begin:end]


@pytest.mark.parametrize(("text", "region"), NO_SLICES)
def test_what_no_layout_says_is_no_slice(text: str, region: tuple[int, int]) -> None:
    layout = parse(text)
    assert layout.slice((layout.size(),), (region,)) is None
    images = held(layout, {"n": 2})[slice(*region)]
    assert not oracle.expressible([dict(next(iter(image))) for image in images])


@pytest.mark.parametrize("begin", [1, 3])
def test_a_slice_of_open_length_from_an_odd_digit_is_undecided(begin: int) -> None:
    layout = parse("S[(n+4,2):(100,1)]")
    with pytest.raises(Undecided, match="slice: does the range of length"):
        layout.slice((2 * n + 8,), ((begin, 2 * n + 7),))


# -- tiles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", ["R[2:64@laneid]", "3@laneid", "R[(2,2):(0@laneid,64@laneid)]"])
def test_a_tile_whose_axis_may_stand_still_has_no_unit(extra: str) -> None:
    outer = parse("S[(2,2):(2@laneid,1)]")
    with pytest.raises(Undecided, match=r"tile: has .* more than one element along laneid"):
        parse(f"S[(n,4):(4@laneid,1)] + {extra}").tile(outer, (2, 2), (n, 4))
    wide = parse(f"S[(2*n,4):(4@laneid,1)] + {extra}")
    tiled = wide.tile(outer, (2, 2), (2 * n, 4))
    for value in (1, 3):
        numbers = wide.subs({"n": value}).tile(outer, (2, 2), (2 * value, 4))
        assert held(tiled, {"n": value}) == held(numbers, {})


def test_a_replica_that_repeats_nothing_leaves_the_unit_known() -> None:
    tile = parse("S[(n,4):(4@laneid,1)] + R[2:0@laneid]")
    tiled = tile.tile(parse("S[(2,2):(2@laneid,1)]"), (2, 2), (n, 4))
    assert str(tiled) == "S[(2,n,8):((8*n - 6)@laneid,4@laneid,1)] + R[2:0@laneid]"


@pytest.mark.parametrize(
    ("threads", "found"),
    [
        ("S[(64,4):(1@tx,1)]", "S[(2,1):(1@warpid,1@laneid)]"),
        ("S[(64,4):(3@tx,1)]", None),  # a step of 3 crosses warps unevenly
        ("S[(2,32,4):(48@tx,1@tx,1)]", None),  # nor does a step of 48 end at a warp
    ],
)
def test_a_tile_of_a_warp_is_sought_behind_a_cut_at_the_warp(
    threads: str, found: str | None
) -> None:
    warp = TileLayout(S[(32, 4) : (1 @ laneid, 1)])
    outer = warp.is_tile_inner(parse(threads), (64, 4), (32, 4), "cuda")
    assert (None if outer is None else str(outer)) == found
    assert TileLayout(S[64 : 1 @ tx]).canonicalize("cuda") == TileLayout(S[64 : 1 @ tx])


# -- sums and groups ------------------------------------------------------------------------------


def test_a_summand_with_symbols_is_recognised_refused_or_left_open() -> None:
    right, left = TileLayout(S[(n, 2) : (2, 1)]), parse("S[(2,k):(2*k*n,2*n)]")
    total, shape = right.direct_sum(left, (2, k), (n, 2)), (2, n, k, 2)
    assert str(total) == "S[(2,n,k,2):(2*k*n,2,2*n,1)]"
    assert right.is_direct_sum_right(total, shape, (n, 2)) == left
    assert left.is_direct_sum_left(total, shape, (2, k)) == right
    assert TileLayout(S[(n, 2) : (4, 1)]).is_direct_sum_right(total, shape, (n, 2)) is None
    with pytest.raises(Undecided, match=r"is_direct_sum_right: are .* the same as"):
        TileLayout(S[(n, 2) : (k, 1)]).is_direct_sum_right(total, shape, (n, 2))
    with pytest.raises(Undecided, match="is_direct_sum_right: does extent n of shape"):
        TileLayout(S[(k, 2) : (2, 1)]).is_direct_sum_right(total, shape, (n, 2))


def test_groups_of_symbols() -> None:
    dense = TileLayout(S[(2 * n, k) : (k, 1)])
    assert str(dense.group((2, n, k))[0]) == "S[(2,n,k):(k*n,k,1)]"
    assert dense.group((2, n, k))[1] == (0, 1, 2, 3)
    assert str(dense.group((n, 2 * k))[0]) == "S[(n,2,k):(2*k,k,1)]"
    assert dense.group((n, 2 * k))[1] == (0, 1, 3)
    with pytest.raises(Undecided, match="group: does extent k of shape"):
        TileLayout(S[(n, k) : (k, 1)]).group((k, n))
    with pytest.raises(LayoutError, match="must hold as many elements as the layout") as refused:
        TileLayout(S[(6, n) : (n, 1)]).group((4, n))
    assert not isinstance(refused.value, Undecided)


# -- strides of zero ------------------------------------------------------------------------------


def test_a_stride_of_zero_is_injective_for_one_element_only() -> None:
    assert not parse("S[(2,n):(0,1)]").is_injective()
    assert str(parse("S[(n+1,4):(0,1)]").is_injective((n + 1, 4)).reason) == (
        "element (0, 0) and element (1, 0) share the place (m 0)"
    )
    assert parse("S[(1,n):(0,1)]").is_injective()
    with pytest.raises(Undecided, match="is_injective: do the strides on m"):
        parse("S[(n,4):(0,1)]").is_injective()
    assert parse("S[n:1] + R[k:0]").is_injective()
    assert parse("S[n:1] + R[k:0]").replication().degree == 1


# -- swizzled layouts -----------------------------------------------------------------------------


def test_a_swizzled_layout_has_no_axis_to_choose() -> None:
    swizzled = ComposeLayout(3, 3, 3, parse("S[(8,64):(72,1)]"))
    assert swizzled.span() == 568
    assert swizzled.size() == 512
    for measure in ("span", "size"):
        with pytest.raises(LayoutError, match=f"{measure}: a swizzled layout has no axis"):
            getattr(swizzled, measure)("m")


def test_a_swizzled_layout_is_well_formed_as_its_tile_is() -> None:
    assert ComposeLayout(3, 3, 3, parse("S[512:1]")).verify_well_formed() is True
    with pytest.raises(LayoutError, match="disconnected") as refused:
        ComposeLayout(3, 3, 3, parse("S[(2,2):(1@laneid,1@wgid)]"))
    with pytest.raises(LayoutError) as plain:
        parse("S[(2,2):(1@laneid,1@wgid)]").verify_well_formed()
    assert str(refused.value) == str(plain.value)


def test_words_stand_in_the_order_of_the_strides() -> None:
    """The registers of S[(32,2,2):(1@laneid,1,2)] are a transposed pair of pairs."""
    layout = TileLayout(S[(32, 2, 2) : (1 @ laneid, 1, 2)])
    assert layout.table((32, 4))["m"][0].tolist() == [0, 2, 1, 3]
    assert layout.inverse((32, 4)).at(laneid=3, m=1) == (3, 2)
    assert str(layout) == "S[(32,2,2):(1@laneid,1,2)]"
    assert layout.canonicalize().shard[1:] == (Iter(2, 1), Iter(2, 2))
