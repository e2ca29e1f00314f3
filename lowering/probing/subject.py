"""What a probe is about: how it is measured, what is claimed of it, and what must be refuted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutalg.algebra.axis import WARP
from layoutalg.fragments import Fragment
from lowering.probing.raw import Ints, Measurement, Run

Tables = Mapping[str, Ints]
Change = Callable[[Ints, Ints], tuple[Ints, Ints]]
# (table, where, what the machine shows there, what is claimed) -> the difference, what is counted
Words = Callable[[str, tuple[int, ...], Any, Any], tuple[str, str]]
ROWS = ("received", "stored", "moved", "elements")  # tables whose entries are pairs of numbers


@dataclass(frozen=True)
class Conclusion:
    """What was measured and what is convention, in words, and tables as text, a row per lane."""

    measured: tuple[str, ...]
    convention: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Subject:
    """An instruction or a descriptor, with the claims that a machine is asked about.

    Args:
        ptx: the instruction.
        claims: layouts and descriptors as text, by operand.
        measure: runs it.
        claimed: the tables that the claims imply, named as the measurement names them.
        wrong: the tables that known wrong claims imply.
        words: says a difference.
        conclude: says what a measurement means.
    """

    ptx: str
    claims: Mapping[str, str]
    measure: Callable[[Run], Measurement]
    claimed: Tables
    wrong: Mapping[str, Tables]
    words: Words
    conclude: Callable[[Measurement, Run], Conclusion]


def first_difference(measured: Tables, claimed: Tables, words: Words) -> str | None:
    """Return the first place at which a claim is refuted, in words; None where there is none."""
    for name, seen in measured.items():
        said = claimed[name]
        differ = (seen != said).any(axis=-1) if name in ROWS else seen != said
        if differ.any():
            at = tuple(int(v) for v in np.argwhere(differ)[0])
            text, counted = words(name, at, seen[at], said[at])
            return f"{text}; {int(differ.sum())} of {differ.size} {counted}differ"
    return None


def wrong_changes(fragment: Fragment) -> dict[str, Change]:
    """Return what known wrong claims do to lanes and slots: what a certificate must refute.

    Two registers exchanged, or two slots of one register; of a warpgroup, two warps; lanes 4g + t
    at 2g + t; the lanes shifted by one.

    >>> from layoutalg import fragments
    >>> list(wrong_changes(fragments.get("mma.m16n8k16.f16", "A")))
    ['registers 1 and 2 exchanged', 'stride of the groups halved', 'lanes shifted by one']
    """
    kind, unit, count = "registers", fragment.pack, fragment.registers
    if count == 1:
        kind, unit, count = "slots", 1, fragment.slots
    middle = count > 2 and kind == "registers" and fragment.lanes == WARP  # a1 and a2
    one, two = (1, 2) if middle else (0, 1)

    def exchanged(lane: Ints, slot: Ints) -> tuple[Ints, Ints]:
        place = slot // unit
        other = np.where(place == one, two, np.where(place == two, one, place))
        return lane, other * unit + slot % unit

    found: dict[str, Change] = {}
    if count > 1:
        found[f"{kind} {one} and {two} exchanged"] = exchanged
    if fragment.lanes > WARP:
        found["warps 0 and 1 exchanged"] = lambda lane, slot: (
            np.where(lane < 2 * WARP, lane ^ WARP, lane),
            slot,
        )
    return found | {
        "stride of the groups halved": lambda lane, slot: (
            lane // WARP * WARP + lane % WARP // 4 * 2 + lane % 4,
            slot,
        ),
        "lanes shifted by one": lambda lane, slot: (lane + 1, slot),
    }
