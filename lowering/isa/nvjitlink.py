"""PTX or LTO-IR to machine code for any target, by nvJitLink; no GPU is needed."""

from __future__ import annotations

from functools import cache
from typing import Any

from lowering.isa.gpu_extra import missing


class AssembleError(RuntimeError):
    """nvJitLink refuses; the message has its log."""


@cache
def _linker() -> Any:
    """Return the nvJitLink bindings of the installed wheels.

    Raises:
        AssembleError: they are not installed.
    """
    try:
        from cuda.bindings import nvjitlink
    except ImportError as error:
        raise AssembleError(str(missing("assemble", "nvJitLink", error))) from None
    return nvjitlink


def version() -> str:
    """Return the version of nvJitLink, such as 13.5.

    Raises:
        AssembleError: it is not installed.
    """
    major, minor = _linker().version()
    return f"{major}.{minor}"


def assemble(ptx: str, arch: str, name: str = "kernel", strict: bool = False) -> bytes:
    """Return the cubin of a PTX module.

    Args:
        ptx: a PTX module.
        arch: a target, such as ``sm_90`` or ``sm_90a``.
        name: what messages call the input.
        strict: refuse code on which the assembler remarks, such as waits that it had to add.

    Raises:
        AssembleError: the assembler refuses; the message has its log.
    """
    return _linked(ptx.encode() + b"\0", "PTX", arch, name, strict=strict)


def link_whole(code: bytes, arch: str, name: str = "kernel", strict: bool = False) -> bytes:
    """Return the cubin of LTO-IR that is a whole program.

    Args:
        code: LTO-IR.
        arch: a target, such as ``sm_90`` or ``sm_90a``.
        name: what messages call the input.
        strict: refuse code on which the linker remarks, such as a wgmma that it serialises.

    Raises:
        AssembleError: the linker refuses; the message has its log.
    """
    return _linked(code, "LTOIR", arch, name, "-lto", strict=strict)


def _linked(
    data: bytes, kind: str, arch: str, name: str, *options: str, strict: bool = False
) -> bytes:
    link = _linker()
    try:
        handle = link.create(1 + len(options), [f"-arch={arch}", *options])
    except link.nvJitLinkError as error:
        raise AssembleError(
            f"assemble: nvJitLink does not take the target {arch!r}: {error}"
        ) from None
    try:
        link.add_data(handle, getattr(link.InputType, kind), data, len(data), name)
        link.complete(handle)
        found = _log(link, handle, "info").splitlines() if strict else []
        # INFO lines come with every LTO-IR: they are no remarks.
        if remarks := [each for each in found if not each.startswith("INFO: ")]:
            raise AssembleError(f"assemble for {arch}, with remarks: {chr(10).join(remarks)}")
        cubin = bytearray(link.get_linked_cubin_size(handle))
        link.get_linked_cubin(handle, cubin)
        return bytes(cubin)
    except link.nvJitLinkError as error:
        message = _log(link, handle, "error") or error
        raise AssembleError(f"assemble for {arch}: {message}") from None
    finally:
        link.destroy(handle)


def _log(link: Any, handle: Any, kind: str) -> str:
    size = getattr(link, f"get_{kind}_log_size")(handle)
    if size <= 1:
        return ""
    log = bytearray(size)
    getattr(link, f"get_{kind}_log")(handle, log)
    return log.rstrip(b"\0").decode(errors="replace").strip()
