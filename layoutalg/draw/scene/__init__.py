"""A picture as data: panels, legends, colours; written as SVG, TikZ or by matplotlib."""
