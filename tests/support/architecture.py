"""Draws ``.github/architecture.svg`` from the imports: ``python -m tests.support.architecture``.

A box is a folder with the first line of its ``__init__``; it stands above all that it imports. An
arrow that follows from two others is left out.
"""

from __future__ import annotations

import ast
import itertools
import textwrap
from html import escape

from tests.support.house import folders, modules, parsed
from tests.support.paths import ROOT

PICTURE = ROOT / ".github" / "architecture.svg"
_WIDE, _HIGH, _BEND, _ACROSS, _DOWN, _MARGIN, _HEAD = 190, 58, 8, 24, 40, 24, 46


def depths(graph: dict[str, set[str]]) -> dict[str, int]:
    """Return the row of each folder from the top: one below the lowest that imports it."""
    found: dict[str, int] = {}
    while len(found) < len(graph):
        for name in graph:
            above = {each for each in graph if name in graph[each]}
            if above <= set(found):
                found.setdefault(name, 1 + max((found[each] for each in above), default=-1))
    return found


def direct(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the arrows that do not follow from others."""
    reach: dict[str, set[str]] = {}
    for name in sorted(graph, key=depths(graph).__getitem__, reverse=True):
        reach[name] = graph[name].union(*(reach[each] for each in graph[name]))
    return {
        name: {each for each in below if not any(each in reach[other] for other in below)}
        for name, below in graph.items()
    }


def sentence(package: str, folder: str) -> str:
    """Return the first line of a folder's docstring."""
    text = ast.get_docstring(parsed(modules(package)[f"{package}.{folder}"]))
    assert text, f"{package}/{folder} says nothing"
    return text.splitlines()[0].replace("``", "")


def routes(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return each arrow as its folders from the top, with one bend in every row that it passes."""
    depth = depths(graph)
    return [
        [name, *(f"{name}>{below}@{at}" for at in range(depth[name] + 1, depth[below])), below]
        for name, targets in direct(graph).items()
        for below in sorted(targets)
    ]


def placed(graph: dict[str, set[str]], left: float) -> tuple[dict[str, tuple[float, float]], float]:
    """Return the middle of the top edge of each folder and bend, and the width of it all.

    Within a row they stand in the order of what is above them.
    """
    arrows, depth = routes(graph), depths(graph)
    for route in arrows:
        depth |= {each: depth[route[0]] + at for at, each in enumerate(route)}
    rows = [[each for each in depth if depth[each] == at] for at in range(max(depth.values()) + 1)]
    sizes = {each: _WIDE if each in graph else _BEND for each in depth}
    spans = [sum(sizes[each] for each in row) + (len(row) - 1) * _ACROSS for row in rows]
    found: dict[str, tuple[float, float]] = {}
    for at, (row, span) in enumerate(zip(rows, spans, strict=True)):
        above = {
            each: [found[route[i - 1]][0] for route in arrows for i in range(1, len(route))
                   if route[i] == each]
            for each in row
        }  # fmt: skip
        row.sort(key=lambda each: sum(above[each]) / max(1, len(above[each])))
        x = left + (max(spans) - span) / 2
        for each in row:
            found[each] = x + sizes[each] / 2, _HEAD + at * (_HIGH + _DOWN)
            x += sizes[each] + _ACROSS
    return found, max(spans)


def arrow(route: list[str], at: dict[str, tuple[float, float]]) -> str:
    """Return an arrow as a path: curves between rows, straight lines past the boxes of a row."""
    (x, y), (to_x, _) = at[route[0]], at[route[1]]
    x += max(-70.0, min(70.0, (to_x - x) / 3))
    words = [f"M{x:g} {y + _HIGH:g}"]
    for here, each in itertools.pairwise(route):
        from_x = x if here == route[0] else at[here][0]
        to_x, y = at[each]
        if each == route[-1]:
            to_x += max(-70.0, min(70.0, (from_x - to_x) / 3))
            y -= 5
        top, middle = at[here][1] + _HIGH, (at[here][1] + _HIGH + y) / 2
        words.append(f"C{from_x:g} {middle:g} {to_x:g} {middle:g} {to_x:g} {y:g}")
        if each != route[-1]:
            words.append(f"V{y + _HIGH:g}")
        assert top < y
    return f'<path d="{"".join(words)}"/>'


def panel(package: str, left: float) -> tuple[list[str], float, float]:
    """Return a package as SVG, its width and its height."""
    graph = folders(package)
    at, width = placed(graph, left)
    lines = [f'<text x="{left + width / 2:g}" y="28" class="package">{package}</text>']
    lines += [arrow(route, at) for route in routes(graph)]
    for name in graph:
        x, y = at[name]
        lines.append(
            f'<rect x="{x - _WIDE / 2:g}" y="{y:g}" width="{_WIDE}" height="{_HIGH}" rx="4"/>'
        )
        lines.append(f'<text x="{x:g}" y="{y + 17:g}" class="folder">{name}/</text>')
        for i, line in enumerate(textwrap.wrap(sentence(package, name), 36)[:3]):
            lines.append(f'<text x="{x:g}" y="{y + 30 + 11 * i:g}">{escape(line)}</text>')
    return lines, width, max(y for _, y in at.values()) + _HIGH + _DOWN


def picture() -> str:
    """Return the picture of both packages."""
    lines: list[str] = []
    left, high = float(_MARGIN), 0.0
    for package in ("lowering", "layoutalg"):
        drawn, width, height = panel(package, left)
        lines += drawn
        left, high = left + width + 2.5 * _MARGIN, max(high, height)
    width, high = left - 1.5 * _MARGIN, high + 10
    note = "A folder imports what stands below it. lowering imports layoutalg, never the reverse."
    lines.append(f'<text x="{width / 2:g}" y="{high - 14:g}" class="note">{note}</text>')
    style = (
        "text{font:9.5px system-ui,Arial,sans-serif;text-anchor:middle;fill:#333}"
        ".folder{font-weight:600;font-size:13px;fill:#111}.package{font-weight:600;font-size:17px}"
        ".note{font-size:11px}rect{fill:#f4f6fa;stroke:#5b6b8c}"
        "path{fill:none;stroke:#8a97b1;marker-end:url(#head)}"
    )
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="3" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#8a97b1;stroke:none"/></marker>'
    )
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {high:g}" '
        f'width="{width:g}" height="{high:g}">\n<style>{style}</style><defs>{head}</defs>\n'
        f'<rect width="{width:g}" height="{high:g}" style="fill:#fff;stroke:none"/>\n'
        f"{body}\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(PICTURE)
