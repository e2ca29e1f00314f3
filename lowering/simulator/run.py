"""How the NumPy warp runs a body: all CTAs of a cluster, all strands of threads, to the end.

The CTAs of a cluster run in turns, each until it waits. What one does to the shared memory of
another is checked there, by what that CTA's threads did and by what they told the one that does it.
Threads go on in the order of :mod:`lowering.simulator.strands`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutalg.algebra.axis import WARP
from layoutalg.layouts.thread_slots import THREADS_IN
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.matrices import Matrix, physical, poison
from lowering.ir.ops import Let, Loop, MbarrierWait, Op, Sync, TmaLoad, WarpSpecialize, When
from lowering.ir.readers import Reader
from lowering.ir.tiles import cells
from lowering.ir.tmem_ops import TensorOp
from lowering.simulator import (  # noqa: F401 - rows of the table
    memory,
    products,
    shuffles,
    tensor_cores,
    tma,
)
from lowering.simulator.barriers import passes
from lowering.simulator.hazards import SimulationError
from lowering.simulator.machine import Machine, simulate
from lowering.simulator.strands import Frame, Strand
from lowering.simulator.wgmma_hazards import touched


def cluster(body: KernelIR, bx: int = 0, by: int = 0) -> list[Machine]:
    """Return the CTAs of the cluster that begins at (bx, by), in the order of their ranks."""
    machines: list[Machine] = []
    for rank in range(body.cluster):
        machine = Machine(body, rank, cluster=machines)
        machine.env |= {"bx": bx + rank, "by": by}
    return machines


def execute(body: KernelIR, matrices: Mapping[str, Matrix]) -> Machine:
    """Run a body; ``matrices`` gives parameters by name, as logical matrices in their dtype.

    Parameters that are left out are poisoned: reading them is refused. Of a cluster, the first CTA
    is returned; all share the parameters.
    """
    machines = cluster(body)
    machine = machines[0]
    for buffer in body.params:
        if buffer.name in matrices:
            machine.allocate(buffer, physical(buffer, matrices[buffer.name]), True)
        else:
            empty = poison(buffer.dtype.numpy, (cells(buffer),))
            machine.allocate(buffer, empty, False)
        for other in machines[1:]:
            other.memory[buffer.name] = machine.memory[buffer.name]
    run_to_end(machine)
    return machine


def run_to_end(machine: Machine) -> None:
    """Run the whole body in every CTA of the cluster.

    Raises:
        SimulationError: it reads what nothing wrote, races, waits forever, or leaves copies
            under way.
    """
    running = [(each, run(each)) for each in machine.cluster]
    while running:
        before, waiting = machine.order.clock, []
        for each, steps in running:
            found = next(steps, None)
            each.ended = found is None
            if found is not None:
                waiting.append((each, found))
        if before == machine.order.clock and len(waiting) == len(running):
            raise deadlock(*waiting[0])
        running = [(each, steps) for each, steps in running if not each.ended]
    for each in machine.cluster:
        finish(each)


def finish(machine: Machine) -> None:
    """Refuse to end with copies in flight, or with accesses that may reach a CTA that has ended.

    Raises:
        SimulationError: something is, or may.
    """
    if machine.reaching is not None:
        raise SimulationError(
            f"simulate: {machine.reaching} may reach a CTA that has ended: sync the cluster "
            "after the last"
        )
    loading = any(each.in_flight for each in machine.barriers.values())
    if machine.copies or loading or any(machine.store_groups.values()):
        raise SimulationError(
            "simulate: asynchronous copies are under way at the end: wait for them"
        )
    for each in machine.warpgroups:
        each.finish()
    machine.tensor.finish()


def run(machine: Machine) -> Iterator[Op]:
    """Run a CTA until every strand waits; yield the operation at which it waits."""
    machine.strands = [Strand([Frame(machine.body.ops, machine.mask)], machine.env)]
    while machine.strands:
        before, alive = machine.order.clock, list(machine.strands)
        for strand in alive:
            advance(machine, strand)
            if strand.waiting is not None:
                machine.strands.extend(strand.split())
        machine.strands = [each for each in machine.strands if each.frames]
        if before == machine.order.clock and machine.strands == alive:
            last, op = [(each, each.waiting) for each in alive if each.waiting is not None][-1]
            machine.mask, machine.env = last.mask, last.env
            check_whole(machine, op)
            yield op


def advance(machine: Machine, strand: Strand) -> None:
    """Run a strand until it ends or waits."""
    strand.waiting = None
    while (op := strand.next()) is not None:
        machine.strand, machine.mask, machine.env = strand, strand.mask, strand.env
        machine.producing = strand.producing
        if op in flow:
            strand.frames[-1].at += 1
            flow(machine, op)
        elif ready(machine, op, strand):
            strand.frames[-1].at += 1
            step(machine, op)
        else:
            strand.waiting = op
            return


# -- control flow ---------------------------------------------------------------------------------

flow = Reader[Machine]("simulate")  # of what decides which threads run what


@flow.of(Loop)
def _loop(machine: Machine, op: Loop) -> None:
    extent = machine.number(op.extent)
    mask = machine.mask & (extent > 0)
    machine.strand.enter(Frame(op.body, mask, var=op.var, extent=extent))


@flow.of(When)
def _when(machine: Machine, op: When) -> None:
    machine.strand.enter(Frame(op.body, machine.active(op.guards)))


@flow.of(WarpSpecialize)
def _warp_specialize(machine: Machine, op: WarpSpecialize) -> None:
    env = machine.env | {"thread": np.int64(machine.body.threads)}
    beside = Strand([Frame(op.produce, machine.mask)], env, True)
    machine.strands.insert(0, beside)
    machine.specialized = True
    machine.strand.enter(Frame(op.consume, machine.mask, beside=beside))


@flow.of(Let)
def _let(machine: Machine, op: Let) -> None:
    value, before = named(machine, op), machine.env.get(op.var)
    parts = before is not None and not machine.mask.all()
    if parts and not isinstance(value, Broken) and not isinstance(before, Broken):
        value = np.where(machine.mask, value, before)
    machine.env[op.var] = value


@dataclass(frozen=True)
class Broken:
    """The value of a named index outside its extent: whatever computes with it is refused.

    A name that is not used may have any value, as in the first step of a loop.
    """

    why: str

    def __floordiv__(self, other: object) -> Any:
        """Refuse; each digit of a variable is a quotient.

        Raises:
            SimulationError: always.
        """
        raise SimulationError(self.why)


def named(machine: Machine, op: Let) -> Any:
    """Return the value of a name; outside its extent, :class:`Broken`."""
    try:
        value = op.value.value(machine.env)
    except SimulationError as error:  # made of another that is none of its values
        return Broken(str(error))
    values = np.broadcast_to(value, machine.mask.shape)[machine.mask]
    wrong = values[(values < 0) | (values >= op.extent)]
    if wrong.size:
        return Broken(f"simulate: {op} is one of {op.extent} values from 0 on; got {wrong[0]}")
    return value


# -- whether threads can go on --------------------------------------------------------------------


def ready(machine: Machine, op: Op, strand: Strand) -> bool:
    """Say whether a strand can run an operation now, joining others where it must."""
    if part_of_unit(machine, op) is not None:
        others = [
            each
            for each in machine.strands
            if each.frames and not each.producing and each is not strand
        ]
        for each in others:
            if each.waiting is op and each.same_place(strand):
                strand.join(each)
                machine.strands.remove(each)
                each.frames, each.waiting = [], None
                machine.mask = strand.mask
        if others and part_of_unit(machine, op) is not None:
            return False
        check_whole(machine, op)
    phase = op.phase if isinstance(op, MbarrierWait) else None
    phase = op.free if isinstance(op, TmaLoad) else phase
    if phase is not None:
        return passes(machine, phase, op)
    if isinstance(op, Sync) and op.scope == "cluster":
        machine.meetings += not strand.met
        strand.met = not all(has_reached(each, machine.meetings) for each in machine.cluster)
        return not strand.met
    return True


def part_of_unit(machine: Machine, op: Op) -> tuple[str, int, int] | None:
    """Return the unit of which only a part runs an operation, and an active and an idle thread.

    None: whole units run it.
    """
    if machine.mask.all():
        return None
    unit = op.unit
    size = THREADS_IN.get(unit, len(machine.mask))
    whole = machine.mask.reshape(-1, size) if len(machine.mask) % size == 0 else machine.mask[None]
    parts = whole.any(axis=1) & ~whole.all(axis=1)
    if not parts.any():
        return None
    first = int(np.argmax(parts))
    active, idle = (first * size + int(np.argmax(whole[first] == on)) for on in (1, 0))
    return unit, active, idle


def check_whole(machine: Machine, op: Op) -> None:
    """Refuse an operation that only a part of its warp, warpgroup or CTA runs.

    Raises:
        SimulationError: a part runs it; a thread of it and one that is missing are named.
    """
    found = part_of_unit(machine, op)
    if found is not None:
        unit, active, idle = found
        raise SimulationError(
            f"simulate: {op} takes whole {unit}s: thread {active} runs it, and "
            f"thread {idle} of its {unit} does not"
        )


def has_reached(machine: Machine, meeting: int) -> bool:
    """Say whether all threads have reached a barrier of the cluster, or have ended."""
    producing = any(each.producing and each.frames for each in machine.strands)
    here = machine.meetings >= meeting and not producing
    return machine.ended or machine.passed >= meeting or here


def deadlock(machine: Machine, op: Op) -> SimulationError:
    """Return the error of a deadlock."""
    return SimulationError(
        f"simulate: {op} waits forever: "
        + ", ".join(
            f"{name}[{slot}] has completed {state.completed} phases, {state.arrived} of "
            f"{state.expected} arrived"
            for (name, slot), state in machine.barriers.items()
        )
    )


# -- one operation --------------------------------------------------------------------------------


def step(machine: Machine, op: Op) -> None:
    """Run one operation in the active threads.

    Raises:
        LayoutError: the machine has no such operation.
    """
    machine.order.clock += 1
    if op.aligned and machine.diverged.any():
        converge(machine)
    touch(machine, op)
    simulate(machine, op)


def touch(machine: Machine, op: Op) -> None:
    """Refuse to touch registers that a wgmma or tcgen05 in flight uses."""
    if not machine.warpgroups and not machine.body.tensor:
        return
    if id(op) not in machine.touched:
        machine.touched[id(op)] = touched(op)
    each = machine.touched[id(op)]
    if not each:
        return
    if machine.warpgroups:
        active = machine.mask.reshape(len(machine.warpgroups), -1).any(axis=1)
        for group in np.flatnonzero(active).tolist():
            machine.warpgroups[group].touch(op, each)
    if not isinstance(op, TensorOp):
        machine.tensor.touch(op, each, machine.mask)


def converge(machine: Machine) -> None:
    """Let the threads of each active warp know how far the others have come."""
    threads = (machine.mask & machine.diverged).reshape(-1, WARP)
    warps = machine.agents.reshape(-1, WARP)[threads.any(axis=1)]
    machine.order.converge(warps)
    machine.diverged[warps - machine.base] = False
