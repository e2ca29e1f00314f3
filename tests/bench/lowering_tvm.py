"""Lowering one gemm, ours beside TVM's: ``python -m tests.bench.lowering_tvm [--rounds 40]``.

The tile primitive D[64,64] = A[64,64] B[64,64], f16 into f32, at the scope of a warpgroup: every
operand in registers, the fragments of mma.m16n8k16 tiled over four warps along M. Timed in one
process, in turn, each time on a call, or a module, just built from new layouts:

* ours: ``lowering.lower(call, threads=128)``, which gives the unrolled operations;
* TVM's ``LowerTIRx()``, which leaves the loops over tiles rolled, and its pipeline from there to
  ``UnrollLoop`` and the simplification after it, which gives what ours gives.

Before timing, the 32 mma of either side must name the same registers in the same order. "first" is
the first call of a contender in the process. Times are of the CPU, for other processes may run; the
median of the wall clock stands beside them. TVM parses its template anew at each call and walks the
Python stack for it (``inspect.stack``), so a deep stack, such as that of ``python -m``, would cost
it milliseconds: all is timed in a thread, whose stack is short.

Needs apache-tvm 0.27.0.post1: the extra ``oracle``.
"""

from __future__ import annotations

import argparse
import gc
import re
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import lowering as lw
from layoutalg import Axis, Iter, LayoutError, TileLayout
from lowering.verification.cases import Case
from tests.fuzz.algebra.tvm_side import Tvm
from tests.support.vectors import plain

CASE = Case("mma.m16n8k16.f16", (1, 8, 4), warps=(4, 1), scope="warpgroup")
THREADS = 128
MMA = 32  # per warp: 1 x 8 x 4
OPERAND = re.compile(r"(d_local|a_words|b_words)\[(\d+)\]")


class Contender(NamedTuple):
    """What is timed: ``call`` on what ``make``, which is not timed, has just made."""

    name: str
    make: Callable[[], Any]
    call: Callable[[Any], Any]


def layout_of(role: str) -> dict[str, Any]:
    """Return an operand's layout as plain numbers and names."""
    shard, replica, offset = plain(CASE.region(role).buffer.layout)
    return {"shard": shard, "replica": replica, "offset": offset}


def our_call(layouts: dict[str, dict[str, Any]]) -> lw.TilePrimitiveCall:
    """Build the call from layouts, iters and buffers that have answered nothing yet."""
    buffers = []
    for role in "DAB":
        iters = [Iter(e, s, Axis.get(axis)) for e, s, axis in layouts[role]["shard"]]
        own = CASE.region(role).buffer
        layout = TileLayout.from_iters(iters)
        buffers.append(lw.Buffer(role, own.shape, own.dtype, layout=layout))
    return lw.gemm(*buffers, scope="warpgroup")


def their_module(tvm: Tvm, target: Any, layouts: dict[str, dict[str, Any]]) -> Any:
    """Build the module of a kernel that is this gemm alone, from layouts just made."""
    from tvm.ir import IRModule
    from tvm.script import tirx as T  # noqa: N812
    from tvm.tirx.transform import BindTarget

    d, a, b = (tvm.layout(layouts[role]) for role in "DAB")

    @T.prim_func
    def kernel() -> None:
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        T.warp_id_in_wg([4])
        T.lane_id([32])
        held_d = T.alloc_buffer((64, 64), "float32", scope="local", layout=d)
        held_a = T.alloc_buffer((64, 64), "float16", scope="local", layout=a)
        held_b = T.alloc_buffer((64, 64), "float16", scope="local", layout=b)
        T.warpgroup.gemm(held_d, held_a, held_b, held_d)

    return BindTarget(target)(IRModule({"main": kernel}))


def unrolling() -> Any:
    """Return TVM's own pipeline, from ``LowerTIRx`` to where its loops are unrolled."""
    from tvm import s_tir
    from tvm.ir.transform import Sequential
    from tvm.tirx import transform as tx

    return Sequential(
        [
            tx.LowerTIRx(), s_tir.transform.UnifyThreadBinding(), tx.StmtSimplify(),
            tx.LowerTIRxOpaque(), tx.FlattenBuffer(), tx.BF16ComputeLegalize(),
            tx.NarrowDataType(32), tx.VectorizeLoop(True), tx.UnrollLoop(), tx.StmtSimplify(),
        ]
    )  # fmt: skip


def their_mma(module: Any) -> tuple[tuple[Any, ...], ...]:
    """Read the mma of a lowered module as ``Program.mma`` gives them."""
    found = []
    for line in str(module).splitlines():
        if "T.ptx.mma(" in line:
            named = [(name, int(at)) for name, at in OPERAND.findall(line)][:10]
            parts = (
                tuple(at for name, at in named if name == want)
                for want in ("d_local", "a_words", "b_words")
            )
            found.append(("mma", *parts))
    return tuple(found)


def timed(contender: Contender) -> tuple[float, float, Any]:
    """Return the CPU and the wall milliseconds of one call, and what it gave."""
    made = contender.make()
    gc.collect()
    gc.disable()
    wall, cpu = time.perf_counter(), time.thread_time()
    given = contender.call(made)
    cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
    gc.enable()
    return cpu * 1e3, wall * 1e3, given


def measure(rounds: int) -> list[str]:
    """Return the lines of the table."""
    import tvm as library
    from tvm.tirx.transform import LowerTIRx

    tvm, target = Tvm(), library.target.Target({"kind": "cuda", "arch": "sm_90"})
    layouts = {role: layout_of(role) for role in "DAB"}
    same = our_call(layouts)

    def module() -> Any:
        return their_module(tvm, target, layouts)

    contenders = (
        Contender("ours", lambda: our_call(layouts), lambda x: lw.lower(x, threads=THREADS)),
        Contender("TVM LowerTIRx", module, LowerTIRx()),
        Contender("TVM to UnrollLoop", module, unrolling()),
        Contender("ours, one call again", lambda: same, lambda x: lw.lower(x, threads=THREADS)),
    )
    with target:
        firsts, _, given = zip(*[timed(contender) for contender in contenders], strict=True)
        program, rolled, unrolled, _ = given
        if len(program.mma) != MMA or program.mma != their_mma(unrolled):
            raise LayoutError(f"the mma differ: {program.mma}, TVM {their_mma(unrolled)}")
        if str(rolled).count("T.ptx.mma(") != 1:
            raise LayoutError("LowerTIRx no longer leaves one mma in loops")
        spent: list[list[tuple[float, float]]] = [[] for _ in contenders]
        for _ in range(rounds):
            for times, contender in zip(spent, contenders, strict=True):
                times.append(timed(contender)[:2])
    lines = [
        f"{MMA} mma per warp, the same registers in the same order; {rounds} rounds",
        f"{'ms of CPU':22} {'first':>8} {'median':>8} {'min':>8} {'ours/it':>8} {'wall':>8}",
    ]
    ours = statistics.median(cpu for cpu, _ in spent[0])
    for contender, first, times in zip(contenders, firsts, spent, strict=True):
        cpus, walls = zip(*times, strict=True)
        median, wall = statistics.median(cpus), statistics.median(walls)
        lines.append(
            f"{contender.name:22} {first:8.2f} {median:8.2f} {min(cpus):8.2f} "
            f"{ours / median:8.2f} {wall:8.2f}"
        )
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lowering_tvm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="calls of each, in turn")
    rounds = parser.parse_args(arguments).rounds
    with ThreadPoolExecutor(1) as pool:
        print("\n".join(pool.submit(measure, rounds).result()))


if __name__ == "__main__":
    main()
