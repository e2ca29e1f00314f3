"""Barriers on the NumPy warp: of threads, of clusters, mbarriers, and the proxy fence."""

from __future__ import annotations

import numpy as np

from layoutalg.algebra.axis import WARP
from layoutalg.layouts.thread_slots import THREADS_IN
from lowering.ir.ops import Arrive, MbarrierWait, Op, Phase, ProxyFence, Sync, TryWait
from lowering.simulator.hazards import SimulationError
from lowering.simulator.machine import Machine, simulate
from lowering.simulator.order import PASSED


@simulate.of(Sync)
def _sync(machine: Machine, op: Sync) -> None:
    """Order the memory of each warp, warpgroup or CTA; that of a cluster where ``memory`` asks."""
    if op.scope == "cluster":
        if op.memory and machine.ordered < machine.meetings:
            machine.order.meet(machine.order.actors[None])
            for each in machine.cluster:
                each.ordered = machine.meetings
        machine.passed, machine.reaching = machine.meetings, None
        return
    if op.scope == "cta":
        sync_all(machine)
        return
    here, size = machine.agents[machine.mask], THREADS_IN[op.scope]
    whole = len(here) - len(here) % size
    for part, length in ((here[:whole], size), (here[whole:], len(here) - whole)):
        if part.size:
            machine.order.meet(part.reshape(-1, length))


def sync_all(machine: Machine) -> None:
    """Order the memory of all threads of the CTA, the producer's before it is specialized."""
    meeting = machine.agents
    if machine.body.warp_specialized and not machine.specialized:
        meeting = np.append(meeting, machine.order.agent(machine.rank, "producer"))
    machine.order.meet(meeting[None], machine.rank)


@simulate.of(ProxyFence)
def _fence_proxy(machine: Machine, op: ProxyFence) -> None:
    """Make the writes that the active threads know of visible to the async proxy."""
    machine.order.fence_proxy(machine.agents[machine.mask])


@simulate.of(Arrive)
def _arrive(machine: Machine, op: Arrive) -> None:
    """Arrive by the first lane of each warp, where the guards hold.

    Everywhere: by one lane for each CTA of the cluster, in the order of their ranks.
    """
    first = machine.base + np.flatnonzero(machine.active(op.guards)[::WARP]) * WARP
    if not first.size:
        return
    if op.everywhere:
        machine.reach(op)
    for lane, each in enumerate(machine.cluster if op.everywhere else [machine]):
        state = each.barriers[op.barrier, machine.one(op.slot, op)]
        who = first + lane
        state.arrive(op, who, machine.order.released(who), machine.order)


@simulate.of(TryWait)
def _try_wait(machine: Machine, op: TryWait) -> None:
    """Note which phase each active thread tests, and how many it knows to be complete."""
    state, parity = machine.phase(op.phase, op)
    known = state.known_to(machine.order.known[PASSED, machine.agents[machine.mask]])
    machine.tried[machine.mask, :2] = state.agent, parity
    machine.tried[machine.mask, 2] = known


@simulate.of(MbarrierWait)
def _mbarrier_wait(machine: Machine, op: MbarrierWait) -> None:
    """Let the active threads acquire what a complete phase releases.

    Raises:
        SimulationError: the last try_wait was for another phase, or the phase cannot complete.
    """
    state, parity = machine.phase(op.phase, op)
    who = machine.agents[machine.mask]
    known = state.known_to(machine.order.known[PASSED, who])
    if op.tried:
        tried = machine.tried[machine.mask]
        other = (tried[:, :2] != (state.agent, parity)).any(axis=1)
        if other.any():
            raise SimulationError(
                f"simulate: {op} relies on a try_wait for the same phase; the last of "
                f"{machine.order.name(int(who[other][0]))} was for another"
            )
        known = tried[:, 2]
    state.observe(op, who, known, machine.order)
    machine.diverged |= machine.mask


def passes(machine: Machine, phase: Phase, op: Op) -> bool:
    """Complete TMA loads in flight, and say whether a phase is complete.

    ``tcgen05.commit`` arrives as late as it may: where nothing else completes the phase.
    """
    state, parity = machine.phase(phase, op)
    while state.completed % 2 == parity and machine.committed:
        commit, done, released = machine.committed.pop(0)
        done.arrive(commit, np.array([machine.tensor.core]), released[:, None], machine.order)
    state.complete_loads(machine.order)
    return state.completed % 2 != parity
