"""The command ``layoutalg``: a file for each group of verbs."""

from lowering.cli.conversions import convert, swizzle
from lowering.cli.explaining import explain
from lowering.cli.instructions import export, fragment, lint, lower
from lowering.cli.machines import demo, probe, verify
from lowering.cli.measuring import bench
from lowering.cli.pictures import draw
from lowering.cli.showing import show

__all__ = [
    "bench", "convert", "demo", "draw", "explain", "export", "fragment", "lint", "lower", "probe",
    "show", "swizzle", "verify",
]  # fmt: skip
