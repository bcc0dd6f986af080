"""Ranks that one process imports for: `python -m tests.forked MODULE WORLD PIPES ARGUMENTS`, and then a fork for each.

An import of torch takes seconds of a core, and a gang of four would do it four times. Each rank runs MODULE's `main`
with its rank, WORLD and ARGUMENTS, and has pipes of its own for standard input and output.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class ForkedRank:
    """The ends of its pipes that a test holds."""

    pid: int
    stdin: TextIO
    stdout: TextIO


class ForkedRanks:
    """The ranks of one gang, until `ended` or `kill`."""

    def __init__(
        self, module: str, world: int, arguments: Sequence[str], environment: Mapping[str, str],
        options: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """*options*: of Python."""
        pipes = [(os.pipe(), os.pipe()) for _ in range(world)]
        theirs = [(into[0], out[1]) for into, out in pipes]
        command = [sys.executable, *options, "-m", "tests.forked", module, str(world), json.dumps(theirs), *arguments]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=dict(environment), stdout=subprocess.PIPE, text=True, start_new_session=True,
            pass_fds=[end for ends in theirs for end in ends],
        )  # fmt: skip
        for ends in theirs:
            for end in ends:
                os.close(end)
        assert self._process.stdout is not None
        pids = json.loads(self._process.stdout.readline() or "[]")
        assert len(pids) == world, f"{module} was not imported: its traceback is above"
        self.ranks = [ForkedRank(pid, os.fdopen(into[1], "w"), os.fdopen(out[0]))
                      for pid, (into, out) in zip(pids, pipes, strict=True)]  # fmt: skip

    def ended(self, timeout: float) -> None:
        """Ends the ranks' input, and waits until they have ended."""
        for rank in self.ranks:
            rank.stdin.close()
        self._process.wait(timeout)
        self._close()

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for rank in self.ranks:
            rank.stdin.close()
        self._close()

    def _close(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()
        for rank in self.ranks:
            rank.stdout.close()


def run_rank(module: str, arguments: Sequence[str], pipes: Sequence[tuple[int, int]], rank: int) -> None:
    """Runs a rank in this process, which has just been forked."""
    for number, ends in enumerate(pipes):
        for end, standard in zip(ends, (0, 1), strict=True):
            if number == rank:
                os.dup2(end, standard)
            os.close(end)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.argv = [module, str(rank), *arguments]
    importlib.import_module(module).main()
    sys.stdout.flush()


def main() -> None:
    """Imports once, forks a rank for each pair of pipes, says their numbers, and waits for all."""
    module, world, ends, *arguments = sys.argv[1:]
    importlib.import_module(module)
    pids, pipes = [], json.loads(ends)
    for rank in range(int(world)):
        if not (pid := os.fork()):
            run_rank(module, [world, *arguments], pipes, rank)
            return
        pids.append(pid)
    for pair in pipes:
        for end in pair:
            os.close(end)
    print(json.dumps(pids), flush=True)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in pids))


if __name__ == "__main__":
    main()
