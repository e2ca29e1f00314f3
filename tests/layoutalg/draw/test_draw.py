"""Pictures are held to the tables that they draw, to the page, and to their own bytes."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.figure import Figure
from PIL import Image

from layoutalg import (
    LayoutError,
    R,
    S,
    TCol,
    TileLayout,
    TLane,
    cbx,
    draw,
    fragments,
    laneid,
    tx,
    warpid,
    wgid,
    wid_in_wg,
)
from layoutalg.draw import gallery
from layoutalg.draw.scene import output, svg
from layoutalg.draw.scene.chosen import chosen_fragments
from layoutalg.draw.scene.formula import digit_rules, digit_values, slot_rules
from layoutalg.draw.scene.mpl import SceneFigure
from layoutalg.draw.scene.naming import index_names, role_of, slot_name, slots_name
from layoutalg.draw.scene.palette import FILLS
from layoutalg.draw.scene.scene import SMALLEST_TEXT, Cell, Panel, Scene, Stroke, Text, text_width
from tests.support.paths import ROOT

D = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
TRIPLE = "mma.m16n8k16.f16"
SVG = "{http://www.w3.org/2000/svg}"

# Every kind of map: one warp, four warps, replicas of lanes and of warps, addresses, tensor memory,
# blocks, one row, tall, and the sizes at which the labels change.
MAPS: dict[str, tuple[TileLayout, tuple[int, ...]]] = {
    "fragment": (D, (16, 8)),
    "no memory axis": (TileLayout(S[(8, 4) : (4 @ laneid, 1 @ laneid)]), (8, 4)),
    "64 x 64": (D.tile_to((64, 64), (16, 8)), (64, 64)),
    "128 x 128": (D.tile_to((128, 128), (16, 8)), (128, 128)),
    "four warps": (
        TileLayout(
            S[
                (2, 2, 8, 2, 2, 4, 2) : (
                    1 @ warpid,
                    2,
                    4 @ laneid,
                    2 @ warpid,
                    4,
                    1 @ laneid,
                    1,
                )
            ]
        ),
        (32, 32),
    ),
    "warpgroup": (
        TileLayout(S[(4, 2, 8, 4, 2) : (1 @ wid_in_wg, 2, 4 @ laneid, 1 @ laneid, 1)]),
        (64, 8),
    ),
    "threads": (TileLayout(S[(8, 16, 2) : (16 @ tx, 1 @ tx, 1)]), (8, 32)),
    "two owners": (
        TileLayout(S[(8, 2, 2) : (4 @ laneid, 1 @ laneid, 1)] + R[2 : 2 @ laneid]),
        (8, 4),
    ),
    "warp owners": (
        TileLayout(
            S[(2, 2, 8, 4, 2) : (1 @ warpid, 2, 4 @ laneid, 1 @ laneid, 1)] + R[2 : 2 @ warpid]
        ),
        (32, 8),
    ),
    "addresses": (TileLayout(S[(8, 8) : (8, 1)]), (8, 8)),
    "tensor memory": (TileLayout(S[(16, 8) : (1 @ TLane, 1 @ TCol)]), (16, 8)),
    "blocks": (TileLayout(S[(2, 4, 8) : (1 @ cbx, 8, 1)]), (8, 8)),
    "one row": (TileLayout(S[(32, 2) : (1 @ laneid, 1)]), (64,)),
    "tall": (TileLayout(S[(256, 2) : (2, 1)]), (256, 2)),
}


def picture_of(name: str) -> tuple[object, ...]:
    """Return all that a picture of an instruction shows, but the types."""
    return tuple(
        (role_of(f), f.shape, str(f.layout), f.bits, f.register_bits, index_names(f))
        for f in chosen_fragments(name)
    )


# The first instruction of each kind of picture.
KINDS = tuple({picture_of(name): name for name in reversed(fragments.names())}.values())[::-1]
ROWS = [(name, operand) for name in KINDS for operand in fragments.operands(name)]


def tiles(scene: Scene) -> list[Panel]:
    """Return the panels that show a tile."""
    return [panel for panel in scene.panels if panel.name not in ("title", "side", "legend")]


def data(cell: Cell) -> dict[str, str]:
    """Return a cell's attributes."""
    return dict(cell.data)


@cache
def scenes() -> list[Scene]:
    """Return a picture of every kind."""
    maps = [draw.lane_map.scene(layout, shape) for layout, shape in MAPS.values()]
    products = [draw.operands.scene("mma.m8n8k4.f16", 16, instead=["A.col", "B.row", "C/D.f16"])]
    return maps + products + [drawn(name) for name in KINDS]


@cache
def drawn(name: str) -> Scene:
    """Return the picture of an instruction."""
    return draw.operands.scene(name)


def strokes(panel: Panel, role: str) -> list[Stroke]:
    """Return a panel's strokes of one role."""
    return [stroke for stroke in panel.strokes if stroke.role == role]


def segments(panel: Panel, role: str) -> set[tuple[tuple[float, float], tuple[float, float]]]:
    """Return the line segments of one role."""
    return {
        pair
        for stroke in strokes(panel, role)
        for path in stroke.paths
        for pair in itertools.pairwise(path)
    }


def box(text: Text) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of a text: its greatest width, a capital's height."""
    width = text_width(text.string, text.size, text.bold)
    start = {"start": 0.0, "middle": -width / 2, "end": -width}[text.anchor]
    if text.angle:
        return text.x - 0.73 * text.size, text.y - start - width, text.x, text.y - start
    return text.x + start, text.y - 0.73 * text.size, text.x + start + width, text.y


# ---------------------------------------------------------------- the cells are the table


@pytest.mark.slow
@pytest.mark.parametrize(("instruction", "operand"), ROWS)
def test_each_cell_names_the_lanes_and_the_slot_of_the_fragment(
    instruction: str, operand: str
) -> None:
    fragment = fragments.get(instruction, operand)
    named: dict[tuple[int, ...], tuple[set[int], str]] = {}
    for lane, slots in enumerate(fragment.holds.tolist()):
        for slot, place in enumerate(slots):
            lanes, _ = named.setdefault(tuple(place), (set(), ""))
            named[tuple(place)] = lanes | {lane}, slot_name(fragment, slot)
    shown = {}
    for product in range(fragment.products):
        scene = draw.operands.scene(instruction, None, instead=[operand], product=product)
        cells = scene.panel(operand).cells
        for cell in map(data, cells):
            lanes = {
                32 * int(warp) + int(lane)
                for warp, lane in itertools.product(
                    cell.get("warp", "0").split(), cell["lane"].split()
                )
            }
            place = (int(cell["row"]), int(cell["col"]))
            key = place if fragment.products == 1 else (product, *place)
            shown[key] = lanes, cell["register"]
        assert len(cells) == fragment.shape[0] * fragment.shape[1]
    assert shown == named


@pytest.mark.slow
def test_every_instruction_is_drawn_with_its_operands() -> None:
    for name in fragments.names():
        scene = drawn(name)
        assert {panel.name for panel in tiles(scene)} == {f.operand for f in chosen_fragments(name)}
        assert all(strokes(panel, "lane") for panel in tiles(scene))
        assert (scene.width, scene.height) <= (7 * 72, 9.6 * 72)


@pytest.mark.parametrize("lane", [0, 5, 31])
def test_the_outline_encloses_the_cells_of_the_lane_and_no_other(lane: int) -> None:
    scene = draw.operands.scene(TRIPLE, lane=lane)
    for operand in ("A", "B", "C/D.f32"):
        panel = scene.panel(operand)
        held = {c for c in panel.cells if data(c)["lane"] == str(lane)}
        edges: set[tuple[float, ...]] = set()
        for cell in held:
            x, y, right, low = cell.x, cell.y, cell.x + cell.width, cell.y + cell.height
            for edge in (
                (x, y, x, low),
                (right, y, right, low),
                (x, y, right, y),
                (x, low, right, low),
            ):
                edges ^= {tuple(round(v, 6) for v in edge)}
        (stroke,) = strokes(panel, "lane")
        half = stroke.width / 2
        drawn = set()
        for (x0, y0), (x1, y1) in stroke.paths:
            across = y0 == y1
            size = held_size(panel, across)
            begin, end = (x0, x1) if across else (y0, y1)
            for n in range(round((end - begin - 2 * half) / size)):
                a, b = begin + half + n * size, begin + half + (n + 1) * size
                edge = (a, y0, b, y0) if across else (x0, a, x0, b)
                drawn.add(tuple(round(v, 6) for v in edge))
        assert drawn == edges
        assert stroke.color == "#000000"
        coords = fragments.get(TRIPLE, operand).coords[lane].tolist()
        assert sorted((int(data(c)["row"]), int(data(c)["col"])) for c in held) == sorted(
            map(tuple, coords)
        )


def held_size(panel: Panel, across: bool) -> float:
    """Return the width or the height of a panel's cells."""
    return panel.cells[0].width if across else panel.cells[0].height


def test_bold_labels_are_those_of_the_lane() -> None:
    panel = draw.operands.scene(TRIPLE, lane=5).panel("A")
    bold = [t.string for t in panel.texts if t.bold and t.string[0] in "Ta"]
    assert sorted(bold) == sorted(["T5"] * 8 + [f"a{slot}" for slot in range(8)])


def test_rows_of_a_are_rows_of_d_and_columns_of_b_are_columns_of_d() -> None:
    for instruction in KINDS:
        if not instruction.startswith("mma"):
            continue
        scene = draw.operands.scene(instruction)
        panels = {panel.name.split("/")[0]: panel.cells for panel in tiles(scene)}
        a, b, d = panels["A"], panels["B"], panels["C"]
        for name, along in (("SFA", a), ("SFB", b), ("E", a)):
            beside = panels.get(name, along)
            if name == "SFA":
                assert {(c.y, c.height) for c in beside} == {(c.y, c.height) for c in along}
                assert max(c.x for c in beside) <= max(c.x for c in along)
            else:
                assert {(c.x, c.width) for c in beside} == {(c.x, c.width) for c in along}
        if "SFA" in panels:
            assert max(c.x for c in panels["SFA"]) < min(c.x for c in a)
            assert max(c.y for c in panels["SFB"]) < min(c.y for c in b)
        if "E" in panels:
            assert min(c.y for c in panels["E"]) > max(c.y for c in a)
        assert {(c.y, c.height) for c in a} == {(c.y, c.height) for c in d}
        assert {(c.x, c.width) for c in b} == {(c.x, c.width) for c in d}
        assert max(c.x for c in a) < min(c.x for c in d)
        assert max(c.y for c in b) < min(c.y for c in d)


# ---------------------------------------------------------------- marks


def test_the_seam_at_row_8_is_dashed_and_the_frame_is_solid() -> None:
    scene = draw.operands.scene(TRIPLE)
    for name in ("A", "B", "C/D.f32"):
        panel = scene.panel(name)
        (block,) = strokes(panel, "block")
        assert block.dashes is not None
        seam = next(c.y for c in panel.cells if data(c)["row"] == "8")
        left = min(c.x for c in panel.cells)
        right = max(c.x + c.width for c in panel.cells)
        assert ((left, seam), (right, seam)) in segments(panel, "block")
        (frame,) = strokes(panel, "instruction")
        assert frame.dashes is None


def test_a_block_line_never_crosses_a_label() -> None:
    for scene in scenes():
        for panel in tiles(scene):
            labels = [box(t) for t in panel.texts if not t.color.startswith("#4")]
            left, top, right, low = np.array(labels).reshape(-1, 4).T
            for (x0, y0), (x1, y1) in segments(panel, "block"):
                upright = (left < x0) & (x0 < right) & (y0 < low) & (top < y1)
                level = (top < y0) & (y0 < low) & (x0 < right) & (left < x1)
                assert not (upright if x0 == x1 else level).any()


@pytest.mark.parametrize(("operand", "count"), [("A", 128), ("B", 64), ("C/D.f32", 0)])
def test_one_bracket_joins_the_slots_of_one_register(operand: str, count: int) -> None:
    fragment = fragments.get(TRIPLE, operand)
    panel = draw.operands.scene(TRIPLE).panel(operand)
    brackets = [path for stroke in strokes(panel, "word") for path in stroke.paths]
    assert len(brackets) == count == (fragment.registers * 32 if operand in "AB" else 0)
    packed = fragment.register_bits // fragment.bits
    for path in brackets:
        ends = [path[0], path[-1]]
        joined = [c for c in panel.cells for x, y in ends if inside(c, x, y)]
        assert len(joined) == 2
        assert len({data(c)["lane"] for c in joined}) == 1
        slots = [int(data(c)["register"][1:]) for c in joined]
        assert [slot // packed for slot in slots] == [slots[0] // packed] * 2
        assert slots[1] == slots[0] + 1


@pytest.mark.parametrize(
    ("name", "label", "lane", "count"),
    [
        ("mma.m8n8k4.f64", "a0", "T31", 1),
        ("mma.m16n8k32.s8", "a12..15", "T31", 2),
        ("mma.m16n8k64.s4", "b8..15", "T31", 2),
        ("mma.m16n8k256.b1", "a96..127", "T31", 2),
        ("mma.sp.m16n8k32.f16", "e8..15", "T29 +1", 0),
        ("mma.m16n8k64.mxf4.e2m1.ue8m0", "sfa0..1", "T29 +1", 0),
        ("ldmatrix.m8n8.x1.b16", "r0.1", "T31", 1),
    ],
)
def test_every_fragment_names_its_registers(name: str, label: str, lane: str, count: int) -> None:
    strings = [text.string for panel in tiles(draw.operands.scene(name)) for text in panel.texts]
    if count:
        assert strings.count(label) == 32
        assert strings.count(lane) >= count
    else:
        assert any(string.endswith(label) for string in strings)
        assert any(string.startswith(lane) for string in strings)


def test_a_register_is_named_by_its_slots() -> None:
    a, _, d = fragments.rows("mma.m16n8k32.s8")
    assert [slots_name(a, n, n + 3) for n in (0, 12)] == ["a0..3", "a12..15"]
    assert [slots_name(d, n, n) for n in (0, 3)] == ["c0", "c3"]
    assert slots_name(fragments.get("ldmatrix.m8n8.x2.b16", "dst"), 2, 3) == "r1"


def test_a_long_list_flows_into_columns_under_one_heading() -> None:
    side = draw.operands.scene("wgmma.m64n48").panel("side")
    lines = {t.string: t for t in side.texts if re.fullmatch(r"d\d+", t.string)}
    assert list(lines) == [f"d{slot}" for slot in range(24)]
    assert len({t.x for t in lines.values()}) > 1
    assert len({t.y for t in lines.values()}) <= 12
    assert [t.string for t in side.texts].count("D") == 1


def test_a_longer_list_ends_with_the_rule() -> None:
    side = draw.operands.scene("wgmma.m64n256").panel("side")
    strings = [t.string for t in side.texts]
    assert [s for s in strings if re.fullmatch(r"d\d+", s)] == [f"d{slot}" for slot in range(12)]
    rule = str(fragments.get("wgmma.m64n256", "D.f32").formula)
    assert f"\u2026 d127; {rule}" in " ".join(strings)
    assert "j < 32, rM < 2, rN < 2" in strings


def test_a_register_of_many_slots_is_one_line_of_the_side_panel() -> None:
    side = draw.operands.scene("mma.m16n8k256.b1").panel("side")
    strings = [text.string for text in side.texts]
    assert "a64..95" in strings
    assert "(g, 32t + 128..159)" in strings
    assert "(1, 160..191)" in strings


def test_copies_are_counted_and_the_outlined_lane_is_named_first() -> None:
    scene = draw.operands.scene("mma.m16n8k64.mxf4.e2m1.ue8m0", lane=7)
    strings = [text.string for text in scene.panel("side").texts]
    assert strings.count("2 copies") == strings.count("4 copies") == 1
    held = [c for c in scene.panel("SFB").cells if "7" in data(c)["lane"].split()]
    assert {c.title.split(" ")[0] for c in held} == {"T7"}
    assert {data(c)["lane"] for c in held} == {"7 4 5 6"}
    assert "T7 +3" in [text.string for text in scene.panel("SFB").texts if text.bold]


def test_one_of_several_products_is_drawn_that_of_the_lane() -> None:
    name = "mma.m8n8k4.f16"
    scene = draw.operands.scene(name, lane=22)
    strings = [text.string for text in scene.panel("side").texts]
    assert "product 1 of 4: q = 1, lanes 4..7, 20..23" in strings
    lanes = {data(c)["lane"] for panel in tiles(scene) for c in panel.cells}
    assert lanes == {str(lane) for lane in (4, 5, 6, 7, 20, 21, 22, 23)}
    heads = [t.string for t in scene.panel("legend").texts if t.string.startswith("g=")]
    assert heads == ["g=1", "g=5"]
    bare = draw.operands.scene(name, product=3)
    assert not any(strokes(panel, "lane") for panel in tiles(bare))
    assert not [t for t in bare.panel("side").texts if t.string.startswith("lane 5")]


def test_a_tile_and_its_transpose_stand_side_by_side() -> None:
    src, dst = (drawn("movmatrix.m8n8.trans.b16").panel(name).cells for name in ("src", "dst"))
    assert {c.y for c in src} == {c.y for c in dst}
    assert max(c.x + c.width for c in src) + 18 <= min(c.x for c in dst)
    places = {(data(c)["lane"], data(c)["register"], data(c)["row"], data(c)["col"]) for c in src}
    assert {(d["lane"], d["register"], d["col"], d["row"]) for d in map(data, dst)} == places


def test_accumulators_and_other_forms_are_chosen() -> None:
    def shown(name: str, **chosen: Any) -> list[str]:
        return [panel.name for panel in tiles(draw.operands.scene(name, **chosen))]

    assert shown(TRIPLE, accumulator="f16") == ["A", "B", "C/D.f16"]
    assert shown(TRIPLE, accumulator="C/D.f16") == ["A", "B", "C/D.f16"]
    assert shown("wgmma.m64n32", accumulator="s32") == ["D.s32"]
    assert shown("mma.m8n8k4.f16", instead=["B.row", "A.col"]) == ["A.col", "B.row", "C/D.f32"]


def inside(cell: Cell, x: float, y: float) -> bool:
    """Tell whether a point lies in a cell."""
    return cell.x <= x <= cell.x + cell.width and cell.y <= y <= cell.y + cell.height


def test_where_registers_are_narrow_one_label_stands_for_all_their_slots() -> None:
    scene = draw.operands.scene(TRIPLE, width=5)
    strings = [text.string for text in scene.panel("A").texts]
    assert strings.count("a6..7") == 32
    assert "a6" not in strings


def test_headers_number_rows_and_columns_and_bracket_the_ranges() -> None:
    panel = draw.operands.scene(TRIPLE).panel("B")
    top, left = min(c.y for c in panel.cells), min(c.x for c in panel.cells)
    over = [t for t in panel.texts if t.y < top and t.string.isdigit()]
    beside = [t for t in panel.texts if t.x < left and t.string.isdigit()]
    assert [t.string for t in over] == list(map(str, range(8)))
    assert [t.string for t in beside] == list(map(str, range(16)))
    for text in over:
        column = next(c for c in panel.cells if data(c)["col"] == text.string)
        assert text.x == pytest.approx(column.x + column.width / 2)
    for text in beside:
        row = next(c for c in panel.cells if data(c)["row"] == text.string)
        assert row.y < text.y < row.y + row.height
    assert [t.string for t in panel.texts if t.angle] == ["k 0..7", "k 8..15"]
    (ranges,) = strokes(panel, "rows")
    assert len(ranges.paths) == 2


def test_the_side_panel_gives_g_and_t_and_the_place_of_every_slot() -> None:
    side = draw.operands.scene(TRIPLE, lane=5).panel("side")
    strings = [text.string for text in side.texts]
    assert "g = lane // 4, t = lane mod 4" in strings
    assert "lane 5: g = 1, t = 1" in strings
    lines = {
        text.string: [t.string for t in sorted(side.texts, key=lambda t: t.x) if same_line(text, t)]
        for text in side.texts
        if re.fullmatch(r"c\d", text.string)
    }
    assert {name: line[-2:] for name, line in lines.items()} == {
        "c0": ["(g, 2t)", "(1, 2)"],
        "c1": ["(g, 2t + 1)", "(1, 3)"],
        "c2": ["(g + 8, 2t)", "(9, 2)"],
        "c3": ["(g + 8, 2t + 1)", "(9, 3)"],
    }


def same_line(one: Text, other: Text) -> bool:
    """Tell whether a text stands right of another, or is it."""
    return other.y == one.y and other.x >= one.x


@pytest.mark.parametrize(("instruction", "operand"), ROWS)
def test_each_rule_in_the_side_panel_holds_for_all_lanes(instruction: str, operand: str) -> None:
    fragment = fragments.get(instruction, operand)
    coords = fragment.coords
    for count in (1, 2, 4, 8):
        for slot in range(0, fragment.slots - count + 1, count):
            steps = np.diff(coords[:, slot : slot + count], axis=1)
            in_a_row = (steps == steps[:, :1]).all() and set(steps.reshape(-1).tolist()) <= {0, 1}
            rules = slot_rules(fragment, slot, count)
            assert (rules is not None) == in_a_row
            for dimension, rule in enumerate(rules or ()):
                first, last = coords[:, slot, dimension], coords[:, slot + count - 1, dimension]
                assert (evaluated(rule, len(coords)) == first).all()
                ends = re.search(r"(\d+)\.\.(\d+)$", rule)
                assert (last - first == (int(ends[2]) - int(ends[1]) if ends else 0)).all()


def evaluated(rule: str, lanes: int) -> npt.NDArray[np.int64]:
    """Compute a rule such as ``16w + g + 2t + 8`` for every lane; a range counts as its begin."""
    lane = np.arange(lanes)
    letters = {"w": lane // 32, "g": lane % 32 // 4, "t": lane % 4, "": np.ones_like(lane)}
    letters |= {"lane": lane % 32, "r": lane % 16, "q": lane // 4 % 4, "h": lane // 16 % 2}
    letters |= {"t0": lane % 2, "t1": lane // 2 % 2}
    total = np.zeros_like(lane)
    for term in rule.split(" + "):
        match = re.fullmatch(r"(\d*)(lane|t0|t1|[wgtrqh]?)(\.\.\d+)?", term)
        assert match is not None
        total += int(match[1] or 1) * letters[match[2]]
    return total


@pytest.mark.parametrize("warps", [False, True])
def test_the_digits_are_what_their_definitions_say(warps: bool) -> None:
    rules = digit_rules(["lane + r + q + h + t0 + t1"], warps)
    for lane in range(128 if warps else 32):
        known = {"lane": lane, "thread": lane}
        for rule in rules:
            letter, _, term = rule.partition(" = ")
            known[letter] = eval(term.replace("mod", "%"), {}, known)
        assert digit_values(lane, rules) == tuple(
            f"{letter} = {known[letter]}" for letter in (r.split(" ")[0] for r in rules)
        )


# ---------------------------------------------------------------- the page


def test_no_text_is_under_5_points_and_all_of_it_is_on_the_page() -> None:
    for scene in scenes():
        for panel in scene.panels:
            for text in panel.texts:
                assert text.size >= SMALLEST_TEXT
                left, top, right, low = box(text)
                assert min(left + 0.01, top) >= 0, (scene.title, text)
                assert right <= scene.width + 0.01, (scene.title, text)
                assert low <= scene.height, (scene.title, text)


def test_no_two_texts_overlap() -> None:
    for scene in scenes():
        boxes = np.array([box(text) for panel in scene.panels for text in panel.texts])
        left, top, right, low = boxes.T
        order = np.argsort(left)
        for n, i in enumerate(order):
            later = order[n + 1 :]
            later = later[: np.searchsorted(left[later], right[i] - 0.01)]
            over = (top[later] < low[i] - 0.01) & (low[later] > top[i] + 0.01)
            assert not over.any(), (scene.title, boxes[i], boxes[later[over]])


def test_a_label_lies_inside_its_cell_or_its_run() -> None:
    for scene in scenes():
        for panel in tiles(scene):
            edge = (
                min(c.x for c in panel.cells),
                min(c.y for c in panel.cells),
                max(c.x + c.width for c in panel.cells),
                max(c.y + c.height for c in panel.cells),
            )
            ruled = segments(panel, "grid")
            for text in panel.texts:
                left, top, right, low = box(text)
                if not (edge[0] <= text.x <= edge[2] and edge[1] <= text.y <= edge[3]):
                    continue
                assert edge[0] <= left
                assert edge[1] <= top
                assert right <= edge[2]
                assert low <= edge[3]
                for (x0, y0), (x1, y1) in ruled:
                    assert not (x0 == x1 and left < x0 < right and y0 < low and top < y1), text
                    assert not (y0 == y1 and top < y0 < low and x0 < right and left < x1), text


def test_the_triple_fits_two_columns_of_a_paper() -> None:
    scene = draw.operands.scene(TRIPLE)
    assert scene.width <= 7 * 72
    assert scene.height <= 9 * 72


@pytest.mark.parametrize(
    ("kind", "lane_named", "register_named", "inches"),
    [("fragment", True, True, 3.4), ("64 x 64", True, False, 7), ("128 x 128", False, False, 7)],
)
def test_detail_follows_from_the_size_of_a_cell(
    kind: str, lane_named: bool, register_named: bool, inches: float
) -> None:
    layout, shape = MAPS[kind]
    scene = draw.lane_map.scene(layout, shape)
    strings = {text.string for text in scene.panel("map").texts}
    assert ("T17" in strings) is lane_named
    assert ("m3" in strings) is register_named
    assert scene.width <= inches * 72
    assert scene.panel("legend").cells


def test_a_width_is_kept() -> None:
    assert draw.lane_map.scene(*MAPS["64 x 64"], width=3.4).width <= 3.4 * 72
    assert draw.operands.scene(TRIPLE, width=5).width <= 5 * 72
    with pytest.raises(LayoutError, match="7 fits"):
        draw.operands.scene(TRIPLE, width=0.5)
    with pytest.raises(LayoutError, match="Pass a larger width"):
        draw.lane_map.scene(*MAPS["128 x 128"], width=0.5)


# ---------------------------------------------------------------- all owners, all axes


def test_every_owner_is_in_the_tooltip_and_selectable() -> None:
    layout, shape = MAPS["two owners"]
    scene = draw.lane_map.scene(layout, shape)
    table = layout.table(shape, replicas=True)
    for cell in scene.panel("map").cells:
        where = int(data(cell)["row"]), int(data(cell)["col"])
        lanes = table["laneid"][where].tolist()
        assert len(lanes) == 2
        m = table["m"][where].tolist()
        owners = ", ".join(f"T{lane} m{slot}" for lane, slot in zip(lanes, m, strict=True))
        assert cell.title == f"{owners} {where}"
        assert data(cell)["lane"].split() == [str(lane) for lane in lanes]
        assert (cell.fill, cell.corner) == (FILLS[lanes[0]], FILLS[lanes[1]])
    strings = [text.string for text in scene.panel("map").texts]
    assert strings.count("T0 +1") == 2
    legend = [text.string for text in scene.panel("legend").texts]
    assert "two owners" in legend
    assert "+n: n more owners" in legend


def test_a_second_owner_is_outlined_too() -> None:
    panel = draw.lane_map.scene(*MAPS["two owners"], lane=7).panel("map")
    assert {data(c)["lane"] for c in panel.cells if "7" in data(c)["lane"].split()} == {"7 5"}
    assert strokes(panel, "lane")


def test_replicas_in_one_lane_are_counted_at_the_register() -> None:
    layout = TileLayout(S[(8, 4) : (4 @ laneid, 1 @ laneid)] + R[2:1])
    scene = draw.lane_map.scene(layout, (8, 4))
    assert scene.panel("map").cells[5].title == "T5 m0, T5 m1 (1, 1)"
    strings = {text.string for text in scene.panel("map").texts}
    assert "m0 +1" in strings
    assert "T5" in strings


def test_warps_have_hues_and_thick_boundaries() -> None:
    panel = draw.lane_map.scene(*MAPS["four warps"], lane=37).panel("map")
    hues: dict[str, set[str]] = {}
    for cell in panel.cells:
        hues.setdefault(data(cell)["warp"], set()).add(cell.fill)
    assert sorted(hues) == ["0", "1", "2", "3"]
    assert len(set.union(*hues.values())) == sum(map(len, hues.values())) == 16
    (warp,) = strokes(panel, "warp")
    (block,) = strokes(panel, "block")
    assert warp.width > 2 * block.width
    assert len(warp.paths) == 2
    half = next(c.y for c in panel.cells if data(c)["row"] == "16")
    assert half in {y for path in warp.paths for _, y in path}
    held = [c for c in panel.cells if (data(c)["warp"], data(c)["lane"]) == ("1", "5")]
    assert len(held) == 8
    (line,) = strokes(panel, "lane")
    assert min(y for path in line.paths for _, y in path) == pytest.approx(
        min(c.y for c in held) - line.width / 2
    )


def test_threads_of_a_block_have_the_hue_of_their_warp() -> None:
    panel = draw.lane_map.scene(*MAPS["threads"], lane=37).panel("map")
    cell = next(c for c in panel.cells if c.title.startswith("T37 "))
    assert (data(cell)["warp"], data(cell)["lane"]) == ("1", "5")
    assert cell.fill != next(c for c in panel.cells if c.title.startswith("T5 ")).fill


def test_one_warp_of_a_block_is_coloured_by_4_lane_groups() -> None:
    layout = TileLayout(S[(8, 4) : (4 @ laneid, 1 @ laneid)] + 3 @ warpid)
    panel = draw.lane_map.scene(layout, (8, 4), lane=3 * 32 + 5).panel("map")
    assert len({c.fill for c in panel.cells}) == 32
    assert {data(c)["warp"] for c in panel.cells} == {"3"}
    assert strokes(panel, "lane")
    assert not strokes(panel, "warp")


def test_warpgroups_count_four_warps() -> None:
    layout = TileLayout(S[(2, 4, 8, 4) : (1 @ wgid, 1 @ wid_in_wg, 4 @ laneid, 1 @ laneid)])
    panel = draw.lane_map.scene(layout, (64, 4)).panel("map")
    last = panel.cells[-1]
    assert last.title == "G1W3T31 (63, 3)"
    assert (data(last)["warp"], data(last)["lane"]) == ("7", "31")


def test_addresses_are_written_where_there_are_no_threads() -> None:
    scene = draw.lane_map.scene(*MAPS["addresses"])
    panel = scene.panel("map")
    inner = [t.string for t in panel.texts if t.y > panel.cells[0].y and t.x > panel.cells[0].x]
    assert inner == [str(n) for n in range(64)]
    assert [data(c)["register"] for c in panel.cells] == inner
    assert panel.cells[9].title == "9 (1, 1)"
    assert len({c.fill for c in panel.cells}) == 32
    assert not strokes(panel, "lane")


def test_both_coordinates_of_tensor_memory_are_written() -> None:
    panel = draw.lane_map.scene(*MAPS["tensor memory"]).panel("map")
    assert panel.cells[8 * 3 + 5].title == "TLane3 TCol5 (3, 5)"
    strings = [text.string for text in panel.texts]
    assert strings.count("TLane3") == 8
    assert strings.count("TCol5") == 16


def test_blocks_have_a_hue_and_an_attribute() -> None:
    panel = draw.lane_map.scene(*MAPS["blocks"]).panel("map")
    assert {(data(c)["cbx"], c.fill) for c in panel.cells} == {
        ("0", panel.cells[0].fill),
        ("1", panel.cells[-1].fill),
    }
    assert panel.cells[0].fill != panel.cells[-1].fill


def test_a_swizzled_layout_is_drawn() -> None:
    from layoutalg import ComposeLayout

    layout = ComposeLayout(0, 3, 3, TileLayout(S[(8, 8) : (8, 1)]))
    panel = draw.lane_map.scene(layout, (8, 8)).panel("map")
    drawn = [int(data(c)["register"]) for c in panel.cells]
    assert drawn == layout.table((8, 8))["m"].reshape(-1).tolist()
    assert drawn != list(range(64))


def test_one_dimension_is_one_row() -> None:
    panel = draw.lane_map.scene(*MAPS["one row"]).panel("map")
    assert {c.y for c in panel.cells} == {panel.cells[0].y}
    assert [int(data(c)["col"]) for c in panel.cells] == list(range(64))


def test_instructions_in_a_tile_have_solid_lines() -> None:
    scene = draw.lane_map.scene(*MAPS["64 x 64"], instruction=(16, 8))
    panel = scene.panel("map")
    (solid,) = strokes(panel, "instruction")
    assert len(solid.paths) == 3 + 7 + 1
    assert "instruction" in [text.string for text in scene.panel("legend").texts]
    assert not [
        t
        for t in draw.lane_map.scene(D, (16, 8)).panel("legend").texts
        if t.string == "instruction"
    ]


def test_a_register_prefix_and_a_title_are_taken() -> None:
    scene = draw.lane_map.scene(D, (16, 8), register="c", title="the accumulator")
    assert scene.panel("map").cells[0].title == "T0 c0 (0, 0)"
    assert [text.string for text in scene.panel("title").texts] == ["the accumulator"]
    assert [t.string for t in draw.lane_map.scene(D, (16, 8)).panel("title").texts] == [str(D)]


def test_the_legend_says_each_lane_s_colour() -> None:
    scene = draw.lane_map.scene(D, (16, 8), lane=5)
    legend = scene.panel("legend")
    named = {}
    for cell in legend.cells:
        (name,) = [
            t.string
            for t in legend.texts
            if inside(cell, t.x, t.y) and t.string.isdigit() and t.anchor == "middle"
        ]
        named[name] = cell.fill
    assert named == {data(c)["lane"]: c.fill for c in scene.panel("map").cells}
    assert "lane 5" in [text.string for text in legend.texts]


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw.lane_map(D, (16, 8), lane=32), "got lane 32. Owners are 0..31"),
        (lambda: draw.lane_map(D, (16, 8), lane=-1), "got lane -1. Owners are 0..31"),
        (lambda: draw.operands(TRIPLE, lane=99), "operands: lane must own .* lane 99"),
        (lambda: draw.lane_map(*MAPS["addresses"], lane=3), "no axis of the layout counts threads"),
        (
            lambda: draw.lane_map(D, (16, 8), lane=cast("int", "5")),
            "lane is a thread's number.*'5'",
        ),
        (lambda: draw.lane_map(D, (2, 8, 8)), r"one or two dimensions.*\(2, 8, 8\).*group"),
        (lambda: draw.lane_map(D, ()), r"one or two dimensions.*\(\)"),
        (lambda: draw.lane_map(D, (16, 16)), "256"),
        (lambda: draw.lane_map(D, (16, 8), instruction=(0, 8)), r"instruction.*\(0, 8\)"),
        (lambda: draw.lane_map(D, (16, 8), path="a.gif"), r"'\.gif'.*\.pdf, \.png, \.svg"),
        (lambda: draw.operands(TRIPLE, path="triple"), r"operands: .*got ''.*\.pdf, \.png, \.svg"),
        (lambda: draw.operands("mma.m16n8k17.f16"), "mma.m16n8k16.f16"),
        (lambda: draw.operands(TRIPLE, accumulator="C/D.f64"), r"C/D\.f64.*C/D\.f32"),
        (lambda: draw.operands(TRIPLE, instead=["C/D.f64"]), r"A, B, C/D\.f32.*got 'C/D\.f64'"),
        (lambda: draw.operands(TRIPLE, product=1), r"product is one of 0\.\.0 .*got 1"),
        (
            lambda: draw.operands("mma.m8n8k4.f16", lane=6, product=0),
            r"lane 6 forms product 1.*product 0 are 0\.\.3, 16\.\.19",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(
    call: Callable[[], Figure], message: str
) -> None:
    with pytest.raises(LayoutError, match=message):
        call()


def test_the_default_lane_outlines_nothing_where_there_is_none() -> None:
    small = TileLayout(S[(2, 2) : (2 @ laneid, 1 @ laneid)])
    assert not strokes(draw.lane_map.scene(small, (2, 2)).panel("map"), "lane")
    assert not strokes(draw.lane_map.scene(D, (16, 8), lane=None).panel("map"), "lane")
    assert strokes(draw.lane_map.scene(small, (2, 2), lane=3).panel("map"), "lane")
    side = draw.operands.scene(TRIPLE, lane=None).panel("side")
    assert not [text for text in side.texts if text.string.startswith("lane")]


# ---------------------------------------------------------------- SVG


def test_the_svg_has_real_text_tooltips_and_attributes() -> None:
    root = ElementTree.fromstring(draw.operands.svg(TRIPLE, lane=5))
    for operand in ("A", "B", "C/D.f32"):
        fragment = fragments.get(TRIPLE, operand)
        group = next(g for g in root.iter(f"{SVG}g") if g.get("data-panel") == operand)
        cells = [e for e in group.iter() if e.get("data-lane") is not None]
        drawn = {
            (int(e.get("data-lane", "")), e.get("data-register")): (
                int(e.get("data-row", "")),
                int(e.get("data-col", "")),
            )
            for e in cells
        }
        assert len(cells) == len(drawn) == fragment.coords[..., 0].size
        for lane, slots in enumerate(fragment.coords.tolist()):
            for slot, place in enumerate(slots):
                name = slot_name(fragment, slot)
                assert drawn[lane, name] == tuple(place)
        for e in cells:
            title = e.find(f"{SVG}title")
            assert title is not None
            assert title.text is not None
            where = f"({e.get('data-row')}, {e.get('data-col')})"
            assert title.text == f"T{e.get('data-lane')} {e.get('data-register')} {where}"
        words = [t.text for t in group.iter(f"{SVG}text")]
        for lane in range(32):
            assert words.count(f"T{lane}") == fragment.slots
        for slot in range(fragment.slots):
            assert words.count(slot_name(fragment, slot)) == 32
        dashed = [e for e in group.iter(f"{SVG}path") if e.get("data-role") == "block"]
        assert len(dashed) == 1
        assert dashed[0].get("stroke-dasharray") == "2.4 1.8"
        scaled = next(g for g in group.iter(f"{SVG}g") if "scale" in g.get("transform", ""))
        height = float(scaled.get("transform", "").split()[-1].rstrip(")"))
        assert f"M0 {8 * height:g}H" in dashed[0].get("d", "")
        assert [e for e in group.iter() if e.get("data-role") == "lane"]


def test_cells_of_the_svg_lie_where_the_scene_has_them() -> None:
    layout, shape = MAPS["fragment"]
    scene = draw.lane_map.scene(layout, shape)
    root = ElementTree.fromstring(draw.lane_map.svg(layout, shape))
    places = {(data(c)["row"], data(c)["col"]): c for c in scene.panel("map").cells}
    group = next(g for g in root.iter(f"{SVG}g") if g.get("data-panel") == "map")
    scaled = next(g for g in group.iter(f"{SVG}g") if "scale" in g.get("transform", ""))
    x0, y0, width, height = map(float, re.findall(r"-?[\d.]+", scaled.get("transform", "")))
    count = 0
    for fill in scaled:
        for e in fill:
            cell = places[e.get("data-row", ""), e.get("data-col", "")]
            x, y = map(float, re.findall(r"-?[\d.]+", e.get("d", ""))[:2])
            assert (x0 + x * width, y0 + y * height) == pytest.approx((cell.x, cell.y), abs=0.02)
            assert fill.get("fill") == cell.fill
            count += 1
    assert count == 128


def test_the_second_owner_s_corner_lies_in_its_cell() -> None:
    layout, shape = MAPS["two owners"]
    cells = draw.lane_map.scene(layout, shape).panel("map").cells
    root = ElementTree.fromstring(draw.lane_map.svg(layout, shape))
    group = next(g for g in root.iter(f"{SVG}g") if g.get("data-panel") == "map")
    paths = [e for e in group.iter(f"{SVG}path") if e.get("fill") and e.get("d")]
    corners: list[tuple[str | None, int, int]] = []
    for path in paths:
        numbers = list(map(float, re.findall(r"-?[\d.]+", path.get("d", ""))))
        x, y, right, down, rise, run = numbers
        spots = [(x + right, y + down), (x + right, y + down + rise)]
        spots.append((x + right + run, y + down + rise))
        for u, v in spots:
            assert x <= u <= x + 1
            assert y <= v <= y + 1
        corners.append((path.get("fill"), int(y), int(x)))
    assert sorted(corners, key=str) == sorted(
        ((c.corner, int(data(c)["row"]), int(data(c)["col"])) for c in cells), key=str
    )


def test_texts_of_the_svg_lie_where_the_scene_has_them() -> None:
    scene = draw.operands.scene(TRIPLE)
    wanted = sorted(
        (text.string, round(text.x, 1), round(text.y, 1))
        for panel in scene.panels
        for text in panel.texts
    )
    root = ElementTree.fromstring(draw.operands.svg(TRIPLE))
    found: list[tuple[str, float, float]] = []

    def walk(element: ElementTree.Element, x: float, y: float) -> None:
        move = re.match(r"translate\((\S+) (\S+)\)$", element.get("transform", ""))
        if move:
            x, y = x + float(move[1]), y + float(move[2])
        if element.tag == f"{SVG}text":
            x, y = x + float(element.get("x", 0)), y + float(element.get("y", 0))
            found.append((element.text or "", x, y))
        for child in element:
            walk(child, x, y)

    walk(root, 0, 0)
    assert len(found) == len(wanted)
    for one, other in zip(sorted(found), wanted, strict=True):
        assert one[0] == other[0]
        assert one[1:] == pytest.approx(other[1:], abs=0.11)


def test_names_from_outside_cannot_break_the_svg() -> None:
    text = draw.lane_map.svg(D, (16, 8), title='<a & "b">', register='<&"')
    root = ElementTree.fromstring(text)
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == '<a & "b">'
    registers = {e.get("data-register") for e in root.iter()} - {None}
    assert registers == {f'<&"{slot}' for slot in range(4)}


def test_the_files_stay_small() -> None:
    assert len(draw.operands.svg(TRIPLE).encode()) <= 120_000
    assert len(draw.lane_map.svg(*MAPS["128 x 128"]).encode()) <= 4_000_000


@pytest.mark.slow
def test_an_svg_that_no_viewer_opens_is_refused(tmp_path: Path) -> None:
    wide = D.tile_to((512, 512), (16, 8))
    message = r"at most 131072 cells.*; got 262176, about 3\d MB.*\.png or \.pdf fits"
    path = tmp_path / "wide.svg"
    for call in (
        lambda: draw.lane_map.svg(wide, (512, 512)),
        lambda: draw.lane_map(wide, (512, 512), path=path),
    ):
        with pytest.raises(LayoutError, match=message):
            call()
    assert not path.exists()


def test_a_notebook_gets_a_png_of_what_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    small = draw.lane_map(D, (16, 8))
    assert isinstance(small, SceneFigure)
    assert (small._repr_png_(), small._repr_svg_()) == (None, draw.lane_map.svg(D, (16, 8)))
    monkeypatch.setattr(svg, "DOCUMENT", 128)
    assert small._repr_svg_() is None
    assert Image.open(io.BytesIO(small._repr_png_() or b"")).format == "PNG"


# ---------------------------------------------------------------- files


SIGNATURES = {".svg": b"<svg ", ".png": b"\x89PNG", ".pdf": b"%PDF", ".tex": b"% "}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", sorted(SIGNATURES))
def test_the_suffix_says_what_is_written(suffix: str, tmp_path: Path) -> None:
    triple, single = tmp_path / f"triple{suffix}", tmp_path / f"map{suffix.upper()}"
    draw.operands(TRIPLE, path=str(triple))
    draw.lane_map(D, (16, 8), path=single)
    for path in (triple, single):
        assert path.read_bytes().startswith(SIGNATURES[suffix])
    assert sorted(tmp_path.iterdir()) == sorted([triple, single])


def test_suffixes_are_those_that_can_be_written() -> None:
    assert sorted(output.SUFFIXES) == sorted(SIGNATURES)


def test_a_failure_leaves_no_file_and_keeps_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = tmp_path / "new.svg", tmp_path / "old.svg"
    old.write_text("older")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail)
        for path in (new, old):
            with pytest.raises(OSError, match="disk full"):
                draw.lane_map(D, (16, 8), path=path)
    with monkeypatch.context() as patched:
        patched.setattr(output, "svg_text", fail)
        with pytest.raises(OSError, match="disk full"):
            draw.lane_map(D, (16, 8), path=new)
    assert list(tmp_path.iterdir()) == [old]
    assert old.read_text() == "older"
    draw.lane_map(D, (16, 8), path=old)
    assert old.read_text() == draw.lane_map.svg(D, (16, 8))


def test_a_bad_call_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(LayoutError):
        draw.lane_map(D, (16, 8), lane=77, path=tmp_path / "map.svg")
    assert not list(tmp_path.iterdir())


WRITE = """
import sys
from pathlib import Path
from layoutalg import R, S, TileLayout, draw, laneid
folder = Path(sys.argv[1])
two = TileLayout(S[(8, 2, 2) : (4 @ laneid, 1 @ laneid, 1)] + R[2 : 2 @ laneid])
for suffix in ("svg", "png", "pdf"):
    draw.operands("mma.m16n8k16.f16", path=folder / f"triple.{suffix}")
    draw.lane_map(two, (8, 4), path=folder / f"map.{suffix}")
"""


def printed_by(code: str, *arguments: str, seed: str = "0") -> str:
    """Return what a fresh Python prints."""
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": str(ROOT),
        },
    )
    return run.stdout


def written_by_two(code: str, folder: Path) -> list[dict[str, str]]:
    """Run a program in two processes, each with a folder; return each one's files and digests."""
    sums = []
    for seed in ("1", "2"):
        own = folder / seed
        own.mkdir()
        printed_by(code, str(own), seed=seed)
        sums.append(
            {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(own.iterdir())}
        )
    return sums


@pytest.mark.slow
def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    sums = written_by_two(WRITE, tmp_path)
    assert len(sums[0]) == 6
    assert sums[0] == sums[1]


def test_a_user_s_settings_change_no_byte(tmp_path: Path) -> None:
    import matplotlib as mpl

    plain, set_up = tmp_path / "plain.png", tmp_path / "set.png"
    draw.lane_map(D, (16, 8), path=plain)
    with mpl.rc_context(
        {"lines.scale_dashes": False, "savefig.bbox": "tight", "font.size": 20, "savefig.dpi": 50}
    ):
        draw.lane_map(D, (16, 8), path=set_up)
    assert plain.read_bytes() == set_up.read_bytes()


@pytest.mark.slow
def test_svg_text_needs_no_matplotlib() -> None:
    code = (
        "import sys; from layoutalg import draw, S, TileLayout, laneid\n"
        "draw.lane_map.svg(TileLayout(S[(8, 4):(4 @ laneid, 1 @ laneid)]), (8, 4))\n"
        "draw.operands.svg('mma.m16n8k16.f16')\n"
        "print(sorted({'matplotlib', 'numba'} & set(sys.modules)))"
    )
    assert printed_by(code) == "[]\n"


@pytest.mark.slow
def test_the_pictures_in_the_repository_are_what_the_gallery_draws(tmp_path: Path) -> None:
    kept = ROOT / "figures"
    for made in gallery.render(tmp_path):
        if made.suffix == ".png":  # its bytes hang on the machine's FreeType and zlib
            assert_alike(made, kept / made.name)
        else:
            assert made.read_bytes() == (kept / made.name).read_bytes(), made.name


def assert_alike(made: Path, kept: Path) -> None:
    """Hold two PNGs to one size, and to the same pixels but for the edges of letters."""
    first, second = (np.asarray(Image.open(path).convert("L"), float) for path in (made, kept))
    assert first.shape == second.shape, kept.name
    blocks = [
        pixels[: pixels.shape[0] // 8 * 8, : pixels.shape[1] // 8 * 8]
        .reshape(pixels.shape[0] // 8, 8, pixels.shape[1] // 8, 8)
        .mean(axis=(1, 3))
        for pixels in (first, second)
    ]
    apart = np.abs(blocks[0] - blocks[1])
    assert apart.max() <= 40, kept.name
    assert apart.mean() <= 1, kept.name


def test_a_stale_png_is_noticed(tmp_path: Path) -> None:
    for name, lane in (("kept", 5), ("same", 5), ("made", 6)):
        draw.operands("mma.m16n8k8.f16", lane=lane, path=tmp_path / f"{name}.png")
    assert_alike(tmp_path / "same.png", tmp_path / "kept.png")
    with pytest.raises(AssertionError):
        assert_alike(tmp_path / "made.png", tmp_path / "kept.png")


@pytest.mark.slow
def test_the_gallery_draws_every_instruction_again_alike(tmp_path: Path) -> None:
    first = gallery.render(tmp_path / "one")
    second = gallery.render(tmp_path / "two")
    assert [p.name for p in first] == [
        *(
            f"{name}.{suffix}"
            for name in gallery.GALLERY
            for suffix in ("svg", "png")
            if suffix == "svg" or name in gallery.PIXELS
        ),
        gallery.PAGE,
    ]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert sorted((tmp_path / "one").iterdir()) == sorted(first)


# ---------------------------------------------------------------- matplotlib


def test_a_figure_has_few_artists_and_knows_its_scene() -> None:
    figure = draw.operands(TRIPLE)
    assert isinstance(figure, SceneFigure)
    assert figure.scene == draw.operands.scene(TRIPLE)
    (axes,) = figure.axes
    assert not axes.patches
    assert not axes.texts
    assert not axes.lines
    assert len(axes.collections) <= 3
    assert figure.get_size_inches() * 72 == pytest.approx((figure.scene.width, figure.scene.height))
    assert figure._repr_svg_() == draw.operands.svg(TRIPLE)


def pixels(figure: Figure, dpi: int = 144) -> npt.NDArray[np.uint8]:
    """Return a figure as an array of pixels."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return np.asarray(Image.open(buffer).convert("RGB"))


@pytest.mark.parametrize("kind", ["fragment", "128 x 128", "two owners", "addresses"])
def test_pixels_have_the_colours_of_the_cells(kind: str) -> None:
    scene = draw.lane_map.scene(*MAPS[kind])
    cells = scene.panel("map").cells
    bare = Scene(scene.width, scene.height, "cells", (Panel("map", cells),))
    image = pixels(SceneFigure(bare)).astype(int)
    for cell in cells:
        spots = [(0.3, cell.fill), (0.8, cell.fill if cell.corner is None else cell.corner)]
        for part, color in spots:
            x, y = cell.x + part * cell.width, cell.y + part * cell.height
            want = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
            assert image[int(y * 2), int(x * 2)].tolist() == want, cell


def test_pixels_have_ink_where_a_label_stands_and_none_beside_it() -> None:
    figure = draw.lane_map(D, (16, 8), lane=None)
    assert isinstance(figure, SceneFigure)
    image = pixels(figure, 288).astype(int).sum(axis=-1)
    for text in figure.scene.panel("map").texts:
        left, top, right, low = (round(4 * v) for v in box(text))
        middle = image[top : low + 1, left : right + 1]
        assert middle.min() < 380, text
        dark = np.flatnonzero((middle < middle.max() - 150).any(axis=0))
        if text.anchor == "middle" and not text.angle:
            gap_left, gap_right = dark[0], middle.shape[1] - 1 - dark[-1]
            assert abs(gap_left - gap_right) <= 6, text


@pytest.mark.slow
def test_widths_are_upper_bounds_of_what_matplotlib_sets() -> None:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    strings = {t.string for scene in scenes() for panel in scene.panels for t in panel.texts}
    strings |= {f"W{w}T{lane}" for w in range(8) for lane in range(32)}
    for bold in (False, True):
        font = FontProperties(family="DejaVu Sans", size=10, weight="bold" if bold else "normal")
        for string in sorted(strings):
            width, _, _ = text_to_path.get_text_width_height_descent(string, font, False)
            assert width <= text_width(string, 10, bold) + 0.05, (string, bold)


def test_pdf_embeds_truetype_and_keeps_text(tmp_path: Path) -> None:
    path = tmp_path / "triple.pdf"
    draw.operands(TRIPLE, path=path)
    content = path.read_bytes()
    assert b"/FontFile2" in content
    assert b"/Type3" not in content
    saved = tmp_path / "saved.pdf"
    draw.lane_map(D, (16, 8)).savefig(saved)
    assert b"/FontFile2" in saved.read_bytes()
    assert b"/Type3" not in saved.read_bytes()


def test_given_axes_are_drawn_on() -> None:
    figure = Figure(figsize=(8, 6), dpi=100)
    left, right = figure.subplots(1, 2)
    assert draw.lane_map(D, (16, 8), ax=left) is figure
    assert len(left.collections) == 3
    assert not right.collections
    image = pixels(figure, 100)
    assert (image[:, :400] != 255).any()
    assert left.get_aspect() == 1
    scene = draw.lane_map.scene(D, (16, 8), width=left.get_window_extent().width / 100)
    assert left.get_xlim() == pytest.approx((0, scene.width))


def test_small_axes_show_no_text_under_5_points() -> None:
    figure = Figure(figsize=(1, 1), dpi=288)
    axes = figure.add_axes((0, 0, 1, 1))
    draw.lane_map(D, (16, 8), ax=axes, width=3.4)
    image = pixels(figure, 288).astype(int).sum(axis=-1)
    scale = min(288 / draw.lane_map.scene(D, (16, 8), width=3.4).height, 4)
    cells = draw.lane_map.scene(D, (16, 8), width=3.4).panel("map").cells
    shift = (288 - scale * draw.lane_map.scene(D, (16, 8), width=3.4).width) / 2
    for cell in cells:
        row = int(data(cell)["row"])
        if row in (1, 9) or row % 8 == 7 or row % 8 == 0:
            continue
        y = int((cell.y + cell.height / 2) * scale)
        x = int(shift + (cell.x + cell.width / 2) * scale)
        assert image[y - 1 : y + 2, x - 2 : x + 3].min() > 300
