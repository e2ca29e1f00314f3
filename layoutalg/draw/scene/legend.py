"""The legend: which colour is which lane, warp or address, and what the lines mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layoutalg.algebra.axis import WARP
from layoutalg.draw.scene.grid import RISE, bracket_below, outline
from layoutalg.draw.scene.ownership import HUE_OF_WARP, Ownership, address_range
from layoutalg.draw.scene.palette import FILLS, HUES, INK, NOTE
from layoutalg.draw.scene.panel import BLOCK, Placed, bracketed
from layoutalg.draw.scene.scene import SMALLEST_TEXT, Cell, Panel, Stroke, Text, text_width

_SIZE = 6.0
_SWATCH = (13.0, 9.5)  # least width, and height, in points
_LINE = 9.0  # pitch of the key's lines
_SAMPLE = 14.0  # width of the key's samples
_GAP = 12.0  # between swatches and key


@dataclass(frozen=True)
class Swatches:
    """A table of colours: heads of columns and rows, and per column the fills and their texts."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    fills: tuple[tuple[str, ...], ...]
    texts: tuple[tuple[str, ...], ...]
    outlined: tuple[int, int] | None = None

    @property
    def pitch(self) -> float:
        """The width of a swatch: the heads fit."""
        return max(_SWATCH[0], *(text_width(head, SMALLEST_TEXT) + 2 for head in self.columns))

    @property
    def margin(self) -> float:
        """The width of the row heads."""
        return max((text_width(head, SMALLEST_TEXT) + 3 for head in self.rows), default=0.0)

    @property
    def width(self) -> float:
        """The width of the table, or of its caption where that is wider."""
        return max(
            self.margin + self.pitch * len(self.columns),
            self.margin + text_width(self.caption, _SIZE, True),
        )


def swatches_of(owners: Ownership, lane: int | None) -> Swatches:
    """Say what each colour of a tile means; the swatch of the outlined lane is outlined."""
    if owners.hue_is == "group" and owners.lane is not None:
        groups = np.unique(owners.lane % WARP // 4).tolist()
        place = None if lane is None else (groups.index(lane % WARP // 4), lane % 4)
        return Swatches(
            "colour: lane = 4g + t" + " (mod 32)" * bool(owners.lane.max() >= WARP),
            tuple(f"g={g}" for g in groups),
            tuple(f"t={t}" for t in range(4)),
            tuple(HUES[g] for g in groups),
            tuple(tuple(str(4 * g + t) for t in range(4)) for g in groups),
            place,
        )
    hues = np.unique(owners.colors() // 4).tolist()
    if owners.hue_is == "warp" and owners.warp is not None:
        order = HUE_OF_WARP.tolist()
        hues.sort(key=order.index)
        many = int(owners.warp.max()) >= len(HUES)
        rows = () if owners.lane is None else tuple(f"T{8 * q}..{8 * q + 7}" for q in range(4))
        fills = tuple(HUES[hue][: max(len(rows), 1)] for hue in hues)
        place = None
        if lane is not None:
            place = (hues.index(order[lane // WARP % len(HUES)]), lane % WARP // 8)
        return Swatches(
            "colour: warp mod 8, lane" if many else "colour: warp, lane",
            tuple(f"W{order.index(hue)}" for hue in hues),
            rows,
            fills,
            tuple(("",) * len(fill) for fill in fills),
            place,
        )
    if owners.hue_is == "block":
        name, values = owners.threads[0]
        order = HUE_OF_WARP.tolist()
        hues.sort(key=order.index)
        heads = tuple(f"{name}{order.index(hue)}" for hue in hues)
        caption = f"colour: {name}" + " mod 8" * (int(values.max()) >= len(HUES))
    else:
        name, values = owners.memory[0]
        low, high = address_range(values)
        heads = tuple(str(low - (-hue * (high - low) // len(HUES))) for hue in hues)
        caption = f"colour: {name}, from"
    fills = tuple((HUES[hue][0],) for hue in hues)
    return Swatches(caption, heads, (), fills, (("",),) * len(hues))


def key_of(
    shown: tuple[Placed, ...], lane: int | None, solid: str = "instruction"
) -> tuple[tuple[str, str], ...]:
    """List the marks that occur in the tiles: (role, meaning); ``solid`` names solid lines."""
    owners = [each.tile.owners for each in shown]
    found = []
    if lane is not None:
        in_warps = any(o.warp is not None for o in owners)
        found.append(("lane", f"thread {lane}" if in_warps else f"lane {lane}"))
    if any(o.hue_is == "warp" for o in owners):
        found.append(("warp", "warp"))
    if any(each.tile.instruction is not None for each in shown):
        found.append(("instruction", solid))
    if any(max(o.shape) > BLOCK for o in owners):
        found.append(("block", f"{BLOCK} \u00d7 {BLOCK} block"))
    if any(map(bracketed, shown)):
        found.append(("word", "one b32 register"))
    elif any(each.tile.word > 1 and each.detail.runs is not None for each in shown):
        found.append(("box", "one b32 register"))
    if any(_two_colored(o) for o in owners):
        found.append(("split", "two owners"))
    if any(values.shape[-1] > 1 for o in owners for _, values in (*o.threads, *o.memory)):
        found.append(("+", "+n: n more owners"))
    return tuple(found)


def _two_colored(owners: Ownership) -> bool:
    colors = np.sort(owners.colors(), axis=-1)
    return bool((1 + (colors[..., 1:] != colors[..., :-1]).sum(axis=-1) == 2).any())


def legend_of(
    shown: tuple[Placed, ...],
    lane: int | None,
    x: float,
    y: float,
    width: float,
    solid: str = "instruction",
) -> tuple[Panel, float, float]:
    """Draw the legend with its corner at (x, y); return it with the width and height it takes.

    The key stands right of the swatches where ``width`` has room for it, else below them.
    """
    table = swatches_of(shown[0].tile.owners, lane)
    key = key_of(shown, lane, solid)
    left, top = x + table.margin, y + 18
    texts = [Text(left, y + 6, table.caption, _SIZE, "start", True)]
    heads: list[Text] = []
    pitch, height = table.pitch, _SWATCH[1]
    cells = []
    for j, (head, fills, names) in enumerate(
        zip(table.columns, table.fills, table.texts, strict=True)
    ):
        heads.append(Text(left + (j + 0.5) * pitch, top - 2.5, head, SMALLEST_TEXT, color=NOTE))
        for i, (fill, name) in enumerate(zip(fills, names, strict=True)):
            cells.append(Cell(left + j * pitch, top + i * height, pitch, height, fill))
            if name:
                at = left + (j + 0.5) * pitch, top + (i + 0.5) * height + RISE * _SIZE
                texts.append(Text(*at, name, _SIZE))
    for i, head in enumerate(table.rows):
        middle = top + (i + 0.5) * height + RISE * SMALLEST_TEXT
        heads.append(Text(left - 3, middle, head, SMALLEST_TEXT, "end", color=NOTE))
    strokes = []
    if table.outlined is not None:
        j, i = table.outlined
        strokes.append(outline(left + j * pitch, top + i * height, pitch, height))
    depth = 18 + height * max(map(len, table.fills))
    wide = max((text_width(meaning, _SIZE) for _, meaning in key), default=0.0) + _SAMPLE + 5
    if key and table.width + _GAP + wide <= width:
        at_x, at_y, taken = x + table.width + _GAP, y, table.width + _GAP + wide
    else:
        at_x, at_y, taken = x, y + depth + 5, max(table.width, wide)
    for n, (role, meaning) in enumerate(key):
        middle = at_y + _LINE * n + 4
        strokes += _sample(role, at_x, middle)
        if role == "box":
            cells.append(Cell(at_x, middle - 3.5, _SAMPLE, 7, FILLS[1]))
        if role == "split":
            cells.append(Cell(at_x, middle - 3.5, _SAMPLE, 7, FILLS[1], corner=FILLS[17]))
        texts.append(Text(at_x + _SAMPLE + 5, middle + RISE * _SIZE, meaning, _SIZE, "start"))
    bottom = max(y + depth, at_y + _LINE * len(key)) if key else y + depth
    return Panel("legend", tuple(cells), tuple(strokes), (*texts, *heads)), taken, bottom - y


def _sample(role: str, x: float, y: float) -> list[Stroke]:
    """Draw a mark as it looks in the panels, centred on the height y."""
    right = x + _SAMPLE
    if role == "lane":
        return [outline(x + 1, y - 3, _SAMPLE - 2, 6)]
    if role == "word":
        return [Stroke((bracket_below(x + 1, right - 1, y + 2, 2.5),), 0.45, INK)]
    weight, dashes = {
        "warp": (1.5, None),
        "instruction": (0.8, None),
        "block": (0.6, (2.4, 1.8)),
    }.get(role, (0.0, None))
    return [Stroke((((x, y), (right, y)),), weight, INK, dashes)] if weight else []
