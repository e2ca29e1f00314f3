"""What a descriptor visits and what tensor memory holds, as drawn: held to loops over elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import lowering as lw
from layoutalg import (
    ComposeLayout,
    LayoutError,
    S,
    TileLayout,
    draw,
    mma_shared_layout,
    parse,
    tmem_datapath_layout,
    tmem_mma_operand_layout,
    tmem_scale_layout,
)
from layoutalg.draw.pictures.tensor_blocks import TensorBuffer, blocks_of
from layoutalg.draw.scene.palette import EMPTY, HUES, WARP_HUES
from layoutalg.draw.scene.scene import Panel, Scene, text_width
from tests.layoutalg.draw.test_draw import data, strokes

K_TILE = mma_shared_layout("float16", "128B", (64, 64))
MN_TILE = ComposeLayout(3, 3, 3, TileLayout(S[(2, 64, 64) : (4096, 1, 64)]))
BYTES = mma_shared_layout("int8", "32B", (32, 64))
NARROW = ComposeLayout(5, 3, 3, TileLayout(S[(16, 256) : (256, 1)]))  # elements of 4 bits

# layout, shape, bits, rows and columns of the visit, which dimension its chunks lie along
WALKS: dict[str, tuple[Any, tuple[int, int], int, tuple[range, range], int]] = {
    "K-major": (K_TILE, (64, 64), 16, (range(64), range(16)), 1),
    "the next K step": (K_TILE, (64, 64), 16, (range(64), range(16, 32)), 1),
    "MN-major": (MN_TILE, (128, 64), 16, (range(128), range(16)), 0),
    "bytes": (BYTES, (32, 64), 8, (range(16, 32), range(32, 64)), 1),
    "half bytes": (NARROW, (16, 256), 4, (range(16), range(64, 128)), 1),
}


def visited(name: str) -> Any:
    layout, shape, _, (rows, cols), _ = WALKS[name]
    return layout.table(shape)["m"][rows.start : rows.stop, cols.start : cols.stop]


def walk(name: str, **more: Any) -> Scene:
    layout, shape, bits, _, _ = WALKS[name]
    places = {"asked": visited(name)}
    return draw.descriptor.scene(layout, shape, places, bits, lines=(0, 999), **more)


@pytest.mark.parametrize("name", WALKS)
def test_the_chunks_that_are_marked_are_those_of_loops(name: str) -> None:
    layout, shape, bits, (rows, cols), along = WALKS[name]
    unit = 128 // bits
    want = {}
    for row, col in product(rows, cols):
        byte = int(layout.apply(row, col, shape=shape)["m"]) * bits // 8 // 16 * 16
        row_in, col_in = row - rows.start, col - cols.start
        if along:
            core = row_in // 8 * (len(cols) // unit) + col_in // unit
        else:
            core = row_in // unit * (len(cols) // 8) + col_in // 8
        assert want.setdefault(byte, core) == core
    panel = walk(name).panel("visit 0")
    found = {int(data(c)["byte"]): int(data(c)["core"]) for c in panel.cells if "core" in data(c)}
    assert found == want


@pytest.mark.parametrize("name", WALKS)
def test_each_chunk_names_the_element_that_begins_it(name: str) -> None:
    layout, shape, bits, _, _ = WALKS[name]
    panel = walk(name).panel("visit 0")
    assert len(panel.cells) == shape[0] * shape[1] * bits // 128
    for cell in panel.cells:
        said = data(cell)
        place = layout.apply(int(said["row"]), int(said["col"]), shape=shape)["m"]
        assert int(place) * bits == int(said["byte"]) * 8
        label = f"{said['row']},{said['col']}"
        assert label in [text.string for text in within(panel, cell)]


def within(panel: Panel, cell: Any) -> list[Any]:
    right, low = cell.x + cell.width, cell.y + cell.height
    return [t for t in panel.texts if cell.x < t.x < right and cell.y < t.y < low]


def test_a_visit_is_seen_without_colour() -> None:
    """An outline and the number of the core matrix mark each chunk of it, and no other."""
    panel = walk("K-major").panel("visit 0")
    (outlines,) = strokes(panel, "lane")
    corners = {path[0] for path in outlines.paths}
    for cell in panel.cells:
        core = data(cell).get("core")
        numbers = [text.string for text in within(panel, cell) if text.string.startswith("c")]
        assert numbers == ([] if core is None else [f"c{core}"])
        assert ((cell.x, cell.y) in corners) == (core is not None)
        assert (cell.fill == EMPTY) == (core is None)
        if core is not None:
            assert cell.fill == HUES[WARP_HUES[int(core) % 8]][int(core) // 8]


def test_lines_and_visits_are_chosen_and_said() -> None:
    tables = {f"step {n}": K_TILE.table((64, 64))["m"][:, 16 * n : 16 * n + 16] for n in range(3)}
    page = draw.descriptor.scene(K_TILE, (64, 64), tables, 16, lines=(8, 12), names=("m", "kk"))
    assert [panel.name for panel in page.panels[1:-1]] == ["visit 0", "visit 1", "visit 2"]
    assert page.panel("visit 2").cells[0].y > page.panel("visit 1").cells[-1].y  # below the others
    assert {int(data(c)["byte"]) // 128 for c in page.panel("visit 0").cells} == {8, 9, 10, 11}
    said = [text.string for text in page.panel("title").texts]
    assert "shown: lines 8..11 of 64" in said
    assert any("its first is m,kk" in line for line in said)
    assert any("counted along kk first" in line for line in said)
    strings = [text.string for text in page.panel("visit 1").texts]
    assert strings[:2] == ["step 1", "first byte 32: 128 chunks"]


def test_a_hole_of_a_tile_is_empty() -> None:
    padded = TileLayout(S[(8, 64) : (72, 1)])
    page = draw.descriptor.scene(padded, (8, 64), {"all": padded.table((8, 64))["m"]}, 16)
    holes = [c for c in page.panel("visit 0").cells if c.title.startswith("nothing")]
    assert [data(c)["byte"] for c in holes] == [str(144 * n + 128) for n in range(7)] + ["1136"]
    assert all("core" not in data(cell) for cell in holes)


# -- tensor memory --------------------------------------------------------------------------------

BUFFERS = {
    "a lane per row": TensorBuffer("D", tmem_datapath_layout("D", 128, 64), (128, 64)),
    "16 of 32 lanes": TensorBuffer("D", tmem_datapath_layout("F", 64, 24), (64, 24), 32, 8),
    "the upper 16": TensorBuffer("D", tmem_datapath_layout("C", 64, 16, 1), (64, 16)),
    "halves": TensorBuffer(
        "D", tmem_mma_operand_layout("D", (64, 32), 128, 2), (64, 32), 32, 3, (64, 0)
    ),
    "quarters": TensorBuffer("D", tmem_datapath_layout("G", 32, 32), (32, 32)),
    "A, twice": TensorBuffer(
        "A", tmem_mma_operand_layout("A", (64, 32), 128, 2), (64, 32), 16, 0, (64, 0), ("m", "k")
    ),
    "scales": TensorBuffer("SFA", tmem_scale_layout(128, 8), (128, 8), 8, 64),
    "two scales": TensorBuffer("SFB", tmem_scale_layout(64, 2), (64, 2), 8, 7),
    "four-bit elements": TensorBuffer("A", tmem_datapath_layout("A", 128, 64), (128, 64), 4),
    "columns apart": TensorBuffer("D", parse("S[(128,8):(1@TLane,3@TCol)]"), (128, 8)),
    "two rows in turn": TensorBuffer("D", parse("S[(2,64,8):(1@TLane,2@TLane,1@TCol)]"), (128, 8)),
    "four rows in turn": TensorBuffer(
        "D", parse("S[(4,32,8):(1@TLane,4@TLane,1@TCol)]"), (128, 8), 16
    ),
    "every second row": TensorBuffer("D", parse("S[(64,2,8):(1@TLane,64@TLane,1@TCol)]"), (128, 8)),
    "every second lane": TensorBuffer("D", parse("S[(64,8):(2@TLane,1@TCol)]"), (64, 8)),
    "copies in turn": TensorBuffer(
        "D", parse("S[(64,8):(2@TLane,1@TCol)] + R[2:1@TLane]"), (64, 8)
    ),
    "one row": TensorBuffer("v", parse("S[(1,8):(1@TLane,1@TCol)]"), (1, 8)),
    "one column": TensorBuffer("v", parse("S[(64,1):(1@TLane,1@TCol)] + 32@TLane"), (64, 1)),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_blocks_say_what_every_cell_holds(name: str) -> None:
    """Each element and copy, one by one, is in the cell that a block says; others are empty."""
    buffer = BUFFERS[name]
    bits = int(buffer.dtype)
    said = {}
    for block in blocks_of(buffer):
        for lane, column in product(range(*block.lanes), range(*block.columns)):
            assert (lane, column) not in said
            times, turn = divmod(lane - block.lanes[0], len(block.turns))
            held = block.turns[turn]
            said[lane, column] = None
            if held is not None:
                step = (column - block.columns[0]) * (32 // bits)
                said[lane, column] = (held[0] + times * block.step, held[1] + step, held[2])
    seen = set()
    for i, j in np.ndindex(buffer.shape):
        for copy, place in enumerate(buffer.layout.owners(i, j, shape=buffer.shape)):
            whole = int(place.get("TCol", 0))
            cell = (int(place["TLane"]), buffer.column + whole * bits // 32)
            held = said[cell]
            assert held is not None
            first = buffer.origin[1] + j - whole % (32 // bits)
            assert held == (buffer.origin[0] + i, first, copy)
            seen.add(cell)
    assert {cell for cell, held in said.items() if held} == seen


@pytest.mark.parametrize("name", BUFFERS)
def test_no_block_crosses_the_lanes_of_a_warp(name: str) -> None:
    for block in blocks_of(BUFFERS[name]):
        assert block.lanes[0] // 32 == (block.lanes[1] - 1) // 32


def test_blocks_are_no_smaller_than_they_must_be() -> None:
    counts = {name: len(blocks_of(buffer)) for name, buffer in BUFFERS.items()}
    assert counts == {
        "a lane per row": 4, "16 of 32 lanes": 8, "the upper 16": 8, "halves": 4, "quarters": 4,
        "A, twice": 4, "scales": 4 * 8, "two scales": 4 * 2, "four-bit elements": 4,
        "columns apart": 4 * 15, "two rows in turn": 4, "four rows in turn": 4,
        "every second row": 4, "every second lane": 4, "copies in turn": 4, "one row": 5,
        "one column": 4,
    }  # fmt: skip


def test_words_of_a_block_are_ranges_of_its_matrix() -> None:

    def words(name: str) -> list[tuple[str, ...]]:
        return [block.lines(BUFFERS[name]) for block in blocks_of(BUFFERS[name])]

    assert words("scales")[:2] == [("m 0..31", "n 0..3"), ("m 32..63", "n 0..3")]
    assert words("scales")[-1] == ("m 96..127", "n 4..7", "copy 3")
    assert words("two scales")[:2] == [("m 0..31", "n 0..1"), ("m 32..63", "n 0..1")]
    assert words("columns apart")[:2] == [("m 0..31", "n 0"), ()]
    assert words("two rows in turn")[1] == ("m 16..31,", "80..95", "lane by lane", "n 0..7")
    assert words("four rows in turn")[0][:4] == ("m 0..7,", "32..39,", "64..71,", "96..103")
    assert words("every second row")[2] == ("m 1..63 by 2", "n 0..7")
    assert words("every second lane")[0] == ("m 0..15,", "nothing", "lane by lane", "n 0..7")
    assert words("copies in turn")[0][-2:] == ("n 0..7", "copy 0, 1")
    assert words("one column") == [(), ("m 0..31", "n 0"), ("m 32..63", "n 0"), ()]
    assert words("halves") == [
        ("m 64..95", "n 0..15"), ("m 96..127", "n 0..15"),
        ("m 64..95", "n 16..31"), ("m 96..127", "n 16..31"),
    ]  # fmt: skip


def test_copies_are_dashed_and_warps_are_parted() -> None:
    D, scales = BUFFERS["a lane per row"], BUFFERS["scales"]
    page = draw.tensor_memory.scene({"one CTA": [scales, D]})
    panel = page.panel("memory 0")
    copies = [cell for cell in panel.cells if int(data(cell)["copy"]) > 0]
    (dashed,) = strokes(panel, "copy")
    assert dashed.dashes is not None
    assert len(dashed.paths) == len(copies) == 3 * 8
    for path, cell in zip(dashed.paths, copies, strict=True):
        assert cell.x < path[0][0] < path[1][0] < cell.x + cell.width
        assert cell.y < path[0][1] < path[2][1] < cell.y + cell.height
    (parted,) = strokes(panel, "warp")
    tops = sorted({cell.y for cell in panel.cells})
    assert [path[0][1] for path in parted.paths] == tops[1:]
    heads = [text.string for text in panel.texts]
    assert heads.index("D") < heads.index("SFA")  # by their columns
    assert ["0..63", *map(str, range(64, 72))] == [h for h in heads if h[0].isdigit()][:9]
    hues = {data(cell)["columns"]: cell.fill for cell in panel.cells}
    assert hues["0..63"] in HUES[WARP_HUES[1]]  # the second buffer given
    assert hues["64"] in HUES[WARP_HUES[0]]


def test_one_name_has_one_colour_in_both_ctas() -> None:
    page = draw.tensor_memory.scene(
        {f"CTA {n}": [BUFFERS["halves"], BUFFERS["one column"]][n:] for n in range(2)}
    )
    fills = [
        {cell.fill for cell in page.panel(f"memory {n}").cells if cell.title.startswith("v ")}
        for n in range(2)
    ]
    assert fills[0] == fills[1] == {HUES[WARP_HUES[1]][0]}


def test_words_neither_meet_nor_leave_the_page() -> None:
    """Each text of both pictures, as wide and as high as it is set, has a place of its own."""
    long = "a title that goes on and on, longer than what it stands above"
    wide = replace(BUFFERS["one row"], name="a buffer with a long name", column=64)
    pages = [
        draw.tensor_memory.scene({f"{long} {n}": [buffer] for n in range(2)}, width=12)
        for name, buffer in BUFFERS.items()
        if name != "columns apart"
    ]
    pages.append(draw.tensor_memory.scene({"x": [BUFFERS["columns apart"]]}))
    pages.append(draw.tensor_memory.scene({long: [BUFFERS["quarters"], wide]}))
    tables = {f"{long} {n} {long * (n == 1)}": visited("K-major") for n in range(3)}
    pages.append(draw.descriptor.scene(K_TILE, (64, 64), tables, 16, lines=(0, 4)))
    pages.append(draw.descriptor.scene(K_TILE, (64, 64), tables, 16, lines=(0, 4), width=4.6))
    for page in pages:
        boxes = []
        for text in (text for panel in page.panels for text in panel.texts if not text.angle):
            across = text_width(text.string, text.size, text.bold)
            left = text.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[text.anchor] * across
            assert 0 <= left <= left + across <= page.width, text
            boxes.append((left, left + across, text.y - 0.7 * text.size, text.y, text.string))
        for one, other in combinations(boxes, 2):
            apart = one[0] >= other[1] or other[0] >= one[1]
            assert apart or one[2] >= other[3] or other[2] >= one[3], (one, other)


# -- what is refused ------------------------------------------------------------------------------

PLACES = K_TILE.table((64, 64))["m"]
PLAIN = tmem_datapath_layout("D", 128, 8)
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no tile": (lambda: draw.descriptor(K_TILE, (4096,), {"": PLACES}), "a tile in memory is"),
    "registers": (
        lambda: draw.descriptor(parse("S[(8,4):(4@laneid,1@laneid)]"), (8, 4), {"": PLACES}),
        "lies in memory, on axis m; got S",
    ),
    "no visits": (lambda: draw.descriptor(K_TILE, (64, 64), {}), r"\(rows, columns\)\}; got \{\}"),
    "no table": (
        lambda: draw.descriptor(K_TILE, (64, 64), {"a": [0, 8]}), r"'a' must be.*got shape \(2,\)"
    ),
    "fractions": (lambda: draw.descriptor(K_TILE, (64, 64), {"a": PLACES / 2}), "of float64"),
    "outside": (
        lambda: draw.descriptor(K_TILE, (64, 64), {"a": PLACES + 8}), r"0\.\.4095; got 8\.\.4103"
    ),
    "no chunks": (
        lambda: draw.descriptor(K_TILE, (64, 64), {"a": PLACES[:, ::2]}), "chunks of 16 bytes, 8 el"
    ),
    "half a core matrix": (
        lambda: draw.descriptor(K_TILE, (64, 64), {"a": PLACES[:4]}), r"got shape \(4, 64"
    ),
    "no lines": (
        lambda: draw.descriptor(K_TILE, (64, 64), {"a": PLACES}, lines=(64, 80)), "within 0..64"
    ),
    "a narrow page": (
        lambda: draw.descriptor(K_TILE, (64, 64), {"a": PLACES}, width=1.5), "larger than 1.5 in"
    ),
    "a suffix": (
        lambda: draw.descriptor(K_TILE, (64, 64), {"a": PLACES}, path="a.gif"), "descriptor: the s"
    ),
    "no memories": (lambda: draw.tensor_memory({}), r"\{title: \[TensorBuffer, …\]\}; got \{\}"),
    "a list": (lambda: draw.tensor_memory([BUFFERS["quarters"]]), "memories is .* got \\[Tensor"),
    "a buffer alone": (
        lambda: draw.tensor_memory({"a": BUFFERS["quarters"]}), "got TensorB.* for 'a'"
    ),
    "a buffer of a program": (
        lambda: draw.tensor_memory({"a": [lw.Buffer("C", (128, 8), "float32", "tmem", PLAIN)]}),
        "'a' must hold TensorBuffers; got Buffer C.* float32.*TensorBuffer(.*) fits",
    ),
    "a number for a title": (lambda: draw.tensor_memory({3: [BUFFERS["quarters"]]}), "a title is"),
    "half a column": (
        lambda: TensorBuffer("D", PLAIN, (128, 8), 32, 1.5),
        r"column of D is an integer, 0\.\.511; got 1.5",
    ),
    "a number for an origin": (
        lambda: TensorBuffer("D", PLAIN, (128, 8), origin=(1,)), r"D: origin is .* got \(1,\)"
    ),
    "one name": (
        lambda: TensorBuffer("D", PLAIN, (128, 8), names=("m",)), r"names are .* got \('m',\)"
    ),
    "a name that is none": (lambda: TensorBuffer(3, PLAIN, (128, 8)), "one line of text; got 3"),
    "eight rows in turn": (
        lambda: draw.tensor_memory.scene(
            {"x": [TensorBuffer("D", parse("S[(8,16,8):(1@TLane,8@TLane,1@TCol)]"), (128, 8))]}
        ),
        "the label of lanes .* does not fit: rows of D as S",
    ),
    "a long name": (
        lambda: draw.tensor_memory({"x": [TensorBuffer("D" * 99, PLAIN, (128, 8))]}),
        "names take .* inches; pass a larger width.* shorter names",
    ),
    "a line": (
        lambda: draw.descriptor(K_TILE, (64, 64), {"a": PLACES}, lines=(5,)),
        r"lines is \(begin, end\) of 128 bytes, two whole numbers; got \(5,\)",
    ),
    "none of the lines": (
        lambda: draw.descriptor(K_TILE, (64, 64), {"a": PLACES}, lines=None), "lines is.*got None"
    ),
    "a name of two": (
        lambda: draw.descriptor(K_TILE, (64, 64), {"a": PLACES}, names=("k",)), "rows and columns"
    ),
    "rows of several lengths": (
        lambda: draw.descriptor(K_TILE, (64, 64), {"a": [[1, 2], [3]]}), "'a'.*several lengths"
    ),
    "two lines of title": (
        lambda: draw.descriptor(K_TILE, (64, 64), {"a\nb": PLACES}), "a title is one line"
    ),
    "no buffers": (lambda: draw.tensor_memory({"CTA": []}),  r"got \[\] for 'CTA'"),
    "a shared cell": (
        lambda: draw.tensor_memory(
            {"x": [TensorBuffer("D", PLAIN, (128, 8)), TensorBuffer("E", PLAIN, (128, 8), 32, 7)]}
        ),
        "must not overlap; in x, D and E share lane 0, column 7. An",
    ),
    "one name twice": (
        lambda: draw.tensor_memory({"x": [TensorBuffer("D", PLAIN, (128, 8))] * 2}),
        "in x, D and D share lane 0",
    ),
    "too many": (
        lambda: draw.tensor_memory({"x": [TensorBuffer("D", PLAIN, (128, 8))]}, width=1),
        "the blocks and names take .* inches; pass a larger",
    ),
    "another suffix": (
        lambda: draw.tensor_memory({"x": [TensorBuffer("D", PLAIN, (128, 8))]}, path="a.gif"),
        "tensor_memory: the suffix",
    ),
    "no matrix": (lambda: TensorBuffer("D", PLAIN, (1024,)), r"over \(rows, columns\); got"),
    "shared memory": (lambda: TensorBuffer("D", TileLayout(S[(8, 8) : (8, 1)]), (8, 8)), "TLane"),
    "wide": (lambda: TensorBuffer("D", PLAIN, (128, 8), 64), "at most 32 bits; D has 64"),
    "beyond the columns": (
        lambda: TensorBuffer("D", PLAIN, (128, 8), 32, 505), "lanes 0 to 127, columns 505 to 512"
    ),
    "before them": (lambda: TensorBuffer("D", PLAIN, (128, 8), 32, -1), "columns -1 to 6"),
    "beyond the lanes": (
        lambda: TensorBuffer("D", parse("S[(128,1):(2@TLane,1@TCol)]"), (128, 1)), "lanes 0 to 254"
    ),
    "rows in a cell": (
        lambda: TensorBuffer("D", parse("S[(2,64):(1@TCol,1@TLane)]"), (2, 64), 16),
        "up to 2 neighbours of one row",
    ),
    "two in one place": (
        lambda: TensorBuffer("D", parse("S[(64,2):(1@TLane,0@TCol)]"), (64, 2)), "neighbours of one"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_picture_shows_is_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(LayoutError, match=message):
        call()


def test_figures_know_their_scene() -> None:
    figure = draw.tensor_memory({"x": [BUFFERS["quarters"]]})
    assert isinstance(figure, Figure)
    assert figure.scene == draw.tensor_memory.scene({"x": [BUFFERS["quarters"]]})  # type: ignore[attr-defined]
