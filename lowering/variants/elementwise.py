"""``cast`` and ``blend`` between register buffers: every thread works on the elements it holds."""

from __future__ import annotations

from layoutalg import LayoutError
from lowering.addressing import region_tile, register_tile
from lowering.dispatch import Context, Lowered, fail, predicate, register_dispatch
from lowering.ops import Blend, Elements, Move
from lowering.tile import BufferRegion

CONVERSIONS = (("f16", "f32"), ("bf16", "f32"), ("f32", "f16"), ("f32", "bf16"))


def all_in_registers(context: Context) -> bool | tuple[bool, str]:
    """Hold where every operand lies in registers."""
    scopes = {role: region.buffer.scope for role, region in context.call.operands.items()}
    if set(scopes.values()) == {"local"}:
        return True
    where = ", ".join(f"{role} is {scope}" for role, scope in scopes.items())
    return False, f"all operands must be in registers; {where}"


IN_REGISTERS = [predicate("all_in_registers", all_in_registers)]


def paired(dst: BufferRegion, src: BufferRegion, threads: int) -> tuple[Elements, Elements]:
    """Return the registers of two regions, those of one element in one place.

    Raises:
        DispatchFail: the shapes differ, or a thread holds other elements of one than of the other.
    """
    if dst.shape != src.shape:
        fail(f"both sides must have one shape; got {dst} and {src}")
    try:
        into, source = (
            register_tile(region_tile(region), region.shape, threads, copies=True).places
            for region in (dst, src)
        )
    except LayoutError as error:
        fail(str(error))
    at = {place: register for register, place in source.items()}
    if set(at) != set(into.values()):
        fail(
            f"each thread must hold the same elements on both sides; {dst.buffer.layout} and "
            f"{src.buffer.layout} differ"
        )
    numbers = tuple(sorted(into))
    moved = tuple(at[into[number]] for number in numbers)
    return Elements(dst.buffer.name, numbers), Elements(src.buffer.name, moved)


@register_dispatch("cast", "cuda", variant="convert_pairs", when=IN_REGISTERS)
def lower_cast(context: Context) -> Lowered:
    """Lower a cast to one move; two neighbours of 16 bits, which share a word, go together."""
    dst, src = context.call.operands["dst"], context.call.operands["src"]
    if (dst.buffer.dtype.token, src.buffer.dtype.token) not in CONVERSIONS:
        fail(f"converts f32 to f16 or bf16 and back; got {src.buffer.dtype} to {dst.buffer.dtype}")
    return Lowered((Move(*paired(dst, src, context.threads)),))


@register_dispatch("blend", "cuda", variant="multiply_add", when=IN_REGISTERS)
def lower_blend(context: Context) -> Lowered:
    """Lower ``dst = alpha·dst + beta·src`` to one operation; without src, a product alone."""
    operands, config = context.call.operands, context.call.config
    dst, src = operands["dst"], operands.get("src", operands["dst"])
    if {dst.buffer.dtype.token, src.buffer.dtype.token} != {"f32"}:
        fail(f"takes f32; got {dst.buffer.dtype} and {src.buffer.dtype}")
    into, source = paired(dst, src, context.threads)
    if "src" not in operands:
        return Lowered((Blend(into, config["alpha"]),))
    return Lowered((Blend(into, config["alpha"], source, config["beta"]),))
