"""The NumPy warp: runs a kernel without a GPU, and refuses what would race or hang."""
