"""``tcgen05``: its rows, both descriptors bit by bit, and every statement through the assembler.

What the bits should be is written here again from the tables of the PTX ISA, never by the encoder.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutalg import ComposeLayout, LayoutError, S, TileLayout, fragments, parse
from layoutalg.fragments.targets import TARGETS
from lowering.audit.target_matrix import accepted, module
from lowering.isa import dtypes, tcgen05
from lowering.isa.nvjitlink import AssembleError, assemble
from lowering.isa.ptx import Asm
from lowering.isa.smem_descriptor import Descriptor, describe, linear_addresses
from lowering.isa.tcgen05 import (
    Multiplication,
    TensorInst,
    decode,
    encode,
    get,
    legal_m,
    legal_n,
    operand_types,
)
from tests.support.strategies import laws

Array = npt.NDArray[Any]

# kind: (types of A and B, whether they may differ, type of D, K, (type of a scale, of a block)…)
FP8 = ("e4m3", "e5m2")
ROWS: dict[str, tuple[tuple[str, ...], bool, str, int, tuple[tuple[str, int], ...]]] = {
    "f16": (("f16", "bf16"), False, "f32", 16, ()),
    "tf32": (("tf32",), False, "f32", 8, ()),
    "f8f6f4": (FP8, True, "f32", 32, ()),
    "i8": (("u8", "s8"), True, "s32", 32, ()),
    "mxf8f6f4": (FP8, True, "f32", 32, (("ue8m0", 32),)),
    "mxf4": (("e2m1",), False, "f32", 64, (("ue8m0", 32),)),
    "mxf4nvf4": (("e2m1",), False, "f32", 64, (("ue4m3", 16), ("ue8m0", 16))),
}
I8 = (8, *range(16, 257, 16))
SHAPES: dict[tuple[str, int, int], tuple[int, ...]] = {
    **{(kind, 1, 64): tuple(range(8, 257, 8)) for kind in ("f16", "tf32", "f8f6f4")},
    **{(kind, 1, 128): tuple(range(16, 257, 16)) for kind in ("f16", "tf32", "f8f6f4", "i8")},
    **{
        (kind, 2, m): tuple(range(16, 257, 16))
        for kind, m in itertools.product(("f16", "tf32", "f8f6f4"), (128, 256))
    },
    ("i8", 1, 64): I8,
    ("i8", 2, 128): tuple(range(32, 257, 32)),
    ("i8", 2, 256): tuple(range(32, 257, 32)),
    **{(kind, 1, 128): tuple(range(8, 257, 8)) for kind in ("mxf8f6f4", "mxf4", "mxf4nvf4")},
    **{(kind, 2, 256): tuple(range(16, 257, 16)) for kind in ("mxf8f6f4", "mxf4", "mxf4nvf4")},
}


def types() -> Iterator[tuple[str, str, str, str | None]]:
    for kind, (names, mixed, _, _, scales) in ROWS.items():
        for a, b in itertools.product(names, names):
            if mixed or a == b:
                yield from ((kind, a, b, token) for token, _ in scales or ((None, 0),))


TYPES = list(types())


def test_the_kinds_and_their_types() -> None:
    assert sorted(operand_types(), key=str) == sorted(TYPES, key=str)
    for kind, a, b, scale in TYPES:
        row = get(kind, 128, 64, a, b, scale=scale)
        _, _, d, k, scales = ROWS[kind]
        block = dict(scales).get(scale or "", 0)
        assert (row.a.token, row.b.token, row.d.token, row.k) == (a, b, d, k)
        assert (row.block, row.scales) == (block, k // block if block else 0)


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("group", [1, 2])
def test_the_shapes(kind: str, group: int) -> None:
    """Every M and N that is not in the table is refused, and no other."""
    have = {
        (m, n) for m in range(0, 320, 32) for n in range(0, 300, 4) if is_row(kind, m, n, group)
    }
    want = {(m, n) for (k, g, m), ns in SHAPES.items() if (k, g) == (kind, group) for n in ns}
    assert have == want
    assert want == {(m, n) for m in legal_m(kind, group) for n in legal_n(kind, m, group)}


def is_row(kind: str, m: int, n: int, group: int) -> bool:
    a = dtypes.get(ROWS[kind][0][0])
    scale, block = (*ROWS[kind][4], ("", 0))[0]
    try:
        row = TensorInst(kind, m, n, a, a, group, dtypes.get(scale) if scale else None, block)
    except LayoutError:
        return False
    assert (row.rows, row.cols) == (m // group, n // group)
    return True


F16, BF16, E4M3, E2M1 = (dtypes.get(name) for name in ("f16", "bf16", "e4m3", "e2m1"))
UE8M0, UE4M3 = dtypes.get("ue8m0"), dtypes.get("ue4m3")
REFUSED: list[tuple[Any, str]] = [
    (
        lambda: get("f64", 64, 8),
        "tcgen05: the kind is one of f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4; got 'f64'",
    ),
    (
        lambda: TensorInst("f8", 64, 8, F16, F16),
        "tcgen05: the kind is one of f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4; got 'f8'",
    ),
    (lambda: get("f16", 64, 8, cta_group=4), "tcgen05: cta_group is 1 or 2; got 4"),
    (lambda: get("f16", 64, 8, "e4m3"), "tcgen05: A of kind f16 is f16 or bf16; got e4m3"),
    (lambda: get("i8", 64, 8, "s8", "e4m3"), "tcgen05: B of kind i8 is u8 or s8; got e4m3"),
    (
        lambda: get("f16", 64, 8, "f16", "bf16"),
        "tcgen05: A and B of kind f16 have one type; got f16 and bf16",
    ),
    (
        lambda: TensorInst("f16", 64, 8, F16, F16, 1, UE8M0, 32),
        "tcgen05: block scales of kind f16 are none; got ue8m0 of 32",
    ),
    (
        lambda: TensorInst("mxf4", 128, 8, E2M1, E2M1),
        "tcgen05: block scales of kind mxf4 are ue8m0 of 32; got no scales",
    ),
    (
        lambda: TensorInst("mxf4nvf4", 128, 8, E2M1, E2M1, 1, UE8M0, 32),
        "tcgen05: block scales of kind mxf4nvf4 are ue4m3 of 16 or ue8m0 of 16; got ue8m0 of 32",
    ),
    (
        lambda: get("mxf8f6f4", 128, 8, scale="ue4m3"),
        "tcgen05: block scales of kind mxf8f6f4 are ue8m0 of 32; got ue4m3 of 32",
    ),
    (
        lambda: get("f16", 256, 16),
        "tcgen05: M of cta_group::1.kind::f16 is 64 or 128; got 256",
    ),
    (lambda: get("mxf4", 64, 8), "tcgen05: M of cta_group::1.kind::mxf4 is 128; got 64"),
    (
        lambda: get("i8", 256, 48, cta_group=2),
        "tcgen05: N of cta_group::2.kind::i8 with M = 256 is one of 32, 64, 96, 128, 160, 192, "
        "224, 256; got 48",
    ),
    (lambda: get("f17", 64, 8), "tcgen05: the kind is one of"),
    (
        lambda: Multiplication(get("tf32", 64, 8), ("MN", "K")),
        "tcgen05.m64n8k8.tf32.tf32: operand A is K-major; got 'MN'",
    ),
    (
        lambda: Multiplication(get("mxf4", 128, 8), ("K", "MN")),
        "tcgen05.m128n8k64.mxf4.e2m1.e2m1.ue8m0.block32: operand B is K-major; got 'MN'",
    ),
    (
        lambda: Multiplication(get("f16", 64, 8), ("K", "M")),
        "tcgen05.m64n8k16.f16.f16: operand B is K or MN-major; got 'M'",
    ),
    (
        lambda: Multiplication(get("f8f6f4", 64, 24), ("K", "MN")),
        "tcgen05.m64n24k32.f8f6f4.e4m3.e4m3: N is a multiple of 16 where B of bytes is MN-major",
    ),
    (
        lambda: Multiplication(get("f8f6f4", 256, 48, cta_group=2), ("MN", "MN")),
        "tcgen05.m256n48k32.f8f6f4.e4m3.e4m3.cta2: N is a multiple of 32 where B of bytes is "
        "MN-major",
    ),
    (
        lambda: Multiplication(get("mxf8f6f4", 128, 8), ("K", "K"), (0, 4)),
        "tcgen05.m128n8k32.mxf8f6f4.e4m3.e4m3.ue8m0.block32: SFB starts at byte 0, 1, 2, 3 of a "
        "cell; got 4",
    ),
    (
        lambda: Multiplication(get("mxf4", 128, 8), ("K", "K"), (1, 0)),
        "tcgen05.m128n8k64.mxf4.e2m1.e2m1.ue8m0.block32: SFA starts at byte 0, 2 of a cell; got 1",
    ),
    (
        lambda: Multiplication(get("mxf4nvf4", 128, 8), ("K", "K"), (2, 0)),
        "tcgen05.m128n8k64.mxf4nvf4.e2m1.e2m1.ue4m3.block16: SFA starts at byte 0 of a cell; got 2",
    ),
    (
        lambda: Multiplication(get("f16", 64, 8), ("K", "K"), (0, 1)),
        "tcgen05.m64n8k16.f16.f16: SFB starts at byte 0 of a cell; got 1",
    ),
    (lambda: tcgen05.allocated(513), "tensor memory has 512 columns; got 513"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_there_is_not(call: Any, message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_what_is_allocated_is_a_power_of_two() -> None:
    for columns in range(1, 513):
        found = tcgen05.allocated(columns)
        assert found in (32, 64, 128, 256, 512)
        assert found >= columns
        assert found == 32 or found < 2 * columns


# -- the instruction descriptor: the tables of the PTX ISA -----------------------------------------

CODES = {
    "f16": {"f16": 0, "bf16": 1}, "tf32": {"tf32": 2}, "i8": {"u8": 0, "s8": 1},
    "f8f6f4": {"e4m3": 0, "e5m2": 1}, "mxf8f6f4": {"e4m3": 0, "e5m2": 1},
    "mxf4": {"e2m1": 1}, "mxf4nvf4": {"e2m1": 1},
}  # fmt: skip
PLAIN = {"D": (4, 2), "A": (7, 3), "B": (10, 3), "transA": (15, 1), "transB": (16, 1),
         "N/8": (17, 6), "M/16": (24, 5)}  # fmt: skip
MXF8 = {"SFB": (4, 2), "A": (7, 3), "B": (10, 3), "transA": (15, 1), "transB": (16, 1),
        "N/8": (17, 6), "scale": (23, 1), "M/128": (27, 2), "SFA": (29, 2)}  # fmt: skip
MXF4 = {"SFB": (4, 2), "A": (7, 3), "B": (10, 2), "N/8": (17, 6), "scale": (23, 1),
        "M/128": (27, 2), "SFA": (29, 2)}  # fmt: skip
TABLES = {"mxf8f6f4": MXF8, "mxf4": MXF4, "mxf4nvf4": MXF4}


def expected(what: Multiplication) -> dict[str, int]:
    """Return the value of every field."""
    inst, codes = what.instruction, CODES[what.instruction.kind]
    return {
        "D": {"f32": 1, "s32": 2}[ROWS[inst.kind][2]],
        "A": codes[inst.a.token],
        "B": codes[inst.b.token],
        "transA": int(what.majors[0] == "MN"),
        "transB": int(what.majors[1] == "MN"),
        "N/8": inst.n // 8,
        "M/16": inst.m // 16,
        "M/128": inst.m // 128,
        "scale": int(inst.scale is not None and inst.scale.token == "ue8m0"),
        "SFA": what.scale_bytes[0],
        "SFB": what.scale_bytes[1],
    }


def majors_of(kind: str) -> list[tuple[str, str]]:
    free = ["K", "MN"] if kind not in ("tf32", "mxf4", "mxf4nvf4") else ["K"]
    return list(itertools.product(free, free))


def multiplications(kind: str) -> Iterator[Multiplication]:
    """Yield every row with every option that it has."""
    for (_, a, b, scale), group in itertools.product(
        (row for row in TYPES if row[0] == kind), (1, 2)
    ):
        shapes = [(m, n) for (k, g, m), ns in SHAPES.items() if (k, g) == (kind, group) for n in ns]
        for (m, n), majors in itertools.product(shapes, majors_of(kind)):
            inst = get(kind, m, n, a, b, group, scale)
            if majors[1] == "MN" and inst.b.bits == 8 and n % (16 * group):
                continue
            step = ROWS[kind][3] // inst.block if inst.block else 4
            for first, second in itertools.product(range(0, 4, step), repeat=2):
                yield Multiplication(inst, majors, (first, second))


@pytest.mark.parametrize("kind", ROWS)
def test_every_field_of_every_row(kind: str) -> None:
    """The fields hold what the table says, all other bits are 0, and all come back."""
    table = TABLES.get(kind, PLAIN)
    seen = 0
    for what in multiplications(kind):
        bits, want, left = encode(what), expected(what), 0
        left = bits
        for name, (at, width) in table.items():
            assert bits >> at & (1 << width) - 1 == want[name], (what, name)
            left &= ~((1 << width) - 1 << at)
        assert left == 0, what
        inst = what.instruction
        assert decode(kind, inst.block, inst.cta_group, bits) == what
        seen += 1
    assert seen >= 46


@pytest.mark.parametrize("kind", ROWS)
def test_bits_that_mean_nothing_are_refused(kind: str) -> None:
    """Each bit turned: another row of the same table, or an error. Reserved bits: always one."""
    table = TABLES.get(kind, PLAIN)
    named = sum((1 << width) - 1 << at for at, width in table.values())
    for what in list(multiplications(kind))[::37]:
        inst = what.instruction
        for bit in range(32):
            other = encode(what) ^ 1 << bit
            try:
                found = decode(kind, inst.block, inst.cta_group, other)
            except LayoutError:
                continue
            assert named >> bit & 1, f"bit {bit} of {what} means nothing"
            assert encode(found) == other


@pytest.mark.parametrize(
    ("kind", "block", "group", "bits", "message"),
    [
        ("f16", 0, 1, 0x8410490, None),
        ("f16", 0, 1, 0x8410110, "names types that kind f16 does not have"),
        ("f16", 0, 1, 0x8410090, "A and B of kind f16 have one type; got bf16 and f16"),
        ("f16", 0, 1, 0x8410011, "takes no 0x08410011; 0x08410010 is its own"),
        ("f16", 0, 1, 0x8410020, "takes no 0x08410020; 0x08410010 is its own"),
        ("f16", 0, 2, 0x4410010, "M of cta_group::2.kind::f16 is 128 or 256; got 64"),
        ("f16", 0, 1, 0x8430010, "224, 240, 256; got 264"),
        ("tf32", 0, 1, 0x8410910, "operand B is K-major; got 'MN'"),
        ("mxf8f6f4", 32, 1, 0x8040000, "block scales of kind mxf8f6f4 are ue8m0 of 32; got ue4m3"),
        ("mxf4", 32, 1, 0x8840490, "SFB starts at byte 0, 2 of a cell; got 1"),
        ("mxf4nvf4", 16, 1, 0x48040480, "SFA starts at byte 0 of a cell; got 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_bits(
    kind: str, block: int, group: int, bits: int, message: str | None
) -> None:
    if message is None:
        found = decode(kind, block, group, bits)
        assert encode(found) == bits
        return
    with pytest.raises(LayoutError) as caught:
        decode(kind, block, group, bits)
    assert message in str(caught.value)


# -- the descriptor of an operand in shared memory -------------------------------------------------

MODES = (0, 32, 64, 128)


@st.composite
def fields(draw: st.DrawFn) -> Descriptor:
    major = draw(st.sampled_from(["K", "MN"]))
    bits = draw(st.sampled_from([8, 16] if major == "MN" else [4, 8, 16, 32]))
    offset = st.integers(0, (1 << 14) - 1).map(lambda units: 16 * units)
    swizzle = draw(st.sampled_from(MODES))
    base = draw(st.integers(0, 7)) if swizzle else 0
    return Descriptor(major, swizzle, draw(offset), draw(offset), bits, base, "tcgen05")


@laws
@given(fields(), st.integers(0, (1 << 14) - 1))
def test_the_64_bits_hold_the_fields(descriptor: Descriptor, units: int) -> None:
    bits = descriptor.bits(16 * units)
    assert Descriptor.from_bits(bits, descriptor.major, descriptor.element_bits, "tcgen05") == (
        descriptor,
        16 * units,
    )
    assert bits & 0x3FFF == units
    assert bits >> 16 & 0x3FFF == descriptor.leading // 16
    assert bits >> 32 & 0x3FFF == descriptor.stride // 16
    assert bits >> 46 & 7 == 1
    assert bits >> 49 & 7 == descriptor.base_offset
    assert bits >> 61 == {0: 0, 128: 2, 64: 4, 32: 6}[descriptor.swizzle]
    unused = sum((1 << n) - 1 << at for at, n in ((14, 2), (30, 2), (52, 9)))
    assert bits & unused == 0
    assert (bits >> 32, bits & 0xFFFFFFFF) == (
        descriptor.words[1],
        descriptor.words[0] | units,
    )


RESERVED = (14, 15, 30, 31, 46, 47, 48, *range(52, 61))


@pytest.mark.parametrize("bit", RESERVED)
@pytest.mark.parametrize("swizzle", MODES)
def test_reserved_bits_are_refused(bit: int, swizzle: int) -> None:
    bits = Descriptor("K", swizzle, 16, 1024, 16, machine="tcgen05").bits(256) ^ 1 << bit
    with pytest.raises(LayoutError, match=f"descriptor: tcgen05 takes no {bits:#018x}"):
        Descriptor.from_bits(bits, "K", 16, "tcgen05")


@pytest.mark.parametrize("code", [1, 3, 5, 7])
def test_swizzle_codes_that_are_none(code: int) -> None:
    """1 is 128 bytes by chunks of 32, for tf32 MN-major alone, which is not offered; no others."""
    with pytest.raises(LayoutError, match="swizzles are 32, 64 or 128 bytes wide, or 0"):
        Descriptor.from_bits(1 << 46 | code << 61, "K", 16, "tcgen05")


def test_the_two_machines_write_apart() -> None:
    """The modes lie in the same bits; wgmma has no constant, and refuses that of tcgen05."""
    for swizzle in MODES:
        mine, other = (Descriptor("K", swizzle, 16, 512, 8, 0, m) for m in ("tcgen05", "wgmma"))
        assert mine.bits(0) == other.bits(0) | 1 << 46
        with pytest.raises(LayoutError, match="wgmma takes no"):
            Descriptor.from_bits(mine.bits(0), "K", 8, "wgmma")
    with pytest.raises(LayoutError, match="the machine is wgmma or tcgen05; got 'mma'"):
        Descriptor("K", 0, 16, 128, 8, machine="mma")


def canonical(descriptor: Descriptor, shape: tuple[int, int], start: int) -> Array:
    """Return the bit address of each element, by the ISA's canonical layouts.

    T elements fill 16 bytes. K-major ((8,m),(T,2)):((1T,SBO),(1,LBO)), swizzled
    ((8,m),(T,2)):((cT,SBO),(1,T)); MN-major ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO)), swizzled
    ((T,c,m),(8,k)):((1,T,LBO),(cT,SBO)); c = 2, 4, 8. Bytes are then addr ^ (addr >> 3 & mask).
    """
    t = 128 // descriptor.element_bits
    c = {0: 1, 32: 2, 64: 4, 128: 8}[descriptor.swizzle]
    lbo, sbo = (
        8 * each // descriptor.element_bits for each in (descriptor.leading, descriptor.stride)
    )
    row, col = np.indices(shape)
    if descriptor.major == "K":
        at = row % 8 * c * t + row // 8 * sbo + col % t + col // t * (lbo if c == 1 else t)
    elif c == 1:
        at = row % t + row // t * sbo + col % 8 * t + col // 8 * lbo
    else:
        at = row % t + row // t % c * t + row // (c * t) * lbo + col % 8 * c * t + col // 8 * sbo
    bit = at * descriptor.element_bits
    byte = start + bit // 8 - 128 * descriptor.base_offset
    byte = byte ^ (byte >> 3 & 16 * (c - 1))
    return (byte + 128 * descriptor.base_offset) * 8 + bit % 8


FORMS = [("K", 4), ("K", 8), ("K", 16), ("K", 32), ("MN", 8), ("MN", 16)]


@pytest.mark.parametrize("swizzle", MODES)
@pytest.mark.parametrize(("major", "bits"), FORMS)
def test_places_are_the_canonical_layouts(major: str, bits: int, swizzle: int) -> None:
    """Any offsets and starts, every base offset, every M or N."""
    rng = np.random.default_rng(bits + swizzle)
    for rows, base in itertools.product((8, 24, 64, 128, 256), range(8 if swizzle else 1)):
        leading, stride, units = (16 * int(v) for v in rng.integers(0, 1 << 13, 3))
        start = 1024 + units
        found = Descriptor(major, swizzle, leading, stride, bits, base, "tcgen05")
        shape = rows, 256 // bits
        assert np.array_equal(found.places(shape, start) * bits, canonical(found, shape, start))


NAMES = {4: "e2m1", 8: "e4m3", 16: "bf16", 32: "tf32"}


def swizzled(tile: TileLayout, mode: int, bits: int) -> TileLayout | ComposeLayout:
    length = {32: 1, 64: 2, 128: 3}.get(mode, 0)
    return ComposeLayout((128 // bits).bit_length() - 1, length, 3, tile) if mode else tile


@st.composite
def tiles(draw: st.DrawFn) -> tuple[TileLayout, tuple[int, int], str, int, int]:
    """Draw an operand, its digits in any order in memory, with gaps; the innermost may be 2."""
    major, bits = draw(st.sampled_from(FORMS))
    mode = draw(st.sampled_from(MODES))
    step, t = 256 // bits, 128 // bits
    rows, cols = draw(st.sampled_from([(64, step), (32, 2 * step), (128, step)]))
    lines, line = (rows, cols) if major == "K" else (cols, rows)
    extents = [lines // 8, 8, line // t, t // 2, 2]
    order = draw(st.sampled_from([(4, 3), (3, 4)])) if draw(st.booleans()) else (4, 3)
    strides, at = [0] * 5, 1
    for place in (*order, *draw(st.permutations(range(3)))):
        strides[place] = at
        at *= extents[place] * (draw(st.sampled_from([1, 1, 1, 2])) if place < 3 else 1)
    if major == "MN":
        extents, strides = extents[2:] + extents[:2], strides[2:] + strides[:2]
    return TileLayout(S[tuple(extents) : tuple(strides)]), (rows, cols), major, mode, bits


@pytest.mark.slow
@laws
@given(tiles())
def test_what_is_described_is_right_and_the_rest_refused(
    drawn: tuple[TileLayout, tuple[int, int], str, int, int],
) -> None:
    """No fields at all serve a refused layout: every pair of offsets that it has is tried."""
    tile, shape, major, mode, bits = drawn
    layout, step = swizzled(tile, mode, bits), 256 // bits
    linear = linear_addresses(layout, shape)
    want = layout.table(shape)["m"] * bits

    def serves(found: Descriptor) -> bool:
        return all(
            np.array_equal(
                canonical(found, (shape[0], step), int(linear[0, at]) * bits // 8),
                want[:, at : at + step],
            )
            for at in range(0, shape[1], step)
        )

    try:
        found = describe(layout, shape, NAMES[bits], major, machine="tcgen05")
    except LayoutError:
        offsets = {
            int(v) for v in (linear - linear[0, 0])[:: min(8, step), :: min(8, step)].ravel()
        }
        fit = {v * bits // 8 for v in offsets if v * bits % 128 == 0}
        pairs = itertools.product(fit, fit)
        assert not any(serves(Descriptor(major, mode, *pair, bits, 0, "tcgen05")) for pair in pairs)
    else:
        assert serves(found)


def test_nibbles_have_their_places() -> None:
    """Two elements of 4 bits exchanged, in a byte or across two, is another layout."""
    right = parse("S[(64,2,32):(32,2048,1)]")
    found = describe(right, (64, 64), "e2m1", "K", machine="tcgen05")
    assert (found.leading, found.stride) == (1024, 128)
    assert found.places((8, 64), 0)[0, [0, 1, 32]].tolist() == [0, 1, 2048]
    for text in (
        "S[(64,2,16,2):(32,2048,1,16)]",  # 0 16, 1 17, …
        "S[(64,2,8,2,2):(32,2048,4,1,2)]",  # elements 1 and 2 exchanged
    ):
        with pytest.raises(LayoutError, match=r"visits element \(0, \d\) at byte \d"):
            describe(parse(text), (64, 64), "e2m1", "K", machine="tcgen05")
    message = r"visits element \(0, 1\) at byte 0 \(bit 4\); S\[.*\] puts it at 1\. "
    with pytest.raises(LayoutError, match=message):
        describe(parse("S[(64,2,8,2,2):(32,2048,4,1,2)]"), (64, 64), "e2m1", "K", machine="tcgen05")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: describe(parse("S[(64,16):(16,1)]"), (64, 16), "f64", "K", machine="tcgen05"),
            "descriptor: elements have 4, 8, 16 or 32 bits; got float64",
        ),
        (
            lambda: Descriptor("MN", 128, 0, 1024, 32, machine="tcgen05"),
            "descriptor: only 8 or 16-bit operands may be MN-major; got 32 bits. K-major fits",
        ),
        (
            lambda: Descriptor("MN", 128, 0, 1024, 4, machine="tcgen05"),
            "descriptor: only 8 or 16-bit operands may be MN-major; got 4 bits. K-major fits",
        ),
        (
            lambda: describe(parse("S[(64,32):(32,1)]"), (64, 32), "e2m1", "K", machine="tcgen05"),
            "descriptor: operand tiles of 64 x 64 float4_e2m1fn must divide the layout, and 8 the "
            "first; got (64, 32)",
        ),
        (
            lambda: describe(
                ComposeLayout(4, 3, 3, parse("S[(8,256):(256,1)]")), (8, 256), "e2m1", "K",
                machine="tcgen05",
            ),
            "descriptor: the tensor core exchanges 16-byte chunks by bits 7 to 9 of the address; "
            "got ComposeLayout(4, 3, 3, S[(8,256):(256,1)]) of float4_e2m1fn, which exchanges 8 "
            "bytes. ComposeLayout(5, 1 or 2 or 3, 3, …) fits",
        ),
    ],
)  # fmt: skip
def test_what_no_descriptor_says(call: Any, message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        call()
    assert str(caught.value) == message


# -- assembly -------------------------------------------------------------------------------------

FIFTH = tuple(target for target in TARGETS if re.fullmatch(r"sm_1[01]\d[af]", target))


def statement(asm: Asm) -> str:
    """Return a statement with registers of a module of :mod:`lowering.audit.target_matrix`."""
    letters = asm.outputs + asm.inputs
    return re.sub(r"\$(\d+)", lambda found: f"%{letters[int(found[1])]}{found[1]}", asm.text)


def products() -> Iterator[tuple[str, Asm]]:
    for (kind, a, b, scale), group in itertools.product(TYPES, (1, 2)):
        what = Multiplication(get(kind, 128 * group, 64, a, b, group, scale), ("K", "K"))
        left, right = (
            Descriptor("K", 128, 16, 1024, dtypes.get(each).bits, machine="tcgen05")
            for each in (a, b)
        )
        for place, how in itertools.product((left, None), ("add", "overwrite", "maybe")):
            yield kind, tcgen05.multiply(what, place, right, how)


def movements(group: int) -> Iterator[Asm]:
    for name in fragments.names():
        found = re.fullmatch(r"tcgen05\.(ld|st)\.(32x32b|16x\d+b)\.x(\d+)\.b32", name)
        if found:
            make = tcgen05.load if found[1] == "ld" else tcgen05.store
            (row,) = fragments.rows(name)
            for letter in "rf":
                yield make(found[2], int(found[3]), letter * row.registers)
    rows = Descriptor("K", 0, 0, 128, 8, machine="tcgen05")
    for shape in ("32x128b.warpx4", "128x128b", "128x256b"):
        yield tcgen05.copy(shape, rows, group)
    for columns in (32, 64, 128, 256, 512):
        yield tcgen05.allocate(columns, group)
        yield tcgen05.free(columns, group)
    yield tcgen05.commit(group)
    yield from (tcgen05.fence("before"), tcgen05.fence("after"), tcgen05.elected())
    yield from (tcgen05.wait("ld"), tcgen05.wait("st"))


EVERY = [asm for _, asm in products()] + [*movements(1), *movements(2)]


@pytest.mark.slow
@pytest.mark.parametrize("target", FIFTH)
def test_every_statement_assembles_where_it_says(target: str) -> None:
    """Without a remark of the assembler; i8 is refused where a target lacks it."""
    pytest.importorskip("cuda.bindings.nvjitlink", reason="nvJitLink is not installed")
    lacking = {asm.text for kind, asm in products() if not get(kind, 128, 64).runs_on(target)}
    having = sorted({statement(asm) for asm in EVERY if asm.text not in lacking})
    assert len(having) > 150
    assert assemble(module(having, target), target, strict=True)[:4] == b"\x7fELF"
    assert (len(lacking) > 0) == (target not in ("sm_100a", "sm_110a"))
    refused = sorted({statement(asm) for asm in EVERY if asm.text in lacking})
    assert accepted(refused, target) == (False,) * len(refused)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100", "sm_120a", "sm_121f"])
def test_other_targets_have_none_of_it(target: str) -> None:
    pytest.importorskip("cuda.bindings.nvjitlink", reason="nvJitLink is not installed")
    texts = sorted({statement(asm) for asm in EVERY if "elect.sync" not in asm.text})
    assert accepted(texts, target) == (False,) * len(texts)
    assert accepted([statement(tcgen05.elected())], target) == (True,)
    assert not get("f16", 64, 8).runs_on(target)


def test_a_name_is_one_text() -> None:
    """Kernel texts declare an asm statement once per name."""
    texts: dict[str, Asm] = {}
    for asm in EVERY:
        assert texts.setdefault(asm.name, asm) == asm
        assert re.fullmatch(r"\w+", asm.name)
        assert len(set(re.findall(r"\$\d+", asm.text))) == len(asm.outputs + asm.inputs)


def test_one_kernel_has_one_cta_group() -> None:
    """What the builder must hold: ptxas refuses both in a function."""
    pytest.importorskip("cuda.bindings.nvjitlink", reason="nvJitLink is not installed")
    both = statement(tcgen05.commit(1)) + " " + statement(tcgen05.commit(2))
    with pytest.raises(AssembleError, match="cta_group::"):
        assemble(module([both], "sm_100a"), "sm_100a")


def test_registers_that_loads_fill_pass_through_the_wait() -> None:
    waited = tcgen05.wait("ld", "fr")
    assert waited.in_place
    assert (waited.outputs, waited.constraints) == ("fr", "=f,=r,0,1")
    assert not tcgen05.wait("st").in_place
