"""Our conversions beside Triton 3.9's, on 63 pairs of layouts: at most its instructions on each.

Triton's counts come from its PTX: ``python -m tests.hardware.triton_conversions record``.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from layoutalg import Conversion, convert
from layoutalg.conversions.recipe import Moves, Price
from tests.hardware.triton_conversions import of_pair
from tests.support.paths import DATA

PAIRS = json.loads((DATA / "triton_conversions.json").read_text())["pairs"]


def converted(row: dict[str, Any]) -> Conversion:
    src, dst, shape, bits = of_pair(row)
    return convert(src, dst, shape, bits)


def price(counts: dict[str, int]) -> Price:
    """What Triton's instructions cost, as ours are priced; its accesses as if without conflicts."""
    packed = counts.get("prmt", 0) + counts.get("pack", 0)
    moves = []
    for way in ("st", "ld"):
        number, size = counts.get(way, 0) + counts.get(f"{way}matrix", 0), f"{way}_bytes"
        if number:
            waves = max(number, counts[size] // 4)
            moves.append(Moves(way, number, counts[size] // number, waves))
    shuffles, selects = counts.get("shfl", 0), counts.get("selp", 0)
    return Price(shuffles, counts.get("movmatrix", 0), selects, packed, tuple(moves))


@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_each_conversion_takes_at_most_what_triton_takes(number: int) -> None:
    row = PAIRS[number]
    found, theirs = converted(row), price(row["triton"])
    mine = found.price
    if mine.accesses:
        assert len(theirs.accesses) == 2, "Triton stays in the warp"
        assert (mine.shuffles, mine.movmatrices, mine.selects) == (0, 0, 0)
        for ours, other in zip(mine.accesses, theirs.accesses, strict=True):
            assert ours.count <= other.count
            assert ours.count * ours.size <= other.count * other.size
            assert ours.conflicts == 0
    elif not theirs.accesses:
        assert mine.shuffles + mine.movmatrices <= theirs.shuffles + theirs.movmatrices
        assert mine.selects <= theirs.selects
    assert mine.cycles <= theirs.cycles


def test_most_pairs_take_the_same_way() -> None:
    """Where ours stays in the warp and Triton does not, only the price compares them."""
    other = [
        number
        for number, row in enumerate(PAIRS)
        if bool(converted(row).price.accesses) != bool(price(row["triton"]).accesses)
    ]
    assert len(other) <= 7
    assert len(PAIRS) - len(other) >= 50


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_the_kernel_has_the_instructions_of_the_recipe_and_converts(number: int) -> None:
    src, dst, shape, bits = of_pair(PAIRS[number])
    found = convert(src, dst, shape, bits)
    program = found.program()
    script = program.script()
    assert len(re.findall(r" = shfl\.idx\(", script)) == found.shuffles
    assert len(re.findall(r" = prmt\(", script)) == found.permutes
    if found.price.accesses:
        stores, loads = found.accesses
        verbs = r"_scratch\[.*\] = |stmatrix", r" = \w+_scratch\[|ldmatrix"
        assert len(re.findall(verbs[0], script)) == stores.count
        assert len(re.findall(verbs[1], script)) == loads.count
    given = np.random.default_rng(number).integers(0, 100, shape)
    assert np.array_equal(program.simulate(before=given)["after"], given)
