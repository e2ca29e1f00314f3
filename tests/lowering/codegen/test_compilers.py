"""Both compilers of whole kernels: the same machine code by count, the same bits on a device."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from layoutalg import LayoutError
from lowering.codegen.compilers import COMPILERS, machine_code
from lowering.codegen.cuda_cpp import Source
from lowering.ir.ops import Mma, Store, Wgmma, walk
from lowering.isa import nvrtc
from lowering.isa.nvrtc import CompileError
from lowering.kernels.config import Config, Form
from lowering.kernels.matmul import program_of
from lowering.verification.cases import Case
from lowering.verification.checker import random_inputs
from tests.lowering.codegen.test_readers import SAMPLES, Sample, each_sample
from tests.support.cubin import Usage, usage

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
