"""The mbarriers of a CTA while the NumPy warp runs: arrivals, bytes to come, phases.

What an arrival releases is kept with its barrier, and whoever has waited for the phase that it
completed acquires it: see :mod:`lowering.simulator.hazards`, which says too what a program must
order for an arrival to count, and a wait to pass, in one phase alone, however fast the threads are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lowering.ir.matrices import Matrix
from lowering.ir.ops import Op
from lowering.simulator.hazards import NEVER, Cells, SimulationError
from lowering.simulator.order import PASSED, Ints, Order


@dataclass(frozen=True)
class InFlight:
    """A box that TMA is loading into cells of this CTA."""

    into: Cells
    cell: Ints
    values: Matrix


@dataclass(frozen=True)
class Complete:
    """A phase that is complete: when it was, and who arrived when."""

    clock: int
    who: Ints
    when: Ints


@dataclass
class Mbarrier:
    """An mbarrier: arrivals of this phase, phases completed, loads in flight.

    ``agent``: the TMA loads that complete it. ``owed``: bytes that this phase expects and that no
    load brings yet. ``gathered``: what those who arrived released, this phase included; ``given``:
    without it, for those who have waited. ``waited``: when each agent waited last. ``arrivals``:
    who arrived in this phase, and when; ``last``: by what operation.
    """

    agent: int
    expected: int
    gathered: Ints
    phases: list[Complete] = field(default_factory=list)
    arrivals: list[tuple[Ints, Ints]] = field(default_factory=list)
    in_flight: list[InFlight] = field(default_factory=list)
    arrived: int = 0
    owed: int = 0
    last: Op | None = None

    def __post_init__(self) -> None:
        """Begin with nothing to release."""
        self.given = self.gathered.copy()
        self.waited = np.full_like(self.gathered[PASSED], NEVER)

    @property
    def completed(self) -> int:
        """How many phases are complete."""
        return len(self.phases)

    @property
    def full(self) -> bool:
        """Whether all arrivals and bytes that this phase expects are there or in flight."""
        return self.arrived >= self.expected and self.owed <= 0

    def known_to(self, known: Ints) -> Ints:
        """Return how many phases each of some threads knows to be complete.

        One is known to those who waited for it, or know of one who has, or of all that arrived.

        Args:
            known: (threads, agents), until when each knows that agents have passed.
        """
        found = np.zeros(len(known), dtype=np.int64)
        for number in range(self.completed, 0, -1):
            each = self.phases[number - 1]
            waited = known[:, self.agent] >= each.clock
            knows = waited | (known[:, each.who] >= each.when).all(axis=1)
            found = np.maximum(found, np.where(knows, number, 0))
            if found.all():
                break
        return found

    def observe(self, op: Op, who: Ints, known: Ints, order: Order) -> None:
        """Let threads pass a wait for the last complete phase, and acquire what it releases.

        Args:
            op: for messages.
            who: the threads.
            known: how many phases each knew to be complete when it asked.
            order: of the cluster.

        Raises:
            SimulationError: an older phase of the same parity might have been seen.
        """
        late = known < self.completed - 1
        if late.any():
            raise SimulationError(
                f"simulate: {op} may pass on an older phase of {order.barrier(self.agent)}: "
                f"{order.name(int(who[late][0]))} does not know that the phase before is complete: "
                "wait for that first"
            )
        self.waited[who] = order.clock
        order.acquire(who, self.given)

    def arrive(self, op: Op, who: Ints, released: Ints, order: Order) -> None:
        """Arrive, and release what those who arrive know.

        Args:
            op: for messages.
            who: agents.
            released: (kinds, agents that arrive, agents), what each knows.
            order: of the cluster.

        Raises:
            SimulationError: one may arrive before the phase in which it counts has begun, or the
                phase may be complete while some thread still waits for the one before.
        """
        self.check_begun(op, who, released, order, self.expected - self.arrived)
        np.maximum(self.gathered, released.max(axis=1), out=self.gathered)
        self.arrivals.append((who, released[PASSED, np.arange(len(who)), who]))
        self.arrived += len(who)
        self.last = op
        if not self.in_flight and not self.owed:
            self.complete(order)

    def start_load(
        self, op: Op, box: InFlight, size: int, who: Ints, released: Ints, order: Order
    ) -> None:
        """Start a TMA load of so many bytes; see :meth:`arrive`.

        Its completion says that threads have come as far as the one that starts it knew.
        """
        self.check_begun(op, who, released, order, 1)
        self.gathered[PASSED] = np.maximum(self.gathered[PASSED], released[PASSED, 0])
        self.in_flight.append(box)
        self.owed -= size

    def check_begun(self, op: Op, who: Ints, released: Ints, order: Order, room: int) -> None:
        """Refuse arrivals that may count for an earlier phase, or that exceed those expected."""
        late = self.known_to(released[PASSED]) < self.completed
        late[room:] = True
        if late.any():
            raise SimulationError(
                f"simulate: {op} may count for an older phase of "
                f"{order.barrier(self.agent)}: {order.name(int(who[late][0]))} does not know that "
                "it is complete: wait for that first"
            )

    def complete_loads(self, order: Order) -> None:
        """Complete the loads in flight, once all that the phase expects were started."""
        if self.arrived < self.expected or self.owed:
            return
        for each in self.in_flight:
            each.into.finish(each.cell, each.values)
        if self.in_flight:
            self.arrivals.append((np.array([self.agent]), np.array([order.clock + 1])))
        self.in_flight.clear()
        self.complete(order)

    def complete(self, order: Order) -> None:
        """Complete the phase if all have arrived."""
        if self.arrived < self.expected:
            return
        assert self.last is not None
        late = self.waited > self.gathered[PASSED]
        if late.any():
            raise SimulationError(
                f"simulate: {self.last} may complete the next phase of "
                f"{order.barrier(self.agent)} while {order.name(int(np.argmax(late)))} still waits "
                "for the one before: sync between that wait and this"
            )
        clock = order.clock + 1
        self.gathered[:, self.agent] = order.complete[self.agent] = clock
        who, when = (np.concatenate(each) for each in zip(*self.arrivals, strict=True))
        self.phases.append(Complete(clock, who, when))
        self.given = self.gathered.copy()
        self.arrivals.clear()
        self.arrived = 0
