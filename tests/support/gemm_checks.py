"""What a gemm program must compute, from its call alone, and every machine that can run it here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import lowering as lw
from tests.fuzz import texts

Array = npt.NDArray[Any]


def matrices(program: lw.Program, seed: int, exact: bool = True) -> dict[str, Array]:
    """Return a random matrix per role, one per buffer; small integers where results must be exact.

    D is given too: elements outside its region must come back untouched.
    """
    generator = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for buffer in program.call.buffers:
        values: Array = generator.standard_normal(buffer.shape)
        if exact:
            values = generator.integers(-8, 9, buffer.shape)
        found[buffer.name] = values.astype(buffer.dtype.numpy)
    return {role: found[region.buffer.name] for role, region in program.call.operands.items()}


def expected(program: lw.Program, given: dict[str, Array]) -> Array:
    """Return D's whole buffer: the float64 product in the region, what was there elsewhere."""
    parts = {}
    boxes = {}
    for role, region in program.call.operands.items():
        boxes[role] = tuple(slice(begin, end) for begin, end in region.ranges)
        box = given[role][boxes[role]].astype(np.float64)
        parts[role] = box.reshape([extent for extent in box.shape if extent != 1])
        if program.call.config.get(f"transpose_{role}"):
            parts[role] = parts[role].T
    out = given["D"].astype(np.float64)
    product = parts["A"] @ parts["B"]
    if program.call.config["beta"] == 1:
        product = product + parts["C"]
    out[boxes["D"]] = product.reshape(out[boxes["D"]].shape)
    return out


def parameters(program: lw.Program) -> tuple[str, ...]:
    """Return the roles that are parameters of the kernels, by the rule: inputs once, D last."""
    d = program.call.operands["D"].buffer
    roles = "ABC" if program.call.config["beta"] == 1 else "AB"
    first: dict[str, str] = {}
    for role in roles:
        buffer = program.call.operands[role].buffer
        if buffer != d:
            first.setdefault(buffer.name, role)
    return (*first.values(), "D")


def outputs(program: lw.Program, given: dict[str, Array]) -> Iterator[tuple[str, Array]]:
    """Yield (machine, D) for every reader of a program that runs without a GPU."""
    yield "simulate", program.simulate(**given)
    cpp = texts.python_of(program.cuda_source())
    for name, text in (("kernel_source", program.kernel_source()), ("cuda_source", cpp)):
        arrays = {role: given[role].copy().reshape(-1) for role in parameters(program)}
        memory = [array.view(np.uint8) for array in arrays.values()]
        texts.run(texts.compile_text(text), program.threads, program.threads, 1, memory, [], {})
        yield name, arrays["D"].reshape(given["D"].shape)


def relative_error(out: Array, ref: Array) -> float:
    """Return ‖out - ref‖ / ‖ref‖."""
    return float(np.linalg.norm(out.astype(np.float64) - ref) / np.linalg.norm(ref))
