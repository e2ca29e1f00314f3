"""Requests to memory: the addresses of a warp's instruction, and how many wavefronts they take.

Shared memory has 32 banks; the word (4 bytes) at byte address a lies in bank ``a // 4 mod 32``. A
request is served in phases of as many lanes as move 128 bytes together: a whole warp where a lane
moves 4 bytes or fewer, half of it for 8, a quarter for 16, and one 8x8 matrix of ``ldmatrix``. A
phase takes one wavefront for each distinct word in its busiest bank: lanes that read the same word
share it, and inactive lanes count for nothing. Global memory is read in sectors of 32 bytes.

Source: CUDA C++ Programming Guide, "Shared Memory"; Nsight Compute, "Memory Tables".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg.algebra.axis import WARP
from layoutalg.algebra.tables import IntArray
from layoutalg.errors import LayoutError
from layoutalg.layouts.thread_slots import THREADS_OF
from layoutalg.layouts.tile_layout import Layout
from layoutalg.sizes.dtypes import OPERANDS, STORED, element_type

Bools = npt.NDArray[np.bool_]

BANKS = 32
WORD_BYTES = 4
LINE_BYTES = BANKS * WORD_BYTES
SECTOR_BYTES = 32
_ROW_BYTES = 16  # of an 8x8 matrix
_SIZES = (1, 2, 4, 8, 16)  # bytes that a lane moves in one access of shared memory


def element_bits(dtype: int | str, function: str) -> int:
    """Return the width of an element: a number of bits, or a type as PTX or NumPy names it.

    Raises:
        LayoutError: no width that divides or is a multiple of a byte; an unknown type.

    >>> [element_bits(dtype, "doc") for dtype in ("bf16", "bfloat16", 8)]
    [16, 16, 8]
    """
    row = element_type(dtype)
    bits = row.bits if row is not None else dtype
    if isinstance(bits, bool) or bits not in (1, 2, 4, 8, 16, 32, 64, 128):
        raise LayoutError(
            f"{function}: the element is given by its bits (1, 2, 4, 8, 16, 32, 64 or 128) or by "
            f"its type, such as f16 or float16; got {dtype!r}. Types that fit: "
            + ", ".join(dict.fromkeys(each.token for each in (*OPERANDS, *STORED)))
        )
    return int(bits)


def phase_lanes(size: int) -> int:
    """Return how many lanes of ``size`` bytes are served together: at most 32.

    Raises:
        LayoutError: no access of shared memory moves so many bytes per lane.

    >>> [phase_lanes(size) for size in (2, 4, 8, 16)]
    [32, 32, 16, 8]
    """
    if size not in _SIZES:
        raise LayoutError(
            f"banks: a lane moves 1, 2, 4, 8 or 16 bytes of shared memory at once; got {size} bytes"
        )
    return min(WARP, LINE_BYTES // max(size, WORD_BYTES))


def phases(starts: IntArray, size: int, taking: Bools | None = None) -> tuple[IntArray, Bools]:
    """Split requests into the phases of shared memory: the lanes that it serves at once.

    Args:
        starts: (requests, lanes): where each lane's vector begins, in any unit; any number of
            lanes, so that the last phase of a request may be partial.
        size: bytes that each lane moves.
        taking: (requests, lanes): the active lanes; all unless given.

    Returns:
        Starts and active lanes, as arrays (phases, lanes of a phase), without idle phases.

    Raises:
        LayoutError: no access of shared memory moves so many bytes per lane.

    >>> groups, taking = phases(np.arange(20)[None, :], 8)
    >>> groups.shape, taking.sum(axis=1)
    ((2, 16), array([16,  4]))
    """
    lanes, (requests, given) = phase_lanes(size), starts.shape
    shape = (requests, -(-given // lanes) * lanes)
    groups, kept = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
    groups[:, :given] = starts
    kept[:, :given] = True if taking is None else taking
    groups, kept = groups.reshape(-1, lanes), kept.reshape(-1, lanes)
    some = kept.any(axis=1)
    return groups[some], kept[some]


def bank_counts(starts: IntArray, size: int, taking: Bools | None = None) -> IntArray:
    """Count the distinct words that each phase reads from each bank.

    Args:
        starts: (phases, lanes): byte addresses, multiples of the size where that is over 4.
        size: bytes that each lane moves.
        taking: (phases, lanes): the active lanes; all unless given.

    Returns:
        An array (phases, 32); a phase takes as many wavefronts as its largest entry.

    >>> column = np.arange(32)[None, :] * 128
    >>> bank_counts(column, 4).max(), bank_counts(column + np.arange(32) * 4, 4).max()
    (np.int64(32), np.int64(1))
    >>> bank_counts(column, 4, column < 20 * 128).max()
    np.int64(20)
    """
    if taking is not None:  # an inactive lane repeats the address of an active one
        first = starts[np.arange(len(starts)), taking.argmax(axis=1)]
        starts = np.where(taking, starts, first[:, None])
    words = starts[..., None] // WORD_BYTES + np.arange(max(1, size // WORD_BYTES))
    words = np.sort(words.reshape(len(starts), math.prod(words.shape[1:])), axis=1)
    fresh = np.ones(words.shape, dtype=bool)
    fresh[:, 1:] = words[:, 1:] != words[:, :-1]
    if taking is not None:
        fresh &= taking.any(axis=1, keepdims=True)
    phase, _ = np.nonzero(fresh)
    flat = phase * BANKS + words[fresh] % BANKS
    return np.bincount(flat, minlength=len(starts) * BANKS).reshape(len(starts), BANKS)


def wavefronts(counts: IntArray) -> IntArray:
    """Return the wavefronts of each phase: the largest of its bank counts.

    >>> wavefronts(bank_counts(np.arange(8)[None, :] * 64, 16))
    array([4])
    """
    found: IntArray = counts.max(axis=1)
    return found


def fewest_wavefronts(counts: IntArray) -> IntArray:
    """Return the wavefronts that each phase would take if its words were spread evenly.

    >>> fewest_wavefronts(bank_counts(np.arange(8)[None, :] * 64, 16))
    array([1])
    """
    spread: IntArray = -(-counts.sum(axis=1) // BANKS)
    return spread


def sectors(starts: IntArray, size: int, taking: Bools | None = None) -> tuple[IntArray, ...]:
    """Return the numbers of the 32-byte sectors that each request touches, in increasing order.

    Args:
        starts: (requests, lanes): byte addresses.
        size: bytes that each lane moves.
        taking: (requests, lanes): the active lanes; all unless given.

    >>> sectors(np.arange(32)[None, :] * 4, 4)
    (array([0, 1, 2, 3]),)
    """
    first, last = starts // SECTOR_BYTES, (starts + max(size, 1) - 1) // SECTOR_BYTES
    reach = first[..., None] + np.arange(int((last - first).max()) + 1)
    asked = reach <= last[..., None]
    if taking is not None:
        asked &= taking[..., None]
    return tuple(np.unique(row[mine]) for row, mine in zip(reach, asked, strict=True))


@dataclass(frozen=True, eq=False)
class Access:
    """The accesses of a tile by warps, one request per instruction.

    Attributes:
        name: as PTX or the user says it.
        coords: (requests, lanes, count, 2): row and column of each element of each lane, in the
            order of the lane's vector; -1 throughout in an inactive lane.
    """

    name: str
    coords: IntArray

    def __post_init__(self) -> None:
        """Check the coordinates: a lane has its whole vector, or is inactive."""
        given = self.coords >= 0
        whole = given.ndim == 4 and given.shape[3] == 2
        if not whole or (given.any(axis=(2, 3)) != given.all(axis=(2, 3))).any():
            raise LayoutError(
                f"{self.name}: an access is an array (requests, lanes, elements of a lane, 2) of "
                "rows and columns, -1 throughout in a lane that takes no part; got "
                f"{'-1 in a part of a lane' if whole else f'shape {self.coords.shape}'}"
            )

    @property
    def taking(self) -> Bools:
        """The active lanes: an array (requests, lanes)."""
        part: Bools = self.coords[:, :, 0, 0] >= 0
        return part

    @property
    def count(self) -> int:
        """Elements per lane."""
        return int(self.coords.shape[2])

    def starts(self, layout: Layout, shape: Sequence[int], bits: int) -> IntArray:
        """Return where every lane's vector begins, in elements: an array (requests, lanes).

        An inactive lane has 0.

        Raises:
            LayoutError: the elements of a lane are not neighbours in memory, or do not begin at a
                multiple of their size: no vector instruction moves them; or they lie on other axes
                than m.

        >>> from layoutalg import S, TileLayout
        >>> tile = TileLayout(S[(16, 16) : (18, 1)])
        >>> matrices((16, 16), 16).starts(tile, (16, 16), 16)
        Traceback (most recent call last):
        layoutalg.errors.LayoutError: ldmatrix.x4: row start not 16-byte aligned: element (1, 0) \
lies at byte 36. A pitch that is a multiple of 8 elements fits
        """
        table = layout.table(shape)
        if set(table) != {"m"}:
            raise LayoutError(
                f"{self.name}: the tile must lie in memory, on axis m alone; {layout} has "
                f"{', '.join(sorted(table)) or 'none'}"
            )
        address = table["m"][self.coords[..., 0], self.coords[..., 1]]
        taking = self.taking
        apart = np.argwhere((np.diff(address, axis=-1) != 1).any(axis=-1) & taking)
        if apart.size:
            request, lane = (int(i) for i in apart[0])
            raise LayoutError(
                f"{self.name}: inner stride not 1: a lane moves {self.count} elements that are "
                f"neighbours in memory; those from {_place(self.coords[request, lane, 0])} on lie "
                f"at {address[request, lane].tolist()}"
            )
        start: IntArray = np.where(taking, address[..., 0], 0)
        size = self.size(bits)
        odd = np.argwhere(start * bits % (8 * size)) if self.count * bits >= 8 else np.empty(0)
        if odd.size:
            request, lane = (int(i) for i in odd[0])
            byte, bit = divmod(int(start[request, lane]) * bits, 8)
            inside = f", bit {bit}" if bit else ""
            raise LayoutError(
                f"{self.name}: row start not {size}-byte aligned: element "
                f"{_place(self.coords[request, lane, 0])} lies at byte {byte}{inside}. A pitch "
                f"that is a multiple of {self.count} elements fits"
            )
        return start

    def phases(self, starts: IntArray, bits: int) -> tuple[IntArray, Bools]:
        """Split requests into phases: start addresses and active mask, both (phases, lanes)."""
        return phases(starts, self.size(bits), self.taking)

    def counts_at(self, starts: IntArray, bits: int) -> IntArray:
        """Count the words of vectors that begin at these elements: an array (phases, 32)."""
        groups, taking = self.phases(starts, bits)
        return bank_counts(groups * bits // 8, self.size(bits), taking)

    def bank_counts(self, layout: Layout, shape: Sequence[int], bits: int) -> IntArray:
        """Count the words per phase and bank: an array (phases, 32).

        Raises:
            LayoutError: as :meth:`starts`.

        >>> from layoutalg import S, TileLayout
        >>> tile = TileLayout(S[(8, 64) : (64, 1)])
        >>> wavefronts(matrices((8, 64), 16).bank_counts(tile, (8, 64), 16)).tolist()
        [8, 8, 8, 8, 8, 8, 8, 8]
        """
        return self.counts_at(self.starts(layout, shape, bits), bits)

    def size(self, bits: int) -> int:
        """Return how many bytes a lane moves; a part of a byte counts as one."""
        return -(-self.count * bits // 8)


def _place(coord: IntArray) -> str:
    return f"({int(coord[0])}, {int(coord[1])})"


def _in_warps(starts: IntArray) -> IntArray:
    """Return (lanes, 2) as (requests, 32, 2), -1 where the last warp has more lanes."""
    requests = -(-len(starts) // WARP)
    lanes = np.full((requests * WARP, 2), -1, dtype=np.int64)
    lanes[: len(starts)] = starts
    return lanes.reshape(requests, WARP, 2)


def _along(starts: IntArray, count: int) -> IntArray:
    """Return coordinates of vectors along rows that start at (requests, lanes, 2), or at -1."""
    step = np.stack([np.zeros(count, dtype=np.int64), np.arange(count)], axis=-1)
    begin = starts[:, :, None, :]
    return np.where(begin < 0, -1, begin + step)


def matrices(
    shape: Sequence[int], bits: int, *, trans: bool = False, name: str = "ldmatrix"
) -> Access:
    """Cover a tile with 8x8 matrices of 16-byte rows: ``ldmatrix`` or ``stmatrix``.

    The widest form that fits is taken, x4, x2 or x1. Lane 8j + i gives row i of matrix j; matrices
    are numbered down first, with ``trans`` across first, as the operand A wants them.

    Args:
        shape: rows and columns of the stored tile, in elements.
        bits: of an element.
        trans: the ``.trans`` form.
        name: of the instruction.

    Raises:
        LayoutError: the tile does not consist of 8 rows by 16 bytes; ``trans`` of elements that do
            not have 16 bits.

    >>> access = matrices((16, 16), 16)
    >>> access.name, access.coords[0, [0, 8, 16, 24], 0].tolist()
    ('ldmatrix.x4', [[0, 0], [8, 0], [0, 8], [8, 8]])

    Source: PTX ISA, "ldmatrix", "stmatrix".
    """
    rows, columns = _two(shape, name)
    wide = 8 * _ROW_BYTES // bits
    if trans and bits != 16:
        raise LayoutError(
            f"{name}.trans: moves units of 16 bits, so elements of {bits} bits are not transposed; "
            "store the tile transposed and load it without .trans"
        )
    if rows % 8 or columns % wide:
        raise LayoutError(
            f"{name}: a tile must consist of 8 rows by 16 bytes ({wide} elements of {bits} bits); "
            f"got shape {(rows, columns)}"
        )
    down, across = rows // 8, columns // wide
    high, broad = next(
        (h, w)
        for h, w in ((2, 2), (4, 1), (1, 4), (2, 1), (1, 2), (1, 1))
        if down % h == 0 and across % w == 0
    )
    corner: IntArray = np.moveaxis(np.indices((down // high, across // broad)), 0, -1)
    corner = corner.reshape(-1, 1, 1, 2)
    block: IntArray = np.moveaxis(np.indices((high, broad)), 0, -1)
    inner = (block if trans else block.transpose(1, 0, 2)).reshape(1, -1, 1, 2)
    row = np.stack([np.arange(8), np.zeros(8, dtype=np.int64)], axis=-1)
    begin: IntArray = (corner * np.array([high, broad]) + inner) * np.array([8, wide]) + row
    return Access(
        f"{name}.x{high * broad}{'.trans' * trans}",
        _along(begin.reshape(len(corner), -1, 2), wide),
    )


def rowwise(shape: Sequence[int], bits: int, *, size: int = 16, name: str = "st.shared") -> Access:
    """Let thread t move vector t of a tile, row by row: vector stores and ``cp.async``.

    In the last warp as many lanes take part as there are vectors left.

    Args:
        shape: rows and columns of the tile, in elements.
        bits: of an element.
        size: bytes per lane.
        name: of the instruction.

    Raises:
        LayoutError: a row does not consist of such vectors.

    >>> rowwise((8, 64), 16, name="cp.async").coords.shape
    (2, 32, 8, 2)
    """
    rows, columns = _two(shape, name)
    count = 8 * size // bits
    if count < 1 or columns % count:
        raise LayoutError(
            f"{name}: a row must consist of vectors of {size} bytes ({count} elements of {bits} "
            f"bits); got shape {(rows, columns)}"
        )
    total = rows * columns // count
    at = np.arange(total) * count
    begin = np.stack([at // columns, at % columns], axis=-1)
    return Access(f"{name} {size} B", _along(_in_warps(begin), count))


def columnwise(shape: Sequence[int], bits: int, *, name: str = "column") -> Access:
    """Let lane l move the element in row l of one column, column by column.

    Of a column's last request as many lanes take part as there are rows left.

    >>> columnwise((40, 2), 32).taking.sum(axis=1)
    array([32,  8, 32,  8])
    """
    rows, columns = _two(shape, name)
    row = np.arange(rows)
    each = [_in_warps(np.stack([row, np.full(rows, column)], axis=-1)) for column in range(columns)]
    return Access(name, _along(np.concatenate(each), 1))


def slotwise(
    registers: Layout, shape: Sequence[int], vector: int, *, name: str = "slots"
) -> Access:
    """Let every lane of a warp move ``vector`` neighbouring slots: direct loads of a fragment.

    Args:
        registers: a layout over thread axes and m (the slot), without replicas.
        shape: logical extents (rows, columns).
        vector: slots per instruction.
        name: of the access.

    Returns:
        One request per warp and vector, those of warp 0 first.

    Raises:
        LayoutError: the layout leaves a slot of some thread empty, or ``vector`` does not divide
            the slots.

    >>> from layoutalg import fragments
    >>> D = fragments.get("mma.m16n8k16.f16", "D")
    >>> slotwise(D.layout, D.shape, 2).coords[1, 5].tolist()
    [[9, 2], [9, 3]]
    """
    rows, columns = _two(shape, name)
    table = registers.table((rows, columns))
    thread = _thread_number(table, name)
    slot = np.broadcast_to(table.get("m", np.zeros_like(thread)), thread.shape)
    threads, slots = -(-(int(thread.max()) + 1) // WARP) * WARP, int(slot.max()) + 1
    held = np.full((threads, slots, 2), -1, dtype=np.int64)
    held[thread, slot] = np.moveaxis(np.indices(thread.shape), 0, -1)
    if vector < 1 or slots % vector or (held < 0).any():
        raise LayoutError(
            f"{name}: every lane must hold whole vectors of {vector} slots; {registers} gives "
            f"{threads} threads {int((held[..., 0] >= 0).sum())} elements in {slots} slots"
        )
    grouped = held.reshape(threads // WARP, WARP, slots // vector, vector, 2)
    return Access(name, grouped.transpose(0, 2, 1, 3, 4).reshape(-1, WARP, vector, 2))


def _thread_number(table: Any, name: str) -> IntArray:
    """Return the number of the thread in its block."""
    weights = {axis.name: apart for axis, apart in THREADS_OF.items()}
    strange = sorted(set(table) - set(weights) - {"m"})
    if strange or not set(table) & {"laneid", "tid_in_wg", "tx"}:
        raise LayoutError(
            f"{name}: the layout must say which lane of one block holds an element; it has the "
            f"axes {', '.join(sorted(table)) or 'none'}"
        )
    total: IntArray = sum(
        (table[axis] * weight for axis, weight in weights.items() if axis in table),
        start=np.zeros((), dtype=np.int64),
    )
    return total


ACCESSES: dict[str, Callable[[Sequence[int], int], Access]] = {
    "ldmatrix": matrices,
    "ldmatrix.trans": lambda shape, bits: matrices(shape, bits, trans=True),
    "stmatrix": lambda shape, bits: matrices(shape, bits, name="stmatrix"),
    "st.shared": rowwise,
    "cp.async": lambda shape, bits: rowwise(shape, bits, name="cp.async"),
    "column": columnwise,
}


def access_of(access: str | Access, shape: Sequence[int], bits: int, function: str) -> Access:
    """Return an access by its name, on a tile of this shape; or the access itself.

    Raises:
        LayoutError: no such name; those that fit are named.

    >>> access_of("cp.async", (8, 64), 16, "doc").name
    'cp.async 16 B'
    """
    if isinstance(access, Access):
        return access
    if access not in ACCESSES:
        raise LayoutError(
            f"{function}: no access is named {access!r}. These fit: {', '.join(ACCESSES)}; or pass "
            "an Access"
        )
    return ACCESSES[access](shape, bits)


def _two(shape: Sequence[int], name: str) -> tuple[int, int]:
    extents = tuple(shape)
    if len(extents) != 2 or not all(type(e) is int and e > 0 for e in extents):
        raise LayoutError(f"{name}: a tile has (rows, columns), each 1 or more; got {extents}")
    return extents[0], extents[1]
