"""Does everybody get a fair share? Clients in processes of their own sweep the same cluster at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from workbench.benchmark.rows import Row, Target
from workbench.benchmark.setting import Setting

PATIENCE_S = 90.0
"""Starting a client and ending its last list may take so long beside the sweep; then it is killed."""

END_S = 10.0


def fairness(setting: Setting) -> Iterator[Row]:
    """Most over fewest granted seconds."""
    with ExitStack() as stack:
        lists_s, most_s = setting.effort.lists_s, setting.effort.sweep_s + PATIENCE_S
        clients = [stack.enter_context(Client(setting.cluster.address, list_s, most_s)) for list_s in lists_s]
        names = [client.line() for client in clients]
        before = _granted_s(setting)
        for client in clients:
            client.say(f"{setting.effort.sweep_s}")
        lists = [int(client.line()) for client in clients]
        after = _granted_s(setting)
        shares = [after[name] - before[name] for name in names]
    words = ", ".join(f"{share:.1f} s in {count} lists of {length:g} s"
                      for share, count, length in zip(shares, lists, lists_s, strict=True))  # fmt: skip
    if min(shares) <= 0:
        raise ValueError(f"A client got nothing in {setting.effort.sweep_s:g} s: {words}.")
    how = (
        f"{len(names)} client processes sweep {setting.effort.sweep_s:g} s at world 2: most over fewest granted seconds"
    )
    yield Row(name="fairness", value=max(shares) / min(shares), unit="ratio", target=Target(most=1.5), n=sum(lists),
              how=f"{how} ({words}).")  # fmt: skip


def _granted_s(setting: Setting) -> dict[str, float]:
    seconds: dict[str, float] = setting.cluster.describe()["granted_seconds"]
    return seconds


class Client:
    """A process that runs `workbench.benchmark.sweeping`: it connects, waits for its order, sweeps and reports."""

    def __init__(self, address: str, list_s: float, most_s: float) -> None:
        # it imports what we import, however this process was started
        path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "workbench.benchmark.sweeping", json.dumps({"address": address, "list_s": list_s})],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        self._deadline = threading.Timer(most_s, self._process.kill)
        self._deadline.start()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._deadline.cancel()
        self._process.stdout.close()

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """The next line it says; ValueError when it ended instead."""
        assert self._process.stdout is not None
        text = self._process.stdout.readline().strip()
        if not text:
            raise ValueError("A client of the fairness benchmark did not come to its end; its error stands above.")
        return text
