"""Triton programs for CUDA devices, under the names of the plain and CPU versions one folder up."""
