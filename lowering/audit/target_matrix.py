"""Which target has which instruction: a matrix that nvJitLink measures.

Each form of each instruction is a PTX statement. All of them go into one module per target, one on
a line: nvJitLink names the lines that the target lacks, and assembles the module of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, product

from layoutalg import fragments
from layoutalg.fragments.targets import TARGETS, parts, targets_of
from lowering.isa import ptx, tcgen05, wgmma
from lowering.isa.mma import MMA_EXTENDED, MMA_FAMILY
from lowering.isa.nvjitlink import AssembleError, assemble, version
from lowering.isa.ptx import Asm
from lowering.isa.smem_descriptor import Descriptor

_KINDS = {"f": "f32", "d": "f64", "r": "b32", "l": "b64", "p": "pred"}
_DECLARED = " ".join(f".reg .{kind} %{letter}<256>;" for letter, kind in _KINDS.items())
_TYPES_BY_D = {"f32": "f16", "f16": "f16", "s32": "s8"}  # a type of A and B for a D of wgmma


@dataclass(frozen=True)
class Form:
    """One PTX statement of an instruction; a register is ``%`` and a letter of its kind: ``%f0``.

    ``instruction`` is its name in the fragment table, or where that has no row the start of its
    mnemonic; ``name`` tells the forms of an instruction apart.

    >>> forms()[0].mnemonic
    'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32'
    """

    instruction: str
    name: str
    mnemonic: str
    text: str
    min_arch: str


def _of(instruction: str, asm: Asm, name: str = "") -> Form:
    """Return the form of an asm statement."""
    kinds = asm.outputs + asm.inputs
    text = re.sub(r"\$(\d+)", lambda found: f"%{kinds[int(found[1])]}{found[1]}", asm.text)
    return Form(instruction, name or instruction, asm.mnemonic, text, asm.min_arch)


def _wgmma_forms() -> Iterator[Form]:
    for name in fragments.names():
        if not name.startswith("wgmma."):
            continue
        for row in fragments.rows(name):
            if row.operand == "A.reg":
                inst, label = wgmma.get(8, row.dtype), name
            else:
                token = _TYPES_BY_D[row.dtype]
                inst = wgmma.get(row.shape[1], token, token, row.dtype)
                label = f"{name} {row.dtype}"
            b = Descriptor("K", 0, 128, 256, inst.b.bits)
            yield _of(name, wgmma.multiply(inst, None, b, True), label)


def _matrix_forms() -> Iterator[Form]:
    for name in fragments.names():
        found = re.fullmatch(r"(ld|st)matrix\.m8n8\.x(\d)(\.trans)?\.b16", name)
        if found is not None:
            build = ptx.ldmatrix if found[1] == "ld" else ptx.stmatrix
            yield _of(name, build(int(found[2]), found[3] is not None))
        elif name.startswith("movmatrix."):
            yield _of(name, ptx.movmatrix())


def _wide_matrix_forms() -> Iterator[Form]:
    """Yield the forms of ldmatrix and stmatrix for 8-, 6- and 4-bit types."""
    for (verb, shape), (registers, kinds, _) in ptx.WIDE.items():
        for count, kind in product(registers, kinds):
            asm = ptx.wide_matrix(verb, shape, count, kind)
            yield _of(f"{verb}.{shape}", asm, asm.mnemonic)


def _tmem_forms() -> Iterator[Form]:
    """Yield tcgen05.ld and tcgen05.st of the table, and the waits for them."""
    for name in fragments.names():
        found = re.fullmatch(r"tcgen05\.(ld|st)\.(\w+)\.x(\d+)\.b32", name)
        if found is None:
            continue
        (row,) = fragments.rows(name)
        build = tcgen05.load if found[1] == "ld" else tcgen05.store
        yield _of(name, build(found[2], int(found[3]), "r" * row.registers))
    for verb in ("ld", "st"):
        asm = tcgen05.wait(verb)
        yield _of("tcgen05.wait", asm, asm.mnemonic)


@cache
def forms() -> tuple[Form, ...]:
    """Return every form: first those of the fragment table, then those without rows there.

    >>> [form.name for form in forms() if form.instruction == "mma.m8n8k128.b1"]
    ['mma.m8n8k128.b1 and', 'mma.m8n8k128.b1 xor']
    """
    rows = (*MMA_FAMILY, *MMA_EXTENDED)
    products = [_of(row.name, ptx.mma(row), str(row)) for row in rows]
    moved = [_of("cp.async", ptx.cp_async(size), f"cp.async {size}") for size in (16, 8, 4)]
    return (
        *products,
        *_matrix_forms(),
        *_wgmma_forms(),
        *_tmem_forms(),
        *_wide_matrix_forms(),
        *moved,
    )


def module(statements: Sequence[str], target: str) -> str:
    """Return a PTX module with a kernel for each statement, on lines of their own from 2 on.

    PTX 9.0 has all of them, and every driver and assembler of CUDA 13 reads it; sm_107 needs 9.4.

    >>> print(module(["trap;"], "sm_107"))
    .version 9.4 .target sm_107 .address_size 64
    .visible .entry kernel0() { .reg ... trap; ret; }
    <BLANKLINE>
    """
    ptx_version = "9.4" if parts(target)[0] == 107 else "9.0"
    kernels = (
        f".visible .entry kernel{number}() {{ {_DECLARED} {statement} ret; }}"
        for number, statement in enumerate(statements)
    )
    return "\n".join([f".version {ptx_version} .target {target} .address_size 64", *kernels, ""])


def accepted(statements: Sequence[str], target: str) -> tuple[bool, ...]:
    """Ask nvJitLink which statements a target has.

    An error in a statement's line refuses it; a module that assembles accepts the others.

    Raises:
        AssembleError: it is not installed, does not know the target, or names no line.

    >>> accepted(["movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;", "frob;"], "sm_75")
    (True, False)
    """
    left = dict(enumerate(statements))
    while left:
        try:
            assemble(module(list(left.values()), target), target)
        except AssembleError as error:
            lines = {int(at) for at in re.findall(r"line (\d+); (?:error|fatal)", str(error))}
            refused = [number for line, number in enumerate(left, 2) if line in lines]
            if not refused:
                raise
            for number in refused:
                del left[number]
        else:
            break
    return tuple(number in left for number in range(len(statements)))


@dataclass(frozen=True)
class Table:
    """Instruction × target.

    ``having[i]`` are the ``targets`` that have ``forms[i]``; ``source`` says where that is from.
    """

    forms: tuple[Form, ...]
    having: tuple[tuple[str, ...], ...]
    targets: tuple[str, ...]
    source: str

    def lines(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return (instruction, targets): its forms one by one only where they differ.

        >>> table((form for form in forms() if form.instruction == "mma.m8n8k16.s8")).lines()[0][0]
        'mma.m8n8k16.s8'
        """
        found: list[tuple[str, tuple[str, ...]]] = []
        pairs = zip(self.forms, self.having, strict=True)
        for instruction, each in groupby(pairs, key=lambda pair: pair[0].instruction):
            group = list(each)
            if len({having for _, having in group}) == 1:
                found.append((instruction, group[0][1]))
            else:
                found.extend((form.name, having) for form, having in group)
        return found

    def columns(self) -> dict[str, list[str]]:
        """Return the targets that have the same instructions, by the first of each."""
        alike: dict[tuple[bool, ...], list[str]] = {}
        for target in self.targets:
            alike.setdefault(tuple(target in having for having in self.having), []).append(target)
        return {same[0]: same for same in alike.values()}

    def text(self) -> str:
        """Return the table as text: ``x`` where the target of the column has the instruction.

        Targets that have the same instructions share a column, which is named after the first.
        """
        lines, columns = self.lines(), self.columns()
        width = max((len(name) for name, _ in lines), default=0)
        out = [f"instruction × target, {self.source}"]
        out += [f"column {first}: {', '.join(same)}" for first, same in columns.items() if same[1:]]
        out.append(" ".join(["".ljust(width), *columns]))
        for name, having in lines:
            marks = (("x" if first in having else ".").center(len(first)) for first in columns)
            out.append(" ".join([name.ljust(width), *marks]).rstrip())
        return "\n".join(out)


def table(chosen: Iterable[Form] | None = None) -> Table:
    """Return which targets have which forms, as the installed nvJitLink says.

    Targets that it does not know are left out, and named. Where it is not installed, or knows none,
    the table is that of the rows' ``min_arch``, and says so.

    Args:
        chosen: forms; all of :func:`forms` when None.

    >>> pair = [form for form in forms() if form.instruction == "stmatrix.m8n8.x4.b16"]
    >>> table(pair).having[0][0]
    'sm_90'
    """
    every = forms() if chosen is None else tuple(chosen)
    texts = [form.text for form in every]
    said: dict[str, tuple[bool, ...]] = {}
    reason = ""
    try:
        source = f"measured: nvJitLink {version()}"
        for target in TARGETS:
            try:
                said[target] = accepted(texts, target)
            except AssembleError as error:
                reason = reason or str(error)
    except AssembleError as error:
        reason = str(error)
    if not said:
        having = tuple(targets_of(form.min_arch) for form in every)
        return Table(every, having, TARGETS, f"not measured, from the fragment table: {reason}")
    missing = [target for target in TARGETS if target not in said]
    if missing:
        source += f", which does not take {', '.join(missing)}"
    having = tuple(tuple(t for t in said if said[t][row]) for row in range(len(every)))
    return Table(every, having, tuple(said), source)
