"""The instruction table: frozen rows, checked when constructed. Adding one is adding data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from layoutalg import LayoutError, fragments
from layoutalg.errors import did_you_mean
from layoutalg.fragments import Fragment
from layoutalg.fragments.targets import check, has, parts
from lowering.isa import dtypes
from lowering.isa.dtypes import DType


def compute_capability(arch: object) -> tuple[Any, ...]:
    """Return (major, minor) of ``sm_90``, with the suffix of ``sm_90a``.

    Raises:
        LayoutError: not of that form, or no known target.

    >>> compute_capability("sm_120"), compute_capability("sm_90a")
    ((12, 0), (9, 0, 'a'))
    """
    number, suffix = parts(check(arch))
    version = divmod(number, 10)
    return (*version, suffix) if suffix else version


_SATURATE = ("", "satfinite")
_MODIFIERS = dict.fromkeys(("s8", "u8", "s4", "u4"), _SATURATE) | {"b1": ("and", "xor")}


@dataclass(frozen=True)
class Kind:
    """A kind of mma: its PTX, and the operands that it takes beside A, B, C and D."""

    ptx: str
    extras: tuple[str, ...] = ()


_SCALED = Kind(
    "mma.sync.aligned.{shape}.kind::{kind}.block_scale.scale_vec::{vector}X.{types}.{scale}",
    ("SFA", "SFB"),
)
# By the word of a kind in the names of the fragment table; "" is the dense mma.
KINDS: dict[str, Kind] = {
    "": Kind("mma.sync.aligned.{shape}{saturate}.{types}{popcount}"),
    "sp": Kind("mma.sp::ordered_metadata.sync.aligned.{shape}.{types}", ("E",)),
    "mxf8f6f4": _SCALED,
    "mxf4": _SCALED,
    "mxf4nvf4": _SCALED,
}


@dataclass(frozen=True)
class MmaInst:
    """One warp-wide ``mma.sync``: D[m,n] += A[m,k]·B[k,n].

    ``name`` is its key in the fragment table, from which every lane digit, register count and
    operand order is read. ``modifier`` is "satfinite" (integers saturate instead of wrapping), or
    for single bits "and" (the product of bits) or "xor" (how many bits differ). ``kind`` is one of
    :data:`KINDS`: "sp" (A is 2:4 sparse: [m,k/2], with the positions E) or a block-scaled kind
    (with the scales SFA and SFB). ``order`` says whether A and B lie row- or column-major in a
    lane: m8n8k4 has both. No two rows have one ``key``.

    >>> MMA_INSTRUCTIONS[0].ptx
    'mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32'
    """

    name: str
    m: int
    n: int
    k: int
    a: DType
    b: DType
    c: DType
    d: DType
    modifier: str = ""
    kind: str = ""
    order: tuple[str, str] = ("row", "col")

    def __post_init__(self) -> None:
        """Check the row against its fragments.

        Raises:
            LayoutError: shapes, dtypes or widths disagree.
        """
        dense = self.k // 2 if self.kind == "sp" else self.k
        want = {"A": (self.m, dense), "B": (self.k, self.n), "D": (self.m, self.n)}
        for role, shape in want.items():
            fragment = self.fragment(role)
            dtype = {"A": self.a, "B": self.b, "D": self.d}[role]
            if fragment.shape != shape or (fragment.dtype, fragment.bits) != (
                dtype.token,
                dtype.bits,
            ):
                raise LayoutError(
                    f"instruction {self.name}: operand {role} must be {dtype.token} {shape}; its "
                    f"fragment is {fragment.dtype} {fragment.shape}"
                )
        if self.c != self.d:
            raise LayoutError(f"instruction {self.name}: C and D must share a fragment")
        known = _MODIFIERS.get(self.a.token, ("",))
        if self.modifier not in known:
            have = " or ".join(repr(each) for each in known)
            raise LayoutError(
                f"instruction {self.name}: the modifier must be {have}; got {self.modifier!r}"
            )

    @property
    def extras(self) -> tuple[str, ...]:
        """What it takes beside A, B, C and D: E of sparse A, or the scales SFA and SFB."""
        return KINDS[self.kind].extras

    def fragment(self, role: str) -> Fragment:
        """Return the fragment of "A", "B", "C", "D" or an extra operand.

        >>> MMA_INSTRUCTIONS[0].fragment("A").registers
        4
        """
        roles = ("A", "B", "C", "D", *self.extras)
        if role not in roles:
            raise LayoutError(f"instruction {self.name}: has {', '.join(roles)}; got {role!r}")
        accumulator = f"C/D.{self.d.token}"
        operands = {
            "A": "A" if self.order[0] == "row" else "A.col",
            "B": "B" if self.order[1] == "col" else "B.row",
            "C": accumulator,
            "D": accumulator,
        }
        return fragments.get(self.name, operands.get(role, role))

    @property
    def shape(self) -> str:
        """The shape as PTX writes it."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def ptx(self) -> str:
        """The mnemonic with its qualifiers."""
        scale = self.fragment("SFA") if "SFA" in self.extras else None
        return KINDS[self.kind].ptx.format(
            shape=f"{self.shape}.{self.order[0]}.{self.order[1]}",
            types=".".join(each.token for each in (self.d, self.a, self.b, self.c)),
            kind=self.kind,
            saturate=".satfinite" if self.modifier == "satfinite" else "",
            popcount=f".{self.modifier}.popc" if self.a.token == "b1" else "",
            vector=scale.shape[1] if scale else "",
            scale=scale.dtype if scale else "",
        )

    @property
    def products(self) -> int:
        """How many products one instruction forms: four for m8n8k4, else one."""
        return self.fragment("D").products

    @property
    def min_arch(self) -> str:
        """The first target that has the instruction."""
        if self.modifier == "and":
            return max(self.fragment("A").min_arch, "sm_80", key=compute_capability)
        return self.fragment("A").min_arch

    def runs_on(self, arch: str) -> bool:
        """Say whether a target has the instruction.

        Raises:
            LayoutError: the target is unknown; the nearest are named.

        >>> MMA_INSTRUCTIONS[0].runs_on("sm_75"), MMA_INSTRUCTIONS[0].runs_on("sm_90a")
        (False, True)
        """
        return has(self.min_arch, arch)

    @property
    def k_pack(self) -> int:
        """How many elements of A and B share a 32-bit register."""
        return self.fragment("A").pack

    @cached_property
    def dtypes(self) -> tuple[DType, DType, DType, DType]:
        """The dtypes in the order (A, B, C, D)."""
        return self.a, self.b, self.c, self.d

    @property
    def key(self) -> str:
        """What ``dispatch=`` takes: the name, with other accumulators than the first and modifiers.

        >>> [row.key for row in instructions_of("mma.m16n8k32.s8")]
        ['mma.m16n8k32.s8', 'mma.m16n8k32.s8 satfinite']
        """
        first = fragments.get(self.name, "D").dtype
        order = ".".join(self.order) if self.order != ("row", "col") else ""
        parts = [self.name, self.d.token if self.d.token != first else "", self.modifier, order]
        return " ".join(part for part in parts if part)

    def __repr__(self) -> str:
        return f"MmaInst({self.key!r})"

    def __str__(self) -> str:
        """Return the key."""
        return self.key


def _dtype(fragment: Fragment) -> DType:
    """Return the dtype of a fragment's elements: of one token, that of its width."""
    of_token = (each for each in dtypes.DTYPES if each.token == fragment.dtype)
    return next(each for each in of_token if each.bits == fragment.bits)


def instructions_of(name: str) -> Iterator[MmaInst]:
    """Yield a row per accumulator type, operand order and modifier of a name of the fragment table.

    Raises:
        LayoutError: the name has a kind that is none of :data:`KINDS`.

    >>> [str(row) for row in instructions_of("mma.m16n8k16.f16")]
    ['mma.m16n8k16.f16', 'mma.m16n8k16.f16 f16']
    """
    kind = next((word for word in name.split(".") if word in KINDS), "")
    operands = {row.operand: row for row in fragments.rows(name)}
    a, b = operands["A"], operands["B"]
    words = {
        "mma",
        f"m{a.shape[0]}n{b.shape[1]}k{b.shape[0]}",
        *(r.dtype for r in operands.values()),
    }
    unknown = [word for word in name.split(".") if word not in words | KINDS.keys()]
    if unknown:
        raise LayoutError(f"instruction {name}: KINDS has no PTX of the kind {'.'.join(unknown)}")
    orders = [("row", "col")]
    if "A.col" in operands:
        orders = list(itertools.product(("row", "col"), ("col", "row")))
    for (operand, d), order in itertools.product(operands.items(), orders):
        if not operand.startswith("C/D."):
            continue
        for modifier in _MODIFIERS.get(a.dtype, ("",)):
            yield MmaInst(
                name, d.shape[0], d.shape[1], b.shape[0], _dtype(a), _dtype(b), _dtype(d),
                _dtype(d), modifier, kind, order,
            )  # fmt: skip


_ROWS = tuple(
    row for name in fragments.names() if name.startswith("mma.") for row in instructions_of(name)
)

# Every dense mma.sync of one product, within a dtype the larger K first.
MMA_FAMILY: tuple[MmaInst, ...] = tuple(
    row for row in _ROWS if not row.extras and row.products == 1
)

# The others: sparse, block-scaled, and m8n8k4, which forms four products.
MMA_EXTENDED: tuple[MmaInst, ...] = tuple(row for row in _ROWS if row not in MMA_FAMILY)

# What gemm takes first, in this order: the larger K first.
MMA_INSTRUCTIONS: tuple[MmaInst, ...] = tuple(
    row
    for name in (f"mma.m16n8k{k}.{token}" for k in (16, 8) for token in ("bf16", "f16"))
    for row in MMA_FAMILY
    if row.name == name and row.d.token == "f32"
)


def named(instruction: str) -> MmaInst:
    """Return the row of a key.

    Raises:
        LayoutError: none has it; the nearest are listed.

    >>> named("mma.m16n8k8.f16 f16").ptx
    'mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16'
    """
    for row in _ROWS:
        if row.key == instruction:
            return row
    raise LayoutError(
        f"no mma is named {instruction!r}{did_you_mean(instruction, map(str, _ROWS))}"
    )
