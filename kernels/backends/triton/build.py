"""Which kernel runs a trial: one line per kind of operator and scheme."""

from __future__ import annotations

from kernels.backends.triton import send
from kernels.backends.triton.context import Context
from kernels.backends.triton.launch import Kernel
from kernels.operators import OPERATORS, Flow
from kernels.reference import Operands


def kernel(context: Context, operands: Operands) -> Kernel:
    """The fused kernel of *context*'s trial."""
    stated = OPERATORS[context.problem.operator]
    if stated.work == "gemm" and stated.flow is not Flow.RECEIVE:
        return send.kernel(context, operands)
    raise NotImplementedError(stated.name)
