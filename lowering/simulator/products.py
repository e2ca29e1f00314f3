"""Products of matrices as the NumPy warp does them: ``mma`` of warps, ``wgmma`` of warpgroups.

Each warp's or warpgroup's operands are gathered into matrices through the instruction's fragments,
multiplied, and the result is scattered: products of the input type are exact, their sum with the
accumulator is rounded once to its type.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layoutalg.algebra.axis import WARP
from layoutalg.fragments import Fragment
from lowering.ir.index import Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.matrices import Matrix
from lowering.ir.ops import (
    Mma,
    Op,
    Registers,
    SharedMatrix,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from lowering.ir.register_map import WARPGROUP
from lowering.isa.semantics import as_accumulated, as_multiplied, expanded, scaled
from lowering.isa.smem_descriptor import Descriptor
from lowering.simulator.hazards import Async, SimulationError
from lowering.simulator.machine import Machine, simulate
from lowering.simulator.order import Bools, Ints
from lowering.simulator.wgmma_hazards import Warpgroup


def gather(machine: Machine, elements: Registers, fragment: Fragment, op: Op) -> Matrix:
    """Return one matrix per warp or warpgroup (one per product of it), in float64.

    Of copies, the instruction reads those of the first lanes.
    """
    values = machine.read(elements, op).reshape(-1, fragment.lanes, fragment.slots)
    where = tuple(np.moveaxis(fragment.holds, -1, 0))
    matrix = np.empty((len(values), *fragment.tile))
    order = np.arange(fragment.lanes)[::-1]  # of copies, the last that is written stays
    here = slice(None), *(each[order] for each in where)
    matrix[here] = values[:, order].astype(np.float64)
    return matrix


@simulate.of(Mma)
def _mma(machine: Machine, op: Mma) -> None:
    """Do ``D += A·B`` in every active warp, in place."""
    inst = op.instruction
    accumulator = inst.fragment("D")
    a = as_multiplied(gather(machine, op.a, inst.fragment("A"), op), inst.a.token)
    b = as_multiplied(gather(machine, op.b, inst.fragment("B"), op), inst.b.token)
    extra = [
        gather(machine, each, inst.fragment(role), op)
        for role, each in zip(inst.extras, op.extra, strict=True)
    ]
    if inst.kind == "sp":
        check_positions(extra[0], machine.mask[::WARP], op)
        a = expanded(a, extra[0])
    elif inst.extras:
        a, b = scaled(a, b, *extra)
    total = gather(machine, op.d, accumulator, op) + a @ b
    if inst.modifier == "xor":  # a ^ b = a + b - 2ab
        total = total - 3 * (a @ b) + a.sum(-1)[..., None] + b.sum(-2)[..., None, :]
    where = slice(None), *np.moveaxis(accumulator.holds, -1, 0)
    result = total[where].reshape(machine.body.threads, -1)
    machine.write(op.d, as_accumulated(result, inst))


def check_positions(positions: Matrix, active: Bools, op: Op) -> None:
    """Refuse positions that do not ascend in a chunk: the hardware leaves that undefined.

    Raises:
        SimulationError: two of a chunk do not.
    """
    falls = positions[..., 0::2] >= positions[..., 1::2]
    wrong = np.argwhere(falls & active[:, None, None])
    if wrong.size:
        warp, row, chunk = (int(i) for i in wrong[0])
        pair = positions[warp, row, 2 * chunk : 2 * chunk + 2].astype(int).tolist()
        raise SimulationError(
            f"simulate: {op} needs positions that ascend in each chunk of four; row {row} "
            f"chunk {chunk} of warp {warp} has {pair}"
        )


@simulate.of(Wgmma)
def _wgmma(machine: Machine, op: Wgmma) -> None:
    """Do ``D += A·B`` in every active warpgroup; the results may be touched after a wait.

    Raises:
        SimulationError: there are no whole warpgroups, or something is not ordered.
    """
    inst, fragment = op.instruction, op.instruction.fragment("D")
    if machine.body.threads % WARPGROUP:
        raise SimulationError(
            f"simulate: {op} takes whole warpgroups of {WARPGROUP} threads; there are "
            f"{machine.body.threads}"
        )
    groups = np.flatnonzero(machine.mask[::WARPGROUP])
    for group in groups.tolist():
        machine.warpgroups[group].start(op)
    if isinstance(op.a, SharedMatrix):
        a = _shared(machine, op.a, (inst.m, inst.k), op, groups)
    else:
        a = gather(machine, op.a, inst.fragment("A"), op)[groups]
    b = _shared(machine, op.b, (inst.n, inst.k), op, groups).swapaxes(1, 2)
    total = as_multiplied(a, inst.a.token) @ as_multiplied(b, inst.b.token)
    adds = machine.number(op.accumulate) if isinstance(op.accumulate, Index) else op.accumulate
    if np.any(adds):
        total = total + gather(machine, op.d, fragment, op)[groups]
    rows, cols = np.moveaxis(fragment.coords, -1, 0)
    result = np.zeros((len(machine.warpgroups), *total[:, rows, cols].shape[1:]))
    result[groups] = total[:, rows, cols]
    machine.write(op.d, as_accumulated(result.reshape(machine.body.threads, -1), inst))


def _groups(machine: Machine) -> Iterator[tuple[Warpgroup, Ints]]:
    """Yield each active warpgroup, with its threads."""
    for group in np.flatnonzero(machine.mask[::WARPGROUP]).tolist():
        if machine.warpgroups:
            yield machine.warpgroups[group], machine.agents[group * WARPGROUP :][:WARPGROUP]


@simulate.of(WgmmaFence)
def _fence(machine: Machine, op: WgmmaFence) -> None:
    """Order accesses of registers before the next wgmma."""
    for group, _ in _groups(machine):
        group.fence()


@simulate.of(WgmmaCommit)
def _commit(machine: Machine, op: WgmmaCommit) -> None:
    """Close the open group of each active warpgroup."""
    for group, _ in _groups(machine):
        group.commit(machine.order.clock)


@simulate.of(WgmmaWait)
def _wait(machine: Machine, op: WgmmaWait) -> None:
    """Complete older groups; each thread learns of its own warp's part alone."""
    for group, threads in _groups(machine):
        until = group.wait(op)
        own = machine.order.agent(machine.rank, "wgmma") + (threads - machine.base) // WARP
        machine.order.learn(threads, own, until)


def _shared(
    machine: Machine, operand: SharedMatrix, shape: tuple[int, int], op: Wgmma, groups: Ints
) -> Matrix:
    """Return an operand in shared memory, per warpgroup, where its descriptor's bits say.

    Raises:
        SimulationError: the threads of a warpgroup have other addresses, or a cell is refused.
    """
    cells = machine.memory[operand.memory]
    starts = machine.addresses(operand.address).reshape(-1, WARPGROUP)[groups]
    if (starts != starts[:, :1]).any():
        raise SimulationError(
            f"simulate: {op} needs one start address per warpgroup; the threads of "
            f"{operand.memory} differ"
        )
    order, found = machine.order, []
    for group, start in zip(groups.tolist(), starts[:, 0].tolist(), strict=True):
        first = order.base(machine.rank) + group * WARPGROUP
        threads = range(first, first + WARPGROUP)
        cell = visited(machine.body, operand, start, shape)
        readers = order.products(machine.rank, group)
        found.append(cells.read(op, cell, Async(threads, readers), order))
    return np.stack(found).astype(np.float64).reshape(-1, *shape)


def visited(body: KernelIR, operand: SharedMatrix, start: int, shape: tuple[int, int]) -> Ints:
    """Return the cells that the bits of an operand's descriptor lead to, flat."""
    fields, base = operand.descriptor, body.shared_offsets[operand.memory]
    bits = fields.bits(base + start * fields.element_bits // 8)
    found, at = Descriptor.from_bits(bits, fields.major, fields.element_bits, fields.machine)
    places: Ints = found.places(shape, at).ravel() - base * 8 // fields.element_bits
    return places
