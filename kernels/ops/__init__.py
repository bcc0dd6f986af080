"""The operators as PyTorch operators: `import kernels.ops`, then `torch.ops.workbench.<operator>`.

    torch.ops.workbench.gemm_all_to_all(tokens, expert, group_name, schedule) -> Tensor

The two operands are those of this rank, with the shapes of the operator's `local` (kernels/operators); *group_name* is
the `group_name` of a ProcessGroup of one host's ranks ('' for one rank alone), *schedule* a text such as
`fused tile=128x256x64`. All ranks of a group make the same calls in the same order.

- CUDA tensors run on the current stream, over symmetric memory; CPU tensors a plan executed on CPU ranks over shared
  memory, so that a model runs anywhere. Meta and fake tensors need the group's size only.
- The first call of a shape is collective: it makes symmetric memory and compiles. Later ones only launch, and can be
  captured in CUDA graphs. What a first call made stays until `close`. A graph reads operands where they lay when it
  was captured: copy new values there. `check` names one that lies elsewhere now.
- A server whose batch changes calls `bucket_rows(16, 32, 64, 128)` once. Then GEMM calls of any m run in the smallest
  of these that holds m, and only a bucket's first call is a first call. A row's bits depend on the bucket, not on m.
- The result is a new tensor. `output` leaves out that copy: what it returns lies in symmetric memory and is valid until
  the group's next call. No peer overwrites it before: a call's stores wait for this rank's permission, which its stream
  gives after all work that was enqueued before that call.
- A call without a schedule runs what a table chooses for its operator, sizes, dtype, world and GPU
  (kernels/schemes/auto.py), the same in every run; `fused` with its defaults where the table knows no such GPU.
  `choose_by("measured")` also times two or three candidates at a first call where the table cannot tell, and
  `choose_by("off")` always takes `fused`. `chosen()` lists choices and reasons.
- Schedules are `fused` ones, one kernel that sends what it computes, and `sequential` ones: torch computes, then a
  collective of the library (`sequential collective=library`), of torch, or of our stores.
- Gradients: all operators but `gemv_all_reduce`, which is for decoding. `gemm_all_reduce` follows Megatron's
  convention: all ranks hold the same gradient of its output.
- Where a rank does not come within the timeout of its process group, a `Hang` names it: on CPUs the call itself raises
  it, on GPUs the next call or `check`. After it, all ranks `close`.
- A GPU kernel that waits for peers holds its SMs. Where another process group exists at the first call of a shape, it
  leaves SMs free for one collective of that group on another stream: 32, or the group's `max_ctas`. Its waits end after
  half of the shortest timeout. Lookups need all SMs: a collective belongs on their stream.
"""

from __future__ import annotations

from torch import Tensor

from kernels.backends.base import Hang
from kernels.ops.auto import choose_by, chosen
from kernels.ops.registered import REGISTERED, bucket_rows, call, check, close

__all__ = ["REGISTERED", "Hang", "bucket_rows", "check", "choose_by", "chosen", "close", "output"]


def output(operator: str, first: Tensor, second: Tensor, group_name: str = "", schedule: str = "") -> Tensor:
    """The result of *operator* where the kernel wrote it, without the copy into a new tensor.

    It is valid until the group's next call, on every stream, and has no gradient. Where the kernel writes a result
    straight into new memory (incoming rows, packets), the functional operator returns the same.
    """
    return call(operator, first, second, group_name, schedule)[0]
