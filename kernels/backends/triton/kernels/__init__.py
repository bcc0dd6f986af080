"""Kernels that compute and communicate, one file per flow; the launchers beside this folder call them."""
