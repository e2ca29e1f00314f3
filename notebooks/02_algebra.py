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
# # The algebra: each operation with its law
#
# A layout maps a flat index, split row-major into digits, to named axes. Every operation below obeys a law
# that is checked here on every element; each is also shown on symbols.

# %%
import itertools

import sympy

from layoutalg import (
    ComposeLayout,
    R,
    S,
    TileLayout,
    align,
    convert,
    draw,
    fragments,
    laneid,
    parse,
    warpid,
)

D = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
i, j, Mt, k = sympy.symbols("i j Mt k", integer=True, positive=True)


def same(left, right):
    "Say whether two layouts give every flat index the same place."
    return all(left.apply(x) == right.apply(x) for x in range(left.size()))


D

# %% [markdown]
# ## apply: where an element is
#
# On symbols the answer is a formula, one term per digit.

# %%
print(D.apply(9, 3, shape=(16, 8)))
assert D.apply(9, 3, shape=(16, 8)) == {"m": 3, "laneid": 5}
for axis, formula in D.apply(i, j, shape=(16, 8)).items():
    print(f"{axis:7} = {formula}")
draw.lane_map(D, (16, 8))

# %% [markdown]
# ## inverse and owners: what is where

# %%
print(D.inverse((16, 8)))
L = TileLayout(
    S[(8, 2, 4, 2) : (4 @ laneid, 1 @ warpid, 1 @ laneid, 1)] + R[2 : 4 @ warpid] + 5 @ warpid
)
print(L.owners(7, 15, shape=(8, 16)))
for x in range(128):
    assert D.inverse((16, 8)).at(**D.apply(x)) == divmod(x, 8)

# %% [markdown]
# ## canonicalize: one form per map
#
# *Law:* the map is unchanged. Unit digits go, neighbours on one axis fuse. Under `target="cuda"`, axes that are
# one axis there become one.

# %%
wide = parse("S[(8,1,4,2):(8,7,2,1)]")
print(wide.canonicalize())
assert same(wide, wide.canonicalize())
print(parse("S[(2,8,2,4):(2@wid_in_wg,4@laneid,1@wid_in_wg,1@laneid)]").canonicalize("cuda"))
print(parse("S[(Mt,16,8):(128,8,1)]").canonicalize())

# %% [markdown]
# ## group: whole digits per dimension
#
# *Law:* the map is unchanged; digits `seps[d] .. seps[d+1]` hold dimension d.

# %%
grouped, seps = TileLayout(S[24:1]).group((2, 3, 4))
print(grouped, seps)
assert same(grouped, TileLayout(S[24:1]))
print(*parse("S[16*Mt:1]").group((Mt, 16)))
print(*TileLayout(S[30:1]).group_many([[6, 5], [2, 15]]))

# %% [markdown]
# ## permute
#
# *Law:* group d of the result is group `perm[d]`: with two groups, the transpose.

# %%
grouped, seps = D.group((16, 8))
transposed = grouped.permute_by_groups(seps, (1, 0))
print(transposed)
for r, c in itertools.product(range(16), range(8)):
    assert D.apply(r, c, shape=(16, 8)) == transposed.apply(c, r, shape=(8, 16))

# %% [markdown]
# ## tile and tile_to: copies of a tile
#
# *Law:* with `t = o*inner + n` per dimension, `T(t) = span * Outer(o) + Inner(n) + offsets`.
# One statement tiles the accumulator for every number of rows at once.

# %%
print(D.tile_to((32, 16), (16, 8)))
tiled = D.tile_to((16 * Mt, 8), (16, 8))
print(tiled, "   Mt = 3:", tiled.subs({Mt: 3}))
assert tiled.subs({Mt: 3}) == D.tile_to((48, 8), (16, 8))
warps = TileLayout(S[(2, 2) : (2 @ warpid, 1 @ warpid)])
cta = D.tile(warps, (2, 2), (16, 8))
print(cta)
assert D.is_tile_inner(cta, (32, 16), (16, 8)) == warps
assert warps.is_tile_outer(cta, (32, 16), (2, 2)).equivalent(D)
for o, n in itertools.product(range(4), range(128)):
    at = (16 * (o // 2) + n // 8, 8 * (o % 2) + n % 8)
    assert cta.apply(*at, shape=(32, 16)) == {"warpid": o} | D.apply(n)
draw.lane_map(cta, (32, 16))

# %% [markdown]
# ## direct_sum
#
# *Law:* `Sum(l, r) = Left(l) + Right(r)`, interleaved per dimension.

# %%
right, left = TileLayout(S[(2, 2) : (4, 1)]), TileLayout(S[(2, 2) : (8, 2)])
total = right.direct_sum(left, (2, 2), (2, 2))
print(total, "  back:", right.is_direct_sum_right(total, (2, 2, 2, 2), (2, 2)))
for l0, r0, l1, r1 in itertools.product(range(2), repeat=4):
    sum_of_both = left.apply(l0, l1, shape=(2, 2))["m"] + right.apply(r0, r1, shape=(2, 2))["m"]
    assert total.apply(l0, r0, l1, r1, shape=(2, 2, 2, 2))["m"] == sum_of_both

# %% [markdown]
# ## slice: the layout of a region
#
# *Law:* `slice(x) = L(x + begin)`. It is complete: where any layout says the region, it is found; else None.

# %%
print(D.slice((16, 8), [(8, 16), (0, 8)]))
part = TileLayout(S[(4, 4) : (10, 1)])
print(part.slice((16,), [(2, 10)]))
assert all(part.slice((16,), [(2, 10)]).apply(x) == part.apply(x + 2) for x in range(8))
assert D.slice((16, 8), [(7, 9), (0, 8)]) is None
rows = parse("S[(n,8):(8,1)]")
print(rows.slice((sympy.Symbol("n", integer=True, positive=True), 8), [(0, 1), (0, 8)]))

# %% [markdown]
# ## align: one order of digits for several operands

# %%
anchor = TileLayout(S[(2, 8) : (2, 4 @ laneid)])
print(align(anchor, TileLayout(S[16:1])))
assert align(anchor, TileLayout(S[16:1]))

# %% [markdown]
# ## Storage views and swizzles

# %%
print(
    D.storage(), TileLayout(S[(8, 8) : (8, 1)]).unpack(2), TileLayout(S[(8, 16) : (16, 1)]).pack(4)
)
swizzled = ComposeLayout(3, 3, 3, TileLayout(S[(8, 64) : (64, 1)]))
table = swizzled.table((8, 64))["m"]
print(table[:, ::8])
assert sorted(table.flat) == list(range(512))

# %% [markdown]
# ## Proofs
#
# A verdict comes with a certificate that a reader can follow, or with the first counter-example.

# %%
A = fragments.get("mma.m16n8k16.f16", "A")
covers = A.layout.covers(A.shape)
print(covers)
print()
assert covers
assert covers.degree == 1
swapped = parse("S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)]")  # registers a1 and a2 exchanged
print(swapped.equivalent(A.layout))
print()
print(D.tile_to((16 * Mt, 8), (16, 8)).is_injective())
assert not swapped.equivalent(A.layout)
assert D.tile_to((16 * Mt, 8), (16, 8)).is_injective()

# %% [markdown]
# ## Conversions between distributed layouts
#
# Two accumulator tiles become the A operand of the next product by renaming registers.

# %%
two = D.tile_to((16, 16), (16, 8))
renamed = convert(two, A.layout, (16, 16))
print(renamed)
print()
grouped, seps = A.layout.group(A.shape)
moved = convert(grouped.permute_by_groups(seps, (1, 0)), A.layout, (16, 16))
print(moved)
assert (renamed.kind, moved.kind) == ("registers", "movmatrix")
