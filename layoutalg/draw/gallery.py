"""The picture of every instruction in the fragment table, drawn by one call."""

from __future__ import annotations

import os
from pathlib import Path

from layoutalg import fragments
from layoutalg.draw.output import write
from layoutalg.draw.triple import operands_scene


def render(directory: str | os.PathLike[str]) -> list[Path]:
    """Draw the operands of each instruction as ``{instruction}.svg`` and ``.png``.

    The same table gives the same files, byte for byte.

    Args:
        directory: to write to; made where it does not exist.

    Returns:
        The files, in the order of the table.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     render(folder)[0].name
    'mma.m16n8k16.f16.svg'
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for instruction in fragments.names():
        scene = operands_scene(instruction)
        for suffix in (".svg", ".png"):
            path = folder / f"{instruction}{suffix}"
            write(scene, path)
            files.append(path)
    return files
