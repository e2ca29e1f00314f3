"""Measures every scalar function on a device, beside its meaning.

``python -m tests.hardware.functions -o tests/data/hardware/h200_functions.json``; with ``--machine
simulate`` it needs no device. Casts: :mod:`tests.hardware.casts`.

A kernel has all functions of the same types of arguments, an output for each. Inputs are random
bits and small numbers; of 16 bits every pattern comes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import lowering as lw
from layoutalg import S, TileLayout, tx
from lowering.ir.expressions import apply
from lowering.isa import functions
from lowering.isa.functions import FUNCTIONS, PRED, Function
from lowering.programs.program import KernelProgram
from tests.hardware.record import header

THREADS, COLS, CTAS = 128, 16, 64
SHAPE = THREADS * CTAS, COLS  # 2**17 elements
TILE = TileLayout(S[(THREADS, COLS) : (1 @ tx, 1)])
SEEDS = 4
DIVISIONS = ("floor_divide", "remainder")
Array = np.ndarray[Any, Any]


def names() -> dict[tuple[str, ...], list[Function]]:
    """Return the functions by the types of their arguments."""
    found: dict[tuple[str, ...], list[Function]] = {}
    for each in FUNCTIONS:
        found.setdefault(each.operands, []).append(each)
    return found


def stored(token: str) -> str:
    """Return the type in memory of a value: s32 of a truth value."""
    return "s32" if token == PRED else token


def kernel_of(operands: tuple[str, ...], every: list[Function]) -> KernelProgram:
    """Return a kernel that applies functions to one tile of each argument."""
    k = lw.Kernel("_".join(("functions", *operands)), threads=THREADS)
    params = [k.param(f"in{i}", SHAPE, stored(token)) for i, token in enumerate(operands)]
    rows = slice(k.block[0] * THREADS, k.block[0] * THREADS + THREADS)
    arguments: list[Any] = []
    for i, (param, token) in enumerate(zip(params, operands, strict=True)):
        tile = k.alloc(f"x{i}", (THREADS, COLS), stored(token), layout=TILE)
        k.copy(tile, param[rows])
        arguments.append(lw.not_equal(tile, 0) if token == PRED else tile)
    for number, each in enumerate(every):
        value = apply(each.name, *arguments)
        out = k.param(f"out{number}", SHAPE, stored(each.result))
        k.copy(out[rows], k.tile(f"y{number}", value))
    return k.lower()


def elements(token: str, seed: int) -> Array:
    """Return the elements of an argument."""
    rng = np.random.default_rng([seed, len(token), ord(token[0])])
    if token == PRED:
        return rng.integers(0, 2, SHAPE).astype(np.int32)
    kind, size = functions.numpy_of(token), SHAPE[0] * SHAPE[1]
    width = functions.bits_of(token)
    patterns = rng.integers(0, 1 << width, size, dtype=np.uint64)
    if width <= 16:
        patterns[: 1 << width] = rng.permutation(1 << width)
    word = np.dtype(f"uint{max(width, 8)}")
    found = patterns.astype(word).view(kind).copy()
    if width >= 32:
        small = 8 * rng.standard_normal(size // 2)
        found[::2] = small.astype(kind)
        edges = np.array([0, 1, -1, 2**31 - 1, -(2**31)]) if kind.kind == "i" else np.array(
            [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, 65504, 65520, 448, 464, 57344, 2**31]
        )  # fmt: skip
        found[: len(edges)] = edges.astype(kind)
    return found.reshape(SHAPE)


def distance(found: Array, want: Array, absolute: float) -> tuple[float, int]:
    """Return the largest distance in units in the last place, and how many elements differ.

    What is no farther than ``absolute`` counts as no distance.
    """
    if want.dtype.kind in "iub":
        apart = found.astype(np.float64) != want.astype(np.float64)
        return (float(apart.any()), int(apart.sum()))
    with np.errstate(all="ignore"):
        nan = np.isnan(found.astype(np.float64)) & np.isnan(want.astype(np.float64))
    word = f"int{want.dtype.itemsize * 8}"
    low = int(np.iinfo(word).min)
    ordered = []
    for each in (found, want):
        bits = np.ascontiguousarray(each).view(word).astype(np.int64)
        ordered.append(np.where(bits < 0, low - bits, bits).astype(np.float64))
    apart = np.where(nan, 0, np.abs(ordered[0] - ordered[1]))
    with np.errstate(all="ignore"):
        near = np.abs(found.astype(np.float64) - want.astype(np.float64)) <= absolute
    return float(np.where(near, 0, apart).max()), int((apart > 0).sum())


def measure(
    program: KernelProgram, operands: tuple[str, ...], every: list[Function], machine: str
) -> dict[str, Any]:
    """Return, for each function, how far the machine is from its meaning."""
    rows: dict[str, Any] = {}
    for seed in range(1 if machine == "simulate" else SEEDS):
        given = [elements(token, seed * 8 + i) for i, token in enumerate(operands)]
        arrays = {f"in{i}": each for i, each in enumerate(given)}
        if any(each.name in DIVISIONS for each in every):  # of which 0 is no divisor
            given[1][given[1] == 0] = 7
        if machine == "simulate":
            out = program.simulate(grid=(CTAS, 1), **arrays)
        else:
            out = program.run(grid=(CTAS, 1), **arrays)
            other = program.run(grid=(CTAS, 1), compiler="numba", **arrays)
            texts = {name for name in out if out[name].tobytes() != other[name].tobytes()}
            if texts:
                raise SystemExit(f"{program.name}: the texts differ in {sorted(texts)}")
        typed = [g != 0 if t == PRED else g for g, t in zip(given, operands, strict=True)]
        for number, each in enumerate(every):
            want = each.apply(*typed)
            if each.result == PRED:
                want = want.astype(np.int32)
            far, differ = distance(out[f"out{number}"], want, each.absolute)
            row = rows.setdefault(each.asm.name, {"ulp": 0.0, "differ": 0, "elements": 0})
            row["ulp"] = max(row["ulp"], far)
            row["differ"] += differ
            row["elements"] += want.size
            row["text"] = hashlib.sha256(each.text.encode()).hexdigest()[:16]
    return rows


def main() -> int:
    """Measure all; say which functions are farther from their meaning than their rows allow."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--machine", choices=("run", "simulate"), default="run")
    parser.add_argument("--only", default="", help="types of arguments, such as f32,f32")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    rows: dict[str, Any] = {}
    wrong = []
    for operands, every in names().items():
        if asked.only and ",".join(operands) != asked.only:
            continue
        program = kernel_of(operands, every)
        found = measure(program, operands, every, asked.machine)
        for each in every:
            row = found[each.asm.name]
            bad = row["ulp"] > each.ulp
            wrong += [each.asm.name] * bad
            print(
                f"{each.asm.name:28} ulp {row['ulp']:8.0f} of {each.ulp:<6g} differ "
                f"{row['differ']:8} of {row['elements']}{'  WRONG' * bad}",
                flush=True,
            )
        rows |= found
    if asked.output:
        record = {
            **header(),
            "command": "python -m tests.hardware.functions -o FILE",
            "rows": dict(sorted(rows.items())),
        }
        asked.output.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{len(rows)} functions, {len(wrong)} wrong: {' '.join(wrong)}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
