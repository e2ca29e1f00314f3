"""The notation of this package, as a row of the registry: what ``str`` of a layout writes."""

from __future__ import annotations

from layoutalg.interop.registry import Notation, Options, register
from layoutalg.interop.tvmscript import Readable, from_tvmscript
from layoutalg.layouts.parser import parse


def _read(text: str, _: Options) -> tuple[Readable, None]:
    swizzled = text.strip().startswith("ComposeLayout")  # which TVM writes alike
    return (from_tvmscript if swizzled else parse)(text), None


register(
    Notation("text", "S[(8,2):(4@laneid,1)]", _read, lambda layout, _: str(layout)),
)
