"""Other notations for layouts: CuTe, Triton, TVMScript, JSON and LaTeX, each both ways.

What the other notation cannot say is refused, with the reason. Nothing here is imported by
``import layoutalg``. Each file of the folder is loaded here, so that the registry has its notation.
"""

from importlib import import_module
from pkgutil import iter_modules

from layoutalg.interop.cute import CuteLayout, coalesce
from layoutalg.interop.cute_algebra import (
    complement,
    compose,
    left_inverse,
    logical_divide,
    right_inverse,
)
from layoutalg.interop.cute_maps import from_cute, to_cute
from layoutalg.interop.cute_swizzle import CuteComposed, CuteSwizzle, parse_cute, parse_swizzle
from layoutalg.interop.json_form import decode, encode, from_json, to_json
from layoutalg.interop.latex_form import from_latex, to_latex
from layoutalg.interop.registry import NOTATIONS, Notation, Reading, read, register, write
from layoutalg.interop.triton import LinearLayout, from_triton, to_triton
from layoutalg.interop.tv import from_tv, to_tv
from layoutalg.interop.tvmscript import from_tvmscript, to_tvmscript

__all__ = [
    "NOTATIONS", "CuteComposed", "CuteLayout", "CuteSwizzle", "LinearLayout", "Notation",
    "Reading", "coalesce", "complement", "compose", "decode", "encode", "from_cute", "from_json",
    "from_latex", "from_triton", "from_tv", "from_tvmscript", "left_inverse", "logical_divide",
    "parse_cute", "parse_swizzle", "read", "register", "right_inverse", "to_cute", "to_json",
    "to_latex", "to_triton", "to_tv", "to_tvmscript", "write",
]  # fmt: skip

for _file in iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")
