"""``Layout``, the operations of every layout, and ``TileLayout``, the layout without a swizzle.

The methods are thin: :mod:`layoutalg.algebra` does the work, on tuples of iters. ``ComposeLayout``,
the swizzled layout, is in :mod:`layoutalg.layouts.swizzle`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, final

from layoutalg.algebra import (
    evaluation,
    grouping,
    packing,
    parts,
    printing,
    reduction,
    tiling,
    untiling,
)
from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis, as_readable, m
from layoutalg.algebra.inversion import Inverse, inverse
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.algebra.scope import as_target
from layoutalg.algebra.slicing import slice_parts
from layoutalg.algebra.tables import IntArray, table
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.layouts.html import drawing, framed
from layoutalg.proofs import equivalence, injectivity
from layoutalg.proofs.verdict import Verdict
from layoutalg.sizes.arguments import as_axes, as_region, check_permutation
from layoutalg.sizes.size import Size, as_shape, as_size
from layoutalg.sizes.size import product as product_of

Self = TypeVar("Self", bound="Layout")
_Kind = TypeVar("_Kind")


class Layout:
    """The operations that a ``TileLayout`` and a ``ComposeLayout`` share.

    Each works on ``tile_layout``, then puts the swizzle back with :meth:`over`: a swizzled layout
    stays swizzled. A ``TileLayout`` is its own tile.

    >>> from layoutalg import ComposeLayout, S
    >>> tile = TileLayout(S[8:1])
    >>> isinstance(tile, Layout), isinstance(ComposeLayout(0, 1, 1, tile), Layout)
    (True, True)
    """

    __slots__ = ()

    if TYPE_CHECKING:  # a field of the one, a property of the other

        @property
        def tile_layout(self) -> TileLayout:
            """The tile, before any swizzle."""

    def over(self: Self, tile_layout: TileLayout) -> Self:
        """Return the given tile with this layout's swizzle; as it is if there is none.

        >>> from layoutalg import ComposeLayout, S
        >>> small, large = TileLayout(S[512:1]), TileLayout(S[1024:1])
        >>> print(ComposeLayout(3, 3, 3, small).over(large), small.over(large))
        ComposeLayout(3, 3, 3, S[1024:1]) S[1024:1]
        """
        raise NotImplementedError

    def tile_over(self, shape: Sequence[Any]) -> TileLayout:
        """Return the tile over a shape; a bare swizzle takes a dense tile of any size.

        >>> from layoutalg import ComposeLayout, S
        >>> print(ComposeLayout(3, 3, 3, TileLayout(S[512:1])).tile_over((8, 64, 2)))
        S[1024:1]
        """
        return self.tile_layout

    def permute(self, address: Any) -> Any:
        """Swizzle an address, unchecked: an int, an array or an index expression.

        >>> from layoutalg import ComposeLayout, S
        >>> tile = TileLayout(S[512:1])
        >>> tile.permute(64), ComposeLayout(3, 3, 3, tile).permute(64)
        (64, 72)
        """
        return address

    def _swizzled(self, place: dict[str, Any]) -> dict[str, Any]:
        return place

    def _made(self: Self, found: parts.HasParts) -> Self:
        return self.over(TileLayout._of(found))

    def _is_swizzled_like(self, other: Layout) -> bool:
        return bool(other.over(self.tile_layout) == self)

    # -- the map ----------------------------------------------------------------------------

    def _reader(
        self, coord: Sequence[Any], shape: Sequence[Any] | None, what: str
    ) -> evaluation.Reader:
        """Return how a coordinate is read; cached."""
        extents, tile = None if shape is None else as_shape(shape, what), self.tile_layout
        key = (what, len(coord), extents)
        found: evaluation.Reader | None = tile._memo.get(key)
        if found is None:
            found = tile._memo[key] = evaluation.reader(tile, coord, extents, what)
        return found

    def _unswizzled(
        self, coord: Sequence[Any], shape: Sequence[Any] | None, what: str
    ) -> dict[str, Any]:
        """Return the base machine coordinate of an element in the tile."""
        found = evaluation.at_ints(self.tile_layout, coord, shape)
        return self._reader(coord, shape, what).apply(coord) if found is None else found

    def apply(self, *coord: Any, shape: Sequence[Any] | None = None) -> dict[str, Any]:
        """Return the base machine coordinate of an element, axis name -> value.

        Args:
            coord: without a shape, one flat index or one digit per shard iter; with a shape, one
                index per dimension. Ints, integer arrays (which broadcast) or integer expressions
                (assumed in range unless provably out).
            shape: logical extents, outermost first; their product is the layout's size.

        Returns:
            A value for every axis of the (grouped) shard and of the offset. Replicas do not show
            here: :meth:`owners` lists them.

        Raises:
            LayoutError: a wrong number of coordinates, a value out of range, a shape of another
                size, arrays where the layout has symbols or coordinates beyond 64 bits.

        >>> from layoutalg import TileLayout, S, R, laneid, warpid
        >>> shard = S[(8, 2, 4, 2) : (4 @ laneid, 1 @ warpid, 1 @ laneid, 1)]
        >>> L = TileLayout(shard + R[2 : 4 @ warpid] + 5 @ warpid)
        >>> L.apply(7, 15, shape=(8, 16)) == L.apply(127) == L.apply(7, 1, 3, 1)
        True
        >>> L.apply(127)
        {'laneid': 31, 'warpid': 6, 'm': 1}
        """
        return self._swizzled(self._unswizzled(coord, shape, "apply"))

    def apply_to_shape(self, coord: Sequence[Any], shape: Sequence[Any]) -> list[Any]:
        """Return the digits of a coordinate, one per iter of the layout grouped by the shape.

        Where the layout does not group by the shape: one per shard iter, of the flattened index.

        Raises:
            LayoutError: as :meth:`apply`.

        >>> from layoutalg import TileLayout, S
        >>> TileLayout(S[(16, 4, 4):(16, 4, 1)]).apply_to_shape([5, 7], [16, 16])
        [5, 1, 3]
        """
        if not isinstance(coord, tuple | list):
            raise LayoutError(f"apply_to_shape: needs a tuple of coordinates; got {coord!r}")
        return self._reader(coord, shape, "apply_to_shape").digits(coord)

    def owners(self, *coord: Any, shape: Sequence[Any] | None = None) -> tuple[dict[str, Any], ...]:
        """Return every machine coordinate that holds an element: the base first, then replicas.

        Args:
            coord: as for :meth:`apply`, but one element, no arrays.
            shape: as for :meth:`apply`.

        Raises:
            LayoutError: as :meth:`apply`. Undecided: the number of replicas is symbolic.

        >>> from layoutalg import TileLayout, S, R, warpid
        >>> TileLayout(S[4:1] + R[2:4 @ warpid]).owners(3)
        ({'m': 3, 'warpid': 0}, {'m': 3, 'warpid': 4})
        """
        base = self._unswizzled(coord, shape, "owners")
        return tuple(map(self._swizzled, evaluation.owners(self.tile_layout.replica, base)))

    def inverse(self, shape: Sequence[Any]) -> Inverse:
        """Return the map from machine coordinates to logical ones over ``shape``.

        ``L.inverse(s).at(**L.apply(*c, shape=s)) == c``.

        Raises:
            LayoutError: two elements share a machine coordinate, or strides interleave, so that
                division does not recover the digits. Undecided: that depends on a symbol.

        >>> from layoutalg import TileLayout, S, laneid
        >>> TileLayout(S[(8, 4):(4 @ laneid, 1 @ laneid)]).inverse((8, 4)).at(laneid=13)
        (3, 1)
        """
        return inverse(self.tile_over(shape), as_shape(shape, "inverse"))

    def table(self, shape: Sequence[Any], replicas: bool = False) -> dict[str, IntArray]:
        """Return the coordinates of every element: axis name -> int64 array of ``shape``.

        Args:
            shape: logical extents; the product is the layout's size.
            replicas: add a last dimension with one entry per replica, the base first.

        Raises:
            LayoutError: the sizes differ, or 64 bits do not hold them. Undecided: a size is
                symbolic.

        >>> from layoutalg import TileLayout, S, laneid
        >>> TileLayout(S[(2, 2):(1 @ laneid, 1)]).table((2, 2))["laneid"].tolist()
        [[0, 0], [1, 1]]
        """
        return self._swizzled(table(self.tile_layout, as_shape(shape, "table"), replicas))

    @property
    def copies(self) -> Iters:
        """The replica iters that add copies: those with extent above 1 and a nonzero stride.

        Ask ``copies``, not ``replica``, whether a layout is replicated.

        >>> from layoutalg import TileLayout, S, R
        >>> TileLayout(S[8:1] + R[(4, 2):(0, 8)]).copies, TileLayout(S[8:1] + R[4:0]).copies
        ((Iter(2, 8, 'm'),), ())
        """
        return parts.copies(self.tile_layout)

    # -- measures ---------------------------------------------------------------------------

    def size(self, axis: Axis | str | None = None) -> Size:
        """Return how many elements there are, or the product of the shard extents on one axis.

        >>> from layoutalg import TileLayout, S, laneid
        >>> L = TileLayout(S[(8, 4, 2):(4 @ laneid, 1 @ laneid, 1)])
        >>> L.size(), L.size("laneid"), L.size("warpid")
        (64, 32, 1)
        """
        if axis is None:
            return as_size(parts.total_size(self.tile_layout))
        axis = Axis.get(axis)
        return as_size(product_of(it.extent for it in self.tile_layout.shard if it.axis is axis))

    def span(self, axis: Axis | str | None = None) -> Size:
        """Return ``1 + sum (extent - 1)*stride + offset`` on an axis, or over all memory axes.

        The sum is over shard and replica iters. With strides and offset from 0 on: the largest
        coordinate plus one.

        >>> from layoutalg import TileLayout, S, R
        >>> TileLayout(S[8:1] + R[2:8] + 5).span()
        21
        """
        tile = self.tile_layout
        if axis is not None:
            return parts.span(tile, Axis.get(axis))
        total: Any = 1
        for each in dict.fromkeys((*(it.axis for it in tile.shard + tile.replica), *tile.offset)):
            if each.memory:
                total = total + parts.span(tile, each) - 1
        return as_size(total)

    def get_scope(self) -> tuple[str, str] | None:
        """Return (subscope, scope), such as ("thread", "warp"); None without a thread axis.

        The scope of a layout on ``bx`` is ``"thread"``: TVM's name for the grid.

        Raises:
            LayoutError: the thread axes conflict or leave a gap.

        >>> from layoutalg import TileLayout, S, laneid, warpid
        >>> TileLayout(S[(32, 4):(1 @ laneid, 1 @ warpid)]).get_scope()
        ('thread', 'cta')
        """
        return parts.scope(self.tile_layout)

    def verify_well_formed(self) -> bool:
        """Return True, or raise what is wrong with the layout's scopes.

        Raises:
            LayoutError: the thread axes conflict or leave a gap.

        >>> from layoutalg import TileLayout, S, laneid, tx
        >>> TileLayout(S[(8, 4):(4 @ laneid, 1 @ laneid)]).verify_well_formed()
        True
        """
        parts.scope(self.tile_layout)
        return True

    # -- questions about the map --------------------------------------------------------------

    def equivalent(
        self, other: LayoutLike, target: str | None = None, shape: Sequence[Any] | None = None
    ) -> Verdict:
        """Decide whether two layouts map each element to the same set of machine coordinates.

        The order and the grouping of replica iters do not matter. ``target="cuda"`` fuses thread
        axes first. With a ``shape``, a counter-example names its element by coordinates.

        Raises:
            Undecided: symbols leave it open. LayoutError: a shape of another size.

        >>> from layoutalg import TileLayout, S, R
        >>> a, b = TileLayout(S[4:1] + R[(2, 2):(8, 4)]), TileLayout(S[(2, 2):(2, 1)] + R[4:4])
        >>> bool(a.equivalent(b)), a == b
        (True, False)
        """
        return equivalence.equivalent(
            self,
            as_layout(other, "equivalent: other"),
            as_target(target),
            _optional(shape, "equivalent"),
        )

    def is_injective(self, shape: Sequence[Any] | None = None) -> Verdict:
        """Decide whether no two elements share a machine coordinate, replicas included.

        The verdict on a swizzled layout speaks of its tile: a swizzle is a permutation.

        Raises:
            Undecided: symbols leave it open. LayoutError: a shape of another size.

        >>> from layoutalg import TileLayout, S
        >>> bool(TileLayout(S[(2, 3):(1, 2)]).is_injective())
        True
        >>> print(TileLayout(S[(2, 3):(2, 1)]).is_injective((2, 3)).reason)
        element (0, 2) and element (1, 0) share the place (m 2)
        """
        return injectivity.is_injective(self.tile_layout, _optional(shape, "is_injective"))

    def replication(self, shape: Sequence[Any] | None = None) -> Verdict:
        """Count the machine coordinates of each element: ``degree``. True if there are several.

        Raises:
            Undecided: symbols leave it open. LayoutError: a shape of another size.

        >>> from layoutalg import TileLayout, S, R, warpid
        >>> TileLayout(S[4:1] + R[2:4 @ warpid]).replication().degree
        2
        """
        return injectivity.replication(self.tile_layout, _optional(shape, "replication"))

    def subs(self: Self, values: Mapping[Any, Any]) -> Self:
        """Return the layout with symbols, or names of symbols, replaced by sizes, all at once.

        Raises:
            LayoutError: a value is no size, or makes an extent smaller than 1.

        >>> from layoutalg import parse
        >>> print(parse("S[(16*Mt,8):(8,1)]").subs({"Mt": 2}))
        S[(32,8):(8,1)]
        """
        return self._made(parts.substitute_parts(self.tile_layout, values))

    # -- canonical form and refinements -----------------------------------------------------

    def canonicalize(self: Self, target: str | None = None) -> Self:
        """Return the canonical layout of the same map.

        Drops unit iters and zero offsets, and fuses neighbours on one axis where
        ``next.extent * next.stride == current.stride``. A unit iter stays if it alone connects two
        scopes. ``target="cuda"`` also fuses thread axes: laneid and wid_in_wg become tid_in_wg.

        Raises:
            LayoutError: the layout is ill-formed (see :meth:`get_scope`).

        >>> from layoutalg import S
        >>> print(TileLayout(S[(8, 1, 4, 2):(8, 7, 2, 1)]).canonicalize())
        S[64:1]
        """
        fusing = None if target is None else as_target(target)
        tile = self.tile_layout
        known: TileLayout | None = tile._memo.get(fusing)
        if known is None:
            found = parts.canonicalize(tile, fusing)
            known = tile if found is tile else TileLayout._of(found)
            tile._memo[fusing] = known
        return self.over(known)

    def group(self: Self, shape: Sequence[Any]) -> tuple[Self, tuple[int, ...]]:
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
        tile = self.tile_over(extents)
        known: tuple[TileLayout, tuple[int, ...]] | None = tile._memo.get(extents)
        if known is None:
            shard, seps = algebra.group(tile.shard, extents, tile)
            known = tile._memo[extents] = tile._with(shard), seps
        return self.over(known[0]), known[1]

    def group_many(
        self: Self, shapes: Sequence[Sequence[Any]]
    ) -> tuple[Self, tuple[tuple[int, ...], ...]]:
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
        tile = self.tile_layout
        shard, seps = grouping.group_many(tile, grouping.as_shapes(shapes, "group_many"))
        return self.over(tile._with(shard)), seps

    def permute_dims(self: Self, perm: Sequence[int]) -> Self:
        """Return the layout with shard iter ``perm[i]`` at position i.

        Raises:
            LayoutError: ``perm`` is no permutation of the iters.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(2, 3):(3, 1)]).permute_dims((1, 0)))
        S[(3,2):(1,3)]
        """
        tile = self.tile_layout
        order = check_permutation(perm, len(tile.shard), "permute_dims")
        return self.over(tile._with(tuple(tile.shard[index] for index in order)))

    def permute_by_groups(self: Self, seps: Sequence[int], perm: Sequence[int]) -> Self:
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
        tile = self.tile_layout
        return self.over(tile._with(grouping.permute_by_groups(tile.shard, seps, perm, tile)))

    # -- tiles and sums ---------------------------------------------------------------------

    def tile(
        self: Self,
        outer: LayoutLike,
        outer_shape: Sequence[Any],
        inner_shape: Sequence[Any],
        target: str | None = None,
    ) -> Self:
        """Arrange copies of this tile as ``outer`` says.

        With ``t_d = o_d*inner_shape[d] + n_d``: ``T(t) = span * Outer(o) + Inner(n)`` on each axis
        of this tile's canonical shard, where ``span`` is the tile's. On other axes the factor is 1.
        Replicas of ``outer`` are scaled too (TVM leaves them unscaled). Offsets are machine
        coordinates: they are added unscaled.

        Raises:
            LayoutError: the ranks differ, a layout does not group by its shape, or this tile
                reaches below zero, so that copies would overlap.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(2, 4):(1, 2)]).tile(TileLayout(S[(8, 8):(8, 1)]), (8, 8), (2, 4)))
        S[(8,2,32):(64,1,2)]
        """
        tile = self.tile_over(inner_shape)
        outer = _taken(outer, TileLayout, "tile", "outer")
        over = tiling.Operand(outer, as_shape(outer_shape, "tile"), "tile: outer")
        under = tiling.Operand(tile, as_shape(inner_shape, "tile"), "tile: inner")
        parts.check_ranks("tile", "outer_shape", over.shape, "inner_shape", under.shape)
        return self._made(tiling.tile(under, over, as_target(target)))

    def tile_to(
        self: Self,
        to_shape: Sequence[Any],
        current_shape: Sequence[Any],
        target: str | None = None,
    ) -> Self:
        """Repeat this tile row-major, on axis m, until it fills ``to_shape``.

        Raises:
            LayoutError: an extent of ``to_shape`` is not a multiple of the current one.
            Undecided: that depends on a symbol.

        >>> from layoutalg import S, laneid
        >>> F = TileLayout(S[(2, 8, 4, 2):(2, 4 @ laneid, 1 @ laneid, 1)])
        >>> print(F.tile_to((16, 16), (16, 8)))
        S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)]
        """
        tile = self.tile_over(current_shape)
        to, current = as_shape(to_shape, "tile_to"), as_shape(current_shape, "tile_to")
        counts = grouping.tile_counts(to, current)
        outer = parts.Parts(algebra.row_major(counts), (), {})
        over = tiling.Operand(outer, counts, "tile_to: outer", as_it_stands=True)
        under = tiling.Operand(tile, current, "tile_to")
        return self._made(tiling.tile(under, over, as_target(target)))

    def is_tile_inner(
        self,
        tiled: LayoutLike,
        tiled_shape: Sequence[Any],
        inner_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout | None:
        """Return ``outer`` with ``self.tile(outer, …)`` equivalent to ``tiled``, or None.

        Both must count the same thread unit, and this tile's scope must be no wider. Under CUDA the
        axes of ``tiled`` are cut at this tile's scope.

        Raises:
            LayoutError: ranks differ, or a shape does not divide or group.
            Undecided: that depends on a symbol.

        >>> from layoutalg import S
        >>> tiled = TileLayout(S[(8, 2, 32):(64, 1, 2)])
        >>> print(TileLayout(S[(2, 4):(1, 2)]).is_tile_inner(tiled, (16, 32), (2, 4)))
        S[(8,8):(8,1)]
        """
        shapes = as_shape(tiled_shape, "is_tile_inner"), as_shape(inner_shape, "is_tile_inner")
        tiled = _taken(tiled, Layout, "is_tile_inner", "tiled")
        if not self._is_swizzled_like(tiled):
            return None
        inner = tiling.Operand(self.tile_over(shapes[1]), shapes[1], "is_tile_inner: inner")
        whole = tiled.tile_over(shapes[0])
        found = untiling.outer_of(inner, whole, shapes[0], as_target(target))
        return None if found is None else TileLayout._of(found)

    def is_tile_outer(
        self,
        tiled: LayoutLike,
        tiled_shape: Sequence[Any],
        outer_shape: Sequence[Any],
        target: str | None = None,
    ) -> Any:
        """Return ``inner`` with ``inner.tile(self, …)`` equivalent to ``tiled``, or None.

        Both must have the same scope, and ``tiled`` must count no wider a thread unit. Replicas of
        this layout may appear in ``tiled`` scaled by the tile's span, or unscaled as TVM writes
        them. If ``tiled`` is swizzled, so is the answer.

        Raises:
            LayoutError: ranks differ, or a shape does not divide or group.
            Undecided: that depends on a symbol.

        >>> from layoutalg import S
        >>> tiled = TileLayout(S[(8, 2, 32):(64, 1, 2)])
        >>> print(TileLayout(S[(8, 8):(8, 1)]).is_tile_outer(tiled, (16, 32), (8, 8)))
        S[(2,4):(1,2)]
        """
        shapes = as_shape(tiled_shape, "is_tile_outer"), as_shape(outer_shape, "is_tile_outer")
        tiled = _taken(tiled, Layout, "is_tile_outer", "tiled")
        outer = self.tile_layout
        if outer is not self:
            return None  # a swizzled layout arranges nothing
        copies, whole = (
            tiling.Operand(outer, shapes[1], "is_tile_outer: outer"),
            tiled.tile_over(shapes[0]),
        )
        found = untiling.inner_of(copies, whole, shapes[0], as_target(target))
        return None if found is None else tiled._made(found)

    def direct_sum(
        self: Self,
        left: LayoutLike,
        left_shape: Sequence[Any],
        right_shape: Sequence[Any],
        target: str | None = None,
    ) -> Self:
        """Interleave ``left`` and this layout per dimension: ``Sum(l, r) = Left(l) + Self(r)``.

        Raises:
            LayoutError: ranks differ, or a layout does not group by its shape.

        >>> from layoutalg import S
        >>> right, left = TileLayout(S[(2, 2):(4, 1)]), TileLayout(S[(2, 2):(8, 2)])
        >>> print(right.direct_sum(left, (2, 2), (2, 2)))
        S[16:1]
        """
        right = self.tile_over(right_shape)
        left = _taken(left, TileLayout, "direct_sum", "left")
        one = tiling.Operand(left, as_shape(left_shape, "direct_sum"), "direct_sum: left")
        other = tiling.Operand(right, as_shape(right_shape, "direct_sum"), "direct_sum: right")
        parts.check_ranks("direct_sum", "left_shape", one.shape, "right_shape", other.shape)
        return self._made(tiling.direct_sum(one, other, as_target(target)))

    def is_direct_sum_right(
        self,
        total: LayoutLike,
        interleaved_shape: Sequence[Any],
        right_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout | None:
        """Return ``left`` with ``self.direct_sum(left, …)`` equivalent to ``total``, or None.

        This layout must use the same axes as its part of ``total`` (under CUDA: after fusion).

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
        total: LayoutLike,
        interleaved_shape: Sequence[Any],
        left_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout | None:
        """Return ``right`` with ``right.direct_sum(self, …)`` equivalent to ``total``, or None.

        As :meth:`is_direct_sum_right`, where ``left_shape`` is ``(l0, l1, …)``.

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
        total = _taken(total, Layout, what, "total")
        if not self._is_swizzled_like(total):
            return None
        whole, part = (
            tiling.Operand(layout.tile_over(shape), shape, what)
            for layout, shape in zip((total, self), shapes, strict=True)
        )
        found = untiling.other_summand(part, whole, at, as_target(target))
        return None if found is None else TileLayout._of(found)

    # -- slices -----------------------------------------------------------------------------

    def slice(
        self: Self,
        shape: Sequence[Any],
        region: Sequence[tuple[Any, Any]],
        target: str | None = None,
    ) -> Self | None:
        """Return the layout of a region; None if no layout describes it.

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
        tile, extents = self.tile_over(shape), as_shape(shape, "slice")
        ranges = as_region(region, extents)
        found = slice_parts(tiling.Operand(tile, extents, "slice"), ranges, as_target(target))
        return None if found is None else self._made(found)

    # -- views of storage -------------------------------------------------------------------

    def storage(self: Self) -> Self:
        """Return what one thread holds: everything on thread axes is removed.

        >>> from layoutalg import S, laneid
        >>> print(TileLayout(S[(8, 4, 2):(4 @ laneid, 1 @ laneid, 3)] + 2 @ laneid + 7).storage())
        S[2:3] + 7
        """
        return self._made(packing.storage(self.tile_layout))

    def unpack(self: Self, num: int, axis: Axis | str = m) -> Self:
        """Split each cell of a memory axis into ``num`` narrower ones: a new innermost iter.

        ``U(x, k) = num*L(x) + k`` on the axis, replicas and offset included; as ``L(x)`` elsewhere.

        Raises:
            LayoutError: num is no size, or the axis is a thread axis.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(8, 8):(8, 1)]).unpack(2))
        S[(8,8,2):(16,2,1)]
        """
        return self._made(packing.unpack(self.tile_layout, num, axis))

    def pack(self: Self, num: int) -> Self:
        """Join ``num`` neighbours along the last iter into one cell: the inverse of :meth:`unpack`.

        ``num*P(x) + k = L(x*num + k)`` on the axis of the last iter, as ``L`` elsewhere.

        Raises:
            LayoutError: the last iter is not dense in memory, or a stride or an offset would put
                an element astride two words. Undecided: that depends on a symbol.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(8, 16):(16, 1)]).pack(4))
        S[(8,4):(4,1)]
        """
        return self._made(packing.pack(self.tile_layout, num))

    def broadcast(self: Self, num: int, position: int = -1, axis: Axis | str = m) -> Self:
        """Insert an iter of stride 0, so that ``num`` indices name each element.

        Args:
            num: its extent.
            position: where it goes, as in ``list.insert``; -1 is the end.
            axis: its axis.

        Raises:
            LayoutError: the position is out of range.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(8, 8):(8, 1)]).broadcast(4, 1))
        S[(8,4,8):(8,0,1)]
        """
        return self._made(packing.broadcast(self.tile_layout, num, position, axis))

    # -- in a browser -----------------------------------------------------------------------

    def to_html(
        self,
        shape: Sequence[int] | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        lane: int = 5,
        title: str | None = None,
        bits: int | None = None,
    ) -> str:
        """Return an interactive page of the layout: one HTML file of at most 60 kB.

        Pointing at a cell shows the element, all its owners, their registers and addresses; another
        layout can be typed. Arguments as :func:`layoutalg.draw.layout_html`.

        Raises:
            LayoutError: the shape does not fit, or there are more than 65536 elements.
            Undecided: a size is symbolic.

        >>> from layoutalg import S, TileLayout, laneid
        >>> D = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
        >>> D.to_html((16, 8)).startswith("<!DOCTYPE html>")
        True
        """
        text: str = drawing().layout_html(self, shape, path=path, lane=lane, title=title, bits=bits)
        return text

    def _repr_html_(self) -> str | None:
        """Return the page in a frame; None if the layout has symbols or is too large."""
        try:
            return framed(self.to_html(), str(self))
        except LayoutError:
            return None


@final
class TileLayout(Layout):
    """A layout: shard iters, replica iters, and an offset per axis.

    ``L(x) = {sum digit*stride + offset + sum r*stride over all replica digits r}`` on named axes,
    with the digits of the flat index ``x``, split row-major over the shard extents.
    Immutable and hashable: ``==`` compares parts (replicas as a multiset, zero offsets ignored),
    :meth:`equivalent` compares maps.

    >>> from layoutalg import S, laneid
    >>> D = TileLayout(S[(2, 8, 4, 2):(2, 4 @ laneid, 1 @ laneid, 1)])
    >>> D.apply(9, 3, shape=(16, 8))
    {'m': 3, 'laneid': 5}
    >>> print(D)
    S[(2,8,4,2):(2,4@laneid,1@laneid,1)]

    Source: the layout model of Apache TVM's TIRx (``TileLayout``).
    """

    __slots__ = ("_memo", "offset", "replica", "shard")

    shard: Iters
    replica: Iters
    offset: Mapping[Axis, Size]
    _memo: dict[Any, Any]  # what has been derived from this value; it never changes

    def __new__(cls, spec: parts.HasParts) -> TileLayout:
        """Build from ``S[...] + R[...] + offset``; :meth:`from_iters` builds from parts.

        Raises:
            LayoutError: the argument is no such expression.
        """
        try:
            return TileLayout._of(spec)
        except AttributeError:
            raise LayoutError(
                f"TileLayout: needs an expression such as S[(8,4):(4@laneid,1@laneid)]; got "
                f"{spec!r}. parse(text) reads text, TileLayout.from_iters takes iters"
            ) from None

    @classmethod
    def from_iters(
        cls,
        shard: Iterable[Iter],
        replica: Iterable[Iter] = (),
        offset: Mapping[Any, Any] | None = None,
    ) -> TileLayout:
        """Build a layout from iters and a mapping axis (or name) -> offset.

        Raises:
            LayoutError: an entry is no Iter, an axis is unknown, an offset is no integer.

        >>> from layoutalg import TileLayout
        >>> print(TileLayout.from_iters([Iter(8, 4, "laneid")], offset={"m": 3}))
        S[8:4@laneid] + 3
        """
        shard, replica = _as_tuple(shard), _as_tuple(replica)
        for it in shard + replica if replica else shard:
            if type(it) is not Iter:
                raise LayoutError(f"from_iters: every entry must be an Iter; got {it!r}")
        return TileLayout._make(
            shard, replica, parts.NO_OFFSET if offset is None else _as_offset(offset)
        )

    @staticmethod
    def _make(shard: Iters, replica: Iters, offset: Mapping[Axis, Size]) -> TileLayout:
        """Build from parts that the algebra has made."""
        layout = object.__new__(TileLayout)
        _put_shard(layout, shard)
        _put_replica(layout, replica)
        _put_offset(layout, MappingProxyType(dict(offset)) if offset else parts.NO_OFFSET)
        _put_memo(layout, {})
        return layout

    @staticmethod
    def _of(found: parts.HasParts) -> TileLayout:
        return TileLayout._make(found.shard, found.replica, found.offset)

    def _with(self, shard: Iters) -> TileLayout:
        """Return the layout with another shard."""
        return TileLayout._make(shard, self.replica, self.offset)

    # -- identity ---------------------------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: a layout does not change."""
        raise AttributeError(f"a TileLayout is immutable; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        """Refuse: a layout does not change."""
        raise AttributeError(f"a TileLayout is immutable; {name} cannot be deleted")

    def _identity(self) -> tuple[Any, ...]:
        copies: dict[Iter, int] = {}
        for it in self.replica:
            copies[it] = copies.get(it, 0) + 1
        kept = frozenset((axis, value) for axis, value in self.offset.items() if value != 0)
        return self.shard, frozenset(copies.items()), kept

    def __eq__(self, other: object) -> bool:
        """Compare part by part."""
        if not isinstance(other, TileLayout):
            return NotImplemented
        return self is other or self._identity() == other._identity()

    def __hash__(self) -> int:
        """Hash as compared."""
        if "hash" not in self._memo:
            self._memo["hash"] = hash(self._identity())
        return int(self._memo["hash"])

    def __reduce__(self) -> Any:
        """Pickle and copy through the parts."""
        return TileLayout.from_iters, (self.shard, self.replica, dict(self.offset))

    def __str__(self) -> str:
        """Return the notation that :func:`layoutalg.parse` reads back."""
        return printing.text(self.shard, self.replica, self.offset)

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"TileLayout({self})"

    def _repr_latex_(self) -> str:
        """Return the layout as mathematics, for Jupyter."""
        return f"${printing.latex(self.shard, self.replica, self.offset)}$"

    # -- of a plain layout alone ------------------------------------------------------------------

    def is_trivial(self) -> bool:
        """Say whether the canonical form is at most one dense iter on a memory axis, from 0.

        >>> from layoutalg import S
        >>> TileLayout(S[(2, 4):(4, 1)]).is_trivial(), TileLayout(S[8:2]).is_trivial()
        (True, False)
        """
        return parts.is_dense(self.canonicalize())

    def covers(
        self, shape: Sequence[Any] | None = None, box: Mapping[Axis | str, Any] | None = None
    ) -> Verdict:
        """Decide whether the elements fill a box exactly; ``degree`` says how many per coordinate.

        Args:
            shape: logical extents.
            box: axis -> extent; an axis left out runs from its lowest to its highest coordinate.

        Raises:
            Undecided: symbols leave it open. LayoutError: a shape of another size.

        >>> from layoutalg import TileLayout, S, laneid
        >>> D = TileLayout(S[(2, 8, 4, 2):(2, 4 @ laneid, 1 @ laneid, 1)])
        >>> D.covers((16, 8), box={"laneid": 32, "m": 4}).degree
        1
        """
        return injectivity.covers(self, _optional(shape, "covers"), box)

    def reduced(self, shape: Sequence[Any], axis: int | Sequence[int] | None = None) -> TileLayout:
        """Return the layout of a reduction's result, with extent 1 in the dimensions of ``axis``.

        Every thread that held some element ``(i, j)`` holds ``(i, 0)``. So the thread digits of a
        dimension that goes become replicas, its register digits go, and the registers that are left
        are numbered densely from 0, in the order that they have. Replicas in threads stay.

        Args:
            shape: logical extents of this layout.
            axis: a dimension, several, or None for all; negative ones count from the end.

        Raises:
            LayoutError: no such dimension, or the layout does not group by the shape.
            Undecided: symbols leave the grouping, or the order of the registers, open.

        >>> from layoutalg import S, laneid
        >>> D = TileLayout(S[(2, 8, 4, 2):(2, 4 @ laneid, 1 @ laneid, 1)])
        >>> print(D.reduced((16, 8), axis=1))
        S[(2,8):(1,4@laneid)] + R[4:1@laneid]
        >>> print(D.reduced((16, 8), axis=0))
        S[(4,2):(1@laneid,1)] + R[8:4@laneid]
        """
        extents = as_shape(shape, "reduced")
        axes = as_axes(axis, len(extents), "reduced")
        return TileLayout._of(reduction.reduced(self, extents, axes))

    @property
    def tile_layout(self) -> TileLayout:
        """The layout itself: nothing swizzles it.

        >>> from layoutalg import S
        >>> print(TileLayout(S[8:1]).tile_layout)
        S[8:1]
        """
        return self

    def over(self, tile_layout: TileLayout) -> TileLayout:
        """Return the tile: there is no swizzle to put over it."""
        return tile_layout


# The slots' own setters, for _make alone: a layout in hand refuses to be set.
_put_shard, _put_replica, _put_offset, _put_memo = (
    TileLayout.__dict__[name].__set__ for name in ("shard", "replica", "offset", "_memo")
)


def _optional(shape: Sequence[Any] | None, what: str) -> tuple[Size, ...] | None:
    return None if shape is None else as_shape(shape, what)


def _as_offset(offset: object) -> Mapping[Axis, Size]:
    if not isinstance(offset, Mapping):
        raise LayoutError(f"from_iters: the offset must be a mapping axis -> value; got {offset!r}")
    total: dict[Axis, Size] = {}
    for name, value in offset.items():
        axis = Axis.get(name)
        if axis in total:
            raise LayoutError(f"from_iters: two offsets are given for axis {axis}")
        total[axis] = as_readable(value, f"from_iters: offset on {axis}")
    return total


def _as_tuple(iters: Iterable[Iter]) -> Iters:
    if type(iters) is tuple:
        return iters
    try:
        return tuple(iters)
    except TypeError:
        return (iters,)  # type: ignore[return-value]  # refused as no Iter


def _taken(given: LayoutLike, kind: type[_Kind], what: str, name: str) -> _Kind:
    value = as_layout(given, f"{what}: {name}")
    if not isinstance(value, kind):
        raise LayoutError(f"{what}: {name} must be a TileLayout; got {value!r}")
    return value


def align(anchor: LayoutLike, follower: LayoutLike) -> TileLayout:
    """Cut the follower like the anchor and list its iters in the anchor's canonical order.

    The canonical order: thread axes first, then memory axes, each by descending stride. The
    follower keeps its strides, replicas and offset.

    Raises:
        LayoutError: the anchor's extents do not cut the follower.
        Undecided: the order depends on a symbol.

    >>> from layoutalg import S, laneid
    >>> anchor = TileLayout(S[(2, 8):(2, 4 @ laneid)])
    >>> print(align(anchor, TileLayout(S[16:1])))
    S[(8,2):(1,8)]
    """
    anchor = _taken(anchor, TileLayout, "align", "anchor")
    follower = _taken(follower, TileLayout, "align", "follower")
    shard = algebra.align(anchor.shard, follower.shard, follower)
    return TileLayout._make(shard, follower.replica, follower.offset)
