"""``copy`` between global and shared memory by all threads of the CTA, in the widest vectors.

Thread t takes vector t, t + threads, … of the tile in row-major order. The width is the widest at
which both sides lie in consecutive, aligned cells; by ``cp.async`` where the copy asks for it.
"""

from __future__ import annotations

import numpy as np

from layoutalg import LayoutError
from layoutalg.algebra import iters as algebra
from layoutalg.sizes.budget import OPERATIONS
from lowering.dispatch.addresses import edge_guards, environment, memory_address, one_edge, placed
from lowering.dispatch.registry import Answer, Context, Lowered, fail, predicate, register_dispatch
from lowering.ir.index import Guard, Index
from lowering.ir.ops import Op, Transfer
from lowering.ir.tiles import BufferRegion
from lowering.isa import ptx

WIDEST = 128  # bits
ASYNC_BYTES = (16, 8, 4)


def both_in_memory(context: Context) -> Answer:
    """Hold where both sides lie in shared or global memory."""
    have = context.spaces
    if set(have.values()) <= {"shared", "global"}:
        return True
    return False, (
        f"both sides must be in shared or global memory; dst is {have['dst']}, src {have['src']}"
    )


def _contiguous(
    region: BufferRegion, flat: Index, shape: tuple[int, ...], threads: int, width: int
) -> bool:
    """Say whether each run of ``width`` elements lies in consecutive, aligned cells."""
    places = [placed(region, algebra.split(flat + step, shape), shape) for step in range(width)]
    starts, *others = (memory_address(region.buffer, place) for place in places)
    env = environment([starts, *others], threads)
    base = np.broadcast_to(starts.value(env), env["thread"].shape)
    if (base % width).any():
        return False
    if any((other.value(env) != base + step).any() for step, other in enumerate(others, 1)):
        return False
    return one_edge([edge_guards(region.buffer, place) for place in places], region.buffer.multiple)


@register_dispatch(
    "copy",
    "cuda",
    variant="cooperative",
    priority=0,
    when=[predicate("both_in_memory", both_in_memory)],
)
def lower_cooperative(context: Context) -> Lowered:
    """Lower a copy between memories to vectors, distributed over the threads."""
    dst, src = context.call.operands["dst"], context.call.operands["src"]
    asynchronous = context.call.config.get("asynchronous", False)
    shape = tuple(int(extent) for extent in src.shape if extent != 1) or (1,)
    total, bits = int(np.prod(shape)), src.buffer.dtype.bits
    refusal = context.lacks("cp.async", ptx.cp_async(ASYNC_BYTES[0]).min_arch)
    if asynchronous and refusal is not None:
        fail(refusal)
    fewest = -(-total * bits // WIDEST)
    _check_count(fewest, context)
    try:
        width = _width(dst, src, shape)
    except LayoutError as error:
        fail(str(error))
    if asynchronous and width * bits // 8 not in ASYNC_BYTES:
        fail(
            f"cp.async moves 4, 8 or 16 bytes; {src} and {dst} have {width * bits // 8} bytes in "
            "consecutive, aligned cells"
        )
    vectors = total // width
    _check_count(vectors, context)
    ops: list[Op] = []
    for start in range(0, vectors, context.threads):
        taking = min(context.threads, vectors - start)
        thread = Index.of("thread", context.threads)
        guards = () if taking == context.threads else (Guard(thread, 0, taking),)
        flat = (Index.of("thread", taking) + start) * width
        digits = algebra.split(flat, shape)
        outside, edges = (
            edge_guards(region.buffer, placed(region, digits, shape)) for region in (dst, src)
        )
        if edges and asynchronous and width * bits != WIDEST:
            fail(
                f"zeros beyond the edges of {src.buffer.name} need 16-byte copies by cp.async; got "
                f"{width * bits // 8} bytes in consecutive, aligned cells"
            )
        ops.append(
            Transfer(
                dst.buffer.name,
                memory_address(dst.buffer, placed(dst, digits, shape)),
                src.buffer.name,
                memory_address(src.buffer, placed(src, digits, shape)),
                width,
                guards + outside,
                asynchronous,
                edges,
                context.call.config.get("aliases", False),
            )
        )
    return Lowered(tuple(ops))


def _check_count(vectors: int, context: Context) -> None:
    """Decline a copy that is unrolled into more accesses than fit a text.

    Raises:
        DispatchFail: their number, and what would fit.
    """
    count = -(-vectors // context.threads)
    if count > OPERATIONS:
        fail(
            f"is unrolled into at most {OPERATIONS} accesses of each thread; got {count}: copy "
            "parts in a loop that stays, or by more CTAs"
        )


def _width(dst: BufferRegion, src: BufferRegion, shape: tuple[int, ...]) -> int:
    """Return the widest vector at which both sides are consecutive and aligned."""
    total = int(np.prod(shape))
    width = max(1, WIDEST // src.buffer.dtype.bits)
    while width > 1:
        if shape[-1] % width == 0:
            flat = Index.of("vector", total // width) * width
            if all(_contiguous(region, flat, shape, 1, width) for region in (dst, src)):
                return width
        width //= 2
    return 1
