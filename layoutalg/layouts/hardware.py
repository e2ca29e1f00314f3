"""Layouts that hardware prescribes: warpgroups, tensor memory, swizzled shared tiles, Trainium."""

from __future__ import annotations

import math
from collections.abc import Sequence

from layoutalg.algebra.axis import Axis, F, P, TCol, TLane, laneid, m, tid_in_wg, wid_in_wg
from layoutalg.algebra.iters import Iter, row_major
from layoutalg.errors import LayoutError
from layoutalg.layouts.swizzle import ComposeLayout
from layoutalg.layouts.tile_layout import TileLayout
from layoutalg.sizes.dtypes import element_type
from layoutalg.sizes.size import as_shape

_TYPES = (
    "float16", "bfloat16", "float32", "int32", "uint32", "uint8", "int8", "float8_e4m3fn",
    "float8_e5m2",
)  # fmt: skip


def _bits(dtype: str, what: str) -> int:
    row = element_type(dtype)
    if row is None or row.name not in _TYPES:
        raise LayoutError(f"{what}: the dtype must be one of {', '.join(_TYPES)}; got {dtype!r}")
    return row.bits


def _layout(
    *iters: tuple[int, int, Axis], offset: dict[Axis | str, int] | None = None
) -> TileLayout:
    return TileLayout.from_iters([Iter(*it) for it in iters], offset=offset)


def _positive(what: str, **values: object) -> None:
    for name, value in values.items():
        if type(value) is not int or value < 1:
            raise LayoutError(f"{what}: {name} must be a positive number; got {value!r}")


def wg_local_layout(cols: int, rows: int = 128) -> TileLayout:
    """Return one row per thread of a warpgroup, columns in registers.

    Raises:
        LayoutError: an extent is not positive.

    >>> print(wg_local_layout(4))
    S[(128,4):(1@tid_in_wg,1)]
    """
    _positive("wg_local_layout", cols=cols, rows=rows)
    return _layout((rows, 1, tid_in_wg), (cols, 1, m))


_DATAPATH_ROWS = {"A": 128, "D": 128, "B": 64, "C": 64, "E": 64, "F": 64, "G": 32}


def tmem_datapath_layout(datapath: str, rows: int, cols: int, sub_slab: int = 0) -> TileLayout:
    """Return where a tile lies in tensor memory for one datapath of ``tcgen05``.

    A and D: a lane per row. B and E: columns halved over two sets of 64 lanes. C and F: 16 of every
    32 lanes, the lower (sub_slab 0) or the upper (1). G: columns in quarters over 4 sets of 32.

    Raises:
        LayoutError: no such datapath, or rows, columns or slab that it does not have.

    >>> print(tmem_datapath_layout("B", 64, 16))
    S[(64,2,8):(1@TLane,64@TLane,1@TCol)]

    Source: PTX ISA, tcgen05 Data Path Layout Organization.
    """
    what = "tmem_datapath_layout"
    _positive(what, rows=rows, cols=cols)
    if not isinstance(datapath, str) or datapath not in _DATAPATH_ROWS:
        known = ", ".join(_DATAPATH_ROWS)
        raise LayoutError(f"{what}: the datapath must be one of {known}; got {datapath!r}")
    if rows != _DATAPATH_ROWS[datapath]:
        raise LayoutError(
            f"{what}: datapath {datapath} has {_DATAPATH_ROWS[datapath]} rows; got {rows}"
        )
    slabs = (0, 1) if datapath in "CF" else (0,)
    if sub_slab not in slabs:
        raise LayoutError(f"{what}: datapath {datapath} has the sub_slabs {slabs}; got {sub_slab}")
    if datapath in "AD":
        return _layout((rows, 1, TLane), (cols, 1, TCol))
    if datapath in "CF":
        offset: dict[Axis | str, int] = {TLane: 16} if sub_slab else {}
        return _layout((4, 32, TLane), (16, 1, TLane), (cols, 1, TCol), offset=offset)
    parts = {"B": 2, "E": 2, "G": 4}[datapath]
    if cols % parts:
        raise LayoutError(
            f"{what}: datapath {datapath} cuts the columns into {parts} parts; got {cols}"
        )
    return _layout((rows, 1, TLane), (parts, rows, TLane), (cols // parts, 1, TCol))


# instruction shape -> columns of one repetition in 32-bit elements, most repetitions
_ATOMS = {"32x32b": (1, 128), "16x64b": (2, 128), "16x128b": (4, 64), "16x256b": (8, 32)}


def tcgen05_atom_layout(instr_shape: str, tensor_shape: Sequence[int], dtype: str) -> TileLayout:
    """Return the registers that ``tcgen05.ld`` and ``.st`` of one shape fill for a tile.

    Args:
        instr_shape: "32x32b", "16x64b", "16x128b" or "16x256b".
        tensor_shape: (rows, cols), rows 64 or 128.
        dtype: a type of 16 or 32 bits.

    Raises:
        LayoutError: a shape, dtype or number of repetitions that the instruction does not have.

    >>> print(tcgen05_atom_layout("16x128b", (64, 64), "float16"))
    S[(4,2,8,8,4,2):(1@wid_in_wg,2,4@laneid,4,1@laneid,1)]

    Source: PTX ISA, tcgen05 Matrix fragments for tcgen05.ld and tcgen05.st.
    """
    what = "tcgen05_atom_layout"
    if not isinstance(instr_shape, str) or instr_shape not in _ATOMS:
        known = ", ".join(_ATOMS)
        raise LayoutError(f"{what}: the shape must be one of {known}; got {instr_shape!r}")
    bits = _bits(dtype, what)
    if bits not in (16, 32):
        raise LayoutError(f"{what}: the dtype must have 16 or 32 bits; {dtype} has {bits}")
    shape = as_shape(tensor_shape, what)
    if len(shape) != 2 or shape[0] not in (64, 128):
        raise LayoutError(f"{what}: the tile must have 64 or 128 rows and columns; got {shape}")
    rows, cols = (int(extent) for extent in shape)
    pack = 32 // bits
    width, most = _ATOMS[instr_shape]
    halved = instr_shape == "32x32b" and rows == 64
    if halved and (pack != 1 or cols % 2):
        raise LayoutError(f"{what}: 32x32b of 64 rows needs 32-bit types and even columns")
    unit = width * pack * (2 if halved else 1)
    count = cols // unit
    if cols % unit or count < 1 or count & (count - 1) or count > most:
        raise LayoutError(
            f"{what}: {instr_shape} of {dtype} repeats {unit} columns 1, 2, 4, … {most} times; "
            f"got {cols} columns"
        )
    if instr_shape == "32x32b":
        if halved:
            return _layout((64, 1, tid_in_wg), (2, 64, tid_in_wg), (cols // 2, 1, m))
        return _layout((128, 1, tid_in_wg), (cols, 1, m))
    body: dict[str, tuple[int, tuple[tuple[int, int, Axis], ...]]] = {
        "16x64b": (1, ((2, 1, laneid), (8, 4, laneid), (count, 1, m), (2, 2, laneid))),
        "16x128b": (2, ((2, 1, m), (8, 4, laneid), (count, 2, m), (4, 1, laneid))),
        "16x256b": (
            4,
            ((2, 2, m), (8, 4, laneid), (count, 4, m), (4, 1, laneid), (2, 1, m)),
        ),
    }
    registers, iters = body[instr_shape]
    head: list[tuple[int, int, Axis]] = [(4, 1, wid_in_wg)]
    if rows == 128:
        head.append((2, registers * count, m))
    found = [(e, s * pack if axis is m else s, axis) for e, s, axis in (*head, *iters)]
    if pack > 1:
        found.append((pack, 1, m))
    return _layout(*found)


def tmem_mma_operand_layout(
    operand: str,
    shape: Sequence[int],
    M: int,
    cta_group: int = 1,
    ws: bool = False,
    group: Sequence[int] | None = None,
) -> TileLayout:
    """Return where ``tcgen05.mma`` expects A, or leaves D, in tensor memory (one CTA's part).

    Args:
        operand: "A" or "D".
        shape: rows and columns; (2, 64, columns) for ``ws``; columns may come cut, as
            ``(…, 2, columns)``, where the machine puts the halves on two sets of 64 lanes.
        M: rows of the instruction.
        cta_group: 1 or 2 CTAs.
        ws: weight-stationary.
        group: how the columns of D are cut: (groups, 2, columns).

    Raises:
        LayoutError: a combination that the instruction does not have.

    >>> print(tmem_mma_operand_layout("A", (64, 64), 128, cta_group=2))
    S[(64,64):(1@TLane,1@TCol)] + R[2:64@TLane]

    Source: PTX ISA, tcgen05.mma data path layouts.
    """
    what = "tmem_mma_operand_layout"
    if operand not in ("A", "D"):
        raise LayoutError(f"{what}: the operand must be A or D; got {operand!r}")
    extents = tuple(int(extent) for extent in as_shape(shape, what))
    kind = (operand, M, cta_group, bool(ws))
    plain = {  # rows, a lane each
        ("A", 64, 1, False): 64, ("A", 128, 1, False): 128, ("A", 256, 2, False): 128,
        ("D", 128, 1, False): 128, ("D", 256, 2, False): 128,
    }  # fmt: skip
    halves = {("D", 128, 2, False), ("D", 64, 1, True)}
    if group is not None and kind not in halves:
        raise LayoutError(f"{what}: {operand} of M={M} has no column groups; got {tuple(group)}")
    if ws and M == 64 and cta_group == 1 and extents[:2] == (2, 64) and len(extents) == 3:
        return _layout((128, 1, TLane), (extents[2], 1, TCol))
    if extents[:1] == (plain.get(kind),) and len(extents) == 2:
        return _layout((extents[0], 1, TLane), (extents[1], 1, TCol))
    if kind == ("A", 128, 2, False) and extents[0] == 64 and len(extents) == 2:
        one = _layout((64, 1, TLane), (extents[1], 1, TCol))
        return TileLayout.from_iters(one.shard, [Iter(2, 64, TLane)])
    if kind == ("D", 64, 1, False) and extents[0] == 64 and len(extents) == 2:
        return tmem_datapath_layout("F", 64, extents[1])
    if kind in halves and extents[0] == 64:
        cut = _column_cut(extents[1:], group)
        if cut is not None:
            count, width = cut
            iters = [(64, 1, TLane), (count, width, TCol), (2, 64, TLane), (width, 1, TCol)]
            return _layout(*(it for it in iters if it[0] != 1))
    raise LayoutError(
        f"{what}: tcgen05.mma has no {operand} of shape {extents} for M={M}, "
        f"cta_group={cta_group}, ws={ws}"
    )


def _column_cut(columns: Sequence[int], group: Sequence[int] | None) -> tuple[int, int] | None:
    """Return (groups, columns of a half) of columns that two sets of 64 lanes share."""
    if group is not None:
        if len(columns) == 1 and len(group) == 3 and group[1] == 2:
            return (group[0], group[2]) if math.prod(group) == columns[0] else None
        return None
    if len(columns) == 1:
        return (1, columns[0] // 2) if columns[0] % 2 == 0 else None
    if len(columns) in (2, 3) and columns[-2] == 2:
        return (columns[0] if len(columns) == 3 else 1), columns[-1]
    return None


def tmem_scale_layout(rows: int, blocks: int) -> TileLayout:
    """Return where block-scaled ``tcgen05.mma`` expects the scales of A or B in tensor memory.

    Scales are bytes, four to a column: those of row r lie in lane r mod 32 of each of the four
    groups of 32 lanes, in column r // 32, the next four blocks of K behind those of all rows.

    Args:
        rows: of A, or columns of B; a multiple of 32, or fewer.
        blocks: scales of a row; 1, 2, or a multiple of 4.

    Raises:
        LayoutError: rows or blocks that do not lie so.

    >>> print(tmem_scale_layout(128, 4))
    S[(4,32,4):(4@TCol,1@TLane,1@TCol)] + R[4:32@TLane]

    Source: PTX ISA, tcgen05 "Scale Factor A/B layout" (scale_vec::1X, 2X, 4X).
    """
    what = "tmem_scale_layout"
    _positive(what, rows=rows, blocks=blocks)
    groups, rest = divmod(rows, 32)
    words, narrow = divmod(blocks, 4)
    if rest and groups:
        raise LayoutError(f"{what}: rows must be a multiple of 32, or fewer; got {rows}")
    if narrow and (words or narrow == 3):
        raise LayoutError(f"{what}: blocks must be 1, 2 or a multiple of 4; got {blocks}")
    one = _layout(
        (max(groups, 1), 4, TCol),
        (min(rows, 32), 1, TLane),
        (max(words, 1), 4 * max(groups, 1), TCol),
        (min(blocks, 4), 1, TCol),
    )
    shard = [it for it in one.shard if it.extent != 1] or one.shard[:1]
    return TileLayout.from_iters(shard, [Iter(4, 32, TLane)])


def swizzled_tile(shape: Sequence[int], period: int, bits: int) -> ComposeLayout:
    """Return a shared tile as blocks of columns one period wide, XOR-swizzled in units of 16 bytes.

    Args:
        shape: (..., rows, columns); what comes before are tiles one after the other.
        period: bytes of a row of a block, at most: fewer where the columns are no multiple of it.
        bits: of an element.

    >>> print(swizzled_tile((2, 8, 128), 128, 16))
    ComposeLayout(3, 3, 3, S[(2,8,2,64):(1024,64,512,1)])
    """
    *outer, rows, cols = shape
    unit = 128 // bits
    width = math.gcd(cols, 8 * period // bits)
    iters = (
        *(Iter(it.extent, int(it.stride) * rows * cols) for it in row_major(outer)),
        Iter(rows, width),
        Iter(cols // width, rows * width),
        Iter(width, 1),
    )
    tile = TileLayout.from_iters(iters)
    return ComposeLayout(unit.bit_length() - 1, (width // unit).bit_length() - 1, 3, tile)


_MODES = ("32B", "64B", "128B")


def mma_shared_layout(dtype: str, mode: str, shape: Sequence[int]) -> ComposeLayout:
    """Return a swizzled shared tile made of atoms of 8 rows by 32, 64 or 128 bytes.

    Atoms lie one below the other first, so a column of atoms is contiguous.

    Raises:
        LayoutError: an unknown dtype or mode, or a shape that atoms do not fill.

    >>> print(mma_shared_layout("float16", "64B", (16, 128)))
    ComposeLayout(3, 2, 3, S[(16,4,32):(32,512,1)])

    Source: PTX ISA, shared memory layouts of wgmma and tcgen05 (swizzle modes).
    """
    what = "mma_shared_layout"
    bits = _bits(dtype, what)
    if not isinstance(mode, str) or mode not in _MODES:
        raise LayoutError(f"{what}: the mode must be one of {', '.join(_MODES)}; got {mode!r}")
    extents = tuple(int(extent) for extent in as_shape(shape, what))
    width = int(mode[:-1]) * 8 // bits
    if len(extents) < 2 or extents[-2] % 8 or extents[-1] % width:
        raise LayoutError(
            f"{what}: the last two extents must be multiples of 8 rows and {width} columns of "
            f"{dtype}; got {extents}"
        )
    return swizzled_tile(extents, int(mode[:-1]), bits).canonicalize()


PARTITIONS = 128


def trainium_layout(annotation: str, shape: Sequence[int]) -> TileLayout:
    """Return a tile over the partitions (P) and the free dimension (F) of a Trainium buffer.

    Dimensions marked P share the 128 partitions, row-major; what exceeds them goes to F, behind the
    dimensions marked F.

    Raises:
        LayoutError: a mark that is neither P nor F, or not one per dimension.

    >>> print(trainium_layout("PF", (384, 10)))
    S[(3,128,10):(10@F,1@P,1@F)]
    """
    what = "trainium_layout"
    extents = tuple(int(extent) for extent in as_shape(shape, what))
    if (
        not isinstance(annotation, str)
        or len(annotation) != len(extents)
        or set(annotation) - set("PF")
    ):
        raise LayoutError(
            f"{what}: needs one P or F per dimension of {extents}; got {annotation!r}"
        )
    free = math.prod(e for mark, e in zip(annotation, extents, strict=True) if mark == "F")
    stride = {"P": 1, "F": 1}
    iters: list[Iter] = []
    for mark, extent in reversed(tuple(zip(annotation, extents, strict=True))):
        step = stride[mark]
        stride[mark] *= extent
        if mark == "F":
            iters.append(Iter(extent, step, F))
        elif step * extent <= PARTITIONS:
            iters.append(Iter(extent, step, P))
        elif step >= PARTITIONS:
            iters.append(Iter(extent, step // PARTITIONS * free, F))
        elif PARTITIONS % step == 0 and step * extent % PARTITIONS == 0:
            iters.append(Iter(PARTITIONS // step, step, P))
            iters.append(Iter(step * extent // PARTITIONS, free, F))
        else:
            raise LayoutError(
                f"{what}: {extent} must divide {PARTITIONS} partitions, or be a multiple of them; "
                f"got {extents}"
            )
    return TileLayout.from_iters(iters[::-1])
