"""The operations on tensor memory, as the NumPy warp runs them: what each reads, does and writes.

A product multiplies what its bits say: the instruction descriptor is encoded and decoded, and so
are the descriptors of its operands, down to the cells that they lead to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lowering.ir.index import Index
from lowering.ir.matrices import Matrix
from lowering.ir.ops import Op, SharedMatrix
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tmem_ops import (
    COPIES,
    Issued,
    TensorAllocate,
    TensorCommit,
    TensorCopy,
    TensorFence,
    TensorFree,
    TensorLoad,
    TensorMatrix,
    TensorMma,
    TensorStore,
    TensorWait,
)
from lowering.isa import tcgen05
from lowering.isa.semantics import as_accumulated, as_multiplied, scaled
from lowering.isa.tcgen05 import CELL, LANES, TensorInst
from lowering.simulator.barriers import sync_all
from lowering.simulator.hazards import Async, SimulationError
from lowering.simulator.machine import Machine, simulate
from lowering.simulator.order import Ints
from lowering.simulator.products import visited
from lowering.simulator.strands import as_seen_by
from lowering.simulator.tmem import UNDER_WAY, from_cells, matrix_of, to_cells

ISSUER = 0  # the thread that starts what is asynchronous
Env = Mapping[str, Any]


@simulate.of(TensorWait)
def _wait(machine: Machine, op: TensorWait) -> None:
    machine.tensor.history.append(op)
    machine.tensor.wait(op.verb, machine.order.clock, machine.mask)


@simulate.of(TensorFence)
def _fence_side(machine: Machine, op: TensorFence) -> None:
    machine.tensor.history.append(op)
    _fence(machine, op.side)


@simulate.of(TensorAllocate)
def _allocate(machine: Machine, op: TensorAllocate) -> None:
    machine.tensor.history.append(op)
    machine.tensor.allocate(op, op.columns)
    _meet(machine)


@simulate.of(TensorFree)
def _free(machine: Machine, op: TensorFree) -> None:
    machine.tensor.history.append(op)
    _meet(machine)
    machine.tensor.free(op)


def _meet(machine: Machine) -> None:
    """Fence and synchronise the CTA, as around allocation and release."""
    _fence(machine, "before")
    sync_all(machine)
    _fence(machine, "after")


def _fence(machine: Machine, side: str) -> None:
    """Fence tensor memory in the active threads."""
    who = machine.order.base(machine.rank) + np.flatnonzero(machine.mask)
    machine.order.fence_tensor(side, who)


def _start(machine: Machine, place: TensorMatrix, env: Env) -> tuple[int, int]:
    """Return the lane and column of an address, for the thread that starts an operation."""
    first = machine.body.tensor_offsets[place.memory]
    return int(place.lane.value(env)), first + int(place.column.value(env))


@simulate.of(TensorMma, TensorCopy, TensorCommit)
def _issue(machine: Machine, op: Issued) -> None:
    """Start something in every CTA of its group, with the addresses of the first CTA."""
    if not machine.mask[ISSUER] or (op.cta_group == 2 and machine.rank > 0):
        return
    group = machine.cluster if op.cta_group == 2 else [machine]
    env = as_seen_by(ISSUER, machine.env)
    for each in group:
        each.tensor.starter = machine.order.base(machine.rank) + ISSUER
        each.tensor.history.append(op)
        if each is not machine:
            machine.reach(op)
    if isinstance(op, TensorCommit):
        slot = machine.one(op.slot, op)
        for each in group:
            released = each.tensor.commit(each.order.clock)
            each.committed.append((op, each.barriers[op.barrier, slot], released))
        return
    if isinstance(op, TensorCopy):
        for each in group:
            _copy(each, op, env)
    else:
        _multiply(op, group, env)
    for each in group:
        each.tensor.open.append(op)


# -- products -------------------------------------------------------------------------------------


def _multiply(op: TensorMma, group: Sequence[Machine], env: Env) -> None:
    """Do ``D += A·B``; D may be touched after a wait for its commit.

    Of a pair of CTAs each has its rows of A and D, and its part of the columns of B.
    """
    given = op.what.instruction
    what = tcgen05.decode(given.kind, given.block, given.cta_group, tcgen05.encode(op.what))
    inst = what.instruction
    adds = op.accumulate.value(env) if isinstance(op.accumulate, Index) else op.accumulate
    b = np.concatenate([_shared(each, op.b, (inst.cols, inst.k), op, env) for each in group])
    b = as_multiplied(b, inst.b.token)
    for each in group:
        core = np.int64(each.tensor.core)
        place = _start(each, op.d, env)
        each.tensor.accumulators[len(each.tensor.history) - 1] = place
        a = as_multiplied(_left(each, op, inst, env), inst.a.token)
        own = b
        if op.scales:
            first, second = what.scale_bytes
            sfa = _scales(each, op, _start(each, op.scales[0], env), inst.rows, first)
            sfb = _scales(each, op, _start(each, op.scales[1], env), inst.n, second)
            a, own = scaled(a, b.T, sfa, sfb.T)
            own = own.T
        total = a @ own.T
        cell = each.tensor.cells(op, *_of_d(inst, place))
        if adds:
            before = each.tensor.read(op, cell, core, UNDER_WAY)
            total = total + matrix_of(before, inst.d, total.shape)
        result = to_cells(as_accumulated(total, inst)[..., None], inst.d)
        each.tensor.write(op, cell, core, result)


def _left(machine: Machine, op: TensorMma, inst: TensorInst, env: Env) -> Matrix:
    """Return the rows of A that a CTA has.

    In tensor memory, 64 rows of a pair lie twice, in lanes 0 and 64 on.
    """
    shape = inst.rows, inst.k
    if isinstance(op.a, SharedMatrix):
        return _shared(machine, op.a, shape, op, env)
    lane, column = _start(machine, op.a, env)
    row, word = np.indices((LANES, inst.k * inst.a.bits // CELL))
    cell = machine.tensor.cells(op, lane + row, column + word)
    words = machine.tensor.read(op, cell, np.int64(machine.tensor.core), UNDER_WAY)
    copies = words.reshape(-1, inst.rows, words.shape[1])
    if (copies != copies[0]).any():
        raise SimulationError(f"simulate: {op} has other rows of A in lanes 64 on than in 0 on")
    return matrix_of(copies[0], inst.a, shape)


def _of_d(inst: TensorInst, start: tuple[int, int]) -> tuple[Ints, Ints]:
    """Return the lane and column of each element of D, as PTX draws them.

    Source: PTX ISA, tcgen05 "Data Path Layout Organization", layouts A, B, D and F.
    """
    row, col = np.indices((inst.rows, inst.n))
    lane = row
    if inst.rows < LANES and inst.cta_group == 1:
        lane = row // 16 * 32 + row % 16
    elif inst.rows < LANES:
        lane, col = row + col // inst.cols * inst.rows, col % inst.cols
    return start[0] + lane, start[1] + col


def _shared(
    machine: Machine, operand: SharedMatrix, shape: tuple[int, int], op: Op, env: Env
) -> Matrix:
    """Return an operand in shared memory, where its descriptor's bits say."""
    cell = visited(machine.body, operand, int(operand.address.value(env)), shape)
    return _fetch(machine, operand, cell, op).astype(np.float64).reshape(shape)


def _fetch(machine: Machine, operand: SharedMatrix, cell: Ints, op: Op) -> Matrix:
    """Read cells by the async proxy, ordered after what the thread that starts it knows."""
    starter, core = machine.tensor.starter, machine.tensor.core
    by = Async((starter,), (core,))
    return machine.memory[operand.memory].read(op, cell, by, machine.order)


def _scales(
    machine: Machine, op: TensorMma, place: tuple[int, int], rows: int, byte: int
) -> Matrix:
    """Return the scales of so many rows, from each of their four copies, which must agree.

    Source: PTX ISA, tcgen05 "Scale Factor A/B layout".
    """
    tensor, inst = machine.tensor, op.what.instruction
    assert inst.scale is not None, inst
    lane, column = place
    row, copy = np.indices((rows, 4))
    cell = tensor.cells(op, lane + row % 32 + 32 * copy, column + row // 32)
    found = tensor.read(op, cell, np.int64(tensor.core), UNDER_WAY)
    wrong = np.argwhere(found != found[:, :1])
    if wrong.size:
        raise SimulationError(
            f"simulate: {op} has other scales in lanes {32 * int(wrong[0, 1])} on than in "
            f"the first 32, of row {int(wrong[0, 0])}"
        )
    scales = from_cells(found[:, 0], inst.scale)[:, byte : byte + inst.scales]
    values: Matrix = scales.astype(np.float64)
    return values


# -- movement -------------------------------------------------------------------------------------


def _copy(machine: Machine, op: TensorCopy, env: Env) -> None:
    """Copy rows of shared memory to lanes, and their copies."""
    tensor = machine.tensor
    rows, width = COPIES[op.shape]
    dtype = machine.body.buffer(op.source.memory).dtype
    start = int(op.source.address.value(env))
    cell = visited(machine.body, op.source, start, (rows, width // dtype.bits))
    values = _fetch(machine, op.source, cell, op)
    words = to_cells(values.reshape(rows, width // CELL, CELL // dtype.bits), dtype)
    lane, column = _start(machine, op.into, env)
    row, word = np.indices(words.shape)
    for group in range(0, LANES, rows):
        into = tensor.cells(op, lane + row + group, column + word)
        tensor.write(op, into, np.int64(tensor.core), words)


def _moved(machine: Machine, op: TensorLoad | TensorStore, place: TensorMatrix) -> Ints:
    """Return the cells that a load or store touches, by thread and word.

    Raises:
        SimulationError: a warp's threads disagree, or it leaves the lanes that it may touch.
    """
    fragment = op.fragment
    first = machine.body.tensor_offsets[place.memory]
    lanes, columns = (machine.addresses(index) for index in (place.lane, place.column))
    width = fragment.lanes
    own = machine.mask.reshape(-1, width)[:, 0]
    warps = [each.reshape(-1, width)[own] for each in (lanes, columns)]
    if any((each != each[:, :1]).any() for each in warps):
        raise SimulationError(f"simulate: {op} needs one address per warp")
    row, col = np.moveaxis(fragment.coords, -1, 0)
    lane = warps[0][:, :1, None] + row
    column = warps[1][:, :1, None] + col + first
    numbers = np.flatnonzero(own)
    allowed = numbers % (WARPGROUP // width) * width
    outside = (lane < allowed[:, None, None]) | (lane >= allowed[:, None, None] + width)
    if outside.any():
        at = int(np.argwhere(outside)[0][0])
        raise SimulationError(
            f"simulate: {op} reaches lane {int(lane[outside][0])}; warp {numbers[at]} may "
            f"touch lanes {int(allowed[at])} to {int(allowed[at]) + width - 1}"
        )
    return machine.tensor.cells(op, lane, column).reshape(int(machine.mask.sum()), -1)


@simulate.of(TensorLoad)
def _load(machine: Machine, op: TensorLoad) -> None:
    """Load words of every warp; they may be touched after a wait."""
    tensor = machine.tensor
    tensor.history.append(op)
    dtype = machine.body.buffer(op.into.buffer).dtype
    threads = machine.order.base(machine.rank) + np.flatnonzero(machine.mask)[:, None]
    cell = _moved(machine, op, op.source)
    values = from_cells(tensor.read(op, cell, threads, UNDER_WAY), dtype)
    found = machine.registers[op.into.buffer][:, list(op.into.numbers)]
    found[machine.mask] = values.reshape(len(threads), -1)
    machine.write(op.into, found)
    tensor.load(op, machine.mask)


@simulate.of(TensorStore)
def _store(machine: Machine, op: TensorStore) -> None:
    """Store words of every warp; they are there after a wait."""
    machine.tensor.history.append(op)
    dtype = machine.body.buffer(op.source.buffer).dtype
    threads = machine.order.base(machine.rank) + np.flatnonzero(machine.mask)[:, None]
    cell = _moved(machine, op, op.into)
    values = machine.read(op.source, op)[machine.mask].reshape(*cell.shape, CELL // dtype.bits)
    machine.tensor.write(op, cell, threads, to_cells(values, dtype))
