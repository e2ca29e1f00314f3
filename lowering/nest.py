"""The lowered call: a fully unrolled nest of register operations. No layouts are left in it.

A step is a tuple: ``("zero", d)``, ``("copy", d, c)`` or ``("mma", (d, …), (a, …), (b, …))``. The
numbers are registers of the operand's buffer: elements for D and C, 32-bit words for A and B.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layoutalg import TileLayout
from lowering.instructions import MmaInst
from lowering.registers import register_count
from lowering.tile import Buffer, TilePrimitiveCall

Step = tuple[Any, ...]


@dataclass(frozen=True)
class Nest:
    """What a variant makes of a gemm call.

    ``threads`` is the size of the CTA; every warp of it runs all steps. ``placements`` says for
    each role which threads hold an element of its buffer: the buffer's layout, with replicas for
    the warps that must hold copies (A in the warps that split N, B in those that split M).
    """

    call: TilePrimitiveCall
    instruction: MmaInst
    steps: tuple[Step, ...]
    threads: int
    target: str
    placements: Mapping[str, TileLayout]

    @property
    def mma(self) -> tuple[Step, ...]:
        """The mma steps alone."""
        return tuple(step for step in self.steps if step[0] == "mma")

    @property
    def accumulates(self) -> bool:
        """Whether D starts from C."""
        return any(step[0] == "copy" for step in self.steps)

    @property
    def registers(self) -> dict[str, int]:
        """Elements that each thread allocates, per role; C where it is a buffer of its own."""
        roles = ["D", "C", "A", "B"] if self.buffer("C") != self.buffer("D") else ["D", "A", "B"]
        return {role: register_count(self.buffer(role).layout) for role in roles}

    def buffer(self, role: str) -> Buffer:
        """Return the buffer of a role."""
        return self.call.operands[role].buffer

    @property
    def inputs(self) -> tuple[str, ...]:
        """The roles whose matrices the program reads."""
        return ("A", "B", "C") if self.accumulates else ("A", "B")
