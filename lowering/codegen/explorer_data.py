"""The operations of a lowered program as data, for the page that follows an element through it.

The engine of :mod:`layoutalg.draw.explorer.page` evaluates a row for each line of the script, cell
by cell: it shows what the program does, not what its layouts promise.
"""

from __future__ import annotations

import os
from typing import Any

from layoutalg import draw
from layoutalg.draw.explorer import page
from lowering.ir import ops
from lowering.ir.index import Digit, Guard, Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.readers import Reader
from lowering.ir.tiles import Buffer

_VIEWS = {"shared": ("places",), "global": ("tile",), "local": ("tile",)}


def _space(buffer: Buffer) -> dict[str, Any]:
    """Return a buffer as a space of the page."""
    bits = buffer.dtype.bits
    local = buffer.scope == "local"
    return page.space_of(
        buffer.name,
        buffer.layout,
        buffer.shape,
        note=f"{' × '.join(map(str, buffer.shape))}, {buffer.dtype}, "
        f"{'registers' if local else buffer.scope}",
        letter=f"{buffer.name}" if local else "",
        pack=buffer.dtype.pack if local else 1,
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


def _when(guards: tuple[Guard, ...]) -> list[Any]:
    """Return each guard as an index, and what it is at least and less than."""
    return [[_tree(each.index), each.low, _tree(each.high)] for each in guards]


follow = Reader[dict[str, Any]]("to_html")


@follow.of(ops.Zero)
def _zero(row: dict[str, Any], op: ops.Zero) -> None:
    row.update({"kind": "zero", "into": op.into.buffer, "numbers": op.into.numbers})


@follow.of(ops.Move, ops.MoveMatrix)
def _move(row: dict[str, Any], op: ops.Move | ops.MoveMatrix) -> None:
    row.update(
        {
            "kind": "move" if isinstance(op, ops.Move) else "movmatrix",
            "into": op.into.buffer,
            "numbers": op.into.numbers,
            "from": op.source.buffer,
            "source": op.source.numbers,
        }
    )


@follow.of(ops.Load)
def _load(row: dict[str, Any], op: ops.Load) -> None:
    row.update(
        {
            "kind": "load",
            "into": op.into.buffer,
            "numbers": op.into.numbers,
            "from": op.memory,
            "address": _tree(op.address),
            "when": _when(op.guards),
        }
    )


@follow.of(ops.Store)
def _store(row: dict[str, Any], op: ops.Store) -> None:
    row.update(
        {
            "kind": "store",
            "into": op.memory,
            "address": _tree(op.address),
            "from": op.source.buffer,
            "numbers": op.source.numbers,
            "when": _when(op.guards),
        }
    )


@follow.of(ops.LoadMatrix)
def _load_matrix(row: dict[str, Any], op: ops.LoadMatrix) -> None:
    row.update(
        {
            "kind": "ldmatrix",
            "into": op.into.buffer,
            "numbers": op.into.numbers,
            "count": op.count,
            "trans": op.trans,
            "from": op.memory,
            "address": _tree(op.address),
        }
    )


@follow.of(ops.StoreMatrix)
def _store_matrix(row: dict[str, Any], op: ops.StoreMatrix) -> None:
    row.update(
        {
            "kind": "stmatrix",
            "count": op.count,
            "trans": op.trans,
            "into": op.memory,
            "address": _tree(op.address),
            "from": op.source.buffer,
            "numbers": op.source.numbers,
        }
    )


@follow.of(ops.Transfer)
def _transfer(row: dict[str, Any], op: ops.Transfer) -> None:
    row.update(
        {
            "kind": "transfer",
            "count": op.count,
            "into": op.into,
            "target": _tree(op.into_address),
            "from": op.memory,
            "address": _tree(op.address),
            "when": _when(op.guards + op.edges),
        }
    )


@follow.of(ops.Mma)
def _mma(row: dict[str, Any], op: ops.Mma) -> None:
    row.update(
        {
            "kind": "mma",
            "shape": op.instruction.shape,
            "instruction": op.instruction.name,
            "into": op.d.buffer,
            "numbers": op.d.numbers,
            "a": op.a.buffer,
            "aNumbers": op.a.numbers,
            "b": op.b.buffer,
            "bNumbers": op.b.numbers,
        }
    )


@follow.of(ops.Loop)
def _loop(row: dict[str, Any], op: ops.Loop) -> None:
    if isinstance(op.extent, int):
        row.update({"kind": "loop", "variable": op.var, "extent": op.extent})


@follow.of(ops.Commit, ops.Wait, ops.Sync)
def _idle(row: dict[str, Any], op: ops.Op) -> None:
    row["kind"] = "idle"  # moves no element


def rows(
    body: tuple[ops.Op, ...], known: frozenset[str] | None = frozenset({"thread"})
) -> list[dict[str, Any]]:
    """Return a row for each line of the script.

    The page evaluates loops of a fixed extent. What stands in another loop or in a branch, or needs
    a variable that is neither the thread nor of such a loop, is not followed; nor is an operation
    of no row: the page shows its line, and says so.

    Args:
        body: the operations.
        known: variables that the page evaluates; None: nothing in this body is followed.

    >>> load = ops.Load(ops.Registers("r", (0, 1)), "g", Index.of("k", 2) * 2)
    >>> [row["kind"] for row in rows((ops.Loop("k", 2, (load,)), load, ops.Commit()))]
    ['loop', 'load', 'unfollowed', 'idle']
    """
    found: list[dict[str, Any]] = []
    for op in body:
        row: dict[str, Any] = {"kind": "unfollowed"}  # the page shows its line, and says so
        if op in follow:
            follow(row, op)
        names = {name for index in ops.indices(op) for name in index.variables()}
        if known is None or not names <= known:
            row = row if row["kind"] == "idle" else {"kind": "unfollowed"}
        inner = known | {row["variable"]} if known and row["kind"] == "loop" else None
        inside: list[dict[str, Any]] = []
        for at, name in enumerate(op.bodies):
            inside += [{"kind": "unfollowed"}] * (at > 0)  # a line names the second body
            inside += rows(getattr(op, name), inner)
        if row["kind"] == "loop":
            row["body"] = len(inside)
        found += [row, *inside]
    return found


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
        "ops": rows(body.ops),
        "threads": body.threads,
        "fragments": fragments,
    }
    buffers = (*body.params, *body.shared, *body.registers)
    about = f"{body.threads} threads, {body.arch}"
    return page.document_of(
        "program", title, [_space(buffer) for buffer in buffers], about=about, flow=flow
    )


def flow_html(body: KernelIR, title: str, *, path: str | os.PathLike[str] | None = None) -> str:
    """Return a page that follows an element through a program.

    The panels are in the order of the data flow: global memory, shared memory, the rows of
    ``ldmatrix`` with their address lanes, the mma operands, the accumulator, the store.

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
