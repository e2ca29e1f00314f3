"""Compiles the CUDA C++ text of a kernel to PTX by NVRTC, which needs no GPU and no nvcc."""

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
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    # NVRTC has no <cstdint>.
    types = "\n".join(f"typedef {kind} {name};" for name, kind in INTEGERS.items())
    text = source.replace("#include <cstdint>", types).encode()

    def call(name: str, *arguments: Any) -> tuple[int, Any]:
        status, *found = getattr(nvrtc, name)(*arguments)
        return int(status), (found[0] if found else None)

    try:
        _, program = call("nvrtcCreateProgram", text, b"kernel.cu", 0, [], [])
    except RuntimeError as error:  # the bindings load the library late
        pytest.skip(f"NVRTC is not installed: {error}")
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
    status, _ = call("nvrtcCompileProgram", program, len(options), options)
    _, size = call("nvrtcGetProgramLogSize", program)
    log = b" " * size
    call("nvrtcGetProgramLog", program, log)
    assert status == 0, log.decode()
    _, size = call("nvrtcGetPTXSize", program)
    made = b" " * size
    call("nvrtcGetPTX", program, made)
    return made.decode().rstrip("\0")
