"""Three layers that use the operators, as examples: DLRM's sparse part, a decode linear, an MoE's combine.

Each is an ordinary `torch.nn.Module` that holds this rank's share of the weights and the name of the process group that
shares the rest. `group_name` is `ProcessGroup.group_name`; '' is one rank alone, which holds all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import kernels.ops

assert kernels.ops.REGISTERED, "the import of kernels.ops makes torch.ops.workbench"


class SparseArch(nn.Module):
    """DLRM's embedding tables: this rank looks up its tables for all ranks and gets its samples of all tables.

    The batch is global; every rank passes all samples' indices into its tables. It trains like any layer: the gradient
    goes back to the tables' owners.
    """

    def __init__(self, tables: int, rows: int, dim: int, group_name: str = "") -> None:
        super().__init__()
        self.group_name = group_name
        self.tables = nn.Parameter(torch.empty(tables, rows, dim).uniform_(-1, 1) / rows**0.5)

    def forward(self, indices: Tensor) -> Tensor:
        """*indices* int64 [batch, tables, pooling] -> [batch / world, world * tables, dim], sums over pooling."""
        pooled: Tensor = torch.ops.workbench.embedding_all_to_all(self.tables, indices, self.group_name)
        return pooled.unflatten(1, (-1, self.tables.shape[2]))


class DecodeLinear(nn.Module):
    """A row-parallel linear layer for the few tokens of a decode step: each rank has a share of its inputs.

    It is for inference only, and its weights have no gradient.
    """

    def __init__(self, inputs: int, outputs: int, group_name: str = "") -> None:
        super().__init__()
        self.group_name = group_name
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5, requires_grad=False)

    def forward(self, share: Tensor) -> Tensor:
        """*share* [tokens, inputs]: this rank's share of 1 to 8 tokens -> [tokens, outputs], on all ranks."""
        summed: Tensor = torch.ops.workbench.gemv_all_reduce(self.weight, share.t(), self.group_name)
        return summed.t()


class ExpertCombine(nn.Module):
    """The last GEMM of this rank's expert, whose rows go back to the ranks that their tokens came from."""

    def __init__(self, inputs: int, outputs: int, group_name: str = "") -> None:
        super().__init__()
        self.group_name = group_name
        self.expert = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """*tokens* [m, inputs], m / world of each rank in rank order -> [m, outputs], m / world of each expert."""
        combined: Tensor = torch.ops.workbench.gemm_all_to_all(tokens, self.expert, self.group_name)
        return combined
