"""Every conformance vector: what TVM 0.27 answers where its answer is right.

Rows are counted, so that none is skipped. Three kinds of row are judged by the law instead of TVM:
``oob`` rows name coordinates outside the layout, which ours refuses; slices, and inner tiles, that
TVM misses although there is one, are judged by the elements, and by tiling again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import layoutalg
from layoutalg import Axis, ComposeLayout, Iter, LayoutError, TileLayout
from tests.support import oracle, vectors
from tests.support.vectors import expected, layout, plain, read


def columns(values: list[dict[str, int]]) -> dict[str, list[int]]:
    return {name: [value[name] for value in values] for name in values[0]} if values else {}


def run_apply(case: dict[str, Any]) -> Any:
    target = layout(case["layout"])
    return columns([target.apply(*c, shape=case.get("shape")) for c in case["coords"]])


def run_apply_to_shape(case: dict[str, Any]) -> Any:
    target = layout(case["layout"])
    return [target.apply_to_shape(c, case["shape"]) for c in case["coords"]]


def run_canonicalize(case: dict[str, Any]) -> Any:
    return plain(layout(case["layout"]).canonicalize(case.get("target")))


def run_group(case: dict[str, Any]) -> Any:
    grouped, seps = layout(case["layout"]).group(case["shape"])
    return plain(grouped), list(seps)


def run_group_many(case: dict[str, Any]) -> Any:
    grouped, seps = layout(case["layout"]).group_many(case["shapes"])
    return plain(grouped), [list(s) for s in seps]


def run_permute_dims(case: dict[str, Any]) -> Any:
    return plain(layout(case["layout"]).permute_dims(case["perm"]))


def run_permute_by_groups(case: dict[str, Any]) -> Any:
    return plain(layout(case["layout"]).permute_by_groups(case["seps"], case["perm"]))


def run_tile(case: dict[str, Any]) -> Any:
    inner, outer = layout(case["inner"]), layout(case["outer"])
    return plain(inner.tile(outer, case["outer_shape"], case["inner_shape"], case.get("target")))


def run_tile_to(case: dict[str, Any]) -> Any:
    source = layout(case["layout"])
    return plain(source.tile_to(case["to_shape"], case["current_shape"], case.get("target")))


def run_is_tile_inner(case: dict[str, Any]) -> Any:
    args = (layout(case["tiled"]), case["tiled_shape"], case["inner_shape"], case.get("target"))
    return plain(layout(case["layout"]).is_tile_inner(*args))


def run_is_tile_outer(case: dict[str, Any]) -> Any:
    args = (layout(case["tiled"]), case["tiled_shape"], case["outer_shape"], case.get("target"))
    return plain(layout(case["layout"]).is_tile_outer(*args))


def run_direct_sum(case: dict[str, Any]) -> Any:
    args = (layout(case["left"]), case["left_shape"], case["right_shape"], case.get("target"))
    return plain(layout(case["right"]).direct_sum(*args))


def run_is_direct_sum_right(case: dict[str, Any]) -> Any:
    args = (layout(case["sum"]), case["interleaved_shape"], case["right_shape"])
    return plain(layout(case["layout"]).is_direct_sum_right(*args, case.get("target")))


def run_is_direct_sum_left(case: dict[str, Any]) -> Any:
    args = (layout(case["sum"]), case["interleaved_shape"], case["left_shape"])
    return plain(layout(case["layout"]).is_direct_sum_left(*args, case.get("target")))


def run_slice(case: dict[str, Any]) -> Any:
    source = layout(case["layout"])
    return plain(source.slice(case["shape"], case["region"], case.get("target")))


def run_size_span(case: dict[str, Any]) -> Any:
    source = layout(case["layout"])
    if isinstance(source, ComposeLayout):
        return {"size": {"*": source.size()}, "span": {"*": source.span()}}
    axes = vectors.AXES
    return {
        "size": {"*": source.size()} | {axis: source.size(axis) for axis in axes},
        "span": {"*": source.span()} | {axis: source.span(axis) for axis in axes},
    }


def run_verify_well_formed(case: dict[str, Any]) -> Any:
    source = layout(case["layout"])
    assert source.verify_well_formed() is True
    if isinstance(source, ComposeLayout):
        return {"ok": True}
    scope = source.get_scope()
    return {"ok": True, "scope": None if scope is None else list(scope)}


def run_spec(case: dict[str, Any]) -> Any:
    """Read the row both ways: as Python, which the rows are, and through the parser."""
    names = {"S": layoutalg.S, "R": layoutalg.R} | layoutalg.Axis.registry
    try:
        built = plain(TileLayout(eval(case["spec"], {"__builtins__": {}}, names)))
    except TypeError as error:
        with pytest.raises(LayoutError):
            layoutalg.parse(case["spec"])
        raise LayoutError(str(error)) from error
    assert plain(layoutalg.parse(case["spec"])) == built
    return built


def run_storage(case: dict[str, Any]) -> Any:
    return plain(layout(case["layout"]).storage())


def run_pack(case: dict[str, Any]) -> Any:
    return plain(layout(case["layout"]).pack(case["num"]))


def run_unpack(case: dict[str, Any]) -> Any:
    return plain(layout(case["layout"]).unpack(case["num"]))


def run_broadcast(case: dict[str, Any]) -> Any:
    return plain(layout(case["layout"]).broadcast(case["num"], case["position"], case["axis"]))


def run_wg_local_layout(case: dict[str, Any]) -> Any:
    return plain(layoutalg.wg_local_layout(**case))


def run_tmem_datapath_layout(case: dict[str, Any]) -> Any:
    return plain(layoutalg.tmem_datapath_layout(**case))


def run_tcgen05_atom_layout(case: dict[str, Any]) -> Any:
    return plain(layoutalg.tcgen05_atom_layout(**case))


def run_tmem_mma_operand_layout(case: dict[str, Any]) -> Any:
    case = {name: value for name, value in case.items() if name != "dtype"}  # whatever the type
    return plain(layoutalg.tmem_mma_operand_layout(**case))


def run_mma_shared_layout(case: dict[str, Any]) -> Any:
    return plain(layoutalg.mma_shared_layout(**case))


def run_trainium(case: dict[str, Any]) -> Any:
    assert not case["is_psum"]
    return plain(layoutalg.trainium_layout(case["annotation"], case["shape"]))


RUN: dict[str, Callable[[dict[str, Any]], Any]] = {
    name.removeprefix("run_"): function
    for name, function in list(globals().items())
    if name.startswith("run_")
}


def want(row: dict[str, Any]) -> Any:
    """Return what a row expects, in the form that its runner answers."""
    op, out = row["op"], row["out"]
    if op in ("apply", "apply_to_shape", "verify_well_formed"):
        return out
    if op == "size_span":
        return out
    if op in ("group", "group_many"):
        return expected(out["layout"]), out["seps"]
    return expected(out)


FOUND: list[dict[str, Any]] = []  # slices and inner tiles that TVM misses


def tiles_again(case: dict[str, Any], found: Any) -> bool:
    """Say whether the inner layout found, tiled by the outer one, is the tiled layout."""
    shard, replica, offset = found
    inner = TileLayout.from_iters(
        [Iter(*it) for it in shard], [Iter(*it) for it in replica], offset
    )
    counts = case["outer_shape"]
    sizes = [whole // count for whole, count in zip(case["tiled_shape"], counts, strict=True)]
    again = inner.tile(layout(case["layout"]), counts, sizes, case.get("target"))
    return bool(again.equivalent(layout(case["tiled"]), case.get("target")))


def judge(row: dict[str, Any]) -> str | None:
    """Return None where our answer is right, else what is wrong."""
    run = RUN[row["op"]]
    try:
        got = run(row["in"])
    except LayoutError as error:
        if row.get("error") or row.get("oob"):
            return None
        return f"refused: {error}"
    if row.get("error"):
        return f"accepted: {got}"
    wanted = want(row)
    if row["op"] == "size_span":
        wanted_axes = wanted["size"].keys()
        got = {part: {a: got[part][a] for a in wanted_axes} for part in got}
    if row["op"] in ("slice", "is_tile_outer") and wanted is None and got is not None:
        FOUND.append(row)
        holds = oracle.slice_holds if row["op"] == "slice" else tiles_again
        return None if holds(row["in"], got) else f"found, but wrong: {got}"
    if row.get("exists"):
        return "missed although a layout exists"
    if got == wanted:
        return None
    return f"got {got}, want {wanted}"


FILES = {
    "apply": 533,
    "apply_to_shape": 301,
    "canonicalize": 852,
    "compose": 469,
    "direct_sum": 500,
    "group": 650,
    "group_many": 322,
    "helpers": 202,
    "is_tile": 724,
    "permute": 301,
    "size_span": 429,
    "slice": 1004,
    "spec": 321,
    "storage": 344,
    "swizzle": 303,
    "tile": 610,
    "tile_to": 367,
    "well_formed": 427,
}


@pytest.mark.parametrize("name", FILES)
def test_every_vector(name: str) -> None:
    rows = read(f"{name}.jsonl")
    assert len(rows) == FILES[name]
    FOUND.clear()
    wrong = [(row, reason) for row in rows if (reason := judge(row)) is not None]
    shown = "\n".join(f"{row['in']}\n  {reason}" for row, reason in wrong[:25])
    assert not wrong, f"{len(wrong)} of {len(rows)} rows of {name}:\n{shown}"
    if name == "slice":
        assert len(FOUND) == 4  # the three rows marked `exists`, and one more under cuda
    elif name == "is_tile":
        assert len(FOUND) == 1  # the tiled layout holds one replica twice


def test_out_of_range_coordinates_are_refused() -> None:
    rows = [row for row in read("apply.jsonl") if row.get("oob")]
    assert len(rows) == 24
    for row in rows:
        with pytest.raises(LayoutError, match="must"):
            run_apply(row["in"])


def test_vectors_cover_both_kinds_of_layout() -> None:
    kinds = {
        type(layout(row["in"]["layout"])) for row in read("compose.jsonl") if "layout" in row["in"]
    }
    assert kinds == {TileLayout, ComposeLayout}


def test_every_axis() -> None:
    rows = json.loads((vectors.DATA / "conformance" / "axes.json").read_text())
    assert len(rows) == 18
    for name, row in rows.items():
        axis = Axis.get(name)
        assert {key: getattr(axis, key) for key in row} == row, name


@pytest.mark.parametrize("rows", [8, 24, 32, 64, 96, 128, 256])
@pytest.mark.parametrize("blocks", [1, 2, 4, 8, 12])
def test_scales_in_tensor_memory(rows: int, blocks: int) -> None:
    """As CUTLASS lays them: ((32, rows/32), 4 copies), (4, …)) : ((1, 512), 32), (128, …)).

    An address there is a lane plus 128 times a byte of its columns. The blocks of K after the first
    four lie behind all rows.
    """
    found = layoutalg.tmem_scale_layout(rows, blocks).table((rows, blocks), replicas=True)
    row, block, copy = np.indices((rows, blocks, 4))
    behind = -(-rows // 32) * 512 * (block // 4)
    address = row % 32 + 512 * (row // 32) + 128 * (block % 4) + behind + 32 * copy
    have = np.broadcast_arrays(found["TLane"], found.get("TCol", np.zeros(1, dtype=int)))
    order = np.argsort(have[0], axis=-1)
    lane, byte = (np.take_along_axis(each, order, -1) for each in have)
    assert np.array_equal(lane, address % 128)
    assert np.array_equal(byte, address // 128)


def test_no_file_is_left_out() -> None:
    elsewhere = {"axes.json", "symbolic", "gemm", "gemm_tvm_bugs", "tvm_bugs"}
    kept = {path.name.removesuffix(".jsonl") for path in (vectors.DATA / "conformance").iterdir()}
    assert kept == elsewhere | set(FILES)
