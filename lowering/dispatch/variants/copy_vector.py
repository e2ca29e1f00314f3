"""``copy`` between registers and memory by the widest vector access that is legal in every thread.

The register layout says which thread holds which element, the memory layout its address. Legality
is decided on the addresses of every thread and every value of the loop variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError
from lowering.dispatch.addresses import (
    edge_guards,
    environment,
    memory_address,
    one_edge,
    placed,
)
from lowering.dispatch.holders import (
    ALL,
    ControlFlow,
    Holders,
    check_reached,
    firsts,
    holders_of,
    only,
)
from lowering.dispatch.predicates import one_side_in_registers
from lowering.dispatch.registry import Context, Lowered, fail, predicate, register_dispatch
from lowering.ir.index import Guard, Index
from lowering.ir.ops import Load, Op, Registers, Store
from lowering.ir.tiles import BufferRegion, copied_shape

WIDEST = 128  # bits of one access
BYTE = 8


@dataclass(frozen=True)
class Ownership:
    """A part of a register region against memory: the address of each register, and who takes part.

    ``values`` are those of the threads that take part: (registers, threads x loop values), in the
    order of the addresses.
    """

    registers: str
    memory: str
    bits: int
    addresses: Mapping[int, Index]
    edges: Mapping[int, tuple[Guard, ...]]  # of each register: that it lies within the bounds
    multiple: int  # what divides the bounds
    values: npt.NDArray[np.int64]  # (registers, threads x loop values), in the order of addresses


def ownership(part: Holders, memory: BufferRegion) -> Ownership:
    """Solve the address of every register of a part of a region.

    Raises:
        LayoutError: the memory's layout has no digit form, or lies on other axes.
    """
    registers = part.region
    places = {
        register: placed(memory, coordinate, registers.shape)
        for register, coordinate in part.places().items()
    }
    addresses = {register: memory_address(memory.buffer, at) for register, at in places.items()}
    edges = {register: edge_guards(memory.buffer, at) for register, at in places.items()}
    env = environment(list(addresses.values()), part.threads)
    count = len(env["thread"])
    values = np.stack([np.broadcast_to(a.value(env), (count,)) for a in addresses.values()])
    return Ownership(
        registers.buffer.name,
        memory.buffer.name,
        registers.buffer.dtype.bits,
        addresses,
        edges,
        memory.buffer.multiple,
        values[:, part.taking[env["thread"]]],
    )


def runs(own: Ownership, width: int) -> list[tuple[int, ...]] | None:
    """Group all registers into accesses of ``width`` consecutive, aligned elements; None: cannot.

    Elements narrower than 32 bits must fill register words, or an aligned part of one, in order.
    """
    registers = list(own.addresses)
    if own.values.shape[1] == 0:
        return None
    order = np.argsort(own.values[:, -1], kind="stable")
    if len(order) % width:
        return None
    found = []
    per = max(1, 32 // own.bits)
    for at in range(0, len(order), width):
        rows = own.values[order[at : at + width]]
        if (rows - rows[0] != np.arange(width)[:, None]).any() or (rows[0] % width).any():
            return None
        group = tuple(registers[i] for i in order[at : at + width])
        unit = min(per, width)
        if any(
            group[i] % unit or group[i : i + unit] != tuple(range(group[i], group[i] + unit))
            for i in range(0, width, unit)
        ):
            return None
        if not one_edge([own.edges[register] for register in group], own.multiple):
            return None
        found.append(group)
    return sorted(found)


def accesses(own: Ownership) -> list[tuple[int, ...]]:
    """Return the groups of registers of the widest legal access.

    Raises:
        LayoutError: elements narrower than a byte do not lie in whole bytes.
    """
    width = max(1, WIDEST // own.bits)
    while width * own.bits >= BYTE and width > 1:
        found = runs(own, width)
        if found is not None:
            return found
        width //= 2
    if own.bits < BYTE:
        raise LayoutError(
            f"copy: {BYTE // own.bits} neighbours of {own.registers} must share a byte of "
            f"{own.memory}: elements of {own.bits} bits cannot be moved one by one; store "
            f"{own.memory} with the packed dimension contiguous"
        )
    return [(register,) for register in own.addresses]


def register_copy(
    registers: BufferRegion,
    memory: BufferRegion,
    threads: int,
    load: bool,
    flow: ControlFlow = ALL,
    aliases: bool = False,
) -> tuple[Op, ...]:
    """Return the loads (or stores) of a register region from (to) memory, by those who hold it.

    Of copies all load, and the first stores. ``aliases``: several elements may go to one address.

    Raises:
        LayoutError: see :func:`ownership` and :func:`lowering.dispatch.holders.holders_of`.
    """
    copied_shape(registers, memory)
    parts = holders_of(registers, threads)
    check_reached(parts, flow.active)
    if not load:
        parts = firsts(parts, flow, memory)
    found: list[Op] = []
    for part in parts:
        own = ownership(part, memory)
        ops: list[Op] = []
        for group in accesses(own):
            elements, address = Registers(own.registers, group), own.addresses[group[0]]
            guards = own.edges[group[0]]
            if load:
                ops.append(Load(elements, own.memory, address, guards))
            else:
                ops.append(Store(own.memory, address, elements, guards, aliases, part.copies))
        found.extend(only(part.taking, ops, flow.active))
    return tuple(found)


@register_dispatch(
    "copy",
    "cuda",
    variant="vec_auto",
    priority=10,
    when=[predicate("one_side_in_registers", one_side_in_registers)],
)
def lower_copy(context: Context) -> Lowered:
    """Lower a copy between registers and memory to vector accesses."""
    dst, src = context.call.operands["dst"], context.call.operands["src"]
    load = dst.buffer.scope == "local"
    registers, memory = (dst, src) if load else (src, dst)
    try:
        aliases = context.call.config.get("aliases", False)
        return Lowered(
            register_copy(registers, memory, context.threads, load, context.flow, aliases)
        )
    except LayoutError as error:
        fail(str(error))
