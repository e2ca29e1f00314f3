"""Matrices beyond 2**31 elements: both texts compute their addresses in 64 bits, read in their PTX.

NVRTC makes PTX of the C++ text without a GPU; the addresses of the last thread are evaluated there
and compared with the definition, ``4 * sum of coordinate * stride``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from layoutalg import S, TileLayout, laneid, parse, tx
from lowering.ir.index import FREE, INT, Index
from lowering.programs.kernel import Kernel
from lowering.programs.program import KernelProgram
from tests.support.nvrtc_text import compiled
from tests.support.ptx_integers import touched

pytest.importorskip("lowering.codegen.numba_cuda", reason="numba-cuda is not installed")

ROW = TileLayout(S[(32, 4) : (1 @ laneid, 1)])
BASE = {"a": 1 << 40, "o": 3 << 44}  # far from what an offset reaches


def parameters(program: KernelProgram, text: str, scalars: dict[str, int]) -> dict[int, int]:
    """Return the value of each parameter: pointers, then scalars; numba's arrays have seven words.

    The fifth word of an array is its address.
    """
    names = [buffer.name for buffer in program.body.params]
    each = 7 if text == "numba" and not program.body.scalars else 1
    found = {at * each + (4 if each == 7 else 0): BASE[name] for at, name in enumerate(names)}
    ordered = [scalars[scalar.name] for scalar in program.body.scalars]
    return found | {len(names) + at: value for at, value in enumerate(ordered)}


def threads_far() -> tuple[KernelProgram, dict[str, Any], list[int]]:
    """Rows 2**28 elements apart: thread 31 is beyond 2**31 bytes, and beyond 2**32."""
    k = Kernel("k")
    a, o = k.param("a", (32, 1 << 28), "float32"), k.param("o", (32, 4), "float32")
    r = k.alloc("r", (32, 4), "float32", layout=ROW)
    k.copy(r, a[:, 8:12])
    k.copy(o, r)
    return k.lower(), {}, [4 * (31 * (1 << 28) + 8)]


def loops_far() -> tuple[KernelProgram, dict[str, Any], list[int]]:
    """A loop that stays over rows 2**26 elements apart, and one inside it."""
    k = Kernel("k")
    a, o = k.param("a", (64, 1 << 26), "float32"), k.param("o", (128,), "float32")
    r = k.alloc("r", (128,), "float32", layout=ROW)
    with k.loop("i", 64) as i, k.loop("j", 2) as j:
        k.copy(r, a[i, j * (1 << 25) : j * (1 << 25) + 128])
        k.copy(o, r)
    want = [4 * (i * (1 << 26) + j * (1 << 25) + 31 * 4) for i in range(64) for j in range(2)]
    return k.lower(), {}, want


def sums_far() -> tuple[KernelProgram, dict[str, Any], list[int]]:
    """Terms that each fit 32 bits, and their sum does not."""
    k = Kernel("k")
    a, o = k.param("a", (32, 16, 1 << 21), "float32"), k.param("o", (32, 4), "float32")
    r = k.alloc("r", (32, 4), "float32", layout=ROW)
    with k.loop("i", 16) as i:
        k.copy(r, a[:, i, (1 << 21) - 4 : 1 << 21])
        k.copy(o, r)
    rows = [(31 * 16 + i) * (1 << 21) + (1 << 21) - 4 for i in range(16)]
    return k.lower(), {}, [4 * row for row in rows]


def swizzled_far() -> tuple[KernelProgram, dict[str, Any], list[int]]:
    """An XOR of the low digits beside a far row."""
    k = Kernel("k")
    layout = parse("S[(32,4,8388608):(33554432,8388608,1)]")
    a, o = k.param("a", (32, 1 << 25), "float32", layout), k.param("o", (32, 4), "float32")
    r = k.alloc("r", (32, 4), "float32", layout=ROW)
    with k.loop("i", 4) as i:
        k.copy(r, a[:, i * (1 << 23) : i * (1 << 23) + 4])
        k.copy(o, r)
    return k.lower(), {}, [4 * (31 * (1 << 25) + i * (1 << 23)) for i in range(4)]


def pitch_far() -> tuple[KernelProgram, dict[str, Any], list[int]]:
    """A pitch that only the launch knows, and a block far along bx."""
    k = Kernel("k")
    pitch = k.scalar("pitch")
    layout = TileLayout(S[(FREE, FREE) : (4 * pitch, 1)])
    a, o = k.param("a", (FREE, FREE), "float32", layout), k.param("o", (32, 4), "float32")
    r = k.alloc("r", (32, 4), "float32", layout=ROW)
    block = k.let("block", k.block[0], 1 << 16)
    k.copy(r, a[block * 32 : block * 32 + 32, 0:4])
    k.copy(o, r)
    there = {"pitch": 250_000, "bx": 65_535}
    return k.lower(), there, [4 * (65_535 * 32 + 31) * 1_000_000]


def columns_far() -> tuple[KernelProgram, dict[str, Any], list[int]]:
    """Warps that begin far apart, by the index of a warp."""
    k = Kernel("k", threads=128)
    a, o = k.param("a", (4, 32, 1 << 27), "float32"), k.param("o", (32, 4), "float32")
    r = k.alloc("r", (32, 4), "float32", layout=ROW)
    w = k.let("w", k.warp)
    k.copy(r, a[w, :, 4:8])
    with k.when(k.warp, 4, at_least=3):
        k.copy(o, r)
    return k.lower(), {"thread": 127}, [4 * ((3 * 32 + 31) * (1 << 27) + 4)]


FAR = (threads_far, loops_far, sums_far, swizzled_far, pitch_far, columns_far)


@pytest.mark.parametrize("text", ["numba", "C++"])
@pytest.mark.parametrize("make", FAR, ids=[each.__name__ for each in FAR])
def test_the_addresses_of_the_last_thread(
    make: Callable[[], tuple[KernelProgram, dict[str, Any], list[int]]], text: str
) -> None:
    program, there, want = make()
    ptx = program.ptx("sm_90") if text == "numba" else compiled(program.cuda_source())
    given = parameters(program, text, there)
    found = touched(ptx, given, there.get("thread", 31), there.get("bx", 0))
    loads = [address for verb, address in found if verb.startswith("ld.global")]
    assert loads == [BASE["a"] + offset for offset in want]
    assert max(want) >= INT  # else nothing is shown
    stores = [address for verb, address in found if verb.startswith("st.global")]
    assert all(0 <= address - BASE["o"] < 512 for address in stores)
    assert stores


def test_32_bits_stay_where_they_are_enough() -> None:
    thread = Index.of("thread", 1024)
    assert (thread * ((INT - 1) // 1023)).render("c") == "thread * 2099202"
    assert "int64_t" in (thread * ((INT - 1) // 1023 + 1)).render("c")
    assert (thread * (1 << 21)).render("python") == "thread * 2097152"
    free = Index.free("row") * 64 + thread * 4
    assert free.render("c") == "row * 64 + thread * 4"


@pytest.mark.parametrize("text", ["numba", "C++"])
def test_a_text_in_32_bits_would_be_seen(text: str) -> None:
    """The evaluator wraps as registers do: a kernel whose offsets are 32-bit lands elsewhere."""
    program, _, want = threads_far()
    if text == "C++":
        ptx = compiled(program.cuda_source().replace("static_cast<int64_t>(thread)", "thread"))
    else:
        ptx = program.ptx("sm_90").replace("mul.wide.s32", "mul.lo.s32")
    found = touched(ptx, parameters(program, text, {}), 31)
    loads = [address for verb, address in found if verb.startswith("ld.global")]
    assert loads != [BASE["a"] + offset for offset in want]


def test_launch_bounds_are_always_said() -> None:
    """1024 threads of 96 registers each: without bounds, no launch would have room."""
    k = Kernel("k", 1024)
    layout = TileLayout(S[(1024, 96) : (1 @ tx, 1)])
    r = k.alloc("r", (1024, 96), "float32", layout=layout)
    a = k.param("a", (1024, 96), "float32")
    k.copy(r, a)
    k.copy(a, r)
    program = k.lower()
    assert ".maxntid 1024" in program.ptx("sm_90")
    assert ".maxntid 1024" in compiled(program.cuda_source())
