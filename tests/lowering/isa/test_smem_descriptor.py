"""Matrix descriptors: what they visit, that they are derived, and what none can say."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutalg import ComposeLayout, LayoutError, S, TileLayout, parse
from lowering.dispatch.addresses import linear_address
from lowering.ir.index import Index
from lowering.ir.tiles import Buffer
from lowering.isa.smem_descriptor import (
    Descriptor,
    describe,
    linear_addresses,
    starts,
    swizzle_bytes,
)
from tests.support.strategies import laws

Array = npt.NDArray[Any]
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "s8": 8}
MODES = (0, 32, 64, 128)


# -- the ISA's canonical layouts, written here again ----------------------------------------------


def digits(value: Array, shape: tuple[int, ...]) -> list[Array]:
    """Split a coordinate, first digit fastest, as CuTe does."""
    found = []
    for extent in shape[:-1]:
        found.append(value % extent)
        value //= extent
    return [*found, value]


def canonical(descriptor: Descriptor, shape: tuple[int, int], start: int) -> Array:
    """Return byte addresses by the table "Canonical Layouts", in units of elements, then Swizzle.

    MN-major: ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO)), swizzled ((T,c,m),(8,k)):((1,T,LBO),(cT,SBO)).
    K-major: ((8,m),(T,2)):((1T,SBO),(1,LBO)), swizzled ((8,m),(T,2k)):((cT,SBO),(1,T)). Swizzle
    <b,4,3> on byte addresses, c = 2**b chunks of 16 bytes; T elements fill one.
    """
    size = descriptor.element_bits // 8
    t, b = 16 // size, {0: 0, 32: 1, 64: 2, 128: 3}[descriptor.swizzle]
    c = 1 << b
    lbo, sbo = descriptor.leading // size, descriptor.stride // size
    if descriptor.major == "MN":
        rows, row_strides = (t, c), ((1, t, lbo) if b else (1, t, sbo))
        cols, col_strides = (8,), ((c * t, sbo) if b else (t, lbo))
    else:
        rows, row_strides = (8,), (c * t, sbo)
        cols, col_strides = (t,), ((1, t) if b else (1, lbo))
    row, col = np.indices(shape)
    at = sum(x * y for x, y in zip(digits(row, (*rows, 0)), row_strides, strict=True))
    at = at + sum(x * y for x, y in zip(digits(col, (*cols, 0)), col_strides, strict=True))
    address = start + at * size
    phase = (address >> 7) - descriptor.base_offset & c - 1
    return address ^ phase << 4


@st.composite
def fields(draw: st.DrawFn) -> Descriptor:
    major = draw(st.sampled_from(["K", "MN"]))
    bits = 16 if major == "MN" else draw(st.sampled_from([8, 16, 32]))
    offset = st.integers(0, (1 << 14) - 1).map(lambda units: 16 * units)
    swizzle = draw(st.sampled_from(MODES))
    base = draw(st.integers(0, 7)) if swizzle else 0
    return Descriptor(major, swizzle, draw(offset), draw(offset), bits, base)


@laws
@given(fields(), st.integers(0, (1 << 14) - 1))
def test_the_64_bits_hold_the_fields(descriptor: Descriptor, units: int) -> None:
    bits = descriptor.bits(16 * units)
    assert Descriptor.from_bits(bits, descriptor.major, descriptor.element_bits) == (
        descriptor,
        16 * units,
    )
    assert bits & 0x3FFF == units
    assert bits >> 16 & 0x3FFF == descriptor.leading // 16
    assert bits >> 32 & 0x3FFF == descriptor.stride // 16
    assert bits >> 49 & 7 == descriptor.base_offset
    assert bits >> 62 == {0: 0, 128: 1, 64: 2, 32: 3}[descriptor.swizzle]
    unused = sum(((1 << n) - 1) << at for at, n in ((14, 2), (30, 2), (46, 3), (52, 10)))
    assert bits & unused == 0


@pytest.mark.parametrize("swizzle", MODES)
@pytest.mark.parametrize(("major", "bits"), [("K", 8), ("K", 16), ("K", 32), ("MN", 16)])
def test_addresses_are_the_canonical_layouts(major: str, bits: int, swizzle: int) -> None:
    """Any offsets and starts, every base offset, every M or N."""
    rng = np.random.default_rng(bits + swizzle)
    for rows, base in itertools.product((8, 24, 64, 136, 256), range(8 if swizzle else 1)):
        leading, stride, start = (16 * int(units) for units in rng.integers(0, 1 << 13, 3))
        descriptor = Descriptor(major, swizzle, leading, stride, bits, base)
        shape = rows, 256 // bits
        want = canonical(descriptor, shape, start)
        assert np.array_equal(descriptor.addresses(shape, start), want)


# -- derivation -----------------------------------------------------------------------------------


def swizzled(tile: TileLayout, mode: int, bits: int) -> TileLayout | ComposeLayout:
    unit = (16 * 8 // bits).bit_length() - 1
    length = {32: 1, 64: 2, 128: 3}.get(mode, 0)
    return ComposeLayout(unit, length, 3, tile) if mode else tile


LAYOUTS = [
    # layout over (M or N, K), shape, dtype, major, swizzle, rows -> leading, stride
    ("S[(8,8,2,8):(128,8,64,1)]", (64, 16), "f16", "K", 0, 64, (128, 256)),
    ("S[(8,8,2,8):(64,8,512,1)]", (64, 16), "f16", "K", 0, 64, (1024, 128)),
    ("S[(8,8,2,16):(256,16,128,1)]", (64, 32), "e4m3", "K", 0, 64, (128, 256)),
    ("S[(8,8,2,4):(64,4,32,1)]", (64, 8), "tf32", "K", 0, 64, (128, 256)),
    ("S[(128,64):(64,1)]", (128, 64), "bf16", "K", 128, 64, (16, 1024)),
    ("S[(64,32):(32,1)]", (64, 32), "f16", "K", 64, 64, (16, 512)),
    ("S[(64,16):(16,1)]", (64, 16), "f16", "K", 32, 64, (16, 256)),
    ("S[(256,2,64):(64,16384,1)]", (256, 128), "f16", "K", 128, 256, (16, 1024)),
    ("S[(24,128):(128,1)]", (24, 128), "s8", "K", 128, 24, (16, 1024)),
    ("S[(8,32):(32,1)]", (8, 32), "tf32", "K", 128, 8, (16, 0)),
    ("S[(4,64,64):(4096,1,64)]", (256, 64), "f16", "MN", 128, 256, (8192, 1024)),
    ("S[(2,64,64):(4096,1,64)]", (128, 64), "f16", "MN", 128, 64, (0, 1024)),
    ("S[(8,8,2,8):(64,1,512,8)]", (64, 16), "f16", "MN", 0, 64, (1024, 128)),
    ("S[(3,8,2,8):(128,1,64,8)]", (24, 16), "bf16", "MN", 0, 24, (128, 256)),
    ("S[(2,32,64):(2048,1,32)]", (64, 64), "f16", "MN", 64, 64, (4096, 512)),
    ("S[(4,16,64):(1024,1,16)]", (64, 64), "f16", "MN", 32, 64, (2048, 256)),
]


@pytest.mark.parametrize(
    ("text", "shape", "dtype", "major", "mode", "rows", "want"),
    LAYOUTS,
    ids=[f"{row[2]}-{row[3]}-{row[4]}-{row[1][0]}" for row in LAYOUTS],
)
def test_descriptors_are_derived(
    text: str,
    shape: tuple[int, int],
    dtype: str,
    major: str,
    mode: int,
    rows: int,
    want: tuple[int, int],
) -> None:
    """Fields as counted by hand; every element of every operand tile, by the ISA's table."""
    layout = swizzled(parse(text), mode, BITS[dtype])
    found = describe(layout, shape, dtype, major, rows)
    assert (found.leading, found.stride, found.swizzle) == (*want, mode)
    assert (found.major, found.element_bits, found.base_offset) == (major, BITS[dtype], 0)
    size, step = BITS[dtype] // 8, 256 // BITS[dtype]
    where = layout.table(shape)["m"] * size
    at = starts(layout, shape, dtype, rows)
    assert at.shape == (shape[0] // rows, shape[1] // step)
    for i, j in np.ndindex(*at.shape):
        tile = where[i * rows : (i + 1) * rows, j * step : (j + 1) * step]
        assert np.array_equal(canonical(found, (rows, step), int(at[i, j])), tile)


def test_a_step_along_k_inside_a_swizzled_line_is_a_larger_start() -> None:
    """32 bytes at a time in lines of 128, then on to the next block of lines."""
    tile = ComposeLayout(3, 3, 3, parse("S[(64,2,64):(64,4096,1)]"))
    found = starts(tile, (64, 128), "f16", 64)
    assert found.tolist() == [[0, 32, 64, 96, 8192, 8224, 8256, 8288]]


@pytest.mark.parametrize("row", LAYOUTS, ids=[f"{r[2]}-{r[3]}-{r[4]}-{r[1][0]}" for r in LAYOUTS])
def test_starts_as_an_index(row: Any) -> None:
    """What a kernel computes: the linear address of a tile's first element."""
    text, shape, dtype, _, mode, rows, _ = row
    layout = swizzled(parse(text), mode, BITS[dtype])
    step = 256 // BITS[dtype]
    i, j = Index.of("i", shape[0] // rows), Index.of("j", shape[1] // step)
    index = linear_address(Buffer("B", shape, dtype, "shared", layout), (i * rows, j * step))
    grid = dict(zip("ij", np.indices((shape[0] // rows, shape[1] // step)), strict=True))
    want = starts(layout, shape, dtype, rows) * 8 // BITS[dtype]
    assert np.array_equal(np.broadcast_to(index.value(grid), want.shape), want)


@pytest.mark.parametrize("mode", [32, 64, 128])
@pytest.mark.parametrize("late", range(1, 8))
def test_where_the_pattern_starts_late(mode: int, late: int) -> None:
    """The base offset is the 128-byte row of the start; the swizzle counts rows from there."""
    layout = swizzled(TileLayout(S[(16, mode // 2) : (mode // 2, 1)]), mode, 16)
    start = 128 * late
    found = describe(layout, (16, mode // 2), "f16", "K", start=start)
    assert found.base_offset == (late if start % (8 * mode) else 0)
    want = start + layout.table((16, mode // 2))["m"][:, :16] * 2
    assert np.array_equal(found.addresses((16, 16), start), want)


@st.composite
def tiles(draw: st.DrawFn) -> tuple[TileLayout, tuple[int, int], str, int]:
    """Draw an operand of 16-bit elements, its digits in any order in memory, with gaps."""
    major = draw(st.sampled_from(["K", "MN"]))
    mode = draw(st.sampled_from(MODES))
    rows, cols = draw(st.sampled_from([(64, 16), (32, 32), (128, 16), (64, 64)]))
    extents = (rows // 8, 8, cols // 8, 8)
    strides: list[int] = [0] * 4
    at = 1
    for place in draw(st.permutations(range(4))):
        strides[place] = at
        at *= extents[place] * draw(st.sampled_from([1, 1, 1, 2]))
    tile = TileLayout(S[extents:strides])
    return tile, (rows, cols), major, mode


def described(tile: TileLayout, shape: tuple[int, int], major: str, mode: int) -> bool:
    """Say whether a tile has a descriptor, which must be right; where not, none may be."""
    layout = swizzled(tile, mode, 16)
    linear = linear_addresses(layout, shape) * 2
    want = layout.table(shape)["m"] * 2

    def serves(found: Descriptor) -> bool:
        return all(
            np.array_equal(
                canonical(found, (shape[0], 16), int(linear[0, at])), want[:, at : at + 16]
            )
            for at in range(0, shape[1], 16)
        )

    try:
        found = describe(layout, shape, "f16", major)
    except LayoutError:
        offsets = {int(v) for v in (linear - linear[0, 0])[::8, :16:8].ravel()}
        fit = [v for v in offsets if v % 16 == 0 and v < 1 << 18]
        pairs = itertools.product(fit, fit)
        assert not any(serves(Descriptor(major, mode, *pair, 16)) for pair in pairs)
        return False
    assert serves(found)
    return True


@laws
@given(tiles())
def test_what_is_described_is_right_and_the_rest_refused(
    drawn: tuple[TileLayout, tuple[int, int], str, int],
) -> None:
    """No fields at all serve a refused layout: every pair of offsets that it has is tried."""
    described(*drawn)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("major", "mode", "count"),
    [("K", 0, 6), ("K", 32, 1), ("K", 64, 2), ("K", 128, 1),
     ("MN", 0, 6), ("MN", 32, 1), ("MN", 64, 2), ("MN", 128, 1)],
)  # fmt: skip
def test_every_mode_serves_some_orders_of_the_digits(major: str, mode: int, count: int) -> None:
    """Dense tiles with their digits in every order: few have a descriptor, and it is right."""
    served = 0
    for rows, cols in ((16, 16), (32, 32), (64, 64)):
        extents = (rows // 8, 8, cols // 8, 8)
        for order in itertools.permutations(range(4)):
            strides, at = [0] * 4, 1
            for place in order:
                strides[place] = at
                at *= extents[place]
            served += described(TileLayout(S[extents:strides]), (rows, cols), major, mode)
    assert served == count


REFUSED = [
    (
        lambda: describe(parse("S[(64,64):(64,1)]"), (64, 64), "f16", "K"),
        "descriptor: K-major no swizzle, leading 16, stride 1024 visits element (1, 0) at byte 16; "
        "S[(64,64):(64,1)] puts it at 128. What fits: 16 bytes along K together, 8 rows 16 bytes "
        "apart",
    ),
    (
        lambda: describe(parse("S[(64,16):(1,64)]"), (64, 16), "f16", "K"),
        "descriptor: K-major no swizzle, leading 1024, stride 16 visits element (0, 1) at byte 2; "
        "S[(64,16):(1,64)] puts it at 128. What fits: 16 bytes along K together, 8 rows 16 bytes "
        "apart",
    ),
    (
        lambda: describe(ComposeLayout(3, 3, 3, parse("S[(64,32):(32,1)]")), (64, 32), "f16", "K"),
        "descriptor: K-major 128B, leading 16, stride 512 visits element (1, 0) at byte 144; "
        "ComposeLayout(3, 3, 3, S[(64,32):(32,1)]) puts it at 64. What fits: 16 bytes along K "
        "together, 8 rows 128 bytes apart",
    ),
    (
        lambda: describe(ComposeLayout(2, 3, 3, parse("S[(64,64):(64,1)]")), (64, 64), "f16", "K"),
        "descriptor: the tensor core exchanges 16-byte chunks by bits 7 to 9 of the address; got "
        "ComposeLayout(2, 3, 3, S[(64,64):(64,1)]) of float16, which exchanges 8 bytes. "
        "ComposeLayout(3, 1 or 2 or 3, 3, …) fits",
    ),
    (
        lambda: describe(parse("S[(8,8,2,16):(256,16,128,1)]"), (64, 32), "s8", "MN"),
        "descriptor: only 16-bit operands may be MN-major; got 8 bits. K-major fits",
    ),
    (
        lambda: describe(parse("S[(64,16):(16@laneid,1)]"), (64, 16), "f16", "K"),
        "descriptor: the operand must lie on axis m, each element once; got "
        "S[(64,16):(16@laneid,1)]",
    ),
    (
        lambda: describe(parse("S[(64,16):(16,1)]+R[2:1024]"), (64, 16), "f16", "K"),
        "descriptor: the operand must lie on axis m, each element once; got "
        "S[(64,16):(16,1)] + R[2:1024]",
    ),
    (
        lambda: describe(parse("S[(8,8,2,8):(132,8,64,1)]"), (64, 16), "f16", "K"),
        "descriptor: the stride byte offset must be a multiple of 16 from 0 to 262128; K-major, "
        "S[(8,8,2,8):(132,8,64,1)] has 264",
    ),
    (
        lambda: describe(parse("S[(8,8,2,8):(131072,8,64,1)]"), (64, 16), "f16", "K"),
        "descriptor: the stride byte offset must be a multiple of 16 from 0 to 262128; K-major, "
        "S[(8,8,2,8):(131072,8,64,1)] has 262144",
    ),
    (
        lambda: describe(parse("S[(8,8,2,8):(128,8,64,1)]+4"), (64, 16), "f16", "K"),
        "descriptor: operand tiles must start at multiples of 16 bytes; one of "
        "S[(8,8,2,8):(128,8,64,1)] + 4 starts at 8",
    ),
    (
        lambda: describe(parse("S[(64,24):(24,1)]"), (64, 24), "f16", "K"),
        "descriptor: operand tiles of 64 x 16 float16 must divide the layout, and 8 the first; got "
        "(64, 24)",
    ),
    (
        lambda: describe(parse("S[(64,16):(16,1)]"), (64, 16), "f16", "K", rows=12),
        "descriptor: operand tiles of 12 x 16 float16 must divide the layout, and 8 the first; got "
        "(64, 16)",
    ),
    (
        lambda: describe(parse("S[(64,16):(16,1)]"), (64, 16), "f64", "K"),
        "descriptor: elements have 8, 16 or 32 bits; got float64",
    ),
    (
        lambda: describe(parse("S[(8,8,2,8):(128,8,64,1)]"), (64, 16), "f16", "M"),
        "descriptor: the major dimension is K or MN; got 'M'",
    ),
    (
        lambda: describe(parse("S[(8,8,2,8):(128,8,64,1)]"), (64, 16), "f16", "K", start=8),
        "descriptor: the layout must start at a multiple of 16 bytes; got 8",
    ),
    (
        lambda: describe(
            ComposeLayout(3, 3, 3, parse("S[(64,64):(64,1)]")), (64, 64), "f16", "K", start=64
        ),
        "descriptor: the layout must start at a multiple of 128 bytes; got 64",
    ),
    (
        lambda: Descriptor("K", 128, 16, 1024, 16).bits(24),
        "descriptor: an operand starts at a multiple of 16 bytes, at most 262128; got 24",
    ),
    (
        lambda: Descriptor("K", 16, 16, 1024, 16),
        "descriptor: swizzles are 32, 64 or 128 bytes wide, or 0; got 16",
    ),
    (
        lambda: Descriptor("K", 0, 24, 1024, 16),
        "descriptor: the leading byte offset must be a multiple of 16 from 0 to 262128; got 24",
    ),
    (
        lambda: Descriptor("K", 0, 16, 1024, 16, 1),
        "descriptor: the base offset is a row of the swizzle, 0 to 0; got 1",
    ),
    (
        lambda: Descriptor("K", 0, 16, 1024, 4),
        "descriptor: elements have 8, 16 or 32 bits; got 4",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[row[1][12:60] for row in REFUSED])
def test_what_no_descriptor_says(call: Any, message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        call()
    assert str(caught.value) == message


def test_a_later_tile_that_lies_otherwise_is_refused() -> None:
    """One descriptor must serve every tile: here the second 64 rows are spread wider."""
    layout = parse("S[(2,8,8,2,8):(1032,128,8,64,1)]")
    assert describe(layout, (128, 16), "f16", "K", rows=64).stride == 256
    with pytest.raises(LayoutError, match=r"visits element \(64, 0\) at byte"):
        describe(layout, (128, 16), "f16", "K")


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [
        (ComposeLayout(3, 3, 4, parse("S[512:1]")), "f16"),
        (ComposeLayout(3, 4, 4, parse("S[512:1]")), "f16"),
        (ComposeLayout(3, 3, 3, parse("S[512:1]"), swizzle_inner=False), "f16"),
        (ComposeLayout(3, 3, 3, parse("S[512:1]")), "s8"),
    ],
    ids=["distance", "length", "outer", "unit"],
)
def test_swizzles_that_the_tensor_core_lacks(layout: ComposeLayout, dtype: str) -> None:
    with pytest.raises(LayoutError, match=r"^descriptor: the tensor core exchanges 16-byte chunks"):
        swizzle_bytes(layout, dtype)


def test_a_start_or_an_offset_out_of_range_is_refused() -> None:
    tile = Descriptor("K", 128, 16, 1024, 16)
    assert tile.bits(262128) & 0x3FFF == 0x3FFF
    for start in (262144, -16, 8):
        with pytest.raises(LayoutError) as raised:
            tile.bits(start)
        assert str(raised.value) == (
            f"descriptor: an operand starts at a multiple of 16 bytes, at most 262128; got {start}"
        )
    with pytest.raises(LayoutError, match="the stride byte offset must be a multiple of 16"):
        Descriptor("K", 128, 16, 8, 16)
