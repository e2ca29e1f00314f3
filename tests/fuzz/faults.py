"""Faults planted in right kernels, and who sees them without the package's detector.

A fault is planted in the fuzzer's own program, which is then lowered, or in the operations of a
lowered one. :func:`judge` sees it where the happens-before checker finds two accesses that nothing
orders, or where one of 64 random interleavings computes something else than is meant.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from layoutalg import LayoutError
from lowering.dispatch.registry import DispatchError
from lowering.programs.program import KernelProgram
from tests.fuzz import engine, machines
from tests.fuzz.expressions import COMPARISONS, JOINS, Node
from tests.fuzz.ir import Array, Ex, Program, Reg, St, statements
from tests.fuzz.order import Order

RUNS = 64
REFUSALS = (LayoutError, DispatchError)


# -- judging -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """Whether a fault is seen, by whom, and what they say."""

    seen: bool
    by: str = ""
    what: str = ""


def differs(found: dict[str, Array], want: dict[str, Array]) -> str:
    """Return the first parameter that is not as meant; "" where all are."""
    for name, value in found.items():
        if not np.array_equal(value, want[name].astype(np.float64)):
            return name
    return ""


def judge(
    program: Program, made: KernelProgram, want: dict[str, Array], runs: int = RUNS
) -> Verdict:
    """Say whether a lowered program is seen to be wrong."""
    body = made.body
    shapes = {b.name: (b.shape[0], b.shape[1]) for b in body.params}
    scalars = {name: value for name, (_, value) in program.scalars.items()}
    memory = engine.memory_of(program, body)
    try:
        written = engine.write_out(body, {"bx": 0, "by": 0} | scalars, shapes)
        order = Order(written)
        found = engine.matrix_of(body, engine.Run(written, memory, scalars, None, order).run())
        if order.races:
            return Verdict(True, "order", order.races[0])
        name = differs(found, want)
        if name:
            return Verdict(True, "value", f"{name} in turns")
        for seed in range(runs):
            run = engine.Run(written, memory, scalars, seed)
            name = differs(engine.matrix_of(body, run.run()), want)
            if name:
                return Verdict(True, "interleaving", f"{name} in interleaving {seed}")
    except engine.BrokenError as error:
        return Verdict(True, "broken", str(error))
    return Verdict(False)


def refused(program: Program, made: KernelProgram, want: dict[str, Array]) -> str:
    """Return how the package shows that a program is wrong; "" where it does not."""
    try:
        found = machines.simulate(program, made)
    except REFUSALS as error:
        return f"refused: {error}"
    for name, value in want.items():  # what it does not write stays as it was given
        if not np.array_equal(np.asarray(found.get(name, program.given[name])), value):
            return f"wrong: {name}"
    return ""


# -- planting in the fuzzer's program ------------------------------------------------------------

Places = list[tuple[list[St], int, St]]


def _places(program: Program, *ops: str) -> Places:
    return [each for each in statements(program.body) if each[2].op in ops]


def _pick(rng: random.Random, places: Places) -> tuple[list[St], int, St] | None:
    return rng.choice(places) if places else None


def _drop(*ops: str) -> Callable[[Program, random.Random], bool]:
    def do(program: Program, rng: random.Random) -> bool:
        found = _pick(rng, _places(program, *ops))
        if found is None:
            return False
        body, at, _ = found
        del body[at]
        return True

    return do


def weaken_sync(program: Program, rng: random.Random) -> bool:
    """Make a barrier one of less."""
    places = [e for e in _places(program, "sync") if e[2].args["scope"] != "warp"]
    found = _pick(rng, places)
    if found is None or program.warps == 1:
        return False
    found[2].args["scope"] = "warp"
    return True


def move_sync(program: Program, rng: random.Random) -> bool:
    """Let a barrier change places with a neighbour."""
    found = _pick(rng, _places(program, "sync"))
    if found is None:
        return False
    body, at, _ = found
    other = at + rng.choice((-1, 1))
    if not 0 <= other < len(body):
        return False
    body[at], body[other] = body[other], body[at]
    return True


def sync_in_branch(program: Program, rng: random.Random) -> bool:
    """Let some threads alone come to a barrier."""
    places = [e for e in _places(program, "sync") if e[2].args["scope"] != "warp"]
    found = _pick(rng, places)
    if found is None or program.warps == 1:
        return False
    body, at, st = found
    body[at] = St("when", args={"number": "warp", "low": 0, "high": 1}, body=[st])
    return True


def raise_pending(program: Program, rng: random.Random) -> bool:
    """Let a wait leave one group more under way."""
    found = _pick(rng, _places(program, "wait", "tma_store_wait"))
    if found is None:
        return False
    found[2].args["pending"] += 1
    return True


def wrong_parity(program: Program, rng: random.Random) -> bool:
    """Wait for the other phase."""
    found = _pick(rng, _places(program, "mbarrier_wait"))
    if found is None:
        return False
    parity = found[2].args["parity"]
    found[2].args["parity"] = (parity if isinstance(parity, Ex) else Ex(parity)) + 1
    return True


def wrong_slot(program: Program, rng: random.Random) -> bool:
    """Wait for, arrive at or fill another mbarrier of an array."""
    places = [
        e for e in _places(program, "mbarrier_wait", "arrive", "tma_load")
        if program.barriers[e[2].args["barrier"]][0] > 1
    ]  # fmt: skip
    found = _pick(rng, places)
    if found is None:
        return False
    args = found[2].args
    args["slot"] = (args["slot"] + 1) % program.barriers[args["barrier"]][0]
    return True


def shift_region(program: Program, rng: random.Random) -> bool:
    """Move one side of a copy."""
    found = _pick(rng, _places(program, "copy"))
    if found is None:
        return False
    st = found[2]
    side = rng.choice(("dst", "src"))
    region: Reg = getattr(st, side)
    buf = program.bufs[region.buf]
    dims = [d for d, n in enumerate(buf.shape) if region.size[d] < n and not region.begin[d].terms]
    if not dims:
        return False
    dim = rng.choice(dims)
    step = rng.choice((1, -1, region.size[dim], -region.size[dim]))
    begin = region.begin[dim].const + step
    if not 0 <= begin <= buf.shape[dim] - region.size[dim]:
        return False
    setattr(st, side, region.moved(dim, step))
    return True


def other_tile(program: Program, rng: random.Random) -> bool:
    """Use another register tile of one type and layout."""
    found = _pick(rng, _places(program, "copy", "gemm"))
    if found is None:
        return False
    st = found[2]
    for side in rng.sample(("dst", "src"), 2):
        region = getattr(st, side)
        if region is None:
            continue
        buf = program.bufs[region.buf]
        others = [
            b for b in program.bufs.values()
            if b.name != buf.name and b.scope == "local" == buf.scope
            and (b.shape, b.dtype, b.bits) == (buf.shape, buf.dtype, buf.bits)
        ]  # fmt: skip
        if others:
            setattr(st, side, Reg(rng.choice(others).name, region.begin, region.size))
            return True
    return False


def alias_tile(program: Program, rng: random.Random) -> bool:
    """Let two shared tiles be one."""
    tiles = [b for b in program.bufs.values() if b.scope == "shared"]
    pairs = [
        (a, b) for a in tiles for b in tiles
        if a.name < b.name and (a.shape, a.dtype) == (b.shape, b.dtype)
        and (a.layout, a.swizzle) == (b.layout, b.swizzle)
    ]  # fmt: skip
    if not pairs:
        return False
    kept, gone = rng.choice(pairs)

    def renamed(value: Any) -> Any:
        if isinstance(value, Reg):
            return Reg(kept.name, value.begin, value.size) if value.buf == gone.name else value
        if isinstance(value, (list, tuple)):
            return type(value)(renamed(each) for each in value)
        return value

    for _, _, st in list(statements(program.body)):
        st.dst, st.src = renamed(st.dst), renamed(st.src)
        st.args = {name: renamed(value) for name, value in st.args.items()}
    del program.bufs[gone.name]
    return True


def drop_branch(program: Program, rng: random.Random) -> bool:
    """Let all threads do what some should."""
    found = _pick(rng, _places(program, "when"))
    if found is None:
        return False
    body, at, st = found
    body[at : at + 1] = st.body
    return True


def other_branch(program: Program, rng: random.Random) -> bool:
    """Let one warp or lane more, or less, take a branch."""
    found = _pick(rng, _places(program, "when"))
    if found is None:
        return False
    args = found[2].args
    extent = {"warp": program.warps, "lane": 32}.get(args["number"], 1)
    if args["high"] is not None and args["high"] < extent and rng.random() < 0.5:
        args["high"] += 1
    elif args["low"]:
        args["low"] -= 1
    else:
        return False
    return True


def exchange(program: Program, rng: random.Random) -> bool:
    """Let two neighbours change places."""
    places = [
        e for e in statements(program.body)
        if e[1] + 1 < len(e[0]) and "producer" not in (e[2].op, e[0][e[1] + 1].op)
    ]  # fmt: skip
    found = _pick(rng, places)
    if found is None:
        return False
    body, at, _ = found
    body[at], body[at + 1] = body[at + 1], body[at]
    return True


def asynchronous(program: Program, rng: random.Random) -> bool:
    """Let a copy by all threads be one by cp.async, which nobody awaits."""
    places = [
        e for e in _places(program, "copy")
        if program.bufs[e[2].dst.buf].scope == "shared"  # type: ignore[union-attr]
        and program.bufs[e[2].src.buf].scope == "global"  # type: ignore[union-attr]
        and not e[2].args.get("asynchronous")
    ]  # fmt: skip
    found = _pick(rng, places)
    if found is None:
        return False
    found[2].args["asynchronous"] = True
    return True


def _expressions(program: Program, test: Callable[[Node], bool]) -> list[tuple[St, Node]]:
    """Return the nodes of assigned expressions that pass a test, each with its statement."""
    return [
        (st, node) for _, _, st in _places(program, "assign") for node in st.args["value"].nodes()
        if test(node)
    ]  # fmt: skip


def _exchanged(st: St, old: Node, new: Node) -> None:
    """Put a node into a statement's expression in place of another."""
    st.args["value"] = st.args["value"].changed(lambda node: new if node == old else node)


NEIGHBOURS = {
    "less": "less_equal", "less_equal": "less", "greater": "greater_equal",
    "greater_equal": "greater", "equal": "not_equal", "not_equal": "equal", "add": "subtract",
    "subtract": "add", "maximum": "minimum", "minimum": "maximum", "multiply": "add",
    "bitwise_and": "bitwise_or", "bitwise_or": "bitwise_xor", "bitwise_xor": "bitwise_and",
    "floor_divide": "remainder", "remainder": "floor_divide", "left_shift": "right_shift",
    "right_shift": "left_shift", "max": "min", "min": "max", "sum": "max",
}  # fmt: skip


def other_function(program: Program, rng: random.Random) -> bool:
    """Let an expression take another function: ``>`` for ``>=``, the larger for the smaller."""
    found = _expressions(program, lambda node: node.what in NEIGHBOURS)
    if not found:
        return False
    masks = [each for each in found if each[1].what in COMPARISONS]
    st, node = rng.choice(masks if masks and rng.random() < 0.6 else found)
    _exchanged(st, node, replace(node, what=NEIGHBOURS[node.what]))
    return True


def other_axis(program: Program, rng: random.Random) -> bool:
    """Count an index, or reduce, along the other axis."""
    found = _expressions(program, lambda node: node.what == "index" or node.what in JOINS)
    if not found:
        return False
    st, node = rng.choice(found)
    if node.what in JOINS:
        value, axes = node.arguments
        other = tuple(1 - axis for axis in axes) if len(axes) == 1 else axes[:1]
        _exchanged(st, node, replace(node, arguments=(value, other)))
        return True
    region, axis = node.arguments
    _exchanged(st, node, replace(node, arguments=(region, 1 - axis)))
    return True


def other_operand(program: Program, rng: random.Random) -> bool:
    """Let an expression take a neighbouring row or column of an operand."""
    found = []
    for st, node in _expressions(program, lambda node: node.what == "tile"):
        region = node.arguments[0]
        buf = program.bufs[region.buf]
        for dim, extent in enumerate(buf.shape):
            for step in (1, -1):
                begin = region.begin[dim].const + step
                if not region.begin[dim].terms and 0 <= begin <= extent - region.size[dim]:
                    found.append((st, node, dim, step))
    if not found:
        return False
    st, node, dim, step = rng.choice(found)
    _exchanged(st, node, replace(node, arguments=(node.arguments[0].moved(dim, step),)))
    return True


def other_layout(program: Program, rng: random.Random) -> bool:
    """Exchange two bits of the layout of a row, a column or another register tile."""
    tiles = [b for b in program.bufs.values() if b.bits is not None and len(b.bits.places) > 1]
    vectors = [b for b in tiles if 1 in b.shape]
    if not tiles:
        return False
    buf = rng.choice(vectors if vectors and rng.random() < 0.7 else tiles)
    assert buf.bits is not None
    places = list(buf.bits.places)
    one, other = rng.sample(range(len(places)), 2)
    places[one], places[other] = places[other], places[one]
    program.bufs[buf.name] = replace(buf, bits=replace(buf.bits, places=tuple(places)))
    return True


# -- planting in the operations --------------------------------------------------------------------


def _ops(ops: tuple[Any, ...], path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """Return every operation with its path: places, and names of the fields that hold bodies."""
    found = []
    for at, op in enumerate(ops):
        found.append(((*path, at), op))
        for name in ("body", "produce", "consume"):
            inner = getattr(op, name, None)
            if isinstance(inner, tuple):
                found += _ops(inner, (*path, at, name))
    return found


def _edit(ops: tuple[Any, ...], path: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return operations with the one at a path replaced by others."""
    at, *rest = path
    if not rest:
        return (*ops[:at], *new, *ops[at + 1 :])
    name, *deeper = rest
    op = ops[at]
    inner = _edit(getattr(op, name), tuple(deeper), new)
    return (*ops[:at], replace(op, **{name: inner}), *ops[at + 1 :])


IrFault = Callable[[Any, random.Random], Any]


def _without(*names: str) -> IrFault:
    def do(body: Any, rng: random.Random) -> Any:
        places = [path for path, op in _ops(body.ops) if type(op).__name__ in names]
        if not places:
            return None
        return replace(body, ops=_edit(body.ops, rng.choice(places), ()))

    return do


def ir_drop_predicate(body: Any, rng: random.Random) -> Any:
    """Take the guards from an operation, or what a branch holds out of it."""
    places = [
        (path, op) for path, op in _ops(body.ops)
        if getattr(op, "guards", ()) and type(op).__name__ in ("When", "Store", "Load", "Transfer")
    ]  # fmt: skip
    if not places:
        return None
    path, op = rng.choice(places)
    if type(op).__name__ == "When":
        return replace(body, ops=_edit(body.ops, path, op.body))
    guards = list(op.guards)
    del guards[rng.randrange(len(guards))]
    return replace(body, ops=_edit(body.ops, path, (replace(op, guards=tuple(guards)),)))


def ir_swap_registers(body: Any, rng: random.Random) -> Any:
    """Exchange two registers of an operand."""
    places = []
    for path, op in _ops(body.ops):
        whole = type(op).__name__ in (
            "Select",
            "Permute",
            "Shuffle",
        )  # registers have no order there
        if whole or not is_dataclass(op):
            continue
        for each in fields(op):
            value = getattr(op, each.name)
            for at, one in enumerate(value if isinstance(value, tuple) else (value,)):
                if type(one).__name__ == "Registers" and len(one.numbers) > 1:
                    places.append((path, op, each.name, value, at))
    if not places:
        return None
    path, op, name, value, at = rng.choice(places)
    several = list(value) if isinstance(value, tuple) else [value]
    numbers = list(several[at].numbers)
    one, other = rng.sample(range(len(numbers)), 2)
    numbers[one], numbers[other] = numbers[other], numbers[one]
    several[at] = replace(several[at], numbers=tuple(numbers))
    new = replace(op, **{name: tuple(several) if isinstance(value, tuple) else several[0]})
    return replace(body, ops=_edit(body.ops, path, (new,)))


def ir_shift_address(body: Any, rng: random.Random) -> Any:
    """Move an address by a vector."""
    places = [
        (path, op, name) for path, op in _ops(body.ops) for name in ("address", "into_address")
        if hasattr(op, name) and type(op).__name__ != "BulkLoad"
    ]  # fmt: skip
    if not places:
        return None
    path, op, name = rng.choice(places)
    count = getattr(op, "count", 1)
    for each in ("into", "source"):
        elements = getattr(op, each, None)
        if type(elements).__name__ == "Registers":
            count = len(elements.numbers)
    step = rng.choice((count, -count))
    new = replace(op, **{name: getattr(op, name) + step})
    return replace(body, ops=_edit(body.ops, path, (new,)))


def ir_shift_coordinate(body: Any, rng: random.Random) -> Any:
    """Count the elements of an expression from another place on."""
    places = [(path, op) for path, op in _ops(body.ops) if getattr(op, "coordinates", ())]
    if not places:
        return None
    path, op = rng.choice(places)
    at, step = rng.randrange(len(op.coordinates)), rng.choice((1, -1))
    moved = list(op.coordinates)
    moved[at] = tuple(index + step for index in moved[at])
    new = replace(op, coordinates=tuple(moved))
    return replace(body, ops=_edit(body.ops, path, (new,)))


def ir_other_mask(body: Any, rng: random.Random) -> Any:
    """Join the registers of another lane."""
    places = [(path, op) for path, op in _ops(body.ops) if type(op).__name__ == "Butterfly"]
    if not places:
        return None
    path, op = rng.choice(places)
    mask = rng.choice([1 << bit for bit in range(5) if 1 << bit != op.mask])
    return replace(body, ops=_edit(body.ops, path, (replace(op, mask=mask),)))


def ir_exchange(body: Any, rng: random.Random) -> Any:
    """Let two neighbouring operations change places."""
    places = []
    known = dict(_ops(body.ops))
    for path in known:
        other = (*path[:-1], path[-1] + 1)
        if other in known:
            places.append((path, other))
    if not places:
        return None
    one, other = rng.choice(places)
    first, second = known[one], known[other]
    ops = _edit(body.ops, one, (second,))
    return replace(body, ops=_edit(ops, other, (first,)))


TILE: dict[str, Callable[[Program, random.Random], bool]] = {
    "drop a sync": _drop("sync"),
    "weaken a sync": weaken_sync,
    "move a sync": move_sync,
    "sync in a branch": sync_in_branch,
    "drop a wait": _drop("wait", "tma_store_wait"),
    "leave one group more pending": raise_pending,
    "drop a commit": _drop("commit"),
    "drop an arrive": _drop("arrive"),
    "drop a wait for an mbarrier": _drop("mbarrier_wait"),
    "wrong parity": wrong_parity,
    "wrong slot": wrong_slot,
    "shift a region": shift_region,
    "another register tile": other_tile,
    "alias a tile": alias_tile,
    "drop a branch": drop_branch,
    "another branch": other_branch,
    "exchange statements": exchange,
    "asynchronous instead": asynchronous,
    "another function": other_function,
    "another axis": other_axis,
    "another operand": other_operand,
    "another layout": other_layout,
}
OPERATIONS: dict[str, IrFault] = {
    "op: drop a sync": _without("Sync"),
    "op: drop a proxy fence": _without("ProxyFence"),
    "op: drop a wait or commit": _without(
        "Wait", "Commit", "WgmmaWait", "WgmmaCommit", "TmaStoreWait"
    ),
    "op: drop an arrive or await": _without("Arrive", "MbarrierWait"),
    "op: drop a wgmma fence": _without("WgmmaFence"),
    "op: drop a store, load or move": _without("Store", "Load", "Move", "Zero", "StoreMatrix"),
    "op: drop a computation": _without("Compute", "Butterfly"),
    "op: shift a coordinate": ir_shift_coordinate,
    "op: another lane": ir_other_mask,
    "op: drop a predicate": ir_drop_predicate,
    "op: swap registers": ir_swap_registers,
    "op: shift an address": ir_shift_address,
    "op: exchange operations": ir_exchange,
}
KINDS = (*TILE, *OPERATIONS)
# Kinds that few kernels have a place for come first.
RARE = (
    "alias a tile", "drop a branch", "another branch", "wrong slot", "asynchronous instead",
    "another register tile", "shift a region", "op: drop a proxy fence", "op: drop a wgmma fence",
    "drop an arrive", "wrong parity", "leave one group more pending", "drop a commit",
    "another function", "another axis", "another operand", "another layout",
    "op: drop a computation", "op: shift a coordinate", "op: another lane",
)  # fmt: skip


def in_turn(rng: random.Random) -> list[str]:
    """Return all kinds in random order, the rare ones rather at the beginning."""
    return sorted(KINDS, key=lambda kind: rng.random() * (0.4 if kind in RARE else 1.0))


def plant(
    program: Program, made: KernelProgram, kind: str, seed: int
) -> tuple[Program, KernelProgram] | str | None:
    """Plant a fault of a kind.

    Returns:
        The program and its lowering; a text where lowering refuses; None where the kind does not
        apply, or changes nothing.
    """
    rng = random.Random(f"{kind} {seed}")
    if kind in OPERATIONS:
        body = OPERATIONS[kind](made.body, rng)
        if body is None or _same(body, made.body):
            return None
        return program, replace(made, lowered=body)
    wrong = program.clone()
    if not TILE[kind](wrong, rng):
        return None
    try:
        other = machines.lower(wrong)
    except REFUSALS as error:
        return str(error)
    if _same(other.body, made.body):
        return None
    return wrong, other


def _same(one: Any, other: Any) -> bool:
    """Say whether two bodies are written alike; an index beside a number is not."""
    try:
        return bool(one == other)
    except LayoutError:
        return False
