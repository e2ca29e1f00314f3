"""The conformance vectors: reading them, and turning their JSON into our objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from layoutalg import Axis, ComposeLayout, Iter, TileLayout

DATA = Path(__file__).parent / "data"


def read(name: str) -> list[dict[str, Any]]:
    """Return the rows of one file of vectors."""
    return [json.loads(line) for line in (DATA / "conformance" / name).read_text().splitlines()]


def layout(data: dict[str, Any], symbols: dict[str, Any] | None = None) -> Any:
    """Build the layout that a vector describes."""
    if "swizzle" in data:
        return ComposeLayout(*data["swizzle"], layout(data["tile"], symbols), data["inner"])

    def size(value: Any) -> Any:
        return number(value, symbols)

    def iters(key: str) -> list[Iter]:
        return [Iter(size(e), size(s), axis) for e, s, axis in data.get(key, [])]

    offset = {axis: size(value) for axis, value in data.get("offset", {}).items()}
    offset.update({axis: 0 for axis in data.get("offset0", [])})
    return TileLayout.from_iters(iters("shard"), iters("replica"), offset)


def number(value: Any, symbols: dict[str, Any] | None = None) -> Any:
    """Read a size: an int, or an expression in symbols as our own parser reads it."""
    if isinstance(value, int):
        return value
    from layoutalg import parse

    parsed = parse(f"S[1:({value})]").shard[0].stride
    return parsed if symbols is None else parsed


def plain(value: Any) -> Any:
    """Return what is compared: shard in order, replicas as a multiset, nonzero offsets."""
    if isinstance(value, ComposeLayout):
        return (
            [value.per_element, value.swizzle_len, value.atom_len],
            value.swizzle_inner,
            plain(value.tile_layout),
        )
    if isinstance(value, TileLayout):
        return (
            [(it.extent, it.stride, it.axis.name) for it in value.shard],
            sorted((it.extent, it.stride, it.axis.name) for it in value.replica),
            {axis.name: number for axis, number in value.offset.items() if number != 0},
        )
    return value


def expected(data: Any) -> Any:
    """Return the same for a vector's output."""
    if data is None:
        return None
    if "swizzle" in data:
        return (data["swizzle"], data["inner"], expected(data["tile"]))
    return (
        [tuple(it) for it in data.get("shard", [])],
        sorted(tuple(it) for it in data.get("replica", [])),
        {axis: value for axis, value in data.get("offset", {}).items() if value != 0},
    )


AXES = sorted(Axis.registry)
