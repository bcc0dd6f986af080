"""Kernels that several processes compile: Triton keeps them in files, where the process that times finds them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import Any

COMPILERS = 14


def by_processes(compile_each: Callable[[Sequence[Any]], None], wanted: Sequence[Any], most_s: float = 240.0) -> None:
    """Calls *compile_each* with a share of *wanted* in each of COMPILERS processes, which have *most_s* together.

    What they do not compile in time, or cannot, is compiled when it is used, and what is wrong with it shows there.
    """
    begin, context = time.monotonic(), multiprocessing.get_context("spawn")
    queues = [wanted[number::COMPILERS] for number in range(COMPILERS)]
    processes = [context.Process(target=compile_each, args=(queue,), daemon=True) for queue in queues if queue]
    for process in processes:
        process.start()
    for process in processes:
        process.join(max(0.0, begin + most_s - time.monotonic()))
        process.kill()
    print(f"{len(wanted)} kernels compiled in {time.monotonic() - begin:.0f} s", flush=True)
