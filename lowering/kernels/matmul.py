"""Kernels for whole matrices, built from layouts alone: ``D = f(A·B, …)``.

A kernel is a pipeline, a core and an epilogue. A pipeline brings tiles of A and B to swizzled
shared memory, by ``cp.async`` or TMA; a core multiplies them, by ``mma.sync``, ``wgmma`` or
``tcgen05.mma``; an epilogue stores the sums, or what an expression makes of them. Sizes and pitches
are scalars of the launch: one kernel serves every problem of a :class:`Form`. No address is written
here: each follows from the layouts.
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

    Its parameters are A, B, the matrices of the epilogue, D, then the scalars M, N, K, the pitches
    in units of 8 elements, the numbers of the epilogue, and those of a :class:`Schedule` where the
    CTAs are persistent.

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
        epilogue.ahead(starts)
        epilogue.write(starts)


def _persistent(kernel: Kernel, form: Form, config: Config, operands: Operands) -> None:
    """Add the kernel of an asynchronous core: persistent CTAs, warp-specialized."""
    core = async_core(kernel, form, config)
    epilogue = TmaEpilogue(kernel, form, config, core.total)
    for name in Schedule.SCALARS:
        kernel.scalar(name)
    warp_specialized(kernel, form, config, operands, core, epilogue)


def launch_of(
    problem: Problem, config: Config, processors: int
) -> tuple[tuple[int, int], dict[str, Any]]:
    """Return the grid and the scalars, by name, of a launch of :func:`program_of`.

    The numbers of the epilogue are left out.

    Raises:
        LayoutError: more tiles than a schedule counts.
    """
    m, n, _ = problem.sizes
    if not config.wgmma:
        return config.grid(m, n), problem.scalars
    schedule = Schedule.of(config, m, n, processors)
    return (schedule.ctas, 1), problem.scalars | schedule.scalars


def posed(
    form: Form, a: Matrix, b: Matrix, operands: Mapping[str, Any], padding: int
) -> tuple[Problem, dict[str, Any]]:
    """Return the problem of stored matrices, and all arguments by name with a poisoned D.

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
    if padding < 0 or padding % 8:
        raise LayoutError(f"simulate: padding must be a multiple of 8 from 0 on; got {padding}")
    given: dict[str, Any] = {
        "A": a.astype(form.dtype.numpy), "B": b.astype(form.dtype.numpy),
        "D": poison(form.out.numpy, (m, n)),
    }  # fmt: skip
    pitches = {role: matrix.shape[1] + padding for role, matrix in given.items()}
    letters = {} if form.epilogue is None else form.epilogue.letters
    known = [each.name for each in letters]
    if set(known) != set(operands):
        raise LayoutError(
            f"simulate: the epilogue takes {', '.join(known) or 'no operands'}; got "
            f"{', '.join(operands) or 'none'}"
        )
    for each, letter in letters.items():
        value = operands[each.name]
        if each.extents is None:
            given[letter] = value
            continue
        shape = each.shape((m, n))
        if np.shape(value) not in (shape, shape[shape[0] == 1 :]):
            raise LayoutError(f"simulate: {each.name} must be {shape}; got {np.shape(value)}")
        given[letter] = np.asarray(value).reshape(shape).astype(each.dtype.numpy)
        if each.extents == "MN":
            pitches[letter] = n + padding
    return Problem((m, n, k), pitches), given


def simulate(
    form: Form,
    config: Config,
    a: Matrix,
    b: Matrix,
    operands: Mapping[str, Any] | None = None,
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
        operands: of the form's epilogue, by name: matrices and numbers.
        padding: elements between the rows of every matrix, a multiple of 8; NaN is in them.
        processors: how many persistent CTAs share the tiles; at least one cluster.
        arch: the target, as of :func:`program_of`.

    Raises:
        SimulationError: the kernel reads what nothing wrote, or races.
        LayoutError: sizes that no kernel takes, or operands that are not the epilogue's.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.integers(-4, 5, (16, 24)), rng.integers(-4, 5, (24, 32))
    >>> form, config = Form("float16", "float32"), Config((32, 32, 32), (1, 2), 2, 1)
    >>> bool((simulate(form, config, a, b) == a @ b).all())
    True
    """
    problem, given = posed(form, a, b, operands or {}, padding)
    grid, numbers = launch_of(problem, config, processors)
    return run_grid(program_of(form, config, arch).body, grid, {**given, **numbers})


def run_grid(body: KernelIR, extents: tuple[int, int], given: Mapping[str, Any]) -> Matrix:
    """Run every CTA of a grid on the NumPy warp and return D; the padding holds poison.

    Args:
        body: of the kernel.
        extents: of the grid, (bx, by).
        given: each matrix as it is stored, and the scalars of the launch.

    Raises:
        SimulationError: the kernel reads what nothing wrote, or races.
        LayoutError: it wrote to the padding of D.
    """
    made = arguments(body, given, extents)
    flat = launched(body, made, extents).memory["D"].values
    between = np.ones(len(flat), dtype=bool)
    between[made.addresses["D"]] = False
    if flat[between].tobytes() != made.cells["D"][between].tobytes():
        raise LayoutError("simulate: the kernel wrote between the rows of D")
    return made.matrix("D", flat)
