"""Both compilers of whole kernels: the same machine code by count, the same bits on a device."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import LayoutError, S, TileLayout, fragments, laneid, parse
from lowering.codegen.compilers import COMPILERS, machine_code
from lowering.codegen.cuda_cpp import Source
from lowering.codegen.writer import emit
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import Mma, MoveMatrix, Registers, Store, Wgmma, walk
from lowering.isa import nvrtc, ptx
from lowering.isa.nvrtc import CompileError
from lowering.kernels.config import Config, Form
from lowering.kernels.matmul import program_of
from lowering.programs.kernel import Kernel
from lowering.verification.cases import Case
from lowering.verification.checker import random_inputs
from tests.lowering.codegen.test_readers import (
    SAMPLES,
    Sample,
    each_sample,
    matmul,
    scalars,
    wgmma,
)
from tests.support import tensor_kernels
from tests.support.cubin import FADD, FFMA, FMUL, Usage, operations, usage

pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")

CALLS = ("mma.m16n8k16.f16", "mma.m16n8k32.s8", "mma.m8n8k4.f64")


def usages(program: Any) -> tuple[Usage, Usage]:
    """Return what a program takes by NVRTC, and by numba; skip where that is not installed."""
    pytest.importorskip("lowering.codegen.numba_cuda", reason="numba-cuda is not installed")
    one, other = (usage(program.whole(compiler=each)) for each in ("nvrtc", "numba"))
    return one, other


def products(program: Any) -> int:
    """Return how many products a program writes in its text."""
    return sum(isinstance(op, (Mma, Wgmma)) for op in walk(program.body.ops))


@pytest.mark.slow
@each_sample
def test_both_compilers_multiply_as_often_and_spill_nothing(make: Callable[[], Sample]) -> None:
    one, other = usages(make().program)
    assert one.products == other.products
    assert one.stack == one.spills == other.stack == other.spills == 0
    assert abs(one.registers - other.registers) <= 0.25 * other.registers


@pytest.mark.parametrize("name", CALLS)
def test_every_product_is_one_instruction(name: str) -> None:
    program = Case(name, (2, 2, 2)).program()
    for each in usages(program):
        assert each.products.total() == products(program) == 8
        assert each.spills == 0


@pytest.mark.parametrize("threads", [256, 384])
def test_registers_are_not_spilt_for_the_sake_of_more_ctas(threads: int) -> None:
    """Without ``minBlocksPerMultiprocessor`` ptxas gives this kernel 32 registers a thread."""
    config = Config((64, 128, 16), (2, 4), 2, 1, bulk=True, producer=threads == 384)
    program = program_of(Form("float16"), config, "sm_90a")
    assert program.body.launched == threads
    found = usage(program.whole())
    assert found.spills == found.stack == 0
    assert found.registers > 48


@pytest.mark.slow
def test_the_register_shares_of_a_producer_are_kept() -> None:
    """``setmaxnreg`` is ignored, with a remark, where other code may be linked to the kernel."""
    config = Config((64, 128, 16), (2, 4), 2, 1, bulk=True, producer=True)
    program = program_of(Form("float16"), config, "sm_90a")
    for by in COMPILERS:
        code = machine_code(program.body, program.name, "sm_90a", by, strict=True)
        assert code.count(b"\x7fELF") == 1


def staged() -> KernelIR:
    """Return a loop by TMA that tries a wait before it waits."""
    return program_of(Form("float16"), Config((64, 64, 32), (2, 2), 2, bulk=True), "sm_90").body


def reduced() -> KernelIR:
    """Return the sum over columns that lanes hold."""
    k = Kernel("reduced")
    a, o = k.param("a", (8, 4), "float32"), k.param("o", (8, 1), "float32")
    r = k.alloc("r", (8, 4), "float32", layout=TileLayout(S[(8, 4) : (4 @ laneid, 1 @ laneid)]))
    k.copy(r, a)
    k.copy(o, k.tile("t", lw.sum(r, axis=1)))
    return k.lower().body


def transposed() -> KernelIR:
    """Return a block of 8 x 8 that ``movmatrix`` transposes."""
    k = Kernel("transposed")
    a, o = (k.param(name, (8, 8), "float16") for name in "ao")
    block = fragments.get("mma.m16n8k8.f16", "B").layout
    r = k.alloc("r", (8, 8), "float16", layout=block)
    k.copy(r, a)
    k.copy(o, r)
    body = k.lower().body
    at = next(n for n, op in enumerate(body.ops) if "r" not in op.writes)
    words = Registers("r", (0, 1))
    return replace(body, ops=(*body.ops[:at], MoveMatrix(words, words), *body.ops[at:]))


def in_tensor_memory() -> KernelIR:
    """Return a block-scaled product of sm_100a that adds to what it is given."""
    case = tensor_kernels.Case("e4m3", sizes=(128, 64, 128), scale=("ue8m0", 32), accum=True)
    return tensor_kernels.product(case).lower().body


def copied() -> KernelIR:
    """Return a conversion from a tile of which two lanes hold each element."""
    k = Kernel("copied")
    a, o = k.param("a", (16, 4), "float32"), k.param("o", (16, 4), "float32")
    twice = parse("S[(16,4):(1@laneid,1)] + R[2:16@laneid]")
    apart = parse("S[(16,4):(2@laneid,1)]")
    r, t = (k.alloc(n, (16, 4), "float32", layout=each) for n, each in (("r", twice), ("t", apart)))
    k.copy(r, a), k.copy(t, r), k.copy(o, t)
    return k.lower().body


MORE = (staged, reduced, transposed, in_tensor_memory, copied)


@pytest.mark.slow
@pytest.mark.parametrize("make", MORE, ids=[each.__name__ for each in MORE])
def test_both_compilers_take_what_samples_lack(make: Callable[[], KernelIR]) -> None:
    pytest.importorskip("lowering.codegen.numba_cuda", reason="numba-cuda is not installed")
    body = make()
    one, other = (usage(machine_code(body, "k", body.arch, by)) for by in COMPILERS)
    assert one.products == other.products
    assert one.spills == other.spills == 0


def test_both_compilers_are_given_every_operation() -> None:
    bodies = [*(make().program.body for make in SAMPLES), *(make() for make in MORE)]
    seen = {type(op) for body in bodies for op in walk(body.ops)}
    lacking = {each.__name__ for each in emit.rows.keys() - seen}
    assert not lacking, "add a sample to tests/lowering/codegen/test_readers.py, or to MORE"


@pytest.mark.slow
def test_the_largest_kernel_takes_seconds() -> None:
    """Of process time, lowered and compiled: it was 12 to 24 by numba."""
    start = time.process_time()
    form, config = Form("float16"), Config((128, 256, 64), (2, 4), 4)
    program_of(form, config, "sm_90").whole()
    assert time.process_time() - start < 6


@pytest.mark.parametrize("by", COMPILERS)
def test_products_and_sums_of_floats_are_rounded_one_by_one(by: str) -> None:
    """As the NumPy warp does it: neither compiler makes one ``fma`` of a product and a sum."""
    if by == "numba":
        pytest.importorskip("lowering.codegen.numba_cuda", reason="numba-cuda is not installed")
    done = operations(scalars().program.whole(compiler=by))
    assert (done[FMUL], done[FADD], done[FFMA]) == (8, 4, 0)


# -- errors ---------------------------------------------------------------------------------------


def test_every_line_of_the_text_has_its_operation() -> None:
    for make in SAMPLES:
        program = make().program
        source = Source(program.body, "k", "k")
        lines = source.text.splitlines()
        start = next(at for at, line in enumerate(lines) if 'extern "C"' in line)
        found = [source.origin(number) for number in range(1, len(lines) + 1)]
        assert not any(found[:start])
        assert {id(op) for op in found if op is not None} >= {
            id(op) for op in walk(program.body.ops) if isinstance(op, (Mma, Store))
        }
        for line, op in zip(lines, found, strict=True):
            if re.match(r" +(mma_|st_global)", line):
                assert isinstance(op, (Mma, Store)), line


@pytest.mark.parametrize("wrong", ["mma.sink", "mma.sync.aligned.m16n8k17"])
def test_errors_name_the_operation(wrong: str) -> None:
    """What ptxas refuses in a device function is the fault of the operation that calls it."""
    program = Case("mma.m16n8k16.f16", (1, 1, 1)).program()
    source = Source(program.body, "k", "k")
    text = source.text.replace("mma.sync.aligned.m16n8k16", wrong)
    (op,) = program.body.mma
    (line,) = (n for n, each in enumerate(text.splitlines(), 1) if source.origin(n) is op)
    with pytest.raises(CompileError) as caught:
        nvrtc.compile_text(text, "sm_90", "k", source.origin)
    first = str(caught.value).splitlines()[1]
    assert first.startswith(f"  line {line}, of {op}: ")


def test_the_error_of_a_program_names_its_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(ptx.cp_async_commit(), text="cp.async.submit_group;")
    monkeypatch.setattr(ptx, "cp_async_commit", lambda: wrong)
    k = Kernel("k")
    k.commit()
    program = k.lower()
    with pytest.raises(CompileError) as caught:
        program.whole("sm_90a")
    title, *complaints = str(caught.value).splitlines()
    assert title == "compile k for sm_90a: NVRTC refuses"
    assert "Unknown modifier '.submit_group'" in complaints[0]
    assert all(re.match(r"  line \d+, of cp\.async\.commit: ", each) for each in complaints)
    assert "submit_group" in caught.value.log


def test_an_unknown_compiler_is_refused() -> None:
    program = Case("mma.m16n8k16.f16", (1, 1, 1)).program()
    with pytest.raises(LayoutError) as caught:
        program.whole(compiler="nvcc")
    assert str(caught.value) == "compile: the compiler must be 'nvrtc' or 'numba'; got 'nvcc'"


@pytest.mark.parametrize("by", COMPILERS)
def test_a_target_without_the_instruction_is_refused(by: str) -> None:
    program = Case("mma.m16n8k16.f16", (1, 1, 1)).program()
    with pytest.raises(LayoutError, match=r"^target: sm_75 lacks mma\.sync.*; sm_80 and newer"):
        program.whole("sm_75", by)


# -- on a device ----------------------------------------------------------------------------------


@pytest.mark.gpu
@each_sample
def test_both_compilers_agree_bit_by_bit(make: Callable[[], Sample]) -> None:
    sample = make()
    one, other = (
        sample.program.run(sample.grid, each, **sample.given) for each in ("nvrtc", "numba")
    )
    for name, want in sample.want.items():
        assert one[name].tobytes() == other[name].tobytes(), name
        assert np.array_equal(one[name].astype(float), want.astype(float)), name


@pytest.mark.gpu
@pytest.mark.parametrize("name", CALLS)
def test_random_products_agree_bit_by_bit(name: str) -> None:
    program = Case(name, (2, 2, 2)).program()
    inputs = random_inputs(program, 0)
    one, other = (program.run(each, **inputs) for each in ("nvrtc", "numba"))
    assert one.tobytes() == other.tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("by", COMPILERS)
def test_floats_are_scaled_as_the_numpy_warp_does(by: str) -> None:
    program, rng = scalars().program, np.random.default_rng(0)
    given: dict[str, Any] = {name: rng.standard_normal((32, 4)).astype(np.float32) for name in "ab"}
    given |= {"alpha": 0.3, "beta": -1.7}
    want = program.simulate(**given)["o"]
    assert program.run(compiler=by, **given)["o"].tobytes() == want.tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("make", [matmul, wgmma])
def test_whole_matrices_of_random_floats_agree_bit_by_bit(make: Callable[[], Sample]) -> None:
    sample, rng = make(), np.random.default_rng(0)
    given = sample.given | {
        name: rng.standard_normal(sample.given[name].shape).astype(np.float16) for name in "AB"
    }
    one, other = (sample.program.run(sample.grid, each, **given)["D"] for each in COMPILERS)
    assert one.tobytes() == other.tobytes()
