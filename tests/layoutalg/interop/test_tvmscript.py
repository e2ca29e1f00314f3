"""TVMScript: each layout reads back exactly, and TVM's own prints are met letter by letter."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutalg import (
    ComposeLayout,
    Iter,
    LayoutError,
    R,
    S,
    SwizzleLayout,
    TileLayout,
    laneid,
    m,
    parse,
    warpid,
)
from layoutalg.errors import pointed
from layoutalg.interop import from_json, from_tvmscript, to_json, to_tvmscript
from layoutalg.sizes.symbolic import symbol
from tests.support.vectors import layout as of_vector
from tests.support.vectors import read

AXES = ("m", "laneid", "warpid", "tid_in_wg", "TLane", "TCol", "cbx", "P")
n, k = symbol("n"), symbol("k")
SIZES = (8 * n, n + 1, n * k, (n + 3) ** 2, parse("S[1:n//3]").shard[0].stride)


@st.composite
def layouts(draw: st.DrawFn, symbols: bool = False) -> TileLayout:
    number = st.integers(-(1 << 70), 1 << 70)
    size = st.one_of(number, st.sampled_from(SIZES)) if symbols else number
    extent = (
        st.one_of(st.integers(1, 64), st.sampled_from(SIZES)) if symbols else st.integers(1, 64)
    )
    iters = st.lists(st.builds(Iter, extent, size, st.sampled_from(AXES)), max_size=4)
    offset = draw(st.dictionaries(st.sampled_from(AXES), size, max_size=3))
    return TileLayout.from_iters(draw(iters), draw(iters), offset)  # type: ignore[arg-type]


@st.composite
def swizzled(draw: st.DrawFn) -> ComposeLayout:
    length = draw(st.integers(0, 3))
    tile = TileLayout.from_iters(draw(st.lists(st.builds(Iter, st.integers(1, 9)), max_size=3)))
    atom = length + draw(st.integers(0, 2))
    return ComposeLayout(draw(st.integers(0, 4)), length, atom, tile, draw(st.booleans()))


anything = st.one_of(layouts(), layouts(symbols=True), swizzled())


def same(a: Any, b: Any) -> bool:
    """Equal, zero offsets included: the reading keeps what was written."""
    if isinstance(a, ComposeLayout) or isinstance(b, ComposeLayout):
        return bool(a == b) and same(a.tile_layout, b.tile_layout)
    return bool(a.shard == b.shard and a.replica == b.replica and dict(a.offset) == dict(b.offset))


# -- TVMScript -------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    anything, st.sampled_from(["spec", "iters"]), st.sampled_from(["T", "Tx", "tvm.script.tirx"])
)
def test_tvmscript_reads_back(layout: Any, spelling: str, prefix: str) -> None:
    assert same(from_tvmscript(to_tvmscript(layout, spelling, prefix)), layout)


NUMBERS = parse("S[(8,2):(4@laneid,1)] + R[2:4@warpid] + 5@warpid + 3")
SWIZZLED = ComposeLayout(3, 3, 3, TileLayout(S[512:1]))
PRINTED = [  # (layout, spelling, what TVM prints for it)
    (
        parse("S[(2,8,4,2):(2,4@laneid,1@laneid,1)]"),
        "spec",
        "T.TileLayout(T.S[(2, 8, 4, 2):(2, 4 @ Axis.laneid, 1 @ Axis.laneid, 1)])",
    ),
    (parse("S[8,4]"), "spec", "T.TileLayout(T.S[(8, 4):(4, 1)])"),
    (parse("S[8:1]"), "spec", "T.TileLayout(T.S[8:1])"),
    (TileLayout(S[()]), "spec", "T.TileLayout.from_iters()"),
    (
        NUMBERS,
        "spec",
        "T.TileLayout(T.S[(8, 2):(4 @ Axis.laneid, 1)] + T.R[2:4 @ Axis.warpid] + "
        "(3 + 5 @ Axis.warpid))",
    ),
    (TileLayout(R[2 : 4 @ warpid]), "spec", "T.TileLayout(T.R[2:4 @ Axis.warpid])"),
    (
        parse("S[8] + R[(2,3):(4,1@warpid)]"),
        "spec",
        "T.TileLayout(T.S[8:1] + T.R[(2, 3):(4, 1 @ Axis.warpid)])",
    ),
    (
        parse("S[(8,4):(-4,(-1)@laneid)]"),
        "spec",
        "T.TileLayout(T.S[(8, 4):(-4, -1 @ Axis.laneid)])",
    ),
    (
        TileLayout.from_iters([Iter(8, 1, laneid)], offset={"laneid": -3, "m": -2}),
        "spec",
        "T.TileLayout(T.S[8:1 @ Axis.laneid] + (-3 @ Axis.laneid + -2))",
    ),
    (
        TileLayout.from_iters([Iter(8, 1, laneid)], offset={m: 0}),
        "spec",
        "T.TileLayout(T.S[8:1 @ Axis.laneid] + 0)",
    ),
    (
        TileLayout.from_iters([], offset={"laneid": 3}),
        "spec",
        'T.TileLayout.from_iters(offset={"laneid": 3})',
    ),
    (SWIZZLED, "spec", "T.ComposeLayout(3, 3, 3, T.TileLayout(T.S[512:1]))"),
    (
        ComposeLayout(3, 3, 3, TileLayout(S[512:1]), swizzle_inner=False),
        "spec",
        "T.ComposeLayout(3, 3, 3, T.TileLayout(T.S[512:1]), swizzle_inner=False)",
    ),
    (
        NUMBERS,
        "iters",
        'T.TileLayout.from_iters(shard=[T.Iter(8, 4, "laneid"), T.Iter(2, 1, "m")], '
        'replica=[T.Iter(2, 4, "warpid")], offset={"m": 3, "warpid": 5})',
    ),
    (TileLayout(S[()]), "iters", "T.TileLayout.from_iters(shard=[], replica=[])"),
    (
        SWIZZLED,
        "iters",
        "T.ComposeLayout(3, 3, 3, "
        'T.TileLayout.from_iters(shard=[T.Iter(512, 1, "m")], replica=[]))',
    ),
]


@pytest.mark.parametrize(("layout", "spelling", "printed"), PRINTED)
def test_tvm_prints_the_same(layout: Any, spelling: str, printed: str) -> None:
    """Texts printed by apache-tvm 0.27.0.post1 ("spec") and apache-tvm-tirx 0.1.0a4 ("iters")."""
    assert to_tvmscript(layout, spelling) == printed
    assert same(from_tvmscript(printed), layout)


@pytest.mark.parametrize(
    ("printed", "layout"),
    [  # symbolic sizes and casts, printed by apache-tvm 0.27.0.post1
        (
            "T.TileLayout(T.S[(T.int64(8), T.int64(4)):(T.int64(4), T.int64(1) @ Axis.laneid)])",
            "S[(8,4):(4,1@laneid)]",
        ),
        (
            "T.TileLayout(T.S[(n + 1, k, 8):((n + 1) * 2, k % T.int64(4) @ Axis.laneid, "
            '(n + 1) * 2)] + ((n + 1) @ Axis.laneid + T.Cast("int64", n) * k))',
            "S[(n + 1,k,8):(2*n + 2,(k % 4)@laneid,2*n + 2)] + (n + 1)@laneid + (k*n)",
        ),
        (
            "T.TileLayout(T.S[(n * 2 - 1, 8):(n * -1, n * -1 @ Axis.laneid)] + "
            "((n - 1) @ Axis.laneid + n * -1))",
            "S[(2*n - 1,8):(-n,(-n)@laneid)] + (n - 1)@laneid + (-n)",
        ),
        (
            "T.TileLayout(T.S[(n % 4, 8):(n // 3, 1 @ Axis.laneid)] + n)",
            "S[(n % 4,8):(n//3,1@laneid)] + n",
        ),
        # by hand, in spellings that TVM's own sources use
        ("Tx.TileLayout(Tx.S[8, 4, 2])", "S[8,4,2]"),
        ("S[(8, 4) : (4 @ laneid, 'laneid')]", "S[(8,4):(4@laneid,1@laneid)]"),
        (
            "TileLayout(64 + S[[8, 4] : [(4, 'laneid'), 1 @ Axis.get('m')]])",
            "S[(8,4):(4@laneid,1)] + 64",
        ),
        ("TileLayout.from_iters([Iter(8, 4, 'laneid')], offset={Axis.m: 3})", "S[8:4@laneid] + 3"),
        ("\n  T.TileLayout(\n    T.S[8:1]  # a comment\n  )\n", "S[8:1]"),
    ],
)
def test_spellings_that_are_read(printed: str, layout: str) -> None:
    found = from_tvmscript(printed)
    assert isinstance(found, TileLayout)
    assert str(found.canonicalize()) == str(parse(layout).canonicalize())


def test_older_swizzles_are_read() -> None:
    older = (
        "Tx.ComposeLayout(Tx.SwizzleLayout(3, 3, 3, swizzle_inner=True), Tx.TileLayout(Tx.S[512]))"
    )
    assert from_tvmscript(older) == SWIZZLED
    named = "T.SwizzleLayout(per_element=3, swizzle_len=2, atom_len=3, swizzle_inner=False)"
    assert from_tvmscript(named) == SwizzleLayout(3, 2, 3, swizzle_inner=False)
    named = "T.ComposeLayout(3, 3, atom_len=3, tile_layout=T.TileLayout(T.S[512:1]))"
    assert from_tvmscript(named) == SWIZZLED


def test_every_vector_reads_back_from_both_texts() -> None:
    """Layouts of all kinds that TVM made: the conformance vectors of canonicalize and compose."""
    seen = 0
    for name in ("canonicalize.jsonl", "compose.jsonl"):
        for row in read(name):
            for data in (row["in"].get("layout"), row["in"].get("tiled"), row.get("out")):
                if not isinstance(data, dict) or not {"shard", "swizzle"} & set(data):
                    continue
                layout = of_vector(data)
                assert same(from_tvmscript(to_tvmscript(layout)), layout)
                assert same(from_json(to_json(layout)), layout)
                seen += 1
    assert seen > 500


@pytest.mark.parametrize(
    ("text", "message", "part"),
    [
        ("", "from_tvmscript: '' is no expression: invalid syntax", ""),
        (
            "T.TileLayout(T.S[__import__('os').system('x'):1])",
            "from_tvmscript: a size must be an integer expression of + - * // % and powers",
            "__import__('os').system('x')",
        ),
        (
            "T.TileLayout(T.S[n:T.max(n, 3)])",
            "from_tvmscript: a size must be an integer expression of + - * // % and powers",
            "T.max(n, 3)",
        ),
        (
            "T.Layout(3)",
            "from_tvmscript: expected TileLayout(...), TileLayout.from_iters(...), "
            "ComposeLayout(...) or S[...]",
            "T.Layout(3)",
        ),
        (
            "T.TileLayout(T.S[8:1@landid])",
            "from_tvmscript: axis: no axis is named 'landid'; did you mean laneid? "
            "(Axis.register makes a new one)",
            "landid",
        ),
        (
            "T.TileLayout(T.S[8:1] + T.S[4:1])",
            "from_tvmscript: layout: there can be one S[...]; got S[8:1] + S[4:1]. Write one "
            "S with all its iters",
            "T.S[8:1] + T.S[4:1]",
        ),
        (
            "T.TileLayout(T.S[(8, 4):(1, 2, 3)])",
            "from_tvmscript: S[...]: needs one stride per extent; got the extents (8, 4) and "
            "the strides (1@m, 2@m, 3@m)",
            "T.S[(8, 4):(1, 2, 3)]",
        ),
        (
            "T.TileLayout(T.S[8:1:2])",
            "from_tvmscript: S[...] takes extents : strides",
            "T.S[8:1:2]",
        ),
        ("T.TileLayout(T.Q[8:1])", "from_tvmscript: expected S[...] or R[...]", "T.Q"),
        ("T.TileLayout()", "from_tvmscript: TileLayout takes spec", "T.TileLayout()"),
        (
            "T.TileLayout(T.S[8:1], spec=3)",
            "from_tvmscript: every argument must be given once, by its name",
            "3",
        ),
        (
            "T.ComposeLayout(3, 3, 3)",
            "from_tvmscript: ComposeLayout takes per_element, swizzle_len, atom_len, "
            "tile_layout, swizzle_inner",
            "T.ComposeLayout(3, 3, 3)",
        ),
        (
            "T.ComposeLayout(3, 3, 3, T.SwizzleLayout(3, 3, 3))",
            "from_tvmscript: a swizzle is composed with a TileLayout",
            "T.SwizzleLayout(3, 3, 3)",
        ),
        ("T.SwizzleLayout(3, n, 3)", "from_tvmscript: a swizzle takes numbers", "n"),
        ("T.SwizzleLayout(3, 3, 3, 1)", "from_tvmscript: swizzle_inner is True or False", "1"),
        (
            "T.TileLayout.from_iters([(8, 1)])",
            'from_tvmscript: expected Iter(extent, stride, "axis")',
            "(8, 1)",
        ),
        (
            'T.TileLayout.from_iters(offset={"m": 1, "m": 2})',
            "from_tvmscript: an axis must have one offset",
            '"m"',
        ),
        ("T.TileLayout(T.S[8:1//0])", "from_tvmscript: division by zero", "1//0"),
        (
            "T.TileLayout(T.S[8:9**64**64])",
            "from_tvmscript: an exponent must be a number from 0 to 64",
            "9**64**64",
        ),
        (
            "T.TileLayout(T.S[0:1])",
            "from_tvmscript: S[...]: extent: must be at least 1; got 0",
            "T.S[0:1]",
        ),
        (
            "T.TileLayout(T.S[8:True])",
            "from_tvmscript: a size must be an integer expression of + - * // % and powers",
            "True",
        ),
    ],
)
def test_tvmscript_refusals(text: str, message: str, part: str) -> None:
    with pytest.raises(LayoutError) as refused:
        from_tvmscript(text)
    carets = f"\n{pointed(text, text.rindex(part), len(part))}" if part else ""
    assert str(refused.value) == message + carets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (8, "from_tvmscript: needs text; got 8"),
        ("S[8:1 << 2]", "+ - * // % and powers\n  S[8:1 << 2]\n      ^^^^^^"),
        ("S[8:" + "1+" * 800 + "1]", "from_tvmscript: the expression nests too deeply"),
        (
            "T.ComposeLayout(S[8:1], S[8:1])",
            "first of two arguments must be a SwizzleLayout",
        ),
        ("T.TileLayout.from_iters(offset=3)", 'offset must be a dict such as {"laneid": 3}'),
        ("T.TileLayout.from_iters(offset={**n})", "offset must name its axes"),
        ("T.TileLayout.from_iters(shard=3)", "iters come as a list"),
        ("S[8:1 @ 3]", "expected an axis\n  S[8:1 @ 3]\n          ^"),
    ],
)
def test_more_tvmscript_refusals(text: Any, message: str) -> None:
    with pytest.raises(LayoutError) as refused:
        from_tvmscript(text)
    assert message in str(refused.value)


def test_an_axis_alone_is_a_stride_of_one() -> None:
    assert from_tvmscript("S[(8, 4) : (4 @ laneid, laneid)]") == parse(
        "S[(8,4):(4@laneid,1@laneid)]"
    )


@pytest.mark.parametrize("text", ["(" * 5000 + "1" + ")" * 5000, "1" + "+1" * 50_000, "9" * 10_000])
def test_hostile_text_is_refused_quickly(text: str) -> None:
    with pytest.raises(LayoutError):
        from_tvmscript(f"T.TileLayout(T.S[8:n**{text}])")


def test_powers_are_bounded() -> None:
    with pytest.raises(LayoutError, match="at most 4096 bits"):
        from_tvmscript("S[8:((9**64)**64)**64]")


def test_what_tvmscript_cannot_say() -> None:
    with pytest.raises(LayoutError, match=r"no bare swizzle; .*ComposeLayout\(3, 3, 3, TileLayout"):
        to_tvmscript(SwizzleLayout(3, 3, 3))  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="the spelling is spec or iters; got 'json'"):
        to_tvmscript(SWIZZLED, "json")


# -- the package -----------------------------------------------------------------------------------


def test_interop_is_loaded_only_on_demand() -> None:
    code = (
        "import sys, layoutalg; assert not any('interop' in name for name in sys.modules); "
        "import layoutalg.interop; "
        "print([n for n in ('sympy', 'matplotlib', 'numba', 'tensor_layouts') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- TVM itself ------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_tvm_reads_and_prints_alike(data: st.DataObject) -> None:
    pytest.importorskip("tvm", reason="needs apache-tvm==0.27.0.post1 (extra: oracle)")
    from tvm.script import tirx
    from tvm.tirx.layout import Axis as TvmAxis

    number = st.integers(-100, 100)
    iters = st.lists(st.builds(Iter, st.integers(1, 64), number, st.sampled_from(AXES)), max_size=4)
    offset = data.draw(st.dictionaries(st.sampled_from(AXES), number, max_size=3))
    replica = data.draw(iters)[:1]  # TVM orders several replicas by a hash
    layout = TileLayout.from_iters(data.draw(iters), replica, offset)  # type: ignore[arg-type]
    theirs = eval(to_tvmscript(layout), {"T": tirx, "Axis": TvmAxis})  # our own text, read by TVM
    assert str(theirs) == to_tvmscript(layout)
    assert same(from_tvmscript(str(theirs)), layout)
