"""The wgmma of a warpgroup that are in flight on the NumPy warp, and the registers that they use.

A ``wgmma`` reads shared memory and registers, and writes its accumulator, at any time between its
start and the wait that completes it. What that means for shared memory,
:mod:`lowering.simulator.hazards`
says; here are the registers:

- registers touched since the last ``wgmma.fence`` are no operands; there is a fence before the
  first ``wgmma``; accumulators pass from one to the next of the same shape without one;
- what is under way must be complete, and named by a wait, before its registers are touched; a wait
  that leaves groups pending completes the older ones.

Source: PTX ISA, "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from lowering.ir.ops import Op, Registers, Wgmma, WgmmaWait
from lowering.simulator.hazards import SimulationError

Register = tuple[str, int]


@lru_cache(maxsize=4096)
def registers(elements: Registers) -> frozenset[Register]:
    """Return elements as (buffer, number).

    >>> sorted(registers(Registers("A", (0, 1))))
    [('A', 0), ('A', 1)]
    """
    return frozenset((elements.buffer, number) for number in elements.numbers)


def touched(op: Op) -> frozenset[Register]:
    """Return the registers that an operation of the threads names.

    >>> from lowering.ir.ops import Move
    >>> sorted(touched(Move(Registers("A", (0,)), Registers("B", (1,)))))
    [('A', 0), ('B', 1)]
    """
    if isinstance(op, (Wgmma, WgmmaWait)):  # they say themselves what goes on with theirs
        return frozenset()
    found = (registers(each) for _, each in op.parts if isinstance(each, Registers))
    return frozenset().union(*found)


@dataclass
class Warpgroup:
    """The state of the asynchronous tensor core for one warpgroup.

    ``groups``: what is under way; the last is open. ``commits``: when each other was closed.
    ``accumulating``: accumulators that no wait has completed. ``touches``: registers, and what
    touched them, since the last fence.
    """

    groups: list[list[Wgmma]] = field(default_factory=lambda: [[]])
    commits: list[int] = field(default_factory=list)
    accumulating: dict[Register, Wgmma] = field(default_factory=dict)
    touches: dict[Register, Op] = field(default_factory=dict)
    fenced: bool = False

    @property
    def under_way(self) -> list[Wgmma]:
        """What was started and is not complete."""
        return [each for group in self.groups for each in group]

    def touch(self, op: Op, each: frozenset[Register]) -> None:
        """Note the registers that an operation of the threads themselves touches."""
        for other in self.under_way:
            self.check_read(op, each, other)
        accumulated = each & self.accumulating.keys()
        if accumulated:
            first = min(accumulated)
            self.refuse(op, first, self.accumulating[first], "accumulates")
        self.touches.update(dict.fromkeys(each, op))

    def check_read(self, op: Op, each: frozenset[Register], other: Wgmma) -> None:
        """Refuse an access to the registers of A of something that is under way."""
        source = registers(other.a) if isinstance(other.a, Registers) else frozenset()
        if each & source:
            self.refuse(op, min(each & source), other, "reads")

    def refuse(self, op: Op, register: Register, other: Wgmma, verb: str) -> None:
        """Refuse an access to a register of something that is under way.

        Raises:
            SimulationError: always.
        """
        raise SimulationError(
            f"simulate: {op} touches {register[0]}[{register[1]}], which {other} "
            f"still {verb}: commit, and wait for it (naming what it completes)"
        )

    def start(self, op: Wgmma) -> None:
        """Check the registers of a wgmma, and note that it is under way.

        Raises:
            SimulationError: a register has no fence before it, or is under way.
        """
        if not self.fenced:
            raise SimulationError(
                f"simulate: {op} is the first of its warpgroup: a wgmma.fence must precede it"
            )
        into = registers(op.d)
        source = registers(op.a) if isinstance(op.a, Registers) else frozenset()
        stale = (into | source) & self.touches.keys()
        if stale:
            first = min(stale)
            raise SimulationError(
                f"simulate: {op} uses {first[0]}[{first[1]}] after "
                f"{self.touches[first]} with no wgmma.fence in between"
            )
        for register in sorted((into | source) & self.accumulating.keys()):
            other = self.accumulating[register]
            shapes = {each.instruction.shape for each in (op, other)}
            if register in source or len(shapes) > 1:
                self.refuse(op, register, other, "accumulates")
        for running in self.under_way:
            self.check_read(op, into, running)
        self.accumulating.update(dict.fromkeys(into, op))
        self.groups[-1].append(op)

    def fence(self) -> None:
        """Order what the threads did to registers before what follows."""
        self.fenced = True
        self.touches.clear()

    def commit(self, clock: int) -> None:
        """Close the open group."""
        self.groups.append([])
        self.commits.append(clock)

    def wait(self, op: WgmmaWait) -> int:
        """Complete all but the newest closed groups; what was not committed never completes.

        Returns:
            The time before which all that was started is complete; 0 for none.

        Raises:
            SimulationError: a register that it says to complete is still under way.
        """
        count = max(0, len(self.groups) - 1 - op.pending)
        until = self.commits[count - 1] if count else 0
        self.groups, self.commits = self.groups[count:], self.commits[count:]
        running = {register: each for each in self.under_way for register in registers(each.d)}
        for elements in op.complete:
            for register in sorted(registers(elements)):
                if register in running:
                    raise SimulationError(
                        f"simulate: {op} does not complete {register[0]}[{register[1]}], "
                        f"which {running[register]} still accumulates: commit it, and let "
                        "fewer groups be pending"
                    )
                self.accumulating.pop(register, None)
        return until

    def finish(self) -> None:
        """Refuse to end while something is under way.

        Raises:
            SimulationError: something is.
        """
        if self.under_way:
            raise SimulationError(
                f"simulate: {self.under_way[0]} is under way at the end: commit, and wait for it"
            )
