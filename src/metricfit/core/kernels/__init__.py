"""Counting kernels and sums over pairs: plain torch, blocks on the CPU, Triton on CUDA devices."""
