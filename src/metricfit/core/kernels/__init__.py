"""Counting kernels, sums over pairs and pointwise losses: plain torch, blocks on the CPU, Triton on CUDA devices."""
