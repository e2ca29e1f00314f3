"""Index arithmetic: what is printed, in each language, is what the layouts say."""

from __future__ import annotations

import operator
import random
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import lowering as lw
from layoutalg import Axis, ComposeLayout, LayoutError, S, TileLayout, fragments, m, parse
from layoutalg.sizes.symbolic import DigitSymbol as LoopDigit
from lowering.dispatch.addresses import (
    environment,
    memory_address,
    one_edge,
    region_tile,
    register_tile,
)
from lowering.ir.index import FREE, Guard, Index, Opaque, Style, as_index
from lowering.ir.register_map import element_map, thread_coordinate
from lowering.ir.tiles import Buffer, cells, reached
from tests.support.gemm_cases import lower_case
from tests.support.vectors import read

STYLES: tuple[Style, ...] = ("script", "python", "c")


@cache
def code(text: str) -> Any:
    """Compile a text of any style as Python; no division is of a negative number."""
    python = text.replace("&&", "and").replace(" / ", " // ")
    return compile(re.sub(r"(\S+ <= .*) and (.*)", r"(\1) & (\2)", python), text, "eval")


def evaluated(text: str, env: dict[str, Any]) -> Any:
    return eval(code(text), {}, dict(env))


def programs() -> list[lw.Program]:
    rows = (*read("gemm.jsonl"), *read("gemm_tvm_bugs.jsonl"))
    accepted = []
    for row in rows:
        if row["out"].get("accepted") and ("tvm_bug" not in row or "correct" in row):
            accepted.append(lower_case(row["in"]))
    return accepted


@pytest.mark.slow
def test_every_register_of_every_vector_has_its_element() -> None:
    """register_tile, evaluated and in each text, is element_map for all threads and registers."""
    seen = 0
    for program in programs():
        threads = program.threads
        env = {"thread": np.arange(threads)}
        for role in ("D", *program.inputs):
            buffer = program.buffer(role)
            layout = program.lowered.placements[role]
            want = element_map(layout, buffer.shape, threads, cells(buffer))
            tile = register_tile(layout, buffer.shape, threads)
            assert set(tile.places) == {r for r in range(want.shape[1]) if (want[:, r] >= 0).any()}
            for style in (None, *STYLES):
                held = np.ones(threads, dtype=bool)
                for guard in tile.guards:
                    if style is None:
                        value = guard.index.value(env)
                        held &= (value >= guard.low) & (value < guard.high)
                    else:
                        held &= evaluated(guard.render(style), env)
                for register, place in tile.places.items():
                    values = [
                        index.value(env) if style is None else evaluated(index.render(style), env)
                        for index in place
                    ]
                    flat = np.zeros(threads, dtype=int)
                    for extent, value in zip(buffer.shape, values, strict=True):
                        flat = flat * extent + value
                    assert np.array_equal(np.where(held, flat, -1), want[:, register])
                    seen += 1
    assert seen > 20000


@pytest.mark.parametrize(("threads", "guards"), [(64, []), (96, ["(thread >> 5) < 2"])])
def test_threads_beyond_the_layout_hold_nothing(threads: int, guards: list[str]) -> None:
    two = parse("S[(2,8,4,2):(1@warpid,4@laneid,1@laneid,1)]")
    tile = register_tile(two, (16, 8), threads)
    assert [guard.render("python") for guard in tile.guards] == guards


def test_threads_that_a_layout_does_not_name_may_hold_copies() -> None:
    d = fragments.get("mma.m16n8k8.f16", "D")
    tid = parse("S[(2,8,4,2):(2,4@tid_in_wg,1@tid_in_wg,1)]")
    guarded = register_tile(tid, d.shape, 128)
    assert [guard.render("python") for guard in guarded.guards] == ["(thread >> 2) < 8"]
    copied = register_tile(tid, d.shape, 128, copies=True)
    assert copied.guards == ()
    assert copied.places == register_tile(d.layout, d.shape, 128).places


def test_register_numbers_need_no_digit_form() -> None:
    """Strides that interleave, run down, or leave gaps: registers are listed, not divided."""
    for text, numbers in (
        ("S[(2,8,3,4,2):(6,4@laneid,4,1@laneid,1)]", [0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15]),
        ("S[(2,8,4,2):(-2,4@laneid,1@laneid,1)] + 2", [0, 1, 2, 3]),
        ("S[(2,8,4,2):(10,4@laneid,1@laneid,1)] + 3", [3, 4, 13, 14]),
    ):
        layout = parse(text)
        shape = (16, int(layout.size()) // 16)
        tile = register_tile(layout, shape, 32)
        assert list(tile.places) == numbers
        assert reached(layout)[m] == (numbers[0], numbers[-1])
        want = element_map(layout, shape, 32, numbers[-1] + 1)
        for register, (row, col) in tile.places.items():
            env = {"thread": np.arange(32)}
            flat = row.value(env) * shape[1] + col.value(env)
            assert np.array_equal(np.broadcast_to(flat, 32), want[:, register])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S[(8,4,2):(4@laneid,1@laneid,0)]", "puts two elements into one register of a thread"),
        ("S[(8,4,2):(4@laneid,1@laneid,1@TCol)]", "registers lie on axis m; .* has TCol"),
        ("S[(8,4):(4@laneid,1@laneid)] + 3@TLane", "registers lie on axis m; .* has TLane"),
        ("S[(8,4):(4@bx,1@laneid)]", "axis bx does not count threads inside a CTA"),
        ("S[(8,4):(2@laneid,1@laneid)]", "stride 2 must exceed 3"),
    ],
)
def test_what_is_no_register_layout(text: str, message: str) -> None:
    layout = parse(text)
    with pytest.raises(LayoutError, match=message):
        register_tile(layout, (int(layout.size()),), 32)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S[(8,4,2):(4@laneid,1@laneid,1@TCol)]", "^registers: registers lie on axis m; .* TCol$"),
        ("S[(8,4,2):(4@laneid,1@laneid,2)]", "reaches from register 0 to 2; a thread has 2$"),
        ("S[(8,4,2):(4@laneid,1@laneid,-1)]", "reaches from register -1 to 0; a thread has 2$"),
        ("S[(8,4):(4@laneid,-1@laneid)]", "has a negative coordinate on axis laneid$"),
        ("S[(8,4):(4@cbx,1@laneid)]", "^registers: axis cbx does not count threads inside a CTA$"),
    ],
)
def test_what_is_no_element_map(text: str, message: str) -> None:
    layout = parse(text)
    with pytest.raises(LayoutError, match=message):
        element_map(layout, (int(layout.size()),), 32, 2)


def test_thread_coordinates() -> None:
    thread = np.arange(512)
    for name, want in (
        ("laneid", thread % 32),
        ("wid_in_wg", thread // 32 % 4),
        ("warpid", thread // 32),
        ("tid_in_wg", thread % 128),
        ("wgid", thread // 128),
        ("tx", thread),
    ):
        assert np.array_equal(thread_coordinate(Axis.get(name), thread), want)
        index = thread_coordinate(Axis.get(name), Index.of("thread", 512))
        assert np.array_equal(np.broadcast_to(index.value({"thread": thread}), 512), want)


LIMITS = {"thread": 256, "k": 6, "one": 1}


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> tuple[Index, Any]:
    """Draw an index, and the same built from NumPy arrays by plain arithmetic."""
    if depth == 0 or draw(st.booleans()):
        name = draw(st.sampled_from([*LIMITS, None]))
        if name is None:
            constant = draw(st.integers(0, 40))
            return Index((), constant), np.int64(constant)
        return Index.of(name, LIMITS[name]), GRID[name]
    left, value = draw(expressions(depth=depth - 1))
    operator = draw(st.sampled_from(["+", "*", "//", "%", ">>", "&", "<<", "^", "down", "-"]))
    if operator == "down":  # counted from the other end
        return left * -1 + left.high, left.high - value
    if operator in ("&", "^") and left.low < 0:  # bits are of numbers that are not negative
        left, value = left + -left.low, value + -left.low
    if operator == "-":
        number = draw(st.integers(0, 60))
        return left - number, value - number
    if operator in "+^":
        right, other = draw(expressions(depth=depth - 1))
        if operator == "+":
            return left + right, value + other
        right, other = right + max(0, -right.low), other + max(0, -right.low)
        return left ^ right, value ^ other
    shift, mask = st.integers(0, 5), st.sampled_from([0, 1, 3, 5, 7, 31])
    number = draw({">>": shift, "<<": shift, "&": mask}.get(operator, st.integers(1, 48)))
    python: dict[str, Any] = {
        "*": lambda a: a * number,
        "//": lambda a: a // number,
        "%": lambda a: a % number,
        ">>": lambda a: a >> number,
        "<<": lambda a: a << number,
        "&": lambda a: a & number,
    }
    return python[operator](left), python[operator](value)


def assert_floors_like_c(index: Index) -> None:
    """Check that no division is of a negative number: C rounds those towards zero."""
    for _, atom in index.terms:
        if isinstance(atom, Opaque):
            assert atom.op not in ("//", "%") or atom.left.low >= 0
            assert_floors_like_c(atom.left)
            assert_floors_like_c(atom.right)


_THREAD, _K = np.indices((256, 6), dtype=np.int64).reshape(2, -1)
GRID = {"thread": _THREAD, "k": _K, "one": np.int64(0)}


@settings(max_examples=300, deadline=None)
@given(expressions())
def test_an_index_is_what_it_was_made_of(drawn: tuple[Index, Any]) -> None:
    """Value, every text, bounds and unit, against plain integer arithmetic."""
    index, want = drawn
    assert_floors_like_c(index)
    assert np.array_equal(index.value(GRID) + 0 * _K, want + 0 * _K)
    for style in STYLES:
        text = index.render(style)
        assert np.array_equal(evaluated(text, GRID) + 0 * _K, want + 0 * _K), text
        assert np.array_equal(
            evaluated(f"7 * {index.operand(style)}", GRID) + 0 * _K, 7 * want + 0 * _K
        )
    assert index.low <= np.min(want)
    assert np.max(want) <= index.high
    if index.unit:
        assert not np.any(want % index.unit)
    else:
        assert not np.any(want)
    assert index.limits().items() <= LIMITS.items()


@pytest.mark.parametrize(
    ("index", "texts"),
    [
        (lambda t: t % 32 // 4 * 8 + t % 4 * 2, ("thread % 32 * 2", "(thread & 31) * 2")),
        (lambda t: t % 32 // 4 * 9 + t % 4 * 2, ("thread // 4 % 8 * 9 + thread % 4 * 2",)),
        (lambda t: t // 4 * 4 + t % 4, ("thread", "thread", "thread")),
        (lambda t: t % 256, ("thread",)),
        (lambda t: t // 256, ("0",)),
        (lambda t: t // 3, ("(thread // 3)", "(thread // 3)", "(thread / 3)")),
        (lambda t: t % 32 // 4, ("thread // 4 % 8", "(thread >> 2 & 7)", "(thread >> 2 & 7)")),
        (lambda t: (t + 5) % 7, ("((thread + 5) % 7)", "((thread + 5) % 7)")),
    ],
)
def test_texts_are_lean(index: Any, texts: tuple[str, ...]) -> None:
    made = index(Index.of("thread", 256))
    assert tuple(made.render(style) for style in STYLES[: len(texts)]) == texts


def test_subtracting_gives_negative_values() -> None:
    thread = Index.of("thread", 8)
    down = thread * -1 + 7
    assert np.array_equal(down.value({"thread": np.arange(8)}), 7 - np.arange(8))
    assert (down.low, down.high) == (0, 7)
    assert (thread - thread) == Index()
    assert str(thread - 3) == "thread + -3"


def test_guards_read_alike_in_both_languages() -> None:
    thread = Index.of("thread", 64)
    guard = Guard(thread - 8, 0, 32)
    assert guard.render("python") == "0 <= (thread + -8) and (thread + -8) < 32"
    assert guard.render("c") == "0 <= (thread + -8) && (thread + -8) < 32"
    assert Guard(thread, 0, 32).render("c") == "thread < 32"


def test_loop_variables_become_indices() -> None:
    k = LoopDigit("k", 4)
    index = as_index(16 * k + 8)
    assert index == Index.of("k", 4) * 16 + 8
    assert as_index(5) == Index((), 5)
    with pytest.raises(LayoutError, match=r"^index: k\*\*2 must be a sum of "):
        as_index(k * k)


MEMORY: dict[str, Any] = {
    "dense": parse("S[(8,16):(16,1)]"),
    "columns": parse("S[(8,16):(1,8)]"),
    "padded": parse("S[(8,16):(20,1)] + 4"),
    "blocked": parse("S[(2,4,4,4):(64,4,16,1)]"),
    "swizzled": ComposeLayout(1, 2, 3, parse("S[(8,16):(16,1)]")),
    "swizzled outside": ComposeLayout(2, 2, 2, parse("S[(8,16):(16,1)]"), swizzle_inner=False),
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_addresses_are_the_layouts(name: str) -> None:
    buffer = lw.Buffer("A", (8, 16), "float16", scope="shared", layout=MEMORY[name])
    rows, cols = np.indices((8, 16)).reshape(2, -1)
    address = memory_address(buffer, (Index.of("row", 8), Index.of("col", 16)))
    want = buffer.layout.table((8, 16))["m"].reshape(-1)
    assert np.array_equal(address.value({"row": rows, "col": cols}), want)
    for style in STYLES:
        text = address.render(style)
        assert np.array_equal(evaluated(text, {"row": rows, "col": cols}), want)


def test_memory_has_one_address_per_element() -> None:
    place = (Index.of("row", 8), Index.of("col", 4))
    for layout, message in (
        ("S[(8,4):(4,1)] + R[2:32]", "address: an element of A.* must have one address; got "),
        ("S[(8,4):(4@laneid,1)]", "address: memory lies on axis m; .* has laneid"),
    ):
        buffer = lw.Buffer("A", (8, 4), "float16", scope="shared", layout=parse(layout))
        with pytest.raises(LayoutError, match=message):
            memory_address(buffer, place)


def test_the_tile_of_a_region() -> None:
    a = fragments.get("mma.m16n8k16.f16", "A").tiled(32, 32)
    buffer = lw.Buffer("A", (32, 32), "float16", layout=a)
    assert region_tile(buffer.region()) == a
    piece = region_tile(buffer[16:32, 0:16])
    want = a.table((32, 32))
    for axis, values in piece.table((16, 16)).items():
        assert np.array_equal(values, want[axis][16:32, 0:16])
    mixed = parse("S[(8,3,2,2,4,2):(4@laneid,8,2,4,1@laneid,1)]")
    odd = lw.Buffer("A", (24, 32), "float16", layout=mixed)[4:20, 0:32]
    with pytest.raises(
        LayoutError, match=r"^registers: no layout says the region A\[4:20,0:32\]: "
    ):
        region_tile(odd)


def test_the_environment_is_every_thread_times_every_step() -> None:
    index = Index.of("k", 3) * 8 + Index.of("thread", 4)
    env = environment([index], 4)
    assert env["k"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert env["thread"].tolist() == [0, 1, 2, 3] * 3
    assert index.value(env).tolist() == [*range(4), *range(8, 12), *range(16, 20)]
    assert environment([], 2)["thread"].tolist() == [0, 1]


def test_replicas_that_repeat_nothing_name_no_axis() -> None:
    """An axis that only such a replica names does not tell threads, or registers, apart."""
    plain = parse("S[(32,2):(1@laneid,1)]")
    want = element_map(plain, (32, 2), 64, 2)
    for idle in ("R[2:0]", "R[2:0@warpid]", "R[1:5@warpid]", "R[2:0@TCol]", "R[5000000:0]"):
        layout = parse(f"{plain} + {idle}")
        assert np.array_equal(element_map(layout, (32, 2), 64, 2), want), idle


def test_layouts_without_registers_hold_one() -> None:
    """A layout that names no register puts its element into register 0."""
    layout = TileLayout(parse("S[(8,4):(4@laneid,1@laneid)]"))
    assert list(register_tile(layout, (8, 4), 32).places) == [0]
    assert cells(Buffer("r", (8, 4), "float32", layout=layout)) == 1


@pytest.mark.parametrize(
    ("op", "left", "right", "high"),
    [
        ("*", Index.of("i", 8), Index.of("j", 5), 28),
        ("*", Index.of("i", 2), Index.of("j", 2), 1),
        ("//", Index.of("i", 29), Index((), 4), 7),
        ("%", Index.of("i", 29), Index((), 12), 11),
        ("^", Index.of("i", 8), Index.of("j", 5), 7),
        ("^", Index.of("i", 9), Index.of("j", 2), 15),
        ("&", Index.of("i", 16), Index.of("j", 4), 3),
        ("&", Index.of("i", 4), Index.of("j", 16), 3),
    ],
)
def test_the_bound_of_what_is_not_linear(op: str, left: Index, right: Index, high: int) -> None:
    """No value is above it; it is the largest value but for ``^``, whose bound is all bits."""
    atom = Opaque(op, left, right)
    ranges = [np.arange(limit) for limit in (left.high + 1, right.high + 1)]
    i, j = np.meshgrid(*ranges, indexing="ij")
    largest = int(np.max(atom.value({"i": i, "j": j})))
    assert atom.high == high >= largest
    assert op == "^" or high == largest


def test_what_only_the_launch_knows_is_zero_or_odd() -> None:
    assert environment([Index.free("M")], 1)["M"].tolist() == [0, FREE - 1]
    assert (FREE - 1) % 2 == 1


def test_negative_terms_are_summed_in_64_bits() -> None:
    total = sum((Index.of(name, 2) * -(1 << 30) for name in "abc"), Index())
    assert total.render("c") == (
        "a * -1073741824 + b * -1073741824 + static_cast<int64_t>(c) * -1073741824"
    )


def test_a_product_is_computed_in_64_bits_once() -> None:
    large = Opaque("*", Index.of("a", 1 << 20), Index.of("b", 1 << 20))
    assert large.text("c") == "(static_cast<int64_t>(a) * b)"
    assert large.text("c", {"a"}) == "(a * b)"
    assert not Opaque("^", Index.of("a", 8), Index.of("b", 8)).is_wide(())
    assert Opaque("^", Index.of("a", 8), Index.of("b", 8)).is_wide({"b"})


def test_a_vector_that_begins_within_another_has_two_edges() -> None:
    i, size = Index.of("i", 8), Index.free("M")
    guards = [(Guard(i * 2 + at, 0, size),) for at in range(3)]
    assert one_edge(guards[:2], 8)
    assert not one_edge(guards[1:], 8)


def test_half_a_symbol_is_no_stride() -> None:
    even = sympy.Symbol("e", even=True, positive=True)
    buffer = Buffer("a", (4, 2), "float32", "global", TileLayout(S[(4, 2) : (even / 2, 1)]))
    message = "address: a stride must be a number, or a number times a symbol; got e/2"
    with pytest.raises(LayoutError, match=f"^{re.escape(message)}$"):
        memory_address(buffer, [Index.of("i", 4), Index.of("j", 2)])


# -- how few values decide ------------------------------------------------------------------------


def _random_index(rng: random.Random, depth: int = 2) -> Index:
    """Return an index in a thread, two loop variables and a block."""
    total = Index((), rng.randrange(4))
    for _ in range(rng.randrange(1, 4)):
        part = rng.choice(
            [Index.of("thread", 8), Index.of("i", 12), Index.of("j", 6), Index.free("bx")]
        )
        part = rng.choice([part, part // rng.choice([2, 3, 4]), part % rng.choice([2, 3, 4])])
        if depth and rng.random() < 0.4:
            part = _random_index(rng, depth - 1)
            part = rng.choice([part // 3, part % 3, part % 4, part % 4 ^ Index.of("j", 6) % 4])
        total += part * rng.choice([1, 2, 3, 4, 8])
    return total


def test_a_period_moves_by_a_constant() -> None:
    rng = random.Random(15)
    for _ in range(300):
        index = _random_index(rng)
        for name in ("i", "bx"):
            period = index.period(name)
            if period is None:
                continue
            env = {"thread": 5, "i": 7, "j": 3, "bx": 100}
            steps = np.arange(12 if name == "i" else 4 * period)
            values = np.broadcast_to(index.value(env | {name: steps}), steps.shape)
            moves = values[period:] - values[:-period]
            assert (moves[period:] == moves[:-period]).all(), (str(index), name)


def test_what_holds_for_the_values_of_an_environment_holds_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Claims of `copy`: divisible by a power of two, and one index a constant beside another."""
    monkeypatch.setattr("lowering.dispatch.addresses.TOGETHER", 1 << 15)
    rng = random.Random(16)
    every = np.meshgrid(np.arange(8), np.arange(12), np.arange(6), np.arange(36), indexing="ij")
    full = dict(zip(("thread", "i", "j", "bx"), every, strict=True))
    claimed = 0
    for _ in range(150):
        one = _random_index(rng, 1) * rng.choice([1, 2, 4])
        other = rng.choice([one + 1, _random_index(rng, 1), one - one % 2, one // 2 * 2])
        try:
            few = environment([one, other], 8)
        except LayoutError:
            continue
        for claim in (
            lambda env: np.asarray(one.value(env)) % 4 == 0,  # noqa: B023
            lambda env: np.asarray(other.value(env) - one.value(env)) == 1,  # noqa: B023
            lambda env: np.asarray(other.value(env) - one.value(env)) == 0,  # noqa: B023
        ):
            if claim(few).all():
                claimed += 1
                assert claim(full).all(), (str(one), str(other))
    assert claimed > 30


def test_conditions_are_not_joined_by_signs() -> None:
    lane = Index.of("lane", 32)
    for join in (operator.and_, operator.or_, operator.xor):
        with pytest.raises(LayoutError, match=r"nest two `with k\.when"):
            join(lane >= 3, lane < 5)
    with pytest.raises(LayoutError, match="write the opposite comparison"):
        operator.invert(lane >= 3)
