"""How long ``simulate`` of the whole-matrix kernels takes, in one or several trees, in turns.

Run ``python tests/bench/simulate.py TREE…`` from anywhere; without a tree, of this one. Each tree
runs each kernel at 256 x 256 x 128 once per round, one after the other, each in a process of its
own, and the table gives medians in seconds and their ratio to the first tree's.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

ROUNDS = 3
KERNELS = {
    "mma.sync": "Config((64, 64, 32), (2, 2), 3, 1)",
    "mma.sync, TMA": "Config((64, 64, 64), (2, 2), 3, 1, bulk=True)",
    "wgmma": "Config((64, 64, 64), (4, 1), 2, 1, bulk=True, producer=True, wgmma=True)",
}
PROGRAM = """
import time
import numpy as np
from lowering.kernels.config import Config, Form
from lowering.kernels.matmul import simulate
rng = np.random.default_rng(0)
a, b = rng.integers(-4, 5, (256, 128)), rng.integers(-4, 5, (128, 256))
form, config = Form("float16", "float32"), {config}
simulate(form, config, a[:64], b[:, :64])  # lowers, and imports
start = time.process_time()
out = simulate(form, config, a, b)
took = time.process_time() - start
assert (out == a @ b).all()
print(took)
"""


def seconds(tree: Path, kernel: str) -> float:
    """Return the processor time of one simulation."""
    program = PROGRAM.format(config=KERNELS[kernel])
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tree, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    """Print the table."""
    trees = [Path(each) for each in sys.argv[1:]] or [ROOT]
    for kernel in KERNELS:
        taken: list[list[float]] = [[] for _ in trees]
        for _ in range(ROUNDS):
            for tree, times in zip(trees, taken, strict=True):
                times.append(seconds(tree, kernel))
        medians = [statistics.median(times) for times in taken]
        row = "  ".join(f"{each:6.2f} ({each / medians[0]:4.2f})" for each in medians)
        print(f"{kernel:16s} {row}", flush=True)


if __name__ == "__main__":
    main()
