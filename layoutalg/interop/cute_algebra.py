"""The algebra of CuTe layouts, each operation by its defining equation.

Where an operation finds no ``shape:stride`` that obeys its equation, it raises and says why.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import gcd, prod
from typing import NoReturn

from layoutalg.errors import LayoutError
from layoutalg.interop.cute import (
    CuteLayout,
    Leaf,
    Nested,
    coalesced,
    from_leaves,
)


def compose(a: CuteLayout, b: CuteLayout) -> CuteLayout:
    """Return R with ``R(c) = A(B(c))`` for every coordinate c of B; its modes refine those of B.

    A function of this form is a layout exactly where each leaf of B alone gives one and the leaves
    add up; both are decided, by digits where they divide and by looking at every value where they
    do not. Beyond its size A runs on in its last mode.

    Raises:
        LayoutError: no ``shape:stride`` is this function, or B has a negative stride.

    >>> of = CuteLayout.parse
    >>> print(compose(of("(10,2):(16,4)"), of("(3,4):(1,5)")))
    (3,(2,2)):(16,(80,4))
    >>> print(compose(of("(8,8):(8,1)"), of("3:3")))
    3:24
    >>> compose(of("(4,6,8):(2,3,5)"), of("6:3"))
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: compose: no shape:stride is (4,6,8):(2,3,5) after 6:3, which \
gives 0, 6, 7, 8, 9, 15: elements 0 and 1 differ by 6, 2 and 3 by 1

    Source: CuTe, ``composition``; NVIDIA/cutlass issues 2113 and 3177.
    """
    for extent, stride in b.leaves:
        if stride < 0:
            raise LayoutError(
                f"compose: the second layout must have strides from 0 on; {extent}:{stride} of {b} "
                "leads below offset 0, where the first is not defined"
            )
    outer = coalesced(a.leaves)
    result = _each_leaf(b, lambda extent, stride: _after(outer, extent, stride, a))
    if _carries(outer, b.leaves):
        for coord in itertools.product(*(range(extent) for extent, _ in b.leaves)):
            at = sum(c * stride for c, (_, stride) in zip(coord, b.leaves, strict=True))
            parts = sum(a(c * stride) for c, (_, stride) in zip(coord, b.leaves, strict=True))
            if a(at) != parts:
                raise LayoutError(
                    f"compose: no shape:stride is {a} after {b}: at {coord} the modes of the "
                    f"second carry into each other; the first gives {a(at)} there, but the modes "
                    f"alone add up to {parts}"
                )
    return result


def _each_leaf(b: CuteLayout, image: Callable[[int, int], CuteLayout]) -> CuteLayout:
    """Replace every leaf of b by its image."""

    def walk(shape: Nested, stride: Nested) -> tuple[Nested, Nested]:
        if isinstance(shape, int) or isinstance(stride, int):
            found = image(shape, stride)  # type: ignore[arg-type]
            return found.shape, found.stride
        pairs = [walk(d, s) for d, s in zip(shape, stride, strict=True)]
        return tuple(d for d, _ in pairs), tuple(s for _, s in pairs)

    return CuteLayout(*walk(b.shape, b.stride))


def _after(outer: Sequence[Leaf], extent: int, stride: int, a: CuteLayout) -> CuteLayout:
    """Return the layout ``c -> A(c * stride)`` for c below extent, A given by coalesced leaves."""
    name = f"{extent}:{stride}"
    found: list[Leaf] = []
    done = 1  # the product of the extents found
    leaves = list(outer)
    while extent > 1 and leaves:
        size, step = leaves[0]
        if len(leaves) == 1 or (extent - 1) * stride < size:
            found.append((extent, step * stride))
            return from_leaves(found)
        if stride % size == 0:
            stride //= size
        elif size % stride == 0:
            run = size // stride
            if extent % run:
                _refuse_run(a, name, done, run)
            found.append((run, step * stride))
            extent, stride, done = extent // run, 1, done * run
        else:
            rest = from_leaves(leaves)
            return from_leaves([*found, *_recognised(rest, extent, stride, a, name, done)])
        leaves.pop(0)
    if extent > 1:
        found.append((extent, 0))
    return from_leaves(found)


def _recognised(
    rest: CuteLayout, extent: int, stride: int, a: CuteLayout, name: str, done: int
) -> list[Leaf]:
    """Return the leaves of ``c -> rest(c * stride)``, found by looking at its values.

    A coalesced layout goes up evenly for exactly its first extent, so that extent can be read off,
    and with it all the others.
    """
    found: list[Leaf] = []
    while extent > 1:
        first = rest(stride)
        run = next((c for c in range(2, extent) if rest(c * stride) != c * first), extent)
        if extent % run:
            _refuse_run(a, name, done, run)
        for c in range(extent):
            step = rest(c * stride) - rest((c - c % run) * stride)
            if step != c % run * first:
                raise LayoutError(
                    f"compose: no shape:stride is {a} after {name}, which gives "
                    f"{_few(a, name)}: elements 0 and {c % run * done} differ by "
                    f"{c % run * first}, {(c - c % run) * done} and {c * done} by {step}"
                )
        found.append((run, first))
        extent, stride, done = extent // run, stride * run, done * run
    return found


def _refuse_run(a: CuteLayout, name: str, done: int, run: int) -> NoReturn:
    extent = CuteLayout.parse(name).size
    raise LayoutError(
        f"compose: no shape:stride is {a} after {name}, which gives {_few(a, name)}: the pattern "
        f"changes after {done * run} steps, and {done * run} does not divide {extent}"
    )


def _few(a: CuteLayout, name: str) -> str:
    """Print the values of ``A after extent:stride``, the first eight where there are many."""
    inner = CuteLayout.parse(name)
    values = [str(a(inner(c))) for c in range(min(inner.size, 8))]
    return ", ".join(values) + (", …" if inner.size > 8 else "")


def _carries(outer: Sequence[Leaf], inner: Sequence[Leaf]) -> bool:
    """Say whether sums of the inner leaves ever carry over the boundary of an outer leaf."""
    weight = 1
    for extent, _ in outer[:-1]:
        weight *= extent
        if sum(_peak(d, s, weight) for d, s in inner) >= weight:
            return True
    return False


def _peak(extent: int, stride: int, modulus: int) -> int:
    """Return the largest ``c * stride mod modulus`` for c below extent."""
    if (extent - 1) * stride < modulus:
        return (extent - 1) * stride
    common = gcd(stride, modulus)
    if extent >= modulus // common:
        return modulus - common
    return max(c * stride % modulus for c in range(extent))


def complement(layout: CuteLayout, size: int | None = None) -> CuteLayout:
    """Return what the layout leaves out: together they reach every offset below ``size`` once.

    ``(c, d) -> L(c) + complement(d)`` is one to one onto ``0 .. n-1`` for an n of at least size,
    and the complement goes up. Modes of stride 0 count once. Size is the cosize by default.

    Raises:
        LayoutError: the offsets repeat, or their gaps are such that no layout fills them: the
            strides are no chain in which each is a multiple of what the smaller ones cover.

    >>> print(complement(CuteLayout.parse("(2,2):(1,6)"), 24))
    (3,2):(2,12)

    Source: CuTe, ``complement``; NVIDIA/cutlass issue 1466.
    """
    total = layout.cosize if size is None else size
    found: list[Leaf] = []
    covered = 1
    for extent, stride in sorted(_moving(layout, "complement"), key=lambda leaf: leaf[1]):
        if stride % covered:
            raise LayoutError(
                f"complement: each stride must be a multiple of what the smaller ones cover; "
                f"{extent}:{stride} of {layout} meets {covered}: its offsets repeat, or leave gaps "
                "that no layout fills"
            )
        found.append((stride // covered, covered))
        covered = stride * extent
    found.append((-(-total // covered), covered))
    return from_leaves(coalesced(found))


def _moving(layout: CuteLayout, what: str) -> list[Leaf]:
    """Return the leaves that move, and refuse negative strides."""
    for extent, stride in layout.leaves:
        if stride < 0:
            raise LayoutError(
                f"{what}: the strides must be at least 0; got {extent}:{stride} in {layout}"
            )
    return [leaf for leaf in layout.leaves if leaf[0] != 1 and leaf[1] != 0]


def logical_divide(layout: CuteLayout, tiler: CuteLayout | int) -> CuteLayout:
    """Return the layout as (tile, rest): ``R(i, j) = L(T(i) + T'(j))``, T' the complement of T.

    Mode 0 walks one tile, mode 1 the tiles. A number n is the tiler ``n:1``.

    Raises:
        LayoutError: the tiler has no complement, or no ``shape:stride`` is this function.

    >>> print(logical_divide(CuteLayout.parse("16:1"), CuteLayout.parse("4:2")))
    (4,(2,2)):(2,(1,8))
    >>> print(logical_divide(CuteLayout.parse("2:5"), 1))
    (1,2):(0,5)

    Source: CuTe, ``logical_divide``.
    """
    tile = CuteLayout(tiler, 1) if isinstance(tiler, int) else tiler
    rest = complement(tile, layout.size)
    both = CuteLayout((tile.shape, rest.shape), (tile.stride, rest.stride))
    return compose(layout, both)


def right_inverse(layout: CuteLayout) -> CuteLayout:
    """Return R with ``L(R(i)) = i`` for every i below its size, the largest of whole modes.

    Modes of stride 0 reach nothing and are passed over.

    Raises:
        LayoutError: a stride is negative.

    >>> of = CuteLayout.parse
    >>> print(right_inverse(of("(4,8):(8,1)")), right_inverse(of("(2,2):(0,1)")))
    (8,4):(4,1) 2:2
    >>> print(right_inverse(of("4:2")))
    1:0

    Source: CuTe, ``right_inverse``.
    """
    _moving(layout, "right_inverse")
    leaves = _weighted(layout.leaves)

    def longest(reached: int) -> list[Leaf]:
        """Return the largest chain of modes that goes on from 0 .. reached - 1."""
        chains = [
            [(extent, weight), *longest(reached * extent)]
            for (extent, stride), weight in leaves
            if stride == reached
        ]
        return max(chains, key=lambda chain: prod(extent for extent, _ in chain), default=[])

    return from_leaves(coalesced(longest(1)))


def left_inverse(layout: CuteLayout) -> CuteLayout:
    """Return R with ``R(L(i)) = i`` for every i below the size of L.

    Each mode is read off one digit of the offset: the smallest stride is the unit, and each larger
    stride is rounded down to a multiple of the one before. Offsets that L does not reach may go
    anywhere.

    Raises:
        LayoutError: two elements share an offset, or the digits do not give back the modes.

    >>> print(left_inverse(CuteLayout.parse("(4,8):(1,5)")))
    (5,8):(1,4)
    >>> left_inverse(CuteLayout.parse("(2,2):(0,1)"))
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: left_inverse: 2:0 of (2,2):(0,1) puts 2 elements on one offset

    Source: CuTe, ``left_inverse``.
    """
    for extent, stride in layout.leaves:
        if extent != 1 and stride == 0:
            raise LayoutError(
                f"left_inverse: {extent}:0 of {layout} puts {extent} elements on one offset"
            )
    _moving(layout, "left_inverse")
    ordered = sorted(_weighted(coalesced(layout.leaves)), key=lambda pair: pair[0][1])
    if not ordered:
        return from_leaves([])
    found: list[Leaf] = [(ordered[0][0][1], 0)]
    radix = ordered[0][0][1]  # the digit of a mode counts multiples of its radix
    drift = 0  # how far an offset lies above the sum of its digits, at most
    for ((extent, stride), weight), (after, _) in itertools.pairwise(ordered):
        run = after[1] // radix
        if run < extent:
            raise LayoutError(
                f"left_inverse: {extent}:{stride} of {layout} reaches {after[0]}:{after[1]}: two "
                "elements share an offset, or no digit tells the modes apart"
            )
        found.append((run, weight))
        radix *= run
        drift += (after[0] - 1) * (after[1] - radix)
    if drift >= ordered[0][0][1]:
        raise LayoutError(
            f"left_inverse: the strides of {layout} must be multiples of one another, or nearly: "
            f"rounded down, they miss an offset by up to {drift}, and the smallest stride is "
            f"{ordered[0][0][1]}"
        )
    (extent, _), weight = ordered[-1]
    return from_leaves(coalesced([*found, (extent, weight)]))


def _weighted(leaves: Sequence[Leaf]) -> list[tuple[Leaf, int]]:
    """Return the leaves that move, each with its weight in the flat index."""
    weight = 1
    found = []
    for extent, stride in leaves:
        if extent != 1 and stride != 0:
            found.append(((extent, stride), weight))
        weight *= extent
    return found
