"""The programs that verification runs: gemms on registers, and whole kernels over shared memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from layoutalg import LayoutError, S, TileLayout, warpid, wid_in_wg
from layoutalg.fragments import transposed
from layoutalg.layouts.hardware import swizzled_tile
from lowering.dispatch.variants.mma_sync import WIDE
from lowering.ir.tiles import Buffer, BufferRegion, gemm
from lowering.isa import dtypes
from lowering.isa.mma import (
    MMA_EXTENDED,
    MMA_FAMILY,
    MMA_INSTRUCTIONS,
    MmaInst,
    named,
)
from lowering.programs.kernel import Kernel
from lowering.programs.program import KernelProgram, Program, lower

TILINGS = (
    (1, 1, 1, 16), (2, 1, 1, 16), (1, 2, 1, 16), (1, 1, 2, 16), (2, 2, 2, 16), (4, 1, 1, 16),
    (1, 1, 1, 8), (1, 1, 3, 8), (2, 2, 3, 8),
)  # fmt: skip
# Instructions, each with the K tiles that leave dispatch no larger K to choose.
ROWS = (
    ("mma.m16n8k16.f16", 2),
    ("mma.m16n8k16.bf16", 2),
    ("mma.m16n8k8.f16", 3),
    ("mma.m16n8k8.bf16", 3),
)
SPLITS = (
    ("warpgroup", (4, 1)), ("warpgroup", (1, 4)), ("warpgroup", (2, 2)),
    ("cta", (2, 1)), ("cta", (1, 2)), ("cta", (4, 2)),
)  # fmt: skip
SWIZZLES = (32, 64, 128)  # bytes
# (scope, warps along M and N, transpose_A, transpose_B)
STAGED = (
    ("warp", (1, 1), False, True), ("warpgroup", (1, 4), False, False),
    ("warpgroup", (4, 1), False, True), ("cta", (2, 2), False, False), ("cta", (4, 2), True, True),
)  # fmt: skip
_AXES = {"warpgroup": wid_in_wg, "cta": warpid}
# Which quarter of its buffer a sliced operand is: another one per operand.
_QUARTERS = {"D": (1, 0), "C": (0, 1), "A": (1, 1), "B": (1, 0)}


def _over_warps(
    layout: TileLayout, tile: tuple[int, int], grid: tuple[int, int], stride: int, scope: str
) -> tuple[TileLayout, tuple[int, ...]]:
    """Give a tile to each warp of a grid; ``stride`` is that of the warps along M."""
    if grid == (1, 1):
        return layout, tile
    axis = _AXES[scope]
    warps = TileLayout(S[grid : (stride @ axis, 1 @ axis)])
    return layout.tile(warps, grid, tile), (tile[0] * grid[0], tile[1] * grid[1])


def _operand(
    row: MmaInst, role: str, tile: tuple[int, int], warps: tuple[int, int], scope: str
) -> tuple[TileLayout, tuple[int, ...]]:
    """Return the layout and the shape of an operand over all warps, ``tile`` of it in each.

    Warps along a dimension that the operand lacks hold copies; its layout does not name them.
    """
    along_m, along_n = warps
    grid = {"A": (along_m, 1), "B": (1, along_n)}.get(role, warps)
    layout = row.fragment(role).tiled(*tile)
    if row.products > 1:
        return layout, (row.products, *tile)
    return _over_warps(layout, tile, grid, along_n, scope)


@dataclass(frozen=True)
class Case:
    """One gemm to verify: ``tiles`` (Mt, Nt, Kt) instructions along M, N and K in each warp.

    ``warps`` is the grid of warps along M and N; ``sliced`` makes every operand a quarter of a
    buffer that is twice as large in both dimensions.

    >>> Case("mma.m16n8k16.f16", (2, 1, 1)).program().registers
    {'D': 8, 'C': 8, 'A': 16, 'B': 4}
    >>> print(Case("mma.m16n8k8.f16", (1, 1, 1), 1, warps=(2, 2), scope="warpgroup", sliced=True))
    mma.m16n8k8.f16 1x1x1 beta=1 NN warpgroup 2x2 sliced
    """

    instruction: str
    tiles: tuple[int, int, int]
    beta: int = 0
    transpose_A: bool = False  # noqa: N815
    transpose_B: bool = False  # noqa: N815
    warps: tuple[int, int] = (1, 1)
    scope: str = "warp"
    sliced: bool = False

    @property
    def row(self) -> MmaInst:
        """The instruction's row."""
        return named(self.instruction)

    def region(self, role: str) -> BufferRegion:
        """Return an operand: a whole buffer, or a quarter of one."""
        row, (mt, nt, kt) = self.row, self.tiles
        counts = {"A": (mt, kt), "B": (kt, nt), "E": (mt, kt), "SFA": (mt, kt), "SFB": (kt, nt)}
        fragment = row.fragment(role)
        rows, cols = (
            count * unit
            for count, unit in zip(counts.get(role, (mt, nt)), fragment.shape, strict=True)
        )
        tile = rows, cols
        layout, shape = _operand(row, role, tile, self.warps, self.scope)
        box = tuple((0, extent) for extent in shape)
        if self.sliced:
            box = tuple(
                (at * extent, (at + 1) * extent)
                for at, extent in zip(_QUARTERS[role], shape, strict=True)
            )
            larger = (2 * shape[0], 2 * shape[1])
            layout, shape = layout.tile_to(larger, shape), larger
        if {"A": self.transpose_A, "B": self.transpose_B}.get(role, False):
            layout = transposed(layout, shape)
            shape, box = (*shape[:-2], *shape[:-3:-1]), (*box[:-2], *box[:-3:-1])
        held = {"A": row.a, "B": row.b, "C": row.c, "D": row.d}
        dtype = held.get(role) or dtypes.get(fragment.dtype)
        return BufferRegion(Buffer(role, shape, dtype, layout=layout), box)

    def program(self) -> Program:
        """Lower the case, its layouts tiled from the instruction's fragments."""
        d, a, b, c = (self.region(role) for role in "DABC")
        row = self.row
        narrow = row in MMA_FAMILY and row.d.bits < WIDE
        one_of_kind = row.key if row.kind and not row.extras else None
        call = gemm(
            d, a, b, c, self.transpose_A, self.transpose_B, beta=self.beta, scope=self.scope,
            dispatch="mma.sync*" if narrow else one_of_kind,
            modifier=row.modifier or (row.kind if "SFA" in row.extras else None),
            **{role: self.region(role) for role in row.extras},
        )  # fmt: skip
        arch = "sm_90" if row.runs_on("sm_90") else row.fragment("A").targets[0]
        made = lower(call, threads=32 * self.warps[0] * self.warps[1], arch=arch)
        if made.instruction != row:
            raise LayoutError(
                f"{self.instruction}: for {self.tiles[2]} tiles along K dispatch chooses "
                f"{made.instruction}, of larger K; give an odd number of tiles"
            )
        return made

    def __str__(self) -> str:
        """Return a short name."""
        flags = "".join("T" if flip else "N" for flip in (self.transpose_A, self.transpose_B))
        parts = [self.instruction, "x".join(map(str, self.tiles)), f"beta={self.beta}", flags]
        if self.scope != "warp":
            parts.append(f"{self.scope} {self.warps[0]}x{self.warps[1]}")
        return " ".join([*parts, *["sliced"] * self.sliced])


@dataclass(frozen=True)
class StagedCase:
    """One whole kernel: global → swizzled shared memory → ``ldmatrix`` → gemm → global.

    A and B come in ``steps`` tiles whose rows are one swizzle period, ``swizzle`` bytes, by
    ``cp.async``. A transposed operand is the parameter At (K x M) or Bt (N x K).

    >>> case = StagedCase("mma.m16n8k16.f16", 32, transpose_B=True)
    >>> script = case.program().script()
    >>> "cp.async" in script, "ldmatrix" in script, "^" in script
    (True, True, True)
    """

    instruction: str
    swizzle: int
    warps: tuple[int, int] = (1, 1)
    scope: str = "warp"
    transpose_A: bool = False  # noqa: N815
    transpose_B: bool = False  # noqa: N815
    steps: int = 2

    def program(self) -> KernelProgram:
        """Build and lower the kernel."""
        if self.swizzle not in SWIZZLES:
            raise LayoutError(
                f"verify: the swizzle must be 32, 64 or 128 bytes; got {self.swizzle}"
            )
        row, (along_m, along_n) = named(self.instruction), self.warps
        period = self.swizzle * 8 // row.a.bits
        # A row of a stored tile is one period: K for A and Bᵀ, M for Aᵀ, N for B.
        m = period if self.transpose_A else row.m
        n = 2 * row.n if self.transpose_B else max(period // along_n, row.n)
        whole = {"A": (along_m * m, period), "B": (period, along_n * n)}
        kernel = Kernel("staged", 32 * along_m * along_n)
        given_as, shared, held = {}, {}, {}
        for role, flip in (("A", self.transpose_A), ("B", self.transpose_B)):
            dtype = {"A": row.a, "B": row.b}[role]
            layout, shape = _operand(
                row, role, {"A": (m, period), "B": (period, n)}[role], self.warps, self.scope
            )
            stored, over = whole[role], self.steps * period
            given = (stored[0], over) if role == "A" else (over, stored[1])
            if flip:
                layout, shape = transposed(layout, shape), shape[::-1]
                stored, given = stored[::-1], given[::-1]
            given_as[role] = kernel.param(f"{role}t" if flip else role, given, dtype)
            tile = swizzled_tile(stored, self.swizzle, row.a.bits)
            shared[role] = kernel.alloc(f"{role}_shared", stored, dtype, "shared", tile)
            held[role] = kernel.alloc(f"{role}_held", shape, dtype, layout=layout)
        layout, shape = _operand(row, "D", (m, n), self.warps, self.scope)
        d = kernel.param("D", shape, row.d)
        held["D"] = kernel.alloc("D_held", shape, row.d, layout=layout)
        kernel.zero(held["D"])
        with kernel.loop("step", self.steps) as step:
            span = slice(step * period, (step + 1) * period)
            for role, flip in (("A", self.transpose_A), ("B", self.transpose_B)):
                along = (span, slice(None)) if (role == "A") == flip else (slice(None), span)
                kernel.copy(shared[role], given_as[role][along], asynchronous=True)
            kernel.commit()
            kernel.wait()
            kernel.sync()
            for role in "AB":
                kernel.copy(held[role], shared[role], scope=self.scope)
            kernel.gemm(
                held["D"], held["A"], held["B"], held["D"], scope=self.scope, beta=1,
                transpose_A=self.transpose_A, transpose_B=self.transpose_B,
            )  # fmt: skip
            kernel.sync()
        kernel.copy(d, held["D"], scope=self.scope)
        return kernel.lower()

    def __str__(self) -> str:
        """Return a short name."""
        flags = "".join("T" if flip else "N" for flip in (self.transpose_A, self.transpose_B))
        grid = f"{self.warps[0]}x{self.warps[1]}"
        return f"{self.instruction} staged {self.swizzle}B {flags} {self.scope} {grid}"


AnyCase = Case | StagedCase


def standard_cases() -> tuple[Case, ...]:
    """Return the seed's list: nine tilings × two dtypes × beta, four transposes × two dtypes.

    >>> len(standard_cases())
    44
    """
    cases = [
        Case(f"mma.m16n8k{k}.{dtype}", (mt, nt, kt), beta)
        for (mt, nt, kt, k), dtype, beta in itertools.product(TILINGS, ("f16", "bf16"), (0, 1))
    ]
    cases.extend(
        Case(f"mma.m16n8k16.{dtype}", (2, 2, 2), 0, flip_a, flip_b)
        for dtype, flip_a, flip_b in itertools.product(
            ("f16", "bf16"), (False, True), (False, True)
        )
    )
    return tuple(cases)


def scope_cases() -> tuple[Case, ...]:
    """Return gemms of several warps: split over M, over N and over both, at both scopes.

    >>> len(scope_cases())
    24
    """
    return tuple(
        Case(name, (2, 1, kt), index % 2, False, kt == 3, warps, scope)
        for (name, kt), (index, (scope, warps)) in itertools.product(ROWS, enumerate(SPLITS))
    )


def slice_cases() -> tuple[Case, ...]:
    """Return gemms whose operands are quarters of larger buffers, at every scope.

    >>> len(slice_cases())
    24
    """
    grids = (("warp", (1, 1)), ("warpgroup", (2, 2)), ("cta", (2, 1)))
    return tuple(
        Case(name, (1, 1, kt), beta, scope == "warp", beta == 1, warps, scope, True)
        for (name, kt), (scope, warps), beta in itertools.product(ROWS, grids, (0, 1))
    )


def staged_cases() -> tuple[StagedCase, ...]:
    """Return whole kernels: three swizzles × scopes and transposes × two dtypes.

    >>> len(staged_cases())
    30
    """
    return tuple(
        StagedCase(f"mma.m16n8k16.{dtype}", swizzle, warps, scope, flip_a, flip_b)
        for swizzle, (scope, warps, flip_a, flip_b), dtype in itertools.product(
            SWIZZLES, STAGED, ("f16", "bf16")
        )
    )


def family_cases() -> tuple[Case, ...]:
    """Return a case per other mma: every type, modifier and form; those for sm_120a apart.

    >>> print(family_cases()[0])
    mma.m16n8k16.f16 f16 1x1x1 beta=1 NN
    """
    return tuple(
        Case(str(row), (1, 1, 1), 1)
        for row in (*MMA_FAMILY, *MMA_EXTENDED)
        if row not in MMA_INSTRUCTIONS and "SFA" not in row.extras
    )


def scaled_cases() -> tuple[Case, ...]:
    """Return a case per block-scaled mma: sm_120a has them.

    >>> print(scaled_cases()[0])
    mma.m16n8k32.mxf8f6f4.e4m3 1x2x2 beta=1 NN
    """
    return tuple(Case(str(row), (1, 2, 2), 1) for row in MMA_EXTENDED if "SFA" in row.extras)


CASES: dict[str, Callable[[], Sequence[AnyCase]]] = {
    "standard": standard_cases,
    "scopes": scope_cases,
    "slices": slice_cases,
    "staged": staged_cases,
}


def all_cases() -> tuple[AnyCase, ...]:
    """Return every case of :data:`CASES`: what dispatch chooses by itself.

    >>> len(all_cases())
    122
    """
    return tuple(case for group in CASES.values() for case in group())
