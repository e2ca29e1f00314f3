"""Runs the text of a kernel, Python or CUDA C++, for all threads of a CTA in lockstep, in NumPy.

Nothing is taken from the package but the text, of casts too: loads, stores and the mma are written
out here from the PTX ISA. So an address, a word, a register or an operand that the text gets wrong
shows in the product.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.support import ptx_words

Array = npt.NDArray[Any]
ELEMENTS: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
CELLS: dict[str, Any] = {
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
SPACING = 1 << 24  # bytes between the bases of two parameters
MMA = re.compile(r"mma\.sync\.aligned\.m16n8k(8|16)\.row\.col\.f32\.(f16|bf16)\.\2\.f32")
ACCESS = re.compile(r"(ld|st)\.(?:global|shared)(?:\.v([24]))?\.(u8|u16|u32|f32|f64)")
MATRIX = re.compile(r"(ld|st)matrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared\.b16")
ASYNC = re.compile(r"cp\.async\.(?:cg|ca)\.shared\.global")
WGMMA = re.compile(
    r"wgmma\.m64n(\d+)k16\.f32\.f16\.f16\.(ss|rs)([01]+)((?:\.h[0-9a-f]+)+)(?:\.(add|maybe))?"
)
DESCRIPTOR = re.compile(r"descriptor\.([0-9a-f]+)")


def halves(word: Array, dtype: str) -> tuple[Array, Array]:
    """Split words into their two elements: the low half is the first."""
    low, high = (word & np.uint32(0xFFFF)).astype(np.uint16), (word >> np.uint32(16))
    return low.view(ELEMENTS[dtype]), high.astype(np.uint16).view(ELEMENTS[dtype])


def m16n8(k: int, dtype: str, a: Sequence[Array], b: Sequence[Array], c: Sequence[Array]) -> Any:
    """Return D of ``mma.m16n8k{k}``, each register an array over the threads.

    A word r: row g + 8*(r % 2), columns 2t + 8*(r // 2) + {0, 1}. B word r: rows 2t + 8r + {0, 1},
    column g. C and D register r: row g + 8*(r // 2), column 2t + r % 2 (PTX ISA, Matrix Fragments
    for mma.m16n8k16 with floating point type).
    """
    lane = np.arange(32)
    g, t = lane // 4, lane % 4
    d = [np.empty(len(c[0]), dtype=np.float32) for _ in range(4)]
    for first in range(0, len(c[0]), 32):
        warp = slice(first, first + 32)
        left, right, total = np.empty((16, k)), np.empty((k, 8)), np.empty((16, 8))
        for r, word in enumerate(a):
            for p, half in enumerate(halves(word[warp], dtype)):
                left[g + 8 * (r % 2), 2 * t + 8 * (r // 2) + p] = half
        for r, word in enumerate(b):
            for p, half in enumerate(halves(word[warp], dtype)):
                right[2 * t + 8 * r + p, g] = half
        for r, register in enumerate(c):
            total[g + 8 * (r // 2), 2 * t + r % 2] = register[warp]
        total += left @ right
        for r, register in enumerate(d):
            register[warp] = total[g + 8 * (r // 2), 2 * t + r % 2]
    return tuple(d)


def operand(bits: int, rows: int, transposed: bool) -> Array:
    """Return the byte addresses of (rows, 16) 16-bit elements that a matrix descriptor names.

    "Canonical Layouts" of the PTX ISA, T = 8 elements to 16 bytes, c = 1, 2, 4 or 8: K-major
    ((8,m),(8,2)):((8c,SBO),(1,LBO)), or (1,8) for K where swizzled; MN-major
    ((8,c,m),(8,2)):((1,8,LBO),(8c,SBO)), SBO and LBO exchanged where c is 1.
    """
    start, leading, stride = ((bits >> at & 0x3FFF) * 16 for at in (0, 16, 32))
    assert bits >> 49 & 7 == 0
    chunks = {0: 1, 1: 8, 2: 4, 3: 2}[bits >> 62]
    row, k = np.indices((rows, 16))
    if transposed:
        along, across = (leading, stride) if chunks > 1 else (stride, leading)
        address = row % 8 * 2 + row // 8 % chunks * 16 + row // 8 // chunks * along
        address = address + k % 8 * chunks * 16 + k // 8 * across
    else:
        address = row % 8 * chunks * 16 + row // 8 * stride
        address = address + k % 8 * 2 + k // 8 * (leading if chunks == 1 else 16)
    address = address + start
    return address ^ (address >> 7 & chunks - 1) << 4


def m64n16k16(
    memory: Array, n: int, trans: str, a: Sequence[Array], b: Array, d: Sequence[Array]
) -> Any:
    """Return D of a ``wgmma`` with k = 16; A in four words, or a descriptor.

    Per warp w of the warpgroup as :func:`m16n8`, 16 rows each, columns 8 at a time (PTX ISA,
    Register Fragments for wgmma.mma_async.m64nNk16).
    """
    out = [np.empty(len(b), dtype=np.float32) for _ in range(n // 2)]
    lane = np.arange(128)
    row, t = 16 * (lane // 32) + lane % 32 // 4, lane % 4

    def shared(word: Array, rows: int, transposed: bool) -> Array:
        assert (word == word[0]).all(), "one descriptor per warpgroup"
        where = operand(int(word[0]), rows, transposed)
        return np.stack([memory[where], memory[where + 1]], -1).view(np.float16)[..., 0]

    for first in range(0, len(b), 128):
        group = slice(first, first + 128)
        if len(a) == 1:
            left = shared(a[0][group], 64, trans[0] == "1").astype(float)
        else:
            left = np.empty((64, 16))
            for r, word in enumerate(a):
                for p, half in enumerate(halves(word[group], "f16")):
                    left[row + 8 * (r % 2), 2 * t + 8 * (r // 2) + p] = half
        product = left @ shared(b[group], n, trans[-1] == "1").astype(float).T
        for r in range(n // 2):
            at = row + 8 * (r // 2 % 2), 8 * (r // 4) + 2 * t + r % 2
            out[r][group] = product[at] + (d[r][group] if d else 0)
    return tuple(out)


class _Elementwise(ast.NodeTransformer):
    """Turns conditions on scalars into conditions on arrays."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Turn ``a and b`` into ``a & b``."""
        self.generic_visit(node)
        result = node.values[0]
        for value in node.values[1:]:
            result = ast.BinOp(result, ast.BitAnd(), value)
        return result


@dataclass
class Machine:
    """The threads of a CTA: variables are arrays over them, memory is bytes."""

    threads: int
    memory: list[npt.NDArray[np.uint8]]
    functions: dict[str, Callable[..., Any]]
    names: dict[str, Any] = field(default_factory=dict)
    active: Any = True

    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Run statements in the active threads."""
        for statement in statements:
            if isinstance(statement, ast.If):
                self.branch(statement)
            elif isinstance(statement, ast.For):
                self.loop(statement)
            elif isinstance(statement, ast.Assign):
                self.assign(statement.targets[0], self.value(statement.value))
            elif isinstance(statement, ast.Expr):
                self.value(statement.value)
            else:
                raise AssertionError(f"a statement of no known form: {ast.unparse(statement)}")

    def branch(self, statement: ast.If) -> None:
        """Run both sides, each in its threads."""
        before, test = self.active, self.value(statement.test)
        self.active = before & test
        self.run(statement.body)
        self.active = before & ~test
        self.run(statement.orelse)
        self.active = before

    def loop(self, statement: ast.For) -> None:
        """Run a loop over a range of numbers; its variable must hide nothing."""
        assert isinstance(statement.target, ast.Name)
        assert statement.target.id not in (self.names | self.functions)
        for step in self.value(statement.iter):
            self.names[statement.target.id] = step
            self.run(statement.body)
        del self.names[statement.target.id]

    def value(self, node: ast.expr) -> Any:
        """Evaluate an expression for all threads."""
        tree = ast.fix_missing_locations(ast.Expression(_Elementwise().visit(node)))
        return eval(compile(tree, "<kernel>", "eval"), {**self.functions, **self.names})

    def assign(self, target: ast.expr, value: Any) -> None:
        """Set a variable, or several from a tuple, in the active threads."""
        if isinstance(target, ast.Tuple):
            assert len(target.elts) == len(value)
            for each, part in zip(target.elts, value, strict=True):
                self.assign(each, part)
            return
        assert isinstance(target, ast.Name)
        if isinstance(value, (np.ndarray, np.generic)):
            before = self.names.get(target.id, np.zeros((), value.dtype))
            value = np.where(self.active, value, before)
            value = np.broadcast_to(value, (self.threads,)).copy()
        self.names[target.id] = value

    def cells(self, address: Any, count: int, size: int) -> tuple[int, Array, Array]:
        """Return the parameter, the active threads, and the bytes that each of them touches."""
        address = np.broadcast_to(np.asarray(address, dtype=np.int64), (self.threads,))
        threads = np.flatnonzero(np.broadcast_to(self.active, (self.threads,)))
        address = address[threads]
        (base,) = {int(number) for number in address // SPACING} or {0}
        start = address % SPACING
        assert (start % (count * size) == 0).all(), "an access that is not aligned"
        assert (start + count * size <= len(self.memory[base])).all(), "outside the memory"
        return base, threads, start[:, None] + np.arange(count * size)

    def load(self, count: int, kind: str, address: Any) -> Any:
        """Load a vector in the active threads; a lone narrow cell comes as a 32-bit word."""
        cell = np.dtype(CELLS[kind])
        base, threads, where = self.cells(address, count, cell.itemsize)
        values = np.zeros((self.threads, count), dtype=cell)
        values[threads] = self.memory[base][where].view(cell)
        if cell.itemsize < 4:
            values = values.astype(np.uint32)
        return values[:, 0] if count == 1 else tuple(values.T)

    def store(self, count: int, kind: str, address: Any, *values: Any) -> None:
        """Store a vector in the active threads; threads that write one cell must agree."""
        cell = np.dtype(CELLS[kind])
        base, threads, where = self.cells(address, count, cell.itemsize)
        assert len(values) == count
        rows = np.stack([np.asarray(value)[threads] for value in values], axis=-1).astype(cell)
        data = np.ascontiguousarray(rows).view(np.uint8)
        self.memory[base][where] = data
        assert (self.memory[base][where] == data).all(), "threads write one cell differently"

    def copy(self, into: Any, source: Any, size: int) -> None:
        """Copy bytes from memory to memory; threads that write one cell must agree."""
        base, _, where = self.cells(source, 1, size)
        data = self.memory[base][where].copy()
        base, _, where = self.cells(into, 1, size)
        self.memory[base][where] = data
        assert (self.memory[base][where] == data).all(), "threads write one cell differently"

    def rows(self, address: Any, j: int, transposed: bool) -> Array:
        """Return the bytes of matrix j that each lane moves as one 32-bit register.

        Lane 8j + i gives the address of row i, 16 bytes. Register j of lane l is row l // 4,
        elements 2*(l % 4) and the next; of the transposed matrix where ``.trans`` says so (PTX ISA,
        ldmatrix).
        """
        base, threads, where = self.cells(address, 1, 16)
        assert base == 0
        warps = threads.reshape(-1, 32)
        assert (warps == warps[:, :1] + np.arange(32)).all(), "a matrix instruction of some lanes"
        assert (warps[:, 0] % 32 == 0).all(), "a matrix instruction of some lanes"
        lane = np.arange(len(threads))
        first = lane // 32 * 32 + 8 * j
        row, col = lane % 32 // 4, 2 * (lane % 4)
        elements = []
        for step in (0, 1):
            i, k = (col + step, row) if transposed else (row, col + step)
            elements.append(where[first + i, 2 * k])
        return np.stack([elements[0], elements[0] + 1, elements[1], elements[1] + 1], axis=-1)

    def load_matrices(self, count: int, transposed: bool, address: Any) -> Any:
        """Do ``ldmatrix``."""
        words = []
        for j in range(count):
            data = np.ascontiguousarray(self.memory[0][self.rows(address, j, transposed)])
            word = np.zeros(self.threads, dtype=np.uint32)
            word[np.broadcast_to(self.active, word.shape)] = data.view(np.uint32)[:, 0]
            words.append(word)
        return words[0] if count == 1 else tuple(words)

    def store_matrices(self, transposed: bool, address: Any, *values: Any) -> None:
        """Do ``stmatrix``."""
        for j, value in enumerate(values):
            word = np.asarray(value, dtype=np.uint32)
            word = word[np.broadcast_to(self.active, word.shape)]
            data = np.ascontiguousarray(word[:, None]).view(np.uint8)
            self.memory[0][self.rows(address, j, transposed)] = data


def instruction(machine: Machine, mnemonic: str) -> Callable[..., Any]:
    """Return what an instruction does, its inputs in the order of the kernel's call."""
    if found := MMA.fullmatch(mnemonic):
        k, dtype = int(found[1]), found[2]
        a, b = k // 4, k // 8

        def mma(*operands: Any) -> Any:
            assert len(operands) == a + b + 4
            return m16n8(k, dtype, operands[:a], operands[a : a + b], operands[a + b :])

        return mma
    if found := MATRIX.fullmatch(mnemonic):
        count, transposed = int(found[2]), bool(found[3])
        if found[1] == "st":
            return lambda address, *values: machine.store_matrices(transposed, address, *values)
        return lambda address: machine.load_matrices(count, transposed, address)
    if asm := ptx_words.known(mnemonic.replace(".", "_")):

        def compute(*values: Any) -> Any:
            found = ptx_words.run(*asm, values, machine.threads)
            return found[0] if len(found) == 1 else found

        return compute
    if mnemonic.startswith(("cp.async.commit_group", "cp.async.wait_group")):
        return lambda *operands: None
    if mnemonic in ("wgmma.fence", "wgmma.commit", "fence.proxy.async"):
        return lambda: None
    if mnemonic.startswith("wgmma.wait."):
        return lambda *operands: operands
    if mnemonic == "same.in.warp":
        return lambda word: np.repeat(np.broadcast_to(word, (machine.threads,))[::32], 32)
    if found := DESCRIPTOR.fullmatch(mnemonic):
        low = int(found[1], 16)
        return lambda address: np.broadcast_to(
            np.asarray(address, dtype=np.int64) >> 4 | low, (machine.threads,)
        )
    if found := WGMMA.fullmatch(mnemonic):
        n, words = int(found[1]), 1 if found[2] == "ss" else 4
        highs = [int(word, 16) << 32 for word in found[4].split(".h")[1:]]

        def multiply(*operands: Any) -> Any:
            maybe = found[5] == "maybe"
            assert len(operands) == words + 1 + maybe + (n // 2 if found[5] else 0)
            a, b, d = operands[:words], operands[words], operands[words + 1 + maybe :]
            if maybe and not operands[words + 1]:
                d = ()
            if words == 1:
                a = (np.asarray(a[0]).astype(object) | highs[0],)
            b = np.asarray(b).astype(object) | highs[-1]
            return m64n16k16(machine.memory[0], n, found[3], a, b, d)

        return multiply
    found = ACCESS.fullmatch(mnemonic)
    assert found is not None, f"an instruction of no known form: {mnemonic}"
    access = machine.load if found[1] == "ld" else machine.store
    return lambda *operands: access(int(found[2] or 1), found[3], *operands)


def mnemonic_of(name: str) -> str:
    """Return the instruction that a device function of a numba kernel is named after."""
    if found := re.fullmatch(r"mma_m16n8k(\d+)_(\w+)", name):
        return f"mma.sync.aligned.m16n8k{found[1]}.row.col.f32.{found[2]}.{found[2]}.f32"
    if found := re.fullmatch(r"(ld|st)matrix_x(\d)(_trans)?", name):
        trans = ".trans" if found[3] else ""
        return f"{found[1]}matrix.sync.aligned.m8n8.x{found[2]}{trans}.shared.b16"
    if found := re.fullmatch(r"cp_async_(commit|wait)\w*", name):
        return f"cp.async.{found[1]}_group"
    return name.replace("_", ".")


def run(
    source: str,
    threads: int,
    parameters: Sequence[Array],
    mnemonics: dict[str, str] | None = None,
    scalars: Mapping[str, Any] | None = None,
    block: tuple[int, int] = (0, 0),
) -> None:
    """Run the Python text of a kernel on its parameters, in place.

    Args:
        source: one function; addresses count bytes.
        threads: threads of the CTA.
        parameters: flat arrays, in order.
        mnemonics: device function -> instruction; by default functions are named after theirs.
        scalars: by name.
        block: the CTA's place in the grid.
    """
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    arguments = [argument.arg for argument in function.args.args]
    numbers = dict(scalars or {})
    assert [name.rstrip("_") for name in arguments[len(parameters) :]] == list(numbers)
    shared = np.full(1 << 18, 0xA5, dtype=np.uint8)
    bytes_of = [np.asarray(array).view(np.uint8) for array in parameters]
    machine = Machine(threads, [shared, *bytes_of], {})
    machine.names = {"thread": np.arange(threads)}
    for index, name in enumerate(arguments[: len(parameters)]):
        machine.names[name] = (index + 1) * SPACING
    for name, value in zip(arguments[len(parameters) :], numbers.values(), strict=True):
        machine.names[name] = np.float32(value) if isinstance(value, float) else value
    called = {
        node.func.id
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    machine.functions = {
        "cells_address": lambda base: base,
        "shared_address": lambda base: base,
        **{kind: getattr(np, kind) for kind in ("uint8", "uint32", "float32", "float64")},
        "uint64": lambda value: np.asarray(value, dtype=np.int64),
        "int64": lambda value: np.asarray(value, dtype=np.int64),
        "int32": lambda value: np.asarray(value, dtype=np.int64).astype(np.int32),
        "range": range,
    }
    machine.names["cuda"] = SimpleNamespace(
        syncthreads=lambda: None,
        syncwarp=lambda: None,
        shared=SimpleNamespace(array=lambda size, kind, alignment: 0),
    )
    for name in called - set(machine.functions):
        mnemonic = mnemonic_of(name) if mnemonics is None else mnemonics[name]
        if size := re.fullmatch(r"cp_async_(\d+)", name):
            machine.functions[name] = partial(machine.copy, size=int(size[1]))
        else:
            machine.functions[name] = instruction(machine, mnemonic)
    machine.names |= {"bx": block[0], "by": block[1]}
    first, *rest = function.body
    assert ast.unparse(first) in (
        "thread = cuda.threadIdx.x",
        "thread, bx, by = (cuda.threadIdx.x, cuda.blockIdx.x, cuda.blockIdx.y)",
    )
    machine.run(rest)


FUNCTION = re.compile(
    r"__device__ __forceinline__ void (\w+)\(\s*(.*?)\) \{\s*"
    r"asm(?: volatile)?\(\"(.*?)\"\s*:(.*?)\);\n\}",
    re.DOTALL,
)


def warpgroup_text(name: str, numbers: list[str]) -> str:
    """Return the statement that a function of the asynchronous tensor core must hold."""
    if found := DESCRIPTOR.fullmatch(name.replace("_", ".")):
        return f"shr.u32 %0, %1, 4; and.b32 %0, %0, 0x3fff; or.b32 %0, %0, 0x{found[1]};"
    if name == "same_in_warp":
        return "shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;"
    if name == "fence_proxy_async":
        return "fence.proxy.async.shared::cta;"
    if found := re.fullmatch(r"wgmma_wait_(\d+)\w*", name):
        return f"wgmma.wait_group.sync.aligned {found[1]};"
    if name in ("wgmma_fence", "wgmma_commit"):
        return name.replace("_", ".").replace("commit", "commit_group") + ".sync.aligned;"
    found = WGMMA.fullmatch(name.replace("_", "."))
    assert found is not None, name
    count = int(found[1]) // 2
    maybe = found[5] == "maybe"  # then the last number says whether to add
    highs, b = found[4].split(".h")[1:], numbers[-1 - maybe]
    adds = numbers[-1] if maybe else int(bool(found[5]))
    a = "a" if found[2] == "ss" else "{" + ",".join(numbers[count : count + 4]) + "}"
    made = f" .reg .b64 b; mov.b64 b, {{{b}, 0x{highs[-1]}}};"
    if a == "a":
        made = f" .reg .b64 a; mov.b64 a, {{{numbers[count]}, 0x{highs[0]}}};" + made
    return (
        f"{{ .reg .pred add;{made} setp.ne.b32 add, {adds}, 0; "
        f"wgmma.mma_async.sync.aligned.m64n{found[1]}k16.f32.f16.f16 "
        f"{{{','.join(numbers[:count])}}}, {a}, b, add, 1, 1, {', '.join(found[3])}; }}"
    )


def device_functions(source: str) -> dict[str, tuple[str, int]]:
    """Return the instruction of each device function, and how many references it takes first.

    The operands must be numbered as PTX orders them: D, A, B and C in place; the loaded registers,
    then the address; the address, then the stored ones.
    """
    found = {}
    for name, arguments, text, constraints in FUNCTION.findall(source):
        names = [argument.split()[-1] for argument in arguments.split(",") if argument]
        references = sum("& " in argument for argument in arguments.split(","))
        mnemonic, _, operands = text.rstrip(";").partition(" ")
        numbers = [f"%{i}" for i in range(len(names))]
        if name.startswith(("wgmma_", "descriptor_", "fence_", "same_")):
            assert re.findall(r'"[=+]?&?\w"\((\w+)\)', constraints) == names
            assert ('"+' in constraints) == name.startswith("wgmma_wait") | name.endswith(
                ("_add", "_maybe")
            )
            assert text == warpgroup_text(name, numbers)
            found[name] = (name.replace("_", "."), references)
            continue
        if asm := ptx_words.known(name):
            assert text == asm[0].replace("$", "%")
            letters = zip(asm[1] + asm[2], names, strict=True)
            assert re.findall(r'"=?(\w)"\((\w+)\)', constraints) == [*letters]
            found[name] = (name.replace("_", "."), references)
            continue
        if (mma := MMA.fullmatch(mnemonic)) is not None:
            a, b = int(mma[1]) // 4, int(mma[1]) // 8
            groups = [numbers[:4], numbers[4 : 4 + a], numbers[4 + a : 4 + a + b], numbers[:4]]
            want = ", ".join("{" + ",".join(group) + "}" for group in groups)
        elif mnemonic.startswith("cp.async"):
            size = name.rsplit("_", 1)[1]
            want = f"[%0], [%1], {size}" if ASYNC.fullmatch(mnemonic) else operands
            assert size in (operands, "commit") or ASYNC.fullmatch(mnemonic)
        else:
            cells = numbers[:references] or numbers[1:]
            vector = "{" + ",".join(cells) + "}" if len(cells) > 1 else cells[0]
            want = f"{vector}, [{numbers[-1]}]" if references else f"[{numbers[0]}], {vector}"
        assert operands == want, (text, want)
        assert re.findall(r'"[=+]?&?\w"\((\w+)\)', constraints) == names
        found[name] = (mnemonic, references)
    return found


_LINES = (
    (r"const int thread = threadIdx\.x;", r"thread = cuda.threadIdx.x"),
    (r"const int64_t bx = blockIdx\.x, by = blockIdx\.y;", ""),
    (r"const int64_t ([a-zA-Z]+ = .*);", r"\1"),
    (r"const uint64_t (\w+) = reinterpret_cast<uint64_t>\((\w+)\);", r"\1 = cells_address(\2)"),
    (r"(?:uint32_t|uint64_t|float|double) \w+(?:, \w+)*;", ""),
    (r"(?:uint32_t|float) (\w+ = 0(?:, \w+ = 0)*);", r"\1"),
    (r"__shared__ .*", r"shared = cuda.shared.array(0, uint8, 1024)"),
    (r"extern __shared__ .*", r"shared = cuda.shared.array(0, uint8, 1024)"),
    (r"const uint32_t base = static_cast.*", r"base = shared"),
    (r"const uint32_t (\w+ = base \+ \d+);", r"\1"),
    (r"for \(int (\w+) = 0; \1 < (\d+); \+\+\1\) \{", r"for \1 in range(\2):"),
    (r"__sync(threads|warp)\(\);", ""),
    (r"if \((.*)\) \{", r"if \1:"),
    (r"\} else \{", "else:"),
    (r"(\w+) = (.*);", r"\1 = \2"),
)


def python_of(source: str) -> tuple[str, dict[str, str]]:
    """Translate a CUDA C++ kernel, line by line; a line of no known form is an error.

    Returns:
        The text as Python, and the instruction of each device function.
    """
    functions = device_functions(source)
    head, body = source.split('extern "C" __global__ ')[1].split(" {\n", 1)
    parameters = re.findall(r"(?:\*|const int32_t|const float) (\w+)(?=[,)])", head)
    lines = [f"def kernel({', '.join(parameters)}):"]
    depth = 1
    for line in map(str.strip, body.rstrip().removesuffix("}").splitlines()):
        line = re.sub(r"^(?:uint32_t|uint64_t|float|double) t\d+(?:, t\d+)*; (?=\w)", "", line)
        if line == "}":
            depth -= 1
            continue
        if (call := re.fullmatch(r"(\w+)\((.*)\);", line)) and call[1] in functions:
            mnemonic, references = functions[call[1]]
            arguments = call[2].replace("static_cast<uint32_t>", "uint32").split(", ")
            into, rest = arguments[:references], arguments[references:]
            if mnemonic.startswith(("mma", "wgmma.wait")) or mnemonic.endswith((".add", ".maybe")):
                rest += into
            text = f"{call[1]}({', '.join(rest)})"
            text = f"{', '.join(into)} = {text}" if into else text
        else:
            for pattern, replacement in _LINES:
                if re.fullmatch(pattern, line):
                    text = re.sub(pattern, replacement, line)
                    break
            else:
                raise AssertionError(f"a line of no known form: {line}")
        for part in re.split(r"(?<== 0), ", text):
            part = re.sub(r"\b(\d+)u\b", r"uint32(\1)", part).replace("0.0f", "float32(0)")
            part = re.sub(r"= 0$", "= uint32(0)", part)
            part = part.replace(" / ", " // ").replace("&&", "and")
            part = re.sub(r"static_cast<int64_t>\(", "int64(", part)
            part = re.sub(r"\bint\(", "int32(", part)
            depth -= part == "else:"
            if part:
                lines.append("  " * depth + part)
            depth += part.endswith(":")
    return "\n".join(lines), {name: mnemonic for name, (mnemonic, _) in functions.items()}
