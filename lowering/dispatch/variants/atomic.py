"""``atomic``: registers are added to global memory, or set its least or largest, by ``red``.

Of copies only the first changes memory: each element counts once.
"""

from __future__ import annotations

from layoutalg import LayoutError
from lowering.dispatch.holders import check_reached, firsts, holders_of, only
from lowering.dispatch.predicates import one_side_in_registers
from lowering.dispatch.registry import Context, Lowered, fail, predicate, register_dispatch
from lowering.dispatch.variants.copy_vector import ownership, runs
from lowering.ir.ops import Atomic, Op, Registers
from lowering.isa import ptx


@register_dispatch(
    "atomic",
    "cuda",
    variant="red",
    when=[predicate("one_side_in_registers", one_side_in_registers)],
)
def lower_atomic(context: Context) -> Lowered:
    """Lower an atomic change of global memory by registers to one ``red`` a word."""
    dst, src = context.call.operands["dst"], context.call.operands["src"]
    function, dtype = context.call.config["function"], src.buffer.dtype
    if (src.buffer.scope, dst.buffer.scope) != ("local", "global"):
        fail(f"changes global memory by registers; got {dst.buffer} by {src.buffer}")
    if (function, dtype.token) not in ptx.REDUCTIONS:
        known = [token for name, token in ptx.REDUCTIONS if name == function]
        fail(f"no instruction has {function} of {dtype} in memory; it has {', '.join(known)}")
    asm = ptx.red(function, dtype.token)
    refusal = context.lacks(asm.mnemonic, asm.min_arch)
    if refusal is not None:
        fail(refusal)
    width = dtype.pack  # elements that change at once
    found: list[Op] = []
    try:
        parts = holders_of(src, context.threads)
        check_reached(parts, context.flow.active)
        for part in firsts(parts, context.flow, dst):
            own = ownership(part, dst)
            groups = runs(own, width)
            if groups is None:
                fail(
                    f"elements of {dtype.bits} bits change {width} at once: neighbours in a "
                    f"register of {src.buffer} must be neighbours in {dst.buffer}, from a multiple "
                    "of 4 bytes on"
                )
            ops: list[Op] = [
                Atomic(
                    function,
                    own.memory,
                    own.addresses[group[0]],
                    Registers(own.registers, group),
                    own.edges[group[0]],
                    part.copies,
                )
                for group in groups
            ]
            found.extend(only(part.taking, ops, context.flow.active))
    except LayoutError as error:
        fail(str(error))
    return Lowered(tuple(found))
