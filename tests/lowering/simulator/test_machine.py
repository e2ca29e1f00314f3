"""The NumPy warp against float64, and what the comparison must see."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lowering as lw
from layoutalg import LayoutError, fragments, parse
from lowering.ir.matrices import as_matrix, poison
from lowering.ir.ops import Mma, Move, Op, Registers, Zero
from lowering.simulator.hazards import SimulationError
from lowering.verification.cases import Case, standard_cases
from lowering.verification.checker import TOLERANCE
from tests.support.gemm_checks import expected, matrices, relative_error

CASES = standard_cases()


def test_the_standard_cases_are_the_seeds_list() -> None:
    """Nine tilings x two dtypes x beta, and four transposes x two dtypes."""
    tilings = [
        (1, 1, 1, 16), (2, 1, 1, 16), (1, 2, 1, 16), (1, 1, 2, 16), (2, 2, 2, 16), (4, 1, 1, 16),
        (1, 1, 1, 8), (1, 1, 3, 8), (2, 2, 3, 8),
    ]  # fmt: skip
    want = [
        Case(f"mma.m16n8k{k}.{dtype}", (m, n, kt), beta)
        for (m, n, kt, k), dtype, beta in itertools.product(tilings, ("f16", "bf16"), (0, 1))
    ]
    assert list(CASES[:36]) == want
    transposes = [(case.row.a.token, case.transpose_A, case.transpose_B) for case in CASES[36:]]
    assert transposes == list(itertools.product(("f16", "bf16"), (False, True), (False, True)))
    assert all(case.program().instruction is case.row for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=[str(case).replace(" ", "-") for case in CASES])
def test_the_standard_cases(case: Case) -> None:
    """Real numbers within 1e-6 of float64; integers exactly."""
    program = case.program()
    given = matrices(program, 11, exact=False)
    del given["D"]
    inputs = {role: given[role] for role in program.inputs}
    want = expected(program, given | {"D": np.zeros(program.buffer("D").shape)})
    assert relative_error(program.simulate(**inputs), want) < 1e-6
    given = matrices(program, 12)
    assert np.array_equal(program.simulate(**given), expected(program, given))


PROGRAM = Case("mma.m16n8k16.f16", (2, 2, 2), 1).program()


MMA = [op for op in PROGRAM.ops if isinstance(op, Mma)]


def bent(change: Callable[[Op], Op | None]) -> lw.Program:
    """Return the program with each operation changed, or dropped where the change is None."""
    ops = tuple(op for op in map(change, PROGRAM.ops) if op is not None)
    return dataclasses.replace(PROGRAM, lowered=dataclasses.replace(PROGRAM.lowered, ops=ops))


def reordered(op: Op, role: str, order: tuple[int, ...]) -> Op:
    """Return an mma with one operand's elements in another order."""
    if not isinstance(op, Mma):
        return op
    elements = getattr(op, role)
    numbers = tuple(elements.numbers[i] for i in order)
    changed: dict[str, Any] = {role: Registers(elements.buffer, numbers)}
    return dataclasses.replace(op, **changed)


def swap_a1_a2(op: Op) -> Op:
    return reordered(op, "a", (0, 1, 4, 5, 2, 3, 6, 7))


def swap_b(op: Op) -> Op:
    return reordered(op, "b", (2, 3, 0, 1))


def swap_the_halves_of_a_word(op: Op) -> Op:
    return reordered(op, "b", (1, 0, 2, 3))


def swap_d_rows(op: Op) -> Op:
    return reordered(op, "d", (2, 3, 0, 1))


def drop_one_tile(op: Op) -> Op | None:
    return None if op is MMA[3] else op


def use_one_tile_twice(op: Op) -> Op:
    return MMA[2] if op is MMA[3] else op


def use_the_first_c_everywhere(op: Op) -> Op:
    first = next(op.source for op in PROGRAM.ops if isinstance(op, Move))
    return Move(op.into, first) if isinstance(op, Move) else op


def start_from_zero(op: Op) -> Op:
    return Zero(op.into) if isinstance(op, Move) else op


BENT = [
    swap_a1_a2,
    swap_b,
    swap_the_halves_of_a_word,
    swap_d_rows,
    drop_one_tile,
    use_one_tile_twice,
    use_the_first_c_everywhere,
    start_from_zero,
]


@pytest.mark.parametrize("change", BENT, ids=[change.__name__ for change in BENT])
def test_the_comparison_sees_a_wrong_program(change: Any) -> None:
    given = matrices(PROGRAM, 3, exact=False)
    del given["D"]
    want = expected(PROGRAM, given | {"D": np.zeros(PROGRAM.buffer("D").shape)})
    assert relative_error(PROGRAM.simulate(**given), want) < 1e-6
    assert relative_error(bent(change).simulate(**given), want) > 1000 * TOLERANCE


def test_a_constant_input_would_not_see_the_swap() -> None:
    """A uniform fill does not discriminate: with it the swapped program looks right."""
    given: dict[str, Any] = {r: np.ones(PROGRAM.buffer(r).shape) for r in PROGRAM.inputs}
    want = expected(PROGRAM, given | {"D": np.zeros(PROGRAM.buffer("D").shape)})
    assert np.array_equal(bent(swap_a1_a2).simulate(**given), want)


def test_a_k_permutation_common_to_a_and_b_is_no_error() -> None:
    """So a product alone never proves a fragment: fragments are compared as tables."""

    def swap_k(op: Op) -> Op:
        return swap_b(reordered(op, "a", (4, 5, 6, 7, 0, 1, 2, 3)))

    given = matrices(PROGRAM, 5)
    assert np.array_equal(bent(swap_k).simulate(**given), expected(PROGRAM, given))


def test_a_register_that_nothing_wrote_is_not_read() -> None:
    """Not even as zero: an accumulator that is not initialised is refused."""

    def never_initialise(op: Op) -> Op | None:
        return None if isinstance(op, Move) else op

    program = bent(never_initialise)
    message = r"^simulate: m16n8k16\(D\[0..3\], .*\) reads D\[0\] of thread 0, which nothing wrote$"
    with pytest.raises(SimulationError, match=message):
        program.simulate(A=np.ones((32, 32)), B=np.ones((32, 16)))


def test_products_are_exact_and_the_sum_is_rounded_once() -> None:
    """2**-24 vanishes beside 1 in f32, but not before it is added to another 2**-24."""
    program = Case("mma.m16n8k16.f16", (1, 1, 1)).program()
    a, b = np.zeros((16, 16)), np.zeros((16, 8))
    a[0, :3], b[:3, 0] = (1.0, 2.0**-12, 2.0**-12), (1.0, 2.0**-12, 2.0**-12)
    assert program.simulate(A=a, B=b)[0, 0] == np.float32(1 + 2.0**-23)
    a[0, 2] = 0
    assert program.simulate(A=a, B=b)[0, 0] == 1


def test_inputs_are_rounded_to_the_buffer() -> None:
    buffer = PROGRAM.buffer("A")
    wide = np.full(buffer.shape, 1 + 2.0**-12)
    assert as_matrix(wide, buffer, "A").dtype == np.float16
    assert (as_matrix(wide, buffer, "A") == 1).all()
    narrow = Case("mma.m16n8k16.bf16", (1, 1, 1)).program().buffer("A")
    assert as_matrix(np.ones((16, 16), dtype=int).tolist(), narrow, "A").dtype == ml_dtypes.bfloat16


def test_matrices_that_are_none_are_refused() -> None:
    buffer = PROGRAM.buffer("A")
    for wrong, message in (
        ([[1.0], [1.0, 2.0]], "operand A: A needs a matrix: "),
        (np.zeros((32, 16)), r"operand A: A needs a matrix of shape \(32, 32\); got \(32, 16\)"),
        (np.zeros((32, 32), dtype=bool), "operand A: needs numbers; got dtype bool"),
        (np.zeros((32, 32), dtype="f4,f4"), "operand A: needs numbers; got dtype "),
        (np.full((32, 32), "x"), "operand A: needs numbers; got dtype <U1"),
    ):
        with pytest.raises(LayoutError, match=message):
            as_matrix(wrong, buffer, "A")


def test_poison_is_what_no_result_is() -> None:
    assert np.isnan(poison(np.dtype(np.float32), (2, 2))).all()
    assert np.isnan(poison(np.dtype(ml_dtypes.bfloat16), (2,)).astype(np.float32)).all()
    assert poison(np.dtype(np.int8), (1,)).tolist() == [-38]


def in_place(beta: int) -> lw.Program:
    """Lower D = A·B + beta·D."""
    d, a, b = (
        lw.Buffer(role, f.shape, f.dtype, layout=f.layout)
        for role, f in ((r, fragments.get("mma.m16n8k16.f16", r)) for r in "DAB")
    )
    program: lw.Program = lw.lower(lw.gemm(d, a, b, beta=beta))
    return program


def test_c_that_is_d_may_be_given_under_either_name() -> None:
    program = in_place(1)
    given = matrices(program, 4)
    want = expected(program, given)
    c = given.pop("C")
    assert np.array_equal(program.simulate(**given), want)
    assert np.array_equal(program.simulate(A=given["A"], B=given["B"], C=c), want)
    hole = c.copy()
    hole[0, 0] = np.nan
    out = program.simulate(A=given["A"], B=given["B"], C=hole, D=hole)
    assert np.isnan(out[0, 0])
    assert np.array_equal(out.ravel()[1:], want.ravel()[1:])


def test_inputs_are_not_changed() -> None:
    program = in_place(1)
    given = matrices(program, 4)
    before = {role: matrix.copy() for role, matrix in given.items()}
    program.simulate(**given)
    assert all(np.array_equal(given[role], before[role]) for role in given)


def test_a_buffer_that_reaches_beyond_the_cta_is_refused() -> None:
    """Also where the region lies in threads that are there: the rest of it has no place."""
    wide = lw.Buffer(
        "D", (32, 8), "f32", layout=parse("S[(2,2,8,4,2):(1@warpid,2,4@laneid,1@laneid,1)]")
    )
    a, b = (
        lw.Buffer(role, f.shape, f.dtype, layout=f.layout)
        for role, f in ((r, fragments.get("mma.m16n8k16.f16", r)) for r in "AB")
    )
    with pytest.raises(lw.DispatchError, match=r"D names warpid 0\.\.1; in a CTA of 32 threads"):
        lw.lower(lw.gemm(wide[0:16], a, b))
