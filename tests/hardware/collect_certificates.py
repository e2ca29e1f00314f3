"""Makes ``fragments/certificates.json``: ``python -m tests.hardware.collect_certificates``.

It takes the certificates of ``tests/data/hardware/*.json``: those of a machine, that agree, and
that refute every wrong claim. Each covers the rows of the fragment table whose layouts it compared
with the machine. What no machine there has is assembled, by the nvJitLink that is installed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from layoutalg import LayoutError, fragments, parse
from layoutalg.fragments import Fragment, certification
from layoutalg.fragments.targets import has
from lowering.audit.target_matrix import accepted, forms
from lowering.isa.mma import MMA_EXTENDED, MMA_FAMILY
from lowering.isa.nvjitlink import version
from lowering.probing.record import ProbeRecord, from_json
from tests.support.paths import HARDWARE

MACHINE = "sm_90a"  # the target of the machine that was asked: an H200
MMA = {str(row): row for row in (*MMA_FAMILY, *MMA_EXTENDED)}


def certificates(folder: Path = HARDWARE) -> Iterator[ProbeRecord]:
    """Yield the certificates of every file that holds any."""
    for path in sorted(folder.glob("*.json")):
        text = path.read_text(encoding="utf-8")
        if isinstance(json.loads(text), list):
            yield from from_json(text)


def rows(certificate: ProbeRecord) -> dict[str, Fragment]:
    """Return the rows of the fragment table that a certificate is of, by the roles of its claims.

    What is no row (the descriptor of an operand in shared memory) is left out.

    Raises:
        LayoutError: it is of no instruction that is known.
    """
    name = certificate.instruction
    if name in MMA:
        roles = ("A", "B", "D", *MMA[name].extras)
        return {role: MMA[name].fragment(role) for role in roles}
    if name.startswith("descriptor."):
        return {}
    if found := re.fullmatch(r"(wgmma\.m64n\d+) (\w+)", name):
        return {"D": fragments.get(found[1], f"D.{found[2]}")}
    if name.startswith("wgmma."):
        return {"A": fragments.get(name, "A.reg")}
    return {operand: fragments.get(name, operand) for operand in fragments.operands(name)}


def covers(certificate: ProbeRecord) -> dict[str, str]:
    """Return the layouts that a certificate stands behind, by the operand of the fragment table.

    Raises:
        LayoutError: it does not come from a machine, disagrees or is vacuous, or what it compared
            with the machine is not the layout of the table.
    """
    name = certificate.instruction
    if not certificate.is_hardware or certificate.verdict != "agrees" or not certificate.refuted:
        raise LayoutError(
            f"certificate of {name}: must be of a machine, agree, and refute wrong claims; got "
            f"{certificate.machine}, {certificate.verdict}, {len(certificate.refuted)} refuted"
        )
    found = rows(certificate)
    for role, row in found.items():
        claim = certificate.claims.get(role)
        if claim is None or not parse(claim).equivalent(row.layout):
            raise LayoutError(
                f"certificate of {name}: {role} must be {row.layout}; it compared {claim}"
            )
    return {row.operand: str(row.layout) for row in found.values()}


def measured(certified: Sequence[ProbeRecord]) -> dict[str, Any]:
    """Return what the package holds of the certificates of machines."""
    texts: dict[str, int] = {}
    machines: dict[tuple[str, ...], int] = {}
    entries = []
    for each in certified:
        covered = covers(each)
        if not covered:
            continue
        for text in (*each.measured, *each.convention):
            certification.phrase(text)
            texts.setdefault(text, len(texts))
        machine = (each.device, each.driver, each.date)
        entries.append(
            {
                "certificate": each.instruction,
                "instruction": each.instruction.split(" ")[0],
                "covers": covered,
                "machine": machines.setdefault(machine, len(machines)),
                "experiments": each.experiments,
                "digests": dict(each.tables),
                "measured": [texts[text] for text in each.measured],
                "convention": [texts[text] for text in each.convention],
            }
        )
    return {"machines": list(machines), "texts": list(texts), "measured": entries}


def assembled() -> dict[str, Any]:
    """Return what the package holds of the assembler: instructions that the machine lacks.

    Raises:
        AssembleError: nvJitLink is not installed.
        LayoutError: it refuses a form of one on the first target that has it.
    """
    lacking = [name for name in fragments.names() if not has(first(name).min_arch, MACHINE)]
    wanted = [form for form in forms() if form.instruction in lacking]
    taken: dict[str, bool] = {}
    for target in {first(name).targets[0] for name in lacking}:
        texts = [form.text for form in wanted if first(form.instruction).targets[0] == target]
        taken |= dict(zip(texts, accepted(texts, target), strict=True))
    entries = []
    for name in lacking:
        found = [form for form in wanted if form.instruction == name]
        if not found or not all(taken[form.text] for form in found):
            raise LayoutError(f"nvJitLink must take {name} on {first(name).targets[0]}")
        entries.append(
            {
                "instruction": name,
                "covers": {row.operand: str(row.layout) for row in fragments.rows(name)},
                "ptx": found[0].mnemonic,
                "target": first(name).targets[0],
            }
        )
    return {"assembler": f"nvJitLink {version()}", "assembled": entries}


def first(instruction: str) -> Fragment:
    """Return the first row of an instruction."""
    return fragments.rows(instruction)[0]


def collect(certified: Sequence[ProbeRecord]) -> str:
    """Return the data of the package, as JSON."""
    return written({"schema": certification.SCHEMA, **measured(certified), **assembled()})


def written(data: dict[str, Any]) -> str:
    """Return JSON with a line for each key, and for each entry of a list."""
    lines = []
    for key, value in data.items():
        text = _line(value)
        if isinstance(value, list) and value:
            text = "[\n" + ",\n".join(f"  {_line(each)}" for each in value) + "\n ]"
        lines.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    certification.FILE.write_text(collect(tuple(certificates())), encoding="utf-8")
    found = fragments.counts()
    print(found)
    sys.exit("not certified" in dict(found.certified))
