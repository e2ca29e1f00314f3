"""A layout as a value and as a map: its parts, its text, its evaluation and its measures.

``TileLayout`` in :mod:`layoutalg.layouts.tile_layout` adds the operations that build new layouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from layoutalg.algebra import evaluation, parts, printing
from layoutalg.algebra.axis import Axis, as_readable
from layoutalg.algebra.inversion import Inverse, inverse
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.algebra.scope import as_target
from layoutalg.algebra.tables import IntArray, table
from layoutalg.errors import LayoutError
from layoutalg.layouts.html import Explorable
from layoutalg.proofs import equivalence, injectivity
from layoutalg.proofs.verdict import Verdict
from layoutalg.sizes.size import Size, as_shape, as_size
from layoutalg.sizes.size import product as product_of

Self = TypeVar("Self", bound="LayoutMap")
NO_OFFSET: Mapping[Axis, Size] = MappingProxyType({})


class _Open(Explorable):
    """A layout that is being filled: to fill it and then close it costs half of what setters do."""

    __slots__ = ("_memo", "offset", "replica", "shard")

    shard: Iters
    replica: Iters
    offset: Mapping[Axis, Size]
    _memo: dict[Any, Any]  # what has been derived from this value; it never changes


class LayoutMap(_Open):
    """The map ``x -> {sum digit*stride + offset + sum r*stride over all replica digits r}``.

    The digits are those of the flat index ``x``, split row-major over the shard extents.
    Immutable and hashable: ``==`` compares parts (replicas as a multiset, zero offsets ignored),
    :meth:`equivalent` compares maps.

    >>> from layoutalg import S, R
    >>> LayoutMap(S[(2, 4):(8, 1)] + R[2:4] + 1).owners(5)
    ({'m': 10}, {'m': 14})
    """

    __slots__ = ()

    def __new__(cls: type[Self], spec: parts.HasParts) -> Self:
        """Build from ``S[...] + R[...] + offset``; :meth:`from_iters` builds from parts.

        Raises:
            LayoutError: the argument is no such expression.
        """
        try:
            return cls._make(spec.shard, spec.replica, spec.offset)
        except AttributeError:
            raise LayoutError(
                f"TileLayout: needs an expression such as S[(8,4):(4@laneid,1@laneid)]; got "
                f"{spec!r}. parse(text) reads text, TileLayout.from_iters takes iters"
            ) from None

    @classmethod
    def from_iters(
        cls: type[Self],
        shard: Iterable[Iter],
        replica: Iterable[Iter] = (),
        offset: Mapping[Any, Any] | None = None,
    ) -> Self:
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
        return cls._make(shard, replica, NO_OFFSET if offset is None else _as_offset(offset))

    @classmethod
    def _make(cls: type[Self], shard: Iters, replica: Iters, offset: Mapping[Axis, Size]) -> Self:
        """Build from parts that the algebra has made."""
        layout = _Open()
        layout.shard = shard
        layout.replica = replica
        layout.offset = MappingProxyType(dict(offset)) if offset else NO_OFFSET
        layout._memo = {}
        layout.__class__ = cls  # closed: from here on it refuses to be set
        return layout  # type: ignore[return-value]

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
        if not isinstance(other, LayoutMap):
            return NotImplemented
        return self is other or self._identity() == other._identity()

    def __hash__(self) -> int:
        """Hash as compared."""
        if "hash" not in self._memo:
            self._memo["hash"] = hash(self._identity())
        return int(self._memo["hash"])

    def __reduce__(self) -> Any:
        """Pickle and copy through the parts."""
        return type(self).from_iters, (self.shard, self.replica, dict(self.offset))

    def __str__(self) -> str:
        """Return the notation that :func:`layoutalg.parse` reads back."""
        return printing.text(self.shard, self.replica, self.offset)

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"TileLayout({self})"

    def _repr_latex_(self) -> str:
        """Return the layout as mathematics, for Jupyter."""
        return f"${printing.latex(self.shard, self.replica, self.offset)}$"

    # -- the map ----------------------------------------------------------------------------

    def _reader(
        self, coord: Sequence[Any], shape: Sequence[Any] | None, what: str
    ) -> evaluation.Reader:
        """Return how a coordinate is read; what has been asked once is remembered."""
        extents = None if shape is None else as_shape(shape, what)
        key = (what, len(coord), extents)
        found: evaluation.Reader | None = self._memo.get(key)
        if found is None:
            found = evaluation.reader(self, coord, extents, what)
            self._memo[key] = found
        return found

    def apply(self, *coord: Any, shape: Sequence[Any] | None = None) -> dict[str, Any]:
        """Return the base machine coordinate of an element, axis name -> value.

        Args:
            coord: without a shape, one flat index or one digit per shard iter; with a shape, one
                index per dimension. Ints, integer arrays (which broadcast) or integer expressions
                (taken as in range where nothing speaks against it).
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
        found = evaluation.at_ints(self, coord, shape)
        return self._reader(coord, shape, "apply").apply(coord) if found is None else found

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
        base = evaluation.at_ints(self, coord, shape)
        if base is None:
            base = self._reader(coord, shape, "owners").apply(coord)
        return evaluation.owners(self.replica, base)

    def inverse(self, shape: Sequence[Any]) -> Inverse:
        """Return the map from machine coordinates to logical ones over ``shape``.

        ``L.inverse(s).at(**L.apply(*c, shape=s)) == c``.

        Raises:
            LayoutError: two elements share a place, or the strides interleave, so that division
                does not give the digits back. Undecided: that depends on a symbol.

        >>> from layoutalg import TileLayout, S, laneid
        >>> TileLayout(S[(8, 4):(4 @ laneid, 1 @ laneid)]).inverse((8, 4)).at(laneid=13)
        (3, 1)
        """
        return inverse(self, as_shape(shape, "inverse"))

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
        return table(self, as_shape(shape, "table"), replicas)

    @property
    def copies(self) -> Iters:
        """The replica iters that repeat: what extent 1 or stride 0 says adds no place.

        Ask this, not ``replica``, whether a layout is replicated: ``replica`` is how it is written.

        >>> from layoutalg import TileLayout, S, R
        >>> TileLayout(S[8:1] + R[(4, 2):(0, 8)]).copies, TileLayout(S[8:1] + R[4:0]).copies
        ((Iter(2, 8, 'm'),), ())
        """
        return parts.copies(self)

    # -- measures ---------------------------------------------------------------------------

    def size(self, axis: Axis | str | None = None) -> Size:
        """Return how many elements there are, or the product of the shard extents on one axis.

        >>> from layoutalg import TileLayout, S, laneid
        >>> L = TileLayout(S[(8, 4, 2):(4 @ laneid, 1 @ laneid, 1)])
        >>> L.size(), L.size("laneid"), L.size("warpid")
        (64, 32, 1)
        """
        if axis is None:
            return as_size(parts.total_size(self))
        axis = Axis.get(axis)
        return as_size(product_of(it.extent for it in self.shard if it.axis is axis))

    def span(self, axis: Axis | str | None = None) -> Size:
        """Return ``1 + sum (extent - 1)*stride + offset`` on an axis, or over all memory axes.

        The sum is over shard and replica iters. With strides and offset from 0 on: the largest
        coordinate plus one.

        >>> from layoutalg import TileLayout, S, R
        >>> TileLayout(S[8:1] + R[2:8] + 5).span()
        21
        """
        if axis is not None:
            return parts.span(self, Axis.get(axis))
        total: Any = 1
        for each in dict.fromkeys((*(it.axis for it in self.shard + self.replica), *self.offset)):
            if each.memory:
                total = total + parts.span(self, each) - 1
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
        return parts.scope(self)

    def verify_well_formed(self) -> bool:
        """Return True, or raise what is wrong with the layout's scopes.

        Raises:
            LayoutError: the thread axes conflict or leave a gap.

        >>> from layoutalg import TileLayout, S, laneid, tx
        >>> TileLayout(S[(8, 4):(4 @ laneid, 1 @ laneid)]).verify_well_formed()
        True
        """
        parts.scope(self)
        return True

    # -- questions about the map --------------------------------------------------------------

    def equivalent(
        self, other: LayoutMap, target: str | None = None, shape: Sequence[Any] | None = None
    ) -> Verdict:
        """Decide whether two layouts put each element in the same set of places.

        Replicas are sets: their order, and how they are cut, is free. ``target="cuda"`` compares
        after axis fusion; ``shape`` names elements by coordinates in a counter-example.

        Raises:
            Undecided: symbols leave it open. LayoutError: a shape of another size.

        >>> from layoutalg import TileLayout, S, R
        >>> a, b = TileLayout(S[4:1] + R[(2, 2):(8, 4)]), TileLayout(S[(2, 2):(2, 1)] + R[4:4])
        >>> bool(a.equivalent(b)), a == b
        (True, False)
        """
        return equivalence.equivalent(
            self, other, as_target(target), _optional(shape, "equivalent")
        )

    def is_injective(self, shape: Sequence[Any] | None = None) -> Verdict:
        """Decide whether distinct elements never share a place, replicas included.

        Raises:
            Undecided: symbols leave it open. LayoutError: a shape of another size.

        >>> from layoutalg import TileLayout, S
        >>> bool(TileLayout(S[(2, 3):(1, 2)]).is_injective())
        True
        >>> print(TileLayout(S[(2, 3):(2, 1)]).is_injective((2, 3)).reason)
        element (0, 2) and element (1, 0) share the place (m 2)
        """
        return injectivity.is_injective(self, _optional(shape, "is_injective"))

    def covers(
        self, shape: Sequence[Any] | None = None, box: Mapping[Axis | str, Any] | None = None
    ) -> Verdict:
        """Decide whether every place of the box is hit and none outside it; ``degree``: how often.

        Args:
            shape: logical extents.
            box: axis -> extent; an axis that is left out runs from its lowest to its highest value.

        Raises:
            Undecided: symbols leave it open. LayoutError: a shape of another size.

        >>> from layoutalg import TileLayout, S, laneid
        >>> D = TileLayout(S[(2, 8, 4, 2):(2, 4 @ laneid, 1 @ laneid, 1)])
        >>> D.covers((16, 8), box={"laneid": 32, "m": 4}).degree
        1
        """
        return injectivity.covers(self, _optional(shape, "covers"), box)

    def replication(self, shape: Sequence[Any] | None = None) -> Verdict:
        """Say in how many places each element is (``degree``); true unless that is one.

        Raises:
            Undecided: symbols leave it open. LayoutError: a shape of another size.

        >>> from layoutalg import TileLayout, S, R, warpid
        >>> TileLayout(S[4:1] + R[2:4 @ warpid]).replication().degree
        2
        """
        return injectivity.replication(self, _optional(shape, "replication"))


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
