"""The names of slots and registers, as the PTX ISA has them."""

from __future__ import annotations

from layoutalg.fragments import Fragment

_LETTERS = {"A": "a", "B": "b", "C/D": "c", "C": "c", "D": "d"}


def slots_per_register(fragment: Fragment) -> int:
    """Return how many slots one register packs: 2 where f16 sits in b32."""
    return max(fragment.register_bits // fragment.bits, 1)


def slot_letter(fragment: Fragment) -> str | None:
    """Return the letter of an operand's slots; None where the ISA names registers alone."""
    return _LETTERS.get(fragment.operand.split(".")[0])


def slot_name(fragment: Fragment, slot: int) -> str:
    """Name a slot: ``a2``; ``r1.0`` is the low element of register 1 of a matrix load or store.

    Source: PTX ISA, "Matrix Fragments for mma" (a0, a1 …, c0 …), "ldmatrix" (r0, r1 …).
    """
    letter = slot_letter(fragment)
    if letter is not None:
        return f"{letter}{slot}"
    packed = slots_per_register(fragment)
    return f"r{slot // packed}.{slot % packed}" if packed > 1 else f"r{slot}"


def register_name(fragment: Fragment, register: int) -> str:
    """Name all slots of a register: ``a0..3``; ``r1`` of a matrix load or store."""
    packed = slots_per_register(fragment)
    first = slot_name(fragment, register * packed)
    if packed == 1:
        return first
    if "." in first:
        return first.split(".")[0]
    return f"{first}..{(register + 1) * packed - 1}"
