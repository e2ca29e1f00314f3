"""``Program`` and ``KernelProgram``: a lowered call, a lowered kernel, with all their readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from layoutalg import LayoutError, TileLayout
from layoutalg.algebra.iters import row_major
from lowering.codegen.compilers import DEFAULT
from lowering.codegen.executable import Executable
from lowering.dispatch.holders import has_copies
from lowering.dispatch.registry import Lowered, context_of, dispatch, list_variants
from lowering.dispatch.variants.copy_vector import BYTE, register_copy
from lowering.ir import convergence
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.matrices import Matrix, as_matrix, logical, poison
from lowering.ir.ops import Mma, Move, Op, Sync, Zero, script
from lowering.ir.tiles import EXTRAS, Buffer, TilePrimitiveCall, cells
from lowering.isa.mma import MmaInst
from lowering.launch import arguments, driver
from lowering.simulator.grid import BankCount, bank_counts
from lowering.simulator.machine import Machine
from lowering.simulator.run import execute

Step = tuple[Any, ...]


@dataclass(frozen=True, repr=False)
class Program(Executable):
    """A lowered gemm of register tiles, and the ways to read and run it.

    To run, it is framed by copies of whole matrices: inputs from global memory to registers, D
    back.

    >>> import lowering as lw
    >>> from layoutalg import fragments
    >>> name = "mma.m16n8k16.f16"
    >>> D, A, B = (lw.Buffer(r, f.shape, f.dtype, layout=f.layout)
    ...            for r, f in ((r, fragments.get(name, r)) for r in "DAB"))
    >>> program = lw.lower(lw.gemm(D, A, B))
    >>> program
    Program(gemm: 32 threads, 12 operations, 1 mma.m16n8k16.f16)
    >>> program.mma
    (('mma', (0, 1, 2, 3), (0, 1, 2, 3), (0, 1)),)
    """

    call: TilePrimitiveCall
    lowered: Lowered
    threads: int
    target: str = "cuda"
    arch: str = "sm_90"

    @property
    def name(self) -> str:
        """The name of the kernel: the primitive's."""
        return self.call.op

    @property
    def title(self) -> str:
        """The call, as it is written."""
        return str(self.call)

    def buffer(self, role: str) -> Buffer:
        """Return the buffer of a role."""
        return self.call.operands[role].buffer

    @property
    def ops(self) -> tuple[Op, ...]:
        """The register-level operations of the call alone."""
        return self.lowered.ops

    @property
    def instruction(self) -> MmaInst:
        """The instruction that dispatch chose."""
        return next(op.instruction for op in self.ops if isinstance(op, Mma))

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The operations in emission order, as plain tuples.

        ``("zero", d)``, ``("copy", d, c)`` or ``("mma", (d, …), (a, …), (b, …))``: registers of D
        and C, 32-bit words of A and B; then, where there are any, the first elements of E, or of
        SFA and SFB.
        """
        steps: list[Step] = []
        for op in self.ops:
            if isinstance(op, Zero):
                steps.extend(("zero", number) for number in op.into.numbers)
            elif isinstance(op, Move):
                pairs = zip(op.into.numbers, op.source.numbers, strict=True)
                steps.extend(("copy", into, source) for into, source in pairs)
            elif isinstance(op, Mma):
                a, b = (
                    tuple(number // pack for number in elements.numbers[::pack])
                    for elements, pack in (
                        (op.a, op.instruction.fragment("A").pack),
                        (op.b, op.instruction.fragment("B").pack),
                    )
                )
                extra = (each.numbers[0] for each in op.extra)
                steps.append(("mma", op.d.numbers, a, b, *extra))
        return tuple(steps)

    @property
    def mma(self) -> tuple[Step, ...]:
        """The mma steps alone."""
        return tuple(step for step in self.steps if step[0] == "mma")

    @property
    def accumulates(self) -> bool:
        """Whether D starts from C."""
        return any(isinstance(op, Move) for op in self.ops)

    @property
    def registers(self) -> dict[str, int]:
        """Elements that each thread allocates, per role; C where it is a buffer of its own."""
        roles = ["D", "C", "A", "B"] if self.buffer("C") != self.buffer("D") else ["D", "A", "B"]
        return {role: cells(self.buffer(role)) for role in (*roles, *self.extras)}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The roles whose matrices the program reads."""
        return ("A", "B", "C", *self.extras) if self.accumulates else ("A", "B", *self.extras)

    @property
    def extras(self) -> tuple[str, ...]:
        """The roles of the call other than A, B, C and D."""
        return tuple(role for role in EXTRAS if role in self.call.operands)

    @cached_property
    def body(self) -> KernelIR:
        """The whole kernel: the call, framed by copies of its matrices."""
        params: dict[Buffer, Buffer] = {}  # register buffer -> parameter
        taken = {buffer.name for buffer in self.call.buffers}
        for role in (*self.inputs, "D"):
            buffer = self.buffer(role)
            name = f"{role}g"
            while name in taken:
                name += "g"
            params.setdefault(buffer, self._parameter(name, buffer))
        ops: list[Op] = []
        loaded = set[Buffer]()
        for buffer, param in params.items():
            if any(self.buffer(role) == buffer for role in self.inputs) or self._partial(buffer):
                ops.extend(register_copy(buffer.region(), param.region(), self.threads, True))
                loaded.add(buffer)
        ops.extend(self.ops)
        d = self.buffer("D")
        if d in loaded and has_copies(d.region(), self.threads):
            ops.append(Sync("cta"))  # threads with copies have read what the storing one writes
        ops.extend(register_copy(d.region(), params[d].region(), self.threads, False))
        return KernelIR(
            tuple(params.values()), (), tuple(params), tuple(ops), self.threads, self.arch
        )

    def _parameter(self, name: str, buffer: Buffer) -> Buffer:
        """Return the global buffer that a register buffer is loaded from, or stored to.

        It is row-major; column-major where elements narrower than a byte pack along columns.
        """
        param = Buffer(name, buffer.shape, buffer.dtype, "global")
        if buffer.dtype.bits >= BYTE:
            return param
        try:
            register_copy(buffer.region(), param.region(), self.threads, True)
        except LayoutError:
            columns = TileLayout.from_iters(row_major(buffer.shape[::-1])[::-1])
            return Buffer(name, buffer.shape, buffer.dtype, "global", columns)
        return param

    def _partial(self, buffer: Buffer) -> bool:
        """Whether the call computes a part of D, so that the rest must be given."""
        region = self.call.operands["D"]
        return buffer == region.buffer and region != buffer.region()

    def script(self) -> str:
        """Return the register buffers, then the operations, one a line."""
        lines = [f"# {self.call}", f"# {self.instruction.ptx}, {self.threads} threads"]
        for buffer in self.call.buffers:
            lines.append(
                f"{buffer.name}: {cells(buffer)} registers of {buffer.dtype}  # {buffer.layout}"
            )
        return "\n".join([*lines, script(self.ops)])

    def matrices(self, given: Mapping[str, Any]) -> dict[str, Matrix]:
        """Return the caller's matrices, converted, by parameter.

        Raises:
            LayoutError: a role is missing or unknown, a shape is wrong, or a buffer is given twice.
        """
        held = {self.buffer(role).name for role in given if role in self.call.operands}
        missing = [role for role in self.inputs if self.buffer(role).name not in held]
        unknown = sorted(set(given) - set(self.call.operands))
        if missing or unknown:
            got = ", ".join(sorted(given)) or "none"
            lacks = [f"{role} is missing" for role in missing]
            strays = [f"{role} is no operand" for role in unknown]
            raise LayoutError(
                f"run: the program reads the matrices {', '.join(self.inputs)}; got {got}: "
                f"{', '.join(lacks + strays)}"
            )
        names = {reg: p.name for reg, p in zip(self.body.registers, self.body.params, strict=True)}
        found: dict[str, Matrix] = {}
        for role, value in given.items():
            buffer = self.buffer(role)
            matrix = as_matrix(value, buffer, role)
            if buffer not in names:
                continue  # C where beta is 0
            known = found.setdefault(names[buffer], matrix)
            if known.tobytes() != matrix.tobytes():
                raise LayoutError(f"run: {role} is the buffer {buffer.name}, given two matrices")
        return found

    def _complete(self, given: Mapping[str, Any]) -> dict[str, Matrix]:
        """Return the matrices, with a poisoned D where the call computes a part of it."""
        found = self.matrices(given)
        d = self.body.params[self.body.registers.index(self.buffer("D"))]
        if self._partial(self.buffer("D")):
            found.setdefault(d.name, poison(d.dtype.numpy, d.shape))
        return found

    def simulate(self, **matrices: Any) -> Matrix:
        """Run on the NumPy warp: takes A, B (and C, D) as whole matrices, returns D.

        Args:
            matrices: role -> matrix of the whole buffer, rounded to the buffer's dtype; ``D`` gives
                its initial value. Elements of D outside the region return as given, or NaN.

        Raises:
            LayoutError: a matrix is missing, unknown, or of another shape.
        """
        machine = execute(self.body, self._complete(matrices))
        d = self.body.written[0]
        return logical(d, machine.memory[d.name].values)

    def run(self, compiler: str = DEFAULT, **matrices: Any) -> Matrix:
        """Run on the GPU: as :meth:`simulate`.

        Args:
            compiler: "nvrtc" or "numba", as of :meth:`whole`.
            matrices: as of :meth:`simulate`.

        Raises:
            LayoutError: no CUDA device, or as :meth:`simulate`.
            AssembleError: as :meth:`whole`.
        """
        given = arguments.arguments(self.body, self._complete(matrices))
        written = driver.run(self.body, self.name, given, compiler=compiler)
        return written[self.body.written[0].name]


@dataclass(frozen=True, repr=False)
class KernelProgram(Executable):
    """A lowered kernel with its readers."""

    label: str
    lowered: KernelIR
    stages: Mapping[str, KernelIR]

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.label

    @property
    def body(self) -> KernelIR:
        """The whole kernel: parameters, buffers, operations."""
        return self.lowered

    @property
    def title(self) -> str:
        """One line about the kernel."""
        body = self.body
        more = f", clusters of {body.cluster}" if body.cluster > 1 else ""
        if body.tensor:  # no GPU that has tensor memory was at hand
            more += "; tcgen05: assembled and simulated, not executed"
        return f"{self.name}: {body.threads} threads, {body.shared_bytes} bytes shared{more}"

    def script(self, stage: str = "operations") -> str:
        """Return the program after a stage of lowering: see :mod:`lowering.programs.stages`.

        Raises:
            LayoutError: no such stage.
        """
        if stage not in self.stages:
            raise LayoutError(f"script: the stages are {', '.join(self.stages)}; got {stage!r}")
        if stage == "operations":
            return self.body.script()
        return script(self.stages[stage].ops)

    def trace(self, grid: tuple[int, int] | None = None, **given: Any) -> Machine:
        """Run on the NumPy warp, and return its first CTA: registers, memory, bank conflicts.

        Arguments and errors as :meth:`simulate`.
        """
        extents = arguments.check_grid(self.body, grid)
        made = arguments.arguments(self.body, given, extents)
        return arguments.simulate(self.body, made, extents)

    def simulate(self, grid: tuple[int, int] | None = None, **given: Any) -> dict[str, Matrix]:
        """Run on the NumPy warp; return the parameters that the kernel writes, by name.

        Args:
            grid: CTAs along bx and by, whole clusters along bx; by default one CTA or cluster.
            given: each parameter that is read, and each scalar, by name. A parameter is a matrix of
                its shape, or of the extents that its bounds name.

        Raises:
            LayoutError: a name is missing or unknown, or a value does not fit.
            SimulationError: it reads what nothing wrote, or races.

        >>> from layoutalg import S, TileLayout, laneid
        >>> import numpy as np
        >>> import lowering as lw
        >>> k = lw.Kernel("scaled")
        >>> alpha, row = k.scalar("alpha", "f32"), TileLayout(S[(32, 2) : (1 @ laneid, 1)])
        >>> a, o = (k.param(n, (64, 2), "float32") for n in "ao")
        >>> r, b = k.alloc("r", (32, 2), "float32", layout=row), k.let("b", k.block[0], 2)
        >>> k.copy(r, a[b * 32 : b * 32 + 32]), k.assign(r, r * alpha)
        (None, None)
        >>> k.copy(o[b * 32 : b * 32 + 32], r)
        >>> out = k.lower().simulate(grid=(2, 1), a=np.ones((64, 2)), alpha=3)["o"]
        >>> bool((out == 3).all())
        True
        """
        extents = arguments.check_grid(self.body, grid)
        made = arguments.arguments(self.body, given, extents)
        machine = arguments.simulate(self.body, made, extents)
        flat = {b.name: machine.memory[b.name].values for b in self.body.written}
        return {name: made.matrix(name, values) for name, values in flat.items()}

    def banks(self, grid: tuple[int, int] | None = None, **given: Any) -> tuple[BankCount, ...]:
        """Return the shared-memory wavefronts of each operation, counted on the NumPy warp.

        Arguments and errors as :meth:`simulate`.
        """
        return bank_counts(self.trace(grid, **given))

    def run(
        self, grid: tuple[int, int] | None = None, compiler: str = DEFAULT, **given: Any
    ) -> dict[str, Matrix]:
        """Run on the GPU: arguments, results and errors as :meth:`simulate`.

        Args:
            grid: as of :meth:`simulate`.
            compiler: "nvrtc" or "numba", as of :meth:`whole`.
            given: as of :meth:`simulate`.

        Raises:
            LayoutError: there is no CUDA device.
            AssembleError: as :meth:`whole`.
        """
        extents = arguments.check_grid(self.body, grid)
        made = arguments.arguments(self.body, given, extents)
        return driver.run(self.body, self.name, made, extents, compiler)


def lower(
    call: TilePrimitiveCall,
    target: str = "cuda",
    threads: int | None = None,
    active: Mapping[str, Any] | None = None,
    arch: str = "sm_90",
) -> Program:
    """Pick the first variant that accepts a gemm call and return its program.

    Args:
        call: a gemm.
        target: "cuda".
        threads: threads of the CTA; by default those of the call's scope (a warp, a warpgroup).
        active: ranges that narrow the call's threads, such as ``{"laneid": (0, 16)}`` inside
            ``if lane < 16``.
        arch: the target of machine code; variants whose instruction it lacks decline.

    Raises:
        DispatchError: every variant declines; the error lists each reason.
        LayoutError: another call, threads that make no whole units of the scope, or a variant
            that returns something else than operations.
    """
    context = context_of(call, target, threads, active, arch)
    if call.op != "gemm" and list_variants(call.op, target):
        raise LayoutError(
            f"lower: takes a gemm call; a {call.op} is a statement of a Kernel; got {call}"
        )
    lowered = dispatch(context)
    convergence.check(lowered.ops, context.threads)
    return Program(call, lowered, context.threads, target, arch)
