"""``ldmatrix`` as a map: which lane addresses which row, and which lane receives what.

One instruction moves 1, 2 or 4 matrices of 8 rows by 16 bytes. Lane 8j + i gives the address of row
i of matrix j. Of matrix j, lane 4g + t receives in register j the 4 bytes t of row g; with
``.trans``, which counts units of 16 bits, the units (2t, g) and (2t + 1, g). The addresses that
fill an operand's registers are read off its layout and checked for every lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layoutalg.algebra.axis import WARP
from layoutalg.algebra.tables import IntArray
from layoutalg.errors import LayoutError
from layoutalg.layouts.tile_layout import Layout
from layoutalg.memory.access import Access, slotwise

_ROWS = 8
_REGISTER_BITS = 32


@dataclass(frozen=True, eq=False)
class MatrixLoad:
    """One ``ldmatrix``.

    Attributes:
        trans: the ``.trans`` form.
        registers: the b32 registers of the operand that it fills, in order.
        rows: (matrices, 8, units, 2): row and column in the stored tile of each element of each
            16-byte row; its first element is where the lane points.
    """

    trans: bool
    registers: tuple[int, ...]
    rows: IntArray

    @property
    def count(self) -> int:
        """How many matrices: 1, 2 or 4."""
        return len(self.registers)

    @property
    def address(self) -> IntArray:
        """Row and column at which each lane points: an array (32, 2).

        Lanes beyond 8 * count repeat those below: their addresses are ignored, but sm_75 wants them
        valid.
        """
        lane = np.arange(WARP)
        found: IntArray = self.rows[lane // _ROWS % self.count, lane % _ROWS, 0]
        return found

    @property
    def instruction(self) -> str:
        """The instruction, without operands."""
        form = f"x{self.count}{'.trans' * self.trans}"
        return f"ldmatrix.sync.aligned.m8n8.{form}.shared.b16"

    @property
    def access(self) -> Access:
        """The request that it makes of shared memory."""
        lanes = self.rows.reshape(1, -1, *self.rows.shape[2:])
        return Access(f"ldmatrix.x{self.count}{'.trans' * self.trans}", lanes)


def matrix_loads(
    layout: Layout,
    shape: Sequence[int],
    bits: int,
    *,
    transposed: bool = False,
    trans: bool | None = None,
    count: int | None = None,
) -> tuple[MatrixLoad, ...]:
    """Return the ``ldmatrix`` that fill an operand's registers, in order.

    Args:
        layout: of the operand, over laneid and m (the slot), as ``Fragment.layout``.
        shape: logical extents of the operand.
        bits: of an element.
        transposed: the tile is stored with its dimensions exchanged: ([K][M] for A, [N][K] for B);
            ``rows`` then counts in the stored tile.
        trans: the ``.trans`` form; the one that works unless given.
        count: matrices per instruction; the most that divide the registers unless given.

    Raises:
        LayoutError: neither form, or not the one asked for, brings the elements where the layout
            wants them: the reason is named.

    >>> from layoutalg import fragments
    >>> A = fragments.get("mma.m16n8k16.f16", "A")
    >>> (load,) = matrix_loads(A.layout, A.shape, 16, transposed=True)
    >>> load.instruction, load.address[[0, 8, 16, 24]].tolist()
    ('ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16', [[0, 0], [0, 8], [8, 0], [8, 8]])

    Source: PTX ISA, "ldmatrix".
    """
    pack = _REGISTER_BITS // bits if bits in (4, 8, 16, 32) else 0
    if not pack:
        raise LayoutError(
            f"ldmatrix: registers of 32 bits pack elements of 4, 8, 16 or 32 bits; got {bits}"
        )
    held = slotwise(layout, shape, pack, name="ldmatrix").coords
    if (slots := int(np.max(layout.table(shape).get("m", 0))) + 1) != len(held) * pack:
        raise LayoutError(
            f"ldmatrix: the operand must lie in one warp; {layout} has {slots} slots in each of "
            f"{len(held) * pack * WARP // slots} threads. Slice the warp's part first"
        )
    if len(held) % (count or 1) or count not in (None, 1, 2, 4):
        raise LayoutError(
            f"ldmatrix: count is 1, 2 or 4 and divides the {len(held)} registers; got {count}"
        )
    stored = held[..., ::-1] if transposed else held
    reasons = []
    for form in (False, True) if trans is None else (trans,):
        found = _rows(stored, bits, form)
        if isinstance(found, str):
            reasons.append(found)
            continue
        each = count or next(n for n in (4, 2, 1) if len(found) % n == 0)
        return tuple(
            MatrixLoad(form, tuple(range(at, at + each)), found[at : at + each])
            for at in range(0, len(found), each)
        )
    raise LayoutError(f"ldmatrix: {'; '.join(reasons)}")


def _rows(stored: IntArray, bits: int, trans: bool) -> IntArray | str:
    """Return the rows (registers, 8, elements, 2) of every matrix, or why there are none.

    Args:
        stored: (registers, 32, pack, 2): place in the stored tile of each lane's elements.
        bits: of an element.
        trans: the ``.trans`` form.
    """
    registers, _, pack, _ = stored.shape
    by_group = stored.reshape(registers, _ROWS, 4, pack, 2)  # register, g, t, element
    if not trans:
        rows, form = by_group.reshape(registers, _ROWS, 4 * pack, 2), "without .trans"
    elif bits == 16:
        # Row 2t + e of the matrix is element e of lane t in each group; its column is g.
        rows = by_group.transpose(0, 2, 3, 1, 4).reshape(registers, _ROWS, _ROWS, 2)
        form = "with .trans"
    elif bits < 16:
        return (
            f"with .trans, units of 16 bits move and the {16 // bits} elements in a unit stay "
            f"together: elements of {bits} bits are not transposed; store the tile the other way "
            "round"
        )
    else:
        return f"with .trans, units of 16 bits move: elements of {bits} bits would be split"
    wanted = rows[:, :, :1] + np.stack(
        [np.zeros(rows.shape[2], dtype=np.int64), np.arange(rows.shape[2])], axis=-1
    )
    wrong = np.argwhere((rows != wanted).any(axis=(2, 3)))
    if wrong.size:
        register, row = (int(i) for i in wrong[0])
        places = [tuple(place) for place in rows[register, row, :3].tolist()]
        return (
            f"{form}, a row of a matrix is 16 bytes of one stored row, but row {row} for register "
            f"{register} would be the elements {', '.join(map(str, places))} …"
        )
    return rows
