"""A whole body as kernel text: what comes before its operations, what they call, every name."""

from __future__ import annotations

from collections.abc import Iterator

from lowering.codegen import (  # noqa: F401 - they fill the table
    control,
    elementwise,
    movement,
    reductions,
    shuffles,
    tcgen05,
)
from lowering.codegen.barriers import barriers_elsewhere, initialise, mbarrier
from lowering.codegen.products import shared_operands
from lowering.codegen.register_words import variables
from lowering.codegen.writer import Dialect, Writer
from lowering.ir.index import Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import Let, Loop, walk
from lowering.isa import ptx, wgmma
from lowering.isa.ptx import Asm


def written(body: KernelIR, dialect: Dialect) -> Writer:
    """Return the text of a body: what makes barriers and descriptors, then its operations."""
    writer = Writer(body, dialect)
    if body.barriers:
        initialise(writer)
    lane = Index.of("thread", body.threads) % body.cluster
    for name, there in barriers_elsewhere(body).items():
        rank = writer.dialect.word(writer.text(lane))
        writer.call(ptx.mapa(), (there,), (mbarrier(writer, name, 0), rank))
    for name, (operand, fixed) in shared_operands(body).items():
        start = writer.dialect.address("shared", f"{operand.memory}_base", "0")
        writer.call(wgmma.matrix_descriptor(operand.descriptor), (name,), (start,))
        if fixed.terms:
            moved = writer.dialect.address("shared", name, writer.text(fixed))
            writer.call(wgmma.same_in_warp(), (name,), (moved,))
    if body.pdl:
        writer.call(ptx.griddepcontrol(), (), ())
    writer.run(body.ops)
    return writer


def calls(writer: Writer) -> list[Asm]:
    """Return the asm statements that the text calls, each once."""
    products = (ptx.mma(*call) for call in writer.instructions.values())
    return [*writer.functions.values(), *products]


def made(writer: Writer, kernel: str) -> Iterator[tuple[str, str]]:
    """Yield every name in the text with what it stands for."""
    body = writer.body
    yield kernel, f"the kernel {kernel}"
    for asm in calls(writer):
        yield asm.name, f"the instruction {asm.mnemonic}"
    for each in body.params:
        yield f"{each.name}_", f"the argument {each.name}"
        yield f"{each.name}_base", f"the address of {each.name}"
    for scalar in body.scalars:
        yield scalar.name, f"the scalar {scalar.name}"
        yield f"{scalar.name}_", f"the argument {scalar.name}"
    for place in body.shared_places:
        yield f"{place}_base", f"the address of {place}"
    for barrier, variable in barriers_elsewhere(body).items():
        yield variable, f"the address of {barrier} elsewhere"
    for variable in shared_operands(body):
        yield variable, f"the descriptor {variable}"
    for buffer in body.registers:
        yield from ((each, f"a register of {buffer.name}") for each in variables(buffer))
    yield from ((f"t{number}", "a temporary") for number in range(writer.temporaries))
    for op in walk(body.ops):
        if isinstance(op, (Let, Loop)):
            yield op.var, f"the variable {op.var}"
