"""The conformance vectors: reading them, and turning their JSON into our objects."""

from __future__ import annotations

import json
from typing import Any

from layoutalg import Axis, ComposeLayout, Iter, TileLayout, parse
from tests.support.paths import DATA


def read(name: str) -> list[dict[str, Any]]:
    """Return the rows of one file of vectors."""
    return [json.loads(line) for line in (DATA / "conformance" / name).read_text().splitlines()]


def layout(data: dict[str, Any]) -> Any:
    """Build the layout that a vector describes."""
    if "swizzle" in data:
        per_element, swizzle_len, atom_len = data["swizzle"]
        tile = layout(data["tile"])
        return ComposeLayout(per_element, swizzle_len, atom_len, tile, data["inner"])

    def iters(key: str) -> list[Iter]:
        return [Iter(number(e), number(s), axis) for e, s, axis in data.get(key, [])]

    offset = {axis: number(value) for axis, value in data.get("offset", {}).items()}
    offset.update(dict.fromkeys(data.get("offset0", []), 0))
    return TileLayout.from_iters(iters("shard"), iters("replica"), offset)


def number(value: Any) -> Any:
    """Read a size: an int, or an expression in symbols as our own parser reads it."""
    return value if isinstance(value, int) else parse(f"S[1:({value})]").shard[0].stride


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
