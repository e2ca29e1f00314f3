"""The CUDA C++ text: what it says, and that nvcc takes it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lowering as lw
from layoutalg import S, TileLayout, laneid
from lowering.codegen.cuda_cpp import cuda_source
from lowering.ir.index import Guard, Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import BulkStore, TmaStore, Transfer, When
from lowering.programs.kernel import Kernel
from lowering.verification.cases import Case
from tests.support.gemm_cases import lower_case
from tests.support.vectors import read

SPACES = (("g", "global"), ("s", "shared"))
NVCC = shutil.which("nvcc")
compiled = pytest.mark.skipif(NVCC is None, reason="no nvcc: the CUDA C++ text was not compiled")


def compile_text(program: lw.Program, folder: Path, kind: str, arch: str) -> Path:
    """Compile with every warning an error."""
    source, output = folder / "gemm.cu", folder / f"gemm.{kind}"
    source.write_text(program.cuda_source())
    flags = ["-std=c++17", f"-arch={arch}", "-Werror", "all-warnings", f"-{kind}"]
    done = subprocess.run(
        [str(NVCC), *flags, "-o", str(output), str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return output


@pytest.mark.parametrize("name", [row.name for row in lw.MMA_INSTRUCTIONS[:4]])
def test_the_helper_of_each_instruction(name: str) -> None:
    """One device function, in place on D, called once per tile."""
    case = Case(name, (2, 1, 3), 1)
    source = case.program().cuda_source()
    words = {16: "{%4,%5,%6,%7}, {%8,%9}", 8: "{%4,%5}, {%6}"}[case.row.k]
    assert (f'asm volatile("{case.row.ptx} {{%0,%1,%2,%3}}, {words}, {{%0,%1,%2,%3}};"') in source
    assert source.count('asm volatile("mma.sync') == 1
    helper = name.replace(".", "_")
    assert source.count(f"  {helper}(D_") == 6
    assert source.startswith("// gemm(D[0:32,0:8], ")
    assert 'extern "C" __global__ void __launch_bounds__(32, 1)\ngemm(' in source


@pytest.mark.slow
@compiled
@pytest.mark.parametrize(
    ("name", "tiles", "arch"),
    [
        ("mma.m16n8k16.f16", (2, 2, 2), "sm_90"),
        ("mma.m16n8k16.bf16", (1, 1, 1), "sm_80"),
        ("mma.m16n8k8.f16", (1, 2, 3), "sm_75"),
        ("mma.m16n8k8.bf16", (1, 1, 3), "sm_120"),
    ],
)
def test_nvcc_compiles_the_text(
    name: str, tiles: tuple[int, int, int], arch: str, tmp_path: Path
) -> None:
    """One mma per tile in nvcc's PTX too, and machine code without a warning."""
    case = Case(name, tiles, 1)
    mt, nt, kt = tiles
    ptx = compile_text(case.program(), tmp_path, "ptx", arch).read_text()
    assert ptx.count(f"{case.row.ptx} ") == mt * nt * kt
    cubin = compile_text(case.program(), tmp_path, "cubin", arch).read_bytes()
    assert cubin[:4] == b"\x7fELF"


@pytest.mark.slow
@compiled
@pytest.mark.parametrize("kind", ["warps", "regions", "other axes"])
def test_nvcc_compiles_what_vectors_ask_for(kind: str, tmp_path: Path) -> None:
    """Split warps, guards, regions, threads on other axes."""
    rows = [row for row in read("gemm.jsonl") if row["out"]["accepted"]]
    kinds: dict[str, Callable[[Any], bool]] = {
        "warps": lambda row: row["in"].get("threads", 32) == 128,
        "regions": lambda row: any("region" in each for each in row["in"]["operands"].values()),
        "other axes": lambda row: "laneid" not in str(row["in"]["operands"]["D"]["layout"]),
    }
    chosen = kinds[kind]
    program = lower_case(next(row["in"] for row in rows if chosen(row)))
    ptx = compile_text(program, tmp_path, "ptx", "sm_90").read_text()
    assert ptx.count(program.instruction.ptx) == len(program.mma)


def test_an_element_without_a_neighbour_is_cast_alone() -> None:
    row = TileLayout(S[(32, 3) : (1 @ laneid, 1)])
    kernel = Kernel("k", 32)
    a, o = kernel.param("a", (32, 3), "float16"), kernel.param("o", (32, 3), "float32")
    half = kernel.alloc("h", (32, 3), "float16", layout=row)
    full = kernel.alloc("f", (32, 3), "float32", layout=row)
    kernel.copy(half, a)
    kernel.cast(full, half)
    kernel.copy(o, full)
    lines = [line.strip() for line in kernel.lower().cuda_source().splitlines()]
    at = lines.index("cast_f16_f32(f_0, f_1, h_0);")
    assert lines[at + 1] == "float t3; cast_f16_f32(f_2, t3, h_1);"
    assert "uint32_t t0; ld_global_u16(t0, a_base + thread * 6);" in lines


def test_a_copy_beyond_the_bounds_reads_nothing() -> None:
    g, s = (
        lw.Buffer(name, (128,), "float32", scope)
        for name, scope in (("g", "global"), ("s", "shared"))
    )
    thread = Index.of("thread", 32) * 4
    move = Transfer("s", thread, "g", thread, 4, (), True, (Guard(thread, 0, 64),))
    source = cuda_source(KernelIR((g,), (s,), (), (move,), 32), "k", "k")
    assert (
        "cp_async_16_or_zero(s_base + thread * 16, g_base + thread * 16, "
        "((thread * 4) < 64 ? 16u : 0u));"
    ) in source


def test_every_box_of_a_bulk_store_is_written() -> None:
    g, s = (
        lw.Buffer("g", (8, 16), "float32", "global"),
        lw.Buffer("s", (8, 16), "float32", "shared"),
    )
    boxes = tuple(
        BulkStore("g", (Index(), Index((), col)), (8, 8), 16, "s", Index((), col * 8))
        for col in (0, 8)
    )
    one = When((Guard(Index.of("thread", 32), 0, 1),), (TmaStore(boxes),))
    source = cuda_source(KernelIR((g,), (s,), (), (one,), 32), "k", "k")
    lines = [line.strip() for line in source.splitlines()]
    lines = [line for line in lines if line.startswith("tma_")]
    assert lines == [
        "tma_store(g_base, static_cast<uint32_t>(0), static_cast<uint32_t>(0), s_base);",
        "tma_store(g_base, static_cast<uint32_t>(8), static_cast<uint32_t>(0), s_base + 256);",
        "tma_store_commit();",
    ]
