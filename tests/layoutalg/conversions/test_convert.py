"""Conversions: every recipe is run on real registers by an interpreter of its own, bit by bit."""

from __future__ import annotations

import itertools
import pickle
import time
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import sympy
from hypothesis import example, given, settings

from layoutalg import (
    Conversion,
    Iter,
    LayoutError,
    TileLayout,
    Undecided,
    convert,
    fragments,
    parse,
)
from layoutalg.conversions.recipe import Exchange, Movmatrix, Permute, Shuffle, Word
from layoutalg.conversions.search import Task
from layoutalg.conversions.shuffle_rounds import Warp, least, rounds
from tests.support import oracle

D = fragments.get("mma.m16n8k16.f16", "D")
A = fragments.get("mma.m16n8k16.f16", "A").layout
B = fragments.get("mma.m16n8k16.f16", "B").layout
# PTX ISA, m16n8k32 with integers: row g + 8*(r mod 2), col 4t + byte + 16*(r // 2)
A_S8 = parse("S[(2,8,2,4,4):(4,4@laneid,8,1@laneid,1)]")
F21 = (0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15,
       16, 17, 24, 25, 18, 19, 26, 27, 20, 21, 28, 29, 22, 23, 30, 31)  # fmt: skip

# -- an interpreter of the instructions, on 32-bit registers --------------------------------------


def held(layout: TileLayout, threads: int, slots: int) -> list[list[int]]:
    """Return the element in each slot of each thread, by the definition; -1: none."""
    plain = {
        "shard": [[it.extent, it.stride, it.axis.name] for it in layout.shard],
        "replica": [[it.extent, it.stride, it.axis.name] for it in layout.replica],
        "offset": {axis.name: value for axis, value in layout.offset.items()},
    }
    table = [[-1] * slots for _ in range(threads)]
    for x in range(oracle.size(plain)):
        for place in oracle.image(plain, x):
            where = dict(oracle.thread_number(place))
            table[where.get("thread", 0)][where.get("m", 0)] = x
    return table


def of(column: tuple[int, ...], thread: int) -> int:
    return column[0] if len(column) == 1 else column[thread]


def assemble(word: Word, registers: list[list[int]], thread: int, bits: int) -> int:
    """Put a register together with shifts and masks, as prmt does."""
    value = 0
    for e, (column, part) in enumerate(zip(word.registers, word.parts, strict=True)):
        register = of(column, thread)
        if register >= 0:
            element = registers[register][thread] >> (of(part, thread) * bits) & ((1 << bits) - 1)
            value |= element << (e * bits)
    return value


def shfl(step: Shuffle, registers: list[list[int]], threads: int) -> list[int]:
    """shfl.sync.idx: the value that the lane read offers."""
    offered = [registers[of(step.offer, t)][t] for t in range(threads)]
    return [offered[t - t % 32 + of(step.read, t)] for t in range(threads)]


def movmatrix(words: list[int]) -> list[int]:
    """movmatrix.sync.aligned.m8n8.trans.b16 of one warp: lane 4r + c//2 holds row r, columns c."""
    matrix = [[0] * 8 for _ in range(8)]
    for lane, word in enumerate(words):
        for half in range(2):
            matrix[lane // 4][2 * (lane % 4) + half] = word >> (16 * half) & 0xFFFF
    return [
        matrix[2 * (lane % 4)][lane // 4] | matrix[2 * (lane % 4) + 1][lane // 4] << 16
        for lane in range(32)
    ]


def run(conversion: Conversion, slots: list[list[int]]) -> list[list[int]]:
    """Run one pass of a recipe on slots of elements; return the slots of the destination."""
    bits, pack, threads = conversion.bits, max(1, 32 // conversion.bits), conversion.threads
    registers: list[list[int]] = []
    for r in range(conversion.source_registers):
        registers.append([])
        for row in slots:
            piece = row[r * pack : (r + 1) * pack]
            registers[-1].append(sum(max(v, 0) << (e * bits) for e, v in enumerate(piece)))
    for step in conversion.steps:
        if isinstance(step, Shuffle):
            registers.append(shfl(step, registers, threads))
        elif isinstance(step, Permute):
            registers.append([assemble(step.source, registers, t, bits) for t in range(threads)])
        else:
            assert isinstance(step, Movmatrix)
            words = [assemble(step.source, registers, t, bits) for t in range(threads)]
            warps = [movmatrix(words[w : w + 32]) for w in range(0, threads, 32)]
            registers.append(list(itertools.chain(*warps)))
    out = [
        [assemble(word, registers, t, bits) for word in conversion.words] for t in range(threads)
    ]
    mask = (1 << bits) - 1
    return [[value >> (e * bits) & mask for value in row for e in range(pack)] for row in out]


def check(conversion: Conversion) -> None:
    """Fill registers from src, run the recipe, and compare with dst: element by element."""
    assert isinstance(conversion.src, TileLayout)
    assert isinstance(conversion.dst, TileLayout)
    threads, bits = conversion.threads, conversion.bits
    before = held(conversion.src, threads, int(conversion.src_slots))
    after = held(conversion.dst, threads, int(conversion.dst_slots))
    moved = conversion.execute(np.array(before))
    wanted = np.array(after)
    assert np.array_equal(moved[wanted >= 0], wanted[wanted >= 0])
    if conversion.kind == "shared":
        (step,) = conversion.steps
        assert isinstance(step, Exchange)
        assert len({*step.staging.table(conversion.shape)["m"].flat}) == conversion.src.size()
        return
    for shift in range(0, 12, bits):  # an element's number may be wider than the element
        mask = (1 << bits) - 1
        narrow = [[-1 if x < 0 else x >> shift & mask for x in row] for row in before]
        got = run(conversion, narrow)
        for thread, row in enumerate(after):
            for slot, x in enumerate(row):
                assert x < 0 or got[thread][slot] == x >> shift & mask, (thread, slot)


def possible(conversion: Conversion) -> dict[str, bool]:
    """Say which kinds can do it, from the definitions alone (movmatrix left out)."""
    before = np.array(held(conversion.src, conversion.threads, int(conversion.src_slots)))
    after = np.array(held(conversion.dst, conversion.threads, int(conversion.dst_slots)))
    free = after < 0
    uniform = all(
        any(((before[:, u] == after[:, s]) | free[:, s]).all() for u in range(before.shape[1]))
        for s in range(after.shape[1])
    )
    own = all(np.isin(row[row >= 0], mine).all() for row, mine in zip(after, before, strict=True))
    warps = [slice(w, w + 32) for w in range(0, conversion.threads, 32)]
    inside = all(np.isin(after[w][~free[w]], before[w]).all() for w in warps)
    return {"registers": uniform, "select": own, "shuffle": inside, "shared": True}


# -- the cases that kernels need ------------------------------------------------------------------


def test_accumulators_of_two_tiles_become_the_a_operand_in_registers() -> None:
    """D (f32, narrowed to f16) of two m16n8 tiles -> A: c01 and c23 of tile 0, then of tile 1."""
    found = convert(D.tiled(16, 16), A, (16, 16), bits=16)
    assert (found.kind, found.registers, found.steps) == ("registers", (0, 1, 2, 3), ())
    slots = [(word.registers[e][0], word.parts[e][0]) for word in found.words for e in range(2)]
    assert [2 * register + part for register, part in slots] == list(range(8))
    tile, c = np.divmod(np.arange(8), 4)
    assert [f"t{t}.c{j}" for t, j in zip(tile, c, strict=True)][:4] == [
        "t0.c0",
        "t0.c1",
        "t0.c2",
        "t0.c3",
    ]
    check(found)


def test_swapped_a1_and_a2_are_put_right_by_renaming() -> None:
    """F01: the list [t0.c01, t1.c01, t0.c23, t1.c23] needs the order 0, 2, 1, 3."""
    swapped = parse("S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)]")
    found = convert(swapped, A, (16, 16), bits=16)
    assert (found.kind, found.registers) == ("registers", (0, 2, 1, 3))
    check(found)


def test_int8_accumulators_need_shuffles_or_a_permuted_b() -> None:
    """F21: D (s32, narrowed to s8) of four tiles -> A of m16n8k32.s8."""
    assert A_S8.equivalent(fragments.get("mma.m16n8k32.s8", "A").layout)
    found = convert(D.tiled(16, 32), A_S8, (16, 32), bits=8)
    assert found.kind == "shuffle"
    assert found.registers is None
    assert (found.shuffles, found.selects, found.permutes) == (4, 4, 4)
    (way,) = found.relabellings
    assert (way.dim, way.permutation) == (1, F21)
    check(found)
    # as the relabelling says: A's column k then holds logical column F21[k], without any move
    before = np.array(held(D.tiled(16, 32), 32, 16))
    after = np.array(held(A_S8, 32, 16))
    row, k = after // 32, after % 32
    assert np.array_equal(before[:, way.slots], row * 32 + np.array(F21)[k])
    # and the product is right when B's rows are permuted alike
    rng = np.random.default_rng(0)
    p, b = rng.integers(-9, 9, (16, 32)), rng.integers(-9, 9, (32, 8))
    assert np.array_equal(p[:, F21] @ b[list(F21)], p @ b)


def test_fp8_wgmma_accumulators_permute_alike_in_each_k_block() -> None:
    """F22: m64n32 D.f32 -> e4m3 A of wgmma k32, 128 threads."""
    acc = parse("S[(4,2,8,4,4,2):(1@wid_in_wg,2,4@laneid,4,1@laneid,1)]")
    operand = parse("S[(4,2,8,2,4,4):(1@wid_in_wg,4,4@laneid,8,1@laneid,1)]")
    found = convert(acc, operand, (64, 32), bits=8)
    assert (found.kind, found.threads, found.shuffles) == ("shuffle", 128, 4)
    assert [way.permutation for way in found.relabellings] == [F21]
    check(found)
    fused = convert(acc.canonicalize("cuda"), operand, (64, 32), bits=8)
    assert fused.steps == found.steps
    check(fused)


def test_the_transpose_of_a_is_movmatrix_and_a_renaming() -> None:
    """F27: movmatrix leaves the 8x8 blocks where they are; registers 1 and 2 trade places."""
    transposed = fragments.transposed(A, (16, 16))
    found = convert(A, transposed, (16, 16))
    assert (found.kind, found.registers, found.movmatrices) == ("movmatrix", (0, 2, 1, 3), 4)
    assert (found.selects, found.permutes, found.min_arch) == (0, 0, "sm_75")
    assert [step.register for step in found.steps] == [0, 1, 2, 3]
    check(found)
    other = convert(A, transposed, (16, 16), via="shuffle")
    assert (other.kind, other.shuffles, other.selects, other.permutes) == ("shuffle", 4, 0, 8)
    check(other)
    memory = convert(A, transposed, (16, 16), via="shared")
    assert (memory.kind, memory.steps[0].barrier) == ("shared", "warp")
    check(memory)


def test_movmatrix_after_and_before_a_permute() -> None:
    halves = parse("S[(2,4,2,2,8):(4,1@laneid,2,1,4@laneid)]")  # the transpose, halves exchanged
    found = convert(A, halves, (16, 16))
    assert (found.kind, found.movmatrices, found.registers) == ("movmatrix", 4, None)
    assert found.permutes > 0
    check(found)
    back = convert(halves, A, (16, 16))
    assert back.kind == "movmatrix"
    check(back)


def test_every_name_of_a_thread_is_one_number() -> None:
    src = parse("S[(2,4,32):(1@wgid,1@wid_in_wg,1@laneid)]")
    for text in ("S[(8,32):(1@warpid,1@laneid)]", "S[(2,128):(1@wgid,1@tid_in_wg)]", "S[256:1@tx]"):
        found = convert(src, parse(text), (256,), bits=32)
        assert (found.kind, found.threads, found.registers) == ("registers", 256, (0,))
        check(found)


def test_a_destination_replicated_over_warps_needs_memory() -> None:
    """P37: 32x32, two warps side by side -> every warp holds all of it."""
    tile = D.tiled(32, 16)
    src = tile.tile(parse("S[(1,2):(1,1@warpid)]"), (1, 2), (32, 16))
    dst = TileLayout.from_iters(D.tiled(32, 32).shard, [Iter(2, 1, "warpid")])
    assert dst.replication().degree == 2
    found = convert(src, dst, (32, 32), bits=32)
    assert (found.kind, found.threads, found.steps[0].barrier) == ("shared", 64, "cta")
    check(found)
    back = convert(dst, src, (32, 32), bits=32)
    assert (back.kind, back.shuffles) == ("select", 0)
    assert back.selects == 16
    check(back)
    with pytest.raises(
        LayoutError, match=r"slot 8 of thread 0 needs \(0, 16\), which thread 32 holds"
    ):
        convert(src, dst, (32, 32), bits=32, via="shuffle")


def test_one_warp_to_all_lanes_alike_is_one_shuffle_per_register() -> None:
    src = parse("S[(8,4):(4@laneid,1@laneid)]")
    dst = parse("S[(8,4):(1@laneid,8@laneid)]")
    found = convert(src, dst, (8, 4), bits=32)
    assert (found.kind, found.shuffles, found.selects, found.permutes) == ("shuffle", 1, 0, 0)
    assert found.registers == (0,)
    assert found.steps[0].read == tuple(4 * (lane % 8) + lane // 8 for lane in range(32))
    check(found)
    wide = convert(src, dst, (8, 4), bits=64)
    assert wide.shuffles == 2
    check(wide)
    spread = convert(parse("S[1:1@laneid]"), parse("S[1:1@laneid] + R[32:1@laneid]"), (1,), bits=32)
    assert (spread.shuffles, spread.steps[0].read) == (1, (0,))
    check(spread)


def test_a_replicated_source_is_read_where_it_is_nearest() -> None:
    src = parse("S[(4,2):(1@laneid,1)] + R[8:4@laneid]")
    dst = parse("S[(4,2):(4@laneid,1)] + R[4:1@laneid]")
    found = convert(src, dst, (4, 2), bits=16)
    assert (found.kind, found.shuffles) == ("shuffle", 1)
    check(found)
    twice = convert(
        parse("S[2:1@laneid] + R[(16,2):(2@laneid,3)]"),
        parse("S[2:1@laneid] + R[16:2@laneid]"),
        (2,),
    )
    assert twice.kind == "registers"
    check(twice)


def test_permutes_join_elements_of_several_registers() -> None:
    found = convert(
        parse("S[(32,2,2):(1@laneid,2,1)]"), parse("S[(32,2,2):(1@laneid,1,2)]"), (32, 4)
    )
    assert (found.kind, found.registers, found.permutes) == ("registers", None, 2)
    assert str(found).splitlines()[1:] == [
        "  d0 = (r0[0], r1[0])",
        "  d1 = (r0[1], r1[1])",
        "  per thread: 2 prmt",
    ]
    check(found)


# -- every kind, on random layouts ----------------------------------------------------------------


@st.composite
def bit_layouts(draw: st.DrawFn) -> tuple[TileLayout, TileLayout, tuple[int, ...], int]:
    """Return two layouts over digits of two: lanes, slots and warps in any order."""
    slots, warps = draw(st.integers(0, 4)), draw(st.integers(0, 1))
    places = [Iter(2, 1 << i, "laneid") for i in range(5)]
    places += [Iter(2, 1 << i, "m") for i in range(slots)]
    places += [Iter(2, 1 << i, "warpid") for i in range(warps)]
    src = draw(st.permutations(places))
    how = draw(st.sampled_from(["m", "laneid m", "laneid", "laneid m warpid"]))
    free = [k for k, it in enumerate(src) if it.axis.name in how.split()]
    dst = list(src)
    for k, it in zip(free, draw(st.permutations([src[k] for k in free])), strict=True):
        dst[k] = it
    copied: list[Any] = [[], []]
    for side, digits in enumerate((src, dst)):
        if draw(st.integers(0, 3)) == 0:
            copied[side] = [Iter(2, 2, "warpid")]
            if draw(st.booleans()):
                copied[side] += [Iter(2, 1 << slots, "m")]
        del digits
    left = TileLayout.from_iters(src, copied[0])
    right = TileLayout.from_iters(dst, copied[1], {"m": draw(st.integers(0, 2))})
    return left, right, (1 << len(src),), draw(st.sampled_from([4, 8, 16, 32, 64]))


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(bit_layouts())
@example((A, fragments.transposed(A, (16, 16)), (16, 16), 16))
@example((D.tiled(16, 32), A_S8, (16, 32), 8))
@example((B, parse("S[(8,2,2,4):(4@laneid,2,1,1@laneid)]"), (16, 8), 16))
def test_every_recipe_does_what_it_says_and_no_kind_costs_less(case: Any) -> None:
    src, dst, shape, bits = case
    found = convert(src, dst, shape, bits)
    check(found)
    can = possible(found)
    assert can.get(found.kind, True)
    assert not can["registers"] or found.kind == "registers"
    for kind in (kind for kind, able in can.items() if able and found.kind != "registers"):
        other = convert(src, dst, shape, bits, via=kind)
        check(other)
        assert found.price.cycles <= other.price.cycles
        assert f"{kind}: " not in "".join(other.why)
    for way in found.relabellings:
        before = np.array(held(src, found.threads, int(found.src_slots)))
        after = np.array(held(dst, found.threads, int(found.dst_slots)))
        coords = list(np.unravel_index(np.maximum(after, 0), shape))
        coords[way.dim] = np.array(way.permutation)[coords[way.dim]]
        wanted = np.where(after < 0, -1, np.ravel_multi_index(coords, shape))
        kept = np.array(way.slots) >= 0
        assert np.array_equal(before[:, way.slots][:, kept][after[:, kept] >= 0],
                              wanted[:, kept][after[:, kept] >= 0])  # fmt: skip
        assert sorted(way.permutation) == list(range(shape[way.dim]))


@st.composite
def odd_layouts(draw: st.DrawFn) -> tuple[TileLayout, TileLayout, tuple[int, ...]]:
    """Return two layouts with digits of any size that keep their elements apart."""
    digits = draw(st.lists(st.integers(2, 5), min_size=2, max_size=3))

    def one() -> TileLayout:
        strides = {"laneid": 1, "m": 1}
        iters = {}
        for k in draw(st.permutations(range(len(digits)))):
            axis = draw(st.sampled_from(["laneid", "m"]))
            if strides["laneid"] * digits[k] > 32:
                axis = "m"
            iters[k] = Iter(digits[k], strides[axis], axis)
            strides[axis] *= digits[k]
        return TileLayout.from_iters([iters[k] for k in range(len(digits))])

    return one(), one(), tuple(digits)


@settings(max_examples=80, deadline=None)
@given(odd_layouts(), st.sampled_from([8, 16, 32]))
def test_digits_of_any_size_are_converted(case: Any, bits: int) -> None:
    found = convert(*case, bits=bits)
    check(found)
    assert possible(found)[found.kind]


def by_counting(warp: Warp) -> int:
    """Return how many rounds a warp needs at least: what must be read, and what must be offered.

    Each element that leaves its lane is first offered by some lane that holds it: a matching of
    elements with (lane, round, place in the word), found by augmenting paths.
    """
    pack = warp.pack
    needs = [{*row} - {*held, -1} for row, held in zip(warp.wanted, warp.held, strict=True)]
    elements = sorted(set().union(*needs))
    count = max((len(each) + pack - 1) // pack for each in needs)
    while True:
        served: dict[int, list[int]] = {lane: [] for lane in range(len(warp.held))}

        def put(element: int, seen: set[int], served: Any = served, room: int = count) -> bool:
            for lane, row in enumerate(warp.held):
                if element not in row or lane in seen:
                    continue
                seen.add(lane)
                if len(served[lane]) < room * pack:
                    served[lane].append(element)
                    return True
                for k, other in enumerate(served[lane]):
                    if put(other, seen):
                        served[lane][k] = element
                        return True
            return False

        if all(put(element, set()) for element in elements):
            return count
        count += 1


@st.composite
def warps(draw: st.DrawFn) -> tuple[Warp, bool]:
    """Return what a few lanes hold, with copies, and want; and whether two may want the same."""
    lanes, slots = draw(st.integers(2, 8)), 4
    pack = draw(st.sampled_from([1, 1, 2, 4]))
    distinct = draw(st.integers(1, lanes * slots))
    places = [*range(distinct)]
    places += draw(
        st.lists(
            st.integers(0, distinct - 1),
            min_size=lanes * slots - distinct,
            max_size=lanes * slots - distinct,
        )
    )
    places = draw(st.permutations(places))
    shared = draw(st.booleans())
    wants = [-1] * (lanes * slots)
    if shared:
        wants = draw(
            st.lists(st.integers(-1, distinct - 1), min_size=len(wants), max_size=len(wants))
        )
    else:
        wants[:distinct] = range(distinct)
        wants = draw(st.permutations(wants))

    def rows(side: Any) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(side[at : at + slots]) for at in range(0, len(side), slots))

    return Warp(rows(places), rows(wants), pack), shared


@settings(max_examples=200, deadline=None)
@given(warps())
def test_rounds_are_valid_and_as_few_as_can_be(case: tuple[Warp, bool]) -> None:
    """Each lane reads one lane and offers one word of its own per round; nothing is missing."""
    warp, shared = case
    found = rounds(warp)
    got: list[set[int]] = [{*row} for row in warp.held]
    for offers, reads in found:
        for lane, word in offers.items():
            assert len(word) == warp.pack
            assert {*word} - {-1} <= {*warp.held[lane]}
        for reader, lane in reads.items():
            got[reader] |= {*offers[lane]}
    for row, mine in zip(warp.wanted, got, strict=True):
        assert {*row} - {-1} <= mine
    fewest = by_counting(warp)
    assert least(warp) == fewest
    assert len(found) >= fewest
    if warp.pack == 1 and not shared:
        assert len(found) == fewest


def test_an_exchange_of_what_lanes_offer_is_needed_and_found() -> None:
    """Lane 0 holds both elements, lane 1 a copy of one: who takes the first copy is in the way."""
    warp = Warp(((0, 1), (0, -1), (-1, -1), (-1, -1)), ((-1,), (-1,), (0,), (1,)), 1)
    ((offers, reads),) = rounds(warp)
    assert (offers, reads) == ({0: (1,), 1: (0,)}, {2: 1, 3: 0})


def test_permutations_are_found_along_a_chain() -> None:
    """First come, first served takes three rounds here; two are enough."""
    held_before = ((-1, -1),) * 3 + ((0, 1), (2, 3), (4, 5))
    wanted = ((0, -1), (1, 2), (3, 4), (5, -1), (-1, -1), (-1, -1))
    warp = Warp(held_before, wanted, 1)
    assert len(rounds(warp)) == least(warp) == 2


def test_what_all_lanes_want_is_offered_once_or_to_each_in_turn() -> None:
    """Four lanes that hold all are read by all others in step; else each lane reads all others."""
    some = tuple(tuple(range(8 * lane, 8 * lane + 8)) for lane in range(4)) + ((-1,) * 8,) * 28
    assert len(rounds(Warp(some, (tuple(range(32)),) * 32, 1))) == 32
    each = tuple((lane,) for lane in range(32))
    assert len(rounds(Warp(each, (tuple(range(32)),) * 32, 1))) == 31


# -- the fewest shuffles --------------------------------------------------------------------------


def warps_of(conversion: Conversion) -> list[Warp]:
    """Return what the lanes of each warp hold and want, by the definition; 32 bits or more."""
    sides = [
        held(side, conversion.threads, int(slots))
        for side, slots in (
            (conversion.src, conversion.src_slots),
            (conversion.dst, conversion.dst_slots),
        )
    ]
    return [
        Warp(*(tuple(map(tuple, side[at : at + 32])) for side in sides), 1)
        for at in range(0, conversion.threads, 32)
    ]


@st.composite
def copied_layouts(draw: st.DrawFn) -> tuple[TileLayout, TileLayout, tuple[int, ...]]:
    """Return layouts over digits of two, of which some lanes of either side hold copies."""
    slots = draw(st.integers(0, 4))
    places = [Iter(2, 1 << i, "laneid") for i in range(5)]
    places += [Iter(2, 1 << i, "m") for i in range(slots)]
    src, dst = (draw(st.permutations(places)) for _ in range(2))
    copies = draw(st.integers(0, 4))
    lanes = [it for it in src if it.axis.name == "laneid"]
    kept = [it for it in src if it not in lanes[:copies]]
    replicas = [it for it in dst[len(kept) :] if draw(st.booleans())]
    left = TileLayout.from_iters(kept, lanes[:copies])
    return left, TileLayout.from_iters(dst[: len(kept)], replicas), (1 << len(kept),)


@settings(max_examples=120, deadline=None)
@given(copied_layouts(), st.sampled_from([32, 64]))
@example((parse("S[(4,8):(1@laneid,1)] + R[8:4@laneid]"),
          parse("S[(4,8):(8@laneid,1@laneid)]"), (4, 8)), 32)  # fmt: skip
def test_no_conversion_takes_more_shuffles_than_counting_says(case: Any, bits: int) -> None:
    found = convert(*case, bits=bits)
    check(found)
    if found.kind == "shuffle":
        fewest = max(map(by_counting, warps_of(found)))
        assert found.shuffles == fewest * (bits // 32)


def test_each_lane_offers_the_register_that_its_copy_makes_free() -> None:
    """Every lane of a row has its 8 elements: one of them offers one each."""
    src, dst = parse("S[(4,8):(1@laneid,1)] + R[8:4@laneid]"), parse("S[(4,8):(8@laneid,1@laneid)]")
    found = convert(src, dst, (4, 8), bits=32)
    assert (found.kind, found.shuffles, found.selects, found.permutes) == ("shuffle", 1, 7, 0)
    check(found)


@pytest.mark.parametrize(
    ("src", "dst", "bits", "cost"),
    [
        ("S[(16,2,2,2):(1@laneid,16@laneid,2,1)]", "S[(16,2,2,2):(1@laneid,2,1,16@laneid)]", 16,
         (1, 2, 2)),
        ("S[(16,2,4,2):(1@laneid,16@laneid,2,1)]", "S[(16,2,4,2):(1@laneid,4,1,16@laneid)]", 8,
         (1, 2, 2)),
    ],
)  # fmt: skip
def test_elements_are_put_together_before_they_are_shuffled(
    src: str, dst: str, bits: int, cost: tuple[int, int, int]
) -> None:
    """The elements of two registers that one lane wants go in one word: prmt, then shfl."""
    shape = tuple(it.extent for it in parse(src).shard)
    found = convert(parse(src), parse(dst), shape, bits=bits)
    assert (found.shuffles, found.selects, found.permutes) == cost
    assert [each.verb for each in found.instructions] == "prmt prmt shfl select select".split()
    assert found.registers is None
    check(found)
    lines = str(found).splitlines()
    assert lines[2].startswith("  t1 = prmt (r0[lane // 16 ^ 1], r")
    assert lines[3:5] == [
        "  t2 = shfl.sync.idx t1 from lane lane ^ 16",
        "  t3 = select t[lane // 16 * 2]",
    ]


def test_a_tile_of_64_by_128_is_planned_in_less_than_a_second() -> None:
    """In the processor's time of this process: other work on the machine does not count."""
    cases = [
        (D.tiled(64, 128), "S[(64,32,4):(4,1@laneid,1)]"),
        (parse("S[(32,2,128):(1@laneid,128,1)]"), "S[(64,32,4):(4,1@laneid,1)]"),
        (parse("S[(4,2,8,16,4,2):(1@warpid,2,4@laneid,4,1@laneid,1)]"),
         "S[(4,16,32,4):(1@warpid,4,1@laneid,1)]"),
    ]  # fmt: skip
    for src, dst in cases:
        begin = time.process_time()
        assert convert(src, parse(dst), (64, 128), bits=32).kind == "shared"
        assert time.process_time() - begin < 1
        found = convert(src, parse(dst), (64, 128), bits=32, via="shuffle")
        assert found.shuffles == max(map(least, warps_of(found)))


# -- symbols --------------------------------------------------------------------------------------

Mt = sympy.Symbol("Mt", integer=True, positive=True)


def tiles(layout: TileLayout, shape: tuple[int, int], slots: int) -> TileLayout:
    """Return Mt tiles, one after the other in registers, and in rows."""
    return layout.tile(parse("S[(Mt,1):(1,1)]"), (Mt, 1), shape)


@pytest.mark.parametrize(
    ("src", "dst", "shape", "bits", "kind"),
    [
        (D.tiled(16, 16), A, (16, 16), 16, "registers"),
        (parse("S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)]"), A, (16, 16), 16, "registers"),
        (A, fragments.transposed(A, (16, 16)), (16, 16), 16, "movmatrix"),
        (D.tiled(16, 32), A_S8, (16, 32), 8, "shuffle"),
    ],
)
def test_any_number_of_tiles(
    src: TileLayout, dst: TileLayout, shape: tuple[int, int], bits: int, kind: str
) -> None:
    rows, cols = shape
    outer = parse("S[(Mt,1):(1,1)]")
    many_src, many_dst = (side.tile(outer, (Mt, 1), shape) for side in (src, dst))
    found = convert(many_src, many_dst, (rows * Mt, cols), bits)
    one = convert(src, dst, shape, bits)
    assert (found.kind, found.registers, found.steps) == (kind, one.registers, one.steps)
    assert [(it.extent, it.src, it.dst) for it in found.loops] == [
        (Mt, rows * cols // 32, rows * cols // 32)
    ]
    for count in (1, 3):
        some = found.subs({"Mt": count})
        slots = count * rows * cols // 32
        before = np.array(held(some.src, 32, slots))
        after = np.array(held(some.dst, 32, slots))
        assert np.array_equal(some.execute(before), after)
        assert convert(some.src, some.dst, (rows * count, cols), bits).kind == kind
    with pytest.raises(Undecided, match=r"execute: .* slots must be a number"):
        found.execute(np.zeros((32, 8)))


def test_tiles_may_lie_further_apart_in_the_destination() -> None:
    src, dst = (A.tile(parse(f"S[(Mt,1):({step},1)]"), (Mt, 1), (16, 16)) for step in (1, 2))
    some = convert(src, dst, (16 * Mt, 16)).subs({"Mt": 3})
    assert some.kind == "registers"
    before, after = (np.array(held(side, 32, n)) for side, n in ((some.src, 24), (some.dst, 40)))
    assert np.array_equal(some.execute(before)[after >= 0], after[after >= 0])


def test_tiles_that_go_through_memory_keep_their_symbols() -> None:
    src = parse("S[(Mt,2,32):(1,1@warpid,1@laneid)]")
    dst = parse("S[(Mt,2,32):(2,1,1@laneid)] + R[2:1@warpid]")
    found = convert(src, dst, (Mt, 64), bits=32)
    assert (found.kind, found.src_slots, found.dst_slots) == ("shared", Mt, 2 * Mt)
    some = found.subs({"Mt": 3})
    before, after = (np.array(held(side, 64, n)) for side, n in ((some.src, 3), (some.dst, 6)))
    assert np.array_equal(some.execute(before), after)


ROWS, COLS = "S[(Mt,32):(1,1@laneid)]", "S[(32,Mt):(1@laneid,1)]"
LANES = "S[(Mt,32):(32@laneid,1@laneid)]"


@pytest.mark.parametrize(
    ("src", "dst", "bits", "reason"),
    [
        (ROWS, LANES, 32, "the digit of extent Mt has stride 1@m in src and 32@laneid in dst"),
        (ROWS, ROWS, 16, "must step over whole registers on both sides"),
        (ROWS, COLS, 32, "must share their boundaries"),
        (f"{ROWS} + R[2:Mt]", ROWS, 32, "has the symbols Mt there"),
        ("S[(Mt,32):(2,1@laneid)]", "S[(Mt,32):(2,1@laneid)]", 16, "must fill its registers of 2"),
    ],
)
def test_what_symbols_leave_open(src: str, dst: str, bits: int, reason: str) -> None:
    with pytest.raises(Undecided, match=reason) as caught:
        convert(parse(src), parse(dst), (Mt, 32), bits=bits)
    assert "substitute with .subs" in str(caught.value)


# -- the search on tables that no layout says -----------------------------------------------------


def test_a_relabelling_must_be_one_for_all_rows() -> None:
    """The second row holds its columns backwards: what the first row has fixed decides."""
    backwards = np.array([[0, 1, 2, 3, 7, 6, 5, 4]])
    (way, _) = Task(backwards, np.array([range(8)]), 32, (2, 4)).relabellings(8)
    assert (way.permutation, way.slots) == ((0, 1, 2, 3), (0, 1, 2, 3, 7, 6, 5, 4))
    turned = Task(
        np.array([[1, 0, 2, 3], [4, 5, 6, 7]]),
        np.array([range(4), range(4, 8)]),
        32,
        (2, 4),
    )
    assert turned.relabellings(4) == ()


def test_what_a_lane_has_itself_is_not_shuffled() -> None:
    lane = np.arange(32)
    held_before = np.stack([lane, np.full(32, 32)], axis=1)
    wanted = np.stack([(lane + 1) % 32, np.full(32, 32)], axis=1)
    steps, words = Task(held_before, wanted, 32, (33,)).attempt("shuffle")
    assert [step.register for step in steps] == [0]
    assert [word.register for word in words] == [2, 1]


# -- what is refused ------------------------------------------------------------------------------


AT = fragments.transposed(A, (16, 16))


@pytest.mark.parametrize(
    ("src", "dst", "shape", "how", "message"),
    [
        (A, A, (16, 16), {"bits": 12}, "convert: bits must be one of (4, 8, 16, 32, 64); got 12"),
        (A, A, (16, 16), {"via": "dsmem"},
         "convert: via must be one of registers, select, movmatrix, shuffle, shared; got 'dsmem'"),
        (A, A, (16, 8), {},
         "convert: src: the shape must hold as many elements as the "
         "layout; shape (16, 8) holds 128, "
         f"{A} holds 256"),
        ("S[32:1@TLane]", "S[32:1@laneid]", (32,), {},
         "convert: src must lie in the registers (axis m) of the "
         "threads of one CTA (laneid, tid_in_wg, "
         "tx, wid_in_wg, warpid, wgid); got axis TLane in S[32:1@TLane]"),
        ("S[(2,32):(0,1@laneid)]", "S[(2,32):(1,1@laneid)]", (2, 32), {},
         "convert: src must keep its elements apart; "
         "S[(2,32):(0,1@laneid)] puts (0, 0) and (1, 0) into "
         "slot 0 of thread 0"),
        ("S[(Mt,32):(0,1@laneid)]", ROWS, (Mt, 32), {},
         "is_injective: do the strides on m of "
         "S[(Mt,32):(0,1@laneid)] keep elements apart? The symbols "
         "Mt leave it open; substitute them with .subs."),
        ("S[(Mt+1,32):(0,1@laneid)]", "S[(Mt+1,32):(1,1@laneid)]", (Mt + 1, 32), {},
         "convert: src must keep its elements apart: element (0, 0) "
         "and element (1, 0) share the place "
         "(laneid 0, m 0)"),
        ("S[2048:1@tx]", "S[2048:1@tx]", (2048,), {},
         "convert: src must use threads 0..1023 and slots from 0; "
         "S[2048:1@tx] uses threads 0..2047, "
         "slots 0..0"),
        (A, AT, (16, 16), {"via": "registers"},
         "convert: via registers it cannot be done: slot 0 of thread "
         "1 needs (2, 0), which thread 8 "
         "holds in slot 0"),
        (D.tiled(16, 32), A_S8, (16, 32), {"bits": 8, "via": "movmatrix"},
         "convert: via movmatrix it cannot be done: movmatrix moves elements of 16 bits"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked(src: Any, dst: Any, shape: Any, how: Any, message: str) -> None:
    src, dst = (parse(side) if isinstance(side, str) else side for side in (src, dst))
    with pytest.raises(LayoutError) as caught:
        convert(src, dst, shape, **how)
    assert str(caught.value) == message


def test_a_recipe_runs_on_its_own_number_of_slots() -> None:
    with pytest.raises(LayoutError) as caught:
        convert(A, A, (16, 16)).execute(np.zeros((32, 4)))
    assert str(caught.value) == (
        "execute: needs an array (32, 8): threads, slots of the source; got (32, 4)"
    )


def test_a_conversion_says_what_it_does() -> None:
    found = convert(D.tiled(16, 32), A_S8, (16, 32), bits=8)
    lines = str(found).splitlines()
    assert lines[0] == (
        "shuffle: S[(2,8,4,4,2):(2,4@laneid,4,1@laneid,1)] to "
        "S[(2,8,2,4,4):(4,4@laneid,8,1@laneid,1)] "
        "over (16, 32), 8-bit elements"
    )
    assert lines[1:3] == [
        "  t0 = select r[lane % 2]",
        "  t1 = shfl.sync.idx t0 from lane lane // 4 * 4 + lane // 2 % 2 + lane % 2 * 2",
    ]
    assert "  registers: slot 0 of thread 1 needs (0, 4), which thread 2 holds in slot 0" in lines
    assert lines[-1].startswith(
        "  or: registers only, if index k of dimension 1 may hold logical index [0, 1, 8,"
    )
    assert str(convert(A, A, (16, 16))).splitlines()[1] == "  d0 = r0"
    assert found._repr_markdown_().startswith("```text\nshuffle: ")
    memory = convert(A, AT, (16, 16), via="shared")
    assert str(memory).splitlines()[1] == (
        "  store to shared memory at S[(2,8,2,8):(128,8,64,1)], warp barrier, load"
    )
    for conversion in (found, memory):
        assert hash(conversion) == hash(pickle.loads(pickle.dumps(conversion)))


def test_fragments_are_taken_as_they_are() -> None:
    row = fragments.get("mma.m16n8k16.f16", "A")
    assert convert(row, AT, (16, 16)) == convert(A, AT, (16, 16))
    with pytest.raises(LayoutError, match="convert: src must be a layout of registers; got 5"):
        convert(5, A, (16, 16))


@pytest.mark.parametrize("side", ["src", "dst"])
def test_both_sides_with_symbols_must_keep_their_elements_apart(side: str) -> None:
    good, bad = parse("S[(n,32,4):(4,1@laneid,1)]"), parse("S[(n,32,4):(4,1@laneid,0)]")
    pair = (bad, good) if side == "src" else (good, bad)
    with pytest.raises(LayoutError) as refused:
        convert(*pair, [it.extent for it in good.shard], 32)
    assert str(refused.value) == (
        f"convert: {side} must keep its elements apart: element (0, 0, 0) and element (0, 0, 1) "
        "share the place (laneid 0, m 0)"
    )
