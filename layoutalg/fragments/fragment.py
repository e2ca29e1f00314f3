"""One instruction fragment: a layout beside the formula of the PTX ISA, proved equal.

A row is data: a layout over ``laneid`` and ``m`` (m is the slot: the element inside the lane, low
element first, registers in operand order), and the formulas of the PTX ISA. Constructing a row
proves it: every slot of every lane holds one element, each element has as many copies as there are
lanes that the formula does not tell apart, and layout and formula are one map, in sympy on the
digits of lane and slot, and element by element. A wrong row cannot be made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg.algebra.axis import WARP
from layoutalg.errors import LayoutError
from layoutalg.fragments import certification
from layoutalg.fragments.certification import Certification
from layoutalg.fragments.targets import targets_of
from layoutalg.layouts.html import drawing, framed
from layoutalg.layouts.tile_layout import TileLayout
from layoutalg.sizes.dtypes import element_type

# The digits of a thread's number in a warpgroup: name -> (weight, extent).
LANE_DIGITS = {
    "w": (32, 4), "g": (4, 8), "t": (1, 4), "t0": (1, 2), "t1": (2, 2), "q": (4, 4), "h": (16, 2),
    "lane": (1, 32), "r": (1, 16),
}  # fmt: skip


@dataclass(frozen=True)
class Formula:
    """The PTX ISA's rule for one operand, as sums of digits.

    Digits of the thread are ``w = thread // 32`` (the warp of a warpgroup), ``g = lane // 4``
    (groupID) and ``t = lane mod 4`` (threadID_in_group) with its bits ``t0`` and ``t1``; where
    lanes work in other groups, ``q = lane // 4 mod 4`` and ``h = lane // 16``, ``r = lane mod 16``,
    or ``lane`` itself. The slot splits row-major into ``digits``, the last fastest. ``row``,
    ``col`` and ``product`` (where an instruction forms several) give the weight of each digit; a
    digit of the lane in none of them tells copies apart.

    >>> D = Formula((("rM", 2), ("rN", 2)), {"g": 1, "rM": 8}, {"t": 2, "rN": 1})
    >>> D.coords(WARP)[5].tolist()
    [[1, 2], [1, 3], [9, 2], [9, 3]]
    """

    digits: tuple[tuple[str, int], ...]
    row: Mapping[str, int]
    col: Mapping[str, int]
    product: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        """Refuse a digit that neither lane nor slot has.

        Raises:
            LayoutError: an unknown digit.
        """
        known = {*LANE_DIGITS, *(name for name, _ in self.digits)}
        for side in self.sides:
            if not set(side) <= known:
                unknown = ", ".join(sorted(set(side) - known))
                raise LayoutError(f"formula: unknown digit {unknown}; there are {', '.join(known)}")

    @property
    def sides(self) -> tuple[Mapping[str, int], ...]:
        """The weights of each logical dimension: product, where there is one, row and column."""
        return (self.row, self.col) if self.product is None else (self.product, self.row, self.col)

    @property
    def slots(self) -> int:
        """How many elements a lane holds."""
        return int(np.prod([extent for _, extent in self.digits], dtype=int))

    def slot_weights(self) -> dict[str, int]:
        """Return the weight of each digit in the slot's number, the slowest first."""
        weights: dict[str, int] = {}
        weight = 1
        for name, extent in reversed(self.digits):
            weights[name] = weight
            weight *= extent
        return dict(reversed(weights.items()))

    def lane_digits(self, lanes: int) -> tuple[str, ...]:
        """Return the digits of the lane that the rule uses, of a warp or a warpgroup."""
        used = {name for side in self.sides for name in side}
        return tuple(name for name in LANE_DIGITS if name in used and (name != "w" or lanes > WARP))

    def copies(self, lanes: int) -> int:
        """Return how many lanes hold each element: those that the rule does not tell apart."""
        apart = int(np.prod([LANE_DIGITS[name][1] for name in self.lane_digits(lanes)], dtype=int))
        return lanes // apart

    def coords(self, lanes: int) -> npt.NDArray[np.int64]:
        """Return the coordinate of every lane and slot: an array (lanes, slots, dimensions)."""
        lane, slot = np.indices((lanes, self.slots), dtype=np.int64)
        values: dict[str, Any] = {
            name: lane // weight % extent for name, (weight, extent) in LANE_DIGITS.items()
        }
        extents = dict(self.digits)
        for name, weight in self.slot_weights().items():
            values[name] = slot // weight % extents[name]
        coords = np.zeros((lanes, self.slots, len(self.sides)), dtype=np.int64)
        for at, side in enumerate(self.sides):
            for digit, weight in side.items():
                coords[..., at] += weight * values[digit]
        return coords

    def __str__(self) -> str:
        """Return the rule as the ISA would print it."""

        def total(side: Mapping[str, int]) -> str:
            return " + ".join(name if w == 1 else f"{w}*{name}" for name, w in side.items()) or "0"

        names = ("product", "row", "col")[-len(self.sides) :]
        rules = [f"{name} = {total(side)}" for name, side in zip(names, self.sides, strict=True)]
        return ", ".join([*rules, f"slot = {total(self.slot_weights())}"])


@dataclass(frozen=True)
class Fragment:
    """One operand of one instruction, proved when it is constructed.

    ``layout`` maps an element (row, col) of the operand's tile to the lane that holds it and to its
    slot there; A is (M, K), B is (K, N), C and D are (M, N). An instruction that forms several
    products has them as one more dimension, outermost. Replicas of the layout are copies that lanes
    hold alike.

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
    products: int = 1

    def __post_init__(self) -> None:
        """Prove the row.

        Raises:
            LayoutError: the layout is of another size, misses or repeats a slot, has another
                number of copies, or differs from the formula; the first element that differs is
                named. Or no target has the instruction.
        """
        targets_of(self.min_arch)
        name = f"fragment {self.instruction} {self.operand}"
        elements = self.products * self.shape[0] * self.shape[1]
        if self.layout.size() != elements:
            raise LayoutError(
                f"{name}: a layout of {elements} elements is needed for {self.tile}; got "
                f"{self.layout}"
            )
        copies = self.formula.copies(self.lanes)
        if self.lanes * self.slots != elements * copies:
            raise LayoutError(
                f"{name}: {self.lanes} lanes of {self.slots} slots, {copies} lanes alike, do not "
                f"hold {elements} elements"
            )
        held = self.slots * self.bits
        if self.register_bits % self.bits or held % min(self.register_bits, held):
            raise LayoutError(
                f"{name}: {self.slots} slots of {self.bits} bits do not fill whole registers of "
                f"{self.register_bits} bits"
            )
        lane, slot = self._places()
        places = lane * self.slots + slot
        inside = (lane >= 0) & (lane < self.lanes) & (slot >= 0) & (slot < self.slots)
        if not inside.all() or np.unique(places).size != places.size or lane.shape[-1] != copies:
            raise LayoutError(
                f"{name}: {self.layout} does not give each slot of {self.lanes} lanes one element "
                f"in {copies} copies"
            )
        want = self.formula.coords(self.lanes)
        have = self.holds
        wrong = np.argwhere((want != have).any(axis=-1))
        if wrong.size:
            at = tuple(int(i) for i in wrong[0])
            raise LayoutError(
                f"{name}: lane {at[0]} slot {at[1]} holds {tuple(map(int, have[at]))} by the "
                f"layout {self.layout}, {tuple(map(int, want[at]))} by the formula {self.formula} "
                f"({self.source}); {len(wrong)} of {self.lanes * self.slots} places differ"
            )
        here, said = self.symbolic()
        if here != said:
            raise LayoutError(
                f"{name}: the layout {self.layout} puts the element of the formula "
                f"{self.formula} at {here}, the formula at {said}"
            )

    @property
    def tile(self) -> tuple[int, ...]:
        """The logical shape of the layout: the products, where there are several, and ``shape``."""
        return self.shape if self.products == 1 else (self.products, *self.shape)

    def is_accumulator(self, named: object) -> bool:
        """Say whether a text names this operand as the accumulator: "C", "D.f16", "C/D.float16".

        >>> from layoutalg.fragments import get
        >>> row = get("mma.m16n8k16.f16", "C/D.f16")
        >>> [row.is_accumulator(name) for name in ("D", "C.float16", "D.f32", "A")]
        [True, True, False, False]
        """
        role, _, dtype = str(named).partition(".")
        accumulates = self.operand.split(".")[0] in ("C/D", "D")
        same = not dtype or element_type(dtype) == element_type(self.dtype)
        return accumulates and role in ("C", "D", "C/D") and same

    def symbolic(self) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """Return (thread, slot) of an element in the rule's digits: by the layout, by the rule.

        The element's coordinates are the rule's sums; what the layout makes of them is simplified
        in sympy with each digit's range, and must be the rule's own thread and slot, for all values
        of the digits at once. Copies count from the first.

        >>> from layoutalg.fragments import get
        >>> get("mma.m16n8k16.f16", "D").symbolic()[0]
        (4*g + t, 2*rM + rN)
        """
        from layoutalg.sizes.symbolic import DigitSymbol

        names = self.formula.lane_digits(self.lanes)
        extents = {name: LANE_DIGITS[name][1] for name in names} | dict(self.formula.digits)
        digits = {name: DigitSymbol(name, extent) for name, extent in extents.items() if extent > 1}
        point = [
            sum((weight * digits.get(name, 0) for name, weight in side.items()), start=0)
            for side in self.formula.sides
        ]
        place = self.layout.apply(*point, shape=self.tile)
        here = place.get("laneid", 0) + WARP * place.get("wid_in_wg", 0), place.get("m", 0)
        lane = sum(LANE_DIGITS[name][0] * digits[name] for name in names)
        weights = self.formula.slot_weights()
        slot = sum((w * digits.get(name, 0) for name, w in weights.items()), start=0)
        return here, (lane, slot)

    def _places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the threads and the slot of every element: one more dimension, of copies."""
        table = self.layout.table(self.tile, replicas=True)
        thread = table["laneid"] + WARP * table.get("wid_in_wg", np.int64(0))
        slot = table.get("m", np.int64(0))
        return np.broadcast_arrays(thread, slot)  # type: ignore[return-value]

    @property
    def slots(self) -> int:
        """How many elements a lane holds."""
        return self.formula.slots

    @property
    def copies(self) -> int:
        """How many lanes hold each element."""
        return self.formula.copies(self.lanes)

    @property
    def registers(self) -> int:
        """How many registers a lane passes: computed from bits, never from prose."""
        return -(-self.slots * self.bits // self.register_bits)

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that have the instruction, oldest first.

        >>> from layoutalg.fragments import get
        >>> get("wgmma.m64n8", "D.f32").targets
        ('sm_90a',)
        """
        return targets_of(self.min_arch)

    @property
    def pack(self) -> int:
        """How many elements share a register."""
        return self.register_bits // self.bits

    @property
    def holds(self) -> npt.NDArray[np.int64]:
        """The coordinate of every lane and slot: an int array (lanes, slots, dimensions of tile).

        >>> from layoutalg.fragments import get
        >>> get("mma.m8n8k4.f16", "A").holds[5, 2].tolist()  # product 1, row 1, column 2
        [1, 1, 2]
        """
        held = np.full((self.lanes, self.slots, len(self.tile)), -1, dtype=np.int64)
        held[self._places()] = np.moveaxis(np.indices(self.tile), 0, -1)[..., None, :]
        return held

    @property
    def coords(self) -> npt.NDArray[np.int64]:
        """The (row, col) of every lane and slot: an int array (lanes, slots, 2).

        >>> from layoutalg.fragments import get
        >>> get("mma.m16n8k8.f16", "B").coords[1].tolist()
        [[2, 0], [3, 0]]
        """
        return self.holds[..., -2:]

    @property
    def certificate(self) -> Certification:
        """What stands behind the row: a machine that was asked, an assembler, or nothing.

        >>> from layoutalg.fragments import get
        >>> get("mma.m16n8k16.f16", "A").certificate.statement.split(": ")[1]
        'slot relation; labels tied to memory through ldmatrix'
        """
        return certification.of(self.instruction, self.operand, str(self.layout))

    def tiled(self, rows: int, cols: int) -> TileLayout:
        """Return the layout of a larger operand made of this tile, row-major in registers.

        Raises:
            LayoutError: the extents are no multiples of the tile's.

        >>> from layoutalg.fragments import get
        >>> print(get("mma.m16n8k16.f16", "D").tiled(32, 16))
        S[(2,2,8,2,4,2):(8,2,4@laneid,4,1@laneid,1)]
        """
        return self.layout.tile_to((*self.tile[:-2], rows, cols), self.tile)

    def to_html(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        lane: int = 5,
        title: str | None = None,
    ) -> str:
        """Return a self-contained HTML page of the operand: :func:`layoutalg.draw.fragment_html`.

        :func:`layoutalg.fragments.to_html` shows all operands of an instruction, linked.

        >>> from layoutalg.fragments import get
        >>> get("mma.m16n8k16.f16", "A").to_html().startswith("<!DOCTYPE html>")
        True
        """
        text: str = drawing().fragment_html(self, path=path, lane=lane, title=title)
        return text

    def _repr_html_(self) -> str:
        """Return the page in a frame, for a notebook."""
        return framed(self.to_html(), f"{self.instruction}: {self.operand}")
