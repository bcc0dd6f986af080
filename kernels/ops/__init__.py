"""The operators as PyTorch operators: `import kernels.ops`, then `torch.ops.workbench.<operator>`.

    torch.ops.workbench.gemm_all_to_all(tokens, expert, group_name, schedule) -> Tensor

The two operands are those of this rank, with the shapes of the operator's `local` (kernels/operators); *group_name* is
the `group_name` of a ProcessGroup of one host's ranks ('' for one rank alone), *schedule* a text such as
`fused tile=128x256x64` ('' for the default). All ranks of a group make the same calls in the same order.

- CUDA tensors run one fused Triton kernel over symmetric memory, on the current stream; CPU tensors a plan executed on
  CPU ranks over shared memory, so that a model runs anywhere. Meta and fake tensors need the group's size only.
- The first call of a shape is collective: it makes symmetric memory and compiles. Later ones only launch, and can be
  captured in CUDA graphs. What a first call made stays until `close`.
- The result is a new tensor. `output` leaves out that copy: what it returns lies in symmetric memory and is valid until
  the group's next call. No peer overwrites it before: a call's stores wait for this rank's permission, which its stream
  gives after all work that was enqueued before that call.
- Gradients: all operators but `gemv_all_reduce`, which is for decoding. `gemm_all_reduce` follows Megatron's
  convention: all ranks hold the same gradient of its output.
- Where a rank does not come within the timeout of its process group, a `Hang` names it: on CPUs the call itself raises
  it, on GPUs the next call or `check`. After it, all ranks `close`.
"""

from __future__ import annotations

from torch import Tensor

from kernels.backends.base import Hang
from kernels.ops.registered import REGISTERED, call, check, close

__all__ = ["REGISTERED", "Hang", "check", "close", "output"]


def output(operator: str, first: Tensor, second: Tensor, group_name: str = "", schedule: str = "") -> Tensor:
    """The result of *operator* where the kernel wrote it, without the copy into a new tensor.

    It is valid until the group's next call, on every stream, and has no gradient. Where the kernel writes a result
    straight into new memory (incoming rows, packets), the functional operator returns the same.
    """
    return call(operator, first, second, group_name, schedule)[0]
