"""Commands on real terminals of several widths, all in one process of its own: what each printed, line by line.

`run_on` is called by tests. The process answers measurements from recordings or from a table, never from a clock.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PLACES = [
    {"place": "here", "host": "vm", "cores": 2, "memory_bytes": 25276502016, "torch": "2.13.0+cpu", "gloo": True},
    *({"place": f"vm-rank{rank}", "address": f"tcp://127.0.0.1:{40000 + rank}", "host": "vm", "cores": 2,
       "memory_bytes": 25276502016, "torch": "2.13.0+cpu", "gloo": True} for rank in range(4)),
]  # fmt: skip
WORKERS = [
    {"name": f"vm-rank{rank}", "host": "127.0.0.1", "state": "idle", "client": None, "holder": None, "cores": 2,
     "trouble": "no answer within 5 s" if rank == 2 else None, "address": f"tcp://127.0.0.1:{40000 + rank}"}
    for rank in range(4)
]  # fmt: skip

BENCHMARK = {
    "rows": [
        {"name": "warm gang, world 2, median of 20", "value": 0.0214, "unit": "s", "target": "< 0.1", "met": True,
         "n": 20, "how": "from asking for a trial of no work until the last rank's answer"},
        {"name": "closed form, legality included", "value": 5.05e5, "unit": "points/s", "target": ">= 20000",
         "met": True, "n": 5, "how": "a whole space at once"},
        {"name": "fused / sequential", "value": 0.56, "unit": "ratio", "target": None, "met": None, "n": 15,
         "how": "medians of one sitting"},
    ],
    "summary": {"met": 2, "targets": 2, "failed": [], "stopped": False, "note": "load average 0.7"},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """*words* on a terminal of *columns*; None: into pipes."""

    words: tuple[str, ...]
    columns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What came of a command, styles taken off."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def run_on(commands: Sequence[Command], folder: Path, recording: str | None = None) -> list[Printed]:
    """*commands* one after the other, with the store of *folder*; trials answered by *recording*, or by a table."""
    question = {"commands": [asdict(command) for command in commands], "folder": str(folder), "recording": recording}
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environment |= {"TERM": "xterm-256color", "XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run([sys.executable, "-m", "tests.cli.terminals"], input=json.dumps(question), cwd=ROOT,
                          capture_output=True, text=True, timeout=500, env=environment)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [Printed(**answer) for answer in json.loads(done.stdout)]


# In the process


def main() -> None:
    """Reads what is asked from stdin; the last line of stdout is the answer."""
    question = json.load(sys.stdin)
    folder = Path(question["folder"])
    with pytest.MonkeyPatch.context() as patch:
        _replace(patch, folder, question["recording"])
        answers = [_printed(tuple(each["words"]), each["columns"], folder) for each in question["commands"]]
    print(json.dumps(answers))


def _replace(patch: pytest.MonkeyPatch, folder: Path, recording: str | None) -> None:
    """Machines as shipped; no cluster, nothing is probed, timed or calibrated."""
    from cluster import hosts, launch
    from workbench import machines
    from workbench.analysis import claims
    from workbench.cli import machine, measuring
    from workbench.simulator.cache import study

    for module in ("machines", "machines.presets"):
        patch.setattr(f"workbench.{module}.runs_directory", lambda: folder / "runs")
    cluster = RecordedCluster(recording) if recording else _made_up()

    @contextmanager
    def connected(address: str | None, num_ranks: int, backend: str, *, share_gpu: bool = False) -> Iterator[Any]:
        yield cluster

    patch.setattr(measuring, "connected", connected)
    patch.setattr(launch, "running", lambda: None)
    patch.setattr(launch, "status", lambda address: WORKERS)
    patch.setattr(hosts, "doctor_rows", lambda client: PLACES)
    patch.setattr("workbench.cli.benchmark.benchmark", lambda names, cluster: BENCHMARK)
    patch.setattr(claims, "answers", _computed_once(claims.answers))
    patch.setattr(study, "study", _computed_once(study.study))
    patch.setattr(machine, "_of_ranks", lambda *_: (machines.machine("h200_nvl2"), folder / "h200_nvl2.toml"))


def _computed_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """*function* for commands of several widths: what takes seconds is the same at each, and its lines are not."""
    known: dict[str, Any] = {}

    def once(*arguments: Any) -> Any:
        question = repr([each for each in arguments if not callable(each)])  # without who listens to its progress
        if question not in known:
            known[question] = function(*arguments)
        return known[question]

    return once


def _made_up() -> Any:
    """A cluster of no process, whose times are spread from microseconds to seconds."""
    from tests.workbench.conftest import FakeCluster

    cluster = FakeCluster()
    cluster.seconds = lambda trial: 1.234e-6 * 10 ** (int(trial.key[:6], 16) / 2**24 * 6)
    return cluster


class RecordedCluster:
    """Answers like cluster.client.Cluster what was recorded, sample by sample."""

    def __init__(self, name: str) -> None:
        from workbench.results import recordings

        self._known = {self._question(each.measurement.trial): each for each in recordings.recordings(name)}

    @staticmethod
    def _question(trial: Any) -> tuple[Any, ...]:
        """What is recorded has axes that nobody reads today."""
        from kernels.schemes import axis_rules as reads

        schedule = reads.effective(trial.problem, trial.schedule, trial.backend)
        return trial.problem, schedule, trial.part, trial.protocol.name

    def ranks(self, *_: Any) -> None:
        """Nobody wrote down what they ran on."""

    def stream(self, trials: Sequence[Any], *, world: int, **_: Any) -> Iterator[Any]:
        from kernels import events

        for trial in trials:
            entry = self._known[self._question(trial)]
            for sample in entry.samples:
                yield events.SampleEvent(
                    kind="sample",
                    trial=trial.key,
                    rank=sample.rank,
                    index=sample.index,
                    seconds=sample.seconds,
                    at=sample.at,
                )
            for rank in range(world):
                yield events.ResultEvent(
                    kind="result",
                    trial=trial.key,
                    rank=rank,
                    facts={},
                    spans=[],
                    correct=entry.measurement.correct,
                    max_relative_error=entry.measurement.max_relative_error,
                )


def _printed(words: tuple[str, ...], columns: int | None, folder: Path) -> dict[str, Any]:
    from workbench import cli

    with_store = words[0] in ("run", "predict", "sweep", "recommend", "runs", "compare", "validate", "doctor")
    words = (*words, "--store", str(folder / "store.sqlite")) if with_store else words
    ends = [_Captured(number, columns) for number in (1, 2)]
    try:
        status = cli.status(list(words))
    finally:
        out, err = (end.text() for end in ends)
    return {"status": status, "out": out, "err": err}


class _Captured:
    """A standard stream is a terminal, or a pipe, until its text is asked for."""

    def __init__(self, number: int, columns: int | None) -> None:
        self._number, self._parts = number, [b""]
        self._before = os.dup(number)
        reads, writes = pty.openpty() if columns else os.pipe()
        if columns:
            fcntl.ioctl(writes, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._stream().flush()
        os.dup2(writes, number)
        os.close(writes)
        self._thread = threading.Thread(target=self._read, args=(reads,))
        self._thread.start()

    def _stream(self) -> Any:
        return sys.stdout if self._number == 1 else sys.stderr

    def _read(self, reads: int) -> None:
        try:
            while part := os.read(reads, 65536):
                self._parts.append(part)
        except OSError:  # how a terminal says that nobody writes any more
            pass
        os.close(reads)

    def text(self) -> str:
        self._stream().flush()
        os.dup2(self._before, self._number)
        os.close(self._before)
        self._thread.join(timeout=100)
        return STYLE.sub("", b"".join(self._parts).decode()).replace("\r\n", "\n")


if __name__ == "__main__":
    main()
