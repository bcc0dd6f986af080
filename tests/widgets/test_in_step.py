"""Form, results and recordings go together: what was about another question goes, one thing is said once."""

from __future__ import annotations

import html
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.trial import Trial
from tests.widgets.conftest import FakeLab, eventually, headings, run
from tests.widgets.conftest import row as conftest_row
from workbench import resources
from workbench.charts import sweep, trials, waterfall
from workbench.results.store import Store
from workbench.widgets.explorer_page import Explorer
from workbench.widgets.live_chart import Click
from workbench.widgets.panels import ALONG, LOSSES, TRIALS, Row

# Form and results go together: what was about another question goes, and what a click changes is said.

MakeExplorer = Callable[..., Explorer]


@pytest.mark.slow
def test_another_operator_clears_what_belongs_to_the_question_before(explorer: Explorer) -> None:
    explorer.page.guess.value = "5"
    run(explorer)
    explorer.page.pin.click()
    explorer.report.button.click()
    assert eventually(lambda: "Download the report" in explorer.report.link.value)
    explorer.form.scheme.value = "sequential"
    assert explorer.page.pin.description == "Unpin A", "it is there to be compared with other schedules"
    explorer.form.problem.operator.value = "gemm_all_reduce"
    assert explorer.page.guess.value == ""
    assert "your guess" not in explorer.page.headline.value
    assert explorer.report.link.value == ""
    assert explorer.results.progress.layout.display == "none"
    assert headings(explorer) == ["simulated"], "nothing is pinned"
    assert explorer.page.pin.description == "Pin as A"


@pytest.mark.slow
def test_another_operator_leaves_the_progress_of_a_run_that_goes_on(explorer: Explorer, lab: FakeLab) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slowly(trial: Trial) -> None:
        began.set()
        go_on.wait(100)

    lab.before = slowly
    explorer.page.run.click()
    assert began.wait(100)
    explorer.form.problem.operator.value = "gemm_all_reduce"
    assert explorer.results.progress.layout.display is None
    go_on.set()
    assert explorer.session.wait(100)


@pytest.mark.slow
def test_a_new_run_takes_back_the_report_of_the_one_before(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    run(explorer)
    explorer.report.button.click()
    assert eventually(lambda: "Download the report" in explorer.report.link.value)
    run(explorer)
    assert explorer.report.link.value == ""
    written, go_on = threading.Event(), threading.Event()

    def slowly(*_: object, **more: object) -> Path:
        written.set()
        go_on.wait(100)
        raise ValueError("too late")

    monkeypatch.setattr("workbench.reports.export.export", slowly)
    explorer.report.button.click()
    assert written.wait(100)
    run(explorer)
    go_on.set()
    assert eventually(lambda: not explorer.report.button.disabled)
    assert explorer.report.link.value == "", "it was written for the run before"


@pytest.mark.slow
def test_another_source_takes_back_what_was_said_of_the_last_try(make_explorer: MakeExplorer) -> None:
    explorer = make_explorer(cluster=None)
    explorer.source.source.value = "recordings"
    explorer.page.run.click()
    assert "0 recordings" in explorer.page.message.value
    explorer.source.source.value = "simulator"
    assert explorer.page.message.value == ""


def click_on(explorer: Explorer, other: Row) -> None:
    """On the mark of *other* in the chart of trials."""
    explorer.panels.show("r", [{**other, "outcome": "estimate"}], "")  # which has no samples to be read
    explorer.panels.trials._on_click(Click(datum={"key": other["key"]}, layer="marks", shift=False))


ELSEWHERE = {
    "operator": "gemm_reduce_scatter", "shape": {"m": 8192, "n": 4096, "k": 1792}, "dtype": "bfloat16", "world": 4,
    "machine": "h200_nvl4", "backend": "triton", "fabric": "nvlink", "scheme": "sequential", "source": "recorded",
}  # fmt: skip


@pytest.mark.slow
def test_a_guess_is_of_one_machine(explorer: Explorer) -> None:
    explorer.page.guess.value = "60"
    explorer.form.machine.value = "h200_nvl2"
    assert explorer.page.guess.value == ""
    assert "your guess" not in explorer.page.headline.value


@pytest.mark.slow
def test_a_click_on_a_mark_of_another_machine_and_operator_says_what_it_changes_and_can_be_undone(
    explorer: Explorer,
) -> None:
    explorer.form.scheme.value = "decomposed"
    explorer.form.axes.rows["pieces"].sweep.value = True
    explorer.form.ratio.value = 2.0
    explorer.page.guess.value = "5"
    explorer.page.pin.click()
    before = explorer.form.question
    click_on(explorer, conftest_row(**ELSEWHERE, axes={"tile": "128x128x64"}))
    asked = explorer.form.question
    assert (asked.operator, asked.world, asked.dtype, asked.fabric) == ("gemm_reduce_scatter", 4, "bfloat16", "nvlink")
    assert dict(asked.shape) == ELSEWHERE["shape"]
    assert explorer.form.machine.value == "h200_nvl4"
    said = html.unescape(explorer.loading.text.value)
    assert explorer.loading.view.layout.display is None
    for words in ("4 x H200 SXM, NVSwitch", "instead of This computer: CPU ranks",
                  "GEMM -> reduce-scatter instead of GEMM -> all-to-all",
                  "m 8192; n 4096; k 1792", "4 ranks instead of 2", "bfloat16 instead of float32",
                  "GPU links instead of emulated link"):  # fmt: skip
        assert words in said
    explorer.loading.undo.click()
    assert explorer.form.question == before
    assert explorer.form.problem.preset.value == "tiny"
    assert explorer.page.guess.value == "5"
    assert explorer.page.pin.description == "Unpin A"
    assert explorer.loading.view.layout.display == "none"


def test_a_click_on_another_schedule_of_the_same_problem_needs_no_words(explorer: Explorer) -> None:
    protocol = explorer.form.protocol.value
    click_on(explorer, conftest_row(scheme="sequential", axes={"tile": "32x64x64"}, protocol="thorough"))
    assert explorer.form.scheme.value == "sequential"
    assert explorer.form.protocol.value == protocol
    assert explorer.loading.view.layout.display == "none"


@pytest.mark.slow
def test_a_mark_of_another_shape_brings_its_sizes_and_a_machine_that_is_not_described_is_named(
    explorer: Explorer,
) -> None:
    click_on(explorer, conftest_row(shape={"m": 128, "n": 96, "k": 64}, machine="somewhere"))
    assert dict(explorer.form.question.shape) == {"m": 128, "n": 96, "k": 64}
    assert "m 128; n 96; k 64 instead of m 64; n 64; k 64" in explorer.loading.text.value
    assert "somewhere is not described here: the form keeps This computer: CPU ranks" in explorer.loading.text.value
    explorer.form.ratio.value = 2.0
    assert explorer.loading.view.layout.display == "none", "an Undo would take that away, too"


# The page of a recording of GPUs says one thing once: one floor, every loss that was timed, one count of problems.

PIECES, CONCURRENT = "h200_nvl2_pieces", "h200_nvl2_concurrent"
LAST = ".3"
"""Ends the name of the block in which each part was timed."""


@pytest.fixture
def replayed(
    make_explorer: MakeExplorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, int], Explorer]:
    """replayed(name, count): an explorer that has played the first *count* problems of a recording that is shipped."""

    def play(name: str, count: int) -> Explorer:
        whole = (resources.data_directory() / "recordings" / f"{name}.jsonl").read_text().splitlines(keepends=True)
        blocks = [json.loads(line)["block"] for line in whole]
        kept = [line for line, block in zip(whole, blocks, strict=True) if int(block.split(".p")[1][:-2]) <= count]
        (tmp_path / f"{name}.jsonl").write_text("".join(kept))
        monkeypatch.setattr("workbench.results.recordings.paths", lambda: {name: tmp_path / f"{name}.jsonl"})
        explorer = make_explorer(cluster=None)
        explorer.source.source.value = "recordings"
        explorer.source.speed.value = float("inf")
        run(explorer)
        return explorer

    return play


@pytest.mark.slow
def test_a_replay_has_one_floor_and_every_loss_that_was_timed(
    replayed: Callable[[str, int], Explorer], store: Store
) -> None:
    explorer = replayed(PIECES, 1)
    (floor,) = {row["floor_s"] for row in store.rows(explorer.run_id) if row["source"] == "recorded"} - {None}
    said = f"{1e6 * floor:.0f} µs"
    assert f"<b>{said}</b> floor" in explorer.page.headline.value
    panels, drawn = explorer.panels, [pytest.approx(1e3 * floor)]
    panels.open = TRIALS
    assert [*{mark["time_ms"] for mark in panels.trials.rows(trials.DATASET) if mark["look"] == "floor"}] == drawn
    panels.open = ALONG
    along = panels.along.chart.rows(sweep.DATASET)
    assert [*{mark["floor_ms"] for mark in along if not mark["is_estimate"]}] == drawn
    assert "Floor" not in [column["heading"] for column in explorer.results.outcomes.parts[0]["columns"]]
    panels.open = LOSSES
    notes = set()
    for row in panels.problem.shown:
        if row["source"] == "recorded" and row["block"].endswith(LAST):
            panels.choose(row["key"])
            words = {part["name"]: part["words"] for part in panels.losses.chart.rows(waterfall.DATASET)}
            assert words["floor"] == said
            assert "not known" not in words.values(), (row["scheme"], panels.losses.note.value)
            assert "Not known" not in panels.losses.note.value
            assert "run it by itself" not in panels.losses.note.value
            notes.add(panels.losses.note.value.partition(":")[0])
    assert len(notes) == 5, "each schedule of the last block has words of its own"


@pytest.mark.slow
def test_a_replay_counts_each_problem_once_and_asks_nobody_to_measure(
    replayed: Callable[[str, int], Explorer],
) -> None:
    explorer = replayed(CONCURRENT, 2)
    titles = [title for title, _ in explorer.panels.problem.list.options]
    assert [title.rpartition("protocol ")[2] for title in titles[:2]] == [
        "first_device: a first look, few iterations", "device: at length, many iterations"]  # fmt: skip
    for number in range(4):
        explorer.panels.problem.list.index = number
        assert "One of 2 problems, in 4 entries: protocols differ." in explorer.panels.problem.note.value
    notes = [part["note"] for part in explorer.results.outcomes.parts]
    assert ["There is no speed-up" in note for note in notes] == [True, False] * 2
    assert not any("--fresh" in note for note in notes)
    assert "one micro-batch of 16" in explorer.page.headline.value
