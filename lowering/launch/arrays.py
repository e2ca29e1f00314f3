"""Arrays of torch, CuPy and NumPy, or with a CUDA array protocol, as matrices on a device."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

import numpy as np

from layoutalg import LayoutError
from lowering.isa import dtypes
from lowering.isa.dtypes import OUTPUTS, DType
from lowering.launch.driver import device_of
from lowering.launch.streams import allocating, library_of

_KINDS = {  # DLPack's (code, bits)
    (2, 16): "float16", (4, 16): "bfloat16", (2, 32): "float32", (0, 8): "int8", (0, 32): "int32",
    (1, 8): "uint8", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2",
}  # fmt: skip
_NAMES = (
    "float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int32",
)  # fmt: skip
_READ = tuple(name for name in _NAMES if dtypes.get(name).token in OUTPUTS)
_MADE = tuple(name for name in _NAMES if any(dtypes.get(name).token in o for o in OUTPUTS.values()))
_TORCH = {f"torch.{name}": name for name in _NAMES}
_CUDA, _LEGACY = 2, 1  # DLPack's device type, and its name of the default stream
_TYPES: dict[Any, DType] = {}
ALIGNMENT = 16  # bytes: of every vector


class DeviceMatrix(NamedTuple):
    """A matrix on a CUDA device: address, shape, strides in elements, type, device number."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: int

    @property
    def transposed(self) -> bool:
        """Whether columns, not rows, are contiguous."""
        return self.strides[1] != 1 and self.strides[0] == 1

    @property
    def pitch(self) -> int:
        """Elements from one stored row to the next; a single row has its own length."""
        inner, outer = (0, 1) if self.transposed else (1, 0)
        return self.strides[outer] if self.shape[outer] > 1 else self.shape[inner]

    def overlaps(self, other: DeviceMatrix) -> bool:
        """Whether the two may share a byte; side-by-side views of one buffer do not.

        >>> f16 = dtypes.get("float16")
        >>> left = DeviceMatrix(0, (16, 8), (32, 1), f16, 0)
        >>> [left.overlaps(DeviceMatrix(at, (16, 8), (32, 1), f16, 0)) for at in (8, 16, 48, 1024)]
        [True, False, False, False]
        """
        (rows, wide, pitch), (count, width, step) = self._bytes(), other._bytes()
        apart = other.pointer - self.pointer
        if apart >= (rows - 1) * pitch + wide or -apart >= (count - 1) * step + width:
            return False
        if pitch != step:
            return True
        column = apart % pitch
        return column < wide or column + width > pitch

    def _bytes(self) -> tuple[int, int, int]:
        """Return stored rows, and the bytes of a row and from one to the next."""
        rows, columns = self.shape[::-1] if self.transposed else self.shape
        size = self.dtype.bits // 8
        return rows, columns * size, self.pitch * size


def check(matrix: DeviceMatrix, role: str) -> None:
    """Refuse a matrix that kernels cannot address.

    Raises:
        LayoutError: not two dimensions, no dimension with stride 1, or rows that overlap.
    """
    if len(matrix.shape) != 2:
        raise LayoutError(f"matmul: {role} must have two dimensions; got the shape {matrix.shape}")
    if 1 not in matrix.strides:
        raise LayoutError(
            f"matmul: the rows or the columns of {role} must be contiguous, one stride 1; got the "
            f"strides {matrix.strides}"
        )
    if matrix.pitch < matrix.shape[0 if matrix.transposed else 1]:
        raise LayoutError(
            f"matmul: the rows of {role} must not overlap; got the strides {matrix.strides}"
        )


def on_device(value: Any, role: str, stream: int = 0) -> DeviceMatrix | None:
    """Return a caller's matrix on a CUDA device; None for one on the host.

    Args:
        value: the caller's.
        role: of the matrix, such as ``a``.
        stream: that will read it. An array that comes by DLPack is ready on it.

    Raises:
        LayoutError: no array, one of another type, or a tensor whose gradient would be missed.
    """
    if hasattr(value, "data_ptr") and hasattr(value, "stride"):  # torch, without its detours
        if not value.is_cuda:
            return None
        if value.requires_grad and sys.modules["torch"].is_grad_enabled():
            raise LayoutError(
                f"matmul: {role} requires grad, and matmul has no backward pass; give "
                f"{role}.detach(), or call it under torch.no_grad()"
            )
        kind = _TYPES.get((value.dtype, role))
        if kind is None:
            kind = _named(_TORCH.get(str(value.dtype)), value.dtype, role)
            _TYPES[value.dtype, role] = kind
        index = value.device.index or 0
        return DeviceMatrix(value.data_ptr(), tuple(value.shape), value.stride(), kind, index)
    if hasattr(value, "__cuda_array_interface__"):
        return _from_interface(value, role)
    if isinstance(value, np.ndarray):
        return None
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        if int(value.__dlpack_device__()[0]) != _CUDA:
            return None
        return from_dlpack(value.__dlpack__(stream=stream or _LEGACY), role)
    raise LayoutError(
        f"matmul: {role} must be an array of torch, CuPy or NumPy, or have "
        f"__cuda_array_interface__ or __dlpack__; got {type(value).__name__}"
    )


def taken(given: Any, role: str) -> DType:
    """Return the element type of a matrix in a role: a and b, a result, or any of an epilogue's.

    Raises:
        LayoutError: matmul takes no such type in this role.

    >>> taken("f16", "a").name, taken(np.dtype("float32"), "out").name
    ('float16', 'float32')
    """
    fits = _READ if role in ("a", "b") else _MADE if role in ("out", "c", "dtype") else _NAMES
    kind: DType | None
    try:
        kind = dtypes.get(given)
    except LayoutError:
        kind = None
    if kind is None or kind.name not in fits:
        raise LayoutError(f"matmul: {role} must be of {', '.join(fits)}; got {given}")
    return kind


def _named(name: str | None, given: Any, role: str) -> DType:
    return taken(given if name is None else name, role)


def _from_interface(value: Any, role: str) -> DeviceMatrix:
    """Read ``__cuda_array_interface__``; a type of 2 bytes without a name is taken for bf16."""
    face = value.__cuda_array_interface__
    names = {"<f2": "float16", "<f4": "float32", "|V2": "bfloat16", "<V2": "bfloat16"}
    names |= {"|i1": "int8", "<i4": "int32"}
    kind = _named(names.get(face["typestr"]), face["typestr"], role)
    shape = tuple(int(extent) for extent in face["shape"])
    size = kind.bits // 8
    if face.get("mask") is not None:
        raise LayoutError(f"matmul: {role} must have no mask")
    if role == "out" and face["data"][1]:
        raise LayoutError("matmul: out must be writable; got a read-only array")
    given = face.get("strides")
    if given is None:
        strides = tuple(int(np.prod(shape[at + 1 :])) for at in range(len(shape)))
    elif any(int(stride) % size for stride in given):
        raise LayoutError(
            f"matmul: strides of {role} must be multiples of its {size} bytes; got {tuple(given)}"
        )
    else:
        strides = tuple(int(stride) // size for stride in given)
    place = getattr(getattr(value, "device", None), "id", None)
    pointer = int(face["data"][0])
    return DeviceMatrix(
        pointer, shape, strides, kind, place if isinstance(place, int) else device_of(pointer)
    )


class _Tensor(ctypes.Structure):
    """``DLTensor`` of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


def from_dlpack(capsule: Any, role: str) -> DeviceMatrix:
    """Read a DLPack capsule, which stays its owner's: the caller keeps the array alive.

    Raises:
        LayoutError: another element type.

    Source: dlpack.h, ``DLManagedTensor`` begins with its ``DLTensor``.
    """
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(read(capsule, b"dltensor"))
    kind = _named(_KINDS.get((tensor.code, tensor.bits)), (tensor.code, tensor.bits), role)
    if tensor.lanes != 1:
        raise LayoutError(f"matmul: {role} must be of scalars; got vectors of {tensor.lanes}")
    shape = tuple(tensor.shape[at] for at in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[at] for at in range(tensor.ndim))
    else:
        strides = tuple(int(np.prod(shape[at + 1 :])) for at in range(len(shape)))
    pointer = (tensor.data or 0) + tensor.byte_offset
    return DeviceMatrix(pointer, shape, strides, kind, tensor.device_id)


def empty_like(value: Any, shape: tuple[int, int], dtype: DType, stream: int) -> Any:
    """Return a new matrix of the library of an array, on its device, for use on a stream.

    Raises:
        LayoutError: the library is another than torch and CuPy.
    """
    library = library_of(value)
    if library == "torch":
        with allocating(value, stream):
            return value.new_empty(shape, dtype=getattr(sys.modules["torch"], dtype.name))
    if library == "cupy" and dtype.name != "bfloat16":
        with allocating(value, stream):
            return sys.modules["cupy"].empty(shape, dtype.name)
    raise LayoutError(
        f"matmul: out= must be given, a {dtype} matrix of shape {shape}: only torch and CuPy "
        f"arrays are made here; got {library}"
    )
