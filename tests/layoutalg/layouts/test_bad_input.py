"""Bad input: each call of the tables is refused with exactly its message; nothing comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import Axis, ComposeLayout, LayoutError, S, TileLayout, fragments, laneid, parse
from layoutalg.fragments import transposed
from layoutalg.sizes.symbolic import DigitSymbol, symbol
from lowering.isa.dtypes import DTYPES

NAME = "mma.m16n8k16.f16"
D_FRAG, A_FRAG, B_FRAG = (fragments.get(NAME, role).layout for role in "DAB")
A_TWO_WARPS = parse("S[(2,2,8,2,4,2):(1@warpid,2,4@laneid,4,1@laneid,1)]")
D_TWO_WARPS = parse("S[(2,2,8,4,2):(1@warpid,2,4@laneid,1@laneid,1)]")
A_TRANSPOSED = transposed(fragments.get(NAME, "A").tiled(16, 32), (16, 32))
WANT = "C float32, D float32"


def buffer(role: str, shape: Any = None, dtype: Any = None, layout: Any = None, **rest: Any) -> Any:
    fragment = fragments.get(NAME, role)
    shape = shape or fragment.shape
    layout = layout or fragment.tiled(*shape)
    return lw.Buffer(role, shape, dtype or fragment.dtype, layout=layout, **rest)


D, A, B = (buffer(role) for role in "DAB")
WRONG: Any = {
    "text": "A",
    "none": None,
    "one": 16,
    "letter": "N",
}  # untyped, as a user may pass them
X = lw.Buffer("X", (48, 8), "f32", layout=fragments.get(NAME, "D").tiled(48, 8))
ZEROS = {"A": np.zeros((16, 16)), "B": np.zeros((16, 8))}


def gemm(d: Any = D, a: Any = A, b: Any = B, c: Any = None, **rest: Any) -> Any:
    lowering = {key: rest.pop(key) for key in ("threads", "active") if key in rest}
    return lw.lower(lw.gemm(d, a, b, c, **rest), **lowering)


UNKNOWN_VARIANT = f"unknown variant; gemm on cuda has {', '.join(lw.list_variants('gemm'))}"


def unknown_dtype(name: str) -> str:
    return f"dtype: {name} is unknown; known are {', '.join(row.name for row in DTYPES)}"


def no_instruction(got: str) -> str:
    rows = []
    for k in (16, 8):
        for dtype, name in (("bf16", "bfloat16"), ("f16", "float16")):
            rows.append(f"mma.m16n8k{k}.{dtype}: needs A {name}, B {name}, {WANT}; got {got}")
    return "no instruction fits; " + "; ".join(rows)


REFUSED: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    "wrong shape: K of A and B": (
        lambda: gemm(b=buffer("B", (32, 8))),
        "mma.m16n8k*",
        "lowering",
        (
            "K of A and B must agree; A is 16x16 (M,K), B is 32x8 (K,N) after transposes; for 2:4 "
            "sparse A give the positions, E="
        ),
    ),
    "wrong shape: D": (
        lambda: gemm(d=buffer("D", (32, 8))),
        "mma.m16n8k*",
        "lowering",
        "D must be 16x8 (M,N), the shape of A·B; got 32x8",
    ),
    "wrong shape: C": (
        lambda: gemm(c=buffer("C", (16, 16))),
        "mma.m16n8k*",
        "lowering",
        "C must be 16x8 (M,N), the shape of A·B; got 16x16",
    ),
    "wrong shape: a forgotten transpose": (
        lambda: gemm(
            a=lw.Buffer("A", (32, 16), "f16", layout=A_TRANSPOSED), b=buffer("B", (32, 8))
        ),
        "mma.m16n8k*",
        "lowering",
        (
            "K of A and B must agree; A is 32x16 (M,K), B is 32x8 (K,N) after transposes; for 2:4 "
            "sparse A give the positions, E="
        ),
    ),
    "wrong shape: three dimensions": (
        lambda: gemm(a=lw.Buffer("A", (2, 16, 8), "f16", layout=A_FRAG)),
        "mma.m16n8k*",
        "lowering",
        ("A must have exactly two dimensions that are not 1; A[0:2,0:16,0:8] has shape (2, 16, 8)"),
    ),
    "a tile that does not divide: K": (
        lambda: gemm(
            a=buffer(
                "A", (16, 8), layout=TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
            ),
            b=buffer("B", (8, 8), layout=TileLayout(S[(4, 2, 8) : (2 @ laneid, 1, 4 @ laneid)])),
        ),
        "mma.m16n8k*",
        "lowering",
        (
            "no instruction fits; mma.m16n8k16.f16: K = 8 is no multiple of 16; mma.m16n8k8.f16: "
            "B.K needs the lane digit 4:1, has 4:2@laneid"
        ),
    ),
    "an unsupported dtype: tf32": (
        lambda: gemm(a=buffer("A", dtype="tf32"), b=buffer("B", dtype="tf32")),
        "mma.m16n8k*",
        "lowering",
        (
            "no instruction fits; mma.m16n8k8.tf32: A.M needs the register digit 2:1, has 2:2@m; "
            "mma.m16n8k4.tf32: A.M needs the register digit 2:1, has 2:2@m"
        ),
    ),
    "an unsupported dtype: int8": (
        lambda: gemm(a=buffer("A", dtype="int8"), b=buffer("B", dtype="int8")),
        "mma.m16n8k*",
        "lowering",
        (
            "no instruction fits: none takes A int8, B int8, C float32, D float32; with these A "
            "and B, C and D may be int32"
        ),
    ),
    "an unsupported dtype: f16 accumulators": (
        lambda: gemm(d=buffer("D", dtype="float16")),
        "mma.m16n8k*",
        "lowering",
        (
            "no instruction fits: mma.m16n8k16.f16 would round every sum to float16; name the "
            "variant to have that, dispatch='mma.sync*'"
        ),
    ),
    "an unsupported dtype: mixed A and B": (
        lambda: gemm(b=buffer("B", dtype="bfloat16")),
        "mma.m16n8k*",
        "lowering",
        (
            "no instruction fits: none takes A float16, B bfloat16, C float32, D float32; with A "
            "float16, B may be float16"
        ),
    ),
    "an operand in shared scope: A": (
        lambda: gemm(a=buffer("A", scope="shared")),
        "mma.m16n8k*",
        "lowering",
        (
            "A must be in registers (scope local); A[16,16] float16 is in shared: stage it "
            "with ldmatrix"
        ),
    ),
    "an operand in shared scope: B": (
        lambda: gemm(b=buffer("B", scope="shared")),
        "mma.m16n8k*",
        "lowering",
        (
            "B must be in registers (scope local); B[16,8] float16 is in shared: stage it with "
            "ldmatrix"
        ),
    ),
    "an operand in shared scope: D": (
        lambda: gemm(d=buffer("D", scope="shared")),
        "mma.m16n8k*",
        "lowering",
        (
            "D must be in registers (scope local); D[16,8] float32 is in shared: copy it into "
            "registers first"
        ),
    ),
    "a replica": (
        lambda: gemm(a=buffer("A", layout=parse(f"{A_FRAG} + R[2:1@warpid]"))),
        "mma.m16n8k*",
        "no_replica",
        (
            "A is replicated: S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)] + R[2:1@warpid]; drop "
            "R[...]: warps that a layout does not name hold copies anyway"
        ),
    ),
    "a swizzle": (
        lambda: gemm(a=buffer("A", layout=ComposeLayout(3, 3, 3, parse("S[256:1]")))),
        "mma.m16n8k*",
        "no_replica",
        (
            "A is swizzled (ComposeLayout(3, 3, 3, S[256:1])); registers have no addresses to "
            "permute: use a TileLayout"
        ),
    ),
    "alpha = 2": (
        lambda: gemm(alpha=2),
        "mma.m16n8k*",
        "lowering",
        "alpha must be 1; got 2: scale A, B or D instead",
    ),
    "alpha = True": (
        lambda: gemm(alpha=True),
        "mma.m16n8k*",
        "lowering",
        "alpha must be 1; got True: scale A, B or D instead",
    ),
    "beta = 0.5": (
        lambda: gemm(beta=0.5),
        "mma.m16n8k*",
        "lowering",
        "beta must be 0 (D = A·B) or 1 (D = A·B + C); got 0.5",
    ),
    "a narrowed lane set": (
        lambda: gemm(active={"laneid": (0, 16)}),
        "mma.m16n8k*",
        "full_active_lanes",
        (
            "active lanes are narrowed: laneid runs over 0..15, all of 0..31 must take part in "
            "an mma"
        ),
    ),
    "an axis that the scope does not have": (
        lambda: gemm(active={"warpid": (0, 1)}),
        "mma.m16n8k*",
        "full_active_lanes",
        "axis warpid is active but is no axis of scope warp",
    ),
    "half a warp at thread scope": (
        lambda: gemm(scope="thread", threads=16),
        "mma.m16n8k*",
        "full_active_lanes",
        "an mma needs whole warps of 32 threads; the CTA has 16",
    ),
    "an unknown variant": (
        lambda: gemm(dispatch="wmma"),
        "wmma",
        "lookup",
        UNKNOWN_VARIANT,
    ),
    "a symbol in a register layout": (
        lambda: gemm(a=buffer("A", layout=parse("S[(2,8,2,4,2):(2,4@laneid,n,1@laneid,1)]"))),
        "mma.m16n8k*",
        "lowering",
        (
            "A: register and lane numbers must be static; "
            "S[(2,8,2,4,2):(2,4@laneid,n,1@laneid,1)] has symbols: substitute them with .subs"
        ),
    ),
    "a symbolic extent": (
        lambda: gemm(a=A[0 : symbol("n"), 0:16]),
        "mma.m16n8k*",
        "lowering",
        "A must have static extents; A[0:n,0:16] has (n, 16)",
    ),
    "a symbolic register": (
        lambda: gemm(a=buffer("A", (16, 48))[0:16, (k := 16 * DigitSymbol("k", 3)) : k + 16]),
        "mma.m16n8k*",
        "lowering",
        "A: the region A[0:16,k * 16:k * 16 + 16] must have numbers as bounds: register numbers "
        "are static; unroll the loop, or take a variable of an unrolled loop",
    ),
    "alpha is a symbol": (
        lambda: gemm(alpha=symbol("n")),
        "mma.m16n8k*",
        "lowering",
        "alpha must be 1; got n: scale A, B or D instead",
    ),
    "tensor memory": (
        lambda: gemm(
            a=buffer("A", layout=parse("S[(2,8,2,4,2):(2@TCol,4@laneid,4@TCol,1@laneid,1@TCol)]"))
        ),
        "mma.m16n8k*",
        "lowering",
        (
            "A: registers lie on axis m; "
            "S[(2,8,2,4,2):(2@TCol,4@laneid,4@TCol,1@laneid,1@TCol)] has TCol"
        ),
    ),
    "two elements in one register": (
        lambda: gemm(a=buffer("A", layout=parse("S[(2,8,2,4,2):(2,4@laneid,2,1@laneid,1)]"))),
        "mma.m16n8k*",
        "lowering",
        (
            "A: S[(2,8,2,4,2):(2,4@laneid,2,1@laneid,1)] is not injective: elements (0, 8) and "
            "(8, 0) share m 2, laneid 0"
        ),
    ),
    "C and D that overlap": (
        lambda: gemm(d=X[16:48], a=buffer("A", (32, 16)), c=X[0:32], beta=1),
        "mma.m16n8k*",
        "lowering",
        (
            "C overlaps D in X[48,8] float32: register 4 of C is overwritten before it is "
            "read; C must be D's own region or disjoint from it"
        ),
    ),
    "threads that D needs and the CTA lacks": (
        lambda: gemm(
            d=buffer("D", (32, 8), layout=D_TWO_WARPS), a=buffer("A", (32, 16), layout=A_TWO_WARPS)
        ),
        "mma.m16n8k*",
        "lowering",
        (
            "D: the CTA's 32 threads hold 128 of the 256 elements of D[0:32,0:8]; "
            "S[(2,2,8,4,2):(1@warpid,2,4@laneid,1@laneid,1)] reaches more threads"
        ),
    ),
    "warps that hold another part of A": (
        lambda: gemm(a=buffer("A", (32, 16), layout=A_TWO_WARPS)[0:16], scope="cta", threads=64),
        "mma.m16n8k*",
        "lowering",
        (
            "A: thread 32 computes a part of D[0:16,0:8] but does not hold its part of "
            "A[0:16,0:16]; S[(2,2,8,2,4,2):(1@warpid,2,4@laneid,4,1@laneid,1)] must reach all "
            "threads that S[(2,32,2):(2,1@laneid,1)] reaches"
        ),
    ),
}

LAYOUT_ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "an instruction without the modifier": (
        lambda: dataclasses.replace(lw.MMA_INSTRUCTIONS[0], modifier="xor"),
        "instruction mma.m16n8k16.bf16: the modifier must be ''; got 'xor'",
    ),
    "an operand that no mma has": (
        lambda: lw.MMA_INSTRUCTIONS[0].fragment("X"),
        "instruction mma.m16n8k16.bf16: has A, B, C, D; got 'X'",
    ),
    "a region of nothing": (
        lambda: lw.BufferRegion(None, ((0, 1),)),  # type: ignore[arg-type]
        "BufferRegion: needs a Buffer; got None",
    ),
    "a call without operands": (
        lambda: lw.TilePrimitiveCall("gemm", {}),
        "gemm: operand D must be a region of a Buffer; got None",
    ),
    "a variant that is no name": (
        lambda: lw.gemm(A, A, A, dispatch=5),  # type: ignore[arg-type]
        "gemm: dispatch is the name of a variant, or None; got 5",
    ),
    "a copy that may be asynchronous": (
        lambda: lw.copy(A, A, asynchronous="no"),  # type: ignore[arg-type]
        "copy: asynchronous must be True or False; got 'no'",
    ),
    "a tile that does not divide: tile_to": (
        lambda: A_FRAG.tile_to([24, 8], [16, 8]),
        "tile_to: extent 24 of dimension 0 must be a multiple of 16; 16 and 32 fit",
    ),
    "a tile that does not divide: tiled": (
        lambda: fragments.get(NAME, "A").tiled(24, 16),
        "tile_to: extent 24 of dimension 0 must be a multiple of 16; 16 and 32 fit",
    ),
    "a region out of range: above": (
        lambda: A[0:17, 0:16],
        "A[…]: the range 0:17 of dimension 0 must lie in 0:16",
    ),
    "a region out of range: below": (
        lambda: A[-1:15, 0:16],
        "A[…]: the range -1:15 of dimension 0 must lie in 0:16",
    ),
    "a region out of range: an index": (
        lambda: A[16],
        "A[…]: the range 16:17 of dimension 0 must lie in 0:16",
    ),
    "a region out of range: empty": (
        lambda: A[3:3],
        "A[…]: the range 3:3 of dimension 0 is empty",
    ),
    "a region out of range: too many indices": (
        lambda: A[0:16, 0:16, 0],
        "A[…]: has 2 dimensions; got 3 indices",
    ),
    "a region out of range: a step": (
        lambda: A[::2],
        "A[…]: a region has no steps; got step 2 in dimension 0",
    ),
    "a region out of range: no integer": (
        lambda: A[1.5],
        "A[…]: index: must be an integer or an integer expression; got 1.5 (float)",
    ),
    "a region out of range: one range for two dimensions": (
        lambda: lw.BufferRegion(A, ((0, 16),)),
        "A[…]: give (begin, end) for each dimension of (16, 16); got ((0, 16),)",
    ),
    "a coordinate out of range: apply": (
        lambda: D_FRAG.apply(16, 0, shape=(16, 8)),
        (
            "apply: coordinate 16 of dimension 0 must lie in 0..15 for "
            "S[(2,8,4,2):(2,4@laneid,1@laneid,1)]"
        ),
    ),
    "a coordinate out of range: a flat index": (
        lambda: D_FRAG.apply(128),
        "apply: flat index 128 must lie in 0..127 for S[(2,8,4,2):(2,4@laneid,1@laneid,1)]",
    ),
    "a coordinate out of range: an array": (
        lambda: D_FRAG.apply(np.array([0, -1]), 0, shape=(16, 8)),
        (
            "apply: coordinate -1 of dimension 0 must lie in 0..15 for "
            "S[(2,8,4,2):(2,4@laneid,1@laneid,1)]"
        ),
    ),
    "a coordinate out of range: owners": (
        lambda: D_FRAG.owners(0, 8, shape=(16, 8)),
        (
            "owners: coordinate 8 of dimension 1 must lie in 0..7 for "
            "S[(2,8,4,2):(2,4@laneid,1@laneid,1)]"
        ),
    ),
    "a shape of another size: apply": (
        lambda: D_FRAG.apply(0, 0, shape=(16, 16)),
        (
            "apply: the shape must hold as many elements as the layout; shape (16, 16) holds "
            "256, S[(2,8,4,2):(2,4@laneid,1@laneid,1)] holds 128"
        ),
    ),
    "a shape of another size: table": (
        lambda: D_FRAG.table((8, 8)),
        (
            "table: the shape must hold as many elements as the layout; shape (8, 8) holds 64, "
            "S[(2,8,4,2):(2,4@laneid,1@laneid,1)] holds 128"
        ),
    ),
    "a shape of another size: group": (
        lambda: D_FRAG.group((16, 16)),
        (
            "group: the shape must hold as many elements as the layout; shape (16, 16) holds "
            "256, S[(2,8,4,2):(2,4@laneid,1@laneid,1)] holds 128"
        ),
    ),
    "a shape of another size: inverse": (
        lambda: D_FRAG.inverse((4, 4)),
        (
            "inverse: the shape must hold as many elements as the layout; shape (4, 4) holds "
            "16, S[(2,8,4,2):(2,4@laneid,1@laneid,1)] holds 128"
        ),
    ),
    "an unknown axis: get": (
        lambda: Axis.get("lane_id"),
        ("axis: no axis is named 'lane_id'; did you mean laneid? (Axis.register makes a new one)"),
    ),
    "an unknown axis: span": (
        lambda: D_FRAG.span("foo"),
        (
            "axis: no axis is named 'foo'; there are Bank, F, P, TCol, TLane, bx, by, bz, cbx, "
            "cby, cbz, laneid, m, tid_in_wg, tx, warpid, wgid, wid_in_wg (Axis.register makes "
            "a new one)"
        ),
    ),
    "an unknown axis: parse": (
        lambda: parse("S[8:4@landid]"),
        (
            "parse: axis: no axis is named 'landid'; did you mean laneid? (Axis.register makes "
            "a new one)\n"
            "  S[8:4@landid]\n"
            "        ^"
        ),
    ),
    "unparsable text: a bracket": (
        lambda: parse("S[(2,8:(1,2)]"),
        "parse: expected ')', found ':'\n  S[(2,8:(1,2)]\n        ^",
    ),
    "unparsable text: a character": (
        lambda: parse("S[8;4]"),
        "parse: the character ';' has no place here\n  S[8;4]\n     ^",
    ),
    "unparsable text: the end": (
        lambda: parse("S[8:"),
        "parse: expected a number or a name, found the end\n  S[8:\n      ^",
    ),
    "unparsable text: code": (
        lambda: parse("S[8:__import__('os')]"),
        "parse: expected ']', found '('\n  S[8:__import__('os')]\n                ^",
    ),
    "unparsable text: no text": (
        lambda: parse(WRONG["none"]),
        "parse: needs text; got None",
    ),
    "an unsupported dtype: unknown": (
        lambda: buffer("A", dtype="float17"),
        unknown_dtype("'float17'"),
    ),
    "an unsupported dtype: none": (
        lambda: lw.Buffer("A", (16,), WRONG["none"], scope="global"),
        unknown_dtype("None"),
    ),
    "a lane range that is none": (
        lambda: gemm(active={"laneid": (0, 1.5)}),
        "lower: active['laneid'] must be (begin, end); got (0, 1.5)",
    ),
    "lane ranges that are none": (
        lambda: gemm(active=16),
        "lower: active must map axes to (begin, end); got 16",
    ),
    "half a warp": (
        lambda: gemm(threads=16),
        "lower: a call at warp scope needs whole warps of 32 threads; got threads=16",
    ),
    "no threads": (
        lambda: gemm(threads=0),
        "lower: threads must lie in 1..1024; got 0",
    ),
    "one warp at warpgroup scope": (
        lambda: gemm(scope="wg", threads=32),
        ("lower: a call at warpgroup scope needs whole warpgroups of 128 threads; got threads=32"),
    ),
    "an unknown scope": (
        lambda: lw.gemm(D, A, B, scope="grid"),
        "gemm: the scope must be one of thread, warp, warpgroup, cta, cluster; got 'grid'",
    ),
    "no call": (
        lambda: lw.lower(D),
        (
            "lower: needs a tile primitive call, such as gemm(…); got "
            "Buffer(D[16,8] float32, local, S[(2,32,2):(2,1@laneid,1)])"
        ),
    ),
    "no buffer": (
        lambda: lw.gemm(D, WRONG["text"], B),
        "gemm: operand A must be a Buffer or a region of one; got 'A'",
    ),
    "a flag that is no bool": (
        lambda: lw.gemm(D, A, B, transpose_A=WRONG["letter"]),
        "gemm: transpose_A must be True or False; got 'N'",
    ),
    "two buffers of one name": (
        lambda: lw.gemm(D, A, buffer("A", (16, 8), layout=B_FRAG)),
        "gemm: two different buffers are named 'A'; give each its own name",
    ),
    "a register buffer without a layout": (
        lambda: lw.Buffer("A", (16, 16), "f16"),
        (
            "Buffer A: a buffer in registers (scope 'local') needs a layout: which lane and "
            "register holds each element"
        ),
    ),
    "a layout that is none": (
        lambda: lw.Buffer("A", (16, 16), "f16", layout=WRONG["text"]),
        "Buffer A: parse: a layout has S[...] or R[...], such as S[8:1]; got 'A'",
    ),
    "a memory scope that is none": (
        lambda: lw.Buffer("A", (16, 16), "f16", scope="register"),
        "Buffer A: the scope must be one of local, shared, global, tmem; got 'register'",
    ),
    "tensor memory without a layout": (
        lambda: lw.Buffer("A", (128, 16), "f32", scope="tmem"),
        (
            "Buffer A: a buffer in tensor memory (scope 'tmem') needs a layout: which lane and "
            "column holds each element"
        ),
    ),
    "tensor memory on another axis": (
        lambda: lw.Buffer("A", (128, 16), "f32", "tmem", parse("S[(128,16):(1@TLane,1)]")),
        (
            "Buffer A: a buffer in tensor memory (scope 'tmem') lies on the axes TLane and TCol; "
            "got S[(128,16):(1@TLane,1)]"
        ),
    ),
    "swizzled tensor memory": (
        lambda: lw.Buffer(
            "A", (8, 64), "f16", "tmem", ComposeLayout(3, 3, 3, parse("S[(8,64):(64,1)]"))
        ),
        (
            "Buffer A: a buffer in tensor memory (scope 'tmem') lies on the axes TLane and TCol; "
            "got ComposeLayout(3, 3, 3, S[(8,64):(64,1)])"
        ),
    ),
    "a shape that is none": (
        lambda: lw.Buffer("A", WRONG["one"], "f16", scope="global"),
        "Buffer A: the shape must be a tuple of extents; got 16",
    ),
    "an extent of zero": (
        lambda: lw.Buffer("A", (0, 16), "f16", scope="global"),
        "Buffer A: extent: must be at least 1; got 0",
    ),
    "a name that is none": (
        lambda: lw.Buffer("A B", (16,), "f16", scope="global"),
        "Buffer: the name must be an identifier; got 'A B'",
    ),
    "simulate without a matrix": (
        lambda: gemm().simulate(A=np.zeros((16, 16))),
        "run: the program reads the matrices A, B; got A: B is missing",
    ),
    "simulate with a wrong shape": (
        lambda: gemm().simulate(A=np.zeros((16, 8)), B=np.zeros((16, 8))),
        "operand A: A needs a matrix of shape (16, 16); got (16, 8)",
    ),
    "simulate with no numbers": (
        lambda: gemm().simulate(A=np.zeros((16, 16), dtype=complex), B=np.zeros((16, 8))),
        "operand A: needs numbers; got dtype complex128",
    ),
    "simulate with an unknown role": (
        lambda: gemm().simulate(**ZEROS, E=1),
        "run: the program reads the matrices A, B; got A, B, E: E is no operand",
    ),
    "simulate with two matrices for one buffer": (
        lambda: gemm(beta=1).simulate(**ZEROS, C=np.zeros((16, 8)), D=np.ones((16, 8))),
        "run: D is the buffer D, given two matrices",
    ),
    "a target without the instruction": (
        lambda: gemm().ptx("sm_75"),
        (
            "target: sm_75 lacks mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32; sm_80 and "
            "newer have it"
        ),
    ),
    "a target that is none": (
        lambda: gemm().ptx("compute_90"),
        "target: must look like sm_90 or sm_90a; got 'compute_90'",
    ),
    "a target that is no text": (
        lambda: gemm().ptx(90),
        "target: must look like sm_90 or sm_90a; got 90",
    ),
    "a target that is unknown": (
        lambda: gemm().ptx("sm_99"),
        "target: sm_99 is unknown; near it are sm_100, sm_100a and sm_100f",
    ),
    "a machine that is none": (
        lambda: lw.verify([], machine="tpu"),
        "verify: the machine must be 'device' or 'simulator'; got 'tpu'",
    ),
    "an instruction that is none": (
        lambda: fragments.get("mma.m4n4k4.f64", "A"),
        (
            "fragments: no instruction is named 'mma.m4n4k4.f64'; did you mean mma.m8n8k4.f64, "
            "mma.m16n8k4.f64, mma.m8n8k4.f16, mma.m16n8k8.f64?"
        ),
    ),
    "a buffer whose layout holds another tile": (
        lambda: buffer("A", layout=D_FRAG),
        "Buffer A: the shape (16, 16) has 256 elements, the layout 128: "
        "S[(2,8,4,2):(2,4@laneid,1@laneid,1)]",
    ),
    "an operand that is none": (
        lambda: fragments.get(NAME, "E"),
        "fragments: mma.m16n8k16.f16 has the operands A, B, C/D.f32, C/D.f16; got 'E'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_variant_fits(name: str) -> None:
    call, *reason = REFUSED[name]
    with pytest.raises(lw.DispatchError) as caught:
        call()
    assert caught.value.reasons[0] == tuple(reason)


@pytest.mark.parametrize("name", LAYOUT_ERRORS)
def test_no_such_thing(name: str) -> None:
    call, message = LAYOUT_ERRORS[name]
    with pytest.raises(LayoutError) as caught:
        call()
    assert str(caught.value) == message


def test_the_good_calls_beside_the_bad_ones_are_accepted() -> None:
    """What the tables bend is sound as it stands."""
    assert len(gemm().mma) == 1
    two_warps = {"d": buffer("D", (32, 8), layout=D_TWO_WARPS), "scope": "cta", "threads": 64}
    assert len(gemm(a=buffer("A", (32, 16), layout=A_TWO_WARPS), **two_warps).mma) == 1
    flipped = lw.Buffer("A", (32, 16), "f16", layout=A_TRANSPOSED)
    assert len(gemm(a=flipped, b=buffer("B", (32, 8)), transpose_A=True).mma) == 2
    assert len(gemm(d=X[0:16], c=X[32:48], beta=1).mma) == 1
    assert gemm(beta=1).simulate(**ZEROS, D=np.ones((16, 8))).tolist() == np.ones((16, 8)).tolist()
