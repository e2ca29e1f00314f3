"""``compare``: two layouts of one tile, what moves between them, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from layoutalg.conversions.conversion import convert
from layoutalg.draw.scene.grid import Grid, label_size
from layoutalg.draw.scene.legend import legend_of
from layoutalg.draw.scene.ownership import (
    DEFAULT_LANE,
    BoolArray,
    IntArray,
    Ownership,
    labels_of,
    owners_of,
)
from layoutalg.draw.scene.page import MARGIN, PAGE, WIDER, Mark, Page, key, wrapped
from layoutalg.draw.scene.palette import WAYS
from layoutalg.draw.scene.panel import LEVELS, Tile, cell_size, gutter, header, panel_of, placed
from layoutalg.draw.scene.picture import picture
from layoutalg.draw.scene.scene import Panel, Point, Scene, Text, text_width
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike
from layoutalg.interop.registry import with_shape

_GAP = 12.0  # between panels
_LIST = 6.0  # font size of the recipe
_MOST_LINES = 24
_NARROWEST = 150.0  # of the column beside the moves
_DEEPEST = 300.0  # height of a map
_LOW_ROW = 8.0  # height of a row of moves that bear no labels

# What an element has to do, least first; the colours are those of conflicts.
STAYS, SLOT, LANE, WARP, BLOCK = range(5)
CLASSES = (
    ("stay", WAYS[0]),
    ("move within their lane", WAYS[1]),
    ("move to another lane", WAYS[2]),
    ("move to another warp", WAYS[3]),
    ("move to another block", WAYS[4]),
)


def classes_of(src: Ownership, dst: Ownership) -> IntArray:
    """Classify the move of each element: an array of ``STAYS`` to ``BLOCK``.

    An element comes from the nearest copy in ``src`` and goes to every copy in ``dst``: the widest
    of these moves counts. An axis that one layout lacks is 0 there. Layouts without a memory axis
    in common, and registers beside memory, share no address: every element moves.

    >>> from layoutalg import S, TileLayout, laneid
    >>> A = TileLayout(S[(4, 2) : (1 @ laneid, 1)])
    >>> B = TileLayout(S[(4, 2) : (1, 1 @ laneid)])
    >>> classes_of(owners_of(A, (4, 2), "doc"), owners_of(B, (4, 2), "doc")).tolist()
    [[0, 2], [2, 0], [2, 2], [2, 2]]
    """
    (warp, lane), (other_warp, other_lane) = _thread(src), _thread(dst)
    kind = np.where(_same(_slots(src), _slots(dst), warp, other_warp), STAYS, SLOT)
    if _disjoint(src, dst):
        kind[:] = SLOT
    kind[lane[..., :, None] != other_lane[..., None, :]] = LANE
    kind[warp[..., :, None] != other_warp[..., None, :]] = WARP
    kind[~_same(_blocks(src), _blocks(dst), warp, other_warp)] = BLOCK
    found: IntArray = kind.min(axis=-2).max(axis=-1)
    return found


def _disjoint(src: Ownership, dst: Ownership) -> bool:
    """Return whether the two share no address: registers beside memory, or disjoint memory axes."""
    unlike = bool(src.threads) != bool(dst.threads)
    spaces = [{name for name, _ in side.memory} for side in (src, dst)]
    return unlike or (all(spaces) and spaces[0].isdisjoint(spaces[1]))


def _same(
    here: dict[str, IntArray], there: dict[str, IntArray], like: IntArray, other: IntArray
) -> BoolArray:
    """Return per pair of copies whether they agree on every axis; an axis that is missing is 0."""
    same = np.ones((*like.shape, other.shape[-1]), dtype=np.bool_)
    for axis in here.keys() | there.keys():
        one = here.get(axis, np.zeros_like(like))
        two = there.get(axis, np.zeros_like(other))
        same &= one[..., :, None] == two[..., None, :]
    return same


def _thread(owners: Ownership) -> tuple[IntArray, IntArray]:
    """Return warp and lane of every owner; 0 where no axis gives them."""
    (_, values) = (*owners.threads, *owners.memory)[0]
    nothing = np.zeros_like(values)
    warp = nothing if owners.warp is None else owners.warp
    return warp, nothing if owners.lane is None else owners.lane


def _blocks(owners: Ownership) -> dict[str, IntArray]:
    """Return the coordinates of every owner's block within its cluster or grid."""
    return {axis: values for axis, values in owners.threads if axis not in ("T", "W", "G")}


def _slots(owners: Ownership) -> dict[str, IntArray]:
    """Return the memory coordinates of every owner."""
    return dict(owners.memory)


def recipe_lines(src: Any, dst: Any, shape: Sequence[int], bits: int) -> list[str]:
    """Return the recipe of the conversion, or why there is none."""
    try:
        found = convert(src, dst, shape, bits)
    except LayoutError as reason:
        return [str(reason)]
    return [f"{found.kind}, {bits}-bit elements", *str(found).splitlines()[1:]]


@picture
def compare(
    src: LayoutLike,
    dst: LayoutLike,
    shape: Sequence[int] | None = None,
    bits: int = 16,
    lane: int | None = DEFAULT_LANE,
    *,
    width: float = PAGE,
) -> Scene:
    """Draw two layouts of one tile, the move of each element between them, and the recipe.

    An element stays, moves to another slot of its lane, to another lane of its warp, to another
    warp, or to another block; of a replicated element the nearest copy moves. The recipe is that of
    :func:`layoutalg.convert`.

    Args:
        src: the layout that the data has.
        dst: the layout that it gets.
        shape: (rows, columns) of both.
        bits: the width of an element while it moves.
        lane: outlined in both maps; None for none.
        width: of the page in inches, 7 unless given.

    Raises:
        LayoutError: a layout does not hold the shape, the page is too narrow, or the suffix is
            unknown.

    >>> from layoutalg import fragments
    >>> A = fragments.get("mma.m16n8k16.f16", "A")
    >>> figure = compare(A.layout, fragments.transposed(A.layout, (16, 16)), (16, 16))
    >>> [text.string for text in figure.scene.panel("title").texts][-1]
    'of 256 elements: 16 stay, 16 move within their lane, 224 move to another lane'
    """
    src, extents = with_shape(src, shape, "compare")
    dst, _ = with_shape(dst, extents, "compare")
    sides = _alike([owners_of(each, extents, "compare") for each in (src, dst)])
    kinds = classes_of(*sides)
    rows, columns = kinds.shape
    distributed = all(side.threads for side in sides)
    names = [name for name, _ in CLASSES]
    if not distributed:
        names = ["stay", "move", "", "", ""]
        kinds = np.minimum(kinds, SLOT)
    counts = [int((kinds == kind).sum()) for kind in range(len(CLASSES))]
    said = ", ".join(f"{count} {name}" for count, name in zip(counts, names, strict=True) if count)
    notes = [f"from {src} to {dst}", f"of {rows * columns} elements: {said}"]
    page = Page(f"from {src} to {dst}", notes, width, "what moves")

    edge = gutter(rows)
    wide, high = cell_size((page.room - 2 * edge - _GAP) / 2, rows, columns)
    cell = (wide, min(high, int(4 * _DEEPEST / rows) / 4 or high))
    if min(cell) <= 0.1:
        raise LayoutError(
            f"compare: a cell must be 0.1 points or larger; {columns} columns do not fit twice in "
            f"{width:g} inches. {WIDER}, or slice the layouts"
        )
    tiles = [
        Tile(name, "", side, labels_of(side, _prefix(side).format), outlined=_cells_of(side, lane))
        for name, side in zip(("from", "to"), sides, strict=True)
    ]
    shown = [placed(tile, cell) for tile in tiles]
    level = max(shown, key=lambda each: LEVELS.index(each.detail.level)).detail
    if level.size:
        shown = [placed(replace(tile, largest=level.size), cell) for tile in tiles]
    x, y = MARGIN + edge, page.bottom + header(tiles[0])
    for each in shown:
        page.add(panel_of(each.tile.title, each, (x, y)), x + each.width)
        x += each.width + _GAP + edge
    y += cell[1] * rows + header(tiles[0]) + 6
    moves, low = _moves(sides, kinds, names, cell, (MARGIN + edge, y))
    page.add(moves, 0.0, low)

    # Recipe and keys stand right of the moves where half the page is left, else below.
    at = MARGIN + edge + cell[0] * columns + _GAP
    bottom = y - header(tiles[0]) + 4
    if (wide := MARGIN + page.room - at) < _NARROWEST:
        at, wide, bottom = MARGIN, page.room, low + 4
    if distributed:
        how, taken, bottom = _recipe(recipe_lines(src, dst, extents, bits), at, bottom, wide)
        page.add(how, at + taken)
    marks = [
        Mark(names[kind], "fill", fill) for kind, (_, fill) in enumerate(CLASSES) if counts[kind]
    ]
    classes, taken, bottom = key(marks, at, bottom + 4, wide)
    page.add(replace(classes, name="classes"), at + taken, bottom)
    told = [tuple(shown)]
    if sides[0].hue_is != sides[1].hue_is:
        told = [(each,) for each in shown]
    for number, part in enumerate(told):
        outlined = lane if any(each.tile.outlined is not None for each in part) else None
        legend, taken, depth = legend_of(part, outlined, at, bottom + 6, wide)
        bottom += 6 + depth
        name = f"legend {number}" if number else "legend"
        page.add(replace(legend, name=name), at + taken, bottom)
    return page.scene()


def _alike(sides: list[Ownership]) -> list[Ownership]:
    """Colour both sides by warp where one of them is."""
    if "warp" not in {side.hue_is for side in sides}:
        return sides
    return [
        replace(
            side, warp=np.zeros_like(side.lane) if side.warp is None else side.warp, by_warp=True
        )
        if side.lane is not None
        else side
        for side in sides
    ]


def _recipe(lines: list[str], x: float, y: float, width: float) -> tuple[Panel, float, float]:
    """Set the recipe with its corner at (x, y); return the panel, its width and its bottom."""
    parts = [part for line in lines[:_MOST_LINES] for part in _indented(line, width)]
    if len(lines) > _MOST_LINES:
        parts.append(f" \u2026 and {len(lines) - _MOST_LINES} lines more")
    texts = [Text(x, y + 7, "how", 7, "start", bold=True)]
    y += 9
    for part in parts:
        y += _LIST + 2.5
        indent = 8.0 * part.startswith(" ")
        texts.append(Text(x + indent, y, part.strip(), _LIST, "start"))
    widest = max(text.x - x + text_width(text.string, text.size, text.bold) for text in texts)
    return Panel("how", texts=tuple(texts)), widest, y + 3


def _prefix(owners: Ownership) -> str:
    """Return what precedes a register's number; an address alone has none."""
    alone = len(owners.memory) == 1 and not owners.threads
    return f"{'' if alone or not owners.memory else owners.memory[0][0]}{{}}"


def _cells_of(owners: Ownership, lane: int | None) -> Any:
    """Return the cells that the lane owns; None where it owns none."""
    numbers = owners.thread_number
    if lane is None or numbers is None:
        return None
    cells = (numbers == lane).any(axis=-1)
    return cells if cells.any() else None


def _indented(line: str, width: float) -> list[str]:
    """Wrap a line of the recipe; continued and indented lines begin with a blank."""
    parts = wrapped(line.strip(), width - 8.0, _LIST)
    first = " " + parts[0] if line.startswith(" ") else parts[0]
    return [first, *(f" {part}" for part in parts[1:])]


def _moves(
    sides: list[Ownership], kinds: IntArray, names: list[str], cell: Point, at: Point
) -> tuple[Panel, float]:
    """Draw the move of each element, labelled by owners where there is room.

    Returns:
        The panel and its bottom; rows without labels are low.
    """
    words = [labels_of(side, _prefix(side).format) for side in sides]
    owner = [
        [" ".join(filter(None, pair)) for pair in zip(each.thread, each.memory, strict=True)]
        for each in words
    ]
    lanes = [each.thread if any(each.thread) else each.memory for each in words]
    flat = kinds.reshape(-1).tolist()
    within = all(side.threads and side.memory for side in sides)
    labels = [
        "" if kind == STAYS else f"{m}\u2192{n}" if kind == SLOT and within else f"{a}\u2192{b}"
        for kind, a, b, m, n in zip(flat, *lanes, *(each.memory for each in words), strict=True)
    ]
    size = label_size(labels, cell)
    if size is None:
        cell = cell[0], min(cell[1], _LOW_ROW)
    table = Grid(at, cell, *kinds.shape)
    cells = []
    for (i, j), kind, a, b in zip(table, flat, *owner, strict=True):
        title = f"({i}, {j}) {names[kind]}: {a} \u2192 {b}"
        data = {"class": kind, "row": i, "col": j}
        cells.append(table.fill(i, j, CLASSES[kind][1], title, data))
    name = Text(at[0], at[1] - 11.5, "moves", 7, "start", bold=True)
    texts = (name, *table.numbers(), *table.labels(labels, size))
    rules = [table.rules()] if min(cell) >= 5 else []
    return Panel("moves", tuple(cells), (*rules, table.frame()), texts), table.low
