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
# # Gallery: one picture per question
#
# Each picture is drawn from a layout or an instruction, shows as SVG here, and is written as SVG, PNG, PDF or
# TikZ with `path="name.svg"`. Colour is the 4-lane group unless a legend says else; lane 5 is outlined
# everywhere, so that one thread can be followed through all of them.

# %%
from layoutalg import S, TileLayout, choose_swizzle, convert, draw, fragments, warpid

MMA = "mma.m16n8k16.f16"
A, B, D = (fragments.get(MMA, operand) for operand in "ABD")

# %% [markdown]
# ## Who holds what? `operands`
#
# A on the left, B on top, D bottom right, as in the product. A cell names the lane and its register.

# %%
draw.operands(MMA, lane=5)

# %% [markdown]
# What the outlined cells say is a table, too: row and column of each slot of lane 5, in PTX operand order.

# %%
assert A.coords[5, :4].tolist() == [[1, 2], [1, 3], [9, 2], [9, 3]]
draw.registers(MMA, "A", lanes=(0, 8))

# %% [markdown]
# ## Why there? `derivation`
#
# The digits of (i, j), coloured by the axis that they go to, then the same digits by axis, times their strides.

# %%
assert D.layout.apply(9, 3, shape=(16, 8)) == {"m": 3, "laneid": 5}
draw.derivation(D.layout, (16, 8), at=(9, 3))

# %% [markdown]
# ## Any layout: `lane_map`
#
# Two warps side by side, each with an accumulator of its own: hue is the warp.

# %%
warps = TileLayout(S[(1, 2) : (1 @ warpid, 1 @ warpid)])
cta = D.layout.tile(warps, (1, 2), (16, 8))
assert cta.apply(9, 11, shape=(16, 16)) == {"warpid": 1, "m": 3, "laneid": 5}
draw.lane_map(cta, (16, 16), lane=32 + 5)

# %% [markdown]
# ## How does it get there from shared memory? `ldmatrix`
#
# Left the lane that gives each row's address, in the middle the stored tile, right the operand.

# %%
draw.ldmatrix(MMA, "A")

# %% [markdown]
# ## What do the banks say? `banks`
#
# Shared memory before and after the swizzle that the chooser finds: words per bank and phase, conflicts counted.

# %%
choice = choose_swizzle((64, 64), "f16", accesses=["ldmatrix"])
assert (choice.before.worst, choice.best.worst) == ((8,), (1,))
draw.banks(choice.layout, (64, 64), "f16")

# %% [markdown]
# ## What does global memory say? `coalescing`
#
# A row is a sector of 32 bytes, grey what is fetched in vain. A warp that loads the A fragment directly from a
# row-major matrix asks, in each request, for 8 sectors of which it takes half.

# %%
from layoutalg.memory.access import sectors, slotwise

row_major = TileLayout(S[(16, 16) : (16, 1)])
request = slotwise(A.layout, A.shape, 2)
touched = sectors(request.starts(row_major, A.shape, 16) * 2, 4)
assert [len(each) for each in touched] == [8, 8, 8, 8]
draw.coalescing(A.layout, row_major, A.shape, "f16")

# %% [markdown]
# ## What has to move? `compare`
#
# Two accumulators as the A operand of the next product: nothing moves, registers are renamed. To the transposed
# operand, elements change lanes.

# %%
two = D.tiled(16, 16)
assert convert(two, A, (16, 16)).kind == "registers"
transposed = fragments.transposed(A.layout, (16, 16))
assert convert(A, transposed, (16, 16)).kind == "movmatrix"
draw.compare(A.layout, transposed, (16, 16))

# %% [markdown]
# ## Which warp does what? `tiling`
#
# A CTA tile of 64 x 64 x 32 on 2 x 2 warps: thick lines part warps, solid ones instructions, dashed ones K steps.

# %%
draw.tiling(MMA, (64, 64, 32), (2, 2))

# %% [markdown]
# ## What does the tensor core read by itself? `descriptor`
#
# Shared memory, 128 bytes in a line: outlined, the 16-byte chunks that one `wgmma` or `tcgen05.mma` visits through
# its descriptor, and the next, 16 columns of K further. `c0`, `c1`, … are the core matrices.

# %%
from layoutalg import mma_shared_layout
from lowering.isa.smem_descriptor import describe

tile = mma_shared_layout("float16", "128B", (64, 64))
found = describe(tile, (64, 64), "f16", "K")
steps = {f"K step {step}": found.places((64, 16), 32 * step) for step in range(2)}
assert (steps["K step 1"] == tile.table((64, 64))["m"][:, 16:32]).all()
draw.descriptor(tile, (64, 64), steps, "f16", names=("m", "k"))

# %% [markdown]
# ## What lies in tensor memory? `tensor_memory`
#
# Lanes from top to bottom, columns in blocks: an accumulator of `tcgen05.mma` takes a lane per row; block scales lie
# there four times.

# %%
from layoutalg import tmem_datapath_layout, tmem_scale_layout

accumulator, scales = tmem_datapath_layout("D", 128, 64), tmem_scale_layout(64, 4)
assert accumulator.apply(17, 3, shape=(128, 64)) == {"TLane": 17, "TCol": 3}
assert [place["TLane"] for place in scales.owners(37, 0, shape=(64, 4))] == [5, 37, 69, 101]
buffers = [
    draw.TensorBuffer("D", accumulator, (128, 64)),
    draw.TensorBuffer("SFB", scales, (64, 4), 8, column=64, names=("n", "k/32")),
]

# %%
draw.tensor_memory({"one CTA": buffers})
