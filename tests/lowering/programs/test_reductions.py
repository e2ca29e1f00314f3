"""Reductions of register tiles: right over random layouts, with as few shuffles as lanes need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import Iter, TileLayout
from lowering.ir.ops import Butterfly, walk

Array = np.ndarray[Any, Any]
CASES = 200
NUMPY = {"max": np.max, "min": np.min, "sum": np.sum, "any": np.any}
TYPES = ("float16", "bfloat16", "float32", "float64", "int32")
WORDS = {"float16": 0.5, "bfloat16": 0.5, "float32": 1, "float64": 2, "int32": 1}


@dataclass(frozen=True)
class Case:
    """A layout, what is reduced, and what of it the lanes hold."""

    threads: int
    layout: TileLayout
    shape: tuple[int, ...]
    axis: int | tuple[int, ...] | None
    name: str
    dtype: str
    kept: int  # registers of a thread that are left
    bits: int  # of the lane number, in the dimensions that go

    @property
    def shuffles(self) -> int:
        """Each word of a thread's results goes once for each bit of the lane number."""
        return int(np.ceil(self.kept * WORDS[self.dtype])) * self.bits


def thread_digit(bit: int, form: str) -> tuple[int, str]:
    """Return stride and axis of a bit of the thread number."""
    if form == "tx":
        return 1 << bit, "tx"
    if form == "tid_in_wg":
        return 1 << bit, "tid_in_wg"
    return (1 << bit, "laneid") if bit < 5 else (1 << (bit - 5), "warpid")


def drawn(number: int) -> Case:
    """Draw a case: bits of the thread number and digits of registers, shared out over dimensions.

    Some bits are replicas, some are in no digit: those threads hold copies.
    """
    rng = np.random.default_rng(number)
    threads = int(rng.choice([32, 64, 128]))
    form = str(rng.choice(["laneid", "laneid", "tx", "tid_in_wg"]))
    rank = int(rng.integers(1, 4))
    digits: list[Iter] = []
    replica: list[Iter] = []
    for bit in range(threads.bit_length() - 1):
        it = Iter(2, *thread_digit(bit, form))
        kind = rng.random()
        if kind < 0.8:
            digits.append(it)
        elif kind < 0.9:
            replica.append(it)
    extents = [int(rng.choice([2, 2, 2, 3, 4])) for _ in range(rng.integers(0, 5))]
    stride = 1
    for extent in extents:
        digits.append(Iter(extent, stride, "m"))
        stride *= extent
    rng.shuffle(digits)  # type: ignore[arg-type]
    dims: list[list[Iter]] = [[] for _ in range(rank)]
    for it in digits:
        dims[int(rng.integers(rank))].append(it)
    axes = tuple(int(dim) for dim in np.flatnonzero(rng.random(rank) < 0.5))
    axis: int | tuple[int, ...] | None = axes if len(axes) > 1 else axes[0] if axes else None
    gone = set(axes) if axes else set(range(rank))
    name = str(rng.choice(list(NUMPY)))
    kept, bits = 1, 0
    for dim, group in enumerate(dims):
        for it in group:
            if it.axis.memory:
                kept *= 1 if dim in gone else int(it.extent)
            elif dim in gone:
                bits += it.axis.name in ("laneid", "tx", "tid_in_wg") and int(it.stride) < 32
    shard = [it for group in dims for it in group] or [Iter(1, 1, "m")]
    shape = tuple(int(np.prod([it.extent for it in group], dtype=int)) for group in dims)
    offset = {"m": int(rng.choice([0, 0, 1, 4]))}
    return Case(
        threads, TileLayout.from_iters(shard, replica, offset), shape, axis, name,
        "int32" if name == "any" else str(rng.choice(TYPES)), kept, bits,
    )  # fmt: skip


def matrix(case: Case, seed: int) -> Array:
    """Return few small integers: each type holds their sums."""
    rng = np.random.default_rng(seed)
    flat = np.zeros(int(np.prod(case.shape)))
    some = rng.choice(flat.size, min(flat.size, 64), replace=False)
    flat[some] = rng.integers(-2, 3, some.size)
    return flat.reshape(case.shape)


def program(case: Case) -> lw.KernelProgram:
    """Return ``y = reduction of x`` and, broadcast back, ``z = x - y``."""
    k = lw.Kernel("reduction", threads=case.threads)
    small = np.zeros(case.shape).sum(axis=case.axis, keepdims=True).shape
    x, z = k.param("x", case.shape, case.dtype), k.param("z", case.shape, case.dtype)
    y = k.param("y", small, case.dtype)
    s = k.alloc("s", case.shape, case.dtype, layout=case.layout)
    k.copy(s, x)
    m = k.tile("m", getattr(lw, case.name)(s, axis=case.axis))
    k.copy(y, m)
    k.assign(s, s - m)
    k.copy(z, s)
    return k.lower()


def words(op: Butterfly, dtype: str) -> int:
    """Return how many words an exchange moves."""
    per = 2 if WORDS[dtype] == 0.5 else 1
    return len({number // per for number in op.into.numbers}) * max(1, int(WORDS[dtype]))


@pytest.mark.parametrize("block", range(8))
def test_random_layouts(block: int) -> None:
    for number in range(block, CASES, 8):
        case = drawn(number)
        made = program(case)
        x = matrix(case, number)
        got = made.simulate(x=x)
        want = NUMPY[case.name](x, axis=case.axis, keepdims=True).astype(float)
        assert (got["y"].astype(float) == want).all(), case
        assert (got["z"].astype(float) == x - want).all(), case
        butterflies = [op for op in walk(made.body.ops) if isinstance(op, Butterfly)]
        assert sum(words(op, case.dtype) for op in butterflies) == case.shuffles, case
        text = made.cuda_source()
        single = len(case.dtype) and (2 if case.dtype == "float64" else 1)
        calls = text.count("  shfl_bfly_") + text.count("; shfl_bfly_")
        assert calls * single == case.shuffles, case
