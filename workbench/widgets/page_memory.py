"""What the page remembers: a question for each way to begin, a guess for each question, in the store's folder.

A restarted kernel reads it, so that it changes neither the problem nor the ticks of a sweep.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from kernels import files
from kernels.trial import Trial
from workbench.results.files import FileKind, FileTarget
from workbench.widgets.form import FormState

FILE = "explorer.json"
"""Its name, in the store's folder."""
SETTLE_S = 0.4
"""A slider passes many questions: the one that it stays at is written."""
GUESSES_MOST = 500
"""The most guesses that are kept; the oldest is dropped first."""
CLOSING_S = 5.0
_READING = files.TextKind("page's memory", "a question of the explorer", "the file that the explorer writes")
_KIND = FileKind("page's memory", "a question of the explorer", lambda path: "ways" in files.json_value(path, _READING))


def key_of(trial: Trial, link: str) -> str:
    """What a guess is about: problem, schedule, machine, and the *link* as it is in the form, not as resolved."""
    return json.dumps([trial.machine, link, trial.problem.to_json(), trial.schedule.to_json()], sort_keys=True)


class PageMemory:
    """`ways` and `guesses`, read from the folder of the store by `read`, and written soon after `keep`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.way = ""
        """The way to begin that was open last; empty before any was."""
        self.ways: dict[str, FormState] = {}
        """The question of each way to begin that was open."""
        self.guesses: dict[str, str] = {}
        """Guesses as typed, by `key_of`."""
        self.at = 0.0
        """When what was read was written, in seconds since 1970."""
        self.trouble = ""
        """Why it cannot be written, as a sentence; empty while it can."""
        self._news = threading.Condition()
        """Notified when something is to be written, or nothing any more. Never held while writing."""
        self._new_ways: set[str] = set()
        self._new_guesses: set[str] = set()
        """What is not written yet: all else stays as it is in the file, where another kernel may have changed it."""
        self._due: float | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def read(self) -> bool:
        """Takes what was written last, and returns whether there was anything; what is damaged counts as nothing."""
        if (written := self._written()) is None:
            return False
        self.way, self.ways, self.guesses, self.at = written
        return self.way in self.ways

    def _written(self) -> tuple[str, dict[str, FormState], dict[str, str], float] | None:
        """The way, the ways, the guesses and the time in the file; None where it is missing or damaged."""
        try:
            written = files.json_value(self.path, _READING)
            ways = {str(way): FormState.from_json(state) for way, state in written["ways"].items()}
            guesses = {str(key): str(text) for key, text in written["guesses"].items()}
            return str(written["way"]), ways, guesses, float(written["at"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def guess(self, key: str, text: str) -> None:
        """Keeps the guess *text* of the question *key*, and writes everything soon; an empty one is none."""
        text = text if text.strip() else ""
        with self._news:
            before = self.guesses.pop(key, "")
            if text:
                self.guesses[key] = text
            _drop_oldest(self.guesses)
            if before != text:
                self._new_guesses.add(key)
                self._write_soon()

    def keep(self, way: str, state: FormState) -> None:
        """Keeps *state* as the question of *way*, and writes everything soon."""
        with self._news:
            self.way, self.ways[way] = way, state
            self._new_ways.add(way)
            self._write_soon()

    def _write_soon(self) -> None:
        """Has everything written once nothing changes for a while. `_news` is held."""
        if self._closed:
            return
        self._due = time.monotonic() + SETTLE_S
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="workbench page memory", daemon=True)
            self._thread.start()
        self._news.notify_all()

    def close(self) -> None:
        """Writes what is not written yet, in at most CLOSING_S."""
        with self._news:
            self._closed = True
            self._news.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSING_S)

    def _work(self) -> None:
        """Writes whenever nothing has changed for a while; ends when all is written."""
        while True:
            with self._news:
                while self._due is not None and not self._closed and (pause_s := self._due - time.monotonic()) > 0:
                    self._news.wait(pause_s)
                if self._due is None:
                    self._thread = None
                    return
                self._due = None
            self._write()

    def _write(self) -> None:
        with self._news:
            new_ways, self._new_ways = self._new_ways, set()
            new_guesses, self._new_guesses = self._new_guesses, set()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = json.dumps(self._content(new_ways, new_guesses), indent=1).encode()
            FileTarget(self.path, renews=True).write(_KIND, content)
        except (ValueError, OSError) as error:  # a folder that went away: the page goes on without a memory
            with self._news:
                self._new_ways |= new_ways
                self._new_guesses |= new_guesses
            self.trouble = f"A restarted kernel will not know this question: {error}"
        else:
            self.trouble = ""

    def _content(self, new_ways: Set[str], new_guesses: Set[str]) -> Mapping[str, Any]:
        """What the file has, with what is new here; everything that is known here where the file has nothing."""
        written = self._written()
        with self._news:
            way, ways, guesses = self.way, dict(self.ways), dict(self.guesses)
        if written is not None:
            way = way or written[0]
            ways = written[1] | {name: state for name, state in ways.items() if name in new_ways}
            others = {key: text for key, text in written[2].items() if key not in new_guesses}
            guesses = others | {key: text for key, text in guesses.items() if key in new_guesses}
            _drop_oldest(guesses)
        states = {name: state.to_json() for name, state in ways.items()}
        return {"at": time.time(), "way": way, "ways": states, "guesses": guesses}


def _drop_oldest(guesses: dict[str, str]) -> None:
    while len(guesses) > GUESSES_MOST:
        del guesses[next(iter(guesses))]
