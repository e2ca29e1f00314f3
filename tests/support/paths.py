"""Where the tests find the tree and their data."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "tests" / "data"
HARDWARE = DATA / "hardware"
