"""Thread-value layouts: converted point by point, both ways, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutalg import (
    Iter,
    LayoutError,
    S,
    TileLayout,
    Undecided,
    fragments,
    laneid,
    parse,
    tx,
    warpid,
)
from layoutalg.fragments import transposed
from layoutalg.interop import (
    CuteLayout,
    from_tv,
    to_tv,
)
from tests.layoutalg.interop.test_cute_maps import coordinates, plain
from tests.support import oracle

# -- thread-value layouts --------------------------------------------------------------------------


@st.composite
def owned_tiles(draw: st.DrawFn) -> tuple[TileLayout, tuple[int, ...]]:
    """A layout one to one onto lanes x slots apart from replicas: shuffled digits of both sides."""
    shape = draw(st.sampled_from([(4, 6), (8, 4), (2, 3, 4), (12,), (1, 8), (16, 2)]))
    digits: list[tuple[int, int | None]] = []  # extent, dimension (None: replica)
    for dim, extent in enumerate(shape):
        while extent > 1:
            factor = draw(st.sampled_from([d for d in range(2, extent + 1) if extent % d == 0]))
            digits.append((factor, dim))
            extent //= factor
    digits.extend((draw(st.sampled_from([2, 3])), None) for _ in range(draw(st.integers(0, 2))))
    order = draw(st.permutations(range(len(digits))))
    places: dict[int, tuple[int, str]] = {}
    weight = {"laneid": 1, "m": 1}
    for index in order:
        axis = draw(st.sampled_from(["laneid", "m"]))
        places[index] = (weight[axis], axis)
        weight[axis] *= digits[index][0]
    iters = {index: Iter(digits[index][0], *place) for index, place in places.items()}
    shard = [iters[i] for i, (_, dim) in enumerate(digits) if dim is not None]
    replica = [iters[i] for i, (_, dim) in enumerate(digits) if dim is None]
    return TileLayout.from_iters(shard, replica), shape


def check_tv(layout: TileLayout, shape: tuple[int, ...], tv: CuteLayout) -> None:
    """Hold that (thread, value) leads to exactly the elements that the layout puts there."""
    weights = [1, *itertools.accumulate(shape, lambda a, b: a * b)]
    threads, values = tv.extents
    elements = list(coordinates(shape))
    seen = {
        (dict(place).get("laneid", 0), dict(place).get("m", 0)): coord
        for coord in elements
        for place in oracle.image(plain(layout), oracle.flat(coord, shape))
    }
    assert len(seen) == threads * values
    for t, v in itertools.product(range(threads), range(values)):
        coord = seen[t, v]
        assert tv(t, v) == sum(c * w for c, w in zip(coord, weights, strict=False))


@settings(deadline=None)
@given(owned_tiles())
def test_tv_point_by_point_and_back(case: tuple[TileLayout, tuple[int, ...]]) -> None:
    layout, shape = case
    tv = to_tv(layout, shape, thread="laneid")
    check_tv(layout, shape, tv)
    back = from_tv(str(tv), shape, thread="laneid")
    assert {x: oracle.image(plain(back), x) for x in range(oracle.size(plain(back)))} == {
        x: oracle.image(plain(layout), x) for x in range(oracle.size(plain(layout)))
    }


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), min_size=1, max_size=3),
    st.sampled_from([(2, 4), (4, 2), (3, 4), (8,), (2, 2, 2)]),
)
def test_any_tv_converts_or_is_no_inverse(
    threads: list[tuple[int, int]], values: list[tuple[int, int]], shape: tuple[int, ...]
) -> None:
    def mode(leaves: list[tuple[int, int]], index: int) -> tuple[int, ...]:
        return tuple(leaf[index] for leaf in leaves)

    tv = CuteLayout((mode(threads, 0), mode(values, 0)), (mode(threads, 1), mode(values, 1)))
    size = int(np.prod(shape))
    held: dict[int, int] = {}
    for t, v in itertools.product(range(tv.modes[0].size), range(tv.modes[1].size)):
        element = tv(t, v)
        held[element] = held.get(element, 0) + 1
    fits = sorted(held) == list(range(size)) and len(set(held.values())) == 1
    try:
        layout = from_tv(tv, shape)
    except LayoutError:
        # every element is held equally often and yet it is refused: a leaf crosses dimensions
        assert not fits or crosses(tv, shape)
        return
    assert fits
    check_tv(layout, shape, tv)


def crosses(tv: CuteLayout, shape: tuple[int, ...]) -> bool:
    """Whether stepping one leaf moves a coordinate by an amount that depends on where it is."""
    weights = [1, *itertools.accumulate(shape, lambda a, b: a * b)]

    def coord(x: int) -> tuple[int, ...]:
        return tuple(x // w % e for w, e in zip(weights, shape, strict=False))

    for extent, stride in tv.leaves:
        for start in range(extent):
            if start * stride >= weights[-1]:
                continue
            moved = coord(start * stride)
            if sum(c != 0 for c in moved) > 1:
                return True
    return False


@pytest.mark.parametrize("name", fragments.names())
def test_fragments_have_their_tv_layouts(name: str) -> None:
    for operand in fragments.operands(name):
        row = fragments.get(name, operand)
        shape = (
            row.products * row.shape[0],
            row.shape[1],
        )  # of several products, one below another
        tv = to_tv(row.layout.canonicalize(target="cuda"), shape)
        assert tv.extents == row.coords.shape[:2]
        thread, slot = np.indices(tv.extents)
        down = row.coords[..., 0]
        if row.products > 1:
            down = down + row.shape[0] * row.holds[..., 0]
        assert (tv(thread, slot) == down + shape[0] * row.coords[..., 1]).all()
        back = from_tv(str(tv), shape).table(shape)
        for axis, column in row.layout.canonicalize(target="cuda").table(shape).items():
            assert np.array_equal(back.get(axis, np.zeros_like(column)), column)


def test_cute_of_m16n8k16() -> None:
    a, b, d = (fragments.get("mma.m16n8k16.f16", operand) for operand in "ABD")
    assert str(to_tv(a.layout, a.shape)) == "((4,8),(2,2,2)):((32,1),(16,8,128))"
    b_nk = transposed(b.layout, b.shape)
    assert str(to_tv(b_nk, (8, 16))) == "((4,8),(2,2)):((16,1),(8,64))"
    assert str(to_tv(d.layout, d.shape)) == "((4,8),(2,2)):((32,1),(16,8))"
    assert from_tv("((4,8),(2,2,2)):((32,1),(16,8,128))", (16, 16)).equivalent(a.layout)


def test_replicas_of_a_tile_over_four_warps() -> None:
    a = parse("S[(2,2,8,2,4,2):(1@warpid,2,4@laneid,4,1@laneid,1)] + R[2:2@warpid]")
    with pytest.raises(LayoutError, match=r"uses laneid, warpid: canonicalize"):
        to_tv(a, (32, 16))
    one_axis = a.canonicalize(target="cuda")
    tv = to_tv(one_axis, (32, 16))
    assert tv.modes[0] == CuteLayout.parse("(4,8,2,2):(64,1,16,0)")
    assert from_tv(tv, (32, 16), thread=tx) == one_axis


def test_thread_axis_by_the_number_of_threads() -> None:
    assert {it.axis.name for it in from_tv("(32,2):(2,1)", (64,)).shard} == {"laneid", "m"}
    assert {it.axis.name for it in from_tv("(128,2):(2,1)", (256,)).shard} == {"tid_in_wg", "m"}
    assert {it.axis.name for it in from_tv("(256,2):(2,1)", (512,)).shard} == {"tx", "m"}
    assert {it.axis.name for it in from_tv("(8,2):(2,1)", (16,), warpid).shard} == {"warpid", "m"}


# -- the corpus of tensor-layouts ------------------------------------------------------------------


def test_corpus_of_nvidia_atoms() -> None:
    """371 of the 372 operands convert and agree at each (thread, value); the int4 B is refused."""
    pytest.importorskip(
        "tensor_layouts", reason="the CuTe corpus needs tensor-layouts==0.3.2 (extra: oracle)"
    )
    from tensor_layouts import atoms_nv
    from tensor_layouts.atoms import MMAAtom

    atoms = {name: atom for name, atom in vars(atoms_nv).items() if isinstance(atom, MMAAtom)}
    done: dict[tuple[str, tuple[int, int]], None] = {}
    converted, refused = 0, {}
    for name, atom in atoms.items():
        m, n, k = atom.shape_mnk
        for operand, theirs, shape in (
            ("A", atom.a_layout, (m, k)),
            ("B", atom.b_layout, (n, k)),
            ("C", atom.c_layout, (m, n)),
        ):
            ours = CuteLayout(theirs.shape, theirs.stride)
            try:
                layout = from_tv(ours, shape)
            except LayoutError as error:
                refused[name, operand] = str(error)
                continue
            converted += 1
            if (str(ours), shape) not in done:
                done[str(ours), shape] = None
                check_atom(theirs, layout, shape)
                back = to_tv(layout, shape)
                assert from_tv(back, shape) == layout
    assert len(atoms) == 124
    assert converted == 371
    assert len(done) > 60
    assert refused == {
        ("SM80_16x8x32_S32S4S4S32_TN", "B"): "from_tv: dimension 1 of (8, 32): leaf 4:32 of the "
        "threads has stride 4, but the smaller strides cover 0..7 already: some values are reached "
        "twice, others once"
    }


ATOMS = {  # CuTe's name, ours
    "SM75_16x8x8_F32F16F16F32_TN": "mma.m16n8k8.f16",
    "SM75_8x8x16_S32S8S8S32_TN": "mma.m8n8k16.s8",
    "SM80_16x8x16_F32F16F16F32_TN": "mma.m16n8k16.f16",
    "SM80_16x8x16_F32BF16BF16F32_TN": "mma.m16n8k16.bf16",
    "SM80_16x8x4_F32TF32TF32F32_TN": "mma.m16n8k4.tf32",
    "SM80_16x8x8_F32TF32TF32F32_TN": "mma.m16n8k8.tf32",
    "SM80_8x8x4_F64F64F64F64_TN": "mma.m8n8k4.f64",
    "SM80_16x8x16_S32S8S8S32_TN": "mma.m16n8k16.s8",
    "SM80_16x8x32_S32S8S8S32_TN": "mma.m16n8k32.s8",
    "SM80_8x8x32_S32S4S4S32_TN": "mma.m8n8k32.s4",
    "SM80_16x8x64_S32S4S4S32_TN": "mma.m16n8k64.s4",
    "SM80_8x8x128_S32U1U1S32_TN_XORPOPC": "mma.m8n8k128.b1",
    "SM80_16x8x128_S32U1U1S32_TN_XORPOPC": "mma.m16n8k128.b1",
    "SM80_16x8x256_S32U1U1S32_TN_XORPOPC": "mma.m16n8k256.b1",
    "SM89_16x8x32_F32E4M3E5M2F32_TN": "mma.m16n8k32.e4m3.e5m2",
    "SM90_16x8x16_F64F64F64F64_TN": "mma.m16n8k16.f64",
}


@pytest.mark.parametrize("atom", ATOMS)
def test_corpus_says_what_our_fragments_say(atom: str) -> None:
    """CuTe's traits and the table of the PTX ISA, element by element."""
    pytest.importorskip(
        "tensor_layouts", reason="the CuTe corpus needs tensor-layouts==0.3.2 (extra: oracle)"
    )
    from tensor_layouts import atoms_nv

    theirs = getattr(atoms_nv, atom)
    m, n, k = theirs.shape_mnk
    for operand, tv, shape in (
        ("A", theirs.a_layout, (m, k)),
        ("B", theirs.b_layout, (n, k)),
        ("C/D", theirs.c_layout, (m, n)),
    ):
        layout = from_tv(CuteLayout(tv.shape, tv.stride), shape)
        names = [name for name in fragments.operands(ATOMS[atom]) if name.startswith(operand)]
        assert names
        for name in names:
            row = fragments.get(ATOMS[atom], name)
            ours = transposed(row.layout, row.shape) if operand == "B" else row.layout
            assert layout.equivalent(ours)


def check_atom(theirs: Any, layout: TileLayout, shape: tuple[int, int]) -> None:
    """Hold each (thread, value) that tensor-layouts evaluates against the layout's table."""
    table = layout.table(shape, replicas=True)
    axes = [axis for axis in table if axis != "m"]
    copies = next(iter(table.values())).shape[-1]
    threads, values = (int(np.prod(flattened(mode))) for mode in theirs.shape)
    element = np.full((threads, values), -1)
    zero = np.zeros((*shape, copies), dtype=int)
    rows, cols, _ = np.indices((*shape, copies))
    element[table[axes[0]] if axes else zero, table.get("m", zero)] = rows + shape[0] * cols
    t, v = np.indices((threads, values))
    expected = offsets(theirs.shape[0], theirs.stride[0], t) + offsets(
        theirs.shape[1], theirs.stride[1], v
    )
    assert (element == expected).all()
    asked = np.random.default_rng(0).permutation(threads * values)[:2000]  # their own evaluation
    for t, v in zip(*np.divmod(asked, values), strict=True):
        assert theirs(int(t), int(v)) == element[t, v]


def offsets(shape: Any, stride: Any, index: Any) -> Any:
    """The definition: digits of the index, first leaf fastest, times their strides."""
    total = 0
    for extent, step in zip(flattened(shape), flattened(stride), strict=True):
        total = total + index % extent * step
        index = index // extent
    return total


def flattened(shape: Any) -> list[int]:
    return [shape] if isinstance(shape, int) else [d for each in shape for d in flattened(each)]


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: from_tv("(4,2,2):(1,4,8)", (16,)),
            "from_tv: a thread-value layout has two modes; (4,2,2):(1,4,8) has 3",
        ),
        (
            lambda: from_tv("(4,2):(1,4)", (16,)),
            "from_tv: dimension 0 of (16,): the strides cover 8 of 16 elements",
        ),
        (
            lambda: from_tv("(4,4):(1,4)", (8,)),
            "from_tv: dimension 0 of (8,): the strides cover 16 of 8 elements",
        ),
        (
            lambda: from_tv("(4,2):(1,8)", (16,)),
            "from_tv: dimension 0 of (16,): leaf 2:8 of the values has stride 8, but the smaller "
            "strides cover 0..3 only: nothing reaches 4",
        ),
        (
            lambda: from_tv("(4,4):(5,1)", (4, 4)),
            "from_tv: leaf 4:5 of the threads moves dimension 1 of (4, 4) and one before it at "
            "once",
        ),
        (
            lambda: from_tv("(4,3):(3,1)", (4, 3)),
            "from_tv: leaf 4:3 of the threads passes the end of dimension 0 of (4, 3) inside a "
            "step",
        ),
        (
            lambda: from_tv("(4,4):(-1,4)", (4, 4)),
            "from_tv: the strides must be at least 0; got leaf 4:-1 of the threads",
        ),
        (
            lambda: from_tv("(4,4):(1,4)", (4, 4), "m"),
            "from_tv: threads and values need two axes; got m for both",
        ),
        (
            lambda: to_tv(TileLayout(S[(8, 2) : (4 @ laneid, 1)]), (16,)),
            "to_tv: laneid of S[(8,2):(4@laneid,1)]: 8:4@laneid has stride 4, but the smaller "
            "strides cover 0..0 only: nothing reaches 1",
        ),
        (
            lambda: to_tv(TileLayout(S[(8, 2) : (1 @ laneid, 1)] + 1 @ laneid), (16,)),
            "to_tv: the other notation starts at place 0; S[(8,2):(1@laneid,1)] + 1@laneid has the "
            "offset 1@laneid",
        ),
        (
            lambda: to_tv(TileLayout(S[(8, 2) : (1 @ laneid, 0)]), (16,)),
            "to_tv: every iter must go up; 2:0@m of S[(8,2):(1@laneid,0)] puts several elements on "
            "one place",
        ),
        (
            lambda: to_tv(parse("S[(8,2):(1@laneid,-1)]"), (16,)),
            "to_tv: every iter must go up; 2:-1@m of S[(8,2):(1@laneid,-1)] counts downwards",
        ),
        (
            lambda: to_tv(parse("S[(8,2):(1@laneid,1@TCol)]"), (16,)),
            "to_tv: a TV layout has threads (laneid) and values (m); S[(8,2):(1@laneid,1@TCol)] "
            "also uses TCol",
        ),
    ],
)
def test_refusals_say_why(call: Any, message: str) -> None:
    with pytest.raises(LayoutError) as refused:
        call()
    assert str(refused.value) == message


def test_a_replica_that_names_a_place_twice_is_none() -> None:
    idle = parse("S[(8,2):(1@laneid,1)] + R[2:0]")
    assert to_tv(idle, (16,)) == to_tv(parse("S[(8,2):(1@laneid,1)]"), (16,))


def test_symbols_are_undecided() -> None:
    with pytest.raises(Undecided):
        to_tv(parse("S[(n,2):(1@laneid,1)]"), (8, 2))
