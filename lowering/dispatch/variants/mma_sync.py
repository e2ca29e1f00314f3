"""``gemm`` in registers through warp-wide ``mma.sync``.

Every operand is sliced to its region and seen as two logical dimensions. Each dimension has an
anchor (D for M and N, A for K) whose digits cut all operands alike. An instruction fits when each
dimension groups into ``[warps | lane digits | tiles | register digits]`` with the digits of the
instruction's own fragments; nothing about m16n8 is written here.
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError, TileLayout
from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import WARP, Axis
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.fragments.targets import lacking
from layoutalg.sizes.size import Size, is_int, product
from lowering.dispatch.holders import check_threads_exist, named
from lowering.dispatch.registry import (
    Context,
    Lowered,
    check_operands_apart,
    fail,
    predicate,
    register_dispatch,
)
from lowering.ir.ops import Mma, Move, Op, Registers, Zero
from lowering.ir.register_map import element_map
from lowering.ir.tiles import EXTRAS, BufferRegion, TilePrimitiveCall, cells
from lowering.isa.dtypes import DType
from lowering.isa.mma import MMA_EXTENDED, MMA_FAMILY, MmaInst

ROLES = ("A", "B", "C", "D")  # the order in which operands are looked at
DIMS = {"D": "MN", "C": "MN", "A": "MK", "B": "KN"}
ANCHORS = {"M": "D", "N": "D", "K": "A"}
WIDE = 32  # bits of an accumulator that plain gemm takes
LOCAL_BYTES = 512 << 10  # of a thread; CUDA C++ Programming Guide, technical specifications
FOLLOWERS = (("A", "M"), ("C", "M"), ("B", "N"), ("C", "N"), ("B", "K"))


def full_active_lanes(context: Context) -> bool | tuple[bool, str]:
    """Hold where every axis of the call's scope is complete: an mma needs all lanes of a warp."""
    if context.threads % WARP:
        return False, f"an mma needs whole warps of {WARP} threads; the CTA has {context.threads}"
    whole = context.whole()
    for axis, (begin, end) in context.active.items():
        if axis == "cta_id":
            return False, "scope cluster is not supported: an mma lives inside a CTA (axis cta_id)"
        full = whole.get(axis, (0, WARP) if axis == "laneid" else None)
        if full is None:
            return False, f"axis {axis} is active but is no axis of scope {context.call.scope}"
        if (begin, end) != full:
            return False, (
                f"active lanes are narrowed: {axis} runs over {begin}..{end - 1}, all of "
                f"{full[0]}..{full[1] - 1} must take part in an mma"
            )
    return True


def _swizzled(role: str, layout: object) -> str:
    return (
        f"{role} is swizzled ({layout}); registers have no addresses to permute: use a TileLayout"
    )


def no_replica(context: Context) -> bool | tuple[bool, str]:
    """Hold where no operand is replicated or swizzled."""
    for role in ("D", "A", "B", "C"):
        region = context.call.operands[role]
        layout = region.buffer.layout
        if not isinstance(layout, TileLayout):
            return False, _swizzled(role, layout)
        if layout.copies:
            return False, (
                f"{role} is replicated: {layout}; drop R[...]: warps that a layout does not name "
                "hold copies anyway"
            )
    return True


@dataclass(frozen=True)
class Dim:
    """One logical dimension of one operand, in the anchor's digits and canonical order."""

    iters: Iters

    def extents(self) -> tuple[int, ...]:
        """Return the extents."""
        return tuple(int(it.extent) for it in self.iters)

    def threads(self) -> int:
        """Return how many threads the dimension is spread over."""
        return int(product(it.extent for it in self.iters if it.axis.thread))

    def memory(self) -> int:
        """Return how many registers of a thread the dimension takes."""
        return int(product(it.extent for it in self.iters if it.axis.memory))


@dataclass(frozen=True)
class View:
    """An operand sliced to its region: two dimensions of iters, and a register offset."""

    role: str
    dims: dict[str, Iters]
    base: int
    layout: TileLayout


full_lanes = predicate("full_active_lanes", full_active_lanes)
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


@register_dispatch(
    "gemm", "cuda", variant="mma.sync*", when=WARP_WIDE, named_only=True, takes=is_plain
)
def lower_family(context: Context) -> Lowered:
    """Lower ``gemm`` to any dense ``mma.sync`` of the fragment table.

    A call names the variant to have accumulators narrower than f32, which round each sum.
    """
    return _lower(context, _candidates(context))


def check_held_in_registers(call: TilePrimitiveCall, role: str) -> None:
    """Decline an operand that is not in registers."""
    buffer = call.operands[role].buffer
    if buffer.scope != "local":
        stage = "stage it with ldmatrix" if role in "AB" else "copy it into registers first"
        fail(f"{role} must be in registers (scope local); {buffer} is in {buffer.scope}: {stage}")


def accumulates(call: TilePrimitiveCall) -> bool:
    """Say whether D starts from C; decline other coefficients than 0 and 1."""
    if not _is_number(call.config["alpha"], 1):
        fail(f"alpha must be 1; got {call.config['alpha']}: scale A, B or D instead")
    beta = call.config["beta"]
    accumulate = _is_number(beta, 1)
    if not accumulate and not _is_number(beta, 0):
        fail(f"beta must be 0 (D = A·B) or 1 (D = A·B + C); got {beta}")
    return accumulate


def _lower(context: Context, table: Sequence[MmaInst]) -> Lowered:
    """Lower ``gemm`` to the first instruction of the table that cuts every operand exactly."""
    call = context.call
    for role in ("D", "A", "B", "C"):
        check_held_in_registers(call, role)
    accumulate = accumulates(call)
    shapes = {role: _matrix_shape(call.operands[role], role) for role in ("A", "B", "D", "C")}
    for role, flag in (("A", "transpose_A"), ("B", "transpose_B")):
        if call.config[flag]:
            shapes[role] = shapes[role][::-1]
    sizes = _problem(shapes)
    views = {role: _view(context, role) for role in ROLES}
    dims = _aligned(views)
    refusals = []
    for instruction in table:
        found = _match(instruction, context, sizes, dims, accumulate)
        if isinstance(found, str):
            refusals.append(f"{instruction}: {found}")
            continue
        lowered = Lowered(
            _emit(instruction, context, views, found, accumulate),
            {role: _placement(views[role], found) for role in ROLES},
        )
        _check_held(context, lowered, accumulate)
        return lowered
    fail("no instruction fits; " + "; ".join(refusals))


def _types(context: Context) -> tuple[DType, ...]:
    """Return the operands' dtypes in the order of ``MmaInst.dtypes``."""
    return tuple(context.call.operands[role].buffer.dtype for role in ROLES)


def _named(types: Sequence[DType]) -> str:
    return ", ".join(f"{role} {dtype}" for role, dtype in zip(ROLES, types, strict=True))


def _candidates(context: Context) -> list[MmaInst]:
    """Return the rows of the whole family for the operands' dtypes and the modifier, in order."""
    types = _types(context)
    rows = [row for row in MMA_FAMILY if row.dtypes == types]
    if not rows:
        sums = dict.fromkeys(str(row.c) for row in MMA_FAMILY if row.dtypes[:2] == types[:2])
        pairs = dict.fromkeys(str(row.b) for row in MMA_FAMILY if row.a == types[0])
        hint = f"with these A and B, C and D may be {' or '.join(sums)}"
        if not sums:
            hint = f"with A {types[0]}, B may be {' or '.join(pairs)}"
        if types[0].token == types[1].token == "f32":
            hint = "32-bit floats multiply as tfloat32"
        elif any(row.a == types[0] for row in MMA_EXTENDED if "SFA" in row.extras) and not pairs:
            hint = f"{types[0]} multiplies with block scales: give SFA= and SFB="
        elif not pairs:
            hint = f"A may be {', '.join(dict.fromkeys(str(row.a) for row in MMA_FAMILY))}"
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


def sliced(context: Context, role: str) -> TileLayout:
    """Return the canonical layout of an operand's region; decline what registers cannot hold."""
    region = context.call.operands[role]
    buffer = region.buffer
    if not isinstance(buffer.layout, TileLayout):
        fail(_swizzled(role, buffer.layout))
    sizes = [size for it in buffer.layout.shard for size in (it.extent, it.stride)]
    if not is_int(*sizes, *buffer.layout.offset.values()):
        fail(
            f"{role}: register and lane numbers must be static; {buffer.layout} has symbols: "
            "substitute them with .subs"
        )
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
    base = piece.offset.get(Axis.get("m"), 0)
    if not is_int(base):
        fail(f"{role}: the register offset must be static; got {base}")
    return piece


def _view(context: Context, role: str) -> View:
    """Slice an operand to its region and group it by its two dimensions, in logical order."""
    region = context.call.operands[role]
    piece = sliced(context, role)
    try:
        grouped, seps = piece.group(tuple(extent for extent in region.shape if extent != 1))
    except LayoutError as error:
        fail(f"{role}: the layout does not hold the tile {region}: {error}")
    names = DIMS[role]
    if context.call.config.get(f"transpose_{role}", False):
        names = names[::-1]
    dims = {name: grouped.shard[seps[d] : seps[d + 1]] for d, name in enumerate(names)}
    base = int(piece.offset.get(Axis.get("m"), 0))
    return View(role, dims, base, region.buffer.layout)


def _aligned(views: dict[str, View]) -> dict[tuple[str, str], Dim]:
    """Cut every dimension of every operand by its anchor's digits, in the anchor's order."""
    dims = {}
    for dim, role in ANCHORS.items():
        anchor = views[role].dims[dim]
        order = algebra.canonical_order(anchor)
        dims[role, dim] = Dim(tuple(anchor[index] for index in order))
    for role, dim in FOLLOWERS:
        anchor, follower = views[ANCHORS[dim]].dims[dim], views[role].dims[dim]
        try:
            dims[role, dim] = Dim(algebra.align(anchor, follower, views[role].layout))
        except LayoutError as error:
            fail(
                f"{role}.{dim} cannot be cut like its anchor {ANCHORS[dim]}.{dim}, extents "
                f"{Dim(anchor).extents()}: {error}"
            )
    return dims


@cache
def frame(instruction: MmaInst) -> dict[tuple[str, str], Dim]:
    """Return the digits of an instruction's fragments, aligned as the operands are."""
    views = {}
    for role in ROLES:
        fragment = instruction.fragment(role)
        grouped, seps = fragment.layout.group(fragment.shape)
        dims = {name: grouped.shard[seps[d] : seps[d + 1]] for d, name in enumerate(DIMS[role])}
        views[role] = View(role, dims, 0, fragment.layout)
    return _aligned(views)


@dataclass(frozen=True)
class Cut:
    """One dimension of one operand, cut for an instruction: warps, tiles and register digits."""

    warps: Iters
    tiles: Iters
    digits: Iters


def _match(
    instruction: MmaInst,
    context: Context,
    sizes: dict[str, int],
    dims: dict[tuple[str, str], Dim],
    accumulate: bool,
) -> dict[tuple[str, str], Cut] | str:
    """Cut every operand for an instruction, or say why it does not fit."""
    types = _types(context)
    if types != instruction.dtypes:
        want = _named(instruction.dtypes)
        return f"needs {want}; got {_named(types)}"
    if not instruction.runs_on(context.arch):
        return lacking(instruction.ptx, instruction.min_arch, context.arch)
    for dim, unit in (("M", instruction.m), ("N", instruction.n), ("K", instruction.k)):
        if sizes[dim] % unit:
            return f"{dim} = {sizes[dim]} is no multiple of {unit}"
    cuts: dict[tuple[str, str], Cut] = {}
    for (role, dim), own in frame(instruction).items():
        anchor = dims[ANCHORS[dim], dim]
        anchor_frame = frame(instruction)[ANCHORS[dim], dim]
        cut = _cut(dims[role, dim], own, anchor, anchor_frame)
        if isinstance(cut, str):
            return f"{role}.{dim} {cut}"
        cuts[role, dim] = cut
    for dim in "MNK":
        owner = ANCHORS[dim]
        for role in ROLES:
            if (role, dim) in cuts and cuts[role, dim].warps != cuts[owner, dim].warps:
                return (
                    f"{dim} must be split over warps alike: {owner} has "
                    f"{_show(cuts[owner, dim].warps)}, {role} has {_show(cuts[role, dim].warps)}"
                )
    return _checked(instruction, context, cuts, accumulate)


def _show(iters: Iters) -> str:
    return ", ".join(f"{it.extent}:{it.stride}@{it.axis}" for it in iters) or "none"


def _cut(mine: Dim, own: Dim, anchor: Dim, anchor_frame: Dim) -> Cut | str:
    """Group a dimension as ``[warps | lane digits | tiles | register digits]``."""
    lanes = [it for it in anchor_frame.iters if it.axis.thread]
    held = [it for it in anchor_frame.iters if it.axis.memory]
    threads, lane_total = anchor.threads(), anchor_frame.threads()
    memory, held_total = anchor.memory(), anchor_frame.memory()
    if threads % lane_total or memory % held_total:
        return (
            f"is spread over {threads} threads x {memory} registers; the instruction takes "
            f"{lane_total} x {held_total}"
        )
    shape = (
        threads // lane_total,
        *(int(it.extent) for it in lanes),
        memory // held_total,
        *(int(it.extent) for it in held),
    )
    try:
        pieces, seps = algebra.group(mine.iters, shape, _show(mine.iters))
    except LayoutError:
        return f"does not cut into {shape}: its digits are {_show(mine.iters)}"
    groups = [
        tuple(it for it in pieces[a:b] if it.extent != 1) for a, b in itertools.pairwise(seps)
    ]
    warps, tiles = groups[0], groups[1 + len(lanes)]
    digits = groups[1 : 1 + len(lanes)] + groups[2 + len(lanes) :]
    for digit, want in zip(digits, own.iters, strict=True):
        if len(digit) != 1 or not _same_digit(digit[0], want):
            kind = "lane" if want.axis.thread else "register"
            stride = f":{want.stride}" if want.axis.thread or want.stride == 1 else ""
            return f"needs the {kind} digit {want.extent}{stride}, has {_show(digit)}"
    registers = tuple(
        digit[0] for digit, want in zip(digits, own.iters, strict=True) if want.axis.memory
    )
    return Cut(warps, tiles, registers)


def _same_digit(digit: Iter, want: Iter) -> bool:
    """Lane digits must have the stride of the fragment; so must register digits of stride 1.

    Other register digits may have any stride: operand order is computed from them.
    """
    if want.axis.thread:
        return digit.stride == want.stride and digit.axis.subscope == "thread"
    return digit.axis.memory and (want.stride != 1 or digit.stride == 1)


def _checked(
    instruction: MmaInst,
    context: Context,
    cuts: dict[tuple[str, str], Cut],
    accumulate: bool,
) -> dict[tuple[str, str], Cut]:
    """Refuse what would be emitted but compute something else."""
    split = cuts["A", "K"].warps
    if split:
        fail(
            f"K is split over warps ({_show(split)}): each warp would keep a partial sum, and "
            "nothing reduces them"
        )
    for (role, dim), cut in cuts.items():
        if role == "C" and not accumulate:
            continue
        thread = tuple(it for it in cut.tiles if it.axis.thread)
        if thread:
            fail(
                f"{role}.{dim}: a tile digit lies on a thread axis ({_show(thread)}); register "
                "numbers must be the same in every thread"
            )
    for role in ROLES:
        if role == "C" and not accumulate:
            continue
        buffer = context.call.operands[role].buffer
        check_injective(role, buffer.layout, buffer.shape)
        _check_words(instruction, context, role, cuts)
    return cuts


def check_injective(role: str, layout: TileLayout, shape: Sequence[int]) -> None:
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


def _check_words(
    instruction: MmaInst, context: Context, role: str, cuts: dict[tuple[str, str], Cut]
) -> None:
    """Refuse packed elements that lie astride two 32-bit words."""
    pack = instruction.fragment(role).pack
    if pack == 1:
        return
    layout = context.call.operands[role].buffer.layout
    for dim in DIMS[role]:
        cut = cuts[role, dim]
        for it in (*cut.tiles, *cut.digits):
            if it.stride != 1 and int(it.stride) % pack:
                fail(
                    f"{role}: register stride {it.stride} of {layout} puts packed pairs astride "
                    f"32-bit words; strides must be multiples of {pack}"
                )


def _placement(view: View, cuts: dict[tuple[str, str], Cut]) -> TileLayout:
    """Return the buffer's layout with a replica per warp digit that splits another operand only."""
    layout = view.layout.canonicalize("cuda")
    axes = {it.axis for it in layout.shard}
    foreign = [it for dim in "MN" if dim not in DIMS[view.role] for it in cuts["D", dim].warps]
    copies = tuple(it for it in foreign if it.axis in axes)
    offset: dict[Axis | str, Size] = dict(layout.offset.items())
    return TileLayout.from_iters(layout.shard, copies, offset)


def offsets(iters: Iters) -> list[int]:
    """Return the register offset of each index of a run of iters, row-major."""
    steps = ([step * int(it.stride) for step in range(int(it.extent))] for it in iters)
    return [sum(parts) for parts in itertools.product(*steps)]


def _operand_order(instruction: MmaInst, role: str, cuts: dict[tuple[str, str], Cut]) -> list[int]:
    """Return the operand's register of each slot of the fragment, in PTX operand order."""
    wanted: list[tuple[int, int, int]] = []
    for dim in DIMS[role]:
        own = [it for it in frame(instruction)[role, dim].iters if it.axis.memory]
        for want, have in zip(own, cuts[role, dim].digits, strict=True):
            wanted.append((int(want.stride), int(want.extent), int(have.stride)))
    order = []
    for slot in range(instruction.fragment(role).slots):
        order.append(sum(slot // unit % extent * stride for unit, extent, stride in wanted))
    return order


def _emit(
    instruction: MmaInst,
    context: Context,
    views: dict[str, View],
    cuts: dict[tuple[str, str], Cut],
    accumulate: bool,
) -> tuple[Op, ...]:
    """Unroll: initialise each (m, n) tile of D, then accumulate over k in place."""
    orders = {role: _operand_order(instruction, role, cuts) for role in ROLES}

    def elements(role: str, first: int, second: int) -> Registers:
        """Return the registers of one tile, in PTX operand order."""
        start = views[role].base + first + second
        pack = instruction.fragment(role).pack
        if pack > 1 and start % pack:
            fail(
                f"{role}: the region starts at register {start}, inside a 32-bit word of {pack} "
                "elements"
            )
        name = context.call.operands[role].buffer.name
        return Registers(name, tuple(start + each for each in orders[role]))

    tiles = {key: offsets(cut.tiles) for key, cut in cuts.items() if key[0] != "C" or accumulate}
    counts = {dim: len(tiles[ANCHORS[dim], dim]) for dim in "MNK"}
    ops: list[Op] = []
    written: set[int] = set()
    d_buffer, c_buffer = (context.call.operands[role].buffer for role in "DC")
    for m, n in itertools.product(range(counts["M"]), range(counts["N"])):
        d = elements("D", tiles["D", "M"][m], tiles["D", "N"][n])
        if accumulate:
            c = elements("C", tiles["C", "M"][m], tiles["C", "N"][n])
            lost = written & set(c.numbers) if c_buffer == d_buffer else set()
            if c_buffer == d_buffer and c != d:
                lost |= set(c.numbers) & set(d.numbers)
            if lost:
                fail(
                    f"C overlaps D in {d_buffer}: register {min(lost)} of C is overwritten before "
                    "it is read; C must be D's own region or apart from it"
                )
            ops.append(Move(d, c))
            written.update(d.numbers)
        else:
            ops.append(Zero(d))
        for k in range(counts["K"]):
            a = elements("A", tiles["A", "M"][m], tiles["A", "K"][k])
            b = elements("B", tiles["B", "K"][k], tiles["B", "N"][n])
            ops.append(Mma(instruction, d, a, b))
    check_operands_apart(ops)
    return tuple(ops)


def _held(
    context: Context, lowered: Lowered, role: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the element in each register that is touched, and whether it is in the region."""
    region = context.call.operands[role]
    shape = region.buffer.shape
    box = np.zeros(shape, dtype=bool)
    box[tuple(slice(begin, end) for begin, end in region.ranges)] = True
    held = element_map(lowered.placements[role], shape, context.threads, cells(region.buffer))
    used: set[int] = set()
    for op in lowered.ops:
        if isinstance(op, Mma) and role != "C":
            used.update({"D": op.d, "A": op.a, "B": op.b}[role].numbers)
        elif isinstance(op, Move) and role == "C":
            used.update(op.source.numbers)
    held = held[:, sorted(used)]
    return held, (held >= 0) & box.reshape(-1)[held]


def _check_held(context: Context, lowered: Lowered, accumulate: bool) -> None:
    """Refuse threads that would compute on what they do not hold.

    Every warp runs all steps. So each thread that writes to D's region must hold elements of the
    operands' regions in all registers that it reads, and no thread may hold anything else of D in
    the registers that it writes.
    """
    d = context.call.operands["D"]
    held, inside = _held(context, lowered, "D")
    if ((held >= 0) & ~inside).any():
        fail(
            f"D: the region {d} lies in some of the threads that hold {d.buffer.name}; all threads "
            "would run and overwrite their own part of it"
        )
    active, wanted = context.arriving.active, int(product(d.shape))
    if active is not None and np.unique(held[inside]).size == wanted:
        inside = inside & active[:, None]
        if np.unique(held[inside]).size != wanted:
            fail(
                f"D: the branches around the call let {named(active)} come to it, which hold a "
                f"part of {d} alone; let all threads come that {d.buffer.layout} reaches"
            )
    found = np.unique(held[inside]).size
    if found != wanted:
        fail(
            f"D: the CTA's {context.threads} threads hold {found} of the {wanted} elements of {d}; "
            f"{d.buffer.layout} reaches more threads"
        )
    writing = inside.any(axis=1)
    for role in ("A", "B", "C") if accumulate else ("A", "B"):
        missing = np.flatnonzero(writing & ~_held(context, lowered, role)[1].all(axis=1))
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
