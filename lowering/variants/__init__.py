"""The variants: one file each. Importing this package registers them."""

from lowering.variants import copy_vector, mma_sync

__all__ = ["copy_vector", "mma_sync"]
