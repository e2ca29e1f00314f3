"""Which target has which instruction: the table against nvJitLink, known cases, and refusals."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from typing import Any

import pytest

import lowering as lw
import lowering.isa.nvjitlink
from layoutalg import LayoutError, fragments, parse
from layoutalg.fragments.fragment import Formula, Fragment
from layoutalg.fragments.targets import (
    FAMILIES,
    TARGETS,
    check,
    has,
    lacking,
    parts,
    targets_of,
    written,
)
from lowering.audit import target_matrix
from lowering.audit.linter import lint
from lowering.audit.target_matrix import accepted, forms, module, table
from lowering.ir.expressions import Apply, Operand
from lowering.ir.index import Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import Compute, Load, LoadMatrix, Registers, Store
from lowering.isa import wgmma
from lowering.isa.casts import cast
from lowering.isa.mma import compute_capability
from lowering.isa.nvjitlink import AssembleError, assemble, version
from tests.lowering.dispatch.test_copy import lowered, memory, registers
from tests.lowering.dispatch.test_family import program
from tests.support.paths import DATA

pytest.importorskip("cuda.bindings.nvjitlink", reason="nvJitLink is not installed")

NEWEST = version() == "13.5"
needs_newest = pytest.mark.skipif(not NEWEST, reason="TARGETS are those of nvJitLink 13.5")
INSTRUCTIONS = tuple(dict.fromkeys(form.instruction for form in forms()))
DATA = DATA / "cases"
CASES = {
    kind: {row["id"]: row for row in json.loads((DATA / f"{kind}.json").read_text())}
    for kind in ("ptx_arch", "dispatch_reject")
}


@cache
def taken() -> tuple[str, ...]:
    """Return the targets that the installed nvJitLink takes: all of them, or it is an older one."""
    found = tuple(target for target in TARGETS if assembles("", target))
    assert found == TARGETS or not NEWEST
    return found


@cache
def measured(target: str) -> dict[str, bool]:
    """Return which forms a target has: mnemonic -> nvJitLink's word."""
    said = accepted([form.text for form in forms()], target)
    return {form.text: yes for form, yes in zip(forms(), said, strict=True)}


def assembles(statement: str, target: str, arch: str | None = None) -> bool:
    """Say whether a statement, in PTX for a target, assembles for that target or another."""
    try:
        return assemble(module([statement], target), arch or target)[:4] == b"\x7fELF"
    except AssembleError:
        return False


# -- the names ------------------------------------------------------------------------------------


@needs_newest
def test_the_targets_are_those_that_nvjitlink_takes() -> None:
    names = [f"sm_{number}{suffix}" for number in range(50, 140) for suffix in ("", "a", "f")]
    text = module([], "sm_107")  # the newest PTX that is written
    assert tuple(t for t in names if _takes(text.replace("sm_107", t), t)) == TARGETS


def _takes(text: str, target: str) -> bool:
    try:
        return bool(assemble(text, target))
    except AssembleError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("target", [each for each in TARGETS if parts(each)[1]])
def test_families_are_those_of_nvjitlink(target: str) -> None:
    """PTX for sm_NNf runs on the family from NN on, PTX for sm_NNa there alone: families are so."""
    if target not in taken():
        pytest.skip(f"nvJitLink {version()} does not take {target}")
    number, suffix = parts(target)
    family = next((each for each in FAMILIES if number in each), (number,))
    runs = {arch for arch in taken() if assembles("", target, arch)}
    if suffix == "a":
        assert runs == {target}
    else:
        assert runs == {t for t in taken() if parts(t)[0] in family and parts(t)[0] >= number}


def test_every_target_is_read_and_sorted() -> None:
    assert [f"sm_{number}{suffix}" for number, suffix in map(parts, TARGETS)] == list(TARGETS)
    assert sorted(TARGETS, key=parts) == list(TARGETS)
    assert all(check(target) == target for target in TARGETS)
    assert compute_capability("sm_103f") == (10, 3, "f")
    assert compute_capability("sm_75") == (7, 5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sm_91", "sm_91 is unknown; near it are sm_89, sm_90 and sm_90a"),
        ("sm_86a", "sm_86a is unknown; near it are sm_86, sm_87 and sm_88"),
        ("sm_70", "sm_70 is unknown; near it are sm_75, sm_80 and sm_86"),
        ("sm_130", "sm_130 is unknown; near it are sm_121, sm_121a and sm_121f"),
        ("sm_090", "must look like sm_90 or sm_90a; got 'sm_090'"),
        ("sm_90b", "must look like sm_90 or sm_90a; got 'sm_90b'"),
        ("sm_90\n", "must look like sm_90 or sm_90a; got 'sm_90\\n'"),
        (None, "must look like sm_90 or sm_90a; got None"),
    ],
)
def test_other_targets_are_refused(name: Any, message: str) -> None:
    a = fragments.get("mma.m16n8k16.f16", "A")
    copied = lw.copy(registers(a.layout, a.shape), memory(a.shape))
    calls: tuple[Any, ...] = (
        lambda: check(name),
        lambda: has("sm_80", name),
        lambda: compute_capability(name),
        lambda: lw.MMA_FAMILY[0].runs_on(name),
        lambda: lowered(copied.operands["dst"], copied.operands["src"], arch=name),
        lambda: program(lw.MMA_FAMILY[0], (1, 1, 1), 0).cubin(name or 0),
    )
    for call in calls[: -1 if name is None else None]:
        with pytest.raises(LayoutError) as caught:
            call()
        assert str(caught.value) == f"target: {message}"


# -- the rule -------------------------------------------------------------------------------------

AF = "with suffix a or f"


@pytest.mark.parametrize(
    ("min_arch", "numbers", "text"),
    [
        ("sm_70", None, "sm_70 and newer"),
        ("sm_80", TARGETS[1:], "sm_80 and newer"),
        ("sm_89", TARGETS[5:], "sm_89 and newer"),
        ("sm_121", ("sm_121", "sm_121a", "sm_121f"), "sm_121 and newer"),
        ("sm_90a", ("sm_90a",), "sm_90a"),
        ("sm_110a", ("sm_110a", "sm_110f"), "sm_110a and sm_110f"),
        ("sm_121f", ("sm_121a", "sm_121f"), "sm_121a and sm_121f"),
        (
            "sm_120a",
            ("sm_120a", "sm_120f", "sm_121a", "sm_121f"),
            "sm_120a, sm_120f, sm_121a and sm_121f",
        ),
        (
            "sm_100f",
            ("sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_107a", "sm_107f"),
            f"sm_100, sm_103 and sm_107 {AF}",
        ),
        (
            "sm_90a, sm_120a",
            ("sm_90a", "sm_120a", "sm_120f", "sm_121a", "sm_121f"),
            "sm_90a, sm_120a, sm_120f, sm_121a and sm_121f",
        ),
    ],
)
def test_what_min_arch_means(min_arch: str, numbers: Any, text: str) -> None:
    having = numbers or TARGETS
    assert targets_of(min_arch) == having
    assert [target for target in TARGETS if has(min_arch, target)] == list(having)
    assert written(min_arch) == text
    verb = "has" if len(having) == 1 else "have"
    assert lacking("x.y", min_arch, "sm_75") == f"sm_75 lacks x.y; {text} {verb} it"


@pytest.mark.parametrize(
    ("min_arch", "message"),
    [
        ("sm_130", "no known target is sm_130 or newer; the last is sm_121f"),
        ("sm_95a", "no known target is sm_95a or newer; the last is sm_121f"),
        ("90", "must look like sm_90 or sm_90a; got '90'"),
        ("sm_80,sm_90a", "must look like sm_90 or sm_90a; got 'sm_80,sm_90a'"),
        ("", "must look like sm_90 or sm_90a; got ''"),
    ],
)
def test_a_row_that_no_target_has_cannot_be_made(min_arch: str, message: str) -> None:
    layout, rule = parse("S[(8,4):(4@laneid,1@laneid)]"), Formula((), {"g": 1}, {"t": 1})
    for call in (
        lambda: targets_of(min_arch),
        lambda: Fragment("x", "A", "f32", 32, (8, 4), layout, rule, min_arch, "none"),
    ):
        with pytest.raises(LayoutError) as caught:
            call()
        assert str(caught.value) == f"target: {message}"


# -- the table against nvJitLink ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_nvjitlink_says_yes_where_the_table_does(instruction: str) -> None:
    of = [form for form in forms() if form.instruction == instruction]
    for form in of:
        having = [target for target in taken() if measured(target)[form.text]]
        assert having == [t for t in targets_of(form.min_arch) if t in taken()], form.name


@pytest.mark.parametrize("instruction", fragments.names())
def test_the_rows_know_their_targets(instruction: str) -> None:
    """A row's targets are those that have a form of its instruction."""
    of = [form for form in forms() if form.instruction == instruction]
    having = tuple(t for t in taken() if any(measured(t)[form.text] for form in of))
    for row in fragments.rows(instruction):
        assert tuple(target for target in row.targets if target in taken()) == having


def test_every_dense_mma_is_asked_about() -> None:
    asked = {form.mnemonic for form in forms()}
    assert {row.ptx for row in lw.MMA_FAMILY} <= asked
    assert len({form.name for form in forms()}) == len(forms()) > 250
    for row in lw.MMA_FAMILY:
        assert [t for t in TARGETS if row.runs_on(t)] == list(targets_of(row.min_arch))


def test_a_module_of_many_says_what_modules_of_one_say() -> None:
    sample = random.Random(5).sample([(f, t) for f in forms() for t in taken()], 150)
    said = [measured(target)[form.text] for form, target in sample]
    assert said == [assembles(form.text, target) for form, target in sample]
    assert 30 < sum(said) < 120  # both answers are in the sample


def test_answers_do_not_depend_on_the_neighbours() -> None:
    good, bad = "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;", "frobnicate %r0;"
    late = "cp.async.commit_group;"
    assert accepted([bad, good, late, good, bad], "sm_75") == (False, True, False, True, False)
    assert accepted([bad, good, late], "sm_80") == (False, True, True)
    assert accepted([bad], "sm_80") == (False,)
    assert accepted([], "sm_80") == ()


def test_an_error_without_a_line_is_passed_on() -> None:
    with pytest.raises(AssembleError, match="nvJitLink does not take the target 'sm_91'"):
        accepted(["trap;"], "sm_91")


@pytest.mark.parametrize(
    "text",
    [
        "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f32 "
        "{%r0,%r1,%r2,%r3}, {%r4,%r5}, {%r6,%r7}, {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7};",
        "mma.sp.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16 "
        "{%r0,%r1}, {%r0,%r1}, {%r0,%r1}, {%r0,%r1}, %r9, 0x0;",
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::1X"
        ".f32.e2m1.e2m1.f32.ue8m0 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r0,%r1}, "
        "{%f0,%f1,%f2,%f3}, %r8, {0, 0}, %r9, {0, 0};",
        "tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r0}, [%r9];",
    ],
)
def test_what_the_table_leaves_out_no_target_has(text: str) -> None:
    assert not any(assembles(text, target) for target in taken())


# -- the table as text ----------------------------------------------------------------------------

SAMPLE = tuple(
    form
    for form in forms()
    if form.instruction in ("mma.m8n8k128.b1", "wgmma.m64n8", "stmatrix.m16n8", "mma.m8n8k4.f16")
)
TEXT = """\
instruction × target, {source}
column sm_80: sm_80, sm_86, sm_87, sm_88, sm_89, sm_90, sm_100, sm_103, sm_107, sm_110, sm_120, \
sm_121
column sm_100a: sm_100a, sm_100f, sm_103a, sm_103f, sm_107a, sm_107f, sm_110a, sm_110f, sm_120a, \
sm_120f, sm_121a, sm_121f
                    sm_75 sm_80 sm_90a sm_100a
mma.m8n8k128.b1 and   .     x     x       x
mma.m8n8k128.b1 xor   x     x     x       x
mma.m8n8k4.f16        x     x     x       x
wgmma.m64n8           .     .     x       .
stmatrix.m16n8        .     .     .       x"""


@needs_newest
def test_the_table_is_measured() -> None:
    found = table(SAMPLE)
    assert found.targets == TARGETS
    assert found.having == tuple(targets_of(form.min_arch) for form in SAMPLE)
    assert found.text() == TEXT.format(source="measured: nvJitLink 13.5")


def test_without_nvjitlink_the_table_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> str:
        raise AssembleError("nvJitLink is not installed (x): install it")

    monkeypatch.setattr(target_matrix, "version", absent)
    reason = "not measured, from the fragment table: nvJitLink is not installed (x): install it"
    assert table(SAMPLE).text() == TEXT.format(source=reason)


def test_targets_of_a_newer_nvjitlink_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def older(statements: Any, target: str) -> tuple[bool, ...]:
        if parts(target)[0] != 90:
            raise AssembleError("does not take it")
        return (target == "sm_90a",) * len(statements)

    monkeypatch.setattr(target_matrix, "accepted", older)
    monkeypatch.setattr(target_matrix, "version", lambda: "12.0")
    found = table(SAMPLE)
    assert found.targets == ("sm_90", "sm_90a")
    assert found.having == (("sm_90a",),) * len(SAMPLE)  # what was measured, not what is known
    assert found.source.startswith("measured: nvJitLink 12.0, which does not take sm_75, sm_80, ")


def test_nvjitlink_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> tuple[bool, ...]:
        raise AssembleError("PTX .version is too new")

    monkeypatch.setattr(target_matrix, "accepted", refuses)
    found = table(SAMPLE[:1])
    assert found.source == "not measured, from the fragment table: PTX .version is too new"
    assert found.having == (targets_of("sm_80"),)


def test_a_table_of_nothing() -> None:
    assert table(()).text().splitlines()[0].startswith("instruction × target, ")


# -- refusals -------------------------------------------------------------------------------------

OLDER = ("sm_75", "sm_80", "sm_88", "sm_89", "sm_90", "sm_100")


@pytest.mark.parametrize("row", lw.MMA_FAMILY, ids=str)
def test_a_lowered_mma_is_refused_by_targets_that_lack_it(row: lw.MmaInst) -> None:
    made = program(row, (1, 1, 1), 0)
    for target in OLDER:
        if has(row.min_arch, target):
            continue
        with pytest.raises(LayoutError) as caught:
            made.ptx(target)
        sentence = f"{target} lacks {row.ptx}; {written(row.min_arch)} have it"
        assert str(caught.value) == f"target: {sentence}"
        others = [r for r in lw.MMA_FAMILY if r.dtypes == row.dtypes and r.runs_on(target)]
        if not row.kind and any(r.modifier == row.modifier and row.m % r.m == 0 for r in others):
            other = lw.lower(made.call, arch=target).instruction
            assert other in others
            continue
        with pytest.raises(lw.DispatchError) as refused:
            lw.lower(made.call, arch=target)
        assert sentence in str(refused.value)


def test_a_copy_is_refused_by_targets_that_lack_it() -> None:
    a = fragments.get("mma.m16n8k16.f16", "A")
    for target in ("sm_75", "sm_80", "sm_89"):
        with pytest.raises(lw.DispatchError, match=rf"{target} lacks stmatrix; sm_90 and newer"):
            lowered(
                memory(a.shape), registers(a.layout, a.shape), arch=target, dispatch="ldstmatrix"
            )
    into, source = memory((16, 16)), lw.Buffer("G", (16, 16), "f16", "global")
    assert lowered(into, source, arch="sm_80", asynchronous=True).ops
    with pytest.raises(lw.DispatchError, match=r"sm_75 lacks cp\.async; sm_80 and newer have it"):
        lowered(into, source, arch="sm_75", asynchronous=True)


def staged(asynchronous: bool) -> lw.KernelProgram:
    """Build a kernel that stages a matrix, by cp.async or through stmatrix, for sm_90."""
    a = fragments.get("mma.m16n8k16.f16", "A")
    kernel = lw.Kernel("staged")
    x, y = kernel.param("x", a.shape, "f16"), kernel.param("y", a.shape, "f16")
    s = kernel.alloc("s", a.shape, "f16", "shared")
    r = kernel.alloc("r", a.shape, "f16", layout=a.layout)
    if asynchronous:
        kernel.copy(s, x, asynchronous=True)
        kernel.commit()
        kernel.wait()
    else:
        kernel.copy(r, x)
        kernel.copy(s, r)
    kernel.sync()
    kernel.copy(r, s)
    kernel.copy(y, r)
    return kernel.lower()


def converted() -> KernelIR:
    """Return a body that rounds two f32 to a pair of f16."""
    x, y = lw.Buffer("x", (64,), "f32", "global"), lw.Buffer("y", (64,), "f16", "global")
    wide, held = (lw.Buffer(f"r{t}", (2,), t, "local", parse("S[2:1]")) for t in ("f32", "f16"))
    lane = Index.of("thread", 32) * 2
    value = Apply(cast("f32", "f16"), (Operand(0, "f32"),))
    ops = (
        Load(Registers("rf32", (0, 1)), "x", lane),
        Compute(Registers("rf16", (0, 1)), value, (Registers("rf32", (0, 1)),)),
        Store("y", lane, Registers("rf16", (0, 1))),
    )
    return KernelIR((x, y), (), (wide, held), ops, 32)


LOWERED_FOR_SM_90 = {
    "cp.async": (lambda: staged(True).body, "cp.async.cg.shared.global", "sm_80"),
    "stmatrix": (lambda: staged(False).body, "stmatrix.sync.aligned.m8n8.x4.shared.b16", "sm_90"),
    "cvt": (converted, "cvt.rn.f16x2.f32", "sm_80"),
}


@pytest.mark.parametrize("what", LOWERED_FOR_SM_90)
def test_a_kernel_is_refused_by_targets_that_lack_a_statement(what: str) -> None:
    """What was lowered for one target and compiled for another: each statement is looked at."""
    cuda = pytest.importorskip("lowering.codegen.numba_cuda", reason="numba-cuda is not installed")
    build, mnemonic, first = LOWERED_FOR_SM_90[what]
    body = build()
    for target in ("sm_75", "sm_80", "sm_89"):
        if not has(first, target):
            with pytest.raises(LayoutError) as caught:
                cuda.compile_ptx(body, "k", target)
            want = f"target: {target} lacks {mnemonic}; {first} and newer have it"
            assert str(caught.value) == want
    text = cuda.compile_ptx(body, "k", first)
    assert mnemonic in text
    assert assemble(text, first)
    older = TARGETS[TARGETS.index(first) - 1]
    assert not _takes(text.replace(f".target {first}", f".target {older}"), older)


# -- known cases ----------------------------------------------------------------------------------


def case(kind: str, name: str) -> tuple[Any, Any]:
    """Return input and expected outcome of a case."""
    row = CASES[kind][name]
    return row["input"], row["expected"]


SPECIAL = ("A05", "A07", "A08", "A13", "A14", "A22", "L08", "L11")
PTX = tuple(name for name in CASES["ptx_arch"] if name not in SPECIAL)
LETTERS = {"f32": "f", "f64": "d", "b32": "r"}


def test_every_case_of_the_files_is_used() -> None:
    assert len(CASES["ptx_arch"]) == 44
    assert len(PTX) == 36
    assert all(name.startswith("PTX") for name in PTX)
    assert sorted(CASES["dispatch_reject"]) == ["A11", "L14"]


def statement(given: dict[str, Any]) -> str:
    """Write a case's statement: an mma of so many registers, or a text with its declarations."""
    text: str = given["ptx"]
    if "counts" not in given:
        return f"{{ {text} }}"
    d, ab, c = (LETTERS[kind] for kind in given["reg_types"])
    lists = [
        "{" + ",".join(f"%{kind}{i}" for i in range(count)) + "}"
        for kind, count in zip((d, ab, ab, c), given["counts"], strict=True)
    ]
    if "block_scale" in text:
        lists += ["%r8", "{0, 0}", "%r9", "{0, 0}"]
    return f"{text} {', '.join(lists)};"


def complaints(text: str, target: str | None = None) -> list[str]:
    """Return the rules of which the linter finds errors."""
    return [finding.rule for finding in lint(text, arch=target) if finding.severity == "error"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PTX)
def test_a_statement_on_each_target(name: str) -> None:
    """NvJitLink says what the case expects; where the table has the statement it says so too."""
    given, expected = case("ptx_arch", name)
    text = statement(given)
    asked = [target for target in expected if target in taken()]
    assert len(asked) > 12
    assert {t: assembles(text, t) for t in asked} == {t: expected[t] for t in asked}
    known = [form for form in forms() if form.mnemonic in re.split(r"[\s;]+", text)]
    bad = CASES["ptx_arch"][name]["title"].startswith("BAD")
    assert bad != any(expected.values())
    if name == "PTX41":
        assert known  # the registers are of the wrong type, which no mnemonic shows
    elif known:
        assert {t: has(known[0].min_arch, t) for t in expected} == expected
    else:
        assert bad or name in ("PTX45", "PTX46", "PTX68", "PTX69")


LINTED = [
    name
    for name in PTX
    if CASES["ptx_arch"][name]["input"]["ptx"].startswith("mma.") and name not in ("PTX24", "PTX41")
]


@pytest.mark.parametrize("name", LINTED)
def test_lint_agrees_with_the_case(name: str) -> None:
    given, expected = case("ptx_arch", name)
    text = statement(given)
    assert {t: not complaints(text, t) for t in expected} == expected


def test_a05_wgmma_makes_of_a_capability_its_specific_target() -> None:
    given, expected = case("ptx_arch", "A05")
    number = 10 * given["cc"][0] + given["cc"][1]
    (row,) = (row for row in fragments.rows("wgmma.m64n8") if row.dtype == "f16")
    assert [t for t in row.targets if parts(t)[0] == number] == [expected]
    (text,) = (form.text for form in forms() if form.name == "wgmma.m64n8 f16")
    assert assembles(text, expected)
    assert not assembles(text, expected, f"sm_{number}")  # PTX for sm_90a does not run on sm_90
    assert not assembles(text, f"sm_{number}")


def test_a07_ptx_newer_than_the_driver() -> None:
    """A program goes to the driver as machine code: its PTX may be newer than the driver reads."""
    pytest.importorskip("lowering.codegen.numba_cuda", reason="numba-cuda is not installed")
    given, expected = case("ptx_arch", "A07")
    major, minor = map(int, given["driver_cuda"].split("."))
    reads = (major - 4, minor)  # PTX ISA, release notes: CUDA 13.0 came with PTX 9.0
    assert (tuple(map(int, given["ptx_version"].split("."))) <= reads) is expected["driver_jit_ok"]
    made = program(lw.MMA_FAMILY[0], (1, 1, 1), 0)
    (written_as,) = re.findall(r"^\.version (\S+)", made.ptx("sm_80"), re.MULTILINE)
    if NEWEST:
        assert written_as == given["ptx_version"]
    cubin = made.cubin("sm_80")
    assert int.from_bytes(cubin[18:20], "little") == 190  # EM_CUDA
    assert b".version" not in cubin
    # What the table is measured with, every driver of CUDA 13 reads.
    for target in TARGETS:
        found = re.match(r"\.version (\d+)\.(\d+)", module([], target))
        assert found is not None
        assert (int(found[1]), int(found[2])) <= reads or parts(target)[0] == 107


def test_a08_f64() -> None:
    given, expected = case("ptx_arch", "A08")
    assert [fragments.get(f"mma.{each}", "A").min_arch for each in given["ptx"]] == expected["min"]
    assert "sm_86" in fragments.get("mma.m8n8k4.f64", "A").targets
    mixed = "mma.sync.aligned.m8n8k4.row.col.s32.f64.f64.s32 {%r0,%r1}, {%d0}, {%d1}, {%r0,%r1};"
    assert not any(assembles(mixed, target) for target in taken())
    assert complaints(mixed)
    made = program(next(row for row in lw.MMA_FAMILY if row.name == "mma.m8n8k4.f64"), (1, 1, 1), 0)
    into = lw.Buffer("D", (8, 8), "s32", layout=made.buffer("D").layout)
    with pytest.raises(lw.DispatchError, match="with these A and B, C and D may be float64"):
        lw.lower(lw.gemm(into, made.buffer("A"), made.buffer("B"), dispatch="mma.sync*"))


def test_a13_integer_wgmma_has_fewer_n() -> None:
    given, expected = case("ptx_arch", "A13")
    for n, yes in zip(given["s8_n"], expected, strict=True):
        assert ("D.s32" in fragments.operands(f"wgmma.m64n{n}")) is yes
        into, a = (f"{{{','.join(f'%r{i}' for i in range(count))}}}" for count in (n // 2, 4))
        head = f"wgmma.mma_async.sync.aligned.m64n{n}k32.s32.s8.s8"
        text = f"{head} {into}, {a}, %l0, %p0;"
        assert [target for target in taken() if assembles(text, target)] == ["sm_90a"] * yes
        assert (head in {form.mnemonic for form in forms()}) is yes
        if not yes:
            with pytest.raises(LayoutError, match="wgmma: N of a s32 accumulator is one of 8, 16,"):
                wgmma.get(n, "s8")


def mma(shape: str, types: str, counts: tuple[int, int, int, int], order: str = "row.col") -> str:
    """Write an mma of 32-bit registers; f32 accumulators are of their own kind."""
    d, _, _, c = types.split(".")[:4]
    kinds = ("f32" if d == "f32" else "b32", "b32", "f32" if c == "f32" else "b32")
    ptx = f"mma.sync.aligned.{shape}.{order}.{types}"
    return statement({"ptx": ptx, "counts": counts, "reg_types": kinds})


F16 = "f32.f16.f16.f32"
ILLEGAL = {
    "bf16.f16acc": mma("m16n8k16", "f16.bf16.bf16.f16", (2, 4, 2, 2)),
    "f16xbf16": mma("m16n8k16", "f32.f16.bf16.f32", (4, 4, 2, 4)),
    "Df32Cf16": mma("m16n8k16", "f32.f16.f16.f16", (4, 4, 2, 2)),
    "tf32.k16": mma("m16n8k16", "f32.tf32.tf32.f32", (4, 8, 4, 4)),
    "s8.f32acc": mma("m16n8k16", "f32.s8.s8.f32", (4, 2, 1, 4)),
    "f16.rn": mma("m16n8k16", f"{F16}.rn", (4, 4, 2, 4)),
    "row.row": mma("m16n8k16", F16, (4, 4, 2, 4), "row.row"),
    "col.col": mma("m16n8k16", F16, (4, 4, 2, 4), "col.col"),
}


def test_a14_illegal_type_combinations() -> None:
    given, expected = case("ptx_arch", "A14")
    assert list(ILLEGAL) == given["bad"]
    for text, yes in zip(ILLEGAL.values(), expected["accept"], strict=True):
        assert any(assembles(text, target) for target in taken()) is yes
        assert (not complaints(text)) is yes
    good = mma("m16n8k16", F16, (4, 4, 2, 4))
    assert assembles(good, "sm_80")
    assert not complaints(good)


def test_a22_rounding() -> None:
    given, expected = case("ptx_arch", "A22")
    f64 = "mma.sync.aligned.m8n8k4.row.col{} {{%d0,%d1}}, {{%d2}}, {{%d3}}, {{%d0,%d1}};"
    types = ".f64.f64.f64.f64"
    texts = [f64.format(f"{types}.rn"), f64.format(f".rn{types}"), ILLEGAL["f16.rn"]]
    assert len(texts) == len(given["forms"])
    assert [assembles(text, "sm_90") for text in texts] == expected
    assert [not complaints(text, "sm_90") for text in texts] == expected


def test_l08_movmatrix() -> None:
    given, expected = case("ptx_arch", "L08")
    (form,) = (each for each in forms() if each.mnemonic == given["ptx"])
    assert form.min_arch == expected["min_target"] == TARGETS[0]
    assert all(assembles(form.text, target) for target in taken())
    straight = form.text.replace(".trans", "")
    accepts = any(assembles(straight, target) for target in taken())
    assert accepts is not expected["trans_mandatory"]
    assert bool(complaints(straight)) is expected["trans_mandatory"]


def test_l11_stmatrix_of_bytes_needs_trans() -> None:
    given, expected = case("ptx_arch", "L11")
    text = f"{given['ptx']} [%r9], {{%r0,%r1,%r2,%r3}};"
    assert [target for target in taken() if assembles(text, target)] == expected["accepted_on"]
    assert complaints(text) == ["qualifiers"]
    right = text.replace(".x4", ".x4.trans")
    assert right.split()[0] in {form.mnemonic for form in forms()}


def test_a11_the_operand_order_follows_the_layout() -> None:
    given, expected = case("dispatch_reject", "A11")
    extents, strides = (",".join(map(str, each)) for each in given["A"])
    a = lw.Buffer("A", (16, 16), "f16", layout=parse(f"S[({extents}):({strides})]"))
    b, d = (
        lw.Buffer(role, row.shape, row.dtype, layout=row.layout)
        for role, row in ((r, fragments.get("mma.m16n8k16.f16", r)) for r in "BD")
    )
    (step,) = lw.lower(lw.gemm(d, a, b)).mma
    assert expected["accept"]
    assert list(step[2]) == expected["operand_words"]


def test_l14_transposed_means_k_is_not_contiguous() -> None:
    """Which axis of the shared tile is contiguous says whether ldmatrix transposes."""
    given, expected = case("dispatch_reject", "L14")
    orders = {"row": "S[256:1]", "col": "S[(16,16):(1,16)]"}
    for pair, flags in zip(given["pairs"], expected["flags"], strict=True):
        found = []
        for role, order in zip("AB", pair, strict=True):
            row = fragments.get("mma.m16n8k16.f16", role)
            layout = row.tiled(16, 16)
            staged_as = memory((16, 16), parse(orders[order]))
            ops = lowered(registers(layout, (16, 16)), staged_as, dispatch="ldstmatrix").ops
            assert all(isinstance(op, LoadMatrix) for op in ops)
            found.append({op.trans for op in ops if isinstance(op, LoadMatrix)})
        assert found == [{bool(flag)} for flag in flags]
