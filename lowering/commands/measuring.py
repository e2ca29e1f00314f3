"""``bench``: rates of whole products on a GPU, beside cuBLAS and the ceiling of the instruction."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from layoutalg.files import write_whole
from lowering.commands.arguments import command


@command(
    "layoutalg bench --size 4096 --size 8192 -o rates.json",
    "layoutalg bench --dtype bfloat16 --tune --plot rates.svg",
)
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
        write_whole(output, (json.dumps(record, indent=1) + "\n").encode())
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
