"""JSON: each layout reads back exactly, symbols included, and what is no layout is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sympy
from hypothesis import given, settings

from layoutalg import Axis, Iter, LayoutError, S, SwizzleLayout, TileLayout, parse
from layoutalg.interop import (
    decode,
    encode,
    from_json,
    from_tvmscript,
    to_json,
    to_tvmscript,
)
from tests.layoutalg.interop.test_tvmscript import anything, same
from tests.support.vectors import layout as of_vector
from tests.support.vectors import read


@settings(deadline=None)
@given(anything)
def test_json_reads_back(layout: Any) -> None:
    text = to_json(layout)
    assert same(from_json(text), layout)
    assert to_json(from_json(text)) == text
    assert "\n" not in text


def test_json_of_a_bare_swizzle() -> None:
    swizzle = SwizzleLayout(3, 2, 4, swizzle_inner=False)
    assert to_json(swizzle) == '{"layoutalg": 1, "swizzle": [3, 2, 4], "inner": false}'
    assert from_json(to_json(swizzle)) == swizzle


def test_json_is_the_encoding_of_the_vectors() -> None:
    rows = [row["in"]["layout"] for row in read("canonicalize.jsonl")]
    plain = [row for row in rows if "offset0" not in row]  # explicit zeros are a matter of TVM's
    assert len(plain) > 200
    for row in plain:
        assert same(decode(row), of_vector(row))
    data = {"shard": [[8, 4, "laneid"]], "replica": [[2, 1, "m"]], "offset": {"m": 3}}
    assert encode(of_vector(data)) == data


def test_json_carries_symbols_as_text() -> None:
    layout = parse("S[(16*Mt,8):(8,1)] + (n // 3)")
    data = json.loads(to_json(layout))
    assert data["shard"][0] == ["16*Mt", 8, "m"]
    assert data["offset"] == {"m": "n//3"}
    found = from_json(to_json(layout))
    assert isinstance(found, TileLayout)
    assert found.subs({"Mt": 2, "n": 9}) == TileLayout(S[(32, 8) : (8, 1)] + 3)


def test_axes_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Axis, "registry", dict(Axis.registry))
    axis = Axis.register("interop_test_axis")
    layout = TileLayout(S[8 : 2 @ axis])
    assert from_json(to_json(layout)) == layout
    assert from_tvmscript(to_tvmscript(layout)) == layout


@pytest.mark.parametrize("write", [to_json, to_tvmscript])
def test_symbols_that_would_come_back_changed(write: Any) -> None:
    other = sympy.Symbol("n", integer=True)
    with pytest.raises(LayoutError, match="n has no text that reads back"):
        write(TileLayout.from_iters([Iter(8, other)]))
    keyword = sympy.Symbol("lambda", integer=True, positive=True)
    with pytest.raises(LayoutError, match="lambda has no text that reads back"):
        write(TileLayout.from_iters([Iter(8, keyword)]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "from_json: Expecting value: line 1 column 1 (char 0)"),
        ("[]", 'from_json: needs an object with the key "layoutalg": 1'),
        ('{"shard": []}', 'from_json: needs an object with the key "layoutalg": 1'),
        ('{"layoutalg": "1", "shard": []}', "from_json: version 1 is read here; got '1'"),
        ('{"layoutalg": true, "shard": []}', "from_json: version 1 is read here; got True"),
        (
            '{"layoutalg": 1, "shrad": []}',
            "from_json: keys are shard, replica, offset; got shrad",
        ),
        (
            '{"layoutalg": 1, "shard": [], "shard": []}',
            "from_json: a key is repeated among ['layoutalg', 'shard', 'shard']",
        ),
        ('{"layoutalg": 1, "shard": [[8.0, 1, "m"]]}', "from_json: sizes are integers; got 8.0"),
        ('{"layoutalg": 1, "shard": [[8, NaN, "m"]]}', "from_json: sizes are integers; got NaN"),
        (
            '{"layoutalg": 1, "shard": [[8, true, "m"]]}',
            "from_json: a size is an integer or text; got True",
        ),
        (
            '{"layoutalg": 1, "shard": [[8, "f(1)", "m"]]}',
            "from_json: a size must be an integer expression of + - * // % and powers\n  f(1)\n"
            "  ^^^^",
        ),
        (
            '{"layoutalg": 1, "shard": [[8, 1]]}',
            "from_json: shard: each entry is [extent, stride, axis]; got [8, 1]",
        ),
        (
            '{"layoutalg": 1, "shard": 8}',
            "from_json: shard is a list of [extent, stride, axis]; got 8",
        ),
        (
            '{"layoutalg": 1, "offset": 8}',
            "from_json: offset is an object axis: size; got 8",
        ),
        (
            '{"layoutalg": 1, "shard": [[8, 1, "landid"]]}',
            "axis: no axis is named 'landid'; did you mean laneid? (Axis.register makes a new one)",
        ),
        (
            '{"layoutalg": 1, "swizzle": [3, 3]}',
            "from_json: a swizzle is three numbers, and inner is true or false; got [3, 3] and "
            "True",
        ),
        (
            '{"layoutalg": 1, "swizzle": [3, 3, 3], "tile": {"swizzle": [3, 3, 3]}}',
            "from_json: the tile must be a plain layout; it has a swizzle",
        ),
        (
            '{"layoutalg": 1, "swizzle": [3, 3, 3], "tile": 8}',
            "from_json: a layout is an object; got 8",
        ),
    ],
)
def test_json_refusals(text: str, message: str) -> None:
    with pytest.raises(LayoutError) as refused:
        from_json(text)
    assert str(refused.value) == message


def test_deep_json_is_refused() -> None:
    with pytest.raises(LayoutError):
        from_json("[" * 100_000)
    with pytest.raises(LayoutError, match="nests too deeply"):
        from_json('{"layoutalg": 1, "shard": [["' + "1+" * 800 + '1", 1, "m"]]}')
