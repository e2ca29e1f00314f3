"""The gallery's page: every instruction is on it, its pictures show the table, it is one file."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree
from functools import cache
from html.parser import HTMLParser

import numpy as np
import numpy.typing as npt
import pytest

from layoutalg import fragments
from layoutalg.algebra.axis import WARP
from layoutalg.draw import gallery
from layoutalg.draw.gallery_page import (
    FAMILIES,
    PTX_ISA,
    STYLE,
    Kind,
    family_of,
    gallery_html,
    kinds,
)
from layoutalg.draw.scene.chosen import chosen_fragments, operand_of
from layoutalg.draw.scene.palette import FILLS, WARP_HUES
from layoutalg.draw.scene.thumbnail import spots_of, thumbnail
from layoutalg.fragments import targets
from tests.layoutalg.draw.test_palette import contrast
from tests.support.paths import ROOT

KEPT = ROOT / "figures" / gallery.PAGE
VOID = {"meta"}


class Page(HTMLParser):
    """What a page holds: elements with their attributes, and the text of each list item."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.items: dict[str, str] = {}
        self.section = ""
        self.sections: dict[str, str] = {}
        self._open: list[str] = []
        self._item = ""
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {key: value or "" for key, value in attrs}
        self.elements.append((tag, named))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "h2":
            self.section = named["id"]
        if tag == "li" and "id" in named:
            self._item = named["id"]
            self.items[self._item] = ""
            self.sections[self._item] = self.section

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "li":
            self._item = ""

    def handle_data(self, data: str) -> None:
        if self._item:
            self.items[self._item] += data


@cache
def text() -> str:
    """Return the page as it is kept."""
    return gallery_html(gallery.GALLERY)


@cache
def page() -> Page:
    """Return what the page holds."""
    return Page(text())


def test_the_kept_page_is_what_the_code_draws() -> None:
    assert KEPT.read_text(encoding="utf-8") == text()
    assert gallery_html(gallery.GALLERY) == text()


def test_the_page_is_small() -> None:
    assert len(text().encode()) <= 1_500_000


def test_every_instruction_has_its_place_and_its_line() -> None:
    assert sorted(page().items) == sorted(fragments.names())
    for name, line in page().items.items():
        rows = fragments.rows(name)
        assert page().sections[name] == family_of(name)
        assert line.startswith(f"{name} ")
        assert targets.written(rows[0].min_arch) in line
        for row in rows:
            assert row.dtype in line
            assert row.certificate.statement in line


def test_links_lead_somewhere_and_nothing_is_loaded() -> None:
    ids = [named["id"] for _, named in page().elements if "id" in named]
    assert len(ids) == len(set(ids))
    for tag, named in page().elements:
        assert tag not in ("script", "link", "img", "iframe", "object")
        assert "src" not in named
        target = named.get("href", "#dense")
        if target.startswith("#"):
            assert target[1:] in ids
        elif target != PTX_ISA:
            assert (KEPT.parent / target).is_file()
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_the_page_can_be_read_aloud() -> None:
    elements = page().elements
    assert dict(elements)["html"]["lang"] == "en"
    levels = [int(tag[1]) for tag, _ in elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert levels.count(2) == len(FAMILIES)
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    pictures = [named for tag, named in elements if tag == "svg"]
    assert len(pictures) == len(kinds()) == levels.count(3)
    assert all(named["role"] == "img" for named in pictures)
    titles = re.findall(r"<svg [^>]*><title>([^<]+)</title>", text())
    assert len(set(titles)) == len(pictures)
    labels = [named["aria-labelledby"] for _, named in elements if "aria-labelledby" in named]
    assert set(labels) <= {named.get("id") for _, named in elements}


def test_text_is_readable_in_light_and_dark() -> None:
    light, dark = re.findall(r"--ink: (#\w+); --note: (#\w+); --paper: (#\w+)", STYLE)
    for ink, note, paper in (light, dark):
        assert contrast(full(ink), (full(paper),)) >= 7
        assert contrast(full(note), (full(paper),)) >= 4.5


def full(color: str) -> str:
    """Write ``#abc`` as ``#aabbcc``."""
    return color if len(color) == 7 else "#" + "".join(2 * digit for digit in color[1:])


def test_kinds_part_the_table_by_layout() -> None:
    names = [name for kind in kinds() for name in kind.names]
    assert sorted(names) == sorted(fragments.names())
    for kind in kinds():
        first = [(f.shape, f.layout) for f in chosen_fragments(kind.names[0])]
        for name in kind.names:
            assert [(f.shape, f.layout) for f in chosen_fragments(name)] == first
            assert family_of(name) == family_of(kind.names[0])


def of_family(key: str) -> list[Kind]:
    """Return the kinds of a family."""
    return [kind for kind in kinds() if family_of(kind.names[0]) == key]


def painted(tile: ElementTree.Element, shape: tuple[int, int]) -> npt.NDArray[np.object_]:
    """Paint the rectangles of a tile into an array of colours; later columns may repeat."""
    out = np.full(shape, None, dtype=object)

    def paint(cells: list[ElementTree.Element], shift: int) -> None:
        for path in cells:
            boxes = re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)h-(\d+)z", path.get("d", ""))
            assert "".join("M{} {}h{}v{}h-{}z".format(*box) for box in boxes) == path.get("d")
            for left, top, wide, high, back in (tuple(map(int, box)) for box in boxes):
                assert wide == back
                area = out[top : top + high, left + shift : left + shift + wide]
                assert area.shape == (high, wide)
                assert (area == None).all()  # noqa: E711
                area[...] = path.get("fill")

    groups = {group.get("id"): group for group in tile if group.tag == "g"}
    paint([path for path in tile if path.tag == "path"], 0)
    for group in groups.values():
        paint(list(group), 0)
    for use in (each for each in tile if each.tag == "use"):
        paint(list(groups[use.get("href", "#")[1:]]), int(use.get("x", "")))
    return out


@pytest.mark.parametrize("family", [key for key, _, _ in FAMILIES])
def test_every_cell_of_a_picture_has_the_colour_of_its_lane(family: str) -> None:
    for kind in of_family(family):
        chosen = chosen_fragments(kind.names[0])
        product = chosen[0].products - 1
        shown = [operand_of(f, None, product) for f in chosen]
        root = ElementTree.fromstring(thumbnail(shown, "all", "x"))
        tiles = [g for g in root.iter("g") if g.get("shape-rendering")]
        for fragment, tile in zip(chosen, tiles, strict=True):
            drawn = painted(tile, fragment.shape)
            owners = np.full(fragment.shape, -1)
            for lane in reversed(range(fragment.lanes)):  # of copies the first gives the colour
                held = fragment.holds[lane]
                if fragment.products > 1:
                    held = held[held[:, 0] == product]
                owners[held[:, -2], held[:, -1]] = lane
            colors = np.array(FILLS, dtype=object)
            if fragment.lanes == WARP:
                assert (drawn == colors[owners]).all()
            else:
                quarter = owners % WARP // 8
                hues = np.array(WARP_HUES)[owners // WARP]
                assert (drawn == colors[4 * hues + quarter]).all()


@pytest.mark.parametrize("family", [key for key, _, _ in FAMILIES])
def test_tiles_of_a_picture_do_not_overlap_and_stand_as_in_the_large_one(family: str) -> None:
    for kind in of_family(family):
        spots = spots_of([operand_of(f, None) for f in chosen_fragments(kind.names[0])])
        by = {spot.operand.role: spot for spot in spots}
        for one, other in itertools.combinations(spots, 2):
            beside = one.x >= other.right or other.x >= one.right
            assert beside or one.y >= other.low + 8 or other.y >= one.low + 8
        if {"A", "B", "D"} <= set(by):
            a, b, d = by["A"], by["B"], by["D"]
            assert (a.y, a.low) == (d.y, d.low)
            assert (b.x, b.right) == (d.x, d.right)
            assert b.low < d.y
            assert a.right < d.x
        assert max(spot.right for spot in spots) <= 336
