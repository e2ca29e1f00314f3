"""Proofs with symbols and formulas: decided where they can be, never wrongly, in a budget."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutalg import (
    ComposeLayout,
    LayoutError,
    R,
    S,
    TileLayout,
    Undecided,
    laneid,
    parse,
    prove,
    tx,
    warpid,
    where,
)
from layoutalg.proofs.formulas import exact
from layoutalg.proofs.verdict import Difference
from layoutalg.sizes.budget import CELLS, ENTRIES, OWNERS, SEARCHED, UNROLLED
from layoutalg.sizes.polynomials import divides_all, is_positive
from layoutalg.sizes.size import ascending, divides, equal, floordiv, less, quotient
from layoutalg.sizes.symbolic import symbol
from tests.fuzz.algebra import symbols
from tests.support import oracle

M, N, K = symbol("M"), symbol("N"), symbol("K")
even = sympy.Symbol("e", integer=True, positive=True, even=True)
odd = sympy.Symbol("o", integer=True, positive=True, odd=True)
D = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])

# -- matrices over symbols ------------------------------------------------------------------------


def test_a_dense_matrix_over_two_symbols_is_a_bijection() -> None:
    dense = TileLayout(S[(M, N) : (N, 1)])
    assert dense.is_injective()
    assert dense.covers(box={"m": M * N}).degree == 1
    assert dense.inverse((M, N)).at(m=N * 3 + 0 * M) == (3, 0)
    assert dense.equivalent(TileLayout(S[M * N : 1]))
    tiled = D.tile_to((16 * M, 8 * N), (16, 8))
    assert tiled.is_injective()
    assert tiled.covers().degree == 1
    assert str(tiled.inverse((16 * M, 8 * N)).expressions()[1]) == (
        "2*(laneid mod 4) + 8*((m//4) mod N) + (m mod 2)"
    )


@pytest.mark.slow
def test_full_matrices_leave_nothing_undecided() -> None:
    """The whole family: ``python -m tests.fuzz.algebra.symbols --matrices``."""
    counts = symbols.run(7, iter(range(60)), matrices=True)
    assert symbols.at_fault(counts) == 0
    assert counts["matrices", "proved"] >= 40
    assert counts["matrices", "refuted"] >= 4


@pytest.mark.slow
def test_no_proof_with_symbols_is_wrong() -> None:
    """A sample of ``python -m tests.fuzz.algebra.symbols --cases 10000 --seed 0``."""
    counts = symbols.run(0, iter(range(150)))
    assert symbols.at_fault(counts) == 0
    assert {verdict for _, verdict in counts} >= {"proved", "refuted", "open"}


def test_the_fuzz_sees_a_wrong_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "ask", lambda case: TileLayout(S[4:1]).is_injective())
    cases = [symbols.case_of(0, index) for index in range(40)]
    judged = {symbols.judged(c) for c in cases if c.question in ("injective", "equivalent")}
    assert "wrong: proved" in judged


def test_strides_are_ordered_by_what_is_at_most_what() -> None:
    assert ascending((N, 1, M * N)) == [1, 0, 2]
    assert ascending((N, M)) is None
    assert ascending((3, 1, 2)) == [1, 2, 0]
    with pytest.raises(Undecided, match="inverse: in what order are the strides"):
        TileLayout(S[(M, N) : (N, M)]).inverse((M, N))


def test_a_digit_that_may_be_of_one_element_is_no_clash() -> None:
    with pytest.raises(Undecided, match="inverse: has the iter M:0@m"):
        TileLayout(S[(M, 4) : (0, 1)]).inverse((M, 4))
    with pytest.raises(LayoutError, match="inverse: on axis m stride 0 must exceed 0"):
        TileLayout(S[(M + 1, 4) : (0, 1)]).inverse((M + 1, 4))
    assert not TileLayout(S[(M + 1, 4) : (0, 1)]).is_injective()
    with pytest.raises(Undecided):
        TileLayout(S[(M, 4) : (0, 1)]).is_injective()
    assert TileLayout(S[(1, 4) : (0, 1)]).is_injective()


# -- facts of symbols -----------------------------------------------------------------------------


def test_even_and_odd_symbols_decide() -> None:
    assert divides(2, even)
    assert divides(2, odd) is False
    assert divides(2, odd + 1)
    assert divides(4, 2 * even)
    assert divides(4, even * (even + 2))
    assert divides(8, (odd - 1) * (odd + 1))
    assert divides(6, M * (M + 1) * (M + 2))
    assert divides(6, M * (M + 1)) is None
    assert less(1, even)
    assert less(1, odd) is None
    assert quotient((odd + 1) * M, 1) == odd * M + M
    halves = TileLayout(S[(even, 4) : (4, 1)]).group((even / 2, 8))
    assert str(halves[0]) == "S[(e/2,2,4):(8,4,1)]"
    assert str(TileLayout(S[(odd + 1, 4) : (4, 1)]).group(((odd + 1) / 2, 8))[0]) == (
        "S[(o/2 + 1/2,2,4):(8,4,1)]"
    )
    assert TileLayout(S[(odd + 1, 4) : (4, 1)]).slice((odd + 1, 4), ((1, odd + 1), (0, 4)))


def test_witnesses_have_the_declared_facts() -> None:
    with pytest.raises(Undecided, match="they agree at o = 1; they differ at o = 3"):
        TileLayout(S[odd:1]).equivalent(TileLayout(S[odd:2]))
    assert not TileLayout(S[even:1]).equivalent(TileLayout(S[even:2]))


@pytest.mark.parametrize("facts", [{"negative": True}, {"zero": True}, {"nonpositive": True}])
def test_symbols_that_are_never_positive_are_no_extents(facts: dict[str, bool]) -> None:
    q = sympy.Symbol("q", integer=True, **facts)
    with pytest.raises(LayoutError, match="extent: must be at least 1; got q"):
        TileLayout(S[(q, 4) : (4, 1)])
    with pytest.raises(LayoutError, match="group: extent of the shape: must be at least 1; got q"):
        TileLayout(S[4:1]).group((q,))


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.tuples(*[st.integers(0, 2)] * 2), st.integers(-4, 4), min_size=1),
    st.tuples(*[st.integers(0, 2)] * 2),
)
def test_positive_polynomials_are_positive(terms: dict[Any, int], lows: tuple[int, ...]) -> None:
    if not is_positive(terms, lows):
        return
    for x in range(lows[0], lows[0] + 5):
        for y in range(lows[1], lows[1] + 5):
            assert sum(c * x**i * y**j for (i, j), c in terms.items()) > 0


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 12),
    st.dictionaries(st.tuples(*[st.integers(0, 3)] * 2), st.integers(-9, 9), min_size=1),
    st.tuples(*[st.sampled_from([None, 0, 1])] * 2),
)
def test_divisibility_by_residues_is_that_of_the_values(
    modulus: int, terms: dict[Any, int], parity: tuple[int | None, ...]
) -> None:
    answer = divides_all(modulus, terms, parity)
    runs = [range(40) if p is None else range(p, 40, 2) for p in parity]
    seen = {
        sum(c * x**i * y**j for (i, j), c in terms.items()) % modulus == 0
        for x in runs[0] for y in runs[1]
    }  # fmt: skip
    if answer is not None:
        assert seen == {answer}
    elif modulus in (2, 3, 4, 5, 7, 8, 9, 11):  # a prime power: nothing is left open wrongly
        assert len(seen) == 2


# -- formulas -------------------------------------------------------------------------------------


def test_a_symbolic_index_has_no_truth_value() -> None:
    row = TileLayout(S[(N, 8) : (8, 1)])
    message = r"prove: .* has no truth value; write a branch as layoutalg\.where\(condition, a, b\)"
    for formula in (
        lambda i, j: {"m": 8 * i + j + (100 if i == 0 else 0)},
        lambda i, j: {"m": 8 * i + (j if j else 0)},
        lambda i, j: {"m": 8 * i + min(j, 7)},
        lambda i, j: {"m": 8 * i + j * (not i)},
        lambda i, j: {"m": 8 * i + (i < 3 and j)},
        lambda i, j: {"m": 8 * i + (j < 8)},
    ):
        with pytest.raises(LayoutError, match=message):
            prove(row, (N, 8), formula)
    with pytest.raises(LayoutError, match=message):
        prove(row.subs({"N": 4}), (4, 8), lambda i, j: {"m": 8 * i + j if i == 0 else 0})


def test_where_branches_on_numbers_and_on_symbols() -> None:
    row = TileLayout(S[(N, 8) : (8, 1)])
    wrong = prove(row, (N, 8), lambda i, j: {"m": 8 * i + j + where(i == 0, 100, 0)})
    assert isinstance(wrong.reason, Difference)
    assert wrong.reason.element == (0, 0)
    assert prove(row, (N, 8), lambda i, j: {"m": where((j < 8) & (i >= 0), 8 * i + j, 0)})
    assert prove(row, (N, 8), lambda i, j: {"m": where(~(j < 8) | (j > 9), 0, 8 * i + j)})
    with pytest.raises(Undecided, match=r"where: is d0 < 3\? .* write the formula without"):
        prove(row, (N, 8), lambda i, j: {"m": where(i < 3, 8 * i + j, j + i * 8)})
    halves = parse("S[(2,2,8):(20,8,1)]")
    assert prove(halves, (4, 8), lambda i, j: {"m": 8 * i + j + where(i < 2, 0, 4)})
    assert not prove(halves, (4, 8), lambda i, j: {"m": 8 * i + j + where(i < 1, 0, 4)})
    assert where(True, 1, 2) == 1


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (lambda i, j: {"m": 8 * i ^ j}, "prove: a symbolic index knows"),
        (lambda i, j: {"m": 2**i}, "prove: a symbolic index knows"),
        (lambda i, j: {"m": i / 2}, "prove: a symbolic index knows"),
        (lambda i, j: {"m": 7 // (j + 1)}, "prove: a symbolic index knows"),
        (lambda i, j: {"m": i // 0}, "prove: a formula must not divide by zero"),
        (lambda i, j: {"m": i % j}, "prove: a formula must not divide by zero"),
        (lambda i, j: {"m": i << 10**9}, "prove: a symbolic index shifts by a number from 0"),
        (lambda i, j: {"m": i & -1}, "prove: the mask of a symbolic index must be"),
    ],
)
def test_what_a_symbolic_index_does_not_know(formula: Any, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        prove(TileLayout(S[(N, 8) : (8, 1)]), (N, 8), formula)


def test_formulas_do_not_wrap_at_64_bits() -> None:
    for layout, shape in (
        (parse("S[(4,4):(4,1)]"), (4, 4)),
        (ComposeLayout(0, 0, 0, parse("S[(4,4):(4,1)]")), (4, 4)),
    ):
        assert not prove(layout, shape, lambda i, j: {"m": 4 * i + j + (i << 64)})
        assert not prove(layout, shape, lambda i, j: {"m": 4 * i + j + i * (1 << 32) * (1 << 32)})
        assert not prove(layout, shape, lambda i, j: {"m": 4 * i + j + 2**64})
        assert prove(layout, shape, lambda i, j: {"m": ((4 * i + j) << 70) >> 70})
        assert prove(layout, shape, lambda i, j: {"m": ((4 * i + j) * 10**30 + 7) // 10**30})
        assert prove(layout, shape, lambda i, j: {"m": (4 * i + j + 2**63) - 2**63})
        assert prove(layout, shape, lambda i, j: {"m": np.where(i >= 0, 4 * i + j, 2**70)})


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2),
    st.sampled_from(["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "<", "==", "**"]),
)
def test_exact_arrays_are_pythons_integers(
    left: list[int], right: list[int], operator: str
) -> None:
    if operator in ("//", "%"):
        right = [r or 1 for r in right]
    if operator in ("<<", ">>", "**"):
        right = [abs(r) % 90 for r in right]
    one, other = exact(np.array(left)), exact(np.array(right))
    found = eval(f"one {operator} other", {"one": one, "other": other})
    wanted = [eval(f"a {operator} b", {"a": a, "b": b}) for a, b in zip(left, right, strict=True)]
    assert found.tolist() == wanted
    mixed = eval(f"one {operator} b", {"one": one, "b": right[0]})
    assert mixed.tolist() == [eval(f"a {operator} b", {"a": a, "b": right[0]}) for a in left]


# -- replicas -------------------------------------------------------------------------------------


def test_replicas_are_compared_under_a_swizzle() -> None:
    plain, doubled = parse("S[(8,64):(64,1)]"), parse("S[(8,64):(64,1)] + R[2:512]")
    one, two = (ComposeLayout(3, 3, 3, tile) for tile in (plain, doubled))
    verdict = prove(two, (8, 64), one)
    assert str(verdict).splitlines()[1:] == [
        "element (0, 0): the left has it at (m 0) and (m 512), the right at (m 0)",
        "512 of 512 elements differ",
    ]
    assert prove(two, (8, 64), ComposeLayout(3, 3, 3, parse("S[512:1] + R[2:-512] + 512")))
    assert prove(one, (8, 64), one.over(parse("S[512:1] + R[4:0]")))
    assert not prove(one, (8, 64), plain)
    assert prove(ComposeLayout(3, 0, 3, doubled), (8, 64), doubled)
    many = one.over(parse("S[(8,64):(64,1)] + R[16:512]"))
    found = prove(many, (8, 64), one.over(parse("S[(8,64):(64,1)] + R[15:512]"))).reason
    assert str(found).startswith("element (0, 0): the left has it at (m 7680), the right does not")


def test_one_swizzle_over_symbols_is_compared_by_its_tiles() -> None:
    left, right = (ComposeLayout(3, 3, 3, parse(t)) for t in ("S[(M,64):(64,1)]", "S[M*64:1]"))
    assert prove(left, (M, 64), right)
    assert not prove(left, (M, 64), right.over(parse("S[M*64:1] + 1")))
    assert not prove(left, (M, 64), right.over(parse("S[M*64:1] + R[2:M*64]")))
    with pytest.raises(Undecided):
        prove(left, (M, 64), ComposeLayout(3, 2, 3, parse("S[M*64:1]")))


COPIES = (
    "", " + R[2:8]", " + R[(2,2):(8,8)]", " + R[3:8]", " + R[2:-8] + 8", " + R[4:0]",
    " + R[2:1@warpid]",
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_swizzled_verdicts_are_those_of_the_sets(data: st.DataObject) -> None:
    def layout() -> Any:
        copies = data.draw(st.sampled_from(COPIES))
        tile = parse(data.draw(st.sampled_from(["S[8:1]", "S[(2,4):(4,1)]"])) + copies)
        lengths = data.draw(st.sampled_from([(0, 0, 0), (0, 1, 2), (1, 1, 1)]))
        return ComposeLayout(*lengths, tile)

    def sets(layout: Any) -> list[set[Any]]:
        table = layout.table((8,), replicas=True)
        return [
            {
                tuple(sorted((name, int(v[x, k])) for name, v in table.items() if v[x, k]))
                for k in range(table["m"].shape[1])
            }
            for x in range(8)
        ]

    left, right = layout(), layout()
    assert bool(prove(left, (8,), right)) == (sets(left) == sets(right))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("S[4:1] + R[16:4]", "S[4:1] + R[16:8]"),
        ("S[4:1] + R[9:4]", "S[4:1] + R[10:4]"),
        ("S[4:1] + R[(3,3,3):(4,16,64)]", "S[4:1] + R[(3,3,3):(4,20,60)]"),
        ("S[4:1] + R[5000:4]", "S[4:1] + R[5001:4]"),
        ("S[4:1] + R[5000:4] + 4", "S[4:1] + R[5000:4]"),
        ("S[4:1] + R[(5000,2):(4@warpid,1)]", "S[4:1] + R[(5000,2):(4@warpid,2)]"),
    ],
)
def test_a_refutation_shows_a_place_that_differs(left: str, right: str) -> None:
    for one, other in ((left, right), (right, left)):
        reason = parse(one).equivalent(parse(other)).reason
        assert isinstance(reason, Difference)
        (x,) = reason.element
        images = [oracle.image(as_dict(parse(each)), int(x)) for each in (one, other)]
        shown = [{tuple(sorted(p for p in place if p[1])) for place in side}
                 for side in (reason.left, reason.right)]  # fmt: skip
        assert shown[0] <= images[0]
        assert shown[1] <= images[1]
        assert (shown[0] - images[1]) | (shown[1] - images[0])


def as_dict(layout: TileLayout) -> oracle.Layout:
    return {
        "shard": [[it.extent, it.stride, it.axis.name] for it in layout.shard],
        "replica": [[it.extent, it.stride, it.axis.name] for it in layout.replica],
        "offset": {axis.name: value for axis, value in layout.offset.items()},
    }


def test_a_refutation_of_symbolic_replicas_shows_a_corner() -> None:
    left, right = parse("S[4:1] + R[n:4]"), parse("S[4:1] + R[n+1:4]")
    assert "the right has it at (m 4*n), the left does not" in str(left.equivalent(right))
    assert "the left has it at (m 4*n), the right does not" in str(right.equivalent(left))


# -- inverses and unit axes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("S[(8,1,4):(4@laneid,3@warpid,1@laneid)]", (8, 4)),
        ("S[(1,1):(4@laneid,3)]", (1,)),
        ("S[8:1] + R[1:3@TCol]", (8,)),
        ("S[8:1] + R[4:0@TCol] + 5@Bank", (2, 4)),
        ("S[(1,4):(1@warpid,1)] + 2@warpid", (4,)),
    ],
)
def test_the_inverse_takes_every_axis_of_the_layout(text: str, shape: tuple[int, ...]) -> None:
    layout = parse(text)
    inverse = layout.inverse(shape)
    for coord in oracle.every(shape):
        assert inverse.at(**layout.apply(*coord, shape=shape)) == coord
        for place in layout.owners(*coord, shape=shape):
            assert inverse.at(**place) == coord
    unmoved = next(iter((*inverse.still, *inverse.offset)))
    start = inverse.offset.get(unmoved, 0)
    place = layout.apply(*(0 for _ in shape), shape=shape) | {unmoved.name: start + 1}
    assert inverse.at(**place) is None


# -- budgets --------------------------------------------------------------------------------------


def test_products_of_many_symbols_are_quick() -> None:
    began = time.process_time()
    names = [f"a{k}" for k in range(16)]
    strides = ["*".join(names[k + 1 :]) or "1" for k in range(16)]
    dense = parse(f"S[({','.join(names)}):({','.join(strides)})]")
    assert dense.is_injective()
    assert dense.equivalent(parse(f"S[{'*'.join(names)}:1]"))
    assert dense.covers().degree == 1
    assert equal(sympy.prod(map(symbol, names)), sympy.prod(map(symbol, names[::-1])))
    assert less(sympy.prod(symbol(x) + 1 for x in names[:8]), 1) is False
    assert time.process_time() - began < 60


@pytest.mark.parametrize(
    "text",
    [
        "S[(a+b+c+d)**24:1]",
        "S[8:(a+b+c+d)**24]",
        "S[8:1] + (a+b+c+d)**24",
        "S[(a+b+c+d)**24//8:1]",
        "S[(a+b+c+d)**24 mod 8:1]",
        "S[" + "*".join(f"(a{k}+1)" for k in range(16)) + ":1]",
        "S[((((a+b)**8+c)**8+d)**8):1]",
    ],
)
def test_what_would_expand_without_end_is_refused(text: str) -> None:
    began = time.process_time()
    with pytest.raises(LayoutError, match="must have at most 512 terms when it is multiplied out"):
        parse(text)
    assert time.process_time() - began < 5


def test_a_product_of_sizes_beyond_the_budget_is_undecided() -> None:
    names = [f"a{k}" for k in range(12)]
    factors = [sympy.prod(symbol(n) + 1 for n in names[k : k + 6]) for k in (0, 6)]
    with pytest.raises(Undecided, match="at most 512 terms"):
        equal(factors[0] * factors[1], 8)
    layout = TileLayout(S[tuple(factors) : (factors[1], 1)])
    with pytest.raises(LayoutError, match="at most 512 terms"):
        layout.is_injective()


def test_sizes_nest_to_a_depth() -> None:
    size: Any = N
    for _ in range(7):
        size = floordiv(size * M + 1, 3)
    with pytest.raises(Undecided, match="nested at most 24 deep"):
        floordiv(floordiv(size * M + 1, 3) * M + 1, 3)


def test_listings_are_refused_up_front() -> None:
    from layoutalg import choose_swizzle, draw

    began = time.process_time()
    huge = parse("S[(65536,65536):(65536,1)]")
    with pytest.raises(LayoutError, match=f"table: takes at most {ENTRIES} entries on an axis; "):
        huge.table((65536, 65536))
    copied = parse(f"S[4:1] + R[{ENTRIES}:4]")
    assert copied.table((4,))["m"].tolist() == [0, 1, 2, 3]
    with pytest.raises(LayoutError, match=f"table: takes at most {ENTRIES} entries on an axis; "):
        copied.table((4,), replicas=True)
    with pytest.raises(LayoutError, match=f"owners: takes at most {OWNERS} places of an element; "):
        copied.owners(0)
    with pytest.raises(LayoutError, match="prove: takes at most"):
        prove(ComposeLayout(0, 0, 0, huge), (65536, 65536), lambda i, j: {"m": 65536 * i + j})
    with pytest.raises(LayoutError, match="prove: takes at most"):
        prove(ComposeLayout(0, 0, 0, huge), (65536, 65536), huge)
    square = parse("S[(4096,4096):(4096,1)]")
    lanes = TileLayout(S[(4096, 4096) : (1 @ tx, 1)] + R[2 : 1 @ warpid])
    for name, layout in (("lane_map", lanes), ("banks", square), ("derivation", square)):
        with pytest.raises(LayoutError, match=f"{name}: takes at most {CELLS} elements"):
            getattr(draw, name)(layout, (4096, 4096))
    with pytest.raises(LayoutError, match=f"tiling: takes at most {CELLS} elements"):
        draw.tiling("mma.m16n8k16.f16", (4096, 4096, 4096), (1, 1))
    with pytest.raises(LayoutError, match=f"choose_swizzle: takes at most {SEARCHED} elements"):
        choose_swizzle((4096, 4096))
    assert UNROLLED == 4096
    assert time.process_time() - began < 30
