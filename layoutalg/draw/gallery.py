"""The pictures under ``figures/``, drawn by one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from layoutalg.draw.instruction_map import operands_scene
from layoutalg.draw.output import write

GALLERY = ("mma.m16n8k16.f16", "mma.m16n8k16.bf16", "mma.m16n8k8.f16", "mma.m16n8k8.bf16")
"""The instructions whose pictures are kept in the repository."""


def render(directory: str | os.PathLike[str], instructions: Sequence[str] = GALLERY) -> list[Path]:
    """Draw the operands of each instruction as ``{instruction}.svg`` and ``.png``.

    The same table gives the same files, byte for byte.

    Args:
        directory: to write to; made where it does not exist.
        instructions: what to draw; any of ``fragments.names()``.

    Returns:
        The files, in the order of the instructions.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     render(folder)[0].name
    'mma.m16n8k16.f16.svg'
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for instruction in instructions:
        scene = operands_scene(instruction)
        for suffix in (".svg", ".png"):
            path = folder / f"{instruction}{suffix}"
            write(scene, path)
            files.append(path)
    return files
