"""Verification: what it runs, what its bound is, and what its checks must see."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner

import lowering as lw
from layoutalg import LayoutError, fragments
from lowering.cli.main import main
from lowering.ir.ops import LoadMatrix, Mma, Registers, Transfer, walk
from lowering.isa.mma import named
from lowering.verification import cases, checker
from lowering.verification.cases import CASES, AnyCase, Case, StagedCase, all_cases, family_cases
from lowering.verification.checker import (
    MARGIN,
    TOLERANCE,
    AnyProgram,
    Control,
    Result,
    bent,
    check,
    error_bound,
    integer_inputs,
    random_inputs,
    reference,
    relative_error,
    swap_a,
    tolerance_of,
    uniform_inputs,
    verify,
    without_last_k,
)
from tests.support.paths import HARDWARE

Array = npt.NDArray[Any]
ONE = Case("mma.m16n8k16.f16", (2, 2, 2), 1)
SLICED = Case("mma.m16n8k16.bf16", (1, 2, 2), 1, warps=(2, 2), scope="warpgroup", sliced=True)
STAGED = StagedCase("mma.m16n8k16.f16", 64, (2, 2), "cta")


def test_the_cases_differ_and_cover_what_they_name() -> None:
    names = [str(case) for case in all_cases()]
    assert len(names) == 122
    # The seed's list has 2x2x2 NN among its tilings and among its transposes.
    assert len(set(names)) == 120
    assert {name: len(cases()) for name, cases in CASES.items()} == {
        "standard": 44, "scopes": 24, "slices": 24, "staged": 30,
    }  # fmt: skip
    scopes = {(c.scope, c.warps, c.instruction[4:]) for c in cases.scope_cases()}
    shapes = ("m16n8k16.f16", "m16n8k16.bf16", "m16n8k8.f16", "m16n8k8.bf16")
    grids = {"warpgroup": ((4, 1), (1, 4), (2, 2)), "cta": ((2, 1), (1, 2), (4, 2))}
    assert scopes == {(s, g, i) for s, each in grids.items() for g in each for i in shapes}
    assert {c.scope for c in cases.slice_cases() if c.sliced} == {"warp", "warpgroup", "cta"}
    staged = {(c.swizzle, c.scope) for c in cases.staged_cases()}
    assert staged == {(b, s) for b in (32, 64, 128) for s in ("warp", "warpgroup", "cta")}


GEMMS = [
    *cases.standard_cases(),
    *cases.scope_cases()[::2],
    *cases.slice_cases()[::3],
]


@pytest.mark.slow
def test_every_gemm_is_right_on_the_simulator_and_its_check_means_something() -> None:
    results = verify(GEMMS, "simulator")
    assert [result.case for result in results] == [str(case) for case in GEMMS]
    for result in results:
        assert result.verdict == "ok", result
        assert result.error < 1e-7
        assert result.tolerance <= TOLERANCE
        errors = {control.name: control.error for control in result.controls}
        assert min(errors["zeros"], errors["a1/a2"], errors["k step"]) > 0.3
        assert errors["common k"] == pytest.approx(result.error, rel=0.5)
        assert not result.as_dict()["controls"][3]["visible"]


FAMILY = [case for case in family_cases() if "u" not in case.instruction]


@pytest.mark.slow
def test_the_other_dense_mma_are_right_on_the_simulator() -> None:
    """Integers and f64 as exactly as they can be; f16 accumulators within their own bound."""
    for result in verify(FAMILY, "simulator"):
        assert result.verdict == "ok", result
        kind = str(named(result.case.partition(" 1x1x1")[0]).d.token)
        assert result.error <= {"s32": 0.0, "f64": 1e-15, "f32": 1e-7, "f16": 5e-4}[kind]
    names = {case.instruction for case in family_cases()}
    assert sum("xor" in name for name in names) == 3
    assert sum("satfinite" in name for name in names) == 24
    (result,) = verify([Case("mma.m8n8k16.s8", (1, 1, 1), 1)], "simulator")
    assert "a1/a2" not in {control.name for control in result.controls}  # A is one register


def test_every_gemm_runs_its_own_instruction_on_its_own_threads() -> None:
    for case in GEMMS:
        assert isinstance(case, Case)
        program = case.program()
        assert program.instruction.name == case.instruction
        assert program.threads == 32 * math.prod(case.warps)
        mt, nt, kt = case.tiles
        assert len(program.mma) == mt * nt * kt
        whole = [program.call.operands[role].shape == program.buffer(role).shape for role in "DABC"]
        assert whole == [not case.sliced] * 4


def test_a_sliced_operand_is_another_quarter_for_each_role() -> None:
    program = Case("mma.m16n8k16.f16", (1, 1, 1), 1, True, sliced=True).program()
    regions = {role: region.ranges for role, region in program.call.operands.items()}
    assert regions == {
        "D": ((16, 32), (0, 8)),
        "C": ((0, 16), (8, 16)),
        "A": ((16, 32), (16, 32)),
        "B": ((16, 32), (0, 8)),
    }
    assert program.buffer("A").shape == (32, 32)


KERNELS = [
    case for case in cases.staged_cases() if case.swizzle == 32 or case.warps in ((1, 4), (4, 1))
]


@pytest.mark.slow
@pytest.mark.parametrize("case", KERNELS, ids=[str(case).replace(" ", "-") for case in KERNELS])
def test_staged_kernels(case: StagedCase) -> None:
    (result,) = verify([case], "simulator")
    assert result.verdict == "ok", result
    ops = list(walk(case.program().body.ops))
    assert {op.memory for op in ops if isinstance(op, LoadMatrix)} == {"A_shared", "B_shared"}
    assert all(op.asynchronous for op in ops if isinstance(op, Transfer))
    trans = {op.memory: op.trans for op in ops if isinstance(op, LoadMatrix)}
    assert trans == {"A_shared": case.transpose_A, "B_shared": not case.transpose_B}


def test_a_staged_kernel_has_no_bank_conflict_in_its_matrix_loads() -> None:
    program = STAGED.program()
    counts = program.banks(**random_inputs(program, 0))
    loads = [count for count in counts if "ldmatrix" in count.op]
    assert loads
    assert all(count.wavefronts == count.fewest for count in loads)


# -- what a check must see ------------------------------------------------------------------------

PROGRAMS = [case.program() for case in (ONE, SLICED, STAGED)]


def use_b_of_another_k(op: Mma) -> Mma:
    """Pass B's registers in reverse."""
    return dataclasses.replace(op, b=Registers(op.b.buffer, op.b.numbers[2:] + op.b.numbers[:2]))


def swap_rows_of_d(op: Mma) -> Mma:
    d = op.d.numbers
    return dataclasses.replace(op, d=Registers(op.d.buffer, (*d[2:], *d[:2])))


BENDS: dict[str, Callable[[AnyProgram], AnyProgram]] = {
    "a1/a2": lambda program: bent(program, swap_a),
    "a k step": without_last_k,
    "no mma": lambda program: bent(program, lambda op: None),
    "b0/b1": lambda program: bent(program, use_b_of_another_k),
    "rows of D": lambda program: bent(program, swap_rows_of_d),
}


@pytest.mark.slow
@pytest.mark.parametrize("bend", BENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=["gemm", "sliced", "staged"])
def test_a_wrong_program_is_seen(program: AnyProgram, bend: str) -> None:
    assert check(program, "right", "simulator", seed=3).verdict == "ok"
    inputs = random_inputs(program, 3)
    wrong = BENDS[bend](program)
    assert wrong != program
    out = checker._result(wrong, wrong.simulate(**inputs))
    error = relative_error(out, reference(program, inputs))
    assert error > MARGIN * tolerance_of(program, inputs)
    if bend not in ("no mma",):
        assert check(wrong, "wrong", "simulator", seed=3).verdict == "WRONG"


def test_a_program_that_writes_beside_its_region_is_wrong() -> None:
    program = SLICED.program()
    numbers = {n for op in walk(program.ops) if isinstance(op, Mma) for n in op.d.numbers}
    outside = sorted(set(range(program.registers["D"])) - numbers)[:4]
    extra = next(op for op in walk(program.ops) if isinstance(op, Mma))
    ops = (*program.ops, dataclasses.replace(extra, d=Registers("D", tuple(outside))))
    wrong = dataclasses.replace(program, lowered=dataclasses.replace(program.lowered, ops=ops))
    result = check(wrong, "wrong", "simulator")
    assert result.error == math.inf
    assert result.verdict == "WRONG"


def test_a_bound_that_passes_zeros_is_vacuous() -> None:
    result = check(PROGRAMS[0], "loose", "simulator", tolerance=0.5)
    assert result.within
    assert not result.ok
    assert result.verdict == "VACUOUS: passes zeros, a1/a2, k step"
    assert result.as_dict()["ok"] is False


def test_a_uniform_fill_discriminates_nothing() -> None:
    """The unit test of a published kernel filled its inputs with a constant; a1/a2 were swapped."""
    for program in PROGRAMS:
        result = check(program, "ones", "simulator", inputs=uniform_inputs)
        assert result.error == 0
        assert result.passing == ("a1/a2",)
        assert result.verdict == "VACUOUS: passes a1/a2"


def test_zero_inputs_discriminate_nothing() -> None:
    def zeros(program: AnyProgram, seed: int) -> dict[str, Array]:
        return {role: 0 * matrix for role, matrix in random_inputs(program, seed).items()}

    result = check(PROGRAMS[2], "zeros", "simulator", inputs=zeros)
    assert result.error == 0
    assert result.passing == ("zeros", "a1/a2", "k step")


def test_an_output_that_nobody_wrote_is_wrong() -> None:
    result = Result("case", "ptx", 1, float("nan"), 1.0, "device", (Control("zeros", 1e9),))
    assert not result.within
    assert result.verdict == "WRONG"
    unclear = dataclasses.replace(result, error=0.0, controls=(Control("zeros", float("nan")),))
    assert unclear.verdict == "VACUOUS: passes zeros"
    unseen = dataclasses.replace(result, error=0.0, controls=(Control("k", 0.0, visible=False),))
    assert unseen.verdict == "ok"


def test_relative_errors_against_zero() -> None:
    zero = np.zeros((2, 2))
    assert relative_error(zero, zero) == 0
    assert relative_error(zero + 1, zero) == math.inf
    assert math.isnan(relative_error(zero + math.nan, zero))
    assert math.isnan(relative_error(zero + math.nan, zero + 1))


# -- the bound ------------------------------------------------------------------------------------


def cut(values: Array, like: Array) -> Array:
    """Cut values below the last of 24 bits under the exponent of ``like``."""
    unit = np.exp2(np.floor(np.log2(np.maximum(like, 1e-300))) - 23)
    kept: Array = np.trunc(values / unit) * unit
    return kept


def tensor_core(a: Array, b: Array, c: Array, block: int) -> Array:
    """Add blocks of products to the accumulator: each addend cut, then the sum."""
    total: Array = c.astype(float)
    for k in range(0, a.shape[1], block):
        terms = a[:, k : k + block, None] * b[None, k : k + block]
        largest = np.maximum(np.abs(terms).max(1), np.abs(total))
        total = cut(total, largest) + cut(terms, largest[:, None]).sum(1)
        total = cut(total, np.abs(total))
    return total


@pytest.mark.parametrize("block", [4, 8, 16])
def test_the_bound_of_a_narrow_accumulator_holds(block: int) -> None:
    program = Case("mma.m16n8k16.f16 f16", (1, 1, 2), 1).program()
    inputs = random_inputs(program, 1)
    parts = checker._operands(program, inputs)
    total = parts["C"]
    for k in range(0, 32, block):
        a, b = parts["A"][:, k : k + block], parts["B"][k : k + block]
        total = tensor_core(a, b, total, block).astype(np.float16).astype(float)
    error = relative_error(total, reference(program, inputs))
    assert 1e-5 < error < error_bound(program, inputs) < 0.05


@pytest.mark.parametrize("block", [4, 8, 16])
def test_the_bound_holds_for_cutting_accumulators(block: int) -> None:
    for case in (ONE, Case("mma.m16n8k16.bf16", (1, 1, 2)), STAGED):
        program = case.program()
        for seed in range(3):
            inputs = random_inputs(program, seed)
            parts = checker._operands(program, inputs)
            c = parts.get("C", np.zeros(reference(program, inputs).shape))
            out = tensor_core(parts["A"], parts["B"], c, block)
            error = relative_error(out, reference(program, inputs))
            assert 0 < error < error_bound(program, inputs)


def test_the_bound_is_the_formula() -> None:
    program = Case("mma.m16n8k8.f16", (1, 1, 3), 1).program()
    inputs = random_inputs(program, 5)
    a, b, c = (inputs[role].astype(float) for role in "ABC")
    spread = np.linalg.norm(abs(a) @ abs(b) + abs(c)) / np.linalg.norm(a @ b + c)
    assert error_bound(program, inputs) == pytest.approx(1.5 * 24 * 2.0**-23 * spread)
    assert tolerance_of(program, inputs) == min(error_bound(program, inputs), 1e-5)


def test_the_bound_of_small_products_is_tighter_than_the_seeds() -> None:
    program = Case("mma.m16n8k8.f16", (1, 1, 1)).program()
    assert tolerance_of(program, random_inputs(program, 0)) < 5e-6


def test_integers_have_no_error() -> None:
    kernel = lw.Kernel("zero")
    d = fragments.get("mma.m16n8k32.s8", "D")
    out = kernel.param("D", d.shape, "int32")
    held = kernel.alloc("held", d.shape, "int32", layout=d.layout)
    kernel.zero(held)
    kernel.copy(out, held)
    assert error_bound(kernel.lower(), {}) == 0


# -- inputs ---------------------------------------------------------------------------------------


def digest(values: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def test_integer_inputs_are_a_formula() -> None:
    program = Case("mma.m16n8k16.f16", (1, 1, 1), 1).program()
    inputs = integer_inputs(program, 7)
    assert inputs["A"][0, :8].tolist() == [-5, 6, -1, -8, 3, -1, -7, -1]
    assert inputs["B"].dtype == np.float16
    for matrix in inputs.values():
        assert set(np.unique(matrix)) == set(range(-8, 9))
    assert not np.array_equal(inputs["A"][:, :8], inputs["C"])
    assert not np.array_equal(inputs["A"], integer_inputs(program, 8)["A"])


@pytest.mark.parametrize("program", PROGRAMS, ids=["gemm", "sliced", "staged"])
def test_integers_come_out_exactly(program: AnyProgram) -> None:
    inputs = integer_inputs(program, 1)
    out = checker._result(program, program.simulate(**inputs))
    assert np.array_equal(out, reference(program, inputs))


def test_roles_that_share_a_buffer_share_a_matrix() -> None:
    row = lw.MMA_INSTRUCTIONS[1]
    d = lw.Buffer("D", (16, 8), "f32", layout=row.fragment("D").layout)
    a = lw.Buffer("A", (16, 16), "f16", layout=row.fragment("A").layout)
    b = lw.Buffer("B", (16, 8), "f16", layout=row.fragment("B").layout)
    program = lw.lower(lw.gemm(d, a, b, d, beta=1))
    assert check(program, "in place", "simulator").verdict == "ok"
    inputs = random_inputs(lw.lower(lw.gemm(d, a, b)), 0)
    assert set(inputs) == {"A", "B"}


# -- calling it -----------------------------------------------------------------------------------


def test_progress_and_seeds() -> None:
    cases = [Case("mma.m16n8k8.f16", (1, 1, 1))] * 2
    seen: list[Any] = []

    def progress(shown: Sequence[Any]) -> Iterable[Any]:
        seen.extend(shown)
        return shown

    one, two = verify(cases, "simulator", 4, progress)
    assert seen == cases
    assert one.error != two.error
    assert verify(cases[:1], "simulator", 5)[0].error == two.error
    assert check(cases[0].program(), "alone", "simulator", 4).error == one.error


def test_a_machine_of_no_name_is_refused() -> None:
    message = "verify: the machine must be 'device' or 'simulator'; got 'gpu'"
    with pytest.raises(LayoutError, match=message):
        verify([], "gpu")
    with pytest.raises(LayoutError, match=r"no mma is named 'mma.m16n8k9.f16'; did you mean "):
        Case("mma.m16n8k9.f16", (1, 1, 1)).program()
    with pytest.raises(
        LayoutError, match="verify: the swizzle must be 32, 64 or 128 bytes; got 16"
    ):
        StagedCase("mma.m16n8k16.f16", 16).program()


def test_the_command_prints_a_table_and_says_vacuous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CASES, "scopes", lambda: cases.scope_cases()[:3])
    arguments = ["verify", "--cases", "scopes", "--machine", "simulator"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    rows = done.stdout.splitlines()
    assert rows[0].split() == [
        "case", "mma", "error", "bound", "zeros", "a1/a2", "k", "step", "extras",
        "common", "k",
    ]  # fmt: skip
    assert len(rows) == 5
    assert all(row.endswith("  ok") for row in rows[1:-1])
    assert rows[-1] == "3 of 3 within a bound that no control comes near, on the simulator"
    loose = CliRunner().invoke(main, [*arguments, "--tolerance", "0.5"])
    assert loose.exit_code == 1
    assert loose.stdout.splitlines()[1].endswith("  VACUOUS: passes zeros, a1/a2, k step")
    assert loose.stdout.splitlines()[-1].startswith("0 of 3 ")
    tight = CliRunner().invoke(main, [*arguments, "--tolerance", "1e-12"])
    assert tight.exit_code == 1
    assert tight.stdout.splitlines()[1].endswith("  WRONG")


def test_the_command_knows_every_group() -> None:
    (choice,) = (p.type for p in main.commands["verify"].params if p.name == "group")
    assert set(choice.choices) == {"all", "family", "scaled", *CASES}  # type: ignore[attr-defined]


# -- what a device said ---------------------------------------------------------------------------

RECORDS = {
    path: cases
    for name, cases in (("verify", all_cases), ("family", family_cases))
    for path in sorted(HARDWARE.glob(f"*_{name}.json"))
}
EVERY = 6  # one case in so many is simulated again


@pytest.mark.slow
@pytest.mark.skipif(not RECORDS, reason="no device has verified these cases yet")
def test_the_simulator_gives_the_integers_that_a_device_gave() -> None:
    """Bit for bit: sha256 of D's region, element bits in row-major order."""
    for path, listed in RECORDS.items():
        record, cases = json.loads(path.read_text()), listed()
        assert [row["case"] for row in record["cases"]] == [str(case) for case in cases]
        for index, (case, row) in enumerate(zip(cases, record["cases"], strict=True)):
            assert row["verdict"] == "ok", case
            assert row["integers_equal"], case
            assert row.get("cuda_text_equal", True), case
            if index % EVERY:
                continue  # the record says that the simulator's was equal
            program = case.program()
            out = checker._result(program, program.simulate(**integer_inputs(program, index)))
            assert digest(out.astype("<f4")) == row["integers_sha256"], case


@pytest.mark.gpu
def test_a_sample_on_the_device() -> None:
    sample: list[AnyCase] = [ONE, SLICED, STAGED, *GEMMS[:4]]
    for result in verify(sample, "device"):
        assert result.verdict == "ok", result
