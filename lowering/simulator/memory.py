"""Registers and memory on the NumPy warp: moves, vector accesses, matrices, ``cp.async``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from layoutalg.algebra.axis import WARP
from lowering.ir.expressions import Apply, Coordinate, Node, Number, Operand, Variable
from lowering.ir.ops import (
    Atomic,
    Commit,
    Compute,
    Load,
    LoadMatrix,
    Move,
    MoveMatrix,
    Store,
    StoreMatrix,
    Transfer,
    Wait,
    Zero,
)
from lowering.isa.functions import Values, numpy_of
from lowering.simulator.hazards import SimulationError
from lowering.simulator.machine import Copies, Machine, simulate
from lowering.simulator.order import Bools, Ints


@simulate.of(Zero)
def _zero(machine: Machine, op: Zero) -> None:
    machine.write(op.into, 0)


@simulate.of(Move)
def _move(machine: Machine, op: Move) -> None:
    machine.write(op.into, machine.read(op.source, op))


@simulate.of(Compute)
def _compute(machine: Machine, op: Compute) -> None:
    """Compute each element; all operands are read first."""
    operands = [machine.read(each, op) for each in op.operands]
    shape = len(machine.mask), len(op.into.numbers)
    known: dict[Node, Values] = {}

    def value(node: Node) -> Values:
        if node not in known:
            known[node] = found(node)
        return known[node]

    def found(node: Node) -> Values:
        if isinstance(node, Apply):
            return node.function.apply(*map(value, node.arguments))
        kind = numpy_of(node.token)
        if isinstance(node, Operand):
            return operands[node.number]
        if isinstance(node, Coordinate):
            each = [machine.addresses(index) for index in op.coordinates[node.number]]
            return np.stack(each, axis=1).astype(kind)
        if isinstance(node, Number):
            return np.asarray(node.value).astype(kind)
        assert isinstance(node, Variable)
        if isinstance(node.value, str):
            return np.asarray(machine.env[node.value]).astype(kind)
        return machine.addresses(node.value)[:, None].astype(kind)

    machine.write(op.into, np.broadcast_to(value(op.value), shape))


@simulate.of(Load)
def _load(machine: Machine, op: Load) -> None:
    """Load a vector per thread; threads that are guarded away get zeros."""
    taking = machine.active(op.guards)
    count = len(op.into.numbers)
    start = machine.addresses(op.address)
    machine.check_aligned(op.memory, start[taking], count, op)
    cell = start[taking, None] + np.arange(count)
    values = np.zeros((machine.body.threads, count), dtype=machine.registers[op.into.buffer].dtype)
    who = machine.agents[taking, None]
    values[taking] = machine.memory[op.memory].read(op, cell, who, machine.order)
    machine.write(op.into, values)
    machine.count_banks(
        op.memory, start, count * machine.body.buffer(op.memory).dtype.bits // 8, op
    )


@simulate.of(Store)
def _store(machine: Machine, op: Store) -> None:
    """Store a vector per thread."""
    taking, cells, values = _stored(machine, op)
    who = machine.agents[taking, None]
    machine.memory[op.memory].write(
        op, cells[taking], who, values, machine.order, _of_copy(machine, op)
    )
    size = cells.shape[1] * machine.body.buffer(op.memory).dtype.bits // 8
    machine.count_banks(op.memory, cells[:, 0], size, op)


def _stored(machine: Machine, op: Store | Atomic) -> tuple[Bools, Ints, Values]:
    """Return who stores, the cells of every thread, and the values of those that store."""
    taking = machine.active(op.guards)
    values, count = machine.read(op.source, op), len(op.source.numbers)
    start = machine.addresses(op.address)
    machine.check_aligned(op.memory, start[taking], count, op)
    cells = start[:, None] + np.arange(count)
    _check_copies(machine, op, cells, taking)
    return taking, cells, values[taking]


ATOMICS: Mapping[str, np.ufunc] = {"add": np.add, "min": np.minimum, "max": np.maximum}


@simulate.of(Atomic)
def _atomic(machine: Machine, op: Atomic) -> None:
    """Change cells one after the other, in the order of the threads; f32 sums flush subnormals.

    They race with loads and stores, and with another function, but not among themselves.
    """
    taking, cells, values = _stored(machine, op)
    memory, cell, who = machine.memory[op.memory], cells[taking], machine.agents[taking, None]
    memory.change(op, cell, who, machine.order, 1 + list(ATOMICS).index(op.function))
    flat, given, join = cell.reshape(-1), values.reshape(-1), ATOMICS[op.function]
    order = np.argsort(flat, kind="stable")
    turn = np.empty_like(order)  # how many changes of the same cell come before
    turn[order] = np.arange(len(order)) - np.searchsorted(flat[order], flat[order])
    sums = op.function == "add" and memory.values.dtype == np.float32
    for each in range(int(turn.max(initial=-1)) + 1):
        now = turn == each
        old, new = memory.values[flat[now]], given[now].astype(memory.values.dtype)
        result = _flushed(join(_flushed(old), _flushed(new))) if sums else join(old, new)
        memory.values[flat[now]] = result


def _flushed(values: Values) -> Values:
    """Return f32 values, those below the normal ones as zeros of their sign.

    Source: PTX ISA, "red": additions of f32 in global memory.
    """
    tiny = np.abs(values) < np.finfo(np.float32).tiny
    return np.where(tiny, np.copysign(np.float32(0), values), values)


def _of_copy(machine: Machine, op: Store | StoreMatrix | Transfer) -> tuple[int, ...]:
    """Return of which copy, in which step of its loops, a store that aliases is; () if not."""
    if not op.aliases:
        return ()
    return (machine.rank, op.aliases, *(each.step for each in machine.strand.frames if each.var))


def _check_copies(
    machine: Machine, op: Store | StoreMatrix | Atomic, cells: Ints, taking: Bools
) -> None:
    """Refuse to store a value of which another thread that comes here holds a different copy.

    ``cells``: (threads, cells), where each thread would store. ``taking``: which threads do.
    """
    aliases = not isinstance(op, Atomic) and op.aliases
    if not op.copies or aliases or not taking.any():
        return
    threads = np.arange(machine.body.threads)
    around = machine.strand.frames[-2].mask if len(machine.strand.frames) > 1 else machine.mask
    others = around & [bool(op.copies >> int(each) & 1) for each in threads]
    others = machine.active(() if isinstance(op, StoreMatrix) else op.guards, others)
    numbers = np.asarray(op.source.numbers)
    values = machine.registers[op.source.buffer][:, numbers]
    order = np.argsort(cells[taking], axis=None)
    stored = cells[taking].reshape(-1)[order]
    at = np.searchsorted(stored, cells[others]).clip(max=len(stored) - 1)
    place = order[at]
    mine, theirs = values[others], values[taking].reshape(-1)[place]
    same = (mine == theirs) | ((mine != mine) & (theirs != theirs))
    known = machine.known[op.source.buffer][:, numbers][others]
    wrong = (stored[at] == cells[others]) & known & ~same
    if wrong.any():
        row, column = (int(each) for each in np.argwhere(wrong)[0])
        first = threads[taking][place[row, column] // len(numbers)]
        raise SimulationError(
            f"simulate: {op}: thread {threads[others][row]} holds another value of "
            f"{op.source.buffer}[{numbers[column]}] than thread {first}, which stores: copies "
            "differ"
        )


@simulate.of(LoadMatrix, StoreMatrix)
def _matrices(machine: Machine, op: LoadMatrix | StoreMatrix) -> None:
    """Move 8x8 matrices of 16-bit cells: lane 8j+i gives row i of matrix j.

    Raises:
        SimulationError: a row does not begin at 16 bytes, or a cell is refused.
    """
    registers = op.into if isinstance(op, LoadMatrix) else op.source
    bits = machine.body.buffer(op.memory).dtype.bits
    pack = machine.body.buffer(op.memory).dtype.pack
    start = machine.addresses(op.address)
    skewed = (start * bits % 128 != 0) & machine.mask
    if skewed.any():
        thread = int(np.flatnonzero(skewed)[0])
        raise SimulationError(
            f"simulate: {op} needs 16-byte rows: thread {thread} gives {op.memory} at "
            f"{int(start[thread])}"
        )
    rows = start.reshape(-1, WARP)
    warps = len(rows)
    lane = np.arange(WARP)
    cell: Ints = np.empty((warps, WARP, op.count, pack), dtype=np.int64)
    for j in range(op.count):
        for p in range(pack):
            if op.trans:
                cell[:, :, j, p] = rows[:, 8 * j + 2 * (lane % 4) + p] + lane // 4
            else:
                cell[:, :, j, p] = rows[:, 8 * j + lane // 4] + lane % 4 * pack + p
    cells = cell.reshape(machine.body.threads, op.count * pack)
    cell = cells[machine.mask]
    memory, who = machine.memory[op.memory], machine.agents[machine.mask, None]
    if isinstance(op, LoadMatrix):
        values = machine.registers[registers.buffer][:, list(registers.numbers)]
        values[machine.mask] = memory.read(op, cell, who, machine.order)
        machine.write(registers, values)
    else:
        values = machine.read(registers, op)[machine.mask]
        _check_copies(machine, op, cells, machine.mask)
        memory.write(op, cell, who, values, machine.order, _of_copy(machine, op))
    taking = machine.mask.reshape(-1, WARP)[:, :8]
    for j in range(op.count):
        machine.count_groups(op.memory, rows[:, 8 * j : 8 * j + 8], taking, 16, op)


@simulate.of(MoveMatrix)
def _transpose(machine: Machine, op: MoveMatrix) -> None:
    """Transpose 8x8 matrices: lane 4g+t holds row g, columns 2t and 2t+1 of each."""
    count = len(op.source.numbers) // 2
    rows = machine.read(op.source, op).reshape(-1, 8, 4, count, 2)
    matrices = rows.transpose(0, 3, 1, 2, 4).reshape(-1, count, 8, 8)
    flipped = matrices.swapaxes(2, 3).reshape(-1, count, 8, 4, 2)
    machine.write(op.into, flipped.transpose(0, 2, 3, 1, 4).reshape(machine.body.threads, -1))


@simulate.of(Transfer)
def _transfer(machine: Machine, op: Transfer) -> None:
    """Copy cells from memory to memory: now, or by ``cp.async`` at the wait for its group."""
    reading = machine.active(op.guards + op.edges)
    for name, address in ((op.memory, op.address), (op.into, op.into_address)):
        machine.check_aligned(name, machine.addresses(address)[reading], op.count, op)
    source = machine.addresses(op.address)[:, None] + np.arange(op.count)
    origin, target = machine.memory[op.memory], machine.memory[op.into]
    values = np.zeros((machine.body.threads, op.count), dtype=origin.values.dtype)
    values[reading] = origin.read(op, source[reading], machine.agents[reading, None], machine.order)
    taking = machine.active(op.guards)
    into = machine.addresses(op.into_address)[taking, None] + np.arange(op.count)
    size = op.count * machine.body.buffer(op.into).dtype.bits // 8
    machine.count_banks(op.into, machine.addresses(op.into_address), size, op)
    machine.count_banks(op.memory, machine.addresses(op.address), size, op)
    who = machine.agents[taking, None]
    if not op.asynchronous:
        target.write(op, into, who, values[taking], machine.order, _of_copy(machine, op))
        return
    target.start(op, into, who, machine.order, _of_copy(machine, op))
    target.copy_later(into, who)
    origin.copy_from(source[reading])
    under_way = into, who, values[taking], machine.closed[taking], source[taking], reading[taking]
    machine.copies.append(Copies(op, *under_way))


@simulate.of(Commit)
def _commit(machine: Machine, op: Commit) -> None:
    """Close the open group of each active thread."""
    machine.closed[machine.mask] += 1


@simulate.of(Wait)
def _wait(machine: Machine, op: Wait) -> None:
    """Complete all but the ``pending`` newest closed groups."""
    left = []
    for each in machine.copies:
        thread = each.who[:, 0] - machine.base
        done = machine.mask[thread] & (each.group < machine.closed[thread] - op.pending)
        if done.any():
            ours, reads = each.of(done), each.reads[done]
            machine.memory[each.op.into].finish_later(
                ours.into, ours.values, ours.who, machine.order
            )
            read = machine.memory[each.op.memory]
            read.copied(ours.cell[reads], ours.who[reads], machine.order)
        if not done.all():
            left.append(each.of(~done))
    machine.copies = left
