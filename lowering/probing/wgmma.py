"""What a machine shows of ``wgmma``: register fragments, and the cells that descriptors read.

No layout takes part in the measurement: registers come from plain images, shared memory is filled
by plain addresses, and a *cell* is an element of it by number. A cell's number is read through the
instruction itself: B holds, one launch after another, ones and the digits of the numbers, in a base
whose digits the type holds exactly. Random integers run along, and must come out as what was found
predicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from layoutalg import ComposeLayout, S, TileLayout
from layoutalg.fragments import Fragment
from layoutalg.layouts.tile_layout import Layout
from lowering.ir.index import Guard, Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import (
    Loop,
    Op,
    ProxyFence,
    Registers,
    SharedMatrix,
    Sync,
    Transfer,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tiles import Buffer
from lowering.isa import smem_descriptor, wgmma
from lowering.isa.dtypes import DType
from lowering.isa.smem_descriptor import CHUNK, LINES, STEP, Descriptor, describe
from lowering.isa.wgmma import WgmmaInst
from lowering.probing.raw import (
    ACCESS,
    NOWHERE,
    Array,
    Ints,
    Measurement,
    ProbeError,
    Run,
    as_integers,
    check_predicted,
    image_buffer,
    moves,
    register_buffer,
    small_integers,
)

GROUPS = 8  # warpgroups of one CTA that try different places of A
RANDOM = 16  # products of random integers that the measured relation must predict
PATTERN = 1024  # bytes of the longest swizzle pattern

# The largest base whose digits a type holds exactly.
_BASES = {
    "f16": 2048, "tf32": 2048, "bf16": 256, "e4m3": 16, "e5m2": 8, "s8": 128, "u8": 256,
}  # fmt: skip


# -- kernels --------------------------------------------------------------------------------------


def dense_operand(rows: int, dtype: DType) -> tuple[TileLayout, Descriptor]:
    """Return an operand without swizzle whose core matrices follow each other, and its descriptor.

    >>> from lowering.isa import dtypes
    >>> print(*dense_operand(16, dtypes.get("f16")), sep="; ")
    S[(2,8,2,8):(128,8,64,1)]; K-major no swizzle, leading 128, stride 256
    """
    unit = CHUNK * 8 // dtype.bits
    core = LINES * unit
    layout = TileLayout(S[(rows // LINES, LINES, 2, unit) : (2 * core, unit, core, 1)])
    return layout, describe(layout, (rows, 2 * unit), dtype, "K")


def _fill(into: str, image: str, start: Index, cells: int, threads: int, bits: int) -> list[Op]:
    """Copy cells of an image to shared memory by all threads, in the widest accesses."""
    width = ACCESS // bits
    thread = Index.of("thread", threads)
    ops: list[Op] = []
    for at in range(0, cells, threads * width):
        left = (cells - at) // width
        guards = (Guard(thread, 0, left),) if left < threads else ()
        where = thread * width + at
        ops.append(Transfer(into, where, image, start + where, width, guards))
    return ops


def _multiply(op: Wgmma) -> list[Op]:
    return [WgmmaFence(), op, WgmmaCommit(), WgmmaWait(0, (op.d,))]


def _every(fragment: Fragment, name: str) -> Registers:
    return Registers(name, tuple(range(fragment.slots)))


def product_body(inst: WgmmaInst, groups: int, steps: int, parts: int) -> KernelIR:
    """Return a kernel that multiplies images of A's registers by images of B's cells.

    ``D_image[part, step] = A_image[step] · B_image[part] + C_image[step]``, for every part and
    step, in ``groups`` warpgroups that share B.
    """
    threads = groups * WARPGROUP
    a, d = inst.fragment("A"), inst.fragment("D")
    cells = inst.n * inst.k
    images = (
        image_buffer("A_image", (steps, threads, a.slots), inst.a),
        image_buffer("B_image", (parts, cells), inst.b),
        image_buffer("C_image", (steps, threads, d.slots), inst.d),
        image_buffer("D_image", (parts, steps, threads, d.slots), inst.d),
    )
    held = (
        register_buffer("A", threads, a.slots, inst.a),
        register_buffer("D", threads, d.slots, inst.d),
    )
    tile = Buffer("tile", (cells,), inst.b, "shared")
    step, part = Index.of("step", steps), Index.of("part", parts)
    operand = SharedMatrix("tile", Index(), dense_operand(inst.n, inst.b)[1])
    inner = (
        *moves(held[0], "A_image", step * (threads * a.slots), True),
        *moves(held[1], "C_image", step * (threads * d.slots), True),
        *_multiply(Wgmma(inst, _every(d, "D"), _every(a, "A"), operand)),
        *moves(held[1], "D_image", (part * steps + step) * (threads * d.slots), False),
    )
    outer = (
        *_fill("tile", "B_image", part * cells, cells, threads, inst.b.bits),
        ProxyFence(),
        Sync("cta"),
        Loop("step", steps, inner),
        Sync("cta"),
    )
    return KernelIR(images, (tile,), held, (Loop("part", parts, outer),), threads, wgmma.ARCH)


@dataclass(frozen=True)
class Placed:
    """A layout of an operand in shared memory, as the descriptors are probed with it.

    Args:
        operand: "A" or "B".
        dtype: of both operands.
        major: "K" or "MN".
        swizzle: bytes, 0 for none.
        late: rows of 128 bytes by which the pattern starts late: the base offset.
    """

    operand: str
    dtype: DType
    major: str
    swizzle: int
    late: int = 0

    @property
    def unit(self) -> int:
        """Elements of 16 bytes."""
        return CHUNK * 8 // self.dtype.bits

    @property
    def rows(self) -> int:
        """M or N of one instruction: for B two swizzled lines along N, or two core matrices."""
        if self.operand == "A":
            return 64
        return 2 * max(LINES, self.swizzle * 8 // self.dtype.bits if self.major == "MN" else 0)

    @property
    def shape(self) -> tuple[int, int]:
        """(M or N, K): two operand tiles each way, and no less than a swizzled line along K."""
        step = STEP * 8 // self.dtype.bits
        line = self.swizzle * 8 // self.dtype.bits if self.major == "K" else 0
        return 2 * self.rows, max(2 * step, line)

    @property
    def layout(self) -> Layout:
        """Lines of the swizzle's width, 8 of them to a block; blocks along the line, then across.

        >>> from lowering.isa import dtypes
        >>> print(Placed("B", dtypes.get("f16"), "MN", 128).layout)
        ComposeLayout(3, 3, 3, S[(4,64,4,8):(512,1,2048,64)])
        """
        width = max(self.swizzle, CHUNK) * 8 // self.dtype.bits
        along, across = self.shape if self.major == "MN" else self.shape[::-1]
        block = LINES * width
        inside = TileLayout(S[(along // width, width) : (block, 1)])
        lines = TileLayout(S[(across // LINES, LINES) : (along * LINES, width)])
        outer, inner = (inside, lines) if self.major == "MN" else (lines, inside)
        tile = TileLayout.from_iters([*outer.shard, *inner.shard])
        if not self.swizzle:
            return tile
        length = (self.swizzle // CHUNK).bit_length() - 1
        return ComposeLayout(self.unit.bit_length() - 1, length, 3, tile)

    @property
    def start(self) -> int:
        """The byte address at which the layout begins."""
        return self.late * smem_descriptor.ROW

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of every operand tile."""
        return describe(self.layout, self.shape, self.dtype, self.major, self.rows, self.start)

    @property
    def cells(self) -> int:
        """Cells of the memory that holds it."""
        bits = self.start * 8 + self.shape[0] * self.shape[1] * self.dtype.bits
        return -(-bits // (PATTERN * 8)) * PATTERN * 8 // self.dtype.bits

    @property
    def claim(self) -> Ints:
        """The cell of each element, as the layout says."""
        cells: Ints = self.layout.table(self.shape)["m"] + self.start * 8 // self.dtype.bits
        return cells

    def cells_of(self, descriptor: Descriptor) -> Ints:
        """Return the cell of each element that another descriptor would read."""
        size = self.dtype.bits // 8
        starts = smem_descriptor.starts(self.layout, self.shape, self.dtype, self.rows) + self.start
        step = STEP // size
        tiles = [[descriptor.addresses((self.rows, step), int(at)) for at in row] for row in starts]
        found: Ints = np.block(tiles) // size
        return found

    @property
    def instruction(self) -> WgmmaInst:
        """The instruction that reads it: N of a B that only passes A on is K."""
        n = self.rows if self.operand == "B" else STEP * 8 // self.dtype.bits
        return wgmma.get(n, self.dtype.token)

    def __str__(self) -> str:
        """Return ``descriptor.B.f16.MN.128``."""
        base = f"+{self.late}" if self.late else ""
        return f"descriptor.{self.operand}.{self.dtype.token}.{self.major}.{self.swizzle}{base}"


def reading_body(placed: Placed, parts: int) -> KernelIR:
    """Return a kernel that reads every operand tile of a layout through its descriptor.

    The other operand selects: for B, row m of A is one at k = m mod K; for A, B is the identity.
    ``D_image[part, i, j]`` is the product with tile (i, j) of ``labels[part]``.
    """
    inst, dtype = placed.instruction, placed.dtype
    a, d = inst.fragment("A"), inst.fragment("D")
    starts = smem_descriptor.starts(placed.layout, placed.shape, dtype, placed.rows) + placed.start
    starts = starts * 8 // dtype.bits
    rows, cols = starts.shape
    steps = (starts[1, 0] - starts[0, 0], starts[0, 1] - starts[0, 0])
    i, j = Index.of("i", rows), Index.of("j", cols)
    regular = starts[0, 0] + steps[0] * np.arange(rows)[:, None] + steps[1] * np.arange(cols)
    assert (regular == starts).all(), placed
    at = i * int(steps[0]) + j * int(steps[1]) + int(starts[0, 0])
    read = SharedMatrix("tile", at, placed.descriptor)
    cells, part = placed.cells, Index.of("part", parts)
    out = part * (rows * cols) + i * cols + j
    images = [
        image_buffer("labels", (parts, cells), dtype),
        image_buffer("D_image", (parts, rows, cols, WARPGROUP, d.slots), inst.d),
    ]
    shared = [Buffer("tile", (cells,), dtype, "shared")]
    held = [register_buffer("D", WARPGROUP, d.slots, inst.d)]
    if placed.operand == "B":
        images.append(image_buffer("A_image", (WARPGROUP, a.slots), dtype))
        held.append(register_buffer("A", WARPGROUP, a.slots, dtype))
        before = moves(held[1], "A_image", Index(), True)
        op = Wgmma(inst, _every(d, "D"), _every(a, "A"), read, False)
    else:
        count = inst.n * inst.k
        images.append(image_buffer("B_image", (count,), dtype))
        shared.append(Buffer("other", (count,), dtype, "shared"))
        before = _fill("other", "B_image", Index(), count, WARPGROUP, dtype.bits)
        other = SharedMatrix("other", Index(), dense_operand(inst.n, dtype)[1])
        op = Wgmma(inst, _every(d, "D"), read, other, False)
    store = moves(held[0], "D_image", out * (WARPGROUP * d.slots), False)
    tiles = Loop("i", rows, (Loop("j", cols, (*_multiply(op), *store)),))
    outer = (
        *_fill("tile", "labels", part * cells, cells, WARPGROUP, dtype.bits),
        ProxyFence(),
        Sync("cta"),
        tiles,
        Sync("cta"),
    )
    ops = (*before, Loop("part", parts, outer))
    return KernelIR(tuple(images), tuple(shared), tuple(held), ops, WARPGROUP, wgmma.ARCH)


# -- measurements ---------------------------------------------------------------------------------


_FOUND = "what was found predicts", "; the instruction does something else"


def digits(cells: int, dtype: DType) -> Array:
    """Return images of memory: a row of ones, then a row per digit of the cells' numbers.

    >>> from lowering.isa import dtypes
    >>> digits(20, dtypes.get("e4m3"))[:, 17].tolist()
    [1, 1, 1]
    """
    base = _BASES[dtype.token]
    rows, number = [np.ones(cells, dtype=np.int64)], np.arange(cells)
    while number.any():
        rows.append(number % base)
        number = number // base
    return np.stack(rows)


def numbers(images: Ints, dtype: DType) -> Ints:
    """Return the cells' numbers that digits say: (1 + digits, …) -> (…), NOWHERE where no one is.

    Raises:
        ProbeError: the ones say that several cells are added.
    """
    if ((images[0] != 0) & (images[0] != 1)).any():
        raise ProbeError(
            f"probe: one place against ones must give 0 or 1; a place of D shows {images[0].max()}"
        )
    weights = _BASES[dtype.token] ** np.arange(len(images) - 1)
    found: Ints = np.tensordot(weights, images[1:], 1)
    return np.where(images[0] == 1, found, NOWHERE)


def _launch(
    body: KernelIR, given: Mapping[str, Array], run: Run, name: str = "wgmma_probe"
) -> Ints:
    """Run a kernel on integer images; return D's image."""
    typed = {
        key: values.reshape(body.buffer(key).shape).astype(body.buffer(key).dtype.numpy)
        for key, values in given.items()
    }
    return as_integers(run(body, name, typed)["D_image"])


def measure_product(inst: WgmmaInst, run: Run) -> Measurement:
    """Measure which place of A meets which cell of B, and in which place of D the product lands.

    Every place of A alone, against ones and the digits of the cells' numbers; then random integers,
    which the relation found must predict exactly.

    Raises:
        ProbeError: the machine shows what is no bilinear map.
    """
    a = WARPGROUP * inst.fragment("A").slots
    d = WARPGROUP * inst.fragment("D").slots
    cells = inst.n * inst.k
    images = digits(cells, inst.b)
    total = a + RANDOM
    left = np.concatenate([np.eye(a, dtype=np.int64), small_integers((RANDOM, a), inst.a, 0)])
    right = np.concatenate([images, small_integers((1, cells), inst.b, RANDOM * a)])
    start = np.concatenate(
        [np.zeros((a, d)), small_integers((RANDOM, d), inst.d, RANDOM * a + cells)]
    )
    body = product_body(inst, GROUPS, total // GROUPS, len(right))
    given = {"A_image": left, "B_image": right, "C_image": start}
    out = _launch(body, given, run).reshape(len(right), total, d)
    cell = numbers(out[:-1, :a], inst.b)
    place, landing = np.nonzero(cell != NOWHERE)
    relation = np.full((a, cells), NOWHERE, dtype=np.int64)
    relation[place, cell[place, landing]] = landing
    if (relation[place, cell[place, landing]] != landing).any():
        raise ProbeError("probe: a place of A and a cell of B meet in two places of D")
    want = start[a:].astype(np.int64)
    i, j = np.nonzero(relation != NOWHERE)
    for row, each in zip(want, left[a:].astype(np.int64), strict=True):
        np.add.at(row, relation[i, j], each[i] * right[-1, j].astype(np.int64))
    check_predicted(want, out[-1, a:], *_FOUND)
    return Measurement(total * len(right), {"products": relation})


def _scattered(fragment: Fragment, matrices: Array) -> Array:
    """Return matrices as registers: (…, rows, cols) -> (…, threads, slots)."""
    rows, cols = np.moveaxis(fragment.coords, -1, 0)
    found: Array = matrices[..., rows, cols]
    return found


def _gathered(fragment: Fragment, held: Array) -> Array:
    """Return registers as matrices: the inverse of :func:`_scattered`."""
    rows, cols = np.moveaxis(fragment.coords, -1, 0)
    matrices = np.empty((*held.shape[:-2], *fragment.shape), dtype=held.dtype)
    matrices[..., rows, cols] = held
    return matrices


def selectors(inst: WgmmaInst) -> Ints:
    """Return two A, one 1 in each row: at k = m mod K, and at k = m // K; together they say m.

    >>> selectors(wgmma.get(8, "f16")).argmax(2)[:, 17].tolist()
    [1, 1]
    """
    m = np.arange(inst.m)
    found = np.zeros((2, inst.m, inst.k), dtype=np.int64)
    found[0, m, m % inst.k] = found[1, m, m // inst.k] = 1
    return found


def measure_accumulator(inst: WgmmaInst, run: Run) -> Measurement:
    """Measure the (row, column) of every place of D: rows by A's fragment, columns of B's memory.

    Raises:
        ProbeError: a place shows no row, or two columns.
    """
    fragment = inst.fragment("D")
    cells, d = inst.n * inst.k, WARPGROUP * fragment.slots
    size = inst.m * inst.k
    dense = small_integers((2, inst.m, inst.k), inst.a, 0).astype(np.int64)
    left = np.concatenate([selectors(inst), dense])
    right = np.concatenate([digits(cells, inst.b), small_integers((1, cells), inst.b, 2 * size)])
    start = np.concatenate([np.zeros((2, d)), small_integers((2, d), inst.d, 2 * size + cells)])
    body = product_body(inst, 1, len(left), len(right))
    given = {
        "A_image": _scattered(inst.fragment("A"), left),
        "B_image": right,
        "C_image": start,
    }
    out = _launch(body, given, run).reshape(len(right), len(left), d)
    cell = numbers(out[:-1, :2], inst.b)
    layout, _ = dense_operand(inst.n, inst.b)
    of_cell = np.full((cells, 2), NOWHERE, dtype=np.int64)
    of_cell[layout.table((inst.n, inst.k))["m"]] = np.moveaxis(np.indices((inst.n, inst.k)), 0, -1)
    (n, low), (other, high) = (of_cell[each].T for each in cell)
    m = low + inst.k * high
    if (cell == NOWHERE).any() or (n != other).any() or (m >= inst.m).any():
        raise ProbeError("probe: a place of D shows no row, or two columns")
    matrix = np.empty((inst.k, inst.n), dtype=np.int64)
    matrix[of_cell[:, 1], of_cell[:, 0]] = right[-1]
    want = start[2:].astype(np.int64) + (dense @ matrix)[:, m, n]
    check_predicted(want, out[-1, 2:], *_FOUND)
    return Measurement(len(left) * len(right), {"elements": np.stack([m, n], -1)})


def measure_reading(placed: Placed, run: Run) -> Measurement:
    """Measure the cell that each element of a layout is read from, tile by tile."""
    inst = placed.instruction
    images = digits(placed.cells, placed.dtype)
    body = reading_body(placed, len(images))
    given: dict[str, Array] = {"labels": images}
    if placed.operand == "B":
        given["A_image"] = _scattered(inst.fragment("A"), selectors(inst)[0])
    else:
        identity = np.zeros(inst.n * inst.k, dtype=np.int64)
        layout, _ = dense_operand(inst.n, placed.dtype)
        identity[np.diagonal(layout.table((inst.n, inst.k))["m"])] = 1
        given["B_image"] = identity
    shown = _gathered(inst.fragment("D"), _launch(body, given, run))
    cell = numbers(shown, placed.dtype)
    if placed.operand == "B":
        cell = cell[..., : inst.k, :].swapaxes(-1, -2)
    table: Ints = cell.swapaxes(1, 2).reshape(placed.shape)
    return Measurement(int(np.prod(shown.shape[:3])), {"cells": table})
