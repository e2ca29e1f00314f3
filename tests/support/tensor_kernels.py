"""Kernels that multiply in tensor memory, for the tests: one CTA, or a pair of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import (
    S,
    TileLayout,
    parse,
    tcgen05_atom_layout,
    tid_in_wg,
    tmem_datapath_layout,
    tmem_mma_operand_layout,
    tmem_scale_layout,
    wg_local_layout,
)
from layoutalg.fragments import transposed
from layoutalg.layouts.hardware import swizzled_tile
from lowering.ir.tiles import Buffer
from lowering.isa import dtypes
from lowering.programs.kernel import Kernel

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """What is multiplied: C (m, n) of A (m, k) and B (k, n), and where each lies.

    ``flips``: A is stored (K, M), B (N, K). ``rows``: of an instruction. ``left``: where A lies.
    ``scale``: the type of the block scales and the elements of a block. ``accum``: add to what C
    held before, which threads store there; "turns": one step of K at a time in a loop that stays.
    ``group``: CTAs of a product.
    """

    a: str = "f16"
    b: str = ""
    out: str = "f32"
    sizes: tuple[int, int, int] = (128, 64, 64)
    flips: tuple[bool, bool] = (False, True)
    rows: int = 128
    left: str = "shared"
    scale: tuple[str, int] | None = None
    accum: bool | str = False
    scope: str = "thread"
    period: int = 128
    group: int = 1
    arch: str = "sm_100a"


def accumulator(m: int, n: int, rows: int) -> tuple[TileLayout, TileLayout]:
    """Return where C lies in tensor memory, and the registers of a warpgroup that hold it."""
    if m == rows == 64:
        return tmem_datapath_layout("F", 64, n), tcgen05_atom_layout("16x256b", (64, n), "float32")
    if rows == 64:  # two halves of the lanes
        return tuple(
            parse(f"S[(2,4,16,{n}):(16@{axis},32@{axis},1@{axis},1{unit})]")
            for axis, unit in (("TLane", "@TCol"), ("tid_in_wg", ""))
        )  # type: ignore[return-value]
    return tuple(
        parse(f"S[({m // 128},128,{n}):({n}{unit},1@{axis},1{unit})]")
        for axis, unit in (("TLane", "@TCol"), ("tid_in_wg", ""))
    )  # type: ignore[return-value]


def product(case: Case) -> Kernel:
    """Return a kernel of one CTA of 128 threads, which bring the operands and store C."""
    m, n, k = case.sizes
    kernel = Kernel("product", 128, case.arch)
    shapes = {"A": (k, m) if case.flips[0] else (m, k), "B": (n, k) if case.flips[1] else (k, n)}
    names = {"A": case.a, "B": case.b or case.a}
    step = 64 if case.accum == "turns" else k
    held: dict[str, Buffer] = {}
    for role, shape in shapes.items():
        given = kernel.param(role, shape, names[role])
        if role == "A" and case.left == "tmem":
            own = kernel.alloc("A_own", shape, case.a, layout=wg_local_layout(k))
            place = tmem_datapath_layout("D", m, k)
            held[role] = kernel.alloc("A_tensor", shape, case.a, "tmem", place)
            kernel.copy(own, given)
            kernel.copy(held[role], own)
            continue
        bits, along = given.dtype.bits, int(case.flips[role == "B"] == (role == "B"))
        tile = (k // step, *(step if at == along else extent for at, extent in enumerate(shape)))
        where = swizzled_tile(tile, min(case.period, tile[2] * bits // 8), bits)
        held[role] = kernel.alloc(f"{role}_tile", tile, given.dtype, "shared", where)
        for turn in range(k // step):
            part = slice(turn * step, (turn + 1) * step)
            source = given[part, :] if along == 0 else given[:, part]
            kernel.copy(held[role][turn], source)
    scales = scale_tiles(kernel, case) if case.scale else {}
    tensor, registers = accumulator(m, n, case.rows)
    total = kernel.alloc("C", (m, n), case.out, "tmem", tensor)
    own = kernel.alloc("C_own", (m, n), case.out, layout=registers)
    result = kernel.param("D", (m, n), case.out)
    done = kernel.barrier("done", 1, 1)
    if case.accum is True:
        kernel.copy(own, kernel.param("C0", (m, n), case.out))
        kernel.copy(total, own)
    kernel.sync()
    for place, _, tile_of in scales.values():
        kernel.copy(place, tile_of, scope=case.scope)
    config: dict[str, Any] = {role: region for role, (_, region, _) in scales.items()}
    config |= {"transA": case.flips[0], "transB": case.flips[1], "scope": case.scope}
    right = held["B"]
    if case.accum == "turns":
        with kernel.loop("turn", k // step) as turn:
            a = (
                held["A"][turn]
                if case.left == "shared"
                else held["A"][:, turn * 64 : turn * 64 + 64]
            )
            kernel.gemm_async(total, a, right[turn], accum=turn, **config)
    else:
        a = held["A"][0] if case.left == "shared" else held["A"]
        kernel.gemm_async(total, a, right[0], accum=case.accum, **config)
    kernel.commit("gemm", done)
    kernel.mbarrier_wait(done, 0, 0)
    kernel.copy(own, total)
    kernel.copy(result, own)
    return kernel


def scale_tiles(kernel: Kernel, case: Case) -> dict[str, tuple[Buffer, Any, Buffer]]:
    """Bring the scales to shared memory; return where they are to be, which part, and the tile.

    They are stored as A and B are: with K first where A is flipped, or B is not.
    """
    assert case.scale is not None
    (m, n, k), (token, block) = case.sizes, case.scale
    found = {}
    for role, rows, flip in (("SFA", m, case.flips[0]), ("SFB", n, not case.flips[1])):
        shape = (-(-rows // 128) * 128, k // block)
        chunks, chunk = max(1, shape[1] // 4), min(shape[1], 4)
        extents = (shape[0] // 128, 4, 32, chunks, chunk)
        tile = TileLayout(S[extents : (512 * chunks, 4, 16, 512, 1)])
        place = tmem_scale_layout(*shape)
        if flip:
            tile, place = transposed(tile, shape), transposed(place, shape)
            shape = shape[::-1]
        given = kernel.param(role, shape, token)
        held = kernel.alloc(f"{role}_tile", shape, token, "shared", tile)
        tensor = kernel.alloc(f"{role}_tensor", shape, token, "tmem", place)
        kernel.copy(held, given)
        found[role] = tensor, tensor[:, 0:rows] if flip else tensor[0:rows, :], held
    return found


def pair(case: Case) -> Kernel:
    """Return a kernel of pairs of CTAs: each brings its rows of A, its half of B's columns."""
    m, n, k = case.sizes
    rows = m // 2
    kernel = Kernel("pair", 128, case.arch, cluster=2)
    rank = kernel.rank()
    a, b = kernel.param("A", (m, k), case.a), kernel.param("B", (n, k), case.b or case.a)
    result = kernel.param("D", (m, n), case.out)
    tiles = {}
    for role, given, lines in (("A", a, rows), ("B", b, n // 2)):
        bits, shape = given.dtype.bits, (1, lines, k)
        own = given[rank * lines : rank * lines + lines, :]
        if role == "A" and case.left == "tmem":
            place = tmem_mma_operand_layout("A", (rows, k), m, 2)
            twice = "" if rows == 128 else " + R[2:64@tid_in_wg]"
            registers = parse(f"S[({rows},{k}):(1@tid_in_wg,1)]{twice}")
            tiles[role] = kernel.alloc("A_tensor", (rows, k), case.a, "tmem", place)
            held = kernel.alloc("A_own", (rows, k), case.a, layout=registers)
            kernel.copy(held, own)
            kernel.copy(tiles[role], held)
            continue
        tile = kernel.alloc(
            f"{role}_tile", shape, given.dtype, "shared", swizzled_tile(shape, case.period, bits)
        )
        kernel.copy(tile[0], own)
        tiles[role] = tile[0]
    place = tmem_mma_operand_layout("D", (rows, n), m, 2)
    total = kernel.alloc("C", (rows, n), case.out, "tmem", place)
    registers = (
        wg_local_layout(n) if rows == 128
        else TileLayout(S[(64, 2, n // 2) : (1 @ tid_in_wg, 64 @ tid_in_wg, 1)])
    )  # fmt: skip
    own = kernel.alloc("C_own", (rows, n), case.out, layout=registers)
    done = kernel.barrier("done", 1, 1)
    scales: dict[str, Buffer] = {}
    if case.scale:
        token, blocks = case.scale[0], k // case.scale[1]
        for role, lines, first in (("SFA", rows, rank * rows), ("SFB", n, 0)):
            given = kernel.param(role, (m if role == "SFA" else n, blocks), token)
            layout = parse(f"S[({lines // 128},4,32,{blocks}):(512,4,16,1)]")
            held = kernel.alloc(f"{role}_tile", (lines, blocks), token, "shared", layout)
            kernel.copy(held, given[first : first + lines, :])
            place = tmem_scale_layout(lines, blocks)
            scales[role] = kernel.alloc(f"{role}_tensor", (lines, blocks), token, "tmem", place)
            tiles[role] = held
    kernel.sync("cluster", memory=True)
    for role, place in scales.items():
        kernel.copy(place, tiles[role], scope=case.scope)
    config: dict[str, Any] = {**scales, "transB": True, "scope": case.scope, "cta_group": 2}
    kernel.gemm_async(total, tiles["A"], tiles["B"], **config)
    kernel.commit("gemm", done)
    kernel.mbarrier_wait(done, 0, 0)
    kernel.copy(own, total)
    kernel.copy(result[rank * rows : rank * rows + rows, :], own)
    return kernel


def values(rng: np.random.Generator, token: str, shape: tuple[int, ...]) -> Array:
    """Return random elements of a type, in float64: all integers, or floats around 0."""
    dtype = dtypes.get(token)
    low, high = dtype.integers
    if high:
        return rng.integers(low, high + 1, shape).astype(np.float64)
    if token == "ue8m0":
        return 2.0 ** rng.integers(-4, 5, shape)
    drawn = rng.standard_normal(shape) * (2 if token == "e2m1" else 1)
    drawn = abs(drawn) if token == "ue4m3" else drawn
    rounded: Array = drawn.astype(dtype.numpy).astype(np.float64)
    return rounded


def inputs(case: Case) -> tuple[dict[str, Array], Array]:
    """Return random operands as the kernel takes them, and C in float64."""
    m, n, k = case.sizes
    rng = np.random.default_rng(m + n + k)
    a, b = values(rng, case.a, (m, k)), values(rng, case.b or case.a, (k, n))
    given = {"A": a.T if case.flips[0] else a, "B": b.T if case.flips[1] else b}
    if case.a == "tf32":  # the tensor core reads the upper 19 bits
        cut = [
            (each.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
            for each in (a, b)
        ]
        a, b = (each.astype(np.float64) for each in cut)
    if case.scale:
        token, block = case.scale
        sfa, sfb = (values(rng, token, (-(-rows // 128) * 128, k // block)) for rows in (m, n))
        a = a * np.repeat(sfa[:m], block, axis=1)
        b = b * np.repeat(sfb[:n], block, axis=1).T
        given["SFA"] = sfa.T if case.flips[0] else sfa
        given["SFB"] = sfb if case.flips[1] else sfb.T
    total: Array = a @ b
    if case.accum is True:
        given["C0"] = values(rng, "s8", (m, n))
        total = total + given["C0"]
    return given, total


def agrees(kernel: Kernel, case: Case) -> bool:
    """Say whether the NumPy warp's C is the product: integers exactly."""
    given, want = inputs(case)
    found = kernel.lower().simulate(**given)["D"].astype(np.float64)
    if case.out == "s32":
        return bool((found == want).all())
    return bool(np.linalg.norm(found - want) < 1e-6 * np.linalg.norm(want))
