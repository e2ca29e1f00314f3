"""Instruction fragments: which element of A, B, C and D each lane holds, in PTX operand order.

The rows of :mod:`layoutalg.fragments.rows` are built, and so proved, when they are asked for.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from layoutalg.errors import LayoutError, did_you_mean
from layoutalg.fragments.certification import KINDS
from layoutalg.fragments.fragment import Formula, Fragment
from layoutalg.fragments.rows import TABLE
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.layouts.html import drawing
from layoutalg.layouts.tile_layout import TileLayout

__all__ = [
    "Counts", "Formula", "Fragment", "counts", "get", "names", "operands", "rows",
    "to_html", "transposed",
]  # fmt: skip


def transposed(layout: LayoutLike, shape: Sequence[int]) -> TileLayout:
    """Return the layout of the transposed tile: element (…, j, i) lies where (…, i, j) lay.

    >>> print(transposed(get("mma.m16n8k8.f16", "B").layout, (8, 8)))
    S[(8,4,2):(4@laneid,1@laneid,1)]
    """
    grouped, seps = as_layout(layout, "transposed").group(shape)
    rank = len(shape)
    found: TileLayout = grouped.permute_by_groups(seps, (*range(rank - 2), rank - 1, rank - 2))
    return found


def names() -> tuple[str, ...]:
    """Return the instructions of the table.

    >>> names()[0]
    'mma.m16n8k16.f16'
    """
    return tuple(TABLE)


def operands(instruction: str) -> tuple[str, ...]:
    """Return the operands of an instruction.

    Raises:
        LayoutError: no such instruction; the nearest are named.

    >>> operands("mma.m16n8k8.bf16")
    ('A', 'B', 'C/D.f32')
    """
    return tuple(row.operand for row in rows(instruction))


def rows(instruction: str) -> tuple[Fragment, ...]:
    """Return the fragments of an instruction, proved.

    Raises:
        LayoutError: no such instruction; the nearest are named.

    >>> len(rows("mma.m16n8k16.f16"))
    4
    """
    if not isinstance(instruction, str) or instruction not in TABLE:
        near = did_you_mean(instruction, names()) or "; fragments.names() lists them"
        raise LayoutError(f"fragments: no instruction is named {instruction!r}{near}")
    return _built(instruction)


@cache
def _built(instruction: str) -> tuple[Fragment, ...]:
    return TABLE[instruction]()


def get(instruction: str, operand: str) -> Fragment:
    """Return one row; "C", "D" and "C/D" name the accumulator, the first listed of several.

    A type after it chooses one: "D.f16", or "D.float16".

    Raises:
        LayoutError: no such instruction or operand.

    >>> get("mma.m16n8k16.bf16", "D").operand, get("wgmma.m64n8", "C").operand
    ('C/D.f32', 'D.f32')
    """
    known = rows(instruction)
    for row in known:
        if row.operand == operand or row.is_accumulator(operand):
            return row
    have = ", ".join(row.operand for row in known)
    raise LayoutError(f"fragments: {instruction} has the operands {have}; got {operand!r}")


@dataclass(frozen=True)
class Counts:
    """How many instructions and rows the table has, and what stands behind the rows.

    ``certified`` counts rows by the summary of their certificate, the strongest kind first.
    """

    instructions: int
    rows: int
    certified: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        """Return one line.

        >>> str(Counts(204, 486, (("measured on NVIDIA H200", 480), ("not certified", 6))))
        '204 instructions, 486 rows, each proved: 480 measured on NVIDIA H200, 6 not certified'
        """
        behind = ", ".join(f"{count} {summary}" for summary, count in self.certified)
        return f"{self.instructions} instructions, {self.rows} rows, each proved: {behind}"


def counts() -> Counts:
    """Build, and so prove, every row, and count them.

    >>> counts().instructions == len(names())
    True
    """
    every = [row for name in names() for row in rows(name)]
    behind = Counter((row.certificate.kind, row.certificate.summary) for row in every)
    ordered = sorted(behind, key=lambda pair: (KINDS.index(pair[0]), pair[1]))
    return Counts(len(names()), len(every), tuple((pair[1], behind[pair]) for pair in ordered))


def to_html(
    instruction: str,
    accumulator: str | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    lane: int = 5,
    title: str | None = None,
) -> str:
    """Return a self-contained HTML page of an instruction's operands, linked.

    A left, B on top, D in the corner: :func:`layoutalg.draw.operands_html`.

    >>> to_html("mma.m16n8k16.f16").startswith("<!DOCTYPE html>")
    True
    """
    text: str = drawing().operands_html(instruction, accumulator, path=path, lane=lane, title=title)
    return text
