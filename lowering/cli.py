"""The ``layoutalg`` command: the roof over both packages."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from layoutalg import LayoutError, fragments, parse
from lowering.dispatch import DispatchError


class Commands(click.Group):
    """A group whose commands report our errors in a line or two, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; exit with 2 on wrong input, 1 on a failed check."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (LayoutError, DispatchError, OSError) as error:
            click.echo(f"layoutalg: {error}", err=True)
            ctx.exit(2)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="layoutalg")
def main() -> None:
    """Layouts of GPU tensor cores: derive, draw, lower and verify them."""


def _shape(text: str | None) -> tuple[int, ...] | None:
    """Read ``16,8`` or ``16x8``."""
    if text is None:
        return None
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise LayoutError(f"--shape: must look like 16,8; got {text!r}")
    return tuple(int(part) for part in parts)


def _rows(rows: Sequence[tuple[str, Any]]) -> None:
    """Print a table of two columns."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        for index, line in enumerate(str(value).splitlines() or [""]):
            click.echo(f"  {name if index == 0 else '':<{width}}  {line}")


@main.command()
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("figures"),
    show_default=True,
    help="Folder for the lane maps.",
)
def demo(output: Path) -> None:
    """Do the main job: derive, lower, run, prove and draw one m16n8k16.

    The program runs on the GPU where there is one, else on the NumPy warp.
    """
    from lowering.verification import Case, check, machine_name

    began = time.perf_counter()
    name = "mma.m16n8k16.f16"
    program = Case(name, (1, 1, 1)).program()
    machine = machine_name()
    result = check(program, "demo", machine, tolerance=1e-6)
    where = "GPU (numba.cuda, inline PTX)" if machine == "device" else "NumPy warp (no CUDA device)"
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
    rows.append(("time", f"{time.perf_counter() - began:.1f} s"))
    click.echo(f"D[16,8] = A[16,16] · B[16,8], one warp\n\n{program.script()}\n")
    _rows(rows)
    if not result.ok:
        click.echo("layoutalg: the product is wrong", err=True)
        sys.exit(1)


@main.command()
@click.argument("layout")
@click.option("--shape", help="Logical shape, such as 16,8: prints the inverse map too.")
@click.option("--target", type=click.Choice(["cuda"]), help="Fuse the axes that are one in CUDA.")
def show(layout: str, shape: str | None, target: str | None) -> None:
    """Describe a layout: layoutalg show 'S[(2,8,4,2):(2,4@laneid,1@laneid,1)]' --shape 16,8."""
    parsed = parse(layout)
    scope = parsed.get_scope()
    rows: list[tuple[str, Any]] = [
        ("layout", parsed),
        ("canonical", parsed.canonicalize(target)),
        ("elements", parsed.size()),
        ("span in memory", parsed.span()),
        ("scope", " in ".join(scope) if scope else "memory only"),
    ]
    extents = _shape(shape)
    if extents is not None:
        rows.append((f"over {extents}", parsed.inverse(extents)))
    _rows(rows)


@main.command()
@click.argument("subject", required=False)
@click.option("--shape", help="Logical shape of a layout, such as 16,8.")
@click.option("--lane", type=int, default=5, show_default=True, help="The lane to outline.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File (.svg .png .pdf).")
@click.option("--all", "everything", is_flag=True, help="Redraw the gallery into --output.")
def draw(
    subject: str | None, shape: str | None, lane: int, output: Path | None, everything: bool
) -> None:
    r"""Draw an instruction's operands or a layout.

    \b
    layoutalg draw mma.m16n8k16.f16 -o triple.svg
    layoutalg draw 'S[(8,4):(4@laneid,1@laneid)]' --shape 8,4 -o map.png
    layoutalg draw --all -o figures
    """
    from layoutalg import draw as drawing
    from layoutalg.draw import gallery

    if everything:
        for path in gallery.render(output or Path("figures")):
            click.echo(path)
        return
    if subject is None:
        raise LayoutError("draw: name an instruction or write a layout; or use --all")
    path = output or Path("lane_map.svg")
    if subject in fragments.names():
        drawing.operands(subject, lane=lane, path=path)
    else:
        extents = _shape(shape)
        layout = parse(subject)
        if extents is None:
            raise LayoutError(f"draw: give the shape of {layout}, such as --shape 16,8")
        drawing.lane_map(layout, extents, lane=lane, path=path)
    click.echo(path)


@main.command()
@click.argument("instruction", required=False)
@click.argument("operand", required=False)
@click.option("--lane", type=int, help="Print what one lane holds.")
def fragment(instruction: str | None, operand: str | None, lane: int | None) -> None:
    """List the fragments, or print one: layoutalg fragment mma.m16n8k16.f16 A --lane 5."""
    if instruction is None:
        for name in fragments.names():
            click.echo(f"{name:<20} {' '.join(fragments.operands(name))}")
        return
    for each in fragments.operands(instruction) if operand is None else (operand,):
        row = fragments.get(instruction, each)
        registers = f"{row.registers} x {row.register_bits} bits, {row.pack} per register"
        click.echo(f"{row.instruction} {row.operand}")
        _rows(
            [
                ("layout", row.layout),
                ("rule", row.formula),
                ("registers", registers),
                ("source", f"{row.source}; {row.min_arch} and newer"),
            ]
        )
        if lane is not None:
            if not 0 <= lane < row.lanes:
                raise LayoutError(f"--lane: must lie in 0..{row.lanes - 1}; got {lane}")
            for slot, (i, j) in enumerate(row.coords[lane].tolist()):
                click.echo(f"    slot {slot}: row {i}, col {j}")


@main.command()
@click.argument("instruction", default="mma.m16n8k16.f16")
@click.option("--tiles", default="1,1,1", show_default=True, help="Mt,Nt,Kt instructions.")
@click.option("--beta", type=click.IntRange(0, 1), default=0, show_default=True)
@click.option(
    "--as",
    "form",
    type=click.Choice(["script", "cuda", "numba", "ptx"]),
    default="script",
    show_default=True,
)
@click.option("--arch", default="sm_90", show_default=True, help="Target of --as ptx.")
def lower(instruction: str, tiles: str, beta: int, form: str, arch: str) -> None:
    """Print the lowered gemm of one instruction's fragments, tiled."""
    from lowering.verification import Case

    counts = _shape(tiles) or ()
    if len(counts) != 3:
        raise LayoutError(f"--tiles: needs Mt,Nt,Kt; got {tiles!r}")
    program = Case(instruction, (counts[0], counts[1], counts[2]), beta).program()
    readers: dict[str, Callable[[], str]] = {
        "script": program.script,
        "cuda": program.cuda_source,
        "numba": program.kernel_source,
        "ptx": lambda: program.ptx(arch),
    }
    click.echo(readers[form]())


@main.command()
@click.option("--machine", type=click.Choice(["device", "simulator"]), help="Default: the GPU.")
@click.option("--seed", type=int, default=0, show_default=True)
def verify(machine: str | None, seed: int) -> None:
    """Run the seed's 44 gemm programs against a float64 product and print a table."""
    from lowering.verification import Case
    from lowering.verification import verify as run_verify

    def progress(cases: Sequence[Case]) -> Iterator[Case]:
        with click.progressbar(cases, label="verify", file=sys.stderr) as bar:
            yield from bar

    results = run_verify(machine=machine, seed=seed, progress=progress)
    width = max(len(result.case) for result in results)
    click.echo(f"{'case':<{width}}  mma  error     bound   machine")
    for result in results:
        mark = "ok" if result.ok else "WRONG"
        click.echo(
            f"{result.case:<{width}}  {result.mma:>3}  {result.error:.2e}  "
            f"{result.tolerance:.0e}  {result.machine}  {mark}"
        )
    wrong = [result for result in results if not result.ok]
    click.echo(f"{len(results) - len(wrong)} of {len(results)} within their bound")
    if wrong:
        sys.exit(1)
