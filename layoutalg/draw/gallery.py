"""The pictures and the page under ``figures/``, drawn by one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from layoutalg.draw.gallery_page import gallery_html
from layoutalg.draw.pictures.instruction_map import operands
from layoutalg.draw.scene.output import write
from layoutalg.files import write_whole

PIXELS = ("mma.m16n8k16.f16", "mma.m16n8k16.bf16", "mma.m16n8k8.f16", "mma.m16n8k8.bf16")
"""The instructions whose large pictures are kept as PNG as well."""
GALLERY = (
    *PIXELS, "mma.m8n8k4.f16", "mma.sp.m16n8k32.f16", "mma.m16n8k64.mxf4nvf4.e2m1.ue4m3",
    "ldmatrix.m8n8.x4.b16", "wgmma.m64n16", "tcgen05.ld.16x256b.x2.b32",
)  # fmt: skip
"""The instructions whose large pictures are kept: one of each family and the first few."""
PAGE = "gallery.html"


def render(
    directory: str | os.PathLike[str],
    instructions: Sequence[str] = GALLERY,
    pixels: Sequence[str] = PIXELS,
) -> list[Path]:
    """Draw the operands of instructions as ``{instruction}.svg``, and the page of all.

    The same table gives the same files, byte for byte.

    Args:
        directory: to write to; made where it does not exist.
        instructions: what to draw large; any of ``fragments.names()``.
        pixels: those of them that are drawn as ``{instruction}.png`` as well.

    Returns:
        The files: pictures in the order of the instructions, then ``gallery.html``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in render(folder, ["mma.m16n8k16.f16"])]
    ['mma.m16n8k16.f16.svg', 'mma.m16n8k16.f16.png', 'gallery.html']
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for instruction in instructions:
        scene = operands.scene(instruction)
        for suffix in (".svg", ".png") if instruction in pixels else (".svg",):
            path = folder / f"{instruction}{suffix}"
            write(scene, path)
            files.append(path)
    page = folder / PAGE
    write_whole(page, gallery_html(instructions).encode())
    return [*files, page]
