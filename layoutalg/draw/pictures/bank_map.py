"""``banks``: shared memory in lines of 128 bytes, and the words that a phase reads per bank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layoutalg.draw.scene.grid import RISE, Grid, label_size, outline, outlines, rectangle, titled
from layoutalg.draw.scene.ownership import IntArray, checked_shape
from layoutalg.draw.scene.page import MARGIN, PAGE, SMALL, WIDER, Mark, Page
from layoutalg.draw.scene.palette import EMPTY, HUES, INK, NOTE, WAYS
from layoutalg.draw.scene.picture import picture
from layoutalg.draw.scene.scene import Panel, Path, Point, Scene, Text, text_width
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike
from layoutalg.interop.registry import with_shape
from layoutalg.layouts.swizzle import ComposeLayout
from layoutalg.layouts.tile_layout import Layout, TileLayout
from layoutalg.memory.access import (
    BANKS,
    LINE_BYTES,
    WORD_BYTES,
    Access,
    access_of,
    element_bits,
    fewest_wavefronts,
    wavefronts,
)
from layoutalg.memory.swizzle_search import choose_swizzle, swizzle_in_words

_LINE, _LOW_LINE = 11.0, 7.0  # height of a line of memory, in points: with labels, without
_PHASE = 8.5  # height of a phase
_GUTTER = 24.0  # left of a panel
_COUNT = 22.0  # right of a panel: the wavefronts
_BETWEEN = 12.0  # between the two sides
_MOST_LINES = 32
_MOST_PHASES = 8


@dataclass(frozen=True, eq=False)
class Side:
    """The tile in memory, without the swizzle or with it.

    Attributes:
        name: of the panels.
        title: above them.
        layout: of the tile.
        elements: row and column of the element at each address; -1 where there is none.
        counts: distinct words per phase and bank.
        starts: per phase, the address of each lane's vector, in elements.
    """

    name: str
    title: str
    layout: Layout
    elements: IntArray
    counts: IntArray
    starts: tuple[IntArray, ...]


def way_color(count: int) -> str:
    """Return the colour of a bank of which a phase reads so many words.

    >>> way_color(1) == way_color(2)
    False
    """
    if count == 0:
        return EMPTY
    return WAYS[min((count - 1).bit_length(), len(WAYS) - 1)]


def _side(
    name: str,
    title: str,
    layout: Layout,
    shape: tuple[int, int],
    access: Access,
    bits: int,
) -> Side:
    table = layout.table(shape)["m"]
    line = 8 * LINE_BYTES // bits
    places = np.full((-(-(int(table.max()) + 1) // line) * line, 2), -1, dtype=np.int64)
    places[table] = np.moveaxis(np.indices(shape), 0, -1)
    starts = access.starts(layout, shape, bits)
    counts = access.counts_at(starts, bits)
    groups = zip(*access.phases(starts, bits), strict=True)
    vectors = tuple(each[taking] for each, taking in groups)
    return Side(name, title, layout, places, counts, vectors)


def _pitch_of(layout: TileLayout, shape: tuple[int, int]) -> int:
    """Return the pitch of a row-major tile, in elements."""
    table = layout.table(shape)["m"] if set(layout.table(shape)) == {"m"} else None
    pitch = shape[1] if shape[0] == 1 or table is None else int(table[1, 0])
    rows, columns = np.indices(shape)
    if table is None or pitch < shape[1] or (table != rows * pitch + columns).any():
        raise LayoutError(
            f"banks: a swizzle is chosen for a row-major tile with one pitch; got {layout}. "
            "Pass a ComposeLayout to draw its own swizzle"
        )
    return pitch


@picture
def banks(
    layout: LayoutLike,
    shape: Sequence[int] | None = None,
    dtype: int | str = 16,
    access: str | Access = "ldmatrix",
    *,
    phase: int = 0,
    width: float = PAGE,
) -> Scene:
    """Draw a tile of shared memory without and with its swizzle, and the bank conflicts of each.

    Above, memory in lines of 128 bytes (32 banks): a cell is one unit, labelled by row and unit of
    the tile, its hue is the unit's column. Below, the distinct words that each phase reads of each
    bank; the largest is the phase's number of wavefronts. The vectors of one phase are outlined.

    Args:
        layout: a ``ComposeLayout``, drawn without and with its swizzle; or a row-major
            ``TileLayout``, for which :func:`layoutalg.choose_swizzle` chooses one.
        shape: rows and columns of the tile, in elements.
        dtype: of the elements: bits, or a type.
        access: a name of ``memory.access.ACCESSES``, or an ``Access``.
        phase: outlined.
        width: of the page in inches, 7 unless given.

    Raises:
        LayoutError: the access cannot move vectors of such a tile, the phase or suffix is unknown,
            or the page is too narrow.

    >>> from layoutalg import S, TileLayout
    >>> figure = banks(TileLayout(S[(64, 64) : (64, 1)]), (64, 64), "f16")
    >>> [text.string for text in figure.scene.panel("title").texts][1]
    'ldmatrix.x4: 64 phases of 8 lanes, 16 bytes each: 512 → 64 wavefronts, at least 64'
    """
    bits = element_bits(dtype, "banks")
    layout, asked_shape = with_shape(layout, shape, "banks")
    extents = checked_shape(asked_shape, "banks")
    if len(extents) != 2:
        raise LayoutError(f"banks: a tile has (rows, columns); got shape {extents}")
    if not isinstance(layout, Layout):
        raise LayoutError(
            f"banks: needs a layout of elements in memory; got {layout!r}. A swizzle permutes a "
            "tile: pass ComposeLayout(swizzle, tile)"
        )
    asked = access_of(access, extents, bits, "banks")
    before, after = layout.tile_over(extents), layout
    if before is layout:
        after = choose_swizzle(extents, bits, _pitch_of(before, extents), [asked]).layout
    sides = [_side("before", "without a swizzle", before, extents, asked, bits)]
    words = "no swizzle is needed"
    if isinstance(after, ComposeLayout):
        lengths = (after.per_element, after.swizzle_len, after.atom_len)
        sides.append(_side("after", f"swizzle {lengths}", after, extents, asked, bits))
        words = f"swizzle {swizzle_in_words(after.swizzle, bits)}"
    phases = len(sides[0].counts)
    if type(phase) is not int or not 0 <= phase < phases:
        raise LayoutError(f"banks: phase is one of 0..{phases - 1}; got {phase!r}")
    fewest = int(fewest_wavefronts(sides[0].counts).sum())
    totals = [int(wavefronts(side.counts).sum()) for side in sides]
    fewest = int(fewest_wavefronts(sides[0].counts).sum())
    totals = [int(wavefronts(side.counts).sum()) for side in sides]
    size = asked.size(bits)
    served = {len(each) for each in sides[0].starts}
    notes = [
        f"{asked.name}: {phases} phases of {'up to ' * (len(served) > 1)}{max(served)} lanes, "
        f"{size} bytes each: "
        f"{' → '.join(map(str, totals))} wavefronts, at least {fewest}",
        words,
        f"a cell is {_unit(after, size, bits)} bytes: row, unit of the tile; at the left the byte "
        "address",
    ]
    lines, there = _lines(sides, phase, bits, asked.count)
    first = phase // _MOST_PHASES * _MOST_PHASES
    shown = range(first, min(first + _MOST_PHASES, phases))
    parts = [f"phases {shown.start}..{shown.stop - 1} of {phases}"] * (len(shown) < phases)
    parts += [f"the first {lines} of {there} lines of {LINE_BYTES} bytes"] * (lines < there)
    if parts:
        notes.append(f"shown: {', '.join(parts)}")
    title = f"banks of {extents[0]} × {extents[1]} elements of {bits} bits: {before}"
    page = Page(title, notes, width)

    wide = (page.room + _BETWEEN) / 2 - _BETWEEN if len(sides) > 1 else page.room * 0.6
    cell = (wide - _GUTTER - _COUNT) / BANKS
    if cell < 1:
        raise LayoutError(
            f"banks: the cells of 32 banks must be 1 point wide or more; {width:g} inches are too "
            f"narrow. {WIDER}; 7 fits"
        )
    cell = int(cell * 4) / 4 if cell >= 2.5 else cell
    high = _LINE if lines <= 16 else _LOW_LINE
    x, top = MARGIN, page.bottom + 19
    for side in sides:
        at = x + _GUTTER, top
        page.add(_memory(side, phase, asked, bits, lines, at, (cell, high)))
        at = x + _GUTTER, top + high * lines + 22
        x = at[0] + cell * BANKS + _COUNT
        page.add(_phases(side, shown, phase, at, cell), x, at[1] + _PHASE * len(shown))
        x += _BETWEEN
    most = max(int(side.counts.max()) for side in sides)
    ways = [w for w in (1, 2, 4, 8, 16) if w == 1 or w <= most or way_color(most) == way_color(w)]
    meanings = ("1 word in a bank", "2 words", "3..4", "5..8", "9 or more")
    marks = [Mark(f"phase {phase}", "lane")]
    marks += [Mark(meanings[n], "fill", way_color(way)) for n, way in enumerate(ways)]
    left = MARGIN + _GUTTER
    page.key(marks, left, page.bottom + 7, page.right - left)
    return page.scene()


def _lines(sides: list[Side], phase: int, bits: int, count: int) -> tuple[int, int]:
    """Return how many 128-byte lines to show, those of the phase or 8, and how many there are."""
    line = 8 * LINE_BYTES // bits
    last = max(int(side.starts[phase].max()) + count - 1 for side in sides) // line
    there = max(len(side.elements) for side in sides) // line
    return min(max(last + 1, 8), there, _MOST_LINES), there


def _unit(layout: Layout, size: int, bits: int) -> int:
    """Return how many bytes a cell stands for: what the swizzle and the access keep together."""
    if isinstance(layout, ComposeLayout):
        size = min(size, (bits << layout.per_element) // 8)
    return max(size, WORD_BYTES)


def _memory(
    side: Side,
    phase: int,
    access: Access,
    bits: int,
    lines: int,
    at: Point,
    pitch: Point,
) -> Panel:
    """Draw the first lines of memory, 128 bytes in a row; the vectors of a phase are outlined."""
    (x, y), (bank, high) = at, pitch
    unit = _unit(side.layout, access.size(bits), bits)
    count = 8 * unit // bits  # elements in a cell
    table = Grid(at, (bank * unit / WORD_BYTES, high), lines, LINE_BYTES // unit)
    cells, labels = [], []
    for n, (line, j) in enumerate(table):
        inside = n * count < len(side.elements) and int(side.elements[n * count, 0]) >= 0
        row, col = side.elements[n * count].tolist() if inside else (-1, -1)
        fill = HUES[col // count % 8][row % 4] if inside else EMPTY
        byte, number = n * unit, j * unit // WORD_BYTES
        title = f"({row}, {col})" if inside else "nothing"
        title += f" at byte {byte}, bank {number}"
        data = {"byte": byte, "row": row, "col": col, "bank": number}
        cells.append(table.fill(line, j, fill, title, data))
        labels.append(f"{row},{col // count}" if inside else "")
    size = label_size(labels, table.cell)
    banks = Grid(at, (bank, high), lines, BANKS)
    numbered = range(0, BANKS, 4 if bank * 4 > text_width("28", SMALL) + 1 else 8)
    anchor = "start" if unit > WORD_BYTES else "middle"
    step = 1 if size is not None or lines <= 16 else 4
    texts = [
        *titled(x, y - 11.5, side.title, f"worst phase: {int(wavefronts(side.counts).max())}"),
        *banks.above(((j, j) for j in numbered), anchor),
        Text(x - 4, y - 2.5, "bank", SMALL, "end", color=NOTE),
        *banks.beside(((n, n * LINE_BYTES) for n in range(0, lines, step)), 4),
        *table.labels(labels, size),
    ]
    held = _vectors(side, phase, access, bits, lines, at, pitch)
    strokes = (table.rules(), banks.frame(), *outlines(held))
    return Panel(f"memory {side.name}", tuple(cells), strokes, tuple(texts))


def _vectors(
    side: Side,
    phase: int,
    access: Access,
    bits: int,
    lines: int,
    at: Point,
    pitch: Point,
) -> tuple[Path, ...]:
    """Return the outline of each lane's vector in a phase."""
    line = 8 * LINE_BYTES // bits
    bank, high = pitch
    point = bank * BANKS / line  # width of an element
    return tuple(
        rectangle(
            at[0] + start % line * point, at[1] + start // line * high, access.count * point, high
        )
        for start in side.starts[phase].tolist()
        if start // line < lines
    )


def _phases(side: Side, shown: range, phase: int, at: Point, bank: float) -> Panel:
    """Draw the distinct words per phase and bank, and the wavefronts at the right."""
    x, y = at
    table = Grid(at, (bank, _PHASE), len(shown), BANKS)
    counted = wavefronts(side.counts)[shown.start : shown.stop].tolist()
    sizes = [label_size([widest], table.cell) for widest in ("8", "32")]
    cells, texts = [], []
    for n, j in table:
        number, count = shown[n], int(side.counts[shown[n], j])
        title = f"phase {number}, bank {j}: {count} words"
        data = {"phase": number, "bank": j, "words": count}
        cells.append(table.fill(n, j, way_color(count), title, data))
        size = sizes[count >= 10]
        if count and size is not None:
            texts.append(table.label(n, j, str(count), size, color=NOTE if count == 1 else INK))
    heads = [
        *table.beside(enumerate(shown), 4),
        *(
            Text(
                table.right + 5,
                y + (n + 0.5) * _PHASE + RISE * SMALL + 0.3,
                str(count),
                6,
                "start",
                bold=True,
            )
            for n, count in enumerate(counted)
        ),
        Text(x - 4, y - 2.5, "phase", SMALL, "end", color=NOTE),
        Text(x, y - 2.5, "distinct words per bank", SMALL, "start", color=NOTE),
        Text(table.right + _COUNT, y - 2.5, "wavefronts", SMALL, "end", color=NOTE),
    ]
    heads.sort(key=lambda text: (text.bold, text.anchor))
    texts.sort(key=lambda text: (text.size, text.color))
    strokes = [table.rules(), table.frame()]
    if phase in shown:
        row = y + (phase - shown.start) * _PHASE
        strokes.append(outline(x, row, bank * BANKS, _PHASE))
    return Panel(f"phases {side.name}", tuple(cells), tuple(strokes), (*heads, *texts))
