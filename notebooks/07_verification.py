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
# # Verification: what a proof shows, what a product shows, what only hardware shows
#
# A wrong layout is silent: the kernel runs and gives other numbers, or, worse, the right ones. Four kinds of
# evidence, from the cheapest to the strongest, and what each cannot see.

# %% [markdown]
# ## 1. Proof: the layout is the formula of the PTX ISA
#
# Claims are decided on all elements at once, with a certificate, or refuted with the first counter-example.

# %%
from layoutalg import fragments, parse, prove

A, B, D = (fragments.get("mma.m16n8k16.f16", operand) for operand in "ABD")


def formula(laneid, m):
    "The accumulator by the PTX ISA: groupID and threadID_in_group give row and column."
    return laneid // 4 + 8 * (m // 2), laneid % 4 * 2 + m % 2


verdict = prove(D.layout, D.shape, formula)
print(verdict)
assert verdict

# %%
swapped = parse("S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)]")  # registers a1 and a2 exchanged
verdict = swapped.equivalent(A.layout, shape=A.shape)
print(verdict)
assert not verdict

# %% [markdown]
# Symbols are no obstacle: one proof for every number of rows.

# %%
import sympy

Mt = sympy.Symbol("Mt", integer=True, positive=True)
tall = D.layout.tile_to((16 * Mt, 8), (16, 8))
verdict = tall.is_injective()
print(verdict)
assert verdict

# %% [markdown]
# ## 2. A product: error against float64, with controls
#
# The program runs on random inputs, the reference is the float64 product of the rounded inputs, the bound is
# derived for the case. Beside it run programs bent on purpose: if the bound let one pass, the check would show
# nothing and says so.

# %%
import lowering as lw
from lowering.verification.cases import Case
from lowering.verification.checker import uniform_inputs

case = Case("mma.m16n8k16.f16", (1, 1, 2))
(result,) = lw.verify([case], machine="simulator")
print(f"error {result.error:.1e}, bound {result.tolerance:.1e}: {result.verdict}")
for control in result.controls:
    seen = "" if control.visible else "no product shows it"
    print(f"  {control.name:9} {control.error:.1e}  {seen}")
assert result.ok
assert all(c.error > 100 * result.tolerance for c in result.controls if c.visible)

# %% [markdown]
# Constant inputs prove nothing: the exchange of a1 and a2 passes, and the verdict is not `ok`.

# %%
(result,) = lw.verify([case], machine="simulator", inputs=uniform_inputs)
print(result.verdict)
assert result.within
assert not result.ok

# %% [markdown]
# And a permutation of k common to A and B passes with any inputs. That is why a product, however exact, does not
# prove the labels of a fragment.

# %%
(hidden,) = (control for control in result.controls if control.name == "common k")
assert not hidden.visible

# %% [markdown]
# ## 3. The machine alone: probing
#
# One-hot operands ask an instruction directly: which slot of A meets which slot of B, and where the product lands;
# `ldmatrix` ties the labels to memory. Here the NumPy warp is asked, so the certificate says SIMULATION; on a GPU
# `layoutalg probe mma.m16n8k16.f16` asks the hardware. Claims known to be wrong must be refuted, or the certificate
# is void.

# %%
from lowering.probing.prober import probe

certificate = probe("mma.m16n8k16.f16", "simulator")
print(certificate.report())
assert certificate.verdict == "agrees"
assert not certificate.is_hardware

# %%
wrong = probe("mma.m16n8k16.f16", "simulator", {"A": swapped})
print(wrong.verdict)
assert not wrong.agrees

# %% [markdown]
# ## 4. What stands behind each row
#
# Records of real hardware are kept with the package. A row says whether a GPU was asked, or an assembler only, or
# nobody.

# %%
for name, operand in (
    ("mma.m16n8k16.f16", "A"),
    ("wgmma.m64n8", "D.f32"),
    ("tcgen05.ld.32x32b.x1.b32", "dst"),
):
    print(f"{name} {operand}: {fragments.get(name, operand).certificate.statement}")
assert A.certificate.kind == "measured"
assert fragments.get("tcgen05.ld.32x32b.x1.b32", "dst").certificate.kind == "assembled"

# %% [markdown]
# ## 5. Kernels that others wrote: lint
#
# The same table finds registers in the wrong place of PTX, or of inline PTX in CUDA.

# %%
from lowering.audit.linter import lint

text = """mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    {d0,d1,d2,d3}, {a0,a2,a1,a3}, {b0,b1}, {d0,d1,d2,d3};"""
findings = lint(text)
print("\n".join(map(str, findings)))
assert [finding.severity for finding in findings] == ["error"]

# %% [markdown]
# ## 6. What a machine must refuse
#
# The NumPy warp stops where a GPU would go on with garbage: a race, an unwritten read, a misaligned vector.

# %%
import numpy as np

race = lw.Kernel("race", threads=32)
a, out = race.param("a", (16, 16), "float16"), race.param("out", (16, 16), "float16")
shared = race.alloc("shared_a", (16, 16), "float16", "shared")
registers = race.alloc("registers", (16, 16), "float16", layout=A.layout)
race.copy(shared, a)
race.copy(registers, shared)  # no barrier between
race.copy(out, registers)
try:
    race.lower().simulate(a=np.zeros((16, 16), np.float16))
    raise AssertionError("a race went unnoticed")
except ValueError as error:
    print(error)
