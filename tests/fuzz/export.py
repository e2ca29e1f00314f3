"""Kernels for a device: made, with inputs and what must come out, where there is no GPU."""

from __future__ import annotations

from pathlib import Path


def kernels(count: int, folder: Path, seed: int, jobs: int) -> int:
    """Write right kernels."""
    raise NotImplementedError


def races(count: int, folder: Path, seed: int, jobs: int) -> int:
    """Write kernels with planted races."""
    raise NotImplementedError
