"""Fused epilogues on a device: ``python -m tests.hardware.epilogues``; JSON goes to $OUT.

- ``right``: small products with edges, by ``mma.sync`` and by ``wgmma``, against float64.
- ``rates``: bias, GELU and residual beside the plain product, as CUDA graphs in turns in one
  process; the time of each over the plain one's, and its error against float64 on some rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import lowering as lw
from lowering.kernels import tuning
from lowering.kernels.api import Uploaded, multiply
from lowering.kernels.bench import LAUNCH_OPERATIONS, Contender, interleaved
from lowering.kernels.config import Config, Form
from lowering.launch.driver import Device, call, device
from lowering.launch.driver import _driver as driver
from tests.support.gemm_checks import relative_error

Array = npt.NDArray[Any]
ROWS = 48  # of a large product, compared with float64
WGMMA = Config((128, 128, 64), (8, 1), 3, 2, bulk=True, producer=True, wgmma=True)
PAIR = Config((128, 256, 64), (8, 1), 4, 2, bulk=True, producer=True, wgmma=True, cluster=2)
SYNC = Config((64, 64, 32), (2, 2), 3, 2)


def gelu(acc: Any, bias: Any, more: Any = None) -> Any:
    """Return the tanh form of GELU of ``acc + bias``, plus more: six operations, a tanh."""
    half = lw.fma(acc, 0.5, 0.5 * bias)
    inner = half * lw.fma(half * half, 0.2854192648, 1.5957691216)
    return lw.fma(half, lw.tanh(inner), half if more is None else half + more)


def exact(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(0.7978845608 * x + 0.0356774081 * x**3))  # type: ignore


# What is fused: the epilogue of tiles, and of float64.
EPILOGUES: Mapping[str, tuple[Callable[..., Any] | None, Callable[..., Array]]] = {
    "plain": (None, lambda acc: acc),
    "bias": (lambda acc, bias: acc + bias, lambda acc, bias: acc + bias),
    "residual": (lambda acc, residual: acc + residual, lambda acc, residual: acc + residual),
    "bias, GELU": (lambda acc, bias: gelu(acc, bias), lambda acc, bias: exact(acc + bias)),
    "bias, GELU, residual": (
        lambda acc, bias, residual: gelu(acc, bias, residual),
        lambda acc, bias, residual: exact(acc + bias) + residual,
    ),
    "scale of rows, number": (
        lambda acc, scale, number: acc * scale * number,
        lambda acc, scale, number: acc * scale * number,
    ),
}  # fmt: skip


def operands(name: str, sizes: tuple[int, int], kind: Any, rng: Any) -> dict[str, Any]:
    """Return the operands of an epilogue."""
    m, n = sizes
    shapes = {"bias": (n,), "residual": (m, n), "scale": (m, 1)}
    found: dict[str, Any] = {
        each: rng.standard_normal(shape, np.float32).astype(kind)
        for each, shape in shapes.items()
        if each in name
    }
    return found | ({"number": 0.37} if "number" in name else {})


def widened(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: each.astype(np.float64) if isinstance(each, np.ndarray) else each
        for name, each in values.items()
    }


def right() -> list[dict[str, Any]]:
    """Run small products with every epilogue; types and transpositions take turns."""
    rng, rows = np.random.default_rng(0), []
    cases = itertools.product(
        EPILOGUES.items(), (SYNC, WGMMA, PAIR), ((264, 200, 328), (256, 512, 768))
    )
    for at, ((name, (epilogue, meaning)), config, (m, n, k)) in enumerate(cases):
        dtype = ("float16", "bfloat16")[at // 2 % 2]
        out = (dtype, dtype, "float32")[at % 3]
        kind = Form(dtype).dtype.numpy
        a, b = (rng.standard_normal(s, np.float32).astype(kind) for s in ((m, k), (k, n)))
        left = np.ascontiguousarray(a.T).T if at % 5 > 2 else a
        right = np.ascontiguousarray(b.T).T if at % 7 > 3 else b
        given = operands(name, (m, n), kind, rng)
        got = lw.matmul(left, right, dtype=out, config=config, epilogue=epilogue, **given)
        want = meaning(a.astype(np.float64) @ b.astype(np.float64), **widened(given))
        found = relative_error(got, want)
        limit = 1e-3 + (0 if out == "float32" else 2 * relative_error(want.astype(kind), want))
        rows.append({
            "config": str(config), "sizes": (m, n, k), "dtype": dtype, "out": out,
            "epilogue": name, "error": found, "ok": found < limit,
        })  # fmt: skip
    return rows


def graph(run: Callable[[int, int], None], launches: int) -> Callable[[int], None]:
    """Return what replays so many launches of a CUDA graph on the null stream."""
    stream = call("cuStreamCreate", 1)
    mode = driver().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    call("cuStreamBeginCapture", stream, mode)
    for number in range(launches):
        run(number, int(stream))
    ready = call("cuGraphInstantiate", call("cuStreamEndCapture", stream), 0)
    return lambda _: call("cuGraphLaunch", ready, 0)


def rates(
    size: int, dtype: str, on: Device, rounds: int, names: Sequence[str], config: Config | None
) -> list[dict[str, Any]]:
    """Measure every epilogue beside the plain product, in turns."""
    rng, kind = np.random.default_rng(1), Form(dtype).dtype.numpy
    count = 2 if size > 4096 else 4  # of inputs, so that no call finds its own in L2
    operations = 2.0 * size**3
    launches = max(2, int(LAUNCH_OPERATIONS / operations))

    def matrix(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32).astype(kind)

    with Uploaded() as memory:
        pairs = [(matrix(size, size), matrix(size, size)) for _ in range(count)]
        placed = [tuple(memory.put(each, "x") for each in pair) for pair in pairs]
        used = [operands("bias residual scale", (size, size), kind, rng) for _ in range(count)]
        at = [
            {name: memory.put(np.atleast_2d(each), name) for name, each in one.items()}
            for one in used
        ]
        result = memory.put(np.zeros((size, size), kind), "out")
        contenders, errors = [], {}
        for name in names:
            epilogue, meaning = EPILOGUES[name]
            known = [each for each in used[0] if each in name]
            number = {"number": 0.37} if "number" in name else {}

            def run(
                turn: int, stream: int, e: Any = epilogue, ks: Any = known, n: Any = number
            ) -> None:
                a, b = placed[turn % count]
                sides = {each: at[turn % count][each] for each in ks}
                multiply(a, b, result, e, {**n, **sides}, config, stream)

            run(0, 0)
            got: Array = np.empty((size, size), kind)
            memory.get(got, result)
            rows = rng.choice(size, ROWS, replace=False)
            sides = widened({each: used[0][each] for each in known})
            sides = {
                each: value[rows] if len(value) == size and value.ndim == 2 else value
                for each, value in sides.items()
            }
            sums = pairs[0][0][rows].astype(np.float64) @ pairs[0][1].astype(np.float64)
            want = meaning(sums, **sides, **number)
            errors[name] = relative_error(got[rows], want), relative_error(want.astype(kind), want)
            contenders.append(Contender(name, graph(run, launches), operations * launches))
        timings = {each.name: each for each in interleaved(contenders, on, rounds, 1)}
    plain = timings["plain"].seconds
    found = []
    for name, timing in timings.items():
        ratio = statistics.median(t / p for t, p in zip(timing.seconds, plain, strict=True))
        found.append({
            "size": size, "dtype": dtype, "epilogue": name, "rate": timing.rate, "ratio": ratio,
            "spread": timing.spread, "error": errors[name][0], "rounding": errors[name][1],
            "config": str(config or tuning.choice(Form(dtype), (size,) * 3, on)),
        })  # fmt: skip
    return found


def main() -> None:
    """Run both parts, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", choices=("right", "rates"))
    given = parser.parse_args()
    on = device(0)
    record: dict[str, Any] = {"device": on.name}
    if given.only != "rates":
        record["right"] = rows = right()
        wrong = [row for row in rows if not row["ok"]]
        print(f"right: {len(rows) - len(wrong)} of {len(rows)}")
        for row in wrong:
            print(f"  LOOK AT {row}")
    if given.only != "right":
        record["rates"] = []
        print(
            "  size  epilogue                time over plain  TFLOP/s  spread  error     rounding"
        )
        for size in given.size or (4096, 8192):
            for row in rates(size, given.dtype, on, given.rounds, list(EPILOGUES), None):
                record["rates"].append(row)
                print(
                    f"{row['size']:>6}  {row['epilogue']:<22}  {row['ratio']:>15.4f}  "
                    f"{row['rate']:>7.1f}  {row['spread']:>6.3f}  {row['error']:.2e}  "
                    f"{row['rounding']:.2e}",
                    flush=True,
                )
    if "OUT" in os.environ:
        (Path(os.environ["OUT"]) / "epilogues.json").write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
