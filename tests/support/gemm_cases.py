"""The gemm conformance vectors as calls."""

from __future__ import annotations

from typing import Any

import lowering as lw
from tests.support.vectors import layout

GUARDS = {"lane<16": {"laneid": (0, 16)}, "wid==1": {"warpid": (1, 2)}}
DEFAULT_THREADS = {"thread": 32, "warp": 32, "warpgroup": 128, "cta": 32, "cluster": 32}


def call_of(case: dict[str, Any]) -> lw.TilePrimitiveCall:
    """Build the call that a vector describes."""
    operands: dict[str, Any] = {}
    for role, data in case["operands"].items():
        scope = data.get("scope", "local")
        buffer = lw.Buffer(role, data["shape"], data["dtype"], scope, layout(data["layout"]))
        region = data.get("region")
        operands[role] = buffer
        if region is not None:
            operands[role] = buffer[tuple(slice(b, e) for b, e in region)]
    return lw.gemm(
        operands["D"],
        operands["A"],
        operands["B"],
        None if case.get("C_is_D") else operands["C"],
        case["transpose_A"],
        case["transpose_B"],
        case["alpha"],
        case["beta"],
        case.get("scope", "warp"),
        case.get("dispatch"),
    )


def lower_case(case: dict[str, Any]) -> lw.Program:
    """Lower the call that a vector describes."""
    threads = case.get("threads", DEFAULT_THREADS[case.get("scope", "warp")])
    return lw.lower(call_of(case), threads=threads, active=GUARDS.get(case.get("guard", "")))
