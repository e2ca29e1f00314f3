"""Pictures of layouts: SVG written directly, PNG and PDF through matplotlib."""

from layoutalg.draw.maps import lane_map, lane_map_scene, lane_map_svg
from layoutalg.draw.triple import operands, operands_scene, operands_svg

__all__ = [
    "lane_map",
    "lane_map_scene",
    "lane_map_svg",
    "operands",
    "operands_scene",
    "operands_svg",
]
