"""The operations on tensor memory as kernel text, in either language."""

from __future__ import annotations

from collections.abc import Callable

from layoutalg.algebra.axis import WARP
from lowering.codegen.barriers import mbarrier
from lowering.codegen.products import low_word
from lowering.codegen.register_words import words
from lowering.codegen.writer import Writer, emit
from lowering.ir.index import Index
from lowering.ir.ops import SharedMatrix
from lowering.ir.tmem_ops import (
    Issued,
    TensorAllocate,
    TensorCommit,
    TensorCopy,
    TensorFence,
    TensorFree,
    TensorLoad,
    TensorMatrix,
    TensorMma,
    TensorStore,
    TensorWait,
)
from lowering.isa import ptx, tcgen05
from lowering.isa.tcgen05 import COLUMNS

BASE = "tensor_base"  # the variable with the address of the columns that were allocated
CELL = "tensor_cell"  # where in shared memory that address is kept
LANE = 1 << 16  # what an address grows by from one lane to the next

assert COLUMNS <= LANE


@emit.of(TensorMma, TensorCopy, TensorCommit)
def _issue(writer: Writer, *ops: Issued) -> None:
    """Write what one thread starts, in one branch: thread 0, or the one that warp 0 elects."""

    def write() -> None:
        for op in ops:
            _start(writer, op)

    first = _first_of_pair(writer, ops[0])
    if ops[0].issuer == "thread":
        writer.alone(f"thread{first}", write)
        return

    def elect() -> None:
        chosen = writer.temporary()
        writer.call(tcgen05.elected(), (chosen,), ())
        writer.alone(f"{chosen} - 1", write)

    _in_first_warp(writer, elect, first)


def _address(writer: Writer, place: TensorMatrix) -> str:
    """Return an address in tensor memory."""
    first = writer.body.tensor_offsets[place.memory]
    offset = place.lane * LANE + place.column + first
    return writer.dialect.address("shared", BASE, writer.text(offset))


def _start(writer: Writer, op: Issued) -> None:
    """Write a product, a copy or a commit, by the thread that is here."""
    if isinstance(op, TensorCommit):
        writer.call(tcgen05.commit(op.cta_group), (), (mbarrier(writer, op.barrier, op.slot),))
        return
    if isinstance(op, TensorCopy):
        asm = tcgen05.copy(op.shape, op.source.descriptor, op.cta_group)
        writer.call(asm, (), (_address(writer, op.into), low_word(writer, op.source)))
        return
    inputs = [_address(writer, op.d)]
    for operand in (op.a, op.b):
        if isinstance(operand, SharedMatrix):
            inputs.append(low_word(writer, operand))
        else:
            inputs.append(_address(writer, operand))
    inputs += [_address(writer, place) for place in op.scales]
    if isinstance(op.accumulate, Index):
        accumulate = "maybe"
        inputs.append(writer.dialect.word(writer.text(op.accumulate)))
    else:
        accumulate = "add" if op.accumulate else "overwrite"
    a = op.a.descriptor if isinstance(op.a, SharedMatrix) else None
    writer.call(tcgen05.multiply(op.what, a, op.b.descriptor, accumulate), (), tuple(inputs))


@emit.of(TensorLoad)
def _load(writer: Writer, op: TensorLoad) -> None:
    asm = tcgen05.load(op.shape, op.count, writer.letters(op.into))
    writer.call(asm, words(writer.body, op.into), (_address(writer, op.source),))


@emit.of(TensorStore)
def _store(writer: Writer, op: TensorStore) -> None:
    asm = tcgen05.store(op.shape, op.count, writer.letters(op.source))
    writer.call(asm, (), (_address(writer, op.into), *words(writer.body, op.source)))


@emit.of(TensorWait)
def _wait(writer: Writer, op: TensorWait) -> None:
    names = [name for each in op.complete for name in words(writer.body, each)]
    letters = "".join(writer.letters(each) for each in op.complete)
    writer.call(tcgen05.wait(op.verb, letters), tuple(names), ())


@emit.of(TensorFence)
def _fence(writer: Writer, op: TensorFence) -> None:
    writer.call(tcgen05.fence(op.side), (), ())


@emit.of(TensorAllocate)
def _allocate(writer: Writer, op: TensorAllocate) -> None:
    """Allocate by warp 0, and let all threads learn the address."""
    cell = writer.dialect.address("shared", f"{CELL}_base", "0")
    asm = tcgen05.allocate(op.columns, op.cta_group)
    _in_first_warp(writer, lambda: writer.call(asm, (), (cell,)))
    _meet(writer)
    writer.call(ptx.load("shared", "u32", 32), (BASE,), (cell,))


@emit.of(TensorFree)
def _free(writer: Writer, op: TensorFree) -> None:
    _meet(writer)
    asm = tcgen05.free(op.columns, op.cta_group)
    _in_first_warp(writer, lambda: writer.call(asm, (), (BASE,)))


def _in_first_warp(writer: Writer, what: Callable[[], None], more: str = "") -> None:
    """Write what warp 0 does, where another number is zero too."""
    divided = "//" if writer.dialect.style == "python" else "/"
    writer.alone(f"thread {divided} {WARP}{more}", what)


def _first_of_pair(writer: Writer, op: Issued) -> str:
    """Return what to add to a number that is zero in one CTA of a pair alone: its rank."""
    rank = Index.free("bx") % writer.body.cluster
    return f" + {rank.operand(writer.dialect.style)}" if op.cta_group == 2 else ""


def _meet(writer: Writer) -> None:
    """Write a barrier of the CTA, with its fences."""
    writer.call(tcgen05.fence("before"), (), ())
    writer.line(writer.dialect.sync("cta"))
    writer.call(tcgen05.fence("after"), (), ())
