"""Scene to TikZ: a ``tikzpicture`` for a document that loads it, in its own sans-serif type."""

from __future__ import annotations

from itertools import groupby

from layoutalg.draw.scene.scene import CORNER, Cell, Panel, Scene, Stroke, Text, number

_ANCHOR = {"start": "base west", "middle": "base", "end": "base east"}
_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "%": r"\%",
        "_": r"\_",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"$<$",
        ">": r"$>$",
        "|": r"$|$",
        '"': "''",
        "\u00d7": r"$\times$",
        "\u00b7": r"$\cdot$",
        "\u2192": r"$\to$",
        "\u2212": r"$-$",
        "\u2026": r"\dots{}",
        "\n": " ",
        "\r": " ",
    }
)


def _at(x: float, y: float) -> str:
    return f"({number(x)},{number(y)})"


def _color(value: str) -> str:
    """Name a colour by its value: the same in every picture of a document."""
    return f"layoutalg{value.lstrip('#').lower()}"


def escaped(string: str) -> str:
    r"""Return a string as LaTeX sets it.

    >>> print(escaped("S[8:1] + 2_m & 50%"))
    S[8:1] + 2\_m \& 50\%
    """
    return string.translate(_ESCAPES)


def _fills(cells: tuple[Cell, ...]) -> list[str]:
    """Fill cells, those of one colour together, neighbours in a row as one rectangle."""
    boxes: dict[str, list[list[float]]] = {}
    for cell in cells:
        same = boxes.setdefault(cell.fill, [])
        right, low = cell.x + cell.width, cell.y + cell.height
        if same and same[-1][1:] == [cell.y, cell.x, low]:
            same[-1][2] = right
        else:
            same.append([cell.x, cell.y, right, low])
    out = []
    for fill, rectangles in boxes.items():
        paths = "\n".join(
            f"{_at(x, y)} rectangle {_at(right, low)}" for x, y, right, low in rectangles
        )
        out.append(f"\\fill[{_color(fill)}] {paths};")
    for cell in cells:
        if cell.corner is not None:
            right, low = cell.x + cell.width, cell.y + cell.height
            out.append(
                f"\\fill[{_color(cell.corner)}] {_at(right, low - CORNER * cell.height)} -- "
                f"{_at(right, low)} -- {_at(right - CORNER * cell.width, low)} -- cycle;"
            )
    return out


def _stroke(stroke: Stroke) -> str:
    dashes = ""
    if stroke.dashes is not None:
        on, off = (number(length) for length in stroke.dashes)
        dashes = f",dash pattern=on {on}bp off {off}bp"
    paths = "\n".join(" -- ".join(_at(x, y) for x, y in path) for path in stroke.paths)
    return f"\\draw[{_color(stroke.color)},line width={number(stroke.width)}bp{dashes}] {paths};"


def _style(text: Text) -> tuple[float, str, bool, str, int]:
    return text.size, text.anchor, text.bold, text.color, text.angle


def _nodes(texts: tuple[Text, ...]) -> list[str]:
    """Write texts of one style in a scope."""
    out = []
    for (size, anchor, bold, color, angle), members in groupby(texts, key=_style):
        font = rf"\fontsize{{{number(size)}bp}}{{{number(size)}bp}}\selectfont\sffamily"
        style = f"anchor={_ANCHOR[anchor]},text={_color(color)},font={font}" + r"\bfseries" * bold
        if angle:
            style += f",rotate={angle}"
        out.append(f"\\begin{{scope}}[every node/.append style={{{style}}}]")
        out += [f"\\node at {_at(text.x, text.y)} {{{escaped(text.string)}}};" for text in members]
        out.append("\\end{scope}")
    return out


def _panel(panel: Panel) -> list[str]:
    strokes = [_stroke(stroke) for stroke in panel.strokes if stroke.paths]
    return [f"% {escaped(panel.name)}", *_fills(panel.cells), *strokes, *_nodes(panel.texts)]


def _colors(scene: Scene) -> list[str]:
    found = {
        color
        for panel in scene.panels
        for color in (
            *(cell.fill for cell in panel.cells),
            *(cell.corner for cell in panel.cells if cell.corner is not None),
            *(stroke.color for stroke in panel.strokes),
            *(text.color for text in panel.texts),
        )
    }
    return [
        f"\\definecolor{{{_color(value)}}}{{HTML}}{{{value.lstrip('#').upper()}}}"
        for value in sorted(found)
    ]


def tikz_text(scene: Scene) -> str:
    r"""Return the scene as a ``tikzpicture``; the document loads the package tikz.

    One unit is one PostScript point (bp), so the picture has the size of the scene.

    >>> from layoutalg.draw.scene.scene import Cell, Panel, Scene
    >>> page = Scene(10, 10, "one", (Panel("A", (Cell(0, 0, 5, 5, "#ffffff", "T0"),)),))
    >>> print(tikz_text(page).splitlines()[6])
    \fill[layoutalgffffff] (0,0) rectangle (5,5);

    Source: TikZ and PGF Manual 3.1, sections 14 (paths), 15 (actions) and 17 (nodes).
    """
    body = [line for panel in scene.panels for line in _panel(panel)]
    return "\n".join(
        [
            f"% {escaped(scene.title)}",
            "% \\usepackage{tikz}, then \\input this file",
            "\\begin{tikzpicture}[x=1bp,y=-1bp,every node/.style={inner sep=0pt,outer sep=0pt}]",
            *_colors(scene),
            f"\\path[use as bounding box] (0,0) rectangle {_at(scene.width, scene.height)};",
            *body,
            "\\end{tikzpicture}\n",
        ]
    )
