"""Matrix descriptors of operands in shared memory, derived from layouts and proved.

The tensor core reads an operand in core matrices of 8 lines of 16 bytes. A line lies along the
major dimension (K, or "MN": M or N); the 64-bit descriptor says where the core matrices are. With
``w`` the width of the swizzle in bytes (16 without a swizzle), 16-byte chunks counted along the
major dimension and lines along the other, an element's line and chunk are at

    address = line mod 8 * w + line // 8 * across + chunk mod (w/16) * 16 + chunk // (w/16) * along

``along`` is the leading and ``across`` the stride byte offset; they are exchanged for MN-major
without swizzle. Then the swizzle permutes chunks: ``address ^ (((address >> 7) - base) mod (w/16))
<< 4``. It acts on absolute addresses, so a step along K inside a swizzled line only changes the
start address.

``wgmma`` and ``tcgen05`` read the same addresses, and encode the fields differently.

A descriptor that :func:`describe` returns is proved: it reads every element of every operand tile
at the address that the layout gives it.

Source: PTX ISA, "Asynchronous warpgroup-level matrix shared memory layout", "Canonical Layouts",
"Strides" and "Matrix Descriptor Format"; of tcgen05, "Shared memory descriptor".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from layoutalg import ComposeLayout, LayoutError
from layoutalg.layouts.tile_layout import Layout
from lowering.isa import dtypes
from lowering.isa.dtypes import DType

MAJORS = ("K", "MN")
CHUNK = 16  # bytes that stay together: a line without swizzle
LINES = 8  # lines of a core matrix
BYTE = 8  # bits
STEP = 32  # bytes of K that one instruction multiplies
ROW = 128  # bytes: a swizzle exchanges chunks inside a row of all banks
LIMIT = (1 << 18) - CHUNK  # the largest address or offset that 14 bits hold, in units of 16 bytes

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Encoding:
    """The encoding of a descriptor: swizzle codes, their lowest bit, and constant bits.

    ``widths``: bits that an element may have; ``transposed``: those that may be MN-major.
    """

    modes: dict[int, int]  # bytes of the swizzle -> its code
    mode_at: int
    fixed: int
    widths: tuple[int, ...]
    transposed: tuple[int, ...]


ENCODINGS = {
    "wgmma": Encoding({0: 0, 128: 1, 64: 2, 32: 3}, 62, 0, (8, 16, 32), (16,)),
    "tcgen05": Encoding({0: 0, 128: 2, 64: 4, 32: 6}, 61, 1 << 46, (4, 8, 16, 32), (8, 16)),
}


def _encode(value: int) -> int:
    return (value & (LIMIT | (CHUNK - 1))) >> 4


def _either(numbers: Sequence[int]) -> str:
    """Return ``8, 16 or 32``."""
    *most, last = map(str, numbers)
    return f"{', '.join(most)} or {last}" if most else last


@dataclass(frozen=True)
class Descriptor:
    """The fields of a matrix descriptor without the start address; offsets in bytes.

    ``major`` is not encoded: it is the instruction's transpose flag, and decides what the offsets
    mean. ``base_offset``: the 128-byte row, mod 8, in which the swizzle pattern starts, where the
    pattern is not aligned to its size (1024 bytes for 128B). ``machine``: the encoding, "wgmma" or
    "tcgen05".

    >>> tile = Descriptor("K", 128, 16, 1024, 16)
    >>> hex(tile.bits(0x800))
    '0x4000004000010080'
    >>> tile.addresses((64, 16), 0)[:3, 0].tolist(), tile.addresses((64, 16), 32)[:2, 0].tolist()
    ([0, 144, 288], [32, 176])

    Source: PTX ISA, "Matrix Descriptor Format".
    """

    major: str
    swizzle: int
    leading: int
    stride: int
    element_bits: int
    base_offset: int = 0
    machine: str = "wgmma"

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            LayoutError: a swizzle, an offset or a width that no descriptor has.
        """
        if self.major not in MAJORS:
            raise LayoutError(f"descriptor: the major dimension is K or MN; got {self.major!r}")
        if self.machine not in ENCODINGS:
            raise LayoutError(
                f"descriptor: the machine is {' or '.join(ENCODINGS)}; got {self.machine!r}"
            )
        encoding = ENCODINGS[self.machine]
        if self.swizzle not in encoding.modes:
            raise LayoutError(
                f"descriptor: swizzles are 32, 64 or 128 bytes wide, or 0; got {self.swizzle!r}"
            )
        if self.element_bits not in encoding.widths:
            raise LayoutError(
                f"descriptor: elements have {_either(encoding.widths)} bits; got "
                f"{self.element_bits!r}"
            )
        if self.major == "MN" and self.element_bits not in encoding.transposed:
            raise LayoutError(
                f"descriptor: only {_either(encoding.transposed)}-bit operands may be MN-major; "
                f"got {self.element_bits} bits. K-major fits"
            )
        for name in ("leading", "stride"):
            value = getattr(self, name)
            if value % CHUNK or not 0 <= value <= LIMIT:
                raise LayoutError(
                    f"descriptor: the {name} byte offset must be a multiple of {CHUNK} from 0 to "
                    f"{LIMIT}; got {value}"
                )
        rows = range(8 if self.swizzle else 1)
        if self.base_offset not in rows:
            raise LayoutError(
                f"descriptor: the base offset is a row of the swizzle, {rows.start} to "
                f"{rows.stop - 1}; got {self.base_offset!r}"
            )

    def bits(self, start: int) -> int:
        """Return the 64-bit descriptor of an operand that starts at an address.

        Args:
            start: bytes, in shared memory, before the swizzle.

        Raises:
            LayoutError: not a multiple of 16, or more than 14 bits hold.

        >>> Descriptor.from_bits(Descriptor("MN", 64, 512, 1024, 16).bits(4096), "MN", 16)
        (Descriptor(major='MN', swizzle=64, leading=512, stride=1024, element_bits=16, \
base_offset=0, machine='wgmma'), 4096)
        """
        if start % CHUNK or not 0 <= start <= LIMIT:
            raise LayoutError(
                f"descriptor: an operand starts at a multiple of {CHUNK} bytes, at most {LIMIT}; "
                f"got {start}"
            )
        return self.constant | _encode(start)

    @property
    def constant(self) -> int:
        """The descriptor's bits without the start address.

        >>> hex(Descriptor("K", 0, 128, 256, 16).constant)
        '0x1000080000'
        >>> hex(Descriptor("K", 128, 16, 1024, 16, machine="tcgen05").constant)
        '0x4000404000010000'
        """
        encoding = ENCODINGS[self.machine]
        offsets = _encode(self.leading) << 16 | _encode(self.stride) << 32 | self.base_offset << 49
        return offsets | encoding.modes[self.swizzle] << encoding.mode_at | encoding.fixed

    @property
    def words(self) -> tuple[int, int]:
        """The low and the high 32 bits of :attr:`constant`; the start address is in the low ones.

        >>> [hex(word) for word in Descriptor("K", 0, 128, 256, 16).words]
        ['0x80000', '0x10']
        """
        return self.constant & 0xFFFFFFFF, self.constant >> 32

    @classmethod
    def from_bits(
        cls, bits: int, major: str, element_bits: int, machine: str = "wgmma"
    ) -> tuple[Descriptor, int]:
        """Return the fields and the start address of 64 bits: the inverse of :meth:`bits`.

        Raises:
            LayoutError: an unknown machine, or bits that are no descriptor of it.

        >>> Descriptor.from_bits(0x4000004000010080, "K", 8)[0].stride
        1024
        """
        leading, stride = ((bits >> at & 0x3FFF) << 4 for at in (16, 32))
        plain = cls(major, 0, leading, stride, element_bits, machine=machine)
        encoding = ENCODINGS[machine]
        codes = {code: swizzle for swizzle, code in encoding.modes.items()}
        swizzle = codes.get(bits >> encoding.mode_at, -1)
        found = replace(plain, swizzle=swizzle, base_offset=bits >> 49 & 7)
        start = (bits & 0x3FFF) << 4
        if found.bits(start) != bits:
            raise LayoutError(
                f"descriptor: {machine} takes no {bits:#018x}; {found} at {start} is "
                f"{found.bits(start):#018x}"
            )
        return found, start

    def addresses(self, shape: Sequence[int], start: int) -> Ints:
        """Return the byte address at which the tensor core reads each element of an operand.

        Args:
            shape: (M or N, K) of one instruction, in elements.
            start: the operand's start address in bytes.

        >>> Descriptor("K", 0, 128, 256, 16).addresses((16, 16), 0)[[0, 1, 8, 0], [0, 0, 0, 8]]
        array([  0,  16, 256, 128])
        """
        return self.places(shape, start) * self.element_bits // BYTE

    def places(self, shape: Sequence[int], start: int) -> Ints:
        """Return the same in elements: of two 4-bit elements in a byte, the first is the low half.

        >>> Descriptor("K", 32, 16, 256, 4, machine="tcgen05").places((8, 64), 0)[[0, 4], 33]
        array([ 33, 257])
        """
        return self.swizzled(start * BYTE // self.element_bits + self.linear(shape))

    def linear(self, shape: Sequence[int]) -> Ints:
        """Return the address of each element relative to the first, in elements, unswizzled.

        >>> Descriptor("MN", 0, 512, 128, 16).linear((16, 16))[[0, 1, 8, 0], [0, 0, 0, 8]]
        array([  0,   1,  64, 256])
        """
        row, col = np.indices(tuple(shape), dtype=np.int64)
        line, place = (row, col) if self.major == "K" else (col, row)
        width = self.swizzle or CHUNK
        along, across = self.leading, self.stride
        if self.major == "MN" and not self.swizzle:
            along, across = across, along
        chunk, inside = np.divmod(place, self.unit)
        outer, inner = np.divmod(chunk, width // CHUNK)
        before = inner * CHUNK + outer * along + line % LINES * width + line // LINES * across
        found: Ints = inside + before // CHUNK * self.unit
        return found

    @property
    def unit(self) -> int:
        """The elements of 16 bytes."""
        return CHUNK * BYTE // self.element_bits

    def swizzled(self, place: Ints) -> Ints:
        """Return addresses, in elements, after the swizzle.

        >>> Descriptor("K", 64, 16, 512, 16).swizzled(np.array([0, 64, 128, 256])).tolist()
        [0, 72, 144, 256]
        """
        line = place // (ROW // CHUNK * self.unit)
        phase = (line - self.base_offset) % ((self.swizzle or CHUNK) // CHUNK)
        return place ^ phase * self.unit

    def __str__(self) -> str:
        """Return ``K-major 128B, leading 16, stride 1024``."""
        mode = f"{self.swizzle}B" if self.swizzle else "no swizzle"
        base = f", base offset {self.base_offset}" if self.base_offset else ""
        return f"{self.major}-major {mode}, leading {self.leading}, stride {self.stride}{base}"


def swizzle_bytes(layout: Layout, dtype: str | DType) -> int:
    """Return the width of a layout's swizzle in bytes: 0, 32, 64 or 128.

    Raises:
        LayoutError: the tensor core has no such swizzle.

    >>> from layoutalg import parse
    >>> swizzle_bytes(ComposeLayout(3, 2, 3, parse("S[()]")), "float16")
    64
    """
    if not isinstance(layout, ComposeLayout) or not layout.swizzle_len:
        return 0
    bits = dtypes.get(dtype).bits
    unit = (1 << layout.per_element) * bits // BYTE
    if unit != CHUNK or layout.atom_len != 3 or layout.swizzle_len > 3 or not layout.swizzle_inner:
        raise LayoutError(
            f"descriptor: the tensor core exchanges 16-byte chunks by bits 7 to 9 of the address; "
            f"got {layout} of {dtypes.get(dtype)}, which exchanges {unit} bytes. "
            f"ComposeLayout({(CHUNK * BYTE // bits).bit_length() - 1}, 1 or 2 or 3, 3, …) fits"
        )
    return int(CHUNK << layout.swizzle_len)


def linear_addresses(layout: Layout, shape: Sequence[int]) -> Ints:
    """Return the address of each element before the swizzle, in elements.

    Raises:
        LayoutError: not a tile in memory with one address per element.

    >>> from layoutalg import parse
    >>> linear_addresses(ComposeLayout(3, 3, 3, parse("S[()]")), (8, 64))[1, :2]
    array([64, 65])
    """
    tile = layout.tile_over(shape)
    places = tile.table(shape)
    if set(places) != {"m"} or tile.copies:
        raise LayoutError(
            f"descriptor: the operand must lie on axis m, each element once; got {layout}"
        )
    linear: Ints = places["m"]
    return linear


def starts(layout: Layout, shape: Sequence[int], dtype: str | DType, rows: int) -> Ints:
    """Return the start address, in bytes, of every operand tile of a layout.

    Args:
        layout: over (M or N, K), as :func:`describe` takes it.
        shape: its extents.
        dtype: of the elements.
        rows: M or N of one instruction; its K is 32 bytes.

    >>> from layoutalg import S, TileLayout
    >>> tile = ComposeLayout(3, 3, 3, TileLayout(S[(128, 64) : (64, 1)]))
    >>> starts(tile, (128, 64), "float16", 64).tolist()
    [[0, 32, 64, 96], [8192, 8224, 8256, 8288]]
    """
    bits = dtypes.get(dtype).bits
    origins: Ints = linear_addresses(layout, shape)[::rows, :: STEP * BYTE // bits] * bits // BYTE
    return origins


def describe(
    layout: Layout,
    shape: Sequence[int],
    dtype: str | DType,
    major: str,
    rows: int | None = None,
    start: int = 0,
    machine: str = "wgmma",
    moves: Sequence[int] = (0,),
) -> Descriptor:
    """Return the descriptor of the operand tiles of a layout in shared memory, proved.

    One descriptor serves all tiles of ``rows`` by 32 bytes of K: they differ only in their start
    address (:func:`starts`).

    Args:
        layout: over (M or N, K); a swizzle is that of a :class:`ComposeLayout`.
        shape: its extents, in elements.
        dtype: of the elements.
        major: the dimension along which 16 bytes are contiguous, "K" or "MN".
        rows: M or N of one instruction; by default all.
        start: the byte address of the layout's address 0; it matters modulo the swizzle pattern.
        machine: "wgmma" or "tcgen05".
        moves: offsets in elements that are added to the operand: the descriptor is proved for each.

    Raises:
        LayoutError: no descriptor describes this layout; the first element that it would read
            elsewhere is named.

    >>> from layoutalg import S, TileLayout
    >>> print(describe(TileLayout(S[(8, 8, 2, 8) : (64, 8, 512, 1)]), (64, 16), "f16", "K"))
    K-major no swizzle, leading 1024, stride 128
    >>> b = TileLayout(S[(4, 64, 64) : (4096, 1, 64)])  # N = 256, K = 64, each 64 of N side by side
    >>> print(describe(ComposeLayout(3, 3, 3, b), (256, 64), "f16", "MN"))
    MN-major 128B, leading 8192, stride 1024

    Source: PTX ISA, "Strides"; the MN example as measured on an H200.
    """
    row_type = dtypes.get(dtype)
    extents = tuple(int(extent) for extent in shape)
    rows = extents[0] if rows is None else rows
    if machine in ENCODINGS and row_type.bits not in ENCODINGS[machine].widths:
        widths = _either(ENCODINGS[machine].widths)
        raise LayoutError(f"descriptor: elements have {widths} bits; got {row_type}")
    step = STEP * BYTE // row_type.bits
    if len(extents) != 2 or rows % LINES or extents[0] % rows or extents[1] % step:
        raise LayoutError(
            f"descriptor: operand tiles of {rows} x {step} {row_type} must divide the layout, and "
            f"{LINES} the first; got {extents}"
        )
    swizzle = swizzle_bytes(layout, row_type)
    align = ROW if swizzle else CHUNK
    if start % align:
        raise LayoutError(
            f"descriptor: the layout must start at a multiple of {align} bytes; got {start}"
        )
    base = start // ROW % 8 if swizzle and start % (swizzle * LINES) else 0
    fields = Descriptor(major, swizzle, 0, 0, row_type.bits, base, machine)
    linear = linear_addresses(layout, extents) + start * BYTE // row_type.bits
    found = proved(fields, linear, (rows, step), str(layout))
    for move in moves:
        _prove(found, linear + move, (rows, step), f"{layout}, {move} elements further on,")
    return found


def proved(fields: Descriptor, linear: Ints, tile: tuple[int, int], what: str) -> Descriptor:
    """Return a descriptor with the offsets of a table of addresses, proved against the whole table.

    Args:
        fields: the descriptor without its offsets.
        linear: the address of each element before the swizzle, in elements.
        tile: the extents of the operand of one instruction.
        what: the layout, for messages.

    Raises:
        LayoutError: no descriptor describes the table; the first element that it would read
            elsewhere is named.

    >>> rows = 16 * np.arange(32)[:, None] + np.arange(16)  # 32 rows of 16 bytes
    >>> print(proved(Descriptor("K", 0, 0, 0, 8, machine="tcgen05"), rows, (32, 16), "rows"))
    K-major no swizzle, leading 0, stride 128
    """
    leading, stride = _offsets(linear, fields, tile, what)
    found = replace(fields, leading=leading, stride=stride)
    _prove(found, linear, tile, what)
    return found


def _offsets(linear: Ints, fields: Descriptor, tile: tuple[int, int], what: str) -> tuple[int, int]:
    """Return leading and stride byte offset from the addresses; 0 where nothing follows."""
    major, swizzle = fields.major, fields.swizzle

    def far(row: int, col: int) -> int:
        if row >= tile[0] or col >= tile[1]:
            return 0
        return int(linear[row, col] - linear[0, 0]) * fields.element_bits // BYTE

    if major == "K":
        along, across = CHUNK if swizzle else far(0, fields.unit), far(LINES, 0)
    else:
        along, across = far(fields.unit * max(1, swizzle // CHUNK), 0), far(0, LINES)
    leading, stride = (across, along) if major == "MN" and not swizzle else (along, across)
    for name, value in (("leading", leading), ("stride", stride)):
        if value % CHUNK or not 0 <= value <= LIMIT:
            raise LayoutError(
                f"descriptor: the {name} byte offset must be a multiple of {CHUNK} from 0 to "
                f"{LIMIT}; {major}-major, {what} has {value}"
            )
    return leading, stride


def _prove(found: Descriptor, linear: Ints, tile: tuple[int, int], what: str) -> None:
    """Refuse a descriptor that reads an element at another address than the table's."""
    rows, step = tile
    origins = linear[::rows, ::step]
    if (origins % found.unit).any():
        at = int(origins[origins % found.unit != 0][0]) * found.element_bits // BYTE
        raise LayoutError(
            f"descriptor: operand tiles must start at multiples of {CHUNK} bytes; one of {what} "
            f"starts at {at}"
        )
    tiles = linear.reshape(len(origins), rows, -1, step).transpose(0, 2, 1, 3)
    want = found.swizzled(tiles)
    have = found.swizzled(origins[:, :, None, None] + found.linear(tile))
    wrong = np.argwhere(want != have)
    if wrong.size:
        i, j, row, col = (int(v) for v in wrong[0])
        line = "rows" if found.major == "K" else "columns"
        visited, wanted = (_bytes(v[i, j, row, col], found.element_bits) for v in (have, want))
        raise LayoutError(
            f"descriptor: {found} visits element {(i * rows + row, j * step + col)} at byte "
            f"{visited}; {what} puts it at {wanted}. "
            f"What fits: 16 bytes along {found.major} together, 8 {line} "
            f"{found.swizzle or CHUNK} bytes apart"
        )


def _bytes(place: int, bits: int) -> str:
    """Return the byte of an address in elements, and the bit inside it."""
    byte, inside = divmod(int(place) * bits, BYTE)
    return f"{byte}" + (f" (bit {inside})" if inside else "")


def tma_cells(rows: int, cols: int, swizzle: int, bits: int) -> npt.NDArray[np.int64]:
    """Return the address at which TMA writes each element of a box, in elements from its first.

    Source: PTX ISA, tensor swizzling modes: the 16-byte units of a row of ``swizzle`` bytes are
    permuted by XOR with the number of the 128-byte line, modulo the units of a row.

    >>> tma_cells(8, 64, 128, 16)[1, :9].tolist()
    [72, 73, 74, 75, 76, 77, 78, 79, 64]
    """
    unit = 128 // bits
    row, col = np.indices((rows, cols))
    line = row * cols * bits // 1024
    swizzled = (col // unit) ^ (line % (swizzle // 16))
    cells: npt.NDArray[np.int64] = row * cols + swizzled * unit + col % unit
    return cells
