"""The linter: what it sees, where it points, and that it agrees with the assembler."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from layoutalg import LayoutError, fragments, parse
from lowering.audit.linter import Finding, lint, register_text, statements
from lowering.cli.main import main
from lowering.isa import ptx
from lowering.isa.mma import MMA_EXTENDED, MMA_FAMILY, MmaInst
from lowering.isa.nvjitlink import AssembleError, assemble
from lowering.verification.cases import Case, StagedCase

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
D, A, B = "{d0,d1,d2,d3}", "{a0,a1,a2,a3}", "{b0,b1}"


def mma(a: str = A, b: str = B, d: str = D, c: str = D, head: str = F16) -> str:
    return f"{head} {d}, {a}, {b}, {c};"


def sparse(a: str = A, e: str = "e0", f: str = "0x0") -> str:
    head = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    return f"{head} {D}, {a}, {{b0,b1,b2,b3}}, {D}, {e}, {f};"


def scaled(sfa: str = "s0, {0,0}", sfb: str = "s1, {0,0}") -> str:
    kind = "kind::mxf4.block_scale.scale_vec::2X"
    head = f"mma.sync.aligned.{kind}.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0"
    return f"{head} {D}, {A}, {B}, {D}, {sfa}, {sfb};"


def pointed(finding: Finding) -> str:
    """Return the piece of text that the caret marks."""
    return finding.source[finding.column - 1 : finding.column - 1 + finding.width]


def test_a_right_line_is_clean() -> None:
    assert lint(mma()) == ()
    assert lint(mma(c="{c0,c1,c2,c3}")) == ()
    assert lint(mma(a="{a[4], a[5], a[6], a[7]}")) == ()
    assert lint(mma(a="{a0,a2,a4,a6}", b="{b1,b3}")) == ()
    assert lint(mma(c="{z,z,z,z}")) == ()
    assert lint("add.f32 f0, f1, f2;") == ()


M16 = "row g, col 2*t + 8 + 0..1"
ROWS: list[tuple[str, str, str, str]] = [
    (
        mma(a="{a0,a2,a1,a3}"),
        "order",
        "a2,a1",
        "A: a2 and a1 are exchanged: register 1 takes row g + 8, col 2*t + 0..1; register 2 "
        f"takes {M16}",
    ),
    (
        mma(b="{b1,b0}"),
        "order",
        "b1,b0",
        "B: b1 and b0 are exchanged: register 0 takes row 2*t + 0..1, col g; register 1 takes "
        "row 2*t + 8 + 0..1, col g",
    ),
    (
        mma(a="{a3, a0, a1, a2}"),
        "order",
        "a3, a0, a1, a2",
        "A: the registers are out of order: {a0,a1,a2,a3} is that of their numbers",
    ),
    (
        mma(d="{d1,d0,d2,d3}", c="{d1,d0,d2,d3}"),
        "order",
        "d1,d0",
        "D: d1 and d0 are exchanged: register 0 takes row g, col 2*t",
    ),
    (mma(c="{c2,c1,c0,c3}"), "order", "c2,c1,c0", "C: c2 and c0 are exchanged"),
    (mma(c="{d0,d2,d1,d3}"), "accumulator", "d2", "C: d2 is register 1 here, but register 2 of D"),
    (
        mma(a="{a0,a2,a2,a3}"),
        "repeated",
        "a2",
        "A: a2 is passed twice, as registers 1 and 2; a1 is never passed",
    ),
    (mma(a="{a4,a6,a6,a7}"), "repeated", "a6", "a5 is never passed"),
    (mma(a="{x,y,y,z}"), "repeated", "y", "A: y is passed twice, as registers 1 and 2"),
    (mma(d="{d0,d0,d2,d3}", c="{z,z,z,z}"), "repeated", "d0", "D: d0 is passed twice"),
    (
        mma(a="{a0,a1,a2}"),
        "count",
        "{a0,a1,a2}",
        "A takes 4 registers; got 3: 16x16 f16 in 32 lanes, 2 per register",
    ),
    (
        mma(b="{b0}"),
        "count",
        "{b0}",
        "B takes 2 registers; got 1: 16x8 f16 in 32 lanes, 2 per register",
    ),
    (mma(b="b0"), "kind", "b0", "B is written as {…}; got b0"),
    (mma(b="[b0]"), "kind", "[b0]", "B is written as {…}; got [b0]"),
    (mma(b="{b0,a1}"), "shared", "a1", "B: a1 is passed in A too"),
    (mma(a="{a0,a1,a2,d3}"), "shared", "d3", "A: d3 is passed in D too"),
    (f"{F16} {D}, {A}, {B};", "count", F16, "mma takes 4 operands, D, A, B, C; got 3"),
    (
        f"{F16} {D}, {B}, {A}, {D};",
        "exchanged",
        B,
        "A and B are exchanged: the order is D, A, B, C",
    ),
    (
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {d0,d1}, {b0}, {a0}, {d0,d1};",
        "exchanged",
        "{b0}",
        "A and B are exchanged, by their names",
    ),
    (f"{F16} {D}, {A}, {B}, {{d0,d1,d2,d3", "kind", "{d0,d1,d2,d3", "C: a closing } is missing"),
    (
        mma(head=F16.replace("k16", "k12")),
        "mnemonic",
        "m16n8k12",
        "f16 has the shapes m16n8k16, m16n8k8, m8n8k4; got m16n8k12",
    ),
    (
        mma(head=F16.replace(".m16n8k16", "")),
        "mnemonic",
        F16.replace(".m16n8k16", ""),
        "mma needs one shape",
    ),
    (
        mma(head=F16.replace(".row", ".rwo")),
        "mnemonic",
        "rwo",
        "mma has no qualifier .rwo; did you mean row?",
    ),
    (
        mma(head=F16.replace("f16.f16", "f16.bf16")),
        "mnemonic",
        "f16",
        "no mma multiplies f16 by bf16; m16n8k16 takes f16, bf16, ",
    ),
    (mma(head=F16.replace(".sync", "")), "qualifiers", "mma", "mma needs .sync: .sync.aligned"),
    (mma(head=F16.replace(".aligned", "")), "qualifiers", "mma", "mma needs .aligned"),
    (
        mma(head=F16.replace("row.col", "row.row")),
        "qualifiers",
        "row",
        "A and B exist as .row.col alone; got .row.row",
    ),
    (mma(head=F16.replace(".row.col", "")), "qualifiers", F16.replace(".row.col", ""), "got none"),
    (
        mma(head=F16.removesuffix(".f32")),
        "qualifiers",
        "f32",
        "mma needs the types of D, A, B and C, such as .f32.f16.f16.f32; got .f32.f16.f16",
    ),
    (
        mma(head=F16.removesuffix(".f32") + ".f16"),
        "qualifiers",
        "f16",
        "C must have D's type f32; got f16",
    ),
    (
        mma(head=F16.replace("f16", "bf16").replace(".f32", ".f16")),
        "qualifiers",
        "f16",
        "mma.m16n8k16.bf16 accumulates in f32; got f16",
    ),
    (
        mma(head=F16 + ".satfinite"),
        "qualifiers",
        "satfinite",
        ".satfinite belongs to integer mma; A is f16",
    ),
    (mma(head=F16 + ".rn"), "qualifiers", "rn", ".rn belongs to f64 mma; A is f16"),
    (mma(head=F16 + ".popc"), "qualifiers", "popc", ".popc belongs to b1 mma; A is f16"),
    (
        "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32 {d0,d1}, {a0}, {b0}, {d0,d1};",
        "qualifiers",
        "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32",
        "b1 mma needs .xor.popc or .and.popc",
    ),
    (
        "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 {d0}, {a0};",
        "unknown",
        "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32",
        "mma.sp.m16n8k64.s8 has no row in the fragment table: not checked",
    ),
    (
        "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32 {d0}, {a0};",
        "unknown",
        "kind::f8f6f4",
        "mma of .kind::f8f6f4 is not checked",
    ),
    (
        "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale "
        "{d0}, {a0};",
        "unknown",
        "kind::mxf4",
        "sparse mma of .kind::mxf4 is not checked",
    ),
    (
        sparse().replace("ordered_metadata", "ordered"),
        "mnemonic",
        "sp::ordered",
        "mma has no qualifier .sp::ordered; did you mean sp::ordered_metadata",
    ),
    (sparse(a="{a0,a2,a1,a3}"), "order", "a2,a1", "A: a2 and a1 are exchanged"),
    (sparse(a="{a0,a1}"), "count", "{a0,a1}", "A takes 4 registers; got 2: 16x16 f16 in 32 lanes"),
    (sparse(e="{e0,e1}"), "count", "{e0,e1}", "E takes 1 register; got 2: 16x16 u2 in 32 lanes"),
    (sparse(e="[e0]"), "kind", "[e0]", "E is written as one register; got [e0]"),
    (sparse(e="d1"), "shared", "d1", "E: d1 is passed in D too"),
    (sparse(f="2"), "selector", "2", "selector of E: must be one of 0, 1; got 2"),
    (sparse(f="{0}"), "kind", "{0}", "selector of E is written as a number; got {0}"),
    (
        sparse().replace(", e0, 0x0", ""),
        "count",
        sparse().split(" ")[0],
        "mma takes 6 operands, D, A, B, C, E, selector of E; got 4",
    ),
    (
        scaled(sfa="{s0}, {2,1}", sfb="s1, {1,3}"),
        "selector",
        "1",
        "selectors of SFB: must be one of 0, 2; got 1",
    ),
    (
        scaled(sfa="s0, {0,2}"),
        "selector",
        "2",
        "selectors of SFA: must be one of 0, 1; got 2",
    ),
    (scaled(sfa="s0, {0}"), "count", "{0}", "selectors of SFA: a byte and a thread; got 1"),
    (scaled(sfa="s0, 0"), "kind", "0", "selectors of SFA is written as {byte, thread}; got 0"),
    (scaled(sfa="a1, {0,0}"), "shared", "a1", "SFA: a1 is passed in A too"),
    (
        scaled().replace("2X", "4X"),
        "qualifiers",
        "scale_vec::4X",
        "mma.m16n8k64.mxf4.e2m1.ue8m0 has .scale_vec::2X; got .scale_vec::4X",
    ),
    (
        scaled().replace(".scale_vec::2X", "").replace("mxf4", "mxf4nvf4"),
        "qualifiers",
        scaled().replace(".scale_vec::2X", "").replace("mxf4", "mxf4nvf4").split(" ")[0],
        ".kind::mxf4nvf4 needs .scale_vec::2X",
    ),
    (
        scaled().replace(".block_scale", ""),
        "qualifiers",
        "kind::mxf4",
        "block scales need .kind::… and .block_scale",
    ),
    (
        scaled().replace(".ue8m0", ""),
        "qualifiers",
        "f32",
        "the types of D, A, B, C and the scales, such as .f32.e2m1.e2m1.f32.ue8m0; got",
    ),
    (
        mma(head=F16).replace(".row.col.", ".col.col."),
        "qualifiers",
        "col",
        "A and B exist as .row.col alone; got .col.col",
    ),
    (
        "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32 {d0,d1,d2,d3,d4,d5,d6,d7}, {a1,a0}, "
        "{b0,b1}, {d0,d1,d2,d3,d4,d5,d6,d7};",
        "order",
        "a1,a0",
        "a1 and a0 are exchanged",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r0,r2,r1,r3}, [p];",
        "order",
        "r2,r1",
        "dst: r2 and r1 are exchanged: register 1 takes row g + 8, col 2*t + 0..1; register 2 "
        "takes row g + 16",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {r0,r1,r2,r3}, [p];",
        "count",
        "{r0,r1,r2,r3}",
        "dst takes 2 registers; got 4: 16x8 b16 in 32 lanes, 2 per register",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {r0,r0}, [p];",
        "repeated",
        "r0",
        "dst: r0 is passed twice, as registers 0 and 1; r1 is never passed",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 [p], {r0,r1};",
        "kind",
        "[p]",
        "dst is written as {…}; got [p]",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {r0,r1}, p;",
        "kind",
        "p",
        "address is written as […]; got p",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 r0, [p];",
        "kind",
        "r0",
        "dst is written as {…}; got r0",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {r0,r1};",
        "count",
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16",
        "ldmatrix takes 2 operands, dst, address; got 1",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x2.b16 {r0,r1}, [p];",
        "address",
        "ldmatrix.sync.aligned.m8n8.x2.b16",
        "without .shared the address is a generic 64-bit one",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {r0,r1}, [p];",
        "mnemonic",
        "x3",
        "ldmatrix has no qualifier .x3; did you mean",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.shared.b16 {r0,r1}, [p];",
        "qualifiers",
        "ldmatrix.sync.aligned.m8n8.shared.b16",
        "ldmatrix needs a count, .x1, .x2 or .x4",
    ),
    (
        "ldmatrix.sync.aligned.x2.shared.b16 {r0,r1}, [p];",
        "qualifiers",
        "ldmatrix.sync.aligned.x2.shared.b16",
        "ldmatrix needs a shape",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x2.shared {r0,r1}, [p];",
        "qualifiers",
        "ldmatrix.sync.aligned.m8n8.x2.shared",
        "ldmatrix needs a type",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b8 {r0,r1,r2,r3}, [p];",
        "qualifiers",
        "b8",
        "m8n8 moves .b16 units; got .b8: narrower types move in pairs",
    ),
    (
        "ldmatrix.sync.aligned.m16n16.x1.shared.b8 {r0,r1}, [p];",
        "qualifiers",
        "m16n16",
        "ldmatrix.m16n16 needs .trans",
    ),
    (
        "ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8 {r0,r1}, [p];",
        "qualifiers",
        "x4",
        "ldmatrix.m16n16 takes .x1, .x2; got .x4",
    ),
    (
        "ldmatrix.sync.aligned.m8n16.x1.trans.shared.b8x16.b6x16_p32 {r0}, [p];",
        "qualifiers",
        "trans",
        "ldmatrix.m8n16 has no .trans",
    ),
    (
        "ldmatrix.sync.aligned.m8n16.x1.shared.b8 {r0}, [p];",
        "qualifiers",
        "b8",
        "ldmatrix.m8n16 moves .b8x16.b6x16_p32, .b8x16.b4x16_p64; got .b8",
    ),
    (
        "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {r0,r1,r3}, [p];",
        "count",
        "{r0,r1,r3}",
        "dst takes 4 registers; got 3",
    ),
    (
        "stmatrix.sync.aligned.m16n8.x4.shared.b8 [p], {r0,r1,r2,r3};",
        "qualifiers",
        "m16n8",
        "stmatrix.m16n8 needs .trans",
    ),
    (
        "stmatrix.sync.aligned.m8n8.x2.shared.b16 {r0,r1}, [p];",
        "kind",
        "{r0,r1}",
        "address is written as […]; got {r0,r1}",
    ),
    (
        "stmatrix.sync.aligned.m8n8.x2.shared.b16 [p], {r1,r0};",
        "order",
        "r1,r0",
        "src: r1 and r0 are exchanged",
    ),
    (
        "movmatrix.sync.aligned.m8n8.b16 d, a;",
        "qualifiers",
        "movmatrix.sync.aligned.m8n8.b16",
        "movmatrix needs .trans",
    ),
    (
        "movmatrix.sync.aligned.m8n8.trans.b16 {d}, {a};",
        "kind",
        "{d}",
        "dst is written as one register; got {d}",
    ),
    (
        "movmatrix.sync.aligned.m8n8.trans.shared.b16 d, a;",
        "mnemonic",
        "shared",
        "movmatrix has no qualifier .shared",
    ),
]


@pytest.mark.parametrize(("text", "rule", "mark", "message"), ROWS)
def test_what_is_wrong_is_found_and_pointed_at(
    text: str, rule: str, mark: str, message: str
) -> None:
    found = [finding for finding in lint(text) if finding.rule == rule]
    assert found, lint(text)
    assert any(pointed(f) == mark and message in f.message for f in found), found
    severity = {"unknown": "note", "shared": "warning", "address": "warning"}.get(rule, "error")
    assert {finding.severity for finding in found} == {severity}


def test_each_finding_stands_alone() -> None:
    """Other operands that are right draw no complaint."""
    for text, rule, *_ in ROWS:
        if rule in ("order", "repeated", "accumulator", "kind", "address"):
            rules = {finding.rule for finding in lint(text)}
            assert rules <= {rule, "kind"}, text


# -- published errors -----------------------------------------------------------------------------


def test_register_two_passed_twice_in_the_f64_wrapper() -> None:
    """NVIDIA/cutlass PR 2740: A of m16n8k16.f64 was listed as 0,2,2,3,4,5,6,7."""
    head = "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64"
    a = ",".join(f"%{4 + i}" for i in (0, 2, 2, 3, 4, 5, 6, 7))
    text = f"{head} {{%0,%1,%2,%3}}, {{{a}}}, {{%12,%13,%14,%15}}, {{%16,%17,%18,%19}};"
    (finding,) = lint(text)
    assert finding.rule == "repeated"
    assert finding.message == "A: %6 is passed twice, as registers 1 and 2; %5 is never passed"
    assert register_text(fragments.get("mma.m16n8k16.f64", "A"), 1) == "row g + 8, col t"
    assert register_text(fragments.get("mma.m16n8k16.f64", "A"), 2) == "row g, col t + 4"
    right = text.replace(a, ",".join(f"%{4 + i}" for i in range(8)))
    assert lint(right) == ()


def test_accumulators_repacked_as_a() -> None:
    """kekzl/imp PR 352: two accumulators became A in the order t0.c01, t1.c01, t0.c23, t1.c23."""
    held = {"t0_c01": (0, 0), "t0_c23": (8, 0), "t1_c01": (0, 8), "t1_c23": (8, 8)}
    wrong = mma(a="{t0_c01, t1_c01, t0_c23, t1_c23}")
    found = lint(wrong, held=held)
    assert [(f.rule, pointed(f)) for f in found] == [("element", "t1_c01"), ("element", "t0_c23")]
    assert found[0].message == (
        "A: register 1 takes row g + 8, col 2*t + 0..1, in lane 0 element (8, 0); t1_c01 holds "
        "(0, 8); t0_c23 holds that"
    )
    assert lint(mma(a="{t0_c01, t0_c23, t1_c01, t1_c23}"), held=held) == ()
    del held["t0_c23"]
    assert len(lint(wrong, held=held)) == 1
    assert "holds that" not in lint(wrong, held=held)[0].message


def test_a_layout_says_which_register_belongs_where() -> None:
    """A register file in another order: then a0,a2,a1,a3 is right, and a0,a1,a2,a3 wrong."""
    swapped = parse("S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)]")
    assert lint(mma(a="{a0,a2,a1,a3}"), {"A": swapped}) == ()
    assert lint(mma(a="{%4,%6,%5,%7}"), {"A": swapped}) == ()
    found = lint(mma(), {"A": swapped})
    assert [(f.rule, pointed(f)) for f in found] == [("layout", "a1"), ("layout", "a2")]
    assert found[0].message == (
        "A: register 1 takes row g + 8, col 2*t + 0..1; a1 holds something else by "
        "S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)]: a2 holds that"
    )
    own = {role: fragments.get("mma.m16n8k16.f16", role).layout for role in "ABD"}
    assert lint(mma(), own) == ()
    assert [f.rule for f in lint(mma(c="{c0,c2,c1,c3}"), own)] == ["layout", "layout"]
    shifted = parse("S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)]+1@laneid")
    assert "no register holds that" in lint(mma(), {"A": shifted})[0].message
    (note,) = lint(mma(a="{p,q,r,s}"), {"A": swapped})
    assert (note.severity, note.rule, pointed(note)) == ("note", "layout", "p,q,r,s")
    with pytest.raises(LayoutError, match="lint: A lies on the axes laneid and m; got "):
        lint(mma(), {"A": parse("S[(16,16):(16@warpid,1)]")})
    with pytest.raises(LayoutError):
        lint(mma(), {"A": parse("S[(16,8):(4@laneid,1)]")})


def test_the_f16_map_is_not_the_tf32_map() -> None:
    """tf32 m16n8k8 has four registers of A, f16 has two: the row half comes first."""
    head = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
    (finding,) = lint(mma(a="{a0,a1}", head=head))
    assert finding.message == "A takes 4 registers; got 2: 16x8 tf32 in 32 lanes"
    tf32 = fragments.get("mma.m16n8k8.tf32", "A")
    assert [register_text(tf32, register) for register in range(4)] == [
        "row g, col t", "row g + 8, col t", "row g, col t + 4", "row g + 8, col t + 4",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "arch", "message"),
    [
        (mma(), "sm_75", f"sm_75 lacks {mma().split()[0]}; sm_80 and newer have it"),
        (
            "stmatrix.sync.aligned.m8n8.x1.shared.b16 [p], {r0};",
            "sm_89",
            "sm_89 lacks stmatrix.sync.aligned.m8n8.x1.shared.b16; sm_90 and newer have it",
        ),
        (
            "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {r0,r1}, [p];",
            "sm_100",
            "sm_100 lacks ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8; sm_100, sm_103, sm_107, "
            "sm_110, sm_120 and sm_121 with suffix a or f have it",
        ),
        (
            "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {r0,r1}, [p];",
            "sm_75",
            "on sm_75 lanes 16..31 need valid addresses too, although .x2 does not use them: give "
            "lane l the address of lane l mod 16",
        ),
        (mma(), "sm_80", None),
        ("movmatrix.sync.aligned.m8n8.trans.b16 d, a;", "sm_75", None),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r0,r1,r2,r3}, [p];", "sm_75", None),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {r0,r1}, [p];", "sm_100a", None),
    ],
)
def test_targets(text: str, arch: str, message: str | None) -> None:
    assert [finding.message for finding in lint(text, arch=arch)] == [message] * (
        message is not None
    )


def test_a_target_of_no_name_is_refused() -> None:
    with pytest.raises(LayoutError, match="target: must look like sm_90"):
        lint(mma(), arch="hopper")


# -- texts ----------------------------------------------------------------------------------------

ASM = f'''__device__ void f(float* d, unsigned* a) {{
  // {F16} is what follows
  asm volatile("{F16} "
      "{{%0,%1,%2,%3}}, "
      "{{%4,%6,%5,%7}}, {{%8,%9}}, \\n\\t"
      "{{%0,%1,%2,%3}}" /* C */
      : "+f"(d[0]), "+f"(d[1]) : "r"(a[0]), "r"(a[1]));
}}
'''


def test_inline_assembly_in_strings() -> None:
    (statement,) = statements(ASM)
    assert [[name.text for name in operand.names] for operand in statement.operands] == [
        ["%0", "%1", "%2", "%3"], ["%4", "%6", "%5", "%7"], ["%8", "%9"], ["%0", "%1", "%2", "%3"],
    ]  # fmt: skip
    (finding,) = lint(ASM)
    assert (finding.line, pointed(finding)) == (5, "%6,%5")
    assert str(finding) == (
        "5:12: error: A: %6 and %5 are exchanged: register 1 takes row g + 8, col 2*t + 0..1; "
        "register 2 takes row g, col 2*t + 8 + 0..1 [order]\n"
        '        "{%4,%6,%5,%7}, {%8,%9}, \\n\\t"\n'
        "             ^^^^^"
    )


def test_the_caret_stands_in_the_column_of_the_piece() -> None:
    (finding,) = lint(f"\t/* 長い */ {mma(b='{b1,b0}')}")
    assert finding.source[finding.column - 1 :].startswith("b1,b0")
    _, source, caret = str(finding).split("\n")
    assert caret.strip() == "^^^^^"
    assert caret.index("^") == source.index("b1,b0") + 2  # two wide characters before it


def test_several_statements_and_their_lines() -> None:
    text = f"{mma()}\n\t{mma(b='{b1,b0}')}\n{mma(a='{a1,a0,a2,a3}', d='{d0}')}"
    found = lint(text)
    assert [(f.line, f.rule) for f in found] == [(2, "order"), (3, "count"), (3, "order")]
    assert [f.column for f in found if f.line == 3] == sorted(
        f.column for f in found if f.line == 3
    )
    assert found[0].source.startswith(" mma")
    late = lint(mma(b="{b1,b0}"), arch="sm_75")
    assert [finding.rule for finding in late] == ["target", "order"]
    assert pointed(found[0]) == "b1,b0"
    assert [
        s.verb.text for s in statements("@p mma.sync {x}; wmma.mma.sync y; wgmma.mma_async.sync z;")
    ] == ["mma"]


@pytest.mark.slow
def test_what_this_project_emits_is_clean() -> None:
    for program in (
        Case("mma.m16n8k16.bf16", (2, 1, 1)).program(),
        StagedCase("mma.m16n8k16.f16", 32).program(),
    ):
        for text in (program.cuda_source(), program.ptx()):
            assert len(statements(text)) >= 1
            assert lint(text, arch="sm_90") == ()


def test_registers_that_a_compiler_numbered_say_no_order() -> None:
    text = mma(a="{%r4,%r9,%r2,%r3}", b="{%r8,%r7}", d="{%f1,%f0,%f2,%f3}", c="{%f1,%f0,%f2,%f3}")
    assert lint(text) == ()
    assert [f.rule for f in lint(mma(a="{%r4,%r4,%r2,%r3}"))] == ["repeated"]


# -- the assembler as oracle ----------------------------------------------------------------------


def module(statement: str, arch: str) -> str:
    registers = "".join(
        f".reg .{kind} {name}<20>;"
        for name, kind in (
            ("d", "b32"),
            ("f", "f32"),
            ("w", "f64"),
            ("a", "b32"),
            ("b", "b32"),
            ("p", "b32"),
        )
    )
    return (
        f".version 9.0\n.target {arch}\n.address_size 64\n"
        f".visible .entry k() {{ {registers} {statement} ret; }}"
    )


def assembles(statement: str, arch: str = "sm_90a") -> bool:
    try:
        return bool(assemble(module(statement, arch), arch))
    except AssembleError:
        return False


def vector(prefix: str, count: int) -> str:
    return "{" + ",".join(f"{prefix}{i}" for i in range(count)) + "}"


CHECKED = {row.name for row in (*MMA_FAMILY, *MMA_EXTENDED) if not row.kind}


def right_lines() -> list[str]:
    """Return one right line per instruction and accumulator of the fragment table."""
    found = []
    for name in fragments.names():
        verb, *parts = name.split(".")
        if verb == "mma" and name not in CHECKED:
            continue
        if verb == "mma":
            rows = {row.operand: row for row in fragments.rows(name)}
            a, b = rows["A"], rows["B"]
            for operand, d in rows.items():
                if not operand.startswith("C/D"):
                    continue
                types = ".".join((d.dtype, a.dtype, b.dtype, d.dtype))
                tail = ".xor.popc" if a.dtype == "b1" else ""
                prefix = {"f32": "f", "f64": "w"}.get(d.dtype, "d")
                left, right = ("a", "b") if a.dtype != "f64" else ("w1", "w")
                total = vector(prefix, d.registers)
                found.append(
                    f"mma.sync.aligned.{parts[0]}.row.col.{types}{tail} {total}, "
                    f"{vector(left, a.registers)}, {vector(right, b.registers)}, {total};"
                )
        elif verb in ("ldmatrix", "stmatrix"):
            (row,) = fragments.rows(name)
            operands = [vector("d", row.registers), "[p0]"]
            ordered = ", ".join(operands if verb == "ldmatrix" else operands[::-1])
            shape, *middle, kind = parts
            head = ".".join((verb, "sync.aligned", shape, *middle, "shared", kind))
            found.append(f"{head} {ordered};")
        elif verb == "movmatrix":
            found.append("movmatrix.sync.aligned.m8n8.trans.b16 d0, a0;")
    return found


LINES = right_lines()


def test_every_row_of_the_table_is_clean_and_assembles() -> None:
    sums = [sum(o.startswith("C/D") for o in fragments.operands(name)) for name in CHECKED]
    assert len(LINES) == sum(sums) + 13
    for line in LINES:
        assert assembles(line), line
        assert [f for f in lint(line) if f.rule != "shared"] == [], line


EXTENDED = [row for row in MMA_EXTENDED if row.kind]


@pytest.mark.parametrize("row", EXTENDED, ids=str)
def test_sparse_and_scaled_rows_are_clean_and_assemble(row: MmaInst) -> None:
    arch = row.min_arch if row.kind != "sp" else "sm_90a"
    emitted = ptx.mma(row).text
    assert lint(emitted, arch=arch) == ()
    head, names = row.ptx, {role: row.fragment(role).registers for role in "DAB"}
    total = vector("f" if row.d.token == "f32" else "d", names["D"])
    tail = "{d10}, 1" if row.kind == "sp" else "d10, {0,1}, {d11}, {0,3}"
    right = (
        f"{head} {total}, {vector('a', names['A'])}, {vector('b', names['B'])}, {total}, {tail};"
    )
    assert assembles(right, arch), right
    assert lint(right, arch=arch) == ()
    short = [right.replace(f", {tail}", ""), right.replace(tail, tail.rpartition(",")[0])]
    for text in short:  # nvJitLink does not refuse these: it crashes
        assert any(f.severity == "error" for f in lint(text)), text
    refused = [
        right.replace("a0,", "", 1),
        right.replace(tail, "d10, 4" if row.kind == "sp" else "d10, {4,0}, d11, {0,0}"),
        right.replace(tail, "[d10], 0" if row.kind == "sp" else "d10, {0,2}, d11, {0,0}"),
        right.replace("sp::ordered_metadata", "sp::ordered").replace("block_scale.", ""),
        right.replace(".row.col", ".row.row"),
    ]
    for text in refused:
        assert not assembles(text, arch), text
        assert any(f.severity == "error" for f in lint(text)), text
    assert any(f.rule == "target" for f in lint(right, arch="sm_75"))


@pytest.mark.parametrize("statement", [sparse, scaled])
def test_e_and_scales_are_compared_with_a_layout(statement: Callable[..., str]) -> None:
    sides: dict[str, tuple[str, str]] = {
        "E": ("S[(2,8,2,8):(8,4@laneid,1@laneid,1)]", "S[(2,8,2,8):(8,4@laneid,2@laneid,1)]"),
        "SFA": ("S[(2,8,2):(1@laneid,4@laneid,1)]", "S[(8,2,2):(4@laneid,1@laneid,1)]"),
    }
    role = "E" if statement is sparse else "SFA"
    right, wrong = map(parse, sides[role])
    copied = fragments.get(
        "mma.sp.m16n8k32.f16" if role == "E" else "mma.m16n8k64.mxf4.e2m1.ue8m0", role
    ).layout
    for layout in (right, copied):
        assert lint(statement(), {role: layout}) == ()
    (finding,) = lint(statement(), {role: wrong})
    assert (finding.rule, pointed(finding)) == ("layout", "e0" if role == "E" else "s0")
    chosen = sparse(f="1") if role == "E" else scaled(sfa="s0, {2,1}")
    assert lint(chosen, {role: wrong}) == ()  # other lanes than the fragment's


@pytest.mark.slow
def test_what_the_assembler_refuses_the_linter_refuses() -> None:
    """Each right line with one thing wrong: a register too few, or a qualifier missing."""
    refused = 0
    for line in LINES[::2]:
        head, _, rest = line.partition(" ")
        words = head.split(".")
        wrong = [
            line.replace("0,", "", 1)
            if "0," in line
            else line.replace("{", "", 1).replace("}", "", 1),
            line.replace(".aligned", "", 1),
            *(".".join(words[:at] + words[at + 1 :]) + " " + rest for at in range(3, len(words))),
        ]
        for text in wrong:
            if text != line and not assembles(text):
                assert any(f.severity == "error" for f in lint(text)), text
                refused += 1
    assert refused > 100


def test_what_the_assembler_takes_is_no_error_of_form() -> None:
    """Qualifiers in any order, as the assembler has it; modifiers where they belong."""
    integers = "mma.sync.aligned.m16n8k32.row.col{}.s32.s8.u8.s32{}"
    floats = "{f0,f1,f2,f3}"
    lines = [
        mma(head=integers.format(".satfinite", "")),
        mma(head=integers.format("", ".satfinite")),
        "mma.sync.aligned.m8n8k4.row.col.rz.f64.f64.f64.f64 {w0,w1}, {w2}, {w3}, {w0,w1};",
        mma(head="mma.sync.aligned.row.col.m16n8k16.f32.f16.f16.f32", d=floats, c=floats),
        "ldmatrix.sync.aligned.x4.m8n8.trans.shared::cta.b16 {d0,d1,d2,d3}, [p0+16];",
    ]
    for line in lines:
        assert assembles(line), line
        assert lint(line) == (), line
    for shape, (count, registers) in {"m16n16": ("x1", 2), "m8n16": ("x2", 2)}.items():
        trans = ".trans" * (shape == "m16n16")
        head = f"ldmatrix.sync.aligned.{shape}.{count}{trans}.shared.b8x16.b6x16_p32"
        line = f"{head} {vector('d', registers)}, [p0];"
        assert assembles(line, "sm_100a"), line
        assert lint(line, arch="sm_100a") == (), line


def test_the_assembler_does_not_see_the_order() -> None:
    """That is why the linter exists: every order of A's registers assembles."""
    line = mma(a="{a0,a1,a2,a3}", d="{f0,f1,f2,f3}", c="{f0,f1,f2,f3}")
    for order in list(itertools.permutations(range(4)))[1:6:2]:
        other = line.replace("a0,a1,a2,a3", ",".join(f"a{i}" for i in order))
        assert assembles(other)
        assert [f.rule for f in lint(other)] == ["order"]


# -- the command ----------------------------------------------------------------------------------


def test_the_command_reads_arguments_files_and_standard_input(tmp_path: Path) -> None:
    run = CliRunner().invoke
    clean = run(main, ["lint", mma()])
    assert (clean.exit_code, clean.stdout) == (0, "1 instructions, 0 errors\n")
    path = tmp_path / "kernel.cu"
    path.write_text(ASM)
    done = run(main, ["lint", str(path), mma(b="{b1,b0}")])
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{path}:5:12: error: A: %6 and %5 are exchanged")
    assert done.stdout.endswith("2 instructions, 2 errors\n")
    for arguments in (["lint"], ["lint", "-"]):
        piped = run(main, arguments, input=mma(a="{a0,a2,a1,a3}"))
        assert piped.exit_code == 1
        assert piped.stdout.splitlines()[0].startswith("1:70: error: A: a2 and a1 are exchanged")
        assert piped.stdout.splitlines()[2] == " " * 71 + "^^^^^"
    swapped = "A=S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)]"
    assert run(main, ["lint", mma(a="{a0,a2,a1,a3}"), "--layout", swapped]).exit_code == 0
    held = ["--held", "x=0,0", "--held", "y=0,8", "--held", "z=8,0", "--held", "w=8,8"]
    assert run(main, ["lint", mma(a="{x,z,y,w}"), *held]).exit_code == 0
    assert run(main, ["lint", mma(a="{x,y,z,w}"), *held]).exit_code == 1
    assert run(main, ["lint", mma(), "--arch", "sm_75"]).exit_code == 1
    warned = run(main, ["lint", mma(b="{b0,a1}")])
    assert (warned.exit_code, warned.stdout.splitlines()[-1]) == (0, "1 instructions, 0 errors")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["add.f32 x, y, z;"],
            "lint: no statement that is checked in 'add.f32 x, y, z;'; give a file, PTX with an "
            "mma, ldmatrix, stmatrix or movmatrix, or - for standard input",
        ),
        ([mma(), "--held", "x=1"], "--held: must look like a1=8,0; got x=1"),
        ([mma(), "--held", "x"], "--held: must look like NAME=VALUE; got 'x'"),
        ([mma(), "--arch", "sm90"], "target: must look like sm_90 or sm_90a; got 'sm90'"),
    ],
)
def test_the_command_refuses(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["lint", *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"layoutalg: {message}\n"
