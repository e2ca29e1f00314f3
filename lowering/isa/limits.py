"""Shared memory of a CTA on each target: a table by compute capability."""

from __future__ import annotations

from lowering.isa.mma import compute_capability

KIB = 1024
# Bytes of shared memory that one CTA can have, by compute capability; one that is not listed has
# that of the nearest below it.
# Source: CUDA C++ programming guide, Technical Specifications per Compute Capability, "Maximum
# amount of shared memory per thread block".
SHARED = {
    (7, 5): 64 * KIB, (8, 0): 163 * KIB, (8, 6): 99 * KIB, (8, 7): 163 * KIB, (8, 8): 99 * KIB,
    (9, 0): 227 * KIB, (12, 0): 99 * KIB,
}  # fmt: skip


def shared_limit(arch: str) -> int:
    """Return how many bytes of shared memory one CTA can have on a target.

    Raises:
        LayoutError: an unknown target.

    >>> [shared_limit(arch) // 1024 for arch in ("sm_75", "sm_89", "sm_90a", "sm_100", "sm_121")]
    [64, 99, 227, 227, 99]
    """
    version = tuple(compute_capability(arch)[:2])
    return next((SHARED[each] for each in reversed(SHARED) if each <= version), SHARED[7, 5])
