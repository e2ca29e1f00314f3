"""``draw``: pictures of instructions and layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from layoutalg import LayoutError, fragments
from layoutalg.interop import Reading
from layoutalg.memory.access import ACCESSES
from lowering.cli.arguments import (
    command,
    given_options,
    layout_of,
    numbers,
    one_input,
    shape_of,
    width,
)

_OF_INSTRUCTIONS = ("operands", "registers", "ldmatrix", "tiling")
_OF_LAYOUTS = ("lane_map", "derivation", "banks")
_OF_TWO = ("compare", "coalescing")
_KINDS_OF_OPTIONS = {
    "lane": ("operands", "registers", "ldmatrix", "lane_map", "compare", "coalescing"),
    "operand": ("registers", "ldmatrix"),
    "warps": ("tiling",),
    "dtype": ("banks", "coalescing"),
    "access": ("banks",),
}


@command(
    "layoutalg draw mma.m16n8k16.f16 -o triple.svg",
    "layoutalg draw 'S[(8,4):(4@laneid,1@laneid)]' --shape 8,4 -o map.png",
    "layoutalg draw mma.m16n8k16.f16 --kind ldmatrix -o load.svg",
    "layoutalg draw 'ComposeLayout(3, 3, 3, S[(64,64):(64,1)])' --shape 64,64 --kind banks",
    "layoutalg draw mma.m16n8k16.f16:D mma.m16n8k16.f16:A --shape 16,16 --kind compare",
    "layoutalg draw --all -o figures",
)
@click.argument("subject", required=False)
@click.argument("other", required=False)
@click.option(
    "--kind",
    type=click.Choice((*_OF_INSTRUCTIONS, *_OF_LAYOUTS, *_OF_TWO)),
    help="operands of an instruction, lane_map of a layout, compare of two unless given.",
)
@click.option("--shape", help="Logical shape of a layout, such as 16,8; of tiling: M,N,K.")
@click.option("--lane", type=int, default=5, show_default=True, help="The lane to outline.")
@click.option("--operand", help="One operand of an instruction (registers, ldmatrix).")
@click.option("--warps", default="1,1", show_default=True, help="Of tiling, along M and N.")
@click.option("--dtype", default="f16", show_default=True, help="Of memory (banks, coalescing).")
@click.option("--access", type=click.Choice(tuple(ACCESSES)), default="ldmatrix", help="Of banks.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File: .svg .png .pdf .tex.")
@click.option("--all", "everything", is_flag=True, help="Redraw the gallery into --output.")
def draw(
    subject: str | None,
    other: str | None,
    kind: str | None,
    shape: str | None,
    lane: int,
    operand: str | None,
    warps: str,
    dtype: str,
    access: str,
    output: Path | None,
    everything: bool,
) -> None:
    """Draw an instruction's operands or a layout, or compare two.

    SUBJECT is an instruction or a layout, OTHER a layout: in any notation, a fragment such as
    mma.m16n8k16.f16:A, a file, or - for standard input. Without --output the file is named after
    the kind.
    """
    if everything:
        from layoutalg.draw import gallery

        if (subject, shape, kind) != (None, None, None):
            raise LayoutError(
                "draw: --all redraws the gallery; it takes no instruction, shape or kind"
            )
        _refuse_options("--all")
        for path in gallery.render(output or Path("figures")):
            click.echo(path)
        return
    if subject is None:
        raise LayoutError("draw: name an instruction or write a layout; or use --all")
    of_instruction = subject in fragments.names()
    chosen = kind or (
        "compare" if other is not None else "operands" if of_instruction else "lane_map"
    )
    if (other is not None) != (chosen in _OF_TWO):
        takes = "two layouts" if chosen in _OF_TWO else "one layout or instruction"
        raise LayoutError(f"draw: {chosen} takes {takes}; got {'one' if other is None else 'two'}")
    _refuse_options(chosen)
    one_input(subject, other)
    path = output or Path(f"{chosen}.svg")
    if chosen in _OF_INSTRUCTIONS:
        if not of_instruction:
            raise LayoutError(f"draw: {chosen} takes an instruction; got {subject!r}")
        _draw_instruction(chosen, subject, shape, lane, operand, warps, path)
    else:
        given = [layout_of(each, shape) for each in (subject, other) if each is not None]
        _draw_layouts(chosen, given, lane, dtype, access, path)
    click.echo(path)


def _refuse_options(kind: str) -> None:
    """Refuse options of other kinds of picture."""
    for name in given_options(_KINDS_OF_OPTIONS):
        kinds = _KINDS_OF_OPTIONS[name]
        if kind not in kinds:
            raise LayoutError(f"draw: --{name} is for {', '.join(kinds)}, not for {kind}")


def _draw_instruction(
    kind: str,
    instruction: str,
    shape: str | None,
    lane: int,
    operand: str | None,
    warps: str,
    path: Path,
) -> None:
    """Draw a picture of an instruction."""
    from layoutalg import draw as drawing

    if kind == "tiling":
        if shape is None:
            raise LayoutError("draw: tiling needs --shape M,N,K, such as 64,64,32")
        extents = numbers(shape, "--shape", "64,64,32")
        drawing.tiling(instruction, extents, numbers(warps, "--warps", "2,2"), path=path)
        return
    if shape is not None:
        raise LayoutError(f"draw: --shape is for layouts; {instruction} has its own shape")
    if kind == "operands":
        drawing.operands(instruction, lane=lane, path=path)
    elif kind == "registers":
        drawing.registers(instruction, operand, lane=lane, path=path)
    else:
        drawing.ldmatrix(instruction, operand or "A", lane=lane, path=path)


def _draw_layouts(
    kind: str, given: list[Reading], lane: int, dtype: str, access: str, path: Path
) -> None:
    """Draw a picture of one layout or two."""
    from layoutalg import draw as drawing

    extents = shape_of("draw", *given)
    layout: Any = given[0].layout
    other: Any = given[-1].layout
    if kind == "lane_map":
        drawing.lane_map(layout, extents, lane=lane, path=path)
    elif kind == "derivation":
        drawing.derivation(layout, extents, path=path)
    elif kind == "banks":
        drawing.banks(layout, extents, width(dtype), access, path=path)
    elif kind == "compare":
        drawing.compare(layout, other, extents, lane=lane, path=path)
    else:
        drawing.coalescing(layout, other, extents, width(dtype), lane=lane, path=path)
