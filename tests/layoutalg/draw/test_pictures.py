"""Registers, derivations, matrix loads, banks, sectors, moves, warps, TikZ: held to the tables."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from matplotlib.figure import Figure

from layoutalg import (
    ComposeLayout,
    LayoutError,
    R,
    S,
    SwizzleLayout,
    TileLayout,
    convert,
    draw,
    fragments,
    laneid,
    parse,
    tmem_datapath_layout,
    tmem_mma_operand_layout,
    tmem_scale_layout,
    warpid,
)
from layoutalg.draw.pictures.bank_map import way_color
from layoutalg.draw.pictures.ribbon import derived
from layoutalg.draw.pictures.warp_tiles import parts_of
from layoutalg.draw.scene.mpl import SceneFigure, _outline
from layoutalg.draw.scene.naming import slot_name
from layoutalg.draw.scene.palette import EMPTY, FILLS, HUES, INK, NOTE, WAYS
from layoutalg.draw.scene.scene import SMALLEST_TEXT, Cell, Panel, Scene, Text, text_width
from layoutalg.draw.scene.tikz import escaped
from layoutalg.fragments import transposed
from layoutalg.memory.access import ACCESSES, phase_lanes
from layoutalg.memory.ldmatrix import matrix_loads
from layoutalg.memory.swizzle_search import choose_swizzle
from tests.layoutalg.draw.test_draw import box, data, printed_by, segments, strokes, written_by_two
from tests.layoutalg.draw.test_palette import contrast
from tests.support.house import home
from tests.support.paths import ROOT
from tests.support.strategies import Grouped, grouped_layouts, laws

MMA = "mma.m16n8k16.f16"
A, B, D = (fragments.get(MMA, operand) for operand in ("A", "B", "C/D.f32"))
TURNED = transposed(A.layout, A.shape)
PLAIN = TileLayout(S[(64, 64) : (64, 1)])
SWIZZLED = ComposeLayout(3, 3, 3, PLAIN)
NAMED = parse("S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + R[2:4@warpid] + 5@warpid")
K_STEPS = {f"step {n}": SWIZZLED.table((64, 64))["m"][:, 16 * n : 16 * n + 16] for n in (0, 1)}
TURNED_TILE = ComposeLayout(3, 3, 3, TileLayout(S[(64, 2, 64) : (1, 4096, 64)]))
HALVES = tmem_mma_operand_layout("D", (64, 64), 128, 2)
WARPS = TileLayout(S[(2, 2, 8, 4, 2) : (1 @ warpid, 2, 4 @ laneid, 1 @ laneid, 1)])

# One call per kind of picture: each writer and each law of the page is tried on all of them.
CALLS: dict[str, Callable[..., Figure]] = {
    "lane map": lambda **k: draw.lane_map(D.layout, D.shape, **k),
    "operands": lambda **k: draw.operands(MMA, **k),
    "registers": lambda **k: draw.registers(MMA, **k),
    "registers of A": lambda **k: draw.registers(MMA, "A", **k),
    "registers of bytes": lambda **k: draw.registers("mma.m16n8k32.s8", **k),
    "registers of bits": lambda **k: draw.registers("mma.m16n8k256.b1", **k),
    "registers of a warpgroup": lambda **k: draw.registers("wgmma.m64n64", **k),
    "registers of nonzeros": lambda **k: draw.registers("mma.sp.m16n8k16.bf16", **k),
    "registers of scales": lambda **k: draw.registers("mma.m16n8k64.mxf4nvf4.e2m1.ue4m3", **k),
    "registers of four products": lambda **k: draw.registers("mma.m8n8k4.f16", **k),
    "registers of tensor memory": lambda **k: draw.registers("tcgen05.st.16x64b.x8.b32", **k),
    "registers of f64": lambda **k: draw.registers("mma.m8n8k4.f64", **k),
    "derivation": lambda **k: draw.derivation(D.layout, D.shape, **k),
    "derivation with replicas": lambda **k: draw.derivation(NAMED, (8, 16), **k),
    "derivation of a swizzle": lambda **k: draw.derivation(SWIZZLED, (64, 64), **k),
    "derivation of a flat index": lambda **k: draw.derivation(
        TileLayout(S[(6, 4) : (4, 1)]), (8, 3), **k
    ),
    "ldmatrix": lambda **k: draw.ldmatrix(MMA, **k),
    "ldmatrix.trans": lambda **k: draw.ldmatrix(
        MMA, transposed=True, memory=ComposeLayout(3, 3, 3, TileLayout(S[(16, 16) : (64, 1)])), **k
    ),
    "ldmatrix of B": lambda **k: draw.ldmatrix(MMA, "B", **k),
    "ldmatrix x1": lambda **k: draw.ldmatrix(MMA, "B", transposed=True, count=1, **k),
    "ldmatrix of nibbles": lambda **k: draw.ldmatrix("mma.m16n8k64.s4", "B", transposed=True, **k),
    "ldmatrix of nonzeros": lambda **k: draw.ldmatrix("mma.sp.m16n8k32.f16", **k),
    "ldmatrix of tf32": lambda **k: draw.ldmatrix("mma.m16n8k4.tf32", **k),
    "banks": lambda **k: draw.banks(PLAIN, (64, 64), "f16", **k),
    "banks of a swizzle": lambda **k: draw.banks(SWIZZLED, (64, 64), 16, "cp.async", **k),
    "banks of columns": lambda **k: draw.banks(
        TileLayout(S[(32, 32) : (32, 1)]), (32, 32), "f32", "column", **k
    ),
    "banks without conflicts": lambda **k: draw.banks(
        TileLayout(S[(64, 64) : (72, 1)]), (64, 64), **k
    ),
    "coalescing": lambda **k: draw.coalescing(
        A.layout, TileLayout(S[(16, 16) : (16, 1)]), A.shape, **k
    ),
    "coalescing of f32": lambda **k: draw.coalescing(
        D.layout, TileLayout(S[(16, 8) : (4096, 1)]), D.shape, "f32", **k
    ),
    "coalescing of columns": lambda **k: draw.coalescing(
        D.layout, TileLayout(S[(16, 8) : (1, 16)]), D.shape, 32, **k
    ),
    "compare": lambda **k: draw.compare(A.layout, TURNED, A.shape, **k),
    "compare alike": lambda **k: draw.compare(D.tiled(16, 16), A.layout, A.shape, **k),
    "compare in memory": lambda **k: draw.compare(PLAIN, SWIZZLED, (64, 64), **k),
    "compare warps": lambda **k: draw.compare(WARPS, D.tiled(32, 8), (32, 8), 32, **k),
    "tiling": lambda **k: draw.tiling(MMA, (64, 64, 32), (2, 2), **k),
    "tiling of 128": lambda **k: draw.tiling(MMA, (128, 128, 64), (2, 4), 3, **k),
    "tiling of nonzeros": lambda **k: draw.tiling("mma.sp.m16n8k32.f16", (64, 32, 64), **k),
    "tiling of one warp": lambda **k: draw.tiling(MMA, (32, 16, 16), **k),
    "descriptor": lambda **k: draw.descriptor(SWIZZLED, (64, 64), K_STEPS, **k),
    "descriptor of columns": lambda **k: draw.descriptor(
        TURNED_TILE, (64, 128), {"all of k": TURNED_TILE.table((64, 128))["m"]}, **k
    ),
    "tensor memory": lambda **k: draw.tensor_memory(
        {
            "one CTA": [
                draw.TensorBuffer("D", tmem_datapath_layout("D", 128, 64), (128, 64)),
                draw.TensorBuffer("SFA", tmem_scale_layout(128, 4), (128, 4), 8, 64),
            ]
        },
        **k,
    ),
    "tensor memory of a pair": lambda **k: draw.tensor_memory(
        {
            f"CTA {rank}": [
                draw.TensorBuffer("D", HALVES, (64, 64), origin=(64 * rank, 0)),
                draw.TensorBuffer("F", tmem_datapath_layout("F", 64, 16), (64, 16), 32, 32),
            ]
            for rank in range(2)
        },
        **k,
    ),
}


PICTURES = {name for name in draw.__all__ if hasattr(getattr(draw, name), "scene")}


def test_each_picture_is_exported() -> None:
    """A file of the folder that makes a picture: its function is in ``draw.__all__``."""
    made = {
        found[1]
        for path in (home("layoutalg") / "draw" / "pictures").glob("*.py")
        for found in re.finditer(r"^@picture\ndef (\w+)\(", path.read_text(), re.M)
    }
    assert made == PICTURES


def test_each_picture_is_tried_here_and_shown_in_the_gallery() -> None:
    tried = {name for call in CALLS.values() for name in call.__code__.co_names}
    assert PICTURES - tried == set(), "a call for each in CALLS"
    gallery = (ROOT / "notebooks" / "00_gallery.py").read_text()
    assert set(re.findall(r"^draw\.(\w+)\(", gallery, re.M)) == PICTURES, "a cell for each"


@cache
def scene(name: str) -> Scene:
    """Return a picture as data."""
    figure = CALLS[name]()
    assert isinstance(figure, SceneFigure)
    return figure.scene


def texts(panel: Panel) -> list[str]:
    """Return the strings of a panel."""
    return [text.string for text in panel.texts]


def inside(cell: Cell, text: Text) -> bool:
    """Tell whether a text is anchored in a cell."""
    return (
        cell.x <= text.x <= cell.x + cell.width and cell.y <= text.y <= cell.y + cell.height + 0.01
    )


# ---------------------------------------------------------------- the page


@pytest.mark.parametrize("name", CALLS)
def test_a_picture_fits_the_page_and_its_texts_do_not_overlap(name: str) -> None:
    page = scene(name)
    assert page.width <= 7 * 72 + 0.01
    assert page.height <= 9.2 * 72
    boxes = []
    for panel in page.panels:
        for text in panel.texts:
            assert text.string.strip()
            assert text.size >= SMALLEST_TEXT
            left, top, right, low = box(text)
            assert left >= -0.01, text
            assert top >= 0, text
            assert right <= page.width + 0.01, text
            assert low <= page.height, text
            boxes.append((left, top, right, low, text.string))
        for cell in panel.cells:
            assert 0 <= cell.x <= cell.x + cell.width <= page.width + 0.01
            assert 0 <= cell.y <= cell.y + cell.height <= page.height + 0.01
    boxes.sort()
    for n, one in enumerate(boxes):
        for other in boxes[n + 1 :]:
            if other[0] >= one[2] - 0.01:
                break
            assert other[1] >= one[3] - 0.01 or other[3] <= one[1] + 0.01, (one, other)


def test_widths_are_upper_bounds_of_what_matplotlib_sets() -> None:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    found = {
        (t.string, t.bold) for name in CALLS for panel in scene(name).panels for t in panel.texts
    }
    fonts = {
        bold: FontProperties(family="DejaVu Sans", size=10, weight="bold" if bold else "normal")
        for bold in (False, True)
    }
    for string, bold in sorted(found):
        width, _, _ = text_to_path.get_text_width_height_descent(string, fonts[bold], False)
        assert width <= text_width(string, 10, bold) + 0.05, string


@pytest.mark.parametrize("name", CALLS)
def test_a_label_stays_in_its_cell(name: str) -> None:
    for panel in scene(name).panels:
        for text in panel.texts:
            for cell in panel.cells if not text.angle and text.anchor == "middle" else ():
                if inside(cell, text) and cell.y < text.y:
                    left, top, right, _ = box(text)
                    assert top >= cell.y, (text, cell)
                    held = [c for c in panel.cells if c.x < right and left < c.x + c.width]
                    same = {c.fill for c in held if c.y <= text.y - 1 <= c.y + c.height}
                    assert len(same) == 1, (text, cell)


def test_text_is_readable_on_the_colours_of_conflicts_and_moves() -> None:
    assert contrast(INK, (*WAYS, EMPTY)) >= 4.5
    assert contrast(NOTE, (WAYS[0], EMPTY)) >= 4.5


# ---------------------------------------------------------------- registers


REGISTER_TABLES = [
    (name, operand)
    for name in (
        MMA, "mma.m16n8k8.tf32", "mma.m16n8k16.e4m3", "mma.m8n8k4.f64", "wgmma.m64n24",
        "mma.m8n8k4.f16", "mma.sp.m16n8k32.f16", "mma.sp.m16n8k16.f16",
        "mma.m16n8k64.mxf4nvf4.e2m1.ue4m3", "mma.m16n8k32.mxf8f6f4.e4m3",
        "stmatrix.m8n8.x2.trans.b16", "tcgen05.ld.16x64b.x4.b32",
    )
    for operand in fragments.operands(name)
]  # fmt: skip


@pytest.mark.parametrize(("name", "operand"), REGISTER_TABLES)
def test_each_cell_of_the_register_table_is_the_element_of_its_lane(
    name: str, operand: str
) -> None:
    fragment = fragments.get(name, operand)
    panel = draw.registers.scene(name, operand).panel(operand)
    slots = {slot_name(fragment, slot): slot for slot in range(fragment.slots)}
    seen = set()
    for cell in (data(c) for c in panel.cells if "register" in data(c)):
        begin, _, end = cell["register"].partition("..")
        first = slots[begin]
        last = first if not end else first + int(end) - int(begin.lstrip("abcdefsr"))
        lane = int(cell["lane"])
        rows, cols = fragment.coords[lane, first : last + 1].T.tolist()
        for values, said in ((rows, cell["row"]), (cols, cell["col"])):
            low, _, high = said.partition("..")
            assert values == (
                list(range(int(low), int(high) + 1)) if high else values[:1] * len(values)
            )
            assert values[0] == int(low)
        seen |= {(lane, slot) for slot in range(first, last + 1)}
    assert seen == {(lane, slot) for lane in range(32) for slot in range(fragment.slots)}


def test_columns_stand_in_ptx_operand_order_and_packed_slots_are_bracketed() -> None:
    for operand, fragment in (("A", A), ("B", B)):
        panel = draw.registers.scene(MMA).panel(operand)
        row = [c for c in panel.cells if data(c)["lane"] == "5" and "register" in data(c)]
        row.sort(key=lambda c: c.x)
        assert [data(c)["register"] for c in row] == [
            slot_name(fragment, slot) for slot in range(fragment.slots)
        ]
        (brackets,) = strokes(panel, "word")
        assert len(brackets.paths) == fragment.registers
        for n, path in enumerate(brackets.paths):
            joined = [c for c in row if path[0][0] < c.x + c.width and c.x < path[-1][0]]
            assert [data(c)["register"] for c in joined] == [
                slot_name(fragment, 2 * n),
                slot_name(fragment, 2 * n + 1),
            ]
    assert not strokes(draw.registers.scene(MMA).panel("C/D.f32"), "word")


def test_the_outline_of_the_register_table_is_the_row_of_the_lane() -> None:
    panel = draw.registers.scene(MMA, "A", lane=9).panel("A")
    row = [c for c in panel.cells if data(c)["lane"] == "9"]
    (line,) = strokes(panel, "lane")
    xs, ys = zip(*line.paths[0], strict=True)
    assert (min(xs), max(xs)) == (min(c.x for c in row), max(c.x + c.width for c in row))
    assert (min(ys), max(ys)) == (row[0].y, row[0].y + row[0].height)
    assert {c.fill for c in row} == {FILLS[9]}
    bold = [t.string for t in panel.texts if t.bold and row[0].y < t.y <= row[0].y + row[0].height]
    assert sorted(bold) == sorted(["T9", *(f"{r},{c}" for r, c in A.coords[9].tolist())])


def test_rules_stand_under_the_names() -> None:
    panel = draw.registers.scene(MMA, "A").panel("A")
    name = next(t for t in panel.texts if t.string == "a3")
    below = sorted(
        (t for t in panel.texts if t.x == name.x and name.y < t.y < min(c.y for c in panel.cells)),
        key=lambda t: t.y,
    )
    assert [t.string for t in below] == ["g + 8", "2t + 1"]


def test_long_tables_flow_and_say_what_they_show() -> None:
    page = draw.registers.scene("wgmma.m64n256")
    notes = texts(page.panel("title"))
    (said,) = [note for note in notes if "of 128 slots" in note]
    shown = {data(c)["register"] for p in page.panels for c in p.cells if "register" in data(c)}
    assert said.startswith(f"d0..d{len(shown) - 1}: {len(shown)} of 128 slots")
    assert "threads 0..31 of 128" in notes
    rest = draw.registers.scene("wgmma.m64n256", lanes=(64, 80), slots=(120, 128), lane=70)
    cells = [data(c) for p in rest.panels for c in p.cells if "register" in data(c)]
    assert {(d["lane"], d["register"]) for d in cells} == {
        (str(lane), f"d{slot}") for lane in range(64, 80) for slot in range(120, 128)
    }


# ---------------------------------------------------------------- derivation


def value_of(formula: str, values: dict[str, int]) -> int:
    """Compute one of our formulas: ``4 · (i mod 8) + j // 2``; a replica's digit is 0."""
    _, _, rule = formula.partition(" = ")
    rule = re.sub(r", r\d* = .*", "", rule)
    python = rule.replace("\u00b7", "*").replace("mod", "%")
    python = re.sub(r"\b(\d+)([ij])\b", r"\1*\2", python)
    assert re.fullmatch(r"[\dijr()+*/% -]+", python)
    return int(eval(re.sub(r"\br\d*\b", "0", python), {}, dict(values)))


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        (A.layout, A.shape),
        (B.layout, B.shape),
        (NAMED, (8, 16)),
        (TileLayout(S[(6, 4) : (4, 1)]), (8, 3)),
        (TileLayout(S[(4, 8) : (0, 3)] + 7), (4, 8)),
        (WARPS, (32, 8)),
    ],
)
def test_the_formulas_give_the_table(layout: TileLayout, shape: tuple[int, int]) -> None:
    found = derived(layout, shape)
    for axis, values in layout.table(shape).items():
        formula = found.formula(axis)
        for (i, j), value in np.ndenumerate(values):
            assert value_of(formula, {"i": i, "j": j}) == value, formula


@laws
@given(grouped_layouts())
def test_digits_add_up_to_the_table(grouped: Grouped) -> None:
    layout, shape = grouped
    assume(1 <= len(shape) <= 6)
    found = derived(layout, shape)
    table = layout.table(shape)
    assert found.extents == tuple(shape)
    for place in itertools.islice(np.ndindex(*shape), 0, None, 7):
        for axis in found.axes:
            total = found.offsets.get(axis, 0) + sum(
                d.value(x) * d.stride
                for x, part in zip(place, found.digits, strict=True)
                for d in part
                if d.axis == axis
            )
            assert total == (table[axis][place] if axis in table else 0)


def test_the_ribbons_hold_the_same_digits_and_links_join_them() -> None:
    page = draw.derivation.scene(D.layout, D.shape, (9, 3))
    upper, lower = page.panel("digits"), page.panel("axes")

    def digit(cell: Cell) -> tuple[str, str, str]:
        d = data(cell)
        return d["axis"], d["stride"], d["extent"]

    assert sorted(map(digit, upper.cells)) == sorted(map(digit, lower.cells))
    assert [digit(c) for c in upper.cells] == [
        ("m", "2", "2"),
        ("laneid", "4", "8"),
        ("laneid", "1", "4"),
        ("m", "1", "2"),
    ]
    (links,) = strokes(page.panel("links"), "link")
    assert len(links.paths) == 4
    for path in links.paths:
        above = next(c for c in upper.cells if c.x < path[0][0] < c.x + c.width)
        below = next(c for c in lower.cells if c.x < path[-1][0] < c.x + c.width)
        assert digit(above) == digit(below)
        assert above.fill == below.fill
        assert path[-1][1] == below.y
    colors = {digit(c)[0]: c.fill for c in upper.cells}
    assert len(set(colors.values())) == 2
    assert "laneid = 5" in texts(lower)
    assert "m = 3" in texts(lower)
    bold = [t.string for t in upper.texts if t.bold and t.string.isdigit()]
    assert bold == ["1", "1", "1", "1"]


def test_replicas_offsets_and_swizzles_are_derived() -> None:
    lower = scene("derivation with replicas").panel("axes")
    assert "warpid = 6 or 10" in texts(lower)
    assert "0 or 4" in texts(lower)
    assert "offset" in texts(lower)
    assert [data(c)["part"] for c in lower.cells if data(c).get("part") == "replica"] == ["replica"]
    formulas = texts(scene("derivation of a swizzle").panel("formula"))
    place = SWIZZLED.table((64, 64))["m"][63, 63]
    assert formulas[-1] == (
        f"then the swizzle (3, 3, 3), which counts elements: m 4095 \u2192 {place}"
    )
    assert texts(scene("derivation of a flat index").panel("digits"))[0].startswith("(3i + j) // 4")


# ---------------------------------------------------------------- ldmatrix


@pytest.mark.parametrize(
    ("operand", "turned"), [("A", False), ("A", True), ("B", False), ("B", True)]
)
def test_the_panels_of_ldmatrix_are_addresses_stored_tile_and_operand(
    operand: str, turned: bool
) -> None:
    fragment = fragments.get(MMA, operand)
    page = draw.ldmatrix.scene(MMA, operand, transposed=turned)
    (load,) = matrix_loads(fragment.layout, fragment.shape, 16, transposed=turned)
    given = {
        int(data(c)["lane"]): (int(data(c)["row"]), int(data(c)["col"]))
        for c in page.panel("address").cells
    }
    assert given == {lane: tuple(load.address[lane].tolist()) for lane in range(8 * load.count)}
    held = {
        (int(data(c)["row"]), int(data(c)["col"])): (int(data(c)["lane"]), data(c)["register"])
        for c in page.panel("stored").cells
    }
    named = {
        (int(data(c)["row"]), int(data(c)["col"])): (int(data(c)["lane"]), data(c)["register"])
        for c in page.panel("operand").cells
    }
    for lane, slots in enumerate(fragment.coords.tolist()):
        for slot, (row, col) in enumerate(slots):
            assert held[(col, row) if turned else (row, col)] == (lane, f"r{slot // 2}")
            assert named[row, col] == (lane, slot_name(fragment, slot))
    assert len(held) == len(named) == fragment.slots * 32


def test_the_lane_is_outlined_where_it_points_and_where_it_receives() -> None:
    page = draw.ldmatrix.scene(MMA, lane=5)
    for name in ("address", "stored", "operand"):
        assert strokes(page.panel(name), "lane")
    (line,) = strokes(page.panel("address"), "lane")
    cell = next(c for c in page.panel("address").cells if data(c)["lane"] == "5")
    assert line.paths[0][0] == (cell.x, cell.y)
    assert cell.fill == FILLS[5]
    # rows of the address panel and of the stored tile lie on one height
    assert {c.y for c in page.panel("address").cells} == {c.y for c in page.panel("stored").cells}


def test_ldmatrix_says_what_it_is_and_what_it_costs() -> None:
    notes = texts(scene("ldmatrix.trans").panel("title"))
    assert "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16" in notes
    assert any("stored [K][M]" in note for note in notes)
    assert any("(elements): 4 wavefronts for 4 matrices" in note for note in notes)
    assert any(
        "lanes 16..31 are ignored" in n for n in texts(scene("ldmatrix of B").panel("title"))
    )
    assert "one matrix" in texts(scene("ldmatrix").panel("legend"))
    twice = scene("ldmatrix x1")
    assert any("2 times" in note for note in texts(twice.panel("title")))
    assert [t for t in texts(twice.panel("address")) if t.startswith("load")] == [
        "load 0, matrix 0",
        "load 1, matrix 0",
    ]


# ---------------------------------------------------------------- banks


BANKED = [
    ("banks", PLAIN, (64, 64), 16, "ldmatrix"),
    ("banks of a swizzle", PLAIN, (64, 64), 16, "cp.async"),
    ("banks of columns", TileLayout(S[(32, 32) : (32, 1)]), (32, 32), 32, "column"),
    ("banks without conflicts", TileLayout(S[(64, 64) : (72, 1)]), (64, 64), 16, "ldmatrix"),
]


@pytest.mark.parametrize(("name", "plain", "shape", "bits", "access"), BANKED)
def test_the_words_per_bank_are_those_of_loops(
    name: str, plain: TileLayout, shape: tuple[int, int], bits: int, access: str
) -> None:
    page = scene(name)
    sides: dict[str, Any] = {"before": plain}
    chosen: Any = choose_swizzle(shape, bits, int(plain.table(shape)["m"][1, 0]), [access]).layout
    if name == "banks of a swizzle":
        chosen = SWIZZLED
    if isinstance(chosen, ComposeLayout):
        sides["after"] = chosen
    assert {p.name for p in page.panels if p.name.startswith("phases")} == {
        f"phases {side}" for side in sides
    }
    asked = ACCESSES[access](shape, bits)
    size = asked.count * bits // 8
    for side, layout in sides.items():
        table = layout.table(shape)["m"]
        lanes = asked.coords.reshape(-1, phase_lanes(size), asked.count, 2)
        panel = page.panel(f"phases {side}")
        drawn = {
            (int(data(c)["phase"]), int(data(c)["bank"])): (int(data(c)["words"]), c.fill)
            for c in panel.cells
        }
        assert len(drawn) == 8 * 32
        for phase in range(8):
            words = {int(table[row, col]) * bits // 32 for row, col in lanes[phase].reshape(-1, 2)}
            ways = Counter(word % 32 for word in words)
            for bank in range(32):
                count, fill = drawn[phase, bank]
                assert count == ways[bank]
                assert (fill == EMPTY) == (count == 0)
            assert panel.texts
            y = next(c.y for c in panel.cells if data(c)["phase"] == str(phase))
            counted = [t.string for t in panel.texts if t.anchor == "start" and t.bold and y < t.y]
            assert counted[0] == str(max(ways.values()))


@pytest.mark.parametrize(("side", "layout"), [("before", PLAIN), ("after", SWIZZLED)])
def test_memory_is_drawn_as_it_lies(side: str, layout: Any) -> None:
    panel = scene("banks").panel(f"memory {side}")
    table = layout.table((64, 64))["m"]
    assert len(panel.cells) == 64
    for cell in panel.cells:
        d = data(cell)
        assert table[int(d["row"]), int(d["col"])] * 2 == int(d["byte"])
        assert int(d["bank"]) == int(d["byte"]) // 4 % 32
        assert cell.fill in HUES[int(d["col"]) // 8]
    # the outlined vectors are the rows of the first matrix
    (line,) = strokes(panel, "lane")
    corners = {path[0] for path in line.paths}
    first = [c for c in panel.cells if data(c)["col"] == "0"]
    assert corners == {(c.x, c.y) for c in first}
    assert sorted(int(data(c)["row"]) for c in first) == list(range(8))


def test_the_exchange_of_the_32_byte_swizzle_is_seen() -> None:
    layout = ComposeLayout(3, 1, 3, TileLayout(S[(16, 16) : (16, 1)]))
    page = draw.banks.scene(layout, (16, 16), "f16")
    cells = page.panel("memory after").cells
    order = {
        row: [int(data(c)["col"]) // 8 for c in cells if data(c)["row"] == str(row)]
        for row in range(8)
    }
    assert order == {row: [0, 1] if row < 4 else [1, 0] for row in range(8)}


def test_a_bank_has_the_colour_of_its_ways_and_the_legend_says_which() -> None:
    counts = [0, 1, 2, 3, 4, 5, 8, 9, 32]
    want = [EMPTY, *(WAYS[n] for n in (0, 1, 2, 2, 3, 3, 4, 4))]
    assert [way_color(count) for count in counts] == want
    legend = scene("banks of columns").panel("legend")
    named = {
        next(t.string for t in legend.texts if t.x > c.x and abs(t.y - c.y) < 10): c.fill
        for c in legend.cells
    }
    assert list(named.values()) == list(WAYS)
    assert list(named) == ["1 word in a bank", "2 words", "3..4", "5..8", "9 or more"]


def test_what_is_left_out_of_the_banks_is_said() -> None:
    def shown(scene: Scene) -> list[str]:
        return [note for note in texts(scene.panel("title")) if note.startswith("shown: ")]

    many = draw.banks.scene(PLAIN, (64, 64), phase=9)
    assert shown(many) == ["shown: phases 8..15 of 64, the first 16 of 64 lines of 128 bytes"]
    assert {data(c)["phase"] for c in many.panel("phases before").cells} == set(
        map(str, range(8, 16))
    )
    assert shown(draw.banks.scene(TileLayout(S[(8, 64) : (64, 1)]), (8, 64))) == []


@pytest.mark.parametrize("name", [MMA, "ldmatrix.m8n8.x4.b16", "mma.m16n8k256.b1"])
@pytest.mark.parametrize("inches", [0.02, 0.3, 0.9])
def test_axes_that_are_too_narrow_are_named(name: str, inches: float) -> None:
    axes = Figure(figsize=(inches, 3)).add_axes((0, 0, 1, 1))
    message = rf"^operands: .*{inches:g} inches.*a larger width, or wider axes; 7 fits$"
    if inches < 0.5 or name != "ldmatrix.m8n8.x4.b16":
        with pytest.raises(LayoutError, match=message):
            draw.operands(name, ax=axes)
    wide = Figure(figsize=(7, 3)).add_axes((0, 0, 1, 1))
    assert draw.operands(name, ax=wide) is wide.figure


def test_conflicts_are_counted_and_units_are_named() -> None:
    notes = texts(scene("banks").panel("title"))
    assert any("512 \u2192 64 wavefronts, at least 64" in note for note in notes)
    assert any(
        "(3, 3, 3) in elements of 16 bits, (4, 3, 3) in bytes: 16-byte units" in note
        for note in notes
    )
    assert any("a cell is 16 bytes" in note for note in notes)
    titles = texts(scene("banks").panel("memory after"))
    assert titles[:2] == ["swizzle (3, 3, 3)", "worst phase: 1"]
    assert "no swizzle is needed" in texts(scene("banks without conflicts").panel("title"))
    fifth = draw.banks.scene(PLAIN, (64, 64), phase=13)
    assert {data(c)["phase"] for c in fifth.panel("phases before").cells} == set(
        map(str, range(8, 16))
    )
    assert "phase 13" in texts(fifth.panel("legend"))


# ---------------------------------------------------------------- coalescing


@pytest.mark.parametrize(
    ("name", "fragment", "strides", "bits", "vector"),
    [
        ("coalescing", A, (16, 1), 16, 2),
        ("coalescing of f32", D, (4096, 1), 32, 2),
        ("coalescing of columns", D, (1, 16), 32, 1),
    ],
)
def test_sectors_and_askers_are_those_of_loops(
    name: str, fragment: Any, strides: tuple[int, int], bits: int, vector: int
) -> None:
    page = scene(name)
    panels = [p for p in page.panels if p.name.startswith("request")]
    assert len(panels) == fragment.slots // vector
    total = 0
    for n, panel in enumerate(panels):
        want: dict[int, set[int]] = {}
        for lane in range(32):
            for slot in range(n * vector, (n + 1) * vector):
                row, col = fragment.coords[lane, slot].tolist()
                byte = (row * strides[0] + col * strides[1]) * bits // 8
                want.setdefault(byte, set()).add(lane)
        sectors = {byte // 32 for byte in want}
        total += len(sectors)
        drawn = {int(data(c)["byte"]): data(c)["lane"] for c in panel.cells}
        assert {byte // 32 for byte in drawn} == sectors
        assert len(drawn) == len(sectors) * 256 // bits
        assert {
            byte: set(map(int, lanes.split())) for byte, lanes in drawn.items() if lanes
        } == want
        for cell in panel.cells:
            lanes = data(cell)["lane"].split()
            assert cell.fill == (FILLS[int(lanes[0])] if lanes else EMPTY)
        assert any(s.startswith(f"{len(sectors)} sectors, ") for s in texts(panel))
        (line,) = strokes(panel, "lane")
        held = [c for c in panel.cells if data(c)["lane"] == "5"]
        assert line.paths[0][0] == (min(c.x for c in held), held[0].y)
        assert line.paths[0][1][0] == max(c.x + c.width for c in held)
    assert any(f"in all {total} sectors" in note for note in texts(page.panel("title")))


def test_requests_are_chosen_and_named_by_their_slots() -> None:
    memory = TileLayout(S[(64, 8) : (8, 1)])
    layout = fragments.get("wgmma.m64n8", "D.f32").layout
    page = draw.coalescing.scene(layout, memory, (64, 8), "f32", requests=(2, 4))
    assert [p.name for p in page.panels if p.name.startswith("req")] == ["request 2", "request 3"]
    assert "W1 m0..1" in texts(page.panel("request 2"))
    assert "W1 m2..3" in texts(page.panel("request 3"))
    single = draw.coalescing.scene(D.layout, TileLayout(S[(16, 8) : (8, 1)]), D.shape, 32, vector=1)
    assert "m3" in texts(single.panel("request 3"))
    assert any("50%" in note for note in texts(single.panel("title")))
    few = draw.coalescing.scene(D.layout, TileLayout(S[(16, 8) : (8, 1)]), D.shape, 32)
    assert [p.name for p in few.panels if p.name.startswith("req")] == ["request 0", "request 1"]


# ---------------------------------------------------------------- compare


@pytest.mark.parametrize(
    ("name", "src", "dst", "shape"),
    [
        ("compare", A.layout, TURNED, (16, 16)),
        ("compare alike", D.tiled(16, 16), A.layout, (16, 16)),
        ("compare warps", WARPS, D.tiled(32, 8), (32, 8)),
    ],
)
def test_classes_are_those_of_loops(
    name: str, src: TileLayout, dst: TileLayout, shape: tuple[int, int]
) -> None:
    before, after = src.table(shape), dst.table(shape)
    panel = scene(name).panel("moves")
    want: Counter[str] = Counter()
    for cell in panel.cells:
        place = int(data(cell)["row"]), int(data(cell)["col"])
        one, other = (
            tuple(int(t[axis][place]) if axis in t else 0 for axis in ("warpid", "laneid", "m"))
            for t in (before, after)
        )
        kind = 0 if one == other else 1 if one[:2] == other[:2] else 2 if one[0] == other[0] else 3
        assert int(data(cell)["class"]) == kind
        want[cell.fill] += 1
    assert len(panel.cells) == shape[0] * shape[1]
    assert len(want) == len({data(c)["class"] for c in panel.cells})


def test_the_nearest_copy_of_the_source_counts() -> None:
    src = TileLayout(S[(4, 2) : (1 @ laneid, 1)] + R[2 : 4 @ laneid])
    dst = TileLayout(S[(4, 2) : (1 @ laneid, 1)] + 4 @ laneid)
    page = draw.compare.scene(src, dst, (4, 2))
    assert {data(c)["class"] for c in page.panel("moves").cells} == {"0"}
    back = draw.compare.scene(dst, src, (4, 2))
    assert {data(c)["class"] for c in back.panel("moves").cells} == {"2"}


def test_colours_mean_the_same_in_both_maps() -> None:
    page = scene("compare warps")
    maps = [page.panel(name) for name in ("from", "to")]
    hues = [
        {(data(c).get("warp", "0"), int(data(c)["lane"]) // 8): c.fill for c in panel.cells}
        for panel in maps
    ]
    assert {key[0] for key in hues[0]} == {"0", "1"}
    assert {key[0] for key in hues[1]} == {"0"}
    assert hues[1].items() <= hues[0].items()
    two = draw.compare.scene(D.layout, TileLayout(S[(16, 8) : (8, 1)]), D.shape)
    assert {data(c)["class"] for c in two.panel("moves").cells} == {"1"}
    assert {c.fill for c in two.panel("classes").cells} == {WAYS[1]}
    captions = [t.string for p in two.panels for t in p.texts if t.string.startswith("colour")]
    assert captions == ["colour: lane = 4g + t", "colour: m, from"]


def test_the_same_slot_of_another_warp_is_a_move() -> None:
    other = parse(f"{D.layout} + 1@warpid")
    page = draw.compare.scene(D.layout, other, D.shape, 32)
    assert {data(c)["class"] for c in page.panel("moves").cells} == {"3"}
    assert "of 128 elements: 128 move to another warp" in texts(page.panel("title"))


@pytest.mark.parametrize(
    ("src", "dst", "shape"),
    [
        ("S[(4,4):(1@P,1@F)]", "S[(4,4):(1@F,1@P)]", (4, 4)),
        ("S[(4,4):(1@bx,1@by)]", "S[(4,4):(1@by,1@bx)]", (4, 4)),
        ("S[(4,4):(1@bx,1)]", "S[(4,4):(1,1@bx)]", (4, 4)),
        ("S[(4,2,4):(1@TLane,1@bx,1@TCol)]", "S[(4,2,4):(1@TCol,1@bx,1@TLane)]", (8, 4)),
        ("S[16:1@bx]", "S[16:1@by]", (16,)),
    ],
)
def test_what_stays_is_at_the_same_place_on_every_axis(
    src: str, dst: str, shape: tuple[int, ...]
) -> None:
    one, two = parse(src), parse(dst)
    page = draw.compare.scene(one, two, shape)
    places = [
        [{a: v for a, v in each.apply(n).items() if v} for each in (one, two)]
        for n in range(int(np.prod(shape)))
    ]
    stays = [data(c)["class"] == "0" for c in page.panel("moves").cells]
    assert stays == [here == there for here, there in places]
    assert 0 < sum(stays) < len(stays)


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("S[(4,4):(1@P,1@F)]", "S[(4,4):(1@TLane,1@TCol)]"),
        ("S[(4,4):(4,1)]", "S[(4,4):(4@F,1@F)]"),
        ("S[(4,4):(4@laneid,1@laneid)]", "S[(4,4):(4,1)]"),
    ],
)
def test_nothing_stays_between_unlike_spaces(src: str, dst: str) -> None:
    page = draw.compare.scene(parse(src), parse(dst), (4, 4))
    assert texts(page.panel("title"))[-1] == "of 16 elements: 16 move"


def test_a_title_is_plain_text_in_every_kind_of_file(tmp_path: Path) -> None:
    def drawn(title: str) -> bytes:
        draw.lane_map(D.layout, D.shape, title=title, path=tmp_path / "a.png")
        return (tmp_path / "a.png").read_bytes()

    assert drawn("costs $5 and $6") != drawn("costs 5and6")
    assert len(_outline("$5$", False)) > len(_outline("5", False))
    draw.lane_map(D.layout, D.shape, title="$x_{$", path=tmp_path / "c.png")
    draw.lane_map(D.layout, D.shape, title="$x_{$", path=tmp_path / "c.pdf")


@pytest.mark.parametrize(
    "title", ["m" * 500, "S[" + "(" * 300 + "]", "長" * 90, f"one {'w' * 200}"]
)
def test_a_title_without_blanks_does_not_widen_the_page(title: str) -> None:
    for scene_of in (draw.lane_map.scene, draw.derivation.scene):
        scene = scene_of(D.layout, D.shape, title=title)
        lines = [
            text for text in scene.panels[0].texts if text.bold == scene.panels[0].texts[0].bold
        ]
        assert scene.width <= 7 * 72
        assert "".join(line.string for line in lines).startswith(title.replace(" ", "")[:40])
        for line in lines:
            assert line.x + text_width(line.string, line.size, line.bold) <= scene.width


@pytest.mark.parametrize("title", ["a\x07b", "a\nb", "\ud800", 5])
def test_a_title_is_one_line_of_text(title: Any) -> None:
    for refuses in (
        lambda: draw.lane_map.svg(D.layout, D.shape, title=title),
        lambda: draw.derivation(D.layout, D.shape, title=title),
        lambda: D.layout.to_html(D.shape, title=title),
    ):
        with pytest.raises(LayoutError, match="a title is one line of text"):
            refuses()


@pytest.mark.parametrize("function", [draw.lane_map, draw.derivation, draw.banks])
def test_what_no_picture_shows_is_refused(function: Any) -> None:
    for shape in (5, ("n", 8), (2.0, 8)):
        with pytest.raises(LayoutError, match="a shape is a sequence of numbers"):
            function(PLAIN, shape)
    for width in ("7", float("nan"), float("inf"), 0, True):
        with pytest.raises(LayoutError, match="width is that of the page in inches"):
            function(PLAIN, (64, 64), width=width)
    with pytest.raises(LayoutError, match="ax is the axes of a figure"):
        function(PLAIN, (64, 64), ax=5)
    with pytest.raises(LayoutError, match=f"{function.__name__}: needs a layout of elements"):
        function(SwizzleLayout(3, 3, 3), (64, 64))


def test_the_recipe_is_that_of_the_conversion() -> None:
    found = convert(A.layout, TURNED, (16, 16), 16)
    assert found.registers == (0, 2, 1, 3)  # F27: blocks trade places as well
    lines = texts(scene("compare").panel("how"))
    assert lines[:2] == ["how", f"{found.kind}, 16-bit elements"]
    for line in ("t0 = movmatrix r0", "d1 = t2", "d2 = t1", "per thread: 4 movmatrix"):
        assert line in lines
    assert "moves" in {p.name for p in scene("compare in memory").panels}
    assert "how" not in {p.name for p in scene("compare in memory").panels}
    notes = texts(scene("compare in memory").panel("title"))
    table = PLAIN.table((64, 64))["m"] == SWIZZLED.table((64, 64))["m"]
    assert notes[-1] == f"of 4096 elements: {table.sum()} stay, {(~table).sum()} move"


def test_why_nothing_converts_is_said() -> None:
    src = TileLayout(S[(4, 2) : (1 @ laneid, 0)])
    page = draw.compare.scene(src, TileLayout(S[(4, 2) : (1 @ laneid, 1)]), (4, 2))
    assert any("two elements" in line or "convert" in line for line in texts(page.panel("how")))


# ---------------------------------------------------------------- tiling


@pytest.mark.parametrize("name", ["tiling", "tiling of 128", "tiling of one warp"])
def test_each_cell_names_the_warps_and_slots_of_its_tile(name: str) -> None:
    shape, warps = {
        "tiling": ((64, 64, 32), (2, 2)),
        "tiling of 128": ((128, 128, 64), (2, 4)),
        "tiling of one warp": ((32, 16, 16), (1, 1)),
    }[name]
    page = scene(name)
    per = shape[0] // warps[0], shape[1] // warps[1]
    for part, fragment, extents in (
        ("A", A, (shape[0], shape[2])),
        ("B", B, (shape[2], shape[1])),
        ("D", D, (shape[0], shape[1])),
    ):
        panel = page.panel(part)
        rows, cols = fragment.shape
        assert len(panel.cells) == extents[0] // rows * (extents[1] // cols)
        for cell in panel.cells:
            row, col = int(data(cell)["row"]), int(data(cell)["col"])
            owners = {
                i + warps[0] * j
                for i in range(warps[0])
                for j in range(warps[1])
                if (part == "B" or row // per[0] == i) and (part == "A" or col // per[1] == j)
            }
            assert set(map(int, data(cell)["warp"].split())) == owners
            assert (cell.corner is None) == (len(owners) == 1)
            # tiles of a warp are numbered row-major
            share = {"A": (per[0], shape[2]), "B": (shape[2], per[1]), "D": per}[part]
            tile = (row % share[0]) // rows * (share[1] // cols) + (col % share[1]) // cols
            first, last = tile * fragment.slots, (tile + 1) * fragment.slots - 1
            letter = {"A": "a", "B": "b", "D": "c"}[part]
            assert data(cell)["register"] == f"{letter}{first}..{last}"


def test_the_layouts_of_a_tiling_carry_the_replicas() -> None:
    a, b, d = parts_of(MMA, (64, 64, 16), (2, 2))
    assert str(a.layout).endswith("+ R[2:2@warpid]")
    assert str(b.layout).endswith("+ R[2:1@warpid]")
    assert not d.layout.replica
    table = d.layout.table((64, 64))
    places = set(
        zip(*(table[axis].reshape(-1).tolist() for axis in ("warpid", "laneid", "m")), strict=True)
    )
    assert places == set(itertools.product(range(4), range(32), range(32)))
    assert (a.registers, b.registers, d.registers) == (8, 8, 32)
    said = " ".join(texts(scene("tiling").panel("layouts")))
    assert "R[2:2@warpid]" in said


def test_a_sparse_a_has_half_the_columns() -> None:
    page = scene("tiling of nonzeros")
    a, b = page.panel("A").cells, page.panel("B").cells
    assert len(a) == 4 * 2
    assert len(b) == 2 * 4
    assert {data(c)["col"] for c in a} == {"0", "16"}
    assert {data(c)["row"] for c in b} == {"0", "32"}
    assert "nz" in texts(page.panel("A"))


def test_boundaries_of_warps_steps_and_instructions() -> None:
    page = scene("tiling")
    for part, warp, step, solid in (("A", 1, 1, 3), ("B", 1, 1, 7), ("D", 2, 0, 10)):
        panel = page.panel(part)
        assert len(strokes(panel, "warp")[0].paths) == warp
        assert sum(len(s.paths) for s in strokes(panel, "step")) == step
        assert sum(len(s.paths) for s in strokes(panel, "instruction")) == solid
        assert strokes(panel, "warp")[0].width > 2 * strokes(panel, "instruction")[0].width
        for stroke in strokes(panel, "step"):
            assert stroke.dashes is not None
        held = [c for c in panel.cells if "0" in data(c)["warp"].split()]
        edges = segments(panel, "lane")
        xs = {round(x, 1) for pair in edges for x, _ in pair}
        assert min(xs) == pytest.approx(min(c.x for c in held), abs=0.8)
        assert max(xs) == pytest.approx(max(c.x + c.width for c in held), abs=0.8)
    strings = texts(page.panel("legend"))
    assert [f"W{w}" in strings for w in range(5)] == [True] * 4 + [False]
    assert "held by several warps" in strings
    assert any("16 mma" in note for note in texts(page.panel("title")))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw.registers("mma.m16n8k17.f16"), "mma.m16n8k1"),
        (lambda: draw.registers(MMA, "E"), "'E'"),
        (lambda: draw.registers(MMA, lane=32), "lane 32. Owners are 0..31"),
        (lambda: draw.registers(MMA, lanes=(8, 40)), r"within 0..32; got \(8, 40\)"),
        (lambda: draw.registers(MMA, lanes=3), r"lanes is \(begin, end\) within 0..32; got 3"),
        (lambda: draw.registers(MMA, "A", slots=(7, 7)), r"within 0..8.*got \(7, 7\)"),
        (lambda: draw.registers(MMA, "A", slots=(4, 12)), r"of A is .* within 0..8; got \(4, 12\)"),
        (lambda: draw.registers(MMA, slots=(0, 8)), r"slots of B .* 0..4; got .* \(0, 4\) fits"),
        (lambda: draw.registers(MMA, "A", slots=(-2, 4)), r"within 0..8; got \(-2, 4\)"),
        (
            lambda: draw.registers("mma.m16n8k32.s8", "A", slots=(2, 8)),
            r"within 0..16, multiples of 4; got \(2, 8\)",
        ),
        (lambda: draw.registers(MMA, "A", width=0.6), "needs .* inches; got 0.6"),
        (lambda: draw.registers(MMA, path="a.gif"), r"registers: .*'\.gif'.*\.tex"),
        (lambda: draw.derivation(D.layout, (16, 8), (16, 0)), r"an element of \(16, 8\)"),
        (lambda: draw.derivation(D.layout, ()), "1 to 6 dimensions"),
        (lambda: draw.derivation(D.layout, (16, 8), width=1), "larger width"),
        (lambda: draw.derivation(D.layout, (16, 16)), "256"),
        (lambda: draw.ldmatrix(MMA, "C/D.f32"), "16 bytes of one stored row"),
        (lambda: draw.ldmatrix(MMA, lane=77), "0..31, or None; got 77"),
        (lambda: draw.ldmatrix(MMA, width=1), "Pass a larger width"),
        (
            lambda: draw.ldmatrix(MMA, memory=TileLayout(S[(16, 16) : (18, 1)])),
            "row start not 16-byte aligned",
        ),
        (
            lambda: draw.banks(TileLayout(S[(8, 32) : (33, 1)]), (8, 32), 4, "st.shared"),
            r"element \(1, 0\) lies at byte 16, bit 4\. A pitch",
        ),
        (lambda: draw.banks(PLAIN, (64,)), r"\(rows, columns\); got shape \(64,\)"),
        (lambda: draw.banks(PLAIN, (64, 64), phase=64), "0..63; got 64"),
        (lambda: draw.banks(PLAIN, (64, 64), access="ldmtrix"), "banks: no access.*'ldmtrix'"),
        (lambda: draw.banks(PLAIN, (64, 64), width=0.5), "larger width, or wider axes; 7 fits"),
        (
            lambda: draw.banks(TileLayout(S[(64, 64) : (1, 64)]), (64, 64)),
            "banks: a swizzle is chosen for.*row-major tile with one pitch",
        ),
        (lambda: draw.banks(D.layout, (16, 8), 32), "banks: a swizzle is chosen"),
        (lambda: draw.coalescing(A.layout, PLAIN, (16, 16), vector=3), "whole vectors of 3"),
        (
            lambda: draw.coalescing(
                A.layout, TileLayout(S[(16, 16) : (1, 16)]), (16, 16), vector=2
            ),
            "inner stride not 1",
        ),
        (
            lambda: draw.coalescing(A.layout, TileLayout(S[256:1]), (16, 16), requests=(4, 5)),
            r"within 0..4; got \(4, 5\)",
        ),
        (
            lambda: draw.coalescing(A.layout, TileLayout(S[256:1]), (16, 16), requests=(2, 9)),
            r"within 0..4; got \(2, 9\). \(0, 4\) fits",
        ),
        (
            lambda: draw.coalescing(A.layout, TileLayout(S[256:1]), (16, 16), requests=(0, 1.5)),
            r"within 0..4; got \(0, 1.5\)",
        ),
        (lambda: draw.coalescing(A.layout, TileLayout(S[256:1]), (16, 16), 4), "a byte or more"),
        (
            lambda: draw.coalescing(A.layout, TileLayout(S[256:1]), (16, 16), lane=32),
            "0..31, or None; got 32",
        ),
        (
            lambda: draw.coalescing(A.layout, TileLayout(S[256:1]), (16, 16), width=0.3),
            "Pass a larger width",
        ),
        (lambda: draw.compare(A.layout, D.layout, (16, 16)), "256|128"),
        (lambda: draw.compare(PLAIN, SWIZZLED, (64, 64), width=0.5), "Pass a larger width"),
        (lambda: draw.tiling(MMA, (64, 64), (2, 2)), r"\(M, N, K\).*got \(64, 64\)"),
        (lambda: draw.tiling(MMA, (48, 64, 16), (2, 2)), "M a multiple of 32.*got"),
        (lambda: draw.tiling(MMA, (64, 64, 16), (2, 2), 4), "0..3, or None; got 4"),
        (lambda: draw.tiling("wgmma.m64n8", (64, 8, 16)), "one warp with A, B and D"),
        (lambda: draw.tiling(MMA, (64, 512, 16), width=1), "larger width"),
        (
            lambda: draw.tiling("mma.m8n8k4.f16", (64, 64, 16)),
            "that forms one product; mma.m8n8k4.f16 forms 4 of 8 x 8",
        ),
        (lambda: draw.ldmatrix("mma.m8n8k4.f16"), "that forms one product; mma.m8n8k4.f16 forms 4"),
        (
            lambda: draw.ldmatrix("mma.m16n8k64.mxf4.e2m1.ue8m0", "SFA"),
            "whole vectors of 4 slots",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(
    call: Callable[[], Figure], message: str
) -> None:
    with pytest.raises(LayoutError, match=message):
        call()


# ---------------------------------------------------------------- writers


@pytest.mark.parametrize("name", CALLS)
def test_every_kind_of_file_is_written_the_same_twice(name: str, tmp_path: Path) -> None:
    for suffix, begins in ((".svg", b"<svg "), (".tex", b"% "), (".png", b"\x89PNG")):
        paths = [tmp_path / f"{n}{suffix}" for n in ("1" if suffix == ".png" else "12")]
        for path in paths:
            CALLS[name](path=path)
        assert all(path.read_bytes().startswith(begins) for path in paths)
        assert len({path.read_bytes() for path in paths}) == 1


def test_given_axes_are_drawn_on_at_their_width() -> None:
    figure = Figure(figsize=(7, 5), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    assert draw.registers(MMA, "A", ax=axes) is figure
    assert len(axes.collections) == 3
    assert axes.get_xlim()[1] == pytest.approx(draw.registers.scene(MMA, "A", width=7).width)


@pytest.mark.parametrize("name", CALLS)
def test_every_picture_takes_axes(name: str) -> None:
    figure = Figure(figsize=(7, 7), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    assert CALLS[name](ax=axes) is figure
    assert len(axes.collections) == 3


def test_tikz_has_every_cell_colour_line_and_text_of_the_scene() -> None:
    for name in CALLS:
        page = scene(name)
        text = draw.tikz_text(page)
        assert text.count("\\node at") == sum(len(p.texts) for p in page.panels)
        assert text.count("\\begin{scope}") == text.count("\\end{scope}")
        bare = text.replace(r"\{", "").replace(r"\}", "")
        assert bare.count("{") == bare.count("}")
        defined = set(re.findall(r"\\definecolor\{(\w+)\}", text))
        used = set(re.findall(r"layoutalg[0-9a-f]{6}", text))
        assert used == defined
        assert text.count("\\draw[") == sum(bool(s.paths) for p in page.panels for s in p.strokes)
        area: dict[str, float] = {}
        for color, paths in re.findall(r"\\fill\[layoutalg(\w+)\] ([^;]*rectangle[^;]*);", text):
            numbers = [float(v) for v in re.findall(r"-?[\d.]+", paths)]
            for x, y, right, low in zip(*(numbers[n::4] for n in range(4)), strict=True):
                area[color] = area.get(color, 0.0) + (right - x) * (low - y)
        want: dict[str, float] = {}
        for panel in page.panels:
            for cell in panel.cells:
                key = cell.fill.lstrip("#").lower()
                want[key] = want.get(key, 0.0) + cell.width * cell.height
        assert area == pytest.approx(want, rel=0.01)


def test_tikz_sets_names_from_outside_as_they_are() -> None:
    nasty = r"50% of \a_b {x} #1 $y$ ~^&<>|"
    page = draw.lane_map.scene(D.layout, D.shape, title=nasty)
    text = draw.tikz_text(page)
    assert text.splitlines()[2].startswith("\\begin{tikzpicture}")
    for character in "%_{}#$&":
        assert f"\\{character}" in escaped(nasty)
    assert escaped("two\nlines") == "two lines"
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="NO LATEX HERE: TikZ is not compiled")
def test_latex_sets_the_pictures(tmp_path: Path) -> None:
    names = ["derivation with replicas", "tiling"]
    parts = []
    for n, name in enumerate(names):
        (tmp_path / f"{n}.tex").write_text(draw.tikz_text(scene(name)))
        parts.append(f"\\input{{{n}.tex}}\\newpage")
    odd = draw.lane_map.scene(D.layout, D.shape, title=r"50% \a_b {x} #1 $y$ ~^&<>|")
    (tmp_path / "odd.tex").write_text(draw.tikz_text(odd))
    document = "\n".join(
        [
            r"\documentclass{article}\usepackage{tikz}\begin{document}",
            *parts,
            r"\input{odd.tex}\end{document}",
        ]
    )
    (tmp_path / "page.tex").write_text(document)
    run = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "page.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert run.returncode == 0, run.stdout[-2000:]


WRITE = """
import sys
from pathlib import Path
from layoutalg import S, TileLayout, draw, fragments
folder = Path(sys.argv[1])
A = fragments.get("mma.m16n8k16.f16", "A")
turned = fragments.transposed(A.layout, A.shape)
memory = TileLayout(S[(64, 64) : (64, 1)])
for suffix in ("svg", "tex"):
    draw.registers("mma.m16n8k16.f16", path=folder / f"registers.{suffix}")
    draw.derivation(A.layout, A.shape, path=folder / f"derivation.{suffix}")
    draw.ldmatrix("mma.m16n8k16.f16", path=folder / f"ldmatrix.{suffix}")
    draw.banks(memory, (64, 64), path=folder / f"banks.{suffix}")
    draw.coalescing(A.layout, TileLayout(S[256:1]), A.shape, path=folder / f"coalescing.{suffix}")
    draw.compare(A.layout, turned, A.shape, path=folder / f"compare.{suffix}")
    draw.tiling("mma.m16n8k16.f16", (64, 64, 32), (2, 2), path=folder / f"tiling.{suffix}")
for suffix in ("png", "pdf"):
    draw.banks(memory, (64, 64), path=folder / f"banks.{suffix}")
    draw.tiling("mma.m16n8k16.f16", (64, 64, 32), (2, 2), path=folder / f"tiling.{suffix}")
"""


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    sums = written_by_two(WRITE, tmp_path)
    assert len(sums[0]) == 18
    assert sums[0] == sums[1]


def test_scenes_svg_and_tikz_need_no_matplotlib() -> None:
    code = (
        "import sys; from layoutalg import S, TCol, TileLayout, TLane, draw, fragments\n"
        "A = fragments.get('mma.m16n8k16.f16', 'A')\n"
        "m = TileLayout(S[(16, 16) : (16, 1)])\n"
        "for page in (draw.registers.scene('mma.m16n8k16.f16'), draw.derivation.scene(A.layout, "
        "A.shape), draw.ldmatrix.scene('mma.m16n8k16.f16'), draw.banks.scene(m, (16, 16)), "
        "draw.coalescing.scene(A.layout, m, A.shape), draw.compare.scene(A.layout, A.layout, "
        "A.shape), draw.tiling.scene('mma.m16n8k16.f16', (16, 8, 16)), draw.descriptor.scene("
        "m, (16, 16), {'all': m.table((16, 16))['m']}), draw.tensor_memory.scene({'one CTA': ["
        "draw.TensorBuffer('D', TileLayout(S[(8, 8) : (1 @ TLane, 1 @ TCol)]), (8, 8))]})):\n"
        "    draw.svg_text(page), draw.tikz_text(page)\n"
        "print(sorted({'matplotlib', 'numba'} & set(sys.modules)))"
    )
    assert printed_by(code) == "[]\n"
