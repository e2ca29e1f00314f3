"""The PTX that NVRTC makes of CUDA C++ text; tests are skipped where it is not installed."""

from __future__ import annotations

import pytest

from lowering.isa import nvrtc
from lowering.isa.nvjitlink import AssembleError


def compiled(source: str, arch: str = "compute_90") -> str:
    """Return the PTX of a text; skip the test where NVRTC is not installed."""
    try:
        nvrtc.version()
    except AssembleError as error:
        pytest.skip(f"NVRTC is not installed: {error}")
    return nvrtc.compile_text(source, arch).decode().rstrip("\0")
