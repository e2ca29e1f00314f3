"""The instruction table: frozen rows, checked when constructed. Adding one is adding data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from layoutalg import LayoutError, fragments
from layoutalg.fragments import Fragment
from lowering import dtypes
from lowering.dtypes import DType


def compute_capability(arch: object) -> tuple[Any, ...]:
    """Return (major, minor) of ``sm_90``, with the suffix of ``sm_90a``.

    Raises:
        LayoutError: not of that form.

    >>> compute_capability("sm_120"), compute_capability("sm_90a")
    ((12, 0), (9, 0, 'a'))
    """
    found = re.fullmatch(r"sm_([0-9]+)([0-9])([af]?)", arch) if isinstance(arch, str) else None
    if found is None:
        raise LayoutError(f"target: must look like sm_90 or sm_90a; got {arch!r}")
    version = int(found[1]), int(found[2])
    return (*version, found[3]) if found[3] else version


@dataclass(frozen=True)
class MmaInst:
    """One warp-wide ``mma.sync``: D[m,n] += A[m,k]·B[k,n].

    ``name`` is its key in the fragment table, from which every lane digit, register count and
    operand order is read.

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

    def fragment(self, role: str) -> Fragment:
        """Return the fragment of "A", "B", "C" or "D".

        >>> MMA_INSTRUCTIONS[0].fragment("A").registers
        4
        """
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
        return f"mma.sync.aligned.{self.shape}.row.col.{types}"

    @property
    def min_arch(self) -> str:
        """The first target that has the instruction."""
        return self.fragment("A").min_arch

    def runs_on(self, arch: str) -> bool:
        """Say whether a target has the instruction.

        >>> MMA_INSTRUCTIONS[0].runs_on("sm_75"), MMA_INSTRUCTIONS[0].runs_on("sm_90a")
        (False, True)
        """
        return compute_capability(arch)[:2] >= compute_capability(self.min_arch)[:2]

    @property
    def k_pack(self) -> int:
        """How many elements of A and B share a 32-bit register."""
        return self.fragment("A").pack

    @cached_property
    def dtypes(self) -> tuple[DType, DType, DType, DType]:
        """The dtypes in the order (A, B, C, D)."""
        return self.a, self.b, self.c, self.d

    def __str__(self) -> str:
        """Return the name."""
        return self.name


def _m16n8(k: int, dtype: str) -> MmaInst:
    row, f32 = dtypes.get(dtype), dtypes.get("f32")
    return MmaInst(f"mma.m16n8k{k}.{dtype}", 16, 8, k, row, row, f32, f32)


# In the order in which dispatch tries them: the larger K first.
MMA_INSTRUCTIONS: tuple[MmaInst, ...] = (
    _m16n8(16, "bf16"),
    _m16n8(16, "f16"),
    _m16n8(8, "bf16"),
    _m16n8(8, "f16"),
)
