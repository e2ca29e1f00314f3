"""On which stream a launch runs: the one that is given, else the current one of the arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from layoutalg import LayoutError

# How the handle of a stream is read, by the attribute that tells whose stream it is: numba,
# cuda.core and CuPy 14, torch, older CuPy.
_HANDLES: Mapping[str, Callable[[Any], Any]] = {
    "__cuda_stream__": lambda stream: stream.__cuda_stream__()[1],
    "cuda_stream": lambda stream: stream.cuda_stream,
    "ptr": lambda stream: stream.ptr,
    "__index__": lambda stream: stream,
}


def library_of(value: Any) -> str:
    """Return the name of the package that an array is of."""
    return type(value).__module__.split(".")[0]


def handle_of(stream: Any) -> int:
    """Return the handle of a stream of torch, CuPy, numba or cuda.core, or the handle itself.

    Raises:
        LayoutError: no stream.

    >>> handle_of(7)
    7
    >>> handle_of("main")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: matmul: stream must be a stream of torch, CuPy, numba or \
cuda.core, or its handle; got 'main'
    """
    read = next((read for name, read in _HANDLES.items() if hasattr(stream, name)), None)
    if read is None or isinstance(stream, bool) or int(read(stream)) < 0:
        raise LayoutError(
            "matmul: stream must be a stream of torch, CuPy, numba or cuda.core, or its handle; "
            f"got {stream!r}"
        )
    return int(read(stream))


def current(value: Any) -> int:
    """Return the stream on which an array is being made, as its library says; else the default.

    torch and CuPy have a current stream for each device; other arrays may name a stream in
    ``__cuda_array_interface__``.
    """
    library = library_of(value)
    if library == "torch":
        if not value.is_cuda:
            return 0
        return int(sys.modules["torch"].cuda.current_stream(value.get_device()).cuda_stream)
    if library == "cupy" and hasattr(value, "device"):
        cuda = sys.modules["cupy"].cuda
        with cuda.Device(value.device.id):
            return int(cuda.get_current_stream().ptr)
    face = getattr(value, "__cuda_array_interface__", {})
    return int(face.get("stream") or 0)


@contextmanager
def allocating(value: Any, stream: int) -> Iterator[None]:
    """Let torch or CuPy allocate on the device of an array, for use on a stream.

    What a pool hands out may still be in use on the stream that it was allocated for.
    """
    cuda = sys.modules[library_of(value)].cuda
    with ExitStack() as stack:
        if library_of(value) == "cupy":
            stack.enter_context(cuda.Device(value.device.id))
            if current(value) != stream:
                stack.enter_context(cuda.ExternalStream(stream))
        elif current(value) != stream:
            stack.enter_context(cuda.stream(cuda.ExternalStream(stream, value.device)))
        yield
