"""Iters and the algebra on tuples of iters; :class:`layoutalg.TileLayout` is the face over it.

A tuple of iters maps a flat index ``x``: split ``x`` row-major over the extents (last iter fastest)
and send each digit, times its stride, to its axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from layoutalg.algebra.axis import Axis, as_readable, m
from layoutalg.errors import LayoutError, Undecided
from layoutalg.sizes.size import (
    Size,
    as_extent,
    decide,
    divides,
    equal,
    floordiv,
    is_int,
    less,
    mod,
    namesakes,
    product,
    quotient,
)

Iters = tuple["Iter", ...]


@dataclass(frozen=True, slots=True)
class Iter:
    """One digit of a layout: ``extent`` steps of ``stride`` along ``axis``.

    ``digit d`` contributes ``d * stride`` to the axis, ``0 <= d < extent``. The stride may be zero
    (broadcast) or negative.

    >>> Iter(8, 4, "laneid")
    Iter(8, 4, 'laneid')
    """

    extent: Size
    stride: Size
    axis: Axis

    def __init__(self, extent: object, stride: object = 1, axis: Axis | str = m) -> None:
        """Convert, then check: an Iter in hand is valid.

        Raises:
            LayoutError: the extent is below 1, a value is no integer, or no such axis exists.
        """
        if type(extent) is not int or extent < 1:
            extent = as_readable(as_extent(extent), "extent")
        if type(stride) is not int:
            stride = as_readable(stride, "stride")
        if type(axis) is not Axis:
            axis = Axis.get(axis)
        _put_extent(self, extent)
        _put_stride(self, stride)
        _put_axis(self, axis)

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"Iter({self.extent}, {self.stride}, {self.axis.name!r})"


# The slots' own setters, a third faster than object.__setattr__; only __init__ uses them.
_put_extent, _put_stride, _put_axis = (
    Iter.__dict__[name].__set__ for name in ("extent", "stride", "axis")
)


def row_major(shape: Sequence[Size], axis: Axis = m) -> Iters:
    """Return the iters of a dense row-major tile: strides are the products of later extents.

    >>> row_major((3, 5))
    (Iter(3, 5, 'm'), Iter(5, 1, 'm'))
    """
    iters: list[Iter] = []
    stride: Any = 1
    for extent in reversed(shape):
        iters.append(Iter(extent, stride, axis))
        stride = stride * extent
    return tuple(reversed(iters))


def extents(iters: Iters) -> tuple[Size, ...]:
    """Return the extents, outermost first.

    >>> extents((Iter(8, 4), Iter(4, 1)))
    (8, 4)
    """
    return tuple(it.extent for it in iters)


def split(index: Any, radix: Sequence[Size]) -> list[Any]:
    """Split a flat index row-major over the radix; the first digit keeps the whole quotient.

    >>> split(13, (2, 8))
    [1, 5]
    """
    if not radix:
        return []
    digits: list[Any] = []
    if type(index) is int:
        for extent in reversed(radix[1:]):
            if type(extent) is int:
                index, digit = divmod(index, extent)
            else:
                index, digit = floordiv(index, extent), mod(index, extent)
            digits.append(digit)
        digits.append(index)
    else:
        weight: Any = 1
        for extent in reversed(radix[1:]):
            digits.append(mod(floordiv(index, weight) if weight != 1 else index, extent))
            weight = weight * extent
        digits.append(floordiv(index, weight) if weight != 1 else index)
    digits.reverse()
    return digits


def flatten(coord: Sequence[Any], shape: Sequence[Size]) -> Any:
    """Return the row-major flat index of a coordinate: the inverse of :func:`split`.

    >>> flatten((1, 5), (2, 8))
    13
    """
    index: Any = 0
    for digit, extent in zip(coord, shape, strict=True):
        index = index * extent + digit
    return index


def fuse(iters: Iters, drop_units: bool = False) -> Iters:
    """Fuse neighbours on one axis while ``next.extent * next.stride == current.stride``.

    The argument itself comes back where nothing fuses. ``drop_units`` leaves unit iters out first.

    >>> fuse((Iter(8, 8), Iter(4, 2), Iter(2, 1)))
    (Iter(64, 1, 'm'),)
    """
    fused: list[Iter] = []
    last: Iter | None = None
    for it in iters:
        extent, axis = it.extent, it.axis
        if drop_units and extent == 1:
            continue
        if last is not None and last.axis is axis and equal(extent * it.stride, last.stride):
            fused[-1] = last = Iter(last.extent * extent, it.stride, axis)
        else:
            fused.append(it)
            last = it
    return iters if len(fused) == len(iters) else tuple(fused)


def canonical(iters: Iters) -> Iters:
    """Drop unit iters (one stays if there is no other) and fuse neighbours; the map stays.

    The argument itself comes back where it is canonical already.

    >>> canonical((Iter(8, 8), Iter(1, 7), Iter(4, 2), Iter(2, 1)))
    (Iter(64, 1, 'm'),)
    """
    fused = fuse(iters, drop_units=True)
    if fused or not iters:
        return fused
    unit = (Iter(1, 1, iters[0].axis),)
    return iters if iters == unit else unit


def group(
    iters: Iters, shape: Sequence[Size], owner: object, what: str = "group"
) -> tuple[Iters, tuple[int, ...]]:
    """Refine the iters so that consecutive ones multiply to each extent of ``shape``.

    Args:
        iters: the shard of a layout.
        shape: extents, outermost first.
        owner: the layout as the caller wrote it, for messages.
        what: the operation, for messages.

    Returns:
        The refined iters and the separators: iters ``seps[d] .. seps[d+1]`` form group d.

    Raises:
        LayoutError: an extent cuts an iter unevenly, or the products differ.
        Undecided: divisibility depends on a symbol.

    >>> group((Iter(4, 6), Iter(6, 1)), (8, 3), "S[(4,6):(6,1)]")
    ((Iter(4, 6, 'm'), Iter(2, 3, 'm'), Iter(3, 1, 'm')), (0, 2, 3))
    """
    found = cut(iters, shape)
    if isinstance(found, Uncut):
        _refuse(iters, shape, found, what, owner)
    return found


class Uncut(NamedTuple):
    """Where a shape does not cut iters: the dimension, the iter, and whether symbols leave it open.

    >>> cut((Iter(6, 4), Iter(4, 1)), (8, 3))
    Uncut(dim=0, it=Iter(4, 1, 'm'), is_open=False)
    """

    dim: int
    it: Iter | None
    is_open: bool


def cut(iters: Iters, shape: Sequence[Size]) -> tuple[Iters, tuple[int, ...]] | Uncut:
    """Do what :func:`group` does, or say where it cannot be done.

    >>> cut((Iter(4, 6), Iter(6, 1)), (12, 2))
    ((Iter(4, 6, 'm'), Iter(3, 2, 'm'), Iter(2, 1, 'm')), (0, 2, 3))
    """
    out: list[Iter] = []
    seps = [0]
    p: Any = 1
    done, entries = 0, len(shape)
    is_open = False  # a cut that was passed over because the symbols leave it open
    for it in iters:
        left: Any = it.extent
        p = p * left
        while done < entries:
            if shape[done] == p:  # the usual case, ahead of the general one
                out.append(it if left is it.extent else Iter(left, it.stride, it.axis))
                seps.append(len(out))
                done += 1
                left = p = 1
                continue
            if p == 1 and type(shape[done]) is int:
                break  # the usual case again: the next extent needs the next iter
            fits = divides(shape[done], p)
            if not fits:
                is_open |= fits is None
                break
            rest = quotient(p, shape[done])
            fits = divides(rest, left)
            if not fits:
                return Uncut(done, it, is_open or fits is None)
            out.append(_outer_part(it, left, rest))
            seps.append(len(out))
            done += 1
            left = p = rest
        if left != 1:
            if done == entries:
                return Uncut(done - 1, it, is_open)
            out.append(it if left is it.extent else Iter(left, it.stride, it.axis))
    if done < entries or p != 1:
        return Uncut(min(done, entries - 1), iters[-1] if iters else None, is_open)
    return tuple(out), tuple(seps)


def _outer_part(it: Iter, left: Size, rest: Size) -> Iter:
    """Split off the outer part of an iter: ``left`` steps remain, ``rest`` of them inside."""
    stride: Any = it.stride
    return Iter(quotient(left, rest), stride * rest, it.axis)


def _refuse(
    iters: Iters, shape: Sequence[Size], found: Uncut, what: str, owner: object
) -> NoReturn:
    """Say why a shape does not group the iters: another size, a bad cut, or an open question."""
    dim, it, is_open = found
    wanted, held = product(shape), product(extents(iters))
    same = equal(wanted, held)
    if it is None:
        raise LayoutError(
            f"{what}: a layout without iters has the shape (); got shape ({_commas(shape)}) for "
            f"{owner}"
        )
    if same is False or dim < 0:
        raise LayoutError(
            f"{what}: the shape must hold as many elements as the layout; shape ({_commas(shape)}) "
            f"holds {wanted}, {owner} holds {held}"
        )
    if is_open or same is None:
        raise Undecided(
            f"{what}: does extent {shape[dim]} of shape ({_commas(shape)}) cut the iter "
            f"{it.extent}:{it.stride}@{it.axis} of {owner} evenly? The symbols leave it open; "
            f"write the extents as products, such as n = 8*k{namesakes(wanted, held)}."
        )
    raise LayoutError(
        f"{what}: extent {shape[dim]} must cut the iter {it.extent}:{it.stride}@{it.axis} evenly; "
        f"got shape ({_commas(shape)}) for {owner}; {_fitting(iters)}"
    )


def _fitting(iters: Iters) -> str:
    """Name the inner sizes at which the layout can be cut without splitting an iter."""
    sizes = [product(extents(iters[index:])) for index in range(1, len(iters))]
    return f"whole iters end at inner sizes {_commas(sizes)}" if sizes else "there is one iter"


def _commas(sizes: Sequence[object]) -> str:
    return ", ".join(map(str, sizes))


def align(anchor: Iters, follower: Iters, owner: object) -> Iters:
    """Cut the follower like the anchor and list its pieces in the anchor's canonical order.

    The anchor's canonical order is: thread iters first, then memory iters, each by descending
    stride (ties keep their order). The follower keeps its own strides, so both list the same
    digits of the shared dimension in the same order.
    """
    pieces, seps = group(follower, extents(anchor), owner, "align")
    return tuple(
        it for index in canonical_order(anchor) for it in pieces[seps[index] : seps[index + 1]]
    )


def canonical_order(iters: Iters, what: str = "align") -> tuple[int, ...]:
    """Return the positions of the iters: thread first, then memory, each by descending stride.

    Args:
        iters: of a shard.
        what: the operation, for messages.

    Raises:
        Undecided: two strides of one kind cannot be ordered.

    >>> canonical_order((Iter(2, 2), Iter(8, 4, "laneid"), Iter(2, 8)))
    (1, 2, 0)
    """
    threads = [index for index, it in enumerate(iters) if it.axis.thread]
    memory = [index for index, it in enumerate(iters) if it.axis.memory]
    return (*_descending(iters, threads, what), *_descending(iters, memory, what))


def _descending(iters: Iters, chosen: Sequence[int], what: str) -> list[int]:
    """Return the positions by descending stride; ties keep their order."""
    strides: list[Any] = [iters[index].stride for index in chosen]
    if is_int(*strides):
        return sorted(chosen, key=lambda index: -iters[index].stride)
    ordered: list[int] = []
    for index, stride in zip(chosen, strides, strict=True):
        place = len(ordered)
        while place and decide(
            less(iters[ordered[place - 1]].stride, stride),
            "{}: is stride {} below {}",
            "substitute the symbols",
            what,
            iters[ordered[place - 1]].stride,
            stride,
        ):
            place -= 1
        ordered.insert(place, index)
    return ordered


def reach(iters: Iters) -> dict[Axis, tuple[Size, Size]]:
    """Return per axis the lowest and the highest coordinate that the iters produce.

    >>> reach((Iter(8, 4), Iter(4, -1)))
    {m: (-3, 28)}
    """
    result: dict[Axis, tuple[Size, Size]] = {}
    for it in iters:
        low, high = result.get(it.axis, (0, 0))
        step = (it.extent - 1) * it.stride
        if less(step, 0):
            low = low + step
        else:
            high = high + step
        result[it.axis] = (low, high)
    return result
