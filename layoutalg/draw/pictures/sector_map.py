"""``coalescing``: the 32-byte sectors that each request of a warp touches in global memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layoutalg.algebra.axis import WARP
from layoutalg.draw.scene.grid import RISE, Grid, label_size, outlines, titled
from layoutalg.draw.scene.ownership import DEFAULT_LANE, IntArray, checked_range, checked_shape
from layoutalg.draw.scene.page import MARGIN, PAGE, SMALL, WIDER, Mark, Page, flow
from layoutalg.draw.scene.palette import EMPTY, FILLS, NOTE, PAPER
from layoutalg.draw.scene.picture import picture
from layoutalg.draw.scene.scene import Panel, Path, Point, Scene, Stroke, Text, text_width
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike
from layoutalg.interop.registry import with_shape
from layoutalg.layouts.tile_layout import Layout
from layoutalg.memory.access import SECTOR_BYTES, Access, element_bits, sectors, slotwise

_ROW = 8.5  # height of a sector, in points
_HEAD = 27.0  # height of the lines above a request
_GAP = 10.0
_MOST = 16.0  # width of an element's cell
_FIRST = 4  # requests that are drawn unless others are asked for


def widest_access(registers: Layout, memory: Layout, shape: Sequence[int], bits: int) -> Access:
    """Return the requests of the widest vectors, of up to 16 bytes, that memory allows.

    >>> from layoutalg import S, TileLayout, fragments
    >>> D = fragments.get("mma.m16n8k16.f16", "D")
    >>> widest_access(D.layout, TileLayout(S[(16, 8) : (8, 1)]), (16, 8), 32).count
    2
    """
    reason: LayoutError | None = None
    for size in (16, 8, 4, 2, 1):
        vector = 8 * size // bits
        if vector >= 1:
            try:
                access = slotwise(registers, shape, vector, name=f"{size} B per lane")
                access.starts(memory, shape, bits)
            except LayoutError as error:
                reason = error
            else:
                return access
    assert reason is not None
    raise reason


@picture
def coalescing(
    registers: LayoutLike,
    memory: LayoutLike,
    shape: Sequence[int] | None = None,
    dtype: int | str = 16,
    lane: int | None = DEFAULT_LANE,
    *,
    vector: int | None = None,
    requests: Sequence[int] | None = None,
    width: float = PAGE,
) -> Scene:
    """Draw which 32-byte sectors each request of a warp touches in global memory.

    Each lane loads or stores its slots in ``registers``, ``vector`` at a time, at their addresses
    in ``memory``. A row is one sector; elements that a lane accesses have its colour, grey ones
    are fetched but not used. The tile is aligned to 32 bytes.

    Args:
        registers: a layout over thread axes and m (the slot).
        memory: the layout of the same tile in memory, on axis m, in elements.
        shape: logical extents (rows, columns) of both.
        dtype: of the elements: bits, or a type.
        lane: outlined; None for none.
        vector: slots per instruction; the widest that memory allows unless given.
        requests: (begin, end) of those that are drawn, the first 4 unless given; sums are over all.
        width: of the page in inches, 7 unless given.

    Raises:
        LayoutError: a lane's vector is not contiguous and aligned in memory, an argument does not
            fit, or the suffix is unknown.

    >>> from layoutalg import S, TileLayout, fragments
    >>> A = fragments.get("mma.m16n8k16.f16", "A")
    >>> figure = coalescing(A.layout, TileLayout(S[(16, 16) : (16, 1)]), (16, 16))
    >>> [text.string for text in figure.scene.panel("request 0").texts if "sectors" in text.string]
    ['8 sectors, 128 of 256 B']

    Source: CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory".
    """
    bits = element_bits(dtype, "coalescing")
    registers, extents = with_shape(registers, shape, "coalescing")
    shape = checked_shape(extents, "coalescing")
    memory, _ = with_shape(memory, shape, "coalescing")
    if bits < 8:
        raise LayoutError(f"coalescing: an element has a byte or more; got {bits} bits")
    if vector is None:
        access = widest_access(registers, memory, shape, bits)
    else:
        access = slotwise(registers, shape, vector, name=f"{vector * bits // 8} B per lane")
    starts = access.starts(memory, shape, bits) * bits // 8
    size = access.size(bits)
    touched = sectors(starts, size)
    count = len(touched)
    asked = (0, min(_FIRST, count)) if requests is None else requests
    shown = checked_range(asked, count, "coalescing: requests")
    if lane is not None and lane not in range(WARP):
        raise LayoutError(f"coalescing: lane is one of 0..31, or None; got {lane!r}")
    used = [int(np.unique(row[:, None] + np.arange(size)).size) for row in starts]
    total = sum(map(len, touched))
    least = sum(-(-each // SECTOR_BYTES) for each in used)
    moved = total * SECTOR_BYTES
    notes = [
        f"{access.name}: {count} requests of one warp, {_span(list(map(len, touched)))} sectors of "
        "32 bytes each",
        f"in all {total} sectors = {moved} bytes for {sum(used)} bytes used "
        f"({sum(used) / moved:.0%}); at least {least} sectors",
    ]
    if len(shown) < count:
        notes.append(f"shown: requests {shown.start}..{shown.stop - 1}")
    title = f"sectors of {registers} in {memory}"
    page = Page(title, notes, width)

    elements = _elements(memory, shape)
    per_sector = 8 * SECTOR_BYTES // bits
    deepest = int(max(int(touched[n][-1]) for n in shown)) * SECTOR_BYTES
    gutter = text_width(str(deepest), SMALL) + 5
    fit = min(len(shown), 4)
    cell = min((page.room - (fit - 1) * _GAP) / fit - gutter, _MOST * per_sector) / per_sector
    if cell < 1:
        raise LayoutError(
            f"coalescing: cells of 1 point or more do not fit {width:g} inches. {WIDER}, "
            "or fewer requests"
        )
    cell = int(cell * 4) / 4 if cell >= 2.5 else cell
    wide = gutter + cell * per_sector
    for n, (row, x) in zip(shown, flow([wide] * len(shown), page.room, _GAP), strict=True):
        if not x:
            top = page.bottom + _HEAD + 6 * (row > 0)
        at = MARGIN + x + gutter, top
        what = _slots(registers, shape, access, n)
        panel = _request(
            n, access, starts[n], touched[n], used[n], elements, bits, lane, what, at, cell
        )
        page.add(panel, MARGIN + x + wide, top + _ROW * len(touched[n]))
    marks = [Mark("colour: the lane that asks", "fill", FILLS[5])]
    if any(used[n] < len(touched[n]) * SECTOR_BYTES for n in shown):
        marks.append(Mark("fetched, not asked for", "fill", EMPTY))
    if lane is not None:
        marks.append(Mark(f"lane {lane}", "lane"))
    page.key(marks, MARGIN, page.bottom + 6, max(page.right - MARGIN, 200.0))
    return page.scene()


def _span(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _slots(registers: Layout, shape: Sequence[int], access: Access, number: int) -> str:
    """Name the slots that a request moves, and the warp where there are several."""
    slots = int(np.max(registers.table(shape).get("m", 0))) + 1
    warp, vector = divmod(number, slots // access.count)
    first = vector * access.count
    name = f"m{first}" if access.count == 1 else f"m{first}..{first + access.count - 1}"
    several = access.coords.shape[0] > slots // access.count
    return f"W{warp} {name}" if several else name


def _elements(memory: Layout, shape: Sequence[int]) -> IntArray:
    """Return row and column of the element at each address; -1 where there is none."""
    table = memory.table(shape)["m"]
    elements = np.full((int(table.max()) + 1, 2), -1, dtype=np.int64)
    elements[table] = np.moveaxis(np.indices(table.shape), 0, -1)
    return elements


def _request(
    number: int,
    access: Access,
    starts: IntArray,
    touched: IntArray,
    used: int,
    elements: IntArray,
    bits: int,
    lane: int | None,
    what: str,
    at: Point,
    cell: float,
) -> Panel:
    """Draw the sectors of one request, one in a row; elements that a lane accesses are coloured."""
    x, y = at
    size = access.size(bits)
    table = Grid(at, (cell, _ROW), len(touched), 8 * SECTOR_BYTES // bits)
    asked: dict[int, list[int]] = {}
    for asking, start in enumerate(starts.tolist()):
        for step in range(access.count):
            asked.setdefault(start * 8 // bits + step, []).append(asking)
    cells = []
    for n, j in table:
        sector = int(touched[n])
        address = sector * table.columns + j
        lanes = asked.get(address, [])
        inside = address < len(elements) and int(elements[address, 0]) >= 0
        where = f"({elements[address, 0]}, {elements[address, 1]})" if inside else "outside"
        title = f"{', '.join(f'T{each}' for each in lanes) or 'nobody asks for'} {where}"
        fill = FILLS[lanes[0]] if lanes else EMPTY
        data = {"lane": " ".join(map(str, lanes)), "byte": address * bits // 8, "sector": sector}
        cells.append(table.fill(n, j, fill, title, data))
    row_of = {sector: n for n, sector in enumerate(touched.tolist())}
    vector = access.count * cell
    fits = label_size(["T31"], (vector, _ROW)) if size <= SECTOR_BYTES else None
    edges: list[Path] = []
    held: list[Path] = []
    texts = []
    seen: set[int] = set()
    for asking, start in enumerate(starts.tolist()):
        i, j = row_of[start // SECTOR_BYTES], start % SECTOR_BYTES * 8 // bits
        (held if asking == lane else edges).append(table.box(i, j, 1, access.count))
        if fits is not None and start not in seen:
            left, top = table.corner(i, j)
            bold = asking == lane and text_width(f"T{asking}", fits, True) < vector - 1
            base = top + _ROW / 2 + RISE * fits
            texts.append(Text(left + vector / 2, base, f"T{asking}", fits, bold=bold))
        seen.add(start)
    texts.sort(key=lambda text: text.bold)
    said = f"{len(touched)} sectors, {used} of {len(touched) * SECTOR_BYTES} B"
    heads = [
        *table.beside(enumerate(sector * SECTOR_BYTES for sector in touched.tolist())),
        *titled(x, y - 19, f"request {number}", what),
        Text(x, y - 10.5, said, 6, "start", color=NOTE),
        Text(x - 3, y - 2.5, "byte", SMALL, "end", color=NOTE),
        Text(x, y - 2.5, "0", SMALL, "start", color=NOTE),
        Text(table.right, y - 2.5, "31", SMALL, "end", color=NOTE),
    ]
    strokes = (
        Stroke(tuple(edges), 0.6, PAPER, role="grid"),
        Stroke(table.levels(range(1, table.rows)), 0.8, PAPER, role="sector"),
        table.frame(),
        *outlines(held),
    )
    heads.sort(key=lambda text: (text.size, text.anchor, text.bold))
    drawn = tuple(stroke for stroke in strokes if stroke.paths)
    return Panel(f"request {number}", tuple(cells), drawn, (*heads, *texts))
