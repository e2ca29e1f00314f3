"""Runs the text of a kernel, Python or CUDA C++, in NumPy: compiled once, all threads at once.

Nothing is taken from the package but the text, and what a launch knows: parameters, scalars and the
boxes of tensor maps. What each instruction does is written here from the PTX ISA, and its inline
assembly is compared with what the ISA says, operand by operand. A role (the threads that compute,
the warpgroup that fills) runs in lockstep; a role that waits at an mbarrier lets the other go on.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.fuzz.kernels import MMA
from tests.support import ptx_words

Array = npt.NDArray[Any]
SPACING = 1 << 26  # bytes between the bases of two parameters
SHARED = 1 << 18
KINDS: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "tf32": np.float32,
    "f64": np.float64, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8, "u8": np.uint8, "s32": np.int32,
}  # fmt: skip
CELLS: dict[str, Any] = {
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "f32": np.float32,
    "f64": np.float64,
}


class TextError(AssertionError):
    """A text does what no machine would, or what is not known here."""


# -- fragments ----------------------------------------------------------------------------------


@cache
def places(bits: int, role: str, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Return row and column of each element of a lane: (32, elements), from the ISA's bits.

    An operand with half of K lacks the highest bit of K, which is its highest register bit.
    """
    texts = zip(MMA[str(bits)][role], shape, strict=True)
    rows, cols = (text.split()[1 - extent.bit_length() :] for text, extent in texts)
    count = 1 << sum(each[0] == "r" for each in (*rows, *cols))
    lane, element = np.arange(32)[:, None], np.arange(count)[None, :]
    found = []
    for names in (rows, cols):
        value = np.zeros((32, count), dtype=int)
        for at, name in enumerate(reversed(names)):
            source = lane if name[0] == "l" else element
            value = value | (source >> int(name[1:]) & 1) << at
        found.append(value)
    return found[0], found[1]


def elements(words: Sequence[Array], kind: Any) -> Array:
    """Return the elements of registers: (threads, elements), the low bits first."""
    stacked = np.ascontiguousarray(np.stack(words, axis=-1))
    return stacked.view(kind) if stacked.dtype.itemsize == 4 else stacked


def registers(values: Array, kind: Any) -> tuple[Array, ...]:
    """Return elements as registers: floats and integers of 32 bits as they are, words of others."""
    cast = np.ascontiguousarray(values.astype(kind))
    if cast.dtype.itemsize == 4:
        if cast.dtype.kind != "f":
            cast = cast.view(np.uint32)
        return tuple(np.ascontiguousarray(cast.T))
    return tuple(np.ascontiguousarray(cast.view(np.uint32).T))


def matrix(words: Sequence[Array], kind: str, role: str, shape: tuple[int, int]) -> Array:
    """Return an operand of every warp: (warps, *shape). D lies as of 32 bits, whatever its type."""
    bits = 32 if role == "D" else np.dtype(KINDS[kind]).itemsize * 8
    own = elements(words, KINDS[kind]).astype(np.float64)
    rows, cols = places(bits, role, shape)
    out = np.empty((len(own) // 32, *shape))
    out[:, rows, cols] = own.reshape(-1, 32, own.shape[1])
    return out


def described(word: int, high: int, rows: int, depth: int, size: int, mn: bool) -> Array:
    """Return the byte addresses of (rows, depth) elements that a matrix descriptor names.

    "Canonical Layouts" of the PTX ISA with T elements to 16 bytes and c = 1, 2, 4 or 8 units to a
    row: K-major ((8,m),(T,2)):((cT,SBO),(1,LBO)), or (1,T) for K where swizzled; MN-major
    ((T,c,m),(8,k)):((1,T,LBO),(cT,SBO)), SBO and LBO exchanged where c is 1.
    """
    bits = word | high << 32
    start, leading, stride = ((bits >> at & 0x3FFF) * 16 for at in (0, 16, 32))
    chunks = {0: 1, 1: 8, 2: 4, 3: 2}[bits >> 62]
    per = 16 // size
    row, k = np.indices((rows, depth))
    if mn:
        along, across = (leading, stride) if chunks > 1 else (stride, leading)
        at = row % per * size + row // per % chunks * 16 + row // per // chunks * along
        at = at + k % 8 * chunks * 16 + k // 8 * across
    else:
        at = row % 8 * chunks * 16 + row // 8 * stride
        at = at + k % per * size + k // per * (leading if chunks == 1 else 16)
    at = at + start
    return at ^ (at >> 7 & chunks - 1) << 4


# -- instructions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Instruction:
    """What a device function is: how many registers go out and in, and its assembly.

    ``text``: with operands numbered as CUDA C++ does, outputs first; None: not compared.
    """

    out: int
    ins: int
    text: str | None
    do: Callable[..., Any]
    in_place: bool = False


def _list(first: int, count: int) -> str:
    return "{" + ",".join(f"%{i}" for i in range(first, first + count)) + "}"


@dataclass
class Machine:
    """Memory, barriers and what a launch knows; the functions that texts call."""

    threads: int
    memory: list[Array]
    maps: Mapping[int, tuple[int, int, int, int, int, int]]
    shared: Array = field(default_factory=lambda: np.full(SHARED, 0xA5, dtype=np.uint8))
    barriers: dict[int, list[int]] = field(default_factory=dict)  # count, arrived, phases, bytes
    progress: int = 0
    offset: int = 0  # the first thread of the role that runs

    # -- memory --

    def cells(self, mask: Any, address: Any, size: int, count: int) -> tuple[Array, Array, Any]:
        """Return memory as vectors of cells, their numbers, and which threads are meant."""
        here = np.broadcast_to(np.asarray(address, dtype=np.int64), (self.threads,))
        if mask is not None:
            here = here[mask]
        if not len(here):
            return self.shared, here, mask
        base = int(here[0]) // SPACING
        space = self.memory[base - 1] if base else self.shared
        if base:
            here = here - base * SPACING
        wide = size * count
        if (here % wide).any() or here.min() < 0 or here.max() + wide > len(space):
            raise TextError("an access outside the memory, or that is not aligned")
        return space, here, mask

    def load(self, kind: str, count: int, mask: Any, address: Any) -> Any:
        cell = CELLS[kind]
        size = np.dtype(cell).itemsize
        space, here, mask = self.cells(mask, address, size, count)
        typed = space[: len(space) // size * size].view(cell)
        got = typed[(here // size)[:, None] + np.arange(count)]
        if size < 4:
            got = got.astype(np.uint32)
        if mask is not None:
            full = np.zeros((self.threads, count), dtype=got.dtype)
            full[mask] = got
            got = full
        return got[:, 0] if count == 1 else tuple(got.T)

    def store(self, kind: str, count: int, mask: Any, address: Any, *values: Any) -> None:
        cell = CELLS[kind]
        size = np.dtype(cell).itemsize
        space, here, mask = self.cells(mask, address, size, count)
        rows = np.stack([np.broadcast_to(v, (self.threads,)) for v in values], axis=-1)
        if mask is not None:
            rows = rows[mask]
        if rows.dtype.kind == "f" and cell not in (np.float32, np.float64):
            raise TextError("a float stored as a word")
        typed = space[: len(space) // size * size].view(cell)
        typed[(here // size)[:, None] + np.arange(count)] = rows.astype(cell)

    def reduce(self, rule: str, kind: str, mask: Any, address: Any, value: Any) -> None:
        """Do ``red``: in the order of the threads, which hardware leaves open."""
        cell = np.dtype(KINDS[kind.removesuffix("x2")])
        count = 2 if kind.endswith("x2") else 1
        space, here, mask = self.cells(mask, address, cell.itemsize, count)
        words = np.ascontiguousarray(np.broadcast_to(value, (self.threads,)))
        rows = words.view(cell).reshape(self.threads, count)
        typed = space[: len(space) // cell.itemsize * cell.itemsize].view(cell)
        join = {"add": np.add, "min": np.minimum, "max": np.maximum}[rule]
        for row, at in zip(
            rows if mask is None else rows[mask], here // cell.itemsize, strict=True
        ):
            typed[at : at + count] = join(typed[at : at + count], row)

    def transfer(self, size: int, mask: Any, into: Any, source: Any, read: Any = None) -> None:
        """``cp.async``: of so many bytes some are read, the rest is zero."""
        space, there, _ = self.cells(mask, source, size, 1) if read is None else (None, None, None)
        if read is None:
            data = space[there[:, None] + np.arange(size)]
        else:
            count = np.broadcast_to(np.asarray(read), (self.threads,))
            count = count if mask is None else count[mask]
            data = np.zeros((len(count), size), dtype=np.uint8)
            some = np.broadcast_to(np.asarray(source, dtype=np.int64), (self.threads,))
            some = (some if mask is None else some[mask])[count > 0]
            if len(some):
                base = int(some[0]) // SPACING
                data[count > 0] = self.memory[base - 1][(some % SPACING)[:, None] + np.arange(size)]
        space, here, _ = self.cells(mask, into, size, 1)
        if space is not self.shared:
            raise TextError("cp.async writes shared memory")
        space[here[:, None] + np.arange(size)] = data

    def rows(self, mask: Any, address: Any, j: int, trans: bool) -> Array:
        """Return the bytes of matrix j that each lane moves: (threads, 4)."""
        if mask is not None:
            whole = mask.reshape(-1, 32)
            if (whole.any(axis=1) != whole.all(axis=1)).any():
                raise TextError("a matrix instruction of a part of a warp")
        here = np.broadcast_to(np.asarray(address, dtype=np.int64), (self.threads,))
        lane = np.arange(self.threads)
        first = lane // 32 * 32 + 8 * j
        row, col = lane % 32 // 4, 2 * (lane % 4)
        parts = []
        for step in (0, 1):
            i, k = (col + step, row) if trans else (row, col + step)
            parts.append(here[first + i] + 2 * k)
        found = np.stack([parts[0], parts[0] + 1, parts[1], parts[1] + 1], axis=-1)
        if mask is not None:
            found = found[mask]
        used = here if mask is None else here[mask]
        used = used.reshape(-1, 32)[:, 8 * j : 8 * j + 8]
        if (used % 16).any() or (found < 0).any() or (found >= SHARED).any():
            raise TextError("rows of a matrix that are not aligned, or outside")
        return found

    def load_matrices(self, count: int, trans: bool, kind: Any, mask: Any, address: Any) -> Any:
        words = []
        for j in range(count):
            got = self.shared[self.rows(mask, address, j, trans)].view(np.uint32)[:, 0]
            if mask is not None:
                full = np.zeros(self.threads, dtype=np.uint32)
                full[mask] = got
                got = full
            words.append(got.view(kind))
        return words[0] if count == 1 else tuple(words)

    def store_matrices(self, trans: bool, mask: Any, address: Any, *values: Any) -> None:
        for j, value in enumerate(values):
            data = np.ascontiguousarray(np.broadcast_to(value, (self.threads,)))
            data = data if data.dtype == np.float32 else data.astype(np.uint32)
            data = data if mask is None else data[mask]
            self.shared[self.rows(mask, address, j, trans)] = data.view(np.uint8).reshape(-1, 4)

    # -- lanes --

    def from_lane(self, mask: Any, value: Any, lane: Any) -> Array:
        """Do ``shfl.sync.idx`` of whole warps: the value that a lane of the warp has."""
        whole = np.ones(self.threads, dtype=bool) if mask is None else mask
        if (whole.reshape(-1, 32).any(axis=1) != whole.reshape(-1, 32).all(axis=1)).any():
            raise TextError("a shuffle of a part of a warp")
        thread = np.arange(self.threads)
        source = thread - thread % 32 + np.broadcast_to(lane, thread.shape).astype(int) % 32
        return np.broadcast_to(value, (self.threads,))[source]

    def transposed(self, mask: Any, value: Any) -> Array:
        """Do ``movmatrix``: lane 4r + c // 2 holds elements c and c + 1 of row r."""
        if mask is not None:
            raise TextError("movmatrix of a part of the warps")
        word = np.broadcast_to(value, (self.threads,)).astype(np.uint32)
        halves = np.ascontiguousarray(word).view(np.uint16).reshape(-1, 8, 8)
        flipped = np.ascontiguousarray(halves.transpose(0, 2, 1)).reshape(-1)
        return flipped.view(np.uint32)

    # -- products --

    def mma(self, k: int, kinds: tuple[str, str, str], mask: Any, *ins: Any) -> Any:
        d, a, b = kinds
        bits = np.dtype(KINDS[a]).itemsize * 8
        na, nb = 16 * k * bits // 1024, 8 * k * bits // 1024
        wide = np.broadcast_to
        words = [np.asarray(wide(each, (self.threads,))) for each in ins]
        left = matrix(words[:na], a, "A", (16, k))
        right = matrix(words[na : na + nb], b, "B", (k, 8))
        own = [
            w.view(np.float32) if d == "f32" and w.dtype.kind != "f" else w
            for w in words[na + nb :]
        ]
        total = matrix(own, d, "D", (16, 8)) + left @ right
        rows, cols = places(32, "D", (16, 8))
        got = total[:, rows, cols].reshape(self.threads, -1)
        return registers(got, KINDS[d])

    def wgmma(self, spec: Any, mask: Any, *ins: Any) -> Any:
        n, k, kinds, shared_a, flags, highs, adds, turns = spec
        if mask is not None:
            raise TextError("wgmma in a branch that some threads do not take")
        d, a, b = kinds
        size = np.dtype(KINDS[a]).itemsize
        per_d = 2 if d == "f16" else 1
        count = n // 2 // per_d
        own_a = 1 if shared_a else 4
        words = [np.asarray(np.broadcast_to(each, (self.threads,))) for each in ins]
        each = own_a + 1
        operands, rest = words[: turns * each], words[turns * each :]
        if adds == "maybe":
            flag, rest = rest[0], rest[1:]
            add = bool(np.asarray(flag).reshape(-1)[0])
        else:
            add = adds == "add"
        group = np.arange(self.threads) // 128
        rows, cols = self.wide_places(n)
        if add:
            own = rest
            if d == "f32":
                own = [w if w.dtype.kind == "f" else w.view(np.float32) for w in own]
            held = elements(own, KINDS[d]).astype(np.float64).reshape(-1, 128, n // 2)
            total = np.empty((len(held), 64, n))
            total[:, rows, cols] = held
        else:
            total = np.zeros((group[-1] + 1, 64, n))
        for turn in range(turns):
            mine = operands[turn * each : (turn + 1) * each]
            if turn:
                add = True
            product = []
            for g in range(int(group[-1]) + 1):
                here = slice(128 * g, 128 * g + 128)
                right = self.from_shared(mine[own_a][here], highs[-1], n, k, size, flags[-1], b)
                if shared_a:
                    left = self.from_shared(mine[0][here], highs[0], 64, k, size, flags[0], a)
                else:
                    left = matrix([w[here] for w in mine[:4]], a, "A", (16, k)).reshape(64, k)
                product.append(left @ right.T)
            total = total + np.stack(product)
            kind = KINDS[d]
            total = total.astype(kind).astype(np.float64)
        got = total[:, rows, cols].reshape(self.threads, -1)
        found = registers(got, KINDS[d])
        if len(found) != count:
            raise TextError("wgmma: another count of registers")
        return found

    def from_shared(
        self, words: Array, high: int, rows: int, k: int, size: int, flag: str, kind: str
    ) -> Array:
        if (words != words[0]).any():
            raise TextError("one descriptor for each warpgroup")
        at = described(int(words[0]), high, rows, k, size, flag == "1")
        data = self.shared[at[..., None] + np.arange(size)]
        return data.view(KINDS[kind])[..., 0].astype(np.float64)

    @staticmethod
    def wide_places(n: int) -> tuple[Array, Array]:
        """Return row and column of the accumulator's elements: (128, n / 2)."""
        thread, r = np.arange(128)[:, None], np.arange(n // 2)[None, :]
        row = thread // 32 * 16 + thread % 32 // 4 + 8 * (r // 2 % 2)
        col = 8 * (r // 4) + 2 * (thread % 4) + r % 2
        return row + 0 * r, col

    # -- barriers, bulk copies --

    def init(self, mask: Any, address: Any, count: Any) -> None:
        for at in self.each(mask, address):
            self.barriers[at] = [int(count), 0, 0, 0]

    def each(self, mask: Any, address: Any) -> list[int]:
        here = np.broadcast_to(np.asarray(address), (self.threads,))
        return (here if mask is None else here[mask]).tolist()

    def complete(self, at: int) -> None:
        barrier = self.barriers[at]
        if barrier[1] > barrier[0]:
            raise TextError("more arrivals at an mbarrier than it counts")
        if barrier[1] == barrier[0] and barrier[3] == 0:
            barrier[1] = 0
            barrier[2] += 1

    def arrive(self, mask: Any, address: Any, taking: Any = 1) -> None:
        self.progress += 1
        go = np.broadcast_to(np.asarray(taking), (self.threads,))
        for at, yes in zip(self.each(mask, address), self.each(mask, go), strict=True):
            if yes:
                self.barriers[at][1] += 1
                self.complete(at)

    def expect(self, mask: Any, address: Any, size: Any) -> None:
        for at in self.each(mask, address):
            self.barriers[at][1] += 1
            self.barriers[at][3] += int(size)

    def wait(self, mask: Any, address: Any, parity: Any) -> Iterator[None]:
        want = np.broadcast_to(np.asarray(parity), (self.threads,))
        pairs = set(zip(self.each(mask, address), self.each(mask, want), strict=True))
        while any(self.barriers[at][2] % 2 == int(p) for at, p in pairs):
            yield
        self.progress += 1

    def box(self, base: int, row: int, col: int) -> tuple[Array, Array, Array, int]:
        """Return a box's cells: bytes in shared memory, bytes in the matrix, which are inside."""
        rows, cols, swizzle, size, height, width = self.maps[base // SPACING - 1]
        i, j = np.indices((rows, cols))
        at = i * cols + j
        line = at * size // 128
        unit = 16 // size
        near = i * cols + ((j // unit) ^ (line % (swizzle // 16))) * unit + j % unit
        inside = (i + row >= 0) & (i + row < height) & (j + col >= 0) & (j + col < width)
        return near * size, ((i + row) * width + j + col) * size, inside, size

    def tma_load(self, mask: Any, into: Any, base: Any, col: Any, row: Any, bar: Any) -> None:
        self.progress += 1
        bases = np.broadcast_to(np.asarray(base), (self.threads,))
        lists = [self.each(mask, each) for each in (into, bases, col, row, bar)]
        for to, b, c, r, at in zip(*lists, strict=True):
            near, far, inside, size = self.box(int(b), _signed(r), _signed(c))
            data = np.zeros((*near.shape, size), dtype=np.uint8)
            source = self.memory[int(b) // SPACING - 1]
            data[inside] = source[far[inside][:, None] + np.arange(size)]
            if int(to) % 1024:
                raise TextError("a box that begins at no multiple of 1024 bytes")
            self.shared[int(to) + near[..., None] + np.arange(size)] = data
            self.barriers[at][3] -= near.size * size
            self.complete(at)

    def tma_store(self, mask: Any, base: Any, col: Any, row: Any, source: Any) -> None:
        bases = np.broadcast_to(np.asarray(base), (self.threads,))
        lists = [self.each(mask, each) for each in (bases, col, row, source)]
        for b, c, r, at in zip(*lists, strict=True):
            near, far, inside, size = self.box(int(b), _signed(r), _signed(c))
            data = self.shared[int(at) + near[..., None] + np.arange(size)]
            into = self.memory[int(b) // SPACING - 1]
            into[far[inside][:, None] + np.arange(size)] = data[inside]


def _signed(value: Any) -> int:
    number = int(value) & 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


NUMBERS = "[0-9]+"
_WGMMA = re.compile(
    r"wgmma_m64n(\d+)k(\d+)_(\w+?)_(\w+?)_(\w+?)_(ss|rs)([01]*)((?:_h[0-9a-f]+)+)(?:_(add|maybe))?"
    r"(?:_(\d+))?"
)


def _wgmma_text(found: re.Match[str]) -> str:
    """Return the assembly of a product of a warpgroup, from the ISA."""
    n, k = int(found[1]), int(found[2])
    d, a, b = found[3], found[4], found[5]
    count = n // 2 // (2 if d == "f16" else 1)
    shared = found[6] == "ss"
    highs = found[8].split("_h")[1:]
    turns = int(found[10] or 1)
    each = 2 if shared else 5
    signs = "" if d == "s32" else ", 1, 1"
    flags = "".join(f", {flag}" for flag in found[7])
    first = f"%{count + turns * each}" if found[9] == "maybe" else str(int(found[9] == "add"))
    parts = []
    for turn in range(turns):
        at = count + turn * each
        made = ""
        if shared:
            made += f" .reg .b64 a; mov.b64 a, {{%{at}, 0x{highs[0]}}};"
        made += f" .reg .b64 b; mov.b64 b, {{%{at + each - 1}, 0x{highs[-1]}}};"
        left = "a" if shared else _list(at, 4)
        parts.append(
            f"{{ .reg .pred add;{made} setp.ne.b32 add, {1 if turn else first}, 0; "
            f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b} {_list(0, count)}, {left}, b, "
            f"add{signs}{flags}; }}"
        )
    return " ".join(parts)


def instruction(m: Machine, name: str) -> Instruction:
    """Return what a device function of a name is.

    Raises:
        TextError: nothing of that name is known.
    """
    none = lambda mask, *rest: None  # noqa: E731
    if asm := ptx_words.known(name):
        text, outputs, inputs = asm

        def compute(mask: Any, *values: Any) -> Any:
            found = ptx_words.run(text, outputs, inputs, values, m.threads)
            return found[0] if len(found) == 1 else found

        return Instruction(len(outputs), len(inputs), text.replace("$", "%"), compute)
    if found := re.fullmatch(r"red_(add|min|max)(?:_noftz)?_(f16x2|bf16x2|f32|f64|s32|u32)", name):
        rule, kind = found[1], found[2]
        text = f"red.relaxed.gpu.global.{name[4:].replace('_', '.')} [%0], %1;"
        return Instruction(0, 2, text, lambda k, *x: m.reduce(rule, kind, k, *x))
    if found := re.fullmatch(r"shfl_(?:idx|(bfly)_(\d+))_([rfd])", name):
        mode, lane = ("bfly", found[2]) if found[1] else ("idx", "%2")
        one = f"shfl.sync.{mode}.b32 {{0}}, {{1}}, {lane}, 31, 0xffffffff;"
        text = one.format("%0", "%1")
        if found[3] == "d":
            halves = " ".join(one.format(half, half) for half in "lh")
            text = f"{{ .reg .b32 l, h; mov.b64 {{l, h}}, %1; {halves} mov.b64 %0, {{l, h}}; }}"
        if not found[1]:
            return Instruction(1, 2, text, m.from_lane)
        other = np.arange(m.threads) ^ int(lane)
        return Instruction(1, 1, text, lambda mask, value: m.from_lane(mask, value, other))
    if name == "movmatrix_trans":
        text = "movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
        return Instruction(1, 1, text, m.transposed)
    if found := re.fullmatch(r"(ld|st)_(global|shared)(?:_v([24]))?_(u8|u16|u32|f32|f64)", name):
        count, kind = int(found[3] or 1), found[4]
        vector = f".v{count}" if count > 1 else ""
        if found[1] == "ld":
            into = _list(0, count) if count > 1 else "%0"
            text = f"ld.{found[2]}{vector}.{kind} {into}, [%{count}];"
            return Instruction(count, 1, text, lambda k, *x: m.load(kind, count, k, *x))
        source = _list(1, count) if count > 1 else "%1"
        text = f"st.{found[2]}{vector}.{kind} [%0], {source};"
        return Instruction(0, 1 + count, text, lambda k, *x: m.store(kind, count, k, *x))
    if found := re.fullmatch(r"(ld|st)matrix_x([124])(_trans)?(f?)", name):
        count, trans, floats = int(found[2]), bool(found[3]), bool(found[4])
        form = f"m8n8.x{count}{'.trans' * trans}.shared.b16"
        if found[1] == "ld":
            text = f"ldmatrix.sync.aligned.{form} {_list(0, count)}, [%{count}];"
            kind = np.float32 if floats else np.uint32
            do = lambda k, *x: m.load_matrices(count, trans, kind, k, *x)  # noqa: E731
            return Instruction(count, 1, text, do)
        text = f"stmatrix.sync.aligned.{form} [%0], {_list(1, count)};"
        return Instruction(0, 1 + count, text, lambda k, *x: m.store_matrices(trans, k, *x))
    if found := re.fullmatch(r"cp_async_(4|8|16)", name):
        size = int(found[1])
        cache = "cg" if size == 16 else "ca"
        text = f"cp.async.{cache}.shared.global [%0], [%1], {size};"
        return Instruction(0, 2, text, lambda k, *x: m.transfer(size, k, *x))
    if name == "cp_async_16_or_zero":
        text = "cp.async.cg.shared.global [%0], [%1], 16, %2;"
        return Instruction(0, 3, text, lambda k, *x: m.transfer(16, k, *x))
    if name == "cp_async_commit":
        return Instruction(0, 0, "cp.async.commit_group;", none)
    if found := re.fullmatch(r"cp_async_wait_(\d+)", name):
        return Instruction(0, 0, f"cp.async.wait_group {found[1]};", none)
    if found := re.fullmatch(r"mma_m16n8k(\d+)_(f16|bf16|tf32|s8|u8)(?:_(f16))?", name):
        k, a = int(found[1]), found[2]
        d = found[3] or ("s32" if a in ("s8", "u8") else "f32")
        bits = np.dtype(KINDS[a]).itemsize * 8
        na, nb, nd = 16 * k * bits // 1024, 8 * k * bits // 1024, 2 if d == "f16" else 4
        text = f"mma.sync.aligned.m16n8k{k}.row.col.{d}.{a}.{a}.{d} {_list(0, nd)}, "
        text += f"{_list(nd, na)}, {_list(nd + na, nb)}, {_list(0, nd)};"
        do = lambda mask, *x: m.mma(k, (d, a, a), mask, *x)  # noqa: E731
        return Instruction(nd, na + nb, text, do, True)
    if found := _WGMMA.fullmatch(name):
        shared = found[6] == "ss"
        highs = [int(each, 16) for each in found[8].split("_h")[1:]]
        flags = found[7] or ("00" if shared else "0")
        turns = int(found[10] or 1)
        kinds = (found[3], found[4], found[5])
        spec = (int(found[1]), int(found[2]), kinds, shared, flags, highs, found[9], turns)
        out = spec[0] // 2 // (2 if kinds[0] == "f16" else 1)
        ins = turns * (2 if shared else 5) + (found[9] == "maybe")
        do = lambda mask, *x: m.wgmma(spec, mask, *x)  # noqa: E731
        return Instruction(out, ins, _wgmma_text(found), do, found[9] is not None)
    if found := re.fullmatch(r"descriptor_([0-9a-f]+)", name):
        low = int(found[1], 16)
        text = f"shr.u32 %0, %1, 4; and.b32 %0, %0, 0x3fff; or.b32 %0, %0, {low:#x};"
        return Instruction(
            1, 1, text, lambda k, at: (np.asarray(at, dtype=np.int64) >> 4 & 0x3FFF) | low
        )
    if name == "same_in_warp":

        def first(mask: Any, word: Any) -> Any:
            return np.repeat(np.broadcast_to(word, (m.threads,))[::32], 32)

        return Instruction(1, 1, "shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;", first)
    if found := re.fullmatch(r"wgmma_wait_(\d+)((?:_[rf]\d+)*)", name):
        count = sum(int(each[1:]) for each in found[2].split("_") if each)
        text = f"wgmma.wait_group.sync.aligned {found[1]};"
        do = lambda mask, *x: x[0] if len(x) == 1 else x  # noqa: E731
        return Instruction(count, 0, text, do, True)
    plain = {
        "wgmma_fence": "wgmma.fence.sync.aligned;",
        "wgmma_commit": "wgmma.commit_group.sync.aligned;",
        "fence_proxy_async": "fence.proxy.async.shared::cta;",
        "mbarrier_init_fence": "fence.proxy.async.shared::cta;",
        "tma_store_commit": "cp.async.bulk.commit_group;",
    }
    if name in plain:
        return Instruction(0, 0, plain[name], none)
    if found := re.fullmatch(r"tma_store_wait_(\d+)", name):
        return Instruction(0, 0, f"cp.async.bulk.wait_group.read {found[1]};", none)
    if found := re.fullmatch(r"setmaxnreg_(inc|dec)_(\d+)", name):
        text = f"setmaxnreg.{found[1]}.sync.aligned.u32 {found[2]};"
        return Instruction(0, 0, text, none)
    if found := re.fullmatch(r"sync_warpgroup_(\d+)", name):
        return Instruction(0, 1, f"bar.sync %0, {found[1]};", none)
    if found := re.fullmatch(r"sync_(\d+)", name):
        return Instruction(0, 0, f"bar.sync 1, {found[1]};", none)
    if name == "prefetch_tensormap":
        return Instruction(0, 1, "prefetch.tensormap [%0];", none)
    if name == "mbarrier_init":
        return Instruction(0, 2, "mbarrier.init.shared::cta.b64 [%0], %1;", m.init)
    if name == "mbarrier_arrive":
        return Instruction(0, 1, "mbarrier.arrive.shared::cta.b64 _, [%0];", m.arrive)
    if name == "mbarrier_arrive_if":
        text = (
            "{ .reg .pred taking; setp.ne.u32 taking, %1, 0; "
            "@taking mbarrier.arrive.shared::cta.b64 _, [%0]; }"
        )
        return Instruction(0, 2, text, m.arrive)
    if name == "mbarrier_arrive_expect_tx":
        text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
        return Instruction(0, 2, text, m.expect)
    if name == "mbarrier_wait":
        text = (
            "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; "
            "@!done bra again; }"
        )
        return Instruction(0, 2, text, m.wait)
    if name == "tma_load":
        text = (
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%2, %3}], [%4];"
        )
        return Instruction(0, 5, text, m.tma_load)
    if name == "tma_store":
        text = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
        return Instruction(0, 4, text, m.tma_store)
    raise TextError(f"an instruction of no known form: {name}")


# -- from text to a function --------------------------------------------------------------------


def _and(mask: Any, test: Any) -> Any:
    """Return the threads of a mask where a test holds; None: all."""
    if np.ndim(test) == 0:
        if test:
            return mask
        return False
    if mask is not None:
        test = mask & test
    if test.all():
        return None
    return test if test.any() else False


def _select(mask: Any, new: Any, old: Any) -> Any:
    """Return new values in the threads of a mask."""
    if mask is None:
        return new
    new = np.asarray(new)
    if old is None:
        old = np.zeros((), dtype=new.dtype)
    old = np.asarray(old)
    if old.dtype != new.dtype and old.dtype.kind != new.dtype.kind:
        if (old == 0).all():
            old = old.astype(new.dtype)
        elif {old.dtype.kind, new.dtype.kind} == {"f", "u"}:
            raise TextError("a variable that is a word and a float")
    return np.where(mask, new, old)


class _Expression(ast.NodeTransformer):
    """Makes conditions elementwise, and gives calls of instructions their mask."""

    def __init__(self, known: set[str], mask: str) -> None:
        self.known, self.mask = known, mask

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        result = node.values[0]
        for value in node.values[1:]:
            kind = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
            result = ast.BinOp(result, kind, value)
        return result

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return ast.Call(ast.Name("_where"), [node.test, node.body, node.orelse], [])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in self.known:
            node.args.insert(0, ast.Name(self.mask))
        return node


@dataclass
class Compiled:
    """A text as a Python generator function, and the device functions that it calls."""

    run: Any
    parameters: list[str]
    called: set[str]


_PLAIN = {
    "cells_address", "shared_address", "uint8", "uint32", "uint64", "int32", "int64", "float32",
    "float64", "range", "int", "min", "max", "_where",
}  # fmt: skip


def compile_text(text: str) -> Compiled:
    """Compile the Python text of a kernel.

    Raises:
        TextError: a statement of no known form.
    """
    (function,) = ast.parse(text).body
    if not isinstance(function, ast.FunctionDef):
        raise TextError("one function")
    called = {
        node.func.id
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    } - _PLAIN
    parameters = [each.arg for each in function.args.args]
    names: dict[str, None] = {}
    lines: list[str] = []

    def expression(node: ast.expr, mask: str) -> str:
        tree = _Expression(called, mask).visit(node)
        return ast.unparse(ast.fix_missing_locations(tree))

    def block(body: Sequence[ast.stmt], depth: int, masks: int) -> None:
        pad, mask = "    " * depth, f"A{masks}"
        for st in body:
            if isinstance(st, ast.If):
                test = expression(st.test, mask)
                lines.append(f"{pad}T{masks} = {test}")
                lines.append(f"{pad}A{masks + 1} = _and({mask}, T{masks})")
                lines.append(f"{pad}if A{masks + 1} is not False:")
                block(st.body, depth + 1, masks + 1)
                if st.orelse:
                    lines.append(f"{pad}A{masks + 1} = _and({mask}, _not(T{masks}))")
                    lines.append(f"{pad}if A{masks + 1} is not False:")
                    block(st.orelse, depth + 1, masks + 1)
            elif isinstance(st, ast.For):
                if not isinstance(st.target, ast.Name):
                    raise TextError(ast.unparse(st))
                lines.append(f"{pad}for {st.target.id} in {expression(st.iter, mask)}:")
                block(st.body, depth + 1, masks)
            elif isinstance(st, ast.Assign):
                target = st.targets[0]
                value = expression(st.value, mask)
                if isinstance(target, ast.Tuple):
                    parts = [ast.unparse(each) for each in target.elts]
                    names.update(dict.fromkeys(parts))
                    lines.append(f"{pad}R = {value}")
                    lines.append(f"{pad}_same(R, {len(parts)})")
                    for at, part in enumerate(parts):
                        lines.append(f"{pad}{part} = _select({mask}, R[{at}], {part})")
                else:
                    name = ast.unparse(target)
                    names[name] = None
                    lines.append(f"{pad}{name} = _select({mask}, {value}, {name})")
            elif isinstance(st, ast.Expr) and isinstance(st.value, ast.Call):
                value = expression(st.value, mask)
                wait = value.startswith("mbarrier_wait(")
                lines.append(f"{pad}{'yield from ' * wait}{value}")
            elif isinstance(st, ast.Pass):
                lines.append(f"{pad}pass")
            else:
                raise TextError(f"a statement of no known form: {ast.unparse(st)}")
        if not body:
            lines.append(f"{pad}pass")

    block(function.body, 1, 0)
    head = [f"def kernel({', '.join([*parameters, 'cuda', 'F'])}):", "    A0 = None"]
    head += [f"    {name} = F[{name!r}]" for name in sorted(called)]
    head += [f"    {name} = None" for name in names]
    tail = ["    return", "    yield"]
    space: dict[str, Any] = {
        "_and": _and, "_select": _select, "_where": np.where, "_same": _same, "_not": _not,
        "cells_address": lambda x: x, "shared_address": lambda x: x, "int32": _integer,
        "int64": _integer, "uint64": _integer, "uint32": _word, "float32": np.float32,
        "float64": np.float64, "uint8": None,
    }  # fmt: skip
    exec(compile("\n".join([*head, *lines, *tail]), "<text>", "exec"), space)
    return Compiled(space["kernel"], parameters, called)


def _same(found: Any, count: int) -> None:
    if len(found) != count:
        raise TextError("another count of results")


def _not(test: Any) -> Any:
    return not test if np.ndim(test) == 0 else ~test


def _integer(value: Any) -> Any:
    return value if isinstance(value, int) else np.asarray(value).astype(np.int64)


def _word(value: Any) -> Any:
    if isinstance(value, int):
        return np.uint32(value & 0xFFFFFFFF)
    return np.asarray(value).astype(np.int64).astype(np.uint32)


# -- C++ ------------------------------------------------------------------------------------------

FUNCTION = re.compile(
    r"__device__ __forceinline__ void (\w+)\(\s*(.*?)\) \{\s*"
    r"asm(?: volatile)?\(\"(.*?)\"\s*:(.*?)\);\n\}",
    re.DOTALL,
)
_TYPE = r"(?:const )?(?:u?int\d+_t|int|unsigned|float|double|bool)"


def check_functions(source: str) -> dict[str, tuple[int, bool]]:
    """Compare every device function with the ISA; return how many references each takes first.

    Raises:
        TextError: assembly that differs, or operands in another order.
    """
    probe = Machine(32, [], {})
    found = {}
    for name, arguments, text, constraints in FUNCTION.findall(source):
        known = instruction(probe, name)
        names = [each.split()[-1] for each in arguments.split(",") if each.strip()]
        references = sum("&" in each for each in arguments.split(","))
        got = re.sub(r"\s+", " ", text).strip()
        if known.text is not None and got != known.text:
            raise TextError(f"{name}: the text has {got!r}; the ISA says {known.text!r}")
        if re.findall(r'"[=+]?&?\w"\((\w+)\)', constraints) != names:
            raise TextError(f"{name}: operands in another order: {constraints}")
        if (references, len(names) - references) != (known.out, known.ins):
            raise TextError(f"{name}: takes {known.out} and {known.ins}; got {arguments}")
        if known.out and ('"+' in constraints) != known.in_place:
            raise TextError(f"{name}: in place or not: {constraints}")
        found[name] = (references, known.in_place)
    return found


def _expression(text: str) -> str:
    """Turn a C++ expression into a Python one."""
    text = re.sub(r"static_cast<(\w+?)(?:_t)?>", lambda f: {"int": "int64"}.get(f[1], f[1]), text)
    text = re.sub(r"\((u?int\d+)_t\)", r"\1", text)
    text = re.sub(r"\bint\(", "int32(", text)
    text = re.sub(r"\b(\d+)(?:u|U)\b", r"uint32(\1)", text)
    text = re.sub(r"\b(\d+)(?:ll|LL|ull|ULL)\b", r"\1", text)
    text = re.sub(r"\b(\d+\.\d+)f\b", r"float32(\1)", text)
    text = text.replace(" / ", " // ").replace("&&", " and ").replace("||", " or ")
    if found := re.fullmatch(r"\((.*) \? (.*) : (.*)\)", text):
        return f"({found[2]} if {found[1]} else {found[3]})"
    return text


def _arguments(text: str) -> list[str]:
    """Split arguments at the commas that stand outside of parentheses."""
    found, depth, last = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and not depth:
            found.append(text[last:at].strip())
            last = at + 1
    if text[last:].strip():
        found.append(text[last:].strip())
    return found


def python_of(source: str) -> str:
    """Translate a CUDA C++ kernel, line by line.

    Raises:
        TextError: a line of no known form, or a device function that is not as the ISA says.
    """
    functions = check_functions(source)
    head, body = source.split('extern "C" __global__ ')[1].split(" {\n", 1)
    inside = head[head.index("(", head.rindex("\n")) + 1 : head.rindex(")")]
    parameters = [each.split()[-1].lstrip("*") for each in inside.split(",")]
    lines = [f"def kernel({', '.join(parameters)}):"]
    depth = 1

    def put(text: str) -> None:
        lines.append("  " * depth + text)

    for line in map(str.strip, body.rstrip().removesuffix("}").splitlines()):
        line = re.sub(rf"^{_TYPE} t\d+(?:, t\d+)*; (?=\w)", "", line)
        if not line or line.startswith("//"):
            continue
        if line == "}":
            put("pass")
            depth -= 1
        elif line == "} else {":
            put("pass")
            depth -= 1
            put("else:")
            depth += 1
        elif found := re.fullmatch(r"if \((.*)\) \{", line):
            put(f"if {_expression(found[1])}:")
            depth += 1
        elif found := re.fullmatch(
            rf"for \({_TYPE} (\w+) = 0; \1 < (.*?); (?:\+\+\1|\1\+\+)\) \{{", line
        ):
            put(f"for {found[1]} in range({_expression(found[2])}):")
            depth += 1
        elif re.fullmatch(rf"{_TYPE} \w+(?:, \w+)*;", line) or re.fullmatch(
            r"__sync(?:threads|warp)\(\);", line
        ):
            continue
        elif "__shared__" in line:
            put("shared = 0")
        elif "__cvta_generic_to_shared" in line:
            put("base = 0")
        elif re.fullmatch(rf"{_TYPE} thread = threadIdx\.x;", line):
            put("thread = cuda.threadIdx.x")
        elif re.fullmatch(rf"{_TYPE} bx = blockIdx\.x, by = blockIdx\.y;", line):
            put("bx, by = cuda.blockIdx.x, cuda.blockIdx.y")
        elif found := re.fullmatch(r".* (\w+) = reinterpret_cast<uint64_t>\((\w+)\);", line):
            put(f"{found[1]} = cells_address({found[2]})")
        elif found := re.fullmatch(rf"(?:{_TYPE} )?((?:\w+ = [^,;]+)(?:, \w+ = [^,;]+)*);", line):
            kind = line.split()[0]
            for part in found[1].split(", "):
                name, value = part.split(" = ", 1)
                zeros = {"uint32_t": "uint32(0)", "float": "float32(0)", "double": "float64(0)"}
                value = zeros.get(kind, value) if value == "0" else value
                put(f"{name} = {_expression(value)}")
        elif found := re.fullmatch(r"(\w+) = (.*);", line):
            put(f"{found[1]} = {_expression(found[2])}")
        elif (found := re.fullmatch(r"(\w+)\((.*)\);", line)) and found[1] in functions:
            references, in_place = functions[found[1]]
            arguments = _arguments(found[2])
            into = arguments[:references]
            rest = [_expression(each) for each in arguments[references:]]
            if in_place:
                rest += into
            result = f"{', '.join(into)} = " if into else ""
            put(f"{result}{found[1]}({', '.join(rest)})")
        else:
            raise TextError(f"a line of no known form: {line}")
    return "\n".join(lines)


# -- launching -----------------------------------------------------------------------------------


def run(
    compiled: Compiled,
    threads: int,
    launched: int,
    grid: int,
    memory: Sequence[Array],
    scalars: Sequence[Any],
    maps: Mapping[int, tuple[int, int, int, int, int, int]],
) -> None:
    """Launch a text: parameters in place.

    Args:
        compiled: the text.
        threads: that compute.
        launched: with those that fill.
        grid: CTAs along x.
        memory: each parameter's bytes.
        scalars: what follows the parameters.
        maps: parameter number -> rows, columns, swizzle of a box; bytes of an element; extents.

    Raises:
        TextError: it does what no machine would, or waits forever.
    """
    roles = [(0, threads)] + ([(threads, launched - threads)] if launched > threads else [])
    pointers = [(at + 1) * SPACING for at in range(len(memory))]
    cells = np.full(SHARED, 0xA5, dtype=np.uint8)
    for cta in range(grid):
        cells[:] = 0xA5
        barriers: dict[int, list[int]] = {}
        machines = [Machine(n, list(memory), maps, cells, barriers, 0, first) for first, n in roles]
        running: list[tuple[Machine, Any]] = []
        for m in machines:
            place = SimpleNamespace(
                threadIdx=SimpleNamespace(x=np.arange(m.offset, m.offset + m.threads)),
                blockIdx=SimpleNamespace(x=cta, y=0),
                syncthreads=lambda: None, syncwarp=lambda: None,
                shared=SimpleNamespace(array=lambda *x, **y: 0),
            )  # fmt: skip
            functions = {name: instruction(m, name).do for name in compiled.called}
            running.append((m, compiled.run(*pointers, *scalars, place, functions)))
        while running:
            before = sum(m.progress for m in machines)
            left = [(m, steps) for m, steps in running if next(steps, True) is None]
            if left == running and before == sum(m.progress for m in machines):
                raise TextError("waits forever")
            running = left
