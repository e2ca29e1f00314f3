"""The layout of a reduction's result: who holds (i, 0), and in which registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutalg import Axis, LayoutError, TileLayout, Undecided, parse
from tests.support.strategies import Grouped, grouped_layouts, laws


def owners(layout: TileLayout, shape: tuple[int, ...], memory: bool) -> dict[Any, set[Any]]:
    """Return the thread, or memory, coordinates of each element."""
    table = layout.table(shape, replicas=True)
    axes = sorted(name for name in table if Axis.get(name).memory == memory)
    found: dict[Any, set[Any]] = {}
    for at in np.ndindex(*shape):
        columns = [table[name][at].ravel().tolist() for name in axes]
        rows = list(zip(*columns, strict=True)) or [()]
        found[at] = {frozenset(p for p in zip(axes, row, strict=True) if p[1]) for row in rows}
    return found


@given(grouped_layouts().filter(lambda each: bool(each.shape)), st.data())
@laws
def test_every_thread_that_held_an_element_holds_the_result(
    grouped: Grouped, data: st.DataObject
) -> None:
    layout, shape = grouped
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    result = layout.reduced(shape, tuple(axes))
    small = tuple(1 if dim in axes else n for dim, n in enumerate(shape))
    wanted: dict[Any, set[Any]] = {}
    for at, threads in owners(layout, shape, memory=False).items():
        to = tuple(0 if dim in axes else i for dim, i in enumerate(at))
        wanted.setdefault(to, set()).update(threads)
    assert owners(result, small, memory=False) == wanted
    for each in result.offset:
        assert each.thread


@given(
    grouped_layouts(axes=["laneid", "m"], replicas=False, offsets=False).filter(
        lambda each: bool(each.shape)
    ),
    st.data(),
)
@laws
def test_registers_are_dense_and_keep_their_order(grouped: Grouped, data: st.DataObject) -> None:
    layout, shape = grouped
    axis = data.draw(st.integers(0, len(shape) - 1))
    result = layout.reduced(shape, axis)
    if layout.is_injective():
        small = tuple(1 if dim == axis else n for dim, n in enumerate(shape))
        registers = result.table(small).get("m", np.zeros(small, dtype=int))
        assert set(registers.ravel().tolist()) == set(range(registers.max() + 1))


@pytest.mark.parametrize(
    ("text", "shape", "axis", "result"),
    [
        ("S[(16,4):(4,1)]", (16, 4), 1, "S[16:1]"),
        ("S[(16,4):(4,1)]", (16, 4), 0, "S[4:1]"),
        ("S[(4,16):(1,4)]", (4, 16), 1, "S[4:1]"),
        ("S[(2,2,4):(4,1,8)]", (2, 2, 4), 2, "S[4:1]"),
        ("S[(2,2,4):(1,4,8)]", (2, 2, 4), 2, "S[(2,2):(1,2)]"),  # in the order that they have
        ("S[(32,4):(1@laneid,1)]", (32, 4), None, "S[1:1] + R[32:1@laneid]"),
        ("S[(32,4):(1@laneid,1)]", (32, 4), (0, -1), "S[1:1] + R[32:1@laneid]"),
        ("S[(8,4):(4@laneid,1)] + R[4:1@laneid]", (8, 4), 1, "S[8:4@laneid] + R[4:1@laneid]"),
        ("S[(4,4):(1,1@laneid)] + R[2:8]", (4, 4), 1, "S[4:1] + R[4:1@laneid]"),
        ("S[(8,4):(1@laneid,1)] + 2@laneid + 3", (8, 4), 0, "S[4:1] + R[8:1@laneid] + 2@laneid"),
        ("S[(8,1,4):(1@laneid,1@wid_in_wg,1@wgid)]", (8, 4), 0,
         "S[(1,1,4):(1@laneid,1@wid_in_wg,1@wgid)] + R[8:1@laneid]"),
        ("S[(4,8):(0,1)]", (4, 8), 1, "S[4:0]"),
        ("S[(4,8):(0@laneid,1)]", (4, 8), 0, "S[8:1]"),
        ("S[(2,4,8):(1@TLane,4@TCol,32@TCol)]", (2, 32), 0, "S[(4,8):(1@TCol,4@TCol)]"),
        ("S[(8*Mt,4):(4,1)]", ("8*Mt", 4), 1, "S[8*Mt:1]"),
        ("S[(8*Mt,4):(4,1)]", ("8*Mt", 4), 0, "S[4:1]"),
    ],
)  # fmt: skip
def test_examples(text: str, shape: Any, axis: Any, result: str) -> None:
    layout = parse(text)
    assert isinstance(layout, TileLayout)
    sizes = tuple(parse(f"S[{n}:1]").shard[0].extent for n in shape)
    assert str(layout.reduced(sizes, axis)) == result


def test_an_order_that_symbols_leave_open_is_undecided() -> None:
    layout = parse("S[(2,3,4):(Mt,Nt,1)]")
    with pytest.raises(Undecided, match=r"reduced: is stride Mt below Nt"):
        layout.reduced((2, 3, 4), 2)


@pytest.mark.parametrize(
    ("shape", "axis", "said"),
    [
        ((16, 4), 2, r"reduced: axis must be a dimension -2\.\.1, a tuple of them, .*; got 2"),
        ((16, 4), (0, -2), r"reduced: axis names a dimension twice; got \(0, -2\)"),
        ((16, 4), True, r"got True"),
        ((16, 4), 1.0, r"got 1\.0"),
        ((16, 4), (), r"got \(\)"),
        ((16, 8), 1, r"reduced: the shape must hold as many elements as the layout"),
    ],
)  # fmt: skip
def test_refusals(shape: Any, axis: Any, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        parse("S[(16,4):(4,1)]").reduced(shape, axis)
