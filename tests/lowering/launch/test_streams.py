"""The stream and the device of a launch: those of the arrays, whatever is current."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import LayoutError
from lowering.isa import dtypes
from lowering.kernels import api
from lowering.launch import arrays, driver, streams
from lowering.launch.driver import Device
from tests.lowering.kernels.test_matmul import Shown

F16 = dtypes.get("float16")


class Torch:
    """A torch with two devices, whose current streams have handles 100 and 101."""

    def __init__(self) -> None:
        self.entered: list[Any] = []
        self.grad = True
        self.float16, self.float32 = "torch.float16", "torch.float32"
        self.cuda = SimpleNamespace(
            current_stream=lambda index: SimpleNamespace(cuda_stream=100 + index),
            stream=self._stream,
            ExternalStream=lambda handle, device: (handle, device.index),
        )

    def is_grad_enabled(self) -> bool:
        return self.grad

    @contextmanager
    def _stream(self, stream: Any) -> Any:
        self.entered.append(stream)
        yield


class Tensor:
    """A tensor of that torch."""

    __module__ = "torch"
    dtype = "torch.float16"

    def __init__(
        self, shape: tuple[int, int], at: int = 4096, index: int = 1, grad: bool = False
    ) -> None:
        self.shape, self.at, self.index, self.requires_grad = shape, at, index, grad
        self.is_cuda, self.device = index >= 0, SimpleNamespace(index=index)

    def data_ptr(self) -> int:
        return self.at

    def stride(self) -> tuple[int, int]:
        return self.shape[1], 1

    def get_device(self) -> int:
        return self.index

    def new_empty(self, shape: tuple[int, int], dtype: Any) -> Tensor:
        return Tensor(shape, 1 << 20, self.index)


class Launches:
    """Takes the place of a device: records streams, and which context is current at a launch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current, self.seen = "the caller's", []  # type: str, list[tuple[str, int]]
        monkeypatch.setattr(driver, "call", self._call)
        monkeypatch.setattr(api, "_PLANS", {})
        monkeypatch.setattr(api, "device", self._device)
        monkeypatch.setattr(api, "loaded", lambda *key: self)
        factors = ("c", "f32"), ("e", "f32")
        self.made = SimpleNamespace(boxes=(), params=("A", "B", "D"), scalars=factors)

    def _device(self, index: int) -> Device:
        return Device(index, "sm_80", 108, "A100", 163 * 1024, f"context {index}")

    def _call(self, name: str, *arguments: Any) -> Any:
        if name == "cuCtxGetCurrent":
            return self.current
        assert name == "cuCtxSetCurrent"
        (self.current,) = arguments
        return None

    def ordered(self, scalars: dict[str, float]) -> tuple[float, ...]:
        return tuple(scalars.get(name, 0.0) for name, _ in self.made.scalars)

    def launch(self, grid: Any, pointers: Any, scalars: Any, stream: int) -> None:
        self.seen.append((self.current, stream))


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    made = Torch()
    monkeypatch.setitem(sys.modules, "torch", made)  # type: ignore[arg-type]
    return made


def test_torch_launches_on_its_current_stream_of_the_arrays_device(
    torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = Launches(monkeypatch)
    for index in (1, 0):
        out = lw.matmul(Tensor((16, 24), index=index), Tensor((24, 8), index=index))
        assert (out.shape, out.index) == ((16, 8), index)
    assert launches.seen == [("context 1", 101), ("context 0", 100)]
    assert launches.current == "the caller's"
    assert not torch.entered


@pytest.mark.parametrize(
    "stream",
    [
        7,
        np.int64(7),
        SimpleNamespace(cuda_stream=7),
        SimpleNamespace(ptr=7),
        SimpleNamespace(__cuda_stream__=lambda: (0, 7), ptr="not this"),
    ],
)
def test_a_stream_is_taken_as_its_library_gives_it(
    stream: Any, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is made for it is allocated on it: the pool may hand out memory in use elsewhere."""
    launches = Launches(monkeypatch)
    lw.matmul(Tensor((16, 24)), Tensor((24, 8)), stream=stream)
    assert launches.seen == [("context 1", 7)]
    assert torch.entered == [(7, 1)]


@pytest.mark.parametrize("stream", [True, -1, "main", 2.0])
def test_what_is_no_stream(stream: Any, torch: Torch) -> None:
    with pytest.raises(LayoutError, match="stream must be a stream of torch, CuPy, numba or cuda"):
        lw.matmul(Tensor((16, 24)), Tensor((24, 8)), stream=stream)


def test_a_launch_that_fails_gives_the_device_back(
    torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = Launches(monkeypatch)

    def refuse(*_: Any) -> None:
        raise LayoutError("cuLaunchKernel: no")

    monkeypatch.setattr(launches, "launch", refuse)
    with pytest.raises(LayoutError, match="cuLaunchKernel"):
        lw.matmul(Tensor((16, 24)), Tensor((24, 8)))
    assert launches.current == "the caller's"


def test_matrices_lie_on_one_device(torch: Torch) -> None:
    a, b, out = Tensor((16, 24)), Tensor((24, 8), index=0), Tensor((16, 8), index=0)
    with pytest.raises(LayoutError, match="one CUDA device; got a on 1, b on 0, out on 1"):
        lw.matmul(a, b)
    with pytest.raises(LayoutError, match="one CUDA device; got a on 1, b on 1, out on 0"):
        lw.matmul(a, Tensor((24, 8)), out)
    with pytest.raises(LayoutError, match="a must lie on a CUDA device"):
        lw.matmul(Tensor((16, 24), index=-1), Tensor((24, 8), index=-1))


@pytest.mark.parametrize("role", ["a", "b", "out", "c"])
def test_a_tensor_that_requires_grad_is_refused(
    role: str, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = Launches(monkeypatch)
    shapes = {"a": (16, 24), "b": (24, 8), "out": (16, 8), "c": (16, 8)}
    given = {
        name: Tensor(shape, (1 + at) << 16, grad=name == role)
        for at, (name, shape) in enumerate(shapes.items())
    }
    with pytest.raises(LayoutError, match=rf"{role} requires grad, and matmul has no backward"):
        lw.matmul(**given, beta=1.0)
    torch.grad = False
    lw.matmul(**given, beta=1.0)
    assert len(launches.seen) == 1


def test_cupy_has_a_current_stream_for_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0, 50]  # CuPy's current device and stream

    class Switch:
        def __init__(self, place: int, value: int) -> None:
            self.place, self.value = place, value

        def __enter__(self) -> None:
            self.before = now[self.place]
            now[self.place] = self.value

        def __exit__(self, *_: object) -> None:
            now[self.place] = self.before

    cupy = SimpleNamespace(
        cuda=SimpleNamespace(
            Device=lambda index: Switch(0, index),
            ExternalStream=lambda handle: Switch(1, handle),
            get_current_stream=lambda: SimpleNamespace(ptr=now[0] + now[1]),
        ),
        empty=lambda shape, dtype: (shape, dtype, *now),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # type: ignore[arg-type]
    array = type("ndarray", (), {"__module__": "cupy", "device": SimpleNamespace(id=3)})()
    assert streams.current(array) == 53
    assert arrays.empty_like(array, (2, 8), F16, 53) == ((2, 8), "float16", 3, 50)
    assert arrays.empty_like(array, (2, 8), F16, 9) == ((2, 8), "float16", 3, 9)
    assert now == [0, 50]


def test_other_arrays_name_a_stream_or_none() -> None:
    given = Shown("<f2", (16, 24))
    assert streams.current(given) == 0
    for named in (1, 2, 4711, None):
        given.__cuda_array_interface__["stream"] = named
        assert streams.current(given) == (named or 0)


@pytest.mark.parametrize(("stream", "told"), [(0, 1), (7, 7)])
def test_an_array_by_dlpack_is_ready_on_the_stream(stream: int, told: int) -> None:
    """The default stream is 1 there: 0 would not say which default."""
    matrix = np.zeros((8, 8), np.float16)
    asked: list[Any] = []

    class Foreign:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, stream: Any) -> Any:
            asked.append(stream)
            return matrix.__dlpack__()

    assert arrays.on_device(Foreign(), "a", stream) is not None
    assert asked == [told]


def test_the_driver_tells_the_device_of_a_pointer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "device_of", lambda pointer: pointer // 4096)
    found = arrays.on_device(Shown("<f2", (8, 8), at=3 * 4096), "a")
    assert found is not None
    assert found.device == 3


def test_arrays_of_the_host_take_no_stream() -> None:
    a = np.zeros((8, 8), np.float16)
    with pytest.raises(LayoutError, match=r"NumPy arrays take the default stream, .* stream=7"):
        lw.matmul(a, a, stream=7)


@pytest.mark.gpu
@pytest.mark.skipif(driver.device_count() == 0, reason="no CUDA device")
def test_a_stream_of_its_own_on_the_device() -> None:
    """A product on a stream that does not wait for the default one; the context stays current."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((64, 64), (64, 64)))
    with api.Uploaded() as memory:
        left, right, out = (memory.put(x, "x") for x in (a, b, np.zeros_like(a)))
        before = driver.call("cuCtxGetCurrent")
        stream = driver.call("cuStreamCreate", 1)
        api.multiply(left, right, out, stream=int(stream))
        driver.call("cuStreamSynchronize", stream)
        assert driver.call("cuCtxGetCurrent") == before
        found = np.empty_like(a)
        memory.get(found, out)
        driver.call("cuStreamDestroy", stream)
    assert (found == a @ b).all()


TORCHS = """
import torch
import lowering as lw
from layoutalg import LayoutError
a, b = (torch.randn(256, 256, device="cuda", dtype=torch.float16) for _ in range(2))
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    inside = lw.matmul(a, b)
given = lw.matmul(a, b, stream=stream)
stream.synchronize()
assert torch.equal(inside, given)
assert (inside - a @ b).abs().max() < 0.25
try:
    lw.matmul(a.requires_grad_(), b)
except LayoutError as error:
    assert "requires grad" in str(error)
else:
    raise AssertionError("a product without a gradient")
"""


@pytest.mark.gpu
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_torchs_stream_on_the_device() -> None:
    """In a process of its own: on the lent machine torch 2.11 failed to import under pytest."""
    subprocess.run([sys.executable, "-c", TORCHS], check=True)
