"""A picture: one function that lays out a scene, and what ``@picture`` makes of it."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, cast, overload

from layoutalg.draw.scene.output import checked_path, write
from layoutalg.draw.scene.page import PAGE
from layoutalg.draw.scene.scene import Scene
from layoutalg.draw.scene.svg import svg_text
from layoutalg.errors import LayoutError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
File = str | os.PathLike[str]
_WIDTH = "    width: of the page"
_KEYWORDS = """\
    path: file to write, whose suffix says how: ``.svg``, ``.tex``, ``.png`` or ``.pdf``.
    ax: axes to draw on, instead of a figure of its own.
"""
_PATH = inspect.Parameter("path", inspect.Parameter.KEYWORD_ONLY, default=None)
_AX = inspect.Parameter("ax", inspect.Parameter.KEYWORD_ONLY, default=None)


class Picture(Protocol[P]):
    """A drawing function: a call returns a figure, ``scene`` the same as data, ``svg`` as text."""

    __name__: str

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Figure: ...
    @overload
    def __call__(self, *args: Any, path: File | None, **kwargs: Any) -> Figure: ...
    @overload
    def __call__(self, *args: Any, ax: Axes | None, **kwargs: Any) -> Figure: ...

    def scene(self, *args: P.args, **kwargs: P.kwargs) -> Scene:
        """Return the picture as data."""

    def svg(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the picture as an SVG document; matplotlib is not loaded."""


def picture(layout: Callable[P, Scene]) -> Picture[P]:
    """Make a picture of a function that returns its scene.

    The picture takes two more keywords: ``path``, a file to write (``.svg``, ``.tex``, ``.png`` or
    ``.pdf``), and ``ax``, matplotlib axes to draw on in place of a figure of its own; ``width`` is
    then that of the axes unless given.

    >>> from layoutalg import S, TileLayout, draw, laneid
    >>> L = TileLayout(S[(8, 4) : (4 @ laneid, 1 @ laneid)])
    >>> draw.lane_map(L, (8, 4)).scene == draw.lane_map.scene(L, (8, 4))
    True
    >>> 'data-lane="5"' in draw.lane_map.svg(L, (8, 4))
    True
    """
    name = layout.__name__

    @wraps(layout)
    def drawn(
        *args: Any,
        path: File | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Figure:
        from layoutalg.draw.scene.mpl import SceneFigure, draw_on

        file = None if path is None else checked_path(path, name)
        if ax is not None and not hasattr(ax, "get_window_extent"):
            raise LayoutError(f"draw: ax is the axes of a figure, or None; got {ax!r}")
        if ax is not None and kwargs.get("width") is None:
            kwargs["width"] = float(ax.get_window_extent().width / ax.figure.dpi)
        found = scene(*args, **kwargs)
        if file is not None:
            write(found, file)
        if ax is None:
            return SceneFigure(found)
        draw_on(ax, found)
        return cast("Figure", ax.get_figure(root=True))

    @wraps(layout)
    def scene(*args: Any, **kwargs: Any) -> Scene:
        if kwargs.get("width", PAGE) is None:
            del kwargs["width"]
        if "width" in kwargs:
            checked_width(kwargs["width"])
        return layout(*args, **kwargs)

    @wraps(layout)
    def svg(*args: Any, **kwargs: Any) -> str:
        return svg_text(scene(*args, **kwargs))

    signature = inspect.signature(layout)
    parameters = [*signature.parameters.values(), _PATH, _AX]
    signature = signature.replace(parameters=parameters, return_annotation="Figure")
    drawn.__doc__ = inspect.cleandoc(layout.__doc__ or "").replace(_WIDTH, _KEYWORDS + _WIDTH)
    vars(drawn).update(scene=scene, svg=svg, __signature__=signature)
    return cast("Picture[P]", drawn)


def checked_width(width: object) -> float:
    """Return the width of a page in inches.

    Raises:
        LayoutError: it is no positive, finite number.

    >>> checked_width("7")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: draw: width is that of the page in inches, such as 7.0; got '7'
    """
    if isinstance(width, int | float) and not isinstance(width, bool) and 0 < width < math.inf:
        return float(width)
    raise LayoutError(f"draw: width is that of the page in inches, such as {PAGE}; got {width!r}")
