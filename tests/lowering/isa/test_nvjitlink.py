"""PTX to machine code without a GPU: the assembler's word is passed on."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from layoutalg.fragments.targets import TARGETS
from lowering.isa import nvjitlink
from lowering.isa.nvjitlink import AssembleError

pytest.importorskip("cuda.bindings.nvjitlink", reason="nvJitLink is not installed")


def module(target: str, statement: str) -> str:
    """Return a PTX module whose kernel has one statement."""
    return f"""
.version 8.0
.target {target}
.address_size 64
.visible .entry kernel()
{{
  .reg .b32 %r<9>;
  .reg .f32 %f<9>;
  {statement}
  ret;
}}
"""


def mma(shape: str, a: str, b: str) -> str:
    d = "{%f0,%f1,%f2,%f3}"
    return f"mma.sync.aligned.{shape}.row.col.f32.f16.f16.f32 {d}, {{{a}}}, {{{b}}}, {d};"


K8, K16 = mma("m16n8k8", "%r0,%r1", "%r2"), mma("m16n8k16", "%r0,%r1,%r2,%r3", "%r4,%r5")


def test_the_targets() -> None:
    numbers = [int(target[3:].rstrip("af")) for target in TARGETS]
    assert numbers == sorted(numbers)
    assert (TARGETS[0], TARGETS[-1]) == ("sm_75", "sm_121f")
    assert len(set(TARGETS)) == len(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_takes_a_module(target: str) -> None:
    cubin = nvjitlink.assemble(module("sm_75", K8), target)
    assert cubin[:4] == b"\x7fELF"
    assert int.from_bytes(cubin[18:20], "little") == 190  # EM_CUDA


@pytest.mark.parametrize(
    ("statement", "target", "word"),
    [
        (K16, "sm_75", "Feature '.m16n8k16' requires .target sm_80 or higher"),
        (mma("m16n8k32", "%r0", "%r1"), "sm_80", "m16n8k32"),
        ("frobnicate;", "sm_80", "'frobnicate'"),
        ("mov.b32 %r0, %r10;", "sm_80", "Unknown symbol '%r10'"),
    ],
)
def test_the_assemblers_message_is_passed_on(statement: str, target: str, word: str) -> None:
    with pytest.raises(AssembleError) as caught:
        nvjitlink.assemble(module(target, statement), target)
    text = str(caught.value)
    assert text.startswith(f"assemble for {target}: ")
    assert word in text
    assert isinstance(caught.value, RuntimeError)


def test_the_name_of_the_input_is_in_the_message() -> None:
    with pytest.raises(AssembleError, match="gemm of the test"):
        nvjitlink.assemble(module("sm_80", "frobnicate;"), "sm_80", "gemm of the test")


@pytest.mark.parametrize("target", ["sm_12", "compute_90", "x"])
def test_a_target_that_it_does_not_know(target: str) -> None:
    with pytest.raises(AssembleError, match=f"^assemble: nvJitLink does not take .*'{target}': "):
        nvjitlink.assemble(module("sm_80", K16), target)


def test_k16_assembles_from_sm_80_on() -> None:
    assert nvjitlink.assemble(module("sm_80", K16), "sm_80")[:4] == b"\x7fELF"


def test_what_it_remarks_upon_is_refused_where_asked() -> None:
    text = module("sm_80", '.pragma "frob";')
    assert nvjitlink.assemble(text, "sm_80")[:4] == b"\x7fELF"
    assert nvjitlink.assemble(module("sm_80", K16), "sm_80", strict=True)[:4] == b"\x7fELF"
    with pytest.raises(AssembleError, match=r"^assemble for sm_80, with remarks: .*Pragma 'frob'"):
        nvjitlink.assemble(text, "sm_80", strict=True)


def test_without_a_log_there_is_no_text() -> None:
    class Silent:
        """A linker that failed and says nothing."""

        @staticmethod
        def get_error_log_size(handle: object) -> int:
            return 1

    assert nvjitlink._log(Silent, None, "error") == ""


@pytest.fixture
def _no_bindings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the bindings, as on a machine without CUDA wheels."""
    nvjitlink._linker.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    yield
    nvjitlink._linker.cache_clear()


@pytest.mark.usefixtures("_no_bindings")
def test_without_nvjitlink_the_advice_is_to_install_it() -> None:
    with pytest.raises(AssembleError, match=r"^assemble: needs nvJitLink .*: pip install"):
        nvjitlink.assemble(module("sm_80", K16), "sm_80")
