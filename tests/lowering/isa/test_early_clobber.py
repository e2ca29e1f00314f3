"""Outputs that are set before the last input is read have registers of their own."""

from __future__ import annotations

import re

from lowering.codegen.cuda_cpp import _function
from lowering.isa.casts import CASTS
from lowering.isa.functions import FUNCTIONS
from lowering.isa.ptx import Asm
from tests.support.nvrtc_text import compiled

TWICE = Asm("twice", "prmt.b32 $0, $1, 0, 0x4440; add.u32 $0, $0, $1;", "r", "r", pure=True)
LOOP = """
extern "C" __global__ void k(unsigned* p) {{
  unsigned x = p[threadIdx.x], y;
  for (int i = 0; i < p[99]; ++i) {{ twice(y, x); x = y; }}
  p[threadIdx.x] = x;
}}"""


def test_no_compiler_gives_an_input_and_an_output_one_register() -> None:
    text = "\n".join(["using uint32_t = unsigned;", *_function(TWICE)]) + LOOP.format()
    found = re.search(r"prmt\.b32 (%\w+), (%\w+), 0, 0x4440; add", compiled(text, "compute_90"))
    assert found is not None
    assert found[1] != found[2]


def test_each_text_of_several_instructions_says_so() -> None:
    for each in (*FUNCTIONS, *CASTS.values()):
        several = each.text.count(";") > 1
        assert each.asm.constraints.startswith("=&" if several else "="), each
        assert ("&" in each.asm.constraints) == several
