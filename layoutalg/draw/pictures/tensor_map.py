"""``tensor_memory``: which elements the lanes and columns of tensor memory hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from layoutalg.draw.pictures.tensor_blocks import (
    LANES,
    QUARTER,
    Block,
    TensorBuffer,
    blocks_of,
    range_of,
)
from layoutalg.draw.scene.grid import Grid, frame, rectangle
from layoutalg.draw.scene.page import INCH, LINE, MARGIN, PAGE, SMALL, Mark, Page
from layoutalg.draw.scene.palette import EMPTY, HUES, INK, NOTE, PAPER, WARP_HUES
from layoutalg.draw.scene.picture import picture
from layoutalg.draw.scene.scene import (
    Panel,
    Path,
    Point,
    Scene,
    Stroke,
    Text,
    centred,
    checked_title,
    text_width,
)
from layoutalg.errors import LayoutError

_LANE = 2.25  # height of a lane, in points
_HEAD = 30.0  # height of what stands above the lanes
_GUTTER = 34.0
_GAP = 12.0
_SIZE = 6.0
_PITCH = 1.07 * _SIZE  # of lines of text

Memories = Mapping[str, Sequence[TensorBuffer]]


@picture
def tensor_memory(memories: Memories, *, width: float = PAGE) -> Scene:
    """Draw which elements of which buffers tensor memory holds: 128 lanes, columns of 32 bits.

    A block is a range of lanes and columns in which rows advance with the lanes and columns with
    the columns, so that two ranges describe it. Copies (a layout's replica) are numbered and
    dashed. Thick lines part the lanes that each warp of a warpgroup can load and store.

    Args:
        memories: per title the buffers of one tensor memory: one panel for each CTA.
        width: of the page in inches, 7 unless given.

    Raises:
        LayoutError: no buffers, buffers that share a cell, an unknown suffix, or too narrow a page.

    >>> from layoutalg import tmem_datapath_layout, tmem_scale_layout
    >>> D = TensorBuffer("D", tmem_datapath_layout("D", 128, 64), (128, 64))
    >>> SFA = TensorBuffer("SFA", tmem_scale_layout(128, 4), (128, 4), 8, 64, names=("m", "k/32"))
    >>> figure = tensor_memory({"one CTA": [D, SFA]})
    >>> [cell.title for cell in figure.scene.panel("memory 0").cells][4::4][:2]
    ['SFA m 0..31, k/32 0..3', 'SFA m 32..63, k/32 0..3']

    Source: PTX ISA, "Tensor Memory", and "Access restrictions" of tcgen05.ld.
    """
    if not isinstance(memories, Mapping) or not memories:
        raise LayoutError(
            f"tensor_memory: memories is {{title: [TensorBuffer, …]}}; got {memories!r}"
        )
    for title, buffers in memories.items():
        checked_title(title, "tensor_memory")
        if not isinstance(buffers, Sequence) or not buffers:
            raise LayoutError(
                f"tensor_memory: memories is {{title: [TensorBuffer, …]}}; got {buffers!r} for "
                f"{title!r}"
            )
        for buffer in buffers:
            if not isinstance(buffer, TensorBuffer):
                raise LayoutError(
                    f"tensor_memory: {title!r} must hold TensorBuffers; got "
                    f"{type(buffer).__name__} {buffer}. TensorBuffer(name, layout, shape, dtype, "
                    "column) fits"
                )
        _check_overlap(title, buffers)
    names = list(dict.fromkeys(b.name for buffers in memories.values() for b in buffers))
    title = f"tensor memory: {', '.join(names)}"
    notes = [
        "128 lanes from top to bottom; columns of 32 bits, in blocks, not to scale",
        "a block says what its cells hold: rows go down with the lanes, columns along",
    ]
    every = [block for buffers in memories.values() for b in buffers for block in blocks_of(b)]
    if any(len(block.turns) > 1 for block in every):
        notes.append(
            "lane by lane: the ranges take turns, one row in each lane; then their next rows"
        )
    page = Page(title, notes, width)
    x, top = MARGIN, page.bottom + _HEAD
    for number, (name, buffers) in enumerate(memories.items()):
        panel, right = _lanes(number, name, buffers, names, (x + _GUTTER, top))
        page.add(panel, right, top + _LANE * LANES)
        x = right + _GAP
    marks = [Mark(n, "fill", HUES[_hue(at)][0]) for at, n in enumerate(names)]
    if any(block.copies for block in every):
        marks.append(Mark("a copy: dashed", "dashed"))
    if any(None in block.turns for block in every):
        marks.append(Mark("nothing", "fill", EMPTY))
    marks.append(Mark("lanes that one warp may load", "thick"))
    room = max(page.right - MARGIN, min(page.room, 200.0))
    page.key(marks, MARGIN, page.bottom + 6, room)
    taken = page.right - MARGIN
    if taken > page.room + 0.01:
        raise LayoutError(
            f"tensor_memory: the blocks and names take {(taken + 2 * MARGIN) / INCH:.1f} inches; "
            "pass a larger width, draw fewer buffers, or give them shorter names"
        )
    return page.scene()


def _hue(number: int) -> int:
    return WARP_HUES[number % len(HUES)]


def _check_overlap(title: str, buffers: Sequence[TensorBuffer]) -> None:
    """Refuse buffers that overlap.

    Raises:
        LayoutError: two of them do.
    """
    owner: dict[tuple[int, int], int] = {}
    for number, buffer in enumerate(buffers):
        lane, column, _ = (values.reshape(-1).tolist() for values in buffer.places())
        for cell in sorted(set(zip(lane, column, strict=True))):
            other = owner.setdefault(cell, number)
            if other != number:
                raise LayoutError(
                    f"tensor_memory: buffers must not overlap; in {title}, {buffers[other].name} "
                    f"and {buffer.name} share lane {cell[0]}, column {cell[1]}. Another first "
                    "column fits"
                )


def _lanes(
    number: int, name: str, buffers: Sequence[TensorBuffer], names: list[str], at: Point
) -> tuple[Panel, float]:
    """Draw the buffers of one tensor memory side by side; return the panel and its right edge."""
    x, y = at
    deep = _LANE * LANES
    cells, heads, above = [], [], []
    texts: list[Text] = []
    edges: list[Path] = []
    copies: list[Path] = []
    frames: list[Stroke] = []
    left = x
    for buffer in sorted(buffers, key=lambda each: each.column):
        hue = HUES[_hue(names.index(buffer.name))]
        blocks = blocks_of(buffer)
        begin = left
        for columns in sorted({block.columns for block in blocks}):
            stack = [block for block in blocks if block.columns == columns]
            said = range_of(*columns)
            words_of = _words(buffer, stack)
            lines = [line for words, _ in words_of for line in words]
            room = 12 if any(block.copies for block in stack) else 8
            wide = max((text_width(line, _SIZE) for line in lines), default=0.0) + room
            wide = max(wide, text_width(said, SMALL) + 4)
            above.append(Text(left + wide / 2, y - 2.5, said, SMALL, color=NOTE))
            for block, (words, middle) in zip(stack, words_of, strict=True):
                low, high = (y + lane * _LANE for lane in block.lanes)
                held = block.held
                title = f"{buffer.name} {', '.join(words)}" if held else "nothing"
                row, col, copy = held or (-1, -1, -1)
                lanes = range_of(*block.lanes)
                data = {"lanes": lanes, "columns": said, "row": row, "col": col, "copy": copy}
                fill = hue[min(max(block.copies, default=0), 3)] if held else EMPTY
                cell = Grid((left, low), (wide, high - low), 1, 1).fill(0, 0, fill, title, data)
                cells.append(cell)
                edges.append(((left, high), (left + wide, high)))
                if block.copies:
                    copies.append(rectangle(left + 2, low + 2, wide - 4, high - low - 4)[:5])
                texts += centred(words, left + wide / 2, y + middle, _SIZE) if words else ()
            edges.append(((left + wide, y), (left + wide, y + deep)))
            left += wide
        heads.append(Text(begin, y - 11, buffer.name, LINE, "start", bold=True))
        frames.append(frame(begin, y, left - begin, deep))
        left = max(left, begin + text_width(buffer.name, LINE, True)) + 4
    right = max(cell.x + cell.width for cell in cells)
    quarters = tuple(
        ((x - _GUTTER + 8, y + lane * _LANE), (right, y + lane * _LANE))
        for lane in range(QUARTER, LANES, QUARTER)
    )
    for warp in range(LANES // QUARTER):
        first = warp * QUARTER
        low = y + first * _LANE
        above.append(Text(x - 3, low + 6.5, str(first), SMALL, "end", color=NOTE))
        last = low + QUARTER * _LANE - 3
        above.append(Text(x - 3, last, str(first + QUARTER - 1), SMALL, "end", color=NOTE))
        middle = low + QUARTER * _LANE / 2
        heads += centred((f"warp {warp}",), x - _GUTTER + 13, middle, SMALL, angle=90)
    above.append(Text(x - 3, y - 2.5, "column", SMALL, "end", color=NOTE))
    name_above = Text(x, y - 20, name, 7, "start", bold=True)
    strokes = [
        Stroke(tuple(edges), 0.6, PAPER, role="grid"),
        Stroke(tuple(copies), 0.5, INK, (2.4, 1.8), role="copy"),
        Stroke(quarters, 1.5, INK, role="warp"),
        *frames,
    ]
    panel = Panel(
        f"memory {number}",
        tuple(cells),
        tuple(stroke for stroke in strokes if stroke.paths),
        (name_above, *heads, *above, *texts),
    )
    return panel, max(left - 4, x + text_width(name, 7, True))


def _words(buffer: TensorBuffer, stack: list[Block]) -> list[tuple[tuple[str, ...], float]]:
    """Return the label of each block of a stack, in one line where it is low, and its middle.

    Raises:
        LayoutError: two lines would meet.
    """
    found = []
    free = float("-inf")
    for block in stack:
        words = block.lines(buffer)
        begin, end = (lane * _LANE for lane in block.lanes)
        if len(words) * _PITCH > end - begin:
            words = (", ".join(words),)
        half = len(words) * _PITCH / 2
        warp = block.lanes[0] // QUARTER * QUARTER * _LANE
        middle = max((begin + end) / 2, warp + half + 1)
        middle = min(middle, warp + QUARTER * _LANE - half - 1)
        if words and middle - half < free:
            raise LayoutError(
                f"tensor_memory: the label of lanes {range_of(*block.lanes)} does not fit: rows of "
                f"{buffer.name} as {buffer.layout} advance by no constant step over 1, 2 or 4 "
                "lanes there. Draw a part of its rows"
            )
        free = middle + half if words else free
        found.append((words, middle))
    return found
