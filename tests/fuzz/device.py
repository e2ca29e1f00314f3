"""Launches kernels that ``python -m tests.fuzz --export`` wrote, and compares bit for bit.

It stands alone: NumPy and cuda.bindings are all that it needs.

- ``python tests/fuzz/device.py DIR``: launch all in one process, print a table, write
  ``DIR/device.json``. A kernel that hangs, or leaves its memory, ends the process; another goes on
  after it.
- ``python tests/fuzz/device.py DIR --racecheck``: launch all under ``compute-sanitizer --tool
  racecheck``, some at a time, and say in which it finds a hazard, beside what the detector said.
- ``python tests/fuzz/device.py DIR --record FILE [--races DIR]``: write what was found as a record.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SECONDS = 10.0  # that one launch may take
TYPES = {"f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32", "s32": "INT32"}
WITH_SOURCE = 40  # kernels of a record that have their programs
TOGETHER = 20  # kernels of one process under the sanitizer


class FailedError(Exception):
    """The driver reports an error; ``dead``: nothing more can be done in this process."""

    def __init__(self, text: str, dead: bool = False) -> None:
        super().__init__(text)
        self.dead = dead


def call(name: str, *arguments: Any) -> Any:
    """Call the CUDA driver."""
    from cuda.bindings import driver

    status, *results = getattr(driver, name)(*arguments)
    if int(status):
        raise FailedError(f"{name}: {status.name}", name in ("cuEventQuery", "cuCtxSynchronize"))
    return results[0] if len(results) == 1 else tuple(results)


def tensor_map(pointer: int, row: list[Any]) -> Any:
    """Return a tensor map of a matrix whose rows lie one after the other."""
    from cuda.bindings import driver

    rows, cols, swizzle, token, height, width = row
    kind = f"CU_TENSOR_MAP_DATA_TYPE_{TYPES.get(token, 'UINT8')}"
    size = {"f16": 2, "bf16": 2, "f32": 4, "s32": 4}.get(token, 1)
    wide, narrow = driver.cuuint64_t, driver.cuuint32_t
    return call(
        "cuTensorMapEncodeTiled",
        getattr(driver.CUtensorMapDataType, kind),
        2,
        pointer,
        [wide(width), wide(height)],
        [wide(size * width)],
        [narrow(cols), narrow(rows)],
        [narrow(1), narrow(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}B"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )


def arguments(entry: dict[str, Any], pointers: list[int]) -> list[Any]:
    """Return what a kernel takes, as C values: pointers, or those of tensor maps; then scalars."""
    values: list[Any] = [ctypes.c_uint64(pointer) for pointer in pointers]
    for token, value in entry["scalars"]:
        values.append(ctypes.c_float(value) if token == "f32" else ctypes.c_int32(int(value)))
    return values


def launch(entry: dict[str, Any], arrays: Any) -> str:
    """Launch one kernel; return what differs, "" where nothing does."""
    from cuda.bindings import driver

    name = entry["name"]
    code = np.ascontiguousarray(arrays[f"{name}.code"]).tobytes()
    library = call("cuLibraryLoadData", code, [], [], 0, [], [], 0)
    (kernel,) = call("cuLibraryEnumerateKernels", 1, library)
    if entry["shared"]:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("cuKernelSetAttribute", attribute, entry["shared"], kernel, call("cuDeviceGet", 0))
    owned: list[int] = []
    pointers: list[int] = []
    for row in entry["params"]:
        cells = np.ascontiguousarray(arrays[f"{name}.{row['name']}"])
        memory = int(call("cuMemAlloc", cells.nbytes + 256))
        owned.append(memory)
        call("cuMemcpyHtoD", memory, cells.ctypes.data, cells.nbytes)
        pointers.append(memory)
        if "map" in row:
            encoded = tensor_map(memory, row["map"])
            place = int(call("cuMemAlloc", 256))
            call("cuMemcpyHtoD", place, encoded.getPtr(), 128)
            pointers[-1] = place
    values = arguments(entry, pointers)
    block = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
    grid = entry["grid"], 1, 1
    threads = entry["threads"], 1, 1
    event = call("cuEventCreate", 0)
    function = driver.CUfunction(int(kernel))
    call(
        "cuLaunchKernel", function, *grid, *threads, entry["shared"], 0, ctypes.addressof(block), 0
    )
    call("cuEventRecord", event, 0)
    start = time.time()
    while True:
        (status,) = driver.cuEventQuery(event)
        if not int(status):
            break
        if status != driver.CUresult.CUDA_ERROR_NOT_READY:
            raise FailedError(f"the launch failed: {status.name}", True)
        if time.time() - start > SECONDS * entry.get("patience", 1):
            raise FailedError("hangs", True)
    different = ""
    for row, memory in zip(entry["params"], owned, strict=True):
        key = f"{name}.{row['name']}"
        want = np.ascontiguousarray(arrays[f"{key}.want" if f"{key}.want" in arrays else key])
        got = np.empty_like(want)
        call("cuMemcpyDtoH", got.ctypes.data, memory, got.nbytes)
        bad = int((got != want).sum())
        if bad and not different:
            first = int(np.flatnonzero(got != want)[0])
            different = f"{row['name']}: {bad} bytes of {want.nbytes} differ, the first at {first}"
    for memory in owned:
        call("cuMemFree", memory)
    call("cuLibraryUnload", library)
    return different


def launch_all(folder: Path, first: int, last: int, patience: int) -> int:
    """Launch kernels in this process; go on in another after one that ends it."""
    rows = json.loads((folder / "kernels.json").read_text())
    arrays = np.load(folder / "kernels.npz")
    results_file = folder / "device.json"
    results = json.loads(results_file.read_text()) if first and results_file.exists() else {}
    call("cuInit", 0)
    context = call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", 0))
    call("cuCtxSetCurrent", context)
    for at in range(first, min(last, len(rows))):
        entry = rows[at] | {"patience": patience}
        try:
            results[entry["name"]] = launch(entry, arrays) or "equal"
        except FailedError as failed:
            results[entry["name"]] = f"failed: {failed}"
            results_file.write_text(json.dumps(results, indent=1))
            if failed.dead:
                sys.stdout.flush()
                more = [sys.executable, __file__, str(folder), "--first", str(at + 1)]
                more += ["--last", str(last), "--patience", str(patience)]
                os.execv(sys.executable, more)
    results_file.write_text(json.dumps(results, indent=1))
    equal = sum(each == "equal" for each in results.values())
    for entry in rows:
        what = results.get(entry["name"], "not launched")
        if what != "equal" and "race" not in entry and what != "not launched":
            print(f"{entry['name']} (seed {entry['seed']}, {entry['text']}): {what}")
    print(f"{len(results)} kernels launched, {equal} equal bit for bit")
    return int(equal < len(results))


def racecheck(folder: Path, tool: str) -> int:
    """Launch all under the sanitizer; print a table and write ``racecheck.json``."""
    rows = json.loads((folder / "kernels.json").read_text())
    found: set[str] = set()
    ran: set[str] = set()
    (folder / "device.json").unlink(missing_ok=True)
    for first in range(0, len(rows), TOGETHER):
        command = [tool, "--tool", "racecheck", "--racecheck-report", "all", "--print-limit", "0"]
        command += [sys.executable, __file__, str(folder), "--first", str(first)]
        command += ["--last", str(first + TOGETHER), "--patience", "20"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        text = done.stdout + done.stderr
        (folder / f"racecheck_{first:04d}.txt").write_text(text[-2_000_000:])
        lines = [line for line in text.splitlines() if line.startswith("=========")]
        found |= {name for line in lines for name in re.findall(r"k\d{4}(?!\d)", line)}
        launched = json.loads((folder / "device.json").read_text())
        ran |= set(launched)
    table: dict[str, int] = {}
    results = []
    for row in rows:
        if row["name"] not in ran:
            continue
        hazard, refused = row["name"] in found, bool(row.get("detector"))
        key = f"racecheck {'finds' if hazard else 'finds nothing'}, detector "
        key += "refuses" if refused else "accepts"
        table[key] = table.get(key, 0) + 1
        results.append({k: row.get(k) for k in ("name", "seed", "kind", "race", "detector")})
        results[-1]["racecheck"] = hazard
        if hazard and not refused:
            print(f"DISAGREE {row['name']} seed {row['seed']}, {row['kind']}: {row['race']}")
    (folder / "racecheck.json").write_text(
        json.dumps({"table": table, "kernels": results}, indent=1)
    )
    for key, count in sorted(table.items()):
        print(f"{count:5d}  {key}")
    return int(any(key.startswith("racecheck finds,") and key.endswith("accepts") for key in table))


def record(folder: Path, races: Path | None, file: Path) -> int:
    """Write what both runs found: device, driver, date, and the digest of each kernel's output.

    The first kernels come with their programs, so that a NumPy warp can be held to them.
    """
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    device, driver = (each.strip() for each in answer.splitlines()[0].split(","))
    results = json.loads((folder / "device.json").read_text())
    rows = []
    for at, entry in enumerate(json.loads((folder / "kernels.json").read_text())):
        row = {key: entry[key] for key in ("seed", "text", "digest")}
        row["equal"] = results.get(entry["name"]) == "equal"
        rows.append(row | ({"source": entry["source"].splitlines()} if at < WITH_SOURCE else {}))
    found: dict[str, Any] = {
        "device": device, "driver": driver, "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": "python -m tests.fuzz --export N DIR --seed S; python tests/fuzz/device.py DIR",
        "kernels": rows,
    }  # fmt: skip
    if races is not None:
        found["races"] = json.loads((races / "racecheck.json").read_text())
    file.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=1 << 30)
    parser.add_argument("--patience", type=int, default=1, help="how often 10 s a launch may take")
    parser.add_argument("--racecheck", action="store_true")
    parser.add_argument("--tool", default="compute-sanitizer")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--races", type=Path)
    given = parser.parse_args()
    if given.record:
        return record(given.folder, given.races, given.record)
    if given.racecheck:
        return racecheck(given.folder, given.tool)
    return launch_all(given.folder, given.first, given.last, given.patience)


if __name__ == "__main__":
    sys.exit(main())
