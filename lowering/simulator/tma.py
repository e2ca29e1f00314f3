"""TMA on the NumPy warp: boxes of matrices between global and shared memory.

What orders them, :mod:`lowering.simulator.hazards` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lowering.ir.matrices import Matrix
from lowering.ir.ops import BulkLoad, BulkStore, Op, TmaLoad, TmaStore, TmaStoreWait
from lowering.ir.register_map import WARPGROUP
from lowering.isa.smem_descriptor import tma_cells
from lowering.simulator.hazards import Async, SimulationError
from lowering.simulator.machine import Machine, simulate
from lowering.simulator.mbarriers import InFlight
from lowering.simulator.order import PASSED, Bools, Ints
from lowering.simulator.strands import as_seen_by


def _places(
    machine: Machine, each: BulkLoad | BulkStore, env: Mapping[str, Any]
) -> tuple[Ints, Bools]:
    """Return where the elements of a box lie in its matrix, and which are inside it."""
    at = [
        place.value(env) + index
        for place, index in zip(each.place, np.indices(each.box), strict=True)
    ]
    inside = np.ones(each.box, dtype=bool)
    for index, extent in zip(at, machine.extents[each.memory], strict=True):
        inside &= index < extent
    return at[0] * machine.pitches[each.memory] + at[1], inside


def _box(
    machine: Machine, load: BulkLoad, op: Op, agent: int, env: Mapping[str, Any]
) -> tuple[Ints, Matrix]:
    """Return the cells that a box goes to, and its values: zeros beyond the matrix."""
    bits = machine.body.buffer(load.memory).dtype.bits
    into = tma_cells(*load.box, load.swizzle, bits)
    into = into + int(load.into_address.value(env))
    cell, inside = _places(machine, load, env)
    source = machine.memory[load.memory]
    values = np.zeros(load.box, dtype=source.values.dtype)
    by = Async((machine.filler,), (agent,))
    values[inside] = source.read(op, cell[inside], by, machine.order)
    return into.reshape(-1), values.reshape(-1)


@simulate.of(TmaLoad)
def _load(machine: Machine, op: TmaLoad) -> None:
    """Start the loads of boxes; they complete at a wait for their mbarrier.

    Raises:
        SimulationError: what they overwrite is not known to be read, or the last load into it is
            still under way.
    """
    if not (machine.producing or machine.mask[0]):
        return
    order, filler = machine.order, np.array([machine.filler])
    env = as_seen_by(0, machine.env)
    if op.free is not None:
        freed = machine.phase(op.free, op)[0]
        freed.observe(op, filler, freed.known_to(order.known[PASSED, filler]), order)
    slot = machine.one(op.slot, op)
    own = machine.barriers[op.barrier, slot]
    if own.arrived >= own.expected:
        raise _not_waited_for(op)
    released = order.released(filler)
    for load in op.loads:
        into, values = _box(machine, load, op, own.agent, env)
        if load.multicast:
            machine.reach(op)
        for each in machine.cluster if load.multicast else [machine]:
            barrier, cells = each.barriers[op.barrier, slot], each.memory[load.into]
            cells.check_bounds(op, into)
            if barrier.full or cells.pending[into].any():
                raise _not_waited_for(op)
            cells.start(op, into, Async((machine.filler,), (barrier.agent,)), order)
            cells.copy_later(into)
            size = values.size * machine.body.buffer(load.into).dtype.bits // 8
            barrier.start_load(op, InFlight(cells, into, values), size, filler, released, order)
    own.owed += op.size
    own.arrive(op, filler, released, order)


def _not_waited_for(op: TmaLoad) -> SimulationError:
    """Return the error of a load that comes before the last one of its stage is waited for."""
    return SimulationError(
        f"simulate: {op} races: what loaded {op.barrier}[{op.slot}] last is still "
        "under way, or no thread has waited for it"
    )


@simulate.of(TmaStore)
def _store(machine: Machine, op: TmaStore) -> None:
    """Start the stores of boxes by the first thread of each active warpgroup.

    Raises:
        SimulationError: what they read or overwrite is not ordered before.
    """
    order = machine.order
    outside = order.agent(machine.rank, "outside")
    for group in np.flatnonzero(machine.mask[::WARPGROUP]).tolist():
        env = as_seen_by(group * WARPGROUP, machine.env)
        leader = order.base(machine.rank) + group * WARPGROUP
        reader = order.agent(machine.rank, "tma_store", group)
        for each in op.stores:
            bits = machine.body.buffer(each.source).dtype.bits
            source = tma_cells(*each.box, each.swizzle, bits)
            source = (source + int(each.source_address.value(env))).reshape(-1)
            cells = machine.memory[each.source]
            values = cells.read(op, source, Async((leader,), (reader,)), order)
            cell, inside = _places(machine, each, env)
            into, values = cell[inside], values.reshape(each.box)[inside]
            target = machine.memory[each.memory]
            target.write(op, into, Async((leader,), (outside,)), values, order)
        machine.store_groups.setdefault(group, []).append(order.clock + 1)


@simulate.of(TmaStoreWait)
def _wait(machine: Machine, op: TmaStoreWait) -> None:
    """Let the leaders know that all but the newest groups of TMA stores have read."""
    order = machine.order
    for group in np.flatnonzero(machine.mask[::WARPGROUP]).tolist():
        closed = machine.store_groups.get(group, [])
        count = max(0, len(closed) - op.pending)
        if count:
            leader = order.base(machine.rank) + group * WARPGROUP
            reader = order.agent(machine.rank, "tma_store", group)
            order.learn(np.array([leader]), np.array([reader]), closed[count - 1])
            machine.store_groups[group] = closed[count:]
