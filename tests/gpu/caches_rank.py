"""One process under ncu: launches each kernel of a batch a few times, the profiler on for those launches alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from kernels.backends.base import Seat
from kernels.backends.triton import playground
from kernels.backends.triton.backend import TritonBackend
from kernels.trial import protocol
from tests.gpu.caches_kernels import Row, trial

REPEATS = 5


def main(batch: Path, ended: Path) -> None:
    """Every kernel of the file *batch*, REPEATS profiled launches each, in order.

    *ended* gets the number of each kernel whose launches are over: what fails ends the process behind it.
    """
    playground.take(0, 1)
    backend = TritonBackend(Seat(rank=0, world=1, session="caches", shares_heap=True))
    rows: Sequence[Row] = json.loads(batch.read_text())
    for row in rows:
        launch(backend, row)
        with ended.open("a") as file:
            file.write(f"{row['number']}\n")
        torch.cuda.empty_cache()  # ncu saves all that is allocated before it counts a launch again
    backend.close()


def launch(backend: TritonBackend, row: Row) -> None:
    """The first launch compiles, and is not profiled; the operands of the kernel lie in memory once."""
    (prepared,) = backend.prepare([trial(row, replace(protocol("quick"), cold_l2=False))])
    call = prepared.calls.each[0]
    call()
    torch.cuda.synchronize()
    for _ in range(REPEATS):
        torch.cuda.cudart().cudaProfilerStart()
        call()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
