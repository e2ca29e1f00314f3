"""The operations of a lowered program as data, for the page that follows an element through it.

The engine of :mod:`layoutalg.draw.explorer.page` evaluates a row for each line of the script, cell
by cell: it shows what the program does, not what its layouts promise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from layoutalg import draw
from layoutalg.algebra.axis import WARP
from layoutalg.draw.explorer import page
from lowering.ir import ops, tmem_ops
from lowering.ir.index import Digit, Index
from lowering.ir.kernel_ir import KernelIR
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


def _tree(index: int | Index) -> list[Any]:
    """Return an index as its constant and its terms, each a factor and an atom.

    >>> thread = Index.of("thread", 32)
    >>> _tree(thread // 4 * 8 + 3), _tree(thread % 2 ^ Index((), 1))
    ([3, [8, 'thread', 4, 8]], [0, [1, '^', [0, [1, 'thread', 1, 2]], [1]]])
    """
    if isinstance(index, int):
        return [index]
    terms: list[Any] = [index.constant]
    for factor, atom in index.terms:
        if isinstance(atom, Digit):
            terms.append([factor, atom.var, atom.stride, atom.extent])
        else:
            terms.append([factor, atom.op, _tree(atom.left), _tree(atom.right)])
    return terms


def _when(guards: tuple[ops.Guard, ...]) -> list[Any]:
    """Return each guard as an index, and what it is at least and less than."""
    return [[_tree(each.index), each.low, _tree(each.high)] for each in guards]


_IDLE = {"kind": "idle"}  # moves no element
_UNFOLLOWED = {"kind": "unfollowed"}  # moves elements, and the page says that it does not follow
_ROWS: dict[type, Callable[[Any], dict[str, Any]]] = {
    ops.Zero: lambda op: {"kind": "zero", "into": op.into.buffer, "numbers": op.into.numbers},
    ops.Move: lambda op: {
        "kind": "move",
        "into": op.into.buffer,
        "numbers": op.into.numbers,
        "from": op.source.buffer,
        "source": op.source.numbers,
    },
    ops.MoveMatrix: lambda op: _ROWS[ops.Move](op) | {"kind": "movmatrix"},
    ops.Load: lambda op: {
        "kind": "load",
        "into": op.into.buffer,
        "numbers": op.into.numbers,
        "from": op.memory,
        "address": _tree(op.address),
        "when": _when(op.guards),
    },
    ops.Store: lambda op: {
        "kind": "store",
        "into": op.memory,
        "address": _tree(op.address),
        "from": op.source.buffer,
        "numbers": op.source.numbers,
        "when": _when(op.guards),
    },
    ops.LoadMatrix: lambda op: {
        "kind": "ldmatrix",
        "into": op.into.buffer,
        "numbers": op.into.numbers,
        "count": op.count,
        "trans": op.trans,
        "from": op.memory,
        "address": _tree(op.address),
    },
    ops.StoreMatrix: lambda op: {
        "kind": "stmatrix",
        "count": op.count,
        "trans": op.trans,
        "into": op.memory,
        "address": _tree(op.address),
        "from": op.source.buffer,
        "numbers": op.source.numbers,
    },
    ops.Transfer: lambda op: {
        "kind": "transfer",
        "count": op.count,
        "into": op.into,
        "target": _tree(op.into_address),
        "from": op.memory,
        "address": _tree(op.address),
        "when": _when(op.guards),
    },
    ops.Mma: lambda op: {
        "kind": "mma",
        "shape": op.instruction.shape,
        "instruction": op.instruction.name,
        "into": op.d.buffer,
        "numbers": op.d.numbers,
        "a": op.a.buffer,
        "aNumbers": op.a.numbers,
        "b": op.b.buffer,
        "bNumbers": op.b.numbers,
    },
    **dict.fromkeys((ops.Commit, ops.Wait, ops.Sync), lambda _: _IDLE),
    **dict.fromkeys(
        (
            *(ops.Blend, ops.Let, ops.When, ops.Loop, ops.WarpSpecialize),
            *(ops.TmaLoad, ops.TmaStore, ops.TmaStoreWait, ops.BulkLoad, ops.BulkStore),
            *(ops.Arrive, ops.TryWait, ops.MbarrierWait, ops.ProxyFence),
            *(ops.Wgmma, ops.WgmmaFence, ops.WgmmaCommit, ops.WgmmaWait),
            *(tmem_ops.TensorMma, tmem_ops.TensorCopy, tmem_ops.TensorLoad, tmem_ops.TensorStore),
            *(tmem_ops.TensorWait, tmem_ops.TensorCommit, tmem_ops.TensorFence),
            *(tmem_ops.TensorAllocate, tmem_ops.TensorFree),
        ),
        lambda _: _UNFOLLOWED,
    ),
}


def rows(
    body: tuple[ops.Op, ...], known: frozenset[str] | None = frozenset({"thread"})
) -> Iterator[dict[str, Any]]:
    """Yield a row for each line of the script.

    The page evaluates loops of a fixed extent. What stands in another loop, in a branch, or needs
    a variable that is neither the thread nor of such a loop, is not followed.

    Args:
        body: the operations.
        known: variables that the page evaluates; None: nothing in this body is followed.

    Raises:
        LayoutError: an operation of no row.

    >>> load = ops.Load(ops.Registers("r", (0, 1)), "g", Index.of("k", 2) * 2)
    >>> [row["kind"] for row in rows((ops.Loop("k", 2, (load,)), load, ops.Commit()))]
    ['loop', 'load', 'unfollowed', 'idle']
    """
    for op in body:
        if type(op) not in _ROWS:
            raise ops.unknown(op, "to_html")
        names = {name for index in ops.indices(op) for name in index.variables()}
        followed = known is not None and names <= known
        if isinstance(op, ops.Loop) and isinstance(op.extent, int) and followed:
            inside = list(rows(op.body, (known or frozenset()) | {op.var}))
            yield {"kind": "loop", "variable": op.var, "extent": op.extent, "body": len(inside)}
            yield from inside
            continue
        row = _ROWS[type(op)](op)
        yield row if followed or row is _IDLE else _UNFOLLOWED
        if isinstance(op, ops.WarpSpecialize):
            yield from rows(op.produce, None)
            yield _UNFOLLOWED  # the line "consume:"
            yield from rows(op.consume, None)
        elif isinstance(op, (ops.Loop, ops.When)):
            yield from rows(op.body, None)


def flow_document(body: KernelIR, title: str) -> dict[str, Any]:
    """Return what the page of a program shows.

    Raises:
        LayoutError: a buffer has more elements than a page shows.
    """
    fragments = {
        op.instruction.name: [
            (str(row.layout), row.shape) for row in map(op.instruction.fragment, "ABD")
        ]
        for op in body.mma
    }
    flow = {
        "script": ops.script(body.ops),
        "ops": list(rows(body.ops)),
        "threads": body.threads,
        "fragments": fragments,
    }
    buffers = (*body.params, *body.shared, *body.registers)
    about = f"{body.threads} threads, {body.arch}"
    return page.document_of(
        "program", title, [_space(buffer) for buffer in buffers], about=about, flow=flow
    )


def flow_html(body: KernelIR, title: str, path: str | os.PathLike[str] | None = None) -> str:
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
