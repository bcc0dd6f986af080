"""Pooled embedding lookup straight into the caller's buffer: numba, since ATen's embedding_bag has no `out=`."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]
Bits = NDArray[np.uint16]
Indices = NDArray[np.int64]


@njit(cache=True, fastmath=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _pool_float32(table: Floats, indices: Indices, out: Floats, total: Floats) -> None:
    """out[b, :] = sum over q of table[indices[b, q], :].

    Sums are made in *total*, which is contiguous: where rows of *out* lie apart, a loop over them is not vectorised.
    """
    for b in range(indices.shape[0]):
        for j in range(total.shape[0]):
            total[j] = 0.0
        for q in range(indices.shape[1]):
            row = table[indices[b, q]]
            for j in range(total.shape[0]):
                total[j] += row[j]
        for j in range(total.shape[0]):
            out[b, j] = total[j]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _pool_bfloat16(table: Bits, indices: Indices, out: Bits, total: Floats) -> None:
    """`_pool_float32` on the bits of bfloat16, summed in float32 and rounded to nearest even."""
    bits = total.view(np.uint32)
    for b in range(indices.shape[0]):
        for j in range(out.shape[1]):
            total[j] = 0.0
        for q in range(indices.shape[1]):
            row = indices[b, q]
            for j in range(out.shape[1]):
                total[j] += np.uint32(np.uint32(table[row, j]) << np.uint32(16)).view(np.float32)
        for j in range(out.shape[1]):
            even = (bits[j] >> np.uint32(16)) & np.uint32(1)
            out[b, j] = np.uint16((bits[j] + np.uint32(0x7FFF) + even) >> np.uint32(16))


def pool(table_RD: Tensor, indices_BQ: Tensor, out_BD: Tensor) -> None:
    """Sums the rows of *table_RD* that *indices_BQ* selects into *out_BD*; all on the CPU, one dtype."""
    total_D = np.zeros(out_BD.shape[1], np.float32)
    if table_RD.dtype is torch.float32:
        _pool_float32(table_RD.numpy(), indices_BQ.numpy(), out_BD.numpy(), total_D)
        return
    bits = torch.uint16
    _pool_bfloat16(table_RD.view(bits).numpy(), indices_BQ.numpy(), out_BD.view(bits).numpy(), total_D)


def warm() -> None:
    """Compiles (or loads from numba's cache) both kernels, for whole tables, one table's indices and part of a result.

    Each has two rows: numba compiles by memory layout, and every slice of a single row counts as contiguous.
    """
    for dtype in (torch.float32, torch.bfloat16):
        indices = torch.zeros(2, 2, 2, dtype=torch.int64)
        pool(torch.zeros(2, 2, dtype=dtype), indices[:, 0], torch.zeros(2, 4, dtype=dtype)[:, :2])
