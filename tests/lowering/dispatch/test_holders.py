"""Only those who hold a region of a register tile take part: against the definition, in NumPy.

Which thread holds which element is written out here from the table of the whole layout: a thread
holds an element where its coordinates on the axes that the layout names are those of one of the
element's places.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import sympy

import lowering as lw
from layoutalg import (
    ComposeLayout,
    Iter,
    LayoutError,
    S,
    TileLayout,
    fragments,
    laneid,
    parse,
    warpid,
)
from layoutalg.sizes.symbolic import DigitSymbol
from lowering.dispatch.destinations import MOST, check_disjoint, check_distinct
from lowering.dispatch.holders import guards_of, holders_of, named, selected
from lowering.dispatch.registry import context_of, dispatch
from lowering.ir.ops import LoadMatrix, StoreMatrix, Wgmma, When, walk
from lowering.ir.tiles import Buffer
from lowering.ir.tmem_ops import TensorLoad, TensorStore
from lowering.programs.kernel import Kernel
from lowering.simulator.hazards import SimulationError
from tests.support.kernel_texts import outputs

Array = npt.NDArray[Any]
Ranges = tuple[slice, ...]
ROW = TileLayout(S[(32, 4) : (1 @ laneid, 1)])
A, D = (fragments.get("mma.m16n8k16.f16", role) for role in "AD")
COORDINATES = {  # of each thread, on each axis
    "laneid": lambda t: t % 32,
    "tid_in_wg": lambda t: t % 128,
    "tx": lambda t: t,
    "warpid": lambda t: t // 32,
    "wid_in_wg": lambda t: t // 32 % 4,
    "wgid": lambda t: t // 128,
}


def owners(layout: TileLayout, shape: tuple[int, ...], threads: int) -> dict[int, list[Any]]:
    """Return for each flat element the (thread, register) that hold it, by the definition."""
    table = layout.table(shape, replicas=True)
    size = int(np.prod(shape))
    places = {name: values.reshape(size, -1) for name, values in table.items()}
    copies = max(values.shape[1] for values in places.values())
    thread = np.arange(threads)
    found: dict[int, list[Any]] = {}
    for element in range(size):
        for copy in range(copies):
            here = {n: int(v[element, min(copy, v.shape[1] - 1)]) for n, v in places.items()}
            register = here.pop("m", 0)
            taking = np.ones(threads, dtype=bool)
            for name, value in here.items():
                taking &= COORDINATES[name](thread) == value
            found.setdefault(element, []).extend((int(t), register) for t in thread[taking])
    return found


# -- random regions of random tiles ---------------------------------------------------------------


def tiles(rng: np.random.Generator) -> tuple[TileLayout, tuple[int, ...], int]:
    """Return a random register tile: its layout, shape, and the threads of its CTA."""
    cols, warps = int(rng.choice([1, 2, 4, 8])), int(rng.choice([1, 2, 4]))
    rows = int(rng.choice([8, 16, 32]))
    kind = int(rng.integers(11))
    over = S[(warps, 1) : (1 @ warpid, 1 @ warpid)]
    if kind == 0:
        return parse(f"S[(32,{cols}):(1@laneid,1)]"), (32, cols), 32 * warps
    if kind == 1:
        return parse(f"S[({32 * warps},{cols}):(1@tx,1)]"), (32 * warps, cols), 32 * warps
    if kind == 2:
        text = f"S[({warps},32,{cols}):(1@warpid,1@laneid,1)]"
        return parse(text), (32 * warps, cols), 32 * warps
    if kind == 3:
        return parse(f"S[(32,4,{cols}):(1@laneid,1@wid_in_wg,1)]"), (32, 4 * cols), 128
    if kind == 4:
        return parse(f"S[({rows},{cols}):(1@laneid,1)]"), (rows, cols), 32 * warps
    if kind == 5:
        return parse(f"S[(16,{cols}):(1@laneid,1)] + 8@laneid"), (16, cols), 32 * warps
    if kind == 6:
        return parse(f"S[(16,{cols}):(1@laneid,1)] + R[2:16@laneid]"), (16, cols), 32 * warps
    if kind == 7:
        return parse(f"S[({cols},32):(1,1@laneid)]"), (cols, 32), 32 * warps
    if kind == 8:
        return D.tiled(16, 16), (16, 16), 32 * warps
    if kind == 9:
        return D.layout.tile(TileLayout(over), (warps, 1), (16, 8)), (16 * warps, 8), 32 * warps
    return fragments.get("wgmma.m64n8", "D.f32").layout, (64, 8), 128


def regions(rng: np.random.Generator, shape: tuple[int, ...]) -> Ranges:
    """Return a random part of a shape: a block, a row, a column, a half, a quarter, or any."""
    ranges = []
    for extent in shape:
        kind = rng.choice(["all", "one", "half", "quarter", "aligned", "any"])
        if kind == "all" or extent == 1:
            ranges.append(slice(0, extent))
        elif kind == "one":
            at = int(rng.integers(extent))
            ranges.append(slice(at, at + 1))
        elif kind in ("half", "quarter", "aligned"):
            parts = {"half": 2, "quarter": 4, "aligned": 8}[str(kind)]
            size = max(1, extent // parts)
            at = int(rng.integers(extent // size)) * size
            ranges.append(slice(at, at + size))
        else:
            begin = int(rng.integers(extent))
            ranges.append(slice(begin, int(rng.integers(begin + 1, extent + 1))))
    return tuple(ranges)


def shared_layout(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return a random layout in shared memory: row-major, padded, or swizzled."""
    rows, cols = shape
    kind = int(rng.integers(3))
    if kind == 0:
        return None
    if kind == 1:
        return parse(f"S[({rows},{cols}):({cols + 4},1)]")
    return ComposeLayout(2, 2, 2, parse(f"S[({rows},{cols}):({cols},1)]"))


def one_case(seed: int) -> str:
    """Run one random program; return "right" or "refused", or fail."""
    rng = np.random.default_rng(seed)
    layout, shape, threads = tiles(rng)
    box = regions(rng, shape)
    through = str(rng.choice(["global", "shared", "cast", "zero"]))
    dtype = str(rng.choice(["float32", "float16"])) if through != "cast" else "float32"
    kernel = Kernel("k", threads)
    a, b, o, q = (kernel.param(name, shape, dtype) for name in ("a", "b", "o", "q"))
    r = kernel.alloc("r", shape, dtype, layout=layout)
    part = tuple(int(each.stop - each.start) for each in box)
    source: Any = b[box]
    target: Any = o[box]
    if through == "shared":
        source = kernel.alloc("s", part, dtype, "shared", shared_layout(rng, part))
        target = kernel.alloc("t", part, dtype, "shared", shared_layout(rng, part))
        kernel.copy(source, b[box])
        kernel.sync()
    kernel.copy(r, a)
    values = {name: rng.integers(-50, 50, shape).astype(np.float16) for name in "abo"}
    want = values["a"].astype(np.float64)
    if through == "zero":
        kernel.zero(r[box])
        want[box] = 0
    elif through == "cast":
        h = kernel.alloc("h", shape, "float16", layout=layout)
        g = kernel.alloc("g", shape, "float32", layout=layout)
        kernel.copy(g, b)
        kernel.cast(h, r)
        kernel.cast(h[box], g[box])
        kernel.cast(r, h)
        want[box] = values["b"][box]
    else:
        kernel.copy(r[box], source)
        want[box] = values["b"][box]
    kernel.copy(target, r[box])
    if through == "shared":
        kernel.sync()
        kernel.copy(o[box], target)
    kernel.copy(q, r)
    try:
        program = kernel.lower()
    except LayoutError as error:  # two elements of 16 bits share a word, and are cast together
        if through != "cast" or "does not fill whole 32-bit words in order" not in str(error):
            raise
        return "refused"
    machine = program.trace(**values)
    written = {name: machine.memory[name].values.reshape(shape) for name in "oq"}
    out = values["o"].astype(np.float64)
    out[box] = want[box]
    assert np.array_equal(written["o"], out), (seed, layout, box, through)
    assert np.array_equal(written["q"], want), (seed, layout, box, through)
    for element, places in owners(layout, shape, threads).items():
        for thread, register in places:
            got = machine.registers["r"][thread, register]
            assert got == want.flat[element], (seed, layout, box, through, thread, register)
    return "right"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 600, 60))
def test_only_holders_change(first: int) -> None:
    """600 random regions of random tiles: what holds a part changes, and nothing else does."""
    counts = Counter(one_case(seed) for seed in range(first, first + 60))
    assert counts["right"] >= 44, counts


# -- what FAULTS 1a lists -------------------------------------------------------------------------


def given(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(7)
    return [rng.integers(-99, 99, shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("box", [slice(0, 16), slice(16, 32), slice(5, 6), slice(3, 30)])
def test_a_load_touches_the_registers_of_the_region_alone(box: slice) -> None:
    kernel = Kernel("k")
    a, b, o = (kernel.param(name, (32, 4), "float32") for name in "abo")
    r = kernel.alloc("r", (32, 4), "float32", layout=ROW)
    kernel.copy(r, a)
    kernel.copy(r[box], b[box])
    kernel.copy(o, r)
    x, y = given((32, 4), (32, 4))
    want = x.copy()
    want[box] = y[box]
    for machine, written in outputs(kernel.lower(), {"a": x, "b": y}):
        assert np.array_equal(written["o"], want), machine


@pytest.mark.parametrize(
    ("text", "threads"),
    [
        ("S[(32,4):(1@laneid,1)]", 32),
        ("S[(64,4):(1@tx,1)]", 64),
        ("S[(2,32,4):(1@warpid,1@laneid,1)]", 64),
    ],
)
def test_a_store_of_a_row_is_by_its_holder(text: str, threads: int) -> None:
    kernel = Kernel("k", threads)
    a, o = kernel.param("a", (threads, 4), "float32"), kernel.param("o", (threads, 4), "float32")
    r = kernel.alloc("r", (threads, 4), "float32", layout=parse(text))
    kernel.copy(r, a)
    kernel.copy(o, r)
    kernel.sync()
    kernel.copy(o[0:1], r[5:6])
    (x,) = given((threads, 4))
    want = x.copy()
    want[0] = x[5]
    program = kernel.lower()
    assert program.script().splitlines()[-2:] == [
        "if 5 <= thread and thread < 6:",
        "    o[0] = r[0..3]",
    ]
    for machine, written in outputs(program, {"a": x}):
        assert np.array_equal(written["o"], want), machine


@pytest.mark.parametrize("swizzled", [False, True])
def test_an_epilogue_warp_by_warp(swizzled: bool) -> None:
    """One warp's rows after the other through one tile: by stmatrix, of that warp alone."""
    kernel = Kernel("k", 128)
    a, o = kernel.param("a", (64, 16), "float16"), kernel.param("o", (64, 16), "float16")
    layout = A.layout.tile(TileLayout(S[(4, 1) : (1 @ warpid, 1 @ warpid)]), (4, 1), (16, 16))
    r, q = (kernel.alloc(name, (64, 16), "float16", layout=layout) for name in "rq")
    tile = ComposeLayout(3, 1, 3, parse("S[(16,16):(16,1)]")) if swizzled else None
    s = kernel.alloc("s", (16, 16), "float16", "shared", tile)
    kernel.copy(r, a)
    with kernel.loop("w", 4, unroll=True) as w:
        rows = slice(w * 16, w * 16 + 16)
        kernel.copy(s, r[rows], dispatch="ldstmatrix")
        kernel.sync()
        kernel.copy(q[rows], s, dispatch="ldstmatrix")
        kernel.sync()
    kernel.copy(o, q)
    program = kernel.lower()
    branches = [op for op in program.body.ops if isinstance(op, When)]
    assert [type(op) for branch in branches for op in branch.body] == [StoreMatrix, LoadMatrix] * 4
    x = given((64, 16))[0].astype(np.float16)
    for machine, written in outputs(program, {"a": x}):
        assert np.array_equal(written["o"], x), machine


def test_cast_assign_and_zero_leave_other_lanes_alone() -> None:
    kernel = Kernel("k")
    a, o = kernel.param("a", (32, 4), "float32"), kernel.param("o", (32, 4), "float32")
    r, g = (kernel.alloc(name, (32, 4), "float32", layout=ROW) for name in "rg")
    h = kernel.alloc("h", (32, 4), "float16", layout=ROW)
    kernel.copy(r, a)
    kernel.cast(h, r)
    kernel.zero(r[0:16])
    kernel.cast(h[0:8], r[0:8])
    kernel.cast(g, h)
    kernel.copy(o, g)
    (x,) = given((32, 4))
    want = x.copy()
    want[0:8] = 0
    assert np.array_equal(kernel.lower().simulate(a=x)["o"], want)
    alpha = kernel.scalar("alpha", "f32")
    kernel.assign(r[8:24], r[8:24] * alpha + g[8:24] * alpha)
    assert kernel.lower().script().splitlines()[-2:] == [
        "if 1 <= (thread // 8) and (thread // 8) < 3:",
        "    r[0..3] = ((r[0..3] * alpha) + (g[0..3] * alpha))",
    ]


def lowered(dst: Any, src: Any, threads: int, arch: str = "sm_90", **config: Any) -> Any:
    return dispatch(context_of(lw.copy(dst, src, "cta", **config), "cuda", threads, None, arch))


def test_matrices_decline_lanes_that_hold_nothing() -> None:
    r = lw.Buffer("r", (16, 16), "f16", layout=A.layout)
    s = lw.Buffer("s", (8, 8), "f16", "shared")
    with pytest.raises(
        lw.DispatchError, match=r"lanes 4\.\.31 of each warp hold no part of r.0:1,0:8"
    ):
        lowered(r[0:1, 0:8], s[0:1], 32, dispatch="ldstmatrix")
    assert lowered(r[0:1, 0:8], s[0:1], 32).variant == "vec_auto"
    assert lowered(r[8:16, 8:16], s, 32).variant == "ldstmatrix"


def test_tensor_memory_by_the_warps_that_hold_a_region() -> None:
    """Rows 32 to 64 are warp 1's, which reaches lanes 32 to 63."""
    whole = lw.Buffer("r", (128, 8), "f32", layout=parse("S[(128,8):(1@tid_in_wg,1)]"))
    there = lw.Buffer("t", (128, 8), "f32", "tmem", parse("S[(128,8):(1@TLane,1@TCol)]"))
    for dst, src, kind in (
        (whole[32:64], there[32:64], TensorLoad),
        (there[32:64], whole[32:64], TensorStore),
    ):
        (branch,) = lowered(dst, src, 128, "sm_100a").ops
        assert isinstance(branch, When)
        assert named(selected(branch.guards, 128)) == "warp 1"
        assert [type(op) for op in branch.body if not str(op).startswith("tcgen05.wait")] == [kind]
    with pytest.raises(lw.DispatchError, match=r"no shape of tcgen05\.ld and \.st has word 0"):
        lowered(whole[0:32], there[32:64], 128, "sm_100a")
    with pytest.raises(lw.DispatchError, match=r"threads 1\.\.127 hold no part of r.0:1,0:8"):
        lowered(whole[0:1], there[0:1], 128, "sm_100a")


def test_wgmma_by_the_warpgroups_that_hold_the_accumulator() -> None:
    accumulator = fragments.get("wgmma.m64n8", "D.f32").layout
    both = parse(f"{accumulator}".replace("S[(", "S[(2,").replace(":(", ":(1@wgid,"))
    c = lw.Buffer("c", (128, 8), "f32", layout=both)
    a, b = (
        lw.Buffer("a", (64, 16), "f16", "shared", SWIZZLED),
        lw.Buffer("b", (8, 16), "f16", "shared", SWIZZLED_B),
    )
    call = lw.gemm_async(c[64:128], a, b, transB=True, scope="cta")
    (branch,) = dispatch(context_of(call, "cuda", 256, None, "sm_90a")).ops
    assert isinstance(branch, When)
    assert named(selected(branch.guards, 256)) == "warps 4..7"
    assert any(isinstance(op, Wgmma) for op in walk((branch,)))


SWIZZLED = ComposeLayout(3, 1, 3, parse("S[(64,16):(16,1)]"))
SWIZZLED_B = ComposeLayout(3, 1, 3, parse("S[(8,16):(16,1)]"))


# -- copies, branches, variables ------------------------------------------------------------------


def test_of_copies_the_first_stores() -> None:
    """Each warp holds all of it; one warp stores. In a branch, the first that comes."""
    kernel = Kernel("k", 128)
    a, o, p = (kernel.param(name, (32, 4), "float32") for name in "aop")
    r = kernel.alloc("r", (32, 4), "float32", layout=ROW)
    kernel.copy(r, a)
    kernel.copy(o, r)
    with kernel.when(kernel.warp, 4, at_least=2):
        kernel.copy(p, r)
    program = kernel.lower()
    assert "if (thread // 32) < 1:\n    o[" in program.script()
    assert "if 2 <= (thread // 32) and (thread // 32) < 3:\n        p[" in program.script()
    (x,) = given((32, 4))
    written = program.simulate(a=x)
    assert np.array_equal(written["o"], x)
    assert np.array_equal(written["p"], x)


def test_copies_that_go_to_different_places_are_all_stored() -> None:
    kernel = Kernel("k", 64)
    a, o = kernel.param("a", (64, 4), "float32"), kernel.param("o", (64, 4), "float32")
    r = kernel.alloc("r", (32, 4), "float32", layout=ROW)
    w = kernel.let("w", kernel.warp)
    kernel.copy(r, a[w * 32 : w * 32 + 32])
    kernel.copy(o[w * 32 : w * 32 + 32], r)
    (x,) = given((64, 4))
    assert np.array_equal(kernel.lower().simulate(a=x)["o"], x)


ONE_WARP = TileLayout(S[32 : 1 @ laneid])


@pytest.mark.parametrize("scope", ["global", "shared"])
@pytest.mark.parametrize("load", ["copies", "by warp", "the first alone"])
def test_copies_that_one_stores_must_not_differ(load: str, scope: str) -> None:
    """Warps 0 and 1, and 2 and 3, store to one place; what was never loaded is no copy."""
    kernel = Kernel("k", 128)
    a, o = kernel.param("a", (4, 32), "int32"), kernel.param("o", (4, 32), "int32")
    r = kernel.alloc("r", (32,), "int32", layout=ONE_WARP)
    into = o if scope == "global" else kernel.alloc("s", (4, 32), "int32", "shared")
    v, w = kernel.let("v", kernel.warp), kernel.let("w", kernel.warp // 2)
    if load == "the first alone":
        with kernel.when(kernel.warp % 2, 1):
            kernel.copy(r, a[w])
    else:
        kernel.copy(r, a[v if load == "by warp" else w])
    kernel.copy(into[w], r)
    if scope == "shared":
        kernel.sync()
        kernel.copy(o[0:2], into[0:2])
    program = kernel.lower()
    assert any(isinstance(op, StoreMatrix) for op in walk(program.body.ops)) == (scope == "shared")
    x = np.arange(128).reshape(4, 32)
    if load == "by warp":
        message = r"r\[0\].*: thread 32 holds another value of r\[0\] than thread 0, which stores"
        with pytest.raises(SimulationError, match=message):
            program.simulate(a=x)
    else:
        assert np.array_equal(program.simulate(a=x)["o"][:2], x[:2])


NOBODY = {
    "no such warp": lambda k: k.when(k.warp, 8, at_least=5),
    "no such lane": lambda k: k.when(k.lane, 40, at_least=33),
}
DO_NOTHING = {
    "zero": lambda k, t: k.zero(t["D"]),
    "zero part": lambda k, t: k.zero(t["D"][0:8]),
    "load": lambda k, t: k.copy(t["A"], t["a"]),
    "store": lambda k, t: k.copy(t["o"], t["D"]),
    "between memories": lambda k, t: k.copy(t["s"], t["a"]),
    "ldmatrix": lambda k, t: k.copy(t["A"], t["s"]),
    "cast": lambda k, t: k.cast(t["H"], t["D"]),
    "gemm": lambda k, t: k.gemm(t["D"], t["A"], t["B"], scope="cta"),
    "sync": lambda k, t: k.sync(),
    "arrive": lambda k, t: k.arrive(t["bar"], 0),
    "let": lambda k, t: k.let("y", k.warp),
}


@pytest.mark.parametrize("branch", NOBODY)
@pytest.mark.parametrize("what", DO_NOTHING)
def test_a_branch_that_no_thread_enters_does_nothing(what: str, branch: str) -> None:
    k = Kernel("k", 128)
    t: dict[str, Any] = {
        "a": k.param("a", (16, 16), "float16"),
        "o": k.param("o", (16, 8), "float32"),
        "s": k.alloc("s", (16, 16), "float16", "shared"),
        "H": k.alloc("H", (16, 8), "float16", layout=D.layout),
        "bar": k.barrier("bar", 1, 1),
    }
    for role in "ABD":
        each = fragments.get("mma.m16n8k16.f16", role)
        t[role] = k.alloc(role, each.shape, each.dtype, layout=each.layout)
    k.zero(t["D"])
    with NOBODY[branch](k):
        DO_NOTHING[what](k, t)
    k.copy(t["o"], t["D"])
    program = k.lower()
    assert not any(isinstance(op, When) and op.guards[0].low in (5, 33) for op in program.body.ops)
    assert "# no thread comes here: 0 operations" in program.script("dispatched")
    (x,) = given((16, 16))
    assert not program.simulate(a=x.astype(np.float16))["o"].any()


def test_sets_of_threads_are_selected_by_digits() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        threads = int(rng.choice([32, 64, 96, 128, 1024]))
        unit, extent = int(rng.choice([1, 2, 4, 8, 16, 32])), int(rng.choice([2, 3, 4, 8]))
        if threads % (unit * extent):
            continue
        low = int(rng.integers(extent))
        high = int(rng.integers(low, extent)) + 1
        digit = np.arange(threads) // unit % extent
        taking = (digit >= low) & (digit < high)
        guards = guards_of(taking)
        assert len(guards) <= 1
        assert np.array_equal(selected(guards, threads), taking)
    with pytest.raises(LayoutError, match=r"no digits of the thread number select lanes 0, 2\.\.3"):
        guards_of(np.isin(np.arange(32), [0, 2, 3]))


def test_a_region_in_other_registers_of_other_threads_has_a_part_for_each() -> None:
    r = lw.Buffer("r", (16, 8), "f32", layout=D.layout)
    parts = holders_of(r[4:12], 32)
    assert sorted((named(part.taking), part.registers) for part in parts) == [
        ("lanes 0..15 of each warp", (2, 3)),
        ("lanes 16..31 of each warp", (0, 1)),
    ]


def test_a_replica_that_repeats_nothing_is_none() -> None:
    """Predicates ask the map: gemm, copies and descriptors take it as if it were not there."""
    idle = " + R[(4,1):(0,3@laneid)]"
    d, a, b = (
        lw.Buffer(role, f.shape, f.dtype, layout=parse(f"{f.layout}{idle}"))
        for role, f in ((r, fragments.get("mma.m16n8k16.f16", r)) for r in "DAB")
    )
    program = lw.lower(lw.gemm(d, a, b))
    x, y = given((16, 16), (16, 8))
    assert np.array_equal(program.simulate(A=x, B=y), x.astype("f8") @ y.astype("f8"))
    s = lw.Buffer("s", (16, 16), "f16", "shared", parse("S[(16,16):(16,1)] + R[4:0]"))
    assert lowered(a, s, 32).variant == "ldstmatrix"
    assert lowered(s, a, 32).variant == "ldstmatrix"


# -- what may be written --------------------------------------------------------------------------


def test_a_part_that_keeps_its_elements_apart_may_be_written() -> None:
    """Of a buffer whose rows overlap, a region without overlap; and two apart in one buffer."""
    kernel = Kernel("k")
    a, o = kernel.param("a", (8, 4), "float32"), kernel.param("o", (16, 4), "float32")
    s = kernel.alloc("s", (8, 8), "float32", "shared", parse("S[(8,8):(4,1)]"))
    kernel.copy(s[:, 0:4], a)
    kernel.sync()
    kernel.copy(o[8:16], s[:, 0:4])
    kernel.sync()
    kernel.copy(o[0:8], o[8:16])
    (x,) = given((8, 4))
    assert np.array_equal(kernel.lower().simulate(a=x)["o"], np.concatenate([x, x]))


def test_a_destination_may_be_said_to_alias() -> None:
    kernel = Kernel("k")
    a = kernel.param("a", (8, 8), "float32")
    s = kernel.alloc("s", (8, 8), "float32", "shared", parse("S[(8,8):(0,1)]"))
    kernel.copy(s, a, aliases=True)
    assert "aliases=True" in kernel.lower().script("tile")


def test_a_product_in_a_branch_of_whole_warps() -> None:
    """Each warp has an accumulator of its own there: one layout, two copies."""
    kernel = Kernel("k", 64)
    a, b = kernel.param("a", (16, 16), "float16"), kernel.param("b", (16, 8), "float16")
    o = kernel.param("o", (16, 8), "float32")
    held = {
        role: kernel.alloc(role, each.shape, each.dtype, layout=each.layout)
        for role, each in ((r, fragments.get("mma.m16n8k16.f16", r)) for r in "ABD")
    }
    kernel.copy(held["A"], a)
    kernel.copy(held["B"], b)
    with kernel.when(kernel.warp, 2, at_least=1):
        kernel.gemm(held["D"], held["A"], held["B"], scope="cta")
        kernel.copy(o, held["D"])
    x, y = (each.astype(np.float16) for each in given((16, 16), (16, 8)))
    want = x.astype(np.float64) @ y.astype(np.float64)
    assert np.array_equal(kernel.lower().simulate(a=x, b=y)["o"], want)


def test_a_copy_of_an_element_on_another_is_seen() -> None:
    doubled = TileLayout.from_iters((Iter(4, 1),), (Iter(2, 1),))
    buffer = Buffer("s", (4,), "float32", "shared", doubled)
    message = (
        "copy: elements (0,) and (1,) of s[0:4] share address m 1: S[4:1] + R[2:1]; "
        "give each an address of its own, or say aliases=True"
    )
    with pytest.raises(LayoutError) as raised:
        check_distinct(buffer[0:4], "copy")
    assert str(raised.value) == message


def test_pitches_that_only_the_launch_knows_are_far_apart() -> None:
    n, k = (sympy.Symbol(name, integer=True, positive=True) for name in "nk")
    buffer = Buffer("s", (2, 2, 2), "float32", "global", TileLayout(S[(2, 2, 2) : (n, k, 1)]))
    check_distinct(buffer[0:2, 0:2, 0:2], "copy")
    same = Buffer("s", (2, 2, 2), "float32", "global", TileLayout(S[(2, 2, 2) : (n, n, 1)]))
    with pytest.raises(LayoutError, match="share address"):
        check_distinct(same[0:2, 0:2, 0:2], "copy")


def test_regions_that_exchange_their_places_stay_apart() -> None:
    buffer = Buffer("a", (16, 8), "float32", "global")
    begin = 8 * DigitSymbol("i", 2)
    check_disjoint(buffer[begin : begin + 8], buffer[8 - begin : 16 - begin], "copy")
    with pytest.raises(LayoutError, match="overlap: it would read what it has written"):
        check_disjoint(buffer[begin : begin + 8], buffer[8:16], "copy")


def test_columns_apart_are_apart_however_far_the_rows_move() -> None:
    rows = MOST + 2
    buffer = Buffer("a", (2 * rows, 2), "float32", "global")
    begin = DigitSymbol("i", rows)
    check_disjoint(buffer[begin : begin + rows, 0:1], buffer[0:rows, 1:2], "copy")
    with pytest.raises(LayoutError, match="overlap: it would read what it has written"):
        check_disjoint(buffer[begin : begin + rows, 0:1], buffer[0:rows, 0:2], "copy")


def test_of_copies_in_two_warps_the_first_stores_by_stmatrix() -> None:
    s = lw.Buffer("s", (16, 8), "f16", "shared")
    r = lw.Buffer("r", (16, 8), "f16", layout=D.layout)
    done = lowered(s, r, 64, dispatch="ldstmatrix")
    assert [type(op) for op in walk(done.ops)] == [When, StoreMatrix]
