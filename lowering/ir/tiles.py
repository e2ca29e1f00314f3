"""Tile primitives as a kernel author writes them: buffers, regions, and unresolved calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, get_args

import numpy as np

from layoutalg import Axis, ComposeLayout, LayoutError, TCol, TileLayout, TLane, m
from layoutalg.algebra import iters as algebra
from layoutalg.algebra.iters import row_major
from layoutalg.conversions.recipe import Kind
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.layouts.tile_layout import Layout
from layoutalg.sizes.arguments import as_region as as_ranges
from layoutalg.sizes.size import Size, as_extent, as_size, equal, is_sequence, less, product, tidy
from lowering.ir.expressions import Arithmetic, Expression, Tile, shown
from lowering.ir.index import Index, as_index
from lowering.ir.names import plain
from lowering.ir.ops import Op, Store, StoreMatrix, Transfer, When, rewrite, walk
from lowering.isa import dtypes
from lowering.isa.dtypes import DType

SCOPES = ("thread", "warp", "warpgroup", "cta", "cluster")
_SCOPE_NAMES = {"wg": "warpgroup"} | {scope: scope for scope in SCOPES}
_DEFAULTS = {"alpha": 1, "beta": 0, "cta_group": 1} | dict.fromkeys(
    ("transpose_A", "transpose_B", "transA", "transB", "accum"), False
)
_ROLES = {"gemm": ("D", "A", "B", "C"), "gemm_async": ("C", "A", "B")} | dict.fromkeys(
    ("copy", "bulk_copy", "reduce"), ("dst", "src")
)
EXTRAS = ("E", "SFA", "SFB")  # what some gemm take beside
_PLACES = {
    "local": "registers",
    "shared": "shared memory",
    "global": "global memory",
    "tmem": "tensor memory",
}
MEMORY_SCOPES = tuple(_PLACES)


def _in_tensor_memory(layout: Layout) -> bool:
    """Say whether a layout lies on TLane and TCol alone, unswizzled."""
    if not isinstance(layout, TileLayout):
        return False
    axes = {it.axis for it in (*layout.shard, *layout.replica)} | set(layout.offset)
    return axes <= {TLane, TCol}


def reached(layout: Layout) -> dict[Axis, tuple[Size, Size]]:
    """Return the least and the largest coordinate of a layout on each axis, before its swizzle.

    >>> from layoutalg import S
    >>> reached(TileLayout(S[(8, 8) : (8, -1)] + 7))
    {m: (0, 63)}
    """
    tile = layout.tile_layout
    ends = dict.fromkeys(tile.offset, (0, 0)) | algebra.reach((*tile.shard, *tile.replica))
    start = tile.offset
    return {
        axis: (low + start.get(axis, 0), high + start.get(axis, 0))
        for axis, (low, high) in ends.items()
    }


def _check_addresses(name: str, layout: Layout) -> None:
    """Refuse a layout with addresses, registers or columns below 0.

    Raises:
        LayoutError: the least is named.
    """
    for axis, (low, _) in reached(layout).items():
        if axis.memory and less(low, 0):
            raise LayoutError(
                f"Buffer {name}: coordinates on axis {axis} must be 0 or more; {layout} begins at "
                f"{low}. Add {tidy(-low)} to its offset"
            )


def _as_bounds(name: str, bounds: Any, dims: int) -> tuple[str | None, ...]:
    """Return the name of a scalar, or None, for each dimension.

    Raises:
        LayoutError: too few or too many, or one is no name, symbol or None.
    """
    if not isinstance(bounds, (tuple, list)) or len(bounds) != dims:
        raise LayoutError(
            f"Buffer {name}: bounds need a name or None for each of {dims} dimensions; got "
            f"{bounds!r}"
        )
    found = tuple(str(b) if getattr(b, "is_symbol", False) else b for b in bounds)
    for each in found:
        if each is not None and not plain(each):
            raise LayoutError(
                f"Buffer {name}: a bound is what scalar() returned, its name, or None; got {each!r}"
            )
    return found


@dataclass(frozen=True)
class Buffer(Arithmetic):
    """A named tile of elements: in registers (``local``), shared, global or tensor memory.

    ``bounds`` has for each dimension the scalar (its name or symbol) that is its extent at run
    time, or None; copies stay below it. Bounds are multiples of ``multiple``, so that a vector of
    that many elements lies inside or outside as a whole; other vectors are split at a bound.

    ``A[0:16, 8:16]`` is a :class:`BufferRegion`. A register buffer needs a layout: the lane and the
    register of each element. Elsewhere the default is dense and row-major.

    Raises:
        LayoutError: an unknown dtype or scope, an invalid shape, a layout with another number of
            elements, no layout for registers or tensor memory, or axes other than TLane and TCol in
            tensor memory.

    >>> Buffer("A", (16, 8), "float16", scope="global")[0:16, 0:8].shape
    (16, 8)
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scope: str = "local"
    layout: Any = None
    bounds: tuple[str | None, ...] = field(default=(), repr=False)
    multiple: int = field(default=1, repr=False)

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str | DType,
        scope: str = "local",
        layout: LayoutLike | None = None,
        bounds: Sequence[Any] | None = None,
        multiple: int = 1,
    ) -> None:
        """Convert, then check."""
        if not plain(name):
            raise LayoutError(f"Buffer: the name must be an identifier; got {name!r}")
        if not isinstance(shape, (tuple, list)) or not shape:
            raise LayoutError(f"Buffer {name}: the shape must be a tuple of extents; got {shape!r}")
        extents = tuple(as_extent(e, f"Buffer {name}: extent") for e in shape)
        if scope not in MEMORY_SCOPES:
            raise LayoutError(
                f"Buffer {name}: the scope must be one of {', '.join(MEMORY_SCOPES)}; got {scope!r}"
            )
        if layout is None:
            if scope in ("local", "tmem"):
                where = _PLACES[scope]
                place = {"local": "register", "tmem": "column"}[scope]
                raise LayoutError(
                    f"Buffer {name}: a buffer in {where} (scope {scope!r}) needs a layout: which "
                    f"lane and {place} holds each element"
                )
            layout = TileLayout.from_iters(row_major(extents))
        layout = as_layout(layout, f"Buffer {name}", extents, dtypes.get(dtype).bits)
        if not isinstance(layout, Layout):
            raise LayoutError(
                f"Buffer {name}: the layout must be a TileLayout or a ComposeLayout; got {layout!r}"
            )
        if scope == "tmem" and not _in_tensor_memory(layout):
            raise LayoutError(
                f"Buffer {name}: a buffer in tensor memory (scope 'tmem') lies on the axes TLane "
                f"and TCol; got {layout}"
            )
        held, wanted = layout.size(), product(extents)
        if equal(held, wanted) is False:
            raise LayoutError(
                f"Buffer {name}: the shape {extents} has {wanted} elements, the layout {held}: "
                f"{layout}"
            )
        _check_addresses(name, layout)
        ends = (None,) * len(extents) if bounds is None else _as_bounds(name, bounds, len(extents))
        for key, value in (
            ("name", name),
            ("shape", extents),
            ("dtype", dtypes.get(dtype)),
            ("scope", scope),
            ("layout", layout),
            ("bounds", ends),
            ("multiple", as_extent(multiple, f"Buffer {name}: multiple")),
        ):
            object.__setattr__(self, key, value)

    @property
    def expression(self) -> Expression:
        """Its elements, to compute with."""
        return self.region().expression

    def region(self) -> BufferRegion:
        """Return the whole buffer as a region."""
        return BufferRegion(self, tuple((0, extent) for extent in self.shape))

    def __getitem__(self, key: Any) -> BufferRegion:
        """Return a region; an index alone keeps its dimension, with extent 1.

        Bounds are numbers or, in memory, indices: of loop variables, ``k.block``, ``k.warp``, with
        ``//`` and ``%`` by numbers. The extent of a range is a number: ``b : b + 16``.

        Raises:
            LayoutError: too many indices, a step, no number of elements, or a range outside the
                shape.

        >>> from lowering.ir.index import Index
        >>> i, stages = Index.of("i", 8), Buffer("stages", (2, 64), "float16", "shared")
        >>> print(stages[i % 2, i * 8 : i * 8 + 8])
        stages[i % 2:i % 2 + 1,i * 8:i * 8 + 8]
        """
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > len(self.shape):
            raise LayoutError(
                f"{self.name}[…]: has {len(self.shape)} dimensions; got {len(keys)} indices"
            )
        ranges = []
        for dim, extent in enumerate(self.shape):
            part = keys[dim] if dim < len(keys) else slice(None)
            if isinstance(part, slice):
                if part.step not in (None, 1):
                    raise LayoutError(
                        f"{self.name}[…]: a region has no steps; got step {part.step} in "
                        f"dimension {dim}"
                    )
                begin = 0 if part.start is None else _bound(part.start, f"{self.name}[…]: begin")
                end = extent if part.stop is None else _bound(part.stop, f"{self.name}[…]: end")
            else:
                begin = _bound(part, f"{self.name}[…]: index")
                end = begin + 1
            ranges.append((begin, end))
        return BufferRegion(self, tuple(ranges))

    def __repr__(self) -> str:
        return f"Buffer({self}, {self.scope}, {self.layout})"

    def __str__(self) -> str:
        """Return ``A[16,8] float16``."""
        return f"{self.name}[{','.join(map(str, self.shape))}] {self.dtype}"


def cells(buffer: Buffer) -> int:
    """Return the size of a buffer's storage in elements: registers per thread, or memory.

    It ends with the layout's largest register or address.

    >>> from layoutalg import fragments
    >>> A = fragments.get("mma.m16n8k16.f16", "A")
    >>> cells(Buffer("A", (16, 16), "float16", layout=A.layout))
    8
    """
    last = int(reached(buffer.layout).get(m, (0, 0))[1])
    if not isinstance(buffer.layout, ComposeLayout):
        return last + 1
    period = buffer.layout.swizzle.size
    return (last // period + 1) * period


def _bound(value: Any, what: str) -> Any:
    """Return a bound of a range as a number or an index; or as a size, of a symbolic shape.

    Raises:
        LayoutError: it is none of these.
    """
    if not isinstance(value, Index):
        size: Any = as_size(value, what)
        if type(size) is int or not all(hasattr(each, "extent") for each in size.free_symbols):
            return size
        value = as_index(size, what)
    return value if value.terms else value.constant


def _count(begin: Any, end: Any) -> Any:
    """Return the extent of a range: a number, or what depends on symbols or variables."""
    if isinstance(begin, Index) or isinstance(end, Index):
        count = as_index(end) - as_index(begin)
        return count if count.terms else count.constant
    return tidy(end - begin)


def _ranges(given: Any, shape: tuple[Any, ...]) -> tuple[tuple[Any, Any], ...]:
    """Return (begin, end) for each dimension of a shape.

    What is in range for some values of its variables passes: which of them there are is known at a
    call, under the branches around it.

    Raises:
        LayoutError: not a pair for each dimension, no number of elements, an empty range, or one
            outside the shape.
    """
    if not is_sequence(given):
        return as_ranges(given, shape)
    pairs, moving = [*given], dict[int, tuple[Any, Any]]()
    for dim, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            continue
        begin, end = (_bound(each, f"slice: dimension {dim}") for each in pair)
        pairs[dim] = begin, end
        if isinstance(begin, Index) or isinstance(end, Index):
            count = _count(begin, end)
            if type(count) is not int:
                raise LayoutError(
                    f"slice: the range {begin}:{end} of dimension {dim} has {count} elements; a "
                    "number fits, as in b : b + 16"
                )
            moving[dim], pairs[dim] = (begin, end), (0, count)
    found = list(as_ranges(tuple(pairs), shape))
    for dim, (begin, end) in moving.items():
        found[dim] = begin, end
        if begin.high < 0 or less(shape[dim], end.low):
            raise LayoutError(
                f"slice: the range {begin}:{end} of dimension {dim} must lie in 0:{shape[dim]}"
            )
    return tuple(found)


@dataclass(frozen=True, eq=False)
class BufferRegion(Arithmetic):
    """A box of a buffer: ``(begin, end)`` per dimension.

    Raises:
        LayoutError: no buffer, or a range that is empty or leaves the buffer.
    """

    buffer: Buffer
    ranges: tuple[tuple[Any, Any], ...]

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not isinstance(self.buffer, Buffer):
            raise LayoutError(f"BufferRegion: needs a Buffer; got {self.buffer!r}")
        try:
            ranges = _ranges(self.ranges, self.buffer.shape)
        except LayoutError as error:
            detail = str(error).removeprefix("slice: ")
            raise LayoutError(f"{self.buffer.name}[…]: {detail}") from None
        object.__setattr__(self, "ranges", ranges)

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.buffer, *((type(bound), bound) for pair in self.ranges for bound in pair)

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, BufferRegion) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The extents of the box."""
        return tuple(_count(begin, end) for begin, end in self.ranges)

    @property
    def expression(self) -> Expression:
        """Its elements, to compute with."""
        return Expression(Tile(self), self.shape)

    def __repr__(self) -> str:
        return f"BufferRegion({self})"

    def __str__(self) -> str:
        """Return ``A[0:16,8:16]``."""
        inside = ",".join(f"{begin}:{end}" for begin, end in self.ranges)
        return f"{self.buffer.name}[{inside}]"


def _is_default(name: str, value: Any) -> bool:
    """Say whether an argument is at its default; an array never is."""
    return np.ndim(value) == 0 and bool(value == _DEFAULTS.get(name))


@dataclass(frozen=True)
class TilePrimitiveCall(Op):
    """A tile primitive before dispatch: an operation, its operands, the scope of its threads.

    ``operands`` maps a role ("D", "A", "B", "C") to a region; ``config`` holds other arguments.
    """

    op: str
    operands: dict[str, BufferRegion]
    scope: str = "warp"
    dispatch: str | None = None
    config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the operands and the scope.

        Raises:
            LayoutError: an operand is no region, the scope is unknown, ``dispatch`` is no name, two
                buffers share a name, or ``cp.async`` does not go from global to shared memory.
        """
        for role in (*_ROLES.get(self.op, ()), *self.operands):
            region = self.operands.get(role)
            if not isinstance(region, BufferRegion):
                raise LayoutError(
                    f"{self.op}: operand {role} must be a region of a Buffer; got {region!r}"
                )
        if self.dispatch is not None and not isinstance(self.dispatch, str):
            raise LayoutError(
                f"{self.op}: dispatch is the name of a variant, or None; got {self.dispatch!r}"
            )
        if not isinstance(self.scope, str) or self.scope not in _SCOPE_NAMES:
            raise LayoutError(
                f"{self.op}: the scope must be one of {', '.join(SCOPES)}; got {self.scope!r}"
            )
        object.__setattr__(self, "scope", _SCOPE_NAMES[self.scope])
        if self.op == "copy" and self.config.get("asynchronous", False):
            self._check_way()
        named: dict[str, Buffer] = {}
        for region in self.operands.values():
            other = named.setdefault(region.buffer.name, region.buffer)
            if other != region.buffer:
                raise LayoutError(
                    f"{self.op}: two different buffers are named {other.name!r}; give each its "
                    "own name"
                )

    def _check_way(self) -> None:
        """Refuse an asynchronous copy that does not go from global to shared memory.

        Raises:
            LayoutError: both sides are named.
        """
        dst, src = (self.operands[role] for role in ("dst", "src"))
        if (src.buffer.scope, dst.buffer.scope) != ("global", "shared"):
            way = [_PLACES[region.buffer.scope] for region in (src, dst)]
            raise LayoutError(
                f"copy: cp.async goes from global to shared memory; {dst} = {src} goes from "
                f"{way[0]} to {way[1]}"
            )

    @property
    def unit(self) -> str:
        """Which threads take part."""
        return self.scope

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers, each once, in the order of the roles."""
        return tuple(dict.fromkeys(region.buffer for region in self.operands.values()))

    def __repr__(self) -> str:
        return f"TilePrimitiveCall({self})"

    def __str__(self) -> str:
        """Return the call as written, without arguments at their defaults."""
        if self.op == "assign":
            dst, *sources = self.operands.values()
            return f"assign({dst} = {shown(self.config['value'], sources)}, scope={self.scope})"
        inside = [
            str(region) if region.buffer.name == role else f"{role}={region}"
            for role, region in self.operands.items()
        ]
        inside += [f"{k}={v}" for k, v in self.config.items() if not _is_default(k, v)]
        return f"{self.op}({', '.join(inside)}, scope={self.scope})"


@dataclass(frozen=True)
class Dispatched(Op):
    """A call and the operations that a variant made of it; or a branch that no thread takes.

    ``buffers``: what the operations need besides the operands.
    """

    what: TilePrimitiveCall | When
    variant: str
    ops: tuple[Op, ...]
    buffers: tuple[Buffer, ...] = ()

    @property
    def unit(self) -> str:
        """Which threads take part."""
        return self.what.unit

    @property
    def writes(self) -> set[str]:
        """The buffers in global and shared memory that its operations write."""
        return {name for op in walk(self.ops) for name in op.writes}

    def __str__(self) -> str:
        """Return ``zero(dst=r[0:16,0:8], scope=warp)  # zero: 1 operations``."""
        return f"{self.what}  # {self.variant}: {len(self.ops)} operations"


def expanded(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return operations with each :class:`Dispatched` replaced by the operations in it.

    ``aliases`` of a store becomes the number of its copy.

    >>> from lowering.ir.ops import Registers
    >>> zero = TilePrimitiveCall("zero", {"dst": Buffer("s", (4,), "f32", "shared").region()})
    >>> store = Store("s", Index(), Registers("r", (0,)), aliases=1)
    >>> [op.aliases for op in expanded((Dispatched(zero, "zero", (store, store)),) * 2)]
    [1, 1, 2, 2]
    """
    copies = count(1)

    def change(op: Op) -> tuple[Op, ...]:
        return _of_copy(op.ops, next(copies)) if isinstance(op, Dispatched) else (op,)

    return rewrite(ops, change)


def _of_copy(ops: tuple[Op, ...], number: int) -> tuple[Op, ...]:
    def change(op: Op) -> tuple[Op, ...]:
        if isinstance(op, (Store, StoreMatrix, Transfer)) and op.aliases:
            op = replace(op, aliases=number)
        return (op,)

    return rewrite(ops, change)


def as_region(value: Any, role: str, op: str) -> BufferRegion:
    """Return a buffer or a region as a region.

    Raises:
        LayoutError: neither.
    """
    if isinstance(value, Buffer):
        return value.region()
    if isinstance(value, BufferRegion):
        return value
    raise LayoutError(f"{op}: operand {role} must be a Buffer or a region of one; got {value!r}")


def gemm(
    D: Buffer | BufferRegion,
    A: Buffer | BufferRegion,
    B: Buffer | BufferRegion,
    C: Buffer | BufferRegion | None = None,
    transpose_A: bool = False,
    transpose_B: bool = False,
    alpha: Any = 1.0,
    beta: Any = 0.0,
    scope: str = "warp",
    dispatch: str | None = None,
    modifier: str | None = None,
    E: Buffer | BufferRegion | None = None,
    SFA: Buffer | BufferRegion | None = None,
    SFB: Buffer | BufferRegion | None = None,
) -> TilePrimitiveCall:
    """Call ``D = alpha·A·B + beta·C``, synchronous, on register tiles.

    With E, A is 2:4 sparse: (M, K/2), and its element (i, j) is in column ``j // 2 * 4 + E[i, j]``
    of the dense matrix. With SFA and SFB, blocks of A and B along K are multiplied by their scales
    first. Operands of three dimensions (batch, rows, columns) are a batch of products.

    Args:
        D: the (M, N) destination.
        A: (M, K), or (K, M) where ``transpose_A``.
        B: (K, N), or (N, K) where ``transpose_B``.
        C: (M, N); by default D.
        transpose_A: whether A is given as (K, M).
        transpose_B: whether B is given as (N, K).
        alpha: a number or a size symbol.
        beta: likewise.
        scope: which threads take part: thread, warp, warpgroup (wg), cta or cluster.
        dispatch: keep only the variant of this name, or the instruction of this key.
        modifier: "satfinite": integers saturate; "xor": count bits that differ, in place of bits
            that are both set ("and"); of block-scaled products the kind, such as "mxf4nvf4".
        E: (M, K/2) of uint2: the position of each nonzero in its chunk of four.
        SFA: (M, K/block), the scales of A.
        SFB: (K/block, N), the scales of B.

    Raises:
        LayoutError: an operand is no buffer, a flag is no bool, or the scope is unknown.

    Source: the ``gemm`` tile primitive of Apache TVM's TIRx.
    """
    _check_flags("gemm", transpose_A=transpose_A, transpose_B=transpose_B)
    given = {"D": D, "A": A, "B": B, "C": D if C is None else C, "E": E, "SFA": SFA, "SFB": SFB}
    config = {
        "transpose_A": transpose_A,
        "transpose_B": transpose_B,
        "alpha": alpha,
        "beta": beta,
    }
    if modifier is not None:
        config["modifier"] = modifier
    return TilePrimitiveCall("gemm", _operands("gemm", given), scope, dispatch, config)


def _operands(op: str, given: Mapping[str, Any]) -> dict[str, BufferRegion]:
    """Return operands as regions, without those of EXTRAS that are not given."""
    return {
        role: as_region(value, role, op)
        for role, value in given.items()
        if value is not None or role not in EXTRAS
    }


def _check_flags(op: str, **flags: Any) -> None:
    """Refuse a flag that is no bool.

    Raises:
        LayoutError: the first such one is named.
    """
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise LayoutError(f"{op}: {name} must be True or False; got {flag!r}")


def gemm_async(
    C: Buffer | BufferRegion,
    A: Buffer | BufferRegion,
    B: Buffer | BufferRegion,
    SFA: Buffer | BufferRegion | None = None,
    SFB: Buffer | BufferRegion | None = None,
    transA: bool = False,
    transB: bool = False,
    accum: Any = False,
    scope: str = "warpgroup",
    dispatch: str | None = None,
    cta_group: int = 1,
) -> TilePrimitiveCall:
    """Call ``C = A·B``, or ``C += A·B``, by the asynchronous tensor core.

    B is in shared memory; A there, in registers or in tensor memory. The call starts the product: C
    may be touched, and A and B overwritten, after a wait for it.

    In a 2-CTA cluster (``cta_group`` 2) each CTA names its own half: half the rows of A and of C,
    and half the columns of B.

    Args:
        C: the (M, N) accumulator: in registers for ``wgmma``, in tensor memory for ``tcgen05``.
        A: (M, K), or (K, M) where ``transA``.
        B: (K, N), or (N, K) where ``transB``.
        SFA: (M, K/block), the scales of A, for ``tcgen05`` in tensor memory.
        SFB: (K/block, N), the scales of B.
        transA: whether A is given as (K, M), and SFA as (K/block, M).
        transB: whether B is given as (N, K), and SFB as (N, K/block).
        accum: whether to add to C, which is overwritten otherwise; or an expression of variables,
            such as the step along K: add where it is not 0.
        scope: which threads take part; ``tcgen05`` is issued by a thread, or one of a warp.
        dispatch: keep only the variant of this name.
        cta_group: 1, or 2 for a 2-CTA cluster.

    Raises:
        LayoutError: an operand is no buffer, a flag is no bool, or the scope is unknown.

    >>> from layoutalg import fragments
    >>> C = Buffer("C", (64, 8), "float32", layout=fragments.get("wgmma.m64n8", "D.f32").layout)
    >>> A, B = Buffer("A", (64, 16), "f16", "shared"), Buffer("B", (8, 16), "f16", "shared")
    >>> print(gemm_async(C, A, B, transB=True))
    gemm_async(C[0:64,0:8], A[0:64,0:16], B[0:8,0:16], transB=True, scope=warpgroup)

    Source: the ``gemm_async`` tile primitive of Apache TVM's TIRx.
    """
    _check_flags("gemm_async", transA=transA, transB=transB)
    if not isinstance(accum, (bool, Index)) and not hasattr(accum, "free_symbols"):
        raise LayoutError(
            f"gemm_async: accum must be True, False or an expression of variables; got {accum!r}"
        )
    if type(cta_group) is not int or cta_group not in (1, 2):
        raise LayoutError(f"gemm_async: cta_group must be 1 or 2; got {cta_group!r}")
    adds = accum if isinstance(accum, bool) else as_index(accum, "gemm_async: accum")
    config = {"transA": transA, "transB": transB, "accum": adds, "cta_group": cta_group}
    given = {"C": C, "A": A, "B": B, "SFA": SFA, "SFB": SFB}
    return TilePrimitiveCall("gemm_async", _operands("gemm_async", given), scope, dispatch, config)


def copy(
    dst: Buffer | BufferRegion,
    src: Buffer | BufferRegion,
    scope: str = "warp",
    dispatch: str | None = None,
    asynchronous: bool = False,
    aliases: bool = False,
    via: Kind | None = None,
) -> TilePrimitiveCall:
    """Call ``dst = src``, element by element, between global, shared and register tiles.

    Between register tiles the data goes as :func:`layoutalg.convert` finds: within warps where they
    have it, else through shared memory, which the copy allocates.

    Args:
        dst: destination region.
        src: source region, of the same extents (dimensions of extent 1 do not count) and dtype.
        scope: which threads take part: thread, warp, warpgroup (wg) or cta.
        dispatch: keep only the variant of this name.
        asynchronous: by ``cp.async``, from global to shared memory: complete after a wait.
        aliases: elements of dst may share an address, where any of them stays; else refused.
        via: between register tiles: take this kind of conversion even if a cheaper one works.

    Raises:
        LayoutError: an operand is no buffer, extents or dtypes differ, a flag is no bool, an
            asynchronous copy does not go from global to shared memory, or ``via`` is no kind, or
            not of a copy between register tiles.

    Source: the ``copy`` tile primitive of Apache TVM's TIRx.
    """
    operands = _operands("copy", {"dst": dst, "src": src})
    copied_shape(operands["dst"], operands["src"])
    flags = {"asynchronous": asynchronous, "aliases": aliases}
    _check_flags("copy", **flags)
    config: dict[str, Any] = {name: True for name, flag in flags.items() if flag}
    if via is not None:
        if via not in get_args(Kind):
            raise LayoutError(f"copy: via must be one of {', '.join(get_args(Kind))}; got {via!r}")
        if any(region.buffer.scope != "local" for region in operands.values()):
            raise LayoutError(
                "copy: via is of copies between register tiles; got "
                f"{operands['dst']} = {operands['src']}"
            )
        config["via"] = via
    return TilePrimitiveCall("copy", operands, scope, dispatch, config)


def copied_shape(one: BufferRegion, other: BufferRegion) -> tuple[int, ...]:
    """Return the extents other than 1 of two regions, which must be the same.

    Raises:
        LayoutError: they differ, are not static, or the dtypes differ.
    """
    shapes = []
    for region in (one, other):
        if not all(type(extent) is int for extent in region.shape):
            raise LayoutError(f"copy: {region} must have static extents; got {region.shape}")
        shapes.append(tuple(extent for extent in region.shape if extent != 1))
    if shapes[0] != shapes[1]:
        raise LayoutError(
            f"copy: both sides must have the same extents; {one} has {one.shape}, {other} has "
            f"{other.shape}"
        )
    if one.buffer.dtype != other.buffer.dtype:
        raise LayoutError(
            f"copy: both sides must have one dtype; {one.buffer} and {other.buffer} differ"
        )
    return shapes[0]
