"""Five kernels as a user writes them: softmax, LayerNorm, split-K, int4 weights, a stencil."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import Iter, LayoutError, S, TileLayout, fragments, laneid, m, warpid
from lowering.programs.program import KernelProgram
from tests.support.kernel_texts import outputs

Array = np.ndarray[Any, Any]
ANY = 2**24  # an extent that the launch says


@dataclass(frozen=True)
class Case:
    """A kernel, what a launch of it is given, and what it is to write."""

    program: KernelProgram
    given: dict[str, Array]
    want: dict[str, Array]
    error: float  # largest, over the largest number that is wanted
    scalars: dict[str, Any] = field(default_factory=dict)
    grid: tuple[int, int] = (1, 1)


def softmax(rows: int = 13, cols: int = 512) -> Case:
    """Causal softmax of 8 rows a CTA; each row lies in four warps."""
    k = lw.Kernel("softmax", threads=128)
    scale, M = k.scalar("scale", "f32"), k.scalar("M")
    x, y = (k.param(name, (ANY, cols), "float32", bounds=(M, None)) for name in "xy")
    in_four_warps = S[(8, 4, 32, cols // 128) : (cols // 128, 1 @ warpid, 1 @ laneid, 1)]
    s = k.alloc("s", (8, cols), "float32", layout=TileLayout(in_four_warps))
    first = k.block[0] * 8
    k.copy(s, x[first : first + 8])
    k.assign(s, lw.where(lw.index(s, 1) <= lw.index(s, 0) + first, s * scale, -np.inf))
    p = k.tile("p", lw.exp2(s - lw.max(s, axis=1)))
    k.copy(y[first : first + 8], k.tile("o", p / lw.sum(p, axis=1)))

    data = np.random.default_rng(0).standard_normal((rows, cols)).astype(np.float32)
    exact = np.where(np.tri(rows, cols, dtype=bool), 0.5 * data.astype(float), -np.inf)
    exact = np.exp2(exact - exact.max(axis=1, keepdims=True))
    want = exact / exact.sum(axis=1, keepdims=True)
    scalars = {"scale": 0.5, "M": rows}
    return Case(k.lower(), {"x": data}, {"y": want}, 1e-6, scalars, (-(-rows // 8), 1))


def layer_norm(rows: int = 9, cols: int = 768) -> Case:
    """LayerNorm of f16 with statistics in f32: a warp a row, any number of rows."""
    k = lw.Kernel("layer_norm", threads=128)
    M = k.scalar("M")
    x, y = (k.param(name, (ANY, cols), "float16", bounds=(M, None)) for name in "xy")
    weight, bias = (k.param(name, (1, cols), "float16") for name in ("weight", "bias"))
    row_per_warp = TileLayout(S[(4, cols // 256, 32, 8) : (1 @ warpid, 8, 1 @ laneid, 1)])
    for_all_rows = row_per_warp.reduced((4, cols), axis=0)
    h = k.alloc("h", (4, cols), "float16", layout=row_per_warp)
    w, b = (k.alloc(name, (1, cols), "float16", layout=for_all_rows) for name in "wb")
    first = k.block[0] * 4
    k.copy(h, x[first : first + 4]), k.copy(w, weight), k.copy(b, bias)
    f = k.tile("f", lw.cast(h, "float32"))
    centred = k.tile("centred", f - lw.sum(f, axis=1) * (1 / cols))
    scale = k.tile("scale", lw.rsqrt(lw.sum(centred * centred, axis=1) * (1 / cols) + 1e-5))
    out = centred * scale * lw.cast(w, "float32") + lw.cast(b, "float32")
    k.copy(y[first : first + 4], k.tile("out", lw.cast(out, "float16")))

    rng = np.random.default_rng(1)
    given = {
        "x": rng.standard_normal((rows, cols)).astype(np.float16) + np.float16(2),
        "weight": rng.standard_normal((1, cols)).astype(np.float16),
        "bias": rng.standard_normal((1, cols)).astype(np.float16),
    }
    exact = {name: each.astype(float) for name, each in given.items()}
    d = exact["x"] - exact["x"].mean(axis=1, keepdims=True)
    want = d / np.sqrt((d * d).mean(axis=1, keepdims=True) + 1e-5) * exact["weight"] + exact["bias"]
    return Case(k.lower(), given, {"y": want}, 1e-3, {"M": rows}, (-(-rows // 4), 1))


def operand(k: lw.Kernel, name: str, role: str, rows: int, cols: int, dtype: str) -> lw.Buffer:
    """Return a register tile of one warp in the layout of an operand of m16n8k16."""
    layout = fragments.get("mma.m16n8k16.f16", role).tiled(rows, cols)
    return k.alloc(name, (rows, cols), dtype, layout=layout)


def split_k(parts: int = 4, depth: int = 128) -> Case:
    """A product whose depth is shared out over CTAs; their sums meet by atomic adds."""
    k = lw.Kernel("split_k")
    a, b = k.param("a", (32, depth), "float16"), k.param("b", (depth, 32), "float16")
    d = k.param("d", (32, 32), "float32")
    ra, rb = (operand(k, f"r{n}", n.upper(), *each, "float16")
              for n, each in (("a", (32, 16)), ("b", (16, 32))))  # fmt: skip
    rd = operand(k, "rd", "D", 32, 32, "float32")
    k.zero(rd)
    with k.loop("i", depth // parts // 16) as i:
        at = k.block[0] * (depth // parts) + i * 16
        k.copy(ra, a[:, at : at + 16]), k.copy(rb, b[at : at + 16])
        k.gemm(rd, ra, rb, beta=1)
    k.atomic_add(d, rd)
    rng = np.random.default_rng(2)
    given = {n: rng.standard_normal(e).astype(np.float16) for n, e in
             (("a", (32, depth)), ("b", (depth, 32)))}  # fmt: skip
    want = given["a"].astype(float) @ given["b"].astype(float)
    given["d"] = np.zeros((32, 32), np.float32)
    return Case(k.lower(), given, {"d": want}, 1e-5, {}, (parts, 1))


def int4_weights(depth: int = 128, group: int = 64) -> Case:
    """A product with weights of 4 bits, and a scale for each group of rows and column.

    In memory the elements of a lane lie together, in the order of its registers: the layout of the
    parameter is the operand's, with lanes as addresses. So a lane loads two words, and each becomes
    four words of f16 in place. A comes by cp.async, through a ring of three stages.
    """
    cols, stages, held = 32, 3, 16
    k = lw.Kernel("int4_weights")
    weight = fragments.get("mma.m16n8k16.f16", "B").tiled(16, cols)
    by_lane = [
        Iter(i.extent, i.stride * (held if i.axis is laneid else 1), m) for i in weight.shard
    ]
    a = k.param("a", (16, depth), "float16")
    w = k.param(
        "w",
        (depth, cols),
        "int4",
        TileLayout.from_iters([Iter(depth // 16, 32 * held, m), *by_lane]),
    )
    scales = k.param("scales", (depth // group, cols), "float16")
    d = k.param("d", (16, cols), "float32")
    ring = k.alloc("ring", (stages, 16, 16), "float16", "shared")
    ra, rb = operand(k, "ra", "A", 16, 16, "float16"), operand(k, "rb", "B", 16, cols, "float16")
    rd, part = (operand(k, name, "D", 16, cols, "float32") for name in ("rd", "part"))
    packed = operand(k, "packed", "B", 16, cols, "int4")
    column = k.alloc("column", (1, cols), "float16", layout=rd.layout.reduced((16, cols), axis=0))
    steps, each = depth // 16, group // 16
    k.zero(rd)
    for i in range(stages - 1):
        k.copy(ring[i], a[:, i * 16 : i * 16 + 16], asynchronous=True)
        k.commit()
    with k.loop("g", depth // group) as g:
        k.zero(part)
        with k.loop("i", each) as i:
            step = g * each + i
            k.wait(stages - 2)
            k.sync("warp")
            k.copy(ra, ring[step % stages])
            k.copy(packed, w[step * 16 : step * 16 + 16])
            k.assign(rb, lw.cast(packed, "float16"))
            k.gemm(part, ra, rb, beta=1)
            ahead = step + stages - 1
            with k.when(ahead < steps):
                k.copy(ring[ahead % stages], a[:, ahead * 16 : ahead * 16 + 16], asynchronous=True)
            k.commit()
        k.copy(column, scales[g : g + 1])
        k.assign(rd, rd + part * lw.cast(column, "float32"))
    k.copy(d, rd)

    rng = np.random.default_rng(3)
    given = {
        "a": rng.standard_normal((16, depth)).astype(np.float16),
        "w": rng.integers(-8, 8, (depth, cols)),
        "scales": rng.uniform(0.5, 2, (depth // group, cols)).astype(np.float16),
    }
    exact = given["w"] * np.repeat(given["scales"].astype(float), group, axis=0)
    return Case(k.lower(), given, {"d": given["a"].astype(float) @ exact}, 1e-5)


def stencil(height: int = 37, width: int = 50) -> Case:
    """Five points; tiles of 16 x 32 with halos in shared memory, zero beyond the edges."""
    k = lw.Kernel("stencil", threads=128)
    H, W = k.scalar("H"), k.scalar("W")
    rows = TileLayout(S[(ANY, ANY) : (W, 1)])
    x, y = (k.param(name, (ANY, ANY), "float32", rows, (H, W)) for name in "xy")
    halo = k.alloc("halo", (18, 34), "float32", "shared")
    row, col = k.block[1] * 16, k.block[0] * 32
    k.copy(halo, x[row - 1 : row + 17, col - 1 : col + 33])
    k.sync()
    tile = TileLayout(S[(4, 4, 32) : (1 @ warpid, 1, 1 @ laneid)])

    def moved(name: str, down: int, right: int) -> lw.Buffer:
        found = k.alloc(name, (16, 32), "float32", layout=tile)
        k.copy(found, halo[1 + down : 17 + down, 1 + right : 33 + right])
        return found

    around = [moved(n, *by) for n, by in (("north", (-1, 0)), ("south", (1, 0)),
                                          ("west", (0, -1)), ("east", (0, 1)))]  # fmt: skip
    total = k.tile("total", around[0] + around[1] + around[2] + around[3] - moved("here", 0, 0) * 4)
    k.copy(y[row : row + 16, col : col + 32], total)
    data = np.random.default_rng(4).standard_normal((height, width)).astype(np.float32)
    p = np.pad(data.astype(float), 1)
    want = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * p[1:-1, 1:-1]
    sizes = {"H": height, "W": width}
    grid = -(-width // 32), -(-height // 16)
    return Case(k.lower(), {"x": data}, {"y": want}, 1e-6, sizes, grid)


CASES: dict[str, Callable[[], Case]] = {
    each.__name__: each for each in (softmax, layer_norm, split_k, int4_weights, stencil)
}
each_case = pytest.mark.parametrize("name", CASES)


def check(case: Case, found: dict[str, Array]) -> None:
    """Compare with what is wanted, in float64."""
    for name, want in case.want.items():
        far = np.abs(found[name].astype(float) - want).max()
        assert far <= case.error * np.abs(want).max(), (name, far)


@each_case
def test_on_the_numpy_warp(name: str) -> None:
    case = CASES[name]()
    empty = {each: np.zeros(want.shape) for each, want in case.want.items()} | case.given
    check(case, case.program.simulate(grid=case.grid, **empty, **case.scalars))


@each_case
def test_machine_code(name: str) -> None:
    assert CASES[name]().program.whole("sm_90a")


@pytest.mark.gpu
@each_case
def test_on_a_device(name: str) -> None:
    case = CASES[name]()
    empty = {each: np.zeros(want.shape) for each, want in case.want.items()} | case.given
    for compiler in ("nvrtc", "numba"):
        check(case, case.program.run(case.grid, compiler, **empty, **case.scalars))


def test_the_weights_in_both_texts() -> None:
    case = int4_weights()
    for _, found in outputs(case.program, case.given):
        check(case, found)


def test_rows_of_a_free_matrix_lie_as_far_apart_as_it_is_wide() -> None:
    k = lw.Kernel("k")
    H, W = k.scalar("H"), k.scalar("W")
    x, y = (k.param(name, (ANY, ANY), "float32", bounds=(H, W)) for name in "xy")
    assert x.layout == TileLayout(S[(ANY, ANY) : (W, 1)])
    tile = k.alloc("tile", (4, 32), "float32", layout=TileLayout(S[(4, 32) : (1, 1 @ laneid)]))
    col, row = k.block[0] * 32, k.block[1] * 4
    k.copy(tile, x[row : row + 4, col : col + 32])
    k.copy(y[row : row + 4, col : col + 32], tile)
    data = np.arange(7 * 50, dtype=np.float32).reshape(7, 50)
    found = k.lower().simulate(grid=(2, 2), x=data, H=7, W=50)["y"]
    assert np.array_equal(found, data)


def test_a_whole_matrix_of_another_shape_is_told_of_free_extents() -> None:
    k = lw.Kernel("k")
    x = k.param("x", (64, 4), "float32", bounds=(k.scalar("H"), None))
    tile = k.alloc("tile", (32, 4), "float32", layout=TileLayout(S[(32, 4) : (1 @ laneid, 1)]))
    k.copy(tile, x[0:32]), k.copy(x[0:32], tile)
    program = k.lower()
    with pytest.raises(LayoutError, match=r"got \(5, 4\)\. Copies stay below H.*2\*\*24"):
        program.simulate(x=np.ones((5, 4)), H=5)


@pytest.mark.parametrize(
    ("first", "at"),
    [(lambda b: b > 0, (0, 1, 1)), (lambda b: b * 2 - 3 < 0, (1, 1, 0)),
     (lambda b: b <= 1, (1, 1, 0)), (lambda b: b - 1 >= 0, (0, 1, 1))],
)  # fmt: skip
def test_a_comparison_of_indices_is_a_condition_of_where(
    first: Callable[[Any], Any], at: tuple[int, ...]
) -> None:
    k = lw.Kernel("k")
    y = k.param("y", (96, 4), "float32")
    tile = k.alloc("tile", (32, 4), "float32", layout=TileLayout(S[(32, 4) : (1 @ laneid, 1)]))
    row = k.block[0] * 32
    k.zero(tile)
    k.assign(tile, lw.where(first(k.block[0]), tile + 1, tile))
    k.copy(y[row : row + 32], tile)
    found = k.lower().simulate(grid=(3, 1))["y"]
    assert np.array_equal(found, np.repeat(at, 32)[:, None] * np.ones((1, 4)))


def test_equality_of_tiles_by_python_names_equal() -> None:
    k = lw.Kernel("k")
    tile = k.alloc("tile", (32, 4), "float32", layout=TileLayout(S[(32, 4) : (1 @ laneid, 1)]))
    with pytest.raises(LayoutError, match=r"where: .* got False.*take equal\(a, b\)"):
        lw.where(tile == 0, tile, 1)
