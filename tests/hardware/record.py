"""Record what a GPU says: ``python -m tests.hardware.record FOLDER`` on a machine that has one.

Writes, named after the device (``h200_verify.json`` and so on):

- ``verify``: every case of :mod:`lowering.verification.checker`, run through numba.cuda against
  a float64 product with its negative controls; against the NumPy warp, bit by bit on integers, with
  the sha256 of D's region, to which the CPU tests hold the simulator; and, where nvcc and CuPy are,
  bit by bit against the CUDA C++ text.
- ``vectors``: a sample of the conformance vectors, against the NumPy warp.
- ``probe``: a certificate of every instruction that can be probed.
- ``wgmma`` (where asked for): certificates of wgmma's fragments and descriptors, several processes
  at a time, and whether the CUDA C++ text of some gives the same bits.

``--only verify`` (or vectors, probe, wgmma) does one part. ``--family`` adds the other dense mma:
their certificates, and ``family``, which is ``verify`` for them.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import hashlib
import importlib.util
import json
import multiprocessing
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numba
import numba_cuda
import numpy as np
import numpy.typing as npt
from numba import cuda

import lowering as lw
from lowering.codegen import cuda_cpp
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.matrices import logical, physical, poison, to_bits
from lowering.launch.arguments import arguments
from lowering.probing import prober, warp_subjects, wgmma_subjects
from lowering.probing.raw import ProbeError, device
from lowering.probing.record import ProbeRecord, to_json
from lowering.verification.cases import AnyCase, all_cases, family_cases
from lowering.verification.checker import (
    AnyProgram,
    as_machine,
    check,
    integer_inputs,
    operand,
    random_inputs,
    relative_error,
)
from tests.support.gemm_cases import lower_case
from tests.support.vectors import read

EVERY = 8  # one conformance row in so many is run
COMPILERS = 8  # nvcc processes at a time
Array = npt.NDArray[Any]


def header() -> dict[str, Any]:
    """Return device, driver, date, versions and command."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    device, driver = answer.splitlines()[0].split(",")
    return {
        "device": device.strip(),
        "driver": driver.strip(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "versions": {
            "numba": numba.__version__,
            "numba-cuda": numba_cuda.__version__,
            "numpy": np.__version__,
        },
        "command": "python -m tests.hardware.record FOLDER",
    }


def whole(program: AnyProgram, out: Any) -> Array:
    """Return D's whole buffer of what a program returned."""
    return np.asarray(out if isinstance(program, lw.Program) else out["D"])


def region(program: AnyProgram, d: Array) -> Array:
    """Return D's region of its buffer."""
    return operand(program, "D", d) if isinstance(program, lw.Program) else d.astype(np.float64)


def same_bits(one: Array, other: Array) -> bool:
    return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())


def sha256(values: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(values, dtype="<f4").tobytes()).hexdigest()


# -- the CUDA C++ text ----------------------------------------------------------------------------


def compile_text(source: str, path: Path, arch: str) -> Path:
    """Compile a CUDA text with nvcc; return the machine code's path."""
    text, cubin = path.with_suffix(".cu"), path.with_suffix(".cubin")
    text.write_text(source)
    command = ["nvcc", "-std=c++17", f"-arch={arch}", "-cubin", "-o", str(cubin), str(text)]
    subprocess.run(command, check=True)
    return cubin


def run_text(program: AnyProgram, inputs: Mapping[str, Array], cubin: Path) -> Array:
    """Run the compiled CUDA text of a program; return D's whole buffer."""
    if isinstance(program, lw.Program):
        given = program._complete(inputs)
    else:
        made = arguments(program.body, inputs)
        given = {b.name: made.matrix(b.name, made.cells[b.name]) for b in program.body.params}
    return run_body(program.body, program.name, given, cubin)


def run_body(body: KernelIR, name: str, given: Mapping[str, Array], cubin: Path) -> Array:
    """Run compiled CUDA text through CuPy; return the buffer that it writes."""
    import cupy

    arrays = []
    for buffer in body.params:
        matrix = given.get(buffer.name, poison(buffer.dtype.numpy, buffer.shape))
        arrays.append(cupy.asarray(to_bits(physical(buffer, matrix), buffer.dtype)))
    assert body.shared_bytes <= 48 * 1024, "more would have to be dynamic"
    cupy.RawModule(path=str(cubin)).get_function(name)((1,), (body.threads,), tuple(arrays))
    (d,) = body.written
    flat = cupy.asnumpy(arrays[body.params.index(d)]).view(d.dtype.numpy)
    return logical(d, flat)


def compiled_texts(
    programs: Sequence[AnyProgram], folder: Path
) -> list[concurrent.futures.Future[Path]] | None:
    """Start to compile the CUDA text of every program; None where nvcc or CuPy is missing."""
    if shutil.which("nvcc") is None or importlib.util.find_spec("cupy") is None:
        return None
    major, minor = cuda.get_current_device().compute_capability
    pool = concurrent.futures.ThreadPoolExecutor(COMPILERS)
    return [
        pool.submit(compile_text, program.cuda_source(), folder / f"p{index}", f"sm_{major}{minor}")
        for index, program in enumerate(programs)
    ]


# -- the parts ------------------------------------------------------------------------------------


def progress(name: str, items: Sequence[Any]) -> Iterator[Any]:
    """Yield items, with a line now and then."""
    began = time.perf_counter()
    for index, item in enumerate(items):
        if index % 20 == 0:
            print(
                f"  {name} {index} of {len(items)}, {time.perf_counter() - began:.0f} s", flush=True
            )
        yield item


def verified(cases: Sequence[AnyCase], folder: Path) -> list[dict[str, Any]]:
    """Run cases."""
    programs = [case.program() for case in cases]
    texts = compiled_texts(programs, folder)
    rows = []
    for index, (case, program) in enumerate(
        progress("verify", list(zip(cases, programs, strict=True)))
    ):
        result = check(program, str(case), "device", index)
        row = result.as_dict() | {"verdict": result.verdict}
        row["controls"] = {control.name: control.error for control in result.controls}
        inputs, integers = random_inputs(program, index), integer_inputs(program, index)
        out = whole(program, program.run(**inputs))
        simulated = whole(program, program.simulate(**inputs))
        row["simulator_distance"] = relative_error(region(program, out), region(program, simulated))
        exact = whole(program, program.run(**integers))
        row["integers_equal"] = same_bits(exact, whole(program, program.simulate(**integers)))
        row["integers_sha256"] = sha256(region(program, exact))
        if texts is not None:
            cubin = texts[index].result()
            row["cuda_text_equal"] = same_bits(run_text(program, inputs, cubin), out) and same_bits(
                run_text(program, integers, cubin), exact
            )
        rows.append(row)
    return rows


def vectors() -> list[dict[str, Any]]:
    """Run a sample of the accepted conformance vectors."""
    accepted = [row for row in read("gemm.jsonl") if row["out"]["accepted"]]
    rows = []
    for index, vector in enumerate(progress("vectors", accepted[::EVERY])):
        program = lower_case(vector["in"])
        inputs, integers = random_inputs(program, index), integer_inputs(program, index)
        out, simulated = program.run(**inputs), program.simulate(**inputs)
        exact = program.run(**integers)
        rows.append(
            {
                "case": f"vector {index * EVERY} {vector['tag']}",
                "mma": len(program.mma),
                "written_alike": bool(np.array_equal(np.isnan(out), np.isnan(simulated))),
                "simulator_distance": relative_error(
                    operand(program, "D", out), operand(program, "D", simulated)
                ),
                "integers_equal": same_bits(exact, program.simulate(**integers)),
                "integers_sha256": sha256(operand(program, "D", exact)),
            }
        )
    return rows


def probed(family: bool) -> tuple[ProbeRecord, ...]:
    """Probe the instructions, or every dense mma too."""
    names = dict.fromkeys((*warp_subjects.names(), *warp_subjects.family() * family))
    return tuple(prober.probe(name, "device") for name in progress("probe", tuple(names)))


WORKERS = 8  # processes that probe wgmma side by side: their time goes into compiling
TEXTS = (
    "wgmma.m64nNk16.f16",
    "wgmma.m64n64 f16",
    "descriptor.B.f16.MN.128",
    "descriptor.A.s8.K.64",
)


def probe_one_wgmma(name: str) -> tuple[str, ProbeRecord | None, dict[str, Any] | None]:
    """Probe one thing; return what went wrong, the certificate, and how its CUDA text did."""
    texts: list[dict[str, Any]] = []

    def run(body: KernelIR, title: str, given: Mapping[str, Array]) -> Mapping[str, Array]:
        out = device(body, title, given)
        if name in TEXTS and shutil.which("nvcc") and importlib.util.find_spec("cupy"):
            with tempfile.TemporaryDirectory() as work:
                source = cuda_cpp.cuda_source(body, title, name)
                cubin = compile_text(source, Path(work) / "text", body.arch)
                equal = same_bits(run_body(body, title, given, cubin), out["D_image"])
            texts.append({"case": name, "cuda_text_equal": equal})
        return out

    try:
        return "", prober.probe(name, "device", run=run), next(iter(texts), None)
    except ProbeError as error:
        return f"{name}: {error}", None, None


def probed_wgmma() -> list[tuple[str, ProbeRecord | None, dict[str, Any] | None]]:
    """Probe everything about wgmma, the longest to compile first."""
    names = sorted(wgmma_subjects.names(), key=lambda name: (len(name), name), reverse=True)
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(WORKERS, mp_context=spawn) as pool:
        found = dict(zip(names, pool.map(probe_one_wgmma, names), strict=True))
    return [found[name] for name in wgmma_subjects.names()]


def lines(head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a record as JSON, one line per row."""
    start = json.dumps(head).removesuffix("}")
    inside = ",\n ".join(json.dumps(row) for row in rows)
    return f'{start}, "cases": [\n {inside}\n]}}\n'


def summary(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print how many rows hold each thing."""
    print(f"{name}: {len(rows)} programs")
    for key in ("ok", "integers_equal", "cuda_text_equal", "written_alike"):
        held = [row[key] for row in rows if key in row]
        if held:
            print(f"  {key:<20} {sum(held)} of {len(held)}")
    for key in ("error", "simulator_distance"):
        values = [row[key] for row in rows if key in row]
        if values:
            print(f"  largest {key:<18} {max(values):.2e}")
    for row in rows:
        if not all(row.get(key, True) for key in ("ok", "integers_equal", "cuda_text_equal")):
            print(f"  LOOK AT {row['case']}")


def main(folder: Path, parts: Sequence[str]) -> None:
    """Run the parts and write their records."""
    if as_machine(None, "record") != "device":
        raise SystemExit("record: there is no CUDA device here")
    began = time.perf_counter()
    head = header()
    stem = head["device"].split()[-1].lower()
    folder.mkdir(parents=True, exist_ok=True)

    def write(name: str, text: str) -> None:
        (folder / f"{stem}_{name}.json").write_text(text, encoding="utf-8")

    print(f"{head['device']}, driver {head['driver']}")
    if "probe" in parts:
        certificates = probed("family" in parts)
        write("probe", to_json(certificates))
        agreeing = sum(certificate.verdict == "agrees" for certificate in certificates)
        print(f"probe: {agreeing} of {len(certificates)} agree")
        for certificate in certificates:
            if certificate.verdict != "agrees":
                print(f"  LOOK AT {certificate.instruction}: {certificate.verdict}")
    if "wgmma" in parts:
        found = probed_wgmma()
        certificates = tuple(each for _, each, _ in found if each is not None)
        write("wgmma", to_json(certificates))
        texts = [row for _, _, row in found if row is not None]
        write("wgmma_texts", lines(head, texts))
        summary("wgmma_texts", texts)
        agreeing = sum(certificate.verdict == "agrees" for certificate in certificates)
        print(f"wgmma: {agreeing} of {len(found)} agree")
        for text, each, _ in found:
            if each is None or each.verdict != "agrees":
                print(f"  LOOK AT {text or f'{each.instruction}: {each.verdict}'}")
    for part, cases in (("verify", all_cases()), ("family", family_cases())):
        if part in parts:
            with tempfile.TemporaryDirectory() as work:
                rows = verified(cases, Path(work))
            write(part, lines(head, rows))
            summary(part, rows)
    if "vectors" in parts:
        rows = vectors()
        write("vectors", lines(head, rows))
        summary("vectors", rows)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", choices=("probe", "verify", "vectors", "wgmma"))
    parser.add_argument("--family", action="store_true", help="every dense mma too")
    arguments = parser.parse_args()
    chosen = arguments.only or ["probe", "verify", "vectors"]
    main(arguments.folder, [*chosen, *["family"] * arguments.family])
