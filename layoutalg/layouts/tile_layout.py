"""``TileLayout``: the map from a logical tile to machine coordinates, and its operations.

The operations live in the modules of the algebra and work on tuples of iters; the methods here are
thin. :class:`layoutalg.layouts.mapping.LayoutMap` holds what a layout is and says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from layoutalg.algebra import grouping, packing, parts, tiling, untiling
from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis, m
from layoutalg.algebra.scope import as_target
from layoutalg.algebra.slicing import slice_parts
from layoutalg.errors import LayoutError
from layoutalg.layouts.mapping import LayoutMap
from layoutalg.sizes.arguments import as_region, check_permutation
from layoutalg.sizes.size import as_shape


@final
class TileLayout(LayoutMap):
    """A layout: shard iters, replica iters, and an offset per axis. Immutable, hashable.

    ``L(x) = {sum digit*stride + offset + sum r*stride over all replica digits r}`` on named axes,
    with the digits of the flat index ``x``, split row-major over the shard extents.

    >>> from layoutalg import S, laneid
    >>> D = TileLayout(S[(2, 8, 4, 2):(2, 4 @ laneid, 1 @ laneid, 1)])
    >>> D.apply(9, 3, shape=(16, 8))
    {'m': 3, 'laneid': 5}
    >>> print(D)
    S[(2,8,4,2):(2,4@laneid,1@laneid,1)]

    Source: the layout model of Apache TVM's TIRx (``TileLayout``).
    """

    __slots__ = ()

    def subs(self, values: Mapping[Any, Any]) -> TileLayout:
        """Return the layout with symbols, or names of symbols, replaced by sizes, all at once.

        Raises:
            LayoutError: a value is no size, or makes an extent smaller than 1.

        >>> from layoutalg import parse
        >>> print(parse("S[(16*Mt,8):(8,1)]").subs({"Mt": 2}))
        S[(32,8):(8,1)]
        """
        return self._make(*parts.substitute_parts(self, values))

    # -- canonical form and refinements -----------------------------------------------------

    def canonicalize(self, target: str | None = None) -> TileLayout:
        """Return the canonical layout of the same map.

        Unit iters and zero offsets go (but where one is the only link between the scopes of two
        thread axes); under ``target="cuda"`` axes that are one axis there become
        one (laneid and wid_in_wg are tid_in_wg), and their offsets add up; neighbours on one axis
        fuse where ``next.extent * next.stride == current.stride``.

        Raises:
            LayoutError: the layout is ill-formed (see :meth:`get_scope`).

        >>> from layoutalg import S
        >>> print(TileLayout(S[(8, 1, 4, 2):(8, 7, 2, 1)]).canonicalize())
        S[64:1]
        """
        fusing = None if target is None else as_target(target)
        known: TileLayout | None = self._memo.get(fusing)
        if known is None:
            found = parts.canonical_parts(self, fusing)
            known = self if found is None else self._make(*found)
            self._memo[fusing] = known
        return known

    def is_trivial(self) -> bool:
        """Say whether the canonical form is at most one dense iter on a memory axis, from 0.

        >>> from layoutalg import S
        >>> TileLayout(S[(2, 4):(4, 1)]).is_trivial(), TileLayout(S[8:2]).is_trivial()
        (True, False)
        """
        return parts.is_dense(self.canonicalize())

    def group(self, shape: Sequence[Any]) -> tuple[TileLayout, tuple[int, ...]]:
        """Split iters so that each extent of ``shape`` owns whole iters; the map is unchanged.

        ``L.group(s)[0].apply(x) == L.apply(x)``; iters ``seps[d] .. seps[d+1]`` hold dimension d.

        Raises:
            LayoutError: the sizes differ, or an extent cuts an iter unevenly.
            Undecided: divisibility depends on a symbol.

        >>> from layoutalg import S
        >>> grouped, seps = TileLayout(S[24:1]).group((2, 3, 4))
        >>> print(grouped, seps)
        S[(2,3,4):(12,4,1)] (0, 1, 2, 3)
        """
        extents = as_shape(shape, "group")
        known: tuple[TileLayout, tuple[int, ...]] | None = self._memo.get(extents)
        if known is None:
            shard, seps = algebra.group(self.shard, extents, self)
            known = self._make(shard, self.replica, self.offset), seps
            self._memo[extents] = known
        return known

    def group_many(
        self, shapes: Sequence[Sequence[Any]]
    ) -> tuple[TileLayout, tuple[tuple[int, ...], ...]]:
        """Refine the shard for several shapes at once; one tuple of separators per shape.

        The coarsest refinement whose iters end at every boundary of the layout and of the shapes.

        Raises:
            LayoutError: no shape, unequal sizes, or boundaries that do not nest.
            Undecided: one of these depends on a symbol.

        >>> from layoutalg import S
        >>> grouped, seps = TileLayout(S[30:1]).group_many([[6, 5], [2, 15]])
        >>> print(grouped, seps)
        S[(2,3,5):(15,5,1)] ((0, 2, 3), (0, 1, 3))
        """
        shard, seps = grouping.group_many(self, grouping.as_shapes(shapes, "group_many"))
        return self._make(shard, self.replica, self.offset), seps

    def permute_dims(self, perm: Sequence[int]) -> TileLayout:
        """Return the layout with shard iter ``perm[i]`` at position i.

        Raises:
            LayoutError: ``perm`` is no permutation of the iters.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(2, 3):(3, 1)]).permute_dims((1, 0)))
        S[(3,2):(1,3)]
        """
        order = check_permutation(perm, len(self.shard), "permute_dims")
        shard = tuple(self.shard[index] for index in order)
        return self._make(shard, self.replica, self.offset)

    def permute_by_groups(self, seps: Sequence[int], perm: Sequence[int]) -> TileLayout:
        """Return the layout with its groups of iters in the order ``perm``.

        Args:
            seps: the separators of :meth:`group`.
            perm: a permutation of the groups.

        Raises:
            LayoutError: the separators do not cover the shard, or ``perm`` is no permutation.

        >>> from layoutalg import S
        >>> grouped, seps = TileLayout(S[(4, 6):(6, 1)]).group((8, 3))
        >>> print(grouped.permute_by_groups(seps, (1, 0)))
        S[(3,4,2):(1,6,3)]
        """
        shard = grouping.permute_by_groups(self.shard, seps, perm, self)
        return self._make(shard, self.replica, self.offset)

    # -- tiles and sums ---------------------------------------------------------------------

    def tile(
        self,
        outer: TileLayout,
        outer_shape: Sequence[Any],
        inner_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout:
        """Arrange copies of this tile as ``outer`` says.

        With ``t_d = o_d*inner_shape[d] + n_d``: ``T(t) = span * Outer(o) + Inner(n)`` on each axis
        that this tile's canonical shard names, where span is this tile's: a copy is moved in units
        of whole tiles, whether a shard iter or a replica of ``outer`` moves it (TVM leaves replicas
        unscaled). On other axes the unit is 1. Offsets, of both, are machine coordinates and are
        added as they are.

        Raises:
            LayoutError: the ranks differ, a layout does not group by its shape, or copies would
                overlap because this tile reaches below zero.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(2, 4):(1, 2)]).tile(TileLayout(S[(8, 8):(8, 1)]), (8, 8), (2, 4)))
        S[(8,2,32):(64,1,2)]
        """
        _check_layout(outer, "tile", "outer")
        over = tiling.Operand(outer, as_shape(outer_shape, "tile"), "tile: outer")
        under = tiling.Operand(self, as_shape(inner_shape, "tile"), "tile: inner")
        parts.check_ranks("tile", "outer_shape", over.shape, "inner_shape", under.shape)
        return self._make(*tiling.tile(under, over, as_target(target)))

    def tile_to(
        self, to_shape: Sequence[Any], current_shape: Sequence[Any], target: str | None = None
    ) -> TileLayout:
        """Repeat this tile row-major, on axis m, until it fills ``to_shape``.

        Raises:
            LayoutError: an extent of ``to_shape`` is not a multiple of the current one.
            Undecided: that depends on a symbol.

        >>> from layoutalg import S, laneid
        >>> F = TileLayout(S[(2, 8, 4, 2):(2, 4 @ laneid, 1 @ laneid, 1)])
        >>> print(F.tile_to((16, 16), (16, 8)))
        S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)]
        """
        to, current = as_shape(to_shape, "tile_to"), as_shape(current_shape, "tile_to")
        counts = grouping.tile_counts(to, current)
        outer = parts.Parts(algebra.row_major(counts), (), {})
        over = tiling.Operand(outer, counts, "tile_to: outer", as_it_stands=True)
        under = tiling.Operand(self, current, "tile_to")
        return self._make(*tiling.tile(under, over, as_target(target)))

    def is_tile_inner(
        self,
        tiled: Any,
        tiled_shape: Sequence[Any],
        inner_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout | None:
        """Return the outer layout with ``self.tile(outer, …)`` the map of ``tiled``, or None.

        Thread axes must fit: both count the same unit, and this tile in no wider a scope than
        ``tiled``. Under CUDA the axes of ``tiled`` are cut at this tile's scope.

        Raises:
            LayoutError: ranks differ, or a shape does not divide or group.
            Undecided: that depends on a symbol.

        >>> from layoutalg import S
        >>> tiled = TileLayout(S[(8, 2, 32):(64, 1, 2)])
        >>> print(TileLayout(S[(2, 4):(1, 2)]).is_tile_inner(tiled, (16, 32), (2, 4)))
        S[(8,8):(8,1)]
        """
        shapes = as_shape(tiled_shape, "is_tile_inner"), as_shape(inner_shape, "is_tile_inner")
        if hasattr(tiled, "tile_layout"):
            return None  # no plain layout is the tile of a swizzled one
        _check_layout(tiled, "is_tile_inner", "tiled")
        inner = tiling.Operand(self, shapes[1], "is_tile_inner: inner")
        found = untiling.outer_of(inner, tiled, shapes[0], as_target(target))
        return None if found is None else self._make(*found)

    def is_tile_outer(
        self,
        tiled: Any,
        tiled_shape: Sequence[Any],
        outer_shape: Sequence[Any],
        target: str | None = None,
    ) -> Any:
        """Return the inner layout with ``inner.tile(self, …)`` the map of ``tiled``, or None.

        Thread axes must fit: both count in the same scope, and ``tiled`` no wider a unit than this
        layout. This layout's replicas may stand in ``tiled`` in units of tiles, as ours are
        written, or unscaled, as TVM writes them. A swizzled ``tiled`` is taken apart and the answer
        is swizzled like it.

        Raises:
            LayoutError: ranks differ, or a shape does not divide or group.
            Undecided: that depends on a symbol.

        >>> from layoutalg import S
        >>> tiled = TileLayout(S[(8, 2, 32):(64, 1, 2)])
        >>> print(TileLayout(S[(8, 8):(8, 1)]).is_tile_outer(tiled, (16, 32), (8, 8)))
        S[(2,4):(1,2)]
        """
        shapes = as_shape(tiled_shape, "is_tile_outer"), as_shape(outer_shape, "is_tile_outer")
        if hasattr(tiled, "tile_layout"):
            inner = self.is_tile_outer(tiled.tile_over(shapes[0]), *shapes, target)
            return None if inner is None else tiled.over(inner)
        _check_layout(tiled, "is_tile_outer", "tiled")
        outer = tiling.Operand(self, shapes[1], "is_tile_outer: outer")
        found = untiling.inner_of(outer, tiled, shapes[0], as_target(target))
        return None if found is None else self._make(*found)

    def direct_sum(
        self,
        left: TileLayout,
        left_shape: Sequence[Any],
        right_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout:
        """Interleave ``left`` and this layout per dimension: ``Sum(l, r) = Left(l) + Self(r)``.

        Raises:
            LayoutError: ranks differ, or a layout does not group by its shape.

        >>> from layoutalg import S
        >>> right, left = TileLayout(S[(2, 2):(4, 1)]), TileLayout(S[(2, 2):(8, 2)])
        >>> print(right.direct_sum(left, (2, 2), (2, 2)))
        S[16:1]
        """
        _check_layout(left, "direct_sum", "left")
        one = tiling.Operand(left, as_shape(left_shape, "direct_sum"), "direct_sum: left")
        other = tiling.Operand(self, as_shape(right_shape, "direct_sum"), "direct_sum: right")
        parts.check_ranks("direct_sum", "left_shape", one.shape, "right_shape", other.shape)
        return self._make(*tiling.direct_sum(one, other, as_target(target)))

    def is_direct_sum_right(
        self,
        total: Any,
        interleaved_shape: Sequence[Any],
        right_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout | None:
        """Return the left layout with ``self.direct_sum(left, …)`` the map of ``total``, or None.

        This layout must stand in ``total`` in the same axes (under CUDA: in those of its canonical
        form).

        Args:
            total: the sum.
            interleaved_shape: ``(l0, r0, l1, r1, …)``.
            right_shape: ``(r0, r1, …)``.
            target: None or "cuda", as in :meth:`canonicalize`.

        Raises:
            LayoutError: a shape does not group, or the shapes do not interleave.

        >>> from layoutalg import S
        >>> right = TileLayout(S[(2, 2):(4, 1)])
        >>> print(right.is_direct_sum_right(TileLayout(S[16:1]), (2, 2, 2, 2), (2, 2)))
        S[(2,2):(8,2)]
        """
        return self._other_summand(total, interleaved_shape, right_shape, 1, target)

    def is_direct_sum_left(
        self,
        total: Any,
        interleaved_shape: Sequence[Any],
        left_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout | None:
        """Return the right layout with ``right.direct_sum(self, …)`` the map of ``total``, or None.

        This layout must stand in ``total`` in the same axes (under CUDA: in those of its canonical
        form).

        Args:
            total: the sum.
            interleaved_shape: ``(l0, r0, l1, r1, …)``.
            left_shape: ``(l0, l1, …)``.
            target: None or "cuda", as in :meth:`canonicalize`.

        Raises:
            LayoutError: a shape does not group, or the shapes do not interleave.

        >>> from layoutalg import S
        >>> left = TileLayout(S[(2, 2):(8, 2)])
        >>> print(left.is_direct_sum_left(TileLayout(S[16:1]), (2, 2, 2, 2), (2, 2)))
        S[(2,2):(4,1)]
        """
        return self._other_summand(total, interleaved_shape, left_shape, 0, target)

    def _other_summand(
        self, total: Any, interleaved: Any, own: Any, at: int, target: str | None
    ) -> TileLayout | None:
        what = "is_direct_sum_right" if at else "is_direct_sum_left"
        shapes = as_shape(interleaved, what), as_shape(own, what)
        if hasattr(total, "tile_layout"):
            return None  # no plain layout is a summand of a swizzled one
        _check_layout(total, what, "total")
        whole, part = (
            tiling.Operand(layout, shape, what)
            for layout, shape in zip((total, self), shapes, strict=True)
        )
        found = untiling.other_summand(part, whole, at, as_target(target))
        return None if found is None else self._make(*found)

    # -- slices -----------------------------------------------------------------------------

    def slice(
        self,
        shape: Sequence[Any],
        region: Sequence[tuple[Any, Any]],
        target: str | None = None,
    ) -> TileLayout | None:
        """Return the layout of a region, wherever a layout can say it; None where none can.

        ``L.slice(shape, region).apply(x, shape=lengths) == L.apply(x + begins, shape=shape)``.

        Args:
            shape: logical extents of this layout.
            region: ``(begin, end)`` per dimension, end excluded.
            target: None or "cuda", as in :meth:`canonicalize`.

        Raises:
            LayoutError: a range is empty or leaves its dimension, or the layout does not group.
            Undecided: the answer depends on a symbol.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(4, 4, 4, 4):(64, 4, 16, 1)]).slice((16, 16), ((2, 3), (6, 10))))
        S[(1,2,2):(4,14,1)] + 26
        """
        extents = as_shape(shape, "slice")
        ranges = as_region(region, extents)
        whole = tiling.Operand(self, extents, "slice")
        found = slice_parts(whole, ranges, as_target(target))
        return None if found is None else self._make(*found)

    # -- views of storage -------------------------------------------------------------------

    def storage(self) -> TileLayout:
        """Return what one thread sees: thread iters, replicas and offsets are removed.

        >>> from layoutalg import S, laneid
        >>> print(TileLayout(S[(8, 4, 2):(4 @ laneid, 1 @ laneid, 3)] + 2 @ laneid + 7).storage())
        S[2:3] + 7
        """
        return self._make(*packing.storage(self))

    def unpack(self, num: int, axis: Axis | str = m) -> TileLayout:
        """Split each cell of a memory axis into ``num`` narrower ones: a new innermost iter.

        ``U(x, k) = num*L(x) + k`` on the axis, replicas and offset included; as ``L(x)`` elsewhere.

        Raises:
            LayoutError: num is no size, or the axis is a thread axis.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(8, 8):(8, 1)]).unpack(2))
        S[(8,8,2):(16,2,1)]
        """
        return self._make(*packing.unpack(self, num, axis))

    def pack(self, num: int) -> TileLayout:
        """Join ``num`` neighbours along the last iter into one cell: the inverse of :meth:`unpack`.

        ``num*P(x) + k = L(x*num + k)`` on the axis of the last iter, as ``L`` elsewhere.

        Raises:
            LayoutError: the last iter is not dense in memory, or a stride or an offset would put
                an element astride two words. Undecided: that depends on a symbol.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(8, 16):(16, 1)]).pack(4))
        S[(8,4):(4,1)]
        """
        return self._make(*packing.pack(self, num))

    def broadcast(self, num: int, position: int = -1, axis: Axis | str = m) -> TileLayout:
        """Insert an iter of stride 0: each element is named ``num`` times.

        Args:
            num: how many times.
            position: where the iter goes, as in ``list.insert``; from -1, the end, backwards.
            axis: the axis that it is named on.

        Raises:
            LayoutError: the position is out of range.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(8, 8):(8, 1)]).broadcast(4, 1))
        S[(8,4,8):(8,0,1)]
        """
        return self._make(*packing.broadcast(self, num, position, axis))


def _check_layout(value: object, what: str, name: str) -> None:
    if not isinstance(value, TileLayout):
        raise LayoutError(f"{what}: {name} must be a TileLayout; got {value!r}")


def align(anchor: TileLayout, follower: TileLayout) -> TileLayout:
    """Cut the follower like the anchor and list its iters in the anchor's canonical order.

    The canonical order of the anchor's iters: thread axes first, then memory, each by descending
    stride. The follower keeps its own strides, replicas and offset: both then name the digits of
    the shared dimension alike.

    Raises:
        LayoutError: the anchor's extents do not cut the follower.
        Undecided: the order depends on a symbol.

    >>> from layoutalg import S, laneid
    >>> anchor = TileLayout(S[(2, 8):(2, 4 @ laneid)])
    >>> print(align(anchor, TileLayout(S[16:1])))
    S[(8,2):(1,8)]
    """
    _check_layout(anchor, "align", "anchor")
    _check_layout(follower, "align", "follower")
    shard = algebra.align(anchor.shard, follower.shard, follower)
    return TileLayout._make(shard, follower.replica, follower.offset)
