"""Verification: programs run on the device or on the NumPy warp, against a float64 product.

Inputs are random, outputs poisoned. The reference is the float64 product of the rounded inputs, the
error ‖out − ref‖ / ‖ref‖ (Frobenius); its bound is derived from K and the accumulator's precision
(:func:`error_bound`). Each check also runs negative controls on the NumPy warp with the same
inputs: the program changed in a known way. If the bound would accept a control, the check is
vacuous, and says so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError
from lowering.ir.ops import Mma, Op, Registers, rewrite, walk
from lowering.ir.tiles import EXTRAS, Buffer
from lowering.isa.dtypes import DType
from lowering.isa.mma import MMA_FAMILY
from lowering.isa.semantics import PAIRS, as_accumulated, as_multiplied, expanded, scaled
from lowering.launch.driver import device_count
from lowering.programs.program import KernelProgram, Program
from lowering.verification.cases import AnyCase, all_cases

TOLERANCE = 1e-5  # what the seed system asked of f32 accumulators, whatever K
ASKED = {"f32": TOLERANCE, "f64": 1e-15}
MARGIN = 10  # a control must exceed the tolerance so many times

Array = npt.NDArray[Any]
Matrices = Mapping[str, Array]
AnyProgram = Program | KernelProgram


@dataclass(frozen=True)
class Control:
    """A program changed in a known way, and the error that it gave.

    ``visible``: whether a product can show the change at all.
    """

    name: str
    error: float
    visible: bool = True


@dataclass(frozen=True)
class Result:
    """What one case gave: the error, its bound, how many mma ran, the machine, the controls."""

    case: str
    instruction: str
    mma: int
    error: float
    tolerance: float
    machine: str
    controls: tuple[Control, ...] = ()

    @property
    def within(self) -> bool:
        """Whether the error is within the bound; NaN never is."""
        return self.error <= self.tolerance

    @property
    def passing(self) -> tuple[str, ...]:
        """The controls that the bound accepts, or nearly: they make the check vacuous."""
        least = MARGIN * self.tolerance
        return tuple(c.name for c in self.controls if c.visible and not c.error > least)

    @property
    def ok(self) -> bool:
        """Whether the error is within the bound, and every visible control is far beyond it."""
        return self.within and not self.passing

    @property
    def verdict(self) -> str:
        """``ok``, ``WRONG``, or ``VACUOUS`` with the controls that pass."""
        if not self.within:
            return "WRONG"
        return f"VACUOUS: passes {', '.join(self.passing)}" if self.passing else "ok"

    def as_dict(self) -> dict[str, Any]:
        """Return the row for a record."""
        return asdict(self) | {"ok": self.ok}


def input_buffers(program: AnyProgram) -> dict[str, Buffer]:
    """Return the buffers that a program reads, by role or by name."""
    if isinstance(program, Program):
        return {role: program.buffer(role) for role in program.inputs}
    written = program.body.written
    return {buffer.name: buffer for buffer in program.body.params if buffer not in written}


# The standard deviation of random integers: so that they fill their type, and sums of s32 wrap.
_SPREAD = {"s8": 50, "u8": 100, "s4": 4, "u4": 7, "s32": 1 << 30}


def _matrices(program: AnyProgram, values: Callable[[Buffer], Array]) -> dict[str, Array]:
    """Return a matrix per input, rounded to its dtype; roles that share a buffer share a matrix."""
    buffers = input_buffers(program)
    made: dict[Buffer, Array] = {}
    for buffer in buffers.values():
        if buffer not in made:
            made[buffer] = _rounded(values(buffer), buffer.dtype)
    return {role: made[buffer] for role, buffer in buffers.items()}


def _rounded(values: Array, dtype: DType) -> Array:
    """Return values in a type: to nearest, inside its range.

    tf32 is cut, as its mma reads it; bits are parities; scales powers of two from an eighth to
    eight, or positive; positions of sparse A one of the ordered pairs, chosen by the first of each.
    """
    if dtype.token == "b1":
        return (np.floor(values).astype(np.int64) % 2).astype(dtype.numpy)
    if dtype.token == "u2":
        chosen = np.floor(values[..., 0::2] * 7).astype(np.int64) % len(PAIRS)
        positions: Array = PAIRS[chosen].reshape(values.shape)
        return positions.astype(dtype.numpy)
    if dtype.token == "ue8m0":
        powers: Array = np.exp2(np.clip(np.rint(values), -3, 3))
        return powers.astype(dtype.numpy)
    if dtype.token in ("u8", "u4", "ue4m3"):
        values = np.abs(values)
    if dtype.token in _SPREAD:
        limits = ml_dtypes.iinfo(dtype.numpy)
        values = np.clip(np.trunc(values), int(limits.min), int(limits.max))
    rounded = values.astype(dtype.numpy)
    return as_multiplied(rounded, dtype.token).astype(dtype.numpy)


def random_inputs(program: AnyProgram, seed: int) -> dict[str, Array]:
    """Return random matrices of the whole buffers, per input role, rounded to their dtypes.

    Integers fill the range of their type. Roles that share a buffer share a matrix.
    """
    generator = np.random.default_rng(seed)

    def values(buffer: Buffer) -> Array:
        return generator.standard_normal(buffer.shape) * _SPREAD.get(buffer.dtype.token, 1)

    return _matrices(program, values)


def integer_inputs(program: AnyProgram, seed: int) -> dict[str, Array]:
    """Return matrices of integers from −8 to 8: every product and sum is exact.

    They come from a formula (the mixer of splitmix64), not from a generator whose stream may
    change between versions.
    """
    start = itertools.count(seed * 1_000_003, 7919)

    def values(buffer: Buffer) -> Array:
        index = np.arange(math.prod(buffer.shape), dtype=np.uint64) + np.uint64(next(start))
        mixed = index * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) >> np.uint64(8)
        integers: Array = (mixed % np.uint64(17)).astype(np.int64).reshape(buffer.shape) - 8
        return integers

    return _matrices(program, values)


def uniform_inputs(program: AnyProgram, seed: int) -> dict[str, Array]:
    """Return matrices of ones, with which a check cannot see a1 and a2 exchanged, and says so."""
    return _matrices(program, lambda buffer: np.ones(buffer.shape))


def operand(program: Program, role: str, matrix: Array) -> npt.NDArray[np.float64]:
    """Return what a role's region of a buffer holds, as an M x K, K x N or M x N matrix.

    Of several products, as many matrices.

    >>> from lowering.verification.cases import Case
    >>> program = Case("mma.m16n8k8.f16", (1, 1, 1), transpose_A=True).program()
    >>> operand(program, "A", np.zeros((8, 16))).shape
    (16, 8)
    """
    region = program.call.operands[role]
    box = matrix[tuple(slice(begin, end) for begin, end in region.ranges)].astype(np.float64)
    if role in EXTRAS:
        return box
    plain = box.reshape([extent for extent in box.shape if extent != 1])
    return plain.swapaxes(-1, -2) if program.call.config.get(f"transpose_{role}", False) else plain


def _operands(program: AnyProgram, inputs: Matrices) -> dict[str, npt.NDArray[np.float64]]:
    """Return A as M x K, B as K x N, and C where it counts, in float64.

    Sparse A with its zeros, block-scaled A and B with their scales.
    """
    if isinstance(program, Program):
        parts = {role: operand(program, role, inputs[role]) for role in program.inputs}
        if "E" in parts:
            parts["A"] = expanded(parts["A"], parts.pop("E"))
        if "SFA" in parts:
            scales = parts.pop("SFA"), parts.pop("SFB")
            parts["A"], parts["B"] = scaled(parts["A"], parts["B"], *scales)
        return parts
    given = {role: matrix.astype(np.float64) for role, matrix in inputs.items()}
    return {role: given[role] if role in given else given[f"{role}t"].T for role in "AB"}


def reference(program: AnyProgram, inputs: Matrices) -> npt.NDArray[np.float64]:
    """Return the float64 product of the inputs' regions, as the call orients them.

    Integers are exact, and wrap or saturate as D does; bits count as the instruction counts.
    """
    parts = _operands(program, inputs)
    a, b = parts["A"], parts["B"]
    inst = next(op.instruction for op in program.body.mma)
    product = (a[..., None] != b).sum(axis=-2) if inst.modifier == "xor" else a @ b
    total = product + parts["C"] if "C" in parts else product
    return as_accumulated(total, inst).astype(np.float64) if inst.d.numpy.kind == "i" else total


def relative_error(out: Array, ref: npt.NDArray[np.float64]) -> float:
    """Return ‖out − ref‖ / ‖ref‖; NaN where an output was not written.

    >>> relative_error(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    0.0
    """
    distance = float(np.linalg.norm(out.astype(np.float64) - ref))
    size = float(np.linalg.norm(ref))
    if size == 0:
        return math.inf if distance > 0 else distance
    return distance / size


def error_bound(program: AnyProgram, inputs: Matrices) -> float:
    """Return a bound of ‖out − ref‖ / ‖ref‖ from K and the accumulator's unit.

    Products of two inputs are exact, but for f64. A tensor core adds b of them and the accumulator
    at once: it shifts each addend to the largest exponent, cuts it there, and cuts the sum. With u
    the spacing at 1 of the type that it adds in, f32 or f64, and T = |A|·|B| + |C|, each of those
    b + 2 cuts loses at most u·T. A chain of K/b blocks loses at most (K + 2K/b)·u·T, element by
    element; b is 4 at least, so

        ‖out − ref‖ / ‖ref‖  ≤  1.5·K·u · ‖T‖ / ‖ref‖.

    Where D is narrower, f16, each block's sum is rounded to it, to nearest: K/8·u(f16) more. It is
    0 for integers, which are exact.

    Source: M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, Numerical behavior of NVIDIA tensor
    cores, PeerJ Computer Science 7 (2021), for the blocks and that addends are cut, not rounded.

    >>> from lowering.verification.cases import Case
    >>> program = Case("mma.m16n8k16.f16", (1, 1, 1)).program()
    >>> 2e-6 < error_bound(program, random_inputs(program, 0)) < 2e-5
    True
    """
    dtype = program.body.written[0].dtype.numpy
    if dtype.kind in "iu":
        return 0.0
    parts = _operands(program, inputs)
    most = np.abs(parts["A"]) @ np.abs(parts["B"])
    if "C" in parts:
        most = most + np.abs(parts["C"])
    size = float(np.linalg.norm(reference(program, inputs)))
    k = parts["A"].shape[1]
    spread = float(np.linalg.norm(most)) / size if size else math.inf
    unit, own = (float(np.finfo(t).eps) for t in (np.promote_types(dtype, np.float32), dtype))
    rounded = k / 8 * own if own > unit else 0.0
    return float((1.5 * k * unit + rounded) * spread)


def tolerance_of(program: AnyProgram, inputs: Matrices) -> float:
    """Return the derived bound; what was asked where that is tighter: 1e-5 of f32, 1e-15 of f64."""
    return min(error_bound(program, inputs), ASKED.get(program.body.written[0].dtype.token, 1.0))


# -- negative controls ----------------------------------------------------------------------------


def bent(program: AnyProgram, change: Callable[[Mma], Mma | None]) -> AnyProgram:
    """Return a program with every mma changed; None drops it.

    >>> from lowering.verification.cases import Case
    >>> program = Case("mma.m16n8k8.f16", (1, 1, 1)).program()
    >>> len(bent(program, lambda op: None).body.mma)
    0
    """

    def each(op: Op) -> tuple[Op, ...]:
        changed = change(op) if isinstance(op, Mma) else op
        return () if changed is None else (changed,)

    if isinstance(program, Program):
        ops = rewrite(program.lowered.ops, each)
        return replace(program, lowered=replace(program.lowered, ops=ops))
    body = replace(program.body, ops=rewrite(program.body.ops, each))
    return replace(program, lowered=body)


def _registers(op: Mma, role: str) -> list[tuple[int, ...]]:
    """Return the elements of each register of A or B, in operand order."""
    numbers, pack = {"A": op.a, "B": op.b}[role].numbers, op.instruction.fragment(role).pack
    return [numbers[at : at + pack] for at in range(0, len(numbers), pack)]


def _joined(elements: Registers, registers: Iterable[tuple[int, ...]]) -> Registers:
    return replace(elements, numbers=tuple(number for each in registers for number in each))


def swap_a(op: Mma) -> Mma:
    """Exchange a1 and a2; a0 and a1 where A has two registers; nothing where it has one."""
    registers = _registers(op, "A")
    if len(registers) > 1:
        one, two = (1, 2) if len(registers) > 2 else (0, 1)
        registers[one], registers[two] = registers[two], registers[one]
    return replace(op, a=_joined(op.a, registers))


def exchange_extras(op: Mma) -> Mma:
    """Exchange the halves of E, or the scales of a lane; nothing where a lane has one scale."""

    def exchanged(elements: Registers) -> Registers:
        half = len(elements.numbers) // 2
        return replace(elements, numbers=elements.numbers[half:] + elements.numbers[:half])

    return replace(op, extra=tuple(exchanged(each) for each in op.extra))


def permute_k(op: Mma) -> Mma:
    """Permute k in A and B alike: the packed neighbours, or the registers, in reverse order."""
    a, b = _registers(op, "A"), _registers(op, "B")
    if op.instruction.k_pack > 1:
        return replace(
            op, a=_joined(op.a, (r[::-1] for r in a)), b=_joined(op.b, (r[::-1] for r in b))
        )
    rows = len(a) // len(b)
    groups = [a[at : at + rows] for at in range(0, len(a), rows)]
    reversed_a = (register for group in reversed(groups) for register in group)
    return replace(op, a=_joined(op.a, reversed_a), b=_joined(op.b, reversed(b)))


def without_last_k(program: AnyProgram) -> AnyProgram:
    """Return a program without the last mma of each accumulator: a k step is missing."""
    last = {op.d: op for op in walk(program.body.ops) if isinstance(op, Mma)}
    return bent(program, lambda op: None if last[op.d] is op else op)


def _result(program: AnyProgram, out: Any) -> npt.NDArray[np.float64]:
    """Return D's region of what a program returned."""
    if isinstance(program, Program):
        return operand(program, "D", out)
    matrix: npt.NDArray[np.float64] = out["D"].astype(np.float64)
    return matrix


def controls(
    program: AnyProgram, inputs: Matrices, ref: npt.NDArray[np.float64]
) -> tuple[Control, ...]:
    """Return the negative controls of a check, run on the NumPy warp with the check's inputs.

    Zeros in place of the result, a1 and a2 exchanged, the last k step missing, positions or scales
    exchanged: a check must see each. A k permutation common to A and B shows in no product: its
    error is given, and nothing concluded from it.
    """
    changed = {
        "zeros": None,
        "a1/a2": bent(program, swap_a),
        "k step": without_last_k(program),
        "extras": bent(program, exchange_extras),
        "common k": bent(program, permute_k),
    }
    if any(op.instruction not in MMA_FAMILY for op in program.body.mma):
        del changed["common k"]  # positions and scales say where k is, other orders have it apart
    found = []
    for name, other in changed.items():
        if other is None:
            out = np.zeros_like(ref)
        elif name in ("a1/a2", "extras") and other == program:
            continue  # one register, or no extra operand: there is nothing to exchange
        else:
            out = _result(other, other.simulate(**dict[str, Any](inputs)))
        found.append(Control(name, relative_error(out, ref), name != "common k"))
    return tuple(found)


# -- checks ---------------------------------------------------------------------------------------


def machine_name() -> str:
    """Return the machine that ``verify`` takes by default: "device" where there is a GPU."""
    return "device" if device_count() else "simulator"


def as_machine(machine: str | None, operation: str) -> str:
    """Return a machine by name, the default one for None.

    Raises:
        LayoutError: another name.
    """
    if machine is None:
        return machine_name()
    if machine not in ("device", "simulator"):
        raise LayoutError(
            f"{operation}: the machine must be 'device' or 'simulator'; got {machine!r}"
        )
    return machine


def _outside(program: AnyProgram, inputs: Matrices, seed: int) -> Array | None:
    """Return what D's buffer holds before; None where D's region is all of it.

    Numbers, not poison: NaN plus anything is NaN, and would not show.
    """
    if not isinstance(program, Program):
        return None
    region = program.call.operands["D"]
    if region == region.buffer.region():
        return None
    for role in program.inputs:
        if program.buffer(role) == region.buffer:
            return inputs[role]
    values = np.random.default_rng(seed + 1).standard_normal(region.buffer.shape)
    return values.astype(region.buffer.dtype.numpy)


def _untouched(program: AnyProgram, before: Array, after: Array) -> bool:
    """Say whether D's buffer changed in D's region alone."""
    assert isinstance(program, Program)
    box = tuple(slice(begin, end) for begin, end in program.call.operands["D"].ranges)
    expected = before.copy()
    expected[box] = after[box]
    return bool(expected.tobytes() == after.tobytes())


def check(
    program: AnyProgram,
    name: str,
    machine: str,
    seed: int = 0,
    tolerance: float | None = None,
    inputs: Callable[[AnyProgram, int], dict[str, Array]] = random_inputs,
) -> Result:
    """Run one program and its controls, and compare D's region with the float64 product.

    The error is infinite where elements of D's buffer outside its region changed.

    Args:
        program: a lowered gemm, or a kernel with the parameters A or At, B or Bt, and D.
        name: what the result calls it.
        machine: "device" or "simulator"; controls run on the NumPy warp.
        seed: of the inputs.
        tolerance: of the error; by default :func:`tolerance_of`.
        inputs: makes the matrices of a program from a seed.
    """
    matrices = inputs(program, seed)
    execute: Callable[..., Any] = program.run if machine == "device" else program.simulate
    before = _outside(program, matrices, seed)
    out = execute(**matrices) if before is None else execute(**matrices, D=before)
    ref = reference(program, matrices)
    error = relative_error(_result(program, out), ref)
    if before is not None and not _untouched(program, before, out):
        error = math.inf
    mma = [op for op in walk(program.body.ops) if isinstance(op, Mma)]
    bound = tolerance_of(program, matrices) if tolerance is None else tolerance
    along = controls(program, matrices, ref)
    return Result(name, mma[0].instruction.ptx, len(mma), error, bound, machine, along)


class Progress(Protocol):
    """Wraps the sequence of cases, to show a bar."""

    def __call__(self, cases: Sequence[Any], /) -> Iterable[Any]:
        """Return the cases, one by one."""


def verify(
    cases: Iterable[AnyCase] | None = None,
    machine: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    tolerance: float | None = None,
    inputs: Callable[[AnyProgram, int], dict[str, Array]] = random_inputs,
) -> tuple[Result, ...]:
    """Verify programs; by default every case on the GPU, or on the NumPy warp without one.

    Args:
        cases: what to run.
        machine: "device" or "simulator".
        seed: of the random inputs; each case adds its position.
        progress: wraps the sequence of cases, to show a bar.
        tolerance: of the error; by default derived, case by case.
        inputs: makes the matrices of a program from a seed.

    Raises:
        LayoutError: the machine is unknown.

    >>> from lowering.verification.cases import Case
    >>> verify([Case("mma.m16n8k8.f16", (1, 1, 1))], machine="simulator")[0].verdict
    'ok'
    >>> verify([Case("mma.m16n8k8.f16", (1, 1, 1))], "simulator", inputs=uniform_inputs)[0].verdict
    'VACUOUS: passes a1/a2'
    """
    machine = as_machine(machine, "verify")
    chosen = tuple(all_cases() if cases is None else cases)
    shown = chosen if progress is None else progress(chosen)
    return tuple(
        check(case.program(), str(case), machine, seed + index, tolerance, inputs)
        for index, case in enumerate(shown)
    )
