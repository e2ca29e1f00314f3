"""The NumPy warp: runs a nest for all threads at once, where there is no GPU.

Registers are arrays (threads, registers). An mma gathers each warp's operands into matrices through
the instruction's fragments, multiplies, and scatters the result: products of the input type are
exact, their sum with the accumulator is rounded once to its type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError
from layoutalg.fragments import WARP, Fragment
from lowering.nest import Nest
from lowering.registers import element_map, register_count
from lowering.tile import Buffer

Matrix = npt.NDArray[Any]


def as_matrix(value: Any, buffer: Buffer, role: str) -> Matrix:
    """Return a caller's matrix in the buffer's dtype, rounded to nearest where it is wider.

    Raises:
        LayoutError: another shape, or not numeric.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise LayoutError(f"operand {role}: {buffer.name} needs a matrix: {error}") from None
    if array.shape != buffer.shape:
        raise LayoutError(
            f"operand {role}: {buffer.name} needs a matrix of shape {buffer.shape}; "
            f"got {array.shape}"
        )
    if array.dtype.kind not in "fiuV" or array.dtype.names is not None:
        raise LayoutError(f"operand {role}: needs numbers; got dtype {array.dtype}")
    return array.astype(buffer.dtype.numpy)


def check_inputs(nest: Nest, inputs: dict[str, Any]) -> dict[str, Matrix]:
    """Return the matrices by buffer name, converted.

    Raises:
        LayoutError: a role is missing or unknown, a shape is wrong, or one buffer is given twice.
    """
    given = {nest.buffer(role).name for role in inputs if role in nest.call.operands}
    missing = [role for role in nest.inputs if nest.buffer(role).name not in given]
    if missing or not set(inputs) <= set(nest.call.operands):
        got = ", ".join(sorted(inputs)) or "none"
        raise LayoutError(
            f"run: the program reads the matrices {', '.join(nest.inputs)}; got {got}"
        )
    matrices: dict[str, Matrix] = {}
    for role, value in inputs.items():
        buffer = nest.buffer(role)
        matrix = as_matrix(value, buffer, role)
        known = matrices.setdefault(buffer.name, matrix)
        if known.tobytes() != matrix.tobytes():
            raise LayoutError(f"run: {role} is the buffer {buffer.name}, given two matrices")
    return matrices


def poison(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Matrix:
    """Return an array that shows every element nobody writes: NaN, or the lowest integer."""
    if dtype.kind in "iu":
        return np.full(shape, np.iinfo(dtype).min + 0x5A, dtype=dtype)
    return np.full(shape, np.nan).astype(dtype)


def simulate(nest: Nest, inputs: dict[str, Any]) -> Matrix:
    """Run a nest on matrices and return the whole matrix of D.

    Args:
        nest: the lowered call.
        inputs: role -> matrix of the whole buffer; "D" gives what D holds before.

    Returns:
        D's buffer; elements outside the region keep what was given, or are NaN.
    """
    matrices = check_inputs(nest, inputs)
    state: dict[str, Matrix] = {}
    holders: dict[str, npt.NDArray[np.int64]] = {}
    for role in ("D", *nest.inputs):
        buffer = nest.buffer(role)
        if buffer.name in state:
            continue
        count = register_count(buffer.layout)
        placement = nest.placements[role]
        holders[buffer.name] = element_map(placement, buffer.shape, nest.threads, count)
        state[buffer.name] = poison(buffer.dtype.numpy, (nest.threads, count))
        if buffer.name in matrices:
            held = holders[buffer.name]
            state[buffer.name][held >= 0] = matrices[buffer.name].reshape(-1)[held[held >= 0]]
    d, a, b = (state[nest.buffer(role).name] for role in "DAB")
    for step in nest.steps:
        if step[0] == "zero":
            d[:, step[1]] = 0
        elif step[0] == "copy":
            d[:, step[1]] = state[nest.buffer("C").name][:, step[2]]
        else:
            _mma(nest, d, a, b, step[1:])
    buffer = nest.buffer("D")
    out = poison(buffer.dtype.numpy, buffer.shape)
    held = holders[buffer.name]
    out.reshape(-1)[held[held >= 0]] = d[held >= 0]
    return out


def _gather(registers: Matrix, words: tuple[int, ...], fragment: Fragment) -> Matrix:
    """Return one matrix per warp, in float64, from the lanes' registers."""
    pack = fragment.pack
    slots = [word * pack + part for word in words for part in range(pack)]
    values = registers[:, slots].reshape(-1, WARP, fragment.slots).astype(np.float64)
    rows, cols = np.moveaxis(fragment.coords, -1, 0)
    matrix = np.empty((len(values), *fragment.shape))
    matrix[:, rows, cols] = values
    return matrix


def _mma(nest: Nest, d: Matrix, a: Matrix, b: Matrix, operands: tuple[Any, ...]) -> None:
    """Do ``D += A·B`` in every warp, in place."""
    inst = nest.instruction
    d_regs, a_words, b_words = operands
    accumulator = inst.fragment("D")
    total = _gather(d, d_regs, accumulator)
    total += _gather(a, a_words, inst.fragment("A")) @ _gather(b, b_words, inst.fragment("B"))
    rows, cols = np.moveaxis(accumulator.coords, -1, 0)
    d[:, list(d_regs)] = total[:, rows, cols].reshape(nest.threads, -1).astype(d.dtype)
