"""``matmul``: a product of matrices on the GPU, by kernels that are built from layouts alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from numbers import Real
from typing import Any

import numpy as np

from layoutalg import LayoutError
from lowering.ir.index import FREE
from lowering.isa import dtypes
from lowering.isa.dtypes import OUTPUTS, DType
from lowering.kernels import tuning
from lowering.kernels.config import EDGE, Config, Form, Problem, fitted, sums_of
from lowering.kernels.fusion import Fused, Given, scaled
from lowering.kernels.matmul import launch_of, program_of
from lowering.launch import arrays, streams
from lowering.launch.arrays import DeviceMatrix
from lowering.launch.cache import compiled
from lowering.launch.driver import Device, DeviceMemory, Loaded, device, download, tensor_maps


@cache
def loaded(form: Form, config: Config, index: int) -> Loaded:
    """Return the kernel of a form on a device; it is compiled once and kept on disk."""
    on = device(index)
    arch = config.target(on.arch)
    name = f"matmul_{form}_{config}"
    return Loaded(compiled(name, arch, lambda: program_of(form, config, arch)), on)


@dataclass(frozen=True)
class Plan:
    """A product of given shapes, strides and types, ready to be launched again and again.

    ``scalars``: in order, with 0 where a number of the epilogue goes; ``numbers``: those places.
    ``boxes``: for each parameter that TMA reads or writes, its number among the parameters, the
    stored extents, the pitch and the box of its tensor map.
    """

    kernel: Loaded
    on: Device
    config: Config
    grid: tuple[int, int]
    scalars: tuple[float, ...]
    numbers: tuple[int, ...]
    boxes: tuple[tuple[int, tuple[int, int], int, tuple[int, int, int, str]], ...]


MOST_PLANS = 4096
_LARGEST = FREE - EDGE  # of the sizes and pitches that a kernel counts to
_PLANS: dict[tuple[Any, ...], Plan] = {}


def plan(
    left: DeviceMatrix,
    right: DeviceMatrix,
    result: DeviceMatrix,
    fused: Fused | None,
    operands: Mapping[str, DeviceMatrix],
    config: Config | None,
) -> Plan:
    """Return the plan of a product; without a config the tuned one, else the default.

    Raises:
        LayoutError: as :func:`matmul`.
    """
    roles = {"a": left, "b": right, "out": result}
    for role, matrix in roles.items():
        arrays.check(matrix, role)
    everything = roles | dict(operands)
    if len({matrix.device for matrix in everything.values()}) > 1:
        places = ", ".join(f"{role} on {matrix.device}" for role, matrix in everything.items())
        raise LayoutError(f"matmul: all matrices must lie on one CUDA device; got {places}")
    (m, k), n = left.shape, right.shape[1]
    if right.shape[0] != k or right.dtype != left.dtype:
        raise LayoutError(
            f"matmul: b must be (K, N) with a's K = {k} and type; a is {left.dtype} {left.shape}, "
            f"b {right.dtype} {right.shape}"
        )
    check_sizes((m, n, k))
    if result.shape != (m, n) or result.transposed:
        raise LayoutError(
            f"matmul: out must be {(m, n)}, row-major; got {result.shape}, strides {result.strides}"
        )
    form = Form(left.dtype, result.dtype, left.transposed, right.transposed, epilogue=fused)
    letters = {} if fused is None else fused.letters
    names = {"A": left, "B": right, "D": result}
    for each, letter in letters.items():
        if each.extents is not None:
            _check_operand(each, operands[each.name], (m, n))
            if each.extents == "MN":
                names[letter] = operands[each.name]
                _check_pitch(each.name, names[letter])
    for name in "ABD":
        _check_pitch(name, names[name])
    problem = Problem((m, n, k), {name: matrix.pitch for name, matrix in names.items()})
    on = device(left.device)
    plain = replace(form, out=given_type(form.dtype), epilogue=None)
    chosen = tuning.choice(plain, problem.sizes, on) if config is None else config
    form, chosen = fitted(form, chosen, problem.sizes)
    before = on.enter()
    try:
        kernel = loaded(form, chosen, on.index)
    finally:
        on.leave(before)
    grid, scalars = launch_of(problem, chosen, on.processors)
    boxes = []
    for name, height, width, swizzle, token in kernel.made.boxes:
        matrix = names[name]
        rows, cols = matrix.shape[::-1] if matrix.transposed else matrix.shape
        place = kernel.made.params.index(name)
        boxes.append((place, (rows, cols), matrix.pitch, (height, width, swizzle, token)))
    numbers = [letter for each, letter in letters.items() if each.extents is None]
    return Plan(
        kernel,
        on,
        chosen,
        grid,
        kernel.ordered(scalars | dict.fromkeys(numbers, 0.0)),
        tuple(at for at, (name, _) in enumerate(kernel.made.scalars) if name in numbers),
        tuple(boxes),
    )


def _check_pitch(name: str, matrix: DeviceMatrix) -> None:
    """Refuse a matrix whose rows start where no vector does, or too far apart.

    Raises:
        LayoutError: they do.
    """
    step = arrays.ALIGNMENT * 8 // matrix.dtype.bits
    if matrix.pitch % step:
        raise LayoutError(
            f"matmul: rows of {name} must start a multiple of {step} elements apart, 16 bytes; "
            f"got {matrix.pitch} of {matrix.dtype}"
        )
    if matrix.pitch > _LARGEST:
        raise LayoutError(
            f"matmul: rows of {name} must start at most {_LARGEST} elements apart; got "
            f"{matrix.pitch}"
        )


def _check_operand(given: Given, matrix: DeviceMatrix, sizes: tuple[int, int]) -> None:
    """Refuse an operand of the epilogue that its kernel cannot read.

    Raises:
        LayoutError: another shape or type, or elements that are not next to each other.
    """
    shape, (rows, cols) = given.shape(sizes), matrix.strides
    dense = {"MN": cols == 1 and not matrix.transposed, "M": rows == 1, "N": cols == 1, "": True}
    if matrix.shape != shape or not dense[str(given.extents)]:
        what = "row-major" if given.extents == "MN" else "contiguous"
        raise LayoutError(
            f"matmul: {given.name} must be {shape}, {what}; got {matrix.shape}, strides "
            f"{matrix.strides}"
        )
    if matrix.dtype != given.dtype:
        raise LayoutError(f"matmul: {given.name} must be {given.dtype}; got {matrix.dtype}")


def given_type(dtype: DType) -> DType:
    """Return the default type of a product of matrices of a type.

    >>> [str(given_type(dtypes.get(each))) for each in ("bf16", "e4m3", "s8")]
    ['bfloat16', 'float32', 'int32']
    """
    return dtypes.get(OUTPUTS.get(dtype.token, (dtype.name,))[0])


def check_sizes(sizes: tuple[int, int, int]) -> None:
    """Refuse an empty product, and one too large for the kernels' indices.

    Args:
        sizes: M, N and K.

    Raises:
        LayoutError: a size is 0, or larger than the largest multiple of 8 below 2**24.

    >>> check_sizes((16, 16, 0))
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: matmul: the size K must lie in 8..16777208; got 0
    """
    for name, size in zip("MNK", sizes, strict=True):
        if not 0 < size <= _LARGEST:
            raise LayoutError(f"matmul: the size {name} must lie in 8..{_LARGEST}; got {size}")


def _factors(alpha: Any, beta: Any, c: Any) -> tuple[float, float]:
    """Return alpha and beta as numbers; 0 for a beta that is left out.

    Raises:
        LayoutError: one is no number, or c is given without beta.
    """
    if beta is None:
        if c is not None:
            raise LayoutError(
                "matmul: c is given without beta: beta=1 adds it, beta=0 leaves it out"
            )
        beta = 0.0
    for name, value in (("alpha", alpha), ("beta", beta)):
        if type(value) is not float and (isinstance(value, bool) or not isinstance(value, Real)):
            raise LayoutError(f"matmul: {name} must be a number, such as 1.0; got {value!r}")
    return float(alpha), float(beta)


def _made_type(dtype: Any, read: DType, given: DType | None) -> DType:
    """Return the type of the result: that of out, or what is asked for, or what is usual.

    Args:
        dtype: asked for, or None.
        read: of a.
        given: of out, or None.

    Raises:
        LayoutError: no result has the type that is asked for, or out has another.
    """
    if dtype is None:
        return given_type(read) if given is None else given
    asked = arrays.taken(dtype, "dtype")
    if given is not None and given != asked:
        raise LayoutError(
            f"matmul: dtype is that of the result, and out is {given}; got {asked}: leave dtype out"
        )
    return asked


def forget_plans() -> None:
    """Forget all plans: tuning has changed the choices."""
    _PLANS.clear()


def matmul(
    a: Any,
    b: Any,
    out: Any = None,
    c: Any = None,
    alpha: float = 1.0,
    beta: float | None = None,
    dtype: Any = None,
    config: Config | None = None,
    stream: Any = None,
    epilogue: Callable[..., Any] | None = None,
    **operands: Any,
) -> Any:
    """Return ``alpha·a@b + beta·c`` of f16 or bf16 matrices, summed in f32, on the GPU.

    On sm_90a also of e4m3 and e5m2, and of s8 and u8, which sum to s32; these are K-major: a with
    contiguous rows, b with contiguous columns.

    With an epilogue, what it makes of the sums: a function of the sums and of ``operands`` by name,
    which returns an expression of the tile language::

        def gelu(x):
            return 0.5 * x * (1 + lw.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

        lw.matmul(a, b, epilogue=lambda acc, bias, residual: gelu(acc + bias) + residual,
                  bias=bias, residual=residual)

    It computes in f32: the sums are f32, and operands of 8 and 16 bits are converted (integers, and
    sums of integers, are s32). The result is rounded to the type of ``out``, once. The function is
    read at each call, in some 0.2 ms of the host, and each new expression is compiled: give what
    changes from call to call as an operand.

    Args:
        a: (M, K), an array of torch, CuPy, NumPy, or any other with ``__cuda_array_interface__`` or
            DLPack. One of its strides is 1, the other a multiple of 8, so that views and transposes
            are taken as they are. NumPy arrays are copied to the device and back.
        b: (K, N), likewise and of the same type.
        out: (M, N), row-major, of the inputs' type or float32 (with an epilogue, float16, bfloat16,
            float32 or int32); made where left out.
        c: (M, N), of the type of ``out``; it may be ``out`` itself. As in BLAS it is not read if
            ``beta`` is 0.
        alpha: a factor.
        beta: a factor, needed where c is given; 0 without it.
        dtype: of ``out``; by default that of the inputs, f32 for fp8, s32 for 8-bit integers.
        config: how the kernel is cut; without it the tuned config, else the default.
        stream: of torch, CuPy, numba or cuda.core, or the handle of one. By default the stream that
            is current for a's device in a's library; for other arrays the one that they name, else
            the default stream. NumPy arrays take that, and the call waits for the result.
        epilogue: a function, in place of c, alpha and beta.
        operands: of the epilogue: arrays of f16, bf16, f32, s32 or 8 bits, (N,) or (1, N) for each
            column, (M, 1) for each row, (M, N), which may be ``out`` itself, or one element; or
            numbers, which become f32.

    Raises:
        LayoutError: shapes or types that do not fit, M, N, K or a pitch that is no multiple of 8,
            an address that is no multiple of 16 bytes, a factor that is no number, c without beta,
            an epilogue that is none of its operands, arrays on several devices, a tensor that
            requires grad, or no CUDA device.

    The kernel runs on the arrays' device, whichever is current; that stays current.

    The error is that of sums in f32: see :func:`lowering.verification.checker.error_bound`.
    """
    alpha, beta = _factors(alpha, beta, c)
    used = _used(epilogue, operands, c, alpha, beta)
    if all(isinstance(value, np.ndarray) for value in (a, b)):
        if stream is not None:
            raise LayoutError(
                "matmul: NumPy arrays take the default stream, and the call waits for it; got "
                f"stream={stream!r}"
            )
        return _on_host(a, b, out, dtype, config, epilogue, used)
    handle = streams.current(a) if stream is None else streams.handle_of(stream)
    left, right = _given(a, "a", handle), _given(b, "b", handle)
    if out is None:
        kind = _made_type(dtype, left.dtype, None)
        out = arrays.empty_like(a, (left.shape[0], right.shape[1]), kind, handle)
    result = _given(out, "out", handle)
    if dtype is not None:
        _made_type(dtype, left.dtype, result.dtype)
    sides = {
        name: float(value) if isinstance(value, Real) else _given(value, name, handle)
        for name, value in used.items()
    }
    multiply(left, right, result, epilogue, sides, config, handle)
    return out


def _used(
    epilogue: Any, operands: Mapping[str, Any], c: Any, alpha: float, beta: float
) -> dict[str, Any]:
    """Return the operands of the epilogue by name; without one, of ``alpha·a@b + beta·c``.

    Raises:
        LayoutError: operands without an epilogue, or an epilogue beside c, alpha or beta; an
            operand that is a truth value.
    """
    if epilogue is None:
        if operands:
            raise LayoutError(
                f"matmul: takes no {', '.join(operands)} without an epilogue, a function of the "
                "sums and of them"
            )
        if beta == 0:
            return {} if alpha == 1 else {"alpha": alpha}
        if c is None:
            raise LayoutError(f"matmul: beta is {beta}, so c must be given")
        return {"alpha": alpha, "beta": beta, "c": c}
    if c is not None or alpha != 1 or beta != 0:
        raise LayoutError(
            "matmul: with an epilogue, c, alpha and beta are operands of other names, such as "
            "epilogue=lambda acc, scale, x: scale * acc + x"
        )
    for name, value in operands.items():
        if value is None or isinstance(value, (bool, np.bool_)):
            raise LayoutError(
                f"matmul: {name} must be an array or a number for the epilogue; got {value!r}"
            )
    return dict(operands)


def multiply(
    left: DeviceMatrix,
    right: DeviceMatrix,
    result: DeviceMatrix,
    epilogue: Callable[..., Any] | None = None,
    operands: Mapping[str, DeviceMatrix | float] | None = None,
    config: Config | None = None,
    stream: int = 0,
) -> None:
    """Launch a product; the arguments are those of :func:`matmul`.

    Args:
        left: a.
        right: b.
        result: out.
        epilogue: a function; without one, ``alpha·a@b + beta·c``.
        operands: of the epilogue; without one, of alpha, beta and c what is used.
        config: of the kernel.
        stream: a handle.

    Raises:
        LayoutError: as :func:`matmul`.
    """
    numbers = {name: each for name, each in (operands or {}).items() if isinstance(each, float)}
    others = {
        name: each for name, each in (operands or {}).items() if isinstance(each, DeviceMatrix)
    }
    fused = None
    if operands or epilogue is not None:
        sizes = result.shape[0], result.shape[-1]
        fused, others = _fused(epilogue, left.dtype, result.dtype, sizes, numbers, others)
    key = (
        left.shape, left.strides, left.dtype.name, left.device,
        right.shape, right.strides, right.dtype.name, right.device,
        result.shape, result.strides, result.dtype.name, result.device,
        fused, config,
        *((each.shape, each.strides, each.dtype.name, each.device) for each in others.values()),
    )  # fmt: skip
    ready = _PLANS.get(key)
    if ready is None:
        if len(_PLANS) >= MOST_PLANS:
            _PLANS.clear()
        ready = _PLANS[key] = plan(left, right, result, fused, others, config)
    for role, matrix in {"a": left, "b": right, **others}.items():
        if not result.overlaps(matrix):
            continue
        if role in ("a", "b") or matrix[:4] != result[:4]:
            raise LayoutError(
                f"matmul: out must share no memory with {role}, which the kernel still reads; got "
                f"{result.pointer:#x} and {matrix.pointer:#x}"
                + (f". {role} may be out itself" if matrix.shape == result.shape else "")
            )
    pointers = [each.pointer for each in (left, right, *others.values(), result)]
    for pointer, matrix in zip(pointers, (left, right, *others.values(), result), strict=True):
        if not pointer:
            raise LayoutError("matmul: a matrix must have memory; got the address 0")
        if pointer % arrays.ALIGNMENT and matrix.shape != (1, 1):
            raise LayoutError(
                f"matmul: a matrix must start at a multiple of {arrays.ALIGNMENT} bytes, as "
                f"vectors do; got the address {pointer:#x}: copy the view"
            )
    scalars = list(ready.scalars)
    for place, number in zip(ready.numbers, numbers.values(), strict=True):
        scalars[place] = number
    before = ready.on.enter()
    try:
        for place, shape, pitch, box in ready.boxes:
            maps = tensor_maps(left.device)
            pointers[place] = maps.address(pointers[place], shape, pitch, box)
        ready.kernel.launch(ready.grid, pointers, scalars, stream)
    finally:
        ready.on.leave(before)


def _fused(
    epilogue: Callable[..., Any] | None,
    read: DType,
    made: DType,
    sizes: tuple[int, int],
    numbers: Mapping[str, float],
    matrices: Mapping[str, DeviceMatrix],
) -> tuple[Fused, dict[str, DeviceMatrix]]:
    """Return what an epilogue computes, and its matrices with two dimensions.

    Args:
        epilogue: a function; without one, that of alpha, beta and c.
        read: the type of a.
        made: the type of out.
        sizes: M and N.
        numbers: of the operands those.
        matrices: likewise.

    Raises:
        LayoutError: as :meth:`Given.of` and :meth:`Fused.of`.
    """
    wide = {}
    for name, each in matrices.items():
        lacking = 2 - len(each.shape)
        wide[name] = each._replace(
            shape=(1,) * lacking + each.shape, strides=(1,) * lacking + each.strides
        )
    if epilogue is None:
        return scaled("c" in matrices, made), wide
    given = [Given(name, dtypes.get("float32")) for name in numbers]
    given += [Given.of(name, each.dtype, each.shape, sizes) for name, each in matrices.items()]
    return Fused.of(epilogue, given, made, sums_of(read).token, sizes), wide


def _given(value: Any, role: str, stream: int) -> DeviceMatrix:
    """Return a caller's matrix on a device, which a stream will read or write.

    Raises:
        LayoutError: it is on the host.
    """
    matrix = arrays.on_device(value, role, stream)
    if matrix is None:
        raise LayoutError(
            f"matmul: {role} must lie on a CUDA device, or a and b both be NumPy arrays; got "
            f"{type(value).__name__} on the host"
        )
    return matrix


def _on_host(
    a: Any,
    b: Any,
    out: Any,
    dtype: Any,
    config: Config | None,
    epilogue: Callable[..., Any] | None,
    operands: Mapping[str, Any],
) -> Any:
    """Multiply NumPy arrays: to device 0 and back."""
    sides = {name: each for name, each in operands.items() if not isinstance(each, Real)}
    for role, matrix in ({"a": a, "b": b, "out": out} | sides).items():
        free = epilogue is not None and role in sides  # in its dimensions
        if matrix is not None and not (
            isinstance(matrix, np.ndarray) and (free or matrix.ndim == 2)
        ):
            got = getattr(matrix, "shape", type(matrix).__name__)
            raise LayoutError(
                f"matmul: {role} must be a NumPy array of two dimensions, as a and b; got {got}"
            )
    if a.shape[1] != b.shape[0] or a.dtype != b.dtype:
        raise LayoutError(
            f"matmul: b must be (K, N) with a's K = {a.shape[1]} and type; a is {a.dtype} "
            f"{a.shape}, b {b.dtype} {b.shape}"
        )
    read = arrays.taken(a.dtype, "a")
    kind = _made_type(dtype, read, None if out is None else arrays.taken(out.dtype, "out"))
    check_sizes((a.shape[0], b.shape[1], a.shape[1]))
    shape = (a.shape[0], b.shape[1])
    if out is not None and (out.shape != shape or not out.flags.writeable):
        raise LayoutError(
            f"matmul: out must be {shape} and writable; got {out.shape}"
            + ("" if out.flags.writeable else ", read-only")
        )
    host = np.empty(shape, kind.numpy) if out is None else out
    numbers = {name: float(each) for name, each in operands.items() if name not in sides}
    if epilogue is not None:  # refused before anything is copied
        placed = {
            name: DeviceMatrix(0, each.shape, each.strides, arrays.taken(each.dtype, name), 0)
            for name, each in sides.items()
        }
        _fused(epilogue, read, kind, shape, numbers, placed)
    with Uploaded() as memory:
        left, right = memory.put(a, "a"), memory.put(b, "b")
        given = {
            name: memory.put(np.ascontiguousarray(np.atleast_2d(each)), name)
            for name, each in sides.items()
        }
        result = memory.put(np.empty(host.shape, kind.numpy), "out")
        multiply(left, right, result, epilogue, {**numbers, **given}, config)
        memory.get(host, result)
    return host


class Uploaded(DeviceMemory):
    """Matrices of the host, copied to device 0 for as long as the ``with`` block runs."""

    def put(self, matrix: Any, role: str) -> DeviceMatrix:
        """Copy a matrix to the device, dense; a transposed one stays transposed.

        Raises:
            LayoutError: no matrix.
        """
        if matrix.ndim != 2:
            raise LayoutError(f"matmul: {role} must have two dimensions; got {matrix.shape}")
        if not matrix.dtype.isnative:
            matrix = matrix.astype(matrix.dtype.newbyteorder("="))
        flip = matrix.strides[0] < matrix.strides[1]
        stored = np.ascontiguousarray(matrix.T if flip else matrix)
        pointer = self.upload(stored)
        strides = (1, stored.shape[1]) if flip else (stored.shape[1], 1)
        return DeviceMatrix(pointer, matrix.shape, strides, dtypes.get(matrix.dtype), 0)

    def get(self, into: Any, matrix: DeviceMatrix) -> None:
        """Copy a dense row-major matrix back."""
        found = np.empty(matrix.shape, matrix.dtype.numpy)
        download(found, matrix.pointer)
        into[...] = found
