"""How a value shows itself in a browser: the one edge from the layouts to the pictures.

Drawing comes after everything that it draws, so nothing here imports it at the top: a page is asked
for, and then :mod:`layoutalg.draw` is loaded. ``tests/test_house.py`` names this edge.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import ModuleType

from layoutalg.errors import LayoutError


def drawing() -> ModuleType:
    """Return :mod:`layoutalg.draw`, loaded when it is first asked for.

    >>> drawing().__name__
    'layoutalg.draw'
    """
    from layoutalg import draw

    return draw


class Explorable:
    """A layout that shows itself as a page: ``to_html`` to keep, ``_repr_html_`` in a notebook.

    >>> from layoutalg import S, TileLayout
    >>> isinstance(TileLayout(S[8:1]), Explorable)
    True
    """

    __slots__ = ()

    def to_html(
        self,
        shape: Sequence[int] | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        lane: int = 5,
        title: str | None = None,
        bits: int | None = None,
    ) -> str:
        """Return one self-contained HTML file, at most 60 kB, in which the layout is explored.

        Pointing at a cell shows the element, all its owners, their registers and addresses; another
        layout can be typed. Arguments as :func:`layoutalg.draw.layout_html`.

        Raises:
            LayoutError: the shape does not fit, or there are more than 65536 elements.
            Undecided: a size is symbolic.

        >>> from layoutalg import S, TileLayout, laneid
        >>> D = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
        >>> D.to_html((16, 8)).startswith("<!DOCTYPE html>")
        True
        """
        text: str = drawing().layout_html(self, shape, path=path, lane=lane, title=title, bits=bits)
        return text

    def _repr_html_(self) -> str | None:
        """Return the page in a frame; None where it cannot be drawn: symbols, or too large."""
        try:
            return framed(self.to_html(), str(self))
        except LayoutError:
            return None


def framed(page: str, title: str) -> str:
    """Return a page as an isolated frame for a notebook.

    >>> framed("<p>", "a")[-9:]
    '</iframe>'
    """
    text: str = drawing().frame(page, title)
    return text
