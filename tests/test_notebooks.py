"""Every notebook runs from top to bottom, checks what it shows, and is stored without outputs.

Each has a twin in Jupytext's percent format; ``jupytext --sync notebooks/*.ipynb`` writes the older
of the two anew.
"""

from __future__ import annotations

import ast
import os
from functools import cache
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

from layoutalg import draw
from tests.support.paths import ROOT

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
JOBS = (
    "gallery", "fragments", "algebra", "kernels", "swizzles", "conversions", "async",
    "verification",
)  # fmt: skip
SECONDS = 120  # of one cell; idle, each notebook takes less than 20

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def code_of(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_is_a_notebook_for_each_job() -> None:
    names = [path.stem.split("_", 1) for path in NOTEBOOKS]
    assert set(JOBS) <= {job for _, job in names}
    numbers = [number for number, _ in names]
    assert len(set(numbers)) == len(numbers)


@each_notebook
def test_a_notebook_and_its_twin_are_in_step(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    text = path.with_suffix(".py").read_text(encoding="utf-8")
    assert jupytext.writes(notebook, fmt="py:percent") == text
    twin = jupytext.reads(text, fmt="py:percent")
    assert [(c.cell_type, c.source) for c in twin.cells] == [
        (c.cell_type, c.source) for c in notebook.cells
    ]
    assert notebook.metadata.jupytext.formats == "ipynb,py:percent"


def test_each_twin_has_its_notebook() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {path.stem for path in NOTEBOOKS}


@each_notebook
def test_a_notebook_checks_what_it_shows(path: Path) -> None:
    source = path.with_suffix(".py").read_text(encoding="utf-8")
    checks = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]
    assert checks
    assert not [node for node in checks if isinstance(node.test, ast.Constant)]


@cache
def executed(path: Path) -> Any:
    """Run a notebook, and return it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.outputs for cell in code_of(notebook)), "store notebooks without outputs"
    resources = {"metadata": {"path": str(FOLDER)}}
    client = NotebookClient(notebook, timeout=SECONDS, resources=resources)
    client.execute(env=os.environ | {"PYTHONPATH": str(FOLDER.parent)})  # this tree, not another
    return notebook


@pytest.mark.slow
@each_notebook
@pytest.mark.filterwarnings("ignore")
def test_notebook_runs(path: Path) -> None:
    assert all(cell.execution_count for cell in code_of(executed(path)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_gallery_shows_each_kind_of_picture_inline() -> None:
    kinds = {
        word.split("(")[0]
        for cell in code_of(executed(FOLDER / "00_gallery.ipynb"))
        for word in cell.source.split("draw.")[1:]
        if any("image/svg+xml" in output.get("data", {}) for output in cell.outputs)
    }
    assert kinds == {name for name in draw.__all__ if hasattr(getattr(draw, name), "scene")}
