"""The registry of notations: read a layout from text in any of them, write it in another.

A notation is one file of this folder that calls :func:`register`; :func:`read`, :func:`write`, the
command line and the round-trip tests know it from then on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from layoutalg import fragments
from layoutalg.errors import LayoutError, did_you_mean
from layoutalg.fragments import Fragment
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.layouts.swizzle import SwizzleLayout
from layoutalg.layouts.tile_layout import Layout, TileLayout
from layoutalg.sizes.size import as_shape

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Options:
    """What a notation may leave unsaid: a logical shape, what a swizzle counts, bits per element.

    ``unit`` is "elements" or "bytes".
    """

    shape: Shape | None = None
    unit: str | None = None
    bits: int | None = None


@dataclass(frozen=True)
class Notation:
    """How layouts are written somewhere.

    ``reader`` gives the layout and the logical shape where the text says it; ``looks`` matches the
    start of a text that can be no other notation, None where that cannot be told; a notation with
    ``over_shape`` is written over a logical shape.
    """

    name: str
    example: str
    reader: Callable[[str, Options], tuple[Layout | SwizzleLayout, Shape | None]]
    writer: Callable[[Layout, Options], str]
    looks: str | None = None
    over_shape: bool = False


@dataclass(frozen=True)
class Reading:
    """A layout that was read, its notation, and its shape and fragment where the text names them.

    The notation of ``mma.m16n8k16.f16:A`` is "fragment".
    """

    layout: Layout
    notation: str
    shape: Shape | None = None
    fragment: Fragment | None = None


NOTATIONS: dict[str, Notation] = {}  # by name; each file of this folder adds its own


def register(notation: Notation) -> None:
    """Add a notation.

    Raises:
        LayoutError: the name is taken.

    >>> register(NOTATIONS["json"])
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: register: the notation 'json' is registered already
    """
    if notation.name in NOTATIONS:
        raise LayoutError(f"register: the notation {notation.name!r} is registered already")
    NOTATIONS[notation.name] = notation


def notation_of(text: str) -> str:
    """Say in which notation a text is, by how it begins; ``tv`` looks like ``cute``.

    >>> [notation_of(t) for t in ("S[8:1]", "(4,8):(8,1)", '{"layoutalg": 1}', "T.S[8:1]")]
    ['text', 'cute', 'json', 'tvm']
    >>> notation_of("mma.m16n8k16.f16:A"), notation_of("mma.m16n8k16.f61:A")
    ('fragment', 'fragment')
    """
    start = text.strip()
    name = start.partition(":")[0]
    if name in fragments.names():
        return "fragment"
    fitting = (n for n in NOTATIONS.values() if n.looks and re.match(n.looks, start, re.DOTALL))
    found = next((notation.name for notation in fitting), "text")
    misspelt = found == "text" and re.fullmatch(r"[\w.]+", name)
    return "fragment" if misspelt and did_you_mean(name, fragments.names()) else found


def read(
    text: str,
    notation: str | None = None,
    shape: Sequence[int] | None = None,
    unit: str | None = None,
    bits: int | None = None,
) -> Reading:
    """Read a layout in any notation, or a fragment by its name.

    Args:
        text: the layout, or ``instruction:operand``.
        notation: one of :data:`NOTATIONS`; guessed unless given.
        shape: logical extents: ``tv`` needs them, and ``triton`` where its bases do not say them; a
            fragment is tiled to them.
        unit: what a swizzle of ``cute`` counts, "elements" or "bytes".
        bits: of an element, for the unit "bytes".

    Raises:
        LayoutError: the notation is unknown, or the text is no layout in it.

    >>> found = read("((4,8),2):((2,16),1)")
    >>> print(found.layout, found.notation, found.shape)
    S[(8,4,2):(16,2,1)] cute (32, 2)
    >>> print(read("((4,8),(2,2)):((32,1),(16,8))", "tv", (16, 8)).layout)
    S[(2,8,4,2):(2,4@laneid,1@laneid,1)]
    >>> print(read("mma.m16n8k16.f16:D").layout)
    S[(2,8,4,2):(2,4@laneid,1@laneid,1)]
    """
    if not isinstance(text, str):
        raise LayoutError(f"read: needs text; got {text!r}")
    chosen = notation_of(text) if notation is None else notation
    options = Options(None if shape is None else tuple(shape), unit, bits)
    if chosen == "fragment":
        return _fragment(text, options.shape)
    layout, said = _known(chosen, "read").reader(text, options)
    if isinstance(layout, SwizzleLayout):
        raise LayoutError(
            f"read: a bare swizzle is no layout of a tile: compose it with one; got {layout}"
        )
    return Reading(layout, chosen, said)


def _fragment(text: str, shape: Shape | None) -> Reading:
    name, _, operand = text.strip().partition(":")
    if not operand:
        have = ", ".join(f"{name}:{each}" for each in fragments.operands(name))
        raise LayoutError(f"layout: name an operand of {name}: {have}")
    return _tiled(fragments.get(name, operand), shape)


def _tiled(row: Fragment, shape: Sequence[Any] | None) -> Reading:
    if shape is None or tuple(shape) == row.tile:
        return Reading(row.layout, "fragment", row.tile, row)
    return Reading(row.layout.tile_to(shape, row.tile), "fragment", tuple(shape))


def reading(given: LayoutLike, shape: Sequence[Any] | None, what: str) -> Reading:
    """Return a layout and its logical shape, where one is given or said.

    Args:
        given: a layout, text, or a fragment, which is tiled to another shape than its own.
        shape: the logical extents, if they are given.
        what: who asks, in a message.

    Raises:
        LayoutError: a text is no layout.

    >>> reading(fragments.get("mma.m16n8k16.f16", "D"), None, "doc").shape
    (16, 8)
    """
    if isinstance(given, str):
        return read(given, shape=None if shape is None else as_shape(shape, what))
    if isinstance(given, Fragment):
        return _tiled(given, None if shape is None else as_shape(shape, what))
    return Reading(given, "", shape)  # type: ignore[arg-type]  # whoever asks checks both


def with_shape(given: LayoutLike, shape: Sequence[Any] | None, what: str) -> tuple[Any, Any]:
    """Return a layout and its logical shape, as :func:`reading` does.

    Raises:
        LayoutError: a text is no layout, or no shape is known.

    >>> layout, shape = with_shape("mma.m16n8k16.f16:D", None, "doc")
    >>> print(layout, shape)
    S[(2,8,4,2):(2,4@laneid,1@laneid,1)] (16, 8)
    >>> with_shape("S[8:1]", None, "lane_map")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: lane_map: give the shape of S[8:1], such as (16, 8)
    """
    found = reading(given, shape, what)
    said = found.shape if shape is None else shape
    if said is None:
        raise LayoutError(f"{what}: give the shape of {found.layout}, such as (16, 8)")
    return found.layout, said


def write(
    layout: LayoutLike,
    notation: str,
    shape: Sequence[int] | None = None,
    unit: str = "elements",
    bits: int | None = None,
) -> str:
    """Write a layout in a notation; :func:`read` gives the same map back.

    Args:
        layout: a layout, a fragment, or text.
        notation: one of :data:`NOTATIONS`.
        shape: logical extents, needed for ``cute``, ``tv`` and ``triton``.
        unit: what a swizzle of ``cute`` is to count.
        bits: of an element, for the unit "bytes".

    Raises:
        LayoutError: the notation is unknown, needs a shape, or cannot say this layout.

    >>> write("mma.m16n8k16.f16:D", "tv", (16, 8))
    '((4,8),(2,2)):((32,1),(16,8))'
    >>> write("S[(8,4):(4@laneid,1@laneid)]", "triton")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: write: triton says a layout over its shape: give the shape of \
S[(8,4):(4@laneid,1@laneid)]
    """
    chosen, layout = _known(notation, "write"), as_layout(layout, "write")
    if chosen.over_shape and shape is None:
        raise LayoutError(
            f"write: {notation} says a layout over its shape: give the shape of {layout}"
        )
    return chosen.writer(layout, Options(None if shape is None else tuple(shape), unit, bits))


def plain(layout: Layout, notation: str) -> TileLayout:
    """Return a layout that must not be swizzled, for a notation without XOR."""
    if not isinstance(layout, TileLayout):
        raise LayoutError(f"write: {notation} cannot say a swizzle; got {layout}")
    return layout


def _known(notation: str, function: str) -> Notation:
    if notation not in NOTATIONS:
        raise LayoutError(
            f"{function}: the notation is one of {', '.join(NOTATIONS)}; got {notation!r}"
        )
    return NOTATIONS[notation]
