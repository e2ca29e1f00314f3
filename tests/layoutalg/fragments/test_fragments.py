"""The fragment table: every row proved when it is made, wrong rows refused, and no row by prose."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sympy

import lowering as lw
from layoutalg import LayoutError, R, S, TileLayout, fragments, laneid
from layoutalg.algebra.axis import WARP
from layoutalg.algebra.iters import Iter
from layoutalg.fragments.fragment import LANE_DIGITS, Formula, Fragment
from tests.support.paths import DATA

ROWS = [row for name in fragments.names() for row in fragments.rows(name)]
# One row of each layout, rule and width: instructions that differ in their types alone share them.
DISTINCT = list({(str(r.layout), str(r.formula), r.tile, r.bits): r for r in ROWS}.values())
TABLES = json.loads((DATA / "cases/fragments_dev.json").read_text())


def named(row: Fragment) -> str:
    return f"{row.instruction} {row.operand}"


def test_the_published_tables_are_ours_element_by_element() -> None:
    assert len(TABLES) == 49
    for table in TABLES:
        row = fragments.get(table["instr"], table["operand"])
        assert row.coords.tolist() == table["coords"], named(row)
        have = row.registers, row.pack, row.bits, row.register_bits, row.min_arch, row.lanes
        keys = ("regs", "elems_per_reg", "elem_bits", "reg_bits", "min_arch", "lanes")
        assert have == tuple(table[key] for key in keys), named(row)
        assert (list(row.shape), row.dtype) == (table["shape"], table["elem_dtype"])


# -- what is proved -------------------------------------------------------------------------------


def by_definition(row: Fragment) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return what each lane and slot holds, by the rule alone, digit by digit in plain Python."""
    found = {}
    for lane in range(row.lanes):
        values = {name: lane // w % extent for name, (w, extent) in LANE_DIGITS.items()}
        for slot in range(row.slots):
            rest = slot
            for name, extent in reversed(row.formula.digits):
                values[name] = rest % extent
                rest //= extent
            found[lane, slot] = tuple(
                sum(weight * values[name] for name, weight in side.items())
                for side in row.formula.sides
            )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("row", [r for r in DISTINCT if r.shape[1] <= 32], ids=named)
def test_a_row_holds_what_its_rule_says_and_each_element_as_often(row: Fragment) -> None:
    rule = by_definition(row)
    assert {(lane, slot): tuple(c) for (lane, slot), c in rule.items()} == {
        (lane, slot): tuple(row.holds[lane, slot].tolist()) for lane, slot in rule
    }
    _, counts = np.unique(np.array(list(rule.values())), axis=0, return_counts=True)
    assert set(counts) == {row.copies}
    assert len(counts) == np.prod(row.tile)
    assert row.copies * np.prod(row.tile) == row.lanes * row.slots


def test_layout_and_rule_are_one_linear_form_in_sympy() -> None:
    """Thread and slot of a rule's element, by the layout, simplified: the rule's own."""
    for row in ROWS:
        here, said = row.symbolic()
        for one, other in zip(here, said, strict=True):
            assert sympy.expand(sympy.sympify(one) - sympy.sympify(other)) == 0, named(row)
        digits = {str(symbol) for each in said for symbol in sympy.sympify(each).free_symbols}
        extents = dict(row.formula.digits) | {n: e for n, (_, e) in LANE_DIGITS.items()}
        assert int(np.prod([extents[name] for name in digits])) * row.copies == (
            row.lanes * row.slots
        )


def test_registers_are_counted_from_bits() -> None:
    for row in ROWS:
        bits = row.slots * row.bits
        assert (row.registers - 1) * row.register_bits < bits <= row.registers * row.register_bits
        assert row.source.startswith("PTX ISA, "), named(row)
        assert row.targets, named(row)


def test_copies_are_where_the_machine_lets_lanes_agree() -> None:
    copies = {named(row): row.copies for row in ROWS if row.copies > 1}
    assert {name.split()[1] for name in copies} == {"E", "SFA", "SFB"}
    assert copies["mma.sp.m16n8k16.f16 E"] == 4
    assert copies["mma.sp.m16n8k32.bf16 E"] == 2
    assert copies["mma.m16n8k64.mxf4.e2m1.ue8m0 SFA"] == 2
    assert copies["mma.m16n8k64.mxf4.e2m1.ue8m0 SFB"] == 4


# -- what is refused ------------------------------------------------------------------------------


def mutations(layout: TileLayout) -> Iterator[TileLayout]:
    """Yield a layout with one stride of one iterator changed, and with one replica changed."""
    for side, iters in (("shard", layout.shard), ("replica", layout.replica)):
        for at, it in enumerate(iters):
            if it.extent == 1:
                continue
            for stride in {2 * int(it.stride), int(it.stride) + 1, int(it.stride) // 2}:
                changed = (*iters[:at], Iter(it.extent, stride, it.axis), *iters[at + 1 :])
                parts = {"shard": layout.shard, "replica": layout.replica} | {side: changed}
                yield TileLayout.from_iters(parts["shard"], parts["replica"])
    if layout.replica:
        yield TileLayout.from_iters(layout.shard)


def test_every_stride_of_every_row_counts() -> None:
    """Flip each: a row that differs in one stride is refused when it is made."""
    flipped = 0
    for row in DISTINCT:
        for layout in mutations(row.layout):
            with pytest.raises(LayoutError, match=f"^fragment {row.instruction} "):
                dataclasses.replace(row, layout=layout)
            flipped += 1
    assert flipped > 1500


@pytest.mark.slow
def test_every_weight_of_every_rule_counts() -> None:
    for row in DISTINCT:
        for side in ("row", "col"):
            weights = getattr(row.formula, side)
            for name in weights:
                other = dataclasses.replace(row.formula, **{side: weights | {name: 3}})
                with pytest.raises(LayoutError, match=f"^fragment {row.instruction} "):
                    dataclasses.replace(row, formula=other)


def test_the_unmasked_column_of_b1_is_refused() -> None:
    """PTX ISA prints col = 32*t + i for elements 0..63 of A of m16n8k256: 32..63 run on."""
    row = fragments.get("mma.m16n8k256.b1", "A")
    literal = Formula(row.formula.digits, row.formula.row, dict(row.formula.col) | {"rM": 32})
    with pytest.raises(LayoutError, match=r"slot 32 holds \(8, 0\) by the layout .*, \(8, 32\) by"):
        dataclasses.replace(row, formula=literal)


def test_the_halved_stride_of_int4_b_is_refused() -> None:
    """A well-known library has the lanes' k stride of m16n8k32 at half of what it must be."""
    row = fragments.get("mma.m16n8k32.s4", "B")
    assert str(row.layout) == "S[(4,8,8):(1@laneid,1,4@laneid)]"
    halved = TileLayout(S[(2, 4, 4, 8) : (4, 1 @ laneid, 1, 4 @ laneid)])
    with pytest.raises(LayoutError, match="lane 0 slot 4 holds"):
        dataclasses.replace(row, layout=halved)


def test_a_bijection_that_misplaces_nearly_all_is_refused() -> None:
    """k of m8n8k128.b1 dealt out lane by lane, bit by bit: onto, and wrong but for a few."""
    row = fragments.get("mma.m8n8k128.b1", "A")
    dealt = TileLayout(S[(8, 32, 4) : (4 @ laneid, 1, 1 @ laneid)])
    with pytest.raises(LayoutError, match=r"differ$") as caught:
        dataclasses.replace(row, layout=dealt)
    assert int(str(caught.value).split("; ")[-1].split()[0]) > 900


def test_a_swapped_operand_list_is_refused() -> None:
    """Registers 1 and 2 of A exchanged: one instruction, another fragment."""
    row = fragments.get("mma.m16n8k16.f16", "A")
    swapped = TileLayout(S[(2, 8, 2, 4, 2) : (4, 4 @ laneid, 2, 1 @ laneid, 1)])
    with pytest.raises(LayoutError, match=r"lane 0 slot 2 holds \(0, 8\) by the layout"):
        dataclasses.replace(row, layout=swapped)


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "too few elements": ("E", {"layout": TileLayout(S[(16, 4) : (1 @ laneid, 1)])}, "128 elements"),
    "no copies": ("E", {"layout": TileLayout(S[(2, 8, 8) : (8, 4 @ laneid, 1)])}, "in 4 copies"),
    "copies elsewhere": (
        "E",
        {"layout": TileLayout(S[(2, 8, 8) : (8, 4 @ laneid, 1)] + R[4 : 8 @ laneid])},
        "does not give each slot",
    ),
    "lanes below zero": (
        "A",
        {"layout": TileLayout(S[(2, 8, 4, 2) : (2, -4 @ laneid, 1 @ laneid, 1)])},
        "does not give each slot",
    ),
    "an odd number of bits": ("A", {"bits": 24}, "do not fill whole registers of 32 bits"),
    "another warp": ("A", {"lanes": 64}, "each slot of 64 lanes one element in 2 copies"),
    "no target": ("A", {"min_arch": "sm_999"}, "sm_999"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_row_that_cannot_be_is_refused(name: str) -> None:
    operand, change, message = BAD[name]
    with pytest.raises(LayoutError, match=message):
        dataclasses.replace(fragments.get("mma.sp.m16n8k16.f16", operand), **change)


def test_a_rule_names_its_digits() -> None:
    with pytest.raises(LayoutError, match="formula: unknown digit x"):
        Formula((("p", 2),), {"g": 1}, {"x": 2})


# -- the families ---------------------------------------------------------------------------------


def test_the_nonzeros_of_sparse_a_lie_as_half_of_dense_k() -> None:
    for k, dense in ((16, "mma.m16n8k8.f16"), (32, "mma.m16n8k16.f16")):
        sparse = fragments.get(f"mma.sp.m16n8k{k}.f16", "A")
        assert np.array_equal(sparse.coords, fragments.get(dense, "A").coords)
        positions = fragments.get(f"mma.sp.m16n8k{k}.f16", "E")
        assert positions.shape == sparse.shape
        assert positions.registers == 1


def test_the_positions_lie_where_the_manual_draws_them() -> None:
    """PTX ISA, metadata figures: lane 4g + t has row g in its low half, row g + 8 in its high."""
    e = fragments.get("mma.sp.m16n8k32.f16", "E").coords
    assert e[4 * 3 + 0, 0].tolist() == [3, 0]
    assert e[4 * 3 + 1, 0].tolist() == [3, 8]  # columns 16 to 31 of the matrix
    assert e[4 * 3 + 1, 15].tolist() == [11, 15]
    assert np.array_equal(e[2::4], e[0::4])


def test_a_scale_lies_in_the_lane_that_its_row_has() -> None:
    """Row m is with lane 4*(m mod 8) + m // 8 at thread-id 0; column n with lane 4*n."""
    name = "mma.m16n8k64.mxf4nvf4.e2m1.ue4m3"
    sfa, sfb = (fragments.get(name, role).coords for role in ("SFA", "SFB"))
    for m in range(16):
        assert sfa[4 * (m % 8) + m // 8].tolist() == [[m, v] for v in range(4)]
    for n in range(8):
        assert sfb[4 * n].tolist() == [[v, n] for v in range(4)]


def test_the_four_products_of_m8n8k4_have_eight_lanes_each() -> None:
    d = fragments.get("mma.m8n8k4.f16", "D")
    assert (d.products, d.tile, d.shape) == (4, (4, 8, 8), (8, 8))
    for lane in range(WARP):
        assert set(d.holds[lane, :, 0].tolist()) == {lane % 16 // 4}
    for a, b in (("A", "A.col"), ("B", "B.row")):
        one, other = (fragments.get("mma.m8n8k4.f16", role).coords for role in (a, b))
        assert not np.array_equal(one, other)


def test_tensor_memory_moves_are_the_atoms_of_a_warp() -> None:
    """The atoms of a warpgroup are four warps' moves: lanes and registers agree."""
    from layoutalg import tcgen05_atom_layout

    for shape, count, columns in (("16x64b", 4, 8), ("16x128b", 4, 16), ("16x256b", 2, 16)):
        row = fragments.get(f"tcgen05.ld.{shape}.x{count}.b32", "dst")
        atom = tcgen05_atom_layout(shape, (64, columns), "float32").table((64, columns))
        for warp in range(4):
            rows = slice(16 * warp, 16 * warp + 16)
            assert (atom["wid_in_wg"][rows] == warp).all()
            mine = row.layout.table(row.shape)
            assert np.array_equal(atom["laneid"][rows], mine["laneid"]), shape
            assert np.array_equal(atom["m"][rows], mine.get("m", 0 * mine["laneid"])), shape


def test_every_mma_of_the_table_is_an_instruction_of_gemm() -> None:
    mma = {name for name in fragments.names() if name.startswith("mma.")}
    assert mma == {row.name for row in (*lw.MMA_FAMILY, *lw.MMA_EXTENDED)}


def test_tensor_memory_moves_of_whole_lanes() -> None:
    """PTX ISA: 32x32b gives lane l row l; 16x32bx2 gives lanes 16 and up the second columns."""
    rows = fragments.get("tcgen05.ld.32x32b.x4.b32", "dst").coords
    assert rows.tolist() == [[[lane, col] for col in range(4)] for lane in range(32)]
    rows = fragments.get("tcgen05.st.16x32bx2.x2.b32", "src").coords
    assert rows.tolist() == [
        [[lane % 16, 2 * (lane // 16) + col] for col in range(2)] for lane in range(32)
    ]
