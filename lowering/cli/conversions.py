"""``convert`` and ``swizzle``: from one layout to another, and the swizzle of a shared tile."""

from __future__ import annotations

import sys
from typing import Any, get_args

import click

from layoutalg import (
    Conversion,
    LayoutError,
    SwizzleChoice,
    SwizzleLayout,
    TileLayout,
    choose_swizzle,
    evaluate_swizzle,
)
from layoutalg import convert as convert_layouts
from layoutalg.conversions.recipe import Kind
from layoutalg.interop import NOTATIONS, Reading, write
from layoutalg.memory.access import ACCESSES
from layoutalg.memory.swizzle_search import Candidate
from lowering.cli.arguments import (
    command,
    echo_json,
    json_option,
    layout_of,
    numbers,
    one_input,
    shape_of,
    shape_option,
    width,
)

_NOTATION = click.Choice(tuple(NOTATIONS))
_BITS = ("4", "8", "16", "32", "64")


@command(
    "layoutalg convert mma.m16n8k16.f16:D mma.m16n8k16.f16:A --shape 16,16",
    "layoutalg convert mma.m16n8k16.f16:A 'S[(32,8):(1@laneid,1)]' --shape 16,16 --json",
    "layoutalg convert mma.m16n8k16.f16:D 'S[(32,4):(1@laneid,1)]' --shape 16,8 --cuda",
    "layoutalg convert '((4,8),2):((2,16),1)' --to tvm",
    "layoutalg convert 'ComposeLayout(3,3,3,S[(8,64):(64,1)])' --to cute --unit bytes --shape 8,64",
    "layoutalg convert '((4,8),(2,2)):((32,1),(16,8))' --from tv --shape 16,8 --to triton",
)
@click.argument("layout")
@click.argument("other", required=False)
@shape_option
@click.option("--to", type=_NOTATION, help="Print LAYOUT in this notation.")
@click.option("--from", "notation", type=_NOTATION, help="How LAYOUT is written.")
@click.option(
    "--unit", type=click.Choice(["elements", "bytes"]), help="What a CuTe swizzle counts."
)
@click.option("--bits", type=click.Choice(_BITS), help="Of an element; 16 unless given.")
@click.option("--via", type=click.Choice(get_args(Kind)), help="Use this kind of conversion.")
@click.option("--cuda", is_flag=True, help="Print a kernel of CUDA C++ that converts.")
@json_option
def convert(
    layout: str,
    other: str | None,
    shape: str | None,
    to: str | None,
    notation: str | None,
    unit: str | None,
    bits: str | None,
    via: Kind | None,
    cuda: bool,
    as_json: bool,
) -> None:
    """Convert data to another layout, or a layout to a notation.

    Of two layouts, the cheapest kind of conversion and its recipe are printed: renamed registers,
    selects, movmatrix, shfl, or shared memory; or its code. LAYOUT and OTHER are in any notation,
    fragments, files, or - for standard input. The notation of LAYOUT is guessed; only tv must be
    named.
    """
    if (other is None) == (to is None):
        raise LayoutError(
            "convert: give two layouts to convert data between, or one layout and --to NOTATION"
        )
    one_input(layout, other)
    size = None if bits is None else int(bits)
    left = layout_of(layout, shape, notation, unit, size)
    if other is not None:
        right = layout_of(other, shape)
        extents = shape_of("convert", left, right)
        src, dst = _plain(left), _plain(right)
        found = convert_layouts(src, dst, extents, size or 16, via)
        if as_json:
            echo_json(_recipe(found) | ({"cuda": found.cuda_source()} if cuda else {}))
        else:
            click.echo(found.cuda_source() if cuda else found)
        return
    if via is not None or cuda:
        raise LayoutError(f"convert: {'--cuda' if via is None else '--via'} is for two layouts")
    text = write(left.layout, str(to), left.shape, unit or "elements", size or 16)
    if as_json:
        echo_json({"notation": to, "text": text, "shape": left.shape})
    else:
        click.echo(text)


def _plain(given: Reading) -> TileLayout:
    """Return a layout that may be over threads: not swizzled."""
    if not isinstance(given.layout, TileLayout):
        raise LayoutError(
            f"convert: data moves between layouts over threads; {given.layout} lies in memory: "
            "--to writes it in another notation"
        )
    return given.layout


def _recipe(found: Conversion) -> dict[str, Any]:
    """Return a conversion as plain lists and dicts."""
    count = found.source_registers
    return {
        "kind": found.kind,
        "src": str(found.src),
        "dst": str(found.dst),
        "shape": list(found.shape),
        "bits": found.bits,
        "threads": found.threads,
        "registers": found.registers,
        "steps": [step.text(count) for step in found.steps],
        "words": [word.text(count) for word in found.words],
        "per_thread": {
            "shfl": found.shuffles,
            "movmatrix": found.movmatrices,
            "select": found.selects,
            "prmt": found.permutes,
        },
        "why": list(found.why),
        "relabellings": [
            {"dim": each.dim, "permutation": each.permutation, "slots": each.slots}
            for each in found.relabellings
        ],
    }


@command(
    "layoutalg swizzle 64,64",
    "layoutalg swizzle 64,32 --dtype bf16 --access ldmatrix --access st.shared",
    "layoutalg swizzle 64,64 --pitch 72 --json",
    "layoutalg swizzle 64,64 --check 3,3,3",
)
@click.argument("tile")
@click.option("--dtype", default="f16", show_default=True, help="PTX type of an element, or bits.")
@click.option("--pitch", type=click.IntRange(1), help="Elements from row to row; dense without it.")
@click.option(
    "--access",
    "accesses",
    type=click.Choice(tuple(ACCESSES)),
    multiple=True,
    default=("ldmatrix", "cp.async"),
    show_default=True,
    help="An access of the tile (repeatable).",
)
@click.option("--check", help="Count this swizzle (in elements), and fail if another is better.")
@json_option
def swizzle(
    tile: str,
    dtype: str,
    pitch: int | None,
    accesses: tuple[str, ...],
    check: str | None,
    as_json: bool,
) -> None:
    """Choose the swizzle of a shared tile with the fewest conflicts.

    TILE is rows,columns. Every swizzle that keeps the vectors of each access contiguous is counted.
    The table has the best of each length, in wavefronts over the tile; lengths are in elements.
    """
    extents = numbers(tile, "swizzle: TILE", "64,64")
    choice = choose_swizzle(extents, width(dtype), pitch, accesses)
    given = None if check is None else numbers(check, "--check", "3,3,3")
    if given is not None and len(given) != 3:
        raise LayoutError(f"--check: must look like 3,3,3; got {check!r}")
    checked = given and evaluate_swizzle(
        SwizzleLayout(*given), extents, width(dtype), pitch, accesses
    )
    if as_json:
        echo_json(_choice(choice) | ({"checked": _candidate(choice, checked)} if checked else {}))
    else:
        click.echo(choice)
        click.echo(f"layout: {choice.layout}")
        if checked:
            count = f"{checked.total} wavefronts, {choice.best.total} are the fewest"
            click.echo(f"checked: {choice.in_words(checked)}: {count}")
    if checked and checked.total > choice.best.total:
        sys.exit(1)


def _choice(choice: SwizzleChoice) -> dict[str, Any]:
    """Return a choice as plain lists and dicts."""
    return {
        "shape": choice.shape,
        "bits": choice.bits,
        "pitch": choice.pitch,
        "unit": "elements",
        "accesses": choice.accesses,
        "fewest_wavefronts": choice.fewest,
        "layout": str(choice.layout),
        "chosen": _candidate(choice, choice.best),
        "conflicts": choice.conflicts,
        "candidates": [_candidate(choice, each) for each in choice.candidates],
    }


def _candidate(choice: SwizzleChoice, candidate: Candidate) -> dict[str, Any]:
    """Return one swizzle and what it costs as plain lists and dicts."""
    per_element, swizzle_len, atom_len = candidate.key
    return {
        "per_element": per_element,
        "swizzle_len": swizzle_len,
        "atom_len": atom_len,
        "says": choice.in_words(candidate),
        "wavefronts": candidate.wavefronts,
        "worst": candidate.worst,
        "total": candidate.total,
    }
