"""``Program``: a lowered call with its readers: script, NumPy warp, CUDA text, kernel."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from layoutalg import LayoutError
from lowering import assemble, cuda_text
from lowering.nest import Nest
from lowering.registers import register_count
from lowering.warp import Matrix, simulate


def _numba_machine() -> ModuleType:
    """Return :mod:`lowering.cuda`, which alone imports numba.

    Raises:
        LayoutError: numba-cuda is not installed.
    """
    try:
        from lowering import cuda
    except ImportError as error:
        raise LayoutError(
            f"kernel: needs numba-cuda, which pip installs on Linux and Windows ({error}); "
            "simulate() and cuda_source() need no GPU software"
        ) from None
    return cuda


class Program(Nest):
    """The unrolled nest of one tile primitive, and the four ways to read it.

    >>> import lowering as lw
    >>> from layoutalg import fragments
    >>> name = "mma.m16n8k16.f16"
    >>> D, A, B = (lw.Buffer(r, f.shape, f.dtype, layout=f.layout)
    ...            for r, f in ((r, fragments.get(name, r)) for r in "DAB"))
    >>> program = lw.lower(lw.gemm(D, A, B))
    >>> program.mma
    (('mma', (0, 1, 2, 3), (0, 1, 2, 3), (0, 1)),)
    """

    def script(self) -> str:
        """Return the program as text, to read: one line per step."""
        d, a, b, c = (self.buffer(role) for role in "DABC")
        lines = [f"# {self.call}", f"# {self.instruction.ptx}, {self.threads} threads"]
        for buffer in self.call.buffers:
            count = register_count(buffer.layout)
            lines.append(f"{buffer.name} = registers({count}, {buffer.dtype})  # {buffer.layout}")
        for step in self.steps:
            if step[0] == "zero":
                lines.append(f"{d.name}[{step[1]}] = 0")
            elif step[0] == "copy":
                lines.append(f"{d.name}[{step[1]}] = {c.name}[{step[2]}]")
            else:
                into, left, right = (", ".join(map(str, part)) for part in step[1:])
                lines.append(
                    f"{self.instruction.shape}({d.name}[{into}], {a.name}.words[{left}], "
                    f"{b.name}.words[{right}], {d.name}[{into}])"
                )
        return "\n".join(lines)

    def simulate(self, **matrices: Any) -> Matrix:
        """Run on the NumPy warp: takes A, B (and C, D) as whole matrices, returns D.

        Args:
            matrices: role -> matrix of the whole buffer, rounded to the buffer's dtype; ``D`` gives
                what D holds before. Elements of D outside the region come back as given, or NaN.

        Raises:
            LayoutError: a matrix is missing, unknown, or of another shape.
        """
        return simulate(self, matrices)

    def cuda_source(self) -> str:
        """Return the program as CUDA C++ text: an ``extern "C"`` kernel ``gemm``."""
        return cuda_text.cuda_source(self)

    def kernel(self) -> Any:
        """Return the ``numba.cuda`` kernel; parameters as in :meth:`kernel_source`."""
        return _numba_machine().kernel(self)

    def kernel_source(self) -> str:
        """Return the Python text of the ``numba.cuda`` kernel."""
        text: str = _numba_machine().kernel_source(self)
        return text

    def ptx(self, arch: str = "sm_90") -> str:
        """Return the kernel as PTX for a target; no GPU is needed.

        Raises:
            LayoutError: the target lacks the instruction.
        """
        text: str = _numba_machine().compile_ptx(self, arch)
        return text

    def cubin(self, arch: str = "sm_90") -> bytes:
        """Return the kernel as machine code for a target, assembled by nvJitLink.

        Raises:
            AssembleError: the assembler refuses; its message is passed on.
        """
        return assemble.assemble(self.ptx(arch), arch)

    def run(self, **matrices: Any) -> Matrix:
        """Run on the GPU: as :meth:`simulate`.

        Raises:
            LayoutError: no CUDA device, or as :meth:`simulate`.
        """
        out: Matrix = _numba_machine().run(self, matrices)
        return out
