"""Compiles the CUDA C++ text of a kernel by NVRTC, which needs no GPU and no nvcc."""

from __future__ import annotations

from typing import Any

import pytest

INTEGERS = {
    "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short",
    "uint16_t": "unsigned short", "int32_t": "int", "uint32_t": "unsigned int",
    "int64_t": "long long", "uint64_t": "unsigned long long",
}  # fmt: skip


def compiled(source: str, arch: str = "compute_90") -> str:
    """Return the PTX of a text; skip the test where NVRTC is not installed."""
    try:
        return made(source, arch, "PTX").decode().rstrip("\0")
    except ImportError as error:
        pytest.skip(f"NVRTC is not installed: {error}")


def made(source: str, arch: str, form: str) -> bytes:
    """Return what a text compiles to: "PTX", or "CUBIN", its machine code.

    Raises:
        ImportError: NVRTC is not installed.
        RuntimeError: the compiler refuses; its log is passed on.
    """
    from cuda.bindings import nvrtc

    def call(name: str, *arguments: Any) -> Any:
        status, *found = getattr(nvrtc, name)(*arguments)
        if int(status):
            raise RuntimeError(f"{name}: {status}")
        return found[0] if found else None

    def read(what: str) -> bytes:
        into = b" " * call(f"nvrtcGet{what}Size", program)
        call(f"nvrtcGet{what}", program, into)
        return into

    # NVRTC has no <cstdint>.
    types = "\n".join(f"typedef {kind} {name};" for name, kind in INTEGERS.items())
    header = [types.encode()], [b"cstdint"]
    try:
        program = call("nvrtcCreateProgram", source.encode(), b"kernel.cu", 1, *header)
    except RuntimeError as error:  # the bindings load the library late
        raise ImportError(str(error)) from error
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
    try:
        call("nvrtcCompileProgram", program, len(options), options)
    except RuntimeError as error:
        raise RuntimeError(read("ProgramLog").decode()) from error
    return read(form)
