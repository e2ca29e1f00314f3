"""A generator of whole kernels, right by construction: ``generate(seed)``.

It strings tile primitives together: what a register tile or a shared tile holds is known, so each
next statement reads what is there. Barriers come from :mod:`tests.fuzz.barriers`; pipelines (rings,
producers, hand-overs between warps) carry their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.barriers import Placer
from tests.fuzz.computing import Computing
from tests.fuzz.expressions import Node
from tests.fuzz.ir import (
    BITS,
    NUMPY,
    Bits,
    Buf,
    Ex,
    Part,
    Program,
    Reg,
    RejectError,
    St,
    holders,
    meaning,
    statements,
)

Place = tuple[str, int]

SHAPES = ((16, 16), (32, 8), (16, 32), (32, 16), (8, 32), (64, 8), (8, 16), (32, 32))
CASTS = (
    "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "float8_e4m3fn",
    "float8_e5m2",
)  # fmt: skip
TYPES = ("float32", "float32", "float16", "float16", "bfloat16", "int32", "int8", "uint8")


def _bits(text: str) -> tuple[Place, ...]:
    return tuple((each[0], int(each[1:])) for each in text.split())


# Fragments of mma.sync and wgmma by bits of (row, column), from the tables of the PTX ISA:
# operand -> (bits of the row, bits of the column), the highest first.
MMA: dict[str, dict[str, tuple[str, str]]] = {
    "16": {
        "A": ("r1 l4 l3 l2", "r2 l1 l0 r0"),
        "B": ("r1 l1 l0 r0", "l4 l3 l2"),
        "D": ("r1 l4 l3 l2", "l1 l0 r0"),
    },
    "32": {
        "A": ("r0 l4 l3 l2", "r1 l1 l0"),
        "B": ("r0 l1 l0", "l4 l3 l2"),
        "D": ("r1 l4 l3 l2", "l1 l0 r0"),
    },
    "8": {
        "A": ("r2 l4 l3 l2", "r3 l1 l0 r1 r0"),
        "B": ("r2 l1 l0 r1 r0", "l4 l3 l2"),
        "D": ("r1 l4 l3 l2", "l1 l0 r0"),
    },
}
GEMMS = (
    ("float16", "float32"), ("float16", "float16"), ("bfloat16", "float32"),
    ("tfloat32", "float32"), ("int8", "int32"), ("uint8", "int32"),
)  # fmt: skip
WGMMAS = (
    ("float16", "float32"), ("float16", "float16"), ("bfloat16", "float32"), ("int8", "int32")
)  # fmt: skip


def _log(value: int) -> int:
    return value.bit_length() - 1


class Maker:
    """Makes one program."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.program = Program(seed, self.rng.choice((1, 1, 1, 2, 2, 2, 4, 4, 8)))
        self.bodies: list[list[St]] = [self.program.body]
        self.loops: list[tuple[str, int]] = []
        self.tiles: list[str] = []  # register tiles that hold something
        self.shared: list[Reg] = []  # shared tiles that do
        self.counts: dict[str, int] = {}
        self.group = 0  # cp.async copies since the last commit
        self.aliased: dict[str, str] = {}
        self.loose: set[str] = set()  # buffers that may hold other numbers than small integers

    # -- names, buffers ----------------------------------------------------------------------------

    def name(self, prefix: str) -> str:
        """Return a new name."""
        self.counts[prefix] = self.counts.get(prefix, 0) + 1
        return f"{prefix}{self.counts[prefix] - 1}"

    def variable(self) -> str:
        """Return a new loop variable: letters alone."""
        self.counts["loop"] = self.counts.get("loop", 0) + 1
        return "xyzuvwijkn"[self.counts["loop"] - 1]

    def add(self, buf: Buf) -> Buf:
        """Declare a buffer."""
        self.program.bufs[buf.name] = buf
        return buf

    def emit(self, op: str, dst: Reg | None = None, src: Reg | None = None, **args: Any) -> St:
        """Add a statement."""
        st = St(op, dst, src, args)
        self.bodies[-1].append(st)
        if src is not None and dst is not None and src.buf in self.loose:
            self.loose.add(dst.buf)
        return st

    def chance(self, p: float) -> bool:
        """Throw a coin."""
        return self.rng.random() < p

    def whole(self, name: str) -> Reg:
        """Return a whole buffer."""
        shape = self.program.bufs[name].shape
        return Reg(name, tuple(Ex() for _ in shape), shape)

    def give(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        """Give a parameter small integers."""
        low, seed = 0 if dtype == "uint8" else -3, self.rng.getrandbits(24)
        numbers = np.random.default_rng(seed).integers(low, 4, shape)
        self.program.seeds[name] = (seed, low)
        self.program.given[name] = numbers.astype(NUMPY[dtype])

    def bounds(self, shape: tuple[int, int]) -> tuple[str | None, str | None]:
        """Declare scalars that end a matrix before its last row or column."""
        found: list[str | None] = []
        for extent in shape:
            name = None
            if self.chance(0.6):
                name = f"end{_letter(len(self.program.scalars))}"
                self.program.scalars[name] = ("s32", self.rng.randrange(1, extent + 1))
            found.append(name)
        return found[0], found[1]

    def param(
        self,
        shape: tuple[int, int],
        dtype: str,
        out: bool,
        loops: bool = True,
        bounded: bool = False,
    ) -> Reg:
        """Declare a parameter that has a tile for each step of the loops; return this step's tile.

        The tile may lie inside a larger matrix, whose layout may be strided.
        """
        rng = self.rng
        rows, cols = shape
        begin = [Ex(), Ex()]
        size = [rows, cols]
        used = [each for each in self.loops if loops and (out or self.chance(0.8))]
        for var, extent in used:
            dim = 0 if self.chance(0.6) else 1
            step: str | Part = var
            if self.chance(0.3):
                step = Part(var, rng.choice(("//", "%")), rng.choice((2, 3)))
                extent = -(-extent // step.by) if step.sign == "//" else min(step.by, extent)
            begin[dim] = begin[dim] + Ex(0, ((step, size[dim]),))
            size[dim] *= extent
        if self.chance(0.2):
            dim = rng.randrange(2)
            more = shape[dim] if self.chance(0.7) else 8
            begin[dim] = begin[dim] + more
            size[dim] += more
        if self.program.grid > 1:
            block = rng.choice(("cta", "k.block[0]"))
            begin[0] = begin[0] + Ex(0, ((block, size[0]),))
            size[0] *= self.program.grid
        layout, strides = "", None
        style = rng.random()
        if style < 0.1:
            strides = (1, size[0])
        elif style < 0.2:
            strides = (size[1] + 16, 1)
        if strides:
            layout = f"S[({size[0]},{size[1]}):({strides[0]},{strides[1]})]"
        name = self.name("o" if out else "a")
        full = (size[0], size[1])
        bounds = self.bounds(full) if bounded and self.chance(0.08) else None
        self.add(Buf(name, "global", full, dtype, None, layout, None, strides, bounds))
        self.give(name, full, dtype)
        return Reg(name, tuple(begin), shape)

    def layout(self, shape: tuple[int, int], dtype: str) -> Bits:
        """Return a random register layout of a tile."""
        rng, wbits = self.rng, _log(self.program.warps)
        count = _log(shape[0] * shape[1])
        threads: list[Place] = [("l", i) for i in range(5)] + [("w", i) for i in range(wbits)]
        own = count - len(threads)
        style = rng.random()
        copies: list[Place] = []
        want = rng.choice((0, 0, 1, 1, 2, 3)) if own >= 0 else 0
        while own < want or own < 0:
            free = [each for each in threads if each[0] == "w" or style < 0.15]
            if not free and own >= 0:
                break
            kind = rng.choice(free or threads)
            threads.remove(kind)
            copies.append(kind)
            own += 1
        narrow = _log(max(1, 32 // BITS[dtype]))
        low = min(own, narrow) if self.chance(0.8) else 0
        positions = list(range(count))  # from the lowest bit
        registers = positions[:low]
        rest = positions[low:]
        if style < 0.5:  # blocked: each axis in one or two runs
            threads.sort(key=lambda each: (each[0] == "w", each[1]))
            start = rng.randrange(len(rest) - len(threads) + 1) if rest else 0
            chosen = rest[start : start + len(threads)]
            order = threads
        elif style < 0.7:  # warps over the highest bits
            threads.sort(key=lambda each: (each[0] == "w", each[1]))
            lanes = [each for each in threads if each[0] == "l"]
            warps = [each for each in threads if each[0] == "w"]
            top = rest[len(rest) - len(warps) :]
            below = rest[: len(rest) - len(warps)]
            chosen = sorted(rng.sample(below, len(lanes))) + top
            order = lanes + warps
        else:
            chosen = rng.sample(rest, len(threads))
            order = threads
            rng.shuffle(order)
        table: dict[int, Place] = dict(zip(chosen, order, strict=True))
        left = registers + [each for each in rest if each not in table]
        numbers = list(range(len(left)))
        if self.chance(0.2):
            tail = numbers[low:]
            rng.shuffle(tail)
            numbers[low:] = tail
        for at, number in zip(left, numbers, strict=True):
            table[at] = ("r", number)
        places = tuple(table[at] for at in reversed(positions))
        spelled = "tx" if self.chance(0.15) else "laneid"
        return Bits(places, tuple(copies), spelled)

    def tile(self, shape: tuple[int, int], dtype: str, bits: Bits | None = None) -> str:
        """Allocate a register tile."""
        name = self.name("r")
        bits = bits or self.layout(shape, dtype)
        self.add(Buf(name, "local", shape, dtype, bits))
        return name

    def swizzled(self, shape: tuple[int, int], dtype: str, period: int) -> tuple[str, Any]:
        """Return a layout in blocks of columns of a period of bytes, XOR-swizzled by 16 bytes."""
        unit = 128 // BITS[dtype]
        width = min(shape[1], 8 * period // BITS[dtype])
        rows, cols = shape
        numbers = (_log(unit), _log(width // unit), 3)
        text = (
            f"S[({rows},{cols // width},{width}):({width},{rows * width},1)]"
            if cols > width
            else f"S[({rows},{cols}):({cols},1)]"
        )
        return text, numbers

    def shared_tile(self, shape: tuple[int, int], dtype: str, period: int = 0) -> str:
        """Allocate a shared tile with a random layout, or the one of a swizzle's period."""
        rng = self.rng
        name = self.name("s")
        rows, cols = shape
        bytes_of = cols * BITS[dtype] // 8
        style = rng.random()
        layout, swizzle = "", None
        if period or (style < 0.35 and bytes_of >= 32 and rows >= 8):
            layout, swizzle = self.swizzled(shape, dtype, period or rng.choice((32, 64, 128)))
            if not period and swizzle[1] < 1:
                layout, swizzle = "", None
        elif style < 0.45:
            layout = f"S[({rows},{cols}):({cols + 128 // BITS[dtype]},1)]"
        elif style < 0.55:
            layout = f"S[({rows},{cols}):(1,{rows})]"
        self.add(Buf(name, "shared", shape, dtype, None, layout, swizzle))
        return name

    # -- segments ----------------------------------------------------------------------------------

    def pick(self, test: Callable[[Buf], bool] = lambda buf: True) -> str | None:
        """Return a register tile that holds something."""
        fitting = [name for name in self.tiles if test(self.program.bufs[name])]
        return self.rng.choice(fitting) if fitting else None

    def shape(self) -> tuple[int, int]:
        """Return a shape that all threads can share."""
        fitting = [s for s in SHAPES if s[0] * s[1] >= 8 * self.program.warps]
        return self.rng.choice(fitting)

    def load(self, shape: Any = None, dtype: str | None = None, bits: Bits | None = None) -> str:
        """Load a tile from a parameter."""
        shape = shape or self.shape()
        dtype = dtype or self.rng.choice(TYPES)
        name = self.tile(shape, dtype, bits)
        self.emit("copy", self.whole(name), self.param(shape, dtype, False, bounded=True))
        self.tiles.append(name)
        return name

    def part(self, name: str) -> Reg:
        """Return a random box of a tile: rows, halves, blocks, mostly aligned."""
        rng = self.rng
        shape = self.program.bufs[name].shape
        begin, size = [], []
        for extent in shape:
            style = rng.random()
            if style < 0.4 or extent == 1:
                begin.append(0)
                size.append(extent)
            elif style < 0.96:
                n = 1 << rng.randrange(_log(extent) + 1)
                begin.append(n * rng.randrange(extent // n))
                size.append(n)
            else:
                n = rng.randrange(1, extent + 1)
                begin.append(rng.randrange(extent - n + 1))
                size.append(n)
        return Reg(name, tuple(map(Ex, begin)), (size[0], size[1]))

    def of_part(self, part: Reg, outer: Reg) -> Reg:
        """Return the box of a region that lies where a box of a whole tile does."""
        begin = tuple(o + p.const for o, p in zip(outer.begin, part.begin, strict=True))
        return Reg(outer.buf, begin, part.size)

    def reload(self) -> None:
        """Load a part of a tile anew."""
        name = self.pick()
        if name is None:
            return
        buf, part = self.program.bufs[name], self.part(name)
        given = self.param((buf.shape[0], buf.shape[1]), buf.dtype, False)
        self.emit("copy", part, self.of_part(part, given))

    def zero(self) -> None:
        """Set a tile, or a part of it, to zero."""
        name = self.pick()
        if name is not None:
            self.emit("zero", self.part(name) if self.chance(0.5) else self.whole(name))

    def cast(self) -> None:
        """Cast a tile to another type, in a layout of its own with the same elements."""
        name = self.pick(lambda b: b.dtype in CASTS)
        if name is None or self.chance(0.3):
            name = self.load(None, self.rng.choice(CASTS))
        buf = self.program.bufs[name]
        into = self.rng.choice([each for each in CASTS if each != buf.dtype])
        bits = buf.bits
        assert bits is not None
        other = self.tile(buf.shape, into, bits)  # type: ignore[arg-type]
        parts = [self.whole(other), *([self.part(other)] if self.chance(0.3) else [])]
        for part in parts:
            source = Node("tile", buf.dtype, (self.of_part(part, self.whole(name)),))
            self.emit("assign", part, value=Node("cast", into, (source,)))
        if name in self.loose:
            self.loose.add(other)
        self.tiles.append(other)

    def dispatch(self) -> str | None:
        """Return a variant to ask for, or none."""
        return "vec_auto" if self.chance(0.4) else None

    def through_shared(self) -> None:
        """Let a tile go through shared memory to another layout."""
        name = self.pick() or self.load()
        buf = self.program.bufs[name]
        shape = (buf.shape[0], buf.shape[1])
        room = [
            r.buf for r in self.shared
            if self.program.bufs[r.buf].shape == shape
            and self.program.bufs[r.buf].dtype == buf.dtype
            and self.program.bufs[r.buf].name not in self.aliased
        ]  # fmt: skip
        tile = (
            self.rng.choice(room)
            if room and self.chance(0.4)
            else self.shared_tile(shape, buf.dtype)
        )
        self.emit("copy", self.whole(tile), self.whole(name), dispatch=self.dispatch())
        if all(r.buf != tile for r in self.shared):
            self.shared.append(self.whole(tile))
        if self.chance(0.8):
            self.from_shared(tile)

    def from_shared(self, tile: str, bits: Bits | None = None) -> str:
        """Load a shared tile to registers."""
        buf = self.program.bufs[tile]
        shape = (buf.shape[0], buf.shape[1])
        same = self.pick(lambda b: b.shape == shape and b.dtype == buf.dtype)
        if bits is None and same is not None and self.chance(0.4):
            bits = self.program.bufs[same].bits
        name = self.tile(shape, buf.dtype, bits)
        self.emit("copy", self.whole(name), self.whole(tile), dispatch=self.dispatch())
        self.tiles.append(name)
        if self.chance(0.2):
            part = self.part(name)
            here = self.of_part(part, self.whole(tile))
            self.emit("copy", part, here, dispatch=self.dispatch())
        return name

    def to_shared(self, how: str = "") -> str:
        """Copy a parameter to a shared tile: by all threads, by cp.async, or in bulk."""
        how = how or self.rng.choice(("threads", "cp", "cp", "bulk"))
        if how == "bulk":
            return self.bulk()
        dtype = self.rng.choice(("float16", "float32", "bfloat16", "int8"))
        shape = self.shape()
        if shape[1] * BITS[dtype] // 8 < 16:
            shape = (8, 32)
        tile = self.shared_tile(shape, dtype)
        if how == "cp" and self.program.bufs[tile].layout.endswith(f"(1,{shape[0]})]"):
            self.program.bufs[tile] = Buf(tile, "shared", shape, dtype)
        given = self.param(shape, dtype, False)
        if how == "cp":
            old = self.program.bufs[given.buf]
            self.program.bufs[given.buf] = Buf(given.buf, "global", old.shape, dtype)
        self.emit("copy", self.whole(tile), given, asynchronous=how == "cp")
        if how == "cp":
            self.group += 1
            if self.chance(0.5):
                self.commit()
        self.shared.append(self.whole(tile))
        return tile

    def commit(self) -> None:
        """Close the group of cp.async."""
        if self.group:
            self.emit("commit", of="copy")
        self.group = 0

    def count(self) -> Ex:
        """Return how often a statement here has run before, as an expression of the loops."""
        count = Ex()
        for var, extent in self.loops:
            count = Ex(count.const * extent, tuple((v, c * extent) for v, c in count.terms))
            count = count + Ex(0, ((var, 1),))
        return count

    def bulk_tile(self) -> tuple[str, tuple[int, int], str, int]:
        """Allocate a shared tile as the copy engine fills it; return name, shape, type, period."""
        dtype = self.rng.choice(("float16", "float32", "bfloat16"))
        period = self.rng.choice((32, 64, 128))
        cols = 8 * period // BITS[dtype] * self.rng.choice((1, 1, 2))
        rows = {32: 32, 64: 16, 128: 8}[period] * self.rng.choice((1, 1, 2))
        shape = (rows, cols)
        return self.shared_tile(shape, dtype, period), shape, dtype, period

    def bulk(self) -> str:
        """Fill a shared tile in bulk."""
        tile, shape, dtype, _ = self.bulk_tile()
        given = self.param(shape, dtype, False)
        old = self.program.bufs[given.buf]
        self.program.bufs[given.buf] = Buf(given.buf, "global", old.shape, dtype)
        name = f"tma{_letter(len(self.program.barriers))}"
        self.program.barriers[name] = (1, 1)
        args = {"barrier": name, "slot": 0, "parity": self.count()}
        self.emit("tma_load", copies=[(self.whole(tile), given)], **args)
        self.aliased[tile] = "bulk"
        self.shared.append(self.whole(tile))
        return tile

    def store(self, name: str | None = None) -> None:
        """Store a tile, or parts of it, to a parameter."""
        name = name or self.pick()
        if name is None:
            return
        buf = self.program.bufs[name]
        out = self.param((buf.shape[0], buf.shape[1]), buf.dtype, True, bounded=True)
        if self.chance(0.65):
            self.emit("copy", out, self.whole(name))
            return
        for _ in range(self.rng.choice((1, 1, 2))):
            part = self.part(name)
            self.emit("copy", self.of_part(part, out), part)

    def from_shared_to_global(self) -> None:
        """Copy a shared tile to a parameter by all threads."""
        if not self.shared:
            return
        tile = self.rng.choice(self.shared)
        buf = self.program.bufs[tile.buf]
        out = self.param((buf.shape[0], buf.shape[1]), buf.dtype, True)
        self.emit("copy", out, tile)

    def between_shared(self) -> None:
        """Copy a shared tile to another."""
        if not self.shared:
            return
        tile = self.rng.choice(self.shared)
        buf = self.program.bufs[tile.buf]
        other = self.shared_tile((buf.shape[0], buf.shape[1]), buf.dtype)
        self.emit("copy", self.whole(other), tile)
        self.shared.append(self.whole(other))

    def drain(self) -> None:
        """Store a swizzled shared tile in bulk; needs warpgroups."""
        if self.program.warps % 4:
            return
        groups = self.program.warps // 4
        dtype = self.rng.choice(("float16", "float32", "bfloat16"))
        period = self.rng.choice((32, 64, 128))
        cols = 8 * period // BITS[dtype]
        rows = {32: 32, 64: 16, 128: 8}[period] * groups
        if rows * cols < 32 * self.program.warps:
            rows *= 2
        name = self.load((rows, cols), dtype)
        tile = self.shared_tile((rows, cols), dtype, period)
        self.aliased[tile] = "bulk"
        self.emit("copy", self.whole(tile), self.whole(name), dispatch=self.dispatch())
        out = self.param((rows, cols), dtype, True)
        old = self.program.bufs[out.buf]
        self.program.bufs[out.buf] = Buf(out.buf, "global", old.shape, dtype)
        self.emit("tma_store", copies=[(out, self.whole(tile))])
        self.shared.append(self.whole(tile))

    def branch(self) -> None:
        """Let some warps or lanes alone work on a tile."""
        name = self.pick()
        if name is None:
            return
        buf, warps = self.program.bufs[name], self.program.warps
        bits = buf.bits
        assert bits is not None
        if any(kind == "w" for kind, _ in bits.copies) or (bits.copies and self.chance(1.0)):
            return
        number = "warp" if warps > 1 and self.chance(0.7) else "lane"
        extent = warps if number == "warp" else 32
        low = self.rng.randrange(extent)
        high = self.rng.randrange(low, extent) + 1
        st = self.emit("when", number=number, low=low, high=None if high == extent else high)
        st.args["compared"] = self.chance(0.5)
        if not low and high == extent:
            st.args["high"] = extent
        thread = np.arange(self.program.threads)
        value = thread // 32 if number == "warp" else thread % 32
        active = (value >= low) & (value < high)
        held = holders(bits, buf.shape, self.program.threads)[active].any(axis=0)
        self.bodies.append(st.body)
        for _ in range(self.rng.choice((1, 1, 2))):
            part = self.held_part(name, held)
            if part is None:
                break
            here = self.param((buf.shape[0], buf.shape[1]), buf.dtype, True)
            if self.chance(0.5):
                given = self.param((buf.shape[0], buf.shape[1]), buf.dtype, False)
                self.emit("copy", part, self.of_part(part, given))
            self.emit("copy", self.of_part(part, here), part)
        self.bodies.pop()
        if not st.body:
            self.bodies[-1].pop()

    def held_part(self, name: str, held: Any) -> Reg | None:
        """Return a box of a tile all of which some threads hold; the largest of some tries."""
        best = None
        for _ in range(25):
            part = self.part(name)
            if held[part.slices({})].all() and (
                best is None or np.prod(part.size) > np.prod(best.size)
            ):
                best = part
        return best

    def compute(self) -> None:
        """Assign expressions to tiles."""
        Computing(self).compute()

    # -- products ----------------------------------------------------------------------------------

    def fragments(self, kind: str, grow: tuple[list[str], list[str], list[str]]) -> dict[str, Bits]:
        """Return the layouts of A, B and D, more rows, columns and depth in front.

        ``grow``: for M, N and K, "w" or "r" for each further bit, the highest first.
        """
        found = {}
        warp_of: dict[tuple[int, int], int] = {}
        number = 0
        for dim in (0, 1):
            for at in range(len(grow[dim]) - 1, -1, -1):
                if grow[dim][at] == "w":
                    warp_of[dim, at] = number
                    number += 1
        for role, dims in (("A", (0, 2)), ("B", (2, 1)), ("D", (0, 1))):
            rows, cols = (_bits(text) for text in MMA[kind][role])
            register = 1 + max(b for k, b in (*rows, *cols) if k == "r")
            made = []
            for dim, own in zip(dims, (rows, cols), strict=True):
                front: list[Place] = []
                for at in range(len(grow[dim]) - 1, -1, -1):
                    if grow[dim][at] == "w":
                        front.insert(0, ("w", warp_of[dim, at]))
                    else:
                        front.insert(0, ("r", register))
                        register += 1
                made += [*front, *own]
            here = {b for k, b in made if k == "w"}
            copies = tuple(("w", b) for b in range(_log(self.program.warps)) if b not in here)
            found[role] = Bits(tuple(made), copies, said=False)
        return found

    def gemm(self, accumulate: str | None = None) -> str | None:
        """Multiply: operands come from parameters or through shared memory."""
        rng = self.rng
        dtype, out = rng.choice(GEMMS)
        kind = str(BITS[dtype])
        wbits = _log(self.program.warps)
        grow: tuple[list[str], list[str], list[str]] = ([], [], [])
        for _ in range(wbits):
            grow[rng.randrange(2)].append("w")
        for dim in range(3):
            if self.chance(0.2):
                grow[dim].append("r")
            rng.shuffle(grow[dim])
        bits = self.fragments(kind, grow)
        m, n = 16 << len(grow[0]), 8 << len(grow[1])
        k = {"16": 16, "32": 8, "8": 32}[kind] << len(grow[2])
        d = self.tile((m, n), out, bits["D"])
        beta = self.chance(0.6)
        before = len(self.bodies) - 1
        loop = None
        if len(self.loops) < 2 and self.chance(0.4):
            loop = self.open_loop(rng.choice((2, 3)), False)
        if loop is not None:
            self.bodies[before].insert(-1, St("zero", self.whole(d)))
            beta = True
        elif beta:
            if self.chance(0.5) and out != "int32":
                self.emit("copy", self.whole(d), self.param((m, n), out, False))
            else:
                self.emit("zero", self.whole(d))
        operands = []
        for role, shape in (("A", (m, k)), ("B", (k, n))):
            name = self.tile(shape, dtype, bits[role])
            way = rng.random()
            if way < 0.35:
                self.emit("copy", self.whole(name), self.param(shape, dtype, False))
            else:
                flip = False
                tile = self.shared_tile(shape, dtype)
                given = self.param(shape, dtype, False)
                cp = way < 0.65 and shape[1] * BITS[dtype] >= 128
                if cp:
                    old = self.program.bufs[given.buf]
                    self.program.bufs[given.buf] = Buf(given.buf, "global", old.shape, dtype)
                    if self.program.bufs[tile].layout.endswith(f"(1,{shape[0]})]"):
                        self.program.bufs[tile] = Buf(tile, "shared", shape, dtype)
                self.emit("copy", self.whole(tile), given, asynchronous=cp)
                self.group += cp
                self.commit()
                if not flip:
                    self.emit("copy", self.whole(name), self.whole(tile), dispatch=self.dispatch())
            operands.append(self.whole(name))
        named = "mma.sync*" if out == "float16" else None
        self.emit("gemm", self.whole(d), A=operands[0], B=operands[1], beta=beta, dispatch=named)
        if loop is not None:
            self.close_loop()
        self.tiles.append(d)
        return d

    def wgmma(self) -> None:
        """Multiply asynchronously: operands come to shared memory by threads, cp.async or bulk."""
        rng = self.rng
        if self.program.warps % 4:
            return
        groups = self.program.warps // 4
        dtype, out = rng.choice(WGMMAS)
        m, n = 64 * groups, rng.choice((8, 16))
        depth = 256 // BITS[dtype]
        period = rng.choice((32, 64))
        k = max(depth, 8 * period // BITS[dtype])
        rows = _bits("r1 l4 l3 l2")
        warp = [("w", b) for b in range(_log(self.program.warps) - 1, -1, -1)]
        cols = [("r", 2 + b) for b in range(_log(n) - 4, -1, -1)] + list(_bits("l1 l0 r0"))
        d = self.tile((m, n), out, Bits((*warp, *rows, *cols)))
        loop = None
        accum: Any = False
        if len(self.loops) < 1 and self.chance(0.4):
            loop = self.open_loop(2, False)
            accum = Ex(0, ((self.loops[-1][0], 1),))
        operands = []
        cp = False
        wide = BITS[dtype] == 16
        flip_a, flip_b = wide and self.chance(0.3), wide and n == 16 and self.chance(0.3)
        held = wide and k == 16 and not flip_a and self.chance(0.4)
        shapes = ((k, m) if flip_a else (m, k), (k, n) if flip_b else (n, k))
        for role, shape in zip("AB", shapes, strict=True):
            if role == "A" and held:
                bits = Bits((*warp, *_bits("r1 l4 l3 l2 r2 l1 l0 r0")))
                name = self.tile(shape, dtype, bits)
                self.emit("copy", self.whole(name), self.param(shape, dtype, False))
                operands.append(self.whole(name))
                continue
            own = min(128, shape[1] * BITS[dtype] // 8)
            tile = self.shared_tile(shape, dtype, own)
            self.aliased[tile] = "wgmma"
            given = self.param(shape, dtype, False)
            old = self.program.bufs[given.buf]
            self.program.bufs[given.buf] = Buf(given.buf, "global", old.shape, dtype)
            way = rng.random()
            bulk = wide and shape[0] * shape[1] * BITS[dtype] // 8 % 1024 == 0
            if way < 0.35 and bulk and shape[1] * BITS[dtype] // 8 <= 128:
                name = f"tma{_letter(len(self.program.barriers))}"
                self.program.barriers[name] = (1, 1)
                args = {"barrier": name, "slot": 0, "parity": self.count()}
                self.emit("tma_load", copies=[(self.whole(tile), given)], **args)
            else:
                asynchronous = way < 0.7
                cp |= asynchronous
                self.emit("copy", self.whole(tile), given, asynchronous=asynchronous)
            operands.append(self.whole(tile))
        if cp:
            self.emit("commit", of="copy")
        args = {"A": operands[0], "B": operands[1], "accum": accum}
        args |= {"transA": flip_a, "transB": not flip_b}
        self.emit("gemm_async", self.whole(d), **args)
        self.emit("commit", of="gemm")
        if loop is not None:
            self.close_loop()
        self.tiles.append(d)

    # -- loops and blocks --------------------------------------------------------------------------

    def open_loop(self, extent: int, unroll: bool) -> St:
        """Open a loop."""
        var = self.variable()
        st = self.emit("loop", var=var, extent=extent, unroll=unroll)
        self.loops.append((var, extent))
        self.bodies.append(st.body)
        return st

    def close_loop(self) -> None:
        """Close a loop."""
        self.commit()
        self.bodies.pop()
        self.loops.pop()

    def loop(self) -> None:
        """Repeat some statements; what they make is known afterwards too."""
        unroll = self.chance(0.2)
        self.commit()
        self.open_loop(self.rng.choice((2, 2, 3, 4)), unroll)
        self.load() if not self.tiles or self.chance(0.5) else None
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            self.step()
        if self.chance(0.6):
            self.store()
        self.close_loop()
        if not self.bodies[-1][-1].body:
            self.bodies[-1].pop()

    def epilogue(self) -> None:
        """Stage the rows of one warp, or of a half, after the other through one shared tile."""
        warps = self.program.warps
        self.program.features.add("epilogue")
        shape = (16 * max(warps, 2), self.rng.choice((8, 16)))
        parts = max(warps, 2) if self.chance(0.7) else 2
        dtype = self.rng.choice(("float32", "float16", "bfloat16"))
        name = self.pick(lambda b: b.shape[0] % parts == 0 and b.shape[0] >= 8 * parts)
        if name is None or self.chance(0.4):
            wbits = _log(warps)
            count = _log(shape[0] * shape[1]) - wbits
            lanes = self.rng.sample(range(1, count), 5)
            table: list[Place] = []
            register = 0
            for at in range(count):
                if at in lanes:
                    table.append(("l", sorted(lanes).index(at)))
                else:
                    table.append(("r", register))
                    register += 1
            warp = [("w", b) for b in range(wbits - 1, -1, -1)]
            name = self.load(shape, dtype, Bits((*warp, *table[::-1])))
        buf = self.program.bufs[name]
        rows, cols = buf.shape[0] // parts, buf.shape[1]
        out = self.param((buf.shape[0], cols), buf.dtype, True)
        tile = self.shared_tile((rows, cols), buf.dtype)
        by_branch = self.chance(0.3) and warps == parts and not buf.bits.copies  # type: ignore[union-attr]
        if by_branch:
            values = buf.bits.values("w").reshape(buf.shape) if buf.bits else np.zeros(buf.shape)
            by_branch = all((values[rows * p : rows * p + rows] == p).all() for p in range(parts))
        var = self.variable()
        st = self.emit("loop", var=var, extent=parts, unroll=True)
        begin = (Ex(0, ((var, rows),)), Ex())
        mine = Reg(name, begin, (rows, cols))
        there = Reg(out.buf, (out.begin[0] + Ex(0, ((var, rows),)), out.begin[1]), (rows, cols))
        to_tile = St("copy", self.whole(tile), mine, {"dispatch": self.dispatch()})
        if by_branch:
            self.bodies[-1].pop()
            for p in range(parts):
                args = {"number": "warp", "low": p, "high": None if p + 1 == warps else p + 1}
                own = Reg(name, (Ex(rows * p), Ex()), (rows, cols))
                inner = St("copy", self.whole(tile), own, dict(to_tile.args))
                self.bodies[-1].append(St("when", args=args, body=[inner]))
                to = Reg(out.buf, (out.begin[0] + rows * p, out.begin[1]), (rows, cols))
                self.bodies[-1].append(St("copy", to, self.whole(tile)))
            return
        st.body.append(to_tile)
        st.body.append(St("copy", there, self.whole(tile)))

    def ring(self) -> None:
        """A ring of two or three shared tiles, filled by cp.async some steps ahead."""
        rng = self.rng
        if self.loops or self.program.grid > 1:
            return
        self.commit()
        stages = rng.choice((2, 2, 3))
        steps = stages * rng.choice((1, 3)) + rng.choice((0, 0, 1))
        dtype = rng.choice(("float16", "float32"))
        shape = rng.choice([s for s in SHAPES if s[0] * s[1] >= 32 * self.program.warps])
        if shape[1] * BITS[dtype] < 128:
            shape = (16, 32)
        rows, cols = shape
        name = self.name("s")
        self.add(Buf(name, "shared", (stages, rows, cols), dtype))
        self.aliased[name] = "ring"
        source = self.name("a")
        given = self.add(Buf(source, "global", (rows * steps, cols), dtype))
        self.give(source, given.shape, dtype)
        sink = self.name("o")
        self.add(Buf(sink, "global", (rows * steps, cols), dtype))
        self.give(sink, given.shape, dtype)
        tile = self.tile(shape, dtype)
        block = St("block")
        self.bodies[-1].append(block)
        level = "warp" if self.program.warps == 1 else "cta"

        def slot(stage: int | Part) -> Ex:
            return Ex(stage) if isinstance(stage, int) else Ex(0, ((stage, 1),))

        def fetch(step: Ex, stage: int | Part) -> list[St]:
            into = Reg(name, (slot(stage), Ex(), Ex()), (1, rows, cols))
            start = Ex(step.const * rows, tuple((v, c * rows) for v, c in step.terms))
            region = Reg(source, (start, Ex()), shape)
            return [
                St("copy", into, region, {"asynchronous": True}),
                St("commit", args={"of": "copy"}),
            ]

        def use(step: Ex, stage: int | Part) -> list[St]:
            start = Ex(step.const * rows, tuple((v, c * rows) for v, c in step.terms))
            here = Reg(name, (slot(stage), Ex(), Ex()), (1, rows, cols))
            return [
                St("copy", self.whole(tile), here, {"dispatch": self.dispatch()}),
                St("copy", Reg(sink, (start, Ex()), shape), self.whole(tile)),
            ]

        sync = St("sync", args={"scope": level})
        whole = steps // stages
        for stage in range(stages - 1):
            block.body += fetch(Ex(stage), stage)
        if self.chance(0.5):  # one loop over all steps, its stage a remainder
            var = self.variable()
            step, ahead = Ex(0, ((var, 1),)), stages - 1
            fetched = fetch(step + ahead, Part(var, "%", stages, ahead))
            later = {"number": var, "low": 0, "high": steps - ahead, "compared": True}
            inner = [
                St("wait", args={"pending": stages - 2, "of": "copy"}), sync,
                St("when", args=later, body=fetched[:1]), *fetched[1:],
                *use(step, Part(var, "%", stages)),
            ]  # fmt: skip
            loop = St("loop", args={"var": var, "extent": steps, "unroll": self.chance(0.1)})
            loop.body += inner
            block.body.append(loop)
            return
        if whole > 1:
            var = self.variable()
            loop = St("loop", args={"var": var, "extent": whole - 1, "unroll": self.chance(0.2)})
            for stage in range(stages):
                at = Ex(stage, ((var, stages),))
                ahead = (stage + stages - 1) % stages
                loop.body.append(St("wait", args={"pending": stages - 2, "of": "copy"}))
                loop.body.append(St("sync", args={"scope": level}))
                loop.body += fetch(at + (stages - 1), ahead)
                loop.body += use(at, stage)
            block.body.append(loop)
        start = (whole - 1) * stages
        for step in range(start, steps):
            late = step + stages - 1
            pending = min(stages - 2, steps - 1 - step)
            block.body.append(St("wait", args={"pending": max(0, pending), "of": "copy"}))
            block.body.append(sync)
            if late < steps:
                block.body += fetch(Ex(late), late % stages)
            block.body += use(Ex(step), step % stages)

    def producer(self) -> None:
        """A producer warpgroup fills a ring in bulk; the others use its stages and free them."""
        rng = self.rng
        if self.loops or self.bodies[-1] is not self.program.body or len(self.bodies) > 1:
            return
        self.commit()
        stages = rng.choice((2, 2, 3))
        rounds = rng.choice((1, 2, 2, 2))
        wgmma = self.program.warps % 4 == 0 and self.chance(0.4)
        if wgmma:
            dtype, out = rng.choice((("float16", "float32"), ("bfloat16", "float32")))
        else:
            dtype = rng.choice(("float16", "float32", "bfloat16"))
        period = 32 if wgmma else rng.choice((32, 64, 128))
        cols = 8 * period // BITS[dtype]
        rows = {32: 32, 64: 16, 128: 8}[period]
        if wgmma:
            rows = 64 * (self.program.warps // 4)
        elif rows * cols < 32 * self.program.warps:
            rows *= self.program.warps * 32 // (rows * cols)
        steps = stages * rounds
        width = cols
        text = f"S[({stages},{rows},{cols}):({rows * cols},{width},1)]"
        unit = 128 // BITS[dtype]
        numbers = (_log(unit), _log(width // unit), 3)
        rings = []
        count = rng.choice((1, 1, 2)) if not wgmma else 1
        for _ in range(count):
            name = self.name("s")
            self.add(Buf(name, "shared", (stages, rows, cols), dtype, None, text, numbers))
            self.aliased[name] = "ring"
            source = self.name("a")
            self.add(Buf(source, "global", (rows * steps, cols), dtype))
            self.give(source, (rows * steps, cols), dtype)
            rings.append((name, source))
        full, free = self.name("full"), self.name("free")
        self.program.barriers[full] = (stages, 1)
        self.program.barriers[free] = (stages, self.program.warps)
        var, other = self.variable(), self.variable()
        produce = St("producer")
        fills = St("loop", args={"var": var, "extent": rounds, "unroll": False})
        for stage in range(stages):
            copies = []
            for name, source in rings:
                into = Reg(name, (Ex(stage), Ex(), Ex()), (1, rows, cols))
                start = Ex(stage * rows, ((var, stages * rows),))
                copies.append((into, Reg(source, (start, Ex()), (rows, cols))))
            args = {"barrier": full, "slot": stage, "copies": copies}
            args["free"] = (free, stage, Ex(1, ((var, 1),)))
            fills.body.append(St("tma_load", args=args))
        produce.body.append(fills)
        block = St("block")
        consume = St("loop", args={"var": other, "extent": rounds, "unroll": False})
        small = None
        if wgmma:
            n = 8
            b = self.shared_tile((n, cols), dtype, period)
            self.aliased[b] = "wgmma"
            small = self.param((n, cols), dtype, False, False)
            old = self.program.bufs[small.buf]
            self.program.bufs[small.buf] = Buf(small.buf, "global", old.shape, dtype)
            self.emit("copy", self.whole(b), small)
            self.emit("sync", scope="cta")
            warp = [("w", i) for i in range(_log(self.program.warps) - 1, -1, -1)]
            bits = Bits((*warp, *_bits("r1 l4 l3 l2 l1 l0 r0")))
            d = self.tile((rows, n), out, bits)
        else:
            tile = [self.tile((rows, cols), dtype) for _ in rings]
        sinks = []
        for _ in rings:
            sink = self.name("o")
            shape = (rows * steps, cols) if not wgmma else (rows, 8)
            self.add(Buf(sink, "global", shape, dtype if not wgmma else out))
            self.give(sink, shape, dtype if not wgmma else out)
            sinks.append(sink)
        for stage in range(stages):
            parity = Ex(0, ((other, 1),))
            wait = {"barrier": full, "slot": stage, "parity": parity}
            consume.body.append(St("mbarrier_wait", args=wait))
            start = Ex(stage * rows, ((other, stages * rows),))
            if wgmma:
                a = Reg(rings[0][0], (Ex(stage), Ex(), Ex()), (1, rows, cols))
                accum = True if stage else Ex(0, ((other, 1),))
                args = {"A": a, "B": self.whole(b), "transB": True, "accum": accum}
                consume.body.append(St("gemm_async", self.whole(d), None, args))
                consume.body.append(St("commit", args={"of": "gemm"}))
                consume.body.append(St("wait", args={"pending": 0, "of": "gemm"}))
                consume.body.append(St("arrive", args={"barrier": free, "slot": stage}))
                continue
            for (name, _), held in zip(rings, tile, strict=True):
                here = Reg(name, (Ex(stage), Ex(), Ex()), (1, rows, cols))
                copy = St("copy", self.whole(held), here, {"dispatch": self.dispatch()})
                consume.body.append(copy)
            consume.body.append(St("sync", args={"scope": "warp"}))
            consume.body.append(St("arrive", args={"barrier": free, "slot": stage}))
            for held, sink in zip(tile, sinks, strict=True):
                to = Reg(sink, (start, Ex()), (rows, cols))
                consume.body.append(St("copy", to, self.whole(held)))
        block.body += [produce, consume]
        if wgmma:
            block.body.append(St("copy", self.whole(sinks[0]), self.whole(d)))
        self.bodies[-1].append(block)

    def handover(self) -> None:
        """Some warps write a shared tile, and arrive; others await that, and read it."""
        warps, rng = self.program.warps, self.rng
        if warps < 2 or self.loops:
            return
        self.commit()
        split = rng.randrange(1, warps)
        first = self.chance(0.5)  # the lower warps write
        dtype = rng.choice(("float32", "float16", "int32"))
        shape = (8 * warps, rng.choice((8, 16)))
        wbits = _log(warps)
        count = _log(shape[0] * shape[1]) - wbits
        lanes = sorted(rng.sample(range(1, count), 5))
        table: list[Place] = []
        register = 0
        for at in range(count):
            if at in lanes:
                table.append(("l", lanes.index(at)))
            else:
                table.append(("r", register))
                register += 1
        warp = [("w", b) for b in range(wbits - 1, -1, -1)]
        bits = Bits((*warp, *table[::-1]))
        name = self.load(shape, dtype, bits)
        writers = split if first else warps - split
        readers = warps - writers
        rows = 8 * min(writers, readers)
        tile = self.shared_tile((rows, shape[1]), dtype)
        barrier = self.name("hand")
        back = self.name("back")
        steps = rng.choice((1, 2, 3))
        self.program.barriers[barrier] = (1, writers)
        self.program.barriers[back] = (1, readers)
        low = (0, split) if first else (split, warps)
        high = (split, warps) if first else (0, split)
        var = self.variable()
        begin_w, begin_r = 8 * low[0], 8 * high[0]
        into = self.tile(shape, dtype, bits)
        out = self.param(shape, dtype, True, False)
        whole = self.whole(into)
        block = St("block")
        block.body.append(St("zero", whole))
        loop = St("loop", args={"var": var, "extent": steps, "unroll": False})
        body = loop.body if steps > 1 else block.body
        count_ex = Ex(0, ((var, 1),)) if steps > 1 else Ex()

        def when(which: tuple[int, int], inner: list[St]) -> St:
            high_of = None if which[1] == warps else which[1]
            return St("when", args={"number": "warp", "low": which[0], "high": high_of}, body=inner)

        cols = shape[1]
        mine = Reg(name, (Ex(begin_w), Ex()), (rows, cols))
        theirs = Reg(into, (Ex(begin_r), Ex()), (rows, cols))
        args = {"barrier": barrier, "slot": 0}
        write = [
            St("copy", self.whole(tile), mine, {"dispatch": "vec_auto"}),
            St("sync", args={"scope": "warp"}),
            St("arrive", args=dict(args)),
        ]
        if steps > 1:
            ready = {"barrier": back, "slot": 0, "parity": count_ex + 1}
            write.insert(0, St("mbarrier_wait", args=ready))
        read = [
            St("mbarrier_wait", args={**args, "parity": count_ex}),
            St("copy", theirs, self.whole(tile), {"dispatch": "vec_auto"}),
        ]
        if steps > 1:
            read.append(St("sync", args={"scope": "warp"}))
            read.append(St("arrive", args={"barrier": back, "slot": 0}))
        body += [when(low, write), when(high, read)]
        if steps > 1:
            block.body.append(loop)
        else:
            del self.program.barriers[back]
        self.bodies[-1].append(block)
        self.emit("copy", out, whole)

    # -- the whole ---------------------------------------------------------------------------------

    def step(self) -> None:
        """Add one random segment."""
        rng = self.rng
        table: list[tuple[float, Callable[[], Any]]] = [
            (2.0, self.load), (1.5, self.through_shared), (1.0, self.to_shared),
            (0.8, self.reload), (0.5, self.zero), (0.9, self.cast),
            (1.0, self.store), (0.6, self.from_shared_to_global), (0.3, self.between_shared),
            (0.8, self.gemm), (0.5, self.branch), (0.4, self.epilogue), (2.7, self.compute),
        ]  # fmt: skip
        choice = rng.choices([f for _, f in table], [w for w, _ in table])[0]
        choice()
        for tile in [r.buf for r in self.shared]:
            if self.chance(0.1) and self.aliased.get(tile) != "ring":
                self.from_shared(tile)

    def make(self) -> Program:
        """Make the whole program.

        Raises:
            RejectError: it is none.
        """
        rng, program = self.rng, self.program
        feature = rng.choices(
            (
                "",
                "producer",
                "wgmma",
                "bulk",
                "ring",
                "handover",
                "epilogue",
                "tma_store",
                "gemm",
                "loop",
            ),
            (2, 1.0, 1.2, 0.8, 0.8, 1.0, 1.0, 0.6, 1.0, 3.4),
        )[0]
        if feature in ("wgmma", "tma_store") and program.warps % 4:
            program.warps = 4
        if feature == "handover" and program.warps < 2:
            program.warps = 2
        if feature == "producer":
            program.warps = rng.choice((1, 2, 4, 4))
        if feature not in ("producer",) and self.chance(0.06):
            program.grid = 2
            program.scalars["unused"] = ("f32", 1.0)
        if self.chance(0.7):
            self.load()
        segments = rng.choice((0, 1, 1, 1, 2, 2, 3, 4))
        at = rng.randrange(segments + 1)
        for number in range(segments):
            if number == at and feature:
                self.feature(feature)
            self.step()
        if at == segments and feature:
            self.feature(feature)
        stored = any(
            st.dst is not None and st.dst.buf.startswith("o")
            for _, _, st in statements(program.body)
        )
        read = {
            region.buf
            for _, _, st in statements(program.body)
            for region in (st.src, st.args.get("A"), st.args.get("B"))
            if region is not None
        }
        for name in [name for name in self.tiles if name not in read]:
            if not stored or self.chance(0.7):
                self.store(name)
                stored = True
        self.commit()
        if len(program.bufs) < 2 or not program.body:
            raise RejectError("nothing")
        Placer(program, rng, rng.choice((0.0, 0.0, 0.3, 1.0))).place()
        self.spread()
        return program

    def feature(self, name: str) -> None:
        """Add the segment of a feature."""
        known: dict[str, Callable[[], Any]] = {
            "producer": self.producer, "wgmma": self.wgmma, "ring": self.ring,
            "handover": self.handover, "epilogue": self.epilogue, "tma_store": self.drain,
            "gemm": self.gemm, "loop": self.loop,
        }  # fmt: skip
        if name == "bulk":
            tile = self.bulk()
            self.from_shared(tile)
        else:
            known[name]()

    def spread(self) -> None:
        """Add barriers that nothing needs, here and there."""
        if self.chance(0.85):
            return
        body = self.program.body
        places = [
            at for at in range(len(body) + 1)
            if not any(st.op == "block" and _has(st, "producer") for st in body[:at])
        ]  # fmt: skip
        body.insert(
            self.rng.choice(places), St("sync", args={"scope": self.rng.choice(("warp", "cta"))})
        )


def _has(st: St, op: str) -> bool:
    return st.op == op or any(_has(each, op) for each in st.body)


def _letter(number: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[number]


def generate(seed: int) -> tuple[Program, dict[str, Any], int]:
    """Return the program of a seed, what it must compute, and how many tries it took."""
    for attempt in range(40):
        try:
            program = Maker(seed * 64 + attempt).make()
            return program, meaning(program), attempt + 1
        except (RejectError, IndexError):
            continue
    raise AssertionError(f"no program for seed {seed}")
