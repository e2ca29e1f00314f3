"""Claims about one warp: the tables that a machine must show if layouts are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutalg import LayoutError, TileLayout
from layoutalg.algebra.axis import WARP
from layoutalg.fragments import Fragment
from lowering.probing.mma import BASE
from lowering.probing.raw import NOWHERE, Ints, place_name
from lowering.probing.subject import Change, Words, wrong_changes

TWICE = -2  # entry of a claimed table: two things are said to be there


@dataclass(frozen=True)
class Claim:
    """Where a layout says that an operand's elements are: (rows, cols) -> place, or NOWHERE.

    Of several products, (products, rows, cols); of copies, the first.
    """

    operand: str
    slots: int
    places: Ints

    @classmethod
    def of(cls, fragment: Fragment, layout: TileLayout | None = None) -> Claim:
        """Return the claim of a layout for a fragment's tile; by default the fragment's own.

        Raises:
            LayoutError: the layout is of another size, or on other axes than laneid and m.
        """
        chosen = fragment.layout if layout is None else layout
        name = f"probe: operand {fragment.operand} of {fragment.instruction}"
        if chosen.size() != fragment.layout.size():
            raise LayoutError(
                f"{name} has {fragment.layout.size()} elements {fragment.tile}; "
                f"{chosen} has {chosen.size()}"
            )
        cells = chosen.table(fragment.tile)
        if not set(cells) <= {"laneid", "m"}:
            raise LayoutError(f"{name} lies on the axes laneid and m; {chosen} is on {set(cells)}")
        none = np.zeros(fragment.tile, dtype=np.int64)
        lane, slot = cells.get("laneid", none), cells.get("m", none)
        inside = (lane >= 0) & (lane < WARP) & (slot >= 0) & (slot < fragment.slots)
        places = np.where(inside, lane * fragment.slots + slot, NOWHERE)
        return cls(fragment.operand, fragment.slots, places)

    def moved(self, change: Change) -> Claim:
        """Return the claim with every (lane, slot) changed."""
        lane, slot = change(self.places // self.slots, self.places % self.slots)
        inside = (lane >= 0) & (lane < WARP)
        places = np.where(inside, lane * self.slots + slot, NOWHERE)
        return Claim(self.operand, self.slots, places)

    def elements(self) -> Ints:
        """Return the element that each place holds: (places, 2), NOWHERE where none, TWICE two."""
        found = np.full((WARP * self.slots, 2), NOWHERE, dtype=np.int64)
        for coordinate in np.ndindex(self.places.shape):
            place = self.places[coordinate]
            if place != NOWHERE:
                found[place] = TWICE if found[place][0] != NOWHERE else coordinate
        return found


def claimed_products(a: Claim, b: Claim, d: Claim, columns: Ints | None = None) -> Ints:
    """Return the relation that three fragments claim: (A place, B place) -> D place.

    ``columns`` says which k each column of A is, where A is sparse.

    >>> from layoutalg import fragments
    >>> A, B, D = (Claim.of(fragments.get("mma.m16n8k8.f16", role)) for role in "ABD")
    >>> claimed_products(A, B, D)[0, :4].tolist()  # lane 0 of A is k 0 and 1 of row 0
    [0, -1, -1, -1]
    """
    others = b.places if columns is None else b.places[columns]
    i = np.broadcast_to(a.places[..., None], (*a.places.shape, others.shape[-1]))
    j = np.broadcast_to(others[..., None, :, :], i.shape)
    where = np.broadcast_to(d.places[..., :, None, :], i.shape)
    held = (i != NOWHERE) & (j != NOWHERE)
    i, j, where = i[held], j[held], where[held]
    found = np.full((WARP * a.slots, WARP * b.slots), NOWHERE, dtype=np.int64)
    found[i, j] = where
    twice = found[i, j] != where
    found[i[twice], j[twice]] = TWICE
    return found


def claimed_tables(instruction: str, claims: Mapping[str, Claim]) -> dict[str, Ints]:
    """Return the tables that claims imply, named as the measurement names them.

    >>> from layoutalg import fragments
    >>> move = "movmatrix.m8n8.trans.b16"
    >>> claims = {role: Claim.of(fragments.get(move, role)) for role in ("src", "dst")}
    >>> claimed_tables(move, claims)["moved"][:2].tolist()  # lane 0 receives from lanes 0 and 4
    [[0, 0], [4, 0]]
    """
    if instruction.startswith("mma"):
        a, b, d = (claims[role] for role in "ABD")
        accumulator = {"accumulator": np.arange(WARP * d.slots)}
        if "E" not in claims:
            return {"products": claimed_products(a, b, d)} | accumulator
        j = np.arange(a.places.shape[1])
        columns = j // 2 * 4 + BASE[j]
        held = claims["E"]
        positions = np.full(BASE.size, NOWHERE, dtype=np.int64)
        inside = held.places != NOWHERE
        positions[held.places[inside]] = a.places[inside]
        return {
            "products": claimed_products(a, b, d, columns),
            "products moved": claimed_products(a, b, d, columns + 1),
            "positions": positions,
        } | accumulator
    if instruction.startswith("ldmatrix"):
        return {"received": claims["dst"].elements()}
    if instruction.startswith("movmatrix"):
        row, col = claims["dst"].elements().T
        places = np.where(row < 0, NOWHERE, claims["src"].places[row, col])
        missing = (places == NOWHERE)[:, None]
        return {"moved": np.where(missing, NOWHERE, np.stack([places // 2, places % 2], -1))}
    return {"stored": claims["src"].elements()}


def words_of(slots: Mapping[str, int]) -> Words:
    """Return how differences of the tables of one warp are said; ``slots`` of each operand."""

    def words(name: str, at: tuple[int, ...], seen: Any, said: Any) -> tuple[str, str]:
        if name.startswith("products"):
            where = f"A {place_name(at[0], slots['A'])} with B {place_name(at[1], slots['B'])}"
            machine, claim = (_landing(int(each), slots["D"]) for each in (seen, said))
            return f"{where}: the machine {machine}, the claim {claim}", "pairs "
        where = place_name(
            at[0], slots[{"accumulator": "D", "positions": "E"}.get(name, list(slots)[-1])]
        )
        machine, claim = (_cell(name, each) for each in (seen, said))
        return f"{where}: the machine has {machine}, the claim {claim}", "places "

    return words


def _landing(place: int, slots: int) -> str:
    if place == NOWHERE:
        return "multiplies nothing"
    return "says two things" if place == TWICE else f"adds to D {place_name(place, slots)}"


def _cell(name: str, cell: Any) -> str:
    if name == "accumulator":
        return f"what place {cell} of C holds"
    if name == "positions":
        return "nothing to place" if cell == NOWHERE else f"the position of place {cell} of A"
    if cell[0] == NOWHERE:
        return "nothing"
    if name == "moved":
        return f"what slot {cell[1]} of lane {cell[0]} holds"
    return "two elements" if cell[0] == TWICE else f"column {cell[1]} of the row of lane {cell[0]}"


def wrong_claims(fragment: Fragment) -> dict[str, Claim]:
    """Return known wrong claims for an operand: what a certificate must refute."""
    right = Claim.of(fragment)
    return {name: right.moved(change) for name, change in wrong_changes(fragment).items()}
