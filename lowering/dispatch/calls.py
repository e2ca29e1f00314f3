"""The pass that lowers tile calls: each becomes operations, by the variant that takes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from layoutalg import LayoutError
from lowering.dispatch.addresses import reach
from lowering.dispatch.holders import ALL, ControlFlow
from lowering.dispatch.registry import Lowered, context_of, dispatch
from lowering.ir.convergence import same_over
from lowering.ir.index import Index, as_index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import (
    Let,
    Loop,
    Op,
    Sync,
    TmaLoad,
    TmaStore,
    WarpSpecialize,
    When,
    walk,
)
from lowering.ir.readers import unknown
from lowering.ir.tiles import Buffer, Dispatched, TilePrimitiveCall
from lowering.passes.warp_specialization import check_producer


def dispatched(ir: KernelIR) -> tuple[Op, ...]:
    """Return the operations of a kernel, each call beside what dispatch makes of it.

    Raises:
        DispatchError: a call fits no variant.
        LayoutError: the begin of a region differs between threads that access it together, or a
            producer does something else than issue TMA loads.
    """
    return _Calls(ir).block(ir.ops, ALL)


def allocated(ir: KernelIR) -> KernelIR:
    """Return a kernel with the buffers that its dispatched calls need besides their operands."""
    needed = dict.fromkeys(
        buffer for op in walk(ir.ops) if isinstance(op, Dispatched) for buffer in op.buffers
    )
    known = {buffer.name for buffer in (*ir.registers, *ir.shared)}
    new = [buffer for buffer in needed if buffer.name not in known]
    return replace(
        ir,
        registers=(*ir.registers, *(each for each in new if each.scope == "local")),
        shared=(*ir.shared, *(each for each in new if each.scope == "shared")),
    )


class _Calls:
    """Follows the control flow around each call."""

    def __init__(self, ir: KernelIR) -> None:
        self.ir = ir
        self.loops = 0
        names = [each.name for each in (*ir.params, *ir.shared, *ir.registers, *ir.tensor)]
        names += [each.name for each in ir.barriers]
        self.buffers: dict[str, Buffer | None] = dict.fromkeys(names)

    def block(self, ops: tuple[Op, ...], flow: ControlFlow) -> tuple[Op, ...]:
        """Return the operations of a block."""
        found: list[Op] = []
        for op in ops:
            if isinstance(op, Let):
                value = op.value.replaced(flow.named)
                flow = replace(flow, named={**flow.named, op.var: value})
            elif isinstance(op, (Loop, When)):
                inside = flow.under(op.guards, self.ir.threads)
                if inside.active is None or inside.active.any():
                    self.loops += isinstance(op, Loop)
                    op = replace(op, body=self.block(op.body, inside))
                    self.loops -= isinstance(op, Loop)
                elif isinstance(op, When):
                    op = Dispatched(replace(op, body=()), "no thread comes here", ())
            elif isinstance(op, WarpSpecialize):
                produce = self.block(op.produce, flow)
                check_producer(produce)
                op = WarpSpecialize(produce, self.block(op.consume, flow))
            elif isinstance(op, TmaLoad):
                op = self.filled(op, flow)
            elif isinstance(op, TmaStore):
                op = TmaStore(self.boxes(op.stores, flow))
            elif isinstance(op, TilePrimitiveCall):
                lowered = self.lowered(op, flow)
                op = Dispatched(op, lowered.variant, self.after_others(lowered), lowered.buffers)
                self.buffers |= {buffer.name: buffer for buffer in lowered.buffers}
            elif op.bodies:
                raise unknown(op, "dispatch")
            found.append(op)
        return tuple(found)

    def filled(self, op: TmaLoad, flow: ControlFlow) -> TmaLoad:
        """Return a load of boxes, with the bytes that come to this CTA."""
        loads = self.boxes(op.loads, flow)
        bits = sum(
            load.box[0] * load.box[1] * self.ir.buffer(load.into).dtype.bits
            * (self.ir.cluster if load.multicast else 1)
            for load in loads
        )  # fmt: skip
        return replace(op, size=bits // 8, loads=loads)

    def boxes(self, calls: tuple[Any, ...], flow: ControlFlow) -> tuple[Any, ...]:
        """Return the boxes that calls copy."""
        return tuple(box for call in calls for box in self.lowered(call, flow).ops)

    def lowered(self, call: TilePrimitiveCall, flow: ControlFlow) -> Lowered:
        """Return what dispatch makes of a call."""
        self.check_begins(call, flow)
        check_inside(call, flow)
        ir = self.ir
        return dispatch(context_of(call, "cuda", ir.threads, None, ir.arch, flow, self.buffers))

    def after_others(self, lowered: Lowered) -> tuple[Op, ...]:
        """Return operations, after a barrier where they reuse shared memory that others read."""
        shared = [buffer.name for buffer in lowered.buffers if buffer.scope == "shared"]
        barriers = [op for op in walk(lowered.ops) if isinstance(op, Sync)]
        if shared and (self.loops or self.buffers.keys() & {*shared}):
            return (barriers[0], *lowered.ops)
        return lowered.ops

    def check_begins(self, call: TilePrimitiveCall, flow: ControlFlow) -> None:
        """Refuse regions that begin elsewhere in threads that take part in one access together.

        Raises:
            LayoutError: the region and the variable are named.
        """
        in_registers = any(buffer.scope == "local" for buffer in call.buffers)
        unit = "warpgroup" if call.op == "gemm_async" else "warp" if in_registers else "cta"
        for region in call.operands.values():
            for begin, _ in region.ranges:
                index = as_index(begin).replaced(flow.named)
                if not same_over(index, unit, self.ir.threads):
                    what = {"cta": "CTA"}.get(unit, unit)
                    raise LayoutError(
                        f"{call.op}: the begin of {region} must be the same in all threads of a "
                        f"{what}, which access it together"
                    )


def check_inside(call: TilePrimitiveCall, flow: ControlFlow) -> None:
    """Refuse a region that leaves its buffer for some value of its variables, in some branch taken.

    Dimensions with ``bounds`` are masked, TMA cuts its boxes at the edges of global memory, and
    what depends on the launch is the launch's.

    Raises:
        LayoutError: the range and its values are named.

    >>> from lowering.ir.index import Index
    >>> from lowering.ir.tiles import Buffer, copy
    >>> a, s = (Buffer(name, (64, 8), "float32", "shared") for name in "as")
    >>> i = Index.of("i", 5)
    >>> call = copy(s[0:16], a[i * 16 : i * 16 + 16])
    >>> check_inside(call, ControlFlow().under([i < 4], 32))
    >>> check_inside(call, ControlFlow())
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: copy: a[i * 16:i * 16 + 16,0:8] must lie in 0:64 of dimension \
0; it begins at 0 to 64: a larger buffer, or a condition such as `with k.when(i < 3):`, would fit
    """
    for region in call.operands.values():
        buffer = region.buffer
        if call.op == "bulk_copy" and buffer.scope == "global":
            continue
        for dim, (begin, _) in enumerate(region.ranges):
            if buffer.bounds[dim] is not None or not isinstance(begin, Index):
                continue
            last = buffer.shape[dim] - region.shape[dim]
            if begin.low >= 0 and begin.high <= last:
                continue
            found = reach(begin.replaced(flow.named), flow.guards)
            if found is not None and (found[0] < 0 or found[1] > last):
                raise LayoutError(
                    f"{call.op}: {region} must lie in 0:{buffer.shape[dim]} of dimension {dim}; it "
                    f"begins at {found[0]} to {found[1]}: a larger buffer, or a "
                    "condition such as `with k.when(i < 3):`, would fit"
                )
