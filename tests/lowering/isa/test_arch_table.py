"""The table of targets is what nvJitLink assembles, and what lowering refuses."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from layoutalg import LayoutError, S, TileLayout, fragments, laneid
from layoutalg.fragments.targets import TARGETS, has, targets_of
from lowering.isa import limits, ptx, tcgen05, wgmma
from lowering.isa.casts import CASTS
from lowering.isa.functions import FUNCTIONS
from lowering.isa.nvjitlink import AssembleError, assemble
from lowering.isa.ptx import ARCHS, Asm
from lowering.programs.kernel import Kernel
from tests.lowering.codegen.test_readers import SAMPLES

pytest.importorskip(
    "lowering.codegen.numba_cuda", reason="numba-cuda and nvJitLink are not installed"
)

KINDS = {"r": "b32", "f": "f32", "d": "f64", "l": "b64"}
ASMS: tuple[Asm, ...] = (
    ptx.load("global", "f16", 128), ptx.load("shared", "f64", 64), ptx.store("global", "s8", 8),
    ptx.store("shared", "f32", 128), *(ptx.ldmatrix(n, n > 1) for n in (1, 2, 4)),
    *(ptx.stmatrix(n, n > 1) for n in (1, 2, 4)), ptx.movmatrix(),
    ptx.ldmatrix(4, False, "f32"), ptx.stmatrix(4, False, "f32"),
    *(ptx.red(*each) for each in ptx.REDUCTIONS),
    *(ptx.cp_async(size) for size in (4, 8, 16)), ptx.cp_async_or_zero(), ptx.cp_async_commit(),
    ptx.cp_async_wait(1), ptx.shuffle("f16", 1), ptx.shuffle("f32", 2),
    ptx.shuffle("f64", 16), ptx.mbarrier_init(), ptx.mbarrier_init_fence(),
    ptx.mbarrier_arrive(),
    ptx.mbarrier_arrive_if(), ptx.mapa(), ptx.mbarrier_arrive_cluster(),
    ptx.fence_mbarrier_init(), ptx.griddepcontrol(), ptx.sync_cluster(False),
    ptx.sync_cluster(True), ptx.mbarrier_arrive_expect_tx(), ptx.mbarrier_wait(),
    ptx.mbarrier_test_wait(),
    ptx.setmaxnreg(240, True), ptx.setmaxnreg(24, False), ptx.sync_warpgroup(128),
    ptx.sync_some(256), ptx.prefetch_tensormap(), ptx.tma_load(), ptx.tma_load_multicast(2),
    ptx.tma_store(), ptx.tma_store_commit(), ptx.tma_store_wait(1), ptx.shared_address(),
    wgmma.same_in_warp(), wgmma.fence(), wgmma.commit(), wgmma.wait(0, ""), wgmma.proxy_fence(),
    tcgen05.elected(), tcgen05.fence("before"), tcgen05.free(32, 1), tcgen05.allocate(32, 1),
    tcgen05.commit(1), ptx.prmt(0x5410), ptx.constant(1, "s32"), ptx.constant(1, "f32"),
    ptx.constant(1, "f64"), *(each.asm for each in (*FUNCTIONS, *CASTS.values())),
)  # fmt: skip


def module(asm: Asm, target: str) -> str:
    """Return a PTX module of one kernel that has the statement."""
    registers = "".join(
        f".reg .{KINDS[kind]} x{at}; " for at, kind in enumerate(asm.outputs + asm.inputs)
    )
    text = re.sub(r"\$(\d+)", r"x\1", asm.text)
    version = "9.4" if "107" in target else "9.0"
    head = f".version {version} .target {target} .address_size 64"
    return f"{head}\n.visible .entry k() {{ {registers}{text} ret; }}\n"


@pytest.mark.slow
@pytest.mark.parametrize("asm", ASMS, ids=[asm.name for asm in ASMS])
def test_the_assembler_has_each_where_the_table_says(asm: Asm) -> None:
    having = []
    for target in TARGETS:
        try:
            assemble(module(asm, target), target)
        except AssembleError:
            continue
        having.append(target)
    assert having == list(targets_of(asm.min_arch))


def test_every_row_of_the_table_is_used() -> None:
    mnemonics = [
        word for asm in ASMS for each in asm.text.split(";") for word in each.split() if "." in word
    ]
    assert [name for name in ARCHS if not any(word.startswith(name) for word in mnemonics)] == []


def test_the_mnemonic_is_that_of_the_fewest_targets() -> None:
    assert ptx.mbarrier_arrive_if().mnemonic == "mbarrier.arrive.shared::cta.b64"
    assert ptx.tma_load_multicast(2).mnemonic.endswith(".multicast::cluster")
    assert ptx.setmaxnreg(240, True).mnemonic == "setmaxnreg.inc.sync.aligned.u32"


ROW = TileLayout(S[(32, 4) : (1 @ laneid, 1)])


def cast(arch: str) -> None:
    k = Kernel("k", arch=arch)
    a = k.param("a", (32, 4), "float32")
    r, h = k.alloc("r", (32, 4), "float32", layout=ROW), k.alloc("h", (32, 4), "f16", layout=ROW)
    k.copy(r, a)
    k.cast(h, r)
    k.lower()


def arrival(arch: str) -> None:
    k = Kernel("k", arch=arch)
    k.arrive(k.barrier("b", 1, 1), 0)
    k.lower()


def zero_fill(arch: str) -> None:
    k = Kernel("k", arch=arch)
    k.scalar("M")
    a = k.param("a", (32, 8), "f16", bounds=("M", None))
    k.copy(k.alloc("s", (32, 8), "f16", "shared"), a, asynchronous=True)
    k.commit()
    k.wait()
    k.lower()


def early(arch: str) -> None:
    Kernel("k", arch=arch, pdl=True).lower()


def transposed(arch: str) -> None:
    k = Kernel("k", arch=arch)
    layout = fragments.get("mma.m16n8k16.f16", "A").layout
    r = k.alloc("r", (16, 16), "f16", layout=layout)
    k.zero(r)
    s = k.alloc("s", (16, 16), "f16", "shared")
    k.copy(s, r, dispatch="ldstmatrix")
    k.lower()


LOWERED: tuple[tuple[Callable[[str], None], str], ...] = (
    (cast, "sm_80"),
    (arrival, "sm_90"),  # the fence that makes barriers ready is of the async proxy
    (zero_fill, "sm_80"),
    (early, "sm_90"),
    (transposed, "sm_90"),
)


@pytest.mark.parametrize(("build", "first"), LOWERED, ids=[each.__name__ for each, _ in LOWERED])
def test_lowering_refuses_what_the_target_lacks(build: Callable[[str], None], first: str) -> None:
    """What is lowered for a target is what the target has; no assembler is asked."""
    for target in ("sm_75", "sm_80", "sm_86", "sm_90", "sm_90a", "sm_100a", "sm_120"):
        if has(first, target):
            build(target)
            continue
        with pytest.raises((LayoutError, RuntimeError), match=target):
            build(target)


@pytest.mark.slow
@pytest.mark.parametrize("make", SAMPLES, ids=[each.__name__ for each in SAMPLES])
def test_what_is_lowered_is_assembled(make: Callable[[], object]) -> None:
    program = make().program  # type: ignore[attr-defined]
    assert program.cubin()[:4] == b"\x7fELF"


def test_shared_memory_has_its_limit_by_target() -> None:
    """CUDA C++ programming guide, Technical Specifications per Compute Capability."""
    guide = {
        "sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_87": 163, "sm_89": 99, "sm_90": 227,
        "sm_90a": 227, "sm_100": 227, "sm_103a": 227, "sm_120": 99, "sm_121a": 99,
    }  # fmt: skip
    for arch, most in guide.items():
        assert limits.shared_limit(arch) == most * 1024
        k = Kernel("k", arch=arch)
        k.alloc("s", (most * 256,), "float32", "shared")
        k.lower()
        k.alloc("more", (1,), "float32", "shared")
        with pytest.raises(LayoutError, match=f"a CTA of {arch} has {most * 1024}$"):
            k.lower()
