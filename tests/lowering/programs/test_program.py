"""Programs: their steps, their registers, their script, and one mma per tile in every reader."""

from __future__ import annotations

import pickle
import re
import sys
from functools import partial

import numpy as np
import pytest

import lowering as lw
from layoutalg import LayoutError, fragments, parse
from layoutalg.fragments import transposed
from lowering import codegen
from lowering.verification.cases import TILINGS, Case
from tests.support.gemm_checks import expected, matrices, outputs

CASES = [
    Case(f"mma.m16n8k{k}.f16", (mt, nt, kt), beta) for mt, nt, kt, k in TILINGS for beta in (0, 1)
]


def identifier(case: Case) -> str:
    return str(case).replace(" ", "-")


@pytest.mark.parametrize("case", CASES, ids=identifier)
def test_steps_come_tile_by_tile(case: Case) -> None:
    """For each (m, n): four zeros or copies, then one mma per k, in place."""
    program = case.program()
    row, (mt, nt, kt) = case.row, case.tiles
    steps = iter(program.steps)
    written: set[int] = set()
    for _ in range(mt * nt):
        first = [next(steps) for _ in range(4)]
        d = tuple(step[1] for step in first)
        want = [("copy", each, each) if case.beta else ("zero", each) for each in d]
        assert first == want
        for _ in range(kt):
            name, into, a, b = next(steps)
            assert (name, into) == ("mma", d)
            assert (len(a), len(b)) == (row.k // 4, row.k // 8)
            assert all(type(number) is int for number in (*into, *a, *b))
        written.update(d)
    assert list(steps) == []
    assert written == set(range(4 * mt * nt))
    assert program.accumulates is bool(case.beta)
    assert program.inputs == ("A", "B", "C")[: 2 + case.beta]
    assert program.instruction is row
    assert (program.threads, program.target) == (32, "cuda")


@pytest.mark.parametrize("case", CASES, ids=identifier)
def test_registers_are_what_a_thread_holds(case: Case) -> None:
    mt, nt, kt = case.tiles
    k = case.row.k
    registers = case.program().registers
    want = {"D": 4 * mt * nt, "C": 4 * mt * nt, "A": mt * kt * k // 2, "B": nt * kt * k // 4}
    assert registers == want
    assert list(registers) == ["D", "C", "A", "B"]


def test_c_that_is_d_counts_once() -> None:
    program = gemm_of_the_seed()
    assert program.registers == {"D": 4, "A": 8, "B": 4}


def count(case: Case) -> int:
    mt, nt, kt = case.tiles
    return mt * nt * kt


@pytest.mark.parametrize("case", CASES, ids=identifier)
def test_one_mma_per_tile_in_program_and_texts(case: Case) -> None:
    program = case.program()
    assert len(program.mma) == count(case)
    assert all(step in program.steps and step[0] == "mma" for step in program.mma)
    lines = program.script().splitlines()
    assert sum(line.startswith(f"{case.row.shape}(D[") for line in lines) == count(case)
    helper = case.instruction.replace(".", "_")
    body = program.cuda_source().split('extern "C"')[1]
    assert len(re.findall(rf"\b{helper}\(", body)) == count(case)
    assert program.cuda_source().count(f'asm volatile("{case.row.ptx} ') == 1
    assert len(re.findall(rf"= {helper}\(", program.kernel_source())) == count(case)


@pytest.mark.parametrize(("tiles", "k"), [((1, 1, 2), 16), ((2, 1, 3), 8)])
def test_one_mma_per_tile_in_ptx(tiles: tuple[int, int, int], k: int) -> None:
    pytest.importorskip("numba.cuda")
    case = Case(f"mma.m16n8k{k}.bf16", tiles, 1)
    assert case.program().ptx("sm_80").count(f"{case.row.ptx} ") == count(case)


def gemm_of_the_seed(beta: int = 0) -> lw.Program:
    """Lower the seed's example: one warp, D[16,8] = A[16,16]·B[16,8], C is D."""
    d, a, b = (fragments.get("mma.m16n8k16.f16", role) for role in "DAB")
    program: lw.Program = lw.lower(
        lw.gemm(
            lw.Buffer("acc", d.shape, "float32", layout=d.layout),
            lw.Buffer("left", a.shape, "float16", layout=a.layout),
            lw.Buffer("right", b.shape, "float16", layout=b.layout),
            beta=beta,
        )
    )
    return program


def test_the_script_of_the_seed() -> None:
    """The seed's registers: d 0..3, a words 0..3, b words 0..1."""
    assert gemm_of_the_seed().script() == (
        "# gemm(D=acc[0:16,0:8], A=left[0:16,0:16], B=right[0:16,0:8], C=acc[0:16,0:8], "
        "scope=warp)\n"
        "# mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32, 32 threads\n"
        "acc: 4 registers of float32  # S[(2,8,4,2):(2,4@laneid,1@laneid,1)]\n"
        "left: 8 registers of float16  # S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)]\n"
        "right: 4 registers of float16  # S[(2,4,2,8):(2,1@laneid,1,4@laneid)]\n"
        "acc[0..3] = 0\n"
        "m16n8k16(acc[0..3], left[0..7], right[0..3], acc[0..3])"
    )


def test_the_script_copies_c() -> None:
    lines = Case("mma.m16n8k8.bf16", (1, 1, 3), 1).program().script().splitlines()
    assert lines[-4:] == [
        "D[0..3] = C[0..3]",
        "m16n8k8(D[0..3], A[0..3], B[0,1], D[0..3])",
        "m16n8k8(D[0..3], A[4..7], B[2,3], D[0..3])",
        "m16n8k8(D[0..3], A[8..11], B[4,5], D[0..3])",
    ]


@pytest.mark.parametrize("flips", [(False, True), (True, False), (True, True)])
def test_transposed_operands_give_the_same_program(flips: tuple[bool, bool]) -> None:
    """SEMANTICS 16.7: instruction and registers are the same if the layout is the swapped one."""
    plain = Case("mma.m16n8k16.f16", (2, 2, 2)).program()
    flipped = Case("mma.m16n8k16.f16", (2, 2, 2), 0, *flips).program()
    assert flipped.steps == plain.steps
    assert flipped.registers == plain.registers


def test_permuted_registers_give_permuted_numbers() -> None:
    """Register numbers are in the operands' own physical order."""
    d, b = (fragments.get("mma.m16n8k16.f16", role) for role in "DB")
    swapped = parse("S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)]")  # rM and kHi trade places
    spread = parse("S[(2,8,4,2):(5,4@laneid,1@laneid,1)] + 3")
    program = lw.lower(
        lw.gemm(
            lw.Buffer("D", d.shape, "f32", layout=spread),
            lw.Buffer("A", (16, 16), "f16", layout=swapped),
            lw.Buffer("B", b.shape, "f16", layout=b.layout),
        )
    )
    assert program.mma == (("mma", (3, 4, 8, 9), (0, 2, 1, 3), (0, 1)),)
    assert program.registers == {"D": 10, "A": 8, "B": 4}


def test_a_product_with_itself_needs_one_matrix() -> None:
    """A·Aᵀ: the A fragment of a 16x16 tile is also the B fragment of its transpose."""
    a = fragments.get("mma.m16n8k16.f16", "A")
    d = fragments.get("mma.m16n8k16.f16", "D")
    both = lw.Buffer("X", (16, 16), "f16", layout=a.layout)
    program = lw.lower(
        lw.gemm(
            lw.Buffer("D", (16, 16), "f32", layout=d.tiled(16, 16)), both, both, transpose_B=True
        )
    )
    assert program.registers == {"D": 8, "A": 8, "B": 8}
    assert program.mma == (
        ("mma", (0, 1, 2, 3), (0, 1, 2, 3), (0, 2)),
        ("mma", (4, 5, 6, 7), (0, 1, 2, 3), (1, 3)),
    )


@pytest.mark.parametrize("name", ["Ag", "Dg", "Dg_base", "t", "thread", "if"])
@pytest.mark.parametrize("role", ["D", "A"])
def test_any_name_may_be_given_to_a_buffer(role: str, name: str) -> None:
    """Names of buffers meet no parameter, variable or keyword of the kernel texts."""
    d, a, b = (
        lw.Buffer(name if each == role else each, f.shape, f.dtype, layout=f.layout)
        for each, f in ((r, fragments.get("mma.m16n8k16.f16", r)) for r in "DAB")
    )
    program = lw.lower(lw.gemm(d, a, b, beta=1))
    given = matrices(program, 8)
    want = expected(program, given)
    for machine, out in outputs(program, given):
        assert np.array_equal(out, want), machine


def test_an_older_target_gets_what_it_has() -> None:
    """sm_75 has m16n8k8 of f16: K = 16 is two of them there; of bf16 it has nothing."""

    def call(dtype: str) -> lw.TilePrimitiveCall:
        d, a, b = (
            lw.Buffer(role, f.shape, f.dtype, layout=f.layout)
            for role, f in ((r, fragments.get(f"mma.m16n8k16.{dtype}", r)) for r in "DAB")
        )
        return lw.gemm(d, a, b)

    assert lw.lower(call("f16")).instruction.name == "mma.m16n8k16.f16"
    program = lw.lower(call("f16"), arch="sm_75")
    assert program.instruction.name == "mma.m16n8k8.f16"
    assert [step[2:] for step in program.mma] == [((0, 1), (0,)), ((2, 3), (1,))]
    with pytest.raises(
        lw.DispatchError, match=r"k8.bf16: sm_75 lacks mma\.sync\S+; sm_80 and newer have it"
    ):
        lw.lower(call("bf16"), arch="sm_75")
    with pytest.raises(
        LayoutError, match=r"^target: must look like sm_90 or sm_90a; got 'turing'$"
    ):
        lw.lower(call("f16"), arch="turing")


def test_only_gemm_makes_a_program() -> None:
    a = fragments.get("mma.m16n8k16.f16", "A")
    registers = lw.Buffer("A", a.shape, "f16", layout=a.layout)
    with pytest.raises(
        LayoutError, match=r"^lower: takes a gemm call; a copy is a statement of a "
    ):
        lw.lower(lw.copy(registers, lw.Buffer("G", a.shape, "f16", scope="global")))


def test_programs_are_values() -> None:
    one, two = gemm_of_the_seed(1), gemm_of_the_seed(1)
    assert one == two
    assert one != gemm_of_the_seed(0)
    assert pickle.loads(pickle.dumps(one)) == one


def test_where_numba_is_missing_the_kernel_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Algebra, simulator, CUDA text and NVRTC stay; the kernel is refused, with advice."""
    monkeypatch.setitem(sys.modules, "lowering.codegen.numba_cuda", None)
    monkeypatch.delattr(codegen, "numba_cuda", raising=False)
    program = gemm_of_the_seed()
    by_numba = partial(program.whole, compiler="numba")
    readers = (program.kernel, program.kernel_source, program.ptx, by_numba)
    for read in readers:
        with pytest.raises(
            LayoutError, match=r"^kernel: needs numba-cuda .*pip install 'layoutalg\[gpu\]'"
        ):
            read()
    assert program.cuda_source()
    assert lw.verify([Case("mma.m16n8k8.f16", (1, 1, 1))])[0].machine == "simulator"


def test_a_transposed_layout_is_the_same_map_read_across() -> None:
    a = fragments.get("mma.m16n8k16.f16", "A")
    flipped = transposed(a.layout, a.shape).table((16, 16))
    plain = a.layout.table((16, 16))
    for axis in ("laneid", "m"):
        assert (flipped[axis] == plain[axis].T).all()
