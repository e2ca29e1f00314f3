"""``bench``: the throughput of matmul on a GPU, beside cuBLAS and the peak of the instruction."""

from __future__ import annotations

import datetime
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from layoutalg import LayoutError
from layoutalg.files import write_whole
from lowering.cli.arguments import command, given_options


@command(
    "layoutalg bench --size 4096 --size 8192 -o rates.json",
    "layoutalg bench --dtype bfloat16 --tune --plot rates.svg",
    "layoutalg bench --record rates.json --plot rates.svg",
)
@click.option("--size", "sizes", type=int, multiple=True, help="M = N = K; may be repeated.")
@click.option(
    "--dtype",
    type=click.Choice(["float16", "f16", "bfloat16", "bf16"]),
    default="float16",
    show_default=True,
)
@click.option("--tune", is_flag=True, help="Search the configs of each size first, and keep them.")
@click.option("--rounds", type=click.IntRange(3), default=12, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the record (JSON).")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw TFLOP/s over size.")
@click.option(
    "--record",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Draw a record that was written before, in place of measuring.",
)
def bench(
    sizes: tuple[int, ...],
    dtype: str,
    tune: bool,
    rounds: int,
    output: Path | None,
    plot: Path | None,
    record: Path | None,
) -> None:
    """Measure matmul, cuBLAS and the peak of mma.sync, interleaved in one run.

    cuBLAS is measured where torch is installed. Rates are medians by CUDA events, on rotating
    random inputs. Compare the ratios of one run: rates vary with the temperature of the GPU.
    """
    from lowering.isa import dtypes

    dtype = dtypes.get(dtype).name
    if plot is not None:
        from layoutalg.draw.pictures.rates import SUFFIXES
        from layoutalg.draw.scene.output import checked_path

        checked_path(plot, "rates", SUFFIXES)
    if record is not None:
        _measure_nothing(["sizes", "dtype", "tune", "rounds"])
        kept = _read(record)
        if plot is None and output is None:
            raise LayoutError("--record: draw the record by --plot, or copy it by -o; got neither")
    else:
        for size in sizes:
            if size < 8 or size % 8:
                raise LayoutError(f"--size: must be a multiple of 8, from 8 on; got {size}")
        kept = _measured(sizes or (1024, 2048, 4096, 8192), dtype, tune, rounds)
    if output is not None:
        write_whole(output, (json.dumps(kept, indent=1) + "\n").encode())
    if plot is not None:
        _draw(kept, plot)
        click.echo(plot)


def _measure_nothing(names: Sequence[str]) -> None:
    """Refuse options of measuring together with --record."""
    for name in given_options(names):
        option = {"sizes": "size"}.get(name, name)
        raise LayoutError(
            f"--{option}: is for measuring, and --record measures nothing: give one of them"
        )


def _read(path: Path) -> dict[str, Any]:
    """Read a record that the command wrote."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise LayoutError(f"--record: {path} is no record of bench: no JSON: {error}") from None
    wrong = _fault(record)
    if wrong:
        raise LayoutError(
            f"--record: {path} is no record of bench: {wrong}. What bench -o FILE writes fits"
        )
    return dict(record)


def _fault(record: Any) -> str:
    """Say why a record cannot be drawn; "" where it can."""
    if not isinstance(record, dict):
        return f"it must be an object; got {type(record).__name__}"
    for key in ("device", "dtype"):
        if not isinstance(record.get(key), str):
            return f"{key} must be text; got {record.get(key)!r}"
    rows = record.get("rows")
    if not isinstance(rows, list) or not rows:
        return f"rows must be a list of one row or more; got {rows!r}"
    for at, row in enumerate(rows):
        size, rates = (row.get("size"), row.get("rates")) if isinstance(row, dict) else (None, None)
        if not _positive(size):
            return f"row {at} must have a size; got {size!r}"
        if not isinstance(rates, dict) or not all(map(_positive, rates.values())):
            return f"row {at} must have rates, a number for each name; got {rates!r}"
    return ""


def _positive(value: Any) -> bool:
    """Return whether a value is a positive, finite number."""
    return type(value) in (int, float) and 0 < value < math.inf


def _measured(sizes: Sequence[int], dtype: str, tune: bool, rounds: int) -> dict[str, Any]:
    """Measure, print the table, and return the record."""
    from lowering.kernels import bench
    from lowering.launch.driver import device
    from lowering.probing.prober import machine_names

    on, rows = device(0), []
    for size in sizes:
        if tune:
            with click.progressbar(length=0, label=f"tune {size}", file=sys.stderr) as bar:

                def shown(configs: Sequence[Any], bar: Any = bar) -> Iterator[Any]:
                    bar.length = len(configs)
                    for config in configs:
                        yield config
                        bar.update(1)

                bench.tune(size, dtype, on, shown)
        rows.append(bench.measured(size, dtype, on, rounds=rounds))
    click.echo(f"{on.name}, {on.arch}, {dtype}, {rounds} rounds; TFLOP/s")
    click.echo(bench.table(rows))
    return {
        "device": on.name,
        "driver": machine_names("device")[1],
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": " ".join(["layoutalg", *sys.argv[1:]]),
        "dtype": dtype,
        "rows": [row.as_dict() for row in rows],
    }


def _draw(record: dict[str, Any], path: Path) -> None:
    """Draw the rates of a record over size, with the peak."""
    from layoutalg.draw.pictures.rates import rates
    from lowering.kernels.bench import CEILING, CUBLAS, OURS

    points = {
        name: [(row["size"], row["rates"][name]) for row in record["rows"] if name in row["rates"]]
        for name in (OURS, CUBLAS, CEILING)
    }
    ceilings = {CEILING: points.pop(CEILING)}
    kept = {name: found for name, found in points.items() if found}
    rates(kept, ceilings, f"{record['dtype']} matmul, {record['device']}", path)
