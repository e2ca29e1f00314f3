"""What orders tensor memory around the barriers of a program: fences, allocation, release.

A program says where threads meet; that their loads and stores of tensor memory come before what
others do after the meeting is said by a fence on either side. They stand at every barrier of a
program that has tensor memory: next to the barrier they cost nothing, and none is forgotten.
"""

from __future__ import annotations

from dataclasses import replace

from layoutalg import LayoutError
from lowering.ir.ops import Arrive, Loop, MbarrierWait, Op, Sync, WarpSpecialize, When, walk
from lowering.ir.tmem_ops import (
    TensorAllocate,
    TensorCommit,
    TensorCopy,
    TensorFence,
    TensorFree,
    TensorMma,
)
from lowering.isa import tcgen05


def fenced(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return operations with a fence on each side of every meeting of threads.

    >>> [str(op) for op in fenced((Sync("cta"),))][::2]
    ['tcgen05.fence.before', 'tcgen05.fence.after']
    """
    before, after = TensorFence("before"), TensorFence("after")
    found: list[Op] = []
    for op in ops:
        if isinstance(op, (Loop, When)):
            found.append(replace(op, body=fenced(op.body)))
        elif isinstance(op, WarpSpecialize):
            found.append(replace(op, consume=fenced(op.consume)))
        elif isinstance(op, Sync) and op.orders:
            found += [before, op, after]
        elif isinstance(op, Arrive):
            found += [before, op]
        elif isinstance(op, MbarrierWait):
            found += [op, after]
        else:
            found.append(op)
    return tuple(found)


def with_tensor_memory(ops: tuple[Op, ...], cta_group: int, columns: int) -> tuple[Op, ...]:
    """Return operations fenced, between the allocation of columns and their release.

    A pair of CTAs meets after the one and before the other, since each writes to both.

    Raises:
        LayoutError: more columns than there are.

    >>> [str(op) for op in with_tensor_memory((), 1, 5)]
    ['tcgen05.alloc(32)', 'tcgen05.dealloc(32)']
    """
    count = tcgen05.allocated(columns)
    pair = (Sync("cluster", memory=True),) * (cta_group == 2)
    return (
        TensorAllocate(count, cta_group),
        *fenced((*pair, *ops, *pair)),
        TensorFree(count, cta_group),
    )


def as_issued(ops: tuple[Op, ...], cluster: int) -> tuple[tuple[Op, ...], int]:
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
            "kernel: all of gemm_async and copy to tensor memory must have one scope: what a "
            "thread commits is what it started; got thread and warp"
        )
    if len(groups) > 1 or max(groups) > cluster:
        raise LayoutError(
            f"kernel: all products must be of one cta_group, and a pair is a cluster of 2; got "
            f"{' and '.join(map(str, sorted(groups)))} in clusters of {cluster}"
        )
    (issuer,), (group,) = issuers, groups

    def owned(op: Op) -> Op:
        if isinstance(op, (TensorCommit, TensorCopy)):
            return replace(op, issuer=issuer, cta_group=group)
        if isinstance(op, (Loop, When)):
            return replace(op, body=tuple(map(owned, op.body)))
        if isinstance(op, WarpSpecialize):
            return replace(op, consume=tuple(map(owned, op.consume)))
        return op

    return tuple(map(owned, ops)), group
