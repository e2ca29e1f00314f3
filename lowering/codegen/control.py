"""Control flow as kernel text: loops, branches, named values, warp specialization."""

from __future__ import annotations

from lowering.codegen.writer import Writer, emit
from lowering.ir.index import Index
from lowering.ir.ops import Let, Loop, WarpSpecialize, When
from lowering.ir.register_map import WARPGROUP
from lowering.isa import ptx

# setmaxnreg, per thread: (2·240 + 24)·128 ≤ 64K registers.
CONSUMER_REGISTERS, PRODUCER_REGISTERS = 240, 24


@emit.of(Loop)
def _loop(writer: Writer, op: Loop) -> None:
    """Write a loop that stays."""
    extent = writer.text(op.extent) if isinstance(op.extent, Index) else op.extent
    writer.line(writer.dialect.begin_loop(op.var, str(extent)))
    writer.indent += 1
    writer.run(op.body)
    writer.close()


@emit.of(When)
def _when(writer: Writer, op: When) -> None:
    writer.guarded(op.guards)
    writer.run(op.body)
    writer.close()


@emit.of(Let)
def _let(writer: Writer, op: Let) -> None:
    writer.line(writer.dialect.let(op.var, writer.text(op.value)))


@emit.of(WarpSpecialize)
def _warp_specialize(writer: Writer, op: WarpSpecialize) -> None:
    """Write two programs in the branches of one condition."""
    threads = writer.body.threads
    writer.specialized = True
    shared_out = threads == 2 * WARPGROUP
    writer.line(writer.dialect.begin_if(f"thread < {threads}"))
    writer.indent += 1
    if shared_out:
        writer.call(ptx.setmaxnreg(CONSUMER_REGISTERS, True), (), ())
    writer.run(op.consume)
    writer.otherwise()
    if shared_out:
        writer.call(ptx.setmaxnreg(PRODUCER_REGISTERS, False), (), ())
    writer.producer = True
    writer.alone(f"thread - {threads}", lambda: writer.run(op.produce))
    writer.close()
    writer.specialized = writer.producer = False
