"""Swizzles: an XOR on addresses, alone (``SwizzleLayout``) and after a tile (``ComposeLayout``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from layoutalg.algebra.axis import Axis, m
from layoutalg.algebra.iters import Iter
from layoutalg.algebra.parts import is_dense
from layoutalg.errors import LayoutError
from layoutalg.layouts.html import Explorable
from layoutalg.layouts.tile_layout import TileLayout
from layoutalg.sizes.arguments import as_coordinate
from layoutalg.sizes.size import Size, as_shape, as_size, product


@dataclass(frozen=True)
class SwizzleLayout:
    """A permutation of addresses, in elements.

    With ``x = address >> per_element`` and ``mask = 2**swizzle_len - 1``:
    ``y = x ^ ((x >> atom_len) & mask)`` (inner), or ``y = x ^ ((x & mask) << atom_len)`` (outer);
    the result is ``(y << per_element) + address mod 2**per_element``. The shared-memory modes of
    32, 64 and 128 bytes are swizzle_len 1, 2, 3 with atom_len 3 and 16-byte units.

    >>> SwizzleLayout(3, 3, 3).apply(64)
    72

    Source: CuTe ``Swizzle<swizzle_len, per_element, atom_len>``.
    """

    per_element: int
    swizzle_len: int
    atom_len: int
    swizzle_inner: bool = True

    def __post_init__(self) -> None:
        """Check the lengths.

        Raises:
            LayoutError: not ``per_element >= 0``, ``0 <= swizzle_len <= atom_len``.
        """
        for name in ("per_element", "swizzle_len", "atom_len"):
            value = as_size(getattr(self, name), f"swizzle: {name}")
            if type(value) is not int or value < 0:
                raise LayoutError(f"swizzle: {name} must be a number from 0 on; got {value}")
            object.__setattr__(self, name, value)
        if not isinstance(inner := self.swizzle_inner, bool):
            raise LayoutError(f"swizzle: swizzle_inner must be True or False; got {inner!r}")
        if self.atom_len < self.swizzle_len:
            raise LayoutError(
                f"swizzle: atom_len must be at least swizzle_len, or the XOR is not a permutation; "
                f"got swizzle_len {self.swizzle_len}, atom_len {self.atom_len}"
            )

    @property
    def size(self) -> int:
        """The period: addresses per block that is permuted in itself.

        >>> SwizzleLayout(3, 3, 3).size
        512
        """
        return 1 << (self.per_element + self.swizzle_len + self.atom_len)

    def apply(self, address: Any) -> Any:
        """Return the swizzled address of an int or of an integer array; it is its own inverse.

        Raises:
            LayoutError: the address is no integer, or symbolic: an XOR has no form in the algebra.

        >>> swizzle = SwizzleLayout(3, 3, 3)
        >>> [swizzle.apply(swizzle.apply(address)) for address in (8, 72, 511)]
        [8, 72, 511]
        """
        address = as_coordinate(address, "swizzle: address")
        if hasattr(address, "free_symbols"):
            raise LayoutError(
                f"swizzle: the address must be a number or an array; {address} is symbolic, and an "
                "XOR has no form in the algebra: substitute its symbols"
            )
        return self.permute(address)

    def permute(self, address: Any) -> Any:
        """Return the swizzled address of anything that shifts, masks and XORs, unchecked.

        An index of a code generator, for instance; :meth:`apply` checks what users give.

        >>> SwizzleLayout(3, 3, 3).permute(64)
        72
        """
        x, mask = address >> self.per_element, (1 << self.swizzle_len) - 1
        moved = (x >> self.atom_len) & mask if self.swizzle_inner else (x & mask) << self.atom_len
        return ((x ^ moved) << self.per_element) + address % (1 << self.per_element)

    def over(self, tile_layout: TileLayout) -> ComposeLayout:
        """Return the layout that swizzles the addresses of a tile.

        >>> print(SwizzleLayout(3, 3, 3).over(TileLayout.from_iters([Iter(512)])))
        ComposeLayout(3, 3, 3, S[512:1])
        """
        lengths = self.per_element, self.swizzle_len, self.atom_len
        return ComposeLayout(*lengths, tile_layout, self.swizzle_inner)


@dataclass(frozen=True)
class ComposeLayout(Explorable):
    """A tile in memory whose addresses are then swizzled: ``L(x) = swizzle(tile(x))``.

    >>> from layoutalg import S
    >>> L = ComposeLayout(3, 3, 3, TileLayout(S[512:1]))
    >>> [L.apply(x)["m"] for x in (0, 64, 128)]
    [0, 72, 144]
    """

    per_element: int
    swizzle_len: int
    atom_len: int
    tile_layout: TileLayout
    swizzle_inner: bool = True

    def __post_init__(self) -> None:
        """Check the parameters and the tile.

        Raises:
            LayoutError: as :class:`SwizzleLayout`; or the tile is no TileLayout, or is ill-formed.
        """
        swizzle = self.swizzle
        for name in ("per_element", "swizzle_len", "atom_len"):
            object.__setattr__(self, name, getattr(swizzle, name))
        if not isinstance(self.tile_layout, TileLayout):
            raise LayoutError(f"ComposeLayout: needs a TileLayout; got {self.tile_layout!r}")
        self.tile_layout.verify_well_formed()

    @property
    def swizzle(self) -> SwizzleLayout:
        """The permutation of addresses.

        >>> from layoutalg import S
        >>> ComposeLayout(3, 3, 3, TileLayout(S[512:1])).swizzle
        SwizzleLayout(per_element=3, swizzle_len=3, atom_len=3, swizzle_inner=True)
        """
        return SwizzleLayout(self.per_element, self.swizzle_len, self.atom_len, self.swizzle_inner)

    def over(self, tile_layout: TileLayout) -> ComposeLayout:
        """Return the same swizzle over another tile.

        >>> from layoutalg import S
        >>> print(ComposeLayout(3, 3, 3, TileLayout(S[512:1])).over(TileLayout(S[1024:1])))
        ComposeLayout(3, 3, 3, S[1024:1])
        """
        return self.swizzle.over(tile_layout)

    def __str__(self) -> str:
        """Return the constructor call."""
        inner = "" if self.swizzle_inner else ", swizzle_inner=False"
        return (
            f"ComposeLayout({self.per_element}, {self.swizzle_len}, {self.atom_len}, "
            f"{self.tile_layout}{inner})"
        )

    @property
    def bare(self) -> bool:
        """Whether the tile says nothing: at most one dense iter in memory, from 0.

        >>> from layoutalg import S
        >>> ComposeLayout(3, 3, 3, TileLayout(S[512:1])).bare
        True
        """
        return is_dense(self.tile_layout)

    def tile_over(self, shape: Sequence[Any]) -> TileLayout:
        """Return the tile; a bare swizzle permutes whatever dense tile it is asked about.

        >>> from layoutalg import S
        >>> print(ComposeLayout(3, 3, 3, TileLayout(S[512:1])).tile_over((8, 64, 2)))
        S[1024:1]
        """
        extents = as_shape(shape, "ComposeLayout")
        if not self.bare:
            return self.tile_layout
        axis = self.tile_layout.shard[0].axis if self.tile_layout.shard else m
        return TileLayout.from_iters([Iter(product(extents), 1, axis)])

    # -- the map ----------------------------------------------------------------------------

    def apply(self, *coord: Any, shape: Sequence[Any] | None = None) -> dict[str, Any]:
        """Return ``{"m": swizzled address}`` of an element; arguments as ``TileLayout.apply``.

        A bare swizzle, being a map of addresses, takes any flat index from 0 on.

        Raises:
            LayoutError: the tile does not lie on axis m alone, or as ``TileLayout.apply``.

        >>> from layoutalg import S
        >>> ComposeLayout(3, 3, 3, TileLayout(S[(8, 64):(64, 1)])).apply(1, 3, shape=(8, 64))
        {'m': 75}
        """
        bare = self.bare and shape is None and len(coord) == 1 and _from_zero(coord[0])
        place = self.tile_layout.apply(*((0,) if bare else coord), shape=shape)
        self._check_axis(place)
        return {"m": self.swizzle.apply(coord[0] if bare else place["m"])}

    def table(self, shape: Sequence[Any], replicas: bool = False) -> dict[str, Any]:
        """Return the swizzled address of every element, as ``TileLayout.table``.

        Raises:
            LayoutError: the tile does not lie on axis m alone, or as ``TileLayout.table``.

        >>> from layoutalg import S
        >>> ComposeLayout(0, 1, 1, TileLayout(S[4:1])).table((2, 2))["m"].tolist()
        [[0, 1], [3, 2]]
        """
        extents = as_shape(shape, "table")
        self._check_axis(self.tile_layout.apply(*(0 for _ in extents), shape=extents))
        table = self.tile_layout.table(extents, replicas)
        return table | {"m": self.swizzle.apply(table["m"])}

    def _check_axis(self, place: Mapping[str, Any]) -> None:
        """Refuse a tile whose elements are anywhere but on axis m; replicas may be elsewhere."""
        if set(place) != {"m"}:
            raise LayoutError(
                f"ComposeLayout: a swizzle permutes addresses, so its tile must lie on axis m "
                f"alone; {self.tile_layout} has {', '.join(sorted(place)) or 'none'}"
            )

    def size(self, axis: Axis | str | None = None) -> Size:
        """Return how many elements the tile holds.

        Raises:
            LayoutError: an axis is named: a swizzled layout has one axis, m.

        >>> from layoutalg import S
        >>> ComposeLayout(3, 3, 3, TileLayout(S[(8, 64):(64, 1)])).size()
        512
        """
        self._refuse_axis("size", axis)
        return self.tile_layout.size()

    def span(self, axis: Axis | str | None = None) -> Size:
        """Return the span of the tile: ``TileLayout.span``.

        Raises:
            LayoutError: an axis is named.

        >>> from layoutalg import S
        >>> ComposeLayout(3, 3, 3, TileLayout(S[(8, 64):(72, 1)])).span()
        568
        """
        self._refuse_axis("span", axis)
        return self.tile_layout.span()

    def _refuse_axis(self, what: str, axis: Axis | str | None) -> None:
        if axis is not None:
            raise LayoutError(f"{what}: a swizzled layout has no axis to choose; got {axis}")

    def subs(self, values: Mapping[Any, Any]) -> ComposeLayout:
        """Return the layout with symbols of the tile replaced: ``TileLayout.subs``.

        >>> from layoutalg import parse
        >>> ComposeLayout(3, 3, 3, parse("S[(n,64):(64,1)]")).subs({"n": 8}).size()
        512
        """
        return self.over(self.tile_layout.subs(values))

    def is_swizzle(self) -> bool:
        """Say whether the tile is trivial: ``TileLayout.is_trivial``.

        >>> from layoutalg import S
        >>> ComposeLayout(3, 3, 3, TileLayout(S[(8, 64):(64, 1)])).is_swizzle()
        True
        """
        return self.tile_layout.is_trivial()

    def get_scope(self) -> tuple[str, str] | None:
        """Return the tile's scope: ``TileLayout.get_scope``.

        >>> from layoutalg import S
        >>> ComposeLayout(3, 3, 3, TileLayout(S[512:1])).get_scope() is None
        True
        """
        return self.tile_layout.get_scope()

    def verify_well_formed(self) -> bool:
        """Return True: the constructor has checked it.

        >>> from layoutalg import S
        >>> ComposeLayout(3, 3, 3, TileLayout(S[512:1])).verify_well_formed()
        True
        """
        return self.tile_layout.verify_well_formed()

    # -- the algebra: on the tile, wrapped again ----------------------------------------------

    def canonicalize(self, target: str | None = None) -> ComposeLayout:
        """Canonicalize the tile.

        >>> from layoutalg import S
        >>> print(ComposeLayout(3, 3, 3, TileLayout(S[(8, 64):(64, 1)])).canonicalize())
        ComposeLayout(3, 3, 3, S[512:1])
        """
        return self.over(self.tile_layout.canonicalize(target))

    def tile(
        self,
        outer: TileLayout,
        outer_shape: Sequence[Any],
        inner_shape: Sequence[Any],
        target: str | None = None,
    ) -> ComposeLayout:
        """Arrange copies of the tile, swizzled as before: ``TileLayout.tile``.

        >>> from layoutalg import S
        >>> L = ComposeLayout(3, 3, 3, TileLayout(S[512:1]))
        >>> print(L.tile(TileLayout(S[(8, 4):(1, 8)]), (8, 4), (8, 64)))
        ComposeLayout(3, 3, 3, S[(64,4,64):(64,4096,1)])
        """
        return self.over(self.tile_over(inner_shape).tile(outer, outer_shape, inner_shape, target))

    def tile_to(
        self, to_shape: Sequence[Any], current_shape: Sequence[Any], target: str | None = None
    ) -> ComposeLayout:
        """Repeat the tile row-major, swizzled as before: ``TileLayout.tile_to``.

        >>> from layoutalg import S
        >>> print(ComposeLayout(3, 3, 3, TileLayout(S[512:1])).tile_to((16, 64), (8, 64)))
        ComposeLayout(3, 3, 3, S[1024:1])
        """
        return self.over(self.tile_over(current_shape).tile_to(to_shape, current_shape, target))

    def slice(
        self, shape: Sequence[Any], region: Sequence[tuple[Any, Any]], target: str | None = None
    ) -> ComposeLayout | None:
        """Slice the tile; the swizzle still sees whole addresses: ``TileLayout.slice``.

        >>> from layoutalg import S
        >>> print(ComposeLayout(3, 3, 3, TileLayout(S[512:1])).slice((8, 64), ((2, 4), (0, 64))))
        ComposeLayout(3, 3, 3, S[(2,64):(64,1)] + 128)
        """
        piece = self.tile_over(shape).slice(shape, region, target)
        return None if piece is None else self.over(piece)

    def direct_sum(
        self,
        left: TileLayout,
        left_shape: Sequence[Any],
        right_shape: Sequence[Any],
        target: str | None = None,
    ) -> ComposeLayout:
        """Add a layout on the left of the tile, swizzled as before: ``TileLayout.direct_sum``.

        >>> from layoutalg import S
        >>> L = ComposeLayout(3, 3, 3, TileLayout(S[512:1]))
        >>> print(L.direct_sum(TileLayout(S[2:512]), (2,), (512,)))
        ComposeLayout(3, 3, 3, S[1024:1])
        """
        return self.over(
            self.tile_over(right_shape).direct_sum(left, left_shape, right_shape, target)
        )

    def _same_swizzle(self, other: Any) -> bool:
        return isinstance(other, ComposeLayout) and other.swizzle == self.swizzle

    def is_tile_inner(
        self,
        tiled: Any,
        tiled_shape: Sequence[Any],
        inner_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout | None:
        """Return the plain outer layout of ``tiled``; None unless both swizzle alike.

        >>> from layoutalg import S
        >>> L = ComposeLayout(3, 3, 3, TileLayout(S[512:1]))
        >>> print(L.is_tile_inner(L.tile_to((16, 64), (8, 64)), (16, 64), (8, 64)))
        S[(2,1):(1,64)]
        """
        if not self._same_swizzle(tiled):
            return None
        return self.tile_over(inner_shape).is_tile_inner(
            tiled.tile_over(tiled_shape), tiled_shape, inner_shape, target
        )

    def is_tile_outer(self, *_: Any, **__: Any) -> None:
        """Return None: a swizzled layout arranges nothing.

        >>> from layoutalg import parse
        >>> ComposeLayout(3, 3, 3, parse("S[512:1]")).is_tile_outer(None) is None
        True
        """

    def is_direct_sum_right(
        self,
        total: Any,
        interleaved_shape: Sequence[Any],
        right_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout | None:
        """Return the plain left summand; None unless both swizzle alike.

        >>> from layoutalg import S
        >>> L = ComposeLayout(3, 3, 3, TileLayout(S[512:1]))
        >>> total = L.direct_sum(TileLayout(S[2:512]), (2,), (512,))
        >>> print(L.is_direct_sum_right(total, (2, 512), (512,)))
        S[2:512]
        """
        if not self._same_swizzle(total):
            return None
        return self.tile_over(right_shape).is_direct_sum_right(
            total.tile_over(interleaved_shape), interleaved_shape, right_shape, target
        )

    def is_direct_sum_left(
        self,
        total: Any,
        interleaved_shape: Sequence[Any],
        left_shape: Sequence[Any],
        target: str | None = None,
    ) -> TileLayout | None:
        """Return the plain right summand; None unless both swizzle alike.

        >>> from layoutalg import S
        >>> L = ComposeLayout(3, 3, 3, TileLayout(S[2:512]))
        >>> total = ComposeLayout(3, 3, 3, TileLayout(S[1024:1]))
        >>> print(L.is_direct_sum_left(total, (2, 512), (2,)))
        S[512:1]
        """
        if not self._same_swizzle(total):
            return None
        return self.tile_over(left_shape).is_direct_sum_left(
            total.tile_over(interleaved_shape), interleaved_shape, left_shape, target
        )

    # -- storage ------------------------------------------------------------------------------

    def storage(self) -> ComposeLayout:
        """Remove thread iters from the tile: ``TileLayout.storage``.

        >>> from layoutalg import S, laneid
        >>> print(ComposeLayout(3, 3, 3, TileLayout(S[(32, 512):(1 @ laneid, 1)])).storage())
        ComposeLayout(3, 3, 3, S[512:1])
        """
        return self.over(self.tile_layout.storage())

    def broadcast(self, num: int, position: int = -1, axis: Axis | str = m) -> ComposeLayout:
        """Insert an iter of stride 0 into the tile: ``TileLayout.broadcast``.

        >>> from layoutalg import S
        >>> print(ComposeLayout(3, 3, 3, TileLayout(S[512:1])).broadcast(2, 0))
        ComposeLayout(3, 3, 3, S[(2,512):(0,1)])
        """
        return self.over(self.tile_layout.broadcast(num, position, axis))

    def pack(self, num: int) -> ComposeLayout:
        """Join ``num`` neighbours: the tile packs, and the unit of the swizzle shrinks.

        Raises:
            LayoutError: num is no power of two, or larger than the swizzle's unit; or as
                ``TileLayout.pack``.

        >>> from layoutalg import S
        >>> print(ComposeLayout(3, 3, 3, TileLayout(S[512:1])).pack(2))
        ComposeLayout(2, 3, 3, S[256:1])
        """
        bits = _log2(num, "pack")
        if bits > self.per_element:
            most = 1 << self.per_element  # the unit that the swizzle moves
            raise LayoutError(
                f"pack: num must be at most {most}, the unit that the swizzle moves; got {num}"
            )
        tile = self.tile_layout.pack(num)
        return replace(self, per_element=self.per_element - bits, tile_layout=tile)

    def unpack(self, num: int) -> ComposeLayout:
        """Split each element into ``num``: the tile unpacks, and the unit of the swizzle grows.

        Raises:
            LayoutError: num is no power of two.

        >>> from layoutalg import S
        >>> print(ComposeLayout(2, 3, 3, TileLayout(S[256:1])).unpack(2))
        ComposeLayout(3, 3, 3, S[(256,2):(2,1)])
        """
        bits, wide = _log2(num, "unpack"), self.tile_layout.unpack(num)
        return replace(self, per_element=self.per_element + bits, tile_layout=wide)


def _from_zero(value: Any) -> bool:
    """Say whether a flat index is a number, or an array of numbers, from 0 on."""
    if getattr(value, "ndim", 0):
        return value.dtype.kind in "iu" and (not value.size or int(value.min()) >= 0)
    return hasattr(value, "__index__") and not isinstance(value, bool) and value >= 0


def _log2(num: Any, what: str) -> int:
    value = as_size(num, f"{what}: num")
    if type(value) is not int or value < 1 or value & (value - 1):
        raise LayoutError(f"{what}: a swizzled layout needs num to be a power of two; got {num}")
    return value.bit_length() - 1
