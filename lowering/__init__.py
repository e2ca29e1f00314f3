"""Lowering of tile primitives to tensor-core instructions, and the machines that run them."""

from lowering import variants
from lowering.dispatch import (
    Context,
    DispatchError,
    DispatchFail,
    fail,
    list_variants,
    lower,
    predicate,
    register_dispatch,
)
from lowering.instructions import MMA_INSTRUCTIONS, MmaInst
from lowering.program import Program
from lowering.tile import Buffer, BufferRegion, TilePrimitiveCall, gemm
from lowering.verification import verify

__all__ = [
    "MMA_INSTRUCTIONS", "Buffer", "BufferRegion", "Context", "DispatchError", "DispatchFail",
    "MmaInst", "Program", "TilePrimitiveCall", "fail", "gemm", "list_variants", "lower",
    "predicate", "register_dispatch", "variants", "verify",
]  # fmt: skip
