"""The variants: one file each. Importing this package registers them."""

from lowering.dispatch.variants import (
    atomic,
    bulk_tensor,
    convert_registers,
    convert_shared,
    copy_cooperative,
    copy_vector,
    elementwise,
    ldstmatrix,
    mma_extended,
    mma_sync,
    reduce,
    tcgen05,
    tensor_copy,
    wgmma,
)

__all__ = [
    "atomic", "bulk_tensor", "convert_registers", "convert_shared", "copy_cooperative",
    "copy_vector", "elementwise", "ldstmatrix", "mma_extended", "mma_sync", "reduce", "tcgen05",
    "tensor_copy", "wgmma",
]  # fmt: skip
