"""Casts on a GPU, bit by bit: ``python -m tests.hardware.casts FOLDER`` on a machine that has one.

Every row runs on all codes of a narrow type, and of f32, f64 and s32 on 2^20 random ones and what
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
from lowering.isa import dtypes
from lowering.isa.casts import CASTS
from lowering.isa.functions import PRED, Function
from lowering.launch.cache import Compiled, compile_body
from lowering.launch.driver import DeviceMemory, Loaded, device, download
from lowering.programs.program import KernelProgram
from tests.support.cast_inputs import Array, bits_of, inputs, registers
from tests.support.nvrtc_text import made

RANDOM = 1 << 20
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


def run(code: Compiled, image: Array, sizes: list[int]) -> list[Array]:
    """Launch a kernel; return the bytes of each result."""
    with DeviceMemory() as memory:
        outs = [np.zeros(size, dtype=np.uint8) for size in sizes]
        pointers = [memory.upload(each) for each in (image, *outs)]
        Loaded(code, device(0)).launch((1, 1), pointers, (), 0)
        for out, pointer in zip(outs, pointers[1:], strict=True):
            download(out, pointer)
    return outs


def image_of(values: Array, token: str) -> Array:
    """Return elements as bytes of memory."""
    if dtypes.get(token).bits < 8:
        (words,) = registers(values, token, EACH)
        return words.view(np.uint8)
    return np.ascontiguousarray(values).view(np.uint8)


def differences(row: Function, values: Array, found: Array) -> list[str]:
    """Return which results differ from what the row means, of NaNs and of numbers."""
    wanted = bits_of(row.apply(values), row.result)
    got = found.view(wanted.dtype)
    given, shown = bits_of(values, row.operands[0]), []
    for at in np.flatnonzero(got != wanted):
        shown.append(f"{given[at]:#x} ({values[at]}): {got[at]:#x}, not {wanted[at]:#x}")
    return shown


def main() -> None:
    """Run all casts, print a table, write ``casts.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    record: dict[str, Any] = {"device": device(0).name, "random": RANDOM, "casts": {}}
    wrong = 0
    for source, rows in by_source().items():
        values = padded(inputs(rows[0], RANDOM))
        whole = program(source, [row.result for row in rows], len(values))
        bits = [dtypes.get(row.result).bits for row in rows]
        sizes = [len(values) * each // 8 for each in bits]
        numba = compile_body(whole.body, whole.name, device(0).arch)
        code = made(whole.cuda_source(), device(0).arch, "CUBIN")
        nvrtc = Compiled(numba.params, (), THREADS, 0, (), code)
        image = image_of(values, source)
        texts = [run(each, image, sizes) for each in (numba, nvrtc)]
        for at, row in enumerate(rows):
            same = np.array_equal(texts[0][at], texts[1][at])
            shown = differences(row, values, texts[0][at])
            name = f"{source}-{row.result}"
            record["casts"][name] = {
                "inputs": len(values),
                "sha256": hashlib.sha256(texts[0][at].tobytes()).hexdigest(),
                "texts agree": same,
                "differ": len(shown),
                "first": shown[:SHOWN],
            }
            wrong += bool(shown) or not same
            print(
                f"{name:12} {len(values):8} {'' if same else 'TEXTS DIFFER '}{len(shown)}",
                *shown[:2],
                sep="  ",
            )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "casts.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(len(record["casts"]), "casts,", wrong, "differ")


if __name__ == "__main__":
    main()
