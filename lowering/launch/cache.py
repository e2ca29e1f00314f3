"""Compiled kernels, kept on disk: machine code, and what a launch must know of it.

A kernel is kept in a file of its own, per target, for this process and those to come. The file's
name has a digest of all that decides its content. For a body that is its text; a kernel that is
made from a few numbers is found by these and the sources that make it, so that nothing is lowered
or compiled to load it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path

import layoutalg
from layoutalg import files
from lowering.codegen.compilers import DEFAULT, compiler, machine_code
from lowering.codegen.executable import Executable
from lowering.ir.kernel_ir import KernelIR

_MAGIC = b"layoutalg kernel 1\n"
PATIENCE = 1.0  # seconds of a compilation after which it is announced


def cache_folder() -> Path:
    """Return where kernels and choices are kept: ``$LAYOUTALG_CACHE``, or below ``~/.cache``."""
    chosen = os.environ.get("LAYOUTALG_CACHE")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "layoutalg"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that others may read meanwhile: all of it or nothing, by renaming.

    A folder that cannot be written is no error: what would be kept is made again.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_whole(path, data)
    except OSError as error:
        warnings.warn(f"layoutalg: {path} cannot be written ({error})", stacklevel=2)


# The folders whose code decides what a kernel's text is, below the root of each package.
_MAKERS = {
    Path(layoutalg.__file__).parent: ("sizes", "algebra", "proofs", "layouts", "fragments"),
    Path(__file__).parent.parent: (
        "isa", "ir", "passes", "dispatch", "codegen", "launch", "programs", "kernels",
    ),
}  # fmt: skip


@cache
def sources_digest() -> str:
    """Return a digest of the sources that make kernels: older kernels are compiled again."""
    found = hashlib.sha256()
    for package, folders in _MAKERS.items():
        for path in sorted(path for name in folders for path in (package / name).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


@dataclass(frozen=True)
class Compiled:
    """Machine code of one kernel, and what a launch must know of it.

    ``cluster``: CTAs of a cluster, along x. ``pdl``: programmatic dependent launch: the kernel
    itself waits for the previous grid.
    """

    params: tuple[str, ...]
    scalars: tuple[tuple[str, str], ...]
    threads: int
    shared_bytes: int
    boxes: tuple[tuple[str, int, int, int, str], ...]  # (parameter, rows, columns, swizzle, type)
    code: bytes = field(repr=False)
    cluster: int = 1
    pdl: bool = False

    def __post_init__(self) -> None:
        """Make tuples of what JSON gives as lists."""
        object.__setattr__(self, "params", tuple(self.params))
        object.__setattr__(self, "scalars", tuple((name, token) for name, token in self.scalars))
        object.__setattr__(self, "boxes", tuple(tuple(box) for box in self.boxes))

    def to_bytes(self) -> bytes:
        """Return the kernel as the content of a file, with a digest of it."""
        head = {name: value for name, value in asdict(self).items() if name != "code"}
        rest = json.dumps(head).encode() + b"\n" + self.code
        return _MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest

    @classmethod
    def from_bytes(cls, data: bytes) -> Compiled:
        """Return the kernel that :meth:`to_bytes` wrote.

        Raises:
            ValueError: the content is not whole.

        >>> made = Compiled(("A",), (("M", "s32"),), 32, 0, (), b"code")
        >>> Compiled.from_bytes(made.to_bytes()) == made
        True
        """
        start = len(_MAGIC)
        digest, rest = data[start : start + 64], data[start + 65 :]
        if data[:start] != _MAGIC or hashlib.sha256(rest).hexdigest().encode() != digest:
            raise ValueError("not a whole kernel file")
        head, _, code = rest.partition(b"\n")
        return cls(**json.loads(head), code=code)


def compile_program(program: Executable, arch: str, by: str = DEFAULT) -> Compiled:
    """Return a program's machine code for a target, as :func:`compile_body`."""
    return compile_body(program.body, program.name, arch, by)


def compile_body(body: KernelIR, name: str, arch: str, by: str = DEFAULT) -> Compiled:
    """Return a body's machine code for a target; no GPU is needed.

    Args:
        body: the whole kernel.
        name: of the kernel.
        arch: the target.
        by: the compiler, see :func:`lowering.codegen.compilers.machine_code`.

    Raises:
        LayoutError: no such compiler, or the target lacks an instruction.
        AssembleError: the compiler refuses, or is not installed.
    """
    with announced(f"compiling {name} for {arch} with {compiler(by).title}"):
        code = machine_code(body, name, arch, by)
    return replace(_uncompiled(body), code=code)


def _uncompiled(body: KernelIR) -> Compiled:
    """Return what a launch must know of a body."""
    return Compiled(
        tuple(buffer.name for buffer in body.params),
        tuple((scalar.name, scalar.token) for scalar in body.scalars),
        body.launched,
        body.shared_bytes,
        tuple(
            (box, *load.box, load.swizzle, body.buffer(box).dtype.token)
            for box, load in body.boxes.items()
        ),
        b"",
        body.cluster,
        body.pdl,
    )


def key_of(body: KernelIR, name: str, by: str = DEFAULT) -> str:
    """Return a digest of a kernel's text, of what a launch must know, and of who compiles it.

    Raises:
        LayoutError: no such compiler.
        AssembleError: it is not installed.
    """
    found = compiler(by)
    return _digest(found.version(), found.text(body, name), _uncompiled(body).to_bytes().decode())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def compiled(name: str, arch: str, program: Callable[[], Executable]) -> Compiled:
    """Return a kernel from the disk, or compile it and keep it.

    Args:
        name: of the kernel: what its program depends on, beside the sources.
        arch: the target.
        program: makes the program where it must be compiled.
    """
    key = _digest(compiler(DEFAULT).version(), sources_digest())
    return kept(name, arch, key, lambda: compile_program(program(), arch))


def kept(name: str, arch: str, key: str, make: Callable[[], Compiled]) -> Compiled:
    """Return a kernel from the disk, or make it and keep it.

    Args:
        name: of the kernel.
        arch: the target.
        key: a digest of what decides the kernel, beside these two.
        make: compiles.
    """
    path = cache_folder() / "kernels" / f"{name}.{arch}.{key}.bin"
    try:
        return Compiled.from_bytes(path.read_bytes())
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError) as error:
        warnings.warn(f"layoutalg: {path} is not usable ({error}); made again", stacklevel=2)
    made = make()
    write_whole(path, made.to_bytes())
    return made


@contextmanager
def announced(work: str) -> Iterator[None]:
    """Say on standard error what goes on, where it goes on for more than a second.

    Nothing is said where standard error is no terminal, or ``$LAYOUTALG_QUIET`` is set.
    """
    if os.environ.get("LAYOUTALG_QUIET") or not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(PATIENCE, print, (f"layoutalg: {work} …",), {"file": sys.stderr})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
