"""Layouts of GPU tensor cores, written once as algebra.

A layout maps a logical tile to machine coordinates on named axes, in the notation of Apache TVM's
TIRx: ``S[(8, 4, 2) : (4 @ laneid, 1 @ laneid, 1)] + R[2 : 4 @ warpid] + 5 @ warpid``.
"""

from layoutalg import fragments
from layoutalg.axis import (
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
from layoutalg.conversion import convert
from layoutalg.errors import LayoutError, Undecided
from layoutalg.formulas import where
from layoutalg.inverse import Inverse
from layoutalg.iters import Iter
from layoutalg.layout import TileLayout, align
from layoutalg.named_layouts import (
    mma_shared_layout,
    tcgen05_atom_layout,
    tmem_datapath_layout,
    tmem_mma_operand_layout,
    tmem_scale_layout,
    trainium_layout,
    wg_local_layout,
)
from layoutalg.parser import parse
from layoutalg.proof import prove
from layoutalg.recipe import Conversion
from layoutalg.spec import R, S
from layoutalg.swizzle import ComposeLayout, SwizzleLayout
from layoutalg.swizzle_choice import SwizzleChoice, choose_swizzle, evaluate_swizzle
from layoutalg.verdict import Certificate, Verdict

__all__ = [
    "Axis", "Bank", "Certificate", "ComposeLayout", "Conversion", "F", "Inverse", "Iter",
    "LayoutError", "P", "R", "S", "SwizzleChoice", "SwizzleLayout", "TCol", "TLane", "TileLayout",
    "Undecided", "Verdict", "align", "bx", "by", "bz", "cbx", "cby", "cbz", "choose_swizzle",
    "convert", "evaluate_swizzle", "fragments", "laneid", "m", "mma_shared_layout", "parse",
    "prove", "tcgen05_atom_layout", "tid_in_wg", "tmem_datapath_layout", "tmem_mma_operand_layout",
    "tmem_scale_layout", "trainium_layout", "tx", "warpid", "wg_local_layout", "wgid", "where",
    "wid_in_wg",
]  # fmt: skip
