"""The side panel of a fragment picture: g and t, then slot -> (row, column) of one lane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from layoutalg.algebra.axis import WARP
from layoutalg.draw.scene.chosen import certificates_of, lanes_of
from layoutalg.draw.scene.formula import digit_rules, digit_values, index_range, slot_rules
from layoutalg.draw.scene.grid import bracket_left
from layoutalg.draw.scene.naming import heading_of, slots_name, slots_per_register
from layoutalg.draw.scene.page import flow, wrapped
from layoutalg.draw.scene.palette import INK, NOTE
from layoutalg.draw.scene.scene import Panel, Path, Stroke, Text, text_width
from layoutalg.fragments import Fragment
from layoutalg.fragments.targets import written

_SIZE = 6.5
_PITCH = 9.0
_GAP = 11.0  # between two lists
_INDENT = 5.0  # of a name from its register's bracket
_LONGEST = 12  # lines of one list; more flow into the next column
_MOST = 2 * _LONGEST  # lines of a fragment; where there are more, the rule stands for the rest


@dataclass(frozen=True)
class Entry:
    """One line: the slots, their rule in g and t, and their row and column in the outlined lane.

    ``register`` numbers the register; lines of one register are bracketed.
    """

    register: int
    name: str
    rule: str
    place: str


def entries_of(fragment: Fragment, lane: int | None) -> tuple[Entry, ...]:
    """List a fragment's slots; a register of more than two slots that lie in a row is one line.

    Args:
        fragment: of an instruction.
        lane: whose rows and columns are given; None for none.
    """
    packed, step, coords = slots_per_register(fragment), slots_per_line(fragment), fragment.coords
    entries = []
    for slot in range(0, fragment.slots, step):
        rules = slot_rules(fragment, slot, step)
        place = "" if lane is None else "({}, {})".format(*indices_of(coords[lane], slot, step))
        entries.append(
            Entry(
                slot // packed,
                slots_name(fragment, slot, slot + step - 1),
                "({}, {})".format(*rules) if rules else "",
                place,
            )
        )
    return tuple(entries)


def indices_of(coords: npt.NDArray[np.int64], slot: int, count: int) -> tuple[str, str]:
    """Return row and column, or their ranges, of neighbouring slots of a lane.

    Args:
        coords: row and column of each slot of the lane.
        slot: the first.
        count: how many, in a row.

    >>> from layoutalg.fragments import get
    >>> indices_of(get("mma.m16n8k16.f16", "A").coords[5], 2, 2)
    ('9', '2..3')
    """
    ends = coords[[slot, slot + count - 1]].T.tolist()
    return index_range(*ends[0]), index_range(*ends[1])


def slots_per_line(fragment: Fragment) -> int:
    """Return how many slots share a line: those of a register, or of a part, that lie in a row.

    Two or fewer do not.

    >>> from layoutalg.fragments import get
    >>> slots_per_line(get("mma.m16n8k32.s8", "A")), slots_per_line(get("mma.sp.m16n8k32.f16", "E"))
    (4, 8)
    """
    step = slots_per_register(fragment)
    while step > 2:
        if all(slot_rules(fragment, slot, step) for slot in range(0, fragment.slots, step)):
            return step
        step //= 2
    return 1


def sidebar_of(
    fragments: tuple[Fragment, ...],
    lane: int | None,
    product: int,
    x: float,
    y: float,
    width: float,
) -> tuple[Panel, float, float]:
    """Draw the side panel with its corner at (x, y); return it, and width and height taken."""
    first = fragments[0]
    unit = "thread" if first.lanes > WARP else "lane"
    texts = [Text(x, y + 7, first.instruction, 8, "start", True)]
    bottom, taken = y + 10, text_width(first.instruction, 8, True)

    def note(lines: Iterable[str], size: float, pitch: float, color: str) -> None:
        nonlocal bottom, taken
        for line in lines:
            bottom += pitch
            taken = max(taken, text_width(line, size))
            texts.append(Text(x, bottom, line, size, "start", color=color))

    origin = f"{written(first.min_arch)}; {first.source}"
    note(wrapped(origin, width, 5.0, after=" "), 5.0, 7.0, NOTE)
    bottom += 4
    listed = {fragment.operand: entries_of(fragment, lane) for fragment in fragments}
    digits = _digits(fragments, listed, lane, product)
    note(_joined(digits, width), _SIZE, _PITCH, INK)
    lists = [each for fragment in fragments for each in _lists(fragment, listed[fragment.operand])]
    paths: list[Path] = []
    top = row_bottom = bottom + 13
    for each, (row, left) in zip(lists, flow([e.width for e in lists], width, _GAP), strict=True):
        if row and not left:
            top = row_bottom + 12
        texts += each.texts(x + left, top, f"{unit} {lane}")
        paths += each.brackets(x + left + 1, top + 10)
        row_bottom = max(row_bottom, top + 10 + _PITCH * (len(each.entries) - 1) + 2)
        taken = max(taken, left + each.width)
    rest = [line for f in fragments if len(listed[f.operand]) > _MOST for line in _rule(f)]
    bottom = row_bottom + 2 * bool(rest)
    note(_joined(rest, width), _SIZE, _PITCH, INK)
    bottom += 3
    for said in certificates_of(fragments):
        note(wrapped(said, max(width, taken), 5.0, after=" "), 5.0, 7.0, NOTE)
    texts.sort(key=lambda text: (text.size, text.bold, text.color))
    strokes = (Stroke(tuple(paths), 0.5, INK, role="word"),) if paths else ()
    return Panel("side", (), strokes, tuple(texts)), taken, bottom - y


@dataclass(frozen=True)
class _List:
    """Lines one under another, in columns: slots, their rule, and row and column in the lane."""

    head: str
    copies: str
    entries: tuple[Entry, ...]

    @property
    def columns(self) -> tuple[float, float, float]:
        """Where the columns begin, from the left edge on."""
        names, rules = (
            max(text_width(text, _SIZE) for text in column)
            for column in zip(*((entry.name, entry.rule) for entry in self.entries), strict=True)
        )
        second = _INDENT + names + 5.0
        third = second + rules + 5.0 * (rules > 0)
        heads = text_width(self.head, _SIZE, True) + 4 + text_width(self.copies, 5)
        return _INDENT, second, max(third, heads + 5.0 if self.head else 0.0)

    @property
    def width(self) -> float:
        """Width of all columns, in points."""
        return self.columns[2] + max(text_width(entry.place, _SIZE) for entry in self.entries)

    def texts(self, x: float, y: float, lane: str) -> list[Text]:
        """Set the lines below a head whose baseline is at (x, y)."""
        after, third = x + text_width(self.head, _SIZE, True) + 4, x + self.columns[2]
        texts = [
            Text(x, y, self.head, _SIZE, "start", True),
            Text(after, y, self.copies, 5, "start", color=NOTE),
            Text(third, y, lane if self.entries[0].place else "", 5, "start", color=NOTE),
        ]
        for n, entry in enumerate(self.entries, 1):
            words = zip(self.columns, (entry.name, entry.rule, entry.place), strict=True)
            low = y + _PITCH * n + 1
            texts += [Text(x + column, low, word, _SIZE, "start") for column, word in words]
        return [text for text in texts if text.string]

    def brackets(self, x: float, y: float) -> list[Path]:
        """Bracket neighbouring lines of one register; y is the first line's baseline."""
        paths, n = [], 0
        for _, same in groupby(self.entries, key=lambda entry: entry.register):
            last = n + len(list(same)) - 1
            if last > n:
                paths.append(bracket_left(x, y + _PITCH * n - 4.4, y + _PITCH * last))
            n = last + 1
        return paths


def _lists(fragment: Fragment, entries: tuple[Entry, ...]) -> list[_List]:
    """Cut the lines of a fragment into lists; of many lines the first ones are kept."""
    shown = entries[:_LONGEST] if len(entries) > _MOST else entries
    copies = f"{fragment.copies} copies" if fragment.copies > 1 else ""
    first = _List(heading_of(fragment), copies, shown[:_LONGEST])
    return [first, *([_List("", "", shown[_LONGEST:])] if len(shown) > _LONGEST else [])]


def _digits(
    fragments: tuple[Fragment, ...],
    listed: Mapping[str, tuple[Entry, ...]],
    lane: int | None,
    product: int,
) -> tuple[tuple[str, ...], ...]:
    """Define the digits that the rules use, and give those of the lane; name the product."""
    first = fragments[0]
    rules = [entry.rule for entries in listed.values() for entry in entries]
    several = first.products > 1
    defined = digit_rules([*rules, "q"] if several else rules, first.lanes > WARP)
    lines = [defined]
    if lane is not None:
        unit = "thread" if first.lanes > WARP else "lane"
        values = digit_values(lane, defined)
        lines.append((f"{unit} {lane}: {values[0]}", *values[1:]))
    if several:
        lines.append(
            (
                f"product {product} of {first.products}: q = {product}",
                f"lanes {lanes_of(first, product)}",
            )
        )
    return tuple(lines)


def _rule(fragment: Fragment) -> list[list[str]]:
    """Return the rule of all slots, where not all are listed."""
    last = slots_name(fragment, fragment.slots - 1, fragment.slots - 1)
    digits = [f"{name} < {extent}" for name, extent in fragment.formula.digits]
    return [f"\u2026 {last}; {fragment.formula}".split(", "), digits]


def _joined(lines: Iterable[Sequence[str]], width: float) -> list[str]:
    """Join the parts of each line by commas; a line breaks where ``width`` points are taken."""
    found: list[str] = []
    for parts in lines:
        found.append(parts[0])
        for part in parts[1:]:
            longer = f"{found[-1]}, {part}"
            if text_width(longer, _SIZE) <= width:
                found[-1] = longer
            else:
                found.append(part)
    return found
