"""What stands behind each row: the package says what the records say, and no more."""

from __future__ import annotations

import configparser
import dataclasses
import json
import re
from typing import Any

import pytest

from layoutalg import LayoutError, S, TileLayout, fragments, laneid, parse
from layoutalg.fragments import Fragment, certification
from layoutalg.fragments.certification import Assembled, Certification, Measured, phrase
from layoutalg.fragments.targets import has
from lowering.isa.nvjitlink import AssembleError, version
from lowering.probing.record import ProbeRecord
from tests.hardware.collect_certificates import (
    MACHINE,
    assembled,
    certificates,
    collect,
    covers,
    measured,
)
from tests.support.house import home
from tests.support.paths import ROOT

README = ROOT / "README.md"
RECORDED = tuple(certificates())
DATA: dict[str, Any] = json.loads(certification.FILE.read_text(encoding="utf-8"))
BY_NAME = {each.instruction: each for each in RECORDED}
ROWS = tuple(row for name in fragments.names() for row in fragments.rows(name))
DENSE = re.compile(r"mma\.m\d+n8k\d+\.(?!mxf)(?!f16$).*|mma\.m16n8k\d+\.f16")


def installed() -> str:
    """Return the version of nvJitLink, or nothing where it is not installed."""
    try:
        return version()
    except AssembleError:
        return ""


def test_the_package_holds_what_the_records_say() -> None:
    """As ``python -m tests.hardware.collect_certificates`` writes it."""
    again = measured(RECORDED)
    assert {key: DATA[key] for key in again} == json.loads(json.dumps(again))


def test_an_installed_package_has_the_file() -> None:
    setup = configparser.ConfigParser()
    setup.read(README.with_name("setup.cfg"))
    listed = setup["options.package_data"]["layoutalg"].split(", ")
    assert str(certification.FILE.relative_to(home("layoutalg"))) in listed


def test_the_package_holds_what_the_assembler_takes() -> None:
    if not installed():
        pytest.skip("nvJitLink is not installed: nothing can be assembled")
    again = assembled()
    assert DATA["assembled"] == again["assembled"]
    if again["assembler"] == DATA["assembler"]:
        assert collect(RECORDED) == certification.FILE.read_text(encoding="utf-8")


# -- no row claims more ---------------------------------------------------------------------------


def test_a_measured_row_has_the_layout_that_was_compared_with_the_machine() -> None:
    """Each is among the claims of its certificate, which the machine did not refute."""
    count = 0
    for row in ROWS:
        for record in row.certificate.measured:
            source = BY_NAME[record.certificate]
            assert source.agrees
            assert source.is_hardware
            assert not source.vacuous
            claims = [parse(claim) for claim in source.claims.values() if claim.startswith("S[")]
            assert any(claim.equivalent(row.layout) for claim in claims)
            assert (record.device, record.driver, record.date) == (
                source.device,
                source.driver,
                source.date,
            )
            assert dict(record.digests) == source.tables
            assert (record.measured, record.convention) == (source.measured, source.convention)
            assert record.experiments == source.experiments
            count += 1
    assert count > 200


def test_every_record_stands_behind_a_row() -> None:
    used = {record.certificate for row in ROWS for record in row.certificate.measured}
    assert used == {each.instruction for each in RECORDED if covers(each)}


def test_what_the_machine_lacks_is_assembled_and_nothing_else() -> None:
    for row in ROWS:
        kind = row.certificate.kind
        assert (kind == "assembled") is not has(row.min_arch, MACHINE), row.instruction
        dense = DENSE.fullmatch(row.instruction) or "matrix." in row.instruction
        if dense and has(row.min_arch, MACHINE):
            assert kind == "measured", row.instruction


def test_another_layout_of_the_same_name_is_not_certified() -> None:
    row = fragments.get("mma.m16n8k8.f16", "A")
    assert row.certificate.kind == "measured"
    turned = TileLayout(S[(2, 8, 4, 2) : (1, 4 @ laneid, 1 @ laneid, 2)])
    rule = dataclasses.replace(row.formula, digits=(("p", 2), ("rM", 2)))
    assert dataclasses.replace(row, layout=turned, formula=rule).certificate == Certification()
    assert dataclasses.replace(row, instruction="x").certificate == Certification()
    assert dataclasses.replace(row, operand="B").certificate == Certification()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a simulation": ({"machine": "simulator"}, "got simulator, agrees, 3 refuted"),
    "a disagreement": ({"difference": "lane 0"}, "got device, REFUTED: lane 0, 3 refuted"),
    "a vacuous one": (
        {"refuted": {"swap": None}},
        "got device, VACUOUS: does not refute swap, 1 refuted",
    ),
    "one without wrong claims": ({"refuted": {}}, "got device, agrees, 0 refuted"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_certificate_that_proves_nothing_is_refused(name: str) -> None:
    change, message = WRONG[name]
    with pytest.raises(LayoutError) as caught:
        covers(dataclasses.replace(BY_NAME["mma.m16n8k16.f16"], **change))
    assert str(caught.value) == (
        "certificate of mma.m16n8k16.f16: must be of a machine, agree, and refute wrong claims; "
        + message
    )


def test_a_certificate_of_another_layout_is_refused() -> None:
    source = BY_NAME["mma.m16n8k16.f16"]
    right = "S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)]"
    swapped = "S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)]"
    for claims, text in (
        (dict(source.claims) | {"A": swapped}, swapped),
        ({"B": source.claims["B"], "D": source.claims["D"]}, None),
    ):
        with pytest.raises(LayoutError) as caught:
            covers(dataclasses.replace(source, claims=claims))
        assert str(caught.value) == (
            f"certificate of mma.m16n8k16.f16: A must be {right}; it compared {text}"
        )


def test_a_statement_that_is_not_known_is_refused() -> None:
    source = dataclasses.replace(BY_NAME["mma.m16n8k16.f16"], measured=("all of it",))
    with pytest.raises(LayoutError, match=r"^certification: .* got 'all of it'\. These fit: "):
        measured([source])


# -- which rows a certificate is of ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("mma.m16n8k16.f16", ["A", "B", "C/D.f32"]),
        ("mma.m16n8k16.f16 f16", ["A", "B", "C/D.f16"]),
        ("mma.m16n8k32.u8.s8 satfinite", ["A", "B", "C/D.s32"]),
        ("ldmatrix.m8n8.x4.trans.b16", ["dst"]),
        ("movmatrix.m8n8.trans.b16", ["src", "dst"]),
    ],
)
def test_a_record_names_its_rows(name: str, operands: list[str]) -> None:
    assert list(covers(BY_NAME[name])) == operands
    (entry,) = (entry for entry in DATA["measured"] if entry["certificate"] == name)
    assert entry["instruction"] == name.split(" ")[0]
    assert list(entry["covers"]) == operands


def made_up(name: str, rows: dict[str, Fragment], **rest: Any) -> ProbeRecord:
    """Return a certificate of rows as a machine would give it."""
    claims = {role: str(row.layout) for role, row in rows.items()}
    source = dataclasses.replace(BY_NAME["mma.m16n8k16.f16"], instruction=name, claims=claims)
    return dataclasses.replace(source, **rest)


CELLS = "which place of A meets which (k, n) of B in memory, and in which place of D it lands"
NUMBERS = "which numbers the 64 rows have: a permutation common to A and D shows in no product"


def test_certificates_to_come_know_their_rows() -> None:
    """Sparse mma, m8n8k4 and wgmma, named as their probes name them."""
    get = fragments.get
    sparse, quad = "mma.sp.m16n8k32.f16", "mma.m8n8k4.f16"
    rows = {role: get(sparse, role) for role in "ABDE"}
    assert list(covers(made_up(sparse, rows))) == ["A", "B", "C/D.f32", "E"]
    rows = {"A": get(quad, "A.col"), "B": get(quad, "B.row"), "D": get(quad, "C/D.f16")}
    assert list(covers(made_up(f"{quad} f16 col.row", rows))) == ["A.col", "B.row", "C/D.f16"]
    rows = {"A": get("wgmma.m64nNk8.tf32", "A.reg"), "D": get("wgmma.m64n8", "D.f32")}
    assert list(covers(made_up("wgmma.m64nNk8.tf32", rows))) == ["A.reg"]
    rows = {"D": get("wgmma.m64n24", "D.s32")}
    assert covers(made_up("wgmma.m64n24 s32", rows)) == {"D.s32": str(rows["D"].layout)}
    with pytest.raises(LayoutError, match=r"^certificate of wgmma\.m64n24 s32: D must be "):
        covers(made_up("wgmma.m64n24 s32", {"D": get("wgmma.m64n32", "D.s32")}))
    assert covers(made_up("descriptor.B.f16.MN.128", {})) == {}
    assert measured([made_up("descriptor.B.f16.MN.128", {})])["measured"] == []


# -- one line -------------------------------------------------------------------------------------

FIRST = BY_NAME["mma.m16n8k16.f16"]
WHERE = f"measured on {FIRST.device}, driver {FIRST.driver}, {FIRST.date}"
TAKEN = f"assembled, not executed ({DATA['assembler']}, "


@pytest.mark.parametrize(
    ("instruction", "operand", "said"),
    [
        (
            "mma.m16n8k16.f16",
            "A",
            f"{WHERE}: slot relation; labels tied to memory through ldmatrix",
        ),
        ("mma.m16n8k32.s8", "D", f"{WHERE}: slot relation; labels by the PTX ISA"),
        ("stmatrix.m8n8.x2.b16", "src", f"{WHERE}: every slot, against addresses"),
        (
            "movmatrix.m8n8.trans.b16",
            "dst",
            f"{WHERE}: which slot goes where; its source as ldmatrix gives it, by convention",
        ),
        (
            "tcgen05.ld.16x256b.x2.b32",
            "dst",
            f"{TAKEN}sm_100a)",
        ),
        (
            "mma.m16n8k64.mxf4.e2m1.ue8m0",
            "SFA",
            f"{TAKEN}sm_120a)",
        ),
    ],
)
def test_the_statement_of_a_row(instruction: str, operand: str, said: str) -> None:
    row = fragments.get(instruction, operand)
    assert row.certificate.statement == said
    assert said.startswith(row.certificate.summary)


def test_statements_of_what_is_to_come() -> None:
    texts = {
        CELLS: "slot relation; k and n tied to memory by descriptor",
        "the row of A's fragment and the column of B in memory that each place of D holds": (
            "rows of A's fragment; columns of B in memory"
        ),
        NUMBERS: "numbers of rows by the PTX ISA",
        "A is laid out as its fragment, which N = 8 certifies": "",
        "which slot of E, in which lane, places which slot of A": "positions in E",
    }
    assert {text: phrase(text) for text in texts} == texts
    one = Measured("x", "GPU", "1", "2030-01-01", 1, (), (CELLS,), (NUMBERS,))
    taken = Assembled("x", "sm_90a", "nvJitLink 1")
    assert Certification((one,)).statement == (
        "measured on GPU, driver 1, 2030-01-01: slot relation; k and n tied to memory by "
        "descriptor; numbers of rows by the PTX ISA"
    )
    assert [each.kind for each in (Certification((one,), taken), Certification((), taken))] == [
        "measured",
        "assembled",
    ]
    assert Certification().statement == Certification().summary == "not certified"


# -- counts ---------------------------------------------------------------------------------------


def test_the_counts_are_those_of_the_rows() -> None:
    found = fragments.counts()
    assert (found.instructions, found.rows) == (len(fragments.names()), len(ROWS))
    for summary, count in found.certified:
        assert count == sum(row.certificate.summary == summary for row in ROWS)
    assert sum(count for _, count in found.certified) == len(ROWS)


def test_the_readme_has_the_counts() -> None:
    (row,) = re.findall(r"^\| fragments \| (.*) \|$", README.read_text(), re.MULTILINE)
    assert str(fragments.counts()) in row
