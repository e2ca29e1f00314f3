"""Products as kernel text: ``mma`` of a warp, ``wgmma`` of a warpgroup and its fences and waits."""

from __future__ import annotations

from lowering.codegen.register_words import bit_field, words
from lowering.codegen.writer import BYTE, Writer, emit
from lowering.ir.index import Digit, Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import (
    Mma,
    ProxyFence,
    Registers,
    SharedMatrix,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    walk,
)
from lowering.isa import ptx, wgmma
from lowering.isa.smem_descriptor import CHUNK


@emit.of(Mma)
def _multiply(writer: Writer, op: Mma) -> None:
    inputs = [name for each in (op.a, op.b) for name in words(writer.body, each)]
    extra = [bit_field(writer.body, each) for each in op.extra]
    selectors = tuple(each.shift // BYTE for each in extra)
    inputs += [each.variable for each in extra]
    call = op.instruction, selectors
    writer.instructions.setdefault(ptx.mma_name(*call), call)
    writer.line(writer.dialect.mma(call, words(writer.body, op.d), tuple(inputs)))


@emit.of(Wgmma)
def _multiply_async(writer: Writer, *ops: Wgmma) -> None:
    """Write products that share D and all but the addresses of A and B."""
    first = ops[0]
    a = first.a.descriptor if isinstance(first.a, SharedMatrix) else None
    source = [name for op in ops for each in (op.a, op.b) for name in _operand(writer, each)]
    adds = first.accumulate
    if isinstance(adds, Index):
        source.append(writer.dialect.word(writer.text(adds)))
    known = None if isinstance(adds, Index) else adds
    asm = wgmma.multiply_in_turn(first.instruction, a, first.b.descriptor, known, len(ops))
    writer.call(asm, words(writer.body, first.d), tuple(source))


def _operand(writer: Writer, operand: Registers | SharedMatrix) -> tuple[str, ...]:
    """Return the words of an operand, or the low word of its descriptor."""
    if isinstance(operand, Registers):
        return words(writer.body, operand)
    return (low_word(writer, operand),)


@emit.of(WgmmaFence)
def _fence(writer: Writer, op: WgmmaFence) -> None:
    writer.call(wgmma.fence(), (), ())


@emit.of(WgmmaCommit)
def _commit(writer: Writer, op: WgmmaCommit) -> None:
    writer.call(wgmma.commit(), (), ())


@emit.of(WgmmaWait)
def _wait(writer: Writer, op: WgmmaWait) -> None:
    """Wait, with the registers that are complete as operands: reading them depends on it."""
    letters = {
        name: letter
        for each in op.complete
        for name, letter in zip(words(writer.body, each), writer.letters(each), strict=True)
    }  # each once: products may share a part of an accumulator
    writer.call(wgmma.wait(op.pending, "".join(letters.values())), tuple(letters), ())


@emit.of(ProxyFence)
def _fence_proxy(writer: Writer, op: ProxyFence) -> None:
    writer.call(wgmma.proxy_fence(), (), ())


# -- descriptors of operands in shared memory -----------------------------------------------------


def low_word(writer: Writer, operand: SharedMatrix) -> str:
    """Return the low word of an operand's descriptor: that of its buffer, moved.

    That of the buffer's first cell, or the warpgroup's, was made first; its low bits count
    units of 16 bytes, which the address adds to, and shared memory ends before they do.
    """
    name, _, moving = descriptor_variable(operand)
    return writer.dialect.address("shared", name, writer.text(moving))


def descriptor_variable(operand: SharedMatrix) -> tuple[str, Index, Index]:
    """Return a variable for what descriptors of an operand's buffer share, and the rest.

    The variable's name, what the thread adds to the buffer's start, and what else the address does;
    both in units of 16 bytes.
    """
    units = operand.address * operand.descriptor.element_bits // (CHUNK * BYTE)
    own = [(c, a) for c, a in units.terms if isinstance(a, Digit) and a.var == "thread"]
    fixed = Index(tuple(own))
    place = "".join(f"_{c}x{atom.stride}" for c, atom in own if isinstance(atom, Digit))
    low, high = operand.descriptor.words
    name = f"{operand.memory}_{operand.descriptor.major}_{high:x}_{low:x}{place}"
    return name, fixed, units - fixed


def shared_operands(body: KernelIR) -> dict[str, tuple[SharedMatrix, Index]]:
    """Return by variable an operand in shared memory, and what the thread adds to its start."""
    found = {}
    for op in walk(body.ops):
        for _, operand in op.parts:
            if isinstance(operand, SharedMatrix):
                name, fixed, _ = descriptor_variable(operand)
                found[name] = operand, fixed
    return found
