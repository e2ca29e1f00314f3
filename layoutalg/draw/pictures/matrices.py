"""``ldmatrix``: the lanes that pass row addresses, the matrices, the lanes that receive them."""

from __future__ import annotations

from dataclasses import replace

from layoutalg import fragments
from layoutalg.draw.scene.chosen import operand_of
from layoutalg.draw.scene.grid import Grid, arrow, bracket_left, outline
from layoutalg.draw.scene.legend import legend_of
from layoutalg.draw.scene.naming import index_names, slots_per_register
from layoutalg.draw.scene.ownership import DEFAULT_LANE, BoolArray, Ownership, labels_of
from layoutalg.draw.scene.page import INCH, MARGIN, PAGE, SMALL, WIDER, Page
from layoutalg.draw.scene.palette import FILLS, NOTE
from layoutalg.draw.scene.panel import (
    COLUMN_HEADER,
    Tile,
    gutter,
    header,
    panel_of,
    placed,
    title_width,
)
from layoutalg.draw.scene.picture import picture
from layoutalg.draw.scene.scene import (
    Cell,
    Panel,
    Path,
    Point,
    Scene,
    Stroke,
    Text,
    fitting_size,
    text_width,
)
from layoutalg.errors import LayoutError
from layoutalg.fragments import Fragment
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.layouts.tile_layout import Layout
from layoutalg.memory.access import wavefronts
from layoutalg.memory.ldmatrix import MatrixLoad, matrix_loads

_ROW = 14.0  # height of a row, in points; less where the tile is tall
_DEEPEST = 480.0  # height of a tile
_LANE = 19.0  # width of an address cell
_BRACKET = 13.0  # width of a matrix' name beside its address cells
_GAP = 20.0  # between panels
_WIDEST = 15.0  # of an element's cell
_LABELLED = 11.0  # width at which a cell of the operand bears a label


@picture
def ldmatrix(
    instruction: str,
    operand: str = "A",
    lane: int | None = DEFAULT_LANE,
    *,
    transposed: bool = False,
    trans: bool | None = None,
    count: int | None = None,
    memory: LayoutLike | None = None,
    width: float = PAGE,
) -> Scene:
    """Draw how ``ldmatrix`` fills an operand: address lanes, 8 x 8 matrices, receiving lanes.

    Left, per 16-byte row of the stored tile the lane that gives its address; in the middle the
    stored tile with the lane and register that receive each element; right the operand's tile.
    Colour always means the lane that a cell names. One lane is outlined in all panels.

    Args:
        instruction: a name of ``fragments.names()``.
        operand: of it.
        lane: outlined; None for none.
        transposed: the tile is stored with its dimensions exchanged ([K][M] for A, [N][K] for B).
        trans: the ``.trans`` form; the one that works unless given.
        count: matrices per instruction, 1, 2 or 4; as many as possible unless given.
        memory: the layout of the stored tile, whose wavefronts are then counted.
        width: of the page in inches, 7 unless given.

    Raises:
        LayoutError: no such instruction, operand or lane; ``ldmatrix`` cannot fill the operand from
            such a tile, and why; the page is too narrow; the suffix is unknown.

    >>> figure = ldmatrix("mma.m16n8k16.f16", "A", transposed=True)
    >>> figure.scene.panel("address").cells[8].title
    'T8 gives the address of (0, 8): row 0 of matrix 1'
    """
    fragment = fragments.get(instruction, operand)
    memory = as_layout(memory, "ldmatrix: memory")
    if lane is not None and lane not in range(fragment.lanes):
        raise LayoutError(
            f"ldmatrix: lane is one of 0..{fragment.lanes - 1}, or None; got {lane!r}"
        )
    if fragment.products > 1:
        raise LayoutError(
            f"ldmatrix: needs an instruction that forms one product; {instruction} forms "
            f"{fragment.products}, whose lanes are not 8 rows of 4"
        )
    loads = matrix_loads(
        fragment.layout,
        fragment.shape,
        fragment.bits,
        transposed=transposed,
        trans=trans,
        count=count,
    )
    receiver = operand_of(fragment, lane).tile
    stored = _stored_tile(fragment, loads, receiver, transposed, lane)
    rows, columns = stored.owners.shape
    chunks = columns // loads[0].rows.shape[2]

    names = index_names(fragment)
    kept = f"[{names[1]}][{names[0]}]" if transposed else f"[{names[0]}][{names[1]}]"
    notes = [
        f"{loads[0].instruction}" + (f", {len(loads)} times" if len(loads) > 1 else ""),
        f"the tile is stored {kept.upper()}; lane 8j + i gives the address of row i of matrix j; "
        "matrix j arrives in register j",
        *_notes(loads, fragment, memory, (rows, columns)),
    ]
    page = Page(f"{instruction}: ldmatrix of {fragment.operand}", notes, width)

    left = gutter(rows)
    address_width = chunks * (_BRACKET + _LANE)
    fixed = left + address_width + gutter(rows) + gutter(fragment.shape[0]) + 2 * _GAP
    even = min((page.room - fixed) / (columns + fragment.shape[1]), _WIDEST)
    theirs = max(even, min(_LABELLED, 8 * _LABELLED / fragment.shape[1]))
    ours = min((page.room - fixed - theirs * fragment.shape[1]) / columns, _WIDEST)
    if min(ours, theirs) < 2:
        raise LayoutError(
            f"ldmatrix: cells of 2 points or more need "
            f"{(fixed + 2 * (columns + fragment.shape[1]) + 2 * MARGIN) / INCH:.1f} inches; got "
            f"{width:g}. {WIDER}"
        )
    high = min(_ROW, int(4 * _DEEPEST / rows) / 4)
    cells = (
        (int(ours * 4) / 4, high),
        (int(theirs * 4) / 4, min(_ROW, int(4 * _DEEPEST / fragment.shape[0]) / 4)),
    )
    top = page.bottom + header(stored) + 2
    x = MARGIN + left
    page.add(_address_panel(loads, chunks, rows, lane, (x, top), high))
    x += address_width + _GAP + gutter(rows)
    tiles = (stored, receiver)
    sizes = [placed(*each).detail.size for each in zip(tiles, cells, strict=True)]
    largest = min(filter(None, sizes), default=7.0)
    shown = [
        placed(replace(tile, largest=largest), cell)
        for tile, cell in zip(tiles, cells, strict=True)
    ]
    page.add(panel_of("stored", shown[0], (x, top)))
    low = top + max(shown[0].height, shown[1].height)
    middle = top + min(shown[0].height, shown[1].height) / 2
    page.add(Panel("arrow", strokes=(arrow(x + shown[0].width + 3, middle, _GAP - 8),)))
    x += max(shown[0].width + _GAP + gutter(fragment.shape[0]), title_width(stored) + 12)
    right = x + max(shown[1].width, title_width(receiver))
    page.add(panel_of("operand", shown[1], (x, top)), right, low)
    outlined = lane if receiver.outlined is not None else None
    legend, taken, depth = legend_of(
        (shown[1], shown[0]), outlined, MARGIN, low + 7, page.right - MARGIN, "one matrix"
    )
    page.add(legend, MARGIN + taken, low + 7 + depth)
    return page.scene()


def _notes(
    loads: tuple[MatrixLoad, ...],
    fragment: Fragment,
    memory: Layout | None,
    shape: tuple[int, int],
) -> list[str]:
    """Say which addresses are ignored, and how many wavefronts a memory layout takes."""
    notes = []
    used = 8 * loads[0].count
    if used < 32:
        notes.append(
            f"the addresses of lanes {used}..31 are ignored; sm_75 wants them valid: repeat those "
            f"of lanes 0..{used - 1}"
        )
    if memory is not None:
        counts = [
            wavefronts(load.access.bank_counts(memory, shape, fragment.bits)) for load in loads
        ]
        total, phases = sum(int(c.sum()) for c in counts), sum(len(c) for c in counts)
        notes.append(f"in {memory} (elements): {total} wavefronts for {phases} matrices")
    return notes


def _stored_tile(
    fragment: Fragment,
    loads: tuple[MatrixLoad, ...],
    receiver: Tile,
    transposed: bool,
    lane: int | None,
) -> Tile:
    """Return the tile as it is stored: who receives each element, in which register."""
    owners = receiver.owners
    assert owners.lane is not None
    lanes, slots = owners.lane, owners.memory[0][1]
    if transposed:
        lanes, slots = lanes.transpose(1, 0, 2), slots.transpose(1, 0, 2)
    turned = Ownership((("T", lanes),), (("m", slots),), lanes, None)
    packed = slots_per_register(fragment)
    names = index_names(fragment)
    outlined: BoolArray | None = None if lane is None else (lanes == lane).any(axis=-1)
    forms = f"x{loads[0].count}{'.trans' * loads[0].trans}"
    return Tile(
        "8 \u00d7 16 B matrices",
        f"as stored, {forms}",
        turned,
        labels_of(turned, lambda slot: f"r{slot // packed}"),
        names[transposed],
        names[not transposed],
        packed,
        lambda first, _: f"r{first // packed}",
        outlined,
        (8, loads[0].rows.shape[2]),
    )


def _address_panel(
    loads: tuple[MatrixLoad, ...],
    chunks: int,
    rows: int,
    lane: int | None,
    at: Point,
    high: float,
) -> Panel:
    """Draw one cell per 16-byte row: the lane that gives its address."""
    x, y = at
    cells: list[Cell] = []
    texts: list[Text] = []
    brackets: list[Path] = []
    strokes: list[Stroke] = []
    units = loads[0].rows.shape[2]
    size = fitting_size(text_width("T31", 1.0, True), 1, _LANE, high) or SMALL
    for number, load in enumerate(loads):
        for matrix in range(load.count):
            row, col = (int(i) for i in load.rows[matrix, 0, 0])
            corner = x + col // units * (_BRACKET + _LANE) + _BRACKET, y + row * high
            table = Grid(corner, (_LANE, high), 8, 1)
            edge, middle = corner[0] - 2.5, (corner[1] + table.low) / 2
            brackets.append(bracket_left(edge - 2, corner[1] + 1, table.low - 1))
            name = f"load {number}, matrix {matrix}" if len(loads) > 1 else f"matrix {matrix}"
            texts.append(Text(edge - 4.2, middle, name, SMALL, color=NOTE, angle=90))
            for i in range(8):
                giver = 8 * matrix + i
                r, c = (int(v) for v in load.rows[matrix, i, 0])
                title = f"T{giver} gives the address of ({r}, {c}): row {i} of matrix {matrix}"
                data = {"lane": giver, "matrix": matrix, "row": r, "col": c}
                cells.append(table.fill(i, 0, FILLS[giver], title, data))
                texts.append(table.label(i, 0, f"T{giver}", size, giver == lane))
                if giver == lane:
                    strokes.append(outline(*table.corner(i, 0), _LANE, high, 1.4))
            strokes[:0] = [table.rules(), table.frame()]
    columns = sorted({int(load.rows[j, 0, 0, 1]) for load in loads for j in range(load.count)})
    heads = Grid(at, (_BRACKET + _LANE, high), rows, columns[-1] // units + 1)
    for col in columns:
        left, _ = heads.corner(0, col // units)
        texts.append(Text(left + _BRACKET + _LANE / 2, y - 2.5, str(col), SMALL, color=NOTE))
    texts += heads.beside((row, row) for row in range(0, rows, 1 if high >= SMALL + 0.5 else 2))
    texts.append(Text(x, y - COLUMN_HEADER - 3.5, "address lanes", 7, "start", bold=True))
    texts.sort(key=lambda text: (text.bold, text.color, text.size, text.angle))
    strokes.append(Stroke(tuple(brackets), 0.6, NOTE, role="matrix"))
    return Panel("address", tuple(cells), tuple(strokes), tuple(texts))
