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
# # Kernels from tile primitives
#
# A kernel is a page of statements on tiles: copy, gemm, barriers, loops. Every address, swizzle, `ldmatrix`
# row and store below is solved from the layouts; none is written by hand.

# %% [markdown]
# ## 1. One warp: global → shared (swizzled) → `ldmatrix` → `mma` → global

# %%
import lowering as lw
from layoutalg import ComposeLayout, S, TileLayout, fragments, warpid

A, B, D = (fragments.get("mma.m16n8k16.f16", role) for role in "ABD")

k = lw.Kernel("one_warp", threads=32)
a = k.param("a", (16, 16), "float16")
b = k.param("b", (16, 8), "float16")
d = k.param("d", (16, 8), "float32")

# 32-byte rows: Swizzle<1,3,3> in 16-byte units exchanges the two halves of rows 4..7.
sa = k.alloc(
    "sa", (16, 16), "float16", "shared", ComposeLayout(3, 1, 3, TileLayout(S[(16, 16) : (16, 1)]))
)
sb = k.alloc("sb", (16, 8), "float16", "shared")
ra = k.alloc("ra", (16, 16), "float16", layout=A.layout)
rb = k.alloc("rb", (16, 8), "float16", layout=B.layout)
rd = k.alloc("rd", (16, 8), "float32", layout=D.layout)

k.copy(sa, a)
k.copy(sb, b)
k.sync()
k.copy(ra, sa)
k.copy(rb, sb)
k.gemm(rd, ra, rb)
k.copy(d, rd)

program = k.lower()
print(program.script("tile"))

# %% [markdown]
# Each primitive is dispatched to a variant:

# %%
print(program.script("dispatched"))

# %% [markdown]
# and becomes operations on registers and addresses. The address that each lane gives to `ldmatrix` comes from
# two layouts: who receives row *i* of matrix *j* (registers), and where that row lies (shared memory).

# %%
print(program.script("operations"))

# %% [markdown]
# ## 2. Run it, and count shared-memory wavefronts

# %%
import numpy as np

from lowering.verification.checker import machine_name

rng = np.random.default_rng(0)
x = rng.standard_normal((16, 16)).astype(np.float16)
y = rng.standard_normal((16, 8)).astype(np.float16)
ref = x.astype(float) @ y.astype(float)
for name, machine in [("NumPy warp", program.simulate)] + [("GPU", program.run)] * (
    machine_name() == "device"
):
    out = machine(a=x, b=y)["d"]
    error = np.linalg.norm(out - ref) / np.linalg.norm(ref)
    print(name, error)
    assert error < 1e-6
for count in program.banks(a=x, b=y):
    print(count.wavefronts, "wavefronts, fewest", count.fewest, "|", count.op)

# %% [markdown]
# The NumPy warp refuses what a GPU answers with garbage. Without the barrier, `ldmatrix` would read what other
# threads have just written:

# %%
race = lw.Kernel("race", threads=32)
a = race.param("a", (16, 16), "float16")
out = race.param("out", (16, 16), "float16")
sa = race.alloc("sa", (16, 16), "float16", "shared")
ra = race.alloc("ra", (16, 16), "float16", layout=A.layout)
race.copy(sa, a)
race.copy(ra, sa)
race.copy(out, ra)
try:
    race.lower().simulate(a=x)
except ValueError as error:
    print(error)


# %% [markdown]
# ## 3. Eight warps, a loop over K, asynchronous copies

# %%
def over_warps(layout, warps, per):
    "Give each warp its own rows."
    return layout.tile(TileLayout(S[(warps, 1) : (1 @ warpid, 1)]), (warps, 1), per)


M, N, K, step, warps = 128, 32, 128, 32, 8
k = lw.Kernel("cta", threads=32 * warps)
a = k.param("a", (M, K), "float16")
b = k.param("b", (K, N), "float16")
d = k.param("d", (M, N), "float32")
sa = k.alloc(
    "sa",
    (M, step),
    "float16",
    "shared",
    ComposeLayout(3, 2, 3, TileLayout(S[(M, step) : (step, 1)])),
)
sb = k.alloc(
    "sb", (step, N), "float16", "shared", ComposeLayout(3, 2, 3, TileLayout(S[(step, N) : (N, 1)]))
)
per = M // warps
ra = k.alloc("ra", (M, step), "float16", layout=over_warps(A.tiled(per, step), warps, (per, step)))
rb = k.alloc("rb", (step, N), "float16", layout=B.tiled(step, N))
rd = k.alloc("rd", (M, N), "float32", layout=over_warps(D.tiled(per, N), warps, (per, N)))

k.zero(rd)
with k.loop("i", K // step) as i:
    k.copy(sa, a[:, i * step : (i + 1) * step], asynchronous=True)
    k.copy(sb, b[i * step : (i + 1) * step, :], asynchronous=True)
    k.commit()
    k.wait(0)
    k.sync()
    k.copy(ra, sa)
    k.copy(rb, sb)
    k.gemm(rd, ra, rb, rd, beta=1)
    k.sync()
k.copy(d, rd)
cta = k.lower()
print(cta.script("dispatched"))

# %%
x = rng.standard_normal((M, K)).astype(np.float16)
y = rng.standard_normal((K, N)).astype(np.float16)
ref = x.astype(float) @ y.astype(float)
run = cta.run if machine_name() == "device" else cta.simulate
out = run(a=x, b=y)["d"]
print(np.linalg.norm(out - ref) / np.linalg.norm(ref))
ptx = cta.ptx("sm_90")
print(
    ptx.count("mma.sync"),
    "mma,",
    ptx.count("ldmatrix"),
    "ldmatrix,",
    len(cta.cubin("sm_90")),
    "bytes",
)

# %% [markdown]
# ## 4. What cannot be done is said

# %%
from layoutalg import laneid

single = lw.Kernel("bytes")
s8 = single.alloc("s8", (32, 8), "int8", "shared")  # stored [K][N]
fragment = TileLayout(S[(2, 4, 4, 8) : (4, 1 @ laneid, 1, 4 @ laneid)])  # B of m16n8k32.s8
r8 = single.alloc("r8", (32, 8), "int8", layout=fragment)
single.copy(r8, s8, dispatch="ldstmatrix")
try:
    single.lower()
except lw.DispatchError as error:
    print(error)

# %% [markdown]
# ## 5. The CUDA C++ text

# %%
print(program.cuda_source())
