"""The command line: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from layoutalg import export, fragments
from layoutalg.draw.output import SUFFIXES
from lowering import targets_table, verification
from lowering.cli import main
from lowering.verification import Case


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every command in a folder of its own."""
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def lines(result: Result) -> Iterator[str]:
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    yield from result.stdout.splitlines()


def table(result: Result) -> dict[str, str]:
    """Return the rows of a printed table of two columns."""
    found = (re.fullmatch(r"  (\S.*?)  +(\S.*)", line) for line in lines(result))
    return {row[1]: row[2] for row in found if row}


def test_demo_does_the_main_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "machine_name", lambda: "simulator")
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


def test_demo_writes_where_it_is_told(tmp_path: Path) -> None:
    assert table(run("demo", "--output", "maps/here"))["lane maps"].startswith("maps/here/mma.")
    assert len(list((tmp_path / "maps" / "here").iterdir())) == 2


def test_demo_fails_where_the_product_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = verification.check

    def wrong(*arguments: Any, **rest: Any) -> verification.Result:
        result = right(*arguments, **rest)
        return verification.Result(result.case, result.instruction, 1, 0.5, 1e-6, "simulator")

    monkeypatch.setattr(verification, "check", wrong)
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
    few = [form for form in targets_table.forms() if form.instruction.startswith("stmatrix")]
    found = targets_table.table(few)
    monkeypatch.setattr(targets_table, "table", lambda: found)
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


ERRORS = {
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
        "layoutalg: fragment: --lane is of one instruction; name it\n",
    ),
    "a lane in JSON": (
        ["fragment", "mma.m16n8k8.bf16", "--lane", "3", "--json"],
        "layoutalg: fragment: --json has every lane; it takes no --lane\n",
    ),
    "a list of one instruction": (
        ["fragment", "mma.m16n8k8.bf16", "--list"],
        "layoutalg: fragment: --list is of all instructions; it takes no other choice\n",
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
        "layoutalg: draw: --all redraws the gallery; it takes no instruction or shape\n",
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
    assert result.stderr == message
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing_is_an_error_of_the_user(tmp_path: Path) -> None:
    result = run("draw", "mma.m16n8k8.f16", "-o", "no/such/folder.svg")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("layoutalg: [Errno 2] No such file or directory: ")
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


def test_python_m_layoutalg_is_the_same_command() -> None:
    command = [sys.executable, "-m", "layoutalg", "show", "S[8:4@laneid]"]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout == run("show", "S[8:4@laneid]").stdout
    bad = subprocess.run([*command[:-1], "S["], capture_output=True, text=True, cwd=root)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "Traceback" not in bad.stderr
    assert bad.stderr.endswith("\n  S[\n    ^\n")


def test_the_version_is_that_of_the_installed_package() -> None:
    try:
        version = importlib.metadata.version("layoutalg")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("layoutalg is not installed: --version has nothing to say")
    assert run("--version").stdout.split()[-1] == version
