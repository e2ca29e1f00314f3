"""Scene to file: the suffix says what is written; a file is written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from layoutalg.draw.scene.scene import Scene
from layoutalg.draw.scene.svg import svg_text
from layoutalg.draw.scene.tikz import tikz_text
from layoutalg.errors import LayoutError
from layoutalg.files import write_whole

SUFFIXES = (".pdf", ".png", ".svg", ".tex")


def checked_path(
    path: str | os.PathLike[str], function: str, suffixes: Sequence[str] = SUFFIXES
) -> Path:
    """Return the path, if its suffix names a kind of file that can be written.

    Raises:
        LayoutError: it does not.

    >>> checked_path("a.gif", "lane_map")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: lane_map: the suffix of path says what is written; got '.gif' \
in 'a.gif'. These fit: .pdf, .png, .svg, .tex
    """
    checked = Path(path)
    if checked.suffix.lower() not in suffixes:
        raise LayoutError(
            f"{function}: the suffix of path says what is written; got {checked.suffix!r} in "
            f"{str(path)!r}. These fit: {', '.join(suffixes)}"
        )
    return checked


def picture_bytes(scene: Scene, suffix: str) -> bytes:
    """Return the content of a file with this suffix: the same bytes each time."""
    if suffix == ".svg":
        return svg_text(scene).encode()
    if suffix == ".tex":
        return tikz_text(scene).encode()
    from layoutalg.draw.scene.mpl import rendered

    return rendered(scene, suffix.lstrip("."))


def write(scene: Scene, path: Path) -> None:
    """Write a scene to a file, whole or not at all."""
    write_whole(path, picture_bytes(scene, path.suffix.lower()))


def checked_page(path: str | os.PathLike[str]) -> Path:
    """Return the path of a page.

    Raises:
        LayoutError: the suffix is not ``.html``.
    """
    checked = Path(path)
    if checked.suffix.lower() != ".html":
        raise LayoutError(f"to_html: the suffix of path must be .html; got {str(path)!r}")
    return checked
