"""``python -m tests.fuzz``: many kernels, many faults; or kernels for a device."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path

BY_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> int:
    """Read the arguments and run; return 1 where something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="a JSON file for the summary")
    parser.add_argument("--show", type=int, help="print the kernel of a seed, and check it")
    parser.add_argument("--export", nargs=2, metavar=("N", "DIR"))
    parser.add_argument("--export-races", nargs=2, metavar=("N", "DIR"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in BY_ONE_THREAD:
        os.environ.setdefault(name, "1")  # before NumPy comes
    from tests.fuzz import campaign, export
    from tests.fuzz.ir import source
    from tests.fuzz.kernels import generate

    if given.show is not None:
        program, _, _ = generate(given.show)
        print(source(program))
        found = campaign.Found()
        campaign.check(given.show, found)
        for each in found.failures:
            print(f"{each['machine']}: {each['what']}")
        print(f"refused: {dict(found.refused)}" if found.refused else "")
        return bool(found.failures)
    if given.export:
        return export.kernels(int(given.export[0]), Path(given.export[1]), given.seed, given.jobs)
    if given.export_races:
        count, folder = given.export_races
        return export.races(int(count), Path(folder), given.seed, given.jobs)
    start = time.time()
    found = campaign.run(given.kernels, given.faults, given.seed, given.jobs)
    for each in found.failures[:40]:
        print(f"\nFAILED seed {each['seed']} on {each['machine']}: {each['what']}")
    for each in found.failures[:3]:
        print(f"\n# seed {each['seed']}, {each['machine']}\n{each['reproducer']}")
    for each in found.missed[:40]:
        print(f"\nMISSED seed {each['seed']}, {each['kind']}: {each['by']}: {each['what']}")
    for each in found.missed[:3]:
        print(f"\n# seed {each['seed']}, {each['kind']}\n{each['program']}")
    for message, count in found.refused.most_common(12):
        print(f"refused {count} (such as seed {found.refused_at[message]}): {message}")
    print(campaign.table(found))
    print(f"{time.time() - start:.0f} s with {given.jobs} jobs")
    if given.out:
        data = campaign.summary(found)
        data["failed"] = found.failures
        data["missed faults"] = found.missed
        given.out.write_text(json.dumps(data, indent=1))
    return bool(found.failures or found.missed)


if __name__ == "__main__":
    sys.exit(main())
