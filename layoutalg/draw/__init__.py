"""Pictures of layouts: SVG and TikZ written directly, PNG and PDF through matplotlib."""

from layoutalg.draw.explorer.jupyter import widget
from layoutalg.draw.explorer.page import fragment_html, frame, layout_html, operands_html
from layoutalg.draw.pictures.bank_map import banks
from layoutalg.draw.pictures.descriptor_map import descriptor
from layoutalg.draw.pictures.instruction_map import operands
from layoutalg.draw.pictures.lane_maps import lane_map
from layoutalg.draw.pictures.matrices import ldmatrix
from layoutalg.draw.pictures.movement import compare
from layoutalg.draw.pictures.register_table import registers
from layoutalg.draw.pictures.ribbon import derivation
from layoutalg.draw.pictures.sector_map import coalescing
from layoutalg.draw.pictures.tensor_blocks import TensorBuffer
from layoutalg.draw.pictures.tensor_map import tensor_memory
from layoutalg.draw.pictures.warp_tiles import tiling
from layoutalg.draw.scene.svg import svg_text
from layoutalg.draw.scene.tikz import tikz_text

__all__ = [
    "TensorBuffer",
    "banks",
    "coalescing",
    "compare",
    "derivation",
    "descriptor",
    "fragment_html",
    "frame",
    "lane_map",
    "layout_html",
    "ldmatrix",
    "operands",
    "operands_html",
    "registers",
    "svg_text",
    "tensor_memory",
    "tikz_text",
    "tiling",
    "widget",
]
