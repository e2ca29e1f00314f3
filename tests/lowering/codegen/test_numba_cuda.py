"""The numba kernel: its PTX for every target without a GPU, and what a GPU computes with it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import LayoutError, fragments, parse
from layoutalg.fragments.targets import TARGETS
from lowering.isa import nvjitlink
from lowering.isa.mma import compute_capability
from lowering.launch import driver
from lowering.verification.cases import Case, standard_cases
from lowering.verification.checker import TOLERANCE
from tests.support.gemm_cases import lower_case
from tests.support.gemm_checks import expected, matrices, relative_error
from tests.support.vectors import read

cuda = pytest.importorskip("lowering.codegen.numba_cuda", reason="numba-cuda is not installed")

PROGRAMS = {row.name: Case(row.name, (1, 1, 1), 1).program() for row in lw.MMA_INSTRUCTIONS[:4]}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("arch", TARGETS)
def test_every_target_assembles_or_is_refused(arch: str, name: str) -> None:
    """One mma in the PTX, and machine code; a target without the instruction is told so."""
    program = PROGRAMS[name]
    inst = program.instruction
    if not inst.runs_on(arch):
        with pytest.raises(LayoutError) as caught:
            program.ptx(arch)
        assert arch == "sm_75"
        assert str(caught.value) == f"target: sm_75 lacks {inst.ptx}; sm_80 and newer have it"
        return
    text = program.ptx(arch)
    assert re.findall(r"^\.target (\w+)", text, re.MULTILINE) == [arch]
    assert text.count(inst.ptx) == text.count("mma.sync") == 1
    cubin = nvjitlink.assemble(text, arch)
    assert cubin[:4] == b"\x7fELF"
    assert int.from_bytes(cubin[18:20], "little") == 190  # EM_CUDA


def test_the_operands_of_the_mma_in_ptx_order() -> None:
    """Four f32 for D, A's words, B's words, four f32 for C; D and C are different registers."""
    text = PROGRAMS["mma.m16n8k16.bf16"].ptx("sm_90")
    (line,) = re.findall(r"mma\.sync\S+ (.*);", text)
    d, a, b, c = (group.split(",") for group in re.findall(r"\{(.*?)\}", line))
    assert [len(group) for group in (d, a, b, c)] == [4, 4, 2, 4]
    assert len({*d, *a, *b, *c}) == 14
    assert all(name.startswith("%f") for name in (*d, *c))
    assert all(name.startswith("%r") for name in (*a, *b))


def guarded() -> lw.Program:
    """Lower a gemm whose D only the first of four warps holds: its stores are guarded."""
    d, a, b = (fragments.get("mma.m16n8k16.f16", role) for role in "DAB")
    first = parse("S[(2,8,4,2):(2,4@tid_in_wg,1@tid_in_wg,1)]")
    program: lw.Program = lw.lower(
        lw.gemm(
            lw.Buffer("D", d.shape, "f32", layout=first),
            lw.Buffer("A", a.shape, "f16", layout=a.layout),
            lw.Buffer("B", b.shape, "f16", layout=b.layout),
            scope="warpgroup",
        )
    )
    return program


def test_the_mma_stays_before_a_branch_that_depends_on_the_lane() -> None:
    """An mma under a branch that some lanes do not take has no meaning (CASES A19)."""
    text = guarded().ptx("sm_90")
    mma, branch, store = (text.index(part) for part in ("mma.sync", " bra ", "st.global"))
    assert re.search(r"@%p\d+ bra", text)
    assert mma < branch < store


def test_the_mma_is_convergent_and_has_side_effects() -> None:
    """In LLVM: nobody may drop it, or make it depend on more conditions."""
    from numba import types
    from numba.cuda import compiler

    body = guarded().body
    arrays = (types.uint16[::1], types.uint16[::1], types.float32[::1])
    function = cuda._python(body, "gemm")
    result = compiler.compile_cuda(function, types.void, arrays, cc=(9, 0))
    lines = result.library.get_llvm_str().splitlines()
    calls = [line for line in lines if "mma.sync" in line]
    assert len(calls) == 1
    assert "asm sideeffect" in calls[0]
    assert calls[0].endswith(") convergent")


def test_programs_with_one_text_share_a_kernel() -> None:
    one, two = (Case("mma.m16n8k8.f16", (1, 1, 1)).program() for _ in range(2))
    assert one.kernel() is two.kernel()
    assert one.kernel() is not Case("mma.m16n8k8.bf16", (1, 1, 1)).program().kernel()


def test_a_target_that_the_compiler_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older compiler takes the nearest target that it knows: its PTX would lack the suffix."""
    monkeypatch.setattr(cuda.cuda, "compile_ptx", lambda *_, **__: (".target sm_103\n", None))
    with pytest.raises(LayoutError) as caught:
        PROGRAMS["mma.m16n8k8.f16"].ptx("sm_107")
    assert str(caught.value) == "target: the compiler does not know sm_107; it would take sm_103"


@pytest.mark.parametrize("arch", ["sm_9", "sm_", "90", "sm_90x", "compute_90", "", None, 90])
def test_what_is_no_target(arch: Any) -> None:
    with pytest.raises(LayoutError, match=r"^target: must look like sm_90 or sm_90a; got "):
        compute_capability(arch)


def test_without_a_device_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "device_count", lambda: 0)
    program = PROGRAMS["mma.m16n8k8.f16"]
    given = matrices(program, 1)
    message = "^run: no CUDA device is available; simulate.. runs on the NumPy warp$"
    with pytest.raises(LayoutError, match=message):
        program.run(**given)


CASES = standard_cases()


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=[str(case).replace(" ", "-") for case in CASES])
def test_the_standard_cases_on_the_device(case: Case) -> None:
    """Real numbers within 1e-5 of float64 into poisoned outputs; integers exactly."""
    program = case.program()
    given = matrices(program, 21, exact=False)
    del given["D"]
    inputs = {role: given[role] for role in program.inputs}
    want = expected(program, given | {"D": np.zeros(program.buffer("D").shape)})
    assert relative_error(program.run(**inputs), want) < TOLERANCE
    given = matrices(program, 22)
    assert np.array_equal(program.run(**given), expected(program, given))


SAMPLE = [row for row in read("gemm.jsonl") if row["out"]["accepted"]][::12]


@pytest.mark.gpu
@pytest.mark.parametrize("index", range(len(SAMPLE)))
def test_vectors_on_the_device(index: int) -> None:
    """Permuted registers, regions, warps: integers exactly, and D outside the region untouched."""
    program = lower_case(SAMPLE[index]["in"])
    given = matrices(program, index)
    assert np.array_equal(program.run(**given), expected(program, given))


@pytest.mark.gpu
def test_guarded_stores_on_the_device() -> None:
    program = guarded()
    given = matrices(program, 5)
    assert np.array_equal(program.run(**given), expected(program, given))


def test_a_block_without_statements_is_one_in_python_too() -> None:
    kernel = lw.Kernel("empty")
    with kernel.when(kernel.lane < 4), kernel.loop("i", 8):
        pass
    text = cuda.kernel_source(kernel.lower().body, "empty")
    compile(text, "empty", "exec")
    assert "pass" in text
