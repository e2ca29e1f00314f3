"""Exchanges through shared memory: every access is carried out by an interpreter of its own."""

from __future__ import annotations

import re
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import sympy
from hypothesis import example, given, settings

from layoutalg import Conversion, Iter, TileLayout, Undecided, convert, fragments, parse
from layoutalg.conversions.recipe import Exchange, Moves
from layoutalg.conversions.staging import Side
from tests.layoutalg.conversions.test_convert import A, check, held


def table_of(layout: TileLayout, found: Conversion) -> np.ndarray[Any, Any]:
    """The element in each slot of each thread, cut to the threads and slots that hold any."""
    table = np.array(held(layout, found.threads, 64))
    full = table >= 0
    return table[
        : full.any(axis=1).nonzero()[0].max() + 1, : full.any(axis=0).nonzero()[0].max() + 1
    ]


def in_bytes(found: Conversion, step: Exchange, table: Any) -> np.ndarray[Any, Any]:
    """The address of each slot's element, in bits."""
    places = step.staging.table(found.shape)["m"].reshape(-1)
    assert len({*places.tolist()}) == len(places)
    return places[table] * found.bits


def words_of(address: Any, bits: int) -> np.ndarray[Any, Any]:
    """Byte addresses of 32-bit registers, whose elements must lie in order in a word."""
    pack = max(1, 32 // bits)
    words = address.reshape(len(address), -1, pack)
    assert (words - words[..., :1] == np.arange(pack) * bits).all()
    assert (words[..., 0] % max(32, bits) == 0).all()
    return words[..., 0] // 8


def wavefronts(starts: Any, size: int) -> int:
    """Wavefronts of a warp whose lanes move ``size`` bytes: 128 bytes together, banks of 4."""
    lanes = min(32, 128 // max(4, size))
    total = 0
    for at in range(0, len(starts), lanes):
        words = {int(s) // 4 + k for s in starts[at : at + lanes] for k in range(max(1, size // 4))}
        total += max(np.bincount([word % 32 for word in words]))
    return total


def carried_out(moves: Moves, address: Any, bits: int) -> tuple[int, int]:
    """Return how many instructions do a side's accesses, and the most wavefronts of a warp."""
    if "matrix" in moves.name:
        return by_matrices(moves, address, bits)
    per = moves.size * 8 // bits
    if per >= 32 // bits:
        words_of(address, bits)
    unit = address // (8 * moves.size)
    groups: dict[int, list[int]] = {}
    for slot, number in enumerate(unit[0]):
        groups.setdefault(int(number), []).append(slot)
    worst = np.zeros(-(-len(address) // 32), dtype=np.int64)
    for slots in groups.values():
        assert len(slots) == per
        mine = address[:, slots]
        assert (unit[:, slots] == unit[:, slots[:1]]).all()
        assert (np.sort(mine, axis=1) - mine.min(axis=1)[:, None] == np.arange(per) * bits).all()
        for warp in range(len(worst)):
            rows = mine[32 * warp : 32 * warp + 32].min(axis=1) // 8
            worst[warp] += wavefronts(rows, moves.size)
    return len(groups), int(worst.max())


def by_matrices(moves: Moves, address: Any, bits: int) -> tuple[int, int]:
    """ldmatrix, stmatrix: lanes 4g .. 4g+3 hold row g; of a transpose, row 2t+e is element e."""
    count = int(re.findall(r"\.x(\d)", moves.name)[0])
    assert moves.size == 4 * count
    pack, lane = 32 // bits, np.arange(32)
    trans = moves.name.endswith(".trans")
    assert not trans or bits == 16
    assert len(address) % 32 == 0
    worst = []
    for warp in range(0, len(address), 32):
        words = address[warp : warp + 32].reshape(32, -1, pack)
        total = 0
        for k in range(words.shape[1]):
            row = np.stack([2 * (lane % 4) + e if trans else lane // 4 for e in range(pack)], 1)
            column = np.stack([lane // 4 if trans else lane % 4 * pack + e for e in range(pack)], 1)
            starts = words[:, k] - column * bits
            of_row = [{*starts[row == r].tolist()} for r in range(8)]
            assert all(len(each) == 1 and min(each) % 128 == 0 for each in of_row)
            banks = {min(each) // 8 // 4 + word for each in of_row for word in range(4)}
            total += max(np.bincount([bank % 32 for bank in banks]))
        worst.append(total)
    assert words.shape[1] % count == 0
    return words.shape[1] // count, max(worst)


def carry_out(found: Conversion) -> None:
    """Check what an exchange says of its accesses: count, width, wavefronts, repacking."""
    check(found)
    (step,) = found.steps
    assert isinstance(step, Exchange)
    packings = zip((found.src, found.dst), (step.stored, step.loaded), step.accesses, strict=True)
    for side, packed, moves in packings:
        assert isinstance(side, TileLayout)
        mine = table_of(side, found)
        if packed is not None:
            ends = (side, packed) if moves is step.accesses[0] else (packed, side)
            way = convert(*ends, found.shape, found.bits)
            assert way.kind == "registers"
            narrow = moves.size * 8 < 32 and moves is step.accesses[1]
            copies = mine.shape[1] // table_of(packed, found).shape[1]
            assert narrow or way.permutes <= moves.permutes * copies
            mine = table_of(packed, found)
        address = in_bytes(found, step, mine)
        count, waves = carried_out(moves, address, found.bits)
        assert (count, waves) == (moves.count, moves.wavefronts)


ROWS = parse("S[(4,4,4,8,8):(8,1@warpid,8@laneid,1@laneid,1)]")  # 8 elements of a row each
MMA = parse("S[(4,2,8,8,4,2):(1@warpid,2,4@laneid,4,1@laneid,1)]")  # accumulators of four warps


@pytest.mark.parametrize(
    ("src", "dst", "bits", "stores", "loads"),
    [
        (ROWS, MMA, 16, "4 st.shared.v4.b32", "4 ldmatrix.x4"),
        (MMA, ROWS, 16, "4 st.shared.v4.b32", "4 ldmatrix.x4"),
        (MMA, ROWS, 32, "8 st.shared.v4.b32", "8 ldmatrix.x4"),
        (ROWS, MMA, 64, "16 st.shared.v2.b64", "16 ld.shared.v2.b64"),
    ],
)
def test_accumulators_and_rows_are_exchanged_by_16_bytes_without_conflicts(
    src: TileLayout, dst: TileLayout, bits: int, stores: str, loads: str
) -> None:
    found = convert(src, dst, (64, 64), bits)
    assert [str(moves) for moves in found.accesses] == [stores, loads]
    assert [moves.conflicts for moves in found.accesses] == [0, 0]
    carry_out(found)


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[TileLayout, TileLayout, tuple[int, ...], int]:
    """Return layouts of whole warps over digits of two: any digit anywhere, some places copies."""
    warps = draw(st.integers(0, 2))
    sides = []
    for _ in range(2):
        places = [Iter(2, 1 << i, "laneid") for i in range(5)]
        places += [Iter(2, 1 << i, "warpid") for i in range(warps)]
        places += [Iter(2, 1 << i, "m") for i in range(draw(st.integers(1, 5)))]
        sides.append(draw(st.permutations(places)))
    count = min(map(len, sides)) - draw(st.sampled_from([0, 0, 1, 2]))
    shape = tuple(1 << n for n in draw(st.sampled_from([(count,), (3, count - 3)])))
    src, dst = (TileLayout.from_iters(side[:count], side[count:]) for side in sides)
    return src, dst, shape, draw(st.sampled_from([8, 16, 32, 64]))


@settings(max_examples=60, deadline=None)
@given(exchanges())
@example((A, fragments.transposed(A, (16, 16)), (16, 16), 16))
def test_every_exchange_does_what_it_says(case: Any) -> None:
    carry_out(convert(*case, via="shared"))


@pytest.mark.parametrize("dst", ["S[48:1@tx]", "S[(16,3):(1@laneid,4)]", "S[(16,3):(2@laneid,1)]"])
def test_what_is_no_map_of_bits_goes_one_element_at_a_time(dst: str) -> None:
    found = convert(parse("S[48:1]"),
                    parse(dst), (48,), 16, via="shared")  # fmt: skip
    assert found.accesses[0].name == "st.shared.b16"
    check(found)


def test_sides_are_read_bit_by_bit() -> None:
    side = Side.of(np.array(held(MMA, 128, 32)), (64, 64))
    assert side == Side((0, 9, 3, 4, 5), (1, 2, 6, 7, 8), (10, 11))
    assert Side.of(np.array([[0, 1, 3, 2]]), (4,)) is None


def test_an_exchange_over_symbols_does_not_know_its_accesses() -> None:
    count = sympy.Symbol("Mt", integer=True, positive=True)
    src, dst = parse("S[(Mt,2,32):(2,1,1@laneid)]"), parse("S[(Mt,2,32):(1,1@warpid,1@laneid)]")
    found = convert(src, dst, (count, 2, 32), 32)
    assert found.kind == "shared"
    with pytest.raises(Undecided, match="depends on a symbol: substitute"):
        found.accesses  # noqa: B018
    assert found.subs({"Mt": 3}).execute(np.zeros((64, 6))).shape == (64, 3)
