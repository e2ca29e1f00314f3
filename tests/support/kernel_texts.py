"""Runs a kernel on every machine that needs no GPU: the NumPy warp, and both texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lowering.ir.matrices import logical, physical
from lowering.ir.tiles import cells
from lowering.programs.program import KernelProgram
from tests.fuzz import texts

Array = np.ndarray[Any, Any]
BYTE = 8


def image(values: Array, bits: int) -> Array:
    """Return the bytes of elements: a view of them, unless two share a byte."""
    held = values.view(np.uint8)
    return held if bits >= BYTE else held[::2] & 15 | held[1::2] << 4


def outputs(
    program: KernelProgram,
    given: Mapping[str, Any],
    scalars: Mapping[str, Any] | None = None,
    grid: int = 1,
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Yield (machine, parameters that are written) for the NumPy warp and each text.

    Args:
        program: of parameters with numbers as extents.
        given: parameters by name; the others begin as zeros.
        scalars: of the launch.
        grid: CTAs along x.
    """
    values, body = dict(scalars or {}), program.body
    whole = {b.name: np.zeros(b.shape, b.dtype.numpy) for b in body.params}
    whole |= {name: np.asarray(each) for name, each in given.items()}
    yield "simulate", program.simulate(grid=(grid, 1), **whole, **values)
    numbers = [
        np.float32(values[s.name]) if s.token == "f32" else values[s.name] for s in body.scalars
    ]
    for name, text in (
        ("kernel_source", program.kernel_source()),
        ("cuda_source", texts.python_of(program.cuda_source())),
    ):
        flat = {}
        for b in body.params:
            array = physical(b, whole[b.name].astype(b.dtype.numpy))
            flat[b.name] = np.zeros(cells(b), b.dtype.numpy)
            flat[b.name][: len(array)] = array
        memory = [
            image(each, b.dtype.bits) for b, each in zip(body.params, flat.values(), strict=True)
        ]
        texts.run(texts.compile_text(text), body.threads, body.launched, grid, memory, numbers, {})
        for b, cell in zip(body.params, memory, strict=True):
            if b.dtype.bits < BYTE:
                low = np.stack([cell & 15, cell >> 4], axis=1).reshape(-1)
                least, most = b.dtype.integers
                if most:
                    number = low.astype(np.int8)
                    number = np.where((least < 0) & (low > most), number - 16, number)
                    flat[b.name] = number.astype(b.dtype.numpy)
                else:
                    flat[b.name] = low.view(b.dtype.numpy)
        yield name, {b.name: logical(b, flat[b.name]) for b in body.written}
