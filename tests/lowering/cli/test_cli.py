"""The command line: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from layoutalg import choose_swizzle, fragments
from layoutalg.draw.scene.output import SUFFIXES
from layoutalg.fragments import export
from lowering import cli
from lowering.audit import target_matrix
from lowering.cli.arguments import WithExamples, progress
from lowering.cli.main import main
from lowering.verification import cases, checker
from lowering.verification.cases import Case
from tests.support.paths import DATA, ROOT


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every command in a folder of its own."""
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def json_of(*arguments: str, code: int = 0, stdin: str | None = None) -> Any:
    result = run(*arguments, "--json", stdin=stdin)
    assert (result.exit_code, result.stderr) == (code, ""), result.output
    return json.loads(result.stdout)


def lines(result: Result) -> Iterator[str]:
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    yield from result.stdout.splitlines()


def table(result: Result) -> dict[str, str]:
    """Return the rows of a printed table of two columns."""
    found = (re.fullmatch(r"  (\S.*?)  +(\S.*)", line) for line in lines(result))
    return {row[1]: row[2] for row in found if row}


def test_demo_does_the_main_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "machine_name", lambda: "simulator")
    result = run("demo")
    rows = table(result)
    assert result.stdout.startswith("D[16,8] = A[16,16] · B[16,8], one warp\n\n# gemm(")
    assert "m16n8k16(D[0..3], A[0..7], B[0..3], D[0..3])" in result.stdout
    assert rows["D fragment"].startswith("S[(2,8,4,2):(2,4@laneid,1@laneid,1)]   row = g + 8*rM")
    assert rows["A fragment"].startswith("S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)]   row = ")
    assert rows["B fragment"].startswith("S[(2,4,2,8):(2,1@laneid,1,4@laneid)]   row = 2*t")
    assert rows["instruction"] == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    assert rows["mma issued"] == "1"
    assert rows["ran on"] == "NumPy warp (no CUDA device)"
    error = re.match(r"(\S+)  \(bound 1e-06, float64\)", rows["‖out − ref‖/‖ref‖"])
    assert error is not None
    assert 0 < float(error[1]) < 1e-6
    written = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert written == ["mma.m16n8k16.f16.png", "mma.m16n8k16.f16.svg"]
    assert rows["lane maps"] == ", ".join(f"figures/{name}" for name in reversed(written))


@pytest.mark.slow
def test_demo_writes_where_it_is_told(tmp_path: Path) -> None:
    assert table(run("demo", "--output", "maps/here"))["lane maps"].startswith("maps/here/mma.")
    assert len(list((tmp_path / "maps" / "here").iterdir())) == 2


def test_demo_fails_where_the_product_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = checker.check

    def wrong(*arguments: Any, **rest: Any) -> checker.Result:
        result = right(*arguments, **rest)
        return checker.Result(result.case, result.instruction, 1, 0.5, 1e-6, "simulator")

    monkeypatch.setattr(checker, "check", wrong)
    result = run("demo")
    assert result.exit_code == 1
    assert result.stderr == "layoutalg: the product is wrong\n"
    assert "5.00e-01" in result.stdout


def test_show_describes_a_layout() -> None:
    rows = table(run("show", "S[(2,8,4,2):(2,4@laneid,1@laneid,1)]", "--shape", "16x8"))
    assert rows["layout"] == "S[(2,8,4,2):(2,4@laneid,1@laneid,1)]"
    assert rows["canonical"] == "S[(2,32,2):(2,1@laneid,1)]"
    assert rows["elements"] == "128"
    assert rows["span in memory"] == "4"
    assert rows["scope"] == "thread in warp"
    assert rows["over (16, 8)"] == (
        "row = g + 8*rM, col = 2*t + rN where g = laneid//4, t = laneid mod 4, rM = m//2, "
        "rN = m mod 2"
    )


def test_show_knows_memory_and_targets() -> None:
    assert table(run("show", "S[(8,8):(8,1)]"))["scope"] == "memory only"
    warps = "S[(4,8,4):(1@wid_in_wg,4@laneid,1@laneid)]"
    assert table(run("show", warps))["canonical"] == "S[(4,32):(1@wid_in_wg,1@laneid)]"
    assert table(run("show", warps, "--target", "cuda"))["canonical"] == "S[128:1@tid_in_wg]"
    rows = table(run("show", "S[(n,8):(8,1)]"))
    assert rows["elements"] == "8*n"


def test_draw_an_instruction_a_layout_and_the_gallery(tmp_path: Path) -> None:
    assert list(lines(run("draw", "mma.m16n8k8.f16", "-o", "triple.svg"))) == ["triple.svg"]
    assert (tmp_path / "triple.svg").read_text().startswith("<svg ")
    layout = "S[(8,4):(4@laneid,1@laneid)]"
    assert list(lines(run("draw", layout, "--shape", "8,4", "-o", "map.png"))) == ["map.png"]
    assert (tmp_path / "map.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert list(lines(run("draw", layout, "--shape", "8,4", "--lane", "9"))) == ["lane_map.svg"]
    assert 'data-lane="9"' in (tmp_path / "lane_map.svg").read_text()


@pytest.mark.slow
def test_draw_all_redraws_the_gallery(tmp_path: Path) -> None:
    listed = list(lines(run("draw", "--all", "-o", "maps")))
    assert "maps/mma.m16n8k16.f16.svg" in listed
    assert sorted(listed) == sorted(f"maps/{path.name}" for path in (tmp_path / "maps").iterdir())


def test_fragment_lists_and_prints() -> None:
    listed = [line.split() for line in lines(run("fragment"))]
    assert [row[0] for row in listed] == list(fragments.names())
    assert ["mma.m16n8k16.bf16", "A", "B", "C/D.f32"] in listed
    printed = list(lines(run("fragment", "mma.m16n8k8.f16")))
    assert [line for line in printed if not line.startswith(" ")] == [
        f"mma.m16n8k8.f16 {operand}" for operand in fragments.operands("mma.m16n8k8.f16")
    ]
    rows = table(run("fragment", "mma.m16n8k16.f16", "A"))
    assert rows["layout"] == "S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)]"
    assert rows["registers"] == "4 x 32 bits, 2 per register"
    assert rows["source"].startswith("PTX ISA, Matrix Fragments for mma.m16n8k16")
    assert rows["source"].endswith("; sm_80 and newer")


def test_fragment_prints_what_one_lane_holds() -> None:
    printed = list(lines(run("fragment", "mma.m16n8k16.f16", "B", "--lane", "5")))
    assert printed[-4:] == [
        "    slot 0: row 2, col 1",
        "    slot 1: row 3, col 1",
        "    slot 2: row 10, col 1",
        "    slot 3: row 11, col 1",
    ]


def test_fragment_says_what_stands_behind_a_row() -> None:
    row = fragments.get("mma.m16n8k16.f16", "A")
    said = table(run("fragment", "mma.m16n8k16.f16", "A"))
    assert said["certificate"] == row.certificate.statement
    assert said["certificate"].startswith("measured on NVIDIA H200, driver ")
    assert not {"copies", "products"} & set(said)
    said = table(run("fragment", "mma.m16n8k32.mxf8f6f4.e4m3", "SFB"))
    assert said["copies"] == "4 lanes hold each element alike"
    assert said["certificate"] == (
        fragments.get("mma.m16n8k32.mxf8f6f4.e4m3", "SFB").certificate.statement
    )


def test_fragment_prints_the_products_of_m8n8k4() -> None:
    printed = list(lines(run("fragment", "mma.m8n8k4.f16", "B", "--lane", "22")))
    assert table(run("fragment", "mma.m8n8k4.f16", "B"))["products"] == (
        "4 per instruction, (4, 8) each"
    )
    assert printed[-4:] == [f"    slot {s}: product 1, row {s}, col 6" for s in range(4)]


def test_fragment_as_json() -> None:
    known = json.loads(run("fragment", "--json").stdout)
    assert known == {name: list(fragments.operands(name)) for name in fragments.names()}
    result = run("fragment", "mma.m16n8k8.f16", "--json")
    assert result.stdout == export.to_json(fragments.rows("mma.m16n8k8.f16"))
    result = run("fragment", "mma.m16n8k8.f16", "D", "--json")
    assert export.from_json(result.stdout) == (fragments.get("mma.m16n8k8.f16", "D"),)


def test_fragment_list_is_instruction_by_target_and_the_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = [form for form in target_matrix.forms() if form.instruction.startswith("stmatrix")]
    found = target_matrix.table(few)
    monkeypatch.setattr(target_matrix, "table", lambda: found)
    printed = list(lines(run("fragment", "--list")))
    assert printed == [*found.text().splitlines(), str(fragments.counts())]
    said = json.loads(run("fragment", "--list", "--json").stdout)
    assert said["source"] == found.source
    assert said["targets"] == list(found.targets)
    assert said["instructions"] == {name: list(having) for name, having in found.lines()}
    counts = fragments.counts()
    assert said["counts"] == {
        "instructions": counts.instructions,
        "rows": counts.rows,
        "certified": dict(counts.certified),
    }


def test_export_writes_what_the_suffix_says(tmp_path: Path) -> None:
    one = ("--instruction", "mma.m8n8k4.f64")
    rows = fragments.rows("mma.m8n8k4.f64")
    assert list(lines(run("export", "f.json", *one))) == ["f.json"]
    assert (tmp_path / "f.json").read_text(encoding="utf-8") == export.to_json(rows)
    assert list(lines(run("export", "f.csv", *one))) == ["f.csv"]
    assert (tmp_path / "f.csv").read_text(encoding="utf-8") == export.to_csv(rows)
    assert run("export", *one).stdout == run("export", "-", *one).stdout == export.to_json(rows)
    both = (*one, "--instruction", "mma.m16n8k8.f16", *one)
    names = [row.instruction for row in export.from_json(run("export", *both).stdout)]
    assert list(dict.fromkeys(names)) == ["mma.m8n8k4.f64", "mma.m16n8k8.f16"]
    assert len(names) == 7


def test_export_writes_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = fragments.names()[:3]
    monkeypatch.setattr(fragments, "names", lambda: names)
    assert list(lines(run("export", "all.json"))) == ["all.json"]
    assert (tmp_path / "all.json").read_text(encoding="utf-8") == export.to_json()
    assert run("export").stdout == export.to_json(row for n in names for row in fragments.rows(n))


@pytest.mark.parametrize("form", ["script", "cuda", "numba"])
def test_lower_prints_each_form(form: str) -> None:
    program = Case("mma.m16n8k8.bf16", (2, 1, 3), 1).program()
    want = {
        "script": program.script,
        "cuda": program.cuda_source,
        "numba": program.kernel_source,
    }[form]()
    result = run("lower", "mma.m16n8k8.bf16", "--tiles", "2,1,3", "--beta", "1", "--as", form)
    assert result.exit_code == 0
    assert result.stdout.rstrip("\n") == want.rstrip("\n")


def test_lower_prints_ptx_of_a_target() -> None:
    result = run("lower", "mma.m16n8k8.f16", "--as", "ptx", "--arch", "sm_75")
    assert result.exit_code == 0
    assert ".target sm_75" in result.stdout
    assert result.stdout.count("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32") == 1


def test_lower_prints_the_script_by_default() -> None:
    assert list(lines(run("lower")))[1] == (
        "# mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32, 32 threads"
    )


# -- layouts ---------------------------------------------------------------------------------------

D_TEXT = "S[(2,8,4,2):(2,4@laneid,1@laneid,1)]"
SWIZZLED = "ComposeLayout(3, 3, 3, S[(8,64):(64,1)])"


def test_layouts_come_from_arguments_files_and_standard_input(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text(f"{D_TEXT}\n", encoding="utf-8")
    direct = run("show", D_TEXT, "--shape", "16,8").stdout
    assert run("show", "d.txt", "--shape", "16,8").stdout == direct
    assert run("show", "-", "--shape", "16,8", stdin=f"{D_TEXT}\n").stdout == direct
    assert run("show", "mma.m16n8k16.f16:D").stdout == direct
    for notation in ("tvm", "json", "latex", "triton"):
        text = run("convert", D_TEXT, "--to", notation, "--shape", "16,8").stdout
        assert run("show", "-", "--shape", "16,8", stdin=text).stdout == direct
    tiled = table(run("show", "mma.m16n8k16.f16:D", "--shape", "32,16"))
    assert tiled["layout"] == "S[(2,2,8,2,4,2):(8,2,4@laneid,4,1@laneid,1)]"


def test_show_as_json() -> None:
    found = json_of("show", D_TEXT, "--shape", "16,8")
    assert found["canonical"] == "S[(2,32,2):(2,1@laneid,1)]"
    assert (found["elements"], found["span"], found["shape"]) == (128, 4, [16, 8])
    assert found["scope"] == ["thread", "warp"]
    assert found["inverse"].startswith("row = g + 8*rM")
    found = json_of("show", "S[(n,8):(8,1)]")
    assert (found["elements"], found["scope"], found["shape"]) == ("8*n", None, None)
    assert "inverse" not in found
    assert "inverse" not in json_of("show", "Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)")


@pytest.mark.parametrize(
    "arguments",
    [["mma.m16n8k16.f16:A"], [D_TEXT, "--shape", "16,8"], ["S[(n,8):(8,1)]"], [SWIZZLED]],
)
def test_show_reads_what_it_prints_as_json(arguments: list[str]) -> None:
    shown = run("show", *arguments, "--json").stdout
    assert run("show", "-", "--json", stdin=shown).stdout == shown


def test_explain_an_element() -> None:
    printed = list(lines(run("explain", D_TEXT, "--shape", "16,8", "--at", "9,3")))
    assert printed == [
        f"{D_TEXT} over (16, 8)",
        "element (9, 3) is at m 3, laneid 5",
        "  row // 8 = 1: 1·2 = 2 on m",
        "  row mod 8 = 1: 1·4 = 4 on laneid",
        "  col // 2 = 1: 1·1 = 1 on laneid",
        "  col mod 2 = 1: 1·1 = 1 on m",
        "  m = 2 + 1 = 3",
        "  laneid = 4 + 1 = 5",
    ]
    printed = list(lines(run("explain", "mma.m16n8k16.f16:A", "--at", "9,3")))
    assert printed[0].startswith("mma.m16n8k16.f16 A: S[")
    assert printed[-2:] == ["  register 1", "  bit 16"]
    found = json_of("explain", SWIZZLED, "--shape", "8,64", "--at", "1,3")
    assert found["place"] == {"m": 75}
    assert found["before_swizzle"] == 67
    assert [digit["adds"] for digit in found["digits"]] == [64, 3]


def test_explain_a_lane() -> None:
    printed = list(lines(run("explain", "mma.m16n8k16.f16:B", "--lane", "5")))
    assert printed[1:] == [
        "laneid 5",
        "  laneid // 4 = 1: 1·1 = 1 on col",
        "  laneid mod 4 = 1: 1·2 = 2 on row",
        "  m // 2: each 8 on row",
        "  m mod 2: each 1 on row",
        "  m 0, register 0, bit 0: row = 2 + 0 + 0 = 2, col = 1",
        "  m 1, register 0, bit 16: row = 2 + 0 + 1 = 3, col = 1",
        "  m 2, register 1, bit 0: row = 2 + 8 + 0 = 10, col = 1",
        "  m 3, register 1, bit 16: row = 2 + 8 + 1 = 11, col = 1",
    ]
    found = json_of("explain", "mma.m16n8k16.f16", "--lane", "5")
    rows = fragments.rows("mma.m16n8k16.f16")
    assert [each["operand"] for each in found] == [row.operand for row in rows]
    for each, row in zip(found, rows, strict=True):
        assert [held["element"] for held in each["holds"]] == row.coords[5].tolist()
        slots = [held["register"] * row.pack + held["bit"] // row.bits for held in each["holds"]]
        assert slots == list(range(row.slots))


def test_explain_a_place() -> None:
    place = ("--shape", "16,8", "--place", "laneid=5,m=3")
    assert json_of("explain", D_TEXT, *place)[0]["holds"][0]["element"] == [9, 3]
    printed = list(lines(run("explain", SWIZZLED, "--shape", "8,64", "--place", "m=75")))
    assert printed[-2:] == [
        "  there: row = 1, col = 3",
        "    swizzled: 67 is unit 8 of 8 elements, and 3: 8 XOR 1 = 9, so 9·8 + 3 = 75",
    ]
    holes = "S[(4,4):(2@laneid,1)]"
    printed = list(lines(run("explain", holes, "--shape", "4,4", "--lane", "3")))
    assert printed == [f"{holes} over (4, 4)", "nothing is at laneid 3"]
    in_b = run("explain", "mma.m16n8k16.f16", "--place", "laneid=1,m=6")
    assert in_b.stdout.count("nothing is at laneid 1, m 6") == 3  # B, C/D: only A has slot 6


def test_explain_proves_and_refutes() -> None:
    printed = list(lines(run("explain", "S[(2,8):(8,1)]", "S[16:1]")))
    assert printed[0] == "proved: S[(2,8):(8,1)] and S[16:1] are one map"
    assert printed[-1].split() == ["16", "1", "1", "in", "both"]
    result = run("explain", "S[(n,8):(8,1)]", "S[8*n:1]")
    assert (result.exit_code, result.stdout.split(":")[0]) == (0, "proved")
    result = run("explain", D_TEXT, "mma.m16n8k16.f16:A", "--shape", "16,8")
    assert result.exit_code == 2
    result = run("explain", "S[(2,4):(4,1)]", "S[8:2]", "--shape", "2,4")
    assert result.exit_code == 1
    assert result.stdout == (
        "refuted: S[(2,4):(4,1)] and S[8:2] are one map\n"
        "element (0, 1): the left has it at (m 1), the right at (m 2)\n7 of 8 elements differ\n"
    )
    found = json_of("explain", "S[8:1]", "S[(2,4):(4,1)]")
    assert (found["holds"], found["digits"][0]["extent"]) == (True, "8")
    assert not json_of("explain", "S[8:1]", "S[8:2]", code=1)["holds"]
    swizzled = run("explain", SWIZZLED, "S[(8,64):(64,1)]", "--shape", "8,64")
    assert swizzled.exit_code == 1
    assert "element (1, 0)" in swizzled.stdout
    cuda = "S[(4,32):(1@wid_in_wg,1@laneid)]", "S[128:1@tid_in_wg]"
    assert run("explain", *cuda).exit_code == 1
    assert run("explain", *cuda, "--target", "cuda").exit_code == 0


def test_convert_prints_the_recipe() -> None:
    two = ("mma.m16n8k16.f16:D", "mma.m16n8k16.f16:A", "--shape", "16,16")
    result = run("convert", *two)
    assert result.exit_code == 0
    assert result.stdout.startswith("registers: S[")
    found = json_of("convert", *two)
    assert (found["kind"], found["registers"], found["threads"]) == ("registers", [0, 1, 2, 3], 32)
    forced = json_of("convert", *two, "--via", "shared")
    assert forced["kind"] == "shared"
    assert "shared memory" in forced["steps"][0]
    transposed = "S[(2,4,2,2,8):(4,1@laneid,1,2,4@laneid)]"
    found = json_of("convert", "mma.m16n8k16.f16:A", transposed, "--bits", "16")
    assert found["kind"] == "movmatrix"
    assert found["per_thread"]["movmatrix"] == 4
    assert len(found["why"]) == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["((4,8),2):((2,16),1)", "--to", "text"], "S[(8,4,2):(16,2,1)]"),
        ([SWIZZLED, "--to", "cute", "--shape", "8,64"], "Sw<3,3,3> o 0 o (8,64):(64,1)"),
        (
            [SWIZZLED, "--to", "cute", "--shape", "8,64", "--unit", "bytes", "--bits", "16"],
            "Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)",
        ),
        (
            ["S<3,4,3> o 0 o (8,64):(64,1)", "--unit", "bytes", "--bits", "8", "--to", "text"],
            "ComposeLayout(4, 3, 3, S[(8,64):(64,1)])",
        ),
        (
            ["((4,8),(2,2)):((32,1),(16,8))", "--from", "tv", "--shape", "16,8", "--to", "text"],
            D_TEXT,
        ),
        (["mma.m16n8k16.f16:D", "--to", "tv"], "((4,8),(2,2)):((32,1),(16,8))"),
        (["S[8:4@laneid]", "--to", "json"], '{"layoutalg": 1, "shard": [[8, 4, "laneid"]]}'),
    ],
)
def test_convert_between_notations(arguments: list[str], text: str) -> None:
    assert list(lines(run("convert", *arguments))) == [text]
    assert json_of("convert", *arguments)["text"] == text


def test_swizzle_chooses_and_says_why() -> None:
    choice = choose_swizzle((64, 64), "f16")
    printed = list(lines(run("swizzle", "64x64")))
    assert printed == [*str(choice).splitlines(), f"layout: {choice.layout}"]
    found = json_of("swizzle", "64,32", "--dtype", "bf16", "--access", "ldmatrix")
    assert found["layout"] == "ComposeLayout(3, 2, 3, S[(64,32):(32,1)])"
    assert (found["bits"], found["pitch"], found["accesses"]) == (16, 32, ["ldmatrix.x4"])
    assert found["chosen"] in found["candidates"]
    assert found["chosen"]["total"] == min(each["total"] for each in found["candidates"])
    padded = json_of("swizzle", "64,64", "--pitch", "72")
    assert (padded["chosen"]["swizzle_len"], padded["conflicts"]) == (0, 0)
    assert json_of("swizzle", "8,32", "--dtype", "32")["bits"] == 32


def test_swizzle_checks_a_given_one() -> None:
    good = list(lines(run("swizzle", "64,64", "--check", "3,3,3")))
    assert good[-1].startswith("checked: (3, 3, 3) in elements of 16 bits, (4, 3, 3) in bytes: ")
    worse = run("swizzle", "64,64", "--check", "3,1,3")
    assert worse.exit_code == 1
    total = json_of("swizzle", "64,64", "--check", "3,1,3", code=1)["checked"]["total"]
    assert f"{total} wavefronts, {choose_swizzle((64, 64)).best.total} are the fewest" in (
        worse.stdout
    )


def test_every_kind_of_picture_is_drawn() -> None:
    tile = ["ComposeLayout(3,3,3,S[(64,64):(64,1)])", "--shape", "64,64"]
    calls: dict[str, list[str]] = {
        "operands": ["mma.m16n8k8.f16"],
        "registers": ["mma.m16n8k8.f16", "--operand", "A"],
        "ldmatrix": ["mma.m16n8k16.f16"],
        "tiling": ["mma.m16n8k16.f16", "--shape", "64,64,32", "--warps", "2,2"],
        "lane_map": [D_TEXT, "--shape", "16,8"],
        "derivation": [D_TEXT, "--shape", "16,8"],
        "banks": tile,
        "compare": ["mma.m16n8k16.f16:D", "mma.m16n8k16.f16:A", "--shape", "16,16"],
        "coalescing": ["mma.m16n8k16.f16:A", "S[(16,16):(16,1)]"],
    }
    for kind, arguments in calls.items():
        assert list(lines(run("draw", *arguments, "--kind", kind))) == [f"{kind}.svg"]
        assert Path(f"{kind}.svg").read_text(encoding="utf-8").startswith("<svg ")
    pictures = {Path(f"{kind}.svg").read_bytes() for kind in calls}
    assert len(pictures) == len(calls)
    two = calls["compare"]
    assert list(lines(run("draw", *two, "-o", "c.svg"))) == ["c.svg"]
    assert Path("c.svg").read_bytes() == Path("compare.svg").read_bytes()


# -- JSON of what runs -----------------------------------------------------------------------------


def test_demo_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "machine_name", lambda: "simulator")
    found = json_of("demo", "--output", "maps")
    assert found["instruction"] == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    assert (found["ok"], found["verdict"], found["machine"]) == (True, "ok", "simulator")
    assert 0 < found["error"] < found["tolerance"] == 1e-6
    assert found["maps"] == [f"maps/mma.m16n8k16.f16{suffix}" for suffix in (".svg", ".png")]


@pytest.mark.slow
def test_verify_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("mma.m16n8k8.f16", (1, 1, 1))
    monkeypatch.setattr(cases, "all_cases", lambda: (case,))
    (row,) = json_of("verify", "--machine", "simulator")
    assert (row["case"], row["verdict"], row["ok"]) == (str(case), "ok", True)
    assert {control["name"] for control in row["controls"]} >= {"zeros", "common k"}
    (row,) = json_of("verify", "--machine", "simulator", "--tolerance", "1e-30", code=1)
    assert row["verdict"] == "WRONG"
    monkeypatch.setattr(checker, "relative_error", lambda out, ref: float("inf"))
    assert json_of("verify", "--machine", "simulator", code=1)[0]["error"] == "inf"


def test_probe_as_json() -> None:
    assert json_of("probe") == run("probe").stdout.split()
    (found,) = json_of("probe", "movmatrix.m8n8.trans.b16", "--machine", "simulator")
    assert (found["instruction"], found["difference"]) == ("movmatrix.m8n8.trans.b16", None)


def test_lint_reads_files_arguments_and_standard_input(tmp_path: Path) -> None:
    wrong = (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{d0,d1,d2,d3}, {a0,a2,a1,a3}, {b0,b1}, {d0,d1,d2,d3};"
    )
    (tmp_path / "k.cu").write_text(wrong, encoding="utf-8")
    (tmp_path / "fine.cu").write_text(Case("mma.m16n8k8.f16", (1, 1, 1)).program().cuda_source())
    direct, piped, read = run("lint", wrong), run("lint", stdin=wrong), run("lint", "k.cu")
    assert (direct.exit_code, piped.exit_code, read.exit_code) == (1, 1, 1)
    assert direct.stdout == piped.stdout
    assert read.stdout == f"k.cu:{direct.stdout}"
    assert direct.stdout.endswith("1 instructions, 1 errors\n")
    found = json_of("lint", "fine.cu", "k.cu", code=1)
    assert (found["instructions"], found["errors"]) == (2, 1)
    (finding,) = found["findings"]
    assert (finding["file"], finding["severity"], finding["line"]) == ("k.cu", "error", 1)
    assert finding["source"] == wrong
    assert run("lint", "fine.cu").exit_code == 0


def test_lower_as_json() -> None:
    result = run("lower", "mma.m16n8k8.f16", "--as", "json", "--beta", "1")
    found = json.loads(result.stdout)
    program = Case("mma.m16n8k8.f16", (1, 1, 1), 1).program()
    assert found["instruction"] == program.instruction.ptx
    assert found["registers"] == program.registers
    assert found["steps"] == json.loads(json.dumps(program.steps))


# -- help ------------------------------------------------------------------------------------------

ON_A_GPU = {"bench"}  # commands whose examples need one


def example(line: str) -> tuple[Result, Path | None]:
    """Run a line of a shell: ``[echo TEXT |] layoutalg … [> FILE]``."""
    words = shlex.split(line)
    stdin = None
    if words[0] == "echo":
        bar = words.index("|")
        stdin, words = " ".join(words[1:bar]) + "\n", words[bar + 1 :]
    target = None
    if ">" in words:
        target = Path(words[-1])
        words = words[: words.index(">")]
    assert words[0] == "layoutalg"
    result = run(*words[1:], stdin=stdin)
    if target is not None:
        target.write_text(result.stdout, encoding="utf-8")
    return result, target


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*main.commands} - ON_A_GPU))
def test_every_example_of_the_help_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "machine_name", lambda: "simulator")
    command = main.commands[name]
    assert isinstance(command, WithExamples)
    assert command.examples
    said = run(name, "--help").stdout
    for line in command.examples:
        assert f"\n  {line}\n" in said
        result, _ = example(line)
        assert (result.exit_code, result.stderr) == (0, ""), (line, result.output)
        assert result.stdout


def test_a_verb_is_one_of_a_file_of_the_folder() -> None:
    folder = Path(cli.__path__[0])
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "arguments", "main"}
    of = {command.callback.__module__ for command in main.commands.values() if command.callback}
    assert of == {f"lowering.cli.{name}" for name in files}


def test_the_help_of_all_fits_a_line_each() -> None:
    said = run("--help").stdout
    assert isinstance(main, WithExamples)
    assert len(main.examples) == 3
    for line in main.examples:
        assert f"\n  {line}\n" in said
        assert example(line)[0].exit_code == 0
    listed = [line.split() for line in said.partition("Commands:")[2].splitlines() if line]
    cut = {words[0] for words in listed if words[-1].endswith("...")}
    assert cut <= ON_A_GPU
    assert "Exit codes: 0 fine; 1 a check failed, or two claims differ; 2 wrong input." in said


LIGHT = """
import sys
from lowering.cli.main import main
from lowering.cli.arguments import WithExamples, progress
main.main({arguments!r}, standalone_mode=False)
heavy = {{"numba", "matplotlib", "lowering.isa.mma", "lowering.dispatch.registry"}}
print("heavy:", *sorted(heavy & set(sys.modules)))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["--help"], ["show", "S[8:4@laneid]"], ["show", "--help"], ["swizzle", "8,8"]]
)
def test_light_commands_load_neither_numba_nor_the_instructions(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT.format(arguments=arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "heavy:"


# -- colour and progress ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "coloured"),
    [
        (["explain", "S[8:1]", "S[8:1]"], "\x1b[32mproved\x1b[0m: "),
        (["explain", "S[8:1]", "S[8:2]"], "\x1b[31mrefuted\x1b[0m: "),
        (["show", "S["], "\x1b[31mlayoutalg:\x1b[0m parse: "),
        (["show", "S["], "\n\x1b[31m    ^\x1b[0m\n"),
        (["show", "S[8:1] 長"], "\n\x1b[31m         ^^\x1b[0m\n"),
    ],
)
def test_terminals_alone_show_colours(
    arguments: list[str], coloured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = CliRunner().invoke(main, arguments, color=True)
    assert coloured in terminal.output
    assert "\x1b" not in run(*arguments).output
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in CliRunner().invoke(main, arguments, color=True).output
    monkeypatch.setenv("NO_COLOR", "")  # empty is not set, by no-color.org
    assert CliRunner().invoke(main, arguments, color=True).output == terminal.output


def test_a_bar_shows_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress([1, 2], "work") as bar:
        assert list(bar) == [1, 2]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress([1, 2], "work") as bar:
        assert list(bar) == [1, 2]
    shown = capsys.readouterr()
    assert "work" in shown.err
    assert "100%" in shown.err
    assert shown.out == ""


# -- errors ----------------------------------------------------------------------------------------

ERRORS = {
    "a file that is missing": (
        ["show", "nofile.txt"],
        "layoutalg: no such file or instruction: 'nofile.txt'\n",
    ),
    "a missing file whose name begins with a digit": (
        ["show", "2d.txt"],
        "layoutalg: no such file or instruction: '2d.txt'\n",
    ),
    "an instruction that is mistyped": (
        ["show", "mma.m16n8k16.f61"],
        "layoutalg: fragments: no instruction is named 'mma.m16n8k16.f61'; did you mean "
        "mma.m16n8k16.f64, mma.m16n8k16.f16, mma.m16n8k16.bf16, mma.sp.m16n8k16.f16?\n",
    ),
    "a fragment of a mistyped instruction": (
        ["explain", "mma.m16n8k16.f61:A", "--lane", "5"],
        None,
    ),
    "a folder": (
        ["show", "/tmp"],
        "layoutalg: /tmp is a folder; give a layout, an instruction or a file\n",
    ),
    "JSON that is no layout": (
        ["show", '{"shard": 5}'],
        'layoutalg: from_json: needs an object with the key "layoutalg": 1\n',
    ),
    "JSON that is cut": (
        ["show", '{\n "shard": [\n'],
        "layoutalg: from_json: Expecting value: line 3 column 1 (char 14)\n",
    ),
    "a lane of a fragment beyond the warp": (
        ["explain", "mma.m16n8k16.f16:A", "--lane", "99"],
        "layoutalg: --lane: must lie in 0..31; got 99\n",
    ),
    "a lane beyond those of a layout": (
        ["explain", D_TEXT, "--shape", "16,8", "--lane", "40"],
        "layoutalg: --lane: must lie in 0..31; got 40\n",
    ),
    "a lane before those of a layout": (
        ["explain", "S[8:1@laneid] + 8@laneid", "--shape", "8", "--lane", "7"],
        "layoutalg: --lane: must lie in 8..15; got 7\n",
    ),
    "a place beyond a fragment": (
        ["explain", "mma.m16n8k16.f16:A", "--place", "laneid=99"],
        "layoutalg: --place: laneid must lie in 0..31; got 99\n",
    ),
    "a place beyond all operands": (
        ["explain", "mma.m16n8k16.f16", "--place", "laneid=1,m=8", "--json"],
        "layoutalg: --place: m must lie in 0..7; got 8\n",
    ),
    "a place beyond a swizzled tile": (
        ["explain", SWIZZLED, "--shape", "8,64", "--place", "m=512"],
        "layoutalg: --place: m must lie in 0..511; got 512\n",
    ),
    "a missing file to lint": (
        ["lint", "missing.cu"],
        "layoutalg: lint: no such file: 'missing.cu'; give a file, PTX with an mma, ldmatrix, "
        "stmatrix or movmatrix, or - for standard input\n",
    ),
    "a folder to lint": (
        ["lint", "/"],
        "layoutalg: lint: / is a folder; give a file, PTX with an mma, ldmatrix, stmatrix or "
        "movmatrix, or - for standard input\n",
    ),
    "a lane of an instruction beyond the warp": (
        ["explain", "mma.m16n8k16.f16", "--lane", "32"],
        "layoutalg: --lane: must lie in 0..31; got 32\n",
    ),
    **{
        f"standard input twice, to {words[0]}": (
            words,
            "layoutalg: only one argument may be -: standard input is read once\n",
        )
        for words in ([name, "-", "-"] for name in ("explain", "draw", "convert", "lint"))
    },
    "warps of operands": (
        ["draw", "mma.m16n8k16.f16", "--warps", "3,3", "-o", "x.svg"],
        "layoutalg: draw: --warps is for tiling, not for operands\n",
    ),
    "a dtype of operands": (
        ["draw", "mma.m16n8k16.f16", "--dtype", "f64"],
        "layoutalg: draw: --dtype is for banks, coalescing, not for operands\n",
    ),
    "an access of a lane map": (
        ["draw", "S[8:1@laneid]", "--shape", "8", "--access", "ldmatrix"],
        "layoutalg: draw: --access is for banks, not for lane_map\n",
    ),
    "an operand of a lane map": (
        ["draw", "S[8:1@laneid]", "--shape", "8", "--operand", "A"],
        "layoutalg: draw: --operand is for registers, ldmatrix, not for lane_map\n",
    ),
    "a lane of the gallery": (
        ["draw", "--all", "--lane", "3"],
        "layoutalg: draw: --lane is for operands, registers, ldmatrix, lane_map, compare, "
        "coalescing, not for --all\n",
    ),
    "a CuTe layout that does not parse": (
        ["convert", "(4,?):(1,4)", "--to", "text"],
        "layoutalg: cute: a dynamic size ? is unknown here; write its value\n  (4,?):(1,4)\n"
        "     ^\n",
    ),
    "the second of two layouts": (
        ["explain", "S[8:1]", "S[8:1@laneid)]"],
        "layoutalg: parse: expected ']', found ')'\n  S[8:1@laneid)]\n              ^\n",
    ),
    "a claim that does not parse": (
        ["lint", "--layout", "A=S[8:]", "x"],
        "layoutalg: --layout A: parse: put the extents in one tuple and the strides in another, "
        "as S[(8, 4) : (4, 1)]\n  S[8:]\n      ^\n",
    ),
    "a fragment without an operand": (
        ["show", "mma.m16n8k8.bf16"],
        "layoutalg: layout: name an operand of mma.m16n8k8.bf16: mma.m16n8k8.bf16:A, "
        "mma.m16n8k8.bf16:B, mma.m16n8k8.bf16:C/D.f32\n",
    ),
    "explain without a question": (
        ["explain", "S[8:1]"],
        "layoutalg: explain: give one of --at (an element), --lane, --place (a lane's register "
        "or an address), or a second layout\n",
    ),
    "explain with two questions": (
        ["explain", "S[8:1]", "S[8:1]", "--at", "1"],
        "layoutalg: explain: give one of --at (an element), --lane, --place (a lane's register "
        "or an address), or a second layout\n",
    ),
    "explain without a shape": (
        ["explain", "S[8:1]", "--at", "1"],
        "layoutalg: explain: give the shape of S[8:1], such as --shape 16,8\n",
    ),
    "explain an element outside": (
        ["explain", "S[8:1]", "--shape", "8", "--at", "8"],
        "layoutalg: apply: coordinate 8 of dimension 0 must lie in 0..7 for S[8:1]\n",
    ),
    "a target for one layout": (
        ["explain", "S[8:1]", "--shape", "8", "--at", "1", "--target", "cuda"],
        "layoutalg: explain: --target is for two layouts\n",
    ),
    "a place that is none": (
        ["explain", "S[8:1]", "--shape", "8", "--place", "m"],
        "layoutalg: --place: must look like NAME=VALUE; got 'm'\n",
    ),
    "a place that is no number": (
        ["explain", "S[8:1]", "--shape", "8", "--place", "m=x"],
        "layoutalg: --place: must look like laneid=5,m=3; got 'x'\n",
    ),
    "a question that symbols leave open": (
        ["explain", "S[n:1]", "S[k:1]"],
        None,
    ),
    "one layout to convert": (
        ["convert", "S[8:1]"],
        "layoutalg: convert: give two layouts to convert data between, or one layout and --to "
        "NOTATION\n",
    ),
    "two layouts and a notation": (
        ["convert", "S[8:1]", "S[8:1]", "--to", "tvm"],
        "layoutalg: convert: give two layouts to convert data between, or one layout and --to "
        "NOTATION\n",
    ),
    "a conversion of a swizzle": (
        ["convert", SWIZZLED, "S[512:1]", "--shape", "512"],
        f"layoutalg: convert: data moves between layouts over threads; {SWIZZLED} lies in memory: "
        "--to writes it in another notation\n",
    ),
    "a kind for a notation": (
        ["convert", "S[8:1]", "--to", "tvm", "--via", "shared"],
        "layoutalg: convert: --via is for two layouts\n",
    ),
    "a notation that needs a shape": (
        ["convert", "S[8:1]", "--to", "cute"],
        "layoutalg: write: cute says a layout over its shape: give the shape of S[8:1]\n",
    ),
    "a swizzle without its unit": (
        ["convert", "Sw<3,4,3> o 0 o (8,64):(64,1)", "--to", "text"],
        "layoutalg: cute: 'Sw<3,4,3>' does not say what it counts; pass unit=\"elements\", or "
        'unit="bytes" and the bits of an element\n',
    ),
    "a tile that is none": (
        ["swizzle", "64"],
        "layoutalg: choose_swizzle: a tile has (rows, columns), each 1 or more; got (64,)\n",
    ),
    "a tile that is no number": (
        ["swizzle", "a,b"],
        "layoutalg: swizzle: TILE: must look like 64,64; got 'a,b'\n",
    ),
    "a dtype that is none": (["swizzle", "64,64", "--dtype", "f17"], None),
    "a swizzle of two numbers": (
        ["swizzle", "64,64", "--check", "3,3"],
        "layoutalg: --check: must look like 3,3,3; got '3,3'\n",
    ),
    "a swizzle that tears vectors": (["swizzle", "64,64", "--check", "0,3,3"], None),
    "a picture of two where one is drawn": (
        ["draw", "S[8:1]", "S[8:1]", "--kind", "lane_map"],
        "layoutalg: draw: lane_map takes one layout or instruction; got two\n",
    ),
    "a picture of one where two are drawn": (
        ["draw", "S[8:1]", "--kind", "compare"],
        "layoutalg: draw: compare takes two layouts; got one\n",
    ),
    "a picture of an instruction that is none": (
        ["draw", "S[8:1]", "--kind", "registers"],
        "layoutalg: draw: registers takes an instruction; got 'S[8:1]'\n",
    ),
    "a tiling without a tile": (
        ["draw", "mma.m16n8k16.f16", "--kind", "tiling"],
        "layoutalg: draw: tiling needs --shape M,N,K, such as 64,64,32\n",
    ),
    "what is held, of one number": (
        ["lint", "--held", "a1=8", "x"],
        "layoutalg: --held: must look like a1=8,0; got a1=8\n",
    ),
    "no PTX at all": (
        ["lint", "add.f32 d, a, b;"],
        "layoutalg: lint: no statement that is checked in 'add.f32 d, a, b;'; give a file, PTX "
        "with an mma, ldmatrix, stmatrix or movmatrix, or - for standard input\n",
    ),
    "a layout that does not parse": (
        ["show", "S[8:4@landid]"],
        "layoutalg: parse: axis: no axis is named 'landid'; did you mean laneid? "
        "(Axis.register makes a new one)\n  S[8:4@landid]\n        ^\n",
    ),
    "a shape that is none": (
        ["show", "S[8:1]", "--shape", "8;1"],
        "layoutalg: --shape: must look like 16,8; got '8;1'\n",
    ),
    "a shape of superscripts": (
        ["show", "S[8:1]", "--shape", "²"],
        "layoutalg: --shape: must look like 16,8; got '²'\n",
    ),
    "a picture of nothing": (
        ["draw"],
        "layoutalg: draw: name an instruction or write a layout; or use --all\n",
    ),
    "a picture of a layout without a shape": (
        ["draw", "S[8:1]"],
        "layoutalg: draw: give the shape of S[8:1], such as --shape 16,8\n",
    ),
    "a picture in no known format": (
        ["draw", "mma.m16n8k8.f16", "-o", "x.gif"],
        "layoutalg: operands: the suffix of path says what is written; got '.gif' in 'x.gif'. "
        f"These fit: {', '.join(SUFFIXES)}\n",
    ),
    "a lane beyond the warp": (
        ["fragment", "mma.m16n8k8.f16", "A", "--lane", "32"],
        "layoutalg: --lane: must lie in 0..31; got 32\n",
    ),
    "an operand that is none": (
        ["fragment", "mma.m16n8k8.bf16", "E"],
        "layoutalg: fragments: mma.m16n8k8.bf16 has the operands A, B, C/D.f32; got 'E'\n",
    ),
    "a lane of no instruction": (
        ["fragment", "--lane", "3"],
        "layoutalg: fragment: --lane needs the name of an instruction\n",
    ),
    "a lane in JSON": (
        ["fragment", "mma.m16n8k8.bf16", "--lane", "3", "--json"],
        "layoutalg: fragment: --json prints every lane: give no --lane\n",
    ),
    "a list of one instruction": (
        ["fragment", "mma.m16n8k8.bf16", "--list"],
        "layoutalg: fragment: --list prints all instructions: leave the others out\n",
    ),
    "an export in no known format": (
        ["export", "f.xml", "--instruction", "mma.m8n8k4.f64"],
        "layoutalg: export: the suffix of the file says what is written; got '.xml' in 'f.xml'. "
        "These fit: .json, .csv\n",
    ),
    "an export of an instruction that is none": (
        ["export", "f.json", "--instruction", "mma.m8n8k4.f61"],
        "layoutalg: fragments: no instruction is named 'mma.m8n8k4.f61'; did you mean "
        "mma.m8n8k4.f64, mma.m8n8k4.f16, mma.m16n8k4.f64, mma.m16n8k8.f64?\n",
    ),
    "tiles that are none": (
        ["lower", "--tiles", "1,1"],
        "layoutalg: --tiles: needs Mt,Nt,Kt; got '1,1'\n",
    ),
    "tiles that are no numbers": (
        ["lower", "--tiles", "a"],
        "layoutalg: --tiles: must look like 16,8; got 'a'\n",
    ),
    "the gallery and an instruction": (
        ["draw", "--all", "mma.m16n8k8.f16"],
        "layoutalg: draw: --all redraws the gallery; it takes no instruction, shape or kind\n",
    ),
    "the gallery and a kind": (
        ["draw", "--all", "--kind", "banks"],
        "layoutalg: draw: --all redraws the gallery; it takes no instruction, shape or kind\n",
    ),
    "an instruction and a shape": (
        ["draw", "mma.m16n8k8.f16", "--shape", "16,8"],
        "layoutalg: draw: --shape is for layouts; mma.m16n8k8.f16 has its own shape\n",
    ),
    "a target without the instruction": (
        ["lower", "--as", "ptx", "--arch", "sm_75"],
        "layoutalg: target: sm_75 lacks mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32; sm_80 "
        "and newer have it\n",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_said_in_a_line_and_exit_with_2(name: str, tmp_path: Path) -> None:
    """No traceback, nothing on standard output, and no file is left behind."""
    arguments, message = ERRORS[name]
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("layoutalg: ")
    assert message in (None, result.stderr)
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_a_file_or_standard_input_names_it(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("S[(8,4):\n  (4@landid,1)]", encoding="utf-8")
    result = run("show", "bad.txt")
    assert result.exit_code == 2
    assert result.stderr.startswith("layoutalg: bad.txt: parse: axis: no axis is named 'landid'")
    assert result.stderr.endswith("\n    (4@landid,1)]\n       ^\n")
    result = run("show", "-", stdin="S[8:")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("layoutalg: standard input: parse: ")
    (tmp_path / "bad.bin").write_bytes(b"\xff\xfe")
    result = run("show", "bad.bin")
    assert (result.exit_code, result.stderr) == (2, "layoutalg: bad.bin: not UTF-8 text\n")


def test_a_folder_that_is_missing_is_an_error_of_the_user(tmp_path: Path) -> None:
    result = run("draw", "mma.m16n8k8.f16", "-o", "no/such/folder.svg")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("layoutalg: ")
    assert "folder.svg: there is no folder " in result.stderr
    assert ".part" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyError("bug"), BrokenPipeError()])
def test_bugs_and_broken_pipes_are_not_hidden(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(*arguments: Any, **rest: Any) -> Any:
        raise error

    monkeypatch.setattr(fragments, "names", raises)
    with pytest.raises(type(error)):
        main.main(["fragment"], standalone_mode=False)


def test_usage_errors_are_clicks() -> None:
    assert run("frobnicate").exit_code == 2
    assert run("lower", "--beta", "2").exit_code == 2
    assert "Usage: main [OPTIONS] COMMAND" in run("-h").stdout
    assert isinstance(main, click.Group)
    assert {"demo", "show", "draw", "export", "fragment", "lower", "verify"} <= set(main.commands)


@pytest.mark.slow
def test_python_m_layoutalg_is_the_same_command() -> None:
    command = [sys.executable, "-m", "layoutalg", "show", "S[8:4@laneid]"]
    root = ROOT
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout == run("show", "S[8:4@laneid]").stdout
    bad = subprocess.run([*command[:-1], "S["], capture_output=True, text=True, cwd=root)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "Traceback" not in bad.stderr
    assert bad.stderr.endswith("\n  S[\n    ^\n")


def test_the_version_is_that_of_the_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"1.2.3 of {name}")
    assert run("--version").stdout == "layoutalg, version 1.2.3 of layoutalg\n"


def test_a_tree_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert list(lines(run("--version"))) == [
        "layoutalg, not installed: run from its source, without a version"
    ]


def test_a_record_of_the_bench_is_drawn_without_a_device(tmp_path: Path) -> None:
    record = DATA / "hardware/h200_bench_f16.json"
    plot, copy = tmp_path / "rates.svg", tmp_path / "copy.json"
    arguments = ["bench", "--record", str(record), "--plot", str(plot), "-o", str(copy)]
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.stdout) == (0, f"{plot}\n")
    assert "NVIDIA H200" in plot.read_text()
    assert json.loads(copy.read_text()) == json.loads(record.read_text())


ROW = {"size": 1024, "rates": {"layoutalg": 100.0}}
RECORD: dict[str, Any] = {"device": "H200", "dtype": "float16", "rows": [ROW]}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{", "no JSON: Expecting"),
        ("[" * 100_000, "no JSON: "),
        ([], "it must be an object; got list"),
        ({"rows": [1]}, "device must be text; got None"),
        (RECORD | {"dtype": 5}, "dtype must be text; got 5"),
        (RECORD | {"rows": {}}, "rows must be a list of one row or more; got {}"),
        (RECORD | {"rows": []}, "rows must be a list of one row or more; got []"),
        (RECORD | {"rows": [1]}, "row 0 must have a size; got None"),
        (RECORD | {"rows": [ROW, ROW | {"size": "8"}]}, "row 1 must have a size; got '8'"),
        (RECORD | {"rows": [ROW | {"rates": [1]}]}, "row 0 must have rates"),
        (RECORD | {"rows": [ROW | {"rates": {"layoutalg": "fast"}}]}, "row 0 must have rates"),
        (
            RECORD | {"rows": [ROW | {"rates": {"layoutalg": float("nan")}}]},
            "row 0 must have rates",
        ),
        (RECORD | {"rows": [ROW | {"rates": {"other": 1.0}}]}, "at least one kernel"),
    ],
)
def test_a_record_that_is_none_is_refused(tmp_path: Path, record: Any, message: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(record if isinstance(record, str) else json.dumps(record))
    plot = tmp_path / "rates.svg"
    done = CliRunner().invoke(main, ["bench", "--record", str(path), "--plot", str(plot)])
    assert (done.exit_code, done.stdout, plot.exists()) == (2, "", False)
    assert message in done.stderr
    assert done.stderr.startswith("layoutalg: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plot", "rates.gif"], "got '.gif' in 'rates.gif'. These fit: .pdf, .png, .svg"),
        (["--size", "1024"], "--size: is for measuring, and --record measures nothing: give one"),
        (["--tune"], "--tune: is for measuring"),
        (["--rounds", "12"], "--rounds: is for measuring"),
        (["--dtype", "float16"], "--dtype: is for measuring"),
        ([], "--record: draw the record by --plot, or copy it by -o; got neither"),
    ],
)
def test_what_a_record_has_no_use_for_is_refused(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(RECORD))
    done = CliRunner().invoke(main, ["bench", "--record", str(path), *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize("size", ["0", "-8", "12"])
def test_sizes_that_no_kernel_takes_are_refused_before_the_device(size: str) -> None:
    done = CliRunner().invoke(main, ["bench", "--size", "1024", "--size", size])
    assert done.exit_code == 2
    assert done.stderr == f"layoutalg: --size: must be a multiple of 8, from 8 on; got {size}\n"
    done = CliRunner().invoke(main, ["bench", "--plot", "rates.bmp"])
    assert "got '.bmp' in 'rates.bmp'" in done.stderr
