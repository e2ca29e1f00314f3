"""Without the extra ``gpu``: what needs its wheels names it, and the rest works."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import lowering as lw
from layoutalg import LayoutError
from lowering import codegen
from lowering.isa import nvjitlink, nvrtc
from lowering.launch import driver
from lowering.verification.cases import Case

PROGRAM = Case("mma.m16n8k8.f16", (1, 1, 1)).program()
MATRIX = np.ones((16, 16), np.float16)
NEEDS: dict[str, Callable[[], object]] = {
    "kernel": PROGRAM.kernel_source,
    "launch": lambda: lw.matmul(MATRIX, MATRIX),
    "assemble": lambda: nvjitlink.assemble("", "sm_90"),
    "compile": PROGRAM.whole,
    "launch of a program": lambda: PROGRAM.run(A=MATRIX[:, :8], B=MATRIX[:8, :8]),
}
CACHED = (
    driver._driver, driver.device, driver.device_count, nvjitlink._linker, nvrtc._compiler
)  # fmt: skip


@pytest.fixture
def without_wheels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("numba_cuda", "cuda.bindings", "lowering.codegen.numba_cuda"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr(codegen, "numba_cuda", raising=False)
    for cached in CACHED:
        cached.cache_clear()
    yield
    for cached in CACHED:
        cached.cache_clear()


@pytest.mark.parametrize("operation", NEEDS)
def test_the_extra_is_named(operation: str, without_wheels: None) -> None:
    what = operation.split()[0]
    with pytest.raises(
        (LayoutError, nvjitlink.AssembleError),
        match=rf"^{what}: needs .*: pip install 'layoutalg\[gpu\]', on Linux or Windows$",
    ):
        NEEDS[operation]()


def test_the_rest_works(without_wheels: None) -> None:
    assert "mma.sync" in PROGRAM.cuda_source()
    assert lw.verify([Case("mma.m16n8k8.f16", (1, 1, 1))])[0].machine == "simulator"
