"""Triton linear layouts: each conversion point by point, both ways, and what it refuses."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutalg import Axis, LayoutError, TileLayout, Undecided, fragments, parse
from layoutalg.interop import LinearLayout, from_triton, to_triton
from tests.support.paths import DATA

CASES = {row["id"]: row for row in json.loads((DATA / "cases/layout_op.json").read_text())}
AXES = {"register": "m", "lane": "laneid", "warp": "warpid", "block": "cbx"}
Bases = dict[str, list[list[int]]]


# -- the definitions -------------------------------------------------------------------------------


def element(bases: Bases, place: dict[str, int], rank: int) -> tuple[int, ...]:
    """XOR the basis of every set bit."""
    coord = [0] * rank
    for name, rows in bases.items():
        for bit, row in enumerate(rows):
            if place[name] >> bit & 1:
                coord = [c ^ step for c, step in zip(coord, row, strict=True)]
    return tuple(coord)


def owners(bases: Bases, rank: int) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
    """The places of each element, in the order of the bases."""
    found: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for place in itertools.product(*(range(1 << len(rows)) for rows in bases.values())):
        coord = element(bases, dict(zip(bases, place, strict=True)), rank)
        found.setdefault(coord, set()).add(place)
    return found


def owners_of(layout: TileLayout, shape: tuple[int, ...], names: list[str]) -> Any:
    table = layout.table(shape, replicas=True)
    found: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for coord in itertools.product(*(range(extent) for extent in shape)):
        columns = [
            np.atleast_1d(table[AXES[n]][coord]) if AXES[n] in table else None for n in names
        ]
        copies = (
            max(len(c) for c in columns if c is not None)
            if any(c is not None for c in columns)
            else 1
        )
        found[coord] = {
            tuple(0 if c is None else int(c[i]) for c in columns) for i in range(copies)
        }
    return found


@st.composite
def digit_bases(draw: st.DrawFn) -> tuple[Bases, tuple[int, ...]]:
    """Bases that set each bit of a tile once, in any order, among zero bases."""
    logs = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    bits = [(dim, bit) for dim, log in enumerate(logs) for bit in range(log)]
    rows = [[1 << bit if d == dim else 0 for d in range(len(logs))] for dim, bit in bits]
    rows += [[0] * len(logs)] * draw(st.integers(0, 2))
    bases: Bases = {name: [] for name in AXES}
    for row in draw(st.permutations(rows)):
        bases[draw(st.sampled_from(list(AXES)))].append(row)
    return bases, tuple(1 << log for log in logs)


@settings(deadline=None)
@given(digit_bases())
def test_digits_convert_point_by_point(case: tuple[Bases, tuple[int, ...]]) -> None:
    bases, shape = case
    linear = LinearLayout.of(bases, shape)
    layout = from_triton(linear)
    assert owners_of(layout, shape, list(bases)) == owners(bases, len(shape))
    assert to_triton(layout, shape) == linear


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(st.data())
def test_any_bases_convert_or_swizzle(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(2, 4), (4, 4), (8,), (2, 2, 2)]))
    row = st.tuples(*(st.integers(0, extent - 1) for extent in shape)).map(list)
    bases: Bases = {
        name: data.draw(st.lists(row, max_size=3)) for name in ("register", "lane", "warp")
    }
    linear = LinearLayout.of(bases, shape)
    held = owners(bases, len(shape))
    every = [tuple(row) for rows in bases.values() for row in rows if any(row)]
    bits = [tuple(row) for row in every if sum(c.bit_count() for c in row) == 1]
    plain = len(bits) == len(every) == len(set(every))
    size = int(np.prod(shape))
    for place in itertools.product(*(range(1 << len(rows)) for rows in bases.values())):
        named = dict(zip(bases, place, strict=True))
        assert linear.apply(**named) == element(bases, named, len(shape))
    if plain and len(held) == size:
        assert owners_of(from_triton(linear), shape, list(bases)) == held
    else:
        with pytest.raises(LayoutError, match=r"swizzle|nothing reaches|the strides cover"):
            from_triton(linear)


def test_swizzled_bases_have_no_digits() -> None:
    """What is refused as a swizzle has no layout: no digit of the lane moves the place evenly."""
    bases: Bases = {"lane": [[0, 1], [0, 3]]}
    held = owners(bases, 2)
    lanes = [next(iter(held[0, col]))[0] for col in range(4)]
    assert lanes == [0, 1, 3, 2]
    assert lanes[3] != lanes[2] + lanes[1]
    with pytest.raises(LayoutError, match="sets 2 bits"):
        from_triton(LinearLayout.of(bases, (1, 4)))


WARPS = {name: Axis.get(axis) for name, axis in (AXES | {"warp": "wid_in_wg"}).items()}


@pytest.mark.parametrize("name", fragments.names())
def test_fragments_both_ways(name: str) -> None:
    for operand in fragments.operands(name):
        row = fragments.get(name, operand)
        if any(extent & (extent - 1) for extent in row.tile):
            with pytest.raises(LayoutError, match=r"powers? of two"):
                to_triton(row.layout, row.tile, WARPS)
            continue
        linear = to_triton(row.layout, row.tile, WARPS)
        thread, slot = np.indices(row.holds.shape[:2])
        place = {"register": slot, "lane": thread % 32, "warp": thread // 32}
        assert (np.stack(linear.apply(**place), axis=-1) == row.holds).all()
        back = from_triton(linear, WARPS).table(row.tile)
        for axis, column in row.layout.table(row.tile).items():
            assert np.array_equal(back.get(axis, np.zeros_like(column)), column)


def test_accumulator_of_m16n8() -> None:
    d = fragments.get("mma.m16n8k16.f16", "D")
    assert str(to_triton(d.layout, d.shape)) == (
        "#ttg.linear<{register = [[0, 1], [8, 0]], "
        "lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [], block = []}>"
    )


def test_other_axes() -> None:
    layout = parse("S[(2,4):(1,1@tx)]")
    axes = {"register": Axis.get("m"), "lane": Axis.get("tx")}
    linear = to_triton(layout, (2, 4), axes)
    assert linear == LinearLayout.of({"register": [[1, 0]], "lane": [[0, 1], [0, 2]]}, (2, 4))
    assert from_triton(linear, axes) == layout


# -- text ------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(digit_bases())
def test_text_reads_back(case: tuple[Bases, tuple[int, ...]]) -> None:
    linear = LinearLayout.of(*case)
    assert LinearLayout.parse(str(linear), case[1]) == linear


def test_printed_form_of_triton() -> None:
    text = """
 - register=1 -> (0, 1)
   register=2 -> (8, 0)
 - lane=1 -> (0, 2)
   lane=2 -> (0, 4)
   lane=4 -> (1, 0)
   lane=8 -> (2, 0)
   lane=16 -> (4, 0)
 - warp=1 -> (0, 8)
 - block is a size 1 dimension
where out dims are: [dim0 (size 16), dim1 (size 16)]
"""
    linear = LinearLayout.parse(text)
    assert linear.shape == (16, 16)
    assert str(linear) == (
        "#ttg.linear<{register = [[0, 1], [8, 0]], "
        "lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [[0, 8]], block = []}>"
    )
    assert str(from_triton(linear)) == "S[(2,8,2,4,2):(2,4@laneid,1@warpid,1@laneid,1)]"


# -- the cases -------------------------------------------------------------------------------------


def test_p31_k_repeated_in_a_thread() -> None:
    case = CASES["P31"]
    k, tile = case["input"]["k"], case["input"]["tile_k"]
    # 16 elements of k over 4 lanes, 4 in each; the third bit of the slot repeats them
    rows = [[1], [2]] + [[0]] * (tile // k - 1)
    layout = from_triton(LinearLayout.of({"register": rows, "lane": [[4], [8]]}, (k,)))
    assert all(len(layout.owners(x)) == case["expected"]["replication"] for x in range(k))
    assert {(o["laneid"], o["m"] % 4) for o in layout.owners(6)} == {(1, 2)}


def test_p37_the_second_warp_holds_a_copy() -> None:
    case = CASES["P37"]
    warps = case["input"]["num_warps"]
    lanes = [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16]]
    rows = [[1, 0], [2, 0], [4, 0], [8, 0], [16, 0]]
    both = [[0, 0]] * (warps.bit_length() - 1)
    layout = from_triton(LinearLayout.of({"register": rows, "lane": lanes, "warp": both}, (32, 32)))
    assert len(layout.owners(3, 5, shape=(32, 32))) == case["expected"]["dst_replica"]
    assert {o["warpid"] for o in layout.owners(3, 5, shape=(32, 32))} == {0, 1}


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: from_triton(LinearLayout.of({"lane": [[0, 1], [0, 3]]}, (1, 4))),
            "from_triton: lane[1] = (0, 3) sets 2 bits: the bases swizzle, which no digits of a "
            "TileLayout say",
        ),
        (
            lambda: from_triton(LinearLayout.of({"lane": [[1, 1], [0, 2]]}, (2, 4))),
            "from_triton: lane[0] = (1, 1) sets 2 bits: the bases swizzle, which no digits of a "
            "TileLayout say",
        ),
        (
            lambda: from_triton(LinearLayout.of({"lane": [[1]], "register": [[1]]}, (2,))),
            "from_triton: lane[0] and register[0] both set bit 0 of dimension 0: the bases "
            "swizzle, which no digits of a TileLayout say",
        ),
        (
            lambda: from_triton(LinearLayout.of({"lane": [[2]]}, (4,))),
            "from_triton: dimension 0 of (4,): lane[0] has stride 2, but the smaller strides cover "
            "0..0 only: nothing reaches 1",
        ),
        (
            lambda: from_triton(LinearLayout.of({"lane": [[1]]}, (4,))),
            "from_triton: dimension 0 of (4,): the strides cover 2 of 4 elements",
        ),
        (
            lambda: from_triton(LinearLayout.of({"thread": [[1]]}, (2,))),
            "from_triton: no axis is given for 'thread'; known are register, lane, warp, block",
        ),
        (
            lambda: LinearLayout.of({"lane": [[4]]}, (4,)),
            "triton: a basis is a coordinate inside (4,); got (4,) for lane[0]",
        ),
        (
            lambda: LinearLayout.of({"lane": [[1, 0]]}, (4,)),
            "triton: a basis is a coordinate inside (4,); got (1, 0) for lane[0]",
        ),
        (
            lambda: LinearLayout.of({"lane": [[1]]}, (6,)),
            "triton: the extents of a linear layout are powers of two; got (6,)",
        ),
        (
            lambda: LinearLayout((("lane", ()), ("lane", ())), (1,)),
            "triton: an input dimension is named twice: ['lane', 'lane']",
        ),
        (
            lambda: LinearLayout.of({"lane": [[1]]}, (2,)).apply(lane=2),
            "triton: lane=2 is no place of #ttg.linear<{lane = [[1]]}>; extents are {'lane': 2}",
        ),
        (
            lambda: LinearLayout.parse("#ttg.blocked<{sizePerThread = [1, 4]}>"),
            "triton: a linear layout is written #ttg.linear<{register = [[0, 1]], lane = …}>; got "
            "'#ttg.blocked<{sizePerThread = [1, 4]}>'",
        ),
        (
            lambda: LinearLayout.parse("{lane = [[1]], lane = [[1]]}"),
            "triton: lane is given twice in '{lane = [[1]], lane = [[1]]}'",
        ),
        (
            lambda: LinearLayout.parse("{lane = []}"),
            "triton: the bases must have one rank, or the shape be given; got ranks [] in "
            "'{lane = []}'",
        ),
        (
            lambda: LinearLayout.parse("lane=2 -> (0, 1)"),
            "triton: the bases of lane must come as 1, 2, 4, …; got 2 after 0 of them",
        ),
        (
            lambda: to_triton(parse("S[(2,6):(1,1@laneid)]"), (2, 6)),
            "to_triton: every extent must be a power of two; S[(2,6):(1,1@laneid)] cut by (2, 6) "
            "has 6:1@laneid",
        ),
        (
            lambda: to_triton(parse("S[(2,4):(1,1@tx)]"), (2, 4)),
            "to_triton: S[(2,4):(1,1@tx)] uses tx; the axes given are register = m, lane = laneid, "
            "warp = warpid, block = cbx",
        ),
        (
            lambda: to_triton(parse("S[(2,4):(1,2@laneid)]"), (2, 4)),
            "to_triton: laneid of S[(2,4):(1,2@laneid)]: 4:2@laneid has stride 2, but the smaller "
            "strides cover 0..0 only: nothing reaches 1",
        ),
        (
            lambda: to_triton(parse("S[(2,4):(1,1@laneid)] + 1"), (2, 4)),
            "to_triton: the other notation starts at place 0; S[(2,4):(1,1@laneid)] + 1 has the "
            "offset 1@m",
        ),
    ],
)
def test_refusals_say_why(call: Any, message: str) -> None:
    with pytest.raises(LayoutError) as refused:
        call()
    assert str(refused.value) == message


def test_symbols_are_undecided() -> None:
    with pytest.raises(Undecided):
        to_triton(parse("S[(n,4):(1,1@laneid)]"), (8, 4))


# -- Triton itself ---------------------------------------------------------------------------------


def oracle_module() -> Any:
    pytest.importorskip("triton", reason="needs triton==3.9.0 (extra: oracle)")
    from triton._C.libtriton import linear_layout

    return linear_layout


def test_triton_agrees_at_each_place() -> None:
    module = oracle_module()
    rng = np.random.default_rng(5)
    asked = 0
    for name in fragments.names():
        for operand in fragments.operands(name):
            row = fragments.get(name, operand)
            if any(extent & (extent - 1) for extent in row.shape):
                continue
            linear = to_triton(row.layout, row.shape, WARPS)
            theirs = module.LinearLayout.from_bases(
                [(n, [list(r) for r in rows]) for n, rows in linear.bases], ["dim0", "dim1"]
            )
            assert LinearLayout.parse(str(theirs)) == linear
            for _ in range(16):
                thread, slot = int(rng.integers(row.lanes)), int(rng.integers(row.slots))
                place = {"register": slot, "lane": thread % 32, "warp": thread // 32, "block": 0}
                found = theirs.apply(place)
                assert [found["dim0"], found["dim1"]] == row.coords[thread, slot].tolist()
                asked += 1
    assert asked > 2000


OPERANDS = {  # four warps, 2 x 2, on a tile of 64 x 32 x 16
    "D": ((64, 32), "S[(2,2,2,8,2,2,4,2):(8,2@warpid,2,4@laneid,4,1@warpid,1@laneid,1)]"),
    "A": ((64, 16), "S[(2,2,2,8,2,4,2):(8,2@warpid,2,4@laneid,4,1@laneid,1)] + R[2:1@warpid]"),
    "B": ((16, 32), "S[(2,4,2,2,2,8):(2,1@laneid,1,4,1@warpid,4@laneid)] + R[2:2@warpid]"),
}


@pytest.mark.parametrize("operand", OPERANDS)
def test_gluon_prints_the_same_owners(operand: str) -> None:
    """Triton's own view of an mma operand over 2 x 2 warps, replicas included."""
    pytest.importorskip("triton", reason="needs triton==3.9.0 (extra: oracle)")
    from triton.experimental.gluon import language as gl

    shape, text = OPERANDS[operand]
    theirs: Any = gl.NVMMADistributedLayout([2, 0], [2, 2], instr_shape=[16, 8])
    if operand != "D":
        theirs = gl.DotOperandLayout("AB".index(operand), parent=theirs, k_width=2)
    cells = re.findall(r"T\d+:\d+(?:\|\s*T\d+:\d+)*", theirs.format_tensor_view(list(shape)))
    layout = parse(text)
    for cell, coord in zip(cells, itertools.product(*map(range, shape)), strict=True):
        printed = {tuple(map(int, place)) for place in re.findall(r"T(\d+):(\d+)", cell)}
        ours = layout.owners(*coord, shape=shape)
        assert printed == {(o["laneid"] + 32 * o["warpid"], o["m"]) for o in ours}
    assert from_triton(to_triton(layout, shape)) == layout
