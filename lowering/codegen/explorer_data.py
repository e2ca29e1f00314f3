"""A lowered program as a page: one element followed from global memory to the store.

The page carries the program's own script, and the engine of :mod:`layoutalg.draw.explorer.page`
runs it in thought, cell by cell: what is shown is what the program does, not what its layouts
promise.
"""

from __future__ import annotations

import os
from typing import Any

from layoutalg import draw
from layoutalg.algebra.axis import WARP
from layoutalg.draw.explorer import page
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import script
from lowering.ir.tiles import Buffer

_VIEWS = {"shared": ("places",), "global": ("tile",), "local": ("tile",)}


def _space(buffer: Buffer) -> dict[str, Any]:
    """Return a buffer as a tile of the page."""
    bits = buffer.dtype.bits
    local = buffer.scope == "local"
    return page.space_of(
        buffer.name,
        buffer.layout,
        buffer.shape,
        note=f"{' × '.join(map(str, buffer.shape))}, {buffer.dtype}, "
        f"{'registers' if local else buffer.scope}",
        letter=f"{buffer.name}" if local else "",
        pack=max(1, WARP // bits) if local else 1,
        bits=bits,
        dtype=str(buffer.dtype),
        scope=buffer.scope,
        views=_VIEWS.get(buffer.scope, ("tile",)),
    )


def flow_document(body: KernelIR, title: str) -> dict[str, Any]:
    """Return what the page of a body shows.

    Raises:
        LayoutError: a buffer has more elements than a page shows.
    """
    operands: dict[str, list[tuple[str, tuple[int, int]]]] = {}
    for op in body.mma:
        key = f"{op.instruction.shape}.{body.buffer(op.a.buffer).dtype}"
        rows = [op.instruction.fragment(role) for role in "ABD"]
        operands[key] = [(str(row.layout), row.shape) for row in rows]
    flow = {"script": script(body.ops), "threads": body.threads, "mma": operands}
    buffers = (*body.params, *body.shared, *body.registers)
    about = f"{body.threads} threads, {body.arch}"
    return page.document_of(
        "program", title, [_space(buffer) for buffer in buffers], about=about, flow=flow
    )


def flow_html(body: KernelIR, title: str, *, path: str | os.PathLike[str] | None = None) -> str:
    """Return a page on which an element is followed through a body.

    Panels stand in the order that data takes: global memory, the shared tile with its swizzle, the
    rows of ``ldmatrix`` with their address lanes, the operands, the accumulator, the store.

    Args:
        body: of a lowered program.
        title: the heading.
        path: file to write, ``.html``.

    Raises:
        LayoutError: the page would be too large, or another suffix.
    """
    return page.finished(page.page(flow_document(body, title)), path)


def flow_frame(body: KernelIR, title: str) -> str:
    """Return the page in a frame, for a notebook."""
    return draw.frame(flow_html(body, title), title)
