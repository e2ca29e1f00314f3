"""Plants mutants in core modules and runs the tests that belong: what no test notices is printed.

``python tests/fuzz/mutate.py --mutants 400 --seed 1 --jobs 16 --output mutants.json`` works in
copies of the tree. First each test file of ``MODULES`` runs once, and it is written down which
tests execute which lines. Then each mutant runs the tests that execute its line, the quickest file
first, until one fails; where all pass, those of its function; at most ``--budget`` seconds of
tests. A test that hangs counts as a kill.

``--again mutants.json`` runs the survivors of such a result once more, found by module, function
and the changed line's text, with more tests per mutant, and gives the score of both runs together.

Mutants that compile to the same code are not planted. Those that a person judged to be the same
program are in ``data/equivalent_mutants.json``, keyed by module, function and the changed line's
text, so that edits elsewhere leave them valid.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import dataclasses
import difflib
import functools
import hashlib
import importlib
import itertools
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.support.paths import DATA, ROOT

EQUIVALENT = DATA / "equivalent_mutants.json"

# -- which tests belong -----------------------------------------------------------------------

ALGEBRA = (
    "conformance errors bad_input refusals laws symbolic equivalence tvm_faults explanation "
    "convert tv cute_maps index copy"
).split()
ACCESS = "swizzle_search convert refusals errors bad_input copy program kernel".split()
KERNELS = (
    "index copy kernel program machine refusals dispatch gemm_conformance cuda_cpp "
    "holders hazards masks convergence readers addresses_of_buffers wgmma_order "
    "hazards_by_definition "
    "smem_descriptor wgmma gemm_async clusters tensor_copy tensor_memory tensor_hazards "
    "matmul_wgmma"
).split()

# Module -> the test files (tests/**/test_*.py) that hold it. The doctests of all these modules
# belong to each of them. A new module is one line.
MODULES: dict[str, list[str]] = {
    "layoutalg/algebra/iters.py": ALGEBRA,
    "layoutalg/algebra/evaluation.py": ALGEBRA,
    "layoutalg/layouts/tile_layout.py": ALGEBRA,
    "layoutalg/algebra/slicing.py": ALGEBRA,
    "layoutalg/algebra/tiling.py": ALGEBRA,
    "layoutalg/algebra/untiling.py": ALGEBRA,
    "layoutalg/algebra/parts.py": ALGEBRA,
    "layoutalg/algebra/inversion.py": ALGEBRA,
    "layoutalg/proofs/injectivity.py": ALGEBRA,
    "layoutalg/proofs/equivalence.py": ALGEBRA,
    "layoutalg/proofs/normal_form.py": ALGEBRA,
    "layoutalg/layouts/swizzle.py": ALGEBRA,
    "layoutalg/sizes/symbolic.py": ALGEBRA,
    "layoutalg/sizes/size.py": ALGEBRA,
    "layoutalg/memory/access.py": ACCESS,
    "layoutalg/conversions/conversion.py": ACCESS,
    "layoutalg/conversions/search.py": ACCESS,
    "lowering/ir/index.py": KERNELS,
    "lowering/dispatch/addresses.py": KERNELS,
    "lowering/dispatch/variants/copy_vector.py": KERNELS,
    "lowering/dispatch/variants/ldstmatrix.py": KERNELS,
    "lowering/isa/smem_descriptor.py": KERNELS,
    "lowering/isa/wgmma.py": KERNELS,
    "lowering/codegen/writer.py": KERNELS,
    "lowering/codegen/movement.py": KERNELS,
    "lowering/simulator/machine.py": KERNELS,
    "lowering/simulator/run.py": KERNELS,
    "lowering/simulator/memory.py": KERNELS,
    "lowering/dispatch/holders.py": KERNELS,
    "lowering/dispatch/destinations.py": KERNELS,
    "lowering/simulator/hazards.py": KERNELS,
    "lowering/simulator/order.py": KERNELS,
    "lowering/ir/convergence.py": KERNELS,
}

# Module -> the test files that are about it: of those that execute a line, these run first.
FIRST: dict[str, list[str]] = {
    "lowering/ir/index.py": "index".split(),
    "lowering/dispatch/addresses.py": "index addresses_of_buffers".split(),
    "lowering/dispatch/variants/copy_vector.py": "copy holders refusals".split(),
    "lowering/dispatch/variants/ldstmatrix.py": "copy holders refusals".split(),
    "lowering/isa/smem_descriptor.py": "smem_descriptor wgmma".split(),
    "lowering/isa/wgmma.py": "wgmma wgmma_order".split(),
    "lowering/codegen/writer.py": "cuda_cpp kernel".split(),
    "lowering/codegen/movement.py": "cuda_cpp kernel".split(),
    "lowering/simulator/machine.py": "machine masks hazards".split(),
    "lowering/simulator/run.py": "machine masks hazards".split(),
    "lowering/simulator/memory.py": "machine masks hazards".split(),
    "lowering/dispatch/holders.py": "holders refusals masks".split(),
    "lowering/dispatch/destinations.py": "holders refusals".split(),
    "lowering/simulator/hazards.py": "hazards masks hazards_by_definition".split(),
    "lowering/simulator/order.py": "hazards masks hazards_by_definition".split(),
    "lowering/ir/convergence.py": "convergence masks".split(),
}


def test_file(stem: str) -> str:
    """Return the path of ``test_<stem>.py`` below the root, wherever in the tests it is."""
    (found,) = (ROOT / "tests").rglob(f"test_{stem}.py")
    return str(found.relative_to(ROOT))


def test_files(modules: Iterable[str]) -> list[str]:
    """Return the files whose tests belong to the modules: doctests of the modules, then tests."""
    named = dict.fromkeys(test_file(stem) for each in modules for stem in MODULES[each])
    return [*MODULES, *named]


# -- mutants ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change of one module: the characters ``[begin, end)`` of its source become ``text``."""

    module: str
    kind: str
    function: str  # the qualified name of the innermost function or class, "" at the top level
    first: int  # lines of the statement that it stands in
    last: int
    line: int
    begin: int
    end: int
    text: str

    def source(self, original: str) -> str:
        """Return the module's text with this change."""
        return original[: self.begin] + self.text + original[self.end :]

    def changed(self, original: str) -> tuple[str, str]:
        """Return the text of the changed lines before and after, without indentation."""
        begin = original.rfind("\n", 0, self.begin) + 1
        end = original.find("\n", self.end)
        before = original[begin:end]
        after = original[begin : self.begin] + self.text + original[self.end : end]
        return " ".join(before.split()), " ".join(after.split())


OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Add, ast.FloorDiv),
    ast.FloorDiv: (ast.Mult, ast.Mod), ast.Mod: (ast.FloorDiv,), ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,), ast.RShift: (ast.LShift,), ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,), ast.BitXor: (ast.BitOr,),
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE,), ast.LtE: (ast.Lt,), ast.Gt: (ast.GtE,), ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
SYMMETRIC = {"min", "max", "gcd", "lcm", "equal"}  # exchanged arguments are the same program


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the changed forms of one node of an expression, each with its kind."""

    def edited(**fields: Any) -> ast.AST:
        made = copy.copy(node)
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    def without(values: list[Any], at: int) -> list[Any]:
        return values[:at] + values[at + 1 :]

    match node:
        case ast.BinOp(op=op):
            for each in OPERATORS.get(type(op), ()):
                yield "operator", edited(op=each())
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield "operator", operand
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                for kind in COMPARISONS.get(type(op), ()):
                    yield "comparison", edited(ops=[*ops[:at], kind(), *ops[at + 1 :]])
        case ast.Constant(value=bool(value)):
            yield "constant", edited(value=not value)
        case ast.Constant(value=int(value)):
            yield "constant", edited(value=value + 1)
            yield "constant", edited(value=value - 1)
        case ast.BoolOp(op=op, values=values):
            yield "and/or", edited(op=ast.Or() if isinstance(op, ast.And) else ast.And())
            for at in range(len(values)):
                left = without(values, at)
                yield "and/or", left[0] if len(left) == 1 else edited(values=left)
        case ast.IfExp(test=test):
            yield "negated condition", edited(test=ast.UnaryOp(ast.Not(), test))
        case ast.Slice(lower=lower, upper=upper) if lower or upper:
            one = ast.Constant(1)
            yield "slice", edited(lower=ast.BinOp(lower, ast.Add(), one) if lower else one)
            down = ast.BinOp(upper, ast.Sub(), one) if upper else ast.UnaryOp(ast.USub(), one)
            yield "slice", edited(upper=down)
        case ast.Call(func=func, args=args, keywords=keywords):
            if isinstance(func, ast.Name) and func.id in NAMES:
                yield "operator", edited(func=ast.Name(NAMES[func.id], ast.Load()))
            name = getattr(func, "id", getattr(func, "attr", ""))
            for at in range(0 if name in SYMMETRIC else len(args) - 1):
                if not any(isinstance(each, ast.Starred) for each in args[at : at + 2]):
                    swapped = [*args[:at], args[at + 1], args[at], *args[at + 2 :]]
                    yield "exchanged arguments", edited(args=swapped)
            for at, keyword in enumerate(keywords):
                if keyword.arg not in (None, "strict"):  # zip(strict=) asserts
                    yield "dropped keyword", edited(keywords=without(keywords, at))


def conditions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the conditions that a statement or a comprehension asks."""
    match node:
        case ast.If(test=test) | ast.While(test=test):
            yield test
        case ast.comprehension(ifs=ifs):
            yield from ifs


class Planter:
    """Finds every mutant of one module."""

    def __init__(self, module: str, source: str) -> None:
        self.module = module
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line.encode()))
        self.bytes = source.encode()
        self.found: list[Mutant] = []
        self.names: list[str] = []
        self.statement: ast.stmt

    def mutants(self) -> list[Mutant]:
        """Return all mutants of the module, in the order of its text."""
        self.body(ast.parse(self.source).body)
        return self.found

    def offset(self, line: int, column: int) -> int:
        """Return the character at a line and a column in bytes, as ``ast`` counts."""
        return len(self.bytes[: self.starts[line - 1] + column].decode())

    def span(self, node: Any) -> tuple[int, int]:
        """Return the characters that a node covers."""
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )

    def plant(self, kind: str, node: Any, text: str) -> None:
        """Add the mutant in which the node reads ``text``."""
        begin, end = self.span(node)
        head = self.statement
        last = head.body[0].lineno - 1 if hasattr(head, "body") else head.end_lineno
        self.found.append(
            Mutant(
                self.module, kind, ".".join(self.names), head.lineno, max(head.lineno, last or 0),
                node.lineno, begin, end, text,
            )
        )  # fmt: skip

    def replace(self, kind: str, node: Any, made: ast.AST, top: ast.AST | None) -> None:
        """Add the mutant in which an expression is another; inside an f-string, the whole text."""
        if top is None:
            bare = isinstance(node, ast.Slice | ast.Constant | ast.Call)
            self.plant(kind, node, ast.unparse(made) if bare else f"({ast.unparse(made)})")
            return
        before = dict(vars(node))
        changed = copy.deepcopy(top)
        for ours, theirs in zip(ast.walk(top), ast.walk(changed), strict=True):
            for name, value in ast.iter_fields(ours):
                if value is node:
                    setattr(theirs, name, made)
                elif isinstance(value, list) and any(each is node for each in value):
                    setattr(theirs, name, [made if each is node else each for each in value])
        assert vars(node) == before
        with contextlib.suppress(ValueError):  # a backslash in it, which Python 3.11 cannot write
            self.plant(kind, top, ast.unparse(changed))

    def body(self, statements: list[ast.stmt]) -> None:
        """Visit the statements of a block."""
        for statement in statements:
            self.visit(statement)

    def visit(self, statement: ast.stmt) -> None:
        """Add the mutants of a statement and of what stands in it."""
        self.statement = statement
        match statement:
            case ast.FunctionDef() | ast.ClassDef():
                self.names.append(statement.name)
                if isinstance(statement, ast.FunctionDef):
                    for default in [*statement.args.defaults, *statement.args.kw_defaults]:
                        self.expression(default)
                self.body(statement.body)
                self.names.pop()
                return
            case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Global() | ast.Nonlocal():
                return  # an assert is for faults of ours: without it the program is the same
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Expr(value=ast.Constant()):
                return
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
                return
            case ast.Raise():
                self.plant("dropped statement", statement, "pass")
                return  # what the error says is held by tables of messages
            case ast.Expr() | ast.AugAssign() | ast.Continue() | ast.Break() | ast.Delete():
                self.plant("dropped statement", statement, "pass")
            case ast.If(body=[ast.Return()], orelse=[]):
                self.plant("early return", statement, "pass")
            case ast.Return(value=ast.Constant(value=False | 0)):
                pass  # as false as None
            case ast.Return(value=ast.expr()):
                self.plant("early return", statement, "return None")
        match statement:
            case ast.AugAssign(op=op):
                for each in OPERATORS.get(type(op), ()):
                    made = copy.copy(statement)
                    made.op = each()
                    self.plant("operator", statement, ast.unparse(made))
            case ast.Continue():
                self.plant("early return", statement, "break")
            case ast.For(body=body):
                indent = " " * body[-1].col_offset
                begin, end = self.span(body[-1])
                again = self.source[begin:end] + f"\n{indent}break"
                self.plant("early return", body[-1], again)
        blocks = {"body", "orelse", "finalbody", "handlers", "cases"}
        for name, value in ast.iter_fields(statement):
            if name in blocks or name in {"annotation", "decorator_list", "targets", "target"}:
                continue
            for each in value if isinstance(value, list) else [value]:
                self.expression(each)
        for test in conditions(statement):
            self.negate(test, None)
        for name in ("body", "orelse", "finalbody"):
            self.body(getattr(statement, name, []))
        for each in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
            if getattr(each, "guard", None):
                self.statement = each.body[0]
                self.expression(each.guard)
                self.negate(each.guard, None)
            self.body(each.body)

    def negate(self, test: ast.expr, top: ast.AST | None) -> None:
        """Add the mutant in which a condition is turned round."""
        self.replace("negated condition", test, ast.UnaryOp(ast.Not(), test), top)

    def expression(self, node: Any, top: ast.AST | None = None) -> None:
        """Add the mutants of an expression and of what stands in it."""
        if not isinstance(node, ast.AST):
            return
        if isinstance(node, ast.JoinedStr):
            top = top or node
        else:
            for kind, made in changes(node):
                self.replace(kind, node, made, top)
            for test in conditions(node):
                self.negate(test, top)
        for name, value in ast.iter_fields(node):
            if name == "format_spec":
                continue
            for each in value if isinstance(value, list) else [value]:
                self.expression(each, top)


def same_code(one: CodeType, other: CodeType) -> bool:
    """Whether two code objects do the same, wherever they stand in their files."""

    def form(code: CodeType) -> tuple[Any, ...]:
        consts = tuple(
            form(each) if isinstance(each, CodeType) else (type(each), repr(each))
            for each in code.co_consts
        )
        return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars

    return form(one) == form(other)


def planted(module: str, number: int, seed: int, function: str) -> tuple[list[Mutant], int]:
    """Return a sample of a module's mutants that are other programs, and how many there are.

    Only those of functions whose name holds ``function``. The kinds take turns, so that constants
    do not crowd out the others.
    """
    source = (ROOT / module).read_text()
    original = compile(source, module, "exec")
    found = [each for each in Planter(module, source).mutants() if function in each.function]
    chance = random.Random(f"{seed} {module}")
    kinds: dict[str, list[Mutant]] = defaultdict(list)
    for each in found:
        kinds[each.kind].append(each)
    for group in kinds.values():
        chance.shuffle(group)
    order = sorted(kinds)
    chance.shuffle(order)
    turns = itertools.chain.from_iterable(
        itertools.zip_longest(*(kinds[kind] for kind in order)),
    )
    chosen: list[Mutant] = []
    for each in turns:
        if len(chosen) >= number:
            break
        if each is None:
            continue
        try:
            code = compile(each.source(source), module, "exec")
        except SyntaxError:
            continue
        if not same_code(original, code):
            chosen.append(each)
    return chosen, len(found)


# -- in a child: run tests --------------------------------------------------------------------

OPTIONS = [
    "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "--no-header",
    "--tb=no", "--disable-warnings", "--hypothesis-profile=mutants",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
]  # fmt: skip


def enter(tree: Path, log: Path) -> None:
    """Make this process one that runs the tests of a copy of the tree, in silence."""
    os.setsid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(out, stream)
    os.chdir(tree)
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    here = {str(ROOT), str(ROOT / "tests"), ""}
    sys.path[:] = [str(tree), *(each for each in sys.path if each not in here)]
    for name in [each for each in sys.modules if each.split(".")[0] == "tests"]:
        del sys.modules[name]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "mutants", derandomize=True, database=None, deadline=None,
        suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate),
    )  # fmt: skip


def forked(work: Callable[[], Any], answer: Path) -> int:
    """Run work in a process of its own, which writes what it returns as JSON; give its number."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        answer.write_text(json.dumps(work()))
        code = 0
    finally:
        os._exit(code)


class Watch:
    """Writes down which lines of the watched files each test executes, and how long it takes."""

    def __init__(self, tree: Path, watched: Iterable[str], shard: tuple[int, int]) -> None:
        self.shard = shard
        self.watched = {str(tree / each): each for each in watched}
        self.lines: set[tuple[str, int]] = set()
        self.imports: set[tuple[str, int]] = set()
        self.tests: dict[str, dict[str, Any]] = {}
        if hasattr(sys, "monitoring"):
            self.start = self.monitor
            self.again: Callable[[], None] = sys.monitoring.restart_events
        else:
            self.start = lambda: sys.settrace(self.call)
            self.again = self.known_clear
            self.known: dict[CodeType, int] = {}

    def monitor(self) -> None:
        """Ask the interpreter (3.12 and later) for each line of the watched files, once a test."""
        watch = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        watch.use_tool_id(watch.COVERAGE_ID, "mutants")

        def started(code: CodeType, _: int) -> Any:
            if code.co_filename in self.watched:
                watch.set_local_events(watch.COVERAGE_ID, code, watch.events.LINE)
            return watch.DISABLE

        def line(code: CodeType, number: int) -> Any:
            self.lines.add((code.co_filename, number))
            return watch.DISABLE

        watch.register_callback(watch.COVERAGE_ID, watch.events.PY_START, started)
        watch.register_callback(watch.COVERAGE_ID, watch.events.LINE, line)
        watch.set_events(watch.COVERAGE_ID, watch.events.PY_START)

    def known_clear(self) -> None:
        """Forget which functions were seen whole in this test."""
        self.known.clear()

    def call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace the lines of a call of a watched file; of many in a test, some (3.11)."""
        code = frame.f_code
        if code.co_filename not in self.watched:
            return None
        calls = self.known[code] = self.known.get(code, 0) + 1
        if calls > 50 and calls % 32:
            return None
        add, name = self.lines.add, code.co_filename

        def local(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                add((name, frame.f_lineno))
            return local

        return local

    def take(self) -> list[tuple[str, int]]:
        """Return the lines since the last call."""
        found, self.lines = self.lines, set()
        return sorted((self.watched[name], line) for name, line in found)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep a share of the tests."""
        which, shares = self.shard
        items[:] = items[which::shares]

    def pytest_collection_finish(self) -> None:
        """What ran until now ran at import."""
        self.imports.update(self.take())

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Follow one test."""
        self.again()
        self.lines = set()
        begin = time.perf_counter()
        self.tests[item.nodeid] = {"passed": True}
        yield
        test = self.tests[item.nodeid]
        test["seconds"] = time.perf_counter() - begin
        test["lines"] = self.take()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Drop tests that fail or skip on the tree as it is."""
        if report.outcome != "passed":
            self.tests[report.nodeid]["passed"] = False


def watch_file(
    tree: Path, file: str, shard: tuple[int, int], watched: list[str], log: Path
) -> dict[str, Any]:
    """Run a share of a test file, (which, of how many), and return what its tests execute."""
    enter(tree, log)
    watch = Watch(tree, watched, shard)
    begin = time.perf_counter()
    watch.start()
    code = pytest.main([*OPTIONS, file], plugins=[watch])
    total = sum(facts["seconds"] for facts in watch.tests.values())
    return {
        "file": file,
        "code": int(code),
        "load": max(0.0, time.perf_counter() - begin - total),
        "imports": sorted(watch.imports),
        "tests": watch.tests,
    }


class Session:
    """Runs chosen tests of one file in a given order, and stops at the first that fails."""

    def __init__(
        self, wanted: Mapping[str, float], known: set[str], late: Callable[[str], None]
    ) -> None:
        self.wanted = {test: at for at, test in enumerate(wanted)}
        self.limits = wanted
        self.known = known
        self.late = late
        self.failed: str | None = None
        self.ran = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Choose and order; a test that only the mutant has runs, too."""
        chosen = [each for each in items if each.nodeid in self.wanted]
        chosen.sort(key=lambda each: self.wanted[each.nodeid])
        chosen += [each for each in items if each.nodeid not in self.known]
        items[:] = chosen

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Give a test ten times the time that it takes, and 20 seconds."""
        self.ran += 1
        signal.signal(signal.SIGALRM, lambda *_: self.late(item.nodeid))
        signal.setitimer(signal.ITIMER_REAL, 20 + 10 * self.limits.get(item.nodeid, 1.0))
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the test that fails."""
        if report.failed and self.failed is None:
            self.failed = report.nodeid


Round = tuple[str, dict[str, float]]  # a file, and its tests with their seconds, in order


def judge(tree: Path, rounds: list[Round], known: dict[str, set[str]], log: Path) -> dict[str, Any]:
    """Run the rounds on a mutant and return which test killed it, if one did."""
    enter(tree, log)
    ran = 0

    def late(test: str) -> None:
        found = {"killed": test, "ran": ran, "timeout": True}
        tree.with_suffix(".json").write_text(json.dumps(found))
        os._exit(0)

    for file, tests in rounds:
        session = Session(tests, known[file], late)
        signal.signal(signal.SIGALRM, lambda *_, file=file: late(file))
        signal.setitimer(signal.ITIMER_REAL, 60)  # to collect; each test then sets its own
        code = pytest.main([*OPTIONS, "-x", file], plugins=[session])
        ran += session.ran
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return {"killed": session.failed or file, "ran": ran, "timeout": False}
    return {"killed": None, "ran": ran, "timeout": False}


# -- in the parent: many jobs -----------------------------------------------------------------


@dataclasses.dataclass
class Task:
    """One thing to do in one copy of the tree: prepare it, fork, take the answer, clean up."""

    limit: float
    prepare: Callable[[Path], None]
    work: Callable[[Path, Path], Any]
    finish: Callable[[Any, float], None]
    clean: Callable[[Path], None] = lambda tree: None


def run_tasks(tasks: list[Task], trees: list[Path], until: float) -> int:
    """Do the tasks, one in each tree at a time, and return how many there was no time for.

    After ``until`` none is started, and those that still run 20 seconds later are given up.
    """
    waiting = list(reversed(tasks))
    free = list(trees)
    busy: dict[int, tuple[Task, Path, float]] = {}
    given_up = 0
    while (waiting and time.monotonic() < until) or busy:
        while waiting and free and time.monotonic() < until:
            task, tree = waiting.pop(), free.pop()
            task.prepare(tree)
            answer, log = tree.with_suffix(".json"), tree.with_suffix(".log")
            answer.unlink(missing_ok=True)
            pid = forked(functools.partial(task.work, tree, log), answer)
            busy[pid] = task, tree, time.monotonic()
        for pid, (task, tree, begin) in list(busy.items()):
            now = time.monotonic()
            no_time = now > until + 20
            late = no_time or now - begin > task.limit
            if late:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if os.waitpid(pid, 0 if late else os.WNOHANG)[0]:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)  # what a test started and left
                answer = tree.with_suffix(".json")
                if answer.exists() or not no_time:
                    found = json.loads(answer.read_text()) if answer.exists() else None
                    task.finish(found, now - begin)
                else:
                    given_up += 1
                task.clean(tree)
                del busy[pid]
                free.append(tree)
        time.sleep(0.01)
    return len(waiting) + given_up


CLOCK = itertools.count(int(time.time()) - 10**6)


def write_module(tree: Path, module: str, source: str) -> None:
    """Write a module at a time of its own, so that no compiled form of another text is taken."""
    path = tree / module
    path.write_text(source)
    moment = next(CLOCK)
    os.utime(path, (moment, moment))


def plan(
    mutant: Mutant, functions: Mapping[str, range], runs: list[Any], budget: float
) -> tuple[list[Round], int]:
    """Return the tests to run on a mutant, and how many tests execute its line.

    They run file by file: those that execute the line, then those that execute its function. Files
    of ``FIRST`` come first, and quick ones before slow ones; in each file one case of each test,
    then further cases. A test slower than three seconds comes after all that are not.
    """
    own = {(mutant.module, line) for line in range(mutant.first, mutant.last + 1)}
    near = {(mutant.module, line) for line in functions.get(mutant.function, range(0))}
    about = {test_file(stem) for stem in FIRST.get(mutant.module, ())} | {mutant.module}
    rounds: list[tuple[int, bool, float, str, dict[str, float]]] = []
    reached = 0
    for run in runs:
        groups: dict[int, list[tuple[int, float, str]]] = defaultdict(list)
        cases: dict[tuple[int, str], int] = defaultdict(int)
        at_import = not own.isdisjoint(run["imports"])
        for test, facts in sorted(run["tests"].items(), key=lambda each: each[1]["seconds"]):
            lines = facts["lines"]
            if not own.isdisjoint(lines):
                group = 0
                reached += 1
            elif not near.isdisjoint(lines):
                group = 2
            elif at_import and any(module == mutant.module for module, _ in lines):
                group = 4
            else:
                continue
            group += facts["seconds"] > 3
            stem = group, test.split("[")[0]
            cases[stem] += 1
            groups[group].append((cases[stem], facts["seconds"], test))
        for group, tests in groups.items():
            ordered = {test: seconds for _, seconds, test in sorted(tests)}
            cost = run["load"] + sum(ordered.values())
            rounds.append((group, run["file"] not in about, cost, run["file"], ordered))
    chosen: list[Round] = []
    left = budget
    for *_, file, tests in sorted(rounds, key=lambda each: each[:4]):
        taken = {}
        for test, seconds in tests.items():
            if left > 0 or (not chosen and not taken):
                taken[test] = seconds
                left -= seconds
        if taken:
            chosen.append((file, taken))
    return chosen, reached


def function_lines(module: str) -> dict[str, range]:
    """Return the lines of each function and class of a module by qualified name."""
    found: dict[str, range] = {}

    def visit(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = (*names, child.name)
                if isinstance(child, ast.FunctionDef):  # its body: the head runs at import
                    found[".".join(name)] = range(child.body[0].lineno, (child.end_lineno or 0) + 1)
                visit(child, name)
            else:
                visit(child, names)

    visit(ast.parse((ROOT / module).read_text()), ())
    return found


def digest(file: str) -> str:
    """Return a digest of both packages, of what the tests share and of one test file."""
    state = hashlib.sha256((ROOT / file).read_bytes())
    for folder in ("layoutalg", "lowering", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not path.name.startswith("test_") and path.name != "mutate.py":
                state.update(path.read_bytes())
    return state.hexdigest()


def shares(file: str) -> int:
    """Return in how many processes a test file is run as it is: one for each 200 lines."""
    return 1 + (ROOT / file).read_text().count("\n") // 200 if file.startswith("tests/") else 1


def coverage(files: list[str], trees: list[Path], kept: Path | None, seconds: float) -> list[Any]:
    """Return for each test file what its tests execute, from a kept answer or by running it.

    ``seconds`` is how long that may take; one share of a file, half of it.
    """
    digests = {file: digest(file) for file in files}
    runs: dict[str, Any] = json.loads(kept.read_text()) if kept and kept.exists() else {}

    missing = [file for file in files if runs.get(file, {}).get("digest") != digests[file]]
    found: dict[str, list[Any]] = {file: [] for file in missing}
    tasks = [
        Task(
            seconds / 2,
            lambda tree: None,
            lambda tree, log, file=file, at=at: watch_file(  # type: ignore[misc]
                tree, file, (at, shares(file)), list(MODULES), log
            ),
            lambda answer, _, file=file: found[file].append(answer),  # type: ignore[misc]
        )
        for file in sorted(missing, key=lambda each: -(ROOT / each).stat().st_size)
        for at in range(shares(file))
    ]
    if run_tasks(tasks, trees, time.monotonic() + seconds):
        raise SystemExit("no time left for the tests as they are: raise --minutes")
    for file, parts in found.items():
        if None in parts:
            print(f"{file}: no answer in {seconds / 2:.0f} s, left out", flush=True)
            continue
        every = {test: facts for part in parts for test, facts in part["tests"].items()}
        runs[file] = {
            "file": file,
            "digest": digests[file],
            "load": max(part["load"] for part in parts),
            "imports": [line for part in parts for line in part["imports"]],
            "known": list(every),
            "tests": {test: facts for test, facts in every.items() if facts["passed"]},
        }
    if kept:
        kept.write_text(json.dumps(runs))
    for file in files:
        if file in runs:
            dropped = len(runs[file]["known"]) - len(runs[file]["tests"])
            if dropped:
                print(f"{file}: {dropped} tests fail or skip, left out")
    return [runs[file] for file in files if file in runs]


@dataclasses.dataclass(frozen=True)
class Earlier:
    """A result of an earlier run, of which the survivors run again."""

    rows: list[dict[str, Any]]

    @staticmethod
    def key(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
        """Return by what a mutant is known, wherever its line stands now."""
        return row["module"], row["function"], row["before"], row["after"]

    def survivors(self, modules: Iterable[str]) -> tuple[list[Mutant], list[dict[str, Any]]]:
        """Return the mutants of these modules that survived, and the rows of those now gone."""
        found, gone = [], []
        for module in modules:
            source = (ROOT / module).read_text()
            planted_now: dict[tuple[str, str, str, str], Mutant] = {}
            for each in Planter(module, source).mutants():
                before, after = each.changed(source)
                planted_now.setdefault((module, each.function, before, after), each)
            for row in self.rows:
                if row["module"] == module and row["outcome"] == "survived":
                    again = planted_now.get(self.key(row))
                    if again is None:
                        gone.append(row)
                    else:
                        found.append(again)
        return found, gone

    def merged(self, results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows of both runs: what ran again counts as it came out now."""
        now = {self.key(row): row for row in results}
        return [{**row, **now.get(self.key(row), {})} for row in self.rows]


def make_trees(folder: Path, number: int) -> list[Path]:
    """Copy the working tree, without what git and tools leave in it."""
    ignore = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", ".hypothesis", "figures")
    trees = [folder / f"tree{at}" for at in range(number)]
    for tree in trees:
        shutil.copytree(ROOT, tree, ignore=ignore)
    return trees


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mutants", type=int, default=400, help="how many, over all modules")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", action="append", help="a module or a part of its name; repeat")
    parser.add_argument("--function", help="only mutants of functions whose name holds this")
    parser.add_argument("--tests", action="append", help="only test_NAME.py; repeat")
    parser.add_argument("--budget", type=float, help="seconds of tests per mutant: 60, again 200")
    parser.add_argument("--again", type=Path, help="run the survivors of this earlier output again")
    parser.add_argument("--minutes", type=float, default=60.0, help="start nothing after that long")
    parser.add_argument("--output", type=Path, help="write the results here, as JSON")
    parser.add_argument("--coverage", type=Path, help="keep here which test executes what")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    given = parser.parse_args()
    if given.budget is None:
        given.budget = 200.0 if given.again else 60.0
    return given


def main() -> None:
    """Plant, run, print the table and the survivors."""
    given = arguments()
    for package in ("numpy", "sympy", "hypothesis", "ml_dtypes"):  # once, not in each child
        with contextlib.suppress(ImportError):
            importlib.import_module(package)
    until = time.monotonic() + 60 * given.minutes
    modules = [
        module for module in MODULES
        if not given.only or any(part in module for part in given.only)
    ]  # fmt: skip
    sources = {module: (ROOT / module).read_text() for module in modules}
    shares = [given.mutants // len(modules)] * len(modules)
    for at in range(given.mutants % len(modules)):
        shares[at] += 1
    reviewed = {
        (row["module"], row["function"], row["before"], row["after"]): row["reason"]
        for row in (json.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else [])
    }
    mutants: list[Mutant] = []
    earlier = Earlier(json.loads(given.again.read_text())["mutants"]) if given.again else None
    if earlier:
        again, gone = earlier.survivors(modules)
        for lost in gone:
            print(f"no longer there: {' | '.join(earlier.key(lost))}")
    for module, share in zip(modules, shares, strict=True):
        if earlier:
            chosen = [each for each in again if each.module == module]
            total = len(chosen)
        else:
            chosen, total = planted(module, share, given.seed, given.function or "")
        mutants += chosen
        if given.list:
            print(f"{module}: {len(chosen)} of {total}")
            for each in chosen:
                before, after = each.changed(sources[module])
                print(f"  {each.line} [{each.kind}] {each.function}\n    - {before}\n    + {after}")
    if given.list:
        return
    results: list[dict[str, Any]] = []

    def row(mutant: Mutant) -> dict[str, Any]:
        before, after = mutant.changed(sources[mutant.module])
        return {
            "module": mutant.module, "function": mutant.function, "line": mutant.line,
            "kind": mutant.kind, "before": before, "after": after,
        }  # fmt: skip

    with tempfile.TemporaryDirectory(prefix="mutants") as name:
        trees = make_trees(Path(name), given.jobs)
        begin = time.monotonic()
        files = test_files(modules)
        if given.tests:
            files = [test_file(name) for name in given.tests]
        runs = coverage(files, trees, given.coverage, 60 * given.minutes)
        for run in runs:  # JSON has lists for tuples
            run["imports"] = {tuple(each) for each in run["imports"]}
            for facts in run["tests"].values():
                facts["lines"] = {tuple(each) for each in facts["lines"]}
        known = {run["file"]: set(run["known"]) for run in runs}
        print(
            f"{sum(len(run['tests']) for run in runs)} tests of {len(runs)} files, "
            f"{time.monotonic() - begin:.0f} s",
            flush=True,
        )
        tasks: list[Task] = []
        functions = {module: function_lines(module) for module in modules}
        for mutant in mutants:
            facts = row(mutant)
            reason = reviewed.get(
                (facts["module"], facts["function"], facts["before"], facts["after"])
            )
            if reason is not None:
                results.append({**facts, "outcome": "equivalent", "reason": reason})
                continue
            belong = [
                run for run in runs
                if run["file"] in MODULES
                or given.tests
                or Path(run["file"]).stem.removeprefix("test_")
                in MODULES[mutant.module]
            ]  # fmt: skip
            rounds, facts["reached"] = plan(mutant, functions[mutant.module], belong, given.budget)

            def finish(
                found: Any, seconds: float, mutant: Mutant = mutant, facts: Any = facts
            ) -> None:
                source = sources[mutant.module]
                if found is None:
                    found = {"killed": "no answer in time", "ran": 0, "timeout": True}
                outcome = (
                    "timeout" if found["timeout"] else "killed" if found["killed"] else "survived"
                )
                diff = "".join(
                    difflib.unified_diff(
                        source.splitlines(keepends=True),
                        mutant.source(source).splitlines(keepends=True),
                        mutant.module, mutant.module, n=2,
                    )
                )  # fmt: skip
                results.append(
                    {**facts, **found, "outcome": outcome, "seconds": round(seconds, 2),
                     "diff": diff}
                )  # fmt: skip
                done = len(results)
                if done % 50 == 0:
                    print(f"{done} of {len(mutants)}", flush=True)
                if outcome == "survived":
                    print(
                        f"survived {found['ran']} tests, {facts['reached']} of its line, "
                        f"{seconds:.0f} s, in {mutant.function} [{mutant.kind}]\n{diff}",
                        flush=True,
                    )

            tasks.append(
                Task(
                    60 + 6 * given.budget,
                    lambda tree, mutant=mutant: write_module(  # type: ignore[misc]
                        tree, mutant.module, mutant.source(sources[mutant.module])
                    ),
                    lambda tree, log, rounds=rounds: judge(tree, rounds, known, log),  # type: ignore[misc]
                    finish,
                    lambda tree, mutant=mutant: write_module(  # type: ignore[misc]
                        tree, mutant.module, sources[mutant.module]
                    ),
                )
            )
        random.Random(given.seed).shuffle(tasks)
        left = run_tasks(tasks, trees, until)
    if earlier:
        results = [row for row in earlier.merged(results) if row["module"] in modules]
    if given.output:
        given.output.write_text(json.dumps({"seed": given.seed, "mutants": results}, indent=1))
    report(modules, results, left, time.monotonic() - begin)


def report(modules: list[str], results: list[dict[str, Any]], left: int, seconds: float) -> None:
    """Print the table."""
    columns = ("killed", "timeout", "survived", "equivalent")
    print(f"{'module':36}{'planted':>8}" + "".join(f"{each:>11}" for each in columns))
    totals = dict.fromkeys(columns, 0)
    for module in modules:
        counts = {
            column: sum(row["module"] == module and row["outcome"] == column for row in results)
            for column in columns
        }
        for column in columns:
            totals[column] += counts[column]
        numbers = "".join(f"{counts[each]:>11}" for each in columns)
        print(f"{module:36}{sum(counts.values()):>8}{numbers}")
    print(f"{'':36}{len(results):>8}" + "".join(f"{totals[each]:>11}" for each in columns))
    judged = len(results) - totals["equivalent"]
    dead = totals["killed"] + totals["timeout"]
    share = dead / judged if judged else 0.0
    print(f"{dead} of {judged} that are not equivalent are killed: {share:.3f}")
    cost = sum(row.get("seconds", 0.0) for row in results)
    print(f"{seconds:.0f} s; {cost / max(1, judged):.1f} s a mutant")
    if left:
        print(f"{left} were not run: no time left")


if __name__ == "__main__":
    main()
