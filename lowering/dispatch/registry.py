"""Dispatch: variants registered per primitive and target, predicates, and the report of reasons."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from layoutalg import LayoutError, TileLayout
from layoutalg.algebra.axis import WARP
from layoutalg.fragments.targets import has, lacking
from layoutalg.layouts.thread_slots import THREADS_IN
from lowering.dispatch.destinations import check_writes
from lowering.dispatch.holders import ALL, ControlFlow
from lowering.ir.ops import Mma, Op, Registers, Wgmma
from lowering.ir.readers import unknown
from lowering.ir.tiles import Buffer, TilePrimitiveCall
from lowering.isa.mma import compute_capability

TARGETS = ("cuda",)

Answer = bool | tuple[bool, str]  # of a predicate: False with the reason


class DispatchFail(Exception):  # noqa: N818
    """A variant declines: its text is the reason."""


class DispatchError(RuntimeError):
    """No variant fits a call: the text is a table, ``reasons`` its rows.

    ``reasons`` is a tuple of (variant, predicate name or "lowering", reason).
    """

    def __init__(self, title: str, reasons: Sequence[tuple[str, str, str]]) -> None:
        """Lay out the table."""
        self.title = title
        self.reasons = tuple(reasons)
        width = max((len(variant) for variant, _, _ in reasons), default=0)
        step = max((len(name) for _, name, _ in reasons), default=0)
        rows = (
            f"\n  {variant:<{width}}  {name:<{step}}  {reason}" for variant, name, reason in reasons
        )
        super().__init__(title + "".join(rows))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle through the parts, so that the error crosses processes."""
        return type(self), (self.title, self.reasons)


def fail(reason: str) -> NoReturn:
    """Decline the call; the dispatcher records the reason and tries the next variant.

    Raises:
        DispatchFail: always.
    """
    raise DispatchFail(reason)


def check_inputs_kept(ops: Sequence[Op]) -> None:
    """Decline products whose results overwrite what they read: A, B, or what they take beside.

    Raises:
        DispatchFail: an operand shares a register of a thread with D.
    """
    products = [op for op in ops if isinstance(op, (Mma, Wgmma))]
    written = {(op.d.buffer, number) for op in products for number in op.d.numbers}
    for op in products:
        extra = zip(op.instruction.extras, op.extra, strict=True) if isinstance(op, Mma) else ()
        for role, operand in (("A", op.a), ("B", op.b), *extra):
            if not isinstance(operand, Registers):
                continue
            lost = written & {(operand.buffer, number) for number in operand.numbers}
            if lost:
                fail(
                    f"D overlaps {role} in {operand.buffer}: register {min(lost)[1]} of {role} is "
                    f"overwritten before it is read; {role} must be disjoint from D"
                )


@dataclass(frozen=True)
class Context:
    """What a variant sees of a call: the call, the target, and which threads are active.

    ``active`` maps each axis that the call's scope spans to its ``(begin, end)``, as the caller of
    :func:`lowering.lower` narrows it; ``flow`` is the control flow around the call. ``taken``: the
    names in use, each with the buffer that a call before this one needed besides its operands.
    """

    call: TilePrimitiveCall
    target: str
    threads: int
    active: Mapping[str, tuple[int, int]]
    arch: str = "sm_90"
    flow: ControlFlow = ALL
    taken: Mapping[str, Buffer | None] = field(default_factory=dict)

    def fresh(self, buffer: Buffer) -> Buffer:
        """Return a buffer under the first free name; or that of an equal one of a call before.

        >>> from lowering.ir.tiles import copy
        >>> s = Buffer("s", (8,), "float32", "shared")
        >>> context_of(copy(s, s)).fresh(s).name
        's'
        >>> replace(context_of(copy(s, s)), taken={"s": None}).fresh(s).name
        's2'
        """
        for count in itertools.count(1):
            each = replace(buffer, name=f"{buffer.name}{count}" if count > 1 else buffer.name)
            if each.name not in self.taken or self.taken[each.name] == each:
                return each
        raise AssertionError

    def whole(self) -> dict[str, tuple[int, int]]:
        """Return the axes of the scope with their full ranges."""
        return {axis: (0, extent) for axis, extent in scope_axes(self.call.scope, self.threads)}

    @property
    def spaces(self) -> dict[str, str]:
        """The memory of each operand, by role."""
        return {role: region.buffer.scope for role, region in self.call.operands.items()}

    def lacks(self, what: str, min_arch: str) -> str | None:
        """Return the refusal of an instruction that the target lacks; None where it has it."""
        return None if has(min_arch, self.arch) else lacking(what, min_arch, self.arch)


def scope_axes(scope: str, threads: int) -> tuple[tuple[str, int], ...]:
    """Return the axes that a scope spans, with their extents.

    >>> scope_axes("cta", 256)
    (('laneid', 32), ('warpid', 8))
    """
    if scope == "thread":
        return ()
    axes: list[tuple[str, int]] = [("laneid", WARP)]
    if scope == "warpgroup":
        axes.append(("wid_in_wg", 4))
    elif scope in ("cta", "cluster"):
        axes.append(("warpid", threads // WARP))
    if scope == "cluster":
        axes.append(("cta_id", 0))
    return tuple(axes)


@dataclass(frozen=True)
class Lowered:
    """What a variant makes of a call: register-level operations.

    ``placements`` says for each register operand which threads hold its elements, where that is
    more than its layout says: the layout with a replica for each copy that must be there.
    ``buffers``: what the operations need besides the operands, in registers or shared memory.
    """

    ops: tuple[Op, ...]
    placements: Mapping[str, TileLayout] = field(default_factory=dict)
    buffers: tuple[Buffer, ...] = ()
    variant: str = ""

    def __post_init__(self) -> None:
        """Check that a variant gives operations.

        Raises:
            LayoutError: it gives something else.
        """
        for op in self.ops:
            if not isinstance(op, Op):
                raise unknown(op, "lower")


@dataclass(frozen=True)
class Predicate:
    """A named question; it answers True, or (False, reason)."""

    name: str
    ask: Callable[[Context], Answer]

    def refusal(self, context: Context) -> str | None:
        """Return why the predicate fails; None where it holds."""
        answer = self.ask(context)
        if isinstance(answer, tuple):
            holds, reason = answer
            return None if holds else reason
        return None if answer else "does not hold"


def predicate(name: str, ask: Callable[[Context], Answer]) -> Predicate:
    """Name a question for :func:`register_dispatch`."""
    return Predicate(name, ask)


@dataclass(frozen=True)
class Variant:
    """One way to lower a primitive on a target."""

    op: str
    target: str
    name: str
    priority: int
    when: tuple[Predicate, ...]
    lower: Callable[[Context], Lowered]
    named_only: bool = False
    takes: Callable[[TilePrimitiveCall], bool] = lambda call: True
    instructions: Callable[[], Iterable[str]] = tuple


_VARIANTS: dict[tuple[str, str], list[Variant]] = {}


def register_dispatch(
    op: str,
    target: str,
    *,
    variant: str,
    priority: int = 0,
    when: Sequence[Predicate] = (),
    named_only: bool = False,
    takes: Callable[[TilePrimitiveCall], bool] = lambda call: True,
    instructions: Callable[[], Iterable[str]] = tuple,
) -> Callable[[Callable[[Context], Lowered]], Callable[[Context], Lowered]]:
    """Register the decorated function as a variant of ``op`` on ``target``.

    It takes a :class:`Context` and returns :class:`Lowered`, or declines by :func:`fail`. A variant
    that is ``named_only`` is tried where a call names it, and not otherwise. ``takes`` says whether
    calls of this form, with these operands, are the variant's at all: others are not its to
    decline. ``instructions`` returns the keys of those that a call may name instead of the variant.

    Raises:
        LayoutError: the name is taken, or the target unknown.
    """
    if target not in TARGETS:
        raise LayoutError(f"register_dispatch: the target must be one of {TARGETS}; got {target!r}")

    def register(lower: Callable[[Context], Lowered]) -> Callable[[Context], Lowered]:
        rows = _VARIANTS.setdefault((op, target), [])
        if any(row.name == variant for row in rows):
            raise LayoutError(f"register_dispatch: {op} on {target} has a variant {variant!r}")
        made = Variant(op, target, variant, priority, tuple(when), lower, named_only, takes)
        rows.append(replace(made, instructions=instructions))
        rows.sort(key=lambda row: (-row.priority, row.name))
        return lower

    return register


def list_variants(op: str, target: str = "cuda") -> list[str]:
    """Return the names of the variants in the order in which they are tried.

    >>> from lowering import list_variants
    >>> list_variants("gemm", "cuda")
    ['mma.m16n8k*', 'mma.block_scale*', 'mma.m8n8k4', 'mma.sp*', 'mma.sync*']
    """
    return [row.name for row in _VARIANTS.get((str(op), str(target)), [])]


def _check_threads(call: TilePrimitiveCall, threads: int) -> None:
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1024:
        raise LayoutError(f"lower: threads must lie in 1..1024; got {threads!r}")
    unit = THREADS_IN.get(call.scope, WARP)
    if threads % unit:
        whole = "warpgroups" if call.scope == "warpgroup" else "warps"
        raise LayoutError(
            f"lower: a call at {call.scope} scope needs whole {whole} of {unit} threads; "
            f"got threads={threads}"
        )


def _narrowed(
    call: TilePrimitiveCall, threads: int, active: Mapping[str, Any] | None
) -> dict[str, tuple[int, int]]:
    """Return the active range of each axis of the scope, narrowed as the caller says."""
    ranges: dict[str, tuple[int, int]] = {
        axis: (0, extent) for axis, extent in scope_axes(call.scope, threads)
    }
    if active is not None and not isinstance(active, Mapping):
        raise LayoutError(f"lower: active must map axes to (begin, end); got {active!r}")
    for axis, span in (active or {}).items():
        try:
            begin, end = (operator.index(bound) for bound in span)
        except (TypeError, ValueError):
            raise LayoutError(
                f"lower: active[{axis!r}] must be (begin, end); got {span!r}"
            ) from None
        ranges[str(axis)] = (begin, end)
    return ranges


def context_of(
    call: TilePrimitiveCall,
    target: str = "cuda",
    threads: int | None = None,
    active: Mapping[str, Any] | None = None,
    arch: str = "sm_90",
    flow: ControlFlow = ALL,
    taken: Mapping[str, Buffer | None] | None = None,
) -> Context:
    """Return the context of a call, its arguments checked.

    Raises:
        LayoutError: no call, no target, or threads that do not make whole units of the scope.
    """
    if not isinstance(call, TilePrimitiveCall):
        raise LayoutError(f"lower: needs a tile primitive call, such as gemm(…); got {call!r}")
    if threads is None:
        threads = max(WARP, THREADS_IN.get(call.scope, WARP))
    elif isinstance(threads, np.integer):
        threads = int(threads)
    _check_threads(call, threads)
    compute_capability(arch)
    narrowed = _narrowed(call, threads, active)
    return Context(call, target, threads, narrowed, arch, flow, taken or {})


def dispatch(context: Context) -> Lowered:
    """Lower a call by the first variant that accepts it.

    Raises:
        DispatchError: every variant declines; the error lists each reason.
        LayoutError: what it writes aliases, or overlaps what it reads.
    """
    call, target = context.call, context.target
    check_writes(call)
    rows = _VARIANTS.get((call.op, target), [])
    if not rows:
        known = ", ".join(f"{op} on {name}" for op, name in sorted(_VARIANTS))
        raise DispatchError(
            f"{call.op}: no variant is registered for target {target!r}; registered: {known}",
            [("(none)", "lookup", f"{call.op} on {target!r} is not registered")],
        )
    if call.dispatch is not None:
        named = [row for row in rows if row.name == call.dispatch]
        named = named or [row for row in rows if call.dispatch in row.instructions()]
        if not named:
            names = ", ".join(row.name for row in rows)
            raise DispatchError(
                f"{call.op}: no variant fits {call}",
                [(call.dispatch, "lookup", f"unknown variant; {call.op} on {target} has {names}")],
            )
        rows = named
    else:
        rows = [row for row in rows if not row.named_only and row.takes(call)]
    reasons: list[tuple[str, str, str]] = []
    for row in rows:
        if not row.takes(call):
            roles = ", ".join(call.operands)
            reasons.append((row.name, "operands", f"takes no call of this form, with {roles}"))
            continue
        refusals = [
            (row.name, each.name, reason)
            for each in row.when
            if (reason := each.refusal(context)) is not None
        ]
        if refusals:
            reasons.extend(refusals)
            continue
        try:
            return replace(row.lower(context), variant=row.name)
        except DispatchFail as declined:
            reasons.append((row.name, "lowering", str(declined)))
    raise DispatchError(f"{call.op}: no variant fits {call}", reasons)
