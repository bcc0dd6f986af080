"""Kernels that compute and communicate, one file per flow, each with what it is launched with."""
