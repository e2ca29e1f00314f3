"""Casts between element types: rows of :mod:`lowering.isa.functions`."""

from __future__ import annotations

from lowering.isa import functions
from lowering.isa.functions import Function


def cast(source: str, target: str) -> Function:
    """Return the cast from one type to another.

    Raises:
        LayoutError: there is none.
    """
    found = functions.get("cast", (source,))
    assert found.result == target
    return found
