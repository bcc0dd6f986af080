"""The operators as PyTorch operators: `import kernels.ops`, then `torch.ops.workbench.<operator>`.

    torch.ops.workbench.gemm_all_to_all(tokens, expert, group_name, schedule) -> Tensor

The two operands are those of this rank, as the operator's file in kernels/operators says under `local`; *group_name* is
the `group_name` of a ProcessGroup of one host's ranks ('' for one rank alone), *schedule* a text such as
`fused tile=128x256x64` ('' for the default). All ranks of a group make the same calls in the same order.

- CUDA tensors run one fused Triton kernel over symmetric memory, on the current stream; CPU tensors a plan executed on
  CPU ranks over shared memory, so that a model runs anywhere. Meta and fake tensors need the group's size only.
- The first call of a shape is collective: it makes symmetric memory and compiles. Later ones only launch, and can be
  captured in CUDA graphs. What a first call made stays until `close`.
- The result is a tensor of its own. `output` leaves out that copy: what it returns lies in symmetric memory and is
  valid until the group's next call. No peer overwrites it before: a call's stores wait for this rank's leave, which its
  stream gives after everything that was put on it before that call.
- Gradients: all operators but `gemv_all_reduce`, which is for decoding. `gemm_all_reduce` follows Megatron's
  convention: all ranks hold the same gradient of its output.
- A rank that does not come within the timeout of its process group is told by a `Hang` with a sentence: on CPUs by the
  call itself, on GPUs by the next call or by `check`. After it, all ranks `close`.
"""

from __future__ import annotations

from torch import Tensor

from kernels.backends.base import Hang
from kernels.ops.registered import REGISTERED, call, check, close

__all__ = ["REGISTERED", "Hang", "check", "close", "output"]


def output(operator: str, first: Tensor, second: Tensor, group_name: str = "", schedule: str = "") -> Tensor:
    """The result of *operator* where it was written, without the copy into a tensor of its own.

    Valid until the group's next call, on every stream; it has no gradient. Where the kernel writes a result straight
    into new memory (rows that come in, packets), this is what the functional operator returns, too.
    """
    return call(operator, first, second, group_name, schedule)[0]
