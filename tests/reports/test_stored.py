"""Runs of a store as reports: what is drawn of them, and that it looks the same whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from nbformat import NotebookNode

from workbench import machines
from workbench.charts import theme
from workbench.experiment.run import Replay
from workbench.reports.pictures import CHART, title_text
from workbench.reports.run_report import stored_report, swept
from workbench.reports.side_by_side import stored_runs
from workbench.results import recordings
from workbench.results.store import Store

LADDER = "laptop_ladder_pieces_and_slices"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """With a replay of a sweep, estimates beside it."""
    with Store(tmp_path_factory.mktemp("runs") / "store.sqlite") as opened:
        play(opened, LADDER)
        yield opened


def play(store: Store, name: str) -> str:
    machine = machines.shipped_machine(recordings.recordings(name)[0].measurement.trial.machine)
    sitting = Replay(
        recordings.recordings(name), store, machine=machine, speed=None, title=f"gemm_all_to_all of {name}"
    )
    list(sitting)
    return sitting.run


def specs(notebook: NotebookNode) -> list[dict[str, Any]]:
    data = [output.data for cell in notebook.cells for output in cell.get("outputs", ())]
    return [entry[CHART] for entry in data if CHART in entry]


def test_a_report_of_a_sweep_has_the_chart_of_each_swept_axis(store: Store) -> None:
    titles = [title_text(spec) for spec in specs(stored_report(store, "last"))]
    assert titles[0] == "How long does each trial take?"
    assert sum(title.startswith("How does the time depend on") for title in titles) == 2


def test_charts_look_like_the_workbenchs_whatever_theme_is_on(store: Store) -> None:
    before = alt.theme.active
    looks = theme.config(theme.Mode.LIGHT)
    for spec in specs(stored_report(store, "last")):
        assert spec["config"]["title"]["anchor"] == looks["title"]["anchor"]
        assert spec["config"]["legend"]["orient"] == "top"
    assert alt.theme.active == before, "and the process is as it was"


def test_a_chart_draws_no_other_floor_than_the_card_shows(store: Store) -> None:
    drawn = specs(stored_report(store, "last"))[0]
    floors = {record["time_ms"] for rows in drawn["datasets"].values() for record in rows if record["look"] == "floor"}
    timed = [row for row in store.rows(store.run()["id"]) if row["source"] == "recorded" and row["part"] == "whole"]
    assert len(floors) == 1
    assert floors.pop() == pytest.approx(1e3 * timed[0]["floor_s"], rel=1e-4)


def test_a_title_has_the_operators_name_for_people(store: Store) -> None:
    assert stored_report(store, "last").metadata.title == f"GEMM -> all-to-all of {LADDER}"


def test_an_axis_is_swept_when_it_makes_a_curve_or_when_it_was_asked_for() -> None:
    def tried(axis: str, *values: int | str) -> list[dict[str, Any]]:
        return [{"scheme": "fused", "axes": {axis: value}, "time_s": 1.0} for value in values]

    assert swept(tried("slice_tiles", 1, 2, 4)) == ["slice_tiles"]
    assert swept(tried("write", "staged", "zero_copy")) == []
    assert swept(tried("write", "staged", "zero_copy"), {"write"}) == ["write"]
    assert swept([{"scheme": "sequential", "axes": {"collective": name}, "time_s": 1.0} for name in "abc"]) == []


def test_a_stopped_replay_says_so_first(tmp_path: Path) -> None:
    with Store(tmp_path / "store.sqlite") as opened:
        sitting = Replay(recordings.recordings(LADDER), opened, speed=None)
        for number, _ in enumerate(sitting):
            if number == 60:
                sitting.cancelled.set()
        first = next(cell for cell in stored_report(opened, sitting.run).cells if cell.get("outputs"))
    assert "Stopped after" in first.outputs[0].data["text/plain"]


def test_a_report_names_the_host_and_no_login_unless_it_is_asked_for(tmp_path: Path) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        runs = [store.begin_run({}, {"host": "there", "user": user}) for user in ("lovelace", "hopper")]
        for login in (False, True):
            one, both = (
                "".join(cell.source for cell in stored_runs(store, names, login=login).cells)
                + str([cell.get("outputs") for cell in stored_runs(store, names, login=login).cells])
                for names in (runs[:1], runs)
            )
            assert "there" in one
            assert ("lovelace" in one, "lovelace" in both, "hopper" in both) == (login,) * 3
