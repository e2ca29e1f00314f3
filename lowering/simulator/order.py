"""What each agent of a cluster knows of what the others did: the order that a program makes.

A clock counts the operations that were run. For each pair of agents one number says until when what
the one did is known to the other: what it did before that time comes before whatever the other does
from now on. Meetings, releases and acquires pass whole rows of such numbers on, so that order is
transitive, as of vector clocks. :mod:`lowering.simulator.hazards` writes down which operation does
what here.

An agent is a thread, or a part of the async proxy: the ``wgmma`` of a warp, the TMA stores of a
warpgroup, the TMA loads that complete one mbarrier, ``tcgen05``. What
one of these started last it completes last, so that one number suffices for each of them too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from layoutalg.algebra.axis import WARP
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import TmaLoad, TmaStore, Wgmma, walk
from lowering.ir.register_map import WARPGROUP

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
FOREVER = np.iinfo(np.int64).max
# What is known: an access; that a thread came so far; that an access was fenced, of either kind.
MEMORY, PASSED, PROXY, TENSOR = range(4)


class Order:
    """The order between the agents of one cluster.

    ``known[kind, j, i]``: until when what i did is known to j: as an access of memory, as passed (a
    wait, an arrival: order of memory aside), as a write that a ``fence.proxy.async`` follows, as an
    access of tensor memory that a ``tcgen05.fence::before_thread_sync`` follows. ``acquired``: the
    last, once j has fenced too. ``complete``: until when what something beside the threads started
    is done, known or not. Agents of one CTA follow those of the one before; ``base`` is the first.
    """

    def __init__(self, body: KernelIR) -> None:
        """Begin with no order between any two agents."""
        self.threads, self.cluster = body.threads, body.cluster
        slots = [(each.name, slot) for each in body.barriers for slot in range(each.slots)]
        groups = -(-self.threads // WARPGROUP)
        sizes = {
            "producer": 1,
            "wgmma": -(-self.threads // WARP),
            "tma_store": groups,
            "tma_load": len(slots),
            "tcgen05": 1,
            "outside": 1,
        }
        at = self.threads
        self.first: dict[str, int] = {}
        for name, size in sizes.items():
            self.first[name] = at
            at += size
        self.width = at
        self.slots = {slot: self.first["tma_load"] + number for number, slot in enumerate(slots)}
        asynchronous = any(isinstance(op, (Wgmma, TmaStore, TmaLoad)) for op in walk(body.ops))
        kinds = 4 if body.tensor else 3 if asynchronous else 1 + bool(slots)
        size = self.width * self.cluster
        self.known = np.zeros((kinds, size, size), dtype=np.int64)
        self.acquired = np.zeros((size, size) if body.tensor else (0, 0), dtype=np.int64)
        self.complete = np.zeros(size, dtype=np.int64)
        self.clock = 0
        bases = np.arange(self.cluster)[:, None] * self.width
        acting = np.arange(self.threads + body.warp_specialized)
        self.actors = (bases + acting).ravel()  # all threads, those that produce included
        self.readers = (bases + np.arange(self.threads)).ravel()  # all that read as threads
        self.floors = [0] * self.cluster  # the last barrier of all threads, by CTA
        self._rows: dict[tuple[int, tuple[int, ...]], Ints] = {}

    # -- agents -------------------------------------------------------------------------------

    def base(self, rank: int) -> int:
        """Return the first agent of a CTA: its thread 0."""
        return rank * self.width

    def agent(self, rank: int, name: str, number: int = 0) -> int:
        """Return an agent that is no thread, of a CTA."""
        return self.base(rank) + self.first[name] + number

    def products(self, rank: int, group: int) -> tuple[int, ...]:
        """Return the agents of the wgmma of a warpgroup: one for each of its four warps."""
        first = self.agent(rank, "wgmma", group * (WARPGROUP // WARP))
        return tuple(range(first, first + WARPGROUP // WARP))

    def kind(self, agent: int) -> str:
        """Return what an agent is: "thread", or a name of :attr:`first`."""
        number = agent % self.width
        return next((name for name, at in reversed(self.first.items()) if number >= at), "thread")

    def name(self, agent: int) -> str:
        """Return what an agent is called in a message."""
        rank, number = divmod(agent, self.width)
        kind = self.kind(agent)
        place = number - self.first.get(kind, 0)
        of = f" of CTA {rank}" if self.cluster > 1 else ""
        if kind == "tma_load":
            return f"a box of {self.barrier(agent)}"
        names = {
            "thread": f"thread {number}",
            "producer": "the producer thread",
            "wgmma": f"warpgroup {place // (WARPGROUP // WARP)}",
            "tma_store": "a TMA store",
            "tcgen05": "tcgen05",
            "outside": "a TMA store",
        }
        return names[kind] + of

    def barrier(self, agent: int) -> str:
        """Return what the mbarrier of some TMA loads is called in a message."""
        rank, number = divmod(agent, self.width)
        name, slot = list(self.slots)[number - self.first["tma_load"]]
        return f"{name}[{slot}]" + (f" of CTA {rank}" if self.cluster > 1 else "")

    # -- what is known ------------------------------------------------------------------------

    def until(self, me: Ints, who: Ints) -> Ints:
        """Return until when what others did is known to some; one's own is known always."""
        found: Ints = np.where(me == who, FOREVER, self.known[MEMORY, me, who])
        return found

    def row(self, kind: int, agents: Sequence[int]) -> Ints:
        """Return until when what each agent did is known to all of some threads."""
        key = kind, tuple(agents)
        if key not in self._rows:
            who = np.asarray(agents)
            known = self.known[kind, who]
            if kind == MEMORY:
                known[np.arange(len(who)), who] = FOREVER
            self._rows[key] = known.min(axis=0)
        return self._rows[key]

    def oldest(self, who: Ints) -> int:
        """Return until when what all threads did is known to some threads."""
        return int(self.known[MEMORY][np.ix_(who, self.readers)].min())

    def floor(self, who: Ints, shared: bool) -> int:
        """Return a time that is not after :meth:`oldest`, without a search.

        Args:
            who: threads, ascending.
            shared: whether only the threads of one CTA count.
        """
        rank, first = divmod(int(who[0]), self.width)
        together = int(who[-1]) - int(who[0]) + first < self.threads
        return self.floors[rank] if together and (shared or self.cluster == 1) else 0

    # -- what makes order ---------------------------------------------------------------------

    def meet(self, groups: Ints, everyone: int | None = None) -> None:
        """Synchronise groups of threads: each knows what all of its group did and knew.

        Args:
            groups: (groups, threads): who meets whom.
            everyone: a CTA all of whose threads meet, for what follows to be quick.
        """
        self._rows.clear()
        self.known[: PASSED + 1, groups, groups] = self.clock
        first, last = int(groups[0, 0]), int(groups[-1, -1])
        if last - first + 1 == groups.size:  # neighbours: no copy is made
            here = self.known[:, first : last + 1]
            together = here.reshape(len(here), *groups.shape, -1)
            best = together.max(axis=2)
            for kind in range(len(here)):
                here[kind] = np.repeat(best[kind], groups.shape[1], axis=0)
        else:
            best = self.known[:, groups].max(axis=2)
            self.known[:, groups] = best[:, :, None]
        if everyone is not None:
            self.floors[everyone] = self.clock

    def released(self, who: Ints) -> Ints:
        """Release: return what each of some threads did and knows, for others to acquire.

        Returns:
            (kinds, threads, agents).
        """
        self.known[: PASSED + 1, who, who] = self.clock
        found: Ints = self.known[:, who]
        return found

    def acquire(self, who: Ints, released: Ints) -> None:
        """Acquire: let threads know what others released."""
        self._rows.clear()
        self.known[:, who] = np.maximum(self.known[:, who], released[:, None])

    def converge(self, groups: Ints) -> None:
        """Let the threads of a group know how far each has come; memory is not ordered.

        Args:
            groups: (groups, threads): who comes to one instruction together.
        """
        self.known[PASSED, groups, groups] = self.clock
        together = self.known[PASSED, groups].max(axis=1)
        self.known[PASSED, groups] = together[:, None]

    def learn(self, who: Ints, agent: Ints, until: int) -> None:
        """Let each thread know that what an agent started before a time is complete."""
        self._rows.clear()
        self.complete[agent] = np.maximum(self.complete[agent], until)
        self.known[:, who, agent] = np.maximum(self.known[:, who, agent], until)

    def fence_proxy(self, who: Ints) -> None:
        """``fence.proxy.async``: the async proxy sees what threads know as written."""
        self._rows.clear()
        self.known[PROXY, who] = self.known[MEMORY, who]
        self.known[PROXY, who, who] = self.clock

    def fence_tensor(self, side: str, who: Ints) -> None:
        """``tcgen05.fence``: before a barrier, or after it."""
        if side == "before":
            self.known[TENSOR, who, who] = self.clock
        else:
            self.acquired[who] = self.known[TENSOR, who]
