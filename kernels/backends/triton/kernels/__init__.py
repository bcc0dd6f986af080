"""Triton kernels that compute and communicate, one file per flow, each with the code that prepares its launch."""
