"""What one matmul kernel serves and how it is cut: form, config, and the problem of a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from layoutalg import LayoutError
from layoutalg.algebra.axis import WARP
from lowering.ir.index import FREE
from lowering.ir.register_map import WARPGROUP
from lowering.isa import dtypes
from lowering.isa.dtypes import OUTPUTS, DType
from lowering.isa.mma import MMA_INSTRUCTIONS, MmaInst, compute_capability

EDGE = 8  # elements: what divides every size and pitch, so that vectors end at the edges
PERIOD = 128  # bytes of a row of a swizzled tile, at most
EPILOGUES = ("", "alpha", "beta")  # D = A·B, alpha·A·B, alpha·A·B + beta·C
STEP = 16  # K of the instructions
GROUPS = (32, 16, 8, 4, 2, 1)  # rows of tiles that may be numbered together
WASTE = 1.05  # tiles, those beyond the last row included, over those of the result


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

    def transposes(self, role: str) -> bool:
        """Say whether A or B is stored transposed."""
        return self.transpose_A if role == "A" else self.transpose_B

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
    tensor core (sm_90a), see :mod:`lowering.kernels.core`: warps along M come in
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
                "matmul: a cluster needs wgmma, 2 CTAs, and whole blocks of 64 in the half that "
                f"each loads of their common operand; got cluster={self.cluster}, "
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

        >>> from lowering.kernels.matmul import program_of
        >>> form = Form("float16")
        >>> Config().shared_bytes(form) == program_of(form, Config()).body.shared_bytes
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


def fitted(form: Form, config: Config, sizes: tuple[int, int, int]) -> tuple[Form, Config]:
    """Return form and config fitted to M, N and K: edges, and rows of tiles numbered together.

    K of a config's tile is that of 16-bit operands: narrower ones have more in the same bytes.

    >>> config = Config(wgmma=True, bulk=True, producer=True, warps=(8, 1))
    >>> [fitted(Form("float16"), config, (m, 256, 64))[1].group for m in (8192, 128 * 9, 128 * 10)]
    [8, 1, 2]
    """
    if config.wgmma:
        down = -(-sizes[0] // config.span[0])
        group = next(g for g in GROUPS if g <= config.group and -(-down // g) * g <= WASTE * down)
        m, n, k = config.tile
        config = replace(config, tile=(m, n, k * 16 // form.dtype.bits), group=group)
        # The copy engine minds the edges of all matrices but C.
        whole, edges = form.fitted(sizes, config).whole, form.epilogue == "beta"
        return replace(form, edges=edges, whole=whole), config
    return form.fitted(sizes, config), config
