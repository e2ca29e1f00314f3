"""Scene to matplotlib: collections for cells and strokes, one artist for all texts."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from io import BytesIO
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import text_to_path
from matplotlib.transforms import Affine2D, Bbox

from layoutalg.draw.scene.palette import PAPER
from layoutalg.draw.scene.scene import CORNER, SMALLEST_TEXT, Scene, Text
from layoutalg.draw.scene.svg import is_too_large, svg_text

_POINTS_PER_INCH = 72.0
_DPI = 200
_SHIFT = {"start": 0.0, "middle": -0.5, "end": -1.0}
# TrueType in PDF, text as text in matplotlib's own SVG, and nothing that a user's settings change.
_SETTINGS = {
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "pdf.compression": 6,
    "path.simplify": True,
    "path.snap": True,
    "agg.path.chunksize": 0,
    "lines.scale_dashes": True,
    "savefig.bbox": None,
    "savefig.facecolor": "auto",
}
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}


@lru_cache(maxsize=64)
def _font(size: float, bold: bool) -> FontProperties:
    return FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")


@lru_cache(maxsize=4096)
def _outline(string: str, bold: bool) -> Path:
    """Return the glyphs of a string at 1 point, baseline at the origin."""
    vertices, codes = text_to_path.get_text_path(_font(1.0, bold), string, ismath=False)
    return Path(np.asarray(vertices) * (1.0 / text_to_path.FONT_SCALE), codes)


@lru_cache(maxsize=4096)
def _advance(string: str, bold: bool) -> float:
    """Return the width of a string at 1 point."""
    width, _, _ = text_to_path.get_text_width_height_descent(string, _font(1.0, bold), False)
    return float(width)


class Labels(Artist):
    """All texts of a scene: drawn as text where the page can hold text, stamped on pixels.

    A ``matplotlib.text.Text`` per cell would be nearly all the cost of a picture.
    """

    def __init__(self, texts: tuple[Text, ...], page: tuple[float, float], axes: Axes) -> None:
        super().__init__()
        self._texts = texts
        self._page = page
        self._axes = axes

    def get_window_extent(self, renderer: Any = None) -> Bbox:
        """Return the page, in pixels."""
        return Bbox([(0.0, 0.0), self._page]).transformed(self._axes.transData)

    def draw(self, renderer: Any) -> None:
        """Draw, except what would be smaller than 5 points on the page."""
        transform = self._axes.transData
        (x0, _), (x1, _) = transform.transform([(0.0, 0.0), (1.0, 0.0)])
        pixel = renderer.points_to_pixels(1.0)
        scale = (x1 - x0) / pixel
        groups: dict[tuple[Any, ...], list[tuple[float, float]]] = defaultdict(list)
        for text in self._texts:
            if text.size * scale >= SMALLEST_TEXT - 1e-6:
                style = (text.string, text.size, text.anchor, text.bold, text.color, text.angle)
                groups[style].append((text.x, text.y))
        gc = renderer.new_gc()
        for (string, size, anchor, bold, color, angle), places in groups.items():
            at = transform.transform(places)
            size = size * scale
            shift = _SHIFT[anchor] * _advance(string, bold) * size * pixel
            turn = np.deg2rad(angle)
            at = at + np.array([np.cos(turn), np.sin(turn)]) * shift
            gc.set_foreground(color)
            if isinstance(renderer, RendererAgg):
                gc.set_linewidth(0)
                stamp = Affine2D().scale(size * pixel).rotate(turn)
                renderer.draw_markers(
                    gc, _outline(string, bold), stamp, Path(at), Affine2D(), to_rgb(color)
                )
                continue
            height = renderer.get_canvas_width_height()[1]
            for x, y in at.tolist():
                down = height - y if renderer.flipy() else y
                renderer.draw_text(gc, x, down, string, _font(size, bold), angle)
        gc.restore()
        self.stale = False


class SceneFigure(Figure):
    """A figure of one scene: SVG in a notebook, or PNG where it is large; TrueType in a PDF."""

    def __init__(self, scene: Scene) -> None:
        size = scene.width / _POINTS_PER_INCH, scene.height / _POINTS_PER_INCH
        super().__init__(figsize=size, dpi=_DPI, facecolor=PAPER)
        FigureCanvasAgg(self)
        self.scene = scene
        axes = self.add_axes((0.0, 0.0, 1.0, 1.0))
        draw_on(axes, scene)

    def savefig(self, fname: Any, **kwargs: Any) -> None:
        """Save with TrueType fonts, whatever ``rcParams`` say."""
        with mpl.rc_context(_SETTINGS):
            super().savefig(fname, **kwargs)

    def _repr_svg_(self) -> str | None:
        """Return the SVG with its tooltips, for notebooks; None where it is too large."""
        return None if is_too_large(self.scene) else svg_text(self.scene)

    def _repr_png_(self) -> bytes | None:
        """Return a PNG for notebooks, where the SVG is too large."""
        return rendered(self.scene, "png") if is_too_large(self.scene) else None


def draw_on(axes: Axes, scene: Scene) -> None:
    """Draw a scene on axes, as large as fits them with its proportions kept."""
    cells = [cell for panel in scene.panels for cell in panel.cells]
    strokes = [stroke for panel in scene.panels for stroke in panel.strokes]
    texts = tuple(text for panel in scene.panels for text in panel.texts)
    axes.set_axis_off()
    axes.set_xlim(0.0, scene.width)
    axes.set_ylim(scene.height, 0.0)
    axes.set_aspect("equal")
    box = axes.get_window_extent()
    points = _POINTS_PER_INCH / axes.figure.dpi
    scale = min(box.width * points / scene.width, box.height * points / scene.height)
    low = np.array([(cell.x, cell.y) for cell in cells]).reshape(-1, 2)
    high = low + np.array([(cell.width, cell.height) for cell in cells]).reshape(-1, 2)
    left, top, right, bottom = low[:, 0], low[:, 1], high[:, 0], high[:, 1]
    corners = ((left, top), (right, top), (right, bottom), (left, bottom))
    squares: Any = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    rgb = {color: to_rgb(color) for color in {cell.fill for cell in cells}}
    axes.add_collection(
        PolyCollection(
            squares,
            facecolors=[rgb[cell.fill] for cell in cells],
            antialiased=False,
            linewidths=0,
            zorder=1,
        ),
        autolim=False,
    )
    split = [i for i, cell in enumerate(cells) if cell.corner is not None]
    axes.add_collection(
        PolyCollection(
            squares[split][:, 2:3] + (squares[split][:, 1:] - squares[split][:, 2:3]) * CORNER,
            facecolors=[str(cells[i].corner) for i in split],
            linewidths=0,
            zorder=1.5,
        ),
        autolim=False,
    )
    styled = [(path, stroke) for stroke in strokes for path in stroke.paths]
    axes.add_collection(
        LineCollection(
            [path for path, _ in styled],
            linewidths=[stroke.width * scale for _, stroke in styled],
            colors=[stroke.color for _, stroke in styled],
            linestyles=[
                (0.0, tuple(length / stroke.width for length in stroke.dashes))
                if stroke.dashes
                else "solid"
                for _, stroke in styled
            ],
            capstyle="butt",
            zorder=2,
        ),
        autolim=False,
    )
    labels = Labels(texts, (scene.width, scene.height), axes)
    labels.set_zorder(3)
    axes.add_artist(labels)


def rendered(scene: Scene, kind: str) -> bytes:
    """Return the scene as a PNG or PDF file: no date, no version, the same bytes each time."""
    buffer = BytesIO()
    with mpl.rc_context(_SETTINGS):
        SceneFigure(scene).savefig(buffer, format=kind, dpi=_DPI, metadata=_METADATA[kind])
    return buffer.getvalue()
