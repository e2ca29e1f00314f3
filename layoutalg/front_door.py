"""The front door: what stands for a layout wherever one is asked for.

A layout stands for itself, a fragment for its layout, and text for the layout that it writes, in
any notation of :mod:`layoutalg.interop`. Text alone loads that package, which lies above most of
those that ask: ``tests/support/house.py`` names this edge.
"""

from __future__ import annotations

from typing import Any

from layoutalg.errors import LayoutError

LayoutLike = Any  # a layout, a fragment, or text in any notation


def as_layout(
    given: LayoutLike,
    what: str,
    shape: tuple[Any, ...] | None = None,
    bits: int | None = None,
) -> Any:
    """Return the layout that an argument stands for; anything else is left to the caller's check.

    Args:
        given: a layout, a fragment, or text.
        what: who asks for which argument, in the message.
        shape: logical extents that a text or a fragment must not contradict.
        bits: the width of an element that a text must not contradict.

    Raises:
        LayoutError: a text is no layout, or says other extents or another width.

    >>> from layoutalg import fragments
    >>> row = fragments.get("mma.m16n8k16.f16", "A")
    >>> as_layout("mma.m16n8k16.f16:A", "") == as_layout(row, "") == as_layout(row.layout, "")
    True
    >>> print(as_layout("((4,8),2):((2,16),1)", ""))
    S[(8,4,2):(16,2,1)]
    >>> as_layout("S[8:4@landid]", "align: anchor")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: align: anchor: parse: axis: no axis is named 'landid'; did you \
mean laneid? (Axis.register makes a new one)
      S[8:4@landid]
            ^
    """
    if not isinstance(given, str):
        _check_said(getattr(given, "tile", None), shape, given, what)
        return getattr(given, "layout", given)
    from layoutalg.interop import registry

    try:
        found = registry.read(given, bits=bits)
    except LayoutError as error:
        raise type(error)(f"{what}: {error}") from None
    _check_said(found.shape, shape, given, what)
    return found.layout


def _check_said(
    said: tuple[int, ...] | None, shape: tuple[Any, ...] | None, given: LayoutLike, what: str
) -> None:
    """Refuse a tile of as many dimensions as the shape, and of other extents."""
    if isinstance(said, tuple) and shape is not None and len(said) == len(shape):
        numbers = [isinstance(extent, int) for extent in shape]
        if all(numbers) and said != tuple(shape):
            raise LayoutError(
                f"{what}: the shape is {shape}; the layout is of a tile {said}: {given}"
            )


def other_notation(text: str) -> str:
    """Return the name of the foreign notation that reads the text as a layout, or "".

    >>> [other_notation(text) for text in ("((4,8),2):((2,16),1)", "Sw<3,3,3> o 0 o 8:1", "S[8")]
    ['cute', 'cute', '']
    """
    from layoutalg.interop import registry

    if registry.notation_of(text) != "text":
        for unit in (None, "elements"):  # which a swizzle of CuTe may leave unsaid
            try:
                return registry.read(text, unit=unit).notation
            except LayoutError:
                continue
    return ""
