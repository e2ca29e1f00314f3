"""Whole kernels: the builder, its loops and stages, and what the machine refuses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lowering as lw
from layoutalg import ComposeLayout, LayoutError, S, TileLayout, fragments, laneid, parse
from lowering.codegen import cuda_cpp
from lowering.ir.index import Guard, Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import (
    Commit,
    Load,
    Loop,
    Mma,
    Move,
    Op,
    Registers,
    Store,
    Sync,
    Transfer,
    Wait,
    Zero,
    walk,
)
from lowering.programs.kernel import Kernel
from lowering.programs.program import KernelProgram
from lowering.simulator.hazards import SimulationError
from lowering.simulator.run import execute
from tests.fuzz import texts
from tests.support.kernel_texts import outputs

NAME = "mma.m16n8k16.f16"
A, B, D = (fragments.get(NAME, role) for role in "ABD")


def staged(unroll: bool = False, steps: int = 3) -> KernelProgram:
    """Build D = A·B over K in steps, staged through shared memory by cp.async, two tiles ahead."""
    kernel = Kernel("staged")
    a = kernel.param("a", (16, 16 * steps), "float16")
    b = kernel.param("b", (16 * steps, 8), "float16")
    d = kernel.param("d", (16, 8), "float32")
    sa = kernel.alloc("sa", (16, 16), "float16", "shared")
    sb = kernel.alloc("sb", (16, 8), "float16", "shared")
    ra = kernel.alloc("ra", (16, 16), "float16", layout=A.layout)
    rb = kernel.alloc("rb", (16, 8), "float16", layout=B.layout)
    rd = kernel.alloc("rd", (16, 8), "float32", layout=D.layout)
    kernel.zero(rd)
    with kernel.loop("step", steps, unroll) as step:
        kernel.copy(sa, a[:, step * 16 : step * 16 + 16], asynchronous=True)
        kernel.copy(sb, b[step * 16 : step * 16 + 16], asynchronous=True)
        kernel.commit()
        kernel.wait()
        kernel.sync("warp")
        kernel.copy(ra, sa)
        kernel.copy(rb, sb)
        kernel.gemm(rd, ra, rb, beta=1)
        kernel.sync("warp")
    kernel.copy(d, rd)
    return kernel.lower()


@pytest.mark.parametrize("unroll", [False, True])
def test_a_staged_gemm_is_exact_on_every_machine(unroll: bool) -> None:
    program = staged(unroll)
    generator = np.random.default_rng(3)
    a, b = (generator.integers(-8, 9, shape).astype(np.float16) for shape in ((16, 48), (48, 8)))
    want = a.astype(np.float64) @ b.astype(np.float64)
    for machine, written in outputs(program, {"a": a, "b": b}):
        assert list(written) == ["d"]
        assert np.array_equal(written["d"], want), machine
    assert len(program.body.mma) == (3 if unroll else 1)
    loops = [op for op in walk(program.body.ops) if isinstance(op, Loop)]
    assert [loop.extent for loop in loops] == ([] if unroll else [3])


def test_a_staged_gemm_compiles_for_targets() -> None:
    pytest.importorskip("lowering.codegen.numba_cuda", reason="numba-cuda is not installed")
    program = staged()
    for arch in ("sm_80", "sm_90a", "sm_120"):
        assert program.cubin(arch)[:4] == b"\x7fELF"
    with pytest.raises(
        LayoutError, match=r"^target: sm_75 lacks cp\.async\S+; sm_80 and newer have"
    ):
        program.cubin("sm_75")


def test_the_stages_of_lowering_can_be_read() -> None:
    program = staged(True, 2)
    assert list(program.stages) == ["tile", "unrolled", "dispatched", "operations"]
    tile = program.script("tile").splitlines()
    assert tile[0] == "zero(dst=rd[0:16,0:8], scope=warp)"
    assert tile[1] == "for step in range(2):  # unrolled"
    assert tile[2].strip() == (
        "copy(dst=sa[0:16,0:16], src=a[0:16,step * 16:step * 16 + 16], asynchronous=True, "
        "scope=warp)"
    )
    unrolled = program.script("unrolled").splitlines()
    assert len(unrolled) == 2 + 2 * 9
    assert unrolled[10] == (
        "copy(dst=sa[0:16,0:16], src=a[0:16,16:32], asynchronous=True, scope=warp)"
    )
    dispatched = program.script("dispatched").splitlines()
    assert [text.split("  # ")[-1] for text in dispatched if "  # " in text][:6] == [
        "zero: 1 operations",
        "cooperative: 1 operations",
        "cooperative: 1 operations",
        "ldstmatrix: 1 operations",
        "ldstmatrix: 1 operations",
        "mma.m16n8k*: 2 operations",
    ]
    assert program.script() == program.script("operations") == program.body.script()
    assert "ra[0..7] = ldmatrix.x4(sa[thread % 16 * 16 + thread // 16 * 8])" in program.script()
    assert "rb[0..3] = ldmatrix.x2.trans(sb[thread % 16 * 8])" in program.script()
    assert program.title == "staged: 32 threads, 1280 bytes shared"
    with pytest.raises(
        LayoutError, match=r"^script: the stages are tile, unrolled, .*; got 'sass'$"
    ):
        program.script("sass")


def test_nested_loops_and_regions_that_move() -> None:
    """Rows by a loop that stays, columns by one that is unrolled; registers stay static."""
    kernel = Kernel("nested")
    a, b = kernel.param("a", (64, 16), "float32"), kernel.param("b", (64, 16), "float32")
    layout = TileLayout(S[(32, 8) : (1 @ laneid, 1)])
    held = kernel.alloc("r", (32, 8), "float32", layout=layout)
    with kernel.loop("row", 2) as row, kernel.loop("col", 2, True) as col:
        box = (slice(row * 32, row * 32 + 32), slice(col * 8, col * 8 + 8))
        kernel.copy(held, a[box])
        kernel.copy(b[box], held)
    program = kernel.lower()
    given = np.random.default_rng(4).standard_normal((64, 16)).astype(np.float32)
    for machine, written in outputs(program, {"a": given}):
        assert np.array_equal(written["b"], given), machine
    (loop,) = (op for op in program.body.ops if isinstance(op, Loop))
    assert (loop.var, loop.extent, len(loop.body)) == ("row", 2, 8)


def test_an_unrolled_loop_around_one_that_stays() -> None:
    kernel = Kernel("nested")
    a, b = kernel.param("a", (64, 16), "float32"), kernel.param("b", (64, 16), "float32")
    layout = TileLayout(S[(32, 8) : (1 @ laneid, 1)])
    held = kernel.alloc("r", (32, 8), "float32", layout=layout)
    with kernel.loop("col", 2, True) as col, kernel.loop("row", 2) as row:
        box = (slice(row * 32, row * 32 + 32), slice(col * 8, col * 8 + 8))
        kernel.copy(held, a[box])
        kernel.copy(b[box], held)
    program = kernel.lower()
    given = np.random.default_rng(4).standard_normal((64, 16)).astype(np.float32)
    for machine, written in outputs(program, {"a": given}):
        assert np.array_equal(written["b"], given), machine
    loops = [op for op in program.body.ops if isinstance(op, Loop)]
    assert [(loop.var, loop.extent, len(loop.body)) for loop in loops] == [("row", 2, 4)] * 2


def test_banks_are_counted() -> None:
    """16-byte rows of a tile 128 bytes wide meet in the same banks; the swizzle spreads them."""

    def wavefronts(layout: Any) -> dict[str, tuple[int, int]]:
        kernel = Kernel("banks")
        a, b = kernel.param("a", (16, 64), "float16"), kernel.param("b", (16, 64), "float16")
        s = kernel.alloc("s", (16, 64), "float16", "shared", layout)
        r = kernel.alloc("r", (16, 64), "float16", layout=A.tiled(16, 64))
        kernel.copy(s, a)
        kernel.sync()
        kernel.copy(r, s)
        kernel.copy(b, r)
        counts = kernel.lower().banks(a=np.zeros((16, 64)))
        return {each.op[:14]: (each.wavefronts, each.fewest) for each in counts}

    straight = wavefronts(parse("S[(16,64):(64,1)]"))
    swizzled = wavefronts(ComposeLayout(3, 3, 3, parse("S[1024:1]")))
    loads = [key for key in straight if "ldmatrix" in key or key.startswith("r[")]
    assert loads
    for key in loads:
        assert straight[key] == (32, 4)
        assert swizzled[key] == (4, 4)


ERRORS: dict[str, tuple[Any, str]] = {
    "a name that is no identifier": (
        lambda k: Kernel("a b"),
        "Kernel: the name must be an identifier; got 'a b'",
    ),
    "threads that are no whole warps": (
        lambda k: Kernel("k", 48),
        "Kernel: threads must be whole warps, 32..1024; got 48",
    ),
    "a name that is taken": (
        lambda k: k.alloc("a", (16,), "f16", "shared"),
        "Kernel k: the name 'a' is taken",
    ),
    "a name that the texts need": (
        lambda k: k.param("thread", (16,), "f16"),
        "Kernel k: the name 'thread' is reserved: it has a meaning of its own in kernel texts or "
        "launches",
    ),
    "registers in global memory": (
        lambda k: k.alloc("g", (16,), "f16", "global"),
        "alloc: g must be local, shared or tmem; got 'global'; param() declares global ones",
    ),
    "a buffer of nobody": (
        lambda k: k.copy(k.buffers["a"], lw.Buffer("x", (16, 16), "f16", "global")),
        "Kernel k: x[16,16] float16 is not a buffer of this kernel; declare it with param() or "
        "alloc()",
    ),
    "zero outside registers": (
        lambda k: k.zero(k.buffers["a"]),
        "zero: sets registers; a[16,16] float16 is in global",
    ),
    "a barrier of a grid": (
        lambda k: k.sync("grid"),
        "sync: the scope must be cluster, cta, warpgroup or warp; got 'grid'",
    ),
    "a loop over a buffer's name": (
        lambda k: k.loop("a", 2).__enter__(),
        "loop: the variable needs a free name of letters; got 'a', which is taken",
    ),
    "a loop over a register's variable": (
        lambda k: k.loop("r_0", 2).__enter__(),
        "loop: the variable needs a free name of letters; got 'r_0'",
    ),
    "a loop over a keyword of C++": (
        lambda k: k.loop("int", 2).__enter__(),
        "loop: the variable needs a free name of letters; got 'int', which has a meaning of its "
        "own in kernel texts or launches",
    ),
    "a kernel named by a keyword": (
        lambda k: Kernel("for"),
        "Kernel: the name must be an identifier; got 'for'",
    ),
    "a loop of no steps": (
        lambda k: k.loop("i", 0).__enter__(),
        "loop: the extent must be a number from 1 on; got 0",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_the_builder_refuses(name: str) -> None:
    call, message = ERRORS[name]
    kernel = Kernel("k")
    kernel.param("a", (16, 16), "float16")
    with pytest.raises(LayoutError) as caught:
        call(kernel)
    assert str(caught.value) == message


def test_shared_memory_is_limited() -> None:
    kernel = Kernel("large")
    a = kernel.param("a", (256, 512), "float16")
    s = kernel.alloc("s", (256, 512), "float16", "shared")
    kernel.copy(s, a)
    with pytest.raises(LayoutError) as caught:
        kernel.lower()
    assert str(caught.value) == (
        "Kernel large: shared buffers take 262144 bytes; a CTA of sm_90 has 232448"
    )


def test_shared_memory_beyond_48_kib_is_dynamic() -> None:
    kernel = Kernel("dynamic", 128)
    a, b = kernel.param("a", (128, 256), "float16"), kernel.param("b", (128, 256), "float16")
    s = kernel.alloc("s", (128, 256), "float16", "shared")
    kernel.copy(s, a)
    kernel.sync()
    kernel.copy(b, s)
    program = kernel.lower()
    assert program.body.shared_bytes == 65536
    assert "  extern __shared__ __align__(1024) unsigned char shared[];" in program.cuda_source()
    assert "cuda.shared.array(0, uint8, alignment=1024)" in program.kernel_source()
    given = np.random.default_rng(5).standard_normal((128, 256)).astype(np.float16)
    for machine, written in outputs(program, {"a": given}):
        assert np.array_equal(written["b"], given), machine


def test_parameters_are_checked() -> None:
    program = staged()
    with pytest.raises(LayoutError) as caught:
        program.simulate(c=np.zeros((16, 8)))
    assert str(caught.value) == (
        "run: the kernel needs a, b, and takes d; got c: a is missing, b is missing, c is unknown"
    )
    with pytest.raises(
        LayoutError, match=r"^operand a: a needs a matrix of shape \(16, 48\); got "
    ):
        program.simulate(a=np.zeros((16, 8)), b=np.zeros((48, 8)))
    with pytest.raises(LayoutError, match=r"^run: the kernel needs a, b, and takes d; got b: a is"):
        program.simulate(b=np.zeros((48, 8)))
    with pytest.raises(SimulationError, match=r"reads a at 0, which nothing wrote$"):
        execute(program.body, {"b": np.zeros((48, 8), np.float16)})


# -- bodies written by hand: what the NumPy warp refuses, and what the texts make of odd operations

THREAD = Index.of("thread", 64)
GLOBAL = lw.Buffer("g", (64,), "float32", "global")
OUT = lw.Buffer("o", (64,), "float32", "global")
SHARED = lw.Buffer("s", (64,), "float32", "shared")
HELD = lw.Buffer("r", (64, 2), "float32", layout=parse("S[(64,2):(1@tx,1)]"))
FIRST, SECOND = Registers("r", (0,)), Registers("r", (1,))


def body(*ops: Op, threads: int = 64) -> KernelIR:
    return KernelIR((GLOBAL, OUT), (SHARED,), (HELD,), ops, threads)


INPUT = {"g": np.arange(64, dtype=np.float32)}
FILL = (Load(FIRST, "g", THREAD), Store("s", THREAD, FIRST))
TURN = THREAD * -1 + 63  # the thread opposite
COPY = Transfer("s", THREAD, "g", THREAD, 1, (), True)


RACES: dict[str, tuple[tuple[Op, ...], str]] = {
    "a register that nothing wrote": (
        (Load(FIRST, "g", THREAD), Store("o", THREAD, SECOND)),
        "o[thread] = r[1] reads r[1] of thread 0, which nothing wrote",
    ),
    "shared memory that nothing wrote": (
        (Load(FIRST, "s", THREAD),),
        "r[0] = s[thread] reads s at 0, which nothing wrote",
    ),
    "an address outside": (
        (Load(FIRST, "g", THREAD + 1),),
        "r[0] = g[thread + 1] reaches g at 64; it has 64 cells",
    ),
    "an address below": (
        (Load(FIRST, "g", THREAD - 1),),
        "r[0] = g[thread + -1] reaches g at -1; it has 64 cells",
    ),
    "reading what another thread wrote": (
        (*FILL, Load(SECOND, "s", TURN)),
        "races: thread 0 reads s at 63, which thread 63 wrote with no barrier in between: sync",
    ),
    "a barrier of the warp only": (
        (*FILL, Sync("warp"), Load(SECOND, "s", TURN)),
        "races: thread 0 reads s at 63, which thread 63 wrote with no barrier in between: sync",
    ),
    "overwriting what another thread read": (
        (*FILL, Sync("cta"), Load(SECOND, "s", TURN), Store("s", THREAD, SECOND)),
        "races: thread 0 overwrites s at 0, which thread 63 read with no barrier in between",
    ),
    "an asynchronous copy that is under way": (
        (COPY, Commit(), Load(FIRST, "s", THREAD)),
        "reads s at 0, still being copied: wait for it",
    ),
    "an asynchronous copy of an open group": (
        (COPY, Wait(0), Load(FIRST, "s", THREAD)),
        "reads s at 0, still being copied: wait for it",
    ),
    "too few groups waited for": (
        (COPY, Commit(), Wait(1), Load(FIRST, "s", THREAD)),
        "reads s at 0, still being copied: wait for it",
    ),
    "two copies under way to the same cells": (
        (COPY, Commit(), COPY, Commit(), Wait(0)),
        "races: thread 0 overwrites s at 0, which thread 0 still copies to: wait for it",
    ),
    "an asynchronous copy at the end": (
        (COPY, Commit()),
        "simulate: asynchronous copies are under way at the end: wait for them",
    ),
    "a loop's second step": (
        (
            Loop(
                "i",
                2,
                (*FILL, Sync("cta"), Load(SECOND, "s", TURN)),
            ),
        ),
        "overwrites s at 0, which thread 63 read with no barrier in between",
    ),
}


@pytest.mark.parametrize("name", RACES)
def test_the_simulator_refuses_what_a_gpu_answers_with_garbage(name: str) -> None:
    ops, message = RACES[name]
    with pytest.raises(SimulationError) as caught:
        execute(body(*ops), INPUT)
    assert message in str(caught.value)


SOUND: dict[str, tuple[Op, ...]] = {
    "a barrier of the CTA": (*FILL, Sync("cta"), Load(SECOND, "s", TURN)),
    "a barrier of the warp, within it": (
        *FILL,
        Sync("warp"),
        Load(SECOND, "s", THREAD // 32 * 32 + THREAD % 32 * -1 + 31),
    ),
    "one's own cell": (*FILL, Load(SECOND, "s", THREAD), Store("s", THREAD, SECOND)),
    "a group that is waited for": (COPY, Commit(), Wait(0), Sync("cta"), Load(SECOND, "s", TURN)),
    "a loop with both barriers": (
        Loop("i", 3, (*FILL, Sync("cta"), Load(SECOND, "s", TURN), Sync("cta"))),
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_the_simulator_lets_sound_programs_pass(name: str) -> None:
    machine = execute(body(*SOUND[name], Store("o", THREAD, SECOND)), INPUT)
    out = machine.memory["o"].values
    assert sorted(out.tolist()) == INPUT["g"].tolist()


HALVES = lw.Buffer("h", (32, 4), "float16", layout=parse("S[(32,4):(1@laneid,1)]"))
BRAINS = lw.Buffer("b", (32, 4), "bfloat16", layout=parse("S[(32,4):(1@laneid,1)]"))
FLOATS = lw.Buffer("f", (32, 4), "float32", layout=parse("S[(32,4):(1@laneid,1)]"))
LANE = Index.of("thread", 32)
FOUR = (0, 1, 2, 3)


def machines(made: KernelIR, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a body on the simulator and on both texts; return the written cells of each."""
    cuda = pytest.importorskip("lowering.codegen.numba_cuda", reason="numba-cuda is not installed")
    machine = execute(made, given)
    found = [{b.name: machine.memory[b.name].values for b in made.written}]
    cpp = texts.python_of(cuda_cpp.cuda_source(made, "k", "by hand"))
    for source in (cuda.kernel_source(made, "k"), cpp):
        arrays = {
            b.name: given[b.name].copy() if b.name in given else np.zeros(b.shape, b.dtype.numpy)
            for b in made.params
        }
        memory = [each.view(np.uint8) for each in arrays.values()]
        compiled = texts.compile_text(source)
        texts.run(compiled, made.threads, made.launched, 1, memory, [], {})
        found.append({b.name: arrays[b.name] for b in made.written})
    return found


def test_moves_and_zeros_of_half_words() -> None:
    """Elements that share a word are put in their places, and leave their neighbours alone."""
    source = lw.Buffer("g", (128,), "float16", "global")
    target = lw.Buffer("o", (128,), "float16", "global")
    other = lw.Buffer("q", (32, 4), "float16", layout=parse("S[(32,4):(1@laneid,1)]"))
    ops = (
        Load(Registers("h", FOUR), "g", LANE * 4),
        Load(Registers("q", FOUR), "g", LANE * 4),
        Move(Registers("q", (0, 3)), Registers("h", (3, 0))),
        Zero(Registers("q", (2,))),
        Store("o", LANE * 4, Registers("q", FOUR)),
    )
    values = np.arange(128).astype(np.float16)
    want = values.reshape(32, 4).copy()
    want[:, 0], want[:, 3], want[:, 2] = values[3::4], values[0::4], 0
    made = KernelIR((source, target), (), (HALVES, other), ops, 32)
    assert made.read_unwritten() == {"q"}
    for written in machines(made, {"g": values}):
        assert np.array_equal(written["o"].reshape(32, 4), want)


def test_guards_bind_loads_and_stores() -> None:
    """Threads outside load zeros and store nothing."""
    source = lw.Buffer("g", (32,), "float32", "global")
    target = lw.Buffer("o", (64,), "float32", "global")
    few, many = (Guard(LANE, 0, 8),), (Guard(LANE - 4, 0, 20),)
    ops = (
        Load(Registers("f", (0,)), "g", LANE, few),
        Zero(Registers("f", (1,))),
        Store("o", LANE * 2, Registers("f", (0, 1)), many),
    )
    values = np.arange(1, 33, dtype=np.float32)
    want = np.zeros(64, dtype=np.float32)
    want[8:16:2] = values[4:8]
    made = KernelIR((source, target), (), (FLOATS,), ops, 32)
    simulated, *compiled = machines(made, {"g": values})
    untouched = np.ones(64, dtype=bool)
    untouched[8:48] = False
    assert np.isnan(simulated["o"][untouched]).all()
    assert np.array_equal(simulated["o"][~untouched], want[~untouched])
    for written in compiled:
        assert np.array_equal(written["o"], want)


def test_operations_read_as_lines() -> None:
    mma = Mma(
        lw.MMA_INSTRUCTIONS[1],
        Registers("d", FOUR),
        Registers("a", tuple(range(8))),
        Registers("b", (0, 1, 4, 5)),
    )
    assert [
        str(op)
        for op in (
            mma,
            COPY,
            Transfer("s", THREAD, "g", THREAD * 4, 4),
            Commit(),
            Wait(2),
            Sync("warp"),
            Loop("i", 3, ()),
            Load(FIRST, "g", THREAD, (Guard(THREAD, 0, 8), Guard(THREAD - 2, 0, 4))),
        )
    ] == [
        "m16n8k16(d[0..3], a[0..7], b[0,1,4,5], d[0..3])",
        "cp.async.1(s[thread], g[thread])",
        "copy.4(s[thread], g[thread * 4])",
        "cp.async.commit",
        "cp.async.wait(2)",
        "sync(warp)",
        "for i in range(3):",
        "r[0] = g[thread] if thread < 8 and 0 <= (thread + -2) and (thread + -2) < 4",
    ]


def test_a_body_knows_its_buffers() -> None:
    made = body(*FILL, Store("o", THREAD, FIRST))
    assert made.buffer("s") is SHARED
    assert [buffer.name for buffer in made.written] == ["o"]
    assert made.mma == ()
    assert (made.shared_bytes, made.shared_offsets) == (256, {"s": 0})
    with pytest.raises(KeyError):
        made.buffer("x")
    assert ml_dtypes.bfloat16 == BRAINS.dtype.numpy


def lines_with(program: KernelProgram, call: str) -> list[str]:
    """Return the lines of the C++ text that make a call, without its definition."""
    lines = program.cuda_source().splitlines()
    return [text.strip() for text in lines if call in text and "__device__" not in text]


@pytest.mark.parametrize("threads", [128, 256, 512])
def test_each_warpgroup_has_a_named_barrier_of_its_own(threads: int) -> None:
    """0 is the CTA's and 1 that of threads that share a role, so the first warpgroup's is 2."""
    kernel = Kernel("barriers", threads=threads)
    kernel.sync("warpgroup")
    (call,) = lines_with(kernel.lower(), "sync_warpgroup_128(")
    number = "2" if threads == 128 else "(thread >> 7) + 2"
    assert call == f"sync_warpgroup_128(static_cast<uint32_t>({number}));"


def test_an_arrival_of_each_warp_is_of_its_first_lane() -> None:
    """One lane in a CTA alone, whether a guard decides too or not: two would arrive twice."""
    kernel = Kernel("arrivals", threads=64)
    barrier = kernel.barrier("done", 2, 2)
    with kernel.loop("step", 4) as step:
        kernel.arrive(barrier, 0, where=step < 3)
    kernel.arrive(barrier, 1)
    program = kernel.lower()
    (guarded,) = lines_with(program, "mbarrier_arrive_if(")
    assert guarded.startswith("mbarrier_arrive_if(done_base, ((thread & 31) < 1 && ")
    assert guarded.endswith("? 1u : 0u));")
    lines = program.cuda_source().splitlines()
    at = next(
        i for i, text in enumerate(lines) if text.strip() == "mbarrier_arrive(done_base + 8);"
    )
    assert lines[at - 1].strip() == "if ((thread & 31) == 0) {"


@pytest.mark.parametrize(
    ("scope", "call"),
    [("warp", "__syncwarp();"), ("cta", "__syncthreads();"), ("cluster", "sync_cluster();")],
)
def test_each_barrier_is_in_the_text(scope: str, call: str) -> None:
    """The machines that run texts run threads in turn, so that they do not miss a barrier."""
    kernel = Kernel("barriers", threads=64, cluster=2 if scope == "cluster" else 1)
    kernel.sync(scope)
    assert kernel.lower().cuda_source().splitlines()[-2:] == [f"  {call}", "}"]


def test_threads_that_share_a_role_have_a_barrier_without_the_producer() -> None:
    """The producer never comes to it; a barrier of each warp or warpgroup is as ever."""
    kernel = Kernel("roles", threads=128)
    matrix = kernel.param("g", (64, 64), "float16")
    swizzled = ComposeLayout(3, 3, 3, TileLayout(S[(64, 64) : (64, 1)]))
    tile = kernel.alloc("s", (64, 64), "float16", "shared", swizzled)
    full, free = kernel.barrier("full", 1, 1), kernel.barrier("free", 1, 4)
    with kernel.producer():
        kernel.tma_load(full, 0, [(tile[:, :], matrix[:, :])], (free, 0, 0))
    kernel.sync()
    kernel.sync("warp")
    kernel.sync("warpgroup")
    text = kernel.lower().cuda_source().partition("if (thread < 128) {\n")[2]
    mine, _, theirs = text.partition("  } else {\n")
    assert [line.strip() for line in mine.splitlines()] == [
        "sync_128();",
        "__syncwarp();",
        "sync_warpgroup_128(static_cast<uint32_t>(2));",
    ]
    produced = [line.strip() for line in theirs.splitlines() if "(" in line]
    assert [line.partition("(")[0] for line in produced] == [
        "if ", "mbarrier_wait", "mbarrier_arrive_expect_tx", "tma_load",
    ]  # fmt: skip
    assert produced[1].startswith("mbarrier_wait(free_base, ")


def test_the_most_that_the_limits_allow_is_taken() -> None:
    """A step below each refusal: what the table of refusals names is the first that is too much."""
    kernel = Kernel("most")
    kernel.barrier("b", 1, (1 << 20) - 1)
    row = TileLayout(S[(32, 4096) : (1 @ laneid, 1)])
    held = kernel.alloc("r", (32, 4096), "float32", layout=row)
    kernel.zero(held)
    with kernel.loop("i", (1 << 31) - 1):
        kernel.sync("warp")
    (zero, loop) = kernel.lower().body.ops
    assert len(zero.into.numbers) == 4096
    assert loop.extent == (1 << 31) - 1


def test_elements_in_one_cell_may_be_alike() -> None:
    """NaN among them: what is compared is the bits."""
    kernel = Kernel("alike")
    shared_rows = TileLayout(S[(32, 4) : (0, 1)])
    a, o = kernel.param("a", (32, 4), "float32", shared_rows), kernel.param("o", (32, 4), "float32")
    held = kernel.alloc("r", (32, 4), "float32", layout=TileLayout(S[(32, 4) : (1 @ laneid, 1)]))
    kernel.copy(held, a), kernel.copy(o, held)
    given = np.tile(np.float32([1, np.nan, -0.0, 3]), (32, 1))
    found = kernel.lower().simulate(a=given)["o"]
    assert found.tobytes() == given.tobytes()


def test_bounds_take_the_symbol_of_a_scalar() -> None:
    kernel = Kernel("bounded")
    rows = kernel.scalar("M")
    a, o = (kernel.param(name, (1 << 24, 4), "float32", bounds=(rows, None)) for name in "ao")
    held = kernel.alloc("r", (32, 4), "float32", layout=TileLayout(S[(32, 4) : (1 @ laneid, 1)]))
    kernel.copy(held, a[0:32]), kernel.copy(o[0:32], held)
    given = np.arange(20, dtype=np.float32).reshape(5, 4)
    assert np.array_equal(kernel.lower().simulate(a=given, M=5)["o"], given)


@pytest.mark.parametrize("use", ["loop", "when", "region"])
def test_a_coefficient_is_no_size(use: str) -> None:
    k = lw.Kernel("k")
    f = k.scalar("f", "f32")
    a = k.param("a", (64, 4), "float32")
    r = k.alloc("r", (32, 4), "float32", layout=parse("S[(32,4):(1@laneid,1)]"))
    uses = {
        "loop": lambda: k.loop("x", f).__enter__(),
        "when": lambda: k.when(f, 1).__enter__(),
        "region": lambda: k.copy(r, a[f : f + 32]),
    }
    with pytest.raises(LayoutError, match=r"got Expression\(f: \[\] f32\)"):
        uses[use]()


def test_reprs_are_one_line_and_str_is_the_script() -> None:
    program = staged()
    assert repr(program) == ("KernelProgram(staged: 32 threads, 14 operations, 1 mma.m16n8k16.f16)")
    assert str(program) == program.script()
    assert repr(Kernel("k", 64)) == "Kernel(k: 64 threads, sm_90, 0 buffers, 0 statements)"
