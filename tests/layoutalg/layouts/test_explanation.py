"""Explanations: their digits, sums and places against the definitions, element by element."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given

from layoutalg import ComposeLayout, LayoutError, TileLayout, Undecided, fragments, parse
from layoutalg.layouts.explanation import (
    Explanation,
    explain_element,
    explain_held,
    explain_place,
    reach,
)
from tests.support import oracle
from tests.support.strategies import Grouped, grouped_layouts, laws

D = parse("S[(2,8,4,2):(2,4@laneid,1@laneid,1)]")


def plain(layout: TileLayout) -> oracle.Layout:
    """Return a layout as the oracle has it."""

    def listed(iters: Any) -> list[Any]:
        return [[int(it.extent), int(it.stride), it.axis.name] for it in iters]

    offset = {axis.name: int(value) for axis, value in layout.offset.items()}
    return {"shard": listed(layout.shard), "replica": listed(layout.replica), "offset": offset}


def value_of(source: str, numbers: Mapping[str, int]) -> int:
    """Evaluate the text of a digit: ``(laneid - 4) mod 16 // 4``."""
    found = re.fullmatch(r"\(?(\w+)(?: ([-+]) (\d+)\))?(?: mod (\d+))?(?: // (\d+))?", source)
    assert found is not None, source
    value = numbers[found[1]]
    if found[2]:
        value += int(found[3]) * (1 if found[2] == "+" else -1)
    if found[4]:
        value %= int(found[4])
    return value // int(found[5] or 1)


def check_digits(found: Explanation, numbers: Mapping[str, int]) -> None:
    """Hold each digit to its text, and each sum to its digits."""
    for digit in found.digits:
        assert digit.value == value_of(digit.source, numbers)
        assert 0 <= digit.value < digit.extent
        assert digit.adds == digit.value * int(digit.stride.split("@")[0].strip("()"))
    for total in found.sums:
        added = [digit.adds for digit in found.digits if digit.to == total.name]
        assert list(total.terms[: len(added)]) == added
        assert len(total.terms) - len(added) in (0, 1)


@laws
@given(grouped_layouts())
def test_an_element_is_where_the_definition_puts_it(case: Grouped) -> None:
    layout, shape = case
    want = plain(layout)
    for element in itertools.islice(oracle.every(shape), 0, None, 7):
        found = explain_element(layout, element, shape)
        x = oracle.flat(element, shape)
        sums = {each.name: each.total for each in found.sums if each.total}
        assert sums == oracle.base(want, x)
        places = {
            tuple(sorted((a, v) for a, v in place if v)) for place in (found.place, *found.copies)
        }
        assert places == oracle.image(want, x)
        numbers = dict(zip(("row", "col"), element, strict=False)) if len(shape) == 2 else {}
        numbers |= {f"i{dim}": at for dim, at in enumerate(element)} | {"index": x}
        check_digits(found, numbers)
        assert found.record()["place"] == dict(found.place)


@laws
@given(grouped_layouts())
def test_the_way_back_leads_to_the_element(case: Grouped) -> None:
    layout, shape = case
    try:
        inverse = layout.inverse(shape)
    except LayoutError:
        return
    names = [axis.name for axis in inverse.axes]
    for element in itertools.islice(oracle.every(shape), 0, None, 5):
        at = layout.apply(*element, shape=shape)
        place = {name: at.get(name, 0) for name in names}  # 0: where copies alone are
        found = explain_place(layout, place, shape)
        assert found is not None
        assert found.element == tuple(each.total for each in found.sums) == tuple(element)
        check_digits(found, place)


def test_a_shape_that_cuts_digits_is_explained_on_the_flat_index() -> None:
    found = explain_element(parse("S[(6,4):(4,1)]"), (7, 2), (8, 3))
    assert [digit.source for digit in found.digits] == ["index // 4", "index mod 4"]
    assert dict(found.place) == {"m": 23}


def test_a_lane_holds_what_its_fragment_says() -> None:
    for name, operand in (
        ("mma.m16n8k16.f16", "A"),
        ("mma.m16n8k32.s8", "B"),
        ("wgmma.m64n8", "D.f32"),
    ):
        row = next(each for each in fragments.rows(name) if each.operand.startswith(operand))
        for lane in (0, 5, 31):
            found = explain_held(row.layout, {"laneid": lane}, row.shape)
            assert [each.element for each in found] == [tuple(x) for x in row.coords[lane].tolist()]


@laws
@given(grouped_layouts())
def test_the_reach_of_an_axis_is_that_of_its_places(case: Grouped) -> None:
    layout, shape = case
    images = [oracle.image(plain(layout), x) for x in range(int(layout.size()))]
    places = [dict(place) for image in images for place in image]
    for axis in {name for place in places for name in place}:
        at = [place.get(axis, 0) for place in places]
        assert reach(layout, axis, shape) == (min(at), max(at))
    assert reach(D, "warpid", (16, 8)) is None


def test_the_reach_of_a_swizzled_tile_is_where_it_leads() -> None:
    tile = ComposeLayout(1, 1, 1, parse("S[(3,2):(2,1)]"))
    assert reach(tile, "m", (3, 2)) == (0, int(tile.table((3, 2))["m"].max())) == (0, 7)


def test_axes_that_are_left_out_begin_where_the_layout_does() -> None:
    layout = parse("S[(4,2):(1@laneid,1)] + 5@warpid + 3")
    found = explain_held(layout, {"laneid": 2}, (4, 2))
    assert [each.element for each in found] == [(2, 0), (2, 1)]
    assert [dict(each.place)["m"] for each in found] == [3, 4]
    assert found[0].digits[1].source == "(m - 3)"
    assert explain_held(layout, {"laneid": 9}, (4, 2)) == ()
    assert [each.element for each in explain_held(layout, {"laneid": 1, "m": 4}, (4, 2))] == [
        (1, 1)
    ]


def test_a_reversed_digit_is_counted_from_its_other_end() -> None:
    layout = parse("S[8:(-2)@laneid] + 14@laneid")
    found = explain_place(layout, {"laneid": 10}, (8,))
    assert found is not None
    assert found.element == (2,)
    assert str(found.sums[0]) == "i0 = -5 + 7 = 2"


def test_a_copy_moves_no_element() -> None:
    layout = parse("S[4:1@laneid] + R[2:4@laneid]")
    assert explain_element(layout, (3,), (4,)).copies == ((("laneid", 7),),)
    found = explain_place(layout, {"laneid": 7}, (4,))
    assert found is not None
    assert [(digit.source, digit.to) for digit in found.digits] == [
        ("laneid // 4", "no dimension: a copy"),
        ("laneid mod 4", "i0"),
    ]


@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("lengths", [(3, 3, 3), (2, 1, 3), (0, 2, 4)])
def test_a_swizzled_address_is_explained_both_ways(
    lengths: tuple[int, int, int], inner: bool
) -> None:
    layout = ComposeLayout(*lengths, parse("S[(16,32):(32,1)]"), inner)
    for element in itertools.product(range(0, 16, 3), range(0, 32, 5)):
        found = explain_element(layout, element, (16, 32))
        address = oracle.swizzled(32 * element[0] + element[1], *lengths, inner)
        assert dict(found.place) == {"m": address}
        assert found.swizzling is not None
        assert (found.swizzling.before, found.swizzling.after) == (
            32 * element[0] + element[1],
            address,
        )
        numbers = [int(x) for x in re.findall(r"\d+", str(found.swizzling))]
        _, unit_number, unit, rest, a, b, c, d, e, f, last = numbers
        assert (a, d, e, f, last) == (unit_number, c, unit, rest, address)
        assert a ^ b == c
        assert c * unit + rest == address
        back = explain_place(layout, {"m": address}, (16, 32))
        assert back is not None
        assert back.element == element
        assert f"swizzled: {back.swizzling}" in str(back)
        assert found.record()["before_swizzle"] == found.swizzling.before


REFUSED: dict[str, tuple[Any, type[LayoutError], str]] = {
    "an element outside": (
        lambda: explain_element(D, (16, 0), (16, 8)),
        LayoutError,
        "apply: .*16",
    ),
    "another size": (lambda: explain_element(D, (0, 0), (8, 8)), LayoutError, "128"),
    "a symbol": (
        lambda: explain_element(parse("S[(n,2):(2,1)]"), (0, 0), ("n", 2)),
        LayoutError,
        "explain: extent of the shape: must be an integer",
    ),
    "a symbolic stride": (
        lambda: explain_element(parse("S[(4,2):(k,1)]"), (0, 0), (4, 2)),
        Undecided,
        "explain: digits have values where all sizes are numbers; got ",
    ),
    "a symbolic stride, on the way back": (
        lambda: explain_held(parse("S[(4,2):(1@laneid,k)]"), {"laneid": 0}, (4, 2)),
        Undecided,
        "explain: digits have values where all sizes are numbers; got ",
    ),
    "an axis of others": (
        lambda: explain_place(D, {"warpid": 1, "laneid": 1, "m": 0}, (16, 8)),
        LayoutError,
        "inverse: a value for each of the axes laneid, m is needed; got warpid, laneid, m",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_explanation_is_refused(name: str) -> None:
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call()


def test_a_place_that_holds_nothing() -> None:
    assert explain_place(D, {"laneid": 32, "m": 0}, (16, 8)) is None
