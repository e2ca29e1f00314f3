"""Layouts of GPU tensor cores, written once as algebra.

A layout maps a logical tile to machine coordinates on named axes, in the notation of Apache TVM's
TIRx: ``S[(8, 4, 2) : (4 @ laneid, 1 @ laneid, 1)] + R[2 : 4 @ warpid] + 5 @ warpid``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from layoutalg import fragments
from layoutalg.algebra.axis import (
    Axis,
    Bank,
    F,
    P,
    TCol,
    TLane,
    bx,
    by,
    bz,
    cbx,
    cby,
    cbz,
    laneid,
    m,
    tid_in_wg,
    tx,
    warpid,
    wgid,
    wid_in_wg,
)
from layoutalg.algebra.inversion import Inverse
from layoutalg.algebra.iters import Iter
from layoutalg.conversions.conversion import convert
from layoutalg.conversions.recipe import Conversion
from layoutalg.errors import LayoutError, Undecided
from layoutalg.layouts.hardware import (
    mma_shared_layout,
    tcgen05_atom_layout,
    tmem_datapath_layout,
    tmem_mma_operand_layout,
    tmem_scale_layout,
    trainium_layout,
    wg_local_layout,
)
from layoutalg.layouts.parser import parse
from layoutalg.layouts.spec import R, S
from layoutalg.layouts.swizzle import ComposeLayout, SwizzleLayout
from layoutalg.layouts.tile_layout import TileLayout, align
from layoutalg.memory.swizzle_search import SwizzleChoice, choose_swizzle, evaluate_swizzle
from layoutalg.proofs.equivalence import prove
from layoutalg.proofs.formulas import where
from layoutalg.proofs.verdict import Certificate, Verdict

if TYPE_CHECKING:
    from layoutalg import draw as draw
    from layoutalg import interop as interop

__all__ = [
    "Axis", "Bank", "Certificate", "ComposeLayout", "Conversion", "F", "Inverse", "Iter",
    "LayoutError", "P", "R", "S", "SwizzleChoice", "SwizzleLayout", "TCol", "TLane", "TileLayout",
    "Undecided", "Verdict", "align", "bx", "by", "bz", "cbx", "cby", "cbz", "choose_swizzle",
    "convert", "evaluate_swizzle", "fragments", "laneid", "m", "mma_shared_layout", "parse",
    "prove", "tcgen05_atom_layout", "tid_in_wg", "tmem_datapath_layout", "tmem_mma_operand_layout",
    "tmem_scale_layout", "trainium_layout", "tx", "warpid", "wg_local_layout", "wgid", "where",
    "wid_in_wg",
]  # fmt: skip

_LAZY = ("draw", "interop")  # packages that are loaded when they are first named

if not TYPE_CHECKING:  # a checker would take any name for one that this gives

    def __getattr__(name: str) -> Any:
        """Load a package of this one."""
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")

    def __dir__() -> list[str]:
        """List the public names, loaded or not."""
        return sorted((*__all__, *_LAZY))
