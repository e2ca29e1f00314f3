"""What was measured of an instruction, as a value, as text and as JSON: a probe's record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layoutalg import LayoutError
from lowering.probing.raw import Ints


def digest(name: str, values: Ints) -> str:
    """Return the sha256 of a table: its name and shape, then 16-bit little-endian entries."""
    head = f"{name} {values.shape}\n".encode()
    return hashlib.sha256(head + np.ascontiguousarray(values, dtype="<i2").tobytes()).hexdigest()


@dataclass(frozen=True)
class ProbeRecord:
    """What was measured of an instruction, where, and whether the claims agree.

    ``tables`` gives the sha256 of each measured table, ``rows`` the tables themselves as text, one
    row per lane. ``refuted`` lists the known wrong claims with the first place that refutes each;
    None means that one got through.
    """

    instruction: str
    ptx: str
    machine: str
    device: str
    driver: str
    date: str
    experiments: int
    claims: Mapping[str, str]
    tables: Mapping[str, str]
    rows: Mapping[str, tuple[str, ...]]
    measured: tuple[str, ...]
    convention: tuple[str, ...]
    difference: str | None
    refuted: Mapping[str, str | None]

    @property
    def agrees(self) -> bool:
        """Whether the machine shows what the claims say."""
        return self.difference is None

    @property
    def vacuous(self) -> bool:
        """Whether a claim known to be wrong agrees as well, so that agreement means nothing."""
        return self.agrees and None in self.refuted.values()

    @property
    def is_hardware(self) -> bool:
        """Whether a GPU was asked."""
        return self.machine == "device"

    @property
    def verdict(self) -> str:
        """``agrees``, ``REFUTED`` with the first place, or ``VACUOUS``."""
        if not self.agrees:
            return f"REFUTED: {self.difference}"
        passed = [name for name, place in self.refuted.items() if place is None]
        return f"VACUOUS: does not refute {', '.join(passed)}" if passed else "agrees"

    def report(self) -> str:
        """Return the certificate as text, to read."""
        where = (
            f"{self.device}, driver {self.driver}, {self.date}"
            if self.is_hardware
            else "SIMULATION on the NumPy warp: no hardware was asked"
        )
        lines = [self.instruction, f"  {self.ptx}", f"  {where}; {self.experiments} experiments"]
        lines += [f"  claim      {operand}: {layout}" for operand, layout in self.claims.items()]
        lines += [f"  measured   {text}" for text in self.measured]
        lines += [f"  convention {text}" for text in self.convention]
        lines += [f"  sha256     {name} {value[:16]}…" for name, value in self.tables.items()]
        lines += [f"  refutes    {name}: {place}" for name, place in self.refuted.items()]
        return "\n".join([*lines, f"  {self.verdict}"])


def to_json(certificates: Sequence[ProbeRecord]) -> str:
    """Return certificates as one JSON list."""
    return json.dumps([asdict(each) for each in certificates], indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> tuple[ProbeRecord, ...]:
    """Read the certificates of a JSON list.

    Raises:
        LayoutError: the text is no list of certificates.
    """
    try:
        return tuple(_record(data) for data in json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LayoutError(f"certificates: the text holds none: {error}") from None


def _record(data: Mapping[str, Any]) -> ProbeRecord:
    rows = {name: tuple(rows) for name, rows in data["rows"].items()}
    listed = {name: tuple(data[name]) for name in ("measured", "convention")}
    return ProbeRecord(**{**data, "rows": rows, **listed})
