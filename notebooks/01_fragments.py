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
# # From a layout expression to the tensor core and to a picture
#
# One warp computes D[16,8] = A[16,16] · B[16,8] with a single `mma.sync.m16n8k16`: f16 in, f32 out.
# Three layouts are written down; everything else on this page is derived from them.

# %% [markdown]
# ## 1. Three expressions
#
# `S[extents : strides]` splits a flat row-major index into digits and sends each, times its stride, to an
# axis. `laneid` counts the 32 threads of a warp; strides without an axis count registers.

# %%
from layoutalg import S, TileLayout, laneid, parse

D_FRAG = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
A_FRAG_K8 = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
B_FRAG_K8 = TileLayout(S[(4, 2, 8) : (1 @ laneid, 1, 4 @ laneid)])
D_FRAG

# %% [markdown]
# Which lane and which register hold element (9, 3) of D, and what does lane 5 hold in register 3?

# %%
print(D_FRAG.apply(9, 3, shape=(16, 8)))
print(D_FRAG.inverse((16, 8)).at(laneid=5, m=3))
print(D_FRAG.inverse((16, 8)))

# %% [markdown]
# ## 2. The operands of m16n8k16, derived
#
# The k16 fragments are the k8 fragments repeated along K in registers: `tile_to`.

# %%
A_FRAG = A_FRAG_K8.tile_to([16, 16], [16, 8])
B_FRAG = B_FRAG_K8.tile_to([16, 8], [8, 8])
print("A", A_FRAG)
print("B", B_FRAG)

# %% [markdown]
# The table of fragments holds the same layouts. Each row proves itself when it is built: it covers its
# tile exactly once and says what the formulas of the PTX ISA say, element by element.

# %%
from layoutalg import fragments

for operand in ("A", "B", "D"):
    row = fragments.get("mma.m16n8k16.f16", operand)
    print(f"{row.operand:8} {row.layout}   {row.formula}")
assert fragments.get("mma.m16n8k16.f16", "A").layout == A_FRAG
assert fragments.get("mma.m16n8k16.f16", "B").layout == B_FRAG

# %% [markdown]
# A row that is wrong in one stride cannot be built:

# %%
from dataclasses import replace

good = fragments.get("mma.m16n8k16.f16", "A")
swapped = parse("S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)]")  # registers a1 and a2 exchanged
try:
    replace(good, layout=swapped)
except ValueError as error:
    print(error)

# %% [markdown]
# ## 3. Draw them
#
# A on the left, B on top, D bottom right; lane 5 is outlined in every panel.

# %%
from layoutalg import draw

draw.operands("mma.m16n8k16.f16", lane=5)

# %% [markdown]
# ## 4. Lower `gemm`
#
# `gemm` is a tile primitive. Dispatch slices and aligns the operands, and takes the first instruction of
# its table whose fragments cut them exactly. The program is unrolled; register numbers are ints.

# %%
import lowering as lw

D = lw.Buffer("D", (16, 8), "float32", layout=D_FRAG)
A = lw.Buffer("A", (16, 16), "float16", layout=A_FRAG)
B = lw.Buffer("B", (16, 8), "float16", layout=B_FRAG)
program = lw.lower(lw.gemm(D, A, B))
print(program.script())

# %% [markdown]
# What does not fit is refused, with every reason.

# %%
shared = lw.Buffer("A", (16, 16), "float16", scope="shared")
try:
    lw.lower(lw.gemm(D, shared, B))
except lw.DispatchError as error:
    print(error)

# %% [markdown]
# ## 5. Run it
#
# On the GPU, compiled by NVRTC, where there is one, else on the NumPy warp. The reference is the
# float64 product of the rounded inputs.

# %%
import numpy as np

from lowering.verification.checker import machine_name

rng = np.random.default_rng(0)
a = rng.standard_normal((16, 16)).astype(np.float16)
b = rng.standard_normal((16, 8)).astype(np.float16)
run = program.run if machine_name() == "device" else program.simulate
out = run(A=a, B=b)
ref = a.astype(np.float64) @ b.astype(np.float64)
error = np.linalg.norm(out - ref) / np.linalg.norm(ref)
print(machine_name(), error)
assert error < 1e-6

# %% [markdown]
# The same program as CUDA C++, and as PTX for a target, without a GPU:

# %%
print(program.cuda_source())

# %%
ptx = program.ptx("sm_90")
print([line.strip() for line in ptx.splitlines() if "mma.sync" in line])
print(len(program.cubin("sm_90")), "bytes of machine code for sm_90")

# %% [markdown]
# ## 6. What the product cannot show
#
# A permutation of k common to A and B leaves the product unchanged: a matching product does not prove the
# labels of a fragment. That is why fragments are compared as tables, element by element.

# %%
k = rng.permutation(16)
permuted = program.simulate(A=a[:, k], B=b[k, :])
print(np.linalg.norm(permuted - out) / np.linalg.norm(out))
assert np.linalg.norm(permuted - out) < 1e-6 * np.linalg.norm(out)
assert not np.array_equal(a[:, k], a)
