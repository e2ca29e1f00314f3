"""Lowering of tile primitives to tensor-core instructions, and the machines that run them.

The package is imported when one of its names is first used: the command needs it rarely.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowering.dispatch import variants
    from lowering.dispatch.registry import (
        Context,
        DispatchError,
        DispatchFail,
        Lowered,
        fail,
        list_variants,
        predicate,
        register_dispatch,
    )
    from lowering.ir.expressions import (
        Expression,
        cast,
        equal,
        exp,
        exp2,
        fma,
        index,
        log2,
        maximum,
        minimum,
        not_equal,
        reciprocal,
        rsqrt,
        sqrt,
        tanh,
        where,
    )
    from lowering.ir.reductions import any, max, min, sum
    from lowering.ir.tiles import Buffer, BufferRegion, TilePrimitiveCall, copy, gemm, gemm_async
    from lowering.isa.mma import MMA_EXTENDED, MMA_FAMILY, MMA_INSTRUCTIONS, MmaInst
    from lowering.kernels.api import matmul
    from lowering.programs.kernel import Kernel
    from lowering.programs.program import KernelProgram, Program, lower
    from lowering.verification.checker import verify

__all__ = [
    "MMA_EXTENDED", "MMA_FAMILY", "MMA_INSTRUCTIONS", "Buffer", "BufferRegion", "Context",
    "DispatchError", "DispatchFail", "Expression", "Kernel", "KernelProgram", "Lowered", "MmaInst",
    "Program", "TilePrimitiveCall", "any", "cast", "copy", "equal", "exp", "exp2", "fail", "fma",
    "gemm", "gemm_async", "index", "list_variants", "log2", "lower", "matmul", "max", "maximum",
    "min", "minimum", "not_equal", "predicate", "reciprocal", "register_dispatch", "rsqrt", "sqrt",
    "sum", "tanh", "variants", "verify", "where",
]  # fmt: skip

# Where the names of __all__ live; variants come first, so that dispatch knows them.
_HOMES = (
    "dispatch.variants", "dispatch.registry", "isa.mma", "programs.kernel", "kernels.api",
    "programs.program", "ir.tiles", "ir.expressions", "ir.reductions", "verification.checker",
)  # fmt: skip

if not TYPE_CHECKING:  # a checker would take any name for one that this gives

    def __getattr__(name: str) -> Any:
        """Import the package, and return one of its public names."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: dict[str, Any] = {}
        for home in _HOMES:
            module = import_module(f"{__name__}.{home}")
            found |= {home.split(".")[-1]: module} | vars(module)
        globals().update({each: found[each] for each in __all__})
        return globals()[name]

    def __dir__() -> list[str]:
        """List the public names, whether they are imported yet or not."""
        return sorted(__all__)
