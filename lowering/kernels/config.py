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
from lowering.kernels.fusion import Fused

EDGE = 8  # elements: what divides every size and pitch, so that vectors end at the edges
PERIOD = 128  # bytes of a row of a swizzled tile, at most
STEP = 16  # K of the instructions
GROUPS = (32, 16, 8, 4, 2, 1)  # of the CTA swizzle
WASTE = 1.05  # tiles, those beyond the last row included, over those of the result


MADE = ("f16", "bf16", "f32", "s32")  # what an epilogue may give


def sums_of(dtype: DType) -> DType:
    """Return the type in which products of a type are summed.

    >>> [str(sums_of(dtypes.get(each))) for each in ("f16", "e4m3", "u8")]
    ['float32', 'float32', 'int32']
    """
    return dtypes.get("int32" if OUTPUTS[dtype.token] == ("s32",) else "float32")


@dataclass(frozen=True)
class Form:
    """Which problems one kernel serves, whatever their sizes and pitches.

    ``transpose_A``: A is stored K x M; ``transpose_B``: B is stored N x K. ``edges``: M and N need
    not be multiples of the CTA tile. ``epilogue``: what D is of the sums; without one, the sums.
    ``whole``: K is a multiple of all stages of the pipeline together, stages times the tile's K.

    >>> print(Form("float16", "float32", transpose_B=True))
    f16_f32_NT
    """

    dtype: DType
    out: DType
    transpose_A: bool = False  # noqa: N815
    transpose_B: bool = False  # noqa: N815
    edges: bool = True
    epilogue: Fused | None = None
    whole: bool = False

    def __init__(
        self,
        dtype: str | DType = "float16",
        out: str | DType | None = None,
        transpose_A: bool = False,
        transpose_B: bool = False,
        edges: bool = True,
        epilogue: Fused | None = None,
        whole: bool = False,
    ) -> None:
        """Convert, then check.

        Raises:
            LayoutError: types that :data:`OUTPUTS` does not list (an epilogue may make any), an
                epilogue of other sums or another result, or 8-bit operands that are not K-major.
        """
        given = dtypes.get(dtype)
        known = OUTPUTS.get(given.token, ())
        made = dtypes.get(known[0] if out is None and known else out or given)
        if not known or made.token not in (*known, *(MADE if epilogue else ())):
            raise LayoutError(
                "matmul: f16 and bf16 give f32 or their own type, e4m3 and e5m2 give f32, f16 or "
                f"bf16, s8 and u8 give s32; got {given} and {made}"
            )
        sums = sums_of(given)
        if epilogue is not None and (epilogue.sums, epilogue.out) != (sums.token, made.token):
            raise LayoutError(
                f"matmul: the epilogue must make {made.token} of sums in {sums.token}; got one "
                f"that makes {epilogue.out} of {epilogue.sums}"
            )
        if given.bits == 8 and (transpose_A, transpose_B) != (False, True):
            raise LayoutError(
                f"matmul: {given} needs K-major operands, transpose_A=False and transpose_B=True; "
                f"got transpose_A={transpose_A}, transpose_B={transpose_B}"
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
        parts = [self.dtype.token, self.out.token, flips]
        parts += [str(self.epilogue) if self.epilogue else ""]
        parts += ["" if self.edges else "even", "whole" if self.whole else ""]
        return "_".join(part for part in parts if part)


@dataclass(frozen=True)
class Config:
    """How a kernel is cut: CTA tile (M, N, K), warps along M and N, stages, CTA swizzle.

    ``group``: rows of tiles that consecutive CTAs go down before they go on along N. ``swizzle``:
    bytes of a swizzled line of shared memory. ``spread``: whether the ``cp.async`` of the next
    stage are spread over K steps. ``bulk``: stages are filled by TMA (sm_90), which completes
    mbarriers, so that the loop has no CTA barrier. ``producer``: by a producer warpgroup (sm_90a).
    ``wgmma``: an asynchronous core (sm_90a) and persistent CTAs, see :mod:`lowering.kernels.core`;
    warps along M come in fours. ``cluster``: CTAs of a cluster; 2 share the larger operand of
    their tiles by multicast, see :attr:`span`, and ``group`` counts rows of clusters.

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
        """Check that the parts fit each other, on whatever target.

        Raises:
            LayoutError: they do not, or a value is of another type or out of range.
        """
        numbers = (*self.tile, *self.warps, self.stages, self.group, self.swizzle, self.cluster)
        truths = (self.spread, self.bulk, self.producer, self.wgmma)
        if (
            (len(self.tile), len(self.warps)) != (3, 2)
            or any(type(each) is not int or each < 1 for each in numbers)
            or any(type(each) is not bool for each in truths)
        ):
            raise LayoutError(
                "matmul: a config has a tile (M, N, K), warps (along M, along N), stages, group, "
                f"swizzle and cluster, ints from 1 on, and bools; got {self!r}"
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
                f"matmul: each warp needs whole tiles of 16 x 16, and K a multiple of 16; got the "
                f"tile {self.tile} over {self.warps} warps"
            )
        if self.stages < 2 or self.group < 1:
            raise LayoutError(
                "matmul: needs at least 2 stages and a group of at least 1; got "
                f"stages={self.stages} and group={self.group}"
            )
        if self.steps * self.stages % 2 and not self.wgmma:
            raise LayoutError(
                "matmul: fragments are double-buffered, so stages times K steps must be even; got "
                f"{self.stages} and {self.steps}"
            )
        if not self.bulk and any(rows * k // EDGE % self.threads for rows in (m, n)):
            raise LayoutError(
                f"matmul: {self.threads} threads must copy equally many vectors of {EDGE} of the "
                f"tiles of A and of B; got the tile {self.tile}"
            )
        if self.producer and not (self.wgmma or (self.bulk and self.threads == 256)):
            raise LayoutError(
                "matmul: a producer of mma.sync needs bulk=True and 8 consumer warps (setmaxnreg: "
                f"(2·240 + 24)·128 <= 64K registers); got bulk={self.bulk} and {self.warps} warps"
            )
        if self.swizzle not in (32, 64, 128):
            raise LayoutError(f"matmul: the swizzle must be 32, 64 or 128; got {self.swizzle}")

    def _check_wgmma(self) -> None:
        """Check what warpgroups and TMA ask for."""
        if (
            self.warps not in ((4, 1), (8, 1))
            or self.tile[0] % (16 * self.warps[0])
            or self.tile[1] % 64
        ):
            raise LayoutError(
                "matmul: wgmma needs warps=(4, 1) or (8, 1), one or two consumer warpgroups, each "
                f"with whole blocks of 64 x 64; got the tile {self.tile} over {self.warps} warps"
            )
        if not (self.bulk and self.producer and self.swizzle == PERIOD):
            raise LayoutError(
                f"matmul: wgmma needs bulk=True, producer=True and swizzle={PERIOD}; got "
                f"bulk={self.bulk}, producer={self.producer}, swizzle={self.swizzle}"
            )

    @property
    def steps(self) -> int:
        """K steps of a tile, one ``mma.sync`` deep each."""
        return self.tile[2] // STEP

    @property
    def threads(self) -> int:
        """Threads of a CTA, those of a producer warpgroup left out."""
        return WARP * self.warps[0] * self.warps[1]

    def __str__(self) -> str:
        """Return a short name, part of the kernel's."""
        tile, warps = "x".join(map(str, self.tile)), "x".join(map(str, self.warps))
        rest = "" if self.swizzle == PERIOD else f"_w{self.swizzle}"
        rest += "" if self.spread else "_together"
        rest += "_bulk" if self.bulk else ""
        rest += "_producer" if self.producer else ""
        rest += "_wgmma" if self.wgmma else ""
        rest += f"_c{self.cluster}" if self.cluster > 1 else ""
        return f"{tile}_{warps}_s{self.stages}_g{self.group}{rest}"

    def runs_on(self, arch: str) -> bool:
        """Say whether a target has what the config uses; a producer is of sm_90 alone.

        >>> [Config(bulk=True).runs_on(arch) for arch in ("sm_80", "sm_90", "sm_120")]
        [False, True, True]
        """
        version = compute_capability(arch)[:2]
        return version >= ((9, 0) if self.bulk else (8, 0)) and (
            not self.producer or version == (9, 0)
        )

    def shared_bytes(self, form: Form) -> int:
        """Return the bytes of shared memory that a kernel takes.

        >>> from lowering.kernels.matmul import program_of
        >>> form = Form("float16")
        >>> Config().shared_bytes(form) == program_of(form, Config()).body.shared_bytes
        True
        """
        m, n, k = self.tile
        pipeline = self.stages * (m + n) * k * form.dtype.bits // 8
        if self.wgmma:
            return pipeline + 2 * 64 * self.threads // WARPGROUP * PERIOD + 16 * self.stages
        staging = 2 * STEP * self.warps[0] * n * 2 if form.out.bits == 16 else 0
        return pipeline + staging

    def target(self, arch: str) -> str:
        """Return the target to compile for on a device: a producer's setmaxnreg needs an a.

        >>> Config().target("sm_90"), Config(bulk=True, producer=True).target("sm_90")
        ('sm_90', 'sm_90a')
        """
        return arch if arch.endswith(("a", "f")) else arch + "a" * self.producer

    @property
    def shared(self) -> str:
        """The operand that the CTAs of a cluster share by multicast: the larger, else B.

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

        A wgmma config counts clusters, whose tiles a :class:`Schedule` deals out to the CTAs.

        >>> Config(group=4).grid(8192, 8192)
        (128, 16)
        """
        down, across = (
            -(-size // tile) for size, tile in zip((rows, cols), self.span, strict=True)
        )
        return self.group * across, -(-down // self.group)


@dataclass(frozen=True)
class Problem:
    """One product: M, N and K, and the row pitch in elements of A, B, D and operands of M x N.

    Raises:
        LayoutError: a size or a pitch is no positive multiple of 8.
    """

    sizes: tuple[int, int, int]
    pitches: Mapping[str, int]

    def __post_init__(self) -> None:
        """Check that no vector of 8 elements crosses an edge."""
        for name, value in (*zip("MNK", self.sizes, strict=True), *self.pitches.items()):
            if value % EDGE or not 0 < value < FREE:
                kind = "size" if name in "MNK" else "row pitch of"
                raise LayoutError(
                    f"matmul: the {kind} {name} must be a multiple of {EDGE} elements, so that "
                    f"rows come in 16-byte vectors; got {value}: pad to {-(-value // EDGE) * EDGE}"
                )

    @property
    def scalars(self) -> dict[str, Any]:
        """The scalars of a launch, by name, but for numbers of its epilogue."""
        found: dict[str, Any] = dict(zip("MNK", self.sizes, strict=True))
        return found | {f"pitch{role}": pitch // EDGE for role, pitch in self.pitches.items()}


def fitted(form: Form, config: Config, sizes: tuple[int, int, int]) -> tuple[Form, Config]:
    """Return form and config fitted to M, N and K: edges, whole, and the group of the CTA swizzle.

    K of a config's tile is that of 16-bit operands; 8-bit operands have twice the K in the same
    bytes.

    >>> config = Config(wgmma=True, bulk=True, producer=True, warps=(8, 1))
    >>> [fitted(Form("float16"), config, (m, 256, 64))[1].group for m in (8192, 128 * 9, 128 * 10)]
    [8, 1, 2]
    """
    if config.wgmma:
        down = -(-sizes[0] // config.span[0])
        group = next(g for g in GROUPS if g <= config.group and -(-down // g) * g <= WASTE * down)
        m, n, k = config.tile
        config = replace(config, tile=(m, n, k * 16 // form.dtype.bits), group=group)
        form = form.fitted(sizes, config)
        # TMA minds the edges of all matrices but those of the epilogue.
        edges = form.edges and form.epilogue is not None and form.epilogue.reads
        return replace(form, edges=edges), config
    return form.fitted(sizes, config), config
