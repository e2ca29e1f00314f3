"""``descriptor``: the 16-byte chunks of a shared tile that a matrix descriptor reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from layoutalg.draw.scene.grid import Grid
from layoutalg.draw.scene.ownership import IntArray, checked_shape
from layoutalg.draw.scene.page import (
    MARGIN,
    PAGE,
    SMALL,
    Mark,
    Page,
    checked_names,
    checked_pair,
    wrapped,
)
from layoutalg.draw.scene.palette import EMPTY, HUES, INK, NOTE, WARP_HUES
from layoutalg.draw.scene.picture import picture
from layoutalg.draw.scene.scene import (
    Panel,
    Path,
    Point,
    Scene,
    Stroke,
    Text,
    checked_title,
    fitting_size,
    text_width,
)
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.layouts.tile_layout import Layout
from layoutalg.memory.access import LINE_BYTES, element_bits

_CHUNK = 16  # bytes that stay together
_EIGHT = 8  # chunks of a core matrix
_HIGH = 15.0  # height of a line of memory, in points
_HEAD = 20.0  # height of what stands above a panel, with one line of title
_LAST = -11.5  # baseline of the last line of its title, from the panel on
_TITLE_LINE = 9.0
_GAP = 10.0
_WIDEST = 30.0  # width of a chunk

Visits = Mapping[str, Any]


def core_matrices(places: IntArray, unit: int) -> tuple[IntArray, IntArray]:
    """Return the core matrix and the address of each 16-byte chunk that a descriptor reads.

    A core matrix is 8 chunks of 16 bytes, one under the other; they are counted along the second
    dimension first.

    Args:
        places: (rows, columns): the address of each element that is read, in elements.
        unit: the elements of a chunk.

    Raises:
        LayoutError: the elements of no dimension lie together in chunks.

    >>> K_major = 64 * np.arange(16)[:, None] + np.arange(16)
    >>> numbers, chunks = core_matrices(K_major, 8)
    >>> numbers[[0, 0, 8], [0, 1, 0]].tolist(), chunks[1].tolist()
    ([0, 1, 2], [8, 9])
    """
    for axis in (1, 0):
        runs = np.moveaxis(places, axis, 1)
        if runs.shape[1] % unit or runs.shape[0] % _EIGHT:
            continue
        split = runs.reshape(runs.shape[0], -1, unit)
        first = split[:, :, 0]
        together = (split == first[:, :, None] + np.arange(unit)).all() and not (first % unit).any()
        if together:
            line, along = np.indices(first.shape)
            across = first.shape[0] // _EIGHT
            number = line // _EIGHT * first.shape[1] + along
            if axis == 0:
                number = along * across + line // _EIGHT
            return number, first // unit
    raise LayoutError(
        f"descriptor: addresses form chunks of 16 bytes, {unit} elements, 8 to a core matrix; got "
        f"shape {places.shape} that begins {places[:2, :2].tolist()}. Descriptor.places fits"
    )


def _checked(visits: Visits, tile: int) -> dict[str, IntArray]:
    """Return the addresses of each visit as arrays.

    Raises:
        LayoutError: no visit, or one that is no integer array of addresses inside the tile.
    """
    if not isinstance(visits, Mapping) or not visits:
        raise LayoutError(
            f"descriptor: visits is {{title: addresses of shape (rows, columns)}}; got {visits!r}"
        )
    found = {}
    for title, places in visits.items():
        name = checked_title(str(title), "descriptor")
        try:
            table = np.asarray(places)
        except ValueError as error:
            raise LayoutError(
                f"descriptor: visit {title!r} must be addresses of shape (rows, columns); got rows "
                "of several lengths"
            ) from error
        if table.ndim != 2 or not table.size or table.dtype.kind not in "iu":
            raise LayoutError(
                f"descriptor: visit {title!r} must be integer addresses of shape (rows, columns); "
                f"got shape {table.shape} of {table.dtype}"
            )
        if int(table.min()) < 0 or int(table.max()) >= tile:
            raise LayoutError(
                f"descriptor: visit {title!r} must have addresses within the tile, 0..{tile - 1}; "
                f"got {int(table.min())}..{int(table.max())}"
            )
        found[name] = table.astype(np.int64)
    return found


@picture
def descriptor(
    layout: LayoutLike,
    shape: Sequence[int],
    visits: Visits,
    dtype: int | str = 16,
    *,
    names: tuple[str, str] = ("row", "k"),
    lines: tuple[int, int] = (0, 16),
    width: float = PAGE,
) -> Scene:
    """Draw which 16-byte chunks of a shared tile the tensor core reads through a descriptor.

    A line is 128 bytes of memory, a cell one chunk of 16, labelled by its first element. Chunks
    that an instruction reads are outlined and numbered by core matrix: 8 chunks of 16 bytes.

    Args:
        layout: of the operand in shared memory, on axis m, in elements.
        shape: (rows, columns) of it.
        visits: per title the address of each element that an instruction reads, in elements, as
            ``lowering.isa.smem_descriptor.Descriptor.places`` returns it: one panel each.
        dtype: of the elements: bits, or a type.
        names: of rows and columns.
        lines: (begin, end) of those that are drawn.
        width: of the page in inches, 7 unless given.

    Raises:
        LayoutError: no tile in memory, addresses outside of it or not in chunks, lines out of
            range, an unknown suffix, or too narrow a page.

    >>> from layoutalg import ComposeLayout, S, TileLayout
    >>> tile = ComposeLayout(3, 3, 3, TileLayout(S[(64, 64) : (64, 1)]))
    >>> figure = descriptor(tile, (64, 64), {"k = 0": tile.table((64, 64))["m"][:, :16]}, "f16")
    >>> cells = figure.scene.panel("visit 0").cells
    >>> [cell.title for cell in cells if ("core", "1") in cell.data][:2]
    ['(0, 8), core matrix 1 at byte 16', '(1, 8), core matrix 1 at byte 128']

    Source: PTX ISA, "Asynchronous warpgroup-level matrix shared memory layout", core matrix.
    """
    bits = element_bits(dtype, "descriptor")
    layout, extents = as_layout(layout, "descriptor"), checked_shape(shape, "descriptor")
    if len(extents) != 2 or not isinstance(layout, Layout):
        raise LayoutError(
            f"descriptor: a tile in memory is a layout over (rows, columns); got {layout} over "
            f"{extents}"
        )
    table = layout.table(extents)
    if set(table) != {"m"}:
        raise LayoutError(f"descriptor: an operand lies in memory, on axis m; got {layout}")
    unit = 8 * _CHUNK // bits
    per_line = LINE_BYTES // _CHUNK
    depth = -(-(int(table["m"].max()) + 1) // (unit * per_line))
    held = np.full((depth * per_line * unit, 2), -1, dtype=np.int64)
    held[table["m"]] = np.moveaxis(np.indices(extents), 0, -1)
    asked = _checked(visits, len(held))
    begin, end = checked_pair(lines, "descriptor", "lines is (begin, end) of 128 bytes")
    if not 0 <= begin < end or begin >= depth:
        raise LayoutError(
            f"descriptor: lines is (begin, end) of 128 bytes within 0..{depth}; got {tuple(lines)}"
        )
    shown = range(begin, min(end, depth))
    first, second = checked_names(names, "descriptor")
    notes = [
        f"a line is 128 bytes, a cell a chunk of 16: {unit} elements of {bits} bits; its first is "
        f"{first},{second}",
        "outlined: what one instruction visits; below, the core matrix (8 chunks), counted along "
        f"{second} first",
    ]
    if len(shown) < depth:
        notes.append(f"shown: lines {shown.start}..{shown.stop - 1} of {depth}")
    title = f"shared memory as the tensor core visits it: {layout}"
    page = Page(title, notes, width)

    gutter = text_width(str((depth - 1) * LINE_BYTES), SMALL) + 5
    fit = min(len(asked), 2)
    chunk = min((page.room - (fit - 1) * _GAP) / fit - gutter, _WIDEST * per_line) / per_line
    widest = text_width(f"{extents[0] - 1},{extents[1] - 1}", 1.0)
    size = fitting_size(widest, 2, chunk, _HIGH, 6.0)
    if size is None:
        raise LayoutError(
            f"descriptor: chunks of {chunk:.0f} points have no room for their labels; pass a width "
            f"larger than {width:g} inches"
        )
    chunk = int(chunk * 4) / 4
    wide = chunk * per_line
    heads = [_head(name, places, unit, wide) for name, places in asked.items()]
    for number, (above, places) in enumerate(zip(heads, asked.values(), strict=True)):
        column = number % fit
        if not column:
            highest = min(text.y for texts in heads[number : number + fit] for text in texts)
            top = page.bottom + 6 * (number > 0) + _HEAD + _LAST - highest
        at = MARGIN + gutter + column * (gutter + wide + _GAP), top
        panel = _memory(number, above, held, places, unit, shown, at, (chunk, _HIGH), size)
        page.add(panel, at[0] + wide, top + _HIGH * len(shown))
    marks = [
        Mark("", "fill", HUES[WARP_HUES[0]][0]),
        Mark("visited: colour is the core matrix", "fill", HUES[WARP_HUES[1]][0]),
        Mark("not visited", "fill", EMPTY),
        Mark("one chunk of the visit", "lane"),
    ]
    page.key(marks, MARGIN + gutter, page.bottom + 6, max(page.right - MARGIN, 200.0))
    return page.scene()


def _head(name: str, places: IntArray, unit: int, wide: float) -> list[Text]:
    """Set a panel's title and the first byte of its visit, relative to the panel's corner."""
    chunks = places.size // unit
    said = f"first byte {int(places.flat[0]) // unit * _CHUNK}: {chunks} chunks"
    lines = [(line, 7.0, True, INK) for line in wrapped(name, wide, 7, True)]
    after = text_width(lines[-1][0], 7, True) + 4
    beside = after + text_width(said, 6) <= wide
    if not beside:
        lines += [(line, 6.0, False, NOTE) for line in wrapped(said, wide, 6)]
    texts = [
        Text(0.0, _LAST - _TITLE_LINE * (len(lines) - 1 - n), line, size, "start", bold, color)
        for n, (line, size, bold, color) in enumerate(lines)
    ]
    return texts + [Text(after, _LAST, said, 6, "start", color=NOTE)] * beside


def _memory(
    number: int,
    above: Sequence[Text],
    held: IntArray,
    places: IntArray,
    unit: int,
    shown: range,
    at: Point,
    pitch: Point,
    size: float,
) -> Panel:
    """Draw lines of memory; the chunks of a visit are coloured by core matrix and outlined."""
    (x, y), (wide, high) = at, pitch
    table = Grid(at, pitch, len(shown), LINE_BYTES // _CHUNK)
    core, chunks = core_matrices(places, unit)
    of_chunk = dict(zip(chunks.ravel().tolist(), core.ravel().tolist(), strict=True))
    cells, texts, small = [], [], []
    outlines: list[Path] = []
    for i, j in table:
        chunk = shown[i] * table.columns + j
        row, col = held[chunk * unit].tolist()
        what = f"({row}, {col})" if row >= 0 else "nothing"
        data = {"byte": chunk * _CHUNK, "row": row, "col": col}
        visited = of_chunk.get(chunk)
        fill, label = EMPTY, f"{row},{col}"
        left, top = table.corner(i, j)
        if visited is None:
            text = table.label(i, j, label, size, False, NOTE)
        else:
            fill = HUES[WARP_HUES[visited % len(HUES)]][visited // len(HUES) % 4]
            data["core"] = visited
            outlines.append(table.box(i, j))
            what += f", core matrix {visited}"
            small.append(Text(left + wide / 2, top + high - 2, f"c{visited}", SMALL))
            bold = text_width(label, size, True) < wide - 1
            base = top + 2 + 0.73 * size
            text = Text(left + wide / 2, base, label, size, "middle", bold, "#000000")
        cells.append(table.fill(i, j, fill, f"{what} at byte {chunk * _CHUNK}", data))
        texts += [text] * (row >= 0)
    heads = [
        *table.beside((n, line * LINE_BYTES) for n, line in enumerate(shown)),
        Text(x - 3, y - 2.5, "byte", SMALL, "end", color=NOTE),
        *table.above((j, f"+{j * _CHUNK}") for j in range(table.columns)),
    ]
    titles = [replace(text, x=x + text.x, y=y + text.y) for text in above]
    texts.sort(key=lambda text: (text.size, text.bold, text.color))
    lane = Stroke(tuple(outlines), 1.1, "#000000", role="lane")
    strokes = tuple(s for s in (table.rules(), table.frame(), lane) if s.paths)
    return Panel(f"visit {number}", tuple(cells), strokes, (*titles, *heads, *texts, *small))
