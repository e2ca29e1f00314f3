"""Reduction: the layout of a tile whose elements along some dimensions are made one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.algebra.parts import HasParts, Parts, canonicalize, copies, counts, moves
from layoutalg.sizes.size import Size


def reduced(parts: HasParts, shape: Sequence[Size], axes: Collection[int]) -> Parts:
    """Return the parts of what is left of some dimensions: see ``TileLayout.reduced``."""
    iters, seps = algebra.group(parts.shard, shape, parts, "reduced")
    shard: list[Iter] = []
    replica = [it for it in copies(parts) if it.axis.thread]
    for dim in range(len(shape)):
        group = iters[seps[dim] : seps[dim + 1]]
        if dim in axes:
            replica += [it for it in group if it.axis.thread and moves(it)]
        else:
            shard += group
    if counts(tuple(shard)):  # an axis that goes may have linked two scopes
        linking = dict.fromkeys(it.axis for it in parts.shard if it.axis.thread)
        shard = [*(Iter(1, 1, axis) for axis in linking), *shard]
    offset = {axis: value for axis, value in parts.offset.items() if axis.thread}
    dense = _compact(tuple(shard) or (Iter(1, 1),))
    found = canonicalize(Parts(dense, tuple(replica), offset), None)
    return Parts(found.shard, found.replica, found.offset)


def _compact(shard: Iters) -> Iters:
    """Number the cells of each memory axis densely from 0, in the order that they have.

    Digits of stride 0, which repeat a cell, still do.

    >>> _compact((Iter(2, 8), Iter(4, 0), Iter(8, 4, "laneid"), Iter(2, -1)))
    (Iter(2, 2, 'm'), Iter(4, 0, 'm'), Iter(8, 4, 'laneid'), Iter(2, 1, 'm'))
    """
    found = list(shard)
    told = [at for at, it in enumerate(shard) if it.axis.memory and moves(it)]
    sizes = tuple(_upward(shard[at]) for at in told)
    cells: dict[Axis, Any] = {}
    for each in reversed(algebra.canonical_order(sizes, "reduced")):
        it = sizes[each]
        dense = cells.get(it.axis, 1)
        found[told[each]] = Iter(it.extent, dense, it.axis)
        cells[it.axis] = dense * it.extent
    return tuple(found)


def _upward(it: Iter) -> Iter:
    """Return an iter that steps as far, upward."""
    return Iter(it.extent, abs(it.stride), it.axis) if type(it.stride) is int else it
