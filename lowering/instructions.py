"""The instruction table: frozen rows, checked when constructed. Adding one is adding data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from layoutalg import LayoutError, fragments
from layoutalg.fragments import Fragment
from layoutalg.targets import check, has, parts
from lowering import dtypes
from lowering.dtypes import DType


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
class MmaInst:
    """One warp-wide ``mma.sync``: D[m,n] += A[m,k]·B[k,n].

    ``name`` is its key in the fragment table, from which every lane digit, register count and
    operand order is read. ``modifier`` is "satfinite" (integers saturate instead of wrapping), or
    for single bits "and" (the product of bits) or "xor" (how many bits differ).

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

    def __post_init__(self) -> None:
        """Check the row against its fragments.

        Raises:
            LayoutError: shapes, dtypes or widths disagree.
        """
        want = {"A": (self.m, self.k), "B": (self.k, self.n), "D": (self.m, self.n)}
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

    def fragment(self, role: str) -> Fragment:
        """Return the fragment of "A", "B", "C" or "D".

        >>> MMA_INSTRUCTIONS[0].fragment("A").registers
        4
        """
        if role not in ("A", "B", "C", "D"):
            raise LayoutError(f"instruction {self.name}: has A, B, C and D; got {role!r}")
        operand = role if role in "AB" else f"C/D.{self.d.token}"
        return fragments.get(self.name, operand)

    @property
    def shape(self) -> str:
        """The shape as PTX writes it."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def ptx(self) -> str:
        """The mnemonic with its qualifiers."""
        types = ".".join(each.token for each in (self.d, self.a, self.b, self.c))
        before = ".satfinite" if self.modifier == "satfinite" else ""
        after = f".{self.modifier}.popc" if self.a.token == "b1" else ""
        return f"mma.sync.aligned.{self.shape}.row.col{before}.{types}{after}"

    @property
    def min_arch(self) -> str:
        """The first target that has the instruction."""
        if self.modifier == "and":
            return max(self.fragment("A").min_arch, "sm_80")
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

    def __str__(self) -> str:
        """Return the name; other accumulators than the first, and modifiers, are added."""
        first = fragments.get(self.name, "D").dtype
        parts = [self.name, self.d.token if self.d.token != first else "", self.modifier]
        return " ".join(part for part in parts if part)


def _table() -> Iterator[MmaInst]:
    """Yield a row per dense mma of the fragment table, accumulator type and modifier."""
    for name in fragments.names():
        found = re.fullmatch(r"mma\.m(\d+)n(\d+)k(\d+)\.(\w+)(?:\.(\w+))?", name)
        if found is None:
            continue
        m, n, k = (int(found[i]) for i in (1, 2, 3))
        a, b = dtypes.get(found[4]), dtypes.get(found[5] or found[4])
        for operand in fragments.operands(name):
            if not operand.startswith("C/D."):
                continue
            d = dtypes.get(operand.removeprefix("C/D."))
            for modifier in _MODIFIERS.get(a.token, ("",)):
                yield MmaInst(name, m, n, k, a, b, d, d, modifier)


# Every dense mma.sync, within a dtype the larger K first.
MMA_FAMILY: tuple[MmaInst, ...] = tuple(_table())

# What gemm takes by itself, in the order in which dispatch tries it: the larger K first.
MMA_INSTRUCTIONS: tuple[MmaInst, ...] = tuple(
    row
    for name in (f"mma.m16n8k{k}.{token}" for k in (16, 8) for token in ("bf16", "f16"))
    for row in MMA_FAMILY
    if row.name == name and row.d.token == "f32"
)
