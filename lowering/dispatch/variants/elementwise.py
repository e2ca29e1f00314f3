"""``assign`` and ``zero``: each thread works on the registers that it holds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from layoutalg import LayoutError
from lowering.dispatch.holders import (
    Holders,
    Ints,
    Mask,
    check_reached,
    has_copies,
    holders_of,
    named,
    only,
)
from lowering.dispatch.predicates import in_registers
from lowering.dispatch.register_tiles import columns_of
from lowering.dispatch.registry import Context, Lowered, fail, register_dispatch
from lowering.ir.expressions import (
    Coordinate,
    Node,
    Position,
    Variable,
    leaves,
    mapped,
)
from lowering.ir.index import Index
from lowering.ir.ops import Compute, Op, Registers, Zero
from lowering.ir.tiles import BufferRegion


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


@register_dispatch("assign", "cuda", variant="elementwise", when=[in_registers])
def lower_assign(context: Context) -> Lowered:
    """Lower ``dst = expression``: each thread computes the elements that it holds.

    It must hold of each operand what its elements need; an extent of 1 is broadcast.
    """
    roles = dict(context.call.operands)
    dst, value = roles.pop("dst"), context.call.config["value"]
    threads, active = context.threads, context.flow.active
    found: list[Op] = []
    try:
        parts = holders_of(dst, threads)
        check_reached(parts, active)
        _check_copies(context, dst, value)
        for part in parts:
            taking = part.within(active)
            into = Registers(dst.buffer.name, part.registers)
            for some, operands in _sources(dst, part, taking, tuple(roles.values()), threads):
                for each in operands:
                    check_overlap(into, each)
                op = _placed(part, into, value, operands)
                found.extend(only(some, [op], active))
    except LayoutError as error:
        fail(str(error))
    return Lowered(tuple(found))


def _check_copies(context: Context, dst: BufferRegion, value: Node) -> None:
    """Refuse a number of the thread where several threads hold an element: copies would differ.

    Raises:
        DispatchFail: there is one.
    """
    for leaf in leaves(value):
        if isinstance(leaf, Variable) and isinstance(leaf.value, Index):
            variables = leaf.value.replaced(context.flow.named).variables()
            if "thread" in variables and has_copies(dst, context.threads):
                fail(
                    f"{leaf} differs between threads, and several of them hold copies in {dst}: "
                    f"{dst.buffer.layout}; index(tile, axis) is one number for an element"
                )


def _sources(
    dst: BufferRegion,
    part: Holders,
    taking: Mask,
    regions: tuple[BufferRegion, ...],
    threads: int,
) -> Iterator[tuple[Mask, tuple[Registers, ...]]]:
    """Yield sets of threads, each with the registers in which they hold each operand.

    Raises:
        DispatchFail: a thread lacks an element that its own need.
    """
    if not taking.any():
        return
    if not regions:
        yield taking, ()
        return
    region, *rest = regions
    wanted = broadcast(region.shape, dst.shape)[part.elements]
    left = taking.copy()
    for other in holders_of(region, threads):
        some = left & other.taking
        if not some.any():
            continue
        at = columns_of(wanted[some], other.elements[some])
        if at is None:
            break
        registers = Registers(region.buffer.name, tuple(other.registers[each] for each in at))
        for fewer, more in _sources(dst, part, some, tuple(rest), threads):
            yield fewer, (registers, *more)
        left &= ~some
    if left.any():
        fail(
            f"each thread must hold of {region} what its elements of {dst} need, in registers that "
            f"are the same for all; {named(left)} do not: {region.buffer.layout} beside "
            f"{dst.buffer.layout}. A copy to a tile of a layout that fits converts it"
        )


def broadcast(shape: tuple[int, ...], onto: tuple[int, ...]) -> Ints:
    """Return the flat element of a shape that each flat element of a larger one takes."""
    elements = np.arange(math.prod(shape)).reshape(shape)
    return np.broadcast_to(elements, onto).reshape(-1)


def _placed(
    part: Holders, into: Registers, value: Node, operands: tuple[Registers, ...]
) -> Compute:
    """Return the operation, with the positions of its elements as coordinates."""
    coordinates: list[tuple[Index, ...]] = []
    places = part.places()

    def change(leaf: Node) -> Node:
        if not isinstance(leaf, Position):
            return leaf
        each = tuple(places[register][leaf.axis] + leaf.begin for register in into.numbers)
        if each not in coordinates:
            coordinates.append(each)
        return Coordinate(coordinates.index(each))

    return Compute(into, mapped(value, change), operands, tuple(coordinates))


@register_dispatch("zero", "cuda", variant="zero", when=[in_registers])
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
