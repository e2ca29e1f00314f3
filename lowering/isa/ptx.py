"""PTX instructions as inline assembly: the text, and the constraint of each operand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from layoutalg import LayoutError, fragments
from layoutalg.fragments.targets import TARGETS, has, lacking, targets_of
from lowering.isa.grammar import statements
from lowering.isa.mma import MmaInst

_LETTERS = {"f32": "f", "f64": "d"}
# The first target (or the targets) of an instruction that not all targets have. The longest name
# that a mnemonic begins with counts. Matrix instructions have rows of their own; a test compares
# this table with nvJitLink.
# Source: PTX ISA, "Target ISA Notes" of each.
ARCHS = {
    "max.NaN": "sm_80", "min.NaN": "sm_80", "fma.rn.bf16x2": "sm_80",
    "ex2.approx.ftz.bf16x2": "sm_90", "tanh.approx.bf16x2": "sm_90", "cp.async": "sm_80",
    "cvt.rn.f16x2.f32": "sm_80", "cvt.rn.bf16x2.f32": "sm_80", "cvt.rna.tf32": "sm_80",
    "cvt.rn.f16x2.e4m3x2": "sm_89", "cvt.rn.f16x2.e5m2x2": "sm_89", "cvt.rn.satfinite": "sm_89",
    "mbarrier": "sm_80", "mbarrier.try_wait": "sm_90", "mbarrier.arrive.expect_tx": "sm_90",
    "mbarrier.arrive.shared::cluster": "sm_90", "fence.mbarrier_init": "sm_90",
    "fence.proxy.async": "sm_90", "cp.async.bulk": "sm_90", "prefetch.tensormap": "sm_90",
    "mapa": "sm_90", "barrier.cluster": "sm_90", "griddepcontrol": "sm_90", "elect.sync": "sm_90",
    "red.relaxed.gpu.global.add.noftz.bf16x2": "sm_90",
    "setmaxnreg": "sm_90a, sm_100a, sm_110a, sm_120a",
}  # fmt: skip


def _arch(mnemonic: str) -> str:
    """Return the targets of a mnemonic."""
    known = [name for name in ARCHS if mnemonic.startswith(name)]
    return ARCHS[max(known, key=len)] if known else TARGETS[0]


def letter(token: str) -> str:
    """Return the constraint letter of a register of this dtype: f, d, or r for 32-bit words.

    >>> letter("f32"), letter("bf16")
    ('f', 'r')
    """
    return _LETTERS.get(token, "r")


def counts(inst: MmaInst) -> tuple[int, int, int]:
    """Return how many registers a lane passes for D (and C), A and B.

    >>> from lowering.isa.mma import MMA_INSTRUCTIONS
    >>> counts(MMA_INSTRUCTIONS[0])
    (4, 4, 2)
    """
    d, a, b = (inst.fragment(role).registers for role in "DAB")
    return d, a, b


@dataclass(frozen=True)
class Asm:
    """One asm statement: text with ``$n`` operands, constraint letters of outputs and inputs.

    ``min_arch``: the targets that have it, as :mod:`layoutalg.fragments.targets` reads them; taken
    from :data:`ARCHS` unless given. ``in_place``: the outputs are read-write operands, tied to
    inputs that follow the others. ``pure``: it has no effect but its outputs, so a compiler may
    move it, or drop it where nobody reads them.
    """

    name: str
    text: str
    outputs: str
    inputs: str
    min_arch: str = ""
    in_place: bool = False
    pure: bool = False

    def __post_init__(self) -> None:
        """Look the targets up in :data:`ARCHS` unless they are given."""
        if not self.min_arch:
            object.__setattr__(self, "min_arch", _arch(self.mnemonic))

    @property
    def mnemonic(self) -> str:
        """The mnemonic with its qualifiers; of several instructions, the one with fewest targets.

        >>> cp_async(16).mnemonic, mbarrier_wait().mnemonic
        ('cp.async.cg.shared.global', 'mbarrier.try_wait.parity.shared::cta.b64')
        """
        found = [each.mnemonic.text for each in statements(self.text)]
        return min(reversed(found), key=lambda each: len(targets_of(_arch(each))))

    @property
    def early(self) -> str:
        """``&`` where an output may be set before the last input is read, else nothing.

        Without it a compiler may give both one register, which several instructions do not survive.

        >>> prmt(0x5410).early, cp_async_or_zero().early, mapa().early
        ('', '', '')
        >>> from lowering.isa.casts import cast
        >>> cast("bf16", "f32").asm.constraints
        '=&f,=&f,r'
        """
        return "&" if self.outputs and not self.in_place and self.text.count(";") > 1 else ""

    @property
    def constraints(self) -> str:
        """The LLVM constraint string."""
        tied = map(str, range(len(self.outputs) * self.in_place))
        outputs = (f"={self.early}{letter}" for letter in self.outputs)
        return ",".join([*outputs, *self.inputs, *tied])

    def c_text(self) -> str:
        """Return the text with the ``%n`` operands of CUDA C++."""
        return self.text.replace("$", "%")


def check_target(calls: Iterable[Asm], arch: str, operation: str) -> None:
    """Refuse a target that lacks an instruction.

    Args:
        calls: the statements of the kernel.
        arch: the target.
        operation: named in the error.

    Raises:
        LayoutError: the target lacks one (the message names the targets that have it), or is
            unknown.

    >>> check_target([cp_async(16)], "sm_75", "lower")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: lower: sm_75 lacks cp.async.cg.shared.global; sm_80 and newer \
have it
    """
    for asm in calls:
        if not has(asm.min_arch, arch):
            raise LayoutError(f"{operation}: {lacking(asm.mnemonic, asm.min_arch, arch)}")


def braced(start: int, count: int) -> str:
    """Return a vector operand: registers in braces.

    >>> braced(2, 3)
    '{$2,$3,$4}'
    """
    return "{" + ",".join(f"${start + i}" for i in range(count)) + "}"


def _extras(inst: MmaInst, start: int, selectors: tuple[int, ...]) -> str:
    """Return the operands after C, from ``$start`` on, each with its selector.

    The sparsity selector of E is 0; a scale is byte ``selector`` of the registers of the first
    lanes of each group.
    """
    if not inst.extras:
        return ""
    if inst.kind == "sp":
        return f", ${start}, 0"
    scales = enumerate(selectors or (0,) * len(inst.extras))
    return "".join(f", ${start + i}, {{{byte}, 0}}" for i, byte in scales)


def mma_name(inst: MmaInst, selectors: tuple[int, ...] = ()) -> str:
    """Return the name of the function that wraps an mma.

    >>> from lowering.isa.mma import MMA_INSTRUCTIONS
    >>> mma_name(MMA_INSTRUCTIONS[0])
    'mma_m16n8k16_bf16'
    """
    chosen = [str(byte) for byte in selectors] if any(selectors) else []
    return re.sub(r"\W", "_", "_".join([str(inst), *chosen]))


def mma(inst: MmaInst, selectors: tuple[int, ...] = ()) -> Asm:
    """Return the mma with D and C in different registers; inputs are A, B, extra operands, C.

    Args:
        inst: the instruction.
        selectors: of block scales: the byte of its register at which SFA begins, and SFB.

    >>> from lowering.isa.mma import MMA_INSTRUCTIONS, named
    >>> print(mma(MMA_INSTRUCTIONS[2]).constraints)
    =f,=f,=f,=f,r,r,r,f,f,f,f
    >>> mma(named("mma.sp.m16n8k16.bf16")).text.split(" ", 1)[1]
    '{$0,$1,$2,$3}, {$4,$5}, {$6,$7}, {$9,$10,$11,$12}, $8, 0;'
    """
    d, a, b = counts(inst)
    extra = len(inst.extras)
    lists = f"{braced(0, d)}, {braced(d, a)}, {braced(d + a, b)}, {braced(d + a + b + extra, d)}"
    accumulator = letter(inst.fragment("D").dtype)
    return Asm(
        mma_name(inst, selectors),
        f"{inst.ptx} {lists}{_extras(inst, d + a + b, selectors)};",
        accumulator * d,
        letter(inst.fragment("A").dtype) * a
        + letter(inst.fragment("B").dtype) * b
        + "r" * extra
        + accumulator * d,
        inst.min_arch,
    )


def mma_in_place(inst: MmaInst, selectors: tuple[int, ...] = ()) -> str:
    """Return the mma with C and D in the same registers, operands numbered for CUDA C++.

    >>> from lowering.isa.mma import MMA_INSTRUCTIONS
    >>> print(mma_in_place(MMA_INSTRUCTIONS[2]))
    mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};
    """
    d, a, b = counts(inst)
    lists = f"{braced(0, d)}, {braced(d, a)}, {braced(d + a, b)}, {braced(0, d)}"
    return f"{inst.ptx} {lists}{_extras(inst, d + a + b, selectors)};".replace("$", "%")


def _access(token: str, bits: int) -> tuple[str, int, str]:
    """Return (PTX type, vector length, constraint letter) of an access of some bits."""
    if bits < 32:
        return f"u{bits}", 1, "r"
    if token == "f64":
        return "f64", bits // 64, "d"
    return ("f32" if token == "f32" else "u32"), bits // 32, letter(token)


def _pointer(space: str) -> str:
    return "l" if space == "global" else "r"


def load(space: str, token: str, bits: int) -> Asm:
    """Return the vector load of one access.

    Args:
        space: "global" or "shared"; shared addresses are 32-bit, global ones 64-bit.
        token: PTX name of the element type.
        bits: width of the access: 8, 16, 32, 64 or 128.

    >>> load("shared", "f16", 128).text
    'ld.shared.v4.u32 {$0,$1,$2,$3}, [$4];'
    """
    kind, length, register = _access(token, bits)
    vector = f".v{length}" if length > 1 else ""
    into = braced(0, length) if length > 1 else "$0"
    name = f"ld_{space}{vector.replace('.', '_')}_{kind}"
    text = f"ld.{space}{vector}.{kind} {into}, [${length}];"
    return Asm(name, text, register * length, _pointer(space))


def store(space: str, token: str, bits: int) -> Asm:
    """Return the vector store of one access; operands: address, registers.

    >>> store("global", "f32", 64).text
    'st.global.v2.f32 [$0], {$1,$2};'
    """
    kind, length, register = _access(token, bits)
    vector = f".v{length}" if length > 1 else ""
    source = braced(1, length) if length > 1 else "$1"
    name = f"st_{space}{vector.replace('.', '_')}_{kind}"
    return Asm(
        name, f"st.{space}{vector}.{kind} [$0], {source};", "", _pointer(space) + register * length
    )


# What memory does by itself, by function and type of an element; 16-bit neighbours share a word.
REDUCTIONS = {
    ("add", "f32"): "add.f32", ("add", "f64"): "add.f64", ("add", "s32"): "add.s32",
    ("add", "u32"): "add.u32", ("add", "f16"): "add.noftz.f16x2",
    ("add", "bf16"): "add.noftz.bf16x2", ("min", "s32"): "min.s32", ("max", "s32"): "max.s32",
    ("min", "u32"): "min.u32", ("max", "u32"): "max.u32",
}  # fmt: skip


def red(function: str, token: str) -> Asm:
    """Return the reduction of one word into global memory; operands: address, register.

    >>> red("add", "f32").text, red("add", "bf16").min_arch
    ('red.relaxed.gpu.global.add.f32 [$0], $1;', 'sm_90')
    """
    kind = REDUCTIONS[function, token]
    text = f"red.relaxed.gpu.global.{kind} [$0], $1;"
    return Asm(f"red_{kind.replace('.', '_')}", text, "", f"l{letter(token)}")


def ldmatrix(count: int, trans: bool, token: str = "b32") -> Asm:
    """Return ``ldmatrix`` of 1, 2 or 4 matrices into registers of a type.

    >>> ldmatrix(2, True).text
    'ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {$0,$1}, [$2];'
    """
    form = f"x{count}{'.trans' * trans}"
    text = f"ldmatrix.sync.aligned.m8n8.{form}.shared.b16 {braced(0, count)}, [${count}];"
    arch = fragments.get(f"ldmatrix.m8n8.{form}.b16", "dst").min_arch
    register = letter(token)
    name = f"ldmatrix_{form.replace('.', '_')}{register.strip('r')}"
    return Asm(name, text, register * count, "r", arch)


def stmatrix(count: int, trans: bool, token: str = "b32") -> Asm:
    """Return ``stmatrix`` of 1, 2 or 4 matrices (sm_90); operands: address, registers of a type.

    >>> stmatrix(4, False).text
    'stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1,$2,$3,$4};'
    """
    form = f"x{count}{'.trans' * trans}"
    text = f"stmatrix.sync.aligned.m8n8.{form}.shared.b16 [$0], {braced(1, count)};"
    arch = fragments.get(f"stmatrix.m8n8.{form}.b16", "src").min_arch
    register = letter(token)
    name = f"stmatrix_{form.replace('.', '_')}{register.strip('r')}"
    return Asm(name, text, "", "r" + register * count, arch)


# Shapes of ldmatrix and stmatrix for 8-, 6- and 4-bit types, which have no rows in the fragment
# table: registers by count, types, whether transposed.
WIDE_ARCH = "sm_100a, sm_110a, sm_120a"
_WIDE_TYPES = ("b8", "b8x16.b6x16_p32", "b8x16.b4x16_p64")
WIDE: dict[tuple[str, str], tuple[dict[int, int], tuple[str, ...], bool]] = {
    ("ldmatrix", "m16n16"): ({1: 2, 2: 4}, _WIDE_TYPES, True),
    ("ldmatrix", "m8n16"): ({1: 1, 2: 2, 4: 4}, _WIDE_TYPES[1:], False),
    ("stmatrix", "m16n8"): ({1: 1, 2: 2, 4: 4}, _WIDE_TYPES[:1], True),
}


def wide_matrix(verb: str, shape: str, count: int, kind: str) -> Asm:
    """Return ``ldmatrix`` or ``stmatrix`` of a shape of :data:`WIDE`.

    >>> wide_matrix("ldmatrix", "m16n16", 1, "b8").text
    'ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {$0,$1}, [$2];'
    """
    registers, _, trans = WIDE[verb, shape]
    mnemonic = f"{verb}.sync.aligned.{shape}.x{count}{'.trans' * trans}.shared.{kind}"
    name = f"{verb}_{shape}_x{count}_{kind.replace('.', '_')}"
    words = registers[count]
    if verb == "ldmatrix":
        return Asm(name, f"{mnemonic} {braced(0, words)}, [${words}];", "r" * words, "r", WIDE_ARCH)
    return Asm(name, f"{mnemonic} [$0], {braced(1, words)};", "", "r" + "r" * words, WIDE_ARCH)


def movmatrix() -> Asm:
    """Return ``movmatrix``: the transpose of an 8x8 matrix of 16-bit elements, in registers.

    >>> movmatrix().text
    'movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;'
    """
    text = "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;"
    arch = fragments.get("movmatrix.m8n8.trans.b16", "dst").min_arch
    return Asm("movmatrix_trans", text, "r", "r", arch)


def cp_async(size: int) -> Asm:
    """Return ``cp.async`` of 4, 8 or 16 bytes from global to shared memory (sm_80).

    >>> cp_async(16).text
    'cp.async.cg.shared.global [$0], [$1], 16;'
    """
    cache = "cg" if size == 16 else "ca"
    text = f"cp.async.{cache}.shared.global [$0], [$1], {size};"
    return Asm(f"cp_async_{size}", text, "", "rl")


def cp_async_or_zero() -> Asm:
    """Return ``cp.async`` of 16 bytes with a src-size operand: the rest is filled with zeros.

    >>> cp_async_or_zero().text
    'cp.async.cg.shared.global [$0], [$1], 16, $2;'

    Source: PTX ISA, cp.async.
    """
    return Asm("cp_async_16_or_zero", "cp.async.cg.shared.global [$0], [$1], 16, $2;", "", "rlr")


def cp_async_commit() -> Asm:
    """Return ``cp.async.commit_group``."""
    return Asm("cp_async_commit", "cp.async.commit_group;", "", "")


def cp_async_wait(pending: int) -> Asm:
    """Return ``cp.async.wait_group``."""
    return Asm(f"cp_async_wait_{pending}", f"cp.async.wait_group {pending};", "", "")


def mbarrier_init() -> Asm:
    """Return ``mbarrier.init``; operands: address, expected arrivals."""
    return Asm("mbarrier_init", "mbarrier.init.shared::cta.b64 [$0], $1;", "", "rr")


def mbarrier_init_fence() -> Asm:
    """Return the proxy fence between ``mbarrier.init`` and TMA's use of the mbarrier."""
    return Asm("mbarrier_init_fence", "fence.proxy.async.shared::cta;", "", "")


def mbarrier_arrive() -> Asm:
    """Return ``mbarrier.arrive``: one arrival.

    >>> mbarrier_arrive().text
    'mbarrier.arrive.shared::cta.b64 _, [$0];'
    """
    return Asm("mbarrier_arrive", "mbarrier.arrive.shared::cta.b64 _, [$0];", "", "r")


def mbarrier_arrive_if() -> Asm:
    """Return ``mbarrier.arrive`` under a predicate; operands: address, whether to arrive.

    It is no branch: a branch between a wgmma and its wait makes ptxas serialise them (C7515).
    """
    text = (
        "{ .reg .pred taking; setp.ne.u32 taking, $1, 0; "
        "@taking mbarrier.arrive.shared::cta.b64 _, [$0]; }"
    )
    return Asm("mbarrier_arrive_if", text, "", "rr")


def mapa() -> Asm:
    """Return ``mapa``: a shared address in another CTA of the cluster; operands: address, rank.

    >>> mapa().text
    'mapa.shared::cluster.u32 $0, $1, $2;'

    Offsets may be added to the result. Source: PTX ISA, mapa.
    """
    return Asm("mapa", "mapa.shared::cluster.u32 $0, $1, $2;", "r", "rr")


def mbarrier_arrive_cluster() -> Asm:
    """Return a predicated ``mbarrier.arrive`` in any CTA of the cluster; operands as above.

    The scope stays the default: ``.cluster`` compiles to a ``MEMBAR``, which TMA does not need.

    Source: PTX ISA, mbarrier.arrive.
    """
    text = (
        "{ .reg .pred taking; setp.ne.u32 taking, $1, 0; "
        "@taking mbarrier.arrive.shared::cluster.b64 _, [$0]; }"
    )
    return Asm("mbarrier_arrive_cluster", text, "", "rr")


def fence_mbarrier_init() -> Asm:
    """Return the fence that makes ``mbarrier.init`` visible to the other CTAs of the cluster."""
    text = "fence.mbarrier_init.release.cluster;"
    return Asm("fence_mbarrier_init", text, "", "")


def griddepcontrol() -> Asm:
    """Return ``griddepcontrol``: launch dependents, then wait for the previous grid.

    What the previous grid of the stream wrote is visible after it. It costs nothing where that grid
    has ended.

    >>> griddepcontrol().text
    'griddepcontrol.launch_dependents; griddepcontrol.wait;'

    Source: PTX ISA, griddepcontrol; CUDA programming guide, programmatic dependent launch.
    """
    text = "griddepcontrol.launch_dependents; griddepcontrol.wait;"
    return Asm("griddepcontrol", text, "", "")


def sync_cluster(memory: bool) -> Asm:
    """Return ``barrier.cluster``, which waits for all threads of the cluster that have not exited.

    With ``memory`` it releases and acquires. Relaxed, it orders what a fence before it released,
    and waits for no other memory.

    >>> sync_cluster(False).text
    'barrier.cluster.arrive.relaxed; barrier.cluster.wait;'

    Source: PTX ISA, barrier.cluster, and fence.mbarrier_init for what stands before it.
    """
    arrive, wait = ("release", ".acquire") if memory else ("relaxed", "")
    text = f"barrier.cluster.arrive.{arrive}; barrier.cluster.wait{wait};"
    return Asm("sync_cluster" + "_memory" * memory, text, "", "")


def mbarrier_arrive_expect_tx() -> Asm:
    """Return ``mbarrier.arrive.expect_tx``: one arrival; operands: address, bytes to expect."""
    text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
    return Asm("mbarrier_arrive_expect_tx", text, "", "rr")


def mbarrier_wait() -> Asm:
    """Return a loop on ``mbarrier.try_wait`` until a phase completes; operands: address, parity."""
    text = (
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; "
        "@!done bra again; }"
    )
    return Asm("mbarrier_wait", text, "", "rr")


def mbarrier_test_wait() -> Asm:
    """Return ``mbarrier.test_wait`` as a word: 1 where the phase of the parity is complete."""
    text = (
        "{ .reg .pred done; mbarrier.test_wait.parity.shared::cta.b64 done, [$1], $2; "
        "selp.u32 $0, 1, 0, done; }"
    )
    return Asm("mbarrier_test_wait", text, "r", "rr")


def setmaxnreg(count: int, more: bool) -> Asm:
    """Return ``setmaxnreg`` (sm_90a): raise or lower the registers of each thread of a warpgroup.

    >>> setmaxnreg(240, True).text
    'setmaxnreg.inc.sync.aligned.u32 240;'
    """
    verb = "inc" if more else "dec"
    return Asm(f"setmaxnreg_{verb}_{count}", f"setmaxnreg.{verb}.sync.aligned.u32 {count};", "", "")


def sync_warpgroup(threads: int) -> Asm:
    """Return a named barrier of a warpgroup; the operand is the number of the barrier.

    >>> sync_warpgroup(128).text
    'bar.sync $0, 128;'
    """
    return Asm(f"sync_warpgroup_{threads}", f"bar.sync $0, {threads};", "", "r")


def sync_some(threads: int) -> Asm:
    """Return named barrier 1, which so many threads wait at.

    >>> sync_some(256).text
    'bar.sync 1, 256;'
    """
    return Asm(f"sync_{threads}", f"bar.sync 1, {threads};", "", "")


def prefetch_tensormap() -> Asm:
    """Return ``prefetch.tensormap``; operand: the tensor map.

    >>> prefetch_tensormap().text
    'prefetch.tensormap [$0];'
    """
    return Asm("prefetch_tensormap", "prefetch.tensormap [$0];", "", "l")


def tma_load() -> Asm:
    """Return the TMA load of a box; operands: shared address, tensor map, column, row, mbarrier.

    Source: PTX ISA, cp.async.bulk.tensor; the innermost coordinate comes first.
    """
    text = (
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[$0], [$1, {$2, $3}], [$4];"
    )
    return Asm("tma_load", text, "", "rlrrr")


def tma_load_multicast(cluster: int) -> Asm:
    """Return the TMA load of a box to the same address and mbarrier of every CTA of a cluster.

    >>> tma_load_multicast(2).text.split("; ", 2)[1]
    'mov.b16 all, 3'

    Source: PTX ISA, cp.async.bulk.tensor, ``.multicast::cluster``: bit n of a mask is CTA n.
    """
    text = (
        f"{{ .reg .b16 all; mov.b16 all, {(1 << cluster) - 1}; "
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [$0], [$1, {$2, $3}], [$4], all; }"
    )
    return Asm(f"tma_load_multicast_{cluster}", text, "", "rlrrr")


def tma_store() -> Asm:
    """Return the TMA store of a box; operands: tensor map, column, row, shared address.

    >>> tma_store().mnemonic
    'cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group'
    """
    text = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [$0, {$1, $2}], [$3];"
    return Asm("tma_store", text, "", "lrrr")


def tma_store_commit() -> Asm:
    """Return ``cp.async.bulk.commit_group``."""
    return Asm("tma_store_commit", "cp.async.bulk.commit_group;", "", "")


def tma_store_wait(pending: int) -> Asm:
    """Return ``cp.async.bulk.wait_group.read``: shared memory has been read and may be reused.

    >>> tma_store_wait(1).text
    'cp.async.bulk.wait_group.read 1;'
    """
    text = f"cp.async.bulk.wait_group.read {pending};"
    return Asm(f"tma_store_wait_{pending}", text, "", "")


def prmt(selector: int) -> Asm:
    """Return ``prmt``: four bytes out of the eight of two words, by the digits of a constant.

    >>> prmt(0x5410).text
    'prmt.b32 $0, $1, $2, 0x5410;'
    """
    return Asm(
        f"prmt_{selector:04x}", f"prmt.b32 $0, $1, $2, 0x{selector:04x};", "r", "rr", pure=True
    )


def prmt_by_thread() -> Asm:
    """Return ``prmt`` with the selector in a register, the third operand."""
    return Asm("prmt", "prmt.b32 $0, $1, $2, $3;", "r", "rrr", pure=True)


def nibbles_by_thread() -> Asm:
    """Return eight neighbours of the 16 elements of 4 bits in two words, from any of them on.

    The third operand is the bit at which the first begins; after the last come the first ones.
    """
    text = (
        "{ .reg .pred p; .reg .b32 a, b; shf.r.wrap.b32 a, $1, $2, $3; "
        "shf.r.wrap.b32 b, $2, $1, $3; setp.lt.u32 p, $3, 32; selp.b32 $0, a, b, p; }"
    )
    return Asm("nibbles", text, "r", "rrr", pure=True)


def shuffle(token: str, mask: int | None = None) -> Asm:
    """Return ``shfl.sync`` of a whole warp: the register that another lane has. 64 bits take two.

    Of the lane whose number differs by an XOR with ``mask``; without one, of the lane that the
    second operand says.

    >>> print(shuffle("f32").text, shuffle("f32", 4).text)
    shfl.sync.idx.b32 $0, $1, $2, 31, 0xffffffff; shfl.sync.bfly.b32 $0, $1, 4, 31, 0xffffffff;

    Source: PTX ISA, shfl.sync; the clamp of 31 lets whole warps exchange.
    """
    kind = letter(token)
    mode, lane, name = ("idx", "$2", "idx") if mask is None else ("bfly", mask, f"bfly_{mask}")
    text = f"shfl.sync.{mode}.b32 {{0}}, {{1}}, {lane}, 31, 0xffffffff;"
    if kind == "d":
        halves = " ".join(text.format(each, each) for each in "lh")
        text = f"{{ .reg .b32 l, h; mov.b64 {{l, h}}, $1; {halves} mov.b64 $0, {{l, h}}; }}"
    else:
        text = text.format("$0", "$1")
    return Asm(f"shfl_{name}_{kind}", text, kind, kind + "r" * (mask is None))


def constant(bits: int, token: str) -> Asm:
    """Return a register of a type, set to a constant of these bits.

    >>> constant(0x3F800000, "f32").text
    'mov.f32 $0, 0f3F800000;'
    """
    kind = letter(token)
    form, width, prefix = {"f": ("f32", 8, "0f"), "d": ("f64", 16, "0d")}.get(
        kind, ("b32", 8, "0x")
    )
    text = f"mov.{form} $0, {prefix}{bits:0{width}X};"
    return Asm(f"constant_{form}_{bits:x}", text, kind, "", pure=True)


def shared_address() -> Asm:
    """Return ``cvta`` of a generic address to a 32-bit shared one."""
    text = "{ .reg .u64 a; cvta.to.shared.u64 a, $1; cvt.u32.u64 $0, a; }"
    return Asm("shared_address", text, "r", "l")
