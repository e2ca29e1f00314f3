"""Swizzles: an XOR on addresses, alone (``SwizzleLayout``) and after a tile (``ComposeLayout``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from layoutalg.algebra.axis import Axis, m
from layoutalg.algebra.inversion import Inverse
from layoutalg.algebra.iters import Iter
from layoutalg.algebra.parts import is_dense
from layoutalg.algebra.tables import IntArray
from layoutalg.errors import LayoutError
from layoutalg.front_door import as_layout
from layoutalg.layouts.tile_layout import Layout, TileLayout
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
        """The period: each aligned block of so many addresses is permuted within itself.

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
        """Swizzle an address without checks: an int, an array or an index expression.

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
class ComposeLayout(Layout):
    """A tile in memory whose addresses are then swizzled: ``L(x) = swizzle(tile(x))``.

    It has the operations of a :class:`TileLayout`: they work on the tile and keep the swizzle. The
    ``outer`` of a tile and the ``left`` of a direct sum are not swizzled.

    >>> from layoutalg import S
    >>> L = ComposeLayout(3, 3, 3, TileLayout(S[512:1]))
    >>> [L.apply(x)["m"] for x in (0, 64, 128)]
    [0, 72, 144]
    >>> print(L.tile_to((16, 64), (8, 64)))
    ComposeLayout(3, 3, 3, S[1024:1])
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
        object.__setattr__(self, "tile_layout", as_layout(self.tile_layout, "ComposeLayout"))
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

    def __str__(self) -> str:
        """Return the constructor call."""
        inner = "" if self.swizzle_inner else ", swizzle_inner=False"
        return (
            f"ComposeLayout({self.per_element}, {self.swizzle_len}, {self.atom_len}, "
            f"{self.tile_layout}{inner})"
        )

    @property
    def bare(self) -> bool:
        """Whether the tile is trivial (one dense iter from 0), so that the layout is its swizzle.

        >>> from layoutalg import S
        >>> ComposeLayout(3, 3, 3, TileLayout(S[512:1])).bare
        True
        """
        return is_dense(self.tile_layout)

    def is_swizzle(self) -> bool:
        """Say whether the tile is trivial: ``TileLayout.is_trivial``.

        >>> from layoutalg import S
        >>> ComposeLayout(3, 3, 3, TileLayout(S[(8, 64):(64, 1)])).is_swizzle()
        True
        """
        return self.tile_layout.is_trivial()

    # -- what the swizzle adds to the operations of a layout -----------------------------------

    def over(self, tile_layout: TileLayout) -> ComposeLayout:
        """Return the same swizzle over another tile."""
        return self.swizzle.over(tile_layout)

    def tile_over(self, shape: Sequence[Any]) -> TileLayout:
        """Return the tile over a shape; a bare swizzle takes a dense tile of any size."""
        extents = as_shape(shape, "ComposeLayout")
        if not self.bare:
            return self.tile_layout
        axis = self.tile_layout.shard[0].axis if self.tile_layout.shard else m
        return TileLayout.from_iters([Iter(product(extents), 1, axis)])

    def permute(self, address: Any) -> Any:
        """Return the swizzled address, unchecked."""
        return self.swizzle.permute(address)

    def _swizzled(self, place: dict[str, Any]) -> dict[str, Any]:
        return place | {"m": self.swizzle.apply(place["m"])}

    def _unswizzled(
        self, coord: Sequence[Any], shape: Sequence[Any] | None, what: str
    ) -> dict[str, Any]:
        """Return ``{"m": address}``; a bare swizzle takes any flat index from 0 on.

        Raises:
            LayoutError: elements are anywhere but on axis m; replicas may be.
        """
        bare = self.bare and shape is None and len(coord) == 1 and _from_zero(coord[0])
        place = super()._unswizzled((0,) if bare else coord, shape, what)
        if set(place) != {"m"}:
            raise LayoutError(
                f"ComposeLayout: a swizzle permutes addresses, so its tile must lie on axis m "
                f"alone; {self.tile_layout} has {', '.join(sorted(place)) or 'none'}"
            )
        return {"m": coord[0]} if bare else place

    def table(self, shape: Sequence[Any], replicas: bool = False) -> dict[str, IntArray]:
        """Return the swizzled address of every element, as ``TileLayout.table``."""
        extents = as_shape(shape, "table")
        self._unswizzled((0,) * len(extents), extents, "table")
        return super().table(extents, replicas)

    def inverse(self, shape: Sequence[Any]) -> Inverse:
        """Return the map from addresses back to elements: it undoes the swizzle first."""
        return replace(super().inverse(shape), swizzle=self.swizzle)

    def size(self, axis: Axis | str | None = None) -> Size:
        """Return how many elements the tile holds; a swizzled layout has one axis, m."""
        self._refuse_axis("size", axis)
        return super().size()

    def span(self, axis: Axis | str | None = None) -> Size:
        """Return the span of the tile; a swizzled layout has one axis, m."""
        self._refuse_axis("span", axis)
        return super().span()

    def _refuse_axis(self, what: str, axis: Axis | str | None) -> None:
        if axis is not None:
            raise LayoutError(f"{what}: a swizzled layout has no axis to choose; got {axis}")

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

    def unpack(self, num: int, axis: Axis | str = m) -> ComposeLayout:
        """Split each element into ``num``: the tile unpacks, and the unit of the swizzle grows.

        Raises:
            LayoutError: num is no power of two.

        >>> from layoutalg import S
        >>> print(ComposeLayout(2, 3, 3, TileLayout(S[256:1])).unpack(2))
        ComposeLayout(3, 3, 3, S[(256,2):(2,1)])
        """
        if Axis.get(axis) is not m:
            return super().unpack(num, axis)
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
