"""A gang of processes that check the PyTorch operators, with a deadline for every check."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from kernels.backends.triton import nccl

ROOT = Path(__file__).parents[3]


STACKS_S = 1.0
"""Writing a stack takes less."""
SHARED = "cuda:0"
"""The device of ranks that share a GPU, whatever their number."""


class OpsGang:
    """Rank processes that are kept until `close`."""

    def __init__(self, world: int, device: str = "cpu", environment: Mapping[str, str] | None = None) -> None:
        """*device*: `cpu`, `cuda` for a GPU of each rank's own, or SHARED."""
        # it listens where nobody does before ranks are told the port: one that was only looked up may be taken by then
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        command = [sys.executable, "-W", "ignore", "-m", "tests.kernels.ops.ops_main"]
        settings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | dict(environment or {})
        of_ranks = [nccl.of_shared_gpu(rank) if device == SHARED and world > 1 else {} for rank in range(world)]
        self.ranks = [
            subprocess.Popen(
                [*command, str(rank), str(world), str(self._store.port), device], cwd=ROOT,
                env=settings | of_ranks[rank], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
            for rank in range(world)
        ]  # fmt: skip
        self._lines: list[queue.Queue[str]] = [queue.Queue() for _ in self.ranks]
        each = zip(self.ranks, self._lines, strict=True)
        self._threads = [threading.Thread(target=_follow, args=both, daemon=True) for both in each]
        for thread in self._threads:
            thread.start()

    def check(self, name: str, dtype: str = "float32", *, deadline_s: float = 250.0, **arguments: Any) -> list[Any]:
        """All ranks make check *name* and answer; raises AssertionError with what was wrong, and where."""
        for rank in self.ranks:
            assert rank.stdin
            rank.stdin.write(json.dumps([name, dtype, arguments]) + "\n")
            rank.stdin.flush()
        until, told = time.monotonic() + deadline_s, []
        for lines in self._lines:
            try:
                line = lines.get(timeout=max(0.1, until - time.monotonic()))
                told.append(json.loads(line) if line else ["it died: its traceback is above", None])
            except queue.Empty:
                told.append([f"it said nothing for {deadline_s:g} s; its stack is above", None])
                self._show_stacks()
                self.close()
        failed = [f"rank {number}: {wrong}" for number, (wrong, _) in enumerate(told) if wrong]
        assert not failed, "\n".join(failed)
        return [answer for _, answer in told]

    def _show_stacks(self) -> None:
        """Every rank that is left writes where it is, to standard error."""
        for rank in self.ranks:
            if rank.poll() is None:
                rank.send_signal(signal.SIGUSR1)
        time.sleep(STACKS_S)

    def close(self) -> None:
        for rank in self.ranks:
            assert rank.stdin
            rank.kill()
            rank.wait(timeout=60)
            rank.stdin.close()
        for thread in self._threads:
            thread.join(timeout=60)


def _follow(rank: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert rank.stdout
    for line in rank.stdout:
        lines.put(line)
    lines.put("")
    rank.stdout.close()
