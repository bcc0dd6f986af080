"""The cluster as a person keeps it: `workbench cluster up` whenever there is none, `cluster down` when it is to end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from cluster import scheduler_file
from tests.chaos import left

UP_S = 120.0
"""A command about the cluster ends within this time."""
ENDS_S = 50.0
"""After Ctrl-C within this one: twice 20 s are its keeper's."""


class Kept:
    """One cluster of this run's own; commands about it are waited for by `tick`."""

    def __init__(self, folder: Path, num_ranks: int, up_s: float = UP_S) -> None:
        self._folder, self._num_ranks, self._up_s = folder, num_ranks, up_s
        self._orders: deque[str] = deque()
        self._command: subprocess.Popen[bytes] | None = None
        self._order, self._began_at = "", 0.0
        self._number = 0
        self.address: str | None = None
        """Of the scheduler, while there is one."""
        self.wanted = True
        """There is to be a cluster: a new one comes up when the one before is gone."""
        self.troubles: list[str] = []

    def restart(self) -> None:
        """`cluster down`, then `cluster up`."""
        self._orders.append("down")

    def end(self) -> None:
        """`cluster down` for good."""
        self.wanted = False
        self._orders = deque(["down"])

    @property
    def pid(self) -> int | None:
        """Of the command that runs."""
        return self._command.pid if self._command else None

    @property
    def busy(self) -> bool:
        return self._command is not None or bool(self._orders)

    def tick(self) -> None:
        """See what has ended; go on with what is to be done."""
        if self._command is not None:
            self._look()
            return
        if self.address is not None and not left.keepers():
            self.address = None
        if self.wanted and self.address is None and not self._orders:
            self._orders.append("up")
        if self._orders:
            self._begin(self._orders.popleft())

    def _begin(self, order: str) -> None:
        self._order, self._began_at = order, time.monotonic()
        self._number += 1
        words = ["cluster", order, *(["--set", f"num_ranks={self._num_ranks}"] if order == "up" else [])]
        with self._log().open("wb") as log:
            self._command = subprocess.Popen([sys.executable, "-m", "workbench.cli", *words],
                                             stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # fmt: skip
        if order == "down":
            self.address = None

    def _look(self) -> None:
        command = self._command
        assert command is not None
        status, seconds = command.poll(), time.monotonic() - self._began_at
        if status is None and seconds < self._up_s:
            return
        if status is None:
            self._end(command)
            self.troubles.append(f"`workbench cluster {self._order}` did not end within {self._up_s:.0f} s.")
        text = self._log().read_text(errors="replace")
        if "Traceback" in text:
            self.troubles.append(f"`workbench cluster {self._order}` printed a traceback: {text[-600:]}")
        self._command = None
        record = scheduler_file.read()
        if self._order == "up" and status == 0 and record is not None:
            self.address = record.address

    @staticmethod
    def _end(command: subprocess.Popen[bytes]) -> None:
        """By Ctrl-C: a killed `up` would leave the keeper that it waits for."""
        command.send_signal(signal.SIGINT)
        try:
            command.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            command.kill()
            command.wait()

    def _log(self) -> Path:
        return self._folder / f"cluster{self._number}.log"
