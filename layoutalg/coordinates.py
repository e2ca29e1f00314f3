"""What a caller may pass as a coordinate or as a region, checked once, at the door."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from layoutalg.errors import LayoutError
from layoutalg.size import Size, as_size, less


def as_coordinate(value: Any, what: str) -> Any:
    """Return a coordinate as an int, an integer array or an integer expression.

    Raises:
        LayoutError: none of these.

    >>> as_coordinate(True, "apply")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: apply: coordinate: must be an integer, not the bool True
    """
    if type(value) is int:
        return value
    if getattr(value, "ndim", 0):
        if value.dtype.kind not in "iu":
            raise LayoutError(
                f"{what}: an array of coordinates must hold integers; got {value.dtype}"
            )
        return value.astype("int64", copy=False)
    return as_size(value, f"{what}: coordinate")


def check_range(value: Any, extent: Size, what: str, owner: object) -> None:
    """Refuse an index outside ``0 .. extent - 1``; expressions pass unless they must be outside.

    Raises:
        LayoutError: the index is out of range.

    >>> check_range(8, 8, "apply: digit", "S[8:1]")
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
        last = extent - 1
        raise LayoutError(f"{what} {value} must lie in 0..{last} for {owner}")


def as_region(
    region: Sequence[tuple[Any, Any]], shape: Sequence[Size]
) -> tuple[tuple[Size, Size], ...]:
    """Return a region as (begin, end) per dimension.

    Raises:
        LayoutError: not one pair of integers per dimension of the shape.

    >>> as_region([(0, 4)], (8,))
    ((0, 4),)
    """
    pairs = tuple(region)
    if len(pairs) != len(shape):
        raise LayoutError(
            f"slice: give (begin, end) for each dimension of {tuple(shape)}; got {len(pairs)} ranges"
        )
    result = []
    for dim, pair in enumerate(pairs):
        if isinstance(pair, (str, bytes)) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise LayoutError(f"slice: dimension {dim} needs (begin, end); got {pair!r}")
        begin, end = (as_size(value, f"slice: bound of dimension {dim}") for value in pair)
        result.append((begin, end))
    return tuple(result)


def check_permutation(perm: Sequence[int], count: int, what: str) -> tuple[int, ...]:
    """Return a permutation of ``0 .. count - 1`` as ints; negative indices count from the end.

    Raises:
        LayoutError: no such permutation.

    >>> check_permutation((1, -2), 2, "permute_dims")
    (1, 0)
    """
    try:
        order = tuple(operator.index(index) for index in perm)
    except TypeError:
        raise LayoutError(f"{what}: needs a permutation of 0..{count - 1}; got {perm!r}") from None
    order = tuple(index + count if -count <= index < 0 else index for index in order)
    if sorted(order) != list(range(count)):
        raise LayoutError(f"{what}: needs a permutation of 0..{count - 1}; got {tuple(perm)}")
    return order
