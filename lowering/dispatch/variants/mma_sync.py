"""``gemm`` in registers through warp-wide ``mma.sync``.

Every operand is sliced to its region and grouped by its two dimensions. Each of M, N and K has an
anchor (D for M and N, A for K): all operands are cut by the anchor's digits and permuted as it is.
An instruction fits when each dimension then cuts into ``[warps | lane digits | tiles | register
digits]`` with the digits of the instruction's fragments.
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError, TileLayout
from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis
from layoutalg.algebra.iters import Iters
from layoutalg.sizes.size import Size, is_int, product
from lowering.dispatch.holders import check_threads_exist, named
from lowering.dispatch.predicates import full_lanes
from lowering.dispatch.register_tiles import (
    Cut,
    Tiles,
    base_of,
    check_in_registers,
    cut,
    dimensions,
    show,
    sliced,
    spread,
    swizzled,
    tiles_of,
    word,
)
from lowering.dispatch.registry import (
    Answer,
    Context,
    Lowered,
    check_inputs_kept,
    fail,
    predicate,
    register_dispatch,
)
from lowering.ir.ops import Mma, Move, Op, Zero
from lowering.ir.register_map import element_map
from lowering.ir.tiles import EXTRAS, BufferRegion, TilePrimitiveCall, cells
from lowering.isa.dtypes import DType
from lowering.isa.mma import MMA_EXTENDED, MMA_FAMILY, MmaInst

ROLES = ("A", "B", "C", "D")  # the order in which operands are looked at
DIMS = {
    "D": "MN", "C": "MN", "A": "MK", "B": "KN", "E": "MK", "SFA": "MK", "SFB": "KN",
}  # fmt: skip
ANCHORS = {"M": "D", "N": "D", "K": "A"}
FOLLOWERS = (("A", "M"), ("C", "M"), ("B", "N"), ("C", "N"), ("B", "K"))
WIDE = 32  # bits of an accumulator that plain gemm takes

Dims = dict[tuple[str, str], Iters]  # by operand and dimension


def no_replica(context: Context) -> Answer:
    """Hold where no operand is replicated or swizzled."""
    for role in ("D", "A", "B", "C"):
        region = context.call.operands[role]
        layout = region.buffer.layout
        if not isinstance(layout, TileLayout):
            return False, swizzled(role, layout)
        if layout.copies:
            return False, (
                f"{role} is replicated: {layout}; drop R[...]: warps that a layout does not name "
                "hold copies anyway"
            )
    return True


WARP_WIDE = [full_lanes, predicate("no_replica", no_replica)]


def is_plain(call: TilePrimitiveCall) -> bool:
    """Say whether a call has no operand beside D, A, B and C."""
    return not any(role in call.operands for role in EXTRAS)


@register_dispatch(
    "gemm", "cuda", variant="mma.m16n8k*", priority=10, when=WARP_WIDE, takes=is_plain
)
def lower_gemm(context: Context) -> Lowered:
    """Lower ``gemm`` to a dense ``mma.sync`` whose accumulators are 32 bits wide or f64.

    Most are m16n8k*, whence the name; of two that fit, the larger K is taken.
    """
    rows = _candidates(context)
    wide = [row for row in rows if row.d.bits >= WIDE]
    if not wide:
        fail(
            f"no instruction fits: {rows[0].name} would round every sum to {rows[0].d}; name the "
            "variant to have that, dispatch='mma.sync*'"
        )
    return _lower(context, wide)


def keys() -> Iterable[str]:
    """Return the key of every row, each of which a call may name."""
    return (row.key for row in MMA_FAMILY)


@register_dispatch(
    "gemm",
    "cuda",
    variant="mma.sync*",
    when=WARP_WIDE,
    named_only=True,
    takes=is_plain,
    instructions=keys,
)
def lower_family(context: Context) -> Lowered:
    """Lower ``gemm`` to any dense ``mma.sync`` of the fragment table.

    A call names the variant to have accumulators narrower than f32, which round each sum.
    """
    return _lower(context, _candidates(context))


def accumulates(call: TilePrimitiveCall) -> bool:
    """Say whether D starts from C; decline other coefficients than 0 and 1."""
    if not _is_number(call.config["alpha"], 1):
        fail(f"alpha must be 1; got {call.config['alpha']}: scale A, B or D instead")
    beta = call.config["beta"]
    accumulate = _is_number(beta, 1)
    if not accumulate and not _is_number(beta, 0):
        fail(f"beta must be 0 (D = A·B) or 1 (D = A·B + C); got {beta}")
    return accumulate


def of_key(rows: Sequence[MmaInst], context: Context) -> list[MmaInst]:
    """Return the row that a call names; where it names none, all."""
    return [row for row in rows if row.key == context.call.dispatch] or list(rows)


def _lower(context: Context, table: Sequence[MmaInst]) -> Lowered:
    """Lower ``gemm`` to the first instruction of the table that cuts every operand exactly."""
    call = context.call
    for role in ("D", "A", "B", "C"):
        check_in_registers(call, role)
    accumulate = accumulates(call)
    shapes = {role: _matrix_shape(call.operands[role], role) for role in ("A", "B", "D", "C")}
    for role, flag in (("A", "transpose_A"), ("B", "transpose_B")):
        if call.config[flag]:
            shapes[role] = shapes[role][::-1]
    sizes = _problem(shapes)
    pieces: dict[str, TileLayout] = {}
    dims: Dims = {}
    for role in ROLES:
        pieces[role] = sliced(context, role)
        dims |= _dims(context, role, pieces[role])
    dims = _aligned(dims, {role: call.operands[role].buffer.layout for role in ROLES})
    refusals = []
    for instruction in table:
        cuts = _match(instruction, context, sizes, dims)
        if isinstance(cuts, str):
            refusals.append(f"{instruction}: {cuts}")
            continue
        split = cuts["A", "K"].warps
        if split:
            fail(
                f"K is split over warps ({show(split)}): each warp would keep a partial sum, and "
                "nothing reduces them"
            )
        tiles = {}
        for role in ROLES if accumulate else ("A", "B", "D"):
            fragment, base = instruction.fragment(role), int(base_of(pieces[role]))
            own = {f"{role}.{dim}": cuts[role, dim] for dim in DIMS[role]}
            tiles[role] = tiles_of(context, role, fragment, base, own)
        ops = products(instruction, call, tiles)
        placements = {role: _placement(context, role, cuts) for role in ROLES}
        _check_held(context, placements, tiles)
        return Lowered(ops, placements)
    fail("no instruction fits; " + "; ".join(refusals))


def _types(context: Context) -> tuple[DType, ...]:
    """Return the operands' dtypes in the order of ``MmaInst.dtypes``."""
    return tuple(context.call.operands[role].buffer.dtype for role in ROLES)


def _named(types: Sequence[DType]) -> str:
    return ", ".join(f"{role} {dtype}" for role, dtype in zip(ROLES, types, strict=True))


def _candidates(context: Context) -> list[MmaInst]:
    """Return the rows of the whole family for the operands' dtypes and the modifier, in order."""
    types = _types(context)
    family = of_key(MMA_FAMILY, context)
    rows = [row for row in family if row.dtypes == types]
    if not rows:
        sums = dict.fromkeys(str(row.c) for row in family if row.dtypes[:2] == types[:2])
        pairs = dict.fromkeys(str(row.b) for row in family if row.a == types[0])
        hint = f"with these A and B, C and D may be {' or '.join(sums)}"
        if not sums:
            hint = f"with A {types[0]}, B may be {' or '.join(pairs)}"
        if types[0].token == types[1].token == "f32":
            hint = "32-bit floats multiply as tfloat32"
        elif any(row.a == types[0] for row in MMA_EXTENDED if "SFA" in row.extras) and not pairs:
            hint = f"{types[0]} multiplies with block scales: give SFA= and SFB="
        elif not pairs:
            hint = f"A may be {', '.join(dict.fromkeys(str(row.a) for row in family))}"
        fail(f"no instruction fits: none takes {_named(types)}; {hint}")
    wanted = context.call.config.get("modifier")
    chosen = [row for row in rows if row.modifier == (wanted or rows[0].modifier)]
    if not chosen:
        known = [row.modifier for row in rows if row.modifier]
        have = ", ".join(dict.fromkeys(known)) or "none"
        fail(f"modifier {wanted!r} is unknown for {rows[0].a} and {rows[0].b}; there is {have}")
    return chosen


def _is_number(value: Any, number: int) -> bool:
    """Say whether a coefficient is known to be this number: by value, or as a settled symbol."""
    if isinstance(value, bool):
        return False
    if hasattr(value, "free_symbols"):
        return bool(value - number == 0)
    return isinstance(value, (numbers.Real, np.number)) and bool(value == number)


def _matrix_shape(region: BufferRegion, role: str) -> tuple[int, int]:
    """Return the two extents of a region that are not 1."""
    shape = region.shape
    if not is_int(*shape):
        fail(f"{role} must have static extents; {region} has {shape}")
    matrix = tuple(int(extent) for extent in shape if extent != 1)
    if len(matrix) != 2:
        fail(f"{role} must have exactly two dimensions that are not 1; {region} has shape {shape}")
    return matrix


def _problem(shapes: dict[str, tuple[int, int]]) -> dict[str, int]:
    """Return M, N and K; refuse shapes that disagree."""
    (m, k), (k_b, n) = shapes["A"], shapes["B"]
    if k != k_b:
        sparse = "; for 2:4 sparse A give the positions, E=" if k_b == 2 * k else ""
        fail(
            f"K of A and B must agree; A is {m}x{k} (M,K), B is {k_b}x{n} (K,N) after "
            f"transposes{sparse}"
        )
    for role in ("D", "C"):
        if shapes[role] != (m, n):
            have = "x".join(map(str, shapes[role]))
            fail(f"{role} must be {m}x{n} (M,N), the shape of A·B; got {have}")
    return {"M": m, "N": n, "K": k}


def _dims(context: Context, role: str, piece: TileLayout) -> Dims:
    """Return the two dimensions of an operand's region, in logical order."""
    region = context.call.operands[role]
    try:
        dims = dimensions(piece, tuple(extent for extent in region.shape if extent != 1))
    except LayoutError as error:
        fail(f"{role}: the layout does not hold the tile {region}: {error}")
    names = DIMS[role]
    if context.call.config.get(f"transpose_{role}", False):
        names = names[::-1]
    return {(role, name): iters for name, iters in zip(names, dims, strict=True)}


def _aligned(dims: Dims, layouts: Mapping[str, TileLayout]) -> Dims:
    """Cut every dimension of every operand by its anchor's digits, in the anchor's order."""
    found = {}
    for dim, role in ANCHORS.items():
        anchor = dims[role, dim]
        found[role, dim] = tuple(anchor[index] for index in algebra.canonical_order(anchor))
    for role, dim in FOLLOWERS:
        owner = ANCHORS[dim]
        try:
            found[role, dim] = algebra.align(dims[owner, dim], dims[role, dim], layouts[role])
        except LayoutError as error:
            extents = tuple(int(it.extent) for it in dims[owner, dim])
            fail(
                f"{role}.{dim} cannot be cut like its anchor {owner}.{dim}, extents {extents}: "
                f"{error}"
            )
    return found


@cache
def frame(instruction: MmaInst) -> Dims:
    """Return the digits of an instruction's fragments, aligned as the operands are."""
    dims: Dims = {}
    layouts: dict[str, TileLayout] = {}
    for role in ROLES:
        fragment = instruction.fragment(role)
        layouts[role] = fragment.layout
        own = dimensions(fragment.layout, fragment.shape)
        dims |= {(role, dim): iters for dim, iters in zip(DIMS[role], own, strict=True)}
    return _aligned(dims, layouts)


def _match(
    instruction: MmaInst, context: Context, sizes: dict[str, int], dims: Dims
) -> dict[tuple[str, str], Cut] | str:
    """Cut every operand for an instruction, or say why it does not fit."""
    refusal = context.lacks(instruction.ptx, instruction.min_arch)
    if refusal is not None:
        return refusal
    for dim, unit in (("M", instruction.m), ("N", instruction.n), ("K", instruction.k)):
        if sizes[dim] % unit:
            return f"{dim} = {sizes[dim]} is no multiple of {unit}"
    cuts: dict[tuple[str, str], Cut] = {}
    for (role, dim), own in frame(instruction).items():
        anchor, frame_anchor = dims[ANCHORS[dim], dim], frame(instruction)[ANCHORS[dim], dim]
        (threads, registers), (lanes, slots) = spread(anchor), spread(frame_anchor)
        if threads % lanes or registers % slots:
            return (
                f"{role}.{dim} is spread over {threads} threads x {registers} registers; the "
                f"instruction takes {lanes} x {slots}"
            )
        found = cut(
            dims[role, dim],
            own,
            threads // lanes,
            registers // slots,
            sum(it.axis.thread for it in frame_anchor),
            max(2, word(instruction.fragment(role))),
        )
        if isinstance(found, str):
            return f"{role}.{dim} {found}"
        cuts[role, dim] = found
    for (role, dim), each in cuts.items():
        owner = ANCHORS[dim]
        if each.warps != cuts[owner, dim].warps:
            return (
                f"{dim} must be split over warps alike: {owner} has "
                f"{show(cuts[owner, dim].warps)}, {role} has {show(each.warps)}"
            )
    return cuts


def _placement(context: Context, role: str, cuts: dict[tuple[str, str], Cut]) -> TileLayout:
    """Return the buffer's layout with a replica per warp digit that splits another operand only."""
    layout = context.call.operands[role].buffer.layout.canonicalize("cuda")
    axes = {it.axis for it in layout.shard}
    foreign = [it for dim in "MN" if dim not in DIMS[role] for it in cuts["D", dim].warps]
    copies = tuple(it for it in foreign if it.axis in axes)
    offset: dict[Axis | str, Size] = dict(layout.offset.items())
    return TileLayout.from_iters(layout.shard, copies, offset)


def products(
    instruction: MmaInst, call: TilePrimitiveCall, tiles: Mapping[str, Tiles]
) -> tuple[Op, ...]:
    """Unroll: initialise each (m, n) tile of D, from C where there is one, and accumulate over k.

    Raises:
        DispatchFail: an operand lies in registers of D that are written before it is read.
    """
    ops: list[Op] = []
    written: set[int] = set()
    d_buffer, c_buffer = (call.operands[role].buffer for role in "DC")
    for m, n in itertools.product(range(len(tiles["D"].rows)), range(len(tiles["D"].cols))):
        d = tiles["D"].at(m, n)
        if "C" in tiles:
            c = tiles["C"].at(m, n)
            lost = written & set(c.numbers) if c_buffer == d_buffer else set()
            if c_buffer == d_buffer and c != d:
                lost |= set(c.numbers) & set(d.numbers)
            if lost:
                fail(
                    f"C overlaps D in {d_buffer}: register {min(lost)} of C is overwritten before "
                    "it is read; C must be D's own region or disjoint from it"
                )
            ops.append(Move(d, c))
            written.update(d.numbers)
        else:
            ops.append(Zero(d))
        for k in range(len(tiles["A"].cols)):
            at = {"M": m, "N": n, "K": k}
            a, b, *extra = (
                tiles[role].at(*(at[dim] for dim in DIMS[role]))
                for role in ("A", "B", *instruction.extras)
            )
            ops.append(Mma(instruction, d, a, b, tuple(extra)))
    check_inputs_kept(ops)
    return tuple(ops)


def _held(
    context: Context, role: str, placement: TileLayout, tiles: Tiles
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the element in each register that is touched, and whether it is in the region."""
    region = context.call.operands[role]
    shape = region.buffer.shape
    box = np.zeros(shape, dtype=bool)
    box[tuple(slice(begin, end) for begin, end in region.ranges)] = True
    held = element_map(placement, shape, context.threads, cells(region.buffer))[:, tiles.registers]
    return held, (held >= 0) & box.reshape(-1)[held]


def _check_held(
    context: Context, placements: Mapping[str, TileLayout], tiles: Mapping[str, Tiles]
) -> None:
    """Refuse threads that would compute on what they do not hold.

    Every warp runs all steps. So each thread that writes to D's region must hold elements of the
    operands' regions in all registers that it reads, and no thread may hold anything else of D in
    the registers that it writes.
    """
    d = context.call.operands["D"]
    held, inside = _held(context, "D", placements["D"], tiles["D"])
    if ((held >= 0) & ~inside).any():
        fail(
            f"D: the region {d} lies in some of the threads that hold {d.buffer.name}; all threads "
            "would run and overwrite their own part of it"
        )
    active, wanted = context.flow.active, int(product(d.shape))
    if active is not None and np.unique(held[inside]).size == wanted:
        inside = inside & active[:, None]
        if np.unique(held[inside]).size != wanted:
            fail(
                f"D: all threads of {d.buffer.layout} must be active; active in this branch: "
                f"{named(active)}, with a part of {d} alone"
            )
    found = np.unique(held[inside]).size
    if found != wanted:
        fail(
            f"D: the CTA's {context.threads} threads hold {found} of the {wanted} elements of {d}; "
            f"{d.buffer.layout} reaches more threads"
        )
    writing = inside.any(axis=1)
    for role in [each for each in tiles if each != "D"]:
        _, own = _held(context, role, placements[role], tiles[role])
        missing = np.flatnonzero(writing & ~own.all(axis=1))
        if missing.size:
            region = context.call.operands[role]
            fail(
                f"{role}: thread {missing[0]} computes a part of {d} but does not hold its part of "
                f"{region}; {region.buffer.layout} must reach all threads that {d.buffer.layout} "
                "reaches"
            )
    for region in context.call.operands.values():
        try:
            check_threads_exist(region.buffer, context.threads)
        except LayoutError as error:
            fail(str(error))
