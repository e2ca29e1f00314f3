"""JSON: a versioned, exact form of layouts.

``{"layoutalg": 1, "shard": [[extent, stride, "axis"], …], "replica": […], "offset": {"axis": n}}``;
missing keys mean empty. A swizzled layout is ``{"layoutalg": 1, "swizzle": [per_element,
swizzle_len, atom_len], "inner": true, "tile": {…}}``, a bare swizzle the same without the tile.
A size is a number, or text where it has symbols.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from layoutalg.algebra.iters import Iter, Iters
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.interop.expressions import read_size, size_text
from layoutalg.interop.registry import Notation, register
from layoutalg.layouts.swizzle import ComposeLayout, SwizzleLayout
from layoutalg.layouts.tile_layout import TileLayout
from layoutalg.sizes.size import Size

VERSION = 1
Readable = TileLayout | ComposeLayout | SwizzleLayout


def to_json(layout: LayoutLike | SwizzleLayout) -> str:
    """Write a layout as one line of JSON; equal layouts with equally ordered parts give equal text.

    Raises:
        LayoutError: a size has no text that reads back.

    >>> from layoutalg import parse
    >>> to_json(parse("S[(16*Mt,8):(8,1)] + 3@warpid"))
    '{"layoutalg": 1, "shard": [["16*Mt", 8, "m"], [8, 1, "m"]], "offset": {"warpid": 3}}'
    """
    return json.dumps({"layoutalg": VERSION} | encode(as_layout(layout, "to_json")))


def from_json(text: str) -> Readable:
    """Read a layout from JSON: the inverse of :func:`to_json`.

    Raises:
        LayoutError: the text is no JSON, has another version, an unknown or a repeated key, or a
            number that is no integer.

    >>> print(from_json('{"layoutalg": 1, "shard": [[8, 4, "laneid"], [2, 1, "m"]]}'))
    S[(8,2):(4@laneid,1)]
    >>> from_json('{"layoutalg": 2, "shard": []}')
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: from_json: version 1 is read here; got 2
    """
    try:
        data = json.loads(
            text,
            object_pairs_hook=_unrepeated,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except (json.JSONDecodeError, RecursionError, TypeError) as error:
        raise LayoutError(f"from_json: {error}") from None
    if not isinstance(data, dict) or "layoutalg" not in data:
        raise LayoutError('from_json: needs an object with the key "layoutalg": 1')
    version = data.pop("layoutalg")
    if type(version) is not int or version != VERSION:
        raise LayoutError(f"from_json: version {VERSION} is read here; got {version!r}")
    return decode(data)


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise LayoutError(f"from_json: a key is repeated among {[key for key, _ in pairs]}")
    return found


def _refuse_number(text: str) -> NoReturn:
    raise LayoutError(f"from_json: sizes are integers; got {text}")


def encode(layout: Readable) -> dict[str, Any]:
    """Return a layout as plain lists and dicts, without the version.

    >>> from layoutalg import S, laneid
    >>> encode(TileLayout(S[(8, 2):(4 @ laneid, 1)]))
    {'shard': [[8, 4, 'laneid'], [2, 1, 'm']]}
    """
    if isinstance(layout, TileLayout):
        found: dict[str, Any] = {"shard": _encode_iters(layout.shard)}
        if layout.replica:
            found["replica"] = _encode_iters(layout.replica)
        if layout.offset:
            found["offset"] = {axis.name: _encode(v) for axis, v in layout.offset.items()}
        return found
    found = {
        "swizzle": [layout.per_element, layout.swizzle_len, layout.atom_len],
        "inner": layout.swizzle_inner,
    }
    if isinstance(layout, ComposeLayout):
        found["tile"] = encode(layout.tile_layout)
    return found


def _encode_iters(iters: Iters) -> list[list[Any]]:
    return [[_encode(it.extent), _encode(it.stride), it.axis.name] for it in iters]


def _encode(size: Size) -> int | str:
    return size if isinstance(size, int) else size_text(size, "to_json")


def decode(data: Mapping[str, Any]) -> Readable:
    """Return the layout of plain lists and dicts: the inverse of :func:`encode`.

    Raises:
        LayoutError: a key is unknown or missing, or a value has another type.

    >>> print(decode({"swizzle": [3, 3, 3], "inner": True, "tile": {"shard": [[512, 1, "m"]]}}))
    ComposeLayout(3, 3, 3, S[512:1])
    """
    if not isinstance(data, Mapping):
        raise LayoutError(f"from_json: a layout is an object; got {data!r}")
    if "swizzle" not in data:
        _check_keys(data, ("shard", "replica", "offset"))
        offset = data.get("offset", {})
        if not isinstance(offset, Mapping):
            raise LayoutError(f"from_json: offset is an object axis: size; got {offset!r}")
        return TileLayout.from_iters(
            _decode_iters(data.get("shard", []), "shard"),
            _decode_iters(data.get("replica", []), "replica"),
            {axis: _decode(value) for axis, value in offset.items()},
        )
    _check_keys(data, ("swizzle", "inner", "tile"))
    lengths, inner = data["swizzle"], data.get("inner", True)
    if not (isinstance(lengths, (list, tuple)) and len(lengths) == 3 and isinstance(inner, bool)):
        raise LayoutError(
            f"from_json: a swizzle is three numbers, and inner is true or false; got {lengths!r} "
            f"and {inner!r}"
        )
    swizzle = SwizzleLayout(lengths[0], lengths[1], lengths[2], inner)
    if "tile" not in data:
        return swizzle
    tile = decode(data["tile"])
    if not isinstance(tile, TileLayout):
        raise LayoutError("from_json: the tile must be a plain layout; it has a swizzle")
    return swizzle.over(tile)


def _check_keys(data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(set(data) - set(known), key=str)
    if unknown:
        raise LayoutError(f"from_json: keys are {', '.join(known)}; got {', '.join(unknown)}")


def _decode_iters(entries: Any, what: str) -> list[Iter]:
    if not isinstance(entries, (list, tuple)):
        raise LayoutError(f"from_json: {what} is a list of [extent, stride, axis]; got {entries!r}")
    found = []
    for entry in entries:
        if not (isinstance(entry, (list, tuple)) and len(entry) == 3):
            raise LayoutError(
                f"from_json: {what}: each entry is [extent, stride, axis]; got {entry!r}"
            )
        found.append(Iter(_decode(entry[0]), _decode(entry[1]), entry[2]))
    return found


def _decode(value: Any) -> Size:
    if type(value) is int:
        return value
    if isinstance(value, str):
        return read_size(value, "from_json")
    raise LayoutError(f"from_json: a size is an integer or text; got {value!r}")


register(
    Notation(
        "json",
        '{"layoutalg": 1, "shard": [[8, 4, "laneid"]]}',
        lambda text, _: (from_json(text), None),
        lambda layout, _: to_json(layout),
        r'\{\s*(["}]|\w+\s*:|$)',
    )
)
