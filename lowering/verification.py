"""Verification: programs run on the device or on the NumPy warp, against a float64 product.

Inputs are random, outputs poisoned, the reference is the float64 product of the rounded inputs, the
error ‖out − ref‖ / ‖ref‖ (Frobenius).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError
from layoutalg.fragments import transposed
from lowering.instructions import MMA_INSTRUCTIONS, MmaInst
from lowering.program import Program, lower
from lowering.tile import Buffer, gemm

TOLERANCE = 1e-5
TILINGS = (
    (1, 1, 1, 16), (2, 1, 1, 16), (1, 2, 1, 16), (1, 1, 2, 16), (2, 2, 2, 16), (4, 1, 1, 16),
    (1, 1, 1, 8), (1, 1, 3, 8), (2, 2, 3, 8),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One gemm to verify: ``tiles`` (Mt, Nt, Kt) instructions along M, N and K.

    >>> Case("mma.m16n8k16.f16", (2, 1, 1)).program().registers
    {'D': 8, 'C': 8, 'A': 16, 'B': 4}
    """

    instruction: str
    tiles: tuple[int, int, int]
    beta: int = 0
    transpose_A: bool = False  # noqa: N815
    transpose_B: bool = False  # noqa: N815

    @property
    def row(self) -> MmaInst:
        """The instruction's row."""
        for row in MMA_INSTRUCTIONS:
            if row.name == self.instruction:
                return row
        names = ", ".join(row.name for row in MMA_INSTRUCTIONS)
        raise LayoutError(f"verify: no instruction is named {self.instruction!r}; known: {names}")

    def program(self) -> Program:
        """Lower the case, its layouts tiled from the instruction's fragments."""
        row = self.row
        mt, nt, kt = self.tiles
        m, n, k = mt * row.m, nt * row.n, kt * row.k
        shapes = {"D": (m, n), "C": (m, n), "A": (m, k), "B": (k, n)}
        flipped = {"A": self.transpose_A, "B": self.transpose_B}
        dtypes = {"A": row.a, "B": row.b, "C": row.c, "D": row.d}
        buffers = {}
        for role, shape in shapes.items():
            layout = row.fragment(role).tiled(*shape)
            if flipped.get(role, False):
                layout, shape = transposed(layout, shape), shape[::-1]
            buffers[role] = Buffer(role, shape, dtypes[role], layout=layout)
        call = gemm(
            buffers["D"],
            buffers["A"],
            buffers["B"],
            buffers["C"],
            self.transpose_A,
            self.transpose_B,
            beta=self.beta,
        )
        return lower(call)

    def __str__(self) -> str:
        """Return a short name."""
        flags = "".join("T" if flip else "N" for flip in (self.transpose_A, self.transpose_B))
        return f"{self.instruction} {'x'.join(map(str, self.tiles))} beta={self.beta} {flags}"


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


@dataclass(frozen=True)
class Result:
    """What one case gave: the error, its bound, how many mma ran, on which machine."""

    case: str
    instruction: str
    mma: int
    error: float
    tolerance: float
    machine: str

    @property
    def ok(self) -> bool:
        """Whether the error is within the bound; NaN never is."""
        return self.error <= self.tolerance

    def as_dict(self) -> dict[str, Any]:
        """Return the row for a record."""
        return asdict(self) | {"ok": self.ok}


def random_inputs(program: Program, seed: int) -> dict[str, npt.NDArray[Any]]:
    """Return random matrices of the whole buffers, per input role, rounded to their dtypes.

    Roles that share a buffer share a matrix.
    """
    generator = np.random.default_rng(seed)
    matrices: dict[Buffer, npt.NDArray[Any]] = {}
    for role in program.inputs:
        buffer = program.buffer(role)
        if buffer not in matrices:
            values = generator.standard_normal(buffer.shape)
            matrices[buffer] = values.astype(buffer.dtype.numpy)
    return {role: matrices[program.buffer(role)] for role in program.inputs}


def operand(program: Program, role: str, matrix: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return what a role's region of a buffer holds, as an M x K, K x N or M x N matrix.

    >>> program = Case("mma.m16n8k8.f16", (1, 1, 1), transpose_A=True).program()
    >>> operand(program, "A", np.zeros((8, 16))).shape
    (16, 8)
    """
    region = program.call.operands[role]
    box = matrix[tuple(slice(begin, end) for begin, end in region.ranges)].astype(np.float64)
    plain = box.reshape([extent for extent in box.shape if extent != 1])
    return plain.T if program.call.config.get(f"transpose_{role}", False) else plain


def reference(program: Program, inputs: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    """Return the float64 product of the inputs' regions, as the call orients them."""
    parts = {role: operand(program, role, inputs[role]) for role in program.inputs}
    product = parts["A"] @ parts["B"]
    return product + parts["C"] if program.accumulates else product


def relative_error(out: npt.NDArray[Any], ref: npt.NDArray[np.float64]) -> float:
    """Return ‖out − ref‖ / ‖ref‖; NaN where an output was not written.

    >>> relative_error(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    0.0
    """
    return float(np.linalg.norm(out.astype(np.float64) - ref) / np.linalg.norm(ref))


def machine_name() -> str:
    """Return the machine that ``verify`` takes by default: "device" where there is a GPU."""
    try:
        from lowering.cuda import device_available
    except ImportError:
        return "simulator"
    return "device" if device_available() else "simulator"


def check(
    program: Program, name: str, machine: str, seed: int = 0, tolerance: float = TOLERANCE
) -> Result:
    """Run one program on random inputs and compare D's region with the float64 product."""
    inputs = random_inputs(program, seed)
    execute: Callable[..., Any] = program.run if machine == "device" else program.simulate
    out = operand(program, "D", execute(**inputs))
    error = relative_error(out, reference(program, inputs))
    return Result(name, program.instruction.ptx, len(program.mma), error, tolerance, machine)


def verify(
    cases: Iterable[Case] | None = None,
    machine: str | None = None,
    seed: int = 0,
    progress: Callable[[Sequence[Case]], Iterable[Case]] | None = None,
) -> tuple[Result, ...]:
    """Verify gemm programs; by default the seed's 44 on the GPU, or on the NumPy warp without one.

    Args:
        cases: what to run.
        machine: "device" or "simulator".
        seed: of the random inputs; each case adds its position.
        progress: wraps the sequence of cases, to show a bar.

    Raises:
        LayoutError: the machine is unknown.

    >>> verify([Case("mma.m16n8k8.f16", (1, 1, 1))], machine="simulator")[0].ok
    True
    """
    machine = machine_name() if machine is None else machine
    if machine not in ("device", "simulator"):
        raise LayoutError(f"verify: the machine must be 'device' or 'simulator'; got {machine!r}")
    chosen = tuple(standard_cases() if cases is None else cases)
    shown = chosen if progress is None else progress(chosen)
    return tuple(
        check(case.program(), str(case), machine, seed + index) for index, case in enumerate(shown)
    )
