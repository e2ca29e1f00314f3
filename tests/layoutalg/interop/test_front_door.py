"""One front door: whatever takes a layout takes a layout, a fragment, or text in any notation."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import layoutalg
import lowering as lw
from layoutalg import (
    ComposeLayout,
    LayoutError,
    TileLayout,
    align,
    convert,
    fragments,
    parse,
    prove,
)
from layoutalg.errors import did_you_mean
from layoutalg.interop import NOTATIONS, Notation, read, register, write
from layoutalg.interop.registry import notation_of, with_shape
from layoutalg.memory.access import element_bits
from layoutalg.sizes.dtypes import OPERANDS, element_type
from lowering.cli.main import main
from lowering.isa import dtypes
from tests.support.house import edges, modules

NAME = "mma.m16n8k16.f16:D"
ROW = fragments.get("mma.m16n8k16.f16", "D")
D = ROW.layout
TILE = parse("S[(8,64):(64,1)]")
SWIZZLED = ComposeLayout(3, 3, 3, TILE)
SAID = {
    "a layout": D,
    "a fragment": ROW,
    "its name": NAME,
    "text": str(D),
    **{
        name: write(D, name, (16, 8))
        for name in ("triton", "tvm", "json", "latex")
    },
}  # fmt: skip

TAKES: dict[str, Callable[[Any], Any]] = {
    "prove, its layout": lambda said: prove(said, (16, 8), D).holds,
    "prove, its claim": lambda said: prove(D, (16, 8), said).holds,
    "equivalent": lambda said: D.equivalent(said).holds,
    "convert": lambda said: convert(said, said, (16, 8)).kind == "registers",
    "align": lambda said: align(said, said) == align(D, D),
    "tile": lambda said: D.tile(said, (16, 8), (16, 8)) == D.tile(D, (16, 8), (16, 8)),
    "is_tile_inner": lambda said: D.is_tile_inner(said, (16, 8), (16, 8)) is not None,
    "is_tile_outer": lambda said: D.is_tile_outer(said, (16, 8), (16, 8)) is not None,
    "direct_sum": lambda said: D.direct_sum(said, (16, 8), (16, 8)).size() == 128 * 128,
    "write": lambda said: write(said, "text") == str(D),
    "transposed": lambda said: (
        fragments.transposed(said, (16, 8)) == fragments.transposed(D, (16, 8))
    ),
    "Buffer": lambda said: lw.Buffer("A", (16, 8), "f16", layout=said).layout == D,
    "Kernel.alloc": lambda said: lw.Kernel("k").alloc("A", (16, 8), "f16", layout=said).layout == D,
}


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("takes", TAKES)
def test_what_takes_a_layout_takes_whatever_says_one(takes: str, said: str) -> None:
    assert TAKES[takes](SAID[said])


def test_what_says_its_shape_need_not_be_given_one() -> None:
    for said in (ROW, NAME, SAID["triton"]):
        assert with_shape(said, None, "doc") == (D, (16, 8))
    assert with_shape(NAME, (32, 8), "doc") == (D.tile_to((32, 8), (16, 8)), (32, 8))
    assert with_shape(ROW, (32, 8), "doc") == with_shape(NAME, (32, 8), "doc")
    with pytest.raises(LayoutError, match=re.escape(f"doc: give the shape of {D}")):
        with_shape(str(D), None, "doc")


def test_a_swizzled_tile_may_be_text() -> None:
    assert ComposeLayout(3, 3, 3, "S[(8,64):(64,1)]") == SWIZZLED  # type: ignore[arg-type]
    assert lw.Buffer("T", (8, 64), "f16", "shared", str(SWIZZLED)).layout == SWIZZLED


# -- the registry -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dtype", "layout", "said"),
    [
        ((4, 8), "f16", "(8,4):(1,8)", "the shape is (4, 8); the layout is of a tile (8, 4)"),
        ((8, 16), "f16", "mma.m16n8k16.f16:B", "the layout is of a tile (16, 8)"),
        ((8, 16), "f16", fragments.get("mma.m16n8k16.f16", "B"), "of a tile (16, 8)"),
        (
            (64, 64),
            "f32",
            "Sw<3,4,3> o smem_ptr[16b](unset) o (64,64):(64,1)",
            "an element has 16 bits; got unit=None, bits=32",
        ),
    ],
)
def test_a_buffer_holds_a_text_to_its_shape_and_type(
    shape: tuple[int, ...], dtype: str, layout: Any, said: str
) -> None:
    with pytest.raises(LayoutError, match=re.escape(said)):
        lw.Buffer("x", shape, dtype, "shared", layout=layout)


def test_a_file_of_the_folder_is_a_notation_or_serves_one() -> None:
    """Nothing names a notation's file but the folder: one that registers nothing would be dead."""
    idle = {
        module
        for module, path in modules("layoutalg").items()
        if module.startswith("layoutalg.interop.")
        and "\nregister(" not in path.read_text(encoding="utf-8")
        and not any(module in targets for targets in edges("layoutalg").values())
    }
    assert not idle, "call register(Notation(…)) in it"


@pytest.mark.parametrize("name", NOTATIONS)
def test_the_example_of_a_notation_reads_back(name: str) -> None:
    notation = NOTATIONS[name]
    found = read(notation.example, name, (16, 8) if name == "tv" else None)
    assert isinstance(found.layout, TileLayout)
    assert write(found.layout, name, found.shape) == notation.example


@pytest.mark.parametrize("name", NOTATIONS)
@pytest.mark.parametrize("said", [D, TILE, SWIZZLED, parse("S[8:4@laneid] + R[2:1@warpid]")])
def test_a_notation_reads_what_it_writes_or_refuses_to_write(name: str, said: Any) -> None:
    shape = {128: (16, 8), 512: (8, 64), 8: (8,)}[said.size()]
    try:
        text = write(said, name, shape)
    except LayoutError:
        assert name not in ("text", "json", "tvm")  # which say everything
        return
    assert read(text, name, shape, "elements").layout.equivalent(said)
    if name != "tv":
        assert read(text, None, shape, "elements").layout.equivalent(said)


@pytest.mark.parametrize("name", NOTATIONS)
def test_what_one_notation_looks_like_no_other_does(name: str) -> None:
    example = NOTATIONS[name].example
    fitting = [n.name for n in NOTATIONS.values() if n.looks and re.match(n.looks, example, re.S)]
    assert fitting == ([] if name == "text" else ["cute"] if name == "tv" else [name])


def test_a_notation_that_is_registered_is_known_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layoutalg.interop.registry.NOTATIONS", dict(NOTATIONS))
    register(Notation("mirror", "!]1:8[S", lambda text, _: (parse(text[:0:-1]), None),
                      lambda layout, _: f"!{str(layout)[::-1]}", "!"))  # fmt: skip
    assert notation_of("!]1:8[S") == "mirror"
    assert read("!]1:8[S").layout == parse("S[8:1]")
    assert write("!]1:8[S", "mirror") == "!]1:8[S"
    assert parse("S[8:1]").equivalent("!]1:8[S")


def test_the_command_offers_every_notation() -> None:
    said = CliRunner().invoke(main, ["convert", "--help"]).output
    assert all(name in said for name in NOTATIONS)
    for name in NOTATIONS:
        done = CliRunner().invoke(main, ["convert", NAME, "--to", name])
        assert done.output.strip() == write(D, name, (16, 8)) if name != "cute" else done.exit_code


# -- operands, types and suggestions ------------------------------------------------------------


def test_every_accumulator_is_c_and_d() -> None:
    seen = 0
    for name in fragments.names():
        if name.startswith(("mma", "wgmma.m64n")) and "Nk" not in name:
            first = next(r for r in fragments.rows(name) if r.operand[0] in "CD")
            for role in ("C", "D", "C/D", f"D.{first.dtype}"):
                assert fragments.get(name, role) is first
            assert read(f"{name}:D").fragment is first
            seen += 1
    assert seen > 100


def test_an_accumulator_is_chosen_by_either_name_of_its_type() -> None:
    for operand in ("C/D.f16", "D.f16", "C.float16"):
        assert fragments.get("mma.m16n8k16.f16", operand).operand == "C/D.f16"
    assert fragments.to_html("mma.m16n8k16.f16", "float16") == fragments.to_html(
        "mma.m16n8k16.f16", "f16"
    )


def test_a_type_has_two_names_and_both_are_known_everywhere() -> None:
    for row in OPERANDS:
        assert element_type(row.name) == row
        assert element_bits(row.name, "doc") == row.bits
    for dtype in dtypes.DTYPES:
        token = dtypes.get(dtype.token)
        assert (token.token, dtypes.get(dtype.name)) == (dtype.token, dtype)
        assert element_type(dtype.token) == element_type(token.name)
    assert element_bits(np.float16, "doc") == 16  # type: ignore[arg-type]
    assert layoutalg.tcgen05_atom_layout("16x128b", (64, 64), "f16") == (
        layoutalg.tcgen05_atom_layout("16x128b", (64, 64), "float16")
    )
    assert layoutalg.choose_swizzle((64, 64), "float16") == layoutalg.choose_swizzle(
        (64, 64), "f16"
    )
    wide = [convert(NAME, NAME, (16, 8), bits).bits for bits in ("float32", "f32", 32)]
    assert wide == [32, 32, 32]
    said = [
        json.loads(
            CliRunner().invoke(main, ["swizzle", "64,64", "--dtype", dtype, "--json"]).output
        )
        for dtype in ("f16", "float16", "16")
    ]
    assert said[0] == said[1] == said[2]


def test_a_suggestion_begins_with_what_was_typed_and_is_none_where_nothing_is_near() -> None:
    known = fragments.names()
    assert did_you_mean("m16n8k16", known).startswith("; did you mean mma.m16n8k16.f16, ")
    assert did_you_mean("mma.m16n8k16", known).startswith("; did you mean mma.m16n8k16.f16, ")
    assert "m16n8k8" not in did_you_mean("m16n8k16", known)
    assert did_you_mean("zebra", known) == did_you_mean("", known) == ""
    with pytest.raises(LayoutError, match=r"named 'zebra'; fragments\.names\(\) lists them$"):
        fragments.get("zebra", "A")


def test_parse_points_to_the_reader_that_knows_a_text() -> None:
    with pytest.raises(
        LayoutError, match=r"written in the notation cute: layoutalg\.interop\.read reads it$"
    ):
        parse("((4,8),2):((2,16),1)")
    with pytest.raises(LayoutError) as caught:
        parse("S[(8,4]")
    assert "interop" not in str(caught.value)


def test_a_path_is_given_by_keyword() -> None:
    offered = [TileLayout.to_html, fragments.to_html, fragments.Fragment.to_html]
    offered += [lw.KernelProgram.to_html, lw.Program.to_html]
    kinds = {inspect.signature(each).parameters["path"].kind for each in offered}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


def drawn(name: str, *args: Any, **options: Any) -> str:
    svg: str = getattr(layoutalg.draw, name).svg(*args, **options)
    return svg


def test_pictures_take_whatever_says_a_layout() -> None:
    memory = str(SWIZZLED)
    for said in (ROW, NAME, D):
        shape = () if said is not D else ((16, 8),)
        assert drawn("lane_map", said, *shape) == drawn("lane_map", D, (16, 8))
        assert drawn("derivation", said, *shape) == drawn("derivation", D, (16, 8))
        row_major = "S[(16,8):(8,1)]"
        assert drawn("compare", said, row_major, *shape) == (
            drawn("compare", D, parse(row_major), (16, 8))
        )
        assert drawn("coalescing", said, row_major, *shape) == (
            drawn("coalescing", D, parse(row_major), (16, 8))
        )
        assert layoutalg.draw.layout_html(said, *shape) == D.to_html((16, 8))
    assert drawn("banks", memory, (8, 64), "float16") == drawn("banks", SWIZZLED, (8, 64), 16)
    with pytest.raises(LayoutError, match=r"^lane_map: give the shape of S\[8:1\]"):
        drawn("lane_map", "S[8:1]")


def test_a_name_that_is_an_axis_is_no_size_in_any_notation() -> None:
    for text in (
        "T.TileLayout(T.S[8:1] + laneid)",
        '{"layoutalg": 1, "shard": [["laneid", 1, "m"]]}',
    ):
        with pytest.raises(LayoutError, match="laneid reads as the axis laneid: write 1@laneid"):
            read(text)
