"""A KernelIR as a ``numba.cuda`` kernel of inline PTX instructions. The only importer of numba."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any

import numba_cuda  # noqa: F401 - the wheel: numba's own CUDA target lacks what kernels need
import numpy as np
from llvmlite import ir
from numba import cuda, types
from numba.cuda.extending import intrinsic

from layoutalg import LayoutError
from lowering.codegen.kernel_text import calls, written
from lowering.codegen.register_words import variables
from lowering.codegen.writer import MmaCall
from lowering.ir.index import Style
from lowering.ir.kernel_ir import KernelIR
from lowering.isa import ptx
from lowering.isa.mma import compute_capability
from lowering.isa.ptx import Asm

STATIC_SHARED = 48 * 1024  # bytes; more must be dynamic

_NUMBA = {"f": types.float32, "d": types.float64, "r": types.uint32, "l": types.uint64}
_LLVM: dict[str, Callable[[], ir.Type]] = {
    "f": ir.FloatType,
    "d": ir.DoubleType,
    "r": lambda: ir.IntType(32),
    "l": lambda: ir.IntType(64),
}


@cache
def device_function(asm: Asm) -> Any:
    """Return a device function of an asm statement: scalars in, a scalar, a tuple or nothing out.

    Unless it is pure, the asm has side effects and is convergent: it is neither removed nor moved
    under a branch.
    """
    outputs = tuple(_NUMBA[kind] for kind in asm.outputs)
    inputs = asm.inputs + asm.outputs * asm.in_place
    result: Any = types.void
    if outputs:
        result = outputs[0] if len(outputs) == 1 else types.Tuple(outputs)
    signature = result(*(_NUMBA[kind] for kind in inputs))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = [_LLVM[kind]() for kind in asm.outputs]
        out: ir.Type = ir.VoidType()
        if kinds:
            out = kinds[0] if len(kinds) == 1 else ir.LiteralStructType(kinds)
        function = ir.FunctionType(out, [value.type for value in args])
        text = ir.InlineAsm(function, asm.text, asm.constraints, not asm.pure)
        call = builder.call(text, args)
        if not asm.pure:
            call.attributes.add("convergent")
        if not kinds:
            return context.get_dummy_value()
        if len(kinds) == 1:
            return call
        values = [builder.extract_value(call, i) for i in range(len(kinds))]
        return context.make_tuple(builder, signature.return_type, values)

    # numba reads the arity off the function's own parameters.
    names = ", ".join(f"x{i}" for i in range(len(inputs)))
    namespace: dict[str, Any] = {"signature": signature, "generate": generate}
    text = (
        f"def {asm.name}(typingctx{', ' * bool(names)}{names}):\n    return signature, generate\n"
    )
    exec(compile(text, f"<layoutalg {asm.name}>", "exec"), namespace)
    return intrinsic(namespace[asm.name])


@intrinsic  # type: ignore[untyped-decorator]
def cells_address(typingctx: Any, array: Any) -> Any:
    """Return the generic address of an array's first cell."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        struct = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.ptrtoint(struct.data, ir.IntType(64))

    return types.uint64(array), generate


class Python:
    """Python, as numba compiles it."""

    style: Style = "python"

    def call(self, asm: Asm, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> str:
        """Call; several outputs come back as a tuple."""
        into = f"{', '.join(outputs)} = " if outputs else ""
        return f"{into}{asm.name}({', '.join(inputs + outputs * asm.in_place)})"

    def mma(self, call: MmaCall, d: tuple[str, ...], inputs: tuple[str, ...]) -> str:
        """Call with C = D."""
        return self.call(ptx.mma(*call), d, (*inputs, *d))

    def assign(self, variable: str, value: str) -> str:
        """Assign."""
        return f"{variable} = {value}"

    def number(self, value: int, token: str) -> str:
        """Write a constant."""
        kind = {"f32": "float32", "f64": "float64"}.get(token, "uint32")
        return f"{kind}({value})"

    def word(self, value: str) -> str:
        """Write an integer expression as a 32-bit word."""
        return f"uint32({value})"

    def address(self, space: str, base: str, offset: str) -> str:
        """Add a byte offset in the width of the space's addresses."""
        kind = "uint64" if space == "global" else "uint32"
        return base if offset == "0" else f"{base} + {kind}({offset})"

    def begin_if(self, condition: str) -> str:
        """Open a branch."""
        return f"if {condition}:"

    def begin_else(self) -> str:
        """Turn to the other branch."""
        return "else:"

    def begin_loop(self, variable: str, extent: str) -> str:
        """Open a loop."""
        return f"for {variable} in range({extent}):"

    def let(self, variable: str, value: str) -> str:
        """Name an integer."""
        return f"{variable} = {value}"

    def choice(self, conditions: list[str], one: str, other: str) -> str:
        """Write a conditional expression; ``&`` makes no branches of its own."""
        condition = " & ".join(f"({each})" for each in conditions)
        return f"({one} if {condition} else {other})"

    def end(self) -> None:
        """Nothing: the indentation closes."""

    def sync(self, scope: str) -> str:
        """Write a barrier."""
        return "cuda.syncthreads()" if scope == "cta" else "cuda.syncwarp()"

    def all_of(self, conditions: list[str]) -> str:
        """Join conditions."""
        return " and ".join(conditions)


def _write(body: KernelIR, name: str, pointers: bool = False) -> tuple[str, list[Asm]]:
    """Return the kernel's text and the functions that it calls.

    A body with scalars, and one with ``pointers``, takes addresses in place of arrays.
    """
    pointers = pointers or bool(body.scalars)
    writer = written(body, Python())
    functions = calls(writer)
    if pointers:
        names = (*(f"{b.name}_base" for b in body.params), *(each.name for each in body.scalars))
        lines = [f"def {name}({', '.join(names)}):"]
    else:
        lines = [f"def {name}({', '.join(f'{b.name}_' for b in body.params)}):"]
    if body.placed:
        lines.append("  thread, bx, by = cuda.threadIdx.x, cuda.blockIdx.x, cuda.blockIdx.y")
    else:
        lines.append("  thread = cuda.threadIdx.x")
    if not pointers:
        lines.extend(f"  {b.name}_base = cells_address({b.name}_)" for b in body.params)
    if body.shared_bytes:
        functions.append(ptx.shared_address())
        size = 0 if body.shared_bytes > STATIC_SHARED else body.shared_bytes
        lines.append(f"  shared = cuda.shared.array({size}, uint8, alignment=1024)")
        lines.append("  base = shared_address(cells_address(shared))")
        places = body.shared_places.items()
        lines.extend(f"  {n}_base = base + uint32({at})" for n, at in places)
    first = body.read_unwritten()
    for buffer in body.registers:
        if buffer.name in first:
            zero = writer.dialect.number(0, buffer.dtype.token)
            lines.extend(f"  {variable} = {zero}" for variable in variables(buffer))
    return "\n".join([*lines, *writer.lines]) + "\n", functions


def kernel_source(body: KernelIR, name: str) -> str:
    """Return the Python text of the kernel, one statement per operation.

    Parameters are flat arrays of the buffers' cells, element bits as unsigned integers for types
    that numba lacks.
    """
    return _write(body, name)[0]


def definition(body: KernelIR, name: str) -> str:
    """Return all that a whole program is compiled from: its text, and the statements it calls."""
    source, functions = _write(body, name, pointers=True)
    return "\n".join([source, *map(repr, functions)])


def version() -> str:
    """Return the versions of what makes LTO-IR of a text."""
    return ", ".join(f"{each} {metadata.version(each)}" for each in ("numba", "numba-cuda"))


@cache
def _function(source: str, name: str, functions: tuple[Asm, ...]) -> Any:
    """Compile a kernel text to a Python function, with its lines kept for tracebacks."""
    file = f"<layoutalg {name} {abs(hash(source)):x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    namespace: dict[str, Any] = {asm.name: device_function(asm) for asm in functions}
    namespace |= {"cuda": cuda, "cells_address": cells_address}
    namespace |= {
        kind: getattr(np, kind)
        for kind in ("float32", "float64", "uint8", "int32", "uint32", "uint64")
    }
    exec(compile(source, file, "exec"), namespace)
    return namespace[name]


def _python(body: KernelIR, name: str, pointers: bool = False) -> Any:
    source, functions = _write(body, name, pointers)
    return _function(source, name, tuple(functions))


@cache
def _dispatcher(function: Any, threads: int) -> Any:
    return cuda.jit(launch_bounds=(threads, 1))(function)


def kernel(body: KernelIR, name: str) -> Any:
    """Return the ``numba.cuda`` dispatcher: ``kernel[1, threads, 0, shared_bytes](*cells)``.

    Bodies with one text share a dispatcher, so each is compiled once.
    """
    return _dispatcher(_python(body, name), body.launched)


def check_body(body: KernelIR, name: str, arch: str) -> None:
    """Refuse a target that lacks a statement of a kernel.

    Raises:
        LayoutError: the target lacks it; those that have it are named. Or it is unknown.
    """
    ptx.check_target(_write(body, name)[1], arch, "target")


def _signature(body: KernelIR, pointers: bool = False) -> tuple[Any, ...]:
    """Return the types of a kernel's parameters."""
    if pointers or body.scalars:
        kinds = {"s32": types.int32, "f32": types.float32}
        scalars = (kinds[scalar.token] for scalar in body.scalars)
        return (*(types.uint64 for _ in body.params), *scalars)
    native: dict[str, Any] = {"f32": types.float32, "f64": types.float64}
    return tuple(
        (native.get(buffer.dtype.token) or getattr(types, buffer.dtype.word))[::1]
        for buffer in body.params
    )


def compile_ltoir(body: KernelIR, name: str, arch: str) -> bytes:
    """Return the kernel as LTO-IR, which the linker compiles knowing that it is the whole program.

    Of PTX it must believe that other code may be linked to it, and then ignores ``setmaxnreg``. Its
    parameters are pointers (to the tensor map of a matrix that is read or written by boxes), then
    the scalars.

    Raises:
        LayoutError: the target lacks an instruction.
    """
    check_body(body, name, arch)
    code, _ = cuda.compile(
        _python(body, name, pointers=True),
        types.void(*_signature(body, pointers=True)),
        cc=compute_capability(arch),
        launch_bounds=(body.launched, 1),
        output="ltoir",
        abi="numba",
        device=False,
    )
    return bytes(code)


def compile_ptx(body: KernelIR, name: str, arch: str) -> str:
    """Return the kernel as PTX for a target; no GPU is needed.

    Raises:
        LayoutError: the target lacks an instruction, or is none that the compiler knows.
    """
    capability = compute_capability(arch)
    check_body(body, name, arch)
    text, _ = cuda.compile_ptx(
        _python(body, name), _signature(body), cc=capability, launch_bounds=(body.launched, 1)
    )
    made = re.search(r"^\.target (\w+)", str(text), re.MULTILINE)
    if made is None or made[1] != arch:
        nearest = "no target" if made is None else made[1]
        raise LayoutError(f"target: the compiler does not know {arch}; it would take {nearest}")
    return str(text)
