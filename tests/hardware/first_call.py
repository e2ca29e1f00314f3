"""Seconds of the first matmul of a fresh process with an empty cache, for every config.

``python -m tests.hardware.first_call`` prints a row for each config and writes ``first_call.json``
to ``$OUT``, or here. Where there is no GPU it lowers and compiles alone. Each row is of two
processes of its own: one that finds the cache empty, one that finds the kernel in it. "cpu" is the
processor's time in the call, which others' load does not add to.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ALLOWED = 3.0  # seconds from the call to its result
SIZE = 512
COLUMNS = (
    "imports", "context", "tuning", "call", "cpu", "lower", "compile", "load", "again", "warm"
)  # fmt: skip


@contextmanager
def timed(spent: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds that a block takes."""
    start = time.perf_counter()
    yield
    spent[name] = spent.get(name, 0.0) + time.perf_counter() - start


def called(number: int) -> dict[str, Any]:
    """Multiply once by a config; return the seconds of each part, in this fresh process."""
    spent: dict[str, float] = {}
    with timed(spent, "imports"):
        import numpy as np

        from lowering.kernels import api, tuning
        from lowering.kernels.config import Form, fitted
        from lowering.launch import cache, driver

    def timing(module: Any, function: str, name: str) -> None:
        """Time each call of a function of a module."""
        inner: Callable[..., Any] = getattr(module, function)

        def outer(*args: Any, **keywords: Any) -> Any:
            with timed(spent, name):
                return inner(*args, **keywords)

        setattr(module, function, outer)

    timing(api, "program_of", "lower")
    timing(cache, "machine_code", "compile")
    timing(api, "Loaded", "load")
    config, form, sizes = tuning.CANDIDATES[number][0], Form("float16"), (SIZE,) * 3
    if not driver.device_count():
        start = time.process_time()
        form, config = fitted(form, config, sizes)
        name, arch = f"matmul_{form}_{config}", config.target("sm_90")
        with timed(spent, "call"):
            cache.compiled(name, arch, lambda: api.program_of(form, config, arch))
        spent["cpu"] = time.process_time() - start
        return {"config": str(config), "device": "none", **spent}
    with timed(spent, "context"):
        on = driver.device(0)
        on.enter()
    with timed(spent, "tuning"):
        tuning.choice(form, sizes, on)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (SIZE, SIZE)).astype(np.float16) for _ in "ab")
    start = time.process_time()
    with timed(spent, "call"):
        first = api.matmul(a, b, config=config)
    spent["cpu"] = time.process_time() - start
    with timed(spent, "again"):
        second = api.matmul(a, b, config=config)
    want = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float16)
    assert (first == want).all(), config
    assert (second == want).all(), config
    return {"config": str(config), "device": on.name, **spent}


def fresh(number: int, folder: str) -> dict[str, Any]:
    """Return what :func:`called` says in a process of its own, with a cache in a folder."""
    environment = os.environ | {"LAYOUTALG_CACHE": folder, "LAYOUTALG_QUIET": "1"}
    command = [sys.executable, "-m", "tests.hardware.first_call", "--config", str(number)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if found.returncode:
        raise RuntimeError(found.stderr)
    row: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return row


def main() -> int:
    """Print the table; return 1 where a call takes longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=int, help="call once, in this process, and print JSON")
    chosen = parser.parse_args().config
    if chosen is not None:
        print(json.dumps(called(chosen)))
        return 0
    from lowering.kernels.tuning import CANDIDATES

    rows = []
    print(f"{'config':44}" + "".join(f"{name:>9}" for name in COLUMNS))
    for number in range(len(CANDIDATES)):
        with tempfile.TemporaryDirectory() as folder:
            row = fresh(number, folder)
            row["warm"] = fresh(number, folder)["call"]
        rows.append(row)
        numbers = (f"{row[each]:9.3f}" if each in row else f"{'-':>9}" for each in COLUMNS)
        print(f"{row['config']:44}{''.join(numbers)}", flush=True)
    slowest = max(row["call"] for row in rows)
    print(f"{rows[0]['device']}: the slowest first call takes {slowest:.2f} s of {ALLOWED}")
    path = Path(os.environ.get("OUT", ".")) / "first_call.json"
    path.write_text(json.dumps({"allowed": ALLOWED, "rows": rows}, indent=1) + "\n")
    return int(slowest > ALLOWED)


if __name__ == "__main__":
    raise SystemExit(main())
