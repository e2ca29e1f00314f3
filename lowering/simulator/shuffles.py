"""Registers of a warp on the NumPy warp: selects, packing and shuffles, a register at a time.

All but the butterfly move what nothing wrote as well: whoever reads the result is refused.
"""

from __future__ import annotations

import numpy as np

from layoutalg.algebra.axis import WARP
from lowering.ir.matrices import Matrix
from lowering.ir.ops import Agree, Butterfly, Permute, Registers, Select, Shuffle
from lowering.isa import functions
from lowering.simulator.hazards import SimulationError
from lowering.simulator.machine import Machine, simulate
from lowering.simulator.order import Bools, Ints


def word(machine: Machine, source: Registers) -> tuple[Matrix, Bools]:
    """Return the elements of a register, (threads, elements), and which of them are written."""
    per = machine.body.buffer(source.buffer).dtype.pack
    values = machine.registers[source.buffer]
    found = np.zeros((len(values), per), dtype=values.dtype)
    known = np.zeros(found.shape, dtype=bool)
    numbers = np.array(source.numbers)
    assert len({*(numbers // per)}) == 1, source
    found[:, numbers % per] = values[:, numbers]
    known[:, numbers % per] = machine.known[source.buffer][:, numbers]
    return found, known


def keep(machine: Machine, into: Registers, values: Matrix, known: Bools) -> None:
    """Set a whole register of the active threads."""
    here = np.ix_(machine.mask, np.array(into.numbers))
    machine.registers[into.buffer][here] = values[machine.mask]
    machine.known[into.buffer][here] = known[machine.mask]


@simulate.of(Agree)
def _agree(machine: Machine, op: Agree) -> None:
    """Refuse copies that differ, of those that are written.

    Raises:
        SimulationError: two of them do.
    """
    numbers = list(op.copies.numbers)
    elements = np.array(op.elements)
    meant = machine.known[op.copies.buffer][:, numbers] & machine.mask[:, None] & (elements >= 0)
    values = np.ascontiguousarray(machine.registers[op.copies.buffer][:, numbers])
    bits = values.view(f"u{values.dtype.itemsize}")[meant]
    _, first, copy = np.unique(elements[meant], return_index=True, return_inverse=True)
    differ = np.flatnonzero(bits != bits[first][copy.reshape(-1)])
    if differ.size:
        threads, places = np.nonzero(meant)
        one, other = int(first[copy.reshape(-1)[differ[0]]]), int(differ[0])
        where = [f"{op.copies.buffer}[{numbers[places[at]]}] of thread {threads[at]}" for at in
                 (one, other)]  # fmt: skip
        raise SimulationError(
            f"simulate: {op}: {where[0]} and {where[1]} are copies of one element, and differ; set "
            "both, or copy in the branch that set one"
        )


@simulate.of(Select)
def _select(machine: Machine, op: Select) -> None:
    which = machine.addresses(op.which)[:, None] == 1
    sides = zip(word(machine, op.one), word(machine, op.zero), strict=True)
    values, known = (np.where(which, one, zero) for one, zero in sides)
    keep(machine, op.into, values, known)


@simulate.of(Shuffle)
def _shuffle(machine: Machine, op: Shuffle) -> None:
    thread = np.arange(machine.body.threads)
    lane: Ints = machine.addresses(op.lane)
    assert ((lane >= 0) & (lane < WARP)).all(), op
    source = thread - thread % WARP + lane
    values, known = (each[source] for each in word(machine, op.source))
    keep(machine, op.into, values, known)


@simulate.of(Permute)
def _permute(machine: Machine, op: Permute) -> None:
    thread = np.arange(machine.body.threads)
    sides = zip(word(machine, op.first), word(machine, op.second), strict=True)
    values, known = (np.concatenate(each, axis=1) for each in sides)
    selector = machine.addresses(op.selector)
    units = max(1, machine.body.buffer(op.into.buffer).dtype.bits // 8)  # of an element
    digits = [selector >> 4 * at & 15 for at in range(len(op.into.numbers) * units)]
    for at, digit in enumerate(digits):
        assert (digit % units == at % units).all(), op
    picks = [digit // units for digit in digits[::units]]
    found, written = (
        np.stack([each[thread, pick] for pick in picks], axis=1) for each in (values, known)
    )
    keep(machine, op.into, found, written)


@simulate.of(Butterfly)
def _butterfly(machine: Machine, op: Butterfly) -> None:
    token = machine.body.buffer(op.into.buffer).dtype.token
    own = machine.read(op.into, op)
    others = own[np.arange(machine.body.threads) ^ op.mask]
    machine.write(op.into, functions.get(op.function, (token, token)).apply(own, others))
