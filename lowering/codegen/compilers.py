"""The compilers of whole kernels: from a body to machine code that no other is linked to.

NVRTC takes the C++ text, numba the Python text of inline PTX, which is the reference: both call the
same instructions, and their results are equal bit by bit. NVRTC is the default at every size.
Seconds of process time on two cores of an x86 server, without the 0.5 s in which numba is imported:

| program | operations | NVRTC 13.5 | numba-cuda 0.30 |
|---|---|---|---|
| one mma | 12 | 0.03 | 0.13 |
| a shared-memory pipeline of two stages | 43 | 0.05 | 0.5 |
| matmul 32x32x32 | 86 | 0.10 | 1.8 |
| matmul 64x64x64, wgmma | 131 | 0.16 | 3.7 |
| matmul 128x256x64, wgmma | 151 | 0.50 | 13.0 |
| matmul 64x64x64 | 417 | 0.26 | 9.8 |
| matmul 128x128x64 | 1016 | 0.51 | 37.2 |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType

from layoutalg import LayoutError
from lowering.codegen.cuda_cpp import Source
from lowering.ir.kernel_ir import KernelIR
from lowering.isa import nvjitlink, nvrtc, ptx
from lowering.isa.gpu_extra import missing


def numba_machine() -> ModuleType:
    """Return :mod:`lowering.codegen.numba_cuda`, which alone imports numba.

    Raises:
        LayoutError: numba-cuda is not installed.
    """
    try:
        from lowering.codegen import numba_cuda
    except ImportError as error:
        raise missing("kernel", "numba-cuda", error) from None
    return numba_cuda


@dataclass(frozen=True)
class Compiler:
    """What makes machine code of a body.

    ``title``: how people call it. ``version``: of all that decides the code. ``text``: all that it
    compiles of a body of a name. ``code``: the machine code of a body of a name for a target.
    """

    title: str
    version: Callable[[], str]
    text: Callable[[KernelIR, str], str]
    code: Callable[[KernelIR, str, str, bool], bytes]


def _by_nvrtc(body: KernelIR, name: str, arch: str, strict: bool) -> bytes:
    source = Source(body, name, name)
    ptx.check_target(source.asm, arch, "target")
    return nvrtc.compile_text(source.text, arch, name, source.origin, strict)


def _by_numba(body: KernelIR, name: str, arch: str, strict: bool) -> bytes:
    return nvjitlink.link_whole(numba_machine().compile_ltoir(body, name, arch), arch, name, strict)


COMPILERS: Mapping[str, Compiler] = {
    "nvrtc": Compiler(
        "NVRTC",
        lambda: f"NVRTC {nvrtc.version()} {' '.join(nvrtc.OPTIONS)}",
        lambda body, name: Source(body, name, name).text,
        _by_nvrtc,
    ),
    "numba": Compiler(
        "numba",
        lambda: f"{numba_machine().version()}, nvJitLink {nvjitlink.version()}",
        lambda body, name: numba_machine().definition(body, name),
        _by_numba,
    ),
}
DEFAULT = "nvrtc"


def compiler(name: str) -> Compiler:
    """Return a compiler by name.

    Raises:
        LayoutError: no compiler has the name.

    >>> compiler("nvcc")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: compile: the compiler must be 'nvrtc' or 'numba'; got 'nvcc'
    """
    if name not in COMPILERS:
        names = " or ".join(map(repr, COMPILERS))
        raise LayoutError(f"compile: the compiler must be {names}; got {name!r}")
    return COMPILERS[name]


def machine_code(
    body: KernelIR, name: str, arch: str, by: str = DEFAULT, strict: bool = False
) -> bytes:
    """Return a body's machine code for a target; no GPU is needed.

    Args:
        body: the whole kernel.
        name: of the kernel.
        arch: the target.
        by: the compiler's name.
        strict: refuse what the assembler remarks upon, such as a wgmma that it serialises.

    Raises:
        LayoutError: no such compiler, or the target lacks an instruction.
        AssembleError: the compiler refuses, with the operations that it complains of; or it is not
            installed.
    """
    return compiler(by).code(body, name, arch, strict)
