"""Pictures of layouts: SVG and TikZ written directly, PNG and PDF through matplotlib."""

from layoutalg.draw.explorer.jupyter import widget
from layoutalg.draw.explorer.page import fragment_html, frame, layout_html, operands_html
from layoutalg.draw.pictures.bank_map import banks, banks_scene
from layoutalg.draw.pictures.descriptor_map import descriptor, descriptor_scene
from layoutalg.draw.pictures.instruction_map import operands, operands_scene, operands_svg
from layoutalg.draw.pictures.lane_maps import lane_map, lane_map_scene, lane_map_svg
from layoutalg.draw.pictures.matrices import ldmatrix, ldmatrix_scene
from layoutalg.draw.pictures.movement import compare, compare_scene
from layoutalg.draw.pictures.register_table import registers, registers_scene
from layoutalg.draw.pictures.ribbon import derivation, derivation_scene
from layoutalg.draw.pictures.sector_map import coalescing, coalescing_scene
from layoutalg.draw.pictures.tensor_blocks import TensorBuffer
from layoutalg.draw.pictures.tensor_map import tensor_memory, tensor_memory_scene
from layoutalg.draw.pictures.warp_tiles import tiling, tiling_scene
from layoutalg.draw.scene.svg import svg_text
from layoutalg.draw.scene.tikz import tikz_text

__all__ = [
    "TensorBuffer",
    "banks",
    "banks_scene",
    "coalescing",
    "coalescing_scene",
    "compare",
    "compare_scene",
    "derivation",
    "derivation_scene",
    "descriptor",
    "descriptor_scene",
    "fragment_html",
    "frame",
    "lane_map",
    "lane_map_scene",
    "lane_map_svg",
    "layout_html",
    "ldmatrix",
    "ldmatrix_scene",
    "operands",
    "operands_html",
    "operands_scene",
    "operands_svg",
    "registers",
    "registers_scene",
    "svg_text",
    "tensor_memory",
    "tensor_memory_scene",
    "tikz_text",
    "tiling",
    "tiling_scene",
    "widget",
]
