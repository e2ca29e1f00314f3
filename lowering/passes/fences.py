"""The fences that a program needs and does not say: of the async proxy, of tensor memory.

A program says where threads meet. That what they wrote to shared memory is seen by the async proxy
(TMA, ``wgmma``, ``tcgen05``) is said by a fence before the meeting; that their loads and stores of
tensor memory come before what others do after it, by a fence on either side.
"""

from __future__ import annotations

from dataclasses import replace

from layoutalg import LayoutError
from lowering.ir.kernel_ir import KernelIR, tensor_columns
from lowering.ir.ops import (
    Arrive,
    Loop,
    MbarrierWait,
    Op,
    ProxyFence,
    SharedMatrix,
    Sync,
    TmaLoad,
    TmaStore,
    Transfer,
    Wait,
    WarpSpecialize,
    When,
    rewrite,
    walk,
)
from lowering.ir.tiles import expanded
from lowering.ir.tmem_ops import (
    TensorAllocate,
    TensorCommit,
    TensorCopy,
    TensorFence,
    TensorFree,
    TensorMma,
)
from lowering.isa import tcgen05

# -- the async proxy ------------------------------------------------------------------------------


def with_proxy_fences(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return operations with ``fence.proxy.async`` where the async proxy is to see what is written.

    It stands before the first barrier, or arrival at one, after threads may have written to a
    buffer that the async proxy touches anywhere in the kernel.

    >>> from lowering.ir.index import Index
    >>> from lowering.ir.ops import BulkStore, Registers, Store
    >>> at = Index(), Index()
    >>> write = Store("tile", Index(), Registers("r", (0,)))
    >>> send = TmaStore((BulkStore("a", at, (8, 8), 0, "tile", Index()),))
    >>> [type(op).__name__ for op in with_proxy_fences((write, Sync("cta"), send, Sync("cta")))]
    ['Store', 'ProxyFence', 'Sync', 'TmaStore', 'Sync']
    """
    return _ProxyFences(ops).run(ops, False)[0]


class _ProxyFences:
    """Follows, on every way through a kernel, whether a write is not yet fenced."""

    def __init__(self, ops: tuple[Op, ...]) -> None:
        every = list(walk(expanded(ops)))
        parts = (part for op in every for _, part in op.parts)
        self.touched = {part.memory for part in parts if isinstance(part, SharedMatrix)}
        for op in every:
            if isinstance(op, (TmaLoad, TmaStore)):
                self.touched |= op.writes if isinstance(op, TmaLoad) else op.reads
        copies = (op for op in every if isinstance(op, Transfer) and op.asynchronous)
        self.copied = any(op.writes & self.touched for op in copies)

    def leaves_unfenced(self, op: Op) -> bool:
        """Say whether threads have written what the async proxy touches."""
        if isinstance(op, Wait):
            return self.copied
        return not isinstance(op, TmaLoad) and bool(op.writes & self.touched)

    def run(self, ops: tuple[Op, ...], unfenced: bool) -> tuple[tuple[Op, ...], bool]:
        """Return operations with fences, and whether a write may be unfenced after them.

        Args:
            ops: some operations of the kernel.
            unfenced: whether one may be before them.
        """
        found: list[Op] = []
        for op in ops:
            if isinstance(op, (Loop, When)):
                before = unfenced
                if isinstance(op, Loop):  # what the step before left
                    before |= self.run(op.body, unfenced)[1]
                body, after = self.run(op.body, before)
                skipped = isinstance(op, When) or not isinstance(op.extent, int)
                unfenced = after or (skipped and before)
                op = replace(op, body=body)
            elif isinstance(op, WarpSpecialize):  # the producer writes nothing itself
                consume, unfenced = self.run(op.consume, unfenced)
                op = replace(op, consume=consume)
            elif isinstance(op, Arrive) or (isinstance(op, Sync) and op.orders):
                found += [ProxyFence()] * unfenced
                unfenced = False
            else:
                unfenced |= self.leaves_unfenced(op)
            found.append(op)
        return tuple(found), unfenced


# -- tensor memory --------------------------------------------------------------------------------


def with_tensor_memory(ir: KernelIR) -> tuple[Op, ...]:
    """Wrap a kernel in ``tcgen05.alloc`` and ``dealloc``, with fences around every barrier.

    With cta_group 2 a cluster barrier follows the one and precedes the other.

    Raises:
        LayoutError: more columns than there are, or as :func:`issued`.
    """
    if not ir.tensor:
        return ir.ops
    ops, group = issued(ir.ops, ir.cluster)
    count = tcgen05.allocated(sum(tensor_columns(buffer) for buffer in ir.tensor))
    pair = (Sync("cluster", memory=True),) * (group == 2)
    return (TensorAllocate(count, group), *fenced((*pair, *ops, *pair)), TensorFree(count, group))


def fenced(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Put ``tcgen05.fence`` before and after every barrier, where it costs nothing.

    >>> [str(op) for op in fenced((Sync("cta"),))][::2]
    ['tcgen05.fence.before', 'tcgen05.fence.after']
    """
    before, after = TensorFence("before"), TensorFence("after")

    def change(op: Op) -> tuple[Op, ...]:
        if isinstance(op, Sync) and op.orders:
            return before, op, after
        if isinstance(op, Arrive):
            return before, op
        return (op, after) if isinstance(op, MbarrierWait) else (op,)

    return rewrite(ops, change)


def issued(ops: tuple[Op, ...], cluster: int) -> tuple[tuple[Op, ...], int]:
    """Return operations with each commit by what starts what it covers; and for how many CTAs.

    Args:
        ops: of the whole kernel.
        cluster: how many CTAs run together.

    Raises:
        LayoutError: threads of both kinds start something, products are of one CTA and of pairs,
            or there are no pairs.
    """
    products = [op for op in walk(ops) if isinstance(op, TensorMma)]
    issuers = {op.issuer for op in walk(ops) if isinstance(op, (TensorMma, TensorCopy))}
    issuers = issuers or {"thread"}
    groups = {op.what.instruction.cta_group for op in products} or {1}
    if len(issuers) > 1:
        raise LayoutError(
            "kernel: all tcgen05 operations must have one scope, since a commit covers what the "
            "same thread issued; got thread and warp"
        )
    if len(groups) > 1 or max(groups) > cluster:
        raise LayoutError(
            f"kernel: all products must be of one cta_group, and a pair is a cluster of 2; got "
            f"{' and '.join(map(str, sorted(groups)))} in clusters of {cluster}"
        )
    (issuer,), (group,) = issuers, groups

    def owned(op: Op) -> tuple[Op, ...]:
        if isinstance(op, (TensorCommit, TensorCopy)):
            return (replace(op, issuer=issuer, cta_group=group),)
        return (op,)

    return rewrite(ops, owned), group
