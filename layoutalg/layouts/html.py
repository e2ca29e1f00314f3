"""How a value shows itself in a browser: the one edge from the layouts to the pictures.

Drawing comes after everything that it draws, so nothing here imports it at the top: a page is asked
for, and then :mod:`layoutalg.draw` is loaded. ``tests/test_house.py`` names this edge.
"""

from __future__ import annotations

from types import ModuleType


def drawing() -> ModuleType:
    """Return :mod:`layoutalg.draw`, loaded when it is first asked for.

    >>> drawing().__name__
    'layoutalg.draw'
    """
    from layoutalg import draw

    return draw


def framed(page: str, title: str) -> str:
    """Return a page as an isolated frame for a notebook.

    >>> framed("<p>", "a")[-9:]
    '</iframe>'
    """
    text: str = drawing().frame(page, title)
    return text
