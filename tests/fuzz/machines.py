"""Builds a fuzz program with the package and runs it on the NumPy warp."""

from __future__ import annotations

import inspect
from typing import Any

from layoutalg import ComposeLayout, parse
from lowering.address import Index
from lowering.kernel import Kernel, KernelProgram
from lowering.warp import Grid, logical, physical
from tests.fuzz.ir import Array, Program, source

PRELUDE = """\
from layoutalg import ComposeLayout, parse
from lowering.address import Index
from lowering.kernel import Kernel
"""


def prelude(threads: int) -> str:
    """Return what a program's text needs before it."""
    return (
        f'THREAD = Index.of("thread", {threads})\n'
        "WARP_, LANE_, GROUP_ = THREAD // 32, THREAD % 32, THREAD // 128\n"
    )


def kernel(program: Program) -> Kernel:
    """Run a program's text; return its kernel, not lowered."""
    names: dict[str, Any] = {"ComposeLayout": ComposeLayout, "parse": parse}
    names |= {"Index": Index, "Kernel": Kernel}
    exec(compile(prelude(program.threads) + source(program), "<fuzz>", "exec"), names)
    made: Kernel = names["k"]
    return made


def lower(program: Program) -> KernelProgram:
    """Return the lowered program."""
    return kernel(program).lower()


def reproducer(program: Program) -> str:
    """Return a whole Python program that shows a program's kernel on the NumPy warp."""
    lines = [PRELUDE + prelude(program.threads) + source(program)]
    lines.append("import numpy as np")
    given = []
    for name, value in program.given.items():
        token = program.bufs[name].dtype
        lines.append(f"{name}_ = np.array({value.astype(float).astype(int).tolist()})  # {token}")
        given.append(f"{name}={name}_")
    given += [f"{name}={value}" for name, (_, value) in program.scalars.items()]
    lines.append(f"print(k.lower().simulate(grid=({program.grid}, 1), {', '.join(given)}))")
    return "\n".join(lines)


_GRIDS = "grid" in inspect.signature(KernelProgram.simulate).parameters


def simulate(program: Program, made: KernelProgram) -> dict[str, Array]:
    """Run on the NumPy warp; return all parameters that it writes."""
    scalars = {name: value for name, (_, value) in program.scalars.items()}
    if _GRIDS:
        return made.simulate(grid=(program.grid, 1), **program.given, **scalars)  # type: ignore[arg-type]
    body = made.body
    cells = {b.name: physical(b, program.given[b.name]) for b in body.params}
    extents = {b.name: (b.shape[0], b.shape[1]) for b in body.params}
    pitches = {b.name: b.shape[1] for b in body.params}
    found = Grid(body, scalars, extents, pitches).run((program.grid, 1), cells)
    return {b.name: logical(b, found[b.name]) for b in body.written}
