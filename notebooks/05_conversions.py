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
# # Conversions: from one layout to another, from one notation to another
#
# Data lies as one instruction leaves it, and the next wants it otherwise. `convert` says what that takes, cheapest
# kind first, and why a cheaper one does not do. Every recipe has been run on the element numbers before it is
# handed out.

# %%
import numpy as np

from layoutalg import convert, draw, fragments, parse

A, B, D = (fragments.get("mma.m16n8k16.f16", operand) for operand in "ABD")
shape = (16, 16)

# %% [markdown]
# ## 1. Two accumulators become an A operand: nothing moves
#
# The step from one product to the next. The accumulators are narrowed to f16 first; packed in slot order they *are*
# the A operand.

# %%
two = D.tiled(*shape)
found = convert(two, A, shape)
print(found)
assert found.kind == "registers"
assert found.registers == (0, 1, 2, 3)
assert two.equivalent(A.layout)

# %% [markdown]
# ## 2. The transpose: `movmatrix`, and two registers change places

# %%
transposed = fragments.transposed(A.layout, shape)
found = convert(A, transposed, shape)
print(found)
assert (found.kind, found.movmatrices, found.registers) == ("movmatrix", 4, (0, 2, 1, 3))

# %% [markdown]
# A recipe runs on data: rows are threads, columns slots. Each slot of the destination holds its element.

# %%
x = np.arange(256).reshape(shape)
before = x[tuple(np.moveaxis(A.coords, -1, 0))]  # (32 lanes, 8 slots)
after = found.execute(before)
assert np.array_equal(after, x.T[tuple(np.moveaxis(A.coords, -1, 0))])
draw.compare(A.layout, transposed, shape)

# %% [markdown]
# ## 3. Eight bits: shuffles, or a permutation of k
#
# With 8-bit elements the accumulators no longer match: that takes four `shfl`. The recipe also says how to stay in
# registers: let k be permuted, and permute the rows of the other operand alike.

# %%
A8 = fragments.get("mma.m16n8k32.s8", "A")
found = convert(D.tiled(16, 32), A8, (16, 32), bits=8)
print(found)
assert (found.kind, found.shuffles) == ("shuffle", 4)
(relabelling,) = found.relabellings
assert relabelling.dim == 1
assert sorted(relabelling.permutation) == list(range(32))

# %% [markdown]
# The product stays right, because a permutation of k common to both operands shows in no product:

# %%
rng = np.random.default_rng(0)
left, right = rng.integers(-9, 9, (16, 32)), rng.integers(-9, 9, (32, 8))
k = list(relabelling.permutation)
assert np.array_equal(left[:, k] @ right[k, :], left @ right)
assert not np.array_equal(left[:, k] @ right, left @ right)

# %% [markdown]
# ## 4. A row per lane: through the warp, or through shared memory
#
# `via` asks for a kind; what cannot be done is refused with the place that forbids it.

# %%
row_per_lane = parse("S[(32,8):(1@laneid,1)]")
print(convert(row_per_lane, A, shape).kind)
print(convert(row_per_lane, A, shape, via="shared"))
try:
    convert(row_per_lane, A, shape, via="registers")
    raise AssertionError("a move between lanes was called a renaming")
except ValueError as error:
    print(error)

# %% [markdown]
# ## 5. The same layout in other notations
#
# `read` knows a notation by how it begins; `write` refuses what the other cannot say. CuTe's thread-value layouts
# map (thread, value) to the element, first digit fastest, so they look inside out.

# %%
from layoutalg.interop import read, write

for notation in ("text", "tv", "triton", "tvm", "json", "latex"):
    text = write(D.layout, notation, D.shape)
    print(f"{notation:7} {text}")
    assert read(text, notation, D.shape).layout == D.layout

# %%
tile = read("((4,8),2):((2,16),1)")
print(tile.layout, "over", tile.shape)
assert tile.notation == "cute"
try:
    write(D.layout, "cute", D.shape)
    raise AssertionError("an accumulator was called a tile in memory")
except ValueError as error:
    print(error)

# %% [markdown]
# On the command line: `layoutalg convert mma.m16n8k16.f16:D mma.m16n8k16.f16:A --shape 16,16` and
# `layoutalg convert '((4,8),2):((2,16),1)' --to tvm`.
