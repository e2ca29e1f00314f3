"""The gemm vectors: 326 outcomes of TVM 0.27, and 27 calls that TVM accepts and computes wrong."""

from __future__ import annotations

import collections
import copy
import random
import re
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import LayoutError
from tests.support.gemm_cases import lower_case
from tests.support.gemm_checks import expected, matrices, outputs, relative_error
from tests.support.vectors import read

ROWS = read("gemm.jsonl")
BUGS = read("gemm_tvm_bugs.jsonl")
ACCEPTED = [row for row in ROWS if row["out"]["accepted"]]
REJECTED = [row for row in ROWS if not row["out"]["accepted"]]
VARIANT = "mma.m16n8k*"

# SEMANTICS.md 16.9: code -> (variant, step, reason); {operand} is the operand that the row names.
CODES = {
    "lanes_narrowed": (
        VARIANT,
        "full_active_lanes",
        r"active lanes are narrowed: (laneid|warpid) ",
    ),
    "scope_axis_unsupported": (VARIANT, "full_active_lanes", r"scope cluster is not supported: "),
    "operand_replicated": (VARIANT, "no_replica", r"{operand} is replicated: S\[.*\] \+ R\["),
    "predicate_exception": (VARIANT, "no_replica", r"D is swizzled \(ComposeLayout\("),
    "not_register_scope": (
        VARIANT,
        "lowering",
        r"{operand} must be in registers \(scope local\); .* is in shared: ",
    ),
    "alpha_not_one": (VARIANT, "lowering", r"alpha must be 1; got "),
    "beta_not_0_or_1": (VARIANT, "lowering", r"beta must be 0 .* or 1 .*; got "),
    "not_2d": (VARIANT, "lowering", r"{operand} must have exactly two dimensions that are not 1; "),
    "k_mismatch": (VARIANT, "lowering", r"K of A and B must agree; A is 16x16 .*, B is 32x16 "),
    "d_shape_mismatch": (VARIANT, "lowering", r"D must be 32x16 \(M,N\).*; got 16x8$"),
    "c_shape_mismatch": (VARIANT, "lowering", r"C must be 32x16 \(M,N\).*; got 16x8$"),
    "slice_none": (VARIANT, "lowering", r"{operand}: no layout says the region {operand}\["),
    "not_tileable": (VARIANT, "lowering", r"{operand}: the layout does not hold the tile "),
    "multi_thread_axis": (VARIANT, "lowering", r"{operand}: needs one thread axis, such as "),
    "align_failed": (VARIANT, "lowering", r"{operand} cannot be cut like its anchor D\.[MN], "),
    "no_instruction": (VARIANT, "lowering", r"no instruction fits[;:] "),
    "unknown_variant": ("wmma", "lookup", r"unknown variant; gemm on cuda has mma\.m16n8k\*"),
    "thread_axis_in_register_view": (
        VARIANT,
        "lowering",
        r"[ABC]\.[MN]: a tile digit lies on a thread axis \(4:32@tid_in_wg\)",
    ),
}


def sequence(program: lw.Program) -> list[list[Any]]:
    """Return the steps in the vectors' notation."""
    letters = {"zero": "z", "copy": "c", "mma": "m"}
    return [
        [letters[name], *(list(part) if isinstance(part, tuple) else part for part in rest)]
        for name, *rest in program.steps
    ]


def outcome(program: lw.Program) -> dict[str, Any]:
    """Return a program in the form of a vector's output."""
    return {
        "accepted": True,
        "ptx": program.instruction.ptx,
        "regs": program.registers,
        "seq": sequence(program),
    }


def names_reason(reasons: tuple[tuple[str, str, str], ...], want: dict[str, Any]) -> bool:
    """Say whether one of our reasons is the vector's."""
    variant, step, pattern = CODES[want["code"]]
    pattern = pattern.replace("{operand}", re.escape(want.get("operand") or ""))
    return any(
        (name, where) == (variant, step) and re.match(pattern, reason)
        for name, where, reason in reasons
    )


def test_no_row_is_skipped() -> None:
    assert (len(ROWS), len(ACCEPTED), len(REJECTED), len(BUGS)) == (326, 237, 89, 27)
    codes = collections.Counter(r["code"] for row in REJECTED for r in row["out"]["reasons"])
    assert set(codes) == set(CODES)
    assert sum(codes.values()) == 89


def test_accepted_rows_lower_to_the_same_program() -> None:
    wrong = []
    for row in ACCEPTED:
        try:
            got: Any = outcome(lower_case(row["in"]))
        except lw.DispatchError as error:
            got = error.reasons
        if got != row["out"]:
            wrong.append((row["tag"], row["in"], got))
    assert not wrong, f"{len(wrong)} of {len(ACCEPTED)}: {wrong[:3]}"


def test_rejected_rows_are_rejected_for_the_same_reason() -> None:
    wrong = []
    for row in REJECTED:
        try:
            wrong.append((row["tag"], f"accepted: {lower_case(row['in'])}"))
        except lw.DispatchError as error:
            if not any(names_reason(error.reasons, want) for want in row["out"]["reasons"]):
                wrong.append((row["out"]["reasons"], str(error)))
        except LayoutError as error:  # a Buffer refuses a layout of another size itself
            codes = [want["code"] for want in row["out"]["reasons"]]
            if codes != ["not_tileable"] or not re.match(r"Buffer .: the shape ", str(error)):
                wrong.append((row["out"]["reasons"], str(error)))
    assert not wrong, f"{len(wrong)} of {len(REJECTED)}: {wrong[:5]}"


@pytest.mark.slow
def test_accepted_rows_are_exact_on_every_machine() -> None:
    """Integers make every sum exact: simulator, numba text and CUDA text must all be right."""
    wrong = []
    for index, row in enumerate(ACCEPTED):
        program = lower_case(row["in"])
        given = matrices(program, index)
        want = expected(program, given)
        for machine, out in outputs(program, given):
            if not np.array_equal(out, want):
                wrong.append((machine, row["tag"], row["in"]))
    assert not wrong, f"{len(wrong)}: {wrong[:3]}"


@pytest.mark.slow
def test_accepted_rows_are_right_on_real_numbers() -> None:
    errors = []
    for index, row in enumerate(ACCEPTED):
        program = lower_case(row["in"])
        given = matrices(program, index, exact=False)
        want = expected(program, given)
        out = program.simulate(**given)
        box = tuple(slice(begin, end) for begin, end in program.call.operands["D"].ranges)
        outside = np.ones(out.shape, dtype=bool)
        outside[box] = False
        assert np.array_equal(out[outside], given["D"][outside]), row["tag"]
        errors.append(relative_error(out[box], want[box]))
    assert len(errors) == 237
    assert max(errors) < 1e-6


# Each fault of SEMANTICS.md 18, G1 to G6, and how ours answers where it refuses.
REFUSALS = {
    "region-on-some-warps-runs-on-all-warps": (
        r"D: the region D\[.*\] lies in some of the threads that hold D; "
        r"|A: A\[32:48,0:16\] starts at tid_in_wg 64; "
    ),
    "k-split-over-warps-not-reduced": r"K is split over warps \(4:32@tid_in_wg\): ",
    "thread-offset-silently-dropped": r"[DA]: [DA]\[.*\] starts at laneid 1; ",
    "odd-element-stride-floored-to-word": r"A: register stride 3 of .* astride 32-bit words; ",
    "non-injective-output-layout-accepted": r"D: .* is not injective: stride 0 puts 2 elements ",
    "ab-word-offset-not-rescaled": r"A: the region starts at register 1, inside a 32-bit word ",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", BUGS, ids=[f"{index}-{row['tvm_bug']}" for index, row in enumerate(BUGS)]
)
def test_what_tvm_gets_wrong_is_refused_or_right(row: dict[str, Any]) -> None:
    try:
        program = lower_case(row["in"])
    except lw.DispatchError as error:
        assert "correct" not in row
        variant, step, reason = error.reasons[0]
        assert (variant, step) == (VARIANT, "lowering")
        assert re.match(REFUSALS[row["tvm_bug"]], reason), reason
        return
    assert outcome(program) == row["correct"]
    given = matrices(program, 7)
    want = expected(program, given)
    for machine, out in outputs(program, given):
        assert np.array_equal(out, want), machine


def test_the_bug_rows_split_into_18_repaired_and_9_refused() -> None:
    accepted = []
    for row in BUGS:
        try:
            lower_case(row["in"])
        except lw.DispatchError:
            continue
        accepted.append(row["tvm_bug"])
    assert accepted == ["ab-word-offset-not-rescaled"] * 18


AXES = ("laneid", "tid_in_wg", "tx", "wid_in_wg", "warpid", "wgid", "m")


def mutated(case: dict[str, Any], choose: random.Random) -> dict[str, Any]:
    """Return a vector's call with one to three things changed."""
    case = copy.deepcopy(case)
    for _ in range(choose.choice((1, 1, 2, 3))):
        operand = case["operands"][choose.choice("DABC" if "C" in case["operands"] else "DAB")]
        shard = operand["layout"].get("shard") or operand["layout"]["tile"]["shard"]
        one, two = choose.choice(shard), choose.choice(shard)
        kind = choose.randrange(10)
        if kind == 0:
            case["threads"] = choose.choice((32, 64, 128, 256))
        elif kind == 1:
            case["scope"] = choose.choice(("warp", "warpgroup", "cta", "thread"))
            case.setdefault("threads", 128)
        elif kind == 2:
            one[1], two[1] = two[1], one[1]
        elif kind == 3:
            one[1:], two[1:] = two[1:], one[1:]
        elif kind == 4:
            one[2] = choose.choice(AXES)
        elif kind == 5:
            one[1] = choose.choice((0, -one[1], one[1] * 2, one[1] + 1, one[1] * 3))
        elif kind == 6:
            axis, start = choose.choice(("m", "laneid", "warpid")), choose.choice((1, 2, 4, -2))
            operand["layout"]["offset"] = {axis: start}
        elif kind == 7:
            shape = operand["shape"]
            dim, begin = choose.randrange(len(shape)), choose.choice((0, 8, 16))
            region = [list(span) for span in operand.get("region") or [[0, e] for e in shape]]
            region[dim] = [begin, min(begin + choose.choice((8, 16, 32)), shape[dim])]
            operand["region"] = region
        elif kind == 8:
            case["operands"]["C"] = copy.deepcopy(case["operands"]["D"])
            case["beta"] = 1
        else:
            count, shape = choose.choice((2, 3)), operand["shape"]
            shard.insert(0, [count, choose.choice((64, 128, 1)), choose.choice(("m", "warpid"))])
            begin = choose.randrange(count) * shape[0]
            operand["region"] = [[begin, begin + shape[0]], *([0, e] for e in shape[1:])]
            shape[0] *= count
    return case


@pytest.mark.slow
def test_mutated_calls_are_refused_or_right() -> None:
    """Whatever is accepted is right, however a call was bent; only our errors come out."""
    choose = random.Random(20)
    seen = collections.Counter[str]()
    for index in range(400):
        case = mutated(choose.choice(ROWS + BUGS)["in"], choose)
        try:
            program = lower_case(case)
        except (lw.DispatchError, LayoutError):
            seen["refused"] += 1
            continue
        seen["accepted"] += 1
        given = matrices(program, index)
        want = expected(program, given)
        for machine, out in outputs(program, given):
            assert np.array_equal(out, want), (machine, case)
    assert seen["accepted"] > 50
    assert seen["refused"] > 150
