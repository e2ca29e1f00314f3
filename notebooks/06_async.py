# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: -all
#     formats: ipynb,py:percent
#     notebook_metadata_filter: jupytext,kernelspec,-jupytext.text_representation.jupytext_version
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The asynchronous tensor core: descriptor → addresses → swizzled tile → fragment
#
# `wgmma` and `tcgen05.mma` read their operands from shared memory by themselves. What a kernel says about them
# fits 64 bits, and a wrong bit is no error on a GPU: the product is of other numbers. Here the bits come from the
# layout, are taken apart again, and are followed to every address, tile and register.
#
# What `wgmma` does was measured on an H200. `tcgen05` needs a GPU that was not at hand: its programs are assembled
# and simulated, not executed.

# %% [markdown]
# # Part 1: `wgmma` (sm_90a)
#
# ## 1.1 The layout
#
# A is 64 x 64 f16, K-major, swizzled by 128 bytes: rows of 128 bytes, and in row *r* the 16-byte chunk *c* lies in
# place *c* XOR (*r* mod 8).

# %%
import numpy as np

from layoutalg import LayoutError, draw, fragments, mma_shared_layout

A_TILE = mma_shared_layout("float16", "128B", (64, 64))
place = A_TILE.table((64, 64))["m"]  # in elements
row, col = np.indices((64, 64))
assert (place == 64 * row + 8 * (col // 8 ^ row % 8) + col % 8).all()
print(A_TILE)

# %% [markdown]
# ## 1.2 The descriptor is derived
#
# `describe` finds offsets and swizzle mode, then proves them: it visits every element of every operand tile, and
# compares with the layout.

# %%
from lowering.isa.smem_descriptor import Descriptor, describe, starts

hopper = describe(A_TILE, (64, 64), "f16", "K", rows=64)
print(hopper)

# %% [markdown]
# ## 1.3 Its 64 bits, field by field
#
# The positions are those of the PTX ISA, "Matrix Descriptor Format"; addresses and offsets count 16 bytes.

# %%
START = 0x2000
HOPPER = {
    "start address": (0, 14),
    "leading byte offset": (16, 14),
    "stride byte offset": (32, 14),
    "base offset": (49, 3),
    "swizzle mode": (62, 2),
}


def fields(bits, places):
    "Cut bits into fields; what lies between them must be 0."
    found = {name: bits >> at & (1 << width) - 1 for name, (at, width) in places.items()}
    assert bits == sum(value << places[name][0] for name, value in found.items())
    for name, value in found.items():
        at, width = places[name]
        print(f"  bits {at:2}..{at + width - 1:2}  {name:22} {value:#x}")
    return found


bits = hopper.bits(START)
print(f"{bits:#018x}")
cut = fields(bits, HOPPER)
assert cut["start address"] * 16 == START
assert cut["stride byte offset"] * 16 == 8 * 128  # from 8 rows to the next 8
assert cut["swizzle mode"] == 1  # 128 bytes
assert Descriptor.from_bits(bits, "K", 16) == (hopper, START)

# %% [markdown]
# The leading byte offset says nothing here: a swizzled line is 128 bytes, and one instruction reads 32 of them.

# %%
from dataclasses import replace

other = replace(hopper, leading=4096)
assert (other.addresses((64, 16), START) == hopper.addresses((64, 16), START)).all()

# %% [markdown]
# ## 1.4 From bits to addresses
#
# What the tensor core does with them, in three lines: 8 rows of 128 bytes, the next 8 rows one stride further, then
# chunk bits 4..6 of the whole address XOR bits 7..9.


# %%
def visit(cut, rows, cols):
    "Return the byte address of each f16 that a K-major descriptor swizzled by 128 bytes reads."
    r, k = np.indices((rows, cols))
    address = (
        cut["start address"] * 16 + r % 8 * 128 + r // 8 * cut["stride byte offset"] * 16 + 2 * k
    )
    return address ^ (address >> 7 & 7) << 4


assert (visit(cut, 64, 16) == START + 2 * place[:, :16]).all()
assert (visit(cut, 64, 16) == hopper.addresses((64, 16), START)).all()

# %% [markdown]
# ## 1.5 The next K step
#
# One instruction multiplies K = 16: 32 bytes of each row. The next 16 columns are the same descriptor, 32 bytes
# further: the XOR sees the whole address, so a step inside the swizzled line needs nothing else.

# %%
print(starts(A_TILE, (64, 64), "f16", 64))
for step in range(4):
    later = hopper.addresses((64, 16), START + 32 * step)
    assert (later == START + 2 * place[:, 16 * step : 16 * step + 16]).all()
    print(f"k {16 * step:2}: {hopper.bits(START + 32 * step):#018x}")

# %% [markdown]
# ## 1.6 The tile, as it is visited
#
# Outlined: the chunks of the first two instructions. `c0`, `c1`, … number the core matrices, 8 rows of 16 bytes:
# the hardware's unit, here scattered over 8 lines so that they meet all banks.

# %%
steps = {f"K step {step}": hopper.places((64, 16), 32 * step) for step in range(2)}
draw.descriptor(A_TILE, (64, 64), steps, "f16", names=("m", "k"))

# %% [markdown]
# Each core matrix in 8 different places of its line:

# %%
chunk = hopper.addresses((64, 16), 0)[:, ::8] // 16
for first in range(0, 64, 8):
    for core in chunk[first : first + 8].T:
        assert sorted(core % 8) == list(range(8))

# %% [markdown]
# ## 1.7 A layout that no descriptor says
#
# Row-major without a swizzle, padded rows, a swizzle by other bits: refused, with the first element that would be
# missed and what would fit.

# %%
from layoutalg import ComposeLayout, S, TileLayout

for wrong in (
    TileLayout(S[(64, 64) : (64, 1)]),
    ComposeLayout(3, 3, 3, TileLayout(S[(64, 64) : (128, 1)])),
    ComposeLayout(3, 3, 3, TileLayout(S[(64, 64) : (1, 64)])),
):
    try:
        describe(wrong, (64, 64), "f16", "K")
        raise AssertionError("a wrong layout got a descriptor")
    except LayoutError as error:
        print(error, end="\n\n")

# %% [markdown]
# The last one is M-major, and as such it has one; `transA` says it to the instruction.

# %%
print(describe(wrong, (64, 64), "f16", "MN"))

# %% [markdown]
# ## 1.8 What comes out: the accumulator's fragment
#
# Warp *w* has rows 16*w* to 16*w* + 15; inside it is the accumulator of `mma.m16n8k16`, repeated along N. N = 8 here;
# lane 5 of warp 1 is outlined.

# %%
acc = fragments.get("wgmma.m64n64", "D.f32")
small = fragments.get("mma.m16n8k16.f16", "C/D.f32")
table, part = acc.layout.table((64, 64)), small.layout.table((16, 8))
assert (table["wid_in_wg"] == row // 16).all()
for n in range(8):
    mine = np.s_[16:32, 8 * n : 8 * n + 8]
    assert (table["laneid"][mine] == part["laneid"]).all()
    assert (table["m"][mine] == part["m"] + 4 * n).all()
print(acc.layout)
draw.operands("wgmma.m64n8", lane=32 + 5)

# %% [markdown]
# ## 1.9 The program
#
# Threads copy A and B to swizzled tiles, a warpgroup multiplies, and stores. B is given (N, K), so it is K-major
# too. Nobody writes a descriptor, an address or a fence.

# %%
import lowering as lw


def hopper_kernel(a_tile=A_TILE):
    k = lw.Kernel("hopper", threads=128, arch="sm_90a")
    a, b = k.param("a", (64, 64), "float16"), k.param("b", (64, 64), "float16")
    d = k.param("d", (64, 64), "float32")
    sa = k.alloc("sa", (64, 64), "float16", "shared", a_tile)
    sb = k.alloc("sb", (64, 64), "float16", "shared", A_TILE)
    c = k.alloc("c", (64, 64), "float32", layout=acc.layout)
    k.copy(sa, a)
    k.copy(sb, b)
    k.sync()
    k.gemm_async(c, sa, sb, transB=True)
    k.commit("gemm")
    k.wait(0, "gemm")
    k.copy(d, c)
    return k


program = hopper_kernel().lower()
print(program.script("dispatched"))

# %% [markdown]
# Four instructions, one per K step, their start addresses 16 elements = 32 bytes apart; before them a
# `fence.proxy.async`, since threads wrote what another proxy reads:

# %%
lines = program.script().splitlines()
first = lines.index("fence.proxy.async")
print("\n".join(lines[first : first + 9]))
assert sum("m64n64k16" in line for line in lines) == 4

# %% [markdown]
# ## 1.10 The NumPy warp decodes the descriptors again
#
# It knows no layout: it reads shared memory where the 64 bits lead. Integers, so the product must be exact.

# %%
rng = np.random.default_rng(0)
a, b = rng.integers(-8, 9, (2, 64, 64))
assert (program.simulate(a=a, b=b)["d"] == a @ b.T).all()

# %% [markdown]
# ## 1.11 What a GPU would not say
#
# A missing fence, barrier, commit or wait is a silent race on a GPU. Here each is an error that names the access.

# %%
from lowering.ir.ops import ProxyFence, Sync, WgmmaCommit, WgmmaFence, WgmmaWait


def without(program, *kinds):
    "Return a program that lacks every operation of some kinds."
    ops = tuple(op for op in program.body.ops if not isinstance(op, kinds))
    assert len(ops) < len(program.body.ops)
    return replace(program, lowered=replace(program.body, ops=ops))


for kind in (ProxyFence, Sync, WgmmaFence, WgmmaCommit, WgmmaWait):
    try:
        without(program, kind).simulate(a=a, b=b)
        raise AssertionError(f"nobody missed {kind.__name__}")
    except ValueError as error:
        print(f"{kind.__name__}: {error}\n")

# %% [markdown]
# And a tile that no descriptor says is refused when the program is lowered, not when it runs:

# %%
try:
    hopper_kernel(TileLayout(S[(64, 64) : (64, 1)])).lower()
    raise AssertionError("a wrong layout was lowered")
except lw.DispatchError as error:
    print(error)

# %% [markdown]
# ## 1.12 What stands behind this
#
# The H200 was asked with one-hot operands where each element is read from: for B with this very descriptor, and for
# the accumulator's fragment. The records are kept.

# %%
import json
from pathlib import Path

record = json.loads(Path("../tests/data/hardware/h200_wgmma.json").read_text())
(asked,) = (each for each in record if each["instruction"] == "descriptor.B.f16.K.128")
print(asked["device"], asked["date"], asked["claims"]["descriptor"])
print(asked["measured"][0])
assert asked["claims"]["descriptor"] == str(hopper)
assert asked["difference"] is None
assert asked["machine"] == "device"
print(acc.certificate.statement)
assert acc.certificate.kind == "measured"

# %% [markdown]
# # Part 2: `tcgen05` (sm_100a)
#
# **Assembled and simulated, not executed.** The same operands, another machine: one thread starts the product, and
# the accumulator lies in tensor memory, 128 lanes of 512 columns of 32 bits, until warps load it.
#
# ## 2.1 The same tile, other bits
#
# Offsets and addresses are the same; the version in bits 46..48 is new, and the swizzle's code has 3 bits.

# %%
blackwell = describe(A_TILE, (64, 64), "f16", "K", rows=64, machine="tcgen05")
BLACKWELL = HOPPER | {"version": (46, 3), "swizzle mode": (61, 3)}
print(f"{hopper.bits(START):#018x} wgmma\n{blackwell.bits(START):#018x} tcgen05")
cut = fields(blackwell.bits(START), BLACKWELL)
assert (cut["version"], cut["swizzle mode"]) == (1, 2)
assert (blackwell.addresses((64, 16), START) == hopper.addresses((64, 16), START)).all()

# %% [markdown]
# Bits of one machine mean nothing, or worse, something else to the other:

# %%
try:
    Descriptor.from_bits(hopper.bits(START), "K", 16, machine="tcgen05")
    raise AssertionError("another machine's bits were taken")
except LayoutError as error:
    print(error)

# %% [markdown]
# ## 2.2 The instruction descriptor
#
# Types, M, N and majors are no part of the mnemonic: they are 32 more bits.

# %%
from lowering.isa import tcgen05

what = tcgen05.Multiplication(tcgen05.get("f16", 64, 64), majors=("K", "K"))
code = tcgen05.encode(what)
print(f"{what.instruction.ptx}  {code:#010x}")
INSTRUCTION = {
    "type of D (1: f32)": (4, 2),
    "type of A (0: f16)": (7, 3),
    "type of B (0: f16)": (10, 3),
    "A is MN-major": (15, 1),
    "B is MN-major": (16, 1),
    "N / 8": (17, 6),
    "M / 16": (24, 5),
}
cut = fields(code, INSTRUCTION)
assert (cut["M / 16"], cut["N / 8"]) == (64 // 16, 64 // 8)
assert tcgen05.decode("f16", 0, 1, code) == what

# %% [markdown]
# ## 2.3 The accumulator in tensor memory
#
# With M = 64 the rows take 16 of every 32 lanes. A warp may load the 32 lanes of its own only, so that each of the
# four has 16 rows: as of `wgmma`.

# %%
from layoutalg import tcgen05_atom_layout, tmem_datapath_layout

D64 = tmem_datapath_layout("F", 64, 64)
print(D64)
assert D64.apply(17, 3, shape=(64, 64)) == {"TLane": 33, "TCol": 3}
draw.tensor_memory({"M = 64": [draw.TensorBuffer("D", D64, (64, 64))]})

# %% [markdown]
# ## 2.4 `tcgen05.ld`: lane and column → thread and register
#
# The shape 16x256b, repeated along the columns, gives each thread the very registers of the `wgmma` accumulator. So
# an epilogue for the one serves the other.

# %%
D64_HELD = tcgen05_atom_layout("16x256b", (64, 64), "float32")
assert D64_HELD.equivalent(acc.layout, shape=(64, 64))
print(D64_HELD)
draw.registers("tcgen05.ld.16x256b.x2.b32", lane=5)

# %% [markdown]
# ## 2.5 The program


# %%
def blackwell_kernel():
    k = lw.Kernel("blackwell", threads=128, arch="sm_100a")
    a, b = k.param("a", (64, 64), "float16"), k.param("b", (64, 64), "float16")
    d = k.param("d", (64, 64), "float32")
    sa = k.alloc("sa", (64, 64), "float16", "shared", A_TILE)
    sb = k.alloc("sb", (64, 64), "float16", "shared", A_TILE)
    c = k.alloc("c", (64, 64), "float32", "tmem", D64)
    held = k.alloc("held", (64, 64), "float32", layout=D64_HELD)
    done = k.barrier("done", slots=1, arrivals=1)
    k.copy(sa, a)
    k.copy(sb, b)
    k.sync()
    k.gemm_async(c, sa, sb, transB=True, scope="thread")
    k.commit("gemm", done)
    k.mbarrier_wait(done, 0, 0)
    k.copy(held, c)
    k.copy(d, held)
    return k


program = blackwell_kernel().lower()
lines = program.script().splitlines()
first = lines.index("fence.proxy.async")
last = next(n for n, line in enumerate(lines) if line.startswith("tcgen05.wait.ld"))
print("\n".join([*lines[first : last + 1], "…", lines[-1]]))

# %% [markdown]
# Simulated from the bits of both kinds of descriptors, exactly:

# %%
assert (program.simulate(a=a, b=b)["d"] == a @ b.T).all()

# %% [markdown]
# ## 2.6 Assembled: the PTX statements

# %%
ptx = program.ptx()
for line in ptx.splitlines():
    if "tcgen05.mma" in line or "tcgen05.commit" in line or "tcgen05.fence" in line:
        print(line.strip())
assert f"{code:#x}" in ptx
assert f"{blackwell.words[1]:#x}" in ptx  # the high word of the descriptors is part of the text
assert ptx.count("tcgen05.mma.") == 4
print(len(program.cubin()), "bytes of machine code for", program.body.arch)

# %% [markdown]
# ## 2.7 A missing fence, commit or wait is named

# %%
from lowering.ir.tmem_ops import TensorCommit, TensorFence, TensorWait

for kind in (ProxyFence, TensorFence, TensorCommit, TensorWait):
    try:
        without(program, kind).simulate(a=a, b=b)
        raise AssertionError(f"nobody missed {kind.__name__}")
    except ValueError as error:
        print(f"{kind.__name__}: {error}\n")

# %% [markdown]
# ## 2.8 Block scales: four copies
#
# e4m3 with a ue8m0 scale for every 32 elements of K. Scales lie in tensor memory too, four bytes to a column: row
# *r* in lane *r* mod 32, column *r* // 32, and again in each of the four groups of 32 lanes.

# %%
from layoutalg import tmem_scale_layout

M, N, K, BLOCK = 128, 128, 128, 32
SFA, SFB = tmem_scale_layout(M, K // BLOCK), tmem_scale_layout(N, K // BLOCK)
print(SFA)
lanes = [place["TLane"] for place in SFA.owners(37, 0, shape=(M, K // BLOCK))]
assert lanes == [5, 37, 69, 101]

# %% [markdown]
# `tcgen05.cp` with `.warpx4` makes the copies on the way from shared memory.


# %%
def scaled_kernel():
    k = lw.Kernel("scaled", threads=128, arch="sm_100a")
    d = k.param("d", (M, N), "float32")
    tiles, scales = [], []
    for role, rows in (("a", M), ("b", N)):
        given = k.param(role, (rows, K), "e4m3")
        layout = mma_shared_layout("float8_e4m3fn", "128B", (rows, K))
        tiles.append(k.alloc(f"s{role}", (rows, K), "e4m3", "shared", layout))
        k.copy(tiles[-1], given)
    for role, rows, layout in (("sfa", M, SFA), ("sfb", N, SFB)):
        blocks = (rows, K // BLOCK)
        given = k.param(role, blocks, "ue8m0")
        packed = TileLayout(S[(rows // 32, 32, K // BLOCK) : (4, 16, 1)])  # row by row of 16 bytes
        staged = k.alloc(f"s{role}", blocks, "ue8m0", "shared", packed)
        k.copy(staged, given)
        scales.append((k.alloc(f"t{role}", blocks, "ue8m0", "tmem", layout), staged))
    c = k.alloc("c", (M, N), "float32", "tmem", tmem_datapath_layout("D", M, N))
    held = k.alloc(
        "held", (M, N), "float32", layout=tcgen05_atom_layout("32x32b", (M, N), "float32")
    )
    done = k.barrier("done", slots=1, arrivals=1)
    k.sync()
    for tensor, staged in scales:
        k.copy(tensor, staged, scope="thread")
    (sfa, _), (sfb, _) = scales
    k.gemm_async(c, *tiles, SFA=sfa, SFB=sfb, transB=True, scope="thread")
    k.commit("gemm", done)
    k.mbarrier_wait(done, 0, 0)
    k.copy(held, c)
    k.copy(d, held)
    return k


scaled = scaled_kernel().lower()
lines = scaled.script().splitlines()
print("\n".join(line for line in lines if "tcgen05.cp" in line or "tcgen05.m128" in line))

# %% [markdown]
# Where everything lies. Of 32 elements of K each instruction takes one scale of a row: one byte of a column, which its
# instruction descriptor names.

# %%
at = scaled.body.tensor_offsets
draw.tensor_memory(
    {
        "M = 128, N = 128": [
            draw.TensorBuffer("D", tmem_datapath_layout("D", M, N), (M, N), column=at["c"]),
            draw.TensorBuffer("SFA", SFA, (M, K // BLOCK), 8, at["tsfa"], names=("m", "k/32")),
            draw.TensorBuffer("SFB", SFB, (N, K // BLOCK), 8, at["tsfb"], names=("n", "k/32")),
        ]
    }
)

# %%
from lowering.ir.tmem_ops import TensorMma

products = [op.what for op in scaled.body.ops if isinstance(op, TensorMma)]
SCALED = {
    "byte of SFB": (4, 2),
    "type of A (0: e4m3)": (7, 3),
    "type of B (0: e4m3)": (10, 3),
    "A is MN-major": (15, 1),
    "B is MN-major": (16, 1),
    "N / 8": (17, 6),
    "scales (1: ue8m0)": (23, 1),
    "M / 128": (27, 2),
    "byte of SFA": (29, 2),
}
for step, each in enumerate(products):
    code = tcgen05.encode(each)
    print(f"k {BLOCK * step:3}: {code:#010x}, bytes {each.scale_bytes}")
    assert each.scale_bytes == (step, step)
    assert tcgen05.decode("mxf8f6f4", BLOCK, 1, code) == each
print(products[-1].instruction)
cut = fields(code, SCALED)
assert (cut["M / 128"], cut["N / 8"], cut["byte of SFA"]) == (1, 16, 3)

# %% [markdown]
# The NumPy warp reads each scale from all four copies, and refuses to go on where they differ.

# %%
a, b = rng.integers(-8, 9, (M, K)), rng.integers(-8, 9, (N, K))
sfa, sfb = (2.0 ** rng.integers(-2, 3, (rows, K // BLOCK)) for rows in (M, N))
want = (a * np.repeat(sfa, BLOCK, 1)) @ (b * np.repeat(sfb, BLOCK, 1)).T
assert (scaled.simulate(a=a, b=b, sfa=sfa, sfb=sfb)["d"] == want).all()

# %%
for line in scaled.ptx().splitlines():
    if "tcgen05.mma" in line or "tcgen05.cp" in line:
        print(line.strip())
print(len(scaled.cubin()), "bytes of machine code")

# %% [markdown]
# # Part 3: a 2-CTA cluster
#
# With `cta_group::2` one instruction multiplies for two CTAs of a cluster: each has half the rows of A and D, and
# half the columns of B, which both need whole; the tensor core reads both shared memories. So each CTA loads half of
# B.


# %%
from layoutalg import tmem_mma_operand_layout, wg_local_layout


def pair_kernel(m, held, n=64, depth=64):
    "Return a kernel of two CTAs for m rows; held: the registers of the rows that one CTA has."
    rows, cols = m // 2, n // 2
    k = lw.Kernel("pair", threads=128, arch="sm_100a", cluster=2)
    rank = k.rank()
    a, b = k.param("a", (m, depth), "float16"), k.param("b", (n, depth), "float16")
    d = k.param("d", (m, n), "float32")
    a_tile, b_tile = (mma_shared_layout("float16", "128B", (each, depth)) for each in (rows, cols))
    sa = k.alloc("sa", (rows, depth), "float16", "shared", a_tile)
    sb = k.alloc("sb", (cols, depth), "float16", "shared", b_tile)
    c = k.alloc("c", (rows, n), "float32", "tmem", tmem_mma_operand_layout("D", (rows, n), m, 2))
    regs = k.alloc("regs", (rows, n), "float32", layout=held)
    done = k.barrier("done", slots=1, arrivals=1)
    k.copy(sa, a[rank * rows : rank * rows + rows, :])
    k.copy(sb, b[rank * cols : rank * cols + cols, :])
    k.sync("cluster", memory=True)
    k.gemm_async(c, sa, sb, transB=True, scope="thread", cta_group=2)
    k.commit("gemm", done)
    k.mbarrier_wait(done, 0, 0)
    k.copy(regs, c)
    k.copy(d[rank * rows : rank * rows + rows, :], regs)
    return k


# %% [markdown]
# With M = 256 each CTA has 128 rows, a lane each. With M = 128 it has 64, and their columns in two halves, so that
# all lanes are used.

# %%
from layoutalg import tid_in_wg

HALVES = TileLayout(S[(64, 2, 32) : (1 @ tid_in_wg, 64 @ tid_in_wg, 1)])
pairs = {256: pair_kernel(256, wg_local_layout(64)), 128: pair_kernel(128, HALVES)}
for m, kernel in pairs.items():
    pair = kernel.lower()
    a, b = rng.integers(-8, 9, (m, 64)), rng.integers(-8, 9, (64, 64))
    assert (pair.simulate(a=a, b=b)["d"] == a @ b.T).all()
    product = next(op for op in pair.body.ops if isinstance(op, TensorMma))
    print(product.what.instruction, f"{tcgen05.encode(product.what):#010x}")
    assert (product.what.instruction.rows, product.what.instruction.cols) == (m // 2, 32)


# %%
def of_pair(m):
    "Return the accumulator of each CTA of a pair."
    layout = tmem_mma_operand_layout("D", (m // 2, 64), m, 2)
    return {
        f"M = {m}: CTA {rank}": [
            draw.TensorBuffer("D", layout, (m // 2, 64), origin=(rank * m // 2, 0))
        ]
        for rank in range(2)
    }


draw.tensor_memory(of_pair(256) | of_pair(128))

# %% [markdown]
# One thread of the first CTA starts the product, and its commit arrives at the mbarrier of both. Before it, the
# cluster meets: the other's half of B must be there. Without, it is an error again:

# %%
lines = pair.script().splitlines()
first = next(n for n, line in enumerate(lines) if line.startswith("tcgen05.m128"))
print("\n".join(lines[first - 4 : first + 7]))
try:
    without(pair, Sync).simulate(a=a, b=b)
    raise AssertionError("nobody missed the barriers of the cluster")
except ValueError as error:
    print(error)

# %%
for line in pair.ptx().splitlines():
    if "tcgen05.mma" in line or "tcgen05.commit" in line:
        print(line.strip())
print(len(pair.cubin()), "bytes of machine code: assembled and simulated, not executed")
