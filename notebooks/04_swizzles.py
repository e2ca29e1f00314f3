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
# # Swizzles: which one, why, and in which unit
#
# Shared memory has 32 banks of 4 bytes. A phase of eight lanes that load 16 bytes each takes one wavefront where
# their 32 words lie in 32 banks, and up to eight where they pile up. A swizzle moves whole vectors, so it changes
# nothing but that.

# %% [markdown]
# ## 1. The problem, counted
#
# A row-major tile of 64 x 64 f16: each row is 128 bytes, all banks once. The eight rows of an 8x8 matrix of
# `ldmatrix` begin at the same bank.

# %%
from layoutalg import (
    S,
    SwizzleLayout,
    TileLayout,
    choose_swizzle,
    draw,
    evaluate_swizzle,
    fragments,
)

plain = evaluate_swizzle(SwizzleLayout(0, 0, 0), (64, 64), "f16")
print(plain.wavefronts[0], "wavefronts over the tile, worst phase", plain.worst[0])
assert plain.worst == (8,)

# %% [markdown]
# ## 2. All candidates, best first
#
# The chooser counts every swizzle that keeps the vectors of each access whole. The tile is written by `cp.async`
# and read by `ldmatrix`; both are counted.

# %%
choice = choose_swizzle((64, 64), "f16")
print(choice)
print(choice.layout)
assert choice.conflicts == 0

# %% [markdown]
# `(3, 3, 3)`: units of 2³ elements; three bits of the unit's number are XORed with the three bits that stand three
# places higher, the row. Row by row, the eight units of a line change places:

# %%
table = choice.layout.table((64, 64))["m"]
print(table[:8, ::8] % 64 // 8)
for row in table[:8, ::8]:
    assert sorted(row % 64 // 8) == list(range(8))  # each row stays in its line
for column in table[:8, ::8].T:
    assert sorted(column % 64 // 8) == list(range(8))  # each column meets all banks

# %%
draw.banks(choice.layout, (64, 64), "f16")

# %% [markdown]
# ## 3. The unit trap
#
# CuTe and the hardware count bytes where a layout counts elements. The same swizzle of f16 is `(3, 3, 3)` in
# elements and `Sw<3,4,3>` in bytes; for f32 it is `(2, 3, 3)`. Every conversion states the unit.

# %%
from layoutalg.interop import read, write

print(choice.in_words(choice.best))
cute = write(choice.layout, "cute", (64, 64), unit="bytes", bits=16)
print(cute)
assert read(cute).layout == choice.layout
assert choose_swizzle((64, 32), "f32").best.key == (2, 3, 3)

# %% [markdown]
# ## 4. The period trap
#
# With rows of 256 bytes the bits three places above the unit are still the column's: `(3, 3, 3)` leaves two-way
# conflicts, and the row begins one place higher.

# %%
for swizzle in (SwizzleLayout(3, 3, 3), SwizzleLayout(3, 3, 4)):
    print(swizzle, "worst phase:", evaluate_swizzle(swizzle, (64, 128), "f16").worst[0])
assert choose_swizzle((64, 128), "f16").best.key == (3, 3, 4)

# %% [markdown]
# ## 5. Or a pitch
#
# Eight elements more per row do the same for `ldmatrix`, at the price of memory. The chooser then says that no
# swizzle is needed.

# %%
padded = choose_swizzle((64, 64), "f16", pitch=72)
print(padded)
assert padded.best.swizzle.swizzle_len == 0
assert padded.conflicts == 0

# %% [markdown]
# ## 6. The same numbers from a running program
#
# The address that each lane gives to `ldmatrix` is solved from the register layout and the shared layout. The
# NumPy warp counts the wavefronts of every shared access that the program makes.

# %%
import numpy as np

import lowering as lw

A = fragments.get("mma.m16n8k16.f16", "A")
x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)


def loads(shared):
    "Load a shared tile by ldmatrix and return (wavefronts, fewest) of all loads."
    k = lw.Kernel("load", threads=32)
    a, out = k.param("a", (64, 64), "float16"), k.param("out", (64, 64), "float16")
    tile = k.alloc("tile", (64, 64), "float16", "shared", shared)
    regs = k.alloc("regs", (64, 64), "float16", layout=A.tiled(64, 64))
    k.copy(tile, a)
    k.sync()
    k.copy(regs, tile)
    k.copy(out, regs)
    program = k.lower()
    assert np.array_equal(program.simulate(a=x)["out"], x)
    counts = [count for count in program.banks(a=x) if "ldmatrix" in str(count.op)]
    return sum(c.wavefronts for c in counts), sum(c.fewest for c in counts)


ours = {
    "row-major": TileLayout(S[(64, 64) : (64, 1)]),
    "swizzled": choice.layout,
    "padded": TileLayout(S[(64, 64) : (72, 1)]),
}
for name, shared in ours.items():
    counted, fewest = loads(shared)
    print(f"{name:10} {counted} wavefronts, fewest {fewest}")
assert loads(ours["row-major"])[0] == plain.wavefronts[0]
assert loads(ours["swizzled"])[0] == loads(ours["swizzled"])[1]

# %% [markdown]
# ## 7. One element, by hand

# %%
from layoutalg.layouts.explanation import explain_element

found = explain_element(choice.layout, (5, 10), (64, 64))
print(found)
assert dict(found.place) == choice.layout.apply(5, 10, shape=(64, 64))

# %% [markdown]
# On the command line: `layoutalg swizzle 64,64` chooses, `layoutalg swizzle 64,64 --check 3,1,3` fails where there is
# a better one, and `layoutalg explain` does the last step.
