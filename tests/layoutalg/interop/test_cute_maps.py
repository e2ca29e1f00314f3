"""CuTe layouts of memory, swizzles: converted point by point, both ways, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutalg import (
    ComposeLayout,
    Iter,
    LayoutError,
    R,
    S,
    SwizzleLayout,
    TileLayout,
    parse,
)
from layoutalg.interop import (
    CuteComposed,
    CuteLayout,
    CuteSwizzle,
    from_cute,
    parse_cute,
    parse_swizzle,
    to_cute,
)
from tests.support import oracle

NO_TEXT: Any = None


def plain(layout: TileLayout) -> oracle.Layout:
    """The layout as the oracle takes it, read off its parts."""

    def rows(iters: Any) -> list[list[Any]]:
        return [[it.extent, it.stride, it.axis.name] for it in iters]

    offset = {axis.name: value for axis, value in layout.offset.items()}
    return {"shard": rows(layout.shard), "replica": rows(layout.replica), "offset": offset}


def coordinates(shape: tuple[int, ...]) -> itertools.product[tuple[int, ...]]:
    return itertools.product(*(range(extent) for extent in shape))


# -- offsets in memory -----------------------------------------------------------------------------


@st.composite
def memory_layouts(draw: st.DrawFn) -> tuple[TileLayout, tuple[int, ...]]:
    """A tile on m and a shape that cuts it between iters."""
    groups = draw(
        st.lists(
            st.lists(st.tuples(st.integers(1, 4), st.integers(-20, 40)), min_size=1, max_size=3),
            min_size=1,
            max_size=3,
        )
    )
    shard = [Iter(extent, stride) for each in groups for extent, stride in each]
    shape = tuple(int(np.prod([extent for extent, _ in each])) for each in groups)
    return TileLayout.from_iters(shard), shape


@pytest.mark.slow
@settings(deadline=None)
@given(memory_layouts())
def test_to_cute_point_by_point(case: tuple[TileLayout, tuple[int, ...]]) -> None:
    layout, shape = case
    cute = to_cute(layout, shape)
    assert cute.extents == shape
    for coord in coordinates(shape):
        offset = oracle.base(plain(layout), oracle.flat(coord, shape)).get("m", 0)
        assert cute(*coord) == offset
    back = from_cute(str(cute))
    assert isinstance(back, TileLayout)
    assert oracle.size(plain(back)) == oracle.size(plain(layout))
    for x in range(oracle.size(plain(layout))):
        assert oracle.base(plain(back), x) == oracle.base(plain(layout), x)


@settings(deadline=None)
@given(memory_layouts())
def test_from_cute_point_by_point(case: tuple[TileLayout, tuple[int, ...]]) -> None:
    cute = to_cute(*case)
    layout = from_cute(cute)
    assert isinstance(layout, TileLayout)
    table = layout.table(cute.extents).get("m")
    assert table is not None
    for coord in coordinates(cute.extents):
        assert table[coord] == cute(*coord)


def test_a_fused_iter_is_cut_at_the_shape() -> None:
    assert str(to_cute(TileLayout(S[24:1]), (8, 3))) == "(8,3):(3,1)"
    assert str(to_cute(TileLayout(S[(4, 6) : (6, 1)]), (8, 3))) == "(8,3):(3,1)"
    assert str(to_cute(TileLayout(S[(6, 4) : (4, 1)]), (8, 3))) == "(8,3):(3,1)"


# -- swizzles --------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.integers(0, 3), st.integers(0, 4), st.integers(0, 2), st.booleans(), st.integers(0, 1 << 14)
)
def test_swizzle_of_elements_bit_by_bit(
    length: int, base: int, more: int, inner: bool, address: int
) -> None:
    shift = (length + more) * (1 if inner else -1)
    swizzle = CuteSwizzle(length, base, shift, "elements")
    expected = address
    for bit in range(length):
        low, high = base + bit, base + bit + abs(shift)
        source, target = (high, low) if inner else (low, high)
        expected ^= (address >> source & 1) << target
    assert swizzle(address) == expected
    assert swizzle.in_elements().apply(address) == expected
    again = CuteSwizzle.of(swizzle.in_elements())
    assert again(address) == expected
    assert parse_swizzle(again.notation, "elements") == again


@pytest.mark.parametrize("bits", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("mode", [(3, 4, 3), (2, 4, 3), (1, 4, 3), (3, 5, 2 + 1), (2, 4, -3)])
def test_swizzle_of_bytes_is_one_of_elements(mode: tuple[int, int, int], bits: int) -> None:
    swizzle = CuteSwizzle(*mode, "bytes", bits)
    elements = swizzle.in_elements()
    for x in range(1 << 12):
        byte, rest = divmod(x * bits, 8)
        assert elements.apply(x) * bits == swizzle(byte) * 8 + rest
    assert CuteSwizzle.of(elements, "bytes", bits) == swizzle


def test_swizzled_layout_both_ways() -> None:
    layout = ComposeLayout(3, 3, 3, TileLayout(S[(8, 64) : (64, 1)] + 512))
    cute = to_cute(layout, (8, 64))
    assert str(cute) == "Sw<3,3,3> o 512 o (8,64):(64,1)"
    table = layout.table((8, 64))["m"]
    for i, j in coordinates((8, 64)):
        assert cute(i, j) == table[i, j]
    assert from_cute(cute) == from_cute(str(cute), unit="elements") == layout


def test_swizzled_layout_in_bytes() -> None:
    text = "Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)"
    layout = ComposeLayout(3, 3, 3, TileLayout(S[(8, 64) : (64, 1)]))
    assert from_cute(text) == layout
    assert str(to_cute(layout, (8, 64), "bytes", 16)) == text
    assert from_cute("S<3,4,3> o 0 o (8,64):(64,1)", unit="bytes", bits=16) == layout


def test_a_bare_swizzle_takes_any_shape() -> None:
    bare = ComposeLayout(3, 3, 3, TileLayout(S[512:1]))
    assert str(to_cute(bare, (16, 64))) == "Sw<3,3,3> o 0 o (16,64):(64,1)"


# -- what is refused -------------------------------------------------------------------------------

M = parse("S[(8,2):(4@laneid,1)]")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: to_cute(M, (16,)),
            "to_cute: a CuTe layout gives offsets in one memory; S[(8,2):(4@laneid,1)] uses laneid "
            "(to_tv writes threads and values)",
        ),
        (
            lambda: to_cute(TileLayout(S[8:1] + 3), (8,)),
            "to_cute: a CuTe layout starts at offset 0; S[8:1] + 3 starts elsewhere: add its "
            "offset to the pointer",
        ),
        (
            lambda: to_cute(TileLayout(S[8:1] + R[2:8]), (8,)),
            "to_cute: a CuTe layout gives each element one offset; S[8:1] + R[2:8] has replicas",
        ),
        (
            lambda: to_cute(TileLayout(S[8:1]), (4,)),
            "to_cute: the shape must hold as many elements as the layout; (4,) holds 4, S[8:1] "
            "holds 8",
        ),
        (
            lambda: to_cute(parse("S[(6,4):(1,6)]"), (8, 3)),
            "to_cute: group: extent 8 must cut the iter 4:6@m evenly; got shape (8, 3) for "
            "S[(6,4):(1,6)]; whole iters end at inner sizes 4",
        ),
        (
            lambda: to_cute(TileLayout(S[8:1]), ()),
            "to_cute: the shape must hold numbers, at least one; got ()",
        ),
        (
            lambda: to_cute(parse("S[(n,8):(8,1)]"), (8, 8)),
            "to_cute: the other notation holds numbers; S[(n,8):(8,1)] has symbols: substitute "
            "them with .subs",
        ),
        (
            lambda: parse_swizzle("Sw<3,4,3>"),
            "cute: 'Sw<3,4,3>' does not say what it counts; pass unit=\"elements\", or "
            'unit="bytes" and the bits of an element',
        ),
        (lambda: parse_swizzle("Sw<3,4>"), "cute: a swizzle is written Sw<B,M,S>; got 'Sw<3,4>'"),
        (
            lambda: CuteSwizzle(3, 4, 2, "elements"),
            "cute: a swizzle needs numbers from 0 on and a shift of at least the length; got "
            "Sw<3,4,2>",
        ),
        (
            lambda: CuteSwizzle(3, 4, 3, "bits"),
            "cute: the unit of a swizzle is elements or bytes; got 'bits'",
        ),
        (
            lambda: CuteSwizzle(3, 4, 3, "bytes"),
            "cute: a swizzle of bytes needs the bits of an element, a power of two; got None",
        ),
        (
            lambda: CuteSwizzle(3, 1, 3, "bytes", 32).in_elements(),
            "cute: Sw<3,1,3> of bytes, 32-bit elements moves pieces of 2 bytes, smaller than an "
            "element: it is no permutation of elements",
        ),
        (
            lambda: CuteSwizzle.of(SwizzleLayout(0, 3, 3), "bytes", 4),
            "cute: Sw<3,0,3> of elements of 4 bits moves pieces smaller than a byte: it is no "
            "permutation of bytes",
        ),
        (
            lambda: str(CuteComposed(CuteSwizzle(3, 4, 3, "bytes", 16), 8, CuteLayout(8, 1))),
            "cute: CuTe writes a swizzle of bytes without an offset; got 8: add it to the pointer, "
            "or count elements",
        ),
        (
            lambda: parse_cute("Sw<3,4,3> o (8,64):(64,1)", "elements"),
            "cute: a swizzled layout is written Sw<B,M,S> o offset o layout; got "
            "'Sw<3,4,3> o (8,64):(64,1)'",
        ),
        (
            lambda: parse_cute("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)", "elements"),
            "cute: smem_ptr[16b](unset) says that bytes are counted and an element has 16 bits; "
            "got unit='elements', bits=None",
        ),
        (lambda: parse_cute(NO_TEXT), "cute: needs text such as (4,8):(1,4); got None"),
        (
            lambda: parse_cute("Sw<3,4,3> o x o (8,64):(64,1)", "elements"),
            "cute: the offset must be a number or smem_ptr[16b](unset); got 'x' in "
            "'Sw<3,4,3> o x o (8,64):(64,1)'",
        ),
    ],
)
def test_refusals_say_why(call: Any, message: str) -> None:
    with pytest.raises(LayoutError) as refused:
        call()
    assert str(refused.value) == message
