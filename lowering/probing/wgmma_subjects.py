"""Subjects of a warpgroup: register fragments of wgmma, and descriptors of its shared operands.

Three things are measured (:mod:`lowering.probing.wgmma` says how):

- ``wgmma.m64nNk16.f16``: with N = 8, each place of A alone: which cells of B it meets, and in which
  places of D. The cells' (k, n) are tied to memory by a descriptor without swizzle; m is convention
  (a permutation common to A and D shows in no product).
- ``wgmma.m64n128 f32``: every N and accumulator: A selects one k per row, in two ways that tell the
  rows apart, so that each place of D shows its row (by A's fragment) and its column (of memory).
- ``descriptor.B.f16.MN.128``: the address that each element of every operand tile of a layout is
  read from, for a swizzle, a major dimension and an operand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from layoutalg import LayoutError
from layoutalg.fragments import Fragment
from lowering.isa import dtypes, wgmma
from lowering.isa.smem_descriptor import CHUNK, Descriptor
from lowering.isa.wgmma import WgmmaInst
from lowering.probing.raw import NOWHERE, Ints, Measurement, Run, place_name
from lowering.probing.subject import Change, Conclusion, Subject, Words, wrong_changes
from lowering.probing.wgmma import (
    RANDOM,
    Placed,
    dense_operand,
    measure_accumulator,
    measure_product,
    measure_reading,
)

# -- claims ---------------------------------------------------------------------------------------


def places(fragment: Fragment, change: Change | None = None) -> Ints:
    """Return the place of each element, (rows, cols) -> lane * slots + slot; NOWHERE where none.

    Args:
        fragment: of a warpgroup.
        change: what a wrong claim does to lanes and slots.
    """
    lane, slot = np.indices((fragment.lanes, fragment.slots))
    if change is not None:
        lane, slot = change(lane, slot)
    place = np.where(lane < fragment.lanes, lane * fragment.slots + slot, NOWHERE)
    found: Ints = np.empty(fragment.shape, dtype=np.int64)
    rows, cols = np.moveaxis(fragment.coords, -1, 0)
    found[rows, cols] = place
    return found


def claimed_products(inst: WgmmaInst, a: Ints, d: Ints) -> Ints:
    """Return the relation that places of A and D claim: (A place, cell of B) -> D place."""
    layout, _ = dense_operand(inst.n, inst.b)
    cell = layout.table((inst.n, inst.k))["m"]
    found = np.full((a.size, cell.size), NOWHERE, dtype=np.int64)
    i = np.broadcast_to(a[:, None, :], (inst.m, inst.n, inst.k))
    j = np.broadcast_to(cell[None], i.shape)
    landing = np.broadcast_to(d[:, :, None], i.shape)
    held = (i != NOWHERE) & (landing != NOWHERE)
    found[i[held], j[held]] = landing[held]
    return found


def claimed_elements(fragment: Fragment, place: Ints) -> Ints:
    """Return the (row, column) of each place; NOWHERE where the claim has none."""
    found = np.full((place.size, 2), NOWHERE, dtype=np.int64)
    rows, cols = np.nonzero(place != NOWHERE)
    found[place[rows, cols]] = np.stack([rows, cols], -1)
    return found


def wrong_descriptors(placed: Placed) -> dict[str, Descriptor]:
    """Return known wrong descriptors of a layout, each of which reads other cells.

    >>> list(wrong_descriptors(Placed("B", dtypes.get("f16"), "MN", 128)))
    ['no swizzle', '64-byte swizzle', 'offsets exchanged', 'stride halved']
    """
    right = placed.descriptor
    wrong = {
        ("no swizzle" if not mode else f"{mode}-byte swizzle"): replace(
            right, swizzle=mode, base_offset=right.base_offset if mode else 0
        )
        for mode in (0, 32, 64, 128)
        if mode != right.swizzle and (mode in (0, right.swizzle // 2) or not right.swizzle)
    }
    wrong["offsets exchanged"] = replace(right, leading=right.stride, stride=right.leading)
    wrong["stride halved"] = replace(right, stride=right.stride // 2 // CHUNK * CHUNK)
    if right.base_offset:
        wrong["no base offset"] = replace(right, base_offset=0)
    claim = placed.claim
    return {name: each for name, each in wrong.items() if (placed.cells_of(each) != claim).any()}


def words_of(slots: Mapping[str, int]) -> Words:
    """Return how differences of the tables of a warpgroup are said; ``slots`` of A and D."""

    def words(name: str, at: tuple[int, ...], seen: Any, said: Any) -> tuple[str, str]:
        if name == "products":
            machine, claim = (
                "nothing" if place == NOWHERE else f"D {place_name(int(place), slots['D'])}"
                for place in (seen, said)
            )
            where = f"A {place_name(at[0], slots['A'])} with cell {at[1]} of B"
            return f"{where}: the machine adds to {machine}, the claim to {claim}", ""
        elements = name == "elements"
        where = f"D {place_name(at[0], slots['D'])}" if elements else f"element {at}"
        verb = "has" if elements else "reads cell"
        return f"{where}: the machine {verb} {seen.tolist()}, the claim {said.tolist()}", ""

    return words


def _subject(
    ptx: str,
    claims: Mapping[str, str],
    measure: Any,
    table: str,
    claimed: Ints,
    wrong: Mapping[str, Ints],
    slots: Mapping[str, int],
    measured: tuple[str, ...],
    convention: tuple[str, ...],
) -> Subject:
    """Return a subject of one table; it is kept as text only where the claim is not it."""

    def conclude(found: Measurement, run: Run) -> Conclusion:
        seen = found.tables[table]
        rows = tuple(" ".join(map(str, row)) for row in seen.tolist())
        kept = {} if (seen == claimed).all() else {table: rows}
        return Conclusion(measured, convention, kept)

    return Subject(
        ptx,
        claims,
        measure,
        {table: claimed},
        {name: {table: values} for name, values in wrong.items()},
        words_of(slots),
        conclude,
    )


# -- subjects -------------------------------------------------------------------------------------


@cache
def _placed() -> dict[str, Placed]:
    """Return every layout that descriptors are probed with, by name."""
    found = []
    for operand in "BA":
        for token, majors in (("f16", ("K", "MN")), ("s8", ("K",)), ("tf32", ("K",))):
            for major in majors:
                for swizzle in (0, 32, 64, 128):
                    found.append(Placed(operand, dtypes.get(token), major, swizzle))
    for swizzle, late in ((128, 1), (128, 3), (64, 1), (32, 1)):
        found.append(Placed("B", dtypes.get("f16"), "K", swizzle, late))
    return {str(each): each for each in found}


def _register_rows() -> dict[str, WgmmaInst]:
    types = dict.fromkeys(a for a, b, _ in wgmma.operand_types() if a == b)
    return {wgmma.get(8, a).fragment("A").instruction: wgmma.get(8, a) for a in types}


def _accumulator_rows() -> dict[str, WgmmaInst]:
    return {
        f"wgmma.m64n{n} {d}": wgmma.get(n, a, d=d)
        for a, d in (("f16", "f32"), ("f16", "f16"), ("s8", "s32"))
        for n in WgmmaInst.legal_n(d)
    }


def names() -> tuple[str, ...]:
    """Return what can be probed: register A by type, D by N and type, descriptors by layout.

    >>> names()[0], names()[7], names()[-1], len(names())
    ('wgmma.m64nNk16.f16', 'wgmma.m64n8 f32', 'descriptor.B.f16.K.32+1', 125)
    """
    return (*_register_rows(), *_accumulator_rows(), *_placed())


_ROWS = "which numbers the 64 rows have: a permutation common to A and D shows in no product"


def _register_subject(inst: WgmmaInst) -> Subject:
    a, d = inst.fragment("A"), inst.fragment("D")
    right = claimed_products(inst, places(a), places(d))
    wrong = {
        f"{role}: {name}": claimed_products(
            inst,
            places(a, change if role == "A" else None),
            places(d, change if role == "D" else None),
        )
        for role, fragment in (("A", a), ("D", d))
        for name, change in wrong_changes(fragment).items()
    }
    return _subject(
        inst.ptx,
        {"A": str(a.layout), "D": str(d.layout), "B": str(dense_operand(inst.n, inst.b)[1])},
        lambda run: measure_product(inst, run),
        "products",
        right,
        wrong,
        {"A": a.slots, "D": d.slots},
        (
            "which place of A meets which (k, n) of B in memory, and in which place of D the "
            f"product lands: {right.size} pairs, A place by place",
            f"D starts from C in the same registers; {RANDOM} products of random integers are "
            "exact",
        ),
        (_ROWS,),
    )


def _accumulator_subject(inst: WgmmaInst) -> Subject:
    d = inst.fragment("D")
    return _subject(
        inst.ptx,
        {"D": str(d.layout), "B": str(dense_operand(inst.n, inst.b)[1])},
        lambda run: measure_accumulator(inst, run),
        "elements",
        claimed_elements(d, places(d)),
        {
            f"D: {name}": claimed_elements(d, places(d, change))
            for name, change in wrong_changes(d).items()
        },
        {"D": d.slots},
        (
            "the row of A's fragment and the column of B in memory that each place of D holds",
            "D starts from C in the same registers; 2 products of random integers are exact",
        ),
        (_ROWS, "A is laid out as its fragment, which N = 8 certifies"),
    )


def _reading_subject(placed: Placed) -> Subject:
    return _subject(
        placed.instruction.ptx,
        {placed.operand: str(placed.layout), "descriptor": str(placed.descriptor)},
        lambda run: measure_reading(placed, run),
        "cells",
        placed.claim,
        {name: placed.cells_of(wrong) for name, wrong in wrong_descriptors(placed).items()},
        {},
        (
            f"the cell of shared memory that each of {placed.shape[0]} x {placed.shape[1]} "
            f"elements is read from, {placed.rows} x {placed.instruction.k} at a time",
        ),
        ("D and the other operand are laid out as their own certificates say",),
    )


def wgmma_subject(name: str) -> Subject:
    """Return what is probed under a name.

    Raises:
        LayoutError: no such name.

    >>> wgmma_subject("descriptor.A.f16.K.128").claims["descriptor"]
    'K-major 128B, leading 16, stride 1024'
    """
    if name in _register_rows():
        return _register_subject(_register_rows()[name])
    if name in _accumulator_rows():
        return _accumulator_subject(_accumulator_rows()[name])
    if name in _placed():
        return _reading_subject(_placed()[name])
    raise LayoutError(
        f"probe: nothing is named {name!r}; names are as wgmma.m64nNk16.f16, wgmma.m64n128 f32 and "
        "descriptor.B.f16.MN.128"
    )
