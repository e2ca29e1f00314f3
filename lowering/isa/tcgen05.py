"""``tcgen05``: the tensor core instructions of sm_100, as checked rows and as inline assembly.

``tcgen05.mma`` is described in three places: its qualifiers name the kind of types; a 32-bit
*instruction descriptor* has the types, M, N and the majors; matrix descriptors say where the
operands are. :func:`encode` and :func:`decode` are the instruction descriptor; the simulator
multiplies what the decoded bits say.

Source: PTX ISA, "TensorCore 5th Generation Family Instructions".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from layoutalg import LayoutError
from layoutalg.fragments.targets import has
from lowering.isa import dtypes
from lowering.isa.dtypes import DType
from lowering.isa.ptx import Asm, braced
from lowering.isa.smem_descriptor import BYTE, STEP, Descriptor

ARCH = "sm_100a, sm_110a"
LANES = 128  # of tensor memory
COLUMNS = 512  # of 32 bits each
CELL = 32  # bits of a column in one lane
FEWEST_COLUMNS = 32  # that can be allocated; more are powers of two


@dataclass(frozen=True)
class Kind:
    """A kind of ``tcgen05.mma``: its types, and their codes in the instruction descriptor.

    ``codes``: of A and B, by PTX name. ``mixed``: whether A and B may have different types.
    ``transposed``: whether they may be MN-major. ``scales``: types of the block scales, each with
    the elements of a block. ``arch``: the targets that have the kind.
    """

    codes: dict[str, int]
    d: str
    arch: str = ARCH
    mixed: bool = True
    transposed: bool = True
    scales: tuple[tuple[str, int], ...] = ()


KINDS: dict[str, Kind] = {
    "f16": Kind({"f16": 0, "bf16": 1}, "f32", mixed=False),
    "tf32": Kind({"tf32": 2}, "f32", transposed=False),
    "f8f6f4": Kind({"e4m3": 0, "e5m2": 1}, "f32"),
    "i8": Kind({"u8": 0, "s8": 1}, "s32", "=sm_100a, =sm_110a"),
    "mxf8f6f4": Kind({"e4m3": 0, "e5m2": 1}, "f32", scales=(("ue8m0", 32),)),
    "mxf4": Kind({"e2m1": 1}, "f32", transposed=False, scales=(("ue8m0", 32),)),
    "mxf4nvf4": Kind({"e2m1": 1}, "f32", transposed=False, scales=(("ue4m3", 16), ("ue8m0", 16))),
}
_ACCUMULATORS = {"f32": 1, "s32": 2}
_SCALE_CODES = {"ue4m3": 0, "ue8m0": 1}


def legal_m(kind: str, cta_group: int) -> tuple[int, ...]:
    """Return every M of an instruction of one CTA, or of a 2-CTA pair.

    >>> legal_m("f16", 1), legal_m("mxf4", 1), legal_m("f16", 2)
    ((64, 128), (128,), (128, 256))
    """
    if KINDS[kind].scales:
        return (LANES * cta_group,)
    return (LANES // 2 * cta_group, LANES * cta_group)


def legal_n(kind: str, m: int, cta_group: int) -> tuple[int, ...]:
    """Return every N of an instruction with an M.

    Where sources differ (PTX ISA has steps of 8 for M = 128, and 24 for i8), those that all allow.

    >>> legal_n("f16", 64, 1)[:3], legal_n("f16", 128, 1)[:3], legal_n("i8", 64, 1)[:3]
    ((8, 16, 24), (16, 32, 48), (8, 16, 32))
    >>> legal_n("mxf4", 128, 1)[:2], legal_n("f16", 256, 2)[:2], legal_n("i8", 256, 2)[:2]
    ((8, 16), (16, 32), (32, 64))
    """
    if cta_group == 2:
        step = 32 if kind == "i8" else 16
    else:
        step = 8 if KINDS[kind].scales or m < LANES else 16
    found = range(step, 257, step)
    return tuple(n for n in found if kind != "i8" or n == step or n % 16 == 0)


@dataclass(frozen=True)
class TensorInst:
    """One ``tcgen05.mma``: D[m,n] += A[m,k]·B[k,n], k being 32 bytes of A.

    With ``cta_group`` 2 each CTA of the pair has half the rows of A and D, and half the columns of
    B. ``scale`` is the type of the block scales, ``block`` the elements of K that share one.

    >>> get("f16", 128, 256).ptx
    'tcgen05.mma.cta_group::1.kind::f16'
    """

    kind: str
    m: int
    n: int
    a: DType
    b: DType
    cta_group: int = 1
    scale: DType | None = None
    block: int = 0

    def __post_init__(self) -> None:
        """Check the row.

        Raises:
            LayoutError: an unknown kind, or types or a shape that it does not have.
        """
        kind = KINDS.get(self.kind)
        if kind is None:
            raise LayoutError(f"tcgen05: the kind is one of {', '.join(KINDS)}; got {self.kind!r}")
        if self.cta_group not in (1, 2):
            raise LayoutError(f"tcgen05: cta_group is 1 or 2; got {self.cta_group!r}")
        for role, dtype in (("A", self.a), ("B", self.b)):
            if dtype.token not in kind.codes:
                raise LayoutError(
                    f"tcgen05: {role} of kind {self.kind} is {' or '.join(kind.codes)}; got "
                    f"{dtype.token}"
                )
        if not kind.mixed and self.a != self.b:
            raise LayoutError(
                f"tcgen05: A and B of kind {self.kind} have one type; got {self.a.token} and "
                f"{self.b.token}"
            )
        given = (self.scale.token, self.block) if self.scale else ("no scales", 0)
        if given not in (kind.scales or (("no scales", 0),)):
            have = " or ".join(f"{token} of {block}" for token, block in kind.scales) or "none"
            came = f"{given[0]} of {given[1]}" if self.scale else given[0]
            raise LayoutError(f"tcgen05: block scales of kind {self.kind} are {have}; got {came}")
        if self.m not in legal_m(self.kind, self.cta_group):
            legal = " or ".join(map(str, legal_m(self.kind, self.cta_group)))
            raise LayoutError(f"tcgen05: M of {self.qualified} is {legal}; got {self.m}")
        legal_cols = legal_n(self.kind, self.m, self.cta_group)
        if self.n not in legal_cols:
            raise LayoutError(
                f"tcgen05: N of {self.qualified} with M = {self.m} is one of "
                f"{', '.join(map(str, legal_cols))}; got {self.n}"
            )

    @property
    def k(self) -> int:
        """K: 32 bytes of A."""
        return STEP * BYTE // self.a.bits

    @property
    def d(self) -> DType:
        """The type of the accumulator."""
        return dtypes.get(KINDS[self.kind].d)

    @property
    def rows(self) -> int:
        """The rows of A and D that one CTA has."""
        return self.m // self.cta_group

    @property
    def cols(self) -> int:
        """N of one CTA's part of B: N / 2 with cta_group 2. Of D a CTA has all N columns."""
        return self.n // self.cta_group

    @property
    def scales(self) -> int:
        """The block scales of a row of A or a column of B; 0 without."""
        return self.k // self.block if self.block else 0

    @property
    def modifier(self) -> str:
        """Nothing: integers wrap."""
        return ""

    @property
    def qualified(self) -> str:
        """The qualifiers for the CTA group and the kind."""
        return f"cta_group::{self.cta_group}.kind::{self.kind}"

    @property
    def ptx(self) -> str:
        """The mnemonic with its qualifiers.

        >>> get("mxf4nvf4", 128, 64, "e2m1", scale="ue4m3").ptx
        'tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16'
        """
        scaled = f".block_scale.block{self.block}" if self.block else ""
        return f"tcgen05.mma.{self.qualified}{scaled}"

    @property
    def min_arch(self) -> str:
        """The targets that have the instruction."""
        return KINDS[self.kind].arch

    def runs_on(self, arch: str) -> bool:
        """Say whether a target has the instruction.

        >>> [get("i8", 64, 8, "s8").runs_on(arch) for arch in ("sm_100a", "sm_103a", "sm_120a")]
        [True, False, False]
        """
        return has(self.min_arch, arch)

    def __str__(self) -> str:
        """Return ``tcgen05.m128n256k16.f16.f16``, then the scales, then ``cta2`` for a pair."""
        parts = [f"tcgen05.m{self.m}n{self.n}k{self.k}"]
        parts += [self.kind] * (self.kind != self.a.token) + [self.a.token, self.b.token]
        parts += [f"{self.scale.token}.block{self.block}"] if self.scale else []
        return ".".join(parts + ["cta2"] * (self.cta_group == 2))


@cache
def get(
    kind: str,
    m: int,
    n: int,
    a: str | None = None,
    b: str | None = None,
    cta_group: int = 1,
    scale: str | None = None,
) -> TensorInst:
    """Return an instruction by PTX names.

    Args:
        kind: as PTX writes it.
        m: rows of A and D, of all CTAs.
        n: columns of B and D.
        a: type of A; by default the first of the kind.
        b: type of B; by default that of A.
        cta_group: how many CTAs take part.
        scale: type of the block scales; by default the first of the kind.

    Raises:
        LayoutError: there is none.

    >>> str(get("mxf8f6f4", 256, 64, "e5m2", "e4m3", cta_group=2))
    'tcgen05.m256n64k32.mxf8f6f4.e5m2.e4m3.ue8m0.block32.cta2'
    """
    row = KINDS.get(kind)
    if row is None:
        raise LayoutError(f"tcgen05: the kind is one of {', '.join(KINDS)}; got {kind!r}")
    a = a or next(iter(row.codes))
    types = dtypes.get(a), dtypes.get(b or a)
    if not row.scales:
        return TensorInst(kind, m, n, *types, cta_group)
    first, block = row.scales[0]
    block = dict(row.scales).get(scale or first, block)
    return TensorInst(kind, m, n, *types, cta_group, dtypes.get(scale or first), block)


def operand_types() -> Iterator[tuple[str, str, str, str | None]]:
    """Yield every (kind, A, B, scale) that there is, as PTX names.

    >>> list(operand_types())[:3]
    [('f16', 'f16', 'f16', None), ('f16', 'bf16', 'bf16', None), ('tf32', 'tf32', 'tf32', None)]
    """
    for name, kind in KINDS.items():
        pairs = [(a, b) for a in kind.codes for b in kind.codes if kind.mixed or a == b]
        for a, b in pairs:
            yield from ((name, a, b, token) for token, _ in kind.scales or ((None, 0),))


# -- the instruction descriptor -------------------------------------------------------------------


@dataclass(frozen=True)
class Multiplication:
    """What an instruction descriptor encodes: instruction, majors of A and B, bytes of the scales.

    ``scale_bytes``: at which byte of a 32-bit cell the scales of a row of A begin, and of a column
    of B.
    """

    instruction: TensorInst
    majors: tuple[str, str]
    scale_bytes: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        """Check the majors and bytes.

        Raises:
            LayoutError: a major or a byte that the instruction does not have.
        """
        inst = self.instruction
        for role, major in zip("AB", self.majors, strict=True):
            legal = ("K", "MN") if KINDS[inst.kind].transposed else ("K",)
            if major not in legal:
                raise LayoutError(
                    f"{inst}: operand {role} is {' or '.join(legal)}-major; got {major!r}"
                )
        if self.majors[1] == "MN" and inst.b.bits == BYTE and inst.n % (16 * inst.cta_group):
            raise LayoutError(
                f"{inst}: N is a multiple of {16 * inst.cta_group} where B of bytes is MN-major"
            )
        step = inst.scales or CELL // BYTE
        for role, byte in zip(("SFA", "SFB"), self.scale_bytes, strict=True):
            if byte not in range(0, CELL // BYTE, step):
                legal_bytes = ", ".join(map(str, range(0, CELL // BYTE, step)))
                raise LayoutError(
                    f"{inst}: {role} starts at byte {legal_bytes} of a cell; got {byte}"
                )


def encode(what: Multiplication) -> int:
    """Return the instruction descriptor: 32 bits.

    Source: PTX ISA, tcgen05 "Instruction descriptor".

    >>> hex(encode(Multiplication(get("f16", 128, 256), ("K", "MN"))))
    '0x8410010'
    """
    inst, kind = what.instruction, KINDS[what.instruction.kind]
    trans = [int(major == "MN") for major in what.majors]
    bits = kind.codes[inst.a.token] << 7 | kind.codes[inst.b.token] << 10
    bits |= trans[0] << 15 | trans[1] << 16 | inst.n >> 3 << 17
    if inst.scale is None:
        return bits | _ACCUMULATORS[inst.d.token] << 4 | inst.m >> 4 << 24
    first, second = what.scale_bytes
    return (
        bits | second << 4 | _SCALE_CODES[inst.scale.token] << 23 | inst.m >> 7 << 27 | first << 29
    )


def decode(kind: str, block: int, cta_group: int, bits: int) -> Multiplication:
    """Return the meaning of an instruction descriptor for an instruction of these qualifiers.

    Raises:
        LayoutError: bits that have no meaning for them.

    >>> str(decode("f16", 0, 1, 0x8410010).instruction)
    'tcgen05.m128n256k16.f16.f16'
    """
    row = KINDS[kind]
    tokens = {code: token for token, code in row.codes.items()}
    a, b = (tokens.get(bits >> at & 7, "") for at in (7, 10))
    majors = tuple("MN" if bits >> at & 1 else "K" for at in (15, 16))
    n, scale, chosen = (bits >> 17 & 63) << 3, None, (0, 0)
    if row.scales:
        m = (bits >> 27 & 3) << 7
        codes = {code: token for token, code in _SCALE_CODES.items()}
        scale = dtypes.get(codes[bits >> 23 & 1])
        chosen = bits >> 29 & 3, bits >> 4 & 3
    else:
        m = (bits >> 24 & 31) << 4
    if not a or not b:
        raise LayoutError(f"tcgen05: {bits:#010x} names types that kind {kind} does not have")
    inst = TensorInst(kind, m, n, dtypes.get(a), dtypes.get(b), cta_group, scale, block)
    found = Multiplication(inst, (majors[0], majors[1]), chosen)
    if encode(found) != bits:
        raise LayoutError(
            f"tcgen05: {inst} takes no {bits:#010x}; {encode(found):#010x} is its own"
        )
    return found


# -- assembly -------------------------------------------------------------------------------------


def multiply(what: Multiplication, a: Descriptor | None, b: Descriptor, accumulate: str) -> Asm:
    """Return the instruction; operands: address of D, A, B, then SFA and SFB with block scales.

    A and B are low words of descriptors, or A an address. Where ``accumulate`` is "maybe", a last
    operand says whether to add to D.

    Args:
        what: the instruction.
        a: how A lies in shared memory; None where it lies in tensor memory.
        b: how B lies in shared memory.
        accumulate: "add", "overwrite" or "maybe".

    >>> tile = Descriptor("K", 128, 16, 1024, 16, machine="tcgen05")
    >>> multiply(Multiplication(get("f16", 64, 8), ("K", "K")), None, tile, "add").text
    '{ .reg .pred add; .reg .b64 b; mov.b64 b, {$2, 0x40004040}; setp.ne.b32 add, 1, 0; \
tcgen05.mma.cta_group::1.kind::f16 [$0], [$1], b, 0x4020010, add; }'

    Source: PTX ISA, "tcgen05.mma".
    """
    inst = what.instruction
    made = "".join(
        f" .reg .b64 {name}; mov.b64 {name}, {{${at}, {each.words[1]:#x}}};"
        for name, at, each in (("a", 1, a), ("b", 2, b))
        if each
    )
    scales = ", [$3], [$4]" * bool(inst.scale)
    inputs = "r" * (5 if inst.scale else 3)
    word = f"${len(inputs)}" if accumulate == "maybe" else str(int(accumulate == "add"))
    bits = encode(what)
    text = (
        f"{{ .reg .pred add;{made} setp.ne.b32 add, {word}, 0; {inst.ptx} [$0], "
        f"{'a' if a else '[$1]'}, b, {bits:#x}{scales}, add; }}"
    )
    name = "_".join([
        _named(str(inst)), accumulate, f"{bits:x}", *(f"h{d.words[1]:x}" for d in (a, b) if d)
    ])  # fmt: skip
    return Asm(name, text, "", inputs + "r" * (accumulate == "maybe"), inst.min_arch)


def allocate(columns: int, cta_group: int) -> Asm:
    """Return ``tcgen05.alloc`` of a warp, which writes the address of the columns to shared memory.

    ``relinquish_alloc_permit`` follows, so that other CTAs of the SM may allocate.

    >>> print(allocate(64, 1).text.split("; ")[0])
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [$0], 64
    """
    group = f"cta_group::{cta_group}.sync.aligned"
    text = (
        f"tcgen05.alloc.{group}.shared::cta.b32 [$0], {columns}; "
        f"tcgen05.relinquish_alloc_permit.{group};"
    )
    return Asm(f"tensor_allocate_{columns}_{cta_group}", text, "", "r", ARCH)


def free(columns: int, cta_group: int) -> Asm:
    """Return ``tcgen05.dealloc`` of a warp; operand: the address of the columns.

    >>> free(64, 1).text
    'tcgen05.dealloc.cta_group::1.sync.aligned.b32 $0, 64;'
    """
    text = f"tcgen05.dealloc.cta_group::{cta_group}.sync.aligned.b32 $0, {columns};"
    return Asm(f"tensor_free_{columns}_{cta_group}", text, "", "r", ARCH)


_HALF = {"16x32bx2": ", 0"}  # how many columns further right lanes 16 to 31 of a warp are


def load(shape: str, count: int, letters: str) -> Asm:
    """Return ``tcgen05.ld``: words of a warp from an address, complete after a wait.

    Args:
        shape: lanes by bits.
        count: repetitions along the columns: ``.xN``.
        letters: a constraint letter for each register; "f" saves f32 a conversion from integers.

    >>> load("32x32b", 2, "ff").text
    'tcgen05.ld.sync.aligned.32x32b.x2.b32 {$0,$1}, [$2];'
    """
    values = braced(0, len(letters))
    address = f"[${len(letters)}]{_HALF.get(shape, '')}"
    text = f"tcgen05.ld.sync.aligned.{shape}.x{count}.b32 {values}, {address};"
    return Asm(f"tensor_load_{shape}_x{count}_{letters[0]}", text, letters, "r", ARCH)


def store(shape: str, count: int, letters: str) -> Asm:
    """Return ``tcgen05.st``; operands: address, words of a warp; complete after a wait.

    Args: as of :func:`load`.

    >>> store("16x64b", 1, "r").text
    'tcgen05.st.sync.aligned.16x64b.x1.b32 [$0], {$1};'
    """
    values = braced(1, len(letters))
    text = f"tcgen05.st.sync.aligned.{shape}.x{count}.b32 [$0]{_HALF.get(shape, '')}, {values};"
    return Asm(f"tensor_store_{shape}_x{count}_{letters[0]}", text, "", "r" + letters, ARCH)


def wait(verb: str, letters: str = "") -> Asm:
    """Return the wait for loads ("ld") or stores ("st") of this thread.

    Args:
        verb: which.
        letters: constraint letters of the registers that loads fill: operands, so that no read
            moves before the wait.

    >>> wait("ld", "rr").constraints
    '=r,=r,0,1'
    """
    text = f"tcgen05.wait::{verb}.sync.aligned;"
    name = "_".join(["tensor_wait", verb, *([letters] if letters else [])])
    return Asm(name, text, letters, "", ARCH, bool(letters))


def copy(shape: str, source: Descriptor, cta_group: int) -> Asm:
    """Return ``tcgen05.cp``; operands: address, low word of the matrix descriptor of the source.

    >>> copy("32x128b.warpx4", Descriptor("K", 0, 0, 128, 8, machine="tcgen05"), 1).text
    '{ .reg .b64 s; mov.b64 s, {$1, 0x4008}; tcgen05.cp.cta_group::1.32x128b.warpx4 [$0], s; }'
    """
    high = source.words[1]
    text = (
        f"{{ .reg .b64 s; mov.b64 s, {{$1, {high:#x}}}; "
        f"tcgen05.cp.cta_group::{cta_group}.{shape} [$0], s; }}"
    )
    return Asm(f"tensor_copy_{_named(shape)}_h{high:x}_{cta_group}", text, "", "rr", ARCH)


def commit(cta_group: int) -> Asm:
    """Return ``tcgen05.commit``: arrive on the mbarrier when prior async tensor operations finish.

    With ``cta_group`` 2, on the mbarrier at this address of both CTAs.

    >>> commit(1).text
    'tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [$0];'
    """
    start = f"tcgen05.commit.cta_group::{cta_group}.mbarrier::arrive::one.shared::cluster"
    text = f"{start}.b64 [$0];"
    if cta_group == 2:
        text = f"{{ .reg .b16 both; mov.b16 both, 3; {start}.multicast::cluster.b64 [$0], both; }}"
    return Asm(f"tensor_commit_{cta_group}", text, "", "r", ARCH)


def fence(side: str) -> Asm:
    """Return ``tcgen05.fence`` "before" or "after" a thread synchronization.

    >>> fence("after").text
    'tcgen05.fence::after_thread_sync;'
    """
    return Asm(f"tensor_fence_{side}", f"tcgen05.fence::{side}_thread_sync;", "", "", ARCH)


def elected() -> Asm:
    """Return ``elect.sync``: 1 in one thread of the warp, always the same, 0 in the others.

    >>> elected().mnemonic
    'elect.sync'
    """
    text = "{ .reg .pred one; elect.sync _|one, 0xffffffff; selp.b32 $0, 1, 0, one; }"
    return Asm("elected", text, "r", "")


def _named(text: str) -> str:
    return text.replace(".", "_").replace("::", "_")


def allocated(columns: int) -> int:
    """Return the columns to allocate for so many: a power of two, at least 32.

    Raises:
        LayoutError: more than 512.

    >>> allocated(5), allocated(160)
    (32, 256)
    """
    if columns > COLUMNS:
        raise LayoutError(f"tensor memory has {COLUMNS} columns; got {columns}")
    return max(FEWEST_COLUMNS, 1 << (columns - 1).bit_length())
