"""Probing: what a machine alone shows of an instruction, compared with what our layouts say.

A record says which part was measured and which is convention. Known wrong claims run along: a
record that does not refute each of them is vacuous, and says so.
"""

from __future__ import annotations

import datetime
import shutil
import subprocess
from collections.abc import Mapping

from layoutalg import LayoutError, TileLayout
from lowering.probing import warp_subjects, wgmma_subjects
from lowering.probing.raw import Run, device, simulator
from lowering.probing.record import ProbeRecord, digest
from lowering.probing.subject import Subject, first_difference
from lowering.verification.checker import as_machine


def machine_names(machine: str) -> tuple[str, str]:
    """Return the names of the device and of its driver."""
    if machine != "device":
        return "NumPy warp", "none"
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return "CUDA device (nvidia-smi is not there to name it)", "unknown"
    query = [smi, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    name, driver = answer.splitlines()[0].split(",")
    return name.strip(), driver.strip()


def names(family: bool = False) -> tuple[str, ...]:
    """Return what is probed: the mma that dispatch chooses and the matrix instructions.

    Args:
        family: whether every other mma, and all of wgmma, follow.

    >>> names()[1], names()[-1], names(family=True)[-1]
    ('mma.m16n8k16.f16', 'movmatrix.m8n8.trans.b16', 'descriptor.B.f16.K.32+1')
    """
    more = (*warp_subjects.family(), *wgmma_subjects.names()) if family else ()
    return tuple(dict.fromkeys((*warp_subjects.names(), *more)))


def subject(name: str, layouts: Mapping[str, TileLayout] | None = None) -> Subject:
    """Return what is probed under a name, with our claims or with those of layouts.

    Raises:
        LayoutError: no such name, or layouts that are none of its operands.
    """
    if name.startswith(("wgmma", "descriptor")):
        if layouts:
            raise LayoutError(
                f"probe: layouts of one warp's instructions can be claimed; {name} is of a "
                "warpgroup, and claims its fragments and descriptors"
            )
        return wgmma_subjects.wgmma_subject(name)
    return warp_subjects.warp_subject(name, layouts or {})


def probe(
    instruction: str,
    machine: str | None = None,
    claims: Mapping[str, TileLayout] | None = None,
    run: Run | None = None,
) -> ProbeRecord:
    """Measure an instruction and compare it with layouts; by default with our fragments.

    Args:
        instruction: one of :func:`names`, such as ``mma.m16n8k16.f16`` or ``wgmma.m64n128 f32``.
        machine: "device" or "simulator"; by default the GPU where there is one.
        claims: operand ("A", "B", "D", "dst", "src") -> layout over laneid and m, to be compared in
            place of our own.
        run: what runs the kernels, in place of the machine's own.

    Raises:
        LayoutError: no such instruction, machine or operand.
        ProbeError: the machine shows what no such instruction can show.

    >>> record = probe("ldmatrix.m8n8.x2.b16", "simulator")
    >>> record.verdict, record.is_hardware
    ('agrees', False)
    """
    machine = as_machine(machine, "probe")
    run = run or (device if machine == "device" else simulator)
    asked = subject(instruction, claims)
    found = asked.measure(run)
    conclusion = asked.conclude(found, run)
    return ProbeRecord(
        instruction,
        asked.ptx,
        machine,
        *machine_names(machine),
        datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        found.experiments,
        asked.claims,
        {name: digest(name, values) for name, values in found.tables.items()},
        conclusion.rows,
        conclusion.measured,
        conclusion.convention,
        first_difference(found.tables, asked.claimed, asked.words),
        {
            name: first_difference(found.tables, tables, asked.words)
            for name, tables in asked.wrong.items()
        },
    )
