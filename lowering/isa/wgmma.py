"""``wgmma``: the warpgroup-wide mma of sm_90a, as checked rows and as inline assembly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from layoutalg import LayoutError, fragments
from layoutalg.fragments import Fragment
from layoutalg.fragments.targets import has
from lowering.isa import dtypes
from lowering.isa.dtypes import DType
from lowering.isa.ptx import Asm, braced, letter
from lowering.isa.smem_descriptor import STEP, Descriptor

ARCH = "sm_90a"  # the only target that has it
COLUMNS = range(8, 257, 8)  # N of any type

# types of A and B that may be mixed, and their accumulators
_KINDS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("f16",), ("f32", "f16")),
    (("bf16",), ("f32",)),
    (("tf32",), ("f32",)),
    (("e4m3", "e5m2"), ("f32", "f16")),
    (("s8", "u8"), ("s32",)),
)


def accumulators(a: str, b: str) -> tuple[str, ...]:
    """Return the accumulator types of two operand types; none where no wgmma multiplies them.

    >>> accumulators("e4m3", "e5m2"), accumulators("f16", "bf16")
    (('f32', 'f16'), ())
    """
    return next((into for kind, into in _KINDS if a in kind and b in kind), ())


@dataclass(frozen=True)
class WgmmaInst:
    """One ``wgmma.mma_async``: D[64,n] += A[64,k]·B[k,n], k being 32 bytes of A.

    Its fragments are in the table: "A.reg" for A in registers, and D. ``modifier`` is "satfinite"
    where integers saturate.

    >>> get(128, "f16").ptx
    'wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16'
    """

    n: int
    a: DType
    b: DType
    d: DType
    modifier: str = ""

    def __post_init__(self) -> None:
        """Check the row against its fragments.

        Raises:
            LayoutError: types that no wgmma multiplies, an N that the type lacks, or a fragment of
                another shape or type.
        """
        known = accumulators(self.a.token, self.b.token)
        if self.d.token not in known:
            have = " or ".join(known) or "none: A and B must be of one kind"
            raise LayoutError(
                f"wgmma: accumulators of {self.a.token} x {self.b.token} are {have}; got "
                f"{self.d.token}"
            )
        if self.n not in COLUMNS or not has_columns(self.n, self.d.token):
            raise LayoutError(
                f"wgmma: N of a {self.d.token} accumulator is one of "
                f"{', '.join(map(str, self.legal_n(self.d.token)))}; got {self.n}"
            )
        if self.modifier not in ("", "satfinite") or (self.modifier and self.d.token != "s32"):
            raise LayoutError(
                f"wgmma: the modifier must be '', or 'satfinite' for s32; got {self.modifier!r}"
            )
        for role, shape, dtype in (("A", (self.m, self.k), self.a), ("D", (64, self.n), self.d)):
            found = self.fragment(role)
            if (found.shape, found.dtype, found.bits) != (shape, dtype.token, dtype.bits):
                raise LayoutError(
                    f"wgmma: operand {role} must be {dtype.token} {shape}; its fragment is "
                    f"{found.dtype} {found.shape}"
                )

    @staticmethod
    def legal_n(token: str) -> tuple[int, ...]:
        """Return every N that an accumulator type has: where the table has a fragment for it.

        >>> [n for n in range(8, 257, 8) if n not in WgmmaInst.legal_n("s32")][:3]
        [40, 56, 72]
        """
        return tuple(n for n in COLUMNS if has_columns(n, token))

    @property
    def m(self) -> int:
        """The rows of a warpgroup: 64."""
        return 64

    @property
    def k(self) -> int:
        """K: 32 bytes of A."""
        return STEP * 8 // self.a.bits

    def fragment(self, role: str) -> Fragment:
        """Return the fragment of "A" (in registers), "C" or "D".

        >>> get(8, "f16").fragment("D").registers
        4
        """
        if role == "A":
            return fragments.get(f"wgmma.m64nNk{self.k}.{self.a.token}", "A.reg")
        if role in ("C", "D"):
            return fragments.get(f"wgmma.m64n{self.n}", f"D.{self.d.token}")
        raise LayoutError(f"wgmma: A, C and D have fragments, B lies in shared memory; got {role}")

    @property
    def shape(self) -> str:
        """The shape as PTX writes it."""
        return f"m64n{self.n}k{self.k}"

    @property
    def ptx(self) -> str:
        """The mnemonic with its qualifiers."""
        types = ".".join(each.token for each in (self.d, self.a, self.b))
        after = f".{self.modifier}" if self.modifier else ""
        return f"wgmma.mma_async.sync.aligned.{self.shape}.{types}{after}"

    @property
    def min_arch(self) -> str:
        """The target that has it."""
        return ARCH

    def runs_on(self, arch: str) -> bool:
        """Say whether a target has the instruction: sm_90a alone, no later one.

        >>> get(8, "f16").runs_on("sm_90a"), get(8, "f16").runs_on("sm_100a")
        (True, False)
        """
        return has(ARCH, arch)

    def __str__(self) -> str:
        """Return ``wgmma.m64n128k16.f32.f16.f16``."""
        return self.ptx.replace(".mma_async.sync.aligned", "")


def has_columns(n: int, token: str) -> bool:
    """Say whether an accumulator type has an N: whether the table has a fragment for it.

    >>> has_columns(40, "f32"), has_columns(40, "s32")
    (True, False)
    """
    return f"D.{token}" in fragments.operands(f"wgmma.m64n{n}")


@cache
def get(n: int, a: str, b: str | None = None, d: str | None = None) -> WgmmaInst:
    """Return the instruction of an N and of types by their PTX names.

    Args:
        n: columns of B and D.
        a: type of A.
        b: type of B; by default that of A.
        d: type of the accumulator; by default the first that the operands have.

    Raises:
        LayoutError: there is none.

    >>> str(get(16, "u8", "s8"))
    'wgmma.m64n16k32.s32.u8.s8'
    """
    b = a if b is None else b
    d = d or next(iter(accumulators(a, b)), "f32")
    return WgmmaInst(n, dtypes.get(a), dtypes.get(b), dtypes.get(d))


def operand_types() -> Iterator[tuple[str, str, str]]:
    """Yield every (A, B, D) that there is, as PTX names.

    >>> list(operand_types())[:3]
    [('f16', 'f16', 'f32'), ('f16', 'f16', 'f16'), ('bf16', 'bf16', 'f32')]
    """
    for kind, into in _KINDS:
        yield from ((a, b, d) for a in kind for b in kind for d in into)


# -- inline assembly ------------------------------------------------------------------------------


def multiply(inst: WgmmaInst, a: Descriptor | None, b: Descriptor, accumulate: bool) -> Asm:
    """Return the instruction; operands: D (read and written), A (registers or descriptor), B.

    The operand of a descriptor is its low word; the high word is a constant of the text.

    Args:
        inst: which one.
        a: how A lies in shared memory; None where it lies in registers.
        b: how B lies in shared memory.
        accumulate: add to D; else D is overwritten.

    >>> tile = Descriptor("MN", 128, 8192, 1024, 16)
    >>> multiply(get(8, "f16"), None, tile, True).text
    '{ .reg .pred add; .reg .b64 b; mov.b64 b, {$8, 0x40000040}; setp.ne.b32 add, 1, 0; \
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0,$1,$2,$3}, {$4,$5,$6,$7}, b, add, 1, 1, 1; }'

    Source: PTX ISA, "wgmma.mma_async".
    """
    return multiply_in_turn(inst, a, b, accumulate, 1)


def multiply_in_turn(
    inst: WgmmaInst, a: Descriptor | None, b: Descriptor, accumulate: bool | None, count: int
) -> Asm:
    """Return several products on one D as one statement; operands: D, then A and B of each product.

    So compilers see D as one read-write operand. Arguments as :func:`multiply`; all products but
    the first accumulate; the first too where ``accumulate`` is None and the last operand is not 0.

    >>> tile = Descriptor("K", 0, 128, 256, 16)
    >>> multiply_in_turn(get(8, "f16"), None, tile, False, 2).inputs
    'rrrrrrrrrr'
    >>> made = multiply_in_turn(get(8, "f16"), None, tile, None, 2)
    >>> made.inputs, [made.text.count(f"setp.ne.b32 add, {word}, 0") for word in ("$14", "1")]
    ('rrrrrrrrrrr', [1, 1])
    """
    d = inst.fragment("D").registers
    registers = 1 if a else inst.fragment("A").registers
    signs = "" if inst.d.token == "s32" else ", 1, 1"
    shared = [("a", a)] * (a is not None) + [("b", b)]
    majors = [each.major for _, each in shared if each] if inst.a.bits == 16 else []
    trans = "".join(f", {int(major == 'MN')}" for major in majors)
    texts = []
    last = d + count * (registers + 1)
    first = f"${last}" if accumulate is None else str(int(accumulate))
    for at in range(d, last, registers + 1):
        places = {"a": at, "b": at + registers}
        made = "".join(
            f" .reg .b64 {name}; mov.b64 {name}, {{${places[name]}, {each.words[1]:#x}}};"
            for name, each in shared
            if each
        )
        left = "a" if a else braced(at, registers)
        texts.append(
            f"{{ .reg .pred add;{made} setp.ne.b32 add, {1 if at > d else first}, 0; "
            f"{inst.ptx} {braced(0, d)}, {left}, b, add{signs}{trans}; }}"
        )
    flags = "".join(str(int(major == "MN")) for major in majors)
    highs = "_".join(f"h{each.words[1]:x}" for _, each in shared if each)
    name = f"{str(inst).replace('.', '_')}_{'ss' if a else 'rs'}{flags}_{highs}"
    name += {True: "_add", False: "", None: "_maybe"}[accumulate]
    name += f"_{count}" if count > 1 else ""
    accumulator = letter(inst.d.token)
    source = ("r" if a else letter(inst.a.token) * registers) + "r"
    inputs = source * count + "r" * (accumulate is None)
    in_place = accumulate is not False
    return Asm(name, " ".join(texts), accumulator * d, inputs, inst.min_arch, in_place)


def matrix_descriptor(descriptor: Descriptor) -> Asm:
    """Return the low word of a matrix descriptor; operand: the 32-bit start address.

    >>> matrix_descriptor(Descriptor("K", 0, 128, 256, 16)).text
    'shr.u32 $0, $1, 4; and.b32 $0, $0, 0x3fff; or.b32 $0, $0, 0x80000;'
    """
    low = descriptor.words[0]
    text = f"shr.u32 $0, $1, 4; and.b32 $0, $0, 0x3fff; or.b32 $0, $0, {low:#x};"
    return Asm(f"descriptor_{low:x}", text, "r", "r")


def same_in_warp() -> Asm:
    """Return a word of lane 0 in all lanes, so that compilers know that it is uniform in the warp.

    >>> same_in_warp().text
    'shfl.sync.idx.b32 $0, $1, 0, 0x1f, 0xffffffff;'
    """
    text = "shfl.sync.idx.b32 $0, $1, 0, 0x1f, 0xffffffff;"
    return Asm("same_in_warp", text, "r", "r")


def fence() -> Asm:
    """Return ``wgmma.fence``: orders register accesses before it with the wgmma after it."""
    return Asm("wgmma_fence", "wgmma.fence.sync.aligned;", "", "", ARCH)


def commit() -> Asm:
    """Return ``wgmma.commit_group``."""
    return Asm("wgmma_commit", "wgmma.commit_group.sync.aligned;", "", "", ARCH)


def wait(pending: int, letters: str) -> Asm:
    """Return ``wgmma.wait_group``; the accumulators are operands, so no read moves before it.

    Args:
        pending: groups that may still be in flight.
        letters: constraint letters of the accumulators that are complete after it.

    >>> print(wait(0, "ff").constraints)
    =f,=f,0,1
    """
    text = f"wgmma.wait_group.sync.aligned {pending};"
    kinds = "".join(f"_{kind}{len(list(run))}" for kind, run in groupby(letters))
    return Asm(f"wgmma_wait_{pending}{kinds}", text, letters, "", ARCH, True)


def proxy_fence() -> Asm:
    """Return ``fence.proxy.async``: the async proxy sees shared memory that was written before."""
    return Asm("fence_proxy_async", "fence.proxy.async.shared::cta;", "", "")
