"""``gemm`` in registers by the mma whose operands are more, or other, than A, B, C and D.

Sparse A with its positions E, block scales SFA and SFB, and ``m8n8k4``, whose four products lie
along a dimension of their own. One warp; each operand is cut into its fragment's own digits, in
their logical order, and tiles of registers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from layoutalg import LayoutError, TileLayout
from layoutalg.algebra.axis import WARP
from layoutalg.algebra.iters import Iters
from layoutalg.fragments import Fragment, transposed
from layoutalg.fragments.fragment import LANE_DIGITS
from layoutalg.fragments.targets import lacking
from lowering.dispatch.registry import (
    Context,
    Lowered,
    check_operands_apart,
    fail,
    register_dispatch,
)
from lowering.dispatch.variants.mma_sync import (
    accumulates,
    check_held_in_registers,
    check_injective,
    full_lanes,
    offsets,
    sliced,
)
from lowering.ir.ops import Mma, Move, Op, Registers, Zero
from lowering.ir.tiles import EXTRAS, BufferRegion, TilePrimitiveCall
from lowering.isa.mma import MMA_EXTENDED, MmaInst

_NOUNS = {"E": "sparse A", "SFA": "block-scaled A and B"}


def _extras(call: TilePrimitiveCall) -> tuple[str, ...]:
    return tuple(role for role in EXTRAS if role in call.operands)


def is_sparse(call: TilePrimitiveCall) -> bool:
    """Say whether a call gives positions of sparse A."""
    return "E" in call.operands


def is_scaled(call: TilePrimitiveCall) -> bool:
    """Say whether a call gives block scales."""
    return "SFA" in call.operands or "SFB" in call.operands


def is_batch(call: TilePrimitiveCall) -> bool:
    """Say whether a call asks for several products: D has three dimensions that are not 1."""
    shape = call.operands["D"].shape
    return not _extras(call) and sum(extent != 1 for extent in shape) == 3


@register_dispatch("gemm", "cuda", variant="mma.sp*", when=(full_lanes,), takes=is_sparse)
def lower_sparse(context: Context) -> Lowered:
    """Lower ``gemm`` with 2:4 sparse A to ``mma.sp``."""
    return _lower(context)


@register_dispatch("gemm", "cuda", variant="mma.block_scale*", when=(full_lanes,), takes=is_scaled)
def lower_scaled(context: Context) -> Lowered:
    """Lower ``gemm`` with block scales to the block-scaled ``mma``."""
    return _lower(context)


@register_dispatch("gemm", "cuda", variant="mma.m8n8k4", when=(full_lanes,), takes=is_batch)
def lower_quad_pairs(context: Context) -> Lowered:
    """Lower four products at once to ``mma.m8n8k4``."""
    return _lower(context)


def _lower(context: Context) -> Lowered:
    """Lower to the first instruction whose fragments cut every operand exactly."""
    call = context.call
    accumulate = accumulates(call)
    if context.call.scope != "warp" or context.threads != WARP:
        what = next((_NOUNS[role] for role in _extras(call) if role in _NOUNS), "four products")
        fail(f"{what}: one warp, scope warp and 32 threads; got {call.scope}, {context.threads}")
    for role in call.operands:
        check_held_in_registers(call, role)
    refusals = []
    for instruction in _candidates(context):
        found = _cut(instruction, context, accumulate)
        if isinstance(found, str):
            refusals.append(f"{instruction}: {found}")
            continue
        return Lowered(_emit(instruction, context, found, accumulate))
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
    known = [row for row in MMA_EXTENDED if row.extras == extras]
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


@dataclass(frozen=True)
class Cut:
    """One operand cut into tiles: the registers of each tile's slots, by tile row and column."""

    buffer: str
    rows: tuple[int, ...]
    cols: tuple[int, ...]
    order: tuple[int, ...]
    pack: int

    def elements(self, row: int, col: int) -> Registers:
        """Return the registers of one tile, in PTX operand order."""
        start = self.rows[row] + self.cols[col]
        return Registers(self.buffer, tuple(start + slot for slot in self.order))


def _cut(instruction: MmaInst, context: Context, accumulate: bool) -> dict[str, Cut] | str:
    """Cut every operand for an instruction, or say why it does not fit."""
    if not instruction.runs_on(context.arch):
        return lacking(instruction.ptx, instruction.min_arch, context.arch)
    cuts = {}
    for role in context.call.operands:
        if role == "C" and not accumulate:
            continue
        cut = _cut_operand(instruction.fragment(role), context, role)
        if isinstance(cut, str):
            return f"{role} {cut}"
        cuts[role] = cut
    counts = {role: (len(cut.rows), len(cut.cols)) for role, cut in cuts.items()}
    (m, k), n = counts["A"], counts["D"][1]
    want = {"A": (m, k), "B": (k, n), "C": (m, n), "D": (m, n), "E": (m, k)}
    want |= {"SFA": (m, k), "SFB": (k, n)}
    for role, have in counts.items():
        if have != want[role]:
            region = context.call.operands[role]
            return f"{role} {region} is {have} tiles; A and D ask for {want[role]}"
    return cuts


def _digits(fragment: Fragment) -> list[list[tuple[str, int, int]]]:
    """Return (name, extent, weight) of the digits of each logical dimension, outermost first."""
    extents = {name: extent for name, (_, extent) in LANE_DIGITS.items()}
    extents |= dict(fragment.formula.digits)
    return [
        sorted(((name, extents[name], side[name]) for name in side), key=lambda each: -each[2])
        for side in fragment.formula.sides
    ]


def _cut_operand(fragment: Fragment, context: Context, role: str) -> Cut | str:
    """Cut one operand into the digits of its fragment, and tiles."""
    region: BufferRegion = context.call.operands[role]
    layout = sliced(context, role)
    shape = tuple(int(extent) for extent in region.shape)
    while len(shape) > len(fragment.tile) and 1 in shape[: len(shape) - 2]:
        shape = (*shape[: shape.index(1)], *shape[shape.index(1) + 1 :])
    if len(shape) != len(fragment.tile):
        return f"must have {len(fragment.tile)} dimensions; {region} has shape {shape}"
    if context.call.config.get(f"transpose_{role}", False):
        layout, shape = transposed(layout, shape), (*shape[:-2], *shape[:-3:-1])
    for have, unit in zip(shape, fragment.tile, strict=True):
        if have % unit or (len(shape) == 3 and shape[0] != fragment.tile[0]):
            return f"must be made of tiles {fragment.tile}; {region} has shape {shape}"
    whole = _digits(fragment)
    tiles = [have // unit for have, unit in zip(shape, fragment.tile, strict=True)]
    extents: list[int] = []
    for count, digits in zip(tiles, whole, strict=True):
        extents += [count, *(extent for _, extent, _ in digits)]
    try:
        grouped, seps = layout.group(tuple(extents))
    except LayoutError as error:
        return f"does not cut into {tuple(extents)}: {error}"
    groups = [
        tuple(it for it in grouped.shard[a:b] if it.extent != 1)
        for a, b in itertools.pairwise(seps)
    ]
    heads, strides = [], {}
    at = 0
    for digits in whole:
        heads.append(groups[at])
        for (name, extent, _), group in zip(digits, groups[at + 1 :], strict=False):
            wrong = _wrong_digit(fragment, name, extent, group)
            if wrong:
                return wrong
            strides[name] = int(group[0].stride) if group else 0
        at += 1 + len(digits)
    for head in heads:
        if any(it.axis.thread for it in head):
            return f"has tiles on a thread axis: {_show(head)}"
        if any(int(it.stride) % _unit(fragment) for it in head):
            return (
                f"has tiles astride registers: strides {_show(head)}, a tile is {_unit(fragment)}"
            )
    if _copies(layout) != _copies(fragment.layout):
        return f"must be held with the copies of {fragment.layout}; got {layout}"
    check_injective(role, region.buffer.layout, region.buffer.shape)
    weights = fragment.formula.slot_weights()
    counts = dict(fragment.formula.digits)
    order = tuple(
        sum(slot // weights[name] % counts[name] * strides.get(name, 0) for name in weights)
        for slot in range(fragment.slots)
    )
    base = int(next((v for axis, v in layout.offset.items() if axis.memory), 0))
    if base % _unit(fragment):
        return f"starts at register {base}, inside a tile of {_unit(fragment)} elements"
    rows = tuple(base + start for start in offsets(heads[-2]))
    return Cut(region.buffer.name, rows, tuple(offsets(heads[-1])), order, fragment.pack)


def _unit(fragment: Fragment) -> int:
    """Return what registers of a tile must be multiples of: a word, or what it holds of one."""
    return min(fragment.pack, fragment.slots)


def _show(iters: Iters) -> str:
    return ", ".join(f"{it.extent}:{it.stride}@{it.axis}" for it in iters)


def _wrong_digit(fragment: Fragment, name: str, extent: int, group: Iters) -> str | None:
    """Return why a digit is not the fragment's: lane digits as they are, others packed alike."""
    if extent == 1:
        return None
    have = _show(group) or "none"
    if name not in dict(fragment.formula.digits):
        weight = LANE_DIGITS[name][0]
        same = len(group) == 1 and group[0].axis.subscope == "thread"
        if same and group[0].stride == weight:
            return None
        return f"needs the lane digit {name} = {extent}:{weight}, has {have}"
    weight = fragment.formula.slot_weights()[name]
    if len(group) != 1 or not group[0].axis.memory:
        return f"needs the register digit {name} of extent {extent}, has {have}"
    stride = int(group[0].stride)
    inside = weight < _unit(fragment)
    if (inside and stride != weight) or (not inside and stride % _unit(fragment)):
        must = f"{weight}" if inside else f"a multiple of {_unit(fragment)}"
        return f"needs the stride {must} for the register digit {name}, has {have}"
    return None


def _copies(layout: TileLayout) -> set[tuple[int, int]]:
    """Return the replicas of a layout as (extent, stride) of lanes."""
    return {(int(it.extent), int(it.stride)) for it in layout.canonicalize("cuda").copies}


def _emit(
    instruction: MmaInst, context: Context, cuts: dict[str, Cut], accumulate: bool
) -> tuple[Op, ...]:
    """Unroll: initialise each tile of D, then accumulate over K in place."""
    d, c = (context.call.operands[role] for role in "DC")
    if accumulate and c.buffer == d.buffer and c != d:
        fail(f"C must be D's own region or another buffer; got {c} for {d}")
    along = {"E": "MK", "SFA": "MK", "SFB": "KN"}
    ops: list[Op] = []
    for m, n in itertools.product(range(len(cuts["D"].rows)), range(len(cuts["D"].cols))):
        into = cuts["D"].elements(m, n)
        ops.append(Move(into, cuts["C"].elements(m, n)) if accumulate else Zero(into))
        for k in range(len(cuts["A"].cols)):
            at = {"M": m, "N": n, "K": k}
            extra = tuple(
                cuts[role].elements(at[along[role][0]], at[along[role][1]])
                for role in instruction.extras
            )
            a, b = cuts["A"].elements(m, k), cuts["B"].elements(k, n)
            ops.append(Mma(instruction, into, a, b, extra))
    check_operands_apart(ops)
    return tuple(ops)
