"""A nest as a ``numba.cuda`` kernel whose mma is inline PTX. The only importer of numba."""

from __future__ import annotations

import linecache
import re
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import cuda, types
from numba.core import cgutils
from numba.cuda.core.errors import NumbaPerformanceWarning
from numba.cuda.extending import intrinsic

from layoutalg import LayoutError
from lowering import ptx
from lowering.instructions import MmaInst
from lowering.listing import parameter_of, parameters, transfer
from lowering.nest import Nest
from lowering.warp import Matrix, check_inputs, poison

_NUMBA = {"f": types.float32, "d": types.float64, "r": types.uint32}
_LLVM: dict[str, Callable[[], ir.Type]] = {
    "f": ir.FloatType,
    "d": ir.DoubleType,
    "r": lambda: ir.IntType(32),
}


@cache
def mma_intrinsic(inst: MmaInst) -> Any:
    """Return a device function ``mma(c, a, b) -> d`` on tuples of registers, one inline asm.

    The asm has side effects and is convergent: it must not be moved under a branch.
    """
    d_count, a_count, b_count = ptx.counts(inst)
    d_letter = ptx.letter(inst, "D")
    tuples = {
        "D": types.UniTuple(_NUMBA[d_letter], d_count),
        "A": types.UniTuple(_NUMBA[ptx.letter(inst, "A")], a_count),
        "B": types.UniTuple(_NUMBA[ptx.letter(inst, "B")], b_count),
    }

    def typed(typingctx: Any, c: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = [
                value
                for tuple_ in (args[1], args[2], args[0])
                for value in cgutils.unpack_tuple(builder, tuple_)
            ]
            out = _LLVM[d_letter]()
            result = ir.LiteralStructType([out] * d_count) if d_count > 1 else out
            function = ir.FunctionType(result, [value.type for value in values])
            asm = ir.InlineAsm(
                function, ptx.mma_text(inst, "$", False), ptx.mma_constraints(inst), True
            )
            call = builder.call(asm, values)
            call.attributes.add("convergent")
            parts = [call]
            if d_count > 1:
                parts = [builder.extract_value(call, i) for i in range(d_count)]
            return context.make_tuple(builder, signature.return_type, parts)

        return tuples["D"](tuples["D"], tuples["A"], tuples["B"]), generate

    return intrinsic(typed)


def kernel_source(nest: Nest) -> str:
    """Return the Python text of the kernel, one statement per register operation.

    Parameters are flat arrays, one per buffer: element bits as unsigned integers for 16-bit types.
    """
    lines = [f"def gemm({', '.join(parameters(nest))}):", "    thread = cuda.threadIdx.x"]
    for role in nest.inputs:
        move = transfer(nest, role)
        array = parameter_of(nest, role)
        zero = "float32(0)" if move.buffer.dtype.token == "f32" else f"{move.buffer.dtype.word}(0)"
        for register, place in move.places.items():
            value = f"{array}[{place.index}]"
            if place.guards:
                condition = " and ".join(guard.python() for guard in place.guards)
                value = f"{value} if {condition} else {zero}"
            lines.append(f"    {role.lower()}{register} = {value}")
    for step in nest.steps:
        if step[0] == "zero":
            lines.append(f"    d{step[1]} = float32(0)")
        elif step[0] == "copy":
            lines.append(f"    d{step[1]} = c{step[2]}")
        else:
            into = "".join(f"d{r}, " for r in step[1])
            left = "".join(f"{_word(nest, 'A', w)}, " for w in step[2])
            right = "".join(f"{_word(nest, 'B', w)}, " for w in step[3])
            lines.append(f"    ({into}) = mma(({into}), ({left}), ({right}))")
    for register, place in transfer(nest, "D").places.items():
        store = f"D[{place.index}] = d{register}"
        if place.guards:
            lines.append(f"    if {' and '.join(guard.python() for guard in place.guards)}:")
            store = f"    {store}"
        lines.append(f"    {store}")
    return "\n".join(lines) + "\n"


def _word(nest: Nest, role: str, word: int) -> str:
    """Return the 32-bit word of packed elements, the lower register in the low bits."""
    fragment = nest.instruction.fragment(role)
    first = word * fragment.pack
    parts = [f"uint32({role.lower()}{first})"]
    for i in range(1, fragment.pack):
        parts.append(f"(uint32({role.lower()}{first + i}) << uint32({i * fragment.bits}))")
    return " | ".join(parts)


@cache
def _function(source: str, instruction: MmaInst) -> Any:
    """Compile a kernel text to a Python function, with its lines kept for tracebacks."""
    name = f"<layoutalg {instruction} {abs(hash(source)):x}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace: dict[str, Any] = {
        "cuda": cuda,
        "mma": mma_intrinsic(instruction),
        "float32": np.float32,
        "uint16": np.uint16,
        "uint32": np.uint32,
    }
    exec(compile(source, name, "exec"), namespace)
    return namespace["gemm"]


@cache
def _dispatcher(source: str, instruction: MmaInst) -> Any:
    return cuda.jit(_function(source, instruction))


def kernel(nest: Nest) -> Any:
    """Return the ``numba.cuda`` dispatcher; launch it as ``kernel[1, threads](*arrays)``.

    Programs with one text share a dispatcher, so each is compiled once.
    """
    return _dispatcher(kernel_source(nest), nest.instruction)


def _signature(nest: Nest) -> tuple[Any, ...]:
    kinds = []
    for role in parameters(nest):
        dtype = nest.buffer(role).dtype
        kinds.append(types.float32[::1] if dtype.token == "f32" else types.uint16[::1])
    return tuple(kinds)


def compute_capability(arch: str) -> tuple[int, ...] | tuple[int, int, str]:
    """Return (major, minor) of ``sm_90``, with the suffix of ``sm_90a``.

    Raises:
        LayoutError: not of that form.

    >>> compute_capability("sm_120"), compute_capability("sm_90a")
    ((12, 0), (9, 0, 'a'))
    """
    found = re.fullmatch(r"sm_([0-9]+)([0-9])([af]?)", arch) if isinstance(arch, str) else None
    if found is None:
        raise LayoutError(f"target: must look like sm_90 or sm_90a; got {arch!r}")
    version = int(found[1]), int(found[2])
    return (*version, found[3]) if found[3] else version


def compile_ptx(nest: Nest, arch: str) -> str:
    """Return the kernel as PTX for a target; no GPU is needed.

    Raises:
        LayoutError: the target lacks the instruction, or is none that the compiler knows.
    """
    check_target(nest.instruction, arch)
    function = _function(kernel_source(nest), nest.instruction)
    text, _ = cuda.compile_ptx(function, _signature(nest), cc=compute_capability(arch))
    made = re.search(r"^\.target (\w+)", str(text), re.MULTILINE)
    if made is None or made[1] != arch:
        nearest = "no target" if made is None else made[1]
        raise LayoutError(f"target: the compiler does not know {arch}; it would take {nearest}")
    return str(text)


def check_target(inst: MmaInst, arch: str) -> None:
    """Refuse a target older than the instruction's first.

    Raises:
        LayoutError: the target lacks it; the first that has it is named.
    """
    have, need = compute_capability(arch)[:2], compute_capability(inst.min_arch)[:2]
    if have < need:
        raise LayoutError(f"target: {arch} lacks {inst.ptx}; it needs {inst.min_arch} or newer")


def device_available() -> bool:
    """Say whether there is a CUDA device to run on."""
    return bool(cuda.is_available())


def run(nest: Nest, inputs: dict[str, Any]) -> Matrix:
    """Run the kernel on the GPU: as :func:`lowering.warp.simulate`, on the device.

    Raises:
        LayoutError: wrong matrices, or there is no CUDA device.
    """
    matrices = check_inputs(nest, inputs)
    if not device_available():
        raise LayoutError("run: no CUDA device is available; simulate() runs on the NumPy warp")
    arrays = []
    for role in parameters(nest):
        buffer = nest.buffer(role)
        matrix = matrices.get(buffer.name)
        if matrix is None:
            matrix = poison(buffer.dtype.numpy, buffer.shape)
        flat = np.ascontiguousarray(matrix).reshape(-1)
        bits = flat if buffer.dtype.token == "f32" else flat.view(buffer.dtype.word)
        arrays.append(cuda.to_device(bits))
    with warnings.catch_warnings():
        # One CTA is what a tile program is: its occupancy is no oversight.
        warnings.simplefilter("ignore", NumbaPerformanceWarning)
        kernel(nest)[1, nest.threads](*arrays)
    buffer = nest.buffer("D")
    return np.asarray(arrays[-1].copy_to_host()).view(buffer.dtype.numpy).reshape(buffer.shape)
