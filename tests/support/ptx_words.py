"""Runs PTX of registers alone, for all threads at once, in NumPy: what expressions are made of.

Nothing is taken from the package but the texts: each instruction is written out from the PTX ISA. A
register is an array of its bits; an instruction's type says how they are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from lowering.isa import ptx
from lowering.isa.casts import CASTS
from lowering.isa.functions import FUNCTIONS
from tests.support import ptx_cvt

Array = npt.NDArray[Any]
PURE = {each.asm.name: each.asm for each in (*FUNCTIONS, *CASTS.values())}  # whose text is run
FLOATS: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
TYPES: dict[str, Any] = FLOATS | {
    f"{sign}{bits}": np.dtype(f"{'int' if sign == 's' else 'uint'}{bits}")
    for sign in "sub"
    for bits in (8, 16, 32, 64)
}
LETTERS = {"r": "u32", "f": "f32", "d": "f64", "l": "u64"}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": lambda a, b: (a < b) | (a > b), "neu": np.not_equal,
    "nan": lambda a, b: np.isnan(a) | np.isnan(b), "num": lambda a, b: ~np.isnan(a) & ~np.isnan(b),
}  # fmt: skip


def bits_of(value: Array) -> Array:
    """Return the bits of values."""
    value = np.ascontiguousarray(value)
    return value if value.dtype == bool else value.view(f"uint{value.dtype.itemsize * 8}")


def as_type(bits: Array, kind: str) -> Array:
    """Read bits, cut to the width of a type, as that type."""
    dtype = np.dtype(TYPES[kind])
    return np.ascontiguousarray(bits.astype(f"uint{dtype.itemsize * 8}")).view(dtype)


def _exact(values: Sequence[Array], rule: Callable[..., Any], kind: str) -> Array:
    """Compute in a type of twice the digits where NumPy has one, and round."""
    wide = np.longdouble if kind in ("f32", "f16", "bf16") else np.float64
    with np.errstate(all="ignore"):
        return np.asarray(rule(*(each.astype(wide) for each in values))).astype(TYPES[kind])


def fused(a: Array, b: Array, c: Array, kind: str) -> Array:
    """Round ``a·b + c`` once: by integers, where all are finite and the sum is no f32."""
    wide = [each.astype(np.float64) for each in (a, b, c)]
    with np.errstate(all="ignore"):
        product = wide[0] * wide[1]
        total = product + wide[2]
        part = total - product
        rest = (product - (total - part)) + (wide[2] - part)
        out = total.astype(TYPES[kind])
        held = (rest == 0) & (total.astype(np.float32) == total) & (kind != "f64") & (total != 0)
    for at in np.flatnonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & ~held):
        x, y, z = (Fraction(float(each[at])) for each in (a, b, c))
        exact = x * y + z
        if exact:
            out[at] = nearest(exact, kind)
    return out


def nearest(value: Fraction, kind: str) -> Any:
    """Return the float nearest to a fraction, ties to even."""
    digits, low, high = {
        "f64": (53, -1074, 1023), "f32": (24, -149, 127), "f16": (11, -24, 15),
        "bf16": (8, -133, 127),
    }[kind]  # fmt: skip
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    while Fraction(2) ** exponent > size:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    unit = max(exponent - digits + 1, low)
    scaled = round(size / Fraction(2) ** unit)  # ties to even
    found = scaled * Fraction(2) ** unit
    sign = -1.0 if value < 0 else 1.0
    if found >= Fraction(2) ** (high + 1):
        return TYPES[kind](sign * np.inf)
    return TYPES[kind](sign * float(found))


def _order(larger: bool) -> Callable[[Array, Array], Array]:
    """Return ``max`` or ``min``: +0 is above -0; of a NaN and a number, the number."""

    def rule(a: Array, b: Array) -> Array:
        with np.errstate(invalid="ignore"):  # ml_dtypes warns of NaN
            first = np.where(a == b, np.signbit(a) != larger, (a > b) == larger)
        return np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.where(first, a, b)))

    return rule


UNARY: dict[str, Callable[[Any], Any]] = {
    "ex2": np.exp2, "lg2": np.log2, "rsqrt": lambda x: 1 / np.sqrt(x), "rcp": np.reciprocal,
    "tanh": np.tanh, "sqrt": np.sqrt,
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
}  # fmt: skip
LOGIC: dict[str, Callable[[Any, Any], Any]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def _float(name: str, flags: Sequence[str], kind: str, values: Sequence[Array]) -> Array:
    """Do an instruction of floats."""
    tiny = np.finfo(np.float32).tiny
    if "ftz" in flags and kind == "f32":
        values = [np.where(np.abs(x) < tiny, np.copysign(np.float32(0), x), x) for x in values]
    if name in ("max", "min"):
        found = _order(name == "max")(*values)
        if "NaN" in flags:
            found = np.where(np.isnan(values[0]) | np.isnan(values[1]), np.nan, found)
    elif name == "fma":
        found = fused(*values, kind)
    elif name in ("abs", "neg"):
        found = np.abs(values[0]) if name == "abs" else -values[0]
    else:
        found = _exact(values, (UNARY | BINARY)[name], kind)
    found = found.astype(TYPES[kind])
    if "ftz" in flags and kind == "f32":
        found = np.where(np.abs(found) < tiny, np.copysign(np.float32(0), found), found)
    return found


def _integer(name: str, kind: str, values: Sequence[Array]) -> Array:
    """Do an instruction of integers of up to 32 bits: its low bits."""
    wide = [each.astype(np.int64) for each in values]
    rules: dict[str, Callable[..., Any]] = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum,
        "max": np.maximum, "abs": np.abs, "neg": np.negative, "not": np.invert,
        "mad": lambda a, b, c: a * b + c,
        "div": lambda a, b: np.sign(a * b) * (np.abs(a) // np.maximum(np.abs(b), 1)),
        "rem": lambda a, b: np.sign(a) * (np.abs(a) % np.maximum(np.abs(b), 1)),
        "shl": lambda a, n: a << np.minimum(n & 0xFFFFFFFF, 32),
        "shr": lambda a, n: a >> np.minimum(n & 0xFFFFFFFF, 32),
    } | LOGIC  # fmt: skip
    return rules[name](*wide).astype(TYPES[kind])


def permute(a: Array, b: Array, selector: Array) -> Array:
    """Do ``prmt.b32`` in its plain mode; of a digit above 7 the byte's sign is repeated."""
    both = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    out = np.zeros_like(both)
    for at in range(4):
        digit = selector.astype(np.uint64) >> np.uint64(4 * at) & np.uint64(15)
        byte = both >> (digit & np.uint64(7)) * np.uint64(8) & np.uint64(0xFF)
        sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
        out |= np.where(digit & np.uint64(8), sign, byte) << np.uint64(8 * at)
    return out.astype(np.uint32)


def known(name: str) -> tuple[str, str, str] | None:
    """Return the text, outputs and inputs of a device function that computes on registers alone."""
    if found := re.fullmatch(r"prmt_([0-9a-f]{4})", name):
        asm = ptx.prmt(int(found[1], 16))
    elif found := re.fullmatch(r"constant_(b32|f32|f64)_([0-9a-f]+)", name):
        asm = ptx.constant(int(found[2], 16), found[1])
    elif name == "prmt":
        asm = ptx.prmt_by_thread()
    elif name == "nibbles":
        asm = ptx.nibbles_by_thread()
    elif name in PURE:
        asm = PURE[name]
    else:
        return None
    return asm.text, asm.outputs, asm.inputs


class _Registers:
    """The registers of one run: outputs, inputs, and those that the text declares."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.kinds: dict[str, str] = {}
        self.bits: dict[str, Array] = {}

    def read(self, name: str, kind: str) -> Array:
        """Return an operand as a type: a register, an integer, or the bits of a float."""
        if name in self.bits:
            found = self.bits[name]
            return found if kind == "pred" else as_type(found, kind)
        if name[:2] in ("0f", "0d"):
            width = {"0f": np.uint32, "0d": np.uint64}[name[:2]]
            value = np.asarray(int(name[2:], 16), dtype=width)
        else:
            value = np.asarray(int(name, 0) & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
        return as_type(np.broadcast_to(value, (self.threads,)), kind)

    def write(self, name: str, value: Array) -> None:
        """Set a register; it must be declared, and as wide."""
        bits = np.broadcast_to(bits_of(np.atleast_1d(value)), (self.threads,)).copy()
        kind = self.kinds[name]
        assert (kind == "pred") == (bits.dtype == bool), (name, kind)
        assert kind == "pred" or bits.dtype.itemsize * 8 == int(kind[-2:]), (name, kind, bits.dtype)
        self.bits[name] = bits


def run(
    text: str, outputs: str, inputs: str, values: Sequence[Any], threads: int
) -> tuple[Array, ...]:
    """Run a text whose operands are ``$0`` and up, outputs first.

    Args:
        text: of one asm statement.
        outputs: the constraint letter of each output.
        inputs: likewise.
        values: of the inputs, one number or one of each thread.
        threads: how many there are.
    """
    state = _Registers(threads)
    for at, kind in enumerate(outputs + inputs):
        state.kinds[f"${at}"] = LETTERS[kind]
    for at, (kind, value) in enumerate(zip(inputs, values, strict=True)):
        array = np.broadcast_to(np.atleast_1d(value), (state.threads,))
        dtype = TYPES[LETTERS[kind]]
        same = array.dtype.itemsize == np.dtype(dtype).itemsize
        state.write(f"${len(outputs) + at}", array if same else array.astype(dtype))
    for statement in text.split(";"):
        words = statement.lstrip("{} ").split(None, 1)
        if not words:
            continue
        assert len(words) == 2, statement
        if words[0] == ".reg":
            kind, names = words[1].split(None, 1)
            for name in names.split(","):
                state.kinds[name.strip()] = kind[1:]
                state.bits.pop(name.strip(), None)
        else:
            _step(
                state,
                words[0],
                [each.strip() for each in re.findall(r"\{[^}]*\}|[^,\s]+", words[1])],
            )
    return tuple(as_type(state.bits[f"${at}"], LETTERS[kind]) for at, kind in enumerate(outputs))


def _step(state: _Registers, mnemonic: str, operands: list[str]) -> None:
    """Do one instruction."""
    name, *flags = mnemonic.split(".")
    kind = flags[-1]
    into, *rest = operands
    if name == "mov":
        _move(state, into, rest[0], kind)
    elif name == "prmt":
        state.write(into, permute(*(state.read(each, "u32") for each in rest)))
    elif name == "shf":
        assert flags == ["r", "wrap", "b32"], mnemonic
        low, high, by = (state.read(each, "u32").astype(np.uint64) for each in rest)
        both = low | high << np.uint64(32)
        state.write(into, (both >> (by & np.uint64(31))).astype(np.uint32))
    elif name == "lop3":
        a, b, c = (state.read(each, "u32") for each in rest[:3])
        table, out = int(rest[3], 0), np.zeros_like(a)
        for row in range(8):
            if table >> row & 1:
                chosen = [x if row >> bit & 1 else ~x for x, bit in ((a, 2), (b, 1), (c, 0))]
                out |= chosen[0] & chosen[1] & chosen[2]
        state.write(into, out)
    elif name == "setp":
        a, b = (
            state.read(
                each, kind.replace("b", "u", 1) if kind[0] == "b" and kind != "bf16" else kind
            )
            for each in rest
        )
        test = np.not_equal if flags[0] == "ne" and kind not in FLOATS else COMPARE[flags[0]]
        state.write(into, np.asarray(test(a, b)))
    elif name == "selp":
        width = {"b": "u"}.get(kind[0], kind[0]) + kind[1:] if kind != "bf16" else kind
        a, b = (state.read(each, width) for each in rest[:2])
        state.write(into, np.where(state.read(rest[2], "pred"), a, b))
    elif name == "cvt":
        bits = ptx_cvt.cvt(mnemonic, [state.read(each, "u64") for each in rest])
        state.write(into, bits.astype(f"uint{state.kinds[into][-2:]}"))
    elif kind in ("f16x2", "bf16x2"):
        half = kind[:-2]
        words = [bits_of(state.read(each, "u32")) for each in rest]
        parts = [
            bits_of(
                _float(
                    name, flags, half, [as_type(word >> np.uint32(16 * at), half) for word in words]
                )
            )
            for at in range(2)
        ]
        state.write(into, parts[0].astype(np.uint32) | parts[1].astype(np.uint32) << np.uint32(16))
    elif kind in FLOATS:
        state.write(into, _float(name, flags, kind, [state.read(each, kind) for each in rest]))
    else:
        read = {"b": "u"}.get(kind[0], kind[0]) + kind[1:]
        state.write(into, _integer(name, read, [state.read(each, read) for each in rest]))


def _move(state: _Registers, into: str, source: str, kind: str) -> None:
    """Do ``mov``: also of a word into halves, and of halves into a word."""
    if into.startswith("{"):
        word = state.read(source, "u32")
        for at, name in enumerate(each.strip() for each in into[1:-1].split(",")):
            state.write(name, (word >> np.uint32(16 * at)).astype(np.uint16))
        return
    if source.startswith("{"):
        low, high = (state.read(each.strip(), "u16") for each in source[1:-1].split(","))
        state.write(into, low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16))
        return
    state.write(into, state.read(source, kind))
