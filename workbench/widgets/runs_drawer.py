"""The drawer of all stored runs: notes, tags, ticks for what shows several, deletion with undo, and imports.

The browser filters and edits, a thread of the drawer's own reads and writes the store. A store that fails leaves the
last list as it was, with one sentence above it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kernels.units import num_text, seconds_text
from workbench import machines
from workbench.naming import SIGNS, operator_title, schedule_title, value_title
from workbench.results.imports import BYTES_MOST, import_run, too_large
from workbench.results.rows import Row
from workbench.results.runs import Bests, summaries
from workbench.results.store import IMPORTED, Store

LISTED_MOST = 1_000
"""The most runs that are listed, the newest; the filter is about those."""
FAILED = "This did not work, and the log says why."
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawerActions:
    """What the page does with ticked runs; each gets ids, the oldest run first."""

    show: Callable[[Sequence[str]], Any]
    """All of them in one chart."""
    compare: Callable[[str, str], Any]
    report: Callable[[Sequence[str]], Any]
    removed: Callable[[Sequence[str]], Any] = lambda ids: None
    """They were deleted: whoever shows them may stop."""
    restored: Callable[[Sequence[str]], Any] = lambda ids: None
    """They are back: whoever showed them may go on."""


class RunsList(anywidget.AnyWidget):
    """The list in the browser."""

    _esm = Path(__file__).parent / "runs_drawer.js"
    _css = Path(__file__).parent / "runs_drawer.css"
    runs: traitlets.List[Any] = traitlets.List().tag(sync=True)
    num_stored = traitlets.Int(0).tag(sync=True)
    deleted: traitlets.List[Any] = traitlets.List().tag(sync=True)
    ticked: traitlets.List[str] = traitlets.List().tag(sync=True)
    shown: traitlets.List[str] = traitlets.List().tag(sync=True)
    """The runs that the page shows; they are marked."""
    message = traitlets.Unicode("").tag(sync=True)
    refused = traitlets.Bool(False).tag(sync=True)
    """Whether the message is a refusal."""


class RunsDrawer:
    """The drawer `widget`. It reads the store when it becomes visible, after each change, and at `refresh`."""

    def __init__(self, store: Store, actions: DrawerActions) -> None:
        self._store, self._actions = store, actions
        self.widget = RunsList()
        self.widget.on_msg(self._hear)
        self._jobs: queue.Queue[Callable[[], Any] | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._upload: _Upload | None = None
        self._kept: dict[str, Bests] = {}

    def refresh(self) -> None:
        """Lists the runs anew, soon."""
        self._later(self._list)

    def mark(self, runs: Sequence[str]) -> None:
        """Marks the *runs* that the page shows."""
        self.widget.shown = list(runs)

    def close(self) -> None:
        """Ends the thread after what it does now."""
        self._jobs.put(None)

    def wait(self, seconds: float) -> bool:
        """Waits at most *seconds* until all is done, and returns whether it is; for tests and scripts."""
        until = time.monotonic() + seconds
        while self._jobs.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.005)
        return not self._jobs.unfinished_tasks

    # Jobs: everything that reads or writes the store, one after the other.

    def _later(self, job: Callable[[], Any]) -> None:
        self._jobs.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="workbench runs drawer", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except ValueError as refused:
                self._say(str(refused), refused=True)
            except Exception:
                _LOG.exception("The drawer of runs could not do what it was to do.")
                self._say(FAILED, refused=True)
            finally:
                self._jobs.task_done()
        self._jobs.task_done()

    def _say(self, message: str, *, refused: bool = False) -> None:
        with self.widget.hold_sync():
            self.widget.message, self.widget.refused = message, refused

    def _list(self) -> None:
        self._store.refuse_absence()
        records = [record(summary) for summary in summaries(self._store, LISTED_MOST, self._kept)]
        deleted = [{"run": run, "day": day} for run, day in self._store.annotations.deleted().items()]
        known = {each["run"] for each in records}
        with self.widget.hold_sync():
            self.widget.num_stored = self._store.num_runs()
            self.widget.runs, self.widget.deleted = records, deleted
            self.widget.ticked = [run for run in self.widget.ticked if run in known]

    # What a person does in the browser.

    def _hear(self, _: Any, content: Mapping[str, Any], buffers: Sequence[Any]) -> None:
        match content:
            case {"kind": "refresh"}:
                self.refresh()
            case {"kind": "note", "run": str(run), "text": str(text)}:
                self._later(lambda: self._change(lambda: self._store.annotations.note(run, text)))
            case {"kind": "tags", "run": str(run), "added": list(added), "removed": list(removed)}:
                self._later(lambda: self._change(lambda: self._store.annotations.tag(run, added, removed)))
            case {"kind": "delete", "runs": [*runs]}:
                self._later(lambda: self._change(lambda: self._delete(self._listed(runs))))
            case {"kind": "undo", "runs": [*runs]}:
                self._later(lambda: self._change(lambda: self._undo(map(str, runs))))
            case {"kind": "show" | "compare" | "report" as kind, "runs": [*runs]}:
                self._act(kind, self._listed(runs))
            case {"kind": "file", "name": str(name), "size": int(size)}:
                self._begin(name, size)
            case {"kind": "piece", "name": str(name), "start": int(start)}:
                self._take(name, start, bytes(buffers[0]) if buffers else b"")
            case {"kind": "unread", "name": str(name), "reason": str(reason)}:
                self._give_up(name, reason)
            case {"kind": "several", "count": int(count)}:
                self._say(f"{count} files were dropped: {count} > 1. None of them was read. Accepted: one file at a "
                          "time.", refused=True)  # fmt: skip

    def _listed(self, runs: Sequence[Any]) -> list[str]:
        """Those of *runs* that are listed, the oldest first."""
        return [each["run"] for each in reversed(self.widget.runs) if each["run"] in runs]

    def _act(self, kind: str, runs: Sequence[str]) -> None:
        if kind == "compare" and len(runs) == 2:
            self._actions.compare(*runs)
        elif kind == "show":
            self._actions.show(runs)
        elif kind == "report":
            self._actions.report(runs)

    def _change(self, change: Callable[[], Any]) -> None:
        """Does *change*, then lists the runs, even where it was refused."""
        try:
            change()
        except ValueError as refused:
            self._say(str(refused), refused=True)
        except Exception:
            _LOG.exception("The drawer of runs could not change what it was to change.")
            self._say(f"{FAILED} Nothing was changed.", refused=True)
        else:
            self._say("")
        self._list()

    def _delete(self, runs: Sequence[str]) -> None:
        deleted = []
        try:
            for run in runs:
                self._store.annotations.delete(run)
                deleted.append(run)
        finally:
            if deleted:
                self._actions.removed(deleted)

    def _undo(self, runs: Iterable[str]) -> None:
        for run in runs:
            self._store.annotations.undo(run)
            self._actions.restored([run])

    # Files, which come in pieces: the browser sends the next one when it is asked.

    def _begin(self, name: str, size: int) -> None:
        if size > BYTES_MOST:
            self._say(str(too_large(name, size)), refused=True)
            return
        self._upload = _Upload(name, size)
        self._say(f"{name} is read …")
        self._go_on(self._upload)

    def _take(self, name: str, start: int, piece: bytes) -> None:
        upload = self._upload
        if upload is None or (name, start) != (upload.name, len(upload.content)):
            return
        if not piece:
            self._give_up(name, f"it has {len(upload.content):,} of {upload.size:,} bytes")
            return
        upload.content += piece
        self._go_on(upload)

    def _give_up(self, name: str, reason: str) -> None:
        """Ends the upload of the file *name*, and says why."""
        if self._upload is not None and self._upload.name == name:
            self._upload = None
            self._say(f"{name} cannot be read to its end: {reason.rstrip('.')}. It may have changed. Nothing was "
                      "stored. Accepted: the file, chosen again.", refused=True)  # fmt: skip

    def _go_on(self, upload: _Upload) -> None:
        if len(upload.content) < upload.size:
            self.widget.send({"kind": "want", "name": upload.name, "start": len(upload.content)})
            return
        self._upload = None
        self._later(lambda: self._import(upload.name, bytes(upload.content)))

    def _import(self, name: str, content: bytes) -> None:
        run = import_run(self._store, name, content, machines.known, self._say)
        self._list()
        self.widget.ticked = [run.id]
        already = "" if run.is_new else " already"
        self._say(f"{name} is run {run.id}{already}, which is ticked. None of it was measured here.")


@dataclass(slots=True)
class _Upload:
    """A file that comes in pieces."""

    name: str
    size: int
    content: bytearray = field(default_factory=bytearray)


def record(summary: Row) -> dict[str, Any]:
    """The texts of one run as the browser shows and filters them; *summary* is one of `results.runs.summaries`."""
    problems = summary["problems"]
    tried = num_text(summary["schedules"], "schedule")
    one = problems[0] if len(problems) == 1 else None
    status = "" if summary["status"] == "finished" else f", {summary['status']:.80}"
    origin = f", from {summary[IMPORTED]}" if summary[IMPORTED] else ""
    texts = {
        "best": "" if one is None else f"{SIGNS[one['source']]} {seconds_text(one['best_s'])}",
        "schedule": "" if one is None else schedule_title(one["scheme"], one["axes"]),
        "problem": summary["title"] if not problems else _problem_text(problems),
        "where": f"{'' if one is None else _where(one)}{tried}{origin}{status}",
        "date": datetime.fromtimestamp(summary["started_at"]).isoformat(" ", "minutes"),
    }
    tags = list(summary["tags"])
    searched = [summary["run"], summary["title"], summary["note"], *texts.values(), *(f"#{tag}" for tag in tags),
                *(f"{each['operator']} {each['scheme']} {each['source']}" for each in problems)]  # fmt: skip
    return {"run": summary["run"], **texts, "note": summary["note"], "tags": tags, "text": "\n".join(searched).lower()}


def _problem_text(problems: Sequence[Row]) -> str:
    operators = ", ".join(dict.fromkeys(operator_title(each["operator"]) for each in problems))
    if len(problems) > 1:
        return f"{len(problems)} problems of {operators}"
    sizes = [str(value) for value in problems[0]["shape"].values()]
    return f"{operators}, {' × '.join(map(value_title, sizes))}"


def _where(problem: Row) -> str:
    return f"{problem['dtype']}, {num_text(problem['world'], 'rank')}, {problem['machine']}, "
