"""Casts on a GPU, bit by bit: ``python -m tests.hardware.casts FOLDER`` on a machine that has one.

Every row runs on all codes of a narrow type, and of f32, f64 and s32 on 2^18 random ones and what
lies at and beside the borders of a rounding: through numba's inline PTX, and through the CUDA C++
text that NVRTC compiles. Both are compared with what the row means, NaNs too. Prints a line for
each row, and writes ``casts.json``: for each the inputs, the sha256 of the hardware's results, and
the first differences.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import lowering as lw
from layoutalg import parse
from lowering.isa.casts import CASTS
from lowering.isa.functions import PRED, Function
from lowering.launch.driver import device
from lowering.programs.program import KernelProgram
from tests.support.cast_inputs import Array, bits_of, inputs

RANDOM = 1 << 18
THREADS, EACH = 128, 8
ROWS = parse("S[(4,32,8):(1@warpid,1@laneid,1)]")
SHOWN = 6  # differences


def by_source() -> dict[str, list[Function]]:
    """Return the rows of each source type that memory can hold."""
    found = defaultdict(list)
    for row in CASTS.values():
        if row.operands[0] != PRED:
            found[row.operands[0]].append(row)
    return dict(found)


def padded(values: Array) -> Array:
    """Repeat elements from the first on, until every thread has its share."""
    step = THREADS * EACH
    return np.resize(values, -(-len(values) // step) * step)


def program(source: str, targets: list[str], count: int) -> KernelProgram:
    """Return the kernel that casts elements to each target."""
    k = lw.Kernel(f"casts_of_{source}", threads=THREADS)
    rows = count // EACH
    a = k.param("a", (rows, EACH), source)
    outs = [k.param(f"to_{target}", (rows, EACH), target) for target in targets]
    held = k.alloc("held", (THREADS, EACH), source, layout=ROWS)
    found = [k.alloc(f"as_{each}", (THREADS, EACH), each, layout=ROWS) for each in targets]
    with k.loop("i", rows // THREADS) as i:
        at = slice(i * THREADS, i * THREADS + THREADS)
        k.copy(held, a[at, :])
        for tile, out in zip(found, outs, strict=True):
            k.cast(tile, held)
            k.copy(out[at, :], tile)
    return k.lower()


def digest(values: Array, token: str) -> str:
    """Return the sha256 of the bits of elements."""
    return hashlib.sha256(bits_of(values.ravel(), token).tobytes()).hexdigest()


def differences(row: Function, values: Array, found: Array) -> list[str]:
    """Return which results differ from what the row means."""
    given, wanted = bits_of(values, row.operands[0]), bits_of(row.apply(values), row.result)
    got = bits_of(found.ravel(), row.result)
    return [
        f"{given[at]:#x} ({values[at]}): {got[at]:#x}, not {wanted[at]:#x}"
        for at in np.flatnonzero(got != wanted)
    ]


def main() -> None:
    """Run all casts, print a table, write ``casts.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    record: dict[str, Any] = {"device": device(0).name, "random": RANDOM, "casts": {}}
    for source, rows in by_source().items():
        values = padded(inputs(rows[0], RANDOM))
        whole = program(source, [row.result for row in rows], len(values))
        matrix = values.reshape(-1, EACH)
        results = [whole.run(compiler=each, a=matrix) for each in ("numba", "nvrtc")]
        for row in rows:
            one, other = (each[f"to_{row.result}"] for each in results)
            same = digest(one, row.result) == digest(other, row.result)
            shown = differences(row, values, one)
            record["casts"][f"{source}-{row.result}"] = {
                "inputs": len(values),
                "sha256": digest(one, row.result),
                "texts agree": same,
                "differ": len(shown),
                "first": shown[:SHOWN],
            }
            print(
                f"{source:>4} {row.result:>4} {len(values):8}",
                "" if same else "TEXTS DIFFER",
                len(shown),
                *shown[:2],
                sep="  ",
            )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "casts.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    wrong = [name for name, each in record["casts"].items() if each["differ"]]
    print(len(record["casts"]), "casts,", len(wrong), "differ:", *wrong)


if __name__ == "__main__":
    main()
