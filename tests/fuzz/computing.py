"""Expressions on register tiles, put together at random: their types, shapes and holders fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tests.fuzz.expressions import COMPARISONS, KINDS, PRED, Node, apply, number
from tests.fuzz.ir import Bits, Buf, Ex, Reg, holders

if TYPE_CHECKING:
    from tests.fuzz.kernels import Maker

TYPES = ("float32", "float32", "float32", "float16", "bfloat16", "int32", "int32", "float64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
MOST = 64  # what an integral expression is held to


def reduced(bits: Bits, shape: tuple[int, int], axis: int) -> Bits:
    """Return the layout of a tile with an extent of 1: what was there is copies, or gone."""
    rows = (shape[0]).bit_length() - 1
    gone = bits.places[:rows] if axis == 0 else bits.places[rows:]
    kept = bits.places[rows:] if axis == 0 else bits.places[:rows]
    copies = bits.copies + tuple(each for each in gone if each[0] != "r")
    return replace(bits, places=dense(kept), copies=copies)


def dense(places: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Return places whose registers are numbered from 0 on, in their order."""
    numbers = sorted(bit for kind, bit in places if kind == "r")
    return tuple((k, numbers.index(bit)) if k == "r" else (k, bit) for k, bit in places)


class Computing:
    """Adds assignments to what a maker makes."""

    def __init__(self, maker: Maker) -> None:
        self.maker, self.rng, self.program = maker, maker.rng, maker.program
        self.integral = True
        self.dst: Reg
        self.operands: dict[str, list[Reg]] = {}

    def chance(self, p: float) -> bool:
        """Throw a coin."""
        return self.rng.random() < p

    def buf(self, region: Reg) -> Buf:
        """Return the buffer of a region."""
        return self.program.bufs[region.buf]

    def compute(self) -> None:
        """Assign some expressions to a tile and to what is made of it."""
        maker, rng = self.maker, self.rng
        dtype = rng.choice(TYPES)
        name = maker.pick(lambda b: b.dtype in TYPES)
        if name is None or self.chance(0.3):
            name = maker.load(None, dtype)
        for axis in (0, 1):
            if self.chance(0.35):
                self.vector(name, axis)
        if self.chance(0.3):
            self.twin(name)
        if not self.active() and self.chance(0.2):
            self.converted(name)
        for _ in range(rng.choice((1, 1, 2, 3))):
            if self.chance(0.25):
                self.statistic(name)
            elif self.chance(0.4):
                name = self.new(name)
            else:
                self.onto(maker.part(name) if self.chance(0.3) else maker.whole(name))

    # -- what is computed on -----------------------------------------------------------------------

    def vector(self, name: str, axis: int) -> str:
        """Load a row or a column that broadcasts onto a tile."""
        buf = self.program.bufs[name]
        assert buf.bits is not None
        shape = (1, buf.shape[1]) if axis == 0 else (buf.shape[0], 1)
        dtype = buf.dtype if self.chance(0.7) else self.rng.choice(TYPES)
        bits = reduced(buf.bits, (buf.shape[0], buf.shape[1]), axis)
        return self.maker.load(shape, dtype, bits)

    def converted(self, name: str) -> None:
        """Copy a tile to one whose threads hold it otherwise."""
        maker = self.maker
        buf = self.program.bufs[name]
        made = maker.tile((buf.shape[0], buf.shape[1]), buf.dtype)
        maker.emit("copy", maker.whole(made), maker.whole(name))
        maker.tiles.append(made)
        if name in maker.loose:
            maker.loose.add(made)

    def twin(self, name: str) -> str:
        """Load a tile whose threads hold the same elements as another's, in other registers."""
        buf = self.program.bufs[name]
        assert buf.bits is not None
        count = sum(kind == "r" for kind, _ in buf.bits.places)
        order = list(range(count))
        if self.chance(0.7):
            self.rng.shuffle(order)
        places = tuple((k, order[bit]) if k == "r" else (k, bit) for k, bit in buf.bits.places)
        dtype = (
            buf.dtype
            if self.chance(0.7)
            else self.rng.choice([each for each in KINDS if each != PRED])
        )
        return self.maker.load(buf.shape, dtype, replace(buf.bits, places=places))

    def reach(self, region: Reg) -> bool:
        """Say whether each thread holds of a region what its elements of dst need.

        A register of dst must need the same register of it in all threads.
        """
        dst = self.dst
        if any(n not in (1, d) for n, d in zip(region.size, dst.size, strict=True)):
            return False
        if region.buf == dst.buf and region != dst and self.overlap(region):
            return False
        bits, other = self.buf(dst).bits, self.buf(region).bits
        assert bits is not None
        assert other is not None
        threads = self.program.threads
        mine = holders(bits, self.buf(dst).shape, threads)[(slice(None), *dst.slices({}))]
        its = holders(other, self.buf(region).shape, threads)[(slice(None), *region.slices({}))]
        if not (~mine | its).all():
            return False
        into = bits.values("r").reshape(self.buf(dst).shape)[dst.slices({})]
        source = other.values("r").reshape(self.buf(region).shape)[region.slices({})]
        pairs = set(zip(into.flat, np.broadcast_to(source, into.shape).flat, strict=True))
        return len(pairs) == len({one for one, _ in pairs})

    def overlap(self, region: Reg) -> bool:
        """Say whether a region of dst's buffer shares elements with dst."""
        return all(
            a.const < b.const + n and b.const < a.const + m
            for a, m, b, n in zip(
                region.begin, region.size, self.dst.begin, self.dst.size, strict=True
            )
        )

    def find(self) -> None:
        """Gather, by type, the regions that an expression for dst can take."""
        maker, dst = self.maker, self.dst
        self.operands = {}
        for name in [*maker.tiles, *maker.tiles[-3:]]:
            buf = self.program.bufs[name]
            if buf.dtype not in KINDS or (self.integral and name in maker.loose):
                continue
            tries = [maker.whole(name), maker.part(name)]
            if buf.shape == self.buf(dst).shape:
                tries.append(maker.of_part(dst, maker.whole(name)))
                part = maker.part(name)
                size = tuple(1 if self.chance(0.5) else d for d in dst.size)
                tries.append(Reg(name, part.begin, (size[0], size[1])))
                at = tuple(
                    b if n > 1 else Ex(self.rng.randrange(e))
                    for b, n, e in zip(dst.begin, size, buf.shape, strict=True)
                )
                tries.append(Reg(name, at, (size[0], size[1])))
            for each in tries:
                inside = all(
                    b.const + n <= e
                    for b, n, e in zip(each.begin, each.size, buf.shape, strict=True)
                )
                if inside and self.reach(each):
                    self.operands.setdefault(buf.dtype, []).append(each)

    # -- statements --------------------------------------------------------------------------------

    def onto(self, dst: Reg) -> None:
        """Assign to a region, all of which may hold something."""
        self.dst, self.integral = dst, self.chance(0.4)
        self.find()
        value = self.bounded(self.value(self.buf(dst).dtype, self.rng.choice((1, 2, 2, 3))))
        if not self.integral:
            self.maker.loose.add(dst.buf)
        self.maker.emit("assign", dst, value=value)

    def new(self, like: str) -> str:
        """Make a tile of an expression, of a type and, now and then, a layout of its own."""
        maker = self.maker
        buf = self.program.bufs[like]
        dtype = buf.dtype if self.chance(0.5) else self.rng.choice(TYPES)
        name = maker.tile((buf.shape[0], buf.shape[1]), dtype, buf.bits)
        made = self.program.bufs[name]
        self.dst, self.integral = maker.whole(name), self.chance(0.4)
        self.find()
        value = self.bounded(self.value(dtype, self.rng.choice((1, 2, 2, 3))))
        first = next(
            (leaf.arguments[0] for leaf in value.leaves(of_reductions=False)
             if leaf.what == "tile" and leaf.arguments[0].size == buf.shape), None
        )  # fmt: skip
        whole = first is not None and self.buf(first).shape == buf.shape
        if first is not None and whole and self.chance(0.6) and not self.active():
            bits, dst = self.buf(first).bits, self.dst
            assert bits is not None
            self.program.bufs[name] = replace(made, bits=bits, made=True)

            def there(node: Node) -> Node:  # the tile is not there yet
                own = node.what == "index" and node.arguments[0] == dst
                return replace(node, arguments=(first, node.arguments[1])) if own else node

            value = value.changed(there)
        if not self.integral:
            maker.loose.add(name)
        maker.emit("assign", self.dst, value=value)
        maker.tiles.append(name)
        return name

    def reduction(self, region: Reg) -> Node:
        """Return a reduction of a region, of a type in which its result is exact."""
        rng, dtype = self.rng, self.buf(region).dtype
        sums = region.buf not in self.maker.loose
        names = ("max", "min", *("sum", "sum") * sums, *("any",) * (dtype == "int32"))
        axes = rng.choice(((0,), (1,), (1,), (0, 1)))
        value = Node("tile", dtype, (region,))
        if sums and dtype in ("float32", "int32") and self.chance(0.2):
            value = apply(rng.choice(("multiply", "add", "maximum")), value, value)
        return Node(rng.choice(names), dtype, (value, axes))

    def statistic(self, name: str) -> None:
        """Make a tile of a reduction: in the layout that follows, or named beforehand."""
        maker, buf = self.maker, self.program.bufs[name]
        if buf.dtype not in TYPES:
            return
        region = maker.whole(name)
        value = self.reduction(region)
        if buf.dtype == "int32" and self.chance(0.3):
            other = number(self.rng.randrange(-2, 3), "int32")
            truth = apply(self.rng.choice(COMPARISONS), Node("tile", "int32", (region,)), other)
            value = Node("any", "int32", (truth, value.arguments[1]))
        shape, bits = (buf.shape[0], buf.shape[1]), buf.bits
        assert bits is not None
        for axis in value.arguments[1]:
            bits = reduced(bits, shape, axis)
            shape = (1, shape[1]) if axis == 0 else (shape[0], 1)
        into = maker.tile(shape, buf.dtype, bits)
        if self.chance(0.5):
            self.program.bufs[into] = replace(self.program.bufs[into], made=True)
        if name in maker.loose or value.what != "any":
            maker.loose.add(into)
        maker.emit("assign", maker.whole(into), value=value)
        maker.tiles.append(into)

    def active(self) -> bool:
        """Say whether a branch is around."""
        return any(st.op == "when" for body in self.maker.bodies for st in body[-1:])

    # -- trees -------------------------------------------------------------------------------------

    def bounded(self, value: Node) -> Node:
        """Return an integral value held to small numbers."""
        if not self.integral:
            return value
        low, high = number(-MOST, value.dtype), number(MOST, value.dtype)
        return apply("minimum", apply("maximum", value, low), high)

    def leaf(self, dtype: str) -> Node:
        """Return an operand, a number, a scalar or an index."""
        found = self.operands.get(dtype)
        if found and self.chance(0.12):
            wide = [each for each in found if each.size == self.dst.size]
            if wide:
                return self.reduction(self.rng.choice(wide))
        if found and self.chance(0.75):
            return Node("tile", dtype, (self.rng.choice(found),))
        if dtype == "int32" and self.chance(0.7):
            return self.place()
        if dtype == "float32" and self.chance(0.4):
            return self.scalar()
        return self.constant(dtype)

    def constant(self, dtype: str) -> Node:
        """Return a number."""
        if self.integral or dtype == "int32":
            return number(self.rng.randrange(-5, 6), dtype)
        some = (0.1, -0.5, 1.5, 3.0, -7.25, 1e-3, 1e-7, 60000.0, -2.0, 0.0, float("-inf"))
        return number(self.rng.choice(some), dtype)

    def scalar(self) -> Node:
        """Return an f32 scalar of the launch."""
        rng, scalars = self.rng, self.program.scalars
        wanted = (-2.0, 3.0, 4.0) if self.integral else (0.5, -1.5, 0.1, 2.0)
        known = [name for name, (token, v) in scalars.items() if token == "f32" and v in wanted]
        if known and self.chance(0.5):
            return Node("scalar", "float32", (rng.choice(known),))
        name = f"factor{'abcdefghijklmnopqrstuvwxyz'[len(scalars)]}"
        scalars[name] = ("f32", rng.choice(wanted))
        return Node("scalar", "float32", (name,))

    def place(self) -> Node:
        """Return an index of the elements, or a number of a loop, the CTA, the warp or the lane."""
        rng = self.rng
        if self.chance(0.6):
            whole = self.maker.whole(self.dst.buf)
            region, axis = (self.dst if self.chance(0.8) else whole), rng.randrange(2)
            if region.size[axis] not in (1, self.dst.size[axis]):
                region = self.dst
            return Node("index", "int32", (region, axis))
        names = [var for var, _ in self.maker.loops]
        if self.program.grid > 1:
            names.append("cta")
        bits = self.buf(self.dst).bits
        assert bits is not None
        if not bits.copies:
            names += ["k.warp", "k.lane"]
        if not names:
            return number(rng.randrange(-5, 6), "int32")
        value = Ex(rng.choice((0, 0, 1, 3)), ((rng.choice(names), rng.choice((1, 1, 2, 4))),))
        return Node("value", "int32", (value,))

    def value(self, dtype: str, depth: int) -> Node:
        """Return a tree of a type."""
        rng = self.rng
        if depth <= 0:
            return self.leaf(dtype)
        inner = depth - 1 if self.chance(0.7) else 0

        def some() -> Node:
            return self.value(dtype, inner)

        if dtype == PRED:
            return self.truth(depth)
        choices: list[tuple[float, Callable[[], Node]]] = [
            (5.0, lambda: self.binary(rng.choice(("add", "subtract", "multiply")), some, dtype)),
            (2.0, lambda: self.binary(rng.choice(("maximum", "minimum")), some, dtype)),
            (1.5, lambda: self.unary(rng.choice(("absolute", "negative")), some())),
            (2.5, lambda: self.choice(dtype, inner)),
            (0.8, lambda: apply("fma", self.tile(dtype), some(), some())),
        ]  # fmt: skip
        if dtype == "int32":
            choices += [
                (1.0, lambda: self.binary(
                    rng.choice(("bitwise_and", "bitwise_or", "bitwise_xor")), some, dtype)),
                (0.8, lambda: apply(rng.choice(("left_shift", "right_shift")), self.tile(dtype),
                                    number(rng.randrange(0, 6), dtype))),
                (0.4, lambda: self.unary("invert", some())),
                (0.8, lambda: apply(rng.choice(("floor_divide", "remainder")), self.tile(dtype),
                                    number(rng.choice((-3, 2, 4, 5)), dtype))),
                (0.8, lambda: Node("cast", "int32", (self.truth(inner),))),
            ]  # fmt: skip
            if not self.integral:
                choices.append((0.3, lambda: self.binary("right_shift", some, dtype)))
        elif not self.integral:
            if dtype in ("float32", "float64"):
                choices += [
                    (1.0, lambda: self.binary("divide", some, dtype)),
                    (0.6, lambda: apply("sqrt", self.unary("absolute", some()))),
                ]  # fmt: skip
            if dtype == "float64":
                choices.append((0.5, lambda: self.unary("reciprocal", some())))
            else:
                choices.append((1.0, lambda: self.approximate(dtype)))
        if self.chance(0.25):
            choices.append((4.0, lambda: self.cast(dtype, inner)))
        weights = [w for w, _ in choices]
        return rng.choices([f for _, f in choices], weights)[0]()

    def cast(self, dtype: str, depth: int) -> Node:
        """Return a cast from another type: of an expression, or of what computes nothing."""
        others = [each for each in (*self.operands, "int32") if each != dtype]
        source = self.rng.choice(others or ["float32"])
        if source == dtype:
            return self.tile(dtype)
        value = self.value(source, depth) if source in TYPES else self.tile(source)
        return Node("cast", dtype, (value if typed(value) else self.tile(source),))

    def tile(self, dtype: str) -> Node:
        """Return an operand; where there is none, what has a type of its own."""
        found = self.operands.get(dtype)
        if found:
            return Node("tile", dtype, (self.rng.choice(found),))
        if dtype == "int32":
            return Node("index", "int32", (self.dst, self.rng.randrange(2)))
        return Node("cast", dtype, (number(self.rng.randrange(-5, 6), dtype),))

    def binary(self, name: str, some: Callable[[], Node], dtype: str) -> Node:
        """Return a function of two, one of which has a type of its own."""
        one, other = some(), some()
        if not (typed(one) or typed(other)):
            one = self.tile(dtype)
        if self.chance(0.5):
            one, other = other, one
        return apply(name, one, other)

    def unary(self, name: str, value: Node) -> Node:
        """Return a function of one, which has a type of its own."""
        return apply(name, value if typed(value) else self.tile(value.dtype))

    def choice(self, dtype: str, depth: int) -> Node:
        """Return ``where``."""
        one, other = self.value(dtype, depth), self.value(dtype, depth)
        if not (typed(one) or typed(other)):
            one = self.tile(dtype)
        if self.chance(0.3) and dtype != "int32":
            other = number(0 if self.integral else float("-inf"), dtype)
        if not (typed(one) or typed(other)):
            one = self.tile(dtype)
        return apply("where", self.truth(depth), one, other)

    def truth(self, depth: int) -> Node:
        """Return a comparison, or several joined."""
        if depth > 0 and self.chance(0.3):
            one = self.truth(depth - 1)
            if self.chance(0.3):
                return apply("invert", one)
            name = self.rng.choice(("bitwise_and", "bitwise_or", "bitwise_xor"))
            return apply(name, one, self.truth(depth - 1))
        dtype = self.rng.choice([*(each for each in self.operands if each in TYPES), "int32"])
        return self.binary(
            self.rng.choice(COMPARISONS), lambda: self.value(dtype, min(depth, 1) - 1), dtype
        )

    def approximate(self, dtype: str) -> Node:
        """Return a function that hardware approximates, of what its result is exact at."""
        small = [
            each for each in self.operands.get(dtype, ())
            if each.buf not in self.maker.loose
        ]  # fmt: skip
        if not small:
            return self.tile(dtype)
        inner: Node = Node("tile", dtype, (self.rng.choice(small),))
        low, high = number(-3, dtype), number(3, dtype)
        inner = apply("maximum", apply("minimum", inner, high), low)
        if dtype != "float32":
            return apply("exp2", inner)
        power = apply("exp2", apply("multiply", inner, number(2, dtype)))
        name = self.rng.choice(("exp2", "log2", "rsqrt", "reciprocal", "tanh", "exp"))
        if name == "exp2":
            return power
        if name in ("log2", "rsqrt", "reciprocal"):
            return apply(name, power)
        by = number(64 if name == "tanh" else 0, dtype)
        return apply(name, apply("multiply", inner, by))


def typed(node: Node) -> bool:
    """Say whether a tree is an expression in Python, so that the other side takes its type."""
    return node.what not in ("number", "value")
