"""The house as its imports make it: modules, who imports whom, and the floors of the folders."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# The floors of each package, from the ground up: a folder, or a file at the package's root.
# Imports run downwards, and no two files import each other round a circle.
FLOORS = {
    "layoutalg": (
        "errors", "files", "front_door", "sizes", "algebra", "proofs", "layouts", "fragments",
        "interop", "memory", "conversions", "draw", "__init__", "__main__",
    ),
    "lowering": (
        "isa", "ir", "passes", "simulator", "dispatch", "codegen", "launch", "programs", "kernels",
        "verification", "probing", "audit", "__init__", "cli",
    ),
}  # fmt: skip
# The two edges that run back: a layout shows itself in a notebook, and text stands for a layout
# wherever one is taken. They are inside functions, so that no circle of imports arises and
# `import layoutalg` stays light.
BACKWARD = {
    ("layoutalg.layouts.html", "layoutalg.draw"),
    ("layoutalg.front_door", "layoutalg.interop.registry"),
}
# The edges from layoutalg to lowering: the command, and, inside a function, the code of a
# conversion.
ACROSS = {"layoutalg.__main__", "layoutalg.conversions.recipe"}


def home(package: str) -> Path:
    """Return the folder of a package: of this tree, or where it is installed."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    return Path(str(spec.origin)).parent


@cache
def modules(package: str) -> dict[str, Path]:
    """Return the modules of a package by dotted name."""
    found = {}
    root = home(package).parent
    for path in sorted(home(package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


@cache
def parsed(path: Path) -> ast.Module:
    """Return the tree of a file: each is read once."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each absolute name that a file imports, and whether at its top level."""
    tree = parsed(path)
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", id(node) in top


@cache
def edges(package: str) -> dict[str, set[str]]:
    """Return which modules of the package each of its modules imports, wherever in the file."""
    known = modules(package)
    found: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for target, _ in imported(path):
            parts = target.split(".")
            prefixes = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
            module = next((prefix for prefix in prefixes if prefix in known), None)
            if module not in (None, name):
                found[name].add(str(module))
    return found


def floor(module: str) -> str:
    """Return what a module is part of at the root of its package: a folder, or itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def downward(package: str) -> dict[str, set[str]]:
    """Return the edges of a package without those that may run back."""
    return {
        module: {each for each in targets if (module, each) not in BACKWARD}
        for module, targets in edges(package).items()
    }


def folders(package: str) -> dict[str, set[str]]:
    """Return which folders of the package each of its folders imports."""
    named = [name for name in FLOORS[package] if (home(package) / name).is_dir()]
    found: dict[str, set[str]] = {name: set() for name in named}
    for module, targets in downward(package).items():
        here = floor(module)
        if here in found:
            found[here] |= {floor(each) for each in targets} & set(found) - {here}
    return found
