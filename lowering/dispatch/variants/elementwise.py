"""``cast``, ``blend`` and ``zero`` in registers: a thread works on the elements that it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from layoutalg import LayoutError
from lowering.dispatch.holders import check_reached, holders_of, named, only
from lowering.dispatch.predicates import listed
from lowering.dispatch.register_tiles import columns_of
from lowering.dispatch.registry import Answer, Context, Lowered, fail, predicate, register_dispatch
from lowering.ir.ops import Blend, Move, Op, Registers, Zero
from lowering.ir.tiles import BufferRegion
from lowering.isa.casts import cast


def all_in_registers(context: Context) -> Answer:
    """Hold where every operand lies in registers."""
    if set(context.spaces.values()) == {"local"}:
        return True
    return False, f"all operands must be in registers; {listed(context.spaces)}"


IN_REGISTERS = [predicate("all_in_registers", all_in_registers)]


def paired(
    context: Context,
    dst: BufferRegion,
    src: BufferRegion,
    make: Callable[[Registers, Registers], Op],
) -> tuple[Op, ...]:
    """Return operations that pair the registers of two regions, element by element.

    Raises:
        DispatchFail: the shapes differ, or a thread holds other elements of one than of the other.
    """
    if dst.shape != src.shape:
        fail(f"both sides must have one shape; got {dst} and {src}")
    threads, active = context.threads, context.flow.active
    found: list[Op] = []
    try:
        sources, parts = holders_of(src, threads), holders_of(dst, threads)
        check_reached(parts, active)
        for part in parts:
            left = part.taking if active is None else part.taking & active
            for other in sources:
                taking = left & other.taking
                if taking.any():
                    at = columns_of(part.elements[taking], other.elements[taking])
                    if at is None:
                        _refuse(dst, src)
                    numbers = tuple(other.registers[place] for place in at)
                    into = Registers(dst.buffer.name, part.registers)
                    op = make(into, Registers(src.buffer.name, numbers))
                    found.extend(only(taking, [op], active))
                left = left & ~taking
            if left.any():
                _refuse(dst, src, f": {named(left)} hold no part of {src}")
    except LayoutError as error:
        fail(str(error))
    return tuple(found)


def _refuse(dst: BufferRegion, src: BufferRegion, why: str = "") -> NoReturn:
    fail(
        f"each thread must hold the same elements on both sides; {dst.buffer.layout} and "
        f"{src.buffer.layout} differ{why or f' over {dst} and {src}'}"
    )


def check_overlap(into: Registers, source: Registers) -> None:
    """Refuse registers that are written before they are read.

    Raises:
        DispatchFail: source and destination overlap, and are not the same.
    """
    shared = set(into.numbers) & set(source.numbers)
    if into.buffer == source.buffer and shared and into != source:
        fail(
            f"dst and src overlap in register {min(shared)} of {into.buffer}: src must be dst's "
            "own region or disjoint from it"
        )


@register_dispatch("cast", "cuda", variant="convert", when=IN_REGISTERS)
def lower_cast(context: Context) -> Lowered:
    """Lower a cast to one move: see :mod:`lowering.isa.casts`."""
    dst, src = context.call.operands["dst"], context.call.operands["src"]
    try:
        cast(src.buffer.dtype, dst.buffer.dtype)
    except LayoutError as error:
        fail(str(error).removeprefix("cast: "))
    return Lowered(paired(context, dst, src, Move))


@register_dispatch("blend", "cuda", variant="multiply_add", when=IN_REGISTERS)
def lower_blend(context: Context) -> Lowered:
    """Lower ``dst = alpha·dst + beta·src`` to one operation; without src, a product alone."""
    operands, config = context.call.operands, context.call.config
    dst, src = operands["dst"], operands.get("src", operands["dst"])
    if {dst.buffer.dtype.token, src.buffer.dtype.token} != {"f32"}:
        fail(f"takes f32; got {dst.buffer.dtype} and {src.buffer.dtype}")

    def blended(into: Registers, source: Registers) -> Op:
        """Return the operation on some registers."""
        check_overlap(into, source)
        if "src" not in operands:
            return Blend(into, config["alpha"])
        return Blend(into, config["alpha"], source, config["beta"])

    return Lowered(paired(context, dst, src, blended))


@register_dispatch("zero", "cuda", variant="zero", when=IN_REGISTERS)
def lower_zero(context: Context) -> Lowered:
    """Lower ``dst = 0`` to one operation."""
    region = context.call.operands["dst"]
    name, active = region.buffer.name, context.flow.active
    try:
        parts = holders_of(region, context.threads)
        check_reached(parts, active)
    except LayoutError as error:
        fail(str(error))
    ops = (only(part.taking, [Zero(Registers(name, part.registers))], active) for part in parts)
    return Lowered(tuple(op for each in ops for op in each))
