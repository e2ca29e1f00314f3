"""Conversions between distributed layouts: registers, movmatrix, shuffles or shared memory.

Both layouts become tables, thread by slot (:mod:`layoutalg.layouts.thread_slots`). The cheapest
kind that brings every slot of the destination its element is taken, and each recipe is run on the
element numbers before it is returned. With symbolic sizes, digits that are register digits on both
sides become loops; the rest must be concrete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import m
from layoutalg.algebra.grouping import group_many
from layoutalg.algebra.iters import Iters
from layoutalg.algebra.parts import HasParts, Parts, canonicalize, span
from layoutalg.conversions.recipe import Conversion, Exchange, Kind, Loop, Price
from layoutalg.conversions.search import Recipe, Task, padded
from layoutalg.errors import LayoutError, Undecided
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.layouts.thread_slots import check_distributed, elements_held
from layoutalg.layouts.tile_layout import TileLayout
from layoutalg.proofs.injectivity import is_injective
from layoutalg.proofs.normal_form import check_shape, symbols_of
from layoutalg.sizes.dtypes import element_type
from layoutalg.sizes.size import Size, as_shape, divides, is_int

BITS = (4, 8, 16, 32, 64)  # of an element


def convert(
    src: LayoutLike,
    dst: LayoutLike,
    shape: Sequence[Any],
    bits: int | str = 16,
    via: Kind | None = None,
) -> Conversion:
    """Return the cheapest recipe that moves data from layout ``src`` to layout ``dst``.

    If slot s of thread t holds element ``src(t, s)``, then after :meth:`Conversion.execute` it
    holds ``dst(t, s)``, in every replica of the destination. Any replica of the source may be read.
    For 32-bit elements no conversion seen so far takes more shuffles than the lower bound
    :func:`layoutalg.conversions.shuffle_rounds.least`; narrower elements are packed before they are
    shuffled where that saves rounds.

    Args:
        src: a layout, a fragment or text, over thread axes of one CTA and m, the slot in the
            thread. A thread axis that it does not name is 0: the data is in one warp.
        dst: another such layout.
        shape: logical extents, of both.
        bits: of an element while it moves, 4, 8, 16, 32 or 64, or its type. An f32 accumulator that
            becomes f16 is narrowed first and moves at 16 bits, packed in slot order.
        via: take this kind even if a cheaper one works.

    Raises:
        LayoutError: a layout is not distributed over one CTA, puts two elements in one slot or has
            another size; or ``via`` does not work, with the reason.
        Undecided: the recipe depends on a symbol.

    >>> from layoutalg import fragments, parse
    >>> A = fragments.get("mma.m16n8k16.f16", "A")
    >>> D = fragments.get("mma.m16n8k16.f16", "D")
    >>> found = convert(D.tiled(16, 16), A.layout, (16, 16), bits=16)
    >>> found.kind, found.registers
    ('registers', (0, 1, 2, 3))
    >>> found = convert(A.layout, fragments.transposed(A.layout, (16, 16)), (16, 16))
    >>> found.kind, found.registers, found.movmatrices
    ('movmatrix', (0, 2, 1, 3), 4)

    Source: PTX ISA, shfl.sync, movmatrix, prmt.
    """
    extents = as_shape(shape, "convert")
    src, dst = as_layout(src, "convert: src"), as_layout(dst, "convert: dst")
    row = element_type(bits)
    bits = bits if row is None else row.bits
    if not isinstance(bits, int) or bits not in BITS:
        raise LayoutError(f"convert: bits must be one of {BITS}; got {bits!r}")
    if via is not None and via not in get_args(Kind):
        raise LayoutError(f"convert: via must be one of {', '.join(get_args(Kind))}; got {via!r}")
    for name, side in (("src", src), ("dst", dst)):
        check_distributed(side, "convert", name)
        check_shape(f"convert: {name}", side, extents)
    if symbols_of(src, dst) or not is_int(*extents):
        return _symbolic(src, dst, extents, bits, via)
    return _concrete(src, dst, extents, bits, via)


def _concrete(
    src: HasParts, dst: HasParts, shape: tuple[Size, ...], bits: int, via: Kind | None
) -> Conversion:
    """Take the cheapest kind that works, and run its recipe on the element numbers."""
    held = elements_held(src, shape, "convert", "src")
    wanted = elements_held(dst, shape, "convert", "dst")
    task = Task.of(held, wanted, bits, shape)
    kind, (steps, words), why = cheapest(task, via)
    found = Conversion(
        kind, src, dst, shape, bits, task.threads, held.shape[1], wanted.shape[1], steps, words, (),
        why,
    )  # fmt: skip
    moved = found.execute(task.held[:, : held.shape[1]])
    full = wanted >= 0
    assert np.array_equal(moved[: len(wanted)][full], wanted[full]), (src, dst, kind)
    names = () if kind == "registers" else task.relabellings(wanted.shape[1])
    return replace(found, relabellings=names)


def cheapest(task: Task, via: Kind | None = None) -> tuple[Kind, Recipe, tuple[str, ...]]:
    """Return the cheapest kind that works, its recipe, and why no kind before it is taken.

    Raises:
        LayoutError: ``via`` does not work, with the reason.
    """
    why: list[str] = []
    best: tuple[Price, Kind, Recipe] | None = None
    for kind in get_args(Kind):
        if best is not None and (best[1] == "registers" or via is not None):
            break
        answer = task.attempt(kind)
        if isinstance(answer, str):
            why.append(f"{kind}: {answer}")
            if via == kind:
                raise LayoutError(f"convert: via {kind} it cannot be done: {answer}")
        elif via in (None, kind):
            price = task.price(answer)
            if best is None or price.cycles < best[0].cycles:
                why += [f"{best[1]}: {best[0]}: dearer than {price}"] if best else []
                best = price, kind, answer
    assert best is not None, "shared memory always does"
    return best[1], best[2], tuple(why)


def _symbolic(
    src: HasParts, dst: HasParts, shape: tuple[Size, ...], bits: int, via: Kind | None
) -> Conversion:
    """Turn the register digits of both sides into loops; convert the remaining tile.

    Grouped at common boundaries, both layouts are forms in the same digits. A digit that steps over
    whole registers on both sides only repeats the recipe.
    """
    for name, side in (("src", src), ("dst", dst)):
        verdict = is_injective(side, shape)
        if not verdict:
            raise LayoutError(f"convert: {name} must keep its elements apart: {verdict.reason}")
    pack = max(1, 32 // bits)
    loops: list[Loop] = []
    left, right = [], []
    for a, b in zip(*_common_digits(src, dst, shape), strict=True):
        whole = divides(pack, a.stride) and divides(pack, b.stride)
        if is_int(a.extent, a.stride, b.stride):
            left.append(a)
            right.append(b)
        elif a.axis is m and b.axis is m and whole:
            loops.append(Loop(a.extent, a.stride, b.stride))
        else:
            raise Undecided(
                f"convert: a digit with symbols must step over whole registers on both sides; the "
                f"digit of extent {a.extent} has stride {a.stride}@{a.axis} in src and "
                f"{b.stride}@{b.axis} in dst: substitute with .subs"
            )
    before = Parts(tuple(left), src.replica, src.offset)
    after = Parts(tuple(right), dst.replica, dst.offset)
    if symbols_of(before, after):
        raise Undecided(
            f"convert: replicas and offsets must be numbers; {src} or {dst} has the symbols "
            f"{', '.join(symbols_of(before, after))} there: substitute with .subs"
        )
    tile = _concrete(before, after, algebra.extents(tuple(left)), bits, via)
    if tile.kind == "shared":
        return replace(
            tile,
            src=src,
            dst=dst,
            shape=shape,
            src_slots=span(src, m),
            dst_slots=span(dst, m),
            steps=tuple(
                Exchange(TileLayout.from_iters(algebra.row_major(shape)), step.barrier)
                for step in tile.steps
                if isinstance(step, Exchange)
            ),
        )
    filled = elements_held(after, tile.shape, "convert", "dst") >= 0
    words = padded(np.where(filled, 0, -1), tile.threads, pack).reshape(tile.threads, -1, pack)
    if ((words < 0).any(axis=(0, 2)) & (words >= 0).any(axis=(0, 2))).any():
        raise Undecided(
            f"convert: a tile of {dst} must fill its registers of {pack} elements, in every thread "
            "of its warps: substitute with .subs"
        )
    return replace(tile, src=src, dst=dst, shape=shape, loops=tuple(loops), relabellings=())


def _common_digits(src: HasParts, dst: HasParts, shape: tuple[Size, ...]) -> tuple[Iters, Iters]:
    """Return both shards cut at the boundaries of both and of the shape."""
    one, other = canonicalize(src, None), canonicalize(dst, None)
    cuts = tuple(extent for extent in shape if extent != 1) or (1,)
    try:
        left, _ = group_many(one, [cuts, algebra.extents(other.shard)])
        right, _ = group_many(other, [cuts, algebra.extents(one.shard)])
    except LayoutError as reason:
        raise Undecided(
            f"convert: the digits of {src} and {dst} must share their boundaries ({reason}): "
            "substitute with .subs"
        ) from None
    return left, right
