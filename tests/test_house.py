"""The house: imports run one way, names are documented, tests can fail, nothing is lying about."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import layoutalg
from tests.fuzz import mutate
from tests.support import architecture
from tests.support.house import (
    ACROSS,
    BACKWARD,
    FLOORS,
    downward,
    floor,
    home,
    imported,
    modules,
    parsed,
)
from tests.support.paths import ROOT


@pytest.mark.parametrize("package", FLOORS)
def test_every_folder_has_its_floor(package: str) -> None:
    assert {floor(module) for module in modules(package)} == set(FLOORS[package])


@pytest.mark.slow
@pytest.mark.parametrize("package", FLOORS)
def test_imports_run_downwards(package: str) -> None:
    height = {name: at for at, name in enumerate(FLOORS[package])}
    wrong = [
        f"{module} imports {target}"
        for module, targets in downward(package).items()
        for target in targets
        if height[floor(target)] > height[floor(module)]
    ]
    assert not wrong


@pytest.mark.slow
def test_the_edges_that_run_back_are_not_taken_at_import() -> None:
    for module, target in BACKWARD:
        names = {name for name, top in imported(modules("layoutalg")[module]) if top}
        assert not [name for name in names if name.startswith(target)]
        assert in_a_fresh_python(f"import sys, layoutalg; print({target!r} in sys.modules)") == (
            "False\n"
        )


NAMES = """
import sys, layoutalg
assert set(dir(layoutalg)) == {*layoutalg.__all__, "draw", "interop"}
assert not {"layoutalg.draw", "layoutalg.interop"} & set(sys.modules)
assert layoutalg.interop.read("8:1").notation == "cute" and layoutalg.draw.lane_map
assert not hasattr(layoutalg, "nothing")
import lowering
assert dir(lowering) == sorted(lowering.__all__)
print("names")
"""


def test_dir_shows_the_public_names_and_the_packages_that_come_later() -> None:
    assert in_a_fresh_python(NAMES) == "names\n"


@pytest.mark.parametrize("package", FLOORS)
def test_no_files_import_each_other_round_a_circle(package: str) -> None:
    left = dict(downward(package))
    while left:
        ready = [module for module, targets in left.items() if not targets & set(left)]
        assert ready, f"circle among {sorted(left)}"
        for module in ready:
            del left[module]


@pytest.mark.parametrize("package", FLOORS)
def test_each_folder_says_what_it_is(package: str) -> None:
    silent = [
        module
        for module, path in modules(package).items()
        if path.name == "__init__.py" and not ast.get_docstring(parsed(path))
    ]
    assert not silent


def test_the_picture_of_the_architecture_is_what_the_imports_draw() -> None:
    kept = architecture.PICTURE.read_text(encoding="utf-8")
    assert kept == architecture.picture(), "run python -m tests.support.architecture"


def importers(name: str, top_only: bool = False) -> set[str]:
    """Return the modules of both packages that import a package."""
    return {
        module
        for package in FLOORS
        for module, path in modules(package).items()
        for target, top in imported(path)
        if target.split(".")[0] == name and (top or not top_only)
    }


def test_layoutalg_imports_lowering_at_its_named_edges_alone() -> None:
    mine = set(modules("layoutalg"))
    assert importers("lowering") & mine == ACROSS
    assert importers("lowering", top_only=True) & mine == {"layoutalg.__main__"}


def test_the_judges_import_nothing_of_ours() -> None:
    """What the definitions say is computed by other code than what they judge."""
    for name in ("support/oracle.py", "fuzz/algebra/laws.py", "fuzz/algebra/places.py"):
        heard = {target.split(".")[0] for target, _ in imported(ROOT / "tests" / name)}
        assert not heard & set(FLOORS), name


@pytest.mark.slow
def test_the_mutation_tool_finds_its_modules_and_tests() -> None:
    for table in (mutate.MODULES, mutate.FIRST):
        assert all((home(module.split("/")[0]).parent / module).is_file() for module in table)
        assert all(mutate.test_file(stem) for stems in table.values() for stem in stems)


def test_each_heavy_package_has_its_importers() -> None:
    assert all(module.startswith("layoutalg.draw") for module in importers("matplotlib"))
    assert importers("anywidget") == {"layoutalg.draw.explorer.jupyter"}
    assert importers("numba") <= {"lowering.codegen.numba_cuda"}
    light = {
        "layoutalg.sizes.polynomials",
        "layoutalg.sizes.symbolic",
    }
    assert importers("sympy", top_only=True) == light
    assert importers("sympy") == light | {"layoutalg.sizes.size"}  # size: for its types


PROBE = """
import sys, time
start = time.process_time()  # of this process: other work on the machine does not count
import layoutalg
took = time.process_time() - start
heavy = {"sympy", "matplotlib", "numba", "lowering"} & set(sys.modules)
print(took, *heavy)
"""


def in_a_fresh_python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout


@pytest.mark.slow
def test_the_import_is_light() -> None:
    said = [in_a_fresh_python(PROBE).split() for _ in range(3)]
    assert all(len(words) == 1 for words in said), said
    assert min(float(words[0]) for words in said) < 0.5


LAZY = """
import sys
import lowering
assert not {"layoutalg", "numpy"} & set(sys.modules)
names = set(lowering.__all__)
assert names <= set(dir(lowering))
from lowering.isa import dtypes
heard = "a module of the package has imported all of it"
assert "lowering.dispatch.registry" not in sys.modules, heard
homes = {name: getattr(getattr(lowering, name), "__module__", "") for name in names}
assert all(home.startswith("lowering") for home in homes.values() if home), homes
assert lowering.list_variants("gemm"), "the variants are not registered"
assert not hasattr(lowering, "nothing")
print("lazy")
"""


@pytest.mark.slow
def test_lowering_is_imported_when_it_is_used() -> None:
    assert in_a_fresh_python(LAZY) == "lazy\n"


CONCRETE = """
import sys
import numpy as np
from layoutalg import *
from layoutalg import fragments
D = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)] + R[2 : 1 @ warpid] + 3)
assert parse(str(D)) == D
D.apply(9, 3, shape=(16, 8)); D.apply(77); D.apply(1, 2, 3, 1); D.apply(np.arange(128))
D.apply_to_shape((9, 3), (16, 8)); D.owners(5); D.table((16, 8), replicas=True)
D.size(); D.span(); D.get_scope(); D.verify_well_formed(); D.is_trivial(); hash(D); repr(D)
D.canonicalize(); D.canonicalize("cuda"); D.group((16, 8)); D.group_many([(16, 8), (2, 64)])
big = D.tile_to((64, 64), (16, 8)); D.tile(D, (16, 8), (16, 8), "cuda")
D.is_tile_inner(big, (64, 64), (16, 8)); TileLayout(S[4, 8]).is_tile_outer(big, (64, 64), (4, 8))
total = D.direct_sum(D, (16, 8), (16, 8)); D.is_direct_sum_left(total, (16, 16, 8, 8), (16, 8))
big.slice((64, 64), ((0, 16), (8, 24))); TileLayout(S[(5, 4):(8, 1)]).slice((20,), ((2, 18),))
D.permute_dims((1, 0, 2, 3))
grouped, seps = D.group((16, 8)); grouped.permute_by_groups(seps, (1, 0))
D.storage(); D.unpack(2).pack(2); D.broadcast(4); align(D, TileLayout(S[128:1])); D.subs({})
TileLayout(S[(8, 4):(4 @ laneid, 1 @ laneid)]).inverse((8, 4)).at(laneid=13)
ComposeLayout(3, 3, 3, TileLayout(S[512:1])).apply(64); D.equivalent(D); D.replication()
assert "sympy" not in sys.modules, "a concrete operation has imported sympy"
fragments.get("mma.m16n8k16.f16", "A")  # proved in sympy, when it is made
assert "sympy" in sys.modules, "a fragment was made without its proof"
print("light")
"""


@pytest.mark.slow
def test_concrete_operations_never_touch_sympy() -> None:
    assert in_a_fresh_python(CONCRETE) == "light\n"


# -- documentation ----------------------------------------------------------------------------


def public(owner: ModuleType | type) -> Iterator[tuple[str, Any]]:
    """Yield the public functions, classes and methods that are defined here, by qualified name."""
    home = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    for name, value in vars(owner).items():
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        target = value.fget if isinstance(value, property) else value
        target = inspect.unwrap(target) if callable(target) else target
        if name.startswith("_") or getattr(target, "__module__", None) != home:
            continue
        if getattr(target, "_is_protocol", False):
            continue
        if inspect.isfunction(target) or inspect.isclass(target):
            yield f"{home}.{getattr(target, '__qualname__', name)}", target
            if inspect.isclass(target):
                yield from public(target)


def loaded(module: str) -> ModuleType:
    __import__(module)
    return sys.modules[module]


def overrides(value: Any) -> bool:
    """Say whether a method only answers a call that a base class documents."""
    owner, _, name = value.__qualname__.rpartition(".")
    bases = getattr(loaded(value.__module__), owner).__mro__[1:] if owner else ()
    return any(name in vars(base) for base in bases)


def test_every_public_name_of_the_algebra_has_a_docstring() -> None:
    bare = [
        name
        for module in modules("layoutalg")
        if floor(module) not in ("__main__", "interop", "draw")
        for name, value in public(loaded(module))
        if not (value.__doc__ or "").strip()
    ]
    assert not bare


def test_every_public_function_of_the_layouts_has_a_doctest() -> None:
    """What users call says its law where they read it; what it stands on need not repeat it."""
    bare = [
        name
        for module in modules("layoutalg")
        if module.startswith(("layoutalg.layouts.", "layoutalg.sizes."))
        for name, value in public(loaded(module))
        if ">>>" not in (value.__doc__ or "") and not overrides(value)
    ]
    assert not bare


def test_every_exported_name_has_a_doctest() -> None:
    bare = [
        name
        for name in layoutalg.__all__
        for value in [getattr(layoutalg, name)]
        if (inspect.isclass(value) or inspect.isfunction(value))
        and not issubclass(value if inspect.isclass(value) else object, Exception)
        and ">>>" not in (value.__doc__ or "")
    ]
    assert not bare


def test_no_module_bears_the_name_of_a_public_function() -> None:
    for package in FLOORS:
        whole = loaded(package)
        names = {name for name in dir(whole) if inspect.isfunction(getattr(whole, name))}
        assert not names & {floor(module) for module in modules(package)}


# -- tests that cannot fail -------------------------------------------------------------------


def asserts(node: ast.AST, judges: set[str]) -> bool:
    """Say whether a function asserts, expects an error, or calls one of the judges."""
    for each in ast.walk(node):
        if isinstance(each, ast.Assert | ast.Raise):
            return True
        if isinstance(each, ast.Call):
            called = each.func.attr if isinstance(each.func, ast.Attribute) else None
            called = each.func.id if isinstance(each.func, ast.Name) else called
            if called in judges or called in ("raises", "warns", "fail"):
                return True
    return False


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


@pytest.mark.slow
def test_every_test_can_fail() -> None:
    """Follow calls to functions of the tests that assert themselves, to a fixed point."""
    trees = {path: parsed(path) for path in (ROOT / "tests").rglob("*.py")}
    judges: set[str] = set()
    while True:
        more = {
            function.name
            for tree in trees.values()
            for function in functions(tree)
            if asserts(function, judges)
        }
        if more == judges:
            break
        judges = more
    idle = [
        f"{path.name}::{function.name}"
        for path, tree in trees.items()
        if path.name.startswith("test_")
        for function in functions(tree)
        if function.name.startswith("test_") and function.name not in judges
    ]
    assert not idle


# -- the tree ---------------------------------------------------------------------------------

TOP = {
    "setup.cfg", "layoutalg", "lowering", "notebooks", "tests", "figures", "README.md",
    "pyproject.toml", "LICENSE", ".ruff.toml", ".gitignore", ".pre-commit-config.yaml", ".ci",
    ".github",
}  # fmt: skip


def test_the_top_level_holds_what_the_design_lists() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if listed.returncode:
        pytest.skip("no git here to say which files are ours")
    assert {path.split("/")[0] for path in listed.stdout.splitlines()} <= TOP


@pytest.mark.parametrize("package", FLOORS)
def test_packages_are_typed(package: str) -> None:
    assert (home(package) / "py.typed").is_file()


@pytest.mark.parametrize("package", FLOORS)
def test_names_say_something(package: str) -> None:
    vague = {"utils", "util", "helpers", "common", "manager", "misc"}
    for module, path in modules(package).items():
        assert not vague & set(module.split(".")[-1].split("_")), module
        for function in functions(parsed(path)):
            assert not function.name.startswith(("do_", "process_")), f"{module}.{function.name}"


KERNELS = """
from lowering.programs.kernel import Kernel
from lowering.dispatch.registry import list_variants
print(*list_variants("copy"), *list_variants("gemm"))
"""


@pytest.mark.slow
def test_kernels_know_the_variants_without_the_package() -> None:
    assert {"ldstmatrix", "mma.m16n8k*"} <= set(in_a_fresh_python(KERNELS).split())
