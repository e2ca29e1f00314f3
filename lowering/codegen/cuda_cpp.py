"""A KernelIR as CUDA C++ text: one ``extern "C"`` kernel, one device function per instruction."""

from __future__ import annotations

from lowering.codegen.barriers import barriers_elsewhere
from lowering.codegen.kernel_text import calls, made, written
from lowering.codegen.products import shared_operands
from lowering.codegen.register_words import variables
from lowering.codegen.writer import MmaCall, Writer
from lowering.ir import names
from lowering.ir.index import Style
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import Op
from lowering.isa import ptx
from lowering.isa.mma import MmaInst
from lowering.isa.ptx import Asm

_TYPES = {"r": "uint32_t", "f": "float", "d": "double", "l": "uint64_t"}


class Cpp:
    """CUDA C++."""

    style: Style = "c"

    def call(self, asm: Asm, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> str:
        """Call with outputs as references; those that are new are declared on the way."""
        new = [name for name in outputs if name.startswith("t") and name[1:].isdigit()]
        declared = f"{_TYPES[asm.outputs[0]]} {', '.join(new)}; " if new else ""
        return f"{declared}{asm.name}({', '.join((*outputs, *inputs))});"

    def mma(self, call: MmaCall, d: tuple[str, ...], inputs: tuple[str, ...]) -> str:
        """Call in place."""
        return f"{ptx.mma_name(*call)}({', '.join((*d, *inputs))});"

    def assign(self, variable: str, value: str) -> str:
        """Assign."""
        return f"{variable} = {value};"

    def number(self, value: int, token: str) -> str:
        """Write a constant."""
        return {"f32": f"{value}.0f", "f64": f"{value}.0"}.get(token, f"{value}u")

    def word(self, value: str) -> str:
        """Write an integer expression as a 32-bit word."""
        return f"static_cast<uint32_t>({value})"

    def address(self, space: str, base: str, offset: str) -> str:
        """Add a byte offset."""
        return base if offset == "0" else f"{base} + {offset}"

    def begin_if(self, condition: str) -> str:
        """Open a branch."""
        return f"if ({condition}) {{"

    def begin_else(self) -> str:
        """Turn to the other branch."""
        return "} else {"

    def begin_loop(self, variable: str, extent: str) -> str:
        """Open a loop."""
        kind = "int" if extent.isdecimal() else "int64_t"
        return f"for ({kind} {variable} = 0; {variable} < {extent}; ++{variable}) {{"

    def let(self, variable: str, value: str) -> str:
        """Name an integer."""
        return f"const int64_t {variable} = {value};"

    def choice(self, conditions: list[str], one: str, other: str) -> str:
        """Write a conditional expression."""
        return f"({self.all_of(conditions)} ? {one} : {other})"

    def end(self) -> str:
        """Close."""
        return "}"

    def sync(self, scope: str) -> str:
        """Write a barrier."""
        return "__syncthreads();" if scope == "cta" else "__syncwarp();"

    def all_of(self, conditions: list[str]) -> str:
        """Join conditions."""
        return " && ".join(conditions)


def _function(asm: Asm) -> list[str]:
    """Return the device function of an asm statement."""
    outputs = [(_TYPES[kind], f"o{i}") for i, kind in enumerate(asm.outputs)]
    inputs = [(_TYPES[kind], f"i{i}") for i, kind in enumerate(asm.inputs)]
    arguments = [f"{kind}& {name}" for kind, name in outputs]
    arguments += [f"{kind} {name}" for kind, name in inputs]
    sign = "+" if asm.in_place else f"={asm.early}"
    into = ", ".join(f'"{sign}{k}"({n})' for k, (_, n) in zip(asm.outputs, outputs, strict=True))
    source = ", ".join(f'"{k}"({n})' for k, (_, n) in zip(asm.inputs, inputs, strict=True))
    statement, clobbers = ("asm", "") if asm.pure else ("asm volatile", ' : "memory"')
    return [
        f"__device__ __forceinline__ void {asm.name}({', '.join(arguments)}) {{",
        f'  {statement}("{asm.c_text()}" : {into} : {source}{clobbers});',
        "}",
    ]


def _mma_function(inst: MmaInst, selectors: tuple[int, ...]) -> list[str]:
    """Return the device function of an mma, in place on D."""
    d, a, b = ptx.counts(inst)
    kinds = {role: ptx.letter(inst.fragment(role).dtype) for role in "DAB"}
    arguments = [f"{_TYPES[kinds['D']]}& d{i}" for i in range(d)]
    inputs = [(kinds["A"], f"a{i}") for i in range(a)] + [(kinds["B"], f"b{i}") for i in range(b)]
    inputs += [("r", role.lower()) for role in inst.extras]
    arguments += [f"{_TYPES[kind]} {name}" for kind, name in inputs]
    into = ", ".join(f'"+{kinds["D"]}"(d{i})' for i in range(d))
    source = ", ".join(f'"{kind}"({name})' for kind, name in inputs)
    return [
        f"// {inst.fragment('A').source}",
        f"__device__ __forceinline__ void {ptx.mma_name(inst, selectors)}(",
        f"    {', '.join(arguments)}) {{",
        f'  asm volatile("{ptx.mma_in_place(inst, selectors)}"',
        f"               : {into}",
        f"               : {source});",
        "}",
    ]


def check(body: KernelIR, name: str) -> None:
    """Refuse a body that cannot be written, or whose target lacks one of its instructions.

    Both texts call the same functions; this writes one of them and looks at what it calls.

    Raises:
        LayoutError: an operation that no text has, an instruction that the target lacks, or one
            name for two things.
    """
    writer = written(body, Cpp())
    names.check_made(made(writer, name), name)
    ptx.check_target(calls(writer), body.arch, "lower")


def cuda_source(body: KernelIR, name: str, title: str) -> str:
    """Return a body as CUDA C++.

    Parameters are pointers to the buffers' cells, element bits as unsigned integers where C++ has
    no type. Shared memory over 48 KiB is dynamic: launch with ``shared_bytes``.

    Args:
        body: what to write.
        name: of the kernel.
        title: a comment for the first line.
    """
    return Source(body, name, title).text


class Source:
    """The text of a body, and what each of its lines was written for.

    ``asm``: the asm statements that it calls.
    """

    def __init__(self, body: KernelIR, name: str, title: str) -> None:
        """Write; arguments as of :func:`cuda_source`."""
        writer = written(body, Cpp())
        before = _before(writer, body, name, title)
        self.text = "\n".join([*before, *writer.lines, "}"]) + "\n"
        self.asm = calls(writer)
        self._first, self._origins = len(before) + 1, writer.origins

    def origin(self, line: int) -> Op | None:
        """Return the operation that a line, from 1 on, was written for; None before them all."""
        return self._origins.get(line - self._first)


def _before(writer: Writer, body: KernelIR, name: str, title: str) -> list[str]:
    """Return the lines before the first operation: device functions, parameters, variables."""
    lines = [f"// {title}", "#include <cstdint>", ""]
    for inst, selectors in writer.instructions.values():
        lines += [*_mma_function(inst, selectors), ""]
    for asm in writer.functions.values():
        lines += [*_function(asm), ""]
    outputs = {buffer.name for buffer in body.written}
    arguments = []
    for buffer in body.params:
        kind = {"f32": "float", "f64": "double"}.get(buffer.dtype.token, f"{buffer.dtype.word}_t")
        const = "" if buffer.name in outputs else "const "
        arguments.append(f"{const}{kind}* {buffer.name}_")
    sizes = [scalar.name for scalar in body.scalars if scalar.token == "s32"]
    for scalar in body.scalars:
        kind, mark = ("int32_t", "_") if scalar.token == "s32" else ("float", "")
        arguments.append(f"const {kind} {scalar.name}{mark}")
    together = f"__cluster_dims__({body.cluster}, 1, 1) " if body.cluster > 1 else ""
    # One CTA suffices: else ptxas may spill registers to make room for several.
    lines.append(f'extern "C" __global__ void {together}__launch_bounds__({body.launched}, 1)')
    lines.append(f"{name}({', '.join(arguments)}) {{")
    lines.append("  const int thread = threadIdx.x;")
    if body.placed:
        lines.append("  const int64_t bx = blockIdx.x, by = blockIdx.y;")
    lines.extend(f"  const int64_t {size} = {size}_;" for size in sizes)
    for buffer in body.params:
        lines.append(
            f"  const uint64_t {buffer.name}_base = reinterpret_cast<uint64_t>({buffer.name}_);"
        )
    if body.shared_bytes:
        extent = "" if body.shared_bytes > 48 * 1024 else str(body.shared_bytes)
        extern = "extern " if not extent else ""
        lines.append(f"  {extern}__shared__ __align__(1024) unsigned char shared[{extent}];")
        lines.append(
            "  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(shared));"
        )
        for shared_name, offset in body.shared_places.items():
            lines.append(f"  const uint32_t {shared_name}_base = base + {offset};")
    if body.barriers:
        lines.append("  uint32_t tried;")
    if body.tensor:
        lines.append("  uint32_t tensor_base;")
    lines.extend(f"  uint32_t {name};" for name in barriers_elsewhere(body).values())
    lines.extend(f"  uint32_t {name};" for name in shared_operands(body))
    first = body.read_unwritten()
    for buffer in body.registers:
        zero = " = 0" * (buffer.name in first)
        registers = ", ".join(f"{variable}{zero}" for variable in variables(buffer))
        lines.append(f"  {_TYPES[ptx.letter(buffer.dtype.token)]} {registers};")
    return lines
