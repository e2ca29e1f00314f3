"""Instructions as inline assembly: text and constraints. Strings only."""

from __future__ import annotations

from lowering.instructions import MmaInst

_LETTERS = {"f32": "f", "f64": "d"}


def letter(inst: MmaInst, role: str) -> str:
    """Return the constraint letter of an operand's registers: f, d, or r for 32-bit words.

    >>> from lowering.instructions import MMA_INSTRUCTIONS
    >>> [letter(MMA_INSTRUCTIONS[0], role) for role in "DA"]
    ['f', 'r']
    """
    return _LETTERS.get(inst.fragment(role).dtype, "r")


def counts(inst: MmaInst) -> tuple[int, int, int]:
    """Return how many registers a lane passes for D (and C), A and B.

    >>> from lowering.instructions import MMA_INSTRUCTIONS
    >>> counts(MMA_INSTRUCTIONS[0])
    (4, 4, 2)
    """
    d, a, b = (inst.fragment(role).registers for role in "DAB")
    return d, a, b


def mma_text(inst: MmaInst, sigil: str, in_place: bool) -> str:
    """Return the instruction with numbered operands, in PTX order D, A, B, C.

    Args:
        inst: a row of the table.
        sigil: ``$`` for LLVM, ``%`` for CUDA C++.
        in_place: C is D (read and written), else C follows B as registers of its own.

    >>> from lowering.instructions import MMA_INSTRUCTIONS
    >>> print(mma_text(MMA_INSTRUCTIONS[2], "%", True))
    mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};
    """
    d, a, b = counts(inst)
    starts = (0, d, d + a, 0 if in_place else d + a + b)
    groups = []
    for start, count in zip(starts, (d, a, b, d), strict=True):
        groups.append("{" + ",".join(f"{sigil}{start + i}" for i in range(count)) + "}")
    return f"{inst.ptx} {', '.join(groups)};"


def mma_constraints(inst: MmaInst) -> str:
    """Return the LLVM constraints of the form with separate C: outputs, then A, B, C.

    >>> from lowering.instructions import MMA_INSTRUCTIONS
    >>> mma_constraints(MMA_INSTRUCTIONS[2])
    '=f,=f,=f,=f,r,r,r,f,f,f,f'
    """
    d, a, b = counts(inst)
    each = [f"={letter(inst, 'D')}"] * d + [letter(inst, "A")] * a
    each += [letter(inst, "B")] * b + [letter(inst, "D")] * d
    return ",".join(each)
