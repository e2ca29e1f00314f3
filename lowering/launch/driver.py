"""The CUDA driver: devices, tensor maps, and kernels that are loaded and launched."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError
from lowering.codegen.compilers import DEFAULT
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.matrices import from_bits, to_bits
from lowering.isa import dtypes
from lowering.isa.gpu_extra import missing
from lowering.launch.arguments import Arguments
from lowering.launch.cache import Compiled, compile_body, kept, key_of

_C_TYPES: dict[str, Any] = {"s32": ctypes.c_int32, "f32": ctypes.c_float}


@cache
def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise missing("launch", "cuda-bindings", error) from None
    return driver


def call(name: str, *arguments: Any) -> Any:
    """Call a function of the CUDA driver; return its result, several as a tuple.

    Raises:
        LayoutError: the driver reports an error.
    """
    driver = _driver()
    status, *results = getattr(driver, name)(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise LayoutError(f"{name}: the CUDA driver says {status.name}")
    return results[0] if len(results) == 1 else tuple(results)


@cache
def device_count() -> int:
    """Return how many CUDA devices there are; 0 without a driver."""
    try:
        call("cuInit", 0)
        return int(call("cuDeviceGetCount"))
    except (LayoutError, RuntimeError):
        return 0


@dataclass(frozen=True)
class Device:
    """A CUDA device: target, multiprocessors, name, shared bytes of a CTA, primary context."""

    index: int
    arch: str
    processors: int
    name: str
    shared_limit: int
    context: Any = field(repr=False)

    def enter(self) -> Any:
        """Make the device's primary context current in this thread; return the one before."""
        before = call("cuCtxGetCurrent")
        if before != self.context:
            call("cuCtxSetCurrent", self.context)
        return before

    def leave(self, before: Any) -> None:
        """Make the context current that was so before :meth:`enter`: torch's current device."""
        if before != self.context:
            call("cuCtxSetCurrent", before)


@cache
def device(index: int) -> Device:
    """Return a device.

    Raises:
        LayoutError: there is none of this number, or the wheels of the extra ``gpu`` are missing.
    """
    _driver()
    if not 0 <= index < device_count():
        raise LayoutError(f"matmul: there is no CUDA device {index}; there are {device_count()}")
    attribute = _driver().CUdevice_attribute
    handle = call("cuDeviceGet", index)
    major, minor, processors, shared = (
        call("cuDeviceGetAttribute", each, handle)
        for each in (
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )
    )
    name = call("cuDeviceGetName", 128, handle).split(b"\0")[0].decode()
    context = call("cuDevicePrimaryCtxRetain", handle)
    return Device(index, f"sm_{major}{minor}", processors, name, shared, context)


def device_of(pointer: int) -> int:
    """Return the number of the device in whose memory an address lies."""
    if device_count() < 2:
        return 0
    what = _driver().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(call("cuPointerGetAttribute", what, pointer))


MAP_BYTES = 128
MOST_MAPS = 1024


class TensorMaps:
    """Tensor maps in a device's memory, by matrix and box: what TMA is told of a matrix."""

    def __init__(self, on: Device) -> None:
        """Allocate memory for the maps on a device."""
        on.enter()
        self._places: dict[tuple[Any, ...], int] = {}
        self._start = int(call("cuMemAlloc", MAP_BYTES * MOST_MAPS))
        self._lock = threading.Lock()

    def address(
        self, pointer: int, shape: tuple[int, int], pitch: int, box: tuple[int, int, int, str]
    ) -> int:
        """Return the device address of the tensor map of a matrix.

        Args:
            pointer: of the matrix, whose rows are contiguous.
            shape: its extents.
            pitch: elements from one row to the next.
            box: rows, columns, bytes of the swizzle, PTX type.

        Raises:
            LayoutError: the driver refuses.
        """
        key = (pointer, shape, pitch, box)
        found = self._places.get(key)
        if found is not None:
            return found
        with self._lock:
            if len(self._places) == MOST_MAPS:  # kernels that read old maps may still run
                call("cuCtxSynchronize")
                self._places.clear()
            place = self._start + MAP_BYTES * len(self._places)
            encoded = encode_map(pointer, shape, pitch, box)
            call("cuMemcpyHtoD", place, encoded.getPtr(), MAP_BYTES)
            self._places[key] = place
        return place


def encode_map(
    pointer: int, shape: tuple[int, int], pitch: int, box: tuple[int, int, int, str]
) -> Any:
    """Return the tensor map of a matrix, on the host; arguments as :meth:`TensorMaps.address`."""
    driver = _driver()
    rows, cols, swizzle, token = box
    wide, narrow = driver.cuuint64_t, driver.cuuint32_t
    names = {"f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32", "s32": "INT32"}
    size = dtypes.get(token).bits // 8
    return call(
        "cuTensorMapEncodeTiled",
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{names.get(token, 'UINT8')}"),
        2,
        pointer,
        [wide(shape[1]), wide(shape[0])],
        [wide(size * pitch)],
        [narrow(cols), narrow(rows)],
        [narrow(1), narrow(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}B"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )


@cache
def tensor_maps(index: int) -> TensorMaps:
    """Return the tensor maps of a device."""
    return TensorMaps(device(index))


def launch_config(made: Compiled) -> Any:
    """Return the launch config of a kernel, grid and stream left open: cluster and PDL.

    Source: CUDA driver API, cuLaunchKernelEx.
    """
    driver = _driver()
    names = driver.CUlaunchAttributeID
    attributes = []
    if made.cluster > 1:
        together = driver.CUlaunchAttribute()
        together.id = names.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        extents = together.value.clusterDim
        extents.x, extents.y, extents.z = made.cluster, 1, 1
        attributes.append(together)
    if made.pdl:
        pdl = driver.CUlaunchAttribute()
        pdl.id = names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        pdl.value.programmaticStreamSerializationAllowed = 1
        attributes.append(pdl)
    config = driver.CUlaunchConfig()
    config.gridDimZ = 1
    config.blockDimX, config.blockDimY, config.blockDimZ = made.threads, 1, 1
    config.sharedMemBytes = made.shared_bytes
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


class Loaded:
    """A kernel on a device, ready to be launched.

    Arguments are written to one block, which the driver copies at each launch.
    """

    def __init__(self, made: Compiled, on: Device) -> None:
        """Load the code and allow as much shared memory as the kernel takes."""
        on.enter()
        self.made, self.on = made, on
        empty: list[Any] = []
        self._library = call("cuLibraryLoadData", made.code, empty, empty, 0, empty, empty, 0)
        (kernel,) = call("cuLibraryEnumerateKernels", 1, self._library)
        driver = _driver()
        self.attributes = {
            name: call(
                "cuKernelGetAttribute",
                getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{key}"),
                kernel,
                call("cuDeviceGet", on.index),
            )
            for name, key in (
                ("registers", "NUM_REGS"), ("local_bytes", "LOCAL_SIZE_BYTES"),
                ("static_shared", "SHARED_SIZE_BYTES"),
            )
        }  # fmt: skip
        call(
            "cuKernelSetAttribute",
            driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            made.shared_bytes,
            kernel,
            call("cuDeviceGet", on.index),
        )
        self._function = driver.CUfunction(int(kernel))
        kinds: list[Any] = [ctypes.c_uint64] * len(made.params)
        kinds += [_C_TYPES[token] for _, token in made.scalars]
        self._values = [kind() for kind in kinds]
        self._block = (ctypes.c_void_p * len(kinds))(*(ctypes.addressof(v) for v in self._values))
        self._address = ctypes.addressof(self._block)
        self._lock = threading.Lock()
        self._config = launch_config(made)
        self._launch = driver.cuLaunchKernelEx

    def launch(
        self,
        grid: tuple[int, int],
        pointers: Sequence[int],
        scalars: Sequence[float],
        stream: int,
    ) -> None:
        """Launch on a stream; returns at once.

        Args:
            grid: extents (bx, by).
            pointers: of the parameters, in order.
            scalars: in order.
            stream: the handle of a CUDA stream.

        Raises:
            LayoutError: the driver refuses.
        """
        with self._lock:
            for slot, value in zip(self._values, (*pointers, *scalars), strict=True):
                slot.value = value
            self._config.gridDimX, self._config.gridDimY = grid
            self._config.hStream = stream
            (status,) = self._launch(self._config, self._function, self._address, 0)
        if status:
            raise LayoutError(
                f"cuLaunchKernel: the CUDA driver says {status.name}; the launch was of {grid} "
                f"CTAs on device {self.on.index} and stream {stream:#x}, which must be one of it"
            )

    def ordered(self, scalars: Mapping[str, float]) -> tuple[float, ...]:
        """Return scalars in the order of the kernel."""
        return tuple(scalars[name] for name, _ in self.made.scalars)


Held = TypeVar("Held", bound="DeviceMemory")


class DeviceMemory:
    """Arrays of the host, copied to device 0 for as long as the ``with`` block runs.

    The device's context is current in the block.
    """

    def __init__(self) -> None:
        """Hold nothing."""
        self._pointers: list[Any] = []

    def __enter__(self: Held) -> Held:
        """Enter the device's context."""
        self._before = device(0).enter()
        return self

    def __exit__(self, *_: object) -> None:
        """Free what was allocated."""
        for pointer in self._pointers:
            call("cuMemFree", pointer)
        device(0).leave(self._before)

    def upload(self, image: npt.NDArray[Any]) -> int:
        """Copy a contiguous array to the device; return its address."""
        pointer = call("cuMemAlloc", max(1, image.nbytes))
        self._pointers.append(pointer)
        call("cuMemcpyHtoD", pointer, image.ctypes.data, image.nbytes)
        return int(pointer)


def download(image: npt.NDArray[Any], pointer: int) -> None:
    """Fill a contiguous array of the host from a device's memory."""
    call("cuMemcpyDtoH", image.ctypes.data, pointer, image.nbytes)


_LOADED: dict[tuple[str, str], Loaded] = {}  # by target and key, on device 0


def _loaded(body: KernelIR, name: str, compiler: str) -> Loaded:
    """Return a body's kernel on device 0, compiled once for each text and kept on disk."""
    on = device(0)
    arch, key = _target(body, on), key_of(body, name, compiler)
    if (arch, key) not in _LOADED:
        made = kept(name, arch, key, lambda: compile_body(body, name, arch, compiler))
        _LOADED[arch, key] = Loaded(made, on)
    return _LOADED[arch, key]


def _target(body: KernelIR, on: Device) -> str:
    """Return the target to compile for: the body's own where it is the device's, suffix aside."""
    return body.arch if body.arch.rstrip("af") == on.arch else on.arch


def run(
    body: KernelIR,
    name: str,
    given: Arguments,
    grid: tuple[int, int] = (1, 1),
    compiler: str = DEFAULT,
) -> dict[str, npt.NDArray[Any]]:
    """Run a body on device 0 and return the parameters that it writes, as matrices.

    Args:
        body: what to run.
        name: of the kernel.
        given: its arguments; what was not given is poisoned.
        grid: CTAs along bx and by.
        compiler: of its kernel, see :func:`lowering.codegen.compilers.machine_code`.

    Raises:
        LayoutError: there is no CUDA device, or its driver refuses; or no such compiler.
        AssembleError: the compiler refuses, or is not installed.
    """
    _driver()
    if not device_count():
        raise LayoutError("run: no CUDA device is available; simulate() runs on the NumPy warp")
    dtypes_of = {buffer.name: buffer.dtype for buffer in body.params}
    images = {each: to_bits(flat, dtypes_of[each]) for each, flat in given.cells.items()}
    with DeviceMemory() as memory:
        kernel = _loaded(body, name, compiler)
        pointers = {each: memory.upload(image) for each, image in images.items()}
        passed = dict(pointers)
        for each, rows, cols, swizzle, token in kernel.made.boxes:
            known, box = given.boxes[each], (rows, cols, swizzle, token)
            place = tensor_maps(0).address(pointers[each], known.extents, known.pitch, box)
            passed[each] = place
        kernel.launch(grid, tuple(passed.values()), kernel.ordered(given.scalars), 0)
        call("cuCtxSynchronize")
        written: dict[str, npt.NDArray[Any]] = {}
        for buffer in body.written:
            image = np.empty_like(images[buffer.name])
            download(image, pointers[buffer.name])
            flat = from_bits(image, buffer.dtype)
            written[buffer.name] = given.matrix(buffer.name, flat)
        return written
