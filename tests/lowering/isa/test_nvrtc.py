"""CUDA C++ text to machine code without a GPU: what the compiler says is said of the right line."""

from __future__ import annotations

import pickle

import pytest

from lowering.isa import nvrtc
from lowering.isa.nvjitlink import AssembleError
from lowering.isa.nvrtc import CompileError

pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")

TEXT = """#include <cstdint>
__device__ __forceinline__ void twice(uint32_t& o, uint32_t i) {
  asm volatile("add.u32 %0, %1, %1;" : "=r"(o) : "r"(i) : "memory");
}
extern "C" __global__ void k(uint32_t* p) {
  uint32_t r = p[0];
  if (r > 3) {
    twice(r, r);
  }
  p[1] = r;
}
"""


def refusal(text: str, arch: str = "sm_90a") -> CompileError:
    """Return the error that a text ends with; each line is said to be written for its number."""
    with pytest.raises(CompileError) as caught:
        nvrtc.compile_text(text, arch, "k", lambda line: f"statement {line}")
    return caught.value


def test_machine_code_and_ptx() -> None:
    assert nvrtc.compile_text(TEXT, "sm_90a")[:4] == b"\x7fELF"
    assert b".target sm_90a" in nvrtc.compile_text(TEXT, "compute_90a")


@pytest.mark.parametrize("name", ["int8_t", "uint16_t", "int32_t", "uint64_t"])
def test_the_integer_types_have_their_width(name: str) -> None:
    bits = name.strip("uint_")
    text = f'#include <cstdint>\nstatic_assert(sizeof({name}) * 8 == {bits}, "width");\n'
    sign = f'static_assert(({name}(-1) > 0) == {str(name[0] == "u").lower()}, "sign");\n'
    assert nvrtc.compile_text(text + sign, "sm_90")


def test_a_complaint_about_the_text_names_its_line() -> None:
    error = refusal(TEXT.replace("twice(r, r)", "thrice(r, r)"))
    assert str(error) == (
        "compile k for sm_90a: NVRTC refuses\n"
        '  line 8, of statement 8: identifier "thrice" is undefined'
    )
    assert "1 error detected" in error.log


def test_a_complaint_about_ptx_names_the_call_that_it_comes_from() -> None:
    error = refusal(TEXT.replace("add.u32", "frob.u32"))
    assert str(error) == (
        "compile k for sm_90a: NVRTC refuses\n"
        "  line 8, of statement 8: Not a name of any known instruction: 'frob'"
    )
    assert "ptxas" in error.log


def test_each_complaint_is_listed() -> None:
    text = TEXT.replace("r > 3", "q > 3").replace("p[1] = r", "p[1] = s")
    assert [line.split(",")[0] for line in str(refusal(text)).splitlines()[1:]] == [
        "  line 7", "  line 10",
    ]  # fmt: skip


def test_a_target_that_it_does_not_know() -> None:
    assert str(refusal(TEXT, "sm_12")) == (
        "compile k for sm_12: NVRTC refuses\n  invalid value for --gpu-architecture (-arch)"
    )


def test_an_instruction_that_the_target_lacks() -> None:
    text = TEXT.replace("add.u32 %0, %1, %1", "setmaxnreg.inc.sync.aligned.u32 240")
    assert nvrtc.compile_text(text, "sm_90a")
    assert "line 8, of statement 8: Instruction 'setmaxnreg.inc'" in str(refusal(text, "sm_90"))


def test_what_ptxas_remarks_upon_is_refused_where_asked() -> None:
    text = TEXT.replace("add.u32 %0, %1, %1;", '.pragma \\"frob\\"; mov.u32 %0, %1;')
    assert nvrtc.compile_text(text, "sm_90")
    assert nvrtc.compile_text(TEXT, "sm_90", strict=True)
    with pytest.raises(CompileError, match=r"^compile k for sm_90, with remarks: .*Pragma 'frob'"):
        nvrtc.compile_text(text, "sm_90", "k", strict=True)


def test_the_error_is_one_of_assembling_and_crosses_processes() -> None:
    error = refusal("int x = ;")
    assert isinstance(error, AssembleError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.log) == (str(error), error.log)
