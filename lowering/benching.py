"""``bench``: this package's matmul beside cuBLAS and the ceiling of ``mma.sync``, in one run.

A GPU at its power limit slows down by what ran before. So contenders take turns, round after round,
and their ratios say more than absolute figures.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutalg import LayoutError
from lowering.kernel import Kernel, KernelProgram
from lowering.launching import Device, Loaded, call, compiled
from lowering.matmul_kernels import Config, Form, fragments_over

CEILING_STEPS = 4096  # K steps of the ceiling kernel: some milliseconds
CEILING_CONFIG = Config((128, 256, 64), (2, 4))


@dataclass(frozen=True)
class Contender:
    """One side of a comparison: what a turn launches on the null stream, and its operations."""

    name: str
    run: Callable[[int], None]
    operations: float


@dataclass(frozen=True)
class Timing:
    """The seconds of a contender's launches: the median and the spread over rounds."""

    name: str
    seconds: tuple[float, ...]
    operations: float

    @property
    def median(self) -> float:
        """The median, in seconds."""
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        """Operations per second at the median, in units of 10**12."""
        return self.operations / self.median / 1e12

    @property
    def spread(self) -> float:
        """The range of the middle half over the median."""
        ordered = sorted(self.seconds)
        quarter = len(ordered) // 4
        return (ordered[-1 - quarter] - ordered[quarter]) / self.median


def interleaved(
    contenders: Sequence[Contender],
    on: Device,
    rounds: int = 12,
    launches: int = 3,
    progress: Callable[[Sequence[int]], Iterable[int]] = iter,
) -> tuple[Timing, ...]:
    """Time contenders in turns, with events: each round gives each one sample of ``launches``.

    Args:
        contenders: who takes part; ``run`` gets a running number, to rotate inputs with.
        on: the device.
        rounds: samples of each; two more come first and are not counted.
        launches: per sample, back to back.
        progress: wraps the sequence of rounds, to show a bar.
    """
    on.enter()
    begin, end = (call("cuEventCreate", 0) for _ in range(2))
    found: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    number = 0
    for turn in progress(range(-2, rounds)):
        for contender in contenders:
            call("cuEventRecord", begin, 0)
            for _ in range(launches):
                contender.run(number)
                number += 1
            call("cuEventRecord", end, 0)
            call("cuEventSynchronize", end)
            took = call("cuEventElapsedTime", begin, end) / 1e3 / launches
            if turn >= 0:
                found[contender.name].append(took)
    for event in (begin, end):
        call("cuEventDestroy", event)
    return tuple(Timing(c.name, tuple(found[c.name]), c.operations) for c in contenders)


def ceiling_program(dtype: str = "float16", arch: str = "sm_90") -> KernelProgram:
    """Return a kernel that does nothing but ``mma.sync`` in registers, ``steps`` times a K step.

    Every warp multiplies random tiles of 64 x 64 x 16 that it loads once: the rate is the most that
    mma.sync gives at these operands' power.
    """
    form = Form(dtype, "float32")
    kernel = Kernel(f"ceiling_{form.dtype.token}", CEILING_CONFIG.threads, arch)
    layouts = fragments_over(CEILING_CONFIG, form.row)
    steps = kernel.scalar("steps")
    held = {}
    for role in "ABD":
        layout, shape = layouts[role]
        dtype_of = "float32" if role == "D" else form.dtype
        given = kernel.param(role, shape, dtype_of)
        held[role] = kernel.alloc(f"{role}_held", shape, dtype_of, layout=layout)
        if role != "D":
            kernel.copy(held[role], given)
    kernel.zero(held["D"])
    with kernel.loop("step", steps):
        for _ in range(4):
            kernel.gemm(held["D"], held["A"], held["B"], held["D"], beta=1)
    kernel.copy(given, held["D"])
    return kernel.lower()


def ceiling_operations(processors: int) -> float:
    """Return the floating-point operations of one launch of the ceiling kernel."""
    m, n, _ = CEILING_CONFIG.tile
    return 2.0 * m * n * 16 * 4 * CEILING_STEPS * processors


def ceiling(on: Device, dtype: str = "float16") -> Contender:
    """Return the ceiling kernel, one CTA per multiprocessor, on random operands."""
    made = compiled(f"ceiling_{dtype}", on.arch, lambda: ceiling_program(dtype, on.arch))
    kernel = Loaded(made, on)
    kind = Form(dtype).dtype.numpy
    rng = np.random.default_rng(0)
    m, n, _ = CEILING_CONFIG.tile
    pointers = []
    for values in (
        rng.standard_normal((m, 16)).astype(kind),
        rng.standard_normal((16, n)).astype(kind),
        np.zeros((m, n), np.float32),
    ):
        pointer = call("cuMemAlloc", values.nbytes)
        call("cuMemcpyHtoD", pointer, values.ctypes.data, values.nbytes)
        pointers.append(int(pointer))

    def run(_: int) -> None:
        kernel.launch((on.processors, 1), pointers, (CEILING_STEPS,), 0)

    return Contender("mma.sync ceiling", run, ceiling_operations(on.processors))


def cublas(inputs: Sequence[Any], out: Any, sizes: tuple[int, int, int]) -> Contender:
    """Return torch's matmul, which calls cuBLAS, on rotating inputs.

    Raises:
        LayoutError: torch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise LayoutError(f"bench: cuBLAS is measured through torch: {error}") from None
    m, n, k = sizes

    def run(number: int) -> None:
        a, b = inputs[number % len(inputs)]
        torch.matmul(a, b, out=out)

    return Contender("cuBLAS", run, 2.0 * m * n * k)
