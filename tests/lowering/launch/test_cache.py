"""Kernels on disk: what decides a kernel decides where it is found; long compilations are said."""

from __future__ import annotations

import io
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layoutalg import ComposeLayout
from layoutalg.layouts.hardware import swizzled_tile
from lowering.codegen import compilers
from lowering.ir.kernel_ir import KernelIR
from lowering.launch import cache, driver
from lowering.launch.cache import Compiled, announced, compile_body, kept, key_of
from lowering.launch.driver import Device
from lowering.programs.kernel import Kernel

pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAYOUTALG_CACHE", str(tmp_path))
    return tmp_path / "kernels"


def boxes(shape: tuple[int, int], swizzle: int, shared: int = 0) -> KernelIR:
    """Return a kernel that brings a tile of f16 and takes it away, and may lay memory aside."""
    k = Kernel("k", threads=128)
    a, o = (k.param(name, (128, 128), "float16") for name in "ao")
    layout: ComposeLayout = swizzled_tile((1, *shape), swizzle, 16)
    ring = k.alloc("ring", (1, *shape), "float16", "shared", layout)
    full = k.barrier("full", 1, 1)
    if shared:
        k.alloc("more", (shared,), "uint8", "shared")
    k.tma_load(full, 0, [(ring[0], a[: shape[0], : shape[1]])])
    k.mbarrier_wait(full, 0, 0)
    k.tma_store((o[: shape[0], : shape[1]], ring[0]))
    k.tma_store_wait()
    return k.lower().body


WIDE, NARROW = boxes((64, 64), 128), boxes((128, 32), 64)


def test_what_the_text_does_not_say_is_in_the_key() -> None:
    """The box of a tensor map stands beside the text: two kernels may have one text."""
    texts = {compilers.COMPILERS["nvrtc"].text(body, "k") for body in (WIDE, NARROW)}
    assert len(texts) == 1
    keys = [key_of(body, "k") for body in (WIDE, NARROW, replace(WIDE, pdl=True))]
    assert len(set(keys)) == 3
    assert key_of(boxes((64, 64), 128), "k") == keys[0]


def test_dynamic_shared_memory_is_in_the_key() -> None:
    """Beyond 48 KiB the text does not say how much there is."""
    one, other = boxes((64, 64), 128, 60_000), boxes((64, 64), 128, 70_000)
    assert key_of(one, "k") != key_of(other, "k")


@pytest.mark.parametrize("by", compilers.COMPILERS)
def test_compiler_its_version_and_its_options_are_in_the_key(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {key_of(WIDE, "k", each) for each in compilers.COMPILERS}
    assert len(keys) == len(compilers.COMPILERS)
    newer = replace(compilers.COMPILERS[by], version=lambda: "99.0")
    monkeypatch.setitem(compilers.COMPILERS, by, newer)  # type: ignore[arg-type]
    assert key_of(WIDE, "k", by) not in keys


def test_options_are_part_of_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = compilers.COMPILERS["nvrtc"].version()
    monkeypatch.setattr(compilers.nvrtc, "OPTIONS", ("--std=c++20",))
    assert compilers.COMPILERS["nvrtc"].version() != before


def test_a_run_compiles_each_text_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for all processes: what one has kept, the next one loads."""
    made: list[Any] = []

    def compile_once(*given: Any) -> Compiled:
        made.append(given)
        return compile_body(*given)

    monkeypatch.setattr(driver, "compile_body", compile_once)
    monkeypatch.setattr(driver, "Loaded", lambda code, on: code)
    monkeypatch.setattr(
        driver, "device", lambda index: Device(0, "sm_90", 132, "H200", 232448, None)
    )
    for _ in range(2):  # processes
        monkeypatch.setattr(driver, "_LOADED", {})
        found = [driver._loaded(body, "k", "nvrtc") for body in (WIDE, NARROW, WIDE)]
        assert found[0] is found[2]
        assert found[0].boxes != found[1].boxes  # type: ignore[attr-defined]
    assert [given[2:] for given in made] == [("sm_90", "nvrtc")] * 2
    assert len(list(folder.iterdir())) == 2


def test_what_is_torn_is_made_again(folder: Path) -> None:
    made = compile_body(WIDE, "k", "sm_90a")
    assert made.code[:4] == b"\x7fELF"
    assert kept("k", "sm_90a", "key", lambda: made) == made
    (path,) = folder.iterdir()
    assert path.name == "k.sm_90a.key.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="is not usable"):
        assert kept("k", "sm_90a", "key", lambda: made) == made
    assert kept("k", "sm_90a", "key", lambda: pytest.fail("made again")) == made


# -- progress -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A standard error that someone looks at."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.mark.parametrize(
    ("stream", "quiet", "seconds", "said"),
    [
        (Terminal, "", 0.3, "layoutalg: compiling k for sm_90a with NVRTC …\n"),
        (Terminal, "", 0.0, ""),
        (Terminal, "1", 0.3, ""),
        (io.StringIO, "", 0.3, ""),
    ],
)
def test_a_long_compilation_is_announced(
    stream: type[io.StringIO],
    quiet: str,
    seconds: float,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = stream()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(cache, "PATIENCE", 0.05)
    monkeypatch.setenv("LAYOUTALG_QUIET", quiet)
    with announced("compiling k for sm_90a with NVRTC"):
        time.sleep(seconds)
    assert shown.getvalue() == said


def test_a_compilation_says_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(cache, "PATIENCE", 0.0)
    monkeypatch.delenv("LAYOUTALG_QUIET", raising=False)
    slow = replace(compilers.COMPILERS["nvrtc"], code=lambda *given: time.sleep(0.2) or b"\x7fELF")
    monkeypatch.setitem(compilers.COMPILERS, "nvrtc", slow)  # type: ignore[arg-type]
    assert compile_body(WIDE, "k", "sm_90a").code == b"\x7fELF"
    assert shown.getvalue() == "layoutalg: compiling k for sm_90a with NVRTC …\n"
