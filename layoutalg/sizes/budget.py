"""The limits of every expansion, proof, listing and picture.

An operation beyond its limit is refused before it begins, with its size and the limit; a proof ends
in :class:`layoutalg.Undecided`.
"""

from __future__ import annotations

from typing import Any

from layoutalg.errors import LayoutError

TERMS = 512  # of a size, multiplied out
DEPTH = 24  # of nested quotients, remainders and powers in a size
SHIFTED = 1 << 12  # terms of a polynomial, its symbols counted from their lower bounds
RESIDUES = 1 << 16  # monomials evaluated to settle whether a number divides a polynomial
COMPARED = 1 << 20  # machine coordinates that a proof enumerates
LISTED = 1 << 12  # replica steps of one element that a counter-example follows
OWNERS = 1 << 16  # machine coordinates of one element that `owners` lists
ENTRIES = 1 << 27  # entries of a table: 1 GiB on each axis
SHIFT = 1 << 12  # bits by which a formula shifts a symbolic index
CELLS = 1 << 18  # elements of a tile in a picture
DOCUMENT = 1 << 17  # cells of an SVG, 15 to 30 MB: browsers still open it
EXPLORED = 1 << 16  # elements of a layout on a page
EXPLORED_OWNERS = 1 << 20  # machine coordinates of all elements of a layout on a page
SEARCHED = 1 << 19  # elements of a shared tile, gaps included, for which a swizzle is sought
UNROLLED = 1 << 12  # instructions of a tile that is lowered without a loop
OPERATIONS = 1 << 16  # steps of unrolled loops, and accesses of a thread in one copy
REGISTERS = 1 << 12  # elements of a buffer that one thread holds
LAUNCHED = 1 << 30  # elements, gaps included, of a matrix that a launch is given or gives


def check_budget(what: str, count: Any, limit: int, unit: str, advice: str) -> None:
    """Refuse an operation that is too large, before it begins.

    Args:
        what: the operation, for messages.
        count: how many units it would take; a size with symbols is not judged.
        limit: how many it may take: one of the constants of this module.
        unit: what is counted, in the plural.
        advice: what would fit.

    Raises:
        LayoutError: there are too many.

    >>> check_budget("table", 1 << 40, ENTRIES, "entries", "Slice the layout first")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: table: takes at most 134217728 entries; got 1099511627776. \
Slice the layout first
    """
    if type(count) is int and count > limit:
        raise LayoutError(f"{what}: takes at most {limit} {unit}; got {count}. {advice}")
