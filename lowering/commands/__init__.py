"""The commands of ``layoutalg``, by job; :mod:`lowering.cli` gathers them."""

from lowering.commands.conversions import convert, swizzle
from lowering.commands.explaining import explain
from lowering.commands.instructions import export, fragment, lint, lower
from lowering.commands.machines import demo, probe, verify
from lowering.commands.measuring import bench
from lowering.commands.pictures import draw
from lowering.commands.showing import show

__all__ = [
    "bench", "convert", "demo", "draw", "explain", "export", "fragment", "lint", "lower", "probe",
    "show", "swizzle", "verify",
]  # fmt: skip
