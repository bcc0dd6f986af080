"""The drawer of runs: what the browser sends changes the store, and a store that fails changes nothing in the list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels.outcome import Measurement
from kernels.trial import Trial
from tests.workbench.conftest import machine, make_trial, measure
from workbench.results import frames, metrics
from workbench.results.store import Store
from workbench.widgets.runs_drawer import DrawerActions, RunsDrawer

__all__ = ["machine", "make_trial", "measure"]


@pytest.fixture
def runs(store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement]) -> list[str]:
    """Two runs of one trial each, the older first."""
    made = []
    for scheme in ("sequential", "fused"):
        run = store.begin_run({}, {}, scheme)
        measured = measure(make_trial(scheme))
        store.add_outcome(run, measured, metrics.row_of(measured, run))
        store.end_run(run)
        made.append(run)
    return made


class Page:
    """What the page would do, written down."""

    def __init__(self, store: Store) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.drawer = RunsDrawer(store, DrawerActions(
            show=lambda ids: self.heard.append(("show", *ids)),
            compare=lambda first, second: self.heard.append(("compare", first, second)),
            report=lambda ids: self.heard.append(("report", *ids)),
            removed=lambda ids: self.heard.append(("removed", *ids)),
        ))  # fmt: skip
        self.list = self.drawer.widget
        self.wanted: list[dict[str, Any]] = []
        self.list.send = lambda content: self.wanted.append(content)

    def says(self, kind: str, buffer: bytes = b"", **content: Any) -> None:
        """A message of the browser, until all that it starts is done."""
        self.drawer._hear(None, {"kind": kind, **content}, [buffer])
        assert self.drawer.wait(100)

    def drops(self, name: str, content: bytes) -> None:
        """A file, which is sent in pieces of 1,000 bytes as they are wanted."""
        self.says("file", name=name, size=len(content))
        while self.wanted:
            start = self.wanted.pop(0)["start"]
            self.says("piece", content[start : start + 1000], name=name, start=start)


@pytest.fixture
def page(store: Store, runs: list[str]) -> Iterator[Page]:
    made = Page(store)
    made.says("refresh")
    yield made
    made.drawer.close()


def test_a_run_has_its_best_its_problem_and_all_that_the_filter_searches(page: Page, runs: list[str]) -> None:
    newest = page.list.runs[0]
    assert [each["run"] for each in page.list.runs] == runs[::-1]
    assert (newest["problem"], newest["best"]) == ("GEMM -> all-to-all, 256 × 128 × 64", "● 1 ms")
    assert newest["schedule"].startswith("fused, ")
    for word in (newest["run"], "gemm_all_to_all", "256", "fused", "measured"):
        assert word in newest["text"]


def test_notes_and_tags_are_stored_and_others_tags_stay(page: Page, store: Store, runs: list[str]) -> None:
    store.annotations.tag(runs[0], ["of another page"])
    page.says("tags", run=runs[0], added=["paper"], removed=[])
    page.says("note", run=runs[0], text="after the update")
    older = page.list.runs[1]
    assert (older["note"], older["tags"]) == ("after the update", ["of another page", "paper"])
    assert "#paper" in older["text"]
    page.says("tags", run=runs[0], added=["a,b"], removed=["paper"])
    assert (page.list.refused, "it has a comma" in page.list.message) == (True, True)
    assert store.run(runs[0])["tags"] == ["of another page", "paper"], "all of a change or nothing"
    page.says("note", run=runs[0], text="")
    assert (page.list.message, page.list.refused, page.list.runs[1]["note"]) == ("", False, "")


def test_ticked_runs_are_shown_compared_reported_deleted_and_brought_back(
    page: Page, store: Store, runs: list[str]
) -> None:
    for kind in ("show", "compare", "report"):
        page.says(kind, runs=runs[::-1])
    assert page.heard == [("show", *runs), ("compare", *runs), ("report", *runs)], "the oldest first"
    page.list.ticked = runs
    page.says("delete", runs=runs[:1])
    assert page.heard[-1] == ("removed", runs[0])
    assert ([each["run"] for each in page.list.runs], page.list.ticked) == (runs[1:], runs[1:])
    assert [each["run"] for each in page.list.deleted] == runs[:1]
    page.says("undo", runs=runs[:1])
    assert ([each["run"] for each in page.list.runs], page.list.deleted) == (runs[::-1], [])


def test_a_dropped_file_becomes_a_ticked_run_or_one_sentence(
    page: Page, store: Store, runs: list[str], tmp_path: Path
) -> None:
    content = frames.export(frames.frame(store.rows(runs[0])), "csv", tmp_path / "run.csv").read_bytes()
    assert len(content) > 1000, "more than one piece"
    page.drops("run.csv", content)
    newest = page.list.runs[0]
    assert (page.list.ticked, newest["best"][0]) == ([newest["run"]], "■")
    assert newest["where"].endswith(", from run.csv")
    page.drops("other.csv", b"a,b\n1,2\n")
    assert (page.list.refused, page.list.message.startswith("other.csv cannot be imported")) == (True, True)
    page.says("file", name="huge.csv", size=2**40)
    assert (page.wanted, "at most 268 MB are read" in page.list.message) == ([], True)
    page.drops("empty.csv", b"")
    assert "it is empty" in page.list.message
    assert len(page.list.runs) == 3


def test_a_file_that_changes_or_ends_early_and_several_files_are_one_sentence(page: Page, runs: list[str]) -> None:
    for kind, more in (("piece", {"start": 0}), ("unread", {"reason": "it is gone"})):
        page.says("file", name="run.csv", size=10)
        assert page.wanted.pop()["start"] == 0
        page.says(kind, name="run.csv", **more)
        assert (page.wanted, page.list.refused) == ([], True)
        assert "run.csv cannot be read to its end" in page.list.message
    page.says("several", count=3)
    assert (page.list.refused, page.list.message[:26]) == (True, "3 files were dropped: 3 > ")
    assert len(page.list.runs) == len(runs)


def test_only_a_change_that_failed_says_that_nothing_was_changed(page: Page, runs: list[str]) -> None:
    page.drawer._list = lambda: 1 // 0  # type: ignore[assignment,method-assign]
    page.says("note", run=runs[0], text="kept")
    assert page.list.message == "This did not work, and the log says why."
    page.drawer._store.annotations.note = None  # type: ignore[assignment,method-assign]
    page.drawer._list = lambda: None  # type: ignore[method-assign]
    page.says("note", run=runs[0], text="lost")
    assert page.list.message == "This did not work, and the log says why. Nothing was changed."


def test_a_store_that_goes_away_leaves_the_list_and_says_so(page: Page, store: Store, runs: list[str]) -> None:
    store.path.unlink()
    page.says("refresh")
    assert (page.list.refused, "is not there any more" in page.list.message) == (True, True)
    page.says("note", run=runs[0], text="lost?")
    assert (page.list.refused, "is not there any more" in page.list.message) == (True, True)
    assert [each["run"] for each in page.list.runs] == runs[::-1]
    page.drops("run.csv", b"a,b\n")
    page.says("delete", runs=runs)
    assert ("removed", *runs) not in page.heard
    assert [each["run"] for each in page.list.runs] == runs[::-1]


def test_an_error_of_ours_is_logged_and_the_next_job_is_done(page: Page, runs: list[str]) -> None:
    page.drawer._store.annotations.undo = None  # type: ignore[assignment,method-assign]
    page.says("undo", runs=runs)
    assert page.list.refused
    page.says("note", run=runs[0], text="still alive")
    assert (page.list.refused, page.list.runs[1]["note"]) == (False, "still alive")
