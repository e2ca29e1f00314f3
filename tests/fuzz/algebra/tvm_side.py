"""TVM's answers to the cases of the fuzz, in the form in which ours are compared.

TVM is imported when :class:`Tvm` is made: the rest of the tests does without it.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping
from typing import Any

OPERATORS: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "LShift": operator.lshift,
    "RShift": operator.rshift,
    "BitwiseAnd": operator.and_,
    "BitwiseXor": operator.xor,
}


class Tvm:
    """Runs cases on ``apache-tvm``."""

    def __init__(self) -> None:
        import tvm
        from tvm.tirx import layout

        self.lib = layout
        self.cuda = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
        self.axes = {name: layout.Axis.get(name) for name in layout._AXIS_NAMES}

    def answer(self, op: str, case: Mapping[str, Any]) -> Any:
        """Return what TVM says; whatever it raises passes through."""
        with self.target_of(case.get("target")):
            return getattr(self, op)(case)

    def target_of(self, name: str | None) -> Any:
        """Return the context that makes a target current: "cuda", or none."""
        return self.cuda if name == "cuda" else contextlib.nullcontext()

    # -- the two forms ------------------------------------------------------------------------

    def layout(self, data: Mapping[str, Any]) -> Any:
        """Build TVM's layout of a vector's."""
        if "swizzle" in data:
            return self.lib.ComposeLayout(
                *data["swizzle"], self.layout(data["tile"]), data["inner"]
            )
        shard, replica = (
            [self.lib.Iter(e, s, self.axes[a]) for e, s, a in data.get(key, ())]
            for key in ("shard", "replica")
        )
        offset = {self.axes[a]: value for a, value in data.get("offset", {}).items()}
        return self.lib.TileLayout.from_iters(shard, replica, offset)

    def number(self, value: Any, known: Mapping[Any, int] | None = None) -> int:
        """Read a size; TVM leaves addresses of swizzles as constant expressions."""
        kind = type(value).__name__
        if kind == "IntImm":
            return int(value.value)
        known = known or {}
        if kind == "Var":
            return known[value]
        if kind == "Let":
            return self.number(value.body, {**known, value.var: self.number(value.value, known)})
        return OPERATORS[kind](self.number(value.a, known), self.number(value.b, known))

    def plain(self, value: Any) -> Any:
        """Return what is compared, as ``tests.support.vectors.plain`` returns ours."""
        if value is None:
            return None
        if isinstance(value, self.lib.ComposeLayout):
            lengths = value.per_element, value.swizzle_len, value.atom_len
            return (
                [int(n) for n in lengths],
                bool(value.swizzle_inner),
                self.plain(value.tile_layout),
            )
        number = self.number
        shard, replica = (
            [(number(it.extent), number(it.stride), str(it.axis.name)) for it in iters]
            for iters in (value.shard, value.replica)
        )
        offset = {str(axis.name): number(n) for axis, n in value.offset.items()}
        return shard, sorted(replica), {axis: n for axis, n in offset.items() if n}

    # -- one method per operation -------------------------------------------------------------

    def apply(self, case: Mapping[str, Any]) -> Any:
        target, shape = self.layout(case["layout"]), case.get("shape")
        found = [target.apply(*coord, shape=shape) for coord in case["coords"]]
        return {
            str(axis): [self.number(value[axis]) for value in found] for axis in (found or [{}])[0]
        }

    def apply_to_shape(self, case: Mapping[str, Any]) -> Any:
        target = self.layout(case["layout"])
        found = [target.apply_to_shape(coord, case["shape"]) for coord in case["coords"]]
        return [[n if type(n) is int else self.number(n) for n in value] for value in found]

    def canonicalize(self, case: Mapping[str, Any]) -> Any:
        return self.plain(self.layout(case["layout"]).canonicalize())

    def group(self, case: Mapping[str, Any]) -> Any:
        grouped, seps = self.layout(case["layout"]).group(case["shape"])
        return self.plain(grouped), [int(n) for n in seps]

    def group_many(self, case: Mapping[str, Any]) -> Any:
        grouped, seps = self.layout(case["layout"]).group_many(case["shapes"])
        return self.plain(grouped), [[int(n) for n in each] for each in seps]

    def permute_dims(self, case: Mapping[str, Any]) -> Any:
        return self.plain(self.layout(case["layout"]).permute_dims(case["perm"]))

    def permute_by_groups(self, case: Mapping[str, Any]) -> Any:
        target = self.layout(case["layout"])
        return self.plain(target.permute_by_groups(case["seps"], case["perm"]))

    def tile(self, case: Mapping[str, Any]) -> Any:
        inner, outer = self.layout(case["inner"]), self.layout(case["outer"])
        return self.plain(inner.tile(outer, case["outer_shape"], case["inner_shape"]))

    def tile_to(self, case: Mapping[str, Any]) -> Any:
        target = self.layout(case["layout"])
        return self.plain(target.tile_to(case["to_shape"], case["current_shape"]))

    def is_tile_inner(self, case: Mapping[str, Any]) -> Any:
        own, whole = self.layout(case["layout"]), self.layout(case["tiled"])
        return self.plain(own.is_tile_inner(whole, case["tiled_shape"], case["inner_shape"]))

    def is_tile_outer(self, case: Mapping[str, Any]) -> Any:
        own, whole = self.layout(case["layout"]), self.layout(case["tiled"])
        return self.plain(own.is_tile_outer(whole, case["tiled_shape"], case["outer_shape"]))

    def direct_sum(self, case: Mapping[str, Any]) -> Any:
        right, left = self.layout(case["right"]), self.layout(case["left"])
        return self.plain(right.direct_sum(left, case["left_shape"], case["right_shape"]))

    def is_direct_sum_left(self, case: Mapping[str, Any]) -> Any:
        own, whole = self.layout(case["layout"]), self.layout(case["sum"])
        shapes = case["interleaved_shape"], case["left_shape"]
        return self.plain(own.is_direct_sum_left(whole, *shapes))

    def is_direct_sum_right(self, case: Mapping[str, Any]) -> Any:
        own, whole = self.layout(case["layout"]), self.layout(case["sum"])
        shapes = case["interleaved_shape"], case["right_shape"]
        return self.plain(own.is_direct_sum_right(whole, *shapes))

    def slice(self, case: Mapping[str, Any]) -> Any:
        region = [tuple(pair) for pair in case["region"]]
        return self.plain(self.layout(case["layout"]).slice(case["shape"], region))

    def size_span(self, case: Mapping[str, Any]) -> Any:
        target = self.layout(case["layout"])
        axes = [] if "swizzle" in case["layout"] else list(self.axes)
        return {
            name: {"*": self.number(measure())} | {a: self.number(measure(a)) for a in axes}
            for name, measure in (("size", target.size), ("span", target.span))
        }

    def verify_well_formed(self, case: Mapping[str, Any]) -> Any:
        target = self.layout(case["layout"])
        assert target.verify_well_formed() is True
        if "swizzle" in case["layout"]:
            return {"ok": True}
        scope = target.get_scope()
        return {"ok": True, "scope": None if scope is None else [str(each.name) for each in scope]}

    def storage(self, case: Mapping[str, Any]) -> Any:
        return self.plain(self.layout(case["layout"]).storage())

    def pack(self, case: Mapping[str, Any]) -> Any:
        return self.plain(self.layout(case["layout"]).pack(case["num"]))

    def unpack(self, case: Mapping[str, Any]) -> Any:
        return self.plain(self.layout(case["layout"]).unpack(case["num"]))

    def broadcast(self, case: Mapping[str, Any]) -> Any:
        target = self.layout(case["layout"])
        return self.plain(target.broadcast(case["num"], case["position"], case["axis"]))
