"""Lowering of tile primitives to tensor-core instructions, and the machines that run them."""

from lowering import variants
from lowering.dispatch import (
    Context,
    DispatchError,
    DispatchFail,
    Lowered,
    fail,
    list_variants,
    predicate,
    register_dispatch,
)
from lowering.instructions import MMA_EXTENDED, MMA_FAMILY, MMA_INSTRUCTIONS, MmaInst
from lowering.kernel import Kernel, KernelProgram
from lowering.product import matmul
from lowering.program import Program, lower
from lowering.tile import Buffer, BufferRegion, TilePrimitiveCall, copy, gemm, gemm_async
from lowering.verification import verify

__all__ = [
    "MMA_EXTENDED", "MMA_FAMILY", "MMA_INSTRUCTIONS", "Buffer", "BufferRegion", "Context",
    "DispatchError", "DispatchFail", "Kernel", "KernelProgram", "Lowered", "MmaInst", "Program",
    "TilePrimitiveCall", "copy", "fail", "gemm", "gemm_async", "list_variants", "lower", "matmul",
    "predicate", "register_dispatch", "variants", "verify",
]  # fmt: skip
