"""The arguments of a launch: matrices and scalars by name, checked, and laid out in memory.

The NumPy warp and a GPU are given the same cells, tensor maps and scalars, so both answer alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError
from layoutalg.sizes.budget import LAUNCHED, check_budget
from lowering.dispatch.addresses import memory_address
from lowering.ir.index import FREE, INT, Guard, Index
from lowering.ir.kernel_ir import KernelIR, Scalar
from lowering.ir.matrices import Matrix, as_matrix, poison
from lowering.ir.ops import (
    Let,
    Loop,
    Op,
    WarpSpecialize,
    When,
    indices,
    walk,
)
from lowering.ir.tiles import Buffer, cells
from lowering.simulator.grid import Grid
from lowering.simulator.machine import Machine

UNIT = 16  # bytes: of which a tensor map's pitch and address are multiples


@dataclass(frozen=True)
class Box:
    """The tensor map of a matrix: its extents, and its pitch in elements."""

    extents: tuple[int, int]
    pitch: int


@dataclass(frozen=True)
class Arguments:
    """The parameters of a launch, in the kernel's order.

    ``cells``: the memory of each. ``addresses``: the cell of each element of its matrix.
    ``known``: those that were given; the others are poisoned. ``boxes``: tensor maps of those that
    TMA reads or writes.
    """

    cells: Mapping[str, Matrix]
    addresses: Mapping[str, npt.NDArray[np.int64]]
    known: frozenset[str]
    scalars: Mapping[str, int | float]
    boxes: Mapping[str, Box]

    def matrix(self, name: str, flat: Matrix) -> Matrix:
        """Return the matrix that the cells of a parameter hold."""
        found: Matrix = flat[self.addresses[name]]
        return found


def arguments(
    body: KernelIR, given: Mapping[str, Any], grid: tuple[int, int] = (1, 1)
) -> Arguments:
    """Return the arguments of a launch, checked.

    Args:
        body: of the kernel.
        given: parameter or scalar by name. A parameter is a matrix of its buffer's shape; an
            extent that only the launch knows is that of its bound, or of the matrix. A parameter
            that is only written may be left out.
        grid: of the launch, in CTAs.

    Raises:
        LayoutError: a name is missing or unknown, or a value does not fit.

    >>> from layoutalg import S, TileLayout
    >>> a = Buffer("a", (2, 4), "float32", "global", TileLayout(S[(2, 4) : (1, 2)]))
    >>> body = KernelIR((a,), (), (), (), 32)
    >>> arguments(body, {"a": np.arange(8).reshape(2, 4)}).cells["a"].tolist()
    [0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0]
    >>> arguments(body, {"b": 0})
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: run: the kernel needs nothing, and takes a; got b: b is unknown
    """
    _check_names(body, given)
    scalars = {each.name: _scalar(body, each, given[each.name]) for each in body.scalars}
    packed: dict[str, Matrix] = {}
    addresses: dict[str, npt.NDArray[np.int64]] = {}
    boxes: dict[str, Box] = {}
    for buffer in body.params:
        shape = _shape(buffer, scalars, given.get(buffer.name))
        whole = None
        if buffer.name in given:
            whole = as_matrix(given[buffer.name], buffer, buffer.name, shape)
        _check_size(buffer, math.prod(shape))
        where = _addresses(buffer, shape, scalars)
        addresses[buffer.name] = where
        size = cells(buffer) if shape == buffer.shape else int(where.max()) + 1
        _check_size(buffer, size)
        packed[buffer.name] = poison(buffer.dtype.numpy, (size,))
        if whole is not None:
            packed[buffer.name][where] = whole
            _check_kept(buffer, whole, where, packed[buffer.name])
        if buffer.name in body.boxes:
            boxes[buffer.name] = _box(buffer, where, scalars)
    _check_promises(body, scalars, grid)
    known = frozenset(buffer.name for buffer in body.params if buffer.name in given)
    return Arguments(packed, addresses, known, scalars, boxes)


def _check_names(body: KernelIR, given: Mapping[str, Any]) -> None:
    """Refuse a launch that names too little or too much.

    Raises:
        LayoutError: what is needed is listed.
    """
    written = {buffer.name for buffer in body.written}
    read = set[str]().union(*(op.reads for op in walk(body.ops)))
    params = [buffer.name for buffer in body.params]
    needed = [name for name in params if name in read - written]
    needed += [scalar.name for scalar in body.scalars]
    missing = [name for name in needed if name not in given]
    unknown = sorted(set(given) - {*params, *needed})
    if not missing and not unknown:
        return
    faults = [f"{name} is missing" for name in missing]
    faults += [f"{name} is unknown" for name in unknown]
    optional = [name for name in params if name not in needed]
    takes = f", and takes {', '.join(optional)}" if optional else ""
    raise LayoutError(
        f"run: the kernel needs {', '.join(needed) or 'nothing'}{takes}; got "
        f"{', '.join(sorted(given)) or 'nothing'}: {', '.join(faults)}"
    )


def _scalar(body: KernelIR, scalar: Scalar, value: Any) -> int | float:
    """Return the value of a scalar.

    Raises:
        LayoutError: no number, or one out of the range that the kernel's indices assume.
    """
    if scalar.token == "f32":
        if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
            raise LayoutError(f"run: {scalar.name} must be a number; got {value!r}")
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise LayoutError(f"run: {scalar.name} must be an integer; got {value!r}")
    limits = [
        digit.limit
        for op in walk(body.ops)
        for index in indices(op)
        for digit, _ in index.digits()
        if digit.var == scalar.name
    ]
    limit = min(max(limits, default=FREE), INT)
    if not 0 <= value < limit:
        raise LayoutError(f"run: {scalar.name} must lie in 0..{limit - 1}; got {value}")
    unit = max(
        (buffer.multiple for buffer in body.params if scalar.name in buffer.bounds), default=1
    )
    if value % unit:
        raise LayoutError(
            f"run: {scalar.name} bounds copies of {unit} elements and must be a multiple of "
            f"{unit}; got {value}"
        )
    return int(value)


def _check_promises(body: KernelIR, scalars: Mapping[str, Any], grid: tuple[int, int]) -> None:
    """Check the extents that ``Kernel.let`` promised of indices that the launch decides.

    Raises:
        LayoutError: a named index would lie beyond its extent in some CTA.
    """
    bx, by = (np.arange(extent) for extent in grid)
    places = {"bx": bx[:, None], "by": by[None, :]}
    _check_lets(body.ops, dict(scalars) | places, np.ones(grid, dtype=bool), grid)


def _check_lets(
    ops: Sequence[Op], env: dict[str, Any], taking: npt.NDArray[np.bool_], grid: tuple[int, int]
) -> None:
    """Check every let of bx, by and scalars alone, in the CTAs that reach it; adds to ``env``.

    Raises:
        LayoutError: as :func:`_check_promises`.
    """
    for op in ops:
        if isinstance(op, WarpSpecialize):
            _check_lets(op.produce, dict(env), taking, grid)
            _check_lets(op.consume, dict(env), taking, grid)
        elif isinstance(op, (Loop, When)):
            guards = op.guards if isinstance(op, When) else (Guard(Index(), 0, op.extent),)
            here = taking
            for guard in guards:
                if set().union(*(each.variables() for each in indices(guard))) <= set(env):
                    high = guard.high.value(env) if isinstance(guard.high, Index) else guard.high
                    value = guard.index.value(env)
                    here = here & (guard.low <= value) & (value < high)
            _check_lets(op.body, dict(env), here, grid)
        elif isinstance(op, Let) and op.value.variables() <= set(env):
            env[op.var] = value = np.asarray(op.value.value(env))
            found = np.broadcast_to(value, taking.shape)[taking]
            if found.size and not 0 <= found.min() <= found.max() < op.extent:
                raise LayoutError(
                    f"run: {op} is one of {op.extent} values from 0 on; with the grid {grid} "
                    f"it is {found.min()} to {found.max()}"
                )


def _shape(buffer: Buffer, scalars: Mapping[str, Any], value: Any) -> tuple[int, ...]:
    """Return the extents of a parameter's matrix.

    Raises:
        LayoutError: nothing but the matrix gives an extent, and it is left out.
    """
    got = () if value is None else np.shape(value)
    shape = []
    for dim, (extent, bound) in enumerate(zip(buffer.shape, buffer.bounds, strict=True)):
        if extent < FREE:
            shape.append(int(extent))
        elif bound is not None:
            shape.append(int(scalars[bound]))
        elif len(got) == len(buffer.shape):
            shape.append(int(got[dim]))
        else:
            raise LayoutError(
                f"run: {buffer.name} must be given, a matrix of {len(buffer.shape)} dimensions: "
                f"nothing else says its extent in dimension {dim}"
            )
    return tuple(shape)


def _addresses(
    buffer: Buffer, shape: tuple[int, ...], scalars: Mapping[str, Any]
) -> npt.NDArray[np.int64]:
    """Return where each element of a matrix lies, in cells.

    Raises:
        LayoutError: two elements share an address, or one lies below the first.
    """
    coordinate = [Index.of(f"d{dim}", int(n)) for dim, n in enumerate(buffer.shape)]
    numbers = np.ogrid[tuple(slice(extent) for extent in shape)]
    env = {f"d{dim}": each for dim, each in enumerate(numbers)} | dict(scalars)
    where = memory_address(buffer, coordinate).value(env)
    found = np.ascontiguousarray(np.broadcast_to(np.asarray(where, dtype=np.int64), shape))
    if shape != buffer.shape and len(np.unique(found)) < found.size:
        raise LayoutError(
            f"run: elements of {buffer.name} {shape} share an address; its layout "
            f"{buffer.layout} needs larger pitches"
        )
    return found


def _check_size(buffer: Buffer, count: int) -> None:
    """Refuse a matrix that is too large for the host.

    Raises:
        LayoutError: its elements, or its cells, are too many.
    """
    advice = "Declare a parameter of the part that the kernel touches, or of a smaller pitch"
    check_budget(f"run: {buffer.name}", count, LAUNCHED, "elements, gaps included", advice)


def _check_kept(buffer: Buffer, whole: Matrix, where: npt.NDArray[np.int64], flat: Matrix) -> None:
    """Refuse a matrix with different elements at one address.

    Raises:
        LayoutError: two such elements are named.
    """
    given, kept = (np.ascontiguousarray(each).view(np.uint8) for each in (whole, flat[where]))
    if np.array_equal(given, kept):
        return
    size = buffer.dtype.numpy.itemsize
    differ = (given.reshape(-1, size) != kept.reshape(-1, size)).any(axis=1)
    lost = int(np.argmax(differ))
    cell = where.reshape(-1)[lost]
    last = int(np.flatnonzero((where.reshape(-1) == cell) & ~differ)[-1])
    one, other = (tuple(map(int, np.unravel_index(at, where.shape))) for at in (lost, last))
    raise LayoutError(
        f"run: elements {one} and {other} of {buffer.name} share an address and must be equal; "
        f"got {whole[one]} and {whole[other]} for {buffer.layout}"
    )


def _box(buffer: Buffer, where: npt.NDArray[np.int64], scalars: Mapping[str, Any]) -> Box:
    """Return the tensor map of a matrix.

    Raises:
        LayoutError: its rows are not contiguous, or not whole units of 16 bytes apart.
    """
    rows, cols = where.shape
    pitch = int(where[1, 0] - where[0, 0]) if rows > 1 else cols
    plain = np.arange(rows)[:, None] * pitch + np.arange(cols)
    size = pitch * buffer.dtype.bits // 8
    if (where != plain).any() or size % UNIT:
        raise LayoutError(
            f"run: a tensor map needs contiguous rows, a multiple of {UNIT} bytes apart; the rows "
            f"of {buffer.name} are {size} bytes apart: {buffer.layout}"
        )
    bounds = [
        extent if bound is None else int(scalars[bound])
        for bound, extent in zip(buffer.bounds, where.shape, strict=True)
    ]
    height, width = (min(a, b) for a, b in zip(bounds, where.shape, strict=True))
    return Box((height, width), pitch)


def check_grid(body: KernelIR, grid: Any) -> tuple[int, int]:
    """Return the extents of a grid, in CTAs; by default one, or one cluster.

    Raises:
        LayoutError: no two numbers from 1 on, or no whole clusters.

    >>> body = KernelIR((), (), (), (), 32)
    >>> check_grid(body, None), check_grid(body, (4, 2))
    ((1, 1), (4, 2))
    >>> check_grid(body, (0, 2))
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: run: the grid must be (bx, by), CTAs from 1 on; got (0, 2)
    """
    if grid is None:
        return body.cluster, 1
    if (
        not isinstance(grid, (tuple, list))
        or len(grid) != 2
        or any(type(n) is not int or not 0 < n < FREE for n in grid)
    ):
        raise LayoutError(f"run: the grid must be (bx, by), CTAs from 1 on; got {grid!r}")
    if grid[0] % body.cluster:
        raise LayoutError(
            f"run: bx must be a multiple of the cluster, {body.cluster}; got the grid {tuple(grid)}"
        )
    return grid[0], grid[1]


def simulate(body: KernelIR, given: Arguments, grid: tuple[int, int]) -> Machine:
    """Run every CTA of a grid on the NumPy warp; return the first, which shares its memory.

    Raises:
        SimulationError: a CTA reads what nothing wrote, or races.
    """
    extents = {name: box.extents for name, box in given.boxes.items()}
    pitches = {name: box.pitch for name, box in given.boxes.items()}
    unwritten = frozenset(given.cells) - given.known
    whole = Grid(body, given.scalars, extents, pitches, unwritten=unwritten)
    whole.run(grid, given.cells)
    assert whole.first is not None
    return whole.first
