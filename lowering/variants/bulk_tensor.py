"""``bulk_copy`` from global to shared memory by ``cp.async.bulk.tensor``, box by box.

A box is a tile of rows of one swizzle period. That the shared layout puts each of its elements
where the copy engine does is not assumed: it is compared, element by element.
"""

from __future__ import annotations

import numpy as np

from layoutalg import ComposeLayout, LayoutError
from lowering.address import Index
from lowering.addressing import as_index
from lowering.dispatch import Context, Lowered, fail, predicate, register_dispatch
from lowering.instructions import compute_capability
from lowering.ops import BulkLoad

MOST_ROWS = 256  # of a box
ALIGNMENT = 1024  # bytes: the period of the widest swizzle
SWIZZLES = (32, 64, 128)  # bytes


def from_global_to_shared(context: Context) -> bool | tuple[bool, str]:
    """Hold where the source lies in global and the destination in shared memory."""
    scopes = {role: context.call.operands[role].buffer.scope for role in ("dst", "src")}
    if scopes == {"dst": "shared", "src": "global"}:
        return True
    return False, f"goes from global to shared memory; dst is {scopes['dst']}, src {scopes['src']}"


def has_copy_engine(context: Context) -> bool | tuple[bool, str]:
    """Hold where the target has bulk tensor copies."""
    if compute_capability(context.arch)[:2] >= (9, 0):
        return True
    return False, f"needs sm_90; the target is {context.arch}"


def placed_by_engine(rows: int, cols: int, swizzle: int, bits: int) -> np.ndarray:
    """Return the cell of each element of a box, relative to its first.

    Source: PTX ISA, tensor swizzling modes: the 16-byte units of a row of ``swizzle`` bytes are
    permuted by XOR with the number of the 128-byte line, modulo the units of a row.

    >>> placed_by_engine(8, 64, 128, 16)[1, :9].tolist()
    [72, 73, 74, 75, 76, 77, 78, 79, 64]
    """
    unit = 128 // bits
    row, col = np.indices((rows, cols))
    line = row * cols * bits // 1024
    swizzled = (col // unit) ^ (line % (swizzle // 16))
    return row * cols + swizzled * unit + col % unit


@register_dispatch(
    "bulk_copy",
    "cuda",
    variant="tensor_map",
    when=[
        predicate("from_global_to_shared", from_global_to_shared),
        predicate("has_copy_engine", has_copy_engine),
    ],
)
def lower_bulk(context: Context) -> Lowered:
    """Lower a copy of a tile to one box per swizzle period of columns."""
    dst, src = context.call.operands["dst"], context.call.operands["src"]
    bits, layout = dst.buffer.dtype.bits, dst.buffer.layout
    shape = tuple(int(extent) for extent in dst.shape if extent != 1)
    if len(shape) != 2 or tuple(src.shape) != shape:
        fail(f"copies one tile of two dimensions; got {dst} and {src}")
    if not isinstance(layout, ComposeLayout):
        fail(f"{dst.buffer.name} must be swizzled; got {layout}")
    swizzle = 16 << layout.swizzle.swizzle_len
    width = 8 * swizzle // bits
    if swizzle not in SWIZZLES or shape[1] % width or shape[0] > MOST_ROWS:
        fail(f"a box has {MOST_ROWS} rows at most of {SWIZZLES} bytes; got {shape} by {swizzle}")
    try:
        table = layout.table(dst.buffer.shape)["m"]
        place = tuple(as_index(begin) for begin, _ in src.ranges)
    except LayoutError as error:
        fail(str(error))
    tile = table[tuple(slice(int(begin), int(end)) for begin, end in dst.ranges)].reshape(shape)
    want = placed_by_engine(shape[0], width, swizzle, bits)
    loads = []
    for first in range(0, shape[1], width):
        cells = tile[:, first : first + width]
        start = int(cells[0, 0])
        if start * bits // 8 % ALIGNMENT or (cells - start != want).any():
            fail(
                f"{dst.buffer.name} ({layout}) does not put a box where the copy engine does, "
                f"swizzled by {swizzle} bytes from a multiple of {ALIGNMENT} bytes on"
            )
        where = (place[0], place[1] + first)
        loads.append(
            BulkLoad(
                dst.buffer.name,
                Index((), start),
                src.buffer.name,
                where,
                (shape[0], width),
                swizzle,
            )
        )
    return Lowered(tuple(loads))
