"""Compiled kernels on a device: arguments, arrays, the driver."""
