"""The notation as Python: ``S[...]``, ``R[...]`` and what may be added to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layoutalg.algebra import iters as algebra
from layoutalg.algebra.axis import Axis, Term, Terms, as_readable, m
from layoutalg.algebra.iters import Iter, Iters
from layoutalg.algebra.parts import NO_OFFSET, add_offsets
from layoutalg.algebra.printing import text
from layoutalg.errors import LayoutError
from layoutalg.sizes.size import Size, as_extent


@dataclass(frozen=True, slots=True)
class LayoutSpec:
    """A layout under construction: at most one S, at most one R, and a sum of offsets.

    >>> from layoutalg import S, R, laneid
    >>> S[8 : 4 @ laneid] + R[2:1] + 3 @ laneid + 1
    S[8:4@laneid] + R[2:1] + 3@laneid + 1
    """

    shard_or_none: Iters | None
    replica_or_none: Iters | None
    offset: Mapping[Axis, Size]

    def __init__(
        self,
        shard: Iters | None = None,
        replica: Iters | None = None,
        offset: Mapping[Axis, Size] = NO_OFFSET,
    ) -> None:
        """Hold what there is so far; None where S or R has not been given."""
        _put_shard(self, shard)
        _put_replica(self, replica)
        _put_offset(self, offset)

    @property
    def shard(self) -> Iters:
        """The iters of S; empty where there is only R.

        >>> from layoutalg import S
        >>> S[8:4].shard
        (Iter(8, 4, 'm'),)
        """
        return self.shard_or_none or ()

    @property
    def replica(self) -> Iters:
        """The iters of R; empty where there is only S.

        >>> from layoutalg import R
        >>> R[2, 3].replica
        (Iter(2, 3, 'm'), Iter(3, 1, 'm'))
        """
        return self.replica_or_none or ()

    def __add__(self, other: object) -> LayoutSpec:
        """Add an R, an S, an offset term, or a size on axis m.

        Raises:
            LayoutError: a second S or R, or a number that is no size.
        """
        if isinstance(other, LayoutSpec):
            for letter, mine, theirs in (
                ("S", self.shard_or_none, other.shard_or_none),
                ("R", self.replica_or_none, other.replica_or_none),
            ):
                if mine is not None and theirs is not None:
                    raise LayoutError(
                        f"layout: there can be one {letter}[...]; got {self} + {other}. Write one "
                        f"{letter} with all its iters"
                    )
            return LayoutSpec(
                other.shard_or_none if self.shard_or_none is None else self.shard_or_none,
                other.replica_or_none if self.replica_or_none is None else self.replica_or_none,
                add_offsets(self.offset, other.offset),
            )
        sum_of_terms = Terms(()).__add__(other)
        if sum_of_terms is NotImplemented:
            return NotImplemented
        added = {term.axis: term.value for term in sum_of_terms.terms}
        offset = add_offsets(self.offset, added)
        return LayoutSpec(self.shard_or_none, self.replica_or_none, offset)

    __radd__ = __add__

    def __repr__(self) -> str:
        """Return the notation."""
        return text(self.shard, self.replica, self.offset)


# The slots' own setters, for __init__ alone.
_put_shard, _put_replica, _put_offset = (
    LayoutSpec.__dict__[name].__set__ for name in ("shard_or_none", "replica_or_none", "offset")
)


class Bracket:
    """``S`` and ``R``: subscript them with extents, or with ``extents : strides``.

    >>> from layoutalg import S, laneid
    >>> S[8, 4], S[(8, 4) : (4 @ laneid, "laneid")]
    (S[(8,4):(4,1)], S[(8,4):(4@laneid,1@laneid)])
    """

    def __init__(self, letter: str) -> None:
        """Make the bracket of a letter, S or R."""
        self.letter = letter

    def __getitem__(self, key: Any) -> LayoutSpec:
        """Build the iters; without strides they are row-major on axis m.

        Raises:
            LayoutError: strides and extents differ in number, an extent is below 1, or a stride is
                none.
        """
        if isinstance(key, slice):
            if key.step is not None:
                raise LayoutError(f"{self.letter}[...]: takes extents : strides; got a third part")
            iters = self.strided(_as_tuple(key.start), _as_tuple(key.stop))
        else:
            sizes = _as_tuple(key)
            if any(isinstance(each, slice) for each in sizes):
                raise LayoutError(
                    f"{self.letter}[...]: put the extents in one tuple and the strides in another, "
                    f"as {self.letter}[(8, 4) : (4, 1)]"
                )
            what = f"{self.letter}[...]: extent"
            iters = algebra.row_major(tuple(as_extent(size, what) for size in sizes))
        return self.spec(iters)

    def spec(self, iters: Iters) -> LayoutSpec:
        """Wrap iters as this bracket's part of a layout.

        >>> R.spec((Iter(2, 4),))
        S[()] + R[2:4]
        """
        return LayoutSpec(iters) if self.letter == "S" else LayoutSpec(None, iters)

    def strided(self, sizes: tuple[Any, ...], strides: tuple[Any, ...]) -> Iters:
        """Pair extents with strides.

        Raises:
            LayoutError: their numbers differ, or an extent or a stride is none.

        >>> S.strided((8, 4), (4 @ Axis.get("laneid"), 1))
        (Iter(8, 4, 'laneid'), Iter(4, 1, 'm'))
        """
        if len(sizes) != len(strides):
            raise LayoutError(
                f"{self.letter}[...]: needs one stride per extent; got the extents {sizes} and the "
                f"strides {strides}"
            )
        iters = []
        for extent, stride in zip(sizes, strides, strict=True):
            if type(extent) is not int or extent < 1:
                extent = as_extent(extent, f"{self.letter}[...]: extent")
            if type(stride) is int:
                iters.append(Iter(extent, stride, m))
            elif type(stride) is Term:
                iters.append(Iter(extent, stride.value, stride.axis))
            else:
                iters.append(Iter(extent, *_as_stride(stride, f"{self.letter}[...]: stride")))
        return tuple(iters)

    def __repr__(self) -> str:
        """Return the letter."""
        return self.letter


S = Bracket("S")
R = Bracket("R")


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _as_stride(value: Any, what: str) -> tuple[Size, Axis]:
    """Read what may stand for a stride besides an int and ``n @ axis``."""
    axis: str | Axis = m
    if isinstance(value, Axis | str):
        value, axis = 1, value
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str | Axis):
        value, axis = value
    elif isinstance(value, Terms):
        if len(value.terms) != 1:
            raise LayoutError(f"{what}: must lie on one axis; got the sum {value}")
        value, axis = value.terms[0].value, value.terms[0].axis
    return as_readable(value, what), Axis.get(axis)
