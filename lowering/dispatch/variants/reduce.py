"""``reduce`` within each warp: first the registers of a thread, then lanes, by shuffles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layoutalg import LayoutError
from layoutalg.algebra.axis import WARP
from lowering.dispatch.holders import (
    Holders,
    Ints,
    Mask,
    check_reached,
    holders_of,
    named,
    only,
)
from lowering.dispatch.predicates import in_registers
from lowering.dispatch.register_tiles import columns_of
from lowering.dispatch.registry import Context, Lowered, fail, register_dispatch
from lowering.dispatch.variants.elementwise import broadcast, check_overlap
from lowering.ir.expressions import Expression, Operand, apply, cast, kept, not_equal
from lowering.ir.ops import Butterfly, Compute, Move, Op, Registers
from lowering.ir.reductions import JOINS
from lowering.ir.tiles import BufferRegion


@register_dispatch("reduce", "cuda", variant="shuffles", when=[in_registers])
def lower_reduce(context: Context) -> Lowered:
    """Lower ``dst = reduction of src`` to a tree in each thread, then a shuffle per lane bit.

    ``shape``: in which ``axis`` counts dimensions; both tiles are taken row-major. A warp must have
    all elements of each result.
    """
    operands, config = context.call.operands, context.call.config
    dst, src = operands["dst"], operands["src"]
    shape, axis = config["shape"], config["axis"]
    into = broadcast(kept(shape, axis), shape)  # which result each element is part of
    threads, active = context.threads, context.flow.active
    found: list[Op] = []
    try:
        parts = holders_of(src, threads)
        check_reached(parts, active)
        for part in parts:
            taking = part.within(active)
            if taking.any():
                ops = _reduced(dst, part, taking, into, config["function"])
                found.extend(only(part.taking, ops, active))
        _check_set(dst, parts, threads, active)
    except LayoutError as error:
        fail(str(error))
    return Lowered(tuple(found))


def _check_set(
    dst: BufferRegion, parts: Sequence[Holders], threads: int, active: Mask | None
) -> None:
    """Decline a destination of which threads hold results that have no element of the source."""
    having = np.any([part.taking for part in parts], axis=0)
    for each in holders_of(dst, threads):
        lacking = each.within(active) & ~having
        if lacking.any():
            fail(
                f"{named(lacking)} hold {dst} and nothing of {parts[0].region}: they would not be "
                "set. A branch that only the others take, or a destination that names them, fits"
            )


def _reduced(dst: BufferRegion, part: Holders, taking: Mask, into: Ints, function: str) -> list[Op]:
    """Return the operations of threads that hold their elements in the same registers.

    Raises:
        DispatchFail: threads disagree which registers belong together, a result needs what other
            warps hold, or a thread does not hold the results of what it has.
    """
    numbers = into[part.elements]  # (threads, registers); of the threads that take part
    columns: dict[int, list[int]] = {}
    first = int(np.argmax(taking))
    for column, number in enumerate(numbers[first].tolist()):
        columns.setdefault(number, []).append(column)
    together = np.array(list(columns.values()))
    results = numbers[:, together[:, 0]]  # (threads, results)
    if (numbers[:, together] != results[:, :, None])[taking].any():
        fail(f"threads must have the elements of a result of {part.region} in the same registers")
    held = np.sort(part.elements[:, together], axis=2)
    masks = _lane_bits(results, held, taking)
    _check_whole(part.region, results, held, taking, masks, into)
    for other in holders_of(dst, part.threads):
        at = columns_of(other.elements[taking], results[taking])
        if (taking & ~other.taking).any() or at is None or len(at) != len(together):
            continue
        target = Registers(dst.buffer.name, other.registers)
        sources = [
            Registers(part.region.buffer.name, tuple(part.registers[c] for c in each))
            for each in together[list(at)].T.tolist()
        ]
        token = dst.buffer.dtype.token
        ops = [_tree(target, sources, JOINS[function], token)]
        ops += [Butterfly(target, JOINS[function], mask) for mask in masks]
        if function == "any":
            value = cast(not_equal(_operand(0, token), 0), token)
            ops.append(Compute(target, value.node, (target,)))
        return ops
    fail(
        f"each thread must hold in {dst} the results of its elements of {part.region}, and no "
        f"others; got {dst.buffer.layout} beside {part.region.buffer.layout}; what fits is the "
        "layout that reduced() returns"
    )


def _whole_warps(taking: Mask) -> bool:
    """Say whether threads can shuffle: whole warps take part in that."""
    return len(taking) % WARP == 0 and bool(
        (taking.reshape(-1, WARP) == taking[::WARP, None]).all()
    )


def _lane_bits(results: Ints, held: Ints, taking: Mask) -> list[int]:
    """Return the lane bits along which threads have the same results, of other elements."""
    if not _whole_warps(taking):
        return []
    found = []
    for mask in (1, 2, 4, 8, 16):
        beside = np.arange(len(taking)) ^ mask
        if (results == results[beside])[taking].all() and (held != held[beside])[taking].any():
            found.append(mask)
    return found


def _check_whole(
    region: BufferRegion, results: Ints, held: Ints, taking: Mask, masks: list[int], into: Ints
) -> None:
    """Decline where lanes that exchange do not have each element of their results once."""
    lanes = np.zeros(1, dtype=np.int64)
    for mask in masks:
        lanes = np.concatenate([lanes, lanes ^ mask])
    one = np.flatnonzero(taking & ((np.arange(len(taking)) & sum(masks)) == 0))
    every = held[one[:, None] ^ lanes]  # (cosets, lanes, results, elements)
    every = np.sort(every.swapaxes(1, 2).reshape(len(one), results.shape[1], -1), axis=2)
    order = np.argsort(into, kind="stable").reshape(int(into.max()) + 1, -1)
    wanted = order[results[one]]
    if every.shape == wanted.shape and (every == wanted).all():
        return
    if not _whole_warps(taking):
        fail(f"{named(~taking)} hold no part of {region} here: whole warps take part in a shuffle")
    fail(
        f"a warp must have all elements of each result, in lanes whose numbers differ in bits; got "
        f"{region.buffer.layout} of {region}"
    )


def _tree(into: Registers, sources: list[Registers], join: str, token: str) -> Op:
    """Return one operation that joins registers in a balanced tree."""
    for each in sources:
        check_overlap(into, each)
    if len(sources) == 1:
        return Move(into, sources[0])

    def joined(low: int, high: int) -> Expression:
        if high - low == 1:
            return _operand(low, token)
        middle = (low + high + 1) // 2
        return apply(join, joined(low, middle), joined(middle, high))

    return Compute(into, joined(0, len(sources)).node, tuple(sources))


def _operand(number: int, token: str) -> Expression:
    """Return an element of an operand, to compute with."""
    return Expression(Operand(number, token), ())
