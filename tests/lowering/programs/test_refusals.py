"""Every program of the table of refusals is refused, in exactly the words that the table has.

The table is data (`data/refusals.json`): by kind of fault, a program, the class of its error and
the message. A reworded message changes the table and nothing else.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import sympy

import layoutalg as la
import lowering as lw
from layoutalg import (
    ComposeLayout,
    R,
    S,
    TileLayout,
    fragments,
    laneid,
    m,
    parse,
    tx,
    warpid,
)
from tests.support.paths import DATA

TABLE: dict[str, list[dict[str, Any]]] = json.loads((DATA / "refusals.json").read_text())
NAMES = {
    "la": la, "lw": lw, "np": np, "sympy": sympy, "parse": parse, "S": S, "R": R,
    "TileLayout": TileLayout, "ComposeLayout": ComposeLayout, "laneid": laneid, "warpid": warpid,
    "tx": tx, "m": m, "fragments": fragments, "ROW": TileLayout(S[(32, 4) : (1 @ laneid, 1)]),
}  # fmt: skip
ROWS = [
    pytest.param(row, id=f"{section}-{row['name']}")
    for section, rows in TABLE.items()
    for row in rows
]


@pytest.mark.parametrize("row", ROWS)
def test_a_program_of_the_table_is_refused_in_its_words(row: dict[str, Any]) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011 - its class and text are compared below
        exec("\n".join(row["program"]), dict(NAMES))
    found = str(refused.value)
    if row.get("first_line"):
        found = found.splitlines()[0]
    assert (type(refused.value).__name__, found) == (row["error"], row["message"])


def test_the_names_of_the_table_are_unique() -> None:
    names = [(section, row["name"]) for section, rows in TABLE.items() for row in rows]
    assert len(set(names)) == len(names)
