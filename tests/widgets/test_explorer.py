"""The explorer without a browser: set a value, read the experiment; click, stop, replay, restore."""

from __future__ import annotations

import html
import io
import json
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.schedule import Refusal
from kernels.trial import Trial
from tests.widgets.conftest import FakeLab, eventually, headings, run
from workbench.charts import landscape, timeline, trials
from workbench.reports import archive
from workbench.reports.run_report import stored_report
from workbench.results import recordings
from workbench.results.store import Store
from workbench.widgets.exploration import OpenView
from workbench.widgets.explorer_page import Explorer
from workbench.widgets.live_chart import Click
from workbench.widgets.panels import ALONG, TRIALS

MakeExplorer = Callable[..., Explorer]


def looks(explorer: Explorer) -> list[str]:
    """What the chart of trials shows."""
    return [drawn["look"] for drawn in explorer.panels.trials.rows(trials.DATASET)]


def set_axis(explorer: Explorer, name: str, value: object) -> None:
    explorer.form.axes.rows[name].control.value = value


def sweep(explorer: Explorer) -> None:
    explorer.form.scheme.value = "decomposed"
    explorer.form.axes.rows["pieces"].sweep.value = True


def test_it_opens_with_a_simulated_timeline_before_anything_runs(
    explorer: Explorer, lab: FakeLab, store: Store
) -> None:
    assert headings(explorer) == ["simulated"]
    assert "estimated" in explorer.page.headline.value
    assert "1 fused schedule and 4 baselines" in explorer.page.plan.value
    assert eventually(lambda: not explorer.page.run.disabled)
    assert lab.lists == []
    assert store.runs() == []


def test_a_slider_redraws_the_timeline(explorer: Explorer) -> None:
    explorer.form.problem.preset.value = "laptop_overlap"
    before = explorer.page.timeline.rows(timeline.DATASET)
    control = explorer.form.axes.rows["slice_tiles"].control
    control.value = next(value for value in control.options if value != control.value)
    assert explorer.page.timeline.rows(timeline.DATASET) != before


@pytest.mark.slow
def test_what_the_form_says_is_what_is_measured(explorer: Explorer, store: Store) -> None:
    explorer.form.problem.operator.value = "gemm_all_reduce"
    explorer.form.scheme.value = "decomposed"
    set_axis(explorer, "pieces", 2)
    explorer.form.ratio.value = 2.0
    run(explorer)
    asked = store.run()["experiment"]
    assert [problem["operator"] for problem in asked["problems"]] == ["gemm_all_reduce"]
    assert asked["space"] == [{"scheme": "decomposed", "values": {"pieces": [2]}}]
    assert asked["fabric"]["wire_to_compute"] == 2.0


def test_guess_estimate_and_measurement_stand_together(explorer: Explorer) -> None:
    explorer.page.guess.value = "5"
    run(explorer)
    assert {"measured", "estimated", "floor", "guess"} <= set(looks(explorer))
    assert looks(explorer).count("guess") == 1
    for word in ("5 ms</b> your guess", "estimated", "measured", "floor"):
        assert word in explorer.page.headline.value
    assert headings(explorer) == ["measured", "simulated"]
    assert explorer.panels.open == TRIALS


def test_a_guess_takes_units_and_says_what_would_be_accepted(explorer: Explorer) -> None:
    for typed, shown in (("3", "3 ms"), (" 2,5 ms", "2.5 ms"), ("150 us", "150 µs"), ("2 s", "2 s")):
        explorer.page.guess.value = typed
        assert f"<b>{shown}</b> your guess" in explorer.page.headline.value
        assert explorer.shown.guess_refusal.value == ""
    for typed in ("soon", "-1", "0", "inf", "3 m"):
        explorer.page.guess.value = typed
        assert "your guess" not in explorer.page.headline.value
        assert "Accepted: 150 µs, 0.15 ms, 2 s" in explorer.shown.guess_refusal.value
    explorer.page.guess.value = ""
    assert explorer.shown.guess_refusal.value == "", "no guess is no mistake"


def test_a_measured_timeline_goes_when_the_form_asks_for_something_else_and_comes_back(explorer: Explorer) -> None:
    run(explorer)
    explorer.form.ratio.value = 4.0
    assert headings(explorer) == ["simulated"]
    explorer.form.ratio.value = 1.0
    assert headings(explorer) == ["measured", "simulated"]


def test_a_sweep_tries_every_value_and_draws_along_the_axis(explorer: Explorer, store: Store) -> None:
    sweep(explorer)
    assert "decomposed schedules" in explorer.page.plan.value
    run(explorer)
    assert explorer.panels.open == ALONG
    rows = [row for row in store.rows(explorer.run_id) if row["part"] == "whole" and row["source"] == "measured"]
    values = explorer.form.axes.rows["pieces"].control.options
    assert [row["axes"]["pieces"] for row in rows if row["scheme"] == "decomposed"] == list(values)


def test_all_schemes_are_compared_in_one_sitting(explorer: Explorer, store: Store) -> None:
    explorer.form.sweep_schemes.value = True
    run(explorer)
    assert store.run()["experiment"]["together"]
    rows = [row for row in store.rows(explorer.run_id) if row["part"] == "whole" and row["source"] == "measured"]
    assert {row["scheme"] for row in rows} == {"sequential", "decomposed", "fused"}


@pytest.mark.slow
def test_what_was_timed_in_two_blocks_is_measured_together_by_a_button(explorer: Explorer, store: Store) -> None:
    explorer.form.scheme.value = "decomposed"
    set_axis(explorer, "pieces", 2)
    run(explorer)
    offer = explorer.results.together.layout
    assert offer.display == "none", "one schedule was compared with its baseline"
    sweep(explorer)
    run(explorer)
    assert offer.display != "none"
    wanted = {row["key"] for row in explorer.results.apart}
    explorer.results.together.click()
    assert explorer.session.wait(60.0)
    assert eventually(lambda: not explorer._running)
    measured = [row for row in store.rows(explorer.run_id) if row["part"] == "whole" and row["source"] == "measured"]
    assert wanted <= {row["key"] for row in measured}
    assert len({row["block"] for row in measured}) == 1
    assert offer.display == "none", "they are compared now"
    assert "not compared" not in explorer.results.outcomes.text


@pytest.mark.slow
def test_a_click_on_a_cell_loads_its_schedule(explorer: Explorer) -> None:
    sweep(explorer)
    run(explorer)
    cell = explorer.panels.landscape.chart
    cell._on_click(Click(datum={"scheme": "decomposed", "axes": {
        **dict(explorer.form.question.schedule(explorer.form.machine_value).axes), "pieces": 4,
    }}, layer="cells", shift=False))  # fmt: skip
    assert explorer.form.axes.rows["pieces"].control.value == 4
    assert headings(explorer) == ["measured", "simulated"], "it was measured in this run"
    assert "1 decomposed schedule" in explorer.page.plan.value, "its computation alone was not timed in the sweep"


def test_the_landscape_is_filled_with_estimates_before_anything_runs(explorer: Explorer) -> None:
    explorer.form.scheme.value = "decomposed"
    cells = explorer.panels.landscape.chart.rows(landscape.DATASET)
    assert {cell["x"] for cell in cells} == set(explorer.form.axes.rows["pieces"].control.options)
    assert {cell["look"] for cell in cells} == {"estimated"}


@pytest.mark.slow
def test_the_landscape_after_a_run_has_one_scale_one_star_and_says_so(explorer: Explorer) -> None:
    sweep(explorer)
    run(explorer)
    explorer.explored.dispatch(OpenView("landscape"))
    explorer.panels.landscape.x.value, explorer.panels.landscape.y.value = "pieces", "split"
    # the link is resolved by what was measured: estimates of now
    estimated = {(row["axes"]["pieces"], row["axes"]["split"]): row["time_s"] * 1e3
                 for row in explorer._cells("pieces", "split")[0]}  # fmt: skip
    cells = explorer.panels.landscape.chart.rows(landscape.DATASET)
    assert {cell["look"] for cell in cells} >= {"measured"}
    assert [cell["look"] for cell in cells if cell["best"]] == ["measured"]
    text = explorer.panels.landscape.scale.value
    assert "timed / estimated of" in text
    factor = float(text.partition("times ")[2].partition(":")[0])
    others = [cell for cell in cells if cell["look"] == "estimated" and (cell["x"], cell["y"]) in estimated]
    assert others
    assert all(cell["time_ms"] == pytest.approx(estimated[cell["x"], cell["y"]] * factor, rel=0.05) for cell in others)


@pytest.mark.slow
def test_what_is_refused_says_why_shows_no_timeline_and_cannot_be_run(explorer: Explorer) -> None:
    explorer.form.scheme.value = "decomposed"
    explorer.form.axes.rows["pattern"].control.value = "ring"
    explorer.form.axes.rows["grouping"].control.value = "fused"
    assert "Accepted: grouping = unfused" in explorer.form.refusal.value
    assert headings(explorer) == []
    assert explorer.page.run.disabled
    explorer.form.scheme.value = "fused"
    assert headings(explorer) == ["simulated"]
    assert not explorer.page.run.disabled


def test_a_protocol_that_is_refused_is_named_where_the_estimate_was(explorer: Explorer) -> None:
    """The schedule is legal: CPU ranks cannot time it so."""
    explorer.form.protocol.value = "steady"
    assert headings(explorer) == []
    words = html.unescape(explorer.page.headline.value)
    assert "No estimate: protocol = steady does not run on backend = cpu. The form says what is accepted." in words
    explorer.form.protocol.value = "quick"
    assert "estimated" in explorer.page.headline.value


def test_the_landscape_of_a_refused_question_has_no_estimates_and_says_so(explorer: Explorer) -> None:
    """Those of the question before would be taken for its own. They come back with a question that has some."""
    shown = explorer.panels.landscape
    legal = shown.chart.rows(landscape.DATASET)
    assert legal
    assert not shown.message.value
    explorer.form.protocol.value = "steady"
    assert not shown.chart.rows(landscape.DATASET)
    assert "no estimate" in shown.message.value
    explorer.form.protocol.value = "quick"
    assert shown.chart.rows(landscape.DATASET) == legal
    assert not shown.message.value


@pytest.mark.slow
def test_stop_ends_a_run_and_another_can_begin(explorer: Explorer, lab: FakeLab, store: Store) -> None:
    began = threading.Event()

    def slowly(trial: Trial) -> None:
        began.set()
        time.sleep(0.1)

    lab.before = slowly
    sweep(explorer)
    explorer.page.run.click()
    assert began.wait(100)
    assert explorer.page.run.disabled
    explorer.page.stop.click()
    assert explorer.session.wait(60.0)
    assert "stopped" in explorer.results.text.value
    assert store.run()["status"] == "cancelled"
    assert explorer.page.stop.disabled
    lab.before = lambda trial: None
    run(explorer)
    assert store.run()["status"] == "finished"


def test_a_failure_is_said_and_the_buttons_come_back(explorer: Explorer, lab: FakeLab) -> None:
    lab.failures = {"fused": ("hang", 0)}
    run(explorer)
    assert "because of hang" in explorer.page.message.value
    assert "because of hang" in explorer.results.others.value
    assert not explorer.page.run.disabled


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("broken", ["a chart", "the form"])
def test_the_buttons_come_back_when_the_last_news_cannot_be_drawn(
    broken: str, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A form that became illegal while the session drew, or any error of a chart, once left Run disabled for ever."""
    monkeypatch.setattr("workbench.widgets.session._LOG.exception", lambda *_: None)
    if broken == "a chart":
        monkeypatch.setattr(explorer.panels, "add", lambda news: 1 / 0)
    else:
        begin, predicted = explorer.panels.begin, explorer._predicted

        def refused() -> None:
            if threading.current_thread().name == "workbench news":
                monkeypatch.setattr(explorer, "_predicted", predicted)
                raise Refusal("slice_tiles 64 is more than 4 tiles")

        monkeypatch.setattr(explorer.panels, "begin", lambda begun: (
            begin(begun), monkeypatch.setattr(explorer, "_predicted", refused)))  # fmt: skip
    run(explorer)
    assert not explorer.page.run.disabled
    assert explorer.page.stop.disabled
    monkeypatch.undo()
    run(explorer)


@pytest.mark.slow
def test_a_second_press_on_run_begins_no_second_run(explorer: Explorer, lab: FakeLab, store: Store) -> None:
    go_on = threading.Event()
    lab.before = lambda trial: go_on.wait(100)
    explorer.page.run.click()
    going_on = explorer.run_id
    explorer.page.run.click()
    explorer.run()
    go_on.set()
    assert explorer.session.wait(100)
    assert [found["id"] for found in store.runs()] == [explorer.run_id] == [going_on]
    assert store.run()["status"] == "finished"


def test_without_a_cluster_run_says_so_and_nothing_is_written(make_explorer: MakeExplorer, store: Store) -> None:
    explorer = make_explorer(cluster=None)
    assert eventually(lambda: "No cluster answers" in explorer.page.status.value)
    explorer.page.run.click()
    assert "scheduler" in explorer.page.message.value
    assert store.runs() == []


@pytest.mark.slow
def test_more_ranks_than_cores_are_warned_of(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.widgets.explorer_page.usable_cores", lambda: 2)
    assert eventually(lambda: "4 ranks" in explorer.page.status.value)
    assert explorer.page.banner.value == ""
    explorer.form.problem.world.value = 4
    assert "4 ranks share 2 cores" in explorer.page.banner.value
    explorer.source.source.value = "simulator"
    assert explorer.page.banner.value == ""


@pytest.mark.slow
def test_a_machine_that_is_not_here_is_simulated(explorer: Explorer, lab: FakeLab, store: Store) -> None:
    explorer.form.machine.value = "h200_nvl8"
    explorer.source.source.value = "simulator"
    assert "nothing is timed" in explorer.page.plan.value
    run(explorer)
    assert lab.lists == []
    assert {row["source"] for row in store.rows(explorer.run_id)} == {"estimated"}
    assert set(looks(explorer)) == {"estimated", "floor"}


@pytest.mark.slow
def test_a_place_is_kept_only_for_a_timeline_that_can_come(explorer: Explorer) -> None:
    """A simulation once kept half of the chart empty for what is never measured."""

    def places() -> list[str]:
        return [record["heading"] for record in explorer.page.timeline.rows(timeline.DATASET) if record["heading"]]

    assert "measured: not yet" in places()
    explorer.source.source.value = "simulator"
    assert len(places()) == 1
    assert places()[0].startswith("simulated")


@pytest.mark.slow
def test_a_timed_schedule_without_a_timeline_is_not_waited_for(explorer: Explorer) -> None:
    """A replay of such schedules said "recorded: not yet" for ever."""
    run(explorer)
    assert explorer.shown.row is not None

    def headed() -> list[str]:
        explorer.shown.draw()
        return [record["heading"] for record in explorer.page.timeline.rows(timeline.DATASET) if record["heading"]]

    explorer.shown.row = {**explorer.shown.row, "block": "one without timelines"}
    assert headed()[0].startswith("measured: the last step ends at"), "that of another block"
    explorer.shown.row = {**explorer.shown.row, "key": "of no timeline"}
    assert headed()[0] == "measured: no timeline of it was kept"
    assert len(headed()) == 2


def test_a_pinned_timeline_stays_above_the_next_ones(explorer: Explorer) -> None:
    explorer.page.pin.click()
    explorer.form.scheme.value = "sequential"
    assert headings(explorer) == ["A, fused, tiles per slice 1, simulated", "simulated"]
    assert "</b> A" in explorer.page.headline.value
    explorer.page.pin.click()
    assert headings(explorer) == ["simulated"]


@pytest.mark.slow
def test_a_run_of_ones_own_is_replayed_without_a_cluster(
    explorer: Explorer, make_explorer: MakeExplorer, store: Store
) -> None:
    sweep(explorer)
    run(explorer)
    measured = explorer.run_id
    alone = make_explorer(cluster=None)
    alone.form.problem.operator.value = "gemm_all_reduce"
    alone.source.source.value = "recordings"
    alone.source.speed.value = float("inf")
    assert alone.source.recording.value == ("own", measured)
    assert alone.form.problem.operator.value == "gemm_all_to_all", "the form shows what the recording is about"
    run(alone)
    rows = store.rows(alone.run_id)
    assert {row["source"] for row in rows} == {"recorded", "estimated"}
    assert looks(alone).count("recorded") == len(
        [row for row in store.rows(measured) if row["part"] == "whole" and row["source"] == "measured"]
    )
    assert headings(alone) == ["recorded", "simulated"]


@pytest.mark.slow
def test_back_from_a_replay_the_question_of_before_is_there_again(
    explorer: Explorer, make_explorer: MakeExplorer
) -> None:
    run(explorer)
    alone = make_explorer()
    alone.form.problem.operator.value = "gemm_all_reduce"
    alone.form.scheme.value, alone.form.ratio.value = "sequential", 4.0
    alone.form.sweep_schemes.value = True
    before = alone.form.state
    for _ in range(2):
        alone.source.source.value = "recordings"
        assert alone.form.state != before
        alone.form.scheme.value = "decomposed"
        alone.source.source.value = "cluster"
        assert alone.form.state == before
        assert alone.form.refusal.value == ""


@pytest.mark.slow
def test_a_recording_says_how_many_whole_schedules_it_has_and_one_without_any_is_not_offered(
    explorer: Explorer, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(explorer)
    measured = str(explorer.run_id)
    whole = recordings.write(store, measured, tmp_path / "whole.jsonl")
    lines = whole.read_text().splitlines()
    (tmp_path / "parts.jsonl").write_text("".join(f"{line}\n" for line in lines if json.loads(line)["part"] != "whole"))
    shipped = {name: tmp_path / f"{name}.jsonl" for name in ("parts", "whole")}
    monkeypatch.setattr(recordings, "paths", lambda: shipped)
    empty = store.begin_run({}, {}, "refused")
    explorer.source.source.value = "recordings"
    offered = {value: label for label, value in explorer.source.recording.options}
    assert list(offered) == [("shipped", "whole"), ("own", measured)]
    assert ("own", empty) not in offered
    count = len({json.loads(line)["key"] for line in lines if json.loads(line)["part"] == "whole"})
    assert f"({count} whole schedule" in offered["shipped", "whole"]
    assert f"It has {count} whole schedule" in explorer.source.about.value
    explorer.source.speed.value = float("inf")
    run(explorer)
    assert f"{count} of {count} schedule" in explorer.results.text.value


@pytest.mark.slow
def test_a_replay_of_what_the_form_asks_says_what_was_not_recorded(explorer: Explorer) -> None:
    run(explorer)
    explorer.source.source.value = "recordings"
    explorer.source.speed.value = float("inf")
    explorer.source.whole.value = False
    run(explorer)
    assert explorer.page.message.value == ""
    explorer.form.scheme.value = "decomposed"
    run(explorer)
    assert "not among the" in explorer.page.message.value


def test_who_looks_for_a_recording_before_they_are_offered_has_the_first(explorer: Explorer) -> None:
    """A page that draws in another thread did, and said that there were 0 recordings."""
    run(explorer)
    assert not explorer.source.recording.options
    assert explorer.source.recorded()
    assert explorer.source.recording.value == ("own", explorer.run_id)


def test_without_recordings_a_replay_says_what_is_needed(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "paths", dict)
    explorer.source.source.value = "recordings"
    explorer.page.run.click()
    assert "0 recordings and 0 measured runs" in explorer.page.message.value


@pytest.mark.slow
def test_the_last_run_is_there_when_an_explorer_opens_again(
    explorer: Explorer, make_explorer: MakeExplorer, lab: FakeLab
) -> None:
    lab.seconds = lambda trial: 2e-3 if trial.schedule.scheme == "sequential" else 1e-3
    explorer.form.problem.operator.value = "all_gather_gemm"
    sweep(explorer)
    run(explorer)
    asked = len(lab.lists)
    again = make_explorer()
    assert again.run_id == explorer.run_id
    assert again.form.problem.operator.value == "all_gather_gemm"
    assert again.form.problem.preset.value == "tiny"
    assert again.form.scheme.value == "decomposed"
    assert sorted(looks(again)) == sorted(looks(explorer))
    assert headings(again) == ["measured", "simulated"]
    assert len(lab.lists) == asked, "restoring measures nothing"


@pytest.mark.slow
def test_a_run_is_restored_by_the_beginning_of_its_id(
    explorer: Explorer, make_explorer: MakeExplorer, store: Store
) -> None:
    run(explorer)
    first = explorer.run_id
    explorer.form.scheme.value = "sequential"
    run(explorer)
    assert make_explorer(run=first[:-1]).run_id == first


def test_a_run_that_does_not_exist_is_said_to(make_explorer: MakeExplorer) -> None:
    assert "none yet" in make_explorer(run="20200101").page.message.value


@pytest.mark.slow
def test_what_is_known_is_not_measured_again_unless_asked(explorer: Explorer, lab: FakeLab) -> None:
    run(explorer)
    asked = len(lab.lists)
    run(explorer)
    assert len(lab.lists) == asked
    assert "1 known from before" in explorer.results.text.value
    explorer.form.fresh.value = True
    run(explorer)
    assert len(lab.lists) > asked


@pytest.mark.slow
def test_the_report_of_the_run_lies_beside_the_store(explorer: Explorer, store: Store) -> None:
    explorer.report.button.click()
    assert "no run yet" in explorer.report.link.value
    run(explorer)
    explorer.report.note.value = "On a <b>quiet</b> evening."
    explorer.report.button.click()
    assert eventually(lambda: "Download the report" in explorer.report.link.value)
    (written,) = (store.path.parent / "reports").glob("*.html")
    assert explorer.run_id in written.read_text()
    assert "<p>On a &lt;b&gt;quiet&lt;/b&gt; evening.</p>" in written.read_text()


@pytest.mark.slow
def test_the_files_of_the_run_are_one_zip(explorer: Explorer) -> None:
    with pytest.raises(ValueError, match="There is no run yet: press Run first"):
        explorer.report.zipped()
    run(explorer)
    name, content = explorer.report.zipped()
    assert name == f"{explorer.run_id}.zip"
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        assert {archive.REPORT, archive.ROWS, archive.AGAIN, archive.CITATION} < set(packed.namelist())
        assert explorer.run_id in packed.read(archive.REPORT).decode()


@pytest.mark.slow
def test_what_follows_from_the_times_of_a_schedule_stands_under_its_losses_and_in_the_report(
    explorer: Explorer, store: Store, lab: FakeLab
) -> None:
    lab.seconds = lambda trial: 2e-3 if (trial.schedule.scheme, trial.part) == ("sequential", "whole") else 1e-3
    run(explorer)
    explorer.explored.dispatch(OpenView("losses"))
    report = "".join(cell.source + str(cell.get("outputs")) for cell in stored_report(store, "last").cells)
    for name in ("share of ideal", "overlap efficiency", "decomposition loss", "contention loss", "algbw", "busbw"):
        assert f">{name}<" in explorer.panels.losses.numbers.value
        assert f">{name}<" in report
