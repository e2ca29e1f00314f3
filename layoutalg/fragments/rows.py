"""The rows of the fragment table: one builder per instruction.

A family of instructions shares its layouts. What is written down is the smallest tile of each
family, with ``pack`` elements of A and B in a 32-bit register (2 for 16-bit types, 4, 8, 32 for
narrower ones, 1 for tf32 and f64); larger K are derived by ``tile_to``. The formulas beside them
are the PTX ISA's, with ``p`` the place in a register: A: row g + 8*rM, col pack*t + p + 4*pack*kHi.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from layoutalg.algebra.axis import laneid, wid_in_wg
from layoutalg.fragments.fragment import Formula, Fragment
from layoutalg.layouts.spec import R, S
from layoutalg.layouts.tile_layout import TileLayout
from layoutalg.sizes.dtypes import bits_of

Rows = tuple[Fragment, ...]
Digits = tuple[tuple[str, int], ...]


def _a_tile(m: int, pack: int) -> TileLayout:
    """Return A over (m, 4*pack): rows to groups and registers, columns to the lanes of a group."""
    if m == 8:
        return TileLayout(S[(8, 4, pack) : (4 @ laneid, 1 @ laneid, 1)])
    return TileLayout(S[(2, 8, 4, pack) : (pack, 4 @ laneid, 1 @ laneid, 1)])


def _b_tile(pack: int) -> TileLayout:
    """Return B over (4*pack, 8)."""
    return TileLayout(S[(4, pack, 8) : (1 @ laneid, 1, 4 @ laneid)])


def _d_tile(m: int) -> TileLayout:
    """Return the accumulator over (m, 8): two neighbours per lane and 8-row half."""
    if m == 8:
        return TileLayout(S[(8, 4, 2) : (4 @ laneid, 1 @ laneid, 1)])
    return TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])


def _digit(name: str, extent: int) -> Digits:
    """Return a digit; one of extent 1 is left out."""
    return ((name, extent),) if extent > 1 else ()


def _dense(
    instruction: str,
    shape: tuple[int, int],
    types: tuple[str, str],
    accumulators: tuple[str, ...],
    arch: str,
    bits: int = 0,
) -> Rows:
    """Return A, B and the accumulators of a dense ``m{m}n8k{k}``.

    ``bits`` is the container of an element of A and B where it is wider than the type.
    """
    m, k = shape
    bits = bits or bits_of(types[0])
    pack = max(1, 32 // bits)
    width = max(32, bits)
    rows, high = _digit("rM", m // 8), _digit("kHi", k // (4 * pack))
    inner = _digit("p", pack)
    row = {"g": 1} | ({"rM": 8} if rows else {})
    col = {"t": pack} | ({"p": 1} if inner else {}) | ({"kHi": 4 * pack} if high else {})
    source = f"PTX ISA, Matrix Fragments for mma.m{m}n8k{k}"
    made = [
        Fragment(
            instruction, "A", types[0], bits, (m, k),
            _a_tile(m, pack).tile_to((m, k), (m, 4 * pack)),
            Formula((*high, *rows, *inner), row, col), arch, source, register_bits=width,
        ),
        Fragment(
            instruction, "B", types[1], bits, (k, 8),
            _b_tile(pack).tile_to((k, 8), (4 * pack, 8)),
            Formula((*high, *inner), col, {"g": 1}), arch, source, register_bits=width,
        ),
    ]  # fmt: skip
    for token in accumulators:
        made.append(
            Fragment(
                instruction,
                f"C/D.{token}",
                token,
                bits_of(token),
                (m, 8),
                _d_tile(m),
                Formula((*rows, ("rN", 2)), row, {"t": 2, "rN": 1}),
                arch,
                source,
                register_bits=max(32, bits_of(token)),
            )
        )
    return tuple(made)


def _matrices(instruction: str, operand: str, count: int, trans: bool, arch: str) -> Rows:
    """Return what ``ldmatrix`` gives, or ``stmatrix`` takes: 8x8 matrices, one per register.

    Row 8j+i is the row whose address lane 8j+i supplies; slot 2j+p is register j.
    """
    verb = {"ld": "load", "st": "store", "mov": "transpose"}[instruction.split("matrix")[0]]
    one = TileLayout(S[(8, 4, 2) : (4 @ laneid, 1 @ laneid, 1)])
    formula = ({"g": 1}, {"t": 2, "p": 1})
    if trans:
        one = TileLayout(S[(4, 2, 8) : (1 @ laneid, 1, 4 @ laneid)])
        formula = (formula[1], formula[0])
    row = formula[0] | ({"j": 8} if count > 1 else {})
    return (
        Fragment(
            instruction, operand, "b16", 16, (8 * count, 8),
            one.tile_to((8 * count, 8), (8, 8)),
            Formula((*_digit("j", count), ("p", 2)), row, formula[1]), arch,
            f"PTX ISA, Warp-level matrix {verb} instruction",
        ),
    )  # fmt: skip


def _movmatrix(instruction: str) -> Rows:
    """Return source and destination of ``movmatrix``: an 8x8 matrix and its transpose."""
    source = _matrices(instruction, "src", 1, False, "sm_75")
    into = _matrices(instruction, "dst", 1, True, "sm_75")
    return (*source, *into)


def _over_warps(tile: TileLayout, shape: tuple[int, int]) -> TileLayout:
    """Return a 16-row tile given to each of the four warps of a warpgroup, 16 rows each."""
    return tile.tile(TileLayout(S[(4, 1) : (1 @ wid_in_wg, 1)]), (4, 1), shape)


def _wgmma_a(instruction: str, token: str) -> Rows:
    """Return A of ``wgmma`` in registers: per warp, A of the mma that is 16 rows high."""
    bits = bits_of(token)
    pack = 32 // bits
    k = 256 // bits
    formula = Formula(
        (("kHi", 2), ("rM", 2), *_digit("p", pack)),
        {"g": 1, "rM": 8, "w": 16},
        {"t": pack} | ({"p": 1} if pack > 1 else {}) | {"kHi": 4 * pack},
    )
    tile = _a_tile(16, pack).tile_to((16, k), (16, 4 * pack))
    return (
        Fragment(
            instruction, "A.reg", token, bits, (64, k), _over_warps(tile, (16, k)), formula,
            "sm_90a", "PTX ISA, Register Fragments for wgmma.mma_async.m64nNk" + str(k), lanes=128,
        ),
    )  # fmt: skip


def _wgmma_d(instruction: str, n: int) -> Rows:
    """Return D of ``wgmma.m64n{n}``: per warp, m16n8 accumulators side by side."""
    tile = _d_tile(16).tile_to((16, n), (16, 8))
    digits = (*_digit("j", n // 8), ("rM", 2), ("rN", 2))
    col = {"t": 2, "rN": 1} | ({"j": 8} if n > 8 else {})
    tokens = ("f32", "f16", "s32") if n <= 32 or n % 16 == 0 else ("f32", "f16")
    return tuple(
        Fragment(
            instruction, f"D.{token}", token, bits_of(token), (64, n), _over_warps(tile, (16, n)),
            Formula(digits, {"g": 1, "rM": 8, "w": 16}, col), "sm_90a",
            "PTX ISA, Register Fragments for wgmma.mma_async, matrix D", lanes=128,
        )
        for token in tokens
    )  # fmt: skip


def _quad_pairs(instruction: str) -> Rows:
    """Return the operands of ``m8n8k4``: each of four quad-pairs of lanes forms a product.

    A and B come row- or column-major inside the lane: the PTX qualifiers .alayout and .blayout.
    """
    q, h, t, t1 = 4 @ laneid, 16 @ laneid, 1 @ laneid, 2 @ laneid
    across, along = {"t": 1, "h": 4}, {"i": 1}  # the lanes of a quad-pair, the slots of a lane
    turned = {"i": 1, "h": 4}
    four, eight = (("i", 4),), (("i", 8),)
    bits = (("i2", 2), ("i1", 2), ("i0", 2))
    operands = (
        ("A", "f16", (8, 4), S[(4, 2, 4, 4) : (q, h, t, 1)], (four, across, along)),
        ("A.col", "f16", (8, 4), S[(4, 2, 4, 4) : (q, h, 1, t)], (four, turned, {"t": 1})),
        ("B", "f16", (4, 8), S[(4, 4, 2, 4) : (q, 1, h, t)], (four, along, across)),
        ("B.row", "f16", (4, 8), S[(4, 4, 2, 4) : (q, t, h, 1)], (four, {"t": 1}, turned)),
        (
            "C/D.f32", "f32", (8, 8), S[(4, 2, 2, 2, 2, 2, 2) : (q, h, 2, t, 4, t1, 1)],
            (bits, {"t0": 1, "i1": 2, "h": 4}, {"i0": 1, "t1": 2, "i2": 4}),
        ),
        ("C/D.f16", "f16", (8, 8), S[(4, 2, 4, 8) : (q, h, t, 1)], (eight, across, along)),
    )  # fmt: skip
    return tuple(
        Fragment(
            instruction, operand, token, bits_of(token), shape, TileLayout(layout),
            Formula(digits, row, col, {"q": 1}), "sm_70",
            "PTX ISA, Matrix Fragments for mma.m8n8k4 with .f16 floating point type", products=4,
        )
        for operand, token, shape, layout, (digits, row, col) in operands
    )  # fmt: skip


def _sparse(instruction: str, k: int, token: str, accumulators: tuple[str, ...]) -> Rows:
    """Return the operands of a 2:4 sparse ``m16n8k{k}``: A holds the nonzeros, E their positions.

    A is the A of a dense mma of half the K. E has the place of each nonzero in its chunk of four,
    two bits each; lanes that the sparsity selector does not choose hold copies.
    """
    a, *rest = _dense(instruction, (16, k // 2), (token, token), accumulators, "sm_80")
    b = _dense(instruction, (16, k), (token, token), (), "sm_80")[1]
    source = f"PTX ISA, Matrix Fragments for sparse mma.m16n8k{k} with .f16 and .bf16 types"
    halves = k // 16  # lanes of a group that hold columns of their own
    wide = S[(2, 8, halves, 8) : (8, 4 @ laneid, 1 @ laneid, 1)]
    narrow = S[(2, 8, 8) : (8, 4 @ laneid, 1)]
    layout = TileLayout((wide if halves > 1 else narrow) + R[4 // halves : halves @ laneid])
    e = Fragment(
        instruction, "E", "u2", bits_of("u2"), (16, k // 2), layout,
        Formula(
            (("rM", 2), ("i", 8)), {"g": 1, "rM": 8}, {"i": 1} | ({"t0": 8} if halves > 1 else {})
        ),
        "sm_80", source,
    )  # fmt: skip
    return (replace(a, source=source), replace(b, source=source), e, *rest[1:])


def _scaled(
    instruction: str, k: int, types: tuple[str, str], bits: int, scales: int, token: str
) -> Rows:
    """Return the operands of a block-scaled ``m16n8k{k}``: A, B, their scales, and D.

    ``scales`` scale factors lie along K, in bytes of a register; lanes that the thread-id selector
    does not choose hold copies.
    """
    source = "PTX ISA, Block Scaling for mma.sync"
    a, b, d = _dense(instruction, (16, k), types, ("f32",), "sm_120a", bits)
    v = _digit("v", scales)
    col = {"v": 1} if v else {}
    sfa = Fragment(
        instruction, "SFA", token, bits_of(token), (16, scales),
        TileLayout(S[(2, 8, scales) : (1 @ laneid, 4 @ laneid, 1)] + R[2 : 2 @ laneid]),
        Formula(v, {"g": 1, "t0": 8}, col), "sm_120a", source,
    )  # fmt: skip
    sfb = Fragment(
        instruction, "SFB", token, bits_of(token), (scales, 8),
        TileLayout(S[(scales, 8) : (1, 4 @ laneid)] + R[4 : 1 @ laneid]),
        Formula(v, col, {"g": 1}), "sm_120a", source,
    )  # fmt: skip
    return a, b, sfa, sfb, d


def _tensor_memory(instruction: str, operand: str, shape: str, count: int) -> Rows:
    """Return what one warp moves by ``tcgen05.ld`` or ``.st``: lanes by 32-bit columns of TMEM."""
    j = _digit("j", count)
    col = {"j": 1} if j else {}
    width, layout, formula = {
        "32x32b": (1, S[(32, count) : (1 @ laneid, 1)], Formula(j, {"lane": 1}, col)),
        "16x32bx2": (
            2,
            S[(16, 2, count) : (1 @ laneid, 16 @ laneid, 1)],
            Formula(j, {"r": 1}, col | {"h": count}),
        ),
        "16x64b": (
            2,
            S[(2, 8, count, 2) : (1 @ laneid, 4 @ laneid, 1, 2 @ laneid)],
            Formula(j, {"g": 1, "t0": 8}, {"t1": 1} | ({"j": 2} if j else {})),
        ),
        "16x128b": (
            4,
            S[(2, 8, count, 4) : (1, 4 @ laneid, 2, 1 @ laneid)],
            Formula((*j, ("rM", 2)), {"g": 1, "rM": 8}, {"t": 1} | ({"j": 4} if j else {})),
        ),
        "16x256b": (
            8,
            S[(2, 8, count, 4, 2) : (2, 4 @ laneid, 4, 1 @ laneid, 1)],
            Formula(
                (*j, ("rM", 2), ("rN", 2)), {"g": 1, "rM": 8},
                {"t": 2, "rN": 1} | ({"j": 8} if j else {}),
            ),
        ),
    }[shape]  # fmt: skip
    return (
        Fragment(
            instruction, operand, "b32", 32, (int(shape[:2]), width * count), TileLayout(layout),
            formula, "sm_100a, sm_110a",
            "PTX ISA, Matrix fragments for tcgen05.ld and tcgen05.st",
        ),
    )  # fmt: skip


# shapes (m, k) -> first target; operand types; accumulator types
_FAMILIES: tuple[tuple[dict[tuple[int, int], str], tuple[str, ...], bool, tuple[str, ...]], ...] = (
    ({(16, 16): "sm_80", (16, 8): "sm_75"}, ("f16",), False, ("f32", "f16")),
    ({(16, 16): "sm_80", (16, 8): "sm_80"}, ("bf16",), False, ("f32",)),
    ({(16, 8): "sm_80", (16, 4): "sm_80"}, ("tf32",), False, ("f32",)),
    ({(16, 32): "sm_80", (16, 16): "sm_80", (8, 16): "sm_75"}, ("s8", "u8"), True, ("s32",)),
    ({(16, 64): "sm_80", (16, 32): "sm_80", (8, 32): "sm_75"}, ("s4", "u4"), True, ("s32",)),
    ({(16, 256): "sm_80", (16, 128): "sm_80", (8, 128): "sm_75"}, ("b1",), False, ("s32",)),
    ({(16, 32): "sm_89", (16, 16): "sm_89"}, ("e4m3", "e5m2"), True, ("f32", "f16")),
    (
        {(16, 16): "sm_90", (16, 8): "sm_90", (16, 4): "sm_90", (8, 4): "sm_80"},
        ("f64",),
        False,
        ("f64",),
    ),
)


_SPARSE = (("f16", ("f32", "f16")), ("bf16", ("f32",)))
_NARROW = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")  # in bytes of their own
_FOUR_BITS = (("mxf4", 2, "ue8m0"), ("mxf4nvf4", 2, "ue8m0"), ("mxf4nvf4", 4, "ue4m3"))
# shape -> most repetitions
_MOVES = {"32x32b": 128, "16x32bx2": 128, "16x64b": 128, "16x128b": 64, "16x256b": 32}


def _entries() -> Iterator[tuple[str, Callable[[], Rows]]]:
    """Yield the name and the builder of every instruction, the most used first."""
    for shapes, tokens, mixed, accumulators in _FAMILIES:
        pairs = itertools.product(tokens, repeat=2) if mixed else ((t, t) for t in tokens)
        for a, b in pairs:
            types = a if a == b else f"{a}.{b}"
            for (m, k), arch in shapes.items():
                name = f"mma.m{m}n8k{k}.{types}"
                yield name, partial(_dense, name, (m, k), (a, b), accumulators, arch)
    yield "mma.m8n8k4.f16", partial(_quad_pairs, "mma.m8n8k4.f16")
    for (token, accumulators), k in itertools.product(_SPARSE, (32, 16)):
        name = f"mma.sp.m16n8k{k}.{token}"
        yield name, partial(_sparse, name, k, token, accumulators)
    for a, b in itertools.product(_NARROW, repeat=2):
        name = f"mma.m16n8k32.mxf8f6f4.{a if a == b else f'{a}.{b}'}"
        yield name, partial(_scaled, name, 32, (a, b), 8, 1, "ue8m0")
    for kind, scales, token in _FOUR_BITS:
        name = f"mma.m16n8k64.{kind}.e2m1.{token}"
        yield name, partial(_scaled, name, 64, ("e2m1", "e2m1"), 4, scales, token)
    for verb, operand, arch in (("ldmatrix", "dst", "sm_75"), ("stmatrix", "src", "sm_90")):
        for count, trans in itertools.product((1, 2, 4), (False, True)):
            name = f"{verb}.m8n8.x{count}{'.trans' * trans}.b16"
            yield name, partial(_matrices, name, operand, count, trans, arch)
    yield "movmatrix.m8n8.trans.b16", partial(_movmatrix, "movmatrix.m8n8.trans.b16")
    for token in ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"):
        name = f"wgmma.m64nNk{256 // bits_of(token)}.{token}"
        yield name, partial(_wgmma_a, name, token)
    for n in range(8, 257, 8):
        yield f"wgmma.m64n{n}", partial(_wgmma_d, f"wgmma.m64n{n}", n)
    for (verb, operand), (shape, most) in itertools.product(
        (("ld", "dst"), ("st", "src")), _MOVES.items()
    ):
        for count in (1 << power for power in range(most.bit_length())):
            name = f"tcgen05.{verb}.{shape}.x{count}.b32"
            yield name, partial(_tensor_memory, name, operand, shape, count)


TABLE: dict[str, Callable[[], Rows]] = dict(_entries())
