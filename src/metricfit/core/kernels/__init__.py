"""Kernels: plain torch operations, blocks on the CPU, and Triton programs on a GPU."""
