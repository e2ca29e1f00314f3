"""The side panel of a fragment picture: g and t, then slot -> (row, column) of one lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layoutalg.draw.formula import index_formula, index_range
from layoutalg.draw.naming import register_name, slot_name, slots_per_register
from layoutalg.draw.palette import INK, NOTE
from layoutalg.draw.scene import Panel, Stroke, Text, text_width
from layoutalg.fragments import WARP, Fragment

_SIZE = 6.5
_PITCH = 9.0
_GAP = 11.0  # between two lists
_INDENT = 5.0  # of a name from its register's bracket
_LONGEST = 16  # lines of one list; more flow into the next column


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
    packed, step = slots_per_register(fragment), slots_per_line(fragment)
    coords = fragment.coords
    entries = []
    for slot in range(0, fragment.slots, step):
        part = coords[:, slot : slot + step]
        rules = [index_formula(part[..., dimension]) for dimension in (0, 1)]
        places = (
            []
            if lane is None
            else [index_range(part[lane, :, dimension].tolist()) for dimension in (0, 1)]
        )
        entries.append(
            Entry(
                slot // packed,
                register_name(fragment, slot // packed) if step > 1 else slot_name(fragment, slot),
                f"({rules[0]}, {rules[1]})" if None not in rules else "",
                f"({places[0]}, {places[1]})" if places else "",
            )
        )
    return tuple(entries)


def slots_per_line(fragment: Fragment) -> int:
    """Return how many slots share a line: a whole register where more than two lie in a row."""
    packed, coords = slots_per_register(fragment), fragment.coords
    wholes = packed > 2 and all(
        _straight(coords[:, i : i + packed]) for i in range(0, fragment.slots, packed)
    )
    return packed if wholes else 1


def _straight(part: npt.NDArray[np.int64]) -> bool:
    """Tell whether both indices of some slots have a rule, as constants or ranges."""
    return all(index_formula(part[..., dimension]) is not None for dimension in (0, 1))


def sidebar_of(
    fragments: tuple[Fragment, ...], lane: int | None, x: float, y: float, width: float
) -> tuple[Panel, float, float]:
    """Draw the side panel with its corner at (x, y); return it, and width and height taken."""
    first = fragments[0]
    unit = "thread" if len(first.coords) > WARP else "lane"
    texts = [Text(x, y + 7, first.instruction, 8, "start", True)]
    taken = text_width(first.instruction, 8, True)
    bottom = y + 10
    origin = f"{first.min_arch} and later; {first.source}"
    for line in _wrapped(origin.split(), " ", width, 5.0):
        bottom += 7
        texts.append(Text(x, bottom, line, 5, "start", color=NOTE))
        taken = max(taken, text_width(line, 5))
    bottom += 4
    digits = _digits(len(first.coords), lane)
    for line in [line for part in digits for line in _wrapped(part, ", ", width, _SIZE)]:
        bottom += _PITCH
        texts.append(Text(x, bottom, line, _SIZE, "start"))
        taken = max(taken, text_width(line, _SIZE))
    paths: list[tuple[tuple[float, float], ...]] = []
    left, top, row_bottom = x, bottom + 13, bottom + 13
    for fragment in fragments:
        entries = entries_of(fragment, lane)
        for begin in range(0, len(entries), _LONGEST):
            part = entries[begin : begin + _LONGEST]
            columns = [
                max(text_width(text, _SIZE) for text in texts_of)
                for texts_of in (
                    [entry.name for entry in part],
                    [entry.rule for entry in part],
                    [entry.place for entry in part],
                )
            ]
            wide = _INDENT + sum(columns) + 5.0 * (columns[1] > 0) + 5.0 * (columns[2] > 0)
            if left > x and left + wide > x + width:
                left, top = x, row_bottom + 12
            if begin == 0:
                head = fragment.operand.split(".")[0]
                texts.append(Text(left, top, head, _SIZE, "start", True))
            at = [left + _INDENT, left + _INDENT + columns[0] + 5.0]
            at.append(at[1] + columns[1] + 5.0 * (columns[1] > 0))
            if part[0].place:
                texts.append(Text(at[2], top, f"{unit} {lane}", 5, "start", color=NOTE))
            for n, entry in enumerate(part):
                low = top + 10 + _PITCH * n
                texts.append(Text(at[0], low, entry.name, _SIZE, "start"))
                if entry.rule:
                    texts.append(Text(at[1], low, entry.rule, _SIZE, "start"))
                if entry.place:
                    texts.append(Text(at[2], low, entry.place, _SIZE, "start"))
            paths += _brackets(part, left + 1, top + 10)
            row_bottom = max(row_bottom, top + 10 + _PITCH * (len(part) - 1) + 2)
            taken = max(taken, left - x + wide)
            left += wide + _GAP
    strokes = (Stroke(tuple(paths), 0.5, INK, role="word"),) if paths else ()
    texts.sort(key=lambda text: (text.size, text.bold, text.color))
    return Panel("side", (), strokes, tuple(texts)), taken, row_bottom - y


def _digits(lanes: int, lane: int | None) -> tuple[tuple[str, ...], ...]:
    """Define g and t, and w where there are several warps, and give those of the lane."""
    unit = "thread" if lanes > WARP else "lane"
    rules = [f"g = {unit} // 4", f"t = {unit} mod 4"]
    values = []
    if lanes > WARP:
        rules = [f"w = {unit} // {WARP}", f"g = {unit} mod {WARP} // 4", f"t = {unit} mod 4"]
    if lane is not None:
        values = [f"w = {lane // WARP}"] * (lanes > WARP)
        values += [f"g = {lane % WARP // 4}", f"t = {lane % 4}"]
        values[0] = f"{unit} {lane}: {values[0]}"
    return tuple(filter(None, (tuple(rules), tuple(values))))


def _brackets(
    entries: tuple[Entry, ...], x: float, y: float
) -> list[tuple[tuple[float, float], ...]]:
    """Bracket neighbouring lines of one register; y is the first line's baseline."""
    paths: list[tuple[tuple[float, float], ...]] = []
    for n, entry in enumerate(entries):
        if n and entries[n - 1].register == entry.register:
            continue
        m = n
        while m + 1 < len(entries) and entries[m + 1].register == entry.register:
            m += 1
        if m > n:
            top, low = y + _PITCH * n - 4.4, y + _PITCH * m
            paths.append(((x + 2, top), (x, top), (x, low), (x + 2, low)))
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
