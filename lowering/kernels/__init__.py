"""Whole kernels built from layouts: matmul, its configurations and its benchmark."""
