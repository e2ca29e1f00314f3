"""wgmma: its rows, what every reader makes of it, what the NumPy warp refuses, and its probes."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from layoutalg import ComposeLayout, LayoutError, S, TileLayout, tx
from layoutalg.fragments import targets
from layoutalg.fragments.targets import TARGETS
from lowering.codegen import numba_cuda
from lowering.codegen.cuda_cpp import cuda_source
from lowering.dispatch.addresses import linear_address
from lowering.ir.index import Guard, Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.matrices import logical
from lowering.ir.ops import (
    Load,
    Loop,
    Op,
    ProxyFence,
    Registers,
    SharedMatrix,
    Store,
    Sync,
    Transfer,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    Zero,
)
from lowering.ir.tiles import Buffer
from lowering.isa import nvjitlink, wgmma
from lowering.isa.smem_descriptor import Descriptor, describe
from lowering.isa.wgmma import WgmmaInst, multiply
from lowering.probing import wgmma_subjects
from lowering.probing.prober import probe
from lowering.probing.raw import ProbeError, simulator
from lowering.probing.record import ProbeRecord, digest, from_json, to_json
from lowering.probing.wgmma import measure_accumulator, measure_product, measure_reading
from lowering.probing.wgmma_subjects import names
from lowering.simulator import products
from lowering.simulator.hazards import SimulationError
from lowering.simulator.run import execute
from tests.fuzz import texts
from tests.support.paths import HARDWARE

Array = npt.NDArray[Any]
TYPES = list(wgmma.operand_types())
F16 = wgmma.get(16, "f16")


# -- rows -----------------------------------------------------------------------------------------


def test_the_types() -> None:
    assert len(TYPES) == 16
    assert {d for a, _, d in TYPES if a in ("s8", "u8")} == {"s32"}
    assert {(a, b) for a, b, _ in TYPES if a != b} == {
        ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("s8", "u8"), ("u8", "s8"),
    }  # fmt: skip


def test_every_legal_n() -> None:
    """Multiples of 8; integers have 24, and beyond 32 multiples of 16 alone."""
    every = tuple(range(8, 257, 8))
    assert WgmmaInst.legal_n("f32") == WgmmaInst.legal_n("f16") == every
    assert WgmmaInst.legal_n("s32") == (8, 16, 24, *range(32, 257, 16))


@pytest.mark.parametrize(("a", "b", "d"), TYPES)
def test_registers_are_counted_from_bits(a: str, b: str, d: str) -> None:
    inst = wgmma.get(96, a, b, d)
    assert inst.k * inst.a.bits == 256
    assert inst.fragment("A").registers == 4
    assert inst.fragment("D").registers == (24 if d == "f16" else 48)
    assert inst.ptx == f"wgmma.mma_async.sync.aligned.m64n96k{inst.k}.{d}.{a}.{b}"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: wgmma.get(8, "f16", "bf16"),
            "wgmma: accumulators of f16 x bf16 are none: A and B must be of one kind; got f32",
        ),
        (
            lambda: wgmma.get(8, "bf16", d="f16"),
            "wgmma: accumulators of bf16 x bf16 are f32; got f16",
        ),
        (
            lambda: wgmma.get(40, "s8"),
            "wgmma: N of a s32 accumulator is one of 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, "
            "160, 176, 192, 208, 224, 240, 256; got 40",
        ),
        (
            lambda: dataclasses.replace(F16, modifier="satfinite"),
            "wgmma: the modifier must be '', or 'satfinite' for s32; got 'satfinite'",
        ),
        (
            lambda: F16.fragment("B"),
            "wgmma: A, C and D have fragments, B lies in shared memory; got B",
        ),
        (
            lambda: Wgmma(F16, Registers("D", (0, 1)), Registers("A", tuple(range(8))), ANY),
            "wgmma.m64n16k16.f32.f16.f16: operand D has 8 elements per thread; got D[0,1]",
        ),
        (
            lambda: Wgmma(
                wgmma.get(8, "s8"), Registers("D", (0, 1, 2, 3)), ANY, dataclasses.replace(ANY)
            ),
            "wgmma.m64n8k32.s32.s8.s8: operand A has elements of 8 bits; got "
            "B[0 as K-major no swizzle, leading 128, stride 256] of 16",
        ),
    ],
)  # fmt: skip
def test_what_is_no_wgmma(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        call()
    assert str(caught.value) == message


ANY = SharedMatrix("B", Index(), Descriptor("K", 0, 128, 256, 16))


# -- the assembler --------------------------------------------------------------------------------


def module(asm: Any) -> str:
    """Return a PTX module with one statement on registers of its own."""
    kinds = {"f": ".f32", "r": ".b32", "l": ".b64"}
    letters = asm.outputs + asm.inputs
    text = asm.text
    for i in reversed(range(len(letters))):
        text = text.replace(f"${i}", f"%v{i}")
    declared = " ".join(f".reg {kinds[letter]} %v{i};" for i, letter in enumerate(letters))
    return (
        f".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry k()\n"
        f"{{ {declared} wgmma.fence.sync.aligned; {text} wgmma.commit_group.sync.aligned; "
        f"wgmma.wait_group.sync.aligned 0; ret; }}\n"
    )


def tile_of(bits: int, major: str = "K") -> Descriptor:
    return Descriptor(major, 128, 16, 1024, bits)


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b", "d"), TYPES)
def test_the_assembler_takes_every_type(a: str, b: str, d: str) -> None:
    inst = wgmma.get(8, a, b, d)
    majors = ("K", "MN") if inst.a.bits == 16 else ("K",)
    rows = [inst]
    if d == "s32":
        rows.append(dataclasses.replace(inst, modifier="satfinite"))
    for row in rows:
        for right in majors:
            tile = tile_of(inst.b.bits, right)
            for left in (None, *(tile_of(inst.a.bits, major) for major in majors)):
                for accumulate in (False, True):
                    text = module(multiply(row, left, tile, accumulate))
                    assert nvjitlink.assemble(text, "sm_90a")[:4] == b"\x7fELF"


@pytest.mark.slow
@pytest.mark.parametrize(("a", "d"), [("f16", "f32"), ("f16", "f16"), ("s8", "s32")])
def test_the_assembler_takes_every_legal_n_and_no_other(a: str, d: str) -> None:
    """The table's N are the assembler's: what it takes is read off a text with N replaced."""
    legal = WgmmaInst.legal_n(d)
    taken = []
    for n in range(8, 257, 8):
        below = wgmma.get(max(each for each in legal if each <= n), a, d=d)
        text = module(multiply(below, None, tile_of(below.b.bits), True))
        if n not in legal:
            with pytest.raises(nvjitlink.AssembleError):
                nvjitlink.assemble(text.replace(f"m64n{below.n}k", f"m64n{n}k"), "sm_90a")
            continue
        nvjitlink.assemble(text, "sm_90a")
        taken.append(n)
    assert tuple(taken) == legal


@pytest.mark.parametrize("arch", [each for each in TARGETS if each != "sm_90a"])
def test_other_targets_are_refused(arch: str) -> None:
    """Ours says so before the compiler; the assembler would say it too."""
    body = gemm(F16, None, ("K", 128), 64)
    with pytest.raises(LayoutError) as caught:
        numba_cuda.compile_ptx(body, "gemm", arch)
    said = re.fullmatch(f"target: {arch} lacks ([^;]+); (.+)", str(caught.value))
    assert said is not None
    if targets.has("sm_90", arch):
        assert said[1].startswith("wgmma.")
        assert said[2] == "sm_90a has it"
    else:
        assert (said[1], said[2]) == ("fence.proxy.async.shared::cta", "sm_90 and newer have it")


# -- a gemm of a warpgroup ------------------------------------------------------------------------


def operand_layout(rows: int, k: int, major: str, swizzle: int, bits: int) -> Any:
    """Return a layout over (rows, k) in blocks of 8 lines."""
    width = max(swizzle, 16) * 8 // bits
    if major == "K":
        tile = TileLayout(S[(rows // 8, 8, k // width, width) : (8 * k, width, 8 * width, 1)])
    else:
        tile = TileLayout(S[(rows // width, width, k // 8, 8) : (8 * width, 1, 8 * rows, width)])
    if not swizzle:
        return tile
    length = {32: 1, 64: 2, 128: 3}[swizzle]
    return ComposeLayout((128 // bits).bit_length() - 1, length, 3, tile)


def gemm(
    inst: WgmmaInst, a: tuple[str, int] | None, b: tuple[str, int], k: int, groups: int = 1
) -> KernelIR:
    """Return D = A·B over k in steps of the instruction; a and b are (major, swizzle).

    Global memory holds the operands as shared memory will. Each warpgroup has 64 rows of its own.
    """
    threads, m = 128 * groups, 64 * groups
    thread = Index.of("thread", threads)
    fragment = inst.fragment("D")
    sides = {"B": (inst.n, b, inst.b)} | ({"A": (m, a, inst.a)} if a else {})
    params, shared, ops = [], [], []
    operands: dict[str, Any] = {}
    step = Index.of("k", k // inst.k)
    for name, (rows, (major, swizzle), dtype) in sides.items():
        layout = operand_layout(rows, k, major, swizzle, dtype.bits)
        params.append(Buffer(f"{name}_image", (rows, k), dtype, "global", layout))
        shared.append(Buffer(name, (rows, k), dtype, "shared", layout))
        width = 128 // dtype.bits
        for at in range(0, rows * k, threads * width):
            where, left = thread * width + at, (rows * k - at) // width
            guards = (Guard(thread, 0, left),) if left < threads else ()
            ops.append(Transfer(name, where, f"{name}_image", where, width, guards))
        high = 64 if name == "A" else inst.n
        first = thread // 128 * 64 if name == "A" else Index()
        start = linear_address(shared[-1], (first, step * inst.k))
        operands[name] = SharedMatrix(name, start, describe(layout, (rows, k), dtype, major, high))
    held = [Buffer("D", (threads, fragment.slots), inst.d, layout=per_thread(threads, fragment))]
    source = ()
    if a is None:
        left = inst.fragment("A")
        params.append(Buffer("A_image", (k // inst.k, threads, left.slots), inst.a, "global"))
        held.append(Buffer("A", (threads, left.slots), inst.a, layout=per_thread(threads, left)))
        operands["A"] = Registers("A", tuple(range(left.slots)))
        width = 128 // inst.a.bits
        source = tuple(
            Load(
                Registers("A", tuple(range(at, at + width))),
                "A_image",
                step * (threads * left.slots) + thread * left.slots + at,
            )
            for at in range(0, left.slots, width)
        )
    d = Registers("D", tuple(range(fragment.slots)))
    product = Wgmma(inst, d, operands["A"], operands["B"])
    if a is None:
        steps = (*source, WgmmaFence(), product, WgmmaCommit(), WgmmaWait(0, (d,)))
        loop: tuple[Op, ...] = (Loop("k", k // inst.k, steps),)
    else:
        loop = (
            WgmmaFence(),
            Loop("k", k // inst.k, (product, WgmmaCommit())),
            WgmmaWait(0, (d,)),
        )
    width = 128 // inst.d.bits
    stores = [
        Store("D_image", thread * fragment.slots + at, Registers("D", d.numbers[at : at + width]))
        for at in range(0, fragment.slots, min(width, fragment.slots))
    ]
    params.append(Buffer("D_image", (threads, fragment.slots), inst.d, "global"))
    before = (*ops, ProxyFence(), Sync("cta"), Zero(d))
    return KernelIR(
        tuple(params), tuple(shared), tuple(held), (*before, *loop, *stores), threads, "sm_90a"
    )


def per_thread(threads: int, fragment: Any) -> TileLayout:
    return TileLayout(S[(threads, fragment.slots) : (1 @ tx, 1)])


def inputs(
    inst: WgmmaInst, body: KernelIR, k: int, seed: int = 0
) -> tuple[dict[str, Array], Array]:
    """Return integer matrices for the body's parameters, and the product."""
    rng = np.random.default_rng(seed)
    m = body.threads // 2
    low = 0 if inst.a.token == "u8" else -3
    a, b = rng.integers(low, 4, (m, k)), rng.integers(-3, 4, (inst.n, k))
    if inst.b.token == "u8":
        b = abs(b)
    given: dict[str, Array] = {"B_image": b.astype(inst.b.numpy)}
    if len(body.buffer("A_image").shape) == 2:
        given["A_image"] = a.astype(inst.a.numpy)
    else:
        rows, cols = np.moveaxis(inst.fragment("A").coords, -1, 0)
        image = [
            np.concatenate(
                [a[64 * g + rows, step * inst.k + cols] for g in range(body.threads // 128)]
            )
            for step in range(k // inst.k)
        ]
        given["A_image"] = np.stack(image).astype(inst.a.numpy)
    return given, a @ b.T


def shown(inst: WgmmaInst, out: Array) -> Array:
    """Return D as a matrix, by the PTX ISA: row 16w + g + 8*(r//2 mod 2), column 2t + r mod 2 …"""
    d = np.empty((len(out) // 2, inst.n))
    for thread, slot in np.ndindex(*out.shape):
        row = thread // 128 * 64 + thread % 128 // 32 * 16 + thread % 32 // 4 + slot // 2 % 2 * 8
        d[row, slot // 4 * 8 + thread % 4 * 2 + slot % 2] = out[thread, slot]
    return d


GEMMS = [
    (F16, None, ("K", 128), 64, 1),
    (F16, None, ("K", 0), 32, 2),
    (F16, ("K", 128), ("K", 128), 64, 1),
    (F16, ("K", 64), ("K", 32), 64, 2),
    (F16, ("MN", 128), ("MN", 32), 64, 1),
    (F16, ("MN", 64), ("K", 0), 32, 2),
    (wgmma.get(64, "f16", d="f16"), ("MN", 32), ("MN", 64), 32, 1),
    (wgmma.get(128, "bf16"), ("MN", 0), ("MN", 128), 32, 1),
    (wgmma.get(256, "f16"), ("K", 128), ("MN", 128), 64, 1),
    (wgmma.get(24, "bf16"), None, ("MN", 0), 32, 1),
    (wgmma.get(24, "tf32"), ("K", 128), ("K", 64), 32, 1),
    (wgmma.get(32, "e4m3", "e5m2"), ("K", 128), ("K", 64), 128, 1),
    (wgmma.get(32, "e5m2", d="f16"), None, ("K", 128), 128, 1),
    (wgmma.get(48, "s8", "u8"), ("K", 32), ("K", 128), 128, 1),
    (wgmma.get(24, "u8"), None, ("K", 0), 64, 1),
]
IDS = [f"{row[0]}-{row[1]}-{row[2]}".replace(" ", "") for row in GEMMS]


@pytest.mark.parametrize(("inst", "a", "b", "k", "groups"), GEMMS, ids=IDS)
def test_the_simulator_multiplies(inst: Any, a: Any, b: Any, k: int, groups: int) -> None:
    body = gemm(inst, a, b, k, groups)
    given, want = inputs(inst, body, k)
    machine = execute(body, given)
    out = logical(body.buffer("D_image"), machine.memory["D_image"].values)
    assert np.array_equal(shown(inst, out.astype(float)), want)


TEXTS = [row for row in GEMMS if (row[0].a.token, row[0].d.token) == ("f16", "f32")]


@pytest.mark.parametrize("language", ["python", "c"])
@pytest.mark.parametrize(("inst", "a", "b", "k", "groups"), TEXTS, ids=range(len(TEXTS)))
def test_the_texts_multiply(inst: Any, a: Any, b: Any, k: int, groups: int, language: str) -> None:
    """Both texts, run on bytes by a machine that knows descriptors from the ISA alone."""
    run_text(inst, gemm(inst, a, b, k, groups), k, language)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["python", "c"])
@pytest.mark.parametrize(("inst", "a", "b", "k", "groups"), TEXTS, ids=range(len(TEXTS)))
def test_a_number_says_whether_to_add(
    inst: Any, a: Any, b: Any, k: int, groups: int, language: str
) -> None:
    """Of two products in the same registers, which nothing sets to zero, the second remains."""
    body = twice(gemm(inst, a, b, k, groups), Index.of("k", k // inst.k))
    given, want = inputs(inst, body, k)
    machine = execute(body, given)
    out = logical(body.buffer("D_image"), machine.memory["D_image"].values)
    assert np.array_equal(shown(inst, out.astype(float)), want)
    run_text(inst, body, k, language)
    assembled = numba_cuda.compile_ptx(body, "gemm", "sm_90a")
    assert nvjitlink.assemble(assembled, "sm_90a")[:4] == b"\x7fELF"
    with pytest.raises(SimulationError, match=r"reads D\[0\] of thread 0, which nothing wrote"):
        execute(twice(gemm(inst, a, b, k, groups), Index((), 1)), given)


def twice(body: KernelIR, adds: Index) -> KernelIR:
    """Run the loop along K again, and let a number say whether its products add."""
    ops: list[Op] = []
    for op in body.ops:
        if isinstance(op, Loop):
            steps = [
                dataclasses.replace(each, accumulate=adds) if isinstance(each, Wgmma) else each
                for each in op.body
            ]
            op = dataclasses.replace(op, body=tuple(steps))
            ops.append(op)
        if not isinstance(op, Zero):
            ops.append(op)
    return dataclasses.replace(body, ops=tuple(ops))


def run_text(inst: WgmmaInst, body: KernelIR, k: int, language: str) -> None:
    """Check what a text of a body writes."""
    given, want = inputs(inst, body, k, 1)
    parameters = []
    for buffer in body.params:
        flat = np.zeros(int(buffer.layout.span()), dtype=buffer.dtype.numpy)
        if buffer.name in given:
            flat[buffer.layout.table(buffer.shape)["m"]] = given[buffer.name]
        parameters.append(flat)
    if language == "python":
        text = numba_cuda.kernel_source(body, "gemm")
    else:
        text = texts.python_of(cuda_source(body, "gemm", "gemm"))
    memory = [each.view(np.uint8) for each in parameters]
    texts.run(texts.compile_text(text), body.threads, body.launched, 1, memory, [], {})
    out = parameters[-1].reshape(body.threads, -1)
    assert np.array_equal(shown(inst, out), want)


@pytest.mark.parametrize("at", [0, 4, 6, 13], ids=[IDS[at] for at in (0, 4, 6, 13)])
def test_the_kernel_assembles(at: int) -> None:
    """Through numba, for sm_90a; one wgmma, its operands in order, and no second copy of D."""
    inst, a, b, k, groups = GEMMS[at]
    text = numba_cuda.compile_ptx(gemm(inst, a, b, k, groups), "gemm", "sm_90a")
    assert text.count(inst.ptx) >= 1
    (registers,) = {
        len(found.split(",")) for found in re.findall(re.escape(inst.ptx) + r" \{([^}]*)\}", text)
    }
    assert registers == inst.fragment("D").registers
    assert nvjitlink.assemble(text, "sm_90a")[:4] == b"\x7fELF"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc: the CUDA text is not compiled")
@pytest.mark.parametrize("at", [0, 2, 4, 6, 12, 13], ids=[IDS[at] for at in (0, 2, 4, 6, 12, 13)])
def test_nvcc_compiles_the_text(at: int, tmp_path: Path) -> None:
    """For sm_90a, with every warning an error: one of them would say that wgmma are serialized."""
    inst, a, b, k, groups = GEMMS[at]
    source = tmp_path / "gemm.cu"
    source.write_text(cuda_source(gemm(inst, a, b, k, groups), "gemm", "gemm"))
    flags = ["-std=c++17", "-arch=sm_90a", "-Werror", "all-warnings", "-cubin", "-o", "/dev/null"]
    done = subprocess.run(["nvcc", *flags, str(source)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_128_accumulators_are_in_place() -> None:
    """The 128 inputs are tied to the 128 outputs: the statement names each register once."""
    asm = multiply(wgmma.get(256, "f16"), None, tile_of(16), True)
    assert asm.constraints.endswith("," + ",".join(map(str, range(128))))
    assert asm.constraints.count("=f") == 128
    assert max(map(int, re.findall(r"\$(\d+)", asm.text))) == 132


def test_the_script() -> None:
    body = gemm(F16, ("K", 64), ("MN", 32), 32)
    assert body.script().splitlines()[-10:] == [
        "fence.proxy.async",
        "sync(cta)",
        "D[0..7] = 0",
        "wgmma.fence",
        "for k in range(2):",
        "    wgmma.m64n16k16(D[0..7], A[k * 16 as K-major 64B, leading 16, stride 512], "
        "B[k * 256 as MN-major 32B, leading 0, stride 256], D[0..7])",
        "    wgmma.commit",
        "wgmma.wait(0, D[0..7])",
        "D_image[thread * 8] = D[0..3]",
        "D_image[thread * 8 + 4] = D[4..7]",
    ]


# -- what is not ordered --------------------------------------------------------------------------


def changed(body: KernelIR, change: Callable[[list[Op]], Any]) -> KernelIR:
    """Return a body with its list of operations changed; loops as they are."""
    ops = list(body.ops)
    change(ops)
    return dataclasses.replace(body, ops=tuple(ops))


def without(*kinds: type) -> Callable[[list[Op]], None]:
    def change(ops: list[Op]) -> None:
        ops[:] = [
            dataclasses.replace(op, body=tuple(o for o in op.body if not isinstance(o, kinds)))
            if isinstance(op, Loop)
            else op
            for op in ops
            if not isinstance(op, kinds)
        ]

    return change


def place(op: Op, kind: type) -> Callable[[list[Op]], None]:
    """Insert an operation after the first of a kind."""

    def change(ops: list[Op]) -> None:
        at = next(i for i, each in enumerate(ops) if isinstance(each, kind))
        ops.insert(at + 1, op)

    return change


def wait_says(**fields: Any) -> Callable[[list[Op]], None]:
    def change(ops: list[Op]) -> None:
        ops[:] = [
            dataclasses.replace(op, **fields) if isinstance(op, WgmmaWait) else op for op in ops
        ]

    return change


SHARED = gemm(F16, ("K", 32), ("K", 32), 16)
D = Registers("D", tuple(range(8)))


def product(body: KernelIR) -> Wgmma:
    loop = next(op for op in body.ops if isinstance(op, Loop))
    return next(op for op in loop.body if isinstance(op, Wgmma))


WGMMA = str(product(SHARED))
REWRITE = Transfer("B", Index.of("thread", 128) * 2, "B_image", Index.of("thread", 128) * 2, 2)

UNORDERED: dict[str, tuple[Callable[[list[Op]], Any], str]] = {
    "no wgmma.fence": (
        without(WgmmaFence),
        f"simulate: {WGMMA} is the first of its warpgroup: a wgmma.fence must precede it",
    ),
    "registers after the fence": (
        place(Zero(Registers("D", (5,))), WgmmaFence),
        f"simulate: {WGMMA} uses D[5] after D[5] = 0 with no wgmma.fence in between",
    ),
    "no proxy fence": (
        without(ProxyFence),
        f"simulate: {WGMMA} reads A at 0, which thread 0 wrote with no fence.proxy.async in "
        "between",
    ),
    "no barrier": (
        without(Sync),
        f"simulate: {WGMMA} races: warpgroup 0 reads A at 0, which thread 0 wrote with no barrier "
        "in between: sync first",
    ),
    "a barrier of warps": (
        lambda ops: ops.__setitem__(
            slice(None), [Sync("warp") if isinstance(op, Sync) else op for op in ops]
        ),
        f"simulate: {WGMMA} races: warpgroup 0 reads A at 0, which thread 0 wrote with no barrier "
        "in between: sync first",
    ),
    "no wait": (
        without(WgmmaWait),
        f"simulate: D_image[thread * 8] = D[0..3] touches D[0], which {WGMMA} still accumulates: "
        "commit, and wait for it (naming what it completes)",
    ),
    "a wait that names nothing": (
        wait_says(complete=()),
        f"simulate: D_image[thread * 8] = D[0..3] touches D[0], which {WGMMA} still accumulates: "
        "commit, and wait for it (naming what it completes)",
    ),
    "too many pending": (
        wait_says(pending=1),
        f"simulate: wgmma.wait(1, D[0..7]) does not complete D[0], which {WGMMA} still "
        "accumulates: commit it, and let fewer groups be pending",
    ),
    "no commit": (
        without(WgmmaCommit),
        f"simulate: wgmma.wait(0, D[0..7]) does not complete D[0], which {WGMMA} still "
        "accumulates: commit it, and let fewer groups be pending",
    ),
    "overwritten under way": (
        place(REWRITE, Loop),
        f"simulate: {REWRITE} overwrites B at 0 in thread 0, which a wgmma of warpgroup 0 "
        "still reads: commit, and wait for it",
    ),
    "overwritten with no barrier": (
        place(REWRITE, WgmmaWait),
        f"simulate: {REWRITE} overwrites B at 0 in thread 0, which a wgmma of warpgroup 0 "
        "read with no barrier in between: sync first",
    ),
    "under way at the end": (
        lambda ops: ops.__setitem__(
            slice(None), [op for op in ops if not isinstance(op, (WgmmaWait, Store))]
        ),
        f"simulate: {WGMMA} is under way at the end: commit, and wait for it",
    ),
    "written by the loop itself": (
        place(Loop("again", 2, (WgmmaFence(), REWRITE)), WgmmaFence),
        f"simulate: {WGMMA} races: warpgroup 0 reads B at 0, which thread 0 wrote with no barrier "
        "in between: sync first",
    ),
}


@pytest.mark.parametrize("name", UNORDERED)
def test_what_hardware_answers_with_garbage_is_refused(name: str) -> None:
    change, message = UNORDERED[name]
    given, _ = inputs(F16, SHARED, 16)
    with pytest.raises(SimulationError) as caught:
        execute(changed(SHARED, change), given)
    assert str(caught.value) == message


def test_overwriting_after_a_barrier_is_right() -> None:
    given, _ = inputs(F16, SHARED, 16)

    def change(ops: list[Op]) -> None:
        place(REWRITE, WgmmaWait)(ops)
        place(Sync("cta"), WgmmaWait)(ops)

    execute(changed(SHARED, change), given)


def test_a_wait_frees_the_cells_of_its_groups_alone() -> None:
    """With one group pending, the last step's B is still being read, the first step's is free."""
    given, _ = inputs(F16, LONG, 32)
    step = Index.of("thread", 128) * 2
    first, last = (Transfer("B", step + at, "B_image", step + at, 2) for at in (0, 256))

    def then(rewrite: Transfer) -> Callable[[list[Op]], None]:
        def change(ops: list[Op]) -> None:
            for op in (rewrite, Sync("cta"), WgmmaWait(1)):
                place(op, Loop)(ops)

        return change

    execute(changed(LONG, then(first)), given)
    with pytest.raises(SimulationError, match=r"overwrites B at 256 .* still reads: commit"):
        execute(changed(LONG, then(last)), given)


LONG = gemm(F16, ("K", 32), ("MN", 32), 32)


def test_cells_that_two_groups_read_are_free_after_both() -> None:
    given, _ = inputs(F16, SHARED, 16)

    def change(ops: list[Op]) -> None:
        for op in (REWRITE, Sync("cta"), WgmmaWait(1), WgmmaCommit(), product(SHARED)):
            place(op, Loop)(ops)

    with pytest.raises(SimulationError, match=r"overwrites B at 0 .* still reads: commit"):
        execute(changed(SHARED, change), given)


def test_the_fence_may_come_after_the_barrier() -> None:
    """Writer, barrier, then each reader's own fence: ordered as well (PTX ISA, causality)."""
    given, want = inputs(F16, SHARED, 16)

    def change(ops: list[Op]) -> None:
        without(ProxyFence)(ops)
        place(ProxyFence(), Sync)(ops)

    machine = execute(changed(SHARED, change), given)
    out = logical(SHARED.buffer("D_image"), machine.memory["D_image"].values)
    assert np.array_equal(shown(F16, out.astype(float)), want)


REGISTERS = gemm(F16, None, ("K", 32), 32)


def test_registers_of_a_under_way_are_refused() -> None:
    """Loading the next A while the last is being read."""
    given, _ = inputs(F16, REGISTERS, 32)
    body = changed(REGISTERS, without(WgmmaWait))
    load = str(next(op for op in REGISTERS.ops if isinstance(op, Loop)).body[0])
    with pytest.raises(SimulationError) as caught:
        execute(body, given)
    assert str(caught.value).startswith(f"simulate: {load} touches A[0], which wgmma.m64n16k16(")
    assert "still reads: commit" in str(caught.value)


def test_an_accumulator_is_no_a_that_is_under_way() -> None:
    """D of the second is A of the first, which the first may not have read yet."""
    operand, first = product(REGISTERS).b, product(REGISTERS)
    second = Wgmma(wgmma.get(16, "f16", d="f16"), first.a, first.a, operand, False)  # type: ignore[arg-type]
    given, _ = inputs(F16, REGISTERS, 32)

    def change(ops: list[Op]) -> None:
        at = next(i for i, op in enumerate(ops) if isinstance(op, Loop))
        load, fence = ops[at].body[:2]  # type: ignore[union-attr]
        ops[at:] = [Loop("k", 1, (load, fence, first, second))]

    with pytest.raises(SimulationError, match=r"touches A\[0\], which wgmma.* still reads: commit"):
        execute(changed(REGISTERS, change), given)


def test_another_shape_on_the_same_accumulator_must_wait() -> None:
    """Only one shape passes its accumulators on without a wait."""
    b = SharedMatrix("B", Index(), product(SHARED).b.descriptor)
    a = SharedMatrix("A", Index(), SHARED_A)
    narrow = Wgmma(wgmma.get(8, "f16"), Registers("D", (0, 1, 2, 3)), a, b)
    given, _ = inputs(F16, SHARED, 16)
    with pytest.raises(SimulationError, match=r"touches D\[0\], which wgmma.m64n16k16.* still acc"):
        execute(changed(SHARED, place(narrow, Loop)), given)
    both = changed(
        SHARED,
        lambda ops: (
            place(WgmmaCommit(), Loop)(ops),
            place(dataclasses.replace(product(SHARED), accumulate=False), Loop)(ops),
        ),
    )
    execute(both, given)


SHARED_A = product(SHARED).a.descriptor  # type: ignore[union-attr]


def test_one_start_address_per_warpgroup() -> None:
    start = Index.of("thread", 128) // 64 * 128
    uneven = dataclasses.replace(product(SHARED), b=SharedMatrix("B", start, SHARED_A))
    given, _ = inputs(F16, SHARED, 16)
    with pytest.raises(SimulationError, match="needs one start address per warpgroup"):
        execute(changed(SHARED, place(uneven, WgmmaFence)), given)


def test_whole_warpgroups_only() -> None:
    given, _ = inputs(F16, SHARED, 16)
    with pytest.raises(
        SimulationError, match="takes whole warpgroups of 128 threads; there are 96"
    ):
        execute(dataclasses.replace(SHARED, threads=96), given)


def test_a_descriptor_that_leaves_the_buffer() -> None:
    far = dataclasses.replace(SHARED_A, stride=4096)
    wide = dataclasses.replace(product(SHARED), b=SharedMatrix("B", Index(), far))
    given, _ = inputs(F16, SHARED, 16)
    with pytest.raises(SimulationError, match="reaches B at "):
        execute(changed(SHARED, place(wide, WgmmaFence)), given)


def test_cells_that_nothing_wrote() -> None:
    given, _ = inputs(F16, SHARED, 16)
    kept = [op for op in SHARED.ops if not (isinstance(op, Transfer) and op.into == "B")]
    with pytest.raises(SimulationError, match="reads B at 0, which nothing wrote"):
        execute(dataclasses.replace(SHARED, ops=tuple(kept)), given)


# -- probing --------------------------------------------------------------------------------------


def test_what_can_be_probed() -> None:
    """Register A of 7 types; D of 32 N in f32 and f16, of 18 in s32; descriptors."""
    every = names()
    assert len(set(every)) == len(every)
    assert sum(name.startswith("wgmma.m64nNk") for name in every) == 7
    assert sum(name.endswith((" f32", " f16", " s32")) for name in every) == 32 + 32 + 19 - 1
    found = [name.split(".")[1:] for name in every if name.startswith("descriptor")]
    assert {(a, b, c) for a, b, c, _ in found} == {
        *(("A", "f16", "K"), ("A", "f16", "MN"), ("A", "s8", "K"), ("A", "tf32", "K")),
        *(("B", "f16", "K"), ("B", "f16", "MN"), ("B", "s8", "K"), ("B", "tf32", "K")),
    }
    assert {mode for *_, mode in found} == {
        "0",
        "32",
        "64",
        "128",
        "128+1",
        "128+3",
        "64+1",
        "32+1",
    }


SAMPLE = [
    "wgmma.m64nNk16.f16", "wgmma.m64nNk8.tf32", "wgmma.m64nNk32.s8",
    "wgmma.m64n8 f32", "wgmma.m64n40 f16", "wgmma.m64n24 s32", "wgmma.m64n256 f32",
    *(name for name in names() if name.startswith("descriptor")),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_the_simulator_agrees_and_refutes_the_controls(name: str) -> None:
    certificate = probe(name, "simulator")
    assert certificate.verdict == "agrees"
    assert len(certificate.refuted) >= 2
    assert all(certificate.refuted.values())
    assert not certificate.rows
    assert from_json(to_json([certificate])) == (certificate,)


@pytest.mark.slow
def test_the_relation_is_the_isa_s() -> None:
    """A word r of lane 4g+t in warp w: row 16w + g + 8*(r mod 2), k = 2t + 8*(r // 2) + {0, 1}."""
    found = measure_product(wgmma.get(8, "f16"), simulator).tables["products"]
    assert found.shape == (1024, 128)
    want = np.full(found.shape, -1)
    for place, n in np.ndindex(1024, 8):
        thread, slot = divmod(place, 8)
        warp, g, t = thread // 32, thread % 32 // 4, thread % 4
        row = g + 8 * (slot // 2 % 2)
        k = 2 * t + 8 * (slot // 4) + slot % 2
        lane = row % 8 * 4 + n // 2
        want[place, k // 8 * 64 + n * 8 + k % 8] = (32 * warp + lane) * 4 + row // 8 * 2 + n % 2
    assert np.array_equal(found, want)


def exchanged(names: str, axis: int, one: int, two: int) -> Any:
    """Return a machine that confuses two indices of images."""

    def confused(body: KernelIR, title: str, given: Mapping[str, Array]) -> Mapping[str, Array]:
        def confuse(images: Mapping[str, Array]) -> dict[str, Array]:
            return {
                name: swapped(image, axis, one, two) if name in names.split() else image
                for name, image in images.items()
            }

        return confuse(simulator(body, title, confuse(given)))

    return confused


def swapped(values: Array, axis: int, one: int, two: int) -> Array:
    order = np.arange(values.shape[axis])
    order[[one, two]] = two, one
    return np.take(values, order, axis)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "image", "axis", "verdict"),
    [
        (
            "wgmma.m64n16 f32",
            "C_image D_image",
            -1,
            "REFUTED: D lane 0 slot 0: the machine has [0, 1], the",
        ),
        (
            "wgmma.m64n16 f32",
            "C_image D_image",
            -2,
            "REFUTED: D lane 0 slot 0: the machine has [0, 2], the",
        ),
        ("wgmma.m64n16 f32", "B_image", -1, "REFUTED"),
        ("wgmma.m64nNk8.tf32", "A_image", -1, "REFUTED: A lane 0 slot 0 with cell 0 of B: the "),
        ("wgmma.m64nNk8.tf32", "A_image", -2, "REFUTED"),
        (
            "descriptor.B.f16.K.64",
            "labels",
            -1,
            "REFUTED: element (0, 0): the machine reads cell 1",
        ),
        ("descriptor.A.f16.MN.32", "labels", -1, "REFUTED: element (0, 0): the machine reads cell"),
    ],
)
def test_a_machine_that_confuses_two_places_is_seen(
    name: str, image: str, axis: int, verdict: str
) -> None:
    """The measurement shows it as another table, or as what no instruction can be."""
    try:
        certificate = probe(name, "simulator", run=exchanged(image, axis, 0, 1))
        found = certificate.verdict
        assert len(certificate.rows) == 1  # the table, to look into
    except ProbeError as error:
        found = f"REFUTED by its own products: {error}"
    assert found.startswith(verdict)


@pytest.mark.parametrize("name", ["descriptor.B.f16.MN.0", "descriptor.B.f16.MN.64"])
def test_a_machine_that_exchanges_the_offsets_is_seen(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the hardware might do with MN-major operands, if we read the manual wrongly."""

    class Exchanged(Descriptor):
        def places(self, shape: Any, start: int) -> Array:
            plain = Descriptor(
                self.major, self.swizzle, self.stride, self.leading, self.element_bits
            )
            return plain.places(shape, start)

    monkeypatch.setattr(products, "Descriptor", Exchanged)
    placed = wgmma_subjects._placed()[name]
    seen = measure_reading(placed, simulator).tables["cells"]
    assert (seen != placed.claim).any()


def test_what_no_instruction_can_show_is_an_error() -> None:
    def halves(body: KernelIR, name: str, given: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"D_image": simulator(body, name, given)["D_image"] / 2}

    def doubles(body: KernelIR, name: str, given: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"D_image": simulator(body, name, given)["D_image"] * 2}

    def forgets(body: KernelIR, name: str, given: Mapping[str, Array]) -> Mapping[str, Array]:
        return simulator(body, name, {**given, "C_image": 0 * given["C_image"]})

    inst = wgmma.get(16, "f16")
    with pytest.raises(ProbeError, match="sums of products of integers must be integers"):
        measure_accumulator(inst, halves)
    with pytest.raises(ProbeError, match=r"one place against ones must give 0 or 1; .* shows 2"):
        measure_accumulator(inst, doubles)
    with pytest.raises(ProbeError, match="what was found predicts 0 of 2 products"):
        measure_accumulator(inst, forgets)
    with pytest.raises(ProbeError, match="what was found predicts 0 of 16 products"):
        measure_product(wgmma.get(8, "tf32"), forgets)


def test_unknown_names() -> None:
    with pytest.raises(
        LayoutError, match=r"^probe: nothing is named 'wgmma.m64n40 s32'; names are"
    ):
        probe("wgmma.m64n40 s32", "simulator")


def test_every_control_differs_from_its_claim() -> None:
    for placed in wgmma_subjects._placed().values():
        wrong = wgmma_subjects.wrong_descriptors(placed)
        assert len(wrong) >= 2, placed
        assert ("no base offset" in wrong) == bool(placed.late)


@pytest.mark.parametrize("name", ["wgmma.m64n24 s32", "descriptor.A.f16.MN.128"])
def test_the_probes_assemble(name: str) -> None:
    """What a device would run: for sm_90a, with no GPU here."""
    made = []

    def stop(body: KernelIR, title: str, given: Mapping[str, Array]) -> Mapping[str, Array]:
        made.append(nvjitlink.assemble(numba_cuda.compile_ptx(body, title, "sm_90a"), "sm_90a"))
        return simulator(body, title, given)

    assert probe(name, "simulator", run=stop).verdict == "agrees"
    assert made[0][:4] == b"\x7fELF"


def recorded() -> tuple[ProbeRecord, ...]:
    """Return the certificates that a GPU gave; none where it was not asked yet."""
    files = sorted((HARDWARE).glob("*_wgmma.json"))
    files = [path for path in files if "matmul" not in path.name]
    return tuple(each for path in files for each in from_json(path.read_text()))


@pytest.mark.parametrize("certificate", recorded(), ids=lambda each: each.instruction)
def test_what_hardware_showed_is_what_we_say(certificate: ProbeRecord) -> None:
    assert certificate.is_hardware
    assert certificate.verdict == "agrees"
    ours = wgmma_subjects.wgmma_subject(certificate.instruction)
    assert certificate.claims == ours.claims
    assert certificate.tables == {name: digest(name, t) for name, t in ours.claimed.items()}
    assert set(certificate.refuted) == set(ours.wrong)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name", ["wgmma.m64nNk16.f16", "wgmma.m64n24 f32", "descriptor.B.f16.MN.64"]
)
def test_the_device_agrees(name: str) -> None:
    assert probe(name, "device").verdict == "agrees"


def test_products_in_one_statement_are_counted_in_its_name() -> None:
    tile = Descriptor("K", 0, 128, 256, 16)
    one, two = (wgmma.multiply_in_turn(wgmma.get(8, "f16"), None, tile, False, n) for n in (1, 2))
    assert two.name == f"{one.name}_2"


def test_integers_may_saturate() -> None:
    inst = dataclasses.replace(wgmma.get(8, "s8", "s8", "s32"), modifier="satfinite")
    assert str(inst).endswith(".satfinite")
