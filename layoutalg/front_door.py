"""The front door: what stands for a layout wherever one is asked for.

A layout stands for itself, a fragment for its layout, and text for the layout that it writes, in
any notation of :mod:`layoutalg.interop`. Text alone loads that package, which lies above most of
those that ask: ``tests/test_house.py`` names this edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from layoutalg.errors import LayoutError

LayoutLike = Any  # a layout, a fragment, or text in any notation


def as_layout(given: LayoutLike) -> Any:
    """Return the layout that an argument stands for; anything else is left to the caller's check.

    Raises:
        LayoutError: a text is no layout.

    >>> from layoutalg import fragments
    >>> fragment = fragments.get("mma.m16n8k16.f16", "A")
    >>> as_layout("mma.m16n8k16.f16:A") == as_layout(fragment) == as_layout(fragment.layout)
    True
    >>> print(as_layout("((4,8),2):((2,16),1)"))
    S[(8,4,2):(16,2,1)]
    """
    if not isinstance(given, str):
        return getattr(given, "layout", given)
    from layoutalg.interop import registry

    return registry.read(given).layout


def with_shape(given: LayoutLike, shape: Sequence[Any] | None, what: str) -> tuple[Any, Any]:
    """Return a layout and its logical shape; a fragment is tiled to a shape of its own.

    Args:
        given: as for :func:`as_layout`.
        shape: the logical extents; may be left out of a fragment, and where a text says them.
        what: asks, in the message.

    Raises:
        LayoutError: a text is no layout, or no shape is known.

    >>> layout, shape = with_shape("mma.m16n8k16.f16:D", None, "doc")
    >>> print(layout, shape)
    S[(2,8,4,2):(2,4@laneid,1@laneid,1)] (16, 8)
    >>> with_shape("S[8:1]", None, "lane_map")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: lane_map: give the shape of S[8:1], such as (16, 8)
    """
    if isinstance(given, str):
        from layoutalg.interop import registry

        found = registry.read(given, shape=shape)
        layout, said = found.layout, found.shape
    else:
        layout, said = as_layout(given), getattr(given, "tile", None)
        if said is not None and shape is not None and tuple(shape) != said:
            layout = layout.tile_to(shape, said)
    if shape is None and said is None:
        raise LayoutError(f"{what}: give the shape of {layout}, such as (16, 8)")
    return layout, said if shape is None else shape
