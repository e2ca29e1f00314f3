"""Programs against float64: on a GPU, or on the NumPy warp."""
