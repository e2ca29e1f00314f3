"""Predicates that several variants share: the target, the memory of operands, who takes part."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from layoutalg.algebra.axis import WARP
from lowering.dispatch.registry import Answer, Context, predicate
from lowering.ir.tmem_ops import ISSUERS


def goes(src: str, dst: str) -> Callable[[Context], Answer]:
    """Return the question whether a copy goes from one memory to another."""

    def ask(context: Context) -> Answer:
        if context.spaces == {"src": src, "dst": dst}:
            return True
        have = context.spaces
        return False, f"goes from {src} to {dst}; src is {have['src']}, dst {have['dst']}"

    return ask


def available(what: str, min_arch: str) -> Callable[[Context], Answer]:
    """Return the question whether the target has an instruction."""

    def ask(context: Context) -> Answer:
        refusal = context.lacks(what, min_arch)
        return True if refusal is None else (False, refusal)

    return ask


def listed(spaces: Mapping[str, str]) -> str:
    """Return the memory of each operand in a refusal."""
    return ", ".join(f"{role} is {space}" for role, space in spaces.items())


def full_active_lanes(context: Context) -> Answer:
    """Hold where every axis of the call's scope is complete: an mma needs all lanes of a warp."""
    if context.threads % WARP:
        return False, f"an mma needs whole warps of {WARP} threads; the CTA has {context.threads}"
    whole = context.whole()
    for axis, (begin, end) in context.active.items():
        if axis == "cta_id":
            return False, "scope cluster is not supported: an mma lives inside a CTA (axis cta_id)"
        full = whole.get(axis, (0, WARP) if axis == "laneid" else None)
        if full is None:
            return False, f"axis {axis} is active but is no axis of scope {context.call.scope}"
        if (begin, end) != full:
            return False, (
                f"active lanes are narrowed: {axis} runs over {begin}..{end - 1}, all of "
                f"{full[0]}..{full[1] - 1} must take part in an mma"
            )
    return True


full_lanes = predicate("full_active_lanes", full_active_lanes)


def all_in_registers(context: Context) -> Answer:
    """Hold where every operand lies in registers."""
    if {*context.spaces.values()} == {"local"}:
        return True
    return False, f"all operands must be in registers (local); {listed(context.spaces)}"


in_registers = predicate("all_in_registers", all_in_registers)


def one_side_in_registers(context: Context) -> Answer:
    """Hold where one side lies in registers, and the other where threads have addresses."""
    have = context.spaces
    if sorted(have.values()) in (["global", "local"], ["local", "shared"]):
        return True
    return (
        False,
        f"one side must be in registers (local), the other in shared or global memory; dst is "
        f"{have['dst']}, src {have['src']}",
    )


def started_by_one_thread(context: Context) -> Answer:
    """Hold where the call is one of a thread, or of a warp that elects one."""
    scope = context.call.scope
    if scope in ISSUERS:
        return True
    return False, f"one thread starts it: scope {' or '.join(ISSUERS)} fits; the scope is {scope}"
