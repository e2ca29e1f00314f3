"""Runs a lowered kernel in random legal interleavings: warps, parts of warps, and what is apart.

Each warp's operations are first written out: control does not depend on data, so each becomes a
list of small steps with the cells that every lane touches. A run then picks at random who goes on.
Lanes of a warp are in lockstep only where an instruction needs the whole warp. Asynchronous copies
and products happen at a random time between their start and the wait that completes them.

Only the fields of the operations are read. What they mean is written here from the PTX ISA.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.fuzz.expressions import Node, evaluate, function
from tests.fuzz.texts import KINDS, Machine, described, places

Array = npt.NDArray[Any]
WARP = 32


class BrokenError(Exception):
    """A run that no right program has: it waits for ever, or leaves its memory."""


@dataclass
class Step:
    """A step of one warp: ``lanes`` take part; ``cells`` (lanes, count) of ``name``.

    ``whole``: whether all lanes of the warp must be there.
    """

    kind: str
    op: Any
    lanes: Array
    whole: bool = False
    name: str = ""
    cells: Any = None
    registers: str = ""
    numbers: Any = None
    more: Any = None


@dataclass
class Written:
    """A program written out: the steps of each warp, the producer's last."""

    body: Any
    steps: list[list[Step]]
    sizes: dict[str, int]
    kinds: dict[str, Any]
    registers: dict[str, int]
    shared: set[str]
    threads: int
    producer: bool
    barriers: dict[tuple[str, int], int]


# PTX's names of types, as programs have them.
DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "s32": "int32",
    "s8": "int8", "u8": "uint8", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "pred": "bool",
}  # fmt: skip


def leaves(node: Any) -> list[Any]:
    """Return the leaves of an operation's tree."""
    if type(node).__name__ == "Apply":
        return [leaf for each in node.arguments for leaf in leaves(each)]
    return [node]


def size_of(buffer: Any) -> int:
    """Return the cells of a buffer, from its layout's own table."""
    table = buffer.layout.table(buffer.shape).get("m", np.zeros(1))
    return int(np.max(table)) + 1


class Writer:
    """Writes out the operations of one warp."""

    def __init__(
        self, body: Any, warp: int, env: dict[str, Any], matrices: Mapping[str, tuple[int, int]]
    ) -> None:
        self.body, self.warp = body, warp
        self.matrices = matrices
        self.producer = warp * WARP >= body.threads
        thread = np.arange(WARP) + warp * WARP
        self.env = dict(env) | {"thread": thread}
        self.mask = np.ones(WARP, dtype=bool)
        if self.producer:
            self.mask = np.arange(WARP) == 0
        self.steps: list[Step] = []
        self.role = "all"
        self.buffers = {b.name: b for b in (*body.params, *body.shared, *body.registers)}

    def bits(self, name: str) -> int:
        return int(self.buffers[name].dtype.bits)

    def value(self, index: Any) -> Array:
        """Return an index for each lane."""
        if isinstance(index, int):
            return np.full(WARP, index)
        return np.broadcast_to(np.asarray(index.value(self.env), dtype=np.int64), (WARP,))

    def number(self, index: Any) -> int:
        """Return an index that is the same in all active lanes."""
        found = self.value(index)[self.mask]
        if not len(found) or (found != found[0]).any():
            raise BrokenError("a number that differs between lanes")
        return int(found[0])

    def holding(self, guards: Any) -> Array:
        """Return where guards hold."""
        taking = np.ones(WARP, dtype=bool)
        for guard in guards:
            value = self.value(guard.index)
            taking = taking & (value >= guard.low) & (value < self.value(guard.high))
        return taking

    def add(self, kind: str, op: Any, whole: bool = False, mask: Any = None, **rest: Any) -> Step:
        """Add a step of the active lanes."""
        mask = self.mask if mask is None else mask
        if whole and not self.producer and not mask.all():
            raise BrokenError(f"{type(op).__name__} by a part of a warp")
        step = Step(kind, op, np.flatnonzero(mask), whole, **rest)
        self.steps.append(step)
        return step

    def run(self, ops: Any) -> None:
        """Write out operations."""
        for op in ops:
            name = type(op).__name__
            if name == "Loop":
                extent = op.extent if isinstance(op.extent, int) else self.number(op.extent)
                before = self.env.get(op.var)
                for step in range(extent):
                    self.env[op.var] = step
                    self.run(op.body)
                if before is None:
                    self.env.pop(op.var, None)
                else:
                    self.env[op.var] = before
            elif name == "Let":
                self.env[op.var] = op.value.value(self.env)
            elif name == "When":
                before = self.mask
                self.mask = before & self.holding(op.guards)
                if self.mask.any():
                    self.run(op.body)
                self.mask = before
            elif name == "WarpSpecialize":
                self.role = "produce" if self.producer else "consume"
                self.run(op.produce if self.producer else op.consume)
                self.role = "all"
            elif self.producer and self.role == "all":
                if name == "Sync" and op.scope == "cta":
                    self.add("sync", op, True, more="all")
            else:
                getattr(self, name.lower())(op)

    # -- one operation --

    def zero(self, op: Any) -> None:
        self.add("zero", op, registers=op.into.buffer, numbers=list(op.into.numbers))

    def move(self, op: Any) -> None:
        self.add("move", op)

    def compute(self, op: Any) -> None:
        places = [
            np.stack([self.value(index)[self.mask] for index in each], axis=1)
            for each in op.coordinates
        ]
        values = {
            leaf: self.value(leaf.value)[self.mask][:, None]
            for leaf in leaves(op.value)
            if type(leaf).__name__ == "Variable" and not isinstance(leaf.value, str)
        }
        self.add("compute", op, more=(places, values))

    def butterfly(self, op: Any) -> None:
        self.add("butterfly", op, True)

    def agree(self, op: Any) -> None:
        """Do nothing: what must be so."""

    def select(self, op: Any) -> None:
        self.add("select", op, more=self.value(op.which)[self.mask])

    def permute(self, op: Any) -> None:
        self.add("permute", op, more=self.value(op.selector)[self.mask])

    def shuffle(self, op: Any) -> None:
        self.add("shuffle", op, True, more=self.value(op.lane))

    def mma(self, op: Any) -> None:
        self.add("mma", op, True)

    def movematrix(self, op: Any) -> None:
        self.add("movematrix", op, True)

    def load(self, op: Any) -> None:
        taking = self.holding(op.guards)
        numbers = list(op.into.numbers)
        inside = self.mask & taking
        if (self.mask & ~taking).any():
            mask = self.mask & ~taking
            self.add("zero", op, mask=mask, registers=op.into.buffer, numbers=numbers)
        if inside.any():
            cells = self.value(op.address)[inside][:, None] + np.arange(len(numbers))
            self.add(
                "load", op, mask=inside, name=op.memory, cells=cells,
                registers=op.into.buffer, numbers=numbers,
            )  # fmt: skip

    def store(self, op: Any) -> None:
        inside = self.mask & self.holding(op.guards)
        numbers = list(op.source.numbers)
        if inside.any():
            cells = self.value(op.address)[inside][:, None] + np.arange(len(numbers))
            self.add(
                "store", op, mask=inside, name=op.memory, cells=cells,
                registers=op.source.buffer, numbers=numbers,
            )  # fmt: skip

    def rows(self, op: Any, count: int) -> Array:
        """Return the cells of each lane of a matrix instruction."""
        pack = 32 // self.bits(op.memory)
        start = self.value(op.address)
        lane = np.arange(WARP)
        found = np.empty((WARP, count, pack), dtype=np.int64)
        for j in range(count):
            for p in range(pack):
                if op.trans:
                    found[:, j, p] = start[8 * j + 2 * (lane % 4) + p] + lane // 4
                else:
                    found[:, j, p] = start[8 * j + lane // 4] + lane % 4 * pack + p
        return found.reshape(WARP, -1)

    def loadmatrix(self, op: Any) -> None:
        self.add(
            "load", op, True, name=op.memory, cells=self.rows(op, op.count),
            registers=op.into.buffer, numbers=list(op.into.numbers),
        )  # fmt: skip

    def storematrix(self, op: Any) -> None:
        self.add(
            "store", op, True, name=op.memory, cells=self.rows(op, op.count),
            registers=op.source.buffer, numbers=list(op.source.numbers),
        )  # fmt: skip

    def transfer(self, op: Any) -> None:
        inside = self.holding(op.edges)
        mask = self.mask & self.holding(op.guards)
        if not mask.any():
            return
        far = self.value(op.address)[mask][:, None] + np.arange(op.count)
        near = self.value(op.into_address)[mask][:, None] + np.arange(op.count)
        kind = "async" if op.asynchronous else "transfer"
        self.add(kind, op, mask=mask, name=op.into, cells=near, more=(op.memory, far, inside[mask]))

    def commit(self, op: Any) -> None:
        self.add("commit", op)

    def wait(self, op: Any) -> None:
        self.add("wait", op, more=op.pending)

    def sync(self, op: Any) -> None:
        where = "all" if self.role == "all" and op.scope == "cta" else op.scope
        self.add("sync", op, True, more=where)

    def arrive(self, op: Any) -> None:
        if self.holding(op.guards).all():
            self.add("arrive", op, True, more=(op.barrier, self.number(op.slot)))

    def phase(self, phase: Any) -> tuple[tuple[str, int], int]:
        slot = phase.slot if isinstance(phase.slot, int) else self.number(phase.slot)
        return (phase.barrier, slot), self.number(phase.parity) % 2

    def mbarrierwait(self, op: Any) -> None:
        self.add("await", op, False, more=self.phase(op.phase))

    def trywait(self, op: Any) -> None:
        """Nothing: the wait that follows waits."""

    def box(self, op: Any, env_thread: int, shared: str, start: Any) -> tuple[Array, Array, Array]:
        """Return the cells of a box in shared memory and in its matrix, and which are inside."""
        env = self.env | {"thread": env_thread}
        rows, cols = op.box
        i, j = np.indices((rows, cols))
        bits = self.bits(shared)
        unit = 128 // bits
        line = (i * cols + j) * bits // 1024
        near = i * cols + ((j // unit) ^ (line % (op.swizzle // 16))) * unit + j % unit
        top, left = (int(np.asarray(p.value(env))) for p in op.place)
        height, width = self.matrices[op.memory]
        far = (i + top) * width + j + left
        inside = (i + top >= 0) & (i + top < height) & (j + left >= 0) & (j + left < width)
        first = int(np.asarray(start.value(env)))
        return (near + first).reshape(-1), far.reshape(-1), inside.reshape(-1)

    def tmaload(self, op: Any) -> None:
        if not self.producer and self.warp:
            return
        slot = op.slot if isinstance(op.slot, int) else self.number(op.slot)
        thread = self.body.threads if self.producer else 0
        loads = [
            (load.into, load.memory, *self.box(load, thread, load.into, load.into_address))
            for load in op.loads
        ]
        if op.free is not None:
            self.add("await", op, False, np.arange(WARP) == 0, more=self.phase(op.free))
        more = ((op.barrier, slot), op.size, loads)
        self.add("tma_load", op, False, np.arange(WARP) == 0, more=more)

    def tmastore(self, op: Any) -> None:
        if self.warp % 4:
            return
        stores = [
            (each.memory, each.source,
             *self.box(each, self.warp * WARP, each.source, each.source_address))
            for each in op.stores
        ]  # fmt: skip
        self.add("tma_store", op, False, np.arange(WARP) == 0, more=stores)

    def tmastorewait(self, op: Any) -> None:
        if self.warp % 4 == 0:
            self.add("tma_store_wait", op, False, np.arange(WARP) == 0, more=op.pending)

    def described(self, operand: Any, rows: int, depth: int) -> tuple[str, Array]:
        """Return the cells of an operand in shared memory: (rows, depth)."""
        buffer = self.buffers[operand.memory]
        size = buffer.dtype.bits // 8
        low, high = operand.descriptor.words
        base = self.body.shared_offsets[operand.memory]
        start = base + self.number(operand.address) * size
        word = (start >> 4 & 0x3FFF) | low
        mn = operand.descriptor.major == "MN"
        at = described(word, high, rows, depth, size, mn)
        return operand.memory, (at - base) // size

    def wgmma(self, op: Any) -> None:
        inst = op.instruction
        adds = op.accumulate
        adds = adds if isinstance(adds, bool) else bool(self.number(adds))
        left: Any = None
        if hasattr(op.a, "descriptor"):
            left = self.described(op.a, 64, inst.k)
        right = self.described(op.b, inst.n, inst.k)
        self.add("wgmma", op, True, more=(left, right, adds))

    def wgmmafence(self, op: Any) -> None:
        self.add("wgmma_fence", op, True)

    def wgmmacommit(self, op: Any) -> None:
        self.add("wgmma_commit", op, True)

    def wgmmawait(self, op: Any) -> None:
        self.add("wgmma_wait", op, True, more=op.pending)

    def proxyfence(self, op: Any) -> None:
        self.add("proxy_fence", op)


def write_out(body: Any, env: dict[str, Any], matrices: Mapping[str, tuple[int, int]]) -> Written:
    """Write out a lowered program for one CTA.

    Raises:
        BrokenError: an operation of whole warps under a branch that lanes take apart.
    """
    producer = any(type(op).__name__ == "WarpSpecialize" for op in body.ops)
    steps = []
    for warp in range(body.threads // WARP + producer):
        writer = Writer(body, warp, env, matrices)
        writer.run(body.ops)
        steps.append(writer.steps)
    sizes, kinds = {}, {}
    for buffer in (*body.params, *body.shared):
        sizes[buffer.name] = size_of(buffer)
        kinds[buffer.name] = KINDS[buffer.dtype.token]
    registers = {}
    for buffer in body.registers:
        registers[buffer.name] = size_of(buffer)
        kinds[buffer.name] = KINDS[buffer.dtype.token]
    return Written(
        body, steps, sizes, kinds, registers, {b.name for b in body.shared}, body.threads, producer,
        {(b.name, slot): b.arrivals for b in body.barriers for slot in range(b.slots)},
    )  # fmt: skip


@dataclass
class Phase:
    """An mbarrier: arrivals, phases, bytes that are to come."""

    count: int
    arrived: int = 0
    phases: int = 0
    owed: int = 0


class Run:
    """One interleaving of a written program."""

    def __init__(
        self,
        written: Written,
        memory: dict[str, Array],
        scalars: Mapping[str, float],
        seed: int | None,
        observer: Any = None,
    ) -> None:
        """Prepare; without a seed warps go in turns, and what is apart is done at once."""
        self.w, self.scalars, self.observer = written, scalars, observer
        self.rng = None if seed is None else random.Random(seed)
        total = WARP * len(written.steps)
        self.registers = {
            name: np.full((total, count), np.nan) for name, count in written.registers.items()
        }
        self.memory = {name: cells.copy() for name, cells in memory.items()}
        for name in written.shared:
            self.memory[name] = np.full(written.sizes[name], np.nan)
        self.barriers = {key: Phase(count) for key, count in written.barriers.items()}
        self.units: list[tuple[int, Array]] = []  # (warp, its lanes)
        for warp in range(len(written.steps)):
            lanes = np.arange(WARP)
            if self.rng is not None and self.rng.random() < 0.5 and warp * WARP < written.threads:
                some = np.array([self.rng.random() < 0.5 for _ in range(WARP)])
                if some.any() and not some.all():
                    self.units += [(warp, lanes[some]), (warp, lanes[~some])]
                    continue
            self.units.append((warp, lanes))
        self.at = [0] * len(self.units)
        self.of_warp: dict[int, list[int]] = {}
        for unit, (warp, _) in enumerate(self.units):
            self.of_warp.setdefault(warp, []).append(unit)
        # What is under way: (done when, what): groups per unit, bulk copies, products.
        self.copies: list[list[list[Callable[[], None]]]] = [[[]] for _ in self.units]
        self.bulk: list[tuple[tuple[str, int], int, Callable[[], None]]] = []
        self.drains: dict[int, list[list[Callable[[], None]]]] = {}
        self.products: dict[int, list[list[Callable[[], None]]]] = {}
        self.meeting: dict[tuple[Any, int], set[int]] = {}
        # Registers of each warpgroup: touched since its last fence; of products under way.
        self.fenced: set[int] = set()
        self.touched: dict[int, set[tuple[str, int]]] = {}
        self.flight: dict[int, list[set[tuple[str, int]]]] = {}
        self.count = 0

    def run(self) -> dict[str, Array]:
        """Run to the end; return the memory.

        Raises:
            BrokenError: it waits for ever, or leaves its memory.
        """
        left = [u for u in range(len(self.units)) if self.at[u] < self.length(u)]
        blocked: set[int] = set()
        while left:
            open_ = [u for u in left if u not in blocked]
            if not open_:
                if self.bulk:
                    self.land(0 if self.rng is None else self.rng.randrange(len(self.bulk)))
                    blocked.clear()
                    continue
                raise BrokenError("waits for ever")
            if self.rng is None:
                unit = open_[0]
                burst = 1 << 30
            else:
                unit = self.rng.choice(open_)
                burst = self.rng.choice((1, 1, 2, 4, 16))
            moved = False
            while burst and self.at[unit] < self.length(unit):
                if not self.step(unit):
                    break
                moved = True
                burst -= 1
            if moved:
                blocked.clear()
            if self.at[unit] >= self.length(unit):
                left.remove(unit)
                blocked.clear()
            elif not moved or burst:
                blocked.add(unit)
            if self.rng is not None and self.bulk and self.rng.random() < 0.3:
                self.land(self.rng.randrange(len(self.bulk)))
                blocked.clear()
        while self.bulk:
            self.land(0)
        for groups in self.drains.values():
            for group in groups:
                for do in group:
                    do()
        return self.memory

    def length(self, unit: int) -> int:
        return len(self.w.steps[self.units[unit][0]])

    # -- meeting --

    def meet(self, unit: int, key: Any, members: list[int]) -> bool:
        """Say whether all units of a set have come to a step that they do together."""
        here = self.meeting.setdefault((key, 0), set())
        here.add(unit)
        if here >= set(members):
            del self.meeting[key, 0]
            return True
        return False

    def members(self, scope: str, warp: int) -> list[int]:
        warps = range(self.w.threads // WARP)
        if scope == "warp":
            chosen = [warp]
        elif scope == "warpgroup":
            chosen = [each for each in warps if each // 4 == warp // 4]
        elif scope == "all":
            chosen = list(range(len(self.w.steps)))
        else:
            chosen = list(warps)
        return [u for each in chosen for u in self.of_warp[each]]

    def together(self, unit: int, step: Step, scope: str) -> bool | None:
        """Gather the units of a scope at their steps; True for the last one, which acts for all.

        All units stay at their step until the last comes; then all move on.
        """
        warp = self.units[unit][0]
        members = self.members(scope, warp)
        key = (scope, step.kind, tuple(members))
        if not self.meet(unit, key, members):
            return None
        for other in members:
            if other != unit:
                self.at[other] += 1
        return True

    # -- a step --

    def step(self, unit: int) -> bool:
        """Do the next step of a unit; say whether it went on."""
        warp, lanes = self.units[unit]
        step = self.w.steps[warp][self.at[unit]]
        kind = step.kind
        if kind == "sync":
            if self.together(unit, step, step.more) is None:
                return False
            if self.observer:
                self.observer.sync(step, self.threads_of(self.members(step.more, warp)))
        elif kind in ("wgmma", "wgmma_fence", "wgmma_commit", "wgmma_wait"):
            if self.together(unit, step, "warpgroup") is None:
                return False
            self.product(warp // 4, step)
        elif step.whole:
            if self.together(unit, step, "warp") is None:
                return False
            self.act(unit, warp, step, np.arange(WARP))
        elif kind == "await":
            key, parity = step.more
            if key not in self.barriers:
                raise BrokenError("no such mbarrier")
            state = self.barriers[key]
            if state.phases % 2 == parity:
                return False
            if self.observer:
                self.observer.wait(step, key, state.phases, self.lanes(warp, step, lanes))
        else:
            self.act(unit, warp, step, lanes)
        self.at[unit] += 1
        return True

    def threads_of(self, units: list[int]) -> Array:
        found = [self.units[u][0] * WARP + self.units[u][1] for u in units]
        threads = np.concatenate(found)
        return np.minimum(threads, self.w.threads) if self.w.producer else threads

    def lanes(self, warp: int, step: Step, lanes: Array) -> Array:
        some = step.lanes if len(lanes) == WARP else step.lanes[np.isin(step.lanes, lanes)]
        found: Array = warp * WARP + some
        return found

    def rows(self, step: Step, lanes: Array) -> Any:
        """Return which rows of a step's cells belong to lanes: all, or some."""
        return slice(None) if len(lanes) == WARP else np.isin(step.lanes, lanes)

    def check(self, name: str, cells: Array) -> None:
        if cells.size and (cells.min() < 0 or cells.max() >= self.w.sizes[name]):
            raise BrokenError(f"leaves {name}")

    def act(self, unit: int, warp: int, step: Step, lanes: Array) -> None:
        """Do a step of some lanes."""
        kind, op = step.kind, step.op
        threads = self.lanes(warp, step, lanes)
        if not len(threads) and kind not in ("commit", "wait"):
            return
        if self.observer:
            self.touch(warp // 4, step)
        if kind == "load":
            cells = step.cells[self.rows(step, lanes)]
            self.check(step.name, cells)
            if self.observer:
                self.observer.access(step, threads, step.name, cells, False)
            self.registers[step.registers][threads[:, None], step.numbers] = self.memory[step.name][
                cells
            ]
        elif kind == "store":
            cells = step.cells[self.rows(step, lanes)]
            self.check(step.name, cells)
            if self.observer:
                self.observer.access(step, threads, step.name, cells, True)
            values = self.registers[step.registers][threads[:, None], step.numbers]
            if self.rng is not None and len(threads) > 1:
                order = np.array(self.rng.sample(range(len(threads)), len(threads)))
                cells, values = cells[order], values[order]
            self.memory[step.name][cells] = values
        elif kind == "zero":
            self.registers[step.registers][threads[:, None], step.numbers] = 0
        elif kind == "move":
            values = self.read(op.source, threads)
            self.write(op.into, threads, values)
        elif kind == "compute":
            self.compute(step, threads, self.rows(step, lanes))
        elif kind == "butterfly":
            own = self.read(op.into, threads)
            kind_of = self.w.kinds[op.into.buffer]
            with np.errstate(all="ignore"):
                pair = [each.astype(kind_of) for each in (own, own[np.arange(WARP) ^ op.mask])]
            self.write(op.into, threads, function(op.function, pair, None).astype(np.float64))
        elif kind == "select":
            which = step.more[self.rows(step, lanes)][:, None] == 1
            one, zero = (self.read(each, threads) for each in (op.one, op.zero))
            self.write(op.into, threads, np.where(which, one, zero))
        elif kind == "permute":
            both = np.concatenate([self.read(each, threads) for each in (op.first, op.second)], 1)
            size = np.dtype(self.w.kinds[op.into.buffer]).itemsize
            selector = step.more[self.rows(step, lanes)]
            picks = [selector >> 4 * size * at & 15 for at in range(len(op.into.numbers))]
            found = [both[np.arange(len(threads)), pick // size] for pick in picks]
            self.write(op.into, threads, np.stack(found, axis=1))
        elif kind == "shuffle":
            self.write(op.into, threads, self.read(op.source, threads)[step.more])
        elif kind == "mma":
            self.mma(op, threads)
        elif kind == "movematrix":
            count = len(op.source.numbers) // 2
            rows = self.read(op.source, threads).reshape(8, 4, count, 2)
            flipped = rows.transpose(2, 0, 1, 3).reshape(count, 8, 8).swapaxes(1, 2)
            self.write(
                op.into,
                threads,
                flipped.reshape(count, 8, 4, 2).transpose(1, 2, 0, 3).reshape(32, -1),
            )
        elif kind in ("transfer", "async"):
            self.transfer(unit, step, threads, lanes)
        elif kind == "commit":
            self.copies[unit].append([])
            if self.observer:
                self.observer.commit(threads)
        elif kind == "wait":
            groups = self.copies[unit]
            closed = groups[:-1]
            done = closed[: max(0, len(closed) - step.more)]
            for group in done:
                for do in group:
                    do()
            self.copies[unit] = groups[len(done) :]
            if self.observer:
                self.observer.wait_group(threads, step.more)
        elif kind == "arrive":
            key = step.more
            if key not in self.barriers:
                raise BrokenError("no such mbarrier")
            if self.observer:
                self.observer.arrive(step, key, self.barriers[key].phases, threads[:1])
            self.barriers[key].arrived += 1
            self.complete(key)
        elif kind == "tma_load":
            self.fill(step, threads)
        elif kind == "tma_store":
            self.drain(step, threads)
        elif kind == "tma_store_wait":
            groups = self.drains.setdefault(int(threads[0]), [])
            done = groups[: max(0, len(groups) - step.more)]
            for group in done:
                for do in group:
                    do()
            self.drains[int(threads[0])] = groups[len(done) :]
            if self.observer:
                self.observer.drained(int(threads[0]), step.more)
        elif kind == "proxy_fence":
            if self.observer:
                self.observer.fence(threads)
        else:
            raise AssertionError(kind)

    def touch(self, group: int, step: Step) -> None:
        """Note what registers a step of threads touches; products under way must not share them."""
        found = set()
        if step.registers:
            found |= {(step.registers, number) for number in step.numbers}
        else:
            for value in vars(step.op).values():
                for each in value if isinstance(value, tuple) else (value,):
                    if type(each).__name__ == "Registers":
                        found |= {(each.buffer, number) for number in each.numbers}
        if not found:
            return
        self.touched.setdefault(group, set()).update(found)
        for running in self.flight.get(group, ()):
            if found & running:
                raise BrokenError(f"touches {min(found & running)} of a product that is under way")

    def start(self, group: int, step: Step) -> None:
        """Check the registers of a product: what threads touched needs a fence first."""
        op = step.op
        own = {(op.d.buffer, number) for number in op.d.numbers}
        source = set()
        if step.more[0] is None:
            source = {(op.a.buffer, number) for number in op.a.numbers}
        if group not in self.fenced or (own | source) & self.touched.get(group, set()):
            raise BrokenError("a product's registers without a wgmma.fence")
        self.flight.setdefault(group, [set()])[-1].update(own | source)

    def read(self, elements: Any, threads: Array) -> Array:
        found: Array = self.registers[elements.buffer][threads[:, None], list(elements.numbers)]
        return found

    def write(self, elements: Any, threads: Array, values: Array) -> None:
        kind = self.w.kinds[elements.buffer]
        with np.errstate(all="ignore"):
            rounded = np.where(np.isnan(values), np.nan, values.astype(kind).astype(np.float64))
        self.registers[elements.buffer][threads[:, None], list(elements.numbers)] = rounded

    def compute(self, step: Step, threads: Array, rows: Any) -> None:
        """Compute registers; all operands are read first."""
        op = step.op
        operands = [self.read(each, threads) for each in op.operands]
        places, values = step.more

        def tree(node: Any) -> Node:
            if type(node).__name__ == "Apply":
                inside = tuple(map(tree, node.arguments))
                return Node(node.function.name, DTYPES[node.token], inside)
            return Node("tile", DTYPES[node.token], (node,))

        def leaf(each: Node) -> Array:
            node = each.arguments[0]
            kind = type(node).__name__
            if kind == "Operand":
                found: Array = operands[node.number]
                return found
            if kind == "Coordinate":
                return np.asarray(places[node.number][rows])
            if kind == "Number":
                return np.asarray(node.value)
            if isinstance(node.value, str):
                return np.asarray(self.scalars[node.value])
            return np.asarray(values[node][rows])

        value = evaluate(tree(op.value), leaf, None).astype(np.float64)
        self.write(op.into, threads, np.broadcast_to(value, (len(threads), len(op.into.numbers))))

    def gathered(self, values: Array, bits: int, role: str, shape: tuple[int, int]) -> Array:
        rows, cols = places(bits, role, shape)
        out = np.empty(shape)
        out[rows, cols] = values.reshape(rows.shape)
        return out

    def mma(self, op: Any, threads: Array) -> None:
        inst = op.instruction
        bits = inst.a.bits
        a = self.gathered(self.read(op.a, threads), bits, "A", (16, inst.k))
        b = self.gathered(self.read(op.b, threads), bits, "B", (inst.k, 8))
        d = self.gathered(self.read(op.d, threads), 32, "D", (16, 8))
        rows, cols = places(32, "D", (16, 8))
        self.write(op.d, threads, (d + a @ b)[rows, cols])

    def transfer(self, unit: int, step: Step, threads: Array, lanes: Array) -> None:
        rows = self.rows(step, lanes)
        source, far, inside = step.more
        far, near, inside = far[rows], step.cells[rows], inside[rows]
        self.check(step.name, near)
        self.check(source, far[inside])
        if self.observer:
            name = "access" if step.kind == "transfer" else "issue"
            if name == "access":
                self.observer.access(step, threads[inside], source, far[inside], False)
                self.observer.access(step, threads, step.name, near, True)
            else:
                self.observer.issue(step, threads, step.name, near, source, far[inside], inside)

        def do() -> None:
            values = np.zeros(near.shape)
            values[inside] = self.memory[source][far[inside]]
            self.memory[step.name][near] = values

        if step.kind == "transfer" or (self.rng is not None and self.rng.random() < 0.3):
            do()
        else:
            self.copies[unit][-1].append(do)

    def complete(self, key: tuple[str, int]) -> None:
        state = self.barriers[key]
        while state.arrived >= state.count and state.owed == 0:
            state.arrived -= state.count
            state.phases += 1

    def fill(self, step: Step, threads: Array) -> None:
        key, size, loads = step.more
        state = self.barriers[key]
        thread = min(int(threads[0]), self.w.threads)
        if self.observer:
            self.observer.fill(step, thread, key, state.phases, loads)
        state.arrived += 1
        state.owed += size
        for into, source, near, far, inside in loads:
            self.check(into, near)
            self.check(source, far[inside])

            def do(
                into: str = into, source: str = source, near: Array = near, far: Array = far,
                inside: Array = inside,
            ) -> None:  # fmt: skip
                values = np.zeros(near.shape)
                values[inside] = self.memory[source][far[inside]]
                self.memory[into][near] = values

            bits = {1: 8, 2: 16, 4: 32}[np.dtype(self.w.kinds[into]).itemsize]
            self.bulk.append((key, near.size * bits // 8, do))
        if self.rng is None:
            while self.bulk:
                self.land(0)

    def land(self, at: int) -> None:
        """Complete a bulk copy."""
        key, size, do = self.bulk.pop(at)
        do()
        self.barriers[key].owed -= size
        self.complete(key)

    def drain(self, step: Step, threads: Array) -> None:
        group = []
        leader = int(threads[0])
        if self.observer:
            self.observer.drain(step, leader, step.more)
        for memory, source, near, far, inside in step.more:
            self.check(source, near)
            self.check(memory, far[inside])

            def do(
                memory: str = memory, source: str = source, near: Array = near, far: Array = far,
                inside: Array = inside,
            ) -> None:  # fmt: skip
                self.memory[memory][far[inside]] = self.memory[source][near[inside]]

            group.append(do)
        self.drains.setdefault(leader, []).append(group)

    def product(self, group: int, step: Step) -> None:
        """Do a step of a warpgroup."""
        groups = self.products.setdefault(group, [[]])
        threads = np.arange(128) + 128 * group
        flight = self.flight.setdefault(group, [set()])
        if step.kind == "wgmma_fence":
            self.fenced.add(group)
            self.touched.pop(group, None)
            return
        if step.kind == "wgmma_commit":
            groups.append([])
            flight.append(set())
            if self.observer:
                self.observer.commit_products(group)
            return
        if step.kind == "wgmma_wait":
            closed = groups[:-1]
            done = closed[: max(0, len(closed) - step.more)]
            for each in done:
                for do in each:
                    do()
            self.products[group] = groups[len(done) :]
            self.flight[group] = flight[len(done) :]
            if self.observer:
                self.observer.wait_products(group, threads, step.more)
            return
        op = step.op
        inst = op.instruction
        left, right, adds = step.more
        for operand in (left, right):
            if operand is not None:
                self.check(operand[0], operand[1])
        if self.observer:
            self.start(group, step)
            self.observer.product(step, group, threads, [each for each in (left, right) if each])
        held = None if left is not None else self.read(op.a, threads)

        def do() -> None:
            b = self.memory[right[0]][right[1]]
            if left is not None:
                a = self.memory[left[0]][left[1]]
            else:
                rows, cols = places(16, "A", (16, 16))
                a = np.empty((64, 16))
                for warp in range(4):
                    part = held[32 * warp : 32 * warp + 32]
                    a[16 * warp + rows, cols] = part
            total = a @ b.T
            rows, cols = Machine.wide_places(inst.n)
            got = total[rows, cols]
            if adds:
                got = got + self.read(op.d, threads)
            self.write(op.d, threads, got)

        groups[-1].append(do)
        if self.rng is not None and self.rng.random() < 0.3:  # in order, all so far
            for each in groups:
                for now in each:
                    now()
                each.clear()


def memory_of(program: Any, body: Any) -> dict[str, Array]:
    """Return the parameters' cells."""
    found = {}
    for buffer in body.params:
        table = buffer.layout.table(buffer.shape)["m"]
        flat = np.full(int(table.max()) + 1, np.nan)
        flat[table] = program.given[buffer.name].astype(np.float64)
        found[buffer.name] = flat
    return found


def matrix_of(body: Any, memory: Mapping[str, Array]) -> dict[str, Array]:
    """Return the parameters as matrices."""
    return {b.name: memory[b.name][b.layout.table(b.shape)["m"]] for b in body.params}
