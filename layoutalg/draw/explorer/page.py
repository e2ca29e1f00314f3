"""The explorer: one HTML file that shows where every element is and follows it through a program.

A page carries no table: it holds the text of its layouts, the operations of a program as data, and
a small engine, ``explorer.js``, that evaluates both, so its size does not grow with the tile. The
browser unpacks the engine; a content security policy forbids every request. Text from a user
reaches the page as data and is shown as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from layoutalg.algebra.axis import Axis
from layoutalg.algebra.tables import check_concrete
from layoutalg.draw.scene.chosen import chosen_fragments, lane_and_product, layout_of
from layoutalg.draw.scene.naming import INDEX, slot_letter, slots_per_register
from layoutalg.draw.scene.output import checked_page
from layoutalg.draw.scene.ownership import DEFAULT_LANE
from layoutalg.draw.scene.palette import EMPTY, FILLS, INK, PAPER, WARP_HUES
from layoutalg.draw.scene.scene import checked_title
from layoutalg.errors import LayoutError
from layoutalg.files import write_whole
from layoutalg.fragments import Fragment
from layoutalg.front_door import LayoutLike
from layoutalg.interop.registry import reading
from layoutalg.layouts.swizzle import ComposeLayout
from layoutalg.layouts.tile_layout import Layout
from layoutalg.sizes.budget import EXPLORED, EXPLORED_OWNERS
from layoutalg.sizes.size import as_shape, product

MOST_BYTES = 60_000  # of a page
FRAME_HEIGHT = 640  # of a page in a notebook, in CSS pixels
_START = """(async () => {
  const packed = document.getElementById("packed").textContent;
  const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const { engine, shown } = JSON.parse(await new Response(stream).text());
  document.head.append(Object.assign(document.createElement("script"), { textContent: engine }));
  globalThis.explorer = mount(document.getElementById("explorer"), shown);
})();"""
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src {style_hash}; \
script-src {start_hash} {engine_hash}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main id="explorer">{title}<noscript>: the explorer needs JavaScript</noscript></main>
<script type="text/plain" id="packed">{packed}</script>
<script>{start}</script>
</body>
</html>
"""


@cache
def resource(name: str) -> str:
    """Return the text of ``explorer.js`` or ``explorer.css``.

    >>> "function parseLayout(" in resource("explorer.js")
    True
    """
    return (resources.files("layoutalg.draw.explorer") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the source expression of a content security policy that allows this text alone."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def page(document: Mapping[str, Any]) -> str:
    """Return a document as one self-contained HTML file.

    Args:
        document: what ``explorer.js`` shows: see :func:`document_of`.

    Raises:
        LayoutError: the page would be larger than 60 kB, by a long program or a long text.

    >>> from layoutalg import parse
    >>> text = page(document_of("layout", "<b>", [space_of("D", parse("S[()]"), ())]))
    >>> "<title>&lt;b&gt;</title>" in text, len(text) < MOST_BYTES
    (True, True)
    """
    engine = resource("explorer.js")
    style = "body{margin:0}@media(prefers-color-scheme:dark){body{background:#15171a}}\n"
    style += resource("explorer.css")
    shown = {"engine": engine, "shown": document}
    inside = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    text = _PAGE.format(
        style_hash=_hash(style),
        start_hash=_hash(_START),
        engine_hash=_hash(engine),
        title=html.escape(str(document["title"])),
        style=style,
        packed=base64.b64encode(zlib.compress(inside.encode(), 9)).decode(),
        start=_START,
    )
    if len(text.encode()) > MOST_BYTES:
        raise LayoutError(
            f"to_html: a page has at most {MOST_BYTES} bytes; got {len(text.encode())}. Keep the "
            "loops of a program rolled, and titles short"
        )
    return text


def frame(text: str, title: str) -> str:
    """Return a page as a sandboxed frame for a notebook; it works without a kernel.

    >>> frame("<p>", "a").startswith('<iframe sandbox="allow-scripts" title="a"')
    True
    """
    return (
        f'<iframe sandbox="allow-scripts" title="{html.escape(title)}" '
        f'style="width:100%;height:{FRAME_HEIGHT}px;border:0" srcdoc="{html.escape(text)}">'
        "</iframe>"
    )


def document_of(
    kind: str,
    title: str,
    spaces: Sequence[Mapping[str, Any]],
    *,
    about: str = "",
    lane: int = DEFAULT_LANE,
    flow: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the document of a page.

    Args:
        kind: ``"layout"``, ``"operands"`` (A left, B on top, D in the corner) or ``"program"``.
        title: the heading.
        spaces: see :func:`space_of`.
        about: a line below the heading.
        lane: the lane whose cells are outlined while nothing is chosen.
        flow: of a program: its script and a row for each line of it, its threads, and the fragments
            of its mma instructions.

    Raises:
        LayoutError: the title is no line of text, or the lane is out of range.
    """
    checked_title(title, "to_html")
    if type(lane) is not int or not 0 <= lane < 1024:
        raise LayoutError(f"to_html: lane is a thread's number, 0..1023; got {lane!r}")
    return {
        "kind": kind,
        "title": title,
        "about": about,
        "lane": lane,
        "axes": {a.name: [a.subscope, a.scope] if a.thread else None for a in _axes()},
        "fills": FILLS,
        "warpHues": WARP_HUES,
        "empty": EMPTY,
        "ink": INK,
        "paper": PAPER,
        "most": {"elements": EXPLORED, "owners": EXPLORED_OWNERS},
        "spaces": list(spaces),
        "flow": flow,
    }


def _axes() -> list[Axis]:
    return list(Axis.registry.values())


def space_of(
    name: str,
    layout: Layout,
    shape: Sequence[int] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return one space of a document: its name, the text of its layout, its shape.

    Args:
        name: of the tile.
        layout: a layout without symbols.
        shape: logical extents; by :func:`default_shape` unless given.
        more: ``note``, ``bits`` of an element, ``pack`` (slots of a register), ``letter`` (before a
            slot's number), ``dotted`` (slots named ``r1.0``), ``dims`` (letters of the dimensions),
            ``instruction`` (its rows and columns), ``role``, ``scope``, ``dtype``, ``views``.

    Raises:
        LayoutError: the shape does not hold the layout, or there is more than a page shows.
        Undecided: a size is symbolic.

    >>> from layoutalg import parse
    >>> D = parse("S[()]")
    >>> space_of("D", D)
    {'name': 'D', 'layout': 'S[()]', 'shape': (1, 1)}
    """
    if not isinstance(layout, Layout):
        raise LayoutError(f"to_html: needs a layout; got {layout!r}")
    tile = layout.tile_layout
    check_concrete(tile, "to_html")
    count = product([it.extent for it in tile.shard])
    copies = product([it.extent for it in tile.replica])
    if count > EXPLORED or count * copies > EXPLORED_OWNERS:
        raise LayoutError(
            f"to_html: a page shows up to {EXPLORED} elements and {EXPLORED_OWNERS} owners; "
            f"{layout} has {count} elements of {copies} owners each. Slice the layout first"
        )
    extents = default_shape(layout) if shape is None else as_shape(shape, "to_html")
    tile.apply(*(0 for _ in extents), shape=extents)  # refuses a shape that does not fit
    layout.apply(*(0 for _ in extents), shape=extents)  # refuses a swizzled tile beside axis m
    return {"name": name, "layout": str(layout), "shape": extents, **more}


def default_shape(layout: Layout) -> tuple[int, int]:
    """Return the rows and columns of a layout without a shape: near to square.

    The cut is between two iters, or inside the only one; a swizzled tile has rows of one period of
    its swizzle.

    >>> from layoutalg import S, TileLayout, laneid
    >>> default_shape(TileLayout(S[(2, 8, 4, 2):(2, 4 @ laneid, 1 @ laneid, 1)]))
    (16, 8)
    >>> default_shape(ComposeLayout(3, 3, 3, TileLayout(S[512:1])))
    (8, 64)
    """
    extents = [int(it.extent) for it in layout.tile_layout.shard]
    size = math.prod(extents)
    if isinstance(layout, ComposeLayout):
        line = 1 << (layout.per_element + layout.atom_len)
        if size > line and size % line == 0:
            return size // line, line
    cuts = {math.prod(extents[:n]) for n in range(len(extents) + 1)}
    if len(extents) == 1:
        cuts |= {cut for cut in range(1, math.isqrt(size) + 1) if size % cut == 0}
    rows = min(cuts, key=lambda cut: (max(cut, size // cut), -cut))
    return rows, size // rows


def finished(text: str, path: str | os.PathLike[str] | None) -> str:
    """Write a page where a path is given, and return it."""
    if path is not None:
        write_whole(checked_page(path), text.encode())
    return text


def layout_html(
    layout: LayoutLike,
    shape: Sequence[int] | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    lane: int = DEFAULT_LANE,
    title: str | None = None,
    bits: int | None = None,
) -> str:
    """Return a page of a layout: its elements, and its lanes × registers or memory.

    Args:
        layout: a layout without symbols, of up to 65536 elements; a fragment, or text.
        shape: logical extents; leading dimensions are shown as rows. Near to square unless given.
        path: file to write, ``.html``.
        lane: the lane whose cells are outlined while nothing is chosen.
        title: the heading; the layout's text unless given.
        bits: of an element in memory; lines of memory then have 128 bytes, and banks are named.

    Raises:
        LayoutError: the shape does not fit, there are too many elements, or another suffix.
        Undecided: a size is symbolic.

    >>> from layoutalg import S, TileLayout, laneid
    >>> D = TileLayout(S[(2, 8, 4, 2):(2, 4 @ laneid, 1 @ laneid, 1)])
    >>> layout_html(D, (16, 8)).startswith("<!DOCTYPE html>")
    True
    """
    document = layout_document(layout, shape, lane=lane, title=title, bits=bits)
    return finished(page(document), path)


def layout_document(
    layout: LayoutLike,
    shape: Sequence[int] | None = None,
    *,
    lane: int = DEFAULT_LANE,
    title: str | None = None,
    bits: int | None = None,
) -> dict[str, Any]:
    """Return the document of a layout: see :func:`layout_html`."""
    if bits is not None and (type(bits) is not int or not 1 <= bits <= 1024):
        raise LayoutError(f"to_html: bits are those of an element, 1..1024; got {bits!r}")
    more = {} if bits is None else {"bits": bits, "scope": "shared"}
    found = reading(layout, shape, "to_html")
    space = space_of("L", found.layout, found.shape, **more)
    space["note"] = " × ".join(map(str, space["shape"]))
    return document_of("layout", space["layout"] if title is None else title, [space], lane=lane)


def _fragment_space(fragment: Fragment, lane: int) -> dict[str, Any]:
    """Return the space of an operand; of several products, the one that the lane takes part in."""
    letter = slot_letter(fragment)
    _, product = lane_and_product((fragment,), lane, None)
    note = f"{fragment.shape[0]} × {fragment.shape[1]}, {fragment.dtype}"
    if fragment.products > 1:
        note += f", product {product} of {fragment.products}"
    return space_of(
        fragment.operand.split(".")[0],
        layout_of(fragment, product),
        fragment.shape,
        note=note,
        role={"C": "D"}.get(fragment.operand[0], fragment.operand[0]),
        letter=letter or "r",
        dotted=letter is None,
        pack=slots_per_register(fragment),
        bits=fragment.bits,
        dims=INDEX.get(fragment.operand[0], ("row", "col")),
    )


def fragment_html(
    fragment: Fragment,
    *,
    path: str | os.PathLike[str] | None = None,
    lane: int = DEFAULT_LANE,
    title: str | None = None,
) -> str:
    """Return a page of one operand of an instruction.

    Args:
        fragment: of the table.
        path: file to write, ``.html``.
        lane: the lane whose cells are outlined while nothing is chosen.
        title: the heading; instruction and operand unless given.

    Raises:
        LayoutError: another suffix.

    >>> from layoutalg import fragments
    >>> len(fragment_html(fragments.get("wgmma.m64n256", "D.f32"))) < MOST_BYTES
    True
    """
    if not isinstance(fragment, Fragment):
        raise LayoutError(f"fragment_html: needs a Fragment; got {fragment!r}")
    heading = f"{fragment.instruction}: {fragment.operand}" if title is None else title
    document = document_of(
        "layout",
        heading,
        [_fragment_space(fragment, lane)],
        about=f"{fragment.formula} ({fragment.source})",
        lane=lane,
    )
    return finished(page(document), path)


def operands_html(
    instruction: str,
    accumulator: str | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    lane: int = DEFAULT_LANE,
    title: str | None = None,
) -> str:
    """Return a page of all operands of an instruction, linked: A left, B on top, D in the corner.

    Args:
        instruction: a name of ``fragments.names()``.
        accumulator: which of several, such as ``"C/D.f16"``; the first unless given.
        path: file to write, ``.html``.
        lane: the lane whose cells are outlined while nothing is chosen.
        title: the heading; the instruction unless given.

    Raises:
        LayoutError: no such instruction or accumulator; another suffix.

    >>> len(operands_html("mma.m16n8k16.f16")) < MOST_BYTES
    True
    """
    chosen = chosen_fragments(instruction, accumulator)
    document = document_of(
        "operands",
        instruction if title is None else title,
        [_fragment_space(each, lane) for each in chosen],
        about=chosen[0].source,
        lane=lane,
    )
    return finished(page(document), path)
