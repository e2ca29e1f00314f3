"""The names of slots, registers and indices, as the PTX ISA has them."""

from __future__ import annotations

from layoutalg import fragments
from layoutalg.fragments import Fragment

_LETTERS = {
    "A": "a", "B": "b", "C/D": "c", "C": "c", "D": "d", "E": "e", "SFA": "sfa", "SFB": "sfb",
}  # fmt: skip
INDEX = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n"), "D": ("m", "n")}


def slots_per_register(fragment: Fragment) -> int:
    """Return how many slots one register packs: 2 where f16 sits in b32."""
    return min(max(fragment.register_bits // fragment.bits, 1), fragment.slots)


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


def slots_name(fragment: Fragment, first: int, last: int) -> str:
    """Name slots of one register: ``a0..3``; ``r1`` of a matrix load or store.

    >>> slots_name(fragments.get("mma.m16n8k16.f16", "A"), 2, 3)
    'a2..3'
    """
    name = slot_name(fragment, first)
    if first == last:
        return name
    return name.split(".")[0] if "." in name else f"{name}..{last}"


def index_names(fragment: Fragment) -> tuple[str, str]:
    """Return the letters of row and column: ``m``, ``n`` and ``k`` of a product.

    A sparse A and its metadata E count nonzeros along K; scale factors count blocks of K;
    ``tcgen05.ld`` and ``.st`` index lanes and columns of tensor memory.

    >>> index_names(fragments.get("mma.sp.m16n8k32.f16", "E"))
    ('m', 'nz')
    >>> index_names(fragments.get("mma.m16n8k64.mxf4.e2m1.ue8m0", "SFA"))
    ('m', 'k/32')
    """
    operand, instruction = fragment.operand, fragment.instruction
    if operand in ("SFA", "SFB"):
        depth = fragments.get(instruction, "A").shape[1]
        blocks = f"k/{depth // fragment.slots}"
        return ("m", blocks) if operand == "SFA" else (blocks, "n")
    if operand[0] in "AE" and instruction.startswith("mma.sp."):
        return "m", "nz"
    if instruction.startswith("tcgen05."):
        return "TLane", "TCol"
    return INDEX.get(operand[0], ("row", "col"))


def role_of(fragment: Fragment) -> str:
    """Return what an operand is: ``"A"``, ``"B"``, ``"D"`` (accumulators), or its own name.

    >>> role_of(fragments.get("mma.m8n8k4.f16", "A.col"))
    'A'
    """
    name = fragment.operand.split(".")[0]
    return "D" if name in ("C/D", "C") else name


def heading_of(fragment: Fragment) -> str:
    """Return the operand's name without its type: ``C/D``, ``A.col``."""
    return fragment.operand.removesuffix(f".{fragment.dtype}")
