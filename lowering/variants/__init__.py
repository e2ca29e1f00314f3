"""The variants: one file each. Importing this package registers them."""

from lowering.variants import copy_cooperative, copy_vector, elementwise, ldstmatrix, mma_sync

__all__ = ["copy_cooperative", "copy_vector", "elementwise", "ldstmatrix", "mma_sync"]
