"""``gemm_async`` by ``tcgen05.mma``: one thread issues it, the accumulator is in tensor memory.

The accumulator, A in tensor memory and block scales are compared, element by element, with the
layouts that the instruction prescribes; A and B in shared memory get descriptors, solved from their
layouts and proved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from layoutalg import LayoutError, tmem_mma_operand_layout, tmem_scale_layout
from lowering.dispatch.predicates import available, listed, started_by_one_thread
from lowering.dispatch.registry import (
    Answer,
    Context,
    DispatchFail,
    Lowered,
    fail,
    predicate,
    register_dispatch,
)
from lowering.dispatch.smem_operands import SharedOperand, accumulation, extents, shared_operand
from lowering.dispatch.tmem_tiles import TensorTile, places, tensor_tile
from lowering.ir.index import Index
from lowering.ir.ops import SharedMatrix
from lowering.ir.tiles import BufferRegion
from lowering.ir.tmem_ops import TensorMatrix, TensorMma
from lowering.isa import dtypes, tcgen05
from lowering.isa.smem_descriptor import BYTE
from lowering.isa.tcgen05 import CELL, KINDS, LANES, Multiplication, TensorInst

SCALE_ROWS = 32  # lanes that scales are spread over; the four groups of lanes have copies


def in_their_places(context: Context) -> Answer:
    """Hold where C and scales are in tensor memory, B in shared memory, and A in either."""
    fits = {"C": ("tmem",), "A": ("shared", "tmem"), "B": ("shared",)}
    if all(space in fits.get(role, ("tmem",)) for role, space in context.spaces.items()):
        return True
    return False, (
        "C and scales must be in tensor memory, B in shared memory, and A in either; "
        + listed(context.spaces)
    )


def both_scales_or_none(context: Context) -> Answer:
    """Hold where A and B both have block scales, or neither."""
    given = [role for role in ("SFA", "SFB") if role in context.call.operands]
    if len(given) == 1:
        return False, f"scales are of both A and B; got {given[0]} alone"
    return True


@dataclass(frozen=True)
class Sizes:
    """M, N and K of a call, over both CTAs of a pair; ``block``: elements of K per scale, or 0."""

    m: int
    n: int
    k: int
    block: int


def sizes(context: Context) -> Sizes:
    """Return the sizes of a call.

    Raises:
        DispatchFail: the extents of the operands do not go together.
    """
    operands, config = context.call.operands, context.call.config
    group = config["cta_group"]
    (rows, n), a, b = (extents(operands[role]) for role in "CAB")
    a, b = (a[::-1] if config["transA"] else a), (b[::-1] if config["transB"] else b)
    if (a[0], b[1] * group) != (rows, n) or a[1] != b[0]:
        share = " of each CTA; B has half the columns of C" if group == 2 else ""
        fail(f"C (M, N) is {(rows, n)}, A (M, K) {a}, B (K, N) {b}{share}: they do not go together")
    block = 0
    if "SFA" in operands:
        first, second = (extents(operands[role]) for role in ("SFA", "SFB"))
        rows_a, blocks = first[::-1] if config["transA"] else first
        blocks_b, cols = second[::-1] if config["transB"] else second
        if (rows_a, cols) != (rows, n) or blocks != blocks_b or a[1] % blocks:
            fail(
                f"SFA (M, K/block) is {(rows_a, blocks)}, SFB (K/block, N) {(blocks_b, cols)}: "
                f"with M = {rows}, N = {n} and K = {a[1]} they do not go together"
            )
        block = a[1] // blocks
    return Sizes(rows * group, n, a[1], block)


def kind_of(context: Context, block: int) -> tuple[str, str | None]:
    """Return the kind and the type of the scales that the operand types ask for.

    Raises:
        DispatchFail: no kind has them.
    """
    operands = context.call.operands
    c, a, b = (operands[role].buffer.dtype for role in "CAB")
    for role, dtype in (("A", a), ("B", b)):
        if dtype.token in ("e2m1", "e2m3", "e3m2") and dtype.bits == BYTE:
            fail(
                f"{role}: {dtype} has bytes of its own; in shared memory the tensor core wants 16 "
                "of them closed up, then padding, which no layout says. float4_e2m1fn, packed, fits"
            )
    scale = operands["SFA"].buffer.dtype if "SFA" in operands else None
    if scale is not None and scale != operands["SFB"].buffer.dtype:
        fail(f"SFA is {scale}, SFB {operands['SFB'].buffer.dtype}: they have one type")
    wanted = (scale.token, block) if scale else None
    for name, kind in KINDS.items():
        pair = a.token in kind.codes and b.token in kind.codes and (kind.mixed or a == b)
        if pair and (wanted in kind.scales if wanted else not kind.scales):
            if c.token != kind.d:
                fail(f"the accumulator of kind {name} is {dtypes.get(kind.d)}; C is {c}")
            return name, scale.token if scale else None
    scales = f" with scales {wanted[0]} of {wanted[1]} elements" if wanted else " without scales"
    known = "; ".join(
        f"{name}: {' or '.join(kind.codes)}"
        + "".join(f", {token} of {size}" for token, size in kind.scales)
        for name, kind in KINDS.items()
    )
    fail(f"no kind multiplies {a} by {b}{scales}; there are {known}")


@dataclass(frozen=True)
class Accumulator:
    """One instruction's part of C: its first row and column in a CTA, and its tensor memory."""

    row: int
    col: int
    place: TensorMatrix


def accumulators(inst: TensorInst, tile: TensorTile) -> list[Accumulator]:
    """Return the parts of C, one per instruction.

    A part starts in lane 0; one of 64 rows of one CTA, which has 16 of every 32 lanes, in lane 16
    as well.

    Raises:
        DispatchFail: C has another layout than the instruction's accumulator.
    """
    shape = (inst.rows, inst.n)
    prescribed = tmem_mma_operand_layout("D", shape, inst.m, inst.cta_group)
    wanted = places(prescribed, shape, CELL)
    lanes = (0, 16) if (inst.m, inst.cta_group) == (64, 1) else (0,)
    rows, cols = tile.lane.shape[:2]
    found = []
    for row in range(0, rows, inst.rows):
        for col in range(0, cols, inst.n):
            base = tile.base(row, col, wanted, lanes)
            if base is None:
                fail(f"C: {tile.buffer.layout} is no accumulator of {inst}, {prescribed}")
            found.append(Accumulator(row, col, tile.at(base[0], base[1] // CELL)))
    return found


def left_in_tensor_memory(inst: TensorInst, tile: TensorTile, row: int, k: int) -> TensorMatrix:
    """Return A of a row and a K step in tensor memory.

    Raises:
        DispatchFail: it has another layout than the instruction prescribes.
    """
    if inst.rows * 2 == LANES and inst.cta_group == 1:
        fail("A in tensor memory has 128 rows; where 64 lie, descriptions of the hardware differ")
    if inst.cta_group == 2 and inst.n % 32:
        fail(f"with A in tensor memory and cta_group 2, N must be a multiple of 32; got {inst.n}")
    shape = (inst.rows, inst.k)
    prescribed = tmem_mma_operand_layout("A", shape, inst.m, inst.cta_group)
    base = tile.base(row, k, places(prescribed, shape, inst.a.bits))
    if base is None:
        fail(f"A: {tile.buffer.layout} must lie as {prescribed}, from a column of 32 bits on")
    return tile.at(0, base[1] // CELL)


def scales_of(
    role: str, inst: TensorInst, tile: TensorTile, first: int, rows: int, k: int
) -> tuple[TensorMatrix, int]:
    """Return where the scales of an instruction start: a column, and a byte of it.

    Args:
        role: "SFA" or "SFB", for messages.
        inst: the instruction.
        tile: of the scales, rows of A or columns of B first.
        first: the first row.
        rows: how many.
        k: the first element of K.

    Raises:
        DispatchFail: they have another layout than the instruction prescribes.
    """
    whole = rows if rows < SCALE_ROWS else -(-rows // SCALE_ROWS) * SCALE_ROWS
    prescribed = tmem_scale_layout(whole, inst.scales)
    lane, bit = (each[:rows] for each in places(prescribed, (whole, inst.scales), BYTE))
    base = tile.base(first, k // inst.block, (lane, bit), unit=inst.scales * BYTE)
    if base is None:
        fail(
            f"{role}: {tile.buffer.layout} must lie as {prescribed}, {inst.scales} scales in one "
            "column"
        )
    return tile.at(0, base[1] // CELL), base[1] % CELL // BYTE


def instructions(context: Context, size: Sizes) -> Iterator[TensorInst]:
    """Yield the instructions whose shapes divide the sizes, the largest first.

    Raises:
        DispatchFail: no kind, or no shape of it, fits.
    """
    operands, group = context.call.operands, context.call.config["cta_group"]
    kind, scale = kind_of(context, size.block)
    refusal = context.lacks(f"tcgen05.mma kind::{kind}", KINDS[kind].arch)
    if refusal is not None:
        fail(refusal)
    a, b = (operands[role].buffer.dtype.token for role in "AB")
    legal = tcgen05.legal_m(kind, group)
    fitting = [m for m in legal if size.m % m == 0]
    if not fitting:
        fail(f"M must be a multiple of {' or '.join(map(str, legal))} ({kind}); got {size.m}")
    shapes = [
        (m, n)
        for m in reversed(fitting)
        for n in reversed(tcgen05.legal_n(kind, m, group))
        if size.n % n == 0 and (group == 1 or n == size.n)
    ]
    if not shapes and group == 2:
        some = tcgen05.legal_n(kind, fitting[-1], group)
        fail(
            f"cta_group 2 has one instruction along N, half of its columns in the B of each CTA: N "
            f"must be a multiple of {some[0]} up to {some[-1]}; got {size.n}"
        )
    if not shapes:
        steps = [tcgen05.legal_n(kind, m, group)[0] for m in fitting]
        fail(f"N must be a multiple of {min(steps)} (M = {fitting[0]}, {kind}); got {size.n}")
    step = tcgen05.get(kind, *shapes[0], a, b, group, scale).k
    if size.k % step:
        fail(f"K must be a multiple of {step}, 32 bytes of {a}; got {size.k}")
    for m, n in shapes:
        yield tcgen05.get(kind, m, n, a, b, group, scale)


@register_dispatch(
    "gemm_async",
    "cuda",
    variant="tcgen05",
    when=[
        predicate("has_tcgen05", available("tcgen05.mma", tcgen05.ARCH)),
        predicate("started_by_one_thread", started_by_one_thread),
        predicate("in_their_places", in_their_places),
        predicate("both_scales_or_none", both_scales_or_none),
    ],
)
def lower_tcgen05(context: Context) -> Lowered:
    """Lower ``gemm_async`` to one ``tcgen05.mma`` per part of C and step of K."""
    operands = context.call.operands
    size = sizes(context)
    reasons: list[str] = []
    try:
        tile = tensor_tile(operands["C"])
        for inst in instructions(context, size):
            try:
                return Lowered(tuple(_products(context, inst, accumulators(inst, tile), size.k)))
            except DispatchFail as declined:
                reasons.append(str(declined))
    except LayoutError as error:
        fail(str(error))
    # Of what fits C the reason that something else does not, of the largest shape.
    first = next((reason for reason in reasons if not reason.startswith("C:")), reasons[0])
    fail(first + (f" (of {len(reasons)} shapes the first)" if len(reasons) > 1 else ""))


def _products(
    context: Context, inst: TensorInst, parts: list[Accumulator], depth: int
) -> Iterator[TensorMma]:
    """Yield the products of all parts, K step by K step."""
    call = context.call
    operands, config = call.operands, call.config
    right = shared_operand(operands["B"], "B", int(config["transB"]), inst.cols, "tcgen05")
    left: SharedOperand | TensorTile
    if operands["A"].buffer.scope == "shared":
        left = shared_operand(operands["A"], "A", int(not config["transA"]), inst.rows, "tcgen05")
    elif config["transA"]:
        fail("A in tensor memory is (M, K): transA is a matter of its layout there")
    else:
        left = tensor_tile(operands["A"])
    flips = {"SFA": config["transA"], "SFB": not config["transB"]}
    scales = [_rows_first(operands[role], flips[role]) for role in flips if role in operands]
    majors = (
        left.descriptor.major if isinstance(left, SharedOperand) else "K",
        right.descriptor.major,
    )
    for k in range(0, depth, inst.k):
        for part in parts:
            a: SharedMatrix | TensorMatrix
            if isinstance(left, SharedOperand):
                a = left.at(Index((), part.row), k)
            else:
                a = left_in_tensor_memory(inst, left, part.row, k)
            b = right.at(Index((), part.col // inst.cta_group), k)
            spans = ((part.row, inst.rows), (part.col, inst.n))
            found = [
                scales_of(role, inst, tile, first, rows, k)
                for role, tile, (first, rows) in zip(("SFA", "SFB"), scales, spans, strict=False)
            ]
            chosen = (found[0][1], found[1][1]) if found else (0, 0)
            what = Multiplication(inst, majors, chosen)
            accumulate = accumulation(config["accum"], k)
            where = tuple(place for place, _ in found)
            yield TensorMma(what, part.place, a, b, accumulate, where, call.scope)


def _rows_first(region: BufferRegion, flip: bool) -> TensorTile:
    """Return scales in tensor memory, rows of A or columns of B first."""
    tile = tensor_tile(region)
    if not flip:
        return tile
    lane, bit = (each.swapaxes(0, 1) for each in (tile.lane, tile.bit))
    return TensorTile(tile.buffer, lane, bit, tile.moved)
