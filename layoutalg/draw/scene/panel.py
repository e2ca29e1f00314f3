"""One tile as a panel: cells, labels as large as they fit, boundaries, headers, a lane outlined."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np

from layoutalg.draw.scene.grid import Grid, bracket_below, bracket_left, every, titled
from layoutalg.draw.scene.ownership import BoolArray, IntArray, Labels, Ownership
from layoutalg.draw.scene.palette import FILLS, INK, NOTE, PAPER
from layoutalg.draw.scene.scene import (
    SMALLEST_TEXT,
    Cell,
    Panel,
    Path,
    Point,
    Stroke,
    Text,
    centred,
    fitting_size,
    text_width,
)

LEVELS = ("large", "medium", "small")  # of detail: lane and register, lane, no text
BLOCK = 8  # rows and columns of the blocks with a dashed boundary
TITLE = 10.0  # height of the title line, in points
COLUMN_HEADER = 8.0  # height of the column numbers
_BRACKET = 10.5  # width of a bracketed range with its turned text
_BRACKET_ROOM = 1.4  # kept free in a cell for the bracket of a register
_NARROWEST = 0.27  # em: no character is narrower
_DEEPEST = 600.0  # height of a panel, in points: it fits a page
_SMALLEST_GRID = 5.0  # cells narrower than this are drawn without a grid

Lines = list[tuple[str, ...]]  # per cell or run the lines of its label


@dataclass(frozen=True)
class Tile:
    """What a panel shows.

    Attributes:
        title: above the panel, bold; ``note`` follows it in regular type.
        owners: of the cells.
        labels: of the cells.
        rows: the letter of the row index, ``columns`` that of the column index.
        word: slots in one register; 1 where slots are not packed or that is not known.
        packed: names slots of one register, from the first to the last.
        outlined: the cells of the lane that is outlined.
        instruction: rows and columns of one instruction inside the tile, None for the whole tile.
        largest: font size of the labels that is not exceeded.
    """

    title: str
    note: str
    owners: Ownership
    labels: Labels
    rows: str = "row"
    columns: str = "col"
    word: int = 1
    packed: Callable[[int, int], str] = "{}..{}".format
    outlined: BoolArray | None = None
    instruction: tuple[int, int] | None = None
    largest: float = 7.0


def cell_size(width: float, rows: int, columns: int, widest: float = 22.0) -> Point:
    """Return width and height of a cell in a panel that may be ``width`` points wide.

    Cells are square where they are small, and low where two lines of text fit.

    >>> cell_size(200, 16, 8), cell_size(504, 128, 128)
    ((22.0, 14.0), (3.75, 3.75))
    """
    wide = min(width / columns, widest)
    high = wide if wide < 10.5 else 13.0 if wide < 13 else min(wide, 14.0)
    high = min(max(high, min(13.0, 60.0 / rows)), _DEEPEST / rows)
    return _snapped(wide), _snapped(high)


def _snapped(points: float) -> float:
    """Round down to a quarter of a point where that is a small part: files stay short."""
    return int(points * 4) / 4 if points >= 2.5 else int(points * 100) / 100


def gutter(rows: int) -> float:
    """Return the width of the row numbers and brackets left of a panel, in points."""
    return _BRACKET + 4.5 + text_width(str(rows - 1), SMALLEST_TEXT)


def header(tile: Tile) -> float:
    """Return the height of title and column numbers above a panel, in points."""
    return COLUMN_HEADER + TITLE * bool(tile.title)


def title_width(tile: Tile) -> float:
    """Return the width of a tile's title and note, in points."""
    return text_width(tile.title, 7, bold=True) + 4 + text_width(tile.note, 6)


@dataclass(frozen=True)
class Runs:
    """Maximal straight runs of neighbouring cells with equal keys.

    ``first`` and ``last`` are flat cell indices; ``across`` says that runs lie in rows.
    """

    first: tuple[int, ...]
    last: tuple[int, ...]
    across: bool
    key: IntArray

    def length(self, columns: int) -> tuple[int, ...]:
        """Return the number of cells of each run."""
        step = 1 if self.across else columns
        return tuple((b - a) // step + 1 for a, b in zip(self.first, self.last, strict=True))


def runs_of(key: IntArray) -> Runs:
    """Cut an array of keys into runs along rows, or along columns where those are fewer.

    >>> runs_of(np.array([[0, 0, 1], [2, 2, 1]])).last
    (1, 2, 4, 5)
    """
    numbered = np.arange(key.size).reshape(key.shape)

    def cut(along: IntArray, index: IntArray) -> tuple[tuple[int, ...], tuple[int, ...]]:
        change = along[:, 1:] != along[:, :-1]
        edge = np.ones((len(along), 1), dtype=bool)
        first = index[np.hstack([edge, change])]
        last = index[np.hstack([change, edge])]
        return tuple(first.tolist()), tuple(last.tolist())

    across, down = cut(key, numbered), cut(key.T, numbered.T)
    if len(across[0]) <= len(down[0]):
        return Runs(*across, True, key)
    return Runs(*down, False, key)


def word_runs(tile: Tile) -> Runs:
    """Cut a tile into the slots that one register of one thread packs."""
    slots = tile.owners.memory[0][1][..., 0] if tile.owners.memory else np.int64(0)
    number = tile.owners.thread_number
    thread = np.zeros(tile.owners.shape, dtype=np.int64) if number is None else number[..., 0]
    return runs_of(thread * (int(np.max(slots)) // tile.word + 1) + slots // tile.word)


def boundary(key: IntArray, frame: bool = False) -> tuple[BoolArray, BoolArray]:
    """Return where neighbours differ: edges right of and below each cell, index 0 the near frame.

    The arrays have shapes (rows, columns + 1) and (rows + 1, columns); with ``frame`` the outer
    edges count as well, where the key is not 0.
    """
    rows, columns = key.shape
    upright = np.zeros((rows, columns + 1), dtype=bool)
    level = np.zeros((rows + 1, columns), dtype=bool)
    upright[:, 1:-1] = key[:, 1:] != key[:, :-1]
    level[1:-1] = key[1:] != key[:-1]
    if frame:
        upright[:, 0], upright[:, -1] = key[:, 0] != 0, key[:, -1] != 0
        level[0], level[-1] = key[0] != 0, key[-1] != 0
    return upright, level


def edge_paths(
    edges: tuple[BoolArray, BoolArray], at: Point, cell: Point, extend: float = 0.0
) -> tuple[Path, ...]:
    """Join marked edges into straight segments, each longer by ``extend`` at both ends.

    >>> edge_paths(boundary(np.array([[0, 1]])), (0, 0), (10, 10))
    (((10, 0.0), (10, 10.0)),)
    """
    (x, y), (width, height) = at, cell
    upright, level = edges
    return tuple(
        ((x + j * width, y + a * height - extend), (x + j * width, y + b * height + extend))
        for j, a, b in _stretches(upright.T)
    ) + tuple(
        ((x + a * width - extend, y + i * height), (x + b * width + extend, y + i * height))
        for i, a, b in _stretches(level)
    )


def _stretches(marked: BoolArray) -> list[tuple[int, int, int]]:
    """Return (line, begin, end) of each stretch of marks."""
    padded = np.pad(marked.astype(np.int8), ((0, 0), (1, 1)))
    step = np.diff(padded, axis=1)
    line, begin = np.nonzero(step == 1)
    _, end = np.nonzero(step == -1)
    return list(zip(line.tolist(), begin.tolist(), end.tolist(), strict=True))


@dataclass(frozen=True)
class Detail:
    """How the cells are labelled: one label per cell or per run, its lines and font size.

    ``level`` is ``"large"`` (lane and register), ``"medium"`` (lane) or ``"small"`` (no text);
    ``shift`` moves the label off the bracket of its register.
    """

    level: str
    size: float = 0.0
    lines: tuple[tuple[str, ...], ...] = ()
    runs: Runs | None = None
    turned: bool = False
    shift: Point = (0.0, 0.0)


@dataclass(frozen=True)
class Placed:
    """A tile with the size of its cells, and the labels that fit in them."""

    tile: Tile
    cell: Point
    detail: Detail

    @property
    def width(self) -> float:
        """Width of all cells, in points."""
        return self.tile.owners.shape[1] * self.cell[0]

    @property
    def height(self) -> float:
        """Height of all cells, in points."""
        return self.tile.owners.shape[0] * self.cell[1]


def placed(tile: Tile, cell: Point) -> Placed:
    """Choose the labels of a tile for a size of cell."""
    return Placed(tile, cell, detail_of(tile, cell))


def detail_of(tile: Tile, cell: Point) -> Detail:
    """Choose the most telling label that fits in every cell at ``SMALLEST_TEXT`` or more."""
    labels = tile.labels
    bold = [False] * len(labels.title)
    if tile.outlined is not None:
        bold = tile.outlined.reshape(-1).tolist()
    lines: Lines = list(zip(labels.thread, labels.memory, strict=True))
    if not tile.owners.threads:
        lines = [tuple(what.split(" ")) for what in labels.memory]
    runs = word_runs(tile)
    across, room = runs.across, _BRACKET_ROOM if tile.word > 1 else 0.0
    box = (cell[0], cell[1] - room) if across else (cell[0] - room, cell[1])
    shift = (0.0, -room / 2) if across else (room / 2, 0.0)
    ways = [lines]
    if tile.owners.threads:
        if " " in "".join(labels.thread):  # T4 +3 in two lines
            ways.append([(*who.split(" "), what) for who, what in lines])
        ways.append([(" ".join(pair),) for pair in lines])
    for way in ways:
        if (size := _size(way, bold, box, tile.largest)) is not None:
            return Detail("large", size, tuple(way), shift=shift)
    number: dict[str, int] = {}
    names = [number.setdefault(name, len(number)) for name in labels.thread]
    holder = np.array(names, dtype=np.int64).reshape(tile.owners.shape)
    if tile.word > 1:
        slots = tile.owners.memory[0][1][..., 0].reshape(-1).tolist()
        ranges: Lines = [
            (labels.thread[a], tile.packed(slots[a], slots[b]))
            for a, b in zip(runs.first, runs.last, strict=True)
        ]
        one_line: Lines = [(" ".join(pair),) for pair in ranges]
        for lines in (ranges, one_line):
            found = _in_runs("large", lines, bold, runs, cell, tile)
            if found is not None:
                return found
    if tile.owners.threads:
        for words in (labels.thread, labels.lane):
            lines = [(word,) for word in words]
            if (size := _size(lines, bold, cell, tile.largest)) is not None:
                return Detail("medium", size, tuple(lines))
            runs = runs_of(holder)
            lines = [(words[a],) for a in runs.first]
            found = _in_runs("medium", lines, bold, runs, cell, tile)
            if found is not None:
                return found
    return Detail("small")


def _size(lines: Lines, bold: Sequence[bool], box: Point, largest: float = 7.0) -> float | None:
    """Return the size at which every label fits a box: the widest decides."""
    stacked = max(map(len, lines))
    if fitting_size(_NARROWEST, stacked, *box, largest) is None:  # no label fits so small a box
        return None
    found = {(line, heavy) for label, heavy in set(zip(lines, bold, strict=True)) for line in label}
    if not all(line for line, _ in found):
        return None
    widest = max(text_width(line, 1.0, heavy) for line, heavy in found)
    return fitting_size(widest, stacked, *box, largest)


def _in_runs(
    level: str, lines: Lines, bold: Sequence[bool], runs: Runs, cell: Point, tile: Tile
) -> Detail | None:
    """Return the labels set in runs, upright or turned; None where one run is too short."""
    shortest = min(runs.length(tile.owners.shape[1]))
    if shortest < 2:
        return None
    width, height = cell
    box = (width * shortest, height) if runs.across else (width, height * shortest)
    heavy = [bold[a] for a in runs.first]
    for turned in (False, True):
        size = _size(lines, heavy, (box[1], box[0]) if turned else box, tile.largest)
        if size is not None:
            return Detail(level, size, tuple(lines), runs, turned)
    return None


def panel_of(panel: str, shown: Placed, at: Point) -> Panel:
    """Draw a tile whose cell (0, 0) has its corner at ``at``; headers lie above and to the left.

    Args:
        panel: its name.
        shown: the tile.
        at: x and y of the first cell, in points.
    """
    tile, detail = shown.tile, shown.detail
    table = Grid(at, shown.cell, *tile.owners.shape)
    x, y = at
    labelled = None if detail.runs is None else set(detail.runs.last)
    strokes = list(_grid(detail, table))
    if bracketed(shown):
        strokes.append(_word_brackets(tile, table))
    strokes += _boundaries(tile, detail, table)
    texts = [*table.numbers(), Text(x - 5, y - 2.5, tile.columns, SMALLEST_TEXT, "end", True, NOTE)]
    ranges, range_texts = _row_ranges(tile, table)
    strokes.append(ranges)
    if tile.title:
        name, note = titled(x, y - COLUMN_HEADER - 3.5, tile.title, tile.note)
        texts += (name, note) if tile.note else (name,)
    texts += range_texts
    texts += _cell_texts(tile, detail, table)
    texts.sort(key=lambda text: text.bold)
    cells = _cells(tile, table, labelled)
    return Panel(panel, cells, tuple(s for s in strokes if s.paths), tuple(texts))


def _cells(tile: Tile, table: Grid, cornered: Container[int] | None) -> tuple[Cell, ...]:
    """Return the cells; a second owner's colour is in the corner of each, or of some."""
    (x, y), (width, height) = table.at, table.cell
    owners, labels, columns = tile.owners, tile.labels, table.columns
    colors = owners.colors()
    base = colors[..., 0].reshape(-1).tolist()
    corner: list[str | None] = [None] * len(base)
    if colors.shape[-1] > 1:
        flat = colors.reshape(len(base), -1)
        pairs = [list(dict.fromkeys(row)) for row in flat.tolist()]
        corner = [
            FILLS[pair[1]] if len(pair) == 2 and (cornered is None or n in cornered) else None
            for n, pair in enumerate(pairs)
        ]
    xs = [x + width * j for j in range(columns)] * table.rows
    ys = [y + height * i for i in range(table.rows) for _ in range(columns)]
    return tuple(
        Cell(left, top, width, height, FILLS[color], title, data, second)
        for left, top, color, title, data, second in zip(
            xs, ys, base, labels.title, labels.data, corner, strict=True
        )
    )


def _grid(detail: Detail, table: Grid) -> tuple[Stroke, ...]:
    """Rule white lines between cells, or between runs where a run carries one label."""
    if detail.runs is None and min(table.cell) < _SMALLEST_GRID:
        return ()
    edges = boundary(_labelled(detail, table))
    return (Stroke(edge_paths(edges, table.at, table.cell), 0.6, PAPER, role="grid"),)


def _labelled(detail: Detail, table: Grid) -> IntArray:
    """Number what carries one label: the runs, or the cells."""
    cells = np.arange(table.rows * table.columns).reshape(table.rows, table.columns)
    return cells if detail.runs is None else detail.runs.key


def _word_brackets(tile: Tile, table: Grid) -> Stroke:
    """Bracket the slots that one register packs, inside their cells."""
    runs = word_runs(tile)
    inset, tick, margin = 0.2, 1.1, 1.2
    paths = []
    for first, last, length in zip(runs.first, runs.last, runs.length(table.columns), strict=True):
        if length != tile.word:
            continue
        (i, j), (k, n) = divmod(first, table.columns), divmod(last, table.columns)
        if runs.across:
            (left, _), (right, low) = table.corner(i, j + inset), table.corner(i + 1, n + 1 - inset)
            paths.append(bracket_below(left, right, low - margin, tick))
        else:
            (left, top), (_, low) = table.corner(i + inset, j), table.corner(k + 1 - inset, j)
            paths.append(bracket_left(left + margin, top, low, tick))
    return Stroke(tuple(paths), 0.4, NOTE, role="word")


def bracketed(shown: Placed) -> bool:
    """Tell whether the slots of a register are bracketed: each cell has its own label."""
    detail = shown.detail
    return shown.tile.word > 1 and detail.level == "large" and detail.runs is None


def _boundaries(tile: Tile, detail: Detail, table: Grid) -> list[Stroke]:
    """Draw 8 x 8 dashed, warps thick, instructions solid, and last the lane's outline."""
    at, cell, rows, columns = table.at, table.cell, table.rows, table.columns
    # A line through the middle of a label would cross it out: those are left away.
    upright, level = boundary(_labelled(detail, table))
    block = table.levels(i for i in range(BLOCK, rows, BLOCK) if level[i].all())
    block += table.uprights(j for j in range(BLOCK, columns, BLOCK) if upright[:, j].all())
    strokes = [Stroke(block, 0.6, INK, (2.4, 1.8), "block")]
    if tile.owners.hue_is == "warp" and tile.owners.warp is not None:
        edges = boundary(tile.owners.warp[..., 0])
        strokes.append(Stroke(edge_paths(edges, at, cell), 1.5, INK, role="warp"))
    m, n = tile.instruction or (rows, columns)
    inner = table.levels(range(m, rows, m)) + table.uprights(range(n, columns, n))
    frame = table.box(0, 0, rows, columns)
    strokes.append(Stroke((*inner, frame), 0.8, INK, role="instruction"))
    if tile.outlined is not None:
        edges = boundary(tile.outlined.astype(np.int64), frame=True)
        weight = 1.4 if min(cell) >= _SMALLEST_GRID else 1.0 if min(cell) >= 3 else 0.6
        halo = edge_paths(edges, at, cell, weight / 2 + 0.6)
        strokes.append(Stroke(halo, min(2 * weight, weight + 1.2), PAPER, role="halo"))
        line = edge_paths(edges, at, cell, weight / 2)
        strokes.append(Stroke(line, weight, "#000000", role="lane"))
    return strokes


def _row_ranges(tile: Tile, table: Grid) -> tuple[Stroke, list[Text]]:
    """Bracket ranges of 8 rows, or of 16, 32 … where 8 rows are too low for the text."""
    (x, y), height, rows = table.at, table.cell[1], table.rows
    size = SMALLEST_TEXT
    longest = f"{tile.rows} {max(rows - BLOCK, 0)}..{rows - 1}"
    span = BLOCK * every(BLOCK * height, text_width(longest, size) + 2)
    if rows < 2 or min(span, rows) * height < text_width(longest, size):
        return Stroke((), 0.6), []
    left = x - gutter(rows) + _BRACKET - 2
    paths, texts = [], []
    for begin in range(0, rows, span):
        end = min(begin + span, rows)
        top, low = y + begin * height + 1, y + end * height - 1
        label = f"{tile.rows} {begin}..{end - 1}"
        if low - top < text_width(label, size):
            continue
        paths.append(bracket_left(left, top, low))
        texts.append(Text(left - 2, (top + low) / 2, label, size, color=NOTE, angle=90))
    return Stroke(tuple(paths), 0.6, NOTE, role="rows"), texts


def _cell_texts(tile: Tile, detail: Detail, table: Grid) -> list[Text]:
    marked = None if tile.outlined is None else tile.outlined.reshape(-1).tolist()
    runs = detail.runs
    first = range(len(detail.lines)) if runs is None else runs.first
    last = first if runs is None else runs.last
    texts: list[Text] = []
    for lines, a, b in zip(detail.lines, first, last, strict=True):
        (i, j), (k, n) = divmod(a, table.columns), divmod(b, table.columns)
        x, y = table.corner((i + k + 1) / 2, (j + n + 1) / 2)
        texts += centred(
            lines,
            x + detail.shift[0],
            y + detail.shift[1],
            detail.size,
            bold=marked is not None and marked[a],
            angle=90 if detail.turned else 0,
        )
    return texts
