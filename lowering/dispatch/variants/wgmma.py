"""``gemm_async`` by ``wgmma``: B, and A or its registers, read asynchronously by warpgroups.

Which registers make a tile of the accumulator is found by comparing what each thread holds with the
instruction's fragment; the descriptors of operands in shared memory are solved from their layouts
and proved.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutalg import LayoutError
from layoutalg.fragments import Fragment
from lowering.dispatch.holders import Holders, Mask, named, only, uniform_holders
from lowering.dispatch.predicates import available, listed
from lowering.dispatch.register_tiles import columns_of
from lowering.dispatch.registry import (
    Answer,
    Context,
    DispatchFail,
    Lowered,
    check_inputs_kept,
    fail,
    predicate,
    register_dispatch,
)
from lowering.dispatch.smem_operands import SharedOperand, accumulation, extents, shared_operand
from lowering.ir.index import Index
from lowering.ir.ops import Op, Registers, SharedMatrix, Wgmma, WgmmaFence
from lowering.ir.register_map import WARPGROUP, by_warpgroup
from lowering.isa import wgmma
from lowering.isa.wgmma import WgmmaInst


def whole_warpgroups(context: Context) -> Answer:
    """Hold where the call is one of a warpgroup, or of a CTA of whole warpgroups."""
    call = context.call
    if call.scope not in ("warpgroup", "cta"):
        return False, f"takes a warpgroup, or a CTA of whole warpgroups; the scope is {call.scope}"
    if context.threads % WARPGROUP:
        return False, f"takes whole warpgroups of {WARPGROUP} threads; got {context.threads}"
    if dict(context.active) != context.whole():
        return False, f"all lanes of a warpgroup must take part; active is {dict(context.active)}"
    return True


def no_scales(context: Context) -> Answer:
    """Hold where there are no block scales."""
    given = [role for role in ("SFA", "SFB") if role in context.call.operands]
    return (False, f"takes no block scales; got {' and '.join(given)}") if given else True


def in_their_places(context: Context) -> Answer:
    """Hold where C is in registers, B in shared memory, and A in either."""
    have = {role: context.spaces[role] for role in "CAB"}
    if have["C"] == "local" and have["B"] == "shared" and have["A"] in ("shared", "local"):
        return True
    return False, f"C must be in registers, B in shared memory, and A in either; {listed(have)}"


@dataclass(frozen=True)
class WarpgroupTile:
    """One operand tile in registers: its elements, and its first row and column by warpgroup."""

    elements: Registers
    row: Index
    col: Index


def warpgroup_tiles(part: Holders, fragment: Fragment, taking: Mask) -> list[WarpgroupTile] | None:
    """Return the tiles of a fragment that make up a region; None where it is none of them.

    All warpgroups take their tiles in the order of their registers, and the first row and column
    of a tile must be linear in the number of the warpgroup.

    Args:
        part: who holds the region.
        fragment: of the instruction.
        taking: the threads that do the product, whole warpgroups.
    """
    groups = np.flatnonzero(taking[::WARPGROUP])
    held = part.elements.reshape(-1, WARPGROUP, len(part.registers))[groups]
    (rows, cols), (height, width) = extents(part.region), fragment.shape
    if rows % height or cols % width:
        return None
    inside = fragment.coords[..., 0] * cols + fragment.coords[..., 1]
    starts = list(itertools.product(range(0, rows, height), range(0, cols, width)))
    found: list[dict[tuple[int, ...], tuple[int, int]]] = []
    for own in held:
        columns = ((columns_of(inside + (i * cols + j), own), (i, j)) for i, j in starts)
        found.append({at: start for at, start in columns if at is not None})
    covered = {start for tiles in found for start in tiles.values()}
    if covered != set(starts) or any(tiles.keys() != found[0].keys() for tiles in found):
        return None
    made = []
    for at in found[0]:
        table = np.array([tiles[at] for tiles in found])
        row, col = (by_warpgroup(table[:, dim], groups, part.threads) for dim in range(2))
        if row is None or col is None:
            return None
        registers = tuple(part.registers[column] for column in at)
        made.append(WarpgroupTile(Registers(part.region.buffer.name, registers), row, col))
    return made


# -- the call -------------------------------------------------------------------------------------


def one_cta(context: Context) -> Answer:
    """Hold where cta_group is 1."""
    group = context.call.config["cta_group"]
    return (False, f"takes one CTA; cta_group is {group}") if group != 1 else True


def instructions(context: Context, cols: int) -> Iterator[WgmmaInst]:
    """Yield the instructions of the operand types whose N divides the columns, widest first.

    Raises:
        DispatchFail: the types do not go together, or no N fits.
    """
    c, a, b = (context.call.operands[role].buffer.dtype.token for role in "CAB")
    known = wgmma.accumulators(a, b)
    if c not in known:
        have = " or ".join(known) or "none: A and B must be of one kind"
        fail(f"accumulators of {a} x {b} are {have}; C is {c}")
    fits = False
    for n in reversed(wgmma.COLUMNS):
        if cols % n == 0 and wgmma.has_columns(n, c):
            fits = True
            yield wgmma.get(n, a, b, c)
    if not fits:
        legal = ", ".join(map(str, WgmmaInst.legal_n(c)))
        fail(f"N must be a multiple of one of {legal}; C has {cols} columns")


def checked_shapes(context: Context, inst: WgmmaInst) -> int:
    """Return K, after checking the extents of all operands.

    Raises:
        DispatchFail: they do not go together, or are no multiples of the instruction's.
    """
    operands, config = context.call.operands, context.call.config
    (m, n), a, b = (extents(operands[role]) for role in "CAB")
    a, b = (a[::-1] if config["transA"] else a), (b[::-1] if config["transB"] else b)
    if (a[0], b[1]) != (m, n) or a[1] != b[0]:
        fail(f"C (M, N) is {(m, n)}, A (M, K) {a}, B (K, N) {b}: they do not go together")
    if m % inst.m:
        fail(f"M must be a multiple of {inst.m}, the rows of a warpgroup; got {m}")
    if a[1] % inst.k:
        fail(f"K must be a multiple of {inst.k}, 32 bytes of {inst.a.token}; got {a[1]}")
    return a[1]


@register_dispatch(
    "gemm_async",
    "cuda",
    variant="wgmma",
    when=[
        predicate("has_wgmma", available("wgmma.mma_async", wgmma.ARCH)),
        predicate("whole_warpgroups", whole_warpgroups),
        predicate("in_their_places", in_their_places),
        predicate("no_scales", no_scales),
        predicate("one_cta", one_cta),
    ],
)
def lower_wgmma(context: Context) -> Lowered:
    """Lower ``gemm_async`` to a fence and one ``wgmma`` per tile of C and step of K."""
    operands = context.call.operands
    active = context.flow.active
    reasons: list[str] = []
    for inst in instructions(context, extents(operands["C"])[1]):
        depth = checked_shapes(context, inst)
        try:
            part = uniform_holders(operands["C"], context.threads, "warpgroup", active)
            taking = part.within(active)
            tiles = warpgroup_tiles(part, inst.fragment("D"), taking)
            if tiles is not None:
                ops = [WgmmaFence(), *_steps(context, inst, tiles, depth, taking)]
                return Lowered(only(part.taking, ops, active))
        except DispatchFail as declined:  # a smaller N may fit B
            reasons.append(str(declined))
        except LayoutError as error:
            fail(str(error))
    if reasons:
        fail(reasons[0])
    fail(
        f"C: {operands['C'].buffer.layout} is not made of accumulators of a warpgroup; tiles of "
        f"{inst.fragment('D').layout} would fit"
    )


def _steps(
    context: Context, inst: WgmmaInst, tiles: Sequence[WarpgroupTile], depth: int, taking: Mask
) -> list[Op]:
    """Return the products of all tiles, K step by K step.

    Raises:
        DispatchFail: an operand does not fit.
        LayoutError: some threads that hold C do not hold A.
    """
    operands, config = context.call.operands, context.call.config
    right = shared_operand(operands["B"], "B", int(config["transB"]), inst.n, "wgmma")
    left: Any = None
    if operands["A"].buffer.scope == "shared":
        left = shared_operand(operands["A"], "A", int(not config["transA"]), inst.m, "wgmma")
    elif config["transA"]:
        fail("A in registers is (M, K): transA is a matter of its layout there")
    else:
        part = uniform_holders(operands["A"], context.threads, "warpgroup")
        if (taking & ~part.taking).any():
            fail(f"A: {named(taking & ~part.taking)} hold a part of C and none of {part.region}")
        left = warpgroup_tiles(part, inst.fragment("A"), taking)
        if left is None:
            fail(f"A: {operands['A'].buffer.layout} is not made of {inst.fragment('A').layout}")
    ops: list[Op] = []
    for k in range(0, depth, inst.k):
        for tile in tiles:
            if isinstance(left, SharedOperand):
                a: Registers | SharedMatrix = left.at(tile.row, k)
            else:
                a = _held(left, tile.row, k)
            b = right.at(tile.col, k)
            ops.append(Wgmma(inst, tile.elements, a, b, accumulation(config["accum"], k)))
    check_inputs_kept(ops)
    return ops


def _held(tiles: Sequence[WarpgroupTile], row: Index, k: int) -> Registers:
    """Return the registers of A of a row and a K step.

    Raises:
        DispatchFail: a warpgroup holds other rows of A than of C.
    """
    for tile in tiles:
        if (tile.row, tile.col) == (row, Index((), k)):
            return tile.elements
    fail("A: each warpgroup must hold the rows of A that it holds of C")
