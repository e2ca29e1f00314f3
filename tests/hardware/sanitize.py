"""One kernel of each kind, once: for ``compute-sanitizer python -m tests.hardware.sanitize``."""

from __future__ import annotations

import numpy as np

from lowering.verification.cases import Case, StagedCase, all_cases
from lowering.verification.checker import check


def main() -> None:
    """Run a gemm of a warp, and every fourth staged kernel, and compare each with float64."""
    results = [check(Case("mma.m16n8k16.f16", (2, 2, 2), 1).program(), "gemm", "device")]
    staged = [case for case in all_cases() if isinstance(case, StagedCase)]
    results += [check(case.program(), str(case), "device") for case in staged[::4]]
    worst = max(result.error for result in results)
    print(len(results), "kernels, worst error", worst)
    assert np.isfinite(worst)
    assert all(result.ok for result in results)


if __name__ == "__main__":
    main()
