"""``show``: what a layout is."""

from __future__ import annotations

from typing import Any

import click

from layoutalg import ComposeLayout
from lowering.cli.arguments import (
    command,
    echo_json,
    echo_rows,
    json_option,
    layout_of,
    shape_option,
)


@command(
    "layoutalg show 'S[(2,8,4,2):(2,4@laneid,1@laneid,1)]' --shape 16,8",
    "layoutalg show mma.m16n8k16.f16:A",
    "layoutalg show '((4,8),2):((2,16),1)' --json",
    "echo 'S[(n,8):(8,1)]' | layoutalg show -",
)
@click.argument("layout")
@shape_option
@click.option("--target", type=click.Choice(["cuda"]), help="Fuse the axes that are one in CUDA.")
@json_option
def show(layout: str, shape: str | None, target: str | None, as_json: bool) -> None:
    """Describe a layout; with a shape, its inverse map too.

    LAYOUT is in any notation (TIRx, CuTe, Triton, TVMScript, JSON, LaTeX), a fragment, a file, or -
    for standard input.
    """
    given = layout_of(layout, shape)
    parsed, extents = given.layout, given.shape
    scope = parsed.get_scope()
    rows: list[tuple[str, Any]] = [
        ("layout", parsed),
        ("canonical", parsed.canonicalize(target)),
        ("elements", parsed.size()),
        ("span in memory", parsed.span()),
        ("scope", " in ".join(scope) if scope else "memory only"),
    ]
    if extents is not None and not isinstance(parsed, ComposeLayout):
        rows.append((f"over {extents}", parsed.inverse(extents)))
    if not as_json:
        echo_rows(rows)
        return
    names = ("layout", "canonical", "elements", "span", "scope", "inverse")
    record = {name: _plain(value) for name, (_, value) in zip(names, rows, strict=False)}
    echo_json(record | {"scope": scope, "shape": extents})


def _plain(value: Any) -> int | str:
    """Return a number as it is, anything else as text."""
    return value if isinstance(value, int) else str(value)
