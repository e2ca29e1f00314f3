"""One reader and one writer for all notations: what is written reads back, guessed or named."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutalg import ComposeLayout, LayoutError, TileLayout, fragments, parse
from layoutalg.interop import NOTATIONS, from_latex, read, to_latex, write
from layoutalg.interop.registry import notation_of
from tests.layoutalg.interop.test_tvmscript import anything, layouts, same

D = parse("S[(2,8,4,2):(2,4@laneid,1@laneid,1)]")
TILE = parse("S[(8,64):(64,1)]")


@settings(deadline=None)
@given(anything, st.sampled_from(["text", "tvm", "json"]))
def test_what_is_written_reads_back_and_is_recognised(layout: Any, notation: str) -> None:
    text = write(layout, notation)
    named, guessed = read(text, notation), read(f"\n  {text}  \n")
    assert same(named.layout, layout)
    assert same(guessed.layout, layout)
    swizzled = notation == "text" and isinstance(layout, ComposeLayout)  # TVM writes it so too
    assert guessed.notation == ("tvm" if swizzled else notation)
    assert guessed.shape is None


@settings(deadline=None)
@given(layouts(), st.booleans())
def test_latex_reads_back(layout: TileLayout, dollars: bool) -> None:
    text = to_latex(layout)
    assert text == write(layout, "latex")
    found = read(f"${text}$" if dollars else text)
    assert found.notation == "latex"
    assert found.layout == layout


@pytest.mark.parametrize(
    "text",
    [
        "S[(16*Mt,8):(8*k,1)] + (2*n)@warpid",
        "S[(n + 1,2):(2,1)] + R[2:n//4]",
        "S[(n mod 3,2):((n + 3)**2,1@tid_in_wg)]",
        "S[(Mt,4):(4*Kt*n,1)] + (n**2 + k*n)",
    ],
)
def test_latex_reads_symbols_back(text: str) -> None:
    layout = parse(text)
    assert from_latex(to_latex(layout)) == layout


def test_each_notation_says_an_accumulator_or_a_tile() -> None:
    of_threads = {
        "tv": "((4,8),(2,2)):((32,1),(16,8))",
        "triton": "#ttg.linear<{register = [[0, 1], [8, 0]], lane = [[0, 2], [0, 4], [1, 0], "
        "[2, 0], [4, 0]], warp = [], block = []}>",
        "tvm": "T.TileLayout(T.S[(2, 8, 4, 2):(2, 4 @ Axis.laneid, 1 @ Axis.laneid, 1)])",
    }
    for notation, text in of_threads.items():
        assert write(D, notation, (16, 8)) == text
        found = read(text, notation, (16, 8))
        assert found.layout == D
        assert found.shape == (None if notation == "tvm" else (16, 8))
    assert write(TILE, "cute", (8, 64)) == "(8,64):(64,1)"
    assert read("(8,64):(64,1)").shape == (8, 64)
    swizzled = ComposeLayout(3, 3, 3, TILE)
    bytes_of = write(swizzled, "cute", (8, 64), "bytes", 16)
    assert bytes_of == "Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)"
    assert read(bytes_of).layout == swizzled
    plain = write(swizzled, "cute", (8, 64))
    assert plain == "Sw<3,3,3> o 0 o (8,64):(64,1)"
    assert read(plain, unit="elements").layout == swizzled
    assert {*of_threads, "cute", "text", "json", "latex"} == set(NOTATIONS)


def test_fragments_go_through_triton_and_thread_value_layouts() -> None:
    for name in ("mma.m16n8k16.f16", "mma.m16n8k32.s8", "ldmatrix.m8n8.x4.b16"):
        for row in fragments.rows(name):
            for notation in ("tv", "triton"):
                text = write(row.layout, notation, row.shape)
                assert read(text, notation, row.shape).layout.equivalent(row.layout)


@pytest.mark.parametrize(
    ("text", "notation"),
    [
        ("S[8:1]", "text"),
        ("5@warpid + S[8:1]", "text"),
        ("R[2:1]", "text"),
        ("S[(8,4]:1", "text"),
        ("n", "text"),
        ("8:1", "cute"),
        ("((_4,_8),_2):((_32,_1),_16)", "cute"),
        ("(4,?):(1,4)", "cute"),
        ("S<3,3,3> o 0 o (8,64):(64,1)", "cute"),
        ("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)", "cute"),
        ("#ttg.linear<{register = [[0, 1]]}>", "triton"),
        ("{register = [[0, 1]], lane = []}", "triton"),
        (" - lane=1 -> (0, 1)\n - warp is a size 1 dimension", "triton"),
        ('{"layoutalg": 1, "shard": []}', "json"),
        ("S[\\,]", "latex"),
        ("TileLayout(R[2:1] + S[4:1])", "tvm"),
        ("Tx.TileLayout.from_iters(shard=[])", "tvm"),
        ("T.S[8:1]", "tvm"),
        ("ComposeLayout(3, 3, 3, S[512:1])", "tvm"),
    ],
)
def test_a_notation_is_known_by_how_it_begins(text: str, notation: str) -> None:
    assert notation_of(text) == notation


def test_the_shape_of_a_triton_layout_may_be_given() -> None:
    text = "#ttg.linear<{lane = [[1, 0]], warp = [[0, 0]]}>"
    assert read(text).shape == (2, 1)
    with pytest.raises(LayoutError, match=r"dimension 1 of \(2, 2\): the strides cover 1 of 2"):
        read(text, shape=(2, 2))


REFUSED: dict[str, tuple[Any, str]] = {
    "an unknown notation": (
        lambda: read("S[8:1]", "cuda"),
        f"read: the notation is one of {', '.join(NOTATIONS)}; got 'cuda'",
    ),
    "an unknown notation to write": (
        lambda: write(D, "cuda"),
        f"write: the notation is one of {', '.join(NOTATIONS)}; got 'cuda'",
    ),
    "no text": (lambda: read(8), "read: needs text; got 8"),  # type: ignore[arg-type]
    "no text of LaTeX": (
        lambda: from_latex(8),  # type: ignore[arg-type]
        "from_latex: needs text; got 8",
    ),
    "a thread-value layout without a shape": (
        lambda: read("(4,2):(2,1)", "tv"),
        "read: a thread-value layout does not say its shape: give it",
    ),
    "a bare swizzle": (
        lambda: read('{"layoutalg": 1, "swizzle": [3, 3, 3]}'),
        "read: a bare swizzle is no layout of a tile: compose it with one; got "
        "SwizzleLayout(per_element=3, swizzle_len=3, atom_len=3, swizzle_inner=True)",
    ),
    "a shape that is needed": (
        lambda: write(TILE, "cute"),
        "write: cute says a layout over its shape: give the shape of S[(8,64):(64,1)]",
    ),
    "a swizzle in triton": (
        lambda: write(ComposeLayout(3, 3, 3, TILE), "triton", (8, 64)),
        "write: triton cannot say a swizzle; got ComposeLayout(3, 3, 3, S[(8,64):(64,1)])",
    ),
    "a swizzle in LaTeX": (
        lambda: write(ComposeLayout(3, 3, 3, TILE), "latex"),
        "to_latex: a swizzled layout has no such form; got "
        "ComposeLayout(3, 3, 3, S[(8,64):(64,1)])",
    ),
    "a ragged array": (
        lambda: from_latex(r"S\left[\begin{array}{cc}8 & 2 \\ 1\end{array}\right]"),
        "from_latex: an array has a row of extents and one of as many strides; got "
        r"S\left[\begin{array}{cc}8 & 2 \\ 1\end{array}\right]",
    ),
    "an axis that is none, in LaTeX": (
        lambda: from_latex(r"S\left[\begin{array}{c}8 \\ 4@\mathrm{landid}\end{array}\right]"),
        "parse: axis: no axis is named 'landid'; did you mean laneid? (Axis.register makes a new "
        "one)\n  S[(8,):(4@landid,)]\n            ^",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_layout_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(LayoutError, match=f"^{re.escape(message)}$"):
        call()
