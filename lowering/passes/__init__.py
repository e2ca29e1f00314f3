"""What the compiler inserts into a kernel: fences, waits, names."""
