"""Builds a fuzz program with the package and runs it on the NumPy warp."""

from __future__ import annotations

import hashlib
from math import inf
from typing import Any

import numpy as np

import lowering as lw
from layoutalg import ComposeLayout, parse
from lowering.programs.kernel import Kernel
from lowering.programs.program import KernelProgram
from tests.fuzz import texts
from tests.fuzz.ir import NUMPY, Array, Program, source

PRELUDE = """\
from math import inf

import lowering as lw
from layoutalg import ComposeLayout, parse
from lowering.programs.kernel import Kernel
"""


def kernel(program: Program, name: str = "fuzz") -> Kernel:
    """Run a program's text; return its kernel, not lowered."""
    names: dict[str, Any] = {"ComposeLayout": ComposeLayout, "parse": parse}
    names |= {"Kernel": Kernel, "lw": lw, "inf": inf}
    exec(compile(source(program, name), "<fuzz>", "exec"), names)
    made: Kernel = names["k"]
    return made


def lower(program: Program, name: str = "fuzz") -> KernelProgram:
    """Return the lowered program."""
    return kernel(program, name).lower()


def reproducer(program: Program) -> str:
    """Return a whole Python program that shows a program's kernel on the NumPy warp."""
    lines = [PRELUDE + source(program)]
    lines.append("import numpy as np")
    given = []
    for name, (seed, least) in program.seeds.items():
        shape = program.bufs[name].shape
        lines.append(f"{name}_ = np.random.default_rng({seed}).integers({least}, 4, {shape})")
        given.append(f"{name}={name}_")
    given += [f"{name}={value}" for name, (_, value) in program.scalars.items()]
    lines.append(f"found = k.lower().simulate(grid=({program.grid}, 1), {', '.join(given)})")
    lines.append("print(found)")
    return "\n".join(lines)


def digest(found: dict[str, Array]) -> str:
    """Return the sha256 of matrices, by name."""
    made = hashlib.sha256()
    for name in sorted(found):
        made.update(name.encode() + np.ascontiguousarray(found[name]).tobytes())
    return made.hexdigest()


def simulate(program: Program, made: KernelProgram) -> dict[str, Array]:
    """Run on the NumPy warp; return all parameters that it writes."""
    scalars = {name: value for name, (_, value) in program.scalars.items()}
    return made.simulate(grid=(program.grid, 1), **program.given, **scalars)


def memory_of(program: Program, made: KernelProgram) -> tuple[list[Array], dict[str, Array]]:
    """Return the parameters' bytes as a launch has them, and where each element is."""
    where, cells = {}, []
    for buffer in made.body.params:
        buf = program.bufs[buffer.name]
        strides = buf.strides or (buf.shape[1], 1)
        at = np.add.outer(
            np.arange(buf.shape[0]) * strides[0], np.arange(buf.shape[1]) * strides[1]
        )
        where[buffer.name] = at
        flat = np.zeros(int(at.max()) + 1, dtype=NUMPY[buf.dtype])
        flat[at] = program.given[buffer.name]
        cells.append(flat.view(np.uint8))
    return cells, where


def run_text(program: Program, made: KernelProgram, text: str) -> dict[str, Array]:
    """Run a kernel's text, as Python; return all parameters."""
    cells, where = memory_of(program, made)
    body = made.body
    maps = {}
    names = [buffer.name for buffer in body.params]
    for name, box in body.boxes.items():
        buf = program.bufs[name]
        size = np.dtype(NUMPY[buf.dtype]).itemsize
        maps[names.index(name)] = (*box.box, box.swizzle, size, *buf.shape)
    scalars = [program.scalars[each.name][1] for each in body.scalars]
    scalars = [np.float32(v) if isinstance(v, float) else v for v in scalars]
    compiled = texts.compile_text(text)
    texts.run(compiled, body.threads, body.launched, program.grid, cells, scalars, maps)  # type: ignore[arg-type]
    return {
        name: flat.view(NUMPY[program.bufs[name].dtype])[where[name]]
        for name, flat in zip(names, cells, strict=True)
    }


def python_of(made: KernelProgram) -> str:
    """Return a kernel's C++ text as Python."""
    return texts.python_of(made.cuda_source())
