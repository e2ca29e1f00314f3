"""Each short way says what the long way says: ints at once, operands cut as they stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutalg import Iter, S, TileLayout, laneid, parse, warpid
from layoutalg.algebra import iters as algebra
from layoutalg.algebra.evaluation import at_ints, reader
from layoutalg.algebra.iters import Uncut, cut
from layoutalg.algebra.parts import canonicalize, stands
from layoutalg.algebra.slicing import slice_parts
from layoutalg.algebra.tiling import Operand, as_written, in_tiles, woven
from layoutalg.errors import LayoutError
from tests.support.strategies import factorings, grouped_layouts, laws, layouts, regions


def long_way(layout: TileLayout, coord: tuple[int, ...], shape: tuple[int, ...] | None) -> list:
    """Return what the reader says, axes in their order."""
    return list(reader(layout, coord, shape, "apply").apply(coord).items())


@laws
@given(st.data())
def test_ints_at_once_say_what_the_reader_says(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    size = int(layout.size())
    digits = tuple(it.extent for it in layout.shard)
    for shape in (None, digits, data.draw(factorings(size))):
        x = data.draw(st.integers(0, size - 1))
        coord = (x,) if shape is None else tuple(algebra.split(x, shape))
        found = at_ints(layout, coord, shape)
        if found is None:  # a shape may pass a unit iter over, and its axis with it
            assert shape is not None
            assert 1 in digits
        else:
            assert list(found.items()) == long_way(layout, coord, shape)
        if shape is digits and len(digits) != 1:
            assert at_ints(layout, coord, None) is not None
        first = size if shape is None else (*shape, 1)[0]
        beyond = (first, *coord[1:])
        assert at_ints(layout, beyond, shape) is None
        assert at_ints(layout, (-1, *coord[1:]), shape) is None


@pytest.mark.parametrize(
    ("text", "coord", "shape"),
    [
        ("S[8:1]", (True,), None),
        ("S[8:1]", (1, 1), (2, True)),
        ("S[8:1]", (1, 1), (2, 5)),
        ("S[(4,2):(2,1)]", (1, 1), "42"),
        ("S[8:1]", (1, 1, 1), (2, 4)),
        ("S[8:1]", (1.0,), None),
        ("S[n:1]", (1,), None),
        ("S[8:n]", (1,), None),
        ("S[8:1] + n", (1,), None),
        ("S[(8,1):(1,1@laneid)]", (1,), (8,)),
    ],
)
def test_what_is_no_int_in_range_is_left_to_the_reader(text: str, coord: tuple, shape) -> None:
    assert at_ints(parse(text), coord, shape) is None


def test_an_axis_of_a_unit_iter_is_named_as_before() -> None:
    layout = TileLayout.from_iters([Iter(1, 5, "laneid"), Iter(8, 1)])
    assert layout.apply(3) == layout.apply(0, 3) == {"laneid": 0, "m": 3}
    assert layout.apply(3, shape=(8,)) == {"m": 3}


@laws
@given(grouped_layouts())
def test_an_operand_cut_as_it_stands_is_the_canonical_one(grouped) -> None:
    layout, shape = grouped
    own, iters, seps = Operand(layout, shape, "slice").cut(None)
    right = layout.canonicalize()
    wanted, marks = algebra.group(right.shard, shape, layout)
    for dim in range(len(shape)):
        assert algebra.canonical(iters[seps[dim] : seps[dim + 1]]) == algebra.canonical(
            wanted[marks[dim] : marks[dim + 1]]
        )
    assert canonicalize(own, None) == right or canonicalize(own, None).shard == right.shard
    if stands(layout):
        assert own is layout or isinstance(cut(layout.shard, shape), Uncut)


def test_an_operand_that_does_not_stand_is_made_canonical() -> None:
    for text in ("S[(8,1):(1,1)]", "S[8:1] + 0@laneid", "S[8:1] + 0"):
        assert not stands(parse(text))
    assert stands(TileLayout(S[(8, 4) : (4, 1)]))
    apart = TileLayout(S[(8, 4) : (1 @ laneid, 1 @ warpid)])
    assert stands(apart)
    wrong = parse("S[(8,4):(1@laneid,1@tx)]")
    assert not stands(wrong)
    with pytest.raises(LayoutError, match="scope: laneid and tx conflict"):
        Operand(wrong, (8, 4), "slice").cut(None)
    # the shape cuts only what the neighbours are together
    uneven = Operand(parse("S[(3,4):(4,1)]"), (2, 6), "slice")
    assert uneven.cut(None)[1] == (Iter(2, 6), Iter(6, 1))


@laws
@given(st.data())
def test_a_slice_of_what_stands_is_the_slice_of_the_canonical_form(data: st.DataObject) -> None:
    layout, shape = data.draw(grouped_layouts())
    region = data.draw(regions(shape))
    short = slice_parts(Operand(layout, shape, "slice"), region, None)
    long = slice_parts(Operand(layout.canonicalize(), shape, "slice"), region, None)
    assert (short is None) == (long is None)
    if short is not None and long is not None:
        assert TileLayout.from_iters(*short) == TileLayout.from_iters(*long)


@laws
@given(st.data())
def test_tiles_of_what_stands_are_tiles_of_the_canonical_forms(data: st.DataObject) -> None:
    layout, shape = data.draw(grouped_layouts())
    rank = len(shape)
    outer = TileLayout(S[(2,) * rank])
    operands = [
        (Operand(x, shape, "tile: inner"), Operand(y, (2,) * rank, "tile: outer"))
        for x, y in ((layout, outer), (layout.canonicalize(), outer.canonicalize()))
    ]
    for units in (as_written, in_tiles):
        said = []
        for inner, over in operands:
            try:
                said.append(canonicalize(woven(inner, over, None, units), None))
            except LayoutError:
                said.append(None)
        one, other = said
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            parts = [(p.shard, sorted(map(repr, p.replica)), dict(p.offset)) for p in (one, other)]
            assert parts[0] == parts[1]


def test_a_form_that_is_canonical_comes_back() -> None:
    layout = TileLayout(S[(2, 8, 4) : (2, 4 @ laneid, 1)])
    assert layout.canonicalize() is layout
    assert layout.canonicalize("cuda") is layout
    iters = (Iter(8, 4), Iter(4, 2))
    assert algebra.fuse(iters) is algebra.canonical(iters) is iters


def test_a_layout_is_closed_when_it_is_made() -> None:
    for layout in (TileLayout(S[8:1]), TileLayout.from_iters([Iter(8, 1)]), parse("S[8:1]")):
        assert type(layout) is TileLayout
        with pytest.raises(AttributeError, match="a TileLayout is immutable; shard cannot be set"):
            layout.shard = ()
        with pytest.raises(AttributeError, match="a TileLayout is immutable; _memo cannot"):
            del layout._memo
