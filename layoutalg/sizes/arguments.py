"""Checks of what a caller passes as a coordinate, a region or a permutation."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from layoutalg.errors import LayoutError
from layoutalg.sizes.size import Size, as_size, is_sequence, less


def as_coordinate(value: Any, what: str) -> Any:
    """Return a coordinate as an int, an integer array or an integer expression.

    Args:
        value: what was given.
        what: the operation and the coordinate, for messages.

    Raises:
        LayoutError: none of these.

    >>> as_coordinate(True, "apply: coordinate")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: apply: coordinate: must be an integer, not the bool True
    """
    if type(value) is int:
        return value
    if getattr(value, "ndim", 0):
        if value.dtype.kind not in "iu":
            raise LayoutError(f"{what}: an array must hold integers; got {value.dtype}")
        if value.dtype.kind == "u" and value.size and int(value.max()) >= 1 << 63:
            raise LayoutError(f"{what}: an array must fit in signed 64 bits; got {value.max()}")
        return value.astype("int64", copy=False)
    if not hasattr(value, "__index__") and not hasattr(value, "free_symbols"):
        raise LayoutError(
            f"{what}: must be an integer, an integer array or an integer expression; "
            f"got {value!r} ({type(value).__name__})"
        )
    return as_size(value, what)


def check_arrays(values: Sequence[Any], what: str) -> None:
    """Refuse arrays that do not broadcast together, or that stand beside symbols.

    Raises:
        LayoutError: they do not.

    >>> check_arrays([np.arange(3), np.arange(2)], "apply")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: apply: the arrays of coordinates must broadcast together; got \
the shapes (3,), (2,)
    """
    if any(hasattr(value, "free_symbols") for value in values):
        raise LayoutError(f"{what}: arrays and symbols cannot be mixed in one coordinate")
    try:
        np.broadcast_shapes(*(np.shape(value) for value in values))
    except ValueError:
        shapes = ", ".join(str(np.shape(value)) for value in values)
        raise LayoutError(
            f"{what}: the arrays of coordinates must broadcast together; got the shapes {shapes}"
        ) from None


def check_range(value: Any, extent: Size, what: str, owner: object) -> None:
    """Refuse an index outside ``0 .. extent - 1``; expressions pass unless they must be outside.

    Args:
        value: an int, an integer array or an expression.
        extent: how many indices there are.
        what: the operation and the kind of index, for the message; {} stands for the value.
        owner: the layout, for the message.

    Raises:
        LayoutError: the index is out of range.

    >>> check_range(8, 8, "apply: digit {}", "S[8:1]")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: apply: digit 8 must lie in 0..7 for S[8:1]
    """
    if type(value) is int and type(extent) is int:
        wrong: Any = not 0 <= value < extent
    elif getattr(value, "ndim", 0):
        if not value.size or type(extent) is not int:
            return
        low, high = int(value.min()), int(value.max())
        wrong = low < 0 or high >= extent
        value = high if high >= extent else low
    else:
        wrong = less(value, 0) or less(value, extent) is False
    if wrong:
        last: Any = extent
        raise LayoutError(f"{what.format(value)} must lie in 0..{last - 1} for {owner}")


def as_region(
    region: Sequence[tuple[Any, Any]], shape: Sequence[Size]
) -> tuple[tuple[Size, Size], ...]:
    """Return a region as (begin, end) per dimension, end excluded.

    Symbolic bounds are taken as in range where nothing speaks against it.

    Raises:
        LayoutError: not one pair of integers per dimension of the shape, or a range is empty or
            leaves its dimension.

    >>> as_region([(0, 4)], (8,))
    ((0, 4),)
    """
    pairs = tuple(region) if is_sequence(region) else ()
    if len(pairs) != len(shape):
        raise LayoutError(
            f"slice: give (begin, end) for each dimension of {tuple(shape)}; got {region!r}"
        )
    result = []
    for dim, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise LayoutError(f"slice: dimension {dim} needs (begin, end); got {pair!r}")
        begin, end = pair
        if type(begin) is int and type(end) is int:
            extent = shape[dim]
            if type(extent) is int and 0 <= begin < end <= extent:
                result.append((begin, end))
                continue
        else:
            begin = as_size(begin, f"slice: begin of dimension {dim}")
            end = as_size(end, f"slice: end of dimension {dim}")
        if less(begin, 0) or less(shape[dim], end):
            raise LayoutError(
                f"slice: the range {begin}:{end} of dimension {dim} must lie in 0:{shape[dim]}"
            )
        if less(begin, end) is False:
            raise LayoutError(f"slice: the range {begin}:{end} of dimension {dim} is empty")
        result.append((begin, end))
    return tuple(result)


def check_permutation(perm: Sequence[int], count: int, what: str) -> tuple[int, ...]:
    """Return a permutation of ``0 .. count - 1`` as ints; negative indices count from the end.

    Raises:
        LayoutError: no such permutation.

    >>> check_permutation((1, -2), 2, "permute_dims")
    (1, 0)
    """
    order = as_indices(perm)
    if order is not None:
        order = tuple(index + count if -count <= index < 0 else index for index in order)
    if order is None or sorted(order) != list(range(count)):
        raise LayoutError(f"{what}: needs a permutation of 0..{count - 1}; got {perm!r}")
    return order


def as_axes(axis: object, rank: int, what: str) -> tuple[int, ...]:
    """Return dimensions as NumPy names them: an int, several, or None for all, ascending.

    Negative numbers count from the end.

    Raises:
        LayoutError: none of these, one outside the rank, or one named twice.

    >>> as_axes(-1, 3, "reduced"), as_axes((2, 0), 3, "reduced"), as_axes(None, 3, "reduced")
    ((2,), (0, 2), (0, 1, 2))
    """
    if axis is None:
        return tuple(range(rank))
    several: Any = axis if isinstance(axis, tuple | list) else (axis,)
    named = None if bool in map(type, several) else as_indices(several)
    if not named or any(not -rank <= each < rank for each in named):
        raise LayoutError(
            f"{what}: axis must be a dimension {-rank}..{rank - 1}, a tuple of them, or None for "
            f"all; got {axis!r}"
        )
    found = sorted(each % rank for each in named)
    if len(set(found)) != len(found):
        raise LayoutError(f"{what}: axis names a dimension twice; got {axis!r}")
    return tuple(found)


def as_indices(values: Sequence[int]) -> tuple[int, ...] | None:
    """Return a sequence of indices as ints; None where it is none.

    >>> as_indices([0, 2]), as_indices("02"), as_indices([0, 2.0])
    ((0, 2), None, None)
    """
    try:
        return tuple(operator.index(value) for value in values)
    except TypeError:
        return None
