"""CUDA C++ text to machine code or PTX for any target, by NVRTC; no GPU and no nvcc is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from lowering.isa.gpu_extra import missing
from lowering.isa.nvjitlink import AssembleError

# Kernels need not use all that is declared for them: warnings 177 and 550 say so.
OPTIONS = ("--std=c++17", "--diag-suppress=177,550")
_FILE = "kernel.cu"
# NVRTC has no headers of its own: the names that <cstdint> would declare, and what they are.
_INTEGERS = {
    "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short",
    "uint16_t": "unsigned short", "int32_t": "int", "uint32_t": "unsigned int",
    "int64_t": "long long", "uint64_t": "unsigned long long",
}  # fmt: skip
_HEADER = "\n".join(f"typedef {kind} {name};" for name, kind in _INTEGERS.items())
# Who complains, where, and of what: the compiler by lines of the text, ptxas by those of its PTX.
_COMPLAINT = re.compile(
    rf"^(?:{re.escape(_FILE)}\((?P<text>\d+)\): (?:catastrophic )?error\s*:"
    r"|ptxas .*?, line (?P<ptx>\d+); (?:error|fatal)\s*:"
    r"|ptxas error\s*:|nvrtc: error:) ?(?P<said>.*)$",
    re.MULTILINE,
)
_PLACE = re.compile(r"^\s*\.loc\s+1 (\d+)(?:.*inlined_at 1 (\d+))?")

Said = Callable[[int], object]


class CompileError(AssembleError):
    """NVRTC refuses; the message has what it complains of, ``log`` all that it wrote."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the log, so that the error crosses processes."""
        return type(self), (str(self), self.log)


@cache
def _compiler() -> Any:
    """Return the NVRTC bindings of the installed wheels, the library loaded.

    Raises:
        AssembleError: one of the two is not installed.
    """
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:  # the bindings load the library late
        raise AssembleError(str(missing("compile", "NVRTC", error))) from None
    return nvrtc


def version() -> str:
    """Return the version of NVRTC, such as 13.5.

    Raises:
        AssembleError: it is not installed.
    """
    major, minor = _call("nvrtcVersion")
    return f"{major}.{minor}"


def compile_text(
    source: str,
    arch: str,
    name: str = "kernel",
    said: Said = lambda line: None,
    strict: bool = False,
) -> bytes:
    """Return what CUDA C++ text that is a whole program compiles to: a cubin, or PTX.

    Args:
        source: the text; it may include ``<cstdint>``, no other header.
        arch: a target, such as ``sm_90a``; ``compute_90a`` gives its PTX.
        name: what messages call the text.
        said: returns what a line of the text, from 1 on, was written for, or None; errors name it.
        strict: refuse text on which ptxas remarks, such as a wgmma that it serialises.

    Raises:
        CompileError: the compiler refuses; each complaint has its line.
        AssembleError: NVRTC is not installed.
    """
    with _program(source) as program:
        done, log = _built(program, arch)
        if done and not (strict and log):
            return _read("PTX" if arch.startswith("compute_") else "CUBIN", program)
    if done:
        raise CompileError(f"compile {name} for {arch}, with remarks: {log}", log)
    found = "\n  ".join(_complaints(source, arch, log, said)) or log
    raise CompileError(f"compile {name} for {arch}: NVRTC refuses\n  {found}", log)


def _call(name: str, *arguments: Any) -> Any:
    status, *found = getattr(_compiler(), name)(*arguments)
    if status:
        raise AssembleError(f"compile: {name} says {status.name}")
    return found[0] if len(found) == 1 else tuple(found)


@contextmanager
def _program(source: str) -> Iterator[Any]:
    """Hold a program of NVRTC."""
    headers = [_HEADER.encode()], [b"cstdint"]
    program = _call("nvrtcCreateProgram", source.encode(), _FILE.encode(), 1, *headers)
    try:
        yield program
    finally:
        _call("nvrtcDestroyProgram", program)


def _built(program: Any, arch: str, *more: str) -> tuple[bool, str]:
    """Compile; return whether it went well, and the log."""
    options = [each.encode() for each in (f"--gpu-architecture={arch}", *OPTIONS, *more)]
    (status,) = _compiler().nvrtcCompileProgram(program, len(options), options)
    return not status, _read("ProgramLog", program).rstrip(b"\0 \n").decode(errors="replace")


def _read(what: str, program: Any) -> bytes:
    into: bytes = b" " * _call(f"nvrtcGet{what}Size", program)
    _call(f"nvrtcGet{what}", program, into)
    return into


def _complaints(source: str, arch: str, log: str, said: Said) -> Iterator[str]:
    """Yield each complaint with its line of the text, and what that was written for.

    ptxas counts lines of PTX. Compiled again with line information, the PTX says which lines of the
    text they come from; the call of an inlined function counts, not its definition.
    """
    places: list[str] = []
    if _COMPLAINT.search(log) and any(each["ptx"] for each in _COMPLAINT.finditer(log)):
        with _program(source) as program:
            _, log = _built(program, arch, "--generate-line-info")
        with _program(source) as program:
            _built(program, arch.replace("sm_", "compute_"), "--generate-line-info")
            places = _read("PTX", program).decode(errors="replace").splitlines()
    for each in _COMPLAINT.finditer(log):
        line = int(each["text"]) if each["text"] else _line(places, int(each["ptx"] or 0))
        if not line:
            yield each["said"]
            continue
        about = said(line)
        yield f"line {line}{f', of {about}' if about else ''}: {each['said']}"


def _line(places: list[str], number: int) -> int:
    """Return the line of the text that a line of PTX comes from; 0 where none is said.

    >>> _line([".loc 1 2 3, function_name $L, inlined_at 1 7 5", "frob.b32 %r6;"], 2)
    7
    """
    for text in reversed(places[:number]):
        found = _PLACE.match(text)
        if found:
            return int(found[2] or found[1])
    return 0
