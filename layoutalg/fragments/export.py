"""The fragment table as data for other projects: JSON and CSV, and back.

**JSON.** One object: ``schema`` (``{"name": "layoutalg.fragments", "version": 1}``), and
``fragments``, a list with one entry per operand of an instruction, one entry per line of the file:

========================  ========================================================================
``instruction``           name, as ``mma.m16n8k16.f16``
``operand``               ``A``, ``B``, ``C/D.f32``, ``dst``, … ; a form of it after the dot
``dtype``, ``bits``       the element's type, and the bits that it takes in a register
``shape``                 rows and columns of the operand: A (M, K), B (K, N), C and D (M, N); E and
                          the scales SFA like A, SFB like B; of ldmatrix the 8x8 matrices stacked;
                          of tcgen05 lanes by 32-bit columns of tensor memory
``products``              products that one instruction forms; 4 for m8n8k4.f16, else 1
``lanes``                 32, or the 128 threads of a warpgroup
``registers``             registers per lane, in the operand order of PTX
``register_bits``         32 or 64
``pack``                  elements per register, the first in the low bits: slot s is in register
                          s // pack, from bit ``bits * (s % pack)`` on
``copies``                lanes that hold each element; the instruction reads it in the first of
                          them (selector, byte-id and thread-id 0), the others are our choice
``layout``                the map from (row, column) to lane and slot, as ``layoutalg`` writes it
``min_arch``              the first target, ``targets`` those that have it
``source``                the section of the PTX ISA that the row was proved equal to
``certificate``           ``kind`` (``measured`` by a GPU, ``assembled`` only, or ``none``) and
                          ``statement``, a line that says what was measured and when
``axes``                  the names of a coordinate's numbers: row and column, after product where
                          there are several
``coords``                the table: ``coords[lane][slot]`` is the coordinate that the slot holds
========================  ========================================================================

**CSV.** One line per lane and slot, after a header: the columns of :data:`COLUMNS`. ``shape`` is as
16x8, ``product`` 0 where there is one, ``certificate`` the statement without its particulars; what
is long (layout, targets, source, the whole statement) is in the JSON only.

A change that would break a reader raises the version; new keys do not. Equal tables give equal
bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from layoutalg import fragments
from layoutalg.errors import LayoutError
from layoutalg.files import write_whole
from layoutalg.fragments import Fragment

SCHEMA = {"name": "layoutalg.fragments", "version": 1}
COLUMNS = (
    "instruction", "operand", "dtype", "bits", "shape", "copies", "min_arch", "certificate",
    "lane", "register", "slot", "product", "row", "column",
)  # fmt: skip
_AXES = ("product", "row", "column")

Record = dict[str, Any]


def chosen(instructions: Iterable[str] | None = None) -> Iterator[Fragment]:
    """Yield the fragments of some instructions, in the order given; of all when None.

    Raises:
        LayoutError: no such instruction; the nearest are named.

    >>> [row.operand for row in chosen(["mma.m8n8k4.f64"])]
    ['A', 'B', 'C/D.f64']
    """
    for name in fragments.names() if instructions is None else dict.fromkeys(instructions):
        yield from fragments.rows(name)


def record(fragment: Fragment) -> Record:
    """Return one entry of the JSON, as this file describes it.

    >>> from layoutalg.fragments import get
    >>> entry = record(get("mma.m8n8k4.f64", "B"))
    >>> entry["axes"], entry["coords"][:5]
    (['row', 'column'], [[[0, 0]], [[1, 0]], [[2, 0]], [[3, 0]], [[0, 1]]])
    """
    certificate = fragment.certificate
    return {
        "instruction": fragment.instruction,
        "operand": fragment.operand,
        "dtype": fragment.dtype,
        "bits": fragment.bits,
        "shape": list(fragment.shape),
        "products": fragment.products,
        "lanes": fragment.lanes,
        "registers": fragment.registers,
        "register_bits": fragment.register_bits,
        "pack": fragment.pack,
        "copies": fragment.copies,
        "layout": str(fragment.layout),
        "min_arch": fragment.min_arch,
        "targets": list(fragment.targets),
        "source": fragment.source,
        "certificate": {"kind": certificate.kind, "statement": certificate.statement},
        "axes": list(_AXES[-len(fragment.tile) :]),
        "coords": fragment.holds.tolist(),
    }


def fragment_records(rows: Iterable[Fragment] | None = None) -> Iterator[Record]:
    """Yield the entries of the JSON: of some fragments, or of all when None.

    >>> [entry["operand"] for entry in fragment_records(chosen(["mma.m8n8k4.f64"]))]
    ['A', 'B', 'C/D.f64']
    """
    return map(record, chosen() if rows is None else rows)


def to_json(rows: Iterable[Fragment] | None = None) -> str:
    """Return some fragments as JSON, or all when None.

    >>> print(to_json(chosen(["mma.m8n8k4.f64"])).splitlines()[0])
    {"schema":{"name":"layoutalg.fragments","version":1},"fragments":[
    """
    entries = ",\n".join(map(_compact, fragment_records(rows)))
    return f'{{"schema":{_compact(SCHEMA)},"fragments":[\n{entries}\n]}}\n'


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def to_csv(rows: Iterable[Fragment] | None = None) -> str:
    """Return some fragments as CSV, or all when None.

    >>> print(to_csv(chosen(["mma.m16n8k16.f16"])).splitlines()[2])
    mma.m16n8k16.f16,A,f16,16,16x16,1,sm_80,measured on NVIDIA H200,0,0,1,0,0,1
    """
    lines = [",".join(COLUMNS)]
    for fragment in chosen() if rows is None else rows:
        head = (
            fragment.instruction,
            fragment.operand,
            fragment.dtype,
            fragment.bits,
            "x".join(map(str, fragment.shape)),
            fragment.copies,
            fragment.min_arch,
            fragment.certificate.summary,
        )
        start = ",".join(map(_cell, head))
        single = () if fragment.products > 1 else (0,)
        for lane, slots in enumerate(fragment.holds.tolist()):
            for slot, coordinate in enumerate(slots):
                cells = (lane, slot // fragment.pack, slot, *single, *coordinate)
                lines.append(",".join([start, *map(str, cells)]))
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    """Return a cell of a CSV: quoted where it has a comma."""
    text = str(value)
    return f'"{text}"' if "," in text else text


def from_json(text: str) -> tuple[Fragment, ...]:
    """Return the fragments that a JSON of :func:`to_json` lists, proved equal to what it says.

    Certificates and targets may be older than ours; every other key and table must be equal, and
    keys that we do not know are passed over.

    Raises:
        LayoutError: no such JSON, another version, or an entry that differs: the first is named.

    >>> text = to_json(chosen(["mma.m8n8k4.f64"]))
    >>> to_json(from_json(text)) == text
    True
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise LayoutError(f"fragments: the text must be JSON: {error}") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise LayoutError(f"fragments: the JSON must have the schema {SCHEMA}; got {schema}")
    entries = data.get("fragments")
    if not isinstance(entries, list):
        raise LayoutError(f"fragments: the JSON must have a list of fragments; got {entries!r}")
    return tuple(_equal(entry) for entry in entries)


def _equal(entry: Any) -> Fragment:
    """Return the fragment that an entry names, if all that it says is so."""
    if not isinstance(entry, dict) or not {"instruction", "operand"} <= set(entry):
        raise LayoutError(f"fragments: an entry must name instruction and operand; got {entry!r}")
    name = entry["instruction"], entry["operand"]
    fragment = next((row for row in fragments.rows(name[0]) if row.operand == name[1]), None)
    if fragment is None:
        have = ", ".join(fragments.operands(name[0]))
        raise LayoutError(f"fragments: {name[0]} has the operands {have}; got {name[1]!r}")
    for key, ours in record(fragment).items():
        if key in ("certificate", "targets", "coords"):
            continue
        if entry.get(key) != ours:
            raise LayoutError(
                f"fragments: {name[0]} {name[1]}: {key} must be {ours!r}; got {entry.get(key)!r}"
            )
    _compare(fragment, entry.get("coords"))
    return fragment


def _compare(fragment: Fragment, coords: Any) -> None:
    """Refuse a table that differs from the fragment's: the first slot is named."""
    name = f"fragments: {fragment.instruction} {fragment.operand}"
    ours = fragment.holds.tolist()
    if coords == ours:
        return
    lists = isinstance(coords, list) and all(isinstance(slots, list) for slots in coords)
    if not lists or [len(slots) for slots in coords] != [fragment.slots] * fragment.lanes:
        raise LayoutError(
            f"{name}: coords must be {fragment.lanes} lanes of {fragment.slots} slots"
        )
    lane, slot = next(
        (lane, slot)
        for lane in range(fragment.lanes)
        for slot in range(fragment.slots)
        if coords[lane][slot] != ours[lane][slot]
    )
    raise LayoutError(
        f"{name}: lane {lane} slot {slot} holds {ours[lane][slot]}; got {coords[lane][slot]}"
    )


def write(path: Path, rows: Iterable[Fragment] | None = None) -> None:
    """Write some fragments, or all when None, whole or not at all.

    Args:
        path: the file; its suffix says what is written, ``.json`` or ``.csv``.
        rows: the fragments.

    Raises:
        LayoutError: another suffix.
        OSError: the folder is not there, the disk is full.
    """
    forms = {".json": to_json, ".csv": to_csv}
    if path.suffix not in forms:
        raise LayoutError(
            f"export: the suffix of the file says what is written; got {path.suffix!r} in "
            f"{str(path)!r}. These fit: {', '.join(forms)}"
        )
    write_whole(path, forms[path.suffix](rows).encode())
