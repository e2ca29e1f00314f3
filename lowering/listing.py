"""What every kernel text of a nest shares: its buffers, and the loads and stores of registers."""

from __future__ import annotations

from dataclasses import dataclass

from lowering.index import Place, register_places
from lowering.nest import Nest
from lowering.tile import Buffer


@dataclass(frozen=True)
class Transfer:
    """The elements of one operand that a thread loads or stores: register -> place."""

    role: str
    buffer: Buffer
    places: dict[int, Place]


def used_registers(nest: Nest, role: str) -> tuple[int, ...]:
    """Return the element registers of a role that the steps touch, ascending."""
    pack = nest.instruction.fragment(role).pack
    found: set[int] = set()
    for step in nest.steps:
        if role == "D" and step[0] in ("zero", "copy"):
            found.add(step[1])
        elif role == "C" and step[0] == "copy":
            found.add(step[2])
        elif role in "AB" and step[0] == "mma":
            words = step[2] if role == "A" else step[3]
            found.update(word * pack + part for word in words for part in range(pack))
    return tuple(sorted(found))


def transfer(nest: Nest, role: str) -> Transfer:
    """Return where the registers of a role come from, or go to."""
    buffer = nest.buffer(role)
    registers = used_registers(nest, role)
    places = register_places(nest.placements[role], nest.threads, registers)
    return Transfer(role, buffer, places)


def parameters(nest: Nest) -> tuple[str, ...]:
    """Return the roles whose buffers are kernel parameters, each buffer once, D last.

    A buffer in two roles (C is D) is one parameter, D's.
    """
    d = nest.buffer("D")
    roles = [role for role in nest.inputs if nest.buffer(role) != d]
    first: dict[str, str] = {}
    for role in roles:
        first.setdefault(nest.buffer(role).name, role)
    return (*first.values(), "D")


def parameter_of(nest: Nest, role: str) -> str:
    """Return the parameter that holds a role's buffer."""
    for parameter in parameters(nest):
        if nest.buffer(parameter) == nest.buffer(role):
            return parameter
    raise AssertionError(f"role {role} has no parameter")
