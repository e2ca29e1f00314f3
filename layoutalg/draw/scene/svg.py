"""Scene to SVG, written directly: real text, tooltips, ``data-…`` attributes, the same bytes."""

from __future__ import annotations

from functools import lru_cache
from html import escape
from itertools import groupby

from layoutalg.draw.scene.palette import PAPER
from layoutalg.draw.scene.scene import CORNER, Cell, Panel, Scene, Stroke, Text, number
from layoutalg.errors import LayoutError
from layoutalg.sizes.budget import DOCUMENT

_FAMILY = "Arial, Helvetica, 'DejaVu Sans', sans-serif"

_SAMPLE = 512  # cells that tell how long the others are


@lru_cache(maxsize=4096)
def _tenth(value: float) -> str:
    """Write a coordinate of a text, to a tenth of a point."""
    return number(round(value, 1))


@lru_cache(maxsize=4096)
def _attribute(pair: tuple[str, str]) -> str:
    key, value = pair
    return f' data-{key}="{escape(value)}"'


def _cell(cell: Cell, x0: float, y0: float) -> str:
    """Write a cell in a frame whose unit is the cell: a grid has its indices as coordinates."""
    x, y = number((cell.x - x0) / cell.width), number((cell.y - y0) / cell.height)
    data = "".join(map(_attribute, cell.data))
    title = f"<title>{escape(cell.title, quote=False)}</title>" if cell.title else ""
    half = ""
    if cell.corner is not None:
        rest = number(1 - CORNER)
        half = (
            f'<path d="M{x} {y}m1 {rest}v{number(CORNER)}h-{number(CORNER)}z" '
            f'fill="{cell.corner}" pointer-events="none"/>'
        )
    return f'<path d="M{x} {y}h1v1h-1z"{data}>{title}</path>{half}'


def _cells(cells: tuple[Cell, ...]) -> list[str]:
    """Write cells, those of one size and those of one colour together: the file stays short."""
    sizes: dict[tuple[float, float], dict[str, list[Cell]]] = {}
    for cell in cells:
        sizes.setdefault((cell.width, cell.height), {}).setdefault(cell.fill, []).append(cell)
    out = []
    for (width, height), fills in sizes.items():
        first = next(iter(fills.values()))[0]
        x0, y0 = first.x, first.y
        scale = f"translate({number(x0)} {number(y0)}) scale({number(width)} {number(height)})"
        out.append(f'<g transform="{scale}" shape-rendering="crispEdges">')
        for fill, members in fills.items():
            row = "".join([_cell(cell, x0, y0) for cell in members])
            out.append(f'<g fill="{fill}">{row}</g>')
        out.append("</g>")
    return out


def _polyline(points: list[tuple[float, float]]) -> str:
    """Write the points as path commands: a level step is ``H``, an upright one ``V``.

    >>> _polyline([(0, 0), (2.5, 0), (2.5, 4), (0, 1)])
    'M0 0H2.5V4L0 1'
    """
    xs = [number(x) for x, _ in points]
    ys = [number(y) for _, y in points]
    out = [f"M{xs[0]} {ys[0]}"]
    for i in range(1, len(points)):
        if ys[i] == ys[i - 1]:
            out.append(f"H{xs[i]}")
        elif xs[i] == xs[i - 1]:
            out.append(f"V{ys[i]}")
        else:
            out.append(f"L{xs[i]} {ys[i]}")
    return "".join(out)


def _stroke(stroke: Stroke, x0: float, y0: float) -> str:
    n = number
    path = "".join([_polyline([(x - x0, y - y0) for x, y in points]) for points in stroke.paths])
    dashes = ""
    if stroke.dashes is not None:
        dashes = f' stroke-dasharray="{n(stroke.dashes[0])} {n(stroke.dashes[1])}"'
    role = f' data-role="{stroke.role}"' if stroke.role else ""
    return (
        f'<path d="{path}" stroke="{stroke.color}" stroke-width="{n(stroke.width)}"{dashes}{role}/>'
    )


def _texts(texts: list[Text], x0: float, y0: float) -> list[str]:
    """Write texts of one style; those on one line share a group that moves down to it."""
    level: dict[str, list[Text]] = {}
    out = []
    for text in texts:
        if text.angle:
            x, y = _tenth(text.x - x0), _tenth(text.y - y0)
            string = escape(text.string, quote=False)
            out.append(
                f'<text x="{x}" y="{y}" transform="rotate({-text.angle} {x} {y})">{string}</text>'
            )
        else:
            level.setdefault(_tenth(text.y - y0), []).append(text)
    for y, row in level.items():
        words = [
            f'<text x="{_tenth(text.x - x0)}">{escape(text.string, quote=False)}</text>'
            for text in row
        ]
        out.append(f'<g transform="translate(0 {y})">{"".join(words)}</g>')
    return out


def _panel(panel: Panel) -> list[str]:
    """Write a panel; beside the cells, its first cell is the origin: the numbers stay short."""
    x0, y0 = (panel.cells[0].x, panel.cells[0].y) if panel.cells else (0.0, 0.0)
    move = f' transform="translate({number(x0)} {number(y0)})"' if panel.cells else ""
    out = [f'<g data-panel="{escape(panel.name)}">', *_cells(panel.cells), f"<g{move}>"]
    if panel.strokes:
        out.append('<g fill="none" pointer-events="none">')
        out += [_stroke(stroke, x0, y0) for stroke in panel.strokes]
        out.append("</g>")
    styled = groupby(panel.texts, key=lambda t: (t.size, t.anchor, t.bold, t.color))
    for (size, anchor, bold, color), texts in styled:
        weight = ' font-weight="bold"' if bold else ""
        out.append(
            f'<g font-size="{number(size)}" text-anchor="{anchor}" fill="{color}"{weight} '
            'pointer-events="none">'
        )
        out += _texts(list(texts), x0, y0)
        out.append("</g>")
    out.append("</g></g>")
    return out


def is_too_large(scene: Scene) -> bool:
    """Return whether a scene has more cells than a document holds.

    >>> is_too_large(Scene(10, 10, "none", ()))
    False
    """
    return sum(len(panel.cells) for panel in scene.panels) > DOCUMENT


def _check(scene: Scene) -> None:
    """Refuse a document that no viewer opens, and say how large it would be."""
    if not is_too_large(scene):
        return
    count = sum(len(panel.cells) for panel in scene.panels)
    sample = max((panel.cells for panel in scene.panels), key=len)[:_SAMPLE]
    long = sum(len(_cell(cell, 0.0, 0.0)) for cell in sample) * count / len(sample)
    raise LayoutError(
        f"svg: a document holds at most {DOCUMENT} cells, each with its tooltip; got {count}, "
        f"about {long / 1e6:.0f} MB, which browsers do not open. A path that ends in .png or .pdf "
        "fits, or a slice of the layout"
    )


def svg_text(scene: Scene) -> str:
    """Return the scene as an SVG document.

    Raises:
        LayoutError: it has more than ``DOCUMENT`` cells.

    >>> from layoutalg.draw.scene.scene import CORNER, Cell, Panel, Scene
    >>> page = Scene(10, 10, "one", (Panel("A", (Cell(0, 0, 5, 5, "#fff", "T0"),)),))
    >>> print(svg_text(page).splitlines()[4])
    <g fill="#fff"><path d="M0 0h1v1h-1z"><title>T0</title></path></g>

    Source: Scalable Vector Graphics 1.1, sections 8 (path), 10 (text) and 5.4 (title).
    """
    _check(scene)
    width, height = number(scene.width), number(scene.height)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}pt" height="{height}pt" '
        f'viewBox="0 0 {width} {height}" font-family="{_FAMILY}"><title>'
        f"{escape(scene.title, quote=False)}</title>",
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
    ]
    for panel in scene.panels:
        out += _panel(panel)
    out.append("</svg>\n")
    return "\n".join(out)
