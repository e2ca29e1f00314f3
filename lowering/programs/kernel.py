"""``Kernel``: a builder of whole kernels out of tile primitives.

A kernel is a tree of calls on tiles (copies, gemms), barriers, loops and branches. The passes in
:mod:`lowering.programs.stages` lower it; ``script(stage)`` prints the tree after each stage: *tile*
(as written), *unrolled* (no loop with ``unroll`` is left), *dispatched* (each call beside the
variant that took it), *operations* (registers and addresses).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from layoutalg import LayoutError, TileLayout, m
from layoutalg.algebra.axis import WARP
from layoutalg.fragments.targets import has
from layoutalg.front_door import LayoutLike
from layoutalg.sizes.budget import REGISTERS, check_budget
from lowering.dispatch.addresses import reach, region_tile
from lowering.dispatch.holders import check_threads_exist
from lowering.dispatch.reductions import Shares, shares
from lowering.ir import names
from lowering.ir.convergence import uniform_over
from lowering.ir.expressions import (
    Expression,
    Node,
    Operand,
    Reduction,
    Tile,
    Variable,
    as_expression,
    cast,
    leaves,
    mapped,
    typed,
)
from lowering.ir.index import FREE, Guard, Index, as_guard, as_index
from lowering.ir.kernel_ir import Barrier, KernelIR, Scalar
from lowering.ir.ops import (
    Arrive,
    Commit,
    Let,
    Loop,
    MbarrierWait,
    Op,
    Phase,
    Sync,
    TmaLoad,
    TmaStore,
    TmaStoreWait,
    TryWait,
    Wait,
    WarpSpecialize,
    WgmmaCommit,
    WgmmaWait,
    When,
    indices,
    walk,
)
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tiles import (
    Buffer,
    BufferRegion,
    TilePrimitiveCall,
    as_region,
    copied_shape,
    copy,
    gemm,
    gemm_async,
    reached,
)
from lowering.ir.tmem_ops import TensorCommit
from lowering.isa.dtypes import DType
from lowering.isa.functions import PRED
from lowering.isa.mma import compute_capability
from lowering.isa.ptx import ARCHS
from lowering.programs import stages
from lowering.programs.groups import Group, pending_after
from lowering.programs.program import KernelProgram

CLUSTERS = (1, 2)  # CTAs that may run together


class Kernel:
    """Builds a kernel statement by statement.

    >>> from layoutalg import fragments
    >>> A, B, D = (fragments.get("mma.m16n8k16.f16", role) for role in "ABD")
    >>> k = Kernel("demo")
    >>> a, b = k.param("a", (16, 16), "float16"), k.param("b", (16, 8), "float16")
    >>> d = k.param("d", (16, 8), "float32")
    >>> ra = k.alloc("ra", (16, 16), "float16", layout=A.layout)
    >>> rb = k.alloc("rb", (16, 8), "float16", layout=B.layout)
    >>> rd = k.alloc("rd", (16, 8), "float32", layout=D.layout)
    >>> k.copy(ra, a), k.copy(rb, b), k.gemm(rd, ra, rb), k.copy(d, rd)
    (None, None, None, None)
    >>> import numpy as np
    >>> x, y = np.eye(16), np.arange(128.0).reshape(16, 8)
    >>> bool((k.lower().simulate(a=x, b=y)["d"] == y).all())
    True
    """

    def __init__(
        self,
        name: str,
        threads: int = 32,
        arch: str = "sm_90",
        cluster: int = 1,
        pdl: bool = False,
    ) -> None:
        """Start a kernel of one CTA.

        Args:
            name: of the kernel.
            threads: of the CTA, whole warps.
            arch: the target, such as ``sm_90``; variants whose instruction it lacks decline.
            cluster: CTAs per cluster, along bx: 2 reach each other's shared memory.
            pdl: programmatic dependent launch: the kernel may start, and initialize its mbarriers,
                before the previous kernel of its stream ends; then it waits for that one.

        Raises:
            LayoutError: the name is no identifier, the threads are no whole warps, or the target
                has no clusters or no programmatic dependent launch.
        """
        names.check_kernel(name)
        if type(threads) is not int or not 32 <= threads <= 1024 or threads % 32:
            raise LayoutError(f"Kernel: threads must be whole warps, 32..1024; got {threads!r}")
        if type(cluster) is not int or cluster not in CLUSTERS:
            raise LayoutError(f"Kernel: a cluster has 1 or 2 CTAs; got {cluster!r}")
        compute_capability(arch)  # refuses what is no target
        if cluster > 1 and not has(ARCHS["barrier.cluster"], arch):
            raise LayoutError(f"Kernel: cluster=2 needs {ARCHS['barrier.cluster']}; got {arch}")
        if pdl and not has(ARCHS["griddepcontrol"], arch):
            raise LayoutError(
                f"Kernel: programmatic dependent launch needs {ARCHS['griddepcontrol']}; got {arch}"
            )
        self.name, self.threads, self.arch = name, threads, arch
        self.cluster, self.pdl = cluster, pdl
        self.buffers: dict[str, Buffer] = {}
        self.scalars: dict[str, Scalar] = {}
        self.barriers: dict[str, Barrier] = {}
        self._blocks: list[list[Op]] = [[]]
        self._apart = [""]  # of each: why groups closed before it cannot be waited for in it
        self._groups = 0  # closed so far
        self._variables: set[str] = set()
        self._visible: list[str] = []  # variables that have a value here
        self._unrolled: list[str] = []  # those of unrolled loops
        self._named: dict[str, Index] = {}  # what let() named
        self._guards: list[Guard] = []  # of the branches around
        self._loops = 0  # around
        self._reuses: list[Op] = []  # barriers before scratch memory is written again

    def __repr__(self) -> str:
        """Return the name, the threads and the target, and how much is in it.

        >>> Kernel("k", threads=64)
        Kernel(k: 64 threads, sm_90, 0 buffers, 0 statements)
        """
        count = sum(1 for block in self._blocks for _ in walk(tuple(block)))
        parts = f"{self.threads} threads, {self.arch}, {len(self.buffers)} buffers"
        return f"Kernel({self.name}: {parts}, {count} statements)"

    @property
    def scope(self) -> str:
        """The scope of a call that names none: all threads of the CTA."""
        return {32: "warp", 128: "warpgroup"}.get(self.threads, "cta")

    @property
    def thread(self) -> Index:
        """The thread's number in its CTA: an index for ``when``, ``let`` and ``arrive``.

        >>> k = Kernel("k", threads=128)
        >>> str(k.thread), str(k.warp), str(k.lane), str(k.warpgroup), [str(b) for b in k.block]
        ('thread', 'thread // 32', 'thread % 32', '0', ['bx', 'by'])
        """
        return Index.of("thread", self.threads)

    @property
    def warp(self) -> Index:
        """The warp's number in its CTA."""
        return self.thread // WARP

    @property
    def lane(self) -> Index:
        """The thread's number in its warp."""
        return self.thread % WARP

    @property
    def warpgroup(self) -> Index:
        """The warpgroup's number in its CTA."""
        return self.thread // WARPGROUP

    @property
    def block(self) -> tuple[Index, Index]:
        """The coordinates of the CTA in the grid, (bx, by)."""
        return Index.free("bx"), Index.free("by")

    @property
    def _taken(self) -> set[str]:
        """The names in use, those of variables included."""
        return {self.name, *self.buffers, *self.scalars, *self.barriers, *self._variables}

    def _add_buffer(self, buffer: Buffer) -> Buffer:
        names.check_buffer(buffer.name, self.name, self._taken)
        self.buffers[buffer.name] = buffer
        return buffer

    def param(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str | DType,
        layout: LayoutLike | None = None,
        bounds: Sequence[Any] | None = None,
        multiple: int = 1,
    ) -> Buffer:
        """Declare a parameter: a buffer in global memory, dense and row-major by default.

        A stride may be a number times the symbol of a scalar; ``bounds`` and ``multiple``: see
        :class:`Buffer`. An extent of 2**24 stands for any extent up to that: a launch takes the
        matrix's own extents, which ``bounds`` name.

        Raises:
            LayoutError: the name is taken, an extent is no number, or as :class:`Buffer`.

        >>> k = Kernel("k")
        >>> k.param("a", (2**24, 64), "float32", bounds=(k.scalar("M"), None)).bounds
        ('M', None)
        """
        buffer = Buffer(name, shape, dtype, "global", layout, bounds, multiple)
        for extent in buffer.shape:
            if type(extent) is not int:
                raise LayoutError(
                    f"param: extents must be numbers; {name} has {extent}. Give the largest, 2**24 "
                    "for any, and name the scalars that bound it at run time by bounds=(…); a "
                    "stride of the layout may be a scalar's symbol"
                )
        return self._add_buffer(buffer)

    def scalar(self, name: str, token: str = "s32") -> Any:
        """Declare a number that the launch passes; return its symbol, or of f32 an expression.

        Args:
            name: letters alone, as of a loop variable.
            token: ``s32`` for a size, ``f32`` for a coefficient.

        Raises:
            LayoutError: the name is taken or has other signs, or the token is neither.
        """
        if token not in ("s32", "f32"):
            raise LayoutError(f"scalar: {name} must be s32 or f32; got {token!r}")
        names.check_variable(name, "scalar", self._taken)
        from layoutalg.sizes.symbolic import DigitSymbol

        self._variable(name, FREE, "scalar")
        self.scalars[name] = Scalar(name, token)
        if token == "f32":
            return Expression(Variable(name, token), ())
        return DigitSymbol(name, FREE)  # no Index: the strides of a layout may take it

    def let(self, name: str, value: Any, extent: int | None = None) -> Index:
        """Name the value of an index, a number from 0 on: computed once, it stands for the value.

        Args:
            name: letters alone.
            value: an index, or what makes one.
            extent: the value is below it; by default below the index's own bound. A smaller extent
                of a value that depends on scalars is a promise, which each launch checks.

        Raises:
            LayoutError: the name is taken or has other characters than letters, the value may lie
                beyond the extent, or an unrolled loop around it would define it once per step.

        >>> k = Kernel("k", threads=64)
        >>> print(k.let("w", k.warp) * 16)
        w * 16
        """
        index = as_index(value, f"let: the value of {name}")
        if extent is not None and (type(extent) is not int or extent < 1):
            raise LayoutError(f"let: the extent of {name} must be 1 or more; got {extent!r}")
        low, high = index.low, index.high
        known = not index.free_variables()
        if known and not 0 <= low <= high < (FREE if extent is None else extent):
            low, high = self._reach(index)
            if low < 0 or high >= (FREE if extent is None else extent):
                what = "0 or more" if extent is None else f"in 0..{extent - 1}"
                raise LayoutError(f"let: {name} must be {what}; {index} is {low} to {high}")
        if extent is None:
            extent = min(FREE, high + 1) if low >= 0 else FREE
        if self._unrolled:
            raise LayoutError(
                f"let: {name} would be defined once per step of the unrolled loop "
                f"{self._unrolled[-1]}; define it outside, or leave that loop rolled"
            )
        variable = self._variable(name, extent, "let")
        self._visible.append(name)
        self._named[name] = index.replaced(self._named)
        self._add(Let(name, index, extent))
        return variable

    def _reach(self, index: Index) -> tuple[int, int]:
        """Return the least and the largest value of an index that depends on no scalar.

        They are exact, under the branches around, where its variables have few values together.
        """
        written = index.replaced(self._named)
        exact = index if written.free_variables() else written
        guards = [guard.replaced(self._named) for guard in self._guards]
        known = [guard for guard in guards if not any(i.free_variables() for i in indices(guard))]
        return reach(exact, known) or (0, 0)

    def rank(self, name: str = "rank") -> Index:
        """Name the rank of the CTA in its cluster.

        Args:
            name: letters alone.

        Raises:
            LayoutError: the name is taken or has other characters than letters.
        """
        return self.let(name, Index.free("bx") % self.cluster, self.cluster)

    def _variable(self, name: str, extent: int, operation: str) -> Index:
        taken = {self.name, *self.buffers, *self.scalars, *self.barriers}
        names.check_variable(name, operation, taken)
        if name in self._visible:
            raise LayoutError(
                f"{operation}: {name} is in scope already; nested loops and let() need names of "
                "their own"
            )
        self._variables.add(name)
        return Index.of(name, extent)

    @contextmanager
    def producer(self) -> Iterator[None]:
        """Warp specialization: one thread of an extra warpgroup runs the ``with`` block.

        It issues the TMA loads. The threads of the kernel are the consumers: they run what follows
        the block, to the end of the enclosing one. A kernel has one producer, in no loop.
        """
        with self._block(apart="the producer, whose groups are its own") as body:
            yield
        self._add(WarpSpecialize(_closed(body), ()))

    @contextmanager
    def _block(self, *loop: str, unrolled: bool = False, apart: str = "") -> Iterator[list[Op]]:
        """Collect the statements of a block; the variable of a loop has values inside."""
        body: list[Op] = []
        before = len(self._visible), len(self._unrolled)
        self._blocks.append(body)
        self._apart.append("a loop, which would wait for it in each step" if loop else apart)
        self._visible += loop
        self._unrolled += loop if unrolled else ()
        try:
            yield body
        finally:
            self._blocks.pop()
            self._apart.pop()
            del self._visible[before[0] :], self._unrolled[before[1] :]

    @contextmanager
    def when(self, value: Any, below: Any = None, at_least: int = 0) -> Iterator[None]:
        """Run the ``with`` block where a condition holds, or where ``at_least <= value < below``.

        Threads may decide differently as far as each statement inside allows: a product needs whole
        warps, a copy from memory to memory all threads of the CTA.

        Args:
            value: a condition, such as ``k.warp < 2`` or ``i >= 1``; or, with ``below``, a number,
                an index such as :attr:`warp`, or a symbol.
            below: likewise.
            at_least: a number.

        Raises:
            LayoutError: without ``below``, what is no comparison.

        >>> k = Kernel("k", threads=64)
        >>> with k.loop("i", 4) as i, k.when(i >= 1), k.when(k.warp, 1):
        ...     k.sync("warp")
        >>> print(k.lower().script())
        for i in range(4):
            if 0 < i:
                if (thread // 32) < 1:
                    sync(warp)
        """
        if type(at_least) is not int:
            raise LayoutError(f"when: at_least must be a number; got {at_least!r}")
        if below is None:
            guard = as_guard(value, "when")
        else:
            index, high = as_index(value, "when: the value"), as_index(below, "when: below")
            guard = Guard(index, at_least, high)
        self._guards.append(guard)
        try:
            with self._block() as body:
                yield
        finally:
            self._guards.pop()
        self._add(When((guard,), _closed(body)))

    def alloc(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str | DType,
        scope: str = "local",
        layout: LayoutLike | None = None,
    ) -> Buffer:
        """Allocate a buffer in registers ("local"), in shared or in tensor memory ("tmem").

        Raises:
            LayoutError: another scope, a taken name, a buffer in registers or tensor memory without
                a layout, or a layout that names threads which the CTA does not have or gives a
                thread more than 4096 elements.
        """
        if scope not in ("local", "shared", "tmem"):
            raise LayoutError(
                f"alloc: {name} must be local, shared or tmem; got {scope!r}; param() declares "
                "global ones"
            )
        buffer = Buffer(name, shape, dtype, scope, layout)
        if scope == "local":
            last = reached(buffer.layout).get(m, (0, 0))[1]
            advice = "Distribute it over more threads, or loop over parts of it without unroll=True"
            check_budget(f"alloc: {name}", last + 1, REGISTERS, "elements in each thread", advice)
            check_threads_exist(buffer, self.threads)
        return self._add_buffer(buffer)

    def _add(self, statement: Op) -> None:
        self._blocks[-1].append(statement)

    def _own(self, call: TilePrimitiveCall) -> TilePrimitiveCall:
        """Return a call, whose buffers must be of this kernel.

        Raises:
            LayoutError: one is not.
        """
        for buffer in call.buffers:
            if self.buffers.get(buffer.name) != buffer:
                raise LayoutError(
                    f"Kernel {self.name}: {buffer} is not a buffer of this kernel; declare it with "
                    "param() or alloc()"
                )
        return call

    def _add_call(self, call: TilePrimitiveCall) -> None:
        self._add(self._own(call))

    def copy(self, dst: Any, src: Any, scope: str | None = None, **config: Any) -> None:
        """Add ``dst = src``: see :func:`lowering.copy`."""
        _check_keywords(copy, config, ("dst", "src", "scope"))
        self._add_call(copy(dst, src, scope or self.scope, **config))

    def atomic_add(self, dst: Any, src: Any) -> None:
        """Add a register tile to a region of global memory: ``dst = dst + src``, atomically.

        Threads and CTAs may add to the same elements at once; in which order is not said, so that
        sums of floating-point numbers may differ from run to run. Of copies of an element in
        several threads one is added. Subnormal numbers of f32 count as 0. ``dst`` must have values
        before; no barrier of a kernel orders it before loads of another CTA.

        Args:
            dst: a region of a parameter, f32, f64, s32, u32, f16 or bf16 (from sm_90 on); of 16
                bits, neighbours in a register must be neighbours in memory.
            src: a region in registers, of the same extents and type.

        Raises:
            LayoutError: an operand is no buffer, or extents or types differ; other types are
                refused when the kernel is lowered.

        >>> from layoutalg import S, TileLayout, laneid
        >>> k = Kernel("sums", threads=32)
        >>> x, total = k.param("x", (32,), "float32"), k.param("total", (1,), "float32")
        >>> r = k.alloc("r", (32,), "float32", layout=TileLayout(S[32 : 1 @ laneid]))
        >>> k.copy(r, x)
        >>> for lane in range(2):
        ...     k.atomic_add(total, r[lane : lane + 1])
        >>> found = k.lower().simulate(x=np.arange(1, 33), total=np.array([4]))
        >>> found["total"]
        array([7.], dtype=float32)

        Source: PTX ISA, red.
        """
        self._atomic("add", dst, src)

    def atomic_min(self, dst: Any, src: Any) -> None:
        """Set elements of global memory to the least of themselves and a register tile.

        For s32 and u32; see :meth:`atomic_add`.
        """
        self._atomic("min", dst, src)

    def atomic_max(self, dst: Any, src: Any) -> None:
        """Set elements of global memory to the largest of themselves and a register tile.

        For s32 and u32; see :meth:`atomic_add`.
        """
        self._atomic("max", dst, src)

    def _atomic(self, function: str, dst: Any, src: Any) -> None:
        name = f"atomic_{function}"
        operands = {"dst": as_region(dst, "dst", name), "src": as_region(src, "src", name)}
        copied_shape(operands["dst"], operands["src"])
        config = {"function": function}
        self._add_call(TilePrimitiveCall("atomic", operands, self.scope, config=config))

    def cast(self, dst: Buffer | BufferRegion, src: Buffer | BufferRegion) -> None:
        """Add ``dst = src`` for register tiles of two types: :meth:`assign` of the cast.

        Raises:
            LayoutError: no cast leads from one type to the other, or as :meth:`assign`.
        """
        into = as_region(dst, "dst", "cast")
        self.assign(into, cast(as_region(src, "src", "cast"), into.buffer.dtype))

    def gemm(
        self, D: Any, A: Any, B: Any, C: Any = None, scope: str | None = None, **config: Any
    ) -> None:
        """Add ``D = alpha·A·B + beta·C``: see :func:`lowering.gemm`."""
        _check_keywords(gemm, config, ("D", "A", "B", "C", "scope"))
        self._add_call(gemm(D, A, B, C, scope=scope or self.scope, **config))

    def gemm_async(
        self,
        C: Any,
        A: Any,
        B: Any,
        SFA: Any = None,
        SFB: Any = None,
        scope: str | None = None,
        **config: Any,
    ) -> None:
        """Start ``C = A·B`` or ``C += A·B``: see :func:`lowering.gemm_async`.

        Lowering inserts the fences: ``wgmma.fence`` here, and ``fence.proxy.async`` at the
        :meth:`sync` after threads wrote A or B. ``commit("gemm")`` closes a group of products,
        ``wait(0, "gemm")`` waits for them.
        """
        _check_keywords(gemm_async, config, ("C", "A", "B", "SFA", "SFB", "scope"))
        self._add_call(gemm_async(C, A, B, SFA, SFB, scope=scope or self.scope, **config))

    def zero(self, buffer: Any) -> None:
        """Add ``buffer = 0`` for a buffer in registers, or a region of one.

        Raises:
            LayoutError: it is neither.
        """
        region = as_region(buffer, "dst", "zero")
        if region.buffer.scope != "local":
            raise LayoutError(f"zero: sets registers; {region.buffer} is in {region.buffer.scope}")
        self._add_call(TilePrimitiveCall("zero", {"dst": region}, self.scope))

    def assign(self, dst: Buffer | BufferRegion, value: Any) -> None:
        """Set a register tile to the value of an expression, element by element.

        Each thread computes the elements that it holds, so it must hold of each operand what they
        need. Extents of 1 are broadcast, as in NumPy. All operands are read before an element is
        set, so ``dst`` may be one of them.

        Args:
            dst: a register tile, or a region of one.
            value: an expression of tiles (see :mod:`lowering.ir.expressions`,
                :mod:`lowering.ir.reductions`), a tile or a number.

        Raises:
            LayoutError: the value has another type, or a shape that does not broadcast to dst's; or
                a reduction joins what warps hold that may be elsewhere.

        >>> from layoutalg import parse
        >>> import lowering as lw, numpy as np
        >>> k = Kernel("relu")
        >>> x, y = k.param("x", (32, 4), "float32"), k.param("y", (32, 4), "float32")
        >>> r = k.alloc("r", (32, 4), "float32", layout=parse("S[(32,4):(1@laneid,1)]"))
        >>> k.copy(r, x), k.assign(r, lw.maximum(r, 0) * 2), k.copy(y, r)
        (None, None, None)
        >>> bool((k.lower().simulate(x=np.full((32, 4), 3))["y"] == 6).all())
        True
        """
        region = as_region(dst, "dst", "assign")
        if region.buffer.scope != "local":
            raise LayoutError(
                f"assign: sets registers; {region} is in {region.buffer.scope} memory"
            )
        found = typed(as_expression(value, "assign"), region.buffer.dtype.token, "assign")
        if isinstance(found.node, Reduction) and found.shape == region.shape:
            self._reduce(region, self._source(region.buffer.name, found.node), found.node)
            return
        try:
            fits = np.broadcast_shapes(found.shape, region.shape) == region.shape
        except ValueError:
            fits = False
        if not fits:
            raise LayoutError(
                f"assign: {found} of {found.shape} does not broadcast to {region} of {region.shape}"
            )
        found = self._settled(region.buffer.name, found)
        operands = {"dst": region}
        numbers: dict[BufferRegion, int] = {}

        def numbered(leaf: Node) -> Node:
            coefficient = isinstance(leaf, Variable) and isinstance(leaf.value, str)
            if coefficient and self.scalars.get(str(leaf)) != Scalar(str(leaf), leaf.token):
                raise LayoutError(f"assign: {leaf} is no scalar of kernel {self.name}")
            if not isinstance(leaf, Tile):
                return leaf
            return Operand(numbers.setdefault(leaf.region, len(numbers)), leaf.token)

        node = mapped(found.node, numbered)
        operands |= {f"x{number}": region for region, number in numbers.items()}
        self._add_call(TilePrimitiveCall("assign", operands, self.scope, config={"value": node}))

    def tile(self, name: str, value: Any, layout: LayoutLike | None = None) -> Buffer:
        """Allocate a register tile for the value of an expression, and set it.

        Args:
            name: of the tile.
            value: an expression with the shape of the tile; a truth value becomes an int32.
            layout: of the tile; by default that of the first operand of its shape, and of a
                reduction what ``reduced()`` makes of the operand's.

        Raises:
            LayoutError: no operand has the shape, or as :meth:`alloc` and :meth:`assign`.

        >>> from layoutalg import parse
        >>> k = Kernel("k")
        >>> s = k.alloc("s", (32, 4), "float32", layout=parse("S[(32,4):(1@laneid,1)]"))
        >>> k.tile("p", s * 0.5)
        Buffer(p[32,4] float32, local, S[(32,4):(1@laneid,1)])
        """
        found = as_expression(value, "tile")
        if isinstance(found.node, Reduction):
            source = self._source(name, found.node)
            share = self._shares(source, found.node)
            layout = share.result if layout is None else layout
            buffer = self.alloc(name, found.shape, found.dtype, layout=layout)
            self._reduce(buffer.region(), source, found.node)
            return buffer
        found = self._settled(name, found)
        if found.token == PRED:
            found = cast(found, "int32")
        if found.token == "":
            raise LayoutError(f'tile: {name} needs a type, such as cast({found}, "float32")')
        if layout is None:
            layout = self._layout_of(name, found)
        buffer = self.alloc(name, found.shape, found.dtype, layout=layout)
        self.assign(buffer, found)
        return buffer

    def _layout_of(self, name: str, value: Expression) -> TileLayout:
        """Return the layout of the first operand of a value's shape, its registers from 0 on.

        Raises:
            LayoutError: no operand has the shape.
        """
        for leaf in leaves(value.node):
            if isinstance(leaf, Tile) and leaf.region.shape == value.shape:
                piece = region_tile(leaf.region)
                begin = {axis: n for axis, n in piece.offset.items() if axis is not m}
                return TileLayout.from_iters(piece.shard, piece.replica, begin)
        raise LayoutError(
            f"tile: no operand of {name} has its shape {value.shape}, so its layout is not known; "
            "give layout="
        )

    def _settled(self, name: str, value: Expression) -> Expression:
        """Return an expression with a new tile for each reduction in it."""
        known: dict[Reduction, Tile] = {}

        def settled(leaf: Node) -> Node:
            if not isinstance(leaf, Reduction):
                return leaf
            if leaf not in known:
                whole = Expression(leaf, leaf.shape)
                known[leaf] = Tile(self.tile(self._free(f"{name}_{leaf.name}"), whole).region())
            return known[leaf]

        return Expression(mapped(value.node, settled), value.shape)

    def _source(self, name: str, value: Reduction) -> BufferRegion:
        """Return the register tile that a reduction reduces; of an expression, a new one."""
        node = value.operand.node
        if isinstance(node, Tile):
            region: BufferRegion = node.region
            return region
        return self.tile(self._free(f"{name}_terms"), value.operand).region()

    def _reduce(self, into: BufferRegion, source: BufferRegion, value: Reduction) -> None:
        """Add ``into = value`` of a register tile; warps' partial results go through shared memory.

        Raises:
            LayoutError: as :meth:`_shares`.
        """
        share = self._shares(source, value)

        def step(
            to: BufferRegion, of: BufferRegion, shape: tuple[int, ...], axis: tuple[int, ...]
        ) -> None:
            operands = {"dst": to, "src": of}
            config = {"function": value.name, "shape": shape, "axis": axis}
            self._add_call(TilePrimitiveCall("reduce", operands, self.scope, config=config))

        if not share.outside:
            step(into, source, share.shape, share.inside)
            return
        left, dtype = share.partial_shape, into.buffer.dtype
        partial = self._scratch(into, "partial", left, dtype, "local", share.partial)
        scratch = self._scratch(into, "scratch", left, dtype, "shared", share.scratch)
        gathered = self._scratch(into, "gathered", left, dtype, "local", share.gathered)
        step(partial.region(), source, share.shape, share.inside)
        if self._loops:
            self._reuses.append(Sync("cta"))
            self._add(self._reuses[-1])
        self.copy(scratch, partial)
        self.sync()
        self.copy(gathered, scratch)
        step(into, gathered.region(), left, share.outside)

    def _shares(self, source: BufferRegion, value: Reduction) -> Shares:
        """Return how a reduction is shared out.

        Raises:
            LayoutError: warps that would exchange partial results may be elsewhere.
        """
        found = shares(source, value.axes)
        together = uniform_over(self._guards, self.threads, self._named) in ("cta", "cluster")
        if found.outside and not together:
            raise LayoutError(
                f"{value} joins what several warps hold, by a barrier of the CTA; a "
                "branch around it differs between its threads. Reduce it outside, or hold each "
                "result's elements in one warp"
            )
        return found

    def _scratch(
        self,
        region: BufferRegion,
        what: str,
        shape: Sequence[int],
        dtype: DType,
        scope: str,
        layout: LayoutLike,
    ) -> Buffer:
        """Allocate a buffer that a statement needs beside what it is given, under a free name."""
        name = self._free(f"{region.buffer.name}_{what}")
        return self.alloc(name, shape, dtype, scope, layout)

    def _free(self, name: str) -> str:
        """Return a name, with a number where it is taken."""
        names = (f"{name}{number or ''}" for number in count())
        return next(each for each in names if each not in self._taken)

    def barrier(self, name: str, slots: int, arrivals: int) -> Barrier:
        """Declare an array of mbarriers.

        Args:
            name: of the array.
            slots: the number of mbarriers.
            arrivals: that complete a phase of each: 1 .. 2**20 - 1.

        Raises:
            LayoutError: the name is taken, or a number is none of those.
        """
        names.check_buffer(name, self.name, self._taken)
        self.barriers[name] = Barrier(name, slots, arrivals)
        return self.barriers[name]

    def tma_load(
        self,
        barrier: Barrier,
        slot: Any,
        copies: Sequence[tuple[Buffer | BufferRegion, Buffer | BufferRegion]],
        free: tuple[Barrier, Any, Any] | None = None,
        multicast: Sequence[tuple[Buffer | BufferRegion, Buffer | BufferRegion]] = (),
    ) -> None:
        """Load tiles to shared memory by TMA, which thread 0 issues; their bytes complete a phase.

        Args:
            barrier: whose mbarrier counts the bytes; of one arrival.
            slot: which of its mbarriers: a number, or the symbol of a variable.
            copies: (destination, source) of each tile.
            free: (barrier, slot, parity) of a phase to wait for first.
            multicast: likewise, of tiles for every CTA of the cluster: each CTA loads its part of
                them for all, and the mbarrier counts the parts of all.

        Raises:
            LayoutError: a multicast without a cluster, a barrier or a buffer of another kernel, or
                copies that are no pairs.
        """
        if multicast and self.cluster == 1:
            raise LayoutError(f"tma_load: multicast needs cluster=2; {self.name} has cluster=1")
        calls = self._boxes("tma_load", copies, "tensor_map")
        calls += self._boxes("tma_load", multicast, "tensor_map", multicast=True)
        if free is not None and not (isinstance(free, (tuple, list)) and len(free) == 3):
            raise LayoutError(f"tma_load: free is (barrier, slot, parity), or None; got {free!r}")
        phase = None if free is None else self._phase(*free, operation="tma_load")
        place = self._slot(barrier, slot, "tma_load")
        self._add(TmaLoad(barrier.name, place, 0, calls, phase))

    def tma_store(self, *copies: tuple[Buffer | BufferRegion, Buffer | BufferRegion]) -> None:
        """Store tiles from shared to global memory by TMA, as one group of copies.

        The first thread of each warpgroup issues the stores of its equal part of the rows.

        Args:
            copies: (destination, source) of each tile.

        Raises:
            LayoutError: what is no pair, or a buffer of another kernel.
        """
        self._add(TmaStore(self._boxes("tma_store", copies, "tensor_map_store")))

    def _boxes(self, operation: str, copies: Any, variant: str, **config: Any) -> tuple[Any, ...]:
        """Return a call for each copy by TMA, which must be a pair.

        Raises:
            LayoutError: copies are no list, one is no pair, or a buffer is of another kernel.
        """
        if not isinstance(copies, (tuple, list)):
            raise LayoutError(
                f"{operation}: copies are a list of pairs (destination, source); got {copies!r}"
            )
        calls = []
        for each in copies:
            if not isinstance(each, (tuple, list)) or len(each) != 2:
                what = each if isinstance(each, (Buffer, BufferRegion)) else repr(each)
                raise LayoutError(
                    f"{operation}: a copy is a pair (destination, source); got {what}"
                )
            operands = {
                role: as_region(side, role, operation)
                for role, side in zip(("dst", "src"), each, strict=True)
            }
            call = TilePrimitiveCall("bulk_copy", operands, self.scope, variant, config)
            calls.append(self._own(call))
        return tuple(calls)

    def tma_store_wait(self, pending: int = 0) -> None:
        """Wait, in the threads that store, until at most ``pending`` groups still read."""
        _check_pending(pending, "tma_store_wait")
        self._add(TmaStoreWait(pending))

    def arrive(
        self,
        barrier: Barrier,
        slot: Any,
        where: Guard | None = None,
        everywhere: bool = False,
    ) -> None:
        """Let each warp arrive once at an mbarrier.

        Args:
            barrier: of the mbarrier.
            slot: which one.
            where: a condition, uniform in each warp: arrive only where it holds.
            everywhere: at that mbarrier of every CTA of the cluster.

        Raises:
            LayoutError: the barrier is of another kernel, or ``where`` is no comparison.
        """
        guards = () if where is None else (as_guard(where, "arrive: where"),)
        place = self._slot(barrier, slot, "arrive")
        self._add(Arrive(barrier.name, place, guards, everywhere and self.cluster > 1))

    def try_wait(self, barrier: Barrier, slot: Any, parity: Any) -> None:
        """Test once whether a phase is complete; its :meth:`mbarrier_wait` says ``tried=True``."""
        self._add(TryWait(self._phase(barrier, slot, parity, "try_wait")))

    def mbarrier_wait(self, barrier: Barrier, slot: Any, parity: Any, tried: bool = False) -> None:
        """Wait for the phase of an mbarrier that has a parity.

        Args:
            barrier: of the mbarrier.
            slot: which one.
            parity: a number, or a sum of multiples of variables; its lowest bit counts.
            tried: whether the last :meth:`try_wait` tested this phase: no wait where it succeeded.

        Raises:
            LayoutError: the barrier is of another kernel, or has no such slot.
        """
        self._add(MbarrierWait(self._phase(barrier, slot, parity, "mbarrier_wait"), tried))

    def _phase(self, barrier: Barrier, slot: Any, parity: Any, operation: str) -> Phase:
        place = self._slot(barrier, slot, operation)
        asked = as_index(parity, f"barrier {barrier.name}: the parity") % 2
        return Phase(barrier.name, place, asked)

    def _slot(self, barrier: Barrier, value: Any, operation: str) -> int | Index:
        """Return the number of an mbarrier, or an index.

        Raises:
            LayoutError: the barrier is of another kernel, or the array has fewer.
        """
        if not isinstance(barrier, Barrier) or self.barriers.get(barrier.name) != barrier:
            raise LayoutError(
                f"{operation}: {barrier if isinstance(barrier, Buffer) else repr(barrier)} is not "
                f"a barrier of kernel {self.name}; declare it with barrier()"
            )
        return barrier.slot(value)

    def sync(self, scope: str = "cta", memory: bool = False) -> None:
        """Synchronize the threads of a scope, and order their memory.

        Args:
            scope: "cta", "warpgroup" or "warp"; or "cluster", between two of which other CTAs may
                be reached.
            memory: whether a barrier of the cluster orders memory too, which takes longer.

        Raises:
            LayoutError: another scope, a kernel without clusters, or threads that are no whole
                warpgroups.
        """
        if scope not in ("cluster", "cta", "warpgroup", "warp"):
            raise LayoutError(
                f"sync: the scope must be cluster, cta, warpgroup or warp; got {scope!r}"
            )
        if scope == "cluster" and self.cluster == 1:
            raise LayoutError(f"sync: scope cluster needs cluster=2; {self.name} has cluster=1")
        if scope == "warpgroup" and self.threads % WARPGROUP:
            raise LayoutError(f"sync: {self.threads} threads are no whole warpgroups")
        self._add(Sync(scope, memory and scope == "cluster"))

    def commit(
        self, of: str = "copy", barrier: Barrier | None = None, slot: Any = 0
    ) -> Group | None:
        """Close a group of asynchronous copies ("copy") or products ("gemm"); return it.

        Args:
            of: which.
            barrier: of ``tcgen05``: its mbarrier gets an arrival when all products and copies to
                tensor memory so far are complete; :meth:`mbarrier_wait` for it. No group is closed.
            slot: which of the barrier's mbarriers.

        Raises:
            LayoutError: another kind, or a barrier for copies.
        """
        if barrier is not None:
            if _asynchronous(of) != "gemm":
                raise LayoutError(f"commit: a barrier is for of='gemm'; got {of!r}")
            self._add(TensorCommit(barrier.name, self._slot(barrier, slot, "commit")))
            return None
        statement = WgmmaCommit() if _asynchronous(of) == "gemm" else Commit()
        self._groups += 1
        self._add(statement)
        return Group(of, self._groups - 1, statement, self._blocks[-1])

    def wait(self, pending: int | Group = 0, of: str = "copy") -> None:
        """Wait for a group and those before it, or until at most so many are in flight.

        After ``wait(0, "gemm")`` the accumulators of all products so far may be touched; after a
        wait for a group those of its products and of older ones.

        Args:
            pending: what :meth:`commit` returned, or a number of groups.
            of: which groups, where it is a number.

        Raises:
            LayoutError: another kind, or no number of groups; or how many groups were closed after
                the one given depends on a branch or a loop.

        >>> k = Kernel("k", threads=128, arch="sm_90a")
        >>> older, newer = k.commit("gemm"), k.commit("gemm")
        >>> k.wait(older)
        >>> k.wait(newer)
        >>> print(k.lower().script())
        wgmma.commit
        wgmma.commit
        wgmma.wait(1)
        wgmma.wait(0)
        """
        if isinstance(pending, Group):
            of = pending.of
            pending = pending_after(pending, [*zip(self._blocks, self._apart, strict=True)])
        _check_pending(pending, "wait")
        self._add(WgmmaWait(pending) if _asynchronous(of) == "gemm" else Wait(pending))

    @contextmanager
    def loop(self, var: str, extent: Any, unroll: bool = False) -> Iterator[Index]:
        """Repeat the ``with`` block; yields the variable, an index.

        Args:
            var: name of the variable, which runs over ``0 .. extent - 1``: letters alone, so that
                it collides with no name that kernel texts make.
            extent: a number, an index, or the symbol of a scalar.
            unroll: expand the loop before dispatch. Register regions that move with the variable
                need it: register numbers are static.

        Raises:
            LayoutError: the name is taken or no identifier, or the extent is below 1.
        """
        known = type(extent) is int
        named = isinstance(extent, Index) or hasattr(extent, "free_symbols")
        if (known and extent < 1) or not (known or named):
            raise LayoutError(f"loop: the extent must be a number from 1 on; got {extent!r}")
        if unroll and not known:
            raise LayoutError(f"loop: unroll=True needs a number as extent; {var} has {extent}")
        most = extent if known else as_index(extent).high
        variable = self._variable(var, most if 0 < most < FREE - 1 else FREE, "loop")
        self._loops += 1
        try:
            with self._block(var, unrolled=unroll) as body:
                yield variable
        finally:
            self._loops -= 1
        self._drop_spare_syncs(body)
        times = extent if known else as_index(extent)
        self._add(Loop(var, times, _closed(body), unroll))

    def _drop_spare_syncs(self, body: list[Op]) -> None:
        """Drop, from a loop, barriers before a write of scratch memory that others stand in for.

        Scratch memory is read in one step and written in the next: any barrier between is enough.
        """
        for reuse in self._reuses:
            at = next((at for at, op in enumerate(body) if op is reuse), None)
            if at is None:
                continue
            between = (*body[at + 4 :], *body[:at])  # behind the read, before the write
            if any(op == reuse and not any(op is each for each in self._reuses) for op in between):
                del body[at]

    def lower(self) -> KernelProgram:
        """Lower the kernel, by the passes in :data:`lowering.programs.stages.STAGES`.

        Raises:
            DispatchError: a call fits no variant; the error lists each reason.
            LayoutError: a block is still open, or what :func:`lowering.programs.stages.check`
                refuses.
        """
        if len(self._blocks) > 1:
            raise LayoutError(
                f"lower: a block of kernel {self.name} is still open; lower it after the `with` of "
                "loop(), when() or producer() has ended"
            )
        by_scope = {
            scope: tuple(b for b in self.buffers.values() if b.scope == scope)
            for scope in ("global", "shared", "local", "tmem")
        }
        tile = KernelIR(
            by_scope["global"],
            by_scope["shared"],
            by_scope["local"],
            _closed(self._blocks[0]),
            self.threads,
            self.arch,
            tuple(self.scalars.values()),
            tuple(self.barriers.values()),
            self.cluster,
            self.pdl,
            by_scope["tmem"],
        )
        found = stages.lower(tile, self.name)
        return KernelProgram(self.name, found["operations"], found)


def _closed(block: Sequence[Op]) -> tuple[Op, ...]:
    """Return the operations of a block; consumers run what follows a producer."""
    for at, op in enumerate(block):
        if isinstance(op, WarpSpecialize):
            return (*block[:at], replace(op, consume=_closed(block[at + 1 :])))
    return tuple(block)


def _check_keywords(
    primitive: Callable[..., TilePrimitiveCall], given: Mapping[str, Any], taken: Sequence[str]
) -> None:
    """Refuse keywords that a primitive does not have, or that have parameters of their own.

    Raises:
        LayoutError: the known ones are listed.
    """
    known = [name for name in inspect.signature(primitive).parameters if name not in taken]
    wrong = [name for name in given if name not in known]
    if wrong:
        raise LayoutError(
            f"{primitive.__name__}: the keywords are {', '.join(known)}; got {', '.join(wrong)}"
        )


def _check_pending(pending: Any, operation: str) -> None:
    """Refuse what is no number of groups.

    Raises:
        LayoutError: it is none.
    """
    if type(pending) is not int or pending < 0:
        raise LayoutError(
            f"{operation}: pending must be a number of groups from 0 on; got {pending!r}"
        )


def _asynchronous(kind: str) -> str:
    """Return what is asynchronous.

    Raises:
        LayoutError: another kind.
    """
    if kind not in ("copy", "gemm"):
        raise LayoutError(f"commit, wait: of must be 'copy' or 'gemm'; got {kind!r}")
    return kind
