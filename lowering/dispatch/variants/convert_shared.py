"""``copy`` between register tiles through shared memory: store, barrier, load.

The tile lies in memory as :mod:`layoutalg.conversions.staging` says; narrow elements may change
registers before they are stored and after they are loaded, so that accesses are wide.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from layoutalg import LayoutError
from layoutalg.conversions.staging import staging
from layoutalg.layouts.thread_slots import THREADS_IN
from lowering.dispatch.holders import Ints
from lowering.dispatch.registry import Context, Lowered, fail, register_dispatch
from lowering.dispatch.variants.convert_registers import IN_REGISTERS, lower_registers, posed
from lowering.dispatch.variants.copy_vector import register_copy
from lowering.ir.ops import Op, Sync
from lowering.ir.tiles import Buffer, BufferRegion, copy


@register_dispatch("copy", "cuda", variant="convert_shared", priority=5, when=IN_REGISTERS)
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
        found = staging(held, wanted, shape, src.buffer.dtype.bits)
        name = f"{dst.buffer.name}_scratch"
        scratch = context.fresh(Buffer(name, shape, src.buffer.dtype, "shared", found.layout))
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

        stored = src
        if found.before is not None:
            stored = converted(None, src, found.before).region()
        into = dst
        flow, threads = context.flow, context.threads
        ops += register_copy(stored, scratch.region(), threads, False, flow)
        ops.append(Sync(_unit(held, wanted)))
        if found.after is None:
            ops += register_copy(into, scratch.region(), threads, True, flow)
        else:
            at = len(ops)
            tile = converted(dst, None, found.after)
            ops[at:at] = register_copy(tile.region(), scratch.region(), threads, True, flow)
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
