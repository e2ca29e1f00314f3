"""``explain``: where an element goes, what a lane holds, and whether two layouts are equal maps."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from layoutalg import LayoutError, Verdict, fragments
from layoutalg.interop import Reading
from layoutalg.layouts.explanation import Explanation, explain_element, explain_held, reach
from layoutalg.proofs.verdict import Certificate, place_text
from lowering.cli.arguments import (
    command,
    echo_json,
    json_option,
    layout_of,
    numbers,
    one_input,
    pairs,
    shape_of,
    shape_option,
)

_LANES = 32


@command(
    "layoutalg explain 'S[(2,8,4,2):(2,4@laneid,1@laneid,1)]' --shape 16,8 --at 9,3",
    "layoutalg explain mma.m16n8k16.f16 --lane 5",
    "layoutalg explain 'ComposeLayout(3, 3, 3, S[(8,64):(64,1)])' --shape 8,64 --at 1,3",
    "layoutalg explain 'S[(2,8):(8,1)]' 'S[16:1]'",
)
@click.argument("layout")
@click.argument("other", required=False)
@shape_option
@click.option("--at", help="Explain one element, such as 9,3.")
@click.option("--lane", type=click.IntRange(0), help="Explain all registers of a lane.")
@click.option("--place", help="Explain (lane, register) or address, such as laneid=5,m=3.")
@click.option("--target", type=click.Choice(["cuda"]), help="Fuse axes first, to compare.")
@json_option
def explain(
    layout: str,
    other: str | None,
    shape: str | None,
    at: str | None,
    lane: int | None,
    place: str | None,
    target: str | None,
    as_json: bool,
) -> None:
    """Explain an element or a lane, or prove two layouts equal.

    Digit by digit: where an element goes, or what a lane holds. With --lane, an instruction without
    an operand explains all its operands. Of two layouts the proof is printed, or the first element
    on which they differ: then the exit code is 1.

    LAYOUT and OTHER are in any notation, fragments such as mma.m16n8k16.f16:A, files, or - for
    standard input.
    """
    questions = [text for text in (at, lane, place) if text is not None]
    if len(questions) + (other is not None) != 1:
        raise LayoutError(
            "explain: give one of --at (an element), --lane, --place (a lane's register or an "
            "address), or a second layout"
        )
    if other is not None:
        one_input(layout, other)
        verdict = _compare(layout_of(layout, shape), layout_of(other, shape), target)
        if as_json:
            echo_json(_record(verdict))
        else:
            word, rest = str(verdict).split(":", 1)
            click.echo(f"{click.style(word, fg='green' if verdict else 'red')}:{rest}")
        if not verdict:
            sys.exit(1)
        return
    if target is not None:
        raise LayoutError("explain: --target is for two layouts")
    if at is not None:
        given = layout_of(layout, shape)
        found = explain_element(
            given.layout, numbers(at, "--at", "9,3"), shape_of("explain", given)
        )
        if as_json:
            echo_json(found.record() | _register(given, found))
        else:
            click.echo(_element_text(given, found))
        return
    wanted = {"laneid": lane} if lane is not None else _place(str(place))
    operands = _operands(layout, shape)
    _check_reach(wanted, operands, "--lane" if lane is not None else "--place")
    reports = [
        (given, explain_held(given.layout, wanted, shape_of("explain", given)))
        for given in operands
    ]
    if not as_json:
        click.echo("\n\n".join(_held_text(*report, wanted) for report in reports))
        return
    echo_json(
        [
            {"layout": str(given.layout), "operand": given.fragment and given.fragment.operand}
            | {"holds": [each.record() | _register(given, each) for each in found]}
            for given, found in reports
        ]
    )


def _operands(layout: str, shape: str | None) -> list[Reading]:
    """Return a layout, or all operands of an instruction."""
    if layout in fragments.names():
        return [Reading(row.layout, "fragment", row.tile, row) for row in fragments.rows(layout)]
    return [layout_of(layout, shape)]


def _check_reach(wanted: Mapping[str, int], operands: Sequence[Reading], option: str) -> None:
    """Refuse a coordinate that is out of the range of all operands on its axis."""
    for axis, value in wanted.items():
        found = [reach(given.layout, axis, shape_of("explain", given)) for given in operands]
        ends = [pair for pair in found if pair is not None]
        if axis == "laneid" and any(given.fragment is not None for given in operands):
            ends.append((0, _LANES - 1))
        if not ends:
            continue  # no such axis: the layout says which it has
        least, most = min(low for low, _ in ends), max(high for _, high in ends)
        if not least <= value <= most:
            name = f"{option}: {axis}" if option == "--place" else f"{option}:"
            raise LayoutError(f"{name} must lie in {least}..{most}; got {value}")


def _place(text: str) -> dict[str, int]:
    """Read ``laneid=5,m=3``."""
    return {
        name: numbers(value, "--place", "laneid=5,m=3")[0]
        for name, value in pairs(text.split(","), "--place").items()
    }


def _register(given: Reading, found: Explanation) -> dict[str, int]:
    """Return the 32-bit register of a slot and its first bit there, of a fragment."""
    row = given.fragment
    if row is None:
        return {}
    slot = dict(found.place).get("m", 0)
    return {"register": slot // row.pack, "bit": slot % row.pack * row.bits}


def _title(given: Reading) -> str:
    """Return the name of the fragment, if it is one, the layout and its shape."""
    row = given.fragment
    name = f"{row.instruction} {row.operand}: " if row is not None else ""
    return f"{name}{given.layout} over {given.shape}"


def _element_text(given: Reading, found: Explanation) -> str:
    """Return the layout, the explanation of one element, and its register."""
    lines = [_title(given), str(found)]
    lines += [f"  {name} {number}" for name, number in _register(given, found).items()]
    return "\n".join(lines)


def _held_text(given: Reading, found: Sequence[Explanation], wanted: Mapping[str, int]) -> str:
    """Return what a lane holds: the digits that its slots have in common, then a line per slot."""
    asked = place_text(tuple(wanted.items()))
    if not found:
        return f"{_title(given)}\nnothing is at {asked}"
    shared = [digit for digit in found[0].digits if all(digit in e.digits for e in found)]
    own = [digit for digit in found[0].digits if digit not in shared]
    lines = [_title(given), asked, *(f"  {digit}" for digit in shared)]
    lines += [f"  {digit.source}: each {digit.stride} on {digit.to}" for digit in own]
    for each in found:
        place = [pair for pair in each.place if pair[0] not in wanted]
        head = place_text((*place, *_register(given, each).items())) if place else "there"
        lines.append(f"  {head}: {', '.join(map(str, each.sums))}")
        lines += [f"    swizzled: {each.swizzling}"] if each.swizzling else []
    return "\n".join(lines)


def _compare(left: Reading, right: Reading, target: str | None) -> Verdict:
    """Decide whether two layouts are equal maps."""
    return left.layout.equivalent(right.layout, target, left.shape or right.shape)


def _record(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain lists and dicts."""
    reason = verdict.reason
    record = {"holds": verdict.holds, "claim": verdict.claim, "checked": verdict.checked}
    if not isinstance(reason, Certificate):
        return record | {"counterexample": str(reason)}
    titles = ("extent", "weight", "stride", "note")
    digits = [dict(zip(titles, digit.cells, strict=True)) for digit in reason.digits]
    return record | {"certificate": reason.argument, "digits": digits}
