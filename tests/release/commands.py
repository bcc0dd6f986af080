"""The `workbench` command as people use it: started in a folder and a state of its own, waited for, ended for sure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

ROOT = Path(__file__).parents[2]
"""The working tree: `workbench` need not be installed."""
STATE = "XDG_STATE_HOME"
"""The variable by which our processes are known among all others: it names our folder."""
END_S = 20.0
"""After it, what we started is killed."""
POLL_S = 0.05
Thing = TypeVar("Thing")


class Miss(Exception):
    """The workbench did not do what it promises, in one sentence."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one command came to."""

    words: tuple[str, ...]
    status: int
    out: str
    err: str
    seconds: float

    def __str__(self) -> str:
        last = " ".join(self.err.split())[-300:]
        return f"`workbench {' '.join(self.words)}` ended with status {self.status} after {self.seconds:.1f} s: {last}"

    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout; Miss where there is another thing."""
        require(self.out.count("\n") == 1, f"{self} Its stdout has {self.out.count(chr(10))} lines instead of 1.")
        return dict(json.loads(self.out))


class Began:
    """A command that runs, in a session of its own: as in a terminal, Ctrl-C reaches all of it and nothing else."""

    def __init__(self, words: tuple[str, ...], texts: tuple[Path, Path], environment: Mapping[str, str]) -> None:
        """What it prints goes to the files *texts*: a pipe that nobody reads would hold it up."""
        self.words, self.began_at, self._texts = words, time.monotonic(), texts
        with self._texts[0].open("wb") as out, self._texts[1].open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "workbench.cli", *words],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=texts[0].parent, env=dict(environment),
                start_new_session=True,
            )  # fmt: skip

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send it to every process of the command."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def end(self, within_s: float) -> Answer:
        """What it came to; Miss, and it is killed, where it takes longer."""
        try:
            status = self.process.wait(timeout=max(0.1, within_s))
        except subprocess.TimeoutExpired:
            self.kill()
            raise Miss(
                f"`workbench {' '.join(self.words)}` did not end within {within_s:.0f} s: {self._last()}"
            ) from None
        out, err = (path.read_text(errors="replace") for path in self._texts)
        return Answer(self.words, status, out, err, time.monotonic() - self.began_at)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(timeout=END_S)

    def _last(self) -> str:
        return " ".join(self._texts[1].read_text(errors="replace").split())[-300:] or "it printed nothing."


class Commands:
    """Starts commands that find no cluster, store or cache but our own, and none of which outlives *within_s*."""

    def __init__(self, folder: Path, within_s: float) -> None:
        self.folder = folder
        self.gives_up_at = time.monotonic() + within_s
        temporary = folder / "tmp"
        temporary.mkdir()
        # a path that was relative to where we were started means nothing in our folder
        inherited = [str(Path(each).resolve()) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
        self.environment = os.environ | {
            STATE: str(folder / "state"), "XDG_DATA_HOME": str(folder / "data"), "TMPDIR": str(temporary),
            "TRITON_CACHE_DIR": str(folder / "triton"), "PYTHONPATH": os.pathsep.join([str(ROOT), *inherited]),
        }  # fmt: skip
        self._began: list[Began] = []

    def left_s(self, within_s: float) -> float:
        """*within_s*, or what is left of the whole."""
        return min(within_s, self.gives_up_at - time.monotonic())

    def begin(self, *words: str) -> Began:
        """Start a command and do not wait for it."""
        stem = self.folder / f"command-{len(self._began)}"
        self._began.append(Began(words, (stem.with_suffix(".out"), stem.with_suffix(".err")), self.environment))
        return self._began[-1]

    def ask(self, *words: str, within_s: float, status: int | None = 0) -> Answer:
        """Run a command to its end; Miss where its status is another one than *status*, or where it is late."""
        answer = self.begin(*words).end(self.left_s(within_s))
        require(status is None or answer.status == status, f"{answer} Expected: status {status}.")
        return answer

    def wait(self, what: str, within_s: float, done: Callable[[], Thing | None], watched: Began | None = None) -> Thing:
        """What *done* returns once it is neither None nor False; Miss names *what* did not come, or who ended."""
        limit_s = self.left_s(within_s)
        give_up_at = time.monotonic() + limit_s
        while True:
            if (answer := done()) is not None and answer is not False:
                return answer
            if watched is not None and not watched.runs:
                raise Miss(f"{watched.end(END_S)} It ended before {what}.")
            require(time.monotonic() < give_up_at, f"{limit_s:.0f} s passed without {what}.")
            time.sleep(POLL_S)

    def end_all(self) -> None:
        """End what still runs of the commands that were begun."""
        for each in self._began:
            if each.runs:
                each.kill()

    def kill_all(self, within_s: float) -> None:
        """Kill all that lives in our state folder, the stopped ones too; waits *within_s* seconds for their end."""
        self.end_all()
        left = self.processes()
        for each in left:
            with suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(left, timeout=within_s)

    def processes(self) -> list[psutil.Process]:
        """Everything that lives in our state folder: commands, scheduler, workers, ranks."""
        return [each for each in psutil.process_iter() if each.pid != os.getpid() and self._is_ours(each)]

    def _is_ours(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error, OSError):
            is_gone = process.status() == psutil.STATUS_ZOMBIE
            return not is_gone and process.environ().get(STATE) == self.environment[STATE]
        return False


def require(condition: object, sentence: str) -> None:
    """Miss with *sentence* unless *condition* holds."""
    if not condition:
        raise Miss(sentence)
