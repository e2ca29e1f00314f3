"""``tiling``: which warp computes which instruction tile, and in which K step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layoutalg import fragments
from layoutalg.algebra.axis import WARP, warpid
from layoutalg.algebra.iters import Iter
from layoutalg.draw.scene.chosen import chosen_fragments
from layoutalg.draw.scene.grid import Grid, every, titled
from layoutalg.draw.scene.naming import index_names, role_of, slot_name
from layoutalg.draw.scene.ownership import HUE_OF_WARP, IntArray
from layoutalg.draw.scene.page import INCH, MARGIN, PAGE, SMALL, WIDER, Mark, Page, wrapped
from layoutalg.draw.scene.palette import HUES, INK, NOTE, PAPER
from layoutalg.draw.scene.panel import boundary, edge_paths
from layoutalg.draw.scene.picture import picture
from layoutalg.draw.scene.scene import (
    Cell,
    Panel,
    Path,
    Point,
    Scene,
    Stroke,
    Text,
    centred,
    fitting_size,
    text_width,
)
from layoutalg.errors import LayoutError
from layoutalg.fragments import Fragment
from layoutalg.layouts.tile_layout import TileLayout
from layoutalg.sizes.budget import CELLS, check_budget

_HIGH = 19.0  # height of an instruction's tile, in points
_WIDEST = 36.0  # width of one
_GUTTER = 20.0  # row numbers left of a panel
_HEAD = 20.0  # title and column numbers above a panel
_GAP = 10.0


@dataclass(frozen=True, eq=False)
class Part:
    """An operand of the whole tile, seen in tiles of one instruction.

    Attributes:
        name: ``"A"``, ``"B"`` or ``"D"``.
        fragment: of one instruction.
        layout: of the whole operand, over warpid, laneid and m.
        warps: (rows, columns, replicas): the warps that hold each tile; the base first.
        slots: (rows, columns, 2): first and last slot of each tile in a lane.
    """

    name: str
    fragment: Fragment
    layout: TileLayout
    warps: IntArray
    slots: IntArray

    @property
    def registers(self) -> int:
        """Registers that each lane needs for the operand."""
        count = int(self.slots.max()) + 1
        return -(-count * self.fragment.bits // self.fragment.register_bits)


def _part(
    name: str,
    fragment: Fragment,
    shape: tuple[int, int],
    grid_of: tuple[int, int],
    next_column: int,
    copies: Iter | None,
) -> Part:
    """Tile a fragment over a warp's share, and that over the warps.

    Args:
        name: of the operand.
        fragment: of one instruction.
        shape: of the whole operand.
        grid_of: how many warps share the rows, and the columns.
        next_column: how much larger the warp's number is in the next column of warps.
        copies: the warps that hold a copy each.
    """
    share = (shape[0] // grid_of[0], shape[1] // grid_of[1])
    outer = TileLayout.from_iters(
        [Iter(grid_of[0], 1, warpid), Iter(grid_of[1], next_column, warpid)]
    )
    whole = fragment.tiled(*share).tile(outer, grid_of, share)
    replica = () if copies is None or copies.extent == 1 else (copies,)
    layout = TileLayout.from_iters(whole.shard, (*whole.replica, *replica))
    table = layout.table(shape, replicas=True)
    rows, columns = fragment.shape
    warp = table.get("warpid", np.zeros((*shape, 1), dtype=np.int64))
    slot = table["m"][..., 0].reshape(shape[0] // rows, rows, shape[1] // columns, columns)
    slots = np.stack([slot.min(axis=(1, 3)), slot.max(axis=(1, 3))], axis=-1)
    return Part(name, fragment, layout, warp[::rows, ::columns], slots)


def parts_of(
    instruction: str,
    shape: Sequence[int],
    warps: Sequence[int],
    accumulator: str | None = None,
) -> tuple[Part, Part, Part]:
    """Return A, B and D of a tile (M, N, K) that a grid of warps shares.

    Warp ``i + warps[0] * j`` computes the i-th share of the rows and the j-th of the columns; all
    warps of a row hold the same A, all of a column the same B.

    Raises:
        LayoutError: no instruction of one warp has such a name, or the tile does not consist of its
            tiles, one or more for each warp.

    >>> a, b, d = parts_of("mma.m16n8k16.f16", (64, 64, 16), (2, 2))
    >>> print(a.layout)
    S[(2,2,2,8,2,4,2):(1@warpid,8,2,4@laneid,4,1@laneid,1)] + R[2:2@warpid]
    """
    found = {role_of(f): f for f in chosen_fragments(instruction, accumulator)}
    a, b, d = (found.get(role) for role in "ABD")
    if a is None or b is None or d is None or {a.lanes, b.lanes, d.lanes} != {WARP}:
        raise LayoutError(
            f"tiling: needs an instruction of one warp with A, B and D in registers; "
            f"{instruction} has {', '.join(fragments.operands(instruction))}"
        )
    if d.products > 1:
        raise LayoutError(
            f"tiling: needs an instruction that forms one product; {instruction} forms "
            f"{d.products} of {d.shape[0]} x {d.shape[1]}. mma.m16n8k8.f16 fits"
        )
    tile = (d.shape[0], d.shape[1], b.shape[0])
    sizes, across = tuple(shape), tuple(warps)
    if (
        len(sizes) != 3
        or len(across) != 2
        or not all(type(n) is int and n > 0 for n in (*sizes, *across))
    ):
        raise LayoutError(
            f"tiling: shape is (M, N, K) and warps is (along M, along N), each 1 or more; got "
            f"{sizes} and {across}"
        )
    m, n, k = sizes
    down, right = across
    if m % (tile[0] * down) or n % (tile[1] * right) or k % tile[2]:
        raise LayoutError(
            f"tiling: {instruction} covers {tile[0]} x {tile[1]} x {tile[2]}, so {down} x {right} "
            f"warps need M a multiple of {tile[0] * down}, N of {tile[1] * right} and K of "
            f"{tile[2]}; got {sizes}"
        )
    check_budget("tiling", max(m * n, m * k, k * n), CELLS, "elements in an operand", "Draw a part")
    kept = k * a.shape[1] // tile[2]  # columns of A: its nonzeros where it is sparse
    return (
        _part("A", a, (m, kept), (down, 1), down, Iter(right, down, warpid)),
        _part("B", b, (k, n), (1, right), down, Iter(down, 1, warpid)),
        _part("D", d, (m, n), (down, right), down, None),
    )


@picture
def tiling(
    instruction: str,
    shape: Sequence[int],
    warps: Sequence[int] = (1, 1),
    warp: int | None = 0,
    *,
    accumulator: str | None = None,
    width: float = PAGE,
) -> Scene:
    """Draw a CTA tile split over warps: A left, B on top, D in the corner; a cell per instruction.

    A cell names the warps that hold its part of the operand, and the slots it takes in each lane.
    All warps of a row hold the same A and all warps of a column the same B: such cells have two
    colours. Thick lines part warps, solid ones instructions, dashed ones K steps.

    Args:
        instruction: of one warp: a name of ``fragments.names()`` with A, B and D.
        shape: (M, N, K) of the tile.
        warps: how many along M, and along N; warp i + warps[0] * j is at (i, j).
        warp: outlined; None for none.
        accumulator: type of the accumulator, such as ``"f16"``, where the instruction has several.
        width: of the page in inches, 7 unless given.

    Raises:
        LayoutError: the tile does not consist of the warps' instructions; the warp, instruction or
            suffix is unknown; the page is too narrow.

    >>> figure = tiling("mma.m16n8k16.f16", (64, 64, 32), (2, 2))
    >>> figure.scene.panel("A").cells[0].title
    'W0 W2: a0..7 from m 0, k 0'
    """
    a, b, d = parts_of(instruction, shape, warps, accumulator)
    m, n, k = shape
    count = warps[0] * warps[1]
    if warp is not None and warp not in range(count):
        raise LayoutError(f"tiling: warp is one of 0..{count - 1}, or None; got {warp!r}")
    steps, across = a.warps.shape[1], d.warps.shape[1]
    wide = (width * INCH - 2 * MARGIN - 2 * _GUTTER - _GAP) / (steps + across)
    if wide < 2:
        raise LayoutError(
            f"tiling: {steps + across} tiles side by side do not fit {width:g} inches. {WIDER}"
        )
    wide = min(int(wide * 4) / 4, _WIDEST)
    rows = (a.warps.shape[0], b.warps.shape[0])
    high = min(_HIGH, 480.0 / sum(rows))
    title = f"{instruction}: {m} \u00d7 {n} \u00d7 {k} on {warps[0]} \u00d7 {warps[1]} warps"
    left_width = _GUTTER + steps * wide
    per = (rows[0] // warps[0], across // warps[1])
    notes = [
        f"each warp computes {m // warps[0]} \u00d7 {n // warps[1]}: {per[0]} \u00d7 {per[1]} "
        f"instructions \u00d7 {steps} K step{'s' * (steps > 1)} = {per[0] * per[1] * steps} mma",
        "registers per lane: " + ", ".join(f"{p.name} {p.registers}" for p in (a, b, d)),
    ]
    page = Page(title, notes, width)

    # A stands left of D and B above it; the layouts and the key take the corner.
    right = MARGIN + left_width + _GAP + _GUTTER
    corner = left_width if left_width >= 120 else page.room
    top, size = page.bottom, SMALL + 0.5
    lines = [line for p in (a, b, d) for line in wrapped(f"{p.name} = {p.layout}", corner, size)]
    texts = [
        Text(MARGIN, top + 6 + 7.5 * n, line, size, "start", color=NOTE)
        for n, line in enumerate(lines, 1)
    ]
    words = max(text_width(line, size) for line in lines)
    page.add(Panel("layouts", texts=tuple(texts)), MARGIN + words)
    page.key(_marks((a, b, d), warp), MARGIN, top + 6 + 7.5 * len(lines) + 6, corner)
    y = page.bottom
    b_top = (top if corner == left_width else y) + _HEAD
    low = max(b_top + rows[1] * high + _GAP, y + 4) + _HEAD
    b_top = low - _HEAD - _GAP - rows[1] * high
    for part, at in ((a, (MARGIN + _GUTTER, low)), (b, (right, b_top)), (d, (right, low))):
        panel = _panel(part, warp, at, (wide, high))
        page.add(panel, right + across * wide, low + rows[0] * high)
    return page.scene()


def _marks(parts: tuple[Part, Part, Part], warp: int | None) -> list[Mark]:
    """Return the key: a hue per warp, the lines, and what replicas look like."""
    numbers = sorted(set(parts[2].warps.reshape(-1).tolist()))
    marks = [Mark("", "fill", _hue(w), inside=f"W{w}") for w in numbers[: len(HUES)]]
    marks[-1] = Mark(
        "warp" if len(numbers) <= len(HUES) else f"warp mod {len(HUES)}",
        "fill",
        marks[-1].fill,
        inside=marks[-1].inside,
    )
    if warp is not None:
        marks.append(Mark(f"warp {warp}", "lane"))
    marks += [Mark("warps", "thick"), Mark("instructions", "solid"), Mark("K steps", "dashed")]
    if any(part.warps.shape[-1] > 1 for part in parts):
        first, second = next(p for p in parts if p.warps.shape[-1] > 1).warps[0, 0, :2].tolist()
        marks.append(Mark("held by several warps", "split", _hue(first), _hue(second)))
    return marks


def _hue(warp: int) -> str:
    return HUES[int(HUE_OF_WARP[warp % len(HUES)])][0]


def _panel(part: Part, warp: int | None, at: Point, cell: Point) -> Panel:
    """Draw an operand, one cell per instruction tile, with the corner of the first at ``at``."""
    x, y = at
    table = Grid(at, cell, *part.warps.shape[:2])
    step, across = part.fragment.shape
    names = index_names(part.fragment)
    cells, labels = [], []
    for i, j in table:
        owners = part.warps[i, j].tolist()
        first, last = (slot_name(part.fragment, int(s)) for s in part.slots[i, j])
        slots = first if first == last else f"{first}..{int(part.slots[i, j, 1])}"
        warps = " ".join(f"W{w}" for w in owners)
        row, col = i * step, j * across
        title = f"{warps}: {slots} from {names[0]} {row}, {names[1]} {col}"
        second = _hue(owners[1]) if len(owners) > 1 else None
        data = {"warp": " ".join(map(str, owners)), "register": slots, "row": row, "col": col}
        cells.append(table.fill(i, j, _hue(owners[0]), title, data, second))
        short = f"W{owners[0]} +{len(owners) - 1}" if second else f"W{owners[0]}"
        labels.append((warps, short, slots))
    held = None if warp is None else (part.warps == warp).any(axis=-1)
    rows, columns = table.rows * step, table.columns * across
    numbered = range(0, table.columns, every(cell[0], text_width(str(columns), SMALL) + 2))
    heads = [
        *titled(x, y - 11.5, part.name, f"{rows} \u00d7 {columns}, {part.fragment.dtype}"),
        Text(x - 4, y - 2.5, names[1], SMALL, "end", True, NOTE),
        *table.above(((j, j * across) for j in numbered), "start"),
        *(
            Text(x - 4, y + i * cell[1] + 0.73 * SMALL + 1, str(i * step), SMALL, "end", color=NOTE)
            for i in range(0, table.rows, every(cell[1], SMALL + 1))
        ),
    ]
    heads.sort(key=lambda text: (text.size, text.anchor, text.bold, text.color))
    strokes = _boundaries(part, table)
    if held is not None:
        edges = boundary(held.astype(np.int64), frame=True)
        strokes.append(Stroke(edge_paths(edges, at, cell, 1.3), 2.6, PAPER, role="halo"))
        strokes.append(Stroke(edge_paths(edges, at, cell, 0.7), 1.4, "#000000", role="lane"))
    texts = (*heads, *_labels(cells, labels, held, cell))
    return Panel(part.name, tuple(cells), tuple(s for s in strokes if s.paths), texts)


def _labels(
    cells: list[Cell],
    labels: list[tuple[str, str, str]],
    held: IntArray | None,
    cell: Point,
) -> list[Text]:
    """Write warps and slots where all fit, else the warps, else nothing."""
    wide, high = cell
    bold = [False] * len(cells) if held is None else held.reshape(-1).tolist()
    forms: list[list[tuple[str, ...]]] = [
        [(names, slots) for names, _, slots in labels],
        [(short, slots) for _, short, slots in labels],
        [(names,) for names, _, _ in labels],
        [(short,) for _, short, _ in labels],
    ]
    for form in forms:
        widest = max(
            text_width(line, 1.0, heavy)
            for lines, heavy in zip(form, bold, strict=True)
            for line in lines
        )
        size = fitting_size(widest, len(form[0]), wide, high, 6.0)
        if size is not None:
            texts = [
                text
                for drawn, lines, heavy in zip(cells, form, bold, strict=True)
                for text in centred(lines, drawn.x + wide / 2, drawn.y + high / 2, size, bold=heavy)
            ]
            return sorted(texts, key=lambda text: text.bold)
    return []


def _boundaries(part: Part, table: Grid) -> list[Stroke]:
    """Draw instructions solid, K steps dashed, warps thick."""
    level, upright = table.levels(range(1, table.rows)), table.uprights(range(1, table.columns))
    none: tuple[Path, ...] = ()
    solid, steps = {"A": (level, upright), "B": (upright, level), "D": (level + upright, none)}[
        part.name
    ]
    warps = edge_paths(boundary(part.warps[..., 0]), table.at, table.cell)
    return [
        table.rules(1.6),
        Stroke(solid, 0.6, INK, role="instruction"),
        Stroke(steps, 0.6, INK, (2.4, 1.8), "step"),
        Stroke(warps, 1.6, INK, role="warp"),
        table.frame(),
    ]
