"""What stands behind a row of the fragment table: a machine that was asked, an assembler, or none.

``certificates.json`` beside this file is what ``python -m tests.hardware.collect_certificates``
makes of the records of real hardware (``tests/data/hardware``) and of what nvJitLink assembles. A
record holds for the layout that was compared with the machine, not for a name: a row of another
layout has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from layoutalg.errors import LayoutError

SCHEMA = {"name": "layoutalg.certificates", "version": 1}
KINDS = ("measured", "assembled", "none")  # of a certification, the strongest first
FILE = Path(__file__).with_name("certificates.json")

# How a certificate's statements begin -> what a line says of them; "" where it says nothing more.
_PHRASES = (
    ("which A slot meets which B slot", "slot relation"),
    ("which slot of E", "positions in E"),
    ("with A by ldmatrix", "labels tied to memory through ldmatrix"),
    ("which place of A meets which (k, n)", "slot relation; k and n tied to memory by descriptor"),
    ("the row of A's fragment and the column", "rows of A's fragment; columns of B in memory"),
    ("everything: for each lane and slot", "every slot, against addresses"),
    ("everything: which slot of which lane", "which slot goes where"),
    ("D starts from C", ""),
    ("which numbers the 64 rows have", "numbers of rows by the PTX ISA"),
    ("which numbers the", "labels by the PTX ISA"),
    ("the order of the addresses", ""),
    ("that the source is laid out", "its source as ldmatrix gives it, by convention"),
    ("none", ""),
    ("A is laid out as its fragment", ""),
)


def phrase(text: str) -> str:
    """Return a statement of a certificate in a few words, or none where the others imply it.

    Raises:
        LayoutError: no such statement is known.

    >>> phrase("which A slot meets which B slot, and in which D slot the product lands: 8192 pairs")
    'slot relation'
    """
    for start, short in _PHRASES:
        if text.startswith(start):
            return short
    raise LayoutError(
        f"certification: a statement must start as one that is known; got {text!r}. These fit: "
        + "; ".join(start for start, _ in _PHRASES)
    )


@dataclass(frozen=True)
class Measured:
    """One certificate of a GPU, without its tables: ``digests`` are their sha256.

    ``certificate`` is its name among the records: the instruction, with what tells its forms apart.
    """

    certificate: str
    device: str
    driver: str
    date: str
    experiments: int
    digests: tuple[tuple[str, str], ...]
    measured: tuple[str, ...]
    convention: tuple[str, ...]


@dataclass(frozen=True)
class Assembled:
    """An instruction that no machine here has: an assembler took it for a target."""

    ptx: str
    target: str
    assembler: str


@dataclass(frozen=True)
class Certification:
    """What stands behind one row: certificates of a GPU, else an assembler, else nothing.

    >>> from layoutalg import fragments
    >>> fragments.get("mma.m16n8k16.f16", "A").certificate.kind
    'measured'
    >>> fragments.get("tcgen05.ld.32x32b.x1.b32", "dst").certificate.kind
    'assembled'
    >>> Certification().statement
    'not certified'
    """

    measured: tuple[Measured, ...] = ()
    assembled: Assembled | None = None
    copied: bool = False  # lanes that the instruction does not read hold copies: our choice

    @property
    def kind(self) -> str:
        """One of :data:`KINDS`."""
        return "measured" if self.measured else "assembled" if self.assembled else "none"

    @property
    def summary(self) -> str:
        """The statement without its particulars."""
        if self.measured:
            return f"measured on {self.measured[0].device}"
        return "assembled, not executed" if self.assembled else "not certified"

    @property
    def statement(self) -> str:
        """One line: where and when which part was measured, and by what the labels are known."""
        if self.measured:
            first = self.measured[0]
            texts = (phrase(text) for text in (*first.measured, *first.convention))
            said = "; ".join(text for text in texts if text)
            said += "; selector 0 reads the first lanes, copies by choice" * self.copied
            return f"{self.summary}, driver {first.driver}, {first.date}: {said}"
        if self.assembled:
            return f"{self.summary} ({self.assembled.assembler}, {self.assembled.target})"
        return self.summary


def of(instruction: str, operand: str, layout: str) -> Certification:
    """Return what stands behind a row of the fragment table.

    Args:
        instruction: its name there.
        operand: the row's own, such as ``C/D.f32``.
        layout: the layout as text; a record of another one is none of this row.

    >>> from layoutalg import fragments
    >>> a, b = (fragments.get("mma.m8n8k4.f64", role) for role in "AB")
    >>> [of(a.instruction, "A", str(row.layout)).kind for row in (a, b)]
    ['measured', 'none']
    """
    row = (instruction, operand, layout)
    measured, assembled = _records()
    return Certification(measured.get(row, ()), assembled.get(row), " + R[" in layout)


_Row = tuple[str, str, str]


@cache
def _records() -> tuple[dict[_Row, tuple[Measured, ...]], dict[_Row, Assembled]]:
    """Return the records of the package by row: instruction, operand and layout."""
    data: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    assert data["schema"] == SCHEMA, data["schema"]
    texts = data["texts"]
    measured: dict[_Row, tuple[Measured, ...]] = {}
    for record in data["measured"]:
        device, driver, date = data["machines"][record["machine"]]
        certificate = Measured(
            record["certificate"],
            device,
            driver,
            date,
            record["experiments"],
            tuple(record["digests"].items()),
            tuple(texts[at] for at in record["measured"]),
            tuple(texts[at] for at in record["convention"]),
        )
        for row in _covered(record):
            measured[row] = (*measured.get(row, ()), certificate)
    assembled = {
        row: Assembled(record["ptx"], record["target"], data["assembler"])
        for record in data["assembled"]
        for row in _covered(record)
    }
    return measured, assembled


def _covered(record: Mapping[str, Any]) -> Iterator[_Row]:
    for operand, layout in record["covers"].items():
        yield record["instruction"], operand, layout
