"""Which target has which instruction, as nvJitLink says it: instruction × target, measured.

Each form of each instruction is a PTX statement. All of them go into one module per target, one a
line: nvJitLink names the lines that the target lacks, and assembles the module of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, product

from layoutalg import fragments
from layoutalg.fragments.targets import TARGETS, parts, targets_of
from layoutalg.sizes.dtypes import bits_of
from lowering.isa import ptx
from lowering.isa.mma import MMA_EXTENDED, MMA_FAMILY
from lowering.isa.nvjitlink import AssembleError, assemble, version
from lowering.isa.ptx import Asm

_KINDS = {"f": "f32", "d": "f64", "r": "b32", "l": "b64", "p": "pred"}
_DECLARED = " ".join(f".reg .{kind} %{letter}<256>;" for letter, kind in _KINDS.items())
_WIDE = ("b8", "b8x16.b6x16_p32", "b8x16.b4x16_p64")  # what the wide ldmatrix moves
_TMEM_ARCH = "sm_100a, sm_110a"
_WIDE_ARCH = "sm_100a, sm_110a, sm_120a"
_TYPES_BY_D = {"f32": "f16", "f16": "f16", "s32": "s8"}  # a type of A and B for a D of wgmma


@dataclass(frozen=True)
class Form:
    """One PTX statement of an instruction; a register is ``%`` and a letter of its kind: ``%f0``.

    ``instruction`` is its name in the fragment table, or where that has no row the start of its
    mnemonic; ``name`` tells the forms of an instruction apart.
    """

    instruction: str
    name: str
    text: str
    min_arch: str

    @property
    def mnemonic(self) -> str:
        """The instruction with its qualifiers.

        >>> forms()[0].mnemonic
        'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32'
        """
        return self.text.split()[0].removesuffix(";")


def _registers(letter: str, count: int) -> str:
    return "{" + ",".join(f"%{letter}{i}" for i in range(count)) + "}"


def _of(instruction: str, asm: Asm, name: str = "") -> Form:
    """Return the form of an asm statement."""
    kinds = asm.outputs + asm.inputs
    text = re.sub(r"\$(\d+)", lambda found: f"%{kinds[int(found[1])]}{found[1]}", asm.text)
    return Form(instruction, name or instruction, text, asm.min_arch)


def _plain(instruction: str, mnemonic: str, operands: str, arch: str) -> Form:
    return Form(instruction, mnemonic, f"{mnemonic} {operands};", arch)


def wgmma(n: int, d: str, a: str, b: str) -> str:
    """Return a ``wgmma.mma_async`` with A in registers and B behind a descriptor, as PTX text.

    Args:
        n: columns of D.
        d: type of D.
        a: type of A.
        b: type of B.

    Raises:
        LayoutError: no D of this type has so many columns.

    >>> print(wgmma(8, "s32", "s8", "u8"))
    wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8 {%r0,%r1,%r2,%r3}, {%r0,%r1,%r2,%r3}, %l0, %p0;
    """
    into = _registers(
        "f" if d == "f32" else "r", fragments.get(f"wgmma.m64n{n}", f"D.{d}").registers
    )
    scales = {"s32": ""}.get(d, ", 1, 1") + (", 0" if a in ("f16", "bf16") else "")
    mnemonic = f"wgmma.mma_async.sync.aligned.m64n{n}k{256 // bits_of(a)}.{d}.{a}.{b}"
    return f"{mnemonic} {into}, {_registers('r', 4)}, %l0, %p0{scales};"


def _wgmma_forms() -> Iterator[Form]:
    for name in fragments.names():
        if not name.startswith("wgmma."):
            continue
        for row in fragments.rows(name):
            if row.operand == "A.reg":
                d = "s32" if row.dtype in ("s8", "u8") else "f32"
                text, label = wgmma(8, d, row.dtype, row.dtype), name
            else:
                n, token = row.shape[1], _TYPES_BY_D[row.dtype]
                text, label = wgmma(n, row.dtype, token, token), f"{name} {row.dtype}"
            yield Form(name, label, text, row.min_arch)


def _matrix_forms() -> Iterator[Form]:
    for name in fragments.names():
        found = re.fullmatch(r"(ld|st)matrix\.m8n8\.x(\d)(\.trans)?\.b16", name)
        if found is not None:
            build = ptx.ldmatrix if found[1] == "ld" else ptx.stmatrix
            yield _of(name, build(int(found[2]), found[3] is not None))
        elif name.startswith("movmatrix."):
            yield _of(name, ptx.movmatrix())


def _wide_matrix_forms() -> Iterator[Form]:
    """Yield the forms of ldmatrix and stmatrix that move types of 8 bits and less."""
    for count, kind in product((1, 2), _WIDE):
        mnemonic = f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.{kind}"
        operands = f"{_registers('r', 2 * count)}, [%r9]"
        yield _plain("ldmatrix.m16n16", mnemonic, operands, _WIDE_ARCH)
    for count, kind in product((1, 2, 4), _WIDE[1:]):
        mnemonic = f"ldmatrix.sync.aligned.m8n16.x{count}.shared.{kind}"
        operands = f"{_registers('r', count)}, [%r9]"
        yield _plain("ldmatrix.m8n16", mnemonic, operands, _WIDE_ARCH)
    for count in (1, 2, 4):
        mnemonic = f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8"
        operands = f"[%r9], {_registers('r', count)}"
        yield _plain("stmatrix.m16n8", mnemonic, operands, _WIDE_ARCH)


def _tmem_forms() -> Iterator[Form]:
    """Yield tcgen05.ld and tcgen05.st of the table, and the waits for them."""
    for name in fragments.names():
        found = re.fullmatch(r"tcgen05\.(ld|st)\.(\w+)\.(x\d+)\.b32", name)
        if found is None:
            continue
        (row,) = fragments.rows(name)
        half = ", 0" if found[2] == "16x32bx2" else ""
        place, values = f"[%r9]{half}", _registers("r", row.registers)
        operands = f"{values}, {place}" if found[1] == "ld" else f"{place}, {values}"
        mnemonic = f"tcgen05.{found[1]}.sync.aligned.{found[2]}.{found[3]}.b32"
        yield Form(name, name, f"{mnemonic} {operands};", row.min_arch)
    for verb in ("ld", "st"):
        text = f"tcgen05.wait::{verb}.sync.aligned"
        yield Form("tcgen05.wait", text, f"{text};", _TMEM_ARCH)


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

    PTX 9.0 has all of them and, unlike what is newer, every driver and assembler of CUDA 13 reads
    it; sm_107 came with 9.4.

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

    A statement is refused by an error in its line, and accepted in a module that assembles.

    Raises:
        AssembleError: it is not installed, does not take the target, or names no line.

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

    ``having[i]`` are those of ``targets`` that have ``forms[i]``; ``source`` says who says so.
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
    """Return which targets have which forms, as nvJitLink says it now.

    Targets that the installed nvJitLink does not take are left out, and named. Where it is not
    installed, or takes none, the answer is that of the rows' ``min_arch``, and says so.

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
