"""``fragment``, ``export``, ``lower`` and ``lint``: instructions, and programs that use them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from layoutalg import LayoutError, fragments
from layoutalg.fragments.export import to_json as export_json
from layoutalg.fragments.export import write as write_export
from layoutalg.fragments.targets import written
from layoutalg.sizes.budget import UNROLLED, check_budget
from lowering.cli.arguments import (
    command,
    contents,
    echo_json,
    echo_rows,
    is_name,
    json_option,
    json_text,
    layouts_of,
    numbers,
    one_input,
    pairs,
    progress,
)

if TYPE_CHECKING:
    from lowering.programs.program import Program


@command(
    "layoutalg fragment mma.m16n8k16.f16 A --lane 5",
    "layoutalg fragment mma.m16n8k8.f16 --json",
)
@click.argument("instruction", required=False)
@click.argument("operand", required=False)
@click.option("--lane", type=int, help="Print what one lane holds.")
@click.option("--list", "listed", is_flag=True, help="Print instruction × target, and counts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every lane.")
def fragment(
    instruction: str | None, operand: str | None, lane: int | None, listed: bool, as_json: bool
) -> None:
    """List the fragments, or print those of one instruction."""
    if listed:
        if instruction is not None or lane is not None:
            raise LayoutError("fragment: --list prints all instructions: leave the others out")
        _targets(as_json)
        return
    if instruction is None:
        if lane is not None:
            raise LayoutError("fragment: --lane needs the name of an instruction")
        known = {name: fragments.operands(name) for name in fragments.names()}
        if as_json:
            echo_json(known)
            return
        for name, each in known.items():
            click.echo(f"{name:<20} {' '.join(each)}")
        return
    names = fragments.operands(instruction) if operand is None else (operand,)
    chosen = [fragments.get(instruction, each) for each in names]
    if as_json:
        if lane is not None:
            raise LayoutError("fragment: --json prints every lane: give no --lane")
        click.echo(export_json(chosen), nl=False)
        return
    for row in chosen:
        if lane is not None and not 0 <= lane < row.lanes:
            raise LayoutError(f"--lane: must lie in 0..{row.lanes - 1}; got {lane}")
    for row in chosen:
        click.echo(f"{row.instruction} {row.operand}")
        echo_rows(_facts(row))
        if lane is not None:
            axes = ("product", "row", "col")[-len(row.tile) :]
            for slot, coordinate in enumerate(row.holds[lane].tolist()):
                place = (f"{axis} {at}" for axis, at in zip(axes, coordinate, strict=True))
                click.echo(f"    slot {slot}: {', '.join(place)}")


def _targets(as_json: bool) -> None:
    """Print instruction × target, and the counts."""
    from lowering.audit.target_matrix import table

    with progress(fragments.names(), "prove") as bar:
        for name in bar:
            fragments.rows(name)
    found, counts = table(), fragments.counts()
    if not as_json:
        click.echo(f"{found.text()}\n{counts}")
        return
    echo_json(
        {
            "source": found.source,
            "targets": found.targets,
            "instructions": dict(found.lines()),
            "counts": {
                "instructions": counts.instructions,
                "rows": counts.rows,
                "certified": dict(counts.certified),
            },
        }
    )


def _facts(row: fragments.Fragment) -> list[tuple[str, Any]]:
    """Return the rows that are printed for a fragment."""
    facts: list[tuple[str, Any]] = [("layout", row.layout), ("rule", row.formula)]
    if row.products > 1:
        facts.append(("products", f"{row.products} per instruction, {row.shape} each"))
    registers = f"{row.registers} x {row.register_bits} bits, {row.pack} per register"
    facts.append(("registers", registers))
    if row.copies > 1:
        facts.append(("copies", f"{row.copies} lanes hold each element alike"))
    facts.append(("source", f"{row.source}; {written(row.min_arch)}"))
    facts.append(("certificate", row.certificate.statement))
    return facts


@command(
    "layoutalg export d.csv --instruction mma.m16n8k16.f16 --instruction wgmma.m64n128",
    "layoutalg export --instruction mma.m8n8k4.f64 > fragments.json",
)
@click.argument("output", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--instruction", "names", multiple=True, help="Only this one (repeatable).")
def export(output: Path | None, names: tuple[str, ...]) -> None:
    """Write the fragment table as data, JSON or CSV.

    Instruction, operand, lane, slot -> row, column. The suffix of OUTPUT says what is written;
    without it, or for -, JSON goes to standard output. Without --instruction, all are written.
    """
    with progress(names or fragments.names(), "prove") as bar:
        chosen = tuple(row for name in dict.fromkeys(bar) for row in fragments.rows(name))
    if output is None or str(output) == "-":
        click.echo(export_json(chosen), nl=False)
    else:
        write_export(output, chosen)
        click.echo(output)


@command(
    "layoutalg lower",
    "layoutalg lower mma.m16n8k16.bf16 --tiles 2,2,4 --beta 1",
    "layoutalg lower mma.m16n8k8.f16 --as ptx --arch sm_75",
)
@click.argument("instruction", default="mma.m16n8k16.f16")
@click.option("--tiles", default="1,1,1", show_default=True, help="Mt,Nt,Kt instructions.")
@click.option("--beta", type=click.IntRange(0, 1), default=0, show_default=True)
@click.option(
    "--as",
    "form",
    type=click.Choice(["script", "cuda", "numba", "ptx", "json"]),
    default="script",
    show_default=True,
)
@click.option("--arch", default="sm_90", show_default=True, help="Target of --as ptx.")
def lower(instruction: str, tiles: str, beta: int, form: str, arch: str) -> None:
    """Print the lowered gemm of an instruction's fragments, tiled."""
    from lowering.verification.cases import Case

    counts = numbers(tiles, "--tiles")
    if len(counts) != 3:
        raise LayoutError(f"--tiles: needs Mt,Nt,Kt; got {tiles!r}")
    check_budget("--tiles", math.prod(counts), UNROLLED, "instructions", "A kernel loops over more")
    program = Case(instruction, (counts[0], counts[1], counts[2]), beta).program()
    readers: dict[str, Callable[[], str]] = {
        "script": program.script,
        "cuda": program.cuda_source,
        "numba": program.kernel_source,
        "ptx": lambda: program.ptx(arch),
        "json": lambda: json_text(_program(program)),
    }
    click.echo(readers[form]())


def _nothing_to_lint(source: str) -> str:
    """Return the message for an argument that is no file and has no statement that lint reads."""
    fits = "a file, PTX with an mma, ldmatrix, stmatrix or movmatrix, or - for standard input"
    if len(source) < 256 and Path(source).is_dir():
        return f"lint: {source} is a folder; give {fits}"
    if is_name(source) and ";" not in source:
        return f"lint: no such file: {source!r}; give {fits}"
    return f"lint: no statement that is checked in {source!r}; give {fits}"


def _program(program: Program) -> dict[str, Any]:
    """Return a program as plain lists and dicts."""
    return {
        "instruction": program.instruction.ptx,
        "registers": program.registers,
        "steps": program.steps,
    }


@command(
    "layoutalg lower --as cuda > kernel.cu",
    "layoutalg lint kernel.cu",
    "echo 'movmatrix.sync.aligned.m8n8.trans.b16 d, a;' | layoutalg lint - --json",
)
@click.argument("sources", nargs=-1)
@click.option("--layout", "layouts", multiple=True, help="Of an operand: A='S[(2,8,4,2):…]'.")
@click.option("--held", multiple=True, help="Element of a register in lane 0: a1=8,0.")
@click.option("--arch", help="A target to check, such as sm_80.")
@json_option
def lint(
    sources: tuple[str, ...],
    layouts: tuple[str, ...],
    held: tuple[str, ...],
    arch: str | None,
    as_json: bool,
) -> None:
    """Find registers in the wrong order in mma, ldmatrix, and so on.

    In stmatrix and movmatrix, too. SOURCES are files, or PTX itself; without any, or for -,
    standard input is read.
    """
    from lowering.audit.linter import lint as run_lint
    from lowering.audit.linter import statements

    one_input(*sources)
    claims = layouts_of(layouts)
    elements = {}
    for name, text in pairs(held, "--held").items():
        row, *column = numbers(text, "--held", "a1=8,0")
        if len(column) != 1:
            raise LayoutError(f"--held: must look like a1=8,0; got {name}={text}")
        elements[name] = (row, column[0])
    count, found = 0, []
    for source in sources or ("-",):
        text, file = contents(source)
        read = statements(text)
        if not read and not file:
            raise LayoutError(_nothing_to_lint(source))
        count += len(read)
        found += [(file, finding) for finding in run_lint(text, claims, elements, arch)]
    errors = sum(finding.severity == "error" for _, finding in found)
    if as_json:
        listed = [{"file": file} | asdict(finding) for file, finding in found]
        echo_json({"instructions": count, "errors": errors, "findings": listed})
    else:
        for file, finding in found:
            click.echo(f"{file}:{finding}" if file not in ("", "-") else finding)
        click.echo(f"{count} instructions, {errors} errors")
    if errors:
        sys.exit(1)
