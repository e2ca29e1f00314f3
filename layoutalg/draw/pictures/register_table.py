"""``registers``: one row per lane, one column per slot, the packed b32 registers bracketed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layoutalg import fragments
from layoutalg.algebra.axis import WARP
from layoutalg.draw.scene.chosen import chosen_fragments
from layoutalg.draw.scene.formula import digit_rules, slot_rules
from layoutalg.draw.scene.grid import Grid, bracket_below, bracket_left, frame, outline, titled
from layoutalg.draw.scene.naming import heading_of, slots_name, slots_per_register
from layoutalg.draw.scene.ownership import DEFAULT_LANE, checked_range
from layoutalg.draw.scene.page import INCH, MARGIN, PAGE, SMALL, WIDER, Mark, Page, flow
from layoutalg.draw.scene.palette import FILLS, NOTE
from layoutalg.draw.scene.picture import picture
from layoutalg.draw.scene.scene import Cell, Panel, Path, Scene, Stroke, Text, text_width
from layoutalg.draw.scene.sidebar import indices_of, slots_per_line
from layoutalg.errors import LayoutError
from layoutalg.fragments import Fragment

_ROW = 8.0  # height of a lane's row, in points
_LABEL = 6.0  # font size in the cells
_HEAD = 34.0  # height of title, register brackets, slot names and rules above a block
_GROUP = 15.0  # width of the brackets of 4-lane groups
_GAP = 12.0  # between blocks
_DEEPEST = 2  # blocks one under another


@dataclass(frozen=True)
class Column:
    """One slot, or one register of neighbouring slots: its name, rules, and indices per lane."""

    first: int
    slots: int
    register: int
    name: str
    rules: tuple[str, str]
    indices: tuple[tuple[str, str], ...]

    @property
    def width(self) -> float:
        """Width of the column, in points: all that stands in it fits."""
        return 2.5 + max(
            text_width(self.name, _LABEL, True),
            *(text_width(rule, SMALL) for rule in self.rules),
            *(text_width(f"{row},{col}", _LABEL, True) for row, col in self.indices),
        )


@dataclass(frozen=True)
class Block:
    """Columns of one fragment that stand side by side."""

    fragment: Fragment
    columns: tuple[Column, ...]
    pitch: float
    first: bool

    @property
    def width(self) -> float:
        """Width with the lanes at the left, in points."""
        columns = lane_width(self.fragment) + len(self.columns) * self.pitch
        words = text_width(heading_of(self.fragment), 7, True) + 4 + text_width(self.note, 6)
        return _GROUP + max(columns, words)

    @property
    def note(self) -> str:
        """What stands beside the operand's name."""
        rows, columns = self.fragment.shape
        more = "" if self.first else ", continued"
        return f"{rows} \u00d7 {columns}, {self.fragment.dtype}{more}"


def lane_width(fragment: Fragment) -> float:
    """Return the width of the column of lanes, in points.

    >>> lane_width(fragments.get("mma.m16n8k16.f16", "A"))
    18.0
    """
    return math.ceil(2 * text_width(f"T{fragment.lanes - 1}", _LABEL, True) + 8) / 2


def columns_of(fragment: Fragment, lanes: range) -> tuple[Column, ...]:
    """Return the columns of a fragment: slots, or registers whose slots lie in a row.

    >>> columns_of(fragments.get("mma.m16n8k16.f16", "A"), range(32))[3].indices[5]
    ('9', '3')
    """
    packed, step, coords = slots_per_register(fragment), slots_per_line(fragment), fragment.coords
    return tuple(
        Column(
            slot,
            step,
            slot // packed,
            slots_name(fragment, slot, slot + step - 1),
            slot_rules(fragment, slot, step) or ("", ""),
            tuple(indices_of(coords[lane], slot, step) for lane in lanes),
        )
        for slot in range(0, fragment.slots, step)
    )


@picture
def registers(
    instruction: str,
    operand: str | None = None,
    lane: int | None = DEFAULT_LANE,
    *,
    lanes: Sequence[int] | None = None,
    slots: Sequence[int] | None = None,
    width: float = PAGE,
) -> Scene:
    """Draw which element each register of each lane holds: a row per lane, a column per slot.

    Columns are in PTX operand order; the slots that one b32 register packs are bracketed. Below a
    slot's name, its row and column as sums in g and t; in the cells, their values.

    Args:
        instruction: a name of ``fragments.names()``.
        operand: one operand; all of them unless given.
        lane: outlined; None for none.
        lanes: (begin, end) of the rows; the first warp unless given.
        slots: (begin, end) of the columns; those that fit a page unless given.
        width: of the page in inches, 7 unless given.

    Raises:
        LayoutError: the instruction, operand, lane, lanes or suffix is unknown, or the page too
            narrow.

    >>> figure = registers("mma.m16n8k16.f16", "A")
    >>> [cell.title for cell in figure.scene.panel("A").cells if cell.title.startswith("T5 ")][:3]
    ['T5 a0 (1, 2)', 'T5 a1 (1, 3)', 'T5 a2 (9, 2)']
    """
    chosen = (
        chosen_fragments(instruction) if operand is None else (fragments.get(instruction, operand),)
    )
    threads = max(fragment.lanes for fragment in chosen)
    asked = (0, min(threads, WARP)) if lanes is None else lanes
    shown = checked_range(asked, threads, "registers: lanes")
    if lane is not None and lane not in range(threads):
        raise LayoutError(
            f"registers: lane must own an element; got lane {lane!r}. Owners are 0..{threads - 1}; "
            "lane=None outlines nothing"
        )
    room = width * INCH - 2 * MARGIN
    blocks = _blocks(chosen, shown, slots, room)
    where = flow([block.width for block in blocks], room, _GAP)
    if slots is None:
        blocks = [b for b, (row, _) in zip(blocks, where, strict=True) if row < _DEEPEST]
    unit = "thread" if threads > WARP else "lane"
    notes = [f"row, column of each element of each {unit}; operands in PTX order"]
    if len(shown) < threads:
        notes.append(f"{unit}s {shown.start}..{shown.stop - 1} of {threads}")
    for fragment in chosen:
        columns = [c for block in blocks if block.fragment is fragment for c in block.columns]
        if (count := sum(c.slots for c in columns)) < fragment.slots:
            notes.append(
                f"{columns[0].name}..{columns[-1].name}: {count} of {fragment.slots} slots"
            )
    used = [rule for block in blocks for column in block.columns for rule in column.rules]
    several = chosen[0].products > 1
    notes.append(", ".join(digit_rules([*used, "q"] if several else used, threads > WARP)))
    if several:
        notes.append(f"{chosen[0].products} products: a lane holds elements of product q")
    page = Page(title_of(instruction), notes, width, instruction + ": registers")
    for block, (row, x) in zip(blocks, where, strict=False):
        if not x:
            top = page.bottom + 4 * (row > 0)
        page.add(
            _panel(block, shown, lane, MARGIN + x, top),
            MARGIN + x + block.width,
            top + _HEAD + _ROW * len(shown),
        )
    marks = [Mark(f"colour: the {unit}, hue is g", "fill", FILLS[4 * 1 + 1])]
    if lane is not None and lane in shown:
        marks.append(Mark(f"{unit} {lane}", "lane"))
    if any(slots_per_register(f) > 1 for f in chosen):
        marks.append(Mark("one b32 register", "word"))
    page.key(marks, MARGIN, page.bottom + 5, page.right - MARGIN)
    return page.scene()


def title_of(instruction: str) -> str:
    """Return the title of the picture."""
    return f"{instruction}: which element lies in each register of each lane"


def _blocks(
    chosen: tuple[Fragment, ...], shown: range, slots: Sequence[int] | None, room: float
) -> list[Block]:
    """Cut each fragment's columns where the page ends, between registers."""
    blocks = []
    for fragment in chosen:
        columns = columns_of(fragment, shown)
        if slots is not None:
            name = f"registers: slots of {fragment.operand}"
            within = checked_range(slots, fragment.slots, name, columns[0].slots)
            columns = tuple(column for column in columns if column.first in within)
        pitch = max(column.width for column in columns)
        left = _GROUP + lane_width(fragment)
        fitting = int((room - left) / pitch)
        per = sum(column.register == columns[0].register for column in columns)
        fitting = max(fitting // per * per, per)
        if left + per * pitch > room:
            raise LayoutError(
                f"registers: one register of {fragment.operand} needs "
                f"{(left + per * pitch + 2 * MARGIN) / INCH:.1f} inches; got "
                f"{(room + 2 * MARGIN) / INCH:.1f}. {WIDER}"
            )
        count = -(-len(columns) // fitting)
        even = -(-len(columns) // (per * count)) * per  # blocks of about one size
        for at in range(0, len(columns), even):
            blocks.append(Block(fragment, columns[at : at + even], pitch, at == 0))
    return blocks


def _panel(block: Block, shown: range, lane: int | None, x: float, y: float) -> Panel:
    """Draw a block with its corner at (x, y)."""
    fragment = block.fragment
    lanes = lane_width(fragment)
    left, top = x + _GROUP, y + _HEAD
    side = Grid((left, top), (lanes, _ROW), len(shown), 1)
    table = Grid((side.right, top), (block.pitch, _ROW), len(shown), len(block.columns))
    ups = (8.2, 2.4)  # of the lines of row and column, above the table
    cells: list[Cell] = []
    texts: list[Text] = [*titled(left, y + 8, heading_of(fragment), block.note)]
    for word, up in zip(("row", "col"), ups, strict=True):
        texts.append(Text(side.right - 3, top - up, word, SMALL, "end", color=NOTE))
    for j, column in enumerate(block.columns):
        middle, _ = table.corner(0, j + 0.5)
        texts.append(Text(middle, top - 14.5, column.name, _LABEL, bold=True))
        for rule, up in zip(column.rules, ups, strict=True):
            if rule:
                texts.append(Text(middle, top - up, rule, SMALL, color=NOTE))
    for i, number in enumerate(shown):
        fill, thread = FILLS[number % WARP], f"T{number}"
        cells.append(side.fill(i, 0, fill, thread, {"lane": number}))
        texts.append(side.label(i, 0, thread, _LABEL, True))
        for j, column in enumerate(block.columns):
            row, col = column.indices[i]
            title = f"{thread} {column.name} ({row}, {col})"
            data = {"lane": f"{number}", "register": column.name, "row": row, "col": col}
            cells.append(table.fill(i, j, fill, title, data))
            texts.append(table.label(i, j, f"{row},{col}", _LABEL, number == lane))
    width = table.right - left
    strokes = [
        side.rules(),
        table.rules(),
        *_marks(block, table),
        frame(left, top, width, table.low - top),
        Stroke(table.uprights([0]), 0.8, role="frame"),
    ]
    paths: list[Path] = []
    for first in range(shown.start - shown.start % 4, shown.stop, 4):
        a, b = max(first, shown.start) - shown.start, min(first + 4, shown.stop) - shown.start
        up, down = top + a * _ROW + 1, top + b * _ROW - 1
        paths.append(bracket_left(left - 4, up, down))
        label = f"g={first % WARP // 4}"
        if b - a == 4:
            texts.append(Text(left - 6.5, (up + down) / 2, label, SMALL, color=NOTE, angle=90))
    strokes.append(Stroke(tuple(paths), 0.6, NOTE, role="rows"))
    if lane is not None and lane in shown:
        strokes.append(outline(left, top + (lane - shown.start) * _ROW, width, _ROW, 1.4))
    texts.sort(key=lambda text: (text.bold, text.color, text.size))
    suffix = "" if block.first else f" {block.columns[0].name}"
    return Panel(fragment.operand + suffix, tuple(cells), tuple(strokes), tuple(texts))


def _marks(block: Block, table: Grid) -> list[Stroke]:
    """Bracket the slots of one register above their names, and rule between registers."""
    registers = np.array([column.register for column in block.columns])
    edges = (np.flatnonzero(np.diff(registers)) + 1).tolist()
    strokes = [Stroke(table.uprights(edges), 0.5, NOTE, role="register")] if edges else []
    if slots_per_register(block.fragment) > 1:
        lefts = [table.corner(0, j)[0] for j in (0, *edges, len(registers))]
        paths = (
            bracket_below(a + 2, b - 2, table.at[1] - 22, -2.0)
            for a, b in itertools.pairwise(lefts)
        )
        strokes.append(Stroke(tuple(paths), 0.6, NOTE, role="word"))
    return strokes
