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
# # What stands between two products
#
# Attention in one warp: S = Q·K, a softmax over the rows of S, and its product with V. Three things stand between the
# two products: a reduction (the largest of each row), a broadcast (which each element of the row subtracts), and a
# conversion (accumulators become an operand). None of them names a lane or a register: each follows from a layout.

# %%
import numpy as np

import lowering as lw
from layoutalg import convert, draw, fragments, parse

ROWS, KEYS, DEPTH = 16, 32, 16


def tile(k, name, role, rows, cols, dtype="float16"):
    """Return a register tile in the layout of an operand of m16n8k16."""
    layout = fragments.get("mma.m16n8k16.f16", role).tiled(rows, cols)
    return k.alloc(name, (rows, cols), dtype, layout=layout)


k = lw.Kernel("attention")
q = k.param("q", (ROWS, DEPTH), "float16")
keys = k.param("keys", (DEPTH, KEYS), "float16")
v = k.param("v", (KEYS, DEPTH), "float16")
o = k.param("o", (ROWS, DEPTH), "float32")
rq, rk, rv = (
    tile(k, "rq", "A", ROWS, DEPTH),
    tile(k, "rk", "B", DEPTH, KEYS),
    tile(k, "rv", "B", KEYS, DEPTH),
)
s, out = tile(k, "s", "D", ROWS, KEYS, "float32"), tile(k, "out", "D", ROWS, DEPTH, "float32")
k.copy(rq, q), k.copy(rk, keys), k.copy(rv, v)
k.gemm(s, rq, rk)
print(s.layout)

# %% [markdown]
# ## 1. A reduction: the digits of the columns go
#
# Of S[16, 32], the columns are a digit of 4 lanes, one of 4 registers and one of 2. In `max(s, axis=1)` the register
# digits go, and the lane digit becomes a replica `R[4:1@laneid]`: every lane that held some of a row holds its maximum.

# %%
row_max = k.tile("row_max", lw.max(s, axis=1))
print(row_max.layout)
assert row_max.layout == parse("S[(2,8):(1,4@laneid)] + R[4:1@laneid]")
assert row_max.layout == s.layout.reduced((ROWS, KEYS), axis=1)
draw.lane_map(
    row_max.layout, (ROWS, 1), title="the maximum of each row: in four lanes, two registers each"
)

# %% [markdown]
# Registers are joined first, then lanes by `shfl.bfly`: one for each bit of the lane digit and each result, which is the
# fewest that leave the result in all four lanes.

# %%
script = k.lower().script()
print(*[line for line in script.splitlines() if "shfl" in line], sep="\n")
assert script.count("shfl.bfly") == 2  # lane bits 1 and 2, each for both registers of the lane

# %% [markdown]
# ## 2. A broadcast: an extent of 1, and nothing moves
#
# `row_max` has shape (16, 1). Each lane holds what its own elements of S need, because the layout was derived so; the
# script shows which register each of the 16 elements takes.

# %%
p = k.tile("p", lw.exp(s - row_max))
total = k.tile("total", lw.sum(p, axis=1))
assert p.layout == s.layout
print(*[line for line in k.lower().script().splitlines() if "exp(" in line])

# %% [markdown]
# A layout that leaves a lane without what it needs is refused, before anything runs:

# %%
other = lw.Kernel("wrong")
x = tile(other, "x", "D", ROWS, KEYS, "float32")
alone = other.alloc("alone", (ROWS, 1), "float32", layout=parse("S[(16,1):(1@laneid,1)]"))
other.zero(x), other.zero(alone), other.assign(x, x - alone)
try:
    other.lower()
    raise AssertionError("a lane subtracted what it does not hold")
except lw.DispatchError as error:
    print(error)

# %% [markdown]
# ## 3. A conversion: accumulators become the operand A
#
# The second product wants P in the layout of A. `convert` proves that two accumulators, narrowed to f16, are that
# operand: no register moves.

# %%
a = fragments.get("mma.m16n8k16.f16", "A").tiled(ROWS, KEYS)
found = convert(s.layout, a, (ROWS, KEYS), bits=16)
print(found)
assert found.kind == "registers"
draw.compare(s.layout, a, (ROWS, KEYS))

# %%
k.gemm(out, k.tile("p_f16", lw.cast(p, "float16")), rv)
k.copy(o, k.tile("scaled", out / total))
program = k.lower()
rng = np.random.default_rng(0)
given = {b.name: rng.standard_normal(b.shape).astype(np.float16) for b in (q, keys, v)}
exact = np.exp(given["q"].astype(float) @ given["keys"].astype(float))
want = exact / exact.sum(axis=1, keepdims=True) @ given["v"].astype(float)
got = program.simulate(**given)["o"]
print("largest error", np.abs(got - want).max())
assert np.abs(got - want).max() < 2e-3

# %% [markdown]
# ## 4. When the layouts differ, the copy is the conversion
#
# Half a row in each lane: that is another layout than the products leave. `copy` between two register tiles lowers what
# `convert` finds to be cheapest; `via=` asks for a kind. The recipe says how each lane finds what it takes, as a formula
# of its number.

# %%
halves = parse("S[(16,2,4,4):(2@laneid,1@laneid,1,4)]")
found = convert(s.layout, halves, (ROWS, KEYS), bits=32, via="shuffle")
print(
    found.shuffles,
    "shuffles",
    found.selects,
    "selects; the first step:",
    str(found).splitlines()[1],
)
move = lw.Kernel("move")
source, target = (move.param(name, (ROWS, KEYS), "float32") for name in ("source", "target"))
before = move.alloc("before", (ROWS, KEYS), "float32", layout=s.layout)
after = move.alloc("after", (ROWS, KEYS), "float32", layout=halves)
move.copy(before, source), move.copy(after, before, via="shuffle"), move.copy(target, after)
lowered = move.lower()
assert lowered.cuda_source().count("shfl_idx_f(") - 1 == found.shuffles
x = rng.standard_normal((ROWS, KEYS)).astype(np.float32)
assert np.array_equal(lowered.simulate(source=x)["target"], x)
print(convert(s.layout, halves, (ROWS, KEYS), bits=32).kind, "is what a plain copy takes")
