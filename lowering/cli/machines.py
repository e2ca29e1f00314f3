"""``demo``, ``verify`` and ``probe``: commands that run programs, on the GPU or the simulator."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from layoutalg import fragments
from layoutalg.files import write_whole
from lowering.cli.arguments import (
    command,
    echo_json,
    echo_rows,
    json_option,
    layouts_of,
    machine_option,
    progress,
)

if TYPE_CHECKING:
    from lowering.verification.checker import Result


@command(
    "layoutalg demo",
    "layoutalg demo --output maps --json",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("figures"),
    show_default=True,
    help="Folder for the lane maps.",
)
@json_option
def demo(output: Path, as_json: bool) -> None:
    """Derive, lower, run, verify and draw one gemm.

    One m16n8k16, on the GPU where there is one, else on the simulator.
    """
    from lowering.isa.gpu_extra import INSTALL, installed
    from lowering.verification.cases import Case
    from lowering.verification.checker import check, machine_name

    began = time.perf_counter()
    name = "mma.m16n8k16.f16"
    program = Case(name, (1, 1, 1)).program()
    machine = machine_name()
    result = check(program, "demo", machine, tolerance=1e-6)
    where = "GPU (CUDA C++, NVRTC)"
    if machine != "device":
        why = "no CUDA device" if installed() else f"for a GPU: {INSTALL}"
        where = f"NumPy warp ({why})"
    rows: list[tuple[str, Any]] = [
        (f"{role} fragment", f"{f.layout}   {f.formula}")
        for role, f in ((role, fragments.get(name, role)) for role in "DAB")
    ]
    rows += [
        ("instruction", program.instruction.ptx),
        ("mma issued", len(program.mma)),
        ("ran on", where),
        ("‖out − ref‖/‖ref‖", f"{result.error:.2e}  (bound {result.tolerance:.0e}, float64)"),
    ]
    from layoutalg import draw

    output.mkdir(parents=True, exist_ok=True)
    paths = [output / f"{name}{suffix}" for suffix in (".svg", ".png")]
    for path in paths:
        draw.operands(name, lane=5, path=path)
    rows.append(("lane maps", ", ".join(map(str, paths))))
    seconds = time.perf_counter() - began
    rows.append(("time", f"{seconds:.1f} s"))
    if as_json:
        echo_json(_row(result) | {"maps": list(map(str, paths)), "seconds": round(seconds, 3)})
    else:
        click.echo(f"D[16,8] = A[16,16] · B[16,8], one warp\n\n{program.script()}\n")
        echo_rows(rows)
    if not result.ok:
        click.echo("layoutalg: the product is wrong", err=True)
        sys.exit(1)


@command(
    "layoutalg verify --cases scopes --machine simulator",
    "layoutalg verify --cases slices --machine simulator --json",
)
@click.option(
    "--cases",
    "group",
    type=click.Choice(["all", "standard", "scopes", "slices", "staged", "family", "scaled"]),
    default="all",
    show_default=True,
    help="Which programs.",
)
@machine_option
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random inputs.")
@click.option("--tolerance", type=float, help="Replaces the bound derived for each case.")
@json_option
def verify(
    group: str, machine: str | None, seed: int, tolerance: float | None, as_json: bool
) -> None:
    """Compare gemm programs with a float64 product, print a table.

    standard: tilings, dtypes, beta, transposes. scopes: several warps. slices: regions of larger
    buffers. staged: global, swizzled shared memory, ldmatrix, gemm, global. all: these four.
    family: the other mma, sparse ones too, one case each. scaled: the block-scaled mma of sm_120a,
    on the simulator.

    The columns zeros, a1/a2, k step and extras are the errors of negative controls; a row whose
    bound would accept one says VACUOUS. No product shows a permutation of k common to A and B.
    """
    from lowering.verification.cases import CASES, all_cases, family_cases, scaled_cases
    from lowering.verification.checker import verify as run_verify

    def shown(cases: Sequence[Any]) -> Iterator[Any]:
        with progress(cases, "verify") as bar:
            yield from bar

    groups = CASES | {"all": all_cases, "family": family_cases, "scaled": scaled_cases}
    chosen = groups[group]()
    results = run_verify(chosen, machine, seed, shown, tolerance)
    if as_json:
        echo_json([_row(result) for result in results])
    else:
        _table(results)
    if not all(result.ok for result in results):
        sys.exit(1)


def _row(result: Result) -> dict[str, Any]:
    """Return one result as plain lists and dicts; infinity becomes text, which JSON has."""
    error = result.error if math.isfinite(result.error) else str(result.error)
    return result.as_dict() | {"error": error, "verdict": result.verdict}


def _table(results: Sequence[Result]) -> None:
    """Print a line per case, and how many pass."""
    width = max(len(result.case) for result in results)
    names = ("zeros", "a1/a2", "k step", "extras", "common k")
    click.echo(f"{'case':<{width}}  mma  error     bound     {'  '.join(f'{n:<8}' for n in names)}")
    for result in results:
        found = {control.name: control for control in result.controls}
        errors = (f"{found[name].error:.2e}" if name in found else "-" for name in names)
        columns = "  ".join(f"{error:<8}" for error in errors)
        verdict = click.style(result.verdict, fg="green" if result.ok else "red")
        click.echo(
            f"{result.case:<{width}}  {result.mma:>3}  {result.error:.2e}  {result.tolerance:.2e}  "
            f"{columns}  {verdict}"
        )
    click.echo(
        f"{sum(result.ok for result in results)} of {len(results)} within a bound that no control "
        f"comes near, on the {results[0].machine}"
    )


@command(
    "layoutalg probe",
    "layoutalg probe mma.m16n8k8.f16 --machine simulator",
    "layoutalg probe movmatrix.m8n8.trans.b16 --machine simulator --json",
)
@click.argument("instruction", required=False)
@click.option("--all", "everything", is_flag=True, help="Probe every instruction listed.")
@click.option("--family", is_flag=True, help="List, or with --all probe, every mma too.")
@machine_option
@click.option("--layout", "layouts", multiple=True, help="A claim to test: A='S[(2,8,4,2):…]'.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write certificates (JSON).")
@json_option
def probe(
    instruction: str | None,
    everything: bool,
    family: bool,
    machine: str | None,
    layouts: tuple[str, ...],
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure an instruction and compare with its fragments.

    Without a name the instructions are listed. The certificate says what was measured and what is
    convention, and refutes known wrong claims. Exit code 1 if a given claim is refuted, or a known
    wrong one is not.
    """
    from lowering.probing import prober
    from lowering.probing.record import to_json

    listed = prober.names(family)
    if instruction is None and not everything:
        if as_json:
            echo_json(list(listed))
        else:
            click.echo("\n".join(listed))
        return
    claims = layouts_of(layouts)
    names = listed if instruction is None else (instruction,)
    with progress(names, "probe") as bar:
        certificates = [prober.probe(name, machine, claims) for name in bar]
    if as_json:
        click.echo(to_json(certificates), nl=False)
    else:
        click.echo("\n\n".join(certificate.report() for certificate in certificates))
    if output is not None:
        write_whole(output, to_json(certificates).encode())
    if any(certificate.verdict != "agrees" for certificate in certificates):
        sys.exit(1)
