"""Kernels for whole matrices, built from layouts alone: ``D = alpha·A·B + beta·C``.

Global memory → ``cp.async`` → a ring of swizzled shared tiles → ``ldmatrix`` → ``mma.sync`` in
registers → shared memory → 16-byte stores. Sizes and pitches are scalars of the launch: one kernel
serves every problem of a :class:`Form`. No address is written here: each follows from the layouts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from layoutalg import LayoutError, S, TileLayout, warpid
from layoutalg.algebra.axis import WARP, Axis
from layoutalg.fragments import transposed
from layoutalg.layouts.swizzle import ComposeLayout
from lowering.ir.index import FREE, Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.matrices import Matrix, poison
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tiles import Buffer, BufferRegion
from lowering.isa import dtypes
from lowering.isa.dtypes import OUTPUTS, DType
from lowering.isa.mma import MMA_INSTRUCTIONS, MmaInst, compute_capability
from lowering.launch.arguments import arguments
from lowering.launch.arguments import simulate as launched
from lowering.programs.kernel import Kernel, KernelProgram

EDGE = 8  # elements: what divides every size and pitch, so that vectors end at the edges
VECTOR = 16  # bytes of a copy
PERIOD = 128  # bytes of a row of a swizzled tile, at most
EPILOGUES = ("", "alpha", "beta")  # D = A·B, alpha·A·B, alpha·A·B + beta·C
STEP = 16  # K of the instructions


@dataclass(frozen=True)
class Form:
    """What problems one kernel serves, whatever their sizes and pitches.

    ``transpose_A``: A is stored K x M; ``transpose_B``: B is stored N x K. ``edges``: the
    dimensions among M and N that need not be multiples of the tile. ``whole``: K is a multiple of a
    round of the ring of tiles; else any.

    >>> print(Form("float16", "float32", transpose_B=True))
    f16_f32_NT
    """

    dtype: DType
    out: DType
    transpose_A: bool = False  # noqa: N815
    transpose_B: bool = False  # noqa: N815
    edges: bool = True
    epilogue: str = ""
    whole: bool = False

    def __init__(
        self,
        dtype: str | DType = "float16",
        out: str | DType | None = None,
        transpose_A: bool = False,
        transpose_B: bool = False,
        edges: bool = True,
        epilogue: str = "",
        whole: bool = False,
    ) -> None:
        """Convert, then check.

        Raises:
            LayoutError: types that :data:`OUTPUTS` does not list, an epilogue that is unknown or
                scales integers, or 8-bit operands with M or N in consecutive cells.
        """
        given = dtypes.get(dtype)
        known = OUTPUTS.get(given.token, ())
        made = dtypes.get(known[0] if out is None and known else out or given)
        if made.token not in known:
            raise LayoutError(
                f"matmul: takes f16 or bf16 and returns f32 or the same, takes e4m3 or e5m2 and "
                f"returns f32, f16 or bf16, takes s8 or u8 and returns s32; got {given} and {made}"
            )
        if epilogue not in EPILOGUES or (epilogue and made.token == "s32"):
            raise LayoutError(
                f"matmul: the epilogue must be one of {EPILOGUES}, that of s32 the first; got "
                f"{epilogue!r}"
            )
        if given.bits == 8 and (transpose_A, transpose_B) != (False, True):
            raise LayoutError(
                f"matmul: of {given} K must lie in consecutive cells, in the rows of A and in the "
                f"columns of B; got transpose_A={transpose_A}, transpose_B={transpose_B}"
            )
        for key, value in (
            ("dtype", given), ("out", made), ("transpose_A", bool(transpose_A)),
            ("transpose_B", bool(transpose_B)), ("edges", bool(edges)), ("epilogue", epilogue),
            ("whole", bool(whole)),
        ):  # fmt: skip
            object.__setattr__(self, key, value)

    @property
    def row(self) -> MmaInst:
        """The instruction: the largest K for the type."""
        return next(row for row in MMA_INSTRUCTIONS if row.a == self.dtype)

    def fitted(self, sizes: Sequence[int], config: Config) -> Form:
        """Return the form without edges where tiles of the config cover M, N or K exactly.

        >>> fitted = Form("float16").fitted((256, 256, 40), Config())
        >>> fitted.edges, fitted.whole
        (False, False)
        """
        exact = all(n % tile == 0 for n, tile in zip(sizes[:2], config.tile[:2], strict=True))
        whole = sizes[2] % (config.tile[2] * config.stages) == 0
        return replace(self, edges=not exact, whole=whole)

    def __str__(self) -> str:
        """Return a short name, an identifier."""
        flips = "".join("T" if flip else "N" for flip in (self.transpose_A, self.transpose_B))
        parts = [self.dtype.token, self.out.token, flips, self.epilogue]
        parts += ["" if self.edges else "even", "whole" if self.whole else ""]
        return "_".join(part for part in parts if part)


@dataclass(frozen=True)
class Config:
    """How a kernel is cut: CTA tile (M, N, K), warps along M and N, stages of the ring, raster.

    ``group``: how many rows of tiles consecutive CTAs share before they go on along N. ``spread``:
    whether the copies of the next stage are spread over K steps. ``bulk``: by the copy engine
    (sm_90), which completes mbarriers, so that no barrier of the CTA stands in the loop.
    ``producer``: a further warpgroup orders the copies (sm_90a). ``wgmma``: by the asynchronous
    tensor core (sm_90a), see :mod:`lowering.kernels.matmul_warp_specialized`: warps along M come in
    fours. ``cluster``: 2: pairs of CTAs share the larger operand of their tiles, see :attr:`span`;
    then ``group`` counts rows of pairs.

    >>> print(Config())
    128x256x64_2x4_s3_g8
    >>> Config().threads
    256
    """

    tile: tuple[int, int, int] = (128, 256, 64)
    warps: tuple[int, int] = (2, 4)
    stages: int = 3
    group: int = 8
    swizzle: int = PERIOD
    spread: bool = True
    bulk: bool = False
    producer: bool = False
    wgmma: bool = False
    cluster: int = 1

    def __post_init__(self) -> None:
        """Check what no instruction depends on.

        Raises:
            LayoutError: a warp would have no whole mma tiles, fewer than two stages, or a group, a
                swizzle or a cluster that is none.
        """
        numbers = (*self.tile, *self.warps, self.stages, self.group, self.swizzle, self.cluster)
        truths = (self.spread, self.bulk, self.producer, self.wgmma)
        if (
            (len(self.tile), len(self.warps)) != (3, 2)
            or any(type(each) is not int or each < 1 for each in numbers)
            or any(type(each) is not bool for each in truths)
        ):
            raise LayoutError(
                "matmul: a config has a tile of three sizes, two counts of warps, stages, a group, "
                f"a swizzle and a cluster, all ints of 1 or more, and truths; got {self!r}"
            )
        if self.wgmma:
            self._check_wgmma()
        if self.cluster > 1 and not (
            self.wgmma and self.cluster == 2 and max(self.tile[:2]) % (64 * self.cluster) == 0
        ):
            raise LayoutError(
                "matmul: a cluster is a pair of CTAs that goes by wgmma, and of the operand that "
                f"both share each loads a half, whole blocks of 64; got {self.cluster} CTAs, "
                f"wgmma={self.wgmma} and the tile {self.tile}"
            )
        (m, n, k), (along_m, along_n) = self.tile, self.warps
        if m % (16 * along_m) or n % (16 * along_n) or k % 16 or min(self.tile) < 16:
            raise LayoutError(
                f"matmul: each warp needs whole tiles of 16x16, and K whole steps of 16; got the "
                f"tile {self.tile} over {self.warps} warps"
            )
        if self.stages < 2 or self.group < 1:
            raise LayoutError(
                f"matmul: needs 2 stages at least and a group of 1 at least; got {self.stages} and "
                f"{self.group}"
            )
        if self.steps * self.stages % 2 and not self.wgmma:
            raise LayoutError(
                f"matmul: fragments alternate between two sets of registers: stages times K steps "
                f"must be even; got {self.stages} and {self.steps}"
            )
        if not self.bulk and any(rows * k // EDGE % self.threads for rows in (m, n)):
            raise LayoutError(
                f"matmul: {self.threads} threads must copy the tiles of A and B in whole vectors "
                f"of {EDGE}, each as many; got the tile {self.tile}"
            )
        if self.producer and not (self.wgmma or (self.bulk and self.threads == 256)):
            raise LayoutError(
                f"matmul: a producer serves bulk copies and 8 warps, whose registers with its own "
                f"fill the file; got bulk={self.bulk} and {self.warps} warps"
            )
        if self.swizzle not in (32, 64, 128):
            raise LayoutError(f"matmul: the swizzle must be 32, 64 or 128; got {self.swizzle}")

    def _check_wgmma(self) -> None:
        """Check what whole warpgroups and the copy engine ask for."""
        if (
            self.warps not in ((4, 1), (8, 1))
            or self.tile[0] % (16 * self.warps[0])
            or self.tile[1] % 64
        ):
            raise LayoutError(
                f"matmul: wgmma takes one or two warpgroups of 4 warps along M, each with whole "
                f"blocks of 64 columns; got the tile {self.tile} over {self.warps} warps"
            )
        if not (self.bulk and self.producer and self.swizzle == PERIOD):
            raise LayoutError(
                f"matmul: wgmma needs bulk copies by a producer, swizzled by {PERIOD} bytes; got "
                f"bulk={self.bulk}, producer={self.producer}, swizzle={self.swizzle}"
            )

    @property
    def steps(self) -> int:
        """K steps of a tile: one mma deep each."""
        return self.tile[2] // STEP

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return WARP * self.warps[0] * self.warps[1]

    def __str__(self) -> str:
        """Return a short name, an identifier once ``x`` and ``_`` are taken as they are."""
        tile, warps = "x".join(map(str, self.tile)), "x".join(map(str, self.warps))
        rest = "" if self.swizzle == PERIOD else f"_w{self.swizzle}"
        rest += "" if self.spread else "_together"
        rest += "_bulk" if self.bulk else ""
        rest += "_producer" if self.producer else ""
        rest += "_wgmma" if self.wgmma else ""
        rest += f"_c{self.cluster}" if self.cluster > 1 else ""
        return f"{tile}_{warps}_s{self.stages}_g{self.group}{rest}"

    def runs_on(self, arch: str) -> bool:
        """Say whether a target has what the config uses; a producer, sm_90 alone.

        >>> [Config(bulk=True).runs_on(arch) for arch in ("sm_80", "sm_90", "sm_120")]
        [False, True, True]
        """
        version = compute_capability(arch)[:2]
        return version >= ((9, 0) if self.bulk else (8, 0)) and (
            not self.producer or version == (9, 0)
        )

    def shared_bytes(self, form: Form) -> int:
        """Return the bytes of shared memory that a kernel takes, barriers left out.

        >>> Config().shared_bytes(Form("float16")) == matmul_program(
        ...     Form("float16"), Config()).body.shared_bytes
        True
        """
        m, n, k = self.tile
        ring = self.stages * (m + n) * k * form.dtype.bits // 8
        if self.wgmma:
            return ring + 2 * 64 * self.threads // WARPGROUP * PERIOD + 16 * self.stages
        staging = 2 * STEP * self.warps[0] * n * 2 if form.out.bits == 16 else 0
        return ring + staging

    def target(self, arch: str) -> str:
        """Return the target to compile for on a device: with the suffix that a producer needs.

        >>> Config().target("sm_90"), Config(bulk=True, producer=True).target("sm_90")
        ('sm_90', 'sm_90a')
        """
        return arch if arch.endswith(("a", "f")) else arch + "a" * self.producer

    @property
    def shared(self) -> str:
        """The operand that the CTAs of a cluster share: the one whose tiles are larger, else B.

        >>> pair = Config(warps=(8, 1), bulk=True, producer=True, wgmma=True, cluster=2)
        >>> pair.shared, pair.span
        ('B', (256, 256))
        """
        return "" if self.cluster == 1 else "B" if self.tile[1] >= self.tile[0] else "A"

    @property
    def span(self) -> tuple[int, int]:
        """Rows and columns of a cluster's tiles: side by side along M where they share B, else N.

        >>> Config().span
        (128, 256)
        """
        m, n, _ = self.tile
        return (m, n * self.cluster) if self.shared == "A" else (m * self.cluster, n)

    def grid(self, rows: int, cols: int) -> tuple[int, int]:
        """Return the extents of the grid (bx, by) for a result of so many rows and columns.

        By wgmma they count clusters, whose tiles are then dealt out to the CTAs.

        >>> Config(group=4).grid(8192, 8192)
        (128, 16)
        """
        down, across = (
            -(-size // tile) for size, tile in zip((rows, cols), self.span, strict=True)
        )
        return self.group * across, -(-down // self.group)


def tiles_along(tile: int, config: Config) -> int:
    """Return how many tiles lie along M or N at most, those beyond the last row included.

    >>> tiles_along(256, Config(group=8))
    65552
    """
    return -(-FREE // tile) + 2 * config.group * config.cluster


def cta_swizzle(
    group: int, along: Index | None = None, groups: Index | None = None
) -> tuple[Index, Index]:
    """Return the row and the column of the tile of CTA (bx, by), or of two other numbers.

    They come from a layout over (groups, rows of a group, columns): ``by`` counts groups of rows,
    ``bx`` runs down a group, then along N, so that CTAs that run together share operands in L2.

    >>> [str(index) for index in cta_swizzle(8)]
    ['bx % 8 + by * 8', 'bx // 8']
    """
    bx, by = (Axis.get(name) for name in ("bx", "by"))
    shape = (FREE // group * group, FREE)
    order = TileLayout(S[(FREE // group, group, FREE) : (1 @ by, 1 @ bx, group @ bx)])
    inverse = order.inverse(shape)
    place = [Index((), int(value)) for value in inverse.base]
    values = {"bx": along or Index.free("bx"), "by": groups or Index.free("by")}
    for axis in inverse.axes:
        for digit_place, digit in inverse.digits(axis, values[axis.name]):
            if digit_place is not None and digit_place.dim is not None:
                place[digit_place.dim] += digit * int(digit_place.weight)
    return place[0], place[1]


def swizzled(shape: tuple[int, ...], period: int, bits: int) -> ComposeLayout:
    """Return tiles in shared memory as blocks of columns one period wide, XOR-swizzled by 16 bytes.

    Args:
        shape: (tiles, rows, columns).
        period: bytes of a row of a block, at most.
        bits: of an element.

    >>> print(swizzled((2, 8, 128), 128, 16))
    ComposeLayout(3, 3, 3, S[(2,8,2,64):(1024,64,512,1)])
    """
    tiles, rows, cols = shape
    unit = 8 * VECTOR // bits
    width = math.gcd(cols, 8 * period // bits)
    layout = TileLayout(
        S[(tiles, rows, cols // width, width) : (rows * cols, width, rows * width, 1)]
    )
    return ComposeLayout(unit.bit_length() - 1, (width // unit).bit_length() - 1, 3, layout)


@dataclass(frozen=True)
class Operand:
    """A or B on its way: the parameter, the ring of shared tiles, two fragments in registers.

    ``flip``: stored with K first for A, with K last for B.
    """

    given: Buffer
    ring: Buffer
    held: tuple[Buffer, Buffer]
    flip: bool
    k_first: bool

    def pieces(self, most: int, threads: int) -> int:
        """Return into how many parts of whole rows a K tile is cut: ``most`` if all copy alike."""
        rows, cols = self.ring.shape[1:]
        vectors = rows * cols // EDGE // threads
        return most if rows % most == 0 and vectors % most == 0 else 1

    def load(
        self, kernel: Kernel, stage: int, start: Any, step: Any, part: tuple[int, int]
    ) -> None:
        """Copy a part of a K tile into a stage: ``part`` is (index, how many)."""
        rows, cols = self.ring.shape[1:]
        index, count = part
        span = rows // count
        begin = (step * rows, start) if self.k_first else (start, step * cols)
        top = begin[0] + index * span
        kernel.copy(
            self.ring[stage, index * span : (index + 1) * span],
            self.given[top : top + span, begin[1] : begin[1] + cols],
            asynchronous=True,
        )

    def tile(self, stage: int, start: Any, step: Any) -> tuple[BufferRegion, BufferRegion]:
        """Return a stage, and the K tile that goes there."""
        rows, cols = self.ring.shape[1:]
        row, col = (step * rows, start) if self.k_first else (start, step * cols)
        return self.ring[stage], self.given[row : row + rows, col : col + cols]

    def fetch(self, kernel: Kernel, stage: int, step: int, slot: int) -> None:
        """Copy the fragments of one K step of a stage into registers."""
        depth = self.held[slot].shape[0 if self.k_first else 1]
        along = slice(step * depth, (step + 1) * depth)
        rows, cols = (along, slice(None)) if self.k_first else (slice(None), along)
        kernel.copy(self.held[slot], self.ring[stage, rows, cols])


def fragments_over(config: Config, row: MmaInst) -> dict[str, tuple[TileLayout, tuple[int, int]]]:
    """Return the register layouts of D, and of A and B for one K step, over all warps of a CTA.

    Rows of tiles go round the warps: the first one of each, then the second one of each. So what
    all warps hold as their n-th makes a block of whole rows, which the epilogue stores at once.
    """
    (m, n, _), (along_m, along_n) = config.tile, config.warps
    d, a, b = (row.fragment(role).layout for role in "DAB")
    wide = n // along_n

    def over(layout: TileLayout, grid: tuple[int, int], tile: tuple[int, int]) -> TileLayout:
        warps = TileLayout(S[grid : (along_n @ warpid, 1 @ warpid)])
        return layout.tile(warps, grid, tile)

    d = over(d.tile_to((row.m, wide), (row.m, row.n)), config.warps, (row.m, wide))
    a = over(a, (along_m, 1), (row.m, row.k))
    b = over(b.tile_to((row.k, wide), (row.k, row.n)), (1, along_n), (row.k, wide))
    return {
        "D": (d.tile_to((m, n), (row.m * along_m, n)), (m, n)),
        "A": (a.tile_to((m, row.k), (row.m * along_m, row.k)), (m, row.k)),
        "B": (b, (row.k, n)),
    }


def _operand(kernel: Kernel, form: Form, config: Config, role: str) -> Operand:
    """Declare the buffers of A or B."""
    flip = form.transpose_A if role == "A" else form.transpose_B
    m, n, k = config.tile
    stored, names = {"A": ((m, k), ("M", "K")), "B": ((k, n), ("K", "N"))}[role]
    layout, shape = fragments_over(config, form.row)[role]
    if flip:
        layout, shape = transposed(layout, shape), shape[::-1]
        stored, names = stored[::-1], names[::-1]
    bounds = tuple(name if form.edges or name == "K" else None for name in names)
    pitch = kernel.scalar(f"pitch{role}")
    given = kernel.param(role, (FREE, FREE), form.dtype, pitched(pitch), bounds, EDGE)
    tiles = (config.stages, *stored)
    ring = kernel.alloc(
        f"{role}_ring",
        tiles,
        form.dtype,
        "shared",
        swizzled(tiles, config.swizzle, form.dtype.bits),
    )
    held = tuple(
        kernel.alloc(f"{role}_held{slot}", shape, form.dtype, layout=layout) for slot in range(2)
    )
    return Operand(given, ring, (held[0], held[1]), flip, names[0] == "K")


def pitched(pitch: Any) -> TileLayout:
    """Return a matrix in memory whose rows are ``8*pitch`` elements apart."""
    return TileLayout(S[(FREE, FREE) : (EDGE * pitch, 1)])


def matmul_program(form: Form, config: Config, arch: str = "sm_90") -> KernelProgram:
    """Return the kernel of a form, cut as a config says.

    Its parameters are A, B, (C,) D, then the scalars M, N, K, the pitches in units of 8 elements,
    and where the epilogue has them alpha and beta.

    Raises:
        LayoutError: the shared tiles do not fit.
        DispatchError: a copy or a product of the config fits no variant.
    """
    if form.dtype.bits != 16:
        raise LayoutError(f"matmul: {form.dtype} goes by wgmma alone; got the config {config}")
    kernel = Kernel(f"matmul_{form}_{config}", config.threads, config.target(arch))
    sizes = {name: kernel.scalar(name) for name in "MNK"}
    tile_m, tile_n, tile_k = config.tile
    a, b = (_operand(kernel, form, config, role) for role in "AB")
    layout, shape = fragments_over(config, form.row)["D"]
    total = kernel.alloc("D_held", shape, "float32", layout=layout)
    finish = Epilogue(kernel, form, config, total)
    row, col = (
        kernel.let(name, place, tiles_along(tile, config))
        for name, place, tile in zip(
            ("row", "col"), cta_swizzle(config.group), config.tile[:2], strict=True
        )
    )
    with kernel.when(row * tile_m, sizes["M"]):
        tiles = kernel.let("tiles", (Index.free("K") + (tile_k - 1)) // tile_k)
        rounds = kernel.let("rounds", (Index.free("tiles") + (config.stages - 1)) // config.stages)
        loop = _bulk_loop if config.bulk else _main_loop
        starts = (row * tile_m, col * tile_n)
        loop(kernel, form, config, (a, b), starts, total, tiles, rounds)
        finish.write(row * tile_m, col * tile_n)
    return kernel.lower()


def _main_loop(
    kernel: Kernel,
    form: Form,
    config: Config,
    operands: tuple[Operand, Operand],
    starts: tuple[Any, Any],
    total: Buffer,
    tiles: Any,
    rounds: Any,
) -> None:
    """Add the K loop: stage s+1 arrives and fragment f+1 is fetched while fragment f is used.

    The loop goes round the ring, so that each stage's addresses are constants. Tiles beyond K come
    as zeros, so that no copy and no fetch needs a branch.
    """
    stages, parts = config.stages, max(1, config.steps // 2) if config.spread else 1

    def load(stage: int, tile: Any, part: int) -> None:
        for operand, start in zip(operands, starts, strict=True):
            count = operand.pieces(parts, config.threads)
            if part < count:
                operand.load(kernel, stage, start, tile, (part, count))

    def fetch(stage: int, step: int, slot: int) -> None:
        for operand in operands:
            operand.fetch(kernel, stage, step, slot)

    kernel.zero(total)
    for stage in range(stages - 1):
        for part in range(parts):
            load(stage, stage, part)
        kernel.commit()
    kernel.wait(stages - 2)
    kernel.sync()
    fetch(0, 0, 0)
    with kernel.loop("round", rounds) as turn:
        for stage in range(stages):
            tile = turn * stages + stage
            with nullcontext() if form.whole else kernel.when(tile, tiles):
                for step in range(config.steps):
                    last = step == config.steps - 1
                    if last:
                        if step < parts:  # one step alone: its copies come before the wait
                            load((stage - 1) % stages, tile + (stages - 1), step)
                        kernel.commit()
                        kernel.wait(stages - 2)
                        kernel.sync()
                    slot = (stage * config.steps + step) % 2
                    fetch((stage + last) % stages, (step + 1) % config.steps, 1 - slot)
                    if step < parts and not last:
                        load((stage - 1) % stages, tile + (stages - 1), step)
                    kernel.gemm(
                        total, operands[0].held[slot], operands[1].held[slot], total, beta=1,
                        transpose_A=operands[0].flip, transpose_B=operands[1].flip,
                    )  # fmt: skip
    kernel.wait(0)


def _bulk_loop(
    kernel: Kernel,
    form: Form,
    config: Config,
    operands: tuple[Operand, Operand],
    starts: tuple[Any, Any],
    total: Buffer,
    tiles: Any,
    rounds: Any,
) -> None:
    """Add the K loop with tiles that one thread orders from the copy engine.

    A stage is ``full`` once its bytes have come. It is ``free`` once every warp has begun the tile
    after it. The arrival, by one lane, releases what ``ldmatrix`` read before in all lanes that a
    barrier of the warp has put before it; it stands a K step later than the last of them, since one
    right behind it, without that barrier, was seen to race on an H200. Tile 0 so arrives once for
    a stage that was never filled, and each stage is free for its n-th turn with phase n. One tile
    beyond the last is ordered too, zeros: the last tile waits for it as every other does.
    """
    stages, warps = config.stages, config.warps[0] * config.warps[1]
    full, free = kernel.barrier("full", stages, 1), kernel.barrier("free", stages, warps)

    def copies(stage: int, tile: Any) -> list[tuple[BufferRegion, BufferRegion]]:
        return [
            operand.tile(stage, start, tile)
            for operand, start in zip(operands, starts, strict=True)
        ]

    def fetch(stage: int, step: int, slot: int) -> None:
        for operand in operands:
            operand.fetch(kernel, stage, step, slot)

    def multiply(slot: int, rows: slice) -> None:
        a, b = (operand.held[slot] for operand in operands)
        part = a[:, rows] if operands[0].flip else a[rows]
        kernel.gemm(
            total[rows], part, b, total[rows], beta=1,
            transpose_A=operands[0].flip, transpose_B=operands[1].flip,
        )  # fmt: skip

    if config.producer:
        with kernel.producer(), kernel.loop("turn", rounds + 1) as turn:
            for stage in range(stages):
                tile = turn * stages + stage
                with kernel.when(tile, tiles + 1):
                    phase = (free, stage, turn + int(stage < stages - 1))
                    kernel.tma_load(full, stage, copies(stage, tile), phase)
    kernel.zero(total)
    for stage in range(0 if config.producer else stages - 1):
        with kernel.when(stage - 1, tiles) if stage else nullcontext():
            kernel.tma_load(full, stage, copies(stage, stage))
    kernel.mbarrier_wait(full, 0, 0)
    fetch(0, 0, 0)
    rows = config.tile[0]
    half = rows // 2 if rows % (32 * config.warps[0]) == 0 else rows
    with kernel.loop("round", rounds) as turn:
        for stage in range(stages):
            tile, before, after = turn * stages + stage, (stage - 1) % stages, (stage + 1) % stages
            with nullcontext() if form.whole else kernel.when(tile, tiles):
                kernel.sync("warp")
                kernel.arrive(free, before)
                for step in range(config.steps):
                    slot = (stage * config.steps + step) % 2
                    if step == (config.steps - 1) // 2 and not config.producer:
                        with kernel.when(tile + (stages - 2), tiles):
                            phase = (free, before, turn)
                            kernel.tma_load(
                                full, before, copies(before, tile + (stages - 1)), phase
                            )
                    if step < config.steps - 1:
                        fetch(stage, step + 1, 1 - slot)
                        multiply(slot, slice(0, rows))
                        continue
                    phase = (full, after, turn + (stage + 1) // stages)
                    kernel.try_wait(*phase)
                    multiply(slot, slice(0, half))
                    kernel.mbarrier_wait(*phase, tried=True)
                    fetch(after, 0, 1 - slot)
                    if half < rows:
                        multiply(slot, slice(half, rows))


class Epilogue:
    """Writes ``alpha·D + beta·C`` as the form says, a block of whole rows after the other.

    Where the output has 16 bits, a block goes through shared memory, so that whole rows leave in
    16-byte vectors; f32 leaves straight from the registers, four lanes filling 32 bytes.
    """

    def __init__(self, kernel: Kernel, form: Form, config: Config, total: Buffer) -> None:
        """Declare the buffers that the form needs."""
        self.kernel, self.form, self.total = kernel, form, total
        self.rows, self.cols = form.row.m * config.warps[0], config.tile[1]
        self.blocks = config.tile[0] // self.rows
        layout = fragments_over(config, form.row)["D"][0].slice(
            total.shape, ((0, self.rows), (0, self.cols))
        )
        shape = (self.rows, self.cols)
        bounds = ("M", "N") if form.edges else None
        self.given: Buffer | None = None
        self.staging: Buffer | None = None
        self.coefficients: tuple[Any, ...] = ()
        if form.epilogue == "beta":
            pitch = pitched(kernel.scalar("pitchC"))
            self.given = kernel.param("C", (FREE, FREE), form.out, pitch, bounds, EDGE)
        pitch = pitched(kernel.scalar("pitchD"))
        self.result = kernel.param("D", (FREE, FREE), form.out, pitch, bounds, EDGE)
        if form.epilogue:
            names = ("alpha", "beta")[: 1 + (form.epilogue == "beta")]
            self.coefficients = tuple(kernel.scalar(name, "f32") for name in names)
        if form.epilogue == "beta":
            self.added = kernel.alloc("added", shape, "float32", layout=layout)
        if form.out.bits == 16:
            self.narrow = kernel.alloc("narrow", shape, form.out, layout=layout)
            tiles = (2, *shape)
            self.staging = kernel.alloc(
                "staging", tiles, form.out, "shared", swizzled(tiles, config.swizzle, 16)
            )

    def write(self, row: Any, col: Any) -> None:
        """Add the copies of all blocks of the tile that starts at a row and a column."""
        for index in range(self.blocks):
            first = row + index * self.rows
            self._block(index, (slice(first, first + self.rows), slice(col, col + self.cols)))

    def _block(self, index: int, where: tuple[slice, slice]) -> None:
        kernel = self.kernel
        block = self.total[index * self.rows : (index + 1) * self.rows]
        if self.given is not None and self.form.out.bits == 16:
            kernel.copy(self.narrow, self.given[where])
            kernel.cast(self.added, self.narrow)
        elif self.given is not None:
            kernel.copy(self.added, self.given[where])
        if self.given is not None:
            kernel.blend(block, self.coefficients[0], self.added, self.coefficients[1])
        elif self.coefficients:
            kernel.blend(block, self.coefficients[0])
        if self.staging is None:
            kernel.copy(self.result[where], block)
            return
        kernel.cast(self.narrow, block)
        kernel.copy(self.staging[index % 2], self.narrow)
        kernel.sync()
        kernel.copy(self.result[where], self.staging[index % 2])


@dataclass(frozen=True)
class Problem:
    """One product: M, N and K, and the pitch of each stored matrix in elements.

    ``pitches`` has a row pitch for A, B and D, and for C where there is one.

    Raises:
        LayoutError: a size is no multiple of 8 from 8 on, or a pitch is none.
    """

    sizes: tuple[int, int, int]
    pitches: Mapping[str, int]

    def __post_init__(self) -> None:
        """Check that every vector of 8 elements lies inside or outside as a whole."""
        for name, value in (*zip("MNK", self.sizes, strict=True), *self.pitches.items()):
            if value % EDGE or not 0 < value < FREE:
                kind = "size" if name in "MNK" else "row pitch of"
                raise LayoutError(
                    f"matmul: the {kind} {name} must be a multiple of {EDGE} elements, so that "
                    f"rows come in 16-byte vectors; got {value}: pad to {-(-value // EDGE) * EDGE}"
                )

    def scalars(self, form: Form, alpha: float = 1.0, beta: float = 0.0) -> dict[str, Any]:
        """Return the scalars of a launch, by name."""
        found: dict[str, Any] = dict(zip("MNK", self.sizes, strict=True))
        found |= {f"pitch{role}": pitch // EDGE for role, pitch in self.pitches.items()}
        if form.epilogue:
            found["alpha"] = alpha
        if form.epilogue == "beta":
            found["beta"] = beta
        return found


def posed(
    form: Form, a: Matrix, b: Matrix, c: Matrix | None, padding: int
) -> tuple[Problem, dict[str, Matrix]]:
    """Return the problem that matrices as they are stored pose, and them with a poisoned D.

    Raises:
        LayoutError: they do not fit the form or one another, or no kernel takes the padding.
    """
    if a.ndim != 2 or b.ndim != 2:
        raise LayoutError(f"simulate: A and B have two dimensions; got {a.shape} and {b.shape}")
    m, k = a.shape[::-1] if form.transpose_A else a.shape
    deep, n = b.shape[::-1] if form.transpose_B else b.shape
    if deep != k:
        raise LayoutError(f"simulate: A and B must have one K; got {k} and {deep}")
    if (c is not None) != (form.epilogue == "beta") or (c is not None and c.shape != (m, n)):
        got = "none" if c is None else f"C of {c.shape}"
        raise LayoutError(f"simulate: {form} has C {(m, n)} where it has beta alone; got {got}")
    if padding < 0 or padding % 8:
        raise LayoutError(f"simulate: padding is a multiple of 8, 0 or more; got {padding}")
    given = {"A": a.astype(form.dtype.numpy), "B": b.astype(form.dtype.numpy)}
    if c is not None:
        given["C"] = c.astype(form.out.numpy)
    given["D"] = poison(form.out.numpy, (m, n))
    return Problem((m, n, k), {role: x.shape[1] + padding for role, x in given.items()}), given


def simulate(
    form: Form,
    config: Config,
    a: Matrix,
    b: Matrix,
    c: Matrix | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    padding: int = 0,
    arch: str = "sm_90",
) -> Matrix:
    """Return the product that the kernel of a form computes, run on the NumPy warp.

    Args:
        form: of the kernel.
        config: likewise.
        a: A as it is stored.
        b: B as it is stored.
        c: C, M x N, where the form has it.
        alpha: where the form has it.
        beta: where the form has it.
        padding: elements between the rows of every matrix, a multiple of 8; NaN is in them.
        arch: the target.

    Raises:
        SimulationError: the kernel reads what nothing wrote, or races.
        LayoutError: sizes that no kernel takes.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.integers(-4, 5, (16, 24)), rng.integers(-4, 5, (24, 32))
    >>> form, config = Form("float16", "float32"), Config((32, 32, 32), (1, 2), 2, 1)
    >>> bool((simulate(form, config, a, b) == a @ b).all())
    True
    """
    problem, given = posed(form, a, b, c, padding)
    body = matmul_program(form, config, arch).body
    scalars = problem.scalars(form, alpha, beta)
    return run_grid(body, config.grid(*problem.sizes[:2]), scalars, given)


def run_grid(
    body: KernelIR,
    extents: tuple[int, int],
    scalars: Mapping[str, Any],
    given: Mapping[str, Matrix],
) -> Matrix:
    """Return D after every CTA of a grid has run on the NumPy warp; poison lies between rows.

    Args:
        body: of the kernel.
        extents: of the grid, (bx, by).
        scalars: of the launch.
        given: each matrix as it is stored.

    Raises:
        SimulationError: the kernel reads what nothing wrote, or races.
        LayoutError: it wrote between the rows of D.
    """
    made = arguments(body, {**given, **scalars}, extents)
    flat = launched(body, made, extents).memory["D"].values
    between = np.ones(len(flat), dtype=bool)
    between[made.addresses["D"]] = False
    if flat[between].tobytes() != made.cells["D"][between].tobytes():
        raise LayoutError("simulate: the kernel wrote between the rows of D")
    return made.matrix("D", flat)
