"""Raw kernels: registers and cells come from plain images and go to plain images.

No layout takes part: registers are loaded from ``image[experiment, lane, slot]`` and stored to such
images; a *place* is ``lane * slots + slot``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError, S, TileLayout, tx
from lowering.ir.index import Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.matrices import logical
from lowering.ir.ops import Load, Op, Registers, Store
from lowering.ir.tiles import Buffer
from lowering.isa.dtypes import DType
from lowering.launch import driver
from lowering.launch.arguments import arguments
from lowering.simulator.run import execute

ACCESS = 128  # bits of the widest load and store
NOWHERE = -1  # entry of a table: nothing is there

Ints = npt.NDArray[np.int64]
Image = npt.NDArray[np.int8]
Array = npt.NDArray[Any]
Run = Callable[[KernelIR, str, Mapping[str, Array]], Mapping[str, Array]]


class ProbeError(LayoutError):
    """A machine shows what no instruction of the kind can show."""


def simulator(body: KernelIR, name: str, matrices: Mapping[str, Array]) -> Mapping[str, Array]:
    """Run a body on the NumPy warp; return the parameters that it writes."""
    machine = execute(body, matrices)
    return {b.name: logical(b, machine.memory[b.name].values) for b in body.written}


def device(body: KernelIR, name: str, matrices: Mapping[str, Array]) -> Mapping[str, Array]:
    """Run a body on the GPU; return the parameters that it writes."""
    return driver.run(body, name, arguments(body, matrices))


def image_buffer(name: str, shape: tuple[int, ...], dtype: DType | str) -> Buffer:
    """Return a buffer of global memory that holds registers as they are, or cells."""
    return Buffer(name, shape, dtype, "global")


def register_buffer(name: str, threads: int, slots: int, dtype: DType | str) -> Buffer:
    """Return the registers of all threads as they are: element ``[thread, slot]``."""
    return Buffer(
        name, (threads, slots), dtype, layout=TileLayout(S[(threads, slots) : (1 @ tx, 1)])
    )


def moves(registers: Buffer, image: str, start: Index, load: bool) -> list[Op]:
    """Load registers from an image, or store them to it, in the widest accesses."""
    threads, slots = registers.shape
    width = math.gcd(slots, max(1, ACCESS // registers.dtype.bits))
    ops: list[Op] = []
    for first in range(0, slots, width):
        elements = Registers(registers.name, tuple(range(first, min(first + width, slots))))
        at = start + Index.of("thread", threads) * slots + first
        ops.append(Load(elements, image, at) if load else Store(image, at, elements))
    return ops


@dataclass(frozen=True)
class Measurement:
    """What a machine showed: integer tables by name, and how many experiments it took."""

    experiments: int
    tables: Mapping[str, Ints]


def place_name(place: int, slots: int) -> str:
    """Return a place in words.

    >>> place_name(21, 4)
    'lane 5 slot 1'
    """
    return f"lane {place // slots} slot {place % slots}"


def small_integers(shape: tuple[int, ...], dtype: DType, start: int) -> Image:
    """Return small integers, exact in the type, by a formula."""
    index = np.arange(start, start + int(np.prod(shape)), dtype=np.uint64)
    mixed = (index * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    low, high = (0, 1) if dtype.token == "b1" else (-3, 3)
    if dtype.token in ("u8", "u4"):
        low = 0
    small: Image = (mixed % np.uint64(high - low + 1)).astype(np.int8).reshape(shape)
    small += np.int8(low)
    return small


def as_integers(shown: Array) -> Ints:
    """Return what D shows as integers.

    Raises:
        ProbeError: it shows others.
    """
    values = np.asarray(shown).astype(np.float64)
    if (values != np.rint(values)).any():
        raise ProbeError("probe: sums of products of integers must be integers; D shows others")
    return values.astype(np.int64)


def check_predicted(want: Ints, out: Ints, found: str, rest: str) -> None:
    """Refuse findings that do not predict products of random integers.

    Args:
        want: the products predicted, one a row.
        out: the products that the machine gave.
        found: subject and verb of the message.
        rest: its end.
    """
    if (want != out).any():
        right = int((want == out).all(1).sum())
        raise ProbeError(f"probe: {found} {right} of {len(out)} products of random integers{rest}")
