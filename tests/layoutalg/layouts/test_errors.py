"""What wrong calls say: the operation, the requirement, what came, and what would fit."""

# mypy: disable-error-code="arg-type, list-item, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

from layoutalg import (
    Axis,
    ComposeLayout,
    Iter,
    LayoutError,
    R,
    S,
    SwizzleLayout,
    TileLayout,
    Undecided,
    align,
    laneid,
    m,
    mma_shared_layout,
    parse,
    prove,
    tmem_datapath_layout,
    tmem_scale_layout,
    trainium_layout,
    tx,
    wg_local_layout,
    wgid,
)
from layoutalg.memory.access import columnwise, matrices, rowwise
from layoutalg.sizes.symbolic import symbol

n = symbol("n")
D = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
M = TileLayout(S[(8, 8) : (8, 1)])
D_TEXT = "S[(2,8,4,2):(2,4@laneid,1@laneid,1)]"
AXES = "<every axis>"  # other tests register axes of their own
NOT_INT = "must be an integer or an integer expression; got"
NOT_COORD = "must be an integer, an integer array or an integer expression; got"
NEW = "(Axis.register makes a new one)"
SIZES = "the shape must hold as many elements as the layout; shape"

WRONG: tuple[tuple[Callable[[], Any], str], ...] = (
    (
        lambda: D.covers((16, 8), box=5),
        "covers: box must be a mapping axis -> extent; got 5",
    ),
    (
        lambda: parse("8"),
        "parse: a layout has S[...] or R[...], such as S[8:1]; got '8'",
    ),
    (
        lambda: parse("S[4:lanid]"),
        "parse: lanid reads as the axis laneid: write 1@laneid\n  S[4:lanid]\n      ^",
    ),
    (
        lambda: parse("S[4:R]"),
        "parse: R stands before its bracket, as R[8:1]; it is no size\n  S[4:R]\n      ^",
    ),
    (
        lambda: ComposeLayout(3, 3, 3, M, "x"),
        "swizzle: swizzle_inner must be True or False; got 'x'",
    ),
    (
        lambda: wg_local_layout("x"),
        "wg_local_layout: cols must be a positive number; got 'x'",
    ),
    (
        lambda: tmem_datapath_layout("C", 64, 8, 2),
        "tmem_datapath_layout: datapath C has the sub_slabs (0, 1); got 2",
    ),
    (
        lambda: tmem_scale_layout(48, 4),
        "tmem_scale_layout: rows must be a multiple of 32, or fewer; got 48",
    ),
    (
        lambda: tmem_scale_layout(128, 3),
        "tmem_scale_layout: blocks must be 1, 2 or a multiple of 4; got 3",
    ),
    (
        lambda: tmem_scale_layout(128, 6),
        "tmem_scale_layout: blocks must be 1, 2 or a multiple of 4; got 6",
    ),
    (
        lambda: tmem_scale_layout(0, 4),
        "tmem_scale_layout: rows must be a positive number; got 0",
    ),
    (
        lambda: tmem_scale_layout(128, True),
        "tmem_scale_layout: blocks must be a positive number; got True",
    ),
    (
        lambda: trainium_layout("PX", (8, 64)),
        "trainium_layout: needs one P or F per dimension of (8, 64); got 'PX'",
    ),
    (
        lambda: mma_shared_layout("float16", "16B", (8, 64)),
        "mma_shared_layout: the mode must be one of 32B, 64B, 128B; got '16B'",
    ),
    (
        lambda: S[0:1],
        "S[...]: extent: must be at least 1; got 0",
    ),
    (
        lambda: S[-3],
        "S[...]: extent: must be at least 1; got -3",
    ),
    (
        lambda: S[2.5:1],
        f"S[...]: extent: {NOT_INT} 2.5 (float)",
    ),
    (
        lambda: S[True:1],
        "S[...]: extent: must be an integer, not the bool True",
    ),
    (
        lambda: S[None:1],
        f"S[...]: extent: {NOT_INT} None (NoneType)",
    ),
    (
        lambda: S["8":1],
        f"S[...]: extent: {NOT_INT} '8' (str)",
    ),
    (
        lambda: S[8:2.5],
        f"S[...]: stride: {NOT_INT} 2.5 (float)",
    ),
    (
        lambda: S[8:None],
        f"S[...]: stride: {NOT_INT} None (NoneType)",
    ),
    (
        lambda: S[(8, 4) : (4,)],
        "S[...]: needs one stride per extent; got the extents (8, 4) and the strides (4,)",
    ),
    (
        lambda: S[8 : (4, "laneid")],
        "S[...]: needs one stride per extent; got the extents (8,) and the strides (4, 'laneid')",
    ),
    (
        lambda: S[8:4:2],
        "S[...]: takes extents : strides; got a third part",
    ),
    (
        lambda: S[8:4, 2:1],
        "S[...]: put the extents in one tuple and the strides in another, as S[(8, 4) : (4, 1)]",
    ),
    (
        lambda: S[8:"lane"],
        f"axis: no axis is named 'lane'; did you mean laneid, TLane? {NEW}",
    ),
    (
        lambda: S[sympy.Symbol("n") : 1],
        "S[...]: extent: n is not known to be an integer; make its symbols with "
        "sympy.Symbol(name, integer=True, positive=True)",
    ),
    (
        lambda: S[8] + S[4],
        "layout: there can be one S[...]; got S[8:1] + S[4:1]. Write one S with all its iters",
    ),
    (
        lambda: R[2:1] + S[8] + R[2:4],
        "layout: there can be one R[...]; got S[8:1] + R[2:1] + S[()] + R[2:4]. Write "
        "one R with all its iters",
    ),
    (
        lambda: S[8] + 2.5,
        f"offset: {NOT_INT} 2.5 (float)",
    ),
    (
        lambda: S[8] + True,
        "offset: must be an integer, not the bool True",
    ),
    (
        lambda: 2.5 @ laneid,
        f"2.5 @ laneid: {NOT_INT} 2.5 (float)",
    ),
    (
        lambda: Iter(4, 1, "q"),
        f"axis: no axis is named 'q'; there are {AXES} {NEW}",
    ),
    (
        lambda: Iter(4, 1, 7),
        f"axis: no axis is named 7; there are {AXES} {NEW}",
    ),
    (
        lambda: Iter(4, "x"),
        f"stride: {NOT_INT} 'x' (str)",
    ),
    (
        lambda: Axis.get("landid"),
        f"axis: no axis is named 'landid'; did you mean laneid? {NEW}",
    ),
    (
        lambda: Axis.get(None),
        f"axis: no axis is named None; there are {AXES} {NEW}",
    ),
    (
        lambda: Axis("laneid"),
        "axis: 'laneid' is taken: laneid counts each thread in the warp; Axis.get returns it",
    ),
    (
        lambda: Axis.register("laneid"),
        "axis: 'laneid' is taken: laneid counts each thread in the warp; Axis.get returns it",
    ),
    (
        lambda: Axis.register("my axis"),
        "axis: a name must be an identifier; got 'my axis'",
    ),
    (
        lambda: Axis.register("q7", "cta", "warp"),
        "axis: 'q7' must count a narrower unit inside a wider scope of thread, warp, "
        "warpgroup, cta, cluster; got 'cta' inside 'warp'",
    ),
    (
        lambda: Axis.register("q7", "thread", "world"),
        "axis: 'q7' must count a narrower unit inside a wider scope of thread, warp, "
        "warpgroup, cta, cluster; got 'thread' inside 'world'",
    ),
    (
        lambda: TileLayout("S[8:1]"),
        "TileLayout: needs an expression such as S[(8,4):(4@laneid,1@laneid)]; got "
        "'S[8:1]'. parse(text) reads text, TileLayout.from_iters takes iters",
    ),
    (
        lambda: TileLayout.from_iters([(8, 1, "m")]),
        "from_iters: every entry must be an Iter; got (8, 1, 'm')",
    ),
    (
        lambda: TileLayout.from_iters([Iter(8)], offset=[3]),
        "from_iters: the offset must be a mapping axis -> value; got [3]",
    ),
    (
        lambda: TileLayout.from_iters([Iter(8)], offset={"m": 1, m: 2}),
        "from_iters: two offsets are given for axis m",
    ),
    (
        lambda: TileLayout.from_iters([Iter(8)], offset={"q": 1}),
        f"axis: no axis is named 'q'; there are {AXES} {NEW}",
    ),
    (
        lambda: TileLayout.from_iters([Iter(8)], offset={"m": 0.5}),
        f"from_iters: offset on m: {NOT_INT} 0.5 (float)",
    ),
    (
        lambda: TileLayout.from_iters(8),
        "from_iters: every entry must be an Iter; got 8",
    ),
    (
        lambda: D.apply(128),
        f"apply: flat index 128 must lie in 0..127 for {D_TEXT}",
    ),
    (
        lambda: D.apply(-1),
        f"apply: flat index -1 must lie in 0..127 for {D_TEXT}",
    ),
    (
        lambda: D.apply(0, 8, shape=(16, 8)),
        f"apply: coordinate 8 of dimension 1 must lie in 0..7 for {D_TEXT}",
    ),
    (
        lambda: D.apply(16, 0, shape=(16, 8)),
        f"apply: coordinate 16 of dimension 0 must lie in 0..15 for {D_TEXT}",
    ),
    (
        lambda: D.apply(0, 0, 4, 0),
        f"apply: digit 4 of iter 2 must lie in 0..3 for {D_TEXT}",
    ),
    (
        lambda: D.apply(0, 0),
        f"apply: without a shape give one flat index or one digit per iter; {D_TEXT} "
        "has 4 iters, got 2 coordinates",
    ),
    (
        lambda: D.apply(0, 0, 0, shape=(16, 8)),
        "apply: give one coordinate per dimension of the shape (16, 8); got 3",
    ),
    (
        lambda: D.apply(0, 0, shape=(8, 8)),
        f"apply: {SIZES} (8, 8) holds 64, {D_TEXT} holds 128",
    ),
    (
        lambda: D.apply(0, 0, shape=(16, 0)),
        "apply: extent of the shape: must be at least 1; got 0",
    ),
    (
        lambda: D.apply(0, 0, shape=16),
        "apply: the shape must be a tuple of extents; got 16",
    ),
    (
        lambda: D.apply(0, 0, shape="ab"),
        "apply: the shape must be a tuple of extents; got 'ab'",
    ),
    (
        lambda: D.apply(1.0),
        f"apply: coordinate: {NOT_COORD} 1.0 (float)",
    ),
    (
        lambda: D.apply("1"),
        f"apply: coordinate: {NOT_COORD} '1' (str)",
    ),
    (
        lambda: D.apply(True),
        "apply: coordinate: must be an integer, not the bool True",
    ),
    (
        lambda: D.apply([1, 2]),
        f"apply: coordinate: {NOT_COORD} [1, 2] (list)",
    ),
    (
        lambda: D.apply(np.array([1.0])),
        "apply: coordinate: an array must hold integers; got float64",
    ),
    (
        lambda: D.apply(np.array([0, 200])),
        f"apply: flat index 200 must lie in 0..127 for {D_TEXT}",
    ),
    (
        lambda: D.apply(np.array([True, False])),
        "apply: coordinate: an array must hold integers; got bool",
    ),
    (
        lambda: D.apply(np.arange(3), np.arange(2), shape=(16, 8)),
        "apply: the arrays of coordinates must broadcast together; got the shapes (3,), (2,)",
    ),
    (
        lambda: D.apply(np.array([2**63], dtype=np.uint64)),
        "apply: coordinate: an array must fit in signed 64 bits; got 9223372036854775808",
    ),
    (
        lambda: D.apply(np.arange(3), n, shape=(16, 8)),
        "apply: arrays and symbols cannot be mixed in one coordinate",
    ),
    (
        lambda: TileLayout(S[4 : 2**62]).apply(np.arange(4)),
        "apply: the coordinates of S[4:4611686018427387904] do not fit in 64 bits",
    ),
    (
        lambda: TileLayout(S[n:1]).apply(np.arange(4)),
        "apply: the sizes must be numbers; S[n:1] has the symbols n: substitute them "
        "with .subs({'n': …})",
    ),
    (
        lambda: D.apply_to_shape([1], (16, 8)),
        "apply_to_shape: give one coordinate per dimension of the shape (16, 8); got 1",
    ),
    (
        lambda: D.owners(np.arange(3)),
        "owners: the coordinate must be of one element; got an array. table(shape, "
        "replicas=True) answers for every element",
    ),
    (
        lambda: D.table((16, 9)),
        f"table: {SIZES} (16, 9) holds 144, {D_TEXT} holds 128",
    ),
    (
        lambda: TileLayout(S[8 : 2**61]).table((8,)),
        "table: the coordinates of S[8:2305843009213693952] do not fit in 64 bits",
    ),
    (
        lambda: TileLayout(S[n:1]).table((8,)),
        "table: the sizes must be numbers; S[n:1] has the symbols n: substitute them "
        "with .subs({'n': …})",
    ),
    (
        lambda: D.inverse((16, 8)).at(laneid=3),
        "inverse: a value for each of the axes laneid, m is needed; got laneid",
    ),
    (
        lambda: D.inverse((16, 8)).at(laneid=3, m=1, tx=2),
        "inverse: a value for each of the axes laneid, m is needed; got laneid, m, tx",
    ),
    (
        lambda: D.inverse((16, 8)).at(laneid=0.5, m=1),
        f"inverse: laneid: {NOT_COORD} 0.5 (float)",
    ),
    (
        lambda: TileLayout(S[(2, 2) : (1, 1)]).inverse((4,)),
        "inverse: on axis m stride 1 must exceed 1, what the smaller strides reach "
        "together, or division does not give the digits back; got S[(2,2):(1,1)]",
    ),
    (
        lambda: TileLayout(S[(2, 3) : (3, 2)]).inverse((6,)),
        "inverse: on axis m stride 3 must exceed 4, what the smaller strides reach "
        "together, or division does not give the digits back; got S[(2,3):(3,2)]",
    ),
    (
        lambda: TileLayout(S[(2, 3) : (0, 1)]).inverse((6,)),
        "inverse: on axis m stride 0 must exceed 0, what the smaller strides reach "
        "together, or division does not give the digits back; got S[(2,3):(0,1)]",
    ),
    (
        lambda: D.size("lane"),
        f"axis: no axis is named 'lane'; did you mean laneid, TLane? {NEW}",
    ),
    (
        lambda: D.span("x"),
        f"axis: no axis is named 'x'; did you mean tx, bx? {NEW}",
    ),
    (
        lambda: D.subs({"n": 2.5}),
        f"subs: n: {NOT_INT} 2.5 (float)",
    ),
    (
        lambda: TileLayout(S[n:1]).subs({"n": -2}),
        "subs: extent n: must be at least 1; got -2",
    ),
    (
        lambda: TileLayout(S[(8, 4) : (1 @ laneid, 1 @ tx)]).canonicalize(),
        "scope: laneid and tx conflict: both count each thread, one in the warp, one "
        "in the cta; got S[(8,4):(1@laneid,1@tx)]",
    ),
    (
        lambda: TileLayout(S[(8, 4) : (1 @ laneid, 1 @ wgid)]).get_scope(),
        "scope: the axes laneid, wgid are disconnected: none counts each warp; got "
        "S[(8,4):(1@laneid,1@wgid)]",
    ),
    (
        lambda: TileLayout(S[(8, 4) : (1 @ laneid, 1 @ wgid)]).verify_well_formed(),
        "scope: the axes laneid, wgid are disconnected: none counts each warp; got "
        "S[(8,4):(1@laneid,1@wgid)]",
    ),
    (
        lambda: D.canonicalize("rocm"),
        "target: must be None or 'cuda'; got 'rocm'",
    ),
    (
        lambda: D.group((12, 8)),
        f"group: {SIZES} (12, 8) holds 96, {D_TEXT} holds 128",
    ),
    (
        lambda: D.group((16, 8, 2)),
        f"group: {SIZES} (16, 8, 2) holds 256, {D_TEXT} holds 128",
    ),
    (
        lambda: D.group((6, 128, 3)),
        f"group: {SIZES} (6, 128, 3) holds 2304, {D_TEXT} holds 128",
    ),
    (
        lambda: TileLayout(S[(6, 4) : (4, 1)]).group((8, 3)),
        "group: extent 8 must cut the iter 4:1@m evenly; got shape (8, 3) for "
        "S[(6,4):(4,1)]; whole iters end at inner sizes 4",
    ),
    (
        lambda: TileLayout(S[(6, 4) : (5, 1)]).group((8, 3)),
        "group: extent 8 must cut the iter 4:1@m evenly; got shape (8, 3) for "
        "S[(6,4):(5,1)]; whole iters end at inner sizes 4",
    ),
    (
        lambda: TileLayout(S[24:1]).group((5, 5)),
        f"group: {SIZES} (5, 5) holds 25, S[24:1] holds 24",
    ),
    (
        lambda: D.group((16, 2.0)),
        f"group: extent of the shape: {NOT_INT} 2.0 (float)",
    ),
    (
        lambda: D.group(16),
        "group: the shape must be a tuple of extents; got 16",
    ),
    (
        lambda: D.group([]),
        f"group: {SIZES} () holds 1, {D_TEXT} holds 128",
    ),
    (
        lambda: TileLayout(S[()]).group((1,)),
        "group: a layout without iters has the shape (); got shape (1) for S[()]",
    ),
    (
        lambda: TileLayout(S[12:1]).group_many([(3, 4), (2, 6)]),
        "group_many: the boundaries 2 and 3 do not nest for S[12:1]: neither divides the other",
    ),
    (
        lambda: TileLayout(S[12:1]).group_many([]),
        "group_many: needs a layout with iters and at least one shape, none of them "
        "empty; got the shapes [] for S[12:1]",
    ),
    (
        lambda: TileLayout(S[12:1]).group_many([(3, 4), ()]),
        "group_many: needs a layout with iters and at least one shape, none of them "
        "empty; got the shapes [(3, 4), ()] for S[12:1]",
    ),
    (
        lambda: TileLayout(S[12:1]).group_many([(3, 5)]),
        "group_many: each shape must hold as many elements as the layout; (3, 5) holds "
        "15, S[12:1] holds 12",
    ),
    (
        lambda: TileLayout(S[12:1]).group_many([12]),
        "group_many: the shape must be a tuple of extents; got 12",
    ),
    (
        lambda: D.permute_dims((0, 1, 2)),
        "permute_dims: needs a permutation of 0..3; got (0, 1, 2)",
    ),
    (
        lambda: D.permute_dims((0, 0, 1, 2)),
        "permute_dims: needs a permutation of 0..3; got (0, 0, 1, 2)",
    ),
    (
        lambda: D.permute_dims("0123"),
        "permute_dims: needs a permutation of 0..3; got '0123'",
    ),
    (
        lambda: D.permute_dims(3),
        "permute_dims: needs a permutation of 0..3; got 3",
    ),
    (
        lambda: D.permute_by_groups((0, 2, 3), (1, 0)),
        f"permute_by_groups: the separators must rise from 0 to 4 for {D_TEXT}; got (0, 2, 3)",
    ),
    (
        lambda: D.permute_by_groups((0, 2, 4), (0, 2)),
        "permute_by_groups: needs a permutation of 0..1; got (0, 2)",
    ),
    (
        lambda: D.permute_by_groups((0, 2.0, 4), (0, 1)),
        f"permute_by_groups: the separators must rise from 0 to 4 for {D_TEXT}; got (0, 2.0, 4)",
    ),
    (
        lambda: D.permute_by_groups(3, (0, 1)),
        f"permute_by_groups: the separators must rise from 0 to 4 for {D_TEXT}; got 3",
    ),
    (
        lambda: D.tile(M, (8, 8), (16,)),
        "tile: the shapes must have one rank; got outer_shape (8, 8), inner_shape (16,)",
    ),
    (
        lambda: D.tile(M, (8, 9), (16, 8)),
        f"tile: outer: {SIZES} (8, 9) holds 72, S[(8,8):(8,1)] holds 64",
    ),
    (
        lambda: D.tile("M", (8, 8), (16, 8)),
        "tile: outer: parse: a layout has S[...] or R[...], such as S[8:1]; got 'M'",
    ),
    (
        lambda: D.tile(M, (8, 8), (16, 8), target="metal"),
        "target: must be None or 'cuda'; got 'metal'",
    ),
    (
        lambda: TileLayout(S[4:-1]).tile(TileLayout(S[2:1]), (2,), (4,)),
        "tile: the tile must have a positive span on each axis that moves it; on axis "
        "m S[4:-1] has span -2: shift it to start at 0",
    ),
    (
        lambda: D.tile_to((24, 8), (16, 8)),
        "tile_to: extent 24 of dimension 0 must be a multiple of 16; 16 and 32 fit",
    ),
    (
        lambda: D.tile_to((8, 8), (16, 8)),
        "tile_to: extent 8 of dimension 0 must be a multiple of 16; 16 fits",
    ),
    (
        lambda: D.tile_to((16, 16, 2), (16, 8)),
        "tile_to: the shapes must have one rank; got to_shape (16, 16, 2), current_shape (16, 8)",
    ),
    (
        lambda: D.tile_to((32, 8), (8, 8)),
        f"tile_to: {SIZES} (8, 8) holds 64, {D_TEXT} holds 128",
    ),
    (
        lambda: D.is_tile_inner(M, (8, 8), (3, 8)),
        "is_tile_inner: extent 3 of dimension 0 must divide 8; got (3, 8) in (8, 8)",
    ),
    (
        lambda: D.is_tile_inner(M, (8, 8), (8,)),
        "is_tile_inner: the shapes must have one rank; got tiled_shape (8, 8), inner_shape (8,)",
    ),
    (
        lambda: D.is_tile_inner(7, (8, 8), (8, 8)),
        "is_tile_inner: tiled must be a TileLayout; got 7",
    ),
    (
        lambda: D.is_tile_outer(M, (8, 8), (16, 8)),
        "is_tile_outer: extent 16 of dimension 0 must divide 8; got (16, 8) in (8, 8)",
    ),
    (
        lambda: M.direct_sum(M, (8, 8), (8,)),
        "direct_sum: the shapes must have one rank; got left_shape (8, 8), right_shape (8,)",
    ),
    (
        lambda: M.direct_sum(None, (8, 8), (8, 8)),
        "direct_sum: left must be a TileLayout; got None",
    ),
    (
        lambda: M.is_direct_sum_right(M, (8, 8), (8, 8)),
        "is_direct_sum_right: the interleaved shape (l0, r0, l1, r1, …) must be twice "
        "as long as (8, 8); got (8, 8)",
    ),
    (
        lambda: M.is_direct_sum_left(M, (2, 4, 2, 5), (2, 2)),
        f"is_direct_sum_left: {SIZES} (2, 4, 2, 5) holds 80, S[(8,8):(8,1)] holds 64",
    ),
    (
        lambda: D.slice((16, 8), ((0, 17), (0, 8))),
        "slice: the range 0:17 of dimension 0 must lie in 0:16",
    ),
    (
        lambda: D.slice((16, 8), ((-1, 4), (0, 8))),
        "slice: the range -1:4 of dimension 0 must lie in 0:16",
    ),
    (
        lambda: D.slice((16, 8), ((4, 4), (0, 8))),
        "slice: the range 4:4 of dimension 0 is empty",
    ),
    (
        lambda: D.slice((16, 8), ((8, 4), (0, 8))),
        "slice: the range 8:4 of dimension 0 is empty",
    ),
    (
        lambda: D.slice((16, 8), ((0, 4),)),
        "slice: give (begin, end) for each dimension of (16, 8); got ((0, 4),)",
    ),
    (
        lambda: D.slice((16, 8), ((0, 4), 3)),
        "slice: dimension 1 needs (begin, end); got 3",
    ),
    (
        lambda: D.slice((16, 8), ((0, 4), (0, 1.5))),
        f"slice: end of dimension 1: {NOT_INT} 1.5 (float)",
    ),
    (
        lambda: D.slice((16, 8), 5),
        "slice: give (begin, end) for each dimension of (16, 8); got 5",
    ),
    (
        lambda: D.slice((12, 8), ((0, 4), (0, 8))),
        f"slice: {SIZES} (12, 8) holds 96, {D_TEXT} holds 128",
    ),
    (
        lambda: M.pack(3),
        "pack: the last extent 8 on axis m must be a multiple of 3, or a word would "
        "hold parts of two; got S[(8,8):(8,1)]",
    ),
    (
        lambda: M.pack(0),
        "pack: num: must be at least 1; got 0",
    ),
    (
        lambda: TileLayout(S[(8, 3) : (3, 1)]).pack(2),
        "pack: the last extent 3 on axis m must be a multiple of 2, or a word would "
        "hold parts of two; got S[(8,3):(3,1)]",
    ),
    (
        lambda: TileLayout(S[(8, 4) : (5, 1)]).pack(2),
        "pack: the stride 5 on axis m must be a multiple of 2, or a word would hold "
        "parts of two; got S[(8,4):(5,1)]",
    ),
    (
        lambda: TileLayout(S[(8, 4) : (4, 1)] + 3).pack(2),
        "pack: the offset 3 on axis m must be a multiple of 2, or a word would hold "
        "parts of two; got S[(8,4):(4,1)] + 3",
    ),
    (
        lambda: TileLayout(S[(8, 4) : (4, 1)] + R[2:7]).pack(4),
        "pack: the stride 7 on axis m must be a multiple of 4, or a word would hold "
        "parts of two; got S[(8,4):(4,1)] + R[2:7]",
    ),
    (
        lambda: TileLayout(S[(8, 4) : (4, 2)]).pack(2),
        "pack: the last iter must have stride 1 on a memory axis; got S[(8,4):(4,2)]",
    ),
    (
        lambda: TileLayout(S[(4, 8) : (1, 1 @ laneid)]).pack(2),
        "pack: the last iter must have stride 1 on a memory axis; got S[(4,8):(1,1@laneid)]",
    ),
    (
        lambda: TileLayout(S[()]).pack(2),
        "pack: the last iter must have stride 1 on a memory axis; got S[()]",
    ),
    (
        lambda: M.unpack(2, "laneid"),
        "unpack: cells are split on a memory axis; laneid counts each thread in the warp",
    ),
    (
        lambda: M.unpack(1.5),
        f"unpack: num: {NOT_INT} 1.5 (float)",
    ),
    (
        lambda: M.broadcast(2, 3),
        "broadcast: the position must lie in -3..2; got 3",
    ),
    (
        lambda: M.broadcast(2, "x"),
        "broadcast: the position must be an int; got 'x'",
    ),
    (
        lambda: M.broadcast(0),
        "broadcast: num: must be at least 1; got 0",
    ),
    (
        lambda: align(D, M),
        f"align: {SIZES} (2, 8, 4, 2) holds 128, S[(8,8):(8,1)] holds 64",
    ),
    (
        lambda: align(D, "M"),
        "align: follower: parse: a layout has S[...] or R[...], such as S[8:1]; got 'M'",
    ),
    (
        lambda: SwizzleLayout(3, 4, 3),
        "swizzle: atom_len must be at least swizzle_len, or the XOR is not a "
        "permutation; got swizzle_len 4, atom_len 3",
    ),
    (
        lambda: SwizzleLayout(-1, 1, 3),
        "swizzle: per_element must be a number from 0 on; got -1",
    ),
    (
        lambda: SwizzleLayout(1.0, 1, 3),
        f"swizzle: per_element: {NOT_INT} 1.0 (float)",
    ),
    (
        lambda: SwizzleLayout(3, 3, 3).apply(n),
        "swizzle: the address must be a number or an array; n is symbolic, and an XOR "
        "has no form in the algebra: substitute its symbols",
    ),
    (
        lambda: SwizzleLayout(3, 3, 3).apply(1.5),
        f"swizzle: address: {NOT_COORD} 1.5 (float)",
    ),
    (
        lambda: ComposeLayout(3, 3, 3, 8),  # type: ignore[arg-type]
        "ComposeLayout: needs a TileLayout; got 8",
    ),
    (
        lambda: ComposeLayout(3, 3, 3, D).apply(0),
        "ComposeLayout: a swizzle permutes addresses, so its tile must lie on axis m "
        f"alone; {D_TEXT} has laneid, m",
    ),
    (
        lambda: ComposeLayout(3, 3, 3, M).size("m"),
        "size: a swizzled layout has no axis to choose; got m",
    ),
    (
        lambda: ComposeLayout(3, 3, 3, M).pack(16),
        "pack: num must be at most 8, the unit that the swizzle moves; got 16",
    ),
    (
        lambda: ComposeLayout(3, 3, 3, M).pack(3),
        "pack: a swizzled layout needs num to be a power of two; got 3",
    ),
    (
        lambda: ComposeLayout(3, 3, 3, M).apply(64),
        "apply: flat index 64 must lie in 0..63 for S[(8,8):(8,1)]",
    ),
    (
        lambda: parse(7),
        "parse: needs text; got 7",
    ),
    (
        lambda: parse(""),
        "parse: expected a number or a name, found the end\n  \n  ^",
    ),
    (
        lambda: parse("\tS[8:4@landid]"),
        f"parse: axis: no axis is named 'landid'; did you mean laneid? {NEW}\n   S[8:4@landid]\n"
        "         ^",
    ),
    (
        lambda: parse("S[8:1\t\x0b] ;"),
        "parse: the character ';' has no place here\n  S[8:1  ] ;\n           ^",
    ),
    (
        lambda: parse("S[8:'長い'] ;"),
        f"parse: the character ';' has no place here\n  S[8:'長い'] ;\n{' ' * 14}^",
    ),
    (
        lambda: parse("S[8:'e\u0301'] ;"),
        f"parse: the character ';' has no place here\n  S[8:'e\u0301'] ;\n{' ' * 11}^",
    ),
    (
        lambda: parse("S[8:1] 長"),
        "parse: expected '+', found '長'\n  S[8:1] 長\n         ^^",
    ),
    (
        lambda: parse("S[8"),
        "parse: expected ']', found the end\n  S[8\n     ^",
    ),
    (
        lambda: parse("S[8:4@]"),
        "parse: expected a number or a name, found ']'\n  S[8:4@]\n        ^",
    ),
    (
        lambda: parse("S[8:4@landid]"),
        f"parse: axis: no axis is named 'landid'; did you mean laneid? {NEW}\n"
        "  S[8:4@landid]\n"
        "        ^",
    ),
    (
        lambda: parse("S[(8,4):(4,1,1)]"),
        "parse: S[...]: needs one stride per extent; got the extents (8, 4) and the "
        "strides (4, 1, 1)\n"
        "  S[(8,4):(4,1,1)]\n"
        "           ^",
    ),
    (
        lambda: parse("S[0:1]"),
        "parse: S[...]: extent: must be at least 1; got 0\n  S[0:1]\n    ^",
    ),
    (
        lambda: parse("S[8:1] + S[4:1]"),
        "parse: layout: there can be one S[...]; got S[8:1] + S[4:1]. Write one S with "
        "all its iters\n"
        "  S[8:1] + S[4:1]\n"
        "           ^",
    ),
    (
        lambda: parse("S[8:1] 3"),
        "parse: expected '+', found '3'\n  S[8:1] 3\n         ^",
    ),
    (
        lambda: parse("S[8:1] - 3"),
        "parse: expected '+', found '-'\n  S[8:1] - 3\n         ^",
    ),
    (
        lambda: parse("S[8:1] + q@"),
        "parse: expected a number or a name, found the end\n  S[8:1] + q@\n             ^",
    ),
    (
        lambda: parse("S[8:1] + laneid"),
        "parse: an offset is n or n @ axis; got laneid\n  S[8:1] + laneid\n           ^",
    ),
    (
        lambda: parse("S[8:1]; import os"),
        "parse: the character ';' has no place here\n  S[8:1]; import os\n        ^",
    ),
    (
        lambda: parse("__import__('os').system('x')"),
        "parse: the character '.' has no place here\n"
        "  __import__('os').system('x')\n"
        "                  ^",
    ),
    (
        lambda: parse("S[8:f(3)]"),
        "parse: expected ']', found '('\n  S[8:f(3)]\n       ^",
    ),
    (
        lambda: parse("S[8:1//0]"),
        "parse: division by zero\n  S[8:1//0]\n         ^",
    ),
    (
        lambda: parse("S[2**99999:1]"),
        "parse: an exponent must be a number from 0 to 64\n  S[2**99999:1]\n     ^",
    ),
    (
        lambda: parse("S[(8,4:(4,1)]"),
        "parse: expected ')', found ':'\n  S[(8,4:(4,1)]\n        ^",
    ),
    (
        lambda: parse("S[8:'lane']"),
        f"parse: axis: no axis is named 'lane'; did you mean laneid, TLane? {NEW}\n"
        "  S[8:'lane']\n"
        "      ^",
    ),
    (
        lambda: parse("S[None:1]"),
        "parse: None is no size\n  S[None:1]\n    ^",
    ),
    (
        lambda: parse("S[laneid:1]"),
        f"parse: S[...]: extent: {NOT_INT} laneid (Axis)\n  S[laneid:1]\n    ^",
    ),
    (
        lambda: parse("S[8:1@m@m]"),
        "parse: '@' takes sizes; got 1@m\n  S[8:1@m@m]\n         ^",
    ),
    (
        lambda: parse("S[" + "(" * 80 + "8" + ")" * 80 + ":1]"),
        "parse: brackets and signs nest at most 50 deep\n"
        "  "
        "((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((8)))))))))\n"
        "                                          ^",
    ),
    (
        lambda: parse("S[8:" + "9" * 5000 + "]"),
        "parse: a number has at most 1000 digits\n"
        "  "
        "S[8:9999999999999999999999999999999999999999999999999999999999999999999999999999\n"
        "      ^",
    ),
    (
        lambda: parse("S[8:1] +\n  2@nowhere"),
        f"parse: axis: no axis is named 'nowhere'; there are {AXES} {NEW}\n    2@nowhere\n      ^",
    ),
    (
        lambda: parse("S[8:0.5]"),
        "parse: the character '.' has no place here\n  S[8:0.5]\n       ^",
    ),
)


@pytest.mark.parametrize(("call", "message"), WRONG, ids=range(len(WRONG)))
def test_messages(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        call()
    assert str(caught.value) == message.replace(AXES, ", ".join(sorted(Axis.registry)))
    open_question = "The symbols leave it open" in message or "the sizes must be numbers" in message
    assert type(caught.value) is (Undecided if open_question else LayoutError)


def test_there_are_many() -> None:
    assert len(WRONG) >= 140
    assert len({message for _, message in WRONG}) >= 120


@pytest.mark.parametrize("symbol_or_text", ["-", "unary", "*", "text"])
def test_terms_have_no_other_arithmetic(symbol_or_text: str) -> None:
    term = 4 @ laneid
    with pytest.raises(TypeError):
        {
            "-": lambda: S[8:1] - term,  # type: ignore[operator]
            "unary": lambda: -term,  # type: ignore[operator]
            "*": lambda: term * 2,  # type: ignore[operator]
            "text": lambda: S[8:1] + "laneid",
        }[symbol_or_text]()


def test_the_errors_are_value_errors() -> None:
    assert issubclass(LayoutError, ValueError)
    assert issubclass(Undecided, LayoutError)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: TileLayout(S[8:1]).apply_to_shape(3, (8,)),  # type: ignore[arg-type]
            "apply_to_shape: needs a tuple of coordinates; got 3",
        ),
        (
            lambda: parse("S[n:1]").subs([("n", 3)]),  # type: ignore[arg-type]
            "subs: needs a mapping symbol -> size; got [('n', 3)]",
        ),
        (
            lambda: matrices((8,), 16),
            "ldmatrix: a tile has (rows, columns), each 1 or more; got (8,)",
        ),
        (
            lambda: rowwise((8, 0), 16),
            "st.shared: a tile has (rows, columns), each 1 or more; got (8, 0)",
        ),
        (
            lambda: columnwise((8, 2.0), 16),  # type: ignore[arg-type]
            "column: a tile has (rows, columns), each 1 or more; got (8, 2.0)",
        ),
        (
            lambda: prove(parse("S[8:0] + 3"), (8,), lambda i: {"m": 3.5}),
            "prove: value of the formula: must be an integer or an integer expression; got 3.5 "
            "(float)",
        ),
    ],
    ids=["coordinate", "values", "rank", "no column", "half a column", "half a place"],
)
def test_arguments_of_the_wrong_kind_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        call()
    assert str(caught.value) == message
