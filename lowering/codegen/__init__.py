"""From operations to text: CUDA C++, numba.cuda with inline PTX, the explorer's data."""
