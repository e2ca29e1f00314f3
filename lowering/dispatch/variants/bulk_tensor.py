"""``bulk_copy`` between global and shared memory by ``cp.async.bulk.tensor``, box by box.

A box is a tile whose rows are one swizzle period long. That the layout in shared memory is TMA's is
proved element by element.
"""

from __future__ import annotations

from dataclasses import dataclass

from layoutalg import ComposeLayout, LayoutError
from lowering.dispatch.addresses import memory_address, unmoved
from lowering.dispatch.predicates import available, goes
from lowering.dispatch.registry import Answer, Context, Lowered, fail, predicate, register_dispatch
from lowering.ir.index import Index, Opaque, as_index
from lowering.ir.ops import BulkLoad, BulkStore
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tiles import BufferRegion
from lowering.isa.ptx import ARCHS
from lowering.isa.smem_descriptor import tma_cells

MOST_ROWS = 256  # of a box
ALIGNMENT = 1024  # bytes: the period of the widest swizzle
SWIZZLES = (32, 64, 128)  # bytes


def whole_warpgroups(context: Context) -> Answer:
    """Hold where the threads make whole warpgroups: each stores its part."""
    if context.threads % WARPGROUP == 0:
        return True
    return False, f"needs whole warpgroups of {WARPGROUP} threads; got {context.threads}"


has_tma = predicate("has_tma", available("cp.async.bulk.tensor", ARCHS["cp.async.bulk"]))


@register_dispatch(
    "bulk_copy",
    "cuda",
    variant="tensor_map",
    when=[
        predicate("from_global_to_shared", goes("global", "shared")),
        has_tma,
    ],
)
def lower_bulk(context: Context) -> Lowered:
    """Lower a copy of a tile to one box per swizzle period of columns."""
    dst, src = context.call.operands["dst"], context.call.operands["src"]
    to_all = context.call.config.get("multicast", False)
    return Lowered(
        tuple(
            BulkLoad(dst.buffer.name, start, src.buffer.name, place, box.shape, box.swizzle, to_all)
            for box in boxes(dst, src)
            for place, start in [box.at(0)]
        )
    )


@register_dispatch(
    "bulk_copy",
    "cuda",
    variant="tensor_map_store",
    when=[
        predicate("from_shared_to_global", goes("shared", "global")),
        has_tma,
        predicate("whole_warpgroups", whole_warpgroups),
    ],
)
def lower_bulk_store(context: Context) -> Lowered:
    """Lower a copy of a tile to one box per swizzle period of columns and warpgroup.

    The rows are dealt out to the warpgroups in order, in equal parts.
    """
    dst, src = context.call.operands["dst"], context.call.operands["src"]
    groups = context.threads // WARPGROUP
    group = Index.of("thread", context.threads) // WARPGROUP
    return Lowered(
        tuple(
            BulkStore(dst.buffer.name, place, box.shape, box.swizzle, src.buffer.name, start)
            for box in boxes(src, dst, groups)
            for place, start in [box.at(group)]
        )
    )


@dataclass(frozen=True)
class TmaBox:
    """A box of rows and columns, for each of some parts of a tile.

    ``place`` is the first part's coordinate in the matrix, ``start`` its cell in shared memory;
    the next part begins ``step`` cells later.
    """

    shape: tuple[int, int]
    swizzle: int
    place: tuple[Index, Index]
    start: Index
    step: int

    def at(self, part: Index | int) -> tuple[tuple[Index, Index], Index]:
        """Return a part's coordinate in the matrix, and its first cell."""
        rows, cols = self.place
        return (rows + part * self.shape[0], cols), self.start + part * self.step


def check_rows(matrix: BufferRegion) -> None:
    """Refuse a matrix whose rows are not contiguous: a tensor map describes no other.

    Raises:
        DispatchFail: it is none of two dimensions, or its columns are not next to each other.
    """
    buffer = matrix.buffer
    row, col = (Index.of(f"d{dim}", int(extent)) for dim, extent in enumerate(buffer.shape))
    try:
        rest = memory_address(buffer, (row, col)) - col
    except LayoutError as error:
        fail(str(error))
    atoms = [
        atom.left if isinstance(atom, Opaque) else Index(((1, atom),)) for _, atom in rest.terms
    ]
    if rest.constant or len(atoms) > 1 or any(atom != row for atom in atoms):
        fail(
            f"a tensor map has rows in consecutive cells, one pitch apart; {buffer.name} lies by "
            f"{buffer.layout}"
        )


def boxes(shared: BufferRegion, matrix: BufferRegion, parts: int = 1) -> list[TmaBox]:
    """Return the boxes of a tile in shared memory, its rows cut into equal parts.

    Raises:
        DispatchFail: TMA does not put a box where the shared layout does.
    """
    bits, layout = shared.buffer.dtype.bits, shared.buffer.layout
    shape = tuple(int(extent) for extent in shared.shape if extent != 1)
    if len(shape) != 2 or tuple(matrix.shape) != shape or shape[0] % parts:
        fail(
            f"copies one tile of two dimensions, whose rows {parts} warpgroups share; got {shared} "
            f"and {matrix}"
        )
    if not isinstance(layout, ComposeLayout):
        fail(f"{shared.buffer.name} must be swizzled; got {layout}")
    swizzle, rows = 16 << layout.swizzle.swizzle_len, shape[0] // parts
    width = 8 * swizzle // bits
    if swizzle not in SWIZZLES or shape[1] % width or rows > MOST_ROWS:
        fail(f"a box has {MOST_ROWS} rows at most of {SWIZZLES} bytes; got {shape} by {swizzle}")
    check_rows(matrix)
    try:
        table = layout.table(shared.buffer.shape)["m"]
        top, left = (as_index(begin) for begin, _ in matrix.ranges)
        ranges, moved = unmoved(shared)
    except LayoutError as error:
        fail(str(error))
    if moved.unit * bits // 8 % ALIGNMENT:
        fail(f"{shared} moves by {moved.unit * bits // 8} bytes; a multiple of {ALIGNMENT} fits")
    tile = table[tuple(slice(*each) for each in ranges)].reshape(shape)
    want = tma_cells(rows, width, swizzle, bits)
    found = []
    for first in range(0, shape[1], width):
        starts = [int(start) for start in tile[::rows, first]]
        step = starts[1] - starts[0] if parts > 1 else 0
        for part, at in enumerate(starts):
            cells = tile[part * rows : (part + 1) * rows, first : first + width]
            aligned = at * bits // 8 % ALIGNMENT == 0 and at == starts[0] + part * step
            if not aligned or (cells - at != want).any():
                fail(
                    f"{shared.buffer.name} ({layout}) does not put a box where TMA does, "
                    f"swizzled by {swizzle} bytes from a multiple of {ALIGNMENT} bytes on"
                )
        start = moved + starts[0]
        found.append(TmaBox((rows, width), swizzle, (top, left + first), start, step))
    return found
