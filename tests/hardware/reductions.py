"""Reductions on a GPU against the NumPy warp, bit for bit: ``python -m tests.hardware.reductions``.

Runs the random layouts of ``tests/lowering/programs/test_reductions.py`` on random numbers, NaN and
zeros of both signs among them, and prints a line for each function and type. ``--count`` says how
many layouts; what is found goes to ``$OUT/reductions.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.lowering.programs.test_reductions import CASES, bits, drawn, program, rounded


def main() -> None:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--count", type=int, default=CASES, help="how many layouts")
    count = parser.parse_args().count
    found: dict[str, dict[str, Any]] = defaultdict(lambda: {"layouts": 0, "wrong": []})
    began = time.perf_counter()
    for number in range(count):
        case = drawn(number)
        made, x = program(case), rounded(case, number)
        want, got = made.simulate(x=x), made.run(x=x)
        row = found[f"{case.name} {case.dtype}"]
        row["layouts"] += 1
        pairs = [(bits(np.asarray(want[name])), bits(np.asarray(got[name]))) for name in "yz"]
        if any((one != other).any() for one, other in pairs):
            row["wrong"].append(number)
    for name, row in sorted(found.items()):
        print(f"{name:14} {row['layouts']:4} layouts, {len(row['wrong'])} wrong {row['wrong']}")
    seconds = time.perf_counter() - began
    print(f"{count} layouts in {seconds:.0f} s")
    if "OUT" in os.environ:
        text = json.dumps({"seconds": round(seconds), "rows": found}, indent=1)
        (Path(os.environ["OUT"]) / "reductions.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
