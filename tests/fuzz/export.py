"""Kernels for a device, made where there is none: machine code, inputs, what must come out.

Half of them go by the Python text (numba, nvJitLink), half by the C++ text (NVRTC). A folder gets
``kernels.json``, what a launch must know, and ``kernels.npz``, machine code and matrices;
``tests/fuzz/device.py`` alone is needed to launch them.
"""

from __future__ import annotations

import json
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lowering.programs.program import KernelProgram
from tests.fuzz import campaign, engine, faults, machines
from tests.fuzz.ir import NUMPY, Array, Program
from tests.fuzz.kernels import generate
from tests.fuzz.order import Order

STATIC_SHARED = 48 * 1024
RACES = (
    "drop a sync", "weaken a sync", "move a sync", "drop a wait", "leave one group more pending",
    "alias a tile", "exchange statements", "op: drop a sync", "op: drop a wait or commit",
)  # fmt: skip
Entry = tuple[dict[str, Any], dict[str, Array]]


def entry(
    name: str, program: Program, made: KernelProgram, want: dict[str, Array], text: str
) -> Entry:
    """Return what the files hold of one kernel: a row of data, and arrays by name."""
    body = made.body
    code = made.whole("sm_90a", "nvrtc" if text == "c++" else "numba")
    cells, where = machines.memory_of(program, made)
    arrays: dict[str, Array] = {f"{name}.code": np.frombuffer(code, dtype=np.uint8)}
    params = []
    for buffer, flat in zip(body.params, cells, strict=True):
        buf = program.bufs[buffer.name]
        after = flat.copy()
        after.view(NUMPY[buf.dtype])[where[buffer.name]] = want[buffer.name]
        arrays[f"{name}.{buffer.name}"] = flat
        row: dict[str, Any] = {"name": buffer.name, "bytes": np.dtype(NUMPY[buf.dtype]).itemsize}
        if (after != flat).any():
            arrays[f"{name}.{buffer.name}.want"] = after
        if buffer.name in body.boxes:
            box = body.boxes[buffer.name]
            row["map"] = [*box.box, box.swizzle, buffer.dtype.token, *buf.shape]
        params.append(row)
    data = {
        "name": name, "text": text, "params": params,
        "scalars": [[each.token, program.scalars[each.name][1]] for each in body.scalars],
        "threads": body.launched, "grid": program.grid,
        "shared": body.shared_bytes if body.shared_bytes > STATIC_SHARED else 0,
    }  # fmt: skip
    return data, arrays


def right(seed: int, number: int) -> Entry | str:
    """Return a right kernel of a seed, or why there is none."""
    found = campaign.Found()
    good = campaign.check(seed, found)
    if good is None:
        return found.failures[0]["what"] if found.failures else "refused"
    program, _, want = good
    name = f"k{number:04d}"
    made = machines.lower(program, name)
    data, arrays = entry(name, program, made, want, "c++" if number % 2 else "numba")
    found = machines.digest(machines.simulate(program, made))
    return data | {"seed": seed, "digest": found, "source": machines.reproducer(program)}, arrays


def racing(seed: int, number: int) -> Entry | str:
    """Return a kernel with a planted race in shared memory, or why there is none."""
    program, want, _ = generate(seed)
    if program.grid > 1:
        return "a grid"
    name = f"k{number:04d}"
    try:
        made = machines.lower(program, name)
    except faults.REFUSALS:
        return "refused"
    rng = random.Random(seed)
    for kind in rng.sample(RACES, len(RACES)):
        planted = faults.plant(program, made, kind, seed)
        if planted is None or isinstance(planted, str):
            continue
        other, lowered = planted
        lowered = replace(lowered, label=name)
        shapes = {b.name: (b.shape[0], b.shape[1]) for b in lowered.body.params}
        scalars = {key: value for key, (_, value) in other.scalars.items()}
        try:
            written = engine.write_out(lowered.body, {"bx": 0, "by": 0} | scalars, shapes)
            order = Order(written)
            memory = engine.memory_of(other, lowered.body)
            engine.Run(written, memory, scalars, None, order).run()
        except engine.BrokenError:
            continue
        shared = [each for each in order.races if each.split(" at ")[0].split()[-1][0] == "s"]
        if not shared:
            continue
        data, arrays = entry(name, other, lowered, want, "c++" if number % 2 else "numba")
        data |= {
            "seed": seed, "kind": kind, "race": shared[0],
            "detector": faults.refused(other, lowered, want)
        }  # fmt: skip
        return data, arrays
    return "no race"


def _write(make: Any, count: int, folder: Path, seed: int, jobs: int) -> int:
    """Write so many kernels."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    arrays: dict[str, Array] = {}
    failed: list[str] = []
    base = seed * 100_000_000 + 90_000_000
    with ProcessPoolExecutor(jobs) as pool:
        at = 0
        while len(rows) < count and at < 20 * count + 100:
            some = list(range(at, at + max(jobs, count - len(rows))))
            at += len(some)
            for result in pool.map(make, [base + n for n in some], some):
                if isinstance(result, str):
                    failed.append(result)
                elif len(rows) < count:
                    rows.append(result[0])
                    arrays |= result[1]
    (folder / "kernels.json").write_text(json.dumps(rows, indent=1))
    np.savez_compressed(folder / "kernels.npz", **arrays)  # type: ignore[arg-type]
    size = (folder / "kernels.npz").stat().st_size
    print(f"{len(rows)} kernels in {folder}, {size / 1e6:.1f} MB; {len(failed)} left out")
    for text in sorted(set(failed))[:10]:
        print("  left out:", text.splitlines()[0][:150])
    return int(len(rows) < count)


def kernels(count: int, folder: Path, seed: int, jobs: int) -> int:
    """Write right kernels; return 1 where there are too few."""
    return _write(right, count, folder, seed, jobs)


def races(count: int, folder: Path, seed: int, jobs: int) -> int:
    """Write kernels with planted races; return 1 where there are too few."""
    return _write(racing, count, folder, seed, jobs)
