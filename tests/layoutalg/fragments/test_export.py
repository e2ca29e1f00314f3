"""The exported fragment table: what it says, that it reads back, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layoutalg import LayoutError, fragments
from layoutalg.fragments import Fragment, export
from layoutalg.fragments.export import COLUMNS, SCHEMA, chosen, from_json, to_csv, to_json, write
from tests.support.paths import DATA

CASES = DATA / "cases" / "fragments_dev.json"
TABLES: list[dict[str, Any]] = json.loads(CASES.read_text())
# two dtypes, four products, copies, a warpgroup, 64-bit registers, narrow elements, TMEM
SAMPLE = (
    "mma.m16n8k16.f16", "mma.m8n8k4.f16", "mma.sp.m16n8k16.f16", "wgmma.m64n24",
    "mma.m8n8k4.f64", "mma.m16n8k32.mxf8f6f4.e2m1", "mma.m8n8k128.b1", "tcgen05.ld.16x64b.x2.b32",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> str:
    """Return the JSON of the whole table."""
    return to_json()


@pytest.fixture(scope="module")
def exported(whole: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the entries of the whole JSON by instruction and operand."""
    entries = json.loads(whole)["fragments"]
    return {(entry["instruction"], entry["operand"]): entry for entry in entries}


# -- the known tables -----------------------------------------------------------------------------


def test_there_are_as_many_known_tables_as_the_file_has() -> None:
    assert len(TABLES) == len({(table["instr"], table["operand"]) for table in TABLES}) == 49


@pytest.mark.slow
@pytest.mark.parametrize("known", TABLES, ids=lambda known: f"{known['instr']} {known['operand']}")
def test_a_known_table_is_equal_element_by_element(
    known: dict[str, Any], exported: dict[tuple[str, str], dict[str, Any]]
) -> None:
    """As a fragment, and as it is exported."""
    row = next(r for r in fragments.rows(known["instr"]) if r.operand == known["operand"])
    assert row.coords.tolist() == known["coords"]
    entry = exported[known["instr"], known["operand"]]
    names = {
        "coords": "coords", "shape": "shape", "lanes": "lanes", "registers": "regs",
        "pack": "elems_per_reg", "dtype": "elem_dtype", "bits": "elem_bits",
        "register_bits": "reg_bits", "min_arch": "min_arch",
    }  # fmt: skip
    assert {name: entry[name] for name in names} == {
        name: known[theirs] for name, theirs in names.items()
    }


# -- what is exported -----------------------------------------------------------------------------


def test_every_row_is_exported(exported: dict[tuple[str, str], dict[str, Any]]) -> None:
    rows = [(row.instruction, row.operand) for row in chosen()]
    assert list(exported) == rows
    assert len(rows) == fragments.counts().rows
    keys = {tuple(entry) for entry in exported.values()}
    assert len(keys) == 1
    described = str(export.__doc__)
    assert all(f"``{key}``" in described for key in keys.pop())


@pytest.mark.parametrize("instruction", SAMPLE)
def test_an_entry_says_what_the_fragment_is(
    instruction: str, exported: dict[tuple[str, str], dict[str, Any]]
) -> None:
    for row in fragments.rows(instruction):
        entry = exported[instruction, row.operand]
        assert np.array_equal(entry["coords"], row.formula.coords(row.lanes))
        axes = ["product", "row", "column"] if row.products > 1 else ["row", "column"]
        assert entry["axes"] == axes
        assert entry["certificate"] == {
            "kind": row.certificate.kind,
            "statement": row.certificate.statement,
        }
        assert tuple(entry["targets"]) == row.targets
        assert (entry["source"], entry["layout"]) == (row.source, str(row.layout))
        held = np.unique(np.reshape(entry["coords"], (-1, len(axes))), axis=0, return_counts=True)
        assert set(held[1]) == {entry["copies"]}
        assert len(held[0]) == entry["products"] * entry["shape"][0] * entry["shape"][1]


def test_the_bytes_are_the_same_each_time() -> None:
    rows = tuple(chosen(SAMPLE))
    assert to_json(rows) == to_json(chosen(SAMPLE))
    assert to_csv(rows) == to_csv(chosen(SAMPLE))
    assert to_json(rows).count("\n") == len(rows) + 2  # one line per entry


@pytest.mark.parametrize("instruction", SAMPLE)
def test_the_csv_has_a_line_per_lane_and_slot(instruction: str) -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(chosen([instruction])))))
    want = []
    for row in fragments.rows(instruction):
        held = row.formula.coords(row.lanes)
        for lane, slot in np.ndindex(held.shape[:2]):
            coordinate = [0, *held[lane, slot].tolist()][-3:]
            want.append(
                {
                    "instruction": instruction,
                    "operand": row.operand,
                    "dtype": row.dtype,
                    "bits": str(row.bits),
                    "shape": f"{row.shape[0]}x{row.shape[1]}",
                    "copies": str(row.copies),
                    "min_arch": row.min_arch,
                    "certificate": row.certificate.summary,
                    "lane": str(lane),
                    "register": str(slot * row.bits // row.register_bits),
                    "slot": str(slot),
                    **dict(zip(("product", "row", "column"), map(str, coordinate), strict=True)),
                }
            )
    assert lines == want
    assert tuple(lines[0]) == COLUMNS


# -- and back -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_of_it_reads_back(whole: str) -> None:
    assert from_json(whole) == tuple(chosen())


@pytest.mark.parametrize("instruction", SAMPLE)
def test_what_is_read_back_is_written_alike(instruction: str) -> None:
    text = to_json(chosen([instruction]))
    assert to_json(from_json(text)) == text


def changed(change: Callable[[dict[str, Any]], Any]) -> str:
    """Return the JSON of D of m16n8k8 with its one entry changed."""
    data = json.loads(to_json([fragments.get("mma.m16n8k8.bf16", "D")]))
    change(data["fragments"][0])
    return json.dumps(data)


def swap(entry: dict[str, Any]) -> None:
    """Exchange two slots of lane 7."""
    slots = entry["coords"][7]
    slots[1], slots[2] = slots[2], slots[1]


NAME = "fragments: mma.m16n8k8.bf16 C/D.f32: "
WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "two slots exchanged": (swap, NAME + "lane 7 slot 1 holds [1, 7]; got [9, 6]"),
    "a coordinate too long": (
        lambda entry: entry["coords"][0].__setitem__(0, [0, 0, 0]),
        NAME + "lane 0 slot 0 holds [0, 0]; got [0, 0, 0]",
    ),
    "a lane too few": (
        lambda entry: entry["coords"].pop(),
        NAME + "coords must be 32 lanes of 4 slots",
    ),
    "a slot too many": (
        lambda entry: entry["coords"][31].append([0, 0]),
        NAME + "coords must be 32 lanes of 4 slots",
    ),
    "no table": (lambda entry: entry.pop("coords"), NAME + "coords must be 32 lanes of 4 slots"),
    "a table of numbers": (
        lambda entry: entry.update(coords=[1] * 32),
        NAME + "coords must be 32 lanes of 4 slots",
    ),
    "another width": (lambda entry: entry.update(bits=16), NAME + "bits must be 32; got 16"),
    "no layout": (
        lambda entry: entry.pop("layout"),
        NAME + "layout must be 'S[(2,8,4,2):(2,4@laneid,1@laneid,1)]'; got None",
    ),
    "another operand": (
        lambda entry: entry.update(operand="D"),
        "fragments: mma.m16n8k8.bf16 has the operands A, B, C/D.f32; got 'D'",
    ),
    "no operand": (
        lambda entry: [entry.pop(key) for key in tuple(entry) if key != "bits"],
        "fragments: an entry must name instruction and operand; got {'bits': 32}",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_differs_is_named(name: str) -> None:
    change, message = WRONG[name]
    with pytest.raises(LayoutError) as caught:
        from_json(changed(change))
    assert str(caught.value) == message


def test_certificates_targets_and_new_keys_may_differ() -> None:
    """They may be older or newer than ours."""
    row = fragments.get("mma.m16n8k8.bf16", "D")
    for change in (
        {"certificate": {"kind": "none", "statement": "not certified"}},
        {"targets": ["sm_80"]},
        {"colour": "blue"},
    ):
        assert from_json(changed(lambda entry, c=change: entry.update(c))) == (row,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "fragments: the text must be JSON: "),
        ("[]", f"fragments: the JSON must have the schema {SCHEMA}; got None"),
        ("{}", f"fragments: the JSON must have the schema {SCHEMA}; got None"),
        (
            '{"schema": {"name": "layoutalg.fragments", "version": 2}, "fragments": []}',
            f"fragments: the JSON must have the schema {SCHEMA}; got {SCHEMA | {'version': 2}}",
        ),
        (json.dumps({"schema": SCHEMA}), "fragments: the JSON must have a list of fragments"),
        (
            json.dumps({"schema": SCHEMA, "fragments": [3]}),
            "fragments: an entry must name instruction and operand; got 3",
        ),
        (
            json.dumps({"schema": SCHEMA, "fragments": [{"instruction": "mma", "operand": "A"}]}),
            "fragments: no instruction is named 'mma'; did you mean ",
        ),
    ],
)
def test_what_is_no_export_is_refused(text: str, message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        from_json(text)
    assert str(caught.value).startswith(message)


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "form"), [(".json", to_json), (".csv", to_csv)])
def test_the_suffix_says_what_is_written(
    suffix: str, form: Callable[[Any], str], tmp_path: Path
) -> None:
    rows: tuple[Fragment, ...] = tuple(chosen(["mma.m8n8k4.f64"]))
    path = tmp_path / f"fragments{suffix}"
    write(path, rows)
    assert path.read_text(encoding="utf-8") == form(rows)
    assert list(tmp_path.iterdir()) == [path]


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LayoutError) as caught:
        write(tmp_path / "fragments.xml", chosen(["mma.m8n8k4.f64"]))
    assert str(caught.value) == (
        f"export: the suffix of the file says what is written; got '.xml' in "
        f"'{tmp_path / 'fragments.xml'}'. These fit: .json, .csv"
    )
    assert list(tmp_path.iterdir()) == []
