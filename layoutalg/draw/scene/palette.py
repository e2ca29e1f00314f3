"""The colours: eight hues that stay apart for every kind of colour vision, four steps in each.

A hue names the 4-lane group (``lane // 4``) or the warp, a step the position in it. The smallest
CAM02-UCS difference of two hues on one step is 13.4 for normal vision, 10.7 for deuteranopia, 10.3
for protanopia and 10.9 for tritanopia; of any two cells of different hues 8.9, 7.1, 7.4 and 6.8.
Steps of one hue differ by 2.7 and more. ``INK`` on any of them has a WCAG contrast of 6.2 and more.
``tests/layoutalg/draw/test_palette.py`` computes all of it again.

Found by simulated annealing on CAM02-UCS (Luo, Cui and Li 2006) with the dichromacy model of
Machado, Oliveira and Fernandes (2009).
"""

from __future__ import annotations

HUES = (
    ("#a8fbea", "#9ef2e0", "#95e8d7", "#8bdfce"),  # aqua
    ("#94c4c3", "#8bbbba", "#83b3b2", "#7baaaa"),  # teal
    ("#e1daff", "#d7d0f5", "#cec7ec", "#c5bee2"),  # lavender
    ("#c7abf2", "#bfa3e9", "#b69ae0", "#ae92d7"),  # purple
    ("#eca377", "#e29b6f", "#d99368", "#d08b61"),  # clay
    ("#fee184", "#f4d77b", "#ebce73", "#e1c56b"),  # straw
    ("#cff7be", "#c5eeb5", "#bce4ac", "#b3dba4"),  # lime
    ("#b1c4a7", "#a8bb9f", "#a0b397", "#98ab8f"),  # sage
)
FILLS = tuple(step for hue in HUES for step in hue)  # hue * 4 + step
WARP_HUES = (0, 4, 3, 5, 1, 2, 6, 7)  # of warps 0, 1, 2 ...: the first few are furthest apart
WAYS = ("#e4f3ec", "#fee184", "#eca377", "#e08461", "#d4684c")  # 1, 2, 3-4, 5-8, 9 or more ways
EMPTY = "#f3f3f3"  # a place that holds nothing, or is not asked for
INK = "#1a1a1a"
NOTE = "#4d4d4d"  # headers and notes, on paper
PAPER = "#ffffff"
