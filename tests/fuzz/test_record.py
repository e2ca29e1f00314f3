"""What an H200 said of kernels of the fuzz, and what racecheck saw: the NumPy warp agrees."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fuzz import machines
from tests.support.paths import DATA

RECORD = json.loads((DATA / "hardware/h200_fuzz.json").read_text())
REPLAYED = [row for row in RECORD["kernels"] if "source" in row]


def test_the_device_gave_what_the_numpy_warp_gives() -> None:
    assert len(RECORD["kernels"]) >= 500
    assert all(row["equal"] for row in RECORD["kernels"])
    assert len(REPLAYED) == 40


@pytest.mark.slow
@pytest.mark.parametrize("row", REPLAYED, ids=lambda row: str(row["seed"]))
def test_the_numpy_warp_gives_what_the_device_gave(row: dict[str, Any]) -> None:
    names: dict[str, Any] = {"print": lambda found: None}
    exec("\n".join(row["source"]), names)
    assert machines.digest(names["found"]) == row["digest"]


def test_what_racecheck_saw_the_detector_refuses() -> None:
    rows = RECORD["races"]["kernels"]
    assert len(rows) >= 100
    assert [row["seed"] for row in rows if row["racecheck"] and not row["detector"]] == []
