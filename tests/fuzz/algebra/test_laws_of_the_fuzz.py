"""The laws of the fuzz: the conformance vectors obey them, what TVM answers wrongly breaks them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from tests.fuzz.algebra import laws
from tests.fuzz.algebra.cases import STREAMS, case_of
from tests.layoutalg.algebra.test_conformance import FILES, want
from tests.support import vectors

SMALL = 1500  # places, multiplied over the layouts of a row: larger rows take long by brute force

REFUTED = {
    "canonicalize-under-cuda-ill-formed-result": 1,
    "canonicalize-under-cuda-not-equivalent": 12,
    "is_direct_sum_left-unsound": 1,
    "operand-hits-canonicalize-under-cuda-fault": 2,
    "pack-floors-indivisible-stride": 11,
    "pack-ignores-offset-and-replica": 1,
    "slice-wrong-elements": 1,
    "tile-outer-replica-not-scaled": 9,
    "unpack-ignores-offset-and-replica": 3,
    "unpack-scales-thread-strides": 5,
}
"""Per fault, how many of TVM's recorded wrong answers the laws refute."""
JUDGED = {
    "is_tile_inner-result-cannot-be-tiled-back": 1,  # TVM's tile cannot, ours can
    "is_tile_inner-unsound-replica-rescaled": 4,  # right where tile scales replicas, as ours does
    "pack-floors-indivisible-stride": 1,  # of a unit iter, which moves nothing
    "tile-inner-offset-span-ignored": 1,  # ours ignores it too (L12)
    "tile-inner-replica-span-ignored": 3,
    "tile-nonpositive-inner-span": 8,  # ours refuses (L13)
    "tile-outer-offset-not-scaled": 12,  # nor does ours (L11)
    "tile-outer-replica-not-scaled": 3,  # of extent 1
}
"""The others, which are a matter of definition."""


def layouts(case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the layouts of a vector in the form of the oracle: shard present, zero offsets in."""
    found = {}
    for key, data in case.items():
        if isinstance(data, dict):
            inner = layouts({"tile": data["tile"]}) if "tile" in data else {}
            zeros = dict.fromkeys(data.get("offset0", []), 0)
            offset = {**data.get("offset", {}), **zeros}
            found[key] = {"shard": [], **data, **inner, "offset": offset}
    return found


def places_of(layout: dict[str, Any]) -> int:
    tile = layout.get("tile", layout)
    return math.prod(e for e, _, _ in [*tile.get("shard", []), *tile.get("replica", [])])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(FILES) - {"helpers", "spec"}))
def test_right_answers_obey_the_laws(name: str) -> None:
    judged = 0
    for row in vectors.read(f"{name}.jsonl"):
        case = row["in"] | layouts(row["in"])
        many = math.prod(map(places_of, layouts(row["in"]).values()))
        many = max(many, math.prod(case.get("to_shape", ())))
        if row.get("error") or row.get("oob") or row["out"] is None or many > SMALL:
            continue
        assert laws.holds(row["op"], case, want(row)), row
        judged += 1
    assert judged >= 20


def test_wrong_answers_break_the_laws() -> None:
    found = {True: Counter[str](), False: Counter[str]()}
    for row in vectors.read("tvm_bugs.jsonl"):
        if not row.get("error") and row["out"] is not None:
            holds = laws.holds(row["op"], row["in"] | layouts(row["in"]), want(row))
            found[holds][row["tvm_bug"]] += 1
    assert dict(found[False]) == REFUTED
    assert dict(found[True]) == JUDGED


@pytest.mark.parametrize("stream", STREAMS)
def test_a_case_depends_on_its_number_alone(stream: str) -> None:
    cases = [case_of(stream, 0, index) for index in range(20)]
    assert [case_of(stream, 0, index) for index in reversed(range(20))] == cases[::-1]
    assert cases != [case_of(stream, 1, index) for index in range(20)]
    assert {"op", "in"} <= cases[0].keys()
