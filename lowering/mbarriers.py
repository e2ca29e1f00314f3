"""The mbarriers of a CTA while the NumPy warp runs: arrivals, bytes to come, phases.

What an arrival releases is kept with its barrier, and whoever has waited for the phase that it
completed acquires it: see :mod:`lowering.hazards`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lowering.hazards import Cells
from lowering.order import Order

Ints = npt.NDArray[np.int64]
Matrix = npt.NDArray[Any]


@dataclass(frozen=True)
class Box:
    """A box under way to cells of this CTA."""

    into: Cells
    cell: Ints
    values: Matrix


@dataclass
class Mbarrier:
    """An mbarrier: arrivals of this phase, phases completed, boxes under way.

    ``agent``: the boxes that complete it. ``owed``: bytes that this phase awaits and that nothing
    has ordered yet. ``gathered``: what those who arrived released, this phase included; ``given``:
    without it, for those who have waited.
    """

    agent: int
    expected: int
    gathered: Ints
    arrived: int = 0
    completed: int = 0
    boxes: list[Box] = field(default_factory=list)
    owed: int = 0

    def __post_init__(self) -> None:
        """Begin with nothing to give."""
        self.given = self.gathered.copy()

    @property
    def full(self) -> bool:
        """Whether all that this phase awaits has been ordered."""
        return self.arrived >= self.expected and self.owed <= 0

    def arrive(self, count: int, released: Ints, order: Order) -> None:
        """Let so many arrive, and release what they know."""
        np.maximum(self.gathered, released, out=self.gathered)
        self.arrived += count
        if not self.boxes and not self.owed:
            self.complete(order)

    def land(self, order: Order) -> None:
        """Let the boxes under way arrive, once all of the phase were ordered."""
        if self.arrived >= self.expected and not self.owed:
            for each in self.boxes:
                each.into.finish(each.cell, each.values)
            if self.boxes:
                self.gathered[:, self.agent] = order.complete[self.agent] = order.clock + 1
            self.boxes = []
            self.complete(order)

    def complete(self, order: Order) -> None:
        """Complete the phases that all have arrived at."""
        while self.arrived >= self.expected:
            self.arrived -= self.expected
            self.completed += 1
            self.given = self.gathered.copy()
