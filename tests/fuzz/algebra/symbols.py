"""Proofs about layouts with symbols, held against substitution.

``python -m tests.fuzz.algebra.symbols --cases 10000 --seed 0 [--first 17]`` draws layouts over one
to three symbols and asks ``equivalent``, ``prove``, ``is_injective``, ``covers`` or ``inverse``.
Numbers are then put in for the symbols, and ``tests.support.oracle``, which imports nothing of
ours, says by the definitions what holds. An answer is

- proved: it holds at every substitution tried; refuted: it fails at every one, and the
  counter-example is one;
- open: no answer, and rightly: it holds at some of the values and fails at others;
- undecided: no answer, although the substitutions agree;
- wrong: anything else. Each is printed, and the exit status is 1.

Every third case is a full row-major or tiled matrix over two or three symbols (``--matrices``: all
of them are); there, "undecided" is a fault, too, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import sympy

from layoutalg import Iter, LayoutError, TileLayout, Undecided, Verdict, fragments, prove, where
from layoutalg.proofs.verdict import Collision, Difference, Gap
from tests.support import oracle

MOST = 700  # places of a layout that are compared one by one
MATRICES = 3  # one case in so many is a full matrix
FACTS: tuple[dict[str, bool], ...] = ({}, {}, {}, {}, {"even": True}, {"odd": True})
QUESTIONS = ("equivalent", "prove", "injective", "covers", "inverse")

Env = dict[str, int]
Formula = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A layout over a shape, another layout, and a formula given the values of the symbols."""

    question: str
    layout: TileLayout
    other: TileLayout
    shape: tuple[Any, ...]
    formula: Callable[[dict[str, Any]], Formula]
    symbols: tuple[Any, ...]
    matrix: bool


# -- numbers for symbols, without the product -----------------------------------------------------


def number(size: Any, env: Env) -> int:
    """Return a size with numbers for its symbols."""
    expr = sympy.sympify(size)
    return int(expr.xreplace({s: sympy.Integer(env[s.name]) for s in expr.free_symbols}))


def plain(layout: TileLayout, env: Env) -> oracle.Layout:
    """Return a layout with numbers for its symbols, as the oracle takes it."""

    def each(iters: Sequence[Iter]) -> list[Any]:
        return [[number(it.extent, env), number(it.stride, env), it.axis.name] for it in iters]

    offset = {axis.name: number(value, env) for axis, value in layout.offset.items()}
    return {"shard": each(layout.shard), "replica": each(layout.replica), "offset": offset}


def places_of(layout: oracle.Layout) -> int:
    """Return how many places a layout has, repeated ones too."""
    return math.prod(e for e, _, _ in layout["shard"] + layout["replica"])


def values_of(symbol: Any) -> list[int]:
    """Return the values that are put in for a symbol, its declared facts kept."""
    start, step = (2, 2) if symbol.is_even else (1, 2) if symbol.is_odd else (1, 1)
    return [start + step * k for k in range(3)]


def environments(case: Case) -> list[Env]:
    """Return substitutions under which the layouts stay small: the least values, and others."""
    names = [s.name for s in case.symbols]
    found = []
    for values in itertools.product(*map(values_of, case.symbols)):
        env = dict(zip(names, values, strict=True))
        try:
            sizes = [places_of(plain(each, env)) for each in (case.layout, case.other)]
        except KeyError:
            raise AssertionError(f"{case} has another symbol") from None
        if max(sizes) <= MOST:
            found.append(env)
    step = max(1, len(found) // 9)  # spread over all, the last symbol's values too
    return found[:1] + found[1::step][:9] + found[-1:]


# -- draws ----------------------------------------------------------------------------------------


class Draw:
    """Draws of one case."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def symbols(self, least: int) -> tuple[Any, ...]:
        """Return symbols: positive integers, some even or odd."""
        count = self.rng.randint(least, 3)
        return tuple(
            sympy.Symbol(name, integer=True, positive=True, **self.rng.choice(FACTS))
            for name in ("a", "b", "c")[:count]
        )

    def matrix(self, symbols: Sequence[Any]) -> tuple[TileLayout, TileLayout, tuple[Any, ...]]:
        """Return a full matrix, the same in another spelling, and its shape."""
        rng = self.rng
        tile = rng.choice([(1, 1), (2, 2), (4, 2), (3, 1), (8, 8), (16, 8)])
        operand = {(8, 8): "B", (16, 8): "D"}.get(tile)
        inner = (
            dense(tile, rng)
            if operand is None
            else fragments.get("mma.m16n8k8.f16", operand).layout
        )
        counts: list[Any] = [1, 1]
        for symbol in symbols:
            counts[rng.randrange(2)] *= symbol
        if rng.random() < 0.4:
            counts[rng.randrange(2)] *= rng.choice([2, 3])
        shape = (counts[0] * tile[0], counts[1] * tile[1])
        grid = TileLayout.from_iters(row_major(counts))
        once, again = inner.tile_to(shape, tile), inner.tile(grid, counts, tile)
        pieces = [[f for f in (sympy.sympify(n).as_coeff_Mul()) if f != 1] for n in counts]
        split = [*pieces[0], *(e for e in (tile[0],) if e > 1), *pieces[1], *(
            e for e in (tile[1],) if e > 1)]  # fmt: skip
        spelled = once.group([int(e) if e.is_Integer else e for e in map(sympy.sympify, split)])[0]
        return once, rng.choice([again, spelled, once.canonicalize()]), shape

    def extent(self, symbols: Sequence[Any]) -> Any:
        """Return an extent, with symbols more often than not."""
        choice = [2, 3, 4, *symbols, *symbols, 2 * symbols[0], symbols[0] + 1]
        return self.rng.choice([*choice, symbols[0] * symbols[-1]])

    def random(self, symbols: Sequence[Any]) -> tuple[TileLayout, tuple[Any, ...]]:
        """Return a layout whose strides are dense, or nearly, or anything, and a shape of it."""
        rng = self.rng
        axes = rng.choice([("m",), ("m",), ("m", "laneid"), ("m", "TCol", "laneid")])
        reached: dict[str, Any] = dict.fromkeys(axes, 1)
        iters: list[Iter] = []
        for _ in range(rng.randint(1, 4)):
            axis, extent = rng.choice(axes), self.extent(symbols)
            wild = [0, 1, -1, symbols[0], symbols[-1] + 1, -symbols[0], 3, 2 * reached[axis]]
            stride = reached[axis] if rng.random() < 0.75 else rng.choice(wild)
            reached[axis] = sympy.expand(extent * reached[axis])
            iters.append(Iter(extent, stride, axis))
        if rng.random() < 0.3:
            rng.shuffle(iters)
        replica = []
        if rng.random() < 0.3:
            axis = rng.choice(axes)
            replica = [Iter(rng.choice([1, 2, 3, symbols[0]]), rng.choice(
                [0, 1, -1, symbols[-1], reached[axis], reached[axis]]), axis)]  # fmt: skip
        offset = rng.choice([{}, {}, {"m": 3}, {"m": -symbols[0]}])
        layout = TileLayout.from_iters(iters[::-1], replica, offset)
        shape = tuple(it.extent for it in layout.shard)
        if len(shape) > 1 and rng.random() < 0.5:
            shape = (sympy.expand(shape[0] * shape[1]), *shape[2:])
        return layout, tuple(int(e) if sympy.sympify(e).is_Integer else e for e in shape)

    def variant(self, layout: TileLayout, symbols: Sequence[Any]) -> TileLayout:
        """Return the layout spelled differently, or changed in one place."""
        rng = self.rng
        shard, replica = list(layout.shard), list(layout.replica)
        offset: dict[str, Any] = {axis.name: value for axis, value in layout.offset.items()}
        kind = rng.randrange(9)
        if kind == 0:
            return layout.canonicalize()
        at = rng.randrange(len(shard))
        it = shard[at]
        if kind == 1:  # a digit is cut
            shard[at : at + 1] = [
                Iter(it.extent, 2 * it.stride, it.axis),
                Iter(2, it.stride, it.axis),
            ]
            if rng.random() < 0.5:
                return TileLayout.from_iters(shard, replica, offset)
            shard[at] = Iter(2, it.extent * it.stride, it.axis)
            shard[at + 1] = Iter(it.extent, it.stride, it.axis)
        elif kind == 2:
            shard[at] = Iter(it.extent, it.stride + rng.choice([1, -1, symbols[0]]), it.axis)
        elif kind == 3:
            shard[at] = Iter(it.extent, it.stride, rng.choice(["m", "laneid"]))
        elif kind == 4:
            offset = {} if offset else {"m": rng.choice([0, 1, symbols[0]])}
        elif kind == 5:
            replica.append(Iter(rng.choice([1, 2, symbols[0]]), rng.choice([0, 1, 5]), "m"))
        elif kind == 6 and len(shard) > 1:
            shard[at - 1], shard[at] = shard[at], shard[at - 1]
        elif kind == 7:
            shard.insert(at, Iter(1, 7, "m"))
        elif replica:
            last = replica[0]
            moved = (last.extent - 1) * last.stride
            replica[0] = Iter(last.extent, -last.stride, last.axis)
            offset[last.axis.name] = offset.get(last.axis.name, 0) + moved
        return TileLayout.from_iters(shard, replica, offset)


def dense(shape: Sequence[int], rng: Random) -> TileLayout:
    """Return a dense tile, row-major or column-major."""
    rows, columns = shape
    strides = (columns, 1) if rng.random() < 0.7 else (1, rows)
    return TileLayout.from_iters([Iter(rows, strides[0]), Iter(columns, strides[1])])


def row_major(shape: Sequence[Any]) -> list[Iter]:
    """Return the iters of a row-major matrix."""
    found, stride = [], sympy.Integer(1)
    for extent in reversed(shape):
        found.append(Iter(extent, stride))
        stride = stride * extent
    return found[::-1]


def formula_of(
    layout: TileLayout, shape: Sequence[Any], twist: int, rng: Random
) -> Callable[[dict[str, Any]], Formula]:
    """Return a formula that says what the layout says, or twists it.

    It is given the values of the symbols, numbers or the symbols themselves, and works on ints and
    on symbolic coordinates alike.
    """
    constant = rng.choice([1, 3])

    def with_values(values: dict[str, Any]) -> Formula:
        def put(size: Any) -> Any:
            expr = sympy.sympify(size)
            found = expr.xreplace({s: sympy.sympify(values[s.name]) for s in expr.free_symbols})
            return int(found) if found.is_Integer else sympy.expand(found)

        def formula(*coord: Any) -> dict[str, Any]:
            flat: Any = 0
            for at, extent in zip(coord, shape, strict=True):
                flat = flat * put(extent) + at
            place = {axis.name: put(value) for axis, value in layout.offset.items()}
            for it in reversed(layout.shard):
                digit = flat % put(it.extent)
                flat = flat // put(it.extent)
                place[it.axis.name] = place.get(it.axis.name, 0) + digit * put(it.stride)
            name = layout.shard[-1].axis.name
            if twist == 1:
                place[name] = place[name] + constant
            elif twist == 2:
                place[name] = place[name] + where(coord[0] < constant, 5, 0)
            elif twist == 3:
                place[name] = place[name] + where(coord[0] < 0, 5, 0)
            elif twist == 4:
                place[name] = place[name] * (1 + constant)
            elif twist == 5:
                place[name] = where(coord[-1] >= 0, (place[name] << 70) >> 70, 0)
            return place

        return formula

    return with_values


def case_of(seed: int, index: int, matrices: bool = False) -> Case:
    """Return the case of this number: it depends on nothing else."""
    rng = Random(f"symbols {seed} {index}")
    draw = Draw(rng)
    matrix = matrices or index % MATRICES == 0
    symbols = draw.symbols(2 if matrix else 1)
    question = QUESTIONS[index // MATRICES % len(QUESTIONS)]
    if matrix:
        layout, other, shape = draw.matrix(symbols)
        if rng.random() < 0.3:  # surely another map
            offset = {axis.name: value for axis, value in other.offset.items()}
            other = TileLayout.from_iters(other.shard, other.replica, offset | {"m": 1})
        twist = rng.choice([0, 0, 0, 1, 3])
    else:
        layout, shape = draw.random(symbols)
        other = draw.variant(layout, symbols)
        if rng.random() < 0.3:
            other = draw.variant(other, symbols)
        twist = rng.choice([0, 0, 0, 1, 2, 3, 4, 5])
    formula = formula_of(layout, shape, twist, rng)
    return Case(question, layout, other, shape, formula, symbols, matrix)


# -- what holds, by the definitions ---------------------------------------------------------------


def holds(case: Case, env: Env) -> bool:
    """Say by the definitions whether the statement of a case holds where these are the values."""
    layout = plain(case.layout, env)
    images = oracle.images(layout)
    if case.question == "equivalent":
        return images == oracle.images(plain(case.other, env))
    if case.question == "prove":
        formula, shape = case.formula(dict(env)), [number(e, env) for e in case.shape]
        return all(
            {axis: v for axis, v in formula(*coord).items() if v} == oracle.base(layout, x)
            for x, coord in enumerate(oracle.every(shape))
        )
    taken = Counter(place for image in images for place in image)
    if case.question in ("injective", "inverse"):
        return max(taken.values()) == 1
    return len(taken) == math.prod(len(values) for values in box(taken, case, env).values())


def box(taken: Counter[Any], case: Case, env: Env) -> dict[str, range]:
    """Return per axis the coordinates from the lowest to the highest."""
    spread: dict[str, list[int]] = {}
    axes = {it.axis.name for it in case.layout.shard + case.layout.replica}
    for axis in axes | {axis.name for axis in case.layout.offset}:
        spread[axis] = [dict(place).get(axis, 0) for place in taken]
    return {axis: range(min(values), max(values) + 1) for axis, values in spread.items()}


def ask(case: Case) -> Any:
    """Ask the product."""
    if case.question == "equivalent":
        return case.layout.equivalent(case.other)
    if case.question == "prove":
        return prove(case.layout, case.shape, case.formula({s.name: s for s in case.symbols}))
    if case.question == "injective":
        return case.layout.is_injective()
    if case.question == "covers":
        return case.layout.covers()
    return case.layout.inverse(case.shape)


def shown_right(case: Case, verdict: Verdict, env: Env) -> bool:
    """Say whether a counter-example is one, and a degree right, where these are the values."""
    layout, reason = plain(case.layout, env), verdict.reason
    images = oracle.images(layout)

    def at(element: Sequence[Any]) -> int:
        numbers = [number(e, env) for e in element]
        if len(numbers) == 1 and case.question != "prove":
            return numbers[0]
        return oracle.flat(numbers, [number(e, env) for e in case.shape])

    def put(place: Any) -> frozenset[Any] | tuple[Any, ...]:
        found = ((axis, number(value, env)) for axis, value in place)
        return tuple(sorted(pair for pair in found if pair[1]))

    if isinstance(reason, Difference) and case.question == "equivalent":
        x = at(reason.element)
        one, other = images[x], oracle.images(plain(case.other, env))[x]
        left, right = set(map(put, reason.left)), set(map(put, reason.right))
        alone = (left - other) | (right - one)
        return one != other and left <= one and right <= other and bool(alone)
    if isinstance(reason, Difference):
        return set(map(put, reason.left)) == {
            tuple(sorted(oracle.base(layout, at(reason.element)).items()))
        } and put(reason.left[0]) != put(reason.right[0])
    if isinstance(reason, Collision):
        first, second = at(reason.first), at(reason.second)
        shared = images[first] & images[second]
        return first != second and put(reason.place) in shared
    taken = Counter(place for image in images for place in image)
    if isinstance(reason, Gap):
        return put(reason.place) not in taken
    if verdict.holds and case.question == "covers" and verdict.degree is not None:
        return set(taken.values()) == {number(verdict.degree, env)}
    return True


def inverted(case: Case, inverse: Any, env: Env) -> bool:
    """Say whether an inverse leads back from every place of every element."""
    layout, shape = plain(case.layout, env), [number(e, env) for e in case.shape]
    expressions = [sympy.sympify(e) for e in inverse.expressions()]
    for x, coord in enumerate(oracle.every(shape)):
        for place in oracle.image(layout, x):
            known = dict(place)
            for want, expr in zip(coord, expressions, strict=True):
                values = {s: known.get(s.name, env.get(s.name, 0)) for s in expr.free_symbols}
                if expr.xreplace({s: sympy.Integer(v) for s, v in values.items()}) != want:
                    return False
    return True


def judged(case: Case) -> str:
    """Ask, put in numbers, and say what the answer is worth."""
    envs = environments(case)
    if not envs:
        return "too large"
    try:
        answer = ask(case)
    except Undecided:
        truths = {holds(case, env) for env in envs}
        return "open" if len(truths) == 2 else "undecided"
    except LayoutError:
        if case.question != "inverse":
            return "wrong: refused"
        return "undecided" if case.matrix else "refused"
    if case.question == "inverse":
        back = all(inverted(case, answer, env) for env in envs)
        return "proved" if back else "wrong: the inverse leads elsewhere"
    if any(holds(case, env) is not answer.holds for env in envs):
        return "wrong: " + ("proved" if answer.holds else "refuted")
    if not all(shown_right(case, answer, env) for env in envs):
        return "wrong: the counter-example or the degree"
    return "proved" if answer.holds else "refuted"


def run(seed: int, numbers: Iterator[int], matrices: bool = False) -> Counter[tuple[str, str]]:
    """Judge cases, print what is wrong, and count by kind."""
    counts: Counter[tuple[str, str]] = Counter()
    for index in numbers:
        case = case_of(seed, index, matrices)
        verdict = judged(case)
        counts["matrices" if case.matrix else "random", verdict] += 1
        if verdict.startswith("wrong") or (case.matrix and verdict == "undecided"):
            print(f"{seed} {index}: {verdict}: {case}", flush=True)
    return counts


def at_fault(counts: Counter[tuple[str, str]]) -> int:
    """Return how many answers are wrong, or missing where none may be."""
    return sum(
        count
        for (kind, verdict), count in counts.items()
        if verdict.startswith("wrong") or (kind, verdict) == ("matrices", "undecided")
    )


def main() -> int:
    """Run the cases that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cases", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--matrices", action="store_true", help="full matrices only")
    asked = parser.parse_args()
    counts = run(asked.seed, iter(range(asked.first, asked.first + asked.cases)), asked.matrices)
    for (kind, verdict), count in sorted(counts.items()):
        print(f"{kind:9} {verdict:40} {count}")
    return 1 if at_fault(counts) else 0


if __name__ == "__main__":
    sys.exit(main())
