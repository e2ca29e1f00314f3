"""A conversion between layouts as a kernel: load, convert, store."""

from __future__ import annotations

from layoutalg import Conversion, Iter, LayoutError, TileLayout, m
from layoutalg.algebra.parts import HasParts, span
from layoutalg.layouts.thread_slots import THREADS_OF
from layoutalg.proofs.normal_form import symbols_of
from layoutalg.sizes.size import is_int
from lowering.programs.kernel import Kernel
from lowering.programs.program import KernelProgram

DTYPES = {4: "uint4", 8: "uint8", 16: "float16", 32: "float32", 64: "float64"}  # by their bits


def program_of(conversion: Conversion, arch: str = "sm_90") -> KernelProgram:
    """Return the kernel of a conversion: ``after`` gets what ``before`` has.

    Both are matrices whose cells lie in memory thread by thread: each thread loads its elements of
    ``before``, in the order of its slots, converts, and stores those of ``after``. Threads that a
    layout does not name hold copies.

    Args:
        conversion: without symbols.
        arch: the target.

    Raises:
        LayoutError: sizes are symbols, or the target lacks an instruction.

    >>> from layoutalg import convert, parse
    >>> found = convert(parse("S[(32,2):(1@laneid,1)]"), parse("S[(2,32):(1,1@laneid)]"), (64,), 32)
    >>> import numpy as np
    >>> x = np.arange(64)
    >>> bool((program_of(found).simulate(before=x)["after"] == x).all())
    True
    """
    shape = tuple(conversion.shape)
    if symbols_of(conversion.src, conversion.dst) or not is_int(*shape):
        raise LayoutError(
            f"convert: a kernel needs numbers; {conversion.src} to {conversion.dst} over {shape} "
            "has symbols: substitute with .subs"
        )
    src, dst = (
        TileLayout.from_iters(side.shard, side.replica, dict(side.offset.items()))
        for side in (conversion.src, conversion.dst)
    )
    kernel = Kernel("convert", conversion.threads, arch)
    dtype = DTYPES[conversion.bits]
    before = kernel.param("before", shape, dtype, _by_thread(src))
    after = kernel.param("after", shape, dtype, _by_thread(dst))
    r = kernel.alloc("r", shape, dtype, layout=src)
    d = kernel.alloc("d", shape, dtype, layout=dst)
    kernel.copy(r, before)
    kernel.copy(d, r, via=conversion.kind)
    kernel.copy(after, d)
    return kernel.lower()


def _by_thread(side: HasParts) -> TileLayout:
    """Return the layout in memory of a tile over threads: one thread after the other."""
    slots = 1 << (int(span(side, m)) - 1).bit_length()
    shard = [
        Iter(it.extent, it.stride * THREADS_OF.get(it.axis, 0) * slots or it.stride, m)
        for it in side.shard
    ]
    return TileLayout.from_iters(shard)
