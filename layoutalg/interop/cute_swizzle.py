"""CuTe swizzles: ``Sw<B,M,S>``, alone and before a layout, with the unit that they count.

CuTe writes the same three numbers for a swizzle of byte addresses and for one of element indices;
here the unit is part of the value, and every conversion states it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from layoutalg.errors import LayoutError
from layoutalg.interop.cute import CuteLayout
from layoutalg.layouts.swizzle import SwizzleLayout

UNITS = ("elements", "bytes")


@dataclass(frozen=True)
class CuteSwizzle:
    """``Sw<length,base,shift>``: XOR ``length`` bits from ``|shift|`` bits above the base into it.

    With ``x`` counted in the unit: ``y = x ^ ((x & (mask << (base + shift))) >> shift)``, mask
    ``2**length - 1``; a negative shift XORs the lower bits into the upper ones.

    >>> Sw = CuteSwizzle(3, 4, 3, "bytes", 16)
    >>> print(Sw, Sw.in_elements())
    Sw<3,4,3> of bytes, 16-bit elements SwizzleLayout(per_element=3, swizzle_len=3, atom_len=3, \
swizzle_inner=True)
    >>> all(Sw(2 * x) == 2 * Sw.in_elements().apply(x) for x in range(1024))
    True

    Source: CuTe, ``Swizzle<BBits, MBase, SShift>``.
    """

    length: int
    base: int
    shift: int
    unit: str
    bits: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers and the unit.

        Raises:
            LayoutError: the XOR is no permutation, the unit is none of UNITS, or bytes are counted
                and the bits of an element are missing or no power of two.
        """
        if not (self.length >= 0 and self.base >= 0 and abs(self.shift) >= self.length):
            raise LayoutError(
                f"cute: a swizzle needs numbers from 0 on and a shift of at least the length; got "
                f"Sw<{self.length},{self.base},{self.shift}>"
            )
        if self.unit not in UNITS:
            raise LayoutError(
                f"cute: the unit of a swizzle is {' or '.join(UNITS)}; got {self.unit!r}"
            )
        if self.unit == "bytes" and (
            self.bits is None or self.bits < 1 or self.bits & (self.bits - 1)
        ):
            raise LayoutError(
                f"cute: a swizzle of bytes needs the bits of an element, a power of two; got "
                f"{self.bits}"
            )

    @classmethod
    def of(
        cls, swizzle: SwizzleLayout, unit: str = "elements", bits: int | None = None
    ) -> CuteSwizzle:
        """Return a swizzle of element indices in CuTe's numbers: the inverse of in_elements.

        Raises:
            LayoutError: it moves pieces smaller than the unit, or the bits are missing.

        >>> print(CuteSwizzle.of(SwizzleLayout(3, 3, 3), "bytes", 16))
        Sw<3,4,3> of bytes, 16-bit elements
        """
        shift = swizzle.atom_len if swizzle.swizzle_inner else -swizzle.atom_len
        plain = cls(swizzle.swizzle_len, swizzle.per_element, shift, "elements")
        if unit == "elements":
            return plain
        base = swizzle.per_element + cls(0, 0, 0, unit, bits)._element_log2()
        if base < 0:
            raise LayoutError(
                f"cute: {plain} of {bits} bits moves pieces smaller than a byte: it is no "
                "permutation of bytes"
            )
        return cls(swizzle.swizzle_len, base, shift, unit, bits)

    def __str__(self) -> str:
        """Return CuTe's notation and the unit."""
        element = f", {self.bits}-bit elements" if self.unit == "bytes" else ""
        return f"{self.notation} of {self.unit}{element}"

    @property
    def notation(self) -> str:
        """The notation alone, which does not say what it counts."""
        return f"Sw<{self.length},{self.base},{self.shift}>"

    def __call__(self, address: Any) -> Any:
        """Return the swizzled address of an int or an integer array, counted in the unit."""
        mask = ((1 << self.length) - 1) << self.base
        if self.shift >= 0:
            return address ^ ((address >> self.shift) & mask)
        return address ^ ((address & mask) << -self.shift)

    def in_elements(self) -> SwizzleLayout:
        """Return the swizzle of element indices: the base drops by log2 of the bytes per element.

        Raises:
            LayoutError: it moves pieces smaller than an element.

        >>> CuteSwizzle(3, 4, 3, "bytes", 8).in_elements().per_element
        4
        """
        base = self.base - (self._element_log2() if self.unit == "bytes" else 0)
        if base < 0:
            raise LayoutError(
                f"cute: {self} moves pieces of {1 << self.base} bytes, smaller than an element: it "
                "is no permutation of elements"
            )
        return SwizzleLayout(base, self.length, abs(self.shift), self.shift >= 0)

    def _element_log2(self) -> int:
        """Return log2 of the bytes per element, negative where several share a byte."""
        return (self.bits or 8).bit_length() - 1 - 3


@dataclass(frozen=True)
class CuteComposed:
    """``swizzle o offset o layout``: the swizzled offset ``Sw(offset + L(c))``.

    >>> L = parse_cute("Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)")
    >>> print(L.swizzle)
    Sw<3,4,3> of bytes, 16-bit elements
    >>> print(L, L(1, 0))
    Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1) 72
    """

    swizzle: CuteSwizzle
    offset: int
    layout: CuteLayout

    def __call__(self, *coord: Any) -> Any:
        """Return the swizzled offset, in elements, of a coordinate of the layout."""
        return self.swizzle.in_elements().apply(self.offset + self.layout(*coord))

    def __str__(self) -> str:
        """Return CuTe's notation: a swizzle of bytes stands before a pointer to its elements.

        Raises:
            LayoutError: bytes are counted and the offset is not 0: CuTe keeps it in the pointer.
        """
        middle = str(self.offset)
        if self.swizzle.unit == "bytes":
            if self.offset:
                raise LayoutError(
                    f"cute: CuTe writes a swizzle of bytes without an offset; got {self.offset}: "
                    "add it to the pointer, or count elements"
                )
            middle = f"smem_ptr[{self.swizzle.bits}b](unset)"
        return f"{self.swizzle.notation} o {middle} o {self.layout}"


_SWIZZLE = re.compile(r"\s*(?:Sw|S|Swizzle)<\s*_?(\d+)\s*,\s*_?(\d+)\s*,\s*_?(-?\d+)\s*>\s*")
_POINTER = re.compile(r"smem_ptr(?:_flag_bits)?[\[<](\d+)b?[\]>](?:\(\w*\))?")


def parse_swizzle(text: str, unit: str | None = None, bits: int | None = None) -> CuteSwizzle:
    """Read ``Sw<B,M,S>``; CuTe's Python prints ``S<B,M,S>``.

    Args:
        text: the notation.
        unit: "elements" or "bytes"; the notation does not say it, so it must be given.
        bits: the bits of an element, for the unit "bytes".

    Raises:
        LayoutError: the text is none, or the unit is missing.

    >>> print(parse_swizzle("Sw<2,4,3>", unit="bytes", bits=16).in_elements())
    SwizzleLayout(per_element=3, swizzle_len=2, atom_len=3, swizzle_inner=True)
    >>> parse_swizzle("Sw<2,4,3>")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: cute: 'Sw<2,4,3>' does not say what it counts; pass \
unit="elements", or unit="bytes" and the bits of an element
    """
    found = _SWIZZLE.fullmatch(text)
    if found is None:
        raise LayoutError(f"cute: a swizzle is written Sw<B,M,S>; got {text!r}")
    if unit is None:
        raise LayoutError(
            f'cute: {text.strip()!r} does not say what it counts; pass unit="elements", or '
            'unit="bytes" and the bits of an element'
        )
    length, base, shift = map(int, found.groups())
    return CuteSwizzle(length, base, shift, unit, bits)


def parse_cute(
    text: str, unit: str | None = None, bits: int | None = None
) -> CuteLayout | CuteComposed:
    """Read a CuTe layout, or ``swizzle o offset o layout``.

    A pointer ``smem_ptr[16b](unset)`` in the middle says that the swizzle counts bytes and how many
    bits an element has.

    Raises:
        LayoutError: the text is no such layout, or the unit of its swizzle is missing.

    >>> print(parse_cute("S<3,3,3> o 0 o (8,64):(64,1)", unit="elements"))
    Sw<3,3,3> o 0 o (8,64):(64,1)
    """
    if not isinstance(text, str):
        raise LayoutError(f"cute: needs text such as (4,8):(1,4); got {text!r}")
    parts = re.split(r"\s+o\s+", text.strip())
    if len(parts) == 1:
        return CuteLayout.parse(text)
    if len(parts) != 3:
        raise LayoutError(
            f"cute: a swizzled layout is written Sw<B,M,S> o offset o layout; got {text!r}"
        )
    pointer = _POINTER.fullmatch(parts[1])
    if pointer is not None:
        if unit not in (None, "bytes") or bits not in (None, int(pointer[1])):
            raise LayoutError(
                f"cute: {parts[1]} says that bytes are counted and an element has {pointer[1]} "
                f"bits; got unit={unit!r}, bits={bits}"
            )
        unit, bits, parts[1] = "bytes", int(pointer[1]), "0"
    if not re.fullmatch(r"_?\d+", parts[1]):
        raise LayoutError(
            f"cute: the offset must be a number or smem_ptr[16b](unset); got {parts[1]!r} in "
            f"{text!r}"
        )
    swizzle = parse_swizzle(parts[0], unit, bits)
    return CuteComposed(swizzle, int(parts[1].lstrip("_")), CuteLayout.parse(parts[2]))
