"""``gemm`` in registers by ``mma.sp``, block-scaled ``mma`` and ``m8n8k4``.

They take more than A, B, C and D: the metadata E of sparse A, or block scales SFA and SFB. m8n8k4
forms four products, along a dimension of their own. One warp. K has other extents in different
operands, so that none has an anchor: each is cut into the digits of its own fragment, in
their logical order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from layoutalg import LayoutError, TileLayout
from layoutalg.algebra.axis import WARP
from layoutalg.fragments import Fragment, transposed
from lowering.dispatch.predicates import full_lanes
from lowering.dispatch.register_tiles import (
    Tiles,
    base_of,
    check_in_registers,
    cut,
    dimensions,
    sliced,
    tiles_of,
    word,
)
from lowering.dispatch.registry import Context, Lowered, fail, register_dispatch
from lowering.dispatch.variants.mma_sync import DIMS, accumulates, of_key, products
from lowering.ir.tiles import EXTRAS, BufferRegion, TilePrimitiveCall
from lowering.isa.mma import MMA_EXTENDED, MmaInst

_NOUNS = {"E": "sparse A", "SFA": "block-scaled A and B"}


def _extras(call: TilePrimitiveCall) -> tuple[str, ...]:
    return tuple(role for role in EXTRAS if role in call.operands)


def is_sparse(call: TilePrimitiveCall) -> bool:
    """Say whether a call gives the metadata of sparse A."""
    return "E" in call.operands


def is_scaled(call: TilePrimitiveCall) -> bool:
    """Say whether a call gives block scales."""
    return "SFA" in call.operands or "SFB" in call.operands


def is_batch(call: TilePrimitiveCall) -> bool:
    """Say whether a call asks for several products: D has three dimensions that are not 1."""
    shape = call.operands["D"].shape
    return not _extras(call) and sum(extent != 1 for extent in shape) == 3


def _keys(*extras: str) -> Callable[[], Iterable[str]]:
    """Return what lists the keys of the rows that take these operands beside A, B, C and D."""
    return lambda: (row.key for row in MMA_EXTENDED if row.extras == extras)


@register_dispatch(
    "gemm", "cuda", variant="mma.sp*", when=(full_lanes,), takes=is_sparse, instructions=_keys("E")
)
def lower_sparse(context: Context) -> Lowered:
    """Lower ``gemm`` with 2:4 sparse A to ``mma.sp``."""
    return _lower(context)


@register_dispatch(
    "gemm",
    "cuda",
    variant="mma.block_scale*",
    when=(full_lanes,),
    takes=is_scaled,
    instructions=_keys("SFA", "SFB"),
)
def lower_scaled(context: Context) -> Lowered:
    """Lower ``gemm`` with block scales to the block-scaled ``mma``."""
    return _lower(context)


@register_dispatch(
    "gemm", "cuda", variant="mma.m8n8k4", when=(full_lanes,), takes=is_batch, instructions=_keys()
)
def lower_quad_pairs(context: Context) -> Lowered:
    """Lower four products at once to ``mma.m8n8k4``."""
    return _lower(context)


def _lower(context: Context) -> Lowered:
    """Lower to the first instruction whose fragments cut every operand exactly."""
    call = context.call
    accumulate = accumulates(call)
    if call.scope != "warp" or context.threads != WARP:
        what = next((_NOUNS[role] for role in _extras(call) if role in _NOUNS), "four products")
        fail(f"{what}: one warp, scope warp and 32 threads; got {call.scope}, {context.threads}")
    for role in call.operands:
        check_in_registers(call, role)
    refusals = []
    for instruction in _candidates(context):
        tiles = _match(instruction, context, accumulate)
        if isinstance(tiles, str):
            refusals.append(f"{instruction}: {tiles}")
            continue
        d, c = (call.operands[role] for role in "DC")
        if accumulate and c.buffer == d.buffer and c != d:
            fail(f"C must be D's own region or another buffer; got {c} for {d}")
        return Lowered(products(instruction, call, tiles))
    fail("no instruction fits; " + "; ".join(refusals))


def _types(instruction: MmaInst) -> dict[str, str]:
    """Return the token of each operand's dtype."""
    named = dict(zip("ABCD", (each.token for each in instruction.dtypes), strict=True))
    return named | {role: instruction.fragment(role).dtype for role in instruction.extras}


def _candidates(context: Context) -> list[MmaInst]:
    """Return the instructions that take the call's operands and dtypes."""
    operands = context.call.operands
    extras = _extras(context.call)
    given = {role: region.buffer.dtype for role, region in operands.items()}
    known = of_key([row for row in MMA_EXTENDED if row.extras == extras], context)
    if not known:
        if set(extras) < {"SFA", "SFB"}:
            missing = "SFB" if extras == ("SFA",) else "SFA"
            fail(f"{extras[0]} alone: the scales of the other operand, {missing}, are missing")
        fail(f"an mma takes E or SFA and SFB beside A, B, C and D; got {', '.join(extras)}")
    modifier = context.call.config.get("modifier")
    kinds = [row.kind for row in known if is_scaled(context.call)]
    if modifier is not None and modifier not in kinds:
        have = f"one of {', '.join(dict.fromkeys(kinds))}" if kinds else "none"
        fail(f"modifier {modifier!r}: it may be {have}")
    tokens = {role: dtype.token for role, dtype in given.items()}
    widths = {role: given[role].bits for role in "AB"}
    rows = [
        row
        for row in known
        if _types(row) == tokens
        and all(row.fragment(r).bits == widths[r] for r in "AB")
        and modifier in (None, row.kind)
    ]
    if not rows:
        listed = dict.fromkeys(
            ", ".join(f"{role} {token}" for role, token in _types(row).items()) for row in known
        )
        got = ", ".join(f"{role} {dtype}" for role, dtype in given.items())
        near = [text for text in listed if text.startswith(f"A {tokens['A']}, B {tokens['B']}")]
        fail(f"no instruction takes {got}; there is {' or '.join(near or list(listed)[:4])}")
    return rows


def _match(instruction: MmaInst, context: Context, accumulate: bool) -> dict[str, Tiles] | str:
    """Cut every operand for an instruction, or say why it does not fit."""
    refusal = context.lacks(instruction.ptx, instruction.min_arch)
    if refusal is not None:
        return refusal
    tiles = {}
    for role in context.call.operands:
        if role == "C" and not accumulate:
            continue
        found = _cut_operand(instruction.fragment(role), context, role)
        if isinstance(found, str):
            return found
        tiles[role] = found
    counts = {
        "M": len(tiles["A"].rows),
        "K": len(tiles["A"].cols),
        "N": len(tiles["D"].cols),
    }
    for role, each in tiles.items():
        have, want = (len(each.rows), len(each.cols)), tuple(counts[dim] for dim in DIMS[role])
        if have != want:
            region = context.call.operands[role]
            return f"{role} {region} is {have} tiles; A and D ask for {want}"
    return tiles


def _cut_operand(fragment: Fragment, context: Context, role: str) -> Tiles | str:
    """Cut one operand into the digits of its fragment, in their logical order, and tiles."""
    region: BufferRegion = context.call.operands[role]
    layout = sliced(context, role)
    shape = tuple(int(extent) for extent in region.shape)
    while len(shape) > len(fragment.tile) and 1 in shape[: len(shape) - 2]:
        shape = (*shape[: shape.index(1)], *shape[shape.index(1) + 1 :])
    if len(shape) != len(fragment.tile):
        return f"{role} must have {len(fragment.tile)} dimensions; {region} has shape {shape}"
    if context.call.config.get(f"transpose_{role}", False):
        layout, shape = transposed(layout, shape), (*shape[:-2], *shape[:-3:-1])
    for have, unit in zip(shape, fragment.tile, strict=True):
        if have % unit or (len(shape) == 3 and shape[0] != fragment.tile[0]):
            return f"{role} must be made of tiles {fragment.tile}; {region} has shape {shape}"
    try:
        mine, own = dimensions(layout, shape), dimensions(fragment.layout, fragment.tile)
    except LayoutError as error:
        return f"{role} does not cut into {shape}: {error}"
    cuts = {}
    for at, dim in enumerate(("P", *DIMS[role])[-len(shape) :]):
        found = cut(mine[at], own[at], 1, shape[at] // fragment.tile[at], 0, word(fragment))
        if isinstance(found, str):
            return f"{role}.{dim} {found}"
        cuts[f"{role}.{dim}"] = found
    if _copies(layout) != _copies(fragment.layout):
        return f"{role} must be held with the copies of {fragment.layout}; got {layout}"
    return tiles_of(context, role, fragment, int(base_of(layout)), cuts)


def _copies(layout: TileLayout) -> set[tuple[int, int]]:
    """Return the replicas of a layout as (extent, stride) of lanes."""
    return {(int(it.extent), int(it.stride)) for it in layout.canonicalize("cuda").copies}
