"""``copy`` between register tiles through shared memory: store, barrier, load.

The tile lies in memory as :mod:`layoutalg.conversions.staging` says; narrow elements may change
registers before they are stored and after they are loaded, so that accesses are wide.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from layoutalg import LayoutError
from layoutalg.conversions.staging import stage
from layoutalg.layouts.thread_slots import THREADS_IN
from lowering.dispatch.holders import Ints
from lowering.dispatch.predicates import in_registers
from lowering.dispatch.registry import Context, DispatchFail, Lowered, fail, register_dispatch
from lowering.dispatch.variants.convert_registers import lower_registers, posed
from lowering.dispatch.variants.copy_vector import register_copy
from lowering.dispatch.variants.ldstmatrix import matrices as by_matrices
from lowering.ir.ops import Op, Sync
from lowering.ir.tiles import Buffer, BufferRegion, copy


@register_dispatch("copy", "cuda", variant="convert_shared", priority=5, when=[in_registers])
def lower_through_memory(context: Context) -> Lowered:
    """Lower a copy between register tiles to stores, a barrier and loads."""
    dst: BufferRegion = context.call.operands["dst"]
    src: BufferRegion = context.call.operands["src"]
    shape = tuple(int(extent) for extent in src.shape)
    via = context.call.config.get("via", "shared")
    if via != "shared":
        fail(f"goes through shared memory; the copy says via={via!r}")
    try:
        held, wanted = posed(context)
        found = stage(held, wanted, shape, src.buffer.dtype.bits)
        name = f"{dst.buffer.name}_scratch"
        scratch = context.fresh(Buffer(name, shape, src.buffer.dtype, "shared", found.staging))
        ops: list[Op] = []
        buffers, taken = [scratch], {**context.taken, scratch.name: scratch}

        def converted(
            into: BufferRegion | None, source: BufferRegion | None, layout: object
        ) -> Buffer:
            """Copy to or from a tile of another layout, in registers; return the tile."""
            side = into or source
            assert side is not None
            tile = Buffer(f"{side.buffer.name}_packed", shape, src.buffer.dtype, layout=layout)
            tile = replace(context, taken=taken).fresh(tile)
            taken[tile.name] = tile
            call = copy(into or tile, source or tile, context.call.scope)
            made = lower_registers(replace(context, call=call, taken=taken))
            taken.update({buffer.name: buffer for buffer in made.buffers})
            buffers.extend((tile, *made.buffers))
            ops.extend(made.ops)
            return tile

        def moved(into: BufferRegion, source: BufferRegion, matrices: bool) -> tuple[Op, ...]:
            """Store or load, by matrices where the staging says so and the target has them."""
            inner = replace(context, call=copy(into, source, context.call.scope), taken=taken)
            load = into.buffer.scope == "local"
            if matrices:
                try:
                    return by_matrices(inner).ops
                except DispatchFail:  # others serve as well
                    pass
            sides = (into, source) if load else (source, into)
            return register_copy(*sides, context.threads, load, context.flow)

        by = ["matrix" in moves.name for moves in found.accesses]
        stored = src if found.stored is None else converted(None, src, found.stored).region()
        ops += moved(scratch.region(), stored, by[0])
        ops.append(Sync(_unit(held, wanted)))
        if found.loaded is None:
            ops += moved(dst, scratch.region(), by[1])
        else:
            at = len(ops)
            tile = converted(dst, None, found.loaded)
            ops[at:at] = moved(tile.region(), scratch.region(), by[1])
    except LayoutError as error:
        fail(str(error))
    return Lowered(tuple(ops), buffers=tuple(buffers))


def _unit(held: Ints, wanted: Ints) -> str:
    """Return the smallest unit within which all goes that threads store for each other."""
    thread, slot = np.nonzero(held >= 0)
    first = np.full(int(held.max()) + 1, len(held))
    np.minimum.at(first, held[thread, slot], thread)  # of copies, the first thread stores
    reader, slot = np.nonzero(wanted >= 0)
    storer = first[wanted[reader, slot]]
    for unit in ("warp", "warpgroup"):
        size = THREADS_IN[unit]
        if len(held) % size == 0 and (reader // size == storer // size).all():
            return unit
    return "cta"
