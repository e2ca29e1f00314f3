"""The side panel of a fragment picture: g and t, then slot -> (row, column) of one lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layoutalg.algebra.axis import WARP
from layoutalg.draw.scene.chosen import certificates_of, lanes_of
from layoutalg.draw.scene.formula import digit_rules, digit_values, index_range, slot_rules
from layoutalg.draw.scene.grid import bracket_left
from layoutalg.draw.scene.naming import heading_of, slots_name, slots_per_register
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
    """One line: the slots, their rule in g and t, and their place for the outlined lane.

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
        lane: whose places are given; None for none.
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
    bottom = y + 10

    def note(line: str, size: float, pitch: float, color: str) -> None:
        nonlocal bottom
        bottom += pitch
        texts.append(Text(x, bottom, line, size, "start", color=color))

    origin = f"{written(first.min_arch)}; {first.source}"
    for line in _wrapped(origin.split(), " ", width, 5.0):
        note(line, 5.0, 7.0, NOTE)
    bottom += 4
    listed = {fragment.operand: entries_of(fragment, lane) for fragment in fragments}
    for line in _wrapped_all(_digits(fragments, listed, lane, product), width):
        note(line, _SIZE, _PITCH, INK)
    taken = max(text_width(text.string, text.size, text.bold) for text in texts)
    paths: list[Path] = []
    left, top, row_bottom = x, bottom + 13, bottom + 13
    rest: list[str] = []
    for fragment in fragments:
        entries = listed[fragment.operand]
        if len(entries) > _MOST:
            entries = entries[:_LONGEST]
            rest += _rule(fragment)
        for begin in range(0, len(entries), _LONGEST):
            part = entries[begin : begin + _LONGEST]
            head = heading_of(fragment) if begin == 0 else ""
            copies = f"{fragment.copies} copies" if head and fragment.copies > 1 else ""
            heads = text_width(head, _SIZE, True) + 4 + text_width(copies, 5)
            columns = [
                max(text_width(text, _SIZE) for text in texts_of)
                for texts_of in (
                    [entry.name for entry in part],
                    [entry.rule for entry in part],
                    [entry.place for entry in part],
                )
            ]
            third = _INDENT + columns[0] + 5.0 + columns[1] + 5.0 * (columns[1] > 0)
            third = max(third, heads + 5.0 if head else 0.0)
            wide = third + columns[2]
            if left > x and left + wide > x + width:
                left, top = x, row_bottom + 12
            if head:
                texts.append(Text(left, top, head, _SIZE, "start", True))
            if copies:
                after = left + text_width(head, _SIZE, True) + 4
                texts.append(Text(after, top, copies, 5, "start", color=NOTE))
            at = (left + _INDENT, left + _INDENT + columns[0] + 5.0, left + third)
            if part[0].place:
                texts.append(Text(at[2], top, f"{unit} {lane}", 5, "start", color=NOTE))
            for n, entry in enumerate(part):
                low = top + 10 + _PITCH * n
                for place, string in zip(at, (entry.name, entry.rule, entry.place), strict=True):
                    if string:
                        texts.append(Text(place, low, string, _SIZE, "start"))
            paths += _brackets(part, left + 1, top + 10)
            row_bottom = max(row_bottom, top + 10 + _PITCH * (len(part) - 1) + 2)
            taken = max(taken, left - x + wide)
            left += wide + _GAP
    bottom = row_bottom + 2 * bool(rest)
    for line in _wrapped_all(rest, width):
        note(line, _SIZE, _PITCH, INK)
        taken = max(taken, text_width(line, _SIZE))
    bottom += 3
    for statement in certificates_of(fragments):
        for line in _wrapped(statement.split(), " ", max(width, taken), 5.0):
            note(line, 5.0, 7.0, NOTE)
            taken = max(taken, text_width(line, 5))
    strokes = (Stroke(tuple(paths), 0.5, INK, role="word"),) if paths else ()
    texts.sort(key=lambda text: (text.size, text.bold, text.color))
    return Panel("side", (), strokes, tuple(texts)), taken, bottom - y


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


def _rule(fragment: Fragment) -> list[str]:
    """Return the rule of all slots, where not all are listed."""
    last = slots_name(fragment, fragment.slots - 1, fragment.slots - 1)
    digits = ", ".join(f"{name} < {extent}" for name, extent in fragment.formula.digits)
    return [f"\u2026 {last}; {fragment.formula}", digits]


def _brackets(entries: tuple[Entry, ...], x: float, y: float) -> list[Path]:
    """Bracket neighbouring lines of one register; y is the first line's baseline."""
    paths: list[Path] = []
    for n, entry in enumerate(entries):
        if n and entries[n - 1].register == entry.register:
            continue
        m = n
        while m + 1 < len(entries) and entries[m + 1].register == entry.register:
            m += 1
        if m > n:
            top, low = y + _PITCH * n - 4.4, y + _PITCH * m
            paths.append(bracket_left(x, top, low))
    return paths


def _wrapped(parts: Sequence[str], by: str, width: float, size: float) -> list[str]:
    """Join parts into lines of at most ``width`` points."""
    lines: list[str] = []
    for part in parts:
        if lines and text_width(f"{lines[-1]}{by}{part}", size) <= width:
            lines[-1] = f"{lines[-1]}{by}{part}"
        else:
            lines.append(part)
    return lines


def _wrapped_all(lines: Sequence[str | Sequence[str]], width: float) -> list[str]:
    """Break lines after commas."""
    parts = [line.split(", ") if isinstance(line, str) else line for line in lines]
    return [each for line in parts for each in _wrapped(line, ", ", width, _SIZE)]
