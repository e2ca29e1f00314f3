"""Passes over the tree of a kernel: loops unrolled, fences inserted, waits named, warps split."""
