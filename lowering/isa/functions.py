"""Scalar functions as PTX with their meaning in NumPy: one row for each function and type.

A row works on ``count`` elements at once: those that share a 32-bit word of a 16-bit type, else
one. A truth value (``pred``) is a word of 0 or 1.

All roundings are written out (``.rn``), so no compiler joins a product and a sum. Which of its bit
patterns a NaN has is left open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError
from lowering.isa import dtypes
from lowering.isa.ptx import Asm, letter

Values = npt.NDArray[Any]
Meaning = Callable[..., Values]

PRED = "pred"  # a truth value
LOG2E = np.float32(1.4426950408889634)  # 0f3FB8AA3B


def bits_of(token: str) -> int:
    """Return the bits that an element takes in registers: 32 of a truth value.

    >>> bits_of("pred"), bits_of("bf16")
    (32, 16)
    """
    return 32 if token == PRED else dtypes.get(token).bits


def pack(token: str) -> int:
    """Return how many elements share a register; a truth value has one of its own."""
    return 1 if token == PRED else dtypes.get(token).pack


def registers_of(token: str, count: int) -> int:
    """Return how many registers hold some elements: narrower ones than 32 bits share words.

    >>> registers_of("bf16", 3), registers_of("f64", 3), registers_of("pred", 3)
    (2, 3, 3)
    """
    return -(-count // pack(token))


def numpy_of(token: str) -> np.dtype[Any]:
    """Return the NumPy type of an element; a truth value is ``bool``."""
    return np.dtype(bool) if token == PRED else dtypes.get(token).numpy


@dataclass(frozen=True)
class Function:
    """One function of elements of given types.

    Attributes:
        name: as users call it.
        operands: the type of each argument, as PTX tokens; ``pred`` for a truth value.
        result: the type of the result.
        text: PTX of ``count`` elements: registers of the result from ``$0`` on, then those of each
            argument. Types narrower than 32 bits come in words.
        meaning: of arrays of the arguments' NumPy types.
        count: elements that it takes at once.
        ulp: how far the hardware's result may be from the meaning, in units in the last place; 0:
            equal bit for bit.
        absolute: or how far in all, where that is more.

    >>> get("fma", ("f32",) * 3).text
    'fma.rn.f32 $0, $1, $2, $3;'
    """

    name: str
    operands: tuple[str, ...]
    result: str
    text: str
    meaning: Meaning = field(compare=False)
    count: int = 1
    ulp: float = 0
    absolute: float = 0

    @property
    def asm(self) -> Asm:
        """The instruction: it has no effect but its result."""
        outputs, *inputs = (
            letter(token) * registers_of(token, self.count)
            for token in (self.result, *self.operands)
        )
        name = "_".join(dict.fromkeys((self.name, *self.operands, self.result)))
        return Asm(name, self.text, outputs, "".join(inputs), pure=True)

    def apply(self, *arguments: Values) -> Values:
        """Return what it means, of arrays.

        >>> get("maximum", ("f32", "f32")).apply(np.float32([1, -0.0]), np.float32([np.nan, 0.0]))
        array([nan,  0.], dtype=float32)
        """
        with np.errstate(all="ignore"):
            return np.asarray(self.meaning(*arguments)).astype(numpy_of(self.result))


# -- meanings -------------------------------------------------------------------------------------


def _larger(a: Values, b: Values) -> Values:
    """Return the maximum; +0 is above -0, and a NaN stays."""
    found = np.where(a == b, np.where(np.signbit(a), b, a), np.where(a > b, a, b))
    return np.where(np.isnan(a) | np.isnan(b), a + b, found)


def _smaller(a: Values, b: Values) -> Values:
    """Return the minimum; -0 is below +0, and a NaN stays."""
    found = np.where(a == b, np.where(np.signbit(a), a, b), np.where(a < b, a, b))
    return np.where(np.isnan(a) | np.isnan(b), a + b, found)


def _fused(a: Values, b: Values, c: Values) -> Values:
    """Return ``a·b + c`` rounded once, of types whose products are exact in float64.

    The sum is rounded to odd in float64, and on the way to 16 bits in float32 too: the last
    rounding, to at most half the digits, cannot tell that from the exact sum.
    """
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    part = total - product
    rest = (product - (total - part)) + (addend - part)
    bits = np.array(total).view(np.int64)
    inexact = np.isfinite(total) & (rest != 0) & (bits & 1 == 0)
    away = (rest > 0) == (total > 0)
    bits[...] = np.where(inexact, np.where(away, bits + 1, bits - 1), bits)
    odd = bits.view(np.float64)
    return (odd if a.dtype.itemsize == 4 else to_odd(odd)).astype(a.dtype)


def to_odd(values: Values) -> Values:
    """Return f64 as f32, rounded to odd: toward zero, its last bit set where that lost something.

    >>> to_odd(np.array([1 + 2**-40])).view(np.uint32) == 0x3F800001
    array([ True])
    """
    near = values.astype(np.float32)
    bits, found = near.view(np.uint32), near.astype(np.float64)
    lost = found != values
    odd: Values = (bits - (lost & (np.abs(found) > np.abs(values))) | lost).astype(np.uint32)
    return odd.view(np.float32)


def _fused_f64(a: Values, b: Values, c: Values) -> Values:
    """Return ``a·b + c`` of float64, rounded once: in fractions, where all are finite."""

    def one(x: float, y: float, z: float) -> float:
        if not np.isfinite([x, y, z]).all() or x * y == 0:
            return x * y + z
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact == 0:
            return x * y + z if np.isfinite(x * y) else 0.0
        try:
            return float(exact)
        except OverflowError:
            return np.inf if exact > 0 else -np.inf

    flat = [np.asarray(each, dtype=np.float64) for each in np.broadcast_arrays(a, b, c)]
    found = [one(*map(float, row)) for row in zip(*(each.ravel() for each in flat), strict=True)]
    return np.array(found).reshape(flat[0].shape)


def _exp2(x: Values) -> Values:
    """Return 2**x of f32 or bf16; below the normal numbers of both it is 0, as ``.ftz`` has it."""
    found = np.exp2(x.astype(np.float64))
    return np.where(found < np.finfo(np.float32).tiny, 0, found).astype(x.dtype)


def _through(function: Callable[[Values], Values]) -> Meaning:
    """Compute in float64, and round to the argument's type."""
    return lambda x: function(x.astype(np.float64)).astype(x.dtype)


def _wrapping(function: Callable[..., Values]) -> Meaning:
    """Compute on 64-bit integers, and keep the low 32 bits."""
    return lambda *xs: function(*(x.astype(np.int64) for x in xs)).astype(np.int32)


def _floored(a: Values, b: Values) -> Values:
    """Divide, rounding down; by 0 what the hardware gives is not defined."""
    found: Values = np.floor_divide(a, np.where(b == 0, 1, b))
    return found


def _shifted(function: Callable[..., Values]) -> Meaning:
    """Shift by an amount that is taken as unsigned, and counts 32 from there on."""
    return _wrapping(lambda x, by: function(x, np.minimum(by & 0xFFFFFFFF, 32)))


# -- rows -----------------------------------------------------------------------------------------

_COMPARISONS: dict[str, Meaning] = {
    "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "equal": np.equal, "not_equal": np.not_equal,
}  # fmt: skip
_SETP = {
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq",
    "not_equal": "ne",
}  # fmt: skip
# Elements of 16 bits as f32: exact, so f32 compares them.
_HALVES = {
    "f16": "mov.b32 {{l, h}}, {0}; cvt.f32.f16 {1}0, l; cvt.f32.f16 {1}1, h; ",
    "bf16": "shl.b32 {1}0, {0}, 16; and.b32 {1}1, {0}, 0xffff0000; ",
}
_ONES = {"f16": "0x3c003c00", "bf16": "0x3f803f80"}


def _same(
    name: str, token: str, arguments: int, text: str, meaning: Meaning, **more: Any
) -> Function:
    """Return a function of arguments and a result of one type."""
    count = 2 if bits_of(token) == 16 else 1
    return Function(name, (token,) * arguments, token, text, meaning, count, **more)


def _floats() -> Iterable[Function]:
    """Yield the functions of f32 and f64."""
    for t in ("f32", "f64"):
        yield _same("add", t, 2, f"add.rn.{t} $0, $1, $2;", np.add)
        yield _same("subtract", t, 2, f"sub.rn.{t} $0, $1, $2;", np.subtract)
        yield _same("multiply", t, 2, f"mul.rn.{t} $0, $1, $2;", np.multiply)
        yield _same("divide", t, 2, f"div.rn.{t} $0, $1, $2;", np.divide)
        meaning = _fused if t == "f32" else _fused_f64
        yield _same("fma", t, 3, f"fma.rn.{t} $0, $1, $2, $3;", meaning)
        yield _same("absolute", t, 1, f"abs.{t} $0, $1;", np.abs)
        yield _same("negative", t, 1, f"neg.{t} $0, $1;", np.negative)
        yield _same("sqrt", t, 1, f"sqrt.rn.{t} $0, $1;", np.sqrt)
    for name, short, rule in (("maximum", "max", _larger), ("minimum", "min", _smaller)):
        yield _same(name, "f32", 2, f"{short}.NaN.f32 $0, $1, $2;", rule)
        kept = (
            "{ .reg .pred p; .reg .f64 m, n; setp.nan.f64 p, $1, $2; add.rn.f64 n, $1, $2; "
            f"{short}.f64 m, $1, $2; selp.f64 $0, n, m, p; }}"
        )
        yield _same(name, "f64", 2, kept, rule)
    yield _same("reciprocal", "f64", 1, "rcp.rn.f64 $0, $1;", np.reciprocal)
    yield _same("reciprocal", "f32", 1, "rcp.approx.f32 $0, $1;", np.reciprocal, ulp=1)
    yield _same("exp2", "f32", 1, "ex2.approx.ftz.f32 $0, $1;", _exp2, ulp=2)
    scaled = "{ .reg .f32 t; mul.rn.f32 t, $1, 0f3FB8AA3B; ex2.approx.ftz.f32 $0, t; }"
    yield _same("exp", "f32", 1, scaled, lambda x: _exp2(x * LOG2E), ulp=2)
    yield _same(
        "log2", "f32", 1, "lg2.approx.f32 $0, $1;", _through(np.log2), ulp=2, absolute=2**-22
    )
    inverse = _through(lambda x: 1 / np.sqrt(x))
    yield _same("rsqrt", "f32", 1, "rsqrt.approx.f32 $0, $1;", inverse, ulp=2)
    yield _same("tanh", "f32", 1, "tanh.approx.f32 $0, $1;", _through(np.tanh), ulp=8192)


def _halves() -> Iterable[Function]:
    """Yield the functions of f16 and bf16, two at a time."""
    for t in ("f16", "bf16"):
        two, one = f"{t}x2", _ONES[t]
        if t == "f16":
            sums = {
                name: f"{short}.rn.f16x2 $0, $1, $2;"
                for name, short in (("add", "add"), ("subtract", "sub"), ("multiply", "mul"))
            }
        else:  # add.bf16x2 is of sm_90; a product with 1, and a sum with -0, are exact
            sums = {
                "add": f"{{ .reg .b32 c; mov.b32 c, {one}; fma.rn.bf16x2 $0, $1, c, $2; }}",
                "subtract": "{ .reg .b32 c; mov.b32 c, 0xbf80bf80; fma.rn.bf16x2 $0, $2, c, $1; }",
                "multiply": "{ .reg .b32 c; mov.b32 c, 0x80008000; fma.rn.bf16x2 $0, $1, $2, c; }",
            }
        for name, text in sums.items():
            yield _same(name, t, 2, text, getattr(np, name))
        yield _same("fma", t, 3, f"fma.rn.{two} $0, $1, $2, $3;", _fused)
        yield _same("maximum", t, 2, f"max.NaN.{two} $0, $1, $2;", _larger)
        yield _same("minimum", t, 2, f"min.NaN.{two} $0, $1, $2;", _smaller)
        yield _same("absolute", t, 1, "and.b32 $0, $1, 0x7fff7fff;", np.abs)
        yield _same("negative", t, 1, "xor.b32 $0, $1, 0x80008000;", np.negative)
        flush = ".ftz" * (t == "bf16")  # which has no other form
        meaning = _through(np.exp2) if t == "f16" else _exp2
        yield _same("exp2", t, 1, f"ex2.approx{flush}.{two} $0, $1;", meaning, ulp=2)
        yield _same("tanh", t, 1, f"tanh.approx.{two} $0, $1;", _through(np.tanh), ulp=2)


def _integers() -> Iterable[Function]:
    """Yield the functions of s32, and of truth values."""
    for name, short, rule in (
        ("add", "add.s32", np.add), ("subtract", "sub.s32", np.subtract),
        ("multiply", "mul.lo.s32", np.multiply), ("maximum", "max.s32", np.maximum),
        ("minimum", "min.s32", np.minimum),
    ):  # fmt: skip
        yield _same(name, "s32", 2, f"{short} $0, $1, $2;", _wrapping(rule))
    yield _same("fma", "s32", 3, "mad.lo.s32 $0, $1, $2, $3;", _wrapping(lambda a, b, c: a * b + c))
    yield _same("absolute", "s32", 1, "abs.s32 $0, $1;", _wrapping(np.abs))
    yield _same("negative", "s32", 1, "neg.s32 $0, $1;", _wrapping(np.negative))
    # Of the division toward 0, what remains has another sign than the divisor: one less then.
    divided = (
        "{ .reg .pred p; .reg .s32 d, r, s; div.s32 d, $1, $2; rem.s32 r, $1, $2; "
        "xor.b32 s, r, $2; shr.s32 s, s, 31; setp.ne.s32 p, r, 0; selp.b32 s, s, 0, p; "
    )
    yield _same("floor_divide", "s32", 2, divided + "add.s32 $0, d, s; }", _wrapping(_floored))
    rest = divided + "and.b32 s, s, $2; add.s32 $0, r, s; }"
    yield _same("remainder", "s32", 2, rest, _wrapping(lambda a, b: a - _floored(a, b) * b))
    yield _same("invert", "s32", 1, "not.b32 $0, $1;", np.invert)
    yield _same("invert", PRED, 1, "xor.b32 $0, $1, 1;", np.logical_not)
    yield _same("left_shift", "s32", 2, "shl.b32 $0, $1, $2;", _shifted(np.left_shift))
    yield _same("right_shift", "s32", 2, "shr.s32 $0, $1, $2;", _shifted(np.right_shift))
    for t in ("s32", PRED):
        for name, short in (("and", "and"), ("or", "or"), ("xor", "xor")):
            yield _same(
                f"bitwise_{name}", t, 2, f"{short}.b32 $0, $1, $2;", getattr(np, f"bitwise_{name}")
            )


def _choices() -> Iterable[Function]:
    """Yield comparisons, choices by a truth value, and truth values as numbers."""
    for t in ("f32", "f64", "s32"):
        for name, rule in _COMPARISONS.items():
            test = "neu" if name == "not_equal" and t != "s32" else _SETP[name]
            text = f"{{ .reg .pred p; setp.{test}.{t} p, $1, $2; selp.b32 $0, 1, 0, p; }}"
            yield Function(name, (t, t), PRED, text, rule)
        text = f"{{ .reg .pred p; setp.ne.b32 p, $1, 0; selp.{t} $0, $2, $3, p; }}"
        yield Function("where", (PRED, t, t), t, text, np.where)
    for t, split in _HALVES.items():
        for name, rule in _COMPARISONS.items():
            test = "neu" if name == "not_equal" else _SETP[name]
            text = (
                "{ .reg .b16 l, h; .reg .f32 a0, a1, b0, b1; .reg .pred p, q; "
                + split.format("$2", "a") + split.format("$3", "b")
                + f"setp.{test}.f32 p, a0, b0; setp.{test}.f32 q, a1, b1; "
                "selp.b32 $0, 1, 0, p; selp.b32 $1, 1, 0, q; }"
            )  # fmt: skip
            yield Function(name, (t, t), PRED, text, rule, 2)
        text = (
            "{ .reg .pred p, q; .reg .b32 l, h; setp.ne.b32 p, $1, 0; setp.ne.b32 q, $2, 0; "
            "selp.b32 l, $3, $4, p; selp.b32 h, $3, $4, q; prmt.b32 $0, l, h, 0x7610; }"
        )
        yield Function("where", (PRED, t, t), t, text, np.where, 2)


FUNCTIONS: tuple[Function, ...] = (*_floats(), *_halves(), *_integers(), *_choices())
_TABLE = {(each.name, each.operands): each for each in FUNCTIONS}


def get(name: str, operands: tuple[str, ...]) -> Function:
    """Return the function of a name and of types of arguments.

    Raises:
        LayoutError: there is none; the types that it takes are listed.

    >>> get("log2", ("f16",))
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: log2: takes f32; got f16. Cast it first, such as \
cast(x, "float32")
    """
    found = _TABLE.get((name, operands))
    if found is None:
        known = ["·".join(dict.fromkeys(each)) for other, each in _TABLE if other == name]
        raise LayoutError(
            f"{name}: takes {', '.join(known)}; got {'·'.join(dict.fromkeys(operands))}. Cast it "
            'first, such as cast(x, "float32")'
        )
    return found
