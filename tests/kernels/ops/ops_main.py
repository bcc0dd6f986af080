"""One rank of a gang that checks the PyTorch operators: names of checks in, what was wrong out.

`python -m tests.kernels.ops.ops_main RANK WORLD PORT DEVICE` reads [check, dtype, arguments] line by line. The argument
`called` is no check's: it is the schedule of its calls, '' for none.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import traceback
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.kernels.ops.ops_checks import BRIEF_SECONDS, CHECKS, Here

CALLED = "called"
"""Among arguments, the schedule of the check's calls where it is not that of `Here`."""
TIMEOUT, BRIEF = timedelta(seconds=40), timedelta(seconds=BRIEF_SECONDS)


def begin(rank: int, world: int, port: str, device: str) -> tuple[str, str, str]:
    """The names of three groups of all ranks; of none where a rank is alone."""
    if device != "cpu":
        torch.cuda.set_device(torch.device(device))
    if world == 1:
        return "", "", ""
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    store = dist.TCPStore("127.0.0.1", int(port), is_master=False)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=TIMEOUT)
    groups = [dist.new_group(timeout=timeout, backend=backend) for timeout in (TIMEOUT, BRIEF)]
    return dist.group.WORLD.group_name, groups[0].group_name, groups[1].group_name


def checks() -> dict[str, Any]:
    """By name; those of GPUs where there is one."""
    if not torch.cuda.is_available():
        return dict(CHECKS)
    from tests.gpu.ops_checks import CHECKS as OF_GPUS

    return {**CHECKS, **OF_GPUS}


def main() -> None:
    rank, world, port, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    faulthandler.register(signal.SIGUSR1)  # from a gang whose patience has ended: where is this rank?
    if os.environ.get("TRITON_INTERPRET") == "1":
        from tests.kernels.backends.triton.quick_interpreter import quicken

        quicken()
    device = f"cuda:{rank}" if kind == "cuda" else kind
    group, other, brief = begin(rank, world, port, device)
    known = checks()
    for line in sys.stdin:
        name, dtype, arguments = json.loads(line)
        called = {"schedule": arguments.pop(CALLED)} if CALLED in arguments else {}
        here = Here(rank, world, group, other, brief, device, dtype, **called)
        wrong, answer = "", None
        try:
            answer = known[name](here, **arguments)
        except BaseException:
            wrong = traceback.format_exc()
        print(json.dumps([wrong, answer]), flush=True)
    os._exit(0)  # process groups may wait for ranks that have gone


if __name__ == "__main__":
    main()
