"""The stages of lowering: from tiles as written to operations, by passes over one tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import lowering.dispatch.variants  # noqa: F401 - registers what dispatch picks from
from layoutalg import LayoutError
from layoutalg.sizes.budget import OPERATIONS, check_budget
from lowering.codegen import cuda_cpp
from lowering.dispatch.calls import allocated, dispatched
from lowering.ir import convergence, names
from lowering.ir.kernel_ir import KernelIR, Scalar
from lowering.ir.ops import Op
from lowering.ir.tiles import expanded
from lowering.isa.limits import shared_limit
from lowering.passes.fences import with_proxy_fences, with_tensor_memory
from lowering.passes.unrolling import steps, unroll
from lowering.passes.warp_specialization import by_consumers, check_one_producer
from lowering.passes.wgmma_order import with_completed

Pass = Callable[[KernelIR], tuple[Op, ...]]

# Each stage with the passes that lead to it from the one before. The tree can be read after each:
# calls on tiles; no loops that are to be unrolled; each call beside what a variant makes of it,
# and the fences between them; registers and addresses.
STAGES: Mapping[str, tuple[Pass, ...]] = {
    "tile": (),
    "unrolled": (lambda ir: unroll(ir.ops),),
    "dispatched": (dispatched, lambda ir: with_proxy_fences(ir.ops)),
    "operations": (
        lambda ir: expanded(ir.ops),
        lambda ir: with_completed(ir.ops),
        lambda ir: by_consumers(ir.ops, ir.threads) if ir.warp_specialized else ir.ops,
        with_tensor_memory,
    ),
}


def lower(ir: KernelIR, name: str) -> dict[str, KernelIR]:
    """Return the kernel after each stage.

    Args:
        ir: of calls on tiles.
        name: of the kernel, for messages.

    Raises:
        DispatchError: a call fits no variant; the error lists each reason.
        LayoutError: too many operations, or what :func:`check` refuses.
    """
    advice = "Leave a loop rolled (without unroll=True)"
    check_budget(f"lower: {name}", steps(ir.ops), OPERATIONS, "unrolled statements", advice)
    found = {}
    for stage, passes in STAGES.items():
        for each in passes:
            ir = replace(ir, ops=each(ir))
        found[stage] = ir = allocated(ir)
    check(ir, name)
    return found


def check(ir: KernelIR, name: str) -> None:
    """Refuse what some machine could not run, or would run otherwise than another.

    Raises:
        LayoutError: a variable without a value, an operation that its unit does not take alike,
            too much shared memory, a second producer, registers that
            nothing sets, or what the texts or the target lack.
    """
    check_one_producer(ir.ops, name)
    for buffer in ir.params:
        for bound in buffer.bounds:
            if bound is not None and Scalar(bound) not in ir.scalars:
                raise LayoutError(
                    f"Kernel {name}: the bound {bound} of {buffer.name} is no s32 scalar of the "
                    f"kernel; declare it with scalar({bound!r})"
                )
    names.check_scopes(ir.ops, [each.name for each in ir.scalars])
    convergence.check(ir.ops, ir.threads)
    limit = shared_limit(ir.arch)
    if ir.shared_bytes > limit:
        raise LayoutError(
            f"Kernel {name}: shared buffers take {ir.shared_bytes} bytes; a CTA of {ir.arch} has "
            f"{limit}"
        )
    cuda_cpp.check(ir, name)
    ir.check_written()
