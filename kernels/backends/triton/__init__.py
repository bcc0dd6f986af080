"""The triton backend: fused kernels over symmetric memory on NVIDIA GPUs, or interpreted on CPU ranks."""
