"""A grid of CTAs on the NumPy warp, one cluster after the other, and the bank conflicts of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lowering.ir.kernel_ir import KernelIR
from lowering.ir.matrices import Matrix
from lowering.simulator.hazards import Cells
from lowering.simulator.machine import Machine
from lowering.simulator.run import cluster, run_to_end


@dataclass
class Grid:
    """A grid of CTAs over one global memory, run one CTA or one cluster after the other.

    ``sizes`` gives the scalars of the body; ``extents`` and ``pitches``, what a tensor map would.
    ``unwritten``: parameters that nothing wrote before. ``first``: the first CTA that ran; it
    counts the bank conflicts of all.
    """

    body: KernelIR
    sizes: Mapping[str, Any]
    extents: Mapping[str, tuple[int, int]]
    pitches: Mapping[str, int]
    memory: dict[str, Cells] = field(default_factory=dict)
    unwritten: frozenset[str] = frozenset()
    first: Machine | None = None

    def run(self, extents: tuple[int, int], cells: Mapping[str, Matrix]) -> dict[str, Matrix]:
        """Run every CTA and return the cells of all parameters.

        Raises:
            SimulationError: a CTA reads what nothing wrote, or races.
        """
        for by in range(extents[1]):
            for bx in range(0, extents[0], self.body.cluster):
                machines = cluster(self.body, bx, by)
                for machine in machines:
                    machine.env |= self.sizes
                    machine.extents |= self.extents
                    machine.pitches |= self.pitches
                    for name, values in cells.items():
                        if name not in self.memory:
                            known = name not in self.unwritten
                            machine.allocate(self.body.buffer(name), values.copy(), known)
                            self.memory[name] = machine.memory[name]
                    machine.memory |= self.memory
                run_to_end(machines[0])
                self.first = self.first or machines[0]
                for machine in machines:
                    self.count(machine)
                for memory in self.memory.values():
                    memory.leave()
        return {name: memory.values for name, memory in self.memory.items()}

    def count(self, machine: Machine) -> None:
        """Add the wavefronts of a CTA to those of the first."""
        assert self.first is not None
        for op, (there, fewest) in machine.banks.items() if machine is not self.first else ():
            here = self.first.banks.setdefault(op, [0, 0])
            here[0], here[1] = here[0] + there, here[1] + fewest


@dataclass(frozen=True)
class BankCount:
    """Shared-memory wavefronts of one operation: how many there were, and the fewest possible."""

    op: str
    wavefronts: int
    fewest: int


def bank_counts(machine: Machine) -> tuple[BankCount, ...]:
    """Return the shared-memory wavefronts of each operation, in program order."""
    return tuple(BankCount(op, *counts) for op, counts in machine.banks.items())
