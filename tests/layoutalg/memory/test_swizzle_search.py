"""Banks, sectors, ldmatrix and the swizzle chooser, held to loops over lanes and to known cases."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from layoutalg import (
    ComposeLayout,
    LayoutError,
    S,
    SwizzleLayout,
    TileLayout,
    draw,
    fragments,
    laneid,
    parse,
)
from layoutalg.interop import CuteLayout, from_cute
from layoutalg.memory.access import (
    ACCESSES,
    Access,
    bank_counts,
    columnwise,
    element_bits,
    fewest_wavefronts,
    matrices,
    phase_lanes,
    phases,
    rowwise,
    sectors,
    slotwise,
    wavefronts,
)
from layoutalg.memory.ldmatrix import MatrixLoad, matrix_loads
from layoutalg.memory.swizzle_search import choose_swizzle, evaluate_swizzle, swizzle_in_words
from lowering.cli.main import main
from lowering.isa import ptx
from tests.support.paths import DATA
from tests.support.strategies import laws

CASES = {row["id"]: row for row in json.loads((DATA / "cases/swizzle_bank.json").read_text())}
NONE = SwizzleLayout(0, 0, 0)


# ---------------------------------------------------------------- known cases


def test_every_case_of_the_file_is_used() -> None:
    assert sorted(CASES) == ["L01", "L02", "L05", "L06", "L10", "S02", "S05", "S06", "S09", "S10"]


def test_s02_which_swizzle_fits_which_pitch() -> None:
    case = CASES["S02"]
    found = [
        evaluate_swizzle(SwizzleLayout(unit, length, atom), (64, pitch), "f16").worst[0]
        for pitch, length, unit, atom in case["input"]["cfg"]
    ]
    assert found == case["expected"]["wavefronts"]


def test_s05_columns_of_f32() -> None:
    case = CASES["S05"]
    plain = [
        evaluate_swizzle(NONE, (32, 16), "f32", pitch, ["column"]).worst[0]
        for pitch in case["input"]["f32_stride"]
    ]
    assert plain == case["expected"]["ways"]
    swizzled = [
        evaluate_swizzle(SwizzleLayout(unit, n, atom), (32, 32), "f32", 32, ["column"]).worst[0]
        for n, unit, atom in case["input"]["swizzle_at_32"]
    ]
    assert swizzled == case["expected"]["ways_swizzled"]


def test_s06_the_32_byte_swizzle_exchanges_the_two_chunks_of_rows_4_to_7() -> None:
    case = CASES["S06"]
    length, unit, atom = case["input"]["swizzle_bytes"]
    assert case["input"]["row_bytes"] == 32
    layout = from_cute(f"Sw<{length},{unit},{atom}> o 0 o (8,16):(16,1)", unit="bytes", bits=16)
    table = layout.table((8, 16))["m"]
    chunks = table[:, ::8] // 8 - 2 * np.arange(8)[:, None]
    assert chunks.tolist() == case["expected"]["chunk_map"]


def test_s09_the_least_length_that_spreads_the_rows() -> None:
    case = CASES["S09"]
    found = [
        choose_swizzle((8, 8), "f16", pitch // 2, ["ldmatrix"]).best.swizzle.swizzle_len
        for pitch in case["input"]["pitch_bytes"]
    ]
    assert found == case["expected"]["min_B"]


def test_s10_rows_that_no_vector_instruction_moves_are_refused_with_the_reason() -> None:
    case = CASES["S10"]
    assert case["expected"]["ldmatrix_ok"] == [False, False]
    for tile, reason in zip(case["input"]["smem"], case["expected"]["reason"], strict=True):
        rows, columns = tile["shape"]
        layout = TileLayout(S[(rows, columns) : tuple(tile["stride"])])
        with pytest.raises(LayoutError, match=reason):
            matrices((rows, columns), 16).starts(layout, (rows, columns), 16)


def test_l01_all_32_lanes_have_an_address() -> None:
    case = CASES["L01"]
    B = fragments.get("mma.m16n8k16.f16", "B")
    (load,) = matrix_loads(B.layout, B.shape, 16)
    assert case["input"]["instr"] in load.instruction.replace("sync.aligned.", "").replace(
        ".trans.shared", ""
    )
    assert case["expected"]["address_lane"] == "lane % 16"
    lane = np.arange(32)
    assert (load.address == load.address[lane % 16]).all()


def test_l02_the_instruction_names_the_shared_window_that_its_address_is_in() -> None:
    case = CASES["L02"]
    assert case["expected"] == {"valid": False, "fix": [".shared", "generic pointer"]}
    for count in (1, 2, 4):
        for trans in (False, True):
            asm = ptx.ldmatrix(count, trans)
            assert ".shared.b16" in asm.text
            assert asm.inputs == "r"  # a 32-bit offset in the shared window
    A = fragments.get("mma.m16n8k16.f16", "A")
    assert ".shared." in matrix_loads(A.layout, A.shape, 16)[0].instruction


def test_l05_transposed_a() -> None:
    case = CASES["L05"]
    A = fragments.get("mma.m16n8k16.f16", "A")
    (load,) = matrix_loads(A.layout, A.shape, 16, transposed=True)
    assert load.instruction == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
    assert load.address.tolist() == case["expected"]["addr"]


def test_l06_elements_of_8_bits_are_not_transposed() -> None:
    case = CASES["L06"]
    B = fragments.get("mma.m16n8k32.s8", "B")
    assert case["expected"] == {"expressible": False, "[N][K] no trans": True}
    with pytest.raises(LayoutError, match=r"units of 16 bits.*the other way round"):
        matrix_loads(B.layout, B.shape, 8, trans=True)
    with pytest.raises(LayoutError, match=r"without \.trans.*with \.trans"):
        matrix_loads(B.layout, B.shape, 8)
    (load,) = matrix_loads(B.layout, B.shape, 8, transposed=True)
    assert not load.trans


def test_l10_the_printed_source_layout_labels_rows() -> None:
    case = CASES["L10"]
    layout = from_cute(CuteLayout(case["input"]["shape"], case["input"]["stride"]))
    table = layout.table((32, 16))["m"]
    assert sorted(table.reshape(-1).tolist()) == list(range(512))
    # The first mode is CuTe's: its first leaf is the fastest, as in from_cute.
    assert (table[:, 0] // 16).tolist() == case["expected"]["lane_row_label"]


# ---------------------------------------------------------------- banks and sectors, by loops


def ways_by_loops(starts: list[int], size: int) -> dict[int, int]:
    """Count distinct words per bank for lanes that are served together."""
    words = {start // 4 + n for start in starts for n in range(max(1, size // 4))}
    found: dict[int, int] = {}
    for word in words:
        found[word % 32] = found.get(word % 32, 0) + 1
    return found


def wavefronts_by_loops(starts: list[int | None], size: int) -> int:
    """Count the wavefronts of one request: byte addresses by lane, None where it takes no part."""
    lanes = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[size]
    total = 0
    for begin in range(0, len(starts), lanes):
        asked = [start for start in starts[begin : begin + lanes] if start is not None]
        total += max(ways_by_loops(asked, size).values(), default=0)
    return total


@laws
@given(
    st.sampled_from([1, 2, 4, 8, 16]),
    st.lists(st.lists(st.integers(0, 300), min_size=8, max_size=8), min_size=1, max_size=4),
)
def test_bank_counts_are_those_of_loops(size: int, numbers: list[list[int]]) -> None:
    starts = np.array(numbers) * size
    counts = bank_counts(starts, size)
    for row, count in zip(starts.tolist(), counts.tolist(), strict=True):
        ways = ways_by_loops(row, size)
        assert count == [ways.get(bank, 0) for bank in range(32)]
    assert wavefronts(counts).tolist() == [max(row) for row in counts.tolist()]
    words = [
        len({w for s in row for w in range(s // 4, s // 4 + max(1, size // 4))})
        for row in starts.tolist()
    ]
    assert fewest_wavefronts(counts).tolist() == [-(-n // 32) for n in words]


@laws
@given(
    st.sampled_from([1, 2, 4, 8, 16, 64]),
    st.lists(st.lists(st.integers(0, 999), min_size=3, max_size=3), min_size=1, max_size=4),
)
def test_sectors_are_those_of_loops(size: int, starts: list[list[int]]) -> None:
    found = sectors(np.array(starts), size)
    for row, touched in zip(starts, found, strict=True):
        want = sorted({byte // 32 for start in row for byte in range(start, start + size)})
        assert touched.tolist() == want


def test_a_vector_that_ends_a_sector_does_not_touch_the_next() -> None:
    """The last byte counts: 31 is of sector 0, 32 of sector 1."""
    ends = [(0, 32), (24, 8), (31, 1), (31, 2), (30, 2), (32, 1), (16, 16), (17, 16)]
    found = [sectors(np.array([[start]]), size)[0].tolist() for start, size in ends]
    assert found == [[0], [0], [0], [0, 1], [0], [1], [0], [0, 1]]


def test_lanes_that_ask_for_one_word_share_it() -> None:
    assert wavefronts(bank_counts(np.zeros((1, 32), dtype=np.int64), 4)).tolist() == [1]
    halves = np.arange(32)[None, :] * 2
    assert bank_counts(halves, 2).sum() == 16


def test_as_many_lanes_are_served_together_as_move_128_bytes() -> None:
    assert [phase_lanes(size) for size in (1, 2, 4, 8, 16)] == [32, 32, 32, 16, 8]
    access = rowwise((16, 64), 16)
    tile = TileLayout(S[(16, 64) : (64, 1)])
    assert access.bank_counts(tile, (16, 64), 16).shape == (16, 32)


@pytest.mark.parametrize("name", sorted(ACCESSES))
def test_an_access_moves_every_element_once(name: str) -> None:
    shape = (32, 64)
    access = ACCESSES[name](shape, 16)
    rows, columns = np.moveaxis(access.coords.reshape(-1, 2), -1, 0)
    assert sorted((rows * shape[1] + columns).tolist()) == list(range(shape[0] * shape[1]))
    assert access.coords.shape[1] == 32


def test_matrices_are_8_rows_by_16_bytes_and_the_order_of_trans_is_that_of_a() -> None:
    for bits, wide in ((8, 16), (16, 8), (32, 4)):
        coords = matrices((16, 2 * wide), bits).coords
        assert coords.shape == (1, 32, wide, 2)
        assert coords[0, :, 0].tolist() == [
            [8 * (j % 2) + i, wide * (j // 2)] for j in range(4) for i in range(8)
        ]
    across = matrices((16, 16), 16, trans=True).coords
    assert across[0, :, 0].tolist() == CASES["L05"]["expected"]["addr"]
    assert [matrices(shape, 16).name for shape in ((8, 8), (16, 8), (8, 16), (32, 8), (24, 8))] == [
        "ldmatrix.x1",
        "ldmatrix.x2",
        "ldmatrix.x2",
        "ldmatrix.x4",
        "ldmatrix.x1",
    ]


def test_slots_are_those_of_the_fragment() -> None:
    A = fragments.get("mma.m16n8k16.f16", "A")
    coords = slotwise(A.layout, A.shape, 2).coords
    assert (coords == A.coords.reshape(32, 4, 2, 2).transpose(1, 0, 2, 3)).all()
    D = fragments.get("wgmma.m64n8", "D.f32")
    warps = slotwise(D.layout, D.shape, 2).coords
    assert warps.shape == (8, 32, 2, 2)
    assert (warps[2:4].transpose(1, 0, 2, 3).reshape(32, 4, 2) == D.coords[32:64]).all()


# ---------------------------------------------------------------- ldmatrix


def delivered(load: MatrixLoad, bits: int) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Run the instruction as the PTX ISA says it: (register, lane, element) -> stored place."""
    pack = 32 // bits
    units = 128 // bits
    address = load.address.tolist()
    found = {}
    for j, register in enumerate(load.registers):
        matrix = [
            [(address[8 * j + i][0], address[8 * j + i][1] + n) for n in range(units)]
            for i in range(8)
        ]
        for lane in range(32):
            g, t = lane // 4, lane % 4
            for e in range(pack):
                place = matrix[2 * t + e][g] if load.trans else matrix[g][pack * t + e]
                found[register, lane, e] = place
    return found


LOADABLE = [
    (name, operand, transposed)
    for name in ("mma.m16n8k16.f16", "mma.m16n8k8.bf16", "mma.m16n8k8.tf32", "mma.m16n8k32.s8",
                 "mma.m16n8k64.s4", "mma.m8n8k16.u8")
    for operand in ("A", "B")
    for transposed in (False, True)
]  # fmt: skip


@pytest.mark.parametrize(("name", "operand", "transposed"), LOADABLE)
def test_a_load_brings_every_element_where_the_fragment_wants_it(
    name: str, operand: str, transposed: bool
) -> None:
    fragment = fragments.get(name, operand)
    if fragment.bits != 16 and transposed == (operand == "A"):
        with pytest.raises(LayoutError, match=r"with \.trans, units of 16 bits"):
            matrix_loads(fragment.layout, fragment.shape, fragment.bits, transposed=transposed)
        return
    pack = 32 // fragment.bits
    for count in (None, 1):
        loads = matrix_loads(
            fragment.layout, fragment.shape, fragment.bits, transposed=transposed, count=count
        )
        got = {k: v for load in loads for k, v in delivered(load, fragment.bits).items()}
        assert len(got) == fragment.slots * 32
        for (register, lane, e), place in got.items():
            row, col = fragment.coords[lane, register * pack + e].tolist()
            assert place == ((col, row) if transposed else (row, col))
        assert all(load.trans == ((operand == "B") != transposed) for load in loads)
        assert [r for load in loads for r in load.registers] == list(range(fragment.registers))


def test_the_access_of_a_load_counts_one_wavefront_per_matrix_in_a_good_swizzle() -> None:
    A = fragments.get("mma.m16n8k16.f16", "A")
    (load,) = matrix_loads(A.layout, A.shape, 16)
    plain = TileLayout(S[(16, 16) : (64, 1)])
    good = ComposeLayout(3, 3, 3, plain)
    assert wavefronts(load.access.bank_counts(plain, (16, 16), 16)).tolist() == [8] * 4
    assert wavefronts(load.access.bank_counts(good, (16, 16), 16)).tolist() == [1] * 4


# ---------------------------------------------------------------- the chooser


def total_by_loops(access: Access, layout: Any, shape: tuple[int, int], bits: int) -> int:
    """Count the wavefronts of an access by loops over its phases."""
    table = layout.table(shape)["m"].tolist()
    size = max(1, access.count * bits // 8)
    return sum(
        wavefronts_by_loops(
            [None if at[0] < 0 else table[at[0]][at[1]] * bits // 8 for at, *_ in request], size
        )
        for request in access.coords.tolist()
    )


TILES = st.sampled_from(
    [
        ((8, 64), 16, 64, ("ldmatrix",)),
        ((16, 32), 16, 32, ("ldmatrix", "cp.async")),
        ((16, 16), 16, 16, ("ldmatrix.trans", "st.shared")),
        ((8, 32), 16, 40, ("ldmatrix",)),
        ((16, 32), 8, 32, ("ldmatrix", "st.shared")),
        ((16, 16), 32, 16, ("ldmatrix", "column")),
        ((32, 8), 32, 8, ("column",)),
        ((16, 128), 16, 128, ("stmatrix",)),
    ]
)


@laws
@given(TILES, st.integers(0, 5), st.integers(0, 4), st.integers(0, 4))
def test_no_swizzle_beats_the_choice(tile: Any, unit: int, length: int, further: int) -> None:
    shape, bits, pitch, names = tile
    choice = choose_swizzle(shape, bits, pitch, names)
    accesses = [ACCESSES[name](shape, bits) for name in names]
    plain = TileLayout(S[shape : (pitch, 1)])
    assert choice.best.wavefronts == tuple(
        total_by_loops(a, choice.layout, shape, bits) for a in accesses
    )
    assert choice.before.wavefronts == tuple(
        total_by_loops(a, plain, shape, bits) for a in accesses
    )
    vector = max(access.count for access in accesses)
    cells = shape[0] * pitch
    if 1 << unit < vector or cells % (1 << (unit + length)):
        return
    other = evaluate_swizzle(
        SwizzleLayout(unit, length, length + further), shape, bits, pitch, names
    )
    assert other.total >= choice.best.total


@pytest.mark.parametrize(
    ("shape", "bits", "pitch", "names", "equals"),
    [
        ((32, 8), 32, 8, ("column",), [(0, 3, 5), (0, 4, 5), (0, 5, 5)]),
        ((16, 32), 16, 32, ("ldmatrix", "cp.async"), [(3, 2, 3), (3, 3, 3)]),
        ((8, 16), 32, 32, ("column",),
         [(0, 3, 5), (1, 3, 4), (2, 3, 3), (0, 4, 4), (0, 4, 5), (1, 4, 4), (0, 5, 5)]),
        ((8, 32), 16, 40, ("ldmatrix",), [(0, 0, 0), (3, 1, 1), (3, 1, 2), (4, 1, 1)]),
    ],
)  # fmt: skip
def test_of_equals_the_shortest_wins_then_the_least_lengths(
    shape: tuple[int, int], bits: int, pitch: int, names: tuple[str, ...], equals: list[Any]
) -> None:
    """All swizzles that permute the tile in itself and keep its vectors, counted by loops."""
    accesses = [ACCESSES[name](shape, bits) for name in names]
    vector, cells = max(access.count for access in accesses), shape[0] * pitch
    plain = TileLayout(S[shape : (pitch, 1)])
    found = {(0, 0, 0): sum(total_by_loops(a, plain, shape, bits) for a in accesses)}
    for unit, length, atom in itertools.product(range(5), range(1, 7), range(1, 10)):
        reaches = 1 << unit + atom < cells and 1 << unit < 1024 // bits
        inside = cells % (1 << unit + length) == 0 and 1 << unit + length <= 1024 // bits
        if length <= atom and 1 << unit >= vector and reaches and inside:
            layout = ComposeLayout(unit, length, atom, plain)
            found[unit, length, atom] = sum(
                total_by_loops(access, layout, shape, bits) for access in accesses
            )
    least = min(found.values())
    ties = sorted(
        (key for key, total in found.items() if total == least),
        key=lambda key: (key[1], key[0], key[2]),
    )
    assert ties == equals
    choice = choose_swizzle(shape, bits, pitch, names)
    assert [c.key for c in choice.candidates if c.total == least] == ties
    assert choice.best.key == ties[0]


def moved(name: str, shape: tuple[int, int], bits: int) -> list[list[tuple[int, int]]]:
    """Return, per request, where each lane's vector begins: from what the accesses say they do."""
    rows, columns = shape
    if name == "column":
        return [
            [(row, column) for row in range(begin, min(begin + 32, rows))]
            for column in range(columns)
            for begin in range(0, rows, 32)
        ]
    wide = 128 // bits
    vectors = [(row, column) for row in range(rows) for column in range(0, columns, wide)]
    return [vectors[begin : begin + 32] for begin in range(0, len(vectors), 32)]


@st.composite
def any_tiles(draw: st.DrawFn) -> tuple[str, tuple[int, int], int, int, SwizzleLayout]:
    """Return an access, a tile of any number of rows and columns, and a swizzle of its vectors."""
    name = draw(st.sampled_from(["column", "st.shared", "cp.async"]))
    bits = draw(st.sampled_from([8, 16, 32, 64] if name != "column" else [4, 8, 16, 32, 64, 128]))
    wide = 1 if name == "column" else 128 // bits
    rows = draw(st.integers(1, 70))
    columns = wide * draw(st.integers(1, 6))
    pitch = columns + wide * draw(st.integers(0, 9))
    unit = wide.bit_length() - 1 + draw(st.integers(0, 2))
    length = draw(st.integers(0, 3))
    return name, (rows, columns), bits, pitch, SwizzleLayout(unit, length, length + 1)


@laws
@given(any_tiles())
@example(("column", (31, 32), 32, 32, NONE))
@example(("column", (24, 8), 32, 32, NONE))
@example(("column", (33, 8), 32, 32, NONE))
@example(("column", (40, 8), 32, 32, NONE))
@example(("st.shared", (33, 8), 32, 32, NONE))
@example(("cp.async", (5, 8), 16, 64, NONE))
def test_any_number_of_rows_and_columns_is_counted_by_whole_warps(case: Any) -> None:
    """Requests of 32 lanes, the last one partial; phases by the width of a lane's vector."""
    name, shape, bits, pitch, swizzle = case
    layout = swizzle.over(TileLayout(S[shape : (pitch, 1)]))
    table = layout.table(shape)["m"]
    size = 16 if name != "column" else max(1, bits // 8)
    want = [
        wavefronts_by_loops([int(table[at]) * bits // 8 for at in request], size)
        for request in moved(name, shape, bits)
    ]
    found = evaluate_swizzle(swizzle, shape, bits, pitch, [name])
    assert found.wavefronts == (sum(want),)
    choice = choose_swizzle(shape, bits, pitch, [name])
    table = choice.layout.table(shape)["m"]
    assert choice.best.total == sum(
        wavefronts_by_loops([int(table[at]) * bits // 8 for at in request], size)
        for request in moved(name, shape, bits)
    )


@laws
@given(st.data())
def test_lanes_that_take_no_part_ask_for_nothing(data: st.DataObject) -> None:
    """Any number of lanes, any of them guarded away, any width."""
    size = data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    requests, lanes = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 70))
    start = st.one_of(st.none(), st.integers(0, 400))
    asked = data.draw(
        st.lists(
            st.lists(start, min_size=lanes, max_size=lanes), min_size=requests, max_size=requests
        )
    )
    taking = np.array([[each is not None for each in row] for row in asked])
    starts = np.array([[each or 0 for each in row] for row in asked]) * size
    starts[~taking] = data.draw(st.integers(-5000, 5000))
    groups, kept = phases(starts, size, taking)
    assert kept.any(axis=1).all()
    counts = bank_counts(groups, size, kept)
    want = sum(
        wavefronts_by_loops([None if each is None else each * size for each in row], size)
        for row in asked
    )
    assert wavefronts(counts).sum() == want
    # groups without a lane ask for nothing either
    assert wavefronts(bank_counts(starts, size, np.zeros_like(taking))).tolist() == [0] * requests
    for row, mine, touched in zip(starts, taking, sectors(starts, size, taking), strict=True):
        bytes_asked = {byte for at in row[mine].tolist() for byte in range(at, at + size)}
        assert touched.tolist() == sorted({byte // 32 for byte in bytes_asked})


@pytest.mark.parametrize("rows", [24, 31, 33, 40])
def test_the_swizzle_command_and_the_picture_count_partial_warps(rows: int) -> None:
    """31 lanes of one warp meet in one bank; of 40 rows, 32 do and then 8."""
    found = CliRunner().invoke(
        main, ["swizzle", f"{rows},8", "--pitch", "32", "--dtype", "32", "--access", "column",
               "--check", "0,0,0", "--json"],
    )  # fmt: skip
    said = json.loads(found.output)
    assert (said["checked"]["total"], said["checked"]["worst"]) == (8 * rows, [min(rows, 32)])
    assert said["chosen"]["total"] == 8 * (1 + (rows > 32))
    page = draw.banks.scene(TileLayout(S[(rows, 8) : (32, 1)]), (rows, 8), 32, "column")
    lanes = "up to 32" if rows > 32 else str(rows)
    (note,) = [
        text.string for text in page.panel("title").texts if text.string.startswith("column")
    ]
    assert note == (
        f"column: {8 * (1 + (rows > 32))} phases of {lanes} lanes, 4 bytes each: "
        f"{8 * rows} → {said['chosen']['total']} wavefronts, "
        f"at least {8 * (1 + (rows > 32))}"
    )


@pytest.mark.parametrize("columns", [16, 32, 64, 128, 256])
def test_the_chosen_tile_is_a_permutation_of_the_plain_one(columns: int) -> None:
    choice = choose_swizzle((64, columns), "f16")
    table = choice.layout.table((64, columns))["m"]
    assert sorted(table.reshape(-1).tolist()) == list(range(64 * columns))
    assert choice.conflicts == 0
    # rows of 16 bytes stay whole
    vectors = table.reshape(64, -1, 8)
    assert (vectors == vectors[..., :1] + np.arange(8)).all()


def test_the_hardware_modes_are_found_and_named() -> None:
    modes = {}
    for columns in (16, 32, 64):
        choice = choose_swizzle((64, columns), "f16", None, ["ldmatrix", "cp.async"])
        modes[columns] = choice.in_words(choice.best)
    assert modes == {
        16: "(3, 1, 3) in elements of 16 bits, (4, 1, 3) in bytes: 16-byte units, the 32B mode",
        32: "(3, 2, 3) in elements of 16 bits, (4, 2, 3) in bytes: 16-byte units, the 64B mode",
        64: "(3, 3, 3) in elements of 16 bits, (4, 3, 3) in bytes: 16-byte units, the 128B mode",
    }
    assert swizzle_in_words(SwizzleLayout(1, 2, 3), 4) == (
        "(1, 2, 3) in elements of 4 bits, (0, 2, 3) in bytes: 1-byte units"
    )
    assert swizzle_in_words(SwizzleLayout(0, 2, 3), 4) == (
        "(0, 2, 3) in elements of 4 bits: 4-bit units"
    )
    outer = SwizzleLayout(3, 3, 3, swizzle_inner=False)
    assert "mode" not in swizzle_in_words(outer, 16)
    assert swizzle_in_words(NONE, 16) == "no swizzle"


def test_the_table_says_why_and_names_every_unit() -> None:
    text = str(choose_swizzle((64, 64), "f16"))
    lines = text.splitlines()
    assert lines[0] == (
        "64 x 64 elements of 16 bits, pitch 64 elements = 128 bytes; 41 candidates; lengths count "
        "elements"
    )
    assert [line.split("  ")[0] for line in lines[2:-1]] == [
        "none",
        "(3, 1, 3)",
        "(3, 2, 3)",
        "(3, 3, 3)",
    ]
    assert [int(line.split()[-1]) for line in lines[2:-1]] == [448, 192, 64, 0]
    assert "512 (worst 8)" in lines[2]
    assert lines[-1].startswith("chosen: (3, 3, 3) in elements of 16 bits, (4, 3, 3) in bytes")


def test_every_candidate_keeps_the_widest_vectors_whole() -> None:
    choice = choose_swizzle((32, 32), "f32", None, ["column", "ldmatrix"])
    assert {c.swizzle.per_element for c in choice.candidates if c.swizzle.swizzle_len} == {2, 3, 4}
    for candidate in choice.candidates:
        found = evaluate_swizzle(candidate.swizzle, (32, 32), 32, None, ["column", "ldmatrix"])
        assert found == candidate


def test_a_padded_pitch_needs_no_swizzle() -> None:
    choice = choose_swizzle((64, 64), "f16", 72)
    assert choice.best.swizzle == NONE
    assert choice.layout == TileLayout(S[(64, 64) : (72, 1)])


def test_accesses_of_one_s_own_are_counted() -> None:
    A = fragments.get("mma.m16n8k16.f16", "A")
    direct = slotwise(A.layout, A.shape, 2, name="ld.shared.b32")
    choice = choose_swizzle((16, 16), "f16", 64, [direct])
    assert choice.accesses == ("ld.shared.b32",)
    assert choice.before.worst == (8,)
    assert choice.best.worst == (1,)


# ---------------------------------------------------------------- what is refused

SCATTERED = TileLayout(S[(8, 4) : (4 @ laneid, 1 @ laneid)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: columnwise((8, 8), 32).phases(np.zeros((8, 32), dtype=np.int64), 256),
            "banks: a lane moves 1, 2, 4, 8 or 16 bytes of shared memory at once; got 32 bytes",
        ),
        (lambda: phase_lanes(12), "got 12 bytes"),
        (
            lambda: Access("mine", np.zeros((2, 32, 2), dtype=np.int64)),
            r"mine: an access is an array.*got shape \(2, 32, 2\)",
        ),
        (
            lambda: Access("mine", np.array([[[[0, 0], [0, -1]]]])),
            "-1 throughout in a lane that takes no part; got -1 in a part of a lane",
        ),
        (lambda: choose_swizzle((64, 64), 12), r"bits.*got 12.*bf16"),
        (lambda: choose_swizzle((64, 64), "f17"), "'f17'"),
        (lambda: choose_swizzle((64, 64), 16, 32), "pitch is the distance.*64 or more; got 32"),
        (lambda: choose_swizzle((64,), 16), r"\(rows, columns\).*\(64,\)"),
        (lambda: choose_swizzle((64, 64), 16, None, []), "one or more accesses"),
        (lambda: choose_swizzle((64, 64), 16, None, "ldmatrix"), "a sequence.*'ldmatrix'"),
        (lambda: choose_swizzle((64, 64), 16, None, ["ldmtrix"]), "'ldmtrix'.*ldmatrix.trans"),
        (lambda: choose_swizzle((12, 64), 16), r"8 rows by 16 bytes.*\(12, 64\)"),
        (lambda: choose_swizzle((8, 12), 16, None, ["cp.async"]), r"16 bytes \(8 elements.*12"),
        (lambda: choose_swizzle((8, 8), 8, None, ["ldmatrix.trans"]), "units of 16 bits"),
        (
            lambda: evaluate_swizzle(SwizzleLayout(2, 3, 3), (8, 64), 16),
            "inner stride not 1: a lane moves 8 elements",
        ),
        (
            lambda: rowwise((8, 64), 16).starts(SCATTERED, (8, 4), 16),
            "on axis m alone; .*laneid",
        ),
        (lambda: slotwise(TileLayout(S[8:1]), (8, 1), 1), "which lane.*axes m"),
        (lambda: slotwise(SCATTERED, (8, 4), 2), "whole vectors of 2 slots"),
        (lambda: matrix_loads(SCATTERED, (8, 4), 64), "4, 8, 16 or 32 bits; got 64"),
        (lambda: matrix_loads(SCATTERED, (8, 4), 32, count=3), "count is 1, 2 or 4"),
        (
            lambda: matrix_loads(fragments.get("wgmma.m64nNk16.f16", "A.reg").layout, (64, 16), 16),
            "one warp.*8 slots in each of 128 threads",
        ),
        (lambda: matrix_loads(SCATTERED, (8, 4), 32, trans=True), "32 bits would be split"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(LayoutError, match=message):
        call()


def test_types_are_known_by_their_ptx_names() -> None:
    names = ("b1", "s4", "e4m3", "f16", "bf16", "tf32", "f64")
    assert [element_bits(name, "test") for name in names] == [1, 4, 8, 16, 16, 32, 64]
    with pytest.raises(LayoutError, match="True"):
        element_bits(True, "test")


def test_columns_of_sub_byte_elements_are_counted_by_their_bytes() -> None:
    access = columnwise((32, 64), 4)
    tile = TileLayout(S[(32, 64) : (64, 1)])
    assert wavefronts(access.bank_counts(tile, (32, 64), 4)).max() == 8


@pytest.mark.parametrize(
    ("shape", "bits", "names"),
    [
        ((8, 64), 32, ("column",)),
        ((16, 128), 16, ("ldmatrix",)),
        ((32, 32), 16, ("ldmatrix",)),
        ((16, 16), 16, ("stmatrix", "st.shared")),
    ],
)
def test_of_swizzles_that_count_alike_the_shortest_is_chosen(
    shape: tuple[int, int], bits: int, names: tuple[str, ...]
) -> None:
    """Every swizzle of the tile is counted: none takes less, and those that tie are longer."""
    choice = choose_swizzle(shape, bits, None, list(names))
    vector = max(ACCESSES[name](shape, bits).count for name in names)
    room = (shape[0] * shape[1]).bit_length() - 1
    totals: dict[int, set[int]] = {}
    for unit in range(vector.bit_length() - 1, room + 1):
        for length in range(room - unit + 1):
            for atom in range(length, room - unit - length + 1):
                swizzle = SwizzleLayout(unit, length, atom)
                found = evaluate_swizzle(swizzle, shape, bits, None, list(names))
                totals.setdefault(found.total, set()).add(length)
    assert min(totals) == choice.best.total
    tied = totals[choice.best.total]
    assert min(tied) == choice.best.swizzle.swizzle_len < max(tied)


@pytest.mark.parametrize(
    ("starts", "size", "found"),
    [
        ([31], 1, [0]),
        ([31], 2, [0, 1]),
        ([30], 2, [0]),
        ([32], 1, [1]),
        ([31, 64], 1, [0, 2]),
        ([16, 63], 16, [0, 1, 2]),
        ([33], 32, [1, 2]),
        ([0, 95], 4, [0, 2, 3]),
    ],
)
def test_a_sector_ends_at_byte_31(starts: list[int], size: int, found: list[int]) -> None:
    (touched,) = sectors(np.array([starts]), size)
    assert touched.tolist() == found


@pytest.mark.parametrize(("size", "bits"), [(16, 128), (4, 32), (2, 16)])
def test_a_vector_may_be_one_element(size: int, bits: int) -> None:
    access = rowwise((8, 4), bits, size=size)
    assert access.coords.shape == (1, 32, 1, 2)
    assert access.coords[0, :, 0].tolist() == [[t // 4, t % 4] for t in range(32)]
    with pytest.raises(LayoutError, match="a row must consist of vectors"):
        rowwise((8, 4), 2 * bits, size=size)


def test_slots_are_taken_in_vectors_of_any_size() -> None:
    D = fragments.get("mma.m16n8k16.f16", "D")
    alone = slotwise(D.layout, D.shape, 1)
    assert alone.coords[:, 5].tolist() == [[[1, 2]], [[1, 3]], [[9, 2]], [[9, 3]]]
    all_four = slotwise(D.layout, D.shape, 4)
    assert all_four.coords[:, 5].tolist() == [[[1, 2], [1, 3], [9, 2], [9, 3]]]


def test_a_slot_that_a_thread_leaves_empty_is_refused() -> None:
    with pytest.raises(LayoutError) as raised:
        slotwise(TileLayout(S[(32, 2) : (1 @ laneid, 2)]), (32, 2), 1)
    assert str(raised.value) == (
        "slots: every lane must hold whole vectors of 1 slots; S[(32,2):(1@laneid,2)] gives "
        "32 threads 64 elements in 3 slots"
    )


def test_the_first_lane_whose_elements_are_apart_is_named() -> None:
    with pytest.raises(LayoutError) as raised:
        matrices((16, 16), 16).starts(TileLayout(S[(16, 16) : (32, 2)]), (16, 16), 16)
    assert str(raised.value) == (
        "ldmatrix.x4: inner stride not 1: a lane moves 8 elements that are neighbours in memory; "
        "those from (0, 0) on lie at [0, 2, 4, 6, 8, 10, 12, 14]"
    )


@pytest.mark.parametrize("tile", ["S[(64,64):(72,1)]", "S[(64,64):(1,64)]", "S[(8,64):(64,1)]"])
def test_a_swizzled_layout_of_another_tile_is_not_counted(tile: str) -> None:
    swizzled = SwizzleLayout(3, 3, 3).over(parse(tile))
    with pytest.raises(LayoutError, match="the swizzled layout is of the tile"):
        evaluate_swizzle(swizzled, (64, 64), 16)
    if "72" in tile:
        bare = evaluate_swizzle(SwizzleLayout(3, 3, 3), (64, 64), 16, pitch=72)
        assert evaluate_swizzle(swizzled, (64, 64), 16, pitch=72) == bare
