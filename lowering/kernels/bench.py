"""``bench``: this package's matmul beside cuBLAS and the ceiling of ``mma.sync``, in one run.

A GPU at its power limit slows down with what ran before. So contenders take turns, round after
round, and their ratios say more than absolute rates.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowering.isa import dtypes
from lowering.isa.dtypes import DType
from lowering.kernels import tuning
from lowering.kernels.api import Uploaded, forget_plans, loaded, matmul, multiply
from lowering.kernels.config import STEP, Config, Form, fitted
from lowering.kernels.core import fragments_over
from lowering.launch.cache import compiled
from lowering.launch.driver import Device, Loaded, call
from lowering.programs.kernel import Kernel
from lowering.programs.program import KernelProgram

CEILING, CUBLAS, OURS = "mma.sync ceiling", "cuBLAS", "layoutalg"
CEILING_CONFIG = Config((128, 256, 64), (2, 4))
CEILING_STEPS, UNROLL = 4096, 4  # of the ceiling kernel: some milliseconds
ROTATING_BYTES, MOST_PAIRS = 200 << 20, 16  # of the inputs that calls take in turns
LAUNCH_OPERATIONS = 3e12  # of one sample: some milliseconds


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
    """Return a kernel that does ``mma.sync`` in registers alone, 4 K steps in each of ``steps``.

    Every warp multiplies the same random 64 x 64 x 16 tiles: the highest rate that mma.sync reaches
    at the power that such operands take.
    """
    form = Form(dtype, "float32")
    kernel = Kernel(f"ceiling_{form.dtype.token}", CEILING_CONFIG.threads, arch)
    layouts = fragments_over(CEILING_CONFIG, form.row)
    steps = kernel.scalar("steps")
    kinds: dict[str, DType | str] = {"A": form.dtype, "B": form.dtype, "D": "float32"}
    given, held = {}, {}
    for role, kind in kinds.items():
        layout, shape = layouts[role]
        given[role] = kernel.param(role, shape, kind)
        held[role] = kernel.alloc(f"{role}_held", shape, kind, layout=layout)
    for role in "AB":
        kernel.copy(held[role], given[role])
    kernel.zero(held["D"])
    with kernel.loop("step", steps):
        for _ in range(UNROLL):
            kernel.gemm(held["D"], held["A"], held["B"], held["D"], beta=1)
    kernel.copy(given["D"], held["D"])
    return kernel.lower()


def ceiling(on: Device, memory: Uploaded, dtype: str = "float16") -> Contender:
    """Return the ceiling kernel, one CTA per multiprocessor, on random operands.

    Args:
        on: the device.
        memory: holds the operands.
        dtype: of the operands.
    """
    made = compiled(f"ceiling_{dtype}", on.arch, lambda: ceiling_program(dtype, on.arch))
    kernel, kind = Loaded(made, on), Form(dtype).dtype.numpy
    rng = np.random.default_rng(0)
    m, n, _ = CEILING_CONFIG.tile
    operands = (
        rng.standard_normal((m, STEP)).astype(kind),
        rng.standard_normal((STEP, n)).astype(kind),
        np.zeros((m, n), np.float32),
    )
    pointers = [memory.put(values, "operand").pointer for values in operands]

    def run(_: int) -> None:
        kernel.launch((on.processors, 1), pointers, (CEILING_STEPS,), 0)

    operations = 2.0 * m * n * STEP * UNROLL * CEILING_STEPS * on.processors
    return Contender(CEILING, run, operations)


@dataclass(frozen=True)
class Row:
    """One size: what each contender took, the error of ours and of cuBLAS, µs of host per call."""

    size: int
    timings: tuple[Timing, ...]
    config: str
    errors: dict[str, float]
    host_microseconds: float
    attributes: dict[str, int]

    def rate(self, name: str) -> float | None:
        """Return the rate of a contender, in TFLOP/s; None where it did not take part."""
        return next((timing.rate for timing in self.timings if timing.name == name), None)

    def ratio(self, name: str) -> float | None:
        """Return our rate over that of a contender."""
        ours, other = self.rate(OURS), self.rate(name)
        return None if ours is None or other is None else ours / other

    def as_dict(self) -> dict[str, Any]:
        """Return the row for a record."""
        return {
            "size": self.size,
            "of_ceiling": self.ratio(CEILING),
            "of_cublas": self.ratio(CUBLAS),
            "config": self.config,
            "errors": self.errors,
            "host_microseconds": self.host_microseconds,
            **self.attributes,
            "rates": {timing.name: timing.rate for timing in self.timings},
            "spreads": {timing.name: timing.spread for timing in self.timings},
            "seconds": {timing.name: timing.seconds for timing in self.timings},
        }


def _torch() -> Any | None:
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _inputs(memory: Uploaded, torch: Any | None, size: int, dtype: DType) -> list[tuple[Any, Any]]:
    """Return random pairs of square matrices, which calls take in turns.

    They have 200 MiB together, or what 16 pairs have: below size 1024 that is less than 64 MiB, so
    that small inputs stay in the L2 cache (50 MB on an H200), for every contender alike.
    """
    count = max(2, min(MOST_PAIRS, -(-ROTATING_BYTES // (4 * size * size))))
    if torch is not None:
        made = torch.randn(count, 2, size, size, device="cuda", dtype=torch.float32)
        kind = getattr(torch, dtype.name)
        return [(pair[0].to(kind), pair[1].to(kind)) for pair in made]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        a, b = (rng.standard_normal((size, size), np.float32).astype(dtype.numpy) for _ in "ab")
        found.append((memory.put(a, "a"), memory.put(b, "b")))
    return found


def measured(
    size: int,
    dtype: str,
    on: Device,
    config: Config | None = None,
    rounds: int = 12,
    progress: Callable[[Sequence[int]], Iterable[int]] = iter,
) -> Row:
    """Measure one square problem: ours, the ceiling and, where torch is installed, cuBLAS.

    Args:
        size: M = N = K.
        dtype: of the operands and the result.
        on: the device.
        config: of our kernel; chosen as by :func:`lowering.matmul` where left out.
        rounds: samples of each.
        progress: wraps the sequence of rounds, to show a bar.
    """
    kind, torch, sizes = dtypes.get(dtype), _torch(), (size, size, size)
    operations = 2.0 * size**3
    launches = max(1, min(200, int(LAUNCH_OPERATIONS / operations)))
    with Uploaded() as memory:
        inputs = _inputs(memory, torch, size, kind)
        contenders = [ceiling(on, memory, kind.name)]
        errors: dict[str, float] = {}
        if torch is None:
            out: Any = memory.put(np.zeros((size, size), kind.numpy), "out")

            def run(number: int) -> None:
                multiply(*inputs[number % len(inputs)], out, config=config)

        else:
            out = torch.empty(size, size, device="cuda", dtype=getattr(torch, kind.name))

            def run(number: int) -> None:
                a, b = inputs[number % len(inputs)]
                matmul(a, b, out, config=config, stream=0)

            def cublas(number: int) -> None:
                torch.matmul(*inputs[number % len(inputs)], out=out)

            contenders.append(Contender(CUBLAS, cublas, operations))
            reference = inputs[0][0].double() @ inputs[0][1].double()
            for name, product in ((CUBLAS, cublas), (OURS, run)):
                out.fill_(float("nan"))
                torch.cuda.synchronize()
                product(0)
                torch.cuda.synchronize()
                errors[name] = float((out.double() - reference).norm() / reference.norm())
        contenders.append(Contender(OURS, run, operations))
        run(0)
        timings = interleaved(contenders, on, rounds, launches, progress)
        host = _host_microseconds(run)
        form = Form(dtype)
        chosen = tuning.choice(form, sizes, on) if config is None else config
        attributes = loaded(*fitted(form, chosen, sizes), on.index).attributes
    return Row(size, timings, str(chosen), errors, host, attributes)


def _host_microseconds(run: Callable[[int], None], calls: int = 200) -> float:
    """Return what a call takes on the host, in microseconds, with nothing waited for."""
    took = []
    for number in range(calls):
        began = time.perf_counter()
        run(number)
        took.append(time.perf_counter() - began)
        if number % 20 == 0:
            call("cuCtxSynchronize")
    call("cuCtxSynchronize")
    return statistics.median(took) * 1e6


def tune(size: int, dtype: str, on: Device, progress: Callable[..., Iterable[Config]]) -> Config:
    """Measure every candidate on a square problem; keep and return the fastest.

    Args:
        size: M = N = K.
        dtype: of the operands and the result.
        on: the device.
        progress: wraps the sequence of configs, to show a bar.
    """

    def time_of(config: Config) -> float:
        row = measured(size, dtype, on, config, rounds=5)
        ratio = row.ratio(CEILING)
        return math.inf if ratio is None else 1 / ratio

    best = tuning.search(Form(dtype), (size, size, size), on, time_of, progress)
    forget_plans()
    return best


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text: ratios first."""
    lines = ["  size  of ceiling  of cuBLAS   ours  cuBLAS  ceiling  error     cuBLAS's  host µs"]
    for row in rows:
        ratios = (row.ratio(name) for name in (CEILING, CUBLAS))
        of_ceiling, of_cublas = (f"{r:.3f}" if r is not None else "-" for r in ratios)
        found = (row.rate(name) for name in (OURS, CUBLAS, CEILING))
        ours, cublas, top = (f"{r:.1f}" if r is not None else "-" for r in found)
        errors = (row.errors.get(name) for name in (OURS, CUBLAS))
        error, other = (f"{e:.2e}" if e is not None else "-" for e in errors)
        lines.append(
            f"{row.size:>6}  {of_ceiling:>10}  {of_cublas:>9}  {ours:>5}  {cublas:>6}  {top:>7}  "
            f"{error:<8}  {other:<8}  {row.host_microseconds:>7.1f}  {row.config}"
        )
    return "\n".join(lines)
