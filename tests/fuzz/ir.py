"""The fuzzer's own program: tiles, statements, and what they mean on whole matrices.

Nothing here comes from the package under test. A register tile says by bits where an element is:
each bit of its flat number is a bit of the lane, of the warp or of the register. A statement is a
verb with regions; :func:`meaning` runs a program sequentially, a matrix per buffer, of register
tiles one per warp (so that copies may differ once a branch has been taken by some warps alone).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.fuzz.expressions import (
    JOINS,
    KINDS,
    LEAVES,
    PRED,
    InexactError,
    Node,
    evaluate,
    reduced,
)

Array = npt.NDArray[Any]
WARP = 32

NUMPY: dict[str, Any] = {name: kind for name, kind in KINDS.items() if name != PRED}
NUMPY["tfloat32"] = np.float32
BITS = {name: 8 * np.dtype(kind).itemsize for name, kind in NUMPY.items()}


class RejectError(Exception):
    """The generator has made what is no right program; another is made instead."""


@dataclass(frozen=True)
class Part:
    """The quotient or the remainder of a variable, and a number more, by a number."""

    of: str
    sign: str  # "//" or "%"
    by: int
    more: int = 0

    def __str__(self) -> str:
        left = f"({self.of} + {self.more})" if self.more else self.of
        return f"{left} {self.sign} {self.by}"

    def at(self, env: dict[str, int]) -> int:
        """Return the value."""
        left = env[self.of] + self.more
        return left // self.by if self.sign == "//" else left % self.by


@dataclass(frozen=True)
class Ex:
    """``const`` plus multiples of loop variables, or of parts of them."""

    const: int = 0
    terms: tuple[tuple[str | Part, int], ...] = ()

    def at(self, env: dict[str, int]) -> int:
        """Return the value."""
        return self.const + sum(
            (name.at(env) if isinstance(name, Part) else env[name]) * by for name, by in self.terms
        )

    def __add__(self, other: int | Ex) -> Ex:
        """Add."""
        if isinstance(other, int):
            return Ex(self.const + other, self.terms)
        return Ex(self.const + other.const, self.terms + other.terms)

    def __str__(self) -> str:
        """Return Python."""
        parts = [str(name) if by == 1 else f"{name} * {by}" for name, by in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


@dataclass(frozen=True)
class Bits:
    """A register layout: ``places`` of the bits of the flat number, the highest first.

    A place is ("l", bit of the lane), ("w", bit of the warp) or ("r", bit of the register).
    ``copies`` are bits of the lane and the warp that copies differ in.
    """

    places: tuple[tuple[str, int], ...]
    copies: tuple[tuple[str, int], ...] = ()
    spelled: str = "laneid"  # or "tx": one axis for all threads
    said: bool = True  # whether the copies are named as replicas

    @property
    def text(self) -> str:
        """Return the layout as the package writes it: neighbouring bits of one axis joined."""
        runs: list[list[Any]] = [] if self.places else [["r", 1, 0]]
        for kind, bit in self.places:
            if runs and runs[-1][0] == kind and runs[-1][2] == bit + 1:
                runs[-1][1] *= 2
                runs[-1][2] = bit
            else:
                runs.append([kind, 2, bit])
        shape = ",".join(str(extent) for _, extent, _ in runs)
        strides = ",".join(self._stride(kind, bit) for kind, _, bit in runs)
        text = f"S[({shape}):({strides})]"
        if self.copies and self.said:
            extents = ",".join("2" for _ in self.copies)
            steps = ",".join(self._stride(kind, bit) for kind, bit in self.copies)
            text += f" + R[({extents}):({steps})]"
        return text

    def _stride(self, kind: str, bit: int) -> str:
        if kind == "r":
            return str(1 << bit)
        if self.spelled == "tx":
            return f"{1 << (bit + 5 * (kind == 'w'))}@tx"
        return f"{1 << bit}@{'laneid' if kind == 'l' else 'warpid'}"

    def values(self, kind: str) -> Array:
        """Return the lane, warp or register of each flat element, copies at their first."""
        return _values(self.places, kind)


@lru_cache(maxsize=4096)
def _values(places: tuple[tuple[str, int], ...], kind: str) -> Array:
    flat = np.arange(1 << len(places))
    found = np.zeros_like(flat)
    for at, (each, bit) in enumerate(reversed(places)):
        if each == kind:
            found |= (flat >> at & 1) << bit
    return found


@lru_cache(maxsize=4096)
def holders(bits: Bits, shape: tuple[int, ...], threads: int) -> Array:
    """Return which threads hold each element: (threads, *shape)."""
    lane, warp = bits.values("l"), bits.values("w")
    here = np.arange(threads)
    free_lane = sum(1 << b for k, b in bits.copies if k == "l")
    free_warp = sum(1 << b for k, b in bits.copies if k == "w")
    same = (here[:, None] % WARP & ~free_lane) == lane
    same &= (here[:, None] // WARP & ~free_warp) == warp
    return same.reshape(threads, *shape)


@dataclass(frozen=True)
class Buf:
    """A buffer: ``bits`` in registers; ``layout`` (a text) and ``swizzle`` in memory, if any.

    ``strides``: of a parameter's layout, elements. ``bounds``: the scalar that ends each dimension.
    ``made``: whether the statement that first sets it allocates it.
    """

    name: str
    scope: str
    shape: tuple[int, ...]
    dtype: str
    bits: Bits | None = None
    layout: str = ""
    swizzle: tuple[int, int, int] | None = None
    strides: tuple[int, ...] | None = None
    bounds: tuple[str | None, ...] | None = None
    made: bool = False


@dataclass(frozen=True)
class Reg:
    """A region: a buffer, where it begins in each dimension, and its extents."""

    buf: str
    begin: tuple[Ex, ...]
    size: tuple[int, ...]

    def slices(self, env: dict[str, int]) -> tuple[slice, ...]:
        """Return it as slices."""
        starts = [each.at(env) for each in self.begin]
        return tuple(slice(b, b + n) for b, n in zip(starts, self.size, strict=True))

    def moved(self, dim: int, by: int) -> Reg:
        """Return it moved along a dimension."""
        begin = list(self.begin)
        begin[dim] += by
        return Reg(self.buf, tuple(begin), self.size)


@dataclass
class St:
    """A statement: a verb, its regions, other arguments, and the statements inside it.

    Verbs: copy, zero, assign, gemm, gemm_async, sync, commit, wait, arrive,
    mbarrier_wait, tma_load, tma_store, tma_store_wait, loop, when, producer, block (statements
    whose order is their own affair).
    """

    op: str
    dst: Reg | None = None
    src: Reg | None = None
    args: dict[str, Any] = field(default_factory=dict)
    body: list[St] = field(default_factory=list)


@dataclass
class Program:
    """A whole kernel, what it is given, and which features it has."""

    seed: int
    warps: int
    arch: str = "sm_90a"
    bufs: dict[str, Buf] = field(default_factory=dict)
    scalars: dict[str, tuple[str, Any]] = field(default_factory=dict)  # name -> (token, value)
    barriers: dict[str, tuple[int, int]] = field(default_factory=dict)  # name -> (slots, arrivals)
    body: list[St] = field(default_factory=list)
    grid: int = 1
    given: dict[str, Array] = field(default_factory=dict)
    features: set[str] = field(default_factory=set)
    seeds: dict[str, tuple[int, int]] = field(default_factory=dict)  # of what is given: seed, least

    @property
    def threads(self) -> int:
        """Threads of the CTA."""
        return WARP * self.warps

    def clone(self) -> Program:
        """Return a copy whose statements can be changed: no tile is allocated by one."""
        other = copy.copy(self)
        other.body = copy.deepcopy(self.body)
        other.bufs = {name: replace(b, made=False) for name, b in self.bufs.items()}
        other.barriers = dict(self.barriers)
        return other


def statements(body: list[St]) -> Iterator[tuple[list[St], int, St]]:
    """Yield every statement with the list that it stands in, and its place."""
    for at, each in enumerate(body):
        yield body, at, each
        yield from statements(each.body)


# -- the kernel as Python text -------------------------------------------------------------------


def source(program: Program, name: str = "fuzz") -> str:
    """Return the kernel as a Python text that builds it: what ``machines.kernel`` runs."""
    lines = [f'k = Kernel("{name}", {program.threads}, "{program.arch}")']
    for name, (token, _) in program.scalars.items():
        lines.append(f'{name} = k.scalar("{name}", "{token}")')
    for b in program.bufs.values():
        layout = ""
        if b.made:
            continue
        if b.bits is not None:
            layout = f', layout=parse("{b.bits.text}")'
        elif b.swizzle is not None:
            numbers = ", ".join(map(str, b.swizzle))
            layout = f', layout=ComposeLayout({numbers}, parse("{b.layout}"))'
        elif b.layout:
            layout = f', layout=parse("{b.layout}")'
        if b.bounds is not None:
            layout += f", bounds={b.bounds!r}"
        if b.scope == "global":
            lines.append(f'{b.name} = k.param("{b.name}", {b.shape}, "{b.dtype}"{layout})')
        else:
            scope = f'{b.name} = k.alloc("{b.name}", {b.shape}, "{b.dtype}", "{b.scope}"{layout})'
            lines.append(scope)
    for name, (slots, arrivals) in program.barriers.items():
        lines.append(f'{name} = k.barrier("{name}", {slots}, {arrivals})')
    if program.grid > 1:
        lines.append(f'cta = k.let("cta", k.block[0], {program.grid})')
    lines += _lines(program.body, program, 0, set())
    return "\n".join(lines) + "\n"


def _region(region: Reg, program: Program, box: bool = False) -> str:
    buf = program.bufs[region.buf]
    whole = (
        not box
        and all(not b.terms and not b.const for b in region.begin)
        and region.size == buf.shape
    )
    if whole:
        return region.buf
    parts = []
    for begin, size in zip(region.begin, region.size, strict=True):
        end = begin + size
        parts.append(f"{begin}:{end}")
    return f"{region.buf}[{', '.join(parts)}]"


_NUMBER = {"warp": "k.warp", "lane": "k.lane", "warpgroup": "k.warpgroup"}


def _lines(body: list[St], program: Program, depth: int, made: set[str]) -> list[str]:
    """Return statements as Python; ``made``: the tiles that one has allocated so far."""
    pad = "    " * depth
    out: list[str] = []

    def region(each: Reg | None) -> str:
        assert each is not None
        return _region(each, program)

    def boxed(each: Reg) -> str:
        return _region(each, program, True)

    for st in body:
        a = st.args
        if st.op == "copy":
            more = ""
            if a.get("asynchronous"):
                more += ", asynchronous=True"
            if a.get("dispatch"):
                more += f', dispatch="{a["dispatch"]}"'
            out.append(f"{pad}k.copy({region(st.dst)}, {region(st.src)}{more})")
        elif st.op == "zero":
            out.append(f"{pad}k.zero({region(st.dst)})")
        elif st.op == "assign":
            assert st.dst is not None
            value, name = a["value"].text(region), st.dst.buf
            if program.bufs[name].made and name not in made:
                made.add(name)
                out.append(f'{pad}{name} = k.tile("{name}", {value})')
            else:
                out.append(f"{pad}k.assign({region(st.dst)}, {value})")
        elif st.op == "gemm":
            more = "".join(f", {n}=True" for n in ("transpose_A", "transpose_B") if a.get(n))
            more += ", beta=1" if a.get("beta") else ""
            more += f', dispatch="{a["dispatch"]}"' if a.get("dispatch") else ""
            out.append(f"{pad}k.gemm({region(st.dst)}, {region(a['A'])}, {region(a['B'])}{more})")
        elif st.op == "gemm_async":
            more = "".join(f", {n}=True" for n in ("transA", "transB") if a.get(n))
            accum = a.get("accum", False)
            more += f", accum={accum}" if accum is not False else ""
            text = f"{region(st.dst)}, {region(a['A'])}, {region(a['B'])}{more}"
            out.append(f"{pad}k.gemm_async({text})")
        elif st.op == "sync":
            out.append(f'{pad}k.sync("{a["scope"]}")')
        elif st.op == "commit":
            out.append(f'{pad}k.commit("{a["of"]}")')
        elif st.op == "wait":
            out.append(f'{pad}k.wait({a["pending"]}, "{a["of"]}")')
        elif st.op == "arrive":
            out.append(f"{pad}k.arrive({a['barrier']}, {a['slot']})")
        elif st.op == "mbarrier_wait":
            out.append(f"{pad}k.mbarrier_wait({a['barrier']}, {a['slot']}, {a['parity']})")
        elif st.op == "tma_load":
            pairs = ", ".join(f"({boxed(d)}, {boxed(s)})" for d, s in a["copies"])
            more = ""
            if a.get("free"):
                name, slot, parity = a["free"]
                more = f", ({name}, {slot}, {parity})"
            out.append(f"{pad}k.tma_load({a['barrier']}, {a['slot']}, [{pairs}]{more})")
        elif st.op == "tma_store":
            pairs = ", ".join(f"({boxed(d)}, {boxed(s)})" for d, s in a["copies"])
            out.append(f"{pad}k.tma_store({pairs})")
        elif st.op == "tma_store_wait":
            out.append(f"{pad}k.tma_store_wait({a['pending']})")
        elif st.op == "loop":
            unroll = ", unroll=True" if a["unroll"] else ""
            out.append(f'{pad}with k.loop("{a["var"]}", {a["extent"]}{unroll}) as {a["var"]}:')
            out += _lines(st.body, program, depth + 1, made) or [f"{pad}    pass"]
        elif st.op == "when":
            number = _NUMBER.get(a["number"], a["number"])
            extent = {"warp": program.warps, "lane": WARP}.get(a["number"], program.warps // 4)
            high = extent if a["high"] is None else a["high"]
            least = f", at_least={a['low']}" if a["low"] else ""
            condition = f"{number}, {high}{least}"
            if a.get("compared") and not a["low"]:
                condition = f"{number} < {high}"
            elif a.get("compared") and a["high"] is None:
                condition = f"{number} >= {a['low']}"
            out.append(f"{pad}with k.when({condition}):")
            out += _lines(st.body, program, depth + 1, made) or [f"{pad}    pass"]
        elif st.op == "producer":
            out.append(f"{pad}with k.producer():")
            out += _lines(st.body, program, depth + 1, made)
        elif st.op == "block":
            out += _lines(st.body, program, depth, made)
        else:
            raise AssertionError(st.op)
    return out


# -- the meaning -----------------------------------------------------------------------------------

UNKNOWN = np.nan
LARGEST = float(1 << 22)  # integers up to it are exact in every accumulator and sum


class Meaning:
    """Runs a program sequentially on whole matrices."""

    def __init__(self, program: Program) -> None:
        """Start with what is given."""
        self.program = program
        self.memory: dict[str, Array] = {}
        for name, value in program.given.items():
            self.memory[name] = value.astype(np.float64)
        self.active = np.ones(program.threads, dtype=bool)
        self.env: dict[str, int] = {}
        self.coming: Iterator[tuple[St, dict[str, int]]] | None = None  # a producer's fills

    def run(self) -> dict[str, Array]:
        """Run every CTA; return the parameters, in their types."""
        program = self.program
        for cta in range(program.grid):
            for b in program.bufs.values():
                if b.scope == "local":
                    self.memory[b.name] = np.full((program.warps, *b.shape), UNKNOWN)
                elif b.scope == "shared":
                    self.memory[b.name] = np.full(b.shape, UNKNOWN)
            self.env = {"cta": cta, "k.block[0]": cta}
            self.do(program.body)
        return {
            b.name: self.memory[b.name].astype(NUMPY[b.dtype])
            for b in program.bufs.values()
            if b.scope == "global"
        }

    def do(self, body: list[St]) -> None:
        """Run statements."""
        for st in body:
            a = st.args
            if st.op == "loop":
                for step in range(a["extent"]):
                    self.env[a["var"]] = step
                    self.do(st.body)
                del self.env[a["var"]]
            elif st.op == "when":
                before = self.active
                thread = np.arange(self.program.threads)
                number = {"warp": thread // 32, "lane": thread % 32, "warpgroup": thread // 128}
                value = number.get(a["number"])
                if value is None:
                    value = np.full(self.program.threads, self.env[a["number"]])
                high = self.program.threads if a["high"] is None else a["high"]
                self.active = before & (value >= (a["low"] or 0)) & (value < high)
                if self.active.any():
                    self.do(st.body)
                self.active = before
            elif st.op in ("block",):
                self.do(st.body)
            elif st.op == "copy":
                self.copy(st.dst, st.src)
            elif st.op in ("tma_store",):
                for dst, src in a["copies"]:
                    self.copy(dst, src)
            elif st.op == "producer":
                self.coming = self.fills(st.body, dict(self.env))
            elif st.op == "mbarrier_wait":
                self.awaited(st)
            elif st.op == "tma_load":
                for dst, src in a["copies"]:
                    self.copy(dst, src)
            elif st.op == "zero":
                self.put(st.dst, np.zeros(st.dst.size))
            elif st.op == "assign":
                self.assign(st.dst, a["value"])
            elif st.op in ("gemm", "gemm_async"):
                self.gemm(st)

    def fills(self, body: list[St], env: dict[str, int]) -> Iterator[tuple[St, dict[str, int]]]:
        """Yield a producer's fills in order, each with its variables."""
        for st in body:
            if st.op == "loop":
                for step in range(st.args["extent"]):
                    yield from self.fills(st.body, env | {st.args["var"]: step})
            else:
                yield st, env

    def awaited(self, st: St) -> None:
        """Do the producer's next fill, which is what this waits for."""
        if self.coming is None or not str(st.args["barrier"]).startswith("full"):
            return
        fill, env = next(self.coming)
        mine, self.env = self.env, env
        for dst, src in fill.args["copies"]:
            self.copy(dst, src)
        self.env = mine

    def copy(self, dst: Reg, src: Reg) -> None:
        """``dst = src``."""
        bufs = self.program.bufs
        if bufs[dst.buf].scope == bufs[src.buf].scope == "local":
            values, known = self.collapse(src)
            self.check(values[known])
            if not known.all():
                raise RejectError("a copy of what nobody holds")
            self.put(dst, values.reshape(dst.size))
        elif bufs[dst.buf].scope == "local":
            values = self.memory_of(src)
            self.put(dst, values.reshape(dst.size))
        elif bufs[src.buf].scope == "local":
            values, known = self.collapse(src)
            self.store(dst, values.reshape(dst.size), known.reshape(dst.size))
        else:
            values = self.memory_of(src).reshape(dst.size)
            self.store(dst, values, np.ones(dst.size, dtype=bool))

    def inside(self, region: Reg) -> Array:
        """Return which elements of a region lie within its buffer's bounds."""
        bounds = self.program.bufs[region.buf].bounds
        good = np.ones(region.size, dtype=bool)
        if bounds:
            for dim, name in enumerate(bounds):
                if name is not None:
                    start = region.begin[dim].at(self.env)
                    at = start + np.arange(region.size[dim])
                    shape = [1] * len(region.size)
                    shape[dim] = -1
                    good &= (at < self.program.scalars[name][1]).reshape(shape)
        return good

    def memory_of(self, region: Reg) -> Array:
        """Return what is in memory; zeros beyond bounds."""
        values = self.memory[region.buf][region.slices(self.env)]
        assert values.shape == region.size, (region, self.env)
        return np.where(self.inside(region), values, 0.0)

    def store(self, region: Reg, values: Array, known: Array) -> None:
        """Write memory where somebody holds a value, within bounds."""
        where = known & self.inside(region)
        self.check(values[where])
        box = self.memory[region.buf][region.slices(self.env)]
        box[where] = values[where]

    def check(self, values: Array) -> None:
        """Refuse what nothing wrote."""
        if np.isnan(values).any():
            raise RejectError("reads what nothing wrote, or is no number")

    def mask(self, region: Reg) -> Array:
        """Return which warps' active threads hold each element: (warps, *size)."""
        buf, program = self.program.bufs[region.buf], self.program
        held = holders(buf.bits, buf.shape, program.threads)
        here = held[(slice(None), *region.slices(self.env))]
        if not self.active.all():
            here = here & self.active.reshape(-1, *([1] * len(region.size)))
        return here.reshape(program.warps, WARP, *region.size).any(axis=1)

    def own(self, region: Reg) -> Array:
        """Return each warp's matrix of a region in registers."""
        values = self.memory[region.buf][(slice(None), *region.slices(self.env))]
        self.check(values[self.mask(region)])
        return values

    def put(self, region: Reg, values: Array) -> None:
        """Set registers where active threads hold them; values for all warps, or for each."""
        box = self.memory[region.buf][(slice(None), *region.slices(self.env))]
        mask = self.mask(region)
        value = np.broadcast_to(values, box.shape)
        self.check(value[mask])
        box[mask] = value[mask]

    def collapse(self, region: Reg) -> tuple[Array, Array]:
        """Return the one matrix that the holders of a region have, and where there is one."""
        values = self.memory[region.buf][(slice(None), *region.slices(self.env))]
        mask = self.mask(region)
        first = mask.argmax(axis=0)
        found = np.take_along_axis(values, first[None], axis=0)[0]
        if (np.where(mask, values, found) != found)[mask].any():
            raise RejectError("copies differ")
        return found, mask.any(axis=0)

    def assign(self, dst: Reg, value: Node) -> None:
        """``dst = value``, element by element."""
        mask = self.mask(dst)
        buf = self.program.bufs[dst.buf]
        lane = buf.bits.values("l").reshape(buf.shape)[dst.slices(self.env)]
        env = self.env | {"k.warp": np.arange(self.program.warps)[:, None, None], "k.lane": lane}

        def leaf(node: Node, whole: bool = False) -> Array:
            first = node.arguments[0]
            if node.what in JOINS:
                inner = evaluate(first, lambda each: leaf(each, True), np.ones((), dtype=bool))
                return reduced(node.what, inner, node.arguments[1])
            if node.what == "number":
                return np.asarray(first)
            if node.what == "scalar":
                return np.asarray(self.program.scalars[first][1])
            if node.what == "value":
                return np.asarray(first.at(env))
            if node.what == "index":
                axis, shape = node.arguments[1], [1, 1]
                shape[axis] = -1
                start = first.begin[axis].at(self.env)
                return np.arange(start, start + first.size[axis]).reshape(shape)
            if whole:  # of what all warps hold together
                found, known = self.collapse(first)
                self.check(np.where(known, found, np.nan))
                return found
            found = self.memory[first.buf][(slice(None), *first.slices(self.env))]
            self.check(np.broadcast_to(found, mask.shape)[mask])
            return np.where(np.isnan(found), 0.0, found)

        try:
            found = evaluate(value, leaf, mask)
        except InexactError as error:
            raise RejectError(str(error)) from None
        self.put(dst, found.astype(np.float64))

    def gemm(self, st: St) -> None:
        """``D = A·B`` or ``D += A·B``."""
        operands = []
        for role in "AB":
            region = st.args[role]
            if self.program.bufs[region.buf].scope == "local":
                value, known = self.collapse(region)
                self.check(value[known])
                if not known.all():
                    raise RejectError("an operand that nobody holds")
            else:
                value = self.memory_of(region)
            exact(value)
            value = value.reshape([n for n in region.size if n != 1] or [1])
            flip = st.args.get(f"transpose_{role}") or st.args.get(f"trans{role}")
            operands.append(value.T if flip else value)
        total = operands[0] @ operands[1]
        if st.op == "gemm":
            adds = bool(st.args.get("beta"))
        else:
            adds = st.args.get("accum", False)
            adds = adds if isinstance(adds, bool) else bool(adds.at(self.env))
        value = np.broadcast_to(total.reshape(st.dst.size), (self.program.warps, *st.dst.size))
        if adds:
            value = value + self.own(st.dst)
        dtype = NUMPY[self.program.bufs[st.dst.buf].dtype]
        with np.errstate(invalid="ignore"):
            value = value.astype(dtype).astype(np.float64)
        exact(value[self.mask(st.dst)])
        self.put(st.dst, value)


def exact(values: Array) -> None:
    """Refuse what sums and products may round."""
    if (np.abs(values) > LARGEST).any() or (values != np.rint(values)).any():
        raise RejectError("a sum or a product that is not exact")


def meaning(program: Program) -> dict[str, Array]:
    """Return every parameter after a program has run.

    Raises:
        RejectError: the program reads what nothing wrote, or its numbers are not exact.
    """
    return Meaning(program).run()


# -- what a program has ----------------------------------------------------------------------------


def kinds(program: Program) -> set[str]:
    """Return the kinds of primitive: copies by where they go, and the others by name."""
    found = set()
    for _, _, st in statements(program.body):
        if st.op == "copy":
            assert st.dst is not None
            assert st.src is not None
            ends = [program.bufs[each.buf].scope for each in (st.src, st.dst)]
            found.add("cp.async" if st.args.get("asynchronous") else " to ".join(ends))
        elif st.op in (
            "zero",
            "assign",
            "gemm",
            "gemm_async",
            "tma_load",
            "tma_store",
        ):
            found.add(st.op)
    return found


def features(program: Program) -> dict[str, bool]:
    """Return what a program has of what the mix of kernels must have."""
    every = [st for _, _, st in statements(program.body)]
    ops = {st.op for st in every}
    values = [st.args["value"] for st in every if st.op == "assign"]
    functions = {node.what for value in values for node in value.nodes()}
    found = kinds(program)
    stays = any(st.op == "loop" and not st.args["unroll"] and st.args["extent"] > 1 for st in every)
    return {
        "two or more warps": program.warps > 1,
        "a loop that stays": stays,
        "four kinds of primitive": len(found) >= 4,
        "cp.async": "cp.async" in found,
        "mbarriers": "arrive" in ops,
        "TMA": bool({"tma_load", "tma_store"} & ops),
        "wgmma": "gemm_async" in ops,
        "a producer warpgroup": "producer" in ops,
        "casts": "cast" in functions,
        "an epilogue by warps": "epilogue" in program.features,
        "mma": "gemm" in ops,
        "a branch": "when" in ops,
        "a grid": program.grid > 1,
        "expressions": bool(functions - {"cast", *LEAVES}),
        "reductions": bool(functions & {*JOINS}),
        "register copies": any(
            {program.bufs[each.buf].scope for each in (st.dst, st.src)} == {"local"}
            for st in every
            if st.op == "copy"
        ),
        "tma_store": "tma_store" in ops,
        "bounds": any(b.bounds and any(b.bounds) for b in program.bufs.values()),
    }


def count_statements(program: Program) -> int:
    """Return how many statements a program has; containers do not count."""
    return sum(
        st.op not in ("block", "loop", "when", "producer") for _, _, st in statements(program.body)
    )
