"""CuTe layouts and their algebra: every operation against its defining equation, by brute force."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutalg import LayoutError, SwizzleLayout
from layoutalg.interop import (
    CuteLayout,
    coalesce,
    complement,
    compose,
    from_tv,
    left_inverse,
    logical_divide,
    right_inverse,
    to_cute,
)
from layoutalg.layouts.spec import S
from layoutalg.layouts.tile_layout import TileLayout
from tests.support.paths import DATA

CASES = {row["id"]: row for row in json.loads((DATA / "cases/layout_op.json").read_text())}
of: Any = CuteLayout.parse
WRONG: Any = 2.5


# -- the definitions, as loops over nested tuples -------------------------------------------------


def leaves_of(shape: Any, stride: Any) -> list[tuple[int, int]]:
    if isinstance(shape, int):
        return [(shape, stride)]
    return [leaf for d, s in zip(shape, stride, strict=True) for leaf in leaves_of(d, s)]


def value(layout: CuteLayout, index: int) -> int:
    """The offset of a flat index below the size: digits, first leaf fastest."""
    total = 0
    for extent, stride in leaves_of(layout.shape, layout.stride):
        index, digit = divmod(index, extent)
        total += digit * stride
    assert index == 0
    return total


def values(layout: CuteLayout) -> list[int]:
    size = 1
    for extent, _ in leaves_of(layout.shape, layout.stride):
        size *= extent
    return [value(layout, i) for i in range(size)]


def beyond(layout: CuteLayout, index: int) -> int:
    """The offset of any index: the last leaf that moves has no end."""
    moving = [leaf for leaf in leaves_of(layout.shape, layout.stride) if leaf[0] != 1]
    total = 0
    for extent, stride in moving[:-1]:
        index, digit = divmod(index, extent)
        total += digit * stride
    return total + (index * moving[-1][1] if moving else 0)


def factorisations(n: int) -> Iterator[tuple[int, ...]]:
    if n == 1:
        yield ()
    for d in range(2, n + 1):
        if n % d == 0:
            for rest in factorisations(n // d):
                yield (d, *rest)


def read_strides(shape: tuple[int, ...], wanted: list[int]) -> tuple[int, ...]:
    """The strides that a layout of this shape must have, if it is to have these values."""
    weights = [1, *itertools.accumulate(shape, lambda a, b: a * b)]
    return tuple(wanted[w] for w in weights[:-1])


def is_layout(wanted: list[int]) -> bool:
    """Whether some flat shape:stride has these values: try every factorisation of their number."""
    if len(wanted) == 1:
        return wanted == [0]
    return any(
        values(CuteLayout(shape, read_strides(shape, wanted))) == wanted
        for shape in factorisations(len(wanted))
    )


def nested(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(leaf, lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=4)


@st.composite
def layouts(
    draw: st.DrawFn, extents: tuple[int, ...] = (1, 2, 3, 4, 6), low: int = 0
) -> CuteLayout:
    pairs = draw(nested(st.tuples(st.sampled_from(extents), st.integers(low, 17))))

    def part(node: Any, index: int) -> Any:
        return node[index] if isinstance(node, tuple) else tuple(part(n, index) for n in node)

    return CuteLayout(part(pairs, 0), part(pairs, 1))


# -- the type --------------------------------------------------------------------------------------


@settings(deadline=None)
@given(layouts(low=-9))
def test_text_reads_back(layout: CuteLayout) -> None:
    assert of(str(layout)) == layout
    static = str(layout).replace("(", " ( ").replace(",", " , ")
    assert of("".join(f"_{t}" if t[:1].isdigit() else t for t in static.split())) == layout


@settings(deadline=None)
@given(layouts(low=-9))
def test_values_size_and_cosize(layout: CuteLayout) -> None:
    wanted = values(layout)
    assert layout.size == len(wanted)
    assert [layout(i) for i in range(layout.size)] == wanted
    assert layout.cosize == max(wanted) - min(wanted) + 1


@settings(deadline=None)
@given(layouts(low=-9))
def test_coordinates_of_the_modes(layout: CuteLayout) -> None:
    for flat, back in enumerate(
        itertools.product(*(range(extent) for extent in reversed(layout.extents)))
    ):
        assert layout(*reversed(back)) == value(layout, flat)


def test_nested_coordinate() -> None:
    layout = of("((2,3),4):((1,10),100)")
    assert layout((1, 2), 3) == 321
    assert layout(((1, 2), 3)) == 321
    assert layout(5, 3) == 321


def test_arrays_are_taken() -> None:
    import numpy as np

    layout = of("((2,3),4):((1,10),100)")
    assert layout(np.arange(layout.size)).tolist() == values(layout)


def test_unit_strides_do_not_count() -> None:
    assert of("(1,2):(0,5)") == of("(1,2):(5,5)")
    assert hash(of("(1,2):(0,5)")) == hash(of("(1,2):(5,5)"))
    assert of("(2,2):(5,5)") != of("(2,2):(0,5)")


def test_strides_default_to_compact() -> None:
    assert of("(4,(2,3))") == of("(4,(2,3)):(1,(4,8))")
    assert of("((4,2)):((1,8))").extents == (8,)
    assert of("(4,2):(1,8)").extents == (4, 2)


@settings(deadline=None)
@given(layouts(extents=(1, 2, 3, 4), low=-3))
def test_coalesce(layout: CuteLayout) -> None:
    short = coalesce(layout)
    wanted = values(layout)
    assert values(short) == wanted
    for shape in factorisations(layout.size):  # nothing shorter has these values
        if 0 < len(shape) < len(short.leaves):
            assert values(CuteLayout(shape, read_strides(shape, wanted))) != wanted


# -- the algebra -----------------------------------------------------------------------------------


def expressible(a: CuteLayout, b: CuteLayout) -> bool:
    """Whether ``c -> A(B(c))`` is a layout whose modes refine those of B, by looking at all c."""
    leaves = b.leaves
    alone = [[beyond(a, c * s) for c in range(d)] for d, s in leaves]
    return all(map(is_layout, alone)) and all(
        beyond(a, sum(c * s for c, (_, s) in zip(coord, leaves, strict=True)))
        == sum(column[c] for c, column in zip(coord, alone, strict=True))
        for coord in itertools.product(*(range(d) for d, _ in leaves))
    )


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(layouts(extents=(1, 2, 3, 4, 8)), layouts(extents=(1, 2, 3, 4, 5)))
def test_compose_is_right_and_complete(a: CuteLayout, b: CuteLayout) -> None:
    if not expressible(a, b):
        with pytest.raises(LayoutError, match="compose: no shape:stride is"):
            compose(a, b)
        return
    both = compose(a, b)
    assert values(both) == [beyond(a, offset) for offset in values(b)]
    assert isinstance(b.shape, int) or both.extents == b.extents


def test_carries_that_cancel() -> None:
    """At (1, 1) offsets 1 and 3 carry twice, and the strides happen to make up for it."""
    a, b = of("(2,2,2):(0,1,1)"), of("(2,2):(1,3)")
    assert [beyond(a, x) for x in values(b)] == [0, 0, 1, 1]
    assert compose(a, b) == of("(2,2):(0,1)")


def test_compose_of_large_layouts_is_quick() -> None:
    a = CuteLayout((1 << 20, 1 << 20), (1 << 30, 3))
    assert compose(a, CuteLayout((1 << 10, 1 << 12), (1 << 10, 1 << 20))) == CuteLayout(
        (1 << 10, 1 << 12), (1 << 40, 3)
    )


@settings(deadline=None)
@given(layouts(extents=(1, 2, 3, 4)), st.integers(1, 60))
def test_complement(layout: CuteLayout, size: int) -> None:
    try:
        rest = complement(layout, size)
    except LayoutError:
        moving = [(d, s) for d, s in layout.leaves if d != 1 and s != 0]
        assert not fillable(moving)
        return
    reached = sorted(a + b for a in set(values(layout)) for b in values(rest))
    assert reached == list(range(len(reached)))
    assert len(reached) >= size
    assert all(a < b for a, b in itertools.pairwise(values(rest)))


def fillable(leaves: list[tuple[int, int]]) -> bool:
    """Whether translates of the image can fill an interval once: greedily, as they only can."""
    flat = CuteLayout(tuple(d for d, _ in leaves), tuple(s for _, s in leaves))
    image = values(flat)
    if len(set(image)) != len(image):
        return False
    covered: set[int] = set()
    for start in range(4 * max(image) + 4):
        if start in covered:
            continue
        moved = {start + v for v in image}
        if moved & covered:
            return False
        covered |= moved
        if covered == set(range(len(covered))):
            return True
    return False


@settings(deadline=None)
@given(layouts(extents=(2, 3, 4)), layouts(extents=(1, 2, 3, 4)))
def test_logical_divide(layout: CuteLayout, tiler: CuteLayout) -> None:
    try:
        divided = logical_divide(layout, tiler)
    except LayoutError as error:
        if "complement" in str(error):
            assert not fillable([leaf for leaf in tiler.leaves if leaf[0] != 1 and leaf[1] != 0])
        else:
            rest = complement(tiler, layout.size)
            both = CuteLayout((tiler.shape, rest.shape), (tiler.stride, rest.stride))
            assert not expressible(layout, both)
        return
    rest = complement(tiler, layout.size)
    assert divided.extents == (tiler.size, rest.size)
    for j, b in enumerate(values(rest)):
        for i, a in enumerate(values(tiler)):
            assert divided(i, j) == beyond(layout, a + b)


@settings(deadline=None)
@given(layouts(extents=(1, 2, 3, 4, 6)))
def test_right_inverse(layout: CuteLayout) -> None:
    inverse = right_inverse(layout)
    assert [value(layout, r) for r in values(inverse)] == list(range(inverse.size))
    leaves = [leaf for leaf in layout.leaves if leaf[0] != 1]
    for count in range(len(leaves) + 1):  # no chain of whole modes goes further
        for chain in itertools.permutations(leaves, count):
            extents = [extent for extent, _ in chain]
            weights = [1, *itertools.accumulate(extents, lambda a, b: a * b)]
            if all(s == w for (_, s), w in zip(chain, weights, strict=False)):
                assert weights[-1] <= inverse.size


@settings(deadline=None)
@given(layouts(extents=(1, 2, 3, 4, 6)))
def test_left_inverse(layout: CuteLayout) -> None:
    offsets = values(layout)
    try:
        inverse = left_inverse(layout)
    except LayoutError as error:
        if "must be multiples" not in str(error) and "no digit tells" not in str(error):
            assert len(set(offsets)) < len(offsets)
        strides = sorted({stride for extent, stride in layout.leaves if extent != 1})
        if all(b % a == 0 for a, b in itertools.pairwise(strides) if a):
            assert len(set(offsets)) < len(offsets)  # a chain is refused only where it repeats
        return
    assert len(set(offsets)) == len(offsets)
    assert [value(inverse, offset) for offset in offsets] == list(range(layout.size))


# -- the cases -------------------------------------------------------------------------------------


def pair(data: Any) -> CuteLayout:
    """Read ``[shape, stride]``."""
    return CuteLayout(data[0], data[1])


def test_p01_cosize() -> None:
    case = CASES["P01"]
    assert pair(case["input"]["A"]).cosize == case["expected"]


def test_p02_compose_without_a_layout() -> None:
    case = CASES["P02"]
    a, b = pair(case["input"]["A"]), pair(case["input"]["B"])
    assert [beyond(a, x) for x in values(b)] == case["expected"]["pointwise"]
    with pytest.raises(LayoutError, match="elements 0 and 1 differ by 6, 2 and 3 by 1"):
        compose(a, b)


def test_p04_compose_that_an_older_rule_refused() -> None:
    case = CASES["P04"]
    both = compose(pair(case["input"]["A"]), pair(case["input"]["B"]))
    assert both == pair(case["expected"]["layout"])
    assert values(both) == case["expected"]["pointwise"]


def test_p07_left_inverse() -> None:
    case = CASES["P07"]
    layout = pair(case["input"]["A"])
    assert left_inverse(layout) == pair(case["expected"]["layout"])
    wrong = pair(case["expected"]["pycute_head_wrong"])
    assert [beyond(wrong, x) for x in values(layout)] != list(range(layout.size))


def test_p08_compose_inside_one_mode() -> None:
    case = CASES["P08"]
    found = [compose(pair(each["A"]), pair(each["B"])) for each in case["input"]["cases"]]
    assert found == [pair(each) for each in case["expected"]["layouts"]]


def test_p09_unit_mode() -> None:
    case = CASES["P09"]
    divided = logical_divide(pair(case["input"]["A"]), case["input"]["tiler"])
    assert divided == pair(case["expected"]["canonical"]) == pair(case["expected"]["equal_to"])
    assert divided.stride == tuple(case["expected"]["canonical"][1])


def test_p13_strided_tiler() -> None:
    case = CASES["P13"]
    divided = logical_divide(pair(case["input"]["A"]), pair(case["input"]["tiler"]))
    assert divided.modes == (pair(case["expected"]["tile"]), pair(case["expected"]["rest"]))


def test_p16_complement() -> None:
    case = CASES["P16"]
    assert complement(pair(case["input"]["A"]), case["input"]["size"]) == pair(case["expected"])


def test_p19_row_major() -> None:
    case = CASES["P19"]
    shape = (case["input"]["rows"], case["input"]["cols"])
    assert to_cute(TileLayout(S[shape]), shape).stride == tuple(case["expected"]["strides"])


def test_left_inverse_of_strides_that_nearly_divide() -> None:
    """16 is no multiple of 3, yet a digit of 15 tells the modes apart: 16*b drifts below 3."""
    assert left_inverse(of("(4,3):(3,16)")) == of("(3,5,3):(0,1,4)")


def test_p20_right_inverse_skips_stride_zero() -> None:
    case = CASES["P20"]
    layout = pair(case["input"]["A"])
    assert right_inverse(layout) == pair(case["expected"]["layout"])
    assert case["expected"]["left_inverse"] is None
    with pytest.raises(LayoutError, match=r"2:0 of .* puts 2 elements on one offset"):
        left_inverse(layout)


def test_p22_swizzle_size() -> None:
    case = CASES["P22"]
    assert SwizzleLayout(*case["input"]["swizzle"]).size == case["expected"]


def test_p36_one_element_per_thread() -> None:
    case = CASES["P36"]
    threads = case["input"]["threads"]
    layout = from_tv(f"({threads},1):(1,0)", (case["input"]["elements"],))
    assert layout.size("laneid") == threads
    assert layout.size("m") == case["expected"]["per_thread"]
    assert len(layout.owners(5)) == case["expected"]["replica"]


def test_l10_bijection_on_labels() -> None:
    case = CASES["L10"]
    labels = CuteLayout(case["input"]["shape"], case["input"]["stride"])
    layout = from_tv(labels, (512,))
    assert case["expected"]["bijective"]
    assert not layout.replica
    table = layout.table((512,))
    row = {
        int(lane): x // 16
        for x, (lane, v) in enumerate(zip(*table.values(), strict=True))
        if v == 0
    }
    assert set(table) == {"laneid", "m"}
    assert [row[lane] for lane in range(32)] == case["expected"]["lane_row_label"]


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cute: expected a number or '(', found the end\n  \n  ^"),
        ("(4,8", "cute: expected ')', found the end\n  (4,8\n      ^"),
        ("(4,8):(1,4):2", "cute: the layout ends here\n  (4,8):(1,4):2\n             ^"),
        ("(4,\n\tn):(1,4)", "cute: expected a number or '(', found n\n   n):(1,4)\n   ^"),
        ("(4,n):(1,4)", "cute: expected a number or '(', found n\n  (4,n):(1,4)\n     ^"),
        (
            "(4,8):(1@0,1@1)",
            "cute: a basis stride such as 1@0 makes coordinates, not offsets\n"
            "  (4,8):(1@0,1@1)\n          ^",
        ),
        ("(4,8):4", "cute: shape and stride must nest alike; got (4, 8) and 4"),
        ("(4,8):(1,(4,8))", "cute: shape and stride must nest alike; got 8 and (4, 8)"),
        ("(4,0):(1,4)", "cute: an extent must be at least 1; got 0"),
        ("()", "cute: expected a number or '(', found )\n  ()\n   ^"),
        ("²:1", "cute: expected a number or '(', found ²\n  ²:1\n  ^"),
    ],
)
def test_text_that_is_no_layout(text: str, message: str) -> None:
    with pytest.raises(LayoutError) as refused:
        of(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: of(8), "cute: needs text such as (4,8):(1,4); got 8"),
        (lambda: of("(" * 99 + "4" + ")" * 99), "the tuples nest more than 64 deep"),
        (lambda: CuteLayout((4, WRONG), (1, 2)), "cute: extent: must be an integer"),
        (lambda: CuteLayout((), ()), "cute: a tuple must have an entry; got ()"),
        (lambda: of("(4,8):(1,4)")(1, 2, 3), "has 2 modes, got 3 coordinates"),
        (lambda: of("(4,8):(1,4)")(-1), "cute: a coordinate must be at least 0; got -1"),
        (lambda: of("(4,8):(1,4)")("a", 1), "cute: coordinate: must be an integer"),
        (lambda: compose(of("8:1"), of("4:-1")), "compose: the second layout must have strides"),
        (
            lambda: compose(of("(4,4):(1,8)"), of("(3,2):(1,3)")),
            "compose: no shape:stride is (4,4):(1,8) after (3,2):(1,3): at (1, 1) the modes of the "
            "second carry into each other; the first gives 8 there, but the modes alone add up "
            "to 4",
        ),
        (
            lambda: compose(of("(4,4):(1,8)"), of("6:1")),
            "gives 0, 1, 2, 3, 8, 9: the pattern changes after 4 steps, and 4 does not divide 6",
        ),
        (
            lambda: complement(of("(2,2):(2,3)")),
            "complement: each stride must be a multiple of what the smaller ones cover; 2:3 of "
            "(2,2):(2,3) meets 4: its offsets repeat, or leave gaps that no layout fills",
        ),
        (lambda: complement(of("4:-1")), "complement: the strides must be at least 0; got 4:-1"),
        (lambda: right_inverse(of("4:-1")), "right_inverse: the strides must be at least 0"),
        (
            lambda: left_inverse(of("(2,4):(1,1)")),
            "left_inverse: 2:1 of (2,4):(1,1) reaches 4:1: two elements share an offset, or no "
            "digit tells the modes apart",
        ),
        (
            lambda: left_inverse(of("(2,4):(3,7)")),
            "left_inverse: the strides of (2,4):(3,7) must be multiples of one another, or nearly: "
            "rounded down, they miss an offset by up to 3, and the smallest stride is 3",
        ),
    ],
)
def test_refusals_say_why(call: Any, message: str) -> None:
    with pytest.raises(LayoutError) as refused:
        call()
    assert message in str(refused.value)


def test_symbols_are_refused() -> None:
    from layoutalg.sizes.symbolic import symbol

    with pytest.raises(LayoutError, match=r"a layout holds numbers; got n:1\. Substitute"):
        CuteLayout(symbol("n"), 1)
