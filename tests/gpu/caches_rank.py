"""One process under ncu: launches each kernel of a batch a few times, the profiler on for those launches alone."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch

from kernels.backends.base import Seat
from kernels.backends.triton import own_gpu
from kernels.backends.triton.backend import TritonBackend
from kernels.fabric import parse
from kernels.protocol import protocol
from kernels.trial import Trial
from tests.gpu.caches_kernels import MACHINE, Row, point

REPEATS = 5


def main(path: Path) -> None:
    """Every kernel of the batch in *path*, REPEATS profiled launches each, in order."""
    own_gpu.take(0, 1)
    backend = TritonBackend(Seat(rank=0, world=1, session="caches", shares_heap=True))
    for row in json.loads(path.read_text()):
        _launch(backend, row)
    backend.close()


def _launch(backend: TritonBackend, row: Row) -> None:
    """The first launch compiles, and is not profiled; the computation alone: nobody is waited for."""
    of, schedule = point(row)
    trial = Trial(problem=of, schedule=schedule, backend="triton", machine=MACHINE, fabric=parse("nvlink"),
                  protocol=replace(protocol("quick"), cold_l2=False), part="compute")  # fmt: skip
    (prepared,) = backend.prepare([trial])
    call = prepared.calls.each[0]
    call()
    torch.cuda.synchronize()
    for _ in range(REPEATS):
        torch.cuda.cudart().cudaProfilerStart()
        call()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
