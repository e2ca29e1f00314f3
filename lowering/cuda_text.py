"""A nest as CUDA C++ text: one kernel, one device function per instruction."""

from __future__ import annotations

from lowering import ptx
from lowering.index import Guard
from lowering.listing import parameter_of, parameters, transfer
from lowering.nest import Nest

_TYPES = {"f32": "float", "f64": "double", "s32": "int32_t"}


def element_type(token: str, bits: int) -> str:
    """Return the C++ type that holds one element: its bits where C++ has no such number.

    >>> element_type("f32", 32), element_type("bf16", 16)
    ('float', 'uint16_t')
    """
    return _TYPES.get(token, f"uint{max(bits, 8)}_t")


def _helper(nest: Nest) -> list[str]:
    inst = nest.instruction
    d, a, b = ptx.counts(inst)
    kind = element_type(inst.d.token, inst.d.bits)
    name = inst.name.replace(".", "_")
    outputs = ", ".join(f'"+{ptx.letter(inst, "D")}"(d[{i}])' for i in range(d))
    inputs = [f'"{ptx.letter(inst, "A")}"(a[{i}])' for i in range(a)]
    inputs += [f'"{ptx.letter(inst, "B")}"(b[{i}])' for i in range(b)]
    return [
        f"// {inst.fragment('A').source}",
        f"__device__ __forceinline__ void {name}(",
        f"    {kind} (&d)[{d}], const uint32_t (&a)[{a}], const uint32_t (&b)[{b}]) {{",
        f'  asm volatile("{ptx.mma_text(inst, "%", True)}"',
        f"               : {outputs}",
        f"               : {', '.join(inputs)});",
        "}",
    ]


def cuda_source(nest: Nest) -> str:
    """Return the program as CUDA C++ with an ``extern "C"`` kernel named ``gemm``.

    Parameters are the buffers, row-major, element bits as unsigned integers where C++ has no type.
    """
    inst = nest.instruction
    d_count, a_count, b_count = ptx.counts(inst)
    kind = element_type(inst.d.token, inst.d.bits)
    helper = inst.name.replace(".", "_")
    arguments = []
    for role in parameters(nest):
        dtype = nest.buffer(role).dtype
        const = "" if role == "D" else "const "
        arguments.append(f"{const}{element_type(dtype.token, dtype.bits)}* __restrict__ {role}")
    lines = [
        f"// {nest.call}",
        "#include <cstdint>",
        "",
        *_helper(nest),
        "",
        f'extern "C" __global__ void __launch_bounds__({nest.threads})',
        f"gemm({', '.join(arguments)}) {{",
        "  const int thread = threadIdx.x;",
    ]
    for role in nest.inputs:
        move = transfer(nest, role)
        dtype = move.buffer.dtype
        array = parameter_of(nest, role)
        for register, place in move.places.items():
            value = f"{array}[{place.index.c()}]"
            if place.guards:
                value = f"({_condition(place.guards)}) ? {value} : {_zero(dtype.token)}"
            name = f"{role.lower()}{register}"
            lines.append(f"  const {element_type(dtype.token, dtype.bits)} {name} = {value};")
    tiles: dict[int, tuple[str, int]] = {}
    for step in nest.steps:
        if step[0] == "mma" and step[1][0] not in tiles:
            name = f"D{len(tiles) // d_count}"
            tiles.update({register: (name, i) for i, register in enumerate(step[1])})
    for name in dict.fromkeys(name for name, _ in tiles.values()):
        lines.append(f"  {kind} {name}[{d_count}];")
    for step in nest.steps:
        if step[0] == "zero":
            name, i = tiles[step[1]]
            lines.append(f"  {name}[{i}] = 0;")
        elif step[0] == "copy":
            name, i = tiles[step[1]]
            lines.append(f"  {name}[{i}] = c{step[2]};")
        else:
            name, _ = tiles[step[1][0]]
            lines.append("  {")
            for letter, words, count in (("a", step[2], a_count), ("b", step[3], b_count)):
                values = ", ".join(_word(letter, word, nest) for word in words)
                lines.append(f"    const uint32_t {letter}[{count}] = {{{values}}};")
            lines.append(f"    {helper}({name}, a, b);")
            lines.append("  }")
    move = transfer(nest, "D")
    for register, place in move.places.items():
        name, i = tiles[register]
        store = f"D[{place.index.c()}] = {name}[{i}];"
        lines.append(f"  if ({_condition(place.guards)}) {store}" if place.guards else f"  {store}")
    lines.append("}")
    return "\n".join(lines) + "\n"


def _condition(guards: tuple[Guard, ...]) -> str:
    return " && ".join(guard.c() for guard in guards)


def _zero(token: str) -> str:
    return "0.0f" if token == "f32" else "0"


def _word(letter: str, word: int, nest: Nest) -> str:
    """Return the 32-bit word of packed elements, the lower register in the low bits."""
    fragment = nest.instruction.fragment(letter.upper())
    first = word * fragment.pack
    parts = [
        f"uint32_t({letter}{first + i}) << {i * fragment.bits}"
        if i
        else f"uint32_t({letter}{first})"
        for i in range(fragment.pack)
    ]
    return " | ".join(parts)
