"""Kernels for whole matrices, built from layouts alone: ``D = alpha·A·B + beta·C``.

A kernel is a pipeline, a core and an epilogue. A pipeline brings tiles of A and B to swizzled
shared memory, by ``cp.async`` or TMA; a core multiplies them, by ``mma.sync``, ``wgmma`` or
``tcgen05.mma``; an epilogue stores the sums. Sizes and pitches are scalars of the launch: one
kernel serves every problem of a :class:`Form`. No address is written here: each follows from the
layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from layoutalg import LayoutError
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.matrices import Matrix, poison
from lowering.kernels.config import Config, Form, Problem
from lowering.kernels.core import MmaSync, async_core
from lowering.kernels.epilogue import Epilogue, TmaEpilogue
from lowering.kernels.mainloop import CpAsyncLoop, TmaLoop, warp_specialized
from lowering.kernels.pipeline import Operand, Operands
from lowering.kernels.schedule import Schedule, one_tile
from lowering.launch.arguments import arguments
from lowering.launch.arguments import simulate as launched
from lowering.programs.kernel import Kernel
from lowering.programs.program import KernelProgram


def program_of(form: Form, config: Config, arch: str = "sm_90") -> KernelProgram:
    """Return the kernel of a form, cut as a config says.

    Its parameters are A, B, (C,) D, then the scalars M, N, K, the pitches in units of 8 elements,
    alpha and beta where the epilogue has them, and those of a :class:`Schedule` where the CTAs are
    persistent.

    Args:
        form: what it serves.
        config: how it is cut. A wgmma config takes ``tcgen05`` where the target has that.
        arch: the target; the suffix that a config needs is added.

    Raises:
        LayoutError: the shared tiles do not fit, or the core does not take the form or the config.
        DispatchError: a copy or a product of the config fits no variant.

    >>> config = Config((64, 64, 64), (4, 1), 2, 1, bulk=True, producer=True, wgmma=True)
    >>> program_of(Form("float16"), config).body.launched
    256
    """
    name, target = f"matmul_{form}_{config}", config.target(arch)
    kernel = Kernel(name, config.threads, target, config.cluster, pdl=config.wgmma)
    for size in "MNK":
        kernel.scalar(size)
    operands = Operand.of(kernel, form, config, "A"), Operand.of(kernel, form, config, "B")
    (_persistent if config.wgmma else _tile_of_each)(kernel, form, config, operands)
    return kernel.lower()


def _tile_of_each(kernel: Kernel, form: Form, config: Config, operands: Operands) -> None:
    """Add the kernel of ``mma.sync``: each CTA of the grid takes one tile."""
    core = MmaSync(kernel, form, config, operands)
    epilogue = Epilogue(kernel, form, config, core.total, core.block)
    loop = (TmaLoop if config.bulk else CpAsyncLoop)(kernel, form, config, operands, core)
    with one_tile(kernel, config) as starts:
        loop.run(starts)
        epilogue.write(starts)


def _persistent(kernel: Kernel, form: Form, config: Config, operands: Operands) -> None:
    """Add the kernel of an asynchronous core: persistent CTAs, warp-specialized."""
    core = async_core(kernel, form, config)
    epilogue = TmaEpilogue(kernel, form, config, core.total)
    for name in Schedule.SCALARS:
        kernel.scalar(name)
    warp_specialized(kernel, form, config, operands, core, epilogue)


def launch_of(
    problem: Problem,
    form: Form,
    config: Config,
    processors: int,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> tuple[tuple[int, int], dict[str, Any]]:
    """Return the grid and the scalars, by name, of a launch of :func:`program_of`.

    Raises:
        LayoutError: more tiles than a schedule counts.
    """
    m, n, _ = problem.sizes
    numbers = problem.scalars(form, alpha, beta)
    if not config.wgmma:
        return config.grid(m, n), numbers
    schedule = Schedule.of(config, m, n, processors)
    return (schedule.ctas, 1), numbers | schedule.scalars


def posed(
    form: Form, a: Matrix, b: Matrix, c: Matrix | None, padding: int
) -> tuple[Problem, dict[str, Matrix]]:
    """Return the problem of stored matrices, and the matrices in their types with a poisoned D.

    Raises:
        LayoutError: they do not fit the form or each other, or the padding is no multiple of 8.
    """
    if a.ndim != 2 or b.ndim != 2:
        raise LayoutError(
            f"simulate: A and B must have two dimensions; got {a.shape} and {b.shape}"
        )
    m, k = a.shape[::-1] if form.transpose_A else a.shape
    deep, n = b.shape[::-1] if form.transpose_B else b.shape
    if deep != k:
        raise LayoutError(f"simulate: A and B must have the same K; got {k} and {deep}")
    if (c is not None) != (form.epilogue == "beta") or (c is not None and c.shape != (m, n)):
        got = "none" if c is None else f"C of {c.shape}"
        raise LayoutError(
            f"simulate: C must be {(m, n)} with the epilogue beta, else none; got {got}"
        )
    if padding < 0 or padding % 8:
        raise LayoutError(f"simulate: padding must be a multiple of 8 from 0 on; got {padding}")
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
    processors: int = 2,
    arch: str = "sm_90",
) -> Matrix:
    """Return the product that the kernel of a form computes on the NumPy warp.

    Args:
        form: of the kernel, fitted.
        config: likewise.
        a: A as it is stored.
        b: B as it is stored.
        c: C, M x N, where the form has it.
        alpha: where the form has it.
        beta: where the form has it.
        padding: elements between the rows of every matrix, a multiple of 8; NaN is in them.
        processors: how many persistent CTAs share the tiles; at least one cluster.
        arch: the target, as of :func:`program_of`.

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
    grid, numbers = launch_of(problem, form, config, processors, alpha, beta)
    return run_grid(program_of(form, config, arch).body, grid, numbers, given)


def run_grid(
    body: KernelIR,
    extents: tuple[int, int],
    scalars: Mapping[str, Any],
    given: Mapping[str, Matrix],
) -> Matrix:
    """Run every CTA of a grid on the NumPy warp and return D; the padding holds poison.

    Args:
        body: of the kernel.
        extents: of the grid, (bx, by).
        scalars: of the launch.
        given: each matrix as it is stored.

    Raises:
        SimulationError: the kernel reads what nothing wrote, or races.
        LayoutError: it wrote to the padding of D.
    """
    made = arguments(body, {**given, **scalars}, extents)
    flat = launched(body, made, extents).memory["D"].values
    between = np.ones(len(flat), dtype=bool)
    between[made.addresses["D"]] = False
    if flat[between].tobytes() != made.cells["D"][between].tobytes():
        raise LayoutError("simulate: the kernel wrote between the rows of D")
    return made.matrix("D", flat)
