"""The ``layoutalg`` command: the roof over both packages."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from layoutalg import LayoutError, fragments, parse
from layoutalg.export import chosen as choose
from layoutalg.export import to_json as export_json
from layoutalg.export import write as write_export
from layoutalg.files import write_whole
from layoutalg.targets import written
from lowering.assemble import AssembleError
from lowering.dispatch import DispatchError


class Commands(click.Group):
    """A group whose commands report our errors in a line or two, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; exit with 2 on wrong input, 1 on a failed check."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (LayoutError, DispatchError, AssembleError, OSError) as error:
            click.echo(f"layoutalg: {error}", err=True)
            ctx.exit(2)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="layoutalg")
def main() -> None:
    """Layouts of GPU tensor cores: derive, draw, lower and verify them."""


def _shape(text: str | None, option: str = "--shape") -> tuple[int, ...] | None:
    """Read ``16,8`` or ``16x8``."""
    if text is None:
        return None
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise LayoutError(f"{option}: must look like 16,8; got {text!r}")
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
        if subject is not None or shape is not None:
            raise LayoutError("draw: --all redraws the gallery; it takes no instruction or shape")
        for path in gallery.render(output or Path("figures")):
            click.echo(path)
        return
    if subject is None:
        raise LayoutError("draw: name an instruction or write a layout; or use --all")
    path = output or Path("lane_map.svg")
    if subject in fragments.names():
        if shape is not None:
            raise LayoutError(f"draw: --shape is for layouts; {subject} has its own shape")
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
@click.option("--list", "listed", is_flag=True, help="Print instruction × target, and counts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every lane.")
def fragment(
    instruction: str | None, operand: str | None, lane: int | None, listed: bool, as_json: bool
) -> None:
    """List the fragments, or print one: layoutalg fragment mma.m16n8k16.f16 A --lane 5."""
    if listed:
        if instruction is not None or lane is not None:
            raise LayoutError("fragment: --list is of all instructions; it takes no other choice")
        click.echo(_targets_json() if as_json else _targets_text())
        return
    if instruction is None:
        if lane is not None:
            raise LayoutError("fragment: --lane is of one instruction; name it")
        known = {name: fragments.operands(name) for name in fragments.names()}
        lines = [f"{name:<20} {' '.join(each)}" for name, each in known.items()]
        click.echo(json.dumps(known, indent=1) if as_json else "\n".join(lines))
        return
    names = fragments.operands(instruction) if operand is None else (operand,)
    chosen = [fragments.get(instruction, each) for each in names]
    if as_json:
        if lane is not None:
            raise LayoutError("fragment: --json has every lane; it takes no --lane")
        click.echo(export_json(chosen), nl=False)
        return
    for row in chosen:
        if lane is not None and not 0 <= lane < row.lanes:
            raise LayoutError(f"--lane: must lie in 0..{row.lanes - 1}; got {lane}")
    for row in chosen:
        click.echo(f"{row.instruction} {row.operand}")
        _rows(_facts(row))
        if lane is not None:
            axes = ("product", "row", "col")[-len(row.tile) :]
            for slot, coordinate in enumerate(row.holds[lane].tolist()):
                place = (f"{axis} {at}" for axis, at in zip(axes, coordinate, strict=True))
                click.echo(f"    slot {slot}: {', '.join(place)}")


def _targets_text() -> str:
    """Return instruction × target as text, and the counts."""
    from lowering.targets_table import table

    return f"{table().text()}\n{fragments.counts()}"


def _targets_json() -> str:
    """Return instruction × target as JSON, and the counts."""
    from lowering.targets_table import table

    found, counts = table(), fragments.counts()
    return json.dumps(
        {
            "source": found.source,
            "targets": found.targets,
            "instructions": dict(found.lines()),
            "counts": {
                "instructions": counts.instructions,
                "rows": counts.rows,
                "certified": dict(counts.certified),
            },
        },
        indent=1,
        ensure_ascii=False,
    )


def _facts(row: fragments.Fragment) -> list[tuple[str, Any]]:
    """Return what is said of a fragment."""
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

    counts = _shape(tiles, "--tiles") or ()
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
@click.option(
    "--cases",
    "group",
    type=click.Choice(["all", "standard", "scopes", "slices", "staged", "family", "scaled"]),
    default="all",
    show_default=True,
    help="Which programs.",
)
@click.option("--machine", type=click.Choice(["device", "simulator"]), help="Default: the GPU.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random inputs.")
@click.option("--tolerance", type=float, help="In place of the bound derived for each case.")
def verify(group: str, machine: str | None, seed: int, tolerance: float | None) -> None:
    """Run gemm programs and whole kernels against a float64 product and print a table.

    standard: the seed's 44 (tilings, dtypes, beta, transposes). scopes: several warps. slices:
    regions of larger buffers. staged: global, swizzled shared memory, ldmatrix, gemm, global. all:
    these four. family: the other mma, sparse ones too, one case each. scaled: the block-scaled mma,
    which sm_120a has: on the simulator.

    Negative controls run along: the columns zeros, a1/a2, k step, extras give their errors, and a
    row whose bound would let one pass says VACUOUS. A k permutation common to A and B shows in no
    product.
    """
    from lowering.verification import CASES, Control, all_cases, family_cases, scaled_cases
    from lowering.verification import verify as run_verify

    def progress(cases: Sequence[Any]) -> Iterator[Any]:
        with click.progressbar(cases, label="verify", file=sys.stderr) as bar:
            yield from bar

    groups = CASES | {"all": all_cases, "family": family_cases, "scaled": scaled_cases}
    chosen = groups[group]()
    results = run_verify(chosen, machine, seed, progress, tolerance)
    width = max(len(result.case) for result in results)
    names = ("zeros", "a1/a2", "k step", "extras", "common k")
    click.echo(f"{'case':<{width}}  mma  error     bound     {'  '.join(f'{n:<8}' for n in names)}")
    for result in results:
        found: dict[str, Control] = {control.name: control for control in result.controls}
        errors = (f"{found[name].error:.2e}" if name in found else "-" for name in names)
        columns = "  ".join(f"{error:<8}" for error in errors)
        click.echo(
            f"{result.case:<{width}}  {result.mma:>3}  {result.error:.2e}  {result.tolerance:.2e}  "
            f"{columns}  {result.verdict}"
        )
    wrong = [result for result in results if not result.ok]
    click.echo(
        f"{len(results) - len(wrong)} of {len(results)} within a bound that no control comes near, "
        f"on the {results[0].machine}"
    )
    if wrong:
        sys.exit(1)


def _pairs(values: Sequence[str], option: str) -> dict[str, str]:
    """Read ``NAME=VALUE`` options."""
    pairs = {}
    for value in values:
        name, sign, rest = value.partition("=")
        if not sign or not name.strip() or not rest.strip():
            raise LayoutError(f"{option}: must look like NAME=VALUE; got {value!r}")
        pairs[name.strip()] = rest.strip()
    return pairs


@main.command()
@click.argument("instruction", required=False)
@click.option("--all", "everything", is_flag=True, help="Probe every instruction listed.")
@click.option("--family", is_flag=True, help="List, or with --all probe, every mma too.")
@click.option("--machine", type=click.Choice(["device", "simulator"]), help="Default: the GPU.")
@click.option(
    "--layout", "layouts", multiple=True, help="A claim to test, such as A='S[(2,8,4,2):…]'."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write certificates (JSON).")
def probe(
    instruction: str | None,
    everything: bool,
    family: bool,
    machine: str | None,
    layouts: tuple[str, ...],
    output: Path | None,
) -> None:
    """Measure an instruction on the machine alone and compare it with its fragments.

    Without a name the instructions are listed. The certificate says what was measured and what is
    convention, and refutes known wrong claims. Exit code 1 if a claim given is refuted, or a wrong
    one gets through.
    """
    from lowering import probing

    listed = dict.fromkeys((*probing.names(), *probing.family() * family))
    if instruction is None and not everything:
        click.echo("\n".join(listed))
        return
    claims = {role: parse(text) for role, text in _pairs(layouts, "--layout").items()}
    names = tuple(listed) if instruction is None else (instruction,)
    with click.progressbar(names, label="probe", file=sys.stderr) as bar:
        certificates = [probing.probe(name, machine, claims) for name in bar]
    click.echo("\n\n".join(certificate.report() for certificate in certificates))
    if output is not None:
        write_whole(output, probing.to_json(certificates).encode())
    if any(certificate.verdict != "agrees" for certificate in certificates):
        sys.exit(1)


@main.command()
@click.argument("output", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--instruction", "names", multiple=True, help="Only this one (repeatable).")
def export(output: Path | None, names: tuple[str, ...]) -> None:
    r"""Write the fragment table as data: instruction, operand, lane, slot -> row, column.

    The suffix of OUTPUT says what is written; without it, or for -, JSON goes to standard output.

    \b
    layoutalg export fragments.json
    layoutalg export d.csv --instruction mma.m16n8k16.f16 --instruction wgmma.m64n128
    """
    chosen = tuple(choose(names or None))
    if output is None or str(output) == "-":
        click.echo(export_json(chosen), nl=False)
    else:
        write_export(output, chosen)
        click.echo(output)


@main.command()
@click.argument("sources", nargs=-1)
@click.option("--layout", "layouts", multiple=True, help="Where elements are: A='S[(2,8,4,2):…]'.")
@click.option("--held", multiple=True, help="What a register holds in lane 0: a1=8,0.")
@click.option("--arch", help="A target to check, such as sm_80.")
def lint(
    sources: tuple[str, ...], layouts: tuple[str, ...], held: tuple[str, ...], arch: str | None
) -> None:
    r"""Find registers in the wrong place of mma, ldmatrix, stmatrix and movmatrix.

    SOURCES are files, or PTX itself; without any, or for -, standard input is read.

    \b
    layoutalg lint kernel.cu
    layoutalg lint 'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
                    {d0,d1,d2,d3}, {a0,a2,a1,a3}, {b0,b1}, {d0,d1,d2,d3};'
    """
    from lowering.linting import lint as run_lint
    from lowering.linting import statements

    claims = {role: parse(text) for role, text in _pairs(layouts, "--layout").items()}
    elements = {}
    for name, text in _pairs(held, "--held").items():
        extents = _shape(text)
        if extents is None or len(extents) != 2:
            raise LayoutError(f"--held: must look like a1=8,0; got {name}={text}")
        elements[name] = (extents[0], extents[1])
    errors = count = 0
    for source in sources or ("-",):
        prefix, text = "", source
        if source == "-":
            text = sys.stdin.read()
        elif "\n" not in source and Path(source).is_file():
            prefix, text = f"{source}:", Path(source).read_text(encoding="utf-8")
        found = statements(text)
        if not found and not prefix and source != "-":
            raise LayoutError(f"lint: no mma, ldmatrix, stmatrix or movmatrix in {source!r}")
        count += len(found)
        for finding in run_lint(text, claims, elements, arch):
            errors += finding.severity == "error"
            click.echo(f"{prefix}{finding}")
    click.echo(f"{count} instructions, {errors} errors")
    if errors:
        sys.exit(1)


@main.command()
@click.option("--size", "sizes", type=int, multiple=True, help="M = N = K; may be repeated.")
@click.option(
    "--dtype", type=click.Choice(["float16", "bfloat16"]), default="float16", show_default=True
)
@click.option("--tune", is_flag=True, help="Search the configs of each size first, and keep them.")
@click.option("--rounds", type=click.IntRange(3), default=12, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the record (JSON).")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw TFLOP/s over size.")
def bench(
    sizes: tuple[int, ...],
    dtype: str,
    tune: bool,
    rounds: int,
    output: Path | None,
    plot: Path | None,
) -> None:
    """Measure matmul beside cuBLAS and the ceiling of mma.sync, in turns, in one run.

    cuBLAS takes part where torch is installed. Rates are medians, by events, on rotating random
    inputs; ratios of one run say more than rates, which move with the heat of the GPU.
    """
    from lowering import benching
    from lowering.launching import device

    on, rows = device(0), []
    for size in sizes or (1024, 2048, 4096, 8192):
        if tune:
            with click.progressbar(length=0, label=f"tune {size}", file=sys.stderr) as bar:

                def shown(configs: Sequence[Any], bar: Any = bar) -> Iterator[Any]:
                    bar.length = len(configs)
                    for config in configs:
                        yield config
                        bar.update(1)

                benching.tune(size, dtype, on, shown)
        rows.append(benching.measured(size, dtype, on, rounds=rounds))
    click.echo(f"{on.name}, {on.arch}, {dtype}, {rounds} rounds; TFLOP/s")
    click.echo(benching.table(rows))
    if output is not None:
        record = {"device": on.name, "dtype": dtype, "rows": [row.as_dict() for row in rows]}
        output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if plot is not None:
        from layoutalg.draw.rates import rates

        points = {
            name: [(row.size, rate) for row in rows if (rate := row.rate(name)) is not None]
            for name in (benching.OURS, benching.CUBLAS, benching.CEILING)
        }
        ceilings = {benching.CEILING: points.pop(benching.CEILING)}
        kept = {name: found for name, found in points.items() if found}
        rates(kept, ceilings, f"{dtype} matmul by mma.sync, {on.name}", plot)
        click.echo(plot)
