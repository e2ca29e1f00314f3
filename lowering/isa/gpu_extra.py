"""The extra ``gpu``: the wheels that compile, assemble and launch, and the error without them."""

from __future__ import annotations

import importlib.util

from layoutalg import LayoutError

INSTALL = "pip install 'layoutalg[gpu]'"


def installed() -> bool:
    """Say whether numba-cuda, which brings the wheels, is there."""
    return importlib.util.find_spec("numba_cuda") is not None


def missing(operation: str, package: str, error: Exception) -> LayoutError:
    """Return the error of an operation that needs a wheel of the extra.

    >>> str(missing("ptx", "numba-cuda", ImportError("no module")))
    "ptx: needs numba-cuda (no module): pip install 'layoutalg[gpu]', on Linux or Windows"
    """
    return LayoutError(f"{operation}: needs {package} ({error}): {INSTALL}, on Linux or Windows")
