"""Record what a GPU says: ``python -m tests.record_device FOLDER`` on a machine that has one.

Writes ``gemm.json``: the seed's list and a sample of the conformance vectors, run through numba.cuda,
each against a float64 product and bit by bit against the CUDA C++ text (nvcc, CuPy) and the NumPy warp.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numba
import numba_cuda
import numpy as np

import lowering as lw
from lowering.verification import (
    TOLERANCE,
    random_inputs,
    reference,
    relative_error,
    standard_cases,
)
from tests.gemm_cases import lower_case
from tests.vectors import read

EVERY = 8  # one conformance row in so many is run


def header() -> dict[str, Any]:
    """Return device, driver, date, versions and command."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    device, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split(",")
    return {
        "device": device.strip(),
        "driver": driver.strip(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "versions": {
            "numba": numba.__version__,
            "numba-cuda": numba_cuda.__version__,
            "numpy": np.__version__,
        },
        "command": "python -m tests.record_device FOLDER",
    }


def cuda_text_output(program: lw.Program, inputs: dict[str, Any], folder: Path) -> Any:
    """Compile the CUDA text with nvcc, run it through CuPy, and return D."""
    import cupy

    from lowering.listing import parameters
    from lowering.warp import poison

    stem = f"gemm_{abs(hash(program.cuda_source())):x}"  # CuPy keeps modules by their path
    source, cubin = folder / f"{stem}.cu", folder / f"{stem}.cubin"
    source.write_text(program.cuda_source())
    subprocess.run(
        ["nvcc", "-std=c++17", "-arch=sm_90", "-cubin", "-o", cubin, source], check=True
    )
    kernel = cupy.RawModule(path=str(cubin)).get_function("gemm")
    arrays = []
    for role in parameters(program):
        buffer = program.buffer(role)
        matrix = inputs.get(role)
        if matrix is None:
            matrix = poison(buffer.dtype.numpy, buffer.shape)
        bits = np.ascontiguousarray(matrix).view(buffer.dtype.word)
        arrays.append(cupy.asarray(bits))
    kernel((1,), (program.threads,), tuple(arrays))
    return cupy.asnumpy(arrays[-1]).view(program.buffer("D").dtype.numpy)


def sample() -> list[tuple[str, lw.Program, bool]]:
    """Return (name, program, whole): ``whole`` where every operand is a whole buffer."""
    programs = [(str(case), case.program(), True) for case in standard_cases()]
    rows = [row for row in read("gemm.jsonl") if row["out"]["accepted"]]
    for index, row in enumerate(rows[::EVERY]):
        regions = any("region" in data for data in row["in"]["operands"].values())
        units = any(len(data["shape"]) > 2 for data in row["in"]["operands"].values())
        programs.append((f"vector {index * EVERY} {row['tag']}", lower_case(row["in"]), not regions and not units))
    return programs


def main(folder: Path) -> None:
    """Run everything and write the record."""
    record: dict[str, Any] = header() | {"gemm": []}
    began = time.perf_counter()
    for index, (name, program, whole) in enumerate(sample()):
        inputs = random_inputs(program, index)
        out = program.run(**inputs)
        simulated = program.simulate(**inputs)
        row: dict[str, Any] = {"case": name, "ptx": program.instruction.ptx, "mma": len(program.mma)}
        same = np.array_equal(np.isnan(out), np.isnan(simulated))
        row["written_alike"] = bool(same)
        valid = ~np.isnan(simulated)
        row["simulator_distance"] = relative_error(out[valid], simulated[valid].astype(float))
        if whole:
            row["error"] = relative_error(out, reference(program, inputs))
            row["tolerance"] = TOLERANCE
        if index % 4 == 0:
            text = cuda_text_output(program, inputs, folder)
            row["cuda_text_equal"] = bool(np.array_equal(text.view(np.uint32), out.view(np.uint32)))
        whole_numbers = {r: np.round(v.astype(float) * 4).astype(v.dtype) for r, v in inputs.items()}
        exact = np.array_equal(
            program.run(**whole_numbers), program.simulate(**whole_numbers), equal_nan=True
        )
        row["integers_bit_equal_to_simulator"] = bool(exact)
        record["gemm"].append(row)
    (folder / "gemm.json").write_text(json.dumps(record, indent=1) + "\n")
    rows = record["gemm"]
    errors = [row["error"] for row in rows if "error" in row]
    print(f"{record['device']} driver {record['driver']}: {len(rows)} programs")
    print(f"  within {TOLERANCE:g}: {sum(e <= TOLERANCE for e in errors)} of {len(errors)}, worst {max(errors):.2e}")
    texts = [row["cuda_text_equal"] for row in rows if "cuda_text_equal" in row]
    print(f"  CUDA text bit-equal: {sum(texts)} of {len(texts)}")
    print(f"  integers bit-equal to the simulator: {sum(r['integers_bit_equal_to_simulator'] for r in rows)}")
    print(f"  same elements written: {sum(r['written_alike'] for r in rows)}")
    print(f"  worst distance to the simulator: {max(r['simulator_distance'] for r in rows):.2e}")
    print(f"  {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
