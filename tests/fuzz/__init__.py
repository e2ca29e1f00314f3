"""Whole random kernels: right ones on every machine, and faults planted in them."""
