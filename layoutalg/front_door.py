"""The front door: what stands for a layout wherever one is asked for.

A layout stands for itself, a fragment for its layout, and text for the layout that it writes, in
any notation of :mod:`layoutalg.interop`. Text alone loads that package, which lies above most of
those that ask: ``tests/support/house.py`` names this edge.
"""

from __future__ import annotations

from typing import Any

from layoutalg.errors import LayoutError

LayoutLike = Any  # a layout, a fragment, or text in any notation


def as_layout(given: LayoutLike, what: str) -> Any:
    """Return the layout that an argument stands for; anything else is left to the caller's check.

    Args:
        given: a layout, a fragment, or text.
        what: who asks for which argument, in the message.

    Raises:
        LayoutError: a text is no layout.

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
        return getattr(given, "layout", given)
    from layoutalg.interop import registry

    try:
        return registry.read(given).layout
    except LayoutError as error:
        raise type(error)(f"{what}: {error}") from None


def other_notation(text: str) -> str:
    """Return the notation, other than this package's own, in which a text is a layout; else "".

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
