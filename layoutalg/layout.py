"""``TileLayout``: the map from a logical tile to machine coordinates, and its operations.

The operations live in the modules of the algebra and work on tuples of iters; the methods here are
thin. A layout maps a flat index ``x``, split row-major over the shard extents into digits, to the
set ``{sum digit*stride + offset + sum r*stride over all replica digits r}`` on named axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, final

from layoutalg import iters as algebra
from layoutalg import coordinates, notation, parts, recognise, refine, views
from layoutalg.axis import Axis, m
from layoutalg.errors import LayoutError
from layoutalg.inverse import Inverse, inverse, owners
from layoutalg.iters import Iter, Iters
from layoutalg.scope import as_target
from layoutalg.size import Size, as_shape, as_size, equal, tidy
from layoutalg.size import product as product_of
from layoutalg.slicing import check_region, slice_group


class Spec(Protocol):
    """What ``S[...]`` and ``R[...]`` build: see :mod:`layoutalg.spec`."""

    @property
    def shard(self) -> Iters: ...
    @property
    def replica(self) -> Iters: ...
    @property
    def offset(self) -> Mapping[Axis, Size]: ...


@final
class TileLayout:
    """A layout: shard iters, replica iters, and an offset per axis. Immutable, hashable.

    ``==`` compares parts (replicas as a set, zero offsets ignored); :meth:`equivalent` compares maps.

    >>> from layoutalg import S, laneid
    >>> D = TileLayout(S[(2, 8, 4, 2):(2, 4 @ laneid, 1 @ laneid, 1)])
    >>> D.apply(9, 3, shape=(16, 8))
    {'m': 3, 'laneid': 5}
    >>> print(D)
    S[(2,8,4,2):(2,4@laneid,1@laneid,1)]

    Source: the layout model of Apache TVM's TIRx (``TileLayout``).
    """

    __slots__ = ("_key", "offset", "replica", "shard")

    shard: Iters
    replica: Iters
    offset: Mapping[Axis, Size]

    def __init__(self, spec: Spec) -> None:
        """Build from ``S[...] + R[...] + offset``; :meth:`from_iters` builds from parts.

        Raises:
            LayoutError: the argument is no such expression.
        """
        if not (hasattr(spec, "shard") and hasattr(spec, "replica") and hasattr(spec, "offset")):
            raise LayoutError(
                f"TileLayout: needs an expression such as S[(8,4):(4@laneid,1@laneid)]; got "
                f"{spec!r}. parse(text) reads text, TileLayout.from_iters takes iters"
            )
        self._fill(spec.shard, spec.replica, spec.offset)

    def _fill(self, shard: Iters, replica: Iters, offset: Mapping[Axis, Size]) -> None:
        put = object.__setattr__
        put(self, "shard", shard)
        put(self, "replica", replica)
        put(self, "offset", MappingProxyType(dict(offset)))
        put(self, "_key", None)

    @classmethod
    def from_iters(
        cls,
        shard: Iterable[Iter],
        replica: Iterable[Iter] = (),
        offset: Mapping[Axis | str, Any] | None = None,
    ) -> TileLayout:
        """Build a layout from iters and a mapping axis (or name) -> offset.

        Raises:
            LayoutError: an entry is no Iter, an axis is unknown, an offset is no integer.

        >>> print(TileLayout.from_iters([Iter(8, 4, "laneid")], offset={"m": 3}))
        S[8:4@laneid] + 3
        """
        shard, replica = tuple(shard), tuple(replica)
        for it in shard + replica:
            if type(it) is not Iter:
                raise LayoutError(f"from_iters: every entry must be an Iter; got {it!r}")
        total: dict[Axis, Size] = {}
        for name, value in (offset or {}).items():
            total[Axis.get(name)] = as_size(value, f"offset on {name}")
        return cls._make(parts.Parts(shard, replica, total))

    @classmethod
    def _make(cls, built: parts.HasParts) -> TileLayout:
        layout = cls.__new__(cls)
        layout._fill(built.shard, built.replica, built.offset)
        return layout

    # -- identity ---------------------------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: a layout does not change."""
        raise AttributeError(f"a TileLayout is immutable; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        """Refuse: a layout does not change."""
        raise AttributeError(f"a TileLayout is immutable; {name} cannot be deleted")

    def _identity(self) -> tuple[Any, ...]:
        if self._key is None:
            kept = frozenset((axis, value) for axis, value in self.offset.items() if value != 0)
            copies: dict[Iter, int] = {}
            for it in self.replica:
                copies[it] = copies.get(it, 0) + 1
            object.__setattr__(self, "_key", (self.shard, frozenset(copies.items()), kept))
        return self._key  # type: ignore[no-any-return]

    _key: tuple[Any, ...] | None

    def __eq__(self, other: object) -> bool:
        """Compare part by part."""
        if not isinstance(other, TileLayout):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        """Hash as compared."""
        return hash(self._identity())

    def __reduce__(self) -> Any:
        """Pickle through the parts."""
        return _rebuild, (self.shard, self.replica, dict(self.offset))

    def __str__(self) -> str:
        """Return the notation that :func:`layoutalg.parse` reads back."""
        return notation.text(self.shard, self.replica, self.offset)

    def __repr__(self) -> str:
        """Return the notation in quotes of its type."""
        return f"TileLayout({self})"

    def _repr_latex_(self) -> str:
        """Return the layout as mathematics, for Jupyter."""
        return f"${notation.latex(self.shard, self.replica, self.offset)}$"

    # -- the map ----------------------------------------------------------------------------

    def apply(self, *coord: Any, shape: Sequence[Any] | None = None) -> dict[str, Any]:
        """Return the base machine coordinate of an element, axis name -> value.

        Args:
            coord: without a shape, one flat index or one digit per shard iter; with a shape, one
                index per dimension. Ints, integer arrays (elementwise) or integer expressions
                (taken as in range).
            shape: logical extents, outermost first; their product is the layout's size.

        Returns:
            A value for every axis of the (grouped) shard and of the offset. Replicas do not show
            here: :meth:`owners` lists them.

        Raises:
            LayoutError: a wrong number of coordinates, a value out of range, a shape of another
                size.

        >>> from layoutalg import S, R, laneid, warpid
        >>> L = TileLayout(S[(8, 2, 4, 2):(4@laneid, 1@warpid, 1@laneid, 1)] + R[2:4@warpid] + 5@warpid)
        >>> L.apply(7, 15, shape=(8, 16)) == L.apply(127) == L.apply(7, 1, 3, 1)
        True
        >>> L.apply(127)
        {'laneid': 31, 'warpid': 6, 'm': 1}
        """
        iters, digits = self._digits(coord, shape, "apply")
        values: dict[str, Any] = {}
        for it, digit in zip(iters, digits, strict=True):
            name = it.axis.name
            step = digit * it.stride
            values[name] = values[name] + step if name in values else step
        for axis, value in self.offset.items():
            values[axis.name] = values[axis.name] + value if axis.name in values else value
        if any(hasattr(value, "free_symbols") for value in values.values()):
            return {name: tidy(value) for name, value in values.items()}
        return values

    def apply_to_shape(self, coord: Sequence[Any], shape: Sequence[Any]) -> list[Any]:
        """Return the digits of a coordinate, one per iter of the layout grouped by the shape.

        Where the layout does not group by the shape: one per shard iter of the flattened index.

        >>> from layoutalg import S
        >>> TileLayout(S[(16, 4, 4):(16, 4, 1)]).apply_to_shape([5, 7], [16, 16])
        [5, 1, 3]
        """
        return self._digits(coord, shape, "apply_to_shape")[1]

    def _digits(
        self, coord: Sequence[Any], shape: Sequence[Any] | None, what: str
    ) -> tuple[Iters, list[Any]]:
        """Split a coordinate into one digit per iter (of the shard, or of the grouped shard)."""
        radix = algebra.extents(self.shard)
        values = [coordinates.as_coordinate(value, what) for value in coord]
        if shape is None:
            if len(values) == 1 and len(radix) != 1:
                coordinates.check_range(values[0], product_of(radix), f"{what}: flat index", self)
                return self.shard, algebra.split(values[0], radix)
            if len(values) != len(radix):
                raise LayoutError(
                    f"{what}: without a shape give one flat index or one digit per iter; {self} "
                    f"has {len(radix)} iters, got {len(values)} coordinates"
                )
            for value, extent in zip(values, radix, strict=True):
                coordinates.check_range(value, extent, f"{what}: digit", self)
            return self.shard, values
        extents = as_shape(shape, what)
        if len(values) != len(extents):
            raise LayoutError(
                f"{what}: give one coordinate per dimension of the shape {tuple(extents)}; "
                f"got {len(values)}"
            )
        if equal(product_of(extents), product_of(radix)) is False:
            raise LayoutError(
                f"{what}: the shape must hold as many elements as the layout; shape "
                f"{tuple(extents)} holds {product_of(extents)}, {self} holds {product_of(radix)}"
            )
        for value, extent in zip(values, extents, strict=True):
            coordinates.check_range(value, extent, f"{what}: coordinate", self)
        grouped = refine.try_group(self.shard, extents)
        if grouped is None:
            return self.shard, algebra.split(algebra.flatten(values, extents), radix)
        iters, seps = grouped
        digits: list[Any] = []
        for dim, value in enumerate(values):
            digits.extend(algebra.split(value, algebra.extents(iters[seps[dim] : seps[dim + 1]])))
        return iters, digits

    def owners(self, *coord: Any, shape: Sequence[Any] | None = None) -> tuple[dict[str, Any], ...]:
        """Return every machine coordinate that holds an element: the base first, then replicas.

        >>> from layoutalg import S, R, warpid
        >>> TileLayout(S[4:1] + R[2:4 @ warpid]).owners(3)
        ({'m': 3, 'warpid': 0}, {'m': 3, 'warpid': 4})
        """
        base = self.apply(*coord, shape=shape)
        for it in self.replica:
            base.setdefault(it.axis.name, 0)
        return owners(self, base)

    def inverse(self, shape: Sequence[Any]) -> Inverse:
        """Return the map from machine coordinates to logical ones over ``shape``.

        Raises:
            LayoutError: two elements share a place, or the strides interleave.

        >>> from layoutalg import S, laneid
        >>> TileLayout(S[(8, 4):(4 @ laneid, 1 @ laneid)]).inverse((8, 4)).at(laneid=13)
        (3, 1)
        """
        return inverse(self, as_shape(shape, "inverse"))

    def table(self, shape: Sequence[Any], replicas: bool = False) -> dict[str, Any]:
        """Return the coordinates of every element: axis name -> int64 array of ``shape``.

        Args:
            shape: logical extents; the product is the layout's size.
            replicas: add a last dimension with one entry per replica, the base first.

        Raises:
            LayoutError: the sizes differ. Undecided: a size is symbolic.

        >>> from layoutalg import S, laneid
        >>> TileLayout(S[(2, 2):(1 @ laneid, 1)]).table((2, 2))["laneid"].tolist()
        [[0, 0], [1, 1]]
        """
        from layoutalg.table import table

        return table(self, as_shape(shape, "table"), replicas)

    def size(self, axis: Axis | str | None = None) -> Size:
        """Return how many elements there are, or the product of the shard extents on one axis.

        >>> from layoutalg import S, laneid
        >>> L = TileLayout(S[(8, 4, 2):(4 @ laneid, 1 @ laneid, 1)])
        >>> L.size(), L.size("laneid"), L.size("warpid")
        (64, 32, 1)
        """
        if axis is None:
            return product_of(it.extent for it in self.shard)
        axis = Axis.get(axis)
        return product_of(it.extent for it in self.shard if it.axis is axis)

    def span(self, axis: Axis | str | None = None) -> Size:
        """Return ``1 + sum (extent - 1)*stride + offset`` on an axis, or over all memory axes.

        With nonnegative strides and offset: the largest coordinate plus one.

        >>> from layoutalg import S, R
        >>> TileLayout(S[8:1] + R[2:8] + 5).span()
        21
        """
        if axis is not None:
            return parts.span(self, Axis.get(axis))
        axes = {it.axis for it in self.shard + self.replica} | set(self.offset)
        total: Any = 1
        for each in axes:
            if each.memory:
                total = total + parts.span(self, each) - 1
        return total  # type: ignore[no-any-return]

    def subs(self, values: Mapping[Any, Any]) -> TileLayout:
        """Return the layout with symbols, or names of symbols, replaced by sizes.

        >>> from layoutalg import parse
        >>> print(parse("S[(16*Mt,8):(8,1)]").subs({"Mt": 2}))
        S[(32,8):(8,1)]
        """
        return self._make(parts.substitute_parts(self, values))

    # -- scope ------------------------------------------------------------------------------

    def get_scope(self) -> tuple[str, str] | None:
        """Return (subscope, scope), such as ("thread", "warp"); None without a thread axis.

        Raises:
            LayoutError: the thread axes conflict or leave a gap.

        >>> from layoutalg import S, laneid, warpid
        >>> TileLayout(S[(32, 4):(1 @ laneid, 1 @ warpid)]).get_scope()
        ('thread', 'cta')
        """
        return parts.scope(self)

    def verify_well_formed(self) -> bool:
        """Return True, or raise what is wrong with the layout's scopes.

        Raises:
            LayoutError: the thread axes conflict or leave a gap.
        """
        parts.scope(self)
        return True

    # -- the algebra ------------------------------------------------------------------------

    def canonicalize(self, target: str | None = None) -> TileLayout:
        """Return the canonical layout of the same map.

        Unit iters and zero offsets go; under ``target="cuda"`` axes that are one axis there become
        one (laneid and wid_in_wg are tid_in_wg); neighbours on one axis fuse where
        ``next.extent * next.stride == current.stride``.

        Raises:
            LayoutError: the layout is ill-formed (see :meth:`get_scope`).

        >>> from layoutalg import S
        >>> print(TileLayout(S[(8, 1, 4, 2):(8, 7, 2, 1)]).canonicalize())
        S[64:1]
        """
        return self._make(parts.canonicalize(self, as_target(target)))

    def is_trivial(self) -> bool:
        """Say whether the canonical form is at most one dense iter on a memory axis, from 0.

        >>> from layoutalg import S
        >>> TileLayout(S[(2, 4):(4, 1)]).is_trivial(), TileLayout(S[8:2]).is_trivial()
        (True, False)
        """
        bare = self.canonicalize()
        return (
            not (bare.replica or bare.offset)
            and all(it.axis.memory and it.stride == 1 for it in bare.shard)
            and len(bare.shard) <= 1
        )

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
        shard, seps = algebra.group(self.shard, as_shape(shape, "group"), self)
        return self._make(parts.Parts(shard, self.replica, self.offset)), seps

    def group_many(
        self, shapes: Sequence[Sequence[Any]]
    ) -> tuple[TileLayout, tuple[tuple[int, ...], ...]]:
        """Refine the shard for several shapes at once; one tuple of separators per shape.

        >>> from layoutalg import S
        >>> grouped, seps = TileLayout(S[30:1]).group_many([[6, 5], [2, 15]])
        >>> print(grouped, seps)
        S[(2,3,5):(15,5,1)] ((0, 2, 3), (0, 1, 3))
        """
        shard, seps = refine.group_many(self, [as_shape(s, "group_many") for s in shapes])
        return self._make(parts.Parts(shard, self.replica, self.offset)), seps

    def permute_dims(self, perm: Sequence[int]) -> TileLayout:
        """Return the layout with shard iter ``perm[i]`` at position i.

        Raises:
            LayoutError: ``perm`` is no permutation of the iters.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(2, 3):(3, 1)]).permute_dims((1, 0)))
        S[(3,2):(1,3)]
        """
        order = coordinates.check_permutation(perm, len(self.shard), "permute_dims")
        shard = tuple(self.shard[index] for index in order)
        return self._make(parts.Parts(shard, self.replica, self.offset))

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
        shard = refine.permute_by_groups(self.shard, seps, perm, self)
        return self._make(parts.Parts(shard, self.replica, self.offset))

    def tile(
        self,
        outer: TileLayout,
        outer_shape: Sequence[Any],
        inner_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout:
        """Arrange copies of this tile as ``outer`` says.

        With ``t_d = o_d*inner_shape[d] + n_d``: ``T(t) = span * Outer(o) + Inner(n) + offsets`` on
        each axis, where span is this tile's: a copy is moved in units of whole tiles, whether a
        shard iter or a replica of ``outer`` moves it. Offsets, of both, are machine coordinates and
        are added as they are.

        Raises:
            LayoutError: the ranks differ, a layout does not group by its shape, or copies would
                overlap because this tile reaches below zero.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(2, 4):(1, 2)]).tile(TileLayout(S[(8, 8):(8, 1)]), (8, 8), (2, 4)))
        S[(8,2,32):(64,1,2)]
        """
        return self._make(
            parts.tile(
                self,
                outer,
                as_shape(outer_shape, "tile"),
                as_shape(inner_shape, "tile"),
                as_target(target),
            )
        )

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
        counts = refine.tile_counts(to, current)
        outer = parts.Parts(algebra.row_major(counts), (), {})
        return self._make(parts.tile(self, outer, counts, current, as_target(target)))

    def is_tile_inner(
        self,
        tiled: TileLayout,
        tiled_shape: Sequence[Any],
        inner_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout | None:
        """Return the outer layout with ``self.tile(outer, …) == tiled``, or None.

        Raises:
            LayoutError: ranks differ, or a shape does not divide or group.

        >>> from layoutalg import S
        >>> tiled = TileLayout(S[(8, 2, 32):(64, 1, 2)])
        >>> print(TileLayout(S[(2, 4):(1, 2)]).is_tile_inner(tiled, (16, 32), (2, 4)))
        S[(8,8):(8,1)]
        """
        if not isinstance(tiled, TileLayout):
            return None
        found = recognise.outer_of(
            self,
            tiled,
            as_shape(tiled_shape, "is_tile_inner"),
            as_shape(inner_shape, "is_tile_inner"),
            as_target(target),
        )
        return None if found is None else self._make(found)

    def is_tile_outer(
        self,
        tiled: Any,
        tiled_shape: Sequence[Any],
        outer_shape: Sequence[Any],
        target: str | None = None,
    ) -> Any:
        """Return the inner layout with ``inner.tile(self, …) == tiled``, or None.

        A swizzled ``tiled`` is taken apart and the answer is swizzled like it.

        >>> from layoutalg import S
        >>> tiled = TileLayout(S[(8, 2, 32):(64, 1, 2)])
        >>> print(TileLayout(S[(8, 8):(8, 1)]).is_tile_outer(tiled, (16, 32), (8, 8)))
        S[(2,4):(1,2)]
        """
        if hasattr(tiled, "tile_layout"):
            plain = tiled.tile_over(tiled_shape)
            inner = self.is_tile_outer(plain, tiled_shape, outer_shape, target)
            return None if inner is None else tiled.over(inner)
        found = recognise.inner_of(
            self,
            tiled,
            as_shape(tiled_shape, "is_tile_outer"),
            as_shape(outer_shape, "is_tile_outer"),
            as_target(target),
        )
        return None if found is None else self._make(found)

    def direct_sum(
        self,
        left: TileLayout,
        left_shape: Sequence[Any],
        right_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout:
        """Interleave ``left`` and this layout per dimension: ``Sum(l, r) = Left(l) + Self(r)``.

        >>> from layoutalg import S
        >>> right, left = TileLayout(S[(2, 2):(4, 1)]), TileLayout(S[(2, 2):(8, 2)])
        >>> print(right.direct_sum(left, (2, 2), (2, 2)))
        S[16:1]
        """
        return self._make(
            parts.direct_sum(
                left,
                self,
                as_shape(left_shape, "direct_sum"),
                as_shape(right_shape, "direct_sum"),
                as_target(target),
            )
        )

    def is_direct_sum_right(
        self,
        total: TileLayout,
        interleaved_shape: Sequence[Any],
        right_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout | None:
        """Return the left layout with ``self.direct_sum(left, …) == total``, or None.

        Args:
            total: the sum.
            interleaved_shape: ``(l0, r0, l1, r1, …)``.
            right_shape: ``(r0, r1, …)``.
            target: None or "cuda", as in :meth:`canonicalize`.
        """
        if not isinstance(total, TileLayout):
            return None
        found = recognise.other_summand(
            self, total, interleaved_shape, right_shape, 1, as_target(target)
        )
        return None if found is None else self._make(found)

    def is_direct_sum_left(
        self,
        total: TileLayout,
        interleaved_shape: Sequence[Any],
        left_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout | None:
        """Return the right layout with ``right.direct_sum(self, …) == total``, or None."""
        if not isinstance(total, TileLayout):
            return None
        found = recognise.other_summand(
            self, total, interleaved_shape, left_shape, 0, as_target(target)
        )
        return None if found is None else self._make(found)

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
        ranges = coordinates.as_region(region, extents)
        bare = parts.canonicalize(self, as_target(target))
        iters, seps = algebra.group(bare.shard, extents, self)
        shard: list[Iter] = []
        offset = dict(bare.offset)
        for dim, (begin, end) in enumerate(ranges):
            check_region(begin, end, extents[dim], dim)
            piece = slice_group(iters[seps[dim] : seps[dim + 1]], begin, end)
            if piece is None:
                return None
            shard.extend(piece[0])
            offset = parts.add_offsets(offset, piece[1])
        return self._make(parts.Parts(tuple(shard), bare.replica, offset))

    # -- views of storage -------------------------------------------------------------------

    def storage(self) -> TileLayout:
        """Return what one thread sees: thread iters, replicas and offsets are removed.

        >>> from layoutalg import S, laneid
        >>> print(TileLayout(S[(8, 4, 2):(4 @ laneid, 1 @ laneid, 3)] + 2 @ laneid + 7).storage())
        S[2:3] + 7
        """
        return self._make(views.storage(self))

    def unpack(self, num: int) -> TileLayout:
        """Split each element into ``num`` narrower ones, innermost; memory strides grow by num.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(8, 8):(8, 1)]).unpack(2))
        S[(8,8,2):(16,2,1)]
        """
        return self._make(views.unpack(self, num))

    def pack(self, num: int) -> TileLayout:
        """Join ``num`` neighbours into one wider element: the inverse of :meth:`unpack`.

        Raises:
            LayoutError: the last iter is not dense in memory, or a stride or an offset would put
                an element astride two words.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(8, 16):(16, 1)]).pack(4))
        S[(8,4):(4,1)]
        """
        return self._make(views.pack(self, num))

    def broadcast(self, num: int, position: int = -1, axis: Axis | str = m) -> TileLayout:
        """Insert an iter of stride 0: each element is named ``num`` times.

        >>> from layoutalg import S
        >>> print(TileLayout(S[(8, 8):(8, 1)]).broadcast(4, 1))
        S[(8,4,8):(8,0,1)]
        """
        return self._make(views.broadcast(self, num, position, axis))


def _rebuild(shard: Iters, replica: Iters, offset: dict[Axis, Size]) -> TileLayout:
    return TileLayout.from_iters(shard, replica, offset)  # type: ignore[arg-type]


def align(anchor: TileLayout, follower: TileLayout) -> TileLayout:
    """Cut the follower like the anchor and list its iters in the anchor's canonical order.

    The canonical order of the anchor's iters: thread axes first, then memory, each by descending
    stride. The follower keeps its own strides, replicas and offset: both then name the digits of
    the shared dimension alike.

    Raises:
        LayoutError: the anchor's extents do not cut the follower.

    >>> from layoutalg import S, laneid
    >>> anchor = TileLayout(S[(2, 8):(2, 4 @ laneid)])
    >>> print(align(anchor, TileLayout(S[16:1])))
    S[(8,2):(1,8)]
    """
    shard = algebra.align(anchor.shard, follower.shard, follower)
    return TileLayout._make(parts.Parts(shard, follower.replica, follower.offset))
