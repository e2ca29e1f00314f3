"""Runs the text of a kernel that multiplies in tensor memory, for one CTA or a pair, in lockstep.

Beside :mod:`tests.fuzz.texts`, with clusters, tensor memory and its tensor core. Functions do what
their PTX says, which is matched word for word; nothing else comes from the package. Who issues is
counted, and that fences, barriers, waits and commits stand between what they must order is read off
a log for each CTA.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.fuzz.texts import CELLS, FUNCTION, SPACING, Array, described

ACCESS = re.compile(r"(ld|st)\.(?:global|shared)(?:\.v([24]))?\.(u8|u16|u32|f32|f64)")
SHARED = 1 << 18  # bytes between the shared memories of two CTAs
ELECTED = 5  # the lane that is elected: any, but always the same
LANES, WARP, COLUMNS = 128, 32, 512
PLACE = 4, 3  # bx and by of the first CTA
POISON = 0x7FC00000  # the first of the words that registers hold while they are loaded: a NaN

KINDS: dict[tuple[str, int], Any] = {
    ("f16", 0): np.float16, ("f16", 1): ml_dtypes.bfloat16, ("i8", 0): np.uint8, ("i8", 1): np.int8,
    ("mxf8f6f4", 0): ml_dtypes.float8_e4m3fn, ("mxf8f6f4", 1): ml_dtypes.float8_e5m2,
}  # fmt: skip
HIGH = r"0x([0-9a-f]+)"
GROUP = r"cta_group::([12])"


class _Elementwise(ast.NodeTransformer):
    """Turns conditions on scalars into conditions on arrays."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Turn ``a and b`` into ``a & b``."""
        self.generic_visit(node)
        result = node.values[0]
        for value in node.values[1:]:
            result = ast.BinOp(result, ast.BitAnd(), value)
        return result


@dataclass
class Machine:
    """The threads of a CTA: variables are arrays over them, memory is bytes."""

    threads: int
    memory: list[npt.NDArray[np.uint8]]
    functions: dict[str, Callable[..., Any]]
    names: dict[str, Any] = field(default_factory=dict)
    active: Any = True

    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Run statements in the active threads."""
        for statement in statements:
            if isinstance(statement, ast.If):
                self.branch(statement)
            elif isinstance(statement, ast.For):
                self.loop(statement)
            elif isinstance(statement, ast.Assign):
                self.assign(statement.targets[0], self.value(statement.value))
            elif isinstance(statement, ast.Expr):
                self.value(statement.value)
            else:
                raise AssertionError(f"a statement of no known form: {ast.unparse(statement)}")

    def branch(self, statement: ast.If) -> None:
        """Run both sides, each in its threads."""
        before, test = self.active, self.value(statement.test)
        self.active = before & test
        self.run(statement.body)
        self.active = before & ~test
        self.run(statement.orelse)
        self.active = before

    def loop(self, statement: ast.For) -> None:
        """Run a loop over a range of numbers; its variable must hide nothing."""
        assert isinstance(statement.target, ast.Name)
        assert statement.target.id not in (self.names | self.functions)
        for step in self.value(statement.iter):
            self.names[statement.target.id] = step
            self.run(statement.body)
        del self.names[statement.target.id]

    def value(self, node: ast.expr) -> Any:
        """Evaluate an expression for all threads."""
        tree = ast.fix_missing_locations(ast.Expression(_Elementwise().visit(node)))
        return eval(compile(tree, "<kernel>", "eval"), {**self.functions, **self.names})

    def assign(self, target: ast.expr, value: Any) -> None:
        """Set a variable, or several from a tuple, in the active threads."""
        if isinstance(target, ast.Tuple):
            assert len(target.elts) == len(value)
            for each, part in zip(target.elts, value, strict=True):
                self.assign(each, part)
            return
        assert isinstance(target, ast.Name)
        if isinstance(value, (np.ndarray, np.generic)):
            before = self.names.get(target.id, np.zeros((), value.dtype))
            value = np.where(self.active, value, before)
            value = np.broadcast_to(value, (self.threads,)).copy()
        self.names[target.id] = value

    def cells(self, address: Any, count: int, size: int) -> tuple[int, Array, Array]:
        """Return the parameter, the active threads, and the bytes that each of them touches."""
        address = np.broadcast_to(np.asarray(address, dtype=np.int64), (self.threads,))
        threads = np.flatnonzero(np.broadcast_to(self.active, (self.threads,)))
        address = address[threads]
        (base,) = {int(number) for number in address // SPACING} or {0}
        start = address % SPACING
        assert (start % (count * size) == 0).all(), "an access that is not aligned"
        assert (start + count * size <= len(self.memory[base])).all(), "outside the memory"
        return base, threads, start[:, None] + np.arange(count * size)

    def load(self, count: int, kind: str, address: Any) -> Any:
        """Load a vector in the active threads; a lone narrow cell comes as a 32-bit word."""
        cell = np.dtype(CELLS[kind])
        base, threads, where = self.cells(address, count, cell.itemsize)
        values = np.zeros((self.threads, count), dtype=cell)
        values[threads] = self.memory[base][where].view(cell)
        if cell.itemsize < 4:
            values = values.astype(np.uint32)
        return values[:, 0] if count == 1 else tuple(values.T)

    def store(self, count: int, kind: str, address: Any, *values: Any) -> None:
        """Store a vector in the active threads; threads that write one cell must agree."""
        cell = np.dtype(CELLS[kind])
        base, threads, where = self.cells(address, count, cell.itemsize)
        assert len(values) == count
        rows = np.stack([np.asarray(value)[threads] for value in values], axis=-1).astype(cell)
        data = np.ascontiguousarray(rows).view(np.uint8)
        self.memory[base][where] = data
        assert (self.memory[base][where] == data).all(), "threads write one cell differently"


@dataclass
class Cluster(Machine):
    """The threads of one CTA, or of two: their shared memories lie one behind the other."""

    ctas: int = 1
    tensor: Array = field(default_factory=lambda: np.zeros((2, LANES, COLUMNS), np.uint32))
    barriers: dict[int, list[int]] = field(default_factory=dict)  # [arrivals, come, phases]
    log: list[list[str]] = field(default_factory=list)
    held: tuple[int, int] | None = None  # columns, begin and end
    cell: set[int] = field(default_factory=set)
    loading: dict[int, Array] = field(default_factory=dict)
    loaded: int = POISON
    started: set[int] = field(default_factory=set)  # the threads that issued what is not committed

    @property
    def each(self) -> int:
        """Threads of a CTA."""
        return self.threads // self.ctas

    def here(self) -> Array:
        """Return the active threads."""
        return np.flatnonzero(np.broadcast_to(self.active, (self.threads,)))

    def note(self, event: str) -> None:
        """Log what all threads do."""
        assert len(self.here()) == self.threads, f"{event} of some threads only"
        for log in self.log:
            log.append(event)

    def ordered(self, cta: int, first: str, *between: str) -> None:
        """Demand that events came one after another since the last time that another did."""
        log = self.log[cta]
        if first in log:
            rest = iter(log[len(log) - log[::-1].index(first) :])
            for event in between:
                assert event in rest, f"no {event} after {first}: {log}"

    def issuer(self, group: int) -> int | None:
        """Return the CTA of the one thread that issues; of a pair it is the first."""
        here = self.here()
        if not len(here):
            return None
        assert len(here) == 1, f"issued by threads {here}"
        self.started.add(int(here[0]))
        assert group == self.ctas
        assert here[0] < self.each, "issued by the second CTA"
        return 0

    def first_warps(self) -> None:
        """Demand that warp 0 of every CTA is here, and nobody else."""
        want = [n for n in range(self.threads) if n % self.each < WARP]
        assert self.here().tolist() == want, f"threads {self.here()}"

    def assign(self, target: ast.expr, value: Any) -> None:
        """Set a variable, which keeps its kind: words are not floats."""
        if isinstance(target, ast.Name) and isinstance(value, np.ndarray):
            before = self.names.get(target.id, value)
            assert (before.dtype.kind == "f") == (value.dtype.kind == "f"), target.id
        super().assign(target, value)

    # -- barriers ---------------------------------------------------------------------------------

    def sync(self) -> None:
        """Let the threads of each CTA meet."""
        self.note("sync")

    def sync_cluster(self, memory: bool) -> None:
        """Let the threads of a pair meet: a barrier of each CTA too."""
        assert memory
        self.note("cluster")
        self.note("sync")

    def barrier_init(self, address: Any, count: Any) -> None:
        """Make an mbarrier."""
        for thread in self.here():
            assert thread % self.each == 0
            self.barriers[int(address[thread])] = [int(count), 0, 0]

    def barrier_wait(self, address: Any, parity: Any) -> None:
        """Wait for the phase of a parity, which is complete or never will be."""
        for at in dict.fromkeys(address[self.here()].tolist()):
            assert self.barriers[at][2] % 2 != int(parity), f"waits forever at {at}"
        self.note("await")

    def commit(self, group: int, multicast: bool, address: Any) -> None:
        """Arrive at an mbarrier, or at that of both CTAs."""
        issuer = self.issuer(group)
        if issuer is None:
            return
        assert len(self.started) == 1, f"committed by another thread than started: {self.started}"
        self.started.clear()
        assert multicast == (group == 2), "a pair commits by multicast"
        for cta in range(group):
            barrier = self.barriers[int(address[self.here()[0]]) + SHARED * cta]
            barrier[1] += 1
            if barrier[1] == barrier[0]:
                barrier[1:] = [0, barrier[2] + 1]
            self.log[cta].append("commit")

    def elect(self) -> Array:
        """Return 1 in one thread of each warp."""
        here = self.here().reshape(-1, WARP)
        assert (here == here[:, :1] + np.arange(WARP)).all(), "a warp is not whole"
        return (np.arange(self.threads) % WARP == ELECTED).astype(np.uint32)

    # -- memory -----------------------------------------------------------------------------------

    def load(self, count: int, kind: str, address: Any) -> Any:
        """Load; the address of tensor memory only once it is there."""
        if self.cell & set(np.atleast_1d(address).tolist()):
            for cta in range(self.ctas):
                self.ordered(cta, "alloc", "before", "sync", "after")
        return super().load(count, kind, address)

    def store(self, count: int, kind: str, address: Any, *values: Any) -> None:
        """Store; what lies in shared memory is to be fenced."""
        super().store(count, kind, address, *values)
        if int(np.max(address)) < SPACING:
            for log in self.log:
                log.append("store")

    def allocate(self, group: int, columns: int, address: Any) -> None:
        """Allocate columns in every CTA; the last ones, so that no address is 0 by chance."""
        self.first_warps()
        assert group == self.ctas
        assert self.held is None
        self.held = COLUMNS - columns, COLUMNS
        super().store(1, "u32", address, np.full(self.threads, self.held[0], np.uint32))
        self.cell = set(address[self.here()].tolist())
        for log in self.log:
            log.append("alloc")

    def free(self, group: int, columns: int, address: Any) -> None:
        """Free the columns, which nobody touches any more."""
        self.first_warps()
        assert group == self.ctas
        assert self.held == (COLUMNS - columns, COLUMNS)
        assert (address[self.here()] == self.held[0]).all()
        for cta in range(self.ctas):
            for touched in ("ld", "st", "start"):
                self.ordered(cta, touched, "before", "sync", "after")
        self.held = None

    def place(self, address: Any, columns: int) -> tuple[int, int]:
        """Return lane and column of an address, from which on so many columns are held."""
        lane, column = int(address) >> 16, int(address) & 0xFFFF
        assert self.held is not None
        assert self.held[0] <= column <= column + columns <= self.held[1], (lane, column)
        return lane, column

    def moved(self, shape: str, count: int, address: Array) -> tuple[Array, Array, Array]:
        """Return CTA, lane and column of each register of each thread: (threads, registers).

        Source: PTX ISA, tcgen05 "Matrix fragments".
        """
        n, lane = np.arange(self.threads)[:, None], np.arange(WARP)[:, None]
        assert len(self.here()) == self.threads, "a warp is not whole"
        if shape == "32x32b":
            r = np.arange(count)
            row, col = lane + 0 * r, 0 * lane + r
        else:
            pair = 2 if shape == "16x256b" else 1  # words of a row that one thread has
            r = np.arange(2 * pair * count)
            row = lane // 4 + 8 * (r // pair % 2)
            col = r // (2 * pair) * 4 * pair + lane % 4 * pair + r % pair
        lanes, columns = [], []
        for first in range(0, self.threads, WARP):
            (one,) = set(address[first : first + WARP].tolist())
            begin, column = self.place(one, int(col.max()) + 1)
            assert begin // WARP == first // WARP % 4, "not the lanes of this warp"
            assert begin % WARP in ((0,) if shape == "32x32b" else (0, 16))
            lanes.append(begin + row)
            columns.append(column + col)
        return n // self.each + 0 * r, np.concatenate(lanes), np.concatenate(columns)

    def tensor_load(self, shape: str, count: int, kind: Any, address: Any) -> Any:
        """Begin to load registers: they hold poison until the wait."""
        for cta in range(self.ctas):
            self.ordered(cta, "start", "commit", "await", "after")
            self.ordered(cta, "st", "wait st")
        cells = self.tensor[self.moved(shape, count, address)]
        found = []
        for register in cells.T:
            self.loading[self.loaded] = register.copy()
            found.append(np.full(self.threads, self.loaded, np.uint32).view(kind))
            self.loaded += 1
        self.note("ld")
        return tuple(found) if len(found) > 1 else found[0]

    def tensor_store(self, shape: str, count: int, address: Any, *values: Any) -> None:
        """Store registers."""
        for cta in range(self.ctas):
            self.ordered(cta, "alloc", "before", "sync", "after")
            self.ordered(cta, "start", "commit", "await", "after")
        where = self.moved(shape, count, address)
        words = [np.broadcast_to(value, (self.threads,)).view(np.uint32) for value in values]
        self.tensor[where] = np.stack(words, axis=-1)
        self.note("st")

    def wait(self, verb: str, *registers: Any) -> Any:
        """Wait for loads, each of whose registers passes through, or for stores."""
        self.note(f"wait {verb}")
        found = [
            self.loading.pop(int(each.view(np.uint32)[0])).view(each.dtype) for each in registers
        ]
        assert verb == "st" or not self.loading
        return tuple(found) if len(found) > 1 else found[0] if found else None

    # -- the tensor core --------------------------------------------------------------------------

    def fetch(self, cta: int, low: int, high: int, rows: int, major: int) -> Array:
        """Return the 32 bytes of each row that a descriptor names: (rows, 32), or MN-major.

        Source: PTX ISA, tcgen05 "Shared memory descriptor"; its swizzles are numbered otherwise
        than those of wgmma.
        """
        assert high >> 14 & 7 == 1, "bits 46 to 48 are 0b001"
        swizzle = {0: 0, 2: 1, 4: 2, 6: 3}[high >> 29]
        where = described(low, high & 0x3FFF | swizzle << 30, rows, 16, 2, bool(major))
        where += SHARED * cta
        return self.memory[0][np.stack([where, where + 1], -1)].reshape(rows, -1)

    def begin(self, group: int) -> int | None:
        """Demand what must come before an operation of the tensor core; return its issuer."""
        issuer = self.issuer(group)
        if issuer is not None:
            met = "cluster" if group == 2 else "sync"
            for cta in range(group):
                self.ordered(cta, "alloc", "before", met, "after")
                self.ordered(cta, "store", "proxy", met)
                self.ordered(cta, "st", "wait st", "before", met, "after")
                self.ordered(cta, "ld", "wait ld", "before", met, "after")
                self.log[cta].append("start")
        return issuer

    def copy_rows(self, high: int, group: int, shape: str, address: Any, low: Any) -> None:
        """Copy rows of shared memory to lanes of every CTA, and their copies."""
        if self.begin(group) is None:
            return
        at = self.here()[0]
        rows, bits = map(int, re.findall(r"\d+", shape)[:2])
        lane, column = self.place(address[at], bits // 32)
        for cta in range(group):
            words = self.fetch(cta, int(low[at]), high, rows, 0)[:, : bits // 8].copy()
            for first in range(0, LANES, rows):
                into = slice(lane + first, lane + first + rows)
                self.tensor[cta, into, column : column + bits // 32] = words.view(np.uint32)

    def multiply(self, text: dict[str, Any], *inputs: Any) -> None:
        """Do ``tcgen05.mma`` as its text and the bits of its instruction descriptor say.

        Source: PTX ISA, tcgen05 "Instruction descriptor", "Data Path Layout Organization".
        """
        group, bits = int(text["group"]), int(text["bits"], 16)
        if self.begin(group) is None:
            return
        at = self.here()[0]
        d, a, b, *more = (int(np.broadcast_to(each, (self.threads,))[at]) for each in inputs)
        kind, scaled = text["kind"], bool(text["scales"])
        n, trans = (bits >> 17 & 63) * 8, (bits >> 15 & 1, bits >> 16 & 1)
        m = (bits >> 27 & 3) * 128 if scaled else (bits >> 24 & 31) * 16
        rows, cols = m // group, n // group
        types = [KINDS[kind, bits >> place & 7] for place in (7, 10)]
        assert scaled or bits >> 4 & 3 == (2 if kind == "i8" else 1), "D is s32 or f32"
        assert text["scale"] == (".block_scale.block32" if scaled else "")

        highs = {name: int(text[name] or "0", 16) for name in "ab"}
        parts = [self.fetch(cta, b, highs["b"], cols, trans[1]) for cta in range(group)]
        right = np.concatenate(parts).view(types[1]).astype(float)
        word = text["add"]
        adds = word == "1" if word in "01" else bool(more[-1])
        lane, column = self.place(d, cols if rows < LANES and group == 2 else n)
        assert lane in ((0, 16) if m < LANES else (0,))
        for cta in range(group):
            if text["left"] == "a":
                held = self.fetch(cta, a, highs["a"], rows, trans[0])
            else:
                first, start = self.place(a, 8)
                copies = self.tensor[cta, first:, start : start + 8].reshape(-1, rows, 8)
                assert (copies == copies[0]).all()
                held = np.ascontiguousarray(copies[0]).view(np.uint8)
            left, own = held.view(types[0]).astype(float), right
            if scaled:
                left = left * self.scales(cta, more[0], rows, bits >> 29 & 3)
                own = right * self.scales(cta, more[1], n, bits >> 4 & 3)
            i, j = np.indices((rows, n))
            if rows < LANES and group == 2:
                i, j = i + j // cols * rows, j % cols
            elif rows < LANES:
                i = i // 16 * 32 + i % 16
            out = np.int32 if kind == "i8" else np.float32
            where = cta, lane + i, column + j
            total = left @ own.T + (self.tensor[where].view(out) if adds else 0)
            self.tensor[where] = total.astype(out).view(np.uint32)

    def scales(self, cta: int, address: int, rows: int, byte: int) -> Array:
        """Return the scale of each row, one for 32 elements: (rows, 1)."""
        lane, column = self.place(address, -(-rows // WARP))
        assert not lane
        row = np.arange(rows)
        cells = [self.tensor[cta, row % 32 + 32 * n, column + row // 32] for n in range(4)]
        assert all((each == cells[0]).all() for each in cells)
        found = (cells[0] >> np.uint32(8 * byte)).astype(np.uint8)
        return found.view(ml_dtypes.float8_e8m0fnu).astype(float)[:, None]


PTX: tuple[tuple[str, Callable[[Cluster, Any, Any], Callable[..., Any]]], ...] = (
    (
        r"mbarrier\.init\.shared::cta\.b64 \[%0\], %1;", lambda cluster, *_: cluster.barrier_init
    ),
    (
        r"\{ \.reg \.pred done; again: mbarrier\.try_wait\.parity\.shared::cta\.b64 done, \[%0\], "
        r"%1; @!done bra again; \}",
        lambda cluster, *_: cluster.barrier_wait,
    ),
    (r"fence\.mbarrier_init\.release\.cluster;", lambda *_: lambda: None),
    (
        r"fence\.proxy\.async\.shared::cta;",
        lambda cluster, *_: lambda: [log.append("proxy") for log in cluster.log],
    ),
    (
        r"barrier\.cluster\.arrive\.(release|relaxed); barrier\.cluster\.wait(\.acquire)?;",
        lambda cluster, found, _: lambda: cluster.sync_cluster(
            (found[1], found[2]) == ("release", ".acquire")
        ),
    ),
    (
        rf"shr\.u32 %0, %1, 4; and\.b32 %0, %0, 0x3fff; or\.b32 %0, %0, {HIGH};",
        lambda _, found, __: lambda address: address >> 4 & 0x3FFF | int(found[1], 16),
    ),
    (
        r"\{ \.reg \.pred one; elect\.sync _\|one, 0xffffffff; selp\.b32 %0, 1, 0, one; \}",
        lambda cluster, *_: cluster.elect,
    ),
    (
        rf"tcgen05\.alloc\.{GROUP}\.sync\.aligned\.shared::cta\.b32 \[%0\], (\d+); "
        r"tcgen05\.relinquish_alloc_permit\.cta_group::\1\.sync\.aligned;",
        lambda cluster, found, _: lambda at: cluster.allocate(int(found[1]), int(found[2]), at),
    ),
    (
        rf"tcgen05\.dealloc\.{GROUP}\.sync\.aligned\.b32 %0, (\d+);",
        lambda cluster, found, _: lambda at: cluster.free(int(found[1]), int(found[2]), at),
    ),
    (
        r"tcgen05\.fence::(before|after)_thread_sync;",
        lambda cluster, found, _: lambda: cluster.note(found[1]),
    ),
    (
        r"tcgen05\.wait::(ld|st)\.sync\.aligned;",
        lambda cluster, found, _: lambda *registers: cluster.wait(found[1], *registers),
    ),
    (
        rf"(?P<both>\{{ \.reg \.b16 both; mov\.b16 both, 3; )?tcgen05\.commit\.{GROUP}"
        r"\.mbarrier::arrive::one\.shared::cluster(?(both)\.multicast::cluster)\.b64 \[%0\]"
        r"(?(both), both; \});?",
        lambda cluster, found, _: lambda at: cluster.commit(int(found[2]), bool(found[1]), at),
    ),
    (
        r"tcgen05\.ld\.sync\.aligned\.(32x32b|16x128b|16x256b)\.x(\d+)\.b32 \{OUT\}, \[IN\];",
        lambda cluster, found, kind: lambda at: cluster.tensor_load(
            found[1], int(found[2]), kind, at
        ),
    ),
    (
        r"tcgen05\.st\.sync\.aligned\.(32x32b|16x128b|16x256b)\.x(\d+)\.b32 \[%0\], \{REST\};",
        lambda cluster, found, _: lambda *values: cluster.tensor_store(
            found[1], int(found[2]), *values
        ),
    ),
    (
        rf"\{{ \.reg \.b64 s; mov\.b64 s, \{{%1, {HIGH}\}}; tcgen05\.cp\.{GROUP}\.([\w.]+) \[%0\], "
        r"s; \}",
        lambda cluster, found, _: lambda *places: cluster.copy_rows(
            int(found[1], 16), int(found[2]), found[3], *places
        ),
    ),
    (
        r"\{ \.reg \.pred add;(?: \.reg \.b64 a; mov\.b64 a, \{%1, 0x(?P<a>[0-9a-f]+)\};)? "
        r"\.reg \.b64 b; mov\.b64 b, \{%2, 0x(?P<b>[0-9a-f]+)\}; "
        r"setp\.ne\.b32 add, (?P<add>[01]|LAST), 0; tcgen05\.mma\.cta_group::(?P<group>[12])"
        r"\.kind::(?P<kind>\w+)(?P<scale>[\w.]*) \[%0\], (?P<left>(?(a)a|\[%1\])), b, "
        r"0x(?P<bits>[0-9a-f]+)(?P<scales>, \[%3\], \[%4\])?, add; \}",
        lambda cluster, found, _: lambda *inputs: cluster.multiply(found.groupdict(), *inputs),
    ),
)  # fmt: skip


def function(cluster: Cluster, arguments: str, text: str) -> Callable[..., Any]:
    """Return what a device function does: its PTX, on numbers of the kinds that it declares."""
    declared = [argument.rsplit(" ", 1)[0] for argument in arguments.split(",") if argument]
    kinds = [each.strip() for each in declared]
    outputs = sum(kind.endswith("&") for kind in kinds)
    numbers = [f"%{n}" for n in range(len(kinds))]
    in_place = text.startswith("tcgen05.wait")
    taken = kinds if in_place else kinds[outputs:]
    result = np.float32 if kinds[:1] == ["float&"] else np.uint32
    words = {
        "OUT": ",".join(numbers[:outputs]), "IN": numbers[-1] if numbers else "",
        "REST": ",".join(numbers[1:]), "LAST": numbers[-1] if numbers else "",
    }  # fmt: skip
    for pattern, made in PTX:
        exact = re.sub("OUT|IN|REST|LAST", lambda word: words[word[0]], pattern)
        if (found := re.fullmatch(exact, text)) is not None:
            action = made(cluster, found, result)
            break
    else:
        mnemonic, _, operands = text.rstrip(";").partition(" ")
        access = ACCESS.fullmatch(mnemonic)
        assert access is not None, text
        cells = numbers[:outputs] or numbers[1:]
        vector = "{" + ",".join(cells) + "}" if len(cells) > 1 else cells[0]
        want = f"{vector}, [{numbers[-1]}]" if outputs else f"[{numbers[0]}], {vector}"
        assert operands == want
        verb = cluster.load if access[1] == "ld" else cluster.store
        action = partial(verb, int(access[2] or 1), access[3])

    def call(*inputs: Any) -> Any:
        assert len(inputs) == len(taken), text
        for value, kind in zip(inputs, taken, strict=True):
            assert (np.asarray(value).dtype.kind == "f") == kind.startswith("float"), (kind, text)
        return action(*inputs)

    return call


def run(source: str, definitions: str, threads: int, ctas: int, parameters: Sequence[Array]) -> Any:
    """Run the Python text of a kernel on its parameters, in place, and check that all ended.

    Args:
        source: one function; addresses count bytes.
        definitions: the kernel's CUDA C++ text, whose functions hold the PTX.
        threads: of a CTA.
        ctas: one, or a pair.
        parameters: flat arrays, in order.
    """
    (kernel,) = ast.parse(source).body
    assert isinstance(kernel, ast.FunctionDef)
    shared = np.full(SHARED * ctas, 0xA5, dtype=np.uint8)
    memory = [shared, *(np.asarray(array).view(np.uint8) for array in parameters)]
    cluster = Cluster(threads * ctas, memory, {}, ctas=ctas, log=[[] for _ in range(ctas)])
    cluster.tensor[:] = 0xA5A5A5A5
    for index, argument in enumerate(kernel.args.args):
        cluster.names[argument.arg] = (index + 1) * SPACING
    thread = np.arange(threads * ctas)
    cluster.names["cuda"] = SimpleNamespace(
        threadIdx=SimpleNamespace(x=thread % threads),
        blockIdx=SimpleNamespace(x=PLACE[0] + thread // threads, y=PLACE[1]),
        syncthreads=cluster.sync,
        shared=SimpleNamespace(array=lambda size, kind, alignment: 0),
    )
    cluster.functions = {
        "cells_address": lambda base: base,
        "shared_address": lambda base: base + thread // threads * SHARED,
        **{kind: getattr(np, kind) for kind in ("uint8", "uint32", "float32")},
        "uint64": lambda value: np.asarray(value, dtype=np.int64),
        "range": range,
    }
    for name, arguments, text, _ in FUNCTION.findall(definitions):
        cluster.functions[name] = function(cluster, arguments, text)
    cluster.run(kernel.body)
    assert cluster.held is None, "columns are not freed"
    assert not cluster.loading, "registers are never awaited"
    assert not cluster.started, "started, and not committed"
