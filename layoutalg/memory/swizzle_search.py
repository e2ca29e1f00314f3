"""The best swizzle of a shared tile: all are tried on the accesses of the tile.

A swizzle that keeps vectors whole changes nothing but bank conflicts. So the search is exhaustive,
and its cost is one number per access: the wavefronts over the whole tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layoutalg.algebra.iters import Iter
from layoutalg.algebra.tables import IntArray
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.layouts.swizzle import ComposeLayout, SwizzleLayout
from layoutalg.layouts.tile_layout import Layout, TileLayout
from layoutalg.memory.access import (
    LINE_BYTES,
    Access,
    access_of,
    element_bits,
    fewest_wavefronts,
    wavefronts,
)
from layoutalg.sizes.budget import SEARCHED, check_budget

_HARDWARE = {(4, 1, 3): "32B", (4, 2, 3): "64B", (4, 3, 3): "128B"}  # in bytes


@dataclass(frozen=True)
class Candidate:
    """One swizzle and what it costs.

    Attributes:
        swizzle: its lengths count elements; swizzle_len 0 is no swizzle.
        wavefronts: over the whole tile, for each access.
        worst: wavefronts of the busiest phase, for each access.
    """

    swizzle: SwizzleLayout
    wavefronts: tuple[int, ...]
    worst: tuple[int, ...]

    @property
    def total(self) -> int:
        """Wavefronts of all accesses together."""
        return sum(self.wavefronts)

    @property
    def key(self) -> tuple[int, int, int]:
        """(per_element, swizzle_len, atom_len)."""
        return self.swizzle.per_element, self.swizzle.swizzle_len, self.swizzle.atom_len


@dataclass(frozen=True)
class SwizzleChoice:
    """The candidates for one tile, best first: the fewest wavefronts, then the least swizzle_len.

    >>> choice = choose_swizzle((64, 64), 16)
    >>> choice.best.key, choice.conflicts, choice.before.total
    ((3, 3, 3), 0, 576)
    >>> print(choice.layout)
    ComposeLayout(3, 3, 3, S[(64,64):(64,1)])
    """

    shape: tuple[int, int]
    bits: int
    pitch: int
    accesses: tuple[str, ...]
    fewest: tuple[int, ...]
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        """The choice."""
        return self.candidates[0]

    @property
    def before(self) -> Candidate:
        """The tile without a swizzle."""
        return next(c for c in self.candidates if not c.swizzle.swizzle_len)

    @property
    def conflicts(self) -> int:
        """Wavefronts of the choice beyond the fewest that any arrangement of the words takes."""
        return self.best.total - sum(self.fewest)

    @property
    def tile(self) -> TileLayout:
        """The tile without a swizzle."""
        return _tile(self.shape, self.pitch)

    @property
    def layout(self) -> Layout:
        """The tile as it should lie: plain where no swizzle is needed."""
        per_element, swizzle_len, atom_len = self.best.key
        if not swizzle_len:
            return self.tile
        return ComposeLayout(per_element, swizzle_len, atom_len, self.tile)

    @property
    def shown(self) -> tuple[Candidate, ...]:
        """No swizzle, and the best candidate of each swizzle_len: why the choice is the choice."""
        lengths = sorted({c.swizzle.swizzle_len for c in self.candidates})
        return tuple(
            next(c for c in self.candidates if c.swizzle.swizzle_len == length)
            for length in lengths
        )

    def in_words(self, candidate: Candidate) -> str:
        """Say what a swizzle does, with the unit of every number.

        >>> choice = choose_swizzle((64, 32), "f16")
        >>> choice.in_words(choice.best)
        '(3, 2, 3) in elements of 16 bits, (4, 2, 3) in bytes: 16-byte units, the 64B mode'
        """
        return swizzle_in_words(candidate.swizzle, self.bits)

    def __repr__(self) -> str:
        return f"SwizzleChoice({self.layout})"

    def __str__(self) -> str:
        """Return the table of wavefronts per access and candidate, units included."""
        rows, columns = self.shape
        head = [
            "(per_element, swizzle_len, atom_len)",
            *(f"{name}" for name in self.accesses),
            "wavefronts",
            "conflicts",
        ]
        body = [
            [
                str(c.key) if c.swizzle.swizzle_len else "none",
                *(f"{n} (worst {w})" for n, w in zip(c.wavefronts, c.worst, strict=True)),
                str(c.total),
                str(c.total - sum(self.fewest)),
            ]
            for c in self.shown
        ]
        widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
        lines = [
            "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
            for row in (head, *body)
        ]
        return "\n".join(
            [
                f"{rows} x {columns} elements of {self.bits} bits, pitch {self.pitch} elements = "
                f"{self.pitch * self.bits / 8:g} bytes; {len(self.candidates)} candidates; "
                "lengths count elements",
                *lines,
                f"chosen: {self.in_words(self.best)}",
            ]
        )


def swizzle_in_words(swizzle: SwizzleLayout, bits: int) -> str:
    """Say what a swizzle does to elements of ``bits`` bits, with the unit of every number.

    >>> swizzle_in_words(SwizzleLayout(3, 1, 3), 16)
    '(3, 1, 3) in elements of 16 bits, (4, 1, 3) in bytes: 16-byte units, the 32B mode'
    """
    per_element, swizzle_len, atom_len = key = (
        swizzle.per_element,
        swizzle.swizzle_len,
        swizzle.atom_len,
    )
    if not swizzle_len:
        return "no swizzle"
    size = per_element + bits.bit_length() - 1 - 3  # log2 of the unit in bytes
    if size < 0:
        return f"{key} in elements of {bits} bits: {bits << per_element}-bit units"
    in_bytes = (size, swizzle_len, atom_len)
    mode = _HARDWARE.get(in_bytes) if swizzle.swizzle_inner else None
    return f"{key} in elements of {bits} bits, {in_bytes} in bytes: {1 << size}-byte units" + (
        f", the {mode} mode" if mode else ""
    )


def _tile(shape: tuple[int, int], pitch: int) -> TileLayout:
    return TileLayout.from_iters([Iter(shape[0], pitch), Iter(shape[1], 1)])


def _log2_of(count: int) -> int:
    """Return how many times 2 divides a number."""
    return (count & -count).bit_length() - 1


def _asked(
    shape: Sequence[int],
    dtype: int | str,
    pitch: int | None,
    accesses: Sequence[str | Access],
    function: str,
) -> tuple[tuple[int, int], int, int, tuple[Access, ...]]:
    """Check the arguments that the functions below share."""
    bits = element_bits(dtype, function)
    extents = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if len(extents) != 2 or not all(type(extent) is int and extent > 0 for extent in extents):
        raise LayoutError(f"{function}: a tile has (rows, columns), each 1 or more; got {extents}")
    rows, columns = extents
    step = columns if pitch is None else pitch
    if type(step) is not int or step < columns:
        raise LayoutError(
            f"{function}: pitch is the distance of rows in elements, {columns} or more; got "
            f"{pitch!r}"
        )
    check_budget(function, rows * step, SEARCHED, "elements of a tile", "Give one of shared memory")
    if isinstance(accesses, str) or not accesses:
        raise LayoutError(
            f"{function}: accesses is a sequence of one or more accesses; got {accesses!r}"
        )
    found = tuple(access_of(access, (rows, columns), bits, function) for access in accesses)
    return (rows, columns), bits, step, found


def evaluate_swizzle(
    swizzle: SwizzleLayout | LayoutLike,
    shape: Sequence[int],
    dtype: int | str,
    pitch: int | None = None,
    accesses: Sequence[str | Access] = ("ldmatrix",),
) -> Candidate:
    """Count the wavefronts of one swizzle.

    Args:
        swizzle: its lengths count elements; or a swizzled layout of this tile, or its text.
        shape: rows and columns of the tile, in elements.
        dtype: of the elements: bits, or a PTX type.
        pitch: distance of rows in elements; dense unless given.
        accesses: names of ``memory.access.ACCESSES``, or accesses.

    Raises:
        LayoutError: an argument does not fit, or the swizzle tears the vectors of an access.

    >>> [evaluate_swizzle(SwizzleLayout(3, 3, s), (64, 128), 16).worst for s in (3, 4)]
    [(2,), (1,)]
    """
    extents, bits, step, found = _asked(shape, dtype, pitch, accesses, "evaluate_swizzle")
    found_in = as_layout(swizzle, "evaluate_swizzle: swizzle")
    own = getattr(found_in, "swizzle", found_in)
    if not isinstance(own, SwizzleLayout):
        raise LayoutError(f"evaluate_swizzle: needs a swizzle; got {swizzle!r}")
    tile = _tile(extents, step)
    if own is not found_in and not (
        found_in.size() == tile.size() and found_in.tile_layout.equivalent(tile)
    ):
        raise LayoutError(
            f"evaluate_swizzle: counts the row-major tile {tile} (pitch={step}); the swizzled "
            f"layout is of the tile {found_in.tile_layout}: give its swizzle, or the pitch of "
            "its rows"
        )
    layout = own.over(tile)
    return _counted(own, [wavefronts(a.bank_counts(layout, extents, bits)) for a in found])


def _counted(swizzle: SwizzleLayout, phases: Sequence[IntArray]) -> Candidate:
    """Return the candidate of a swizzle whose accesses take these wavefronts per phase."""
    return Candidate(
        swizzle,
        tuple(int(each.sum()) for each in phases),
        tuple(int(each.max()) for each in phases),
    )


def choose_swizzle(
    shape: Sequence[int],
    dtype: int | str = 16,
    pitch: int | None = None,
    accesses: Sequence[str | Access] = ("ldmatrix", "cp.async"),
) -> SwizzleChoice:
    """Find the swizzle of a shared tile with the fewest wavefronts, and say why.

    All (per_element, swizzle_len, atom_len) are counted that keep the vectors of every access
    whole, permute the memory of the tile in itself and act on the banks. That memory is rows times
    pitch: the columns beyond the tile are its gaps, where elements may come to lie. The fewest
    wavefronts win; among equals the least swizzle_len, then the least per_element and atom_len. The
    tile begins at a multiple of its swizzle's period (1024 bytes for the 128B mode).

    Args:
        shape: rows and columns of the tile, in elements.
        dtype: of the elements: bits, or a PTX type.
        pitch: distance of rows in elements; dense unless given.
        accesses: what the tile meets: names of ``memory.access.ACCESSES`` ("ldmatrix",
            "ldmatrix.trans", "stmatrix", "st.shared", "cp.async": 16 bytes per lane; "column"), or
            accesses.

    Raises:
        LayoutError: an argument does not fit; an access cannot move vectors of such a tile.

    >>> for bytes_apart in (16, 32, 64, 128, 256):
    ...     found = choose_swizzle((8, 8), "f16", bytes_apart // 2, ["ldmatrix"])
    ...     print(bytes_apart, found.best.key if found.best.swizzle.swizzle_len else None)
    16 None
    32 (3, 1, 3)
    64 (3, 2, 3)
    128 (3, 3, 3)
    256 (3, 3, 4)

    Source: CuTe ``Swizzle<swizzle_len, per_element, atom_len>``; PTX ISA, "Swizzling modes".
    """
    extents, bits, step, found = _asked(shape, dtype, pitch, accesses, "choose_swizzle")
    tile = _tile(extents, step)
    starts = [access.starts(tile, extents, bits) for access in found]
    cells = extents[0] * step
    least = _log2_of(max(access.count for access in found))
    line = (8 * LINE_BYTES // bits).bit_length() - 1  # log2 of the elements of all banks once
    whole = _log2_of(cells)  # aligned blocks of this size tile the memory
    high = (cells - 1).bit_length()  # address bits in use
    swizzles = [SwizzleLayout(0, 0, 0)]
    swizzles += [
        SwizzleLayout(unit, length, atom)
        for unit in range(least, line)
        for length in range(1, min(line, whole) - unit + 1)
        for atom in range(length, high - unit)
    ]
    candidates = [
        _counted(
            swizzle,
            [
                wavefronts(access.counts_at(swizzle.apply(start), bits))
                for access, start in zip(found, starts, strict=True)
            ],
        )
        for swizzle in swizzles
    ]
    candidates.sort(
        key=lambda c: (c.total, c.swizzle.swizzle_len, c.swizzle.per_element, c.swizzle.atom_len)
    )
    fewest = tuple(
        int(fewest_wavefronts(access.counts_at(start, bits)).sum())
        for access, start in zip(found, starts, strict=True)
    )
    names = tuple(access.name for access in found)
    return SwizzleChoice(extents, bits, step, names, fewest, tuple(candidates))
