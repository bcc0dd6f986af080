"""A schedule has one time on the page, in its report and in the terminal, however often it was timed."""

from __future__ import annotations

import html

import pytest

from kernels.trial import Trial
from kernels.units import seconds_text
from tests.widgets.conftest import FakeLab, run
from workbench.reports.cases import cases
from workbench.reports.tables import lines
from workbench.results.runs import summaries
from workbench.results.store import Store
from workbench.widgets.exploration import Select, row_id
from workbench.widgets.explorer_page import Explorer
from workbench.widgets.table_view import TableView
from workbench.widgets.timeline_view import LINK_FOLLOWS

SLOW, QUICK = 2.12e-3, 2.46e-3
"""Of a disturbed block, and of its repetition, which counts though it took longer."""


@pytest.fixture
def disturbed(lab: FakeLab) -> FakeLab:
    """Others use more than half of the cores while a block is timed for the first time, and little the second time."""

    def times() -> int:
        return sum(1 for each in lab.lists if [one.key for one in each] == [one.key for one in lab.lists[-1]])

    def read(trial: Trial) -> None:
        now = 1.2 if times() == 1 else 0.02
        use = {"windows": [[1e9 - 1, 1e9 + 100, now]], "cores": 2.0, "whom": {"other programs": now}}
        lab.facts = {rank: {"core_use": use} for rank in range(trial.world)}

    def seconds(trial: Trial) -> float:
        if trial.part != "whole":
            return 1e-3
        return (SLOW if times() == 1 else QUICK) * (1.5 if trial.schedule.scheme == "sequential" else 1)

    lab.before, lab.seconds = read, seconds
    return lab


def listed(explorer: Explorer, scheme: str) -> list[float]:
    """The timed rows of *scheme* that the Table view lists."""
    view = explorer.deck.view_named("table")
    assert isinstance(view, TableView)
    view.draw(explorer._scene())
    frame = view._frame(explorer._scene())
    rows = [frame.row(place) for place in view._shown.tolist()]
    return [row["time_s"] for row in rows if row["scheme"] == scheme and row["source"] == "measured"]


@pytest.mark.slow
def test_strip_table_report_and_runs_show_one_time_of_a_block_that_was_timed_again(
    explorer: Explorer, disturbed: FakeLab, store: Store
) -> None:
    run(explorer)
    rows = [row for row in store.rows(explorer.run_id or "") if row["part"] == "whole" and row["source"] == "measured"]
    scheme = explorer.form.scheme.value
    assert {round(row["time_s"], 6) for row in rows if row["scheme"] == scheme} == {SLOW, QUICK}, "timed twice"
    assert explorer.shown.row is not None
    shown = explorer.shown.row["time_s"]
    assert shown == pytest.approx(QUICK)
    assert explorer.explored.state.selected == row_id(explorer.shown.row)
    assert listed(explorer, scheme) == [shown]
    assert len(listed(explorer, "sequential")) == len({row["key"] for row in rows if row["scheme"] == "sequential"})
    (case,) = cases(store.rows(explorer.run_id or ""))
    in_report = [line.clock for line in lines(case.whole) if line.clock and line.clock["scheme"] == scheme]
    assert [row["time_s"] for row in in_report] == [shown]
    assert summaries(store, 1)[0]["best_s"] == shown
    on_landscape = [row["time_s"] for row in explorer.panels._on_landscape() if row["source"] == "measured"]
    assert sorted(on_landscape)[0] == shown, "no cell is of the disturbed block"
    assert explorer.shown.gain is not None, "its baseline is that of the same block"


@pytest.mark.slow
def test_an_older_timing_that_a_link_names_is_the_one_that_counts(
    explorer: Explorer, disturbed: FakeLab, store: Store
) -> None:
    run(explorer)
    older = next(row for row in explorer._scene().rows
                 if row["scheme"] == "fused" and row["time_s"] == pytest.approx(SLOW))  # fmt: skip
    explorer.explored.dispatch(Select(row_id(older)))
    assert explorer.shown.row is not None
    assert explorer.shown.row["time_s"] == pytest.approx(QUICK)
    assert explorer.explored.state.selected == row_id(explorer.shown.row)


@pytest.mark.slow
def test_the_strip_says_that_the_estimate_was_another_one_before_the_link_was_measured(
    explorer: Explorer, lab: FakeLab
) -> None:
    """A computation that takes ten times as long as estimated makes the link of a ratio ten times as slow."""
    before = explorer.shown.estimate
    assert before is not None
    lab.seconds = lambda trial: 10 * before.time_s
    assert "when Run was pressed" not in explorer.page.headline.value
    run(explorer)
    after = explorer.shown.estimate
    assert after is not None
    assert after.time_s > 1.5 * before.time_s
    sentence = f"The estimate was {seconds_text(before.time_s)} when Run was pressed: {LINK_FOLLOWS}."
    assert sentence in html.unescape(explorer.page.headline.value)
    assert explorer.shown.ruler.drawing["note"].startswith(sentence)
    slices = explorer.form.axes.rows["slice_tiles"].control
    slices.value = next(value for value in slices.options if value != slices.value)
    assert "when Run was pressed" not in explorer.page.headline.value, "that was another schedule's"
    run(explorer)
    assert "when Run was pressed" not in explorer.page.headline.value, "the link stays what it is"
