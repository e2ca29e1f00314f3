"""Exchanges between lanes on the NumPy warp."""

from __future__ import annotations

import numpy as np

from lowering.ir.ops import Butterfly
from lowering.isa import functions
from lowering.simulator.machine import Machine, simulate


@simulate.of(Butterfly)
def _butterfly(machine: Machine, op: Butterfly) -> None:
    token = machine.body.buffer(op.into.buffer).dtype.token
    own = machine.read(op.into, op)
    others = own[np.arange(machine.body.threads) ^ op.mask]
    machine.write(op.into, functions.get(op.function, (token, token)).apply(own, others))
