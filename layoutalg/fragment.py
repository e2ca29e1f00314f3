"""One instruction fragment: a layout beside the formula of the PTX ISA, proved equal.

A row is data: a layout over ``laneid`` and ``m`` (m is the slot: the element inside the lane, low
element first, registers in operand order), and the formulas of the PTX ISA. Constructing a row
proves it: the layout covers its tile exactly once and says what the formulas say, element by
element. A wrong row cannot be made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg.display import drawing, framed
from layoutalg.errors import LayoutError
from layoutalg.layout import TileLayout

WARP = 32


@dataclass(frozen=True)
class Formula:
    """The PTX ISA's rule for one operand, as sums of digits.

    ``w = thread // 32`` (the warp of a warpgroup), ``g = lane // 4`` (groupID) and
    ``t = lane mod 4`` (threadID_in_group); the slot splits row-major into ``digits``, the last
    fastest. ``row`` and ``col`` give the weight of each digit.

    >>> D = Formula((("rM", 2), ("rN", 2)), {"g": 1, "rM": 8}, {"t": 2, "rN": 1})
    >>> D.coords(WARP)[5].tolist()
    [[1, 2], [1, 3], [9, 2], [9, 3]]
    """

    digits: tuple[tuple[str, int], ...]
    row: Mapping[str, int]
    col: Mapping[str, int]

    @property
    def slots(self) -> int:
        """How many elements a lane holds."""
        return int(np.prod([extent for _, extent in self.digits], dtype=int))

    def coords(self, lanes: int) -> npt.NDArray[np.int64]:
        """Return (row, col) of every lane and slot: an array (lanes, slots, 2)."""
        lane, slot = np.indices((lanes, self.slots), dtype=np.int64)
        values: dict[str, Any] = {"w": lane // WARP, "g": lane % WARP // 4, "t": lane % 4}
        for name, extent in reversed(self.digits):
            values[name] = slot % extent
            slot = slot // extent
        coords = np.empty((lanes, self.slots, 2), dtype=np.int64)
        for at, side in enumerate((self.row, self.col)):
            coords[..., at] = sum(weight * values[digit] for digit, weight in side.items())
        return coords

    def __str__(self) -> str:
        """Return the rule as the ISA would print it."""

        def total(side: Mapping[str, int]) -> str:
            return " + ".join(name if w == 1 else f"{w}*{name}" for name, w in side.items())

        weights = {}
        weight = 1
        for name, extent in reversed(self.digits):
            weights[name] = weight
            weight *= extent
        slot = total(dict(reversed(weights.items())))
        return f"row = {total(self.row)}, col = {total(self.col)}, slot = {slot}"


@dataclass(frozen=True)
class Fragment:
    """One operand of one instruction, proved when it is constructed.

    ``layout`` maps an element (row, col) of the operand's tile to the lane that holds it and to its
    slot there; A is (M, K), B is (K, N), C and D are (M, N).

    >>> from layoutalg.fragments import get
    >>> get("mma.m16n8k16.f16", "A").registers
    4
    """

    instruction: str
    operand: str
    dtype: str
    bits: int
    shape: tuple[int, int]
    layout: TileLayout
    formula: Formula
    min_arch: str
    source: str
    lanes: int = WARP
    register_bits: int = 32

    def __post_init__(self) -> None:
        """Prove the row.

        Raises:
            LayoutError: the layout is of another size, misses or repeats a place, or differs from
                the formula; the first element that differs is named.
        """
        name = f"fragment {self.instruction} {self.operand}"
        rows, cols = self.shape
        if self.layout.size() != rows * cols or self.layout.replica:
            raise LayoutError(
                f"{name}: a layout of {rows * cols} elements without replicas is needed for "
                f"{self.shape}; got {self.layout}"
            )
        if self.lanes * self.slots != rows * cols:
            raise LayoutError(
                f"{name}: {self.lanes} lanes of {self.slots} slots do not hold {rows * cols} "
                "elements"
            )
        if self.slots * self.bits % self.register_bits:
            raise LayoutError(
                f"{name}: {self.slots} slots of {self.bits} bits do not fill whole registers of "
                f"{self.register_bits} bits"
            )
        lane, slot = self._places()
        places = lane * self.slots + slot
        if (slot >= self.slots).any() or np.unique(places).size != places.size or places.min() < 0:
            raise LayoutError(f"{name}: {self.layout} does not give each slot one element")
        want = self.formula.coords(self.lanes)
        have = np.empty_like(want)
        have[lane, slot] = np.moveaxis(np.indices(self.shape), 0, -1)
        wrong = np.argwhere((want != have).any(axis=-1))
        if wrong.size:
            at = tuple(int(i) for i in wrong[0])
            raise LayoutError(
                f"{name}: lane {at[0]} slot {at[1]} holds {tuple(map(int, have[at]))} by the "
                f"layout {self.layout}, {tuple(map(int, want[at]))} by the formula {self.formula} "
                f"({self.source}); {len(wrong)} of {rows * cols} elements differ"
            )

    def _places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the thread and the slot of every element."""
        table = self.layout.table(self.shape)
        thread = table["laneid"] + WARP * table.get("wid_in_wg", np.int64(0))
        return thread, table.get("m", np.zeros_like(thread))

    @property
    def slots(self) -> int:
        """How many elements a lane holds."""
        return self.formula.slots

    @property
    def registers(self) -> int:
        """How many registers a lane passes: computed from bits, never from prose."""
        return self.slots * self.bits // self.register_bits

    @property
    def pack(self) -> int:
        """How many elements share a register."""
        return self.register_bits // self.bits

    @property
    def coords(self) -> npt.NDArray[np.int64]:
        """The (row, col) of every lane and slot: an int array (lanes, slots, 2).

        >>> from layoutalg.fragments import get
        >>> get("mma.m16n8k8.f16", "B").coords[1].tolist()
        [[2, 0], [3, 0]]
        """
        coords = np.empty((self.lanes, self.slots, 2), dtype=np.int64)
        coords[self._places()] = np.moveaxis(np.indices(self.shape), 0, -1)
        return coords

    def tiled(self, rows: int, cols: int) -> TileLayout:
        """Return the layout of a larger operand made of this tile, row-major in registers.

        Raises:
            LayoutError: the extents are no multiples of the tile's.

        >>> from layoutalg.fragments import get
        >>> print(get("mma.m16n8k16.f16", "D").tiled(32, 16))
        S[(2,2,8,2,4,2):(8,2,4@laneid,4,1@laneid,1)]
        """
        return self.layout.tile_to((rows, cols), self.shape)

    def to_html(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        lane: int = 5,
        title: str | None = None,
    ) -> str:
        """Return a self-contained HTML page of the operand: :func:`layoutalg.draw.fragment_html`.

        :func:`layoutalg.fragments.to_html` shows all operands of an instruction, linked.

        >>> from layoutalg.fragments import get
        >>> get("mma.m16n8k16.f16", "A").to_html().startswith("<!DOCTYPE html>")
        True
        """
        text: str = drawing().fragment_html(self, path, lane=lane, title=title)
        return text

    def _repr_html_(self) -> str:
        """Return the page in a frame, for a notebook."""
        return framed(self.to_html(), f"{self.instruction}: {self.operand}")
