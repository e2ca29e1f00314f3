"""The variants: one file each. Importing this package registers them."""

from lowering.variants import mma_sync

__all__ = ["mma_sync"]
