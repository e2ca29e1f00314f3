"""Which registers of a user's tile are an instruction's fragment.

There are two ways to decide. For ``mma``, layouts are cut into the fragment's digits (:func:`cut`):
M, N and K may be permuted, alike in all operands, and a refusal names the digit. For ``wgmma``,
``tcgen05.ld`` and ``.st``, ``assign``, what each thread holds is compared with what it
should hold (:func:`columns_of`): a region may lie in some threads, and no layout says in which.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError, TileLayout
from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.fragments import Fragment
from layoutalg.sizes.size import is_int, product
from lowering.dispatch.holders import check_static
from lowering.dispatch.registry import Context, fail
from lowering.ir.ops import Registers
from lowering.ir.tiles import TilePrimitiveCall, cells

LOCAL_BYTES = 512 << 10  # of a thread; CUDA C++ Programming Guide, technical specifications

Ints = npt.NDArray[np.int64]


# -- what an operand of an mma must be ------------------------------------------------------------


def check_in_registers(call: TilePrimitiveCall, role: str) -> None:
    """Decline an operand that is not in registers."""
    buffer = call.operands[role].buffer
    if buffer.scope != "local":
        stage = "stage it with ldmatrix" if role in "AB" else "copy it into registers first"
        fail(f"{role} must be in registers (scope local); {buffer} is in {buffer.scope}: {stage}")


def swizzled(role: str, layout: object) -> str:
    """Return the refusal of a swizzled layout in registers."""
    return (
        f"{role} is swizzled ({layout}); registers have no addresses to permute: use a TileLayout"
    )


def sliced(context: Context, role: str) -> TileLayout:
    """Return the canonical layout of an operand's region; decline what registers cannot hold."""
    region = context.call.operands[role]
    buffer = region.buffer
    if not isinstance(buffer.layout, TileLayout):
        fail(swizzled(role, buffer.layout))
    sizes = [size for it in buffer.layout.shard for size in (it.extent, it.stride)]
    if not is_int(*sizes, *buffer.layout.offset.values()):
        fail(
            f"{role}: register and lane numbers must be static; {buffer.layout} has symbols: "
            "substitute them with .subs"
        )
    try:
        check_static(region)
    except LayoutError as error:
        fail(f"{role}: {str(error).removeprefix('registers: ')}")
    try:
        piece: TileLayout | None = buffer.layout.slice(buffer.shape, region.ranges, target="cuda")
        if piece is None:
            fail(
                f"{role}: no layout says the region {region}: two digits of {buffer.layout} would "
                "have to move at once"
            )
        piece = piece.canonicalize("cuda")
    except LayoutError as error:
        fail(f"{role}: the layout does not hold the tile {region}: {error}")
    thread_axes = {it.axis.name for it in piece.shard if it.axis.thread}
    if len(thread_axes) > 1:
        fail(
            f"{role}: needs one thread axis, such as laneid, tid_in_wg or tx; {piece} has "
            f"{', '.join(sorted(thread_axes))}"
        )
    for axis, start in piece.offset.items():
        if axis.thread and start != 0:
            fail(
                f"{role}: {region} starts at {axis} {start}; the other threads would compute on "
                f"registers that hold something else: start at {axis} 0"
            )
    memory = [axis for axis in piece.offset if axis.memory and axis.name != "m"]
    memory += [it.axis for it in piece.shard if it.axis.memory and it.axis.name != "m"]
    if memory:
        fail(f"{role}: registers lie on axis m; {piece} has {memory[0]}")
    size = cells(buffer) * buffer.dtype.bits // 8
    if size > LOCAL_BYTES:
        fail(
            f"{role}: a thread has at most {LOCAL_BYTES} bytes of registers and local memory; "
            f"{buffer.layout} needs {size}"
        )
    return piece


def base_of(piece: TileLayout) -> Any:
    """Return the register at which a layout starts."""
    return piece.offset.get(Axis.get("m"), 0)


@lru_cache(maxsize=512)
def check_injective(role: str, layout: TileLayout, shape: tuple[int, ...]) -> None:
    """Refuse a layout that puts two elements into one register of one thread."""
    for it in layout.shard:
        if it.stride == 0 and it.extent != 1:
            fail(
                f"{role}: {layout} is not injective: stride 0 puts {it.extent} elements into one "
                "register"
            )
    table = {name: values.reshape(-1) for name, values in layout.table(shape).items()}
    spans = tuple(int(np.ptp(values)) + 1 for values in table.values())
    keys = np.ravel_multi_index(tuple(values - values.min() for values in table.values()), spans)
    unique, counts = np.unique(keys, return_counts=True)
    if len(unique) != len(keys):
        both = np.flatnonzero(keys == unique[counts > 1][0])[:2]
        one, two = (tuple(map(int, np.unravel_index(index, shape))) for index in both)
        where = ", ".join(f"{name} {int(values[both[0]])}" for name, values in table.items())
        fail(f"{role}: {layout} is not injective: elements {one} and {two} share {where}")


# -- by digits ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """One dimension of an operand, cut for an instruction: warps, tiles, and digits of a tile.

    ``wanted`` are the register digits of the fragment, ``digits`` the operand's own.
    """

    warps: Iters
    tiles: Iters
    wanted: Iters
    digits: Iters


def show(iters: Iters) -> str:
    """Return iters in a refusal."""
    return ", ".join(f"{it.extent}:{it.stride}@{it.axis}" for it in iters) or "none"


def spread(iters: Iters) -> tuple[int, int]:
    """Return over how many threads and registers of a thread a dimension is spread."""
    threads = product(it.extent for it in iters if it.axis.thread)
    return int(threads), int(product(it.extent for it in iters if it.axis.memory))


def dimensions(layout: TileLayout, shape: Sequence[int]) -> list[Iters]:
    """Return the iters of each dimension of a tile.

    Raises:
        LayoutError: an iter cannot be cut between two dimensions.
    """
    grouped, seps = layout.group(shape)
    return [tuple(grouped.shard[a:b]) for a, b in itertools.pairwise(seps)]


def cut(mine: Iters, own: Iters, warps: int, tiles: int, inside: int, exact: int) -> Cut | str:
    """Cut a dimension as ``[warps | digits | tiles | digits]``, or say why it does not cut so.

    Args:
        mine: the dimension of an operand.
        own: the same of the fragment: its digits, in the order in which they are wanted.
        warps: over how many warps the dimension is spread.
        tiles: how many tiles it is long in each.
        inside: how many of the digits come before the tiles.
        exact: register digits of a stride below this must have it; others may have any, since the
            order of an instruction's operands is computed from them.
    """
    extents = [int(it.extent) for it in own]
    shape = (warps, *extents[:inside], tiles, *extents[inside:])
    try:
        pieces, seps = algebra.group(mine, shape, show(mine))
    except LayoutError:
        return f"does not cut into {shape}: its digits are {show(mine)}"
    groups = [
        tuple(it for it in pieces[a:b] if it.extent != 1) for a, b in itertools.pairwise(seps)
    ]
    digits = [*groups[1 : 1 + inside], *groups[2 + inside :]]
    for want, found in zip(own, digits, strict=True):
        told = bool(want.axis.thread or want.stride < exact)
        if want.extent != 1 and not (len(found) == 1 and _is_digit(found[0], want, told)):
            kind = "lane" if want.axis.thread else "register"
            stride = f":{want.stride}" if told else ""
            return f"needs the {kind} digit {want.extent}{stride}, has {show(found)}"
    registers = [
        (want, found[0])
        for want, found in zip(own, digits, strict=True)
        if want.axis.memory and want.extent != 1
    ]
    wanted, having = (tuple(pair[side] for pair in registers) for side in (0, 1))
    return Cut(groups[0], groups[1 + inside], wanted, having)


def _is_digit(found: Iter, want: Iter, told: bool) -> bool:
    if want.axis.thread and found.axis.subscope != "thread":
        return False
    return found.axis.thread == want.axis.thread and (not told or found.stride == want.stride)


@dataclass(frozen=True)
class Tiles:
    """The tiles of an operand: the first register of each row and column of them, and its slots."""

    buffer: str
    rows: tuple[int, ...]
    cols: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def registers(self) -> list[int]:
        """The registers of all tiles, in ascending order."""
        parts = itertools.product(self.rows, self.cols, self.order)
        return sorted({sum(part) for part in parts})

    def at(self, row: int, col: int) -> Registers:
        """Return the registers of one tile, in PTX operand order."""
        start = self.rows[row] + self.cols[col]
        return Registers(self.buffer, tuple(start + slot for slot in self.order))


def tiles_of(
    context: Context, role: str, fragment: Fragment, base: int, cuts: dict[str, Cut]
) -> Tiles:
    """Return the tiles of an operand whose dimensions are cut, rows and columns the last of them.

    Raises:
        DispatchFail: a tile begins inside a word, or in other registers in other threads.
    """
    buffer = context.call.operands[role].buffer
    unit = word(fragment)
    for dim, each in cuts.items():
        thread = tuple(it for it in each.tiles if it.axis.thread)
        if thread:
            fail(
                f"{dim}: a tile digit lies on a thread axis ({show(thread)}); register numbers "
                "must be the same in every thread"
            )
    check_injective(role, buffer.layout, buffer.shape)
    for each in cuts.values():
        pairs = zip(each.wanted, each.digits, strict=True)
        for it in (*each.tiles, *(have for want, have in pairs if want.stride >= unit)):
            if int(it.stride) % unit:
                fail(
                    f"{role}: register stride {it.stride} of {buffer.layout} puts packed pairs "
                    f"astride 32-bit words; strides must be multiples of {unit}"
                )
    if base % unit:
        fail(
            f"{role}: the region starts at register {base}, inside a 32-bit word of {unit} elements"
        )
    order = tuple(
        sum(
            slot // int(want.stride) % int(want.extent) * int(have.stride)
            for each in cuts.values()
            for want, have in zip(each.wanted, each.digits, strict=True)
        )
        for slot in range(fragment.slots)
    )
    rows, cols = [_offsets(each.tiles) for each in cuts.values()][-2:]
    return Tiles(buffer.name, tuple(base + row for row in rows), tuple(cols), order)


def word(fragment: Fragment) -> int:
    """Return how many elements of a tile share a word: what its registers must be multiples of."""
    return min(fragment.pack, fragment.slots)


def _offsets(iters: Iters) -> list[int]:
    """Return the register offset of each index of a run of iters, row-major."""
    steps = ([step * int(it.stride) for step in range(int(it.extent))] for it in iters)
    return [sum(parts) for parts in itertools.product(*steps)]


# -- by elements ----------------------------------------------------------------------------------


def columns_of(wanted: Ints, held: Ints) -> tuple[int, ...] | None:
    """Return which columns of one table are those of another, the same ones in every row.

    Args:
        wanted: by thread and slot, the element or place that it should hold.
        held: by thread and register, what it does hold; below 0: nothing.

    None where some column of ``wanted`` is none of ``held``.

    >>> columns_of(np.array([[4, 5], [6, 7]]), np.array([[5, -1, 4], [7, 3, 6]]))
    (2, 0)
    >>> columns_of(np.array([[4, 5], [6, 7]]), np.array([[5, -1, 4], [6, 3, 7]])) is None
    True
    """
    column = {int(each): at for at, each in enumerate(held[0]) if each >= 0}
    found = tuple(column.get(int(each), -1) for each in wanted[0])
    if min(found, default=0) < 0 or (held[:, found] != wanted).any():
        return None
    return found
