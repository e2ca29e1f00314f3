"""The page of the gallery: every instruction of the fragment table, grouped by equal layouts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from layoutalg import fragments
from layoutalg.draw.scene.chosen import certificates_of, chosen_fragments, operand_of
from layoutalg.draw.scene.naming import heading_of, role_of
from layoutalg.draw.scene.palette import HUES
from layoutalg.draw.scene.thumbnail import thumbnail
from layoutalg.fragments import Fragment, targets

PTX_ISA = "https://docs.nvidia.com/cuda/parallel-thread-execution/"

# Families in the order of the page: key, title, and how the names of their instructions begin.
FAMILIES: tuple[tuple[str, str, str], ...] = (
    ("dense", "Dense products of a warp", r"mma\.m(?!8n8k4\.f16)\w+\.(?!mx)"),
    ("products", "Four products of a warp", r"mma\.m8n8k4\.f16"),
    ("sparse", "Sparse A: two of four", r"mma\.sp\."),
    ("scaled", "Block-scaled products", r"mma\.\w+\.mx"),
    ("warpgroup", "Products of a warpgroup", r"wgmma\."),
    ("matrices", "Matrices between shared memory and registers", r"(ld|st|mov)matrix\."),
    ("tensor-memory", "Tensor memory and registers", r"tcgen05\."),
)

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --note: #555; --paper: #fff; --line: #ccc; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eee; --note: #aaa; --paper: #16181b; --line: #444; }
}
body { margin: 0 auto; max-width: 76rem; padding: 1rem 1.5rem 4rem; color: var(--ink);
  background: var(--paper); font: 15px/1.5 system-ui, Arial, Helvetica, sans-serif; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; }
h3 { font: bold 1rem/1.4 ui-monospace, monospace; margin: 0; }
a { color: inherit; } code, td, dd { font: .82rem/1.5 ui-monospace, monospace; }
article { border-top: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: 1rem 2rem;
  margin-top: 1.2rem; padding-top: 1.2rem; }
figure { flex: 0 0 21rem; margin: 0; } article > div { flex: 1 1 30rem; min-width: 0; }
svg { height: auto; max-width: 100%; } svg text { fill: currentColor; font: 10px system-ui, Arial;
  } .scroll { overflow-x: auto; } table { border-collapse: collapse; margin: .4rem 0; }
th, td { padding: .1rem .9rem .1rem 0; text-align: left; vertical-align: top; }
td:nth-child(-n+3) { white-space: nowrap; } caption { text-align: left; }
p.note { margin: .3rem 0; }
th { color: var(--note); font-size: .8rem; font-weight: normal; }
ul { list-style: none; margin: .4rem 0; padding: 0; } li { margin: .15rem 0; }
li:target { outline: 2px solid currentColor; outline-offset: 2px; }
.note, li small { color: var(--note); font-size: .8rem; } nav li { display: inline;
  margin-right: .8rem; }
.swatches td { color: #1a1a1a; padding: .1rem .5rem; text-align: right; }
"""


@dataclass(frozen=True)
class Kind:
    """Instructions whose operands have the same layouts: they share a picture."""

    names: tuple[str, ...]

    @property
    def rows(self) -> tuple[Fragment, ...]:
        """The operands of the first one."""
        return fragments.rows(self.names[0])


def kinds() -> tuple[Kind, ...]:
    """Group the instructions of the fragment table, groups in the order of their first.

    >>> kinds()[0].names
    ('mma.m16n8k16.f16', 'mma.m16n8k16.bf16')
    """
    found: dict[object, list[str]] = {}
    for name in fragments.names():
        chosen = chosen_fragments(name)
        roles = ["" if role_of(f) in ("src", "dst") else role_of(f) for f in chosen]
        layouts = [(f.shape, str(f.layout)) for f in chosen]
        key = family_of(name), *zip(roles, layouts, strict=True)
        found.setdefault(key, []).append(name)
    return tuple(Kind(tuple(names)) for names in found.values())


def family_of(name: str) -> str:
    """Return the key of an instruction's family.

    >>> family_of("mma.m16n8k64.mxf4.e2m1.ue8m0")
    'scaled'
    """
    return next(key for key, _, begin in FAMILIES if re.match(begin, name))


def gallery_html(kept: Iterable[str] = ()) -> str:
    """Return the page, one file that needs nothing else.

    Args:
        kept: instructions whose large pictures lie beside the page, as ``{name}.svg``.

    >>> gallery_html().startswith("<!DOCTYPE html>")
    True
    """
    groups = kinds()
    large = frozenset(kept)
    total = sum(len(kind.names) for kind in groups)
    out = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Fragments of {total} instructions</title><style>{STYLE}</style></head><body>",
        f"<header><h1>Fragments of {total} instructions</h1>",
        "<p>Which lane and which register hold each element of an operand, for every instruction "
        "of the fragment table. Each row is proved when it is built: onto, counted copies, equal "
        "to the formula of the PTX ISA. Instructions whose operands have the same layouts share a "
        "picture. <code>layoutalg draw NAME -o NAME.svg</code> draws one large, with every lane "
        "and register named.</p>",
        _legend(),
        "</header>",
    ]
    out.append('<nav aria-label="Families"><ul>')
    for key, title, _ in FAMILIES:
        count = sum(len(kind.names) for kind in groups if family_of(kind.names[0]) == key)
        out.append(f'<li><a href="#{key}">{escape(title)}</a> ({count})</li>')
    out.append("</ul></nav><main>")
    number = 0
    for key, title, _ in FAMILIES:
        out.append(f'<section aria-labelledby="{key}"><h2 id="{key}">{escape(title)}</h2>')
        for kind in groups:
            if family_of(kind.names[0]) == key:
                out.append(_article(kind, f"p{number}-", large))
                number += 1
        out.append("</section>")
    out.append(
        f'</main><footer class="note">Sources: <a href="{PTX_ISA}">PTX ISA</a>, the sections named '
        "with each instruction. This page is made by <code>layoutalg draw --all</code>.</footer>"
        "</body></html>\n"
    )
    return "\n".join(out)


def _legend() -> str:
    """Say what the colours mean."""
    head = "".join(f'<th scope="col">g={g}</th>' for g in range(len(HUES)))
    rows = "".join(
        f'<tr><th scope="row">t={t}</th>'
        + "".join(f'<td style="background:{HUES[g][t]}">{4 * g + t}</td>' for g in range(len(HUES)))
        + "</tr>"
        for t in range(4)
    )
    return (
        '<div class="scroll"><table class="swatches"><caption class="note">Colour of a lane: '
        "4g + t. Of a warpgroup: a hue per warp, darker from lane 0 to 31. Dashed: 8 "
        f"\u00d7 8 blocks; thick: warps.</caption><tr><td></td>{head}</tr>{rows}</table></div>"
    )


def _article(kind: Kind, name: str, large: frozenset[str]) -> str:
    """Write the picture, the operands and the instructions of a kind."""
    first, *others = kind.names
    chosen = chosen_fragments(first)
    product = 1 if chosen[0].products > 1 else 0
    shown = [operand_of(fragment, None, product) for fragment in chosen]
    tiles = ", ".join(
        f"{heading_of(f)} {f.shape[0]} by {f.shape[1]}" for f in (o.fragment for o in shown)
    )
    picture = thumbnail(shown, f"{first}: lanes of {tiles}", name)
    note = f" (product {product} of {chosen[0].products})" if product else ""
    more = f" and {len(others)} alike" if others else ""
    link = f"{name}h"
    sources = dict.fromkeys(row.source for each in kind.names for row in fragments.rows(each))
    return (
        f'<article aria-labelledby="{link}"><figure>{picture}'
        f'<figcaption class="note">{escape(tiles)}{note}</figcaption></figure>'
        f'<div><h3 id="{link}">{escape(first)}{more}</h3>{_operands(kind)}'
        f'<p class="note">{escape("; ".join(sources))}</p>'
        f"<ul>{''.join(_instruction(each, each in large) for each in kind.names)}</ul></div>"
        "</article>"
    )


def _operands(kind: Kind) -> str:
    """Write layout, rule and registers of each operand; operands alike share a line."""
    alike: dict[tuple[object, ...], list[Fragment]] = {}
    for row in (row for name in kind.names for row in fragments.rows(name)):
        alike.setdefault((heading_of(row), row.shape, str(row.layout)), []).append(row)
    lines = []
    for same in alike.values():
        row = same[0]
        units = (f"{each.registers} \u00d7 b{each.register_bits}" for each in same)
        cells = (
            heading_of(row),
            f"{row.shape[0]} \u00d7 {row.shape[1]}",
            " or ".join(dict.fromkeys(units)),
            str(row.layout),
            str(row.formula),
        )
        lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    heads = "".join(
        f'<th scope="col">{head}</th>'
        for head in ("operand", "shape", "registers", "layout", "PTX ISA")
    )
    return f'<div class="scroll"><table><tr>{heads}</tr>{"".join(lines)}</table></div>'


def _instruction(name: str, large: bool) -> str:
    """Write the line of an instruction: types, targets, certificate."""
    rows = fragments.rows(name)
    types: dict[str, list[str]] = {}
    for row in rows:
        types.setdefault(heading_of(row), []).append(row.dtype)
    operands = ", ".join(f"{role} {' or '.join(each)}" for role, each in types.items())
    said = (operands, targets.written(rows[0].min_arch), *certificates_of(rows))
    shown = escape(name)
    link = f'<a href="{shown}.svg">{shown}</a>' if large else f'<a href="#{shown}">{shown}</a>'
    return f'<li id="{shown}"><code>{link}</code> <small>{escape("; ".join(said))}</small></li>'
