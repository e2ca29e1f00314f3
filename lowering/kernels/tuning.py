"""Which config a product takes: the fastest measured on the device, else one by waves of CTAs.

Measured choices are kept in a folder per device, a JSON file per shape class; each is written
whole, so that processes may tune at once. A file that cannot be used is ignored with a warning.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from layoutalg import LayoutError
from lowering.kernels.config import Config, Form
from lowering.launch.cache import cache_folder, sources_digest, write_whole
from lowering.launch.driver import Device

# The configs that a search measures, each with its worth: the rate of a multiprocessor at full load
# on an H200, relative to wgmma with 128x256x64 and no cluster.
CANDIDATES: tuple[tuple[Config, float], ...] = (
    (Config((128, 256, 64), (8, 1), 4, 16, bulk=True, producer=True, wgmma=True), 1.0),
    (Config((128, 256, 64), (8, 1), 4, 8, bulk=True, producer=True, wgmma=True, cluster=2), 1.0),
    (Config((128, 128, 64), (8, 1), 6, 16, bulk=True, producer=True, wgmma=True), 0.9),
    (Config((64, 128, 64), (4, 1), 8, 16, bulk=True, producer=True, wgmma=True), 0.79),
    (Config((128, 64, 64), (8, 1), 8, 16, bulk=True, producer=True, wgmma=True), 0.75),
    (Config((64, 64, 64), (4, 1), 8, 16, bulk=True, producer=True, wgmma=True), 0.5),
    (Config((256, 128, 64), (4, 2), 4, 8, bulk=True, producer=True), 0.7),
    (Config((128, 256, 64), (2, 4), 4, 8, bulk=True, producer=True), 0.69),
    (Config((256, 128, 64), (4, 2), 4, 8, bulk=True), 0.69),
    (Config((128, 128, 64), (2, 2), 3, 8, bulk=True), 0.64),
    (Config((128, 64, 64), (2, 2), 4, 8, bulk=True), 0.56),
    (Config((64, 64, 64), (2, 2), 4, 8, bulk=True), 0.42),
    (Config((128, 256, 64), (2, 4), 4, 8), 0.62),
    (Config((128, 128, 64), (2, 2), 3, 8), 0.57),
    (Config((128, 128, 32), (2, 2), 4, 8), 0.56),
    (Config((64, 64, 64), (2, 2), 4, 8), 0.35),
)


def candidates(form: Form, on: Device) -> tuple[tuple[Config, float], ...]:
    """Return the candidates that run on a device, with their worth."""
    return tuple((config, worth) for config, worth in CANDIDATES if fits(config, form, on))


def fits(config: Config, form: Form, on: Device) -> bool:
    """Return whether a config runs on a device, and has room there."""
    return (
        config.runs_on(on.arch)
        and config.shared_bytes(form) <= on.shared_limit
        and (config.wgmma or form.dtype.bits == 16)
    )


def default(form: Form, sizes: Sequence[int], on: Device) -> Config:
    """Return the config that covers M x N in the least time: waves times tile area over worth.

    Raises:
        LayoutError: no config for this type runs on the device.

    >>> h200 = Device(0, "sm_90", 132, "NVIDIA H200", 227 * 1024, None)
    >>> form = Form("float16")
    >>> [default(form, (n, n, n), h200).tile for n in (8192, 1024, 256)]
    [(128, 256, 64), (64, 128, 64), (64, 64, 64)]
    """

    def time(row: tuple[Config, float]) -> float:
        config, worth = row
        down, across = (-(-n // span) for n, span in zip(sizes[:2], config.span, strict=True))
        waves = -(-down * across // (on.processors // config.cluster))
        return waves * config.tile[0] * config.tile[1] / worth

    found = candidates(form, on)
    if not found:
        raise LayoutError(
            f"matmul: {form.dtype} needs a wgmma config, which sm_90a has; {on.name} is {on.arch}"
        )
    return min(found, key=time)[0]


def shape_class(form: Form, sizes: Sequence[int]) -> str:
    """Return the key under which a choice is kept: the form, and each size by powers of two.

    >>> shape_class(Form("float16"), (4096, 4000, 1000))
    'f16_f16_NN 4096x4096x1024'
    """
    return f"{form} {'x'.join(str(1 << max(0, n - 1).bit_length()) for n in sizes)}"


def _file(on: Device, name: str) -> Path:
    return (
        cache_folder() / f"{on.name}.{on.arch}".replace(" ", "_") / f"{name}.json".replace(" ", "_")
    )


def kept(on: Device, form: Form, sizes: Sequence[int]) -> Config | None:
    """Return the choice that was measured for the shape class on a device, if it runs there."""
    path = _file(on, shape_class(form, sizes))
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if held["sources"] != sources_digest():
            return None
        found = _config(held["config"])
        if not fits(found, form, on):
            raise LayoutError(f"{found} does not run on {on.name}")
        return found
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        warnings.warn(f"layoutalg: {path} is not usable ({error!r}); ignored", stacklevel=2)
        return None


def _config(row: dict[str, object]) -> Config:
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}
    return Config(**values)  # type: ignore[arg-type]


def keep(on: Device, form: Form, sizes: Sequence[int], config: Config) -> None:
    """Keep a choice for the shape class."""
    data = json.dumps({"sources": sources_digest(), "config": asdict(config)}, indent=1)
    write_whole(_file(on, shape_class(form, sizes)), data.encode())


def choice(form: Form, sizes: Sequence[int], on: Device) -> Config:
    """Return what was measured for the shape class on a device, else the default."""
    found = kept(on, form, sizes)
    return default(form, sizes, on) if found is None else found


def search(
    form: Form,
    sizes: Sequence[int],
    on: Device,
    measure: Callable[[Config], float],
    progress: Callable[[Sequence[Config]], Iterable[Config]] = iter,
) -> Config:
    """Measure every candidate on a problem, keep the fastest for its shape class, and return it.

    Args:
        form: of the problem.
        sizes: M, N and K.
        on: the device.
        measure: returns the time of a config; infinity, or an error, where it does not run.
        progress: wraps the sequence of configs, to show a bar.

    Raises:
        LayoutError: no config ran.
    """
    configs = [config for config, _ in candidates(form, on)]
    times: dict[Config, float] = {}
    refused: list[LayoutError] = []
    for config in progress(configs):
        try:
            times[config] = measure(config)
        except LayoutError as error:
            refused.append(error)
    finite = {config: time for config, time in times.items() if math.isfinite(time)}
    if not finite:
        why = f" {len(refused)} were refused, the first so: {refused[0]}" if refused else ""
        raise LayoutError(f"matmul: none of {len(configs)} configs ran; nothing is kept.{why}")
    best = min(finite, key=lambda config: finite[config])
    keep(on, form, sizes, best)
    return best
