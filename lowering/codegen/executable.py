"""What every lowered program can do: be read as CUDA text, compiled, assembled."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

from layoutalg import LayoutError
from lowering.codegen import cuda_cpp, explorer_data
from lowering.codegen.compilers import DEFAULT, machine_code, numba_machine
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import Mma, Wgmma, walk
from lowering.ir.tmem_ops import TensorMma
from lowering.isa import nvjitlink


class Executable(ABC):
    """A program with a body: the readers that need no inputs."""

    @property
    @abstractmethod
    def body(self) -> KernelIR:
        """The whole kernel: parameters, buffers, operations."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the kernel."""

    @property
    @abstractmethod
    def title(self) -> str:
        """One line about the kernel."""

    @abstractmethod
    def script(self) -> str:
        """Return the operations, to read."""

    def __str__(self) -> str:
        """Return the script."""
        return self.script()

    def __repr__(self) -> str:
        """Return the name, the threads, and how many operations and instructions there are."""
        ops = list(walk(self.body.ops))
        cores = Counter(
            str(op.instruction) for op in ops if isinstance(op, (Mma, Wgmma, TensorMma))
        )
        named = (f"{count} {name}" for name, count in cores.items())
        more = ", ".join((f"{self.body.threads} threads", f"{len(ops)} operations", *named))
        return f"{type(self).__name__}({self.name}: {more})"

    def cuda_source(self) -> str:
        """Return the program as CUDA C++ text: one ``extern "C"`` kernel."""
        return cuda_cpp.cuda_source(self.body, self.name, self.title)

    def kernel_source(self) -> str:
        """Return the Python text of the ``numba.cuda`` kernel."""
        text: str = numba_machine().kernel_source(self.body, self.name)
        return text

    def kernel(self) -> Any:
        """Return the ``numba.cuda`` kernel; its parameters are those of :attr:`body`."""
        return numba_machine().kernel(self.body, self.name)

    def ptx(self, arch: str | None = None) -> str:
        """Return the kernel as PTX for a target; no GPU is needed.

        Raises:
            LayoutError: the target lacks the instruction.
        """
        text: str = numba_machine().compile_ptx(self.body, self.name, arch or self.body.arch)
        return text

    def whole(self, arch: str | None = None, compiler: str = DEFAULT) -> bytes:
        """Return the kernel as machine code that no other is linked to: what is launched.

        Args:
            arch: the target; by default that of :attr:`body`.
            compiler: "nvrtc", or "numba", the reference: see :mod:`lowering.codegen.compilers`.

        Raises:
            LayoutError: no such compiler, or the target lacks an instruction.
            AssembleError: the compiler refuses; the operations that it complains of are named.
        """
        return machine_code(self.body, self.name, arch or self.body.arch, compiler)

    def cubin(self, arch: str | None = None) -> bytes:
        """Return the kernel as machine code for a target, assembled by nvJitLink.

        Raises:
            AssembleError: the assembler refuses; its message is passed on.
        """
        return nvjitlink.assemble(self.ptx(arch), arch or self.body.arch)

    def to_html(
        self, *, path: str | os.PathLike[str] | None = None, title: str | None = None
    ) -> str:
        """Return the explorer page: one HTML file that follows an element from load to store.

        Args:
            path: file to write, ``.html``.
            title: the heading; that of the program unless given.

        Raises:
            LayoutError: the page would be larger than 60 kB, or another suffix.
        """
        return explorer_data.flow_html(self.body, self.title if title is None else title, path=path)

    def _repr_html_(self) -> str | None:
        """Return the page in a frame, for a notebook; None where it would be too large."""
        try:
            return explorer_data.flow_frame(self.body, self.title)
        except LayoutError:
            return None
